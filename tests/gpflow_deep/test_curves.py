"""`gpflow_deep.curves`: the arrays of plots."""

from typing import Any

import numpy as np
import pytest

from gpflow_deep import ModelConfig, Predictor, Units, curves
from gpflow_deep.judge.evaluation import Evaluation, Score, evaluate
from tests.gpflow_deep.builders import make_data, make_model

ANY = Score(0.0, 0.0)


@pytest.fixture
def trained(rng: np.random.Generator) -> tuple[Predictor, Any]:
    """A predictor of two inputs, and rows."""
    X, Y = make_data(rng, 12)
    return Predictor(make_model(rng, (2, 1)), Units.fit(X, Y, "gaussian")), (X, Y)


def test_tags_of_curves() -> None:
    tags = curves.tags("regression", ["valid", "test"])
    assert tags[:3] == ["train/elbo_nats", "valid/log_likelihood_nats", "valid/rmse"]
    assert curves.tags("binary", ["test"])[1:] == ["test/log_likelihood_nats", "test/accuracy"]


def test_fit_on_grid(rng: np.random.Generator, trained: tuple[Predictor, Any]) -> None:
    """The range of the data and a tenth beside it; the inner layer at the start is the identity on scaled inputs."""
    X = rng.uniform(10.0, 30.0, size=(50, 1))
    Y = 100.0 + np.sin(X / 3)
    units = Units.fit(X, Y, "gaussian")
    model = ModelConfig(num_inducing=20, likelihood="gaussian").build(*units.transform(X, Y))
    found = curves.fit_on_grid(Predictor(model, units), (X, Y), num_points=41, num_draws=5)
    width = X.max() - X.min()
    np.testing.assert_allclose(found.grid[[0, -1], 0], [X.min() - 0.1 * width, X.max() + 0.1 * width], rtol=1e-12)
    assert [draws.shape for draws in found.layers] == [(5, 41)]
    scaled = np.broadcast_to(units.x.transform(found.grid)[:, 0], (5, 41))
    inside = slice(5, -5)
    # Beside the 20 inducing inputs the layer knows itself, up to the noise of 1e-5 and the jitter: 5 deviations.
    np.testing.assert_allclose(found.layers[0][:, inside], scaled[:, inside], rtol=0, atol=5 * np.sqrt(1.2e-5))
    predicted: Any = Predictor(model, units).predict(found.grid, num_samples=1000)
    for band, expected in zip(found.band, (predicted.mean, predicted.lower, predicted.upper), strict=True):
        np.testing.assert_array_equal(band, expected)
    assert (found.interval, found.train) == ("95%", (X, Y))
    wide, rows = trained
    with pytest.raises(ValueError, match="drawn over one input, got 2"):
        curves.fit_on_grid(wide, rows)


def test_intervals_are_of_rows_drawn_once(trained: tuple[Predictor, Any]) -> None:
    predictor, (X, Y) = trained
    found = curves.intervals(predictor, (X, Y), np.random.default_rng(5), max_rows=4)
    rows = np.sort(np.random.default_rng(5).permutation(12)[:4])
    np.testing.assert_array_equal(found.Y, Y[rows])
    predicted = predictor.predict(X[rows])
    for name in ("mean", "lower", "upper"):
        np.testing.assert_array_equal(getattr(found, name), getattr(predicted, name))
    assert (found.interval, found.names) == ("95%", ("y",))


def test_calibration_of_numbers() -> None:
    """Share of targets below a quantile: four transforms, of which three are at most 0.4."""
    pit = np.array([[0.4], [0.1], [0.2], [0.9]])
    found = curves.calibration("GP", Evaluation(4, ANY, pit=pit))
    assert found is not None
    (title,) = found.panels
    assert title == "GP: calibrated (distance 0.350)"  # of four, the limit is 0.68; the largest is 0.75 - 0.4
    p, _, band, _ = found.panels[title]["right probabilities, 95% of samples"]
    assert band[50] == pytest.approx(1.96 * 0.5 / 2)
    assert p[50] == 0.5
    x, share, spread, style = found.panels[title]["test rows"]
    np.testing.assert_array_equal(x, [0.1, 0.2, 0.4, 0.9])
    np.testing.assert_array_equal(share, [0.25, 0.5, 0.75, 1.0])
    assert (spread, style, found.xlabel) == (None, "-", "probability")
    counts, edges = curves.pit_histogram(Evaluation(4, ANY, pit=pit), num_bins=2)  # type: ignore[misc]
    np.testing.assert_array_equal(counts, [3, 1])
    np.testing.assert_array_equal(edges, [0.0, 0.5, 1.0])


def test_calibration_of_labels() -> None:
    """Two bins with rows: confidences 0.62 and 0.66, one of them right; 0.9, right."""
    judged = Evaluation(3, ANY, confidence=np.array([0.62, 0.95, 0.66]), is_right=np.array([True, True, False]))
    found = curves.calibration("GP", judged)
    assert found is not None
    x, share, spread, style = found.panels["GP"]["test rows"]
    np.testing.assert_allclose(x, [0.64, 0.95])
    np.testing.assert_allclose(share, [0.5, 1.0])
    np.testing.assert_allclose(spread, [np.sqrt(0.125), 0.0])
    assert (style, found.xlabel) == ("o", "confidence")
    assert curves.pit_histogram(judged) is None


def test_no_calibration_without_probabilities() -> None:
    assert curves.calibration("GP", Evaluation(3, ANY)) is None


def test_drawings_of_a_run(trained: tuple[Predictor, Any], rng: np.random.Generator) -> None:
    predictor, rows = trained
    judged = evaluate(predictor, rows)
    found = curves.drawings(predictor, judged, predictor.predict(*rows), rows, rows, rng)
    assert {name: kind for name, (kind, _) in found.items()} == {
        "calibration": "lines",
        "pit": "histograms",
        "predicted_vs_true": "predicted_vs_true",
    }
    (title,) = found["calibration"][1]["panels"]
    assert title.startswith("GP (1 layer): too narrow (distance")
