"""Networks without layers of this package, for `.keras` files that load where it is not installed.

`SelectInputs` becomes `keras.ops.take`, and `PlaceInputs` that and `keras.ops.where`. `graph_of` reads both as the
layers again, so such a network can be cut and written as before.
"""

from collections.abc import Callable

import keras
import numpy as np

from .graph import Node, graph_of
from .kept_inputs import PlaceInputs, SelectInputs
from .rebuild import remade

__all__ = ["portable"]


def portable(model: keras.Model) -> keras.Model:
    """The same network of layers and operations of Keras alone.

        bc.portable(small).save("small.keras")      # loads where this package is not installed

    :param model: plain, Sequential or functional, such as `shrink` and `load` return; it is not changed.
    :return: `model` itself if it has no layers of this package, else an uncompiled functional copy with the same
        outputs. Constants that `PlaceInputs` has in a variable are no weights of it.
    :raises ValueError: if the model is not built.
    """
    graph = graph_of(model)
    if not any(_is_view(node) for node in graph.nodes):
        return model
    return remade(graph, {node.name: _operation(node.layer) for node in graph.nodes if _is_view(node)})


def _is_view(node: Node) -> bool:
    return isinstance(node.layer, SelectInputs | PlaceInputs)


def _operation(layer: SelectInputs | PlaceInputs) -> Callable[[keras.KerasTensor], keras.KerasTensor]:
    """A function of Keras' operations that does what the layer does."""
    indices = layer.indices

    def select(x: keras.KerasTensor) -> keras.KerasTensor:
        return keras.ops.take(x, np.maximum(indices, 0).tolist(), axis=-1)

    def place(x: keras.KerasTensor) -> keras.KerasTensor:
        return keras.ops.where(indices >= 0, select(x), np.asarray(layer.fill, x.dtype))

    return place if isinstance(layer, PlaceInputs) else select
