"""What classifiers are judged by, and the error of a mean."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["calibration_error", "confidence_bins", "label_scores", "log_loss", "standard_error"]

NUM_BINS = 15


def standard_error(values: ArrayLike, of_one: float = math.nan) -> float:
    """Of the mean of independent values: their standard deviation by the root of their number.

    :param values: [N].
    :param of_one: what it is of a single value, which does not tell.
    """
    values = np.asarray(values)
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else of_one


def label_scores(log_p: NDArray[np.float64], classes: NDArray[np.integer]) -> dict[str, float]:
    """What any classifier can be judged by: "error" and "calibration" (`calibration_error`) in percent, and
    "log_loss" in nats.

    :param log_p: logarithms of probabilities, [N, C].
    :param classes: number of the class of each row, [N].
    """
    is_right = log_p.argmax(axis=1) == classes
    return {
        "error": float(100 * np.mean(~is_right)),
        "calibration": 100 * calibration_error(np.exp(log_p.max(axis=1)), is_right),
        "log_loss": log_loss(log_p, classes),
    }


def log_loss(log_p: ArrayLike, classes: ArrayLike) -> float:
    """Mean over rows of -log P(class of the row), nats.

    :param log_p: logarithms of probabilities, [N, C].
    :param classes: number of the class of each row, [N].
    """
    log_p = np.asarray(log_p)
    return -float(np.mean(log_p[np.arange(len(log_p)), np.asarray(classes, np.intp)]))


def calibration_error(
    confidence: NDArray[np.float64], is_right: NDArray[np.bool_], *, num_bins: int = NUM_BINS
) -> float:
    """Mean over rows of |accuracy - confidence| of the bin of the row; Guo et al., 2017, Eq. (3). NaN if one is NaN.

    :param confidence: probability of the most probable class, [N].
    :param is_right: whether it is the class, [N].
    """
    if np.isnan(confidence).any():  # of a classifier that diverged
        return math.nan
    # In each bin, right answers less the confidence that they had.
    gaps = np.bincount(confidence_bins(confidence, num_bins), is_right - confidence, num_bins)
    return float(np.abs(gaps).sum() / len(confidence))


def confidence_bins(confidence: NDArray[np.float64], num_bins: int) -> NDArray[np.int64]:
    """Number of the bin of each row, of equally wide ones between 0 and 1."""
    return np.minimum((confidence * num_bins).astype(np.int64), num_bins - 1)
