"""Sparse matrices in files: CSR as `scipy.sparse.save_npz` writes it, and their labels; every part of a
file is checked.

    X, others = read_matrix("counts.npz")
    labels = labels_of(path, X.shape[0], others)
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import scipy.sparse

from gpflow_deep_base.storage.container import read_npy, read_npz

__all__ = ["LABELS", "Label", "checked_labels", "checksum", "is_matrix", "labels_of", "read_matrix"]

Label = str | int | float
"""Of a row."""

LABELS = ("labels", "label", "y", "Y")
"""Names of an array of labels."""

MAX_COLUMNS = 2**22
"""Each column has weights in a model, whether or not it has entries."""

_MATRIX = {"data", "indices", "indptr", "shape"}


def is_matrix(path: Path) -> bool:
    """Whether a file holds the arrays of a sparse matrix."""
    try:
        with zipfile.ZipFile(path) as archive:
            return path.suffix.lower() == ".npz" and {f"{name}.npy" for name in _MATRIX} <= set(archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False  # who reads it says what is wrong


def read_matrix(path: Path) -> tuple[scipy.sparse.csr_matrix, dict[str, np.ndarray]]:
    """A float32 CSR matrix whose parts fit, and the other arrays of the file.

    :raises ValueError: if the file is damaged, too large unpacked, or of another kind.
    """
    try:
        arrays = read_npz(path)
        # CSC has arrays of the same names.
        kind = arrays.pop("format", np.array(b"csr")).item()
        if kind not in (b"csr", "csr"):
            raise ValueError(f"it holds a matrix of the format {kind!r:.20}; save matrix.tocsr()")
        data, indices, indptr, shape = (arrays.pop(name) for name in ("data", "indices", "indptr", "shape"))
        return _matrix(data, indices, indptr, shape), arrays
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path} is no readable sparse matrix ({error}); write it again.") from error


def checksum(what: str, X: scipy.sparse.csr_matrix, labels: np.ndarray) -> str:
    """Of a matrix and its labels, with integers of one width, whatever the platform has."""
    digest = hashlib.sha256(f"{what} {X.shape}".encode())
    for array, kind in ((X.indptr, "<i8"), (X.indices, "<i8"), (X.data, "<f4"), (labels, "<i8")):
        digest.update(np.ascontiguousarray(array, dtype=kind).tobytes())
    return digest.hexdigest()


def _matrix(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: np.ndarray) -> scipy.sparse.csr_matrix:
    """:raises ValueError: if the parts do not fit: SciPy's own code does not look at every index."""
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or any(a.ndim != 1 for a in (data, indices, indptr)):
        raise ValueError("data, indices and indptr must be vectors, and shape two numbers")
    num_rows, num_columns = map(int, shape)
    if data.dtype.kind not in "biuf" or indices.dtype.kind not in "iu" or indptr.dtype.kind not in "iu":
        raise ValueError("data must be numbers, indices and indptr whole numbers")
    if not (num_rows >= 1 and 1 <= num_columns <= MAX_COLUMNS):
        raise ValueError(f"it must have at least one row and 1 to {MAX_COLUMNS} columns, got {num_rows}, {num_columns}")
    # The entries of row n are those from indptr[n] to indptr[n + 1].
    starts = indptr.astype(np.int64)
    if len(starts) != num_rows + 1 or starts[0] != 0 or (np.diff(starts) < 0).any() or starts[-1] != len(data):
        raise ValueError("indptr must rise from 0 to the number of entries, with one number more than rows")
    if len(indices) != len(data) or (len(indices) and not 0 <= indices.min() <= indices.max() < num_columns):
        raise ValueError(f"indices must be columns from 0 to {num_columns - 1}, one for each entry")
    # What float32 does not hold becomes infinite, and is refused below.
    with np.errstate(over="ignore"):
        values = data.astype(np.float32)
    X = scipy.sparse.csr_matrix((values, indices.astype(np.int64), starts), shape=(num_rows, num_columns))
    if not np.isfinite(X.data).all():
        raise ValueError("its entries must be finite")
    X.sum_duplicates()
    return X


def labels_of(
    path: Path,
    num_rows: int,
    arrays: Mapping[str, np.ndarray],
    *,
    file: str | None = None,
    target: Sequence[str] = (),
) -> list[Label]:
    """A label for each row.

    :param arrays: those beside the matrix.
    :param file: where they are, else; see `TextSpec.labels`.
    :param target: name of their array; one of :data:`LABELS` if it is empty.
    :raises ValueError: if there are none, or they do not fit.
    """
    # In a file of their own, or in an array beside the matrix.
    key = next((name for name in target or LABELS if name in arrays), None)
    if file is not None:
        labels = _label_file(Path(file))
        where = file
    elif key is not None:
        labels = arrays[key]
        where = f"{key} in {path}"
    else:
        raise ValueError(
            f"{path} must hold labels beside its matrix, as an array called labels (--target names another), got "
            f"{', '.join(sorted(arrays)) or 'none'}; give a file with a label for each row by --labels."
        )
    return checked_labels(labels, num_rows, where)


def checked_labels(labels: np.ndarray, num_rows: int, where: str) -> list[Label]:
    """Labels [N] or [N, 1] one by one.

    :param where: they are, for the error.
    :raises ValueError: if they are no labels of so many rows, or one is missing.
    """
    # A matrix of one column is a vector.
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.shape != (num_rows,) or labels.dtype.kind not in "biufUS":
        raise ValueError(f"{where} must be a label for each of {num_rows} rows, got {labels.dtype} {labels.shape}.")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError(f"{where} must be labels without missing ones, got NaN or infinity; leave these rows out.")
    return [label.decode() if isinstance(label, bytes) else label for label in labels.tolist()]


def _label_file(path: Path) -> np.ndarray:
    try:
        if path.suffix.lower() == ".npy":
            return read_npy(path)
        lines = path.read_text(encoding="utf-8-sig").splitlines()
        return np.array([line.strip() for line in lines])
    except (OSError, ValueError) as error:
        raise ValueError(f"--labels={path} cannot be read ({error}); give .npy, or one label a line.") from error
