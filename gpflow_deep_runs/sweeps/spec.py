"""The file of a sweep, see docs/sweeps.md, and the runs that it makes: names and flags, pure functions of the file.

There is one clear error for whatever is wrong with the file, or with flags that its script does not take.
"""

import csv
import inspect
import io
import itertools
import math
import os
import re
import runpy
import string
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from gpflow_deep_base.text import has_control_characters
from gpflow_deep_runs.cli.flags import named_flags
from gpflow_deep_runs.cli.flags import parse as parse_flags
from gpflow_deep_runs.cli.flags import text as text_of_flags
from gpflow_deep_runs.verbs import VERBS

__all__ = [
    "Column",
    "Flag",
    "Number",
    "PlannedRun",
    "Sweep",
    "Tables",
    "arguments",
    "expand",
    "flags_of",
    "full_flags",
    "parse",
    "read",
]

Flag = bool | int | float | str | tuple[bool | int | float | str, ...]
"""Value of a flag."""

OWN_FLAGS = ("run_dir", "resume", "flagfile")
AVERAGED = ("split", "seed")
NAME = re.compile(r"[a-z][a-z0-9_]*")


class Number(NamedTuple):
    """A number to tabulate.

    `path` are keys of result.json with dots between them; `{word}` in it is replaced by the `word` of the column.
    """

    name: str
    path: str
    digits: int = 3
    has_differences: bool = True


class Column(NamedTuple):
    """A column of the table: the setting whose runs have it, and what replaces `{word}` in the paths of numbers."""

    name: str
    setting: str
    words: Mapping[str, str]


class Tables(NamedTuple):
    """What to tabulate: numbers, columns, the axes that are averaged over, and the column that others are compared
    with (None: no differences)."""

    numbers: tuple[Number, ...] = ()
    columns: tuple[Column, ...] = ()
    over: tuple[str, ...] = ()
    baseline: str | None = None


class Sweep(NamedTuple):
    """What the file says. Without settings there is one, called ""."""

    script: str
    flags: Mapping[str, Flag]
    axes: Mapping[str, tuple[Flag, ...]]
    settings: Mapping[str, Mapping[str, Flag]]
    tables: Tables | None
    text: str


class PlannedRun(NamedTuple):
    """One run: its name, which is that of its folder, its values of the axes, its setting, and all its flags."""

    name: str
    point: Mapping[str, Flag]
    setting: str
    flags: Mapping[str, Flag]


def read(path: str | os.PathLike[str]) -> Sweep:
    """The sweep of a file.

    :raises ValueError: as :func:`parse`, with the name of the file before it.
    :raises OSError: if it cannot be read.
    """
    try:
        return parse(Path(path).expanduser().read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{os.fspath(path)} must be text in UTF-8 ({error}); save it so.") from error
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error


def parse(text: str) -> Sweep:
    """The sweep of a TOML text.

    :raises ValueError: for what is no TOML, names that nothing has, wrong types, and what is there twice.
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"it must be TOML, but: {error}.") from error
    _table(content, "the file", ("script", "flags", "axes", "settings", "table"))
    # A verb stands for its script.
    script = content.get("script")
    if isinstance(script, str) and script in VERBS:
        script = f"{VERBS[script][0]}.py"
    if not isinstance(script, str) or Path(script).name != script or not script.endswith(".py"):
        raise ValueError(f'script must be a verb of gpflow-deep, as script = "train", got {script!r}.')
    # Flags of all runs, axes, settings; without settings there is one without a name.
    flags = _flags(content.get("flags", {}), "[flags]")
    axes = {name: _values(name, values) for name, values in _flag_table(content.get("axes", {}), "[axes]").items()}
    settings = {
        name: _flags(values, f"settings.{name}")
        for name, values in _table(content.get("settings", {"": {}}), "[settings]").items()
    }
    if not settings:
        raise ValueError("[settings] must have at least one setting, got none; name one, or leave the section out.")
    # A setting may replace a flag of all; an axis may not be set elsewhere.
    for section, names in {"[flags]": flags, **{f"settings.{name}": of for name, of in settings.items()}}.items():
        if repeated := sorted(set(names) & set(axes)):
            raise ValueError(f"{repeated[0]} is an axis, and also in {section}; leave it in one of the two.")
    tables = _tables(content["table"], tuple(axes), tuple(settings)) if "table" in content else None
    return Sweep(script, flags, axes, settings, tables, text)


def _tables(content: object, axes: Sequence[str], settings: Sequence[str]) -> Tables:
    table = _table(content, "[table]", ("numbers", "columns", "over", "baseline"))
    # What is tabulated, in which columns; without columns, each setting is one.
    numbers = tuple(_number(name, value) for name, value in _table(table.get("numbers"), "[table.numbers]").items())
    if not numbers:
        raise ValueError("[table.numbers] must name at least one number of result.json, got none.")
    default = {name or "result": {"setting": name} if name else {} for name in settings}
    by_name = _table(table.get("columns", default), "[table.columns]")
    columns = tuple(_column(name, value, settings) for name, value in by_name.items())
    if not columns:
        raise ValueError("[table.columns] must have at least one column, got none; or leave the section out.")
    # Every word in the path of a number needs its meaning in every column.
    for number, column in itertools.product(numbers, columns):
        if missing := sorted(_words(number.path) - set(column.words)):
            raise ValueError(
                f"table.columns.{column.name} must say what {{{missing[0]}}} is in {number.path!r}, "
                f'as {missing[0]} = "..."; got {dict(column.words)}.'
            )
    # What is averaged over, and with what the columns are compared.
    over = table.get("over", [name for name in AVERAGED if name in axes])
    if not isinstance(over, list) or not all(name in axes for name in over) or len(set(over)) < len(over):
        raise ValueError(f"table.over must list axes, each once, of {', '.join(axes) or 'none'}, got {over!r}.")
    baseline = table.get("baseline")
    if not isinstance(baseline, str | None) or (baseline is not None and baseline not in by_name):
        raise ValueError(f"table.baseline must be a column, one of {', '.join(by_name)}, got {baseline!r}.")
    return Tables(numbers, columns, tuple(over), baseline)


def _number(name: str, value: object) -> Number:
    section = f'table.numbers."{name}"'
    # A path alone stands for a number with the usual digits.
    fields = {"path": value} if isinstance(value, str) else value
    known = ("path", "digits", "differences")
    fields = _table(fields, section, known, "a path of result.json, or a table of names and values")
    path = fields.get("path")
    digits = fields.get("digits", 3)
    differences = fields.get("differences", True)
    if not isinstance(path, str) or not all(path.split(".")):
        raise ValueError(
            f'{section} must have keys of result.json with dots between them, as path = "a.b", got {path!r}.'
        )
    if type(digits) is not int or not 0 <= digits <= 15:
        raise ValueError(f"{section}: digits must be a whole number from 0 to 15, got {digits!r}.")
    if not isinstance(differences, bool):
        raise ValueError(f"{section}: differences must be true or false, got {differences!r}.")
    _words(path)
    return Number(name, path, digits, differences)


def _words(path: str) -> set[str]:
    """The names in braces in the path of a number."""
    try:
        names = {field for _, field, _, _ in string.Formatter().parse(path) if field is not None}
    except ValueError as error:
        raise ValueError(f"table.numbers: {path!r} has braces that do not fit each other ({error}).") from error
    if invalid := [word for word in names if not NAME.fullmatch(word)]:
        raise ValueError(f"table.numbers: {{{invalid[0]}}} in {path!r} must hold a name, as {{model}}.")
    return names


def _column(name: str, value: object, settings: Sequence[str]) -> Column:
    section = f"table.columns.{name}"
    # What is left beside the setting are the words of paths.
    words = dict(_table(value, section))
    setting = words.pop("setting", "" if list(settings) == [""] else None)
    if not isinstance(setting, str) or setting not in settings:
        choices = ", ".join(settings) or "none"
        raise ValueError(f"{section} must have a setting of the file, one of {choices}, got {setting!r}.")
    texts = {word: text for word, text in words.items() if isinstance(text, str) and text}
    if invalid := [word for word in words if word not in texts]:
        raise ValueError(f"{section}: {invalid[0]} must be text, got {words[invalid[0]]!r}.")
    return Column(name, setting, texts)


def _table(
    found: object, where: str, known: Sequence[str] | None = None, kind: str = "a table of names and values"
) -> Mapping[str, object]:
    """A table of the file; with `known`, of these names alone."""
    if not isinstance(found, dict):
        raise ValueError(f"{where} must be {kind}, got {found!r}.")
    if known is not None and (unknown := [name for name in found if name not in known]):
        raise ValueError(f"{where} has no {unknown[0]!r}; it may have {', '.join(known)}.")
    return found


def _flag_table(found: object, where: str) -> Mapping[str, object]:
    table = _table(found, where)
    for name in table:
        if name in OWN_FLAGS:
            raise ValueError(f"{where} must not have {name}: the sweep gives it to each run.")
        if not NAME.fullmatch(name):
            raise ValueError(f"{where} must have names of flags without their dashes, got {name!r}.")
    return table


def _flags(found: object, where: str) -> dict[str, Flag]:
    return {name: _flag(name, value, where) for name, value in _flag_table(found, where).items()}


def _values(name: str, values: object) -> tuple[Flag, ...]:
    if not isinstance(values, list) or not values:
        raise ValueError(f"axes.{name} must list at least one value, as {name} = [0, 1], got {values!r}.")
    flags = tuple(_flag(name, value, "[axes]") for value in values)
    texts = [str(flag) for flag in flags]
    if repeated := [flag for flag in flags if texts.count(str(flag)) > 1]:
        raise ValueError(f"axes.{name} has {repeated[0]!r} twice; leave one.")
    return flags


def _flag(name: str, value: object, where: str) -> Flag:
    # A line of a file of flags is one flag.
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str) and has_control_characters(item):
            raise ValueError(f"{where}: {name} must be in one line without control characters, got {item!r}.")
    if isinstance(value, list) and all(isinstance(item, bool | int | float | str) for item in value):
        return tuple(value)
    if not isinstance(value, bool | int | float | str) or (isinstance(value, float) and math.isnan(value)):
        raise ValueError(f"{where}: {name} must be a number, text, true, false or a list of these, got {value!r}.")
    return value


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
    return [
        f"--{name}={_text(value)}" if not isinstance(value, bool) else f"--{name}" if value else f"--no{name}"
        for name, value in flags.items()
    ]


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
    # The one argument of its `main` is the dataclass of its flags; under another name than "__main__" it does not run.
    main = runpy.run_path(str(script), run_name=f"of_sweep_{script.stem}").get("main")
    hints = get_type_hints(main) if inspect.isfunction(main) else {}
    kinds = [hint for name, hint in hints.items() if name != "return"]
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
            flags = parse_flags(kind, [f"--run_dir={run.name}", *arguments(run.flags)])
        except ValueError as error:
            raise ValueError(f"the flags of the run {run.name}: {error}") from error
        flags_by_name[run.name] = text_of_flags(flags).splitlines()
    return flags_by_name
