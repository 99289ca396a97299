"""What the formats of a stream have in common: columns that are wanted, and blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from gpflow_deep_runs.data.libraries import pa, pd
from gpflow_deep_runs.data.streams import storage

__all__ = [
    "BLOCK_BYTES",
    "NULLS",
    "Block",
    "Extent",
    "Field",
    "Kind",
    "Layout",
    "joined",
    "kind_of",
    "read_bytes",
    "values",
]

BLOCK_BYTES = 2**20
"""Size of a block of a CSV or TFRecord file, and the longest line."""

NULLS = ["", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "\\N"]
"""What stands for a missing value in a CSV file."""

Kind = Literal["number", "time", "text", "any"]
"""What values are taken for; "any": what the file has, in CSV files the texts as they are written."""


class Field(NamedTuple):
    """A column of a file: its name, and what its values are taken for."""

    column: str
    kind: Kind = "number"


Layout = Mapping[str, Field]
"""Name that the program uses -> column of the file."""


class Block(NamedTuple):
    """Some rows of one file.

    :ivar file: number of the file in `Shards.files`.
    :ivar start: number of the row group, or first byte.
    :ivar stop: one more than the row group, or the byte after the last.
    :ivar first_row: number of the first row within the file.
    :ivar num_rows: rows (of a CSV file: lines).
    """

    file: int
    start: int
    stop: int
    first_row: int
    num_rows: int


class Extent(NamedTuple):
    """Where a block is in its file, and its number of rows; see :class:`Block`."""

    start: int
    stop: int
    num_rows: int


def joined(ends: Iterator[tuple[int, int]]) -> Iterator[Extent]:
    """Blocks of at least half of :data:`BLOCK_BYTES`, but for the last.

    :param ends: byte where the first row starts, and 0; then for some rows the byte after them, and their number.
    """
    start = stop = next(ends)[0]
    rows = 0
    for stop, count in ends:
        rows += count
        if 2 * (stop - start) >= BLOCK_BYTES:
            yield Extent(start, stop, rows)
            start, rows = stop, 0
    if rows:
        yield Extent(start, stop, rows)


def read_bytes(path: str, block: Block) -> bytes:
    """The bytes of a block.

    :raises OSError: if the file is shorter than it was.
    """
    with storage.open_file(path) as file:
        file.seek(block.start)
        content = file.read(block.stop - block.start)
    if len(content) != block.stop - block.start:
        raise OSError(f"end of file at byte {block.start + len(content)}, {block.stop} are needed")
    return content


def kind_of(type_: pa.DataType) -> Kind:
    """What values of a type of Arrow are taken for."""
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_):
        return "number"
    if pa.types.is_decimal(type_) or pa.types.is_null(type_):
        return "number"
    return "time" if pa.types.is_timestamp(type_) or pa.types.is_date(type_) else "text"


def values(column: Any, field: Field, *, drop_bad_rows: bool) -> Any:
    """A column of Arrow, or an array, as its field wants it: float64 with NaN for nulls, times or texts.

    :param drop_bad_rows: take text in place of a number or time for a null.
    :raises ValueError: if there is such text otherwise.
    """
    wrong = "coerce" if drop_bad_rows else "raise"
    if isinstance(column, pa.ChunkedArray):
        if field.kind == "number":
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                return pd.to_numeric(column.to_pandas(), errors=wrong).to_numpy(np.float64)
            return pa.compute.cast(column, pa.float64(), safe=False).to_numpy()
        column = column.to_pandas(date_as_object=False)
    if field.kind == "number":
        return np.asarray(column, np.float64)
    if field.kind == "time" and not pd.api.types.is_datetime64_any_dtype(column):
        return pd.to_datetime(column, errors=wrong, format="%Y-%m-%d %H:%M:%S")
    return column
