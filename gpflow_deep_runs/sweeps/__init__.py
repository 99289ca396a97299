"""Sweeps: data sets x splits x seeds x settings from one file, as local processes, and the table of their results.

spec, runs, check             the file, and the runs that it makes
folder, history, record       what happened to each, and what came of it on which machine
jobs, processes, guard        processes that end with the sweep; progress
tables                        means, standard errors, paired differences
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
