"""What is counted in the cells of a table before its columns become X: in one pass, block by block if it is large.

found = parsed(columns, table, where="houses.csv")          # each column, once
survey = look(found, columns.values(), targets=("price",))
survey = merged(survey, look(parsed(columns, more, ...), ...)) # and of further rows of the same table
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data.files.libraries import pa, pd
from gpflow_deep_runs.data.table.columns import Column, fits, parse
from gpflow_deep_runs.data.table.features import Feature, date_parts
from gpflow_deep_runs.data.table.inference import MAX_LEVELS
from gpflow_deep_runs.data.table.spec import PARTS, DatePart, TableSpec
from gpflow_deep_runs.data.values.cells import Cells

__all__ = ["MAX_COUNTED", "MAX_LABELS", "Facts", "Parsed", "Survey", "Usable", "check_missing", "features_of"]
__all__ += ["in_order", "is_missing", "labels", "look", "merged", "parsed", "usable"]

Parsed = Mapping[str, Any]
"""Name of a column -> its n parsed cells: float64 with NaN where a value is missing, or a `pandas.Categorical`."""

MAX_COUNTED = 100_000
"""Most levels of a column that are counted."""

MAX_LABELS = 1_000
"""Most different numbers of a target that are counted, to tell labels from a regression."""

_YEAR = 366

MAX_NAMED = 20
"""Most columns that an error names."""

_NO_MEASURE = "|".join(
    (
        "[0-9]+[A-Za-z]?$|[0-9]{4,}[A-Z]{1,4}[0-9]{4,}$",
        "[0-9]+_.*$",
        r"[0-9]{1,3}(?:\.[0-9]{1,3}){2,3}$",  # 192.168.0.1, version 2.0.1
        r"(?:\+|\(|00?)[0-9 ()/-]{7,}$",  # +49 170 1234567
        "(?:(?:[0-9]{3}[ .-]){2}[0-9]{4}|[0-9]{5}-[0-9]{3,4})$",  # 555-123-4567, 01310-100
        r"\([-0-9.]+, ?[-0-9.]+\)$",  # (41.88, -87.63), a place
        r"[0-9]+-[0-9]+(?:\([0-9]+\))?(?: [0-9]+-[0-9]+(?:\([0-9]+\))?)+.*$",  # 6-4 7-6(5), sets of a match
        "(?!(?:19|20)[0-9]{2}-|.*-(?:19|20)[0-9]{2}$)[0-9]+(?:-[0-9]+){2,}$",  # 50-78-2, no date
    )
)
_MEASURED = f"(?!{_NO_MEASURE})(?:(?i:ad|ca?)[. ] ?)?[-+\u2212~<>\u2264\u2265(]?\\W?\\s*[0-9].*"
"""Texts that begin as numbers do, and are neither codes nor addresses of machines nor telephones."""

_PERIOD = (
    "(?i:[0-9]{2,4}.{0,2}(?:[qwmhts]|kw|week)[ -]?[0-9]{1,2}"
    "|(?:[qhwts]|kw|week)[ -]?[0-9]{1,2}(?:[^0-9]{1,3}[0-9]{2,4}|(?:19|20)[0-9]{2}))"
)
"""Quarters, weeks, half-years and the like, of a year."""

_MAX_WORDS = 30
"""Most different words of texts that are measurements, such as 5 h 20 min."""

MAX_FORCED_LEVELS = 1_000
"""Most levels with a column of their own, for columns that --categorical names."""


@dataclass(frozen=True)
class Facts:
    """What is known of the cells of one column.

    :param num_missing: cells without a value.
    :param counts: of each level of a category, and of each value of a target, as text; empty for others.
    :param is_whole: of a target of numbers: all are whole, and there are at most `MAX_LABELS` different ones.
    :param low: of a date: the least of each of its parts; () without any.
    :param high: the largest, likewise.
    :param is_number: whether the counts are of the numbers of a target.
    """

    num_missing: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    is_whole: bool = True
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    is_number: bool = False

    def merge(self, other: Facts) -> Facts:
        """The facts of the cells of both."""
        # Levels of both; numbers of a target no longer if they become too many.
        counts = collections.Counter(self.counts)
        counts.update(other.counts)
        is_number = self.is_number or other.is_number
        is_whole = self.is_whole and other.is_whole and not (is_number and len(counts) > MAX_LABELS)
        lows, highs = ([facts for facts in pair if facts] for pair in ((self.low, other.low), (self.high, other.high)))
        return Facts(
            self.num_missing + other.num_missing,
            dict(counts) if is_whole else {},
            is_whole,
            tuple(map(min, zip(*lows, strict=True))),
            tuple(map(max, zip(*highs, strict=True))),
            is_number,
        )


Survey = Mapping[str, Facts]
"""What is known of the cells of some rows of a table: name of a column -> its facts."""


def merged(one: Survey, other: Survey) -> Survey:
    """The survey of the rows of both, which have the same columns.

    :raises ValueError: naming a column of more than `MAX_COUNTED` levels.
    """
    return _checked({name: facts.merge(other[name]) for name, facts in one.items()})


def parsed(
    columns: Mapping[str, Column],
    table: pa.Table,
    *,
    na_values: Sequence[str] = (),
    where: str,
    first_row: int = 0,
    cells: Mapping[str, Cells] | None = None,
) -> dict[str, Any]:
    """The cells of each column that is not ignored; the table may have further columns.

    :param first_row: number of the first row of `table` in what `where` names, for errors.
    :param cells: of columns of texts of the table, where they are known.
    :raises ValueError: as `columns.parse`.
    """
    # Ignored columns are not read.
    known_cells = cells or {}
    used = [column for column in columns.values() if column.kind != "ignored"]
    return {
        column.name: parse(
            table[column.name],
            column,
            where=where,
            na_values=na_values,
            first_row=first_row,
            cells=known_cells.get(column.name),
        )
        for column in used
    }


def look(found: Parsed, columns: Iterable[Column], *, targets: Sequence[str] = ()) -> Survey:
    """Count what has to be known of some rows.

    :param found: their cells.
    :param columns: how they were read.
    :param targets: the columns to predict.
    :raises ValueError: naming a column of more than `MAX_COUNTED` levels.
    """
    facts = {
        column.name: _facts(found[column.name], column, is_target=column.name in targets)
        for column in columns
        if column.name in found
    }
    return _checked(facts)


def is_missing(values: Any) -> NDArray[np.bool_]:
    """Which of n parsed cells have no value."""
    return np.asarray(np.isnan(values) if values.dtype.kind == "f" else values.codes < 0, np.bool_)


def labels(values: Any, column: Column) -> pd.Categorical:
    """Parsed cells of a target as the texts of its classes: 1.0 is "1"."""
    if values.dtype.kind != "f":
        return values
    # Each different number has one name.
    codes = np.full(len(values), -1)
    is_known = np.isfinite(values)
    different, codes[is_known] = np.unique(values[is_known], return_inverse=True)
    return pd.Categorical.from_codes(codes, [_label(value, column) for value in different])


def _label(value: float, column: Column) -> str:
    if column.kind == "boolean":
        name = (column.true if value else column.false)[0]
        return name.capitalize() if name.lower() in ("true", "false") else name
    return str(int(value)) if value == np.rint(value) and abs(value) < 2**53 else repr(float(value))


def _facts(values: Any, column: Column, *, is_target: bool) -> Facts:
    missing = is_missing(values)
    num_missing = int(missing.sum())
    has_parts = column.kind == "date" and num_missing < len(values)
    # Of inputs that are numbers nothing but the missing ones.
    if values.dtype.kind == "f" and not has_parts and not is_target:
        return Facts(num_missing)
    present_values = values[~missing]
    # Of dates the range of each part.
    if has_parts:
        moments = date_parts(present_values[:, None], ("day", "hour"))
        calendar = date_parts(pd.unique(moments[:, 0])[:, None], ("day", "day_of_year", "weekday"))  # of few days
        lows, highs = ((*most(calendar, axis=0).tolist(), float(most(moments[:, 1]))) for most in (np.min, np.max))
        return Facts(num_missing, low=lows, high=highs)
    # Of levels how often each occurs.
    if values.dtype.kind != "f":
        counts = np.bincount(present_values.codes, minlength=len(present_values.categories)).tolist()
        return Facts(num_missing, {level: n for level, n in zip(present_values.categories, counts, strict=True) if n})
    # Of targets that are numbers the same, as long as they may be labels.
    if not np.all((np.abs(present_values) < 2**53) & (present_values == np.rint(present_values))):
        return Facts(num_missing, is_whole=False)
    different, counts = np.unique(present_values, return_counts=True)
    if len(different) > MAX_LABELS:
        return Facts(num_missing, is_whole=False)
    names = (_label(value, column) for value in different)
    return Facts(num_missing, dict(zip(names, map(int, counts), strict=True)), is_number=True)


def _checked(facts: Survey) -> Survey:
    for name, column_facts in facts.items():
        if len(column_facts.counts) > MAX_COUNTED:
            raise ValueError(
                f"column {name!r} has more than {MAX_COUNTED} different texts; leave it out with --ignore={name}."
            )
    return facts


def check_missing(counts: Mapping[str, int], where: str, *, is_new: bool = False) -> None:
    """Refuse missing values.

    :param is_new: whether these are new rows, whose columns cannot be left out.
    :raises ValueError: if columns have missing values; names them with their counts and the flags that help.
    """
    # All columns with their counts, in one error.
    bad = [f"{name!r} ({count})" for name, count in counts.items() if count]
    if bad:
        more = f" and {len(bad) - MAX_NAMED} more columns" if len(bad) > MAX_NAMED else ""
        cure = "" if is_new else ", or leave out columns with --ignore, or rows with --bad_rows=drop"
        raise ValueError(
            f"{where} has missing values in {', '.join(bad[:MAX_NAMED])}{more}; give --missing=impute to put in means "
            f"and most frequent levels of the training rows{cure}."
        )


def features_of(
    columns: Iterable[Column], survey: Survey, spec: TableSpec, where: str, *, chooses: bool = False
) -> tuple[Feature, ...]:
    """What each column becomes.

    :param survey: of the cells of all rows.
    :param chooses: whether texts of too many levels that no flag names are joined or left out, see :func:`_chosen`.
    :raises ValueError: naming all columns with too many levels, and the flags that help; or an input whose name would
        not be the only one.
    """
    features = []
    too_many = dict[str, str]()
    for column in columns:
        facts = survey.get(column.name, Facts())
        levels, rare = _levels(facts.counts, spec.rare, column.order)
        is_allowed = len(levels) <= MAX_FORCED_LEVELS
        # Texts are levels if the rare ones are joined.
        if column.kind == "text":
            if chooses and spec.rare is None and column.name not in spec.features and (made := _chosen(column, facts)):
                features.append(made)
                continue
            is_allowed = spec.rare is not None and 1 <= len(levels) <= MAX_LEVELS
            column = replace(column, kind="category")
        if not is_allowed:
            why = column.note.partition("different texts")[2]
            too_many[column.name] = f"{len(facts.counts)} different texts{why}"
        features.append(Feature(column, levels, rare, _parts(column, facts, spec), facts.num_missing))
    if too_many:
        _refuse_levels(too_many, spec, where)
    # No two inputs may have one name.
    counts = collections.Counter(name for feature in features for name in feature.names)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise ValueError(
            f"two inputs of {where} would be called {twice[0]!r}, a column and a level of another column; rename the "
            "column, or leave it out with --ignore."
        )
    return tuple(features)


def _chosen(column: Column, facts: Facts) -> Feature | None:
    """What texts of too many levels become: the most frequent levels if they are those of most rows, else nothing.

    :return: None if they may be measurements, numbers or periods in a format of their own, which only the user knows.
    """
    texts = list(facts.counts)
    if _share(_MEASURED, texts) > 0.9:
        words = {word for text in texts for word in re.findall(r"[^\W\d_]+", text)}
        if len(words) <= _MAX_WORDS:
            return None
    if _share(_PERIOD, texts) > 0.9 or _share("[0-9]{1,3}", texts) == 1:  # numbers with zeros in front, or codes
        return None
    # The levels of more rows than the first one that would be too many.
    ordered = sorted(facts.counts.values(), reverse=True)
    least = 1 + (ordered[MAX_LEVELS] if len(ordered) > MAX_LEVELS else 1)
    if 2 * sum(count for count in ordered if count >= least) >= sum(ordered):
        note = f"{column.note}, those of fewer than {least} rows are one (--rare=N, --categorical={column.name})"
        levels, rare = _levels(facts.counts, least, column.order)
        feature = Feature(replace(column, kind="category", note=note), levels, rare, num_missing=facts.num_missing)
        return replace(feature, is_open=True)
    why = f"{column.note}, too many for levels; --rare=N or --categorical={column.name} makes levels of them"
    return Feature(replace(column, kind="ignored", note=why))


def _share(pattern: str, texts: Sequence[str]) -> float:
    """The part of some texts that a pattern matches as a whole."""
    return sum(re.fullmatch(pattern, text, re.DOTALL) is not None for text in texts) / max(1, len(texts))


def _levels(
    counts: Mapping[str, int], rare: int | None, order: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Levels with a column of their own, and those that share one; in the order of their source, or sorted."""
    least = 0 if rare is None else rare
    levels = in_order([level for level, count in counts.items() if count >= least], order)
    return levels, tuple(sorted(set(counts) - set(levels)))


def in_order(levels: Iterable[str], order: Sequence[str]) -> tuple[str, ...]:
    """Levels in the order of their source, and the others by their letters."""
    places = {level: place for place, level in enumerate(order)}
    return tuple(sorted(levels, key=lambda level: (places.get(level, len(places)), level)))


def _parts(column: Column, facts: Facts, spec: TableSpec) -> tuple[DatePart, ...]:
    """Parts of a date that vary, of those that are wanted.

    Without --date_parts the day of the year is one if a season was seen twice, the weekday if dates have a day.
    """
    if not facts.low:
        return ()
    # How far each part ranges.
    ranges = dict(zip(PARTS, np.subtract(facts.high, facts.low), strict=True))
    has_day = not column.date_format or "%d" in column.date_format
    says_more = {"day_of_year": ranges["day"] > _YEAR, "weekday": has_day}
    chosen_parts = spec.date_parts or [part for part in PARTS if says_more.get(part, True)]
    return tuple(part for part in PARTS if part in chosen_parts and ranges[part] > 0) or ("day",)


def _refuse_levels(too_many: Mapping[str, str], spec: TableSpec, where: str) -> None:
    # One error for all of them, with flags that can be copied.
    first = list(too_many)[:MAX_NAMED]
    more = f" and {len(too_many) - len(first)} more columns" if len(too_many) > len(first) else ""
    names = ",".join(first) + (",..." if more else "")
    cure = "--rare=N, which joins the levels of fewer than N rows" + (
        f", with N above {spec.rare}" if spec.rare else ""
    )
    raise ValueError(
        f"{where} has too many levels in {', '.join(f'{name!r} ({too_many[name]})' for name in first)}{more}; leave it "
        f"out with --ignore={names}, or make columns of its levels with {cure} (so that at most {MAX_LEVELS} are left, "
        f"or {MAX_FORCED_LEVELS} with --categorical={names})."
    )


class Usable(NamedTuple):
    """The rows of a table that are used, and why others are not.

    :ivar found: cells of the rows that are used.
    :ivar kept: their numbers in the table, from 0.
    :ivar is_bad: [n], the rows that cannot be read, with `bad_rows` "drop": a cell is not of its column's kind, or
        infinite.
    :ivar is_open: [n], those with a missing value: in a target with `missing` "impute", anywhere with `bad_rows` "drop"
        otherwise.
    """

    found: Parsed
    kept: NDArray[np.int64]
    is_bad: NDArray[np.bool_]
    is_open: NDArray[np.bool_]


def usable(
    table: pa.Table,
    columns: Mapping[str, Column],
    targets: Sequence[str],
    spec: TableSpec,
    *,
    where: str,
    first_row: int = 0,
    cells: Mapping[str, Cells] | None = None,
) -> Usable:
    """Read the cells of a table, or of a block of its rows.

    :param columns: how each column is read, the targets among them; the table may have others.
    :param where: the file, for errors.
    :param first_row: number of the first row of `table` in it.
    :param cells: as of :func:`parsed`.
    :raises ValueError: naming a cell that is not of its column's kind, unless `spec` leaves such rows out.
    """
    is_imputed = spec.missing == "impute"
    is_dropping = spec.bad_rows == "drop"
    is_bad, is_open = np.zeros((2, len(table)), bool)
    # Rows with a cell that does not fit its column.
    if is_dropping:
        used = [column for column in columns.values() if column.kind != "ignored"]
        for column in used:
            is_bad |= ~fits(table[column.name], column, na_values=spec.na_values)
        if is_bad.any():
            table = table.filter(pa.array(~is_bad))
            cells = None
    rows = np.flatnonzero(~is_bad)
    found = parsed(columns, table, na_values=spec.na_values, where=where, first_row=first_row, cells=cells)
    # Rows with a missing or an infinite value.
    for name, values in found.items():
        if name in targets if is_imputed else is_dropping:
            is_open[rows] |= is_missing(values)
        if is_dropping and values.dtype.kind == "f":
            is_bad[rows] |= np.isinf(values)
    is_used = ~(is_bad | is_open)[rows]
    if not is_used.all():
        found = {name: values[is_used] for name, values in found.items()}
    return Usable(found, rows[is_used], is_bad, is_open & ~is_bad)
