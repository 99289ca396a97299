"""What models say about rows whose targets are known, in one form, so that they can be judged alike.

forecaster_of(model).forecast(X, Y)                             # any GPflow model, in the units it was trained in
LinearModel.fit(X_train, Y_train).forecast(X, Y)                # least squares, in any units
forecaster_of(RandomForestClassifier().fit(X_train, y_train))   # a classifier of scikit-learn's kind
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.models import GPModel
from numpy.typing import NDArray

from ..model.likelihoods import GaussianMixture, Task, task_of
from .predictive import Predictive, gaussian, predictive

__all__ = ["Forecast", "Forecaster", "LinearModel", "forecaster_of", "label_numbers"]

Array = NDArray[np.float64]

_LEAST_SHARE = 1e-24


class Forecast(NamedTuple):
    """What a model says about N rows whose targets are known, in the units of the data.

    :ivar log_density: log p(y_n) in nats, [N].
    :ivar mean: predicted means [N, P], or the probability of label 1, [N, 1], or of each label, [N, C].
    :ivar predictive: the distributions of the targets; None for labels and for likelihoods that have none.
    """

    log_density: Array
    mean: Array
    predictive: Predictive | None = None


class Forecaster(Protocol):
    """A model whose predictions can be judged."""

    @property
    def task(self) -> Task:
        """What it predicts."""
        ...

    def forecast(self, X: np.ndarray, Y: np.ndarray) -> Forecast:
        """Predictions for rows X [N, D], and the log density of their targets Y [N, P]."""
        ...


@dataclass(frozen=True)
class LinearModel:
    """Least squares with Gaussian noise of the training residuals' variance, in the units of the data.

    :param weights: of the inputs and, in the last row, of the constant, [D + 1, P].
    :param variance: of the residuals of the training rows, [P].
    """

    weights: Array
    variance: Array
    task: Task = "regression"

    @classmethod
    def fit(cls, X: np.ndarray, Y: np.ndarray, *, least_share: float = 0.0) -> LinearModel:
        """Of inputs [N, D] and targets [N, P] in any units.

        :param least_share: of the variance of the targets that the variance has at least.
        :raises ValueError: if the rows are fitted exactly, so that there is no variance.
        """
        X = np.asarray(X, np.float64)
        Y = np.asarray(Y, np.float64)
        center = X.mean(axis=0)
        # Inputs of one size, so that least squares drops none as noise.
        spread = X.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        coefficients = np.linalg.lstsq(_with_one((X - center) / spread), Y, rcond=None)[0]
        # For inputs as they are, with the constant in the last row.
        slopes = coefficients[:-1] / spread[:, None]
        weights = np.concatenate([slopes, coefficients[-1:] - center @ slopes], axis=0)
        # Noise: what is left over.
        variance = np.mean(np.square(Y - _with_one(X) @ weights), axis=0)
        variance = np.maximum(variance, least_share * np.var(Y, axis=0))
        if not np.all(variance > _LEAST_SHARE * np.mean(np.square(Y), axis=0)):
            raise ValueError("least squares fits the training rows exactly, so it has no likelihood; leave it out.")
        return cls(weights, variance)

    def predict(self, X: np.ndarray) -> Array:
        """Means [N, P]."""
        return np.asarray(_with_one(np.asarray(X, np.float64)) @ self.weights)

    def forecast(self, X: np.ndarray, Y: np.ndarray) -> Forecast:
        """Gaussians with one variance for each target."""
        mean = self.predict(X)
        variances = np.broadcast_to(self.variance, mean.shape)
        mixture = GaussianMixture(np.ones(1), mean[None], variances[None])
        return Forecast(mixture.log_density(Y), mean, gaussian(*mixture))


def forecaster_of(model: Any) -> Forecaster:
    """A :class:`Forecaster` as it is or of a `DeepGPRegressor`, a GPflow model in the units that it was trained in, or
    a classifier.

    :param model: of scikit-learn's classifiers one with `predict_proba`, trained on labels 0, ..., C-1.
    :raises ValueError: if it is none of these.
    """
    if not hasattr(model, "classes_"):
        model = getattr(model, "predictor_", model)
    if hasattr(model, "forecast"):
        return model  # type: ignore[no-any-return]
    if isinstance(model, GPModel):
        return _Plain(model)
    if hasattr(model, "predict_proba"):
        return _Classifier(model)
    raise ValueError(
        "the model must have forecast(X, Y) or predict_proba(X), or be a GPflow model, got "
        f"{type(model).__name__}; wrap it in a Predictor."
    )


@dataclass(frozen=True)
class _Plain:
    """A GPflow model, a deep GP or another one."""

    model: GPModel

    @property
    def task(self) -> Task:
        return task_of(self.model.likelihood)

    def forecast(self, X: np.ndarray, Y: np.ndarray) -> Forecast:
        model = self.model
        dtype = gpflow.default_float()
        # Log densities and means, as the model says them itself.
        inputs = tf.constant(np.asarray(X, dtype))
        targets = tf.constant(np.asarray(Y, dtype))
        log_density = np.asarray(model.predict_log_density((inputs, targets)), np.float64)
        mean = np.asarray(model.predict_y(inputs)[0], np.float64)
        if self.task != "regression":
            return Forecast(log_density, mean)
        # The distributions: a mixture of a deep GP, and one Gaussian of another model.
        if hasattr(model, "predict_components"):
            means, variances = model.predict_components(inputs)
            weights = np.asarray(model.component_weights(), np.float64)
        else:
            means, variances = (moment[None] for moment in model.predict_f(inputs))
            weights = np.ones(1)
        return Forecast(log_density, mean, predictive(model.likelihood, inputs, means, variances, weights=weights))


@dataclass(frozen=True)
class _Classifier:
    """A classifier of scikit-learn's kind, trained on labels 0, ..., C-1."""

    model: Any

    def __post_init__(self) -> None:
        classes = getattr(self.model, "classes_", None)
        if classes is None or not np.array_equal(classes, np.arange(len(classes))):
            raise ValueError(
                f"labels of {type(self.model).__name__} must be 0, 1, ..., got {classes}; train it on these numbers."
            )

    @property
    def task(self) -> Task:
        return "binary" if len(self.model.classes_) == 2 else "multiclass"

    def forecast(self, X: np.ndarray, Y: np.ndarray) -> Forecast:
        p = np.asarray(self.model.predict_proba(X), np.float64)
        labels = np.asarray(Y)[:, 0]
        if not np.all(np.isin(labels, np.arange(p.shape[1]))):
            raise ValueError(f"labels must be those of the training rows, 0, ..., {p.shape[1] - 1}, got others.")
        with np.errstate(divide="ignore"):  # what was called impossible has a log density of minus infinity
            return Forecast(np.log(p[np.arange(len(p)), labels.astype(int)]), p)


def label_numbers(classes: np.ndarray, y: np.ndarray) -> NDArray[np.int64]:
    """Labels y [N] as their numbers 0, 1, ... among sorted classes.

    :raises ValueError: if a label is none of the classes.
    """
    numbers = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    if np.any(unknown := classes[numbers] != y):
        raise ValueError(f"y must have the labels {classes.tolist()}, got {y[unknown][0]!r}, too.")
    return numbers


def _with_one(X: Array) -> Array:
    return np.concatenate([X, np.ones([len(X), 1])], axis=1)
