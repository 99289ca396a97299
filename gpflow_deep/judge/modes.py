"""Modes of predictive densities: the values of y about which a mixture is highest.

    found = find_modes(predictive(likelihood, X, means, variances))
    found.values[n, p]                                    # y of each mode of a row, the highest first, then NaN

What is looked at are the masses of cells between quantiles, so that no narrow component is missed. A mixture of draws
is bumpy: a maximum counts if the density falls by a share of its height, the `prominence`, on the way to a higher one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .predictive import Predictive

__all__ = ["PROMINENCE", "Modes", "find_modes", "joined"]

Array = NDArray[np.float64]

PROMINENCE = 0.2
"""The share of its height by which a density falls around a mode."""

_CELLS = 256
_MAX_COUNTS = 40 * _CELLS
_FINE = 64
_ENDS = (1e-3, 1 - 1e-3)
_EMPTY = 1e-9


class Modes(NamedTuple):
    """Modes of the P targets of N rows, the highest of each first; C is the largest number of them.

    :ivar values: of the targets, [N, P, C]; NaN where a row has fewer.
    :ivar densities: the densities there, or of counts their probabilities; likewise.
    :ivar masses: the probability of what is nearer to a mode than to the lowest point between it and its neighbours;
        likewise. They sum to 1.
    """

    values: Array
    densities: Array
    masses: Array

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many modes there are, [N, P]."""
        return np.sum(np.isfinite(self.values), axis=-1)


def find_modes(predictive: Predictive, *, prominence: float = PROMINENCE) -> Modes:
    """Modes of distributions of real numbers or counts.

    :param prominence: between 0 and 1; larger ones for fewer modes.
    :raises ValueError: if it is not.
    """
    if not 0 < prominence < 1:
        raise ValueError(f"prominence must be between 0 and 1, got {prominence}.")
    # Probabilities of cells, and densities by their widths.
    edges = _edges(predictive)
    masses = np.diff(np.stack([predictive.cdf(edge) for edge in edges], axis=-1), axis=-1)  # [N, P, cells]
    masses = np.where(masses < _EMPTY, 0.0, masses)
    widths = np.diff(np.moveaxis(edges, 0, -1), axis=-1)
    heights = masses / widths
    # The cells of the maxima that count; -1 where there are fewer than C.
    peaks = [_peaks(row, prominence) for row in heights.reshape(-1, heights.shape[-1])]
    C = max((len(row_peaks) for row_peaks in peaks), default=1)
    index = np.array([[*row_peaks, *[-1] * (C - len(row_peaks))] for row_peaks in peaks], np.int64).reshape(
        *heights.shape[:2], C
    )
    lower_edges = np.take_along_axis(np.moveaxis(edges, 0, -1), np.maximum(index, 0), axis=-1)
    width = np.take_along_axis(widths, np.maximum(index, 0), axis=-1)
    values = lower_edges + np.ceil(0.5 * width)  # of the counts lower + 1, ..., lower + width
    densities = np.take_along_axis(heights, np.maximum(index, 0), axis=-1)
    # Of real numbers the highest point near such a cell.
    if not predictive.is_count:
        refined = [_refined(predictive, lower_edges[..., c], width[..., c]) for c in range(C)]
        values, densities = (np.stack(part, axis=-1) for part in zip(*refined, strict=True))
    # Masses between the lowest points on either side of a mode.
    shares = [
        _shares(row, row_peaks, C) for row, row_peaks in zip(heights.reshape(-1, heights.shape[-1]), peaks, strict=True)
    ]
    cells = np.array(shares, np.int64).reshape(*heights.shape[:2], C, 2)
    sums = np.concatenate([np.zeros_like(masses[..., :1]), np.cumsum(masses, axis=-1)], axis=-1)
    sums = sums / sums[..., -1:]
    of_modes = [np.take_along_axis(sums, cells[..., end], axis=-1) for end in (0, 1)]
    # The highest mode first.
    order = np.argsort(np.where(index < 0, np.inf, -densities), axis=-1)
    masked = (np.where(index < 0, np.nan, part) for part in (values, densities, of_modes[1] - of_modes[0]))
    return Modes(*(np.take_along_axis(part, order, axis=-1) for part in masked))


def joined(parts: Sequence[Modes]) -> Modes:
    """Those of several parts of the rows."""
    C = max(part.values.shape[-1] for part in parts)
    pads = [[(0, 0), (0, 0), (0, C - part.values.shape[-1])] for part in parts]
    padded = [[np.pad(a, pad, constant_values=np.nan) for a in part] for part, pad in zip(parts, pads, strict=True)]
    return Modes(*map(np.concatenate, zip(*padded, strict=True)))


def _edges(predictive: Predictive) -> Array:
    """Of cells between extreme quantiles, [edges, N, P]; of counts one cell for each number, or for a few of many."""
    low, high = predictive.quantiles(_ENDS)
    if predictive.is_count:
        num = int(np.clip(np.max(high - low, initial=0) + 1, 1, _MAX_COUNTS))
        return np.floor(low) - 1.0 + np.ceil((high - low + 1) / num) * np.arange(num + 1)[:, None, None]
    pad = 1e-9 * (high - low) + np.spacing(np.abs(high))
    return np.linspace(low, high + pad, _CELLS + 1)


def _peaks(heights: Array, prominence: float) -> NDArray[np.int64]:
    """Cells [modes] of the maxima that count."""
    # Runs of equal heights are one place.
    starts = np.flatnonzero(np.diff(heights, prepend=-1.0))  # of runs of equal heights
    ends = np.append(starts[1:], len(heights))
    runs = heights[starts]
    peaks = []
    padded = np.concatenate([[0.0], runs, [0.0]])
    # A maximum counts that is so far above the lowest points on the ways to higher ones.
    for i in np.flatnonzero((padded[1:-1] > padded[:-2]) & (padded[1:-1] > padded[2:])):
        higher = np.flatnonzero(padded > runs[i])
        higher_before = higher[higher < i + 1]
        higher_behind = higher[higher > i + 1]
        # The lowest points on the ways to higher ones, or to the ends.
        lows = [
            padded[(higher_before[-1] if len(higher_before) else 0) : i + 1].min(),
            padded[i + 1 : (higher_behind[0] if len(higher_behind) else len(padded) - 1) + 1].min(),
        ]
        if runs[i] - max(lows) >= prominence * runs[i]:
            peaks.append((starts[i] + ends[i] - 1) // 2)
    return np.array(peaks or [np.argmax(heights)], np.int64)


def _shares(heights: Array, peaks: NDArray[np.int64], C: int) -> list[list[int]]:
    """First and last cell [C, 2] of each mode, between the lowest points on either side."""
    # Neighbours are cut at the lowest cell between them.
    cuts = [0, *(a + int(np.argmin(heights[a : b + 1])) for a, b in pairwise(peaks))]
    ends = [*cuts[1:], len(heights)]
    return [[a, b] for a, b in zip(cuts, ends, strict=True)] + [[0, 0]] * (C - len(peaks))


def _refined(predictive: Predictive, left: Array, width: Array) -> tuple[Array, Array]:
    """The highest point about a cell, and the density there, [N, P] each: by finer cells, then by a parabola."""
    low = left - width
    high = left + 2 * width
    edges = np.linspace(np.maximum(low, predictive.low), np.minimum(high, predictive.high), _FINE + 1)
    heights = np.diff([predictive.cdf(edge) for edge in edges], axis=0) / np.diff(edges, axis=0)  # [cells, N, P]
    best = np.argmax(heights, axis=0)[None]
    # The top of the parabola through the highest cell and its neighbours.
    middle = np.clip(best, 1, _FINE - 2)
    a, b, c = (np.take_along_axis(heights, middle + i, axis=0)[0] for i in (-1, 0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        shift = np.clip(np.nan_to_num(0.5 * (a - c) / (a - 2 * b + c)), -0.5, 0.5)
    is_inside = (best == middle)[0]
    centres = 0.5 * (edges[1:] + edges[:-1])
    step = (edges[1] - edges[0]) * np.where(is_inside, shift, 0.0)
    return np.take_along_axis(centres, best, axis=0)[0] + step, np.take_along_axis(heights, best, axis=0)[0]
