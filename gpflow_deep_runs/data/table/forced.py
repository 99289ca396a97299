"""What a user says about columns by flags: --ignore, --categorical, --numeric and --dates."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpflow_deep_runs.data.table.columns import Kind, Zone
from gpflow_deep_runs.data.values import times
from gpflow_deep_runs.data.values.cells import quoted
from gpflow_deep_runs.data.values.formats import ORDERS
from gpflow_deep_runs.data.values.styles import Sign

__all__ = ["LOCAL", "SIGNS", "Forced", "forced_columns", "zone_of"]

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
    if kind == "date" and how not in ("", LOCAL, *ORDERS):
        problem = times.check_format(how)
        if problem:
            raise ValueError(
                f"{flag}={name}:HOW must have dmy, mdy, ymd, local or a strptime format such as %d.%m.%Y for HOW, "
                f"got {how!r}: {problem}."
            )
