"""Weights rounded to a few values by what that costs: distance in units of the posterior, and bits.

    books = rate_search(kernels, variances, 32, error_of, max_error=1.8)
    book = rate_book(kernel, variance, 32, rate=0.1)

The weight w with the posterior variance V takes the value c of the lowest

    (w - c)^2 / 2V + rate bits(c),

where bits(c) = -log2 of the part of the layer's weights that have c, as a file takes them, and c is the mean of its
weights, each counted 1 / V times. Both are found in turns after a k-means (entropy-constrained quantisation: Chou,
Lookabaugh and Gray, 1989), in which weights begin at 0 if that costs less than log2 k bits. So one of which the data
say little goes to 0, which is always a value that may be taken, and weights that are 0 stay 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .codebook import Codebook, codebook, nearest

__all__ = ["RATES", "rate_book", "rate_search"]

RATES = tuple(2.0**power for power in range(-6, 5))
"""To try, in nats per bit; ln 2 is what a bit costs in the variational bound."""

_ROUNDS = 100
_LEAST_VARIANCE = 1e-12


def rate_book(weights: ArrayLike, variances: ArrayLike, k: int, *, rate: float, seed: int = 0) -> Codebook:
    """A codebook of at most `k` values for the weights of a layer.

    :param weights: float array of any shape, not empty.
    :param variances: posterior variances V of the same shape. Where all are 0, as in layers that are not Bayesian, it
        is a k-means.
    :param k: 2 to 256.
    :param rate: nats of (w - c)^2 / 2V that a bit is worth. More uses fewer values, and these more often.
    :param seed: of k-means.
    :raises ValueError: if a number is out of range, shapes differ, or weights are not finite.
    """
    w = np.asarray(weights, np.float32)
    V = np.asarray(variances, np.float64)
    if not 2 <= k <= 256 or not 0 <= rate < float("inf"):
        raise ValueError(f"k must be 2 to 256, and rate finite and at least 0, got {k=}, {rate=}.")
    if w.shape != V.shape or not np.all(V >= 0):
        raise ValueError(f"variances must be at least 0 and of the shape of the weights {w.shape}, got {V.shape}.")
    if not np.any(V):
        return codebook(w, k, seed=seed)
    # (w - c)^2 / 2V in units of the posterior; weights that are 0 are sure to be so.
    flat = w.ravel().astype(np.float64)
    precisions = 1 / np.maximum(np.where(flat == 0, 0, V.ravel()), _LEAST_VARIANCE)
    # k-means with 0 among the centres; weights begin at 0 if that costs less than log2 k bits.
    start = nearest(flat, np.union1d(codebook(w, k - 1, seed=seed).centres, np.float16(0)))
    centres = start.centres.astype(np.float64)
    indices = start.indices.astype(np.int64)
    zero = int(np.searchsorted(centres, 0))
    indices[0.5 * precisions * np.square(flat) < rate * np.log2(k)] = zero
    # In turns: the means of the weights of each value, and for each weight the cheapest value.
    for _ in range(_ROUNDS):
        centres = _means(flat, precisions, indices, centres)
        centres[zero] = 0
        previous_indices = indices
        indices = _cheapest(flat, precisions, centres, rate * _bits(indices, len(centres)))
        if np.array_equal(previous_indices, indices):
            break
    # Leave out values without weights, and merge those that are equal in float16.
    used, places = np.unique(indices, return_inverse=True)
    rounded, merged = np.unique(centres[used].astype(np.float16), return_inverse=True)
    return Codebook(rounded, merged[places].reshape(w.shape).astype(np.uint8))


def rate_search(
    kernels: Sequence[ArrayLike],
    variances: Sequence[ArrayLike],
    k: int,
    error_of: Callable[[Sequence[Codebook]], float],
    *,
    max_error: float,
    tuned: Callable[[list[Codebook]], list[Codebook]] = list,
    seed: int = 0,
) -> list[Codebook]:
    """Codebooks of all layers by the highest of `RATES` at which the error stays within a bound.

    Errors of trained centres go up and down by chance, so the search ends at the second rate in a row that is too high.

    :param error_of: of the network with these kernels, on data that are used for nothing else.
    :param tuned: trains centres, see `compression.rounding.codebook.fine_tune`, before the error is looked at.
    :return: those of the lowest rate if the error is too high for all.
    """
    best_books: list[Codebook] = []
    misses = 0
    # From the lowest rate up, until the error is too high twice in a row.
    for rate in RATES:
        books = tuned([rate_book(w, V, k, rate=rate, seed=seed) for w, V in zip(kernels, variances, strict=True)])
        if not best_books or error_of(books) <= max_error:
            best_books = books
            misses = 0
        elif misses:
            break
        else:
            misses = 1
    return best_books


def _bits(indices: NDArray[np.int64], k: int) -> NDArray[np.float64]:
    """Of each value, -log2 of the part of the weights that have it, [k]."""
    counts = np.bincount(indices, minlength=k) + 0.5
    return np.asarray(-np.log2(counts / counts.sum()))


def _cheapest(
    w: NDArray[np.float64], precisions: NDArray[np.float64], centres: NDArray[np.float64], costs: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Of each weight the value that costs least, [n]; one value after the other, as layers may be large."""
    best = np.full(w.shape, np.inf)
    indices = np.zeros(w.shape, np.int64)
    for number, (centre, cost) in enumerate(zip(centres, costs, strict=True)):
        centre_costs = 0.5 * precisions * np.square(w - centre) + cost
        indices[centre_costs < best] = number
        best = np.minimum(best, centre_costs)
    return indices


def _means(
    w: NDArray[np.float64], precisions: NDArray[np.float64], indices: NDArray[np.int64], centres: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Of each value the mean of its weights; it stays where it is without any, [k]."""
    # sum (w - c)^2 / 2V is least at the mean weighted by 1 / V.
    sums = np.bincount(indices, precisions * w, len(centres))
    totals = np.bincount(indices, precisions, len(centres))
    return np.where(totals > 0, sums / np.where(totals > 0, totals, 1), centres)
