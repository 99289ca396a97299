"""Which format the dates or times of a column are written in, and where that cannot be known.

One format reads a column. 3/4/2020 is a date of March or of April, 01/02/03 is any of six, and 2009-10 may be a season:
such columns are refused unless some row, or the user, decides.
"""

from __future__ import annotations

import re
from itertools import product

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data.files.libraries import pa
from gpflow_deep_runs.data.values.cells import Contents, matches, na_flag, shown
from gpflow_deep_runs.data.values.times import full_pattern, read_dates, read_times

__all__ = ["ORDERS", "are_durations", "find_date_format", "find_time_format"]

ORDERS = ("dmy", "mdy", "ymd")
"""Orders of day, month and year that a user may name."""

_NUMERIC = [
    *(f"{y}{s}%m{s}%d" for s in "-/. " for y in ("%Y", "%y")),
    *(f"{a}{s}{b}{s}{y}" for s in "-/. " for y in ("%Y", "%y") for a, b in (("%d", "%m"), ("%m", "%d"))),
    *("%Y-%m", "%Y/%m", "%m/%Y", "%m-%Y", "%Y%m%dT%H%M%S", "%YM%m"),
    *(form.replace("Q", quarter) for quarter in "QTK" for form in ("%YQ%q", "%Y Q%q", "%Y-Q%q", "Q%q %Y", "Q%q-%Y")),
    *(form.replace("H", half) for half in "HS" for form in ("%YH%h", "%Y H%h", "%Y-H%h", "H%h %Y", "H%h-%Y")),
    *("Q%q/%Y", "%qQ%Y", "%qT%Y", "%qQ%y", "%Y-W%V", "%YW%V", "%Y W%V", "%Y-KW%V", "W%V %Y"),
    *("%Y年%m月%d日", "%Y年%m月", "%Y/W%V", "W%V-%Y", "W%V/%Y"),
]
_NAMED = [
    f"{weekday}{date}"
    for weekday, date in product(
        ("", "%a ", "%a, "),
        (
            *(f"{form}{y}" for y in ("%Y", "%y") for form in ("%b %d ", "%b %d, ", "%d %b ", "%d. %b ", "%d %b, ")),
            *(
                f"{form}{y}"
                for y in ("%Y", "%y")
                for form in ("%d-%b-", "%b-%d-", "%d/%b/", "%d.%b.", "%d%b", "%b ", "%b-", "%b, ")
            ),
            *("%Y-%b-%d", "%Y %b %d", "%Y %b", "%Y-%b"),
        ),
    )
]
_RARE = [f"{y}{s}%d{s}%m" for y in ("%Y", "%y") for s in "-/."]
_COMPACT = ["%Y%m%d", "%Y%m%d%H%M%S", "%Y"]
_CLOCKS = ["%H:%M:%S", "%H:%M", "%I:%M:%S %p", "%I:%M %p", "%I %p"]
_TIMES = [*_CLOCKS, "%M:%S.%f", "%H.%M.%S", "%Hh%M"]
_LIKE_A_TIME = "(?s:.*)(?::[0-9]{2}|[0-9] ?(?i:[ap]\\.?m))(?s:.*)|[0-9]{1,2}(?:\\.[0-9]{2}\\.|h)[0-9]{2}"
_RATIO = "[<>≤≥]?=? ?1:[0-9]+"
_TWO_PARTS = "(?i:P(?:[0-9]+D)?T[0-9]+[HMS].*|[0-9]+ ?[dhms][a-z.]*,? *[0-9]+ ?[hms].*)"
_LOOKED_AT = 20
_SAMPLE = 1000
_DAY_2030 = 21915
"""Years of two digits from 30 to 68 may be of this century or of the last one."""

_FEW_YEARS = 5
_MANY_YEARS = 20

_DIGIT = re.compile("[0-9]")
_ZONES = ("", "%z", " %z", " %Z", " GMT%z", " UTC%z")
_MONTH_WORD = "(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\\.?"
_MONTHS_ABROAD = (
    "januar|jänner|jan|februar|feb|märz|mrz|april|apr|mai|juni|jun|juli|jul|august|aug|september|sept|sep|oktober|okt|"
    "november|nov|dezember|dez|janvier|janv|février|févr|fév|mars|avril|avr|juin|juillet|juil|août|aout|septembre|"
    "octobre|oct|novembre|décembre|déc|enero|ene|febrero|marzo|abril|abr|mayo|junio|julio|agosto|ago|septiembre|"
    "octubre|diciembre|dic|gennaio|gen|febbraio|maggio|mag|giugno|giu|luglio|lug|settembre|ottobre|ott|dicembre|"
    "janeiro|fevereiro|março|maio|junho|julho|setembro|outubro|dezembro|januari|februari|maart|mei|augustus"
)
"""Months of German, French, Spanish, Italian, Portuguese and Dutch, which no format reads."""

_LIKE_A_DATE = (
    "(?:(?i:(?:\\pL+\\.?,? )?(?:[0-9]{1,2}(?:\\.|er|º)?[\\s./-]*(?:de )?)?(?:"
    + _MONTHS_ABROAD
    + ")\\.?[\\s./-]+(?:del? )?"
    "[0-9]{4})|[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-/.][0-9]{1,2}[-/.][0-9]{4}"
    f"|(?i:[a-z]+,? )?(?:{_MONTH_WORD} [0-9]{{1,2}},? [0-9]{{4}}"
    f"|[0-9]{{1,2}}(?:st|nd|rd|th)?\\.? (?:of )?{_MONTH_WORD},? [0-9]{{4}}))(?:[T\\s,(].*)?"
)


def find_date_format(
    contents: Contents, how: str = "", *, is_forced: bool = False, is_tolerant: bool = False
) -> str | None:
    """The format that reads all values of a column, or None if they are no dates.

    :param how: "dmy", "mdy", "ymd", a `strptime` format, or "".
    :param is_forced: the user says that they are dates; then digits alone (20200131, 2020) may be, too.
    :param is_tolerant: a format that reads more than half of the values is enough.
    :raises ValueError: more than one format reads them all, most but not all are dates, or dates of several formats.
    """
    texts = contents.cells.texts
    is_given = bool(how) and how not in ORDERS
    candidates = [how] if is_given else _candidates(contents, [*_NUMERIC, *_NAMED, *(_COMPACT if is_forced else ())])
    if how in ORDERS:
        candidates = [form for form in candidates if _has_order(form, how)]
    # Seasons from one year to the next are no months.
    if not is_given and not is_forced and {"%Y-%m", "%Y/%m"} & {*candidates} and _are_seasons(contents):
        return None
    # The formats that read the most values.
    fits = _fits(contents, candidates)
    best_forms = _best(contents, fits, "dates", is_forced=is_forced, is_tolerant=is_tolerant)
    if not best_forms:
        # The day may stand before the month where nothing else reads the dates, as in 17.14.11.
        rare = [form for form in _RARE if not how and contents.share(~np.isnan(read_dates(texts, form))) == 1]
        if rare and contents.is_value.sum() > 1:
            _check_two_digit_years(contents, rare, how)
            return rare[0]
        if contents.share(matches(texts, _LIKE_A_DATE)) > 0.5:
            raise ValueError(
                f"{contents.what} seems to hold dates, such as {contents.example(matches(texts, _LIKE_A_DATE))} (from "
                f"0), in no known format; give --dates={contents.name}:FORMAT (as of strptime), "
                f"--ignore={contents.name} or --categorical={contents.name}."
            )
        return None
    # The first of months, and not days of January.
    if len(best_forms) > 1:
        best_forms = [form for form in best_forms if _are_first_days(contents, form)] or best_forms
    # Dates that may be of another century.
    if not is_given:
        best_forms = _of_few_years(contents, best_forms)
        _check_two_digit_years(contents, best_forms, how)
    if len(best_forms) == 2 and "%d.%m.%Y" in best_forms[0] + best_forms[1]:  # points between them: the day is first
        best_forms = [form for form in best_forms if "%d.%m.%Y" in form]
    if len(best_forms) > 1:
        raise ValueError(_two_readings(contents, best_forms))
    return best_forms[0]


def find_time_format(contents: Contents, how: str = "", *, is_tolerant: bool = False) -> str | None:
    """The format that reads all values of a column as times of the day or durations, or None if they are none.

    :param how: a `strptime` format, or "".
    :raises ValueError: most values are times, but not all, or not in one format; or they may be hours and minutes or
        minutes and seconds.
    """
    texts = contents.cells.texts
    # Times are not looked for where no text is like one.
    is_value = contents.is_value
    if not how and not matches(texts, _LIKE_A_TIME).any():
        return None
    if not how and contents.share(matches(texts, _RATIO)) == 1 and contents.share(matches(texts, "1:[1-5][0-9]")) < 1:
        return None
    fits = {form: ~np.isnan(read_times(texts, form)) & is_value for form in ([how] if how else _TIMES)}
    best_forms = _best(contents, fits, "times", is_forced=bool(how), is_tolerant=is_tolerant)
    # More than 24 hours may be minutes with seconds.
    if not how and best_forms and best_forms[0] == "%H:%M":
        is_long = is_value & (read_times(texts, best_forms[0]) >= 24)
        if is_long.any():
            raise ValueError(
                f"{contents.what} has times such as {contents.example(is_long)} (from 0), which may be hours and "
                f"minutes or minutes and seconds; give --dates={contents.name}:%H:%M, --dates={contents.name}:%M:%S, "
                f"or --categorical={contents.name} for codes."
            )
    return best_forms[0] if best_forms else None


def are_durations(contents: Contents) -> bool:
    """Whether most texts are durations in words, of which some have two parts, such as 1h 30m or PT1H30M."""
    some = contents.sample(_SAMPLE)
    texts = some.cells.texts
    return bool(matches(texts, _TWO_PARTS).any() and some.share(~np.isnan(read_times(texts, "%t"))) > 0.5)


def _fits(contents: Contents, candidates: list[str]) -> dict[str, NDArray[np.bool_]]:
    """Which texts each format reads; of one that reads them all alone, as some of them tell, only this one."""
    texts = contents.cells.texts
    is_value = contents.is_value
    # A sample leaves the formats that may read all values.
    some = contents.sample(_SAMPLE)
    is_sure = [not np.isnan(read_dates(some.cells.texts, form)[some.is_value]).any() for form in candidates]
    fits = {}
    for form in [form for form, is_it in zip(candidates, is_sure, strict=True) if is_it] or candidates:
        fits[form] = ~np.isnan(read_dates(texts, form)) & is_value
    if len(fits) == 1 and fits[form][is_value].all():
        return fits
    # No single one does: how many values each of the formats reads.
    rest = [form for form in candidates if form not in fits]
    return {**fits, **{form: ~np.isnan(read_dates(texts, form)) & is_value for form in rest}}


def _best(
    contents: Contents, fits: dict[str, NDArray[np.bool_]], what: str, *, is_forced: bool, is_tolerant: bool
) -> list[str]:
    """The formats that read all values; [] if at most half of the values are read by one."""
    shares = {form: contents.share(mask) for form, mask in fits.items()}
    best = max(shares.values(), default=0.0)
    best_forms = [form for form, share in shares.items() if share == best]
    if best == 1 or (best > 0.5 and is_tolerant):
        return best_forms
    # One format reads most values: the others are mistakes.
    if best > 0.5 or (is_forced and best > 0):
        bad = contents.is_value & ~fits[best_forms[0]]
        row, text, count = contents.cells.first(bad)
        raise ValueError(
            f"{contents.what} must hold {what} ({best_forms[0]}), but {count} values are not, the first {shown(text)} "
            f"in row {row} (from 0); correct them, leave such rows out, give {na_flag(text)} if it stands for a "
            "missing value"
            + (f", --dates={contents.name}:FORMAT for another format" if what == "dates" else "")
            + f", or --categorical={contents.name}."
        )
    if is_forced:
        raise ValueError(
            f"{contents.what} must hold dates, as --dates says, but has {contents.example(contents.is_value)} (from 0) "
            f"in no known format; give --dates={contents.name}:FORMAT (as of strptime), or leave the flag out."
        )
    # Several formats read most values together.
    union = np.any([*fits.values(), np.zeros_like(contents.is_value)], axis=0)
    if contents.share(union) > 0.5:
        first = max(shares, key=lambda form: shares[form])
        rest = {form: mask & ~fits[first] for form, mask in fits.items()}
        second = max(rest, key=lambda form: contents.share(rest[form]))
        raise ValueError(
            f"{contents.what} must hold {what} in one format, but has {contents.example(fits[first])} ({first}) and "
            f"{contents.example(rest[second])} ({second}) (rows from 0); write them alike, or give "
            f"--ignore={contents.name} or --categorical={contents.name}."
        )
    return []


def _candidates(contents: Contents, dates: list[str]) -> list[str]:
    """The formats, of these dates with any time of the day, that read one of some values of a column."""
    some = contents.sample(_LOOKED_AT)
    forms: dict[str, None] = {}
    for text in some.cells.texts.filter(pa.array(some.is_value)).to_pylist():
        if 4 <= len(text) <= 60 and (text.isascii() or "年" in text) and _DIGIT.search(text):
            forms.update(dict.fromkeys(_formats_of(text, dates)))
    return list(forms)


def _formats_of(text: str, dates: list[str]) -> list[str]:
    forms = []
    has_month = re.search(_MONTH_WORD, text) is not None
    has_weekday = text[0].isalpha()
    for form in ("%a %b %d %H:%M:%S %Y", *dates):
        if ("%b" in form) != has_month or ("%a" in form and not has_weekday):
            continue
        # The date at the start of the text, and then a time of the day or nothing.
        start = re.match(full_pattern(form), text)
        if start is None:
            continue
        rest = text[start.end() :]
        if not rest:
            forms.append(form)
        elif rest[0] in " T,:":
            clocks = (f"{gap}{clock}{zone}" for gap in (" ", "T", ", ", ":") for clock in _CLOCKS for zone in _ZONES)
            forms += [f"{form}{clock}" for clock in clocks if re.fullmatch(full_pattern(clock), rest)]
    return forms


def _are_first_days(contents: Contents, form: str) -> bool:
    """Whether all dates are the first of a month, of five months and three years at least."""
    found = read_dates(contents.cells.texts, form)[contents.is_value]
    days = found[~np.isnan(found)].astype("datetime64[D]")
    months = days.astype("datetime64[M]")
    are_many = len(np.unique(months.astype(int) % 12)) >= 5 and len(np.unique(months.astype("datetime64[Y]"))) >= 3
    return are_many and bool((days == months).all())


def _has_order(form: str, order: str) -> bool:
    """Whether day, month and year are in an order; names of months may be anywhere."""
    letters = list(re.findall("%([dmbyY])", form))
    expected_order = [letter for letter in order if letter in [code.lower() for code in letters]]
    return "b" in letters or [letter.lower() for letter in letters] == expected_order


def _of_few_years(contents: Contents, forms: list[str]) -> list[str]:
    """Of formats with years of two digits the one with few years, if all others have as many as a month has days."""
    if len(forms) < 2 or not all("%y" in form for form in forms):
        return forms
    counts = {}
    # How many years each of the formats makes of the dates.
    for form in forms:
        days = read_dates(contents.cells.texts, form)[contents.is_value]
        counts[form] = len(np.unique(days.astype("datetime64[D]").astype("datetime64[Y]")))
    few = [form for form in forms if counts[form] <= _FEW_YEARS]
    return few if len(few) == 1 and all(counts[form] > _MANY_YEARS for form in forms if form not in few) else forms


def _check_two_digit_years(contents: Contents, forms: list[str], how: str) -> None:
    if how or not any("%y" in form for form in forms):
        return
    # Years up to 2029 in a single order are sure.
    if len(forms) == 1 and np.nanmax(read_dates(contents.cells.texts, forms[0])) < _DAY_2030:
        return
    row, text, _ = contents.cells.first(contents.is_value & ~np.isnan(read_dates(contents.cells.texts, forms[0])))
    readings = " or ".join(dict.fromkeys(_day(text, form) for form in forms))
    raise ValueError(
        f"{contents.what} has dates with years of two digits, such as {shown(text)} in row {row} (from 0), perhaps "
        f"{readings}; give --dates={contents.name}:dmy, :mdy or :ymd (69 to 99 are 1969 to 1999), or write years in "
        "full."
    )


def _are_seasons(contents: Contents) -> bool:
    """Whether all values are seasons such as 2012-13.

    :raises ValueError: if each of them may be a month, as 2009-10.
    """
    if contents.share(matches(contents.cells.texts, "[0-9]{4}[-/][0-9]{1,2}")) < 1:
        return False
    # The second year follows the first.
    pairs = [re.split("[-/]", text) for text in contents.cells.texts.filter(pa.array(contents.is_value)).to_pylist()]
    if any((int(year) + 1) % 100 != int(end) for year, end in pairs):
        return False
    # Unless all could be months as well.
    if all(1 <= int(end) <= 12 for _, end in pairs):
        raise ValueError(
            f"{contents.what} has values such as {contents.example(contents.is_value)} (from 0), which may be months "
            f"or seasons from one year to the next; give --dates={contents.name} or --categorical={contents.name}."
        )
    return True


def _two_readings(contents: Contents, forms: list[str]) -> str:
    texts = contents.cells.texts
    one, other = (read_dates(texts, form) for form in forms[:2])
    is_read = contents.is_value & ~np.isnan(one)
    # A date that is another one in the other format, if there is one.
    row, text, _ = contents.cells.first(is_read & (one != other) if (is_read & (one != other)).any() else is_read)
    orders = ["".join(re.findall("%([dmY])", form)).lower() for form in forms[:2]]
    return (
        f"{contents.what} has dates such as {shown(text)} in row {row} (from 0), which may be {_day(text, forms[0])} "
        f"or {_day(text, forms[1])}; give --dates={contents.name}:{orders[0]} for the first, "
        f"--dates={contents.name}:{orders[1]} for the second reading, or write dates as 2020-12-31."
    )


def _day(text: str, form: str) -> str:
    days = read_dates(pa.array([text]), form)[0]
    return str(np.datetime64(int(np.floor(days)), "D")) if not np.isnan(days) else "no date"
