"""What the columns of a table are, found out from their cells.

columns = infer_columns(table.columns, where=table.where, delimiter=table.delimiter)
columns["price"]                                         # Column("price", "number", unit="€", note="'5 €' is 5")
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from experiment.data.cells import cells_of, is_missing, one_chunk
from experiment.data.columns import Column
from experiment.data.forced import Forced
from experiment.data.numerals import Style, numbers, plain_numbers
from experiment.data.typed import kind_of_type

__all__ = ["MAX_LEVELS", "infer", "infer_columns"]

MAX_LEVELS = 50
"""Most levels that a category may have."""


def infer_columns(
    columns: pa.Table,
    *,
    where: str,
    forced: Mapping[str, Forced] | None = None,
    na_values: Sequence[str] = (),
    delimiter: str = "",
) -> dict[str, Column]:
    """What the columns of a table are; those of text decide each other's decimal sign.

    :param forced: what the user says of some.
    :param na_values: texts that stand for missing values, besides those that always do.
    :param delimiter: of delimited text; commas leave no doubt about `1,234`.
    :raises ValueError: as :func:`infer`.
    """
    return {
        name: infer(name, columns[name], where=where, forced=(forced or {}).get(name), na_values=na_values)
        for name in columns.column_names
    }


def infer(
    name: str,
    values: pa.ChunkedArray | pa.Array,
    *,
    where: str,
    forced: Forced | None = None,
    na_values: Sequence[str] = (),
    decimal: Literal["", ".", ","] = "",
) -> Column:
    """What one column is.

    :param decimal: the decimal sign of values such as `1,234`, of which each could be two numbers; "" if unknown.
    :raises ValueError: naming file, column, row and value: most cells are numbers, dates or times, but not all, or
        not of one format; or there are two readings.
    """
    values = one_chunk(values)
    if forced is not None and forced.kind in ("ignored", "category"):
        return Column(name, forced.kind, note="by flag")
    kind = kind_of_type(values.type)
    if kind in ("empty", "other"):
        return Column(name, "ignored", note="empty")
    if kind == "boolean":
        return Column(name, "boolean", true=("True",), false=("False",))
    if kind != "text":
        return Column(name, kind)
    if plain_numbers(values) is not None:
        return Column(name, "number")
    cells = cells_of(values)
    if not np.isnan(numbers(cells.texts, Style())[~is_missing(cells.texts, na_values, markers=True)]).any():
        return Column(name, "number")
    keep = ~is_missing(cells.texts, na_values, markers=False)
    levels = cells.texts.filter(pa.array(keep)).to_pylist()
    if {text.casefold() for text in levels} == {"yes", "no"}:
        return Column(name, "boolean", true=("yes",), false=("no",))
    return Column(name, "category" if len(set(levels)) <= MAX_LEVELS else "text")
