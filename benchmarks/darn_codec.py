#!/usr/bin/env python3
"""How small and how fast are files coded with a DARN, beside zlib, bz2 and lzma?

    darn_codec.py --output=codec.json
    darn_codec.py --data_dir=DATA --model=runs/mnist/darn.npz --threads=1

Data: the test rows of --datasets (by default the handwritten digits of scikit-learn, and binarised MNIST with
--data_dir). Without --model a small network of --hidden units is trained for --train_steps steps, which takes seconds;
such a model is far from the best one, so look at the excess over its own description length, and at the times.

Figures are bits an image and milliseconds an image (the whole call over the number of images, best and median). The
other programs get the packed bits of all images at once, at their best settings. Model files are not counted. "excess"
is that of the file, with its header and all, over the model's description length by --length_samples draws.
"""

import bz2
import lzma
import os
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from absl import app, flags

from darn.codec.coding import decode, encode
from darn.codec.integer_model import IntegerModel
from darn.model.description_length import description_length
from darn.model.model import DARN, DARNConfig
from darn.model.serialization import load_darn
from darn.train.training import Trainer, TrainingConfig
from gpflow_deep_base.files import write_json
from gpflow_deep_runs.data.sets import catalogue
from gpflow_deep_runs.run.devices import apply_threads
from gpflow_deep_runs.run.folder import provenance


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Define this script's flags."""
    fv = flag_values
    flags.DEFINE_list("datasets", [], "digits, binarized_mnist, ...; chosen by --data_dir if empty.", flag_values=fv)
    flags.DEFINE_string("data_dir", None, "Folder with the files of the known data sets.", flag_values=fv)
    flags.DEFINE_string("model", None, "A trained model of the last data set; others are trained.", flag_values=fv)
    flags.DEFINE_integer("hidden", 100, "Stochastic units of a model trained here.", 1, flag_values=fv)
    flags.DEFINE_integer("train_steps", 1000, "Steps of its training.", 1, flag_values=fv)
    flags.DEFINE_list("images", ["1000", "10000"], "Numbers of images; at most the test rows.", flag_values=fv)
    flags.DEFINE_integer("length_samples", 10, "Draws of h for the description length.", 1, flag_values=fv)
    flags.DEFINE_integer("repetitions", 5, "Timed calls of each function, after one other.", 1, flag_values=fv)
    flags.DEFINE_integer("threads", 1, "CPU threads of TensorFlow; all else has one.", 0, flag_values=fv)
    flags.DEFINE_string("output", None, "Write the results to this JSON file.", flag_values=fv)


def trained(train: np.ndarray, hidden: int, steps: int) -> DARN:
    """A network after some steps of Adam."""
    model = DARN(DARNConfig(train.shape[1], (hidden,), visible_conditional="factorial"), data=train)
    trainer = Trainer(model, TrainingConfig(learning_rate=2e-3), num_data=len(train))
    rows = np.random.default_rng(0).integers(0, len(train), (steps, 100)).astype(np.int32)
    trainer.compiled_steps()(tf.constant(train), tf.constant(rows), tf.constant(steps), tf.constant([1, 2]))
    return model


def timed(function: Callable[[], Any], repetitions: int) -> tuple[Any, float, float]:
    """The result, and the least and median seconds."""
    result = function()
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return result, min(times), float(np.median(times))


def measure(name: str, model: DARN, images: np.ndarray, *, length_samples: int, repetitions: int) -> list[dict]:
    """Our codec and the others."""
    N = len(images)
    start = time.perf_counter()
    integer = IntegerModel(model)
    print(f"{name}: {N} images; making the integer model takes {time.perf_counter() - start:.2f} s")
    lengths = description_length(model, images, seed=tf.constant([3, 4]), num_samples=length_samples, unit="bits").total
    rows: list[dict[str, Any]] = []

    def add(method: str, size: int, encoded: tuple[Any, float, float], decoded: tuple[Any, float, float]) -> None:
        rows.append(
            {
                "data": name,
                "images": N,
                "method": method,
                "bits": 8 * size / N,
                "excess_percent": 100 * (8 * size / lengths.sum() - 1) if method.startswith("DARN") else None,
                "encode_min_ms": 1e3 * encoded[1] / N,
                "encode_median_ms": 1e3 * encoded[2] / N,
                "decode_min_ms": 1e3 * decoded[1] / N,
                "decode_median_ms": 1e3 * decoded[2] / N,
            }
        )

    encoded = timed(lambda: encode(integer, images), repetitions)
    decoded = timed(lambda: decode(integer, encoded[0]), repetitions)
    if not np.array_equal(decoded[0], images):
        raise AssertionError("the file does not restore the images")
    add("DARN", len(encoded[0]), encoded, decoded)
    packed = np.packbits(images, axis=1).tobytes()
    others: Mapping[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
        "zlib": (lambda data: zlib.compress(data, 9), zlib.decompress),
        "bz2": (lambda data: bz2.compress(data, 9), bz2.decompress),
        "lzma": (lambda data: lzma.compress(data, preset=9 | lzma.PRESET_EXTREME), lzma.decompress),
    }
    for method, (compress, decompress) in others.items():
        encoded = timed(lambda compress=compress: compress(packed), repetitions)  # type: ignore[misc]
        decoded = timed(lambda decompress=decompress, data=encoded[0]: decompress(data), repetitions)  # type: ignore[misc]
        add(method, len(encoded[0]), encoded, decoded)
    rows.append({"data": name, "images": N, "method": "description length", "bits": float(lengths.mean())})
    rows.append({"data": name, "images": N, "method": "raw", "bits": float(images.shape[1])})
    return rows


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    keys = ("encode_min_ms", "encode_median_ms", "decode_min_ms", "decode_median_ms")
    lines = [["data", "images", "method", "bits", "excess %", "encode ms", "median", "decode ms", "median"]]
    for row in rows:
        excess = row.get("excess_percent")
        times = [f"{row[key]:.4f}" if key in row else "" for key in keys]
        first = [row["data"], str(row["images"]), row["method"], f"{row['bits']:.2f}"]
        lines.append([*first, "" if excess is None else f"{excess:+.3f}", *times])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)), flush=True)


def main(argv: Sequence[str]) -> None:
    FLAGS = flags.FLAGS
    if len(argv) > 1:
        raise app.UsageError(f"no arguments besides flags, got {argv[1:]}")
    apply_threads(FLAGS.threads)
    names = FLAGS.datasets or ["digits", *(["binarized_mnist"] if FLAGS.data_dir else [])]
    results: list[dict[str, Any]] = []
    checksums = []
    for name in names:
        data = catalogue.read(name, "binary", FLAGS.data_dir)
        checksums.append(data.sha256)
        is_given = FLAGS.model and name == names[-1]
        model = load_darn(FLAGS.model) if is_given else trained(data.train.X, FLAGS.hidden, FLAGS.train_steps)
        for N in sorted({min(int(count), data.sizes["test"]) for count in FLAGS.images}):
            results += measure(
                name, model, data.test.X[:N], length_samples=FLAGS.length_samples, repetitions=FLAGS.repetitions
            )
    print_rows(results)
    if FLAGS.output:
        settings = ("datasets", "model", "hidden", "train_steps", "images", "length_samples", "repetitions", "threads")
        record = provenance(", ".join(checksums), cpus=os.cpu_count())
        flag_values = {name: FLAGS[name].value for name in settings}
        write_json(FLAGS.output, {"flags": flag_values, "metrics": results, "provenance": record})
        print(f"\nwrote {FLAGS.output}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
