"""`gpflow_deep.scores` against closed forms, brute force and scikit-learn."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from gpflow_deep.scores import area_under_curve, metrics, mixture_quantiles


def test_regression_metrics() -> None:
    Y, mean = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 0.0], [3.0, 4.0]])
    assert metrics("regression", Y, mean, np.array([-1.0, -2.0])) == {"log_likelihood_nats": -1.5, "rmse": 1.0}


@pytest.mark.parametrize("num_columns", [1, 2])
def test_binary_metrics(num_columns: int) -> None:
    Y, ones = np.array([[0], [1], [1], [0]]), np.array([0.2, 0.6, 0.4, 0.3])
    mean = np.stack([1 - ones, ones], axis=1)[:, -num_columns:]
    found = metrics("binary", Y, mean, np.zeros(4))
    assert found == {"log_likelihood_nats": 0.0, "accuracy": 0.75, "auc": 1.0}
    assert set(metrics("binary", Y[:1], mean[:1], np.zeros(1))) == {"log_likelihood_nats", "accuracy"}


def test_multiclass_metrics() -> None:
    mean = np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7], [0.4, 0.5, 0.1]])
    found = metrics("multiclass", np.array([[0], [2], [0]]), mean, np.array([-1.0, -2.0, -6.0]))
    assert found == {"log_likelihood_nats": -3.0, "accuracy": 2 / 3}


def test_area_under_curve_equals_scikit_learns(rng: np.random.Generator) -> None:
    labels = rng.integers(2, size=200)
    scores = rng.normal(size=200).round(1) + 0.3 * labels  # with ties
    assert area_under_curve(labels, scores) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    with pytest.raises(ValueError, match="labels must hold both 0 and 1, got 0 and 3"):
        area_under_curve(np.ones(3), np.zeros(3))


def test_quantiles_of_one_gaussian(rng: np.random.Generator) -> None:
    mean, var = rng.normal(size=(1, 5, 2)), rng.uniform(0.1, 4.0, size=(1, 5, 2))
    for p, got in zip((0.025, 0.5, 0.9), mixture_quantiles(mean, var, [0.025, 0.5, 0.9]), strict=True):
        np.testing.assert_allclose(got, stats.norm.ppf(p, mean[0], np.sqrt(var[0])), atol=1e-10)


def test_quantiles_invert_the_distribution_function(rng: np.random.Generator) -> None:
    """F(quantile(p)) = p, for mixtures whose components lie far apart: there mean +- 1.96 std would be far off."""
    mean, var = 10 * rng.normal(size=(7, 4, 3)), rng.uniform(0.01, 1.0, size=(7, 4, 3))
    for p, got in zip((0.001, 0.3, 0.975), mixture_quantiles(mean, var, [0.001, 0.3, 0.975]), strict=True):
        np.testing.assert_allclose(stats.norm.cdf(got, mean, np.sqrt(var)).mean(axis=0), p, atol=1e-9)


def test_quantiles_refuse_bad_input() -> None:
    with pytest.raises(ValueError, match=r"between 0 and 1, got \[1.5\]"):
        mixture_quantiles(np.zeros([1, 1, 1]), np.ones([1, 1, 1]), [1.5])
    with pytest.raises(ValueError, match=r"must be positive, the smallest is 0\.0"):
        mixture_quantiles(np.zeros([1, 1, 1]), np.zeros([1, 1, 1]), [0.5])
