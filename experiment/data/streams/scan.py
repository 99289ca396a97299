"""The one pass over all rows of a stream before training, and the flags that say which stream.

stream = load(StreamSpec(stream=True, test_fraction=0.2), Source(data="trips/*.parquet", target="fare"))
save(stream, run.path / FILE)                       # a resumed run need not look at all rows again
"""

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

import numpy as np
from absl import logging
from numpy.typing import NDArray
from tqdm import tqdm

from experiment.data.rows import Indices, Part
from experiment.data.streams.moments import Moments, Sample, Scale
from experiment.data.streams.presets import PRESETS, StreamPreset, numeric
from experiment.data.streams.shards import Shards, open_shards
from experiment.data.streams.stream import BAD, PARTS, TEST, TRAIN, VALID, Divider, Stream, in_order
from experiment.data.views import Source
from experiment.files import atomic_path

__all__ = ["FILE", "StreamSpec", "load", "load_stored", "save", "scan"]

FILE = "stream.npz"
"""What :func:`save` writes to, in the folder of a run."""

_VERSION = 1


@dataclass(frozen=True)
class StreamSpec:
    """Data that are read piece by piece.

    :param stream: read the files of --data (or a folder, a pattern) piece by piece, in place of at once.
    :param stream_preset: what the files of --stream hold; columns of numbers if not given.
    :param lookup: the small table that --stream_preset needs: planes, or taxi zones.
    :param features: input columns of --stream; all but the target if not given.
    :param test_fraction: part of the rows of --stream to set aside for tests.
    :param stream_sample: rows of each part of --stream to keep in memory, for inducing inputs and scores.
    :param shuffle_rows: rows of --stream to permute together, in memory.
    :param bad_rows: what to do with damaged rows of --stream.
    """

    stream: bool = False
    stream_preset: Literal["taxi", "airline", "airline_nyc", "susy", "higgs"] | None = None
    lookup: str | None = None
    features: tuple[str, ...] | None = None
    test_fraction: float = 0.1
    stream_sample: int = 100_000
    shuffle_rows: int = 2**18
    bad_rows: Literal["error", "drop"] = "error"

    def __post_init__(self) -> None:
        given = [f.name for f in fields(self) if getattr(self, f.name) != f.default]
        if given and not self.stream:
            raise ValueError(f"--{given[0]} describes a stream; give --stream too, or leave it out.")
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
    split: int = 0,
    valid_fraction: float = 0.1,
    stored: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Stream:
    """Look at all rows of `source.data` once.

    :param split: number of the split into training, validation and test rows; `valid_fraction` as in :func:`scan`.
    :param stored: what :func:`save` wrote for a run that is resumed; it is used if it is of these very files.
    :param progress: show a bar on standard error.
    :raises ValueError: if flags do not go together, or as `open_shards` and :func:`scan`.
    """
    if source.data is None:
        raise ValueError("--stream reads the files of --data; give their folder or pattern.")
    if spec.stream_preset is None:
        preset = numeric(source.data, target=source.target, task=source.task, features=spec.features)
    elif source.target is not None or source.task is not None or spec.features is not None:
        raise ValueError("--target, --task and --features describe other files than those of --stream_preset.")
    else:
        preset = PRESETS[spec.stream_preset](spec.lookup)
    drop_bad_rows = spec.bad_rows == "drop"
    shards = open_shards(source.data, layouts=preset.layouts, header=preset.header, drop_bad_rows=drop_bad_rows)
    settings: dict[str, Any] = {
        "split": split,
        "valid_fraction": valid_fraction,
        "test_fraction": spec.test_fraction,
        "sample_rows": spec.stream_sample,
    }
    found = None if stored is None else load_stored(stored, shards, preset, **settings)
    return found or scan(shards, preset, progress=progress, **settings)


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
    divide, found = Divider(shards, preset, settings), _Found(sample_rows)
    blocks = range(len(shards.blocks))
    looks = in_order(lambda number: _look(divide, shards, number), blocks)
    for look in tqdm(looks, total=len(blocks), unit="block", desc="scan", disable=None if progress else True):
        found.add(look)
    return _stream(shards, preset, settings, found)


def save(stream: Stream, path: str | os.PathLike[str]) -> None:
    """Write what :func:`scan` found to an .npz file, so that a resumed run need not scan again."""
    arrays = {f"{name}/{key}": a for name, part in stream.samples.items() for key, a in part._asdict().items()}
    scales = {"x_scale": _scale_to_json(stream.x_scale), "y_scale": _scale_to_json(stream.y_scale)}
    facts = {"settings": stream.settings, "counts": stream.counts, "classes": stream.class_names, **scales}
    content = io.BytesIO()  # a zip file that is cut short by a full disk would be closed again, with a traceback
    np.savez(content, facts=json.dumps({**facts, "sha256": stream.sha256}), num_train=stream.num_train, **arrays)
    with atomic_path(path) as temporary:
        temporary.write_bytes(content.getbuffer())


def load_stored(path: str | os.PathLike[str], shards: Shards, preset: StreamPreset, **settings: Any) -> Stream | None:
    """What :func:`save` wrote, if it is of these very files (names and sizes) and settings; else None."""
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
        x_scale, y_scale = (_scale_from_json(facts[key]) for key in ("x_scale", "y_scale"))
        classes, sha256 = tuple(facts["classes"]), str(facts["sha256"])
        counts = dict(facts["counts"])
        return Stream(shards, preset, found, num_train, counts, x_scale, y_scale, classes, samples, sha256)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None  # absent, or cut short: scan again


class _Look(NamedTuple):
    """One block: rows of each of `PARTS`, moments of the training rows' X and Y, and the rows of each part."""

    counts: NDArray[np.int64]
    x: Moments
    y: Moments
    rows: Mapping[int, tuple[NDArray[Any], ...]]


def _look(divide: Divider, shards: Shards, number: int) -> _Look:
    X, Y, part, order = divide(number)
    counts = np.bincount(part, minlength=len(PARTS))
    if shards.drop_bad_rows:
        counts[BAD] += shards.block(number).num_rows - len(X)  # lines that could not be read
    is_train = part == TRAIN
    rows = {p: (order[part == p], X[part == p], Y[part == p]) for p in (TRAIN, VALID, TEST)}
    return _Look(counts, Moments.of(X[is_train]), Moments.of(Y[is_train]), rows)


@dataclass
class _Found:
    """What is found in the blocks up to now."""

    sample_rows: int
    counts: list[NDArray[np.int64]] = field(default_factory=list)
    x: Moments | None = None
    y: Moments | None = None

    def __post_init__(self) -> None:
        self.samples = {part: Sample(self.sample_rows) for part in (TRAIN, VALID, TEST)}

    def add(self, look: _Look) -> None:
        self.counts.append(look.counts)
        self.x = look.x if self.x is None else self.x.merge(look.x)
        self.y = look.y if self.y is None else self.y.merge(look.y)
        for part, rows in look.rows.items():
            self.samples[part].add(*rows)


def _stream(shards: Shards, preset: StreamPreset, settings: dict[str, Any], found: _Found) -> Stream:
    """All that was found, checked: parts that have rows, a target that varies, labels that occur in training."""
    table = np.array(found.counts, np.int64)
    counts = {name: int(count) for name, count in zip(PARTS, table.sum(axis=0), strict=True)}
    wanted = ("train", "test") if settings["valid_fraction"] == 0 else PARTS[:3]
    empty = [name for name in wanted if counts[name] == 0]
    if empty:
        raise ValueError(f"a stream must have {' and '.join(empty)} rows, got {counts}; check the files and fractions.")
    x, y = found.x, found.y
    if x is None or y is None:
        raise ValueError("a stream must have blocks, got none; check the path.")
    if preset.task == "regression" and y.scale().constant_columns:
        raise ValueError(f"the target {preset.target_name!r} must vary, got {y.low[0]} in every training row.")
    if counts["bad"]:
        logging.warning("%d of %d rows are damaged and left out.", counts["bad"], table.sum())
    samples = {PARTS[part]: sample.rows() for part, sample in found.samples.items() if counts[PARTS[part]]}
    class_names = _class_names(preset, y, samples)
    if class_names:
        samples = {name: Part(part.X, part.Y.astype(np.int64)) for name, part in samples.items()}
    num_train = table[:, TRAIN].copy()
    sha256 = _fingerprint(settings, counts, num_train, (x, y))
    return Stream(shards, preset, settings, num_train, counts, x.scale(), y.scale(), class_names, samples, sha256)


def _class_names(preset: StreamPreset, y: Moments, samples: dict[str, Part]) -> tuple[str, ...]:
    if preset.task == "regression":
        return ()
    if y.low[0] == y.high[0]:
        raise ValueError(f"the target {preset.target_name!r} must vary, but every training label is {y.low[0]:g}.")
    num_classes = 2 if preset.task == "binary" else int(y.high[0]) + 1
    names = preset.class_names or tuple(map(str, range(num_classes)))
    for name, part in samples.items():
        if len(part.Y) and part.Y.max() >= len(names):
            raise ValueError(f"the {name} rows have labels up to {part.Y.max():g}, which no training row has.")
    return names


def _fingerprint(
    settings: dict[str, Any], counts: dict[str, int], num_train: Indices, moments: tuple[Moments, Moments]
) -> str:
    digest = hashlib.sha256(json.dumps([settings, counts], sort_keys=True).encode())
    for array in (num_train, *(a for m in moments for a in (m.mean, m.squares, m.low, m.high))):
        digest.update(np.ascontiguousarray(array, dtype="<i8" if array.dtype.kind == "i" else "<f8").tobytes())
    return digest.hexdigest()


def _scale_to_json(scale: Scale) -> dict[str, Any]:
    return {
        "mean": scale.mean.tolist(),
        "scale": scale.scale.tolist(),
        "constant_columns": list(scale.constant_columns),
    }


def _scale_from_json(stored: dict[str, Any]) -> Scale:
    mean, scale = (np.array(stored[key], dtype=np.float64) for key in ("mean", "scale"))
    return Scale(mean, scale, tuple(map(int, stored["constant_columns"])))
