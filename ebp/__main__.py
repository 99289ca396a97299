"""Labels of new rows by a packed network, with NumPy alone.

    python -m ebp net.ebp rows.csv                   # a label for each row, one a line
    python -m ebp net.ebp rows.npy --output=labels.csv

Rows are numbers: .npy or .npz (its array X), or .csv, perhaps with a line of names. They are raw ones if the file has a
coding; see `ebp.packed.packed`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gpflow_deep_base.files import write_text
from gpflow_deep_base.storage.container import read_npy, read_npz

from .packed.packed import PackedNetwork

__all__ = ["main", "read_rows"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; errors are one line and code 2."""
    parser = argparse.ArgumentParser("python -m ebp", description="Labels of new rows by a packed network.")
    parser.add_argument("network", help="file of ebp.export_network, or of gpflow-deep ebp --export")
    parser.add_argument("data", help="rows of numbers: .npy, .npz with an array X, or .csv")
    parser.add_argument("--output", help="file to write, a label a line under the name label; printed if not given")
    parser.add_argument("--engine", default="auto", help="auto, numba or numpy")
    flags = parser.parse_args(arguments)
    try:
        # What is wrong with a file or its rows is one line, and nothing is written.
        network = PackedNetwork.load(flags.network, flags.engine)
        labels = [_cell(label) for label in network.predict(read_rows(flags.data)).tolist()]
        if flags.output is not None:
            write_text(flags.output, "\n".join(["label", *labels]) + "\n")
    except (ValueError, OSError) as error:
        print(f"python -m ebp: error: {error}", file=sys.stderr)
        return 2
    print(f"{len(labels)} labels written to {flags.output}" if flags.output is not None else "\n".join(labels))
    return 0


def read_rows(path: str) -> np.ndarray:
    """Rows of numbers [N, D].

    :raises ValueError: if the file is missing, damaged or of another kind.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (".npy", ".npz", ".csv"):
        raise ValueError(f"rows must be in a file .npy, .npz or .csv, got {path}; convert it.")
    if not Path(path).is_file():
        raise ValueError(f"rows must be in a file, but there is none at {path}; check the path.")
    # Whatever the bytes are, they are rows of numbers or refused.
    try:
        if suffix == ".csv":
            return _read_csv(path)
        return read_npz(path)["X"] if suffix == ".npz" else read_npy(path)
    except (ValueError, KeyError, OSError) as error:
        raise ValueError(f"{path} cannot be read as rows of numbers ({error}); write it again.") from error


def _read_csv(path: str) -> np.ndarray:
    with open(path, encoding="utf-8-sig") as file:
        first = file.readline()
    # A first line without any number has names; one with some is a row, in which a gap is refused.
    has_names = not any(map(_is_number, first.split(",")))
    return np.loadtxt(path, delimiter=",", ndmin=2, skiprows=int(has_names), encoding="utf-8-sig")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _cell(label: object) -> str:
    """As a cell of CSV."""
    text = str(label)
    return '"' + text.replace('"', '""') + '"' if set(text) & set('",\r\n') else text


if __name__ == "__main__":
    sys.exit(main())
