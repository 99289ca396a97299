#!/usr/bin/env python3
"""How long does one Bayes update take beside a step of SGD, on dense and sparse rows, and with more weights?

    ebp_training.py --repetitions=20 --threads=1 --output=ebp.json

Online: one example at a time through 784-120-10 (95,280 weights), with random rows of which 30 % of the entries are not
0. "sgd" is the honest rival: SGD with softmax cross entropy and tanh units, written as the same kind of loop inside one
XLA-compiled function, without any dispatch. "keras fit" is what most people would run: `Model.fit(batch_size=1)`. All
see the same data. Times are of whole calls, `ebp.fit_epoch` with its shuffling included, over the number of examples.
The first call, which compiles, is not timed.

Sparse: 200,000 columns with 150 non-zeros a row, 120 hidden neurons, one output.

Sweep: the online time of binary and real networks against the number of weights, for 1 to 4 times the width and for the
numbers of hidden layers in --layers. "slope" is that of log time against log number of weights, 1 for linear cost:
small networks have the fixed costs of a loop; large ones leave the cache.

Functions are timed in turn within one process, so that all see the same load. Ratios are of minima, of neighbouring
calls (their median), and of CPU times (median), which other programs on the machine disturb less.
"""

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import bench
import numpy as np
import scipy.sparse
import tensorflow as tf
from absl import flags

import ebp

INPUTS, HIDDEN, OUTPUTS = 784, 120, 10
SPARSE_INPUTS, NON_ZEROS = 200_000, 150


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("layers", ["1", "2", "3"], "Numbers of hidden layers of the sweep.", flag_values=fv)
    flags.DEFINE_integer("rows", 2000, "Examples of a timed call; a quarter for slow ones.", 64, flag_values=fv)
    flags.DEFINE_integer("repetitions", 15, "Timed calls of each function, after one other.", 1, flag_values=fv)
    bench.define_common(fv, threads=1)


def number_of_weights(layer_sizes: Sequence[int]) -> int:
    """Weights without biases."""
    return sum(n_in * n_out for n_in, n_out in itertools.pairwise(layer_sizes))


# What is timed.


def dense_data(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows [rows, INPUTS] and labels -1 and +1 [rows, OUTPUTS]."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, INPUTS)) * (rng.random((rows, INPUTS)) < 0.3)
    Y, _ = ebp.encode_labels(np.argmax(X[:, :OUTPUTS], axis=1), np.arange(OUTPUTS))
    return X.astype(np.float32), Y


def sparse_data(rows: int, seed: int = 0) -> tuple[scipy.sparse.csr_matrix, np.ndarray]:
    """Rows [rows, SPARSE_INPUTS] with NON_ZEROS entries of 1, and labels that one column tells."""
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, SPARSE_INPUTS // NON_ZEROS, (rows, NON_ZEROS)) + np.arange(NON_ZEROS) * (
        SPARSE_INPUTS // NON_ZEROS
    )
    indptr = np.arange(0, rows * NON_ZEROS + 1, NON_ZEROS)
    values = np.ones(rows * NON_ZEROS, np.float32)
    X = scipy.sparse.csr_matrix((values, columns.ravel(), indptr), shape=(rows, SPARSE_INPUTS))
    return X, np.where(columns[:, 0] % 2, 1.0, -1.0)


def bayes(
    prior: str, layer_sizes: Sequence[int], X: Any, Y: np.ndarray, batch_size: int = 1
) -> Callable[[int], ebp.EpochStats]:
    """A pass of ours over the rows."""
    network = ebp.EBPNetwork(layer_sizes, prior, head="multiclass" if layer_sizes[-1] > 1 else "binary")
    data = ebp.prepare(network, X, Y)
    return lambda i: ebp.fit_epoch(network, data, batch_size=batch_size, epoch=i, jit_compile=True)


def sgd(X: np.ndarray, Y: np.ndarray, learning_rate: float = 0.01) -> Callable[[int], float]:
    """A pass of SGD with batches of one, as one XLA-compiled loop over weights that are loop variables."""
    rng = np.random.default_rng(0)
    sizes = (INPUTS, HIDDEN, OUTPUTS)
    weights = [
        tf.constant(rng.normal(size=shape) / np.sqrt(shape[0]), tf.float32) for shape in itertools.pairwise(sizes)
    ]
    biases = [tf.zeros([size]) for size in sizes[1:]]
    rows, targets = tf.constant(X), tf.constant((Y + 1) / 2, tf.float32)

    def epoch(order: tf.Tensor, W: list[tf.Tensor], b: list[tf.Tensor]) -> tuple[list[tf.Tensor], tf.Tensor]:
        def body(t: tf.Tensor, W: list[tf.Tensor], b: list[tf.Tensor], total: tf.Tensor) -> tuple[Any, ...]:
            x, y = tf.gather(rows, order[t][None]), tf.gather(targets, order[t][None])
            with tf.GradientTape() as tape:
                tape.watch([W, b])
                hidden = tf.tanh(x @ W[0] + b[0])
                loss = tf.nn.softmax_cross_entropy_with_logits(y, hidden @ W[1] + b[1])[0]
            d_W, d_b = tape.gradient(loss, [W, b])
            W = [value - learning_rate * change for value, change in zip(W, d_W, strict=True)]
            b = [value - learning_rate * change for value, change in zip(b, d_b, strict=True)]
            return t + 1, W, b, total + loss

        start = (tf.constant(0), W, b, tf.constant(0.0))
        _, W, b, total = tf.while_loop(lambda t, *_: t < tf.size(order), body, start)
        return [*W, *b], total

    compiled = tf.function(epoch, autograph=False, jit_compile=True)

    def run(i: int) -> float:
        nonlocal weights, biases
        order = np.random.default_rng([0, i]).permutation(len(X)).astype(np.int32)
        values, total = compiled(tf.constant(order), weights, biases)
        weights, biases = values[:2], values[2:]
        return float(total)

    return run


def keras_fit(X: np.ndarray, Y: np.ndarray) -> Callable[[int], Any]:
    """`Model.fit` of the same network with the same SGD."""
    model = tf.keras.Sequential(
        [tf.keras.Input((INPUTS,)), tf.keras.layers.Dense(HIDDEN, "tanh"), tf.keras.layers.Dense(OUTPUTS)]
    )
    loss = tf.keras.losses.CategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=tf.keras.optimizers.SGD(0.01), loss=loss, jit_compile=True)
    return lambda i: model.fit(X, (Y + 1) / 2, batch_size=1, epochs=1, verbose=0)


# Measurement.


class Times(NamedTuple):
    """Microseconds per example, [repetitions] each."""

    wall: np.ndarray
    cpu: np.ndarray


def per_example(functions: Mapping[str, tuple[Callable[[int], Any], int]], repetitions: int) -> dict[str, Times]:
    """Times of each function; values are the function, called with the number of the repetition, and its examples."""
    found = bench.time_in_turn({name: function for name, (function, _) in functions.items()}, repetitions)
    return {
        name: Times(1e6 * found[name].wall / examples, 1e6 * found[name].cpu / examples)
        for name, (_, examples) in functions.items()
    }


def summary(times: Times, rival: Times) -> dict[str, float]:
    """Minimum and median, and how many times the rival's."""
    return {
        "min_us": float(np.min(times.wall)),
        "median_us": float(np.median(times.wall)),
        "ratio_of_minima": float(np.min(times.wall) / np.min(rival.wall)),
        "median_ratio": float(np.median(times.wall / rival.wall)),
        "median_cpu_ratio": float(np.median(times.cpu / rival.cpu)),
    }


def online(rows: int, repetitions: int) -> dict[str, dict[str, float]]:
    """One example at a time through 784-120-10."""
    X, Y = dense_data(rows)
    few = max(rows // 4, 16)
    sizes = (INPUTS, HIDDEN, OUTPUTS)
    functions: dict[str, tuple[Callable[[int], Any], int]] = {
        "sgd": (sgd(X, Y), rows),
        "real": (bayes("real", sizes, X, Y), rows),
        "binary": (bayes("binary", sizes, X, Y), rows),
        "ternary": (bayes("ternary", sizes, X[:few], Y[:few]), few),
        "keras fit": (keras_fit(X[:few], Y[:few]), few),
    }
    times = per_example(functions, repetitions)
    return {name: summary(values, times["sgd"]) for name, values in times.items()}


def sparse(rows: int, repetitions: int) -> dict[str, dict[str, float]]:
    """200,000 columns, one and ten examples at a time; the ratio is to real weights one at a time."""
    X, y = sparse_data(rows)
    sizes = (SPARSE_INPUTS, HIDDEN, 1)
    functions: dict[str, tuple[Callable[[int], Any], int]] = {
        f"{prior}, batch {batch_size}": (bayes(prior, sizes, X, y, batch_size), rows)
        for batch_size in (1, 10)
        for prior in ("real", "binary")
    }
    times = per_example(functions, repetitions)
    return {name: summary(values, times["real, batch 1"]) for name, values in times.items()}


def sweep(rows: int, repetitions: int, layers: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Time against the number of weights; the ratio is to the smallest network of the same prior."""
    X, Y = dense_data(rows)
    shapes: list[tuple[int, ...]] = [(INPUTS, width, OUTPUTS) for width in (HIDDEN, 2 * HIDDEN, 4 * HIDDEN)]
    shapes += [(INPUTS, *[HIDDEN] * number, OUTPUTS) for number in layers if number > 1]
    results: dict[str, dict[str, Any]] = {}
    for prior in ("real", "binary"):
        functions = {"-".join(map(str, shape)): (bayes(prior, shape, X, Y), rows) for shape in shapes}
        times = per_example(functions, repetitions)
        smallest = next(iter(times.values()))
        for shape, (name, values) in zip(shapes, times.items(), strict=True):
            results[f"{prior} {name}"] = {"weights": number_of_weights(shape), **summary(values, smallest)}
    return results


def slope(results: Mapping[str, Mapping[str, Any]], prior: str) -> float:
    """Slope of log time against log number of weights, by least squares."""
    rows = [row for name, row in results.items() if name.startswith(prior)]
    return float(np.polyfit(np.log([row["weights"] for row in rows]), np.log([row["min_us"] for row in rows]), 1)[0])


def print_rows(title: str, rival: str, results: Mapping[str, Mapping[str, float]]) -> None:
    columns = {
        "": "{name}",
        "min us": "{min_us:.2f}",
        "median us": "{median_us:.2f}",
        f"minimum over {rival}'s": "{ratio_of_minima:.2f}",
        "median ratio": "{median_ratio:.2f}",
        "median CPU ratio": "{median_cpu_ratio:.2f}",
    }
    print(f"\n{title}, microseconds per example")
    bench.print_table([{"name": name, **row} for name, row in results.items()], columns)


def main(FLAGS: flags.FlagValues) -> None:
    metrics: dict[str, Any] = {"online": online(FLAGS.rows, FLAGS.repetitions)}
    print_rows("Online, 784-120-10", "sgd", metrics["online"])
    metrics["sparse"] = sparse(FLAGS.rows, FLAGS.repetitions)
    print_rows("Sparse, 200,000-120-1, 150 non-zeros", "real, batch 1", metrics["sparse"])
    metrics["sweep"] = sweep(FLAGS.rows, FLAGS.repetitions, [int(number) for number in FLAGS.layers])
    print_rows("Sweep, batch 1", "the smallest", metrics["sweep"])
    metrics["slope"] = {prior: slope(metrics["sweep"], prior) for prior in ("real", "binary")}
    print("\nslope of log time against log number of weights:", metrics["slope"])
    print(f"{os.cpu_count()} CPUs, {FLAGS.threads} threads, TensorFlow {tf.__version__}")
    bench.write({"metrics": metrics}, "none: drawn with seed 0")


if __name__ == "__main__":
    bench.run(define_flags, main)
