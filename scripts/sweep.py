#!/usr/bin/env python3
"""Run data sets x splits x seeds x settings from one file, as local processes, and tabulate their results.

    gpflow-deep sweep results/sweeps/uci.toml --data_dir=DATA --jobs=4
    gpflow-deep sweep results/sweeps/uci.toml --dry_run
    gpflow-deep sweep results/sweeps/uci.toml --table_only

docs/sweeps.md explains the file and the folder. The same command keeps what is done and continues what was begun.
"""

import functools
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import gpflow_deep_runs.early  # noqa: F401 (what is wrong is said before TensorFlow starts)
from gpflow_deep_runs import cli
from gpflow_deep_runs.cli.flags import at_least, named_flags, positional
from gpflow_deep_runs.run.folder import provenance
from gpflow_deep_runs.sweeps import (
    PlannedRun,
    Program,
    Status,
    Sweep,
    SweepDir,
    arguments,
    expand,
    machine,
    read,
    work,
    write_tables,
)
from gpflow_deep_runs.sweeps.folder import seconds_of
from gpflow_deep_runs.sweeps.progress import SweepProgress
from gpflow_deep_runs.sweeps.spec import flags_of, full_flags


@dataclass(frozen=True)
class Flags:
    """Run data sets x splits x seeds x settings from one file, as local processes, and tabulate their results.

    :param file: the file of the sweep, see docs/sweeps.md; it may be given without --file=.
    :param sweep_dir: folder of the sweep; runs/NAME for NAME.toml if not given.
    :param jobs: how many runs at a time.
    :param threads: CPU threads of each run, unless the file says it; 0 lets TensorFlow choose.
    :param data_dir: folder of the data sets, for each run; in place of that of the file.
    :param retry: also start again the runs that failed.
    :param dry_run: only print the command of each run, and what has become of it.
    :param table_only: only write the tables of the runs that are done, also while the sweep is running.
    :param progress: show a bar on standard error if that is a terminal, else a line a minute.
    """

    file: str = positional()
    sweep_dir: str | None = None
    jobs: int = 1
    threads: int = 1
    data_dir: str | None = None
    retry: bool = False
    dry_run: bool = False
    table_only: bool = False
    progress: bool = True

    def __post_init__(self) -> None:
        at_least(self, {"jobs": 1, "threads": 0})

    @property
    def name(self) -> str:
        """That of the sweep."""
        return Path(self.file).stem

    @property
    def folder(self) -> SweepDir:
        """The folder of the sweep."""
        return SweepDir(self.sweep_dir or Path("runs") / self.name)


def main(flags: Flags) -> None:
    """From the file to the tables."""
    sweep = read(flags.file)
    runs = expand(sweep)
    script = Path(__file__).resolve().parent / sweep.script
    # Only the tables of what is done; the sweep may be running meanwhile.
    if flags.table_only:
        flags.folder.changed(sweep, runs, is_new_allowed=False)
        print(write_tables(flags.folder, sweep, flags.name), end="")
        return
    # The flags of all runs are checked against the script before the first one starts.
    kind = flags_of(script)
    full = full_flags(kind, runs)
    program = program_of(flags, sweep, script, {flag.name for flag in named_flags(kind)})
    if flags.dry_run:
        list_runs(flags.folder, sweep, runs, program)
        return
    report = carry_out(flags, sweep, runs, full, program)
    if report.done and (text := tables(flags, sweep)):
        print(f"\n{text}")
    conclude(flags, len(runs), report)


def program_of(flags: Flags, sweep: Sweep, script: Path, known: set[str]) -> Program:
    """How to call the script, and which flags it gets from this command line; `known` are the names of its own."""
    if flags.data_dir is not None and "data_dir" not in known:
        raise ValueError(f"--data_dir must not be given: {sweep.script} does not have it.")
    # What the file says itself is not said again.
    named = {*sweep.flags, *sweep.axes, *(name for setting_flags in sweep.settings.values() for name in setting_flags)}
    data_flags = {} if flags.data_dir is None else {"data_dir": flags.data_dir}
    # Threads that the file gives stay; the libraries of each run get as many.
    thread_flags = {"threads": flags.threads} if "threads" in known - named else {}
    defaults = {"OMP_NUM_THREADS": str(flags.threads)} if thread_flags and flags.threads else {}
    defaults |= {"TF_FORCE_GPU_ALLOW_GROWTH": "true"} if flags.jobs > 1 else {}  # or the first takes all of a GPU
    return Program([sys.executable, str(script)], {**data_flags, **thread_flags}, {**defaults, **os.environ})


def list_runs(folder: SweepDir, sweep: Sweep, runs: Sequence[PlannedRun], program: Program) -> None:
    """Print the command of each run, and what has become of it."""
    newest = folder.newest()
    for run in runs:
        event = newest[run.name]["event"] if run.name in newest else "new"
        state = "done" if folder.result(run.name) is not None else event
        words = [f"--run_dir={folder.run_dir(run.name)}", *arguments({**run.flags, **program.local})]
        print(" ".join([sweep.script, *words]), f" # {state}")


def carry_out(
    flags: Flags, sweep: Sweep, runs: Sequence[PlannedRun], full: Mapping[str, Sequence[str]], program: Program
) -> Status:
    """Run what is not done."""
    folder = flags.folder
    # On record is what this start of the sweep was made with, as each run has it for itself.
    origin = provenance("")
    facts = {name: origin[name] for name in ("command", "git_commit", "git_dirty", "versions", "python", "devices")}
    with (
        folder.opened(sweep, runs, {**facts, "machine": machine(), "jobs": flags.jobs}, full),
        SweepProgress(runs, lambda: seconds_of(folder.history()), is_shown=flags.progress) as shown,
    ):
        if strangers := folder.strangers(runs):
            shown.say(f"left alone, as the file has no such runs now: {', '.join(strangers)}")
        return work(
            folder,
            runs,
            program,
            jobs=flags.jobs,
            retry=flags.retry,
            say=shown.say,
            show=shown.show,
            after=lambda: tables(flags, sweep),
        )


def tables(flags: Flags, sweep: Sweep) -> str:
    """Write them, if the file has any; what is wrong with them does not stop the sweep."""
    try:
        return write_tables(flags.folder, sweep, flags.name) if sweep.tables is not None else ""
    except ValueError as error:
        print(
            f"no tables: {flags.file}: {error} The runs go on; correct [table] and use --table_only.", file=sys.stderr
        )
        return ""


def conclude(flags: Flags, num_runs: int, report: Status) -> None:
    """Say what is not done and how to go on.

    :raises SystemExit: unless all is done.
    """
    print(f"{len(report.done)} of {num_runs} runs are done, in {flags.folder.path}")
    # What failed with its error, what was stopped, and how either goes on.
    for name, error in report.failed.items():
        print(f"failed: {name}: {error}\n    see {flags.folder.log_file(name)}", file=sys.stderr)
    if report.failed:
        print("the same command with --retry starts again what failed.", file=sys.stderr)
    if report.stopped or report.left:
        print("stopped; the same command continues the sweep.", file=sys.stderr)
    if report.signal is not None:
        raise SystemExit({"SIGINT": 130}.get(report.signal, 143))
    if report.failed or report.stopped:
        raise SystemExit(1)


command = functools.partial(cli.run, main)

if __name__ == "__main__":
    command()
