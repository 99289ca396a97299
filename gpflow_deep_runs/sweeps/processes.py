"""Processes that end with the sweep."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gpflow_deep_runs.sweeps import guard

__all__ = ["Job", "ask_to_end", "kill", "killed_by", "last_line", "start"]

KILLS = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1)
TAIL_BYTES = 20_000


class Job(NamedTuple):
    """A process of a run: its guard, when it was started (monotonic), and where its lines in the log begin."""

    name: str
    process: "subprocess.Popen[bytes]"
    start: float
    log: Path
    log_start: int


def start(name: str, words: Sequence[str], log: Path, environment: Mapping[str, str] | None) -> Job:
    """Start a program under its guard, in a session of its own: Ctrl-C in the terminal reaches it through us alone.

    :param log: gets what it writes, after what is there.
    :raises OSError: if it cannot be started, or the log not be written.
    """
    with open(log, "ab") as file:
        log_start = file.tell()
        process = subprocess.Popen(
            [sys.executable, "-S", "-E", str(guard.__file__), *words],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=None if environment is None else dict(environment),
            start_new_session=True,
        )
    return Job(name, process, time.monotonic(), log, log_start)


def ask_to_end(job: Job) -> None:
    """Close the pipe to the guard, which then sends SIGTERM to its program, once. Does nothing after the end."""
    if job.process.stdin is not None:
        job.process.stdin.close()


def kill(job: Job) -> None:
    """End the guard and its program at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.process.pid, signal.SIGKILL)


def killed_by(code: int) -> str | None:
    """The signal by which somebody stopped a process, from its exit status; None if it ended, or crashed, by itself.

    A shell, our guard, and a training that has saved its checkpoint say 128 and the number of the signal.
    """
    number = -code if code < 0 else code - 128
    return signal.Signals(number).name if number in [int(kill_signal) for kill_signal in KILLS] else None


def last_line(job: Job) -> str:
    """The last line that a job has written since its start; of what a bar overwrites, the newest."""
    with open(job.log, "rb") as file:
        # The end of the log is enough, and no more than this start has written.
        end = file.seek(0, os.SEEK_END)
        file.seek(max(job.log_start, end - TAIL_BYTES))
        lines = file.read().decode(errors="replace").replace("\r", "\n").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
