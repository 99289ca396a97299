#!/usr/bin/env python3
"""How far is Table 1 of the paper (Soudry, Hubara and Meir, 2014) from what our networks and their rivals reach?

    ebp_table1.py --data_dir=DATA --datasets=reuters_i6,ng20_comp_hw,amazon_apparel_books --seeds=10

Networks D-120-1 of real and of binary weights, three passes in batches of 10, on eight contiguous folds with each seed;
backpropagation (its networks also with clipped weights) and AROW with the first one, their rates chosen on an eighth of
each training part. Errors in percent after the last pass and after the best one (that of the smallest mean test error,
as in the paper, so optimistic), with standard errors over seeds (of one seed: over folds), beside what is published.

Sign neurons do not see the length of an input (biases apart). The rivals do, and lose by it: they get rows of equal
lengths.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import bench
import numpy as np
import scipy.sparse
import scipy.special
import sklearn.preprocessing
import tensorflow as tf
from absl import flags
from numpy.typing import NDArray

from ebp import EBPNetwork, InputCoding, encode_labels, errors_percent, fit_epoch, prepare
from ebp.estimators.estimators import error_percent
from ebp.network.coding import Matrix, recommended
from ebp.network.network import check_inputs
from ebp.training.training import epoch_order
from gpflow_deep_base.runtime import quiet
from gpflow_deep_base.seeds import Seed, as_seed, named_seed, numpy_rng

WEIGHTS = ("real", "binary")
HIDDEN = 120
BATCH_SIZE = 10

PUBLISHED: dict[str, dict[str, float]] = {
    "reuters_i6": {"real D": 14.5, "real P": 11.35, "binary D": 21.7, "binary P": 9.95, "arow": 11.72, "bp": 13.3},
    "ng20_comp_hw": {"real D": 5.06, "real P": 4.96, "binary D": 7.54, "binary P": 4.44, "arow": 5.79, "bp": 7.02},
    "amazon_apparel_books": {"real D": 2.14, "real P": 2.09, "binary D": 2.45, "binary P": 2.01, "arow": 2.24},
    "mnist": {"real P": 1.66, "binary P": 2.12},
}
"""Errors in percent from Table 1 of the paper, and for MNIST from Cheng, Soudry, Mao and Lan (2015)."""

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

LOSSES = ("cross_entropy", "squared")

FIRST_START = 0.1
"""Deviation of the weights of the first layer at the start of backpropagation; that of the others is 1."""

Array = NDArray[np.float32]


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_string("data_dir", None, "Folder with the data sets.", flag_values=fv)
    flags.DEFINE_list("datasets", ["reuters_i6"], f"Some of {', '.join(PUBLISHED)}.", flag_values=fv)
    flags.DEFINE_list("methods", ["ebp", *RIVALS], "ebp and rivals.", flag_values=fv)
    flags.DEFINE_integer("seeds", 1, "Seeds of the networks.", 1, flag_values=fv)
    flags.DEFINE_integer("epochs", 3, "Passes.", 1, flag_values=fv)
    flags.DEFINE_integer("max_folds", 8, "The first of the eight folds.", 1, flag_values=fv)
    bench.define_common(fv, threads=1, output="Write each method's numbers to this file, a JSON line each.")


@quiet.without_warnings()  # folds of different sizes are traced more than once
def main(options: flags.FlagValues) -> None:
    lines: list[bench.Row] = []
    # Each data set with its own folds; what is there is kept after each of them.
    for dataset in options.datasets:
        view = "supervised" if dataset == "mnist" else "text"
        data = bench.load(dataset, options.data_dir, view, split=None)
        X, labels = data.parts["all"]
        Y, _ = encode_labels(labels[:, 0])
        folds = data.folds(8)[: options.max_folds]
        # Errors by method, then means and standard errors beside the paper's.
        errors = errors_of(options.methods, dataset, X, Y, folds, seeds=options.seeds, epochs=options.epochs)
        rows = [
            {
                "set": dataset,
                "method": RIVALS.get(method) or f"EBP {method}",
                "paper": paper_of(dataset, method),
                **summary(np.array(of_method)),
            }
            for method, of_method in errors.items()
        ]
        lines += rows
        bench.keep_lines(lines)
        # A table of the set, with what is published in its last column.
        columns = {
            "set": "{set}",
            "": "{method}",
            "last": "{last_percent:.2f}",
            "±": "{last_standard_error:.2f}",
            "best": "{best_percent:.2f}",
            "paper": "{paper:.2f}",
        }
        bench.print_table(rows, columns)
    bench.print_machine()


def paper_of(dataset: str, method: str) -> float | None:
    """What is published for a method; "bp" stands for every backpropagation that is not clipped."""
    return PUBLISHED[dataset].get("bp" if method in ("bp_ce", "bp_mse") else method)


def errors_of(
    methods: Sequence[str],
    dataset: str,
    X: Matrix,
    Y: np.ndarray,
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
    *,
    seeds: int,
    epochs: int,
) -> dict[str, list[list[Sequence[float]]]]:
    """Errors in percent of the test rows [seeds][folds][epochs] by method, as "binary P" or "arow".

    What is learned or chosen in a fold, the coding of inputs among it, is learned from its training rows.
    """
    errors: dict[str, list[list[Sequence[float]]]] = {}
    for seed in range(seeds):
        # Folds have other networks and orders, which the seed and their number say.
        of_seed: dict[str, list[Sequence[float]]] = {}
        for number, (rows, test_rows) in enumerate(folds):
            # Scales of inputs are those of the training rows.
            coding = InputCoding.fit(recommended(dataset, X), X[rows])
            train = coding.transform(X[rows]), Y[rows]
            test = coding.transform(X[test_rows]), Y[test_rows]
            init_seed = named_seed(seed, f"init/{number}")
            order_seed = int(numpy_rng(seed, f"order/{number}").integers(2**31))
            layer_sizes = (X.shape[1], HIDDEN, Y.shape[1])
            for weights in WEIGHTS if "ebp" in methods else ():
                network = EBPNetwork(
                    layer_sizes, weights, head="binary" if Y.shape[1] == 1 else "multiclass", seed=init_seed
                )
                # Errors after each pass, by the mean of the posterior and by its mode.
                prepared = prepare(network, *train)
                of_epochs = []
                for epoch in range(epochs):
                    fit_epoch(network, prepared, batch_size=BATCH_SIZE, seed=order_seed, epoch=epoch)
                    of_epochs.append(errors_percent(network, *test))
                for output in "DP":
                    of_seed.setdefault(f"{weights} {output}", []).append([each[output] for each in of_epochs])
            # Rivals with the first seed alone, as their tuning takes time.
            for name in [name for name in methods if name != "ebp"] if seed == 0 else ():
                tuned = tuned_rival(name, layer_sizes, train, test, epochs=epochs, init_seed=init_seed, seed=order_seed)
                of_seed.setdefault(name, []).append(tuned.test_errors)
        for method, of_folds in of_seed.items():
            errors.setdefault(method, []).append(of_folds)
    return errors


def summary(errors: np.ndarray) -> dict[str, float | None]:
    """Means of errors [seeds, folds, epochs] with their standard errors, over seeds or, of one seed, over folds.

    :return: "last_percent" of the last epoch and "best_percent" of the best one, which is that of the smallest mean
        over folds, for each seed on its own; "last_standard_error" and "best_standard_error", None of a single number.
    """
    best = errors.mean(axis=1).argmin(axis=1)  # [seeds]
    statistics: dict[str, float | None] = {}
    for name, epochs in (("last", np.full(len(errors), errors.shape[2] - 1)), ("best", best)):
        values = np.array([seed[:, epoch] for seed, epoch in zip(errors, epochs, strict=True)])  # [seeds, folds]
        # The sample is of seeds; if there is but one, of folds.
        sample = values.mean(axis=1) if len(values) > 1 else values[0]
        statistics[f"{name}_percent"] = float(sample.mean())
        statistics[f"{name}_standard_error"] = (
            float(sample.std(ddof=1) / np.sqrt(len(sample))) if len(sample) > 1 else None
        )
    return statistics


# The rivals.


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


class Backpropagation:
    """A network of tanh units, on the layers, biases, batches and epochs of expectation backpropagation.

    Trained is f = u_L, u_l = (W_l tanh(u_(l-1)) + b_l) / sqrt(K), by stochastic gradient descent with a constant
    learning rate, in float32. In the first layer K is the mean squared length of an input with its 1 for the bias, so
    that one grid of rates suits all codings. scikit-learn's `MLPClassifier` has neither these scales nor clipped
    weights, and changes every weight of sparse inputs in each step.

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
        if loss not in LOSSES:
            raise ValueError(f"loss must be one of {', '.join(map(repr, LOSSES))}, got {loss!r}.")
        if not learning_rate > 0:
            raise ValueError(f"the learning rate must be positive, got {learning_rate}.")
        self.loss = loss
        self.batch_size = batch_size
        self.clipped = clipped
        self.learning_rate = np.float32(learning_rate)
        # sqrt(K) of each layer; K of the first is an input's mean squared length, with its 1 for the bias.
        square = scipy.sparse.csr_matrix(X).power(2) if scipy.sparse.issparse(X) else np.square(X, dtype=np.float64)
        lengths = [float(square.sum()) / X.shape[0] + 1.0, *(size + 1.0 for size in layer_sizes[1:-1])]
        self._scales = [np.float32(math.sqrt(length)) for length in lengths]
        # Weights start as N(0, 1), smaller in the first layer, and biases as 0.
        self.weights: list[Array] = [
            tf.random.stateless_normal(shape, tf.random.fold_in(as_seed(seed), number)).numpy()
            for number, shape in enumerate(itertools.pairwise(layer_sizes))
        ]
        self.weights[0] *= np.float32(FIRST_START)
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
        # One output of a sign, or a softmax of several.
        if y.shape[1] == 1:
            return -y * scipy.special.expit(-y * f)
        return scipy.special.softmax(f, axis=-1) - 0.5 * (y + 1)


def _compact(x: Any) -> tuple[Array, NDArray[np.intp] | slice]:
    """Rows [B, n] of the columns that occur in them, and the numbers of these columns."""
    if not scipy.sparse.issparse(x):
        return x, slice(None)
    columns, places = np.unique(x.indices, return_inverse=True)
    # Where each entry goes, row by row.
    dense = np.zeros([x.shape[0], len(columns)], np.float32)
    dense[np.repeat(np.arange(x.shape[0]), np.diff(x.indptr)), places] = x.data
    return dense, columns


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
    init_seed: Seed = 0,
    seed: int = 0,
) -> Tuned:
    """Tune one of `RIVALS` on a part of the training rows, train it on all of them, and test it after each epoch.

    All rows are scaled to one length, the root of the mean square of those of the training rows.

    :param layer_sizes: inputs, hidden layers (which arow has none of), outputs.
    :param train: X [N, D], dense or sparse, and Y [N, C] of -1 and +1.
    :param test: likewise.
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
            batch_size=BATCH_SIZE,
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
    square = scipy.sparse.csr_matrix(X).power(2) if scipy.sparse.issparse(X) else np.square(X, dtype=np.float64)
    return float(np.sqrt(np.mean(np.asarray(square.sum(axis=1)).reshape(-1))))


def equal_lengths(X: Matrix, length: float) -> Matrix:
    """`X` [N, D], dense or sparse, with each row scaled to the Euclidean length `length`; rows of zeros stay."""
    return length * sklearn.preprocessing.normalize(X)


if __name__ == "__main__":
    bench.run(define_flags, main, required=["data_dir"])
