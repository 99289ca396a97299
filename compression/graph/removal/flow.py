"""What each channel of each tensor of a graph does: whether it varies with the input, and what it is if it does not.

A tensor without an axis of channels, such as a sequence of open length, counts as one channel that varies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from ..graph import Graph, Node
from ..kept_inputs import PlaceInputs
from ..kinds import channels, is_mixing, is_padded
from ..supported import ELEMENTWISE

__all__ = ["Flow", "flow_of", "num_channels", "positions", "used", "view_of"]


class Flow(NamedTuple):
    """By tensor, for each channel, whether it varies, and its value at all places if it does not; and by layer its
    kernel [..., inputs, outputs] and bias with constants folded in.

    :ivar merged: layers with padding whose constant inputs are moved to one of them, and which.
    """

    varies: list[np.ndarray]
    constant: list[np.ndarray]
    kernels: dict[str, np.ndarray]
    biases: dict[str, np.ndarray]
    merged: dict[str, int]


def flow_of(
    graph: Graph, kinds: Sequence[str], kernels: Mapping[str, np.ndarray], biases: Mapping[str, np.ndarray]
) -> Flow:
    """From the inputs of the model on, an output that does not vary with them is a constant.

    A constant input of a layer without padding goes into its bias. With padding that would be wrong at the border:
    there one of these inputs stands for all.

    :param kinds: of the calls, see `compression.graph.kinds`.
    :param kernels: of the layers of the kind "weighted", [..., inputs, outputs].
    :param biases: of the same.
    """
    varies = [np.ones(num_channels(graph, number), bool) for number in range(len(graph.tensors))]
    flow = Flow(varies, [np.zeros(v.size) for v in varies], dict(kernels), dict(biases), {})
    # From the inputs on; a call that is not understood gives channels that vary.
    for node, kind in zip(graph.nodes, kinds, strict=True):
        if kind != "whole":
            sources = [(flow.varies[number], flow.constant[number]) for number in node.sources]
            number = node.outputs[0]
            flow.varies[number], flow.constant[number] = _outputs(graph, flow, node, kind, sources)
    return flow


_Channels = tuple[np.ndarray, np.ndarray]


def _outputs(graph: Graph, flow: Flow, node: Node, kind: str, sources: Sequence[_Channels]) -> _Channels:
    varies, constant = sources[0]
    if kind == "weighted":
        return _weighted(flow, node, varies, constant, num_channels(graph, node.outputs[0]))
    if kind == "scaled":
        return _scaled(node.layer, varies, constant, num_channels(graph, node.outputs[0]))
    if kind == "pointwise":
        return _pointwise(node.layer, varies, constant)
    if kind == "merge":
        return _merge(node.layer, np.stack([v for v, _ in sources]), np.stack([c for _, c in sources]))
    # Channels one after the other, and of all places one after the other.
    if kind == "stack":
        return np.concatenate([v for v, _ in sources]), np.concatenate([c for _, c in sources])
    if kind == "flatten":
        repeats = positions(graph, node.sources[0])
        return np.tile(varies, repeats), np.tile(constant, repeats)
    # A channel varies if it does at one place, or has other constants at other places.
    if kind == "unflatten":
        rows = constant.reshape(-1, num_channels(graph, node.outputs[0]))
        is_same = np.all(rows == rows[0], axis=0)
        return varies.reshape(rows.shape).any(axis=0) | ~is_same, rows[0]
    # Channels picked or placed, with constants where there is none.
    places, fill = view_of(node)
    return (places >= 0) & varies[places], np.where(places >= 0, constant[places], fill)


def _weighted(flow: Flow, node: Node, varies: np.ndarray, constant: np.ndarray, size: int) -> _Channels:
    layer = node.layer
    kernel = flow.kernels[node.name]
    folded = np.where(varies, 0.0, constant)
    # Rule 1 of `compression.graph.removal.shrink` with padding: one constant input stays, the others become weights of
    # it.
    if is_padded(layer):
        loose = ~varies & (constant != 0.0) & used(kernel, np.ones(kernel.shape[-1], bool))
        folded = np.zeros(varies.size)
        if loose.any():
            one = int(np.argmax(np.abs(constant) * loose))
            kernel = _merged(kernel, loose, constant / constant[one], one)
            flow.merged[node.name] = one
            varies = varies | (np.arange(varies.size) == one)
    # Rule 1 of `compression.graph.removal.shrink`: constant inputs times the sum of the kernel over places go into the
    # bias.
    bias = flow.biases[node.name] + folded @ kernel.sum(axis=tuple(range(kernel.ndim - 2)))
    flow.kernels[node.name] = kernel
    flow.biases[node.name] = bias
    if is_mixing(layer):
        return np.ones(size, bool), np.zeros(size)
    # An output varies if it has a weight from an input that varies.
    outputs = np.any(kernel[..., varies, :] != 0.0, axis=tuple(range(kernel.ndim - 1)))
    return outputs, _activated(layer, bias)


def _merged(kernel: np.ndarray, loose: np.ndarray, ratios: np.ndarray, one: int) -> np.ndarray:
    """`kernel` with the weights of the constant inputs `loose`, in units of the constant input `one`, moved to it."""
    # c_i w_i = (c_i / c_one) w_i c_one: weights times ratios of constants, added up.
    moved = np.tensordot(ratios[loose], kernel[..., loose, :], axes=(0, -2))
    kernel = kernel.copy()
    kernel[..., loose, :] = 0.0
    kernel[..., one, :] = moved
    return kernel


def _scaled(layer: keras.layers.Layer, varies: np.ndarray, constant: np.ndarray, size: int) -> _Channels:
    if isinstance(layer, keras.layers.Embedding):
        return np.ones(size, bool), np.zeros(size)
    if isinstance(layer, keras.layers.BatchNormalization):
        scale = 1.0 / np.sqrt(np.asarray(layer.moving_variance, np.float64) + layer.epsilon)
        scale = scale * np.asarray(layer.gamma, np.float64) if layer.scale else scale
        shift = np.asarray(layer.beta, np.float64) if layer.center else 0.0
        return varies, (constant - np.asarray(layer.moving_mean, np.float64)) * scale + shift
    if isinstance(layer, keras.layers.PReLU):
        # A slope for each place makes a negative constant vary from place to place.
        alpha = np.asarray(layer.alpha, np.float64).reshape(-1, size)
        depends = np.any(alpha != alpha[0], axis=0) & (constant < 0)
        return varies | depends, np.where(constant < 0, alpha[0] * constant, constant)
    # A depthwise convolution; at the border a constant other than 0 does not stay one.
    kernel = np.asarray(layer.kernel, np.float64)
    bias = np.asarray(layer.bias, np.float64) if layer.use_bias else np.zeros(size)
    total = kernel.sum(axis=tuple(range(kernel.ndim - 2)))[:, 0]
    return varies | (is_padded(layer) & (constant != 0.0)), _activated(layer, constant * total + bias)


def _pointwise(layer: keras.layers.Layer, varies: np.ndarray, constant: np.ndarray) -> _Channels:
    if isinstance(layer, ELEMENTWISE):
        constant = np.asarray(layer(constant[None].astype(layer.compute_dtype)), np.float64)[0]
    elif is_padded(layer):
        varies = varies | (constant != 0.0)
    return varies, constant


def _merge(layer: keras.layers.Layer, varies: np.ndarray, constant: np.ndarray) -> _Channels:
    if isinstance(layer, keras.layers.Multiply):
        # A product with a constant 0 is constant.
        is_zero = np.any(~varies & (constant == 0.0), axis=0)
        return varies.any(axis=0) & ~is_zero, constant.prod(axis=0)
    kind = type(layer).__name__
    if kind == "Average":
        return varies.any(axis=0), constant.mean(axis=0)
    # Sums, differences, maxima and minima: NumPy calls them as Keras does.
    return varies.any(axis=0), getattr(np, kind.lower()).reduce(constant, axis=0)


def _activated(layer: keras.layers.Layer, values: np.ndarray) -> np.ndarray:
    return np.asarray(layer.activation(tf.constant(values, layer.compute_dtype)), np.float64)


def used(kernel: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Inputs of a kernel [..., inputs, outputs] with a weight to one of `outputs`."""
    return np.any(kernel[..., outputs] != 0.0, axis=(*range(kernel.ndim - 2), kernel.ndim - 1))


def view_of(node: Node) -> tuple[np.ndarray, np.ndarray]:
    """Of a call of `SelectInputs` or `PlaceInputs`, the input of each output, -1 for none, and the constant there."""
    places = np.asarray(node.layer.indices)
    is_placing = isinstance(node.layer, PlaceInputs)
    return places, np.asarray(node.layer.fill, np.float64) if is_placing else np.zeros(places.size)


def num_channels(graph: Graph, number: int) -> int:
    """Channels of a tensor; 1 for one without an axis of channels."""
    return channels(graph.tensors[number].shape) or 1


def positions(graph: Graph, number: int) -> int:
    """Places of a tensor, such as the pixels of an image, whose sizes are known."""
    return math.prod(size or 1 for size in graph.tensors[number].shape[1:-1])
