"""Integrators: Gauss-Hermite grids and Monte-Carlo draws."""

import math

import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep import GaussHermite, MonteCarlo
from gpflow_deep.quadrature import MAX_GRID_SIZE
from tests.statistical import assert_mean_close

SEED = tf.constant([1, 2])


def grid(num_nodes: int, dims: list[int]) -> tuple[list[np.ndarray], np.ndarray]:
    integrator = GaussHermite(num_nodes)
    S = integrator.num_components(dims, 1)
    noise = integrator.noise(dims, 0, S, 7, SEED, tf.float64)
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


def test_parts_of_the_grid() -> None:
    """Nodes start to start + count - 1, whatever the start is made of."""
    integrator = GaussHermite(3)
    whole = integrator.noise([2, 1], 0, 27, 5, SEED, tf.float64)
    for start in (4, tf.constant(4)):
        for part, all_of_it in zip(integrator.noise([2, 1], start, 6, 5, SEED, tf.float64), whole, strict=True):
            np.testing.assert_array_equal(part, all_of_it[4:10])


@pytest.mark.parametrize("integrator", [GaussHermite(5), MonteCarlo()])
def test_nothing_to_integrate(integrator: GaussHermite | MonteCarlo) -> None:
    assert integrator.num_components([], 10) == 1
    assert integrator.noise([], 0, 1, 5, SEED, tf.float64) == []
    np.testing.assert_allclose(integrator.log_weights([], 1, tf.float64), [0.0], atol=1e-15)


def test_limits() -> None:
    assert GaussHermite(10).num_components([2, 3], 1) == 100_000 == MAX_GRID_SIZE
    with pytest.raises(ValueError, match=r"to the power of 6 .*dimensions has 1000000 nodes, more than 100000"):
        GaussHermite(10).num_components([3, 3], 1)
    with pytest.raises(ValueError, match="num_nodes must be at least 1, got 0"):
        GaussHermite(0)


def test_monte_carlo_draws_are_standard_normal(rng: np.random.Generator) -> None:
    seed = tf.constant(rng.integers(0, 2**31, 2), tf.int32)
    first, second = (part.numpy() for part in MonteCarlo().noise([2, 1], 0, 20_000, 2, seed, tf.float64))
    assert first.shape == (20_000, 2, 2)
    assert second.shape == (20_000, 2, 1)
    draws = np.concatenate([first.reshape(20_000, -1), second.reshape(20_000, -1)], axis=1)
    assert_mean_close(draws, 0.0, num_se=5, min_detectable=0.05)
    products = np.einsum("si,sj->sij", draws, draws)  # unit variances; independent between points and layers
    assert_mean_close(products, np.eye(6), num_se=5, min_detectable=0.06)


def test_monte_carlo_weights_and_layout() -> None:
    integrator = MonteCarlo()
    np.testing.assert_allclose(np.exp(integrator.log_weights([2], 8, tf.float64)), np.full(8, 0.125), rtol=1e-14)
    few, many = (integrator.noise([2], 0, 4, n, SEED, tf.float64)[0].numpy() for n in (3, 9))
    np.testing.assert_array_equal(few, many[:, :3])  # the first rows do not depend on the number of rows
    later = integrator.noise([2], 4, 4, 3, SEED, tf.float64)[0].numpy()
    assert np.all(later != few)
    assert integrator.noise([2], 0, 4, 3, SEED, tf.float32)[0].dtype == tf.float32
