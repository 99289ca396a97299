"""What a column of a table is, and how its cells become values.

    column = Column("price", "number", decimal=",", thousands=".", unit="€")
    parse(pa.array(["1.234,50 €", "n/a"]), column, where="shop.csv")                       # [1234.5, NaN]
    Column.from_json(column.to_json()) == column

A plain number is read as Python's `float` reads it, to the last bit. :mod:`gpflow_deep_runs.data.table.inference` finds
out what the columns of a new table are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data.files.libraries import pa, pc, pd
from gpflow_deep_runs.data.files.typed import (
    are_whole,
    days_of,
    decoded,
    floats_of,
    has_zone,
    hours_of,
    kind_of_type,
    texts_of,
)
from gpflow_deep_runs.data.values import numerals, times
from gpflow_deep_runs.data.values.cells import (
    Cells,
    cells_of,
    is_missing,
    missing_texts,
    na_flag,
    one_chunk,
    shown,
    truths_of,
)
from gpflow_deep_runs.data.values.numerals import Style

__all__ = ["Column", "Kind", "Zone", "fits", "misfit", "missing_in", "parse", "style_of", "values_of"]

Kind = Literal["number", "boolean", "category", "date", "time", "text", "ignored"]

Zone = Literal["", "UTC", "local"]
"""Which clock moments with a time zone are read by; "" if they have none."""

_MEANING = {"number": "numbers", "boolean": "true and false", "date": "dates", "time": "times"}
_VERSION = 1
_MAX_LENGTH = 100


@dataclass(frozen=True)
class Column:
    """How the cells of one column are read.

    :param name: of the column.
    :param kind: "number", "boolean" (0 and 1), "category" (text of a few levels), "date", "time" (hours), "text" (of
        too many levels to be inputs) or "ignored".
    :param decimal: of numbers as text: the decimal sign, "." or ",".
    :param thousands: between groups of digits: "", ",", ".", " " (of any width) or "'".
    :param unit: the text before or after every number, such as "€" or "%".
    :param has_parentheses: (5) is minus 5.
    :param is_scaled: 19M is 19 million and 201k are 201 thousand.
    :param has_flags: 4.9 p and 4.9* are 4.9, as `numerals.FLAG` says.
    :param date_format: of dates and times as text, a `strptime` format; "" if they come as dates or times.
    :param zone: of dates: "UTC" or "local" if they come with time zones, "" if without.
    :param true: of booleans as text: what is 1, as it was written, the most frequent first. Case does not matter.
    :param false: what is 0.
    :param order: of levels that their source puts in an order, as an ordered categorical of pandas does; () without.
    :param note: what has to be known of the reading, in words; "" for plain numbers and texts.
    """

    name: str
    kind: Kind
    decimal: str = "."
    thousands: str = ""
    unit: str = ""
    has_parentheses: bool = False
    is_scaled: bool = False
    has_flags: bool = False
    date_format: str = ""
    zone: Zone = ""
    true: tuple[str, ...] = ()
    false: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    note: str = ""

    def to_json(self) -> dict[str, object]:
        """A dictionary for `gpflow_deep_base.files.write_json`: name, kind, version, and what is not the default."""
        defaults = {field.name: field.default for field in fields(self)}
        stored = {key: value for key, value in asdict(self).items() if value != defaults[key]}
        return {"version": _VERSION, **{k: list(v) if isinstance(v, tuple) else v for k, v in stored.items()}}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Column:
        """The inverse of :meth:`to_json`.

        :raises ValueError: naming the column: entries are missing, unknown or impossible, or of another version.
        """
        name = stored.get("name") if isinstance(stored, Mapping) else None
        subject = f"the stored column {name!r}"
        if not isinstance(name, str):
            raise ValueError(
                f"a stored column must be an object with a name, got {stored!r:.80}; take an undamaged copy."
            )
        if stored.get("version") != _VERSION:
            raise ValueError(
                f"{subject} must be of version {_VERSION}, got {stored.get('version')!r}; read it with the version of "
                "the software that wrote it, or train again."
            )
        # Tuples are lists in JSON.
        entries: dict[str, Any] = {
            key: tuple(v) if isinstance(v, list) else v for key, v in stored.items() if key != "version"
        }
        problem = _problem(entries)
        if problem:
            raise ValueError(f"{subject} is damaged ({problem}); take an undamaged copy.")
        return cls(**entries)


def parse(
    values: pa.ChunkedArray | pa.Array,
    column: Column,
    *,
    where: str,
    na_values: Sequence[str] = (),
    first_row: int = 0,
    cells: Cells | None = None,
) -> Any:
    """The values of the cells of a column.

    :param values: texts, or the values of a typed source; these need not be of the type that `column` was found in.
    :param where: the file, for the error.
    :param na_values: texts that stand for missing values, besides those that always do.
    :param first_row: number of the first row, for the error.
    :param cells: of texts, where they are known.
    :return: [N]: numbers as float64 and booleans as 0 and 1, NaN where missing; dates as days since 1970-01-01 with the
        fraction of the day, times in hours; text as a `pandas.Categorical`, whole numbers without a point.
    :raises ValueError: naming file, column, row, value and cure: a cell that is not of the column's kind.
    """
    parsed, bad, texts = _read(one_chunk(values), column, where, na_values, cells)
    if bad is not None and bad.any():
        row = int(bad.argmax())
        raise ValueError(
            misfit(f"column {column.name!r} of {where}", column, texts[row], row + first_row, int(bad.sum()))
        )
    return parsed


def fits(
    values: pa.ChunkedArray | pa.Array, column: Column, *, where: str = "the table", na_values: Sequence[str] = ()
) -> NDArray[np.bool_]:
    """Which cells :func:`parse` would take; bool [N]. Missing ones do fit.

    :raises ValueError: naming the column: none would fit, because the source holds values of another type.
    """
    parsed, bad, _ = _read(one_chunk(values), column, where, na_values)
    return np.ones(len(parsed), dtype=bool) if bad is None else ~bad


def style_of(column: Column) -> Style:
    """How the numbers of a column are written."""
    parts = (column.decimal, column.thousands, column.unit, column.has_parentheses, column.is_scaled)
    return Style(*parts, has_flags=column.has_flags)


def misfit(what: str, column: Column, text: str, row: int, count: int, *, more: str = "") -> str:
    """The message for cells that are not of their column's kind.

    :param text: the first of them, in row `row`;
    :param count: how many there are;
    :param more: another cure.
    """
    # How the cells should be written, as far as the kind has ways.
    written = column.date_format or (f"with {column.unit!r}" if column.unit else "")
    if column.kind == "number" and column.decimal == ",":
        written = ", ".join(filter(None, ["decimal comma", written]))
    if column.kind == "boolean":
        written = f"{column.false[0]} or {column.true[0]}" if column.true and column.false else ""
    expected = _MEANING[column.kind] + (f" ({written})" if written else "")
    return (
        f"{what} must hold {expected}, but {count} values are text, the first {shown(text)} in row {row} (from 0); "
        f"correct them, leave such rows out, or give {na_flag(text)} if it stands for a missing value{more}."
    )


def _read(
    values: pa.ChunkedArray, column: Column, where: str, na_values: Sequence[str], cells: Cells | None = None
) -> tuple[Any, NDArray[np.bool_] | None, Sequence[str]]:
    """Values, which of them do not fit (None: none), and what to call them."""
    kind = kind_of_type(values.type)
    subject = f"column {column.name!r} of {where}"
    na_values = missing_in(column.name, na_values)
    if column.kind == "ignored" or kind == "other":
        raise ValueError(
            f"{subject} has no values to read ({column.kind}, type {values.type}); give --ignore={column.name}."
        )
    # Levels stay texts, of whatever type the source has them.
    if column.kind in ("category", "text"):
        return _levels(values, na_values, cells), None, ()
    values = decoded(values)
    kind = kind_of_type(values.type)
    if kind == "empty":
        return np.full(len(values), np.nan), None, ()
    if kind == "text":
        return _from_texts(values, column, na_values, cells)
    # Whole numbers may be dates without signs between their parts, such as 20200131.
    if column.kind in ("date", "time") and column.date_format and are_whole(values):
        return _from_texts(texts_of(values), column, na_values)
    if kind != column.kind and {kind, column.kind} != {"number", "boolean"}:
        raise ValueError(
            f"{subject} must hold {_MEANING[column.kind]}, got values of type {values.type}; convert them."
        )
    # A typed source: days, hours or numbers as they are.
    if column.kind == "date":
        _check_zone(values.type, column, subject)
        floats = days_of(values, is_local=column.zone == "local")
    else:
        floats = hours_of(values) if column.kind == "time" else floats_of(values)
    # Values that stand for missing ones by --na_values.
    if na_values:
        absent = values_of(na_values, is_date=column.kind == "date")
        floats = np.where(np.isin(np.floor(floats) if column.kind == "date" else floats, absent), np.nan, floats)
    bad = ~np.isnan(floats) & ~np.isin(floats, (0, 1)) if column.kind == "boolean" else None
    return floats, bad, [f"{value:.15g}" for value in floats] if bad is not None and bad.any() else ()


def _check_zone(kind: pa.DataType, column: Column, what: str) -> None:
    """Moments with a zone are no moments without one: nobody knows which clock those were read from."""
    if has_zone(kind) != (column.zone != ""):
        expected = "with a time zone" if column.zone else "without a time zone"
        raise ValueError(f"{what} must hold moments {expected}, got values of type {kind}; convert them.")


def values_of(texts: Sequence[str], *, is_date: bool) -> NDArray[np.float64]:
    """The values of texts that a flag lists: numbers, or days since 1970-01-01 of ISO dates; NaN where one is none."""
    cells = pa.array([text.strip() for text in texts], pa.string())
    if is_date:
        single_cells = [cells.slice(i, 1) for i in range(len(cells))]
        return np.array([times.read_dates(cell, times.iso_format(cell))[0] for cell in single_cells])
    return numerals.numbers(cells, Style())


def missing_in(name: str, na_values: Sequence[str]) -> tuple[str, ...]:
    """What stands for a missing value in one column: `TEXT` does in all, `NAME=TEXT` in the column of that name."""
    return (*na_values, *(value.removeprefix(f"{name}=") for value in na_values if value.startswith(f"{name}=")))


def _levels(values: pa.ChunkedArray, na_values: Sequence[str], cells: Cells | None) -> pd.Categorical:
    if kind_of_type(values.type) == "empty":
        return pd.Categorical([None] * len(values))
    cells = cells or cells_of(texts_of(values))
    # 1.0 and 1 are one level
    texts = pc.replace_substring_regex(cells.texts, "^([-+]?(?:0|[1-9][0-9]*))\\.0+$", "\\1")
    levels = np.array([*texts.to_pylist(), None], dtype=object)[:-1]
    levels[is_missing(cells.texts, na_values, markers=False)] = None
    # Numbers of the levels, in the order in which they occur.
    codes, names = pd.factorize(levels)
    return pd.Categorical.from_codes(cells.spread(codes, -1), pd.Index(names, dtype=object))


def _from_texts(
    values: pa.ChunkedArray, column: Column, na_values: Sequence[str], cells: Cells | None = None
) -> tuple[NDArray[np.float64], NDArray[np.bool_] | None, Sequence[str]]:
    # The fast way, if all cells are plain numbers.
    if column.kind == "number" and style_of(column) == Style():
        plain = numerals.plain_numbers(values, missing_texts(na_values, markers=True))
        if plain is not None:
            absent = values_of(na_values, is_date=False)
            return np.where(np.isin(plain, absent), np.nan, plain) if len(absent) else plain, None, ()
    if column.kind == "date" and column.date_format and not na_values:
        iso = times.plain_dates(values, missing_texts((), markers=True), date_format=column.date_format)
        if iso is not None:
            return iso[1], None, ()
    # Otherwise each different text is read once, and spread over its rows.
    cells = cells or cells_of(values)
    is_word = column.kind == "boolean" and "true" not in {word.casefold() for word in column.true}
    missing = is_missing(cells.texts, na_values, markers=not is_word)
    if column.kind == "number":
        text_values = numerals.numbers(cells.texts, style_of(column))
        missing |= np.isin(text_values, values_of(na_values, is_date=False))
    elif column.kind == "boolean":
        text_values = _truths(cells.texts, column)
    elif column.kind == "date":
        some = cells.texts.filter(pa.array(~missing))
        form = column.date_format or times.iso_format(some, has_zone=column.zone != "")
        text_values = times.read_dates(cells.texts, form, is_local=column.zone == "local")
        missing |= np.isin(np.floor(text_values), values_of(na_values, is_date=True))
    else:
        text_values = times.read_times(cells.texts, column.date_format or "%H:%M:%S")
    # A text that is no missing value and cannot be read does not fit.
    bad = np.isnan(text_values) & ~missing
    return (
        cells.spread(np.where(missing, np.nan, text_values), np.nan),
        cells.spread(bad, False),
        values.to_pylist() if bad.any() else (),
    )


def _truths(texts: pa.Array, column: Column) -> NDArray[np.float64]:
    truths = np.full(len(texts), np.nan)
    # Also 0 and 1, whatever the words are.
    for value, words in ((0.0, (*column.false, "0")), (1.0, (*column.true, "1"))):
        known_words = pa.array(sorted({word.casefold() for word in words}), texts.type)
        truths[truths_of(pc.is_in(pc.utf8_lower(texts), value_set=known_words))] = value
    return truths


def _problem(entries: Mapping[str, Any]) -> str:
    """What is wrong with the stored entries of a column, in words; "" if nothing is."""
    defaults: dict[str, Any] = {field.name: field.default for field in fields(Column)}
    unknown = sorted(set(entries) - set(defaults))
    if unknown or not {"name", "kind"} <= set(entries):
        return f"its entries are {', '.join(sorted(map(str, entries)))}"
    # Each entry is of the type of its default.
    for key, value in entries.items():
        expected_type = str if key in ("name", "kind") else type(defaults[key])
        if type(value) is not expected_type or (
            expected_type is tuple and not all(type(item) is str for item in value)
        ):
            return f"{key} is {value!r:.80}"
    column = Column(**entries)
    # No entry may say what cannot be.
    if column.kind not in get_args(Kind):
        return f"its kind is {column.kind!r:.80}"
    if (
        column.decimal not in (".", ",")
        or column.thousands not in numerals.GROUPS
        or column.decimal == column.thousands
    ):
        return f"its decimal sign is {column.decimal!r:.20} and its thousands are {column.thousands!r:.20}"
    if column.zone not in get_args(Zone):
        return f"its zone is {column.zone!r:.80}"
    if len(column.unit) > _MAX_LENGTH or len(column.date_format) > _MAX_LENGTH:
        return f"its unit or format has more than {_MAX_LENGTH} characters"
    if column.kind == "boolean" and not (column.true and column.false):
        return "a boolean without words for true and false"
    if {word.casefold() for word in column.true} & {word.casefold() for word in column.false}:
        return "a word is both true and false"
    if column.date_format:
        try:
            times.full_pattern(column.date_format)
        except ValueError as error:
            return f"its date_format: {error}"
    return ""
