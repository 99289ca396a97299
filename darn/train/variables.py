"""Columns of a table as the bits of a density: levels and bins are one variable each, and bits become values again.

variables = Variables.of(numbers, encoder, most_bins=16)
bits = variables.bits(numbers)             # [N, n], NaN where a value is missing
variables.groups                           # bits that are one variable
variables.frame(bits)                      # rows as the table has them
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_base.numbers.bins import Bins

if TYPE_CHECKING:
    import pandas as pd


__all__ = ["Variables", "moments"]

_MOMENT = ("day", "hour")  # parts of a date that say it all


def moments(encoder: Any, X: object) -> NDArray[np.float64]:
    """Rows of a frame as the numbers that :class:`Variables` take: of a date its day and its hour, and no part that
    follows from these.

    :param encoder: the `TableEncoder` that was fitted to the frame; it is changed.
    :param X: the frame.
    """
    # Weekdays and days of the year follow from the day, and would count it twice.
    columns = encoder.schema_.columns
    dated = tuple(dataclasses.replace(f, parts=_MOMENT) if f.column.kind == "date" else f for f in columns)
    encoder.schema_ = dataclasses.replace(encoder.schema_, columns=dated)
    encoder.columns_ = encoder.schema_.table()
    numbers: NDArray[np.float64] = encoder.transform(X)
    return numbers


@dataclass(frozen=True)
class _Part:
    """Numbers of a table's column and what they become.

    :ivar name: of the column, or of a part of it.
    :ivar owner: number of the column.
    :ivar width: columns of numbers: those of the levels of a category, day and hour of a date, or one.
    :ivar kind: "category", "boolean", "date", "time" or "number".
    :ivar levels: of a category, () of anything else.
    :ivar bins: of numbers that are not all 0 or 1, of dates and of times.
    :ivar has_zone: whether dates are in UTC.
    :ivar ends: the lowest and the highest number of the training rows, where there are bins.
    :ivar num_last: training rows in the first and in the last bin, [2].
    """

    name: str
    owner: int
    width: int = 1
    kind: str = "number"
    levels: tuple[str, ...] = ()
    bins: Bins | None = None
    has_zone: bool = False
    ends: tuple[float, float] = (0.0, 0.0)
    num_last: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(2))

    @property
    def bit_names(self) -> tuple[str, ...]:
        """Of the bits that it becomes."""
        levels = self.levels if self.bins is None else self.bins.names
        return tuple(f"{self.name}={level}" for level in levels) or (self.name,)

    def numbers(self, block: NDArray[np.float64]) -> NDArray[np.float64]:
        """What is binned of its columns of numbers [N, width], [N]: of dates the days since 1970."""
        return block[:, 0] + block[:, 1] / 24.0 if self.kind == "date" else block[:, 0]

    def values(self, numbers: NDArray[np.float64]) -> pd.Index | NDArray:
        """Numbers of :meth:`numbers` as a frame has them."""
        import pandas as pd

        if self.kind == "date":
            return pd.to_datetime(numbers, unit="D", utc=self.has_zone).round("ms")
        if self.kind == "time":
            return pd.to_timedelta(numbers, unit="h").round("ms")
        is_whole = (numbers % 1 == 0).all() and np.abs(numbers).max() < 2.0**63
        return numbers.astype(np.int64) if is_whole else numbers

    def binned(self, numbers: NDArray[np.float64], most: int) -> _Part:
        """The part with at most so many bins of its training rows' numbers."""
        # What lies beyond the ends is charged for by how many rows the last bin has, and how far away it is.
        bins = Bins.of(numbers, most, self.kind)
        counts = np.nansum(bins.levels(numbers), axis=0)
        ends = (float(np.nanmin(numbers)), float(np.nanmax(numbers)))
        return dataclasses.replace(self, bins=bins, ends=ends, num_last=counts[[0, -1]])

    def beyond(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """log of the share of its bin that a number beyond those of the training rows has, [N]; 0 for others.

        The next of n + 1 numbers is above n others with probability 1 / (n + 1); by more than d then with r / (r + d),
        where r is the range of all.
        """
        # How far a number lies beyond the training rows, which end it is, and their range.
        low, high = self.ends
        distance = np.nan_to_num(np.maximum(low - numbers, numbers - high))
        number = np.where(numbers < low, *self.num_last)
        spread = high - low or abs(high) or 1.0
        share = np.log1p(number) + np.log1p(distance.clip(0.0) / spread)
        return np.where(distance > 0.0, -share, 0.0)


class Variables:
    """Columns of a table and the bits that they become.

    :ivar columns: names of the table's columns, [C].
    :ivar names: of the bits, [n].
    :ivar groups: bits that are one variable, for each category and each column of bins.
    :ivar owners: number of the column that each bit is of, [n].

    :param columns: names of the table's columns.
    :param parts: what their numbers become.
    :param groups: of numbers that are bits, columns of each category.
    """

    def __init__(self, columns: Sequence[str], parts: Sequence[_Part], groups: Sequence[Sequence[int]] = ()) -> None:
        self.columns = tuple(columns)
        self._parts = tuple(parts)
        widths = [len(part.bit_names) for part in parts]
        self.names = tuple(name for part in parts for name in part.bit_names)
        # Which bits each part has.
        self.owners = np.repeat([part.owner for part in parts], widths)
        self._starts = np.cumsum([0, *widths])
        spans = [tuple(range(start, start + width)) for start, width in zip(self._starts, widths, strict=False)]
        # Groups that were given are of numbers, and parts of one number each.
        number_groups = [tuple(bit for number in group for bit in spans[number]) for group in groups]
        self.groups = (*(span for span in spans if len(span) > 1), *number_groups)

    @classmethod
    def of(
        cls,
        numbers: NDArray[np.float64],
        encoder: Any,
        most_bins: int,
        names: Sequence[str],
        groups: Sequence[Sequence[int]] = (),
    ) -> Variables:
        """The variables of training rows.

        :param numbers: [N, F], NaN where a value is missing.
        :param encoder: the `TableEncoder` that made them of a frame; None if they are the columns of a table.
        :param most_bins: of a column of numbers.
        :param names: of the columns, without an encoder.
        :param groups: columns of each category, without an encoder.
        :raises ValueError: if a column has no value.
        """
        # Parts: columns of an array, or features of a frame.
        parts = []
        features = None if encoder is None else [f for f in encoder.schema_.columns if f.value_names]
        if features is None:
            parts = [_Part(name, owner) for owner, name in enumerate(names)]
        else:
            names = [feature.name for feature in features]
            for owner, feature in enumerate(features):
                levels = (*feature.levels, *(["(rare)"] if feature.rare else []))
                width = len(feature.value_names)
                has_zone = feature.column.zone != ""
                parts.append(_Part(feature.name, owner, width, feature.column.kind, levels, has_zone=has_zone))
        # Numbers that are not bits, dates and times are binned.
        in_groups = {column for group in groups for column in group}
        start = 0
        binned_parts = []
        for part in parts:
            values = part.numbers(numbers[:, start : start + part.width])
            is_number = part.kind == "number" and start not in in_groups
            if part.kind in ("date", "time") or (is_number and not np.isin(values[~np.isnan(values)], (0, 1)).all()):
                part = part.binned(values, most_bins)
            binned_parts.append(part)
            start += part.width
        return cls(names, binned_parts, groups)

    def bits(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """What the numbers [N, F] become, [N, n]; numbers that were 0 and 1 in the training rows stay as they are."""
        blocks = [
            block if part.bins is None else part.bins.levels(part.numbers(block))
            for part, block in self._blocks(numbers)
        ]
        return np.concatenate(blocks, axis=1)

    def beyond(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Nats that log p of a row has less, by the table's columns [N, C], as their numbers are beyond those of the
        training rows."""
        penalties = np.zeros([len(numbers), len(self.columns)])
        for part, block in self._blocks(numbers):
            if part.bins is not None:
                penalties[:, part.owner] = -part.beyond(part.numbers(block))
        return penalties

    def _blocks(self, numbers: NDArray[np.float64]) -> Iterator[tuple[_Part, NDArray[np.float64]]]:
        """Each part with its columns of the numbers."""
        starts = np.cumsum([0, *(part.width for part in self._parts)])
        for part, (begin, end) in zip(self._parts, itertools.pairwise(starts), strict=True):
            yield part, numbers[:, begin:end]

    def by_column(self, by_bit: NDArray[np.float64], reduce: np.ufunc = np.add) -> NDArray[np.float64]:
        """Numbers of bits [N, n] as those of the table's columns, [N, C].

        :param reduce: how those of one column are joined.
        """
        firsts = np.searchsorted(self.owners, np.arange(len(self.columns)))
        joined: NDArray[np.float64] = reduce.reduceat(by_bit, firsts, axis=1)
        return joined

    def frame(self, bits: np.ndarray) -> pd.DataFrame:
        """Rows [N, n] as a frame of pandas: texts of levels, truth values, and of a bin a number, date or time."""
        import pandas as pd

        # Texts of levels, the middles of bins, or the bit itself.
        columns: dict[str, pd.Index | NDArray] = {}
        for part, (begin, end) in zip(self._parts, itertools.pairwise(self._starts), strict=True):
            block = np.asarray(bits[:, begin:end])
            if part.levels:
                levels = np.array([*part.levels, None], object)
                columns[part.name] = levels[np.where(block.any(axis=1), block.argmax(axis=1), len(part.levels))]
            elif part.bins is not None:
                columns[part.name] = part.values(part.bins.values)[block.argmax(axis=1)]
            else:
                columns[part.name] = block[:, 0].astype(bool if part.kind == "boolean" else np.int64)
        return pd.DataFrame(columns)

    def named(self, bits: NDArray[np.float64]) -> pd.DataFrame:
        """Numbers of bits [N, n] as a frame of pandas, a column a bit."""
        import pandas as pd

        return pd.DataFrame(bits, columns=list(self.names))
