"""Numbers as people write them: `1.5e3`, `1,234.5`, `1.234,5 €`, `12 %`, `$3.50`, `(5)`, and what their style is.

    numbers(pa.array(["1.234,50 €"]), Style(decimal=",", thousands=".", unit="€"))         # [1234.5]

Digits are 0 to 9; a plain number is read as Python's `float` reads it. Hexadecimal numbers, underscores, fractions and
digits of other scripts are no numbers.
"""

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from experiment.data.cells import MISSING, matches

__all__ = ["BODY", "EXPONENT", "SPACE", "THOUSANDS", "Style", "cell_pattern", "numbers", "plain_numbers"]

SPACE = "[\\s\u00a0\u2007\u2009\u202f]"
"""A space of any width, as a pattern (RE2)."""

THOUSANDS = {"": "", ",": ",", ".": "\\.", " ": SPACE, "'": "['\u2019]"}
"""What may stand between groups of digits, and its pattern."""

_SIGN = "[-+\u2212]?"
EXPONENT = "(?:[eE][-+]?[0-9]+)?"
"""The exponent of a number, or nothing, as a pattern."""

BODY = f"(?:[.,]?[0-9]+(?:(?:[.,'\u2019]|{SPACE})[0-9]+)*[.,]?{EXPONENT}|(?i:inf(?:inity)?))"
"""Anything that may be a number without its sign and unit, as a pattern."""


class Style(NamedTuple):
    """How the numbers of a column are written; the fields are those of `experiment.data.columns.Column`."""

    decimal: str = "."
    thousands: str = ""
    unit: str = ""
    has_parentheses: bool = False


def plain_numbers(values: pa.ChunkedArray | pa.Array) -> NDArray[np.float64] | None:
    """The numbers of texts that all are plain numbers (or "nan"), correctly rounded; None if one of them is not."""
    if values.null_count:
        return None
    try:
        found = np.asarray(pc.cast(values, pa.float64()).to_numpy(), dtype=np.float64)
    except pa.ArrowInvalid:
        return None
    is_nan = np.isnan(found)
    if is_nan.any():
        texts = pc.unique(values.filter(pa.array(is_nan)))
        if not pc.all(pc.is_in(texts, value_set=pa.array(MISSING, texts.type))).as_py():
            return None
    return found


def numbers(texts: pa.Array, style: Style) -> NDArray[np.float64]:
    """The numbers of texts, NaN where a text is none in this style. A zero may lack the unit."""
    parts = pc.extract_regex(texts, pattern=_pattern(style))
    opening, first, before, second, body, after, closing = (pc.struct_field(parts, [i]) for i in range(7))
    plain = body
    if style.thousands:
        plain = pc.replace_substring_regex(plain, THOUSANDS[style.thousands], "")
    if style.decimal != ".":
        plain = pc.replace_substring(plain, style.decimal, ".")
    found = np.array(pc.fill_null(pc.cast(plain, pa.float64()), np.nan).to_numpy(zero_copy_only=False))
    is_open, is_closed = _has(opening), _has(closing)
    is_signed, is_signed_again = _has(first), _has(second)
    is_bad = (is_open != is_closed) | (is_signed & is_signed_again) | (is_open & (is_signed | is_signed_again))
    if not style.has_parentheses:
        is_bad |= is_open
    if style.unit:
        is_bad |= (_has(before) == _has(after)) & ~((found == 0) & ~_has(before))
        if style.unit[-1].isalpha():  # in "Rs.500" the point is not decimal
            is_bad |= _has(before) & matches(body, "[.,].*")
    is_negative = is_open | matches(first, "[^+]") | matches(second, "[^+]")
    return np.where(is_bad, np.nan, np.where(is_negative, -found, found))


def cell_pattern(body: str, before: str, after: str) -> str:
    """The pattern of a cell that holds a number, with groups for its parts.

    :param body: the pattern of the number; :param before: of what may stand before it; :param after: after it.
    """
    gap = f"{SPACE}*"
    return (
        f"^(?P<opening>\\(?){gap}(?P<first>{_SIGN}){gap}(?P<before>{before}){gap}(?P<second>{_SIGN}){gap}"
        f"(?P<body>{body}){gap}(?P<after>{after}){gap}(?P<closing>\\)?)$"
    )


def _pattern(style: Style) -> str:
    point, group = re.escape(style.decimal), THOUSANDS[style.thousands]
    whole = "[0-9]+"
    if group:
        whole = f"(?:[0-9]+|[1-9][0-9]{{0,2}}(?:{group}[0-9]{{3}})+)"
    if style.thousands == ",":
        whole = f"(?:{whole}|[1-9][0-9]?(?:,[0-9]{{2}})+,[0-9]{{3}})"  # 12,34,567
    body = f"(?:{whole}(?:{point}[0-9]*)?|{point}[0-9]+){EXPONENT}|(?i:inf|infinity)"
    unit = f"(?:{re.escape(style.unit)})?" if style.unit else ""
    return cell_pattern(body, unit, unit)


def _has(part: pa.Array) -> NDArray[np.bool_]:
    return matches(part, "(?s:.+)")
