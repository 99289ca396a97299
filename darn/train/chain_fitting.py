"""Chains of logistic regressions fitted to rows, and the choice among them by validation rows.

    choice = choose_chain(x, valid, seed=0)
    choice.model                               # a Chain, or a Mixture of the best two
    print(choice.table())

What is tried: one order of the columns after another, with an L1 penalty whose strength C is chosen (for all columns,
or for each one where that pays on rows that did not choose); the tree of Chow and Liu (1968), which is a chain whose
columns see one column each; mixtures of independent columns, which are mixtures of chains without weights; and the mean
of the best two. No choice looks at the clock: where a table is large, the rows of a fit are limited by a count of
operations.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from darn.more.chain import Chain
from darn.more.mixture import Density, Member, Mixture, load_density, log_prob, num_parameters, save_density
from darn.more.ordered import Category, as_categories, checked_bits, levels_in_order
from gpflow_deep_base.files import write_text

__all__ = [
    "DensityChoice",
    "DensityTrial",
    "choose_chain",
    "fit_chain",
    "fit_chow_liu",
    "fit_mixture_of_bernoullis",
    "stored_chains",
]

_FIRST = 1.0  # the strength that is tried first
_FACTOR = math.sqrt(10.0)  # between strengths, before the steps are halved
_HALVINGS = 2
_FEW_COLUMNS = 64  # whose conditionals choose the strength
_MOST_STEPS = 12  # a million times weaker or stronger
_MAX_WORK = 5e7  # ones in the rows of a fit times half the columns
_MAX_MIXTURE_WORK = 1e8  # members times rows times columns
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
) -> Chain:
    """The chain whose conditionals are logistic regressions with an L1 penalty.

    The regression of column j minimises |w|_1 - C_j sum_i log p(x_ij | x_i before j) by liblinear (Yuan, Ho and Lin,
    2012), of a level over the rows that have no earlier level. Columns that do not vary there have no weights, and the
    logit of (ones + 1/2) / (rows + 1).

    :param x: zeros and ones, [N, n].
    :param strength: C, one number or one for each column, [n]: the penalty is weaker where it is larger.
    :param order: of the columns; that of x if not given.
    :param categories: columns that are one variable.
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
    fits = _Fits(rows, places, categories)
    return fits.chain({j: fits.column(j, float(strengths[j])) for j in range(n)})


class _Fitted(NamedTuple):
    """A regression.

    :ivar bias: its logit without any column.
    :ivar weights: of the columns before it in the order.
    """

    bias: float
    weights: NDArray[np.float64]


class _Fits:
    """Regressions of single columns on those before them in one order.

    :param rows: training rows, [N, n].
    :param order: of the columns.
    :param categories: columns that are one variable.
    """

    def __init__(self, rows: NDArray[np.uint8], order: NDArray[Any], categories: Sequence[Category]) -> None:
        self.order = order.astype(np.int32)
        self.categories = tuple(categories)
        self._rows = rows
        self._ordered = scipy.sparse.csr_matrix(rows[:, order].astype(np.float64))
        self._places = np.argsort(order)
        self._levels = levels_in_order(self.categories, order)

    def column(self, j: int, strength: float) -> _Fitted:
        """Bias of column j, and weights of the columns before it, [place of j]."""
        place = int(self._places[j])
        y, before = self._at_risk(j, self._rows, self._ordered[:, :place])
        ones = int(y.sum())
        alone = _Fitted(math.log((ones + 0.5) / (len(y) - ones + 0.5)), np.zeros(place))
        if place == 0 or ones in (0, len(y)):
            return alone
        # Where no column has a gradient beyond the penalty, all weights are zero.
        if np.abs(before.T @ (y - ones / len(y))).max() <= 1.0 / strength:
            return alone
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            regression = _regression(strength).fit(before, y)
        return _Fitted(float(regression.intercept_[0]), regression.coef_[0].astype(np.float64))

    def on_parent(self, j: int, parent: int) -> _Fitted:
        """The logit of column j for each value of its parent, from their table with half a row in each cell; without a
        parent, -1 or less, or one of the same category, its share."""
        weights = np.zeros(int(self._places[j]))
        y, seen = self._at_risk(j, self._rows, self._rows[:, max(parent, 0)])
        level = self._levels.get(j)
        if parent < 0 or (level is not None and parent in level.earlier):
            ones = int(y.sum())
            return _Fitted(math.log((ones + 0.5) / (len(y) - ones + 0.5)), weights)
        table = np.bincount(2 * seen.astype(np.intp) + y, minlength=4) + 0.5
        bias = math.log(table[1] / table[0])
        weights[self._places[parent]] = math.log(table[3] / table[2]) - bias
        return _Fitted(bias, weights)

    def losses(self, j: int, fitted: _Fitted, rows: NDArray[np.uint8]) -> NDArray[np.float64]:
        """-log p(x_j | the columns before it) of possible rows, [N], nats."""
        before = np.flatnonzero(fitted.weights)
        a = rows[:, self.order[before]] @ fitted.weights[before] + fitted.bias
        found: NDArray[np.float64] = np.logaddexp(0.0, np.where(rows[:, j] > 0, -a, a))
        if (level := self._levels.get(j)) is not None:
            found[rows[:, level.earlier].any(axis=1)] = 0.0
            if level.is_certain:
                found[:] = 0.0
        return found

    def chain(self, fitted: Mapping[int, _Fitted]) -> Chain:
        """The chain of regressions of all columns."""
        bias = np.array([fitted[j].bias for j in range(len(self.order))])
        columns = [_sorted_column(self.order, fitted[j].weights) for j in range(len(self.order))]
        starts = np.cumsum([0, *(len(rows) for rows, _ in columns)])
        rows, weights = (np.concatenate([column[i] for column in columns]) for i in (0, 1))
        n = len(bias)
        return Chain(self.order, bias, scipy.sparse.csc_matrix((weights, rows, starts), shape=(n, n)), self.categories)

    def _at_risk(self, j: int, rows: NDArray[np.uint8], before: Any) -> tuple[NDArray[np.uint8], Any]:
        """Column j, and those before it, of the rows that have no earlier level of its category."""
        level = self._levels.get(j)
        if level is None or not len(level.earlier):
            return rows[:, j], before
        kept = ~rows[:, level.earlier].any(axis=1)
        return rows[kept, j], before[kept]


def _sorted_column(order: NDArray[np.int32], weights: NDArray[np.float64]) -> tuple[NDArray[np.int32], Any]:
    """Columns of the weights that are not zero, in their order, and these."""
    nonzero = np.flatnonzero(weights)
    nonzero = nonzero[np.argsort(order[nonzero])]
    return order[nonzero], weights[nonzero]


def _regression(strength: float) -> LogisticRegression:
    how: dict[str, Any] = {"C": strength, "solver": "liblinear", "tol": _TOLERANCE, "random_state": 0}
    how["intercept_scaling"] = _INTERCEPT
    # scikit-learn 1.8 and later say L1 by a ratio, earlier ones by a name.
    by_name = LogisticRegression().get_params()["penalty"] == "l2"
    return LogisticRegression(**how, **({"penalty": "l1"} if by_name else {"l1_ratio": 1.0}))


def fit_chow_liu(x: ArrayLike, *, categories: Sequence[Category] = ()) -> Chain:
    """The tree of the largest mutual informations (Chow and Liu, 1968), with half a row added to each cell of a table.

    :param x: zeros and ones, [N, n].
    :param categories: columns that are one variable: their levels have parents among the other columns alone.
    :raises ValueError: for other values.
    """
    rows = checked_bits(x, np.shape(x)[-1] if np.ndim(x) else 1)
    N, n = rows.shape
    X = rows.astype(np.float64)
    # Tables of two columns with half a row in each cell: counts of (1, 1), (1, 0), (0, 1) and (0, 0).
    both = X.T @ X
    ones = np.diag(both)
    tables = np.stack([both, ones[:, None] - both, ones[None] - both, N - ones[:, None] - ones[None] + both]) + 0.5
    p = tables / (N + 2.0)
    first = np.stack([p[0] + p[1], p[0] + p[1], p[2] + p[3], p[2] + p[3]])
    second = np.stack([p[0] + p[2], p[1] + p[3], p[0] + p[2], p[1] + p[3]])
    information = np.maximum((p * np.log(p / (first * second))).sum(axis=0), 0.0)
    tree = minimum_spanning_tree(scipy.sparse.csr_matrix(np.triu(information.max() + 1.0 - information, 1)))
    order, parents = breadth_first_order(tree, 0, directed=False) if n > 1 else (np.array([0]), np.array([-1]))
    fits = _Fits(rows, order, categories)
    return fits.chain({int(j): fits.on_parent(int(j), int(parents[j])) for j in order})


def fit_mixture_of_bernoullis(
    x: ArrayLike, members: int, *, categories: Sequence[Category] = (), seed: int = 0
) -> Mixture:
    """Independent variables given one of some classes, by expectation maximisation from rows drawn by the seed.

    :param x: zeros and ones, [N, n].
    :param members: classes.
    :param categories: columns that are one variable.
    :param seed: of the start.
    :raises ValueError: for other values.
    """
    rows = checked_bits(x, np.shape(x)[-1] if np.ndim(x) else 1)
    N, n = rows.shape
    X = rows.astype(np.float64)
    order = np.arange(n, dtype=np.int32)
    # Whether a bit can be 1: not where an earlier level is, and the last level may be certain.
    is_open = np.ones_like(X)
    for j, level in levels_in_order(categories, order).items():
        is_open[:, j] = 0.0 if level.is_certain else ~rows[:, level.earlier].any(axis=1)
    ones = X * is_open
    overall = (ones.sum(axis=0) + 0.5) / (is_open.sum(axis=0) + 1.0)
    rng = np.random.default_rng([seed, 2])
    means = np.clip(0.5 * overall + 0.5 * X[rng.choice(N, members, replace=members > N)], 0.02, 0.98)
    log_w = np.full(members, -math.log(members))
    last = -math.inf
    for _ in range(_EM_STEPS):
        # Expectation: which class each row is of.
        log_joint = ones @ np.log(means / (1.0 - means)).T + is_open @ np.log1p(-means).T + log_w
        log_p = np.logaddexp.reduce(log_joint, axis=1)
        shares = np.exp(log_joint - log_p[:, None])
        # Maximisation, with one more row of the whole table's means in each class.
        means = (shares.T @ ones + overall) / (shares.T @ is_open + 1.0)
        counts = shares.sum(axis=0)
        log_w = np.log((counts + 1.0) / (N + members))
        value = float(log_p.mean())
        if value - last < _LEAST_GAIN:
            break
        last = value
    empty = scipy.sparse.csc_matrix((n, n))
    logits = np.log(means / (1.0 - means))
    return Mixture(tuple(Chain(order, bias, empty, tuple(categories)) for bias in logits), log_w)


@dataclass(frozen=True)
class DensityTrial:
    """What was tried.

    :ivar name: of the kind and its settings.
    :ivar valid_nats: -log p of the validation rows, nats a row.
    :ivar num_parameters: numbers of it that are not zero.
    """

    name: str
    valid_nats: float
    num_parameters: int


@dataclass(frozen=True)
class DensityChoice:
    """The best of what was tried.

    :ivar model: of it.
    :ivar log_p: log p of the validation rows, [N'], nats.
    :ivar trials: from the best to the worst.
    """

    model: Density
    log_p: NDArray[np.float64]
    trials: tuple[DensityTrial, ...]

    @property
    def valid_nats(self) -> float:
        """-log p of the validation rows, nats a row."""
        return float(-self.log_p.mean())

    def with_rival(self, name: str, model: Member, log_p: NDArray[np.float64]) -> DensityChoice:
        """The choice with one more candidate, and with the mean of it and the best where that is better than both by
        more than the standard error of the difference.

        :param name: of its kind and settings.
        :param model: of the same columns.
        :param log_p: of the same validation rows, [N'], nats.
        """
        ours = _Tried(self.trials[0].name, self.model, self.log_p)
        rival = _Tried(name, model, log_p)
        trials = [*self.trials, rival.trial]
        best = min(ours, rival, key=lambda each: each.nats)
        if (mean := _mean_of(ours, rival)).is_better(best):
            trials.append(mean.trial)
            best = mean
        return DensityChoice(best.model, best.log_p, tuple(sorted(trials, key=lambda trial: trial.valid_nats)))

    def table(self) -> str:
        """The candidates, one a line."""
        lines = [f"{'nats':>9}  {'numbers':>8}  candidate"]
        return "\n".join([*lines, *(f"{t.valid_nats:9.3f}  {t.num_parameters:8d}  {t.name}" for t in self.trials)])


@dataclass(frozen=True)
class _Tried:
    name: str
    model: Density
    log_p: NDArray[np.float64]

    @property
    def nats(self) -> float:
        return float(-self.log_p.mean())

    @property
    def trial(self) -> DensityTrial:
        return DensityTrial(self.name, self.nats, num_parameters(self.model))

    def is_better(self, other: _Tried) -> bool:
        """Whether it is better by more than the standard error of the difference."""
        gain = self.log_p - other.log_p
        return bool(gain.mean() > gain.std() / math.sqrt(len(gain)) and gain.mean() > 0)


def choose_chain(
    x: ArrayLike,
    valid: ArrayLike,
    *,
    seed: int = 0,
    groups: Sequence[Sequence[int]] = (),
    report: Callable[[str], None] = lambda line: None,
    look: Callable[[], None] = lambda: None,
) -> DensityChoice:
    """The best chain, or mixture, by the validation rows.

    :param x: training rows [N, n], zeros and ones.
    :param valid: validation rows [N', n].
    :param seed: of random orders and rows; the same gives the same choice.
    :param groups: columns of each category, which is one variable.
    :param report: gets a line of text for each candidate.
    :param look: is called after each candidate; what it raises ends the choice.
    :raises ValueError: for other values, no rows, or a group that is no category.
    """
    rows = checked_bits(x, np.shape(x)[-1] if np.ndim(x) else 1)
    held_out = checked_bits(valid, rows.shape[1])
    if not len(rows) or not len(held_out):
        raise ValueError(f"there must be training and validation rows, got {len(rows)} and {len(held_out)}.")
    search = _Search(rows, held_out, as_categories(groups, rows, held_out), seed, report, look)
    search.tree()
    search.mixtures()
    search.chains()
    return search.choice()


def stored_chains(path: Path, valid: ArrayLike, make: Callable[[], DensityChoice]) -> DensityChoice:
    """The choice in a file of :func:`darn.save_density` and one of its candidates beside it, as JSON; made and written
    if there is none.

    :param path: of the model; the other file has the suffix .json.
    :param valid: validation rows of the choice, [N', n].
    :param make: makes it.
    :raises ValueError: if the files hold something else.
    """
    table = path.with_suffix(".json")
    if not table.exists():
        choice = make()
        save_density(choice.model, path)
        write_text(table, json.dumps([dataclasses.asdict(trial) for trial in choice.trials], indent=1))
    model = load_density(path)
    try:
        trials = tuple(DensityTrial(**trial) for trial in json.loads(table.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{table} is no table of candidates ({error}); delete it to choose anew.") from error
    return DensityChoice(model, log_prob(model, valid), trials)


class _Search:
    """What was tried, and what is to be tried.

    :param rows: training rows, [N, n].
    :param valid: validation rows, [N', n].
    """

    def __init__(
        self,
        rows: NDArray[np.uint8],
        valid: NDArray[np.uint8],
        categories: Sequence[Category],
        seed: int,
        report: Callable[[str], None],
        look: Callable[[], None],
    ) -> None:
        self._rng = np.random.default_rng([seed, 5])
        # A fit takes about as long as there are ones times columns before them.
        work = int(rows.sum()) * rows.shape[1] / 2
        most = max(1, int(len(rows) * min(1.0, _MAX_WORK / max(work, 1.0))))
        self.rows = rows if most == len(rows) else rows[np.sort(self._rng.choice(len(rows), most, replace=False))]
        if most < len(rows):
            report(f"chains are fitted to {most} of the {len(rows)} training rows, drawn by the seed")
        self.valid = valid
        self.categories = tuple(categories)
        self.n = rows.shape[1]
        self._seed = seed
        self._report = report
        self._look = look
        self.tried: list[_Tried] = []
        self._tree_order = np.arange(self.n)

    def keep(self, name: str, model: Chain | Mixture) -> _Tried:
        """Score a candidate."""
        self.tried.append(_Tried(name, model, model.log_prob(self.valid)))
        self._report(f"{self.tried[-1].nats:9.3f} nats: {name}")
        self._look()
        return self.tried[-1]

    def tree(self) -> None:
        """The tree of Chow and Liu."""
        tree = fit_chow_liu(self.rows, categories=self.categories)
        self._tree_order = tree.order
        self.keep("tree of Chow and Liu", tree)

    def mixtures(self) -> None:
        """Mixtures of independent columns, with four times as many members as long as that is better."""
        last = math.inf
        for members in itertools.accumulate(itertools.repeat(4), lambda number, factor: number * factor, initial=1):
            if members > 1 and members * len(self.rows) * self.n > _MAX_MIXTURE_WORK:
                break
            fitted = fit_mixture_of_bernoullis(self.rows, members, categories=self.categories, seed=self._seed)
            tried = self.keep(f"mixture of {members} products of Bernoullis", fitted)
            if tried.nats >= last:
                break
            last = tried.nats

    def chains(self) -> None:
        """L1 chains: their strength in one order, then other orders with it."""
        means = self.rows.mean(axis=0)
        orders = {
            "rare ones first": np.argsort(means, kind="stable"),
            "as they are": np.arange(self.n),
            "those of the tree": self._tree_order,
            "drawn by the seed": self._rng.permutation(self.n),
        }
        first = next(iter(orders))
        fits = _Fits(self.rows, orders[first], self.categories)
        strength = self._strength(fits)
        self._report(f"strength of the penalty: C = {strength:.3g}")
        fitted, strengths, name = self._strengths(fits, strength)
        self.keep(f"L1 chain, columns {first}, {name}", fits.chain(fitted))
        done = [orders.pop(first)]
        for title, order in orders.items():
            if any(np.array_equal(order, other) for other in done):
                continue
            done.append(order)
            chain = fit_chain(self.rows, strengths, order=order, categories=self.categories)
            self.keep(f"L1 chain, columns {title}, {name}", chain)

    def choice(self) -> DensityChoice:
        """The best, or the mean of the best two where that is better by more than its standard error."""
        self.tried.sort(key=lambda each: each.nats)
        best = self.tried[0]
        if len(self.tried) > 1 and (mean := _mean_of(best, self.tried[1])).is_better(best):
            self._report(f"{mean.nats:9.3f} nats: {mean.name}")
            self.tried.insert(0, mean)
            best = mean
        trials = [each.trial for each in self.tried]
        return DensityChoice(best.model, best.log_p, tuple(trials))

    def _strength(self, fits: _Fits) -> float:
        """C of the least loss of some columns: steps of a factor as long as that is better, then steps half as long."""
        columns = np.sort(self._rng.permutation(self.n)[:_FEW_COLUMNS])
        losses: dict[float, float] = {}

        def loss(exponent: float) -> float:
            if exponent not in losses:
                strength = _FIRST * _FACTOR**exponent
                fitted = {int(j): fits.column(int(j), strength) for j in columns}
                losses[exponent] = sum(float(fits.losses(j, each, self.valid).mean()) for j, each in fitted.items())
                self._look()
            return losses[exponent]

        best = 0.0
        step = 1.0
        for _ in range(1 + _HALVINGS):
            for direction in (-step, step):
                while abs(best + direction) <= _MOST_STEPS and loss(best + direction) < loss(best):
                    best += direction
            step /= 2.0
        return float(_FIRST * _FACTOR**best)

    def _strengths(self, fits: _Fits, strength: float) -> tuple[dict[int, _Fitted], NDArray[np.float64], str]:
        """Regressions of all columns, their strengths, and in words: one for all, or one for each column where that is
        better on validation rows that did not choose it."""
        tried = strength * _FACTOR ** np.array([-1.0, 0.0, 1.0])
        half = self._rng.permutation(len(self.valid)) % 2
        fitted = [{j: fits.column(j, float(C)) for j in range(self.n)} for C in tried]
        losses = np.zeros([len(tried), self.n, 2])
        for number, each in enumerate(fitted):
            for j in range(self.n):
                losses[number, j] = np.bincount(half, fits.losses(j, each[j], self.valid), minlength=2)
        # Each half chooses for the other one.
        crossed = np.take_along_axis(losses[:, :, ::-1], losses.argmin(axis=0)[None], axis=0)
        if crossed.sum() < losses[1].sum():
            places = losses.sum(axis=2).argmin(axis=0)
            chosen = {j: fitted[place][j] for j, place in enumerate(places)}
            return chosen, tried[places], f"C by column from {tried[0]:.3g} to {tried[-1]:.3g}"
        return fitted[1], np.full(self.n, strength), f"C = {strength:.3g}"


def _mean_of(best: _Tried, second: _Tried) -> _Tried:
    """The mixture of two candidates, half of each; the members of mixtures are members of it."""
    members: list[Member] = []
    log_weights: list[float] = []
    for each in (best, second):
        if isinstance(each.model, Mixture):
            members += each.model.members
            log_weights += (each.model.log_weights - math.log(2.0)).tolist()
        else:
            members.append(each.model)
            log_weights.append(-math.log(2.0))
    log_p = np.logaddexp(best.log_p, second.log_p) - math.log(2.0)
    return _Tried(f"half each: {best.name}; {second.name}", Mixture(tuple(members), np.array(log_weights)), log_p)
