"""`scripts/plot_rbm_runs.py`: what it draws, and runs that it cannot draw."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpflow_deep_runs import cli
from scripts import plot_rbm_runs


def write_run(folder: Path, tags: dict[str, float]) -> None:
    folder.mkdir()
    (folder / "flags.txt").write_text("--dataset=mnist\n--hidden=25\n--track\n", encoding="utf-8")
    lines = [json.dumps({"step": step, **tags}) for step in (10, 20, 30)]
    (folder / "scalars.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_draws_a_panel_for_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(Path("a"), {"tracker/log_z_nats": 1.0, "tracker/log_z_std_nats": 0.5, "exact/log_z_nats": 1.125})
    assert cli.call(plot_rbm_runs.main, ["plot_rbm_runs.py", "--runs=a,a", "--output=out.svg"]) == 0
    plots = list(ElementTree.fromstring(Path("out.svg").read_text(encoding="utf-8")))
    assert [plot.get("aria-label") for plot in plots] == ["mnist, 25 hidden units", "mnist, 25 hidden units (2)"]
    texts = [text.text for text in plots[0] if text.tag.endswith("text")]
    assert {"tracked", "exact"} <= set(texts)
    assert sum(point.tag.endswith("circle") for point in plots[0]) == 3  # of the exact values


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ("b", "b has no tracked log Z; it must be a run of gpflow-deep rbm with --track"),
        ("nothing", "nothing is not the folder of a run of gpflow-deep rbm"),
        ("", "--runs must name at least one folder, got none"),
    ],
)
def test_bad_runs_are_one_clear_error(
    runs: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(Path("b"), {"exact/log_z_nats": 1.125})
    assert cli.call(plot_rbm_runs.main, ["plot_rbm_runs.py", f"--runs={runs}", "--output=out.svg"]) == 2
    assert message in capsys.readouterr().err
    assert not Path("out.svg").exists()
