"""The Bayes update of every weight, Eq. (4.5): log P(W_ij) grows by W_ij Delta_i <v_j> / sqrt(K), so h_ij grows by

    d h_ij = Delta_i <v_j> / sqrt(K).

There is no learning rate. One example at a time is the online Bayes update; B examples at a time add their increments,
all computed from the same posterior. If they agree, the sum overshoots: `damping` sees that before it happens.
"""

from __future__ import annotations

import math

import tensorflow as tf

from .forward import Layer, product

__all__ = ["MAX_SHIFT", "bias_increment", "damping", "weight_increment"]

#: How far the other examples of a batch may shift an example's mu by one update, in standard deviations of u.
MAX_SHIFT = 1.0


def weight_increment(delta: tf.Tensor, layer: Layer) -> tf.Tensor:
    """d h = sum over examples of <v> Delta / sqrt(K): Eq. (4.5), [n_in, n_out].

    :param delta: [B, n_out].
    """
    return product(layer.v, delta / math.sqrt(layer.fan_in), transpose_v=True)


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
) -> tf.Tensor:
    """A factor in (0, 1] for a batch's summed increments: 1 unless they shift mu of the batch's examples too far.

    :param d_h: summed increments, [n_in, n_out].
    :param d_b: of the biases, [n_out], or None.
    :param var: variances of the weights, d<W>/dh, [n_in, n_out] or [].
    :param delta: of the layer, [B, n_out].
    :param max_shift: how far the other examples may shift one example's mu, in standard deviations of u.
    :return: scalar. With increments times this factor, to first order, no mu of an example is shifted by more than
        |Delta| sigma^2, which is at least what the example itself asks for, and `max_shift` sigma; so 1 for B = 1.
    """
    shift = product(layer.v, var * d_h)
    if d_b is not None:
        shift += d_b
    sigma = tf.sqrt(layer.sigma2)
    excess = tf.abs(shift) / math.sqrt(layer.fan_in) / (max_shift * sigma + tf.abs(delta) * layer.sigma2)
    return 1.0 / tf.maximum(tf.reduce_max(excess), 1.0)
