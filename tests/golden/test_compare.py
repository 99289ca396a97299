"""The comparison of two trees finds what differs, and only that; its cases name scripts and flags that exist."""

import json
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.golden.cases import CASES
from tests.golden.compare import LEFT_OUT, ROOT, Failed, check_tree, differences
from tests.golden.runs import RUNS, STORED

LINES: list[dict[str, Any]] = [
    {"step": 1, "train/nll_nats": 0.5, "train/seconds": 1.0},
    {"step": 2, "train/nll_nats": None},
]
RESULT: dict[str, Any] = {
    "models": {"gp": {"num_steps": 3, "train_seconds": 2.0}},
    "row": "| gp | 3 s |",
    "flags": ["--seed=0"],
}


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders with the same content."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    np.savez(old / "model.npz", w=np.array([1.0, 2.0]), name=np.array("gp"))
    write_lines(old / "scalars.jsonl", LINES)
    with zipfile.ZipFile(old / "network.npz", "w") as archive:
        archive.writestr("network.keras", b"first")
    (old / "result.json").write_text(json.dumps(RESULT), encoding="utf-8")
    (old / "out.csv").write_text("mean\n1\n", encoding="utf-8")
    (old / "provenance.json").write_text("{}", encoding="utf-8")
    shutil.copytree(old, new)
    return old, new


def test_the_same_files_are_equal(folders: tuple[Path, Path]) -> None:
    assert list(differences(*folders)) == []


def test_times_flags_and_speed_may_differ(folders: tuple[Path, Path]) -> None:
    old, new = folders
    write_lines(new / "scalars.jsonl", [{**LINES[0], "train/seconds": 3.0, "train/steps_per_second": 7.0}, LINES[1]])
    models = {"gp": {"num_steps": 3, "train_seconds": 9.0}}
    result = {**RESULT, "models": models, "row": "| gp | 12 s |", "flags": ["--seed=1", "--x"]}
    (new / "result.json").write_text(json.dumps(result), encoding="utf-8")
    (new / "provenance.json").write_text('{"platform": "another"}', encoding="utf-8")
    assert list(differences(old, new)) == []


def changed_array(folder: Path) -> None:
    np.savez(folder / "model.npz", w=np.array([1.0, np.nextafter(2.0, 3.0)]), name=np.array("gp"))


def changed_scalar(folder: Path) -> None:
    write_lines(folder / "scalars.jsonl", [{**LINES[0], "train/nll_nats": np.nextafter(0.5, 1.0)}, LINES[1]])


def lost_line(folder: Path) -> None:
    write_lines(folder / "scalars.jsonl", LINES[:1])


def changed_number(folder: Path) -> None:
    models = {"gp": {"num_steps": 4, "train_seconds": 2.0}}
    (folder / "result.json").write_text(json.dumps({**RESULT, "models": models}), encoding="utf-8")


def changed_predictions(folder: Path) -> None:
    (folder / "out.csv").write_text("mean\n2\n", encoding="utf-8")


def lost_file(folder: Path) -> None:
    (folder / "out.csv").unlink()


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (changed_array, r"model.npz: w differs in 1 of 2 numbers, largest 4.44e-16"),
        (changed_scalar, "scalars.jsonl: step 1, train/nll_nats is 0.5 and 0.5000000000000001"),
        (lost_line, r"scalars.jsonl: steps are \[1, 2\] and \[1\]"),
        (changed_number, "result.json: models/gp/num_steps is 3 and 4"),
        (changed_predictions, r"out.csv: differs from byte 5 \(line 2\) on"),
        (lost_file, "out.csv is missing"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_difference_is_found(folders: tuple[Path, Path], change: Callable[[Path], None], found: str) -> None:
    old, new = folders
    change(new)
    (text,) = differences(old, new)
    assert re.match(found, text), text


def test_lines_of_no_step(folders: tuple[Path, Path]) -> None:
    """Such as those of a run's units: each is compared with the one of its number, but for its seconds."""
    old, new = folders
    lines = [{"seed": 0, "seconds": 1.5, "errors": {"D": 2.0}}, {"seed": 0, "seconds": 2.5, "errors": {"D": 3.0}}]
    write_lines(old / "units.jsonl", lines)
    write_lines(new / "units.jsonl", [{**line, "seconds": 9.0} for line in lines])
    assert list(differences(old, new)) == []
    write_lines(new / "units.jsonl", [lines[0], {**lines[1], "errors": {"D": 4.0}}])
    assert list(differences(old, new)) == ["units.jsonl: step of line 1, errors is {'D': 3.0} and {'D': 4.0}"]
    write_lines(new / "units.jsonl", lines[:1])
    assert "steps are" in next(differences(old, new))


def test_folders_of_two_versions_of_a_case_are_not_compared(folders: tuple[Path, Path]) -> None:
    for number, folder in enumerate(folders):
        (folder / "case.txt").write_text(str(number), encoding="utf-8")
    assert list(differences(*folders)) == ["the case was changed meanwhile; run it again"]


def test_an_empty_folder_is_not_equal_to_anything(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no files to compare"):
        list(differences(tmp_path, tmp_path))


def test_a_tree_without_packages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="would import"):
        check_tree(tmp_path)


def test_cases_call_scripts_with_different_names() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    for case in (*CASES, *RUNS):
        for call in case.calls:
            assert (ROOT / "scripts" / f"{call.script}.py").is_file()


def test_stored_numbers_are_those_of_all_runs_and_no_times() -> None:
    numbers = json.loads(STORED.read_text(encoding="utf-8"))["numbers"]
    assert list(numbers) == [run.name for run in RUNS]
    assert not [name for found in numbers.values() for name in found if LEFT_OUT.search(name)]
