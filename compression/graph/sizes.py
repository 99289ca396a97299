"""How large a network is: its weights, all its numbers, and the products that it forms for one example."""

import math
from typing import NamedTuple

import keras

from ..layers.base import BayesianLayer
from .graph import Graph, Node, graph_of
from .kinds import is_transposed

__all__ = ["Size", "multiplications_of", "size_of", "weights_of"]


class Size(NamedTuple):
    """How large a network is.

    :ivar weights: numbers in kernels, all weights with two or more axes.
    :ivar parameters: all numbers.
    :ivar multiplications: products of a weight and a number in convolutions and dense layers, for one example; None if
        that depends on the example, such as the size of an image.
    """

    weights: int
    parameters: int
    multiplications: int | None = None


def size_of(model: keras.Model) -> Size:
    """The size of a plain network; of a Bayesian one that of the plain network with its means.

    :raises ValueError: if the model is not built.
    """
    # Each layer once for its weights, each call for its products.
    graph = graph_of(model)
    layers = {id(node.layer): node.layer for node in graph.nodes}.values()
    counts = [multiplications_of(graph, node) for node in graph.nodes]
    return Size(
        weights=sum(map(weights_of, layers)),
        parameters=sum(math.prod(variable.shape) for layer in layers for variable in _variables(layer)),
        multiplications=None if None in counts else sum(count or 0 for count in counts),
    )


def weights_of(layer: keras.layers.Layer) -> int:
    """Numbers in the kernels of a layer."""
    return sum(math.prod(variable.shape) for variable in _variables(layer) if len(variable.shape) > 1)


def multiplications_of(graph: Graph, node: Node) -> int | None:
    """Products of a call: each number of a kernel is used at each place of the output, or of the input if transposed.

    None if the number of places depends on the example.
    """
    # Kernels of dense layers and convolutions, two of separable ones.
    kernels = [getattr(node.layer, name, None) for name in _KERNELS]
    numbers = sum(math.prod(kernel.shape) for kernel in kernels if kernel is not None)
    if not numbers:
        return 0
    number = node.sources[0] if is_transposed(node.layer) else node.outputs[0]
    places = graph.tensors[number].shape[1:-1]
    return None if None in places else numbers * math.prod(size or 0 for size in places)


_KERNELS = ("kernel_mean", "kernel", "depthwise_kernel", "pointwise_kernel")


def _variables(layer: keras.layers.Layer) -> list[keras.Variable]:
    if isinstance(layer, BayesianLayer):
        return [layer.kernel_mean, *([layer.bias] if layer.use_bias else [])]
    return list(getattr(layer, "weights", ()))
