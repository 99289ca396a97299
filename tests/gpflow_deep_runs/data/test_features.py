"""`gpflow_deep_runs.data.table.features`: columns of X, and what makes them."""

import json
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpflow_deep_runs.data.table.columns import Column
from gpflow_deep_runs.data.table.features import Feature, date_parts
from gpflow_deep_runs.data.table.spec import PARTS

COLOURS = Column("colour", "category")


def test_parts_of_dates(rng: np.random.Generator) -> None:
    """Against the calendar of the standard library, from 1890 to 2060."""
    milliseconds = rng.integers(-2_500_000_000_000, 2_850_000_000_000, 300)
    found = date_parts(milliseconds[:, None] / 86_400_000, PARTS)
    for row, value in zip(found, milliseconds.tolist(), strict=True):
        time = datetime(1970, 1, 1) + timedelta(milliseconds=value)
        hour = time.hour + time.minute / 60 + time.second / 3600 + time.microsecond / 3.6e9
        days = (time.date() - datetime(1970, 1, 1).date()).days
        np.testing.assert_allclose(row, [days, time.timetuple().tm_yday, time.weekday(), hour], rtol=1e-12)
    found = date_parts(np.array([[np.nan], [0.0]]), ("hour", "day"))
    np.testing.assert_array_equal(found, np.array([[np.nan] * 2, [0, 0]]))


@pytest.mark.parametrize(
    ("feature", "names"),
    [
        (Feature(Column("a", "number")), ("a",)),
        (Feature(Column("a", "time"), num_missing=3), ("a", "a=missing")),
        (Feature(Column("d", "date"), parts=("day", "hour")), ("d.day", "d.hour")),
        (Feature(COLOURS, ("blue", "red")), ("colour=blue", "colour=red")),
        (
            Feature(COLOURS, ("red",), ("pink", "teal"), num_missing=1),
            ("colour=red", "colour=(rare)", "colour=missing"),
        ),
        (Feature(Column("id", "ignored"), num_missing=3), ()),
    ],
)
def test_names_and_json(feature: Feature, names: tuple[str, ...]) -> None:
    assert feature.names == names
    assert Feature.from_json(json.loads(json.dumps(feature.to_json()))) == feature


def encoded(feature: Feature, values: list[Any]) -> np.ndarray:
    X = np.zeros((len(values), len(feature.names)))
    cells = pd.Categorical(values) if feature.column.kind == "category" else np.array(values, float)
    feature.encode(feature.coded(cells), X)
    return X


def test_levels() -> None:
    nan = np.nan
    whole = Feature(COLOURS, ("blue", "red"), ("pink", "teal"), num_missing=1)
    cells = ["red", "teal", None, "blue", "pink"]
    expected = [[0, 1, 0, 0], [0, 0, 1, 0], [nan, nan, nan, 1], [1, 0, 0, 0], [0, 0, 1, 0]]
    np.testing.assert_array_equal(encoded(whole, cells), np.array(expected))
    np.testing.assert_array_equal(
        encoded(Feature(COLOURS, ("blue", "red"), ("pink", "teal")), cells), np.array(expected)[:, :3]
    )
    np.testing.assert_array_equal(
        encoded(Feature(COLOURS, ("blue", "red")), ["red", None]), np.array([[0, 1], [nan, nan]])
    )


def test_unknown_levels() -> None:
    plain, rare = Feature(COLOURS, ("blue", "red")), Feature(COLOURS, ("blue", "red"), ("pink",))
    for feature, code in ((plain, [0, 0]), (rare, [0, 0, 1])):
        assert feature.coded(pd.Categorical(["mauve"])) < 0
        np.testing.assert_array_equal(encoded(feature, ["mauve"]), [code])
        values = pd.Categorical(["red", None, "mauve", "mauve"])
        with pytest.raises(ValueError, match=r"value 'mauve' in row 12 .*2 such rows\); give --unknown=level"):
            feature.check_known(values, "shop.csv", first_row=10)
        feature.check_known(values[:2], "shop.csv")


def test_missing_numbers_and_dates_are_told() -> None:
    number = Feature(Column("a", "number"), num_missing=1)
    np.testing.assert_array_equal(encoded(number, [1.5, np.nan]), np.array([[1.5, 0], [np.nan, 1]]))
    date = Feature(Column("d", "date"), parts=("weekday",), num_missing=1)
    np.testing.assert_array_equal(encoded(date, [0.5, np.nan]), np.array([[3, 0], [np.nan, 1]]))


@pytest.mark.parametrize("stored", [{}, {"column": {"name": "a"}}, {"column": 3}])
def test_damaged_json(stored: dict[str, Any]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Feature.from_json(stored)
