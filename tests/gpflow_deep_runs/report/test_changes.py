"""Results that are older than the last change of what they depend on are named."""

import dataclasses
import json
from pathlib import Path

import pytest

from gpflow_deep_runs.report.changes import depends_on, older, read_changes
from gpflow_deep_runs.report.results import Made, Results, parsed, read_all
from tests.gpflow_deep_runs.report.example import document

ROOT = Path(__file__).resolve().parents[3]


def project(root: Path, date: str) -> None:
    (root / "benchmarks").mkdir()
    (root / "ebp").mkdir()
    (root / "ebp" / "__init__.py").touch()
    (root / "ebp" / "__init__.pyi").write_text("from .network import EBPNetwork as EBPNetwork\n")
    (root / "ebp" / "network.py").write_text(
        "from .fit import fit\nimport numpy\nif TYPE_CHECKING:\n    from .other import Other\n"
    )
    (root / "ebp" / "fit.py").touch()
    (root / "ebp" / "other.py").touch()
    (root / "benchmarks" / "speed.py").write_text("from ebp import EBPNetwork\nimport numpy\n")
    path = root / "results" / "changes" / "behaviour.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"changes": [{"date": date, "of": ["ebp/fit.py"], "what": "another rule"}]}))


def results(**changes: object) -> Results:
    made = (Made("python benchmarks/speed.py --rows=3"),)
    return dataclasses.replace(parsed(document(), "speed"), date="2026-11-20", runs=made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("date", "count"), [("2026-11-19", 0), ("2026-11-20", 0), ("2026-11-21", 1)])
def test_a_result_is_old_after_a_change(tmp_path: Path, date: str, count: int) -> None:
    project(tmp_path, date)
    stored = {"speed": results()}
    assert depends_on(stored["speed"], tmp_path) == {
        "benchmarks/speed.py",
        "ebp/__init__.py",
        "ebp/fit.py",
        "ebp/network.py",
    }
    found = older(stored, tmp_path)
    assert len(found) == count
    if found:
        assert found == {"speed": "of 2026-11-20; since 2026-11-21: another rule (ebp/fit.py)"}


def test_make_train_depends_on_the_script_that_it_runs() -> None:
    made = dataclasses.replace(results(), runs=(Made("make train"),))
    assert "gpflow_deep/train/training.py" in depends_on(made, ROOT)


def test_what_a_result_names_is_what_it_depends_on(tmp_path: Path) -> None:
    project(tmp_path, "2026-11-25")
    assert older({"speed": results(depends=("ebp/network.py",))}, tmp_path) == {}
    assert len(older({"speed": results(depends=("ebp/fit.py",))}, tmp_path)) == 1


def test_a_result_that_a_change_does_not_touch_is_not_old(tmp_path: Path) -> None:
    project(tmp_path, "2026-11-25")
    path = tmp_path / "results" / "changes" / "behaviour.json"
    document = json.loads(path.read_text())
    document["changes"][0]["unaffected"] = {"speed": "it sets the rule itself"}
    path.write_text(json.dumps(document))
    assert older({"speed": results()}, tmp_path) == {}
    assert list(older({"other": results()}, tmp_path)) == ["other"]


def test_reasons_of_unaffected_results_are_of_files_that_are_there() -> None:
    stored = read_all(ROOT / "results")
    for change in read_changes(ROOT):
        assert change.unaffected.keys() <= stored.keys()
        assert all(change.unaffected.values())


def test_files_of_changes_are_there(tmp_path: Path) -> None:
    project(tmp_path, "2026-11-25")
    (tmp_path / "ebp" / "fit.py").unlink()
    with pytest.raises(ValueError, match=r"ebp/fit.py is not there; name the file"):
        read_changes(tmp_path)


def test_each_file_of_results_that_has_a_command_depends_on_something() -> None:
    assert read_changes(ROOT)
    for name, stored in read_all(ROOT / "results").items():
        if any("gpflow-deep " in (made.command or "") for made in stored.runs):
            assert depends_on(stored, ROOT), name
