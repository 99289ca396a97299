import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from ebp.network.posterior import (
    BinaryWeights,
    FiniteSetWeights,
    GaussianWeights,
    TernaryWeights,
    WeightPrior,
    weight_prior,
)
from tests.ebp import oracles
from tests.statistical import assert_mean_close

DISCRETE: dict[str, WeightPrior] = {
    "binary": BinaryWeights(),
    "ternary": TernaryWeights(nu=0.6),
    "levels": FiniteSetWeights((-2, -0.5, 1), (0.0, 0.4, -0.3)),
}
ALL: dict[str, WeightPrior] = {**DISCRETE, "real": GaussianWeights(1.5)}
H = np.array([-3.0, -0.7, -0.1, 0.0, 0.2, 1.3, 4.0])


@pytest.mark.parametrize("name", DISCRETE)
def test_moments_mode_and_entropy_by_enumeration(name: str) -> None:
    prior, h = DISCRETE[name], tf.constant(H, tf.float64)
    tables = [oracles.weight_probabilities(value, oracles.VALUES[name]) for value in H]
    mean = np.array([sum(w * p for w, p in table.items()) for table in tables])
    second = np.array([sum(w**2 * p for w, p in table.items()) for table in tables])
    entropy = np.array([-sum(p * math.log(p) for p in table.values()) for table in tables])
    np.testing.assert_allclose(prior.mean(h), mean, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(prior.var(h), second - mean**2, rtol=1e-11)
    np.testing.assert_allclose(prior.var_from_mean(h, prior.mean(h)), second - mean**2, rtol=1e-10)
    np.testing.assert_allclose(prior.entropy(h), entropy, rtol=1e-12)
    moving = H != 0.0  # at 0 two values tie
    mode = np.array([max(table, key=table.__getitem__) for table in tables])
    np.testing.assert_array_equal(prior.mode(h).numpy()[moving], mode[moving])


@pytest.mark.parametrize("name", ALL)
def test_mean_and_variance_are_derivatives_of_the_log_normalizer(name: str) -> None:
    prior, h = ALL[name], tf.constant(H[H != 0.0], tf.float64)  # |h| has no derivative at 0
    with tf.GradientTape() as outer:
        outer.watch(h)
        with tf.GradientTape() as inner:
            inner.watch(h)
            A = prior.log_normalizer(h)
        mean = inner.gradient(A, h)
    np.testing.assert_allclose(prior.mean(h), mean, rtol=1e-12)
    np.testing.assert_allclose(prior.var(h), outer.gradient(mean, h), rtol=1e-9)
    np.testing.assert_allclose(prior.log_normalizer(tf.zeros([], tf.float64)), 0.0, atol=1e-15)


@pytest.mark.parametrize("name", ALL)
def test_extreme_h_stay_finite(name: str) -> None:
    prior, h = ALL[name], tf.constant([-1e4, -120.0, 120.0, 1e4], tf.float32)
    for values in (prior.mean(h), prior.var(h), prior.entropy(h), prior.log_normalizer(h), prior.mode(h)):
        assert np.all(np.isfinite(values))
    assert np.all(prior.var_from_mean(h, prior.mean(h)).numpy() > 0)


@pytest.mark.parametrize("name", ALL)
def test_samples_have_the_moments(name: str, rng: np.random.Generator) -> None:
    prior, h = ALL[name], tf.constant(H, tf.float64)
    draws = prior.sample(tf.broadcast_to(h, [40_000, len(H)]), tf.constant(rng.random((40_000, len(H)))))
    vary = (H != 0) & (np.abs(H) < 3.5)  # at h = 4 hardly any draw varies, and at 0 the square of a sign never does
    assert_mean_close(draws.numpy()[:, vary], prior.mean(h).numpy()[vary], min_detectable=0.06)
    spread = np.square(draws - prior.mean(h))
    assert_mean_close(spread[:, vary], prior.var(h).numpy()[vary], min_detectable=0.2)


def test_sample_is_the_quantile_function() -> None:
    h = tf.constant(0.3, tf.float64)
    table = oracles.weight_probabilities(0.3, oracles.VALUES["levels"])
    edges = np.cumsum([table[w] for w in (-2, -0.5, 1)])
    uniform = tf.constant([edges[0] - 1e-9, edges[0] + 1e-9, edges[1] - 1e-9, edges[1] + 1e-9], tf.float64)
    np.testing.assert_array_equal(DISCRETE["levels"].sample(tf.fill([4], h), uniform), [-2, -0.5, -0.5, 1])


def test_gaussian_entropy() -> None:
    np.testing.assert_allclose(
        GaussianWeights(1.5).entropy(tf.constant([0.0, 2.0], tf.float64)), stats.norm(0, 1.5).entropy(), rtol=1e-14
    )


def test_finite_set_contains_the_named_priors() -> None:
    h = tf.constant(H, tf.float64)
    for prior, same in (
        (BinaryWeights(), FiniteSetWeights((-1, 1))),
        (TernaryWeights(0.6), FiniteSetWeights((-1, 0, 1), (0.0, 0.6, 0.0))),
    ):
        np.testing.assert_allclose(prior.mean(h), same.mean(h), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(prior.var(h), same.var(h), rtol=1e-11)
        np.testing.assert_allclose(prior.log_normalizer(h), same.log_normalizer(h), rtol=1e-12, atol=1e-15)
        np.testing.assert_array_equal(prior.mode(h), same.mode(h))


def test_shifted_mean_follows_tanh() -> None:
    """The addition formula is exact; t = d / (1 + d^2 / 3) is off by d^5 / 45, times at most 1 / (1 - t^2)."""
    h = np.linspace(-6, 6, 101)[:, None]
    d = np.array([-1 / 8, -0.01, -1e-4, 0.0, 1e-3, 0.03, 1 / 8])
    mean = BinaryWeights().shifted_mean(tf.constant(np.tanh(h)), tf.constant(d))
    assert np.all(np.abs(mean - np.tanh(h + d)) <= np.abs(d) ** 5 / 44 + 1e-15)


@pytest.mark.parametrize("nu", [-1.0, 0.0, 1.5])
def test_ternary_mode_is_zero_within_nu(nu: float) -> None:
    h = tf.constant([-2.0, -1.4, 0.3, 1.4, 2.0])
    expected = np.where(np.abs(h) > nu, np.sign(h), 0.0)
    np.testing.assert_array_equal(TernaryWeights(nu).mode(h), expected)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: GaussianWeights(0.0), "scale .* must be positive"),
        (lambda: TernaryWeights(math.nan), "nu of TernaryWeights must be from -50 to 50"),
        (lambda: FiniteSetWeights((1.0,)), "at least two finite, increasing"),
        (lambda: FiniteSetWeights((1.0, -1.0)), "at least two finite, increasing"),
        (lambda: FiniteSetWeights((-1.0, 1.0), (0.0,)), "one finite number for each of the 2 values"),
        (lambda: FiniteSetWeights((-1.0, 1.0), (0.0, -math.inf)), "leave out values"),
        (lambda: weight_prior("quaternary"), "'binary', 'ternary', 'real'"),
    ],
)
def test_impossible_priors(build: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()  # type: ignore[operator]
