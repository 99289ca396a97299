"""What is learned of a chunk."""

import numpy as np
import pytest

from ebp.estimators.streams.continual import Stream
from ebp.estimators.streams.recency import Recency

OLD, NEW = np.repeat([0, 1], 50), np.repeat([2, 3], [60, 40])


def chunks(size: int, has_outputs: bool = True, weight: np.ndarray | None = None) -> list:
    """What is learned of rows of the classes 0 and 1, and then of 2 and 3."""
    stream, found = Stream(Recency.start(4)), []
    for number, numbers in enumerate((OLD, NEW)):
        X = 1000.0 * number + np.arange(100.0)[:, None]
        stream, chunk = stream.after(X, numbers, weight, size=size, seed=5, has_outputs=has_outputs)
        found.append(chunk)
    return found


def test_without_a_memory() -> None:
    first, second = chunks(0)
    assert first.is_learned is None
    np.testing.assert_array_equal(second.numbers, NEW)
    np.testing.assert_array_equal(second.is_learned, np.tile([False, False, True, True], [100, 1]))
    assert chunks(0, has_outputs=False)[1].is_learned is None


@pytest.mark.parametrize("has_outputs", [True, False])
def test_with_a_memory(has_outputs: bool) -> None:
    """The old classes come again; their outputs learn from as many new rows of each class as there are kept."""
    _, chunk = chunks(6, has_outputs, np.linspace(0.1, 2.0, 100))
    np.testing.assert_array_equal(chunk.numbers[:100], NEW)
    np.testing.assert_array_equal(np.bincount(chunk.numbers[100:]), [6, 6])
    old = chunk.X[100:, 0].astype(int)
    np.testing.assert_array_equal(OLD[old], chunk.numbers[100:])
    assert len(set(old)) == 12
    assert chunk.weight is not None
    np.testing.assert_array_equal(chunk.weight[100:], np.linspace(0.1, 2.0, 100)[old])
    if not has_outputs:
        assert chunk.is_learned is None
        return
    assert chunk.is_learned is not None
    assert chunk.is_learned[:, 2:].all()
    np.testing.assert_array_equal(chunk.is_learned[:, 0], chunk.is_learned[:, 1])
    np.testing.assert_array_equal(np.bincount(chunk.numbers, chunk.is_learned[:, 0]), [6, 6, 6, 6])
