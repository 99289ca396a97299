"""Rows to learn from, wherever they are: a data set in memory, or files that are read piece by piece.

supply = load(Source(data="houses.csv"), Division(), StreamSpec(), table=TableSpec(target=("price",)), seed=0)
supply.parts["test"].Y, supply.sizes
batch_at = supply.batches(supply.rows.train, batch_size=1000, seed=0)
X, Y = batch_at(step)

Row numbers of minibatches: pure functions of the seed and the number of the step, so that training can be resumed.

minibatches = Minibatches(num_rows=60_000, batch_size=100, seeds=Seeds(0))
minibatches(first=7, count=5)                       # int64 [5, 100]: the rows of the steps 7 to 11
"""

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpflow_deep_base.seeds import Seeds, numpy_rng
from gpflow_deep_runs.data import views
from gpflow_deep_runs.data.rows import Indices, Part, Rows, Task
from gpflow_deep_runs.data.streams import record, scan
from gpflow_deep_runs.data.streams.reader import BatchReader
from gpflow_deep_runs.data.streams.stream import Stream
from gpflow_deep_runs.data.table.spec import TableSpec

__all__ = ["ArrayBatches", "Division", "Minibatches", "Supply", "batch_indices", "load"]

if TYPE_CHECKING:
    import tensorflow as tf


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
        # Lanes share one batch, whose rows must differ.
        if num_lanes > 1 and batch_size * num_lanes > num_rows:
            raise ValueError(
                f"a batch of {num_lanes} lanes must have at most the {num_rows} rows there are, got "
                f"{batch_size * num_lanes}; lower --batch_size."
            )
        # All rows of the only lane are made tensors once.
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
    # Where the step begins: in which permutation, and at which of its rows.
    epoch, start = divmod(int(step) * int(batch_size), int(num_data))
    head = _permutation(int(seed), epoch, int(num_data))[start : start + batch_size]
    if len(head) == batch_size:
        return head
    # A batch at the end of a permutation is completed from the next.
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


@dataclass(frozen=True)
class Division:
    """How the rows of a data set are divided.

    :param split: number of the train/test split.
    :param valid_fraction: part of the training rows to set aside for validation; 0 for none.
    :param max_rows: use at most this many rows, drawn at random, in each part of the data; all if not given.
    """

    split: int = 0
    valid_fraction: float = 0.1
    max_rows: int | None = None

    def __post_init__(self) -> None:
        if self.split < 0:
            raise ValueError(f"--split must not be negative, got {self.split}.")
        if not 0 <= self.valid_fraction < 1:
            raise ValueError(f"--valid_fraction must be in [0, 1), got {self.valid_fraction}; 0 means no validation.")
        if self.max_rows is not None and self.max_rows < 2:
            raise ValueError(f"--max_rows must be at least 2, got {self.max_rows}.")


@dataclass(frozen=True, eq=False)
class Supply:
    """What :func:`load` found.

    :param rows: the parts in memory: all rows, or samples of a stream.
    :param split: number of the train/test split.
    :param stream: where training rows come from, unless they are in memory.
    :param shuffle_rows: rows of the stream to permute together.
    """

    rows: Rows
    split: int = 0
    stream: Stream | None = None
    shuffle_rows: int = 2**18

    @property
    def parts(self) -> dict[str, Part]:
        """What scores are of: the validation part, if there is one, and the test part."""
        return {name: self.rows.parts[name] for name in ("valid", "test") if name in self.rows.parts}

    @property
    def task(self) -> Task:
        """What the targets are.

        :raises ValueError: if there are none.
        """
        task = self.rows.task
        if task == "density":
            raise ValueError(f"{self.rows.name!r} must have targets to predict, got a data set without; give another.")
        return task

    @property
    def sizes(self) -> dict[str, int]:
        """Number of rows of each part: those to learn from, and those in memory that scores are of."""
        return self.rows.sizes | ({} if self.stream is None else {"train": self.stream.counts["train"]})

    @property
    def description(self) -> str:
        """What is predicted from what, for a user to check what was found out from a table."""
        names = ", ".join(map(repr, self.rows.target_names))
        stream = self.stream
        note = "" if stream is None else f"; rows of the stream: {stream.counts}, samples of them for scores"
        return f"{self.task} of {names} on {len(self.rows.feature_names)} inputs{note}"

    def about(self) -> dict[str, object]:
        """What a report says of the data."""
        return {
            "task": self.task,
            "target": ", ".join(self.rows.target_names),
            "split": self.split,
            "rows": self.sizes,
            "stream_rows": None if self.stream is None else self.stream.counts,
        }

    def rows_in_batch(self, batch_size: int) -> int:
        """`batch_size`, or all training rows in memory if there are fewer; a stream needs as many as a batch."""
        return batch_size if self.stream is not None else min(batch_size, self.sizes["train"])

    def batches(
        self,
        train: Sequence[np.ndarray],
        *,
        batch_size: int,
        seed: int,
        transform: Callable[..., Sequence[np.ndarray]] = lambda *part: part,
        lane: int = 0,
        num_lanes: int = 1,
    ) -> ArrayBatches | BatchReader:
        """The minibatch of a step, a function of the seed and the step; its `scalars()` are for logs.

        :param train: the training rows in memory, transformed; of no meaning for a stream.
        :param transform: of X and Y of some rows of the stream, for example standardisation.
        :param batch_size: rows in a batch of one lane.
        :param lane: see `BatchReader`, and so `num_lanes`.
        :raises ValueError: if there are fewer rows than in a batch of several lanes or of a stream.
        """
        # A stream reads its rows itself, and transforms them as they come.
        if self.stream is None:
            return ArrayBatches(train, batch_size=batch_size, seed=seed, lane=lane, num_lanes=num_lanes)
        return BatchReader(
            self.stream,
            batch_size=batch_size,
            seed=seed,
            transform=lambda part: Part(*transform(*part)),
            shuffle_rows=self.shuffle_rows,
            lane=lane,
            num_lanes=num_lanes,
        )

    def keep(self, folder: str | os.PathLike[str]) -> None:
        """Write what the pass over a stream found to a folder that is there, so that a resumed run has it at once."""
        if self.stream is not None:
            record.save(self.stream, Path(folder) / record.FILE)


def load(
    source: views.Source,
    division: Division,
    spec: scan.StreamSpec,
    *,
    seed: int,
    table: TableSpec = TableSpec(),
    default: str = "digits",
    kept: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Supply:
    """Read a data set in its supervised view, or look at all rows of a stream once.

    :param table: how the columns of `source.data` are read.
    :param default: the data set if `source` names nothing.
    :param kept: folder of the run that is resumed, see :meth:`Supply.keep`; None for a new one.
    :param progress: show a bar on standard error while a stream is looked at.
    :raises ValueError: as `views.load` and `scan.load`, and if a stream is to be cut to `max_rows`.
    """
    # Rows of a stream stay in their files, but for samples.
    if spec.stream:
        if division.max_rows is not None:
            raise ValueError("--max_rows is for data in memory; give --stream_sample for what is kept of a stream.")
        stored = None if kept is None else Path(kept).expanduser() / record.FILE
        stream = scan.load(
            spec,
            source,
            table=table,
            split=division.split,
            valid_fraction=division.valid_fraction,
            stored=stored,
            progress=progress,
        )
        return Supply(stream.rows, division.split, stream, spec.shuffle_rows)
    # Rows in memory, of which some are drawn.
    rows = views.load(
        source,
        "supervised",
        table=table,
        default=default,
        split=division.split,
        valid_fraction=division.valid_fraction,
        seed=seed,
    )
    some = {name: rows.some(name, division.max_rows, Seeds(seed), purpose="max_rows") for name in rows.parts}
    return Supply(replace(rows, parts=some), division.split)
