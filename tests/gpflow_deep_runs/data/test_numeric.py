import hashlib
from typing import Any

import numpy as np
import pytest

from gpflow_deep_runs.data.rows import Rows
from gpflow_deep_runs.data.table.numeric import check_finite, undivided


def toy(X: np.ndarray, Y: np.ndarray, task: Any = "regression", **fields: Any) -> Rows:
    return undivided("toy", X, Y, task, **{"source": "here", **fields})


def regression(num_data: int = 20, num_features: int = 3, **fields: Any) -> Rows:
    X = np.arange(num_data * num_features, dtype=np.float64).reshape(num_data, num_features)
    return toy(X, X[:, :1] ** 2, **fields)


def test_undivided_rows_gives_default_feature_names_and_float64() -> None:
    dataset = toy(np.array([[1, 2], [3, 4]], dtype=np.int8), np.array([[1], [2]]))
    assert dataset.feature_names == ("x0", "x1")
    assert [array.dtype for array in dataset.parts["all"]] == [np.float64, np.float64]


def test_undivided_rows_keeps_float64_arrays_without_a_copy() -> None:
    X, Y = np.eye(3), np.arange(3.0)[:, None]
    dataset = toy(X, Y)
    assert dataset.parts["all"].X is X
    assert dataset.parts["all"].Y is Y


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (np.ones(3), np.ones((3, 1)), r"X of data set 'toy' must be a matrix .* got shape \(3,\)"),
        (np.ones((3, 2)), np.ones(3), r"Y of data set 'toy' must be a matrix"),
        (np.ones((3, 0)), np.ones((3, 1)), r"must be a matrix .* got shape \(3, 0\)"),
        (np.ones((3, 2)), np.ones((2, 1)), "as many rows, got 3 and 2"),
        (np.ones((1, 2)), np.ones((1, 1)), "at least 2 rows, got 1"),
        (np.ones((0, 2)), np.ones((0, 1)), "at least 2 rows, got 0"),
        (np.array([["a"], ["b"]]), np.ones((2, 1)), "must hold real numbers, got type <U1"),
        (np.array([[1.0], [np.nan], [np.inf]]), np.ones((3, 1)), "column 'x0' has 2 NaN .* first in row 1"),
        (np.ones((3, 1)), np.array([[1.0], [2.0], [np.nan]]), "Y of data set 'toy' .* 'y' has 1 NaN .* row 2"),
        (np.ones((3, 1)), np.full((3, 1), 7.0), r"must vary, but 'y' is 7\.0 in every row"),
        (np.ones((3, 1)), np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]]), "'y1' is 5"),
    ],
)
def test_undivided_rows_refuses_bad_arrays(X: np.ndarray, Y: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        toy(X, Y)


@pytest.mark.parametrize(
    ("labels", "task", "class_names", "message"),
    [
        ([-1, 1, 1], "binary", ("a", "b"), "integers 0 to 1, got values from -1 to 1 .* recode"),
        ([1, 2, 1], "binary", ("a", "b"), "integers 0 to 1, got values from 1 to 2"),
        ([0.5, 1, 0], "binary", ("a", "b"), "integers 0 to 1"),
        ([1, 2, 3], "multiclass", ("a", "b", "c"), "integers 0 to 2, got values from 1 to 3"),
        ([1, 1, 1], "multiclass", ("a", "b", "c"), "every label is 1"),
        ([0, 1, 1], "multiclass", (), "at least 2 class names, got 0"),
        ([0, 1, 1], "binary", ("a", "b", "c"), "must have 2 class names, got 3"),
        ([0, 1, 1], "ranking", (), "'regression', 'binary' or 'multiclass', got 'ranking'"),
    ],
)
def test_undivided_rows_refuses_labels_of_another_coding(
    labels: list[float], task: Any, class_names: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        toy(np.eye(3), np.array(labels)[:, None], task, class_names=class_names)


def test_undivided_rows_refuses_one_hot_labels_and_wrong_names() -> None:
    with pytest.raises(ValueError, match=r"shape \[N, 1\], got \(3, 3\).*argmax"):
        toy(np.eye(3), np.eye(3), "multiclass", class_names=("a", "b", "c"))
    with pytest.raises(ValueError, match="one name for each of 3 features and 1 targets, got 1 and 1 names"):
        regression(feature_names=("a",))


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ([0, 1, 2], [2, 3], "split 0 of data set 'toy' must name each row at most once, but its test rows"),
        ([0, 0], [1], "its training rows repeat one"),
        ([0, 1], [20], "test rows of .* must be from 0 to 19, got 20"),
        ([0, 1], [], "must be a list of integers"),
        ([0.0, 1.0], [2], "training rows of .* must be a list of integers"),
    ],
)
def test_undivided_rows_refuses_splits_that_are_none(train: list[float], test: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        regression(splits=((np.array(train), np.array(test)),))


def test_sha256_depends_on_values_and_splits_but_not_on_memory_layout() -> None:
    X = np.random.default_rng(0).normal(size=(70_000, 2))
    Y = X[:, :1] ** 2
    digest = toy(X, Y).sha256
    expected = hashlib.sha256(b"regression (70000, 2) (70000, 1)" + X.tobytes() + Y.tobytes()).hexdigest()
    assert digest == expected
    assert toy(np.asfortranarray(X), Y).sha256 == digest
    changed = X.copy()
    changed[-1, 1] = np.nextafter(changed[-1, 1], np.inf)
    assert toy(changed, Y).sha256 != digest
    splits = ((np.array([0, 1]), np.array([2])),)
    assert toy(X, Y, splits=splits).sha256 != digest


def test_check_finite_names_the_column() -> None:
    check_finite(np.ones((2, 2)), ["a", "b"], "X")
    with pytest.raises(ValueError, match=r"X must be finite, but column 'b' has 1 NaN .* row 1 \(from 0\)"):
        check_finite(np.array([[1, 2], [3, -np.inf]]), ["a", "b"], "X")
