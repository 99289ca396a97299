"""Which groups to prune: thresholds on the scores log alpha (Sec. 4.1) and -log mode (Sec. 4.2), and their masks."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import itemgetter
from typing import TypeAlias

import keras
import numpy as np
import tensorflow as tf

from ..graph.graph import Graph, graph_of
from ..graph.kinds import kind_of
from .base import BayesianLayer
from .linear import BayesianConv
from .posterior import bayesian_layers

__all__ = [
    "Thresholds",
    "apply_masks",
    "automatic_threshold",
    "checked_thresholds",
    "masks",
    "part_left",
    "switched_off",
    "thresholds_of",
]

Thresholds: TypeAlias = "float | str | Mapping[str, float] | None"

# Distance of the cluster means, in pooled standard deviations, that makes them two clusters: of so many uniformly
# distributed scores, cut in two, it is less in 99 of 100 cases (200,000 simulated ones), and of normal ones still more
# often. With infinitely many scores it is 3.5 and 2.7.
_SEPARATION = {3: 285, 4: 35.2, 5: 18.3, 6: 12.9, 7: 10.5, 8: 9.14, 10: 7.61, 12: 6.81, 15: 6.13, 20: 5.55, 30: 4.98}
_SEPARATION |= {50: 4.54, 100: 4.14, 1000: 3.67}


def automatic_threshold(scores: tf.Tensor, *, default: float, minimum: float = 0.0) -> float:
    """Threshold between two clusters of scores: "usually there are two well separable groups" (Figs. 4-7).

    The scores are split in two with the least variance within (2-means, exact in one dimension); the threshold is
    the middle of the widest gap between the two means. Where one cluster would come apart as far by chance, which is
    the sooner the fewer scores there are, there is nothing to split, and `default` is returned.

    :param scores: of any shape, finite, in nats.
    :param default: threshold if there is only one cluster.
    :param minimum: the threshold is at least this. At log alpha = 0 or log mode = 0 a group still carries signal.
    :raises ValueError: if `scores` is empty or not finite.
    """
    values = np.sort(np.asarray(scores, dtype=np.float64), axis=None)
    if values.size == 0 or not np.all(np.isfinite(values)):
        raise ValueError(f"scores must be finite numbers, got {values.size} of which {np.isfinite(values).sum()} are.")
    if values.size < 3 or values[0] == values[-1]:
        return default
    # 2-means: the split of the sorted scores with the least variance within.
    lower, upper, within = _two_means(values)
    if (upper - lower) < np.interp(values.size, list(_SEPARATION), list(_SEPARATION.values())) * within:
        return default
    # The widest gap among the scores from the lower mean to the upper one.
    between = values[np.searchsorted(values, lower, side="right") - 1 : np.searchsorted(values, upper) + 1]
    widest = int(np.argmax(np.diff(between)))
    return max(float(between[widest] + between[widest + 1]) / 2.0, minimum)


def thresholds_of(model: keras.Model, thresholds: Thresholds = None) -> dict[str, float]:
    """The threshold of each Bayesian layer of `model`, by name.

    :param thresholds: None for each layer's `default_threshold`; a number for all; "auto" for
        :func:`automatic_threshold`; or a mapping from names of layers to numbers, where missing ones have the default.
    :raises ValueError: if a threshold is NaN, names no Bayesian layer, or is a word other than "auto"; or if scores are
        not finite.
    """
    layers = {layer.name: layer for layer in bayesian_layers(model)}
    if isinstance(thresholds, str):
        if thresholds != "auto":
            raise ValueError(f'thresholds must be "auto", a number or a mapping, got {thresholds!r}.')
        return {
            name: automatic_threshold(_scores(layer), default=layer.default_threshold) for name, layer in layers.items()
        }
    # One number is that of all layers; those that are not named have their defaults.
    if not isinstance(thresholds, Mapping):
        thresholds = {} if thresholds is None else dict.fromkeys(layers, thresholds)
    if unknown := sorted(set(thresholds) - set(layers)):
        raise ValueError(f"thresholds name {unknown}, which are no Bayesian layers; there are {sorted(layers)}.")
    chosen = {name: float(thresholds.get(name, layer.default_threshold)) for name, layer in layers.items()}
    # No score is below NaN, so that all groups would be pruned without a word.
    if nan_names := [name for name, threshold in chosen.items() if math.isnan(threshold)]:
        raise ValueError(f"the thresholds of {nan_names} are NaN; give numbers, or inf to prune nothing.")
    return chosen


def checked_thresholds(
    model: keras.Model,
    error_of: Callable[[keras.Model], float],
    thresholds: Thresholds = "auto",
    *,
    tolerance: float,
    error: float | None = None,
) -> dict[str, float]:
    """Thresholds by name that add no more than `tolerance` to an error, as measured on data that is set aside.

    Where `thresholds` prune too much, the one that is to blame most is raised, to the default of its layer at first and
    then to infinity, until they do not.

    :param error_of: the error of a model, which is called with groups switched off; afterwards they are as before.
    :param thresholds: see :func:`thresholds_of`.
    :param tolerance: in the units of `error_of`, at least 0.
    :param error: of the model as it is, if it is known already.
    :raises ValueError: if `tolerance` is negative or NaN; or as :func:`thresholds_of`.
    """
    if not tolerance >= 0.0:
        raise ValueError(f"tolerance must be at least 0, got {tolerance}.")
    layers = bayesian_layers(model)

    def error_with(chosen: dict[str, float]) -> float:
        with switched_off(model, chosen):
            return error_of(model)

    max_error = (error_of(model) if error is None else error) + tolerance
    chosen = thresholds_of(model, thresholds)
    # The error with all groups switched off that these thresholds prune.
    error = error_with(chosen)
    while error > max_error:
        # Raise one threshold at a time, to its default or to infinity, and keep the one that helps most.
        raised = [
            {
                **chosen,
                layer.name: layer.default_threshold if chosen[layer.name] < layer.default_threshold else math.inf,
            }
            for layer in layers
            if chosen[layer.name] < math.inf
        ]
        if not raised:
            break
        error, chosen = min(((error_with(candidate), candidate) for candidate in raised), key=itemgetter(0))
    return chosen


def masks(model: keras.Model, thresholds: Thresholds = None) -> dict[str, np.ndarray]:
    """1 for the groups that stay, 0 for those with a score at or above the threshold or switched off already.

    The filters of convolutions that end the model stay.

    :param thresholds: see :func:`thresholds_of`.
    :return: for each Bayesian layer, by name, a float32 array of the shape of its `mask`. The model is not changed.
    :raises ValueError: if scores or weights are not finite, naming the layer; or as :func:`thresholds_of`.
    """
    chosen = thresholds_of(model, thresholds)
    layers = bayesian_layers(model)
    # Secs. 4.1 and 4.2: a group goes if log alpha, or -log mode, is at or above the threshold.
    layer_masks = {layer.name: (_scores(layer) < chosen[layer.name]) * np.asarray(layer.mask) for layer in layers}
    # Their filters are outputs of the model, which cannot be removed.
    for layer in _last_convolutions(model):
        layer_masks[layer.name] = np.asarray(layer.mask)
    return {name: mask.astype(np.float32) for name, mask in layer_masks.items()}


def part_left(model: keras.Model, thresholds: Thresholds = None) -> float:
    """Part of the weights whose own groups stay."""
    layer_masks = masks(model, thresholds)
    sizes = {layer.name: math.prod(layer.kernel_mean.shape) for layer in bayesian_layers(model)}
    return sum(size * float(np.mean(layer_masks[name])) for name, size in sizes.items()) / sum(sizes.values())


def apply_masks(model: keras.Model, thresholds: Thresholds = None) -> dict[str, np.ndarray]:
    """Switch groups off by :func:`masks`, which it returns, in the variables `mask` of the layers."""
    layer_masks = masks(model, thresholds)
    for layer in bayesian_layers(model):
        layer.mask.assign(layer_masks[layer.name])
    return layer_masks


@contextmanager
def switched_off(model: keras.Model, thresholds: Thresholds = None) -> Iterator[None]:
    """:func:`apply_masks` for the body of a `with` statement; afterwards the masks are as before."""
    layers = bayesian_layers(model)
    # Masks from before come back, whatever happens in the body.
    previous_masks = [np.array(layer.mask) for layer in layers]
    apply_masks(model, thresholds)
    try:
        yield
    finally:
        for layer, mask in zip(layers, previous_masks, strict=True):
            layer.mask.assign(mask)


def _last_convolutions(model: keras.Model) -> list[BayesianLayer]:
    """Convolutions whose filters are outputs of the model, maybe after activations, sums and the like."""
    if not any(isinstance(layer, BayesianConv) for layer in bayesian_layers(model)):
        return []
    graph: Graph = graph_of(model)
    output_numbers = set(graph.output_numbers)
    convolutions = []
    # From the outputs back through calls that keep channels apart, until a layer makes them.
    for node in reversed(graph.nodes):
        if not output_numbers & set(node.outputs) or (kind := kind_of(graph, node)) == "whole":
            continue
        if kind != "weighted":
            output_numbers |= set(node.sources)
        elif isinstance(node.layer, BayesianConv):
            convolutions.append(node.layer)
    return convolutions


def _scores(layer: BayesianLayer) -> np.ndarray:
    # A NaN is neither above nor below a threshold.
    scores = np.asarray(layer.prune_scores())
    for name, values in (("pruning scores", scores), ("weights", np.asarray(layer.kernel_mean))):
        if not np.all(np.isfinite(values)):
            raise ValueError(
                f"{np.sum(~np.isfinite(values))} of the {name} of the layer {layer.name} are not finite: training has "
                f"diverged. Restore an earlier state, or train with a smaller learning rate or scale_speed."
            )
    return scores


def _two_means(values: np.ndarray) -> tuple[float, float, float]:
    """Means of the two clusters of sorted `values`, at least three, and the pooled standard deviation within."""
    # Means of both sides of each split by cumulative sums.
    count = np.arange(1, values.size)
    total = np.cumsum(values)
    total_squares = np.cumsum(values**2)
    lower_means = total[:-1] / count
    upper_means = (total[-1] - total[:-1]) / (values.size - count)
    # Squares about both means: the sum of all squares less n m^2 of either side.
    within = total_squares[-1] - count * lower_means**2 - (values.size - count) * upper_means**2
    split = int(np.argmin(within))
    return (
        float(lower_means[split]),
        float(upper_means[split]),
        math.sqrt(max(float(within[split]), 0.0) / (values.size - 2)),
    )
