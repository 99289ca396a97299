"""A file is parsed and compared with its network before it takes the place of another one.

What is compared: each weight, bit for bit; the layers, their settings and the arguments of each call; and the outputs
for random inputs, where there is room for these.
"""

import math
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from ..graph.graph import Graph, Nested, graph_of, layers_of
from .coding.graph_coding import for_files, outline, without_masks
from .contents import contents_of, network_of, stored_weights

__all__ = ["check_content", "random_input"]

_EXAMPLES = 3
_OPEN_SIZE = 32  # of an axis that a network leaves open
_MAX_NUMBERS = 2**20  # of all inputs of a probe
_TOLERANCE = 1e-4  # of the largest output: the same float32 operations, hardly ever in another order
_TOLERANCE_OF_HALVES = 1e-2  # layers without weights that compute in half precision do so in float32 in a file


def check_content(content: bytes, model: keras.Model, values: Sequence[NDArray[np.float32]]) -> None:
    """Refuse the content of a file that does not give back its network.

    :param model: the network; its graph and settings count, not its weights.
    :param values: its weights, in the order of a file.
    :raises ValueError: saying what differs.
    """
    # Weights bit for bit.
    contents = contents_of(content)
    weights = [part for stored in contents.weights for part in (stored.kernel, stored.bias) if part is not None]
    if len(weights) != len(values) or any(a.tobytes() != b.tobytes() for a, b in zip(weights, values, strict=True)):
        raise ValueError("weights differ")
    # Layers, settings and calls.
    network = network_of(contents)
    graph = without_masks(for_files(graph_of(model)))
    if outline(without_masks(graph_of(network))) != outline(graph):
        raise ValueError("layers or calls differ")
    _check_outputs(model, network, graph)


def _check_outputs(model: keras.Model, network: keras.Model, graph: Graph) -> None:
    """Outputs for random inputs, with the weights of `model` in both."""
    inputs = _probe(graph)
    if inputs is None or any(getattr(node.layer, "stateful", False) for node in graph.nodes):
        return
    try:
        expected = model(inputs, training=False)
    except Exception:  # random inputs are none for this network
        return
    # The file has rounded weights: for the outputs both networks have those of `model`.
    initial_weights = network.get_weights()
    for node, other in zip(layers_of(graph), layers_of(graph_of(network)), strict=True):
        other.layer.set_weights([np.asarray(variable) for variable in stored_weights(node.layer)])
    outputs = network(inputs, training=False)
    network.set_weights(initial_weights)
    halves = any(getattr(node.layer, "compute_dtype", "float32") != "float32" for node in graph.nodes)
    # Outputs are the same up to the order of sums.
    for a, b in zip(keras.tree.flatten(expected), keras.tree.flatten(outputs), strict=True):
        if a.dtype == tf.string:
            if not np.array_equal(a, b):
                raise ValueError("outputs for random inputs differ")
            continue
        x = np.asarray(a, np.float64)
        y = np.asarray(b, np.float64)
        scale = float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x)))
        tolerance = (_TOLERANCE_OF_HALVES if halves else _TOLERANCE) * (scale or 1.0)
        if x.shape != y.shape or not np.allclose(x, y, rtol=0.0, atol=tolerance, equal_nan=True):
            raise ValueError("outputs for random inputs differ")


def _probe(graph: Graph) -> Nested:
    """Random inputs, nested as the model takes them; None if they were too large."""
    rng = np.random.default_rng(0)
    tensors = graph.tensors
    if any(math.prod(_shape_of(tensors[number])) > _MAX_NUMBERS for number in graph.input_numbers):
        return None
    values = {number: random_input(tensors[number], rng) for number in graph.input_numbers}
    return keras.tree.map_structure(lambda ref: values[ref.number], graph.inputs)


def random_input(tensor: keras.KerasTensor, rng: np.random.Generator) -> tf.Tensor:
    """Some examples of an input of a network: of normal numbers, of 0 and 1, or of two words.

    :param tensor: with a shape, of which sizes may be open, and a type.
    """
    # By the type of the input: words, normal numbers, or 0 and 1 which any lookup has.
    shape = _shape_of(tensor)
    dtype = tensor.dtype
    if dtype == "string":
        return tf.convert_to_tensor(rng.choice(["a", "b"], shape))
    numbers = rng.normal(size=shape) if "float" in dtype else rng.integers(0, 2, shape)
    return tf.cast(numbers, dtype)


def _shape_of(tensor: keras.KerasTensor) -> tuple[int, ...]:
    first, *sizes = tensor.shape
    return (first or _EXAMPLES, *(size or _OPEN_SIZE for size in sizes))
