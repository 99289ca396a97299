"""Parquet files of a stream: a block is a row group."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet

from experiment.data.streams import storage
from experiment.data.streams.blocks import Block, Extent, Kind, Layout, kind_of

__all__ = ["extents", "kinds", "read"]


def kinds(path: str) -> dict[str, Kind]:
    """Columns of a file and their kinds."""
    with _open(path) as file:
        return {field.name: kind_of(field.type) for field in file.schema_arrow}


def extents(path: str) -> Iterator[Extent]:
    """The row groups that hold rows."""
    with _open(path) as file:
        for group in range(file.metadata.num_row_groups):
            if rows := file.metadata.row_group(group).num_rows:
                yield Extent(group, group + 1, rows)


def read(path: str, block: Block, layout: Layout) -> pa.Table:
    """The layout's columns of a row group."""
    with _open(path) as file:
        return file.read_row_group(block.start, columns=[field.column for field in layout.values()])


def _open(path: str) -> pa.parquet.ParquetFile:
    if not storage.is_remote(path):
        return pa.parquet.ParquetFile(path)
    return pa.parquet.ParquetFile(pa.PythonFile(storage.open_file(path), mode="r"))
