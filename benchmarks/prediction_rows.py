#!/usr/bin/env python3
"""How long do predictions of many rows take, for several numbers of draws, and beside another commit's?

    git worktree add /tmp/before COMMIT
    prediction_rows.py --base=/tmp/before --base_samples=100 --output=rows.json

`predict_y` of a posterior (cached factors, in float64 and in float32) of a deep GP with M = 100, D = 8 inputs and inner
outputs and one output, under `tf.function`. Milliseconds of CPU time of this process with one thread, so that other
programs disturb little; all are timed in turn. "ratio" is the time of the other commit with --base_samples draws in
float64 over the time of each: of the minima, and the median of neighbouring runs with its quartiles. Without --base it
is this commit's first number of draws.
"""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import bench
import numpy as np
import tensorflow as tf
from absl import flags

import gpflow_deep

Predict = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
"""Rows to means and variances."""
M = 100
D = 8
COLUMNS = {
    "layers": "{layers}",
    "commit": "{commit}",
    "draws": "{draws}",
    "cache": "{cache}",
    "min ms": "{min_ms:.0f}",
    "median ms": "{median_ms:.0f}",
    "ratio of minima": "{ratio_of_minima:.1f}",
    "median ratio": "{ratio_quartiles[1]:.1f} [{ratio_quartiles[0]:.1f}, {ratio_quartiles[2]:.1f}]",
}


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("layers", ["2", "3"], "Numbers of layers.", flag_values=fv)
    flags.DEFINE_integer("rows", 10_000, "Rows that are predicted.", 1, flag_values=fv)
    flags.DEFINE_list("samples", ["16", "32", "64", "100"], "Numbers of draws.", flag_values=fv)
    flags.DEFINE_integer("repetitions", 5, "Runs of each.", 2, flag_values=fv)
    flags.DEFINE_string("base", None, "Checkout of another commit to compare with.", flag_values=fv)
    flags.DEFINE_integer("base_samples", 100, "Its number of draws.", 1, flag_values=fv)
    bench.define_common(fv, threads=1)


def package_of(checkout: str) -> ModuleType:
    """`gpflow_deep` of another checkout, beside ours.

    :raises ValueError: if it has none.
    """
    # Under a name of its own, so that ours stays importable.
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


def predictors(package: ModuleType, num_layers: int, num_samples: int) -> dict[str, Predict]:
    """`predict_y` from float64 and float32 caches of a model whose means are not zero."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2_000, D))
    # Means that are not zero, so that nothing can be left out.
    model = package.paper2017(X, np.sin(X[:, :1]), num_layers, num_inducing=M)
    for layer in model.layers:
        layer.q_mu.assign(0.3 * rng.normal(size=layer.q_mu.shape))

    def compiled(posterior: gpflow_deep.DeepGPPosterior) -> Predict:
        return tf.function(lambda X: posterior.predict_y(X, num_samples=num_samples), autograph=False)

    return {"float64": compiled(model.posterior()), "float32": compiled(model.posterior(dtype=tf.float32))}


def predicting(method: Predict, X: tf.Tensor) -> Callable[[int], np.ndarray]:
    return lambda _: method(X)[1].numpy()


def measure(num_layers: int, FLAGS: flags.FlagValues) -> list[bench.Row]:
    """One row of results for each commit, number of draws and float type."""
    # The packages and numbers of draws that are compared; the base comes first, as all are divided by it.
    named = {("this", int(S)): (gpflow_deep, int(S)) for S in FLAGS.samples}
    if FLAGS.base:
        named = {("base", FLAGS.base_samples): (package_of(FLAGS.base), FLAGS.base_samples), **named}
    # A compiled function for each of them and each float type.
    methods = {
        (*key, dtype): method
        for key, (package, S) in named.items()
        for dtype, method in predictors(package, num_layers, S).items()
    }
    # Timed in turn on the same rows.
    X = tf.constant(np.random.default_rng(1).normal(size=(FLAGS.rows, D)))
    in_turn = {key: predicting(method, X) for key, method in methods.items()}
    times = bench.time_in_turn(in_turn, FLAGS.repetitions)  # the first call traces
    first = 1e3 * next(iter(times.values())).cpu
    return [
        {
            "layers": num_layers,
            "commit": commit,
            "draws": S,
            "cache": dtype,
            **bench.compared(1e3 * measured.cpu, first, "ms"),
        }
        for (commit, S, dtype), measured in times.items()
    ]


def main(FLAGS: flags.FlagValues) -> None:
    rows = [row for num_layers in map(int, FLAGS.layers) for row in measure(num_layers, FLAGS)]
    bench.print_table(rows, COLUMNS)
    bench.write({"metrics": rows}, "none: drawn with seeds 0 and 1")


if __name__ == "__main__":
    bench.run(define_flags, main)
