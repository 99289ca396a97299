"""Models that are one chain of layers, which is what can be converted and shrunk; all others are refused by name."""

from typing import Any, NamedTuple

import keras

from .base import BayesianLayer
from .layers import BayesianConv2D, BayesianDense
from .supported import DROPOUT, STORED, activation_name, problem

__all__ = ["Link", "chain", "is_convolution", "is_elementwise", "is_weighted", "walk"]

_WEIGHTED = (keras.layers.Dense, keras.layers.Conv2D)


class Link(NamedTuple):
    """A layer of the chain and the shape of its inputs, with the batch first."""

    layer: keras.layers.Layer
    input_shape: tuple[Any, ...]


def walk(model: keras.Model) -> list[Link]:
    """The layers of a Sequential or single-path functional `model` from input to output, without its InputLayer.

    They are found from the output, because layers of a model that was loaded or called again have other nodes as well.

    :raises ValueError: if the model is not one chain: several inputs or outputs, a layer that merges or is shared.
    """
    inputs, outputs = (getattr(model, "inputs", None) or [], getattr(model, "outputs", None) or [])
    if len(inputs) != 1 or len(outputs) != 1:
        raise ValueError(
            f"the model {model.name} must be a built Sequential or functional model with one input and one output, "
            f"got {len(inputs)} inputs and {len(outputs)} outputs."
        )
    links: list[Link] = []
    tensor, seen = outputs[0], set()
    while True:
        layer, node_index, _ = tensor._keras_history
        if isinstance(layer, keras.layers.InputLayer):
            return links[::-1]
        if id(layer) in seen:
            raise ValueError(f"the layer {layer.name} is shared: it is called twice. Give each place its own layer.")
        seen.add(id(layer))
        sources = layer._inbound_nodes[node_index].input_tensors
        if len(sources) != 1:
            raise ValueError(
                f"the layer {layer.name} ({type(layer).__name__}) merges {len(sources)} inputs; "
                f"only a chain of layers can be compressed."
            )
        tensor = sources[0]
        links.append(Link(layer, tuple(tensor.shape)))


def chain(model: keras.Model, *, also: tuple[type, ...] = ()) -> list[Link]:
    """The layers of `model` as :func:`walk` finds them, if all of them can be shrunk.

    :param also: types of layers to accept besides those that can be shrunk.
    :raises ValueError: as `walk`, or if a layer is of a type or in a setting that is not supported; it names the layer.
    """
    links = walk(model)
    for link in links:
        _check(link.layer, also)
    weighted = [link.layer for link in links if is_weighted(link.layer)]
    if not weighted:
        raise ValueError(f"the model {model.name} has no Dense or Conv2D layer; there is nothing to compress.")
    for link in links:
        if not is_elementwise(link.layer) and link.layer is not links[-1].layer and link.layer is not weighted[-1]:
            raise ValueError(f"{link.layer.name} mixes its features (softmax); it is supported at the output only.")
    return links


def is_weighted(layer: keras.layers.Layer) -> bool:
    """Whether `layer` is dense or a convolution, plain or Bayesian."""
    return type(layer) in _WEIGHTED or isinstance(layer, BayesianLayer)


def is_convolution(layer: keras.layers.Layer) -> bool:
    """Whether a layer is a convolution, Bayesian or not."""
    return isinstance(layer, keras.layers.Conv2D | BayesianConv2D)


def is_elementwise(layer: keras.layers.Layer) -> bool:
    """Whether the activation of `layer` acts on each feature alone, as far as is known."""
    if isinstance(layer, keras.layers.Softmax):
        return False
    name = activation_name(layer)
    return name is None or name not in ("", "softmax")


def _check(layer: keras.layers.Layer, also: tuple[type, ...]) -> None:
    supported = (*STORED, *DROPOUT, *also)
    if type(layer) not in supported and not isinstance(layer, BayesianDense | BayesianConv2D):
        names = ", ".join(kind.__name__ for kind in supported)
        raise ValueError(
            f"the layer {layer.name} ({type(layer).__name__}) cannot be compressed; supported are {names} and "
            f"the Bayesian layers."
        )
    if found := problem(layer):
        raise ValueError(f"the layer {layer.name} {found}.")
