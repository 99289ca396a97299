"""Pruned units removed for good: a smaller plain network, or a smaller Bayesian one to train further.

A graph of layers is cut by three rules, with masked posterior means as weights:

1. An output that does not vary with the input (a masked filter, a unit without incoming weights) is a constant; it is
   removed and folded into the next bias. Before a convolution with zero padding that is exact only for the constant 0;
   there one constant input stays and stands for all. Sums and layers that need all of their inputs are given the
   constant in place of the unit, see `compression.graph.kept_inputs`.
2. An input is kept if it varies and has a weight to an output that is kept.
3. After `Flatten`, the input (h W + w) C + c is kept by its own mask; a channel stays if one of its positions does.

So the shrunk network computes what the masked one does. `compression.graph.kinds` says how layers are understood,
`compression.graph.removal.flow` which channels vary, `compression.graph.removal.demand` which are needed;
`compression.graph.rebuild` makes the network.
"""

from collections.abc import Mapping
from typing import NamedTuple

import keras
import numpy as np

from ...layers.base import BayesianLayer
from ...layers.scales import PerWeight
from ...layers.thresholds import Thresholds, masks
from ..graph import Graph, Node, clone, graph_of, kernel_variables
from ..kinds import is_convolution, is_transposed, kind_of, units_name, weighted_layers, whole_layers
from ..rebuild import rebuild
from ..supported import IDLE
from .cutting import IndexMaps, Kept, checked_kept, cut, oriented, role_of
from .demand import kept_of
from .flow import Flow, flow_of, num_channels

__all__ = [
    "NothingLeftError",
    "Shrunk",
    "kept_by",
    "left_whole",
    "shrink",
    "shrink_bayesian",
    "shrink_details",
    "slice_bayesian",
]


class NothingLeftError(ValueError):
    """A layer is pruned to nothing."""


class Shrunk(NamedTuple):
    """A plain network and what it was cut from.

    Tuples and lists have one entry for each kernel, that is, each weight with two or more axes, in order; those of the
    architecture and of the original are of layers whose units can be removed.
    """

    model: keras.Model
    """Plain Keras layers, `SelectInputs` and `PlaceInputs`."""
    variances: list[np.ndarray]
    """Posterior variances of the kept weights (Eqs. 11, 20), shaped as the kernels; 0 for layers not Bayesian."""
    architecture: tuple[int, ...]
    """Kept filters of convolutions and kept inputs of dense layers, as in Table 1; 0 for a layer that is gone."""
    kept_weights: tuple[int, ...]
    """Kept weights without biases; with a prior on each weight, those that are not 0."""
    original_weights: tuple[int, ...]
    """Weights of the layers of the model that was given, without biases."""
    kept: dict[str, Kept]
    """Kept inputs and outputs of each layer, by name."""


def shrink(model: keras.Model, thresholds: Thresholds = None, *, keep_inputs: bool = False) -> keras.Model:
    """The plain, smaller Keras model that computes what `model` does with its pruned groups masked.

    :param model: Sequential or functional, of Bayesian and any other layers; it is not changed.
    :param thresholds: as in :func:`compression.layers.thresholds.masks`. Groups that are masked already are pruned as
        well.
    :param keep_inputs: layers that see the inputs of the model keep them all, those without weights, too: a file of
        sparse weights is smaller where neighbours in an image stay neighbours.
    :raises ValueError: if nothing is left of the network or weights are not finite.
    """
    return shrink_details(model, thresholds, keep_inputs=keep_inputs).model


def shrink_details(model: keras.Model, thresholds: Thresholds = None, *, keep_inputs: bool = False) -> Shrunk:
    """What :func:`shrink` does, with variances and sizes."""
    graph = graph_of(model)
    # Masks, then what varies and what is needed, then the smaller network.
    kept, flow = _plan(graph, masks(model, thresholds), keep_inputs=keep_inputs)
    built = rebuild(graph, kept, _plain, flow.constant, without=IDLE)
    nodes = weighted_layers(graph)
    variance_of = dict[str, np.ndarray]()
    count_of = dict[str, int]()
    for node in nodes:
        if node.name not in built.layers:
            continue
        layer = node.layer
        kept_indices = kept[node.name]
        # Masked posterior means, Eqs. (10) and (19), of what is kept, with constants folded into biases.
        kernel = oriented(layer, cut(flow.kernels[node.name], "kernel", kept_indices))
        bias = flow.biases[node.name][kept_indices.outputs]
        built.layers[node.name].set_weights([kernel, bias])
        # Eqs. (11) and (20): the variances say how many bits the weights need.
        if isinstance(layer, BayesianLayer):
            role = role_of(layer, "kernel_mean")
            variance_of[node.name] = cut(np.asarray(layer.posterior_variance_kernel()), role, kept_indices)
        if isinstance(layer, PerWeight):
            count_of[node.name] = int(np.count_nonzero(kernel))
    kernels = [(layer.name, variable) for layer, variable in kernel_variables(built.model)]
    return Shrunk(
        model=built.model,
        variances=[variance_of.get(name, np.zeros(tuple(variable.shape))) for name, variable in kernels],
        architecture=tuple(
            len(kept[node.name].outputs if is_convolution(node.layer) else kept[node.name].inputs) for node in nodes
        ),
        kept_weights=tuple(count_of.get(name, int(np.prod(variable.shape))) for name, variable in kernels),
        original_weights=tuple(flow.kernels[node.name].size for node in nodes),
        kept=built.kept,
    )


def shrink_bayesian(model: keras.Model, thresholds: Thresholds = None) -> tuple[keras.Model, dict[str, Kept]]:
    """A smaller Bayesian model of the same layers without the pruned groups, to go on training.

    All variables are copied, those of the noise and `kl_weight` included. In inference the new model gives what `model`
    gives with the pruned groups masked: constants are folded into biases with the posterior means.

    :param model: Sequential or functional, of Bayesian and any other layers; it is not changed.
    :param thresholds: as in :func:`compression.layers.thresholds.masks`.
    :return: the new, uncompiled model, and the kept inputs and outputs of each layer by name. To rebuild the
        architecture from a record, see :func:`slice_bayesian`; for the state of the optimizer `carry_optimizer`.
    :raises ValueError: as :func:`shrink`.
    """
    graph = graph_of(model)
    layer_masks = masks(model, thresholds)
    kept, flow = _plan(graph, layer_masks)
    # Variables are cut first; then biases take up the constants.
    smaller, layers, all_kept = _sliced(graph, kept, flow)
    for node in weighted_layers(graph):
        if (new_layer := layers.get(node.name)) is None:
            continue
        kept_indices = kept[node.name]
        if isinstance(new_layer, BayesianLayer):
            new_layer.mask.assign(cut(layer_masks[node.layer.name], role_of(node.layer, "mask"), kept_indices))
        bias = flow.biases[node.name][kept_indices.outputs]
        if new_layer.use_bias:
            new_layer.bias.assign(bias)
        elif np.any(bias != 0.0):
            raise ValueError(
                f"the layer {node.name} has no bias to fold pruned units into; build it with use_bias=True."
            )
        # With padding one constant input stays, with the weights of all that it stands for.
        if (one := flow.merged.get(node.name)) is not None:
            _assign_input(new_layer, cut(flow.kernels[node.name], "kernel", kept_indices), one, kept_indices)
    return smaller, all_kept


def slice_bayesian(model: keras.Model, kept: IndexMaps) -> keras.Model:
    """`model` with only the given inputs and outputs of each layer; variables are sliced, biases not folded.

    To resume a run that was shrunk: build the original model, slice it by the recorded (composed) index maps, and
    restore the checkpoint into it.

    :param kept: kept inputs and outputs of each layer by name, as from :func:`shrink_bayesian`; sequences of integers
        will do.
    :raises ValueError: if a layer is missing or an index is out of range.
    """
    graph = graph_of(model)
    # Index maps come from a record, so that they are checked against the layers.
    sizes = {node.name: size for node in graph.nodes if (size := _sizes(graph, node)) is not None}
    if missing := [name for name in sizes if name not in kept]:
        raise ValueError(f"kept has no entry for the layers {missing}; it has {sorted(kept)}.")
    checked = {name: checked_kept(name, kept[name], size) for name, size in sizes.items()}
    return _sliced(graph, checked, None)[0]


def kept_by(graph: Graph, found: Mapping[str, np.ndarray]) -> IndexMaps:
    """Kept inputs and outputs of layers, by name, of the network that these masks leave, without making it.

    :param found: see :func:`compression.layers.thresholds.masks`.
    :raises NothingLeftError: if no output of the network would vary.
    """
    return _plan(graph, found)[0]


def left_whole(model: keras.Model) -> list[str]:
    """Names of the layers with weights of which no unit can be removed, and which stay as they are."""
    return [node.name for node in whole_layers(graph_of(model))]


def _sizes(graph: Graph, node: Node) -> tuple[int, int] | None:
    """Inputs and outputs of a call of which is recorded what is kept; None for others."""
    kind = kind_of(graph, node)
    if kind == "weighted":
        # By the kernel of a layer with weights, else by the tensors.
        *_, inputs, outputs = node.layer.weights[0].shape
        return (outputs, inputs) if is_transposed(node.layer) else (inputs, outputs)
    if kind in ("merge", "unflatten") or isinstance(node.layer, keras.layers.Embedding):
        return num_channels(graph, node.sources[0]), num_channels(graph, node.outputs[0])
    return None


def _sliced(graph: Graph, kept: IndexMaps, flow: Flow | None) -> tuple[keras.Model, dict[str, keras.Layer], dict]:
    # Layers of the same settings and fewer units, with their part of each variable.
    built = rebuild(graph, kept, _resized, None if flow is None else flow.constant)
    for node in weighted_layers(graph):
        if (new_layer := built.layers.get(node.name)) is not None:
            for old_variable, variable in zip(node.layer.weights, new_layer.weights, strict=True):
                variable.assign(cut(np.asarray(old_variable), role_of(node.layer, old_variable.name), kept[node.name]))
    return built.model, built.layers, built.kept


def _plan(graph: Graph, found: Mapping[str, np.ndarray], *, keep_inputs: bool = False) -> tuple[dict[str, Kept], Flow]:
    """What is kept of each layer of the network that these masks leave, and what varies in it."""
    kernels = {}
    biases = {}
    nodes = weighted_layers(graph)
    # Kernels as posterior means with these groups masked.
    for node in nodes:
        layer = node.layer
        mean = layer.posterior_mean_kernel(found[layer.name]) if isinstance(layer, BayesianLayer) else layer.kernel
        kernels[node.name] = oriented(layer, np.asarray(mean, np.float64))
        units = kernels[node.name].shape[-1]
        biases[node.name] = np.asarray(layer.bias, np.float64) if layer.use_bias else np.zeros(units)
        if not (np.all(np.isfinite(kernels[node.name])) and np.all(np.isfinite(biases[node.name]))):
            raise ValueError(f"weights of the layer {node.name} are not finite; restore an earlier state.")
    # Forwards what varies with the inputs; backwards what the outputs need of it.
    kinds = [kind_of(graph, node) for node in graph.nodes]
    flow = flow_of(graph, kinds, kernels, biases)
    if not any(flow.varies[number].any() for number in graph.output_numbers):
        raise NothingLeftError(_blame(graph, nodes, found, flow))
    return kept_of(graph, kinds, flow, keep_inputs=keep_inputs), flow


def _blame(graph: Graph, nodes: list[Node], found: Mapping[str, np.ndarray], flow: Flow) -> str:
    """Which layer lets nothing through, for an error."""
    for node in nodes:
        # A layer without any group, else the first whose outputs are all constant.
        if node.name in found and not np.any(found[node.name]):
            return (
                f"the layer {node.name} is pruned to nothing: all {found[node.name].size} groups are at or above the "
                "threshold. Raise its threshold, or train longer with a smaller weight of the KL."
            )
    name = next((node.name for node in nodes if not flow.varies[node.outputs[0]].any()), graph.name)
    return (
        f"the layer {name} is pruned to nothing: no weight is left between an input that varies and an output in use. "
        "Raise the thresholds of this layer and its neighbours."
    )


def _assign_input(layer: keras.layers.Layer, kernel: np.ndarray, one: int, kept: Kept) -> None:
    """Make the weights from input `one` those of `kernel` [..., inputs, outputs], a posterior mean."""
    # A plain layer takes the weights as they are; of a Bayesian one they are the posterior mean.
    row = np.searchsorted(kept.inputs, one)
    if not isinstance(layer, BayesianLayer):
        layer.kernel.assign(oriented(layer, kernel))
        return
    # E w = E z mean, so that the mean is the weight over the mean of its scale.
    mean = oriented(layer, layer.kernel_mean.numpy())
    scale = oriented(layer, np.broadcast_to(layer.group_to_kernel(layer.scale_moments()[0]), layer.kernel_mean.shape))
    mean[..., row, :] = (kernel / scale)[..., row, :]
    layer.kernel_mean.assign(oriented(layer, mean))
    if isinstance(layer, PerWeight):
        mask = oriented(layer, layer.mask.numpy())
        mask[..., row, :] = 1.0
        layer.mask.assign(oriented(layer, mask))


def _plain(node: Node, units: int) -> keras.layers.Layer:
    layer = node.layer
    settings = {"activation": layer.activation, "name": node.name, "dtype": layer.variable_dtype}
    if not is_convolution(layer):
        return keras.layers.Dense(units, **settings)
    # A convolution of the same window and steps.
    names = ("kernel_size", "strides", "padding", "dilation_rate", "output_padding")
    settings |= {name: getattr(layer, name) for name in names if hasattr(layer, name)}
    kind = layer.plain if isinstance(layer, BayesianLayer) else type(layer)
    return kind(units, **settings)


def _resized(node: Node, units: int) -> keras.layers.Layer:
    return clone(node.layer, name=node.name, **{units_name(node.layer): units})
