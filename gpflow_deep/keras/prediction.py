"""Starting values from data, and predictions, of Keras models with GP layers.

A prediction is the mixture of Eq. (18): S draws go through the inner GP layers, the same Sobol points for all rows, and
the last layer gives a Gaussian for each of them. What is predicted for a row is a function of that row alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Likelihood
from numpy.typing import ArrayLike, NDArray

from gpflow_deep_base.seeds import as_seed

from ..judge.forecasts import Forecast
from ..judge.predictive import Predictive, predictive
from ..model import likelihoods
from ..model.deep_gp import NUM_PREDICT_SAMPLES
from ..model.likelihoods import Task
from ..model.predictions import log_density, moments
from ..model.quadrature import Sobol
from ..train.predictor import BATCH_ROWS, LIMITS, Predicted, float_type
from . import passes
from .layer import GPLayer
from .likelihood import Density, LikelihoodLayer

__all__ = ["Predictor", "adapt"]

Array = NDArray[np.float64]


def adapt(model: keras.Model, X: ArrayLike) -> None:
    """Start all GP layers of a model from data, before training: `GPLayer.adapt` with what comes into each.

    :param X: inputs of the model, [N, ...]; some thousands of rows are enough.
    """
    with passes.run_as(passes.Pass(adapts=True)):
        model(tf.convert_to_tensor(X), training=False)


class Predictor:
    """Predictions of a Keras model whose last layer is a `GPLayer`, a `LikelihoodLayer` behind it not counted.

    A model that goes on behind its last GP layer is taken as well, by its draws alone. In the units of the targets that
    it was trained with. `gpflow_deep.judge.evaluation.evaluate(predictor, (X, Y))` judges it.

    :param model: trained; its current weights are used.
    :param likelihood: in place of that of the model's `LikelihoodLayer` or loss if None.
    :param num_samples: number S of draws, where there are inner GP layers.
    :param seed: of these draws.
    :param batch_rows: rows at a time, with all their draws.
    :raises ValueError: if the model has no GP layer or no likelihood.
    """

    def __init__(
        self,
        model: keras.Model,
        likelihood: Likelihood | None = None,
        *,
        num_samples: int = NUM_PREDICT_SAMPLES,
        seed: int = 0,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        if num_samples < 1:
            raise ValueError(f"num_samples must be at least 1, got {num_samples}.")
        layers = list(_leaves(model))
        # The last layer of GPs is integrated out if nothing but a likelihood stands behind it; the others are drawn.
        ends = [layer for layer in layers if isinstance(layer, LikelihoodLayer)]
        gps = [layer for layer in layers if isinstance(layer, GPLayer)]
        if not gps:
            raise ValueError(
                f"the model must have a GPLayer, got {', '.join(type(layer).__name__ for layer in layers)}."
            )
        last = next(layer for layer in reversed(layers) if not isinstance(layer, LikelihoodLayer))
        self._head = last if isinstance(last, GPLayer) else None
        self._inner = [layer for layer in gps if layer is not self._head]
        # The likelihood: as given, of the model's end, or of the loss that it was compiled with.
        loss = getattr(model, "loss", None)
        source: LikelihoodLayer | Density | None = ends[-1] if ends else getattr(loss, "density", None)
        if likelihood is None:
            if source is None:
                raise ValueError(
                    "the model has no likelihood, as its loss is of Keras; give the one that it stands for."
                )
            likelihood = source.likelihood
        self._model = model
        self.likelihood = likelihood
        self.num_samples = num_samples
        self.batch_rows = batch_rows
        self._float_type = gps[-1].float_type
        self._seed = as_seed(seed)
        self._pass_through = tf.function(self._outputs, autograph=False, reduce_retracing=True)

    @property
    def task(self) -> Task:
        """What is predicted: numbers, one of two labels, or one of several."""
        return likelihoods.task_of(self.likelihood)

    def components(self, X: ArrayLike) -> tuple[Array, Array]:
        """Means and variances of the latent functions in each component, [S, N, P], at inputs X [N, ...]."""
        X = np.asarray(X)
        # The same Sobol points for all rows, which go through the model in slices, once for each draw.
        dims = [layer.gp.num_latent_gps for layer in self._inner]
        S = Sobol().num_components(dims, self.num_samples)
        with float_type(self._float_type):
            noise = Sobol().noise(dims, S, 1, self._seed, tf.as_dtype(self._float_type))
            size = max(1, self.batch_rows // S)
            parts = [
                np.asarray(self._pass_through(tf.constant(X[i : i + size]), noise), np.float64)
                for i in range(0, max(1, len(X)), size)
            ]
        # [S rows, ...] of each slice -> [S, N, ...].
        outputs = np.concatenate([part.reshape(S, -1, *part.shape[1:]) for part in parts], axis=1)
        return (outputs, np.zeros_like(outputs)) if self._head is None else (outputs[:, :, 0], outputs[:, :, 1])

    def predict(self, X: ArrayLike, Y: ArrayLike | None = None) -> Predicted:
        """Mean, standard deviation and the central 95% of the targets, or the probabilities of the labels.

        :param X: [N, ...].
        :param Y: targets [N, P] or [N], for log densities; None if they are not known.
        """
        # Eq. (18), and what follows from it.
        components = self.components(X)
        mean, var = self._mixture(*components)
        log_density = None if Y is None else self._log_density(*components, Y)
        if self.task != "regression":
            return Predicted(mean, log_density=log_density)
        # The central 95%, where the likelihood has a distribution function.
        lower = upper = None
        if (distribution := self._distribution_or_none(*components)) is not None:
            lower, upper = distribution.quantiles(LIMITS)
        return Predicted(mean, np.sqrt(var), lower, upper, log_density)

    def quantiles(self, X: ArrayLike, levels: Sequence[float]) -> Array:
        """Quantiles [levels, N, P] of the targets at X [N, ...].

        :raises ValueError: if the targets are labels, or the likelihood has no distribution function.
        """
        return self._distribution(*self.components(X)).quantiles(levels)

    def forecast(self, X: ArrayLike, Y: ArrayLike) -> Forecast:
        """What `gpflow_deep.judge.evaluation.evaluate` judges.

        :param X: [N, ...].
        :param Y: targets [N, P], or labels [N, 1].
        """
        components = self.components(X)
        distribution = self._distribution_or_none(*components) if self.task == "regression" else None
        return Forecast(self._log_density(*components, Y), self._mixture(*components)[0], distribution)

    # Private.

    def _outputs(self, X: tf.Tensor, noise: list[tf.Tensor]) -> tf.Tensor:
        """Outputs of the model for rows X, once for each draw: [S N, 2, P], or [S N, P] without a head."""
        # All rows for the first draw, then for the second one, and so on.
        S = noise[0].shape[0] if noise else 1
        by_layer = {id(layer): part for layer, part in zip(self._inner, noise, strict=True)}
        with passes.run_as(passes.Pass(noise=by_layer, head=self._head)):
            return self._model(tf.concat([X] * S, axis=0), training=False)

    def _arguments(self, means: Array, variances: Array) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        dtype = tf.as_dtype(self._float_type)
        X = tf.zeros([means.shape[1], 0], dtype)
        return X, tf.constant(means, dtype), tf.constant(np.maximum(variances, 0.0), dtype)

    def _weights(self, means: Array) -> tf.Tensor:
        return tf.fill([len(means)], tf.constant(1.0 / len(means), self._float_type))

    def _mixture(self, means: Array, variances: Array) -> tuple[Array, Array]:
        """Mean and variance of the targets, [N, Q]."""
        with float_type(self._float_type):
            arguments = self._arguments(means, variances)
            of_components = likelihoods.predict_mean_and_var(self.likelihood, *arguments, self._seed)
            mean, var = moments(self._weights(means), *of_components)
        return np.asarray(mean, np.float64), np.asarray(var, np.float64)

    def _log_density(self, means: Array, variances: Array, Y: ArrayLike) -> Array:
        targets = np.asarray(Y, self._float_type)
        N = means.shape[1]
        if targets.ndim not in (1, 2) or len(targets) != N:
            raise ValueError(f"Y must have shape [N, P] or [N] with N = {N} as X, got {list(targets.shape)}.")
        targets = targets.reshape(N, -1)
        with float_type(self._float_type):
            arguments = (*self._arguments(means, variances), tf.constant(targets))
            of_components = likelihoods.predict_log_density(self.likelihood, *arguments, self._seed)
            return np.asarray(log_density(self._weights(means), of_components), np.float64)

    def _distribution(self, means: Array, variances: Array) -> Predictive:
        with float_type(self._float_type):
            return predictive(self.likelihood, np.zeros([means.shape[1], 0]), means, variances)

    def _distribution_or_none(self, means: Array, variances: Array) -> Predictive | None:
        """None for likelihoods without a distribution function."""
        try:
            return self._distribution(means, variances)
        except ValueError:
            return None


def _leaves(model: keras.Model) -> Iterator[keras.Layer]:
    """The layers of a model and of the models in it, in their order."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _leaves(layer)
        elif not isinstance(layer, keras.layers.InputLayer):
            yield layer
