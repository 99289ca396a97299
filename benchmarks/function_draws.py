#!/usr/bin/env python3
"""Do drawn functions have the distribution of the deep GP's predictions, and what do they cost?

    function_draws.py --data_dir=DATA --threads=1 --output=functions.json

A deep GP is trained shortly on a data set (M = --inducing, Adam 0.02, --num_steps minibatches of 300) for each number
of --layers. --draws functions (`DeepGP.sample_functions`) at --rows test rows are compared with the mixture of 8,192
components (`predict_f`): for means and variances, the root mean square over the rows of the difference in standard
errors of the draws, which is 1 if the two agree, and the share of rows within three standard errors, of which 99.7 %
are expected. Then 5 functions are drawn and evaluated at 1,000 to 10,000 random rows, and for 1,000 rows drawn jointly
by `predict_f_samples`: CPU seconds, the least of --repetitions.
"""

import functools
from collections.abc import Callable

import bench
import numpy as np
import tensorflow as tf
from absl import flags

import gpflow_deep

SIZES = (1000, 3000, 10_000)


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_string("data_dir", None, "Folder with the files of the known data sets.", flag_values=fv)
    flags.DEFINE_list("datasets", ["boston", "kin8nm"], "Data sets with one target.", flag_values=fv)
    flags.DEFINE_list("layers", ["1", "2", "3"], "Numbers of layers.", flag_values=fv)
    flags.DEFINE_integer("inducing", 100, "Inducing inputs of every layer.", 1, flag_values=fv)
    flags.DEFINE_integer("num_steps", 500, "Steps of training.", 1, flag_values=fv)
    flags.DEFINE_integer("rows", 50, "Test rows that are compared.", 1, flag_values=fv)
    flags.DEFINE_integer("draws", 1000, "Functions that are compared.", 10, flag_values=fv)
    flags.DEFINE_integer("repetitions", 3, "Repetitions of what is timed.", 1, flag_values=fv)
    bench.define_common(fv)


def trained_deep_gp(
    X: np.ndarray, Y: np.ndarray, num_layers: int, num_inducing: int, num_steps: int
) -> gpflow_deep.DeepGP:
    """A deep GP after some steps of Adam 0.02 on minibatches of 300 standardised rows."""
    # The model and the optimiser of the 2017 paper.
    model = gpflow_deep.paper2017(X, Y, num_layers, num_inducing=num_inducing)
    step = gpflow_deep.make_train_step(model, tf.keras.optimizers.Adam(0.02))
    rng = np.random.default_rng(0)
    # Minibatches of rows drawn with replacement.
    for t in range(num_steps):
        rows = rng.integers(len(X), size=min(300, len(X)))
        step((tf.constant(X[rows]), tf.constant(Y[rows])), tf.constant([0, t]))
    return model


def agreement(model: gpflow_deep.DeepGP, X: np.ndarray, num_draws: int) -> dict[str, float]:
    """Differences of means and variances in standard errors of the draws."""
    # Draws of functions at some rows, against moments by many samples of the layers.
    values = model.sample_functions(num_draws, seed=1)(X).numpy()[..., 0]  # [S, N]
    mean, var = (part.numpy()[:, 0] for part in model.predict_f(X, num_samples=8192))
    differences = {}
    for name, draws, expected in (("mean", values, mean), ("variance", np.square(values - mean), var)):
        z = (draws.mean(axis=0) - expected) / (draws.std(axis=0, ddof=1) / np.sqrt(num_draws))
        differences[f"{name}_z"] = float(np.sqrt(np.mean(np.square(z))))
        differences[f"{name}_within"] = 100 * float(np.mean(np.abs(z) < 3))
    return differences


def seconds(function: Callable[[], object], repetitions: int) -> float:
    """CPU seconds of a call, the least of some; the first is not counted."""
    return float(bench.time_in_turn({"": lambda _: function()}, repetitions)[""].cpu.min())


def costs(model: gpflow_deep.DeepGP, num_inputs: int, repetitions: int, rng: np.random.Generator) -> dict[str, float]:
    """CPU seconds to draw 5 functions, to evaluate them, and to draw them at given rows."""
    # Drawn once, evaluated at more and more rows; then drawn jointly at given rows.
    drawn = model.sample_functions(5)
    costs_of = {"draw": seconds(lambda: model.sample_functions(5), repetitions)}
    rows = [tf.constant(rng.standard_normal((size, num_inputs))) for size in SIZES]
    for size, X in zip(SIZES, rows, strict=True):
        costs_of[f"values_{size}"] = seconds(functools.partial(drawn, X), repetitions)
    costs_of["joint_1000"] = seconds(lambda: model.predict_f_samples(rows[0], 5), repetitions)
    return costs_of


def main(FLAGS: flags.FlagValues) -> None:
    rows = list[bench.Row]()
    rng = np.random.default_rng(0)
    for dataset in FLAGS.datasets:
        data = bench.standardised(dataset, FLAGS.data_dir)
        X = data.X_test[: FLAGS.rows]
        for num_layers in map(int, FLAGS.layers):
            model = trained_deep_gp(data.X, data.Y, num_layers, FLAGS.inducing, FLAGS.num_steps)
            row: bench.Row = {"dataset": dataset, "layers": num_layers, "inputs": X.shape[1]}
            row |= agreement(model, X, FLAGS.draws)
            row |= costs(model, X.shape[1], FLAGS.repetitions, rng)
            rows.append(row)
            print(row, flush=True)
    bench.write({"metrics": rows}, "UCI")


if __name__ == "__main__":
    bench.run(define_flags, main)
