"""log p(x, h) and log p(x, h) / q(h | x) of rows with many states of the stochastic units each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import tensorflow as tf

from darn.model.autoregressive import bernoulli_log_prob, log_prob_of_pairs, threshold
from darn.model.config import DARNConfig
from gpflow_deep_base.seeds import Seed

__all__ = ["Model", "log_joint_of_pairs", "log_weights", "own_logits"]


class Model(Protocol):
    """What this module needs of a `DARN`."""

    config: DARNConfig
    decoders: Sequence[Any]
    encode: Any
    encoder_noise: Any
    graphs: Any

    @property
    def dtype(self) -> tf.DType:
        """Float type of rows."""
        ...

    @property
    def num_hidden(self) -> int:
        """Stochastic units of all layers."""
        ...

    def log_visible(self, x: tf.Tensor, h: Sequence[tf.Tensor]) -> tf.Tensor:
        """log p(x | h), [B], nats."""
        ...

    def log_prior(self, h: Sequence[tf.Tensor]) -> tf.Tensor:
        """log p(h), [B], nats."""
        ...

    def visible_offset(self, h: Sequence[tf.Tensor]) -> tf.Tensor | None:
        """What h adds to the logits of the visible units, [B, n_x]."""
        ...

    def sample(self, num: Any, seed: Seed) -> Any:
        """Draws, whose rows are `x`."""
        ...


def own_logits(model: Model, x: tf.Tensor) -> tf.Tensor | None:
    """What the rows x [B, n_x] see of themselves, where the logits given h are a sum of this and of a part of h: for
    :func:`log_joint_of_pairs` and :func:`log_weights`, to which it may be given, so that it is computed once."""
    visible = model.decoders[0].conditional
    return visible.logits(x) if visible.is_additive else None


def log_joint_of_pairs(model: Model, x: tf.Tensor, h: Sequence[tf.Tensor], own: tf.Tensor | None = None) -> tf.Tensor:
    """log p(x, h) of the rows x [B, n_x] with each of S states h, [S, n_l] each: [S, B], nats.

    With a factorial decoder the logits do not depend on x, and this is one product of matrices.
    """
    visible, offset = model.decoders[0].conditional, model.visible_offset(h)
    if model.config.visible_conditional == "factorial":
        a = visible.logits(offset, offset)
        log_p = tf.matmul(a, x, transpose_b=True) - tf.reduce_sum(tf.nn.softplus(a), axis=1)[:, None]
    else:
        log_p = _log_visible_of_pairs(visible, x, tf.expand_dims(offset, 1), own)
    return log_p + model.log_prior(h)[:, None]


def log_weights(
    model: Model, x: tf.Tensor, noise: Sequence[tf.Tensor], copies: int | tf.Tensor = 1, own: tf.Tensor | None = None
) -> tf.Tensor:
    """log p(x, h) / q(h | x) of the rows x [B, n_x] with `copies` draws of the encoder each, [copies, B].

    :param noise: of `DARN.encoder_noise`, for `copies` B rows.
    """
    encoded, shape = model.encode(x, noise, threshold, copies), [copies, tf.shape(x)[0]]
    log_q = tf.add_n([bernoulli_log_prob(h, a) for h, a in zip(encoded.h, encoded.logits, strict=True)])
    offset = tf.reshape(model.visible_offset(encoded.h), [*shape, -1])
    log_w = tf.reshape(model.log_prior(encoded.h) - log_q, shape)
    return log_w + _log_visible_of_pairs(model.decoders[0].conditional, x, offset, own)


def _log_visible_of_pairs(visible: Any, x: tf.Tensor, offset: tf.Tensor, own: tf.Tensor | None) -> tf.Tensor:
    return log_prob_of_pairs(visible, x, offset) if own is None else bernoulli_log_prob(x, own + offset)
