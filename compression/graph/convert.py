"""A trained Keras model in Bayesian form, to be trained on and pruned (Sec. 5: VGG starts from pretrained means)."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from ..layers import layers
from ..layers.base import BayesianLayer
from .graph import Graph, Node, Ref, Tensor, bypassed, clone, graph_of, layers_of
from .kinds import check_plain_weights, is_convolution, kind_of, weighted_layers, whole_layers
from .rebuild import remade
from .supported import IDLE

__all__ = ["BAYESIAN", "compress", "folded", "folded_weights"]

LOG = logging.getLogger(__name__)

_PRIORS = ("ghs", "gnj", "svd")
BAYESIAN = ("Dense", "Conv1D", "Conv2D", "Conv3D", "Conv2DTranspose")
"""Kinds of layers that become Bayesian."""
_SEPARABLE: dict[type, tuple[type, type]] = {
    keras.layers.SeparableConv1D: (keras.layers.DepthwiseConv1D, keras.layers.Conv1D),
    keras.layers.SeparableConv2D: (keras.layers.DepthwiseConv2D, keras.layers.Conv2D),
}


def compress(
    model: keras.Model,
    *,
    num_train: float,
    prior: str = "gnj",
    std_cap: float | Mapping[str, float] | None = None,
    seed: int = 0,
    **settings: Any,
) -> keras.Model:
    """The Bayesian form of a trained model: the same predictions, with a posterior around its weights.

        bayesian = compress(model, num_train=len(x))
        bayesian.compile("adam", loss)
        bayesian.fit(x, y, epochs=50, callbacks=[KLWarmup(10)])
        small = shrink(bayesian)

    Dense layers and convolutions become Bayesian ones of the same name, whose posterior means are the weights;
    separable convolutions become two layers. Batch normalisation directly after one without activation is folded into
    it (its moving statistics); dropout and noise of all kinds are removed; regularisers, constraints and mixed
    precision of the layers that become Bayesian are left out, with a warning. All other layers are copied, and of those
    with weights of which no unit can be removed a warning has the names. `model` is not changed.

    The loss is taken for the mean negative log-likelihood in nats of an example. That holds for cross-entropies. A mean
    squared error would be one for targets whose noise has variance 1/2: give it with the weight of the KL,
    `KLWarmup(epochs, weight=2 * variance)`, or call `compression.fit`, which learns it.

    :param model: built Sequential or functional model.
    :param num_train: number of training examples.
    :param prior: "gnj" (group normal-Jeffreys), "ghs" (group horseshoe) or "svd" (each weight, unstructured).
    :param std_cap: largest standard deviation of the weights, for all layers or by name; see `BayesianLayer`.
    :param seed: of the noise; each layer gets a stream of its own.
    :param settings: further arguments of the layers, such as `kl`, `scale_speed`, `initial_log_std` or `tau0`.
        `scale_speed` multiplies the steps of Adam and its relatives; steps of plain gradients it multiplies twice, so
        with SGD take its root.
    :return: an uncompiled model, a Sequential if `model` is a chain of layers.
    :raises ValueError: if the model is not built or none of its layers can become Bayesian, `prior` is unknown, or an
        argument is out of range.
    """
    if prior not in _PRIORS:
        raise ValueError(f"prior must be one of {sorted(_PRIORS)}, got {prior!r}.")
    original_graph = graph_of(model)
    check_plain_weights(original_graph)
    numbers = {node.name: number for number, node in enumerate(original_graph.nodes)}
    # What does nothing in inference is left out, and a separable convolution becomes two layers.
    graph = _separated(bypassed(original_graph, lambda node: type(node.layer) in IDLE))
    names = [node.name for node in weighted_layers(graph)]
    if bayesian := [node.name for node in weighted_layers(graph) if isinstance(node.layer, BayesianLayer)]:
        raise ValueError(f"the layers {bayesian} are Bayesian already; compress() takes a plain model.")
    chosen = [node for node in weighted_layers(graph) if type(node.layer).__name__ in BAYESIAN]
    if not chosen:
        raise ValueError(
            f"the model {model.name} has no Dense layer and no convolution that is called once; there is nothing to "
            "compress."
        )
    # A cap for all layers, or by name.
    caps = std_cap if isinstance(std_cap, Mapping) else dict.fromkeys(names, std_cap)
    if unknown := sorted(set(caps) - set(names)):
        raise ValueError(f"std_cap names {unknown}; the layers with weights are {names}.")
    _warn_of_what_is_lost(graph, chosen)
    # Batch normalisation goes into the weights before it.
    graph, weights, _ = _folded(graph, _is_chosen)
    new_layers: dict[str, keras.Layer] = {}
    for node in chosen:
        common = {
            "num_train": num_train,
            "std_cap": caps.get(node.name),
            "seed": seed * len(numbers) + numbers[node.name],
            **settings,
        }
        new_layers[node.name] = _bayesian(node, prior, common)
    # All other layers are copied. Posterior means are the weights.
    bayesian_model = remade(graph, new_layers)
    for name, layer in new_layers.items():
        kernel, bias = weights[name]
        layer.kernel_mean.assign(kernel)
        layer.bias.assign(bias)
    return bayesian_model


def _bayesian(node: Node, prior: str, common: dict[str, Any]) -> keras.Layer:
    layer = node.layer
    # The class for this kind of layer and prior, with the settings of the old layer.
    kind = getattr(layers, f"{type(layer).__name__}{prior.upper()}")
    common = {"activation": layer.activation, "name": node.name, "dtype": layer.variable_dtype, **common}
    if not is_convolution(layer):
        return kind(layer.units, **common)
    names = ("strides", "padding", "dilation_rate", "output_padding")
    shape = {name: getattr(layer, name) for name in names if hasattr(layer, name)}
    return kind(layer.filters, layer.kernel_size, **shape, **common)


def _warn_of_what_is_lost(graph: Graph, chosen: list[Node]) -> None:
    # What the prior stands in for, what computes in another type, and what stays whole.
    for kind in ("regularizer", "constraint"):
        names = [f"{part}_{kind}" for part in ("kernel", "bias", "activity")]
        if regularised := [node.name for node in chosen if any(getattr(node.layer, name, None) for name in names)]:
            LOG.warning(
                "the %ss of the layers %s are left out: the prior takes their place.", kind, ", ".join(regularised)
            )
    # Bayesian layers compute in float32, whatever the policy was.
    if low_precision := [node for node in chosen if node.layer.compute_dtype != node.layer.variable_dtype]:
        low_names = ", ".join(node.name for node in low_precision)
        LOG.warning(
            "the layers %s compute in %s; Bayesian ones do in float32.", low_names, low_precision[0].layer.compute_dtype
        )
    if uncut := [f"{node.name} ({type(node.layer).__name__})" for node in whole_layers(graph)]:
        LOG.warning("the layers %s stay whole: none of their units can be removed.", ", ".join(uncut))


def _separated(graph: Graph) -> Graph:
    """The graph with two layers in place of each separable convolution that is called once."""
    nodes = list[Node]()
    tensors = list(graph.tensors)
    calls = graph.calls()
    for node in graph.nodes:
        if type(node.layer) not in _SEPARABLE or calls[node.name] > 1 or node.layer.data_format != "channels_last":
            nodes.append(node)
            continue
        # A new tensor between the depthwise and the pointwise convolution.
        (source,) = node.sources
        first, second = _separate(node, graph.tensors[source].shape)
        number = len(tensors)
        tensors.append(Tensor(tuple(first.compute_output_shape(graph.tensors[source].shape)), "float32"))
        nodes += [
            Node(first, first.name, (Ref(source),), {}, (number,)),
            Node(second, node.name, (Ref(number),), {}, node.outputs),
        ]
    return graph._replace(nodes=nodes, tensors=tensors)


def _separate(node: Node, input_shape: tuple[int | None, ...]) -> tuple[keras.Layer, keras.Layer]:
    layer = node.layer
    # Places by a depthwise convolution without bias, channels by one of 1 x 1.
    depthwise, convolution = _SEPARABLE[type(layer)]
    names = ("kernel_size", "strides", "padding", "depth_multiplier", "dilation_rate")
    shape = {name: getattr(layer, name) for name in names}
    first = depthwise(use_bias=False, name=f"{node.name}_depthwise", **shape)
    second = convolution(layer.filters, 1, activation=layer.activation, use_bias=layer.use_bias, name=node.name)
    first.build(input_shape)
    second.build(first.compute_output_shape(input_shape))
    kernel, *pointwise_weights = layer.get_weights()
    first.set_weights([kernel])
    second.set_weights(pointwise_weights)
    return first, second


def folded(model: keras.Model) -> keras.Model:
    """A copy of a plain network with batch normalisation in the kernels and biases before it.

    It goes into dense layers, convolutions and depthwise ones without activation whose outputs it alone takes. Outputs
    are the same in inference, up to rounding.
    """
    graph, weights, changed = _folded(graph_of(model), lambda node: _is_depthwise(node.layer) or _is_chosen(node))
    # Layers that take something up get a bias, all others are copied.
    with_bias = {
        node.name: clone(node.layer, name=node.name, use_bias=True) for node in layers_of(graph) if node.name in changed
    }
    new_model = remade(graph, with_bias)
    for name, layer in with_bias.items():
        layer.set_weights(weights[name])
    return new_model


def _is_chosen(node: Node) -> bool:
    return type(node.layer).__name__ in BAYESIAN


def _is_depthwise(layer: keras.layers.Layer) -> bool:
    return isinstance(layer, keras.layers.DepthwiseConv1D | keras.layers.DepthwiseConv2D)


def _folded(graph: Graph, takes: Callable[[Node], bool]) -> tuple[Graph, dict[str, list[np.ndarray]], set[str]]:
    """The graph with batch normalisation in the weights before it, kernels and biases by layer, and which took it up.

    :param takes: whether a layer with weights may take it up.
    :raises ValueError: if weights of such a layer are not finite.
    """
    weights: dict[str, list[np.ndarray]] = {}
    changed = set[str]()
    folded: dict[int, Node] = {}  # by what it gives, the layer that has it in its weights
    consumers = graph.consumers()
    # A layer that is linear so far takes up the normalisation that alone reads it.
    for node in graph.nodes:
        layer = node.layer
        if takes(node) and kind_of(graph, node) == ("scaled" if _is_depthwise(layer) else "weighted"):
            bias = np.asarray(layer.bias, np.float64) if layer.use_bias else np.zeros(_units(layer))
            weights[node.name] = [np.asarray(layer.kernel, np.float64), bias]
            if layer.activation is keras.activations.linear:
                folded[node.outputs[0]] = node
        elif isinstance(layer, keras.layers.BatchNormalization) and kind_of(graph, node) == "scaled":
            earlier_node = folded.get(node.sources[0])
            if earlier_node is not None and consumers[node.sources[0]] == 1:
                weights[earlier_node.name] = folded_weights(layer, earlier_node.layer, *weights[earlier_node.name])
                folded[node.outputs[0]] = earlier_node
                changed.add(earlier_node.name)
    # What a diverged training left shows here.
    for name, arrays in weights.items():
        if not all(np.all(np.isfinite(array)) for array in arrays):
            raise ValueError(f"the weights of the layer {name} are not finite; train the model again.")
    without = bypassed(graph, lambda node: node.name not in weights and node.outputs[0] in folded)
    return without, weights, changed


def _units(layer: keras.Layer) -> int:
    if _is_depthwise(layer):
        return int(layer.kernel.shape[-2])
    return layer.filters if is_convolution(layer) else layer.units


def folded_weights(
    normalisation: keras.layers.BatchNormalization, layer: keras.Layer, kernel: np.ndarray, bias: np.ndarray
) -> list[np.ndarray]:
    """Kernel and bias of a layer that does what it does with this normalisation behind it, in inference."""
    # gamma (W x + b - mean) / sqrt(variance + epsilon) + beta as W' x + b'.
    factor = 1.0 / np.sqrt(np.asarray(normalisation.moving_variance, np.float64) + normalisation.epsilon)
    if normalisation.scale:
        factor *= np.asarray(normalisation.gamma, np.float64)
    bias = (np.asarray(bias, np.float64) - np.asarray(normalisation.moving_mean, np.float64)) * factor
    if normalisation.center:
        bias += np.asarray(normalisation.beta, np.float64)
    if isinstance(layer, keras.layers.Conv2DTranspose):
        return [kernel * factor[:, None], bias]
    return [kernel * (factor.reshape(kernel.shape[-2:]) if _is_depthwise(layer) else factor), bias]
