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

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from .config import ModelConfig
from .fitting import Fitted, Schedule, baseline_log_density, count_rows, fit, pass_over, start
from .predictive import Predictive, predictive
from .predictor import Predictor, float_type
from .training import Trainer, TrainingConfig, clear_errors

__all__ = ["DeepGPClassifier", "DeepGPRegressor"]

Array = NDArray[np.float64]

CHECK_ROWS = 2000
"""Rows on which a fitted model is compared with the simplest one."""

JOINT_FLOATS = 2 * 10**8
"""Numbers in the covariances of one layer between all rows, in a joint draw."""


class _DeepGP(BaseEstimator):
    """What both estimators have: parameters, training, and the way to a file.

    :param num_layers: number of layers; 1 is a sparse variational GP.
    :param num_inducing: number of inducing inputs of every layer.
    :param likelihood: as in `ModelConfig`; auto: Gaussian, Bernoulli for two classes, robust-max for more.
    :param hidden_dim: outputs of the inner layers; min(30, inputs) if None.
    :param preset: starting values, as in `ModelConfig`.
    :param natgrad: natural gradients for the last layer, Adam for the rest; or else Adam for all.
    :param num_samples: draws of the inner layers for each row and step of training.
    :param num_predict_samples: draws of the inner layers in predictions.
    :param learning_rate: step size of Adam; it falls to 0 over the last quarter of the steps.
    :param batch_size: rows of a minibatch.
    :param max_iter: largest number of steps.
    :param tol: rise of the smoothed bound (or of the held-out log density) that counts, nats per row.
    :param n_iter_no_change: windows of 100 steps without such a rise, after which the learning rate falls to 0.
    :param early_stopping: hold out rows, end when their log density has stopped rising, and keep the best parameters.
    :param validation_fraction: of the rows, held out with `early_stopping`.
    :param random_state: number or generator for held-out rows, inducing inputs, batches and draws; None for new ones in
        every fit.
    :param verbose: print a line of progress every 100 steps.

    :ivar predictor_: the trained model in the units of the data, a `Predictor`. :ivar n_iter_: steps made.
    :ivar bounds_: mean bound of each window of 100 steps of `fit`, nats per row.
    :ivar validation_scores_: mean log density of the held-out rows after each window; empty without them.
    :ivar n_features_in_: inputs. :ivar feature_names_in_: their names, if X was a data frame.
    """

    def __init__(
        self,
        num_layers: int = 2,
        *,
        num_inducing: int = 100,
        likelihood: str = "auto",
        hidden_dim: int | None = None,
        preset: str = "modern",
        natgrad: bool = False,
        num_samples: int = 1,
        num_predict_samples: int = 100,
        learning_rate: float = 0.03,
        batch_size: int = 1000,
        max_iter: int = 5000,
        tol: float = 1e-3,
        n_iter_no_change: int = 5,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool | int = False,
    ) -> None:
        self.num_layers = num_layers
        self.num_inducing = num_inducing
        self.likelihood = likelihood
        self.hidden_dim = hidden_dim
        self.preset = preset
        self.natgrad = natgrad
        self.num_samples = num_samples
        self.num_predict_samples = num_predict_samples
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.verbose = verbose

    # Training.

    def _fit(self, X: Array, Y: Array, class_names: Sequence[str] = ()) -> None:
        """Train on checked arrays, [N, D] and [N, P]."""
        schedule = Schedule(
            self.max_iter,
            self.batch_size,
            self.tol,
            self.n_iter_no_change,
            validation_fraction=self.validation_fraction if self.early_stopping else 0.0,
        )
        seed = self._new_seed()
        fitted = fit(
            self._config(),
            X,
            Y,
            training=TrainingConfig(self.learning_rate),
            schedule=schedule,
            class_names=class_names,
            seed=seed,
            show=print if self.verbose else None,
        )
        self._keep(fitted.predictor, fitted.trainer, seed)
        self.n_iter_ = fitted.course.num_steps
        self.bounds_, self.validation_scores_ = np.array(fitted.course.bounds), np.array(fitted.course.scores)
        self._warn_if_poor(fitted, X, Y)

    def _partial_fit(self, X: Array, Y: Array, class_names: Sequence[str] = ()) -> None:
        """One pass over checked arrays, from the first of which the model is made."""
        if not hasattr(self, "predictor_"):
            seed, training = self._new_seed(), TrainingConfig(self.learning_rate)
            made = start(self._config(), X, Y, training=training, class_names=class_names, seed=seed)
            self._keep(*made, seed)
            self.n_iter_ = 0
        else:
            count_rows(self.predictor_.model, len(X))
        trainer, where = self._trainer_now(), {"first": self.n_iter_, "batch_size": self.batch_size, "seed": self._seed}
        self.n_iter_ += pass_over(self.predictor_, trainer, X, Y, **where)

    def _config(self) -> ModelConfig:
        return ModelConfig(
            num_layers=self.num_layers,
            num_inducing=self.num_inducing,
            num_samples=self.num_samples,
            num_predict_samples=self.num_predict_samples,
            preset=self.preset,  # type: ignore[arg-type]
            natgrad=self.natgrad,
            hidden_dim=self.hidden_dim,
            likelihood=self.likelihood,  # type: ignore[arg-type]
        )

    def _new_seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _keep(self, predictor: Predictor, trainer: Trainer, seed: int) -> None:
        self.predictor_, self._trainer, self._seed = predictor, trainer, seed
        self._float = np.dtype(gpflow.default_float()).name

    def _warn_if_poor(self, fitted: Fitted, X: Array, Y: Array) -> None:
        """Say so if the model is worse than least squares, or than one rate, or than the frequencies of classes."""
        rows = np.random.default_rng(self._seed).permutation(len(X))[:CHECK_ROWS]
        X, Y, predictor = X[rows], Y[rows], fitted.predictor
        likelihood = self._config().for_task(predictor.task).likelihood
        simple, log_density = baseline_log_density(likelihood, X, Y), predictor.predict(X, Y).log_density
        if simple is None or log_density is None or np.mean(log_density) >= simple:
            return
        what = {"regression": "least squares" if likelihood != "poisson" else "one rate for all rows"}
        warnings.warn(
            f"after {fitted.course.num_steps} steps the model is worse than "
            f"{what.get(predictor.task, 'the frequencies of the classes')} on its training rows: "
            f"{np.mean(log_density):.3f} against {simple:.3f} nats per row. Raise max_iter, or lower tol.",
            ConvergenceWarning,
            stacklevel=4,
        )

    # Prediction.

    def _inputs(self, X: Any) -> Array:
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False))

    @contextmanager
    def _in_float(self) -> Iterator[None]:
        with float_type(self._float):
            yield

    # Copies and files.

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "predictor_" in state:
            with self._in_float(), tempfile.TemporaryDirectory() as folder:
                self.predictor_.save(folder)
                state["predictor_"] = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
            state["_trainer"] = [np.asarray(variable) for variable in self._trainer_now().optimizer.variables]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "predictor_" in state:
            with self._in_float(), tempfile.TemporaryDirectory() as folder:
                for name, content in state["predictor_"].items():
                    (Path(folder) / name).write_bytes(content)
                self.predictor_ = Predictor.load(folder)

    def _trainer_now(self) -> Trainer:
        """The trainer, made again where the estimator comes from a pickle."""
        if not isinstance(self._trainer, Trainer):
            trainer = Trainer(self.predictor_.model, TrainingConfig(self.learning_rate))
            for variable, value in zip(trainer.optimizer.variables, self._trainer, strict=True):
                variable.assign(value)
            self._trainer = trainer
        return self._trainer


class DeepGPRegressor(MultiOutputMixin, RegressorMixin, _DeepGP):
    __doc__ = f"""A deep GP for targets that are numbers, [N] or [N, P].
{(_DeepGP.__doc__ or "").split("a file.", 1)[-1]}"""

    def fit(self, X: Any, y: Any, **refused: Any) -> DeepGPRegressor:
        """Train on inputs X [N, D] and targets y [N] or [N, P], numbers in any units.

        :raises ValueError: if the arrays or the parameters do not fit.
        :raises FloatingPointError: if a step of training fails.
        """
        _refuse(self, refused)
        X, Y = self._rows(X, y, reset=True)
        self._fit(X, Y)
        return self

    def partial_fit(self, X: Any, y: Any) -> DeepGPRegressor:
        """One pass over some more rows of a stream, in minibatches, each row once.

        The first rows give units and inducing inputs: some thousands that are typical of the stream are best.
        """
        X, Y = self._rows(X, y, reset=not hasattr(self, "predictor_"))
        if hasattr(self, "predictor_"):
            with self._in_float():
                self._partial_fit(X, Y)
        else:
            self._partial_fit(X, Y)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Means of new targets, and their standard deviations with the noise: of the shape that y had."""
        inputs = self._inputs(X)
        with self._in_float():
            found = self.predictor_.predict(inputs)
        assert found.std is not None  # of mypy: numbers have it
        return (self._shaped(found.mean), self._shaped(found.std)) if return_std else self._shaped(found.mean)

    def predict_quantiles(self, X: Any, levels: Sequence[float] = (0.025, 0.5, 0.975)) -> Array:
        """Quantiles of new targets: [N, levels], or [N, P, levels] for y of two dimensions."""
        found = self._predictive(self._inputs(X)).quantiles(levels)
        return self._shaped(np.moveaxis(found, 0, -1))

    def log_density(self, X: Any, y: Any) -> Array:
        """log p(y_n | x_n) of each row, [N], nats, in the units of y (of all its columns together)."""
        inputs, targets = self._inputs(X), np.asarray(check_array(y, ensure_2d=False, dtype=np.float64))
        check_consistent_length(inputs, targets)
        self._check_shape(targets)
        with self._in_float():
            return np.asarray(self.predictor_.predict(inputs, targets.reshape(len(targets), -1)).log_density)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Draws of new targets, joint over all rows: functions from the model, and noise.

        :return: [N, n_samples], or [N, P, n_samples] for y of two dimensions, as of `GaussianProcessRegressor`.
        :raises ValueError: if X has so many rows that the covariances between them would fill the memory.
        """
        inputs, rng = self._inputs(X), check_random_state(random_state)
        model, units = self.predictor_.model, self.predictor_.units
        limit = int(np.sqrt(JOINT_FLOATS / max(layer.num_latent_gps or 1 for layer in model.layers)))
        if len(inputs) > limit:
            raise ValueError(
                f"X must have at most {limit} rows for joint draws from this model, got {len(inputs)}; draw for parts "
                "of the rows, or take predict_quantiles."
            )
        seed = tf.constant(rng.randint(2**31 - 1, size=2), tf.int32)
        generator = np.random.default_rng(rng.randint(2**31 - 1, size=4))
        with self._in_float(), clear_errors("drawing failed: "):
            scaled = tf.constant(units.x.transform(inputs).astype(gpflow.default_float()))
            functions = np.asarray(model.predict_f_samples(scaled, n_samples, seed=seed), np.float64)  # [S, N, L]
            drawn = [self._noisy(f, scaled).sample(1, generator)[0] for f in functions]
        return self._shaped(np.stack(drawn, axis=-1))

    def _noisy(self, f: Array, scaled: tf.Tensor) -> Predictive:
        """The targets of rows whose latent functions are known, [N, L]."""
        model, y = self.predictor_.model, self.predictor_.units.y
        return predictive(model.likelihood, scaled, f[None], np.zeros_like(f)[None], offset=y.mean, scale=y.scale)

    def _predictive(self, inputs: Array) -> Predictive:
        model, units = self.predictor_.model, self.predictor_.units
        with self._in_float(), clear_errors("prediction failed: "):
            scaled = tf.constant(units.x.transform(inputs).astype(gpflow.default_float()))
            means, variances = model.predict_components(scaled, factors=model.cached_factors())
            weights = np.asarray(model.component_weights(), np.float64)
            scales = {"offset": units.y.mean, "scale": units.y.scale}
            return predictive(model.likelihood, scaled, means, variances, weights=weights, **scales)

    def _rows(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, Array]:
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


class DeepGPClassifier(ClassifierMixin, _DeepGP):
    __doc__ = f"""A deep GP for labels of two or more classes, [N], of any type.
{(_DeepGP.__doc__ or "").split("a file.", 1)[-1]}
    :ivar classes_: the labels, in the order of the probabilities.
    """

    def fit(self, X: Any, y: Any, **refused: Any) -> DeepGPClassifier:
        """Train on inputs X [N, D] and labels y [N].

        :raises ValueError: if the arrays or the parameters do not fit, or there is only one class.
        :raises FloatingPointError: if a step of training fails.
        """
        _refuse(self, refused)
        X, y = self._rows(X, y, reset=True)
        self._set_classes(y)
        self._fit(X, self._codes(y), [str(c) for c in self.classes_])
        return self

    def partial_fit(self, X: Any, y: Any, classes: ArrayLike | None = None) -> DeepGPClassifier:
        """One pass over some more rows of a stream, in minibatches, each row once.

        :param classes: all labels that there may be, with the first rows; later it can be left out.
        """
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

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each row, [N]."""
        return np.asarray(self.classes_[np.argmax(self.predict_proba(X), axis=1)])

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the labels `classes_`, [N, C]."""
        inputs = self._inputs(X)
        with self._in_float():
            p = self.predictor_.predict(inputs).mean
        p = np.concatenate([1 - p, p], axis=1) if p.shape[1] == 1 else p
        return np.asarray(p / p.sum(axis=1, keepdims=True))  # their sum is 1 but for errors of quadrature

    def predict_log_proba(self, X: Any) -> Array:
        """Their logarithms, [N, C]."""
        return np.log(self.predict_proba(X))

    def log_density(self, X: Any, y: Any) -> Array:
        """log p(y_n | x_n) of each row, [N], nats."""
        inputs, labels = self._inputs(X), self._codes(column_or_1d(y))
        check_consistent_length(inputs, labels)
        with self._in_float():
            return np.asarray(self.predictor_.predict(inputs, labels).log_density)

    def _rows(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, NDArray[Any]]:
        X, y = validate_data(self, X, y, dtype=np.float64, reset=reset)
        check_classification_targets(y)
        return X, y

    def _set_classes(self, y: NDArray[Any]) -> None:
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(f"y must have at least two classes, got one class: {classes[0]!r}.")
        self.classes_ = classes

    def _codes(self, y: NDArray[Any]) -> Array:
        """Labels as numbers 0, 1, ..., [N, 1]."""
        codes = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
        if np.any(unknown := self.classes_[codes] != y):
            raise ValueError(f"y must have the labels {self.classes_.tolist()}, got {y[unknown][0]!r}, too.")
        return codes.astype(np.float64)[:, None]


def _refuse(estimator: _DeepGP, arguments: dict[str, Any]) -> None:
    """A clear word on what `fit` does not take; `sample_weight=None` is what some callers say for no weights."""
    if names := [name for name, value in arguments.items() if name != "sample_weight" or value is not None]:
        raise TypeError(
            f"{type(estimator).__name__}.fit takes X and y only, got {', '.join(names)}. Rows cannot be weighted: "
            "leave sample_weight out, or draw rows in proportion to their weights."
        )
