"""The one pass over all rows of a stream before training, and the flags that say which stream.

stream = load(StreamSpec(stream=True), Source(data="trips/*.parquet"), table=TableSpec(target=("fare",)))
record.save(stream, run.path / record.FILE)             # a resumed run need not look at all rows again
"""

import hashlib
import json
import os
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
from absl import logging
from numpy.typing import NDArray
from tqdm import tqdm

from gpflow_deep_runs.data.rows import Indices, Part, warn_of_few
from gpflow_deep_runs.data.streams import own, record
from gpflow_deep_runs.data.streams.files import Shards, open_shards
from gpflow_deep_runs.data.streams.moments import Moments, Sample
from gpflow_deep_runs.data.streams.presets import PRESETS, StreamPreset
from gpflow_deep_runs.data.streams.stream import (
    PARTS,
    TEST,
    TRAIN,
    VALID,
    BlockRows,
    Divider,
    Settings,
    Stream,
    in_order,
)
from gpflow_deep_runs.data.table.spec import TableSpec
from gpflow_deep_runs.data.table.survey import check_missing
from gpflow_deep_runs.data.views import Source

__all__ = ["StreamSpec", "load", "scan"]


@dataclass(frozen=True)
class StreamSpec:
    """Data that are read piece by piece.

    :param stream: read the Parquet files of --data (or a folder, a pattern) piece by piece, in place of at once;
        gpflow-deep convert writes them from others.
    :param stream_preset: what the files of --stream hold; your own table if not given.
    :param lookup: the small table that --stream_preset needs: planes, or taxi zones.
    :param test_fraction: part of the rows of --stream to set aside for tests.
    :param stream_sample: rows of each part of --stream to keep in memory, for inducing inputs and scores.
    :param shuffle_rows: rows of --stream to permute together, in memory.
    """

    stream: bool = False
    stream_preset: Literal["taxi", "airline", "airline_nyc", "susy", "higgs"] | None = None
    lookup: str | None = None
    test_fraction: float = 0.1
    stream_sample: int = 100_000
    shuffle_rows: int = 2**18

    def __post_init__(self) -> None:
        flags = [f.name for f in fields(self) if getattr(self, f.name) != f.default]
        if flags and not self.stream:
            raise ValueError(f"--{flags[0]} describes a stream; give --stream too, or leave it out.")
        if not 0 < self.test_fraction < 1:
            raise ValueError(f"--test_fraction must be above 0 and below 1, got {self.test_fraction}.")
        if self.stream_sample < 2 or self.shuffle_rows < 1:
            raise ValueError(
                "--stream_sample must be at least 2 and --shuffle_rows at least 1, got "
                f"{self.stream_sample} and {self.shuffle_rows}."
            )


def load(
    spec: StreamSpec,
    source: Source,
    *,
    table: TableSpec = TableSpec(),
    split: int = 0,
    valid_fraction: float = 0.1,
    stored: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Stream:
    """Look at all rows of `source.data` once.

    :param table: which columns are read, and how.
    :param split: number of the split into training, validation and test rows; `valid_fraction` as in :func:`scan`.
    :param stored: what `record.save` wrote for a run that is resumed; it is used if it is of these very files.
    :param progress: show a bar on standard error.
    :raises ValueError: if flags do not go together, or as `open_shards` and :func:`scan`.
    """
    if source.data is None:
        raise ValueError("--stream reads the files of --data; give their folder or pattern.")
    # Columns that an earlier pass has found out need not be looked at again.
    schema = None if stored is None or spec.stream_preset else record.load_schema(stored, table)
    if spec.stream_preset is not None:
        shards, preset = _known(spec, source.data, table)
    elif schema is not None:
        shards, preset = own.reopen(source.data, table, schema)
    else:
        shards, preset = own.open_table(source.data, table, progress=progress)
    # Neither need its rows, if the files are the same and are divided alike.
    settings = _settings(shards, preset, split, valid_fraction, spec.test_fraction, spec.stream_sample)
    stream = None if stored is None else record.load_stored(stored, shards, preset, settings)
    if stream is None and schema is not None:  # of other files
        shards, preset = own.open_table(source.data, table, progress=progress)
    stream = stream or scan(
        shards,
        preset,
        split=split,
        valid_fraction=valid_fraction,
        test_fraction=spec.test_fraction,
        sample_rows=spec.stream_sample,
        progress=progress,
    )
    warn_of_few(stream.rows)
    return stream


def _known(spec: StreamSpec, pattern: str, table: TableSpec) -> tuple[Shards, StreamPreset]:
    """Files and columns of a known data set."""
    if said := [name for name in table.given() if name != "bad_rows"]:
        raise ValueError(f"--{said[0]} describes your own table; leave it out, or --stream_preset.")
    preset = PRESETS[str(spec.stream_preset)](spec.lookup)
    is_dropping = table.bad_rows == "drop"
    shards = open_shards(pattern, layouts=preset.layouts, drop_bad_rows=is_dropping)
    return shards, preset


def _settings(
    shards: Shards, preset: StreamPreset, split: int, valid_fraction: float, test_fraction: float, sample_rows: int
) -> Settings:
    return {
        "version": record.VERSION,
        "preset": preset.name,
        "table": record.table_to_json(preset.table),
        "columns": [list(preset.feature_names), list(preset.target_names), preset.task, list(preset.class_names)],
        "split": split,
        "valid_fraction": valid_fraction,
        "test_fraction": test_fraction,
        "sample_rows": sample_rows,
        "drop_bad_rows": shards.drop_bad_rows,
        "names": list(shards.names),
        "sizes": list(shards.sizes),
    }


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
    settings = _settings(shards, preset, split, valid_fraction, test_fraction, sample_rows)
    # Blocks are read beside each other, and added up in their order.
    divide = Divider(shards, preset, settings, may_miss=preset.schema is not None)
    found = _Found(shards, preset, sample_rows)
    num_blocks = len(shards.blocks)
    blocks = in_order(divide, range(num_blocks))
    bar = tqdm(blocks, "scan", num_blocks, unit="block", disable=None if progress else True)
    for number, rows in enumerate(bar):
        found.add(number, rows)
    return _stream(shards, preset, settings, found)


class _Found:
    """What is found in the blocks up to now.

    `counts` are the rows of each of `PARTS` in each block, `x` and `y` the moments of training rows, `missing` [D + P]
    the values of X and Y that are missing, and `first_missing` the first such row, by its file and its number there.
    """

    def __init__(self, shards: Shards, preset: StreamPreset, sample_rows: int) -> None:
        self._shards = shards
        self._preset = preset
        num_inputs = len(preset.feature_names)
        num_targets = len(preset.target_names)
        self.counts: list[NDArray[np.int64]] = []
        self.x = Moments.of(np.empty((0, num_inputs)))
        self.y = Moments.of(np.empty((0, num_targets)))
        self.missing = np.zeros(num_inputs + num_targets, np.int64)
        self.first_missing: tuple[str, int] | None = None
        self.feet: list[own.Foot] = []
        # Rows of each part with the smallest hashes.
        self.samples = {part: Sample(sample_rows) for part in (TRAIN, VALID, TEST)}

    def add(self, number: int, rows: BlockRows) -> None:
        X, Y, part, order = rows
        self.counts.append(np.bincount(part, minlength=len(PARTS)))
        # Samples of each part, and moments of what is learned from.
        for number_of_part, sample in self.samples.items():
            chosen = part == number_of_part
            sample.add(order[chosen], X[chosen], Y[chosen])
        self.x = self.x.merge(Moments.of(X[part == TRAIN]))
        self.y = self.y.merge(Moments.of(Y[part == TRAIN]))
        # Missing values of the rows that belong to a part.
        if np.isnan(X.min(initial=0.0)) or np.isnan(Y.min(initial=0.0)):
            is_missing = np.isnan(np.concatenate([X, Y], axis=1)) & np.isin(part, (TRAIN, VALID, TEST))[:, None]
            self.missing += is_missing.sum(axis=0)
            if self.first_missing is None and is_missing.any():
                block = self._shards.block(number)
                row = block.first_row + int(is_missing.any(axis=1).argmax())
                self.first_missing = (self._shards.files[block.file], row)
        # What a total at the foot of a file would have summed up.
        if (foot := own.foot_of(self._shards, self._preset, number, X, Y)) is not None:
            is_same_file = bool(self.feet) and self.feet[-1].file == foot.file
            self.feet.append(self.feet.pop().merge(foot) if is_same_file else foot)


def _check_missing(preset: StreamPreset, found: _Found) -> None:
    """:raises ValueError: with the count of each column, if values are missing and are not to be imputed."""
    if found.first_missing is None or preset.schema is None or preset.schema.missing == "impute":
        return
    path, row = found.first_missing
    where = f"the stream (first in {path} row {row}, from 0)"
    names = (*preset.feature_names, *preset.target_names)
    check_missing(dict(zip(names, map(int, found.missing), strict=True)), where)


def _stream(shards: Shards, preset: StreamPreset, settings: Settings, found: _Found) -> Stream:
    """All that was found, checked: parts that have rows, a target that varies, labels that occur in training."""
    _check_missing(preset, found)
    own.check_feet(shards, found.feet)
    # Rows of each part, none of which may be empty.
    table = np.array(found.counts, np.int64)
    counts = {name: int(count) for name, count in zip(PARTS, table.sum(axis=0), strict=True)}
    required_parts = ("train", "test") if settings["valid_fraction"] == 0 else PARTS[:3]
    empty = [name for name in required_parts if counts[name] == 0]
    if empty:
        raise ValueError(f"a stream must have {' and '.join(empty)} rows, got {counts}; check the files and fractions.")
    x = found.x
    y = found.y
    if preset.task == "regression" and (constant := y.scale().constant_columns):
        name = preset.target_names[constant[0]]
        raise ValueError(f"the target {name!r} must vary, got {y.low[constant[0]]} in every training row.")
    if counts["bad"]:
        logging.warning("%d of %d rows cannot be read or miss values, and are left out.", counts["bad"], table.sum())
    # The samples, with labels as whole numbers.
    samples = {PARTS[part]: sample.rows() for part, sample in found.samples.items() if counts[PARTS[part]]}
    class_names = _class_names(preset, y, samples)
    if class_names:
        samples = {name: Part(part.X, part.Y.astype(np.int64)) for name, part in samples.items()}
    # Values that may stand for missing ones, before means are put in for these.
    own.check_sentinels(preset, samples["train"], (x, y))
    preset = own.completed(preset, np.where(x.count > 0, x.mean, np.nan))
    # What is put in counts in the moments, too.
    if preset.schema is not None and found.first_missing is not None:
        x = x.merge(Moments.constant(counts["train"] - x.count, np.array(preset.schema.fills)))
        samples = {name: Part(preset.schema.filled(part.X), part.Y) for name, part in samples.items()}
    num_train = table[:, TRAIN].copy()
    sha256 = _fingerprint(settings, counts, num_train, (x, y))
    return Stream(shards, preset, settings, num_train, counts, x.scale(), y.scale(), class_names, samples, sha256)


def _class_names(preset: StreamPreset, y: Moments, samples: dict[str, Part]) -> tuple[str, ...]:
    if preset.task == "regression":
        return ()
    if y.low[0] == y.high[0]:
        raise ValueError(f"the target {preset.target_names[0]!r} must vary, but every training label is {y.low[0]:g}.")
    # Without names of its own a label is called by its number.
    num_classes = 2 if preset.task == "binary" else int(y.high[0]) + 1
    names = preset.class_names or tuple(map(str, range(num_classes)))
    for name, part in samples.items():
        if len(part.Y) and part.Y.max() >= len(names):
            raise ValueError(f"the {name} rows have labels up to {part.Y.max():g}, which no training row has.")
    return names


def _fingerprint(
    settings: Settings, counts: dict[str, int], num_train: Indices, moments: tuple[Moments, Moments]
) -> str:
    digest = hashlib.sha256(json.dumps([settings, counts], sort_keys=True).encode())
    for array in (num_train, *(a for m in moments for a in (m.mean, m.squares, m.low, m.high))):
        digest.update(np.ascontiguousarray(array, dtype="<i8" if array.dtype.kind == "i" else "<f8").tobytes())
    return digest.hexdigest()
