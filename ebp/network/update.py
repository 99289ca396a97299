"""The Bayes update of every weight, Eq. (4.5).

log P(W_ij) grows by W_ij Delta_i <v_j> / sqrt(K), so h_ij grows by

    d h_ij = Delta_i <v_j> / sqrt(K).

There is no learning rate. One example at a time is the online Bayes update; B examples at a time add their increments,
all computed from the same posterior. If they agree, the sum overshoots: `damping` sees that before it happens.
`bayes_increments` is the whole of Sec. 4 for a batch: forward pass, backward pass, increments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from .architecture import Architecture, Posterior
from .backward import backward
from .forward import Layer, forward, product
from .heads import head_scores

__all__ = ["MAX_SHIFT", "Increments", "bayes_increments", "bias_increment", "damping", "updated", "weight_increment"]

#: How far the other examples of a batch may shift an example's mu by one update, in standard deviations of u.
MAX_SHIFT = 1.0


def weight_increment(v: tf.Tensor | tf.SparseTensor, scaled_delta: tf.Tensor) -> tf.Tensor:
    """d h = sum over examples of <v> Delta / sqrt(K): Eq. (4.5), [n_in, n_out].

    :param v: <v> of the layer's inputs, [B, n_in].
    :param scaled_delta: Delta / sqrt(K), [B, n_out].
    """
    return product(v, scaled_delta, transpose_v=True)


def bias_increment(delta: tf.Tensor, layer: Layer) -> tf.Tensor:
    """The same for the biases, real weights of the prior N(0, 1) whose input is 1: [n_out]."""
    return tf.reduce_sum(delta, axis=0) / math.sqrt(layer.fan_in)


def damping(
    d_h: tf.Tensor,
    d_b: tf.Tensor | None,
    var: tf.Tensor,
    delta: tf.Tensor,
    layer: Layer,
    max_shift: float = MAX_SHIFT,
    weight: tf.Tensor | None = None,
) -> tf.Tensor:
    """A factor in (0, 1] for a batch's summed increments: 1 unless they shift mu of the batch's examples too far.

    :param d_h: summed increments, [n_in, n_out].
    :param d_b: of the biases, [n_out], or None.
    :param var: variances of the weights, d<W>/dh, [n_in, n_out] or [].
    :param delta: of the layer, [B, n_out].
    :param max_shift: how far the other examples may shift one example's mu, in standard deviations of u.
    :param weight: how often each example counts, [B], as in `delta`: 0 for padding, whose mu does not matter; None: 1.
    :return: scalar. With increments times this factor, to first order, no mu of an example is shifted by more than
        |Delta| sigma^2, which is at least what the example itself asks for, and `max_shift` sigma; so 1 for B = 1.
    """
    # d mu sqrt(K) to first order: d<W> = var d_h.
    shift = product(layer.v, var * d_h)
    if d_b is not None:
        shift += d_b
    sigma = tf.sqrt(layer.sigma2)
    # Delta of each example as if it counted once; its weight is that of all its positions.
    if weight is not None and layer.convolved is not None:
        weight = tf.repeat(weight, layer.convolved.num_positions)
    if weight is not None:
        delta /= tf.maximum(weight, 1.0)[:, None]
    # How many times too far each mu is shifted; that of padding does not matter.
    excess = tf.abs(shift) / math.sqrt(layer.fan_in) / (max_shift * sigma + tf.abs(delta) * layer.sigma2)
    if weight is not None:
        excess = tf.where(weight[:, None] > 0, excess, tf.zeros_like(excess))
    return 1.0 / tf.maximum(tf.reduce_max(excess), 1.0)


class Increments(NamedTuple):
    """Changes of the natural parameters by one batch.

    :ivar h: of h, [n_(l-1), n_l] for each layer.
    :ivar b: of b, [n_l] for each layer; empty without biases.
    :ivar log_prob: log P(y) of each example before the update, in nats, [B].
    :ivar is_damped: whether `damping` reduced a layer's increments.
    :ivar scores: `head_scores` of each example before the update, [B, n_L].
    :ivar layers: of the forward pass.
    :ivar scaled_deltas: Delta / sqrt(K) of each layer, of which `weight_increment` makes `h`, undamped.
    """

    h: list[tf.Tensor]
    b: list[tf.Tensor]
    log_prob: tf.Tensor
    is_damped: tf.Tensor
    scores: tf.Tensor
    layers: list[Layer]
    scaled_deltas: list[tf.Tensor]


def bayes_increments(
    architecture: Architecture,
    h: Sequence[tf.Tensor],
    means: Sequence[tf.Tensor],
    b: Sequence[tf.Tensor],
    X: tf.Tensor,
    Y: tf.Tensor,
    weight: tf.Tensor | None = None,
    *,
    for_xla: bool = False,
) -> Increments:
    """One batch's forward pass, backward pass and summed increments: Sec. 4 of the paper.

    :param h: natural parameters; of the first layer only the rows of the columns of `X`.
    :param means: <W> at `h`.
    :param b: means of the biases.
    :param X: [B, n_in], a tensor or `SparseTensor`.
    :param Y: [B, n_L].
    :param weight: how often each example counts, [B]: its log P(y) and increments are multiplied by it, and 0 is for
        padding; None: once.
    :param for_xla: see `forward.layer_inputs`; for one example only.
    """
    # Forward pass, Eqs. (4.1) and (4.2), and Delta_L of the head, Eq. (4.3).
    variances = architecture.variances(h, means)
    layers = forward(architecture, X, means, variances, b, for_xla=for_xla)
    last = layers[-1]
    log_prob = architecture.head.log_prob(Y, last.mu, last.sigma2)
    output_delta = architecture.head.delta(Y, last.mu, last.sigma2)
    if weight is not None:
        log_prob = log_prob * weight
        output_delta = output_delta * weight[:, None]
    # Backward pass, Eq. (4.4), and the increments of the batch, Eq. (4.5).
    deltas = backward(output_delta, layers)
    scaled_deltas = [delta / math.sqrt(layer.fan_in) for delta, layer in zip(deltas, layers, strict=True)]
    d_h = [weight_increment(layer.v, delta) for layer, delta in zip(layers, scaled_deltas, strict=True)]
    d_b = [bias_increment(delta, layer) for delta, layer in zip(deltas, layers, strict=True)]
    d_b = d_b if architecture.has_biases else []
    # Sums over several examples or positions may overshoot; one example's update does not.
    is_damped = tf.constant(False)
    has_sums = any(layer.convolved is not None for layer in layers)
    if weight is not None or has_sums or not (isinstance(X, tf.Tensor) and X.shape[0] == 1):
        biases = d_b or [None] * len(layers)
        factors = [damping(*parts, weight=weight) for parts in zip(d_h, biases, variances, deltas, layers, strict=True)]
        d_h = [factor * increment for factor, increment in zip(factors, d_h, strict=True)]
        d_b = [factor * increment for factor, increment in zip(factors, d_b, strict=False)]
        is_damped = tf.reduce_min(tf.stack(factors)) < 1.0
    scores = head_scores(architecture.head, last.mu, last.sigma2)
    return Increments(d_h, d_b, log_prob, is_damped, scores, layers, scaled_deltas)


def updated(posterior: Posterior, change: Increments) -> Posterior:
    """The posterior after a batch."""
    return Posterior(
        tuple(h + d_h for h, d_h in zip(posterior.h, change.h, strict=True)),
        tuple(b + d_b for b, d_b in zip(posterior.b, change.b, strict=True)),
    )
