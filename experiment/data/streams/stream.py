"""Data larger than memory: one pass over the files, then batches that are pure functions of (seed, step).

    shards = open_shards("trips/*.parquet", layouts=preset.layouts)
    stream = scan(shards, preset)                       # counts, standardisation, samples; checks every value
    batch_at = BatchReader(stream, batch_size=10_000, seed=0)
    X, Y = batch_at(step)                               # raw units; any step, cheapest in order

The order of the rows: each epoch is a random permutation of the blocks of all files, cut into windows of several
blocks; the training rows of a window are read together and permuted; the windows one after the other, epoch after
epoch, are cut into batches. So each training row is used once in an epoch, the position in the stream is the number of
the step, and a resumed run reads on at the very row where the checkpoint was made. Memory does not grow with the
number of rows, but for 13 numbers for each block.

Whether a row is for training, validation or test depends on a hash of its file's name and its number in the file, so a
row keeps its part when files are added. Samples are the rows with the smallest values of another hash.
"""

import collections
import hashlib
import heapq
import json
import os
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import NDArray
from tqdm import tqdm

from experiment.data.rows import Indices, Part, Splits, Standardizer
from experiment.data.streams.presets import StreamPreset
from experiment.data.streams.shards import Shards
from experiment.files import atomic_path
from experiment.seeds import numpy_rng

__all__ = ["BatchReader", "Moments", "Stream", "load_scan", "save_scan", "scan"]

TRAIN, VALID, TEST, UNUSED, BAD = range(5)
PARTS = ("train", "valid", "test", "unused", "bad")

_READERS = 2
_MAX_CLASSES = 1_000
_VERSION = 1
_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean, sum of squared deviations and range of each column: what standardisation needs, mergeable."""

    count: int
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @classmethod
    def of(cls, array: NDArray[np.float64]) -> "Moments":
        """Those of `array` [n, D]."""
        if len(array) == 0:
            zeros = np.zeros(array.shape[1])
            return cls(0, zeros, zeros, zeros + np.inf, zeros - np.inf)
        mean = array.mean(axis=0)
        return cls(len(array), mean, np.square(array - mean).sum(axis=0), array.min(axis=0), array.max(axis=0))

    def merge(self, other: "Moments") -> "Moments":
        """Those of both sets of rows together; Chan, Golub and LeVeque (1979), Eq. (2.1)."""
        count = self.count + other.count
        if count == 0:
            return self
        change = other.mean - self.mean
        fraction = other.count / count
        return Moments(
            count,
            self.mean + change * fraction,
            self.squares + other.squares + np.square(change) * (self.count * fraction),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )

    def standardizer(self) -> Standardizer:
        """Mean and standard deviation (divisor n), as `Standardizer.fit` of all rows."""
        deviation = np.sqrt(self.squares / self.count)
        bound = 4 * np.finfo(np.float64).eps * np.maximum(np.abs(self.low), np.abs(self.high))
        is_constant = (self.low == self.high) | (deviation <= bound)
        mean, scale = np.where(is_constant, self.low, self.mean), np.where(is_constant, 1.0, deviation)
        return Standardizer(mean, scale, tuple(map(int, np.flatnonzero(is_constant))))


@dataclass(frozen=True, eq=False)
class Stream:
    """The result of :func:`scan`.

    :param shards: the files.
    :param preset: how their rows become inputs and targets.
    :param settings: what decides which part a row belongs to.
    :param num_train: number of training rows of each block.
    :param counts: rows of each kind: "train", "valid", "test", "unused" (by the preset), "bad" (dropped).
    :param x_scale: standardisation of the inputs, from all training rows.
    :param y_scale: standardisation of the targets, likewise; means nothing for labels.
    :param class_names: of the labels; () in regression.
    :param samples: at most `sample_rows` rows, drawn at random, of "train", "valid" and "test"; a part without rows
        is absent.
    :param sha256: fingerprint of the files' names and sizes, the settings and the moments of all rows.
    """

    shards: Shards
    preset: StreamPreset
    settings: dict[str, Any]
    num_train: Indices
    counts: dict[str, int]
    x_scale: Standardizer
    y_scale: Standardizer
    class_names: tuple[str, ...]
    samples: dict[str, Part]
    sha256: str

    def splits(self) -> Splits:
        """The samples with names, as in-memory data sets have them."""
        preset, settings = self.preset, self.settings
        return Splits(
            train=self.samples["train"],
            valid=self.samples.get("valid"),
            test=self.samples["test"],
            name=preset.name,
            task=preset.task,
            feature_names=preset.feature_names,
            target_name=preset.target_name,
            class_names=self.class_names,
            source=f"{len(self.shards.files)} {self.shards.format} files; {preset.source}",
            sha256=self.sha256,
            schema=None,
            split=settings["split"],
        )


def scan(
    shards: Shards,
    preset: StreamPreset,
    *,
    split: int = 0,
    valid_fraction: float = 0.1,
    test_fraction: float = 0.1,
    sample_rows: int = 100_000,
    progress: bool = False,
) -> Stream:
    """Read every row once: count, check and standardise.

    :param split: number of the split into training, validation and test rows.
    :param valid_fraction: of the rows that are not for testing.
    :param test_fraction: of all rows; not used by a preset that has test rows of its own.
    :param sample_rows: how many rows of each part to keep.
    :param progress: show a bar on standard error.
    :raises ValueError: naming the file and row of the first value that is NaN, infinite or no label (unless
        `shards.drop_bad_rows`); if a part would be empty; if a file cannot be read.
    """
    if not 0 <= valid_fraction < 1 or not 0 < test_fraction < 1 or sample_rows < 2:
        raise ValueError(
            "a stream needs 0 <= valid_fraction < 1, 0 < test_fraction < 1 and at least 2 sample rows, got "
            f"{valid_fraction}, {test_fraction} and {sample_rows}."
        )
    settings = {
        "version": _VERSION,
        "preset": preset.name,
        "columns": [list(preset.feature_names), preset.target_name, preset.task],
        "split": split,
        "valid_fraction": valid_fraction,
        "test_fraction": test_fraction,
        "sample_rows": sample_rows,
        "drop_bad_rows": shards.drop_bad_rows,
        "names": list(shards.names),
        "sizes": list(shards.sizes),
    }
    divide = _Divider(shards, preset, settings)
    counts = np.zeros(len(PARTS), dtype=np.int64)
    num_train = np.zeros(len(shards.blocks), dtype=np.int64)
    x_moments = y_moments = None
    samples: dict[int, _Sample] = {part: _Sample(sample_rows) for part in (TRAIN, VALID, TEST)}

    def look(number: int) -> tuple[Any, ...]:
        X, Y, part, order = divide(number)
        is_train = part == TRAIN
        by_part = {p: (order[part == p], X[part == p], Y[part == p]) for p in samples}
        moments = Moments.of(X[is_train]), Moments.of(Y[is_train])
        found = np.bincount(part, minlength=len(PARTS))
        if shards.drop_bad_rows:
            found[BAD] += shards.block(number).num_rows - len(X)  # lines that could not be read
        return found, moments, by_part

    bar = tqdm(total=len(shards.blocks), unit="block", desc="scan", disable=None if progress else True)
    with bar:
        for number, (found, moments, by_part) in enumerate(_in_order(look, range(len(shards.blocks)), _READERS)):
            counts += found
            num_train[number] = found[TRAIN]
            x_moments = moments[0] if x_moments is None else x_moments.merge(moments[0])
            y_moments = moments[1] if y_moments is None else y_moments.merge(moments[1])
            for part, rows in by_part.items():
                samples[part].add(*rows)
            bar.update()
    if x_moments is None or y_moments is None:
        raise ValueError("a stream must have blocks, got none; check the path.")
    named = {name: int(count) for name, count in zip(PARTS, counts, strict=True)}
    wanted = ("train", "test") if valid_fraction == 0 else PARTS[:3]
    empty = [name for name in wanted if named[name] == 0]
    if empty:
        raise ValueError(f"a stream must have {' and '.join(empty)} rows, got {named}; check the files and fractions.")
    if preset.task == "regression" and y_moments.standardizer().constant_columns:
        raise ValueError(f"the target {preset.target_name!r} must vary, got {y_moments.low[0]} in every training row.")
    if named["bad"]:
        logging.warning("%d of %d rows are damaged and left out.", named["bad"], counts.sum())
    kept = {PARTS[part]: sample.rows() for part, sample in samples.items() if named[PARTS[part]]}
    return _stream(shards, preset, settings, num_train, named, (x_moments, y_moments), kept)


def save_scan(stream: Stream, path: str | os.PathLike[str]) -> None:
    """Write what :func:`scan` found to an .npz file, so that a resumed run need not scan again."""
    arrays = {f"{name}/{key}": a for name, part in stream.samples.items() for key, a in part._asdict().items()}
    scales = {"x_scale": stream.x_scale.to_json(), "y_scale": stream.y_scale.to_json()}
    facts = {"settings": stream.settings, "counts": stream.counts, "classes": stream.class_names, **scales}
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, facts=json.dumps({**facts, "sha256": stream.sha256}), num_train=stream.num_train, **arrays)


def load_scan(path: str | os.PathLike[str], shards: Shards, preset: StreamPreset, **settings: Any) -> Stream | None:
    """What :func:`save_scan` wrote, if it is of these very files (names and sizes) and settings; else None."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = dict(stored)
        facts = json.loads(str(arrays.pop("facts")))
        found = facts["settings"]
        given = {**settings, "preset": preset.name, "names": list(shards.names), "sizes": list(shards.sizes)}
        if any(found[key] != value for key, value in given.items()) or found["version"] != _VERSION:
            return None
        num_train = arrays.pop("num_train")
        samples = {name: Part(arrays[f"{name}/X"], arrays[f"{name}/Y"]) for name in PARTS if f"{name}/X" in arrays}
        x_scale, y_scale = (Standardizer.from_json(facts[key]) for key in ("x_scale", "y_scale"))
        classes, sha256 = tuple(facts["classes"]), str(facts["sha256"])
        counts = dict(facts["counts"])
        return Stream(shards, preset, found, num_train, counts, x_scale, y_scale, classes, samples, sha256)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None  # absent, or cut short: scan again


class BatchReader:
    """Batches of training rows, read and permuted by a `tf.data` pipeline beside the training step.

    :param stream: what :func:`scan` returned.
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
        self._stream, self._transform, self._batch_size = stream, transform, batch_size
        self._seed, self._lane = seed, f"{lane}/{num_lanes}"
        self._blocks = _lanes(stream.num_train, num_lanes)[lane]
        self._rows_per_epoch = int(stream.num_train[self._blocks].sum())
        if self._rows_per_epoch < batch_size:
            raise ValueError(
                f"a stream must have at least the {batch_size} training rows of a batch"
                f"{f' in each of {num_lanes} lanes' if num_lanes > 1 else ''}, got {self._rows_per_epoch}; lower "
                "--batch_size, or give the table with --data, without --stream."
            )
        mean_rows = self._rows_per_epoch / len(self._blocks)
        self._blocks_per_window = max(1, round(shuffle_rows / mean_rows))
        self._windows_per_epoch = -(-len(self._blocks) // self._blocks_per_window)
        if self._windows_per_epoch > 1 and self._blocks_per_window < 4:
            logging.warning(
                "--shuffle_rows=%d is less than four blocks of %d rows, so neighbouring rows share a batch; give a "
                "larger number, or write files with smaller row groups.",
                *(shuffle_rows, mean_rows),
            )
        self._divide = _Divider(stream.shards, stream.preset, stream.settings)
        part = self._window(0, 0, slice(0, 1))
        self._signature = tuple(tf.TensorSpec([None, a.shape[1]], a.dtype) for a in part)
        self._next_step = -1
        self._batches: Iterator[Any] = iter(())
        self._failure: ValueError | None = None
        self.wait_seconds = 0.0

    def __call__(self, step: int) -> tuple[tf.Tensor, tf.Tensor]:
        """The batch of a step: inputs [batch_size, D] and targets [batch_size, P].

        :raises ValueError: naming the file, if one has become unreadable or was changed since the scan.
        """
        start = time.monotonic()
        if step != self._next_step:
            self._batches = iter(self._dataset(step))
        try:
            batch = next(self._batches)
        except tf.errors.OpError:
            self._next_step = -1
            if self._failure is not None:
                raise self._failure from None
            raise
        self._next_step = step + 1
        self.wait_seconds += time.monotonic() - start
        return batch

    def _dataset(self, step: int) -> tf.data.Dataset:
        epoch, offset = divmod(step * self._batch_size, self._rows_per_epoch)
        ends = np.cumsum(self._window_rows(epoch))
        first = int(np.searchsorted(ends, offset, side="right"))
        skipped = offset - (int(ends[first - 1]) if first else 0)
        first += epoch * self._windows_per_epoch
        self._failure = None

        def read(number: Any) -> tuple[NDArray[Any], ...]:
            try:
                start = skipped if number == first else 0
                return tuple(self._window(*divmod(int(number), self._windows_per_epoch), slice(start, None)))
            except Exception as error:
                self._failure = error if isinstance(error, ValueError) else ValueError(f"the stream failed: {error}")
                raise

        def window(number: tf.Tensor) -> tuple[tf.Tensor, ...]:
            arrays = tf.numpy_function(read, [number], [spec.dtype for spec in self._signature])
            return tuple(tf.ensure_shape(a, spec.shape) for a, spec in zip(arrays, self._signature, strict=True))

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
        start = window * self._blocks_per_window
        blocks = self._order(epoch)[start : start + self._blocks_per_window]
        parts = list(_in_order(self._train_rows, blocks, _READERS))
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


class _Divider:
    """Block number -> X [n, D], Y [n, P], the part of each row and its place in the order of samples, int and uint."""

    def __init__(self, shards: Shards, preset: StreamPreset, settings: dict[str, Any]) -> None:
        self._shards, self._preset, self._settings = shards, preset, settings
        self._first_test = np.inf
        if preset.num_test_rows:
            rows = shards.blocks[:, 4]
            self._first_test = int(rows.sum()) - preset.num_test_rows
            self._starts = np.cumsum(rows) - rows

    def __call__(self, number: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        block = self._shards.block(number)
        X, Y, is_used = self._preset.rows(self._shards.read(number))
        rows = block.first_row + np.arange(len(X))
        settings, name = self._settings, self._shards.names[block.file]
        part = np.full(len(X), TRAIN)
        part[_uniform(f"valid/{settings['split']}/{name}", rows) < settings["valid_fraction"]] = VALID
        if self._preset.num_test_rows:
            part[self._starts[number] + np.arange(len(X)) >= self._first_test] = TEST
        else:
            part[_uniform(f"test/{settings['split']}/{name}", rows) < settings["test_fraction"]] = TEST
        is_good = np.isfinite(X).all(axis=1) & np.isfinite(Y).all(axis=1)
        if self._preset.task != "regression":
            is_good &= (Y[:, 0] >= 0) & (Y[:, 0] < self._num_classes()) & (Y[:, 0] % 1 == 0)
        if not self._shards.drop_bad_rows and not is_good[is_used].all():
            self._raise(number, X, Y, is_used & ~is_good)
        part[~is_good] = BAD
        part[~is_used] = UNUSED
        return X, Y, part, _hash(f"sample/{name}", rows)

    def _num_classes(self) -> int:
        return len(self._preset.class_names) or (2 if self._preset.task == "binary" else _MAX_CLASSES)

    def _raise(self, number: int, X: NDArray[Any], Y: NDArray[Any], is_bad: NDArray[np.bool_]) -> None:
        block, preset = self._shards.block(number), self._preset
        row = int(np.argmax(is_bad))
        values = np.concatenate([X[row], Y[row]])
        names = (*preset.feature_names, *[preset.target_name] * Y.shape[1])
        column = int(np.argmax(~np.isfinite(values))) if not np.isfinite(values).all() else X.shape[1]
        wanted = "a number" if preset.task == "regression" or column < X.shape[1] else "a label 0, 1, ..."
        if preset.task == "binary" and column == X.shape[1]:
            wanted = "a label 0 or 1"
        raise ValueError(
            f"{self._shards.files[block.file]} row {block.first_row + row} (from 0): {names[column]!r} must be "
            f"{wanted}, got {values[column]:g} ({int(is_bad.sum())} such rows in this block); put in a value, or leave "
            "such rows out with --bad_rows=drop."
        )


class _Sample:
    """The rows with the `size` smallest hashes of those added."""

    def __init__(self, size: int) -> None:
        self._size, self._pieces, self._held, self._bound = size, [], 0, np.uint64(2**64 - 1)

    _pieces: list[tuple[NDArray[Any], ...]]

    def add(self, order: NDArray[np.uint64], X: NDArray[Any], Y: NDArray[Any]) -> None:
        is_small = order <= self._bound
        self._pieces.append((order[is_small], X[is_small], Y[is_small]))
        self._held += int(is_small.sum())
        if self._held >= 2 * self._size:
            self._reduce()

    def rows(self) -> Part:
        self._reduce()
        _, X, Y = self._pieces[0]
        return Part(X, Y)

    def _reduce(self) -> None:
        order, X, Y = (np.concatenate(arrays) for arrays in zip(*self._pieces, strict=True))
        smallest = np.argsort(order, kind="stable")[: self._size]
        self._pieces = [(order[smallest], X[smallest], Y[smallest])]
        self._held = len(smallest)
        if self._held == self._size:
            self._bound = order[smallest[-1]]


def _stream(
    shards: Shards,
    preset: StreamPreset,
    settings: dict[str, Any],
    num_train: Indices,
    counts: dict[str, int],
    moments: tuple[Moments, Moments],
    samples: dict[str, Part],
) -> Stream:
    x_scale, y_scale = (m.standardizer() for m in moments)
    class_names = preset.class_names
    if preset.task != "regression":
        Y = moments[1]
        num_classes = 2 if preset.task == "binary" else int(Y.high[0]) + 1
        if Y.low[0] == Y.high[0]:
            raise ValueError(f"the target {preset.target_name!r} must vary, but every training label is {Y.low[0]:g}.")
        class_names = class_names or tuple(map(str, range(num_classes)))
        for name, part in samples.items():
            if len(part.Y) and part.Y.max() >= len(class_names):
                raise ValueError(f"the {name} rows have labels up to {part.Y.max():g}, which no training row has.")
        samples = {name: Part(part.X, part.Y.astype(np.int64)) for name, part in samples.items()}
    digest = hashlib.sha256(json.dumps([settings, counts], sort_keys=True).encode())
    for array in (num_train, *(a for m in moments for a in (m.mean, m.squares, m.low, m.high))):
        digest.update(np.ascontiguousarray(array, dtype="<i8" if array.dtype.kind == "i" else "<f8").tobytes())
    sha256 = digest.hexdigest()
    return Stream(shards, preset, settings, num_train, counts, x_scale, y_scale, class_names, samples, sha256)


def _lanes(num_train: Indices, num_lanes: int) -> list[Indices]:
    """Numbers of the blocks with training rows, dealt so that each lane has about as many rows: largest block first."""
    blocks = np.flatnonzero(num_train)
    if len(blocks) < num_lanes:
        raise ValueError(
            f"{num_lanes} workers need as many blocks of rows, the stream has {len(blocks)}; write smaller row groups."
        )
    heap = [(0, lane) for lane in range(num_lanes)]
    lanes: list[list[int]] = [[] for _ in range(num_lanes)]
    for block in blocks[np.argsort(-num_train[blocks], kind="stable")]:
        rows, lane = heapq.heappop(heap)
        lanes[lane].append(int(block))
        heapq.heappush(heap, (rows + int(num_train[block]), lane))
    return [np.sort(np.array(lane, dtype=np.int64)) for lane in lanes]


def _hash(name: str, rows: Indices) -> NDArray[np.uint64]:
    """A hash of each row number: the finaliser of SplitMix64 (Steele, Lea and Flood, 2014), keyed by `name`."""
    key = np.uint64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))
    z = (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + key
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def _uniform(name: str, rows: Indices) -> NDArray[np.float64]:
    return np.asarray((_hash(name, rows) >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def _in_order(function: Callable[[_T], _R], arguments: Iterable[_T], num_threads: int) -> Iterator[_R]:
    """`map(function, arguments)` with a few calls at once."""
    with ThreadPoolExecutor(num_threads) as pool:
        running: collections.deque[Future[_R]] = collections.deque()
        for argument in arguments:
            running.append(pool.submit(function, argument))
            if len(running) > num_threads:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
