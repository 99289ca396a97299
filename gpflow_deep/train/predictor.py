"""A deep GP in the units of the data: predictions and scores, and the model with its units in a folder.

units = Units.fit(X, Y, "gaussian")                             # the training part, in its own units
model = config.build(*units.transform(X, Y))
...                                                             # train
predictor = Predictor(model, units)
predictor.score(X_test, Y_test)                                 # {"log_likelihood_nats": -2.96, "rmse": 4.8}
predictor.save("houses")
found = Predictor.load("houses").predict(X_new)                 # found.mean, found.lower, found.upper
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, get_args

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance
from numpy.typing import NDArray

from gpflow_deep_base.files import parse_json, write_text
from gpflow_deep_base.seeds import as_seed

from ..files.serialization import load_model, save_model
from ..files.stored_names import CustomObjects
from ..functions.functions import FunctionDraws
from ..judge.forecasts import Forecast
from ..judge.modes import PROMINENCE, Modes, find_modes, joined
from ..judge.predictive import Predictive, predictive
from ..judge.target_draws import draw_targets
from ..layers.protocol import Factors
from ..model import likelihoods
from ..model import predictions as mixture
from ..model.deep_gp import DeepGP
from ..model.likelihoods import Task, metrics
from ..model.scaling import Scale, Units
from ..posteriors.ensemble import Ensemble
from .training import clear_errors

__all__ = ["Predicted", "Predictor", "float_type"]

MODEL_FILE = "model.npz"
INPUTS_FILE = "inputs.json"

BATCH_ROWS = 10_000
"""Rows that are predicted together."""


LIMITS = (0.025, 0.975)
"""Levels of the quantiles that `predict` gives."""


class _Pass(NamedTuple):
    """Some rows that were pushed through the layers: inputs, weights [S] and moments [S, n, L] of the components."""

    X: tf.Tensor
    weights: tf.Tensor
    means: tf.Tensor
    variances: tf.Tensor


class Predicted(NamedTuple):
    """What is said about N rows, in the units of the data.

    :ivar mean: of the targets, [N, P]; or the probability of label 1, [N, 1], or of each label, [N, C].
    :ivar std: standard deviations [N, P] of the targets; None for labels.
    :ivar lower: and `upper`: limits [N, P] of the central 95%, which are quantiles of the mixture; None for labels and
        for likelihoods without a distribution function.
    :ivar log_density: log p(y_n) in nats, [N]; None without targets.
    """

    mean: NDArray[np.float64]
    std: NDArray[np.float64] | None = None
    lower: NDArray[np.float64] | None = None
    upper: NDArray[np.float64] | None = None
    log_density: NDArray[np.float64] | None = None

    @property
    def labels(self) -> NDArray[np.int64]:
        """The most probable label of each row, [N]; of two equally probable ones the first."""
        if self.mean.shape[1] == 1:
            return (self.mean[:, 0] > 0.5).astype(np.int64)
        return np.argmax(self.mean, axis=1)

    @property
    def interval(self) -> tuple[NDArray[np.float64], NDArray[np.float64], str]:
        """Lower and upper limits [N, P], and what they are: "95%", or two standard deviations from the mean."""
        if self.lower is not None and self.upper is not None:
            return self.lower, self.upper, "95%"
        if self.std is None:
            raise ValueError("labels have no interval; look at their probabilities, `mean`.")
        return self.mean - 2 * self.std, self.mean + 2 * self.std, "2 std. dev."


class Predictor:
    """Predictions of a deep GP in the units of the data.

    :param model: a deep GP of standardised rows.
    :param task: what is predicted.
    :param target_names: of the P targets; y, or y0, y1, ..., if None.
    :param class_names: of the labels, in their order; empty for a regression.
    :param schema: kept with the model and given back, for whoever makes X of a new table; JSON.
    :raises ValueError: if the model does not take the inputs of `units`, or there are other targets than names.
    """

    def __init__(
        self,
        model: DeepGP,
        units: Units,
        *,
        task: Task = "regression",
        target_names: Sequence[str] | None = None,
        class_names: Sequence[str] = (),
        schema: Mapping[str, object] | None = None,
    ) -> None:
        if model.layers[0].input_dim not in (None, len(units.x.mean)):
            raise ValueError(
                f"model and units must have equally many inputs, got {model.layers[0].input_dim} and "
                f"{len(units.x.mean)}: they are of different data; take both from one run."
            )
        # Targets without names are y, or y0, y1, ...
        num_targets = len(units.y.mean)
        if target_names is None:
            target_names = [f"y{p}" for p in range(num_targets)] if num_targets > 1 else ["y"]
        if len(target_names) != num_targets:
            raise ValueError(f"target_names must be one for each of the {num_targets} targets, got {target_names}.")
        self.model = model
        self.units = units
        self.task = task
        self.target_names = tuple(target_names)
        self.class_names = tuple(class_names)
        self.schema = {} if schema is None else dict(schema)
        self._moments: dict[bool, Callable[..., MeanAndVariance]] = {}
        self._components: tuple[list[object], Callable[..., MeanAndVariance]] | None = None

    def evaluate(self, X: np.ndarray, Y: np.ndarray) -> Predicted:
        """Means and log densities by the model's current parameters: for use between steps of training.

        Compiled once and factorised at each call. `predict` says more, from factors that are faster for many rows.

        :param X: [N, D].
        :param Y: targets [N, P], or labels [N, 1].
        :raises FloatingPointError: if a factorisation fails.
        """
        with clear_errors("prediction failed: "):
            moments = self._compiled()(*self.units.transform(X, Y))
        mean, log_density = (np.asarray(moment, np.float64) for moment in moments)
        if self.task != "regression":
            return Predicted(mean, log_density=log_density)
        return Predicted(self.units.y.inverse_transform(mean), log_density=log_density - self.units.y.log_volume)

    def _compiled(self) -> Callable[..., MeanAndVariance]:
        """The function of `evaluate`: another one once the model has samples to predict from."""
        # A model with samples has other factors, and so another trace.
        model = self.model
        dtype = gpflow.default_float()
        if (is_mixed := model.num_members > 1) not in self._moments:
            signature = [tf.TensorSpec([None, len(scale.mean)], dtype) for scale in (self.units.x, self.units.y)]

            @tf.function(input_signature=signature, autograph=False)
            def moments(X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                factors = model.cached_factors() if is_mixed else model.factors()
                return model.predict_y(X, factors=factors)[0], model.predict_log_density((X, Y), factors=factors)

            self._moments[is_mixed] = moments
        return self._moments[is_mixed]

    def score(self, X: np.ndarray, Y: np.ndarray) -> dict[str, float]:
        """Mean log density and RMSE, or accuracy, by the model's current parameters; see `scores.metrics`."""
        return self.scores(Y, self.evaluate(X, Y))

    def scores(self, Y: np.ndarray, predicted: Predicted) -> dict[str, float]:
        """The same of rows that are predicted already, by `evaluate` or by `predict` with targets."""
        if predicted.log_density is None:
            raise ValueError("scores need log densities, got predictions without targets; give Y to predict, too.")
        return metrics(self.task, Y, predicted.mean, predicted.log_density)

    def predict(self, X: np.ndarray, Y: np.ndarray | None = None, *, num_samples: int | None = None) -> Predicted:
        """All that the model says about new rows: one factorisation, and one pass through the layers.

        :param X: [N, D].
        :param Y: targets [N, P] or labels [N, 1], for log densities; None if they are not known.
        :param num_samples: draws of the inner layers; the model's `num_predict_samples` if None.
        :raises FloatingPointError: if a factorisation fails.
        """
        parts = [self._predict(part, targets) for part, targets in self._passes(X, Y, num_samples)]
        return Predicted._make(None if v[0] is None else np.concatenate(v) for v in zip(*parts, strict=True))

    def quantiles(
        self, X: np.ndarray, levels: Sequence[float], *, num_samples: int | None = None
    ) -> NDArray[np.float64]:
        """Quantiles [levels, N, P] of the targets at X [N, D], in the units of the data.

        :param levels: probabilities between 0 and 1.
        :param num_samples: as in `predict`.
        :raises ValueError: if the targets are labels, or the likelihood has no distribution function.
        """
        parts = [self._distribution(part) for part, _ in self._passes(X, None, num_samples)]
        return np.concatenate([part.quantiles(levels) for part in parts], axis=1)

    def modes(self, X: np.ndarray, *, prominence: float = PROMINENCE, num_samples: int | None = None) -> Modes:
        """Where the predictive densities of the targets at X [N, D] are highest, in the units of the data: [N, P, C].

        :param prominence: the share of its height by which the density falls around what counts as a mode.
        :param num_samples: as in `predict`.
        :raises ValueError: as `quantiles`, or if the prominence is not between 0 and 1.
        """
        parts = [self._distribution(part) for part, _ in self._passes(X, None, num_samples)]
        return joined([find_modes(part, prominence=prominence) for part in parts])

    def sample_y(
        self, X: np.ndarray, num_samples: int = 1, *, rng: np.random.Generator | np.random.RandomState | int = 0
    ) -> NDArray[np.float64]:
        """Draws of new targets at X [N, D] in the units of the data, joint over all rows: [num_samples, N, P].

        Functions from the model, and noise; latent variables of their own for each row.

        :param rng: a generator, or a number to start one with.
        :raises ValueError: if the targets are labels, or rows so many that the covariances between them would fill the
            memory.
        :raises FloatingPointError: if a factorisation fails.
        """
        if not isinstance(rng, np.random.RandomState):
            rng = np.random.RandomState(rng.bit_generator if isinstance(rng, np.random.Generator) else rng)
        with clear_errors("drawing failed: "):
            return draw_targets(self.model, self.units, X, num_samples, rng)

    def sample_functions(self, num_functions: int, **options: Any) -> FunctionDraws:
        """`DeepGP.sample_functions` in the units of the data: latent functions, without the noise of the likelihood.

        :param options: of `DeepGP.sample_functions`.
        """
        return self.model.sample_functions(num_functions, **options).in_units(self.units.x, self.units.y)

    def forecast(self, X: np.ndarray, Y: np.ndarray) -> Forecast:
        """What `gpflow_deep.judge.evaluation.evaluate` judges: means, log densities and distributions, of all rows at
        once.

        :param X: [N, D].
        :param Y: targets [N, P], or labels [N, 1].
        """
        with clear_errors("prediction failed: "):
            ((part, _),) = self._passes(X, Y, None, batch_rows=max(len(X), 1))
            predicted = self._predict(part, Y, with_limits=False)
        if predicted.log_density is None:
            raise ValueError("a forecast needs the targets of its rows, got none.")
        distribution = self._distribution_or_none(part) if self.task == "regression" else None
        return Forecast(predicted.log_density, predicted.mean, distribution)

    def _passes(
        self, X: np.ndarray, Y: np.ndarray | None, num_samples: int | None, *, batch_rows: int = BATCH_ROWS
    ) -> Iterator[tuple[_Pass, np.ndarray | None]]:
        """Some rows at a time, pushed through the layers once, with one factorisation for all."""
        model = self.model
        dtype = gpflow.default_float()
        # The factors are those of all rows.
        with clear_errors("prediction failed: "):
            factors = model.cached_factors()
            weights = model.component_weights(num_samples)
            for i in range(0, max(len(X), 1), batch_rows):
                inputs = tf.constant(self.units.x.transform(X[i : i + batch_rows]).astype(dtype))
                moments = self._components_at(inputs, num_samples, factors)
                yield _Pass(inputs, weights, *moments), None if Y is None else Y[i : i + batch_rows]

    def _components_at(self, X: tf.Tensor, num_samples: int | None, factors: Factors | Ensemble) -> MeanAndVariance:
        """`DeepGP.predict_components`; those of an ensemble, which each call would trace anew, compiled once."""
        model = self.model
        if not isinstance(factors, Ensemble):
            return model.predict_components(X, num_samples=num_samples, factors=factors)
        seed = as_seed(model.prediction_seed)
        tensors = [X, seed, *tf.nest.flatten(factors)]
        # What a trace depends on beside its arguments.
        count = model.num_predict_samples if num_samples is None else num_samples
        shapes = [tensor.shape for tensor in tensors[1:]]
        of_trace = [count, model.predict_integrator, shapes, *model.submodules]
        # Parameters and seeds are arguments, so that a change of these needs no other trace.
        if self._components is None or not _are_same(self._components[0], of_trace):
            specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
            specs[0] = tf.TensorSpec([None, X.shape[1]], X.dtype)

            @tf.function(input_signature=specs, autograph=False)
            def compiled(X: tf.Tensor, seed: tf.Tensor, *parts: tf.Tensor) -> MeanAndVariance:
                packed = tf.nest.pack_sequence_as(factors, parts)
                return model.predict_components(X, num_samples=count, seed=seed, factors=packed)

            self._components = of_trace, compiled
        return self._components[1](*tensors)

    def _predict(self, part: _Pass, Y: np.ndarray | None, *, with_limits: bool = True) -> Predicted:
        likelihood = self.model.likelihood
        seed = self.model.likelihood_seed()
        scale = self.units.y
        X, weights, means, variances = part
        # Mean and variance of the mixture, Eq. (18), in the units of the data.
        component_moments = likelihoods.predict_mean_and_var(likelihood, X, means, variances, seed)
        mean, var = (np.asarray(moment, np.float64) for moment in mixture.moments(weights, *component_moments))
        predicted = Predicted(mean)
        if self.task == "regression":
            predicted = Predicted(scale.inverse_transform(mean), np.sqrt(var) * scale.scale)
            if with_limits and (distribution := self._distribution_or_none(part)) is not None:
                lower, upper = distribution.quantiles(LIMITS)
                predicted = predicted._replace(lower=lower, upper=upper)
        if Y is not None:
            # The log of the mean density of the components, in these units, too.
            targets = tf.constant(scale.transform(Y).astype(gpflow.default_float()))
            of_each = likelihoods.predict_log_density(likelihood, X, means, variances, targets, seed)
            log_density = np.asarray(mixture.log_density(weights, of_each), np.float64)
            predicted = predicted._replace(log_density=log_density - scale.log_volume)
        return predicted

    def _distribution(self, part: _Pass) -> Predictive:
        X, weights, means, variances = (np.asarray(array) for array in part)
        scale = self.units.y
        return predictive(
            self.model.likelihood, X, means, variances, weights=weights, offset=scale.mean, scale=scale.scale
        )

    def _distribution_or_none(self, part: _Pass) -> Predictive | None:
        """None for likelihoods without a distribution function."""
        try:
            return self._distribution(part)
        except ValueError:
            return None

    def columns(self, predicted: Predicted) -> dict[str, np.ndarray]:
        """Predictions as the columns of a table, [N] each.

        Regression: "mean", "std" and the limits of the central 95%, "lower" and "upper"; with the target's name behind
        them if there are several. Labels: "label" and "probability_NAME" for each. Both: "log_density" if it is known.
        """
        columns: dict[str, np.ndarray] = {}
        # Numbers by target; labels with the probability of each.
        if self.task == "regression":
            for p, target in enumerate(self.target_names):
                suffix = f"_{target}" if len(self.target_names) > 1 else ""
                for name in ("mean", "std", "lower", "upper"):
                    if (values := getattr(predicted, name)) is not None:
                        columns[name + suffix] = values[:, p]
        else:
            mean = predicted.mean
            probabilities = np.concatenate([1 - mean, mean], axis=1) if mean.shape[1] == 1 else mean
            columns["label"] = np.array(self.class_names, dtype=object)[predicted.labels]
            columns.update({f"probability_{c}": probabilities[:, i] for i, c in enumerate(self.class_names)})
        if predicted.log_density is not None:
            columns["log_density"] = predicted.log_density
        return columns

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write model.npz and inputs.json to a folder, each whole or not at all.

        :raises ValueError: as `save_model`.
        """
        description = {"targets": self.target_names, "task": self.task, "class_names": self.class_names}
        stored = {
            "schema": {**self.schema, **description},
            "x_scale": self.units.x.to_json(),
            "y_scale": self.units.y.to_json(),
            "float32": gpflow.default_float() is np.float32,
        }
        save_model(self.model, Path(folder) / MODEL_FILE)
        write_text(Path(folder) / INPUTS_FILE, json.dumps(stored, indent=2, allow_nan=False) + "\n")

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, custom_objects: CustomObjects = ()) -> Predictor:
        """What `save` wrote.

        :param custom_objects: as in `load_model`.
        :raises ValueError: if a file is missing or damaged, the files are not of one model, or the model has another
            float type than GPflow's current default; see `stored_float`.
        """
        # What the data were, then the model.
        folder = Path(folder).expanduser()
        path = folder / INPUTS_FILE
        stored = _read_inputs(path)
        if not (folder / MODEL_FILE).exists():
            raise ValueError(f"{folder} has no {MODEL_FILE}: no checkpoint was reached yet; continue training.")
        try:
            schema = stored["schema"]
            task = schema["task"]
            if task not in get_args(Task):
                raise TypeError(f"it has the task {task!r}")
            targets = tuple(map(str, schema["targets"]))
            classes = tuple(map(str, schema["class_names"]))
            units = Units(Scale.from_json(stored["x_scale"]), Scale.from_json(stored["y_scale"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} is damaged ({error!r}); train again, or take an undamaged copy.") from error
        # The two files may be of different runs, which shows by the number of inputs.
        model = load_model(folder / MODEL_FILE, custom_objects=custom_objects)
        try:
            return cls(model, units, task=task, target_names=targets, class_names=classes, schema=schema)
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from error

    @staticmethod
    def stored_float(folder: str | os.PathLike[str]) -> str:
        """ "float32" or "float64": the type in which the predictor in a folder computes, for `float_type`.

        :raises ValueError: if the folder has no predictor.
        """
        return "float32" if _read_inputs(Path(folder).expanduser() / INPUTS_FILE).get("float32") else "float64"


@contextmanager
def float_type(name: str) -> Iterator[None]:
    """Within a `with` statement GPflow's default float type is "float32" or "float64"; build, train and load in it."""
    config = dataclasses.replace(gpflow.config.config(), float=getattr(np, name))
    with gpflow.config.as_context(config):
        yield


def _read_inputs(path: Path) -> dict[str, Any]:
    try:
        return dict(parse_json(path.read_bytes()))
    except FileNotFoundError as error:
        raise ValueError(
            f"{path.parent} must be the folder of a trained deep GP, but has no {path.name}; check the path, or "
            "train to the first checkpoint."
        ) from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({error!r}); train again, or take an undamaged copy.") from error


def _are_same(some: Sequence[object], others: Sequence[object]) -> bool:
    """Whether these are the same objects, or equal numbers and shapes."""
    return len(some) == len(others) and all(
        a is b if isinstance(a, tf.Module) else bool(a == b) for a, b in zip(some, others, strict=True)
    )
