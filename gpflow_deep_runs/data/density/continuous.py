"""Numbers for density models: the continuous columns of a table, standardised by the training rows.

data = read_continuous("houses.csv", TableSpec())
data.train.X                                              # float32 [n, D], mean 0 and deviation 1
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
from absl import logging
from numpy.typing import NDArray

from gpflow_deep_runs.data import tables
from gpflow_deep_runs.data.files.sources import read_source
from gpflow_deep_runs.data.rows import Part, Rows, divide
from gpflow_deep_runs.data.table.spec import TableSpec

__all__ = ["read_continuous", "standardised"]

MIN_VALUES = 10
"""Columns of fewer different numbers are no continuous ones."""


def read_continuous(path: str | os.PathLike[str], spec: TableSpec = TableSpec()) -> Rows:
    """The columns of numbers of a table, without a target; its rows are divided as `rows.divide` divides them.

    :raises ValueError: as `tables.read_table`; if values are missing, or no column is continuous.
    """
    table = read_source(path, spec=spec)
    encoded = tables.encode_chosen(table, (), spec)
    # The columns of X that are numbers or times, without levels, parts of dates and marks of missing values.
    features = [(name, f.column.kind) for f in encoded.schema.columns for name in f.names]
    names = [name for name, kind in features if kind in ("number", "time")]
    X = encoded.X[:, [place for place, (_, kind) in enumerate(features) if kind in ("number", "time")]]
    if not np.isfinite(X).all():
        column = names[int(np.argmin(np.isfinite(X).all(axis=0)))]
        raise ValueError(
            f"{path} must have a number in every row of {column!r}, as its units miss no values; leave the "
            f"column out with --ignore={column}, or such rows with --bad_rows=drop."
        )
    # A part without targets, divided as any other.
    name = Path(path).name.split(".")[0]
    return standardised(Rows(name, {"all": Part(X)}, "density", f"the file {Path(path).name}", "", None, tuple(names)))


def standardised(data: Rows, *, split: int = 0, valid_fraction: float = 0.1) -> Rows:
    """Continuous inputs of a part "all" in parts, each column less its mean over its deviation in the training rows.

    Columns of fewer than ten different numbers are left out, which is said.

    :raises ValueError: if no column is left, or as `rows.divide`.
    """
    # Columns of few different numbers have no density.
    X = np.asarray(data.parts["all"].X, np.float64)
    is_kept = np.array([len(np.unique(column)) >= MIN_VALUES for column in X.T], bool)
    names = tuple(data.feature_names) or tuple(f"x{d}" for d in range(X.shape[1]))
    if not is_kept.any():
        raise ValueError(f"{data.name} has no column of at least {MIN_VALUES} different numbers; use other units.")
    if left_out := [name for name, is_continuous in zip(names, is_kept, strict=True) if not is_continuous]:
        logging.warning("%s: not continuous, left out: %s.", data.name, ", ".join(left_out))
    X = X[:, is_kept]
    # The parts come first: mean and deviation are those of the training rows alone.
    both = replace(data, parts={"all": Part(X, np.zeros([len(X), 1]))}, schema=None, feature_names=names)
    parts = divide(both, split=split, valid_fraction=valid_fraction).parts
    mean = parts["train"].X.mean(axis=0)
    deviation = parts["train"].X.std(axis=0)
    standardised_parts = {name: Part(((part.X - mean) / deviation).astype(np.float32)) for name, part in parts.items()}
    return Rows(
        data.name,
        standardised_parts,
        "density",
        f"{data.source}; {is_kept.sum()} columns, standardised by the training rows",
        _checksum(standardised_parts.values()),
        feature_names=tuple(name for name, is_continuous in zip(names, is_kept, strict=True) if is_continuous),
    )


def _checksum(parts: Iterable[Part]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        rows: NDArray[np.float32] = np.ascontiguousarray(part.X)
        digest.update(f"{rows.shape}".encode() + rows.tobytes())
    return digest.hexdigest()
