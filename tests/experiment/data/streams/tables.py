"""Files of a table for streams: a column that counts the rows, two inputs and a target."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiment.data.rows import Part
from experiment.data.spec import TableSpec
from experiment.data.streams import own
from experiment.data.streams.scan import scan
from experiment.data.streams.stream import Stream

__all__ = ["frame", "numbers", "open_stream"]


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
