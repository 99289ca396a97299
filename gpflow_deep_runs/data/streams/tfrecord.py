"""TFRecord files of `tf.train.Example` with at most one value a feature, as tables.

Bytes are text in UTF-8. A feature that an example lacks, or that is empty there, is a missing value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gpflow_deep_runs.data.libraries import pa

__all__ = ["tables"]

_BATCH = 4096


def tables(path: str) -> Iterator[pa.Table]:
    """The records of a file, piece by piece: float32, int64 or strings.

    :raises ValueError: naming the file: it is damaged, or a feature has several values or is stored in different ways.
    """
    try:
        kinds = _kinds(path)
        for records in _records(path):
            yield _table(records, kinds)
    except (OSError, UnicodeError, pa.ArrowInvalid) as error:
        raise ValueError(f"{path} cannot be read as TFRecord: {error}; get it again or leave it out.") from error


@contextmanager
def tensorflow_errors() -> Iterator[Any]:
    """Yields TensorFlow, imported here; what it raises becomes an `OSError` with its message in one line."""
    import tensorflow as tf  # only here: who reads other tables need not wait for it

    try:
        yield tf
    except tf.errors.OpError as error:
        text = " ".join(str(error.message).split(" [[{{node")[0].split())
        raise OSError(text or type(error).__name__) from error


def _records(path: str) -> Iterator[Sequence[bytes]]:
    with tensorflow_errors() as tf:
        yield from tf.data.TFRecordDataset(path).batch(_BATCH).as_numpy_iterator()


def _kinds(path: str) -> Mapping[str, str]:
    """How each feature is stored in all records."""
    found: dict[str, str] = {}
    with tensorflow_errors() as tf:
        for records in _records(path):
            for record in records:
                for name, feature in tf.train.Example.FromString(record).features.feature.items():
                    kind = feature.WhichOneof("kind")
                    if kind is not None and found.setdefault(name, kind) != kind:
                        raise OSError(f"the feature {name!r} is stored as {found[name]} and as {kind}")
    if not found:
        raise OSError("it holds no records, or no features")
    return dict(sorted(found.items()))


def _table(records: Sequence[bytes], kinds: Mapping[str, str]) -> pa.Table:
    with tensorflow_errors() as tf, tf.device("CPU:0"):
        types = {"float_list": tf.float32, "int64_list": tf.int64, "bytes_list": tf.string}
        features = {name: tf.io.VarLenFeature(types[kind]) for name, kind in kinds.items()}
        sparse = tf.io.parse_example(tf.constant(records), features)
        return pa.table({name: _array(sparse[name], len(records), name) for name in kinds})


def _array(feature: Any, num_rows: int, name: str) -> pa.ChunkedArray:
    """The values [num_rows] of a sparse tensor with at most one in each row."""
    rows, places = feature.indices.numpy().T
    if places.any():
        raise OSError(f"the feature {name!r} must have one value in each example, got several")
    order = np.full(num_rows, -1)
    order[rows] = np.arange(len(rows))
    values = feature.values.numpy()
    found = pa.array(values, pa.binary()).cast(pa.string()) if values.dtype == object else pa.array(values)
    return pa.chunked_array([found.take(pa.array(order, mask=order < 0))])
