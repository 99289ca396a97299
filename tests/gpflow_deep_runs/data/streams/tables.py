"""Files of a table for streams: a column that counts the rows, two inputs and a target."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

from gpflow_deep_runs.data.rows import Part
from gpflow_deep_runs.data.spec import TableSpec
from gpflow_deep_runs.data.streams import own
from gpflow_deep_runs.data.streams.scan import scan
from gpflow_deep_runs.data.streams.stream import Stream

__all__ = ["frame", "numbers", "open_stream", "write_features"]


def frame(rng: np.random.Generator, rows: int, first: int) -> pd.DataFrame:
    X = rng.normal(5.0, 3.0, (rows, 2))
    number = np.arange(first, first + rows)
    return pd.DataFrame({"number": number, "a": X[:, 0], "b": X[:, 1], "y": X[:, 0] + rng.normal(size=rows)})


def open_stream(folder: Path, suffix: str = "parquet", *, table: TableSpec | None = None, **settings: Any) -> Stream:
    """All files of a folder; the target is "y" unless `table` says otherwise."""
    spec = TableSpec(target=("y",)) if table is None else table
    return scan(*own.open_table(f"{folder}/*.{suffix}", spec), **settings)


def numbers(part: Part) -> np.ndarray:
    """The column that counts all rows."""
    return np.asarray(part.X[:, 0]).astype(int)


def write_features(rows: list[dict[str, Any]], path: Path) -> None:
    """Examples of features of any kind: bytes, floats or integers, in lists of any length."""
    kinds = {bytes: ("bytes_list", tf.train.BytesList), float: ("float_list", tf.train.FloatList)}
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in rows:
            feature = {}
            for name, values in row.items():
                kind, list_of = kinds.get(type(values[0]) if values else float, ("int64_list", tf.train.Int64List))
                feature[name] = tf.train.Feature(**{kind: list_of(value=values)})
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
