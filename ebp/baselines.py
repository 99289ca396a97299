"""What the paper compares with in Table 1: backpropagation, its networks with clipped weights, and AROW.

Each has a parameter to be tuned, a learning rate or AROW's r, and `tuned_errors` does it in the same way for all: a
part of the training data is set aside, the value with the smallest error there is chosen, and a new learner with it is
trained on all training data. The learners of a grid of values are trained side by side, as a `Bank`.

Backpropagation trains f = u_L, u_l = (W_l tanh(u_(l-1)) + b_l) / sqrt(K), by stochastic gradient descent with a
constant learning rate, on the layers, biases, batches and epochs of expectation backpropagation. In the first layer K
is the mean squared length of an input with its 1 for the bias, so that one grid of rates suits all codings.

Sign neurons do not see the length of an input (biases apart). These learners do, and lose by it: give them rows of
`equal_lengths`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse
import sklearn.preprocessing
import tensorflow as tf

from .network import Matrix, Seed, as_seed, check_inputs
from .training import epoch_order

__all__ = [
    "AROW",
    "LEARNING_RATES",
    "R_VALUES",
    "Backpropagation",
    "Bank",
    "Tuned",
    "equal_lengths",
    "error_percent",
    "tuned_errors",
]

LEARNING_RATES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""Grid for backpropagation: six steps of about a factor of 3."""

R_VALUES = (0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0)
"""Grid for AROW's regularisation."""

_FIRST_START = 0.1
_LOSSES = ("cross_entropy", "squared")


class Bank(Protocol):
    """R learners that differ in one value and are trained side by side."""

    def fit_epoch(self, X: Matrix, Y: np.ndarray, *, seed: Seed, epoch: int) -> None:
        """One pass over X [N, D] and Y [N, C], -1 and +1, in an order that is a function of (seed, epoch)."""
        ...

    def scores(self, X: Matrix) -> np.ndarray:
        """Outputs of all learners, [R, N, C]."""
        ...


class Tuned(NamedTuple):
    """What `tuned_errors` found.

    :ivar value: the chosen value.
    :ivar is_at_edge: whether it is the first or last one of its grid, so that a wider grid might do better.
    :ivar valid_errors: error in percent of each value of the grid on the validation part after the last epoch, [R].
    :ivar test_errors: error in percent on the test data after each epoch of the learner with that value, [epochs].
    """

    value: float
    is_at_edge: bool
    valid_errors: tuple[float, ...]
    test_errors: tuple[float, ...]


def tuned_errors(
    make: Callable[[Sequence[float], Any], Bank],
    grid: Sequence[float],
    train: tuple[Matrix, np.ndarray],
    test: tuple[Matrix, np.ndarray],
    *,
    epochs: int,
    seed: int,
    valid_fraction: float = 0.125,
) -> Tuned:
    """Choose the value with the smallest validation error, then train with it on all training data.

    :param make: (values, X) -> an untrained bank with a learner for each value, for the training inputs X.
    :param grid: values to try, in order. Of equally good ones the middle one is taken.
    :param train: X [N, D], dense or sparse, and Y [N, C] of -1 and +1.
    :param test: likewise; no choice depends on it.
    :param valid_fraction: part of the training rows, drawn by `seed`, to set aside for the choice.
    :raises ValueError: if a part would be empty.
    """
    X, Y = train
    num_data = X.shape[0]
    num_valid = round(valid_fraction * num_data)
    if not 0 < num_valid < num_data:
        raise ValueError(
            f"tuning needs training and validation rows, got a fraction of {valid_fraction} of {num_data} rows."
        )
    order = epoch_order(as_seed(seed), 2**31 - 1, num_data)
    valid, rest = np.sort(order[:num_valid]), np.sort(order[num_valid:])
    bank = make(grid, X[rest])
    for epoch in range(epochs):
        bank.fit_epoch(X[rest], Y[rest], seed=seed, epoch=epoch)
    errors = error_percent(bank.scores(X[valid]), Y[valid])
    best = np.flatnonzero(errors == np.min(errors))
    chosen = int(best[(len(best) - 1) // 2])
    bank = make([grid[chosen]], X)
    test_errors = []
    for epoch in range(epochs):
        bank.fit_epoch(X, Y, seed=seed, epoch=epoch)
        test_errors.append(float(error_percent(bank.scores(test[0]), test[1])[0]))
    is_at_edge = len(grid) > 1 and chosen in (0, len(grid) - 1)
    return Tuned(float(grid[chosen]), is_at_edge, tuple(map(float, errors)), tuple(test_errors))


def equal_lengths(X: Matrix, length: float) -> Matrix:
    """`X` [N, D], dense or sparse, with each row scaled to the Euclidean length `length`; rows of zeros stay."""
    return length * sklearn.preprocessing.normalize(X)


def error_percent(scores: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Percentage of wrong rows, [...]: by the sign for one output (0 counts as +1), else by the largest score.

    :param scores: [..., N, C]; NaN, of a learner that diverged, counts as wrong.
    :param Y: [N, C], -1 and +1, with one +1 in a row if C > 1.
    """
    if Y.shape[1] == 1:
        is_right = np.where(scores[..., 0] >= 0, 1, -1) == Y[:, 0]
    else:
        is_right = np.argmax(scores, axis=-1) == np.argmax(Y, axis=1)
    is_right &= np.all(np.isfinite(scores), axis=-1)
    return 100.0 * (1.0 - np.mean(is_right, axis=-1))


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


class AROW:
    """Adaptive regularisation of weight vectors (Crammer, Kulesza and Dredze, 2013) with diagonal covariance.

    A linear classifier with a bias and a Gaussian N(mu, diag(sigma)) over its weights, N(0, 1) at the start. For each
    example with y mu'x < 1:

        beta = 1 / (x' diag(sigma) x + r),   mu += max(0, 1 - y mu'x) beta sigma x y,   sigma -= beta (sigma x)^2.

    With C > 1 outputs each is one class against the others.

    :param num_inputs: D.
    :param num_outputs: C.
    :param r: regularisation of each learner, positive, [R].
    :raises ValueError: if an `r` is not positive.
    """

    def __init__(self, num_inputs: int, num_outputs: int, r: Sequence[float]) -> None:
        if not len(r) or not np.all(np.asarray(r) > 0):
            raise ValueError(f"AROW's r must be positive, got {list(r)}.")
        self.r = np.asarray(r, np.float64)[:, None]
        shape = (num_inputs + 1, len(r), num_outputs)
        self.mu, self.sigma = np.zeros(shape), np.ones(shape)

    def fit_epoch(self, X: Matrix, Y: np.ndarray, *, seed: Seed, epoch: int) -> None:
        """One pass, example by example."""
        X = check_inputs(X, len(self.mu) - 1, tf.float64)
        is_sparse, bias = scipy.sparse.issparse(X), len(self.mu) - 1
        every = np.arange(len(self.mu))
        for row in epoch_order(seed, epoch, X.shape[0]):
            if is_sparse:
                entries = slice(X.indptr[row], X.indptr[row + 1])
                columns, x = np.append(X.indices[entries], bias), np.append(X.data[entries], 1.0)
            else:
                columns, x = every, np.append(X[row], 1.0)
            y, mu, sigma = Y[row], self.mu[columns], self.sigma[columns]  # [C], [n, R, C], [n, R, C]
            loss = np.maximum(0.0, 1.0 - y * np.tensordot(x, mu, 1))  # [R, C]
            is_active = loss > 0
            if not np.any(is_active):
                continue
            beta = is_active / (np.tensordot(np.square(x), sigma, 1) + self.r)
            sigma_x = sigma * x[:, None, None]
            self.mu[columns] = mu + loss * beta * y * sigma_x
            self.sigma[columns] = sigma - beta * np.square(sigma_x)

    def scores(self, X: Matrix) -> np.ndarray:
        """mu'x, [R, N, C]."""
        X = check_inputs(X, len(self.mu) - 1, tf.float64)
        _, R, C = self.mu.shape
        product = np.asarray(X @ self.mu[:-1].reshape(-1, R * C)).reshape(-1, R, C) + self.mu[-1]
        return product.transpose(1, 0, 2)
