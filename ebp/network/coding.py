"""How raw inputs, dense or sparse, are coded for networks of sign neurons: learned from the training part alone.

    raw      x
    scaled   x / s                   s: the column's standard deviation; 0 stays 0, so that sparse inputs stay sparse
    root     x / sqrt(s)         between raw, which rare words hardly enter, and scaled, which they rule
    common   x / S                   S: one standard deviation for all columns, as for pixels
    zscore   (x - m) / s             m: the column's mean
    centred  (x - m) / S
    sign     +1 if x > m, else -1

The results of the middle five are rounded to multiples of 2^-8. That changes nothing that can be learned, but sums of
them with weights -1 and +1 are exact in float32 (up to 2^24 such units), so that they do not depend on the order. A
column that does not vary in the training part says nothing and becomes 0, under `sign` -1; `raw` leaves it.

    coding = InputCoding.fit("zscore", X)                                    # or, of data that come in parts:
    coding = InputCoding.of("zscore", Moments.of(X_1) + Moments.of(X_2))

This module needs NumPy alone; sparse matrices are SciPy's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard, cast, get_args

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FRACTION_BITS",
    "MAX_DENSE",
    "InputCoding",
    "Kind",
    "Matrix",
    "Moments",
    "common_fraction_bits",
    "fraction_bits",
    "is_sparse",
    "recommended",
]

if TYPE_CHECKING:  # this module needs NumPy alone
    import scipy.sparse
    import tensorflow as tf


#: Inputs: a dense array, or a SciPy sparse matrix, which is never made dense.
Matrix: TypeAlias = "np.ndarray | scipy.sparse.csr_matrix | tf.Tensor"

Kind = Literal["raw", "scaled", "root", "common", "zscore", "centred", "sign"]

RECOMMENDED: dict[str, Kind] = {
    "reuters_i6": "scaled",
    "ng20_comp_hw": "scaled",
    "ng20_elec_med": "scaled",
    "amazon_apparel_books": "raw",
    "movie_reviews": "raw",
    "spamassassin": "raw",
    "mnist": "common",
    "rectangles_images": "common",
}
"""Data sets for which codings were compared, or whose columns are pixels."""

_SPARSE = ("raw", "scaled", "root", "common")

FRACTION_BITS = 8
"""Coded inputs are multiples of 2^-8, but for those of `raw` and `sign`."""

_UNIT = 2.0**-FRACTION_BITS
MAX_DENSE = 400_000_000
"""Numbers of the largest sparse matrix that is made dense."""


def is_sparse(X: object) -> TypeGuard[scipy.sparse.csr_matrix]:
    """Whether `X` is a sparse matrix of SciPy; it is not imported for that."""
    return hasattr(X, "tocsr")


@dataclass(frozen=True, eq=False)
class Moments:
    """What a coding learns from rows; the sum of two is that of all rows of both.

    Numbers of any size that float64 holds have them: no square is taken before a column is divided by its size.

    :ivar num_rows: number of rows, or the sum of their weights.
    :ivar mean: of each column, [D].
    :ivar deviation: standard deviation of each column, [D].
    :ivar varies: whether the column's values differ, by more than rounding of their sums can tell, [D].
    """

    num_rows: float
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    varies: NDArray[np.bool_]

    @classmethod
    def of(cls, X: Matrix, weight: NDArray[np.float64] | None = None) -> Moments:
        """Those of rows.

        :param X: [N, D], N >= 1, an array or a SciPy sparse matrix.
        :param weight: how often each row counts, [N]; None, or zeros only: once.
        """
        num_rows = X.shape[0]
        if weight is None or not np.any(weight > 0):
            weight = np.ones(num_rows)
        total = float(np.sum(weight))
        # A single row is its mean, and varies in no column.
        if num_rows == 1 and not is_sparse(X):
            row = np.array(X[0], np.float64)
            return cls(total, row, np.zeros_like(row), np.zeros(row.shape, np.bool_))
        # Sparse: sums over entries, in units of the column's size, so that no square overflows.
        if is_sparse(X):
            X = X.tocoo()
            largest = np.zeros(X.shape[1])
            np.maximum.at(largest, X.col, np.abs(X.data, dtype=np.float64))
            unit = _power_of_two(largest)
            scaled = X.data / unit[X.col]
            share = weight[X.row] / total
            mean: np.ndarray = np.bincount(X.col, share * scaled, X.shape[1])
            square = np.bincount(X.col, share * scaled**2, X.shape[1])
            var = np.maximum(square - mean**2, 0.0)
            varies = var > 1e-12 * square
        else:
            # Dense: the mean first, then squares of the distances from it.
            X = np.asarray(X, np.float64)
            unit = _power_of_two(np.max(np.abs(X), axis=0))
            scaled = X / unit
            is_plain = np.all(weight == weight[0])
            mean = scaled.mean(axis=0) if is_plain else weight @ scaled / total
            square = np.square(scaled - mean)
            var = square.mean(axis=0) if is_plain else weight @ square / total
            varies = var > (1e-13 * mean) ** 2
        return cls(total, mean * unit, np.sqrt(var) * unit, varies)

    def __add__(self, other: Moments) -> Moments:
        """Those of all rows."""
        num_rows = self.num_rows + other.num_rows
        # The law of total variance: within the two parts, and between their means.
        part = other.num_rows / num_rows
        distance = other.mean - self.mean
        within = np.hypot(math.sqrt(1.0 - part) * self.deviation, math.sqrt(part) * other.deviation)
        deviation = np.hypot(within, math.sqrt(part * (1.0 - part)) * distance)
        differs = np.abs(distance) > 1e-12 * (np.abs(self.mean) + np.abs(other.mean))
        return Moments(num_rows, self.mean + part * distance, deviation, self.varies | other.varies | differs)

    def with_columns(self, number: int) -> Moments:
        """Of the same rows, with columns of zeros behind the others, so many in all."""
        room = (0, number - len(self.mean))
        return Moments(self.num_rows, np.pad(self.mean, room), np.pad(self.deviation, room), np.pad(self.varies, room))

    @property
    def scale(self) -> NDArray[np.float64]:
        """Standard deviations, 1 where a column does not vary, [D]."""
        return np.where(self.varies & (self.deviation > 0), self.deviation, 1.0)

    def with_common_scale(self) -> Moments:
        """With the root of the mean variance as the deviation of every column that varies."""
        unit = _power_of_two(np.max(self.deviation, keepdims=True))
        common = unit * np.sqrt(np.mean(np.square(self.deviation / unit)))
        return replace(self, deviation=np.where(self.varies, common, self.deviation))

    def standardised(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows [N, D] of mean 0 and standard deviation 1; columns that do not vary become 0."""
        return np.where(self.varies, (X - self.mean) / self.scale, 0.0)


def _power_of_two(largest: NDArray[np.float64]) -> NDArray[np.float64]:
    """The power of two below each positive number, so that a division by it is exact; 1 for 0."""
    _, exponent = np.frexp(np.where(largest > 0, largest, 1.0))
    return np.ldexp(1.0, exponent - 1)


@dataclass(frozen=True, eq=False)
class InputCoding:
    """The map from raw inputs [N, D] to float32 inputs of a network, [N, D].

    :param kind: one of those in the module's docstring.
    :param mean: m of each column, [D].
    :param factor: 1 / s, 1 / sqrt(s) or 1 / S of each column, 0 where it does not vary, [D].
    """

    kind: Kind
    mean: NDArray[np.float64]
    factor: NDArray[np.float64]

    @classmethod
    def fit(cls, kind: str, X: Matrix) -> InputCoding:
        """Learn the coding from the training part `X` [N, D], an array or a SciPy sparse matrix.

        :raises ValueError: if `kind` is unknown, or `X` has no rows or another shape.
        """
        X = X if is_sparse(X) else np.asarray(X)
        if X.ndim != 2 or not X.shape[0]:
            raise ValueError(f"inputs must be of shape [N, D], with at least one row, got {list(X.shape)}.")
        return cls.of(kind, Moments.of(X))

    @classmethod
    def of(cls, kind: str, moments: Moments) -> InputCoding:
        """The coding that is learned from rows of these moments.

        :raises ValueError: if `kind` is unknown.
        """
        if kind not in get_args(Kind):
            raise ValueError(f"input_coding must be one of {', '.join(get_args(Kind))}, got {kind!r}.")
        deviation = moments.deviation
        # s, sqrt(s) or S, by the kind.
        if kind in ("common", "centred"):
            deviation = moments.with_common_scale().deviation
        elif kind == "root":
            deviation = np.sqrt(deviation)
        # A column whose standard deviation has no inverse in float64 is one that does not vary.
        is_used = moments.varies & (deviation > 1.0 / np.finfo(np.float64).max)
        factor = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=is_used)
        return cls(cast(Kind, kind), moments.mean, factor)

    def transform(self, X: Matrix) -> Matrix:
        """Code `X` [N, D]: a float32 array, or CSR matrix if `X` is sparse and zeros stay zeros.

        :raises ValueError: if `X` has another number of columns, or is sparse and too large to be made dense.
        """
        X = X if is_sparse(X) else np.asarray(X)
        if X.ndim != 2 or X.shape[1] != len(self.mean):
            raise ValueError(f"inputs must be of shape [N, {len(self.mean)}], got {list(X.shape)}.")
        # Codings under which 0 stays 0: of a sparse matrix the entries alone are coded.
        if is_sparse(X) and self.kind in _SPARSE:
            X = X.tocsr()
            if self.kind == "raw":
                return X.astype(np.float32, copy=True)
            coded = type(X)((_rounded(X.data * self.factor[X.indices]), X.indices.copy(), X.indptr.copy()), X.shape)
            coded.eliminate_zeros()
            return coded
        # All others need a dense matrix.
        if is_sparse(X):
            if X.shape[0] * X.shape[1] > MAX_DENSE:
                raise ValueError(
                    f"input_coding={self.kind} would make a dense matrix of {X.shape[0]} x {X.shape[1]} numbers; use "
                    f"{', '.join(_SPARSE)}, which keep it sparse."
                )
            X = X.toarray()
        if self.kind == "raw":
            return np.asarray(X, np.float32)
        if self.kind == "sign":
            return np.where(self.mean < X, np.float32(1), np.float32(-1))
        return _rounded((X if self.kind in _SPARSE else X - self.mean) * self.factor)

    def to_json(self) -> dict[str, object]:
        """A dictionary of lists and numbers for JSON; exact."""
        return {"kind": self.kind, "mean": self.mean.tolist(), "factor": self.factor.tolist()}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> InputCoding:
        """The inverse of :meth:`to_json`.

        :raises ValueError: if entries are missing or do not fit each other.
        """
        try:
            kind = stored["kind"]
            mean = np.array(stored["mean"], float)
            factor = np.array(stored["factor"], float)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the stored input coding is damaged ({error!r}); take an undamaged copy.") from error
        if kind not in get_args(Kind) or mean.ndim != 1 or mean.shape != factor.shape:
            raise ValueError("the stored input coding is damaged (its parts do not fit); take an undamaged copy.")
        return cls(kind, mean, factor)


def fraction_bits(X: Matrix) -> int | None:
    """The least e from 0 to 24 such that all of `X` (an array or a sparse matrix) are multiples of 2^-e, or None."""
    values = np.asarray(X.data if is_sparse(X) else X, np.float64)
    for bits in range(25):
        scaled = values * 2.0**bits
        if np.array_equal(scaled, np.rint(scaled)):
            return bits
    return None


def common_fraction_bits(*parts: object) -> int:
    """The least e such that all of several arrays or sparse matrices are multiples of 2^-e.

    :raises ValueError: if they are not multiples of 2^-24.
    """
    part_bits = [fraction_bits(X) for X in parts]
    if None in part_bits:
        raise ValueError(
            "packed networks need inputs with exact sums, multiples of 2^-24 at least, and these are not; use an "
            "input_coding other than raw, or round them."
        )
    return max(bits for bits in part_bits if bits is not None)


def recommended(dataset: str, X: Matrix) -> Kind:
    """The coding to begin with: of a known data set, else "root" for sparse and "zscore" for dense `X`."""
    return RECOMMENDED.get(dataset, "root" if is_sparse(X) else "zscore")


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float32]:
    return (np.rint(values / _UNIT) * _UNIT).astype(np.float32)
