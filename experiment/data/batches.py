"""Row numbers of minibatches: pure functions of the seed and the number of the step, so that training can be resumed.

minibatches = Minibatches(num_rows=60_000, batch_size=100, seeds=Seeds(0))
minibatches(first=7, count=5)                       # int64 [5, 100]: the rows of the steps 7 to 11
"""

import functools

import numpy as np
from numpy.typing import NDArray

from experiment.seeds import Seeds, numpy_rng

__all__ = ["Minibatches", "batch_indices"]

Indices = NDArray[np.int64]


class Minibatches:
    """Row numbers of the minibatch of each step; see :func:`batch_indices`.

    :param num_rows: rows there are.
    :param batch_size: rows of a minibatch; all rows if there are fewer.
    :param seeds: of the run; the order is drawn from its streams "batches/0", "batches/1", ...
    :raises ValueError: if a number is not positive.
    """

    def __init__(self, num_rows: int, batch_size: int, seeds: Seeds) -> None:
        if num_rows < 1 or batch_size < 1:
            raise ValueError(f"minibatches need at least 1 row and --batch_size >= 1, got {num_rows} and {batch_size}.")
        self.num_rows, self.size, self._seed = num_rows, min(batch_size, num_rows), seeds.seed

    @property
    def is_full(self) -> bool:
        """Whether every minibatch is all rows, in their order."""
        return self.size == self.num_rows

    def __call__(self, first: int, count: int) -> Indices:
        """Those of the steps `first` to `first + count - 1`: int64 [count, size]."""
        return np.stack([batch_indices(self._seed, first + i, self.num_rows, self.size) for i in range(count)])


def batch_indices(seed: int, step: int, num_data: int, batch_size: int) -> Indices:
    """Row numbers of the minibatch of a step.

    The batches are cut one after the other from an endless row of random permutations of the N rows. So each row is
    used once in N draws, and each batch has `batch_size` rows: one that reaches the end of a permutation is completed
    from the next (only in such a batch can a row occur twice). The current permutations are kept, so a step is cheap.

    :param seed: integer seed of the run.
    :param step: number of the step, from 0.
    :return: int64 [batch_size], to be read only; all N rows in order if `batch_size` >= N.
    :raises ValueError: if `step` is negative, or `num_data` or `batch_size` is not positive.
    """
    if step < 0 or num_data < 1 or batch_size < 1:
        raise ValueError(
            f"a batch needs step >= 0, num_data >= 1 and batch_size >= 1, got {step}, {num_data} and {batch_size}."
        )
    if batch_size >= num_data:
        return np.arange(num_data)
    epoch, start = divmod(int(step) * int(batch_size), int(num_data))
    head = _permutation(int(seed), epoch, int(num_data))[start : start + batch_size]
    if len(head) == batch_size:
        return head
    tail = _permutation(int(seed), epoch + 1, int(num_data))[: batch_size - len(head)]
    return np.concatenate([head, tail])


@functools.lru_cache(maxsize=2)
def _permutation(seed: int, epoch: int, num_data: int) -> Indices:
    order = numpy_rng(seed, f"batches/{epoch}").permutation(num_data)
    order.flags.writeable = False
    return order
