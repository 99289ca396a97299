import hashlib
import json
import time
from typing import Any

import numpy as np
import pytest

from experiment.data.rows import Dataset, Standardizer, batch_indices, check_finite, make_splits
from experiment.seeds import numpy_rng


def _regression(num_data: int = 20, num_features: int = 3, **fields: Any) -> Dataset:
    X = np.arange(num_data * num_features, dtype=np.float64).reshape(num_data, num_features)
    return Dataset("toy", X, X[:, :1] ** 2, "regression", **fields)


def test_dataset_gives_default_feature_names_and_float64() -> None:
    dataset = Dataset("toy", np.array([[1, 2], [3, 4]], dtype=np.int8), np.array([[1], [2]]), "regression")
    assert dataset.feature_names == ("x0", "x1")
    assert dataset.X.dtype == np.float64
    assert dataset.Y.dtype == np.float64


def test_dataset_keeps_float64_arrays_without_a_copy() -> None:
    X, Y = np.eye(3), np.arange(3.0)[:, None]
    dataset = Dataset("toy", X, Y, "regression")
    assert dataset.X is X
    assert dataset.Y is Y


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
def test_dataset_refuses_bad_arrays(X: np.ndarray, Y: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Dataset("toy", X, Y, "regression")


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
def test_dataset_refuses_labels_of_another_coding(
    labels: list[float], task: Any, class_names: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Dataset("toy", np.eye(3), np.array(labels)[:, None], task, class_names=class_names)


def test_dataset_refuses_one_hot_labels_and_wrong_names() -> None:
    with pytest.raises(ValueError, match=r"shape \[N, 1\], got \(3, 3\).*argmax"):
        Dataset("toy", np.eye(3), np.eye(3), "multiclass", class_names=("a", "b", "c"))
    with pytest.raises(ValueError, match="one name for each of 3 features, got 1 names"):
        _regression(feature_names=("a",))


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
def test_dataset_refuses_splits_that_are_none(train: list[float], test: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _regression(splits=((np.array(train), np.array(test)),))


def test_sha256_depends_on_values_and_splits_but_not_on_memory_layout() -> None:
    X = np.random.default_rng(0).normal(size=(70_000, 2))
    Y = X[:, :1] ** 2
    digest = Dataset("a", X, Y, "regression").sha256
    expected = hashlib.sha256(b"regression (70000, 2) (70000, 1)" + X.tobytes() + Y.tobytes()).hexdigest()
    assert digest == expected
    assert Dataset("b", np.asfortranarray(X), Y, "regression").sha256 == digest
    changed = X.copy()
    changed[-1, 1] = np.nextafter(changed[-1, 1], np.inf)
    assert Dataset("a", changed, Y, "regression").sha256 != digest
    splits = ((np.array([0, 1]), np.array([2])),)
    assert Dataset("a", X, Y, "regression", splits=splits).sha256 != digest


def test_random_split_is_90_to_10_a_partition_in_order_and_independent_of_the_seed() -> None:
    dataset = _regression(num_data=506)
    parts = make_splits(dataset, split=3, valid_fraction=0, seed=0)
    again = make_splits(dataset, split=3, valid_fraction=0, seed=1)
    other = make_splits(dataset, split=4, valid_fraction=0, seed=0)
    assert parts.valid is None
    assert len(parts.train.X) == 455
    assert len(parts.test.X) == 51
    np.testing.assert_array_equal(np.sort(np.concatenate([parts.train.X, parts.test.X])[:, 0]), dataset.X[:, 0])
    assert np.all(np.diff(parts.train.X[:, 0]) > 0)
    np.testing.assert_array_equal(parts.test.X, again.test.X)
    assert not np.array_equal(parts.test.X, other.test.X)


def test_random_rows_come_from_named_streams() -> None:
    X = np.arange(40.0)[:, None]
    parts = make_splits(Dataset("t", X, X, "regression"), split=2, valid_fraction=0.25, seed=5)
    train, test = np.split(numpy_rng(0, "split/2").permutation(40), [36])
    chosen = numpy_rng(5, "valid/2").choice(36, 9, replace=False)
    assert parts.valid is not None
    np.testing.assert_array_equal(parts.test.X[:, 0], np.sort(test))
    np.testing.assert_array_equal(parts.valid.X[:, 0], np.sort(train)[np.sort(chosen)])


def test_standard_splits_are_used_and_validation_is_cut_from_training() -> None:
    rows = (np.arange(15), np.arange(15, 20)), (np.arange(5, 20), np.arange(5))
    dataset = _regression(splits=rows, class_names=(), source="a file")
    parts = make_splits(dataset, split=1, valid_fraction=0.2, seed=0)
    np.testing.assert_array_equal(parts.test.X, dataset.X[:5])
    assert parts.valid is not None
    assert len(parts.valid.X) == 3
    assert len(parts.train.X) == 12
    together = np.sort(np.concatenate([parts.train.Y, parts.valid.Y])[:, 0])
    np.testing.assert_array_equal(together, dataset.Y[5:, 0])
    other_seed = make_splits(dataset, split=1, valid_fraction=0.2, seed=1)
    assert other_seed.valid is not None
    assert not np.array_equal(parts.valid.X, other_seed.valid.X)
    assert (parts.name, parts.task, parts.source, parts.sha256) == ("toy", "regression", "a file", dataset.sha256)


def test_a_block_of_rows_is_not_copied() -> None:
    dataset = _regression(splits=((np.arange(15), np.arange(15, 20)),))
    parts = make_splits(dataset, split=0, valid_fraction=0, seed=0)
    assert np.shares_memory(parts.train.X, dataset.X)
    assert np.shares_memory(parts.test.Y, dataset.Y)


def test_rows_out_of_order_are_not_taken_for_a_block() -> None:
    dataset = _regression(splits=((np.array([0, 2, 1, 3]), np.array([4, 5])),))
    parts = make_splits(dataset, split=0, valid_fraction=0, seed=0)
    np.testing.assert_array_equal(parts.train.X, dataset.X[[0, 2, 1, 3]])


def test_make_splits_refuses_bad_arguments() -> None:
    dataset = _regression(splits=((np.arange(15), np.arange(15, 20)),))
    for split in (-1, 1):
        with pytest.raises(ValueError, match=f"--split must be from 0 to 0 for data set 'toy', got {split}"):
            make_splits(dataset, split=split, seed=0)
    with pytest.raises(ValueError, match="--split must not be negative, got -1"):
        make_splits(_regression(), split=-1, seed=0)
    for fraction in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match=r"validation fraction must be in \[0, 1\)"):
            make_splits(dataset, split=0, valid_fraction=fraction, seed=0)
    with pytest.raises(ValueError, match="1 training rows, too few to set aside 1 for validation"):
        make_splits(_regression(num_data=2), split=0, seed=0)


def test_standardizer_uses_the_given_part_and_inverts(rng: np.random.Generator) -> None:
    array = rng.normal(3.0, 5.0, size=(100, 4))
    standardizer = Standardizer.fit(array)
    standard = standardizer.transform(array)
    np.testing.assert_allclose(standard.mean(axis=0), 0, atol=1e-14)  # rounding of sums of 100 terms of size 1
    np.testing.assert_allclose(standard.std(axis=0), 1, rtol=1e-14)
    other = rng.normal(size=(7, 4))
    np.testing.assert_allclose(standardizer.inverse_transform(standardizer.transform(other)), other, rtol=0, atol=1e-13)
    stacked = standardizer.inverse_transform(np.zeros((2, 5, 4)))  # samples have leading axes
    np.testing.assert_array_equal(stacked, np.broadcast_to(standardizer.mean, (2, 5, 4)))


def test_standardizer_maps_constant_columns_to_zero_and_lists_them() -> None:
    array = np.stack([np.full(1000, 0.1), np.arange(1000.0), np.full(1000, 0.0), np.full(1000, 3.3e9)], axis=1)
    standardizer = Standardizer.fit(array)
    assert standardizer.constant_columns == (0, 2, 3)
    np.testing.assert_array_equal(standardizer.scale[[0, 2, 3]], 1)
    np.testing.assert_array_equal(standardizer.transform(array)[:, [0, 2, 3]], 0)


def test_standardizer_keeps_a_column_that_varies_little() -> None:
    array = 1.0 + 1e-9 * np.arange(10.0)[:, None]
    standardizer = Standardizer.fit(array)
    assert standardizer.constant_columns == ()
    np.testing.assert_allclose(standardizer.transform(array).std(), 1, rtol=1e-6)  # 1e-16 / 1e-9 rounding of the input


def test_standardizer_survives_json_exactly(rng: np.random.Generator) -> None:
    fitted = Standardizer.fit(np.concatenate([rng.normal(size=(50, 3)), np.ones((50, 1))], axis=1))
    read = Standardizer.from_json(json.loads(json.dumps(fitted.to_json())))
    np.testing.assert_array_equal(read.mean, fitted.mean)
    np.testing.assert_array_equal(read.scale, fitted.scale)
    assert read.constant_columns == fitted.constant_columns == (3,)


def test_standardizer_identity_changes_nothing(rng: np.random.Generator) -> None:
    array = rng.normal(size=(3, 2))
    np.testing.assert_array_equal(Standardizer.identity(2).transform(array), array)


def test_standardizer_refuses_bad_input() -> None:
    with pytest.raises(ValueError, match="column '1' has 1 NaN"):
        Standardizer.fit(np.array([[1.0, np.nan]]))
    with pytest.raises(ValueError, match="must have rows, got none"):
        Standardizer.fit(np.empty((0, 2)))
    with pytest.raises(ValueError, match=r"column 0 has values up to 1e\+300, too large"):
        Standardizer.fit(np.array([[1e300], [-1e300]]))
    with pytest.raises(ValueError, match=r"must have 2 columns as the fitted one, got shape \(3, 1\)"):
        Standardizer.identity(2).transform(np.ones((3, 1)))
    good = Standardizer.identity(2).to_json()
    for bad in ({}, {**good, "scale": [1.0]}, {**good, "scale": [1.0, 0.0]}, {**good, "mean": "x"}):
        with pytest.raises(ValueError, match="the stored standardisation"):
            Standardizer.from_json(bad)


@pytest.mark.parametrize(("num_data", "batch_size"), [(10, 3), (10, 5), (7, 6), (11, 1)])
def test_batches_use_each_row_once_in_num_data_draws(num_data: int, batch_size: int) -> None:
    steps = num_data  # batch_size epochs
    batches = [batch_indices(3, step, num_data, batch_size) for step in range(steps)]
    assert all(len(batch) == batch_size for batch in batches)
    epochs = np.concatenate(batches).reshape(-1, num_data)
    np.testing.assert_array_equal(np.sort(epochs), np.tile(np.arange(num_data), (len(epochs), 1)))
    if len(epochs) > 1:
        assert not np.array_equal(epochs[0], epochs[1])


def test_batches_are_a_pure_function_of_seed_and_step() -> None:
    forward = [batch_indices(0, step, 100, 30).copy() for step in range(12)]
    backward = [batch_indices(0, step, 100, 30).copy() for step in reversed(range(12))]
    np.testing.assert_array_equal(forward, backward[::-1])
    assert not np.array_equal(batch_indices(1, 0, 100, 30), forward[0])


def test_batch_of_all_rows_is_in_order() -> None:
    for batch_size in (5, 6, 1000):
        np.testing.assert_array_equal(batch_indices(0, 17, 5, batch_size), np.arange(5))


def test_batch_indices_protects_its_cached_permutation() -> None:
    with pytest.raises(ValueError, match="read-only"):
        batch_indices(0, 0, 100, 30)[0] = 1


def test_batches_of_a_large_data_set_are_cheap() -> None:
    batch_indices(0, 0, 1_000_000, 1000)
    start = time.perf_counter()
    for step in range(900):
        batch_indices(0, step, 1_000_000, 1000)
    assert time.perf_counter() - start < 0.9  # a permutation takes 20 ms; 900 of them 18 s


@pytest.mark.parametrize(("step", "num_data", "batch_size"), [(-1, 5, 2), (0, 0, 2), (0, 5, 0)])
def test_batch_indices_refuses_bad_arguments(step: int, num_data: int, batch_size: int) -> None:
    with pytest.raises(ValueError, match=f"got {step}, {num_data} and {batch_size}"):
        batch_indices(0, step, num_data, batch_size)


def test_check_finite_names_the_column() -> None:
    check_finite(np.ones((2, 2)), ["a", "b"], "X")
    with pytest.raises(ValueError, match=r"X must be finite, but column 'b' has 1 NaN .* row 1 \(from 0\)"):
        check_finite(np.array([[1, 2], [3, -np.inf]]), ["a", "b"], "X")
