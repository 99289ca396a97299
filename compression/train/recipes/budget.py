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

from ...graph.graph import graph_of
from ...graph.removal.shrink import NothingLeftError, kept_by
from ...graph.sizes import multiplications_of, weights_of
from ...layers.base import BayesianLayer
from ...layers.posterior import bayesian_layers
from ...layers.scales import PerWeight
from ...layers.thresholds import masks, switched_off

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
    size_at = _size_function(model, kind)
    ladders = {layer.name: _ladder(layer) for layer in bayesian_layers(model)}
    # Each layer begins with all of its groups.
    rungs = dict.fromkeys(ladders, 0)

    def chosen(name: str = "", rung: int = 0) -> dict[str, float]:
        """The thresholds, with another rung of one layer."""
        return {
            layer_name: float(ladder[rung if layer_name == name else rungs[layer_name]])
            for layer_name, ladder in ladders.items()
        }

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
        # How much smaller the network gets, and how much worse.
        lower = chosen(name, next_of(name))
        gone = rungs[name] / len(ladders[name])
        saved = size - size_at(lower)
        if saved <= 0:
            return math.inf, gone, loss
        next_loss = loss_with(lower)
        return (next_loss - loss) / saved, gone, next_loss

    def is_within(name: str) -> Callable[[int], bool]:
        return lambda rung: size_at(chosen(name, rung)) <= most

    # The network as it is may be small enough.
    if (size := size_at(chosen())) <= most:
        return chosen()
    loss = loss_with(chosen())
    num_cuts = 0
    # The layer of the lowest price gives way; prices from before the last cut are reckoned anew.
    queue = [(*price(name), name, num_cuts) for name in ladders]
    heapq.heapify(queue)
    while math.isfinite(queue[0][0]):
        *_, next_loss, name, when = heapq.heappop(queue)
        if when == num_cuts:
            # The layer goes down by a step.
            previous_rung = rungs[name]
            rungs[name] = next_of(name)
            size = size_at(chosen())
            loss = next_loss
            num_cuts = num_cuts + 1
            if size <= most:  # already by the first rung that is within
                return chosen(name, bisect_left(range(rungs[name]), True, previous_rung + 1, key=is_within(name)))
        heapq.heappush(queue, (*price(name), name, num_cuts))  # others have lost groups since, or this one
    while size > most and any(next_of(name) > rung for name, rung in rungs.items()):  # no step saves anything alone
        rungs.update({name: next_of(name) for name in rungs})
        size = size_at(chosen())
    return chosen()


def _ladder(layer: BayesianLayer) -> np.ndarray:
    """Thresholds of a layer, from one that removes nothing to one that leaves its best groups: each removes one score
    more than the one before."""
    scores = np.asarray(layer.prune_scores())
    # Scores of groups that are not masked, from the highest down; the lowest is never reached.
    in_use = np.unique(scores[np.broadcast_to(np.asarray(layer.mask), scores.shape) > 0])
    return np.concatenate([[math.inf], in_use[:0:-1]])


def _size_function(model: keras.Model, kind: SizeKind) -> Callable[[dict[str, float]], int]:
    """:func:`size_left` as a function of the thresholds; the network is read once."""
    graph = graph_of(model)
    sizes = [weights_of(node.layer) if kind == "weights" else multiplications_of(graph, node) for node in graph.nodes]

    def size_at(thresholds: dict[str, float]) -> int:
        # Which inputs and outputs would be kept.
        layer_masks = masks(model, thresholds)
        total = 0.0
        try:
            index_maps = kept_by(graph, layer_masks)
        except NothingLeftError:
            return 0
        # A kernel counts for the part of its inputs and outputs that is kept.
        for node, full_size in zip(graph.nodes, sizes, strict=True):
            if full_size is None:
                raise ValueError(
                    f"the multiplications of the layer {node.name} depend on the example; build the network with a "
                    "shape that is given, or count weights."
                )
            if not full_size or node.name not in index_maps:
                total += full_size
            elif isinstance(node.layer, PerWeight):
                total += full_size * float(np.mean(layer_masks[node.name]))
            else:
                inputs, outputs = index_maps[node.name]
                total += full_size * inputs.size * outputs.size / _pairs(node.layer)
        return round(total)

    return size_at


def _pairs(layer: keras.layers.Layer) -> int:
    *_, a, b = layer.weights[0].shape
    return a * b
