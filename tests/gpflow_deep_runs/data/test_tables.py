import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpflow_deep_runs.data.rows import Rows, divide
from gpflow_deep_runs.data.tables import FileSpec, TableSpec, apply_schema, read_table, schema_of

_HOUSES = "size,colour,garden,price\n50,red,True,1.5\n60,blue,False,2.5\n70,red,False,3.25\n80,green,True,4.0\n"


def read(source: Any, target: str | None = None, **fields: Any) -> Rows:
    """A table with a target, and what else is said about it."""
    return read_table(source, TableSpec(target=() if target is None else (target,), **fields))


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def _frame(num_data: int = 100) -> pd.DataFrame:
    return pd.DataFrame({"a": np.arange(num_data) / 7, "t": np.arange(num_data) / 3})


def test_csv_numbers_booleans_and_text_become_columns(tmp_path: Path) -> None:
    dataset = read(_write(tmp_path / "houses.csv", _HOUSES), target="price")
    assert dataset.name == "houses"
    assert dataset.task == "regression"
    assert dataset.target_names == ("price",)
    assert dataset.feature_names == ("size", "colour=blue", "colour=green", "colour=red", "garden")
    np.testing.assert_array_equal(
        dataset.parts["all"].X, [[50, 0, 0, 1, 1], [60, 1, 0, 0, 0], [70, 0, 0, 1, 0], [80, 0, 1, 0, 1]]
    )
    np.testing.assert_array_equal(dataset.parts["all"].Y, [[1.5], [2.5], [3.25], [4.0]])
    assert "inferred" in dataset.source


def test_csv_gz_and_npz_give_the_same_arrays(tmp_path: Path) -> None:
    frame = _frame()
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_csv(tmp_path / "t.csv.gz", index=False)
    np.savez(tmp_path / "t.npz", **{name: frame[name].to_numpy() for name in frame})
    digests = {read(tmp_path / f"t.{kind}", target="t").sha256 for kind in ("csv", "csv.gz", "npz")}
    assert len(digests) == 1  # float columns are read back exactly


def test_npz_with_matrices_names_and_splits(tmp_path: Path, rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(6, 2)), rng.normal(size=6)
    path = tmp_path / "m.npz"
    np.savez(path, X=X, y=y, feature_names=["u", "v"], train_idx=[[0, 1, 2, 3]], test_idx=[[4, 5]])
    dataset = read(path)
    np.testing.assert_array_equal(dataset.parts["all"].X, X)
    np.testing.assert_array_equal(dataset.parts["all"].Y, y[:, None])
    assert dataset.feature_names == ("u", "v")
    assert dataset.target_names == ("y",)
    np.testing.assert_array_equal(divide(dataset, valid_fraction=0).test.X, X[4:])


def test_splits_keep_their_rows_where_others_are_left_out(tmp_path: Path, rng: np.random.Generator) -> None:
    """A total above all rows, and a row without a target, which a split may name."""
    X, y = rng.normal(5, 1, (20, 3)).round(2), rng.normal(5, 1, 20).round(2)
    y[2] = np.nan
    arrays = {"X": np.vstack([X.sum(axis=0), X]), "y": np.append(np.nansum(y), y)}
    np.savez(tmp_path / "m.npz", **arrays, train_idx=[np.arange(1, 16)], test_idx=[np.arange(16, 21)])
    dataset = read(tmp_path / "m.npz", file=FileSpec(total_rows="drop"))
    splits = divide(dataset, valid_fraction=0)
    np.testing.assert_array_equal(splits.train.X, np.delete(X, 2, axis=0)[:14])
    np.testing.assert_array_equal(splits.test.X, X[15:])
    for row in (99, -1):
        np.savez(tmp_path / "m.npz", X=X, y=y, train_idx=[[0, 1, 2]], test_idx=[[3, row]])
        with pytest.raises(ValueError, match=f"the test rows of split 0 of .* must be from 0 to 18, got {row}"):
            read(tmp_path / "m.npz")


def test_npz_with_several_targets(tmp_path: Path, rng: np.random.Generator) -> None:
    path, Y = tmp_path / "m.npz", rng.normal(size=(6, 3))
    np.savez(path, X=np.eye(6), Y=Y)
    dataset = read(path)
    np.testing.assert_array_equal(dataset.parts["all"].Y, Y)
    assert dataset.target_names == ("Y0", "Y1", "Y2")
    assert dataset.task == "regression"
    with pytest.raises(ValueError, match="--task=binary needs one target, got several columns, 'Y0', 'Y1', 'Y2'"):
        read(path, target=None, task="binary")


@pytest.mark.parametrize(
    ("values", "task", "class_names"),
    [
        (["yes", "no"] * 50, "binary", ("no", "yes")),
        ([True, False] * 50, "binary", ("False", "True")),
        ([-1, 1] * 50, "binary", ("-1", "1")),
        ([1.0, 2.0] * 50, "binary", ("1", "2")),
        ([3, 4, 5, 6, 10] * 20, "multiclass", ("3", "4", "5", "6", "10")),
        (["a", "b", "c", "d"] * 25, "multiclass", ("a", "b", "c", "d")),
        ([1, 2, 3, 4, 5, 6] * 17, "regression", ()),  # more than 5% of the rows
        (list(range(21)) * 50, "regression", ()),  # more than 20
        ([0.5, 1.5] * 50, "regression", ()),
    ],
)
def test_task_is_inferred_from_the_target(
    tmp_path: Path, values: list[Any], task: str, class_names: tuple[str, ...]
) -> None:
    pd.DataFrame({"a": np.arange(len(values)), "t": values}).to_csv(tmp_path / "t.csv", index=False)
    dataset = read(tmp_path / "t.csv", target="t")
    assert dataset.task == task
    assert dataset.class_names == class_names
    if class_names:
        texts = [str(int(v)) if isinstance(v, float) else str(v) for v in values]
        assert [class_names[i] for i in dataset.parts["all"].Y[:, 0]] == texts


def test_given_task_wins(tmp_path: Path) -> None:
    pd.DataFrame({"a": np.arange(12), "t": [1, 2, 3] * 4}).to_csv(tmp_path / "t.csv", index=False)
    assert read(tmp_path / "t.csv", target="t").task == "regression"
    dataset = read(tmp_path / "t.csv", target="t", task="multiclass")
    np.testing.assert_array_equal(dataset.parts["all"].Y[:, 0], [0, 1, 2] * 4)
    pd.DataFrame({"a": np.arange(12), "t": [0, 1] * 6}).to_csv(tmp_path / "u.csv", index=False)
    dataset = read(tmp_path / "u.csv", target="t", task="regression")
    assert dataset.parts["all"].Y.dtype == np.float64
    assert dataset.task == "regression"


@pytest.mark.parametrize(
    ("values", "task", "message"),
    [
        (["a", "b", "c"], "regression", "--task=regression does not fit the target 't' .* holds text"),
        ([1, 2, 3], "binary", "--task=binary .* must have 2 different values, got 3"),
        ([1.5, 2, 3], "multiclass", "--task=multiclass .* holds fractions"),
        (
            ["a", "a", "a"],
            None,
            "^the target 't' of .* must vary, but it is 'a' in every row; choose another --target.$",
        ),
        ([True, True, True], None, "^the target 't' of .* must vary, but it is 'True' in every row; choose another"),
        ([4, 4, 4], None, "^the target 't' of .* must vary, but it is '4' in every row; choose another --target.$"),
        ([4.5, 4.5, 4.5], None, "the target of .* must vary, but 't' is 4.5 in every row; choose another target"),
        (["a", "a", "a"], "binary", "'a' in every row; --task=binary needs different values; choose another --target"),
        (["2020-01-02", "2020-01-03", "2020-01-05"], None, "the target 't' of .* is a date; give a number"),
        ([None, None, None], None, "the target 't' of .* has no values; choose another --target"),
    ],
)
def test_impossible_task_is_refused(tmp_path: Path, values: list[Any], task: Any, message: str) -> None:
    pd.DataFrame({"a": [1, 2, 3], "t": values}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "t.csv", target="t", task=task)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.ones(3), "t": np.ones(4)}, r"must hold X and y, or one array \[N\] .* got a \(3,\), t \(4,\)"),
        ({"a": np.ones((3, 2)), "t": np.ones(3)}, "one array"),
        ({"a": np.float64(1)}, "one array"),
        ({"X": np.ones((3, 2)), "y": np.ones(3), "w": np.ones(3)}, "may hold X, y or Y.* got 'X', 'w', 'y'"),
        ({"X": np.ones((3, 2)), "y": np.ones(3), "Y": np.ones(3)}, "may hold X, y or Y"),
        ({"X": np.ones(3), "y": np.ones(3)}, r"X in .* must be \[N, D\]"),
        ({"X": np.ones((3, 2)), "y": np.ones(3), "feature_names": ["a"]}, "1 names"),
        ({"X": np.ones((3, 2)), "y": np.ones(3), "feature_names": "ab"}, "1 names"),
        ({"X": np.ones((3, 2)), "y": np.ones(3), "feature_names": [b"a", b"\xff"]}, "must be texts in UTF-8"),
        ({"X": np.ones((3, 2)), "y": np.ones(4)}, "with N = 3"),
        ({"X": np.ones((3, 2)), "y": np.ones(3), "train_idx": np.ones((1, 2), int)}, "train_idx and test_idx"),
        ({"X": np.ones((3, 2))}, "--target must be a column"),
    ],
)
def test_bad_npz_is_refused_with_its_reason(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "t.npz")


def test_target_of_an_npz_with_matrices_cannot_be_chosen(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", X=np.eye(3), y=np.arange(3.0))
    with pytest.raises(ValueError, match="--target=x0 cannot be chosen"):
        read(tmp_path / "t.npz", target="x0")


def _levels(count: int, rows: int = 2, **rare: int) -> pd.DataFrame:
    """A column of `count` levels with so many rows each, others with as many as they say, and a target."""
    levels = [f"level{i}" for i in range(count)] * rows + [name for name, n in rare.items() for _ in range(n)]
    return pd.DataFrame({"c": levels, "t": np.arange(len(levels)) / 3})


def test_text_column_may_have_50_levels() -> None:
    assert read(_levels(50), target="t").parts["all"].X.shape == (100, 50)
    with pytest.raises(
        ValueError, match=r"too many levels in 'c' \(51 different texts\); leave it out with --ignore=c"
    ):
        read(_levels(51), target="t")


def test_text_of_too_many_values_is_one_error_for_all_columns() -> None:
    frame = pd.DataFrame({"name": [f"n{i}" for i in range(60)], "a": np.arange(60.0), "t": np.arange(60) / 3})
    frame["ticket"] = [f"t{i}" for i in range(55)] + ["t0"] * 5
    counts = r"'name' \(60 different texts\), 'ticket' \(55 different texts\)"
    message = f"in {counts}; leave it out with --ignore=name,ticket, or .* --rare=N, .*=name,ticket"
    with pytest.raises(ValueError, match=message):
        read(frame.drop(columns="a"), target="t")
    data = read(frame, target="t")
    assert data.feature_names == ("a",)
    assert "'name' left out; 'ticket' left out" in data.source
    assert data.schema is not None
    assert [row[:2] for row in data.schema.table()[1:3]] == [["name", "ignored"], ["a", "number"]]


def test_missing_values_of_many_columns_are_counted() -> None:
    frame = pd.DataFrame(np.where(np.eye(30) == 1, np.nan, 1.5)).rename(columns=str).assign(t=np.arange(30) / 3)
    frame = frame.rename(columns={str(d): f"x{d}" for d in range(30)})
    with pytest.raises(
        ValueError, match=r"missing values in 'x0' \(1\), .*'x19' \(1\) and 10 more columns; give --missing"
    ):
        read(frame, target="t", missing="error")
    assert len(read(frame, target="t").feature_names) == 60


def test_why_numbers_are_text_is_said() -> None:
    codes = [str(10000 + i) for i in range(99)] + ["01234"]
    frame = pd.DataFrame({"zip": codes, "t": np.arange(100) / 3})
    message = r"'zip' \(100 different texts; digits with leading zeros, .* in row \d+; --numeric=zip .*\); leave it out"
    with pytest.raises(ValueError, match=message):
        read(frame, target="t")
    assert read(frame, target="t", numeric=("zip",)).parts["all"].X[-1, 0] == 1234


def test_very_many_columns_of_text_are_counted() -> None:
    texts = {f"name{d}": [f"{d}-{i}" for i in range(60)] for d in range(30)}
    with pytest.raises(ValueError, match=r"'name19' \(60 .*\) and 10 more columns; .*--ignore=name0,.*,name19,\.\.\.,"):
        read(pd.DataFrame({**texts, "a": np.arange(60.0), "t": np.arange(60) / 3}), target="t")


def test_categorical_takes_more_levels_up_to_a_limit() -> None:
    assert read(_levels(60), target="t", categorical=("c",)).parts["all"].X.shape == (120, 60)
    with pytest.raises(
        ValueError, match=r"in 'c' \(1001 different texts\); .*--rare=N, .* or 1000 with --categorical=c"
    ):
        read(_levels(1001), target="t", categorical=("c",))


def test_numbers_may_be_levels(tmp_path: Path) -> None:
    frame = pd.DataFrame({"zip": [10115, 80331, 10115, 20095] * 3, "a": np.arange(12.0), "t": np.arange(12) / 3})
    for name in ("t.csv", "t.parquet"):
        getattr(frame, f"to_{name[2:]}")(tmp_path / name, index=False)
        data = read(tmp_path / name, target="t", categorical=("zip",))
        assert data.feature_names == ("zip=10115", "zip=20095", "zip=80331", "a")
        np.testing.assert_array_equal(data.parts["all"].X[:2, :3], [[1, 0, 0], [0, 0, 1]])


def test_rare_levels_are_one_column() -> None:
    data = read(_levels(3, 10, pink=9, grey=1), target="t", rare=10)
    assert data.feature_names == ("c=level0", "c=level1", "c=level2", "c=(rare)")
    X = data.parts["all"].X
    np.testing.assert_array_equal(X.sum(axis=0), [10, 10, 10, 10])
    np.testing.assert_array_equal(X.sum(axis=1), 1)
    np.testing.assert_array_equal(X[30:, 3], 1)


def test_rare_alone_makes_text_of_many_values_usable() -> None:
    many = {f"once{i}": 1 for i in range(60)}
    data = read(_levels(4, 9, **many), target="t", rare=5)
    assert data.feature_names == ("c=level0", "c=level1", "c=level2", "c=level3", "c=(rare)")
    with pytest.raises(
        ValueError, match=r"'c' \(60 different texts\); .*--rare=N, .*, with N above 2"
    ):  # each is rare: no level is left
        read(_levels(0, 0, **many), target="t", rare=2)


def test_parquet(tmp_path: Path) -> None:
    frame = pd.DataFrame({"c": pd.Categorical(["u", "v", "u"]), "a": [0.1, 0.2, 0.3], "t": [0.5, 1.5, 2.5]})
    frame.to_parquet(tmp_path / "c.parquet")
    dataset = read(tmp_path / "c.parquet", target="t")
    np.testing.assert_array_equal(dataset.parts["all"].X, [[1, 0, 0.1], [0, 1, 0.2], [1, 0, 0.3]])
    assert dataset.feature_names == ("c=u", "c=v", "a")
    frame["when"] = pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03"])
    frame.to_parquet(tmp_path / "d.parquet")
    data = read(tmp_path / "d.parquet", target="t")
    assert data.feature_names == ("c=u", "c=v", "a", "when.day", "when.weekday")
    np.testing.assert_array_equal(data.parts["all"].X[:, 3:], [[18262, 2], [18263, 3], [18264, 4]])
    with pytest.raises(ValueError, match="is no readable parquet file"):
        read(_write(tmp_path / "bad.parquet", "not such a file"), target="t")


def test_thousands_of_columns_take_time_in_proportion(tmp_path: Path, rng: np.random.Generator) -> None:
    values = rng.normal(size=(4, 6000)).round(2)
    frame = pd.DataFrame(values, columns=[f"x{d}" for d in range(6000)])
    frame.to_csv(tmp_path / "t.csv", index=False)
    start = time.process_time()
    dataset = read(tmp_path / "t.csv", target="x0")
    X, _ = apply_schema(schema_of(dataset), tmp_path / "t.csv")
    assert time.process_time() - start < 25  # 8 s
    np.testing.assert_array_equal(X, values[:, 1:])


def test_schema_encodes_labels_as_in_training(tmp_path: Path) -> None:
    dataset = read(_write(tmp_path / "t.csv", "a,t\n1,-1\n2,1\n3,-1\n"), target="t")
    _, Y = apply_schema(schema_of(dataset), _write(tmp_path / "u.csv", "t,a\n1,1\n1,2\n"))
    assert Y is not None
    np.testing.assert_array_equal(Y, [[1], [1]])
    _, Y = apply_schema(schema_of(dataset), _write(tmp_path / "v.csv", "t,a\n,1\n,2\n"))
    assert Y is None  # an empty target column is no target


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size,colour,garden\ninf,red,True\n", "column 'size' has 1 NaN or infinite"),
        ("size,colour,garden\n", "at least 1 row"),
    ],
)
def test_new_table_that_does_not_fit_is_refused(tmp_path: Path, text: str, message: str) -> None:
    schema = schema_of(read(_write(tmp_path / "houses.csv", _HOUSES), target="price"))
    with pytest.raises(ValueError, match=message):
        apply_schema(schema, _write(tmp_path / "new.csv", text))


def test_schema_of_data_without_a_table_names_the_features(tmp_path: Path) -> None:
    dataset = read(_write(tmp_path / "t.csv", "a,b,t\n1,2,0.5\n3,4,1.5\n"), target="t")
    assert schema_of(dataset) == schema_of(replace(dataset, schema=None))
    splits = divide(dataset, valid_fraction=0)
    fills = tuple(map(float, splits.train.X.mean(axis=0)))
    assert schema_of(splits) == schema_of(replace(splits, schema=None)) == replace(schema_of(dataset), fills=fills)
