"""A report as one HTML file that needs nothing else: no network, no script, no Matplotlib. Pictures are SVG or PNG.

    curve = Panel("calibration", [Band(p, p - half, p + half, "95% of samples"), Line(p, share, "model")],
                  xlabel="probability", ylabel="share of rows")
    text = page("flights", "2 layers are better.", [Table("scores", cells), Panels("calibration", [curve])])

All text is escaped, as names of columns and labels come from files of strangers.
"""

from __future__ import annotations

import base64
import math
import re
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Band",
    "Bars",
    "Line",
    "Mark",
    "Panel",
    "Panels",
    "Part",
    "Picture",
    "Points",
    "Table",
    "Text",
    "curve_panels",
    "page",
    "png",
    "reliability",
    "sheet",
    "smoothed",
    "svg",
]

WIDTH = 380
HEIGHT = 250
LEFT = 62
RIGHT = 12
TOP = 30
BOTTOM = 46
COLOURS = ("#1f5fa8", "#c2571a", "#2d7d46", "#7a4aa0", "#8a6d1f", "#4b5563")
"""Of lines and points by their order; each has a contrast of 4.5 with white."""
_LETTER = 6.2
"""Pixels of a digit."""
MOST = 7e307
"""The largest number that a plot has a place for, so that differences do not overflow."""
MOST_POINTS = 1000
MOST_LABELS = 8
"""Of a legend; more would take the place of the plot."""
_NO_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1f24; margin: 2rem auto; padding: 0 1rem; max-width: 1240px; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .4rem; }
.verdict { background: #eef4fb; border-left: 4px solid #1f5fa8; padding: .7rem 1rem; white-space: pre-line; }
.note { color: #4b5563; max-width: 75ch; } .panels { display: flex; flex-wrap: wrap; gap: 1rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; } svg, img { max-width: 100%; height: auto; }
td, th { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #d7dce2; white-space: nowrap; }
td:first-child, th:first-child { text-align: left; } pre { overflow-x: auto; background: #f5f6f8; padding: .7rem 1rem; }
"""


class Table(NamedTuple):
    """Cells, the first line of which are headers, and a sentence below."""

    title: str
    rows: Sequence[Sequence[str]]
    note: str = ""


class Text(NamedTuple):
    """Lines that are shown as they are."""

    title: str
    text: str


class Picture(NamedTuple):
    """A PNG file: its bytes, and a sentence that says what is to be seen."""

    title: str
    png: bytes
    note: str = ""


class Line(NamedTuple):
    """A line through points; `is_faint` for what is behind another one, `is_dashed` for what it is compared with."""

    x: ArrayLike
    y: ArrayLike
    label: str = ""
    is_faint: bool = False
    is_dashed: bool = False


class Band(NamedTuple):
    """The area between two lines."""

    x: ArrayLike
    low: ArrayLike
    high: ArrayLike
    label: str = ""


class Points(NamedTuple):
    """Points, at most 1,000 of which are drawn, and how far their error bars reach: [n], or [2, n] down and up."""

    x: ArrayLike
    y: ArrayLike
    label: str = ""
    half: ArrayLike | None = None


class Bars(NamedTuple):
    """Bars of these heights between edges [n + 1], or beside n names, to the right."""

    heights: ArrayLike
    edges: ArrayLike | None = None
    names: Sequence[str] = ()


Mark: TypeAlias = Line | Band | Points | Bars
"""What a plot shows."""


class Panel(NamedTuple):
    """One plot: its marks, and what its axes are, with their units."""

    title: str
    marks: Sequence[Mark]
    xlabel: str = ""
    ylabel: str = ""


class Panels(NamedTuple):
    """Plots side by side, and a sentence that says what is to be seen."""

    title: str
    panels: Sequence[Panel]
    note: str = ""


Part = Table | Text | Picture | Panels


def page(title: str, verdict: str, parts: Iterable[Part]) -> str:
    """The report as the text of an HTML file.

    :param title: of the page.
    :param verdict: what it comes to, in a sentence or a few lines.
    :param parts: in their order; the same title twice makes one section of both.
    """
    body = [f"<h1>{escape(title)}</h1>"]
    last = None
    if verdict:
        body.append(f'<p class="verdict">{escape(verdict)}</p>')
    # A heading where the title changes.
    for part in parts:
        if part.title != last:
            body.append(f"<h2>{escape(part.title)}</h2>")
        last = part.title
        body.append(_part(part))
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    start = f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>'
    text = "\n".join([start, *body, "</body></html>\n"])
    return _NO_TEXT.sub("\ufffd", text)


def smoothed(values: ArrayLike, *, share: float = 0.05) -> NDArray[np.float64]:
    """The mean of each value and its neighbours, a window of this share of all: the course of what is noisy.

    What is not finite stays so, and is no neighbour.
    """
    y = np.asarray(values, np.float64)
    is_finite = np.isfinite(y)
    half = int(len(y) * share / 2)
    # Sums and numbers up to each place, of which those of a window are differences.
    total = np.concatenate([[0.0], np.cumsum(np.where(is_finite, y, 0.0))])
    count = np.concatenate([[0], np.cumsum(is_finite)])
    numbers = np.arange(len(y))
    reach = np.minimum(half, np.minimum(numbers, len(y) - 1 - numbers))  # as far to the left as to the right
    end = numbers + reach + 1
    start = numbers - reach
    return np.where(is_finite, (total[end] - total[start]) / np.maximum(count[end] - count[start], 1), y)


def reliability(title: str, confidence: ArrayLike, is_right: ArrayLike) -> Panel:
    """How often the most probable label is right, by the probability that it had, in ten groups of equally many rows.

    The bars of a group are 95% intervals of its share; those of a calibrated classifier meet the diagonal.

    :param confidence: probabilities of the most probable labels, [N].
    :param is_right: whether these were right, [N].
    """
    p = np.asarray(confidence, np.float64)
    right = np.asarray(is_right, np.float64)
    # Ten groups of equally many rows, by their confidence.
    order = np.argsort(p, kind="stable")
    groups = [group for group in np.array_split(order, 10) if len(group)]
    shares = np.array([right[group].mean() for group in groups])
    sizes = np.array([len(group) for group in groups])
    # The interval of Wilson's score, as shares of 0 and 1 have one, too.
    spread = 1.96**2 / sizes
    middle = (shares + spread / 2) / (1 + spread)
    reach = 1.96 * np.sqrt(shares * (1 - shares) / sizes + spread / (4 * sizes)) / (1 + spread)
    half = np.array([shares - (middle - reach), middle + reach - shares])
    ends = [float(p.min(initial=1.0)), 1.0]
    marks: list[Mark] = [
        Line(ends, ends, "calibrated", is_dashed=True),
        Points([p[group].mean() for group in groups], shares, half=half),
    ]
    return Panel(title, marks, "probability of the label", "share that is right")


def curve_panels(
    curves: Mapping[str, Mapping[str, Sequence[Any]]], xlabel: str, ylabel: str | Mapping[str, str] = ""
) -> list[Panel]:
    """Plots of what was logged: bands about lines, error bars of points.

    :param curves: title -> label -> x, y, and perhaps half the width of the band and "-" for a line, which it is if
        nothing is said, or another sign for points.
    :param xlabel: of all plots.
    :param ylabel: of all plots, or by their titles.
    """
    panels = []
    for title, by_label in curves.items():
        marks = list[Line | Band | Points | Bars]()
        for name, (x, y, *more) in by_label.items():
            # Half of a band's width and the sign of points may be missing.
            half = more[0] if more else None
            style = more[1] if len(more) > 1 else "-"
            label = name if len(by_label) <= MOST_LABELS else ""
            if style != "-":
                marks.append(Points(x, y, label, half))
                continue
            # A band is drawn before its line, which lies on it.
            if half is not None:
                middle = np.asarray(y, np.float64)
                marks.append(Band(x, middle - np.asarray(half), middle + np.asarray(half)))
            marks.append(Line(x, y, label))
        panels.append(Panel(title, marks, xlabel, ylabel if isinstance(ylabel, str) else ylabel.get(title, "")))
    return panels


def sheet(panels: Sequence[Panel], columns: int = 3) -> str:
    """Plots side by side as the text of an SVG file."""
    plots = [svg(panel) for panel in panels]
    heights = [int(re.findall(r' height="(\d+)"', plot)[0]) for plot in plots]
    # Row by row, each as high as the highest plot in it.
    placed = list[str]()
    top = 0
    for start in range(0, len(plots), columns):
        # Each plot is an element at its place.
        for number, plot in enumerate(plots[start : start + columns]):
            placed.append(plot.replace("<svg ", f'<svg x="{number * WIDTH}" y="{top}" ', 1))
        top += max(heights[start : start + columns])
    size = f'width="{min(len(plots), columns) * WIDTH}" height="{top}"'
    text = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(placed)}</svg>\n'
    return _NO_TEXT.sub("\ufffd", text)


def png(image: NDArray[np.uint8]) -> bytes:
    """A PNG file of an image [H, W] of grey values, or [H, W, 3] of colours."""
    pixels = np.ascontiguousarray(image, np.uint8)
    height, width = pixels.shape[:2]
    # The three chunks of a PNG file.
    lines = np.zeros([height, 1 + pixels[0].size], np.uint8)  # each line begins with the number of its filter, 0
    lines[:, 1:] = pixels.reshape(height, -1)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">2I5B", width, height, 8, 0 if pixels.ndim == 2 else 2, 0, 0, 0)
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def svg(panel: Panel) -> str:
    """A plot as an SVG element."""
    named = next((mark for mark in panel.marks if isinstance(mark, Bars) and mark.edges is None), None)
    if named is not None:
        return _named_bars(panel, named)
    (x0, x1), (y0, y1) = (_range(values) for values in _extent(panel.marks))
    plot = _Plot(panel, x0, x1, y0, y1, HEIGHT)
    plot.axes()
    # Marks that stand for themselves take the colours in turn; bands, and faint or dashed lines, that of the next one.
    colour = 0
    for mark in panel.marks:
        is_own = not isinstance(mark, Band) and not (isinstance(mark, Line) and (mark.is_faint or mark.is_dashed))
        plot.mark(mark, COLOURS[colour % len(COLOURS)])
        colour += is_own
    return plot.text()


class _Plot:
    """An SVG element in the making: `x` and `y` are places of numbers, in pixels."""

    def __init__(self, panel: Panel, x0: float, x1: float, y0: float, y1: float, height: int, left: int = LEFT) -> None:
        self.panel = panel
        self.left = left
        self.legend = _places([mark.label for mark in panel.marks if not isinstance(mark, Bars) and mark.label])
        self.top = TOP + 14 * (1 + self.legend[-1][2] if self.legend else 0)
        self.height = height + self.top - TOP
        self.x0 = x0
        self.x1 = x1
        self.y0 = y0
        self.y1 = y1
        self.elements = [
            f'<svg viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" height="{self.height}" role="img" '
            f'aria-label="{escape(panel.title)}" font-size="11" font-family="system-ui, sans-serif">',
            f'<text x="4" y="16" font-weight="600">{escape(_short(panel.title, 58))}</text>',
        ]
        self.colours = list[str]()  # of the legend

    def x(self, value: ArrayLike) -> np.ndarray:
        return self.left + _share(value, self.x0, self.x1) * (WIDTH - self.left - RIGHT)

    def y(self, value: ArrayLike) -> np.ndarray:
        return self.height - BOTTOM - _share(value, self.y0, self.y1) * (self.height - self.top - BOTTOM)

    def axes(self, *, has_y: bool = True) -> None:
        low = self.height - BOTTOM
        right = WIDTH - RIGHT
        # Lines of the grid with their numbers, first across, then up.
        across = _named_ticks(self.x0, self.x1)
        longest = max((len(name) for _, name in across), default=0)
        is_crowded = len(across) * (longest + 1) * _LETTER > right - self.left
        for number, (tick, name) in enumerate(across):
            at = float(self.x(tick))
            self.elements.append(f'<path d="M{at:.1f} {self.top}V{low}" stroke="#e5e7eb"/>')
            if not (is_crowded and number % 2):
                self.elements.append(f'<text x="{at:.1f}" y="{low + 14}" text-anchor="middle">{name}</text>')
        for tick, name in _named_ticks(self.y0, self.y1) if has_y else ():
            at = float(self.y(tick))
            self.elements.append(f'<path d="M{self.left} {at:.1f}H{right}" stroke="#e5e7eb"/>')
            self.elements.append(f'<text x="{self.left - 5}" y="{at + 4:.1f}" text-anchor="end">{name}</text>')
        # What the axes are, below and turned at the left.
        middle = (self.left + right) / 2
        xlabel, ylabel = (escape(_short(label, 56)) for label in (self.panel.xlabel, self.panel.ylabel))
        self.elements.append(f'<text x="{middle}" y="{self.height - 14}" text-anchor="middle">{xlabel}</text>')
        at = (self.top + low) / 2
        self.elements.append(
            f'<text x="12" y="{at}" text-anchor="middle" transform="rotate(-90 12 {at})">'
            f"{ylabel if has_y else ''}</text>"
        )

    def mark(self, mark: Line | Band | Points | Bars, colour: str) -> None:
        # A line, faint behind another one or dashed to be compared with.
        if isinstance(mark, Line):
            look = 'stroke-opacity="0.3"' if mark.is_faint else 'stroke-dasharray="5 4"' if mark.is_dashed else ""
            colour = "#4b5563" if mark.is_dashed else colour
            self.elements.append(f'<path d="{self._path(mark.x, mark.y)}" fill="none" stroke="{colour}" {look}/>')
        elif isinstance(mark, Band):
            # A band goes along its lower edge and back along the upper one.
            x = np.concatenate([np.asarray(mark.x), np.asarray(mark.x)[::-1]])
            y = np.concatenate([np.asarray(mark.low), np.asarray(mark.high)[::-1]])
            self.elements.append(f'<path d="{self._path(x, y)}Z" fill="{colour}" fill-opacity="0.18"/>')
            colour = f"{colour}55"
        elif isinstance(mark, Points):
            self._points(mark, colour)
        else:
            # Bars between their edges.
            edges = np.asarray(mark.edges, np.float64)
            # Bars stand on 0, or on the lower end of the plot.
            zero = float(self.y(max(0.0, self.y0)))
            for left_edge, right_edge, height in zip(edges[:-1], edges[1:], _heights(mark), strict=True):
                a = float(self.x(left_edge))
                b = float(self.x(right_edge))
                top = float(self.y(height))
                box = f'x="{a:.1f}" y="{top:.1f}" width="{max(b - a - 1, 0.5):.1f}" height="{max(zero - top, 0):.1f}"'
                self.elements.append(f'<rect {box} fill="{colour}" fill-opacity="0.75"/>')
        if not isinstance(mark, Bars) and mark.label:
            self.colours.append(colour)

    def _points(self, mark: Points, colour: str) -> None:
        x = np.asarray(mark.x, np.float64)
        y = np.asarray(mark.y, np.float64)
        # Not more points than can be told apart, evenly chosen.
        rows = np.unique(np.linspace(0, len(x) - 1, min(len(x), MOST_POINTS)).astype(int)) if len(x) else []
        half = None if mark.half is None else np.broadcast_to(np.asarray(mark.half, np.float64), [2, len(y)])
        for row in rows:
            if not (math.isfinite(x[row]) and math.isfinite(y[row])):
                continue
            # A point, and the bar of its error.
            at = float(self.x(x[row]))
            up = float(self.y(y[row]))
            self.elements.append(f'<circle cx="{at:.1f}" cy="{up:.1f}" r="2" fill="{colour}" fill-opacity="0.6"/>')
            if half is not None:
                low = float(self.y(y[row] - half[0, row]))
                high = float(self.y(y[row] + half[1, row]))
                self.elements.append(f'<path d="M{at:.1f} {low:.1f}V{high:.1f}" stroke="{colour}"/>')

    def _path(self, x: ArrayLike, y: ArrayLike) -> str:
        """Through points that are numbers; where one is none, the line has a gap."""
        parts = []
        is_down = False
        for a, b in zip(self.x(x), self.y(y), strict=True):
            if not (math.isfinite(a) and math.isfinite(b)):
                is_down = False
                continue
            parts.append(f"{'L' if is_down else 'M'}{a:.1f} {b:.1f}")
            is_down = True
        return "".join(parts)

    def text(self) -> str:
        for colour, (label, x, row) in zip(self.colours, self.legend, strict=True):
            y = TOP + 4 + 14 * row
            self.elements.append(f'<rect x="{x}" y="{y - 8}" width="10" height="8" fill="{colour}"/>')
            self.elements.append(f'<text x="{x + 14}" y="{y}">{escape(label)}</text>')
        return "".join([*self.elements, "</svg>"])


def _share(value: ArrayLike, low: float, high: float) -> np.ndarray:
    """Where between two numbers others are; infinite if they are too far to be drawn."""
    with np.errstate(over="ignore"):
        return np.asarray((np.asarray(value) - low) / (high - low))


def _places(labels: Sequence[str]) -> list[tuple[str, int, int]]:
    """Labels of a legend, which is above the plot: text, left end in pixels, row."""
    places = list[tuple[str, int, int]]()
    x = 4
    row = 0
    for label in (_short(label, 50) for label in labels):
        width = 24 + 6 * len(label)
        # A label that does not fit beside the others begins a row of its own.
        if x > 4 and x + width > WIDTH:
            x = 4
            row += 1
        places.append((label, x, row))
        x += width
    return places


def _named_bars(panel: Panel, bars: Bars) -> str:
    heights = _heights(bars)
    height = TOP + BOTTOM + 20 * len(heights)
    # Names at the left, and bars from 0 to the right or to the left.
    left_margin = 150
    low = min(0.0, float(np.min(heights, initial=0.0)))
    high = max(0.0, float(np.max(heights, initial=0.0)))
    plot = _Plot(panel, low, high if high > low else low + 1.0, 0.0, float(max(len(heights), 1)), height, left_margin)
    plot.axes(has_y=False)
    for number, (name, value) in enumerate(zip(bars.names, heights, strict=True)):
        y = TOP + 20 * number
        a = float(plot.x(min(0.0, value)))
        b = float(plot.x(max(0.0, value)))
        plot.elements.append(
            f'<text x="{left_margin - 6}" y="{y + 14}" text-anchor="end">{escape(_short(name, 22))}</text>'
        )
        box = f'x="{a:.1f}" y="{y + 3}" width="{max(b - a, 0.5):.1f}" height="14"'
        plot.elements.append(
            f'<rect {box} fill="{COLOURS[0]}" fill-opacity="0.75"><title>{escape(name)}</title></rect>'
        )
    return plot.text()


def _part(part: Part) -> str:
    note = "" if isinstance(part, Text) or not part.note else f'<p class="note">{escape(part.note)}</p>'
    if isinstance(part, Text):
        return f"<pre>{escape(part.text)}</pre>"
    if isinstance(part, Picture):
        content = base64.b64encode(part.png).decode()
        return f'<img alt="{escape(part.note or part.title)}" src="data:image/png;base64,{content}">{note}'
    if isinstance(part, Panels):
        return f'<div class="panels">{"".join(map(svg, part.panels))}</div>{note}'
    # The first row of a table has its headers.
    head, *rows = part.rows
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in head)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    return f'<div class="scroll"><table>{"".join(f"<tr>{line}</tr>" for line in lines)}</table></div>{note}'


def _extent(marks: Sequence[Mark]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All coordinates, [n] each."""
    x = list[ArrayLike]()
    y = list[ArrayLike]()
    for mark in marks:
        # Along x, all places; bars beside names have none.
        if not isinstance(mark, Bars):
            x.append(mark.x)
        elif mark.edges is not None:
            x.append(mark.edges)
        # Along y, bars stand on 0, and bands and error bars have two ends.
        if isinstance(mark, Bars):
            y += [_heights(mark), [0.0]]
        else:
            y += [mark.low, mark.high] if isinstance(mark, Band) else [mark.y]
        if isinstance(mark, Points) and mark.half is not None:
            ends = np.broadcast_to(np.asarray(mark.half, np.float64), [2, len(np.asarray(mark.y))])
            y += [np.asarray(mark.y) - ends[0], np.asarray(mark.y) + ends[1]]
    return _joined(x), _joined(y)


def _heights(bars: Bars) -> NDArray[np.float64]:
    """Of each bar; what is not finite has none."""
    heights = np.asarray(bars.heights, np.float64)
    return np.where(np.isfinite(heights), np.clip(heights, -MOST, MOST), 0.0)


def _joined(values: Sequence[ArrayLike]) -> NDArray[np.float64]:
    return np.concatenate([np.zeros(0), *(np.ravel(np.asarray(numbers, np.float64)) for numbers in values)])


def _range(values: NDArray[np.float64]) -> tuple[float, float]:
    """The least and the largest number with some room; what is not finite has no place."""
    finite = np.clip(values[np.isfinite(values)], -MOST, MOST)
    if not len(finite):
        return 0.0, 1.0
    low = float(finite.min())
    high = float(finite.max())
    # Room at both ends; an axis that begins at 0 begins there.
    room = 0.04 * (high - low) or 0.05 * abs(high) or 0.5
    return low - (room if low != 0 else 0.0), high + room


def _ticks(low: float, high: float) -> list[float]:
    """Four to nine round numbers between two."""
    # The least step of 1, 2, 5 or 10 times a power of ten that gives fewer than nine intervals.
    size = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = next(size * factor for factor in (1, 2, 5, 10) if (high - low) / (size * factor) < 9)
    numbers = range(math.ceil(low / step), math.floor(high / step) + 1)
    # Without the last digit, in which 3 times 0.1 is not 0.3; equal ones are one.
    return list(dict.fromkeys(float(f"{number * step:.15g}") for number in numbers))


def _named_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """These with their names: in thousands (k), millions (M) or thousands of millions (G) where that is shorter."""
    ticks = _ticks(low, high)
    ways = [
        [f"{tick / unit:g}{letter if tick else ''}" for tick in ticks]
        for unit, letter in ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"))
    ]
    # :g has six digits, which may be too few to tell ticks apart.
    ways = [names for names in ways if len(set(names)) == len(ticks)] or [[f"{tick:.15g}" for tick in ticks]]
    return list(zip(ticks, min(ways, key=lambda names: max(map(len, names), default=0)), strict=True))


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
