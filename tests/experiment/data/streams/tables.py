"""Files of a table for streams: a column that counts the rows, two inputs and a target."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiment.data.rows import Part
from experiment.data.streams.presets import numeric
from experiment.data.streams.scan import scan
from experiment.data.streams.shards import open_shards
from experiment.data.streams.stream import Stream

__all__ = ["frame", "numbers", "open_stream"]


def frame(rng: np.random.Generator, rows: int, first: int) -> pd.DataFrame:
    X = rng.normal(5.0, 3.0, (rows, 2))
    number = np.arange(first, first + rows)
    return pd.DataFrame({"number": number, "a": X[:, 0], "b": X[:, 1], "y": X[:, 0] + rng.normal(size=rows)})


def open_stream(folder: Path, suffix: str = "parquet", drop: bool = False, **settings: Any) -> Stream:
    pattern = f"{folder}/*.{suffix}"
    preset = numeric(pattern, target="y", task=settings.pop("task", None))
    return scan(open_shards(pattern, layouts=preset.layouts, drop_bad_rows=drop), preset, **settings)


def numbers(part: Part) -> np.ndarray:
    """The column that counts all rows."""
    return np.asarray(part.X[:, 0]).astype(int)
