import datetime
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gpflow_deep_runs.data.table.columns import Column, fits, parse

NAN = float("nan")
COLUMNS = [
    Column("a", "number"),
    Column("preis", "number", ",", ".", "\u20ac", True, note="'5 \u20ac' is 5"),
    Column("b", "boolean", true=("Yes", "YES"), false=("no",)),
    Column("d", "date", date_format="%d.%m.%Y"),
    Column("t", "time", date_format="%H:%M"),
    Column("c", "category", note="'None' is a level"),
    Column("x", "text"),
    Column("id", "ignored"),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_json_and_back(column: Column) -> None:
    assert Column.from_json(json.loads(json.dumps(column.to_json()))) == column


def test_json_holds_what_is_not_the_default() -> None:
    assert Column("a", "number", unit="%").to_json() == {"version": 1, "name": "a", "kind": "number", "unit": "%"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "stored column 'b' must be of version 1, got 2"),
        ({"version": None}, "must be of version 1"),
        ({"kind": "numbers"}, "stored column 'b' is damaged .*kind"),
        ({"kind": 3}, "kind is 3"),
        ({"decimal": ";"}, "decimal"),
        ({"thousands": "."}, "thousands"),
        ({"thousands": "x"}, "thousands"),
        ({"unit": 5}, "unit is 5"),
        ({"unit": "x" * 1000}, "more than 100 characters"),
        ({"date_format": "%Q"}, "date_format"),
        ({"date_format": "%Y" * 60}, "more than 100"),
        ({"true": "yes"}, "true is 'yes'"),
        ({"true": [1]}, "true is"),
        ({"true": []}, "without words"),
        ({"false": ["YES"]}, "both true and false"),
        ({"has_parentheses": 1}, "has_parentheses is 1"),
        ({"levels": []}, "its entries are"),
        ({"note": None}, "note is None"),
        ({"name": 3}, "must be an object with a name"),
    ],
)
def test_damaged_columns_are_refused(change: dict[str, Any], message: str) -> None:
    good = {"version": 1, "name": "b", "kind": "boolean", "true": ["yes"], "false": ["no"]}
    assert Column.from_json(good).true == ("yes",)
    with pytest.raises(ValueError, match=message):
        Column.from_json({**good, **change})


@pytest.mark.parametrize("stored", [None, 3, [], "a", {}, {"version": 1, "name": "a"}])
def test_what_is_no_column(stored: Any) -> None:
    with pytest.raises(ValueError, match=r"stored column"):
        Column.from_json(stored)


@pytest.mark.parametrize(
    ("column", "text", "message"),
    [
        (
            COLUMNS[0],
            "x",
            "column 'a' of F must hold numbers, but 2 values are text, the first 'x' in row 11 .*--na_values=x",
        ),
        (COLUMNS[0], "1,000", "the first '1,000' in row 11"),
        (COLUMNS[1], "5.5 \u20ac", "numbers \\(decimal comma, with '\u20ac'\\), but 2"),
        (COLUMNS[2], "maybe", r"true and false \(no or Yes\), but 2 values are text, the first 'maybe' in row 11"),
        (COLUMNS[3], "2020-01-31", r"dates \(%d\.%m\.%Y\), but 2"),
        (COLUMNS[4], "7 PM", r"times \(%H:%M\), but 2"),
    ],
)
def test_cells_of_another_kind(column: Column, text: str, message: str) -> None:
    cells = pa.chunked_array([["", text], [text]])
    with pytest.raises(ValueError, match=message):
        parse(cells, column, where="F", first_row=10)
    assert fits(cells, column).tolist() == [True, False, False]
    assert fits(cells, column, na_values=[text]).all()
    assert np.isnan(parse(cells, column, where="F", na_values=[f" {text} "])).all()


def test_columns_of_text_read_types_and_the_other_way_round() -> None:
    day = datetime.date(2020, 1, 31)
    assert parse(pa.array([day]), COLUMNS[3], where="F").tolist() == [18292]
    assert parse(pa.array(["2020-01-31T12:00"]), Column("d", "date"), where="F").tolist() == [18292.5]
    assert parse(pa.array([datetime.time(7, 30)]), COLUMNS[4], where="F").tolist() == [7.5]
    assert parse(pa.array(["7:30:00"]), Column("t", "time"), where="F").tolist() == [7.5]
    assert parse(pa.array([1.5, None]), COLUMNS[1], where="F").tolist()[0] == 1.5
    assert parse(pa.array([True, False]), COLUMNS[2], where="F").tolist() == [1, 0]
    assert parse(pa.array([1, 0]), COLUMNS[2], where="F").tolist() == [1, 0]
    assert parse(pa.array(["1", "0", "YES", "No"]), COLUMNS[2], where="F").tolist() == [1, 0, 1, 0]
    assert parse(pa.array([True, False]), COLUMNS[0], where="F").tolist() == [1, 0]
    assert parse(pa.array(["u", "v"]).dictionary_encode(), COLUMNS[5], where="F").tolist() == ["u", "v"]
    assert parse(pa.array(["1", "2"]).dictionary_encode(), COLUMNS[0], where="F").tolist() == [1, 2]
    assert parse(pa.array([1, None, 2]), COLUMNS[5], where="F").dropna().tolist() == ["1", "2"]
    assert parse(pa.array([1.0, 2.5]), COLUMNS[5], where="F").tolist() == ["1", "2.5"]
    assert parse(pa.array([True, None]), COLUMNS[5], where="F").dropna().tolist() == ["True"]
    assert np.isnan(parse(pa.nulls(2), COLUMNS[0], where="F")).all()
    assert parse(pa.nulls(2), COLUMNS[5], where="F").codes.tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        (COLUMNS[0], [datetime.date(2020, 1, 1)], "column 'a' of F must hold numbers, got values of type date32"),
        (COLUMNS[3], [1.5], "must hold dates, got values of type double"),
        (COLUMNS[4], [True], "must hold times, got values of type bool"),
        (COLUMNS[0], [[1]], "has no values to read .*list"),
        (COLUMNS[7], [1], "has no values to read"),
        (COLUMNS[2], [0, 1, 2], "the first '2' in row 2"),
    ],
)
def test_values_of_another_type(column: Column, values: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(pa.array(values), column, where="F")


def test_typed_values_may_stand_for_missing_ones() -> None:
    np.testing.assert_array_equal(parse(pa.array([-999, 1]), COLUMNS[0], where="F", na_values=["-999"]), [NAN, 1])
    days = pa.array([datetime.date(1900, 1, 1), datetime.date(1970, 1, 2)])
    np.testing.assert_array_equal(parse(days, COLUMNS[3], where="F", na_values=["1900-01-01"]), [NAN, 1])


def test_numbers_of_types_are_correctly_rounded(rng: np.random.Generator) -> None:
    texts = [f"{rng.integers(10**14)}.{rng.integers(10**6):06}" for _ in range(1000)]
    decimals = pa.array(texts).cast(pa.decimal128(38, 6))
    expected = np.array([float(text) for text in texts])
    assert parse(decimals, COLUMNS[0], where="F").tobytes() == expected.tobytes()
    moments = rng.integers(-(2**61), 2**61, 1000)  # nanoseconds
    found = parse(pa.array(moments, pa.timestamp("ns")), COLUMNS[3], where="F")
    exact = np.array([float(int(m) // 86400000000000) + int(m) % 86400000000000 / 86400e9 for m in moments])
    assert found.tobytes() == exact.tobytes()


def test_chunks_and_empty_columns() -> None:
    cells = pa.chunked_array([["b", "a"], [], ["a", None, " b"]], pa.string())
    assert parse(cells, COLUMNS[5], where="F").dropna().tolist() == ["b", "a", "a", "b"]
    for column in COLUMNS[:-1]:
        for kind in (pa.string(), pa.null()):
            assert len(parse(pa.chunked_array([], kind), column, where="F")) == 0
    assert replace(COLUMNS[0], name="b").name == "b"
