"""Bounds with latent variables of the rows, and with K importance samples of them (Salimbeni et al. 2019).

    L_n(1) = E_q [ log p(y_n | w_n) ] - KL[q(w_n) || p(w_n)]
    L_n(K) = E_q [ log 1/K sum_k p(y_n | w_nk) p(w_nk) / q(w_nk) ]

w_nk ~ q(w_n), and log p(y_n | w) is E[log p(y_n | f)] over the last layer given draws of the layers below. L_n(K)
rises with K to the log of the integral over w. Its gradient with respect to q(w_n) is the doubly reparametrised one
(Tucker et al. 2019): with the normalised weights v_k, sum_k v_k^2 d log(p(y | w_k) p(w_k) / q(w_k)) / d w_k, in which q
itself is held fixed. It has the same mean as the plain one, and its signal-to-noise ratio does not fall with K.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .layers.latent import LatentVariableLayer

__all__ = ["Weighting", "has_latents"]


def has_latents(layers: Sequence[Any]) -> bool:
    """Whether rows have latent variables."""
    return any(isinstance(layer, LatentVariableLayer) for layer in layers)


class Weighting:
    """What latent variables add to the terms of a bound.

    :param layers: of the model. :param noise: of the inner layers, [S K, B or 1, L] each; K consecutive ones belong
        together. :param X: rows of the data [B, D]. :param Y: targets [B, P]. :param num_importance_samples: K.
    :ivar noise: the same, with draws of q(w_n) in place of the noise of latent variables.
    """

    noise: list[tf.Tensor]

    def __init__(
        self,
        layers: Sequence[Any],
        noise: Sequence[tf.Tensor],
        X: tf.Tensor,
        Y: tf.Tensor,
        num_importance_samples: int,
    ) -> None:
        self.K, self.noise = num_importance_samples, list(noise)
        self._weights: tf.Tensor | None = None
        self._added: tf.Tensor = tf.zeros([], X.dtype)  # to the terms, [S K, B] or [B]
        for i, (layer, eps) in enumerate(zip(layers[: len(noise)], noise, strict=True)):
            if isinstance(layer, LatentVariableLayer):
                self.noise[i] = self._draw(*layer.posterior(X, Y), eps)

    def per_row(self, terms: tf.Tensor, weights: tf.Tensor | None = None) -> tf.Tensor:
        """L_n, [B], averaged over S, of the terms E[log p(y_n | f)] [S K, B].

        :param weights: of quadrature nodes [S], which K = 1 may have; None for equal ones.
        """
        terms = terms + self._added
        if self.K == 1:
            return tf.reduce_mean(terms, axis=0) if weights is None else tf.linalg.matvec(terms, weights, True)
        grouped = tf.reshape(terms, tf.stack([-1, self.K, tf.shape(terms)[1]]))  # [S, K, B]
        self._weights = tf.reshape(tf.stop_gradient(tf.nn.softmax(grouped, axis=1)), tf.shape(terms))
        return tf.reduce_mean(tf.reduce_logsumexp(grouped, axis=1) - np.log(self.K), axis=0)

    # Private.

    def _draw(self, mean: tf.Tensor, std: tf.Tensor, eps: tf.Tensor) -> tf.Tensor:
        """w = a + b eps, [S K, B, Q]; keeps what it adds to the terms."""
        w = mean + std * eps
        if self.K == 1:
            kl = 0.5 * tf.reduce_sum(tf.square(mean) + tf.square(std) - 1.0 - 2.0 * tf.math.log(std), axis=-1)
            self._added = self._added - kl
            return w
        w = _scaled_gradient(w, self._weights_of_draws)
        mean, std = tf.stop_gradient(mean), tf.stop_gradient(std)
        ratio = 0.5 * tf.square((w - mean) / std) + tf.math.log(std) - 0.5 * tf.square(w)  # log p(w) - log q(w)
        self._added = self._added + tf.reduce_sum(ratio, axis=-1)
        return w

    def _weights_of_draws(self) -> tf.Tensor:
        """Normalised weights [S K, B, 1], known when gradients are asked for."""
        if self._weights is None:
            raise RuntimeError("the gradient was asked for before the bound was computed.")
        return self._weights[..., None]


def _scaled_gradient(w: tf.Tensor, scale: Callable[[], tf.Tensor]) -> tf.Tensor:
    """w, with a gradient that is multiplied by `scale()`, which is called when it is computed."""

    @tf.custom_gradient
    def identity(w: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        return tf.identity(w), lambda upstream: upstream * scale()

    return identity(w)
