"""Work through the runs of a sweep, some at a time, each in a process of its own, and survive any kill.

A pool of `concurrent.futures` waits for the processes; what is told and written is told and written by one thread.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from gpflow_deep_base.stopping import signals
from gpflow_deep_base.text import duration
from gpflow_deep_runs.sweeps import guard
from gpflow_deep_runs.sweeps.folder import SweepDir
from gpflow_deep_runs.sweeps.spec import Flag, PlannedRun, arguments
from gpflow_deep_runs.sweeps.tables import machine

__all__ = ["Program", "Running", "Status", "work"]

POLL_SECONDS = 0.1
HELD_SECONDS = 2.0
KILLS = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1)
TAIL_BYTES = 20_000


class Program(NamedTuple):
    """What each run is made with.

    :ivar words: those before the flags, as (python, script); it gets --run_dir and, to continue, --resume.
    :ivar local: further flags of every run, which say nothing about what is computed.
    :ivar environment: of its processes; that of this one if None.
    """

    words: Sequence[str]
    local: Mapping[str, Flag] = MappingProxyType({})
    environment: Mapping[str, str] | None = None


class Running(NamedTuple):
    """A job that runs: its run, its seconds so far, and the newest line of its log."""

    name: str
    seconds: float
    line: str


class Status(NamedTuple):
    """Where a sweep stands, and in the end what was done.

    :ivar done: runs with a result, those of earlier starts among them.
    :ivar failed: run -> the last line of its error; started again only with `retry`.
    :ivar stopped: run -> by what it was stopped from outside; continued by the next start.
    :ivar running: jobs that run.
    :ivar left: runs that were not started.
    :ivar num_jobs: how many run at a time, at most.
    :ivar signal: what stopped the sweep, such as "SIGINT", or None.
    """

    done: Sequence[str]
    failed: Mapping[str, str]
    stopped: Mapping[str, str]
    running: Sequence[Running]
    left: Sequence[str]
    num_jobs: int
    signal: str | None = None


def work(
    folder: SweepDir,
    runs: Sequence[PlannedRun],
    program: Program,
    *,
    jobs: int = 1,
    retry: bool = False,
    say: Callable[[str], None] = print,
    show: Callable[[Status], None] = lambda status: None,
    after: Callable[[], object] = lambda: None,
) -> Status:
    """Run what has no result yet: new runs from their beginning, begun ones from their newest checkpoint.

    The folder has to be held, see `SweepDir.opened`. SIGINT, SIGTERM, SIGHUP and SIGUSR1 are passed on once as
    SIGTERM, by which a training saves a checkpoint and ends; a second one kills the jobs. If this process is killed, or
    raises, their guards ask them to end. A run whose folder another process still has is left until it is free.

    :param jobs: how many run at a time.
    :param retry: also start again what has failed.
    :param say: gets a line about each event.
    :param show: gets the status again and again.
    :param after: called after each run that is done.
    :raises ValueError: if `jobs` is less than 1.
    """
    if jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {jobs}.")
    # Start what may be, note what has ended, show where it stands: until all is done or a signal comes.
    state = _Work(folder, runs, program, jobs, retry, say, after)
    with signals(acts_again=False) as received, ThreadPoolExecutor(jobs) as pool:
        try:
            while (state.waiting or state.running) and not received:
                state.start_free(pool)
                state.collect()
                show(state.status())
            if received:
                say(f"{received[0]}: {len(state.running)} running to be saved and stopped; once more kills them.")
        finally:
            state.stop(received)
    return state.status()._replace(signal=received[0] if received else None)


class _Work:
    """What has become of each run, and the jobs that are running."""

    def __init__(
        self,
        folder: SweepDir,
        runs: Sequence[PlannedRun],
        program: Program,
        num_jobs: int,
        retry: bool,
        say: Callable[[str], None],
        after: Callable[[], object],
    ) -> None:
        self._folder = folder
        self._program = program
        self._num_jobs = num_jobs
        self._say = say
        self._after = after
        self.done: list[str] = []
        self.failed: dict[str, str] = {}
        self.stopped: dict[str, str] = {}
        self.waiting: list[PlannedRun] = []
        self.running: dict[Future[int], _Job] = {}
        self._held: dict[str, str] = {}
        self._look_at = 0.0
        # The history and the results say what became of each run; both have to agree that it is done.
        newest = folder.newest()
        for run in runs:
            last = newest.get(run.name)
            event = None if last is None else last["event"]
            has_result = folder.result(run.name) is not None
            if last is not None and event == "failed" and not retry and not has_result:
                self.failed[run.name] = last["error"]
            elif event == "done" and has_result:
                self.done.append(run.name)
            else:
                self.waiting.append(run)

    def status(self) -> Status:
        current_time = time.monotonic()
        running = [Running(job.name, current_time - job.start, job.last_line()) for job in self.running.values()]
        waiting_names = [run.name for run in self.waiting]
        return Status(list(self.done), dict(self.failed), dict(self.stopped), running, waiting_names, self._num_jobs)

    def start_free(self, pool: ThreadPoolExecutor) -> None:
        """Start as many runs as may be, of those whose folders are free."""
        if time.monotonic() >= self._look_at:
            self._look_for_holders()
            self._look_at = time.monotonic() + HELD_SECONDS
        for run in [run for run in self.waiting if run.name not in self._held]:
            if len(self.running) >= self._num_jobs:
                return
            self.waiting.remove(run)
            # A run whose end an earlier sweep did not see may be done.
            self._folder.settle(run.name)
            if self._folder.result(run.name) is not None:
                self.done.append(run.name)
            else:
                self._start(run, pool)

    def _look_for_holders(self) -> None:
        # Of those that another process has, each is told of once.
        names = [run.name for run in self.waiting]
        held = {name: holder for name in names if (holder := self._folder.holder(name)) is not None}
        for name in held.keys() - self._held.keys():
            self._say(f"waiting: {name} is in use by {held[name]}")
        self._held = held

    def _start(self, run: PlannedRun, pool: ThreadPoolExecutor) -> None:
        folder = self._folder
        program = self._program
        # A run with a checkpoint goes on from there.
        is_begun = folder.is_begun(run.name)
        flags = [*arguments({**run.flags, **program.local}), *(["--resume"] if is_begun else [])]
        words = [*program.words, f"--run_dir={folder.run_dir(run.name)}", *flags]
        # The start is on record before there is a process.
        folder.note(run.name, "started", is_resumed=is_begun, machine=machine(), local=arguments(program.local))
        job = _Job.started(run.name, words, folder.log_file(run.name), program.environment)
        self.running[pool.submit(job.process.wait)] = job
        self._say(f"{'continued' if is_begun else 'started'}: {run.name}")

    def collect(self) -> None:
        """Wait for a moment until a job ends, and note how."""
        if not self.running:  # all that wait are in use
            time.sleep(POLL_SECONDS)
        for future in wait(self.running, POLL_SECONDS, FIRST_COMPLETED).done:
            job = self.running.pop(future)
            job.ask_to_end()
            name = job.name
            code = future.result()
            seconds = time.monotonic() - job.start
            stopped_by = _killed_by(code)
            # What became of it: a result, a signal from outside, or an error.
            if self._folder.result(name) is not None:
                event = "done"
                error = None
                self.done.append(name)
            elif stopped_by is not None:
                event = "stopped"
                error = f"by {stopped_by}"
                self.stopped[name] = error
            else:
                event = "failed"
                error = job.last_line() or f"ended with status {code} and wrote nothing"
                self.failed[name] = error
            # Into the history, to the user, and into the tables.
            self._folder.note(name, event, code=code, seconds=round(seconds, 3), error=error)
            self._say(f"{event}: {name}, {error or duration(seconds)}")
            if event == "done":
                self._after()

    def stop(self, received: Sequence[str]) -> None:
        """Ask all jobs to end, and wait; kill them at a second signal."""
        # Each job is asked once, by the end of its pipe.
        for job in self.running.values():
            job.ask_to_end()
        # All ends are noted, also of those that a second signal kills.
        is_killed = False
        while self.running:
            if len(received) > 1 and not is_killed:
                is_killed = True
                for job in self.running.values():
                    job.kill()
            self.collect()


class _Job(NamedTuple):
    """A process of a run: its guard, when it was started (monotonic), and where its lines in the log begin."""

    name: str
    process: "subprocess.Popen[bytes]"
    start: float
    log: Path
    log_start: int

    @classmethod
    def started(cls, name: str, words: Sequence[str], log: Path, environment: Mapping[str, str] | None) -> "_Job":
        """A program under its guard, in a session of its own: Ctrl-C in the terminal reaches it through us alone.

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
        return cls(name, process, time.monotonic(), log, log_start)

    def ask_to_end(self) -> None:
        """Close the pipe to the guard, which then sends SIGTERM to its program, once. Does nothing after the end."""
        if self.process.stdin is not None:
            self.process.stdin.close()

    def kill(self) -> None:
        """End the guard and its program at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def last_line(self) -> str:
        """The last line that was written since the start; of what a bar overwrites, the newest."""
        with open(self.log, "rb") as file:
            # The end of the log is enough, and no more than this start has written.
            end = file.seek(0, os.SEEK_END)
            file.seek(max(self.log_start, end - TAIL_BYTES))
            lines = file.read().decode(errors="replace").replace("\r", "\n").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _killed_by(code: int) -> str | None:
    """The signal by which somebody stopped a process, from its exit status; None if it ended, or crashed, by itself.

    A shell, our guard, and a training that has saved its checkpoint say 128 and the number of the signal.
    """
    number = -code if code < 0 else code - 128
    return signal.Signals(number).name if number in [int(kill_signal) for kill_signal in KILLS] else None
