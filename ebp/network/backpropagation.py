"""Backpropagation on the layers, biases, batches and epochs of expectation backpropagation: a rival of the paper.

Trained is f = u_L, u_l = (W_l tanh(u_(l-1)) + b_l) / sqrt(K), by stochastic gradient descent with a constant learning
rate, in float32. In the first layer K is the mean squared length of an input with its 1 for the bias, so that one grid
of rates suits all codings. scikit-learn's `MLPClassifier` has neither these scales nor clipped weights, and changes
every weight of sparse inputs in each step.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import scipy.sparse
import scipy.special
import tensorflow as tf
from numpy.typing import NDArray

from gpflow_deep_base.seeds import Seed, as_seed

from .inputs import Matrix, check_inputs
from .training import epoch_order

__all__ = ["Backpropagation"]

Array = NDArray[np.float32]

_FIRST_START = 0.1
_LOSSES = ("cross_entropy", "squared")


class Backpropagation:
    """A network of tanh units.

    :param layer_sizes: inputs, hidden layers, outputs.
    :param X: training inputs, for the scale of the first layer.
    :param loss: "cross_entropy": log(1 + exp(-y f)), or of a softmax for several outputs; "squared": (f - y)^2 / 2.
    :param batch_size: examples of a step, which descends the gradient of their mean loss.
    :param clipped: score by the network whose weights, but not biases, are replaced by their signs.
    :param seed: of the weights at the start: N(0, 1), but N(0, 0.01) in the first layer, which does better on text.
    :ivar weights: [n_(l-1), n_l].
    :ivar biases: [n_l].
    :raises ValueError: for an unknown loss, or a learning rate that is not positive.
    """

    def __init__(
        self,
        layer_sizes: Sequence[int],
        learning_rate: float,
        X: Matrix,
        *,
        loss: str = "cross_entropy",
        batch_size: int = 10,
        clipped: bool = False,
        seed: Seed = 0,
    ) -> None:
        if loss not in _LOSSES:
            raise ValueError(f"loss must be one of {', '.join(map(repr, _LOSSES))}, got {loss!r}.")
        if not learning_rate > 0:
            raise ValueError(f"the learning rate must be positive, got {learning_rate}.")
        self.loss = loss
        self.batch_size = batch_size
        self.clipped = clipped
        self.learning_rate = np.float32(learning_rate)
        # sqrt(K) of each layer; K of the first is an input's mean squared length, with its 1 for the bias.
        square = X.multiply(X) if scipy.sparse.issparse(X) else np.square(X, dtype=np.float64)
        lengths = [float(square.sum()) / X.shape[0] + 1.0, *(size + 1.0 for size in layer_sizes[1:-1])]
        self._scales = [np.float32(math.sqrt(length)) for length in lengths]
        # Weights start as N(0, 1), smaller in the first layer, and biases as 0.
        self.weights: list[Array] = [
            tf.random.stateless_normal(shape, tf.random.fold_in(as_seed(seed), number)).numpy()
            for number, shape in enumerate(itertools.pairwise(layer_sizes))
        ]
        self.weights[0] *= np.float32(_FIRST_START)
        self.biases: list[Array] = [np.zeros(size, np.float32) for size in layer_sizes[1:]]

    def fit_epoch(self, X: Matrix, Y: np.ndarray, *, seed: Seed, epoch: int) -> None:
        """One pass of stochastic gradient descent."""
        X = check_inputs(X, len(self.weights[0]), tf.float32)
        order = epoch_order(seed, epoch, X.shape[0])
        with np.errstate(over="ignore", invalid="ignore"):  # rates that are too large diverge, which is seen by errors
            for start in range(0, len(order), self.batch_size):
                rows = order[start : start + self.batch_size]
                self._step(*_compact(X[rows]), Y[rows].astype(np.float32))

    def scores(self, X: Matrix) -> np.ndarray:
        """Outputs f, [N, C]."""
        X = check_inputs(X, len(self.weights[0]), tf.float32)
        first, *others = [np.sign(W) for W in self.weights] if self.clipped else self.weights
        with np.errstate(over="ignore", invalid="ignore"):
            return self._inputs(np.asarray(X @ first), others)[-1]

    def _inputs(self, products: Array, others: Sequence[Array]) -> list[Array]:
        """u_l of each layer, [B, n_l], from the products of the first layer's inputs and weights, [B, n_1]."""
        u = [(products + self.biases[0]) / self._scales[0]]
        for W, bias, scale in zip(others, self.biases[1:], self._scales[1:], strict=True):
            u.append((np.tanh(u[-1]) @ W + bias) / scale)
        return u

    def _step(self, x: Array, columns: NDArray[np.intp] | slice, y: Array) -> None:
        """Descend the gradient of the mean loss of a batch.

        :param x: inputs of the batch in some columns, [B, n]; the others are 0.
        :param columns: their numbers.
        """
        first, *others = self.weights
        # Forward pass, and the derivative of the mean loss by the outputs.
        u = self._inputs(x @ first[columns], others)
        delta = self._by_output(u[-1], y) / np.float32(len(y))  # d loss / d u_l
        # Down the layers: each descends its gradient, and hands delta on through tanh.
        for layer in reversed(range(len(u))):
            delta = delta / self._scales[layer]
            self.biases[layer] -= self.learning_rate * delta.sum(axis=0)
            if layer:
                v = np.tanh(u[layer - 1])
                W = self.weights[layer]
                below = (1 - v * v) * (delta @ W.T)
                W -= self.learning_rate * (v.T @ delta)
                delta = below
        first[columns] -= x.T @ (self.learning_rate * delta)

    def _by_output(self, f: Array, y: Array) -> Array:
        """d loss / d f of each example, [B, C]."""
        if self.loss == "squared":
            return f - y
        if y.shape[1] == 1:
            return -y * scipy.special.expit(-y * f)
        return scipy.special.softmax(f, axis=-1) - 0.5 * (y + 1)


def _compact(x: Matrix) -> tuple[Array, NDArray[np.intp] | slice]:
    """Rows [B, n] of the columns that occur in them, and the numbers of these columns."""
    if not scipy.sparse.issparse(x):
        return x, slice(None)
    columns, places = np.unique(x.indices, return_inverse=True)
    dense = np.zeros([x.shape[0], len(columns)], np.float32)
    dense[np.repeat(np.arange(x.shape[0]), np.diff(x.indptr)), places] = x.data
    return dense, columns
