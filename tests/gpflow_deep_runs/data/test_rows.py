from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gpflow_deep_base.seeds import Seeds, numpy_rng
from gpflow_deep_runs.data.rows import Part, Rows, divide
from gpflow_deep_runs.data.table.numeric import undivided


def toy(X: np.ndarray, Y: np.ndarray, task: Any = "regression", **fields: Any) -> Rows:
    return undivided("toy", X, Y, task, **{"source": "here", **fields})


def regression(num_data: int = 20, num_features: int = 3, **fields: Any) -> Rows:
    X = np.arange(num_data * num_features, dtype=np.float64).reshape(num_data, num_features)
    return toy(X, X[:, :1] ** 2, **fields)


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
