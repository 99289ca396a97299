"""Folds of a cross-validation: pairs of training and test rows, and their coded inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..network.coding import InputCoding

__all__ = ["Fold", "Folds", "Prepare", "checked_folds", "coded"]

Folds = Iterable[tuple[ArrayLike, ArrayLike]]
"""Pairs of row numbers (training, test), as of `sklearn.model_selection.KFold(8).split(X)`."""


class Fold(NamedTuple):
    """A fold's coded training rows [N, D] with targets [N, C], the same of its test rows, and the coding."""

    X: Any
    Y: NDArray[np.float64]
    X_test: Any
    Y_test: NDArray[np.float64]
    coding: InputCoding


def checked_folds(folds: Folds, num_rows: int) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """The folds as arrays.

    :raises ValueError: if there are none, or one has no training or no test rows, rows that are not among the
        `num_rows`, or test rows that are training rows, too.
    """
    pairs = [(np.asarray(rows, np.intp), np.asarray(test_rows, np.intp)) for rows, test_rows in folds]
    if not pairs:
        raise ValueError("folds must hold at least one pair of training and test rows, got none.")
    for number, pair in enumerate(pairs):
        every = np.concatenate(pair)
        if not all(len(rows) for rows in pair) or every.min() < 0 or every.max() >= num_rows:
            raise ValueError(f"fold {number} must have training and test rows from 0 to {num_rows - 1}, got others.")
        if common := np.intersect1d(*pair).size:
            raise ValueError(f"test rows of fold {number} must not be training rows, and {common} are.")
    return pairs


Prepare = Callable[[Any, Any], tuple[Any, Any]]
"""Raw inputs of the training and test rows of a fold -> the same, for example with missing values put in."""


def coded(
    kind: str,
    X: Any,
    Y: NDArray[np.float64],
    rows: NDArray[np.intp],
    test_rows: NDArray[np.intp],
    prepare: Prepare = lambda *parts: parts,
) -> Fold:
    """The rows of a fold; what the coding has to know is learned from the training rows alone."""
    X_train, X_test = prepare(X[rows], X[test_rows])
    coding = InputCoding.fit(kind, X_train)
    return Fold(coding.transform(X_train), Y[rows], coding.transform(X_test), Y[test_rows], coding)
