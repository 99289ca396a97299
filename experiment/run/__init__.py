"""One run: its folder, its loop, what it writes, and on what it computes."""

from gpflow_deep_base.quiet import start_tensorflow

start_tensorflow()  # before anything else imports it

from experiment.run.devices import Devices
from experiment.run.loop import Every, Fitted, Interrupted, fit
from experiment.run.selection import Best, lowest, newest
from experiment.run.start import About, Run, Settings, open_run
from experiment.run.writer import Shown
from experiment.seeds import Seeds

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
