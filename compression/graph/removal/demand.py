"""Which channels of each tensor of a graph have to be computed, from its outputs back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np

from ..graph import Graph, Node
from ..kinds import is_mixing
from .cutting import Kept
from .flow import Flow, num_channels, positions, used, view_of

__all__ = ["kept_of"]


def kept_of(graph: Graph, kinds: Sequence[str], flow: Flow, *, keep_inputs: bool = False) -> dict[str, Kept]:
    """Kept inputs and outputs of the layers that choose among their inputs, make channels, or put them together.

    An output is kept if somebody needs it. An input is needed if it varies and has a weight to an output that is kept.
    Layers that are not understood need all inputs that vary. If there is none, one stays, with weights of zero.

    :param keep_inputs: layers that see the inputs of the model keep them all.
    """
    input_numbers = _given(graph, kinds) if keep_inputs else set()
    needed = [np.zeros(num_channels(graph, number), bool) for number in range(len(graph.tensors))]
    for number in graph.output_numbers:
        needed[number][:] = True
    # From the last call back: an output that somebody needs says which inputs are needed.
    kept_by_name: dict[str, Kept] = {}
    for node, kind in list(zip(graph.nodes, kinds, strict=True))[::-1]:
        # A layer that is not understood needs all of its inputs, if anything of it is needed.
        if kind == "whole":
            if any(needed[number].any() for number in node.outputs):
                for number in node.sources:
                    needed[number] |= _some(flow.varies[number], flow.varies[number])
            continue
        # Others say by their kind which inputs they need; the inputs of the model may all be kept.
        demand = _DEMANDS[kind](graph, flow, node, needed[node.outputs[0]])
        if kind == "weighted" and node.sources[0] in input_numbers and needed[node.outputs[0]].any():
            everything = np.ones_like(demand.sources[0])
            demand = _Demand([everything], _kept(everything, needed[node.outputs[0]]))
        if demand.kept is not None:
            kept_by_name[node.name] = demand.kept
        for number, source_mask in zip(node.sources, demand.sources, strict=True):
            needed[number] |= source_mask
    return dict(reversed(kept_by_name.items()))


def _given(graph: Graph, kinds: Sequence[str]) -> set[int]:
    """Numbers of the tensors that are the inputs of the model, maybe in another shape."""
    numbers = set(graph.input_numbers)
    for node, kind in zip(graph.nodes, kinds, strict=True):
        if kind in ("pointwise", "flatten", "unflatten") and node.sources[0] in numbers:
            numbers |= set(node.outputs)
    return numbers


class _Demand(NamedTuple):
    """What a call needs of each of its sources, and what is recorded of it."""

    sources: Sequence[np.ndarray]
    kept: Kept | None = None


def _kept(inputs: np.ndarray, outputs: np.ndarray) -> Kept:
    return Kept(np.flatnonzero(inputs), np.flatnonzero(outputs))


def _some(wanted: np.ndarray, varies: np.ndarray) -> np.ndarray:
    """What is wanted; if that is nothing, one channel."""
    if wanted.any():
        return wanted
    return np.arange(wanted.size) == np.argmax(varies)


def _weighted(graph: Graph, flow: Flow, node: Node, outputs: np.ndarray) -> _Demand:
    # Inputs that vary and have a weight to an output that is needed.
    source = node.sources[0]
    kernel = flow.kernels[node.name]
    varies = flow.varies[source]
    if not outputs.any():
        nothing = np.zeros(varies.size, bool)
        return _Demand([nothing], _kept(nothing, np.zeros(kernel.shape[-1], bool)))
    # An activation such as softmax mixes outputs, so that none can go.
    if is_mixing(node.layer):
        outputs = np.ones(kernel.shape[-1], bool)
    inputs = _some(varies & used(kernel, outputs), varies)
    # The input that stands for all constant ones stays where padding needs it.
    one = np.arange(varies.size) == flow.merged.get(node.name, -1)
    return _Demand([inputs], _kept(inputs | one, outputs))


def _scaled(graph: Graph, flow: Flow, node: Node, outputs: np.ndarray) -> _Demand:
    if not isinstance(node.layer, keras.layers.Embedding):
        return _Demand([outputs])
    everything = np.full(num_channels(graph, node.sources[0]), bool(outputs.any()))
    return _Demand([everything], _kept(everything, outputs))


def _merge(graph: Graph, flow: Flow, node: Node, outputs: np.ndarray) -> _Demand:
    if not outputs.any():
        return _Demand([outputs for _ in node.sources], _kept(outputs, outputs))
    # A constant channel is put in place later, but one tensor has to be there for the shape.
    needed = [outputs & flow.varies[number] for number in node.sources]
    if len({graph.tensors[number].shape for number in node.sources}) > 1:  # none can stand in for another
        needed = [_some(mask, outputs) for mask in needed]
    elif not any(mask.any() for mask in needed):
        needed[0] = _some(needed[0], outputs)
    return _Demand(needed, _kept(outputs, outputs))


def _stack(graph: Graph, flow: Flow, node: Node, outputs: np.ndarray) -> _Demand:
    sizes = [num_channels(graph, number) for number in node.sources]
    return _Demand(np.split(outputs, np.cumsum(sizes)[:-1]))


def _flatten(graph: Graph, flow: Flow, node: Node, outputs: np.ndarray) -> _Demand:
    return _Demand([outputs.reshape(-1, num_channels(graph, node.sources[0])).any(axis=0)])


def _unflatten(graph: Graph, flow: Flow, node: Node, outputs: np.ndarray) -> _Demand:
    # A channel is needed at all of its places, where it varies.
    repeated = np.tile(outputs, positions(graph, node.outputs[0]))
    needed = repeated & flow.varies[node.sources[0]]
    return _Demand([_some(needed, repeated) if outputs.any() else needed], _kept(repeated, outputs))


def _view(graph: Graph, flow: Flow, node: Node, outputs: np.ndarray) -> _Demand:
    # The inputs at whose places somebody needs an output.
    places, _ = view_of(node)
    inputs = np.zeros(num_channels(graph, node.sources[0]), bool)
    inputs[places[outputs & (places >= 0)]] = True
    if outputs.any():
        inputs = _some(inputs, flow.varies[node.sources[0]])
    return _Demand([inputs], _kept(outputs, outputs))


_DEMANDS = {
    "weighted": _weighted,
    "scaled": _scaled,
    "pointwise": lambda graph, flow, node, outputs: _Demand([outputs]),
    "merge": _merge,
    "stack": _stack,
    "flatten": _flatten,
    "unflatten": _unflatten,
    "view": _view,
}
