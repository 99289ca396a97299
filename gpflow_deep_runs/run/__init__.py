"""One run (start): its folder and checkpoints, its loop and which evaluation is the best (selection), what it writes
(writer, progress, final), and on what it computes (devices)."""

from gpflow_deep_base.runtime.quiet import start_tensorflow

start_tensorflow()  # before anything else imports it

from gpflow_deep_base.seeds import Seeds
from gpflow_deep_base.stopping import Best
from gpflow_deep_runs.run.devices import Devices
from gpflow_deep_runs.run.loop import Every, Fitted, Interrupted, fit
from gpflow_deep_runs.run.selection import lowest, newest
from gpflow_deep_runs.run.start import About, Run, Settings, open_run
from gpflow_deep_runs.run.writer import Shown

__all__ = [
    "About",
    "Best",
    "Devices",
    "Every",
    "Fitted",
    "Interrupted",
    "Run",
    "Seeds",
    "Settings",
    "Shown",
    "fit",
    "lowest",
    "newest",
    "open_run",
]
