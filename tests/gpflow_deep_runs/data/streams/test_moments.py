"""Moments of pieces are those of the whole; samples do not depend on the pieces."""

import functools
import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd

from gpflow_deep_runs.data.streams.moments import Moments
from tests.gpflow_deep_runs.data.streams.tables import numbers, open_stream


def test_moments_merge_in_any_grouping(rng: np.random.Generator) -> None:
    """Means a million times the deviation, where sums of squares would lose all digits."""
    array = np.concatenate([rng.normal(1e6, 1.0, (1000, 2)), np.full((1000, 1), 0.1)], axis=1)
    cuts = [0, 1, 1, 400, 999, 1000]
    pieces = [Moments.of(array[start:stop]) for start, stop in itertools.pairwise(cuts)]
    left = pieces[0]
    for piece in pieces[1:]:
        left = left.merge(piece)
    right = pieces[-1]
    for piece in pieces[-2::-1]:
        right = piece.merge(right)
    for found in (left.scale(), right.scale()):
        np.testing.assert_allclose(found.mean, [math.fsum(column) / len(array) for column in array.T], rtol=1e-14)
        np.testing.assert_allclose(found.scale[:2], array[:, :2].std(axis=0), rtol=1e-9)  # 1e6 eps, squared deviations
        assert (found.scale[2], found.constant_columns) == (1.0, (2,))


def test_missing_values_count_nowhere(rng: np.random.Generator) -> None:
    """Pieces of which one has no value in a column, one none at all, and one no row; then the values put in."""
    array = rng.normal(3.0, 2.0, (60, 3))
    array[rng.random((60, 3)) < 0.3] = np.nan
    array[20:40, 1] = array[30:40] = np.nan
    cuts = [0, 20, 30, 30, 40, 60]
    moments = [Moments.of(array[start:stop]) for start, stop in itertools.pairwise(cuts)]
    whole = functools.reduce(Moments.merge, moments)
    np.testing.assert_array_equal(whole.count, np.isfinite(array).sum(axis=0))
    fills = np.array([7.0, -1.0, 0.0])
    filled = whole.merge(Moments.constant(len(array) - whole.count, fills))
    for found, values in ((whole, array), (filled, np.where(np.isnan(array), fills, array))):
        # Rounding: few merges of sums of at most 60 values.
        np.testing.assert_allclose(found.scale().mean, np.nanmean(values, axis=0), rtol=1e-13)
        np.testing.assert_allclose(found.scale().scale, np.nanstd(values, axis=0), rtol=1e-13)
        np.testing.assert_array_equal([found.low, found.high], [np.nanmin(values, axis=0), np.nanmax(values, axis=0)])


def test_sample_is_uniform_and_does_not_depend_on_its_blocks(whole: pd.DataFrame, tmp_path: Path) -> None:
    everything = numbers(open_stream(tmp_path).samples["train"])
    some = numbers(open_stream(tmp_path, sample_rows=200).samples["train"])
    np.testing.assert_array_equal(some, everything[:200])  # in the order of the hash
    mean, deviation = everything.mean(), everything.std() / np.sqrt(200)
    assert abs(some.mean() - mean) < 5 * deviation
