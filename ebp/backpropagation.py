"""Backpropagation on the layers, biases, batches and epochs of expectation backpropagation: a rival of the paper.

Trained is f = u_L, u_l = (W_l tanh(u_(l-1)) + b_l) / sqrt(K), by stochastic gradient descent with a constant learning
rate. In the first layer K is the mean squared length of an input with its 1 for the bias, so that one grid of rates
suits all codings. The networks of a grid of rates are trained side by side.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import tensorflow as tf

from .inputs import Matrix, check_inputs
from .seeds import Seed, as_seed
from .tracing import counted_alone
from .training import epoch_order

__all__ = ["Backpropagation"]

_FIRST_START = 0.1
_LOSSES = ("cross_entropy", "squared")


class Backpropagation(tf.Module):
    """R networks with their own learning rates and the same start, trained in one compiled loop.

    :param layer_sizes: inputs, hidden layers, outputs.
    :param learning_rates: [R].
    :param X: training inputs, for the scale of the first layer.
    :param loss: "cross_entropy": log(1 + exp(-y f)), or of a softmax for several outputs; "squared": (f - y)^2 / 2.
    :param batch_size: examples of a step, which descends the gradient of their mean loss.
    :param clipped: score by the networks whose weights, but not biases, are replaced by their signs.
    :param seed: of the weights at the start: N(0, 1), but N(0, 0.01) in the first layer, which does better on text.
    :raises ValueError: for an unknown loss, or learning rates that are not positive.
    """

    def __init__(
        self,
        layer_sizes: Sequence[int],
        learning_rates: Sequence[float],
        X: Matrix,
        *,
        loss: str = "cross_entropy",
        batch_size: int = 10,
        clipped: bool = False,
        seed: Seed = 0,
    ) -> None:
        super().__init__(name="backpropagation")
        if loss not in _LOSSES:
            raise ValueError(f"loss must be one of {', '.join(map(repr, _LOSSES))}, got {loss!r}.")
        if not len(learning_rates) or not np.all(np.asarray(learning_rates) > 0):
            raise ValueError(f"learning rates must be positive, got {list(learning_rates)}.")
        self.layer_sizes, self.loss, self.batch_size, self.clipped = tuple(layer_sizes), loss, batch_size, clipped
        self.learning_rates = tf.constant(learning_rates, tf.float32)
        self._loop = _compiled_loop(self.layer_sizes, len(learning_rates), loss)
        square = X.multiply(X) if scipy.sparse.issparse(X) else np.square(X, dtype=np.float64)
        scales = [float(square.sum()) / X.shape[0] + 1.0, *(size + 1.0 for size in self.layer_sizes[1:-1])]
        self._scales = tuple(tf.constant(math.sqrt(scale), tf.float32) for scale in scales)
        R, (num_inputs, *sizes) = len(learning_rates), self.layer_sizes
        seed = as_seed(seed)
        start = _FIRST_START * tf.random.stateless_normal([num_inputs, sizes[0]], tf.random.fold_in(seed, 0))
        self.first = tf.Variable(tf.tile(start, [1, R]))  # [D, R n_1], so that rows can be read and changed alone
        self.others, self.biases = [], [tf.Variable(tf.zeros([R, 1, size])) for size in sizes]
        for number, shape in enumerate(itertools.pairwise(sizes), start=1):
            start = tf.random.stateless_normal(shape, tf.random.fold_in(seed, number))
            self.others.append(tf.Variable(tf.tile(start[None], [R, 1, 1])))

    def fit_epoch(self, X: Matrix, Y: np.ndarray, *, seed: Seed, epoch: int) -> None:
        """One pass of stochastic gradient descent."""
        X = check_inputs(X, self.layer_sizes[0], tf.float32)
        order = epoch_order(seed, epoch, X.shape[0])
        starts = range(0, len(order), self.batch_size)
        batches = [order[start : start + self.batch_size] for start in starts]
        splits = tf.constant([*starts, len(order)], tf.int32)
        targets = tf.constant(Y[order], tf.float32)
        inputs = _compact_batches(X, batches) if scipy.sparse.issparse(X) else tf.constant(X[order])
        self._loop(self._weights(), self.learning_rates, self._scales, inputs, targets, splits)

    def scores(self, X: Matrix) -> np.ndarray:
        """Outputs f, [R, N, C]."""
        X = check_inputs(X, self.layer_sizes[0], tf.float32)
        clip = tf.sign if self.clipped else tf.identity
        columns = np.unique(X.indices) if scipy.sparse.issparse(X) else np.arange(X.shape[1])
        first, parts = clip(tf.gather(self.first, columns)).numpy(), []
        others = [clip(weights) for weights in self.others]
        for start in range(0, X.shape[0], 1000):
            rows = X[start : start + 1000]
            rows = rows[:, columns] if scipy.sparse.issparse(X) else rows
            products = tf.constant(np.asarray(rows @ first))
            parts.append(_outputs(self.layer_sizes, products, others, self.biases, self._scales).numpy())
        return np.concatenate(parts, axis=1)

    def _weights(self) -> _Weights:
        return _Weights(self.first, tuple(self.others), tuple(self.biases))


class _Weights(NamedTuple):
    """Variables: weights [D, R n_1] of the first layer and [R, n_(l-1), n_l] of the others, biases [R, 1, n_l]."""

    first: Any
    others: tuple[Any, ...]
    biases: tuple[Any, ...]


def _outputs(
    layer_sizes: tuple[int, ...],
    products: tf.Tensor,
    others: Sequence[Any],
    biases: Sequence[Any],
    scales: Sequence[Any],
) -> tf.Tensor:
    """f [R, B, C] from the first layer's products with its weights, [B, R n_1]."""
    by_network = tf.reshape(products, [tf.shape(products)[0], -1, layer_sizes[1]])
    u = (tf.transpose(by_network, [1, 0, 2]) + biases[0]) / scales[0]
    for weights, bias, scale in zip(others, biases[1:], scales[1:], strict=True):
        u = (tf.matmul(tf.tanh(u), weights) + bias) / scale
    return u


def _losses(loss: str, num_outputs: int, f: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Mean loss of each network over the batch, [R]."""
    if loss == "squared":
        each = tf.reduce_sum(0.5 * tf.square(f - y), axis=-1)
    elif num_outputs == 1:
        each = tf.math.softplus(-y * f)[..., 0]
    else:
        each = -tf.reduce_sum(0.5 * (y + 1.0) * tf.nn.log_softmax(f), axis=-1)
    return tf.reduce_mean(each, axis=1)


@functools.lru_cache(maxsize=16)
def _compiled_loop(layer_sizes: tuple[int, ...], num_networks: int, loss: str) -> Callable[..., None]:
    """All steps of an epoch of R networks; X and Y are in its order, and `splits` are the limits of its batches."""

    @counted_alone
    def loop(
        weights: _Weights,
        rates: tf.Tensor,
        scales: tuple[tf.Tensor, ...],
        X: tf.Tensor | _Batches,
        Y: tf.Tensor,
        splits: tf.Tensor,
    ) -> None:
        wide_rates, rates = tf.repeat(rates, layer_sizes[1]), rates[:, None, None]

        def step(t: tf.Tensor) -> tf.Tensor:
            y = Y[splits[t] : splits[t + 1]]
            if isinstance(X, _Batches):
                columns, x = X.batch(t, splits[t + 1] - splits[t])
                first = tf.gather(weights.first, columns)
            else:
                columns, x, first = None, X[splits[t] : splits[t + 1]], tf.convert_to_tensor(weights.first)
            others, biases = ([tf.convert_to_tensor(part) for part in parts] for parts in weights[1:])
            with tf.GradientTape() as tape:
                tape.watch([first, *others, *biases])
                product = tf.matmul(x, first) if columns is None else tf.sparse.sparse_dense_matmul(x, first)
                f = _outputs(layer_sizes, product, others, biases, scales)
                total = tf.reduce_sum(_losses(loss, layer_sizes[-1], f, y))
            d_first, *gradients = tape.gradient(total, [first, *others, *biases])
            if columns is None:
                weights.first.assign_sub(wide_rates * d_first)
            else:
                weights.first.scatter_sub(tf.IndexedSlices(wide_rates * d_first, columns))
            for variable, gradient in zip([*weights.others, *weights.biases], gradients, strict=True):
                variable.assign_sub(rates * gradient)
            return t + 1

        tf.while_loop(lambda t: t < tf.size(splits) - 1, step, [tf.constant(0)], parallel_iterations=1)

    return tf.function(loop, autograph=False, reduce_retracing=True)


class _Batches(NamedTuple):
    """Sparse batches, each without the columns that do not occur in it.

    :ivar columns: numbers of the columns of all batches, one batch after the other; `column_splits` are the limits.
    :ivar where: row and column within the batch of each entry, int64 [entries, 2]; `splits` are the limits.
    :ivar values: of the entries.
    """

    columns: tf.Tensor
    column_splits: tf.Tensor
    where: tf.Tensor
    values: tf.Tensor
    splits: tf.Tensor

    def batch(self, t: tf.Tensor, num_rows: tf.Tensor) -> tuple[tf.Tensor, tf.SparseTensor]:
        """Column numbers, and entries."""
        columns = self.columns[self.column_splits[t] : self.column_splits[t + 1]]
        entries = slice(self.splits[t], self.splits[t + 1])
        shape = tf.cast(tf.stack([num_rows, tf.size(columns)]), tf.int64)
        return columns, tf.SparseTensor(self.where[entries], self.values[entries], shape)


def _compact_batches(X: scipy.sparse.csr_matrix, batches: Sequence[np.ndarray]) -> _Batches:
    columns, where, values = [], [], []
    for rows in batches:
        part = X[rows]
        found, compact = np.unique(part.indices, return_inverse=True)
        row = np.repeat(np.arange(len(rows)), np.diff(part.indptr))
        columns.append(found)
        where.append(np.stack([row, compact.reshape(-1)], axis=1).astype(np.int64))
        values.append(part.data)
    column_splits, splits = (np.cumsum([0, *map(len, parts)]).astype(np.int32) for parts in (columns, values))
    arrays = (np.concatenate(columns), column_splits, np.concatenate(where), np.concatenate(values), splits)
    return _Batches(*map(tf.constant, arrays))
