"""What the `main` of a script does around its work: arguments, interruptions, errors as one line of text."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from absl import flags, logging

from experiment.loop import Interrupted

__all__ = ["TrainingFailed", "own_words", "run_program", "run_script"]

FLAGS = flags.FLAGS


class TrainingFailed(Exception):
    """Training diverged; the message says where and what to try."""


def own_words(message: str) -> str:
    """What an error of TensorFlow says without the account of where the graph was built: its last line, or ""."""
    lines = [line for line in message.split("[[{{node")[0].splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def run_program(
    argv: list[str],
    run: Callable[[], None],
    explain: Callable[[Exception], tuple[str, int] | None] = lambda error: None,
) -> int:
    """Call `run`, and return the exit status.

    Bad input (ValueError, OSError) is one line and status 2. Other exceptions pass through unless `explain` knows them;
    with `--verbosity=1` all errors do.

    :param argv: as absl's `app.run` gives it: flags are parsed, so that only the name of the program may be left.
    :param explain: message and exit status of an exception, or None.
    """
    if not FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
    try:
        if len(argv) > 1:
            raise ValueError(f"all arguments must be flags, --name=value, got {argv[1]!r}; see --help.")
        run()
        return 0
    except Exception as error:
        explained = (str(error), 2) if isinstance(error, (ValueError, OSError)) else explain(error)
        if explained is None or FLAGS.verbosity >= 1:
            raise
        message, code = explained
    print(f"{Path(argv[0]).name}: error: {message}", file=sys.stderr)
    return code


def run_script(
    argv: list[str],
    run_all: Callable[[float], None],
    explain: Callable[[Exception], tuple[str, int] | None] = lambda error: None,
) -> int:
    """:func:`run_program` for training: interruptions say that --resume continues the run.

    :param run_all: gets the time at which the script began, of `time.monotonic`.
    """
    program = Path(argv[0]).name
    try:
        return run_program(argv, lambda: run_all(time.monotonic()), explain)
    except Interrupted as stop:
        print(f"{program}: {stop}", file=sys.stderr)
        return stop.exit_code
    except KeyboardInterrupt:
        print(f"{program}: stopped; continue from the last checkpoint with --resume.", file=sys.stderr)
        return 130
