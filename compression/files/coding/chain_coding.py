"""Networks that are short chains of layers in a `.bcz` file: the short form of the layers, see `container`."""

import keras

from gpflow_deep_base.storage.frame import leb128
from gpflow_deep_base.storage.limits import Budget

from ...graph.graph import Graph, Node, Ref, Tensor, is_chain
from ...graph.supported import problem
from .costs import take_input, take_time, take_weights
from .kernel_coding import Reader
from .layer_coding import layer_bytes, read_layer

__all__ = ["MAX_AXES", "MAX_LAYERS", "chain_bytes", "fits_chain", "read_chain"]

MAX_AXES = 8
MAX_LAYERS = 4096
_SHAPED = (keras.layers.Dense, keras.layers.Conv2D)


def fits_chain(graph: Graph) -> bool:
    """Whether the layers are a chain that the short form can hold."""
    if not is_chain(graph) or graph.tensors[graph.input_numbers[0]].dtype != "float32":
        return False
    # Layers with weights take inputs with one axis, or with those of an image.
    ranks = {keras.layers.Dense: 2, keras.layers.Conv2D: 4}
    return all(
        not problem(node.layer)
        and len(graph.tensors[node.sources[0]].shape)
        == ranks.get(type(node.layer), len(graph.tensors[node.sources[0]].shape))
        for node in graph.nodes
    )


def chain_bytes(graph: Graph) -> bytes:
    """Sizes of the inputs and layers, without weights."""
    sizes = [int(size or 0) for size in graph.tensors[graph.input_numbers[0]].shape[1:]]
    layers = b"".join(layer_bytes(node.layer) for node in graph.nodes)
    return leb128(len(sizes)) + b"".join(map(leb128, sizes)) + leb128(len(graph.nodes)) + layers


def read_chain(reader: Reader, budget: Budget) -> tuple[Graph, list[list[tuple[int, ...]]]]:
    """What :func:`chain_bytes` wrote: layers without weights, and the shapes of the weights of each.

    :raises ValueError: if that takes more than the budget, or if the content is impossible.
    """
    # The shape of the inputs; sizes are taken from the budget as they are read.
    axes = reader.at_most(MAX_AXES, "axes")
    shape: tuple[int | None, ...] = tuple(reader.integer() or None for _ in range(axes))
    take_input(budget, shape)
    tensors = [Tensor((None, *shape), "float32")]
    nodes = list[Node]()
    shapes = list[list[tuple[int, ...]]]()
    count = reader.at_most(MAX_LAYERS, "layers")
    take_time(budget, "", count)
    # Layer after layer, each built on the shape that the one before gives.
    for number in range(count):
        layer = read_layer(reader, int(shape[-1] or 0))
        shapes.append(_weight_shapes(layer, shape))
        take_time(budget, "", len(shapes[-1]))
        take_weights(budget, shapes[-1])
        shape = tuple(layer.compute_output_shape((None, *shape)))[1:]
        tensors.append(Tensor((None, *shape), "float32"))
        nodes.append(Node(layer, layer.name, (Ref(number),), {}, (number + 1,)))
    return Graph("network", Ref(0), Ref(len(nodes)), nodes, tensors), shapes


def _weight_shapes(layer: keras.Layer, input_shape: tuple[int | None, ...]) -> list[tuple[int, ...]]:
    if not isinstance(layer, _SHAPED):
        return []
    # As Keras would build them, without building them.
    is_dense = isinstance(layer, keras.layers.Dense)
    if len(input_shape) != (1 if is_dense else 3) or input_shape[-1] is None:
        raise ValueError(f"a {type(layer).__name__} layer has inputs {input_shape}")
    units = layer.units if is_dense else layer.filters
    kernel = (*(() if is_dense else layer.kernel_size), input_shape[-1], units)
    return [kernel, (units,)] if layer.use_bias else [kernel]
