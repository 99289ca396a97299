"""Dates and times of day: one format for a column, no guess where two fit, and values checked against NumPy's."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpflow_deep_runs.data.rows import divide
from gpflow_deep_runs.data.table.schema import Schema
from gpflow_deep_runs.data.table.spec import TableSpec
from gpflow_deep_runs.data.tables import apply_schema, read_table, schema_of
from tests.messy.reading import column, days, read, refused, write

DAYS, HOUR = "a.day", "a.hour"

RIGHT: list[tuple[str, list[str], list[str], dict[str, Any]]] = [
    (
        "offsets",
        ["2020-01-03T10:30:00+02:00", "2020-01-01T00:30:00-05:00"],
        ["2020-01-03T08:30", "2020-01-01T05:30"],
        {},
    ),
    (
        "long ago and far ahead",
        ["1492-10-12", "1969-07-20", "9999-12-31"],
        ["1492-10-12", "1969-07-20", "9999-12-31"],
        {},
    ),
    (
        "said by a format with a colon",
        ["3h 10:30 2020-01-03", "3h 11:45 2019-12-31"],
        ["2020-01-03T10:30", "2019-12-31T11:45"],
        {"dates": ("a:3h %H:%M %Y-%m-%d",)},
    ),
]

WRONG: list[tuple[str, list[str], str, dict[str, Any]]] = [
    ("no format", ["2020-01-03", "2020-01-04"], "--dates", {"dates": ("a:xyz",)}),
]


@pytest.mark.parametrize(("cells", "truth", "flags"), [row[1:] for row in RIGHT], ids=[row[0] for row in RIGHT])
def test_dates(cells: list[str], truth: list[str], flags: dict[str, Any], tmp_path: Path) -> None:
    found = read(write(tmp_path, "t.csv", column(cells)), **flags)
    np.testing.assert_allclose(found[DAYS], np.floor(days(*truth)), rtol=0, atol=0)
    if any(value % 1 for value in days(*truth)):
        np.testing.assert_allclose(found[HOUR], 24 * np.mod(days(*truth), 1), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("cells", "match", "flags"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_dates_that_cannot_be_read(cells: list[str], match: str, flags: dict[str, Any], tmp_path: Path) -> None:
    refused(write(tmp_path, "t.csv", column(cells)), match, **flags)


def test_minutes_and_seconds(tmp_path: Path) -> None:
    found = read(write(tmp_path, "t.csv", column(["10:30", "25:30", "7:00"])), dates=("a:%M:%S",))
    assert found["a"] == [630 / 3600, 1530 / 3600, 420 / 3600]


def test_a_missing_date_has_no_parts(tmp_path: Path) -> None:
    found = read(write(tmp_path, "t.csv", column(["2020-01-03", "", "2020-01-05"])), missing="impute")
    assert found["a=missing"] == [0.0, 1.0, 0.0]
    np.testing.assert_array_equal(found[DAYS], [*days("2020-01-03"), np.nan, *days("2020-01-05")])


def test_whole_numbers_stay_numbers(tmp_path: Path) -> None:
    """20200103 may be a date or not: without --dates it is the number, which the table of columns shows."""
    assert read(write(tmp_path, "t.csv", column(["20200103", "20191231"])))["a"] == [20200103.0, 20191231.0]


def test_the_local_clock(tmp_path: Path) -> None:
    """The same moments as text and as a type with a zone, by UTC and by the clock on the wall."""
    cells = ["2021-03-28 01:30:00+01:00", "2021-03-28 03:30:00+02:00", "2021-07-01 00:15:00+02:00"]
    typed = pd.DataFrame({"a": pd.to_datetime(cells, utc=True).tz_convert("Europe/Berlin"), "y": [101.0, 108.0, 115.0]})
    for source in (write(tmp_path, "t.csv", column(cells)), typed):
        assert read(source)[HOUR] == [0.5, 1.5, 22.25]
        assert read(source)[DAYS] == days("2021-03-28", "2021-03-28", "2021-06-30")
        found = read(source, dates=("a:local",))
        assert found[HOUR] == [1.5, 3.5, 0.25]
        assert found[DAYS] == days("2021-03-28", "2021-03-28", "2021-07-01")
    refused(write(tmp_path, "t.csv", column([cell[:19] for cell in cells])), "'a'.*time zone", dates=("a:local",))


@pytest.mark.parametrize("how", [(), ("a:local",)])
def test_new_moments_have_a_zone_if_the_old_ones_had(how: tuple[str, ...], tmp_path: Path) -> None:
    cells = [f"2021-03-{day:02d} 03:30:00+02:00" for day in range(1, 29)]
    rows = divide(read_table(write(tmp_path, "t.csv", column(cells)), TableSpec(target=("y",), dates=how)))
    schema = Schema.from_json(schema_of(rows).to_json())
    moments = pd.to_datetime(pd.Series(cells[:2]))
    np.testing.assert_array_equal(
        apply_schema(schema, pd.DataFrame({"a": moments}))[0], apply_schema(schema, pd.DataFrame({"a": cells[:2]}))[0]
    )
    for naive in (moments.dt.tz_localize(None), [cell[:19] for cell in cells[:2]]):
        with pytest.raises(ValueError, match=r"'a'.*(time zone|%z)"):
            apply_schema(schema, pd.DataFrame({"a": naive}))


def test_moments_without_a_zone_take_none(tmp_path: Path) -> None:
    cells = [f"2021-03-{day:02d} 03:30:00" for day in range(1, 29)]
    schema = schema_of(divide(read_table(write(tmp_path, "t.csv", column(cells)), TableSpec(target=("y",)))))
    with pytest.raises(ValueError, match=r"'a'.*without a time zone"):
        apply_schema(schema, pd.DataFrame({"a": pd.to_datetime(pd.Series(cells[:2])).dt.tz_localize("UTC")}))
