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
import functools
import lzma
import os
import time
import zlib
from collections.abc import Callable
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import bench
import numpy as np
import tensorflow as tf
from absl import flags

from darn.codec.coding import decode, encode
from darn.codec.integer_model import IntegerModel
from darn.model.description_length import description_length
from darn.model.model import DARN, DARNConfig
from darn.model.serialization import load_darn
from darn.train.training import Trainer, TrainingConfig
from gpflow_deep_runs.data.sets import catalogue

COLUMNS = {
    "data": "{data}",
    "images": "{images}",
    "method": "{method}",
    "bits": "{bits:.2f}",
    "excess %": "{excess_percent:+.3f}",
    "encode ms": "{encode_min_ms:.4f}",
    "its median": "{encode_median_ms:.4f}",
    "decode ms": "{decode_min_ms:.4f}",
    "median": "{decode_median_ms:.4f}",
}


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("datasets", [], "digits, binarized_mnist, ...; chosen by --data_dir if empty.", flag_values=fv)
    flags.DEFINE_string("data_dir", None, "Folder with the files of the known data sets.", flag_values=fv)
    flags.DEFINE_string("model", None, "A trained model of the last data set; others are trained.", flag_values=fv)
    flags.DEFINE_integer("hidden", 100, "Stochastic units of a model trained here.", 1, flag_values=fv)
    flags.DEFINE_integer("train_steps", 1000, "Steps of its training.", 1, flag_values=fv)
    flags.DEFINE_list("images", ["1000", "10000"], "Numbers of images; at most the test rows.", flag_values=fv)
    flags.DEFINE_integer("length_samples", 10, "Draws of h for the description length.", 1, flag_values=fv)
    flags.DEFINE_integer("repetitions", 5, "Timed calls of each function, after one other.", 1, flag_values=fv)
    bench.define_common(fv, threads=1)


def trained(train: np.ndarray, hidden: int, steps: int) -> DARN:
    """A network after some steps of Adam."""
    model = DARN(DARNConfig(train.shape[1], (hidden,), visible_conditional="factorial"), data=train)
    trainer = Trainer(model, TrainingConfig(learning_rate=2e-3), num_data=len(train))
    rows = np.random.default_rng(0).integers(0, len(train), (steps, 100)).astype(np.int32)
    trainer.compiled_steps()(tf.constant(train), tf.constant(rows), tf.constant(steps), tf.constant([1, 2]))
    return model


def measure(name: str, model: DARN, images: np.ndarray, *, length_samples: int, repetitions: int) -> list[dict]:
    """Our codec and the others."""
    N = len(images)
    start = time.perf_counter()
    integer = IntegerModel(model)
    print(f"{name}: {N} images; making the integer model takes {time.perf_counter() - start:.2f} s")
    lengths = description_length(model, images, seed=tf.constant([3, 4]), num_samples=length_samples, unit="bits").total
    rows: list[dict[str, Any]] = []

    def add(method: str, encode: Callable[[], bytes], decode: Callable[[bytes], Any]) -> None:
        encoded = bench.times_of(encode, repetitions)
        decoded = bench.times_of(functools.partial(decode, encoded.last), repetitions)
        if method == "DARN" and not np.array_equal(decoded.last, images):
            raise AssertionError("the file does not restore the images")
        size = 8 * len(encoded.last)
        row = {"data": name, "images": N, "method": method, "bits": size / N}
        row["excess_percent"] = 100 * (size / lengths.sum() - 1) if method == "DARN" else None
        for what, found in (("encode", encoded), ("decode", decoded)):
            row[f"{what}_min_ms"] = 1e3 * float(found.wall.min()) / N
            row[f"{what}_median_ms"] = 1e3 * float(np.median(found.wall)) / N
        rows.append(row)

    add("DARN", functools.partial(encode, integer, images), functools.partial(decode, integer))
    packed = np.packbits(images, axis=1).tobytes()
    add("zlib", lambda: zlib.compress(packed, 9), zlib.decompress)
    add("bz2", lambda: bz2.compress(packed, 9), bz2.decompress)
    add("lzma", lambda: lzma.compress(packed, preset=9 | lzma.PRESET_EXTREME), lzma.decompress)
    rows.append({"data": name, "images": N, "method": "description length", "bits": float(lengths.mean())})
    rows.append({"data": name, "images": N, "method": "raw", "bits": float(images.shape[1])})
    return rows


def main(FLAGS: flags.FlagValues) -> None:
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
    bench.print_table(results, COLUMNS)
    bench.write({"metrics": results}, ", ".join(checksums))


if __name__ == "__main__":
    bench.run(define_flags, main)
