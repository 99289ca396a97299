"""gpflow_deep_runs.report.plots: what is drawn, read from Matplotlib's own objects, and that a PNG file is written."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep_runs.report import plots
from gpflow_deep_runs.report.images import tiled
from gpflow_deep_runs.report.plots import Histogram, Line

needs_matplotlib = pytest.mark.skipif(not plots.is_available(), reason="no Matplotlib")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that were saved; that each is a PNG file of its size is asserted, too."""
    figure = pytest.importorskip("matplotlib.figure")
    figures: list[Any] = []
    savefig = figure.Figure.savefig

    def recorded(self: Any, path: Path, **options: Any) -> None:
        savefig(self, path, **options)
        width, height = (self.get_size_inches() * self.dpi).astype(int)
        assert tf.io.decode_png(tf.io.read_file(str(path)), channels=3).shape == [height, width, 3]
        figures.append(self)

    monkeypatch.setattr(figure.Figure, "savefig", recorded)
    return figures


def curves(panel: Any) -> dict[str, list[tuple[float, float]]]:
    """Label -> points of each line."""
    return {str(line.get_label()): [(float(x), float(y)) for x, y in line.get_xydata()] for line in panel.lines}


def test_curves_of_several_runs(tmp_path: Path, drawn: list[Any]) -> None:
    """A panel for each tag that occurs, a line for each run that has it; steps where it is null are left out."""
    records: dict[str, list[dict[str, Any]]] = {
        "dgp": [{"step": 1, "loss": 3.0}, {"step": 2, "loss": None, "rmse": 1.0}, {"step": 3, "loss": 2.0}],
        "gp": [{"step": 1, "loss": 5.0}],
    }
    plots.training_curves(tmp_path / "new" / "curves.png", records, ["absent", "loss", "rmse"])
    (figure,) = drawn
    loss, rmse = (panel for panel in figure.axes if panel.get_title())
    assert (loss.get_title(), loss.get_xlabel()) == ("loss", "step")
    assert curves(loss) == {"dgp": [(1.0, 3.0), (3.0, 2.0)], "gp": [(1.0, 5.0)]}
    assert curves(rmse) == {"dgp": [(2.0, 1.0)]}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["curves.png"]


def test_first_steps_of_a_bound_do_not_set_the_scale(tmp_path: Path, drawn: list[Any]) -> None:
    """A tenth of the points may leave the panel below; the rest is seen with a margin of 5 %."""
    values = [-1e6, *np.linspace(-10.0, 10.0, 19)]
    records = {"dgp": [{"step": i, "train/elbo_nats": value} for i, value in enumerate(values)]}
    plots.training_curves(tmp_path / "a.png", records, ["train/elbo_nats"])
    low, high = drawn[0].axes[0].get_ylim()
    assert high == pytest.approx(10.0 + 0.05 * (10.0 - values[2]))
    assert low == pytest.approx(values[2] - 0.05 * (10.0 - values[2]))


def test_names_of_strangers_are_no_formulas(tmp_path: Path, drawn: list[Any]) -> None:
    panels = {r"price $ and $\frac": {"a $^$": ([1.0, 2.0], [1.0, 2.0])}}
    plots.lines(tmp_path / "a.png", panels, xlabel="$$", ylabel="cost in $")
    assert drawn[0].axes[0].get_title() == r"price $ and $\frac"


def test_a_noisy_course_has_its_running_mean_in_front(tmp_path: Path, drawn: list[Any]) -> None:
    records = {"dgp": [{"step": i, "loss": float(i % 2)} for i in range(100)]}
    plots.training_curves(tmp_path / "a.png", records, ["loss"])
    mean, raw = drawn[0].axes[0].lines
    assert np.ptp(mean.get_ydata()[10:-10]) < 0.5 * np.ptp(raw.get_ydata())
    assert mean.get_zorder() > raw.get_zorder()


def test_no_curve_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none of the tags loss, rmse was logged; lower --log_every or --eval_every"):
        plots.training_curves(tmp_path / "a.png", {"dgp": [{"step": 1, "x": 1.0}]}, ["loss", "rmse"])
    assert not list(tmp_path.iterdir())


def test_lines_with_bands_and_error_bars(tmp_path: Path, drawn: list[Any]) -> None:
    band = Line([1.0, 2.0], [3.0, 5.0], [0.5, 1.0])
    dots = Line([1.0, 2.0], [2.0, 2.0], [0.25, 0.5], "o")
    plots.lines(tmp_path / "a.png", {"one": {"band": band, "dots": dots}, "two": {"x": Line([0], [1])}}, xlabel="step")
    one, two = (panel for panel in drawn[0].axes if panel.get_title())
    assert [panel.get_title() for panel in (one, two)] == ["one", "two"]
    assert curves(one)["band"] == [(1.0, 3.0), (2.0, 5.0)]
    area, errors = one.collections
    assert area.get_datalim(one.transData).get_points().tolist() == [[1.0, 2.5], [2.0, 6.0]]
    assert [segment[:, 1].tolist() for segment in errors.get_segments()] == [[1.75, 2.25], [1.5, 2.5]]
    labels = [text.get_text() for text in one.get_legend().get_texts()]
    assert labels == ["band", "dots"]


def test_each_panel_has_its_unit(tmp_path: Path, drawn: list[Any]) -> None:
    panels = {"log Z": {"a": Line([0.0], [1.0])}, "ladder": {"b": Line([0.0], [0.5])}}
    plots.lines(tmp_path / "a.png", panels, xlabel="step", ylabel="nats")
    plots.lines(tmp_path / "a.png", panels, xlabel="step", ylabel={"log Z": "nats"})
    plots.training_curves(tmp_path / "a.png", {"r": [{"step": 1, "a/b_nats": 1.0, "rmse": 2.0}]}, ["a/b_nats", "rmse"])
    labels = [[panel.get_ylabel() for panel in figure.axes if panel.get_title()] for figure in drawn]
    assert labels == [["nats"] * 2, ["nats", ""], ["nats", "units of the target"]]


@pytest.mark.parametrize(("count", "marker"), [(29, "."), (30, "None")])
def test_few_points_are_marked(tmp_path: Path, drawn: list[Any], count: int, marker: str) -> None:
    plots.lines(tmp_path / "a.png", {"a": {"b": Line([*range(count)], [*range(count)], style="--")}}, xlabel="step")
    (line,) = drawn[0].axes[0].lines
    assert (line.get_marker(), line.get_linestyle()) == (marker, "--")


def test_many_lines_have_no_legend(tmp_path: Path, drawn: list[Any]) -> None:
    panels = {"all": {str(i): Line([0.0], [float(i)]) for i in range(11)}}
    plots.lines(tmp_path / "a.png", panels, xlabel="step")
    assert drawn[0].axes[0].get_legend() is None


def test_images(tmp_path: Path, drawn: list[Any], rng: np.random.Generator) -> None:
    images = rng.uniform(size=[5, 3, 3])
    plots.image_grid(tmp_path / "a.png", {"data": images, "samples": images[:2]}, columns=2)
    shown = {panel.get_title(): panel.images[0].get_array() for panel in drawn[0].axes if panel.images}
    np.testing.assert_array_equal(shown["data"], tiled(images, 2))
    np.testing.assert_array_equal(shown["samples"], tiled(images[:2], 2))


def test_histograms(tmp_path: Path, drawn: list[Any]) -> None:
    found = Histogram(np.array([3, 0, 5]), np.array([0.0, 1.0, 2.0, 4.0]), {"threshold": 1.5})
    plots.histograms(tmp_path / "a.png", {"layer 1": found}, xlabel="log alpha")
    (panel,) = drawn[0].axes
    assert [(bar.get_x(), bar.get_width(), bar.get_height()) for bar in panel.patches] == [
        (0, 1, 3),
        (1, 1, 0),
        (2, 2, 5),
    ]
    assert panel.lines[0].get_xdata() == [1.5, 1.5]
    assert [text.get_text() for text in panel.get_legend().get_texts()] == ["threshold"]


def test_predictions_against_the_truth(tmp_path: Path, drawn: list[Any]) -> None:
    """The title counts all rows, also those that are not drawn; each target has its own panel."""
    Y = np.stack([np.arange(4000.0), np.zeros(4000)], axis=1)
    mean, lower, upper = Y.copy(), Y - 1.0, Y + 2.0
    lower[:1000, 1] = 0.5  # a quarter of the second target is below its interval
    plots.predicted_vs_true(tmp_path / "a.png", Y, mean, lower, upper, names=["fare", "tip"], interval="95% interval")
    first, second = (panel for panel in drawn[0].axes if panel.get_title())
    assert first.get_title().replace("\n", " ") == "95% interval holds 100% of 4000 test rows"
    assert second.get_title().replace("\n", " ") == "95% interval holds 75% of 4000 test rows"
    assert (first.get_xlabel(), first.get_ylabel()) == ("true fare", "predicted fare")
    points = first.lines[0].get_xydata()
    assert len(points) <= 2000
    np.testing.assert_array_equal(points[[0, -1]], [[0.0, 0.0], [3999.0, 3999.0]])
    segments = first.collections[0].get_segments()
    assert len(segments) == 200
    assert [text.get_text() for text in first.get_legend().get_texts()] == ["95% interval, 200 of the rows"]
    np.testing.assert_allclose([segments[0][:, 1], segments[-1][:, 1]], [[-1.0, 2.0], [3998.0, 4001.0]])


def test_the_fit_of_a_model_with_one_input(tmp_path: Path, drawn: list[Any], rng: np.random.Generator) -> None:
    X, grid = rng.normal(size=[30, 1]), np.linspace(-2.0, 2.0, 7)[:, None]
    Y = np.concatenate([np.sin(X), X], axis=1)
    layers, mean = [rng.normal(size=[3, 7]), rng.normal(size=[2, 7])], np.sin(grid)
    plots.fit_1d(tmp_path / "a.png", (X, Y), grid, layers, (mean, mean - 1, mean + 2), names=("x", "y"), interval="95%")
    one, two, fit = (panel for panel in drawn[0].axes if panel.get_title())
    assert [panel.get_title() for panel in (one, two)] == [f"layer {i}, draws given the data" for i in (1, 2)]
    np.testing.assert_array_equal([line.get_ydata() for line in one.lines], layers[0])
    np.testing.assert_array_equal([line.get_ydata() for line in two.lines], layers[1])
    data, line = fit.lines
    np.testing.assert_array_equal(data.get_xydata(), np.stack([X[:, 0], Y[:, 0]], axis=1))  # the first target
    np.testing.assert_array_equal(line.get_ydata(), mean[:, 0])
    (low, high) = fit.collections[0].get_datalim(fit.transData).get_points()[:, 1]
    assert (low, high) == (mean.min() - 1, mean.max() + 2)
    assert (fit.get_xlabel(), fit.get_ylabel()) == ("x", "y")


def test_confusion(tmp_path: Path, drawn: list[Any]) -> None:
    labels, predicted = np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 0])
    plots.confusion_matrix(tmp_path / "a.png", labels, predicted, ["cat", "dog", "none"])
    (panel,) = drawn[0].axes
    assert panel.get_title() == "3 of 5 test rows right"
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("predicted", "true")
    shares = np.array([[2 / 3, 1 / 3, 0], [1 / 2, 1 / 2, 0], [0, 0, 0]])  # of the rows; none of the third class
    np.testing.assert_allclose(panel.images[0].get_array(), shares)
    assert [text.get_text() for text in panel.texts] == ["2", "1", "0", "1", "1", "0", "0", "0", "0"]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["cat", "dog", "none"]


def test_many_classes_are_not_named(tmp_path: Path, drawn: list[Any]) -> None:
    labels = np.arange(31)
    plots.confusion_matrix(tmp_path / "a.png", labels, labels, [str(i) for i in range(31)])
    assert not drawn[0].axes[0].texts


@needs_matplotlib
def test_nothing_global_changes(tmp_path: Path) -> None:
    """No display is opened and no figure is left in pyplot, which is not even imported."""
    before = set(sys.modules)
    plots.lines(tmp_path / "a.png", {"a": {"b": Line([0.0], [1.0])}}, xlabel="x")
    assert "matplotlib.pyplot" not in set(sys.modules) - before


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match="plots need Matplotlib, which is not installed"):
        plots.lines(tmp_path / "a.png", {"a": {"b": Line([0.0], [1.0])}}, xlabel="x")
    assert not list(tmp_path.iterdir())
