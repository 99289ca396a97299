"""Integrators: Gauss-Hermite grids and Monte-Carlo draws."""

import math

import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep import GaussHermite, MonteCarlo, Sobol
from gpflow_deep.model.quadrature import MAX_GRID_SIZE
from tests.statistical import assert_mean_close

SEED = tf.constant([1, 2])


def grid(num_nodes: int, dims: list[int]) -> tuple[list[np.ndarray], np.ndarray]:
    integrator = GaussHermite(num_nodes)
    S = integrator.num_components(dims, 1)
    noise = integrator.noise(dims, S, 7, SEED, tf.float64)
    return [part.numpy()[:, 0] for part in noise], np.exp(integrator.log_weights(dims, S, tf.float64))


def test_moments_of_the_normal_distribution() -> None:
    """n nodes are exact for polynomials up to degree 2n - 1: E[x^k] = (k-1)!! for even k, 0 for odd k."""
    ((x,), weights) = grid(6, [1])
    for k in range(12):
        expected = math.prod(range(k - 1, 0, -2)) if k % 2 == 0 else 0.0
        np.testing.assert_allclose(weights @ x[:, 0] ** k, expected, rtol=1e-11, atol=1e-11)
    assert abs(weights @ x[:, 0] ** 12 - math.prod(range(11, 0, -2))) > 1.0  # and not beyond


def test_grid_over_several_layers() -> None:
    """Dimensions are independent: E[a^2 b^4 c] = 0 and E[a^2 b^4] = 3."""
    (first, second), weights = grid(4, [2, 1])
    assert first.shape == (64, 2)
    assert second.shape == (64, 1)
    np.testing.assert_allclose(np.sum(weights), 1.0, rtol=1e-12)
    a, b, c = first[:, 0], first[:, 1], second[:, 0]
    np.testing.assert_allclose(weights @ (a**2 * b**4), 3.0, rtol=1e-12)
    np.testing.assert_allclose(weights @ (a**2 * c**4), 3.0, rtol=1e-12)
    np.testing.assert_allclose(weights @ (a**2 * b**4 * c), 0.0, atol=1e-12)


@pytest.mark.parametrize("integrator", [GaussHermite(5), MonteCarlo(), Sobol()])
def test_nothing_to_integrate(integrator: GaussHermite | MonteCarlo | Sobol) -> None:
    assert integrator.num_components([], 10) == 1
    assert integrator.noise([], 1, 5, SEED, tf.float64) == []
    assert integrator.num_components([0, 0], 10) == 1
    assert [part.shape[2] for part in integrator.noise([0, 0], 1, 5, SEED, tf.float64)] == [0, 0]
    np.testing.assert_allclose(integrator.log_weights([], 1, tf.float64), [0.0], atol=1e-15)


def test_limits() -> None:
    assert GaussHermite(10).num_components([2, 3], 1) == 100_000 == MAX_GRID_SIZE
    with pytest.raises(ValueError, match=r"to the power of 6 .*dimensions has 1000000 nodes, more than 100000"):
        GaussHermite(10).num_components([3, 3], 1)
    with pytest.raises(ValueError, match="num_nodes must be at least 1, got 0"):
        GaussHermite(0)


def test_monte_carlo_draws_are_standard_normal(rng: np.random.Generator) -> None:
    seed = tf.constant(rng.integers(0, 2**31, 2), tf.int32)
    first, second = (part.numpy() for part in MonteCarlo().noise([2, 1], 20_000, 2, seed, tf.float64))
    assert first.shape == (20_000, 2, 2)
    assert second.shape == (20_000, 2, 1)
    draws = np.concatenate([first.reshape(20_000, -1), second.reshape(20_000, -1)], axis=1)
    assert_mean_close(draws, 0.0, num_se=5, min_detectable=0.05)
    products = np.einsum("si,sj->sij", draws, draws)  # unit variances; independent between points and layers
    assert_mean_close(products, np.eye(6), num_se=5, min_detectable=0.06)


def test_monte_carlo_weights_and_layout() -> None:
    integrator = MonteCarlo()
    np.testing.assert_allclose(np.exp(integrator.log_weights([2], 8, tf.float64)), np.full(8, 0.125), rtol=1e-14)
    few, many = (integrator.noise([2], 4, n, SEED, tf.float64)[0].numpy() for n in (3, 9))
    np.testing.assert_array_equal(few, many[:, :3])  # the first rows do not depend on the number of rows
    assert integrator.noise([2], 4, 3, SEED, tf.float32)[0].dtype == tf.float32


# Sobol points.


def points(dims: list[int], S: int, seed: tf.Tensor = SEED) -> np.ndarray:
    """[S, sum(dims)]"""
    return np.concatenate([part.numpy()[:, 0] for part in Sobol().noise(dims, S, 7, seed, tf.float64)], axis=1)


def test_sobol_points_are_shared_and_follow_the_seed() -> None:
    first, second = Sobol().noise([2, 1], 16, 7, SEED, tf.float32)
    assert (first.shape, second.shape, first.dtype) == ((16, 1, 2), (16, 1, 1), tf.float32)
    np.testing.assert_array_equal(points([2, 1], 16), points([3], 16))
    np.testing.assert_array_equal(points([3], 16), points([3], 16))
    assert np.all(points([3], 16) != points([3], 16, tf.constant([1, 3])))
    compiled = tf.function(lambda seed: Sobol().noise([3], 16, 7, seed, tf.float64)[0], autograph=False)
    np.testing.assert_allclose(compiled(SEED)[:, 0], points([3], 16), rtol=1e-12)  # a seed that is not known in tracing


@pytest.mark.parametrize(("S", "d"), [(2, 1), (3, 4), (16, 1), (16, 14), (64, 13), (100, 30)])
def test_sobol_points_have_the_moments_of_the_normal_distribution(S: int, d: int) -> None:
    z = points([d], S)
    np.testing.assert_allclose(z.mean(axis=0), 0.0, atol=1e-12)
    if d <= S - 2:
        np.testing.assert_allclose(z.T @ z / S, np.eye(d), atol=1e-9)
    np.testing.assert_allclose(np.mean(z**2, axis=0), 1.0, rtol=1e-9)


def test_moments_are_matched_within_blocks_where_dimensions_are_many() -> None:
    """40 dimensions and 16 points: three blocks of 14, 13 and 13."""
    z = points([40], 16)
    C = z.T @ z / 16
    for start, stop in ((0, 14), (14, 27), (27, 40)):
        np.testing.assert_allclose(C[start:stop, start:stop], np.eye(stop - start), atol=1e-8)
    assert np.max(np.abs(C[:14, 14:])) > 0.01


@pytest.mark.parametrize("S", [16, 64, 256])
def test_errors_of_sobol_points_fall_as_the_number_of_points(S: int) -> None:
    """E[cos(a z)] = exp(-a^2 / 2), which matched moments do not give: root mean square errors over seeds below 2 / S,
    where those of independent draws are 0.63 / sqrt(S), the standard deviation of the cosine over sqrt(S)."""
    z = np.stack([points([3], S, tf.constant([seed, 7])) for seed in range(40)])
    errors = np.mean(np.cos(1.5 * z), axis=1) - np.exp(-1.125)
    assert np.sqrt(np.mean(errors**2)) < 2 / S < 0.63 / np.sqrt(S)


def test_one_point() -> None:
    """Nothing to match: a standard-normal number, different for each seed."""
    assert len({float(points([1], 1, tf.constant([seed, 0]))[0, 0]) for seed in range(5)}) == 5


def test_limit_of_dimensions() -> None:
    with pytest.raises(ValueError, match=r"at most 21201 dimensions, got 21202 .* use fewer, or predict_integrator="):
        Sobol().noise([21_202], 2, 1, SEED, tf.float64)
