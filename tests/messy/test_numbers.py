"""Columns that are numbers to a reader: each is read as these numbers, or refused with a line that helps."""

from pathlib import Path

import pytest

from tests.messy.reading import Case, Refused, check

NAN = float("nan")
IMPUTE = {"missing": "impute"}


def levels(*cells: str) -> dict[str, list[float]]:
    """A column of zeros and ones for each level."""
    return {f"a={level}": [float(cell == level) for cell in cells] for level in sorted(set(cells))}


BOTH = Refused(r"'a'.*1234.*1\.234|'a'.*1\.234.*1234")


def is_missing(*gone: int) -> list[float]:
    return list(map(float, gone))


CASES = [
    Case("plain", ["1", "-2.5", "+3", "1e3", "4E-2", ".5", "7."], {"a": [1, -2.5, 3, 1000, 0.04, 0.5, 7]}),
    Case(
        "last digit",
        ["0.1234567890123456789", "9007199254740993", "1.7976931348623157e308"],
        {"a": [0.1234567890123456789, 9007199254740993.0, 1.7976931348623157e308]},
    ),
    Case("spaces", [" 1 ", "2\t", "\u00a03"], {"a": [1, 2, 3]}),
    Case("decimal commas", ["1,5", "-2,25", "3"], {"a": [1.5, -2.25, 3]}, delimiter=";"),
    Case("decimal commas in quotes", ["1,5", "-2,25", "3,125"], {"a": [1.5, -2.25, 3.125]}),
    Case("points and decimal comma", ["1.234,5", "12.345.678,25", "7"], {"a": [1234.5, 12345678.25, 7]}, delimiter=";"),
    Case("commas and decimal point", ["1,234.5", "12,345,678.25", "7"], {"a": [1234.5, 12345678.25, 7]}),
    Case("commas twice", ["1,234,567", "1,234", "999"], {"a": [1234567, 1234, 999]}),
    Case("only 1,234 between commas", ["1,234", "5,678", "9,012"], {"a": [1234, 5678, 9012]}),
    Case("only 1.234 between semicolons", ["1.234", "5.678", "9.012"], BOTH, delimiter=";"),
    Case("only 1,234 between tabs", ["1,234", "5,678", "9,012"], BOTH, delimiter="\t"),
    Case("only 1.234 between semicolons", ["1.234", "5.678", "9.012"], BOTH, delimiter=";"),
    Case(
        "said to be points", ["1,234", "5,678"] * 2, {"a": [1234, 5678] * 2}, {"numeric": ("a:point",)}, delimiter=";"
    ),
    Case(
        "said to be commas", ["1,234", "5,678"] * 2, {"a": [1.234, 5.678] * 2}, {"numeric": ("a:comma",)}, delimiter=";"
    ),
    Case(
        "only 1,234 beside points",
        ["1,234", "5,678", "9,012"],
        {"a": [1234, 5678, 9012]},
        others={"b": ["0.5", "1.5", "2.25"]},
    ),
    Case(
        "only 1.234 beside commas",
        ["1.234", "5.678", "9.012"],
        {"a": [1234, 5678, 9012]},
        others={"b": ["0,5", "1,5", "2,25"]},
        delimiter=";",
    ),
    Case("wrong groups", ["1,23,4", "5,6,7", "8,9,0"], levels("1,23,4", "5,6,7", "8,9,0")),
    Case("groups of ten thousands", ["12,34,567", "1,00,000", "23,45,678"], {"a": [1234567, 100000, 2345678]}),
    Case("apostrophes", ["1'234.5", "45'000", "7"], {"a": [1234.5, 45000, 7]}),
    Case("curly apostrophes", ["1’234.5", "45’000", "7"], {"a": [1234.5, 45000, 7]}),
    Case("spaces between thousands", ["1 234", "45 000 000", "7"], {"a": [1234, 45000000, 7]}),
    Case(
        "no-break spaces between thousands",
        ["1\u00a0234,5", "45\u202f000", "7"],
        {"a": [1234.5, 45000, 7]},
        delimiter=";",
    ),
    Case("percent", ["1%", "12.5%", "-3 %"], {"a": [1, 12.5, -3]}),
    Case("dollars", ["$3.50", "-$1,234.50", "$0.99"], {"a": [3.5, -1234.5, 0.99]}),
    Case("dollars after the sign", ["$3.50", "$-1,234.50", "$0.99"], {"a": [3.5, -1234.5, 0.99]}),
    Case("euros", ["3,50 €", "1.234,50 €", "-0,99 €"], {"a": [3.5, 1234.5, -0.99]}, delimiter=";"),
    Case("code of a currency", ["EUR 12.5", "EUR 7.25", "EUR 1,000.00"], {"a": [12.5, 7.25, 1000]}),
    Case("two currencies", ["$5.50", "€6.50", "$7.50"], Refused("'a'")),
    Case("two units", ["5 kg", "300 g", "7 kg"], Refused("'a'")),
    Case("percent and none", ["5%", "7", "8%", "9%"], Refused("'a'")),
    Case("K and M", ["5K", "3M", "2K"], {"a": [5e3, 3e6, 2e3]}),
    Case("below detection", ["<0.5", "1.5", "2.5", "3.5"], Refused("'a'.*<0.5.*row 0")),
    Case(
        "below detection is missing",
        ["<0.5", "1", "2", "3"],
        {"a": [NAN, 1, 2, 3], "a=missing": is_missing(1, 0, 0, 0)},
        {"na_values": ("<0.5",), **IMPUTE},
    ),
    Case("negative in brackets", ["(1,234.50)", "7.25", "8.5"], {"a": [-1234.5, 7.25, 8.5]}),
    Case("a minus sign", ["\u22125", "7.5", "\u22120.5"], {"a": [-5, 7.5, -0.5]}),
    Case("infinite", ["1", "inf", "2"], Refused("'a'")),
    Case("too large", ["1", "1e400", "2"], Refused("'a'")),
    Case("a typo", ["1", "2", "3O", "4"], Refused("'a'.*3O.*row 2")),
    Case("underscores", ["1_000", "2_000", "3_000"], Refused("'a'.*1_000.*row 0")),
    Case("hexadecimal", ["0x10", "0x20", "0x10"], levels("0x10", "0x20", "0x10")),
    Case("fractions", ["1/2", "3/4", "1/2"], levels("1/2", "3/4", "1/2")),
    Case("versions", ["1.2.3", "1.10.0", "1.2.3"], levels("1.2.3", "1.10.0", "1.2.3")),
    Case("addresses", ["10.0.0.1", "10.0.0.2", "10.0.0.1"], levels("10.0.0.1", "10.0.0.2", "10.0.0.1")),
    Case("codes", ["01234", "00501", "90210"], levels("01234", "00501", "90210")),
    Case("codes as numbers", ["01234", "00501", "90210"], {"a": [1234, 501, 90210]}, {"numeric": ("a",)}),
    Case("zeros in front of points", ["0.5", "0", "00.75"], {"a": [0.5, 0, 0.75]}),
    Case("numbers as levels", ["1", "2", "10"], levels("1", "2", "10"), {"categorical": ("a",)}),
    Case("1 and 1.0 as levels", ["1", "1.0", "2"], levels("1", "1", "2"), {"categorical": ("a",)}),
    Case("ranges", ["18-24", "25-34", "18-24"], levels("18-24", "25-34", "18-24")),
    Case("missing", ["1", "", "3"], Refused(r"missing.*'a' \(1\).*--missing")),
    Case(
        "all kinds of missing",
        ["1", "", "NA", "n/a", "NaN", "null", "None", "-", "?", "#N/A", "\\N", "<NA>", " ", "--", "."],
        {"a": [1, *[NAN] * 14], "a=missing": is_missing(0, *[1] * 14)},
        IMPUTE,
    ),
    Case(
        "-999",
        ["1", "-999", "3", "-999.0"],
        {"a": [1, NAN, 3, NAN], "a=missing": is_missing(0, 1, 0, 1)},
        {"na_values": ("-999",), **IMPUTE},
    ),
    Case("nothing", ["", "", ""], {}, others={"b": ["0.5", "1.5", "2.25"]}),
    Case("nothing, imputed", ["", "NA", ""], {}, IMPUTE, others={"b": ["0.5", "1.5", "2.25"]}),
    Case("constant", ["7", "7", "7"], {"a": [7, 7, 7]}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_numbers(case: Case, tmp_path: Path) -> None:
    check(tmp_path, case)
