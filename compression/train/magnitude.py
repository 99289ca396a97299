"""Gradual magnitude pruning of single weights while a plain network trains.

    pruning = MagnitudePruning(model, keep=0.02, epochs=30)
    model.fit(x, y, epochs=60, callbacks=[pruning])

The part of the weights that is kept falls from 1 to `keep` by a cubic schedule (Zhu and Gupta, 2017), by one threshold
for all layers; what is left trains on. A file has to say where the weights are, too, so that a weight beside others is
cheaper than one alone: what is compared with the threshold is |w| / sqrt(bits), w^2 for each bit, with the bits that
the place and the value of a weight take, as density of rows and columns and neighbours in an image tell.
"""

from __future__ import annotations

from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from ..graph.graph import graph_of
from ..graph.kinds import weighted_layers
from ..graph.removal.cutting import oriented
from ..graph.removal.neighbours import strides_of

__all__ = ["MagnitudePruning", "Masked", "place_bits"]

_VALUE_BITS = 4.0
_MOST_BITS = 14.0
_DENSE = 0.5  # above this part of the weights, places cost about the same
_LEVELS = 10
_PRIOR = 0.02  # of a weight, in units of a place, for contexts without any


class MagnitudePruning(keras.callbacks.Callback):
    """Sets more and more of the smallest weights to 0, and keeps them there, in `model.fit`.

    :param model: plain; the kernels of its dense layers and convolutions are pruned.
    :param keep: part of their weights that is left in the end, above 0 and at most 1.
    :param epochs: over which the part falls, from the first epoch on; pruned weights stay 0 until :func:`free`.
    :param every: steps between two looks.
    :param per_bit: compare w^2 with the bits that the place of a weight takes in a file; else |w| alone.
    :raises ValueError: if a number is out of range, or the model has nothing to prune.
    """

    def __init__(
        self, model: keras.Model, *, keep: float, epochs: float, every: int = 50, per_bit: bool = True
    ) -> None:
        super().__init__()
        if not 0 < keep <= 1:
            raise ValueError(f"keep must be above 0 and at most 1, got {keep}.")
        if not epochs >= 0 or every < 1:
            raise ValueError(f"epochs must be at least 0 and every at least 1, got {epochs=}, {every=}.")
        graph = graph_of(model)
        self._layers = [node.layer for node in weighted_layers(graph)]
        if not self._layers:
            raise ValueError(f"the model {model.name} has no dense layers or convolutions to prune.")
        # Neighbours of weights in an image, by which bits of places are reckoned.
        strides = strides_of(graph)
        self._strides = [strides.get(node.name, (0, 0)) for node in weighted_layers(graph)]
        self.keep = keep
        self.epochs = epochs
        self.every = every
        self.per_bit = per_bit
        # Weights that are 0 already stay 0; a constraint holds the mask in each step.
        self._masks = [tf.Variable(tf.cast(layer.kernel != 0, tf.float32)) for layer in self._layers]
        self._epoch = 0
        self._is_done = False
        for layer, mask in zip(self._layers, self._masks, strict=True):
            layer.kernel.constraint = Masked(mask)
        model.train_function = None

    def part_at(self, epoch: float) -> float:
        """Part of the weights that is kept after `epoch` epochs, a number from `keep` to 1."""
        # Zhu and Gupta (2017): s = keep + (1 - keep) (1 - t / T)^3.
        remaining = max(0.0, 1.0 - epoch / self.epochs) if self.epochs else 0.0
        return self.keep + (1.0 - self.keep) * remaining**3

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, object] | None = None) -> None:
        """For Keras: the number of the epoch."""
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, object] | None = None) -> None:
        """For Keras: prune, if it is time."""
        # At once when the last epoch of the schedule is over, and else every so many steps.
        steps = (self.params or {}).get("steps") or 1
        epoch = self._epoch + batch / steps
        if not self._is_done and (batch % self.every == 0 or epoch >= self.epochs):
            self.prune(self.part_at(epoch))
            self._is_done = epoch >= self.epochs

    def prune(self, part: float) -> None:
        """Keep this part of the weights, those of the highest scores."""
        # Scores |w| / sqrt(bits), by the bits that place and value of a weight take.
        kernels = [_matrix(layer) for layer in self._layers]
        scores = [np.abs(kernel) for kernel in kernels]
        if self.per_bit and part < _DENSE:
            bits = [place_bits(kernel != 0, strides) for kernel, strides in zip(kernels, self._strides, strict=True)]
            scores = [score / np.sqrt(bit + _VALUE_BITS) for score, bit in zip(scores, bits, strict=True)]
        # One threshold for the scores of all layers.
        flat = np.concatenate([score.ravel() for score in scores])
        count = max(1, round(part * flat.size))
        threshold = np.partition(flat, -count)[-count]
        # New masks, and weights without those that fall.
        for layer, mask, score in zip(self._layers, self._masks, scores, strict=True):
            shape = oriented(layer, np.asarray(layer.kernel)).shape
            is_kept = (score >= threshold) & (score > 0)  # what is 0 stays so, however many are kept
            mask.assign(oriented(layer, is_kept.astype(np.float32).reshape(shape)))
            layer.kernel.assign(layer.kernel * mask)


def place_bits(is_kept: NDArray[np.bool_], strides: tuple[int, int] = (0, 0)) -> NDArray[np.float64]:
    """Bits that say that a weight is at a place, -log2 of the part of weights at places like it, at most 14.

    Places are alike if their rows, their columns, and the weights around them in an image are about as full.

    :param is_kept: [K, N], inputs and units.
    :param strides: as in `compression.files.coding.context_coding`.
    :return: [K, N].
    """
    mask = is_kept.astype(np.float32)
    # The context of a place: how full its row and its column are, in octaves.
    rows, columns = (_level(mask.mean(axis=axis, keepdims=True)) for axis in (1, 0))
    context = rows * _LEVELS + columns
    if strides != (0, 0):
        # How many of the eight places around it in an image are filled; three or more are alike.
        padded = np.pad(mask, ((sum(strides), sum(strides)), (0, 0)))
        left_stride, above_stride = strides
        steps = (left_stride, above_stride, above_stride - left_stride, above_stride + left_stride)
        start = sum(strides)
        count = len(mask)
        around = sum(padded[start + sign * step : start + sign * step + count] for step in steps for sign in (-1, 1))
        context = context * 4 + np.minimum(around, 3).astype(np.int64)
    # -log2 of the part of filled places in each context.
    size = _LEVELS**2 * 4
    num_places = np.bincount(context.ravel(), minlength=size)
    num_kept = np.bincount(context.ravel(), weights=mask.ravel(), minlength=size)
    bits: NDArray[np.float64] = np.minimum(-np.log2((num_kept + _PRIOR) / (num_places + 1.0)), _MOST_BITS)[context]
    return bits


class Masked(keras.constraints.Constraint):
    """Weights times a mask, of their shape."""

    def __init__(self, mask: tf.Variable) -> None:
        self._mask = mask

    def __call__(self, w: tf.Tensor) -> tf.Tensor:
        """For Keras."""
        return w * self._mask


def _matrix(layer: keras.layers.Layer) -> NDArray[np.float32]:
    kernel = oriented(layer, np.asarray(layer.kernel))
    return kernel.reshape(-1, kernel.shape[-1])


def _level(density: NDArray[np.float32]) -> NDArray[np.int64]:
    """0 for nothing to 9 for more than half, in octaves."""
    return np.clip(np.floor(np.log2(1000 * density + 1)), 0, _LEVELS - 1).astype(np.int64)
