import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from experiment.data.rows import Part, Rows, check_finite, divide, undivided
from experiment.seeds import Seeds, numpy_rng


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
        (np.ones((3, 1)), np.full((3, 1), 7.0), r"must vary, but column 0 of Y is 7\.0 in every row"),
        (np.ones((3, 1)), np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]]), "column 1 of Y is 5"),
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


def test_random_split_is_90_to_10_a_partition_in_order_and_independent_of_the_seed() -> None:
    dataset = regression(num_data=506)
    parts = divide(dataset, split=3, valid_fraction=0, seed=0)
    again = divide(dataset, split=3, valid_fraction=0, seed=1)
    other = divide(dataset, split=4, valid_fraction=0, seed=0)
    assert list(parts.parts) == ["train", "test"]
    assert len(parts.train.X) == 455
    assert len(parts.test.X) == 51
    np.testing.assert_array_equal(
        np.sort(np.concatenate([parts.train.X, parts.test.X])[:, 0]), dataset.parts["all"].X[:, 0]
    )
    assert np.all(np.diff(parts.train.X[:, 0]) > 0)
    np.testing.assert_array_equal(parts.test.X, again.test.X)
    assert not np.array_equal(parts.test.X, other.test.X)


def test_random_rows_come_from_named_streams() -> None:
    X = np.arange(40.0)[:, None]
    parts = divide(toy(X, X), split=2, valid_fraction=0.25, seed=5)
    train, test = np.split(numpy_rng(0, "split/2").permutation(40), [36])
    chosen = numpy_rng(5, "valid/2").choice(36, 9, replace=False)
    np.testing.assert_array_equal(parts.test.X[:, 0], np.sort(test))
    np.testing.assert_array_equal(parts.valid.X[:, 0], np.sort(train)[np.sort(chosen)])


def test_standard_splits_are_used_and_validation_is_cut_from_training() -> None:
    rows = (np.arange(15), np.arange(15, 20)), (np.arange(5, 20), np.arange(5))
    dataset = regression(splits=rows, class_names=(), source="a file")
    parts = divide(dataset, split=1, valid_fraction=0.2, seed=0)
    np.testing.assert_array_equal(parts.test.X, dataset.parts["all"].X[:5])
    assert len(parts.valid.X) == 3
    assert len(parts.train.X) == 12
    together = np.sort(np.concatenate([parts.train.Y, parts.valid.Y])[:, 0])
    np.testing.assert_array_equal(together, dataset.parts["all"].Y[5:, 0])
    other_seed = divide(dataset, split=1, valid_fraction=0.2, seed=1)
    assert not np.array_equal(parts.valid.X, other_seed.valid.X)
    assert (parts.name, parts.task, parts.source, parts.sha256) == ("toy", "regression", "a file", dataset.sha256)


def test_a_block_of_rows_is_not_copied() -> None:
    dataset = regression(splits=((np.arange(15), np.arange(15, 20)),))
    parts = divide(dataset, split=0, valid_fraction=0, seed=0)
    assert np.shares_memory(parts.train.X, dataset.parts["all"].X)
    assert np.shares_memory(parts.test.Y, dataset.parts["all"].Y)


def test_rows_out_of_order_are_not_taken_for_a_block() -> None:
    dataset = regression(splits=((np.array([0, 2, 1, 3]), np.array([4, 5])),))
    parts = divide(dataset, split=0, valid_fraction=0, seed=0)
    np.testing.assert_array_equal(parts.train.X, dataset.parts["all"].X[[0, 2, 1, 3]])


def test_divide_refuses_bad_arguments() -> None:
    dataset = regression(splits=((np.arange(15), np.arange(15, 20)),))
    for split in (-1, 1):
        with pytest.raises(ValueError, match=f"--split must be from 0 to 0 for data set 'toy', got {split}"):
            divide(dataset, split=split, seed=0)
    with pytest.raises(ValueError, match="--split must not be negative, got -1"):
        divide(regression(), split=-1, seed=0)
    for fraction in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match=r"validation fraction must be in \[0, 1\)"):
            divide(dataset, split=0, valid_fraction=fraction, seed=0)
    with pytest.raises(ValueError, match="1 training rows, too few to set aside 1 for validation"):
        divide(regression(num_data=2), split=0, seed=0)


def test_check_finite_names_the_column() -> None:
    check_finite(np.ones((2, 2)), ["a", "b"], "X")
    with pytest.raises(ValueError, match=r"X must be finite, but column 'b' has 1 NaN .* row 1 \(from 0\)"):
        check_finite(np.array([[1, 2], [3, -np.inf]]), ["a", "b"], "X")


def test_sizes_and_parts_by_name() -> None:
    data = divide(regression(num_data=100))
    assert data.sizes == {"train": 81, "valid": 9, "test": 10}
    assert data.train is data.parts["train"]
    assert data.valid is data.parts["valid"]
    assert data.test is data.parts["test"]
    with pytest.raises(ValueError, match="'toy' must have a part 'valid', got train, test"):
        _ = divide(regression(), valid_fraction=0).valid


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])
def test_some_rows_are_drawn_by_the_seed_and_keep_their_order(kind: Any) -> None:
    X, Y = np.arange(1, 101.0)[:, None], np.arange(100)[:, None]
    data = replace(regression(), parts={"train": Part(kind(X), Y)})
    rows = np.sort(numpy_rng(3, "eval/train").choice(100, 7, replace=False))
    some = data.some("train", 7, Seeds(3))
    np.testing.assert_array_equal(some.Y, Y[rows])
    np.testing.assert_array_equal(some.X.toarray() if kind is not np.asarray else some.X, X[rows])
    other = data.some("train", 7, Seeds(3), purpose="max_rows").Y
    np.testing.assert_array_equal(other[:, 0], np.sort(numpy_rng(3, "max_rows/train").choice(100, 7, replace=False)))
    for limit in (None, 100, 1000):
        assert data.some("train", limit, Seeds(3)) is data.train
    with pytest.raises(ValueError, match="number of train rows to draw must be positive, got 0; None takes all"):
        data.some("train", 0, Seeds(3))


def test_some_rows_without_targets() -> None:
    data = replace(regression(), parts={"test": Part(np.eye(5))})
    some = data.some("test", 2, Seeds(0))
    assert some.X.shape == (2, 5)
    assert some.Y is None


@pytest.mark.parametrize("is_shuffled", [False, True])
def test_folds_partition_the_rows(is_shuffled: bool) -> None:
    data = replace(regression(num_data=19), is_shuffled=is_shuffled)
    folds = data.folds(8)
    order = np.arange(19) if is_shuffled else numpy_rng(0, "folds/19").permutation(19)
    assert [len(test) for _, test in folds] == [3, 3, 3, 2, 2, 2, 2, 2]
    np.testing.assert_array_equal(np.concatenate([test for _, test in folds]), order)
    for train, test in folds:
        np.testing.assert_array_equal(train, [row for row in order if row not in test])
    for count in (1, 20):
        with pytest.raises(ValueError, match=f"must be from 2 to 19, the number of rows, got {count}"):
            data.folds(count)


def test_standard_splits_are_the_folds() -> None:
    splits = ((np.arange(15), np.arange(15, 20)), (np.arange(5, 20), np.arange(5)))
    assert regression(splits=splits).folds(8) == splits
