"""`ebp.estimators.inputs.row_order`: the order of a dictionary; and a fit is the same, to the bit, for rows in any
order."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from ebp import EBPClassifier, EBPGaussianClassifier, EBPRegressor
from ebp.estimators.inputs.row_order import copies, row_order


@pytest.fixture
def table(rng: np.random.Generator) -> Any:
    """Few different numbers, so that rows differ late, and some not at all: X [300, 6] and a column of numbers."""
    return rng.choice([-1.5, -1.0, 0.0, 0.0, 2.0], (300, 6)), rng.integers(0, 2, 300)


def test_the_order_is_that_of_lists_of_numbers(table: Any) -> None:
    X, column = table
    for columns in ((), (column,), (None, column, X[:, 4:])):
        keys = np.column_stack([*(one for one in columns if one is not None), X])
        np.testing.assert_array_equal(keys[row_order(X, *columns)], np.array(sorted(keys.tolist())))
    for size in (0, 1):
        np.testing.assert_array_equal(row_order(X[:size]), np.arange(size))
    np.testing.assert_array_equal(row_order(np.ones((4, 3))), np.arange(4))  # equal rows stay as they were


def test_sparse_rows_have_the_order_of_dense_ones(table: Any) -> None:
    """Though zeros are stored, columns of a row are not sorted, and numbers come in parts."""
    X, column = table
    stored = scipy.sparse.csr_matrix(X)
    stored.data[::7] = 0.0
    dense = stored.toarray()
    backwards = scipy.sparse.csr_matrix(
        (
            np.concatenate([row.data[::-1] for row in stored]),
            np.concatenate([row.indices[::-1] for row in stored]),
            stored.indptr,
        ),
        stored.shape,
    )
    for sparse in (stored, backwards):
        np.testing.assert_array_equal(row_order(sparse, column), row_order(dense, column))
    halves = scipy.sparse.csr_matrix(
        (np.repeat(0.5 * stored.data, 2), np.repeat(stored.indices, 2), 2 * stored.indptr), stored.shape
    )
    np.testing.assert_array_equal(row_order(halves), row_order(dense))
    empty = scipy.sparse.csr_matrix((5, 3))
    np.testing.assert_array_equal(row_order(empty), np.arange(5))


def test_the_order_has_no_units(rng: np.random.Generator) -> None:
    X = np.round(rng.normal(size=(200, 3)), 1)
    np.testing.assert_array_equal(row_order(X * np.array([1e-200, 3.0, 1e200])), row_order(X))


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize(
    "model",
    [
        EBPRegressor(5, epochs=3),
        EBPGaussianClassifier(5, epochs=3),
        EBPClassifier(5, batch_size=10, epochs=2, early_stopping=True),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_fit_does_not_depend_on_the_order_of_the_file(model: Any, groups: bool, rng: np.random.Generator) -> None:
    """Sorted by an input, sorted by the target, shuffled: the same predictions, to the last bit."""
    X = np.round(rng.normal(size=(120, 4)), 1)
    X[100:] = X[:20]
    target = X[:, 0] + X[:, 1] ** 2 + 0.1 * rng.normal(size=120)
    y = target if isinstance(model, EBPRegressor) else np.where(target > 1.0, "high", "low")
    weight = rng.choice([0.5, 1.0, 2.0], 120)
    group = rng.integers(0, 20, 120)
    predicted = []
    for order in (np.arange(120), np.argsort(X[:, 0]), np.argsort(y), rng.permutation(120)):
        options = {"sample_weight": weight[order], "groups": group[order]} if groups else {}
        model.fit(X[order], y[order], **options)
        predicted.append(model.predict(X) if isinstance(model, EBPRegressor) else model.predict_proba(X))
    for others in predicted[1:]:
        np.testing.assert_array_equal(others, predicted[0])


def test_copies_are_found_among_dense_and_sparse_rows(rng: np.random.Generator) -> None:
    """Each row two to four times, in any order; a table of few categories, or with few equal rows, has none."""
    X = np.where(rng.random((80, 5)) < 0.5, 0.0, rng.normal(size=(80, 5)))
    labels = rng.integers(0, 2, 80)
    source = rng.permutation(np.repeat(np.arange(80), rng.integers(2, 5, 80)))
    for inputs in (X[source], scipy.sparse.csr_matrix(X[source])):
        found = copies(inputs, labels[source])
        assert found is not None
        number = np.unique(X[source], axis=0, return_inverse=True)[1].reshape(-1)
        assert len(set(zip(found, number, strict=True))) == len(set(found)) == len(set(number))
    assert copies(X, labels) is None
    few = np.append(np.arange(80), [3, 3])
    assert copies(X[few], labels[few]) is None
    categories = rng.integers(0, 3, (400, 4)).astype(float)
    assert copies(categories, rng.integers(0, 2, 400)) is None  # equal rows, which differ in their labels
    assert copies(np.repeat(X[:20], 9, axis=0), np.repeat(labels[:20], 9)) is None  # too few different ones


def test_copies_make_no_fit_too_sure(rng: np.random.Generator) -> None:
    """Labels that are mostly noise, each row five times: without copies the log loss of new rows is near log 2."""
    X = rng.normal(size=(1100, 6))
    y = X[:, 0] + 3.0 * rng.normal(size=1100) > 0

    def log_loss(times: int) -> float:
        model = EBPGaussianClassifier().fit(np.repeat(X[:120], times, axis=0), np.repeat(y[:120], times))
        return float(-np.mean(model.predict_log_proba(X[120:])[np.arange(980), y[120:].astype(int)]))

    assert log_loss(5) < log_loss(1) + 0.07
