"""Inputs without correlations, so that a posterior of single weights can learn what columns say together.

A posterior of single weights learns slowly what is in a difference of two columns that are nearly the same: the weights
of both would have to move together. So rows are multiplied by C^(-1/2), C being the correlation matrix: of all maps
that leave no correlation this changes the columns least (Kessy, Lewin and Strimmer, 2018, "ZCA-cor"), and columns that
are not correlated not at all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["decorrelation"]

Array = NDArray[np.float64]

#: Of more columns the map would take longer than the network.
MAX_COLUMNS = 500

#: A direction with less of a column's variance is one in which the rows do not vary, but for rounding.
NO_VARIANCE = 1e-10


def decorrelation(X: Array, weight: Array) -> Array | None:
    """C^(-1/2), [D, D], for rows to be multiplied by; None: the columns stay as they are.

    N rows tell correlations of D columns to about sqrt(D / N), so that what has a smaller part of the variance may be
    chance: D / N of C is the identity. Hence no direction is stretched by more than sqrt(N / D), and those in which
    the rows do not vary, of which nothing is learned, are not stretched at all.

    :param X: rows of mean 0 and standard deviation 1, [N, D].
    :param weight: how often each row counts, [N].
    """
    num_columns = X.shape[1]
    total = float(np.sum(weight))
    if not 1 < num_columns < min(total, MAX_COLUMNS):
        return None
    correlation = (weight[:, None] * X).T @ X / total
    np.fill_diagonal(correlation, 1.0)  # also of columns that do not vary
    identity_part = num_columns / total
    values, vectors = np.linalg.eigh(correlation)
    shrunk = np.where(values > NO_VARIANCE, (1.0 - identity_part) * values + identity_part, 1.0)
    return np.asarray((vectors / np.sqrt(shrunk)) @ vectors.T)
