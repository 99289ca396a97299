"""Chains of logistic regressions, trees and mixtures of independent columns fitted to rows.

    fit_chain(x, strength=0.3)                 # an L1 penalty on each regression
    fit_chow_liu(x)                            # a chain whose columns see one column each
    fit_mixture_of_bernoullis(x, members=16)   # a mixture of chains without weights

Rows may have weights: a row of weight 2 counts as two rows. `darn.train.density_choice` chooses among them.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from darn.more.chain import Chain
from darn.more.mixture import Mixture
from darn.more.ordered import Category, checked_bits, levels_in_order
from darn.train.dependencies import Clause, clauses_of, decided, hardened

__all__ = [
    "Regression",
    "Regressions",
    "filled",
    "fit_chain",
    "fit_chow_liu",
    "fit_mixture_of_bernoullis",
    "row_weights",
]

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
    `darn.train.dependencies`, it has the logit that these say, and the regression is over the other rows.

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
    strengths = np.broadcast_to(np.asarray(strength, np.float64), [n])
    if not (strengths > 0).all():
        raise ValueError(f"strength must be positive, got {strength!r}.")
    fits = Regressions(rows, places, categories, weights, is_known)
    return fits.chain({j: fits.column(j, float(strengths[j])) for j in range(n)})


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

    def _at_risk(self, j: int, before: Any) -> tuple[NDArray[np.uint8], Any, NDArray[np.float64]]:
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


def _sorted_column(order: NDArray[np.int32], weights: NDArray[np.float64]) -> tuple[NDArray[np.int32], Any]:
    """Columns of the weights that are not zero, in their order, and these."""
    nonzero = np.flatnonzero(weights)
    nonzero = nonzero[np.argsort(order[nonzero])]
    return order[nonzero], weights[nonzero]


def _regression(strength: float) -> LogisticRegression:
    settings: dict[str, Any] = {"C": strength, "solver": "liblinear", "tol": _TOLERANCE, "random_state": 0}
    settings["intercept_scaling"] = _INTERCEPT
    # scikit-learn 1.8 and later say L1 by a ratio, earlier ones by a name.
    by_name = LogisticRegression().get_params()["penalty"] == "l2"
    return LogisticRegression(**settings, **({"penalty": "l1"} if by_name else {"l1_ratio": 1.0}))


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
    tables = np.stack([both, ones[:, None] - both, ones[None] - both, N - ones[:, None] - ones[None] + both]) + 0.5
    p = tables / (N + 2.0)
    # Mutual information of each pair of columns.
    first = np.stack([p[0] + p[1], p[0] + p[1], p[2] + p[3], p[2] + p[3]])
    second = np.stack([p[0] + p[2], p[1] + p[3], p[0] + p[2], p[1] + p[3]])
    information = np.maximum((p * np.log(p / (first * second))).sum(axis=0), 0.0)
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
