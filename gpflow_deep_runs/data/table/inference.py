"""What the columns of a table are, found out from their cells.

    columns = infer_columns(table.columns, where=table.where, delimiter=table.delimiter)
    columns["price"]                                         # Column("price", "number", unit="€", note="'5 €' is 5")

All cells are looked at. What most cells are, all have to be: a column of numbers with a few texts is refused, and so is
one that has two readings. Numbers, dates and times come before booleans and text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data.files.libraries import pa, pc
from gpflow_deep_runs.data.files.typed import are_whole, decoded, floats_of, has_zone, kind_of_type, texts_of
from gpflow_deep_runs.data.table import notes
from gpflow_deep_runs.data.table.columns import Column, misfit, missing_in
from gpflow_deep_runs.data.table.doubts import are_months, check_codes, check_numbers
from gpflow_deep_runs.data.table.spec import LOCAL, SIGNS, Forced, zone_of
from gpflow_deep_runs.data.values.cells import (
    Cells,
    Contents,
    cells_of,
    is_missing,
    matches,
    missing_texts,
    one_chunk,
    shown,
    truths_of,
)
from gpflow_deep_runs.data.values.formats import are_durations, find_date_format, find_time_format
from gpflow_deep_runs.data.values.numerals import (
    FLAG,
    SPACES,
    YEAR,
    Style,
    marks_of,
    numbers,
    plain_numbers,
    without_flags,
)
from gpflow_deep_runs.data.values.styles import Found, Sign, apart, decimal_of, find_style, is_code
from gpflow_deep_runs.data.values.times import is_time_format, plain_dates, read_dates, read_times
from gpflow_deep_runs.data.values.units import UNITS

__all__ = ["MAX_LEVELS", "Seen", "infer", "infer_columns", "plain_column"]

_EMPTY_NOTE = "every value is missing"
_SAMPLE = 1000
_MIN_DAYS = 5
_MOST = 0.9
_DAY_1900 = -25567
_DAY_2100 = 47482
_ODD = "^\\s*(?:[0-9]+[eE][0-9]+|\\+[0-9]{7,}|0[0-9]+\\.[0-9]+)\\s*$"
_PERHAPS_FLAGGED = f"[-+\u2212]?[0-9.,'\u2019{SPACES}]+{FLAG}?"
_POINT = "[-+]?(?:[0-9]*\\.(?:[0-9]{0,2}|[0-9]{4,})|0*\\.[0-9]{3}|[0-9]{4,}\\.[0-9]{3})(?:[eE][-+]?[0-9]+)?"

MAX_LEVELS = 50
"""Most levels that a category may have."""

_ID_NOTE = "an id: every value differs; --numeric or --categorical reads it"
"""Of a column that is left out because it is an id."""

_ALL_DIFFERENT = 20
_WORDS = (
    *(("true", "false"), ("t", "f"), ("yes", "no"), ("y", "n"), ("on", "off"), ("ja", "nein"), ("oui", "non")),
    *(("si", "no"), ("sí", "no"), ("sì", "no"), ("sim", "não"), ("tak", "nie"), ("да", "нет")),
    *(("ja", "nee"), ("ja", "nej"), ("ja", "nei"), ("sim", "nao"), ("ano", "ne"), ("da", "ne"), ("da", "nu")),
    *(("igen", "nem"), ("evet", "hayır"), ("kyllä", "ei"), ("是", "否"), ("はい", "いいえ"), ("예", "아니요")),
    *(("wahr", "falsch"), ("vrai", "faux"), ("verdadero", "falso"), ("vero", "falso"), ("verdadeiro", "falso")),
    *(("waar", "onwaar"), ("prawda", "fałsz"), ("истина", "ложь")),
)
_WORD = re.compile(
    r"(?!(?:am|pm|bc|ad|st|nd|rd|th|x+)\b)(?:[^\W\d_]{2,}|[^\W\d_]/[^\W\d_]+)(?:[ /.][^\W\d_]+)*\.?", re.IGNORECASE
)
"""Units that are words, and not those of times or places."""

_LETTERED = "(?i:[a-z ./-]{1,12}[0-9]{3,}|[0-9]{3,}[a-z]{1,3}|[a-z ./-]{1,8}[0-9]{1,2}[ ./-]{1,2}[0-9]{3,})"
"""Codes of digits and letters."""

_DIAGNOSIS = "[EV][0-9]{2,3}(?:\\.[0-9]{1,2})?|[0-9]{1,3}(?:\\.[0-9]{1,2})?"
"""Of the ninth classification of diseases, as 250.83 and V57."""

_ID = re.compile(
    r"(?i:(?:.*[\s_.-])?(?:id|uuid|guid)|index|idx|rows?|row[\s_.]?(?:id|num|no|number|index|names?)|unnamed: [\d.]+"
    r"|level_0|#|n[or]\.?|(?:s|sl|sr|serial|case)[\s_.]*(?:no|nr|number)\.?|obs|observation)|.*[a-z0-9]I[dD]"
)


Seen = NDArray[np.float64] | Cells
"""What was found of a column that need not be read again: its values, or its cells."""


class _Numbers(NamedTuple):
    """A column of numbers as text, whose decimal sign may follow from the other columns.

    :ivar flagged: a number with a flag, if there is one; then the texts of `contents` are without flags.
    :ivar hint: what else they may be.
    """

    contents: Contents
    is_tolerant: bool
    found: Found
    flagged: str = ""
    hint: str = ""


def infer_columns(
    columns: pa.Table,
    *,
    where: str,
    forced: Mapping[str, Forced] | None = None,
    na_values: Sequence[str] = (),
    delimiter: str = "",
    is_tolerant: bool = False,
    seen: dict[str, Seen] | None = None,
) -> dict[str, Column]:
    """What the columns of a table are; those of text decide each other's decimal sign.

    :param forced: what the user says of some.
    :param na_values: texts that stand for missing values, besides those that always do.
    :param delimiter: of delimited text; commas leave no doubt about `1,234`.
    :param is_tolerant: cells that do not fit a column of numbers, dates or times are left to :func:`columns.fits`.
    :param seen: takes the values of columns of plain numbers and the cells of others, which need not be read again.
    :raises ValueError: as :func:`infer`.
    """
    forced = forced or {}
    # What each column is by itself; numbers wait for the decimal signs of the others.
    first: dict[str, tuple[Column | _Numbers, Sign]] = {
        name: _looked_at(name, columns[name], where, forced.get(name), na_values, is_tolerant, seen)
        for name in columns.column_names
    }
    signs = {sign for _, sign in first.values() if sign}
    return {
        name: result
        if isinstance(result, Column)
        else _number_column(result, forced.get(name), na_values, signs, delimiter)
        for name, (result, _) in first.items()
    }


def infer(
    name: str,
    values: pa.ChunkedArray | pa.Array,
    *,
    where: str,
    forced: Forced | None = None,
    na_values: Sequence[str] = (),
    decimal: Sign = "",
    is_tolerant: bool = False,
) -> Column:
    """What one column is.

    :param decimal: the decimal sign of values such as `1,234`, of which each could be two numbers; "" if unknown.
    :raises ValueError: naming file, column, row, value and cure: most cells are numbers, dates or times, but not all,
        or not of one unit or format; or there are two readings.
    """
    result, _ = _looked_at(name, values, where, forced, na_values, is_tolerant)
    return result if isinstance(result, Column) else _number_column(result, forced, na_values, {decimal} - {""}, "")


def _looked_at(
    name: str,
    values: pa.ChunkedArray | pa.Array,
    where: str,
    forced: Forced | None,
    na_values: Sequence[str],
    is_tolerant: bool,
    seen: dict[str, Seen] | None = None,
) -> tuple[Column | _Numbers, Sign]:
    """What a column is, as far as it is known without the others, and the decimal sign that it has for sure."""
    values = one_chunk(values)
    na_values = missing_in(name, na_values)
    if forced is not None and forced.kind == "ignored":
        return Column(name, "ignored"), ""
    kind = kind_of_type(values.type)
    if kind == "other":
        raise ValueError(
            f"column {name!r} of {where} must hold numbers, texts, dates or true and false, got {values.type}; "
            f"give --ignore={name}, or convert it."
        )
    if forced is not None and forced.kind == "category":
        order = _order_of(values) if kind == "category" else ()
        return Column(name, "category", order=order, note=notes.of_levels(texts_of(values), na_values)), ""
    # Types that stand for others: levels of pandas, and whole numbers that are dates.
    if kind == "category" and forced is not None:
        values = decoded(values)
        kind = kind_of_type(values.type)
    if forced is not None and forced.kind == "date" and are_whole(values):
        values = texts_of(values)
        kind = "text"
    if kind != "text":
        return _typed_column(name, values, where, forced, na_values), ""
    # Plain numbers take the fast way, unless they are ids, days in digits, or codes.
    if forced is None or forced.kind == "number":
        sign_and_floats = plain_column(values, na_values)
        if sign_and_floats is not None:
            sign, floats = sign_and_floats
            if forced is None and _is_id(name, values, floats):
                return Column(name, "ignored", note=_ID_NOTE), ""
            if forced is None and (form := _form_of_days(values, floats)):
                contents = _contents(name, where, values, na_values)
                column, _ = _read(contents, Forced("date", form), na_values, is_tolerant)
                note = f"{getattr(column, 'note', '')}; --numeric={name} reads numbers"
                return replace(cast(Column, column), note=note), ""
            if forced is None:
                check_numbers(name, values, floats, where=where)
            if seen is not None:
                seen[name] = floats
            return Column(name, "number", note=notes.of_values(name, floats)), sign
        # So do numbers with decimal commas.
        if forced is None and (with_comma := _with_commas(values, na_values)) is not None:
            row, floats = with_comma
            if seen is not None:
                seen[name] = floats
            note = f"{shown(values[row].as_py().strip())} is {floats[row]:.15g}"
            note = "; ".join(filter(None, [note, notes.of_values(name, floats)]))
            return Column(name, "number", decimal=",", note=note), ","
    # And moments as programs write them.
    if forced is None and not na_values and (iso := plain_dates(values, missing_texts((), markers=False))) is not None:
        return Column(name, "date", date_format=iso[0]), ""
    contents = _contents(name, where, values, na_values)
    if seen is not None:
        seen[name] = contents.cells
    return _read(contents, forced, na_values, is_tolerant)


def _contents(name: str, where: str, values: pa.ChunkedArray, na_values: Sequence[str]) -> Contents:
    cells = cells_of(values)
    counts = cells.counts()
    return Contents(name, where, cells, counts, ~is_missing(cells.texts, na_values, markers=True) & (counts > 0))


def _typed_column(
    name: str, values: pa.ChunkedArray, where: str, forced: Forced | None, na_values: Sequence[str]
) -> Column:
    kind = kind_of_type(values.type)
    # Columns without a value, then what the user says.
    if kind == "empty" or (forced is None and values.null_count == len(values)):
        return Column(name, "ignored", note=_EMPTY_NOTE)
    if forced is not None and forced.kind == "number" and kind in ("number", "boolean"):
        return Column(name, "number")
    if forced is not None and forced.kind != kind:
        raise ValueError(
            f"column {name!r} of {where} must hold {forced.kind}s, as the flag says, got type {values.type}; leave the "
            "flag out, or convert it."
        )
    # Numbers may be ids or codes; truths, times and moments are what they are.
    if kind == "number":
        floats = floats_of(values)
        if np.isnan(floats).all():
            return Column(name, "ignored", note=_EMPTY_NOTE)
        if _is_id(name, values, floats):
            return Column(name, "ignored", note=_ID_NOTE)
        if forced is None:
            check_numbers(name, values, floats, where=where)
        return Column(name, "number", note=notes.of_values(name, floats))
    if kind == "boolean":
        return Column(name, "boolean", true=("True",), false=("False",))
    if kind == "time":
        return Column(name, "time", note="durations in hours" if pa.types.is_duration(values.type) else "")
    # Levels of a typed source are judged as those of texts.
    if kind == "category":
        column = _text_column(_contents(name, where, texts_of(values), na_values), na_values, "")
        return replace(column, order=_order_of(values))
    zone = zone_of(forced, f"column {name!r} of {where}", is_zoned=has_zone(values.type))
    return Column(name, "date", zone=zone, note=notes.of_zone(name, zone).strip())


def _order_of(values: pa.ChunkedArray) -> tuple[str, ...]:
    """The levels of an ordered categorical; () if its order says nothing."""
    if not values.type.ordered or not values.num_chunks:
        return ()
    return tuple(str(level) for level in texts_of(pa.chunked_array([values.chunk(0).dictionary])).to_pylist())


def plain_column(
    values: pa.ChunkedArray, na_values: Sequence[str], *, is_decimal: bool = False
) -> tuple[Sign, NDArray[np.float64]] | None:
    """The decimal sign and the values of a column of plain numbers; None if it is none, or there is doubt.

    :param is_decimal: whether other values are known to have decimal points.
    """
    if plain_numbers(values.slice(0, _SAMPLE), missing_texts(na_values, markers=False)) is None:
        return None  # before all texts are looked at
    # Whether points are decimal, and what the bytes of the texts say.
    is_decimal = is_decimal or bool(matches(values.slice(0, _SAMPLE), _POINT).any())
    marks = marks_of(values) or marks_of(pc.utf8_trim_whitespace(values))
    if marks is None or (marks.has_point and not is_decimal):
        return None
    floats = plain_numbers(values, missing_texts(na_values, markers=False))
    if floats is None or (np.isnan(floats[:1]).all() and np.isnan(floats).all()):
        return None
    if marks.may_be_code and pc.any(pc.match_substring_regex(values, _ODD)).as_py():
        return None  # 1E5, +4912345 or 09.30 may be none
    if marks.has_point and are_months(values):
        return None
    if marks.is_padded if is_decimal else marks.has_zero:  # 1.10 may be a version, 01234 is a code
        return None
    return "." if is_decimal else "", floats


def _with_commas(values: pa.ChunkedArray, na_values: Sequence[str]) -> tuple[int, NDArray[np.float64]] | None:
    """The first row with a decimal comma, and the values of a column of numbers with such; None if there is doubt."""
    head = pc.utf8_trim_whitespace(values.slice(0, _SAMPLE))
    has_comma = matches(head, "[-+]?[0-9]*,[0-9]+")
    if not has_comma.any() or not matches(head, "[-+]?[0-9]*(?:,[0-9]+)?|\\pL*").all():
        return None
    # The commas become points, in the bytes of the texts.
    chunks = []
    for chunk in values.chunks:
        is_valid, places, content = chunk.buffers()
        raw = content.to_pybytes() if content is not None else b""
        if b"." in raw:
            return None
        buffers = [is_valid, places, pa.py_buffer(raw.replace(b",", b"."))]
        chunks.append(pa.Array.from_buffers(pa.string(), len(chunk), buffers, chunk.null_count, chunk.offset))
    sign_and_floats = plain_column(pa.chunked_array(chunks, pa.string()), na_values)
    return None if sign_and_floats is None or not sign_and_floats[0] else (int(has_comma.argmax()), sign_and_floats[1])


_DIGIT_FORMS = {8: ("%Y%m%d", "%d%m%Y", "%m%d%Y"), 10: ("%Y%m%d%H",), 12: ("%Y%m%d%H%M",), 14: ("%Y%m%d%H%M%S",)}
"""Formats of days, or moments, of so many digits."""


def _form_of_days(values: pa.ChunkedArray | pa.Array, found: np.ndarray) -> str:
    """The one format of days such as 20201231, as which numbers do not happen to be read, of nearly all of some texts.

    :param found: their numbers, NaN where missing, or which of them are values.
    """
    # Numbers out of range are no days in digits.
    if found.dtype.kind == "f" and not np.nanmin(found[:_SAMPLE], initial=np.inf) >= 1e7:
        return ""
    is_value = found if found.dtype.kind == "b" else ~np.isnan(found)
    if found.dtype.kind == "f" and (not 1e7 <= found[is_value].min() <= found[is_value].max() < 1e14):
        return ""
    # The first texts, then all: one format must read nearly all of them as days of these centuries.
    value_rows = pa.array(np.flatnonzero(is_value))
    for size in (100, len(values)):
        texts = pa.concat_arrays(one_chunk(values.take(value_rows.slice(0, size))).chunks)
        value_texts = pc.utf8_trim_whitespace(texts)
        widths = pc.unique(pc.utf8_length(value_texts)).to_pylist()
        forms = _DIGIT_FORMS.get(widths[0], ()) if len(widths) == 1 else ()
        shares = {form: _share_of_moments(value_texts, form) for form in forms}
        most = max(shares.values(), default=0.0)
        fitting = [form for form, share in shares.items() if share == most]
        if most < _MOST or len(fitting) != 1 or pc.count_distinct(value_texts[:1000]).as_py() < _MIN_DAYS:
            return ""
    return fitting[0]


def _share_of_moments(texts: pa.Array, form: str) -> float:
    """How many of some texts are moments from 1900 to 2099."""
    days = read_dates(texts, form)
    return float(((days >= _DAY_1900) & (days < _DAY_2100)).mean())


def _read(
    contents: Contents, forced: Forced | None, na_values: Sequence[str], is_tolerant: bool
) -> tuple[Column | _Numbers, Sign]:
    """What a column of texts is; as :func:`_looked_at`."""
    name = contents.name
    manner = forced.how if forced else ""
    if not contents.is_value.any():
        # Stars are marks, unless one text is all that there is.
        stars = matches(contents.cells.texts, "\\*+")
        is_mark = stars.any() and 0 < contents.counts[stars].max() < len(contents.cells.rows)
        return _text_column(contents, na_values, "") if is_mark else Column(name, "ignored", note=_EMPTY_NOTE), ""
    hint = ""
    if forced is None and are_durations(contents):
        forced = Forced("date", "%t")
        manner = "%t"
    if forced is None:
        check_codes(contents)
    # Numbers; digits that are none may be days, or codes with leading zeros.
    if forced is None or forced.kind == "number":
        result = _as_numbers(contents, is_forced=forced is not None, is_tolerant=is_tolerant)
        if isinstance(result, _Numbers):
            return result, result.found.decimal
        if result == "code" and (digit_form := _form_of_days(contents.cells.texts, contents.is_value)):
            column, _ = _read(contents, Forced("date", digit_form), na_values, is_tolerant)
            return replace(
                cast(Column, column), note=f"{getattr(column, 'note', '')}; --categorical={name} reads codes"
            ), ""
        if result == "code":
            is_code_text = matches(contents.cells.texts, "0[0-9]+")
            note = f"digits with leading zeros, {contents.example(is_code_text)}; --numeric={name} reads numbers"
            return _text_column(contents, na_values, note), ""
        hint = result
    # Dates, then times of the day and durations.
    manner = "" if manner == LOCAL else manner
    days: str | None = None
    if not is_time_format(manner):
        try:
            days = find_date_format(contents, manner, is_forced=forced is not None, is_tolerant=is_tolerant)
        except ValueError:
            # One date in all rows says nothing, however it is read.
            if forced is not None or contents.is_value.sum() > 1 or contents.counts.max() < 2:
                raise
            _, text, _ = contents.cells.first(contents.is_value)
            return Column(name, "ignored", note=f"all values are {shown(text)}; --dates={name}:FORMAT reads dates"), ""
    if days is not None:
        zone = zone_of(forced, contents.what, is_zoned="%z" in days or "%Z" in days)
        return Column(name, "date", date_format=days, zone=zone, note=notes.of_date(contents, days, zone)), ""
    clock = find_time_format(contents, manner if is_time_format(manner) else "", is_tolerant=is_tolerant)
    if clock is not None:
        note = notes.of_time(contents, read_times(contents.cells.texts, clock))
        return Column(name, "time", date_format=clock, note=note), ""
    # Two words for true and false; all else is levels or text.
    return _boolean_column(contents, na_values) or _text_column(contents, na_values, hint), ""


def _as_numbers(contents: Contents, *, is_forced: bool, is_tolerant: bool) -> _Numbers | str:
    """The numbers of a column, or, if it holds none: "code", or a note."""
    if (bare := _without_flags(contents)) is not None:
        # Numbers with flags are numbers without them.
        result = _as_numbers(bare, is_forced=is_forced, is_tolerant=is_tolerant)
        if isinstance(result, _Numbers):
            is_changed = truths_of(pc.not_equal(bare.cells.texts, contents.cells.texts))
            return result._replace(flagged=contents.cells.first(is_changed & contents.is_value)[1])
    found = find_style(contents, is_forced=is_forced)
    if found is not None and (is_forced or not is_code(contents, found)):
        return _Numbers(contents, is_tolerant, found)
    # The user says that these are numbers: the first that is none.
    if is_forced:
        bad = contents.is_value & np.array([apart(text) is None for text in contents.cells.texts.to_pylist()], bool)
        row, text, count = contents.cells.first(bad if bad.any() else contents.is_value)
        raise ValueError(_misfit(contents, Column(contents.name, "number"), text, row, count))
    if found is not None:
        return "code"
    _check_digits(contents)
    unit, note = _unit_of(contents.sample(_SAMPLE))
    are_years = contents.share(matches(contents.cells.texts, f"{YEAR}[^0-9]*")) == 1  # 2012 Summer
    if _WORD.fullmatch(unit) and _unit_of(contents)[0] == unit and contents.is_value.sum() > 1 and not are_years:
        result = _as_numbers(contents, is_forced=True, is_tolerant=is_tolerant)
        return cast(_Numbers, result)._replace(hint=f"--categorical={contents.name} reads levels")
    return note


def _without_flags(contents: Contents) -> Contents | None:
    """A column of numbers, of which some have flags after them, without these; None if it is none."""
    some = contents.sample(_SAMPLE)
    texts = contents.cells.texts
    # Years in parentheses, which are no sums below zero.
    if some.share(matches(some.cells.texts, f"\\(?{YEAR}\\)?")) == 1 and contents.is_value.sum() >= _MIN_DAYS:
        bare = without_flags(texts, are_years=True)
        is_year = contents.share(matches(bare, YEAR)) == 1 and not bare.equals(texts)
        return contents._replace(cells=contents.cells._replace(texts=bare)) if is_year else None
    if some.share(matches(some.cells.texts, _PERHAPS_FLAGGED)) <= 0.5:
        return None
    is_flagged = contents.is_value & matches(texts, f"(?s:.*)[0-9.,][{SPACES}]*?{FLAG}")
    if not is_flagged.any() or not matches(texts, "[-+]?[0-9.,]+(?: ?(?:[\\[(][-0-9.]+ ?[^0-9.]|\u00b1).*)?").any():
        return None
    endings = pc.unique(pc.replace_substring_regex(texts.filter(pa.array(is_flagged)), "^.*[0-9.,]\\s*", ""))
    if set(endings.to_pylist()) <= UNITS:  # of seconds or days
        return None
    return contents._replace(cells=contents.cells._replace(texts=without_flags(texts)))


def _number_column(
    pending: _Numbers, forced: Forced | None, na_values: Sequence[str], signs: Set[str], delimiter: str
) -> Column:
    contents = pending.contents
    told: Sign = SIGNS.get(forced.how, "") if forced else ""
    style, values = pending.found.readings[told or decimal_of(contents, pending.found, signs, delimiter)]
    # Texts that are no numbers in this style.
    bad = contents.is_value & np.isnan(values)
    is_one = bad.sum() > 1 and (values[contents.is_value & ~bad] == values[contents.is_value & ~bad][:1]).all()
    if bad.any() and forced is None and (is_one or _are_lettered(contents, bad)):  # 0, a, b, c
        return _text_column(contents, na_values, f"codes, such as {contents.example(bad)}")
    column = Column(contents.name, "number", *style)
    if bad.any() and (not pending.is_tolerant or contents.share(bad) >= 0.5):
        row, text, count = contents.cells.first(bad)
        raise ValueError(_misfit(contents, column, text, row, count))
    # Whole numbers that are all different, under the name of an id.
    is_id = forced is None and not style.unit and _is_id_name(contents.name) and contents.counts.max() == 1
    if is_id and contents.is_value.all() and (values == np.round(values)).all():
        return Column(contents.name, "ignored", note=_ID_NOTE)
    note = "; ".join(filter(None, [notes.of_numbers(contents, style, values), pending.hint]))
    if pending.flagged:
        sign = "parentheses, which are" if pending.flagged.startswith("(") else "a flag, which is"
        read = f"{shown(pending.flagged)} has {sign} left out (--categorical={column.name} keeps it)"
        return replace(column, has_flags=True, note="; ".join(filter(None, [read, note])))
    return replace(column, note=note)


def _are_lettered(contents: Contents, bad: NDArray[np.bool_]) -> bool:
    """Whether numbers, and texts among them that are none, are codes of which some have letters, as C536365."""
    # Codes of letters and digits, and digits alone beside them.
    texts = contents.cells.texts
    is_lettered = matches(texts, _LETTERED) & bad
    is_digits = matches(texts, "[0-9]{4,}") & ~bad
    if contents.share(matches(texts, _DIAGNOSIS)) == 1 and matches(texts, "V.*").any():
        return True
    # A few odd texts among numbers are mistakes.
    are_many = is_lettered.sum() >= 2 and contents.counts[bad].sum() >= 3 and contents.share(bad) >= 0.02
    good = contents.is_value & ~bad
    return bool(
        are_many
        and contents.share(is_lettered) >= 0.8 * contents.share(bad)
        and contents.share(is_digits) >= 0.8 * contents.share(good)
        and matches(texts.filter(pa.array(good)), "[0-9]+").all()
    )


def _unit_of(contents: Contents) -> tuple[str, str]:
    """The one unit, which is not known, of a text of numbers, and that --numeric reads them; ("", "") if it is none."""
    parts = [apart(text) if text[:1].isdigit() else None for text in contents.cells.texts.to_pylist()]
    is_number = np.array([part is not None for part in parts], bool)
    units = {part.unit for part, is_value in zip(parts, contents.is_value, strict=True) if part and is_value}
    if contents.share(is_number) < 1 or len(units) != 1:
        return "", ""
    return units.pop(), f"--numeric reads {contents.example(is_number)} as a number"


def _check_digits(contents: Contents) -> None:
    """Numbers in other digits or with underscores are no levels."""
    some = contents.sample(_SAMPLE)
    if some.share(matches(some.cells.texts, "[-+]?[\\p{Nd}.,][\\p{Nd}.,_-]*(?:[eE][-+]?[0-9]+)?")) <= 0.5:
        return
    texts = contents.cells.texts
    # Digits of other scripts, underscores between thousands, or a sign behind.
    odd = matches(texts, "[-+]?\\p{Nd}[\\p{Nd}.,]*") & matches(texts, "(?s:.*)[^\\x00-\\x7f](?s:.*)")
    odd |= matches(texts, "[-+]?[0-9]{1,3}(?:_[0-9]{3})+|[0-9]+(?:[.,][0-9]+)?-")
    if odd.any() and contents.share(odd | ~np.isnan(numbers(texts, Style()))) > 0.5:
        row, text, count = contents.cells.first(odd & contents.is_value)
        raise ValueError(_misfit(contents, Column(contents.name, "number"), text, row, count))


def _misfit(contents: Contents, column: Column, text: str, row: int, count: int) -> str:
    more = f", --categorical={column.name} if it is text, --ignore={column.name} to leave out the column, or "
    more += "--bad_rows=drop such rows"
    return misfit(contents.what, column, text, row, count, more=more)


def _is_id_name(name: str) -> bool:
    """Whether the name of a column says that it is an id."""
    return _ID.fullmatch(name) is not None


def _is_id(name: str, values: pa.ChunkedArray, found: NDArray[np.float64]) -> bool:
    """Whether a column of numbers is an id by its name and by its values: whole and all different."""
    if not _is_id_name(name) or len(values) < 2 or values.null_count:
        return False
    if not (found == np.round(found)).all():
        return False
    # Numbers that differ are different texts, too.
    return len(np.unique(found)) == len(found) or pc.count_distinct(values).as_py() == len(values)


def _boolean_column(contents: Contents, na_values: Sequence[str]) -> Column | None:
    """A column of two words that are yes and no, or of true or false alone."""
    lower = pc.utf8_lower(contents.cells.texts)
    is_word = (contents.counts > 0) & ~is_missing(contents.cells.texts, na_values, markers=False)
    # Each pair of words for yes and no; of the words of programs, the first pair, one is enough.
    for pairs, is_value in ((_WORDS[:1], contents.is_value), (_WORDS[1:], is_word)):
        words = set(pc.unique(lower.filter(pa.array(is_value))).slice(0, 3).to_pylist())
        is_program = pairs == _WORDS[:1]
        pair = next((pair for pair in pairs if words == {*pair} or (is_program and words and words < {*pair})), None)
        if pair is not None:
            true, false = (_spellings(contents, is_value, word) for word in pair)
            note = "; ".join(notes.of_markers(contents)) if is_program else ""
            return Column(contents.name, "boolean", true=true or ("True",), false=false or ("False",), note=note)
    return None


def _spellings(contents: Contents, is_value: NDArray[np.bool_], word: str) -> tuple[str, ...]:
    """How a word is written, the most frequent spelling first."""
    spellings: dict[str, int] = {}
    for number in np.flatnonzero(is_value):
        text = contents.cells.texts[int(number)].as_py()
        if text.casefold() == word:
            spellings[text] = spellings.get(text, 0) + int(contents.counts[number])
    return tuple(sorted(spellings, key=lambda text: -spellings[text]))


def _text_column(contents: Contents, na_values: Sequence[str], note: str) -> Column:
    """A column of text: an id, which is ignored; a category; or text, with too many levels to be one."""
    texts = contents.cells.texts
    is_value = ~is_missing(texts, na_values, markers=False) & (contents.counts > 0)
    num_levels = len(pc.unique(texts.filter(pa.array(is_value))))
    num_values = int(contents.counts[is_value].sum())
    # Ids go first, then texts of too many levels.
    if num_levels == num_values and num_values > 1 and _is_id_name(contents.name):
        return Column(contents.name, "ignored", note=_ID_NOTE)
    if num_levels > MAX_LEVELS or (num_levels == num_values >= _ALL_DIFFERENT):
        return Column(contents.name, "text", note="; ".join(filter(None, [f"{num_levels} different texts", note])))
    levels = notes.of_levels(texts.filter(pa.array(is_value)), ())
    return Column(contents.name, "category", note="; ".join(filter(None, [note, levels])))
