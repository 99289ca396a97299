#!/usr/bin/env python3
"""How many bytes do networks take by `nncodec`, Fraunhofer's implementation of the standard ISO/IEC 15938-17?

    NNCODEC_PYTHON=PYTHON compression_nncodec.py --data_dir=DATA --networks=lenet300,lenet5,cifar --seeds=0,1,2
    NNCODEC_PYTHON=PYTHON compression_nncodec.py --data_dir=DATA --models=FOLDER --networks=NAME --bits=3
    NNCODEC_PYTHON=PYTHON compression_nncodec.py --files=files/book_16.bcz,files/fixed.bcz --output=nncodec.json

--networks: each is trained by Adam, pruned if it says so, and written without more training by `compression.pack` with
calibration images and by `nncodec` as it comes: dependent quantisation of step sizes, its coder with optimised initial
states, biases at its step for them. The step, one for all kernels, is the coarsest for which the error on images that
are set aside rises by at most --max_rise, as `pack` is told; the test images are looked at for the two that are chosen.
Architecture and names are in the bytes of `pack` and not in those of `nncodec`.

--models: a network for CIFAR-10 is FOLDER/NAME.keras, and `pack` is told --bits or --max_bytes, and no label. `nncodec`
takes the coarsest of --steps whose error on a half of the test images is at most --max_rise above those of `pack` and
of the network; errors are those of the other half. Beside them 8 bits for each weight of a kernel, a step for each
unit, float16 for all others, and the better one of bz2 and LZMA.

--files: the coders alone. Each kernel of each file is a matrix of integers, the ranks of its values with 0 for the
most frequent one. These are coded by `compression.files.coding.context_coding` and by the coder of `nncodec`, which
gives them back to be compared. Both may choose between rows and columns for each kernel, `nncodec` also optimises the
initial states of its contexts. Values themselves, biases and architecture are left out: they take equally many bytes.

`nncodec` is run by the Python in the environment variable NNCODEC_PYTHON; its coder needs NumPy alone:

    python -m venv nnc && nnc/bin/pip install "numpy<2" && nnc/bin/pip install --no-deps nncodec
"""

import bz2
import itertools
import lzma
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bench
import keras
import numpy as np
from absl import app, flags
from numpy.typing import NDArray

import compression as bc
from compression.files.coding.context_coding import encode_matrix
from compression.graph.graph import graph_of
from compression.graph.kinds import weighted_layers
from compression.graph.removal.cutting import oriented
from compression.graph.removal.neighbours import strides_of
from compression.train.recipes.classification import Examples, parts_of
from gpflow_deep_base.files import write_json
from gpflow_deep_base.seeds import numpy_rng

#: Runs in the other Python: bytes of each matrix [out, in], the smaller of both orders; JSON on the last line.
_RIVAL = r"""
import importlib.metadata, json, sys, time
import numpy as np
from nncodec.extensions import deepCABAC as coder
UNARY, OFF = 11, (coder.HdspMode.AlwaysOff, np.zeros(2, np.int8))
def size(matrix):
    matrix = np.ascontiguousarray(matrix, np.int32)
    encoder = coder.Encoder()
    encoder.initCtxModels(UNARY, 1)
    skipped = (~matrix.any(axis=1)).astype(np.int32)
    encoder.encodeLayer(matrix, 0, 0, 1, 0, 1, skipped, *OFF, 0, 0)
    stream = encoder.finish()
    decoder, found = coder.Decoder(), np.zeros_like(matrix)
    decoder.setStream(stream)
    decoder.initCtxModels(UNARY)
    decoder.decodeLayer(found, 0, 0, 1, 0, *OFF, 0, 0)
    assert np.array_equal(found, matrix), "nncodec does not give back what it coded"
    return len(stream)
with np.load(sys.argv[1]) as stored:
    sizes = {name: min(size(stored[name]), size(stored[name].T)) for name in stored.files}
print("ANSWER" + json.dumps({"sizes": sizes, "version": importlib.metadata.version("nncodec")}))
"""

#: Runs there, too: bytes of all tensors [out, ...] for each step of kernels; the numbers that come back in FOLDER.
_RIVAL_STEPS = r"""
import importlib.metadata, json, pathlib, sys
import numpy as np
from nncodec.extensions import deepCABAC as coder
UNARY, DENSITY, BIAS_STEP, OFF = 10, 2, -75, (coder.HdspMode.AlwaysOff, np.zeros(2, np.int8))
folder = pathlib.Path(sys.argv[1])
request = json.loads((folder / "steps.json").read_text())
with np.load(folder / "tensors.npz") as stored:
    tensors = {name: np.ascontiguousarray(stored[name], np.float32) for name in stored.files}
sizes = []
for number, step in enumerate(request):
    found, size = {}, 0
    for name, tensor in tensors.items():
        levels, values = np.zeros(tensor.shape, np.int32), np.zeros(tensor.shape, np.float32)
        encoder, decoder = coder.Encoder(), coder.Decoder()
        encoder.initCtxModels(UNARY, 0)
        used = encoder.quantLayer(tensor, levels, 1, DENSITY, step if tensor.ndim > 1 else BIAS_STEP, 0.0, UNARY, 0, 0)
        encoder.initCtxModels(UNARY + 1, 1)
        encoder.encodeLayer(levels, 1, 0, 0, 0, 0, np.zeros(len(levels), np.int32), *OFF, 0, 0)
        stream = encoder.finish()
        decoder.setStream(stream)
        decoder.initCtxModels(UNARY + 1)
        back = np.zeros_like(levels)
        decoder.decodeLayer(back, 1, 0, 0, 0, *OFF, 0, 0)
        decoder.dequantLayer(values, back, DENSITY, used, 0)
        found[name], size = values, size + len(stream)
    sizes.append(size)
    np.savez(folder / f"{number}.npz", **found)
print("ANSWER" + json.dumps({"sizes": sizes, "version": importlib.metadata.version("nncodec")}))
"""
_STEPS = list(map(str, range(-48, -3)))  # four to an octave, from 1/4096 up to about a half

#: Data set, images at most, epochs.
_SETS: dict[str, tuple[str, int | None, int]] = {
    "lenet300": ("mnist", None, 5),
    "lenet5": ("mnist", None, 2),
    "pruned": ("mnist", 20_000, 4),
    "cifar": ("cifar10_jpeg", 25_000, 5),
    "mobilenet": ("cifar10_jpeg", None, 8),
}


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("files", [], "Files that compression has written.", flag_values=fv)
    flags.DEFINE_list("networks", [], "To be trained: lenet300, lenet5, pruned, cifar, mobilenet.", flag_values=fv)
    flags.DEFINE_list("seeds", ["0", "1", "2"], "Of these networks.", flag_values=fv)
    flags.DEFINE_string("data_dir", None, "Folder with the files of the known data sets.", flag_values=fv)
    flags.DEFINE_string("models", None, "Folder with NAME.keras of trained networks for CIFAR-10.", flag_values=fv)
    flags.DEFINE_float("bits", None, "Of a weight of such a network.", flag_values=fv)
    flags.DEFINE_integer("max_bytes", None, "Of the file of such a network.", flag_values=fv)
    flags.DEFINE_integer(
        "images", None, "Test images to look at with such a network; a half chooses.", 2, flag_values=fv
    )
    flags.DEFINE_list("steps", _STEPS, "Of nncodec: quarters of an octave.", flag_values=fv)
    flags.DEFINE_integer(
        "calibration", 4000, "Training images, drawn at random, that pack is given.", 1, flag_values=fv
    )
    flags.DEFINE_float("max_rise", 0.1, "Percent of error set aside that a file may add.", 0.0, flag_values=fv)
    bench.define_common(fv)


def integers_of(weights: NDArray[np.float32]) -> NDArray[np.int64]:
    """Ranks of values, 0 for the most frequent one, of the shape of the weights."""
    values, ranks, counts = np.unique(weights, return_inverse=True, return_counts=True)
    integers: NDArray[np.int64] = ranks.reshape(weights.shape) - int(np.argmax(counts)) if len(values) else ranks
    return integers


def matrices(model: keras.Model) -> dict[str, tuple[NDArray[np.int64], tuple[int, int]]]:
    """Of each layer the integers [inputs, units], and the strides of neighbours in an image."""
    graph = graph_of(model)
    strides = strides_of(graph)
    coded = {}
    for node in weighted_layers(graph):
        kernel = oriented(node.layer, np.asarray(node.layer.kernel))
        coded[node.name] = integers_of(kernel.reshape(-1, kernel.shape[-1])), strides.get(node.name, (0, 0))
    return coded


def our_size(matrix: NDArray[np.int64], strides: tuple[int, int]) -> int:
    """Bytes of the shortest of our codes."""
    return min(
        len(encode_matrix(matrix, strides=by, by_rows=by_rows)) for by in {strides, (0, 0)} for by_rows in (False, True)
    )


def rival_sizes(python: str, found: dict[str, NDArray[np.int64]]) -> tuple[dict[str, int], str]:
    """Bytes of each matrix by nncodec, and its version.

    :raises RuntimeError: if its process fails, with the end of what it printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "matrices.npz"
        np.savez(path, **{name: matrix.T.astype(np.int32) for name, matrix in found.items()})
        answer = bench.answer_of(python, _RIVAL, str(path))
    return answer["sizes"], answer["version"]


def rows_of(file: str, python: str) -> Iterator[bench.Row]:
    """Bytes of each kernel of a file, and of all."""
    # Both coders get the same matrices of integers.
    layers = matrices(bc.load(file))
    theirs, version = rival_sizes(python, {name: matrix for name, (matrix, _) in layers.items()})
    ours = {name: our_size(*layer) for name, layer in layers.items()}
    for name, (matrix, _) in layers.items():
        counts = {"weights": matrix.size, "nonzero": int(np.count_nonzero(matrix))}
        yield {"file": file, "layer": name, **counts, "bytes": ours[name], "nncodec_bytes": theirs[name]}
    totals = {"bytes": sum(ours.values()), "nncodec_bytes": sum(theirs.values())}
    yield {"file": file, "layer": "all", **totals, "nncodec": version}


def trained(name: str, seed: int, data_dir: str | None) -> tuple[keras.Model, dict[str, Examples]]:
    """A network as a plain script trains it, and its images."""
    dataset, images, epochs = _SETS[name]
    parts = parts_of(bench.load(dataset, data_dir, "images", num_valid=5000, max_images=images).parts)
    # Small networks for 28 x 28, and two for photographs.
    keras.utils.set_random_seed(seed)
    if name == "cifar":
        layers = [keras.Input((32, 32, 3))]
        for maps in (32, 64, 128):
            layers += [keras.layers.Conv2D(maps, 3, padding="same", activation="relu"), keras.layers.MaxPooling2D()]
        layers += [keras.layers.Flatten(), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)]
        model = keras.Sequential(layers)
    elif name == "mobilenet":
        model = keras.applications.MobileNetV2((32, 32, 3), weights=None, classes=10, classifier_activation=None)
    else:
        model = bc.networks.build("lenet300" if name == "pruned" else name, (28, 28, 1), 10, seed=seed)
    # All by the same plain Adam; pruning comes behind it.
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss, jit_compile=False)
    model.fit(*parts["train"], batch_size=100, epochs=epochs, verbose=0)
    if name == "pruned":
        # Down to a twentieth of the weights while it trains on, then four epochs with these.
        pruning = bc.MagnitudePruning(model, keep=0.05, epochs=0.8 * 6)
        model.fit(*parts["train"], batch_size=100, epochs=6, verbose=0, callbacks=[pruning])
        model.optimizer.learning_rate = 3e-4
        model.fit(*parts["train"], batch_size=100, epochs=4, verbose=0)
        bc.free(model)
    return model, parts


def drawn(X: np.ndarray, count: int, seed: int) -> np.ndarray:
    """So many rows, whatever their order: those of a class may follow each other in the files."""
    return X[np.sort(numpy_rng(seed, "calibration").permutation(len(X))[:count])]


def out_first(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Outputs first, as nncodec has them; of a kernel of a convolution inputs, rows and columns after them."""
    return weights.transpose(3, 2, 0, 1) if weights.ndim == 4 else weights.T


def in_keras(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """The inverse of :func:`out_first`."""
    return weights.transpose(2, 3, 1, 0) if weights.ndim == 4 else weights.T


def by_rival(python: str, model: keras.Model, valid: Examples, max_error: float) -> tuple[int, keras.Model, str]:
    """Bytes of the coarsest step whose error on images set aside is at most this, the network, nncodec's version."""
    network = keras.models.clone_model(model)
    with tempfile.TemporaryDirectory() as folder:
        tensors = {f"{i:03}": out_first(weights) for i, weights in enumerate(model.get_weights())}
        np.savez(Path(folder) / "tensors.npz", **tensors)
        write_json(Path(folder) / "steps.json", [int(step) for step in flags.FLAGS.steps])
        answer = bench.answer_of(python, _RIVAL_STEPS, folder)
        # From the fewest bytes on.
        for number in np.argsort(answer["sizes"]):
            with np.load(Path(folder) / f"{number}.npz") as found:
                network.set_weights([in_keras(found[name]) for name in tensors])
            if bc.error_percent(network, valid) <= max_error:
                return answer["sizes"][number], network, answer["version"]
    raise RuntimeError(f"no step of nncodec has an error of at most {max_error} %.")


def by_8_bits(model: keras.Model) -> tuple[int, keras.Model]:
    """Bytes of a network with 8 bits for weights of kernels and float16 for others, and the network."""
    # Integers and steps of kernels as they are stored, and the numbers that they stand for.
    content = []
    values = []
    for weights in model.get_weights():
        if weights.ndim > 1:
            # A step for each unit, so that its largest weight is 127.
            step = np.max(np.abs(weights), axis=tuple(range(weights.ndim - 1)), keepdims=True) / 127
            step = np.maximum(step, np.float32(1e-30))
            integers = np.rint(weights / step).astype(np.int8)
            content += [integers.tobytes(), step.tobytes()]
            values.append(integers * step)
        else:
            content.append(weights.astype(np.float16).tobytes())
            values.append(weights.astype(np.float16).astype(np.float32))
    network = keras.models.clone_model(model)
    network.set_weights(values)
    # The better one of two general coders for all of it.
    joined = b"".join(content)
    return min(len(bz2.compress(joined)), len(lzma.compress(joined))), network


def by_both(
    model: keras.Model, parts: dict[str, Examples], calibration: np.ndarray, python: str, **stops: Any
) -> bench.Row:
    """Bytes and errors of one network.

    :param stops: of `pack`. If it is told an error, nncodec is told the same, else that of the file or of the network.
    """
    # Our file, from which the network is read again.
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        packed = bc.pack(model, Path(folder) / "network.bcz", calibration=calibration, **stops)
        seconds = time.process_time() - start
        ours = bc.load(packed.path, max_bytes=2**32)
    # nncodec may be as wrong as what it is compared with.
    judges = [model] if "validate" in stops else [model, ours]
    most = flags.FLAGS.max_rise + max(bc.error_percent(network, parts["valid"]) for network in judges)
    size, theirs, version = by_rival(python, model, parts["valid"], most)
    return {
        "weights": bc.size_of(model).weights,
        "float_test_percent": bc.error_percent(model, parts["test"]),
        "bytes": packed.bytes,
        "test_percent": bc.error_percent(ours, parts["test"]),
        "nncodec_bytes": size,
        "nncodec_test_percent": bc.error_percent(theirs, parts["test"]),
        "ratio": packed.bytes / size,
        "pack_seconds": seconds,
        "nncodec": version,
    }


def beside(name: str, seed: int, data_dir: str | None, python: str) -> bench.Row:
    """Bytes and errors of one network that is trained here, rounded as far as its error allows."""
    flag = flags.FLAGS
    model, parts = trained(name, seed, data_dir)
    calibration = drawn(np.asarray(parts["train"].X), flag.calibration, seed)

    def validate(network: keras.Model) -> float:
        return bc.error_percent(network, parts["valid"])

    row = by_both(model, parts, calibration, python, validate=validate, max_rise=flag.max_rise)
    return {"network": name, "seed": seed, **row}


def stored(name: str, data_dir: str | None, python: str) -> bench.Row:
    """Bytes and errors of one trained network, rounded without labels to a size."""
    flag = flags.FLAGS
    model = keras.models.load_model(Path(flag.models) / f"{name}.keras", compile=False)
    # Images to calibrate with, to choose by and to judge by.
    dataset = bench.load("cifar10_jpeg", data_dir, "images", num_valid=5000)
    train, test = dataset.parts["train"], dataset.parts["test"]
    # The networks may have learnt from all training images: of the test images a half chooses, the other one judges.
    X, labels = (drawn(part, flag.images or 10_000, 0) for part in test)
    X_train, labels_train = (drawn(part, flag.calibration, 0) for part in train)
    parts = parts_of(
        {"train": (X_train, labels_train), "valid": (X[::2], labels[::2]), "test": (X[1::2], labels[1::2])}
    )
    size = {"bits": flag.bits} if flag.max_bytes is None else {"max_bytes": flag.max_bytes}
    # All three ways of writing it.
    row = by_both(model, parts, np.asarray(parts["train"].X), python, **size)
    int8_bytes, int8 = by_8_bits(model)
    return {
        "network": name,
        **row,
        "bits": 8 * row["bytes"] / row["weights"],
        "int8_bytes": int8_bytes,
        "int8_test_percent": bc.error_percent(int8, parts["test"]),
    }


def main(flag: flags.FlagValues) -> None:
    """Print and write a line for each network, or each kernel of each file."""
    if not (python := os.environ.get("NNCODEC_PYTHON")):
        raise app.UsageError("NNCODEC_PYTHON must be a Python that has nncodec; see above how to install it.")
    pairs = [(name, seed) for name in flag.networks for seed in map(int, flag.seeds)]
    rows = itertools.chain(
        (stored(name, flag.data_dir, python) for name in flag.networks if flag.models),
        (beside(*pair, flag.data_dir, python) for pair in pairs if not flag.models),
        (row for file in flag.files for row in rows_of(file, python)),
    )
    bench.write_rows(rows, "see --files, and as gpflow_deep_runs.data checks it")


if __name__ == "__main__":
    bench.run(define_flags, main)
