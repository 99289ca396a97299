"""Columns of text: levels, yes and no, codes, identifiers, and too many values."""

from pathlib import Path

import pytest

from tests.messy.reading import Case, Refused, check, column, read, refused, write

NAN = float("nan")


def levels(*cells: str, known: tuple[str, ...] = ()) -> dict[str, list[float]]:
    return {f"a={level}": [float(cell == level) for cell in cells] for level in sorted({*cells, *known})}


def twice(*cells: str) -> list[str]:
    return [*cells, *cells]


CASES = [
    Case("levels", twice("red", "blue", "green"), levels(*twice("red", "blue", "green"))),
    Case("no text", ["red", "", "blue", "red"], Refused(r"'a' \(1\).*--missing")),
    Case(
        "no text, imputed",
        ["red", "", "blue", "red"],
        {"a=blue": [0, NAN, 1, 0], "a=red": [1, NAN, 0, 1], "a=missing": [0, 1, 0, 0]},
        {"missing": "impute"},
    ),
    Case("NA is a level", ["NA", "NO", "CH", "NA"], levels("NA", "NO", "CH", "NA")),
    Case(
        "None is missing",
        ["None", "Attached", "None", "Built-in"],
        {"a=Attached": [NAN, 1, NAN, 0], "a=Built-in": [NAN, 0, NAN, 1], "a=missing": [1, 0, 1, 0]},
        {"na_values": ("None",), "missing": "impute"},
    ),
    Case(
        "no second", ["yes", "no", "", "yes"], {"a": [1, 0, NAN, 1], "a=missing": [0, 0, 1, 0]}, {"missing": "impute"}
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


def test_rare_levels_are_one(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", column(["x"] * 5 + ["y"] * 4 + ["p", "q"]))
    found = read(path, rare=3)
    del found["y"]
    assert list(found)[:2] == ["a=x", "a=y"]
    assert list(found.values()) == [[1.0] * 5 + [0.0] * 6, [0.0] * 5 + [1.0] * 4 + [0.0] * 2, [0.0] * 9 + [1.0] * 2]


def test_many_texts_name_the_flags(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", column([f"word {i}" for i in range(80)]))
    refused(path, r"'a'.*80.*--ignore=a.*--categorical=a")


def test_a_hundred_thousand_texts(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", column([f"word {i}" for i in range(100_000)]))
    refused(path, r"'a'.*100000.*--ignore=a")


@pytest.mark.parametrize("name", ["Id", "PassengerId", "row", "customer_id", "index"])
def test_row_numbers_are_left_out(name: str, tmp_path: Path) -> None:
    content = f"{name},b,y\n3,1.5,1\n1,2.5,2\n2,4.5,4\n"
    path = write(tmp_path, "t.csv", content.encode())
    assert list(read(path)) == ["b", "y"]
    assert read(path, numeric=(name,))[name] == [3.0, 1.0, 2.0]


def test_whole_numbers_that_are_no_row_numbers_stay(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", b"humidity,paid,y\n3,9,1\n1,8,2\n2,7,4\n")
    assert list(read(path)) == ["humidity", "paid", "y"]


def test_levels_that_make_one_name(tmp_path: Path) -> None:
    """`a` with level b=c and `a=b` with level c would both be a=b=c."""
    path = write(tmp_path, "t.csv", b"a,a=b,y\nb=c,c,1\nx,d,2\nx,c,4\n")
    refused(path, "a=b=c")


def test_a_level_called_missing(tmp_path: Path) -> None:
    found = read(write(tmp_path, "t.csv", b"a,y\nmissing,1\nx,2\n,4\n"), missing="impute")
    assert list(found) == ["a=missing", "a=x", "a=(missing)", "y"]
    assert found["a=(missing)"] == [0.0, 0.0, 1.0]
