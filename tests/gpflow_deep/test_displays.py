"""Displays hold what they draw: shares of targets below quantiles, and means over rows with one input varied."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from gpflow_deep.judge.forecasts import LinearModel
from gpflow_deep.pages import CalibrationDisplay, DependenceDisplay
from gpflow_deep_runs.data.values.encoder import TableEncoder


def test_right_distributions_are_on_the_diagonal(rng: np.random.Generator) -> None:
    display = CalibrationDisplay.from_predictions(rng.uniform(size=[2000, 1]), name="uniform")
    is_within = np.abs(display.share - display.probability) <= display.half_width + 1e-12
    assert is_within.mean() > 0.5
    assert display.distance < 2.5 / np.sqrt(2000)  # Kolmogorov's test at one in 10^5
    axes = Figure().subplots()
    assert display.plot(axes) is axes
    assert axes.get_legend_handles_labels()[1][-1] == f"uniform: distance {display.distance:.3f}"


def test_too_wide_distributions_are_not() -> None:
    display = CalibrationDisplay.from_predictions([0.5] * 10)
    np.testing.assert_array_equal(display.share, display.probability >= 0.5)
    assert display.distance == pytest.approx(0.5)


def test_a_model_of_numbers_is_judged_by_its_rows(rng: np.random.Generator) -> None:
    X = rng.normal(size=[400, 2])
    Y = X[:, :1] + rng.normal(size=[400, 1])
    display = CalibrationDisplay.from_estimator(LinearModel.fit(X, Y), X, Y)
    assert display.distance < 0.1


@pytest.mark.parametrize("pit", [[], [0.2, 1.1], [-0.1], [np.nan]])
def test_what_is_no_probability_is_refused(pit: list[float]) -> None:
    with pytest.raises(ValueError, match="pit must be probabilities between 0 and 1"):
        CalibrationDisplay.from_predictions(pit)


class Quadratic:
    """Predicts x0^2 + x1, with limits of 1 to both sides."""

    task = "regression"

    def predict(self, X: Any) -> Any:
        mean = (X[:, 0] ** 2 + X[:, 1])[:, None]
        return SimpleNamespace(mean=mean, interval=(mean - 1, mean + 1, 0.95))


def test_dependence_varies_one_input(rng: np.random.Generator) -> None:
    X = pd.DataFrame(rng.uniform(-1, 1, size=[30, 2]), columns=["x", "height"])
    display = DependenceDisplay.from_estimator(Quadratic(), X, "x")
    np.testing.assert_allclose(display.mean, display.grid**2 + X["height"].mean())
    assert display.low is not None
    np.testing.assert_allclose(display.low, display.mean - 1)
    axes = display.plot(Figure().subplots())
    assert axes.get_xlabel() == "x"
    by_number = DependenceDisplay.from_estimator(Quadratic(), X.to_numpy(), 1)
    assert by_number.feature_name == "x1"
    np.testing.assert_allclose(np.diff(by_number.mean), np.diff(by_number.grid))


def test_a_frame_is_read_as_it_was_when_the_model_was_fitted(rng: np.random.Generator) -> None:
    X = pd.DataFrame({"x": rng.uniform(-1, 1, size=30), "kind": ["a", "b", "c"] * 10})
    model: Any = Quadratic()
    model.table_encoder_ = TableEncoder().fit(X)
    assert DependenceDisplay.from_estimator(model, X, "kind=a").feature_name == "kind=a"
    by_number = DependenceDisplay.from_estimator(model, X, np.int64(0))  # as of argsort
    np.testing.assert_allclose(by_number.mean, by_number.grid**2 + 1 / 3)
    with pytest.raises(ValueError, match=r"X must have columns of numbers, as in fit, but .*kind"):
        DependenceDisplay.from_estimator(Quadratic(), X, "x")


@pytest.mark.parametrize("feature", ["width", 2, -1])
def test_an_input_that_is_not_there_is_refused(feature: int | str) -> None:
    X = pd.DataFrame(np.zeros([3, 2]), columns=["x", "height"])
    with pytest.raises(ValueError, match=r"feature must be one of x, height, or its number, got"):
        DependenceDisplay.from_estimator(Quadratic(), X, feature)
