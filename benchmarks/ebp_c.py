#!/usr/bin/env python3
"""How small and how right are networks in C, beside scikit-learn's MLP and logistic regression?

    ebp_c.py --data_dir=DATA --output=c.json
    ebp_c.py                                           # the small digits of scikit-learn

Each network learns the training images of MNIST, is written by `ebp.export_c` for bytes as inputs, compiled by
`gcc -Os -Wall -Wextra -Werror`, and classifies all test images; a label other than that of `ebp.PackedNetwork`, or of
real weights `ebp.RoundedNetwork`, is an error. "flash" is code and constants, "RAM" the stack of the function and its
static data, by the compiler's own account, without the image. 14 x 14 are means of 2 x 2 pixels, rounded. The MLP,
which stops early with more than 10,000 rows, and logistic regression are scikit-learn's on pixels divided by 255, in C
of weights rounded to 8 or 4 bits, one scale in float32 for each unit; and as emlearn and m2cgen write them, where these
are installed.
"""

import ctypes
import functools
import importlib.util
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import bench
import numpy as np
from absl import flags
from sklearn.base import ClassifierMixin
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
    flags.DEFINE_list(
        "rivals", ["14x40", "14x0"], "Side x hidden of scikit-learn's MLP; 0: logistic regression.", flag_values=fv
    )
    flags.DEFINE_integer("epochs", 10, "Passes over the training images.", 1, flag_values=fv)
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
    write: Callable[[Path], object], images: Images, expected: np.ndarray | None, classes: np.ndarray
) -> bench.Row:
    """Size, errors and time of the function `ebp_predict`, compiled.

    :param write: from a file to its C source, written there.
    :param expected: labels that it has to give; None: not known.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "net.c")
        # Two builds: an object file for the sizes, a library to be called.
        options = ["gcc", "-std=c99", "-Os", "-Wall", "-Wextra", "-Werror", "net.c"]
        subprocess.run([*options, "-c", "-fno-pic", "-fstack-usage", "-o", "net.o"], cwd=folder, check=True)
        subprocess.run([*options, "-shared", "-fPIC", "-o", "net.so"], cwd=folder, check=True)
        sizes = subprocess.run(["size", "net.o"], cwd=folder, check=True, capture_output=True, text=True).stdout
        text, data, bss = map(int, sizes.splitlines()[1].split()[:3])
        stack = sum(int(line.split("\t")[1]) for line in (folder / "net.su").read_text().splitlines())
        # The labels of all rows, and the time of a call.
        function = ctypes.CDLL(str(folder / "net.so")).ebp_predict
        start = time.monotonic()
        numbers = [function(ctypes.c_void_p(row.ctypes.data)) for row in np.ascontiguousarray(images.X_test)]
        us = 1e6 * (time.monotonic() - start) / len(numbers)
    if expected is not None and not np.array_equal(classes[numbers], expected):
        raise AssertionError("C gives other labels")
    # Code and constants are in flash; the stack and what changes, in RAM.
    error = 100 * float(np.mean(classes[numbers] != images.y_test))
    return {
        "flash_bytes": text + data,
        "ram_bytes": stack + data + bss,
        "error": error,
        "rows": len(numbers),
        "microseconds": us,
    }


def measure_network(images: Images, hidden: int, votes: int, epochs: int) -> bench.Row:
    """Binary weights."""
    # Trained on the bytes as the chip will see them.
    coding = ebp.InputCoding.fit("common", images.X)
    Y, classes = ebp.encode_labels(images.y)
    sizes = (images.X.shape[1], hidden, len(classes))
    network = ebp.EBPNetwork(sizes, "binary", head="multiclass", seed=0)
    start = time.monotonic()
    data = ebp.prepare(network, coding.transform(images.X), Y)
    for epoch in range(epochs):
        ebp.fit_epoch(network, data, batch_size=10, epoch=epoch)
    seconds = time.monotonic() - start
    # In C, where the labels have to be those of the packed file.
    file = packed(network, coding=coding, classes=classes, num_votes=votes)
    measured = measured_in_c(
        lambda path: ebp.export_c(file, path, inputs="uint8"), images, file.predict(images.X_test), classes
    )
    # And the error of the mean over the posterior, which C does not have.
    posterior = network.predict_probabilistic(coding.transform(images.X_test))
    return {
        "what": f"{max(1, votes)} x {'-'.join(map(str, sizes))}, ebp.export_c",
        **measured,
        "error_p": 100 * float(np.mean(classes[posterior] != images.y_test)),
        "seconds": seconds,
    }


def measure_real(images: Images, hidden: int, bits: list[int], epochs: int) -> list[bench.Row]:
    """Real weights of some numbers of bits."""
    # One network, written with several numbers of bits.
    model = ebp.EBPGaussianClassifier(hidden, common_scale=True, epochs=epochs, max_count=20, batch_size=30)
    start = time.process_time()
    model.fit(images.X, images.y)
    seconds = time.process_time() - start
    rows = []
    predicted = 100 * float(np.mean(model.predict(images.X_test) != images.y_test))
    for number in bits:
        expected = round_network(model, images.X, bits=number).predict(images.X_test)
        write = functools.partial(ebp.export_c, model, X=images.X, y=images.y, bits=number)
        measured = measured_in_c(write, images, expected, model.classes_)
        title = f"{images.X.shape[1]}-{hidden}-{len(model.classes_)}, hidden weights of {number} bits, ebp.export_c"
        rows.append({"what": title, **measured, "error_p": predicted, "seconds": seconds})
    return rows


def measure_rivals(images: Images, hidden: int) -> list[bench.Row]:
    """scikit-learn's network, or for 0 units logistic regression, of 8 and 4 bits; by emlearn or m2cgen, if there."""
    # The model, and its layers for C with rounded weights.
    start = time.process_time()
    if hidden:
        model: ClassifierMixin = MLPClassifier(hidden, early_stopping=len(images.X) > 10_000, random_state=0)
        model.fit(images.X / 255.0, images.y)
        layers = list(zip(model.coefs_, model.intercepts_, strict=True))
    else:
        model = LogisticRegression(max_iter=200).fit(images.X / 255.0, images.y)
        layers = [(model.coef_.T, model.intercept_)]
    # Programs in C: rounded weights, and what a library writes.
    kind = f"MLP, {hidden} units" if hidden else "logistic regression"
    writers = {f"{bits} bits": functools.partial(write_rounded, layers, bits) for bits in (8, 4)}
    library, write = ("emlearn", write_emlearn) if hidden else ("m2cgen", write_m2cgen)
    if importlib.util.find_spec(library):
        writers[library] = functools.partial(write, model)
    seconds = time.process_time() - start
    return [
        {"what": f"{kind}, {name}", **measured_in_c(writer, images, None, model.classes_), "seconds": seconds}
        for name, writer in writers.items()
    ]


LAYER = """
#define LAYER(NAME, IN, SUM) \\
static void NAME(const IN *x, int n, int m, const signed char *w, const float *s, const float *b, float *y, int last) \\
{ for (int j = 0; j < m; ++j) { \\
    SUM sum = 0; \\
    for (int i = 0; i < n; ++i) { int k = j * n + i; sum += x[i] * WEIGHT; } \\
    y[j] = (float)sum * s[j] + b[j]; \\
    if (!last && y[j] < 0) y[j] = 0; } }
"""


def write_rounded(layers: list[tuple[np.ndarray, np.ndarray]], bits: int, path: Path) -> None:
    """Layers of ReLUs whose weights [n_in, n_out] are rounded to the nearest, of one scale for each unit, as C."""
    # The layers share two functions, one for bytes and one for floats.
    most = 2 ** (bits - 1) - 1
    source = f"#define WEIGHT {'w[k]' if bits == 8 else '((w[k / 2] >> 4 * (k % 2) & 15) - 8)'}" + LAYER
    source += "LAYER(first, unsigned char, int)\n" + "LAYER(next, float, float)\n" * (len(layers) > 1)
    body = ""
    for number, (weights, biases) in enumerate(layers):
        # Weights as whole multiples of the unit's scale; two of four bits share a byte.
        scale = np.abs(weights).max(axis=0) / most
        integers = np.rint(weights / scale).T.ravel().astype(int)
        if bits == 4:
            halves = np.resize(integers + 8, (len(integers) + 1) // 2 * 2).reshape(-1, 2)
            integers = (halves[:, 0] + 16 * halves[:, 1]).astype(np.uint8).astype(np.int8)
        scale = scale / 255.0 if number == 0 else scale
        for kind, name, values in (("signed char", "w", integers), ("float", "s", scale), ("float", "b", biases)):
            numbers = ", ".join(f"{value}" if kind == "signed char" else f"{value:.9e}f" for value in values)
            source += f"static const {kind} {name}{number}[] = {{{numbers}}};\n"
        # The call of the layer, whose inputs are the outputs of the one before it.
        (n_in, n_out) = weights.shape
        is_last = number == len(layers) - 1
        name, inputs = ("next", f"y{number - 1}") if number else ("first", "x")
        body += f"float y{number}[{n_out}]; {name}({inputs}, {n_in}, {n_out}, "
        body += f"w{number}, s{number}, b{number}, y{number}, {int(is_last)});\n"
    path.write_text(
        f"{source}int ebp_predict(const unsigned char *x) {{ {body}{LARGEST.format(y=f'y{number}', m=n_out)}"
    )


LARGEST = "int k = 0; for (int j = 1; j < {m}; ++j) if ({y}[j] > {y}[k]) k = j; return k; }}\n"


def write_m2cgen(model: LogisticRegression, path: Path) -> None:
    import m2cgen

    num_inputs = model.coef_.shape[1]
    num_classes = len(model.classes_)
    path.write_text(
        m2cgen.export_to_c(model) + f"int ebp_predict(const unsigned char *x) {{ double v[{num_inputs}], "
        f"y[{num_classes}]; for (int i = 0; i < {num_inputs}; ++i) v[i] = x[i] / 255.0; score(v, y); "
        + LARGEST.format(y="y", m=num_classes)
    )


def write_emlearn(model: MLPClassifier, path: Path) -> None:
    import emlearn

    num_inputs = model.coefs_[0].shape[0]
    os.environ["C_INCLUDE_PATH"] = emlearn.includedir
    header = path.with_suffix(".h")
    folder = os.getcwd()
    os.chdir(path.parent)  # it leaves files behind
    emlearn.convert(model, method="inline", dtype="float").save(file=str(header), name="net")
    os.chdir(folder)
    header.write_text(f"#pragma GCC system_header\n{header.read_text()}")  # whose warnings are not ours
    path.write_text(
        f'#include "{header}"\nint ebp_predict(const unsigned char *x) {{ float v[{num_inputs}]; '
        f"for (int i = 0; i < {num_inputs}; ++i) v[i] = x[i] / 255.0f; return net_predict(v, {num_inputs}); }}\n"
    )


def main(FLAGS: flags.FlagValues) -> None:
    images = load(FLAGS.data_dir)
    results = []
    # Ours by bits, ours by real weights, and the rivals.
    for text in FLAGS.networks:
        side, hidden, votes = map(int, text.split("x"))
        results.append(measure_network(shrunk(images, side), hidden, votes, FLAGS.epochs))
        print(results[-1], flush=True)
    for text in FLAGS.real:
        side, hidden = map(int, text.split("x"))
        results += measure_real(shrunk(images, side), hidden, [int(bits) for bits in FLAGS.bits], FLAGS.epochs)
        print(*results[-len(FLAGS.bits) :], sep="\n", flush=True)
    for text in FLAGS.rivals:
        side, hidden = map(int, text.split("x"))
        rows = measure_rivals(shrunk(images, side), hidden)
        print(*rows, sep="\n", flush=True)
        results += rows
    bench.keep({"metrics": results}, "none" if FLAGS.data_dir is None else "MNIST")


if __name__ == "__main__":
    bench.run(define_flags, main)
