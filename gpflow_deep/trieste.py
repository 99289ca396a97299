"""A deep GP as a model of trieste (https://secondmind-labs.github.io/trieste), a toolbox for Bayesian optimisation.

    from trieste.acquisition.rule import EfficientGlobalOptimization
    from trieste.bayesian_optimizer import BayesianOptimizer

    model = TriesteModel(gpflow_deep.modern(X, Y, 2), units)
    BayesianOptimizer(observer, space).optimize(20, data, model)

`TriesteModel` has what trieste's protocols ask for: marginal and joint predictions, samples, trajectories (Thompson
sampling), a reparametrised sampler (batch Monte-Carlo expected improvement), `update` and `optimize`. This module does
not import trieste, which needs TensorFlow below 2.19 and so an environment of its own (the extra `trieste`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance

from .functions.functions import NUM_FEATURES, FunctionDraws
from .model.deep_gp import DeepGP
from .model.scaling import Scale, Units
from .posteriors.sampling import Sampler, SamplingConfig
from .train.course import TrainingConfig
from .train.training import Trainer

__all__ = ["TriesteModel", "train_further"]

Train = Callable[[DeepGP, np.ndarray, np.ndarray], Any]
"""Trains a model on X [N, D], Y [N, P] in its units; what it returns is the result of `TriesteModel.optimize`."""


def train_further(
    model: DeepGP, X: np.ndarray, Y: np.ndarray, *, num_steps: int = 500, sampling: SamplingConfig | None = None
) -> float:
    """Steps of Adam on all rows, from the model's present parameters; the last bound in nats per row.

    :param sampling: how a model that predicts from samples is sampled anew; the defaults, for as many, if None.
    """
    num_kept = model.samples.size if model.samples is not None and model.is_sampled else 0
    if num_kept and sampling is not None and sampling.num_kept != num_kept:
        raise ValueError(f"num_kept must be {num_kept}, as before, got {sampling.num_kept}; make a new TriesteModel.")
    # The bound of q(u) is climbed without samples; these are drawn anew if there were any.
    model.samples = None
    trainer = Trainer(model, TrainingConfig(learning_rate=0.01), num_steps=num_steps)
    rows = tf.constant(X), tf.constant(Y)
    trainer.advance(lambda step: rows, 0, num_steps, tf.constant([0, len(X)]))
    if num_kept:
        sampler = Sampler(model, X, Y, sampling or SamplingConfig(num_kept=num_kept), seed=len(X))
        sampler.advance(0, sampler.num_steps)
    return trainer.scalars()["train/elbo_nats"] / len(X)


class TriesteModel:
    """A deep GP with one or more outputs behind trieste's protocols.

    Parameters change in place, so that compiled acquisition functions follow them. With the same number of inducing
    inputs throughout, more data make no other model: take as many as there will be rows, or some tens per input.

    :param model: which is trained on.
    :param units: of the data; None if the model takes them as they are.
    :param train: what `optimize` does.
    :param num_features: of drawn functions, see `DeepGP.sample_functions`.
    """

    def __init__(
        self,
        model: DeepGP,
        units: Units | None = None,
        *,
        train: Train = train_further,
        num_features: int = NUM_FEATURES,
    ) -> None:
        first = model.layers[0]
        last = model.layers[-1]
        # What trieste changes are variables, so that compiled functions see it.
        if units is None:
            units = Units(Scale.identity(first.input_dim), Scale.identity(last.output_dim))
        self.model = model
        self.units = units
        self.train = train
        self.num_features = num_features
        self._num_data = tf.Variable(model.num_data or 1, dtype=last.dtype, trainable=False, name="num_data")
        model.num_data = self._num_data
        self.posterior = model.posterior("variable")

    # trieste.models.ProbabilisticModel, SupportsPredictJoint, SupportsPredictY, SupportsGetObservationNoise

    def predict(self, query_points: tf.Tensor) -> MeanAndVariance:
        """Mean and variance of f at [..., D]: [..., P] each."""
        mean, var = self.posterior.predict_f(self._points(query_points))
        return self._mean(mean), var * self._y_scale**2

    def predict_joint(self, query_points: tf.Tensor) -> MeanAndVariance:
        """Mean [..., B, P] and covariance [..., P, B, B] of f at [..., B, D]."""
        mean, cov = self.posterior.predict_f(self._points(query_points), full_cov=True)
        return self._mean(mean), cov * (self._y_scale**2)[:, None, None]

    def predict_y(self, query_points: tf.Tensor) -> MeanAndVariance:
        """Mean and variance of observations at [..., D]: [..., P] each."""
        mean, var = self.posterior.predict_y(self._points(query_points))
        return self._mean(mean), var * self._y_scale**2

    def sample(self, query_points: tf.Tensor, num_samples: int) -> tf.Tensor:
        """Draws of f at [..., N, D], [..., S, N, P]: joint over the N points."""
        return self.reparam_sampler(num_samples).sample(query_points)

    def get_observation_noise(self) -> tf.Tensor:
        """Variance of the noise of a Gaussian likelihood."""
        return tf.convert_to_tensor(self.model.likelihood.variance) * self._y_scale[0] ** 2

    def log(self, dataset: object = None) -> None:
        """Nothing."""

    # trieste.models.TrainableProbabilisticModel

    def update(self, dataset: Any) -> None:
        """Tell the model how many rows there are; it learns from them in `optimize`."""
        self._num_data.assign(float(len(dataset.query_points)))

    def optimize(self, dataset: Any) -> Any:
        """Train on a data set (`query_points` [N, D], `observations` [N, P]); what `train` returns."""
        # In the units of the model; the cached posterior follows.
        self.update(dataset)
        rows = (np.asarray(part) for part in (dataset.query_points, dataset.observations))
        result = self.train(self.model, *self.units.transform(*rows))
        self.posterior.update_cache()
        return result

    # trieste.models.HasTrajectorySampler, HasReparamSampler

    def trajectory_sampler(self) -> Trajectories:
        """Functions drawn from the model, for Thompson sampling."""
        return Trajectories(self)

    def reparam_sampler(self, num_samples: int) -> Draws:
        """Draws that stay the same between calls, for Monte-Carlo acquisition functions."""
        return Draws(self, num_samples)

    def functions(self, num_functions: int) -> FunctionDraws:
        """Fresh draws of f in the units of the data: see `DeepGP.sample_functions`."""
        drawn = self.model.sample_functions(num_functions, num_features=self.num_features)
        return drawn.in_units(self.units.x, self.units.y)

    # Private.

    @property
    def _y_scale(self) -> tf.Tensor:
        return tf.constant(self.units.y.scale, self.model.layers[-1].dtype)

    def _points(self, points: tf.Tensor) -> tf.Tensor:
        points = tf.convert_to_tensor(points)
        return (points - tf.constant(self.units.x.mean, points.dtype)) / tf.constant(self.units.x.scale, points.dtype)

    def _mean(self, mean: tf.Tensor) -> tf.Tensor:
        return mean * self._y_scale + tf.constant(self.units.y.mean, mean.dtype)


class Trajectory:
    """Functions [N, B, D] -> [N, B, P], function b at the points of index b; B is fixed by the first call."""

    def __init__(self, model: TriesteModel) -> None:
        self.model = model
        self.drawn: FunctionDraws | None = None

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Values of the functions, also inside of `tf.function`, where they are called as Python functions."""
        values = tf.py_function(self._values, [x], x.dtype)
        values.set_shape([*x.shape[:2], self.model.model.layers[-1].output_dim])
        return values

    def _values(self, x: tf.Tensor) -> tf.Tensor:
        if self.drawn is None:
            self.drawn = self.model.functions(int(x.shape[1]))
        return tf.transpose(self.drawn(tf.transpose(x, [1, 0, 2])), [1, 0, 2])


class Trajectories:
    """trieste's `TrajectorySampler`: every trajectory is a fresh draw from the model as it is."""

    def __init__(self, model: TriesteModel) -> None:
        self.model = model

    def get_trajectory(self) -> Trajectory:
        """Functions that are drawn when they are called for the first time."""
        return Trajectory(self.model)

    def resample_trajectory(self, trajectory: object) -> Trajectory:
        """New ones."""
        return self.get_trajectory()

    update_trajectory = resample_trajectory


class Draws:
    """trieste's `ReparametrizationSampler`: values of the same S functions until it is reset."""

    def __init__(self, model: TriesteModel, num_samples: int) -> None:
        self.model = model
        self.num_samples = num_samples
        self.drawn: FunctionDraws | None = None

    def sample(self, at: tf.Tensor, *, jitter: float = 0.0) -> tf.Tensor:
        """Values [..., S, B, P] at [..., B, D]; `jitter` is of no use here."""
        values = tf.py_function(self._values, [at], at.dtype)
        values.set_shape([*at.shape[:-2], self.num_samples, at.shape[-2], self.model.model.layers[-1].output_dim])
        return values

    def reset_sampler(self) -> None:
        """Draw anew at the next call."""
        self.drawn = None

    def _values(self, at: tf.Tensor) -> tf.Tensor:
        if self.drawn is None:
            self.drawn = self.model.functions(self.num_samples)
        lead = at.shape[:-2]
        B = at.shape[-2]
        D = at.shape[-1]
        values = self.drawn(tf.reshape(at, [-1, D]))  # [S, rows B, P]
        values = tf.reshape(values, [self.num_samples, -1, B, values.shape[-1]])
        return tf.reshape(tf.transpose(values, [1, 0, 2, 3]), [*lead, self.num_samples, B, values.shape[-1]])
