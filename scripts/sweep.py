#!/usr/bin/env python3
"""Run data sets x splits x seeds x settings from one file, as local processes, and tabulate their results.

    sweep.py results/sweeps/uci.toml --data_dir=DATA
    sweep.py results/sweeps/uci.toml --data_dir=DATA --jobs=4
    sweep.py results/sweeps/uci.toml --table_only

The file names a script that trains, flags of all runs, axes (every combination is run), settings (with each of which),
and what to tabulate; docs/sweeps.md explains it. Each run is a usual run of the script in a folder of its own. Ctrl-C
or any kill loses no finished run: the same command keeps what is done and continues what was begun. Values, axes'
values and settings may be added to the file later. The folder of the sweep gets:

    table.txt, table.md, table.json   means, standard errors, paired differences; the last with every number
    runs/NAME/, logs/NAME.log         the folder of each run, and what it wrote to the console
    sweep.toml, sweep.json, history.jsonl
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiment import cli
from experiment.cli.flags import at_least, positional
from experiment.run.folder import provenance
from experiment.sweeps import PlannedRun, Report, Sweep, SweepDir, arguments, expand, machine, read, work, write_tables
from experiment.sweeps.check import check_flags
from experiment.sweeps.progress import SweepProgress
from experiment.sweeps.record import seconds_of


@dataclass(frozen=True)
class Flags:
    """Run data sets x splits x seeds x settings from one file, as local processes, and tabulate their results.

    :param file: the file of the sweep, see docs/sweeps.md; its name may follow the script's without --file.
    :param sweep_dir: folder of the sweep; runs/NAME for NAME.toml if not given.
    :param jobs: runs at a time.
    :param threads: CPU threads of each run, unless the file says it.
    :param data_dir: folder of the data sets, given to each run; in place of that of the file.
    :param retry: also continue the runs that failed.
    :param dry_run: only print the commands.
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
        """That of the file."""
        return Path(self.file).stem

    @property
    def folder(self) -> SweepDir:
        """The folder of the sweep."""
        return SweepDir(self.sweep_dir or Path("runs") / self.name)


def main(flags: Flags) -> None:
    """From the file to the tables."""
    sweep = read(flags.file)
    runs, script = expand(sweep), Path(__file__).resolve().parent / sweep.script
    if flags.table_only:
        print(write_tables(flags.folder, sweep, flags.name), end="")
        return
    local = local_flags(flags, sweep, check_flags(script, runs))
    if flags.dry_run:
        for run in runs:
            print(
                " ".join(
                    [sweep.script, f"--run_dir={flags.folder.run_dir(run.name)}", *arguments({**run.flags, **local})]
                )
            )
        return
    report = carry_out(flags, sweep, runs, [sys.executable, str(script)], local)
    text = tables(flags, sweep)
    print(f"\n{text}" if text else "", end="")
    conclude(flags, runs, report)


def local_flags(flags: Flags, sweep: Sweep, known: set[str]) -> dict[str, Any]:
    """Flags that each run gets from the command line."""
    named = {*sweep.flags, *sweep.axes, *(name for own in sweep.settings.values() for name in own)}
    if flags.data_dir is not None and "data_dir" not in known:
        raise ValueError(f"--data_dir must be left out: {sweep.script} does not have it.")
    given = {} if flags.data_dir is None else {"data_dir": flags.data_dir}
    return {**given, **({"threads": flags.threads} if "threads" in known - named else {})}


def carry_out(flags: Flags, sweep: Sweep, runs: list[PlannedRun], program: list[str], local: dict[str, Any]) -> Report:
    """Run what is not done."""
    folder = flags.folder
    about = {name: value for name, value in provenance("").items() if name not in ("data_sha256", "start_time")}
    environment = {"OMP_NUM_THREADS": str(flags.threads)} if flags.threads else {}
    with (
        folder.opened(sweep, runs, {**about, "machine": machine(), "jobs": flags.jobs}),
        SweepProgress(runs, lambda: seconds_of(folder), is_shown=flags.progress) as shown,
    ):
        if strangers := folder.strangers(runs):
            shown.say(f"left alone, as the file no longer has them: {', '.join(strangers)}")
        return work(
            folder,
            runs,
            program,
            jobs=flags.jobs,
            retry=flags.retry,
            local=local,
            environment={**environment, **os.environ},
            say=shown.say,
            show=shown.show,
            after=lambda: tables(flags, sweep),
        )


def tables(flags: Flags, sweep: Sweep) -> str:
    """Write them, if the file has any; what is wrong with them does not stop the sweep."""
    try:
        return write_tables(flags.folder, sweep, flags.name) if sweep.tables is not None else ""
    except ValueError as error:
        print(f"no tables: {flags.file}: {error} Then make them with --table_only.", file=sys.stderr)
        return ""


def conclude(flags: Flags, runs: list[PlannedRun], report: Report) -> None:
    """Say what is not done and how to go on.

    :raises SystemExit: unless all is done.
    """
    print(f"{len(report.done)} of {len(runs)} runs are done, in {flags.folder.path}")
    for name, error in report.failed.items():
        print(f"failed: {name}: {error}\n    {flags.folder.log_file(name)}; --retry continues it", file=sys.stderr)
    for name, why in report.stopped.items():
        print(f"stopped: {name}: {why}", file=sys.stderr)
    if report.stopped or report.left:
        print("the same command continues the sweep.", file=sys.stderr)
    if report.signal is not None:
        raise SystemExit(130 if report.signal == "SIGINT" else 143)
    if report.failed or report.stopped:
        raise SystemExit(1)


if __name__ == "__main__":
    cli.run(main)
