"""rbm_tracking.use.classifier: probabilities against those of the RBM, the gradient by differences, and learning."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from rbm_tracking import TrackedRBM
from rbm_tracking.model.conditionals import log_label_probs
from rbm_tracking.model.families.softmax import Softmax
from rbm_tracking.use.classifier import RBMClassifier, _Parameters, gradient
from tests.rbm_tracking.estimators import Settings, tracked_rbm

QUICK: Settings = {
    "early_stopping": False,
    "n_temps": 3,
    "n_chains": 10,
    "jit_compile": False,
    "random_state": 0,
    "max_updates": 100,
    "batch_size": 50,
}


@pytest.fixture(scope="module")
def labelled() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 4, 400)
    X = (rng.random((4, 12)) < 0.5)[kind] ^ (rng.random((400, 12)) < 0.1)
    return X.astype(float), np.array(["a", "b"])[kind % 2]  # each class has two kinds of rows


@pytest.fixture(scope="module")
def fitted(labelled: tuple[np.ndarray, np.ndarray]) -> RBMClassifier:
    rbm = tracked_rbm(n_components=8, learning_rate=0.1, **QUICK)
    return RBMClassifier(rbm, epochs=20, learning_rate=0.02).fit(*labelled)


def test_classes_are_learned(fitted: RBMClassifier, labelled: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = labelled
    probabilities = fitted.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert fitted.score(X, y) > 0.9
    visible = fitted.rbm_.rbm_.visible
    assert isinstance(visible, Softmax)
    assert visible.groups == ((12, 13),)
    assert fitted.rbm is not fitted.rbm_
    np.testing.assert_allclose(fitted.predict_proba(sparse.csr_matrix(X)), probabilities)
    assert clone(fitted).get_params()["epochs"] == 20


def test_without_further_steps_it_is_the_conditional_of_the_rbm(labelled: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = labelled
    classifier = RBMClassifier(tracked_rbm(n_components=4, **QUICK), epochs=0).fit(X, y)
    expected = np.exp(log_label_probs(classifier.rbm_.rbm_, X, [12, 13]))
    np.testing.assert_allclose(classifier.predict_proba(X), expected)
    # Probabilities of bits are taken as by TrackedRBM
    few: Settings = {**QUICK, "max_updates": 2}
    soft = RBMClassifier(tracked_rbm(n_components=4, **few), epochs=0).fit(0.1 + 0.8 * X, y)
    assert soft.predict_proba(0.5 * X).shape == (400, 2)


def test_the_gradient_is_that_of_differences(rng: np.random.Generator) -> None:
    parts = [rng.normal(size=shape) for shape in ((3, 4), (3, 2), (3,), (2,))]
    v, labels, step = (rng.random((6, 4)) < 0.5).astype(float), rng.integers(0, 2, 6), 1e-6

    def value(theta: list[np.ndarray]) -> float:
        W, U, c, d = theta
        scores = np.logaddexp(0, (v @ W.T + c)[:, None] + U.T).sum(axis=2) + d
        return float((scores - np.logaddexp(*scores.T)[:, None])[np.arange(6), labels].mean())

    found = gradient(_Parameters(*parts), v, labels)
    for i, part in enumerate(parts):
        direction = rng.normal(size=part.shape)
        ends = [value([*parts[:i], part + sign * step * direction, *parts[i + 1 :]]) for sign in (1, -1)]
        assert (found[i] * direction).sum() == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-8)


def test_errors_say_what_to_do(labelled: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = labelled
    with pytest.raises(NotFittedError):
        RBMClassifier().predict(X)
    with pytest.raises(ValueError, match="X must be 0 or 1, or probabilities between them, got values from 0 to 3"):
        RBMClassifier().fit(3 * X, y)
    with pytest.raises(ValueError, match="at least 2 classes, got 1 class"):
        RBMClassifier().fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="bits or categories can be classified, got visible='gaussian'"):
        RBMClassifier(TrackedRBM(visible="gaussian")).fit(X, y)
    with pytest.raises(ValueError, match="epochs must be a whole number of at least 0, got -1"):
        RBMClassifier(epochs=-1).fit(X, y)
    with pytest.raises(ValueError, match=r"batch_size must be a whole number of at least 1, got 2\.5"):
        RBMClassifier(batch_size=2.5).fit(X, y)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"learning_rate must be positive and l2 not negative, got 0.005 and -1"):
        RBMClassifier(l2=-1).fit(X, y)


def test_categories_of_rows_are_named_in_any_way(labelled: tuple[np.ndarray, np.ndarray]) -> None:
    """By their number of levels, by lists or by an array of columns."""
    one_hot = np.eye(2)[labelled[0].astype(int)].reshape(400, 24)
    columns = np.arange(24).reshape(12, 2)
    few: Settings = {**QUICK, "max_updates": 2, "visible": "softmax", "n_components": 4}
    found = []
    for groups in (2, np.int64(2), columns, columns.astype(float).tolist()):
        classifier = RBMClassifier(tracked_rbm(groups=groups, **few), epochs=0).fit(one_hot, labelled[1])
        found.append(classifier.predict_proba(one_hot))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
