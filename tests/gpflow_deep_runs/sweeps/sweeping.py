"""Sweeps of the training of training.py: in this process, and in one that can be killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpflow_deep_runs.sweeps import Program, Status, Sweep, SweepDir, expand, parse, work
from tests.gpflow_deep_runs.sweeps.training import HELD_STEP
from tests.processes import limited

TRAINING = Path(__file__).with_name("training.py")
PROGRAM = Program([sys.executable, "-S", str(TRAINING)])
PATIENCE_SECONDS = 60.0
"""For what takes a fraction of a second."""


def sweep_of(
    *, num_steps: int = 3, splits: str = "[0, 1]", settings: str = "a = {offset = 1}\nb = {offset = 2}"
) -> Sweep:
    return parse(
        f'script = "training.py"\n[flags]\nnum_steps = {num_steps}\n[axes]\nsplit = {splits}\n[settings]\n{settings}\n'
        '[table.numbers]\nscore = "models.dgp.score"\n'
    )


def swept(folder: SweepDir, sweep: Sweep, **options: Any) -> tuple[Status, list[str]]:
    """One start of a sweep: its report and what it said."""
    said: list[str] = []
    runs = expand(sweep)
    with folder.opened(sweep, runs, {}):
        return work(folder, runs, PROGRAM, say=said.append, **options), said


def starts(folder: SweepDir, name: str) -> list[int]:
    """The first step of each start of a run."""
    return [int(line) for line in (folder.run_dir(name) / "starts.txt").read_text().split()]


def scores(folder: SweepDir, sweep: Sweep) -> dict[str, float]:
    results: dict[str, Any] = {run.name: folder.result(run.name) for run in expand(sweep)}
    return {name: result["models"]["dgp"]["score"] for name, result in results.items()}


MAIN = """
import json, sys
from gpflow_deep_runs.sweeps import Program, SweepDir, expand, parse, work
text, path, words, jobs = json.loads(sys.argv[1])
sweep, folder = parse(text), SweepDir(path)
runs = expand(sweep)
with folder.opened(sweep, runs, {}):
    report = work(folder, runs, Program(words), jobs=jobs, say=lambda line: print(line, flush=True))
print(json.dumps(report._asdict()))
"""


@contextmanager
def process_of(folder: SweepDir, sweep: Sweep, *, jobs: int) -> Iterator["subprocess.Popen[str]"]:
    """A sweep in a process of its own; its last line of output is the report."""
    arguments = json.dumps([sweep.text, str(folder.path), list(PROGRAM.words), jobs])
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        with limited(process):
            yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            pytest.fail("it did not happen in time", pytrace=False)
        time.sleep(0.01)


def wait_for_hold(folder: SweepDir, *names: str) -> None:
    """Until these runs wait for :func:`release`."""
    wait_for(lambda: all(num_checkpoints(folder, name) == HELD_STEP for name in names))


def release(folder: SweepDir) -> None:
    (folder.path / "go").touch()


def num_checkpoints(folder: SweepDir, name: str) -> int:
    return len(list((folder.run_dir(name) / "checkpoints").glob("step-*")))


def pid_of(folder: SweepDir, name: str) -> int:
    """The number of the process that has a run, by its lock."""
    return int((folder.run_dir(name) / ".lock").read_text().split()[1])


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return (
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z" if Path("/proc").is_dir() else True
    )


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
