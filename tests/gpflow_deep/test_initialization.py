"""Starting values: k-means inducing inputs and fixed linear mean functions."""

import gpflow
import numpy as np
import pytest

from gpflow_deep import inducing_inputs, linear_mean
from gpflow_deep.model.initialization import linear_projection, residual_variance


def assert_distinct(Z: np.ndarray, M: int) -> None:
    assert len(np.unique(Z, axis=0)) == len(Z) == M
    assert np.all(np.isfinite(Z))


# Inducing inputs.


def test_kmeans_finds_clusters(rng: np.random.Generator) -> None:
    """Three far clusters and 12 centres: each cluster has some, and no centre lies between clusters."""
    centres = np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]])
    X = np.concatenate([centre + 0.1 * rng.standard_normal((200, 2)) for centre in centres])
    Z = inducing_inputs(X, 12, seed=1)
    assert_distinct(Z, 12)
    distances = np.linalg.norm(centres[:, None] - Z[None], axis=-1)
    assert np.all(np.min(distances, axis=1) < 0.5)
    assert np.all(np.min(distances, axis=0) < 0.5)


def test_kmeans_is_a_local_optimum(rng: np.random.Generator) -> None:
    """Centres summarise better than the same number of random rows."""
    X = rng.standard_normal((500, 3))

    def distortion(Z: np.ndarray) -> float:
        return float(np.mean(np.min(np.sum((X[:, None] - Z[None]) ** 2, axis=-1), axis=1)))

    random_rows = np.mean([distortion(X[rng.choice(500, 10, replace=False)]) for _ in range(20)])
    assert distortion(inducing_inputs(X, 10)) < 0.8 * random_rows


def test_as_many_as_rows_are_the_rows(rng: np.random.Generator) -> None:
    X = rng.standard_normal((7, 2))
    np.testing.assert_array_equal(inducing_inputs(X, 7), np.unique(X, axis=0))


@pytest.mark.parametrize("N", [1, 3, 9])
def test_fewer_rows_than_inducing_inputs_are_padded(rng: np.random.Generator, N: int) -> None:
    X = rng.standard_normal((N, 2))
    Z = inducing_inputs(X, 10)
    assert_distinct(Z, 10)
    for row in X:
        assert np.any(np.all(row == Z, axis=1))


def test_hard_data(rng: np.random.Generator) -> None:
    """Duplicates, constant columns, unscaled columns: always M distinct points, and constant columns stay constant."""
    duplicates = np.repeat(rng.standard_normal((4, 2)), 50, axis=0)
    assert_distinct(inducing_inputs(duplicates, 10), 10)
    constant = np.column_stack([rng.standard_normal(30), np.full(30, 5.0)])
    for M in (10, 40):
        Z = inducing_inputs(constant, M)
        assert_distinct(Z, M)
        np.testing.assert_array_equal(Z[:, 1], 5.0)
    assert_distinct(inducing_inputs(np.full((20, 2), 3.0), 5), 5)
    assert_distinct(inducing_inputs(np.zeros((1, 3)), 5), 5)
    unscaled = rng.standard_normal((100, 2)) * [1e-4, 1e6]
    assert_distinct(inducing_inputs(unscaled, 20), 20)


def test_seed_and_type(rng: np.random.Generator) -> None:
    X = rng.standard_normal((100, 2))
    np.testing.assert_array_equal(inducing_inputs(X, 10, seed=3), inducing_inputs(X, 10, seed=3))
    assert np.any(inducing_inputs(X, 10, seed=3) != inducing_inputs(X, 10, seed=4))
    assert inducing_inputs(X, 10).dtype == np.float64
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        assert inducing_inputs(X.astype(np.float32), 10).dtype == np.float32


def test_many_rows_are_sampled(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpflow_deep.model.initialization.MAX_KMEANS_ROWS", 100)
    X = rng.standard_normal((5000, 2))
    assert_distinct(inducing_inputs(X, 10), 10)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(3), r"X must be an array \[N, D\] with N >= 1, got shape \[3\]"),
        (np.zeros((0, 2)), r"X must be an array \[N, D\] with N >= 1, got shape \[0, 2\]"),
        (np.array([[1.0, np.nan]]), "X must be finite, got NaN or infinity"),
    ],
)
def test_messages_of_inputs(X: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        inducing_inputs(X, 2)


def test_message_of_number() -> None:
    with pytest.raises(ValueError, match="num_inducing must be at least 1, got 0"):
        inducing_inputs(np.zeros((3, 1)), 0)


# Mean functions.


def test_projection_is_on_the_right_singular_vectors(rng: np.random.Generator) -> None:
    X = rng.standard_normal((40, 5)) * [1.0, 5.0, 2.0, 0.5, 3.0]
    W = linear_projection(X, 2)
    _, _, V = np.linalg.svd(X, full_matrices=False)
    np.testing.assert_allclose(np.abs(W.T @ V[:2].T), np.eye(2), atol=1e-9)  # gaps between singular values are O(1)
    assert np.all(W[np.argmax(np.abs(W), axis=0), [0, 1]] > 0)
    mean_function = linear_mean(X, 2)
    np.testing.assert_allclose(mean_function(X), X @ W, rtol=1e-12)
    assert not mean_function.trainable_variables


def test_projection_with_fewer_rows_than_outputs(rng: np.random.Generator) -> None:
    W = linear_projection(rng.standard_normal((2, 6)), 4)
    np.testing.assert_allclose(W.T @ W, np.eye(4), atol=1e-12)


def test_equal_width_is_the_identity(rng: np.random.Generator) -> None:
    X = rng.standard_normal((4, 3))
    np.testing.assert_array_equal(linear_mean(X, 3)(X), X)
    assert isinstance(linear_mean(X, 3), gpflow.mean_functions.Identity)


def test_wider_layers_are_padded_with_zeros(rng: np.random.Generator) -> None:
    X = rng.standard_normal((4, 3))
    np.testing.assert_allclose(linear_mean(X, 5)(X), np.concatenate([X, np.zeros((4, 2))], axis=1), rtol=1e-15)
    assert not linear_mean(X, 5).trainable_variables


def test_projection_needs_an_output() -> None:
    with pytest.raises(ValueError, match="output_dim must be at least 1, got 0"):
        linear_projection(np.zeros((3, 2)), 0)


# The noise.


def test_residual_variance_is_that_of_the_noise(rng: np.random.Generator) -> None:
    """Of scikit-learn: unbiased, also with few rows; in any units; a constant column of X is harmless."""
    from sklearn.linear_model import LinearRegression

    X = np.concatenate([rng.normal(size=(60, 5)), np.full((60, 1), 7.0)], axis=1)
    Y = X[:, :2] @ rng.normal(size=(2, 2)) + rng.normal(size=(60, 2))
    residuals = Y - LinearRegression().fit(X, Y).predict(X)
    np.testing.assert_allclose(residual_variance(X, Y), np.mean((residuals**2).sum(axis=0) / (60 - 1 - 5)), rtol=1e-10)
    np.testing.assert_allclose(residual_variance(1e6 * X + 1e8, 1e3 * Y), 1e6 * residual_variance(X, Y), rtol=1e-5)
    found = [residual_variance(A := rng.normal(size=(8, 4)), A[:, :1] + rng.normal(size=(8, 1))) for _ in range(4000)]
    np.testing.assert_allclose(np.mean(found), 1.0, atol=5 * np.sqrt(2 / 3 / 4000))  # chi^2 of 3 degrees of freedom


def test_residual_variance_where_least_squares_says_nothing(rng: np.random.Generator) -> None:
    """An exact line gives the paper's share, as many weights as rows the variance of Y, constant targets a number."""
    X = rng.normal(size=(30, 2))
    Y = 3.0 * X[:, :1]
    np.testing.assert_allclose(residual_variance(X, Y), 0.01 * Y.var(), rtol=1e-12)
    few = rng.normal(size=(4, 6)), rng.normal(size=(4, 1))
    np.testing.assert_allclose(residual_variance(*few), few[1].var(), rtol=1e-12)
    assert residual_variance(X, np.full((30, 1), 2.0)) == 0.01
    assert residual_variance(X[:1], Y[:1]) == 0.01
