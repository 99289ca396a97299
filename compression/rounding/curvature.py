"""How much the outputs of a network feel its weights, from inputs alone: no labels, no training.

    found = curvature_of(model, X)      # by kernel, in the order of a file

If outputs f(x) change by d, that costs E |d|^2 / 2, x from the calibration data. To second order in the weights of one
layer this is a product (Martens and Grosse, 2015): of E a a', the moments of its inputs a (of a convolution those of
all its places), and of E g_j^2, what the outputs feel of unit j, where g is the gradient of v' f(x) with respect to
what the unit gives to its activation, and v are random signs. Kernels of other layers have a diagonal instead: the mean
square of the gradient of v' f(x) with respect to each weight, smoothed along rows and columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from ..graph.graph import kernel_variables, rows_at_once
from ..graph.rebuild import copy_of
from .surgeon import adapted, upper_factor

__all__ = ["Curvature", "curvature_of", "curvature_of_posterior", "is_full", "moments_of"]

_ROWS = 128  # of a batch, at most
_PLACES = 2048  # of a convolution, of a batch, at most
_LEAST_ROWS = 8192  # in all batches together
_ROWS_OF_INPUT = 32
_MOST_INPUTS = 4608  # of a layer whose moments are a matrix
_MOST_DOUBLE = 1024  # inputs of a layer whose matrices are kept in float64
_LEAST_VARIANCE = 1e-30
_FULL = (keras.layers.Dense, keras.layers.Conv1D, keras.layers.Conv2D)


class Curvature(NamedTuple):
    """Of one kernel as a matrix of inputs and units, all axes but the last, and the last.

    :ivar upper: of the moments of inputs in this order, see `compression.rounding.surgeon`, [K, K] or [K].
    :ivar weight_of_units: what the outputs feel of each unit, [N]; of a posterior the precision of each weight, [K, N].
    :ivar order: in which inputs are rounded, those that are felt most first, so that the others can make good, [K].
    """

    upper: NDArray[np.floating]
    weight_of_units: NDArray[np.float64]
    order: NDArray[np.int64]

    @classmethod
    def of(cls, moments: NDArray[np.float64], weight_of_units: NDArray[np.float64]) -> Curvature:
        """Of moments of inputs, [K, K], or their diagonal, [K]."""
        if moments.ndim == 1:
            return cls(upper_factor(moments), weight_of_units, np.arange(len(moments)))
        order = np.argsort(-np.diagonal(moments), kind="stable")
        upper = upper_factor(moments[np.ix_(order, order)])
        return cls(upper.astype(_kept_type(len(order)), copy=False), weight_of_units, order)

    def adapted(
        self, weights: NDArray[np.float64], moments: NDArray[np.float64], products: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Weights [K, N] that make good for other inputs, see `compression.rounding.surgeon`.

        :param moments: [K, K].
        :param products: [K, N].
        """
        found = np.empty_like(weights)
        found[self.order] = adapted(
            weights[self.order], self.upper, np.diagonal(moments)[self.order], products[self.order]
        )
        return found


class _Seen:
    """What was seen of the inputs and activations of one layer."""

    def __init__(self, layer: keras.Layer, num_batches: int) -> None:
        self.layer = layer
        self.num_batches = num_batches
        self.moments: NDArray[np.floating] | None = None
        self.count = 0
        self.given: list[tf.Tensor] = []
        self.felt: NDArray[np.float64] = np.zeros(int(layer.kernel.shape[-1]))
        self.before = layer.call
        self.activation = layer.activation

    def watch(self) -> None:
        """Look at what goes in, and at what goes to the activation."""

        def call(inputs: tf.Tensor, *args: object, **kwargs: Any) -> Any:
            self._add(inputs)
            return self.before(inputs, *args, **kwargs)

        def activation(values: tf.Tensor) -> tf.Tensor:
            self.given.append(values)
            return values if self.activation is None else self.activation(values)

        self.layer.call = call
        self.layer.activation = activation

    def _add(self, inputs: tf.Tensor) -> None:
        (rows,) = _rows(self.layer, self.num_batches, self.count, inputs)
        if self.moments is None:
            self.moments = np.zeros((rows.shape[1], rows.shape[1]), _kept_type(rows.shape[1]))
        self.moments += rows.T @ rows
        self.count += len(rows)


def curvature_of(model: keras.Model, X: ArrayLike, *, seed: int = 0) -> list[Curvature]:
    """What the outputs feel of each kernel of a network, in the order of `kernels_of`.

    :param model: a plain one; it is not changed.
    :param X: inputs [n, ...], of several inputs nested as the model takes them.
    :param seed: of the random signs.
    :raises ValueError: if there are no inputs, or the network makes NaN of them.
    """
    copy = copy_of(model)
    pairs = kernel_variables(copy)
    # Layers whose moments of inputs are a matrix are watched; of other kernels squares of gradients do.
    batch_size = rows_at_once(copy, _ROWS)
    num_batches = -(-len(keras.tree.flatten(X)[0]) // batch_size)
    records = {id(layer): _Seen(layer, num_batches) for layer, variable in pairs if is_full(layer, variable)}
    others = [variable for layer, variable in pairs if id(layer) not in records]
    squares = [np.zeros(tuple(variable.shape)) for variable in others]
    for record in records.values():
        record.watch()
    rng = np.random.default_rng(seed)
    num_rows = 0
    for batch, rows in _batches(X, batch_size):
        for record in records.values():
            record.given.clear()
        # v' f(x) with random signs v, of which E (d v' f)^2 is the sum of the squares of d f.
        with tf.GradientTape() as tape:
            outputs = keras.tree.flatten(copy(batch, training=False))
            signs = [rng.choice((-1.0, 1.0), tuple(part.shape)).astype(np.float32) for part in outputs]
            total = tf.add_n(
                [
                    tf.reduce_sum(tf.cast(part, tf.float32) * sign)
                    for part, sign in zip(outputs, signs, strict=True)
                    if part.dtype.is_floating
                ]
            )
        if not np.isfinite(float(total)):
            raise ValueError("the network gives numbers that are not finite on the calibration data.")
        # Gradients g of v' f(x): by unit before its activation, or by weight.
        pre_activations = [layer_record.given for layer_record in records.values()]
        to_pre_activations, to_others = tape.gradient(total, (pre_activations, [variable.value for variable in others]))
        for record, gradients in zip(records.values(), to_pre_activations, strict=True):
            for gradient in (part for part in gradients if part is not None):
                flat = np.asarray(gradient, np.float64).reshape(-1, len(record.felt))
                record.felt += np.sum(np.square(flat), axis=0)
        for square, gradient in zip(squares, to_others, strict=True):
            if gradient is not None:
                square += np.square(np.asarray(tf.convert_to_tensor(gradient), np.float64))
        num_rows += rows
    # E a a' and E g_j^2 are the factors (Martens and Grosse, 2015); else a diagonal.
    queue = iter(squares)
    return [
        _full(records[id(layer)], num_rows) if id(layer) in records else _diagonal(next(queue) / num_rows)
        for layer, _ in pairs
    ]


def curvature_of_posterior(variances: Sequence[NDArray[np.floating]]) -> list[Curvature]:
    """Of weights with a Gaussian posterior, which lose (w - q)^2 / 2 V nats of its log density when they become q.

    :param variances: V of each kernel, in its shape; above 0.
    """
    curvatures = []
    for variance in variances:
        # Weights are independent under q: none makes good for another, and each has its own precision.
        precisions = 1 / np.maximum(np.asarray(variance, np.float64).reshape(-1, variance.shape[-1]), _LEAST_VARIANCE)
        curvatures.append(Curvature(np.ones(len(precisions)), precisions, np.arange(len(precisions))))
    return curvatures


def is_full(layer: keras.Layer, variable: keras.Variable) -> bool:
    """Whether the moments of the inputs of a layer are looked at as a matrix."""
    # What a unit sees has to be a row of inputs, and the matrix to fit into memory.
    is_plain = type(layer) in _FULL and getattr(layer, "groups", 1) == 1
    is_last = getattr(layer, "data_format", None) in (None, "channels_last")
    return is_plain and is_last and int(np.prod(variable.shape[:-1])) <= _MOST_INPUTS


def moments_of(
    layer: keras.Layer, given: tf.Tensor, wanted: tf.Tensor, weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Moments of the inputs x' that a layer is given, [K, K], and with what it gives of others, E x' x'' W, [K, N].

    :param given: x' of all rows, as the layer takes them.
    :param wanted: x'', of the same shape.
    :param weights: W, [K, N].
    """
    # Batch by batch, at the same places of both; with few units by their outputs.
    num_inputs = len(weights)
    moments = np.zeros((num_inputs, num_inputs))
    count = 0
    W = weights.astype(np.float32)
    is_narrow = 2 * W.shape[1] < W.shape[0]  # outputs of few units are the shorter way to E x' x'' W
    products = np.zeros((num_inputs, W.shape[1] if is_narrow else num_inputs))
    for start in range(0, len(given), _ROWS):
        batches = (part[start : start + _ROWS] for part in (given, wanted))
        given_rows, wanted_rows = _rows(layer, -(-len(given) // _ROWS), start, *batches)
        moments += given_rows.T @ given_rows
        products += given_rows.T @ (wanted_rows @ W if is_narrow else wanted_rows)
        count += len(given_rows)
    products = products if is_narrow else products @ weights
    moments /= count
    return moments, products / count


def _rows(layer: keras.Layer, num_batches: int, seed: int, *batches: tf.Tensor) -> list[NDArray[np.float32]]:
    """What units see of batches of the same shape, [places, K], at the same places.

    Places of images are too many to use all of them: a random part, some tens for each input of a unit in all batches
    together.
    """
    images = [np.asarray(tf.cast(batch, tf.float32)) for batch in batches]
    if isinstance(layer, keras.layers.Dense):
        rows = [each.reshape(-1, each.shape[-1]) for each in images]
        most = _PLACES
    else:
        rows = [_patches(layer, each) for each in images]
        num_inputs = int(np.prod(layer.kernel.shape[:-1]))
        most = min(_PLACES, -(-max(_LEAST_ROWS, _ROWS_OF_INPUT * num_inputs) // num_batches))
    places = rows[0].shape[: rows[0].ndim - (1 if isinstance(layer, keras.layers.Dense) else 3)]
    chosen = np.arange(math.prod(places))
    if len(chosen) > most:
        chosen = np.random.default_rng(seed).choice(len(chosen), most, replace=False)
    return [each[np.unravel_index(chosen, places)].reshape(len(chosen), -1) for each in rows]


def _full(seen: _Seen, num_rows: int) -> Curvature:
    if seen.moments is None:
        raise ValueError(f"layer {seen.layer.name!r} is not used on the calibration data.")
    moments = seen.moments.astype(np.float64) / seen.count
    seen.moments = None  # of all layers together they are the most of what is kept
    return Curvature.of(moments, seen.felt / num_rows)


def _kept_type(num_inputs: int) -> type[np.floating]:
    """Of matrices of a layer that wait for those of others: in ResNet-50 they would be 1 GB of float64."""
    return np.float64 if num_inputs <= _MOST_DOUBLE else np.float32


def _diagonal(squares: NDArray[np.float64]) -> Curvature:
    """One number for each input and each unit, whose products are as the mean squares on average."""
    # Means of rows times means of columns, over the mean of all.
    matrix = squares.reshape(-1, squares.shape[-1])
    mean = float(matrix.mean())
    if mean == 0:
        return Curvature.of(np.ones(len(matrix)), np.full(matrix.shape[1], 1e-12))
    return Curvature.of(matrix.mean(axis=1) / mean, matrix.mean(axis=0))


def _batches(X: ArrayLike, size: int) -> Iterator[tuple[Any, int]]:
    parts = [np.asarray(part) for part in keras.tree.flatten(X)]
    if not parts or not len(parts[0]):
        raise ValueError("calibration must have inputs, got none.")
    for start in range(0, len(parts[0]), size):
        rows = [part[start : start + size] for part in parts]
        yield keras.tree.pack_sequence_as(X, rows) if isinstance(X, list | tuple | dict) else rows[0], len(rows[0])


def _patches(layer: keras.Layer, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
    """What each unit of a convolution sees at each place, in the order of the kernel: a view of few copies.

    :return: [n, places in each axis, size of the kernel in each axis, inputs]; a sequence is an image of height 1.
    """
    images = inputs[:, None] if inputs.ndim == 3 else inputs
    first = (1,) if inputs.ndim == 3 else ()
    size, strides, rates = ((*first, *setting) for setting in (layer.kernel_size, layer.strides, layer.dilation_rate))
    windows = [rate * (k - 1) + 1 for k, rate in zip(size, rates, strict=True)]
    # Zeros beside the image as Keras puts them: before the first step only, or on both sides.
    before = [0, 0]
    after = [0, 0]
    if layer.padding == "causal":
        before[1] = windows[1] - 1
    elif layer.padding == "same":
        for axis, (window, stride) in enumerate(zip(windows, strides, strict=True)):
            length = images.shape[axis + 1]
            total = max(0, (-(-length // stride) - 1) * stride + window - length)
            before[axis] = total // 2
            after[axis] = total - total // 2
    padded = np.pad(images, [(0, 0), *zip(before, after, strict=True), (0, 0)])
    # All windows, every stride-th of them, and within a window every rate-th place.
    rows = np.lib.stride_tricks.sliding_window_view(padded, windows[0], axis=1)
    seen = np.lib.stride_tricks.sliding_window_view(rows, windows[1], axis=2)
    by_place = seen[:, :: strides[0], :: strides[1], :, :: rates[0], :: rates[1]]
    return by_place.transpose(0, 1, 2, 4, 5, 3)
