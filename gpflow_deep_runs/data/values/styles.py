"""Which style the numbers of a column are written in: unit, decimal sign, thousands; and where that cannot be known.

Numbers are read as dates are: in every style that their texts suggest. A cell such as `1,234` or `1.234` is two
numbers. Cells that are only one decide for their column (`12,5`, `1,234.5`, `1,234,567`), and columns that are decided
may decide for the table.
"""

from __future__ import annotations

import contextlib
import functools
import re
import unicodedata
from collections.abc import Set
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data.files.libraries import pa
from gpflow_deep_runs.data.values import numerals
from gpflow_deep_runs.data.values.cells import Contents, matches, shown
from gpflow_deep_runs.data.values.numerals import (
    EXPONENT,
    GROUPS,
    SIGNS,
    SPACES,
    Style,
    numbers,
    pattern_of,
    singular_of,
)
from gpflow_deep_runs.data.values.units import CURRENCIES, SCALES, UNITS

__all__ = ["Found", "Part", "Reading", "Sign", "apart", "decimal_of", "find_style", "is_code"]

Sign = Literal["", ".", ","]
"""A decimal sign; "" if it is not known."""

_GAP = f"[{SPACES}]*"
_CELL = re.compile(
    f"(?P<open>\\(?){_GAP}(?:(?P<sign>[{SIGNS}]){_GAP})?"
    f"(?P<before>(?![{SPACES}])[^{SIGNS}()0-9.,]*?(?:[^\\W\\d_]\\.(?={_GAP}[0-9]))?){_GAP}"  # of "Rs.500"
    f"(?:(?P<inner>[{SIGNS}]){_GAP})?"
    f"(?P<body>(?:[0-9.,](?:[0-9.,'\u2019{SPACES}]*[0-9.,])?{EXPONENT}|(?i:inf(?:inity)?)))"
    f"{_GAP}(?P<after>(?:(?!(?<=[{SPACES}])[{SPACES}])[^()0-9.,'\u2019][^()]*?)?){_GAP}(?P<close>\\)?)",
    re.DOTALL,
)
"""A number with a unit on either side, in parentheses or not."""

_BODY = re.compile("|".join(pattern_of(Style(sign, group)) for sign in (".", ",") for group in GROUPS if group != sign))
_OUT_OF = re.compile("(?:/|out of|von|sur) ?(5|10|100|1000)(?: (?:stars?|points?|Punkten))?")
"""What follows ratings such as 4.1/5, which is a unit of theirs."""

_MIXED = "[0-9]+[ -]+[0-9]+/[0-9]+|.*[\u00bc-\u00be\u2150-\u215e]"
_MAY_BE_COMPOUND = f"(?s:.*[0-9] ?(?:['\u2019\u2032\u00b0\u00ba]|ft|feet|foot).*)|{_MIXED}|[0-9]+/[0-9]+"
_ZERO = re.compile("0+(?:[.,]0+)?")
_BOTH = "\x1f"
_SAMPLE = 1000
_FEW_LEVELS = 20
_MIN_NUMBERS = 20


class Part(NamedTuple):
    """A text that may be a number in some style, taken apart.

    :ivar body: the number without sign and unit.
    :ivar unit: the text before or after it; both with a sign of our own between them.
    :ivar is_known: the unit is one that needs no flag, or there is none.
    :ivar is_open: it stands in parentheses.
    """

    body: str
    unit: str
    is_known: bool
    is_open: bool


class Reading(NamedTuple):
    """The numbers of the texts of a column in one style, NaN where a text is none."""

    style: Style
    values: NDArray[np.float64]


class Found(NamedTuple):
    """What the numbers of a column tell of their style.

    :ivar is_number: which texts are numbers.
    :ivar readings: how they are read with either decimal sign.
    :ivar decimal: the decimal sign, if one of them can be read in one way only.
    :ivar is_doubtful: cells such as `1,234`, which are two numbers, if none of them tells.
    :ivar doubt: the sign that is decimal or between thousands in these.
    :ivar is_grouped: no program writes these cells as decimals: 950 has no decimals, and 1,050 has a zero at its end.
    """

    is_number: NDArray[np.bool_]
    readings: dict[str, Reading]
    decimal: Sign
    is_doubtful: NDArray[np.bool_]
    doubt: Sign = ""
    is_grouped: bool = False


def apart(text: str) -> Part | None:
    """A text that may be a number, taken apart; None if it is none."""
    cell = _CELL.fullmatch(text)
    if cell is None or sum(map(bool, cell.group("open", "sign", "inner"))) > 1 or not _BODY.fullmatch(cell["body"]):
        return None
    # What stands beside the number: a rating's best, or a unit.
    before, after = cell.group("before", "after")
    best = _OUT_OF.fullmatch(after)
    if best and not 0 <= _float(cell["body"]) <= float(best[1]):
        return None
    is_unit = not after or after[0].isalpha() or after[0] in "%‰°º+" or _is_money(after) or best is not None
    if not is_unit or bool(cell["open"]) != bool(cell["close"]):
        return None
    # Units that need no flag.
    is_known = (not before or _is_money(before)) and (
        not after or _is_money(after) or after in UNITS or best is not None
    )
    return Part(cell["body"], _BOTH.join(filter(None, (before, after))), is_known, bool(cell["open"]))


def _float(body: str) -> float:
    """A number with a decimal point or comma; NaN if it is in groups."""
    try:
        return float(body.replace(",", "."))
    except ValueError:
        return float("nan")


def find_style(contents: Contents, *, is_forced: bool = False) -> Found | None:
    """What the numbers of a column tell of their style, or None if at most half of its values are numbers.

    Of many different texts some are looked at; if there is no doubt about these, the others need to fit only.

    :param is_forced: the user says that they are numbers, which then may have any unit.
    :raises ValueError: numbers of different units, or with decimal points and decimal commas.
    """
    some = contents.sample(_SAMPLE)
    if matches(some.cells.texts, _MAY_BE_COMPOUND).any() and (compound := _compound(contents, is_forced)):
        return compound
    if some is not contents and not is_forced:
        # Errors name the first of all texts; where no text of the sample is a number, there is none.
        found = None
        with contextlib.suppress(ValueError):
            found = _found(some)
            if found is None and not any(part and part.is_known for part in map(apart, some.cells.texts.to_pylist())):
                return None
        if found is not None and not found.doubt and (of_all := _of_all(found, contents)):
            return of_all
    return _found(contents, any_unit=is_forced)


def _compound(contents: Contents, is_forced: bool) -> Found | None:
    """Numbers of several parts, if all are such; fractions alone, without one such as 1 1/2, may be ratios."""
    texts = contents.cells.texts
    for unit in numerals.COMPOUND:
        reading = Reading(Style(unit=unit), numbers(texts, Style(unit=unit)))
        is_sure = is_forced or unit != "1/2" or (matches(texts, _MIXED) & contents.is_value).any()
        if is_sure and contents.share(~np.isnan(reading.values)) == 1:
            return Found(contents.is_value, {".": reading, ",": reading}, "", np.zeros_like(contents.is_value))
    return None


def _of_all(found: Found, contents: Contents) -> Found | None:
    """What was found in some texts, if it reads all of them; else None."""
    texts = contents.cells.texts
    # With either sign, unless one is sure.
    signs = [found.decimal] if found.decimal else list(found.readings)
    readings = {
        sign: found.readings[sign]._replace(values=numbers(texts, found.readings[sign].style)) for sign in signs
    }
    values = [reading.values[contents.is_value] for reading in readings.values()]
    # All values must be numbers, and the same ones with both signs.
    if np.isnan(values[0]).any() or (values[0] != values[-1]).any():
        return None
    return Found(contents.is_value, readings, found.decimal, np.zeros_like(contents.is_value))


def _found(contents: Contents, *, any_unit: bool = False) -> Found | None:
    parts = list(map(apart, contents.cells.texts.to_pylist()))
    is_number = contents.is_value & np.array([part is not None and (part.is_known or any_unit) for part in parts], bool)
    # Numbers are most values, or nearly all of the different ones beside a few words.
    are_many = is_number.sum() >= max(_MIN_NUMBERS, 0.9 * contents.is_value.sum())
    if contents.share(is_number) <= 0.5 and not are_many:
        return None
    # Zeros may lack the unit that the others have.
    units = np.array([part.unit if part else "" for part in parts], object)
    singular = {singular_of(unit): unit for unit in set(units)}
    units = np.array([singular.get(unit, unit) if unit else "" for unit in units], object)
    bodies = np.array([part.body if part else "" for part in parts], object)
    is_zero = (units == "") & np.array([_ZERO.fullmatch(body) is not None for body in bodies], bool)
    used = is_number & ~is_zero if (is_number & ~is_zero).any() else is_number
    # Letters as in 5V and 5W are codes, and no units.
    if len(set(units[used])) > 1 and _are_codes(set(units[used]), bodies[used]):
        is_number &= units == ""
        used = is_number
        if contents.share(is_number) <= 0.5:
            return None
    # One unit for all, apart from thousands and millions.
    base = _base(set(units[used]))
    has_plus = set(units[used]) == {"", "+"} or (set(units[used]) == {"+"} and set(map(len, bodies[used])) == {1})
    if has_plus and contents.is_value.sum() <= _FEW_LEVELS:
        return None  # 0, 1, 2, 3+
    if base is None:
        _check_units(contents, units, used)
    is_open = is_number & np.array([part is not None and part.is_open for part in parts], bool)
    if is_open[is_number].all() and not any(set(body) & {".", ","} for body in bodies[is_number]):
        return None  # (1), (2), ...: no sign, but a way to number things
    unit = str(units[used][0]) if base is None else base
    return _signs(contents, bodies, is_number, Style("", "", unit, bool(is_open.any()), base is not None))


def _signs(contents: Contents, bodies: NDArray[np.object_], is_number: NDArray[np.bool_], known: Style) -> Found:
    """Which decimal signs read the numbers of a column.

    :param known: their style but for decimal sign and thousands.
    """
    readings: dict[str, Reading] = {}
    first: dict[str, NDArray[np.float64]] = {}
    sign: Sign
    characters = set("".join(bodies))
    groups = [group for group in GROUPS if not group or characters & set(GROUPS[group])]
    for sign in (".", ","):
        # In the style that most of the numbers have, and in any style whose signs occur.
        tried = [known._replace(decimal=sign, thousands=group) for group in groups if group != sign]
        values = [numbers(contents.cells.texts, style) for style in tried]
        best = int(np.argmax([contents.counts[is_number & ~np.isnan(found)].sum() for found in values]))
        readings[sign] = Reading(tried[best], values[best])
        first[sign] = functools.reduce(lambda found, other: np.where(np.isnan(found), other, found), values)
    point, comma = (is_number & ~np.isnan(first[sign]) for sign in (".", ","))
    is_doubtful = point & comma & (first["."] != first[","])
    has_point = is_doubtful & np.array(["." in body for body in bodies], bool)
    # Numbers that are read with one of the signs only, or else those that are read with both in two ways.
    is_sure = bool((point ^ comma).any())
    signs = (point & ~comma, comma & ~point) if is_sure else (has_point, is_doubtful & ~has_point)
    if all(mask.any() for mask in signs):
        raise ValueError(
            f"{contents.what} has decimal points and decimal commas, {contents.example(signs[0])} and "
            f"{contents.example(signs[1])} (from 0); write them alike, or give --categorical={contents.name}."
        )
    sign = "." if signs[0].any() else "," if signs[1].any() else ""
    if is_sure or not sign:
        return Found(is_number, readings, sign, np.zeros_like(is_number))
    # Numbers without a sign beside some with a zero at the end: these are thousands.
    is_whole = point & comma & ~is_doubtful & np.array([bool(body.strip("0")) for body in bodies], bool)
    is_long = is_doubtful & np.array([body.endswith("0") for body in bodies], bool)
    return Found(is_number, readings, "", is_doubtful, sign, bool(is_whole.any() and is_long.any()))


def decimal_of(contents: Contents, found: Found, table: Set[str], delimiter: str) -> Sign:
    """The decimal sign of a column.

    :param table: the decimal signs that other columns of the table have for sure.
    :param delimiter: what stands between the columns; commas leave the comma for thousands, semicolons do not.
    :raises ValueError: with both readings, if nothing tells.
    """
    if not found.doubt:
        return found.decimal or "."
    # The other columns, or else the delimiter.
    chosen: Sign = ""
    if len(table) == 1:
        chosen = "." if "." in table else ","
    elif not table and found.doubt == ",":
        chosen = "." if found.is_grouped or delimiter == "," else ""
    elif not table:
        chosen = "." if delimiter != ";" else "," if found.is_grouped else ""
    # But not against the column itself or the delimiter, nor may money have three decimals.
    is_against = found.is_grouped or _is_money(found.readings["."].style.unit)
    if chosen == found.doubt and is_against:
        chosen = ""
    if chosen == "," and found.doubt == "." and delimiter == ",":
        chosen = ""
    if chosen:
        return chosen
    # Nothing tells, so the user has to.
    row, text, _ = contents.cells.first(found.is_doubtful)
    place = int(found.is_doubtful.argmax())
    one, other = (found.readings[sign].values[place] for sign in (".", ","))
    raise ValueError(
        f"{contents.what} has numbers such as {shown(text)} in row {row} (from 0), which may be {one:.15g} or "
        f"{other:.15g}; give --numeric={contents.name}:point for the first, --numeric={contents.name}:comma for the "
        "second reading."
    )


def is_code(contents: Contents, found: Found) -> bool:
    """Whether numbers are digits alone of which some begin with a zero, such as 01234."""
    texts = contents.cells.texts.filter(pa.array(found.is_number))
    return bool(matches(texts, "[0-9]+").all() and matches(texts, "0[0-9]+").any())


def _base(units: set[str]) -> str | None:
    """The unit of numbers of which some are thousands or millions: "€" of "€110.5M"; None if they are not."""
    parts = {unit: _without_scale(unit) for unit in units}
    if units == {"", "Cr"} or (len(units) < 2 and not any(_BOTH in unit for unit in units)):  # Cr may be credit
        return None
    has_scale = any(parts[unit] != unit for unit in units)
    bases = set(parts.values())
    return bases.pop() if has_scale and len(bases) == 1 else None


def _without_scale(unit: str) -> str:
    """A unit without the word that says thousands or millions, as "EUR" of "Mio EUR"."""
    before, _, last = unit.rpartition(_BOTH)
    if last in SCALES or (last == "m" and before):  # £300m
        return before
    # A scale before a currency, as in 3 Mio EUR.
    for word in SCALES:
        rest = last.removeprefix(word).strip()
        if last.startswith(word) and not before and _is_money(rest):
            return rest
    return unit


def _is_money(unit: str) -> bool:
    """Whether a unit is a currency: a known word, or a sign after at most three letters."""
    is_sign = unit[-1:] != "" and unicodedata.category(unit[-1]) == "Sc"
    return unit in CURRENCIES or (is_sign and len(unit) < 5 and (unit[:-1].isalpha() or len(unit) == 1))


def _check_units(contents: Contents, units: NDArray[np.object_], used: NDArray[np.bool_]) -> None:
    # Two units at one number, or one at each.
    different = list(dict.fromkeys(units[used]))
    double = [unit for unit in different if _BOTH in unit]
    if len(different) < 2 and not double:
        return
    examples = [contents.example(used & (units == unit)) for unit in double[:1] or different[:2]]
    problem = "with two units" if double else f"of {len(different)} different units"
    raise ValueError(
        f"{contents.what} has numbers {problem}, such as {' and '.join(examples)} (from 0); convert them to one unit, "
        f"or give --ignore={contents.name} or --categorical={contents.name}."
    )


def _are_codes(units: set[str], bodies: NDArray[np.object_]) -> bool:
    """Whether numbers have single capitals for units and no fractions, such as 5V and 5W: more likely codes."""
    is_whole = not any(sign in body for body in bodies for sign in ".,")
    are_capitals = all(not unit or (len(unit) == 1 and unit.isupper()) for unit in units)
    return is_whole and are_capitals and not units <= {"", "K", "M"}
