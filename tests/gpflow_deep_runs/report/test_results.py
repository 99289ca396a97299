"""Files of results: what they may hold, and the cells of their tables."""

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpflow_deep_runs.report.results import as_text, cells, parsed, read, read_all, write
from tests.gpflow_deep_runs.report.example import document


def test_cells() -> None:
    results = parsed(document(), "small")
    assert cells(results, "scores") == [
        ["data set", "linear", "GP", "published"],
        ["boston", "-2.80 ± 0.06", "-2.50 ± 0.12", "-2.4"],
        ["energy", "-2.50 ± 0.04", "-0.78", ""],
    ]
    assert cells(results, "differences")[1:] == [["boston", "0.30 ± 0.06"], ["energy", "1.72"]]


def test_a_table_shows_some_rows() -> None:
    given = document()
    given["tables"]["one"] = {"title": "one", "columns": given["tables"]["scores"]["columns"], "rows": ["energy"]}
    assert cells(parsed(given, "small"), "one")[1:] == [["energy", "-2.50 ± 0.04", "-0.78", ""]]


def test_equal_first_cells_merge() -> None:
    given = document()
    given["rows"] += [dict(given["rows"][1])]
    assert [row[0] for row in cells(parsed(given, "small"), "scores")] == ["data set", "boston", "energy", "energy"]
    given["tables"]["scores"]["merged"] = True
    assert [row[0] for row in cells(parsed(given, "small"), "scores")] == ["data set", "boston", "energy", ""]


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "results" / "small.json"
    write(path, document())
    assert json.loads(path.read_text()) == document()
    assert read(path) == parsed(document(), "small")
    assert read_all(path.parent) == {"small": read(path)}
    assert as_text(json.loads(path.read_text())) == path.read_text()


def faults() -> list[tuple[str, dict[str, Any]]]:
    """What is wrong, in the words of the error, and a file that has it."""
    found = []

    def case(message: str, *path: Any, value: Any) -> None:
        given = copy.deepcopy(document())
        place = given
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        found.append((message, given))

    case(r"x: origin: must be 'run'", "origin", value="made up")
    case(r"x: runs\[0\]: must have a date as 2026-11-22, got '22.11.'", "date", value="22.11.")
    case(r"x: commit: must be text, got null", "commit", value=None)
    case(r"x: must have the commit and the machine", "machine", value="")
    case(r"x: runs\[0\]\.command: must be text, got null", "runs", 0, "command", value=None)
    case(r"x: runs\[0\]: must have a command", "runs", 0, "command", value=" ")
    case(r"x: runs\[0\]: a command must be on one line", "runs", 0, "command", value="a\nb")
    case(r"x: runs must name the command", "runs", value=[])
    case(r"x: must have tables and rows", "rows", value=[])
    case(r"x: rows\[0\]: rsme: no table shows it", "rows", 0, "rsme", value="0.1")
    case(r"x: rows\[0\]: rmse must have a unit", "rows", 0, "rmse", value=0.1)
    case(
        r"x: rows\[0\]: gp must have one value for each of the 3 repetitions, got 2",
        "rows",
        0,
        "gp",
        "values",
        value=[1, 2],
    )
    case(r"x: rows\[0\]\.gp: must have either value or values", "rows", 0, "gp", value={"se": 1})
    case(r"x: rows\[0\]\.gp\.value: must be a number or null, got \"1\"", "rows", 0, "gp", value={"value": "1"})
    case(r"x: rows\[1\]: a difference must be one of numbers, got '1'", "rows", 1, "gp", value="1")
    case(r"x: rows\[0\]\.gp: must be .*, got null", "rows", 0, "gp", value=None)
    case(r"x: rows\[0\]: dataset must be on one line", "rows", 0, "dataset", value="a\nb")
    case(r"x: names must be small letters, digits and _, got 'R2'", "rows", 0, "R2", value="a")
    case(r"x: units: no row has rmse", "units", "rmse", value="m")
    case(
        r"x: tables\.scores: the column 'GP' shows pg, which no row has",
        "tables",
        "scores",
        "columns",
        2,
        "cell",
        value="{pg}",
    )
    case(
        r"x: tables\.scores\.columns\[2\]: the template 'gp' must have a {quantity}",
        "tables",
        "scores",
        "columns",
        2,
        "cell",
        value="gp",
    )
    case(
        r"x: tables\.scores: one row must begin with 'iris', got 0",
        "tables",
        "scores",
        "rows",
        value=["boston", "energy", "iris"],
    )
    case(r"x: tables\.scores: must have columns", "tables", "scores", "columns", value=[])
    case(r"x: titles must be on one line", "tables", "scores", "title", value="a\nb")
    return found


@pytest.mark.parametrize(("message", "given"), faults(), ids=range(len(faults())))
def test_faults_are_named_with_their_place(message: str, given: dict[str, Any], tmp_path: Path) -> None:
    """And such a file is not written."""
    with pytest.raises(ValueError, match=message):
        parsed(given, "x")
    with pytest.raises(ValueError, match="json: "):
        write(tmp_path / "x.json", given)
    assert not list(tmp_path.iterdir())


def test_names_of_files_are_checked(tmp_path: Path) -> None:
    write(tmp_path / "Small results.json", document())
    with pytest.raises(ValueError, match=r"Small results\.json: must be named in small letters"):
        read_all(tmp_path)


def test_no_tensorflow_is_needed() -> None:
    program = (
        "import sys, gpflow_deep_runs.report.entries, gpflow_deep_runs.report.pages; print('tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
