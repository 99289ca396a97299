"""Which rows the minibatch of a step has: a function of the seed and the step's number."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

__all__ = ["minibatch"]


def minibatch(seed: int, step: int, num_rows: int, batch_size: int) -> NDArray[np.int64]:
    """Row numbers of the minibatch of a step, [batch_size]; all rows in their order if there are no more.

    Batches are cut one after the other from random permutations of the rows, so that each row comes once in N draws.
    """
    if batch_size >= num_rows:
        return np.arange(num_rows)
    # Where the batch begins in its permutation of the rows; what is missing comes from the next one.
    epoch, start = divmod(step * batch_size, num_rows)
    head = _permutation(seed, epoch, num_rows)[start : start + batch_size]
    tail = _permutation(seed, epoch + 1, num_rows)[: batch_size - len(head)] if len(head) < batch_size else head[:0]
    return np.concatenate([head, tail])


@functools.lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, num_rows: int) -> NDArray[np.int64]:
    order = np.random.default_rng([seed, 1, epoch]).permutation(num_rows)
    order.flags.writeable = False
    return order
