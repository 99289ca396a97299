"""gpflow_deep_runs.report.images: tiles with a grey line before each."""

import io

import numpy as np
import pytest

from gpflow_deep_runs.report.images import picture, tiled

GREY = round(255 * 0.5)


@pytest.mark.parametrize(
    ("count", "columns", "rows_columns"),
    [(1, None, (1, 1)), (4, None, (2, 2)), (5, None, (2, 3)), (5, 2, (3, 2)), (3, 5, (1, 5))],
)
def test_each_image_is_in_its_place(
    rng: np.random.Generator, count: int, columns: int | None, rows_columns: tuple[int, int]
) -> None:
    """Row by row, one grey line above and to the left of each; tiles without an image are grey."""
    images = rng.uniform(size=[count, 4, 3])
    grid = tiled(images, columns)
    num_rows, num_columns = rows_columns
    assert grid.dtype == np.uint8
    assert grid.shape == (num_rows * 5, num_columns * 4)
    for number in range(num_rows * num_columns):
        top, left = 5 * (number // num_columns), 4 * (number % num_columns)
        tile = grid[top : top + 5, left : left + 4]
        assert (tile[0] == GREY).all()
        assert (tile[:, 0] == GREY).all()
        expected = np.rint(255 * images[number]) if number < count else np.full([4, 3], GREY)
        np.testing.assert_array_equal(tile[1:, 1:], expected)


def test_an_image_that_leaves_0_to_1_is_stretched_to_its_own_range() -> None:
    """The others stay as they are: probabilities keep their brightness beside filters."""
    images = np.array([[[0.2, 0.4]], [[-3.0, 1.0]], [[0.0, 4.0]], [[7.0, 7.0]]])
    grid = tiled(images, columns=1)
    np.testing.assert_array_equal(grid[1::2, 1:], [[51, 102], [0, 255], [0, 255], [0, 0]])


def test_a_picture_has_squares_for_small_pixels(rng: np.random.Generator) -> None:
    from PIL import Image

    images = rng.uniform(size=[1, 3, 4])
    shown = np.asarray(Image.open(io.BytesIO(picture("samples", images).png)))
    assert shown.shape == (4 * 51, 5 * 51)
    np.testing.assert_array_equal(shown[::51, ::51], tiled(images))


def test_the_images_are_not_changed(rng: np.random.Generator) -> None:
    images = rng.normal(size=[2, 3, 3])
    before = images.copy()
    tiled(images)
    np.testing.assert_array_equal(images, before)
