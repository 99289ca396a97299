import datetime
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gpflow_deep_runs.data.table.columns import Column, parse
from gpflow_deep_runs.data.table.inference import infer, infer_columns
from gpflow_deep_runs.data.table.spec import Forced

NAN = float("nan")


def _infer(cells: Sequence[str | None], **options: Any) -> Column:
    return infer(options.pop("name", "c"), pa.array(cells, pa.string()), where="F.csv", **options)


def _parse(cells: Sequence[str | None], column: Column, **options: Any) -> list[Any]:
    found = parse(pa.array(cells, pa.string()), column, where="F.csv", **options)
    return [None if value is np.nan and column.kind in ("category", "text") else value for value in found.tolist()]


@pytest.mark.parametrize(
    ("cells", "values", "note"),
    [
        (["1", "-2.5", "+3", "1e3", ".5", "7."], [1, -2.5, 3, 1000, 0.5, 7], ""),
        ([" 1 ", "2\t", "\u00a03"], [1, 2, 3], ""),
        (["1", "", "NaN", "n/a"], [1, NAN, NAN, NAN], ""),
        (["inf", "-Infinity", "1e400"], [np.inf, -np.inf, np.inf], ""),
        (["\u22125", "5"], [-5, 5], ""),
        (["1", "2", "?", "NA", "?"], [1, 2, NAN, NAN, NAN], "'?' is missing (2); 'NA' is missing (1)"),
        (["-", "$5", "$6"], [NAN, 5, 6], "'$5' is 5; '-' is missing (1)"),
        (["12%", "45 %", "0"], [12, 45, 0], "'12%' is 12"),
        (["$3.50", "$1,000", "-$2"], [3.5, 1000, -2], "'$1,000' is 1000"),
        (["EUR 12", "EUR 13.5"], [12, 13.5], "'EUR 13.5' is 13.5"),
        (["Rs.500", "Rs.1,500"], [500, 1500], "'Rs.1,500' is 1500"),
        (["$.50", "$1.25"], [0.5, 1.25], "'$.50' is 0.5"),
        (["1.234,50\u00a0\u20ac", "3,5 \u20ac"], [1234.5, 3.5], "'1.234,50 \u20ac' is 1234.5"),
        (["1,250 sq ft", "860 sq ft", "12.5 sq ft"], [1250, 860, 12.5], "'1,250 sq ft' is 1250"),
        (["5 km", "3.5 km", "1e-3 km"], [5, 3.5, 0.001], "'3.5 km' is 3.5"),
        (["3,5", "-2,25", "7"], [3.5, -2.25, 7], "'3,5' is 3.5"),
        (["0,123", "1,234"], [0.123, 1.234], "'0,123' is 0.123"),
        (["1,234", "12.5"], [1234, 12.5], "'1,234' is 1234"),
        (["1.234", "12,5"], [1234, 12.5], "'1.234' is 1234"),
        (["1,234,567", "1,234"], [1234567, 1234], "'1,234,567' is 1234567"),
        (["1.234.567", "1.234"], [1234567, 1234], "'1.234.567' is 1234567"),
        (["12,34,567", "1,00,000"], [1234567, 100000], "'12,34,567' is 1234567"),
        (["950", "1,050", "12,000"], [950, 1050, 12000], "'1,050' is 1050"),  # decimals would be 1,05 or 950,000
        (["1 234", "5\u202f678,5"], [1234, 5678.5], "'1 234' is 1234"),
        (["1'234.5", "2\u2019000"], [1234.5, 2000], '"1\'234.5" is 1234.5'),
        (["(5)", "6", "7"], [-5, 6, 7], "'(5)' is -5"),
        (["007.5", "1.5"], [7.5, 1.5], ""),
        (["-05", "07"], [-5, 7], ""),
        (["1.234", "2.345"], [1.234, 2.345], ""),
        (["20200131", "20200201"], [20200131, 20200201], "--dates=c reads them as dates"),
        (["20200131", "20201301"], [20200131, 20201301], ""),
        (["9007199254740993", "1"], [9007199254740992, 1], "whole numbers above 2^53 lose digits"),
        (["5'11\"", "6'", "5\u20320\u2033"], [71, 72, 60], "'5\\'11\"' is 71"),
        (["5 ft 7 in", "6ft 1.5in", ""], [67, 73.5, np.nan], "'6ft 1.5in' is 73.5"),
        (["2", "3/4", "1 1/2", "2-1/4", "1\u00bd"], [2, 0.75, 1.5, 2.25, 1.5], "'3/4' is 0.75"),
        (["37\u00b015'S", "40\u00b030'36\"N"], [-37.25, 40.51], '"37\u00b015\'S" is -37.25'),
        (
            ["60.1 [55.2-64.0]", "5.2 \u00b1 0.3", "0.4 (0.1, 0.9)"],
            [60.1, 5.2, 0.4],
            "'60.1 [55.2-64.0]' has a flag, which is left out (--categorical=c keeps it)",
        ),
        (["45 Lac", "1.2 Cr"], [4.5e6, 1.2e7], "'1.2 Cr' is 12000000"),
    ],
)
def test_numbers(cells: list[str], values: list[float], note: str) -> None:
    column = _infer(cells)
    assert (column.kind, column.note) == ("number", note)
    np.testing.assert_array_equal(_parse(cells, column), values)


@pytest.mark.parametrize(
    ("cells", "values", "date_format"),
    [
        (["2020-01-31", "1969-12-31"], ["2020-01-31", "1969-12-31"], "%Y-%m-%d"),
        (["2020/1/5", "2020/12/31"], ["2020-01-05", "2020-12-31"], "%Y/%m/%d"),
        (["3/4/2020", "13/4/2020"], ["2020-04-03", "2020-04-13"], "%d/%m/%Y"),
        (["3/4/2020", "3/13/2020"], ["2020-03-04", "2020-03-13"], "%m/%d/%Y"),
        (["3.4.2020", "4.4.2020"], ["2020-04-03", "2020-04-04"], "%d.%m.%Y"),
        (["12.31.2020", "1.2.2020"], ["2020-12-31", "2020-01-02"], "%m.%d.%Y"),
        (["Jan 3 2020", "February 4 2020"], ["2020-01-03", "2020-02-04"], "%b %d %Y"),
        (["3 January 2020", "4 May 2020"], ["2020-01-03", "2020-05-04"], "%d %b %Y"),
        (["20-Jan-2020", "3-Feb-2020"], ["2020-01-20", "2020-02-03"], "%d-%b-%Y"),
        (["3-Jan-20", "4-Feb-99"], ["2020-01-03", "1999-02-04"], "%d-%b-%y"),
        (["11/20/01", "1/2/99"], ["2001-11-20", "1999-01-02"], "%m/%d/%y"),
        (["Friday, January 3, 2020"], ["2020-01-03"], "%a, %b %d, %Y"),
        (["Jan 2020", "Feb 2020"], ["2020-01-01", "2020-02-01"], "%b %Y"),
        (["2009-10", "2010-12"], ["2009-10-01", "2010-12-01"], "%Y-%m"),
        (["2009H1", "2010H2"], ["2009-01-01", "2010-07-01"], "%YH%h"),
        (["2009-S2", "2010-S1"], ["2009-07-01", "2010-01-01"], "%Y-S%h"),
        (["2020-01-31 10:00 EST", "2020-07-31 10:00 EDT"], ["2020-01-31T15:00", "2020-07-31T14:00"], "%Z"),
        (
            ["2/1/2018", "5/1/2018", "7/1/2019", "11/1/2019", "12/1/2020", "7/1/2020"],  # of months, and not of January
            ["2018-02-01", "2018-05-01", "2019-07-01", "2019-11-01", "2020-12-01", "2020-07-01"],
            "%m/%d/%Y",
        ),
        (["1/13/2020 3:05 PM"], ["2020-01-13T15:05"], "%m/%d/%Y %I:%M %p"),
        (
            ["2020-01-31T10:00:00+02:00", "2020-01-31T10:00:00.5Z"],
            ["2020-01-31T08:00", "2020-01-31T10:00:00.500"],
            "%z",
        ),
        (["Sat, 04 Jan 2020 10:00:00 GMT"], ["2020-01-04T10:00"], "%a, %d %b %Y %H:%M:%S %Z"),
        (["Fri Jan  3 10:00:00 2020"], ["2020-01-03T10:00"], "%a %b %d %H:%M:%S %Y"),
        (["2020-03-29 02:30", "", "NA"], ["2020-03-29T02:30", "NaT", "NaT"], "%Y-%m-%d %H:%M"),  # of no zone: no gap
    ],
)
def test_dates(cells: list[str], values: list[str], date_format: str) -> None:
    column = _infer(cells)
    assert column.kind == "date"
    assert date_format in column.date_format
    days = np.array(values, "datetime64[ms]") - np.datetime64("1970-01-01")
    np.testing.assert_allclose(_parse(cells, column), days / np.timedelta64(1, "D"), rtol=0, atol=2e-11)


def test_notes_show_how_a_date_is_read() -> None:
    assert _infer(["13/4/2020"]).note == "'13/4/2020' is 2020-04-13"
    cells = ["2020-01-01T10:00:00+02:00"]
    utc = "'2020-01-01T10:00:00+02:00' is 2020-01-01 08:00:00 UTC (--dates=c:local keeps the local clock)"
    assert _infer(cells).note == utc
    local = _infer(cells, forced=Forced("date", "local"))
    assert local.note == "'2020-01-01T10:00:00+02:00' is 2020-01-01 10:00:00 by the local clock"
    assert _infer(["2020-01-01", "?"]).note == "'?' is missing (1)"


@pytest.mark.parametrize(
    ("cells", "values", "note"),
    [
        (["10:35", "23:00"], [10 + 35 / 60, 23], "'10:35' is 10.58 hours"),
        (["7:05 PM", "12:00 am"], [19 + 5 / 60, 0], "'7:05 PM' is 19.08 hours"),
        (["7 PM", "8 AM"], [19, 8], "'7 PM' is 19 hours"),
        (["1:05:30", "2:00:00"], [1 + 5.5 / 60, 2], "'1:05:30' is 1.092 hours"),
        (["100:30:00", "-"], [100.5, NAN], "'100:30:00' is 100.5 hours; durations, as some are longer than a day"),
        (["1:30.5", "0:59.25"], [90.5 / 3600, 59.25 / 3600], "'1:30.5' is 0.02514 hours"),
    ],
)
def test_times(cells: list[str], values: list[float], note: str) -> None:
    column = _infer(cells)
    assert column.kind == "time"
    assert column.note.startswith(note)
    np.testing.assert_allclose(_parse(cells, column), values, rtol=1e-15)


@pytest.mark.parametrize(
    ("cells", "true", "false", "values"),
    [
        (["yes", "no", "no"], ("yes",), ("no",), [1, 0, 0]),
        (["Y", "N", "n", "n", ""], ("Y",), ("n", "N"), [1, 0, 0, 0, NAN]),
        (["ja", "NEIN"], ("ja",), ("NEIN",), [1, 0]),
        (["on ", "off"], ("on",), ("off",), [1, 0]),
        (["T", "F"], ("T",), ("F",), [1, 0]),
        (["TRUE", "TRUE"], ("TRUE",), ("False",), [1, 1]),
        (["TRUE", "FALSE", "NA"], ("TRUE",), ("FALSE",), [1, 0, NAN]),  # as R writes it
    ],
)
def test_booleans(cells: list[str], true: tuple[str, ...], false: tuple[str, ...], values: list[float]) -> None:
    column = _infer(cells)
    assert (column.kind, column.true, column.false) == ("boolean", true, false)
    np.testing.assert_array_equal(_parse(cells, column), values)


@pytest.mark.parametrize(
    ("cells", "values", "note"),
    [
        (["red", " blue", "red "], ["red", "blue", "red"], ""),
        (["None", "Gas", ""], ["None", "Gas", None], "'None' is a level (--na_values=None makes it missing)"),
        (["NA", "DE", "?"], ["NA", "DE", "?"], "'NA', '?' are levels (--na_values=NA makes it missing)"),
        (["yes", "no", "NA"], ["yes", "no", "NA"], "'NA' is a level (--na_values=NA makes it missing)"),
        (["NY", "ny", "LA"], ["NY", "ny", "LA"], "'NY', 'ny' are different levels"),
        (
            ["12345", "01234"],
            ["12345", "01234"],
            "digits with leading zeros, '01234' in row 1; --numeric=c reads numbers",
        ),
        (
            [" 01234", "12345 "],
            ["01234", "12345"],
            "digits with leading zeros, '01234' in row 0; --numeric=c reads numbers",
        ),
        (["12 @", "3 @"], ["12 @", "3 @"], ""),
        (["N", "N"], ["N", "N"], ""),
        (["true", "false", "maybe"], ["true", "false", "maybe"], ""),
        (["1", "x", "y"], ["1", "x", "y"], ""),
        (["12A", "12B", "3C"], ["12A", "12B", "3C"], ""),
        (["5V", "6W"], ["5V", "6W"], ""),  # more likely codes than volts and watts
        (["1,23,4", "5,6,7"], ["1,23,4", "5,6,7"], ""),  # groups of no language
        (["1st", "2nd", "1st"], ["1st", "2nd", "1st"], ""),
        (["Mon", "Tue"], ["Mon", "Tue"], ""),
        (["18-25", "26-35"], ["18-25", "26-35"], ""),
        (["1/2", "3/4"], ["1/2", "3/4"], ""),
        (["3:1", "2:0"], ["3:1", "2:0"], ""),
        (["192.168.0.1", "10.0.0.1"], ["192.168.0.1", "10.0.0.1"], ""),
        (["infant", "inf km"], ["infant", "inf km"], ""),
    ],
)
def test_categories(cells: list[str], values: list[str | None], note: str) -> None:
    column = _infer(cells)
    assert (column.kind, column.note) == ("category", note)
    assert _parse(cells, column) == values


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (
            ["1", "2", "x"],
            r"column 'c' of F\.csv must hold numbers, but 1 values are text, the first 'x' in row 2 .*na_v",
        ),
        (["5-", "6", "7"], "the first '5-' in row 0"),
        (["5-", "6-", "7"], "the first '5-' in row 0"),
        (["1_000", "2_000"], "the first '1_000' in row 0"),
        (["\uff11\uff12", "\uff11\uff13"], "2 values are text, the first '\uff11\uff12' in row 0"),
        (["\u0663", "4", "5"], "the first '\u0663' in row 0"),
        (["1,234", "2,345"], r"'1,234' in row 0 .*may be 1234 or 1\.234; give --numeric=c:point .* --numeric=c:comma"),
        (["$1,234", "$345"], r"'\$1,234' in row 0 .*may be 1234 or 1\.234"),
        (["1.050", "950"], r"'1\.050' in row 0 .*may be 1\.05 or 1050"),
        (["1.5", "2,5"], r"decimal points and decimal commas, '1\.5' in row 0 and '2,5' in row 1"),
        (["1.234", "1,234"], "decimal points and decimal commas"),
        (["5 km", "3"], "different units"),
        (["5 km", "3 mi"], "2 different units, such as '5 km' in row 0 and '3 mi' in row 1"),
        (["10%", "0.1"], "different units"),
        (["5m", "3h"], "different units"),
        (["\u20ac110.5M", "\u20ac77kg"], "two units, such as '\u20ac110.5M' in row 0"),
        (
            ["3/4/2020", "5/6/2020"],
            r"'3/4/2020' in row 0 .*may be 2020-04-03 or 2020-03-04; give --dates=c:dmy .*c:mdy",
        ),
        (["5-5-2020", "3-4-2020"], "'3-4-2020' in row 1"),  # a date that differs is shown
        (["1/1/2020"], "which may be"),
        ([f"{day}/1/2020" for day in range(1, 13)], "which may be"),
        (["500 Cr", "300", "200 Cr"], "numbers of 2 different units"),
        (["1/2", "3/4", "3", "4", "5", "6"], "but 2 values are text, the first '1/2'"),
        (
            ["13/4/2020", "3/16/2020", "1/1/2020"],
            r"dates \(%d/%m/%Y\), but 1 values are not, the first '3/16/2020' in row 1",
        ),
        (["2020-01-01", "1/2/2020", "2020-01-03"], "the first '1/2/2020' in row 1"),
        (["2020-01-01", "2020-02-30", "2020-01-03"], "the first '2020-02-30' in row 1"),
        (
            ["2020-01-01 10:00", "2020-01-02"],
            r"one format, but has '2020-01-01 10:00' in row 0 .*'2020-01-02' in row 1",
        ),
        (["13/2/20", "1/2/45"], "years of two digits, such as '13/2/20' in row 0 .*2020-02-13; give --dates=c:dmy"),
        (["01/02/03", "04/05/06"], "2001-02-03 or 2003-02-01 or 2003-01-02"),
        ([*(f"2020010{day}" for day in range(1, 10)), "20201305"], "the first '20201305' in row 9"),
        (["2009-10", "2010-11"], "may be months or seasons"),
        (
            ["2020-W53", "2021-W53", "2021-W52"],
            r"dates \(%Y-W%V\), but 1 values are not, the first '2021-W53' in row 1",
        ),
        (["2020-W01", "2020-W02", "2020-W00"], "the first '2020-W00' in row 2"),
        (["3rd of January 2020", "4th of May 2020"], "seems to hold dates.*no known format; give --dates=c:FORMAT"),
        (["2020-01-01 10:00 AMT", "2020-01-02 10:00 AMT"], "no known format"),
        (["3. März 2020", "4. Mai 2020"], "seems to hold dates, such as '3. März 2020'"),
        (["janv. 2010", "févr. 2010"], "seems to hold dates"),
        (["1 de enero de 2020", "05-Okt-2020"], "seems to hold dates"),
        (["25:61", "10:35", "10:36"], r"times \(%H:%M\), but 1 values are not, the first '25:61' in row 0"),
        (["1:05", "1:05:30"], r"one format, but has '1:05:30' in row 1 .* and '1:05' in row 0"),
    ],
)
def test_what_is_refused(cells: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        _infer(cells)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("cells", "forced", "kind", "values"),
    [
        (["1,234", "2,345"], Forced("number", "point"), "number", [1234, 2345]),
        (["1,234", "2,345"], Forced("number", "comma"), "number", [1.234, 2.345]),
        (["1.234", "2.345"], Forced("number", "comma"), "number", [1234, 2345]),
        (["01234", "12345"], Forced("number"), "number", [1234, 12345]),
        (["12 apples", "3 apples"], Forced("number"), "number", [12, 3]),
        (["7", "8"], Forced("number"), "number", [7, 8]),
        (["1.0", "2", "x", ""], Forced("category"), "category", ["1", "2", "x", None]),
        (["2020-01-01", "x"], Forced("category"), "category", ["2020-01-01", "x"]),
        (["3/4/2020", "5/6/2020"], Forced("date", "dmy"), "date", ["2020-04-03", "2020-06-05"]),
        (["3/4/2020", "5/6/2020"], Forced("date", "mdy"), "date", ["2020-03-04", "2020-05-06"]),
        (["3/4/20", "5/6/70"], Forced("date", "dmy"), "date", ["2020-04-03", "1970-06-05"]),
        (["20/3/4"], Forced("date", "ymd"), "date", ["2020-03-04"]),
        (["20200131"], Forced("date"), "date", ["2020-01-31"]),
        (["1999", "2000"], Forced("date"), "date", ["1999-01-01", "2000-01-01"]),
        (["2009-10", "2010-11"], Forced("date"), "date", ["2009-10-01", "2010-11-01"]),
        (["31122020"], Forced("date", "%d%m%Y"), "date", ["2020-12-31"]),
        (["at 7h on 3.4.2020"], Forced("date", "at %Hh on %d.%m.%Y"), "date", ["2020-04-03T07"]),
    ],
)
def test_what_the_user_says(cells: list[str], forced: Forced, kind: str, values: list[Any]) -> None:
    column = _infer(cells, forced=forced, name="id")
    assert column.kind == kind
    found = _parse(cells, column)
    if kind == "date":
        days = (np.array(values, "datetime64[h]") - np.datetime64("1970-01-01")) / np.timedelta64(1, "D")
        np.testing.assert_allclose(found, days, rtol=0, atol=2e-11)
    else:
        assert found == values


@pytest.mark.parametrize(
    ("cells", "forced", "message"),
    [
        (["1", "a", "b"], Forced("number"), "must hold numbers, but 2 values are text, the first 'a' in row 1"),
        (["a", "b"], Forced("number"), "the first 'a' in row 0"),
        (["5 km", "3 apples"], Forced("number"), "different units"),
        (["3,5", "2"], Forced("number", "point"), "the first '3,5' in row 0"),
        (["3/4/2020", "5/6/2020"], Forced("date"), "--dates=c:dmy"),
        (["43831", "43832"], Forced("date"), "'43831' in row 0 .* in no known format"),
        (["red", "blue"], Forced("date"), "must hold dates, as --dates says"),
        (["20200131", "20201301"], Forced("date"), "the first '20201301' in row 1"),
        (["3.4.2020", "x"], Forced("date", "%d.%m.%Y"), "the first 'x' in row 1"),
        (["1.2.2020"], Forced("date", "ymd"), "no known format"),
    ],
)
def test_what_the_user_says_and_is_not_so(cells: list[str], forced: Forced, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _infer(cells, forced=forced)


@pytest.mark.parametrize(
    ("name", "is_id"),
    [
        *(
            (name, True)
            for name in ("id", "ID", "Id", "PassengerId", "customer_id", "user id", "index", "row", "Unnamed: 0")
        ),
        *((name, True) for name in ("RowID", "uuid", "row_number", "x.id", "itemID")),
        *(
            (name, False)
            for name in ("paid", "PAID", "valid", "period", "grid", "price_index", "row_height", "COVID", "idea")
        ),
    ],
)
def test_ids_by_name(name: str, is_id: bool) -> None:
    for cells in (["1", "2", "3"], ["A-1", "B-2", "C-3"], ["01", "02", "03"]):
        assert (_infer(cells, name=name).kind == "ignored") == is_id
    assert _infer(["1", "2", "2"], name=name).kind == "number"  # not all different
    assert _infer(["1.5", "2.5", "3"], name=name).kind == "number"
    assert infer(name, pa.array([5, 6, 7]), where="F").kind == ("ignored" if is_id else "number")


def test_levels_and_texts() -> None:
    assert _infer([f"n{i % 50}" for i in range(100)]).kind == "category"
    assert _infer([f"n{i % 51}" for i in range(102)]).kind == "text"
    assert _infer([f"n{i}" for i in range(19)]).kind == "category"  # all different, but few
    column = _infer([f"n{i}" for i in range(20)])
    assert (column.kind, column.note) == ("text", "20 different texts")
    assert _parse(["n1", ""], column) == ["n1", None]
    assert _infer(["", "NaN", None]) == Column("c", "ignored", note="every value is missing")
    assert _infer(["NA", "-"]).kind == "ignored"


def test_na_values() -> None:
    assert _parse(["-999", "-999.0", "1"], _infer(["-999", "1"]), na_values=["-999"])[2:] == [1]
    found = _parse(["-999", "-999.0", "1", "2"], _infer(["-999", "1"], na_values=["-999"]), na_values=["-999"])
    np.testing.assert_array_equal(found, [NAN, NAN, 1, 2])
    column = _infer(["None", "a"], na_values=["None"])
    assert column.note == ""
    assert _parse(["None", "a"], column, na_values=["None"]) == [None, "a"]
    assert _infer(["yes", "no", "NA"], na_values=["NA"]).kind == "boolean"
    assert _infer(["1", "2", "x"], na_values=["x"]).kind == "number"


def test_misfits_may_be_left_to_the_caller() -> None:
    for cells, kind in (
        (["1", "2", "x"], "number"),
        (["2020-01-01", "soon", "2020-01-03"], "date"),
        (["10:30", "late", "11:30"], "time"),
    ):
        assert _infer(cells, is_tolerant=True).kind == kind
        with pytest.raises(ValueError, match="but 1 values are"):
            _infer(cells)
    with pytest.raises(ValueError, match="which may be"):
        _infer(["3/4/2020", "5/6/2020", "x"], is_tolerant=True)


@pytest.mark.parametrize(
    ("columns", "delimiter", "expected"),
    [
        ({"a": ["1,234", "2,345"]}, ",", 1234),
        ({"a": ["1,234", "2,345"], "b": ["3,5", "4,5"]}, ",", 1.234),
        ({"a": ["1,234", "2,345"], "b": ["3,5", "4,5"]}, ";", 1.234),
        ({"a": ["1.234", "2.345"], "b": ["3,5", "4,5"]}, ";", 1234),
        ({"a": ["1.234", "2.345"], "b": ["3.5", "4.5"]}, ";", 1.234),
        ({"a": ["1,234", "2,345"], "b": ["3.5", "4.5"]}, "\t", 1234),
        ({"a": ["1.234", "2.345"]}, "\t", 1.234),
        ({"a": ["1.234", "2.345"]}, ",", 1.234),
        ({"a": ["950", "1.050"]}, ";", 950),
        ({"a": ["1.234", "2.345"]}, ";", None),
        ({"a": ["1,234", "2,345"]}, ";", None),
        ({"a": ["1,234", "2,345"]}, "", None),
        ({"a": ["1,234", "2,345"], "b": ["3.5", "4.5"], "c": ["3,5", "4,5"]}, ";", None),
        ({"a": ["1.234", "2.345"], "b": ["3,5", "4,5"]}, ",", None),
        ({"a": ["950", "1.050"]}, ",", None),
        ({"a": ["kr. 1.234", "kr. 2.345"], "b": ["3.5", "4.5"]}, ",", None),  # money has two decimals
    ],
)
def test_columns_decide_each_others_decimal_sign(
    columns: dict[str, list[str]], delimiter: str, expected: float | None
) -> None:
    for order in (list(columns), list(columns)[::-1]):
        table = pa.table({name: columns[name] for name in order})
        if expected is None:
            with pytest.raises(ValueError, match=r"column 'a' of F has numbers such as .* which may be"):
                infer_columns(table, where="F", delimiter=delimiter)
        else:
            found = infer_columns(table, where="F", delimiter=delimiter)
            assert list(found) == order
            assert parse(table["a"], found["a"], where="F")[0] == expected
    said = infer_columns(table, where="F", delimiter=delimiter, forced={"a": Forced("number", "point")})
    assert parse(table["a"], said["a"], where="F")[1] in (2345, 2.345, 1.05, 950)


def test_types_of_other_sources() -> None:
    moment = datetime.datetime(2020, 1, 1, 12)
    columns = {
        "i": pa.array([5, None, 5]),
        "f": pa.array([0.5, 1.5, NAN], pa.float32()),
        "b": pa.array([True, None, False]),
        "d": pa.array([moment, None, moment]),
        "t": pa.array([datetime.time(7, 30), None, datetime.time(8)]),
        "l": pa.array([datetime.timedelta(hours=30), None, datetime.timedelta(0)]),
        "k": pa.array(["u", "None", "u"]).dictionary_encode(),
        "c": pa.array([3, 4, 3]).dictionary_encode(),
        "n": pa.nulls(3),
        "m": pa.nulls(3, pa.int64()),
        "z": pa.array([NAN] * 3),
    }
    table = pa.table(columns)
    found = infer_columns(table, where="F")
    kinds = [column.kind for column in found.values()]
    assert kinds == ["number", "number", "boolean", "date", "time", "time", "category", "category", *["ignored"] * 3]
    assert found["l"].note == "durations in hours"
    assert "'None' is a level" in found["k"].note
    values = {name: parse(table[name], column, where="F") for name, column in found.items() if column.kind != "ignored"}
    np.testing.assert_array_equal(values["i"], [5, NAN, 5])
    np.testing.assert_array_equal(values["b"], [1, NAN, 0])
    np.testing.assert_array_equal(values["d"], [18262.5, NAN, 18262.5])
    np.testing.assert_array_equal(values["t"], [7.5, NAN, 8])
    np.testing.assert_array_equal(values["l"], [30, NAN, 0])
    assert values["k"].tolist() == ["u", "None", "u"]
    assert values["c"].tolist() == ["3", "4", "3"]
    for kind in (pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.binary()):
        with pytest.raises(ValueError, match=r"column 'a' of F must hold numbers, texts.*--ignore=a"):
            infer("a", pa.nulls(2, kind), where="F")
        assert infer("a", pa.nulls(2, kind), where="F", forced=Forced("ignored")).kind == "ignored"


def test_categories_of_many_levels_are_text() -> None:
    for count, kind in ((50, "category"), (51, "text")):
        values = pa.array([f"n{i % count}" for i in range(120)]).dictionary_encode()
        assert infer("c", values, where="F").kind == kind
        assert infer("c", values, where="F", forced=Forced("category")).kind == "category"
    assert infer("c", pa.array([f"n{i}" for i in range(20)]).dictionary_encode(), where="F").kind == "text"
    assert infer("id", pa.array(["u", "v"]).dictionary_encode(), where="F").kind == "ignored"


def test_flags_and_types() -> None:
    assert infer("a", pa.array([True, False]), where="F", forced=Forced("number")).kind == "number"
    column = infer("a", pa.array([1, 2]), where="F", forced=Forced("category"))
    assert parse(pa.array([1.0, 2.0, None]), column, where="F").dropna().tolist() == ["1", "2"]
    column = infer("a", pa.array([20200131]), where="F", forced=Forced("date"))
    assert parse(pa.array([20200131]), column, where="F")[0] == 18292
    with pytest.raises(ValueError, match="must hold numbers, as the flag says, got type date32"):
        infer("a", pa.array([datetime.date(2020, 1, 1)]), where="F", forced=Forced("number"))


def test_large_columns_take_no_longer_than_they_should() -> None:
    """A million cells of few levels, and a hundred thousand that differ: no loop over cells."""
    cells = pa.array(["$1,000", "$20.5"]).take(pa.array(np.arange(1_000_000) % 2))
    start = time.process_time()
    column = infer("c", cells, where="F")
    assert parse(cells, column, where="F").sum() == 500_000 * 1020.5
    for gap in (" " * 2000, "\u00a0" * 2000):  # within a text that nearly is a number
        assert _infer([f"5{gap}x({i}" for i in range(9)]).kind == "category"
    assert time.process_time() - start < 10  # 2 s


def test_days_in_digits_may_begin_below_many_gaps() -> None:
    cells = [""] * 1500 + [f"202001{day:02d}" for day in range(1, 29)]
    assert _infer(cells).date_format == "%Y%m%d"
    assert _infer(cells[1400:]) == _infer(cells)


@pytest.mark.parametrize(
    "cells",
    [
        ["1,5", "2,75", "-3,0", "12"],
        ["0,500", "0,125"],
        ["1234,567", "1,234"],
        [" 1,5", "2,25 ", ""],
        ["1,5", "N/A", "NA", "2,5"],
        ["1,10", "1,1"],
        ["05,2020", "06,2021"],
        ["1,234", "2,345", "1,5e3"],
    ],
)
def test_decimal_commas_are_read_alike_in_both_ways(cells: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    values = pa.chunked_array([pa.array(cells * 30), pa.array(cells * 5)])
    table = pa.table({"c": values, "d": pa.array(["0,5", "1,5"] * (len(values) // 2) + ["2,5"] * (len(values) % 2))})
    found: list[tuple[Any, list[Any]]] = []
    for is_fast in (True, False):
        if not is_fast:
            monkeypatch.setattr("gpflow_deep_runs.data.table.inference._with_commas", lambda *_: None)
        try:
            columns = infer_columns(table, where="x.csv", delimiter=";")
            found.append((columns, parse(values, columns["c"], where="x.csv").tolist()))
        except ValueError as error:
            found.append((str(error), []))
    assert found[0][0] == found[1][0]
    np.testing.assert_array_equal(found[0][1], found[1][1])
