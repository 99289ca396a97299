"""Some rows of each class of a stream, kept to be learned again once the class no longer comes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ebp.network.coding import Matrix, is_sparse

__all__ = ["Memory", "stacked"]


class Memory(NamedTuple):
    """At most so many rows of each class; every row of a class so far has had the same chance to be among them.

    Each row of the stream has a random key, a function of the seed and of its number, and the rows with the smallest
    keys of their class are kept. So what is kept does not depend on how the stream is cut into chunks.

    :ivar X: rows [M, D], an array or a CSR matrix; None before the first row.
    :ivar numbers: of their classes, [M].
    :ivar weight: of the rows, [M].
    :ivar keys: in [0, 1), [M].
    :ivar num_seen: rows of the stream so far.
    """

    X: Matrix = None
    numbers: NDArray[np.intp] = np.zeros(0, np.intp)
    weight: NDArray[np.float64] = np.zeros(0)
    keys: NDArray[np.float64] = np.zeros(0)
    num_seen: int = 0

    def after(
        self, X: Matrix, numbers: NDArray[np.intp], weight: NDArray[np.float64] | None, *, size: int, seed: int
    ) -> tuple[Memory, NDArray[np.bool_]]:
        """The memory after more rows of the stream, and which of these are in it, [N].

        :param X: rows [N, D], an array or a CSR matrix.
        :param numbers: of their classes, [N].
        :param weight: of the rows, [N]; None: 1.
        :param size: how many rows of each class are kept.
        :param seed: of the keys, not negative.
        """
        # A row's key depends on its number in the stream alone.
        keys = np.random.Generator(np.random.PCG64(seed).advance(self.num_seen)).random(len(numbers))
        keys = np.concatenate([self.keys, keys])
        numbers = np.concatenate([self.numbers, numbers])
        weight = np.concatenate([self.weight, np.ones(X.shape[0]) if weight is None else weight])
        # The smallest keys of each class stay.
        order = np.lexsort((keys, numbers))
        rank = np.arange(len(order)) - np.searchsorted(numbers[order], numbers[order])  # within the class
        kept_rows = np.sort(order[rank < size])
        rows = X if self.X is None else stacked(self.X, X)
        is_new_kept = np.isin(np.arange(len(self.keys), len(keys)), kept_rows)
        memory = Memory(
            rows[kept_rows], numbers[kept_rows], weight[kept_rows], keys[kept_rows], self.num_seen + X.shape[0]
        )
        return memory, is_new_kept

    def of(self, is_wanted: NDArray[np.bool_]) -> Memory:
        """That of the classes that are wanted, [C]."""
        is_chosen = is_wanted[self.numbers]
        return self._replace(
            X=self.X[is_chosen],
            numbers=self.numbers[is_chosen],
            weight=self.weight[is_chosen],
            keys=self.keys[is_chosen],
        )


def stacked(X: Matrix, others: Matrix) -> Matrix:
    """Rows of two arrays or sparse matrices; sparse if both are."""
    if is_sparse(X) and is_sparse(others):
        return scipy.sparse.vstack([X, others], format="csr")
    return np.concatenate([part.toarray() if is_sparse(part) else part for part in (X, others)])
