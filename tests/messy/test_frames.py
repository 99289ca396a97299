"""Data frames of pandas and polars and tables of Arrow, with all that they allow."""

import datetime
import decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.messy.reading import days, read, refused

NAN = float("nan")
Y = [1.5, 2.5, 4.5]
LEVELS = {"a=p": [1.0, 0.0, 1.0], "a=q": [0.0, 1.0, 0.0]}
GONE = {"a=missing": [0.0, 1.0, 0.0]}


def pandas_frame(a: Any, **options: Any) -> pd.DataFrame:
    return pd.DataFrame({"a": a, "y": Y}, **options)


RIGHT: list[tuple[str, Any, dict[str, Any]]] = [
    ("integers", pd.Series([1, 2, 3], dtype="int8"), {"a": [1, 2, 3]}),
    ("unsigned", pd.Series([1, 2, 2**63], dtype="uint64"), {"a": [1, 2, 2.0**63]}),
    ("half precision", pd.Series([0.5, 1.5, 2.5], dtype="float16"), {"a": [0.5, 1.5, 2.5]}),
    ("nullable integers", pd.Series([1, None, 3], dtype="Int64"), {"a": [1, NAN, 3], **GONE}),
    ("nullable floats", pd.Series([1.5, None, 3], dtype="Float64"), {"a": [1.5, NAN, 3], **GONE}),
    ("nullable truths", pd.Series([True, None, False], dtype="boolean"), {"a": [1, NAN, 0], **GONE}),
    ("truths", [True, False, True], {"a": [1, 0, 1]}),
    ("truths and None", pd.Series([True, None, False], dtype=object), {"a": [1, NAN, 0], **GONE}),
    ("strings", pd.Series(["p", "q", "p"], dtype="string"), LEVELS),
    ("python strings", pd.Series(["p", "q", "p"], dtype=object), LEVELS),
    ("arrow strings", pd.Series(["p", "q", "p"], dtype=pd.ArrowDtype(pa.large_string())), LEVELS),
    ("strings of numbers", ["1.5", "2", "3"], {"a": [1.5, 2, 3]}),
    ("numbers as texts and not", pd.Series([1, "2.5", 3], dtype=object), {"a": [1, 2.5, 3]}),
    ("categories", pd.Categorical(["p", "q", "p"]), LEVELS),
    (
        "ordered categories",
        pd.Categorical(["p", "q", "p"], categories=["q", "p"], ordered=True),
        dict(reversed(LEVELS.items())),
    ),
    ("categories that do not occur", pd.Categorical(["p", "q", "p"], categories=["p", "q", "z"]), LEVELS),
    ("categories of numbers", pd.Categorical([1, 2, 1]), {"a=1": [1, 0, 1], "a=2": [0, 1, 0]}),
    ("categories and None", pd.Categorical(["p", None, "p"]), {"a=p": [1, NAN, 1], **GONE}),
    ("decimals", [decimal.Decimal("1.10"), decimal.Decimal("2.20"), decimal.Decimal("-3")], {"a": [1.1, 2.2, -3]}),
    ("sparse", pd.arrays.SparseArray([0.0, 0.0, 1.5]), {"a": [0, 0, 1.5]}),
    ("numbers and None", pd.Series([1, None, 3], dtype=object), {"a": [1, NAN, 3], **GONE}),
    (
        "moments",
        pd.to_datetime(["2020-01-03", "2020-01-04", "2020-01-06"]),
        {"a.day": days("2020-01-03", "2020-01-04", "2020-01-06")},
    ),
    (
        "moments of a zone",
        pd.to_datetime(["2020-01-03 23:30", "2020-01-04 23:30", "2020-01-06 23:30"]).tz_localize("America/New_York"),
        {"a.day": days("2020-01-04", "2020-01-05", "2020-01-07")},
    ),
    (
        "python dates",
        [datetime.date(2020, 1, 3), datetime.date(2020, 1, 4), datetime.date(2020, 1, 6)],
        {"a.day": days("2020-01-03", "2020-01-04", "2020-01-06")},
    ),
    ("python times", [datetime.time(10, 30), datetime.time(7), datetime.time(0)], {"a": [10.5, 7, 0]}),
]

WRONG: list[tuple[str, Any, str]] = [
    ("numbers and texts", pd.Series([1, "two", 3.5], dtype=object), "'a'"),
    (
        "numbers and moments",
        [1, pd.Timestamp("2020"), 2],
        "'a' of .* must hold values of one kind, got obj",
    ),
    ("complex", [1j, 2.0, 3.0], "'a'.*complex"),
    ("lists", [[1], [2], [3, 4]], "'a'"),
    ("dictionaries", [{"b": 1}, {"b": 2}, {"b": 3}], "'a'"),
    ("arrays", [np.ones(2), np.ones(2), np.ones(2)], "'a'"),
    ("objects", [object(), object(), object()], "'a'"),
    ("bytes", [b"\xff\xfe", b"b", b"c"], "'a'"),
]


def _same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.pop("y") == Y
    assert list(found)[: len(expected)] == list(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.parametrize(("values", "expected"), [row[1:] for row in RIGHT], ids=[row[0] for row in RIGHT])
def test_pandas(values: Any, expected: dict[str, Any]) -> None:
    missing = "impute" if "a=missing" in expected else "error"
    _same(read(pandas_frame(values), missing=missing), expected)


@pytest.mark.parametrize(("values", "match"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_pandas_that_cannot_be_read(values: Any, match: str) -> None:
    assert "data frame" in refused(pandas_frame(values), match)


def test_lengths_of_time_are_hours() -> None:
    _same(read(pandas_frame(pd.to_timedelta(["1h", "2h", "90min"]))), {"a": [1.0, 2.0, 1.5]})


def test_periods_are_dates_and_intervals_levels() -> None:
    _same(read(pandas_frame(pd.period_range("1970-01", periods=3, freq="D"))), {"a.day": [0.0, 1.0, 2.0]})
    found = read(pandas_frame(pd.cut([1, 2, 9], [0, 5, 10])))
    assert found["a=(0, 5]"] == [1.0, 1.0, 0.0]


def test_the_index_is_no_column() -> None:
    for index in ([7, 7, 7], ["x", "x", "y"], pd.date_range("2020", periods=3)):
        assert list(read(pandas_frame([1, 2, 3], index=index))) == ["a", "y"]


def test_a_part_of_a_frame_keeps_its_rows() -> None:
    frame = pd.DataFrame({"a": range(6), "y": np.arange(6) ** 2.0})
    assert read(frame[frame["a"] % 2 == 1])["a"] == [1.0, 3.0, 5.0]
    assert read(frame[::-1])["a"] == [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]


def test_names_that_are_numbers() -> None:
    frame = pd.DataFrame(np.arange(12.0).reshape(4, 3) ** 2)
    assert list(read(frame, target="2")) == ["0", "1", "2"]


def test_names_of_several_levels_and_names_twice() -> None:
    frame = pandas_frame([1, 2, 3])
    levels = frame.set_axis(pd.MultiIndex.from_tuples([("m", "a"), ("m", "y")]), axis=1)
    assert list(read(levels, target="('m', 'y')")) == ["('m', 'a')", "('m', 'y')"]
    refused(pd.concat([frame, frame["a"]], axis=1), "'a'.*twice")
    refused(frame.rename(columns={"a": ""}), "no name")
    refused(frame.set_axis([None, "y"], axis=1), "name")


def test_empty_frames() -> None:
    refused(pd.DataFrame(), "data frame")
    refused(pandas_frame([1, 2, 3]).iloc[:0], "at least 2 rows")
    refused(pandas_frame([1, 2, 3])[["y"]], "no column besides the target")


@pytest.mark.parametrize("source", [np.ones((3, 2)), [[1, 2]], {"a": [1, 2, 3], "y": Y}, 3, None])
def test_what_is_no_table(source: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"table|data frame|--data"):
        read(source)


def test_a_frame_is_not_changed() -> None:
    frame = pandas_frame(pd.Series(["$1", None, "$3"], dtype=object))
    before = frame.copy(deep=True)
    read(frame, missing="impute")
    pd.testing.assert_frame_equal(frame, before)


def test_arrow() -> None:
    expected = {"a": [1.0, 2.0, 3.0]}
    table = pa.table({"a": [1, 2, 3], "y": Y})
    _same(read(table), expected)
    _same(read(table.to_batches()[0]), expected)
    _same(read(pa.RecordBatchReader.from_batches(table.schema, table.to_batches())), expected)
    _same(read(pa.table({"a": pa.array(["p", "q", "p"]).dictionary_encode(), "y": Y})), LEVELS)
    chunks = pa.chunked_array([pa.array(["q", "p"]).dictionary_encode(), pa.array(["p"]).dictionary_encode()])
    _same(read(pa.table({"a": chunks, "y": Y})), {"a=p": [0.0, 1.0, 1.0], "a=q": [1.0, 0.0, 0.0]})
    refused(pa.table([pa.array([1, 2, 3])] * 2 + [pa.array(Y)], names=["a", "a", "y"]), "'a'.*twice")


def test_polars() -> None:
    pl = pytest.importorskip("polars")
    day = [datetime.date(2020, 1, 3), datetime.date(2020, 1, 4), datetime.date(2020, 1, 6)]
    cases: list[tuple[Any, dict[str, Any]]] = [
        (pl.Series([1, 2, 3], dtype=pl.UInt8), {"a": [1, 2, 3]}),
        (pl.Series([1.5, None, 3.0]), {"a": [1.5, NAN, 3], **GONE}),
        (pl.Series([1.5, NAN, 3.0]), {"a": [1.5, NAN, 3], **GONE}),
        (pl.Series([True, None, False]), {"a": [1, NAN, 0], **GONE}),
        (pl.Series(["p", "q", "p"]), LEVELS),
        (pl.Series(["q", "p", "q"], dtype=pl.Categorical), {"a=p": [0.0, 1.0, 0.0], "a=q": [1.0, 0.0, 1.0]}),
        (pl.Series(["p", "q", "p"], dtype=pl.Enum(["q", "p", "z"])), dict(reversed(LEVELS.items()))),
        (pl.Series([datetime.timedelta(hours=h) for h in (1, 30, 0.5)]), {"a": [1, 30, 0.5]}),
        (pl.Series(day), {"a.day": days("2020-01-03", "2020-01-04", "2020-01-06")}),
        (pl.Series(day).cast(pl.Datetime("ms")), {"a.day": days("2020-01-03", "2020-01-04", "2020-01-06")}),
        (pl.Series([datetime.time(10, 30), datetime.time(7), datetime.time(0)]), {"a": [10.5, 7, 0]}),
        (pl.Series([decimal.Decimal("1.10"), decimal.Decimal("2.20"), decimal.Decimal("-3")]), {"a": [1.1, 2.2, -3]}),
    ]
    for values, expected in cases:
        missing = "impute" if "a=missing" in expected else "error"
        _same(read(pl.DataFrame({"a": values, "y": Y}), missing=missing), expected)
    for values in (
        [[1], [2], [3, 4]],
        [{"b": 1}, {"b": 2}, {"b": 3}],
        [b"\xff", b"b", b"c"],
    ):
        refused(pl.DataFrame({"a": values, "y": Y}), "'a'")
    with pytest.raises((ValueError, TypeError), match=r"collect|table|data frame"):
        read(pl.LazyFrame({"a": [1, 2, 3], "y": Y}))
