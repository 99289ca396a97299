"""Distribution functions, quantiles and scores of predictive mixtures, against SciPy's distributions and quadrature."""

from itertools import pairwise

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.likelihoods import (
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    Gaussian,
    HeteroskedasticTFPConditional,
    Ordinal,
    Poisson,
    ScalarLikelihood,
    StudentT,
    SwitchedLikelihood,
)
from scipy import integrate, stats

from gpflow_deep.judge.conditionals import conditional
from gpflow_deep.judge.predictive import gaussian, predictive, root
from gpflow_deep.model.likelihoods import GaussianMixture

LEVELS = [0.025, 0.3, 0.5, 0.975]
X = np.linspace(-1, 1, 3)[:, None]

# Functions of f that give the conditional distribution of y, in SciPy's own spelling.
REAL = {
    "studentt": (StudentT(scale=0.3, df=4.0), lambda f: stats.t(4.0, f, 0.3)),
    "studentt3": (StudentT(scale=0.5), lambda f: stats.t(3.0, f, 0.5)),
    "exponential": (Exponential(), lambda f: stats.expon(scale=np.exp(f))),
    "gamma": (Gamma(shape=2.5), lambda f: stats.gamma(2.5, scale=np.exp(f))),
    "beta": (Beta(scale=6.0), lambda f: stats.beta(*[6.0 * m for m in (_probit(f), 1 - _probit(f))])),
    "gaussian": (Gaussian(0.2), lambda f: stats.norm(f, np.sqrt(0.2))),
}


def _probit(f):
    return (1 - 2e-3) * stats.norm.cdf(f) + 1e-3


@pytest.mark.parametrize("name", ["studentt", "exponential", "gamma", "beta"])
def test_moments_given_f_are_those_of_scipy(name):
    """Of one value of f for each row."""
    likelihood, of_f = REAL[name]
    found = conditional(likelihood, X)
    f = np.array([[[-0.3], [0.2], [0.9]]])
    center, width = found.moments(
        np.ones(1), *(np.asarray(part, np.float64) for part in found.parameters(f, np.ones(1)))
    )
    np.testing.assert_allclose(center[:, 0], [of_f(value).mean() for value in f[0, :, 0]], rtol=1e-6)
    np.testing.assert_allclose(width[:, 0], [of_f(value).std() for value in f[0, :, 0]], rtol=1e-6)


def _mixture(rng, S=3, L=1):
    means, variances = rng.normal(size=(S, 3, L)), rng.uniform(0.05, 0.5, size=(S, 3, L))
    return means, variances, rng.dirichlet(np.ones(S))


def _oracle_cdf(conditional, weights, means, variances, y):
    """P(target <= y) of one row: the sum over components of adaptive quadrature over f."""
    total = 0.0
    for w, m, v in zip(weights, means, variances, strict=True):
        density = stats.norm(m, np.sqrt(v)).pdf
        low, high = m - 12 * np.sqrt(v), m + 12 * np.sqrt(v)
        total += w * integrate.quad(lambda f: conditional(f).cdf(y) * density(f), low, high, points=[m], limit=200)[0]  # noqa: B023
    return total


@pytest.mark.parametrize("name", REAL)
def test_distribution_function_is_that_of_adaptive_quadrature(name, rng):
    likelihood, conditional = REAL[name]
    means, variances, weights = _mixture(rng)
    found = predictive(likelihood, X, means, variances, weights=weights)
    Y = found.quantiles([0.2])[0]
    expected = [_oracle_cdf(conditional, weights, means[:, n, 0], variances[:, n, 0], float(Y[n, 0])) for n in range(3)]
    np.testing.assert_allclose(found.cdf(Y)[:, 0], expected, atol=1e-5)  # 60 nodes in each component


@pytest.mark.parametrize("name", REAL)
def test_quantiles_invert_the_distribution_function(name, rng):
    means, variances, weights = _mixture(rng)
    found = predictive(REAL[name][0], X, means, variances, weights=weights)
    quantiles = found.quantiles(LEVELS)
    assert quantiles.shape == (4, 3, 1)
    for level, y in zip(LEVELS, quantiles, strict=True):
        below, above = (found.cdf(y + side * 1e-12 * np.maximum(1, np.abs(y))) for side in (-1, 1))
        assert np.all(below <= level + 1e-9)
        assert np.all(above >= level - 1e-9)


def test_units_of_the_targets(rng):
    means, variances, weights = _mixture(rng)
    for likelihood in (Gaussian(0.2), StudentT(scale=0.3)):
        plain = predictive(likelihood, X, means, variances, weights=weights)
        scaled = predictive(likelihood, X, means, variances, weights=weights, offset=-3.0, scale=1000.0)
        np.testing.assert_allclose(scaled.quantiles(LEVELS), -3 + 1000 * plain.quantiles(LEVELS), rtol=1e-9)
        Y = rng.normal(size=(3, 1))
        np.testing.assert_allclose(scaled.cdf(-3 + 1000 * Y), plain.cdf(Y), rtol=1e-12)
        np.testing.assert_allclose(scaled.crps(-3 + 1000 * Y), 1000 * plain.crps(Y), rtol=1e-9)


def test_counts(rng):
    means, variances, weights = _mixture(rng)
    found = predictive(Poisson(binsize=2.0), X, means + 1, variances, weights=weights)
    quantiles = found.quantiles(LEVELS)
    assert np.all(quantiles == np.round(quantiles))
    assert np.all(quantiles >= 0)
    for level, y in zip(LEVELS, quantiles, strict=True):
        assert np.all(found.cdf(y) >= level)
        assert np.all(found.cdf(y - 1) < level)
    conditional = lambda f: stats.poisson(2.0 * np.exp(f))  # noqa: E731
    expected = _oracle_cdf(conditional, weights, means[:, 0, 0] + 1, variances[:, 0, 0], 4)
    np.testing.assert_allclose(found.cdf(np.full((3, 1), 4.0))[0, 0], expected, atol=1e-6)
    Y = np.array([[0.0], [3.0], [50.0]])
    steps = np.arange(2000)
    probabilities = np.stack([found.cdf(np.full((3, 1), float(k)))[:, 0] for k in steps])
    np.testing.assert_allclose(
        found.crps(Y)[:, 0], np.sum((probabilities - (steps[:, None] >= Y[:, 0])) ** 2, 0), rtol=1e-6
    )
    # A target far beyond all likely ones is as many further as it is further away, and takes no longer.
    far = found.crps(np.array([[1e3], [1e5], [1e12]]))[:, 0]
    np.testing.assert_allclose(
        np.array([1e3, 1e5, 1e12]) - far, 1e3 - found.crps(np.full((3, 1), 1e3))[:, 0], atol=1e-3
    )
    low, high = found.cdf(Y - 1), found.cdf(Y)
    pit = found.pit(Y, rng)
    assert np.all((pit >= low) & (pit <= high))
    assert np.allclose(found.pit(Y), (low + high) / 2)


def test_counts_that_float64_does_not_tell_apart():
    """Beyond 2^53 neighbours are further than 1 from each other: bisection ends there."""
    rate = np.exp(45.0)
    found = predictive(Poisson(), X, np.full((1, 3, 1), 45.0), np.full((1, 3, 1), 1e-30))
    np.testing.assert_allclose(found.quantiles([0.5])[0], rate, rtol=1e-9)


def test_ordinal_labels():
    likelihood = Ordinal(np.array([-1.0, 0.5, 2.0]))
    means, variances = np.array([[[0.3], [-4.0], [5.0]]]), np.full((1, 3, 1), 1e-12)
    found = predictive(likelihood, X, means, variances)
    probabilities = np.stack([found.cdf(np.full((3, 1), k)) - found.cdf(np.full((3, 1), k - 1)) for k in range(4)])
    edges = np.concatenate([[0.0], [1.0]])
    cumulative = np.concatenate([edges[:1], _probit(np.array([-1.0, 0.5, 2.0]) - 0.3), edges[1:]])
    np.testing.assert_allclose(probabilities[:, 0, 0], np.diff(cumulative), atol=1e-5)
    np.testing.assert_array_equal(found.quantiles([0.5])[0, :, 0], [1, 0, 3])


def test_noise_that_depends_on_the_inputs(rng):
    means, variances, weights = _mixture(rng)
    likelihood = Gaussian(scale=gpflow.functions.Linear(A=[[0.3]], b=1.0))
    found = predictive(likelihood, X, means, variances, weights=weights)
    same = [
        predictive(Gaussian(float((1 + 0.3 * x) ** 2)), X[:1], means[:, [n]], variances[:, [n]], weights=weights)
        for n, x in enumerate(X[:, 0])
    ]
    np.testing.assert_allclose(
        found.quantiles(LEVELS)[:, :, 0].T, [s.quantiles(LEVELS)[:, 0, 0] for s in same], rtol=1e-9
    )


def test_several_latent_functions(rng):
    likelihood = HeteroskedasticTFPConditional(tfp.distributions.Normal)
    means, variances, _ = _mixture(rng, S=8, L=2)
    found = predictive(likelihood, X, means, variances)
    f = means[None] + np.sqrt(variances)[None] * rng.normal(size=(20_000, 8, 3, 2))
    y = f[..., 0] + np.exp(f[..., 1]) * rng.normal(size=f.shape[:-1])
    quantiles = found.quantiles([0.1, 0.5, 0.9])[..., 0]
    for level, quantile in zip([0.1, 0.5, 0.9], quantiles, strict=True):
        share = np.mean(y.reshape(-1, 3) <= quantile, axis=0)
        np.testing.assert_allclose(share, level, atol=0.01)


class Logistic(ScalarLikelihood):
    """A user's likelihood, of which only the density is known."""

    def _scalar_log_prob(self, X, F, Y):
        z = (Y - F) / 0.4
        return -z - 2 * tf.math.softplus(-z) - np.log(0.4)

    def _conditional_mean(self, X, F):
        return F

    def _conditional_variance(self, X, F):
        return tf.fill(tf.shape(F), tf.cast((0.4 * np.pi) ** 2 / 3, F.dtype))


def test_any_likelihood_by_its_density(rng):
    means, variances, weights = _mixture(rng)
    found = predictive(Logistic(), X, means, variances, weights=weights, offset=2.0, scale=3.0)
    assert sum(part.nbytes for part in found.parts) < 100_000  # a grid for each row, not for each of its 180 nodes
    for level in (0.05, 0.5):
        y = found.quantiles([level])[0]
        conditional = lambda f: stats.logistic(f, 0.4)  # noqa: E731
        expected = [
            _oracle_cdf(conditional, weights, means[:, n, 0], variances[:, n, 0], float((y[n, 0] - 2) / 3))
            for n in range(3)
        ]
        np.testing.assert_allclose(expected, level, atol=1e-4)


def test_score_of_gaussian_mixtures_is_its_integral(rng):
    means, variances, weights = _mixture(rng, S=4)
    Y = rng.normal(size=(3, 1))
    mixture = GaussianMixture(weights, means, variances)
    scores = mixture.crps(Y)
    densities = np.sum(weights[:, None, None] * stats.norm.pdf(Y, means, np.sqrt(variances)), axis=0)
    np.testing.assert_allclose(np.exp(mixture.log_density(Y)), densities[:, 0], rtol=1e-12)
    found = predictive(Gaussian(1.0), X, means, variances - 0.0, weights=weights)
    for n in range(3):
        cdf = lambda z: weights @ stats.norm.cdf(z, means[:, n, 0], np.sqrt(variances[:, n, 0]))  # noqa: B023, E731
        y = float(Y[n, 0])
        below = integrate.quad(lambda z: cdf(z) ** 2, -20, y, limit=200)[0]  # noqa: B023
        above = integrate.quad(lambda z: (1 - cdf(z)) ** 2, y, 20, limit=200)[0]  # noqa: B023
        np.testing.assert_allclose(scores[n, 0], below + above, rtol=1e-6)
    assert np.all(found.crps(Y) > 0)


@pytest.mark.parametrize("name", ["studentt", "exponential", "gamma"])
def test_score_by_quadrature(name, rng):
    likelihood = REAL[name][0]
    means, variances, weights = _mixture(rng)
    found = predictive(likelihood, X, means, variances, weights=weights)
    Y = np.abs(rng.normal(size=(3, 1)))
    for n in range(3):
        cdf = lambda z: found.cdf(np.full((3, 1), z))[n, 0]  # noqa: B023, E731
        y = float(Y[n, 0])
        low, middle, high = (float(q[n, 0]) for q in found.quantiles([1e-7, 0.9, 1 - 1e-7]))
        below = integrate.quad(lambda z: cdf(z) ** 2, min(low, y), y, limit=200)[0]  # noqa: B023
        ends = [y, max(middle, y), max(high, y)]
        above = sum(integrate.quad(lambda z: (1 - cdf(z)) ** 2, a, b, limit=200)[0] for a, b in pairwise(ends))  # noqa: B023
        np.testing.assert_allclose(found.crps(Y)[n, 0], below + above, rtol=1e-4)


def test_draws_have_the_distribution(rng):
    means, variances, weights = _mixture(rng)
    found = predictive(Gaussian(0.1), X, means, variances, weights=weights)
    draws = found.sample(500, rng)
    assert draws.shape == (500, 3, 1)
    for n in range(3):
        cdf = lambda y: found.cdf(np.broadcast_to(y, (3, 1)))[n, 0]  # noqa: B023, E731
        assert stats.kstest(draws[:, n, 0], np.vectorize(cdf)).pvalue > 1e-4


def test_rows_are_taken_in_pieces(rng, monkeypatch):
    means, variances = rng.normal(size=(5, 40, 2)), rng.uniform(0.1, 1, size=(5, 40, 2))
    inputs = np.zeros((40, 1))
    whole = predictive(StudentT(), inputs, means, variances).quantiles([0.1])  # but for the order of sums
    monkeypatch.setattr("gpflow_deep.judge.predictive._CHUNK_FLOATS", 7000)
    np.testing.assert_allclose(predictive(StudentT(), inputs, means, variances).quantiles([0.1]), whole, rtol=1e-12)


@pytest.mark.parametrize("likelihood", [Gaussian(), StudentT(), Poisson()])
def test_no_rows_have_no_quantiles(likelihood):
    none = np.zeros((1, 0, 1))
    found = predictive(likelihood, X[:0], none, none)
    assert found.quantiles(LEVELS).shape == (4, 0, 1)
    assert found.crps(np.zeros((0, 1))).shape == (0, 1)


def test_what_is_refused(rng):
    means, variances, _ = _mixture(rng)
    with pytest.raises(ValueError, match="labels have no quantiles, got the likelihood Bernoulli"):
        predictive(Bernoulli(), X, means, variances)
    with pytest.raises(ValueError, match="SwitchedLikelihood has no quantiles"):
        predictive(SwitchedLikelihood([Gaussian(), Gaussian()]), X, means, variances)
    with pytest.raises(ValueError, match="targets of Poisson cannot be scaled"):
        predictive(Poisson(), X, means, variances, scale=2.0)
    with pytest.raises(ValueError, match="levels of quantiles must be between 0 and 1"):
        predictive(Gaussian(), X, means, variances).quantiles([0.5, 1.0])


def test_roots_of_hard_functions_take_few_steps():
    targets = np.linspace(-5, 5, 101)
    calls = []

    def function(x):
        calls.append(1)
        return np.tanh(20 * (x - targets)) + 0.1 * (x - targets) ** 3

    found = root(function, np.full(101, -8.0), np.full(101, 9.0), np.full(101, 1e-12))
    np.testing.assert_allclose(found, targets, atol=2e-12)
    assert len(calls) < 60  # bisection would take 44 steps and more for the ends


def test_a_root_at_an_end_is_that_end():
    ends = root(lambda x: x, np.array([0.0, -3.0]), np.array([5.0, 0.0]), np.full(2, 1e-12))
    np.testing.assert_array_equal(ends, [0.0, 0.0])


def test_quantiles_of_one_gaussian(rng):
    mean, variance = rng.normal(size=(1, 5, 2)), rng.uniform(0.1, 4.0, size=(1, 5, 2))
    levels = [0.025, 0.5, 0.9]
    for level, got in zip(levels, gaussian(np.ones(1), mean, variance).quantiles(levels), strict=True):
        np.testing.assert_allclose(got, stats.norm.ppf(level, mean[0], np.sqrt(variance[0])), atol=1e-10)


def test_quantiles_of_components_far_apart(rng):
    """There the mean and 1.96 standard deviations to either side would be far off."""
    mean, variance = 10 * rng.normal(size=(7, 4, 3)), rng.uniform(0.01, 1.0, size=(7, 4, 3))
    levels = [0.001, 0.3, 0.975]
    for level, got in zip(levels, gaussian(np.full(7, 1 / 7), mean, variance).quantiles(levels), strict=True):
        np.testing.assert_allclose(stats.norm.cdf(got, mean, np.sqrt(variance)).mean(axis=0), level, atol=1e-9)
