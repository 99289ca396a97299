"""Bit planes: the bits of NumPy, there and back."""

import numpy as np
import pytest

from gpflow_deep_runs.data.density.planes import from_planes, in_planes, to_planes
from gpflow_deep_runs.data.rows import Part, Rows


@pytest.mark.parametrize("num_planes", [1, 4, 8, 12])
def test_there_and_back(rng: np.random.Generator, num_planes: int) -> None:
    levels = rng.integers(0, 2**num_planes, (5, 6))
    bits = to_planes(levels, num_planes)
    assert bits.shape == (5, 6 * num_planes)
    expected = [[f"{level:0{num_planes}b}" for level in row] for row in levels]
    for plane in range(num_planes):
        wanted = [[int(text[plane]) for text in row] for row in expected]
        np.testing.assert_array_equal(bits[:, 6 * plane : 6 * plane + 6], wanted)
    np.testing.assert_array_equal(from_planes(bits, num_planes), levels)


def test_rows(rng: np.random.Generator) -> None:
    pixels = rng.integers(0, 256, (7, 6))
    data = Rows("set", {"train": Part((pixels / 255).astype(np.float32))}, "density", "", "", (2, 3))
    found = in_planes(data, 8)
    np.testing.assert_array_equal(from_planes(found.train.X, 8), pixels)
    assert (found.image_shape, found.name) == ((16, 3), "set in 8 bit planes")


def test_what_is_refused() -> None:
    for wrong in ([[256]], [[-1]], [[0.5]], [[np.nan]], [["1"]]):
        with pytest.raises(ValueError, match="8 bit planes hold whole numbers from 0 to 255"):
            to_planes(wrong, 8)
    with pytest.raises(ValueError, match="from 1 to 16, got 17"):
        to_planes([[0]], 17)
    with pytest.raises(ValueError, match="5 columns are no 2 planes"):
        from_planes(np.zeros((1, 5), np.uint8), 2)
