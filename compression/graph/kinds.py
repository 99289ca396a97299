"""What a call of a layer does with the channels of its inputs, the last axis of a tensor.

weighted    each output is a sum over all inputs: dense layers, convolutions and transposed ones
scaled      each channel alone, with weights: batch normalisation, depthwise convolutions, PReLU, embeddings
pointwise   each channel alone, without weights: activations, pooling, padding, noise
merge       one channel of channels of the same number: Add, Multiply and the like
stack       channels one after the other: Concatenate
flatten     channels of all positions one after the other: Flatten, Reshape to a vector
unflatten   the reverse: Reshape of a vector
view        channels picked or placed: SelectInputs, PlaceInputs
whole       anything else: it needs all of its inputs and keeps all of its outputs

Networks whose weights are no plain float32 numbers: quantised ones, those with LoRA, those of other types.
"""

from __future__ import annotations

import math

import keras
import numpy as np

from ..layers.linear import BayesianConv, BayesianConvTranspose, BayesianDense
from .graph import Graph, Node, layers_of
from .kept_inputs import PlaceInputs, SelectInputs
from .supported import MERGING, MIXING, POINTWISE, activation_name, layer_types

__all__ = [
    "channels",
    "check_plain_weights",
    "check_trainable",
    "is_convolution",
    "is_mixing",
    "is_padded",
    "is_transposed",
    "kind_of",
    "units_name",
    "weighted_layers",
    "weights_problem",
    "whole_layers",
]


def weights_problem(layer: keras.Layer) -> str:
    """What a layer, or one inside of it, has in place of plain weights, as the end of a sentence; "" for nothing."""
    for part in layer._flatten_layers():
        # Integers in place of kernels, or products that are added to them.
        if (mode := getattr(part, "quantization_mode", None)) is not None:
            return f"is quantised ({mode}); give the network as it was before quantize(), which rounds its weights"
        if getattr(part, "lora_enabled", False):
            return (
                "has LoRA weights; write them with save_weights(), which merges them into the kernels, and load that "
                "file into the network as it was before enable_lora()"
            )
    return ""


def check_plain_weights(graph: Graph) -> None:
    """Refuse quantised layers and those with LoRA.

    :raises ValueError: naming the layer, and what to do.
    """
    for node in layers_of(graph):
        if problem := weights_problem(node.layer):
            raise ValueError(f"layer {node.name!r} {problem}.")


def check_trainable(graph: Graph) -> None:
    """Refuse a network that compression cannot train.

    :raises ValueError: as :func:`check_plain_weights`, or if weights are of another type than float32.
    """
    check_plain_weights(graph)
    for node in layers_of(graph):
        for variable in node.layer.weights:
            if keras.backend.is_float_dtype(variable.dtype) and variable.dtype != "float32":
                raise ValueError(
                    f"layer {node.name!r} has weights of type {variable.dtype}, and they must be float32 to be trained "
                    'and rounded; make it with dtype="float32" or a mixed policy, such as "mixed_bfloat16", and set '
                    "the same weights."
                )


_CONVOLUTIONS = layer_types("Conv1D", "Conv2D", "Conv3D")
_TRANSPOSED = layer_types("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")
_WEIGHTED = (keras.layers.Dense, *_CONVOLUTIONS, *_TRANSPOSED)
_SCALED = layer_types("BatchNormalization", "DepthwiseConv1D", "DepthwiseConv2D", "PReLU")


def kind_of(graph: Graph, node: Node) -> str:
    """One of the kinds above."""
    kind = type(node.layer)
    layer = node.layer
    shapes = [graph.tensors[number].shape for number in node.sources]
    is_weighted = kind in _WEIGHTED or isinstance(layer, BayesianDense | BayesianConv)
    # Its inputs are numbers of words, not channels.
    if kind is keras.layers.Embedding and not layer.mask_zero and _is_plain(graph, node):
        return "scaled"
    if len(node.outputs) != 1 or not shapes or any(channels(shape) is None for shape in shapes):
        return "whole"
    if channels(graph.tensors[node.outputs[0]].shape) is None:
        return "whole"
    # The layers that are understood, each under the settings that it is understood with.
    if is_weighted:
        return "weighted" if _is_plain(graph, node) else "whole"
    if kind in (SelectInputs, PlaceInputs):
        return "view"
    if kind in MERGING:
        is_same = len({(len(shape), shape[-1]) for shape in shapes}) == 1
        return "merge" if is_same and len(shapes) > 1 else "whole"
    if kind is keras.layers.Concatenate:
        return "stack" if layer.axis in (-1, len(shapes[0]) - 1) else "whole"
    if len(shapes) != 1 or getattr(layer, "data_format", None) not in (None, "channels_last"):
        return "whole"
    if kind in _SCALED:
        return "scaled" if _is_plain(graph, node) and _is_by_channel(layer, shapes[0]) else "whole"
    if kind in POINTWISE:
        is_scalar = kind is not keras.layers.Rescaling or np.ndim(layer.scale) == np.ndim(layer.offset) == 0
        return "pointwise" if not is_mixing(layer) and is_scalar else "whole"
    return _kind_of_shape(layer, shapes[0], graph.tensors[node.outputs[0]].shape)


def _kind_of_shape(layer: keras.layers.Layer, shape: tuple[int | None, ...], new: tuple[int | None, ...]) -> str:
    if type(layer) is keras.layers.Permute:
        return "pointwise" if layer.dims[-1] == len(shape) - 1 else "whole"
    if type(layer) not in (keras.layers.Flatten, keras.layers.Reshape) or None in (*shape[1:], *new[1:]):
        return "whole"
    # By the number of axes and the last of them, before and after.
    if len(new) == 2:
        return "flatten"
    if new[-1] == shape[-1]:
        return "pointwise"
    return "unflatten" if len(shape) == 2 else "whole"


def _is_plain(graph: Graph, node: Node) -> bool:
    """Whether a layer with weights is called once, channels last, without groups and what else can be set."""
    layer = node.layer
    # A layer that is called twice cannot be cut for one call alone.
    settings = {"data_format": "channels_last", "groups": 1, "lora_rank": None, "quantization_mode": None}
    return graph.calls()[node.name] == 1 and all(
        getattr(layer, name, None) in (value, None) for name, value in settings.items()
    )


def _is_by_channel(layer: keras.layers.Layer, shape: tuple[int | None, ...]) -> bool:
    if isinstance(layer, keras.layers.BatchNormalization):
        return layer.axis in (-1, len(shape) - 1)
    if isinstance(layer, keras.layers.PReLU):
        return layer.alpha.shape[-1] == shape[-1]
    return layer.depth_multiplier == 1 and not is_mixing(layer)


def channels(shape: tuple[int | None, ...]) -> int | None:
    """The size of the last axis; None if it is open or that of the examples."""
    return shape[-1] if len(shape) > 1 else None


def is_convolution(layer: keras.layers.Layer) -> bool:
    """Whether a layer is a convolution, transposed or not, Bayesian or not."""
    return isinstance(layer, (*_CONVOLUTIONS, *_TRANSPOSED, BayesianConv))


def is_transposed(layer: keras.layers.Layer) -> bool:
    """Whether the kernel has the axis of the outputs before that of the inputs."""
    return isinstance(layer, (*_TRANSPOSED, BayesianConvTranspose))


def is_padded(layer: keras.layers.Layer) -> bool:
    """Whether a constant input need not give a constant output, because of what is at the border."""
    # Zeros are put beside the input, or a window reaches beyond its border.
    if isinstance(layer, layer_types("ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D")):
        return True
    if not hasattr(layer, "kernel_size"):
        return False
    if math.prod(layer.kernel_size) == 1 and (not is_transposed(layer) or math.prod(layer.strides) == 1):
        return False
    return is_transposed(layer) or layer.padding != "valid"


def is_mixing(layer: keras.layers.Layer) -> bool:
    """Whether the activation of `layer` may not act on each feature alone."""
    return activation_name(layer) in ("", *MIXING)


def units_name(layer: keras.layers.Layer) -> str:
    """The argument that says how many outputs a layer has."""
    return "filters" if is_convolution(layer) else "units"


def weighted_layers(graph: Graph) -> list[Node]:
    """Calls of the kind "weighted"."""
    return [node for node in graph.nodes if kind_of(graph, node) == "weighted"]


def whole_layers(graph: Graph) -> list[Node]:
    """Calls of layers with weights that stay as they are, each layer once."""
    return [
        node
        for node in layers_of(graph)
        if kind_of(graph, node) == "whole"
        and node.layer.weights
        and not isinstance(node.layer, keras.layers.Normalization)
    ]
