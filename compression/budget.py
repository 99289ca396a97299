"""Thresholds that leave no more of a network than is wanted: its weights, or its multiplications for an example.

    thresholds = thresholds_within(model, 0.1 * size_of(model).weights)
    small = shrink(model, thresholds)

Groups of all layers are compared with each other: those go that say least for what they cost. Where log alpha is the
score, a group says log(1 + 1 / alpha) / 2 nats at most, the capacity of its channel; it costs what is saved without it.
The r-th best of n groups counts n / r times, as a layer can spare one of many sooner than one of its last.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
    return _size_function(model, kind)(thresholds)


def thresholds_within(model: keras.Model, most: float, *, kind: SizeKind = "weights") -> dict[str, float]:
    """The thresholds of layers, by name, that leave no more than `most` and lose least for it.

    A layer that they would leave without any group keeps its best one. So more than `most` may be left in the end.

    :param most: weights, or multiplications for one example.
    :raises ValueError: as :func:`size_left`, and if scores are not finite.
    """
    left = _size_function(model, kind)
    scores = {layer.name: _scores_in_use(layer) for layer in bayesian_layers(model)}
    nothing = dict.fromkeys(scores, math.inf)
    if (whole := left(nothing)) <= most:
        return nothing
    said, best = dict[str, np.ndarray](), dict[str, float]()
    for name, values in scores.items():
        worst = float(np.max(values, initial=-math.inf))
        lost = max(1, np.count_nonzero(values == worst))
        cost = max(whole - left({**nothing, name: worst}), 1e-3) / lost  # what is saved without the worst group
        said[name] = _worth(values) / cost
        lowest = np.min(values, initial=np.float32(math.inf))
        best[name] = float(np.nextafter(np.float32(lowest), np.float32(math.inf)))

    def by_layer(least: float) -> dict[str, float]:
        """Thresholds that remove what says less than this for its cost."""
        lost = {name: values[said[name] < least] for name, values in scores.items()}
        return {name: max(float(np.min(values, initial=math.inf)), best[name]) for name, values in lost.items()}

    steps = np.unique(np.concatenate([*said.values(), [math.inf]]))
    first, last = 0, steps.size - 1  # the first removes nothing, the last all
    while first < last:
        middle = (first + last) // 2
        if left(by_layer(float(steps[middle]))) <= most:
            last = middle
        else:
            first = middle + 1
    return by_layer(float(steps[first]))


def _size_function(model: keras.Model, kind: SizeKind) -> Callable[[dict[str, float]], int]:
    """:func:`size_left` as a function of the thresholds; the network is read once."""
    graph = graph_of(model)
    sizes = [weights_of(node.layer) if kind == "weights" else multiplications_of(graph, node) for node in graph.nodes]

    def left(thresholds: dict[str, float]) -> int:
        found, total = masks(model, thresholds), 0.0
        try:
            kept = kept_by(graph, found)
        except NothingLeftError:
            return 0
        for node, whole in zip(graph.nodes, sizes, strict=True):
            if whole is None:
                raise ValueError(
                    f"the multiplications of the layer {node.name} depend on the example; build the network with a "
                    "shape that is given, or count weights."
                )
            if not whole or node.name not in kept:
                total += whole
            elif isinstance(node.layer, PerWeight):
                total += whole * float(np.mean(found[node.name]))
            else:
                inputs, outputs = kept[node.name]
                total += whole * inputs.size * outputs.size / _pairs(node.layer)
        return round(total)

    return left


def _worth(scores: np.ndarray) -> np.ndarray:
    """What groups of a layer say, twice in nats where scores are log alpha, times n / r."""
    ranks = np.empty(scores.size)
    ranks[np.argsort(scores, kind="stable")] = np.arange(1, scores.size + 1)
    return np.logaddexp(0.0, -scores.astype(np.float64)) * scores.size / ranks


def _scores_in_use(layer: BayesianLayer) -> np.ndarray:
    scores = np.asarray(layer.prune_scores())
    return scores[np.broadcast_to(np.asarray(layer.mask), scores.shape) > 0]


def _pairs(layer: keras.layers.Layer) -> int:
    *_, a, b = layer.weights[0].shape
    return a * b
