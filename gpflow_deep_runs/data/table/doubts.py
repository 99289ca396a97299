"""Values that may not be what they look like: numbers that stand for a missing value, codes, rows that sum up others.

    check_sentinels({"rain": np.array([0.0, 3.5, -9999.0, -9999.0])}, where="weather.csv")    # asks what -9999 is
    totals_of_texts(table)                                                          # {239: "its 'Region' is 'Total'"}

None of them is guessed at: all are questions to the user, who answers by a flag.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data.files.libraries import pa, pc
from gpflow_deep_runs.data.table.columns import values_of
from gpflow_deep_runs.data.values.cells import Contents, bytes_of, is_missing, matches, one_chunk, truths_of

__all__ = ["TOTAL_WORD", "are_months", "check_codes", "check_numbers", "check_sentinels", "labels_of", "names_again"]
__all__ += ["sentinels_of", "total_of_numbers", "totals_of_texts"]

_HEAD = 100
_MIN_VALUES = 10
_NINES_OF_CODES = (9.0, -9.0, 99.0, -99.0, 999.0, -999.0)
_REFUSED = (-9.0, -8.0, -7.0, -6.0)
_NINES = [float("9" * digits) for digits in range(2, 8)]
_KNOWN = frozenset(
    [
        *_NINES,
        *(-nines for nines in _NINES),
        *(sign * (nines - less) for nines in _NINES for less in (1.0, 2.0) for sign in (1, -1)),  # refused, unknown
        *(sign * value for sign in (1, -1) for value in (9.99, 99.9, 99.99, 999.9, 999.99, 9999.9, 9999.99)),
        *(77.0, 88.0, 777.0, 7777.0, 511.0, 1023.0, 102.3),  # the last three of ships
        *(-888.0, -8888.0, -777.0, -200.0, 888.0, 8888.0, -32768.0, 32767.0, 65535.0),
        *(-(2.0**31), 2.0**31 - 1, 1e20, 1e30, -1e30, 1e36, -1e36, float(2**63)),
    ]
)
"""Numbers that programs and surveys write where a value is missing."""

_DATES = (
    *("0001-01-01", "1753-01-01", "1800-01-01", "1899-12-30", "1899-12-31", "1900-01-01", "1900-01-02", "1901-01-01"),
    *("1904-01-01", "1970-01-01", "1111-11-11", "2099-12-31", "2100-01-01", "2999-01-01", "2999-12-31", "3000-01-01"),
    *("1677-09-21", "2262-04-11", "9998-12-31", "9999-01-01", "9999-12-30", "9999-12-31"),
)
"""Dates that mean no date, or no end."""

_FAR = 5.0
_FAR_OFTEN = 1.0
_MOST_PEELED = 6
_MAX_CODES = 50
_FOOT = 5
_LEAST_SUMMED = 4
_CHANCE = 3e-4
_SURE_TOTALS = (
    "totals?|grand total|overall total|total général|total general|gesamt|gesamtsumme|gesamtergebnis|endsumme|"
    "insgesamt|summe|totale|totale complessivo|totale generale|totaal|eindtotaal|total geral|razem|suma końcowa|"
    "итого|общий итог|всего|合計|総計"
)
_TOTALS = (
    f"{_SURE_TOTALS}|sums?|averages?|avg|means?|median|subtotal|sub total|overall|all|mittelwert|mittel|durchschnitt|"
    "somme|moyenne|ensemble|suma|promedio|media|somma|gemiddelde|soma|média|średnia|среднее|平均"
)
TOTAL_WORD = f"(?i:[\\s*#(\\[\u03a3]*(?:the )?(?:{_SURE_TOTALS})[\\s*:.)\\]=]*)"
"""Texts that have no other meaning than a sum, as a regular expression."""

_TOTAL_OF = f"(?i:[\\s*#(\\[\u03a3]*(?:{_SURE_TOTALS}) \\pL+(?: \\pL+)?[\\s*:.)\\]=]*)"
"""A total and what it is of, such as "Total Nacional", which at the end of a table is asked about."""

_PLAIN = "\\s*[-+]?[0-9.,]*[0-9][0-9.,]*(?:[eE][-+]?[0-9]+)?\\s*"

_LABEL = r"(?:[^\W\d]|[{(\[%\u00b0$\u20ac\u00a3#]).*|[0-9]{1,2}[sdn]"
"""Names and units, and what the tables of the USGS have below their names."""

_PART = "(?i:[\\s*(\\[]*sub[- ]?totals?\\b.*|zwischensumme.*|sous-total.*)"
_STATISTIC = (
    "(?i:[\\s*(\\[]*(?:min|max|minimum|maximum|std|sd|st\\.? ?dev|std\\.? ?dev|stdev|standard deviation|variance|var|"
    "count|median|n|number|25%|50%|75%)[\\s*:.)\\]=]*)"
)
_TOTAL = f"(?i:[\\s*#(\\[\u03a3]*(?:the )?(?:{_TOTALS})(?: (?:of|for|over) .*| all)?[\\s*:.)\\]=]*|\u03a3|\u2211)"


def sentinels_of(values: NDArray[np.float64], *, known: frozenset[float] = _KNOWN) -> list[float]:
    """Numbers that may stand for a missing value, the farthest first.

    They are the least or the largest values of a column. One of the `known` ones lies apart from the others; another
    number lies farther from them than five times their range, and occurs more than once.

    :param values: [n], NaN where missing.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        rest = values if np.isfinite(values.sum()) else values[np.isfinite(values)]
    sentinels: list[float] = []
    # Peel off the least or the largest value as long as it lies apart.
    for _ in range(_MOST_PEELED):
        if len(rest) < 4:
            break
        low = float(rest.min())
        high = float(rest.max())
        if low == high:
            break
        some = rest[:: max(1, len(rest) // _HEAD)]
        if not _nearest(some, low, high, known):  # no need to look at all
            break
        inner = rest[(rest != low) & (rest != high)]
        if not len(inner):  # two values, such as 1 and -999
            sentinels += [
                end for end, other in ((low, high), (high, low)) if end in known and _is_beyond(end, other, known)
            ]
            break
        # The farther end first, and all the values for it.
        ends = _nearest(inner, low, high, known)
        odd = next((end for end in ends if _is_apart(end, rest, known)), None)
        if odd is None:
            break
        sentinels.append(odd)
        rest = rest[rest != odd]
    return sentinels


def _nearest(inner: NDArray[np.float64], low: float, high: float, known: frozenset[float]) -> list[float]:
    """The ends of a range that may be odd, the farther first: known ones, and those that are far from inner values."""
    # The gaps between each end and the next value.
    least = float(inner[inner != low].min(initial=high))
    largest = float(inner[inner != high].max(initial=low))
    ends = [low, high] if least - low >= high - largest else [high, low]
    # An end that is near says something only if it is a known sentinel.
    near = {low} if least - low <= _FAR_OFTEN * (high - least) else set[float]()
    near |= {high} if high - largest <= _FAR_OFTEN * (largest - low) else set[float]()
    return [end for end in ends if end not in near or not _is_usual(end, known)]


def _is_beyond(value: float, other: float, known: frozenset[float]) -> bool:
    """Whether a known sentinel is no value beside the only other one: ten times as large, of days 20 years apart."""
    is_days = known is not _KNOWN
    return abs(value - other) > 20 * 366 if is_days else abs(value) > 99 and abs(value) >= 10 * abs(other)


def _is_apart(value: float, values: NDArray[np.float64], known: frozenset[float]) -> bool:
    """Whether the least or the largest of some values lies so far from the others that it may be none."""
    others = values[values != value]
    count = len(values) - len(others)
    if value in known:
        others = _without_ends(others, known)
    # The gap before the value, and the spread of the others.
    low = float(others.min())
    high = float(others.max())
    gap = low - value if value < low else value - high
    spread = high - low
    if gap <= 0 or spread <= 0 or (_is_usual(value, known) and gap <= _FAR_OFTEN * spread):
        return False
    # Rules for the values that surveys, counts and measurements write.
    distinct = np.unique(others[:: max(1, len(others) // 10_000)])
    is_whole = bool((others == np.rint(others)).all())
    if len(distinct) < 3:  # two codes, such as 1 and 2, and one for what is not known
        return value in _NINES_OF_CODES and is_whole and spread == 1 and 0 <= low <= 1 and count >= 2
    if value == -1 and low >= 0:  # never, or not known
        return count >= 0.05 * len(values) and len(distinct) >= 5 if is_whole else count >= 2 and len(distinct) >= 10
    if value in _REFUSED and others[~np.isin(others, _REFUSED)].min() >= 0:  # not asked, refused, does not know
        return count >= 2
    if value == 0 and low > 0:  # no measurement is zero
        return 2 <= count < 0.5 * len(values) and gap >= 0.2 * spread and len(distinct) >= 10
    if value == 9 and is_whole:  # of a scale of answers, perhaps beside 8
        answers = others[others != 8]
        if len(answers) and 3 <= answers.max() <= 6:
            return count >= 2 and 9 - answers.max() >= 0.75 * np.ptp(answers)
    if value in known:
        least = 0.5 if count > 1 else 2.0
        if gap >= least * spread:
            return True
        # more often than its half of the values would let expect, as age 99
        middle = (low + high) / 2
        half = others[others > middle] if value > high else others[others < middle]
        usual = len(half) / max(1, len(np.unique(half)))
        return count >= max(3, 0.02 * len(values), 2 * usual) and gap >= 0.1 * spread
    # Any other number must be far off and occur more than once.
    least_positive = others[others > 0].min(initial=np.inf)
    if value > high > least_positive and low >= 0 and value / high < high / least_positive:  # 1, 10, 100, ...
        return False
    if len(distinct) < 4:  # levels, such as 1, 2, 3 and 30
        return False
    is_often = count >= max(3, 3 * len(others) / len(distinct)) and len(distinct) >= 10
    return count >= 2 and gap > (_FAR_OFTEN if is_often else _FAR) * spread


def _is_usual(value: float, known: frozenset[float]) -> bool:
    """Whether a number says nothing by itself, so that only its distance from the others may."""
    return value not in known and value not in _REFUSED and value not in (-1, 0, 9)


def _without_ends(values: NDArray[np.float64], known: frozenset[float]) -> NDArray[np.float64]:
    """Values without their least and largest ones as long as these are known, unless these are most of them."""
    rest = values
    while len(rest) > 0.5 * len(values) and (ends := known & {float(rest.min()), float(rest.max())}):
        rest = rest[~np.isin(rest, list(ends))]
    return rest if len(rest) > 0.5 * len(values) else values


def check_sentinels(
    columns: Mapping[str, NDArray[np.float64]],
    *,
    where: str,
    dates: Collection[str] = (),
    keep: Sequence[str] = (),
    is_sample: bool = False,
) -> None:
    """Ask what values are that may stand for a missing one, about all columns at once.

    :param columns: their values [n], NaN where missing; of dates the days since 1970-01-01.
    :param where: the file, for the error.
    :param dates: columns of dates.
    :param keep: texts of values that are what they look like.
    :param is_sample: whether these are some of the values, whose places say nothing.
    :raises ValueError: naming column, value, how often it occurs, and the flags that answer.
    """
    whole = {name: np.floor(values) if name in dates else values for name, values in columns.items()}
    known_days = frozenset(np.array(_DATES, "datetime64[D]").astype(np.float64).tolist())
    candidates = {name: sentinels_of(v, known=known_days if name in dates else _KNOWN) for name, v in whole.items()}
    # Those that the user does not want to keep, the farthest first.
    kept = {is_date: values_of(keep, is_date=is_date) for is_date in (True, False)}
    asked = {name: [v for v in some if v not in kept[name in dates]] for name, some in candidates.items()}
    odd = {name: [_written(value, name in dates) for value in some] for name, some in asked.items() if some}
    if not odd:
        return
    # The first value, where it is, and the range of the others.
    (name, texts), *more = odd.items()
    values = whole[name]
    equal = values == asked[name][0]
    others = values[np.isfinite(values) & ~np.isin(values, candidates[name])]
    low, high = (_written(number, name in dates) for number in (others.min(), others.max()))
    places = f"in {int(equal.sum())} rows, the first is row {int(equal.argmax())} (from 0)"
    if is_sample:
        places = f"in {equal.mean():.2g} of its rows, in a sample"
    # Other columns with such values are named, so that one flag answers for all.
    flag = ",".join(dict.fromkeys(itertools.chain(*odd.values())))
    absent = ",".join(dict.fromkeys(f"{n}=0" if text == "0" else text for n in odd for text in odd[n]))
    also = "".join(f"; so has {other!r} {', '.join(other_texts)}" for other, other_texts in more)
    raise ValueError(
        f"column {name!r} of {where} has {texts[0]} {places}, while its other values are from {low} to {high}{also}: "
        f"give --na_values={absent} if {'they stand' if more else 'it stands'} for a missing value, or "
        f"--keep_value={flag} if {'they are values' if more else 'it is a value'}."
    )


def _written(value: float, is_date: bool) -> str:
    return str(np.datetime64(int(np.floor(value)), "D")) if is_date else f"{value:.15g}"


class _Codes(NamedTuple):
    """Texts that can be read as numbers, which some of them may not be.

    :ivar every: the pattern of all of them.
    :ivar odd: that of those that would lose something as numbers.
    :ivar may_be: what they may be, in words.
    :ivar form: the format of them as times or months.
    """

    every: str
    odd: str
    may_be: str
    form: str = ""


_MONTHS = (
    _Codes("(?:0?[1-9]|1[0-2])\\.(?:19|20)[0-9]{2}", ".*", "months, or numbers", "%m.%Y"),
    _Codes("(?:19|20)[0-9]{2}\\.(?:0[1-9]|1[0-2])", ".*", "months, or numbers", "%Y.%m"),
)
_CODES = (
    *_MONTHS,
    _Codes("1:[1-5][0-9]", ".*", "times, or ratios", "%H:%M"),
    _Codes("[0-9]{2}:0[1-9]", ".*", "times, or codes such as alleles", "%H:%M"),
    _Codes("\\+[0-9]{7,}", ".*", "codes, or numbers (with a plus sign)"),
    _Codes("[0-2][0-9]\\.[0-5][0-9]", "0[1-9]\\..*", "times of the day, codes, or numbers", "%H.%M"),
    _Codes("[0-9]+(?:\\.[0-9]+)?", "0[0-9]+\\.[0-9]+", "codes, or numbers (with a zero in front)"),
    _Codes("[0-9]+(?:[eE][0-9]+)?", "[0-9]+[eE][0-9]+", "codes or versions, or numbers (powers of ten)"),
)
_DECIMALS = _Codes(
    "[0-9]{1,3}(?:\\.[0-9]{1,3})?",
    "[0-9]+\\.[0-9]+0",
    "codes or versions, or numbers (decimals, whose last zero says nothing)",
)


def are_months(values: pa.ChunkedArray) -> bool:
    """Whether all texts are months such as 05.2020, as which numbers do not happen to be written."""
    return any(
        all(matches(one_chunk(some), f"\\s*|\\s*{codes.every}\\s*").all() for some in (values.slice(0, _HEAD), values))
        for codes in _MONTHS
    )


def check_codes(contents: Contents) -> None:
    """Ask whether texts that can be read as numbers are codes, of which some would become one: 1E5, or 1.1 and 1.10.

    :raises ValueError: naming column, row, value and the flags that answer.
    """
    texts = contents.cells.texts
    some = contents.sample(_HEAD)
    # Codes are few, each of them twice on average.
    are_few = contents.is_value.sum() <= min(_MAX_CODES, contents.counts[contents.is_value].sum() / 2)
    # Kind by kind: a few texts first, then all of them.
    for codes in (*_CODES, *([_DECIMALS] if are_few else [])):
        if any(part.share(matches(part.cells.texts, codes.every)) < 1 for part in (some, contents)):
            continue
        odd = matches(texts, codes.odd) & contents.is_value
        if codes is _DECIMALS:  # prices have equally many
            parts = pc.utf8_length(pc.replace_substring_regex(texts, "^[0-9]+\\.?", "")).to_numpy(zero_copy_only=False)
            lengths = parts[contents.is_value & (parts > 0)]
            odd &= len(np.unique(lengths)) > 1
        if is_clock := codes.form == "%H:%M":  # an hourly record has one minute
            odd &= pc.count_distinct(pc.utf8_slice_codeunits(texts.filter(pa.array(odd)), -2)).as_py() > 1
        if odd.sum() > (2 if is_clock else 0):
            name = contents.name
            cures = [f"--dates={name}:{codes.form}"] if codes.form else []
            cures += [f"--categorical={name}"] if is_clock else [f"--categorical={name}", f"--numeric={name}"]
            raise ValueError(
                f"{contents.what} has values such as {contents.example(odd)} (from 0), which may be {codes.may_be}; "
                f"give {', '.join(cures[:-1])} or {cures[-1]}."
            )


def check_numbers(name: str, values: pa.ChunkedArray, found: NDArray[np.float64], *, where: str) -> None:
    """Ask whether plain numbers are codes, such as those of books and telephones, or times of the day, such as 9.30.

    Codes are whole numbers of ten digits or more, equally long, that are no moments of computers: all are different, or
    they are few.
    Times have hours and minutes that are possible ones, in many different values.

    :param values: texts or numbers.
    :param found: the same as numbers, [n], NaN where missing.
    :raises ValueError: naming column, value and the flags that answer.
    """
    head = found[:_HEAD][np.isfinite(found[:_HEAD])]
    if not len(head):
        return
    # Codes, times of the day with a point, and times without one.
    if _are_codes(head) and len(head) >= _MIN_VALUES:
        finite = found[np.isfinite(found)]
        count = len(np.unique(finite))
        if _are_codes(finite) and (count == len(finite) or 1 < count <= min(_MAX_CODES, len(finite) / 2)):
            which = "all different" if count == len(finite) else f"{count} different ones"
            cure = f"--ignore={name}" if count == len(finite) else f"--categorical={name}"
            raise ValueError(
                f"column {name!r} of {where} has values such as {finite[0]:.0f}, {which} and of as many digits, which "
                f"may be codes, or numbers; give {cure}, or --numeric={name}."
            )
    elif pa.types.is_string(values.type) and _are_clocks(head):
        finite = found[np.isfinite(found)]
        is_written = matches(one_chunk(values), "\\s*(?:[0-9]{1,2}\\.[0-9]{2})?\\s*").all()
        if is_written and _are_clocks(finite) and _are_varied_clocks(finite):
            raise ValueError(_may_be_times(name, where, f"{finite[0]:.2f}", "%H.%M"))
    elif _are_clocks(head / 100) and (head == np.rint(head)).all():
        finite = found[np.isfinite(found)]
        if finite.max() >= 1000 and _are_clocks(finite / 100) and _are_varied_clocks(finite / 100):
            raise ValueError(_may_be_times(name, where, f"{finite[0]:.0f}", "%H%M"))


def _may_be_times(name: str, where: str, example: str, form: str) -> str:
    return (
        f"column {name!r} of {where} has values such as {example}, of which none has more than 23 hours or 59 minutes, "
        f"which may be times of the day, or numbers; give --dates={name}:{form} or --numeric={name}."
    )


def _are_codes(values: NDArray[np.float64]) -> bool:
    """Whether numbers are whole, of ten digits or more and equally long, and no moments of computers or thousands."""
    low = float(values.min())
    high = float(values.max())
    is_moment = any(scale <= low and high < 2.2 * scale for scale in (1e9, 1e12, 1e15, 1e18))
    if is_moment or low < 1e9 or high >= 10 * 10.0 ** np.floor(np.log10(low)) or not np.isfinite(high):
        return False
    return bool((values == np.rint(values)).all() and (values % 1000 != 0).mean() > 0.5)


def _are_clocks(values: NDArray[np.float64]) -> bool:
    """Whether numbers could be hours with minutes behind the point."""
    hundredths = np.rint(100 * values)
    is_exact = np.abs(hundredths - 100 * values) < 1e-6
    return bool((is_exact & (values >= 0) & (values < 24) & (hundredths % 100 < 60)).all())


def _are_varied_clocks(hours: NDArray[np.float64]) -> bool:
    """Whether there are so many hours and minutes, or quarters of hours, that numbers would not happen to be these."""
    # Hours of a whole day at any minute, or at quarters.
    minutes = set(np.unique(np.rint(100 * hours) % 100).tolist())
    if len(np.unique(hours // 1)) <= 5:
        return False
    are_quarters = minutes <= {0, 15, 30, 45} and len(minutes) > 2 and len(np.unique(hours)) > 10
    return are_quarters or (len(minutes) > 10 and len(np.unique(hours)) >= 25)


def totals_of_texts(table: pa.Table) -> dict[int, str]:
    """Rows that seem to sum up others by their text: total, sum or average, which the column has nowhere else.

    Totals of parts are told by the words "subtotal" or "PART Total", where PART is another text of the column; least,
    largest and number of values by two such words at the foot. Words with another meaning, such as "all" or "mean",
    count at the ends of a table, and elsewhere in columns of levels.

    :param table: all columns, of which those of texts are looked at.
    :return: numbers of the rows, and why, the first column that says so.
    """
    reasons: dict[int, str] = {}
    num_rows = len(table)
    for name in table.column_names:
        column = one_chunk(table[name])
        if not pa.types.is_string(column.type):
            continue
        first = max(0, num_rows - _FOOT) if _is_numeric(column) else 0  # texts above are asked about anyway
        column = column.slice(first)
        if not _has_letters(column):
            continue
        # The different texts, and which of them stand in one row alone.
        counts = pc.value_counts(column)
        texts = counts.field("values")
        often = counts.field("counts").to_numpy(zero_copy_only=False)
        is_level = 2 * len(texts) <= num_rows
        is_once = often == 1
        # Words that mean nothing but a sum, and words that may mean one.
        is_sure = matches(texts, TOTAL_WORD) & is_once | matches(texts, _PART)
        is_sure |= _totals_of_parts(texts)
        is_word = matches(texts, _TOTAL) & is_once
        is_statistic = matches(texts, _STATISTIC) & is_once
        is_of = matches(texts, _TOTAL_OF) & is_once
        if not (is_sure | is_word | is_of | is_statistic).any():
            continue
        # The latter count among levels, at the ends of the table, or as several statistics at its foot.
        sure = _rows_of(column, texts, is_sure | (is_word & is_level))
        words = _rows_of(column, texts, is_word | is_of)
        ends = words[(first + words < 1) | (first + words >= num_rows - _FOOT)]
        foot = _rows_of(column, texts, is_word | is_statistic)
        foot = foot[first + foot >= num_rows - 2 * _FOOT]
        foot = foot if len(foot) > 1 else foot[:0]
        for row in np.union1d(np.union1d(sure, ends), foot).tolist():
            reasons.setdefault(first + row, f"its {name!r} is {column[row].as_py().strip()!r}")
    return dict(sorted(reasons.items()))


def _is_numeric(column: pa.Array) -> bool:
    """Whether the first values of a column are numbers, so that a text among them is asked about anyway."""
    head = pc.drop_null(column.slice(0, _HEAD))
    return len(head) > 1 and bool(matches(head, "\\s*|\\s*[-+]?[0-9.,]+\\s*").mean() > 0.9)


def _has_letters(column: pa.ChunkedArray) -> bool:
    """Whether texts have letters, or signs beyond ASCII, by their bytes."""
    texts = (bytes_of(chunk)[0] for chunk in column.chunks)
    return any(((text | 32) - ord("a") < 26).any() or (text > 127).any() for text in texts)


def _totals_of_parts(texts: pa.Array) -> NDArray[np.bool_]:
    """Which texts are another one with the word "total"."""
    is_part = matches(texts, "(?i:.+ totals?|totals? .+)")
    if not is_part.any():
        return is_part
    # The part is another text of the column, in whatever case.
    folded_texts = {text.strip().casefold() for text in texts.to_pylist() if text}
    words = [
        re.sub("^totals? (?:of |for )?| totals?$", "", (text or "").strip().casefold()) for text in texts.to_pylist()
    ]
    return is_part & np.array([word in folded_texts for word in words])


def _rows_of(column: pa.Array, texts: pa.Array, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Numbers of the rows with one of some texts."""
    if not chosen.any():
        return np.empty(0, np.int64)
    is_in = pc.is_in(column, value_set=pc.drop_null(texts.filter(pa.array(chosen))))
    return np.flatnonzero(truths_of(is_in))


def names_again(table: pa.Table) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows of a table of texts hold nothing, or a line drawn by dashes, and which the names; [n] each."""
    is_empty, repeats = np.full((2, len(table)), len(table.column_names) > 1)
    # Column by column, until no row can be either.
    for name in table.column_names:
        if not (is_empty.any() or repeats.any()):
            break
        column = pc.fill_null(one_chunk(table[name]), "")
        blank = (
            matches(column, "\\s*|\\s*:?[-=]{3,}:?\\s*") if is_empty.any() or name.startswith("Unnamed: ") else is_empty
        )
        is_empty &= blank
        # A column without a name has nothing where the names stand again.
        if repeats.any():
            is_name = truths_of(pc.equal(pc.utf8_trim_whitespace(column), name))
            repeats &= is_name | (blank & name.startswith("Unnamed: "))
    return is_empty, repeats


def labels_of(table: pa.Table, without: Collection[str] = ()) -> list[str]:
    """The first texts of each of the first rows, at most two, that are further lines of names or units.

    At least two columns of plain numbers have a text in each of them, its own, and none of them a number.

    :param without: columns that say nothing, as they are levels.
    """
    heads = []
    for name in table.column_names:
        head = one_chunk(table[name].slice(0, _HEAD))
        if name not in without and pa.types.is_string(head.type) and len(head) > 3:
            heads.append(pc.utf8_trim_whitespace(pc.fill_null(head, "")))
    # Two lines of labels, or one: above nothing but numbers in each of their columns.
    for count in (2, 1):
        labels: list[tuple[str, ...]] = []
        for head in heads:
            is_number = matches(head, _PLAIN)
            is_rest = is_number | is_missing(head, (), markers=True)
            if is_number[count:].any() and is_rest[count:].all() and not is_rest[:count].all():
                labels.append(tuple(head.slice(0, count).to_pylist()))
        # Names and units differ, and look like such.
        rows = list(zip(*labels, strict=True))
        if rows and all(len({*row}) > 1 and all(re.fullmatch(_LABEL, text) for text in row) for row in rows):
            return [row[0] for row in rows]
    return []


def total_of_numbers(found: Mapping[str, np.ndarray]) -> str:
    """Why the last row seems to sum up the others, as its numbers are one statistic of theirs; "" if they are not.

    All columns of numbers have to agree; a zero or a missing value says nothing. Sums have to be larger than the values
    that they sum up, and those of positive and negative values must not agree by chance; beside the sum of a column
    that is mostly not zero, others may hold rates, of which a total has one between theirs. Other statistics must not
    be values that these columns would have by chance, nor those of another row.

    :param found: the cells of columns, [n] each, of which those of numbers are looked at.
    """
    numeric = [values for values in found.values() if values.dtype.kind == "f" and len(values) > _LEAST_SUMMED]
    fitting = dict.fromkeys(_STATISTICS, 1.0)  # the chance that a row agrees that is none
    is_larger = False
    are_signed = True
    has_rates = has_sum = False
    num_columns = 0
    alike = np.ones(len(numeric[0]) - 1, np.bool_) if numeric else np.zeros(0, np.bool_)
    # Each column of numbers leaves the statistics that its last value agrees with.
    for values in numeric:
        end = float(values[-1])
        above = values[:-1]
        finite_above = above[np.isfinite(above)]
        if not np.isfinite(end) or end == 0 or len(finite_above) < 2 or finite_above.min() == finite_above.max():
            continue
        num_columns += 1
        tolerance = _half_digit(end)
        is_beyond = bool(end < finite_above.min() or end > finite_above.max())
        is_larger |= is_beyond
        has_sum |= is_beyond and np.count_nonzero(finite_above) > max(_MIN_VALUES, len(finite_above) / 2)
        are_signed &= bool(finite_above.min() < 0 < finite_above.max())
        agreeing = [name for name in fitting if _agrees(name, finite_above, end, tolerance, "sums" in fitting)]
        is_rate = not is_beyond and "sums" in fitting and "sums" not in agreeing
        has_rates |= is_rate
        # Columns are taken as independent: the chances that they agree multiply.
        fitting = {
            name: chance
            * _share(finite_above, end, _width(name, finite_above, tolerance))
            * _tail(name, finite_above, end)
            for name, chance in fitting.items()
            if name in agreeing
        } | ({"sums": fitting["sums"]} if is_rate else {})
        if not fitting:
            return ""
        # A row above with the same numbers says that the last one is a row, too.
        alike &= np.abs(above - end) <= tolerance
    if not num_columns or alike.any():
        return ""
    is_sure = is_larger and not (are_signed or has_rates)
    if "sums" in fitting and (is_sure or (has_sum and fitting["sums"] < _CHANCE)):
        return "its numbers are the sums of their columns" + has_rates * " or between their ends"
    name = next((name for name, chance in fitting.items() if name != "sums" and chance < _CHANCE), "")
    return f"its numbers are the {name} of their columns" if name else ""


def _width(name: str, values: NDArray[np.float64], tolerance: float) -> float:
    """How far from a statistic of some values a number may be: of sums three deviations of its rounding errors."""
    if name == "numbers":
        return 0.0
    if name != "sums":
        return tolerance
    return 3 * (tolerance if tolerance < 0.5 else 0.0) * float(np.sqrt(len(values)))


def _tail(name: str, values: NDArray[np.float64], end: float) -> float:
    """The chance that one of some values is as far from their mean as a sum, by the tails of a normal law."""
    deviations = (end - float(values.mean())) / float(values.std())
    return min(1.0, 2.0 * float(np.exp(-0.5 * deviations**2))) if name == "sums" else 1.0


def _share(values: NDArray[np.float64], end: float, tolerance: float) -> float:
    """The part of some values, or of their range, that is as near to a number; at most 1."""
    near = float(np.mean(np.abs(values - end) <= tolerance))
    return min(1.0, max(near, 2 * max(tolerance, _resolution(values)) / float(np.ptp(values))))


def _agrees(name: str, values: NDArray[np.float64], end: float, tolerance: float, may_be_mean: bool) -> bool:
    """Whether a number is a statistic of some values; beside sums of other columns, a mean is one, too."""
    if name == "sums":
        digit = tolerance if tolerance < 0.5 else 0.0
        slack = max(_width(name, values, tolerance), 1e-9 * np.abs(values).sum())
        is_mean = may_be_mean and abs(values.mean() - end) <= max(digit, 1e-12 * np.abs(values).mean())
        # with the other sign it closes an account; columns with both signs that sum to zero are centred
        is_one_sign = bool(values.min() >= 0 or values.max() <= 0)
        is_sum = min(abs(values.sum() - end), abs(values.sum() + end) if is_one_sign else np.inf) <= slack
        return bool(is_sum or is_mean)
    if name == "numbers":
        return end == len(values)
    statistic = _STATISTICS[name]
    return any(abs(value - end) <= tolerance + 1e-12 * abs(end) for value in statistic(values))


_STATISTICS: dict[str, Callable[[NDArray[np.float64]], Sequence[float]]] = {
    "sums": lambda values: (float(values.sum()),),
    "means": lambda values: (float(values.mean()),),
    "medians": lambda values: (float(np.median(values)),),
    "standard deviations": lambda values: (float(values.std()), float(values.std(ddof=1))),
    "numbers": lambda values: (float(len(values)),),
}


def _half_digit(value: float) -> float:
    """Half a unit of the last digit of a number."""
    decimals = f"{value:.10g}".partition(".")[2]
    return 0.5 * 10.0 ** -len(decimals) if "e" not in decimals else 0.0


def _resolution(values: NDArray[np.float64]) -> float:
    """The least half digit of the first of some values."""
    return min(map(_half_digit, values[:_HEAD].tolist()))
