"""Sweeps: data sets x splits x seeds x settings from one file, as local processes, and the table of their results.

spec                    the file, and the runs that it makes
folder                  what happened to each of them
jobs, guard, progress   processes that end with the sweep, and what is shown of it
tables                  means, standard errors, paired differences, and with what each number was made
"""

from gpflow_deep_runs.sweeps.folder import SweepDir
from gpflow_deep_runs.sweeps.jobs import Program, Status, work
from gpflow_deep_runs.sweeps.spec import PlannedRun, Sweep, arguments, expand, parse, read
from gpflow_deep_runs.sweeps.tables import (
    Cell,
    Mean,
    as_json,
    as_markdown,
    as_text,
    machine,
    mean_of,
    results,
    tabulate,
    write_tables,
)

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
