#!/usr/bin/env python3
"""How much faster is a network after its superfluous units are removed?

    compression_latency.py --repetitions=200 --output=latency.json
    compression_latency.py --networks=lenet5 --shrunk=runs/caffe/files/shrunk.bcz

The paper's Figure 1, with ratios in place of times: LeNet-300-100 and LeNet-5-Caffe in full and in the architectures of
Table 1 (random weights; times do not depend on them), or in that of a given file. "tf" is one call of a compiled
TensorFlow function for --batch rows; "tflite" and "tflite int8" are one call of the TensorFlow Lite interpreter for one
row, on one thread. All are called in turn within one process, so that all see the same load; "ratio" is the full
network's time over that of the shrunk one, by minima, and as the median and quartiles over pairs of calls.
"""

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import bench
import keras
import numpy as np
import tensorflow as tf
from absl import app, flags

from compression.files.container import load_bcz
from compression.files.export import export_tflite
from compression.graph.select_inputs import SelectInputs
from compression.networks import lenet_5_caffe, lenet_300_100

#: Table 1: kept inputs and units of LeNet-300-100; maps, inputs of the first dense layer and units of LeNet-5-Caffe.
ARCHITECTURES: dict[str, dict[str, tuple[int, ...]]] = {
    "lenet300": {"GNJ": (278, 98, 13), "GHS": (311, 86, 14)},
    "lenet5": {"GNJ": (8, 13, 81, 13), "GHS": (5, 10, 76, 16)},
}
METHODS = ("tf", "tflite", "tflite int8")
COLUMNS = {
    "network": "{network}",
    "version": "{version}",
    "parameters": "{parameters}",
    "method": "{method}",
    "rows": "{rows}",
    "min µs": "{min_us:.1f}",
    "median µs": "{median_us:.1f}",
    "ratio of minima": "{ratio_of_minima:.2f}",
    "median ratio [quartiles]": "{ratio_quartiles[1]:.2f} [{ratio_quartiles[0]:.2f}, {ratio_quartiles[2]:.2f}]",
}


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("networks", ["lenet300", "lenet5"], "Networks: lenet300, lenet5.", flag_values=fv)
    flags.DEFINE_string("shrunk", None, "A .bcz file to time in place of Table 1; name one network.", flag_values=fv)
    flags.DEFINE_integer("batch", 8192, "Rows of a call of TensorFlow.", 1, flag_values=fv)
    flags.DEFINE_integer("repetitions", 50, "Timed rounds, after 3 others.", 1, flag_values=fv)
    flags.DEFINE_integer("calls", 50, "Calls of the interpreter in a round.", 1, flag_values=fv)
    bench.define_common(fv, threads=1)


def original(name: str) -> keras.Model:
    return {"lenet300": lenet_300_100, "lenet5": lenet_5_caffe}[name]()


def in_architecture(name: str, sizes: Sequence[int]) -> keras.Model:
    """The network with so many units, as in Table 1; which inputs are kept is drawn at random."""
    layers: list[keras.layers.Layer] = [keras.Input([28, 28, 1])]
    if name == "lenet5":
        for maps in sizes[:2]:
            layers += [keras.layers.Conv2D(maps, 5, activation="relu"), keras.layers.MaxPooling2D()]
        sizes = sizes[2:]
    layers.append(keras.layers.Flatten())
    num_inputs = keras.Sequential(layers).output_shape[-1]
    kept = np.random.default_rng(0).permutation(num_inputs)[: sizes[0]]
    layers.append(SelectInputs(np.sort(kept)))
    layers += [keras.layers.Dense(units, activation="relu") for units in sizes[1:]]
    return keras.Sequential([*layers, keras.layers.Dense(10)])


def calls_of(model: keras.Model, folder: Path, name: str, batch: int, calls: int) -> dict[str, Callable[[int], Any]]:
    """The function to time for each method; those of the interpreter make `calls` calls."""
    shape = tuple(model.inputs[0].shape[1:])
    X = np.random.default_rng(0).uniform(-1, 1, (batch, *shape)).astype(np.float32)
    tensor = tf.constant(X)
    compiled = tf.function(functools.partial(model, training=False))
    functions: dict[str, Callable[[int], Any]] = {"tf": lambda _: compiled(tensor).numpy()}
    for method, kind in (("tflite", "float32"), ("tflite int8", "int8")):
        path = folder / f"{name}-{kind}.tflite"
        export_tflite(path, model, kind=kind, representative=X[:100])
        interpreter = tf.lite.Interpreter(model_path=str(path), num_threads=1)
        interpreter.allocate_tensors()
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], X[:1])

        def invoke(_: int, interpreter: Any = interpreter) -> None:
            for _ in range(calls):
                interpreter.invoke()

        functions[method] = invoke
    return functions


def measure(name: str, shrunk: Mapping[str, keras.Model], batch: int, repetitions: int, calls: int) -> list[dict]:
    """Times of a network in full and shrunk."""
    models = {"full": original(name), **shrunk}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        functions = {title: calls_of(model, Path(folder), title, batch, calls) for title, model in models.items()}
        for method in METHODS:
            in_turn = {title: functions[title][method] for title in models}
            times = bench.time_in_turn(in_turn, repetitions, warm_up=3)
            microseconds = 1e6 if method == "tf" else 1e6 / calls
            full = microseconds * times["full"].wall
            for title, found in times.items():
                rows.append(
                    {
                        "network": name,
                        "version": title,
                        "parameters": models[title].count_params(),
                        "method": method,
                        "rows": batch if method == "tf" else 1,
                        **bench.compared(microseconds * found.wall, full, "us"),
                    }
                )
    return rows


def main(FLAGS: flags.FlagValues) -> None:
    if unknown := set(FLAGS.networks) - set(ARCHITECTURES):
        raise app.UsageError(f"--networks may list {', '.join(ARCHITECTURES)}, got {', '.join(sorted(unknown))}")
    if FLAGS.shrunk is not None and len(FLAGS.networks) != 1:
        raise app.UsageError("--shrunk is a version of one network; name it with --networks")
    results: list[dict[str, Any]] = []
    for name in FLAGS.networks:
        if FLAGS.shrunk is None:
            shrunk = {
                f"{prior} {'-'.join(map(str, sizes))}": in_architecture(name, sizes)
                for prior, sizes in ARCHITECTURES[name].items()
            }
        else:
            shrunk = {Path(FLAGS.shrunk).name: load_bcz(FLAGS.shrunk)}
        results += measure(name, shrunk, FLAGS.batch, FLAGS.repetitions, FLAGS.calls)
    bench.print_table(results, COLUMNS)
    bench.write({"metrics": results}, "none: random images")


if __name__ == "__main__":
    bench.run(define_flags, main)
