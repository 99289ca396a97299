"""`gpflow_deep.pages`: what the plots of a report hold."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpflow_deep import ModelConfig, Predictor, Units, pages
from gpflow_deep.judge.evaluation import Evaluation, Score
from tests.gpflow_deep.builders import make_data, make_model

ANY = Score(0.0, 0.0)


@pytest.fixture
def trained(rng: np.random.Generator) -> tuple[Predictor, Any]:
    """A predictor of two inputs, and rows."""
    X, Y = make_data(rng, 12)
    return Predictor(make_model(rng, (2, 1)), Units.fit(X, Y, "gaussian")), (X, Y)


def test_tags_of_the_course() -> None:
    tags = pages.tags("regression", ["valid", "test"])
    assert tags[:3] == ["train/elbo_nats", "valid/log_likelihood_nats", "valid/rmse"]
    assert pages.tags("binary", ["test"])[1:] == ["test/log_likelihood_nats", "test/accuracy"]


def test_fit_on_grid(rng: np.random.Generator, trained: tuple[Predictor, Any]) -> None:
    """The range of the data and a tenth beside it; the inner layer at the start is the identity on scaled inputs."""
    X = rng.uniform(10.0, 30.0, size=(50, 1))
    Y = 100.0 + np.sin(X / 3)
    units = Units.fit(X, Y, "gaussian")
    model = ModelConfig(num_inducing=20, likelihood="gaussian").build(*units.transform(X, Y))
    found = pages.fit_on_grid(Predictor(model, units), X, num_points=41, num_draws=5)
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
    assert found.interval == "95%"
    wide, (X, _) = trained
    with pytest.raises(ValueError, match="drawn over one input, got 2"):
        pages.fit_on_grid(wide, X)


def test_predictions_beside_the_truth(trained: tuple[Predictor, Any]) -> None:
    """A panel for each target: points at the predicted means with their intervals, and how many of all these hold."""
    predictor, (X, Y) = trained
    parts: Any = pages.prediction_parts(predictor, X, Y)
    shown, residuals = parts
    assert (shown.title, residuals.title) == ("Predicted and true", "Residuals")
    (panel,) = shown.panels
    predicted: Any = predictor.predict(X)
    is_inside = np.mean((predicted.lower <= Y) & (predicted.upper >= Y))
    assert panel.title == f"95% interval holds {100 * is_inside:.0f}% of 12 rows"
    _, points = panel.marks
    np.testing.assert_array_equal(points.x, Y[:, 0])
    np.testing.assert_array_equal(points.y, predicted.mean[:, 0])
    np.testing.assert_allclose(
        points.half, [(predicted.mean - predicted.lower)[:, 0], (predicted.upper - predicted.mean)[:, 0]]
    )


def test_the_fit_of_a_model_with_one_input(rng: np.random.Generator) -> None:
    """Draws of the inner layer, then the first target with its band beside the training rows."""
    X = rng.uniform(size=(30, 1))
    Y = np.sin(X)
    units = Units.fit(X, Y, "gaussian")
    model = ModelConfig(num_inducing=5, likelihood="gaussian").build(*units.transform(X, Y))
    parts: Any = pages.prediction_parts(Predictor(model, units), X, Y, train=(X, Y), input_name="age")
    *_, fit = parts
    assert fit.title == "Fit"
    inner, last = fit.panels
    assert (inner.title, len(inner.marks), last.xlabel) == ("layer 1, draws given the data", 20, "age")
    band, mean, points = last.marks
    assert np.all(band.low <= mean.y)
    assert np.all(mean.y <= band.high)
    np.testing.assert_array_equal(points.x, X[:, 0])


@pytest.mark.parametrize("num_classes", [3, 31])
def test_labels_are_counted_by_their_class(num_classes: int) -> None:
    """Row: true, column: predicted. Many classes would fill no page."""
    predicted = SimpleNamespace(labels=np.array([0, 0, 1, 1, 0]))
    names = tuple("abc"[:num_classes]) if num_classes == 3 else tuple(map(str, range(31)))
    predictor: Any = SimpleNamespace(task="multiclass", class_names=names, predict=lambda X: predicted)
    found: Any = pages.prediction_parts(predictor, np.zeros([5, 2]), np.array([[0], [0], [0], [1], [1]]))
    if num_classes > 30:
        assert found == []
        return
    (table,) = found
    assert table.rows == [["true", "a", "b", "c"], ["a", "2", "1", "0"], ["b", "1", "1", "0"], ["c", "0", "0", "0"]]
    assert table.note.startswith("3 of 5 test rows right")


def test_calibration_of_numbers() -> None:
    """Share of targets below a quantile: four transforms, of which three are at most 0.4; and their histogram."""
    pit = np.array([[0.4], [0.1], [0.2], [0.9]])
    part: Any = pages.calibration_parts({"GP": Evaluation(4, ANY, pit=pit)})[0]
    curve, histogram = part.panels
    assert curve.title == "GP: calibrated (distance 0.350)"  # of four, the limit is 0.68; the largest is 0.75 - 0.4
    band, line, _ = curve.marks
    assert band.high[50] == pytest.approx(0.5 + 1.96 * 0.5 / 2)
    np.testing.assert_array_equal(line.y[[5, 15, 30, 50, 95]], [0.0, 0.25, 0.5, 0.75, 1.0])
    np.testing.assert_array_equal(histogram.marks[1].heights[[2, 4, 8, 18]], 1)


def test_calibration_of_labels() -> None:
    """Two bins with rows: confidences 0.62 and 0.66, one of them right; 0.95, right."""
    judged = Evaluation(3, ANY, confidence=np.array([0.62, 0.95, 0.66]), is_right=np.array([True, True, False]))
    part: Any = pages.calibration_parts({"GP": judged})[0]
    _, points = part.panels[0].marks
    np.testing.assert_allclose(points.x, [0.64, 0.95])
    np.testing.assert_allclose(points.y, [0.5, 1.0])
    assert pages.calibration_parts({"GP": Evaluation(3, ANY)}) == []
