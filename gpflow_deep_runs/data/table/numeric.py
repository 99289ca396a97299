"""Inputs and targets that are numbers, as a data set that is not divided yet, and checked."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from gpflow_deep_runs.data.rows import Indices, Part, Rows
from gpflow_deep_runs.data.table.schema import Schema, Task

__all__ = ["check_finite", "undivided"]

_ROWS = 1024


def undivided(
    name: str,
    X: ArrayLike,
    Y: ArrayLike | None,
    task: Task,
    *,
    source: str,
    feature_names: Sequence[str] = (),
    target_names: Sequence[str] = (),
    class_names: Sequence[str] = (),
    splits: Sequence[tuple[Indices, Indices]] | None = None,
    schema: Schema | None = None,
    image_shape: tuple[int, int] | None = None,
) -> Rows:
    """Inputs and targets as a data set of one part "all", checked, in the units of their source.

    The arrays are kept in float64: 8 N (D + P) bytes, for example 2.7 GB for HIGGS.

    :param X: numbers [N, D].
    :param Y: targets [N, P] of a regression, or labels 0, ..., C-1 [N, 1], where C is the number of `class_names`.
    :param feature_names: D names; () stands for "x0", "x1", ...
    :param target_names: P names; () stands for "y", or "y0", "y1", ...
    :param splits: the standard splits as pairs of row numbers (train, test), or None if there are none.
    :param image_shape: height and width, if a row is an image, row by row.
    :param schema: how the columns of a table became X and Y; X may be NaN if its missing values are to be imputed.
    :raises ValueError: naming the first thing wrong: shapes, types, fewer than 2 rows, values that are NaN or
        infinite, a constant target, labels coded in another way, or splits that name a row twice or none.
    """
    subject = f"data set {name!r}"
    X = _numbers(X, f"X of {subject}").astype(np.float64, copy=False)
    Y = _numbers(Y, f"Y of {subject}")
    if len(X) != len(Y):
        raise ValueError(f"X and Y of {subject} must have as many rows, got {len(X)} and {len(Y)}; align them.")
    if len(X) < 2:
        raise ValueError(f"{subject} must have at least 2 rows, got {len(X)}; check that the file is complete.")
    names = tuple(feature_names) or tuple(f"x{d}" for d in range(X.shape[1]))
    targets = tuple(target_names) or (("y",) if Y.shape[1] == 1 else tuple(f"y{p}" for p in range(Y.shape[1])))
    if len(names) != X.shape[1] or len(targets) != Y.shape[1]:
        raise ValueError(
            f"{subject} must have one name for each of {X.shape[1]} features and {Y.shape[1]} targets, got "
            f"{len(names)} and {len(targets)} names."
        )
    # No value may be infinite, or missing unless it will be imputed; targets must fit the task.
    check_finite(X, names, f"X of {subject}", may_miss=schema is not None and schema.missing == "impute")
    check_finite(Y, targets, f"Y of {subject}")
    Y = _checked_targets(Y, task, len(class_names), subject, targets)
    # Each standard split names a row once at most.
    pairs = None if splits is None else tuple(splits)
    for number, pair in enumerate(pairs or ()):
        _check_split(pair, len(X), f"split {number} of {subject}")
    return Rows(
        name,
        {"all": Part(X, Y)},
        task,
        source,
        feature_names=names,
        target_names=targets,
        class_names=tuple(class_names),
        schema=schema,
        splits=pairs,
        image_shape=image_shape,
    )


def check_finite(array: np.ndarray, names: Sequence[str], what: str, *, may_miss: bool = False) -> None:
    """Raise ValueError, naming column, count and first row, if `array` [N, D] holds NaN or infinite values.

    :param may_miss: whether NaN stands for a value that is missing.
    """
    # Few rows at a time, which stay in the processor's memory: most matrices need no second look.
    blocks = (array[start : start + _ROWS] for start in range(0, len(array), _ROWS))
    if not any((np.isinf(block) if may_miss else ~np.isfinite(block)).any() for block in blocks):
        return
    # Column by column, to name the first that has such a value.
    for d in range(array.shape[1]):
        bad = np.isinf(array[:, d]) if may_miss else ~np.isfinite(array[:, d])
        if bad.any():
            raise ValueError(
                f"{what} must be finite, but column {names[d]!r} has {int(bad.sum())} NaN or infinite values, the "
                f"first in row {int(bad.argmax())} (from 0); drop those rows (of a table by --bad_rows=drop) or put in "
                "values."
            )


def _numbers(values: ArrayLike | None, what: str) -> np.ndarray:
    array: np.ndarray = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{what} must hold real numbers, got type {array.dtype}; encode text and dates as numbers.")
    if array.ndim != 2 or array.shape[1] < 1:
        raise ValueError(f"{what} must be a matrix [rows, columns], got shape {array.shape}; reshape it.")
    return array


def _checked_targets(Y: np.ndarray, task: str, num_classes: int, what: str, names: Sequence[str]) -> np.ndarray:
    # Numbers of a regression must vary.
    if task == "regression":
        constant = np.flatnonzero(np.all(Y[0] == Y, axis=0))
        if len(constant):
            raise ValueError(
                f"the target of {what} must vary, but {names[constant[0]]!r} is {Y[0, constant[0]]} in every row; "
                "choose another target."
            )
        return Y.astype(np.float64, copy=False)
    # Labels are one column of the numbers of known classes.
    if task not in ("binary", "multiclass"):
        raise ValueError(f"the task of {what} must be 'regression', 'binary' or 'multiclass', got {task!r}.")
    if Y.shape[1] != 1:
        raise ValueError(f"labels of {what} must have shape [N, 1], got {Y.shape}; one-hot labels: take the argmax.")
    if num_classes < 2 or (task == "binary" and num_classes != 2):
        expected = "2" if task == "binary" else "at least 2"
        raise ValueError(f"{task} {what} must have {expected} class names, got {num_classes}.")
    # They count from 0, and at least two of them occur.
    labels = np.unique(Y)
    if not np.isin(labels, np.arange(num_classes)).all():
        raise ValueError(
            f"labels of {what} must be the integers 0 to {num_classes - 1}, got values from {labels[0]} to "
            f"{labels[-1]} ({len(labels)} different ones); recode them, for example -1 and 1 as 0 and 1."
        )
    if len(labels) < 2:
        raise ValueError(f"the target of {what} must vary, but every label is {labels[0]}; choose another target.")
    return Y.astype(np.int64, copy=False)


def _check_split(pair: tuple[Indices, Indices], num_data: int, what: str) -> None:
    # No row trains and tests.
    is_used = np.zeros(num_data, dtype=bool)
    for name, rows in zip(("training", "test"), map(np.asarray, pair), strict=True):
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or len(rows) == 0:
            raise ValueError(f"the {name} rows of {what} must be a list of integers, got {rows.dtype} {rows.shape}.")
        if (is_outside := (rows < 0) | (rows >= num_data)).any():
            raise ValueError(f"the {name} rows of {what} must be from 0 to {num_data - 1}, got {rows[is_outside][0]}.")
        if is_used[rows].any() or len(np.unique(rows)) < len(rows):
            raise ValueError(f"{what} must name each row at most once, but its {name} rows repeat one; check the file.")
        is_used[rows] = True
