"""Parquet files of a stream: a block is a row group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpflow_deep_runs.data.delimited import check_names
from gpflow_deep_runs.data.libraries import pa
from gpflow_deep_runs.data.streams import storage
from gpflow_deep_runs.data.streams.blocks import Block, Kind, kind_of

DELIMITER = b"gpflow_deep.delimiter"
"""Metadata of a file: what stood between the columns of the text that it was made of."""

__all__ = ["DELIMITER", "delimiter", "extents", "kinds", "read"]


def kinds(path: str) -> dict[str, Kind]:
    """Columns of a file and their kinds; without an index of pandas.

    :raises ValueError: if names of columns occur twice or are empty.
    """
    with _open(path) as file:
        schema = file.schema_arrow
        check_names([name.strip() for name in schema.names], path)
        index = [name for name in (schema.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)]
        return {field.name: kind_of(field.type) for field in schema if field.name not in index}


def delimiter(path: str) -> str:
    """What stood between the columns of the text that `gpflow-deep convert` made a file of; "" of others."""
    with _open(path) as file:
        return (file.schema_arrow.metadata or {}).get(DELIMITER, b"").decode()


def extents(path: str) -> Iterator[tuple[int, int]]:
    """Number and rows of each row group that holds rows."""
    with _open(path) as file:
        for group in range(file.metadata.num_row_groups):
            if rows := file.metadata.row_group(group).num_rows:
                yield group, rows


def read(path: str, block: Block, columns: Sequence[str]) -> pa.Table:
    """Some columns of a row group; all texts are of Arrow's type "string"."""
    with _open(path) as file:
        table = file.read_row_group(block.start, columns=list(columns))
    types = [_with_strings(field.type) for field in table.schema]
    if types == table.schema.types:
        return table
    return table.cast(pa.schema(list(zip(table.column_names, types, strict=True))))


def _with_strings(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return pa.dictionary(kind.index_type, _with_strings(kind.value_type)) if pa.types.is_dictionary(kind) else kind


def _open(path: str) -> pa.parquet.ParquetFile:
    if not storage.is_remote(path):
        return pa.parquet.ParquetFile(path)
    return pa.parquet.ParquetFile(pa.PythonFile(storage.open_file(path), mode="r"))
