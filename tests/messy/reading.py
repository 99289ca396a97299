"""Read a small table and see what became of it: values by name, or the error, which has to be one clear line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from gpflow_deep_runs.data.table.spec import TableSpec
from gpflow_deep_runs.data.tables import read_table
from tests.messy.writing import text

__all__ = ["Case", "Refused", "check", "column", "days", "read", "refused", "write"]


class Refused(NamedTuple):
    """What the error has to say, as a regular expression."""

    match: str


class Case(NamedTuple):
    """A column of texts `a`, and what has to become of it: values by names of features, or an error.

    :ivar flags: fields of a TableSpec. :ivar others: more columns of the table. :ivar delimiter: of the file.
    """

    name: str
    cells: Sequence[str]
    expected: dict[str, Any] | Refused
    flags: dict[str, Any] = {}  # noqa: RUF012 (a NamedTuple: nobody changes it)
    others: dict[str, Sequence[str]] = {}  # noqa: RUF012
    delimiter: str = ","


def read(source: Any, target: str = "y", **flags: Any) -> dict[str, list[float]]:
    """Inputs and target of a table by name."""
    rows = read_table(source, TableSpec(target=(target,), **flags))
    X, Y = rows.parts["all"]
    assert len(rows.feature_names) == X.shape[1] == len(set(rows.feature_names))
    return {**dict(zip(rows.feature_names, X.T.tolist(), strict=True)), target: Y[:, 0].tolist()}


def refused(source: Any, match: str, target: str = "y", **flags: Any) -> str:
    """The error of a table that cannot be read: one line of a length that can be read, which matches."""
    with pytest.raises(ValueError, match=match) as caught:
        read(source, target, **flags)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 700
    return message


def days(*moments: str) -> list[float]:
    """Days since 1970 of ISO moments."""
    return [float((np.datetime64(m, "s") - np.datetime64("1970-01-01")) / np.timedelta64(86400, "s")) for m in moments]


def column(cells: Sequence[str], others: dict[str, Sequence[str]] | None = None, delimiter: str = ",") -> bytes:
    """A table of a column `a`, perhaps others, and a target `y` of different whole numbers."""
    y = [str(101 + 7 * i) for i in range(len(cells))]
    return text({"a": cells, **(others or {}), "y": y}, delimiter).encode()


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def check(folder: Path, case: Case) -> None:
    """Read the table of a case and compare."""
    path = write(folder, "table.csv", column(case.cells, case.others, case.delimiter))
    if isinstance(case.expected, Refused):
        refused(path, case.expected.match, **case.flags)
        return
    found = read(path, **case.flags)
    assert found.pop("y") == [101.0 + 7 * i for i in range(len(case.cells))]
    found = {name: values for name, values in found.items() if name not in case.others}
    assert list(found) == list(case.expected)
    for name, values in case.expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
