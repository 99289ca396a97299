# ruff: noqa: D102 (what the methods of a family are is said in `Visible`)
"""Units of several families side by side in one layer."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rbm_tracking.model.checks import check_numbers
from rbm_tracking.model.visible import NUMPY, Description, Ops, Tensor, Visible

__all__ = ["Mixed", "simplest"]

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Mixed:
    """Families, each of some columns.

    :param columns: those of each family; each column is in one of them.
    :param families: as many, of so many units each.
    :raises ValueError: if columns are missing or named twice.
    """

    columns: tuple[tuple[int, ...], ...]
    families: tuple[Visible, ...]

    def __post_init__(self) -> None:
        # Every column from 0 on, once.
        named = sorted(column for columns in self.columns for column in columns)
        if named != list(range(len(named))) or not named or len(self.columns) != len(self.families):
            raise ValueError(
                f"each column from 0 on must be in one family of mixed units, got {list(map(list, self.columns))}."
            )

    @property
    def n_v(self) -> int:
        """Number of units."""
        return sum(map(len, self.columns))

    @property
    def is_learnt(self) -> bool:
        return any(family.is_learnt for family in self.families)

    @functools.cached_property
    def _index(self) -> list[Array]:
        return [np.array(columns) for columns in self.columns]

    @functools.cached_property
    def _place(self) -> Array:
        """Where each column is in the families, one after the other."""
        return np.argsort(np.concatenate(self._index))

    def _whole(self, parts: list[Tensor], ops: Ops) -> Tensor:
        return ops.take(ops.join(parts), self._place)

    def _each(self, x: Tensor, ops: Ops) -> list[tuple[Visible, Tensor]]:
        return [(family, ops.take(x, index)) for family, index in zip(self.families, self._index, strict=True)]

    def check(self, rows: ArrayLike, *, n_v: int | None = None, name: str = "data") -> Array:
        array = check_numbers(rows, n_v=self.n_v if n_v is None else n_v, name=name)
        # Each family says what is wrong with its own columns.
        for family, index in zip(self.families, self._index, strict=True):
            family.check(array[:, index], name=f"columns {index[:5].tolist()}{'...' * (len(index) > 5)} of {name}")
        return array

    def stored(self, rows: Tensor) -> Array:
        return np.asarray(rows).astype(np.float32)

    def biases(self, rows: ArrayLike, *, clip: float = 1e-5) -> Array:
        return np.concatenate([f.biases(part, clip=clip) for f, part in self._each(np.asarray(rows), NUMPY)])[
            self._place
        ]

    def log_normaliser(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        return sum(family.log_normaliser(part, ops) for family, part in self._each(x, ops))

    def mean(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        return self._whole([family.mean(part, ops) for family, part in self._each(x, ops)], ops)

    def variance(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        return self._whole([family.variance(part, ops) for family, part in self._each(x, ops)], ops)

    def log_measure(self, v: Tensor, ops: Ops = NUMPY) -> Tensor:
        return sum(family.log_measure(part, ops) for family, part in self._each(v, ops))

    def num_noise(self, n_v: int) -> int:
        return sum(self._noises)

    @property
    def _noises(self) -> list[int]:
        return [family.num_noise(len(index)) for family, index in zip(self.families, self._index, strict=True)]

    def draw(self, x: Tensor, noise: Tensor, ops: Ops = NUMPY) -> Tensor:
        parts = []
        start = 0
        # Each family takes its share of the noise.
        for (family, part), count in zip(self._each(x, ops), self._noises, strict=True):
            parts.append(family.draw(part, ops.take(noise, np.arange(start, start + count)), ops))
            start += count
        return self._whole(parts, ops)

    @property
    def _counts(self) -> list[float]:
        return [family.num_states(len(index)) for family, index in zip(self.families, self._index, strict=True)]

    def num_states(self, n_v: int) -> float:
        return math.prod(self._counts)

    def states(self, n_v: int, start: int, stop: int) -> Array:
        number = np.arange(start, stop)
        parts = []
        for family, index, count in zip(self.families, self._index, self._counts, strict=True):
            # A digit of the state's number for each family, in a base of its own.
            number, state_index = np.divmod(number, int(count))
            parts.append(family.states(len(index), 0, int(count))[state_index])
        return np.concatenate(parts, axis=1)[:, self._place]

    def highest_log_p(self, n_v: int) -> float:
        return sum(f.highest_log_p(len(index)) for f, index in zip(self.families, self._index, strict=True))

    @property
    def num_own(self) -> int:
        return sum(family.num_own for family in self.families)

    def slopes(self, v: Tensor, ops: Ops = NUMPY) -> Tensor:
        parts = [family.slopes(part, ops) for family, part in self._each(v, ops) if family.is_learnt]
        return ops.join(parts) if parts else None

    def mean_slopes(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        return ops.join([family.mean_slopes(part, ops) for family, part in self._each(x, ops) if family.is_learnt])

    def moved(self, change: Tensor, ops: Ops = NUMPY) -> Mixed:
        families = []
        start = 0
        for family in self.families:
            # Changes are those of one family after the other.
            indices = np.arange(start, start + family.num_own)
            families.append(family.moved(ops.take(change, indices), ops) if family.is_learnt else family)
            start += len(indices)
        return Mixed(self.columns, tuple(families))

    def powered(self, power: float) -> Mixed:
        return Mixed(self.columns, tuple(family.powered(power) for family in self.families))

    def describe(self) -> Description:
        columns = [list(map(int, columns)) for columns in self.columns]
        return {"family": "mixed", "columns": columns, "families": [family.describe() for family in self.families]}

    def __tf_flatten__(self) -> tuple[tuple[tuple[tuple[int, ...], ...]], tuple[Visible, ...]]:
        return (self.columns,), self.families

    @classmethod
    def __tf_unflatten__(cls, metadata: tuple[tuple[tuple[int, ...], ...]], components: tuple[Visible, ...]) -> Mixed:
        return cls(*metadata, tuple(components))


def simplest(columns: tuple[tuple[int, ...], ...], families: tuple[Visible, ...]) -> Visible:
    """The only family, where there is one of all columns in their order."""
    if len(families) == 1 and columns[0] == tuple(range(len(columns[0]))):
        return families[0]
    return Mixed(columns, families)
