"""`EBPGaussianClassifier`: scikit-learn's checks, probabilities as good as those of logistic regression, streams."""

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ebp import EBPGaussianClassifier
from ebp.estimators.gaussian_classifier import sign_derivatives

#: Rows are learned one after the other in a random order, so two copies are not one row of weight 2.
ORDER = {
    f"check_sample_weight_equivalence_on_{kind}_data": "the result depends on the order of the rows"
    for kind in ("dense", "sparse")
}


@parametrize_with_checks([EBPGaussianClassifier()], expected_failed_checks=lambda estimator: ORDER)
@pytest.mark.filterwarnings("ignore:Skipping check")
@pytest.mark.usefixtures("global_generator")
def test_scikit_learn_accepts_the_estimator(estimator: Any, check: Any) -> None:
    check(estimator)


def test_derivatives(rng: np.random.Generator) -> None:
    y, mu, sigma2, step = rng.choice([-1.0, 1.0], (5, 2)), rng.normal(size=(5, 2)), rng.uniform(0.1, 2, (5, 2)), 1e-6
    found = sign_derivatives(y, mu, sigma2)
    for name, change in (("by_mu", (step, 0.0)), ("by_sigma2", (0.0, step))):
        for column in range(2):
            only = np.arange(2) == column
            up = sign_derivatives(y, mu + change[0] * only, sigma2 + change[1] * only).log_prob
            down = sign_derivatives(y, mu - change[0] * only, sigma2 - change[1] * only).log_prob
            np.testing.assert_allclose(getattr(found, name)[:, column], (up - down) / (2 * step), atol=1e-8)
    far = sign_derivatives(np.ones((1, 1)), np.full((1, 1), -1e4), np.zeros((1, 1)))
    assert far.by_mu[0, 0] == pytest.approx(1e4, rel=1e-6)  # footnote 4


@pytest.mark.parametrize("load", [load_breast_cancer, load_digits])
def test_probabilities_are_calibrated(load: Any) -> None:
    """Log loss on a quarter of the rows within 1.3 times that of logistic regression, without any tuning."""
    X, y = load(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[:600]
    test, rows = order[:150], order[150:]
    model = EBPGaussianClassifier().fit(X[rows], y[rows])
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)).fit(X[rows], y[rows])
    losses = [log_loss(y[test], one.predict_proba(X[test])) for one in (model, linear)]
    assert losses[0] < 1.3 * losses[1]
    assert model.score(X[test], y[test]) > 0.95
    np.testing.assert_allclose(model.predict_proba(X[test]).sum(axis=1), 1.0)
    five = EBPGaussianClassifier(20, num_networks=2, epochs=2).fit(X[rows], y[rows])
    assert five.score(X[test], y[test]) > 0.85


def test_streams(rng: np.random.Generator) -> None:
    y = rng.integers(0, 3, 900)
    X = rng.normal(size=(900, 4)) + 2 * np.eye(4)[y]
    model = EBPGaussianClassifier(10)
    for start in range(0, 800, 40):
        model.partial_fit(X[start : start + 40], y[start : start + 40], classes=[0, 1, 2])
    assert model.score(X[800:], y[800:]) > 0.8  # the best possible is 0.88
    with pytest.raises(ValueError, match=r"classes must stay .* \[0, 1, 2\], got \[0, 1\]"):
        model.partial_fit(X, y, classes=[0, 1])


def test_impossible_parameters(rng: np.random.Generator) -> None:
    for options, message in (
        ({"units": "tanh"}, "units must be one of 'relu', 'sign', got 'tanh'"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1, got 0"),
        ({"hidden": -1}, "hidden must be a positive whole number .* got -1"),
    ):
        with pytest.raises(ValueError, match=message):
            EBPGaussianClassifier(**options).fit(rng.normal(size=(4, 2)), [0, 1, 0, 1])


@pytest.mark.parametrize("epochs", [10, 100])
def test_passes_over_labels_that_say_nothing(epochs: int) -> None:
    """Random labels of 200 rows: nearly as good as log 2 = 0.69, and as logistic regression (0.76), however often.

    If 100 passes count each row 100 times, the log loss is above 2.
    """
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1200, 20)), rng.integers(0, 2, 1200)
    model = EBPGaussianClassifier(epochs=epochs).fit(X[:200], y[:200])
    assert log_loss(y[200:], model.predict_proba(X[200:])) < 0.85
    assert model.n_epochs_ == epochs
    assert model.count_ < 8


def test_groups_are_held_back_as_a_whole(rng: np.random.Generator) -> None:
    """Rows that stand eight times in the table would be known by heart; copies are held back together by themselves."""
    X, y = np.repeat(rng.normal(size=(40, 10)), 8, axis=0), np.repeat(rng.integers(0, 2, 40), 8)
    groups = np.repeat(np.arange(40), 8)
    nearly_equal = X + 1e-3 * rng.normal(size=X.shape)
    assert EBPGaussianClassifier(20).fit(nearly_equal, y, groups=groups).count_ == 1
    assert EBPGaussianClassifier(20).fit(nearly_equal, y).count_ == 8
    assert EBPGaussianClassifier(20).fit(X, y).count_ == 1
    with pytest.raises(ValueError, match="groups must name a group for each of 320 rows"):
        EBPGaussianClassifier().fit(X, y, groups=groups[:5])


def test_inputs_of_any_size(rng: np.random.Generator) -> None:
    y = rng.integers(0, 2, 80)
    X = rng.normal(size=(80, 3)) + y[:, None]
    expected = EBPGaussianClassifier(5).fit(X, y).predict_proba(X)
    for factor in (1e-200, 1e200):
        found = EBPGaussianClassifier(5).fit(X * factor, y).predict_proba(X * factor)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
