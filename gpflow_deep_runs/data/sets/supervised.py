"""Readers of larger known sets with numbers as inputs, and of those that come with scikit-learn."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data.rows import Indices, Rows
from gpflow_deep_runs.data.sets import files as raw
from gpflow_deep_runs.data.sets.files import read_numbers
from gpflow_deep_runs.data.table.numeric import undivided

__all__ = ["read_mnist", "read_particles", "read_rectangles", "read_scikit", "read_year"]

_PARTICLES = {"susy": (5_000_000, 18), "higgs": (11_000_000, 28)}  # rows and features


def read_year(name: str, paths: Sequence[Path], *, num_rows: int = 515_345, num_train: int = 463_715) -> Rows:
    """Songs; the first rows train, so that no artist is in both parts."""
    (path,) = paths
    # The first column is the target.
    table = read_numbers(path, (num_rows, 91), ",")
    source = f"{path.name}; the first {num_train} rows train, the others test, so that no artist is in both"
    return undivided(
        name,
        table[:, 1:],
        table[:, :1],
        "regression",
        source=source,
        feature_names=[f"timbre_mean{i}" for i in range(12)] + [f"timbre_covariance{i}" for i in range(78)],
        target_names=("year",),
        splits=_train_then_test(num_train, num_rows),
    )


def read_particles(name: str, paths: Sequence[Path], *, num_rows: int | None = None, num_test: int = 500_000) -> Rows:
    """SUSY or HIGGS: the label, then the features; the last rows test.

    :param num_rows: rows there have to be; those of the set if None.
    """
    (path,) = paths
    (rows, num_features) = _PARTICLES[name]
    rows = num_rows or rows
    # The label, then the features.
    table = read_numbers(path, (rows, num_features + 1), ",")
    return undivided(
        name,
        table[:, 1:],
        _labels(table[:, :1], path),
        "binary",
        source=f"{path.name}; the last {num_test} rows test",
        target_names=("is_signal",),
        class_names=("background", "signal"),
        splits=_train_then_test(rows - num_test, rows),
    )


def read_rectangles(name: str, paths: Sequence[Path], *, counts: tuple[int, int] = (12_000, 50_000)) -> Rows:
    """Textured rectangles: pixels and the label in each line of a training and a test file, with `counts` lines."""
    # Pixels, then the label.
    table = np.concatenate([read_numbers(path, (rows, 785), r"\s+") for path, rows in zip(paths, counts, strict=True)])
    return undivided(
        name,
        table[:, :-1],
        _labels(table[:, -1:], paths[0]),
        "binary",
        source=f"{paths[0].name} train, {paths[1].name} test; pixels in [0, 1]",
        feature_names=raw.pixel_names(28),
        target_names=("is_wide",),
        class_names=("0", "1"),
        splits=_train_then_test(counts[0], sum(counts)),
        image_shape=(28, 28),
    )


def read_mnist(name: str, paths: Sequence[Path]) -> Rows:
    """MNIST in [0, 1]; its test images test."""
    # Training and test images one after the other, as the only standard split.
    train, train_labels, test, test_labels = raw.mnist(paths)
    images = np.concatenate([train, test])
    labels = np.concatenate([train_labels, test_labels])
    return undivided(
        name,
        images.reshape(len(images), -1) / 255.0,
        labels[:, None],
        "multiclass",
        source="MNIST idx files; pixels divided by 255; the t10k files test",
        feature_names=raw.pixel_names(28),
        target_names=("digit",),
        class_names=raw.CLASS_NAMES,
        splits=_train_then_test(len(train), len(images)),
        image_shape=(28, 28),
    )


def read_scikit(name: str, paths: Sequence[Path]) -> Rows:
    """A set that comes with scikit-learn, in raw units."""
    is_regression = name == "diabetes"
    from sklearn import datasets  # here, as it takes a second to import

    load = getattr(datasets, f"load_{name}")
    bunch = load(**({"scaled": False} if is_regression else {}))
    splits = None
    divided = "random splits"
    # The digits are divided as in all views.
    if name == "digits":
        train, test = np.split(raw.digits_order(), [sum(raw.DIGITS_COUNTS)])
        splits = ((np.sort(train), np.sort(test)),)
        divided = f"{len(test)} drawn for testing with a fixed seed"
    return undivided(
        name,
        bunch.data,
        bunch.target[:, None],
        "regression" if is_regression else "binary" if len(bunch.target_names) == 2 else "multiclass",
        source=f"scikit-learn, load_{name}; {divided}",
        feature_names=tuple(map(str, bunch.feature_names)),
        target_names=("progression" if is_regression else "class",),
        class_names=() if is_regression else tuple(map(str, bunch.target_names)),
        splits=splits,
        image_shape=(8, 8) if name == "digits" else None,
    )


def _train_then_test(num_train: int, num_data: int) -> tuple[tuple[Indices, Indices], ...]:
    return ((np.arange(num_train), np.arange(num_train, num_data)),)


def _labels(column: NDArray[np.float64], path: Path) -> NDArray[np.int64]:
    if not np.isin(column, (0, 1)).all():
        raise ValueError(f"the labels in {path} must be 0 to 1, got {np.unique(column)[:5]}; get it again.")
    return column.astype(np.int64)
