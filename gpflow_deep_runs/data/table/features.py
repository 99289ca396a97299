"""What a column of a table becomes in X: numbers as they are, dates their parts, each level a column of zeros and ones.

    feature = Feature(Column("colour", "category"), levels=("blue", "red"), rare=("pink",), num_missing=3)
    feature.names                                    # colour=blue, colour=red, colour=(rare), colour=missing
    feature.encode(feature.coded(cells), into)       # writes its columns of X

| kind         | cells, as `columns.parse` returns them   | columns of X                                         |
|--------------|------------------------------------------|------------------------------------------------------|
| number, time | float64, NaN where missing               | itself                                               |
| boolean      | 0 and 1, NaN where missing               | itself                                               |
| date         | days since 1970-01-01, NaN where missing | those of its parts that vary, see :func:`date_parts` |
| category     | text, None where missing                 | one for each level, NaN in all where it is missing   |
| ignored      |                                          | none                                                 |

For models of zeros and ones, numbers, dates and times have a column for each of their bins. A column that has missing
values in training has one more, NAME=missing: 1 where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_base.numbers.bins import Bins
from gpflow_deep_runs.data.files.libraries import pa, pc, pd
from gpflow_deep_runs.data.table.columns import Column
from gpflow_deep_runs.data.table.spec import PARTS, DatePart
from gpflow_deep_runs.data.values.cells import quoted

__all__ = ["Feature", "date_parts"]

_DAY = 24 * 3600 * 1000
"""Milliseconds."""


@dataclass(frozen=True)
class Feature:
    """A column of a table, and what it becomes.

    :param column: how its cells are read.
    :param levels: of a category: those with a column of X of their own, in its order.
    :param rare: of a category: levels that share one column of X, the last; () if there is none.
    :param parts: of a date: those that X has.
    :param num_missing: missing values in the table that the model learned from.
    :param bins: of a number, of :meth:`moments` of a date, or of a time.
    :param is_open: of a category: a level that is not known is one more of the rare ones, without a flag.
    """

    column: Column
    levels: tuple[str, ...] = ()
    rare: tuple[str, ...] = ()
    parts: tuple[DatePart, ...] = ()
    num_missing: int = 0
    bins: Bins | None = None
    is_open: bool = False

    @property
    def name(self) -> str:
        """Of the column of the table."""
        return self.column.name

    @property
    def is_used(self) -> bool:
        """Whether a new table must have the column."""
        return self.column.kind != "ignored"

    @property
    def value_names(self) -> tuple[str, ...]:
        """Names of its columns of X, but for the one that says where values are missing."""
        # A column for each bin, level or part, or the number itself.
        if self.bins is not None:
            return tuple(f"{self.name}={name}" for name in self.bins.names)
        match self.column.kind:
            case "ignored":
                return ()
            case "category":
                return tuple(f"{self.name}={level}" for level in (*self.levels, *(["(rare)"] if self.rare else [])))
            case "date":
                return tuple(f"{self.name}.{part}" for part in self.parts)
        return (self.name,)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its columns of X."""
        told = "(missing)" if "missing" in self.levels else "missing"
        return (*self.value_names, *([f"{self.name}={told}"] if self.is_used and self.num_missing else []))

    def coded(self, cells: Any) -> NDArray[np.float64]:
        """Cells [n] of a category as the numbers of their columns, NaN where missing; other cells as they are.

        An unknown level is -1: it is read as a rare one, or as none of the levels if there are no rare ones.
        """
        if self.column.kind != "category":
            return np.asarray(cells)
        # All rare levels have the number of the column that they share.
        level_numbers = pd.Index([*self.levels, *self.rare], dtype=object).get_indexer(cells.categories)
        return np.append(np.minimum(level_numbers, len(self.levels)), np.nan)[cells.codes]

    def moments(self, columns: NDArray[np.float64]) -> NDArray[np.float64]:
        """What bins are of, [n]: of a date its day with the hour as a fraction, or its only part.

        :param columns: the number itself, or the parts of a date, [n, number of parts].
        """
        return columns[:, 0] if columns.shape[1] == 1 else columns[:, 0] + columns[:, 1] / 24.0

    def encode(self, coded: np.ndarray, into: NDArray[np.float64]) -> None:
        """Write its columns of X, fast and by several threads at once, as streams need it.

        :param coded: [n], of :meth:`coded`.
        :param into: its columns of X, zeros [n, number of names], which become NaN where a value is missing.
        """
        width = len(self.value_names)
        # The values: a one in the column of the level, parts of the date, bins, or the number itself.
        if self.column.kind == "category":
            codes = np.where(coded < 0, len(self.levels), coded) if self.rare else coded
            rows = np.flatnonzero((codes >= 0) & (codes < width))
            into[rows, codes[rows].astype(np.intp)] = 1.0
        else:
            numbers = date_parts(coded[:, None], self.parts) if self.column.kind == "date" else coded[:, None]
            into[:, :width] = numbers if self.bins is None else self.bins.levels(self.moments(numbers))
        # Where a value is missing: NaN in all of these, and a one in the column that says so.
        has_levels = self.column.kind == "category" or self.bins is not None
        if has_levels and (is_missing := np.isnan(coded)).any():
            into[is_missing, :width] = np.nan
        if self.num_missing:
            into[:, width] = np.isnan(coded)

    def check_known(self, values: Any, where: str, first_row: int = 0) -> None:
        """Refuse levels that are none of those of a category.

        :param values: cells of the column.
        :param first_row: number of the first of them in what `where` names.
        :raises ValueError: naming the column, the first such row and its value, and the flag that reads it.
        """
        if self.column.kind != "category" or self.is_open:
            return
        # The first unknown level names its row.
        known_levels = [*self.levels, *self.rare]
        is_unknown = self.coded(values) < 0
        if is_unknown.any():
            row = int(is_unknown.argmax())
            raise ValueError(
                f"column {self.name!r} of {where} has the value {values[row]!r} in row {first_row + row} (from 0), no "
                f"level of the training data ({quoted(known_levels)}; {int(is_unknown.sum())} such rows); give "
                f"--unknown=level to read it as {'a rare level' if self.rare else 'none of them'}, or drop such rows."
            )

    def to_json(self) -> dict[str, object]:
        """A dictionary for JSON; entries that say nothing are left out."""
        facts: dict[str, object] = {"levels": self.levels, "rare": self.rare, "parts": self.parts}
        facts |= {"num_missing": self.num_missing, "is_open": self.is_open}
        binned = {} if self.bins is None else {"bins": self.bins.to_json()}
        return {"column": self.column.to_json(), **{key: value for key, value in facts.items() if value}, **binned}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Feature:
        """The inverse of :meth:`to_json`.

        :raises ValueError, KeyError or TypeError: if entries are missing or of another kind.
        """
        # What is not stored is the default.
        levels, rare, parts = (tuple(map(str, stored.get(key, ()))) for key in ("levels", "rare", "parts"))
        if unknown := set(parts) - set(PARTS):
            raise ValueError(f"{sorted(unknown)[0]!r} is no part of a date")
        if len(set(levels)) < len(levels):
            raise ValueError("a category is there twice")
        num_missing = int(stored.get("num_missing", 0))
        bins = Bins.from_json(stored["bins"]) if "bins" in stored else None
        column = Column.from_json(stored["column"])
        is_open = bool(stored.get("is_open", False))
        return cls(column, levels, rare, cast(tuple[DatePart, ...], parts), num_missing, bins, is_open)


def date_parts(days: NDArray[np.float64], parts: Sequence[DatePart] = PARTS) -> NDArray[np.float64]:
    """Days since 1970-01-01 [n, 1], with the fraction of the day, as the columns `parts`; NaN stays NaN.

    "day": whole days since 1970-01-01; "day_of_year": from 1; "weekday": 0 on Mondays; "hour": with its fraction, to
    the millisecond.
    """
    days = np.asarray(days, np.float64)
    # Milliseconds are whole, so that rounding does not move a moment into the day before.
    is_known = np.isfinite(days)
    milliseconds = np.rint(np.where(is_known, days, 0.0) * _DAY)
    day = np.floor(milliseconds / _DAY)
    columns: dict[DatePart, NDArray[np.float64]] = {}
    if "day" in parts:
        columns["day"] = day
    if "day_of_year" in parts:
        calendar = pa.array(day.ravel().astype(np.int32)).cast(pa.date32())
        columns["day_of_year"] = pc.day_of_year(calendar).to_numpy().astype(np.float64).reshape(day.shape)
    if "weekday" in parts:
        columns["weekday"] = (day + 3) % 7
    if "hour" in parts:
        columns["hour"] = (milliseconds - day * _DAY) / (_DAY / 24)
    return np.concatenate([np.where(is_known, columns[part], np.nan) for part in parts], axis=1)
