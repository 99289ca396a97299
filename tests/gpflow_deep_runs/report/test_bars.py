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
def test_bars_of_two_groups_stand_side_by_side(tmp_path: Path) -> None:
    """Of 8 and 2, and of 4 and 1, with error bars."""
    spreads = np.array([1.0, 0.5])
    groups = {"last": Bars(np.array([8.0, 4.0]), spreads), "best": Bars(np.array([2.0, 1.0]), spreads)}
    plots.bars(tmp_path / "a.png", ["EBP real D", "BP, clipped"], groups, title="t", ylabel="%")
    pixels = _pixels(tmp_path / "a.png")
    pixels = pixels[len(pixels) // 5 :]  # the legend is above the bars
    blue, orange = _columns(pixels, BLUE), _columns(pixels, ORANGE)
    assert not np.any((blue > 0) & (orange > 0))
    assert np.sum(blue > 0) == pytest.approx(np.sum(orange > 0), abs=4)  # pixels of rounding at the ends
    assert blue.max() == pytest.approx(4 * orange.max(), abs=4)
    black = np.all(pixels[:, 80:-20] < 60, axis=2).sum(axis=0) > 0.08 * len(pixels)  # without the frame
    assert np.sum(np.diff(black.astype(int)) == 1) >= 2
