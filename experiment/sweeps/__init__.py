"""Sweeps: data sets x splits x seeds x settings from one file, as local processes, and the table of their results.

sweep = read("results/sweeps/uci.toml")                 # or parse(text)
runs = expand(sweep)                                    # names and flags
folder = SweepDir("runs/uci")
with folder.opened(sweep, runs, {"machine": machine()}):  # refused if another process has it
    report = work(folder, runs, [sys.executable, "scripts/train_dgp.py"], jobs=2)
print(as_text(tabulate(sweep, results(folder, runs))))
"""

from experiment.sweeps.folder import SweepDir
from experiment.sweeps.jobs import Report, work
from experiment.sweeps.machine import machine
from experiment.sweeps.record import results, write_tables
from experiment.sweeps.runs import PlannedRun, arguments, expand
from experiment.sweeps.spec import Column, Number, Sweep, Tables, parse, read
from experiment.sweeps.tables import as_markdown, as_text, tabulate

__all__ = [
    "Column",
    "Number",
    "PlannedRun",
    "Report",
    "Sweep",
    "SweepDir",
    "Tables",
    "arguments",
    "as_markdown",
    "as_text",
    "expand",
    "machine",
    "parse",
    "read",
    "results",
    "tabulate",
    "work",
    "write_tables",
]
