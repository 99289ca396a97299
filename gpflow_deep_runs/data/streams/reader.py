"""Batches of a stream: pure functions of (seed, step), read beside the training step.

The order of the rows: each epoch is a random permutation of the blocks of all files, cut into windows of several
blocks; the training rows of a window are read together and permuted; the windows one after the other, epoch after
epoch, are cut into batches. So each training row is used once in an epoch, the position in the stream is the number of
the step, and a resumed run reads on at the very row where the checkpoint was made.
"""

import heapq
import itertools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from absl import logging

from gpflow_deep_base.seeds import numpy_rng
from gpflow_deep_runs.data.rows import Indices, Part
from gpflow_deep_runs.data.streams.stream import TRAIN, Divider, Stream, in_order

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["BatchReader"]


class BatchReader:
    """Batches of training rows, read and permuted by threads beside the training step.

    :param stream: what `scan.scan` returned.
    :param batch_size: rows of a batch.
    :param seed: integer seed of the order.
    :param transform: of a window's `Part`, for example its standardisation; runs beside the step, too.
    :param shuffle_rows: rows of a window, about: what is permuted, and held in memory, together. Several blocks.
    :param lane: number of this reader's lane, from 0. Every lane has its own blocks, of nearly as many rows as the
        others', and its own order; so several workers read different rows and each file is read once an epoch.
    :param num_lanes: number of lanes.
    :raises ValueError: if the lane has fewer training rows than a batch.

    `wait_seconds` is how long calls have waited for rows in all.
    """

    def __init__(
        self,
        stream: Stream,
        *,
        batch_size: int,
        seed: int,
        transform: Callable[[Part], Part] = lambda part: part,
        shuffle_rows: int = 2**18,
        lane: int = 0,
        num_lanes: int = 1,
    ) -> None:
        if batch_size < 1 or shuffle_rows < 1 or not 0 <= lane < num_lanes:
            raise ValueError(
                "a reader needs batch_size >= 1, shuffle_rows >= 1 and a lane from 0 to num_lanes - 1, got "
                f"{batch_size}, {shuffle_rows} and lane {lane} of {num_lanes}."
            )
        self._stream = stream
        self._transform = transform
        self._batch_size = batch_size
        self._seed = seed
        self._lane = f"{lane}/{num_lanes}"
        # The blocks of this lane, with so many rows in an epoch.
        self._blocks = _lanes(stream.num_train, num_lanes)[lane]
        self._rows_per_epoch = int(stream.num_train[self._blocks].sum())
        if self._rows_per_epoch < batch_size:
            raise ValueError(
                f"a stream must have at least the {batch_size} training rows of a batch"
                f"{f' in each of {num_lanes} lanes' if num_lanes > 1 else ''}, got {self._rows_per_epoch}; lower "
                "--batch_size, or give the table with --data, without --stream."
            )
        # Windows of about shuffle_rows rows.
        mean_rows = self._rows_per_epoch / len(self._blocks)
        self._blocks_per_window = max(1, round(shuffle_rows / mean_rows))
        self._windows_per_epoch = -(-len(self._blocks) // self._blocks_per_window)
        if self._windows_per_epoch > 1 and self._blocks_per_window < 4:
            logging.warning(
                "--shuffle_rows=%d is less than four blocks of %d rows, so neighbouring rows share a batch; give a "
                "larger number, or write files with smaller row groups.",
                *(shuffle_rows, mean_rows),
            )
        self._divide = Divider(stream.shards, stream.preset, stream.settings)
        self._next_step = -1
        self._batches: Iterator[tuple[np.ndarray, np.ndarray]] = iter(())
        self.wait_seconds = 0.0

    def __call__(self, step: int) -> "tuple[tf.Tensor, tf.Tensor]":
        """The batch of a step: inputs [batch_size, D] and targets [batch_size, P].

        :raises ValueError: naming the file, if one has become unreadable or was changed since the scan.
        """
        import tensorflow as tf  # only here: a stream may be looked at without

        start = time.monotonic()
        # Steps in order go on with what was read; any other one begins anew.
        if step != self._next_step:
            self._batches = self._from(step)
        self._next_step = -1  # unless the batch can be read
        batch = next(self._batches)
        self._next_step = step + 1
        self.wait_seconds += time.monotonic() - start
        return tf.constant(batch[0]), tf.constant(batch[1])

    def scalars(self) -> dict[str, float]:
        """What to log: `wait_seconds`, the time that steps have waited for rows in this process."""
        return {"train/input_wait_seconds": self.wait_seconds}

    def _from(self, step: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The batches of a step and of those after it."""
        # The window in which the step begins, and how many of its rows earlier steps have used.
        epoch, offset = divmod(step * self._batch_size, self._rows_per_epoch)
        ends = np.cumsum(self._window_rows(epoch))
        first = int(np.searchsorted(ends, offset, side="right"))
        skipped = offset - (int(ends[first - 1]) if first else 0)
        numbers = itertools.count(first + epoch * self._windows_per_epoch)
        # One window after the other from there on, cut into batches.
        held: list[Part] = []
        for window in in_order(lambda number: self._window(*divmod(number, self._windows_per_epoch)), numbers, ahead=1):
            held.append(Part(window.X[skipped:], window.Y[skipped:]))
            skipped = 0
            if sum(len(part.X) for part in held) < self._batch_size:
                continue
            X, Y = (np.concatenate(arrays) for arrays in zip(*held, strict=True))
            for end in range(self._batch_size, len(X) + 1, self._batch_size):
                yield X[end - self._batch_size : end], Y[end - self._batch_size : end]
            rest = len(X) % self._batch_size
            held = [Part(X[len(X) - rest :], Y[len(X) - rest :])]

    def _order(self, epoch: int) -> Indices:
        return self._blocks[numpy_rng(self._seed, f"stream/{self._lane}/{epoch}").permutation(len(self._blocks))]

    def _window_rows(self, epoch: int) -> Indices:
        rows = self._stream.num_train[self._order(epoch)]
        return np.add.reduceat(rows, np.arange(0, len(rows), self._blocks_per_window))

    def _window(self, epoch: int, window: int) -> Part:
        """Permuted training rows of a window."""
        # Blocks in the order of the epoch, and rows in the order of the window.
        start = window * self._blocks_per_window
        blocks = self._order(epoch)[start : start + self._blocks_per_window]
        parts = list(in_order(self._train_rows, blocks))
        X, Y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        order = numpy_rng(self._seed, f"stream/{self._lane}/{epoch}/{window}").permutation(len(X))
        return self._transform(Part(X[order], Y[order]))

    def _train_rows(self, number: int) -> Part:
        stream = self._stream
        X, Y, part, _ = self._divide(int(number))
        is_train = part == TRAIN
        # A block with other rows than in the scan would move all later batches.
        if is_train.sum() != stream.num_train[number]:
            path = stream.shards.files[stream.shards.block(number).file]
            raise ValueError(f"{path} was changed since the run began; restore it, or start a new --run_dir.")
        return Part(X[is_train], Y[is_train])


def _lanes(num_train: Indices, num_lanes: int) -> list[Indices]:
    """Numbers of the blocks with training rows, dealt so that each lane has about as many rows: largest block first."""
    blocks = np.flatnonzero(num_train)
    if len(blocks) < num_lanes:
        raise ValueError(
            f"{num_lanes} workers need as many blocks of rows, the stream has {len(blocks)}; write smaller row groups."
        )
    # Each block goes to the lane that has the fewest rows up to now.
    heap = [(0, lane) for lane in range(num_lanes)]
    lanes: list[list[int]] = [[] for _ in range(num_lanes)]
    for block in blocks[np.argsort(-num_train[blocks], kind="stable")]:
        rows, lane = heapq.heappop(heap)
        lanes[lane].append(int(block))
        heapq.heappush(heap, (rows + int(num_train[block]), lane))
    return [np.sort(np.array(lane, dtype=np.int64)) for lane in lanes]
