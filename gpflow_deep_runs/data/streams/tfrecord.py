"""TFRecord files of a stream, of `tf.train.Example` with at most one value a feature: a block is some whole records.

Bytes are text in UTF-8. A feature that an example lacks, or that is empty there, is a missing value.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data.libraries import pa
from gpflow_deep_runs.data.streams.blocks import Block, Extent, Kind, joined, read_bytes
from gpflow_deep_runs.data.streams.storage import tensorflow_errors

__all__ = ["extents", "kinds", "read"]

_READ_BYTES, _HEAD_RECORDS = 2**23, 100


def kinds(path: str) -> dict[str, Kind]:
    """Features of the first records and their kinds."""
    found: dict[str, str] = {}
    with tensorflow_errors() as tf:
        for record in tf.data.TFRecordDataset(path).take(_HEAD_RECORDS).as_numpy_iterator():
            for name, feature in tf.train.Example.FromString(record).features.feature.items():
                if (stored := feature.WhichOneof("kind")) is not None:
                    found.setdefault(name, stored)
    if not found:
        raise OSError("it holds no records, or no features")
    return {name: "text" if stored == "bytes_list" else "number" for name, stored in sorted(found.items())}


def extents(path: str, size: int) -> Iterator[Extent]:
    """Blocks of records; reads every byte of the file and checks the records' checksums.

    :param size: of the file in bytes.
    :raises OSError: if the file ends within a record.
    """
    return joined(_record_ends(path, size))


def read(path: str, block: Block, columns: Collection[str]) -> pa.Table:
    """Some features of a block: float32, int64 or strings. Absent ones are null.

    :raises OSError: if a feature has several values, or is stored in different ways.
    """
    records = _split(read_bytes(path, block))
    with tensorflow_errors() as tf, tf.device("CPU:0"):
        types, serialised = _types(tf, records, columns), tf.constant(records)
        try:  # faster, if no value is missing
            dense = tf.io.parse_example(serialised, {name: tf.io.FixedLenFeature([], types[name]) for name in columns})
            return pa.table({name: _strings(dense[name].numpy()) for name in columns})
        except tf.errors.InvalidArgumentError:
            sparse = tf.io.parse_example(serialised, {name: tf.io.VarLenFeature(types[name]) for name in columns})
            return pa.table({name: _array(sparse[name], len(records), name) for name in columns})


def _types(tf: Any, records: Sequence[bytes], columns: Collection[str]) -> dict[str, Any]:
    """How each feature is stored, by the first records that have it."""
    known = {"float_list": tf.float32, "int64_list": tf.int64, "bytes_list": tf.string}
    found: dict[str, Any] = {}
    for record in records:
        features = tf.train.Example.FromString(record).features.feature
        for name in columns:
            if name not in found and name in features:
                found.update({name: known[kind]} if (kind := features[name].WhichOneof("kind")) else {})
        if len(found) == len(columns):
            break
    return {name: found.get(name, tf.float32) for name in columns}


def _array(feature: Any, num_rows: int, name: str) -> pa.Array:
    """The values [num_rows] of a sparse tensor with at most one in each row."""
    rows, places = feature.indices.numpy().T
    if places.any():
        raise OSError(f"the feature {name!r} must have one value in each example, got several")
    order = np.full(num_rows, -1)
    order[rows] = np.arange(len(rows))
    return _strings(feature.values.numpy()).take(pa.array(order, mask=order < 0))


def _strings(values: NDArray[Any]) -> pa.Array:
    """Bytes as text."""
    return pa.array(values, pa.binary()).cast(pa.string()) if values.dtype == object else pa.array(values)


def _record_ends(path: str, size: int) -> Iterator[tuple[int, int]]:
    position = 0
    yield 0, 0
    with tensorflow_errors() as tf:
        dataset = tf.data.TFRecordDataset(path, buffer_size=_READ_BYTES).map(tf.strings.length).batch(64)
        for lengths in dataset.as_numpy_iterator():
            position += int(lengths.sum()) + 16 * len(lengths)  # length, its checksum, and that of the content
            yield position, len(lengths)
    if position != size:
        raise OSError(f"its records end at byte {position} of {size}")


def _split(content: bytes) -> list[bytes]:
    """Contents of TFRecord framing: length (8 bytes), checksum (4), content, checksum (4)."""
    records, position = [], 0
    while position < len(content):
        (length,) = struct.unpack_from("<Q", content, position)
        records.append(content[position + 12 : position + 12 + length])
        position += 16 + length
    if position != len(content):
        raise OSError("the lengths of its records do not fit; the file was changed")
    return records
