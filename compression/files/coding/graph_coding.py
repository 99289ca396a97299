"""Networks of any graph in a `.bcz` file, see `container`.

Layers and calls are a text, compressed JSON: kinds of layers that are on a list, with their settings as numbers, words
and lists, never code. What it says of sizes is checked before room is made for weights.
"""

import base64
import inspect
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from gpflow_deep_base.files import parse_json
from gpflow_deep_base.storage.frame import leb128
from gpflow_deep_base.storage.limits import Budget, inflated, most_text, one_line

from ...graph.graph import Graph, Node, Ref, Tensor, bypassed, clone, graph_of, in_order, is_chain
from ...graph.kinds import weights_problem
from ...graph.rebuild import LOOKUPS, adapted_settings
from ...graph.supported import (
    ACTIVATIONS,
    IDLE_IN_FILES,
    STORED,
    WRAPPERS,
    activation_name,
    is_custom,
    is_operation,
    kind_name,
    kind_named,
    layer_types,
)
from .chain_coding import MAX_AXES, MAX_LAYERS
from .costs import take_input, take_settings, take_time, take_weights
from .kernel_coding import Reader

__all__ = [
    "check_call",
    "check_layer",
    "for_files",
    "graph_bytes",
    "outline",
    "read_graph",
    "stored_weights",
    "without_masks",
]

_PER_CHARACTER = 40  # bytes of the objects that are made of it
_MAX_NAME = 200
_MAX_OUTPUTS = 16
_MAX_WRAPPERS = 3
# settings that are lists of layers
_SEVERAL = ("cells", "layers")
_MOST_PARTS = 64
_MAX_CONSTANT = 2**20  # numbers of an array among the arguments of a call
_NUMBERS = (
    *("float32", "float16", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    "bool",
)
_TYPES = (*_NUMBERS, "bfloat16", "string")
_TRAINING = ("_initializer", "_regularizer", "_constraint")
_LEFT_OUT = ("name", "trainable", "dtype", "autocast", "seed", "unroll", "dropout", "recurrent_dropout", "synchronized")
_FORBIDDEN = ("weights", "lora", "quantization", "gptq", "awq")
_ELSE = "pack_weights() writes the weights of any network."
_Json = dict[str, Any]
_ACTIVATION_LAYERS = layer_types("Activation", "ReLU", "LeakyReLU", "ELU", "Softmax")
_ENDS_IN_ACTIVATION = layer_types(
    *("Dense", "EinsumDense", "Conv1D", "Conv2D", "Conv3D", "Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"),
    *("DepthwiseConv1D", "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D"),
)


def for_files(graph: Graph) -> Graph:
    """The graph without the layers that do nothing at test time, and with layers that are activations behind others."""
    return bypassed(_activations_behind(graph), lambda node: _is_idle(node.layer))


def _activations_behind(graph: Graph) -> Graph:
    """The graph in which a layer that is the activation of another one is a call of its own."""
    nodes: list[Node] = []
    tensors = [*graph.tensors]
    plain_layers: dict[str, keras.Layer] = {}
    for node in graph.nodes:
        activation = getattr(node.layer, "activation", None)
        if type(node.layer) not in _ENDS_IN_ACTIVATION or type(activation) not in _ACTIVATION_LAYERS:
            nodes.append(node)
            continue
        # The same layer without activation, however often it is called.
        if node.name not in plain_layers:
            plain = clone(node.layer, activation="linear")
            plain.build_from_config(node.layer.get_build_config())
            plain.set_weights(node.layer.get_weights())
            plain_layers[node.name] = plain
        between = len(tensors)
        tensors.append(graph.tensors[node.outputs[0]])
        nodes.append(node._replace(layer=plain_layers[node.name], outputs=(between,)))
        nodes.append(Node(activation, f"{node.name}_activation", (Ref(between),), {}, node.outputs))
    return graph._replace(nodes=nodes, tensors=tensors)


def _is_idle(layer: keras.layers.Layer) -> bool:
    """Whether a layer does nothing at test time, or is a pipeline of such layers."""
    is_pipeline = type(layer) in WRAPPERS and "layers" in WRAPPERS[type(layer)]
    return type(layer) in IDLE_IN_FILES or (is_pipeline and all(map(_is_idle, layer.layers)))


def without_masks(graph: Graph) -> Graph:
    """The graph without the masks that Keras makes by itself when it calls layers."""
    nodes = [
        node._replace(kwargs={k: v for k, v in node.kwargs.items() if k not in node.masks}) for node in graph.nodes
    ]
    return in_order(graph._replace(nodes=nodes))


def _numbers(part: object) -> set[int]:
    return {leaf.number for leaf in keras.tree.flatten(part) if isinstance(leaf, Ref)}


def check_call(node: Node) -> None:
    """Refuse a call with an argument that no file can hold.

    :raises ValueError: naming the layer.
    """
    if unknown := set(node.kwargs) - _arguments_of(type(node.layer)):
        raise ValueError(f"layer {node.name!r} is called with {sorted(unknown)[0]}=, which a file cannot hold.")
    numbers = {number: number for number in node.sources}
    try:
        _plain([list(node.args), node.kwargs], numbers)
    except ValueError as error:
        raise ValueError(f"layer {node.name!r} {error}") from error


def _arguments_of(kind: type) -> set[str]:
    """Arguments that a call of a kind of layer may have."""
    return set(inspect.signature(kind.call).parameters) - {"self", "training", "args", "kwargs"}  # type: ignore[attr-defined]


def outline(graph: Graph) -> list[object]:
    """What a graph is, without names and weights: two graphs are the same if these are equal."""
    # Numbers of tensors and of layers in the order in which they come up, whatever they were.
    renumbered = {number: new for new, number in enumerate(graph.input_numbers)}
    places: dict[str, int] = {}
    calls: list[object] = []
    for node in graph.nodes:
        args, kwargs = _plain([list(node.args), node.kwargs], renumbered, str)
        renumbered |= {number: len(renumbered) + i for i, number in enumerate(node.outputs)}
        settings = _settings(node.layer)
        place = places.setdefault(node.name, len(places))
        calls.append([type(node.layer).__name__, place, settings, args, kwargs, len(node.outputs)])
    inputs = [[list(graph.tensors[number].shape[1:]), graph.tensors[number].dtype] for number in graph.input_numbers]
    return [inputs, _plain(graph.inputs, renumbered), _plain(graph.outputs, renumbered), calls]


def check_layer(name: str, layer: keras.layers.Layer) -> None:
    """Refuse a layer that no file can hold.

    :raises ValueError: naming the layer and the cause.
    """
    kind = type(layer).__name__
    # Operations of Keras that are on the list, with settings that a file can hold.
    if not isinstance(layer, keras.Layer):
        if kind_name(layer) is None:
            raise ValueError(
                f"{name!r} is the operation {kind} of {type(layer).__module__}, and files hold layers and common "
                f"operations of keras.ops; {_ELSE}"
            )
        try:
            settings = _settings(layer)
            for key, value in settings.items():
                _check_setting(key, value)
        except (ValueError, NotImplementedError) as error:
            raise ValueError(f"the operation {name!r} ({kind}) cannot be held by a file: {one_line(error)}.") from error
        return
    if kind_name(layer) is None:
        description = f"a {kind}"
        if kind in STORED:
            description += f" of {type(layer).__module__}, another class than keras.layers.{kind}"
        raise ValueError(
            f"layer {name!r} is {description}, and files hold layers of Keras without code of their own, and those in "
            f"custom_objects=; {_ELSE}"
        )
    # What a file has no place for: states, quantised weights, other types, functions of the user's own.
    if any(getattr(part, "stateful", False) for part in layer._flatten_layers()):
        raise ValueError(
            f"layer {name!r} keeps states from batch to batch (stateful=True), and files hold none; {_ELSE}"
        )
    if problem := weights_problem(layer):
        raise ValueError(f"layer {name!r} {problem}.")
    if layer.weights and layer.variable_dtype != "float32":
        raise ValueError(f"layer {name!r} must have weights in float32, got {layer.variable_dtype}; {_ELSE}")
    if activation_name(layer) == "":
        label = getattr(layer.activation, "__name__", repr(layer.activation))
        raise ValueError(
            f"layer {name!r} has the activation {label}, and files hold those of keras.activations; put another behind "
            "it, as a layer or an operation of its own."
        )
    try:
        settings = _settings(layer)
        if not _keys_of(type(layer)).issuperset(settings):
            raise ValueError(f"the settings {sorted(set(settings) - _keys_of(type(layer)))}")
        for key, value in settings.items():
            if key in WRAPPERS.get(type(layer), ()):
                for part in _parts(layer, key):
                    check_layer(part.name, part)
            else:
                _check_setting(key, value, is_custom(type(layer)))
    except (ValueError, NotImplementedError) as error:
        raise ValueError(
            f"layer {name!r} ({type(layer).__name__}) cannot be held by a file: {str(error).rstrip('.')}."
        ) from error


def graph_bytes(graph: Graph) -> bytes:
    """Inputs, layers and calls, without weights.

    :raises ValueError: naming a layer that no file can hold.
    """
    # A layer that is called several times is written once.
    layers: dict[str, keras.Operation] = {}
    for node in graph.nodes:
        layers.setdefault(node.name, node.layer)
    names = list(layers)
    tensors = [graph.tensors[number] for number in graph.input_numbers]
    renumbered = {number: new for new, number in enumerate(graph.input_numbers)}
    # Tensors are numbered as they come up: inputs, then what each call gives.
    calls = []
    for node in graph.nodes:
        args, kwargs = _plain([list(node.args), node.kwargs], renumbered)
        renumbered |= {number: len(renumbered) + i for i, number in enumerate(node.outputs)}
        calls.append([names.index(node.name), args, kwargs, len(node.outputs)])
    # All in words, numbers and lists, as JSON that is compressed.
    content = {
        "inputs": [[list(tensor.shape[1:]), tensor.dtype, tensor.name] for tensor in tensors],
        "takes": _plain(graph.inputs, renumbered),
        "gives": _plain(graph.outputs, renumbered),
        "layers": [[kind_name(layer), name, _settings(layer)] for name, layer in layers.items()],
        "calls": calls,
        # For readers that make no layers.
        "shapes": [
            [list(variable.shape) for variable in stored_weights(layer)]
            for layer in layers.values()
            if isinstance(layer, keras.Layer)
        ],
    }
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    packed = zlib.compress(text, 9)
    if len(text) > most_text(len(packed)):
        raise ValueError(f"the network has too many layers for a file: {len(text)} bytes of settings.")
    return leb128(len(packed)) + packed


def stored_weights(layer: keras.Layer) -> list[keras.Variable]:
    """Weights in a file; statistics of `Normalization` are settings."""
    return [] if isinstance(layer, keras.layers.Normalization) else layer.weights


def read_graph(reader: Reader, budget: Budget) -> tuple[Graph, list[list[tuple[int, ...]]]]:
    """What :func:`graph_bytes` wrote: layers without weights, and the shapes of the weights of each, once.

    :raises ValueError: if that takes more than the budget, or if the content is impossible.
    """
    packed = reader.take(reader.integer())
    try:
        text = inflated(packed, most_text(len(packed)), "its text of layers is too long or does not end")
    except zlib.error as error:
        raise ValueError(f"its layers are not compressed text ({error})") from error
    budget.take(_PER_CHARACTER * len(text), "the text of layers")
    content = parse_json(text)
    # Whatever the text claims is taken from the budget before anything is made of it.
    if len(content["layers"]) > MAX_LAYERS or len(content["calls"]) > 4 * MAX_LAYERS:
        raise ValueError(f"it has {len(content['layers'])} layers, and {MAX_LAYERS} are possible")
    for layer_entry in content["layers"]:
        for kind, settings in _kinds_in(*layer_entry):
            take_time(budget, kind, 1)
            take_settings(budget, settings)
    take_time(budget, "", max(0, len(content["calls"]) - len(content["layers"])))
    tensors = [_tensor(*entry) for entry in content["inputs"]]
    for tensor in tensors:
        take_input(budget, tensor.shape)
        take_time(budget, "", 1)
    layers = [_layer(*entry) for entry in content["layers"]]
    # Calls take tensors that were made before, and arguments that their layer has.
    nodes = list[Node]()
    for index, args, kwargs, count in content["calls"]:
        if not 0 <= index < len(layers):
            raise ValueError("a call has no such layer")
        if not 1 <= count <= _MAX_OUTPUTS:
            raise ValueError(f"a call has {count} outputs")
        first = len(tensors)
        tensors += [Tensor((), "") for _ in range(count)]
        args = _referring(args, first, budget)
        kwargs = {str(key): _referring(value, first, budget) for key, value in dict(kwargs).items()}
        layer = layers[index]
        outputs = tuple(range(first, first + count))
        if set(kwargs) - _arguments_of(type(layer)):
            raise ValueError("a call has an argument that is not known")
        if not _numbers((args, kwargs)):
            raise ValueError("a call takes no tensor")  # it would be made at once, of any size
        nodes.append(Node(layer, layer.name, tuple(args), kwargs, outputs))
    inputs, outputs = (_referring(content[name], len(tensors), budget) for name in ("takes", "gives"))
    graph = Graph("network", inputs, outputs, nodes, tensors)
    # Keras keeps variables without values in a list of the thread, and gives them some when it can.
    with ThreadPoolExecutor(1) as thread:
        shapes = thread.submit(_weight_shapes, graph, budget).result()
    if "shapes" in content and content["shapes"] != [[[*shape] for shape in layer_shapes] for layer_shapes in shapes]:
        raise ValueError("its weights have other shapes than its layers")
    return graph, shapes


def _weight_shapes(graph: Graph, budget: Budget) -> list[list[tuple[int, ...]]]:
    """Shapes of the weights of each layer; the layers are tried on shapes alone, without room for weights."""
    shapes: dict[str, list[tuple[int, ...]]] = {}
    probes: dict[str, keras.Layer] = {}
    with keras.StatelessScope(initialize_variables=False):
        tensors: dict[int, keras.KerasTensor] = {}
        for number in graph.input_numbers:
            tensors[number] = keras.Input(graph.tensors[number].shape[1:], dtype=graph.tensors[number].dtype)
        for node in graph.nodes:
            if node.name not in probes:
                probes[node.name] = node.layer if is_operation(node.layer) else clone(node.layer)
            # Call a layer on tensors without values, which builds it.
            args, kwargs = keras.tree.map_structure(
                lambda part: tensors[part.number] if isinstance(part, Ref) else part, (node.args, node.kwargs)
            )
            if isinstance(node.layer, keras.layers.Normalization):  # its statistics get the shape of its input
                take_input(budget, keras.tree.flatten((args, kwargs))[0].shape)
            outputs = keras.tree.flatten(probes[node.name](*args, **kwargs))
            tensors.update(zip(node.outputs, outputs, strict=True))
            if is_operation(node.layer):
                continue
            # A layer that is called several times has its weights once.
            if node.name not in shapes:
                weights = probes[node.name].weights
                if any(variable.dtype != "float32" for variable in weights):
                    raise ValueError("a layer has weights that are not float32")
                shapes[node.name] = [tuple(variable.shape) for variable in weights]
                take_weights(budget, shapes[node.name])
            take_time(budget, type(node.layer).__name__, len(shapes[node.name]))
    return list(shapes.values())


def _parts(layer: keras.Layer, key: str) -> list[keras.Layer]:
    """The layers that such a setting of a wrapper is."""
    is_forward = isinstance(layer, keras.layers.Bidirectional) and key == "layer"
    part = getattr(layer, "forward_layer" if is_forward else key)
    if isinstance(part, keras.Model) and is_chain(graph := graph_of(part)):
        part = keras.Sequential([node.layer for node in graph.nodes], name=part.name)
    return [inner_layer for inner_layer in part if not _is_idle(inner_layer)] if key in _SEVERAL else [part]


def _inner(layer: keras.Layer) -> _Json:
    """Kinds, names and settings of the layers of a wrapper; of the one that goes backwards only if it is not as the
    other."""
    is_two_ways = isinstance(layer, keras.layers.Bidirectional)
    inner_settings: _Json = {}
    for key in WRAPPERS[type(layer)]:
        entries = []
        for part in _parts(layer, key):
            settings = _settings(part)
            if is_two_ways:
                settings.pop("zero_output_for_mask", None)  # the wrapper sets it
            entries.append([kind_name(part), part.name, settings])
        inner_settings[key] = entries if key in _SEVERAL else entries[0]
    if is_two_ways:
        forward, backward = (inner_settings[key][2] for key in ("layer", "backward_layer"))
        if {**forward, "go_backwards": True} == backward:
            del inner_settings["backward_layer"]
    return inner_settings


def _settings(layer: keras.layers.Layer) -> _Json:
    """Settings that are not the defaults; those of training are left out."""
    config = layer.get_config()
    defaults = inspect.signature(type(layer)).parameters
    if type(layer) in WRAPPERS:
        config |= dict.fromkeys(WRAPPERS[type(layer)]) | _inner(layer)
    if activation_name(layer):
        config["activation"] = activation_name(layer)
    # Statistics and vocabularies are settings; how long a vocabulary is follows from it.
    config |= adapted_settings(layer)
    if isinstance(layer, LOOKUPS):
        config.pop("vocabulary_size", None)
        config.pop("vocabulary_dtype", None)
    if isinstance(layer, keras.Sequential):
        config.pop("build_input_shape", None)
    if isinstance(layer, keras.layers.Discretization) and config["bin_boundaries"] is not None:
        config.pop("num_bins")
    # Defaults and what is of training alone are left out.
    stored_settings = {}
    for key, value in config.items():
        value = _jsonable(value)
        is_default = value == _jsonable(defaults[key].default) if key in defaults else value in (None, False)
        is_left_out = (key in _LEFT_OUT and not is_operation(layer)) or key == "name" or key.endswith(_TRAINING)
        if not is_default and not is_left_out:
            stored_settings[key] = value
    return stored_settings


def _jsonable(value: object) -> object:
    if isinstance(value, tuple | list):
        return [_jsonable(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value


def _keys_of(kind: type) -> set[str]:
    """Settings that a file may have of a kind of layer."""
    if issubclass(kind, keras.Operation) and not issubclass(kind, keras.Layer):
        return set(inspect.signature(kind).parameters) - {"name", "kwargs"}
    if issubclass(kind, keras.Sequential):  # whose signature says nothing
        return {"layers"}
    # Arguments of the class, without those that could bring in weights or functions.
    names = set(inspect.signature(kind).parameters) - {"kwargs", *_LEFT_OUT}
    if kind in LOOKUPS:
        names |= {"vocabulary", "oov_method", "salt", "num_oov_indices", "mask_token", "oov_token", "output_mode"}
    if issubclass(kind, keras.layers.RNN):
        names.add("zero_output_for_mask")
    return {name for name in names if not name.startswith(_FORBIDDEN) and not name.endswith(_TRAINING)}


def _check_setting(key: str, value: object, may_nest: bool = False) -> None:
    """Refuse what is not a number, a word, or a list of such; or, where it may be, a dictionary."""
    if key == "vocabulary" and not isinstance(value, list):
        raise ValueError(f"{key} is {value!r}")
    if key.endswith("activation") and value is not None and value not in ACTIVATIONS:
        raise ValueError(f"{key} is {value!r}")
    for part in keras.tree.flatten(value) if isinstance(value, dict | list if may_nest else list) else [value]:
        if part is not None and not isinstance(part, bool | int | float | str):
            raise ValueError(f"{key} is {part!r}")
        if isinstance(part, float) and not math.isfinite(part):
            raise ValueError(f"{key} is {part}")


def _layer(kind: str, name: str, settings: Mapping[str, Any], depth: int = 0) -> keras.Layer:
    layer_class = kind_named(str(kind))
    if layer_class is None:
        hint = "; give its class in custom_objects=" if str(kind).startswith("custom.") else ""
        raise ValueError(f"it has a layer of the kind {kind!r}, which is not known{hint}")
    # Only settings that a layer of this kind has, and only numbers, words and lists.
    if not is_custom(layer_class) and (unknown := set(settings) - _keys_of(layer_class)):
        raise ValueError(f"a layer {kind} has the setting {sorted(unknown)[0]!r}")
    if layer_class in WRAPPERS and depth > _MAX_WRAPPERS:
        raise ValueError(f"it has more than {_MAX_WRAPPERS} wrappers in one another")
    inner = {key: value for key, value in settings.items() if key in WRAPPERS.get(layer_class, ())}
    for key, value in settings.items():
        if key not in inner:
            _check_setting(key, value, is_custom(layer_class))
    if not str(name).isprintable() or len(str(name)) > _MAX_NAME:
        raise ValueError(f"a layer has the name {one_line(name)}")
    if is_custom(layer_class):
        return layer_class.from_config({**settings, "name": str(name)})  # type: ignore[attr-defined, no-any-return]
    # Layers in a wrapper are made first, by the same rules.
    arguments = {key: _tuples(value) for key, value in settings.items() if key not in inner}
    for key, value in inner.items():
        if key in _SEVERAL and not 1 <= len(value) <= _MOST_PARTS:
            raise ValueError(f"a layer {kind} has {len(value)} {key}")
        parts = [_wrapped(depth + 1, *entry) for entry in (value if key in _SEVERAL else [value])]
        arguments[key] = parts if key in _SEVERAL else parts[0]
    if issubclass(layer_class, keras.Layer) or "name" in inspect.signature(layer_class).parameters:
        arguments["name"] = str(name)
    layer: keras.Layer = layer_class(**arguments)
    if is_operation(layer):
        layer.name = str(name)
    return layer


def _wrapped(depth: int, kind: str, name: str, settings: Mapping[str, object]) -> keras.Layer:
    """The layer in a wrapper."""
    if str(kind).startswith("ops."):
        raise ValueError(f"a wrapper has the operation {kind!r}")
    return _layer(kind, name, settings, depth)


def _kinds_in(
    kind: str, name: str, settings: Mapping[str, Any], depth: int = 0
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The kind of a layer and its settings, and those of the layers in it."""
    yield str(kind), settings
    layer_class = kind_named(str(kind))
    for key in WRAPPERS.get(layer_class, ()) if layer_class is not None and depth <= _MAX_WRAPPERS else ():
        parts = settings.get(key, [])
        for part in parts if key in _SEVERAL else [parts] * bool(parts):
            inner, its_name, its_settings = part
            yield from _kinds_in(inner, its_name, its_settings, depth + 1)


def _tuples(value: object) -> object:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value


def _tensor(shape: list[int | None], dtype: str, name: str) -> Tensor:
    if dtype not in _TYPES or len(shape) > MAX_AXES or any(size is not None and int(size) < 1 for size in shape):
        raise ValueError(f"it has an input of type {dtype} and shape {shape}")
    return Tensor((None, *shape), dtype, str(name))


def _plain(part: object, numbers: Mapping[int, int], other: Callable[[Any], Any] | None = None) -> Any:
    """Arguments for JSON: a tensor is {"#": number}.

    :param other: makes something of what is no number, word or list; None: such a part is an error.
    """
    if isinstance(part, Ref):
        return {"#": numbers[part.number]}
    # What JSON does not have is a dictionary with one key of its own.
    if isinstance(part, slice):
        return {"slice": [_plain(bound, numbers, other) for bound in (part.start, part.stop, part.step)]}
    if part is Ellipsis:
        return {"...": 0}
    if isinstance(part, np.ndarray | np.generic) or tf.is_tensor(part):
        values = np.asarray(part)
        if values.size <= _MAX_CONSTANT and values.dtype.name in _NUMBERS:
            return _packed(values)
    if isinstance(part, tuple):
        return {"tuple": [_plain(element, numbers, other) for element in part]}
    if isinstance(part, list):
        return [_plain(element, numbers, other) for element in part]
    if isinstance(part, dict):
        return {str(key): _plain(value, numbers, other) for key, value in part.items()}
    if isinstance(part, float) and not math.isfinite(part):
        return {"float": str(part)}
    if part is None or isinstance(part, bool | int | float | str):
        return part
    if other is None:
        raise ValueError(f"is called with {one_line(repr(part))}, which a file cannot hold.")
    return other(part)


def _packed(values: np.ndarray) -> _Json:
    """Numbers for JSON: little-endian, compressed, in base64."""
    plain = values.astype(values.dtype.newbyteorder("<")).tobytes()
    text = base64.b64encode(zlib.compress(plain, 9)).decode()
    return {"array": text, "type": values.dtype.name, "shape": list(values.shape)}


def _unpacked(packed: _Json, budget: Budget) -> np.ndarray:
    """The reverse of :func:`_packed`."""
    if packed["type"] not in _NUMBERS:
        raise ValueError("an argument is no array of numbers")
    dtype = np.dtype(packed["type"])
    # The size is taken from the budget before it is decompressed, to so much and no more.
    size = math.prod(map(int, packed["shape"])) * dtype.itemsize
    budget.take(size, "an array among the arguments of a call")
    problem = "an array among the arguments of a call is not of its shape and type"
    plain = inflated(base64.b64decode(packed["array"]), size + 1, problem)
    if len(plain) != size or (dtype.kind == "b" and max(plain, default=0) > 1):
        raise ValueError(problem)
    return np.ndarray(packed["shape"], dtype.newbyteorder("<"), plain).astype(dtype)


def _referring(part: object, count: int, budget: Budget) -> Any:
    """The reverse of :func:`_plain`; tensors have to be made before."""
    if isinstance(part, dict):
        # Dictionaries with one key are what JSON does not have.
        if set(part) == {"slice"}:
            return slice(*(_referring(bound, count, budget) for bound in part["slice"]))
        if set(part) == {"..."}:
            return Ellipsis
        if set(part) == {"tuple"}:
            return tuple(_referring(element, count, budget) for element in part["tuple"])
        if set(part) == {"float"}:
            return float(part["float"])
        if set(part) == {"array", "type", "shape"}:
            return _unpacked(part, budget)
        if set(part) != {"#"}:
            return {key: _referring(value, count, budget) for key, value in part.items()}
        # A tensor, by its number, that was made before the call.
        if not 0 <= int(part["#"]) < count:
            raise ValueError("a call takes a tensor that is not there yet")
        return Ref(int(part["#"]))
    return [_referring(element, count, budget) for element in part] if isinstance(part, list) else part
