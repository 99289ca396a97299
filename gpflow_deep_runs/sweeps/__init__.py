"""Sweeps: data sets x splits x seeds x settings from one file, as local processes, and the table of their results.

spec, runs                    the file, and the runs that it makes
folder, history, record       what happened to each, and what came of it on which machine
jobs, guard, progress         processes that end with the sweep, and what is shown of it
tables                        means, standard errors, paired differences
"""

from gpflow_deep_runs.sweeps.folder import SweepDir
from gpflow_deep_runs.sweeps.jobs import Program, Status, work
from gpflow_deep_runs.sweeps.record import machine, results, write_tables
from gpflow_deep_runs.sweeps.runs import PlannedRun, arguments, expand
from gpflow_deep_runs.sweeps.spec import Sweep, parse, read
from gpflow_deep_runs.sweeps.tables import Cell, Mean, as_json, as_markdown, as_text, mean_of, tabulate

__all__ = [
    "Cell",
    "Mean",
    "PlannedRun",
    "Program",
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
