"""White noise as a function of the input's bits."""

import numpy as np
import tensorflow as tf
from scipy import stats

from gpflow_deep.functions.white_noise import normal_at, row_keys, sub_keys


def noise(X: np.ndarray, seed: tf.Tensor, S: int = 2, L: int = 3) -> np.ndarray:
    return normal_at(row_keys(tf.constant(X)), S, L, seed, tf.float64).numpy()


def test_it_is_standard_normal_and_independent(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """Rows on a grid, as inputs often are, and rows next to one another: Kolmogorov's test at 1e-6."""
    grid = np.stack(np.meshgrid(np.arange(60.0), np.linspace(0, 1, 60)), axis=-1).reshape(-1, 2)
    near = 1.0 + np.arange(3600)[:, None] * 2.0**-50 * np.ones((1, 2))
    for X in (grid, near):
        eps = noise(X, seed)
        assert eps.shape == (2, 3600, 3)
        assert stats.kstest(eps.ravel(), "norm").pvalue > 1e-6
        flat = np.concatenate([eps.transpose(1, 0, 2).reshape(3600, 6), np.roll(eps[0], 1, axis=0)], axis=1)
        correlations = np.corrcoef(flat.T) - np.eye(9)
        assert np.abs(correlations).max() < 6 / np.sqrt(3600)


def test_equal_rows_have_equal_noise_wherever_they_are(rng: np.random.Generator, seed: tf.Tensor) -> None:
    X = rng.standard_normal((5, 4))
    X[0, 0] = 0.0
    again = np.concatenate([rng.standard_normal((3, 4)), X])
    again[3, 0] = -0.0
    np.testing.assert_array_equal(noise(again, seed)[:, 3:], noise(X, seed))
    assert not np.any(noise(X[:, ::-1].copy(), seed) == noise(X, seed))  # columns in another order are another row
    assert not np.any(noise(X, tf.random.fold_in(seed, 1)) == noise(X, seed))


def test_float32_rows_and_parts_of_rows(rng: np.random.Generator, seed: tf.Tensor) -> None:
    keys = sub_keys(row_keys(tf.constant(rng.standard_normal((200, 3)), tf.float32)), 4)
    assert keys.shape == (200, 4)
    assert len(np.unique(keys.numpy())) == 800
