"""What the pass over a stream found, in the folder of a run, so that a resumed run need not look at all rows again."""

import io
import json
import os
from dataclasses import asdict
from typing import Any

import numpy as np

from gpflow_deep_base.files import atomic_path
from gpflow_deep_base.storage.container import read_npz
from gpflow_deep_runs.data.rows import Part
from gpflow_deep_runs.data.streams.files import Shards
from gpflow_deep_runs.data.streams.moments import Scale
from gpflow_deep_runs.data.streams.presets import StreamPreset
from gpflow_deep_runs.data.streams.stream import PARTS, Settings, Stream
from gpflow_deep_runs.data.table.schema import Schema
from gpflow_deep_runs.data.table.spec import TableSpec

__all__ = ["FILE", "VERSION", "load_schema", "load_stored", "save", "table_to_json"]

FILE = "stream.npz"
"""What :func:`save` writes to, in the folder of a run."""

VERSION = 2

_ERRORS = (ValueError, KeyError, TypeError)


def save(stream: Stream, path: str | os.PathLike[str]) -> None:
    """Write what `scan.scan` found to an .npz file."""
    arrays = {f"{name}/{key}": a for name, part in stream.samples.items() for key, a in part._asdict().items()}
    facts = {
        "settings": stream.settings,
        "counts": stream.counts,
        "classes": stream.class_names,
        "x_scale": _scale_to_json(stream.x_scale),
        "y_scale": _scale_to_json(stream.y_scale),
        "schema": None if stream.preset.schema is None else stream.preset.schema.to_json(),
        "sha256": stream.sha256,
    }
    # The samples as arrays, all else as JSON among them.
    content = io.BytesIO()  # a zip file that is cut short by a full disk would be closed again, with a traceback
    np.savez(content, facts=json.dumps(facts), num_train=stream.num_train, **arrays)
    with atomic_path(path) as temporary:
        temporary.write_bytes(content.getbuffer())


def load_schema(path: str | os.PathLike[str], table: TableSpec) -> Schema | None:
    """The schema that :func:`save` wrote, if it is of a table that was to be read so; else None."""
    try:
        facts, _ = _read(path)
        is_same = facts["settings"]["version"] == VERSION and facts["settings"]["table"] == table_to_json(table)
        return Schema.from_json(facts["schema"]) if is_same else None
    except _ERRORS:
        return None  # absent, or cut short: scan again


def load_stored(
    path: str | os.PathLike[str], shards: Shards, preset: StreamPreset, settings: Settings
) -> Stream | None:
    """What :func:`save` wrote, if it is of these very files (names and sizes) and settings; else None."""
    try:
        facts, arrays = _read(path)
        # The files, what the user says and all that decides the parts must be the same.
        if facts["settings"] != settings:
            return None
        num_train = arrays.pop("num_train")
        samples = {name: Part(arrays[f"{name}/X"], arrays[f"{name}/Y"]) for name in PARTS if f"{name}/X" in arrays}
        x_scale, y_scale = (_scale_from_json(facts[key]) for key in ("x_scale", "y_scale"))
        classes = tuple(facts["classes"])
        sha256 = str(facts["sha256"])
        counts = dict(facts["counts"])
        return Stream(shards, preset, settings, num_train, counts, x_scale, y_scale, classes, samples, sha256)
    except _ERRORS:
        return None


def table_to_json(table: TableSpec | None) -> object:
    """What the user says of a table, as JSON holds it."""
    return None if table is None else json.loads(json.dumps(asdict(table)))


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    arrays = read_npz(path)
    return json.loads(str(arrays.pop("facts"))), arrays


def _scale_to_json(scale: Scale) -> dict[str, Any]:
    return {key: np.asarray(value).tolist() for key, value in scale._asdict().items()}


def _scale_from_json(stored: dict[str, Any]) -> Scale:
    mean, scale = (np.array(stored[key], dtype=np.float64) for key in ("mean", "scale"))
    return Scale(mean, scale, tuple(map(int, stored["constant_columns"])))
