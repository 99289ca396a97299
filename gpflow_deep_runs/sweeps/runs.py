"""The runs of a sweep: names and flags, pure functions of the file, and checked against the script that gets them."""

import csv
import importlib.util
import inspect
import io
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from gpflow_deep_runs.cli.flags import named_flags, parse, text
from gpflow_deep_runs.sweeps.spec import Flag, Sweep

__all__ = ["PlannedRun", "arguments", "expand", "flags_of", "full_flags"]


class PlannedRun(NamedTuple):
    """One run: its name, which is that of its folder, its values of the axes, its setting, and all its flags."""

    name: str
    point: Mapping[str, Flag]
    setting: str
    flags: Mapping[str, Flag]


def expand(sweep: Sweep) -> list[PlannedRun]:
    """Every combination of the axes with every setting; the first axis changes slowest, the settings fastest.

    :raises ValueError: if two runs would have one name, or one has the flags of another.
    """
    runs_by_name: dict[str, PlannedRun] = {}
    by_flags: dict[tuple[str, ...], str] = {}
    for values in itertools.product(*sweep.axes.values()):
        point = dict(zip(sweep.axes, values, strict=True))
        for setting, setting_flags in sweep.settings.items():
            # A flag of an axis goes before that of all runs, one of a setting before both.
            run = PlannedRun(_name(point, setting), point, setting, {**sweep.flags, **point, **setting_flags})
            if run.name in runs_by_name:
                raise ValueError(f"two runs have the name {run.name}: change the values of the axes or the settings.")
            # Two runs of the same flags would be counted as two repetitions.
            key = tuple(sorted(arguments(run.flags)))
            if key in by_flags:
                raise ValueError(f"the runs {by_flags[key]} and {run.name} have the same flags; leave one of them out.")
            runs_by_name[run.name] = run
            by_flags[key] = run.name
    return list(runs_by_name.values())


def arguments(flags: Mapping[str, Flag]) -> list[str]:
    """Flags as a command line has them: `--name=value`, `--name` or `--noname`."""
    return [_argument(name, value) for name, value in flags.items()]


def _argument(name: str, value: Flag) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no{name}"
    return f"--{name}={_text(value)}"


def _text(value: Flag) -> str:
    if not isinstance(value, tuple):
        return str(value)
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(value)
    return line.getvalue()


def _name(point: Mapping[str, Flag], setting: str) -> str:
    """Words as they are, other values after the name of their axis: boston-split0-dgp2."""
    # What is no letter, digit or usual sign becomes _, as names are those of folders.
    parts = [value if isinstance(value, str) and value else f"{axis}{_text(value)}" for axis, value in point.items()]
    words = [re.sub(r"[^\w.+=,-]+", "_", part) for part in [*parts, setting] if part]
    return "-".join(words).lstrip(".") or "run"


def flags_of(script: Path) -> Any:
    """The dataclass of the flags of a script that trains.

    :raises ValueError: if there is no such script, or it makes no run that can be resumed.
    """
    if not script.is_file():
        scripts = ", ".join(sorted(path.name for path in script.parent.glob("*.py")))
        raise ValueError(f"script must be one of {scripts}, got {script.name!r}.")
    # Importing a script does not run it, as its __name__ is not "__main__".
    spec = importlib.util.spec_from_file_location(f"of_sweep_{script.stem}", script)
    if spec is None or spec.loader is None:
        raise ValueError(f"script must be a Python file, got {script}.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # The one argument of its `main` is the dataclass of its flags.
    main = getattr(module, "main", None)
    kinds = (
        [hint for name, hint in get_type_hints(main).items() if name != "return"] if inspect.isfunction(main) else []
    )
    if not kinds or not {"run_dir", "resume"} <= {flag.name for flag in named_flags(kinds[0])}:
        raise ValueError(f"script must be one that trains, with --run_dir and --resume, got {script.name!r}.")
    return kinds[0]


def full_flags(kind: Any, runs: Sequence[PlannedRun]) -> dict[str, list[str]]:
    """All flags of each run by its name, those that the file leaves at their defaults among them.

    :param kind: as :func:`flags_of` gives it.
    :raises ValueError: naming the first run and its flag that the script does not have, or whose value it refuses.
    """
    flags_by_name = {}
    for run in runs:
        try:
            flags = parse(kind, [f"--run_dir={run.name}", *arguments(run.flags)])
        except ValueError as error:
            raise ValueError(f"the flags of the run {run.name}: {error}") from error
        flags_by_name[run.name] = text(flags).splitlines()
    return flags_by_name
