"""How good predictions are, from arrays; and quantiles of Gaussian mixtures, which is what a deep GP predicts."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

Task = Literal["regression", "binary", "multiclass"]

__all__ = ["area_under_curve", "gaussian_mixture_crps", "metrics", "mixture_quantiles"]

_CHUNK_FLOATS = 4_000_000


def metrics(task: Task, Y: NDArray[Any], mean: NDArray[Any], log_density: NDArray[Any]) -> dict[str, float]:
    """Averages over the rows: what a table of results shows.

    :param Y: targets [N, P] of a regression, or labels 0, 1, ... [N, 1].
    :param mean: predicted means [N, P]; binary: probability of label 1, [N, 1], or of both, [N, 2];
        multiclass: of each label, [N, C].
    :param log_density: log p(y_n) in nats, [N], in the units of Y.
    :return: "log_likelihood_nats" (mean per row); and "rmse" over rows and columns in the units of Y, or "accuracy"
        (a fraction) and for two classes "auc" (left out if all labels are the same).
    """
    result: dict[str, Any] = {"log_likelihood_nats": float(np.mean(log_density))}
    if task == "regression":
        return {**result, "rmse": float(np.sqrt(np.mean(np.square(mean - Y))))}
    labels = np.asarray(Y)[:, 0].astype(np.int64)
    if task == "multiclass":
        return {**result, "accuracy": float(np.mean(np.argmax(mean, axis=1) == labels))}
    result["accuracy"] = float(np.mean((mean[:, -1] > 0.5) == (labels == 1)))
    if 0 < labels.sum() < len(labels):
        result["auc"] = area_under_curve(labels, mean[:, -1])
    return result


def area_under_curve(labels: NDArray[Any], scores: NDArray[Any]) -> float:
    """Area under the ROC curve: the probability that a random row of label 1 scores above one of label 0, ties half.

    :param labels: 0 and 1, both present, [N].
    :param scores: larger for label 1, [N].
    :raises ValueError: if one of the labels is absent.
    """
    is_one = np.asarray(labels) == 1
    num_ones = int(is_one.sum())
    num_zeros = len(is_one) - num_ones
    if num_ones == 0 or num_zeros == 0:
        raise ValueError(f"labels must hold both 0 and 1, got {num_zeros} and {num_ones} of them.")
    rank_sum = float(rankdata(scores)[is_one].sum())
    return (rank_sum - num_ones * (num_ones + 1) / 2) / (num_ones * num_zeros)


def mixture_quantiles(
    means: NDArray[Any], variances: NDArray[Any], probabilities: Sequence[float]
) -> list[NDArray[np.float64]]:
    """Quantiles of equally weighted mixtures of S Gaussians, by bisection of the distribution function.

    :param means: [S, N, P].
    :param variances: positive, [S, N, P].
    :param probabilities: each in (0, 1).
    :return: for each probability an array [N, P], exact to about 1e-12 of the mixture's spread.
    :raises ValueError: if a probability is not in (0, 1) or a variance is not positive.
    """
    if not all(0 < p < 1 for p in probabilities):
        raise ValueError(f"probabilities of quantiles must be between 0 and 1, got {list(probabilities)}.")
    if not np.all(variances > 0):
        raise ValueError(f"variances of a mixture must be positive, the smallest is {np.min(variances)}.")
    means, deviations = np.asarray(means, np.float64), np.sqrt(np.asarray(variances, np.float64))
    rows = max(1, _CHUNK_FLOATS // (means.shape[0] * means.shape[2]))
    starts = range(0, means.shape[1], rows)
    return [
        np.concatenate([_quantile(means[:, i : i + rows], deviations[:, i : i + rows], p) for i in starts])
        for p in probabilities
    ]


def gaussian_mixture_crps(
    weights: NDArray[Any], means: NDArray[Any], variances: NDArray[Any], Y: NDArray[Any]
) -> NDArray[np.float64]:
    """Continuous ranked probability score of mixtures of Gaussians: E|y' - y| - E|y' - y''| / 2, in the units of Y.

    Grimit et al., "The continuous ranked probability score for circular variables ...", 2006, Eq. (5).

    :param weights: [S], their sum is 1. :param means: [S, N, P]. :param variances: [S, N, P]. :param Y: [N, P].
    :return: [N, P].
    """

    def distance(mean: NDArray[Any], variance: NDArray[Any]) -> NDArray[np.float64]:
        """E|z| of Gaussians."""
        deviation = np.sqrt(variance)
        ratio = np.divide(mean, deviation, out=np.zeros_like(mean), where=deviation > 0)
        density = np.exp(-0.5 * np.square(ratio)) / np.sqrt(2 * np.pi)
        return np.where(deviation > 0, mean * (2 * ndtr(ratio) - 1) + 2 * deviation * density, np.abs(mean))

    score = np.tensordot(weights, distance(Y - means, variances), axes=1)
    for weight, mean, variance in zip(weights, means, variances, strict=True):
        score -= 0.5 * weight * np.tensordot(weights, distance(means - mean, variances + variance), axes=1)
    return score


def _quantile(means: NDArray[np.float64], deviations: NDArray[np.float64], probability: float) -> NDArray[np.float64]:
    # The quantile lies between the smallest and the largest quantile of the components.
    bound = abs(float(ndtri(probability))) + 1e-9
    low, high = np.min(means - bound * deviations, axis=0), np.max(means + bound * deviations, axis=0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        is_below = np.mean(ndtr((middle - means) / deviations), axis=0) < probability
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return np.asarray(0.5 * (low + high))
