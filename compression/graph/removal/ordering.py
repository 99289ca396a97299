"""Hidden units in an order that takes fewer bytes: what a network computes does not depend on it."""

from __future__ import annotations

import keras
import numpy as np

from ..graph import Graph, Node, graph_of
from ..kinds import is_mixing, kind_of
from ..rebuild import copy_of
from .cutting import oriented
from .flow import num_channels, positions

__all__ = ["ordered"]


def ordered(model: keras.Model) -> keras.Model:
    """A copy of a plain model with the units of hidden layers sorted, those of the most weights that are not 0 first.

    That is done where the units of a dense layer or convolution go to one other such layer, with nothing but
    activations, pooling, flattening and the like between. Outputs are the same up to the order of sums.
    """
    new_model = copy_of(model)
    graph = graph_of(new_model)
    for node in graph.nodes:
        if kind_of(graph, node) == "weighted" and (follower := _follower(graph, node)) is not None:
            _sort(node.layer, *follower)
    return new_model


def _follower(graph: Graph, node: Node) -> tuple[keras.Layer, int] | None:
    """The only layer that the units of another go to, and at how many places of an image they are inputs of it."""
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
            return follower.layer, repeats
        if kind == "flatten" and num_channels(graph, number) == num_channels(graph, node.outputs[0]):
            repeats = positions(graph, number)
        elif kind != "pointwise" or getattr(follower.layer, "weights", None):
            return None
        number = follower.outputs[0]
    return None


def _sort(layer: keras.Layer, then: keras.Layer, repeats: int) -> None:
    # Kernels with inputs and outputs last; rows of the next one by place and unit.
    kernel = oriented(layer, np.asarray(layer.kernel))
    next_kernel = oriented(then, np.asarray(then.kernel))
    units = kernel.shape[-1]
    rows = next_kernel.reshape(*next_kernel.shape[:-2], repeats, units, next_kernel.shape[-1])
    outgoing = np.moveaxis(rows, -2, 0).reshape(units, -1)
    incoming = kernel.reshape(-1, units)
    # By the number of weights that are not 0, going in and out; then by their size.
    count = np.count_nonzero(incoming, axis=0) + np.count_nonzero(outgoing, axis=1)
    size = np.abs(incoming).sum(axis=0) + np.abs(outgoing).sum(axis=1)
    order = np.lexsort((-size, -count))
    # The same order for the outputs of one layer and the inputs of the other.
    layer.kernel.assign(oriented(layer, kernel[..., order]))
    if layer.use_bias:
        layer.bias.assign(np.asarray(layer.bias)[order])
    then.kernel.assign(oriented(then, rows[..., order, :].reshape(next_kernel.shape)))
