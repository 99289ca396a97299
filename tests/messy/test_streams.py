"""A messy table in a stream is read as in memory: the same columns, levels, task and values."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gpflow_deep_runs.data.streams import scan
from gpflow_deep_runs.data.streams.convert import convert
from gpflow_deep_runs.data.table.schema import Schema
from gpflow_deep_runs.data.tables import read_table
from gpflow_deep_runs.data.views import Source
from tests.messy.comparison import spec_of
from tests.messy.tables import TABLES


def _sorted(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return rows[np.lexsort(rows.T)]


def _parquet(name: str, folder: Path) -> Path:
    """The file of a table, as Parquet."""
    path = TABLES[name].path
    if path.suffix == ".parquet":
        return path
    convert(str(path), folder / "converted", rows_per_group=64)
    return folder / "converted"


@pytest.mark.parametrize("name", TABLES)
def test_a_stream_has_the_rows_of_memory(name: str, tmp_path: Path) -> None:
    path, table = _parquet(name, tmp_path), spec_of(TABLES[name])
    rows = read_table(TABLES[name].path, table)
    stream = scan.load(scan.StreamSpec(stream=True), Source(data=str(path)), table=table)
    assert isinstance(rows.schema, Schema)
    learned = stream.rows.schema
    assert isinstance(learned, Schema)
    assert learned.table() == rows.schema.table()
    assert stream.rows.feature_names == rows.feature_names
    assert (stream.rows.task, stream.rows.class_names) == (rows.task, rows.class_names)
    X, Y = rows.parts["all"]
    memory = np.column_stack([learned.filled(X), Y])
    parts = [np.column_stack(part) for part in stream.rows.parts.values()]
    np.testing.assert_array_equal(_sorted(np.concatenate(parts)), _sorted(memory))
