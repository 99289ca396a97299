"""`gpflow_deep.model.likelihoods` against closed forms, brute force and scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from gpflow_deep.model.likelihoods import area_under_curve, metrics


def test_regression_metrics() -> None:
    Y, mean = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 0.0], [3.0, 4.0]])
    assert metrics("regression", Y, mean, np.array([-1.0, -2.0])) == {"log_likelihood_nats": -1.5, "rmse": 1.0}
    with pytest.raises(ValueError, match=r"mean must have the shape of Y, \[2, 1\], got \[2\]"):  # no [2, 2] of errors
        metrics("regression", Y[:, :1], mean[:, 0], np.zeros(2))


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
