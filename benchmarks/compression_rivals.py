#!/usr/bin/env python3
"""How small do other methods make the same network at the error of Bayesian compression?

    RIVAL_PYTHON=PYTHON compression_rivals.py --data_dir=DATA --results=runs/300/result.json --output=rivals.json

Rows of the results of `compress_network.py` (their priors say which: gnj, ghs, or svd, which is sparse variational
dropout) beside the TensorFlow Model Optimization Toolkit: magnitude pruning of single weights to --sparsities, then
clustering to --clusters centres that keeps the zeros, then gzip of the weights, as its guide does. The toolkit does not
take models of Keras 3 and changes `tf.keras` for the whole process, so it runs in a process of its own, with the Python
in the environment variable RIVAL_PYTHON, one that has tensorflow-model-optimization and tf_keras. Without that variable
only the first rows are shown.

"gzip" is the size of all weights and biases in float32 after gzip -9; "tflite" is a TensorFlow Lite file of the same
network, and "gzip tflite" that file after gzip -9. Errors are on the test images and of the network in the file.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import bench
import numpy as np
from absl import flags

from gpflow_deep_runs.data import views

SIZES = ("file", "gzip", "tflite", "gzip tflite")
COLUMNS = {
    "method": "{method}",
    "test %": "{test_percent:.2f}",
    "weights left": "{nonzero_weights}",
    **{f"{size}, bytes": f"{{{size}}}" for size in SIZES},
    "times smaller": "{smaller:.1f}",
}

#: Runs in the rival's Python: trains, prunes, clusters and measures; the last line of its output is JSON.
_RIVAL = r"""
import gzip, json, os, sys
os.environ["TF_USE_LEGACY_KERAS"] = "1"
import numpy as np
import tensorflow as tf
import tensorflow_model_optimization as tfmot
from tensorflow_model_optimization.python.core.clustering.keras.experimental import cluster
settings = json.loads(sys.argv[1])
tf.config.threading.set_intra_op_parallelism_threads(settings["threads"])
keras = tf.keras
keras.utils.set_random_seed(settings["seed"])
with np.load(settings["data"]) as stored:
    X, labels, X_test, labels_test = (stored[name] for name in ("X", "labels", "X_test", "labels_test"))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

def network():
    layers = [keras.layers.InputLayer(X.shape[1:])]
    if settings["network"] == "lenet5":
        for maps in (20, 50):
            layers += [keras.layers.Conv2D(maps, 5, activation="relu"), keras.layers.MaxPooling2D()]
        units = (500,)
    else:
        units = (300, 100)
    layers += [keras.layers.Flatten(), *(keras.layers.Dense(n, activation="relu") for n in units)]
    return keras.Sequential([*layers, keras.layers.Dense(10)])

def fit(model, epochs, rate, callbacks=()):
    model.compile(keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
    model.fit(X, labels, settings["batch_size"], epochs, verbose=0, callbacks=list(callbacks))

def report(name, model):
    weights = b"".join(w.astype("<f4").tobytes() for w in model.get_weights())
    tflite = tf.lite.TFLiteConverter.from_keras_model(model).convert()
    outputs = model.predict(X_test, 1000, verbose=0)
    kernels = [w for w in model.get_weights() if w.ndim > 1]
    return {
        "method": name,
        "test_percent": 100.0 * float(np.mean(outputs.argmax(axis=1) != labels_test)),
        "nonzero_weights": int(sum(np.count_nonzero(w) for w in kernels)),
        "weights": int(sum(w.size for w in kernels)),
        "float32": len(weights),
        "gzip": len(gzip.compress(weights, 9)),
        "tflite": len(tflite),
        "gzip tflite": len(gzip.compress(tflite, 9)),
    }

model = network()
fit(model, settings["epochs"], 1e-3)
trained = model.get_weights()
rows = [report("full", model)]
steps = len(X) // settings["batch_size"] * settings["epochs"]
for sparsity in settings["sparsities"]:
    model = network()
    model.set_weights(trained)
    schedule = tfmot.sparsity.keras.PolynomialDecay(0.0, sparsity, 0, int(0.7 * steps))
    pruned = tfmot.sparsity.keras.prune_low_magnitude(model, pruning_schedule=schedule)
    fit(pruned, settings["epochs"], 1e-3, [tfmot.sparsity.keras.UpdatePruningStep()])
    pruned = tfmot.sparsity.keras.strip_pruning(pruned)
    rows.append(report(f"pruned {sparsity:g}", pruned))
    for clusters in settings["clusters"]:
        clustered = cluster.cluster_weights(
            pruned,
            number_of_clusters=clusters,
            cluster_centroids_init=tfmot.clustering.keras.CentroidInitialization.KMEANS_PLUS_PLUS,
            preserve_sparsity=True,
        )
        fit(clustered, settings["cluster_epochs"], 1e-4)
        clustered = tfmot.clustering.keras.strip_clustering(clustered)
        rows.append(report(f"pruned {sparsity:g}, {clusters} clusters", clustered))
print("ANSWER" + json.dumps({"rows": rows, "version": tfmot.__version__}))
"""


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("results", [], "result.json files of compress_network.py.", flag_values=fv)
    flags.DEFINE_enum("network", "lenet300", ["lenet300", "lenet5"], "Network of the rival.", flag_values=fv)
    flags.DEFINE_string("dataset", "mnist", "Data set of the rival: mnist, with --data_dir.", flag_values=fv)
    flags.DEFINE_string("data_dir", None, "Folder of its files.", flag_values=fv)
    flags.DEFINE_integer("epochs", 15, "Passes to train on, and again to prune.", 1, flag_values=fv)
    flags.DEFINE_integer("cluster_epochs", 3, "Passes after clustering.", 1, flag_values=fv)
    flags.DEFINE_list("sparsities", ["0.9", "0.97"], "Parts of the weights to set to zero.", flag_values=fv)
    flags.DEFINE_list("clusters", ["16"], "Numbers of centres.", flag_values=fv)
    flags.DEFINE_integer("batch_size", 128, "Rows of a minibatch.", 1, flag_values=fv)
    flags.DEFINE_integer("seed", 0, "Seed of the rival.", flag_values=fv)
    bench.define_common(fv, threads=1)


def rival_rows(python: str, settings: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """Rows of the toolkit, and its version.

    :raises RuntimeError: if its process fails, with the end of what it printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = views.Source(dataset=str(settings["dataset"]), data_dir=settings["data_dir"])
        images = views.load(source, "images", num_valid=0)
        path = Path(folder) / "images.npz"
        (X, labels), (X_test, labels_test) = images.train, images.test
        np.savez(path, X=X, labels=labels[:, 0], X_test=X_test, labels_test=labels_test[:, 0])
        given = json.dumps({**settings, "data": str(path)})
        answer = bench.answer_of(python, _RIVAL, given, TF_USE_LEGACY_KERAS="1")
    return answer["rows"], answer["version"]


def our_rows(path: str) -> list[dict[str, Any]]:
    """Rows of a run of `compress_network.py`: one for each file."""
    result = json.loads(Path(path).read_text(encoding="utf-8"))
    return [
        {
            "method": f"{result['prior']} {result['network']}, {name}",
            "test_percent": network["test_percent"],
            "nonzero_weights": sum(result["kept_weights"]),
            "weights": result["original_weights"],
            "float32": 4 * result["original_parameters"],
            "file": network["bytes"],
        }
        for name, network in result["networks"].items()
        if network["bytes"] is not None
    ]


def main(FLAGS: flags.FlagValues) -> None:
    rows = [row for path in FLAGS.results for row in our_rows(path)]
    names = ("network", "dataset", "data_dir", "epochs", "cluster_epochs", "batch_size", "seed", "threads")
    settings = {name: FLAGS[name].value for name in names}
    settings |= {"sparsities": list(map(float, FLAGS.sparsities)), "clusters": list(map(int, FLAGS.clusters))}
    python, version = os.environ.get("RIVAL_PYTHON"), None
    if python:
        found, version = rival_rows(python, settings)
        rows += found
    else:
        print(
            "RIVAL_PYTHON is not set, so the toolkit is left out: make an environment with "
            "`pip install tensorflow tensorflow-model-optimization tf_keras` and give its Python."
        )
    if rows:
        full = max(row["float32"] for row in rows)
        smaller = [full / min(row[size] for size in SIZES if size in row) for row in rows]
        shown = [{**row, "smaller": times} for row, times in zip(rows, smaller, strict=True)]
        bench.print_table(shown, COLUMNS)
    bench.write({"flags": settings, "metrics": rows}, "see --dataset and --results", rival_version=version)


if __name__ == "__main__":
    bench.run(define_flags, main)
