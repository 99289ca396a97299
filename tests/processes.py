"""Processes that a test reads from: a limit for each, so that no test waits for ever for a line that does not come."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["LIMIT_SECONDS", "limited"]

LIMIT_SECONDS = 300.0
"""For what takes seconds, on a machine that is ten times as busy."""


@contextmanager
def limited(process: "subprocess.Popen[Any]", seconds: float = LIMIT_SECONDS) -> Iterator[None]:
    """Kill the process if it is not done by then: what waits for its output or its end goes on, and fails."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
