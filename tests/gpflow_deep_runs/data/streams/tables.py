"""Files of a table for streams: a column that counts the rows, two inputs and a target."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpflow_deep_runs.data.rows import Part
from gpflow_deep_runs.data.streams import own
from gpflow_deep_runs.data.streams.convert import convert
from gpflow_deep_runs.data.streams.scan import scan
from gpflow_deep_runs.data.streams.stream import Stream
from gpflow_deep_runs.data.table.spec import TableSpec

__all__ = ["converted", "frame", "numbers", "open_stream"]


def frame(rng: np.random.Generator, rows: int, first: int) -> pd.DataFrame:
    X = rng.normal(5.0, 3.0, (rows, 2))
    number = np.arange(first, first + rows)
    return pd.DataFrame({"number": number, "a": X[:, 0], "b": X[:, 1], "y": X[:, 0] + rng.normal(size=rows)})


def open_stream(folder: Path, suffix: str = "parquet", *, table: TableSpec | None = None, **settings: Any) -> Stream:
    """All files of a folder, of texts after these are converted; the target is "y" unless `table` says otherwise."""
    spec = TableSpec(target=("y",)) if table is None else table
    pattern = f"{folder}/*.{suffix}"
    return scan(*own.open_table(pattern if suffix == "parquet" else converted(pattern, folder), spec), **settings)


def converted(pattern: str, folder: Path) -> str:
    """The folder of Parquet files that files become, in small row groups; written anew."""
    shutil.rmtree(there := folder / "converted", ignore_errors=True)
    convert(pattern, there, rows_per_group=40)
    return str(there)


def numbers(part: Part) -> np.ndarray:
    """The column that counts all rows."""
    return np.asarray(part.X[:, 0]).astype(int)
