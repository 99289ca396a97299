"""Deep GPs as scikit-learn's estimators.

    model = DeepGPRegressor().fit(X_train, y_train)                 # arrays or data frames of numbers, in any units
    mean, std = model.predict(X_test, return_std=True)
    low, high = model.predict_quantiles(X_test, [0.025, 0.975]).T
    model.log_density(X_test, y_test)                               # log p(y_n), nats, in the units of y

    DeepGPClassifier().fit(X_train, labels).predict_proba(X_test)

They can be cloned, searched over, put into pipelines and pickled. Inputs and targets are standardised inside. A fit is
a function of the data and `random_state`. Rows cannot be weighted: `fit` refuses `sample_weight`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d, validate_data

from gpflow_deep_base.columns import as_numbers

from ..judge.modes import PROMINENCE, Modes
from .estimator_base import DeepGPEstimator

__all__ = ["DeepGPClassifier", "DeepGPRegressor"]

Array = NDArray[np.float64]

_PARAMETERS = (DeepGPEstimator.__doc__ or "").split("\n", 1)[-1].strip()


class DeepGPRegressor(MultiOutputMixin, RegressorMixin, DeepGPEstimator):
    __doc__ = f"""A deep GP for targets that are numbers, [N] or [N, P].

    A step, and the deviation of a new target on it:

        >>> import numpy as np
        >>> from gpflow_deep import DeepGPRegressor
        >>> X = np.linspace(-1.0, 1.0, 60)[:, None]
        >>> y = np.sign(X[:, 0]) + 0.1 * np.sin(40.0 * X[:, 0])
        >>> model = DeepGPRegressor(num_layers=1, num_inducing=20, kernel="matern52", likelihood="gaussian").fit(X, y)
        >>> mean, std = model.predict([[-0.5], [0.5]], return_std=True)
        >>> bool(mean[0] < -0.8 and mean[1] > 0.8 and max(std) < 0.5)
        True

    {_PARAMETERS}
    """

    def fit(self, X: ArrayLike, y: ArrayLike, **refused: Any) -> DeepGPRegressor:
        """Train on inputs X [N, D] and targets y [N] or [N, P], numbers in any units.

        :raises ValueError: if the arrays or the parameters do not fit.
        :raises FloatingPointError: if a step of training fails.
        """
        self._refuse(refused)
        X, Y = self._rows(X, y, reset=True)
        self._fit(X, Y)
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, **refused: Any) -> DeepGPRegressor:
        """One pass over some more rows of a stream, in minibatches, each row once.

        The first rows give units and inducing inputs: some thousands that are typical of the stream are best.
        """
        self._refuse(refused, "partial_fit takes X and y")
        X, Y = self._rows(X, y, reset=not hasattr(self, "predictor_"))
        if hasattr(self, "predictor_"):
            with self._in_float():
                self._partial_fit(X, Y)
        else:
            self._partial_fit(X, Y)
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Means of new targets, and their standard deviations with the noise: of the shape that y had."""
        inputs = self._inputs(X)
        with self._in_float():
            predicted = self.predictor_.predict(inputs)
        assert predicted.std is not None  # of mypy: numbers have it
        return (
            (self._shaped(predicted.mean), self._shaped(predicted.std)) if return_std else self._shaped(predicted.mean)
        )

    def predict_quantiles(self, X: ArrayLike, levels: Sequence[float] = (0.025, 0.5, 0.975)) -> Array:
        """Quantiles of new targets: [N, levels], or [N, P, levels] for y of two dimensions."""
        inputs = self._inputs(X)
        with self._in_float():
            quantiles = self.predictor_.quantiles(inputs, levels)
        return self._shaped(np.moveaxis(quantiles, 0, -1))

    def log_density(self, X: ArrayLike, y: ArrayLike) -> Array:
        """log p(y_n | x_n) of each row, [N], nats, in the units of y (of all its columns together)."""
        inputs = self._inputs(X)
        targets = np.asarray(check_array(y, ensure_2d=False, dtype=np.float64))
        check_consistent_length(inputs, targets)
        self._check_shape(targets)
        with self._in_float():
            return np.asarray(self.predictor_.predict(inputs, targets.reshape(len(targets), -1)).log_density)

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0) -> Array:
        """Draws of new targets, joint over all rows: functions from the model, and noise.

        :return: [N, n_samples], or [N, P, n_samples] for y of two dimensions, as of `GaussianProcessRegressor`.
        :raises ValueError: if X has so many rows that the covariances between them would fill the memory.
        """
        inputs = self._inputs(X)
        rng = check_random_state(random_state)
        with self._in_float():
            targets = self.predictor_.sample_y(inputs, n_samples, rng=rng)
        return self._shaped(np.moveaxis(targets, 0, -1))

    def predict_modes(self, X: ArrayLike, *, prominence: float = PROMINENCE) -> Modes:
        """Where the densities of new targets are highest: [N, C] each, or [N, P, C] for y of two dimensions.

        :param prominence: and what is returned as of `Predictor.modes`.
        """
        inputs = self._inputs(X)
        with self._in_float():
            modes = self.predictor_.modes(inputs, prominence=prominence)
        return Modes(*map(self._shaped, modes))

    def _rows(self, X: Any, y: ArrayLike, *, reset: bool) -> tuple[Array, Array]:
        X = as_numbers(X, self, reset=reset)
        X, Y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, reset=reset)
        Y = np.asarray(Y, np.float64)
        if reset:
            self._target_shape = Y.shape[1:]
        self._check_shape(Y)
        return X, Y.reshape(len(Y), -1)

    def _check_shape(self, Y: Array) -> None:
        if Y.shape[1:] != self._target_shape:
            raise ValueError(f"y must have columns of shape {self._target_shape} as in fit, got {Y.shape[1:]}.")

    def _shaped(self, values: Array) -> Array:
        """[N, P, ...] as y was: [N, ...] if it had one dimension."""
        return values if self._target_shape else values[:, 0]


class DeepGPClassifier(ClassifierMixin, DeepGPEstimator):
    __doc__ = f"""A deep GP for labels of two or more classes, [N], of any type.

        >>> import numpy as np
        >>> from gpflow_deep import DeepGPClassifier
        >>> X = np.linspace(-1.0, 1.0, 60)[:, None]
        >>> y = np.where(np.abs(X[:, 0]) < 0.5, "inside", "outside")
        >>> model = DeepGPClassifier(num_layers=1, num_inducing=10, max_iter=300).fit(X, y)
        >>> model.predict([[0.0], [0.95]]).tolist()
        ['inside', 'outside']

    {_PARAMETERS}
    :ivar classes_: the labels, in the order of the probabilities.
    """

    def fit(self, X: ArrayLike, y: ArrayLike, **refused: Any) -> DeepGPClassifier:
        """Train on inputs X [N, D] and labels y [N].

        :raises ValueError: if the arrays or the parameters do not fit, or there is only one class.
        :raises FloatingPointError: if a step of training fails.
        """
        self._refuse(refused)
        X, y = self._rows(X, y, reset=True)
        self._set_classes(y)
        self._fit(X, self._codes(y), [str(c) for c in self.classes_])
        return self

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None, **refused: Any
    ) -> DeepGPClassifier:
        """One pass over some more rows of a stream, in minibatches, each row once.

        :param classes: all labels that there may be, with the first rows; later it can be left out.
        """
        self._refuse(refused, "partial_fit takes X, y and classes")
        is_first = not hasattr(self, "predictor_")
        if is_first and classes is None:
            raise ValueError("classes must be given with the first rows: all labels that the stream may have.")
        X, y = self._rows(X, y, reset=is_first)
        if is_first:
            self._set_classes(np.asarray(classes))
            self._partial_fit(X, self._codes(y), [str(c) for c in self.classes_])
        else:
            with self._in_float():
                self._partial_fit(X, self._codes(y))
        return self

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The most probable label of each row, [N]."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probabilities of the labels `classes_`, [N, C]."""
        inputs = self._inputs(X)
        with self._in_float():
            p = self.predictor_.predict(inputs).mean
        p = np.concatenate([1 - p, p], axis=1) if p.shape[1] == 1 else p
        return np.asarray(p / p.sum(axis=1, keepdims=True))  # their sum is 1 but for errors of quadrature

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Their logarithms, [N, C]."""
        return np.log(self.predict_proba(X))

    def log_density(self, X: ArrayLike, y: ArrayLike) -> Array:
        """log p(y_n | x_n) of each row, [N], nats."""
        inputs = self._inputs(X)
        labels = self._codes(column_or_1d(y))
        check_consistent_length(inputs, labels)
        with self._in_float():
            return np.asarray(self.predictor_.predict(inputs, labels).log_density)

    def _rows(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, np.ndarray]:
        X = as_numbers(X, self, reset=reset)
        X, y = validate_data(self, X, y, dtype=np.float64, reset=reset)
        check_classification_targets(y)
        return X, y

    def _set_classes(self, y: np.ndarray) -> None:
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(f"y must have at least two classes, got one class: {classes[0]!r}.")
        self.classes_ = classes

    def _codes(self, y: np.ndarray) -> Array:
        """Labels as numbers 0, 1, ..., [N, 1]."""
        codes = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
        if np.any(unknown := self.classes_[codes] != y):
            raise ValueError(f"y must have the labels {self.classes_.tolist()}, got {y[unknown][0]!r}, too.")
        return codes.astype(np.float64)[:, None]
