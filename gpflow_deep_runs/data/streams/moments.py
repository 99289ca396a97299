"""What one pass keeps of all rows: counts, means and squared deviations, and a random sample."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data.rows import Part

__all__ = ["Moments", "Sample", "Scale"]


class Scale(NamedTuple):
    """Mean and standard deviation (divisor n) of each column [D]; those of a constant column are its value and 1."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    constant_columns: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean, sum of squared deviations and range of each column [D]: what standardisation needs, mergeable.

    NaN is a missing value: it counts nowhere.
    """

    count: NDArray[np.int64]
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @classmethod
    def of(cls, array: NDArray[np.float64]) -> "Moments":
        """Those of `array` [n, D]."""
        num_rows, num_columns = array.shape
        if num_rows:
            mean = array.mean(axis=0)
            if np.isfinite(mean).all():  # no NaN
                squares = np.square(array - mean).sum(axis=0)
                return cls(np.full(num_columns, num_rows), mean, squares, array.min(axis=0), array.max(axis=0))
        # With missing values only those that are there count.
        is_there = ~np.isnan(array)
        count = is_there.sum(axis=0)
        mean = np.where(is_there, array, 0.0).sum(axis=0) / np.maximum(count, 1)
        squares = np.square(np.where(is_there, array - mean, 0.0)).sum(axis=0)
        low, high = (np.where(is_there, array, limit) for limit in (np.inf, -np.inf))
        return cls(count, mean, squares, low.min(axis=0, initial=np.inf), high.max(axis=0, initial=-np.inf))

    @classmethod
    def constant(cls, count: NDArray[np.int64], value: NDArray[np.float64]) -> "Moments":
        """Those of `count` [D] rows that all hold `value` [D]."""
        has = count > 0
        zeros = np.zeros(len(value))
        low = np.where(has, value, np.inf)
        high = np.where(has, value, -np.inf)
        return cls(count, np.where(has, value, 0.0), zeros, low, high)

    def merge(self, other: "Moments") -> "Moments":
        """Those of both sets of rows together; Chan, Golub and LeVeque (1979), Eq. (2.1)."""
        count = self.count + other.count
        change = other.mean - self.mean
        fraction = other.count / np.maximum(count, 1)
        return Moments(
            count,
            self.mean + change * fraction,
            self.squares + other.squares + np.square(change) * (self.count * fraction),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )

    def scale(self) -> Scale:
        """Standardisation; a column is constant if it deviates by no more than rounding."""
        deviation = np.sqrt(self.squares / self.count)
        bound = 4 * np.finfo(np.float64).eps * np.maximum(np.abs(self.low), np.abs(self.high))
        is_constant = (self.low == self.high) | (deviation <= bound)
        mean = np.where(is_constant, self.low, self.mean)
        scale = np.where(is_constant, 1.0, deviation)
        return Scale(mean, scale, tuple(map(int, np.flatnonzero(is_constant))))


class Sample:
    """The rows with the smallest hashes of those added: a sample that depends neither on blocks nor on their order.

    :param size: most rows to keep.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._held = 0
        self._bound = np.uint64(2**64 - 1)
        self._pieces: list[tuple[np.ndarray, ...]] = []

    def add(self, order: NDArray[np.uint64], X: np.ndarray, Y: np.ndarray) -> None:
        """Rows X [n, D] and Y [n, P] with their hashes [n]."""
        # Rows above the bound are in no sample of this size.
        is_small = order <= self._bound
        self._pieces.append((order[is_small], X[is_small], Y[is_small]))
        self._held += int(is_small.sum())
        if self._held >= 2 * self._size:
            self._reduce()

    def rows(self) -> Part:
        """Those kept, by increasing hash."""
        self._reduce()
        _, X, Y = self._pieces[0]
        return Part(X, Y)

    def _reduce(self) -> None:
        order, X, Y = (np.concatenate(arrays) for arrays in zip(*self._pieces, strict=True))
        smallest = np.argsort(order, kind="stable")[: self._size]
        self._pieces = [(order[smallest], X[smallest], Y[smallest])]
        self._held = len(smallest)
        if self._held == self._size:
            self._bound = order[smallest[-1]]
