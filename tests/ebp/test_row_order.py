"""`ebp.estimators.row_order`: the order of a dictionary; and a fit is the same, to the bit, for rows in any order."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from ebp import EBPClassifier, EBPGaussianClassifier, EBPRegressor
from ebp.estimators.row_order import row_order


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
