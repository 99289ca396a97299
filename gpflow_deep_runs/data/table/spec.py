"""What a user says of a table: its target, what its columns are, and what becomes of missing and unknown values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from gpflow_deep_base.numbers.groups import flat, grouped

__all__ = [
    "PARTS",
    "BadRows",
    "DatePart",
    "FileSpec",
    "Missing",
    "NewRows",
    "TableSpec",
    "Task",
    "TotalRows",
    "Unknown",
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
    if twice := sorted({name for name in names if names.count(name) > 1}):
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
        for name in (*_COLUMNS, "date_parts", "na_values", "keep_value"):
            object.__setattr__(self, name, _checked_names(name, getattr(self, name)))
        if unknown := [part for part in self.date_parts if part not in PARTS]:
            raise ValueError(f"--date_parts may list {', '.join(PARTS)}, got {unknown[0]!r}.")
        if self.rare is not None and self.rare < 2:
            raise ValueError(f"--rare must be at least 2, got {self.rare}; leave it out to keep every level.")

    def given(self) -> tuple[str, ...]:
        """Names of the fields that differ from their defaults."""
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
