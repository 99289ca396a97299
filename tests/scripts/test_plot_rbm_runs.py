"""`scripts/plot_rbm_runs.py` from the command line."""

import json
from pathlib import Path

import pytest

from tests.scripts.running import run_many


def write_run(folder: Path, tags: dict[str, float]) -> None:
    folder.mkdir()
    (folder / "flags.txt").write_text("--dataset=mnist\n--hidden=25\n--track\n", encoding="utf-8")
    lines = [json.dumps({"step": step, **tags}) for step in (10, 20, 30)]
    (folder / "scalars.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_draws_runs_and_names_a_bad_one(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_run(tmp_path / "a", {"tracker/log_z_nats": 1.0, "tracker/log_z_std_nats": 0.1, "exact/log_z_nats": 1.1})
    write_run(tmp_path / "b", {"exact/log_z_nats": 1.1})

    calls = [["--runs=a,a", "--output=out.png"], ["--runs=a,b", "--output=other.png"]]
    drawn, refused = run_many("plot_rbm_runs.py", calls, tmp_path)

    assert drawn.code == 0, drawn.err
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    assert refused.code == 2
    assert "b has no tracked log Z" in refused.err
    assert not (tmp_path / "other.png").exists()
