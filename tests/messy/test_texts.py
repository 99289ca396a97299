"""Columns of text: levels, yes and no, codes, identifiers, and too many values."""

from pathlib import Path

import pytest

from tests.messy.reading import Case, Refused, check, column, refused, write

NAN = float("nan")


def levels(*cells: str, known: tuple[str, ...] = ()) -> dict[str, list[float]]:
    return {f"a={level}": [float(cell == level) for cell in cells] for level in sorted({*cells, *known})}


def twice(*cells: str) -> list[str]:
    return [*cells, *cells]


CASES = [
    Case("no text", ["red", "", "blue", "red"], Refused(r"'a' \(1\).*--missing"), {"missing": "error"}),
    Case(
        "no text, imputed",
        ["red", "", "blue", "red"],
        {"a=blue": [0, NAN, 1, 0], "a=red": [1, NAN, 0, 1], "a=missing": [0, 1, 0, 0]},
        {"missing": "impute"},
    ),
    Case(
        "None is missing",
        ["None", "Attached", "None", "Built-in"],
        {"a=Attached": [NAN, 1, NAN, 0], "a=Built-in": [NAN, 0, NAN, 1], "a=missing": [1, 0, 1, 0]},
        {"na_values": ("None",), "missing": "impute"},
    ),
    Case("yes and no as levels", ["yes", "no", "yes"], levels("yes", "no", "yes"), {"categorical": ("a",)}),
    Case("true and 1", ["true", "1", "false", "0"], levels("true", "1", "false", "0")),
    Case("one letter and quotes", ['"', "'", '"'], levels('"', "'", '"')),
    Case("line breaks", ["up\ndown", "left\r\nright", "up\ndown"], levels("up\ndown", "left\r\nright", "up\ndown")),
    Case("delimiters", ["a,b", "c;d", "a,b"], levels("a,b", "c;d", "a,b")),
    Case("other scripts", ["größe", "日本", "😀", "größe"], levels("größe", "日本", "😀", "größe")),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_texts(case: Case, tmp_path: Path) -> None:
    check(tmp_path, case)


def test_a_hundred_thousand_texts(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", column([f"word {i}" for i in range(100_000)]))
    refused(path, r"'a'.*100000.*--ignore=a")
