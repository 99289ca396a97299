"""Weights of a layer that share a few values, to which they are drawn little by little while a plain network trains.

    sharing = ValueSharing(model, 12, epochs=6)
    model.fit(x, y, epochs=8, callbacks=[sharing])

Rounding all weights at once costs an error that training of the values hardly mends, as no weight can go to another
value any more. Here each step first trains weights freely, and then moves each a part s of the way to a value
(relaxed quantisation, Yin et al. 2018): that of the lowest (w - c)^2 + lambda bits(c), with the bits -log2 of the part
of the weights that a value has, as a file takes them; the value is the mean of its weights. s grows from 10^-4 to 1,
evenly in its logarithm; from then on each weight keeps its value, and only the values train.
"""

from __future__ import annotations

from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from ..graph.graph import graph_of
from ..graph.kinds import weighted_layers
from ..rounding.codebook import codebook

__all__ = ["ValueSharing", "free"]

_FIRST = 1e-4
"""The part of the way of the first step."""


class ValueSharing(keras.callbacks.Callback):
    """Draws the weights of each layer to a few values in `model.fit`, which they share in the end; zeros stay.

    :param model: plain; the weights of its dense layers and convolutions that are not 0.
    :param k: values of a layer, besides 0, from 1 to 255.
    :param epochs: over which weights are drawn, from the first epoch on; later ones train the values, until
        :func:`free` is called.
    :param rate: lambda, in units of the variance of a layer's weights: how many squared distances a bit is worth. More
        uses fewer values, and these more often.
    :param seed: of the k-means that begins.
    :raises ValueError: if a number is out of range.
    """

    def __init__(self, model: keras.Model, k: int, *, epochs: float, rate: float = 0.01, seed: int = 0) -> None:
        super().__init__()
        if not 1 <= k <= 255 or not epochs >= 0 or not 0 <= rate < float("inf"):
            raise ValueError(
                f"k must be 1 to 255, epochs and rate finite and at least 0, got {k=}, {epochs=}, {rate=}."
            )
        self.epochs = epochs
        self._strength = tf.Variable(_FIRST, dtype=tf.float32)
        self._epoch = 0
        # A constraint draws the weights of each layer after each step.
        kernels = [node.layer.kernel for node in weighted_layers(graph_of(model))]
        self._kernels = [kernel for kernel in kernels if np.any(np.asarray(kernel))]
        for kernel in self._kernels:
            kernel.constraint = _Drawn(np.asarray(kernel), k, rate, seed, self._strength)
        model.train_function = None  # Keras compiles a step once, with the constraints of then

    def strength_at(self, epoch: float) -> float:
        """The part of the way to their values that weights go after `epoch` epochs."""
        return float(_FIRST ** (1 - epoch / self.epochs)) if epoch < self.epochs else 1.0

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, object] | None = None) -> None:
        """For Keras: the number of the epoch."""
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, object] | None = None) -> None:
        """For Keras: how far weights go in the next step."""
        # Evenly in its logarithm from step to step.
        steps = (self.params or {}).get("steps") or 1
        self._strength.assign(self.strength_at(self._epoch + batch / steps))

    def on_epoch_end(self, epoch: int, logs: Mapping[str, object] | None = None) -> None:
        """For Keras: after the last of the epochs, weights have their values."""
        if self._strength < 1 and epoch + 1 >= self.epochs:
            self._strength.assign(1.0)
            for kernel in self._kernels:
                kernel.assign(kernel.constraint(kernel))


def free(model: keras.Model) -> None:
    """Weights of dense layers and convolutions may move freely again."""
    for node in weighted_layers(graph_of(model)):
        node.layer.kernel.constraint = None
    model.train_function = None


class _Drawn(keras.constraints.Constraint):
    """Weights that were not 0 go a part of the way to the value that costs least."""

    def __init__(self, w: NDArray[np.float32], k: int, rate: float, seed: int, strength: tf.Variable) -> None:
        # Only weights that were not 0 take part; k-means gives the first values.
        self._places = tf.constant(np.flatnonzero(w)[:, None], tf.int32)
        nonzero = w[w != 0]
        book = codebook(nonzero, k, seed=seed)
        self._cost = float(rate * np.var(nonzero))
        self._centres = tf.Variable(book.centres.astype(np.float32))
        self._indices = tf.Variable(book.indices.astype(np.int32))
        self._strength = strength

    def __call__(self, w: tf.Tensor) -> tf.Tensor:
        flat = tf.gather_nd(tf.reshape(w, [-1]), self._places)
        k = self._centres.shape[0]
        # For each weight the value of the lowest (w - c)^2 + lambda bits(c); in the end it stays what it is.
        counts = tf.math.bincount(self._indices, minlength=k, dtype=tf.float32)
        bits = -tf.math.log((counts + 0.5) / tf.reduce_sum(counts + 0.5)) / float(np.log(2))
        costs = tf.square(flat[:, None] - self._centres) + self._cost * bits
        nearest = tf.argmin(costs, axis=1, output_type=tf.int32)
        indices = tf.where(self._strength < 1, nearest, self._indices)
        # Each value is the mean of its weights.
        sums = tf.math.unsorted_segment_sum(flat, indices, k)
        counts = tf.math.unsorted_segment_sum(tf.ones_like(flat), indices, k)
        centres = tf.where(counts > 0, sums / tf.maximum(counts, 1.0), self._centres)
        self._indices.assign(indices)
        self._centres.assign(centres)
        # Weights go a part of the way to their values, which grows to all of it.
        moved = tf.where(
            self._strength < 1,
            flat + self._strength * (tf.gather(centres, indices) - flat),
            tf.gather(centres, indices),
        )
        return tf.reshape(tf.scatter_nd(self._places, moved, [tf.size(w)]), tf.shape(w))
