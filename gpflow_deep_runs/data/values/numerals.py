"""Numbers as people write them: `1.5e3`, `1,234.5`, `1.234,5 €`, `12 %`, `$3.50`, `(5)`.

    numbers(pa.array(["1.234,50 €"]), Style(decimal=",", thousands=".", unit="€"))         # [1234.5]

Digits are 0 to 9; a plain number is read as Python's `float` reads it. Hexadecimal numbers, underscores and digits of
other scripts are no numbers; fractions, and feet with inches, are in a style of their own, :data:`COMPOUND`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data.files.libraries import pa, pc
from gpflow_deep_runs.data.values.cells import MISSING, bytes_of, matches, one_chunk
from gpflow_deep_runs.data.values.units import SCALES

__all__ = ["COMPOUND", "EXPONENT", "FLAG", "GROUPS", "SIGNS", "SPACES", "YEAR", "Marks", "Style"]
__all__ += ["marks_of", "numbers", "pattern_of", "plain_numbers", "singular_of", "without_flags"]

SPACES = " \t\u00a0\u2007\u2009\u202f"
"""Spaces of any width."""

GROUPS = {"": "", ",": ",", ".": ".", " ": SPACES, "'": "'\u2019"}
"""What may stand between groups of digits, and how it is written."""

SIGNS = "-+\u2212"
"""Signs of numbers, the third of which is typographical."""

EXPONENT = "(?:[eE][-+]?[0-9]+)?"
"""The exponent of a number, or nothing, as a pattern."""


_INTERVAL = "(?:[\\[(][-+0-9., ]*[0-9] ?(?:[-\u2013,;]|to) ?[-+0-9.]+[\\])]|\u00b1 ?[0-9.,]+)"
"""An interval after its estimate, as in 60.1 [55.2-64.0] or 5.2 \N{PLUS-MINUS SIGN} 0.3."""

FLAG = f"(?:\\*{{1,3}}|[\u2020\u2021\u00a7]|\\[[0-9A-Za-z]{{1,3}}\\]|\\([a-z]\\)| [bcdefinprsuz]{{1,3}}|{_INTERVAL})"
"""What statistical offices write after a number that is provisional (4.9 p, 4.9*) or has a note (4.9 [1])."""

COMPOUND = {
    "ft in": re.compile(
        "(?P<a>[0-9]{1,2}) ?(?:['\u2032\u2019]|ft\\.?|feet|foot) ?"
        "(?:(?P<b>(?:1[01]|[0-9])(?:\\.[0-9]+)?) ?(?:[\"\u2033\u201d]|''|in(?:ch(?:es)?)?\\.?)?)?"
    ),
    "\u00b0 '": re.compile(
        "(?P<sign>[-\u2212]?)(?P<a>[0-9]{1,3}) ?[\u00b0\u00ba] ?(?P<b>[0-5]?[0-9](?:\\.[0-9]+)?) ?['\u2032\u2019] ?"
        "(?:(?P<c>[0-5]?[0-9](?:\\.[0-9]+)?) ?(?:[\"\u2033\u201d]|'') ?)?(?P<side>[NSEW]?)"
    ),
    "1/2": re.compile("(?:(?P<a>[0-9]+)(?:[ -]+(?=[0-9])|$))?(?:(?P<b>[0-9]+)[/\u2044](?P<d>[234568]|10|16|32|64))?"),
}
"""Numbers of several parts, by what stands for their unit: heights in inches, angles in degrees, and fractions."""

YEAR = "(?:1[89]|20)[0-9]{2}"
"""A year, which is none below zero where it stands in parentheses."""

_FLAGGED = f"^([-+\u2212]?[0-9.,][0-9.,'\u2019{SPACES}]*?)[{SPACES}]*?{FLAG}$"
_HEAD = 100
_MANY = 10_000


class Style(NamedTuple):
    """How the numbers of a column are written; the fields are those of `gpflow_deep_runs.data.table.columns.Column`."""

    decimal: str = "."
    thousands: str = ""
    unit: str = ""
    has_parentheses: bool = False
    is_scaled: bool = False
    has_flags: bool = False


class Marks(NamedTuple):
    """What the bytes of texts that are plain numbers say of how these are written.

    :ivar has_point: one has a point.
    :ivar may_be_code: one begins with a plus, has a digit after an "e", or digits after a zero, or seems to.
    :ivar has_zero: one of several characters begins with a zero.
    :ivar is_padded: decimals differ in length, and some end with a zero.
    """

    has_point: bool
    may_be_code: bool
    has_zero: bool
    is_padded: bool


def marks_of(values: pa.ChunkedArray | pa.Array) -> Marks | None:
    """The marks of texts by their bytes, in a tenth of the time that patterns take; None if some have spaces."""
    may_be_code = has_zero = ends_with_zero = False
    pieces: list[tuple[NDArray[np.uint8], NDArray[np.int32]]] = []  # with points: bytes, and where texts begin and end
    for chunk in one_chunk(values).chunks:
        if not pa.types.is_string(chunk.type):
            continue
        text, offsets = bytes_of(chunk)
        raw = text.tobytes()
        if not raw.isascii() or any(space in raw for space in (b" ", b"\t", b"\n", b"\r", b"\v", b"\f")):
            return None
        # The first two bytes of texts of several characters.
        starts = offsets[:-1][np.diff(offsets) > 1]
        second = text[starts + 1]
        is_zero = text[starts] == ord("0")
        has_zero |= bool(is_zero.any())
        may_be_code |= bool((text[starts] == ord("+")).any()) or ((b"e" in raw or b"E" in raw) and _is_exponent(text))
        may_be_code |= bool((is_zero & (second >= ord("1")) & (second <= ord("9"))).any())
        # Texts with points are compared at the end, when all lengths are known.
        if b"." in raw:
            pieces.append((text, offsets))
            ends_with_zero |= _has_last_zero(text, offsets)
    is_padded = ends_with_zero and len(set().union(*(_lengths(*piece) for piece in pieces))) > 1
    return Marks(bool(pieces), may_be_code, has_zero, is_padded)


def _is_exponent(text: NDArray[np.uint8]) -> bool:
    """Whether a digit follows an "e": 1e-05 is no code."""
    after = text[1:][(text[:-1] | 32) == ord("e")]
    return bool(((after >= ord("0")) & (after <= ord("9"))).any())


def _has_last_zero(text: NDArray[np.uint8], offsets: NDArray[np.int32]) -> bool:
    """Whether one of the texts between offsets has two digits or more behind its point, the last of them a zero."""
    is_long = np.diff(offsets) > 2
    starts = offsets[:-1][is_long]
    ends = offsets[1:][is_long]
    is_such = text[ends - 1] == ord("0")
    if not is_such.any():
        return False
    # The last point before each end, which must be of the same text.
    points = np.flatnonzero(text == ord("."))
    last = points[np.searchsorted(points, ends[is_such]) - 1]  # of an earlier text, if it has none
    return bool(((last >= starts[is_such]) & (ends[is_such] - last > 2)).any())


def _lengths(text: NDArray[np.uint8], offsets: NDArray[np.int32]) -> set[int]:
    """How many characters there are behind the points of some texts."""
    points = np.flatnonzero(text == ord("."))
    ends = offsets[np.searchsorted(offsets, points, side="right")]
    return set(np.unique(ends - points).tolist())


def plain_numbers(values: pa.ChunkedArray | pa.Array, missing: Sequence[str] = MISSING) -> NDArray[np.float64] | None:
    """The numbers of texts that all are plain numbers, correctly rounded, or missing; None if one is neither.

    :param missing: texts that stand for a missing value.
    """
    if len(values) > _MANY and plain_numbers(values.slice(0, _HEAD), missing) is None:
        return None  # each text that is no number takes its time
    try:
        return _without_nan(values)
    except pa.ArrowInvalid:
        pass
    # What stands for a missing value becomes null.
    trimmed = pc.utf8_trim_whitespace(values)
    is_missing = pc.is_in(trimmed, value_set=pa.array(missing, values.type))
    try:
        return _without_nan(pc.if_else(is_missing, pa.scalar(None, values.type), trimmed))
    except pa.ArrowInvalid:
        return None


def _without_nan(values: pa.ChunkedArray | pa.Array) -> NDArray[np.float64]:
    """Texts as numbers.

    :raises pa.ArrowInvalid: if one is neither a number nor "nan", such as "nan(1)".
    """
    floats = np.array(pc.cast(values, pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    is_nan = np.isnan(floats)
    if is_nan.any():
        texts = pc.unique(pc.drop_null(values.filter(pa.array(is_nan))))
        if not pc.all(pc.is_in(texts, value_set=pa.array(MISSING, texts.type))).as_py() and len(texts):
            raise pa.ArrowInvalid("not a number")
    return floats


def numbers(texts: pa.Array, style: Style) -> NDArray[np.float64]:
    """The numbers of texts, NaN where a text is none in this style. A zero may lack the unit."""
    if style.has_flags:
        bare = without_flags(texts, are_years=not style.has_parentheses)
        return numbers(bare, style._replace(has_flags=False))
    if style.is_scaled:
        return _scaled(texts, style)
    if style.unit in COMPOUND:
        return np.array([_compound(text or "", style.unit) for text in texts.to_pylist()], np.float64)
    # Texts that are no numbers become null; the sign is read before unit and groups are taken away.
    rest = pc.if_else(pa.array(matches(texts, pattern_of(style))), texts, pa.scalar(None, texts.type))
    is_negative = pc.match_substring_regex(rest, "^[^0-9]*[-\u2212(]")
    for text in (style.unit, singular_of(style.unit), *GROUPS[style.thousands]):
        rest = pc.replace_substring(rest, text, "") if text else rest
    # Only digits, the decimal sign and the exponent are left.
    rest = pc.utf8_trim(rest, f"(){SIGNS}{SPACES}")
    if style.decimal != ".":
        rest = pc.replace_substring(rest, style.decimal, ".")
    magnitudes = pc.cast(rest, pa.float64())
    return np.array(
        pc.if_else(is_negative, pc.negate(magnitudes), magnitudes).to_numpy(zero_copy_only=False), dtype=np.float64
    )


def _compound(text: str, unit: str) -> float:
    """A number of several parts; NaN if it is none."""
    # Signs such as 1/2 in one character become digits.
    text = re.sub("[\u00bc-\u00be\u2150-\u215e]", lambda sign: " " + unicodedata.normalize("NFKC", sign[0]), text)
    found = COMPOUND[unit].fullmatch(text.strip()) if text else None
    if found is None:
        return float("nan")
    part = {name: value for name, value in found.groupdict().items() if value}
    whole, small, smallest, divisor = (float(part.get(*default)) for default in zip("abcd", "0001", strict=True))
    # How much one of the first part is, and how many of the second make one.
    scale, minutes = {"ft in": (12.0, 1.0), "1/2": (1.0, divisor)}.get(unit, (1.0, 60.0))
    number = scale * whole + small / minutes + smallest / 3600
    return -number if "sign" in part or part.get("side") in ("S", "W") else number


def singular_of(unit: str) -> str:
    """The word that a unit is for one, as "year" of "years"; "" if it has none."""
    return unit[:-1] if len(unit) > 3 and unit.isalpha() and unit.endswith("s") else ""


def without_flags(texts: pa.Array, *, are_years: bool = False) -> pa.Array:
    """Texts without what stands after their numbers as a flag, and years without parentheses."""
    bare = pc.replace_substring_regex(texts, _FLAGGED, "\\1")
    return pc.replace_substring_regex(bare, f"^\\(({YEAR})\\)$", "\\1") if are_years else bare


def _scaled(texts: pa.Array, style: Style) -> NDArray[np.float64]:
    """The numbers of texts of which some are thousands or millions, such as 19M and 201k."""
    factors = {**SCALES, "m": 1e6} if style.unit else SCALES  # £300m
    words = "|".join(map(re.escape, sorted(factors, key=len, reverse=True)))
    # The number, the word that scales it, and the unit behind.
    parts = pc.extract_regex(texts, f"^(?P<body>(?s:.*)[0-9.,])[{SPACES}]*(?P<word>{words})(?P<rest>[^0-9]*)$")
    body, word, rest = (pc.struct_field(parts, [i]) for i in range(3))
    bare = pc.if_else(parts.is_valid(), pc.binary_join_element_wise(body, rest, ""), texts)
    scales = pa.array([factors.get(name, 1.0) for name in word.to_pylist()], pa.float64()).to_numpy()
    return numbers(bare, style._replace(is_scaled=False)) * scales


def pattern_of(style: Style) -> str:
    """The pattern of a cell that holds a number; of the signs before and after a unit only one may be there."""
    point = re.escape(style.decimal)
    group = f"[{re.escape(GROUPS[style.thousands])}]" if style.thousands else ""
    sign = f"[{SIGNS}]"
    gap = f"[{SPACES}]*"
    # The digits, alone or in groups: of three, and of two as in India.
    whole_part = "[0-9]+"
    if group:
        whole_part = f"(?:[0-9]+|[1-9][0-9]{{0,2}}(?:{group}[0-9]{{3}})+)"
    if style.thousands == ",":
        whole_part = f"(?:{whole_part}|[1-9][0-9]?(?:,[0-9]{{2}})+,[0-9]{{3}})"  # 12,34,567
    digits = f"{whole_part}(?:{point}[0-9]*)?{EXPONENT}"
    body = f"(?:{digits}|{point}[0-9]+{EXPONENT}|(?i:inf|infinity))"
    # The unit on either side of the number, and a sign before or between them.
    if not style.unit:
        cells = [f"{sign}?{gap}{body}"]
        bare = [body]
    else:
        unit = "|".join(re.escape(text) for text in (style.unit, singular_of(style.unit)) if text)
        unit = f"(?:{unit})"
        inner = f"(?:{digits})" if style.unit[-1].isalpha() else body  # in "Rs.500" the point is not decimal
        bare = [f"{unit}{gap}{inner}", f"{body}{gap}{unit}"]
        zero = f"0+(?:{point}0+)?"
        cells = [*(f"{sign}?{gap}{form}" for form in (*bare, zero)), f"{unit}{gap}{sign}{gap}{inner}"]
    if style.has_parentheses:
        cells += [f"\\({gap}{form}{gap}\\)" for form in bare]
    return "|".join(cells)
