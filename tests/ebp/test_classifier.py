import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.utils.estimator_checks import parametrize_with_checks

from ebp import EBPClassifier


@parametrize_with_checks([EBPClassifier(hidden=(30,))])
@pytest.mark.filterwarnings("ignore::ebp.InputCodingWarning", "ignore:Skipping check")
def test_scikit_learn_accepts_the_estimator(estimator: Any, check: Any) -> None:
    """Among others: labels of any type, NaN, wrong shapes, sparse formats, cloning, pickling, order of rows."""
    state = np.random.get_state()  # noqa: NPY002 (some checks draw from NumPy's global generator)
    check(estimator)
    np.random.set_state(state)  # noqa: NPY002


def split(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    is_test = np.arange(len(y)) % 4 == 0
    return X[~is_test], y[~is_test], X[is_test], y[is_test]


@pytest.mark.parametrize("weights", ["binary", "ternary", "real"])
@pytest.mark.parametrize("output", ["probabilistic", "deterministic", "vote"])
def test_breast_cancer(weights: str, output: str) -> None:
    """142 test cases; all outputs are known to err on 2 to 4 % of them, so 8 % would be a defect."""
    X, y, X_test, y_test = split(*load_breast_cancer(return_X_y=True))
    classifier = EBPClassifier(weights=weights, output=output).fit(X, y)
    assert classifier.score(X_test, y_test) > 0.92


def test_digits() -> None:
    X, y, X_test, y_test = split(*load_digits(return_X_y=True))
    classifier = EBPClassifier(epochs=5, batch_size=10).fit(X, y)
    assert classifier.score(X_test, y_test) > 0.92
    p = classifier.predict_proba(X_test)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(classifier.classes_[np.argmax(p, axis=1)], classifier.predict(X_test))
    np.testing.assert_allclose(classifier.predict_log_proba(X_test), np.log(p))


def test_probabilities_of_two_classes_are_those_of_the_signs() -> None:
    X, y, X_test, _ = split(*load_breast_cancer(return_X_y=True))
    classifier = EBPClassifier(dtype="float64").fit(X, y)
    p = classifier.predict_proba(X_test)
    np.testing.assert_allclose(p[:, 1], stats.norm.cdf(classifier.decision_function(X_test)), rtol=1e-10)
    np.testing.assert_array_equal(classifier.predict(X_test), (p[:, 1] >= 0.5).astype(int))


def test_votes_are_shares_of_networks() -> None:
    X, y, X_test, _ = split(*load_breast_cancer(return_X_y=True))
    classifier = EBPClassifier(output="vote", num_votes=5).fit(X, y)
    share = classifier.predict_proba(X_test)[:, 1] * 5
    np.testing.assert_allclose(share, np.round(share), atol=1e-9)
    np.testing.assert_array_equal(classifier.predict(X_test), (share > 2.5).astype(int))


def test_the_deterministic_network_has_no_probabilities() -> None:
    assert not hasattr(EBPClassifier(output="deterministic"), "predict_proba")
    assert hasattr(EBPClassifier(), "predict_proba")


def test_sparse_equals_dense_without_centring(rng: np.random.Generator) -> None:
    X = rng.random((80, 30)) * (rng.random((80, 30)) < 0.3)
    X[:, 0] += 0.1  # no empty rows
    y = np.where(X[:, 1] > X[:, 2], "spam", "ham")
    dense = EBPClassifier((6,), standardise=False, dtype="float64").fit(X, y)
    sparse = clone(dense).fit(scipy.sparse.csr_matrix(X), y)
    np.testing.assert_allclose(
        sparse.decision_function(scipy.sparse.csr_matrix(X)), dense.decision_function(X), rtol=1e-9
    )


def test_sparse_columns_are_scaled_and_constant_ones_dropped(rng: np.random.Generator) -> None:
    X = rng.random((80, 5)) * (rng.random((80, 5)) < 0.5)
    X[:, 3] = 0.0
    X[:, 0] += 0.1
    y = np.resize([0, 1], 80)
    scaled = X / np.where(X.std(axis=0) > 0, X.std(axis=0), np.inf)
    ready = EBPClassifier((6,), standardise=False, dtype="float64").fit(scaled, y)
    classifier = EBPClassifier((6,), dtype="float64").fit(scipy.sparse.csr_matrix(X), y)
    unseen = X.copy()
    unseen[:, 3] = 7.0
    np.testing.assert_allclose(
        classifier.decision_function(scipy.sparse.csr_matrix(unseen)), ready.decision_function(scaled), rtol=1e-9
    )


def test_partial_fit_learns_new_data_without_forgetting() -> None:
    X, y, X_test, y_test = split(*load_breast_cancer(return_X_y=True))
    classifier = EBPClassifier()
    for start in range(0, len(X), 50):
        classifier.partial_fit(X[start : start + 50], y[start : start + 50], classes=[0, 1])
    assert classifier.score(X_test, y_test) > 0.9
    assert classifier.score(X[:50], y[:50]) > 0.9  # the first part, which was seen once, long ago
    assert classifier.n_epochs_ == -(-len(X) // 50)


def test_partial_fit_takes_single_rows() -> None:
    X, y, X_test, y_test = split(*load_breast_cancer(return_X_y=True))
    classifier = EBPClassifier().partial_fit(X[:100], y[:100], classes=[0, 1])
    for i in range(100, 120):
        classifier.partial_fit(X[i : i + 1], y[i : i + 1])
    assert classifier.score(X_test, y_test) > 0.85


def test_partial_fit_knows_its_classes(rng: np.random.Generator) -> None:
    X = rng.normal(size=(6, 3))
    with pytest.raises(ValueError, match="the first call of partial_fit needs classes"):
        EBPClassifier().partial_fit(X, [0, 1, 0, 1, 0, 1])
    classifier = EBPClassifier().partial_fit(X, [0, 1, 0, 1, 0, 1], classes=[0, 1])
    with pytest.raises(ValueError, match=r"among the classes \[0, 1\], got \[2\]"):
        classifier.partial_fit(X, [0, 1, 2, 1, 0, 1])
    with pytest.raises(ValueError, match=r"classes must stay .* \[0, 1\], got \[0, 1, 2\]"):
        classifier.partial_fit(X, [0, 1, 0, 1, 0, 1], classes=[0, 1, 2])


def test_fits_and_pickles_repeat() -> None:
    X, y, X_test, _ = split(*load_breast_cancer(return_X_y=True))
    one, other = (EBPClassifier(output="vote").fit(X, y) for _ in range(2))
    another = EBPClassifier(output="vote", random_state=1).fit(X, y)
    expected = one.decision_function(X_test)
    np.testing.assert_array_equal(expected, other.decision_function(X_test))
    np.testing.assert_array_equal(expected, pickle.loads(pickle.dumps(one)).decision_function(X_test))
    assert np.any(expected != another.decision_function(X_test))
    restored = pickle.loads(pickle.dumps(one))
    for classifier in (one, restored):
        classifier.partial_fit(X[:40], y[:40])
    np.testing.assert_array_equal(one.decision_function(X_test), restored.decision_function(X_test))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number of at least 1, got 0"),
        ({"batch_size": 1.5}, "batch_size must be a whole number"),
        ({"output": "best"}, "output must be 'probabilistic', 'deterministic' or 'vote', got 'best'"),
        ({"weights": "octal"}, "weights must be one of 'binary'"),
    ],
)
def test_impossible_parameters(options: dict, message: str, rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match=message):
        EBPClassifier(**options).fit(rng.normal(size=(4, 2)), [0, 1, 0, 1])


def test_no_warning_for_plain_data() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        EBPClassifier((5,)).fit(*load_breast_cancer(return_X_y=True))
