"""Which groups to prune: thresholds on the scores log alpha (Sec. 4.1) and -log mode (Sec. 4.2), and their masks."""

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import keras
import numpy as np

from .base import BayesianLayer, bayesian_layers
from .layers import BayesianConv2D

__all__ = ["Thresholds", "apply_masks", "automatic_threshold", "masks", "thresholds_of"]

Thresholds: TypeAlias = "float | str | Mapping[str, float] | None"

# Distance of the cluster means, in pooled standard deviations, that makes them two: a Gaussian cut in two has 2.7, a
# uniform distribution 3.5.
_SEPARATION = 4.5


def automatic_threshold(scores: Any, *, default: float, minimum: float = 0.0) -> float:
    """Threshold between two clusters of scores: "usually there are two well separable groups" (Figs. 4-7).

    The scores are split in two with the least variance within (2-means, exact in one dimension); the threshold is
    the middle of the widest gap between the two means. One cluster, where the means are less than 4.5 standard
    deviations apart, has nothing to split, and `default` is returned.

    :param scores: of any shape, finite, in nats.
    :param default: threshold if there is only one cluster.
    :param minimum: the threshold is at least this. At log alpha = 0 or log mode = 0 a group still carries signal.
    :raises ValueError: if `scores` is empty or not finite.
    """
    values = np.sort(np.asarray(scores, dtype=np.float64), axis=None)
    if values.size == 0 or not np.all(np.isfinite(values)):
        raise ValueError(f"scores must be finite numbers, got {values.size} of which {np.isfinite(values).sum()} are.")
    if values[0] == values[-1]:
        return default
    lower, upper, within = _two_means(values)
    if (upper - lower) < _SEPARATION * within:
        return default
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
    if isinstance(thresholds, Mapping):
        if unknown := sorted(set(thresholds) - set(layers)):
            raise ValueError(f"thresholds name {unknown}, which are no Bayesian layers; there are {sorted(layers)}.")
        chosen = {name: float(thresholds.get(name, layer.default_threshold)) for name, layer in layers.items()}
    else:
        chosen = {
            name: layer.default_threshold if thresholds is None else float(thresholds) for name, layer in layers.items()
        }
    if bad := [name for name, threshold in chosen.items() if math.isnan(threshold)]:
        raise ValueError(f"the thresholds of {bad} are NaN; give numbers, or inf to prune nothing.")
    return chosen


def masks(model: keras.Model, thresholds: Thresholds = None) -> dict[str, np.ndarray]:
    """1 for the groups that stay, 0 for those with a score at or above the threshold or switched off already.

    The output filters of a convolution that ends the model stay.

    :param thresholds: see :func:`thresholds_of`.
    :return: for each Bayesian layer, by name, a float32 array of the shape of its `mask`. The model is not changed.
    :raises ValueError: if scores or weights are not finite, naming the layer; or as :func:`thresholds_of`.
    """
    chosen = thresholds_of(model, thresholds)
    layers = bayesian_layers(model)
    found = {layer.name: (_scores(layer) < chosen[layer.name]) * np.asarray(layer.mask) for layer in layers}
    if layers and isinstance(layers[-1], BayesianConv2D) and layers[-1].filters == model.output_shape[-1]:
        found[layers[-1].name] = np.asarray(layers[-1].mask)
    return {name: mask.astype(np.float32) for name, mask in found.items()}


def apply_masks(model: keras.Model, thresholds: Thresholds = None) -> dict[str, np.ndarray]:
    """Switch groups off by :func:`masks`, which it returns, in the variables `mask` of the layers."""
    found = masks(model, thresholds)
    for layer in bayesian_layers(model):
        layer.mask.assign(found[layer.name])
    return found


def _scores(layer: BayesianLayer) -> np.ndarray:
    scores = np.asarray(layer.prune_scores())
    for name, values in (("pruning scores", scores), ("weights", np.asarray(layer.kernel_mean))):
        if not np.all(np.isfinite(values)):
            raise ValueError(
                f"{np.sum(~np.isfinite(values))} of the {name} of the layer {layer.name} are not finite: training has "
                f"diverged. Restore an earlier state, or train with a smaller learning rate or scale_speed."
            )
    return scores


def _two_means(values: np.ndarray) -> tuple[float, float, float]:
    """Means of the two clusters of sorted `values` and the standard deviation within."""
    count = np.arange(1, values.size)
    total, total_squares = np.cumsum(values), np.cumsum(values**2)
    left, right = total[:-1] / count, (total[-1] - total[:-1]) / (values.size - count)
    within = total_squares[-1] - count * left**2 - (values.size - count) * right**2
    split = int(np.argmin(within))
    return float(left[split]), float(right[split]), math.sqrt(max(float(within[split]), 0.0) / values.size)
