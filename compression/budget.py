"""Thresholds that leave no more of a network than is wanted: its weights, or its multiplications for an example.

    thresholds = thresholds_within(model, 0.1 * size_of(model).weights)
    small = shrink(model, thresholds)

Units of all layers are compared with each other: those with the highest scores go.
"""

from __future__ import annotations

import math
from typing import Literal

import keras
import numpy as np

from .base import BayesianLayer
from .graph import graph_of
from .posterior import bayesian_layers
from .scales import PerWeight
from .shrink import NothingLeftError, kept_by
from .sizes import multiplications_of, weights_of
from .thresholds import masks

__all__ = ["SizeKind", "size_left", "thresholds_within"]

SizeKind = Literal["weights", "multiplications"]


def size_left(model: keras.Model, thresholds: dict[str, float], *, kind: SizeKind = "weights") -> int:
    """Weights or multiplications of the network that :func:`compression.shrink` would leave, without making it.

    :param thresholds: by name of each Bayesian layer. :return: 0 if nothing is left.
    :raises ValueError: if multiplications depend on the example, such as on the size of an image.
    """
    graph, found = graph_of(model), masks(model, thresholds)
    try:
        kept = kept_by(graph, found)
    except NothingLeftError:
        return 0
    total = 0.0
    for node in graph.nodes:
        whole = weights_of(node.layer) if kind == "weights" else multiplications_of(graph, node)
        if whole is None:
            raise ValueError(
                f"the multiplications of the layer {node.name} depend on the example; build the network with a shape "
                "that is given, or count weights."
            )
        if not whole or node.name not in kept:
            total += whole
        elif isinstance(node.layer, PerWeight):
            total += whole * float(np.mean(found[node.name]))
        else:
            inputs, outputs = kept[node.name]
            total += whole * inputs.size * outputs.size / _pairs(node.layer)
    return round(total)


def thresholds_within(model: keras.Model, most: float, *, kind: SizeKind = "weights") -> dict[str, float]:
    """The highest threshold, one for all layers, by name, that leaves no more than `most`.

    A layer that it would leave without any group keeps its best one. So more than `most` may be left in the end.

    :param most: weights, or multiplications for one example.
    :raises ValueError: as :func:`size_left`, and if scores are not finite.
    """
    layers = bayesian_layers(model)
    scores = {layer.name: _scores_in_use(layer) for layer in layers}

    def by_layer(threshold: float) -> dict[str, float]:
        lowest = {name: float(np.min(values, initial=math.inf)) for name, values in scores.items()}
        above = {name: float(np.nextafter(np.float32(low), np.float32(math.inf))) for name, low in lowest.items()}
        return {name: max(threshold, least) for name, least in above.items()}

    steps = np.unique(np.concatenate([[math.inf], *scores.values()]))
    first, last = 0, steps.size - 1  # the smallest threshold may leave too much, a higher one leaves no less
    while first < last:
        middle = (first + last + 1) // 2
        if size_left(model, by_layer(float(steps[middle])), kind=kind) <= most:
            first = middle
        else:
            last = middle - 1
    return by_layer(float(steps[first]))


def _scores_in_use(layer: BayesianLayer) -> np.ndarray:
    scores = np.asarray(layer.prune_scores())
    return scores[np.broadcast_to(np.asarray(layer.mask), scores.shape) > 0]


def _pairs(layer: keras.layers.Layer) -> int:
    *_, a, b = layer.weights[0].shape
    return a * b
