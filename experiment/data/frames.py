"""A table in a file (.csv, .csv.gz, .parquet or .npz) as a pandas data frame, whole and with distinct column names."""

import csv
import gzip
import importlib
import os
import re
import warnings
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiment.data.rows import Indices
from experiment.files import read_npz

__all__ = ["READ_ERRORS", "Table", "check_missing", "is_csv", "open_text", "quoted", "read_frame"]

READ_ERRORS = (ValueError, EOFError, KeyError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error)
"""What readers raise if a file is damaged."""


class Table(NamedTuple):
    """What a file holds.

    :ivar frame: all columns.
    :ivar targets: those of a matrix y or Y of an .npz file; () where the file does not tell.
    :ivar splits: standard splits of an .npz file, as pairs of row numbers (train, test).
    """

    frame: pd.DataFrame
    targets: tuple[str, ...] = ()
    splits: tuple[tuple[Indices, Indices], ...] | None = None


def read_frame(path: str | os.PathLike[str]) -> Table:
    """Read a table.

    :raises ValueError: naming the file: it is missing, empty, truncated or of another format, its names of columns are
        absent or occur twice, or its rows have more values than there are names.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"--data must be a file, but there is none at {path}; check the path.")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty; check how it was written.")
    if is_csv(path):
        return Table(_read_csv(path))
    if path.suffix.lower() == ".parquet":
        return Table(_read_parquet(path))
    if path.suffix.lower() == ".npz":
        return _npz_table(read_npz(path), path)
    raise ValueError(f"--data must end in .csv, .csv.gz, .parquet or .npz, got {path.name}; convert the file.")


def is_csv(path: Path) -> bool:
    """Whether the name of a file ends in .csv or .csv.gz."""
    return path.name.lower().endswith((".csv", ".csv.gz"))


def open_text(path: Path) -> Any:
    """A CSV file to read, unpacked if its name ends in .gz."""
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    return opener(path, "rt", encoding="utf-8-sig", newline="")


def check_missing(frame: pd.DataFrame, names: Sequence[str], path: Path) -> None:
    """:raises ValueError: if columns of `frame`, which was read from `path`, have missing values; with their counts."""
    counts = frame[list(names)].isna().sum()
    bad = [f"{name!r} ({count})" for name, count in counts.items() if count]
    if bad:
        raise ValueError(f"{path} has missing values in {', '.join(bad)}; drop those rows or columns, or impute them.")


def quoted(names: Any, limit: int = 10) -> str:
    """The first of some names in quotes, and how many more there are."""
    names = [repr(str(name)) for name in names]
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        importlib.import_module("pyarrow")
        frame = pd.read_parquet(path)
    except ImportError as error:
        raise ValueError(
            f"reading {path} needs the package pyarrow ({error}); install a version for NumPy {np.__version__}."
        ) from error
    except (OSError, *READ_ERRORS) as error:
        raise ValueError(f"{path} is no readable parquet file ({error}); write it again.") from error
    frame.columns = frame.columns.map(str)
    return frame.reset_index(drop=True)


def _read_csv(path: Path) -> pd.DataFrame:
    try:
        with open_text(path) as lines:
            header = next(csv.reader(lines), [])
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
            frame = pd.read_csv(
                path, index_col=False, float_precision="round_trip", encoding="utf-8-sig", low_memory=False
            )
    except pd.errors.ParserWarning as error:
        raise ValueError(f"{path} has rows of more values than column names; check its commas.") from error
    except (csv.Error, *READ_ERRORS) as error:
        raise ValueError(f"{path} is no readable, complete CSV file in UTF-8 ({error}); write it again.") from error
    header = [name.strip() for name in header]
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise ValueError(f"{path} must have different column names, but {quoted(repeated)} occur twice; rename them.")
    if "" in header:
        raise ValueError(
            f"column {header.index('')} of {path} has no name; name it, or leave out a column of row numbers."
        )
    if any(re.fullmatch(r"[-+]?\d*\.?\d+([eE][-+]?\d+)?", name) for name in header):
        raise ValueError(f"the first line of {path} must hold column names, got numbers ({header[0]}, ...); add them.")
    if len(header) == 1 and re.search(r"[;\t]", header[0]):
        raise ValueError(f"{path} must have commas between its columns, got {header[0][:60]!r}; convert it.")
    frame.columns = pd.Index(header)
    return frame


def _npz_table(arrays: dict[str, NDArray[Any]], path: Path) -> Table:
    if "X" not in arrays:
        wrong = [name for name, array in arrays.items() if array.shape != (len(array) if array.ndim else 0,)]
        lengths = {len(array) for array in arrays.values() if array.ndim}
        if wrong or len(lengths) != 1:
            raise ValueError(
                f"{path} must hold X and y, or one array [N] for each column, got "
                f"{', '.join(f'{name} {array.shape}' for name, array in arrays.items()) or 'no array'}; write it again."
            )
        return Table(pd.DataFrame(arrays))
    extra = sorted(set(arrays) - {"X", "y", "Y", "feature_names", "train_idx", "test_idx"})
    if extra or {"y", "Y"} <= set(arrays):
        raise ValueError(
            f"{path} may hold X, y or Y, feature_names, train_idx and test_idx, got {quoted(sorted(arrays))}; leave "
            "out the others."
        )
    X = arrays["X"]
    names = [str(name) for name in arrays.get("feature_names", [f"x{d}" for d in range(X.shape[-1] if X.ndim else 0)])]
    if X.ndim != 2 or len(set(names)) != X.shape[1]:
        raise ValueError(
            f"X in {path} must be [N, D] with D different feature names, got {X.shape}, {len(names)} names."
        )
    frame = pd.DataFrame(X, columns=pd.Index(names))
    targets: tuple[str, ...] = ()
    key = "Y" if "Y" in arrays else "y"
    if key in arrays:
        Y = np.atleast_1d(arrays[key])
        Y = Y[:, None] if Y.ndim == 1 else Y
        targets = (key,) if Y.shape[1] == 1 else tuple(f"{key}{p}" for p in range(Y.shape[1]))
        if Y.ndim != 2 or len(Y) != len(X) or set(targets) & set(names):
            raise ValueError(
                f"{key} in {path} must be [N] or [N, P] with N = {len(X)} and be no feature's name, got {Y.shape}."
            )
        for p, name in enumerate(targets):
            frame[name] = Y[:, p]
    return Table(frame, targets, _stored_splits(arrays, path))


def _stored_splits(arrays: Mapping[str, NDArray[Any]], path: Path) -> tuple[tuple[Indices, Indices], ...] | None:
    pair = [arrays[key] for key in ("train_idx", "test_idx") if key in arrays]
    if not pair:
        return None
    if len(pair) != 2 or any(a.ndim != 2 or a.dtype.kind not in "iu" for a in pair) or len(pair[0]) != len(pair[1]):
        raise ValueError(f"train_idx and test_idx in {path} must both be integers [splits, n]; write them again.")
    return tuple((train.astype(np.int64), test.astype(np.int64)) for train, test in zip(*pair, strict=True))
