"""Parquet files of a stream: a block is a row group."""

import io
import os
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet
import tensorflow as tf

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
    if "://" not in path:
        return pa.parquet.ParquetFile(path)
    return pa.parquet.ParquetFile(pa.PythonFile(_RawFile(path), mode="r"))


class _RawFile(io.RawIOBase):
    """A file of `tf.io.gfile` with the methods that pyarrow calls."""

    def __init__(self, path: str) -> None:
        self._size = tf.io.gfile.stat(path).length
        self._file = tf.io.gfile.GFile(path, "rb")
        self._file.size()  # opens it

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        return bytes(self._file.read(-1 if size is None else size))

    def tell(self) -> int:
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: self._size}[whence]
        self._file.seek(origin + offset)
        return origin + offset

    def close(self) -> None:
        self._file.close()
        super().close()
