"""Which rows of a table are used: all, but for those that `TableSpec` lets be left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data.columns import Column, fits
from gpflow_deep_runs.data.libraries import pa
from gpflow_deep_runs.data.spec import TableSpec
from gpflow_deep_runs.data.survey import Parsed, is_missing, parsed

__all__ = ["Usable", "usable"]


class Usable(NamedTuple):
    """The rows of a table that are used, and why others are not.

    :ivar found: cells of the rows that are used.
    :ivar kept: their numbers in the table, from 0.
    :ivar is_bad: [n], the rows that cannot be read, with `bad_rows` "drop": a cell is not of its column's kind, or
        infinite.
    :ivar is_open: [n], those with a missing value: in a target with `missing` "impute", anywhere with `bad_rows` "drop"
        otherwise.
    """

    found: Parsed
    kept: NDArray[np.int64]
    is_bad: NDArray[np.bool_]
    is_open: NDArray[np.bool_]


def usable(
    table: pa.Table,
    columns: Mapping[str, Column],
    targets: Sequence[str],
    spec: TableSpec,
    *,
    where: str,
    first_row: int = 0,
) -> Usable:
    """Read the cells of a table, or of a block of its rows.

    :param columns: how each column is read, the targets among them; the table may have others.
    :param where: the file, for errors.
    :param first_row: number of the first row of `table` in it.
    :raises ValueError: naming a cell that is not of its column's kind, unless `spec` leaves such rows out.
    """
    is_imputed = spec.missing == "impute"
    is_dropping = spec.bad_rows == "drop"
    is_bad, is_open = np.zeros((2, len(table)), bool)
    if is_dropping:
        used = [column for column in columns.values() if column.kind != "ignored"]
        for column in used:
            is_bad |= ~fits(table[column.name], column, na_values=spec.na_values)
        table = table.filter(pa.array(~is_bad)) if is_bad.any() else table
    rows = np.flatnonzero(~is_bad)
    found = parsed(columns, table, na_values=spec.na_values, where=where, first_row=first_row)
    for name, values in found.items():
        if name in targets if is_imputed else is_dropping:
            is_open[rows] |= is_missing(values)
        if is_dropping and values.dtype.kind == "f":
            is_bad[rows] |= np.isinf(values)
    is_used = ~(is_bad | is_open)[rows]
    if not is_used.all():
        found = {name: values[is_used] for name, values in found.items()}
    return Usable(found, rows[is_used], is_bad, is_open & ~is_bad)
