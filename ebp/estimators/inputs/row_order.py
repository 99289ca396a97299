"""The rows of a table in an order that follows from what they hold, so that no fit depends on that of a file.

A fit learns one row after the other in an order drawn by its seed, and holds drawn rows back. Drawn by their places in
the file, the same rows in another order have another result. So rows are first ordered as words are in a dictionary: by
their targets, then those of equal targets by the first input, those that are still equal by the second, and so on. That
order is the same in other units (of a positive factor), and for dense and sparse inputs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ebp.network.coding import Matrix

__all__ = ["copies", "row_order"]

#: Of fewer different rows than this, equal ones are no copies: a table of few categories has such rows by itself.
MIN_DIFFERENT = 30

#: Rows are copies if so many of them are equal in X to another one, and so many of those agree in their labels.
MIN_EQUAL = 0.1
MIN_AGREEING = 0.9

#: From numbers of rows [T] to what is compared of them at a step, the first first, [T] each.
_Step = Callable[[NDArray[np.intp]], list[np.ndarray]]


def row_order(X: Matrix, *columns: np.ndarray | None) -> NDArray[np.intp]:
    """Numbers of the rows in the order of their content, [N]; rows that are equal in all of it stay as they were.

    :param X: [N, D], finite; dense, or sparse in rows (CSR).
    :param columns: numbers that are compared before X, the first first, [N] or [N, Q]; None: left out.
    """
    place = np.zeros(X.shape[0], np.intp)  # how many rows are less, by what was compared so far
    tied = np.arange(X.shape[0])  # the rows that are equal to another one so far
    for step in _steps(X, columns):
        if len(tied) < 2:
            break
        tied = _compared(place, tied, step(tied))
    return np.argsort(place, kind="stable")


def copies(X: Matrix, labels: NDArray[np.intp]) -> NDArray[np.intp] | None:
    """Of each row the number of the row that it is a copy of, [N]; None if rows are not copies of each other.

    Where a table has its rows several times, as after oversampling, rows held back are known from their copies,
    which have the same noise. Rows that are equal by chance, of few categories, differ in their labels.

    :param X: [N, D], finite; dense, or sparse in rows (CSR).
    :param labels: numbers of classes, [N].
    """
    if X.shape[0] < MIN_DIFFERENT:
        return None
    # Equal rows are neighbours in their order; each run of them has a number.
    order = row_order(X)
    ordered = X[order]
    differs = ordered[1:] != ordered[:-1]
    is_new = np.append(True, np.asarray(differs.sum(axis=1)).reshape(-1) > 0)
    number = np.cumsum(is_new) - 1
    counts = np.bincount(number)
    num_equal = int(np.sum(counts[counts > 1]))
    if num_equal < MIN_EQUAL * len(number) or len(counts) < MIN_DIFFERENT:
        return None
    # Whether all rows of a number have the same label, the first of which is its own.
    first = np.flatnonzero(is_new)
    same = labels[order] == labels[order][first][number]
    agrees = np.bincount(number, same) == counts
    if np.sum(counts[agrees & (counts > 1)]) < MIN_AGREEING * num_equal:
        return None
    groups = np.empty_like(number)
    groups[order] = number
    return groups


def _steps(X: Matrix, columns: tuple[np.ndarray | None, ...]) -> Iterator[_Step]:
    for column in columns:
        if column is not None:
            yield from _steps_of(column if column.ndim == 2 else column[:, None])
    yield from _steps_of_sparse(X) if scipy.sparse.issparse(X) else _steps_of(X)


def _steps_of(values: np.ndarray) -> Iterator[_Step]:
    """One column after the other."""
    for number in range(values.shape[1]):
        yield functools.partial(_column, values, number)


def _column(values: np.ndarray, number: int, rows: NDArray[np.intp]) -> list[np.ndarray]:
    return [values[rows, number]]


def _steps_of_sparse(X: scipy.sparse.csr_matrix) -> Iterator[_Step]:
    """One number that is not 0 after the other."""
    X = X.copy()
    X.sum_duplicates()  # sorts the numbers of a row by their columns, too
    X.eliminate_zeros()
    for number in range(int(np.max(np.diff(X.indptr), initial=0))):
        yield functools.partial(_element, X, number)


def _element(X: scipy.sparse.csr_matrix, number: int, rows: NDArray[np.intp]) -> list[np.ndarray]:
    """Sign, column and value of a number of each row; sign 0 if it has no more.

    Where two rows differ first, the one that has a number there and the other does not (0) is the greater if that is
    positive. Of two positive numbers of different columns the one further left is there first, so it is the greater
    row; of two negative ones it is the less.
    """
    entries = X.indptr[rows].astype(np.intp) + number
    exists = entries < X.indptr[rows + 1]
    entries = np.where(exists, entries, 0)
    value = np.where(exists, X.data[entries], 0.0)
    sign = np.sign(value)
    return [sign, -sign * X.indices[entries], value]


def _compared(place: NDArray[np.intp], tied: NDArray[np.intp], keys: list[np.ndarray]) -> NDArray[np.intp]:
    """Puts rows that were equal so far into the order of keys, in `place`; returns those that are equal still."""
    if all(np.all(key == key[0]) for key in keys):
        return tied
    # Rows tied so far, in the order of the new keys within each tie.
    order = np.lexsort((*reversed(keys), place[tied]))
    rows = tied[order]
    group_places = place[rows]
    starts_group = np.append(True, group_places[1:] != group_places[:-1])
    starts = starts_group.copy()
    for key in keys:
        starts[1:] |= key[order][1:] != key[order][:-1]
    # A row is behind those of its group that are less.
    number = np.arange(len(rows))
    first = np.maximum.accumulate(np.where(starts, number, 0))
    place[rows] = group_places + first - np.maximum.accumulate(np.where(starts_group, number, 0))
    is_alone = starts & np.append(starts[1:], True)
    return rows[~is_alone]
