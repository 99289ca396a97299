"""The command line of a script: flags from dataclasses, errors as one line."""

from experiment.cli import flags
from experiment.cli.main import call, run

__all__ = ["call", "flags", "run"]
