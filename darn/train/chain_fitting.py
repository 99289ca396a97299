"""Chains of logistic regressions, trees and mixtures of independent columns fitted to rows.

    fit_chain(x, strength=0.3)                 # an L1 penalty on each regression
    fit_chow_liu(x)                            # a chain whose columns see one column each
    fit_mixture_of_bernoullis(x, members=16)   # a mixture of chains without weights

Rows may have weights: a row of weight 2 counts as two rows. `darn.train.density_choice` chooses among them.

Some variables decide others: a city says in which state it is, and one bit may be the copy of another. A variable is a
category, or a column that is a bit by itself. A decides B where each level of A was seen beside one level of B alone,
so that other pairs of levels never occur. Where E rows would have such pairs, if A and B knew nothing of each other, it
is a priori as probable as not that no row ever will, and the next one has such a pair with a probability of about
1 / E^2 (Laplace's rule of succession). That is a logit of -2 log(E + 1), where a regression with a penalty leaves one
of about -4.
"""

from __future__ import annotations

import functools
import itertools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from darn.more.chain import Chain
from darn.more.mixture import Mixture
from darn.more.ordered import Category, checked_bits, levels_in_order

__all__ = [
    "Clause",
    "Regression",
    "Regressions",
    "clauses_of",
    "decided",
    "filled",
    "fit_chain",
    "fit_chow_liu",
    "fit_mixture_of_bernoullis",
    "hardened",
    "row_weights",
]

_MOST_NUMBERS = 5e7  # rows times levels
_MOST_WORK = 2e10  # that times levels; tables that are larger are not looked at
_LEAST_EVIDENCE = 20.0  # nats, beyond a bit for each pair of levels

Bits = NDArray[np.bool_]
Columns = TypeVar("Columns", NDArray[np.uint8], scipy.sparse.csr_matrix)


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
    # Each clause outweighs what the regression says against it in any row that it decides.
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


_TOLERANCE = 1e-3  # of liblinear
_INTERCEPT = 10.0  # liblinear penalises the intercept, divided by this
_EM_STEPS = 100
_LEAST_GAIN = 1e-4  # nats a row, of a step of EM


def fit_chain(
    x: ArrayLike,
    strength: ArrayLike = 0.3,
    *,
    order: ArrayLike | None = None,
    categories: Sequence[Category] = (),
    weights: ArrayLike | None = None,
    is_known: NDArray[np.bool_] | None = None,
) -> Chain:
    """The chain whose conditionals are logistic regressions with an L1 penalty.

    The regression of column j minimises |w|_1 - C_j sum_i log p(x_ij | x_i before j) by liblinear (Yuan, Ho and Lin,
    2012), of a level over the rows that have no earlier level. Columns that do not vary there have no weights, and the
    logit of (ones + 1/2) / (rows + 1). Where earlier columns decide a column, as a city decides the state, see
    `darn.train.chain_fitting`, it has the logit that these say, and the regression is over the other rows.

    :param x: zeros and ones, [N, n].
    :param strength: C, one number or one for each column, [n]: the penalty is weaker where it is larger.
    :param order: of the columns; that of x if not given.
    :param categories: columns that are one variable.
    :param weights: of the rows, [N]; 1 if not given.
    :param is_known: which values tell what decides what, [N, n]; all if not given.
    :raises ValueError: for other values, strengths that are not positive, or an order that has not each column once.
    """
    rows = checked_bits(x, np.shape(x)[-1] if np.ndim(x) else 1)
    n = rows.shape[1]
    places = np.arange(n) if order is None else np.asarray(order)
    if not len(rows) or not np.array_equal(np.sort(places), np.arange(n)):
        raise ValueError(f"x must have rows, and order each of its {n} columns once, got {rows.shape} and {order!r}.")
    strengths = np.asarray(strength)
    if strengths.shape not in ((), (n,)) or strengths.dtype.kind not in "iuf" or not (strengths > 0).all():
        raise ValueError(f"strength must be positive, one number or one for each of {n} columns, got {strength!r}.")
    fits = Regressions(rows, places, categories, weights, is_known)
    return fits.chain({j: fits.column(j, float(C)) for j, C in enumerate(np.broadcast_to(strengths, [n]))})


class Regression(NamedTuple):
    """A regression.

    :ivar bias: its logit without any column.
    :ivar weights: of the columns before it in the order.
    """

    bias: float
    weights: NDArray[np.float64]


class Regressions:
    """Regressions of single columns on those before them in one order.

    :param rows: training rows, [N, n].
    :param order: of the columns.
    :param categories: columns that are one variable.
    :param weights: of the rows, [N]; 1 if not given.
    :param is_known: which values tell what decides what, [N, n]; all if not given.
    """

    def __init__(
        self,
        rows: NDArray[np.uint8],
        order: np.ndarray,
        categories: Sequence[Category] = (),
        weights: ArrayLike | None = None,
        is_known: NDArray[np.bool_] | None = None,
    ) -> None:
        self._weights = row_weights(weights, len(rows))
        self.order = order.astype(np.int32)
        self.categories = tuple(categories)
        self._rows = rows
        self._ordered = scipy.sparse.csr_matrix(rows[:, order].astype(np.float64))
        self._places = np.argsort(order)
        self._levels = levels_in_order(self.categories, order)
        self._known = is_known

    @functools.cached_property
    def _clauses(self) -> dict[int, list[Clause]]:
        is_counted = self._weights > 0.0
        known = None if self._known is None else self._known[is_counted]
        return clauses_of(self._rows[is_counted], self.order, self.categories, known)

    def column(self, j: int, strength: float) -> Regression:
        """Bias of column j, and weights of the columns before it, [place of j]."""
        y, before, weights = self._at_risk(j, self._ordered[:, : int(self._places[j])])
        if not (clauses := self._clauses.get(j)):
            return _fitted(y, before, weights, strength)
        # The regression is over rows in which earlier columns decide nothing; what they decide is certain, but for the
        # rule of succession.
        _, rows, _ = self._at_risk(j, self._rows)
        is_open = ~decided(clauses, rows)
        fitted = _fitted(y[is_open], before[is_open], weights[is_open], strength)
        bias, added = hardened(clauses, rows, before @ fitted.weights + fitted.bias)
        fitted.weights[self._places[[*added]]] += [*added.values()]
        return fitted._replace(bias=fitted.bias + bias)

    def on_parent(self, j: int, parent: int) -> Regression:
        """The logit of column j for each value of its parent, from their table with half a row in each cell; without a
        parent, -1 or less, or one of the same category, its share."""
        weights = np.zeros(int(self._places[j]))
        y, parent_bits, row_weights = self._at_risk(j, self._rows[:, max(parent, 0)])
        level = self._levels.get(j)
        if parent < 0 or (level is not None and parent in level.earlier):
            ones = float(row_weights @ y)
            return Regression(math.log((ones + 0.5) / (row_weights.sum() - ones + 0.5)), weights)
        # The table of column and parent.
        table = np.bincount(2 * parent_bits.astype(np.intp) + y, row_weights, minlength=4) + 0.5
        bias = math.log(table[1] / table[0])
        weights[self._places[parent]] = math.log(table[3] / table[2]) - bias
        return Regression(bias, weights)

    def losses(self, j: int, fitted: Regression, rows: NDArray[np.uint8]) -> NDArray[np.float64]:
        """-log p(x_j | the columns before it) of possible rows, [N], nats."""
        # The logit of each row, but for levels that an earlier one rules out or that are certain.
        before = np.flatnonzero(fitted.weights)
        a = rows[:, self.order[before]] @ fitted.weights[before] + fitted.bias
        losses: NDArray[np.float64] = np.logaddexp(0.0, np.where(rows[:, j] > 0, -a, a))
        if (level := self._levels.get(j)) is not None:
            losses[rows[:, level.earlier].any(axis=1)] = 0.0
            if level.is_certain:
                losses[:] = 0.0
        return losses

    def chain(self, fitted: Mapping[int, Regression]) -> Chain:
        """The chain of regressions of all columns."""
        # Biases by column, and the sparse matrix column by column.
        bias = np.array([fitted[j].bias for j in range(len(self.order))])
        columns = [_sorted_column(self.order, fitted[j].weights) for j in range(len(self.order))]
        starts = np.cumsum([0, *(len(rows) for rows, _ in columns)])
        rows, weights = (np.concatenate([column[i] for column in columns]) for i in (0, 1))
        n = len(bias)
        return Chain(self.order, bias, scipy.sparse.csc_matrix((weights, rows, starts), shape=(n, n)), self.categories)

    def _at_risk(self, j: int, before: Columns) -> tuple[NDArray[np.uint8], Columns, NDArray[np.float64]]:
        """Column j, those before it, and weights of the rows that have no earlier level of its category."""
        level = self._levels.get(j)
        if level is None or not len(level.earlier):
            return self._rows[:, j], before, self._weights
        at_risk = ~self._rows[:, level.earlier].any(axis=1)
        return self._rows[at_risk, j], before[at_risk], self._weights[at_risk]


def _fitted(
    y: NDArray[np.uint8], before: scipy.sparse.csr_matrix, weights: NDArray[np.float64], strength: float
) -> Regression:
    """The L1 regression of a column on those before it, over rows with weights."""
    # A column by itself, with half a row of each value.
    place = before.shape[1]
    ones = float(weights @ y)
    total = float(weights.sum())
    alone = Regression(math.log((ones + 0.5) / (total - ones + 0.5)), np.zeros(place))
    if place == 0 or not 0.0 < ones < total:
        return alone
    # Where no column has a gradient beyond the penalty, all weights are zero.
    if np.abs(before.T @ (weights * (y - ones / total))).max() <= 1.0 / strength:
        return alone
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        regression = _regression(strength).fit(before, y, sample_weight=weights)
    return Regression(float(regression.intercept_[0]), regression.coef_[0].astype(np.float64))


def _sorted_column(
    order: NDArray[np.int32], weights: NDArray[np.float64]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Columns of the weights that are not zero, in their order, and these."""
    nonzero = np.flatnonzero(weights)
    nonzero = nonzero[np.argsort(order[nonzero])]
    return order[nonzero], weights[nonzero]


def _regression(strength: float) -> LogisticRegression:
    # scikit-learn 1.8 and later say L1 by a ratio, earlier ones by a name.
    by_name = LogisticRegression().get_params()["penalty"] == "l2"
    return LogisticRegression(
        C=strength,
        solver="liblinear",
        tol=_TOLERANCE,
        random_state=0,
        intercept_scaling=_INTERCEPT,
        **({"penalty": "l1"} if by_name else {"l1_ratio": 1.0}),
    )


def fit_chow_liu(x: ArrayLike, *, categories: Sequence[Category] = (), weights: ArrayLike | None = None) -> Chain:
    """The tree of the largest mutual informations (Chow and Liu, 1968), with half a row added to each cell of a table.

    :param x: zeros and ones, [N, n].
    :param categories: columns that are one variable: their levels have parents among the other columns alone.
    :param weights: of the rows, [N]; 1 if not given.
    :raises ValueError: for other values.
    """
    rows = checked_bits(x, np.shape(x)[-1] if np.ndim(x) else 1)
    n = rows.shape[1]
    counted = row_weights(weights, len(rows))
    N = float(counted.sum())
    X = rows.astype(np.float64)
    # Tables of two columns with half a row in each cell: counts of (1, 1), (1, 0), (0, 1) and (0, 0).
    both = (X * counted[:, None]).T @ X
    ones = np.diag(both)
    p = np.stack([both, ones[:, None] - both, ones[None] - both, N - ones[:, None] - ones[None] + both])
    p += 0.5
    p /= N + 2.0
    # Mutual information of each pair of columns, a cell at a time: wide tables have many pairs.
    margins = itertools.product((p[0] + p[1], p[2] + p[3]), (p[0] + p[2], p[1] + p[3]))
    terms = (cell * np.log(cell / (first * second)) for cell, (first, second) in zip(p, margins, strict=True))
    information = np.maximum(sum(terms), 0.0)
    # The tree whose edges have the largest sum: a spanning tree of the least of what these lack.
    tree = minimum_spanning_tree(scipy.sparse.csr_matrix(np.triu(information.max() + 1.0 - information, 1)))
    order, parents = breadth_first_order(tree, 0, directed=False) if n > 1 else (np.array([0]), np.array([-1]))
    fits = Regressions(rows, order, categories, weights)
    return fits.chain({int(j): fits.on_parent(int(j), int(parents[j])) for j in order})


def fit_mixture_of_bernoullis(
    x: ArrayLike,
    members: int,
    *,
    categories: Sequence[Category] = (),
    weights: ArrayLike | None = None,
    seed: int = 0,
) -> Mixture:
    """Independent variables given one of some classes, by expectation maximisation from rows drawn by the seed.

    :param x: zeros and ones, [N, n].
    :param members: classes.
    :param categories: columns that are one variable.
    :param weights: of the rows, [N]; 1 if not given.
    :param seed: of the start.
    :raises ValueError: for other values.
    """
    rows = checked_bits(x, np.shape(x)[-1] if np.ndim(x) else 1)
    N, n = rows.shape
    if N < 1 or members < 1:
        raise ValueError(f"there must be rows and members, got {N} and {members}.")
    counted = row_weights(weights, N)
    # Products of matrices of single precision are twice as fast, and EM needs no more.
    ones = rows.astype(np.float32)
    order = np.arange(n, dtype=np.int32)
    levels = levels_in_order(categories, order)
    # Whether a bit can be 1: not where an earlier level is, and the last level may be certain; None: everywhere.
    is_open = np.ones_like(ones) if levels else None
    if is_open is not None:
        for j, level in levels.items():
            is_open[:, j] = 0.0 if level.is_certain else ~rows[:, level.earlier].any(axis=1)
        ones *= is_open
    total = float(counted.sum()) if is_open is None else counted @ is_open
    overall = (counted @ ones + 0.5) / (total + 1.0)
    # Classes begin between the whole table's means and rows drawn by the seed.
    rng = np.random.default_rng([seed, 2])
    means = np.clip(0.5 * overall + 0.5 * rows[rng.choice(N, members, replace=members > N)], 0.02, 0.98)
    log_w = np.full(members, -math.log(members))
    last = -math.inf
    for _ in range(_EM_STEPS):
        # Expectation: which class each row is of.
        log_joint = ones @ np.log(means / (1.0 - means)).T.astype(np.float32) + log_w
        none = np.log1p(-means)
        log_joint += none.sum(axis=1) if is_open is None else is_open @ none.T.astype(np.float32)
        log_p = np.logaddexp.reduce(log_joint, axis=1)
        shares = np.exp(log_joint - log_p[:, None]) * counted[:, None]
        # Maximisation, with one more row of the whole table's means in each class.
        counts = shares.sum(axis=0)
        weighed = shares.T.astype(np.float32)
        open_rows = counts[:, None] if is_open is None else weighed @ is_open
        # Sums of single precision may be of more rows than there are.
        means = (np.minimum(weighed @ ones, open_rows) + overall) / (open_rows + 1.0)
        log_w = np.log((counts + 1.0) / (counts.sum() + members))
        value = float(counted @ log_p / counted.sum())
        if value - last < _LEAST_GAIN:
            break
        last = value
    empty = scipy.sparse.csc_matrix((n, n))
    logits = np.log(means / (1.0 - means))
    return Mixture(tuple(Chain(order, bias, empty, tuple(categories)) for bias in logits), log_w)


def row_weights(weights: ArrayLike | None, number: int) -> NDArray[np.float64]:
    """Weights of rows, [N]; ones if not given.

    :raises ValueError: if they are not one finite number each, negative, or all zero.
    """
    if weights is None:
        return np.ones(number)
    numbers = np.asarray(weights, np.float64)
    if (
        numbers.shape != (number,)
        or not np.isfinite(numbers).all()
        or numbers.min(initial=0.0) < 0
        or not numbers.any()
    ):
        raise ValueError(f"weights must be {number} numbers, one a row, none negative and not all 0, got {weights!r}.")
    return numbers


_ROUNDS = 3
_STRENGTH = 0.3  # of the chain's penalty, of all rows together


def filled(
    x: NDArray[np.uint8],
    is_missing: NDArray[np.bool_],
    *,
    groups: Sequence[Sequence[int]] = (),
    weights: ArrayLike | None = None,
    seed: int = 0,
) -> NDArray[np.uint8]:
    """The rows with their missing bits drawn given the known ones: at first from the frequencies of the known bits,
    then three times from an L1 chain that was fitted to the rows as they were filled last (stochastic EM; Celeux and
    Diebolt, 1985).

    :param x: [N, n]; what stands where bits are missing does not matter.
    :param is_missing: booleans [N, n].
    :param groups: columns of each category.
    :param weights: of the rows, [N]; 1 if not given.
    :param seed: of the draws.
    :raises ValueError: if the known bits of a row have two levels of a category.
    """
    is_known = ~is_missing
    rows = np.where(is_missing, 0, x).astype(np.uint8)
    counted = row_weights(weights, len(rows))
    categories = tuple(_category(group, rows, is_known) for group in groups)
    # Columns that do not depend on one another, but for levels of a category.
    order = np.arange(rows.shape[1], dtype=np.int32)
    is_open = is_known.astype(np.float64) * counted[:, None]
    for j, level in levels_in_order(categories, order).items():
        is_open[:, j] *= ~rows[:, level.earlier].any(axis=1) & is_known[:, level.earlier].all(axis=1)
    ones = (rows * is_open).sum(axis=0)
    bias = np.log((ones + 0.5) / (is_open.sum(axis=0) - ones + 0.5))
    chain = Chain(order, bias, scipy.sparse.csc_matrix((len(order), len(order))), categories)
    # Stochastic EM: draw the missing bits, then fit the chain to what is filled.
    for number in range(_ROUNDS):
        rows = chain.fill(rows, is_missing, seed=seed + number)
        chain = fit_chain(rows, _STRENGTH, categories=categories, weights=weights, is_known=is_known)
    return chain.fill(rows, is_missing, seed=seed + _ROUNDS)


def _category(group: Sequence[int], rows: NDArray[np.uint8], known: NDArray[np.bool_]) -> Category:
    """The columns as one category, which is never missing if all rows whose levels are all known have one."""
    columns = [int(column) for column in group]
    counts = rows[:, columns].sum(axis=1)
    if counts.max(initial=0) > 1:
        row = int(counts.argmax())
        raise ValueError(
            f"the columns {tuple(columns)} must be one category, got {int(counts[row])} ones in row {row}."
        )
    is_whole = known[:, columns].all(axis=1)
    return Category(tuple(columns), bool(is_whole.any() and counts[is_whole].min() == 1))
