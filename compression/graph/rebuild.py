"""A graph of fewer channels made from another: new layers, with selections and constants between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from .graph import Graph, Node, Ref, clone, graph_of, layers_of, model_of
from .kept_inputs import PlaceInputs, SelectInputs
from .kinds import is_mixing, kind_of
from .removal.cutting import IndexMaps, Kept, cut, role_of
from .removal.flow import num_channels, positions, view_of

__all__ = ["LOOKUPS", "Rebuilt", "adapted_settings", "copied", "copy_of", "copy_weights", "rebuild", "remade"]

_NOTHING = np.zeros(0, np.int64)


class Rebuilt(NamedTuple):
    """A smaller model, its layers by the names of those that they were made of, and what is kept of these."""

    model: keras.Model
    layers: dict[str, keras.Layer]
    kept: dict[str, Kept]


def rebuild(
    graph: Graph,
    kept: IndexMaps,
    make: Callable[[Node, int], keras.Layer],
    constants: Sequence[np.ndarray] | None = None,
    *,
    without: tuple[type, ...] = (),
) -> Rebuilt:
    """The model of a graph with only the kept inputs and outputs; layers of the kind "weighted" get no weights yet.

    :param kept: from `compression.graph.removal.demand.kept_of`.
    :param make: the layer of a call of the kind "weighted", anew and with another number of outputs.
    :param constants: by tensor, the value of each channel that does not vary; 0 if not given.
    :param without: types of layers without effect to leave out.
    """
    # Calls are made again in order, each with the channels that are left of its inputs.
    builder = _Builder(graph, kept, make, constants, without)
    for node in graph.nodes:
        builder.add(node, kind_of(graph, node))
    return builder.finish()


LOOKUPS = (keras.layers.StringLookup, keras.layers.IntegerLookup, keras.layers.TextVectorization)
"""Layers with a vocabulary."""


def copied(layer: keras.Layer, name: str) -> keras.Layer:
    """A layer of the same settings under this name, without weights; what it learnt by `adapt` is a setting."""
    return clone(layer, name=name, **adapted_settings(layer))


def adapted_settings(layer: keras.Layer) -> dict[str, Any]:
    """What a layer learnt by `adapt`, or was given: statistics of `Normalization`, and vocabularies."""
    if isinstance(layer, keras.layers.Normalization) and layer.input_mean is None and layer.built:
        shape = layer.adapt_mean.shape
        return {name: np.reshape(getattr(layer, name), shape).tolist() for name in ("mean", "variance")}
    if not isinstance(layer, LOOKUPS):
        return {}
    settings: dict[str, Any] = {"vocabulary": [*layer.get_vocabulary(include_special_tokens=False)]}
    # TextVectorization keeps its words in a layer of its own.
    table = getattr(layer, "_lookup_layer", layer)
    if table.output_mode == "tf_idf":
        settings["idf_weights"] = np.asarray(table.idf_weights)[table._token_start_index() :].tolist()
    return settings


def copy_of(
    model: keras.Model, instead: Mapping[type, Callable[[keras.Operation], keras.Layer]] | None = None
) -> keras.Model:
    """A plain model with the same layers, those of nested models as its own, and weights.

    :param instead: of operations of these kinds, what makes the layers that take their places.
    """
    graph = graph_of(model)
    makers = instead or {}
    made = {node.name: makers[type(node.layer)](node.layer) for node in graph.nodes if type(node.layer) in makers}
    return remade(graph, made)


def remade(
    graph: Graph, instead: Mapping[str, keras.Operation | Callable[[keras.KerasTensor], keras.KerasTensor]]
) -> keras.Model:
    """The model of a graph, with copies of its layers and their weights.

    :param instead: by name, what takes the place of some layers or operations; it gets their weights if it has as many.
    """
    # Operations have no state, and stay the same.
    layers = {node.name: node.layer for node in graph.nodes} | dict(instead)
    for node in layers_of(graph):
        if node.name not in instead:
            layers[node.name] = copied(node.layer, node.name)
    model = model_of(graph._replace(nodes=[node._replace(layer=layers[node.name]) for node in graph.nodes]))
    for node in layers_of(graph):
        if isinstance(layers[node.name], keras.Layer):
            copy_weights(node.layer, layers[node.name], None)
    return model


class _Part(NamedTuple):
    """Where the channels of a tensor of the old graph are in the new one.

    :ivar tensor: the new one.
    :ivar places: for each old channel its place there, or -1.
    :ivar is_view: whether places may be in any order, and several channels at one.
    """

    tensor: int
    places: np.ndarray
    is_view: bool = False

    @property
    def present(self) -> np.ndarray:
        """The channels that are there."""
        return np.flatnonzero(self.places >= 0)


class _Builder:
    """What was made so far. Tensors keep their numbers, and those of selections get new ones."""

    def __init__(
        self,
        graph: Graph,
        kept: IndexMaps,
        make: Callable[[Node, int], keras.Layer],
        constants: Sequence[np.ndarray] | None,
        without: tuple[type, ...],
    ) -> None:
        self._graph = graph
        self._make = make
        self._constants = constants
        self._without = without
        self._kept = dict(kept)
        self._nodes = list[Node]()
        self._layers = dict[str, keras.Operation]()
        self._parts: dict[int, _Part] = {}
        self._sizes: dict[int, int] = {}
        self._fills: list[tuple[PlaceInputs, np.ndarray]] = []
        self._next = len(graph.tensors)
        for number in graph.input_numbers:
            self._record(number, np.arange(num_channels(graph, number)))

    def add(self, node: Node, kind: str) -> None:
        """Make a call anew, if something is left of it."""
        method: Callable[[Node], None] = getattr(self, f"_{kind}")
        method(node)

    def finish(self) -> Rebuilt:
        """The model, with the weights of all layers but those of the kind "weighted"."""
        # The model gives all of its outputs, with constants where units are gone.
        refs = [Ref(self._everything(number)) for number in self._graph.output_numbers]
        outputs = keras.tree.pack_sequence_as(self._graph.outputs, refs)
        # Selections for calls that were dropped later are left out.
        nodes = _reachable(self._nodes, {ref.number for ref in refs})
        model = model_of(self._graph._replace(outputs=outputs, nodes=nodes))
        for layer, fill in self._fills:
            if layer.built:
                layer.fill.assign(fill)
        # Layers of the kind "weighted" get their weights from the caller.
        alive = {node.name for node in nodes}
        layers = {name: layer for name, layer in self._layers.items() if name in alive}
        for node in layers_of(self._graph):
            if node.name in layers and kind_of(self._graph, node) != "weighted":
                copy_weights(node.layer, layers[node.name], self._kept.get(node.name))
        return Rebuilt(model, layers, self._kept)

    # The kinds of calls.

    def _weighted(self, node: Node) -> None:
        kept_indices = self._kept[node.name]
        size = num_channels(self._graph, node.outputs[0])
        if kept_indices.outputs.size:
            source = self._adapted(node.sources[0], kept_indices.inputs)
            self._call(node, self._make(node, len(kept_indices.outputs)), [source])
        # Behind an activation that mixes outputs all of them are there.
        is_whole = is_mixing(node.layer) and kept_indices.outputs.size
        self._record(node.outputs[0], np.arange(size) if is_whole else kept_indices.outputs)

    def _scaled(self, node: Node) -> None:
        if not isinstance(node.layer, keras.layers.Embedding):
            self._pointwise(node)
            present = self._parts[node.outputs[0]].present
            self._kept[node.name] = Kept(present, present)
            return
        kept_indices = self._kept[node.name]
        if kept_indices.outputs.size:
            layer = clone(node.layer, name=node.name, output_dim=len(kept_indices.outputs))
            self._call(node, layer, [self._everything(node.sources[0])])
        self._record(node.outputs[0], kept_indices.outputs)

    def _pointwise(self, node: Node) -> None:
        source, present = self._compact(node.sources[0])
        if isinstance(node.layer, self._without):
            self._parts[node.outputs[0]] = self._parts[node.sources[0]]
            return
        if present.size:
            self._call(node, self._reshaped(node, present.size), [source])
        self._record(node.outputs[0], present)

    def _merge(self, node: Node) -> None:
        outputs = self._kept[node.name].outputs
        if outputs.size:
            present_sources = [number for number in node.sources if np.any(self._parts[number].places[outputs] >= 0)]
            sources = [self._adapted(number, outputs, present_sources[0]) for number in node.sources]
            self._call(node, node.layer, sources)
        self._record(node.outputs[0], outputs)

    def _stack(self, node: Node) -> None:
        compact = [self._compact(number) for number in node.sources]
        # Channels that are left, counted in what all sources together had.
        starts = np.cumsum([0, *(num_channels(self._graph, number) for number in node.sources)])
        present = np.concatenate([start + part for start, (_, part) in zip(starts, compact, strict=False)])
        sources = [source for source, part in compact if part.size]
        if len(sources) > 1:
            self._call(node, node.layer, sources)
            self._record(node.outputs[0], present)
        else:
            self._record(node.outputs[0], present, sources[0] if sources else None)

    def _flatten(self, node: Node) -> None:
        source, present = self._compact(node.sources[0])
        offsets = np.arange(positions(self._graph, node.sources[0]))[:, None]
        if present.size:
            self._call(node, self._reshaped(node, offsets.size * present.size), [source])
        # Rule 3 of `compression.graph.removal.shrink`: the input (h W + w) C + c of each place for each channel that is
        # left.
        flat = num_channels(self._graph, node.sources[0]) * offsets + present
        self._record(node.outputs[0], flat.ravel())

    def _unflatten(self, node: Node) -> None:
        kept_indices = self._kept[node.name]
        if kept_indices.outputs.size:
            layer = self._reshaped(node, kept_indices.outputs.size)
            self._call(node, layer, [self._adapted(node.sources[0], kept_indices.inputs)])
        self._record(node.outputs[0], kept_indices.outputs)

    def _view(self, node: Node) -> None:
        places, _ = view_of(node)
        part = self._parts[node.sources[0]]
        index = np.where(places >= 0, part.places[places], -1)
        self._parts[node.outputs[0]] = _Part(part.tensor, index, is_view=True)

    def _whole(self, node: Node) -> None:
        is_there = all(self._parts[number].present.size for number in node.sources)
        if is_there:
            self._call(node, node.layer, [self._everything(number) for number in node.sources])
        for number in node.outputs:
            self._record(number, np.arange(num_channels(self._graph, number)) if is_there else _NOTHING)

    # Tensors and calls.

    def _record(self, number: int, present: np.ndarray, tensor: int | None = None) -> None:
        """The tensor `number` is there with these channels, maybe as the new tensor of another number."""
        index = np.full(num_channels(self._graph, number), -1)
        index[present] = np.arange(len(present))
        self._parts[number] = _Part(number if tensor is None else tensor, index)
        self._sizes[self._parts[number].tensor] = len(present)

    def _compact(self, number: int) -> tuple[int, np.ndarray]:
        """The new tensor for `number`, and which channels it has, in order."""
        part = self._parts[number]
        if not part.is_view:
            return part.tensor, part.present
        return self._everything(number), np.arange(part.places.size)

    def _everything(self, number: int) -> int:
        return self._adapted(number, np.arange(num_channels(self._graph, number)))

    def _adapted(self, number: int, wanted: np.ndarray, instead: int | None = None) -> int:
        """A tensor with these channels, in place of those that are not there their constants.

        :param instead: the tensor that lends its shape if none of these channels is there.
        """
        part = self._parts[number]
        # Where they are in the new tensor, or in another one of the same shape.
        index = part.places[wanted]
        source = part.tensor if np.any(index >= 0) or instead is None else self._parts[instead].tensor
        if np.array_equal(index, np.arange(self._sizes[source])):
            return source
        # Only channels that are there: a selection; else constants in between.
        if np.all(index >= 0):
            layer = SelectInputs(index)
        else:
            layer = PlaceInputs(index)
            constants = np.zeros(part.places.size) if self._constants is None else self._constants[number]
            self._fills.append((layer, np.where(index < 0, constants[wanted], 0.0)))
        # A call of its own, whose tensor gets a new number.
        new_number = self._next
        self._next = self._next + 1
        self._nodes.append(Node(layer, layer.name, (Ref(source),), {}, (new_number,)))
        self._sizes[new_number] = len(wanted)
        return new_number

    def _call(self, node: Node, layer: keras.layers.Layer, sources: Sequence[int]) -> None:
        if node.name not in self._layers:
            is_old = layer is node.layer and isinstance(layer, keras.Layer)
            self._layers[node.name] = copied(layer, node.name) if is_old else layer
        # The arguments of the old call, with the new tensors in the same places.
        queue = iter(sources)
        args, kwargs = keras.tree.map_structure(
            lambda part: Ref(next(queue)) if isinstance(part, Ref) else part, (node.args, node.kwargs)
        )
        self._nodes.append(Node(self._layers[node.name], node.name, args, kwargs, node.outputs))

    def _reshaped(self, node: Node, size: int) -> keras.Layer:
        """The layer, with another last axis if it says how long that is."""
        if not isinstance(node.layer, keras.layers.Reshape):
            return node.layer
        shape = self._graph.tensors[node.outputs[0]].shape[1:-1]
        return clone(node.layer, name=node.name, target_shape=(*(-1 if n is None else n for n in shape), size))


def _reachable(nodes: list[Node], wanted: set[int]) -> list[Node]:
    """The calls that lead to these tensors."""
    reachable = []
    for node in reversed(nodes):
        if wanted & set(node.outputs):
            wanted |= set(node.sources)
            reachable.append(node)
    return reachable[::-1]


def copy_weights(layer: keras.Layer, new: keras.Layer, kept: Kept | None) -> None:
    """Give a layer the weights of another, all of them or the part that is kept; none if it has more or fewer."""
    if not isinstance(layer, keras.Layer) or len(layer.weights) != len(new.weights):  # statistics became settings
        return
    for old_variable, variable in zip(layer.weights, new.weights, strict=True):
        value = np.asarray(old_variable)
        variable.assign(value if kept is None else cut(value, role_of(layer, old_variable.name), kept))
