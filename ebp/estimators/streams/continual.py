"""What is learned of a chunk of a stream, so that classes that no longer come are not unlearned."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebp.network.coding import Matrix

from .memory import Memory, stacked
from .recency import Recency

__all__ = ["Chunk", "Stream"]


class Chunk(NamedTuple):
    """Rows to learn.

    :ivar X: rows [M, D], those of the stream and then those of the memory.
    :ivar numbers: of their classes, [M].
    :ivar weight: of the rows, [M]; None: 1.
    :ivar is_learned: whether the output of a class learns from a row, [M, C]; None: each from all.
    """

    X: Matrix
    numbers: NDArray[np.intp]
    weight: NDArray[np.float64] | None
    is_learned: NDArray[np.bool_] | None


class Stream(NamedTuple):
    """What is known of the rows so far.

    :ivar recency: which classes occurred when.
    :ivar memory: some rows of each.
    """

    recency: Recency
    memory: Memory = Memory()

    def after(
        self,
        X: Matrix,
        numbers: NDArray[np.intp],
        weight: NDArray[np.float64] | None = None,
        *,
        size: int,
        seed: int,
        has_outputs: bool = True,
    ) -> tuple[Stream, Chunk]:
        """The state after more rows, and what is to be learned.

        :param X: rows [N, D], an array or a CSR matrix.
        :param numbers: of their classes, [N].
        :param weight: of the rows, [N]; None: 1.
        :param size: rows of each class in the memory; 0: none.
        :param seed: of its choice.
        :param has_outputs: whether each class has an output of its own, one class against the others.

        Outputs of absent classes learn nothing from the new rows, but for those that enter the memory. With these come
        the rows of absent classes that are in it, from which every output learns. So the output of an absent class
        learns from about as many rows of each class, as if all still came. Without outputs of their own the rows of
        absent classes are added to the new ones.
        """
        # Which classes are absent, and which new rows enter the memory.
        recency, is_absent = self.recency.after(numbers)
        memory = self.memory
        is_kept = np.zeros(len(numbers), np.bool_)
        if size:
            memory, is_kept = memory.after(X, numbers, weight, size=size, seed=seed)
        # Outputs of absent classes learn from rows that enter the memory, and from those in it.
        chunk = Chunk(X, numbers, weight, None)
        if has_outputs and np.any(is_absent):
            chunk = chunk._replace(is_learned=is_kept[:, None] | ~is_absent)
        if size and np.any(is_absent):
            chunk = _with_kept(chunk, memory.of(is_absent))
        return Stream(recency, memory), chunk


def _with_kept(new: Chunk, kept: Memory) -> Chunk:
    """New rows, followed by kept ones, from which every output learns."""
    is_learned = new.is_learned
    if is_learned is not None:
        is_learned = np.pad(is_learned, ((0, len(kept.numbers)), (0, 0)), constant_values=True)
    return Chunk(
        stacked(new.X, kept.X),
        np.concatenate([new.numbers, kept.numbers]),
        None if new.weight is None else np.concatenate([new.weight, kept.weight]),
        is_learned,
    )
