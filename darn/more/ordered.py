"""Densities of bits whose columns stand in an order, each with a logit that depends on the columns before it.

    log p(x) = sum_j log p(x_j | x of the columns before j),      p(x_j = 1 | ...) = sigmoid(a_j(x of these))

What a chain of logistic regressions (`darn.Chain`) and a masked network (`darn.MaskedNetwork`) share. Columns that are
the levels of one category are one variable by continuation ratios, see `darn.model.categories`: their probabilities sum
to 1, and no sample has two levels.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable, Iterator
from typing import ClassVar

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
from darn.more.completion import Completed, check_draws, checked_mask
from darn.more.gaps import Changed, Gaps, Links, States, blocks, decision, log_sigmoid, states_of

__all__ = [
    "Category",
    "Level",
    "Ordered",
    "as_categories",
    "categories_header",
    "categories_of",
    "check_order",
    "checked_bits",
    "levels_in_order",
]

_NUMBERS = 2**20  # rows times states times columns of a block
_FIRST = 64  # states of a row; then twice as many, and so on
_WAYS = 32  # to fill a row, of which one is taken


class Ordered(abc.ABC):
    """A density of n columns of zeros and ones, drawn one after the other.

    :ivar order: the columns in the order in which they are drawn, [n].
    :ivar categories: columns that are one variable.
    """

    max_states: ClassVar[int] = 128
    """Of the missing columns of a row that are all summed over."""

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
    def turns(self, rows: NDArray[np.float64]) -> Callable[[int], NDArray[np.float64]]:
        """A function that is called with one column after the other, as the order has them, and gives a_j of all rows.
        The columns are filled between the calls.

        :param rows: zeros, [N, n].
        """

    @abc.abstractmethod
    def changed(self, rows: NDArray[np.float64], columns: NDArray[np.intp]) -> Changed:
        """A function that gives a_j of all columns, [N, S, n], for states [N, S, T] of some columns of each row.

        :param rows: zeros and ones, [N, n]; zeros in these columns.
        :param columns: their numbers, [N, T].
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
        logit = self.turns(rows)
        for j in self.order.tolist():
            # a_j, but for what other levels of the category decide.
            a = logit(j)
            if (level := self._levels.get(j)) is not None:
                a = np.where(rows[:, level.earlier].any(axis=1), -np.inf, np.inf if level.is_certain else a)
            with np.errstate(over="ignore"):
                rows[:, j] = u[:, j] < 1.0 / (1.0 + np.exp(-a))
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
        as levels that are missing, and one more). Else the sum is over 64 states, of which the most probable ones are
        there for sure and others by chance, see `darn.more.gaps`, and over twice as many again and again until their
        effective number is `min_effective`, or there are `max_samples`; then the standard error is about
        sqrt(p (1 - p) / effective).

        :param x: [N, n]; what stands where bits are missing does not matter.
        :param is_missing: booleans [N, n].
        :param seed: of the draws.
        :param min_effective: as above.
        :param max_samples: as above.
        :param refuses: raise an error for known bits that no row has; else log p of these is minus infinity.
        :raises ValueError: for another shape, other values, or known bits that no row has.
        """
        check_draws(min_effective, max_samples)
        rows, mask = self._known(x, is_missing)
        log_known = np.zeros(len(rows))
        effective = np.full(len(rows), np.inf)
        is_whole = ~mask.any(axis=1)
        log_known[is_whole] = self._by_column(rows[is_whole]).sum(axis=1)
        # Sums over states, of twice as many again and again where some of them are drawn and they do not suffice.
        probabilities = rows.copy()
        is_open = ~is_whole
        number = min(_FIRST, max_samples)
        while is_open.any():
            for part, columns, states in self._states(rows, mask & is_open[:, None], number, seed):
                log_known[part] = np.logaddexp.reduce(states.log_w, axis=1)
                # The effective number is that of states that may have been left out; others are certain.
                w = np.exp(states.log_w - np.where(np.isfinite(log_known[part]), log_known[part], 0.0)[:, None])
                squares = np.square(w * (states.log_kept < 0.0)).sum(axis=1)
                infinite = np.full(len(part), np.inf)
                effective[part] = np.divide(w.sum(axis=1) ** 2, squares, out=infinite, where=squares > 0.0)
                # With one more draw, of the guess: no value that can be has the probability 0.
                more = 1.0 / (1.0 + effective[part, None])
                mean = (w[:, None] @ states.values)[:, 0]
                probabilities[part[:, None], columns] = (1.0 - more) * mean + more * states.guess
            is_open = (effective < min_effective) & (number < max_samples)
            number = min(2 * number, max_samples)
        # Sums of no state that can be: known levels that exclude each other.
        if refuses and np.isneginf(log_known).any():
            row = int(np.flatnonzero(np.isneginf(log_known))[0])
            raise ValueError(
                f"the known bits of row {row} are those of no possible row: two levels of one category, or none of one "
                "that is never missing; correct them, or say by the mask that they are missing."
            )
        return Completed(probabilities, log_known, effective)

    def fill(self, x: ArrayLike, is_missing: ArrayLike, *, seed: int = 0) -> NDArray[np.uint8]:
        """Rows whose missing bits are drawn given the known ones, [N, n]: one of some states of them, as
        :meth:`complete` has them, by its probability.

        :param x: [N, n]; what stands where bits are missing does not matter.
        :param is_missing: booleans [N, n].
        :param seed: of the draws.
        :raises ValueError: for another shape or other values.
        """
        rows, mask = self._known(x, is_missing)
        rng = np.random.default_rng([seed, 6])
        filled = rows.copy()
        for part, columns, states in self._states(rows, mask, _WAYS, seed):
            # Where no state fits the known bits, any one is taken.
            is_none = np.isneginf(states.log_w).all(axis=1, keepdims=True)
            log_w = np.where(is_none & np.isfinite(states.log_kept), 0.0, states.log_w)
            # The largest of log w with Gumbel noise is a draw with the probabilities w / sum w.
            places = (log_w + rng.gumbel(size=log_w.shape)).argmax(axis=1)
            filled[part[:, None], columns] = states.values[np.arange(len(part)), places]
        return filled.astype(np.uint8)

    # Private.

    @functools.cached_property
    def _levels(self) -> dict[int, Level]:
        return levels_in_order(self.categories, self.order)

    def _by_column(self, rows: np.ndarray) -> NDArray[np.float64]:
        x = rows.astype(np.float64)
        return log_sigmoid(_signed(x, self.logits(x), self._decided(x)))

    def _decided(self, x: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Infinite where other levels of a category say what a bit is: minus infinity where it is not that. NaN where
        they leave it open, [N, n]; None without categories."""
        if not self.categories:
            return None
        # Certain are levels behind one that is 1, and the last one of a category that is never missing.
        decided = np.full(x.shape, np.nan)
        for j, level in self._levels.items():
            has_earlier = x[:, level.earlier].any(axis=1)
            decided[:, j] = decision(has_earlier, x[:, j] > 0, level.is_certain, decided[:, j])
        return decided

    def _known(self, x: ArrayLike, is_missing: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Rows with zeros where bits are missing, and the mask, without what a category's known levels say: the other
        levels are 0 beside a known 1, and the only missing level is 1 where one must be and all others are 0."""
        mask = checked_mask(x, is_missing)
        rows = checked_bits(np.where(mask, 0, np.asarray(x)), self.num_columns).astype(np.float64)
        # Of each category, rows in which its known levels leave no choice.
        still_missing = mask.copy()
        for columns, is_always in self.categories:
            part = np.ix_(np.arange(len(rows)), np.array(columns))
            is_absent = mask[part]
            has_one = (rows[part] * ~is_absent).any(axis=1)
            still_missing[part] &= ~has_one[:, None]
            if is_always:
                is_implied = ~has_one & (is_absent.sum(axis=1) == 1)
                rows[part] = np.where(is_implied[:, None] & is_absent, 1.0, rows[part])
                still_missing[part] &= ~is_implied[:, None]
        return rows, still_missing

    def _states(
        self, rows: NDArray[np.float64], mask: NDArray[np.bool_], number: int, seed: int
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp], States]]:
        """Of the rows that lack something, some after the other: their numbers [N'], the missing columns [N', T], and
        states of these.

        :param rows: zeros where bits are missing, [N, n].
        :param mask: where they are, [N, n].
        :param number: of states at most, where there are more than :attr:`max_states`.
        """
        # Each row has noise of its own. Missing columns as the order has them.
        noise = np.random.default_rng([seed, 1]).random(rows.shape)
        num_missing = mask.sum(axis=1)
        place = np.where(mask, np.argsort(self.order), self.num_columns)
        columns = np.argsort(place, axis=1, kind="stable")[:, : num_missing.max(initial=0)]
        # How many states there are.
        log_number = num_missing * np.log(2.0)
        for category in self.categories:
            levels = mask[:, category.columns].sum(axis=1)
            log_number += np.log1p(levels) - levels * np.log(2.0)
        most = max(number, self.max_states)
        is_drawn = log_number > np.log(most + 0.5)
        # Rows that lack as many columns, apart by whether all of their states are looked at.
        for T, some_drawn in sorted({*zip(num_missing.tolist(), is_drawn.tolist(), strict=True)}):
            alike = np.flatnonzero((num_missing == T) & (is_drawn == some_drawn))
            size = number if some_drawn else math.ceil(math.exp(log_number[alike].max()))
            for block in blocks(len(alike) if T else 0, _NUMBERS // (max(size, T) * (self._width + T))):
                part = alike[block]
                missing = columns[part, :T]
                changed = self.changed(rows[part], missing)
                decided = self._decided(rows[part])
                gaps = Gaps(2.0 * rows[part] - 1.0, mask[part], missing, decided, changed, self._links)
                noise_of_part = noise[part[:, None], missing]
                yield part, missing, states_of(gaps, number if some_drawn else most, noise_of_part, some_drawn)

    @property
    def _width(self) -> int:
        """Numbers that a state takes."""
        return self.num_columns

    @functools.cached_property
    def _links(self) -> Links:
        return Links(self.categories, self._levels, self.num_columns)


def _signed(x: NDArray[np.float64], a: NDArray[np.float64], decided: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Logits of what the bits are: a_j of ones and -a_j of zeros, [N, n], or what categories say."""
    signed = (2.0 * x - 1.0) * a
    return signed if decided is None else np.where(np.isnan(decided), signed, decided)


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


def check_order(order: np.ndarray, width: int) -> None:
    """Refuse what is no order of n columns.

    :raises ValueError: if it has not each column once.
    """
    if not np.array_equal(np.sort(order), np.arange(width)):
        raise ValueError("its order must have each column once")
