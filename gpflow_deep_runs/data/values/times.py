"""Dates and times as text: `strptime` formats that whole columns are read by, whatever the locale.

    read_dates(pa.array(["31.12.2020 23:59"]), "%d.%m.%Y %H:%M")                           # days since 1970-01-01
    read_times(pa.array(["7:05 PM"]), "%I:%M %p")                                          # [19.0833...], hours

Beside the directives of `strptime` there are %q and %h, a quarter and a half of a year, and %t, a duration such as 1h
30m or PT1H30M; %V, a week of ISO 8601, goes with %Y and is its Monday. Months and days have English names, short or
whole, and 3rd is a day, too.
Seconds may have a fraction. Dates are checked: there is no 31st of February, and "Mon" before a Tuesday does not fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data.files.libraries import pa, pc
from gpflow_deep_runs.data.values.cells import truths_of
from gpflow_deep_runs.data.values.numerals import SPACES

__all__ = ["ISO_FORMATS", "check_format", "full_pattern", "is_time_format", "iso_format", "plain_dates", "read_dates"]
__all__ += ["read_times"]

Part = Callable[[str, int], NDArray[np.int64]]

ISO_FORMATS = tuple(
    f"%Y-%m-%d{time}"
    for time in ("", *(f"{t}{clock}{zone}" for clock in ("%H:%M", "%H:%M:%S") for t in " T" for zone in ("", "%z")))
)
"""Formats of dates as programs write them."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTH = (
    "(?i:january|february|march|april|june|july|august|september|october|november|december|may|sept?\\.?|"
    "(?:jan|feb|mar|apr|jun|jul|aug|oct|nov|dec)\\.?)"
)
_DAY = "(?i:(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:mon|tue|wed|thu|fri|sat|sun)\\.?)"
_NAMES = {"b": _MONTHS, "a": _DAYS, "p": ("a", "p")}
_TWO = "[0-9]{1,2}"
_AHEAD = (
    "UTC+00 utc+00 GMT+00 gmt+00 EST-05 EDT-04 CST-06 CDT-05 MST-07 MDT-06 PST-08 PDT-07 "
    "WET+00 WEST+01 BST+01 CET+01 CEST+02 EET+02 EEST+03"
)
_WORDS_OF_ZONES = {zone[:-3]: zone[-3:] for zone in _AHEAD.split()}
"""Zones of North America, as RFC 5322 has them, and of Europe."""

_DIRECTIVES = {
    "Y": "(?P<Y>[0-9]{4})",
    "y": "(?P<y>[0-9]{2})",
    "m": f"(?P<m>{_TWO})",
    "b": f"(?P<b>{_MONTH})",
    "B": f"(?P<b>{_MONTH})",
    "q": "(?P<q>[1-4])",
    "h": "(?P<h>[12])",
    "d": f"(?P<d>{_TWO})(?:st|nd|rd|th)?",
    "V": f"(?P<V>{_TWO})",
    "a": f"(?P<a>{_DAY})",
    "A": f"(?P<a>{_DAY})",
    "H": "(?P<H>[0-9]{1,3})",
    "I": f"(?P<I>{_TWO})",
    "p": "(?P<p>(?i:[ap](?:m|\\.m\\.)?))",
    "M": "(?P<M>[0-9]{2})",
    "S": "(?P<S>[0-9]{2})(?:[.,](?P<f>[0-9]{1,9}))?",
    "f": "(?P<f>[0-9]{1,9})",
    "z": "(?P<z>[Zz]|[-+][0-9]{2}(?::?[0-9]{2})?|[-+][0-9](?::[0-9]{2})?)",
    "t": (
        "(?i:P?(?:(?P<D>[0-9]+) ?d(?:ays?)?[ ,]*)?T?(?:(?P<H>[0-9]+) ?(?:h(?:(?:ou)?rs?)?|std|stunden?)\\.?[ ,]*)?"
        "(?:(?P<M>[0-9]+) ?m(?:in(?:ute)?[ns]?)?\\.?[ ,]*)?(?:(?P<S>[0-9]+) ?s(?:e[ck](?:ond)?s?)?\\.?)?)"
    ),
    "Z": f"(?P<z>{'|'.join(_WORDS_OF_ZONES)})",
}
_FIXED = {"m": "(?P<m>[0-9]{2})", "d": "(?P<d>[0-9]{2})", "H": "(?P<H>[0-9]{2})", "I": "(?P<I>[0-9]{2})"}
_LENGTHS = {form: len(form) + 2 for form in ISO_FORMATS if "%z" not in form}
"""How many characters texts in an ISO format have: %Y are four digits, others two."""

_MANY = 1000
_FIRST_DAY = -719162  # of the year 1
_PIECE = re.compile(r"%(.)|(\s+)|([^%\s]+)|(%)", re.DOTALL)


def check_format(text: str) -> str:
    """What is wrong with a `strptime` format of dates, in words; "" if nothing is."""
    try:
        directives = _directives(text)
    except ValueError as error:
        return str(error)
    # Times need no date; dates need a year, and days a month.
    if is_time_format(text):
        return ""
    if not directives & {"Y", "y"}:
        return "it has no year, %Y or %y"
    if not directives & {"m", "b"} and "d" in directives:
        return "it has a day but no month, %m or %b"
    return ""


def is_time_format(text: str) -> bool:
    """Whether a `strptime` format reads times of the day, or durations, without a date."""
    try:
        directives = _directives(text)
    except ValueError:
        return False
    return bool(directives) and directives <= {"D", "H", "I", "p", "M", "S", "f"}


@lru_cache(maxsize=256)
def full_pattern(text: str) -> str:
    """The pattern (for `re` and RE2) of what a `strptime` format reads, with a group for each directive.

    :raises ValueError: if a directive is unknown or occurs twice, or %I or %p lacks the other one.
    """
    pieces = [match.groups() for match in _PIECE.finditer(text)]
    directives = [piece[0] for piece in pieces]
    pattern = []
    # Each directive is a group; beside another one it has a fixed number of digits.
    for i, (directive, space, literal, percent) in enumerate(pieces):
        following = directives[i + 1] if i + 1 < len(pieces) else None
        if percent or (directive and directive not in _DIRECTIVES and directive != "%"):
            raise ValueError(f"it has %{directive or ''}, known are {' '.join(f'%{d}' for d in _DIRECTIVES)}")
        if directive == "%":
            pattern.append("%")
        elif directive:
            is_beside = following in _DIRECTIVES or (i > 0 and directives[i - 1] in _DIRECTIVES)
            pattern.append(_FIXED.get(directive, _DIRECTIVES[directive]) if is_beside else _DIRECTIVES[directive])
            if directive == "S" and "f" in directives:
                pattern[-1] = "(?P<S>[0-9]{2})"
            if directive == "M" and not {"H", "I"} & set(directives):
                pattern[-1] = "(?P<M>[0-9]{1,3})"
        elif space:
            pattern.append(f"[{SPACES}]{'*' if following == 'p' else '+'}")
        else:
            pattern.append(re.escape(literal))
    # Which directives go together.
    group_names = [{"B": "b", "A": "a"}.get(d, d) for d in directives if d and d != "%"]
    if len(set(group_names)) < len(group_names):
        raise ValueError("a directive occurs twice")
    if ("I" in group_names) != ("p" in group_names) or {"H", "I"} <= set(group_names):
        raise ValueError("%I needs %p, and %p needs %I, and neither goes with %H")
    return "".join(pattern)


def read_dates(texts: pa.Array, date_format: str, *, is_local: bool = False) -> NDArray[np.float64]:
    """Days since 1970-01-01 of texts, with the fraction of the day, in UTC if they have a zone; NaN if one is no date.

    Two-digit years are those from 1969 to 2068. Without a day it is the first of the month, without a month January.

    :param is_local: leave zones out of account: days and hours of the clock on the wall.
    """
    # Moments as programs write them are read in a tenth of the time.
    length = _LENGTHS.get(date_format, 0)
    if length and len(texts) > _MANY:
        is_long = pc.fill_null(pc.equal(pc.binary_length(texts), length), False)
        iso = plain_dates(texts.filter(is_long), date_format=date_format)
        if iso is not None:
            days = np.full(len(texts), np.nan)
            is_iso = truths_of(is_long)
            days[is_iso] = iso[1]
            days[~is_iso] = read_dates(texts.filter(pc.invert(is_long)), date_format)
            return days
    part, is_match = _parts(texts, date_format)
    # Year, month and day as numbers, as short years and as names.
    year = part("Y", 0)
    short = part("y", -1)
    year = np.where(short >= 0, short + np.where(short < 69, 2000, 1900), year)
    month = part("m", 1)
    named = part("b", -1)
    month = np.where(named >= 0, named + 1, month)
    quarter = part("q", -1)
    half = part("h", -1)
    month = np.where(quarter > 0, 3 * quarter - 2, np.where(half > 0, 6 * half - 5, month))
    day = part("d", 1)
    is_good = is_match & (year > 0) & (month >= 1) & (month <= 12) & (day >= 1)
    # Days from 1970 to the first of the month, and to that of the next month.
    first = np.where(is_good, (year - 1970) * 12 + month - 1, 0).astype("datetime64[M]")
    start = first.astype("datetime64[D]").astype(np.int64)
    end = (first + 1).astype("datetime64[D]").astype(np.int64)
    days = start + day - 1
    # The first week of a year is that of the fourth of January.
    if "%V" in date_format:
        next_year = (first + 12).astype("datetime64[D]").astype(np.int64)
        monday, end = (january + 3 - (january + 6) % 7 for january in (start, next_year))
        week = part("V", 0)
        days = monday + 7 * (week - 1)
        is_good &= week > 0
    # A weekday must be the right one: 1970-01-01 was a Thursday.
    weekday = part("a", -1)
    is_good &= (days < end) & ((weekday < 0) | (weekday == (days + 3) % 7))
    # The time of the day, and by how many minutes its zone is ahead of UTC.
    seconds, is_time = _seconds(part)
    ahead = part("z", 0)
    is_good &= is_time & (np.abs(ahead) < 24 * 60) & (seconds < 86400)
    return np.where(is_good, days + (seconds - (0 if is_local else 60 * ahead)) / 86400, np.nan)


def plain_dates(
    values: pa.ChunkedArray | pa.Array, missing: Sequence[str] = (), *, date_format: str = ""
) -> tuple[str, NDArray[np.float64]] | None:
    """The ISO format and the days of texts that all are moments in it, or missing; None if one is neither.

    :param missing: texts that stand for a missing value.
    :param date_format: the only format that will do; "" for any without a zone.
    """
    lengths = pc.unique(pc.drop_null(pc.binary_length(values)))
    if len(lengths) > 1 and missing:
        is_missing = pc.is_in(pc.utf8_trim_whitespace(values), value_set=pa.array(missing, values.type))
        values = pc.if_else(is_missing, pa.scalar(None, values.type), values)
        lengths = pc.unique(pc.drop_null(pc.binary_length(values)))
    # One length and one sign before the time of the day tell the format.
    signs = pc.unique(pc.drop_null(pc.utf8_slice_codeunits(values, 10, 11))).to_pylist() if len(lengths) == 1 else []
    forms = [form for form, length in _LENGTHS.items() if [length] == lengths.to_pylist() and [form[8:9]] == signs]
    if not forms or date_format not in ("", forms[0]):
        return None
    try:
        moments = pc.cast(values, pa.timestamp("s"))
    except pa.ArrowInvalid:
        return None
    seconds = np.asarray(moments.cast(pa.int64()).to_numpy(), np.float64)
    days = np.floor(seconds / 86400)
    return None if (days < _FIRST_DAY).any() else (forms[0], days + (seconds - 86400 * days) / 86400)


def read_times(texts: pa.Array, time_format: str) -> NDArray[np.float64]:
    """Hours of texts, which are times of the day or durations; NaN where a text is none."""
    if time_format == "%H%M":  # of numbers, 5 past 9 is 905
        texts = pc.utf8_lpad(texts, 4, "0")
    part, is_match = _parts(texts, time_format)
    seconds, is_time = _seconds(part)
    is_match &= truths_of(pc.match_substring_regex(texts, "[0-9]"))
    return np.where(is_match & is_time, seconds / 3600, np.nan)


def _directives(text: str) -> set[str]:
    return set(re.findall(r"\(\?P<(\w)>", full_pattern(text)))


def _parts(texts: pa.Array, text_format: str) -> tuple[Part, NDArray[np.bool_]]:
    """A function of a directive and a default that gives the numbers of the texts, and which texts fit the format."""
    groups = pc.extract_regex(texts, pattern=f"^(?:{full_pattern(text_format)})$")
    names = [groups.type.field(i).name for i in range(groups.type.num_fields)]

    def part(name: str, default: int) -> NDArray[np.int64]:
        if name not in names:
            return np.full(len(texts), default, dtype=np.int64)
        piece = pc.struct_field(groups, [names.index(name)])
        # Words become their places, fractions nanoseconds and zones minutes.
        if name in _NAMES:
            start = pc.utf8_slice_codeunits(pc.utf8_lower(piece), 0, len(_NAMES[name][0]))
            piece = pc.index_in(start, value_set=pa.array(_NAMES[name], start.type))
        elif name == "f":
            piece = pc.utf8_rpad(piece, 9, "0")  # nanoseconds
        elif name == "z":
            piece = _minutes(piece)
        elif "%t" in text_format:  # which may lack parts
            piece = pc.if_else(pc.equal(piece, ""), pa.scalar(None, piece.type), piece)
        return np.asarray(pc.fill_null(pc.cast(piece, pa.int64()), default).to_numpy(zero_copy_only=False))

    return part, truths_of(groups.is_valid())


def _seconds(part: Part) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Seconds since midnight, or of a duration, and where they are possible."""
    half = part("p", -1)
    twelve = part("I", 12)
    hour = part("H", 0)
    minute = part("M", 0)
    second = part("S", 0)
    is_good = (twelve >= 1) & (twelve <= 12) & (second < 60)
    # Minutes without hours may be more than 59.
    if (part("H", -1) >= 0).any() or (half >= 0).any():
        is_good &= minute < 60
    hour = np.where(half >= 0, twelve % 12 + 12 * half, hour)
    return (part("D", 0) * 86400 + hour * 3600 + minute * 60 + second) + part("f", 0) / 1e9, is_good


def _minutes(zones: pa.Array) -> pa.Array:
    """Minutes of zones such as "Z", "+02", "+0230", "-02:30" and "EST"."""
    # Names of zones become their hours.
    numbers = pc.index_in(zones, value_set=pa.array(list(_WORDS_OF_ZONES), zones.type))
    zones = pc.coalesce(pc.take(pa.array(list(_WORDS_OF_ZONES.values()), zones.type), numbers), zones)
    # Two digits of hours, two of minutes.
    digits = pc.replace_substring_regex(zones, "^[-+]([0-9])(:|$)", "0\\1")  # of +2
    digits = pc.utf8_rpad(pc.replace_substring_regex(digits, "[^0-9]", ""), 4, "0")
    hours = pc.cast(pc.utf8_slice_codeunits(digits, 0, 2), pa.int64())
    minutes = pc.cast(pc.utf8_slice_codeunits(digits, 2, 4), pa.int64())
    total = pc.add(pc.multiply(hours, 60), minutes)
    return pc.if_else(pc.starts_with(zones, "-"), pc.negate(total), total)


def iso_format(texts: pa.Array, *, has_zone: bool | None = None) -> str:
    """The ISO 8601 format that reads all of some texts; plain dates if none does.

    :param has_zone: take those with a zone alone, or those without; None for all.
    """
    forms = [form for form in ISO_FORMATS if has_zone is None or ("%z" in form) == has_zone]
    return next((form for form in forms if not np.isnan(read_dates(texts, form)).any()), ISO_FORMATS[0])
