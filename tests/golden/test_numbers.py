"""A very short run of each training script gives the numbers that an earlier tree gave: flags in, result.json out.

The last digits of a number are a matter of the processor: libraries choose their instructions by it, and so the order
of their sums. In float64 training makes 1e-14 of that (with the instructions of old processors in place of the
newest), so that 1e-6 is far from it, and further from what another formula, row or seed would do. The single GP is
found by L-BFGS, which ends on a flat place: on two processors its log densities differed by 1e-5, and other scores,
which are not what it maximises, by 4e-3. Networks are compressed in float32 only, where a rounding is 1e-7: their run
is so short that a learning rate changed by 1e-5 moves one threshold by 3e-6 and no other number. What counts things
(steps, wrong images, units, bits, bytes) has to be equal.
"""

import importlib
import json
from pathlib import Path

import pytest

from gpflow_deep_runs import cli
from tests.golden.cases import Call, Case
from tests.golden.runs import RUNS, STORED, numbers_of

TOLERANCE = 1e-6
FLOAT32_TOLERANCE = 1e-4
LBFGS_NATS = 1e-4
LBFGS_OTHERS = 2e-2


def make_run(call: Call) -> None:
    """Call a script in this process."""
    script = importlib.import_module(f"scripts.{call.script}")
    assert cli.call(script.main, [f"{call.script}.py", *call.arguments()]) == 0


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_short_run_gives_the_stored_numbers(run: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if run.make is not None:
        run.make(tmp_path)
    for call in run.calls:
        make_run(call)
    stored = json.loads(STORED.read_text(encoding="utf-8"))["numbers"][run.name]
    found = numbers_of(tmp_path / "run")
    assert not sorted(stored.keys() - found.keys()), "numbers are no longer in result.json"
    tolerance = FLOAT32_TOLERANCE if run.name == "compress_network" else TOLERANCE
    expected = {
        name: pytest.approx(value, abs=1e-12, rel=tolerance_of(name, tolerance)) for name, value in stored.items()
    }
    assert {name: found[name] for name in stored} == expected


def tolerance_of(name: str, tolerance: float) -> float:
    """Of the number of this name, where training by small steps has `tolerance`."""
    if "/gp/" not in name:
        return tolerance
    return LBFGS_NATS if name.endswith("log_likelihood_nats") else LBFGS_OTHERS
