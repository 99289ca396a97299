"""Keras models as graphs of calls of layers: read from any functional model, cut, and made a model again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from .kept_inputs import PlaceInputs, SelectInputs
from .supported import OPERATIONS

if TYPE_CHECKING:
    from keras.src.ops.node import Node as KerasCall  # it has no public name

__all__ = [
    "Graph",
    "Nested",
    "Node",
    "Ref",
    "Tensor",
    "bypassed",
    "clone",
    "graph_of",
    "in_order",
    "is_chain",
    "kernel_variables",
    "layers_of",
    "model_of",
    "rows_at_once",
]

Nested: TypeAlias = Any
"""One or several, such as tensors, arrays or references, in lists, tuples and dictionaries, as Keras nests them."""

_MOST_NUMBERS = 2**26  # in all tensors of a network for the rows of a call


@dataclass(frozen=True)
class Ref:
    """A tensor, by its number, in the arguments of a call."""

    number: int


class Tensor(NamedTuple):
    """What is known of a tensor: shape with the batch first, type, and the name of an input."""

    shape: tuple[int | None, ...]
    dtype: str
    name: str = ""


class Node(NamedTuple):
    """One call of a layer.

    :ivar layer: the layer, or one of Keras' operations.
    :ivar name: of the layer; unique for each layer of a graph.
    :ivar args: of the call, nested as Keras has it, with `Ref` for tensors.
    :ivar kwargs: the same.
    :ivar outputs: numbers of the tensors that it makes.
    :ivar masks: those of `kwargs` that Keras filled with the masks of other arguments, and fills again.
    """

    layer: keras.Operation
    name: str
    args: tuple[Nested, ...]
    kwargs: dict[str, Nested]
    outputs: tuple[int, ...]
    masks: frozenset[str] = frozenset()

    @property
    def sources(self) -> tuple[int, ...]:
        """Numbers of the tensors that it takes."""
        flat = keras.tree.flatten((self.args, self.kwargs))
        return tuple(part.number for part in flat if isinstance(part, Ref))


class Graph(NamedTuple):
    """Calls in an order in which they can be made; `inputs` and `outputs` are nested as those of the model."""

    name: str
    inputs: Nested
    outputs: Nested
    nodes: list[Node]
    tensors: list[Tensor]

    @property
    def output_numbers(self) -> tuple[int, ...]:
        """Numbers of the tensors that the model returns."""
        return tuple(ref.number for ref in keras.tree.flatten(self.outputs))

    @property
    def input_numbers(self) -> tuple[int, ...]:
        """Numbers of the tensors that the model is given."""
        return tuple(ref.number for ref in keras.tree.flatten(self.inputs))

    def calls(self) -> Counter[str]:
        """How often each layer is called, by name."""
        return Counter(node.name for node in self.nodes)

    def consumers(self) -> Counter[int]:
        """How often each tensor is used, as an output of the model, too."""
        used = [number for node in self.nodes for number in node.sources]
        return Counter([*used, *self.output_numbers])


def graph_of(model: keras.Model) -> Graph:
    """The calls that make up a Sequential or functional model, those of nested models among them.

    Calls are found from the outputs, because layers of a model that was loaded or called again have other calls, too.

    :raises ValueError: if the model is not built, or is a subclass with a `call` of its own.
    """
    if not isinstance(model, keras.Model):
        raise TypeError(f"the model must be a keras.Model, got {model!r:.80}.")
    if not _has_graph(model):
        if not isinstance(model, keras.Sequential):
            raise ValueError(
                f"the model {model.name} must be Sequential or functional, got the class {type(model).__name__} with a "
                "`call` of its own; pack_weights() takes any."
            )
        raise ValueError(
            f"the model {model.name} must be a built Sequential or functional model, got "
            f"{len(getattr(model, 'inputs', None) or [])} inputs; call it on examples first, or give it an Input."
        )
    # Number the inputs, then the calls between them and the outputs.
    reader = _Reader()
    struct = getattr(model, "_functional", model)
    inputs = keras.tree.map_structure(reader.tensor, struct._inputs_struct)
    refs_by_id = _by_id(struct._inputs_struct, inputs)
    reader.read(struct._outputs_struct, refs_by_id)
    outputs = keras.tree.map_structure(lambda tensor: refs_by_id[id(tensor)], struct._outputs_struct)
    # A Sequential has one input and one output, however they are nested.
    if isinstance(model, keras.Sequential):
        inputs, outputs = (keras.tree.flatten(part)[0] for part in (inputs, outputs))
    return in_order(Graph(model.name, inputs, outputs, reader.nodes, reader.tensors))


def rows_at_once(model: keras.Model, most: int) -> int:
    """Examples to call a network on at once: Keras keeps all tensors of a call until its end, here at most 256 MB.

    :param most: of a small network, or of one whose tensors nobody knows.
    """
    if not _has_graph(model):
        return most
    # Numbers in all tensors for one example.
    numbers = sum(math.prod(size or 1 for size in tensor.shape[1:]) for tensor in graph_of(model).tensors)
    return min(most, max(1, _MOST_NUMBERS // numbers))


def arrays_for(model: keras.Model, given: Nested, what: str) -> Nested:
    """Inputs [n, ...] for each input of a network, nested as they were given, as arrays.

    :param what: what they are, for messages.
    :raises TypeError: if they are no arrays, such as a data set.
    :raises ValueError: if their number, shapes or types are not those of the inputs, or there are none.
    """
    # What is wanted in words, for all messages.
    shapes = [tuple(tensor.shape) for tensor in model.inputs]
    sizes = [["n", *("any" if size is None else str(size) for size in shape[1:])] for shape in shapes]
    wanted = " and ".join(f"[{', '.join(names)}]" for names in sizes)
    if isinstance(given, tf.data.Dataset | keras.utils.PyDataset) or callable(given) or hasattr(given, "__next__"):
        raise TypeError(f"{what} must be arrays {wanted}, got a {type(given).__name__}; give its inputs as arrays.")
    # Rows of one input may be a list of lists; those of several are nested as the network takes them.
    is_nested = isinstance(given, dict)
    if isinstance(given, list | tuple):
        is_nested = len(shapes) > 1 or any(len(getattr(part, "shape", ())) >= len(shapes[0]) for part in given)
    try:
        arrays = [np.asarray(part) for part in (keras.tree.flatten(given) if is_nested else [given])]
    except ValueError as error:
        raise ValueError(f"{what} must be arrays {wanted}, got rows of several lengths.") from error
    got = " and ".join(str([*array.shape]) for array in arrays)
    if len(arrays) != len(shapes):
        raise ValueError(f"{what} must be arrays {wanted}, got {got or 'none'}; give inputs alone, one array for each.")
    # Words for words and numbers for numbers, with equally many rows of the right shape.
    for array, shape, tensor in zip(arrays, shapes, model.inputs, strict=True):
        is_text = tensor.dtype == "string"
        if array.dtype.kind not in ("OSU" if is_text else "biuf") and array.dtype.name != "bfloat16":
            raise ValueError(
                f"{what} must be of type {tensor.dtype}, got {array.dtype}; encode them as the network does."
            )
        if not has_shape(array, shape) or len(array) != len(arrays[0]) or not len(array):
            raise ValueError(f"{what} must have one row or more of shape {wanted}, got {got}.")
    return keras.tree.pack_sequence_as(given, arrays) if is_nested else arrays[0]


def has_shape(array: np.ndarray, shape: Sequence[int | None]) -> bool:
    """Whether rows [n, ...] are of the shape [None, ...] of an input; None fits any size."""
    sizes = zip(array.shape[1:], shape[1:], strict=False)
    return array.ndim == len(shape) and all(expected in (None, size) for size, expected in sizes)


def in_order(graph: Graph) -> Graph:
    """The calls that the outputs need, in an order that follows from what takes what alone: that of copies, too."""
    made_by = {number: node for node in graph.nodes for number in node.outputs}
    ordered_nodes: dict[int, Node] = {}
    # Depth first from the outputs, without recursion; a call comes after the calls that it needs.
    open_calls = [(number, False) for number in reversed(graph.output_numbers)]
    while open_calls:
        number, has_sources = open_calls.pop()
        node = made_by.get(number)
        if node is None or node.outputs[0] in ordered_nodes:
            continue
        if has_sources:
            ordered_nodes[node.outputs[0]] = node
        else:
            open_calls.append((number, True))
            open_calls += [(source, False) for source in reversed(node.sources)]
    return graph._replace(nodes=list(ordered_nodes.values()))


def model_of(graph: Graph) -> keras.Model:
    """The model of a graph, a Sequential if it is a chain; its layers must not have been called before."""
    # A chain becomes a Sequential again.
    if is_chain(graph):
        tensor = graph.tensors[graph.input_numbers[0]]
        start = keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=tensor.name or None)
        return keras.Sequential([start, *(node.layer for node in graph.nodes)], name=graph.name)
    tensors: dict[int, keras.KerasTensor] = {}

    def tensor_of(part: object) -> object:
        return tensors[part.number] if isinstance(part, Ref) else part

    for number in graph.input_numbers:
        tensor = graph.tensors[number]
        tensors[number] = keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=tensor.name or None)
    # Call the layers in order on symbolic tensors.
    for node in graph.nodes:
        args, kwargs = keras.tree.map_structure(tensor_of, (node.args, node.kwargs))
        outputs = keras.tree.flatten(node.layer(*args, **kwargs))
        tensors.update(zip(node.outputs, outputs, strict=True))
    inputs, outputs = (keras.tree.map_structure(tensor_of, part) for part in (graph.inputs, graph.outputs))
    return keras.Model(inputs, outputs, name=graph.name)


def is_chain(graph: Graph) -> bool:
    """Whether each layer takes what the one before it makes, and nothing else."""
    last = graph.inputs
    if not isinstance(last, Ref) or not isinstance(graph.outputs, Ref) or not graph.nodes:
        return False
    for node in graph.nodes:
        if not isinstance(node.layer, keras.Layer) or node.args != (last,) or node.kwargs or len(node.outputs) != 1:
            return False
        last = Ref(node.outputs[0])
    return last == graph.outputs and max(graph.calls().values()) == 1


def bypassed(graph: Graph, leave_out: Callable[[Node], bool]) -> Graph:
    """The graph without some calls that take one tensor: others take that tensor itself."""
    moved: dict[int, int] = {}

    def renumbered(part: object) -> object:
        return Ref(moved.get(part.number, part.number)) if isinstance(part, Ref) else part

    # What such a call gives is what it takes, over any number of them in a row.
    nodes = []
    for node in graph.nodes:
        if leave_out(node):
            moved[node.outputs[0]] = moved.get(node.sources[0], node.sources[0])
        else:
            args, kwargs = keras.tree.map_structure(renumbered, (node.args, node.kwargs))
            nodes.append(node._replace(args=args, kwargs=kwargs))
    return graph._replace(nodes=nodes, outputs=keras.tree.map_structure(renumbered, graph.outputs))


def clone(layer: keras.Layer, **changes: Any) -> keras.Layer:
    """A layer of the same settings but these, without weights; functions of the user's own are the same ones."""
    # Functions and arguments of Lambda are kept as objects, which its config would have as code.
    config = layer.get_config()
    if isinstance(layer, keras.layers.Lambda):
        settings = {"output_shape": layer._output_shape, "mask": layer.mask, "arguments": layer.arguments}
        return keras.layers.Lambda(
            layer.function, **settings, **{"name": layer.name, "dtype": config["dtype"], **changes}
        )
    # A function, and an object of the user's own, may have no config that could be read again.
    for key in config:
        value = getattr(layer, key, None)
        if isinstance(value, FunctionType) or (isinstance(value, keras.initializers.Initializer) and _is_own(value)):
            config[key] = value
    # Keras knows the classes of layers in this one by their names.
    own = {type(part).__name__: type(part) for part in layer._flatten_layers() if _is_own(type(part))}
    with keras.saving.CustomObjectScope(own):
        return type(layer).from_config({**config, **changes})


def _is_own(thing: object) -> bool:
    """Whether a class, a function or an object is not of Keras."""
    return not str(thing.__module__).startswith("keras.")


def layers_of(graph: Graph) -> list[Node]:
    """The first call of each layer; calls of Keras' operations are left out."""
    first_calls: dict[str, Node] = {}
    for node in graph.nodes:
        if isinstance(node.layer, keras.Layer):
            first_calls.setdefault(node.name, node)
    return list(first_calls.values())


def kernel_variables(network: keras.Model | Graph) -> list[tuple[keras.Layer, keras.Variable]]:
    """Weights with two and more axes, such as kernels and embeddings, of all layers of a plain network in order."""
    graph = network if isinstance(network, Graph) else graph_of(network)
    layers = [node.layer for node in layers_of(graph)]
    return [(layer, variable) for layer in layers for variable in layer.weights if len(variable.shape) > 1]


class _Reader:
    """Numbers tensors and names layers while calls are read."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.tensors: list[Tensor] = []
        self._names: dict[int, str] = {}

    def tensor(self, tensor: keras.KerasTensor) -> Ref:
        operation = tensor._keras_history.operation
        name = operation.name if isinstance(operation, keras.layers.InputLayer) else ""
        self.tensors.append(Tensor(tuple(tensor.shape), tensor.dtype, name))
        return Ref(len(self.tensors) - 1)

    def read(self, outputs: object, known: dict[int, Ref], prefix: str = "") -> None:
        """The calls between the tensors in `known`, by id, and `outputs`, which are added to it.

        What a call says of `training` is left out, as Keras overrides it when the model is called.
        """
        # Depth first without recursion, as networks may be deep.
        open_calls = [(tensor, False) for tensor in reversed(keras.tree.flatten(outputs))]
        while open_calls:
            tensor, has_sources = open_calls.pop()
            if id(tensor) in known:
                continue
            operation, index, _ = tensor._keras_history
            call = operation._inbound_nodes[index]
            if not has_sources:
                open_calls.append((tensor, True))
                open_calls += [(source, False) for source in reversed(call.input_tensors)]
                continue
            # Tensors become numbers; what Keras fills in by itself is left out.
            args, kwargs = call.arguments.convert(lambda part: known.get(id(part), part))
            kwargs = {key: value for key, value in kwargs.items() if key != "training" and value is not None}
            if _is_nested(operation, args, kwargs):
                self._inline(operation, call, args, known)
                continue
            if _is_over_time(operation, args, kwargs, self.tensors):
                self._inline_over_time(operation, call, args[0], known)
                continue
            # The call makes tensors of new numbers.
            refs = [self.tensor(output) for output in call.outputs]
            known.update((id(output), ref) for output, ref in zip(call.outputs, refs, strict=True))
            numbers = tuple(ref.number for ref in refs)
            operation, args = self._as_layer(operation, args, kwargs)
            operation, args = self._as_view(operation, args, kwargs)
            masks = _masks_by_keras(call) if isinstance(operation, keras.Layer) else frozenset()
            self.nodes.append(Node(operation, self._name(operation, prefix), args, kwargs, numbers, masks))

    def _as_layer(
        self, operation: keras.Operation, args: tuple[Nested, ...], kwargs: Mapping[str, object]
    ) -> tuple[keras.Operation, tuple[Nested, ...]]:
        """The layer that does what an operator between two tensors does, such as x + y; else the operation itself.

        Layers want a batch, and put axes that are missing behind it, operators before all others.
        """
        kind = "" if isinstance(operation, keras.Layer) else type(operation).__name__
        if kind not in _OPERATORS or kwargs or len(args) != 2 or not all(isinstance(part, Ref) for part in args):
            return operation, args
        # Only of tensors with equally many axes, where both do the same.
        first, second = (len(self.tensors[part.number].shape) for part in args)
        if first != second or first == 0:
            return operation, args
        return _OPERATORS[kind](name=operation.name), (list(args),)

    def _as_view(
        self, operation: keras.Operation, args: tuple[Nested, ...], kwargs: Mapping[str, object]
    ) -> tuple[keras.Operation, tuple[Nested, ...]]:
        """The layer of this package that does what operations of `compression.graph.portable` do; else the same."""
        # `take(x, indices)` along the last axis is a selection.
        kind = "" if isinstance(operation, keras.Layer) or kwargs else type(operation).__name__
        view: keras.Layer | None = None
        if kind == "Take" and operation.axis == -1 and len(args) == 2 and isinstance(args[0], Ref):
            indices = _constant(args[1])
            if indices.ndim == 1 and indices.size and indices.dtype.kind == "i" and indices.min() >= 0:
                view = SelectInputs(indices, name=operation.name)
        # `where(is_kept, take(x, indices), fill)` is one layer: a selection with constants.
        last = self.nodes[-1] if self.nodes else None
        if kind == "Where" and last is not None and isinstance(last.layer, SelectInputs) and len(args) == 3:
            is_kept = _constant(args[0])
            fill = _constant(args[2])
            shape = last.layer.indices.shape
            if args[1] == Ref(last.outputs[0]) and is_kept.dtype == bool and is_kept.shape == fill.shape == shape:
                view = PlaceInputs(np.where(is_kept, last.layer.indices, -1), name=operation.name)
                args = last.args
        if view is None:
            return operation, args
        # Build the layer on the shape of its input, and set the constants.
        tensor = self.tensors[args[0].number]
        view(keras.Input(tensor.shape[1:], dtype=tensor.dtype))
        if isinstance(view, PlaceInputs):
            view.fill.assign(np.where(is_kept, 0.0, fill))
        return view, args[:1]

    def _inline(self, inner: keras.Model, call: KerasCall, args: tuple[Nested, ...], known: dict[int, Ref]) -> None:
        struct = getattr(inner, "_functional", inner)
        # The calls of a nested model become calls of this graph.
        inside = _by_id(struct._inputs_struct, args[0])
        self.read(struct._outputs_struct, inside, f"{inner.name}_")
        flat = keras.tree.flatten(struct._outputs_struct)
        known.update((id(output), inside[id(tensor)]) for output, tensor in zip(call.outputs, flat, strict=True))

    def _inline_over_time(self, wrapper: keras.Layer, call: KerasCall, source: Ref, known: dict[int, Ref]) -> None:
        """The calls of a model for the steps of a sequence, which become examples of their own for it."""
        # Steps become rows, go through the model, and become steps again.
        steps = self._reshaped(source, (-1, *self.tensors[source.number].shape[2:]), f"{wrapper.name}_steps")
        model = wrapper.layer
        inside = {id(model.inputs[0]): steps}
        self.read(model.outputs, inside, f"{model.name}_")
        output = call.outputs[0]
        known[id(output)] = self._reshaped(inside[id(model.outputs[0])], (-1, *output.shape[1:]), wrapper.name)

    def _reshaped(self, source: Ref, shape: tuple[int | None, ...], name: str) -> Ref:
        operation = OPERATIONS["Reshape"](shape, name=name)
        self.tensors.append(Tensor((None, *shape[1:]), self.tensors[source.number].dtype))
        ref = Ref(len(self.tensors) - 1)
        self.nodes.append(Node(operation, self._name(operation, ""), (source,), {}, (ref.number,)))
        return ref

    def _name(self, layer: keras.layers.Layer, prefix: str) -> str:
        if id(layer) not in self._names:
            name = layer.name
            # Two nested models may have layers of the same name.
            used_names = set(self._names.values())
            if name in used_names:
                name = prefix + name
            while name in used_names:
                name += "_"
            self._names[id(layer)] = name
        return self._names[id(layer)]


def _has_graph(model: keras.Model) -> bool:
    """Whether a call of the model is the calls of its layers."""
    is_known = isinstance(model, keras.Sequential) or getattr(type(model), "call", None) is _functional_class().call
    return is_known and bool(getattr(model, "inputs", None)) and bool(getattr(model, "outputs", None))


def _functional_class() -> type[keras.Model]:
    from keras.src.models import Functional  # it has no public name

    return Functional


def _is_nested(operation: object, args: tuple[Nested, ...], kwargs: Mapping[str, object]) -> bool:
    """Whether the call is one of a nested model, with tensors for its inputs in the same order."""
    if not isinstance(operation, keras.Model) or not _has_graph(operation) or len(args) != 1:
        return False
    struct = getattr(operation, "_functional", operation)._inputs_struct
    # As many tensors as the model has inputs, nested in the same way.
    arguments = keras.tree.flatten(args[0])
    fits = len(arguments) == len(keras.tree.flatten(struct)) and all(isinstance(part, Ref) for part in arguments)
    return fits and isinstance(args[0], dict) == isinstance(struct, dict) and not set(kwargs) - {"mask"}


def _is_over_time(
    operation: keras.Operation, args: tuple[Nested, ...], kwargs: Mapping[str, object], tensors: Sequence[Tensor]
) -> bool:
    """Whether the call is one of `TimeDistributed` of a model that is no chain, over a known number of steps."""
    model = getattr(operation, "layer", None)
    if type(operation) is not keras.layers.TimeDistributed or not isinstance(model, keras.Model) or kwargs:
        return False
    is_single = _has_graph(model) and len(model.inputs) == len(model.outputs) == 1
    if not is_single or len(args) != 1 or not isinstance(args[0], Ref) or is_chain(graph_of(model)):
        return False
    return None not in (*tensors[args[0].number].shape[1:], *model.outputs[0].shape[1:])


def _masks_by_keras(call: KerasCall) -> frozenset[str]:
    """Arguments of a call that are the masks of other arguments."""
    # A mask is one of Keras' own if it is that of an input of the call.
    mask_ids = {id(mask) for tensor in call.input_tensors if (mask := getattr(tensor, "_keras_mask", None)) is not None}

    def is_made(value: object) -> bool:
        parts = [part for part in keras.tree.flatten(value) if part is not None]
        return bool(parts) and all(id(part) in mask_ids for part in parts)

    return frozenset(key for key, value in call.arguments.kwargs.items() if key.endswith("mask") and is_made(value))


def _by_id(tensors: object, refs: object) -> dict[int, Ref]:
    flat = zip(keras.tree.flatten(tensors), keras.tree.flatten(refs), strict=True)
    return {id(tensor): ref for tensor, ref in flat}


def _constant(part: object) -> np.ndarray:
    """A list or array of numbers in the arguments of a call; empty for anything else."""
    is_plain = isinstance(part, np.ndarray) or (isinstance(part, list) and all(isinstance(x, int) for x in part))
    return np.asarray(part) if is_plain else np.zeros(0)


_OPERATORS: dict[str, Callable[..., keras.Layer]] = {
    "Add": keras.layers.Add,
    "Subtract": keras.layers.Subtract,
    "Multiply": keras.layers.Multiply,
    "Maximum": keras.layers.Maximum,
    "Minimum": keras.layers.Minimum,
}
