"""Kullback-Leibler divergences of Louizos, Ullrich & Welling (2017), element by element, in nats.

Every function takes tensors of float32 or float64 and returns KL(q || p) >= 0, where the paper mostly prints -KL. The
posteriors are given by means and *log variances*.

    z ~ N(mu_z, alpha mu_z^2):  KL to the log-uniform prior depends on alpha only (Eq. 9), and is exactly
    KL(alpha) = 2 int_0^u D(t) dt,   u = 1 / sqrt(2 alpha),   D = Dawson's integral,   dKL / dlog alpha = -u D(u)
"""

import math

import numpy as np
import tensorflow as tf
from scipy.special import dawsn

__all__ = [
    "gaussian_kl",
    "global_scale_kl",
    "log_normal_gamma_kl",
    "log_normal_inverse_gamma_kl",
    "log_uniform_kl",
    "log_uniform_kl_exact",
]

# the fit of Molchanov et al. (2017), under Eq. (9)
K1 = 0.63576
K2 = 1.87320
K3 = 1.48695

_SWITCH = 6.0  # Dawson's integral: Chebyshev polynomial below, asymptotic series above
_DAWSON = np.polynomial.Chebyshev.interpolate(dawsn, 60, domain=[0.0, _SWITCH])
_TWICE_INTEGRAL = 2.0 * _DAWSON.integ(lbnd=0.0)
# D(x) ~ sum_k a_k / x^(2k+1), a_k = (2k-1)!! / 2^(k+1); the terms at x = 6 fall below 1e-12.
_SERIES = [math.prod(range(1, 2 * k, 2)) / 2 ** (k + 1) for k in range(16)]


def gaussian_kl(mean: tf.Tensor, log_var: tf.Tensor) -> tf.Tensor:
    """KL(N(mean, e^log_var) || N(0, 1)): each term of Eq. (8), where the group scale has cancelled.

    :param mean: of any shape.
    :param log_var: log variance, of the same shape.
    :return: nats, of the same shape.
    """
    return 0.5 * (tf.exp(log_var) + tf.square(mean) - 1.0 - log_var)


def log_uniform_kl(log_alpha: tf.Tensor) -> tf.Tensor:
    """KL of a scale with dropout rate alpha to the log-uniform prior, by the fit of Eq. (9).

    The prior is improper; the constant is such that KL -> 0 for alpha -> infinity. The fit is within 0.0095 nats of
    :func:`log_uniform_kl_exact` for log alpha in [-8, 8].

    :param log_alpha: log sigma_z^2 - log mu_z^2, of any shape.
    :return: nats, of the same shape.
    """
    # Eq. (9): -KL = k1 sigma(k2 + k3 log alpha) - 0.5 log(1 + 1 / alpha) - k1, so that KL is 0 at infinity.
    return K1 * tf.sigmoid(-(K2 + K3 * log_alpha)) + 0.5 * tf.nn.softplus(-log_alpha)


@tf.custom_gradient
def log_uniform_kl_exact(log_alpha: tf.Tensor) -> tuple[tf.Tensor, object]:
    """What :func:`log_uniform_kl` approximates, with the exact gradient -u D(u), u = (2 alpha)^(-1/2).

    :param log_alpha: log sigma_z^2 - log mu_z^2, of any shape.
    :return: nats, of the same shape; relative error about 1e-6 in float32, 1e-12 in float64.
    """
    log_alpha = tf.convert_to_tensor(log_alpha)
    # KL(alpha) = 2 int_0^u D(t) dt, u = 1 / sqrt(2 alpha), and du / dlog alpha = -u / 2.
    u = tf.exp(-0.5 * log_alpha) / math.sqrt(2.0)

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        return -upstream * u * _dawson(u)

    return _twice_dawson_integral(u), gradient


def log_normal_gamma_kl(
    mean: tf.Tensor, log_var: tf.Tensor, *, shape: float = 0.5, log_scale: float = 0.0
) -> tf.Tensor:
    """KL(LN(mean, e^log_var) || Gamma(shape, scale)), the negative of Eq. (33). The defaults are Eq. (36).

    :param mean: mean of the log, of any shape.
    :param log_var: log variance of the log, of the same shape.
    :param shape: shape of the gamma prior, alpha in the paper.
    :param log_scale: log of its *scale* (not rate), log beta in the paper.
    :return: nats, of the shape of `mean`.
    """
    # Eq. (33): E_q[-log p] by the moments of a log-normal, with log x relative to the log of the scale.
    relative = mean - log_scale
    cross_entropy = math.lgamma(shape) - shape * relative + tf.exp(relative + 0.5 * tf.exp(log_var))
    # Less the entropy of the log-normal, whose mean of log x cancels that of -log p(x).
    return cross_entropy - 0.5 * (log_var + 1.0 + math.log(2.0 * math.pi))


def log_normal_inverse_gamma_kl(
    mean: tf.Tensor, log_var: tf.Tensor, *, shape: float = 0.5, log_scale: float = 0.0
) -> tf.Tensor:
    """KL(LN(mean, e^log_var) || InverseGamma(shape, scale)), the negative of Eq. (29). Defaults: Eqs. (35), (37).

    x is inverse gamma iff 1/x is gamma with the reciprocal scale, and log(1/x) = -log x.
    """
    return log_normal_gamma_kl(-mean, log_var, shape=shape, log_scale=-log_scale)


def global_scale_kl(
    relative_mean: tf.Tensor, log_var: tf.Tensor, tau0: float, *, paper_eq34: bool = False
) -> tf.Tensor:
    """KL of q(s_a) = LN(relative_mean + 2 log tau0, e^log_var) to the prior Gamma(1/2, scale tau0^2): Eq. (34).

    The prior's scale is tau0^2, so a mean relative to 2 log tau0 makes the KL independent of tau0. Eq. (34) as printed
    has + log tau0 for - log tau0 and tau0^-1 for tau0^-2: a Gamma of scale tau0 with a wrong constant.

    :param relative_mean: mean of log s_a, minus 2 log tau0.
    :param log_var: log variance of log s_a.
    :param tau0: scale of the global half-Cauchy prior.
    :param paper_eq34: evaluate the equation as printed, to compare. It is no divergence: it can be negative.
    :return: nats.
    """
    if not paper_eq34:
        return log_normal_gamma_kl(relative_mean, log_var)
    # Eq. (34) as printed, with tau0 in place of tau0^2 as the scale of the gamma prior.
    mean = relative_mean + 2.0 * math.log(tau0)
    penalty = tf.exp(mean + 0.5 * tf.exp(log_var) - math.log(tau0))
    return -(math.log(tau0) - penalty + 0.5 * (mean + log_var + 1.0 + math.log(2.0)))


def _dawson(x: tf.Tensor) -> tf.Tensor:
    # D(x) ~ 1 / (2 x) + 1 / (4 x^3) + ..., a polynomial in 1 / x^2 over x; clipped below, where it is not used.
    far = tf.maximum(x, tf.cast(_SWITCH, x.dtype))
    return tf.where(x < _SWITCH, _chebyshev(_DAWSON, x), _horner(_SERIES, far**-2) / far)


def _twice_dawson_integral(x: tf.Tensor) -> tf.Tensor:
    """2 int_0^x D(t) dt for x >= 0; for large x it is log(2 x) + gamma / 2 - 1 / (4 x^2) - ..."""
    far = tf.maximum(x, tf.cast(_SWITCH, x.dtype))
    # The integral of each term a_k / x^(2k+1) of the series: -a_k / (2 k x^2k), twice.
    series = [0.0] + [-a / k for k, a in enumerate(_SERIES[1:], start=1)]
    tail = tf.math.log(2.0 * far) + 0.5 * np.euler_gamma + _horner(series, far**-2)
    return tf.where(x < _SWITCH, _chebyshev(_TWICE_INTEGRAL, x), tail)


def _horner(coefficients: list[float], x: tf.Tensor) -> tf.Tensor:
    value = tf.zeros_like(x)
    for c in reversed(coefficients):
        value = value * x + c
    return value


def _chebyshev(polynomial: np.polynomial.Chebyshev, x: tf.Tensor) -> tf.Tensor:
    """Clenshaw's recurrence, with as many terms as the dtype can show."""
    coefficients = polynomial.coef
    # Leave out the last coefficients that round to nothing.
    coefficients = coefficients[: np.flatnonzero(np.abs(coefficients) > 0.1 * np.finfo(x.dtype.name).eps)[-1] + 1]
    # Map [0, 6] to [-1, 1], and sum up from the highest coefficient.
    t = tf.clip_by_value(x, 0.0, _SWITCH) * (2.0 / _SWITCH) - 1.0
    first = tf.zeros_like(t)
    second = tf.zeros_like(t)
    for c in coefficients[:0:-1]:
        first, second = 2.0 * t * first - second + c, first
    return t * first - second + coefficients[0]
