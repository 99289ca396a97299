"""Ordered bins of a column of numbers, for models of zeros and ones.

bins = Bins.of(values, most=16)
bins.levels(values)                        # zeros and ones, [N, K], one 1 a row
bins.names                                 # "18", "19 to 22", ...
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bins"]


@dataclass(frozen=True)
class Bins:
    """Bins of numbers, from the lowest on.

    :ivar edges: the lowest number of each bin but the first, [K - 1], ascending; of a column of few values halfway
        between them.
    :ivar values: the value of a bin, or the median of those in it, [K].
    :ivar names: what is in a bin, in words, [K].
    """

    edges: NDArray[np.float64]
    values: NDArray[np.float64]
    names: tuple[str, ...]

    @classmethod
    def of(cls, values: NDArray[np.float64], most: int, kind: str = "number") -> Bins:
        """One bin for each value where there are few, else bins of about as many numbers.

        :param values: of the column, [N]; NaN is missing.
        :param most: bins.
        :param kind: "number", "date" (days since 1970-01-01) or "time" (hours), by which bins are named.
        :raises ValueError: if all are missing.
        """
        sorted_values = np.sort(values[~np.isnan(values)])
        distinct = np.unique(sorted_values)
        if not len(distinct):
            raise ValueError("a column of numbers must have at least one that is not missing.")
        # Few values have a bin each, with edges halfway between them.
        if len(distinct) <= most:
            return cls(
                (distinct[:-1] + distinct[1:]) / 2.0, distinct, tuple(_shown(value, kind, 15) for value in distinct)
            )
        # Edges at quantiles; equal ones, of a value that many rows have, make one bin.
        edges = np.unique(sorted_values[np.arange(1, most) * len(sorted_values) // most])
        edges = edges[edges > sorted_values[0]]
        parts = np.split(sorted_values, np.searchsorted(sorted_values, edges))
        # A middle number, so that whole numbers stay whole.
        middles = np.array([part[len(part) // 2] for part in parts])
        ends = [(part[0], part[-1]) for part in parts]
        shown = [(_shown(first, kind, 6), _shown(last, kind, 6)) for first, last in ends]
        names = [first if first == last else f"{first} to {last}" for first, last in shown]
        return cls(edges, middles, tuple(names))

    def to_json(self) -> dict[str, list[float] | list[str]]:
        """A dictionary for JSON."""
        return {"edges": self.edges.tolist(), "values": self.values.tolist(), "names": list(self.names)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Bins:
        """The inverse of :meth:`to_json`.

        :raises ValueError, KeyError or TypeError: if entries are missing or of another kind.
        """
        edges, values = (np.array(stored[key], np.float64) for key in ("edges", "values"))
        names = tuple(map(str, stored["names"]))
        if edges.ndim != 1 or not len(edges) + 1 == values.size == len(names) or not (np.diff(edges) > 0).all():
            raise ValueError("its bins have no ascending edges between their values")
        return cls(edges, values, names)

    def levels(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Which bin each number is in: zeros and ones, [N, K]; NaN in all of them where it is missing."""
        # A number on an edge is in the bin above it.
        places = np.searchsorted(self.edges, values, side="right")
        levels = (places[:, None] == np.arange(len(self.values))).astype(float)
        levels[np.isnan(values)] = np.nan
        return levels


def _shown(value: float, kind: str, digits: int) -> str:
    """A number, date or time of the day in words."""
    if kind == "date":
        moment = str(np.datetime64(round(value * 86_400_000), "ms")).replace("T", " ")
        return moment.removesuffix(".000").removesuffix(" 00:00:00")
    if kind == "time":
        return str(datetime.timedelta(milliseconds=round(value * 3_600_000)))
    return f"{value:.{digits}g}"
