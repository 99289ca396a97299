"""Plots of trained models in Matplotlib, made and drawn as scikit-learn's displays are.

    CalibrationDisplay.from_estimator(model, X_test, y_test).plot()
    DependenceDisplay.from_estimator(model, X_test, "area").plot(axes)

A display holds the numbers that it draws. `gpflow_deep.report.html` shows the same in one file, without Matplotlib.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .judge.evaluation import evaluate
from .pages import dependences, shares_below

__all__ = ["CalibrationDisplay", "DependenceDisplay"]

Array = NDArray[np.float64]


class CalibrationDisplay(NamedTuple):
    """How often targets are below their predicted quantiles, with the band that right distributions would stay in.

    :ivar probability: of the quantiles, [101], from 0 to 1.
    :ivar share: of the targets below them, [101].
    :ivar half_width: of the band that holds 95% of samples of this size at each probability, [101].
    :ivar name: of the model.
    """

    probability: Array
    share: Array
    half_width: Array
    name: str = ""

    @classmethod
    def from_estimator(cls, estimator: object, X: ArrayLike, y: ArrayLike, *, name: str = "") -> CalibrationDisplay:
        """Of a model of numbers.

        :param estimator: whatever :func:`gpflow_deep.judge.evaluation.evaluate` takes, or a fitted `DeepGPRegressor`.
        :param X: inputs [N, D] that it has not seen.
        :param y: targets [N] or [N, P].
        :param name: for the legend.
        :raises ValueError: if it predicts labels; `sklearn.calibration.CalibrationDisplay` is for these.
        """
        judged = evaluate(getattr(estimator, "predictor_", estimator), (np.asarray(X, np.float64), np.asarray(y)))
        if judged.pit is None:
            raise ValueError(
                "estimator must predict numbers, got one of labels; use sklearn.calibration.CalibrationDisplay."
            )
        return cls.from_predictions(judged.pit, name=name)

    @classmethod
    def from_predictions(cls, pit: ArrayLike, *, name: str = "") -> CalibrationDisplay:
        """Of probability integral transforms.

        :param pit: predicted probabilities of a value of at most the true one, of any shape.
        :param name: for the legend.
        :raises ValueError: if there are none, or one is not between 0 and 1.
        """
        values = np.asarray(pit, np.float64)
        if not values.size or not (values.min() >= 0 and values.max() <= 1):
            raise ValueError("pit must be probabilities between 0 and 1, at least one.")
        return cls(*shares_below(values), name)

    @property
    def distance(self) -> float:
        """The largest distance of a share from its probability: 0 is best."""
        return float(np.abs(self.share - self.probability).max())

    def plot(self, axes: Any = None) -> Any:
        """Draw it.

        :param axes: Matplotlib's; None: new ones.
        :return: the axes.
        """
        axes = _axes(axes)
        p = self.probability
        low, high = np.clip([p - self.half_width, p + self.half_width], 0.0, 1.0)
        axes.fill_between(p, low, high, color="0.8", label="right, 95% of samples")
        axes.plot([0, 1], [0, 1], "k--", linewidth=0.8)
        axes.plot(p, self.share, label=f"{self.name or 'model'}: distance {self.distance:.3f}")
        axes.set(xlabel="probability of a quantile", ylabel="share of targets below it", xlim=(0, 1), ylim=(0, 1))
        axes.legend(loc="upper left")
        return axes


class DependenceDisplay(NamedTuple):
    """How predictions depend on one input, the others being as in some rows (Friedman, 2001, Sec. 8.2).

    :ivar grid: values of the input, [G].
    :ivar mean: of the predictions, or of the probability of a label, [G].
    :ivar low: and `high`: mean limits of the central 95% of new targets, [G]; None for labels.
    :ivar feature_name: of the input.
    """

    grid: Array
    mean: Array
    low: Array | None
    high: Array | None
    feature_name: str

    @classmethod
    def from_estimator(cls, estimator: Any, X: ArrayLike, feature: int | str, *, label: int = 0) -> DependenceDisplay:
        """Of a model and one of its inputs.

        :param estimator: a fitted `DeepGPRegressor` or `DeepGPClassifier`, or a `Predictor`.
        :param X: inputs [N, D], of which at most 40 rows are used, evenly spread; a data frame has names of columns.
        :param feature: number of the input, or its name.
        :param label: of several labels, whose probability it is; of two it is that of the second.
        :raises ValueError: if X has no such input.
        """
        columns = getattr(X, "columns", getattr(estimator, "feature_names_in_", None))
        inputs = np.asarray(X, np.float64)
        names = [f"x{d}" for d in range(inputs.shape[1])] if columns is None else [str(name) for name in columns]
        column = names.index(feature) if feature in names else feature
        if not isinstance(column, int) or not 0 <= column < len(names):
            raise ValueError(f"feature must be one of {', '.join(names)}, or its number, got {feature!r}.")
        predictor = getattr(estimator, "predictor_", estimator)
        (curve,) = dependences(predictor, inputs, label=label, columns=[column])
        return cls(curve.grid, curve.mean, curve.low, curve.high, names[column])

    def plot(self, axes: Any = None) -> Any:
        """Draw it.

        :param axes: Matplotlib's; None: new ones.
        :return: the axes.
        """
        axes = _axes(axes)
        if self.low is not None and self.high is not None:
            axes.fill_between(self.grid, self.low, self.high, alpha=0.2, label="95% of new targets")
        axes.plot(self.grid, self.mean, label="mean")
        axes.set(xlabel=self.feature_name, ylabel="prediction")
        axes.legend(loc="upper left")
        return axes


def _axes(axes: object) -> Any:
    if axes is not None:
        return axes
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1]
