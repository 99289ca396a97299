"""Rows to learn from, wherever they are: a data set in memory, or files that are read piece by piece.

supply = load(Source(data="houses.csv"), Division(), StreamSpec(), table=TableSpec(target=("price",)), seed=0)
supply.parts["test"].Y, supply.sizes
batch_at = supply.batches(supply.rows.train, batch_size=1000, seed=0)
X, Y = batch_at(step)
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gpflow_deep_base.seeds import Seeds
from gpflow_deep_runs.data import views
from gpflow_deep_runs.data.batches import ArrayBatches
from gpflow_deep_runs.data.rows import Part, Rows, Task
from gpflow_deep_runs.data.streams import record, scan
from gpflow_deep_runs.data.streams.reader import BatchReader
from gpflow_deep_runs.data.streams.stream import Stream
from gpflow_deep_runs.data.table.spec import TableSpec

__all__ = ["Division", "Supply", "load"]


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

    def about(self) -> dict[str, Any]:
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
