"""Twelve messy tables, with at most two flags each: every value is read as it is meant, and the scripts take them."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from gpflow_deep_runs.data.files.sources import read_source
from gpflow_deep_runs.data.table.columns import parse as parse_cells
from gpflow_deep_runs.data.table.inference import infer_columns
from gpflow_deep_runs.data.table.spec import forced_columns
from gpflow_deep_runs.data.tables import read_table
from scripts import predict_dgp, train_dgp
from tests.messy.by_hand import PREPARED
from tests.messy.comparison import spec_of
from tests.messy.tables import TABLES, Messy
from tests.scripts.running import called, result_of

SHORT = ("--num_layers=1", "--num_inducing=10", "--num_steps=3", "--noprogress", "--compare=")
DAY = np.timedelta64(86400, "s")


def texts(values: Any) -> list[str | None]:
    return [None if pd.isna(value) else str(value) for value in values]


@pytest.mark.parametrize("name", TABLES)
def test_cells_are_read_as_they_are_meant(name: str) -> None:
    made, spec = TABLES[name], spec_of(TABLES[name])
    assert len(made.flags) <= 2
    table = read_source(made.path)
    flags = {key: getattr(spec, key) for key in ("ignore", "categorical", "numeric", "dates")}
    forced = forced_columns(table.columns.column_names, where=table.where, **flags)
    found = infer_columns(
        table.columns, where=table.where, forced=forced, na_values=spec.na_values, delimiter=table.delimiter
    )
    assert {key for key, column in found.items() if column.kind != "ignored"} == set(made.truth)
    for key, truth in made.truth.items():
        cells = parse_cells(table.columns[key], found[key], na_values=spec.na_values, where=table.where)
        if truth.dtype == object and found[key].kind != "boolean":
            assert texts(cells) == texts(truth)
        elif truth.dtype.kind == "M":
            assert found[key].kind == "date"
            np.testing.assert_allclose(cells, (truth - np.datetime64(0, "s")) / DAY, rtol=1e-15)
        elif truth.dtype != object:
            np.testing.assert_array_equal(cells, truth, err_msg=key)


@pytest.mark.parametrize("name", TABLES)
def test_inputs_and_targets_are_those_values(name: str) -> None:
    made = TABLES[name]
    rows = read_table(made.path, spec_of(made))
    X = dict(zip(rows.feature_names, rows.parts["all"].X.T, strict=True))
    for key, truth in made.truth.items():
        if key == made.target:
            continue
        is_missing = np.array([value is None or value != value for value in truth])
        if is_missing.any():
            np.testing.assert_array_equal(X.pop(f"{key}=missing"), is_missing)
        if truth.dtype == object:
            kept = [level for level in set(truth[~is_missing]) if f"{key}={level}" in X]
            for level in kept:
                np.testing.assert_array_equal(X.pop(f"{key}={level}"), np.where(is_missing, np.nan, truth == level))
            if len(kept) < len(set(truth[~is_missing])):
                np.testing.assert_array_equal(X.pop(f"{key}=(rare)"), ~np.isin(truth, kept))
        elif truth.dtype.kind == "M":
            _check_dates({part: X.pop(part) for part in list(X) if part.startswith(f"{key}.")}, key, truth)
        else:
            np.testing.assert_array_equal(X.pop(key), truth)
    assert not X
    _check_target(made, rows)


def _check_dates(parts: dict[str, NDArray[Any]], key: str, truth: NDArray[Any]) -> None:
    when = pd.DatetimeIndex(truth)
    expected = {
        "day": (when.floor("D") - pd.Timestamp(0)) / pd.Timedelta(days=1),
        "day_of_year": when.dayofyear,
        "weekday": when.weekday,
        "hour": when.hour + when.minute / 60,
    }
    assert f"{key}.day" in parts
    for name, values in parts.items():
        np.testing.assert_allclose(values, expected[name.removeprefix(f"{key}.")], rtol=1e-14)


def _check_target(made: Messy, rows: Any) -> None:
    assert rows.task == made.task
    truth, Y = made.truth[made.target], rows.parts["all"].Y[:, 0]
    if made.task == "regression":
        np.testing.assert_array_equal(Y, truth)
    else:
        whole = [str(int(value)) if isinstance(value, float) else value for value in truth.tolist()]
        assert [rows.class_names[label] for label in Y] == whole


@pytest.mark.parametrize("name", TABLES)
def test_targets_by_hand_are_the_truth(name: str) -> None:
    made = TABLES[name]
    X, y = PREPARED[name](made.path)
    assert len(X) == len(y)
    truth = made.truth[made.target]
    if made.task == "regression":
        np.testing.assert_array_equal(y, truth)
    else:
        assert len(set(zip(y.tolist(), truth.tolist(), strict=True))) == len(set(truth))  # one label a class


def through_scripts(name: str, folder: Path, *flags: str) -> tuple[str, pd.DataFrame]:
    """Train on a table and predict all its rows: what training says, and the predictions."""
    made = TABLES[name]
    path = made.path
    arguments = ["--run_dir=run", f"--data={path}", f"--target={made.target}", *made.flags, *flags]
    done = called(train_dgp.main, "train_dgp.py", folder, arguments)
    assert done.code == 0, done.err
    assert np.isfinite(result_of(folder, "run")["models"]["gp"]["test"]["log_likelihood_nats"])
    again = called(predict_dgp.main, "predict_dgp.py", folder, ["--run_dir=run", f"--data={path}"])
    assert again.code == 0, again.err
    return done.out, pd.read_csv(folder / "predictions.csv")


def test_a_table_through_the_scripts(tmp_path: Path) -> None:
    said, predicted = through_scripts("passengers", tmp_path, *SHORT)
    assert len(predicted) == 450
    assert predicted["log_density"].notna().all()
    assert re.search(r"^\s*Age .*number.*missing", said, re.MULTILINE)
    assert re.search(r"^\s*PassengerId .*(ignored|left out)", said, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", [name for name in TABLES if name != "passengers"])
def test_every_table_through_the_scripts(name: str, tmp_path: Path) -> None:
    made = TABLES[name]
    _, predicted = through_scripts(name, tmp_path, *SHORT)
    assert len(predicted) == len(made.truth[made.target])
    assert np.isfinite(predicted.select_dtypes("number").to_numpy()).all()
    assert predicted["log_density"].notna().all()
