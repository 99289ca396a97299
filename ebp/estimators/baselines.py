"""What the paper compares with in Table 1: backpropagation, its networks with clipped weights, and AROW.

Each has a parameter to be tuned, a learning rate or AROW's r, and `tuned_errors` does it in the same way for all: a
part of the training data is set aside, the value with the smallest error there is chosen, and a new learner with it is
trained on all training data.

Sign neurons do not see the length of an input (biases apart). These learners do, and lose by it: `tuned_rival` gives
them rows of `equal_lengths`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse
import sklearn.preprocessing
import tensorflow as tf

from gpflow_deep_base.seeds import Seed, as_seed

from ..network.backpropagation import Backpropagation
from ..network.inputs import Matrix, check_inputs
from ..network.training import epoch_order

__all__ = [
    "AROW",
    "LEARNING_RATES",
    "RIVALS",
    "R_VALUES",
    "Tuned",
    "equal_lengths",
    "error_percent",
    "mean_length",
    "tuned_errors",
    "tuned_rival",
]

RIVALS = {
    "bp_ce": "BP, cross-entropy",
    "bp_mse": "BP, squared error",
    "bp_clipped": "BP, clipped to signs",
    "arow": "AROW",
}
"""What `tuned_rival` trains: name -> title."""

LEARNING_RATES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""Grid for backpropagation: six steps of about a factor of 3."""

R_VALUES = (0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0)
"""Grid for AROW's regularisation."""


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


def tuned_rival(
    name: str,
    layer_sizes: Sequence[int],
    train: tuple[Matrix, np.ndarray],
    test: tuple[Matrix, np.ndarray],
    *,
    epochs: int,
    batch_size: int = 10,
    init_seed: Seed = 0,
    seed: int = 0,
) -> Tuned:
    """Tune one of `RIVALS` on a part of the training rows, train it on all of them, and test it after each epoch.

    All rows are scaled to one length, the root of the mean square of those of the training rows.

    :param layer_sizes: inputs, hidden layers (which arow has none of), outputs.
    :param train: X [N, D], dense or sparse, and Y [N, C] of -1 and +1.
    :param test: likewise.
    :param batch_size: of backpropagation; arow takes single examples.
    :param init_seed: of the weights at the start.
    :param seed: of the order of the rows and of those set aside.
    :raises ValueError: for an unknown name; others as for `tuned_errors`.
    """
    if name not in RIVALS:
        raise ValueError(f"a rival must be one of {', '.join(RIVALS)}, got {name!r}.")
    # Rows of one length, as sign neurons do not see lengths, either.
    length = mean_length(train[0])

    def make(value: float, X: Matrix) -> AROW | Backpropagation:
        if name == "arow":
            return AROW(layer_sizes[0], layer_sizes[-1], value)
        return Backpropagation(
            layer_sizes,
            value,
            X,
            loss="squared" if name == "bp_mse" else "cross_entropy",
            batch_size=batch_size,
            clipped=name == "bp_clipped",
            seed=init_seed,
        )

    return tuned_errors(
        make,
        R_VALUES if name == "arow" else LEARNING_RATES,
        (equal_lengths(train[0], length), train[1]),
        (equal_lengths(test[0], length), test[1]),
        epochs=epochs,
        seed=seed,
    )


def tuned_errors(
    make: Callable[[float, Matrix], AROW | Backpropagation],
    grid: Sequence[float],
    train: tuple[Matrix, np.ndarray],
    test: tuple[Matrix, np.ndarray],
    *,
    epochs: int,
    seed: int,
    valid_fraction: float = 0.125,
) -> Tuned:
    """Choose the value with the smallest validation error, then train with it on all training data.

    :param make: (value, X) -> an untrained learner for the training inputs X.
    :param grid: values to try, in order. Of equally good ones the middle one is taken.
    :param train: X [N, D], dense or sparse, and Y [N, C] of -1 and +1.
    :param test: likewise; no choice depends on it.
    :param valid_fraction: part of the training rows, drawn by `seed`, to set aside for the choice.
    :raises ValueError: if a part would be empty.
    """
    X, Y = train
    num_valid = round(valid_fraction * X.shape[0])
    if not 0 < num_valid < X.shape[0]:
        raise ValueError(
            f"tuning needs training and validation rows, got a fraction of {valid_fraction} of {X.shape[0]} rows."
        )
    # Rows that are set aside, by an order that no pass has.
    order = epoch_order(as_seed(seed), 2**31 - 1, X.shape[0])
    valid = np.sort(order[:num_valid])
    rest = np.sort(order[num_valid:])

    def errors(value: float, part: tuple[Matrix, np.ndarray], other: tuple[Matrix, np.ndarray]) -> tuple[float, ...]:
        learner = make(value, part[0])
        epoch_errors = list[float]()
        for epoch in range(epochs):
            learner.fit_epoch(*part, seed=seed, epoch=epoch)
            epoch_errors.append(error_percent(learner.scores(other[0]), other[1]))
        return tuple(epoch_errors)

    # The error of each value on these rows, after the last epoch.
    valid_errors = tuple(errors(value, (X[rest], Y[rest]), (X[valid], Y[valid]))[-1] for value in grid)
    # The middle one of equally good values; with it, a new learner of all training rows.
    best = np.flatnonzero(np.equal(valid_errors, min(valid_errors)))
    chosen_index = int(best[(len(best) - 1) // 2])
    is_at_edge = len(grid) > 1 and chosen_index in (0, len(grid) - 1)
    return Tuned(float(grid[chosen_index]), is_at_edge, valid_errors, errors(grid[chosen_index], train, test))


def mean_length(X: Matrix) -> float:
    """Root of the mean squared length of the rows of `X` [N, D], dense or sparse."""
    square = X.multiply(X) if scipy.sparse.issparse(X) else np.square(X, dtype=np.float64)
    return float(np.sqrt(np.mean(np.asarray(square.sum(axis=1)).reshape(-1))))


def equal_lengths(X: Matrix, length: float) -> Matrix:
    """`X` [N, D], dense or sparse, with each row scaled to the Euclidean length `length`; rows of zeros stay."""
    return length * sklearn.preprocessing.normalize(X)


def error_percent(scores: np.ndarray, Y: np.ndarray) -> float:
    """Percentage of wrong rows: by the sign for one output (0 counts as +1), else by the largest score.

    :param scores: [N, C]; NaN, of a learner that diverged, counts as wrong.
    :param Y: [N, C], -1 and +1, with one +1 in a row if C > 1.
    """
    if Y.shape[1] == 1:
        is_right = np.where(scores[:, 0] >= 0, 1, -1) == Y[:, 0]
    else:
        is_right = np.argmax(scores, axis=1) == np.argmax(Y, axis=1)
    return 100.0 * (1.0 - float(np.mean(is_right & np.all(np.isfinite(scores), axis=1))))


class AROW:
    """Adaptive regularisation of weight vectors (Crammer, Kulesza and Dredze, 2013) with diagonal covariance.

    A linear classifier with a bias and a Gaussian N(mu, diag(sigma)) over its weights, N(0, 1) at the start. For each
    example with y mu'x < 1:

        beta = 1 / (x' diag(sigma) x + r),   mu += max(0, 1 - y mu'x) beta sigma x y,   sigma -= beta (sigma x)^2.

    With C > 1 outputs each is one class against the others.

    :param num_inputs: columns of the inputs, D.
    :param num_outputs: columns of the outputs, C.
    :param r: regularisation, positive.
    :ivar mu: [D + 1, C], the bias last.
    :ivar sigma: likewise.
    :raises ValueError: if `r` is not positive.
    """

    def __init__(self, num_inputs: int, num_outputs: int, r: float) -> None:
        if not r > 0:
            raise ValueError(f"AROW's r must be positive, got {r}.")
        self.r = r
        shape = (num_inputs + 1, num_outputs)
        self.mu = np.zeros(shape)
        self.sigma = np.ones(shape)

    def fit_epoch(self, X: Matrix, Y: np.ndarray, *, seed: Seed, epoch: int) -> None:
        """One pass, example by example."""
        X = check_inputs(X, len(self.mu) - 1, tf.float64)
        is_sparse = scipy.sparse.issparse(X)
        all_columns = np.arange(len(self.mu))
        for row in epoch_order(seed, epoch, X.shape[0]):
            # The inputs that are not 0, and a 1 for the bias.
            if is_sparse:
                entries = slice(X.indptr[row], X.indptr[row + 1])
                columns = np.append(X.indices[entries], all_columns[-1])
                x = np.append(X.data[entries], 1.0)
            else:
                columns = all_columns
                x = np.append(X[row], 1.0)
            # [C], [n, C], [n, C]
            y = Y[row]
            mu = self.mu[columns]
            sigma = self.sigma[columns]
            loss = np.maximum(0.0, 1.0 - y * (x @ mu))  # [C]
            # Outputs with a margin of less than 1 are updated; beta is 0 for the others.
            if np.any(loss > 0):
                beta = (loss > 0) / (np.square(x) @ sigma + self.r)
                sigma_x = sigma * x[:, None]
                self.mu[columns] = mu + loss * beta * y * sigma_x
                self.sigma[columns] = sigma - beta * np.square(sigma_x)

    def scores(self, X: Matrix) -> np.ndarray:
        """mu'x, [N, C]."""
        X = check_inputs(X, len(self.mu) - 1, tf.float64)
        return np.asarray(X @ self.mu[:-1]) + self.mu[-1]
