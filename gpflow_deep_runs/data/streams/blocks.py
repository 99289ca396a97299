"""What a stream reads of its files: columns that are wanted, and blocks of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from gpflow_deep_runs.data.libraries import pa, pd

__all__ = ["Block", "Field", "Kind", "Layout", "kind_of", "values"]

Kind = Literal["number", "time", "text", "any"]
"""What values are taken for; "any": what the file has."""


class Field(NamedTuple):
    """A column of a file: its name, and what its values are taken for."""

    column: str
    kind: Kind = "number"


Layout = Mapping[str, Field]
"""Name that the program uses -> column of the file."""


class Block(NamedTuple):
    """A row group of one file.

    :ivar file: number of the file in `Shards.files`.
    :ivar start: number of the row group.
    :ivar stop: one more.
    :ivar first_row: number of the first row within the file.
    :ivar num_rows: rows.
    """

    file: int
    start: int
    stop: int
    first_row: int
    num_rows: int


def kind_of(type_: pa.DataType) -> Kind:
    """What values of a type of Arrow are taken for."""
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_):
        return "number"
    if pa.types.is_decimal(type_) or pa.types.is_null(type_):
        return "number"
    return "time" if pa.types.is_timestamp(type_) or pa.types.is_date(type_) else "text"


def values(column: pa.ChunkedArray, field: Field, *, is_tolerant: bool = False) -> Any:
    """A column as its field wants it: float64 with NaN for nulls, times or texts.

    :param is_tolerant: a text that is no time is a missing one.
    :raises ValueError: if there is such a text otherwise.
    """
    if field.kind == "number":
        return pa.compute.cast(column, pa.float64(), safe=False).to_numpy()
    frame = column.to_pandas(date_as_object=False)
    if field.kind == "time" and not pd.api.types.is_datetime64_any_dtype(frame):
        return pd.to_datetime(frame, format="%Y-%m-%d %H:%M:%S", errors="coerce" if is_tolerant else "raise")
    return frame
