"""Training of a plain network without noise and KL, and what all phases of `compression.fit` share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from .held_out import TrainingData
from .likelihood import Likelihood

__all__ = ["Best", "Falling", "compiled", "train_plain"]


def train_plain(
    model: keras.Model,
    data: TrainingData,
    values_of: Callable[[keras.Model], np.ndarray],
    epochs: int,
    *,
    start: float = 0.5,
    verbose: Any = 0,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> None:
    """Train a compiled plain network for some epochs and keep the weights of the lowest validation loss.

    :param values_of: the validation loss, on parts of the data. :param start: see `Falling`.
    """
    if epochs:
        best = Best(values_of)
        model.fit(**data.train, epochs=epochs, verbose=verbose, callbacks=[*callbacks, Falling(epochs, start), best])
        best.restore(model)


class Falling(keras.callbacks.Callback):
    """The learning rate falls to 0, half a cosine, from a part `start` of the epochs on, unless the optimizer has a
    schedule of its own."""

    def __init__(self, epochs: int, start: float = 0.5) -> None:
        super().__init__()
        self._epochs, self._start = epochs, start
        self._peak: float | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """For Keras: set the rate of the epoch."""
        optimizer = self.model.optimizer
        if isinstance(optimizer.get_config()["learning_rate"], dict):
            return
        if self._peak is None:
            self._peak = float(optimizer.learning_rate)
        part = max(0.0, epoch / self._epochs - self._start) / (1 - self._start)
        optimizer.learning_rate = self._peak * 0.5 * (1 + math.cos(math.pi * part))


class Best(keras.callbacks.Callback):
    """Keeps the weights of the lowest validation loss, those before training included."""

    def __init__(self, values_of: Callable[[keras.Model], np.ndarray]) -> None:
        super().__init__()
        self._values_of, self._lowest = values_of, math.inf
        self._weights: list[np.ndarray] | None = None

    def _look(self) -> None:
        if (value := float(np.mean(self._values_of(self.model)))) < self._lowest:
            self._lowest, self._weights = value, self.model.get_weights()

    def on_train_begin(self, logs: Any = None) -> None:
        """For Keras."""
        self._look()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """For Keras."""
        self._look()

    def restore(self, model: keras.Model) -> None:
        """Give a model the weights that were kept."""
        if self._weights is not None:
            model.set_weights(self._weights)


def compiled(model: keras.Model, optimizer: Any, loss: Any, metrics: Any, likelihood: Likelihood | None) -> None:
    """Compile with an optimizer of its own, and the error that estimates the noise."""
    if likelihood is not None and likelihood.noise:
        kinds = {"noise_variance": keras.metrics.MeanSquaredError, "noise_width": keras.metrics.MeanAbsoluteError}
        given = [] if metrics is None else keras.tree.flatten(metrics)
        metrics = [*given, kinds[likelihood.noise](name=likelihood.noise)]
    copy = type(optimizer).from_config(optimizer.get_config())
    model.compile(copy, loss, metrics=metrics)
