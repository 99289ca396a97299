"""Densities of bits whose columns stand in an order, each with a logit that depends on the columns before it.

    log p(x) = sum_j log p(x_j | x of the columns before j),      p(x_j = 1 | ...) = sigmoid(a_j(x of these))

What a chain of logistic regressions (`darn.Chain`) and a masked network (`darn.MaskedNetwork`) share. Columns that are
the levels of one category are one variable: of them at most one is 1, or exactly one. p(level | before) is a product
over the levels in their order,

    p(x_j = 1 | no earlier level is 1, before) = sigmoid(a_j),      p(x_j = 1 | an earlier level is 1) = 0,

and the last level of a category that is never missing is certain if no other one is (continuation ratios; Tutz, 1991).
So probabilities of a category sum to 1, and no sample has two levels.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darn.model.categories import (
    Category,
    Level,
    as_categories,
    categories_header,
    categories_of,
    levels_in_order,
)
from darn.model.config import check_plain
from darn.more.completion import Completed

__all__ = [
    "Category",
    "Level",
    "Ordered",
    "Rows",
    "as_categories",
    "categories_header",
    "categories_of",
    "check_order",
    "checked_bits",
    "levels_in_order",
]

_STATES = 2**17  # rows times states times columns of a block, which then stays near the processor
_NUMBERS = 2**20  # rows times draws times columns of a block
_DRAWS = 250  # of a row at first; then as many again, and so on
_WAYS = 32  # to fill a row, of which one is taken
_FACTORS = 512  # of a product of numbers from 1 to 2


Rows: TypeAlias = slice | NDArray[np.intp]
"""Which rows: all, or some by their numbers."""


class Ordered(abc.ABC):
    """A density of n columns of zeros and ones, drawn one after the other.

    :ivar order: the columns in the order in which they are drawn, [n].
    :ivar categories: columns that are one variable.
    """

    max_states: ClassVar[int] = 4096
    """Of the missing columns of a row that are summed over; draws take longer than so many."""

    order: NDArray[np.int32]
    categories: tuple[Category, ...]

    @property
    def num_columns(self) -> int:
        """n."""
        return len(self.order)

    @property
    @abc.abstractmethod
    def num_parameters(self) -> int:
        """Numbers that are not zero."""

    @abc.abstractmethod
    def logits(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """a_j(x) of all columns, [N, n]; that of a column does not depend on itself and on those behind it.

        :param x: zeros and ones, [N, n].
        """

    @abc.abstractmethod
    def turns(self, rows: NDArray[np.float64]) -> Callable[[int, Rows], NDArray[np.float64]]:
        """A function that is called with columns in the order and the rows in which they are to be filled, and gives
        a_j of these. They are filled between the calls.

        :param rows: zeros and ones, [N, n]; zeros where they are to be filled.
        """

    @abc.abstractmethod
    def by_state(
        self, columns: NDArray[np.intp], states: NDArray[np.float64], linked: Sequence[int]
    ) -> tuple[NDArray[np.intp], Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]]:
        """The columns whose logits depend on some of the columns, these and the linked ones among them, in ascending
        order; and a function that gives their a_j in each state of the columns, [N, S, targets]: of rows [N, n] in
        which the columns are zero, and of the logits of these rows, [N, n].

        :param columns: of which, in ascending order.
        :param states: what they can be, [S, columns].
        :param linked: columns that are wanted, too.
        """

    def log_prob_by_column(self, x: ArrayLike) -> NDArray[np.float64]:
        """log p(x_j | the columns before j), [N, n], nats: the sum over the columns is log p(x).

        Minus infinity in the column that makes a row impossible: a second level of a category, or none of one that is
        never missing.

        :param x: zeros and ones, [N, n].
        :raises ValueError: for another shape or other values.
        """
        return self._by_column(checked_bits(x, self.num_columns))

    def log_prob(self, x: ArrayLike) -> NDArray[np.float64]:
        """log p(x) of each row, [N], nats, exact. Parameters and errors as :meth:`log_prob_by_column`."""
        return self.log_prob_by_column(x).sum(axis=1)

    def sample(self, num: int, seed: int = 0) -> NDArray[np.uint8]:
        """Independent draws of rows, [num, n]; with categories, none of them impossible.

        :param num: of rows.
        :param seed: the same gives the same rows.
        """
        rows = np.zeros([num, self.num_columns])
        u = np.random.default_rng([seed, 0]).uniform(size=rows.shape)
        self._draw(rows, np.ones(rows.shape, bool), u)
        return rows.astype(np.uint8)

    def complete(
        self,
        x: ArrayLike,
        is_missing: ArrayLike,
        *,
        seed: int = 0,
        min_effective: float = 200.0,
        max_samples: int = 32_000,
        refuses: bool = True,
    ) -> Completed:
        """Missing bits given the known ones.

        Exact where the missing columns of a row have at most :attr:`max_states` states together (a category has as many
        as levels that are missing, and one more). Else by draws of the missing columns in their order, each with the
        probability of the known ones as its weight, until their effective number is `min_effective`, or `max_samples`
        are drawn; then the standard error is about sqrt(p (1 - p) / effective).

        :param x: [N, n]; what stands where bits are missing does not matter.
        :param is_missing: booleans [N, n].
        :param seed: of the draws.
        :param min_effective: as above.
        :param max_samples: as above.
        :param refuses: raise an error for known bits that no row has; else log p of these is minus infinity.
        :raises ValueError: for another shape, other values, or known bits that no row has.
        """
        mask = np.asarray(is_missing)
        if mask.dtype != bool or mask.shape != np.shape(x):
            raise ValueError(
                f"is_missing must be booleans of the shape of x, {np.shape(x)}, got {mask.dtype} {mask.shape}."
            )
        rows = checked_bits(np.where(mask, 0, np.asarray(x)), self.num_columns).astype(np.float64)
        # What known levels of a category say of its others.
        mask = self._still_missing(rows, mask)
        log_known = np.zeros(len(rows))
        effective = np.full(len(rows), np.inf)
        a = self.logits(rows)
        decided = self._decided(rows)
        by_column = _log_sigmoid(_signed(rows, a, decided))
        # Rows that lack the same columns have the same states.
        patterns, places = np.unique(mask, axis=0, return_inverse=True)
        places = places.reshape(-1)
        drawn: list[NDArray[np.intp]] = []
        for number, pattern in enumerate(patterns):
            part = np.flatnonzero(places == number)
            columns = np.flatnonzero(pattern)
            if not len(columns):
                log_known[part] = by_column[part].sum(axis=1)
                continue
            states = self._states(columns)
            if states is not None:
                of_known = (a[part], by_column[part], None if decided is None else decided[part])
                rows[part], log_known[part] = self._summed(rows[part], *of_known, columns, states)
                continue
            drawn.append(part)
        # Too many states: draws, with noise of each row's own.
        if drawn:
            part = np.sort(np.concatenate(drawn))
            rngs = [np.random.default_rng([seed, 1, i]) for i in part]
            estimates = self._weighted(rows[part], mask[part], rngs, min_effective, max_samples)
            rows[part], log_known[part], effective[part] = estimates
        if refuses and np.isneginf(log_known).any():
            row = int(np.flatnonzero(np.isneginf(log_known))[0])
            raise ValueError(
                f"the known bits of row {row} are those of no possible row: two levels of one category, or none of one "
                "that is never missing; correct them, or say by the mask that they are missing."
            )
        return Completed(rows, log_known, effective)

    def fill(self, x: ArrayLike, is_missing: ArrayLike, *, seed: int = 0) -> NDArray[np.uint8]:
        """Rows whose missing bits are drawn given the known ones, [N, n]: one of some draws of the missing columns in
        their order, by the probability of the known bits behind them.

        :param x: [N, n]; what stands where bits are missing does not matter.
        :param is_missing: booleans [N, n].
        :param seed: of the draws.
        :raises ValueError: for another shape or other values.
        """
        mask = np.asarray(is_missing)
        rows = checked_bits(np.where(mask, 0, np.asarray(x)), self.num_columns).astype(np.float64)
        lacks = np.flatnonzero(mask.any(axis=1))
        rng = np.random.default_rng([seed, 6])
        for block in _blocks(len(lacks), _NUMBERS // (_WAYS * self.num_columns)):
            part = lacks[block]
            log_w, ways = self._draws(rows[part], mask[part], [rng] * len(part), _WAYS)
            # Where no way fits the known bits, any one is taken.
            log_w[np.isneginf(log_w).all(axis=1)] = 0.0
            places = (log_w + rng.gumbel(size=log_w.shape)).argmax(axis=1)
            rows[part] = ways[np.arange(len(part)), places]
        return rows.astype(np.uint8)

    # Private.

    @functools.cached_property
    def _levels(self) -> dict[int, Level]:
        return levels_in_order(self.categories, self.order)

    def _by_column(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        x = rows.astype(np.float64)
        return _log_sigmoid(_signed(x, self.logits(x), self._decided(x)))

    def _decided(self, x: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Infinite where other levels of a category say what a bit is: minus infinity where it is not that. NaN where
        they leave it open, [N, n]; None without categories."""
        if not self.categories:
            return None
        decided = np.full(x.shape, np.nan)
        for j, level in self._levels.items():
            has_earlier = x[:, level.earlier].any(axis=1)
            decided[:, j] = _decision(has_earlier, x[:, j] > 0, level, decided[:, j])
        return decided

    def _draw(self, rows: NDArray[np.float64], is_missing: NDArray[np.bool_], u: NDArray[np.float64]) -> None:
        """Fill the missing bits of `rows`, which are zeros, column by column."""
        logit = self.turns(rows)
        for j in self.order.tolist():
            places = np.flatnonzero(is_missing[:, j])
            if not len(places):
                continue
            part: Rows = slice(None) if len(places) == len(rows) else places
            # a_j, but for what other levels of the category decide.
            a = logit(j, part)
            if (level := self._levels.get(j)) is not None:
                a = np.where(rows[part][:, level.earlier].any(axis=1), -np.inf, np.inf if level.is_certain else a)
            with np.errstate(over="ignore"):
                rows[part, j] = u[part, j] < 1.0 / (1.0 + np.exp(-a))

    def _still_missing(self, rows: NDArray[np.float64], mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """What is missing without what a category's known levels say: the other levels are 0 beside a known 1, and the
        only missing level is 1 where one must be and all others are 0. These are filled in `rows`."""
        still_missing = mask.copy()
        for columns, is_always in self.categories:
            part = np.ix_(np.arange(len(rows)), np.array(columns))
            is_missing = mask[part]
            has_one = (rows[part] * ~is_missing).any(axis=1)
            still_missing[part] &= ~has_one[:, None]
            if is_always:
                is_implied = ~has_one & (is_missing.sum(axis=1) == 1)
                rows[part] = np.where(is_implied[:, None] & is_missing, 1.0, rows[part])
                still_missing[part] &= ~is_implied[:, None]
        return still_missing

    def _states(self, columns: NDArray[np.intp]) -> NDArray[np.float64] | None:
        """All that the missing columns can be, [S, number of columns]; None if there are too many."""
        # What can be: none or one of the missing levels of a category, 0 or 1 of a column by itself.
        place = {int(column): i for i, column in enumerate(columns)}
        parts: list[NDArray[np.float64]] = []
        sharing: list[list[int]] = []
        for category in self.categories:
            if levels := [place.pop(column) for column in category.columns if column in place]:
                parts.append(np.concatenate([np.zeros([1, len(levels)]), np.eye(len(levels))]))
                sharing.append(levels)
        for i in place.values():
            parts.append(np.array([[0.0], [1.0]]))
            sharing.append([i])
        number = 1
        for part in parts:
            number *= len(part)
            if number > self.max_states:
                return None
        # All combinations: a number in a mixed base, whose digits are the parts' places.
        states = np.zeros([number, len(columns)])
        repeats = number
        for part, where in zip(parts, sharing, strict=True):
            repeats //= len(part)
            states[:, where] = part[np.arange(number) // repeats % len(part)]
        return states

    def _summed(
        self,
        rows: NDArray[np.float64],
        a: NDArray[np.float64],
        by_column: NDArray[np.float64],
        decided: NDArray[np.float64] | None,
        columns: NDArray[np.intp],
        states: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Rows with probabilities in place of the missing bits, and log p(known): sums over all states.

        :param rows: that lack the same columns, where they are zero, [N, n].
        :param a: logits of these, [N, n].
        :param by_column: log p of each column of these, [N, n].
        :param decided: as of :meth:`_decided`.
        :param columns: that are missing.
        :param states: what these can be, [S, columns].
        """
        probabilities = rows.copy()
        log_known = np.zeros(len(rows))
        # Of all other columns log p is the same in each state.
        linked = [j for category in self.categories if {*category.columns} & {*columns} for j in category.columns]
        targets, logits = self.by_state(columns, states, linked)
        fixed = np.delete(by_column, targets, axis=1).sum(axis=1)
        values = np.zeros([len(states), self.num_columns])
        values[:, columns] = states
        for part in _blocks(len(rows), _STATES // (len(states) * len(targets))):
            x = rows[part]
            # Logits of what the bits are in each state: a_j of ones and -a_j of zeros.
            signed = logits(x, a[part])
            sign = 2.0 * x - 1.0
            sign[:, columns] = 1.0
            signed *= sign[:, None, targets]
            signed[:, :, np.searchsorted(targets, columns)] *= 2.0 * states - 1.0
            # Levels of categories, some of which the state decides.
            if decided is not None:
                of_known = decided[part][:, None, targets]
                np.copyto(signed, of_known, where=~np.isnan(of_known))
                for j in linked:
                    level = self._levels[j]
                    has_earlier = x[:, None, level.earlier].any(axis=2) | values[:, level.earlier].any(axis=1)
                    is_one = (x[:, None, j] + values[:, j]) > 0
                    place = int(np.searchsorted(targets, j))
                    signed[:, :, place] = _decision(has_earlier, is_one, level, signed[:, :, place])
            # log p(row, state); the sum over the states is log p(known).
            log_p = _sum_of_log_sigmoids(signed) + fixed[part, None]
            log_known[part] = np.logaddexp.reduce(log_p, axis=1)
            with np.errstate(invalid="ignore"):
                probabilities[part, columns] = np.exp(log_p - log_known[part, None]) @ states
        return probabilities, log_known

    def _weighted(
        self,
        rows: NDArray[np.float64],
        mask: NDArray[np.bool_],
        rngs: Sequence[np.random.Generator],
        least: float,
        most: int,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Rows by draws: probabilities, log p(known), effective numbers of draws. Each row has noise of its own."""
        N, n = rows.shape
        # Of each row: the largest log-weight, and sums of weights relative to it, of their squares, and of w x.
        top = np.full(N, -np.inf)
        sums = np.zeros(N)
        squares = np.zeros(N)
        sums_of_bits = np.zeros([N, n])
        effective = np.zeros(N)
        counts = np.zeros(N)
        open_rows = np.arange(N)
        number = min(_DRAWS, most)
        while len(open_rows):
            for block in _blocks(len(open_rows), _NUMBERS // (number * n)):
                part = open_rows[block]
                # New draws; all sums are brought to the new largest weight.
                log_w, bits = self._draws(rows[part], mask[part], [rngs[i] for i in part], number)
                higher = np.maximum(top[part], log_w.max(axis=1))
                origin = np.where(np.isfinite(higher), higher, 0.0)
                scale = np.exp(top[part] - origin)
                w = np.exp(log_w - origin[:, None])
                top[part] = higher
                sums[part] = sums[part] * scale + w.sum(axis=1)
                squares[part] = squares[part] * scale**2 + np.square(w).sum(axis=1)
                sums_of_bits[part] = sums_of_bits[part] * scale[:, None] + (w[:, None] @ bits)[:, 0]
                counts[part] += number
            # (sum w)^2 / sum w^2; rows with enough of them are done, the others get as many draws again.
            is_possible = open_rows[sums[open_rows] > 0]
            effective[is_possible] = sums[is_possible] ** 2 / squares[is_possible]
            total = int(counts[open_rows[0]])
            open_rows = open_rows[(effective[open_rows] < least) & (total < most)]
            number = min(total, most - total)
        with np.errstate(invalid="ignore", divide="ignore"):
            probabilities = np.where(mask, sums_of_bits / sums[:, None], rows)
            log_known = np.where(sums > 0, top + np.log(sums / counts), -np.inf)
        return probabilities, log_known, effective

    def _draws(
        self,
        rows: NDArray[np.float64],
        mask: NDArray[np.bool_],
        rngs: Sequence[np.random.Generator],
        number: int,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """So many ways to fill each row: log-probabilities of its known bits, [N, S], and all bits, [N, S, n]."""
        N, n = rows.shape
        # Each missing bit of each draw has a uniform number, row by row.
        u = np.zeros([N, number, n])
        for i, rng in enumerate(rngs):
            u[i][:, mask[i]] = rng.random((number, int(mask[i].sum())))
        filled = np.repeat(np.where(mask, 0.0, rows), number, axis=0)
        self._draw(filled, np.repeat(mask, number, axis=0), u.reshape(-1, n))
        # Only known bits count: a missing one has the log-probability 0.
        signed = _signed(filled, self.logits(filled), self._decided(filled)).reshape(N, number, n)
        np.copyto(signed, np.inf, where=mask[:, None])
        return _sum_of_log_sigmoids(signed), filled.reshape(N, number, n)


def _blocks(number: int, size: int) -> Iterator[slice]:
    """Slices of so many things, at least one each."""
    size = max(1, size)
    for begin in range(0, number, size):
        yield slice(begin, begin + size)


def _decision(
    has_earlier: NDArray[np.bool_], is_one: NDArray[np.bool_], level: Level, otherwise: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Of a level, infinity where the others of its category say what it is, minus infinity where it is not that."""
    if level.is_certain:
        return np.where(has_earlier == is_one, -np.inf, np.inf)
    return np.where(has_earlier, np.where(is_one, -np.inf, np.inf), otherwise)


def _signed(x: NDArray[np.float64], a: NDArray[np.float64], decided: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Logits of what the bits are: a_j of ones and -a_j of zeros, [N, n], or what categories say."""
    signed = (2.0 * x - 1.0) * a
    return signed if decided is None else np.where(np.isnan(decided), signed, decided)


def _log_sigmoid(a: NDArray[np.float64]) -> NDArray[np.float64]:
    log_p: NDArray[np.float64] = np.minimum(a, 0.0) - np.log1p(np.exp(-np.abs(a)))
    return log_p


def _sum_of_log_sigmoids(a: NDArray[np.float64]) -> NDArray[np.float64]:
    """Over the last axis; `a` is overwritten. A logarithm of products, for these are quicker than logarithms."""
    log_p: NDArray[np.float64] = np.minimum(a, 0.0).sum(axis=-1)
    np.abs(a, out=a)
    np.negative(a, out=a)
    np.exp(a, out=a)
    a += 1.0
    for part in _blocks(a.shape[-1], _FACTORS):
        log_p -= np.log(np.multiply.reduce(a[..., part], axis=-1))
    return log_p


def checked_bits(x: ArrayLike, width: int) -> NDArray[np.uint8]:
    """Zeros and ones [N, width].

    :raises ValueError: for another shape or other values.
    """
    check_plain(x, "x")
    rows = np.asarray(x)
    if rows.ndim != 2 or rows.shape[1] != width:
        raise ValueError(f"x must be [N, {width}], a column for each of the model, got shape {rows.shape}.")
    if rows.dtype.kind not in "biuf" or not np.all((rows == 0) | (rows == 1)):
        raise ValueError(f"x must be 0 or 1 everywhere, got other values (dtype {rows.dtype}); encode it first.")
    return rows.astype(np.uint8)


def check_order(order: NDArray[Any], width: int) -> None:
    """Refuse what is no order of n columns.

    :raises ValueError: if it has not each column once.
    """
    if not np.array_equal(np.sort(order), np.arange(width)):
        raise ValueError("its order must have each column once")
