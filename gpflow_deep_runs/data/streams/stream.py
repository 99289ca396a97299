"""Data larger than memory: one pass over the files, then batches that are pure functions of (seed, step).

    shards = open_shards("trips/*.parquet", layouts=preset.layouts)
    stream = scan(shards, preset)                       # counts, standardisation, samples; checks every value
    batch_at = BatchReader(stream, batch_size=10_000, seed=0)
    X, Y = batch_at(step)                               # raw units; any step, cheapest in order

Whether a row is for training, validation or test depends on a hash of its file's name and its number in the file, so a
row keeps its part when files are added. Samples are the rows with the smallest values of another hash. Memory does not
grow with the number of rows, but for 13 numbers for each block.
"""

import collections
import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data.rows import Indices, Part, Rows
from gpflow_deep_runs.data.streams.files import Shards
from gpflow_deep_runs.data.streams.moments import Scale
from gpflow_deep_runs.data.streams.presets import StreamPreset

__all__ = ["BAD", "PARTS", "TEST", "TRAIN", "UNUSED", "VALID", "BlockRows", "Divider", "Settings", "Stream"]
__all__ += ["in_order"]

TRAIN, VALID, TEST, UNUSED, BAD = range(5)
"""Numbers of the parts: rows to learn from, to choose by and to report; those the preset leaves out; damaged ones."""

PARTS = ("train", "valid", "test", "unused", "bad")
"""Their names."""

_NUM_THREADS = 2
_MAX_CLASSES = 1_000
_T = TypeVar("_T")
_R = TypeVar("_R")


class Settings(TypedDict):
    """What decides which part a row belongs to, as JSON holds it; see `scan.scan`, of which `version` is one.

    `table` is what the user says of a table, and `columns` are names of inputs and targets, task and classes.
    """

    version: int
    preset: str
    table: object
    columns: list[object]
    split: int
    valid_fraction: float
    test_fraction: float
    sample_rows: int
    drop_bad_rows: bool
    names: list[str]
    sizes: list[int]


@dataclass(frozen=True, eq=False)
class Stream:
    """The result of `scan.scan`.

    :param shards: the files.
    :param preset: how their rows become inputs and targets.
    :param settings: what decides which part a row belongs to.
    :param num_train: number of training rows of each block.
    :param counts: rows of each kind: "train", "valid", "test", "unused" (by the preset), "bad" (dropped).
    :param x_scale: mean and standard deviation of the inputs, of all training rows.
    :param y_scale: those of the targets; means nothing for labels.
    :param class_names: of the labels; () in regression.
    :param samples: at most `sample_rows` rows, drawn at random, of "train", "valid" and "test"; a part without rows
        is absent.
    :param sha256: fingerprint of the files' names and sizes, the settings and the moments of all rows.
    """

    shards: Shards
    preset: StreamPreset
    settings: Settings
    num_train: Indices
    counts: dict[str, int]
    x_scale: Scale
    y_scale: Scale
    class_names: tuple[str, ...]
    samples: dict[str, Part]
    sha256: str

    @property
    def rows(self) -> Rows:
        """The samples, as a data set in memory."""
        preset = self.preset
        return Rows(
            preset.name,
            {name: self.samples[name] for name in PARTS if name in self.samples},
            preset.task,
            f"{len(self.shards.files)} parquet files; {preset.source}",
            self.sha256,
            feature_names=preset.feature_names,
            target_names=preset.target_names,
            class_names=self.class_names,
            schema=preset.schema,
        )


class BlockRows(NamedTuple):
    """All rows of a block: inputs [n, D], targets [n, P], and for each row its part and its place in samples, [n]."""

    X: NDArray[np.float64]
    Y: NDArray[np.float64]
    part: NDArray[np.int64]
    order: NDArray[np.uint64]


class Divider:
    """The rows of a block by its number, divided into parts; checks their values.

    :param settings: "split", "valid_fraction" and "test_fraction" of a :class:`Stream`.
    :param may_miss: whether NaN is a missing value, which somebody else refuses or puts in.
    """

    def __init__(self, shards: Shards, preset: StreamPreset, settings: Settings, *, may_miss: bool = False) -> None:
        self._shards = shards
        self._preset = preset
        self._settings = settings
        self._may_miss = may_miss
        rows = shards.blocks[:, 3]
        self._starts = np.cumsum(rows) - rows
        self._first_test = int(rows.sum()) - preset.num_test_rows

    def __call__(self, number: int) -> BlockRows:
        """:raises ValueError: naming the file and row of a value that is NaN, infinite or no label."""
        block = self._shards.block(number)
        X, Y, is_used, is_bad = self._preset.select(self._shards, number)
        rows = block.first_row + np.arange(len(X))
        # Rows whose values are numbers, and labels where there are classes.
        is_good = self._is_good(X).all(axis=1) & self._is_good(Y).all(axis=1)
        if self._preset.task != "regression":
            is_good &= (Y[:, 0] >= 0) & (Y[:, 0] < self._num_classes()) & (Y[:, 0] % 1 == 0)
        if is_bad is not None:
            is_good &= ~is_bad
        if not self._shards.drop_bad_rows and not is_good[is_used].all():
            self._raise(number, X, Y, is_used & ~is_good)
        # The part of each row, unless it cannot be read or is left out.
        part = self._parts(number, rows)
        part[~is_good] = BAD
        part[~is_used] = UNUSED
        return BlockRows(X, Y, part, _hash(f"sample/{self._shards.names[block.file]}", rows))

    def _is_good(self, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        return ~np.isinf(values) if self._may_miss else np.isfinite(values)

    def _parts(self, number: int, rows: Indices) -> NDArray[np.int64]:
        """TRAIN, VALID or TEST for each of the rows of a block."""
        settings = self._settings
        name = self._shards.names[self._shards.block(number).file]
        # A hash of the file's name and the row's number, as a uniform number, decides.
        part = np.full(len(rows), TRAIN)
        part[_uniform(f"valid/{settings['split']}/{name}", rows) < settings["valid_fraction"]] = VALID
        if self._preset.num_test_rows:
            part[self._starts[number] + np.arange(len(rows)) >= self._first_test] = TEST
        else:
            part[_uniform(f"test/{settings['split']}/{name}", rows) < settings["test_fraction"]] = TEST
        return part

    def _num_classes(self) -> int:
        # As many as there are names, or as labels may be.
        return len(self._preset.class_names) or (2 if self._preset.task == "binary" else _MAX_CLASSES)

    def _raise(self, number: int, X: np.ndarray, Y: np.ndarray, is_bad: NDArray[np.bool_]) -> None:
        block = self._shards.block(number)
        preset = self._preset
        # The first bad row, and the first of its values that is none.
        row = int(np.argmax(is_bad))
        values = np.concatenate([X[row], Y[row]])
        names = (*preset.feature_names, *preset.target_names)
        column = int(np.argmax(~np.isfinite(values))) if not np.isfinite(values).all() else X.shape[1]
        # A target of classes has labels.
        expected = "a number" if preset.task == "regression" or column < X.shape[1] else "a label 0, 1, ..."
        if preset.task == "binary" and column == X.shape[1]:
            expected = "a label 0 or 1"
        raise ValueError(
            f"{self._shards.files[block.file]} row {block.first_row + row} (from 0): {names[column]!r} must be "
            f"{expected}, got {values[column]:g} ({int(is_bad.sum())} such rows in this block); put in a value, or "
            "leave such rows out with --bad_rows=drop."
        )


def in_order(function: Callable[[_T], _R], arguments: Iterable[_T], *, ahead: int = _NUM_THREADS) -> Iterator[_R]:
    """`map(function, arguments)`, of which a few calls run ahead in threads; there may be no end of arguments."""
    with ThreadPoolExecutor(ahead) as pool:
        # Results come in the order of the arguments.
        running: collections.deque[Future[_R]] = collections.deque()
        for argument in arguments:
            running.append(pool.submit(function, argument))
            if len(running) > ahead:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def _hash(name: str, rows: Indices) -> NDArray[np.uint64]:
    """A hash of each row number: the finaliser of SplitMix64 (Steele, Lea and Flood, 2014), keyed by `name`."""
    key = np.uint64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))
    # The state of SplitMix64 after n + 1 steps from the key, and then the finaliser.
    z = (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + key
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def _uniform(name: str, rows: Indices) -> NDArray[np.float64]:
    return np.asarray((_hash(name, rows) >> np.uint64(11)).astype(np.float64) * 2.0**-53)
