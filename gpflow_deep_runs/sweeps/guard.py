"""Run a program, and ask it once to end when standard input is closed: `python guard.py PROGRAM ARGUMENTS`.

Standard input is a pipe from the sweep. The system closes it whenever the sweep ends, even by SIGKILL, so no job is
left behind with the lock of its folder; and the sweep closes it to stop a job. SIGTERM makes a training save a
checkpoint; a second one would end it without. Run by its path, without our packages.
"""

import os
import select
import signal
import subprocess
import sys

POLL_SECONDS = 0.05


def main() -> int:
    """The exit status of the program; 128 and the number of the signal that ended it, as a shell has it."""
    # Signals from elsewhere, such as from a batch system, are passed on as one SIGTERM.
    stops: list[int] = []
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: stops.append(number))
    program = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, restore_signals=True)
    is_asked = False
    # Until the program ends, wait for the end of the sweep or a signal.
    while program.poll() is None:
        if not is_asked and (stops or _is_closed()):
            program.terminate()
            is_asked = True
        select.select([] if is_asked else [0], [], [], POLL_SECONDS)
    code = int(program.returncode)
    return code if code >= 0 else 128 - code


def _is_closed() -> bool:
    """Whether the other end of standard input is; nothing is ever written there."""
    readable, _, _ = select.select([0], [], [], 0)
    return bool(readable) and os.read(0, 1) == b""


if __name__ == "__main__":
    sys.exit(main())
