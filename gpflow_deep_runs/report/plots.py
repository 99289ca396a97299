"""Plots of a run as PNG files. They need Matplotlib; every function raises ValueError if it is not installed.

Figures are drawn without pyplot, so nothing global changes and no display is needed.
"""

import importlib.util
import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_base.files import atomic_path
from gpflow_deep_base.page import smoothed
from gpflow_deep_runs.report.images import tiled

__all__ = [
    "Bars",
    "Histogram",
    "Line",
    "bars",
    "confusion_matrix",
    "fit_1d",
    "histograms",
    "image_grid",
    "is_available",
    "lines",
    "predicted_vs_true",
    "training_curves",
]

_MAX_POINTS = 2_000
_MAX_INTERVALS = 200
_MAX_LEGEND = 8
_MAX_NAMED_CLASSES = 30
_FEW_POINTS = 30  # which are marked
_UNITS = {"nats": "nats", "bits": "bits", "percent": "%", "seconds": "seconds", "rmse": "units of the target"}


class Line(NamedTuple):
    """Points of one line in a panel: `x`, `y`, and half the width of its band or of its error bars.

    `style` is a Matplotlib format such as "-", "--" or "o"; "o" with `spread` draws error bars.
    """

    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] | None = None
    style: str = "-"


def is_available() -> bool:
    """Whether Matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def training_curves(
    path: str | os.PathLike[str], records: Mapping[str, Sequence[Mapping[str, Any]]], tags: Sequence[str]
) -> None:
    """One panel for each tag that occurs, with a line for each run.

    :param records: title of a run -> the objects of its `scalars.jsonl`.
    :param tags: for example "train/elbo_nats", "test/rmse"; their last words say the unit.
    :raises ValueError: if no run has any of the tags.
    """
    # Tags that no run logged have no panel.
    present = [tag for tag in tags if any(tag in record for run in records.values() for record in run)]
    if not present:
        raise ValueError(f"none of the tags {', '.join(tags)} was logged; lower --log_every or --eval_every.")
    figure, panels = _figure(len(present))
    for panel, tag in zip(panels, present, strict=True):
        lows = []
        is_rising = False
        for title, run in records.items():
            # Few points are marked; many are smoothed, with themselves in a pale line behind.
            points = [(record["step"], record[tag]) for record in run if record.get(tag) is not None]
            if points:
                steps, values = zip(*points, strict=True)
                is_rising = values[-1] > values[0]
                if len(points) < _FEW_POINTS:
                    panel.plot(steps, values, marker=".", label=title)
                else:  # a running mean, with what was logged behind it
                    (drawn,) = panel.plot(steps, smoothed(values), label=title)
                    panel.plot(steps, values, color=drawn.get_color(), alpha=0.25, linewidth=0.7, zorder=1)
                lows.append((min(values[len(values) // 10 :]), max(values)))
        if tag.endswith("elbo_nats") and lows:  # the first steps are so low that nothing else would be seen
            low = min(low for low, _ in lows)
            high = max(high for _, high in lows)
            if high > low:
                panel.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
        panel.set(title=tag, xlabel="step", ylabel=_UNITS.get(re.split("[/_]", tag)[-1], ""))
        # A place of its own, as Matplotlib looks for the best one for seconds where points are many.
        panel.legend(loc="lower right" if is_rising else "upper right")
    _save(figure, path)


def lines(
    path: str | os.PathLike[str],
    panels: Mapping[str, Mapping[str, tuple[Any, ...]]],
    *,
    xlabel: str,
    ylabel: str | Mapping[str, str] = "",
) -> None:
    """One panel for each title, with labelled lines; where there are few points they are marked.

    :param panels: title of a panel -> label of a line -> its points: a `Line`, or a tuple with the fields of one.
    :param ylabel: of all panels, or title of a panel -> its own.
    """
    figure, axes = _figure(len(panels))
    from matplotlib import ticker

    for panel, (title, content) in zip(axes, panels.items(), strict=True):
        # Error bars for single points, a band for a line.
        for label, points in content.items():
            line = Line(*points)
            x = np.asarray(line.x, float)
            y = np.asarray(line.y, float)
            if line.spread is not None and "-" not in line.style:
                panel.errorbar(x, y, yerr=line.spread, fmt=line.style, capsize=2, markersize=4, label=label)
                continue
            marker = "." if line.style in ("-", "--") and len(x) < _FEW_POINTS else ""
            (drawn,) = panel.plot(x, y, marker + line.style, markersize=4, label=label)
            if line.spread is not None:
                half = np.asarray(line.spread, float)
                panel.fill_between(x, y - half, y + half, alpha=0.2, color=drawn.get_color(), linewidth=0)
        # Titles, ticks that have room, and a legend where it helps.
        panel.set(
            title=textwrap.fill(title, 40),
            xlabel=xlabel,
            ylabel=ylabel if isinstance(ylabel, str) else ylabel.get(title, ""),
        )
        panel.xaxis.set_major_locator(ticker.MaxNLocator(4))  # numbers of six digits have room
        panel.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))
        if len(content) <= _MAX_LEGEND:
            is_short = sum(len(Line(*points).x) for points in content.values()) < _MAX_POINTS
            panel.legend(loc="best" if is_short else "lower right", fontsize="small")
    _save(figure, path)


def image_grid(path: str | os.PathLike[str], panels: Mapping[str, NDArray], columns: int | None = None) -> None:
    """One panel of tiles for each title.

    :param panels: title -> grey images [N, H, W], see `images.tiled`.
    """
    figure, axes = _figure(len(panels))
    for panel, (title, images) in zip(axes, panels.items(), strict=True):
        panel.imshow(tiled(images, columns), cmap="gray", interpolation="nearest")
        panel.set_axis_off()
        panel.set_title(title)
    _save(figure, path)


class Histogram(NamedTuple):
    """Counts [n] between edges [n + 1], and vertical lines: positions by label."""

    counts: NDArray[np.int64]
    edges: NDArray[np.float64]
    marks: Mapping[str, float] = {}


def histograms(path: str | os.PathLike[str], panels: Mapping[str, Histogram], *, xlabel: str) -> None:
    """Draw histograms side by side.

    :param path: the PNG file.
    :param panels: title to histogram.
    :param xlabel: what is counted, with its unit.
    """
    figure, axes = _figure(len(panels))
    for axis, (title, (counts, edges, marks)) in zip(axes, panels.items(), strict=True):
        axis.hist(edges[:-1], edges, weights=counts)
        # Vertical lines, such as thresholds, in the colours after that of the bars.
        for number, (label, position) in enumerate(marks.items(), start=1):
            axis.axvline(position, color=f"C{number}", label=label)
        axis.set(title=title, xlabel=xlabel, ylabel="count")
        axis.yaxis.get_major_locator().set_params(integer=True)
        if marks:
            axis.legend(fontsize=7, loc="upper right")
    _save(figure, path)


class Bars(NamedTuple):
    """Bars of one colour: heights [n], and half the lengths of their error bars [n]."""

    heights: NDArray[np.float64]
    spreads: NDArray[np.float64]


def bars(
    path: str | os.PathLike[str], labels: Sequence[str], groups: Mapping[str, Bars], *, title: str, ylabel: str
) -> None:
    """Bars over labels, with error bars; those of all groups side by side.

    :param labels: what stands below the n bars of a group.
    """
    figure, (panel,) = _figure(1)
    figure.set_size_inches(2.0 + 0.9 * len(labels), 4.0)
    x = np.arange(len(labels))
    width = 0.8 / len(groups)
    # Groups stand side by side around the place of their label.
    for number, (label, group) in enumerate(groups.items()):
        positions = x + width * (number - (len(groups) - 1) / 2)
        panel.bar(positions, group.heights, width, yerr=group.spreads, color=f"C{number}", label=label, capsize=3)
    panel.set_xticks(x, [label.replace(", ", ",\n").replace(" ", "\n", 1) for label in labels], fontsize=8)
    panel.set(ylabel=ylabel, title=title, ylim=(0, 1.25 * panel.get_ylim()[1]))  # room for the legend
    panel.legend(fontsize="small", ncols=len(groups), loc="upper center")
    _save(figure, path)


def predicted_vs_true(
    path: str | os.PathLike[str],
    Y: NDArray[Any],
    mean: NDArray[Any],
    lower: NDArray[Any],
    upper: NDArray[Any],
    *,
    names: Sequence[str],
    interval: str,
) -> None:
    """Predicted mean against the true value, one panel for each of P targets; at most 2000 rows, 200 with intervals.

    :param Y: true values [N, P]; `mean`, `lower` and `upper` likewise.
    :param interval: what the bars are, for example "95% interval".
    """
    # Rows from the first to the last, few enough to be drawn fast and told apart.
    rows = _spread(len(Y), _MAX_POINTS)
    few = _spread(len(Y), _MAX_INTERVALS)
    figure, panels = _figure(Y.shape[1], size=5.0)
    for p, panel in enumerate(panels):
        y = Y[rows, p]
        m = mean[rows, p]
        panel.plot(y, m, ".", markersize=4, zorder=3)
        bars = np.maximum(np.stack([mean[few, p] - lower[few, p], upper[few, p] - mean[few, p]]), 0.0)
        label = interval if len(few) == len(Y) else f"{interval}, {len(few)} of the rows"
        panel.errorbar(Y[few, p], mean[few, p], yerr=bars, fmt="none", ecolor="0.7", elinewidth=1, label=label)
        # The diagonal, on which a perfect prediction lies.
        ends = [min(y.min(), m.min()), max(y.max(), m.max())]
        panel.plot(ends, ends, color="black", linewidth=1, zorder=4)
        # How often the interval holds, of all rows and not only of those drawn.
        is_inside = np.mean((Y[:, p] >= lower[:, p]) & (Y[:, p] <= upper[:, p]))
        title = f"{interval} holds {100 * is_inside:.0f}% of {len(Y)} test rows"
        panel.set(xlabel=f"true {names[p]}", ylabel=f"predicted {names[p]}", title=textwrap.fill(title, 40))
        panel.legend(loc="upper left")
    _save(figure, path)


def fit_1d(
    path: str | os.PathLike[str],
    train: tuple[NDArray[Any], NDArray[Any]],
    grid: NDArray[Any],
    layers: Sequence[NDArray[Any]],
    band: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
    *,
    names: tuple[str, str],
    interval: str,
) -> None:
    """The fit of a model with one input: a panel with draws for each inner layer, and one with data and predictions.

    :param train: inputs [N, 1] and targets [N, P].
    :param grid: inputs [G, 1].
    :param layers: for each inner layer draws of its first output at the grid, [S, G].
    :param band: mean, lower and upper limit of the first target at the grid, each [G, P].
    :param names: of the input and the target.
    :param interval: what the band is, for example "95%".
    """
    figure, panels = _figure(len(layers) + 1, size=4.0)
    # Inner layers: draws of the functions given the data.
    x = grid[:, 0]
    for number, (panel, draws) in enumerate(zip(panels, layers, strict=False), start=1):
        panel.plot(x, draws.T, color="C0", linewidth=0.7, alpha=0.6)
        panel.set(title=f"layer {number}, draws given the data", xlabel=names[0])
    # The last panel: data, predictive mean and its band.
    X, Y = train
    rows = _spread(len(X), _MAX_POINTS)
    mean, lower, upper = band
    panel = panels[-1]
    panel.plot(X[rows, 0], Y[rows, 0], ".", color="black", markersize=2, alpha=0.5, label="training data")
    panel.plot(x, mean[:, 0], color="C1", label="mean")
    panel.fill_between(x, lower[:, 0], upper[:, 0], color="C1", alpha=0.3, linewidth=0, label=interval)
    panel.set(title="prediction", xlabel=names[0], ylabel=names[1])
    panel.legend(loc="upper right")
    _save(figure, path)


def confusion_matrix(
    path: str | os.PathLike[str], labels: NDArray[Any], predicted: NDArray[Any], class_names: Sequence[str]
) -> None:
    """How many rows of each class were given which label: counts, and shares of the row as colours.

    :param labels: true labels 0, ..., C-1, [N].
    :param predicted: predicted labels, [N].
    """
    C = len(class_names)
    # Row i, column j: rows of class i that were given label j.
    counts = np.zeros([C, C], dtype=np.int64)
    np.add.at(counts, (np.asarray(labels, np.int64), np.asarray(predicted, np.int64)), 1)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    figure, (panel,) = _figure(1, size=min(4.0 + 0.3 * C, 12.0))
    panel.imshow(shares, vmin=0, vmax=1, cmap="Blues")
    panel.set(xlabel="predicted", ylabel="true", title=f"{np.trace(counts)} of {counts.sum()} test rows right")
    # With few classes names and counts are legible.
    if C <= _MAX_NAMED_CLASSES:
        panel.set_xticks(range(C), class_names, rotation=90 if max(map(len, class_names)) > 3 else 0)
        panel.set_yticks(range(C), class_names)
        for (i, j), count in np.ndenumerate(counts):
            colour = "white" if shares[i, j] > 0.5 else "black"
            panel.text(j, i, str(count), ha="center", va="center", color=colour, fontsize=8)
    _save(figure, path)


def _spread(num_rows: int, at_most: int) -> NDArray[np.int64]:
    """Numbers of rows from the first to the last one."""
    return np.unique(np.linspace(0, num_rows - 1, min(num_rows, at_most)).astype(np.int64))


def _figure(num_panels: int, size: float = 3.5) -> tuple[Any, list[Any]]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("plots need Matplotlib, which is not installed; `pip install matplotlib`.") from error
    # Three panels in a row, and those without content are hidden.
    columns = min(num_panels, 3)
    rows = -(-num_panels // columns)
    figure = Figure(figsize=(size * 1.3 * columns, size * rows), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    panels = np.ravel(figure.subplots(rows, columns, squeeze=False)).tolist()
    for unused in panels[num_panels:]:
        unused.set_axis_off()
    return figure, panels[:num_panels]


def _save(figure: Any, path: str | os.PathLike[str]) -> None:
    for text in figure.findobj(lambda artist: hasattr(artist, "set_parse_math")):
        if not text.get_text().startswith(r"$\mathdefault"):  # names of strangers are no formulas; ticks are
            text.set_parse_math(False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png")
