"""Hidden units in an order that takes fewer bytes: what a network computes does not depend on it."""

from __future__ import annotations

from typing import NamedTuple

import keras
import numpy as np
from numpy.typing import NDArray

from ..graph import Graph, Node, graph_of
from ..kinds import is_mixing, kind_of
from ..rebuild import copy_of
from .cutting import oriented
from .flow import num_channels, positions

__all__ = ["ordered"]


class _Pair(NamedTuple):
    """A layer, the only layer that its units go to, and at how many places of an image these are inputs of it."""

    layer: keras.Layer
    then: keras.Layer
    repeats: int


def ordered(model: keras.Model) -> keras.Model:
    """A copy of a plain model with the units of hidden layers sorted, those of the most weights that are not 0 first.

    That is done where the units of a dense layer or convolution go to one other such layer, with nothing but
    activations, pooling, flattening and the like between. Outputs are the same up to the order of sums.
    """
    new_model = copy_of(model)
    graph = graph_of(new_model)
    for node in graph.nodes:
        pair = _pair(graph, node) if kind_of(graph, node) == "weighted" else None
        if pair is not None:
            _sort(pair)
    return new_model


def _pair(graph: Graph, node: Node) -> _Pair | None:
    if is_mixing(node.layer):
        return None
    uses = graph.consumers()
    number = node.outputs[0]
    repeats = 1
    # Follow the only reader of the units until a layer with weights.
    while uses[number] == 1 and number not in graph.output_numbers:
        follower = next(other for other in graph.nodes if number in other.sources)
        kind = kind_of(graph, follower)
        if kind == "weighted":
            return _Pair(node.layer, follower.layer, repeats)
        if kind == "flatten" and num_channels(graph, number) == num_channels(graph, node.outputs[0]):
            repeats = positions(graph, number)
        elif kind != "pointwise" or getattr(follower.layer, "weights", None):
            return None
        number = follower.outputs[0]
    return None


def _sort(pair: _Pair) -> None:
    kernel, next_kernel = (_axes_last(layer) for layer in (pair.layer, pair.then))
    units = kernel.shape[-1]
    rows = next_kernel.reshape(*next_kernel.shape[:-2], pair.repeats, units, next_kernel.shape[-1])
    outgoing = np.moveaxis(rows, -2, 0).reshape(units, -1)
    incoming = kernel.reshape(-1, units)
    # By the number of weights that are not 0, going in and out; then by their size.
    count = np.count_nonzero(incoming, axis=0) + np.count_nonzero(outgoing, axis=1)
    size = np.abs(incoming).sum(axis=0) + np.abs(outgoing).sum(axis=1)
    order = np.lexsort((-size, -count))
    # The same order for the outputs of one layer and the inputs of the other.
    pair.layer.kernel.assign(oriented(pair.layer, kernel[..., order]))
    if pair.layer.use_bias:
        pair.layer.bias.assign(np.asarray(pair.layer.bias)[order])
    pair.then.kernel.assign(oriented(pair.then, rows[..., order, :].reshape(next_kernel.shape)))


def _axes_last(layer: keras.Layer) -> NDArray[np.float32]:
    """The kernel, inputs and outputs last."""
    return oriented(layer, np.asarray(layer.kernel))
