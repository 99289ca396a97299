"""gpflow_deep_base.page: text is escaped, plots hold what they are given, files are whole without the network."""

import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from gpflow_deep_base.page import (
    Band,
    Bars,
    Line,
    Panel,
    Panels,
    Part,
    Picture,
    Points,
    Table,
    Text,
    curve_panels,
    page,
    png,
    reliability,
    sheet,
    smoothed,
    svg,
)

HOSTILE = '<script>alert("x")</script> & $\\frac{a}$ \x00 "\' '


def test_everything_from_strangers_is_escaped() -> None:
    bars = Panel(HOSTILE, [Bars([1.0, 2.0], names=[HOSTILE, "b"])], HOSTILE, HOSTILE)
    lines = Panel(HOSTILE, [Line([0, 1], [0, 1], HOSTILE), Points([0], [1], HOSTILE)], HOSTILE, HOSTILE)
    parts: list[Part] = [
        Table(HOSTILE, [[HOSTILE], [HOSTILE]], HOSTILE),
        Text(HOSTILE, HOSTILE),
        Panels(HOSTILE, [bars, lines]),
    ]
    text = page(HOSTILE, HOSTILE, [*parts, Picture(HOSTILE, b"", HOSTILE)])
    assert "<script" not in text
    assert "\x00" not in text
    assert not re.search(r'(src|href)="(?!data:)', text)
    for panel in (bars, lines):
        ElementTree.fromstring(svg(panel).replace("\x00", ""))


@pytest.mark.parametrize(
    "marks",
    [
        [Line([], [])],
        [Line([1, 1], [2, 2])],
        [Line([0, 1, 2], [1, np.nan, 3]), Points([0, np.inf], [1, 2], half=[1, 1])],
        [Points([1e-300, 1e300], [0, 1])],
        [Band([0, 1], [0, 0], [1, 1]), Bars([3, 4], [0, 1, 2])],
        [Bars([], names=[])],
        [Bars([-1.0, 2.0], names=["a", "b"])],
        [Line([0, 1], [-1e308, 1e308])],
        [Line([-1.7e308, 1.7e308], [0, 5e-324])],
        [Bars([np.nan, np.inf, 1e308, -1e308], names=list("abcd"))],
        [Bars([np.nan, np.inf, 2.0], [0, 1, 2, 3])],
    ],
)
def test_any_numbers_give_a_plot_without_nan(marks: list[Line | Band | Points | Bars]) -> None:
    text = svg(Panel("p", marks, "x", "y"))
    ElementTree.fromstring(text)
    assert not re.search(r"nan|inf", text)


def test_points_are_where_they_should_be() -> None:
    text = svg(Panel("p", [Points([0.0, 1.0, 2.0], [0.0, 5.0, 10.0])]))
    at = np.array(re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', text), float)
    np.testing.assert_allclose(at[1], at[[0, 2]].mean(axis=0), atol=0.1)
    assert at[0, 0] < at[2, 0]
    assert at[0, 1] > at[2, 1]


def test_curves_are_lines_with_bands_or_points_with_bars() -> None:
    curves = {
        "a": {"band": ([1, 2], [3, 5], [0.5, 1.0], "-"), "dots": ([1, 2], [2, 2], [0.25, 0.5], "o"), "b": ([0], [1])}
    }
    (panel,) = curve_panels(curves, "step", {"a": "nats"})
    band, line, points, _ = panel.marks
    assert isinstance(band, Band)
    assert isinstance(line, Line)
    assert isinstance(points, Points)
    np.testing.assert_array_equal(np.array([band.low, band.high], float), [[2.5, 4.0], [3.5, 6.0]])
    assert (line.label, points.half, panel.xlabel, panel.ylabel) == ("band", [0.25, 0.5], "step", "nats")
    (many,) = curve_panels({"many": {str(i): ([0], [i]) for i in range(11)}}, "step", "nats")
    assert not any(mark.label for mark in many.marks if isinstance(mark, Line))


@pytest.mark.parametrize(
    ("low", "high", "names"),
    [
        (0.0, 45_000.0, {"10k", "20k", "30k", "40k"}),
        (9_990.0, 10_010.0, {"9990", "10000", "10010"}),
        (1e7, 1e7 + 1.5, {"10000000"}),  # of which six digits would make one
        (0.0, 4e-13, {"1e-13", "2e-13", "3e-13"}),
        (1.0, 1.0 + 4e-16, {"1"}),
    ],
)
def test_large_ticks_are_short_and_all_ticks_differ(low: float, high: float, names: set[str]) -> None:
    text = svg(Panel("p", [Line([low, high], [0.0, 1.0])]))
    shown = re.findall(r'text-anchor="middle">([-\d.ke]+)</text>', text)
    assert names <= set(shown)
    assert len(set(shown)) == len(shown)


def test_a_sheet_is_one_svg_file_of_plots_in_rows() -> None:
    panels = [Panel(HOSTILE, [Line([0, 1], [0, 1])]), *[Panel("p", [Bars([1.0], names=["a"])])] * 3]
    root = ElementTree.fromstring(sheet(panels))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    places = [(int(plot.get("x", "")), int(plot.get("y", ""))) for plot in root]
    height = max(int(plot.get("height", "")) for plot in root)
    assert places == [(0, 0), (380, 0), (760, 0), (0, height)]


def test_a_picture_is_read_back() -> None:
    from PIL import Image

    for shape in ([5, 7], [5, 7, 3]):
        image = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(png(image)))), image)


def test_a_running_mean_of_a_line_is_the_line() -> None:
    np.testing.assert_allclose(smoothed(np.arange(50.0), share=0.3), np.arange(50.0), atol=1e-12)
    assert np.std(smoothed(np.tile([-1.0, 1.0], 50), share=0.2)[10:-10]) < 0.2
    # One step that is none hides no other.
    gap = np.where(np.arange(50) == 20, np.nan, 3.0)
    np.testing.assert_array_equal(smoothed(gap, share=0.3), gap)
    np.testing.assert_array_equal(smoothed([1.0, np.inf, 5.0], share=1.0), [1.0, np.inf, 5.0])


def test_reliability_compares_confidence_with_how_often_it_is_right() -> None:
    confidence = np.repeat([0.55, 0.95], 100)
    is_right = np.concatenate([np.arange(100) < 55, np.arange(100) < 70])
    panel = reliability("labels", confidence, is_right)
    diagonal, groups = panel.marks
    assert isinstance(diagonal, Line)
    assert isinstance(groups, Points)
    np.testing.assert_allclose(np.asarray(diagonal.x), np.asarray(diagonal.y))
    np.testing.assert_allclose(np.asarray(groups.x), np.repeat([0.55, 0.95], 5))
    np.testing.assert_allclose(np.reshape(groups.y, [2, 5]).mean(axis=1), [0.55, 0.7])
    down, up = np.asarray(groups.half)
    assert np.all(down + up > 0.1)  # also of groups that are always right
    assert np.all(np.asarray(groups.y) + up <= 1 + 1e-12)
    assert "<svg" in svg(panel)
    assert "<svg" in svg(reliability("no rows", [], []))
