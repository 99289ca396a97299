"""Readers of the small regression sets of the UCI repository with their standard splits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_base.storage.container import read_npz
from gpflow_deep_runs.data.files.libraries import pd
from gpflow_deep_runs.data.rows import Indices, Rows
from gpflow_deep_runs.data.sets.files import KNOWN, read_numbers
from gpflow_deep_runs.data.table.numeric import undivided

__all__ = ["SETS", "Uci", "read"]

Splits = tuple[tuple[Indices, Indices], ...]


class Uci(NamedTuple):
    """What a set holds.

    :ivar folder: of the public repository with the splits, in UCI_Datasets.
    """

    folder: str
    rows: int
    features: Sequence[str]
    target: str


SETS = {name: Uci(**facts["holds"]) for name, facts in KNOWN.items() if facts["views"].get("supervised") == "uci.read"}
"""The sets by name."""


def read(name: str, paths: Sequence[Path], *, num_rows: int | None = None) -> Rows:
    """One of :data:`SETS`: an .npz copy, data.txt with its index files beside it, or the CSV file of the red wines.

    :param num_rows: rows there have to be; those of the set if None.
    :raises ValueError: if a file is damaged, or has another number of rows or columns.
    """
    (path,) = paths
    uci = SETS[name]
    features = tuple(uci.features)
    # A packed copy, the public text, or another publisher's.
    if path.suffix == ".npz":
        X, y, splits = _read_copy(path)
    elif path.suffix == ".csv":
        X, y, splits = *_read_wine(path), None
    else:
        X, y, splits = _read_public(path, len(features) + 1)
    # The counts tell whether the file is that of the set.
    shape = (num_rows or uci.rows, len(features))
    if X.shape != shape:
        raise ValueError(f"{path} must hold {shape[0]} rows of {shape[1]} features, got {X.shape}; get it again.")
    source = f"{path.name} of the UCI set {uci.folder!r}; " + ("standard splits" if splits else "random splits")
    return undivided(
        name,
        X,
        y[:, None],
        "regression",
        source=source,
        feature_names=features,
        target_names=(uci.target,),
        splits=splits,
    )


def _read_copy(path: Path) -> tuple[NDArray[np.float64], NDArray[np.float64], Splits]:
    stored = read_npz(path)
    pairs = zip(stored["train_idx"], stored["test_idx"], strict=True)
    return stored["X"], stored["y"], tuple((train.astype(np.int64), test.astype(np.int64)) for train, test in pairs)


def _read_public(path: Path, num_columns: int) -> tuple[NDArray[np.float64], NDArray[np.float64], Splits]:
    """`data.txt` with the index files next to it: which columns are features and target, and the rows of each split."""
    table = read_numbers(path, (None, _count_columns(path, num_columns)), r"\s+")
    features = _read_indices(path.with_name("index_features.txt"))
    target = _read_indices(path.with_name("index_target.txt"))
    if len(target) != 1 or max([*features, *target]) >= table.shape[1]:
        raise ValueError(f"index_target.txt and index_features.txt do not fit {path}; get the whole folder again.")
    # The rows of each standard split.
    count = int(_read_indices(path.with_name("n_splits.txt"))[0])
    splits = tuple(
        (
            _read_indices(path.with_name(f"index_train_{number}.txt")),
            _read_indices(path.with_name(f"index_test_{number}.txt")),
        )
        for number in range(count)
    )
    return table[:, features], table[:, target[0]], splits


def _count_columns(path: Path, at_least: int) -> int:
    with open(path, encoding="utf-8") as lines:
        count = len(lines.readline().split())
    if count < at_least:
        raise ValueError(f"{path} must have at least {at_least} columns, got {count}; is it another set's file?")
    return count


def _read_indices(path: Path) -> Indices:
    """Row or column numbers, written as integers or as floats."""
    if not path.is_file():
        raise ValueError(f"{path} is missing; data.txt needs all the index files of its folder, get the whole folder.")
    try:
        values = np.loadtxt(path, ndmin=1)
    except ValueError as error:
        raise ValueError(f"{path} must hold row numbers ({error}); get it again.") from error
    if values.ndim != 1 or len(values) == 0 or (values != np.round(values)).any():
        raise ValueError(f"{path} must hold one whole number a line, got an array {values.shape}; get it again.")
    return values.astype(np.int64)


def _read_wine(path: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    try:
        frame = pd.read_csv(path, sep=";", dtype=np.float64, float_precision="round_trip")
    except ValueError as error:
        raise ValueError(f"{path} must hold numbers between semicolons ({error}); get it again.") from error
    if list(frame.columns)[-1] != "quality":
        raise ValueError(f"the last column of {path} must be 'quality', got {list(frame.columns)[-1]!r}; get it again.")
    return frame.to_numpy()[:, :-1], frame.to_numpy()[:, -1]
