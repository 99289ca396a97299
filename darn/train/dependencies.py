"""Variables that decide others: a city says in which state it is, and one bit may be the copy of another.

A variable is a category, or a column that is a bit by itself. A decides B where each level of A was seen beside one
level of B alone, so that other pairs of levels never occur. Where E rows would have such pairs, if A and B knew nothing
of each other, it is a priori as probable as not that no row ever will, and the next one has such a pair with a
probability of about 1 / E^2 (Laplace's rule of succession). That is a logit of -2 log(E + 1), where a regression with a
penalty leaves one of about -4.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from darn.model.categories import Category, levels_in_order

__all__ = ["Clause", "clauses_of", "decided", "hardened"]

_MOST_NUMBERS = 5e7  # rows times levels
_MOST_WORK = 2e10  # that times levels; tables that are larger are not looked at
_LEAST_EVIDENCE = 20.0  # nats, beyond a bit for each pair of levels

Bits = NDArray[np.bool_]


class Clause(NamedTuple):
    """What earlier columns decide of a column.

    :ivar columns: of which at most one is 1.
    :ivar if_any: whether it is decided where one of them is 1, or where none is.
    :ivar is_one: what it is there.
    :ivar logit: of that.
    """

    columns: list[int]
    if_any: bool
    is_one: bool
    logit: float

    def holds(self, rows: np.ndarray) -> Bits:
        """The rows that it decides, [N]."""
        has_one: Bits = rows[:, self.columns].any(axis=1)
        return has_one == self.if_any


class _Pair(NamedTuple):
    """Which levels of two variables can occur together. A level is a column, or -1 - g where none of the columns of the
    variable g is 1.

    :ivar beside: by each level of the one the levels of the other that it occurs with.
    :ivar logit: of what the pair decides.
    """

    beside: dict[int, set[int]]
    logit: float


def clauses_of(
    rows: NDArray[np.uint8], order: np.ndarray, categories: Sequence[Category], is_known: Bits | None = None
) -> dict[int, list[Clause]]:
    """What is decided of columns by those that are earlier in an order.

    :param rows: zeros and ones, [N, n].
    :param order: of the columns, [n].
    :param categories: columns that are one variable.
    :param is_known: [N, n]; all if not given.
    """
    # Variables: categories, and all other columns one by one.
    in_categories = {column for category in categories for column in category.columns}
    singles = [(column,) for column in range(rows.shape[1]) if column not in in_categories]
    groups = [*(category.columns for category in categories), *singles]
    place = np.argsort(order)
    clauses: dict[int, list[Clause]] = {}
    for (first, second), pair in _pairs(rows, groups, is_known).items():
        for decider, other in ((first, second), (second, first)):
            for j in groups[other]:
                if j in pair.beside:
                    clauses.setdefault(j, []).extend(_of_column(j, groups[decider], -1 - decider, pair, place))
    # The last level of a category that is never missing is decided by the others.
    levels = levels_in_order(categories, order)
    return {j: found for j, found in clauses.items() if found and not (j in levels and levels[j].is_certain)}


def _of_column(j: int, decider: Sequence[int], none: int, pair: _Pair, place: np.ndarray) -> Iterator[Clause]:
    """Of a column of the one variable, by the columns of the other that are earlier.

    :param none: the level of the other that has none of its columns.
    """

    def is_left_alone(level: int) -> bool:
        # Beside this level all but j are known, and are 0 where it is asked for.
        return all(b == j or (b >= 0 and place[b] < place[j]) for b in pair.beside[level])

    earlier = [a for a in decider if a in pair.beside and place[a] < place[j]]
    with_j = pair.beside[j]
    without_j = [a for a in (*decider, none) if a in pair.beside and a not in with_j]
    # It is 1 beside a level that has no other one left, and where only such levels are left.
    ones = [a for a in earlier if a in with_j and is_left_alone(a)]
    if ones:
        yield Clause(ones, True, True, pair.logit)
    if all(is_left_alone(a) for a in with_j) and all(a >= 0 and place[a] < place[j] for a in without_j):
        yield Clause(without_j, False, True, pair.logit)
    elif none in with_j and is_left_alone(none) and all(place[a] < place[j] for a in decider):
        yield Clause([*decider], False, True, pair.logit)
    # It is 0 where none of its levels can be there, and beside each that is not one of them.
    if all(a >= 0 and place[a] < place[j] for a in with_j):
        yield Clause(sorted(with_j), False, False, pair.logit)
    elif zeros := [a for a in without_j if a in earlier]:
        yield Clause(zeros, True, False, pair.logit)


def decided(clauses: Sequence[Clause], rows: np.ndarray) -> Bits:
    """Rows in which a column is decided, [N]."""
    found = np.zeros(len(rows), bool)
    for clause in clauses:
        found |= clause.holds(rows)
    return found


def hardened(
    clauses: Sequence[Clause], rows: np.ndarray, logits: NDArray[np.float64]
) -> tuple[float, dict[int, float]]:
    """What clauses add to the bias and the weights of a regression of which these are the logits, [N], so that what is
    decided has at least its own logit in all rows."""
    bias = 0.0
    weights: dict[int, float] = {}
    for clause in clauses:
        sign = 1.0 if clause.is_one else -1.0
        against = -sign * logits[clause.holds(rows)]
        size = sign * (clause.logit + max(0.0, float(against.max(initial=0.0))))
        if not clause.if_any:
            bias += size
            size = -size
        for column in clause.columns:
            weights[column] = weights.get(column, 0.0) + size
    return bias, weights


def _pairs(
    rows: NDArray[np.uint8], groups: Sequence[Sequence[int]], is_known: Bits | None
) -> dict[tuple[int, int], _Pair]:
    """Pairs of variables that decide something of each other, by their numbers."""
    numbers = len(rows) * sum(len(group) + 1 for group in groups)
    if numbers > _MOST_NUMBERS or numbers**2 > _MOST_WORK * max(len(rows), 1):
        return {}
    # Levels of all variables, one after the other, the last of each for rows that have none of its columns: which rows
    # have them, and in which rows their variable is known.
    known = np.ones([len(rows), len(groups)], bool)
    if is_known is not None:
        known = np.stack([is_known[:, list(group)].all(axis=1) for group in groups], axis=1)
    names: list[int] = []
    parts = []
    for number, group in enumerate(groups):
        bits = rows[:, list(group)] * known[:, number, None]
        none = known[:, number] & ~bits.any(axis=1)
        parts += [bits, none[:, None]]
        names += [*group, -1 - number]
    has_level = np.concatenate(parts, axis=1).astype(np.float32)
    together = has_level.T @ has_level
    seen = has_level.T @ known.astype(np.float32)
    # One variable decides the other if all rows of each of its levels have one level of that.
    starts = np.cumsum([0, *(len(group) + 1 for group in groups)])
    is_pure = np.maximum.reduceat(together, starts[:-1], axis=1) == seen
    decides = np.logical_and.reduceat(is_pure, starts[:-1], axis=0)
    varies = np.add.reduceat(np.diagonal(together) > 0, starts[:-1]) > 1
    is_candidate = np.triu((decides | decides.T) & np.outer(varies, varies), 1)
    parts_of = [slice(start, end) for start, end in itertools.pairwise(starts)]
    found = {}
    for first, second in np.argwhere(is_candidate).tolist():
        table = together[parts_of[first], parts_of[second]].astype(np.float64)
        if (logit := _logit(table)) > 0.0:
            found[first, second] = _Pair(_beside(table, names[parts_of[first]], names[parts_of[second]]), logit)
    return found


def _logit(table: NDArray[np.float64]) -> float:
    """Of what two variables decide of each other, by how often their levels occur together; 0 if it may be chance."""
    total = max(float(table.sum()), 1.0)
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / total
    never = float(expected[table == 0.0].sum())
    evidence = -total * math.log1p(-min(never / total, 1.0 - 1e-9)) - math.log(2.0) * (expected > 0.0).sum()
    return 2.0 * math.log1p(never) if evidence > _LEAST_EVIDENCE else 0.0


def _beside(table: NDArray[np.float64], first: Sequence[int], second: Sequence[int]) -> dict[int, set[int]]:
    """By each level that occurs those of the other variable that it occurs with."""
    beside: dict[int, set[int]] = {}
    for a, b in np.argwhere(table > 0.0).tolist():
        beside.setdefault(first[a], set()).add(second[b])
        beside.setdefault(second[b], set()).add(first[a])
    return beside
