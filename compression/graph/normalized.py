"""Batch normalisation behind the convolutions of a plain network, for as long as it trains.

    trained = normalized(model, X)  # computes what the model does
    ...  # train it
    fold_into(trained, model)  # and so does the model again

Deep networks without it train slowly. What it learns fits into the kernels and biases of the model, so that nothing is
left of it.
"""

from __future__ import annotations

import keras
import numpy as np
from numpy.typing import ArrayLike

from .convert import folded_weights
from .graph import Graph, Node, Ref, Tensor, clone, graph_of, layers_of, model_of
from .kinds import is_convolution, is_mixing, kind_of
from .rebuild import copied, copy_weights

__all__ = ["fold_into", "normalized"]

_SUFFIX = "_normalisation"


def normalized(model: keras.Model, X: ArrayLike) -> keras.Model:
    """A copy of a plain network with batch normalisation between its convolutions and their activations.

    Where it follows one already, behind the last convolutions of a network, and before activations that are layers or
    not of each number alone, there is none.

    :param X: examples [n, ...], nested as the model takes them, which say what normalisation begins with: in inference
        the copy computes what `model` does, and for these in training, too, up to rounding.
    """
    graph = graph_of(model)
    chosen = [node.name for node in graph.nodes if _is_chosen(graph, node)]
    new_layers = {node.name: copied(node.layer, node.name) for node in layers_of(graph) if node.name not in chosen}
    # Each chosen convolution becomes three calls: products, normalisation, activation.
    nodes = list[Node]()
    tensors = list(graph.tensors)
    for node in graph.nodes:
        if node.name not in chosen:
            nodes.append(node._replace(layer=new_layers.get(node.name, node.layer)))
            continue
        new_layers[node.name] = clone(node.layer, name=node.name, activation="linear")
        shape = graph.tensors[node.outputs[0]].shape
        first = len(tensors)
        second = len(tensors) + 1
        tensors += [Tensor(shape, "float32"), Tensor(shape, "float32")]
        normalisation = keras.layers.BatchNormalization(name=node.name + _SUFFIX)
        new_layers[normalisation.name] = normalisation
        nodes += [
            node._replace(layer=new_layers[node.name], outputs=(first,)),
            Node(normalisation, normalisation.name, (Ref(first),), {}, (second,)),
            _activation(node, second),
        ]
    new_model = model_of(graph._replace(nodes=nodes, tensors=tensors))
    for node in layers_of(graph):
        copy_weights(node.layer, new_layers[node.name], None)
    # With statistics 0 and 1 they do nothing in inference, so that all can be called for their inputs.
    normalisations = [new_layers[name + _SUFFIX] for name in chosen]
    for layer in normalisations:
        one = np.ones(layer.gamma.shape)
        zero = np.zeros(layer.gamma.shape)
        layer.set_weights([np.sqrt(one + layer.epsilon), zero, zero, one])  # does nothing
    # Then with the statistics of the examples, and a scale and shift that take them back.
    if chosen:
        functional = getattr(new_model, "_functional", new_model)
        outputs = keras.Model(functional.input, [layer.input for layer in normalisations])(X, training=False)
        for layer, output in zip(normalisations, keras.tree.flatten(outputs), strict=True):  # one comes without a list
            axes = tuple(range(output.ndim - 1))
            mean = np.mean(output, axis=axes)
            variance = np.var(output, axis=axes)
            layer.set_weights([np.sqrt(variance + layer.epsilon), mean, mean, variance])
    return new_model


def fold_into(trained: keras.Model, model: keras.Model) -> None:
    """Give `model`, of which `trained` was made by :func:`normalized`, what that has learnt."""
    trained_layers = {node.name: node.layer for node in layers_of(graph_of(trained))}
    for node in layers_of(graph_of(model)):
        if (normalisation := trained_layers.get(node.name + _SUFFIX)) is None:
            copy_weights(trained_layers[node.name], node.layer, None)
        else:
            node.layer.set_weights(folded_weights(normalisation, node.layer, *trained_layers[node.name].get_weights()))


def _is_chosen(graph: Graph, node: Node) -> bool:
    if not is_convolution(node.layer) or kind_of(graph, node) != "weighted" or is_mixing(node.layer):
        return False
    if not node.layer.use_bias or node.outputs[0] in graph.output_numbers:
        return False
    # Not where one follows already.
    readers = [other.layer for other in graph.nodes if node.outputs[0] in other.sources]
    return not any(isinstance(layer, keras.layers.BatchNormalization) for layer in readers)


def _activation(node: Node, source: int) -> Node:
    """A call of the activation of a layer alone, which gives what the layer gave."""
    name = f"{node.name}_activation"
    return Node(keras.layers.Activation(node.layer.activation, name=name), name, (Ref(source),), {}, node.outputs)
