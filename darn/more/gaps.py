"""Missing bits of densities whose columns stand in an order: sums over the states of the missing columns that count.

    p(x_known) = sum_x p(x, x_known),      p(x_j = 1 | x_known) = sum_x x_j p(x, x_known) / p(x_known)

Column after column, each state becomes two; where there are more than so many, they are thinned out so that sums stay
unbiased (Fearnhead and Clifford, 2003): with v their weights, and c such that sum_i min(1, v_i / c) is the number that
is wanted, states above c are kept as they are, and others with probability v_i / c, by systematic sampling. No state is
there twice, and those kept with probability m count 1 / m times. The weights v are those of a density q that is quick:
logits are linear in the missing bits, and each value of a column is as probable as the known columns behind it say
where all other missing columns have their most probable values. What is summed is p itself; q says only what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from darn.model.categories import Category, Level

__all__ = ["Gaps", "Links", "States", "blocks", "decision", "log_sigmoid", "states_of", "sum_of_log_sigmoids"]

_FACTORS = {8: 512, 4: 100}  # of a product of numbers from 1 to 2, by the bytes of a number
_LEAST = -700.0  # log of a weight beside the largest, whose exponential is not zero
_MOST_TILT = 20.0  # nats, so that no state that can be is left out for sure

Numbers = NDArray[np.floating]
Changed = Callable[[Numbers], Numbers]
"""Logits of all columns [N, S, n] for states [N, S, T] of each row's missing columns, in the precision of these."""


class Links:
    """Which columns are levels of one category, as the order has them.

    :ivar earlier: 1 where the row's column is an earlier level of the category of the column, [n, n].
    :ivar is_certain: whether a column is the last level of a category that is never missing, [n].
    :ivar always: number of the category that is never missing, from 1, by column; 0 for others, [n].
    """

    def __init__(self, categories: Sequence[Category], levels: dict[int, Level], width: int) -> None:
        # A sparse matrix, for tables have thousands of levels and few of one category.
        pairs = [(k, j) for j, level in levels.items() for k in level.earlier]
        rows, columns = np.array(pairs, np.intp).reshape(-1, 2).T
        self.earlier = scipy.sparse.csr_matrix((np.ones(len(pairs)), (rows, columns)), shape=(width, width))
        self.is_certain = np.zeros(width, bool)
        self.is_certain[[j for j, level in levels.items() if level.is_certain]] = True
        self.always = np.zeros(width, np.intp)
        for number, category in enumerate(categories, start=1):
            self.always[list(category.columns)] = number if category.is_always else 0


@dataclass(frozen=True)
class Gaps:
    """Rows that lack equally many columns.

    :ivar sign: 1 where a known bit is 1, and else -1, [N, n].
    :ivar is_missing: [N, n].
    :ivar columns: that are missing, as the order has them, [N, T].
    :ivar decided: infinite where other known levels of a category say what a bit is, else NaN, [N, n]; None without
        categories.
    :ivar changed: logits by states.
    :ivar links: of categories.
    """

    sign: NDArray[np.float64]
    is_missing: NDArray[np.bool_]
    columns: NDArray[np.intp]
    decided: NDArray[np.float64] | None
    changed: Changed
    links: Links

    def earlier(self) -> NDArray[np.float64]:
        """1 where a missing column u is an earlier level of the category of another one t, [N, T (u), T (t)]."""
        of_all = self._of_columns()
        return np.take_along_axis(of_all, self.columns[:, None], axis=2)

    def is_last(self) -> NDArray[np.bool_]:
        """Whether a column is the last missing one of a category that is never missing, [N, T]: it is 1 where none of
        the others is."""
        number = self.links.always[self.columns]
        is_same_later = np.triu(number[:, :, None] == number[:, None], 1).any(axis=2)
        return (number > 0) & ~is_same_later

    def scored(self, states: Numbers) -> tuple[Numbers, ...]:
        """log p of the known columns [N, S], and of the missing ones [N, S], in each state [N, S, T]; and the logits of
        these [N, S, T]; all in the precision of the states."""
        logits = self.changed(states)
        at = self.columns[:, None]
        a = logits[np.arange(len(at))[:, None, None], np.arange(states.shape[1])[:, None], at]
        signed_missing = (2.0 * states - 1.0) * a
        signed = logits
        signed *= self.sign[:, None]
        # What levels of categories say of others: known ones in all states, missing ones in some.
        if self.decided is not None:
            decided = self.decided[:, None]
            np.copyto(signed, decided, where=~np.isnan(decided))
            of_all = self._of_columns()
            np.copyto(signed, np.inf, where=states @ of_all > 0.0)
            has_earlier = states @ np.take_along_axis(of_all, at, axis=2) > 0.0
            signed_missing = decision(has_earlier, states > 0.0, self.links.is_certain[at], signed_missing)
        np.copyto(signed, np.inf, where=self.is_missing[:, None])
        return sum_of_log_sigmoids(signed), log_sigmoid(signed_missing).sum(axis=2), a

    def _of_columns(self) -> NDArray[np.float64]:
        earlier: NDArray[np.float64] = self.links.earlier[self.columns.reshape(-1)].toarray()
        return earlier.reshape(*self.columns.shape, -1)


@dataclass(frozen=True)
class _Guide:
    """The density q of the missing bits: a_t = start_t + sum_u x_u slopes_ut.

    :ivar start: [N, T].
    :ivar slopes: [N, T (u), T (t)], of u before t.
    :ivar guess: probability that each column is 1 where the others have their most probable values, [N, T].
    """

    start: NDArray[np.float64]
    slopes: NDArray[np.float64]
    guess: NDArray[np.float64]


class States(NamedTuple):
    """What is summed over.

    :ivar values: of each row's missing columns, [N, S, T].
    :ivar log_kept: log of the probability with which each was kept, [N, S]: 0 where that was certain, and infinite
        where there is no state.
    :ivar log_w: log-weights, [N, S], whose exponentials sum to p(known columns).
    :ivar guess: probability that each missing column is 1 by q, which is about that by p, [N, T]; of use where some
        states are not there.
    """

    values: NDArray[np.float64]
    log_kept: NDArray[np.float64]
    log_w: NDArray[np.float64]
    guess: NDArray[np.float64]


def states_of(gaps: Gaps, number: int, u: NDArray[np.float64], is_drawn: bool) -> States:
    """At most so many states of each row's missing columns.

    :param u: uniform numbers, [N, T].
    :param is_drawn: whether there may be more of them.
    """
    N, T = gaps.columns.shape
    earlier = gaps.earlier()
    is_last = gaps.is_last()
    rows = np.arange(N)[:, None]
    guide = _guide(gaps, earlier, is_last) if is_drawn else None
    states = np.zeros([N, 1, T])
    log_q = np.zeros([N, 1])
    log_kept = np.zeros([N, 1])
    for t in range(T):
        # Logits of the column in each state, but for what other levels of its category decide.
        logits = np.zeros(log_q.shape)
        if guide is not None:
            logits = guide.start[:, t, None] + (states[:, :, :t] @ guide.slopes[:, :t, t, None])[:, :, 0]
        has_earlier = (states[:, :, :t] @ earlier[:, :t, t, None])[:, :, 0] > 0.0
        logits = np.where(has_earlier, -np.inf, np.where(is_last[:, t, None], np.inf, logits))
        # Each state becomes two, side by side.
        log_q = (log_q[:, :, None] + log_sigmoid(np.stack([-logits, logits], axis=2))).reshape(N, -1)
        kept, log_m = _thinned(log_q - np.repeat(log_kept, 2, axis=1), number, u[:, t])
        parents = kept // 2
        states = states[rows, parents]
        states[:, :, t] = kept % 2
        log_q = np.where(np.isinf(log_m), -np.inf, log_q[rows, kept])
        log_kept = log_kept[rows, parents] + log_m
    # Which states are kept does not depend on the rows beside a row. The sums are no more exact than draws are.
    log_known, log_missing, _ = gaps.scored(states.astype(np.float32) if is_drawn else states)
    with np.errstate(invalid="ignore"):
        log_w = np.where(np.isinf(log_kept), -np.inf, log_known + log_missing - log_kept)
    return States(states, log_kept, log_w, np.zeros([N, T]) if guide is None else guide.guess)


def _thinned(
    log_v: NDArray[np.float64], number: int, u: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Which of the weights log v [N, M] are kept, [N, S], and the log of the probability of each, [N, S]: infinite in
    places without one, where a row has fewer than others.

    :param number: of those that are kept at most.
    :param u: uniform numbers, [N].
    """
    # States that cannot be are left out first; where all others fit, all are kept.
    can_be = log_v > -np.inf
    counts = can_be.sum(axis=1)
    if log_v.shape[1] <= number and counts.min() == log_v.shape[1]:
        return np.broadcast_to(np.arange(log_v.shape[1]), log_v.shape), np.zeros(log_v.shape)
    share = can_be.astype(np.float64)
    if (is_many := counts > number).any():
        v = np.exp(np.maximum(log_v[is_many] - log_v[is_many].max(axis=1, keepdims=True), _LEAST)) * can_be[is_many]
        # The first A weights are above c = (sum of the others) / (number - A).
        falling = -np.sort(-v, axis=1)
        tails = np.cumsum(falling[:, ::-1], axis=1)[:, ::-1]
        limits = tails[:, :number] / np.arange(number, 0, -1)
        first = (falling[:, :number] <= limits).argmax(axis=1)
        c = np.take_along_axis(limits, first[:, None], axis=1)
        share[is_many] = np.minimum(1.0, v / c)
    # Systematic sampling: a weight is kept where the sum of the shares passes a whole number, less u.
    sums = np.cumsum(share, axis=1)
    sums[is_many] *= number / sums[is_many, -1:]
    passed = np.floor(sums + u[:, None])
    is_kept = passed > 0.0
    is_kept[:, 1:] = passed[:, 1:] > passed[:, :-1]
    # The places that are kept, in their order, filled up for rows that have fewer.
    size = int(is_kept.sum(axis=1).max())
    kept = np.argsort(~is_kept, axis=1, kind="stable")[:, :size]
    rows = np.arange(len(kept))[:, None]
    return kept, np.log(np.where(is_kept[rows, kept], share[rows, kept], np.inf))


def _guide(gaps: Gaps, earlier: NDArray[np.float64], is_last: NDArray[np.bool_]) -> _Guide:
    """q by two passes: around values that can be, and around those that are the most probable by the first."""
    T = gaps.columns.shape[1]
    is_same = (earlier + earlier.transpose(0, 2, 1) + np.eye(T)) > 0.0
    mode = is_last.astype(np.float64)
    for _ in range(2):
        # The mode, and for each column the state in which it alone of its category is 1, or none where the mode has it.
        moved = mode[:, None] * ~is_same + np.eye(T) * (1.0 - mode[:, None])
        log_known, _, a = gaps.scored(np.concatenate([mode[:, None], moved], axis=1))
        # Of each column, what holds where it is 1, and where none of its category is.
        is_one = mode > 0.0
        is_held = is_same & is_one[:, None]
        holder = is_held.argmax(axis=2)
        is_free = ~is_held.any(axis=2)
        of_one = np.where(is_one, log_known[:, :1], log_known[:, 1:])
        of_none = np.where(is_free, log_known[:, :1], np.take_along_axis(log_known[:, 1:], holder, axis=1))
        a_of_one = np.where(is_one[:, :, None], a[:, :1], a[:, 1:])
        a_of_none = np.where(is_free[:, :, None], a[:, :1], np.take_along_axis(a[:, 1:], holder[:, :, None], axis=1))
        # Logits without the column's own category, tilted by the known columns, and what other columns add to them.
        slopes = np.where(is_same, 0.0, a_of_one - a_of_none)
        alone = np.diagonal(a_of_none, axis1=1, axis2=2)
        with np.errstate(invalid="ignore"):
            gains = of_one - np.where(np.isfinite(of_none), of_none, log_known[:, :1])
        tilts, guess = _tilts(np.nan_to_num(gains), alone, earlier, is_last)
        guide = _Guide(alone + tilts - (mode[:, None] @ slopes)[:, 0], slopes, guess)
        mode = _mode(guide, earlier, is_last)
    return guide


def _mode(guide: _Guide, earlier: NDArray[np.float64], is_last: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The more probable value of one column after the other, [N, T]."""
    mode = np.zeros(guide.start.shape)
    for t in range(mode.shape[1]):
        logits = guide.start[:, t] + np.einsum("nu,nu->n", mode[:, :t], guide.slopes[:, :t, t])
        has_earlier = np.einsum("nu,nu->n", mode[:, :t], earlier[:, :t, t]) > 0.0
        mode[:, t] = ~has_earlier & ((logits > 0.0) | is_last[:, t])
    return mode


def _tilts(
    gains: NDArray[np.float64], a: NDArray[np.float64], earlier: NDArray[np.float64], is_last: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What is added to the logit of each column so that values are as probable as the known columns say, [N, T]; and
    the probabilities of these, [N, T].

    Among levels that come one after the other, M_t = log(sigmoid(a_t) e^(gain_t) + sigmoid(-a_t) e^(M_(t+1))) is the
    gain of what is left where none before t is 1, and the tilt of t is gain_t - M_(t+1).

    :param gains: log p of the known columns where a column is 1, less that where none of its category is.
    :param a: logits.
    """
    # From the last column back: M_t needs the M of the next level of its category.
    N, T = gains.shape
    rows = np.arange(N)
    gains = np.clip(gains, -_MOST_TILT, _MOST_TILT)
    next_left = np.zeros([N, T])
    log_one = log_sigmoid(a) + gains
    log_none = log_sigmoid(-a)
    left = np.zeros([N, T])
    for t in reversed(range(T)):
        is_later = earlier[:, t] > 0.0
        of_later = np.where(is_later.any(axis=1), left[rows, is_later.argmax(axis=1)], 0.0)
        next_left[:, t] = np.where(is_last[:, t], gains[:, t], of_later)
        left[:, t] = np.logaddexp(log_one[:, t], log_none[:, t] + next_left[:, t])
    tilts = gains - next_left
    # Of a level: that it is 1 where no earlier one is, times that none of these is.
    log_first = np.where(is_last, 0.0, log_sigmoid(a + tilts))
    log_rest = np.where(is_last, 0.0, log_sigmoid(-a - tilts))
    return tilts, np.exp(log_first + (log_rest[:, None] @ earlier)[:, 0])


def decision(
    has_earlier: NDArray[np.bool_],
    is_one: NDArray[np.bool_],
    is_certain: NDArray[np.bool_] | bool,
    otherwise: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Of levels, infinity where the others of their category say what they are, minus infinity where they are not that.

    :param is_certain: whether one is the last level of a category that is never missing; shapes as NumPy joins them.
    """
    agrees = np.where(has_earlier != is_one, np.inf, -np.inf)
    return np.where(has_earlier | is_certain, agrees, otherwise)


def log_sigmoid(a: Numbers) -> Numbers:
    """-log(1 + e^(-a))."""
    log_p: Numbers = np.minimum(a, 0.0) - np.log1p(np.exp(-np.abs(a)))
    return log_p


def sum_of_log_sigmoids(a: Numbers) -> Numbers:
    """Over the last axis; `a` is overwritten. A logarithm of products, for these are quicker than logarithms."""
    # log sigmoid(a) = min(a, 0) - log(1 + e^-|a|), whose factors are from 1 to 2: some hundreds fit into a number.
    log_p: Numbers = np.minimum(a, 0.0).sum(axis=-1)
    np.abs(a, out=a)
    np.negative(a, out=a)
    np.exp(a, out=a)
    a += 1.0
    for part in blocks(a.shape[-1], _FACTORS[a.itemsize]):
        log_p -= np.log(np.multiply.reduce(a[..., part], axis=-1))
    return log_p


def blocks(number: int, size: int) -> Iterator[slice]:
    """Slices of so many things, at least one each."""
    size = max(1, size)
    for begin in range(0, number, size):
        yield slice(begin, begin + size)
