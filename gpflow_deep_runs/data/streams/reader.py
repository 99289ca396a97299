"""Batches of a stream: pure functions of (seed, step), read beside the training step.

The order of the rows: each epoch is a random permutation of the blocks of all files, cut into windows of several
blocks; the training rows of a window are read together and permuted; the windows one after the other, epoch after
epoch, are cut into batches. So each training row is used once in an epoch, the position in the stream is the number of
the step, and a resumed run reads on at the very row where the checkpoint was made.
"""

import heapq
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging
from numpy.typing import NDArray

from gpflow_deep_base.seeds import numpy_rng
from gpflow_deep_runs.data.rows import Indices, Part
from gpflow_deep_runs.data.streams.stream import TRAIN, Divider, Stream, in_order

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["BatchReader"]


class BatchReader:
    """Batches of training rows, read and permuted by a `tf.data` pipeline beside the training step.

    :param stream: what `scan.scan` returned.
    :param batch_size: rows of a batch.
    :param seed: integer seed of the order.
    :param transform: of a window's `Part`, for example its standardisation; runs in the pipeline.
    :param shuffle_rows: rows of a window, about: what is permuted, and held in memory, together. Several blocks.
    :param lane: number of this reader's lane, from 0. Every lane has its own blocks, of nearly as many rows as the
        others', and its own order; so several workers read different rows and each file is read once an epoch.
    :param num_lanes: number of lanes.
    :raises ValueError: if the lane has fewer training rows than a batch.

    `wait_seconds` is how long calls have waited for the pipeline in all.
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
        # The blocks of this lane, with so many rows in an epoch
        self._blocks = _lanes(stream.num_train, num_lanes)[lane]
        self._rows_per_epoch = int(stream.num_train[self._blocks].sum())
        if self._rows_per_epoch < batch_size:
            raise ValueError(
                f"a stream must have at least the {batch_size} training rows of a batch"
                f"{f' in each of {num_lanes} lanes' if num_lanes > 1 else ''}, got {self._rows_per_epoch}; lower "
                "--batch_size, or give the table with --data, without --stream."
            )
        # Windows of about shuffle_rows rows
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
        self._like = self._window(0, 0, slice(0, 1))
        self._next_step = -1
        self._batches: Iterator[Any] = iter(())
        self._failure: ValueError | None = None
        self.wait_seconds = 0.0

    def __call__(self, step: int) -> "tuple[tf.Tensor, tf.Tensor]":
        """The batch of a step: inputs [batch_size, D] and targets [batch_size, P].

        :raises ValueError: naming the file, if one has become unreadable or was changed since the scan.
        """
        start = time.monotonic()
        if step != self._next_step:
            self._batches = iter(self._dataset(step))
        try:
            batch = next(self._batches)
        except Exception:
            self._next_step = -1
            if self._failure is not None:
                raise self._failure from None
            raise
        self._next_step = step + 1
        self.wait_seconds += time.monotonic() - start
        return batch

    def scalars(self) -> dict[str, float]:
        """What to log: `wait_seconds`, the time that steps have waited for rows in this process."""
        return {"train/input_wait_seconds": self.wait_seconds}

    def _dataset(self, step: int) -> "tf.data.Dataset":
        # The window in which the step begins, and how many of its rows earlier steps have used
        epoch, offset = divmod(step * self._batch_size, self._rows_per_epoch)
        ends = np.cumsum(self._window_rows(epoch))
        first = int(np.searchsorted(ends, offset, side="right"))
        skipped = offset - (int(ends[first - 1]) if first else 0)
        first += epoch * self._windows_per_epoch
        self._failure = None
        import tensorflow as tf  # only here: a stream may be looked at without

        def read(number: Any) -> tuple[NDArray[Any], ...]:
            try:
                start = skipped if number == first else 0
                return tuple(self._window(*divmod(int(number), self._windows_per_epoch), slice(start, None)))
            except Exception as error:
                self._failure = error if isinstance(error, ValueError) else ValueError(f"the stream failed: {error}")
                raise

        def window(number: "tf.Tensor") -> "tuple[tf.Tensor, ...]":
            arrays = tf.numpy_function(read, [number], [array.dtype for array in self._like])
            return tuple(tf.ensure_shape(a, [None, b.shape[1]]) for a, b in zip(arrays, self._like, strict=True))

        # One window after the other from there on, cut into batches
        windows = tf.data.Dataset.range(first, np.iinfo(np.int64).max).map(window).prefetch(1)
        options = tf.data.Options()
        options.threading.private_threadpool_size = 2
        options.autotune.enabled = False
        return windows.rebatch(self._batch_size, drop_remainder=True).prefetch(4).with_options(options)

    def _order(self, epoch: int) -> Indices:
        return self._blocks[numpy_rng(self._seed, f"stream/{self._lane}/{epoch}").permutation(len(self._blocks))]

    def _window_rows(self, epoch: int) -> Indices:
        rows = self._stream.num_train[self._order(epoch)]
        return np.add.reduceat(rows, np.arange(0, len(rows), self._blocks_per_window))

    def _window(self, epoch: int, window: int, rows: slice) -> Part:
        """Permuted training rows of a window."""
        # Blocks in the order of the epoch, and rows in the order of the window
        start = window * self._blocks_per_window
        blocks = self._order(epoch)[start : start + self._blocks_per_window]
        parts = list(in_order(self._train_rows, blocks))
        X, Y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        order = numpy_rng(self._seed, f"stream/{self._lane}/{epoch}/{window}").permutation(len(X))[rows]
        return self._transform(Part(X[order], Y[order]))

    def _train_rows(self, number: int) -> Part:
        stream = self._stream
        X, Y, part, _ = self._divide(int(number))
        is_train = part == TRAIN
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
    # Each block goes to the lane that has the fewest rows up to now
    heap = [(0, lane) for lane in range(num_lanes)]
    lanes: list[list[int]] = [[] for _ in range(num_lanes)]
    for block in blocks[np.argsort(-num_train[blocks], kind="stable")]:
        rows, lane = heapq.heappop(heap)
        lanes[lane].append(int(block))
        heapq.heappush(heap, (rows + int(num_train[block]), lane))
    return [np.sort(np.array(lane, dtype=np.int64)) for lane in lanes]
