"""What a sweep shows of itself: a line for each event, and where it stands: a bar in a terminal, else a line a minute.

The time left is estimated from the runs that are done: a run takes as long as the mean of those that differ from it
only in split and seed, or else as the mean of its setting, or else of all.
"""

import re
import statistics
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import TracebackType

from tqdm import tqdm

from gpflow_deep_base.text import duration
from gpflow_deep_runs.sweeps.jobs import Status
from gpflow_deep_runs.sweeps.spec import AVERAGED, PlannedRun

__all__ = ["SweepProgress", "seconds_left"]

LINE_SECONDS = 60.0
BAR_SECONDS = 1.0


def seconds_left(status: Status, runs: Sequence[PlannedRun], seconds_of: Mapping[str, float]) -> float | None:
    """Estimated seconds to the end of a sweep; None as long as no run has told what one takes.

    :param seconds_of: of runs that are done, and perhaps of others that are not of this sweep.
    """
    # Only runs of this sweep tell; the folder may hold others.
    timed_runs = [(run, seconds_of[run.name]) for run in runs if run.name in seconds_of]
    if not timed_runs:
        return None
    # Runs that are alike, from the closest kind to all of them.
    by_name = {run.name: run for run in runs}
    kinds: tuple[Callable[[PlannedRun], Hashable], ...] = (_kind, lambda run: run.setting, lambda run: None)

    def expected(name: str) -> float:
        alike = ([s for run, s in timed_runs if kind(run) == kind(by_name[name])] for kind in kinds)
        return statistics.fmean(next(filter(None, alike)))

    # All jobs busy to the end, and no shorter than the longest run.
    remaining = [expected(name) for name in status.left]
    remaining += [max(0.0, expected(job.name) - job.seconds) for job in status.running]
    return max([sum(remaining) / status.num_jobs, *remaining], default=0.0)


def _kind(run: PlannedRun) -> Hashable:
    return run.setting, tuple((axis, value) for axis, value in run.point.items() if axis not in AVERAGED)


class SweepProgress:
    """Shows events and where the sweep stands; use it in a `with` statement.

    :param runs: all runs.
    :param seconds_of: gives the seconds of the runs that are done.
    :param is_shown: False: only events.
    """

    def __init__(
        self, runs: Sequence[PlannedRun], seconds_of: Callable[[], Mapping[str, float]], *, is_shown: bool = True
    ) -> None:
        self._runs = runs
        self._seconds_of = seconds_of
        is_bar = is_shown and sys.stderr.isatty()
        self._has_lines = is_shown and not is_bar
        self._bar = tqdm(
            total=len(runs),
            disable=not is_bar,
            dynamic_ncols=True,
            bar_format="{n_fmt}/{total_fmt} |{bar:12}|{postfix}",
        )
        self._next = time.monotonic() + (LINE_SECONDS if self._has_lines else 0.0)

    def __enter__(self) -> "SweepProgress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.close()

    def say(self, line: str) -> None:
        """A line about an event, on standard output."""
        with tqdm.external_write_mode(file=sys.stdout):
            print(line, flush=True)

    def show(self, status: Status) -> None:
        """Where the sweep stands, if it is time to say so."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + (LINE_SECONDS if self._has_lines else BAR_SECONDS)
        # A line for a log, or the text of the bar for a terminal.
        if self._has_lines:
            print(self.line(status), file=sys.stderr, flush=True)
        elif not self._bar.disable:
            self._bar.n = len(status.done)
            self._bar.set_postfix_str(", ".join(self._parts(status)))

    def line(self, status: Status) -> str:
        """How many runs are done, failed, running and to come, the step of each running one, and the time left."""
        return ", ".join([f"{len(status.done)} of {len(self._runs)} done", *self._parts(status)])

    def _parts(self, status: Status) -> list[str]:
        remaining = seconds_left(status, self._runs, self._seconds_of())
        jobs = [f"{job.name} for {duration(job.seconds)}{_step(job.line)}" for job in status.running]
        return [
            *([f"{len(status.failed)} failed"] if status.failed else []),
            *([f"{len(status.stopped)} stopped"] if status.stopped else []),
            f"running: {'; '.join(jobs) or 'none'}",
            f"{len(status.left)} to come",
            f"about {duration(remaining)} left" if remaining is not None else "time left not known yet",
        ]


def _step(line: str) -> str:
    """The step, of a line of progress of a training script."""
    match = re.match(r"step \d+ of \d+", line)
    return f" at {match[0]}" if match else ""
