"""Bounds with latent variables of the rows, and with K importance samples of them (Salimbeni et al. 2019).

    L_n(1) = E_f E_q [ log p(y_n | f, w_n) ] - KL[q(w_n) || p(w_n)]
    L_n(K) = E_f E_q [ log 1/K sum_k exp(E[log p(y_n | f^L)]) p(w_nk) / q(w_nk) ]

w_nk ~ q(w_n), f ~ q are the functions of the inner layers, and the innermost expectation is over the last layer's f^L
at (x_n, w_nk) given what is drawn below. sum_n L_n(K) - KL[q(u) || p(u)] is a bound for every K:

* log p(Y) >= E_q(f)[ sum_n log p(y_n | f) ] - KL[q(u) || p(u)], where p(y_n | f) = E_p(w)[ p(y_n | f, w) ];
* log p(y_n | f) >= E_q(w)[ log 1/K sum_k p(y_n | f, w_k) p(w_k) / q(w_k) ], by Jensen's inequality, for one f;
* E_f^L[ log sum_k exp a_k ] >= log sum_k exp E_f^L[a_k], as the left is convex in a_k: marginals of f^L are enough.

The second line asks for one f at the K inputs (x_n, w_nk) of a row: the inner layers are drawn jointly over them, by
K x K covariances (`joint_outputs`). With other draws for each k, the functions would be averaged within the logarithm,
too, and the sum be no bound: it may pass the evidence. Rows have draws of their own, as each has its own expectation.
Layers below the latent variables read one input for all k, and are drawn once. The noise between layers differs
between the k: it is a further latent variable of the row, with q = p, and so without a weight.

L_n(K) rises with K to E_f[log p(y_n | f)]. Its gradient with respect to q(w_n) is the doubly reparametrised one (Tucker
et al. 2019): with normalised weights v_k, sum_k v_k^2 d log(p(y | f, w_k) p(w_k) / q(w_k)) / d w_k, in which q itself
and f are held fixed. It has the same mean as the plain one, and its signal-to-noise ratio does not fall with K. The
slopes of joint draws with f held fixed are those of `layers.joint`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData

from ..layers.joint import joint_draw
from ..layers.latent import LatentVariableLayer
from ..layers.protocol import Factors, Layer
from ..model import likelihoods
from ..model.bound import Draws, for_all_rows
from ..model.propagation import evaluate, last_outputs, rows_per_slice

if TYPE_CHECKING:
    from ..model.deep_gp import DeepGP

__all__ = ["Weighting", "has_latents", "importance_weighted", "joint_outputs"]


def has_latents(layers: Sequence[Layer]) -> bool:
    """Whether rows have latent variables."""
    return any(isinstance(layer, LatentVariableLayer) for layer in layers)


def importance_weighted(model: DeepGP, data: RegressionData, factors: Factors, draws: Draws) -> tf.Tensor:
    """N / B sum_b L_b(K), [], nats: what stands in Eq. (17) in the place of the likelihood's part.

    :param model: a deep GP with latent variables, of which layers, likelihood, `num_data` and `num_importance_samples`
        K are read.
    :param data: a minibatch (X [B, D], Y [B, Q]).
    :param factors: of each layer.
    :param draws: of the inner layers, of which K consecutive ones belong together: S K.
    """
    X, Y = data
    layers = model.layers
    K = model.num_importance_samples
    # w_nk ~ q(w_n), and the logarithms of their weights.
    weighting = Weighting(layers, draws.noise, X, tf.convert_to_tensor(Y), K)
    # The last layer given what is drawn below; for K > 1 by one function at the K inputs of a row.
    if K > 1:
        f_mean, f_var = joint_outputs(layers, factors, X, weighting.noise, K)
    else:
        f_mean, f_var = evaluate(last_outputs, layers, factors, X, weighting.noise, size=rows_per_slice(layers))
    # L_b(K), of the terms E[log p(y_b | f^L)].
    terms = likelihoods.variational_expectations(model.likelihood, X, f_mean, f_var, Y, draws.likelihood_seed)
    return for_all_rows(weighting.per_row(terms, draws.weights), model.num_data)


def joint_outputs(
    layers: Sequence[Layer], factors: Factors, X: tf.Tensor, noise: Sequence[tf.Tensor], K: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Means and variances of the last layer, [S K, B, P], where K consecutive draws of a row are of one function.

    :param layers: of which one has latent variables.
    :param factors: of each.
    :param X: [B, D].
    :param noise: of the inner layers, with w as that of latent variables: [S K, B or 1, L]. Layers below the latent
        variables take that of the first of K.
    :raises ValueError: if a layer above latent variables is not one of GPs of its inputs.
    """
    S = tf.shape(noise[0])[0] // K
    B = tf.shape(X)[0]
    F = X
    # Below the latent variables the K inputs of a row are one, and drawn once.
    first = next(i for i, layer in enumerate(layers) if isinstance(layer, LatentVariableLayer))
    for layer, part, eps in zip(layers[:first], factors, noise, strict=False):
        F = layer.sample(F, layer.latent_moments(F, part), eps[::K])
    # From there on K inputs of a row, at which each function is drawn jointly.
    rows = tf.broadcast_to(F, tf.stack([S, B, tf.shape(F)[-1]]))
    F = tf.repeat(tf.reshape(rows, tf.stack([S * B, 1, -1])), K, axis=1)  # [S B, K, D]
    F.set_shape([None, K, layers[first].input_dim])
    for layer, part, eps in zip(layers[first:-1], factors[first:], noise[first:], strict=False):
        F = joint_draw(layer, part, F, _by_rows(eps, S, K, B))
    # The last layer's moments, with the axis of draws in front again.
    moments = layers[-1].outputs(F, layers[-1].latent_moments(F, factors[-1]))
    mean, var = (
        tf.reshape(tf.transpose(tf.reshape(part, [S, B, K, part.shape[-1]]), [0, 2, 1, 3]), [S * K, B, part.shape[-1]])
        for part in moments
    )
    return mean, var


class Weighting:
    """What latent variables add to the terms of a bound.

    :param layers: of the model.
    :param noise: of the inner layers, [S K, B or 1, L] each; K consecutive ones belong together.
    :param X: rows of the data [B, D].
    :param Y: targets [B, P].
    :param num_importance_samples: how many importance samples, K.
    :ivar noise: the same, with draws of q(w_n) in place of the noise of latent variables.
    """

    noise: list[tf.Tensor]

    def __init__(
        self,
        layers: Sequence[Layer],
        noise: Sequence[tf.Tensor],
        X: tf.Tensor,
        Y: tf.Tensor,
        num_importance_samples: int,
    ) -> None:
        self.K = num_importance_samples
        self.noise = list(noise)
        self._weights: tf.Tensor | None = None
        self._added: tf.Tensor = tf.zeros([], X.dtype)  # to the terms, [S K, B] or [B]
        # w of q(w_n) takes the place of the noise of latent variables.
        for i, (layer, eps) in enumerate(zip(layers[: len(noise)], noise, strict=True)):
            if isinstance(layer, LatentVariableLayer):
                self.noise[i] = self._draw(*layer.posterior(X, Y), eps)

    def per_row(self, terms: tf.Tensor, weights: tf.Tensor | None = None) -> tf.Tensor:
        """L_n, [B], averaged over S, of the terms E[log p(y_n | f)] [S K, B].

        :param weights: of quadrature nodes [S], which K = 1 may have; None for equal ones.
        """
        terms = terms + self._added
        # One sample: the mean of logs.
        if self.K == 1:
            return tf.reduce_mean(terms, axis=0) if weights is None else tf.linalg.matvec(terms, weights, True)
        # log 1/K sum_k exp(term_k); the normalised weights v_k are for the gradient.
        grouped = tf.reshape(terms, tf.stack([-1, self.K, tf.shape(terms)[1]]))  # [S, K, B]
        self._weights = tf.reshape(tf.stop_gradient(tf.nn.softmax(grouped, axis=1)), tf.shape(terms))
        return tf.reduce_mean(tf.reduce_logsumexp(grouped, axis=1) - np.log(self.K), axis=0)

    # Private.

    def _draw(self, mean: tf.Tensor, std: tf.Tensor, eps: tf.Tensor) -> tf.Tensor:
        """w = a + b eps, [S K, B, Q]; keeps what it adds to the terms."""
        w = mean + std * eps
        if self.K == 1:
            # KL[q(w_n) || p(w_n)] in closed form.
            kl = 0.5 * tf.reduce_sum(tf.square(mean) + tf.square(std) - 1.0 - 2.0 * tf.math.log(std), axis=-1)
            self._added = self._added - kl
            return w
        # log p(w) - log q(w) with q held fixed, and the doubly reparametrised gradient of the module's docstring.
        w = _scaled_gradient(w, self._weights_of_draws)
        mean = tf.stop_gradient(mean)
        std = tf.stop_gradient(std)
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


def _by_rows(noise: tf.Tensor, S: tf.Tensor, K: int, B: tf.Tensor) -> tf.Tensor:
    """[S K, B or 1, L] -> [S B, K, L]."""
    L = noise.shape[-1]
    wide = tf.broadcast_to(noise, tf.stack([S * K, B, L]))
    return tf.reshape(tf.transpose(tf.reshape(wide, tf.stack([S, K, B, L])), [0, 2, 1, 3]), tf.stack([S * B, K, L]))
