"""rbm_tracking.track.filtering, what it measures: exact limits, Bennett's fixed point, variances,
unbiasedness."""

import numpy as np
import pytest
import tensorflow as tf
from pymbar.other_estimators import bar

from rbm_tracking.track.filtering import bridge, log_mean_exp
from tests.rbm_tracking import oracles
from tests.statistical import assert_mean_close


def log_q(parameters: oracles.Parameters, v: np.ndarray, beta: float) -> np.ndarray:
    W, b, c = parameters
    return v @ b + np.sum(np.logaddexp(0, beta * (v @ W.T + c)), axis=-1)


def test_log_mean_exp_is_what_its_name_says(rng: np.random.Generator) -> None:
    x = rng.normal(size=(3, 40))
    result = log_mean_exp(tf.constant(x))
    w = np.exp(x)
    np.testing.assert_allclose(result.value, np.log(w.mean(axis=1)), rtol=1e-12)
    np.testing.assert_allclose(result.variance, w.var(axis=1, ddof=1) / (40 * w.mean(axis=1) ** 2), rtol=1e-12)
    np.testing.assert_allclose(result.ess, w.sum(axis=1) ** 2 / (w**2).sum(axis=1), rtol=1e-12)
    shifted = log_mean_exp(tf.constant(x + 5000.0))  # far beyond what exp can hold
    np.testing.assert_allclose(shifted.value, np.asarray(result.value) + 5000.0, rtol=1e-12)
    np.testing.assert_allclose(shifted.variance, result.variance, rtol=1e-9)


def test_weights_of_zero_are_allowed() -> None:
    result = log_mean_exp(tf.constant([[-np.inf, 0.0, 0.0, -np.inf], [-np.inf] * 4]))
    np.testing.assert_allclose(result.value, [np.log(0.5), -np.inf])


def test_variance_is_that_of_the_logarithm(rng: np.random.Generator) -> None:
    """Delta method: the variance over repetitions is the mean of the estimated one (5 % for 100 draws)."""
    x = 0.5 * rng.normal(size=(20_000, 100))
    result = log_mean_exp(tf.constant(x))
    np.testing.assert_allclose(np.mean(result.variance), np.var(result.value), rtol=0.07)


def test_change_of_log_z_is_unbiased_in_the_weights(rng: np.random.Generator) -> None:
    old = oracles.random_rbm(rng, 3, 5, 1.0)
    new = oracles.Parameters(*(value + 0.1 * rng.normal(size=value.shape) for value in old))
    for beta in (1.0, 0.3):
        v = oracles.sample_visible(rng, old, 40_000, beta)
        log_w = log_q(new, v, beta) - log_q(old, v, beta)
        truth = oracles.log_z(new, beta) - oracles.log_z(old, beta)
        assert_mean_close(np.exp(log_w - truth), 1.0, min_detectable=0.05)
        estimate = log_mean_exp(tf.constant(log_w[None]))
        assert abs(float(estimate.value[0]) - truth) < 5 * np.sqrt(float(estimate.variance[0]))


def test_bridge_is_the_ratio_of_the_paper(rng: np.random.Generator) -> None:
    d_upper, d_lower, log_s = rng.normal(-2, 1, (2, 30)), rng.normal(-3, 1, (2, 30)), np.array([-2.5, -1.0])
    s = np.exp(log_s)[:, None]
    # with q~[i] = 1: q* = q~[i] q~[i+1] / (s q~[i] + q~[i+1])
    upper = np.mean(np.exp(d_upper) / (s + np.exp(d_upper)), axis=1)  # mean of q* / q~[i] under i
    lower = np.mean(1 / (s + np.exp(d_lower)), axis=1)  # mean of q* / q~[i+1] under i+1
    result = bridge(tf.constant(d_upper), tf.constant(d_lower), tf.constant(log_s))
    np.testing.assert_allclose(result.value, np.log(upper / lower), rtol=1e-12)


def test_bridge_does_not_overflow(rng: np.random.Generator) -> None:
    d = rng.normal(-5000, 1, (1, 20))
    result = bridge(tf.constant(d), tf.constant(d - 1), tf.constant([-5000.0], tf.float64))
    near = bridge(tf.constant(d + 5000), tf.constant(d + 4999), tf.constant([0.0], tf.float64))
    np.testing.assert_allclose(result.value, np.asarray(near.value) - 5000, rtol=1e-12)


def test_fixed_point_is_bennetts_acceptance_ratio(rng: np.random.Generator) -> None:
    d_upper, d_lower = rng.normal(-1, 1, (1, 50)), rng.normal(-2, 1, (1, 50))
    result = bridge(tf.constant(d_upper), tf.constant(d_lower), tf.constant([0.0], tf.float64), iterations=60)
    # work forward: -(log q~[i+1] - log q~[i]) under i; backward the opposite under i+1; Delta_f = -log ratio
    reference = bar(-d_upper[0], d_lower[0], relative_tolerance=1e-14)
    np.testing.assert_allclose(result.value[0], -reference["Delta_f"], atol=1e-10)
    assert 0.5 < np.sqrt(result.variance[0]) / reference["dDelta_f"] < 2


def test_bridge_estimates_the_difference_with_its_variance(rng: np.random.Generator) -> None:
    parameters, betas = oracles.random_rbm(rng, 3, 5, 1.0), (1.0, 0.6)
    truth = oracles.log_z(parameters, betas[1]) - oracles.log_z(parameters, betas[0])
    d = []
    for beta in betas:
        v = oracles.sample_visible(rng, parameters, 4000 * 50, beta)
        d.append((log_q(parameters, v, betas[1]) - log_q(parameters, v, betas[0])).reshape(4000, 50))
    guess = tf.fill([4000], tf.constant(truth + 0.3))
    result = bridge(tf.constant(d[0]), tf.constant(d[1]), guess)
    assert_mean_close(result.value, truth, min_detectable=0.02)
    np.testing.assert_allclose(np.mean(result.variance), np.var(result.value), rtol=0.15)


@pytest.mark.parametrize("count", [5, 20])
def test_equal_weights_have_the_variance_of_one_that_differs(count: int, rng: np.random.Generator) -> None:
    """A side with N equal weights is as uncertain as the mean of N of which one deviates by its own size: 1 / N^2."""
    equal, other = np.zeros((1, count)), rng.normal(size=(1, count))
    one = np.r_[np.ones(count - 1), 2.0]
    deviating = one.var(ddof=1) / count  # of a mean of about 1
    assert deviating == pytest.approx(count**-2)
    log_s = tf.constant([0.3], tf.float64)
    both = bridge(tf.constant(equal), tf.constant(equal), log_s)
    assert float(both.variance[0]) == pytest.approx(2 * count**-2)
    rounded = equal * (1 + 1e-8) + 1e-9 * rng.normal(size=equal.shape)  # float32 says that they are equal
    assert float(bridge(tf.constant(rounded), tf.constant(equal), log_s).variance[0]) == pytest.approx(2 * count**-2)
    mixed = bridge(tf.constant(equal), tf.constant(other), log_s)
    spread = bridge(tf.constant(other), tf.constant(other), log_s)
    lower = float(log_mean_exp(tf.math.log_sigmoid(0.3 - tf.constant(other))).variance[0])
    assert float(mixed.variance[0]) == pytest.approx(count**-2 + lower)
    upper = float(log_mean_exp(tf.math.log_sigmoid(tf.constant(other) - 0.3)).variance[0])
    assert float(spread.variance[0]) == pytest.approx(upper + lower)  # what differs keeps its own variance
