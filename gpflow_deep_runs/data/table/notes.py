"""What has to be known of the reading of a column, in a few words: examples, markers of missing values, odd levels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data.files.libraries import pa, pc
from gpflow_deep_runs.data.table.doubts import TOTAL_WORD
from gpflow_deep_runs.data.values.cells import MARKERS, Contents, cells_of, is_missing, matches, shown
from gpflow_deep_runs.data.values.numerals import Style, numbers
from gpflow_deep_runs.data.values.times import ISO_FORMATS, read_dates

__all__ = ["of_date", "of_levels", "of_markers", "of_numbers", "of_time", "of_values", "of_zone"]

_SHOWN = 3
_EXAMPLES = 100
_EXACT = 2.0**53
_FIRST_DAY = 19000101
_LAST_DAY = 20991231
_FIRST_SHORT_DAY = 10_01_01
_LAST_SHORT_DAY = 99_12_31
_MIN_DAYS = 20


def of_numbers(contents: Contents, style: Style, found: NDArray[np.float64]) -> str:
    """Of numbers as text: how one of them is read, what stands for a missing value, and digits that are lost."""
    # Texts that are not written as a program writes their numbers; the best example has all the signs.
    is_odd = contents.is_value & ~np.isnan(found) & (numbers(contents.cells.texts, Style()) != found)
    odd = np.flatnonzero(is_odd)[:_EXAMPLES]
    parts = []
    if len(odd):
        texts = contents.cells.texts.take(pa.array(odd)).to_pylist()
        values = found[odd]
        best = max(range(len(texts)), key=lambda i: (style.thousands in texts[i], style.decimal in texts[i], -i))
        parts.append(f"{shown(' '.join(texts[best].split()))} is {values[best]:.15g}")
    return "; ".join([*parts, *filter(None, [of_values(contents.name, found)]), *of_markers(contents)])


def of_date(contents: Contents, form: str, zone: str = "") -> str:
    """Of dates: how one of them is read, unless they are written as programs write them."""
    _, text, _ = contents.cells.first(contents.is_value)
    # Dates as programs write them need no example.
    parts = []
    if form not in ISO_FORMATS or "%z" in form:
        days = float(read_dates(pa.array([text]), form, is_local=zone == "local")[0])
        moment = np.datetime64(round(days * 86400), "s").item() if not np.isnan(days) else "no date"
        has_time = any(clock in form for clock in ("%H", "%I"))
        parts.append(f"{shown(text)} is {f'{moment}' if has_time else f'{moment}'[:10]}{of_zone(contents.name, zone)}")
    if "%y" in form:
        parts.append("years of two digits are 1969 to 2068")
    return "; ".join([*parts, *of_markers(contents)])


def of_zone(name: str, zone: str) -> str:
    """Of moments with a time zone: which clock they are read by; "" without a zone."""
    return {"": "", "UTC": f" UTC (--dates={name}:local keeps the local clock)", "local": " by the local clock"}[zone]


def of_time(contents: Contents, found: NDArray[np.float64]) -> str:
    """Of times: how one of them is read, and that some are no times of the day."""
    row, text, _ = contents.cells.first(contents.is_value & ~np.isnan(found))
    value = contents.cells.spread(found, np.nan)[row]
    parts = [f"{shown(text)} is {value:.4g} hours"]
    if np.nanmax(found[contents.is_value]) > 24:
        parts.append("durations, as some are longer than a day")
    return "; ".join([*parts, *of_markers(contents)])


def of_levels(values: pa.ChunkedArray, na_values: Sequence[str]) -> str:
    """Of text: levels that stand for a missing value elsewhere, differ by case, blanks or points, or sum up others."""
    cells = cells_of(values)
    keep = ~is_missing(cells.texts, na_values, markers=False)
    texts = pc.unique(cells.texts.filter(pa.array(keep)))
    parts = []
    # Levels that stand for a missing value in other columns.
    marked = texts.filter(pc.is_in(texts, value_set=pa.array(MARKERS, texts.type))).to_pylist()
    if marked:
        are = "is a level" if len(marked) == 1 else "are levels"
        parts.append(f"{_some(marked)} {are} (--na_values={marked[0]} makes it missing)")
    # Levels that differ by case, blanks or points alone.
    lower = pc.utf8_normalize(pc.utf8_lower(texts), "NFKC")
    lower = pc.replace_substring_regex(lower, "[\\s.,;:_-]+", "")
    counts = pc.value_counts(lower)
    twice = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    if len(twice):
        alike = texts.filter(pc.is_in(lower, value_set=twice[:1])).to_pylist()
        parts.append(f"{_some(alike)} are different levels")
    if sums := texts.filter(pa.array(matches(texts, TOTAL_WORD))).to_pylist():
        parts.append(f"{_some(sums)} may sum up other rows")
    return "; ".join(parts)


def of_markers(contents: Contents) -> list[str]:
    """Texts that stand for a missing value, except those that always do."""
    texts = contents.cells.texts
    is_marker = ~contents.is_value & is_missing(texts, (), markers=True) & ~is_missing(texts, (), markers=False)
    examples = [
        f"{shown(text)} is missing ({contents.counts[number]})"
        for number, text in zip(np.flatnonzero(is_marker), texts.filter(pa.array(is_marker)).to_pylist(), strict=True)
    ]
    return examples[:_SHOWN]


def of_values(name: str, found: NDArray[np.float64]) -> str:
    """Of numbers: whole ones that lose digits in float64, and those such as 20201231 that all could be dates."""
    # A few values rule out most columns.
    some = found[:_EXAMPLES][np.isfinite(found[:_EXAMPLES])]
    if (some != np.round(some)).any():
        return ""
    finite = found[np.isfinite(found)]
    low = finite.min(initial=np.inf)
    high = finite.max(initial=-np.inf)
    largest = max(high, -low)
    is_low = low < _FIRST_SHORT_DAY
    if largest < _FIRST_SHORT_DAY or (is_low and largest < _EXACT) or (finite != np.round(finite)).any():
        return ""
    # Digits that float64 does not hold.
    if largest >= _EXACT:
        return "whole numbers above 2^53 lose digits"
    # Months and days in the last digits.
    last = finite % 100
    middle = finite // 100 % 100
    is_varied = len(np.unique(last)) > 2
    if low >= 1900_01 and high < 2100_00 and is_varied and _are_from_1(last, 12):
        return f"--dates={name}:%Y%m reads them as months"
    if not (_are_from_1(middle, 12) and _are_from_1(last, 31)):
        return ""
    if low >= _FIRST_DAY and high <= _LAST_DAY:
        return f"--dates={name} reads them as dates"
    if low >= _FIRST_SHORT_DAY and high <= _LAST_SHORT_DAY and is_varied and len(finite) >= _MIN_DAYS:
        return f"--dates={name}:%y%m%d reads them as dates"
    return ""


def _are_from_1(values: NDArray[np.float64], most: int) -> bool:
    return bool(((values >= 1) & (values <= most)).all())


def _some(texts: Sequence[str]) -> str:
    return ", ".join(map(shown, texts[:_SHOWN])) + (", ..." if len(texts) > _SHOWN else "")
