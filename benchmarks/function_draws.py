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
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from absl import app, flags

import gpflow_deep
from gpflow_deep_base.files import write_json
from gpflow_deep_runs.data import views
from gpflow_deep_runs.run.devices import apply_threads
from gpflow_deep_runs.run.folder import provenance

SIZES = (1000, 3000, 10_000)


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Define this script's flags."""
    fv = flag_values
    flags.DEFINE_string("data_dir", None, "Folder with the files of the known data sets.", flag_values=fv)
    flags.DEFINE_list("datasets", ["boston", "kin8nm"], "Data sets with one target.", flag_values=fv)
    flags.DEFINE_list("layers", ["1", "2", "3"], "Numbers of layers.", flag_values=fv)
    flags.DEFINE_integer("inducing", 100, "Inducing inputs of every layer.", 1, flag_values=fv)
    flags.DEFINE_integer("num_steps", 500, "Steps of training.", 1, flag_values=fv)
    flags.DEFINE_integer("rows", 50, "Test rows that are compared.", 1, flag_values=fv)
    flags.DEFINE_integer("draws", 1000, "Functions that are compared.", 10, flag_values=fv)
    flags.DEFINE_integer("repetitions", 3, "Repetitions of what is timed.", 1, flag_values=fv)
    flags.DEFINE_integer("threads", 0, "CPU threads; 0 lets TensorFlow choose.", 0, flag_values=fv)
    flags.DEFINE_string("output", None, "Write the results to this JSON file.", flag_values=fv)


def trained(X: np.ndarray, Y: np.ndarray, num_layers: int, FLAGS: Any) -> gpflow_deep.DeepGP:
    """A deep GP after some steps on standardised rows."""
    model = gpflow_deep.paper2017(X, Y, num_layers, num_inducing=FLAGS.inducing)
    step = gpflow_deep.make_train_step(model, tf.keras.optimizers.Adam(0.02))
    rng = np.random.default_rng(0)
    for t in range(FLAGS.num_steps):
        rows = rng.integers(len(X), size=min(300, len(X)))
        step((tf.constant(X[rows]), tf.constant(Y[rows])), tf.constant([0, t]))
    return model


def agreement(model: gpflow_deep.DeepGP, X: np.ndarray, num_draws: int) -> dict[str, float]:
    """Differences of means and variances in standard errors of the draws."""
    values = model.sample_functions(num_draws, seed=1)(X).numpy()[..., 0]  # [S, N]
    mean, var = (part.numpy()[:, 0] for part in model.predict_f(X, num_samples=8192))
    found = {}
    for name, draws, expected in (("mean", values, mean), ("variance", np.square(values - mean), var)):
        z = (draws.mean(axis=0) - expected) / (draws.std(axis=0, ddof=1) / np.sqrt(num_draws))
        found[f"{name}_z"] = float(np.sqrt(np.mean(np.square(z))))
        found[f"{name}_within"] = 100 * float(np.mean(np.abs(z) < 3))
    return found


def seconds(function: Callable[[], Any], repetitions: int) -> float:
    """CPU seconds of a call, the least of some; the first is not counted."""
    function()
    times = []
    for _ in range(repetitions):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def costs(model: gpflow_deep.DeepGP, num_inputs: int, repetitions: int, rng: np.random.Generator) -> dict[str, float]:
    """CPU seconds to draw 5 functions, to evaluate them, and to draw them at given rows."""
    drawn, found = model.sample_functions(5), {"draw": seconds(lambda: model.sample_functions(5), repetitions)}
    rows = [tf.constant(rng.standard_normal((size, num_inputs))) for size in SIZES]
    for size, X in zip(SIZES, rows, strict=True):
        found[f"values_{size}"] = seconds(functools.partial(drawn, X), repetitions)
    found["joint_1000"] = seconds(lambda: model.predict_f_samples(rows[0], 5), repetitions)
    return found


def main(argv: Sequence[str]) -> None:
    FLAGS = flags.FLAGS
    if len(argv) > 1:
        raise app.UsageError(f"no arguments besides flags, got {argv[1:]}")
    apply_threads(FLAGS.threads)
    start, rows, rng = time.monotonic(), [], np.random.default_rng(0)
    for dataset in FLAGS.datasets:
        data = views.load(views.Source(dataset=dataset, data_dir=FLAGS.data_dir), "supervised", split=0)
        units = gpflow_deep.Units.fit(data.train.X, data.train.Y, "gaussian")
        X, _ = units.transform(data.test.X[: FLAGS.rows], data.test.Y[: FLAGS.rows])
        for num_layers in map(int, FLAGS.layers):
            model = trained(*units.transform(data.train.X, data.train.Y), num_layers, FLAGS)
            row: dict[str, Any] = {"dataset": dataset, "layers": num_layers, "inputs": X.shape[1]}
            row |= agreement(model, X, FLAGS.draws)
            row |= costs(model, X.shape[1], FLAGS.repetitions, rng)
            rows.append(row)
            print(row, flush=True)
    if FLAGS.output:
        record = provenance("UCI", seconds=time.monotonic() - start, cpus=os.cpu_count())
        names = ("datasets", "layers", "inducing", "num_steps", "rows", "draws", "repetitions", "threads")
        settings = {name: FLAGS[name].value for name in names}
        write_json(FLAGS.output, {"flags": settings, "metrics": rows, "provenance": record})
        print(f"wrote {FLAGS.output}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
