"""The columns of sparse inputs that have occurred: of all others, as of most of a hashed space, nothing is kept.

200 documents in 2^20 hashed columns have some ten thousand of them. What a fit has never seen is 0 to it, so only those
that have occurred are inputs of the network; more of them may come in a stream.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ebp.network.coding import Matrix

__all__ = ["MIN_ROOM", "SeenColumns"]

#: Up to so many columns all are kept. With more there is room for so many, or else for a power of two of them, since
#: what is compiled for a number of inputs is compiled anew for another one.
MIN_ROOM = 2**14


class SeenColumns(NamedTuple):
    """Which columns of inputs [N, D] are inputs of a network, at what places.

    :ivar num_columns: how many columns, D.
    :ivar numbers: of the columns that have occurred, [S]: those of each call in order, the first call's first. None:
        all D columns, at their own places.
    """

    num_columns: int
    numbers: NDArray[np.intp] | None

    @classmethod
    def of(cls, X: Matrix) -> SeenColumns:
        """Those of the first rows: all, if X is dense, or has few columns or many of its columns occur."""
        num_columns = int(X.shape[1])
        if not scipy.sparse.issparse(X) or num_columns <= MIN_ROOM:
            return cls(num_columns, None)
        occurring = np.unique(scipy.sparse.csr_matrix(X).indices)
        columns = cls(num_columns, (occurring if len(occurring) else np.zeros(1)).astype(np.intp))
        return columns if 2 * columns.room <= num_columns else cls(num_columns, None)

    def after(self, X: Matrix) -> SeenColumns:
        """With those of more rows."""
        if self.numbers is None:
            return self
        new = np.setdiff1d(scipy.sparse.csr_matrix(X).indices, self.numbers)
        return self._replace(numbers=np.concatenate([self.numbers, new.astype(np.intp)]))

    @property
    def num_seen(self) -> int:
        """How many columns are kept."""
        return self.num_columns if self.numbers is None else len(self.numbers)

    @property
    def room(self) -> int:
        """How many inputs the network has."""
        if self.numbers is None:
            return self.num_columns
        return min(self.num_columns, max(MIN_ROOM, 1 << (len(self.numbers) - 1).bit_length()))

    def inputs(self, X: Matrix) -> Matrix:
        """Rows [N, D] without the columns that have never occurred, [N, room]; sparse, if those are not all kept."""
        if self.numbers is None:
            return X
        X = scipy.sparse.csr_matrix(X)
        # Entries of the columns that are kept, at the places of these.
        is_seen = np.isin(X.indices, self.numbers)
        order = np.argsort(self.numbers)
        places = order[np.searchsorted(self.numbers, X.indices[is_seen], sorter=order)]
        starts = np.concatenate([[0], np.cumsum(is_seen)])[X.indptr]
        inputs = scipy.sparse.csr_matrix((X.data[is_seen], places, starts), shape=(X.shape[0], self.room))
        inputs.sort_indices()
        return inputs

    def spread(self, values: np.ndarray) -> np.ndarray:
        """What is known of each input, [room, ...], as that of each column, [D, ...]; 0 where one never occurred."""
        if self.numbers is None:
            return values
        spread = np.zeros((self.num_columns, *values.shape[1:]), values.dtype)
        spread[self.numbers] = values[: len(self.numbers)]
        return spread
