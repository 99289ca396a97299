"""Work through the runs of a sweep, some at a time, each in a process of its own, and survive any kill.

A pool of `concurrent.futures` waits for the processes; what is told and written is told and written by one thread.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import MappingProxyType
from typing import NamedTuple

from gpflow_deep_base.stopping import signals
from gpflow_deep_base.text import duration
from gpflow_deep_runs.sweeps.folder import SweepDir
from gpflow_deep_runs.sweeps.machine import machine
from gpflow_deep_runs.sweeps.processes import Job, ask_to_end, kill, killed_by, last_line, start
from gpflow_deep_runs.sweeps.runs import PlannedRun, arguments
from gpflow_deep_runs.sweeps.spec import Flag

__all__ = ["Program", "Report", "Running", "Status", "work"]

POLL_SECONDS = 0.1
HELD_SECONDS = 2.0


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
    """Where a sweep stands: its runs by what has become of them, `left` those that were not started yet."""

    done: Sequence[str]
    failed: Mapping[str, str]
    stopped: Mapping[str, str]
    running: Sequence[Running]
    left: Sequence[str]
    num_jobs: int


class Report(NamedTuple):
    """What :func:`work` did.

    :ivar done: runs with a result, those of earlier starts among them.
    :ivar failed: run -> the last line of its error; started again only with `retry`.
    :ivar stopped: run -> by what it was stopped from outside; continued by the next start.
    :ivar left: runs that were not started.
    :ivar signal: what stopped the sweep, such as "SIGINT", or None.
    """

    done: Sequence[str]
    failed: Mapping[str, str]
    stopped: Mapping[str, str]
    left: Sequence[str]
    signal: str | None


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
) -> Report:
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
    waiting_names = [run.name for run in state.waiting]
    return Report(state.done, state.failed, state.stopped, waiting_names, received[0] if received else None)


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
        self.running: dict[Future[int], Job] = {}
        self._held: dict[str, str] = {}
        self._look_at = 0.0
        # The history and the results say what became of each run; both have to agree that it is done.
        newest = folder.newest()
        for run in runs:
            last = newest.get(run.name, {})
            if last.get("event") == "failed" and not retry and folder.result(run.name) is None:
                self.failed[run.name] = last["error"]
            elif last.get("event") == "done" and folder.result(run.name) is not None:
                self.done.append(run.name)
            else:
                self.waiting.append(run)

    def status(self) -> Status:
        current_time = time.monotonic()
        running = [Running(job.name, current_time - job.start, last_line(job)) for job in self.running.values()]
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
        names = [run.name for run in self.waiting]
        held = {name: holder for name in names if (holder := self._folder.holder(name)) is not None}
        for name in held.keys() - self._held.keys():
            self._say(f"waiting: {name} is in use by {held[name]}")
        self._held = held

    def _start(self, run: PlannedRun, pool: ThreadPoolExecutor) -> None:
        folder = self._folder
        program = self._program
        is_begun = self._folder.is_begun(run.name)
        flags = [*arguments({**run.flags, **program.local}), *(["--resume"] if is_begun else [])]
        words = [*program.words, f"--run_dir={folder.run_dir(run.name)}", *flags]
        folder.note(run.name, "started", is_resumed=is_begun, machine=machine(), local=arguments(program.local))
        job = start(run.name, words, folder.log_file(run.name), program.environment)
        self.running[pool.submit(job.process.wait)] = job
        self._say(f"{'continued' if is_begun else 'started'}: {run.name}")

    def collect(self) -> None:
        """Wait for a moment until a job ends, and note how."""
        if not self.running:  # all that wait are in use
            time.sleep(POLL_SECONDS)
        for future in wait(self.running, POLL_SECONDS, FIRST_COMPLETED).done:
            job = self.running.pop(future)
            ask_to_end(job)
            name = job.name
            code = future.result()
            seconds = time.monotonic() - job.start
            stopped_by = killed_by(code)
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
                error = last_line(job) or f"ended with status {code} and wrote nothing"
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
            ask_to_end(job)
        is_killed = False
        while self.running:
            if len(received) > 1 and not is_killed:
                is_killed = True
                for job in self.running.values():
                    kill(job)
            self.collect()
