"""Cells of tables: numbers with as many digits as they deserve, and templates that put them into words.

number(0.12345, ".3f")                            # 0.123
number(Figure(value=-2.2063, se=0.0694))          # -2.206 ± 0.069: two digits of the error
cell(["{rate:.0f} ({error:.2f})"], row)           # "116 ± 7 (0.95 ± 0.02)", or "" where one of them is missing
cell(["{gp - linear:.3f}"], row)                  # the mean of paired differences ± its standard error
"""

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Entry", "Figure", "cell", "difference", "fields", "is_number", "number", "quantities_shown"]

FIELD = re.compile(r"\{(?P<name>\w+)(?: - (?P<less>\w+))?(?::(?P<spec>[^{}]*))?\}")
SPEC = re.compile(r",?(\.\d\d?)?[defg]?")
LARGEST_N = 1_000_000


@dataclass(frozen=True)
class Figure:
    """A number with what is known of it: one `value`, or the `values` of repetitions.

    :param value: the number, or a mean.
    :param se: its standard error, printed after ±.
    :param plus_minus: in its place, something else to print after ±, such as a standard deviation.
    :param n: how many repetitions `value` is the mean of.
    :param values: one number for each repetition, None where it is missing; mean, error and n are computed.
    :param format: how to print it where the template's format does not fit, such as ".2f".
    """

    value: float | None = None
    se: float | None = None
    plus_minus: float | None = None
    n: int | None = None
    values: tuple[float | None, ...] | None = None
    format: str | None = None

    def __post_init__(self) -> None:
        # Either one number with its error, or several from which both are computed.
        if (self.value is None) == (self.values is None):
            raise ValueError("must have either value or values.")
        if self.values is not None and not self.known:
            raise ValueError("must have a number among its values; leave it out if there is none.")
        if self.values is not None and (self.se, self.plus_minus, self.n) != (None, None, None):
            raise ValueError("has values, from which mean, error and n are computed; leave these out.")
        if self.se is not None and self.plus_minus is not None:
            raise ValueError("may have se or plus_minus, got both.")
        # What is printed of it: an error, a count and a format that can be.
        if min(self.se or 0, self.plus_minus or 0) < 0:
            raise ValueError(f"must have an error of at least 0, got {self.error}.")
        if self.n is not None and not 1 <= self.n <= LARGEST_N:
            raise ValueError(f"must have n from 1 to {LARGEST_N}, got {self.n}.")
        if self.format is not None:
            check_spec(self.format)

    @property
    def known(self) -> tuple[float, ...]:
        """The values that are not missing."""
        return tuple(value for value in self.values or () if value is not None)

    @property
    def mean(self) -> float:
        """The value, or the mean of the values."""
        return statistics.fmean(self.known) if self.value is None else self.value

    @property
    def error(self) -> float | None:
        """What is printed after ±; of values, the standard error of their mean: deviation with n - 1, by sqrt(n)."""
        if self.value is not None:
            return self.plus_minus if self.se is None else self.se
        return statistics.stdev(self.known) / math.sqrt(len(self.known)) if len(self.known) > 1 else None


Entry = str | int | float | Figure | tuple[str | int | float | Figure, ...]
"""What a row holds of a quantity: text, a number, a number with its error, or several of them."""


class Field(NamedTuple):
    """A part of a template: a quantity, or the difference to a second one, and the format of a number."""

    name: str
    less: str | None
    spec: str

    @property
    def names(self) -> set[str]:
        """The quantities that it needs."""
        return {self.name} | ({self.less} if self.less else set())


def fields(template: str) -> Iterator[Field]:
    """The quantities of a template.

    :raises ValueError: if a field is none, or has an unknown format.
    """
    if brace := re.search(r"[{}]", FIELD.sub("", template)):
        raise ValueError(f"the template {template!r} has a {brace[0]} that is part of no {{quantity:format}}.")
    for match in FIELD.finditer(template):
        check_spec(match["spec"] or "")
        yield Field(match["name"], match["less"], match["spec"] or "")


def check_spec(spec: str) -> None:
    """Refuse a format that is none of ours.

    :raises ValueError: if `spec` is no format such as ".3f", ",.0f" or ".2e".
    """
    if not SPEC.fullmatch(spec):
        raise ValueError(f"the format of a number must be one such as .3f, ,.0f, .2e or .4g, got {spec!r}.")


def cell(templates: Sequence[str], row: Mapping[str, Entry]) -> str:
    """The first template whose quantities the row has, filled in; "" if it has those of none.

    :raises ValueError: if a difference is of something else than numbers, or values do not pair.
    """
    # A template that lacks a quantity gives way to the next one.
    for template in templates:
        if all(field.names <= row.keys() for field in fields(template)):
            return FIELD.sub(lambda match: _filled(match, row), template)
    return ""


def quantities_shown(templates: Sequence[str], row: Mapping[str, Entry]) -> set[str]:
    """The quantities of the template that :func:`cell` takes."""
    for template in templates:
        names = {name for field in fields(template) for name in field.names}
        if names <= row.keys():
            return names
    return set()


def number(given: float | Figure, spec: str = "") -> str:
    """A number as text, with its error after ± if that is known.

    :param spec: format of Python for both; "": two significant digits of the error and the value with as many
        decimals, or six significant digits without an error.
    """
    # The format of the figure goes before that of the template.
    figure = given if isinstance(given, Figure) else Figure(value=given)
    spec = figure.format or spec
    error = figure.error
    if not spec and error is None and isinstance(figure.value, int):
        spec = "d"
    # Two significant digits of the error say how many decimals the value deserves.
    spec = spec or (f".{_decimals(error)}f" if error else ".6g")
    text = _text(figure.mean, spec)
    return text if error is None else f"{text} ± {_text(error, spec)}"


def difference(one: Entry, other: Entry) -> Figure:
    """The mean of paired differences with its standard error; without values to pair, the difference alone.

    :raises ValueError: if one of them is no number, or only one has values, or no two of these pair.
    """
    a, b = (Figure(value=e) if isinstance(e, int | float) else e for e in (one, other))
    if not isinstance(a, Figure) or not isinstance(b, Figure):
        raise ValueError(f"a difference must be one of numbers, got {one!r} and {other!r}.")
    if a.values is None or b.values is None:
        return Figure(value=a.mean - b.mean)
    # Paired by repetition, so that what they have in common cancels.
    pairs = zip(a.values, b.values, strict=True)
    return Figure(values=tuple(None if x is None or y is None else x - y for x, y in pairs))


def is_number(entry: Entry) -> bool:
    """Whether there is a number in it, which needs a unit."""
    return any(map(is_number, entry)) if isinstance(entry, tuple) else not isinstance(entry, str)


def _filled(match: re.Match[str], row: Mapping[str, Entry]) -> str:
    entry = row[match["name"]] if match["less"] is None else difference(row[match["name"]], row[match["less"]])
    parts = entry if isinstance(entry, tuple) else (entry,)
    return ", ".join(part if isinstance(part, str) else number(part, match["spec"] or "") for part in parts)


def _decimals(error: float) -> int:
    """Decimals that show two significant digits of `error` after rounding: 0.0996 becomes 0.10, not 0.100."""
    return max(0, 1 - math.floor(math.log10(float(f"{error:.1e}"))))


def _text(value: float, spec: str) -> str:
    text = format(round(value) if spec.endswith("d") else value, spec)
    # Exponents without plus and zeros in front; no minus before a rounded zero.
    text = re.sub(r"e([+-])0*(\d+)", lambda match: f"e{match[1].strip('+')}{match[2]}", text)
    return text if re.search(r"[1-9]", text) else text.lstrip("-")
