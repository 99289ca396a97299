"""A start from the data's leading modes: correlations of the data, without training."""

import numpy as np
import pytest
import tensorflow as tf

from rbm_tracking.model.exact import log_likelihood_exact, moments_exact
from rbm_tracking.model.rbm import base_rate_biases, initial_rbm, low_rank_rbm
from tests.rbm_tracking import oracles


@pytest.fixture
def data(rng: np.random.Generator) -> np.ndarray:
    """Bits that follow two hidden directions, weakly."""
    field = rng.normal(size=(4000, 2)) @ (0.7 * rng.normal(size=(2, 10)))
    return (rng.uniform(size=field.shape) < 1 / (1 + np.exp(-field))).astype(np.uint8)


def test_it_knows_what_noise_does_not(data: np.ndarray, seed: tf.Tensor) -> None:
    """A better likelihood than independent units; means and correlations of the data, in the linear regime."""
    noise = initial_rbm(12, seed=seed, data=data, dtype=tf.float64)
    rbm = low_rank_rbm(12, 3, seed=seed, data=data, dtype=tf.float64)
    gain = log_likelihood_exact(rbm, data).mean() - log_likelihood_exact(noise, data).mean()
    assert gain > 0.1
    p, v = oracles.visible_distribution([part.numpy() for part in rbm[:3]]), oracles.binary_vectors(10)
    mean = p @ v
    np.testing.assert_allclose(mean, moments_exact(rbm).v, atol=1e-10)
    np.testing.assert_allclose(mean, data.mean(axis=0), atol=0.05)
    covariance = (v * p[:, None]).T @ v - np.outer(mean, mean)
    off = ~np.eye(10, dtype=bool)
    assert np.corrcoef(covariance[off], np.cov(data.T)[off])[0, 1] > 0.9


def test_independent_bits_have_few_modes(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """Eigenvalues up to 1 are no modes: what is left is the noise."""
    one = np.repeat(rng.integers(0, 2, (500, 1)), 4, axis=1)
    rbm = low_rank_rbm(3, 3, seed=seed, data=one, dtype=tf.float64)
    strong = np.linalg.svd(rbm.W.numpy(), compute_uv=False) > 0.5
    assert strong.sum() == 1
    np.testing.assert_allclose(rbm.b, base_rate_biases(one) - 0.5 * rbm.W.numpy().sum(0), atol=0.1)
    with pytest.raises(ValueError, match="num_modes must be at least 1, got 0"):
        low_rank_rbm(3, 0, seed=seed, data=one)
