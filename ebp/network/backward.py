"""Backward pass, Eqs. (4.3) and (4.4): Delta = d log P(y) / d mu of every layer (Eq. (3.15)).

Eq. (4.4) differentiates through means only: the variances sigma^2 are held fixed. Delta_l is of the *normalised* input
u_l, so the factors 1 / sqrt(K_l) appear where a layer's inputs are differentiated, here and in Eq. (4.5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from .forward import Layer, folded, mean_unpooled

__all__ = ["backward", "hidden_delta"]


def hidden_delta(delta: tf.Tensor, above: Layer, below: Layer) -> tf.Tensor:
    """Delta_(l-1) = 2 / sqrt(K_l) N(0 | mu_(l-1), sigma2_(l-1)) sum_j <W_ji,l> Delta_j,l: Eq. (4.4), [B, n_(l-1)].

    :param delta: Delta_l of the layer `above`, [B, n_l].
    :param above: layer l, whose weights are used as they were in the forward pass.
    :param below: layer l - 1.

    Of a convolution the sum is over all positions that an input is used at, and what comes from a mean of signs belongs
    to each of them in equal parts.
    """
    # N(0 | mu, sigma2): half of d<v> / dmu, by Eq. (4.1).
    sigma = tf.sqrt(below.sigma2)
    density = tf.exp(-0.5 * tf.square(below.mu / sigma)) / (math.sqrt(2.0 * math.pi) * sigma)
    # sum_j <W_ji> Delta_j, d log P(y) / d<v_i> but for 1 / sqrt(K).
    by_input = tf.matmul(delta, above.mean, transpose_b=True)
    if above.convolved is not None:
        by_input = folded(by_input, above.convolved)
    if below.convolved is not None:
        by_input = mean_unpooled(by_input, below.convolved)
    return 2.0 / math.sqrt(above.fan_in) * density * by_input


def backward(output_delta: tf.Tensor, layers: Sequence[Layer]) -> list[tf.Tensor]:
    """Delta of every layer, [B, n_l] each.

    :param output_delta: Delta_L from the head, Eq. (4.3), [B, n_L].
    :param layers: of the forward pass.
    """
    # Eq. (4.4) from the last layer down.
    deltas = [output_delta]
    for above, below in zip(reversed(layers[1:]), reversed(layers[:-1]), strict=True):
        deltas.append(hidden_delta(deltas[-1], above, below))
    return deltas[::-1]
