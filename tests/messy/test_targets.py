"""Targets, and flags that name columns: what a user chooses is checked before anything else."""

from pathlib import Path
from typing import Any

import pytest

from gpflow_deep_runs.data.table.spec import TableSpec
from gpflow_deep_runs.data.tables import read_table
from tests.messy.reading import read, refused, write
from tests.messy.writing import text

N = 60
COLUMNS: dict[str, Any] = {
    "a": [f"{i / 8}" for i in range(N)],
    "b": ["red", "blue", "green"] * (N // 3),
    "price": [f"${1000 + 37 * i:,}.50" for i in range(N)],
    "share": [f"{i}%" for i in range(N)],
    "sick": ["yes", "no"] * (N // 2),
    "class": ["3rd", "1st", "2nd"] * (N // 3),
    "stars": [str(1 + i % 3) for i in range(N)],
    "count": [str(i % 30) for i in range(N)],
    "sign": ["-1", "1"] * (N // 2),
    "when": [f"{1 + i % 28}/{1 + i % 12}/2020" for i in range(N)],
    "one": ["x"] * N,
    "seven": ["7"] * N,
    "note": [f"words {i}" for i in range(N)],
    "gone": ["" if i % 20 == 3 else str(i * i) for i in range(N)],
}
NOT_NOTE: dict[str, Any] = {"ignore": ("note", "gone")}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path, "t.csv", text(COLUMNS).encode())


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ({"target": ()}, "--target must.*'a', 'b'"),
        ({"target": ("nothing",)}, "--target must.*'nothing'"),
        ({"target": ("A",)}, "--target.*'A'"),
        ({"target": ("price", "class"), **NOT_NOTE}, "'class'"),
        ({"target": ("gone",), "ignore": ("note",), "missing": "error"}, r"'gone' \(3\)"),
        ({"target": ("price",), "ignore": ("price",)}, "price"),
        ({"target": ("price",), "ignore": ("nothing", "note", "gone")}, "--ignore.*'nothing'"),
        ({"target": ("price",), "categorical": ("nothing",), **NOT_NOTE}, "--categorical.*'nothing'"),
        ({"target": ("price",), "dates": ("nothing:dmy",), **NOT_NOTE}, "--dates.*'nothing"),
        ({"target": ("price",), "numeric": ("b",), **NOT_NOTE}, "'b'.*red"),
        ({"target": ("price",), "numeric": ("a",), "categorical": ("a",), **NOT_NOTE}, "'a'"),
        ({"target": ("price",), "features": ("a", "nothing")}, "--features.*'nothing'"),
        ({"target": ("price",), "features": ("a", "price")}, "price"),
        ({"target": ("price",), "ignore": tuple(set(COLUMNS) - {"price"})}, "no column besides the target"),
    ],
)
def test_choices_that_do_not_fit(path: Path, spec: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        read_table(path, TableSpec(**spec))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


def test_only_some_features(path: Path) -> None:
    assert list(read(path, "price", features=("share", "a"))) in (["share", "a", "price"], ["a", "share", "price"])


def test_an_error_does_not_say_everything(tmp_path: Path) -> None:
    names = [f"column_{i}" for i in range(3000)]
    path = write(tmp_path, "t.csv", text({name: ["1", "2", ""] for name in names} | {"x": ["1", "2", "4"]}).encode())
    refused(path, "missing", target="column_7")
    refused(path, "--target", target="nothing")
