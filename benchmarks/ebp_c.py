#!/usr/bin/env python3
"""How small and how right are networks in C, beside scikit-learn's MLP and logistic regression?

    ebp_c.py --data_dir=DATA --output=c.json
    ebp_c.py                                           # the small digits of scikit-learn

Each network learns the training images of MNIST, is written by `ebp.export_c` for bytes as inputs, compiled by
`gcc -Os -Wall -Wextra -Werror`, and classifies all test images; a label other than that of `ebp.PackedNetwork`, or of
real weights `ebp.RoundedNetwork`, is an error. "flash" is code and constants, "RAM" the stack of the function and its
static data, by the compiler's own account, without the image. 14 x 14 are means of 2 x 2 pixels, rounded. The MLP
(early stopping) and logistic regression are scikit-learn's on pixels divided by 255, in float32 (4 bytes a number), and
with weights rounded to 8 or 4 bits, one scale for each unit; their code is not counted.
"""

import ctypes
import functools
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import bench
import numpy as np
from absl import flags
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

import ebp
from ebp.packed.export import packed
from ebp.packed.rounded import round_network


class Images(NamedTuple):
    """Bytes [N, D] and classes [N] to learn from and to test on."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_string("data_dir", None, "Folder with the files of MNIST; none for small digits.", flag_values=fv)
    flags.DEFINE_list(
        "networks",
        ["28x80x0", "14x304x0", "14x152x2", "14x56x5"],
        "Side x hidden x votes; 0 votes: the most probable weights.",
        flag_values=fv,
    )
    flags.DEFINE_list("real", ["14x72"], "Side x hidden of networks of real weights.", flag_values=fv)
    flags.DEFINE_list("bits", ["2", "4"], "Of their hidden weights in C.", flag_values=fv)
    flags.DEFINE_list("mlp", ["14x40"], "Side x hidden of scikit-learn's MLP.", flag_values=fv)
    flags.DEFINE_integer("epochs", 10, "Passes over the training images.", 1, flag_values=fv)
    flags.DEFINE_list("sides", ["28", "14"], "Sides of images for logistic regression.", flag_values=fv)
    bench.define_common(fv, threads=1)


def load(data_dir: str | None) -> Images:
    name = "digits" if data_dir is None else "mnist"
    data = bench.load(name, data_dir, "supervised", valid_fraction=0)
    largest = 16 if data_dir is None else 1
    bytes_ = [np.rint(255 / largest * part.X).astype(np.uint8) for part in (data.train, data.test)]
    return Images(bytes_[0], data.train.Y[:, 0], bytes_[1], data.test.Y[:, 0])


def shrunk(images: Images, side: int) -> Images:
    """Images of a smaller side: means of squares of pixels."""

    def small(X: np.ndarray) -> np.ndarray:
        width = round(X.shape[1] ** 0.5)
        step = width // side
        squares = X.reshape(-1, side, step, side, step).astype(float)
        return np.rint(squares.mean(axis=(2, 4))).astype(np.uint8).reshape(len(X), -1)

    return images._replace(X=small(images.X), X_test=small(images.X_test))


def measured_in_c(
    write: Callable[[Path], Any], images: Images, expected: np.ndarray, classes: np.ndarray
) -> dict[str, Any]:
    """Size, errors and time of the function `ebp_predict`, compiled.

    :param write: from a file to its C source, written there.
    :param expected: labels that it has to give.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "net.c")
        options = ["gcc", "-std=c99", "-Os", "-Wall", "-Wextra", "-Werror", "net.c"]
        subprocess.run([*options, "-c", "-fno-pic", "-fstack-usage", "-o", "net.o"], cwd=folder, check=True)
        subprocess.run([*options, "-shared", "-fPIC", "-o", "net.so"], cwd=folder, check=True)
        sizes = subprocess.run(["size", "net.o"], cwd=folder, check=True, capture_output=True, text=True).stdout
        text, data, bss = map(int, sizes.splitlines()[1].split()[:3])
        stack = sum(int(line.split("\t")[1]) for line in (folder / "net.su").read_text().splitlines())
        function = ctypes.CDLL(str(folder / "net.so")).ebp_predict
        start = time.monotonic()
        numbers = [function(ctypes.c_void_p(row.ctypes.data)) for row in np.ascontiguousarray(images.X_test)]
        us = 1e6 * (time.monotonic() - start) / len(numbers)
    if not np.array_equal(classes[numbers], expected):
        raise AssertionError("C gives other labels")
    error = 100 * float(np.mean(expected != images.y_test))
    return {
        "flash_bytes": text + data,
        "ram_bytes": stack + data + bss,
        "error": error,
        "rows": len(numbers),
        "microseconds": us,
    }


def measure_network(images: Images, hidden: int, votes: int, epochs: int) -> dict[str, Any]:
    """Binary weights."""
    coding = ebp.InputCoding.fit("common", images.X)
    Y, classes = ebp.encode_labels(images.y)
    sizes = (images.X.shape[1], hidden, len(classes))
    network = ebp.EBPNetwork(sizes, "binary", head="multiclass", seed=0)
    start = time.monotonic()
    data = ebp.prepare(network, coding.transform(images.X), Y)
    for epoch in range(epochs):
        ebp.fit_epoch(network, data, batch_size=10, epoch=epoch)
    seconds = time.monotonic() - start
    file = packed(network, coding=coding, classes=classes, num_votes=votes)
    found = measured_in_c(
        lambda path: ebp.export_c(file, path, inputs="uint8"), images, file.predict(images.X_test), classes
    )
    posterior = network.predict_probabilistic(coding.transform(images.X_test))
    return {
        "what": f"{max(1, votes)} x {'-'.join(map(str, sizes))}, ebp.export_c",
        **found,
        "error_p": 100 * float(np.mean(classes[posterior] != images.y_test)),
        "seconds": seconds,
    }


def measure_real(images: Images, hidden: int, bits: list[int], epochs: int) -> list[dict[str, Any]]:
    """Real weights of some numbers of bits."""
    model = ebp.EBPGaussianClassifier(hidden, common_scale=True, epochs=epochs, max_count=20, batch_size=30)
    start = time.process_time()
    model.fit(images.X, images.y)
    seconds, rows = time.process_time() - start, []
    predicted = 100 * float(np.mean(model.predict(images.X_test) != images.y_test))
    for number in bits:
        expected = round_network(model, images.X, bits=number).predict(images.X_test)
        write = functools.partial(ebp.export_c, model, X=images.X, y=images.y, bits=number)
        found = measured_in_c(write, images, expected, model.classes_)
        what = f"{images.X.shape[1]}-{hidden}-{len(model.classes_)}, hidden weights of {number} bits, ebp.export_c"
        rows.append({"what": what, **found, "error_p": predicted, "seconds": seconds})
    return rows


def measure_mlp(images: Images, hidden: int) -> list[dict[str, Any]]:
    """scikit-learn's, with all weights as they are and rounded."""
    model = MLPClassifier(hidden, early_stopping=True, random_state=0)
    start = time.process_time()
    model.fit(images.X / 255.0, images.y)
    seconds, rows = time.process_time() - start, []
    num_biases = sum(map(len, model.intercepts_))
    num_weights = sum(weights.size for weights in model.coefs_)
    trained = [weights.copy() for weights in model.coefs_]
    for name, bits in (("float32", None), ("8 bits", 8), ("4 bits", 4)):
        flash = num_weights * (bits or 32) // 8 + 4 * num_biases
        model.coefs_ = [weights if bits is None else rounded(weights, bits) for weights in trained]
        error = 100 * float(np.mean(model.predict(images.X_test / 255.0) != images.y_test))
        what = f"MLP, {images.X.shape[1]}-{hidden}-{len(model.classes_)}, {name}"
        rows.append({"what": what, "flash_bytes": flash, "error": error, "seconds": seconds})
    return rows


def rounded(weights: np.ndarray, bits: int) -> np.ndarray:
    """To the nearest of so many bits, of one scale for each unit [n_in, n_out]."""
    most = 2 ** (bits - 1) - 1
    scale = np.abs(weights).max(axis=0) / most
    return np.asarray(scale * np.rint(weights / scale))


def measure_regression(images: Images) -> list[dict[str, Any]]:
    start = time.monotonic()
    model = LogisticRegression(max_iter=200).fit(images.X / 255.0, images.y)
    seconds, rows = time.monotonic() - start, []
    W, b, size = model.coef_, model.intercept_, model.coef_.size
    what = f"logistic regression, {W.shape[1]} inputs"
    for name, weights, flash in (
        ("float32", W, 4 * (size + len(b))),
        ("8 bits", rounded(W.T, 8).T, size + 8 * len(b)),
    ):
        found = model.classes_[np.argmax(images.X_test / 255.0 @ weights.T + b, axis=1)]
        error = 100 * float(np.mean(found != images.y_test))
        rows.append({"what": f"{what}, {name}", "flash_bytes": flash, "error": error, "seconds": seconds})
    return rows


def main(FLAGS: flags.FlagValues) -> None:
    images, results = load(FLAGS.data_dir), []
    for text in FLAGS.networks:
        side, hidden, votes = map(int, text.split("x"))
        results.append(measure_network(shrunk(images, side), hidden, votes, FLAGS.epochs))
        print(results[-1], flush=True)
    for text in FLAGS.real:
        side, hidden = map(int, text.split("x"))
        results += measure_real(shrunk(images, side), hidden, [int(bits) for bits in FLAGS.bits], FLAGS.epochs)
        print(*results[-len(FLAGS.bits) :], sep="\n", flush=True)
    for text in FLAGS.mlp:
        side, hidden = map(int, text.split("x"))
        results += measure_mlp(shrunk(images, side), hidden)
        print(*results[-3:], sep="\n", flush=True)
    for side in map(int, FLAGS.sides):
        results += measure_regression(shrunk(images, side))
        print(*results[-2:], sep="\n", flush=True)
    bench.keep({"metrics": results}, "none" if FLAGS.data_dir is None else "MNIST")


if __name__ == "__main__":
    bench.run(define_flags, main)
