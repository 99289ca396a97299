"""The file of a sweep: TOML, read into values, with one clear error for whatever is wrong with it.

script = "train"                            # a verb of gpflow-deep

[flags]                                     # of every run
num_steps = 5000

[axes]                                      # every combination is run
dataset = ["boston", "energy"]
split = [0, 1, 2]

[settings]                                  # each combination with each of these
dgp2 = {num_layers = 2, compare = "gp,linear"}
dgp3 = {num_layers = 3, compare = ""}

[table]
baseline = "GP"                             # of the paired differences
over = ["split"]                            # averaged over; the other axes are the rows
[table.columns]
GP = {setting = "dgp2", model = "gp"}
DGP3 = {setting = "dgp3", model = "dgp"}
[table.numbers]                             # where they are in result.json
"test RMSE" = "models.{model}.test.rmse"
"seconds" = {path = "models.{model}.train_seconds", digits = 0, differences = false}
"""

import math
import os
import re
import string
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from gpflow_deep_base.text import has_control_characters
from gpflow_deep_runs.verbs import VERBS

__all__ = ["Column", "Flag", "Number", "Sweep", "Tables", "parse", "read"]

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

    numbers: tuple[Number, ...]
    columns: tuple[Column, ...]
    over: tuple[str, ...]
    baseline: str | None = None


class Sweep(NamedTuple):
    """What the file says. Without settings there is one, called ""."""

    script: str
    flags: Mapping[str, Flag]
    axes: Mapping[str, tuple[Flag, ...]]
    settings: Mapping[str, Mapping[str, Flag]]
    tables: Tables | None
    text: str


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
    """The sweep of a TOML text; see the module's docstring.

    :raises ValueError: for what is no TOML, names that nothing has, wrong types, and what is there twice.
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"it must be TOML, but: {error}.") from error
    _known(content, "the file", ("script", "flags", "axes", "settings", "table"))
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
    _check_once(flags, axes, settings)
    tables = _tables(content["table"], tuple(axes), tuple(settings)) if "table" in content else None
    return Sweep(script, flags, axes, settings, tables, text)


def _check_once(
    flags: Mapping[str, object], axes: Mapping[str, object], settings: Mapping[str, Mapping[str, object]]
) -> None:
    """A setting may replace a flag of all; an axis may not be set elsewhere."""
    for section, names in {
        "[flags]": flags,
        **{f"settings.{name}": setting_flags for name, setting_flags in settings.items()},
    }.items():
        if repeated := sorted(set(names) & set(axes)):
            raise ValueError(f"{repeated[0]} is an axis, and also in {section}; leave it in one of the two.")


def _tables(content: object, axes: Sequence[str], settings: Sequence[str]) -> Tables:
    table = _table(content, "[table]")
    _known(table, "[table]", ("numbers", "columns", "over", "baseline"))
    # What is tabulated, in which columns; without columns, each setting is one.
    numbers = tuple(_number(name, value) for name, value in _table(table.get("numbers"), "[table.numbers]").items())
    if not numbers:
        raise ValueError("[table.numbers] must name at least one number of result.json, got none.")
    default = {name or "result": {} if name == "" else {"setting": name} for name in settings}
    columns = tuple(
        _column(name, value, settings)
        for name, value in _table(table.get("columns", default), "[table.columns]").items()
    )
    if not columns:
        raise ValueError("[table.columns] must have at least one column, got none; or leave the section out.")
    # Every word in the path of a number needs its meaning in every column.
    for number in numbers:
        for column in columns:
            if missing := sorted(_words(number) - set(column.words)):
                raise ValueError(
                    f"table.columns.{column.name} must say what {{{missing[0]}}} is in {number.path!r}, "
                    f'as {missing[0]} = "..."; got {dict(column.words)}.'
                )
    # What is averaged over, and with what the columns are compared.
    over = table.get("over", [name for name in AVERAGED if name in axes])
    if not isinstance(over, list) or not all(name in axes for name in over) or len(set(over)) < len(over):
        raise ValueError(f"table.over must list axes, each once, of {', '.join(axes) or 'none'}, got {over!r}.")
    baseline = table.get("baseline")
    names = [column.name for column in columns]
    if baseline is not None and baseline not in names:
        raise ValueError(f"table.baseline must be a column, one of {', '.join(names)}, got {baseline!r}.")
    return Tables(numbers, columns, tuple(over), baseline)


def _number(name: str, value: object) -> Number:
    section = f'table.numbers."{name}"'
    # A path alone stands for a number with the usual digits.
    fields = {"path": value} if isinstance(value, str) else _table(value, section, "a path of result.json, or")
    _known(fields, section, ("path", "digits", "differences"))
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
    number = Number(name, path, digits, differences)
    _words(number)
    return number


def _words(number: Number) -> set[str]:
    """The names in braces in the path."""
    try:
        names = {field for _, field, _, _ in string.Formatter().parse(number.path) if field is not None}
    except ValueError as error:
        raise ValueError(f"table.numbers: {number.path!r} has braces that do not fit each other ({error}).") from error
    if invalid := [word for word in names if not NAME.fullmatch(word)]:
        raise ValueError(f"table.numbers: {{{invalid[0]}}} in {number.path!r} must hold a name, as {{model}}.")
    return names


def _column(name: str, value: object, settings: Sequence[str]) -> Column:
    section = f"table.columns.{name}"
    # What is left beside the setting are the words of paths.
    words = dict(_table(value, section))
    setting = words.pop("setting", "" if list(settings) == [""] else None)
    if setting not in settings:
        choices = ", ".join(settings) or "none"
        raise ValueError(f"{section} must have a setting of the file, one of {choices}, got {setting!r}.")
    if invalid := [word for word, text in words.items() if not isinstance(text, str) or not text]:
        raise ValueError(f"{section}: {invalid[0]} must be text, got {words[invalid[0]]!r}.")
    return Column(name, setting, words)


def _known(found: Mapping[str, object], where: str, known: Sequence[str]) -> None:
    if unknown := [name for name in found if name not in known]:
        raise ValueError(f"{where} has no {unknown[0]!r}; it may have {', '.join(known)}.")


def _table(found: object, where: str, otherwise: str = "") -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise ValueError(
            f"{where} must be {otherwise + ' ' if otherwise else ''}a table of names and values, got {found!r}."
        )
    return found


def _flag_table(found: object, where: str) -> Mapping[str, Any]:
    for name in _table(found, where):
        if name in OWN_FLAGS:
            raise ValueError(f"{where} must not have {name}: the sweep gives it to each run.")
        if not NAME.fullmatch(name):
            raise ValueError(f"{where} must have names of flags without their dashes, got {name!r}.")
    return _table(found, where)


def _flags(found: object, where: str) -> dict[str, Flag]:
    return {name: _flag(name, value, where) for name, value in _flag_table(found, where).items()}


def _values(name: str, values: object) -> tuple[Flag, ...]:
    if not isinstance(values, list) or not values:
        raise ValueError(f"axes.{name} must list at least one value, as {name} = [0, 1], got {values!r}.")
    flags = tuple(_flag(name, value, "[axes]") for value in values)
    unique_texts: set[str] = set()
    for flag in flags:
        if str(flag) in unique_texts:
            raise ValueError(f"axes.{name} has {flag!r} twice; leave one.")
        unique_texts.add(str(flag))
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
