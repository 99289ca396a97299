"""What a script does around its `main(flags)`: the command line, interruptions, errors as one line of text.

command = functools.partial(cli.run, main, explain=devices.explain)      # or, for a script of several commands,
command = functools.partial(cli.run, {"encode": encode, "decode": decode})

if __name__ == "__main__":
    command()

`command` is what pyproject.toml names as the entry point of an installed script.
"""

import contextlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from logging import WARNING, LogRecord
from logging import Formatter as PythonFormatter
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from absl import app, logging
from absl import flags as absl_flags

from gpflow_deep_base.files import FULL
from gpflow_deep_base.stopping import Interrupted
from gpflow_deep_base.text import within
from gpflow_deep_runs.cli.flags import HelpWanted, Main, flags_of, help_text, parse
from gpflow_deep_runs.cli.output import output_may_be_lost, print_asked_for

if TYPE_CHECKING:
    from gpflow_deep_runs.run import Settings  # which starts TensorFlow

__all__ = ["call", "run"]

Explain = Callable[[Exception], tuple[str, int] | None]


def run(main: Main | Mapping[str, Main], *, explain: Explain = lambda error: None) -> NoReturn:
    """Run a script as an absl program: make the flags that `main` takes from the command line, call it, and exit.

    :param main: a function of one dataclass, which its annotation names; see `gpflow_deep_runs.cli.flags`. Or several
        such functions by name: the first argument is the name of one.
    :param explain: message and exit status of an exception that is not known here, or None.
    """

    # absl calls the first function with the command line, the second with what it returned.
    def flags_parser(argv: list[str]) -> tuple[Main, object]:
        command, arguments = _chosen(main, argv)
        flags = _parsed(command, arguments)
        absl_flags.FLAGS.mark_as_parsed()  # absl's own are among those of _parsed
        return command, flags

    def program(parsed_flags: tuple[Main, object]) -> int:
        command, flags = parsed_flags
        if not absl_flags.FLAGS.log_dir:  # a file of logs keeps absl's times and places
            logging.get_absl_handler().setFormatter(_Words())
        return _called(command, flags, _program(sys.argv), explain)

    app.run(program, flags_parser=flags_parser)
    raise AssertionError("absl's app.run exits")


def call(main: Main | Mapping[str, Main], argv: Sequence[str], *, explain: Explain = lambda error: None) -> int:
    """What :func:`run` does, within a process that goes on, and without what absl does around a program.

    :param argv: name of the program, and its arguments.
    :return: exit status.
    """
    try:
        command, arguments = _chosen(main, argv)
        flags = _parsed(command, arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    return _called(command, flags, _program(argv), explain)


class _Words(PythonFormatter):
    """Log lines as users read them: "warning: ..."; what is worth no warning has no word before it."""

    def format(self, record: LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        return within(f"{record.levelname.lower()}: {text}" if record.levelno >= WARNING else text)


def _program(argv: Sequence[str]) -> str:
    return Path(argv[0]).name


def _chosen(main: Main | Mapping[str, Main], argv: Sequence[str]) -> tuple[Main, list[str]]:
    """The function to call, and the arguments that are left for its flags.

    :raises SystemExit: where a command is needed: after --help (0), and after a line on what is wrong with it (2).
    """
    if callable(main):
        return main, list(argv)
    # A script of several commands: its first argument is the name of one.
    program = _program(argv)
    name = argv[1] if len(argv) > 1 else ""
    if name in main:
        return main[name], [f"{argv[0]} {name}", *argv[2:]]
    if name == "--help":
        print_asked_for(
            "\n\n".join(help_text(flags_of(function), f"{program} {command}") for command, function in main.items())
        )
        raise SystemExit(0)
    print(
        f"{program}: error: say {' or '.join(main)}, then flags, --name=value, got {name!r}; see --help.",
        file=sys.stderr,
    )
    raise SystemExit(2)


def _parsed(main: Main, argv: Sequence[str]) -> object:
    """The flags that `main` takes.

    :raises SystemExit: after --help (0) and after a line on what is wrong with the flags (2).
    """
    try:
        flags: object = parse(flags_of(main), argv[1:], _program(argv), with_absl=True)
        for settings in _settings(flags):
            settings.check_folder()  # now, and not after minutes of reading data
        return flags
    except HelpWanted as help_request:
        print_asked_for(help_request)
        raise SystemExit(0) from None
    except (ValueError, OSError) as error:
        explained = _explained(error)
        print(f"{_program(argv)}: error: {explained[0] if explained else error}", file=sys.stderr)
        raise SystemExit(2) from None


def _called(main: Main, flags: object, program: str, explain: Explain) -> int:
    """Call `main`; return the exit status. A training is not ended by the loss of its standard output or error.

    Bad input (ValueError, OSError) and a missing library are one line and status 2, a diverged training
    (FloatingPointError) one line and status 1; an interruption says that --resume continues the run. Other exceptions
    pass through unless `explain` knows them; with `--verbosity=1` all errors do.
    """
    # Libraries' lines of information are for those who ask for them.
    verbosity = absl_flags.FLAGS["verbosity"]
    if not verbosity.present:
        logging.set_verbosity(logging.WARNING)
    is_run = any(_settings(flags))
    with output_may_be_lost() if is_run else contextlib.nullcontext():
        try:
            main(flags)
            return 0
        except Interrupted as stop:
            # Stopped on purpose: its checkpoint is written, and the signal has a status of its own.
            message = str(stop)
            code = stop.exit_code
        except KeyboardInterrupt:
            message = "stopped; continue from the last checkpoint with --resume." if is_run else "stopped."
            code = 130
        except Exception as error:
            # An error that the user can mend is one line; others show where they come from.
            explained = explain(error) or _explained(error, is_run)
            if explained is None or (verbosity.present and int(verbosity.value or 0) >= 1):
                raise
            message = f"error: {explained[0]}"
            code = explained[1]
        print(f"{program}: {message}", file=sys.stderr)
    return code


def _settings(flags: object) -> list["Settings"]:
    """The settings of a run, if the program makes one."""
    return [value for value in vars(flags).values() if hasattr(value, "check_folder")]


def _explained(error: Exception, is_run: bool = False) -> tuple[str, int] | None:
    if isinstance(error, FloatingPointError):
        return str(error), 1
    # The system's errors have message and file apart; what to do about them is added.
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        space_advice = "free some space" + (", then continue with --resume" if is_run else "")
        advice = space_advice if error.errno in FULL else "check the path"
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror.lower()}; {advice}.", 2
    if isinstance(error, ValueError | OSError):
        return re.sub(r"\[Errno -?\d+\] ", "", str(error)), 2  # of an error that this one quotes
    return None
