"""TFRecord files of a stream, of `tf.train.Example` with one value a feature: a block is some whole records."""

import struct
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from experiment.data.streams.blocks import Block, Extent, Kind, Layout, joined, read_bytes
from experiment.data.streams.storage import tensorflow_errors

__all__ = ["extents", "kinds", "read"]

_READ_BYTES = 2**23


def kinds(path: str) -> dict[str, Kind]:
    """Features of the first record and their kinds."""
    return {name: _kind(feature) for name, feature in sorted(_first_features(path).items())}


def extents(path: str, size: int) -> Iterator[Extent]:
    """Blocks of records; reads every byte of the file and checks the records' checksums.

    :param size: of the file in bytes.
    :raises OSError: if the file ends within a record.
    """
    return joined(_record_ends(path, size))


def read(path: str, block: Block, layout: Layout) -> Mapping[str, Any]:
    """The layout's features of a block. Numbers may be stored as floats or as integers."""
    records = _split(read_bytes(path, block))
    with tensorflow_errors() as tf:
        types = {field.column: tf.float32 if field.kind == "number" else tf.string for field in layout.values()}
        first = tf.train.Example.FromString(records[0]).features.feature
        for name in types:
            if first[name].WhichOneof("kind") == "int64_list":
                types[name] = tf.int64
        spec = {name: tf.io.FixedLenFeature([], dtype) for name, dtype in types.items()}
        with tf.device("CPU:0"):
            parsed = tf.io.parse_example(tf.constant(records), spec)
    return {
        name: pd.Series(value.numpy()).str.decode("utf-8") if value.dtype == tf.string else value.numpy()
        for name, value in parsed.items()
    }


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


def _first_features(path: str) -> Mapping[str, Any]:
    with tensorflow_errors() as tf:
        for record in tf.data.TFRecordDataset(path).take(1).as_numpy_iterator():
            return tf.train.Example.FromString(record).features.feature
    raise OSError("it holds no records")


def _kind(feature: Any) -> Kind:
    return "text" if feature.WhichOneof("kind") == "bytes_list" else "number"
