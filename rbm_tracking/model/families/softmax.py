# ruff: noqa: D102 (what the methods of a family are is said in `visible.Visible`)
"""Categories as visible units: groups of bits of which one, or at most one, is 1."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rbm_tracking.model.checks import check_binary
from rbm_tracking.model.visible import NUMPY, Bernoulli, Description, Discrete, Ops, Tensor

__all__ = ["Softmax"]

Array = np.ndarray


@dataclass(frozen=True)
class Softmax(Discrete):
    """Categories (Potts units), one bit for each level: in each group of columns at most one is 1. m = 1 on such rows.

    log Z(x) of a group is the log of the sum of exp(x_k) over its columns k, and of 1 for none of them unless one of
    them has to be 1. Columns outside of the groups are bits.

    :param n_v: number of columns.
    :param groups: the columns of each group; no column is in two of them.
    :param is_required: for each group, whether exactly one of its columns is 1 in every row; () for none.
    :raises ValueError: if these do not fit each other.
    """

    n_v: int
    groups: tuple[tuple[int, ...], ...]
    is_required: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        columns = [column for group in self.groups for column in group]
        if not self.groups or not all(self.groups):
            raise ValueError("softmax units need at least one group, each of at least one column, got an empty one.")
        if outside := [column for column in columns if not 0 <= column < self.n_v]:
            raise ValueError(f"groups must name columns from 0 to {self.n_v - 1}, got {outside[0]}.")
        if len(set(columns)) < len(columns):
            twice = Counter(columns).most_common(1)[0][0]
            raise ValueError(f"a column can be in one group only, but column {twice} is in two places of the groups.")
        if self.is_required and len(self.is_required) != len(self.groups):
            raise ValueError(
                f"is_required must have an entry for each of {len(self.groups)} groups, got {len(self.is_required)}."
            )
        object.__setattr__(self, "is_required", self.is_required or (False,) * len(self.groups))

    @functools.cached_property
    def _options(self) -> NDArray[np.int64]:
        """Columns of the options of each group, [G, K]: `n_v` stands for none of them, `n_v` + 1 fills the rest."""
        sizes = [len(group) + (not required) for group, required in zip(self.groups, self.is_required, strict=True)]
        options = np.full((len(self.groups), max(sizes)), self.n_v + 1)
        for row, group, required in zip(options, self.groups, self.is_required, strict=True):
            row[: len(group)] = group
            if not required:
                row[len(group)] = self.n_v
        return options

    @functools.cached_property
    def _last(self) -> NDArray[np.int64]:
        """The number of the last option of each group, [G]."""
        return np.array([len(group) - needed for group, needed in zip(self.groups, self.is_required, strict=True)])

    @functools.cached_property
    def _rest(self) -> NDArray[np.int64]:
        """Columns that are bits, [R]."""
        return np.setdiff1d(np.arange(self.n_v), self._options)

    @functools.cached_property
    def _place(self) -> NDArray[np.int64]:
        """Where each column is in the G K options, followed by the bits, [n_v]."""
        # The inverse of the order of options and bits; -1 is of no column.
        order = np.concatenate([self._options.ravel(), self._rest])
        place = np.full(self.n_v + 2, -1)
        place[order] = np.arange(len(order))
        return place[: self.n_v]

    def fields(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        """x of the options of each group, [..., n_v] to [..., G, K]: 0 for no column, -inf where there is no option."""
        return ops.take(ops.join([x, ops.full(x, 0.0), ops.full(x, -np.inf)]), self._options)

    def _columns(self, options: Tensor, bits: Tensor, ops: Ops) -> Tensor:
        """[..., G, K] and [..., R] to [..., n_v]; bits are None if there are no columns of them."""
        flat = ops.flatten(options)
        return ops.take(flat if bits is None else ops.join([flat, bits]), self._place)

    def of_groups(self) -> Softmax:
        """The same family with every bit as a group of one column."""
        groups = (*self.groups, *((int(column),) for column in self._rest))
        return Softmax(self.n_v, groups, (*self.is_required, *(False for _ in self._rest)))

    def num_states(self, n_v: int) -> float:
        sizes = (len(group) + (not needed) for group, needed in zip(self.groups, self.is_required, strict=True))
        return math.prod(map(float, sizes)) * 2.0 ** min(len(self._rest), 1000)

    def states(self, n_v: int, start: int, stop: int) -> Array:
        grouped = self.of_groups()
        states = np.zeros((stop - start, self.n_v))
        index = np.arange(start, stop)
        # The number of a state has a digit for each group: which of its options is 1.
        for group, needed in zip(grouped.groups, grouped.is_required, strict=True):
            index, option = np.divmod(index, len(group) + (not needed))
            is_column = option < len(group)
            states[np.flatnonzero(is_column), np.array(group)[option[is_column]]] = 1.0
        return states

    def check(self, rows: ArrayLike, *, n_v: int | None = None, name: str = "data") -> Array:
        array = check_binary(rows, n_v=self.n_v if n_v is None else n_v, name=name)
        for group, required in zip(self.groups, self.is_required, strict=True):
            counts = array[:, group].sum(axis=1)
            if (wrong := (counts != 1) if required else (counts > 1)).any():
                row = int(np.argmax(wrong))
                raise ValueError(
                    f"{name} must have {'exactly' if required else 'at most'} one 1 in each group of columns, got "
                    f"{int(counts[row])} in row {row}, group {_shown(group)} ({int(wrong.sum())} such rows); leave the "
                    "group out, or name the right columns by groups= (--groups)."
                )
        return array

    def stored(self, rows: Tensor) -> Array:
        return np.asarray(rows).astype(np.uint8)

    def biases(self, rows: ArrayLike, *, clip: float = 1e-5) -> Array:
        mean = np.asarray(rows).mean(axis=0, dtype=np.float64)
        b = Bernoulli().biases(rows, clip=clip)
        for group, required in zip(self.groups, self.is_required, strict=True):
            # Log odds against no column, or about their mean where one is required.
            columns = list(group)
            log_p = np.log(np.maximum(mean[columns], clip))
            b[columns] = log_p - (log_p.mean() if required else np.log(max(1 - mean[columns].sum(), clip)))
        return b

    def log_normaliser(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        of_groups = ops.sum(ops.logsumexp(self.fields(x, ops)))
        return of_groups + ops.sum(ops.softplus(ops.take(x, self._rest))) if len(self._rest) else of_groups

    def mean(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        bits = ops.sigmoid(ops.take(x, self._rest)) if len(self._rest) else None
        return self._columns(ops.softmax(self.fields(x, ops)), bits, ops)

    def variance(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        # Each column alone is a bit.
        mean = self.mean(x, ops)
        return mean * (1.0 - mean)

    def num_noise(self, n_v: int) -> int:
        return len(self.groups) + len(self._rest)

    def draw(self, x: Tensor, noise: Tensor, ops: Ops = NUMPY) -> Tensor:
        """One option of each group by the inverse of its distribution function: one, however sums are rounded."""
        if ops is NUMPY:
            return self._drawn(x, noise)
        num_groups, num_options = self._options.shape
        # The distribution function over the options of each group.
        is_end = np.arange(num_options) >= self._last[:, None]
        upper = ops.cumsum(ops.softmax(self.fields(x, ops)))
        upper = ops.where(is_end, ops.cast(np.float64(2.0), x), upper)  # the last option takes what is left
        # The first option whose end is above the noise.
        of_groups = ops.take(noise, np.arange(num_groups)[:, None])
        chosen = ops.sum(ops.cast(upper <= of_groups, x))[..., None]
        options = ops.cast(chosen == ops.cast(np.arange(num_options), x), x)
        if not len(self._rest):
            return self._columns(options, None, ops)
        of_bits = ops.take(noise, num_groups + np.arange(len(self._rest)))
        return self._columns(options, ops.cast(of_bits < ops.sigmoid(ops.take(x, self._rest)), x), ops)

    def _drawn(self, x: Tensor, noise: Tensor) -> Tensor:
        """:meth:`draw` with options as the first axis and rows as the last, along which arrays are added up fast."""
        num_groups = len(self.groups)
        fields = x.reshape(-1, self.n_v)
        noise = noise.reshape(len(fields), -1)
        absent = np.repeat(np.array([[0.0], [-np.inf]], x.dtype), len(fields), axis=1)
        ends = np.concatenate([fields.T, absent])[self._options.T]
        # The distribution function, not divided by its end.
        ends -= ends.max(axis=0)
        np.exp(ends, out=ends)
        for below, end in itertools.pairwise(ends):
            end += below
        # The first option whose end is above the noise, or the last one there is.
        height = noise.T[:num_groups] * ends[-1]
        chosen = np.zeros(height.shape, np.int64)
        for end in ends:
            chosen += end <= height
        chosen = np.minimum(chosen, self._last[:, None])
        rows = np.zeros((len(fields), self.n_v + 1), x.dtype)  # with a column for none of them
        rows[np.arange(len(fields)), self._options[np.arange(num_groups)[:, None], chosen]] = 1
        if len(self._rest):
            rows[:, self._rest] = noise[:, num_groups:] < NUMPY.sigmoid(fields[:, self._rest])
        return np.ascontiguousarray(rows[:, : self.n_v]).reshape(x.shape)

    def describe(self) -> Description:
        groups = [[int(column) for column in group] for group in self.groups]
        return {
            "family": "softmax",
            "n_v": self.n_v,
            "groups": groups,
            "is_required": list(map(bool, self.is_required)),
        }


def _shown(group: tuple[int, ...]) -> str:
    """Columns of a group, for errors."""
    is_block = len(group) > 2 and group == tuple(range(group[0], group[-1] + 1))
    return f"{group[0]}-{group[-1]}" if is_block else ",".join(map(str, group[:20])) + "..." * (len(group) > 20)
