"""Kept rows of a stream."""

import numpy as np
import pytest
import scipy.sparse

from ebp.estimators.streams.memory import Memory
from tests.statistical import assert_mean_close


def rows(numbers: np.ndarray) -> np.ndarray:
    """Rows that name their place in the stream."""
    return np.arange(len(numbers), dtype=np.float64)[:, None]


@pytest.mark.parametrize("sparse", [False, True])
def test_chunks_change_nothing(sparse: bool, rng: np.random.Generator) -> None:
    """Of each class as many rows as asked for are kept, or all; which ones does not depend on the chunks."""
    numbers = rng.choice(3, 200, p=[0.6, 0.38, 0.02])
    X, weight = rows(numbers), rng.random(200)
    X = scipy.sparse.csr_matrix(X) if sparse else X
    whole, is_kept = Memory().after(X, numbers, weight, size=7, seed=3)
    parts = Memory()
    for start in range(0, 200, 45):
        some = slice(start, start + 45)
        parts, _ = parts.after(X[some], numbers[some], weight[some], size=7, seed=3)
    for memory in (whole, parts):
        places = scipy.sparse.csr_matrix(memory.X).toarray()[:, 0].astype(int)
        np.testing.assert_array_equal(places, np.flatnonzero(is_kept))
        np.testing.assert_array_equal(memory.numbers, numbers[places])
        np.testing.assert_array_equal(memory.weight, weight[places])
        np.testing.assert_array_equal(np.bincount(memory.numbers), np.minimum(np.bincount(numbers), 7))
    other = Memory().after(X, numbers, None, size=7, seed=4)[1]
    assert not np.array_equal(other, is_kept)


def test_every_row_has_the_same_chance(rng: np.random.Generator) -> None:
    numbers = np.zeros(12, np.intp)
    kept = []
    for seed in rng.integers(2**31, size=2000):
        memory = Memory()
        for chunk in np.split(rows(numbers), 3):
            memory, _ = memory.after(chunk, numbers[:4], None, size=3, seed=int(seed))
        kept.append(np.isin(np.arange(12), memory.X[:, 0]))
    assert_mean_close(np.array(kept, np.float64), 3 / 12, min_detectable=0.1)


def test_new_rows_that_are_kept() -> None:
    numbers = np.zeros(500, np.intp)
    memory, first = Memory().after(rows(numbers), numbers, None, size=5, seed=0)
    later, second = memory.after(1000.0 + rows(numbers), numbers, None, size=5, seed=0)
    assert first.sum() == 5
    np.testing.assert_array_equal(later.X[later.X[:, 0] >= 1000, 0] - 1000, np.flatnonzero(second))
    assert later.of(np.array([False])).X.shape == (0, 1)
