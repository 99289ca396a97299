"""Run scripts: in this process where that is enough, in processes of their own for signals, workers and devices."""

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpflow_deep_base.files import read_jsonl
from gpflow_deep_runs import cli
from gpflow_deep_runs.run import devices
from tests.terminal import check_width, joined

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


Main = Callable[[Any], None]


REPORTS = ("train_dgp.py", "train_darn.py", "track_rbm.py", "train_ebp.py", "compress_network.py")


class Finished(NamedTuple):
    """Exit status and output of a script, with lines of prose whole."""

    code: int
    out: str
    err: str


def environment() -> dict[str, str]:
    return {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPTS.parent)}


def command(script: str, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, str(SCRIPTS / script), *arguments]


def results_of(program: str, *arguments: str, cwd: Path = SCRIPTS.parent) -> Any:
    """What Python code that ends with `print("RESULTS" + json.dumps(...))` finds, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return json.loads(done.stdout.rsplit("RESULTS", 1)[1])


def run(script: str, arguments: Sequence[str], cwd: Path) -> Finished:
    """One call of a script, as a user makes it."""
    done = subprocess.run(command(script, arguments), cwd=cwd, env=environment(), capture_output=True, text=True)
    return Finished(done.returncode, joined(done.stdout), joined(done.stderr))


def result_of(folder: Path, run: str) -> dict[str, Any]:
    """The result.json of a run in `folder`."""
    return dict(json.loads((folder / run / "result.json").read_text()))


def lines_of(folder: Path, run: str) -> list[dict[str, Any]]:
    """What a run in `folder` has logged."""
    return read_jsonl(folder / run / "scalars.jsonl")


def checkpoints(folder: Path) -> list[str]:
    """The checkpoints anywhere below `folder`, oldest first, while a run writes there."""
    while True:
        try:
            return sorted(str(path) for path in folder.rglob("step-*"))
        except FileNotFoundError:  # a folder was renamed or removed during the walk
            continue


def called(main: Main | Mapping[str, Main], script: str, folder: Path, arguments: Sequence[str]) -> Finished:
    """The `main` of a script, or its commands by name, called in this process and in `folder`."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.chdir(folder)
        code = cli.call(main, [script, *arguments], explain=devices.explain)
    if script in REPORTS:
        check_width(out.getvalue())
    return Finished(code, joined(out.getvalue()), joined(err.getvalue()))


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("localhost", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


@contextmanager
def workers(script: str, folder: Path, arguments: Sequence[str]) -> Iterator[list["subprocess.Popen[str]"]]:
    """Two workers on this machine, killed at the end if they are still there."""
    hosts = [f"localhost:{port}" for port in free_ports(2)]
    processes = [
        subprocess.Popen(
            command(script, arguments),
            cwd=folder,
            env={
                **environment(),
                "TF_CONFIG": json.dumps({"cluster": {"worker": hosts}, "task": {"type": "worker", "index": i}}),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for i in range(2)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()
