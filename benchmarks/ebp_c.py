#!/usr/bin/env python3
"""How small and how right are networks of binary weights in C, beside scikit-learn's logistic regression?

    ebp_c.py --data_dir=DATA --output=c.json
    ebp_c.py                                           # the small digits of scikit-learn

Each network learns the training images of MNIST, is written by `ebp.export_c` for bytes as inputs, compiled by
`gcc -Os -Wall -Wextra -Werror`, and classifies all test images; a label other than that of `ebp.PackedNetwork` is an
error. "flash" is code and constants, "RAM" the stack of the function and its static data, by the compiler's own
account, without the image. 14 x 14 are means of 2 x 2 pixels, rounded. Logistic regression is scikit-learn's on pixels
divided by 255, in float32 (4 bytes a number), and with its weights rounded to 8 bits, one scale for each class; its
code is not counted.
"""

import ctypes
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import bench
import numpy as np
from absl import flags
from sklearn.linear_model import LogisticRegression

import ebp
from ebp.packed.export import packed


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


def compiled(source: str, folder: Path) -> tuple[Any, int, int]:
    """The function, bytes of flash and bytes of RAM."""
    (folder / "net.c").write_text(source)
    options = ["gcc", "-std=c99", "-Os", "-Wall", "-Wextra", "-Werror", "net.c"]
    subprocess.run([*options, "-c", "-fno-pic", "-fstack-usage", "-o", "net.o"], cwd=folder, check=True)
    subprocess.run([*options, "-shared", "-fPIC", "-o", "net.so"], cwd=folder, check=True)
    sizes = subprocess.run(["size", "net.o"], cwd=folder, check=True, capture_output=True, text=True).stdout
    text, data, bss = map(int, sizes.splitlines()[1].split()[:3])
    stack = sum(int(line.split("\t")[1]) for line in (folder / "net.su").read_text().splitlines())
    return ctypes.CDLL(str(folder / "net.so")).ebp_predict, text + data, stack + data + bss


def measure_network(images: Images, hidden: int, votes: int, epochs: int) -> dict[str, Any]:
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
    expected = file.predict(images.X_test)
    with tempfile.TemporaryDirectory() as folder:
        function, flash, ram = compiled(ebp.export_c(file, inputs="uint8"), Path(folder))
        start = time.monotonic()
        numbers = [function(ctypes.c_void_p(row.ctypes.data)) for row in np.ascontiguousarray(images.X_test)]
        us = 1e6 * (time.monotonic() - start) / len(numbers)
    if not np.array_equal(classes[numbers], expected):
        raise AssertionError("C gives other labels")
    posterior = network.predict_probabilistic(coding.transform(images.X_test))
    return {
        "what": f"{max(1, votes)} x {'-'.join(map(str, sizes))}, ebp.export_c",
        "flash_bytes": flash,
        "ram_bytes": ram,
        "error": 100 * float(np.mean(expected != images.y_test)),
        "error_p": 100 * float(np.mean(classes[posterior] != images.y_test)),
        "rows": len(numbers),
        "microseconds": us,
        "seconds": seconds,
    }


def measure_regression(images: Images) -> list[dict[str, Any]]:
    start = time.monotonic()
    model = LogisticRegression(max_iter=200).fit(images.X / 255.0, images.y)
    seconds, rows = time.monotonic() - start, []
    W, b, size = model.coef_, model.intercept_, model.coef_.size
    scale = np.abs(W).max(axis=1, keepdims=True) / 127
    what = f"logistic regression, {W.shape[1]} inputs"
    for name, weights, flash in (
        ("float32", W, 4 * (size + len(b))),
        ("8 bits", scale * np.rint(W / scale), size + 8 * len(b)),
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
    for side in map(int, FLAGS.sides):
        results += measure_regression(shrunk(images, side))
        print(*results[-2:], sep="\n", flush=True)
    bench.keep({"metrics": results}, "none" if FLAGS.data_dir is None else "MNIST")


if __name__ == "__main__":
    bench.run(define_flags, main)
