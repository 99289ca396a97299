"""Rows of numbers as they are: read from and written to .npy, .npz and .csv files.

rows = read_rows("images.npz", part="test")
"""

import os
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_base.files import atomic_path
from gpflow_deep_base.storage.container import read_npy, read_npz
from gpflow_deep_runs.data.density.bits import unpacked
from gpflow_deep_runs.data.files.delimited import HEAD_BYTES, dialect_of
from gpflow_deep_runs.data.files.packed import check_file, open_unpacked
from gpflow_deep_runs.data.files.sources import is_delimited

__all__ = ["WRITTEN", "has_names", "read_rows", "write_rows"]

NAMES = ("X", "train", "valid", "test")
WRITTEN = (".npy", ".npz", ".csv")
"""How the name of a file for :func:`write_rows` ends."""


def read_rows(path: str | os.PathLike[str], part: str | None = None) -> np.ndarray:
    """The numbers of a file, [N, D].

    :param path: .npy; .csv or .csv.gz, perhaps with a line of names; or .npz with arrays X, train, valid or test, whose
        bits are packed if it also holds their number `n_features`.
    :param part: which array of an .npz file; None if it holds but one.
    :raises ValueError: if it is missing, damaged or of another kind, or `part` does not say what to read.
    """
    path = Path(path)
    check_file(path, "the input")
    # By how the name ends, packed or not.
    suffix = path.name.removesuffix(".gz").rsplit(".", 1)[-1].lower()
    if suffix == "npz":
        return _chosen(read_npz(path), path, part)
    # Only .npz files have parts.
    if part is not None:
        raise ValueError(f"--part chooses an array of an .npz file, or a part of a data set, got {path}.")
    if suffix not in ("npy", "csv"):
        raise ValueError(f"the input must end in .npy, .npz, .csv or .csv.gz, got {path}.")
    try:
        return read_npy(path) if suffix == "npy" else _read_csv(path)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read as rows of numbers ({error}); write it again.") from error


def has_names(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a table whose columns have names: Parquet, or text with a line of names."""
    path = Path(path)
    if not is_delimited(path) or not path.is_file():
        return path.suffix.lower() == ".parquet"
    # The first bytes tell whether the first line is one of names.
    try:
        with open_unpacked(path) as stream:
            head = stream.read(HEAD_BYTES)
        return dialect_of(head, str(path), is_whole=len(head) < HEAD_BYTES, names_optional=True).has_header
    except (OSError, ValueError, EOFError, zlib.error):
        return False  # who reads it says what is wrong


def write_rows(path: str | os.PathLike[str], rows: NDArray[np.integer]) -> None:
    """Write whole numbers [N, D], as the name of the file ends: .npy; .npz, as array X; or .csv, without names.

    :raises ValueError: if it ends in another way.
    """
    suffix = Path(path).suffix
    if suffix not in WRITTEN:
        raise ValueError(f"the output must end in {', '.join(WRITTEN)}, got {path}.")
    # The file gets its name when it is whole.
    with atomic_path(path) as temporary, open(temporary, "wb") as stream:
        if suffix == ".npy":
            np.save(stream, rows)
        elif suffix == ".npz":
            np.savez_compressed(stream, X=rows)
        else:
            np.savetxt(stream, rows, fmt="%d", delimiter=",")


def _read_csv(path: Path) -> np.ndarray:
    # A first line that is no row of numbers is one of names.
    try:
        return np.loadtxt(path, delimiter=",", ndmin=2)
    except ValueError:
        return np.loadtxt(path, delimiter=",", ndmin=2, skiprows=1)


def _chosen(arrays: Mapping[str, np.ndarray], path: Path, part: str | None) -> np.ndarray:
    part_names = [name for name in NAMES if name in arrays]
    chosen_names = [part] if part is not None else part_names
    if len(chosen_names) != 1 or chosen_names[0] not in arrays:
        raise ValueError(f"{path} holds {', '.join(part_names) or f'none of {NAMES}'}; say which with --part.")
    rows = arrays[chosen_names[0]]
    return unpacked(rows, arrays["n_features"], path) if "n_features" in arrays else rows
