"""Row numbers of minibatches: pure functions of the seed and the number of the step, so that training can be resumed.

minibatches = Minibatches(num_rows=60_000, batch_size=100, seeds=Seeds(0))
minibatches(first=7, count=5)                       # int64 [5, 100]: the rows of the steps 7 to 11
"""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gpflow_deep_base.seeds import Seeds, numpy_rng
from gpflow_deep_runs.data.rows import Indices

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["ArrayBatches", "Minibatches", "batch_indices"]


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
        self.num_rows = num_rows
        self.size = min(batch_size, num_rows)
        self._seed = seeds.seed

    @property
    def is_full(self) -> bool:
        """Whether every minibatch is all rows, in their order."""
        return self.size == self.num_rows

    def __call__(self, first: int, count: int) -> Indices:
        """Those of the steps `first` to `first + count - 1`: int64 [count, size]."""
        return np.stack([batch_indices(self._seed, first + i, self.num_rows, self.size) for i in range(count)])


class ArrayBatches:
    """Minibatches of arrays in memory, as `streams.reader.BatchReader` has them of files: a function of the step.

    :param arrays: with equally many rows, such as inputs and targets.
    :param batch_size: rows of a batch of one lane; all rows of the only lane if there are fewer.
    :param seed: integer seed of the order.
    :param lane: number of this lane, from 0: the lanes' batches of a step are parts of one batch, one after the other.
    :param num_lanes: number of lanes.
    :raises ValueError: if several lanes together want more rows than there are, or a number is out of range.
    """

    def __init__(
        self, arrays: Sequence[np.ndarray], *, batch_size: int, seed: int, lane: int = 0, num_lanes: int = 1
    ) -> None:
        num_rows = len(arrays[0])
        if batch_size < 1 or not 0 <= lane < num_lanes:
            raise ValueError(
                f"batches need batch_size >= 1 and a lane from 0 to num_lanes - 1, got {batch_size} and lane {lane} of "
                f"{num_lanes}."
            )
        if num_lanes > 1 and batch_size * num_lanes > num_rows:
            raise ValueError(
                f"a batch of {num_lanes} lanes must have at most the {num_rows} rows there are, got "
                f"{batch_size * num_lanes}; lower --batch_size."
            )
        self._arrays = arrays
        self._seed = seed
        self._size = batch_size * num_lanes
        self._lane = slice(lane * batch_size, (lane + 1) * batch_size)
        is_full = num_lanes == 1 and batch_size >= num_rows
        self._everything = _tensors(arrays) if is_full else None

    def __call__(self, step: int) -> "tuple[tf.Tensor, ...]":
        """This lane's rows of the minibatch of a step."""
        if self._everything is not None:
            return self._everything
        rows = batch_indices(self._seed, step, len(self._arrays[0]), self._size)[self._lane]
        return _tensors([array[rows] for array in self._arrays])

    def scalars(self) -> dict[str, float]:
        """What to log: nothing, as no step waits for arrays in memory."""
        return {}


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


def _tensors(arrays: Sequence[np.ndarray]) -> "tuple[tf.Tensor, ...]":
    import tensorflow as tf  # only here: a table may be read without

    return tuple(map(tf.constant, arrays))


@functools.lru_cache(maxsize=2)
def _permutation(seed: int, epoch: int, num_data: int) -> Indices:
    order = numpy_rng(seed, f"batches/{epoch}").permutation(num_data)
    order.flags.writeable = False
    return order
