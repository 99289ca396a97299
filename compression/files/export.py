"""Write a shrunk network for use elsewhere: SavedModel, TensorFlow Lite (float32, float16, int8), ONNX, NumPy."""

import contextlib
import importlib.util
import inspect
import io
import os
import re
import shutil
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from compression.graph.graph import Nested, graph_of, has_shape
from compression.graph.portable import portable
from compression.graph.rebuild import copied, copy_of
from compression.graph.supported import IDLE_IN_FILES, OPERATIONS
from gpflow_deep_base.files import atomic_path, entries, write_bytes
from gpflow_deep_base.storage.limits import one_line

if TYPE_CHECKING:
    from tensorflow.lite.python.interpreter import SignatureRunner

__all__ = [
    "TFLITE_KINDS",
    "distinct_names",
    "export_all",
    "export_npz",
    "export_onnx",
    "export_saved_model",
    "export_tflite",
    "is_new_folder",
    "served",
    "tflite_outputs",
]

TFLITE_KINDS = ("float32", "float16", "int8")


def export_all(model: keras.Model, path: str | os.PathLike[str], representative: object) -> None:
    """Write a network in every form: `saved_model/`, `KIND.tflite` for each of `TFLITE_KINDS`, `weights.npz` and
    `network.keras`, which loads without this package, and `network.onnx` where the package tf2onnx is installed.

    :param path: a folder that does not exist yet, or is empty.
    :param representative: typical inputs for int8, see :func:`export_tflite`.
    :raises ValueError: if there is something at `path`, or as :func:`export_tflite` and :func:`export_npz`.
    """
    folder = Path(path).expanduser()
    if not is_new_folder(folder):
        raise ValueError(f"{folder} must be a new or empty folder; remove it, or give another.")
    folder.mkdir(parents=True, exist_ok=True)
    export_saved_model(model, folder / "saved_model")
    for kind in TFLITE_KINDS:
        export_tflite(model, folder / f"{kind}.tflite", kind=kind, representative=representative)
    export_npz(model, folder / "weights.npz")
    portable(model).save(folder / "network.keras")
    if importlib.util.find_spec("tf2onnx") is not None:
        export_onnx(model, folder / "network.onnx")


def is_new_folder(path: str | os.PathLike[str]) -> bool:
    """Whether there is nothing at `path`, or an empty folder."""
    folder = Path(path).expanduser()
    return not folder.exists() or (folder.is_dir() and not entries(folder))


def export_saved_model(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Write a SavedModel folder with one signature, `serve`; needs no code of this package to run.

    :param path: a folder that does not exist yet, or is empty.
    :raises ValueError: if there is something at `path`.
    """
    folder = Path(path).expanduser()
    if not is_new_folder(folder):
        raise ValueError(f"{folder} must be a new or empty folder; remove it, or give another.")
    # Beside the folder, so that renaming is one act of the file system.
    temporary = folder.with_name(f".tmp-{uuid.uuid4().hex[:8]}-{folder.name}")
    try:
        served(_with(model, _BY_STEPS)).export(str(temporary), verbose=False)
        if folder.exists():
            folder.rmdir()
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def served(model: keras.Model) -> keras.Model:
    """The network that a SavedModel is made of: with lists of tensors in place of what is nested in what is nested."""
    struct = getattr(model, "_functional", model)
    # SavedModel takes one level of nesting.
    parts = [struct._inputs_struct, struct._outputs_struct]
    for _ in range(2):
        parts = [part for nested in parts if keras.tree.is_nested(nested) for part in _inside(nested)]
    return _flat(model) if parts else model


def _inside(struct: Nested) -> list[Nested]:
    return list(struct.values() if isinstance(struct, dict) else struct)


def export_tflite(
    model: keras.Model,
    path: str | os.PathLike[str],
    *,
    kind: str = "float32",
    representative: object = None,
) -> int:
    """Write a TensorFlow Lite file.

    :param kind: "float32"; "float16", which halves the file and not the time; or "int8", in which weights and
        activations are 8-bit integers and inputs and outputs stay as they are.
    :param representative: for int8, 100 or more typical inputs [n, ...], of several inputs nested as the model takes
        them: the ranges of activations come from them.
    :return: size of the file in bytes.
    :raises ValueError: if the kind is not known, int8 has no representative inputs of the network's shape, or
        TensorFlow Lite has no such operations.
    """
    # What is asked for, then layers for which TensorFlow Lite has no operations.
    if kind not in TFLITE_KINDS:
        raise ValueError(f"kind must be one of {', '.join(TFLITE_KINDS)}, got {kind!r}.")
    examples = _examples(model, representative) if kind == "int8" else []
    model = _with(model, _BY_STEPS | {OPERATIONS[name]: _PlaceOf for name in ("Argmax", "Argmin")})
    try:
        content = _that_runs(model, _tflite_bytes(_flat(model), kind, examples))
    except Exception as error:  # there is no common class of its errors
        try:  # loops over time need to know how many examples there are
            content = _that_runs(model, _tflite_bytes(_flat(model, 1), kind, examples))
        except Exception as second_error:
            cause = _missing(str(second_error)) or _missing(str(error)) or one_line(error)
            raise ValueError(f"TensorFlow Lite cannot hold the network {model.name}: {cause}.") from error
    write_bytes(path, content)
    return len(content)


def _that_runs(model: keras.Model, content: bytes) -> bytes:
    """The content of a file if an example runs through it: what is converted may still fail at its first operation."""
    zeros = _zeros(model)
    try:
        model(keras.tree.pack_sequence_as(model.input, zeros), training=False)
    except Exception:  # no example of this size: nothing can be said
        return content
    # The same example through what was converted.
    run = _runner(model_content=content)
    by_name = {tensor.name: array for tensor, array in zip(model.inputs, zeros, strict=True)}
    run(**{name: np.asarray(by_name[name], part["dtype"]) for name, part in run.get_input_details().items()})
    return content


def _zeros(model: keras.Model) -> list[np.ndarray]:
    """One example of zeros, or empty texts, for each input; 32 of what there may be any number of."""
    shapes = [(1, *(size or 32 for size in tensor.shape[1:])) for tensor in model.inputs]
    types = [np.str_ if tensor.dtype == "string" else tensor.dtype for tensor in model.inputs]
    return [np.zeros(shape, kind) for shape, kind in zip(shapes, types, strict=True)]


def _runner(**content: str | bytes) -> "SignatureRunner":
    """The signature of a file that the interpreter of TensorFlow Lite has read."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"[\s\S]*tf.lite.Interpreter is deprecated")
        return tf.lite.Interpreter(**content).get_signature_runner()


def _missing(message: str) -> str:
    """Which operations the converter of TensorFlow Lite did not find; "" if it says of none."""
    if "'tf.TensorListReserve' op requires element_shape" in message:
        return "it has no loop over time behind an operation that leaves the number of examples open, such as a lookup"
    names = sorted(set(re.findall(r"'tf\.(\w+)' op is neither", message)))
    # Of many operations only those of some types are missing.
    doubles = set(re.findall(r"tf\.(\w+)\(tensor<(?:[?\d]+x)*f64>", message))
    said = [f"{name} of float64" if name in doubles else name for name in names]
    return f"it has no {', '.join(said)} of TensorFlow" if names else ""


def _with(model: keras.Model, instead: dict[type, Callable[[keras.Operation], keras.Layer]]) -> keras.Model:
    """The same network with other layers in place of some kinds; the network itself if it has none of these."""
    return copy_of(model, instead) if any(type(node.layer) in instead for node in graph_of(model).nodes) else model


class _EachStep(keras.layers.Layer):
    """`TimeDistributed` in one call for all steps: that of Keras takes the number of examples for that of steps where a
    function is made for any number of both."""

    def __init__(self, wrapper: keras.layers.TimeDistributed) -> None:
        super().__init__(name=wrapper.name)
        self.supports_masking = True
        self._wrapper = copied(wrapper, wrapper.name)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self._wrapper.build(input_shape)

    def call(self, x: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
        # Steps become examples, are called once, and become steps again.
        layer = self._wrapper.layer
        takes_mask = mask is not None and "mask" in inspect.signature(layer.call).parameters
        outputs = layer(_joined(x), **({"mask": _joined(mask)} if takes_mask else {}))
        return tf.reshape(outputs, [*_sizes(x)[:2], *_sizes(outputs)[1:]])

    def compute_output_spec(self, x: keras.KerasTensor, mask: object = None) -> keras.KerasTensor:
        return self._wrapper.compute_output_spec(x)


_BY_STEPS: dict[type, Callable[[keras.Operation], keras.Layer]] = {keras.layers.TimeDistributed: _EachStep}


def _sizes(x: tf.Tensor) -> list[int | tf.Tensor]:
    """Of all axes, as numbers where they are known."""
    return [tf.shape(x)[axis] if size is None else size for axis, size in enumerate(x.shape)]


def _joined(x: tf.Tensor) -> tf.Tensor:
    """Steps of all examples one after the other."""
    return tf.reshape(x, [-1, *_sizes(x)[2:]])


class _PlaceOf(keras.layers.Layer):
    """The place of the largest or smallest number by TensorFlow: Keras looks at bits for the sign of 0, for which
    TensorFlow Lite has no operation."""

    def __init__(self, operation: keras.Operation) -> None:
        super().__init__(name=operation.name, autocast=False)
        self._operation = operation

    def call(self, x: tf.Tensor) -> tf.Tensor:
        # Along an axis, or of all numbers.
        find = tf.argmax if isinstance(self._operation, OPERATIONS["Argmax"]) else tf.argmin
        axis = self._operation.axis
        if axis is None:
            places = find(tf.reshape(x, [-1]), output_type=tf.int32)
            return tf.reshape(places, [1] * len(x.shape)) if self._operation.keepdims else places
        places = find(x, axis, output_type=tf.int32)
        return tf.expand_dims(places, axis) if self._operation.keepdims else places

    def compute_output_spec(self, x: keras.KerasTensor) -> keras.KerasTensor:
        return self._operation.compute_output_spec(x)


def _tflite_bytes(model: keras.Model, kind: str, examples: list[np.ndarray]) -> bytes:
    # Weights of 4 bytes, of 2, or of 1 with ranges of activations by typical inputs.
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if kind != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if kind == "int8":
        examples_by_name = {part.name: array for part, array in zip(model.inputs, examples, strict=True)}
        # Ranges of activations by one example after the other.
        converter.representative_dataset = lambda: (
            {name: array[i : i + 1] for name, array in examples_by_name.items()} for i in range(len(examples[0]))
        )
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Statistics for quantized inputs were expected")
        content: bytes = converter.convert()
    return content


def _flat(model: keras.Model, num_examples: int | None = None) -> keras.Model:
    """The same network with lists of inputs and outputs in place of what they are nested in."""
    if num_examples is None:
        return model if len(model.inputs) == len(model.outputs) == 1 else keras.Model(model.inputs, model.outputs)
    inputs = [
        keras.Input(batch_shape=(num_examples, *tensor.shape[1:]), dtype=tensor.dtype, name=tensor.name)
        for tensor in model.inputs
    ]
    # The network is called on inputs of this many examples, nested as it takes them.
    struct = getattr(model, "_functional", model)._inputs_struct
    outputs = model(keras.tree.pack_sequence_as(struct, inputs) if len(inputs) > 1 else inputs[0])
    return keras.Model(inputs, keras.tree.flatten(outputs))


def _examples(model: keras.Model, representative: Nested) -> list[np.ndarray]:
    """Representative inputs, one array for each input of the network, of its type.

    :raises ValueError: if numbers or shapes differ.
    """
    # One array alone, or several in what they are nested in.
    candidates = [] if representative is None else [representative]
    if len(model.inputs) > 1 and isinstance(representative, list | tuple | dict):
        candidates = keras.tree.flatten(representative)
    # One array for each input, of its shape and type, with equally many examples.
    if len(candidates) == len(model.inputs):
        arrays = [np.asarray(part, tensor.dtype) for part, tensor in zip(candidates, model.inputs, strict=True)]
        fits = all(has_shape(part, tensor.shape) for part, tensor in zip(arrays, model.inputs, strict=True))
        if fits and len({len(part) for part in arrays}) == 1 and len(arrays[0]):
            return arrays
    expected_shapes = " and ".join(f"(n, {', '.join(map(str, tensor.shape[1:]))})" for tensor in model.inputs)
    got = " and ".join(str(np.shape(part)) for part in candidates) or "none"
    raise ValueError(f"int8 needs representative inputs of shape {expected_shapes}, got {got}.")


def export_onnx(model: keras.Model, path: str | os.PathLike[str]) -> int:
    """Write an ONNX file by `keras.Model.export`, for ONNX Runtime and others; its inputs have the network's names.

    :return: size of the file in bytes.
    :raises ValueError: if the package tf2onnx is not installed, or ONNX has no such operations.
    """
    if importlib.util.find_spec("tf2onnx") is None:
        raise ValueError("an ONNX file needs the package tf2onnx: pip install tf2onnx")
    model = _flat(_with(model, _BY_STEPS))
    with atomic_path(path) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "In the future `np.object`", FutureWarning)
        try:
            zeros = _zeros(model)
            model(zeros if len(zeros) > 1 else zeros[0])  # Keras wants it to have been called
            _add_erfc()
            model.export(str(temporary), format="onnx", verbose=False)
            # What it does not know tf2onnx writes as it is, and says so in its log alone.
            importlib.import_module("onnx").checker.check_model(str(temporary))
        except Exception as error:
            raise ValueError(f"ONNX cannot hold the network {model.name}: {one_line(error)}") from error
    return os.path.getsize(path)


def _add_erfc() -> None:
    """Tell tf2onnx how to convert `Erfc`, of which Keras makes `gelu`, by 1 - Erf."""
    utils = importlib.import_module("tf2onnx.utils")

    def convert(context: Any, node: Any, **_: object) -> None:
        # erfc x = 1 - erf x, by a constant and a difference behind the node.
        node.type = "Erf"
        kind = utils.map_onnx_to_numpy_type(context.get_dtype(node.input[0]))
        one = context.make_const(utils.make_name("one"), np.ones((), kind))
        context.insert_new_node_on_output("Sub", node.output[0], inputs=[one.output[0], node.output[0]])

    tf_op = importlib.import_module("tf2onnx.handler").tf_op
    tf_op.register_handler(convert, 9, ["Erfc"], "", {})


def tflite_outputs(path: str | os.PathLike[str], X: ArrayLike | Mapping[str, ArrayLike]) -> list[np.ndarray]:
    """Outputs of a file of :func:`export_tflite` for inputs [n, ...], one example at a time.

    By `tf.lite.Interpreter`, which TensorFlow is going to remove; the package ai-edge-litert has the same class.

    :param X: the inputs; of several inputs a dictionary by the names of the network's.
    :return: for each output of the network, in its order.
    :raises ValueError: if inputs are missing, unknown or of other shapes.
    """
    run = _runner(model_path=os.fspath(path))
    # The inputs of the signature by name.
    sources = run.get_input_details()
    inputs = X if isinstance(X, Mapping) else dict.fromkeys(list(sources)[:1], X)
    if set(inputs) != set(sources):
        raise ValueError(f"{os.fspath(path)} has the inputs {sorted(sources)}, got {sorted(inputs)}.")
    arrays = {name: np.asarray(inputs[name], details["dtype"]) for name, details in sources.items()}
    count = len(next(iter(arrays.values())))
    for name, array in arrays.items():
        shape = [None if size < 0 else int(size) for size in sources[name]["shape_signature"]]
        if not has_shape(array, shape) or len(array) != count or not count:
            sizes = ", ".join("any" if size is None else str(size) for size in shape[1:])
            raise ValueError(
                f"{name} must have one row or more of shape [n, {sizes}], as many as others, got {array.shape}."
            )
    outputs = [run(**{name: array[i : i + 1] for name, array in arrays.items()}) for i in range(count)]
    names = sorted(run.get_output_details(), key=lambda name: (len(name), name))  # output_0 and so on
    return [np.concatenate([output[name] for output in outputs]) for name in names]


def export_npz(model: keras.Model, path: str | os.PathLike[str]) -> int:
    """Write weights as NumPy arrays: `0_selectinputs/indices`, `1_dense/kernel`, `1_dense/bias` and so on.

    Numbers count the layers in the order of their calls, and names are kinds of layers. Where variables of a layer have
    the same name, that of what they are part of stands before it: `2_multiheadattention/query/kernel`.

    :return: size of the file in bytes.
    :raises ValueError: if the network is not built.
    """
    # Each layer once, in the order of calls, with its variables by short names.
    arrays: dict[str, Any] = {}
    layers = {node.name: node.layer for node in graph_of(model).nodes if type(node.layer) not in IDLE_IN_FILES}
    for number, layer in enumerate(layers.values()):
        name = f"{number}_{type(layer).__name__.lower()}"
        variables = list(getattr(layer, "weights", ()))
        parts = dict(zip(distinct_names([variable.path for variable in variables]), variables, strict=True))
        if hasattr(layer, "indices"):
            parts["indices"] = layer.indices
        arrays |= {f"{name}/{part}": np.asarray(value) for part, value in parts.items()}
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)
    return os.path.getsize(path)


def distinct_names(paths: Sequence[str]) -> list[str]:
    """The last parts of each path, as few as tell it from all others; a number behind those that are the same."""
    names: list[str] = []
    for path in paths:
        # One part more from the end as long as another path ends in the same ones.
        parts = path.split("/")
        others = [other.split("/") for other in paths if other != path]
        length = 1
        while length < len(parts) and any(other[-length:] == parts[-length:] for other in others):
            length += 1
        name = "/".join(parts[-length:])
        count = paths[: len(names)].count(path)
        names.append(f"{name}_{count}" if count else name)
    return names
