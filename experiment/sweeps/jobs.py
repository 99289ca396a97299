"""Work through the runs of a sweep, some at a time, each in a process of its own, and survive any kill."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import IO, NamedTuple

from experiment.files import make_folder
from experiment.sweeps import guard
from experiment.sweeps.folder import SweepDir
from experiment.sweeps.machine import machine
from experiment.sweeps.runs import PlannedRun, arguments
from experiment.sweeps.spec import Flag

__all__ = ["Report", "Running", "Status", "work"]

POLL_SECONDS = 0.1
HELD_SECONDS = 2.0
KILLS = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
TAIL_BYTES = 20_000


class Running(NamedTuple):
    """A job that runs: its run, its seconds so far, and the newest line of its log."""

    name: str
    seconds: float
    line: str


class Status(NamedTuple):
    """Where a sweep stands: its runs by what has become of them."""

    done: tuple[str, ...]
    failed: Mapping[str, str]
    stopped: Mapping[str, str]
    running: tuple[Running, ...]
    left: tuple[str, ...]
    num_jobs: int


class Report(NamedTuple):
    """What :func:`work` did.

    :ivar done: runs with a result, those of earlier starts among them.
    :ivar failed: run -> the last line of its error; started again only with `retry`.
    :ivar stopped: run -> by what it was stopped from outside; continued by the next start.
    :ivar left: runs that were not begun. :ivar signal: what stopped the sweep, such as "SIGINT", or None.
    """

    done: tuple[str, ...]
    failed: Mapping[str, str]
    stopped: Mapping[str, str]
    left: tuple[str, ...]
    signal: str | None


class _Job(NamedTuple):
    run: PlannedRun
    process: "subprocess.Popen[bytes]"
    start: float
    log: Path
    log_start: int


class _Work:
    """The state of :func:`work`."""

    def __init__(self, folder: SweepDir, runs: Sequence[PlannedRun], num_jobs: int, retry: bool) -> None:
        self.folder, self.num_jobs = folder, num_jobs
        self.done: list[str] = []
        self.failed: dict[str, str] = {}
        self.stopped: dict[str, str] = {}
        self.waiting: list[PlannedRun] = []
        self.running: list[_Job] = []
        newest = folder.newest()
        for run in runs:
            last = newest.get(run.name, {})
            if folder.result(run.name) is not None:
                self.done.append(run.name)
            elif last.get("event") == "failed" and not retry:
                self.failed[run.name] = last.get("error", "")
            else:
                self.waiting.append(run)

    def status(self) -> Status:
        now = time.monotonic()
        running = tuple(Running(job.run.name, now - job.start, _last_line(job)) for job in self.running)
        left = tuple(run.name for run in self.waiting)
        return Status(tuple(self.done), dict(self.failed), dict(self.stopped), running, left, self.num_jobs)


def work(
    folder: SweepDir,
    runs: Sequence[PlannedRun],
    program: Sequence[str],
    *,
    jobs: int = 1,
    retry: bool = False,
    local: Mapping[str, Flag] = MappingProxyType({}),
    environment: Mapping[str, str] | None = None,
    say: Callable[[str], None] = print,
    show: Callable[[Status], None] = lambda status: None,
    after: Callable[[], object] = lambda: None,
) -> Report:
    """Run what has no result yet: new runs from their beginning, begun ones from their newest checkpoint.

    The folder has to be held, see `SweepDir.opened`. SIGINT and SIGTERM are passed to the jobs as SIGTERM, which save
    a checkpoint and end; a second signal kills them. If this process is killed, their guards ask them to end. A run
    whose folder another process still has is left until it is free.

    :param program: the words before the flags, as [python, script]; it gets --run_dir and, to continue, --resume.
    :param jobs: how many run at a time.
    :param retry: also start again what has failed.
    :param local: further flags of every run, which say nothing about what is computed.
    :param environment: of the jobs; that of this process if not given.
    :param say: gets a line about each event. :param show: gets the status again and again.
    :param after: called after each run that is done.
    :raises ValueError: if `jobs` is less than 1.
    """
    if jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {jobs}.")
    state = _Work(folder, runs, jobs, retry)
    held: dict[str, str] = {}
    look_again = 0.0
    with _signals() as received:
        try:
            while (state.waiting or state.running) and not received:
                if time.monotonic() >= look_again:
                    held, look_again = _held(state, held, say), time.monotonic() + HELD_SECONDS
                free = [run for run in state.waiting if run.name not in held]
                for run in free[: jobs - len(state.running)]:
                    state.waiting.remove(run)
                    _start(state, run, program, local, environment, say)
                _collect(state, say, after)
                show(state.status())
                time.sleep(POLL_SECONDS)
            if received:
                say(f"{received[0]}: waiting for {len(state.running)} jobs to save and end; once more kills them.")
        finally:
            _stop(state, received, say, after)
    stopped_by = received[0] if received else None
    return Report(tuple(state.done), state.failed, state.stopped, tuple(run.name for run in state.waiting), stopped_by)


def _start(
    state: _Work,
    run: PlannedRun,
    program: Sequence[str],
    local: Mapping[str, Flag],
    environment: Mapping[str, str] | None,
    say: Callable[[str], None],
) -> None:
    folder, path = state.folder, state.folder.run_dir(run.name)
    if folder.result(run.name) is not None:  # of a process that had the folder until now
        state.done.append(run.name)
        return
    is_begun = folder.continues(run.name)
    words = [*program, f"--run_dir={path}", *arguments({**run.flags, **local}), *(["--resume"] if is_begun else [])]
    log = folder.log_file(run.name)
    make_folder(log.parent)
    folder.note(run.name, "started", resume=is_begun, machine=machine(), local=arguments(local))
    with open(log, "ab") as file:
        log_start = file.tell()
        process = _spawn(words, file, environment)
    state.running.append(_Job(run, process, time.monotonic(), log, log_start))
    say(f"{'continued' if is_begun else 'started'}: {run.name}")


def _spawn(words: Sequence[str], log: IO[bytes], environment: Mapping[str, str] | None) -> "subprocess.Popen[bytes]":
    """A guarded process, in a session of its own, so that Ctrl-C in the terminal reaches it only through this one."""
    return subprocess.Popen(
        [sys.executable, "-S", "-E", str(guard.__file__), *words],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=None if environment is None else dict(environment),
        start_new_session=True,
    )


def _collect(state: _Work, say: Callable[[str], None], after: Callable[[], object]) -> None:
    """Look which jobs have ended, and how."""
    for job in [job for job in state.running if job.process.poll() is not None]:
        state.running.remove(job)
        _close(job)
        name, code, seconds = job.run.name, int(job.process.returncode), time.monotonic() - job.start
        killed_by = _killed_by(code)
        if state.folder.result(name) is not None:
            event, error = "done", ""
            state.done.append(name)
        elif killed_by is not None:
            event, error = "stopped", f"stopped by {killed_by}"
            state.stopped[name] = error
        else:
            event, error = "failed", _last_line(job) or f"ended with status {code} and wrote nothing"
            state.failed[name] = error
        state.folder.note(name, event, code=code, seconds=round(seconds, 3), **({"error": error} if error else {}))
        say(f"{event}: {name}{f' ({error})' if error else ''}")
        if event == "done":
            after()


def _killed_by(code: int) -> str | None:
    """The signal that stopped a process from outside, which a shell gives as 128 and its number; else None."""
    number = -code if code < 0 else code - 128
    return signal.Signals(number).name if number in [int(kill) for kill in KILLS] else None


def _held(state: _Work, before: Mapping[str, str], say: Callable[[str], None]) -> dict[str, str]:
    """Of the runs that wait: those whose folders other processes have."""
    held = {run.name: who for run in state.waiting if (who := state.folder.holder(run.name)) is not None}
    for name, who in held.items():
        if name not in before:
            say(f"waiting: {name} is in use by {who}")
    return held


def _stop(state: _Work, received: Sequence[str], say: Callable[[str], None], after: Callable[[], object]) -> None:
    """Ask all jobs to end, and wait; kill them at a second signal."""
    for job in state.running:
        _close(job)
    is_killed = False
    while state.running:
        if len(received) > 1 and not is_killed:
            is_killed = True
            for job in state.running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(job.process.pid, signal.SIGKILL)  # of the guard and its program
        _collect(state, say, after)
        time.sleep(POLL_SECONDS if state.running else 0)


def _close(job: _Job) -> None:
    """Close the pipe to the guard of a job, which then asks its program to end."""
    if job.process.stdin is not None:
        job.process.stdin.close()


def _last_line(job: _Job) -> str:
    """The last line that a job has written in this start, without that of a bar before it."""
    with open(job.log, "rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(job.log_start, end - TAIL_BYTES))
        lines = file.read().decode(errors="replace").replace("\r", "\n").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


@contextlib.contextmanager
def _signals() -> Iterator[list[str]]:
    """Collect the names of SIGINT and SIGTERM in place of acting on them; one that is ignored stays so."""
    received: list[str] = []

    def record(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number).name)

    previous = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) not in (signal.SIG_IGN, None)
    }
    for number in previous:
        signal.signal(number, record)
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
