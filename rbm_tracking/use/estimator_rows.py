"""Rows of the estimator: what is in them, probabilities drawn as bits, minibatches, scores; dense or sparse."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.extmath import safe_sparse_dot

from rbm_tracking.model.rbm import RBM

__all__ = ["check_values", "checked", "drawn", "log_probs_unnormalised", "minibatches", "packed"]

_SCORE_ROWS = 5000

ONE_HOT = "X must be 0 or 1 everywhere for visible='softmax', with a column for each level of a category, "
ENCODE = (
    "sklearn.preprocessing.OneHotEncoder(sparse_output=False) makes such columns of codes, texts and pandas categories."
)


def checked(validate: Callable[[], Any], X: Any, visible: str) -> Any:
    """The rows that `validate` gives, with messages that name what helps where scikit-learn's cannot know.

    :param validate: scikit-learn's validation of X.
    :param X: rows as the user gave them.
    :param visible: what the visible units are.
    :raises ValueError: if X has missing values, or texts.
    """
    try:
        return validate()
    except ValueError as error:
        if "contains NaN" in str(error):
            raise ValueError(
                "X must have no missing values, got NaN; fit with the rows that are complete, then fill in the others "
                "by impute(X, mask), with mask = np.isnan(X)."
            ) from error
        if visible == "softmax" and "could not convert string" in str(error):
            raise ValueError(f"{ONE_HOT}got texts; {ENCODE}") from error
        raise


def check_values(X: Any, visible: str) -> None:
    """Check that the values are in the range of the units.

    :raises ValueError: saying what to do.
    """
    values = X.data if sparse.issparse(X) else X
    if visible == "gaussian" or not values.size:
        return
    if visible == "spin":
        if sparse.issparse(X) or (np.abs(values) != 1).any():
            raise ValueError("X must be -1 or 1 everywhere, and dense, for visible='spin'; 2 x - 1 makes it of bits x.")
        return
    if visible == "softmax" and ((values != 0) & (values != 1)).any():
        raise ValueError(ONE_HOT + f"got values from {values.min():g} to {values.max():g}; {ENCODE}")
    if values.min() < 0 or values.max() > 1:
        negative = "Negative values in data: " if values.min() < 0 else ""
        raise ValueError(
            f"{negative}X must be 0 or 1, or probabilities between them, got values from {values.min():g} to "
            f"{values.max():g}; binarise or scale it, for example by sklearn.preprocessing.Binarizer."
        )


def drawn(rows: Any, visible: str, rng: np.random.RandomState) -> NDArray[Any]:
    """Dense rows as the units take them: numbers and signs in float32, bits as uint8; of probabilities between 0 and 1
    bits are drawn.
    """
    dense = rows.toarray() if sparse.issparse(rows) else rows
    if visible in ("spin", "gaussian"):
        return np.asarray(dense, np.float32)
    binary = dense.astype(np.uint8)
    if not (binary == dense).all():
        binary = (rng.uniform(size=dense.shape) < dense).astype(np.uint8)
    return np.asarray(binary)


def packed(rows: NDArray[Any], count: int) -> NDArray[Any]:
    """Rows followed by zeros, `count` in all; bits as booleans."""
    padded = np.zeros((count, rows.shape[1]), bool if rows.dtype == np.uint8 else rows.dtype)
    padded[: len(rows)] = rows
    return padded


def minibatches(rng: np.random.RandomState, num_rows: int, size: int) -> Iterator[NDArray[np.int64]]:
    """Rows of each minibatch, from one permutation after the other."""
    rows = np.empty(0, np.int64)
    while True:
        while len(rows) < size:
            rows = np.concatenate([rows, rng.permutation(num_rows)])
        yield rows[:size]
        rows = rows[size:]


def log_probs_unnormalised(rbm: RBM, X: Any) -> NDArray[np.float64]:
    """log q~(x) of each row, dense or sparse, in float64, nats, [N]."""
    W, b, c = (np.asarray(part, np.float64) for part in (rbm.W, rbm.b, rbm.c))
    parts = []
    for start in range(0, X.shape[0], _SCORE_ROWS):
        v = X[start : start + _SCORE_ROWS].astype(np.float64)
        a = safe_sparse_dot(v, W.T) + c
        measure = 0.0 if sparse.issparse(v) else rbm.visible.log_measure(v)
        parts.append(safe_sparse_dot(v, b) + np.logaddexp(0.0, a).sum(axis=1) + measure)
    return np.concatenate(parts)
