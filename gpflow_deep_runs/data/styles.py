"""Which style the numbers of a column are written in: unit, decimal sign, thousands; and where that cannot be known.

A cell such as `1,234` or `1.234` is two numbers. Cells that are only one decide for their column (`12,5`, `1,234.5`,
`1,234,567`), and columns that are decided may decide for the table.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Set
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data.cells import Contents, matches, shown
from gpflow_deep_runs.data.libraries import pa, pc
from gpflow_deep_runs.data.numerals import EXPONENT, GROUPS, SIGNS, SPACES, Style, group_pattern, numbers
from gpflow_deep_runs.data.units import CURRENCIES, SCALES, UNITS

__all__ = ["Found", "Shapes", "Sign", "decimal_of", "find_style", "is_code", "shapes_of", "style_of"]

Sign = Literal["", ".", ","]
"""A decimal sign; "" if it is not known."""

_PARTS = (
    f"^(?P<before>[^0-9.,]*)(?P<body>(?:[0-9.,][0-9.,'\u2019{SPACES}]*)?)"
    f"(?P<after>(?:[^0-9.,'\u2019{SPACES}](?s:.*))?)$"
)
_START = re.compile(f"(\\(?)[{SPACES}]*([{SIGNS}]?)[{SPACES}]*([^()0-9{SIGNS}]*?)[{SPACES}]*([{SIGNS}]?)[{SPACES}]*")
_END = re.compile(f"([eE][-+]?[0-9]+)?[{SPACES}]*([^()]*?)[{SPACES}]*(\\)?)")

_BOTH = "\x1f"
_NEUTRAL = 1
_POINT = 2
_COMMA = 3
_EITHER_POINT = 4
_EITHER_COMMA = 5


class Shapes(NamedTuple):
    """What the texts of a column are made of, if they may be numbers; arrays have one value a text.

    :ivar is_number: the text may be a number in some style, with any unit.
    :ivar units: the texts before or after the numbers; "" for none, both with a sign of our own between them.
    :ivar unit: of each text, the number of its unit.
    :ivar is_known: the unit is one that needs no flag, or there is none.
    :ivar body: the number without sign and unit; null if there is none.
    :ivar sign: what the body says of the decimal sign; 0 if there is no number.
    :ivar is_open: it stands in parentheses.
    """

    is_number: NDArray[np.bool_]
    units: list[str]
    unit: NDArray[np.int64]
    is_known: NDArray[np.bool_]
    body: pa.Array
    sign: NDArray[np.int8]
    is_open: NDArray[np.bool_]


class Found(NamedTuple):
    """What the numbers of a column tell of their style.

    :ivar is_number: which texts are numbers.
    :ivar unit: of all of them.
    :ivar decimal: the decimal sign, if one of them can be read in one way only.
    :ivar doubt: the sign that is decimal or between thousands in cells such as `1,234`, if none of them tells.
    :ivar is_grouped: no program writes these cells as decimals: 950 has no decimals, and 1,050 has a zero at its end.
    :ivar has_parentheses: some numbers stand in parentheses.
    :ivar is_scaled: some are thousands or millions, such as 19M and 201k.
    """

    is_number: NDArray[np.bool_]
    unit: str
    decimal: Sign
    doubt: Sign
    is_grouped: bool
    has_parentheses: bool
    is_scaled: bool = False


def shapes_of(texts: pa.Array) -> Shapes:
    """Take the texts of a column apart."""
    # What stands before the digits, the digits, and what stands after them
    parts = pc.extract_regex(texts, pattern=_PARTS)
    before, body, after = (pc.struct_field(parts, [i]) for i in range(3))
    body = pc.utf8_rtrim(body, SPACES)
    is_point = matches(before, "(?s:.*)\\pL") & matches(body, f"\\.[{SPACES}]*[0-9](?s:.*)")  # of "Rs.500"
    if is_point.any():
        body = pc.if_else(pa.array(is_point), pc.utf8_ltrim(body, f".{SPACES}"), body)
        before = pc.if_else(pa.array(is_point), pc.binary_join_element_wise(before, ".", ""), before)
    # Each different edge is taken apart once
    starts, start = _coded(before, _start)
    ends, end = _coded(after, _end)
    is_bare = np.array([not edge.infinity for edge in starts])[start] == matches(body, "(?s:.+)")
    infinity = pa.array([edge.infinity for edge in starts], pa.string()).take(pa.array(start))
    exponent = pa.array([edge.exponent for edge in ends], pa.string()).take(pa.array(end))
    body = pc.binary_join_element_wise(infinity, body, exponent, "")
    sign = _signs(body)
    is_open, is_closed = (np.array([e.is_open for e in edges])[at] for edges, at in ((starts, start), (ends, end)))
    is_good = np.array([edge.is_good for edge in starts])[start] & np.array([edge.is_good for edge in ends])[end]
    # The units of both edges by their numbers
    units = list(dict.fromkeys(["", *(edge.unit for edge in (*starts, *ends))]))
    code = {unit: number for number, unit in enumerate(units)}
    front, back = (np.array([code[e.unit] for e in edges])[at] for edges, at in ((starts, start), (ends, end)))
    # A number has digits or the word infinity, edges that fit, and parentheses on both sides or on none
    is_number = (sign > 0) & is_bare & is_good & (is_open == is_closed)
    is_money = np.array([not unit or _is_money(unit) for unit in units])
    is_unit = is_money | np.array([unit in UNITS for unit in units])
    is_known = is_number & is_money[front] & is_unit[back]
    # The units of both edges together are the unit of the text
    pairs, unit = np.unique(front * len(units) + back, return_inverse=True)
    names = [_BOTH.join(filter(None, (units[pair // len(units)], units[pair % len(units)]))) for pair in pairs]
    return Shapes(is_number, names, unit, is_known, body, sign, is_open)


def find_style(contents: Contents, shapes: Shapes, *, any_unit: bool = False) -> Found | None:
    """What the numbers of a column tell of their style, or None if at most half of its values are numbers.

    :param any_unit: numbers may have any unit, not just a known one.
    :raises ValueError: numbers of different units, or with decimal points and decimal commas.
    """
    is_number = contents.is_value & shapes.is_number & (shapes.is_known | any_unit)
    if not _are_most(contents, is_number):
        return None
    # Zeros may lack the unit that the others have
    is_zero = matches(shapes.body, "0+(?:[.,]0+)?") & (shapes.unit == _index(shapes.units, ""))
    used = is_number & ~is_zero if (is_number & ~is_zero).any() else is_number
    # Letters as in 5V and 5W are codes, and no units
    if len(set(shapes.unit[used])) > 1 and _are_codes(shapes, used):
        is_number &= shapes.unit == _index(shapes.units, "")
        used = is_number
        if not _are_most(contents, is_number):
            return None
    # One unit for all, apart from thousands and millions
    base = _base(shapes, used)
    if base is None:
        _check_units(contents, shapes, used)
    has_parentheses = bool(shapes.is_open[is_number].any())
    if shapes.is_open[is_number].all():  # (1), (2), ...: no sign, but a way to number things
        return None
    unit = shapes.units[shapes.unit[np.flatnonzero(used)[0]]] if base is None else base
    return _found(contents, shapes, is_number, unit, has_parentheses)._replace(is_scaled=base is not None)


def _base(shapes: Shapes, used: NDArray[np.bool_]) -> str | None:
    """The unit of numbers of which some are thousands or millions: "€" of "€110.5M"; None if they are not."""
    units = {shapes.units[unit] for unit in set(shapes.unit[used])}
    parts = {unit: _without_scale(unit) for unit in units}
    if len(units) < 2 and not any(_BOTH in unit for unit in units):
        return None
    has_scale = any(parts[unit] != unit for unit in units)
    bases = set(parts.values())
    return bases.pop() if has_scale and len(bases) == 1 else None


def _without_scale(unit: str) -> str:
    """A unit without the word that says thousands or millions, as "EUR" of "Mio EUR"."""
    before, _, last = unit.rpartition(_BOTH)
    if last in SCALES or (last == "m" and before):  # £300m
        return before
    for word in SCALES:
        rest = last.removeprefix(word).strip()
        if last.startswith(word) and not before and _is_money(rest):
            return rest
    return unit


def _found(contents: Contents, shapes: Shapes, is_number: NDArray[np.bool_], unit: str, has_parentheses: bool) -> Found:
    # Decimal signs that numbers show for sure, and those of numbers with two readings
    signs = {kind: is_number & (shapes.sign == kind) for kind in (_POINT, _COMMA, _EITHER_POINT, _EITHER_COMMA)}
    has = {kind: bool(mask.any()) for kind, mask in signs.items()}
    for one, other in ((_POINT, _COMMA), (_EITHER_POINT, _EITHER_COMMA)):
        if has[one] and has[other] and (one == _POINT or not (has[_POINT] or has[_COMMA])):
            raise ValueError(
                f"{contents.what} has decimal points and decimal commas, {contents.example(signs[one])} and "
                f"{contents.example(signs[other])} (from 0); write them alike, or give --categorical={contents.name}."
            )
    decimal: Sign = "." if has[_POINT] else "," if has[_COMMA] else ""
    doubt: Sign = "" if decimal else "." if has[_EITHER_POINT] else "," if has[_EITHER_COMMA] else ""
    # Numbers without a sign beside some with a zero at the end: these are thousands
    is_whole = is_number & (shapes.sign == _NEUTRAL) & ~matches(shapes.body, "0+")
    is_long = (signs[_EITHER_POINT] | signs[_EITHER_COMMA]) & matches(shapes.body, "(?s:.*)0")
    is_grouped = bool(doubt and is_whole.any() and is_long.any())
    return Found(is_number, unit, decimal, doubt, is_grouped, has_parentheses)


def decimal_of(contents: Contents, found: Found, table: Set[str], delimiter: str) -> Sign:
    """The decimal sign of a column.

    :param table: the decimal signs that other columns of the table have for sure.
    :param delimiter: what stands between the columns; commas leave the comma for thousands, semicolons do not.
    :raises ValueError: with both readings, if nothing tells.
    """
    if not found.doubt:
        return found.decimal or "."
    # The other columns, or else the delimiter
    chosen: Sign = ""
    if len(table) == 1:
        chosen = "." if "." in table else ","
    elif not table and found.doubt == ",":
        chosen = "." if found.is_grouped or delimiter == "," else ""
    elif not table:
        chosen = "." if delimiter != ";" else "," if found.is_grouped else ""
    # But not against the column itself
    if chosen == found.doubt and found.is_grouped:
        chosen = ""
    if chosen == "," and found.doubt == "." and delimiter == ",":
        chosen = ""
    if chosen:
        return chosen
    # Nothing tells, so the user has to
    shapes = shapes_of(contents.cells.texts)
    row, text, _ = contents.cells.first(found.is_number & np.isin(shapes.sign, (_EITHER_POINT, _EITHER_COMMA)))
    one, other = (numbers(pa.array([text]), style_of(contents, shapes, found, sign))[0] for sign in (".", ","))
    raise ValueError(
        f"{contents.what} has numbers such as {shown(text)} in row {row} (from 0), which may be {one:.15g} or "
        f"{other:.15g}; give --numeric={contents.name}:point for the first, --numeric={contents.name}:comma for the "
        "second reading."
    )


def style_of(contents: Contents, shapes: Shapes, found: Found, decimal: Sign) -> Style:
    """The style of the numbers of a column with this decimal sign."""
    # The sign between thousands that most of the numbers have
    used = [
        (int(contents.counts[mask].sum()), group)
        for group in GROUPS
        if group and group != decimal
        for mask in [found.is_number & matches(shapes.body, f"(?s:.*)[0-9]{group_pattern(group)}[0-9]{{3}}(?s:.*)")]
    ]
    count, thousands = max(used, key=lambda pair: pair[0])
    return Style(decimal or ".", thousands if count else "", found.unit, found.has_parentheses, found.is_scaled)


def is_code(contents: Contents, found: Found) -> bool:
    """Whether numbers are digits alone of which some begin with a zero, such as 01234."""
    texts = contents.cells.texts.filter(pa.array(found.is_number))
    return bool(matches(texts, "[0-9]+").all() and matches(texts, "0[0-9]+").any())


class _Edge(NamedTuple):
    """What stands before or after the digits of a cell."""

    is_good: bool = False
    is_open: bool = False
    unit: str = ""
    exponent: str = ""
    infinity: str = ""


def _start(text: str) -> _Edge:
    match = _START.fullmatch(text)
    if match is None or sum(map(bool, match.group(1, 2, 4))) > 1:
        return _Edge()
    is_infinity = match[3].casefold() in ("inf", "infinity")
    return _Edge(True, bool(match[1]), "" if is_infinity else match[3], infinity=match[3] if is_infinity else "")


def _end(text: str) -> _Edge:
    match = _END.fullmatch(text)
    if match is None or not (match[2] == "" or match[2][0].isalpha() or match[2][0] in "%‰°º+" or _is_money(match[2])):
        return _Edge()
    return _Edge(True, bool(match[3]), match[2], match[1] or "")


def _is_money(unit: str) -> bool:
    """Whether a unit is a currency: a known word, or a sign after at most three letters."""
    is_sign = unit[-1:] != "" and unicodedata.category(unit[-1]) == "Sc"
    return unit in CURRENCIES or (is_sign and len(unit) < 5 and (unit[:-1].isalpha() or len(unit) == 1))


def _coded(texts: pa.Array, edge: Callable[[str], _Edge]) -> tuple[list[_Edge], NDArray[np.int64]]:
    """What the different texts are, and which of them each text is."""
    encoded = texts.dictionary_encode()
    return [edge(text) for text in encoded.dictionary.to_pylist()], encoded.indices.to_numpy().astype(np.int64)


def _signs(body: pa.Array) -> NDArray[np.int8]:
    """What each number says of the decimal sign."""
    signs = np.zeros(len(body), dtype=np.int8)
    rest = np.arange(len(body))
    for kind, pattern in _CLASSES:
        if len(rest):
            is_such = matches(body.take(pa.array(rest)), pattern)
            signs[rest[is_such]] = kind
            rest = rest[~is_such]
    return signs


def _decimals(decimal: str, comma: str) -> str:
    """Numbers that can be read in one way only, with this decimal sign and this one between thousands."""
    return (
        f"(?:[0-9]+{decimal}[0-9]*|{decimal}[0-9]+){EXPONENT}|{_HEAD}(?:{comma}[0-9]{{3}})+{decimal}[0-9]*"
        f"|{_HEAD}(?:{comma}[0-9]{{3}}){{2,}}|{_HEAD}(?:{_GAP}[0-9]{{3}})+{decimal}[0-9]*"
    )


_HEAD = "[1-9][0-9]{0,2}"
_GAP = f"(?:{group_pattern(' ')}|{group_pattern(chr(39))})"
_CLASSES = (
    (_EITHER_POINT, f"{_HEAD}\\.[0-9]{{3}}"),
    (_EITHER_COMMA, f"{_HEAD},[0-9]{{3}}"),
    (_NEUTRAL, f"[0-9]+{EXPONENT}|(?i:inf(?:inity)?)|{_HEAD}(?:{_GAP}[0-9]{{3}})+"),
    (_POINT, f"{_decimals('[.]', ',')}|[1-9][0-9]?(?:,[0-9]{{2}})+,[0-9]{{3}}(?:[.][0-9]*)?"),  # 12,34,567
    (_COMMA, _decimals(",", "[.]")),
)


def _check_units(contents: Contents, shapes: Shapes, used: NDArray[np.bool_]) -> None:
    units = list(dict.fromkeys(shapes.unit[used]))
    if any(_BOTH in shapes.units[unit] for unit in units):
        is_double = used & np.isin(shapes.unit, [unit for unit in units if _BOTH in shapes.units[unit]])
        raise ValueError(
            f"{contents.what} has numbers with two units, such as {contents.example(is_double)} (from 0); write them "
            f"as plain numbers, or give --ignore={contents.name} or --categorical={contents.name}."
        )
    if len(units) < 2:
        return
    shown = [f"{contents.example(used & (shapes.unit == unit))}" for unit in units[:2]]
    raise ValueError(
        f"{contents.what} has numbers of {len(units)} different units, such as {shown[0]} and {shown[1]} (from 0); "
        f"convert them to one unit, or give --ignore={contents.name} or --categorical={contents.name}."
    )


def _are_most(contents: Contents, chosen: NDArray[np.bool_]) -> bool:
    return contents.share(chosen) > 0.5


def _are_codes(shapes: Shapes, used: NDArray[np.bool_]) -> bool:
    """Whether numbers have single capitals for units and no fractions, such as 5V and 5W: more likely codes."""
    units = {shapes.units[unit] for unit in set(shapes.unit[used])}
    is_whole = ~matches(shapes.body, "(?s:.*)[.,](?s:.*)")[used].any()
    are_capitals = all(not unit or (len(unit) == 1 and unit.isupper()) for unit in units)
    return bool(is_whole and are_capitals and not units <= {"", "K", "M"})


def _index(units: list[str], unit: str) -> int:
    return units.index(unit) if unit in units else -2
