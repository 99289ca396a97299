"""What a user says of a table: its target, what its columns are, and what becomes of missing and unknown values.

What a user says about columns by flags: --ignore, --categorical, --numeric and --dates.
"""

import collections
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from gpflow_deep_base.numbers.groups import flat, grouped
from gpflow_deep_runs.data.table.columns import Kind, Zone
from gpflow_deep_runs.data.values import times
from gpflow_deep_runs.data.values.cells import quoted
from gpflow_deep_runs.data.values.formats import ORDERS
from gpflow_deep_runs.data.values.styles import Sign

__all__ = [
    "LOCAL",
    "PARTS",
    "SIGNS",
    "BadRows",
    "DatePart",
    "FileSpec",
    "Forced",
    "Missing",
    "NewRows",
    "TableSpec",
    "Task",
    "TotalRows",
    "Unknown",
    "forced_columns",
    "zone_of",
]

Task = Literal["regression", "binary", "multiclass"]

Missing = Literal["error", "impute"]

Unknown = Literal["error", "level"]

BadRows = Literal["error", "drop"]

TotalRows = Literal["error", "drop", "keep"]

DatePart = Literal["day", "day_of_year", "weekday", "hour"]

PARTS: tuple[DatePart, ...] = get_args(DatePart)
"""What a date becomes, see `features.date_parts`."""


_COLUMNS = ("target", "features", "ignore", "categorical", "numeric", "dates")


def _checked_names(flag: str, value: Sequence[str]) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"{flag} must be a tuple, as ({value!r},), got {value!r}.")
    names = tuple(map(str, value))  # frames may have whole numbers for names
    if twice := sorted(name for name, count in collections.Counter(names).items() if count > 1):
        raise ValueError(f"--{flag} must list different columns, but {twice[0]!r} occurs twice.")
    return names


@dataclass(frozen=True)
class FileSpec:
    """How the file of a table is read.

    :param encoding: of a text, such as windows-1252; UTF-8, UTF-16 with its mark, and what is found out if not given.
    :param names: of the columns of a file that does not have them.
    :param sheet: of a spreadsheet; the first one if not given.
    :param max_bytes: how much memory a packed file may take when it is unpacked; 100 MB and 20 times its size if not
        given.
    :param skip_rows: lines above the line of names in a text; found out if not given.
    :param skip_footer: lines below the rows of a text, such as notes; found out if not given.
    :param total_rows: what to do with a last row that sums up the others; drop leaves it out, as --bad_rows=drop does,
        keep takes it for a row like the others.
    :raises ValueError: naming the flag.
    """

    encoding: str = ""
    names: tuple[str, ...] = ()
    sheet: str = ""
    max_bytes: int | None = None
    skip_rows: int | None = None
    skip_footer: int | None = None
    total_rows: TotalRows = "error"

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", _checked_names("names", self.names))
        for name, least in (("max_bytes", 1), ("skip_rows", 0), ("skip_footer", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"--{name} must be at least {least}, got {value}.")


@grouped
@dataclass(frozen=True)
class TableSpec:
    """How the columns of a table are read; what is not given is found out from their values.

    :param target: column of --data to predict; several columns of numbers are predicted together.
    :param task: what --target is; found out from the column if not given.
    :param features: input columns of --data; all but the target and --ignore if not given.
    :param ignore: columns of --data to leave out.
    :param categorical: columns of --data whose values are levels, also if they are numbers, such as codes.
    :param numeric: columns of --data whose values are numbers, also if they look like row numbers or codes.
    :param dates: columns of --data that are dates or times: NAME, or NAME:dmy or NAME:mdy for the order of day, month
        and year, or NAME:FORMAT as of strptime; NAME:local keeps the local clock of moments with a time zone.
    :param date_parts: what dates become, of day, day_of_year, weekday and hour; the parts that vary if not given.
    :param na_values: texts that stand for a missing value, besides the empty cell, NaN, NULL and their like; `NAME=0`
        is one of the column `NAME` alone.
    :param missing: what to do with missing values; impute puts in the mean or the most frequent level of the training
        rows and adds a column that says where, and leaves out rows whose target is missing. If not given, a
        table with a target is read as by impute, unless --bad_rows=drop leaves out such rows; streams and bits are not.
    :param unknown: what to do with levels in new rows that the training data do not have; level reads them as a rare
        one, or without --rare as none of the known ones.
    :param rare: join the levels of a column that fewer rows than this have; none if not given.
    :param bad_rows: what to do with rows that cannot be read, such as text among numbers; drop leaves them out.
    :param keep_value: values that are what they look like, though they lie so far from the others that they may stand
        for a missing one, such as -999 or 9999-12-31.
    :param file: how the file is read.
    :raises ValueError: naming the flag.
    """

    target: tuple[str, ...] = ()
    task: Task | None = None
    features: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    date_parts: tuple[str, ...] = ()
    na_values: tuple[str, ...] = ()
    missing: Missing | None = None
    unknown: Unknown = "error"
    rare: int | None = None
    bad_rows: BadRows = "error"
    keep_value: tuple[str, ...] = ()
    file: FileSpec = FileSpec()

    def __post_init__(self) -> None:
        # A text would be taken for its letters.
        for name in (*_COLUMNS, "date_parts", "na_values", "keep_value"):
            object.__setattr__(self, name, _checked_names(name, getattr(self, name)))
        if unknown := [part for part in self.date_parts if part not in PARTS]:
            raise ValueError(f"--date_parts may list {', '.join(PARTS)}, got {unknown[0]!r}.")
        if self.rare is not None and self.rare < 2:
            raise ValueError(f"--rare must be at least 2, got {self.rare}; leave it out to keep every level.")

    def given(self) -> tuple[str, ...]:
        """Names of the fields that differ from their defaults."""
        # Fields of the file count as those of the table.
        defaults = flat(TableSpec, vars(TableSpec()))
        return tuple(name for name, value in flat(TableSpec, vars(self)).items() if value != defaults[name])


@dataclass(frozen=True)
class NewRows:
    """What is said of new rows, which are read as those of training; what is not given is as in training.

    :param na_values: further texts that stand for a missing value.
    :param missing: what to do with missing values; impute puts in the mean or the most frequent level of the training
        rows.
    :param unknown: what to do with levels that the training data do not have; level reads them as a rare one, or, if
        there are no rare ones, as none of the known ones.
    :param encoding: of a text, such as windows-1252.
    :param sheet: of a spreadsheet.
    """

    na_values: tuple[str, ...] = ()
    missing: Missing | None = None
    unknown: Unknown | None = None
    encoding: str = ""
    sheet: str = ""


SIGNS: dict[str, Sign] = {"point": ".", "comma": ","}
"""Decimal signs that --numeric=NAME:SIGN may name."""

LOCAL = "local"
"""What --dates=NAME:local says: moments with a time zone keep the clock on the wall."""


class Forced(NamedTuple):
    """What a flag says about one column: its kind, and how it is written.

    :ivar how: of numbers "point" or "comma", the decimal sign; of dates "dmy", "mdy", "ymd", `LOCAL` or a
        `strptime` format.
    """

    kind: Kind
    how: str = ""


def forced_columns(
    names: Sequence[str],
    *,
    where: str,
    ignore: Iterable[str] = (),
    categorical: Iterable[str] = (),
    numeric: Iterable[str] = (),
    dates: Iterable[str] = (),
) -> dict[str, Forced]:
    """What the flags --ignore, --categorical, --numeric and --dates say about columns.

    :param names: of all columns of the table.
    :param numeric: NAME, NAME:point or NAME:comma each;
    :param dates: NAME or NAME:HOW each. A value that is the whole
        name of a column is that column.
    :raises ValueError: naming the flag: a column that is not there or is in two flags, or an unknown manner.
    """
    flags: tuple[tuple[str, Kind, Iterable[str]], ...] = (
        ("--ignore", "ignored", ignore),
        ("--categorical", "category", categorical),
        ("--numeric", "number", numeric),
        ("--dates", "date", dates),
    )
    forced: dict[str, Forced] = {}
    chosen_by: dict[str, str] = {}
    # Each column is in one flag at most.
    for flag, kind, values in flags:
        for value in values:
            name, manner = _split(value, names) if kind in ("number", "date") else (value, "")
            if name not in names:
                raise ValueError(f"{flag} must name columns of {where}, got {name!r}; it has {quoted(names)}.")
            if name in forced:
                raise ValueError(f"{name!r} must be in one flag once, got {chosen_by[name]} and {flag}; choose one.")
            _check_how(flag, kind, name, manner)
            forced[name] = Forced(kind, manner)
            chosen_by[name] = flag
    return forced


def zone_of(forced: Forced | None, what: str, *, is_zoned: bool) -> Zone:
    """Which clock the moments of a column are read by.

    :param what: the column, for the error.
    :param is_zoned: whether they have a time zone.
    :raises ValueError: if the local clock is wanted of moments without a zone.
    """
    is_local = forced is not None and forced.how == LOCAL
    if is_local and not is_zoned:
        raise ValueError(f"{what} must hold moments with a time zone to keep their local clock; leave out :{LOCAL}.")
    return "local" if is_local else "UTC" if is_zoned else ""


def _split(value: str, names: Sequence[str]) -> tuple[str, str]:
    """NAME:HOW as a pair; HOW may hold colons, and so may NAME if it is a column."""
    if value in names:
        return value, ""
    cuts = [i for i, character in enumerate(value) if character == ":" and value[:i] in names]
    if not cuts:
        return value, ""
    return value[: cuts[-1]], value[cuts[-1] + 1 :]


def _check_how(flag: str, kind: Kind, name: str, how: str) -> None:
    if kind == "number" and how not in ("", *SIGNS):
        raise ValueError(f"{flag}={name}:HOW must have point or comma for HOW, the decimal sign, got {how!r}.")
    # An order, the local clock, or a format that can be read.
    if kind == "date" and how not in ("", LOCAL, *ORDERS):
        problem = times.check_format(how)
        if problem:
            raise ValueError(
                f"{flag}={name}:HOW must have dmy, mdy, ymd, local or a strptime format such as %d.%m.%Y for HOW, "
                f"got {how!r}: {problem}."
            )
