"""Thresholds that leave no more of a network than is wanted: its weights, or its multiplications for an example.

    thresholds = thresholds_within(model, 0.1 * size_of(model).weights, loss_of)
    small = shrink(model, thresholds)

The scores of a layer say which of its groups go first, and the loss on data that are set aside says which layer gives
way next: scores of different layers do not compare (of LeNet-5's first convolution all are high), and neither do the
uses of their units. It is the search of NetAdapt (Yang et al., 2018), whose order within a layer is by magnitude.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Callable
from typing import Literal

import keras
import numpy as np

from ..graph.graph import graph_of
from ..graph.shrink import NothingLeftError, kept_by
from ..graph.sizes import multiplications_of, weights_of
from ..layers.base import BayesianLayer
from ..layers.posterior import bayesian_layers
from ..layers.scales import PerWeight
from ..layers.thresholds import masks, switched_off

__all__ = ["SizeKind", "size_left", "thresholds_within"]

SizeKind = Literal["weights", "multiplications"]

_STEP = 0.1
"""Part of its groups that a layer loses at once."""

_WORST = 1e30
"""The loss of a network whose loss is not finite."""


def size_left(model: keras.Model, thresholds: dict[str, float], *, kind: SizeKind = "weights") -> int:
    """Weights or multiplications of the network that :func:`compression.shrink` would leave, without making it.

    :param thresholds: by name of each Bayesian layer.
    :return: 0 if nothing is left.
    :raises ValueError: if multiplications depend on the example, such as on the size of an image.
    """
    return _size_function(model, kind)(thresholds)


def thresholds_within(
    model: keras.Model, most: float, loss_of: Callable[[keras.Model], float], *, kind: SizeKind = "weights"
) -> dict[str, float]:
    """The thresholds of layers, by name, that leave no more than `most`.

    Again and again the layer whose loss rises least for what it saves loses a tenth of its groups, those of the
    highest scores. Each layer keeps its best group; so more than `most` may be left in the end.

    :param most: weights, or multiplications for one example.
    :param loss_of: the loss of a model, best in nats, which is called with groups switched off; afterwards they are as
        before. It is called about twice for each step.
    :raises ValueError: as :func:`size_left`, and if scores are not finite.
    """
    left = _size_function(model, kind)
    ladders = {layer.name: _ladder(layer) for layer in bayesian_layers(model)}
    rungs = dict.fromkeys(ladders, 0)

    def chosen(name: str = "", rung: int = 0) -> dict[str, float]:
        """The thresholds, with another rung of one layer."""
        return {own: float(ladder[rung if own == name else rungs[own]]) for own, ladder in ladders.items()}

    def next_of(name: str) -> int:
        """The rung of a layer that removes a tenth of what is left of it, or its last one."""
        steps = len(ladders[name]) - rungs[name]
        return rungs[name] + min(steps - 1, max(1, round(_STEP * steps)))

    def loss_with(thresholds: dict[str, float]) -> float:
        with switched_off(model, thresholds):
            loss = loss_of(model)
        return loss if math.isfinite(loss) else _WORST

    def price(name: str) -> tuple[float, float, float]:
        """What the next step of a layer adds to the loss for each that it saves; the part that is gone, as it decides
        between equal prices; and the loss then."""
        lower = chosen(name, next_of(name))
        gone = rungs[name] / len(ladders[name])
        saved = size - left(lower)
        if saved <= 0:
            return math.inf, gone, loss
        lost = loss_with(lower)
        return (lost - loss) / saved, gone, lost

    def is_within(name: str) -> Callable[[int], bool]:
        return lambda rung: left(chosen(name, rung)) <= most

    if (size := left(chosen())) <= most:
        return chosen()
    loss = loss_with(chosen())
    taken = 0
    queue = [(*price(name), name, taken) for name in ladders]
    heapq.heapify(queue)
    while math.isfinite(queue[0][0]):
        *_, lost, name, when = heapq.heappop(queue)
        if when == taken:
            before = rungs[name]
            rungs[name] = next_of(name)
            size = left(chosen())
            loss = lost
            taken = taken + 1
            if size <= most:  # already by the first rung that is within
                return chosen(name, bisect_left(range(rungs[name]), True, before + 1, key=is_within(name)))
        heapq.heappush(queue, (*price(name), name, taken))  # others have lost groups since, or this one
    while size > most and any(next_of(name) > rung for name, rung in rungs.items()):  # no step saves anything alone
        rungs.update({name: next_of(name) for name in rungs})
        size = left(chosen())
    return chosen()


def _ladder(layer: BayesianLayer) -> np.ndarray:
    """Thresholds of a layer, from one that removes nothing to one that leaves its best groups: each removes one score
    more than the one before."""
    scores = np.asarray(layer.prune_scores())
    in_use = np.unique(scores[np.broadcast_to(np.asarray(layer.mask), scores.shape) > 0])
    return np.concatenate([[math.inf], in_use[:0:-1]])


def _size_function(model: keras.Model, kind: SizeKind) -> Callable[[dict[str, float]], int]:
    """:func:`size_left` as a function of the thresholds; the network is read once."""
    graph = graph_of(model)
    sizes = [weights_of(node.layer) if kind == "weights" else multiplications_of(graph, node) for node in graph.nodes]

    def left(thresholds: dict[str, float]) -> int:
        found = masks(model, thresholds)
        total = 0.0
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


def _pairs(layer: keras.layers.Layer) -> int:
    *_, a, b = layer.weights[0].shape
    return a * b
