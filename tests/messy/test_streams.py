"""A messy table in a stream is read as in memory: the same columns, levels, task and values."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gpflow_deep_runs.data.schema import Schema
from gpflow_deep_runs.data.streams import scan
from gpflow_deep_runs.data.tables import read_table
from gpflow_deep_runs.data.views import Source
from tests.messy.comparison import spec_of
from tests.messy.make_tables import FOLDER, TABLES, make
from tests.messy.test_messy import unpacked

LINES = [name for name in TABLES if name not in ("machines", "lab", "wine")]  # these cannot be cut into pieces


def _sorted(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return rows[np.lexsort(rows.T)]


def _plain(name: str, folder: Path) -> Path:
    """The file of a table, unpacked."""
    made = make(name)
    content = unpacked(made.file, made.content)
    if made.file.endswith(".parquet"):
        return FOLDER / made.file
    path = folder / made.file.removesuffix(".gz").removesuffix(".xz").removesuffix(".zip")
    path.write_bytes(content[0] if isinstance(content, list) else content)
    return path


@pytest.mark.parametrize("name", LINES)
def test_a_stream_has_the_rows_of_memory(name: str, tmp_path: Path) -> None:
    path, table = _plain(name, tmp_path), spec_of(make(name))
    rows = read_table(path, table)
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


@pytest.mark.parametrize("name", ["lab", "survey", "machines", "wine"])
def test_files_that_cannot_be_cut_say_what_to_do(name: str) -> None:
    made = make(name)
    source = Source(data=str(FOLDER / made.file))
    with pytest.raises(ValueError, match=r"(?i)parquet|unpack|utf-8") as caught:
        scan.load(scan.StreamSpec(stream=True), source, table=spec_of(made))
    assert "\n" not in str(caught.value)
