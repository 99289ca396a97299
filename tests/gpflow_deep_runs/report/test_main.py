"""`python -m gpflow_deep_runs.report`."""

import json
from pathlib import Path

import pytest

from gpflow_deep_runs.report.__main__ import main
from gpflow_deep_runs.report.results import read, write
from tests.gpflow_deep_runs.report.example import document
from tests.gpflow_deep_runs.report.test_entries import NEW, sweep

PAGE = "".join(
    f"<!-- {marker} -->\n<!-- end -->\n"
    for marker in ("table: small/scores", "table: small/differences", "commands: small")
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write(tmp_path / "results" / "small.json", document())
    (tmp_path / "README.md").write_text(PAGE)
    return tmp_path


def test_write_and_check(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--root={project}", "check"]) == 1
    assert "README.md:3: table small/scores has" in capsys.readouterr().out
    assert main([f"--root={project}"]) == 0
    assert capsys.readouterr().out == f"written: {project / 'README.md'}\n"
    assert "| boston | -2.80 ± 0.06 |" in (project / "README.md").read_text()
    for command in ("check", "write"):
        assert main([f"--root={project}", command]) == 0
        assert capsys.readouterr().out == "the tables are those of results/\n"


def test_errors_are_one_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["sweep", str(project), "--units=a"], f"error: {project}/table.json: no such file or directory.\n"),
        (
            [f"--root={project / 'none'}", "check"],
            f"error: --root={project}/none must be the folder of the project, but it has no folder results.\n",
        ),
        (["sweep", str(project / "none")], f"error: {project}/none/table.json: no such file or directory.\n"),
    ):
        assert main([f"--root={project}", *arguments]) == 2
        assert capsys.readouterr().err == message
    for table, name in (({}, ""), ([], ""), ({"sweep": 3}, 3), ({**sweep(NEW), "sweep": "UCI-small"}, "UCI-small")):
        (project / "table.json").write_text(json.dumps(table))
        assert main([f"--root={project}", "sweep", str(project), "--units=loss=nats,hours=h"]) == 2
        assert capsys.readouterr().err.startswith(
            f"error: --results must be a name in small letters, digits and _, got {name!r}"
        )
    assert [path.name for path in (project / "results").iterdir()] == ["small.json"]
    (project / "results" / "small.json").write_text("{")
    assert main([f"--root={project}", "check"]) == 2
    assert capsys.readouterr().err.startswith(f"error: {project}/results/small.json: its JSON is damaged: ")


def test_a_sweep_is_entered_and_shown(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A new file says which markers it needs; the second time, its tables are written, too."""
    table = {**sweep(NEW), "sweep": "other"}
    (project / "runs").mkdir()
    (project / "runs" / "table.json").write_text(json.dumps(table))
    (project / "results" / "sweeps").mkdir()
    (project / "results" / "sweeps" / "other.toml").write_text("")
    command = [f"--root={project}", "sweep", str(project / "runs"), "--units=loss=nats,hours=h"]
    assert main(command) == 0
    markers = [line for line in capsys.readouterr().out.split("\n") if line.startswith("<!--")]
    assert markers == [f"<!-- table: other/{t} -->" for t in ("loss", "loss_differences", "hours")] + [
        "<!-- commands: other -->"
    ]
    assert read(project / "results" / "other.json").runs[0].command == (
        "gpflow-deep sweep results/sweeps/other.toml --data_dir=DATA"
    )
    (project / "README.md").write_text("".join(f"{marker}\n<!-- end -->\n" for marker in markers))
    assert main(command[:-1]) == 0  # the units are in the file
    assert "| boston | -0.50 ± 0.14 | -0.42 ± 0.17 |" in (project / "README.md").read_text()
