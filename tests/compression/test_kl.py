"""KLs against quadrature, TensorFlow Probability, SciPy and Monte Carlo."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import integrate, stats
from scipy.special import dawsn

from compression.layers import kl
from tests.statistical import assert_mean_close

tfd = tfp.distributions

MEANS = [-1.0, 0.3, 2.0]
VARIANCES = [0.25, 0.5, 1.5]


def log_normal_kl(mean: float, var: float, log_prior: Callable[[float], float]) -> float:
    """KL by quadrature over x = log z; `log_prior` is the log density of z."""
    q = stats.norm(mean, math.sqrt(var))
    value, _ = integrate.quad(
        lambda x: q.pdf(x) * (q.logpdf(x) - x - log_prior(math.exp(x))), mean - 40 * var**0.5, mean + 40 * var**0.5,
        points=[mean], epsabs=1e-11, epsrel=1e-11, limit=500,
    )  # fmt: skip
    return value


def test_gaussian_kl_is_that_of_tfp(rng: np.random.Generator) -> None:
    mean, log_var = rng.normal(size=(2, 5, 3))
    expected = tfd.kl_divergence(tfd.Normal(mean, np.exp(0.5 * log_var)), tfd.Normal(np.float64(0.0), np.float64(1.0)))
    np.testing.assert_allclose(kl.gaussian_kl(mean, log_var), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("log_alpha", [-8.0, -2.0, 0.0, 2.0])
def test_exact_log_uniform_kl_by_quadrature(log_alpha: float) -> None:
    """-KL = log(alpha) / 2 - E log|eps| - c, eps ~ N(1, alpha), with c such that the KL is 0 for infinite alpha."""
    alpha = math.exp(log_alpha)
    q = stats.norm(1.0, math.sqrt(alpha))
    left, right = (
        integrate.quad(lambda x: q.pdf(x) * math.log(abs(x)), *ends, points=[1.0], epsabs=1e-11, limit=1000)[0]
        for ends in ((1 - 40 * alpha**0.5, 0.0), (0.0, 1 + 40 * alpha**0.5))
    )
    c = -0.5 * (math.log(2.0) + -np.euler_gamma - 2.0 * math.log(2.0))
    assert c == pytest.approx(0.63518, abs=1e-5)
    expected = -(0.5 * log_alpha - (left + right) - c)
    assert float(kl.log_uniform_kl_exact(tf.constant(log_alpha, tf.float64))) == pytest.approx(expected, abs=1e-7)


def test_exact_log_uniform_kl_by_monte_carlo(rng: np.random.Generator) -> None:
    """At alpha = 1 the KL is E log|eps| + c, c = -E log chi2_1 / 2."""
    draws = np.log(np.abs(rng.normal(1.0, 1.0, size=400_000))) - 0.5 * np.log(rng.chisquare(1.0, size=400_000))
    exact = float(kl.log_uniform_kl_exact(tf.constant(0.0, tf.float64)))
    assert_mean_close(draws, exact, min_detectable=0.02)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_gradient_of_the_exact_kl_is_dawsons(dtype: tf.DType) -> None:
    log_alpha = tf.constant(np.linspace(-20.0, 10.0, 301), dtype)
    with tf.GradientTape() as tape:
        tape.watch(log_alpha)
        value = kl.log_uniform_kl_exact(log_alpha)
    u = np.exp(-0.5 * np.linspace(-20.0, 10.0, 301)) / math.sqrt(2.0)
    tolerance = 1e-4 if dtype == tf.float32 else 1e-11  # near u = 0 the polynomial has an absolute error of one unit
    np.testing.assert_allclose(tape.gradient(value, log_alpha), -u * dawsn(u), rtol=tolerance)
    assert np.all(np.diff(value.numpy()) < 0.0)


def test_gradient_of_the_exact_kl_is_that_of_its_value() -> None:
    log_alpha = np.linspace(-8.0, 8.0, 50)
    step = 1e-5
    with tf.GradientTape() as tape:
        x = tf.constant(log_alpha)
        tape.watch(x)
        value = kl.log_uniform_kl_exact(x)
    difference = kl.log_uniform_kl_exact(log_alpha + step) - kl.log_uniform_kl_exact(log_alpha - step)
    np.testing.assert_allclose(tape.gradient(value, x), difference / (2 * step), atol=1e-9)


def test_approximate_log_uniform_kl_is_within_its_stated_error() -> None:
    log_alpha = np.linspace(-8.0, 8.0, 161)
    error = kl.log_uniform_kl(log_alpha) - kl.log_uniform_kl_exact(log_alpha)
    assert 0.009 < np.max(np.abs(error)) < 0.0095
    assert float(kl.log_uniform_kl(tf.constant(40.0, tf.float64))) == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize(("mean", "var"), list(zip(MEANS, VARIANCES, strict=True)))
@pytest.mark.parametrize(("shape", "scale"), [(0.5, 1.0), (0.5, 0.01), (2.0, 3.0)])
def test_log_normal_to_gamma_and_inverse_gamma(mean: float, var: float, shape: float, scale: float) -> None:
    arguments = (tf.constant(mean, tf.float64), tf.constant(math.log(var), tf.float64))
    settings = {"shape": shape, "log_scale": math.log(scale)}
    gamma = log_normal_kl(mean, var, stats.gamma(shape, scale=scale).logpdf)
    inverse = log_normal_kl(mean, var, stats.invgamma(shape, scale=scale).logpdf)
    assert float(kl.log_normal_gamma_kl(*arguments, **settings)) == pytest.approx(gamma, rel=1e-7)
    assert float(kl.log_normal_inverse_gamma_kl(*arguments, **settings)) == pytest.approx(inverse, rel=1e-7)


@pytest.mark.parametrize("tau0", [1e-1, 1e-2])
def test_printed_eq_34_is_not_the_divergence(tau0: float) -> None:
    mean, var = 2.0 * math.log(tau0) + 0.2, 0.3
    exact = log_normal_kl(mean, var, stats.gamma(0.5, scale=tau0**2).logpdf)
    arguments = (tf.constant(0.2, tf.float64), tf.constant(math.log(var), tf.float64), tau0)
    assert float(kl.global_scale_kl(*arguments)) == pytest.approx(exact, rel=1e-7)
    assert abs(float(kl.global_scale_kl(*arguments, paper_eq34=True)) - exact) > 2.0


def test_printed_eq_34() -> None:
    tau0, mean, var = 0.1, 2.0 * math.log(0.1), 0.3
    printed = math.log(tau0) - math.exp(mean + var / 2) / tau0 + 0.5 * (mean + math.log(var) + 1 + math.log(2))
    value = kl.global_scale_kl(
        tf.constant(0.0, tf.float64), tf.constant(math.log(var), tf.float64), tau0, paper_eq34=True
    )
    assert -float(value) == pytest.approx(printed)


def test_divergences_are_positive(rng: np.random.Generator) -> None:
    mean, log_var = rng.normal(scale=3.0, size=(2, 200))
    for divergence in (kl.gaussian_kl, kl.log_normal_gamma_kl, kl.log_normal_inverse_gamma_kl):
        assert np.all(divergence(mean, log_var) > 0.0)
    assert np.all(kl.log_uniform_kl_exact(mean * 3.0) > 0.0)
