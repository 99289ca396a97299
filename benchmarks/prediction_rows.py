#!/usr/bin/env python3
"""How long do predictions of many rows take, for several numbers of draws, and beside another commit's?

    git worktree add /tmp/before COMMIT
    prediction_rows.py --base=/tmp/before --base_samples=100 --output=rows.json

`predict_y` of a posterior (cached factors, in float64 and in float32) of a deep GP with M = 100, D = 8 inputs and inner
outputs and one output, under `tf.function`. Milliseconds of CPU time of this process with one thread, so that other
programs disturb little; all are timed in turn. "ratio" is the time of the other commit with --base_samples draws in
float64 over the time of each: of the minima, and the median of neighbouring runs with its quartiles. Without --base it
is this commit's first number of draws.

The precision of each number of draws is another question: see prediction_draws.py.
"""

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from absl import app, flags

import gpflow_deep
from gpflow_deep_base.files import write_json
from gpflow_deep_runs.run.devices import apply_threads
from gpflow_deep_runs.run.folder import provenance

M, D = 100, 8


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Define this script's flags."""
    fv = flag_values
    flags.DEFINE_list("layers", ["2", "3"], "Numbers of layers.", flag_values=fv)
    flags.DEFINE_integer("rows", 10_000, "Rows that are predicted.", 1, flag_values=fv)
    flags.DEFINE_list("samples", ["16", "32", "64", "100"], "Numbers of draws.", flag_values=fv)
    flags.DEFINE_integer("repetitions", 5, "Runs of each.", 2, flag_values=fv)
    flags.DEFINE_string("base", None, "Checkout of another commit to compare with.", flag_values=fv)
    flags.DEFINE_integer("base_samples", 100, "Its number of draws.", 1, flag_values=fv)
    flags.DEFINE_integer("threads", 1, "CPU threads; 0 lets TensorFlow choose.", 0, flag_values=fv)
    flags.DEFINE_string("output", None, "Write the results to this JSON file.", flag_values=fv)


def package_of(checkout: str) -> Any:
    """`gpflow_deep` of another checkout, beside ours.

    :raises ValueError: if it has none.
    """
    folder = Path(checkout) / "gpflow_deep"
    if not (folder / "__init__.py").exists():
        raise ValueError(f"--base must be a checkout of this project, but {folder} is no package.")
    name = "base_gpflow_deep"
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def predictors(package: Any, num_layers: int, num_samples: int) -> dict[str, Callable[[tf.Tensor], Any]]:
    """`predict_y` from float64 and float32 caches of a model whose means are not zero."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2_000, D))
    model = package.paper2017(X, np.sin(X[:, :1]), num_layers, num_inducing=M)
    for layer in model.layers:
        layer.q_mu.assign(0.3 * rng.normal(size=layer.q_mu.shape))

    def compiled(posterior: Any) -> Callable[[tf.Tensor], Any]:
        return tf.function(lambda X: posterior.predict_y(X, num_samples=num_samples), autograph=False)

    return {"float64": compiled(model.posterior()), "float32": compiled(model.posterior(dtype=tf.float32))}


def measure(num_layers: int, FLAGS: Any) -> list[dict[str, Any]]:
    """One row of results for each commit, number of draws and float type."""
    named = {("this", int(S)): (gpflow_deep, int(S)) for S in FLAGS.samples}
    if FLAGS.base:
        named = {("base", FLAGS.base_samples): (package_of(FLAGS.base), FLAGS.base_samples), **named}
    methods = {
        (*key, dtype): method
        for key, (package, S) in named.items()
        for dtype, method in predictors(package, num_layers, S).items()
    }
    X = tf.constant(np.random.default_rng(1).normal(size=(FLAGS.rows, D)))
    times: dict[Any, list[float]] = {key: [] for key in methods}
    for i in range(FLAGS.repetitions + 1):  # the first one traces
        for key, method in methods.items():
            start = time.process_time()
            method(X)[1].numpy()
            if i:
                times[key].append(1e3 * (time.process_time() - start))
    first = np.array(times[next(iter(methods))])
    rows = []
    for (commit, S, dtype), values in times.items():
        quartiles = np.percentile(first / np.array(values), [25, 50, 75]).tolist()
        rows.append(
            {
                "layers": num_layers,
                "commit": commit,
                "draws": S,
                "cache": dtype,
                "min_ms": min(values),
                "median_ms": float(np.median(values)),
                "ratio_of_minima": float(np.min(first)) / min(values),
                "ratio_quartiles": quartiles,
            }
        )
    return rows


def main(argv: Sequence[str]) -> None:
    FLAGS = flags.FLAGS
    if len(argv) > 1:
        raise app.UsageError(f"no arguments besides flags, got {argv[1:]}")
    apply_threads(FLAGS.threads)
    line, rows = "{:>6}  {:<6}  {:>5}  {:<7}  {:>8}  {:>9}  {:>15}  {}", []
    print(line.format("layers", "commit", "draws", "cache", "min ms", "median ms", "ratio of minima", "median ratio"))
    for num_layers in map(int, FLAGS.layers):
        for row in measure(num_layers, FLAGS):
            low, middle, high = row["ratio_quartiles"]
            numbers = [f"{row['min_ms']:.0f}", f"{row['median_ms']:.0f}", f"{row['ratio_of_minima']:.1f}"]
            words = [num_layers, row["commit"], row["draws"], row["cache"]]
            print(line.format(*words, *numbers, f"{middle:.1f} [{low:.1f}, {high:.1f}]"), flush=True)
            rows.append(row)
    if FLAGS.output:
        record = provenance("none: drawn with seeds 0 and 1", cpus=os.cpu_count())
        names = ("layers", "rows", "samples", "repetitions", "base", "base_samples", "threads")
        settings = {name: FLAGS[name].value for name in names}
        write_json(FLAGS.output, {"flags": settings, "metrics": rows, "provenance": record})
        print(f"wrote {FLAGS.output}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
