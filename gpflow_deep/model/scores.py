"""How good predictions are, from arrays; densities and scores of mixtures of Gaussians."""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr
from scipy.stats import rankdata

Array = NDArray[np.float64]
Task = Literal["regression", "binary", "multiclass"]

__all__ = ["GaussianMixture", "area_under_curve", "metrics"]


def metrics(task: Task, Y: np.ndarray, mean: np.ndarray, log_density: np.ndarray) -> dict[str, float]:
    """Averages over the rows: what a table of results shows.

    :param Y: targets [N, P] of a regression, or labels 0, 1, ... [N, 1].
    :param mean: predicted means [N, P]; binary: probability of label 1, [N, 1], or of both, [N, 2];
        multiclass: of each label, [N, C].
    :param log_density: log p(y_n) in nats, [N], in the units of Y.
    :return: "log_likelihood_nats" (mean per row); and "rmse" over rows and columns in the units of Y, or "accuracy"
        (a fraction) and for two classes "auc" (left out if all labels are the same).
    """
    scores: dict[str, Any] = {"log_likelihood_nats": float(np.mean(log_density))}
    if task == "regression":
        return {**scores, "rmse": float(np.sqrt(np.mean(np.square(mean - Y))))}
    labels = np.asarray(Y)[:, 0].astype(np.int64)
    if task == "multiclass":
        return {**scores, "accuracy": float(np.mean(np.argmax(mean, axis=1) == labels))}
    scores["accuracy"] = float(np.mean((mean[:, -1] > 0.5) == (labels == 1)))
    if 0 < labels.sum() < len(labels):
        scores["auc"] = area_under_curve(labels, mean[:, -1])
    return scores


def area_under_curve(labels: np.ndarray, scores: np.ndarray) -> float:
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
    # The statistic of Mann and Whitney.
    rank_sum = float(rankdata(scores)[is_one].sum())
    return (rank_sum - num_ones * (num_ones + 1) / 2) / (num_ones * num_zeros)


class GaussianMixture(NamedTuple):
    """Mixtures of S Gaussians, one for each of P targets of N rows.

    :ivar weights: [S], their sum is 1.
    :ivar means: [S, N, P].
    :ivar variances: [S, N, P].
    """

    weights: Array
    means: Array
    variances: Array

    def log_density(self, Y: np.ndarray) -> Array:
        """log p(y_n) of all targets of a row together, [N] in nats, for Y [N, P]; the variances are positive."""
        # Targets are independent given the component: their logs are added up before components are mixed.
        terms = np.log(2 * np.pi * self.variances) + np.square(Y - self.means) / self.variances
        return np.asarray(logsumexp(-0.5 * terms.sum(axis=2), axis=0, b=self.weights[:, None]))

    def crps(self, Y: np.ndarray) -> Array:
        """Continuous ranked probability scores E|y' - y| - E|y' - y''| / 2, [N, P] in the units of Y, for Y [N, P].

        Grimit et al., "The continuous ranked probability score for circular variables ...", 2006, Eq. (5).
        """
        weights, means, variances = self
        # E|y' - y|, and below E|y' - y''| / 2, of all pairs of components.
        score = np.tensordot(weights, _mean_distance(Y - means, variances), axes=1)
        for weight, mean, variance in zip(weights, means, variances, strict=True):
            pairs = _mean_distance(means - mean, variances + variance)
            score -= 0.5 * weight * np.tensordot(weights, pairs, axes=1)
        return np.asarray(score)


def _mean_distance(mean: Array, variance: Array) -> Array:
    """E|z| of Gaussians."""
    deviation = np.sqrt(variance)
    ratio = np.divide(mean, deviation, out=np.zeros_like(mean), where=deviation > 0)
    density = np.exp(-0.5 * np.square(ratio)) / np.sqrt(2 * np.pi)
    return np.where(deviation > 0, mean * (2 * ndtr(ratio) - 1) + 2 * deviation * density, np.abs(mean))
