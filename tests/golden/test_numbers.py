"""A very short run of each training script gives the numbers that an earlier tree gave: flags in, result.json out.

Numbers are stored to all digits, but the last of them are a matter of the processor: the libraries below choose their
instructions by it, and add in another order. In float64 this is 1e-16 a sum, and training multiplies it; 1e-6 leaves
room for that and none for another formula, row or seed. What counts things (steps, wrong images, bits) is equal, as
1e-6 of a count is less than one.
"""

import importlib
import json
from pathlib import Path

import pytest

from experiment import cli
from tests.golden.cases import Call, Case
from tests.golden.compare import ROOT, is_old, run_call
from tests.golden.runs import RUNS, STORED, numbers_of

TOLERANCE = 1e-6


def make_run(call: Call, folder: Path) -> None:
    """Call a script in `folder`, in this process."""
    path = ROOT / "scripts" / f"{call.script}.py"
    if is_old(path):
        run_call(call, ROOT, folder)
        return
    script = importlib.import_module(f"scripts.{call.script}")
    assert cli.call(script.main, [path.name, *call.arguments(is_old=False)]) == 0


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_short_run_gives_the_stored_numbers(run: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if run.make is not None:
        run.make(tmp_path)
    for call in run.calls:
        make_run(call, tmp_path)
    stored = json.loads(STORED.read_text(encoding="utf-8"))["numbers"][run.name]
    found = numbers_of(tmp_path / "run")
    assert not sorted(stored.keys() - found.keys()), "numbers are no longer in result.json"
    assert {name: found[name] for name in stored} == pytest.approx(stored, rel=TOLERANCE, abs=1e-12)
