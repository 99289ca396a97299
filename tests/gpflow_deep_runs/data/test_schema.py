"""`gpflow_deep_runs.data.table.schema`: what the columns of a table become, what is put in for missing values, and its
JSON."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sklearn

from gpflow_deep_runs.data.files.sources import read_source
from gpflow_deep_runs.data.rows import divide
from gpflow_deep_runs.data.table.columns import Column
from gpflow_deep_runs.data.table.features import Feature
from gpflow_deep_runs.data.table.schema import Schema
from gpflow_deep_runs.data.tables import NewRows, TableSpec, apply_schema, read_table, schema_of

NAMES = (
    *("size", "size=missing", "garden", "garden=missing"),
    *("colour=blue", "colour=red", "colour=(rare)", "colour=missing"),
    *("sold.day", "sold.day_of_year", "sold.weekday", "sold.hour", "sold=missing", "open", "rooms"),
)


def houses(rng: np.random.Generator, num_rows: int = 200) -> pd.DataFrame:
    """A column of each kind; about a tenth of most is missing."""
    frame = pd.DataFrame(
        {
            "size": rng.integers(20, 90, num_rows) / 4,
            "garden": rng.choice(["yes", "no"], num_rows, p=[0.7, 0.3]),
            "colour": rng.choice(["blue", "green", "pink", "red"], num_rows, p=[0.3, 0.02, 0.02, 0.66]),
            "sold": pd.Timestamp("2019-03-01") + pd.to_timedelta(rng.integers(0, 20_000, num_rows), unit="h"),
            "open": pd.Series(rng.integers(0, 24 * 60, num_rows)).map(lambda m: f"{m // 60:02}:{m % 60:02}"),
            "rooms": rng.integers(1, 6, num_rows),
        }
    ).astype({"garden": object, "colour": object})
    for name in ("size", "garden", "colour", "sold"):
        frame.loc[rng.random(num_rows) < 0.1, name] = None
    return frame.assign(price=np.arange(num_rows) / 7)


def spec(**fields: Any) -> TableSpec:
    return TableSpec(**{"target": ("price",), "missing": "impute", "rare": 20, **fields})


@pytest.fixture
def frame(rng: np.random.Generator) -> pd.DataFrame:
    return houses(rng)


@pytest.fixture
def path(frame: pd.DataFrame, tmp_path: Path) -> Path:
    frame.to_csv(tmp_path / "houses.csv", index=False)
    return tmp_path / "houses.csv"


def encoded(frame: pd.DataFrame) -> np.ndarray:
    """X of :func:`houses` column by column, NaN where a value is missing."""
    colour, days = frame["colour"], (frame["sold"] - pd.Timestamp(0)) / pd.Timedelta("1D")
    hours = frame["open"].map(lambda text: int(text[:2]) + int(text[3:]) / 60)
    columns = [
        frame["size"],
        frame["size"].isna(),
        frame["garden"].map({"no": 0, "yes": 1}),
        frame["garden"].isna(),
        (colour == "blue").where(colour.notna(), np.nan),
        (colour == "red").where(colour.notna(), np.nan),
        colour.isin(["green", "pink"]).where(colour.notna(), np.nan),
        colour.isna(),
        np.floor(days),
        frame["sold"].dt.dayofyear,
        frame["sold"].dt.dayofweek,
        frame["sold"].dt.hour,
        frame["sold"].isna(),
        hours,
        frame["rooms"],
    ]
    return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)


def test_each_kind_of_column(path: Path, frame: pd.DataFrame) -> None:
    data = read_table(path, spec())
    assert data.feature_names == NAMES
    np.testing.assert_allclose(data.parts["all"].X, encoded(frame), rtol=1e-12)
    assert data.parts["all"].X.flags.c_contiguous


@pytest.mark.parametrize("suffix", ["csv", "parquet", "frame", "polars"])
def test_every_source_gives_the_same_rows(suffix: str, path: Path, frame: pd.DataFrame) -> None:
    source: Any = path
    if suffix == "parquet":
        source = path.with_suffix(".parquet")
        frame.to_parquet(source)
    elif suffix == "frame":
        source = frame
    elif suffix == "polars":
        source = pytest.importorskip("polars").from_pandas(frame)
    data = read_table(source, spec())
    assert data.feature_names == NAMES
    other = read_table(path, spec())
    np.testing.assert_array_equal(data.parts["all"].X, other.parts["all"].X)
    assert data.sha256 == other.sha256


def test_what_is_put_in_is_learned_from_the_training_rows(path: Path, frame: pd.DataFrame) -> None:
    """The mean of numbers, dates and times; the most frequent of booleans and levels."""
    whole, data = read_table(path, spec()), divide(read_table(path, spec()), split=3, seed=1)
    X = encoded(frame)
    index = {name: np.flatnonzero(np.isin(whole.parts["all"].Y, data.parts[name].Y)) for name in data.parts}
    train = X[index["train"]]
    expected = np.nanmean(train, axis=0)
    expected[2] = 1
    expected[4:7] = 0, 1, 0
    expected[[1, 3, 7, 12]] = 0
    assert data.schema is not None
    assert data.schema.fills is not None
    np.testing.assert_allclose(data.schema.fills, expected, rtol=1e-12)
    for name, part in data.parts.items():
        np.testing.assert_allclose(part.X, np.where(np.isnan(X[index[name]]), expected, X[index[name]]), rtol=1e-12)


def test_test_rows_do_not_move_what_is_put_in(path: Path, frame: pd.DataFrame) -> None:
    data = divide(read_table(path, spec()))
    is_test = np.isin(frame["price"], data.test.Y)
    moved = frame.assign(
        size=np.where(is_test, 1e6, frame["size"]),
        garden=np.where(is_test, "no", frame["garden"]),
        colour=np.where(is_test, "blue", frame["colour"]),
    )
    moved.loc[frame["size"].isna(), "size"] = None
    other = divide(read_table(moved, spec(keep_value=("1e6",))))
    assert not np.array_equal(other.test.X, data.test.X)
    assert other.schema is not None
    assert data.schema is not None
    assert other.schema.fills == data.schema.fills
    np.testing.assert_array_equal(other.train.X, data.train.X)


def test_folds_are_filled_by_their_own_training_rows(path: Path) -> None:
    data = read_table(path, spec())
    X = data.parts["all"].X
    for train, test in data.folds(4):
        filled, filled_test = data.filled(X[train], X[test])
        mean = np.nanmean(X[train][:, 0])
        np.testing.assert_allclose(filled[np.isnan(X[train][:, 0]), 0], mean, rtol=1e-12)
        np.testing.assert_allclose(filled_test[np.isnan(X[test][:, 0]), 0], mean, rtol=1e-12)
        assert not np.isnan(filled).any()
        assert not np.isnan(filled_test).any()
        learned = data.learned(train).schema
        assert learned is not None
        assert learned.fills is not None
        assert learned.fills[0] == pytest.approx(mean)


def test_a_column_without_any_value_in_the_training_rows_is_named() -> None:
    frame = pd.DataFrame({"a": np.arange(20.0), "b": [np.nan] * 19 + [1.0], "t": np.arange(20) / 3})
    data = read_table(frame, TableSpec(target=("t",), missing="impute"))
    with pytest.raises(ValueError, match=r"column 'b' of table has no value in the training rows, .*--ignore=b"):
        data.learned(np.arange(10))


def test_rows_without_a_target_are_left_out_and_said(frame: pd.DataFrame) -> None:
    frame.loc[[3, 5, 199], "price"] = np.nan
    data = read_table(frame, spec())
    assert data.sizes == {"all": 197}
    np.testing.assert_array_equal(data.parts["all"].Y[:, 0], frame["price"].dropna())
    assert "3 rows without a target left out" in data.source
    with pytest.raises(ValueError, match=r"missing values in 'size' \(\d+\), .*'price' \(3\); give --missing=impute"):
        read_table(frame, spec(missing="error"))


def test_a_table_without_missing_values_is_not_changed_by_impute(rng: np.random.Generator) -> None:
    frame = houses(rng).dropna()
    data, other = (read_table(frame, spec(missing=missing)) for missing in ("impute", "error"))
    assert data.sha256 == other.sha256
    assert not [name for name in data.feature_names if "missing" in name]


def test_bad_rows_are_dropped_and_said() -> None:
    frame = pd.DataFrame({"a": ["1", "2", "oops", "inf", "5", "", "7"], "k": list("uvuvuvu"), "t": np.arange(7) / 3})
    with pytest.raises(ValueError, match=r"column 'a' of the data frame .*'oops'"):
        read_table(frame, TableSpec(target=("t",)))
    data = read_table(frame, TableSpec(target=("t",), bad_rows="drop"))
    np.testing.assert_array_equal(data.parts["all"].X[:, 0], [1, 2, 5, 7])
    assert "2 rows that cannot be read left out; 1 rows with missing values left out" in data.source
    imputed = read_table(frame, TableSpec(target=("t",), bad_rows="drop", missing="impute"))
    np.testing.assert_array_equal(imputed.parts["all"].X[:, 0], [1, 2, 5, np.nan, 7])
    with pytest.raises(
        ValueError, match=r"at least 2 rows to use, got 1; 1 rows that cannot be read left out, 1 rows with"
    ):
        read_table(frame.iloc[[0, 3, 5]], TableSpec(target=("t",), bad_rows="drop"))


def test_json(path: Path) -> None:
    schema = schema_of(divide(read_table(path, spec(unknown="level", na_values=("n.n.",)))))
    again = Schema.from_json(json.loads(json.dumps(schema.to_json(), allow_nan=False)))
    assert again == schema
    assert again.to_json() == schema.to_json()


def test_new_rows_are_read_alike(path: Path) -> None:
    """Also in another order of the columns and of the rows, one row at a time."""
    data = divide(read_table(path, spec()))
    schema, table = schema_of(data), read_source(path).columns
    X, Y = apply_schema(schema, path)
    assert Y is not None
    assert not np.isnan(X).any()
    for part in data.parts.values():
        np.testing.assert_array_equal(X[np.isin(Y[:, 0], part.Y)], part.X)
    order = ["open", "sold", "rooms", "size", "colour", "garden"]
    for row in (0, 7, 100):
        one, nothing = apply_schema(schema, table.select(order).slice(row, 1))
        np.testing.assert_array_equal(one, X[row : row + 1])
        assert nothing is None


UNKNOWN = pd.DataFrame(
    {
        "size": [1.0],
        "garden": ["no"],
        "colour": ["mauve"],
        "sold": ["2019-03-04 05:00:00"],
        "open": ["01:30"],
        "rooms": [2],
    }
)


@pytest.mark.parametrize(("rare", "code"), [(20, [0, 0, 1]), (None, [0, 0, 0, 0])])
def test_unknown_levels(path: Path, rare: int | None, code: list[int]) -> None:
    schema = schema_of(divide(read_table(path, spec(rare=rare))))
    message = "column 'colour' of the data frame has the value 'mauve' in row 0 .* no level of .* give --unknown=level"
    with pytest.raises(ValueError, match=message):
        apply_schema(schema, UNKNOWN)
    X, _ = apply_schema(schema, UNKNOWN, NewRows(unknown="level"))
    np.testing.assert_array_equal(X[0, 4 : 4 + len(code)], code)
    np.testing.assert_array_equal(X[0, 4 + len(code)], 0)  # and not missing
    chosen = schema_of(divide(read_table(path, spec(rare=rare, unknown="level"))))
    np.testing.assert_array_equal(apply_schema(chosen, UNKNOWN)[0], X)
    with pytest.raises(ValueError, match="mauve"):
        apply_schema(chosen, UNKNOWN, NewRows(unknown="error"))


def test_missing_values_of_new_rows_where_training_had_none(rng: np.random.Generator) -> None:
    frame = houses(rng).dropna().reset_index(drop=True)
    data = divide(read_table(frame, spec(missing="error", rare=None)))
    schema, new = schema_of(data), frame.drop(columns="price").head(3).copy()
    new.loc[0, "size"] = None
    new.loc[[1, 2], "colour"] = None
    with pytest.raises(ValueError, match=r"in 'size' \(1\), 'colour' \(2\); give --missing=impute .* training rows\.$"):
        apply_schema(schema, new)
    X, _ = apply_schema(schema, new, NewRows(missing="impute"))
    assert X[0, 0] == pytest.approx(data.train.X[:, 0].mean())
    places = [place for place, name in enumerate(data.feature_names) if name.startswith("colour=")]
    assert data.feature_names[places[np.argmax(X[1, places])]] == "colour=red"
    np.testing.assert_array_equal(X[1:, places].sum(axis=1), 1)


def test_targets_that_are_missing_in_new_rows(path: Path, frame: pd.DataFrame) -> None:
    schema = schema_of(divide(read_table(path, spec())))
    new = frame.dropna().head(4).reset_index(drop=True)
    new.loc[1, "price"] = None
    with pytest.raises(ValueError, match="missing values in the target, in 1 rows; leave the column out"):
        apply_schema(schema, new, NewRows(missing="error"))
    X, Y = apply_schema(schema, new)
    assert Y is None
    assert X.shape == (4, len(NAMES))


def test_several_targets(frame: pd.DataFrame) -> None:
    both = frame.assign(rent=[f"${row}.50" for row in range(200)])
    data = read_table(both, spec(target=("rent", "price")))
    assert data.target_names == ("rent", "price")
    np.testing.assert_array_equal(data.parts["all"].Y, np.stack([np.arange(200) + 0.5, frame["price"]], axis=1))
    assert data.task == "regression"
    _, Y = apply_schema(schema_of(divide(data)), both)
    assert Y is not None
    np.testing.assert_array_equal(Y, data.parts["all"].Y)
    with pytest.raises(ValueError, match=r"several targets are predicted together as numbers, but 'colour' of .* text"):
        read_table(frame, spec(target=("price", "colour")))


def test_damaged_schemas_are_refused(path: Path) -> None:
    good: dict[str, Any] = schema_of(divide(read_table(path, spec()))).to_json()
    bad: list[Any] = [
        {},
        {**good, "columns": [{"name": "a"}]},
        {**good, "columns": 3},
        {**good, "task": "x"},
        {**good, "version": 99},
        {**good, "columns": [{"column": {"name": "a", "kind": "poem"}}]},
        {**good, "columns": [{**good["columns"][3], "parts": ["century"]}]},
        {**good, "fills": good["fills"][1:]},
        {**good, "fills": [float("nan")] * len(good["fills"])},
        {**good, "unknown": "guess"},
        {**good, "target_columns": None},
        {key: value for key, value in good.items() if key != "missing"},
    ]
    for stored in bad:
        with pytest.raises(ValueError, match="the stored table schema is damaged"):
            Schema.from_json(stored)


@pytest.mark.parametrize("output", ["default", "pandas"])
def test_any_names_of_columns_and_settings_of_scikit_learn(output: str, rng: np.random.Generator) -> None:
    """Names that scikit-learn refuses for its steps, and its option of frames for results."""
    frame = houses(rng, 60).rename(
        columns={"size": "size__m", "garden": "verbose", "colour": "remainder", "rooms": "="}
    )
    with sklearn.config_context(transform_output=output):
        data = divide(read_table(frame, spec()))
        X, _ = apply_schema(schema_of(data), frame)
    expected = encoded(
        frame.rename(columns={"size__m": "size", "verbose": "garden", "remainder": "colour", "=": "rooms"})
    )
    is_known = ~np.isnan(expected)
    np.testing.assert_allclose(X[:, :4][is_known[:, :4]], expected[:, :4][is_known[:, :4]], rtol=1e-12)


def test_no_rows_and_no_columns() -> None:
    schema = Schema((Feature(Column("a", "number")),), (), fills=(1.0,))
    assert schema.transform(pa.table({"a": pa.array([], pa.string())}), where="here").shape == (0, 1)
