"""The change of log Z across a parameter update, by importance sampling (Section 3.2, Eq. 3)."""

from typing import NamedTuple

import tensorflow as tf

__all__ = ["Estimate", "log_mean_exp", "log_z_change"]


class Estimate(NamedTuple):
    """Estimates of logarithms of ratios, one for each of [...]: value and variance in nats, effective sample size."""

    value: tf.Tensor
    variance: tf.Tensor
    ess: tf.Tensor


def log_z_change(log_weights: tf.Tensor) -> Estimate:
    """O^(dt) of Eq. (3): estimate of zeta[i, t] - zeta[i, t-1] at each of M temperatures.

    :param log_weights: log q~[i, t](x) - log q~[i, t-1](x) at C states x ~ q[i, t-1], [M, C], nats.
    :return: [M] in float64. The mean weight is unbiased, its log is low by about half its variance.

    At the temperature whose states also drove the gradient the estimate has a bias (Section 3.2), which
    :func:`rbm_tracking.track.gradient.reuse_bias` and the tracker's b_t account for.
    """
    return log_mean_exp(log_weights)


def log_mean_exp(log_weights: tf.Tensor) -> Estimate:
    """log of the mean of exp(log_weights) over the last axis, of [..., C] to [...] in float64.

    The variance is that of the logarithm by the delta method, s_w^2 / (C mean(w)^2), with the sample variance s_w^2. It
    cannot exceed 1 (one weight that outweighs all others): compare the effective sample size (sum w)^2 / sum w^2 with 1
    before it is believed. The formula printed in Section 3.2 divides by (sum w)^2 instead, and is C times smaller.
    """
    log_weights = tf.cast(log_weights, tf.float64)
    count = tf.cast(tf.shape(log_weights)[-1], tf.float64)
    largest = tf.stop_gradient(tf.reduce_max(log_weights, axis=-1, keepdims=True))
    largest = tf.where(tf.math.is_finite(largest), largest, tf.zeros_like(largest))
    weights = tf.exp(log_weights - largest)
    mean = tf.reduce_mean(weights, axis=-1, keepdims=True)
    squares = tf.reduce_sum((weights - mean) ** 2, axis=-1) / tf.maximum(count - 1.0, 1.0)
    mean = mean[..., 0]
    return Estimate(
        value=tf.math.log(mean) + largest[..., 0],
        variance=squares / (count * mean**2),
        ess=count * mean**2 / tf.reduce_mean(weights**2, axis=-1),
    )
