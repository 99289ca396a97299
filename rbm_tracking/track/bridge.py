"""The difference of log Z between neighbouring temperatures, by bridge sampling (Section 3.3, Eq. 4)."""

import tensorflow as tf

from rbm_tracking.track.health import EQUAL
from rbm_tracking.track.importance import Estimate, log_mean_exp

__all__ = ["bridge"]


def bridge(d_upper: tf.Tensor, d_lower: tf.Tensor, log_s: tf.Tensor, iterations: int = 0) -> Estimate:
    """O^(dbeta) of Eq. (4): estimates of zeta[i+1] - zeta[i] from states at both temperatures.

    With d(x) = log q~[i+1](x) - log q~[i](x) and the bridge q~[i] q~[i+1] / (s q~[i] + q~[i+1]), s = Z[i+1] / Z[i],

        O = log s + log mean_{x ~ i} sigma(d - log s) - log mean_{x ~ i+1} sigma(log s - d),

    which equals the paper's ratio of sums and cannot overflow.

    :param d_upper: d at C states of q[i], the colder of the two, [M-1, C], nats.
    :param d_lower: d at C states of q[i+1], [M-1, C].
    :param log_s: a guess of the result, [M-1]: what the tracker predicts.
    :param iterations: how often to start again with the result as the guess; the fixed point is Bennett's acceptance
        ratio.
    :return: [M-1] in float64; the effective sample size is the smaller one of the two sides'.

    N states of one weight do not know the mean weight exactly, as their sample variance of 0 says: states of another
    weight, which lies between 0 and 1, too, may have a share of 1 / N without being among them. The variance of a side
    is then 1 / N^2, that of a mean of N in which one deviates by its own size.
    """
    d_upper, d_lower = tf.cast(d_upper, tf.float64), tf.cast(d_lower, tf.float64)
    log_s = tf.cast(log_s, tf.float64)
    for _ in range(iterations + 1):
        numerator = _log_mean(tf.math.log_sigmoid(d_upper - log_s[..., None]))
        denominator = _log_mean(tf.math.log_sigmoid(log_s[..., None] - d_lower))
        value = log_s + numerator.value - denominator.value
        log_s = value
    return Estimate(value, numerator.variance + denominator.variance, tf.minimum(numerator.ess, denominator.ess))


def _log_mean(log_weights: tf.Tensor) -> Estimate:
    """`importance.log_mean_exp` with the variance that equal weights justify."""
    estimate = log_mean_exp(log_weights)
    count = tf.cast(tf.shape(log_weights)[-1], tf.float64)
    is_equal = count * estimate.variance <= EQUAL**2
    return estimate._replace(variance=tf.where(is_equal, count**-2, estimate.variance))
