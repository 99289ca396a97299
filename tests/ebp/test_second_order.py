"""`ebp.second_order.second_order`, `ebp.second_order.noise`: moments by quadrature, changes by finite differences, a
linear network by Bayes."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import integrate, stats

from ebp.second_order.noise import Noise
from ebp.second_order.second_order import (
    MAX_FALL,
    MAX_STEP,
    UNITS,
    Derivatives,
    Gaussian,
    PassMean,
    batch_update,
    forward,
    initial_posterior,
)

FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"relu": lambda u: np.maximum(u, 0.0), "sign": np.sign}


@pytest.mark.parametrize("units", UNITS)
def test_moments_are_integrals(units: str) -> None:
    """By the trapezium rule on 2 10^5 intervals, whose error at a kink or jump is below 1e-4 of the width."""
    mu, sigma2 = (part.reshape(1, -1) for part in np.meshgrid([-2.0, -0.3, 0.0, 1.7], [0.04, 0.5, 3.0]))
    found = UNITS[units](mu, sigma2)
    for i in range(mu.size):
        sigma = np.sqrt(sigma2[0, i])
        u = np.linspace(mu[0, i] - 10 * sigma, mu[0, i] + 10 * sigma, 200_001)
        p = stats.norm.pdf(u, mu[0, i], sigma)
        v = FUNCTIONS[units](u)
        mean = integrate.trapezoid(p * v, u)
        square = integrate.trapezoid(p * v**2, u)
        assert found.mean[0, i] == pytest.approx(mean, abs=1e-4)
        assert found.var[0, i] == pytest.approx(square - mean**2, abs=2e-4)


@pytest.mark.parametrize("units", UNITS)
def test_derivatives_of_moments(units: str, rng: np.random.Generator) -> None:
    mu, sigma2, step = rng.normal(size=(1, 20)), rng.uniform(0.1, 2.0, (1, 20)), 1e-6
    moments, found = UNITS[units], UNITS[units](mu, sigma2)
    for name, up, down in (
        ("mu", moments(mu + step, sigma2), moments(mu - step, sigma2)),
        ("sigma2", moments(mu, sigma2 + step), moments(mu, sigma2 - step)),
    ):
        for part in ("mean", "var"):
            expected = (getattr(up, part) - getattr(down, part)) / (2 * step)
            np.testing.assert_allclose(getattr(found, f"{part}_{name}"), expected, atol=1e-8)


def normal(y: np.ndarray, variance: float) -> Callable[[np.ndarray, np.ndarray], Derivatives]:
    """log N(y | mu, sigma2 + variance) and its derivatives."""

    def derivatives(mu: np.ndarray, sigma2: np.ndarray) -> Derivatives:
        total = sigma2 + variance
        log_prob = stats.norm.logpdf(y, mu, np.sqrt(total)).sum(axis=1)
        return Derivatives(log_prob, (y - mu) / total, 0.5 * ((y - mu) ** 2 / total**2 - 1 / total))

    return derivatives


@pytest.mark.parametrize("units", UNITS)
def test_a_batch_adds_first_and_second_derivatives_of_log_z(units: str, rng: np.random.Generator) -> None:
    """d h and d lambda of every weight of two hidden layers, by differences of log Z in its mean and variance."""
    X, Y, weight = rng.normal(size=(3, 4)), rng.normal(size=(3, 2)), np.array([1.0, 0.0, 2.0])
    start = initial_posterior((4, 5, 3, 2), rng)
    before = Gaussian(start.mean, tuple(rng.uniform(1.0, 4.0, part.shape) for part in start.gain))
    after, _, _ = batch_update(before, X, normal(Y, 0.3), units, weight)

    def log_z(layer: int, place: tuple[int, int], mean: float, var: float) -> np.ndarray:
        means, gains = ([part.copy() for part in parts] for parts in before)
        gains[layer][place] = 1.0 / (1.0 / (1.0 + gains[layer][place]) + var) - 1.0
        means[layer][place] += mean
        last = forward(Gaussian(tuple(means), tuple(gains)), X, units)[-1]
        return normal(Y, 0.3)(last.mu, last.sigma2).log_prob

    step = 1e-5
    for layer, shape in enumerate(part.shape for part in before.mean):
        for place in [(0, 0), (shape[0] - 1, shape[1] - 1), (1, shape[1] - 1)]:
            first = (log_z(layer, place, step, 0) - log_z(layer, place, -step, 0)) / (2 * step)
            by_var = (log_z(layer, place, 0, step) - log_z(layer, place, 0, -step)) / (2 * step)
            gain = max(before.gain[layer][place] + weight @ (first**2 - 2 * by_var), 0.9 * before.gain[layer][place])
            d_gain, mean = gain - before.gain[layer][place], before.mean[layer][place]
            h = (1 + before.gain[layer][place]) * mean + weight @ first + d_gain * mean
            assert after.gain[layer][place] == pytest.approx(gain, rel=1e-5, abs=1e-7)
            assert after.mean[layer][place] == pytest.approx(h / (1 + gain), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("distance", [1.0, 1e3, 1e12])
def test_no_batch_can_explode(units: str, distance: float, rng: np.random.Generator) -> None:
    """However far the targets and the inputs of a batch are from all before, and however well the weights are known.

    lambda keeps nine tenths, and no mean moves by more than three standard deviations.
    """
    start = initial_posterior((4, 6, 2), rng)
    for known in (0.0, 1.0, 1e4):
        before = Gaussian(start.mean, tuple(np.full_like(part, known) for part in start.gain))
        X, Y = distance * rng.normal(size=(8, 4)), distance * rng.normal(size=(8, 2))
        after, _, _ = batch_update(before, X, normal(Y, 0.1), units)
        for layer in range(2):
            moved = np.abs(after.mean[layer] - before.mean[layer])
            assert np.all(moved <= MAX_STEP * np.sqrt(before.var[layer]) * (1 + 1e-9) + 1e-12)
            assert np.all(after.gain[layer] >= (1.0 - MAX_FALL) * before.gain[layer])


def test_a_linear_network_is_nearly_bayesian_regression(rng: np.random.Generator) -> None:
    """400 rows, 3 inputs and a bias: means as of the exact posterior with independent weights, to a tenth of their s.d.

    With independent inputs of variance 1 the exact precision of a weight is 1 + N / (K variance), up to the sampling of
    the inputs' second moments, of relative s.d. sqrt(2 / 400); the changes leave out terms of order 1 / N.
    """
    N, variance = 400, 0.5
    X = rng.normal(size=(N, 3))
    features = np.hstack([X, np.ones([N, 1])]) / 2.0  # over sqrt(K)
    Y = features @ rng.normal(size=(4, 1)) + np.sqrt(variance) * rng.normal(size=(N, 1))
    precision = np.eye(4) + features.T @ features / variance
    exact = np.linalg.solve(precision, features.T @ Y / variance)
    posterior = initial_posterior((3, 1), rng)
    for i in range(N):
        posterior, _, _ = batch_update(posterior, X[i : i + 1], normal(Y[i : i + 1], variance), "relu")
    deviation = 1 / np.sqrt(np.diag(precision))[:, None]
    np.testing.assert_allclose(1 / np.sqrt(1 + posterior.gain[0]), deviation, rtol=0.1)
    np.testing.assert_array_less(np.abs(posterior.mean[0] - exact), deviation)


def test_noise_is_learned(rng: np.random.Generator) -> None:
    """Of 2,000 residuals with s.d. 0.3 and 2; the sum of squares has a relative s.d. of sqrt(2 / 2000) = 0.03."""
    y = rng.normal(size=(2000, 2)) * [0.3, 2.0]
    noise = Noise.start(2)
    zeros = np.zeros((10, 2))
    for start in range(0, 2000, 10):
        noise = noise.after(y[start : start + 10], zeros, zeros, None, 1e9)
    np.testing.assert_allclose(np.sqrt(noise.variance), [0.3, 2.0], rtol=0.1)
    repeated = noise
    for start in range(0, 2000, 10):
        repeated = repeated.after(0.1 * y[start : start + 10], zeros, zeros, None, 100.0)
    np.testing.assert_allclose(np.sqrt(repeated.variance), [0.03, 0.2], rtol=0.6)  # of the last rows alone


def test_noise_of_uncertain_predictions_is_not_counted_as_noise() -> None:
    """Where the network's own variance explains the residual, the noise stays what it was expected to be."""
    noise = Noise(10.0, np.array([0.9]))
    after = noise.after(np.array([[3.0]]), np.zeros((1, 1)), np.full((1, 1), 1e6), None, 1e9)
    assert after.variance == pytest.approx(noise.variance, rel=0.06)


def test_derivatives_of_the_noise_model(rng: np.random.Generator) -> None:
    noise, variance = Noise(5.0, np.array([2.0, 1.0])), np.array([0.5, 0.25])
    y, mu, sigma2, step = rng.normal(size=(4, 2)), rng.normal(size=(4, 2)), rng.uniform(0.1, 1.0, (4, 2)), 1e-6
    found = noise.derivatives(y, mu, sigma2)
    expected = stats.norm.logpdf(y, mu, np.sqrt(sigma2 + variance))
    np.testing.assert_allclose(found.log_prob, expected.sum(axis=1))
    up, down = (stats.norm.logpdf(y, mu + d, np.sqrt(sigma2 + variance)) for d in (step, -step))
    np.testing.assert_allclose(found.by_mu, (up - down) / (2 * step), atol=1e-8)
    up, down = (stats.norm.logpdf(y, mu, np.sqrt(sigma2 + d + variance)) for d in (step, -step))
    np.testing.assert_allclose(found.by_sigma2, (up - down) / (2 * step), atol=1e-8)


def test_the_mean_of_a_pass(rng: np.random.Generator) -> None:
    means, gain = rng.normal(size=(5, 3, 2)), (rng.random((3, 2)),)
    mean = PassMean()
    for one in means:
        mean.add(Gaussian((one,), gain))
    found = mean.of(Gaussian((means[-1],), gain))
    np.testing.assert_allclose(found.mean[0], means.mean(axis=0))
    np.testing.assert_array_equal(found.gain[0], gain[0])
