"""Rows of measurements, printed and written as they come, with what they depend on."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from gpflow_deep_base.files import write_json
from gpflow_deep_runs.run.folder import provenance

__all__ = ["write_rows"]


def write_rows(
    rows: Iterable[Mapping[str, Any]], output: str | os.PathLike[str] | None, data: str, **extra: Any
) -> list[dict[str, Any]]:
    """Print a line for each row, and write all so far after each, as a long measurement may be stopped.

    :param rows: values by name; they may be computed while this is called.
    :param output: JSON file: {"metrics": rows, "provenance": as `provenance` has it}; none if not given.
    :param data: checksum of the data, or what checks them.
    :param extra: further entries of the provenance.
    :return: the rows.
    """
    written_rows: list[dict[str, Any]] = []
    for row in rows:
        written_rows.append(dict(row))
        print(*(f"{name}={value}" for name, value in row.items()), flush=True)
        if output is not None:
            write_json(output, {"metrics": written_rows, "provenance": provenance(data, cpus=os.cpu_count(), **extra)})
    return written_rows
