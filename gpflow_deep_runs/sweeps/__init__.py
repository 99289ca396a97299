"""Sweeps: data sets x splits x seeds x settings from one file, as local processes, and the table of their results.

What `gpflow-deep sweep` does, in Python:

    sweep = read("results/sweeps/uci.toml")                   # or parse(text)
    runs = expand(sweep)                                      # names and flags
    folder = SweepDir("runs/uci")
    with folder.opened(sweep, runs, {"machine": machine()}):  # refused if another process has it
        report = work(folder, runs, Program(["gpflow-deep", "train"]), jobs=2)
    print(as_text(tabulate(sweep, results(folder, runs)), sweep.tables.baseline))
"""

from gpflow_deep_runs.sweeps.folder import SweepDir
from gpflow_deep_runs.sweeps.jobs import Program, Report, Status, work
from gpflow_deep_runs.sweeps.machine import machine
from gpflow_deep_runs.sweeps.record import results, write_tables
from gpflow_deep_runs.sweeps.runs import PlannedRun, arguments, expand
from gpflow_deep_runs.sweeps.spec import Sweep, parse, read
from gpflow_deep_runs.sweeps.tables import Cell, Mean, as_json, as_markdown, as_text, mean_of, tabulate

__all__ = [
    "Cell",
    "Mean",
    "PlannedRun",
    "Program",
    "Report",
    "Status",
    "Sweep",
    "SweepDir",
    "arguments",
    "as_json",
    "as_markdown",
    "as_text",
    "expand",
    "machine",
    "mean_of",
    "parse",
    "read",
    "results",
    "tabulate",
    "work",
    "write_tables",
]
