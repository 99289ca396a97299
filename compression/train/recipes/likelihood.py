"""What a loss says of the density of the targets, and the width of the noise where it says nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

__all__ = ["LearntNoise", "Likelihood", "likelihood_of", "noise_of"]


class Likelihood(NamedTuple):
    """What a loss says of the density of the targets.

    :ivar terms: numbers that Keras averages for one example; the negative log-likelihood of the example is their sum.
    :ivar noise: of a loss that is a likelihood only with a width of the noise: name of the metric that estimates it.
    :ivar factor: the loss times this and over that metric is the negative log-likelihood.
    """

    terms: int
    noise: str | None = None
    factor: float = 1.0


class LearntNoise(keras.callbacks.Callback):
    """The width of the noise of a loss that is a likelihood only with one, learnt.

    With a Gaussian likelihood of variance s, the bound is -N P (mse / (2 s) + log(2 pi s) / 2) - KL for N examples of P
    targets. For given weights the best s is the mean squared error; and for given s the bound is highest where
    mse + 2 s KL / (N P) is lowest. So s is the mean squared error of the last epoch, and 2 s / P the weight of the KL.
    In the same way a Laplace likelihood has the mean absolute error in place of 2 s.

    :ivar factor: of the weight of the KL; for other losses what makes the sum of their terms a mean.
    """

    def __init__(self, likelihood: Likelihood, start: float = 1.0) -> None:
        super().__init__()
        self.likelihood = likelihood
        self.factor = tf.Variable(0.0, dtype=tf.float32)
        self._set(start)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """For Keras: the width of the noise from the errors of the epoch."""
        # For given weights the best width is the error of the epoch.
        name = self.likelihood.noise
        if name is not None and math.isfinite(value := float((logs or {}).get(name, math.nan))):
            self._set(max(value, 1e-12))

    def _set(self, noise: float) -> None:
        self.factor.assign(noise / (self.likelihood.factor * self.likelihood.terms))


def likelihood_of(loss: str | keras.losses.Loss, output_shape: Any) -> Likelihood:
    """By the kind of the loss: what Keras' losses average over, and whether they lack a width of the noise.

    :param output_shape: of the model; of several outputs the sum of the losses is taken for the likelihood.
    """
    # Of several outputs the sum of the losses is one number of an example.
    if isinstance(loss, list | tuple | dict) or not all(size is None or isinstance(size, int) for size in output_shape):
        return Likelihood(1)
    # Keras averages the losses of an example over its terms.
    sizes = [1 if size is None else size for size in output_shape[1:]]
    keras_loss = keras.losses.get(loss)
    kind = getattr(getattr(keras_loss, "fn", keras_loss), "__name__", "")  # of an object that of its function
    # A density of each label, over the last axis; of each number; and with a width of noise.
    if kind in ("sparse_categorical_crossentropy", "categorical_crossentropy"):
        return Likelihood(math.prod(sizes[:-1]))
    if kind in ("binary_crossentropy", "poisson"):
        return Likelihood(math.prod(sizes))
    if kind == "mean_squared_error":
        return Likelihood(math.prod(sizes), "noise_variance", 0.5)
    if kind == "mean_absolute_error":
        return Likelihood(math.prod(sizes), "noise_width")
    return Likelihood(1)


def noise_of(outputs: object, targets: np.ndarray, likelihood: Likelihood) -> float:
    """Width of the noise to begin with: the errors of the trained network."""
    errors = np.asarray(outputs, np.float64)
    errors = errors - targets.reshape(errors.shape)
    return max(1e-12, float(np.mean(errors**2 if likelihood.noise == "noise_variance" else np.abs(errors))))
