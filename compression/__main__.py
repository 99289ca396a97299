"""What is in a `.bcz` file, the same for other programs, and whether both give the same.

bcz info model.bcz
bcz export model.bcz --to tflite --output model.tflite
bcz verify model.bcz --to tflite

`python -m compression` is the same command.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpflow_deep_base.files import atomic_path, files_below
from gpflow_deep_base.storage.container import read_npy, read_npz

from .files.checking import random_input
from .files.coding.kernel_coding import SCHEMES
from .files.container import Contents, load_bcz, read_bcz
from .files.contents import MAGIC, VERSION_OF_WEIGHTS
from .files.weights_file import StoredVariable, read_weights
from .graph.graph import Graph, Nested

if TYPE_CHECKING:
    import keras

__all__ = ["main", "table"]

_ENDINGS = {"tflite": ".tflite", "onnx": ".onnx", "keras": ".keras", "npz": ".npz", "saved_model": ""}
_ROWS = 3
_TOLERANCE = {"tflite": 1e-4, "onnx": 1e-4, "keras": 0.0, "npz": 0.0, "saved_model": 1e-5}
"""Of the largest output: the same operations by other programs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; errors are one line and code 2, and what does not give the same is code 1."""
    parser = argparse.ArgumentParser("bcz", description="What is in a .bcz file, and the same for other programs.")
    commands = parser.add_subparsers(dest="command", required=True)
    info = commands.add_parser("info", help="layers, codings, bits and rates")
    export = commands.add_parser("export", help="write the network for other programs")
    verify = commands.add_parser("verify", help="read the file, make its network, and compare an export of it")
    for command in (info, export, verify):
        command.add_argument("file", help="written by compression.pack, save_bcz or gpflow-deep compress")
    for command in (export, verify):
        command.add_argument("--to", choices=_ENDINGS, required=command is export, help="the program or form")
        typical = "tflite in integers, by typical inputs in an .npy file, several by their names in an .npz file"
        command.add_argument("--int8", metavar="FILE", help=typical)
    export.add_argument("--output", help="where to; the file with another ending if not given")
    flags = parser.parse_args(arguments)
    if flags.command != "info" and flags.int8 and flags.to != "tflite":
        parser.error("--int8 goes with --to tflite")
    # Errors of the user's are one line, whatever raised them.
    try:
        run: Callable[[argparse.Namespace], int] = {"info": _info, "export": _export, "verify": _verify}[flags.command]
        return run(flags)
    except (OSError, ValueError) as error:
        print(f"bcz: error: {error}", file=sys.stderr)
        return 2


def _has_weights_only(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(len(MAGIC) + 1) == MAGIC + bytes([VERSION_OF_WEIGHTS])


def _info(flags: argparse.Namespace) -> int:
    if _has_weights_only(flags.file):
        rows = _table_of_weights(read_weights(flags.file), os.path.getsize(flags.file))
        print("weights only: the code of its user makes the network")
    else:
        contents = read_bcz(flags.file)
        print(f"inputs {_inputs(contents.graph)}:", *(type(layer).__name__ for layer in contents.layers))
        rows = table(contents)
    # Words to the left, numbers to the right.
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            f"{cell:<{width}}" if i < 3 else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells).rstrip())
    return 0


def _inputs(graph: Graph) -> str:
    """Shapes without the axis of examples; of several inputs names and types, too."""
    tensors = [graph.tensors[number] for number in graph.input_numbers]
    if len(tensors) == 1:
        return str(tensors[0].shape[1:])
    return ", ".join(f"{tensor.name} {tensor.shape[1:]} {tensor.dtype}".strip() for tensor in tensors)


def _export(flags: argparse.Namespace) -> int:
    # Weights alone as arrays; a network in any form.
    output = Path(flags.output).expanduser() if flags.output else Path(flags.file).with_suffix(_ENDINGS[flags.to])
    if _has_weights_only(flags.file):
        if flags.to != "npz":
            raise ValueError(f"{flags.file} holds weights only, which can be exported to npz.")
        variables = read_weights(flags.file)
        arrays: dict[str, Any] = {
            f"{number}_{variable.name}": variable.values for number, variable in enumerate(variables)
        }
        with atomic_path(output) as temporary, open(temporary, "wb") as file:
            np.savez_compressed(file, **arrays)
    else:
        model = load_bcz(flags.file)
        _written(model, flags.to, output, flags.int8 and _typical(model, flags.int8))
    # A SavedModel is a folder.
    size = output.stat().st_size if output.is_file() else sum(facts.st_size for facts in files_below(output).values())
    print(f"{output}: {size:,} bytes, {os.path.getsize(flags.file):,} in {flags.file}")
    return 0


def _typical(model: keras.Model, path: str) -> dict[str, np.ndarray]:
    """Inputs in a file, by name.

    :raises ValueError: if it has other inputs than the network.
    """
    # One array, or several by the names of the inputs.
    names = [tensor.name for tensor in model.inputs]
    arrays = read_npz(path) if len(names) > 1 else {names[0]: read_npy(path)}
    if set(arrays) != set(names):
        raise ValueError(f"{path} must have the inputs {', '.join(names)}, got {', '.join(sorted(arrays)) or 'none'}.")
    return {name: arrays[name] for name in names}


def _written(model: keras.Model, kind: str, output: Path, int8: dict[str, np.ndarray] | None) -> None:
    """Write a network in one of the forms; for TensorFlow Lite in integers by these inputs."""
    from .files import export
    from .graph.portable import portable

    if kind == "tflite":
        examples = None if int8 is None else _nested(model, list(int8.values()))
        export.export_tflite(model, output, kind="float32" if int8 is None else "int8", representative=examples)
    elif kind == "onnx":
        export.export_onnx(model, output)
    elif kind == "npz":
        export.export_npz(model, output)
    elif kind == "saved_model":
        export.export_saved_model(model, output)
    else:
        portable(model).save(output)


def _verify(flags: argparse.Namespace) -> int:
    if _has_weights_only(flags.file):
        variables = read_weights(flags.file)
        print(f"{flags.file}: {len(variables)} variables, whole")
        return 0
    model = load_bcz(flags.file)
    int8 = flags.int8 and _typical(model, flags.int8)
    rng = np.random.default_rng(0)
    inputs = {
        tensor.name: int8[tensor.name][:_ROWS] if int8 else random_input(tensor, rng).numpy() for tensor in model.inputs
    }
    # The same inputs for the network and for what was exported.
    expected = _outputs(model, inputs)
    is_finite = all(np.all(np.isfinite(part)) for part in expected if part.dtype.kind == "f")
    print(f"{flags.file}: whole, {model.count_params():,} weights, outputs {'finite' if is_finite else 'NOT FINITE'}")
    if flags.to is None:
        return 0 if is_finite else 1
    # Export to a folder that goes away, and compare what comes out.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "network" + _ENDINGS[flags.to])
        _written(model, flags.to, path, int8)
        difference = _difference(model, flags.to, path, inputs, expected)
    allowed = 0.1 if flags.int8 else _TOLERANCE[flags.to]
    print(
        f"{flags.to}: largest difference {difference:.2g} of the largest {'weight' if flags.to == 'npz' else 'output'}"
    )
    return 0 if is_finite and difference <= allowed else 1


def _outputs(
    model: keras.Model, inputs: dict[str, np.ndarray], call: Callable[[Nested], Nested] | None = None
) -> list[np.ndarray]:
    """Of `call`, which takes and gives what the network does; of the network itself if there is none."""
    import keras
    import tensorflow as tf

    nested_inputs = _nested(model, [tf.convert_to_tensor(inputs[tensor.name], tensor.dtype) for tensor in model.inputs])
    return [
        np.asarray(part) for part in keras.tree.flatten(model(nested_inputs) if call is None else call(nested_inputs))
    ]


def _nested(model: keras.Model, inputs: list[np.ndarray]) -> Nested:
    """Inputs as the network takes them."""
    import keras

    return keras.tree.pack_sequence_as(model._inputs_struct, inputs) if len(inputs) > 1 else inputs[0]


def _difference(
    model: keras.Model, kind: str, path: Path, inputs: dict[str, np.ndarray], expected: list[np.ndarray]
) -> float:
    """The largest difference of what was exported, over the largest number there is."""
    import keras
    import tensorflow as tf

    from .files.export import served, tflite_outputs
    from .graph.graph import graph_of, layers_of

    # Weights are compared with weights, and what other programs compute with the outputs.
    if kind == "npz":
        with np.load(path) as stored:
            names = [name for name in stored.files if not name.endswith("/indices")]
            weights = [np.asarray(variable) for node in layers_of(graph_of(model)) for variable in node.layer.weights]
            pairs = [(stored[name], weight) for name, weight in zip(names, weights, strict=True)]
    elif kind == "keras":
        pairs = list(zip(_outputs(keras.models.load_model(path), inputs), expected, strict=True))
    elif kind == "saved_model":
        loaded = tf.saved_model.load(str(path))
        pairs = list(zip(_outputs(served(model), inputs, loaded.serve), expected, strict=True))
    elif kind == "tflite":
        outputs = tflite_outputs(path, inputs if len(inputs) > 1 else next(iter(inputs.values())))
        pairs = list(zip(outputs, expected, strict=True))
    else:
        try:
            import onnxruntime
        except ImportError as error:
            raise ValueError(
                "to compare an ONNX file takes the package onnxruntime: pip install onnxruntime"
            ) from error
        session = onnxruntime.InferenceSession(path)
        pairs = list(zip(session.run(None, inputs), expected, strict=True))
    # The tolerance is of the largest output there is.
    scale = max(_largest(reference) for _, reference in pairs) or 1.0
    return max(_apart(exported, reference) for exported, reference in pairs) / scale


def _largest(part: np.ndarray) -> float:
    """The largest number; 0 of words."""
    return float(np.max(np.abs(part.astype(np.float64)), initial=0.0)) if part.dtype.kind in "biuf" else 0.0


def _apart(exported: np.ndarray, reference: np.ndarray) -> float:
    """The largest difference; infinite of words that are others."""
    if reference.dtype.kind in "biuf":
        return _largest(exported.astype(np.float64) - reference.astype(np.float64))
    return 0.0 if np.array_equal(exported, reference) else math.inf


def table(found: Contents) -> list[list[str]]:
    """Rows of text: a heading, each layer with its weights, and all of them."""
    rows = [["layer", "kernel", "coding", "weights", "not 0", "values", "bytes", "bits/weight", "times smaller"]]
    total = not_zero = 0
    for stored in found.weights:
        # Numbers of a layer, those that are not 0, and how many values the kernel has.
        count = stored.kernel.size + (0 if stored.bias is None else stored.bias.size)
        total += count
        nonzero = sum(int(np.count_nonzero(part)) for part in (stored.kernel, stored.bias) if part is not None)
        not_zero += nonzero
        values = str(len(set(stored.kernel.ravel().tolist())))
        size = " x ".join(map(str, stored.shape))
        rows.append(
            [stored.kind, size, stored.coding, f"{count:,}", f"{nonzero:,}", values, *_rates(count, stored.bytes)]
        )
    biases = found.biases if isinstance(found.biases, str) else f"in 2**-{found.biases}"
    cells = [f"biases {biases}", f"version {found.version}", f"{total:,}", f"{not_zero:,}", ""]
    return [*rows, ["file", *cells, *_rates(total, found.bytes)]]


def _table_of_weights(found: Sequence[StoredVariable], num_bytes: int) -> list[list[str]]:
    """Rows of text: a heading, each variable, and all of them."""
    rows = [["variable", "type", "shape", "coding", "numbers", "bytes", "bits/number", "times smaller"]]
    for variable in found:
        coding = SCHEMES.get(variable.scheme, "as they are" if variable.scheme == 16 else "bytes")
        shape = " x ".join(map(str, variable.values.shape)) or "one"
        rates = _rates(variable.values.size, variable.bytes)
        rows.append([variable.name, variable.values.dtype.name, shape, coding, f"{variable.values.size:,}", *rates])
    total = sum(stored.values.size for stored in found)
    return [*rows, ["file", "", "", "", f"{total:,}", *_rates(total, num_bytes)]]


def _rates(count: int, num_bytes: int) -> list[str]:
    return [f"{num_bytes:,}", f"{8 * num_bytes / max(1, count):.2f}", f"{4 * count / max(1, num_bytes):.1f}"]


if __name__ == "__main__":
    sys.exit(main())
