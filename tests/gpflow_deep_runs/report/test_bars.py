"""`plots.bars`, read back from the pixels of the figure."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep_runs.report import plots
from gpflow_deep_runs.report.plots import Bars

BLUE, ORANGE = (31, 119, 180), (255, 127, 14)  # Matplotlib's C0 and C1


def _pixels(path: Path) -> np.ndarray:
    return tf.io.decode_png(tf.io.read_file(str(path)), channels=3).numpy()


def _columns(pixels: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    """How many pixels of a colour each column of the figure has."""
    return np.sum(np.all(pixels == colour, axis=2), axis=0)


@pytest.mark.skipif(not plots.is_available(), reason="no Matplotlib")
def test_bars(tmp_path: Path) -> None:
    """Heights and widths of a bar of 8 with one of 2 in front of it; a mark where there is one."""
    none, wide, narrow = np.zeros(2), np.array([8.0, 4.0]), np.array([2.0, 1.0])
    groups = {"last": Bars(wide, none), "best": Bars(narrow, none, width=0.4)}
    for name, known in (("none", [np.nan, np.nan]), ("one", [np.nan, 6.0])):
        path = tmp_path / f"{name}.png"
        plots.bars(path, ["EBP real D", "BP, clipped"], groups, marks={"published": known}, title="t", ylabel="%")
    pixels = _pixels(tmp_path / "none.png")
    pixels = pixels[len(pixels) // 5 :]  # the legend is above the bars
    left = slice(0, pixels.shape[1] // 2 + 12)  # to the gap; the axis leaves room for its numbers on the left
    blue, orange = _columns(pixels, BLUE)[left], _columns(pixels, ORANGE)[left]
    assert blue.max() == pytest.approx(4 * orange.max(), abs=4)  # a pixel of rounding at either end
    assert np.sum(blue + orange > 0) == pytest.approx(2 * np.sum(orange > 0), abs=4)
    assert np.all(blue[orange > 0] == pytest.approx(3 * orange.max(), abs=4))
    assert not np.array_equal(_pixels(tmp_path / "one.png"), _pixels(tmp_path / "none.png"))


@pytest.mark.skipif(not plots.is_available(), reason="no Matplotlib")
def test_error_bars_of_two_groups_stand_side_by_side(tmp_path: Path) -> None:
    groups = {"last": Bars(np.array([8.0]), np.array([2.0])), "best": Bars(np.array([8.0]), np.array([2.0]), 0.4)}
    plots.bars(tmp_path / "a.png", ["x"], groups, marks={}, title="", ylabel="")
    pixels = _pixels(tmp_path / "a.png")
    inside = pixels[:, 80:-20]  # without the frame
    black = np.all(inside < 60, axis=2).sum(axis=0) > 0.2 * len(pixels)
    assert np.sum(np.diff(black.astype(int)) == 1) == 2
