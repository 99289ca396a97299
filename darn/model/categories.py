"""Columns that are one variable: the levels of a category, of which at most one is 1, or exactly one.

Where the columns stand in an order, p(level | before) is a product over the levels in that order,

    p(x_j = 1 | no earlier level is 1, before) = sigmoid(a_j),      p(x_j = 1 | an earlier level is 1) = 0,

and the last level of a category that is never missing is certain if no other one is (continuation ratios; Tutz, 1991).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Category",
    "Level",
    "are_possible",
    "as_categories",
    "categories_header",
    "categories_of",
    "columns_of",
    "levels_in_order",
    "links",
]

_CERTAIN = 256.0
"""A logit of what is certain, beyond those of trained networks and of any noise."""


class Category(NamedTuple):
    """Columns that are one variable.

    :ivar columns: of its levels.
    :ivar is_always: whether exactly one of them is 1, and not at most one.
    """

    columns: tuple[int, ...]
    is_always: bool


class Level(NamedTuple):
    """A level of a category in an order of the columns.

    :ivar earlier: columns of the levels before it.
    :ivar is_certain: whether it is 1 if none of these is.
    """

    earlier: list[int]
    is_certain: bool


def levels_in_order(categories: Sequence[Category], order: np.ndarray) -> dict[int, Level]:
    """The levels of all categories, by column.

    :param categories: columns that are one variable.
    :param order: of all columns, [n].
    """
    place = np.argsort(order)
    levels_of = {}
    for category in categories:
        # The last level of a category that is never missing is certain if no earlier one is 1.
        levels = sorted(category.columns, key=lambda column: place[column])
        for i, level in enumerate(levels):
            levels_of[level] = Level(levels[:i], category.is_always and i + 1 == len(levels))
    return levels_of


def as_categories(groups: Sequence[Sequence[int]], data: np.ndarray, *others: np.ndarray) -> tuple[Category, ...]:
    """Categories of groups of columns; one is never missing if every row of the data has one of its levels.

    :param groups: columns of each category.
    :param data: zeros and ones, [N, n].
    :param others: more of them, such as validation rows.
    :raises ValueError: if a group has less than two columns or one that does not exist, two share a column, or a row
        has two levels of one.
    """
    width = data.shape[1]
    used_columns: set[int] = set()
    categories = []
    for columns in columns_of(groups):
        if len(columns) < 2 or len({*columns} - used_columns) < len(columns) or not {*columns} <= set(range(width)):
            raise ValueError(
                f"a category must be at least two of the columns 0 to {width - 1} that no other has, got {columns}."
            )
        used_columns |= {*columns}
        # Ones of each row among the columns, in each part of the data.
        ones = [part[:, columns].sum(axis=1) for part in (data, *others)]
        for counts in ones:
            if counts.max(initial=0) > 1:
                raise ValueError(
                    f"the columns {columns} must be one category, of which at most one is 1 in a row, got "
                    f"{int(counts.max())} ones in row {int(counts.argmax())}; leave the category out."
                )
        categories.append(Category(columns, all(counts.min(initial=1) == 1 for counts in ones)))
    return tuple(categories)


def columns_of(groups: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """The columns of each category.

    :raises ValueError: if they are no whole numbers in sequences.
    """
    try:
        return [tuple(operator.index(column) for column in group) for group in groups]
    except TypeError as error:
        raise ValueError(f"categories must be the columns of each, as [(0, 1, 2), (5, 6)], got {groups!r}.") from error


def categories_header(categories: Sequence[Category]) -> list[dict[str, object]]:
    """What a file says about categories."""
    return [{"columns": [*columns], "is_always": always} for columns, always in categories]


def categories_of(header: Any, width: int) -> tuple[Category, ...]:
    """The categories of :func:`categories_header`.

    :param width: n.
    :raises ValueError: if it is something else, or no categories of n columns.
    """
    # A file may hold anything: types by hand, all else as for categories of data.
    try:
        groups = tuple(Category(tuple(entry["columns"]), entry["is_always"]) for entry in header)
        are_right = all(type(always) is bool and all(type(c) is int for c in members) for members, always in groups)
        as_categories([group.columns for group in groups], np.zeros([0, width]))
    except (TypeError, KeyError) as error:
        raise ValueError("its categories must be columns and whether one is always 1") from error
    if not are_right:
        raise ValueError("its categories must be columns and whether one is always 1")
    return groups


def are_possible(rows: np.ndarray, categories: Sequence[Category]) -> NDArray[np.bool_]:
    """Whether rows have at most one level of each category, and one of those that are never missing, [N].

    :param rows: zeros and ones, [N, n].
    :param categories: columns that are one variable.
    """
    possible = np.ones(len(rows), bool)
    for columns, is_always in categories:
        counts = rows[:, columns].sum(axis=1)
        possible &= (counts == 1) if is_always else (counts <= 1)
    return possible


def links(categories: Sequence[Category], width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What makes impossible rows improbable beyond any draw, in sums a = h W + b of bits in the order of their columns:
    what is added to W, [n, n], and to b, [n].

    :param categories: columns that are one variable.
    :param width: n.
    """
    matrix = np.zeros([width, width])
    start = np.zeros(width)
    for j, level in levels_in_order(categories, np.arange(width)).items():
        # Continuation ratios: a level is ruled out by each earlier one, and the last may be certain.
        start[j] = _CERTAIN if level.is_certain else 0.0
        matrix[level.earlier, j] = -_CERTAIN - start[j]
    return matrix, start
