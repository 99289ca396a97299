"""A known data set, or a file, as rows in the view that a model needs.

data = load(Source(dataset="boston"), "supervised", split=3)
data.train.X, data.valid.Y, data.sizes

| view         | X                                      | Y                     | parts                               |
|--------------|----------------------------------------|-----------------------|-------------------------------------|
| "supervised" | float64 [n, D], units of the source    | see `Rows.task`       | by `split`; or "all" if it is None  |
| "binary"     | uint8 [n, D], zeros and ones           | classes [n, 1] or None| of the source                       |
| "grey"       | float32 [n, D], intensities in [0, 1]  | None                  | those of the binary view            |
| "images"     | float32 [n, H, W, C] in [-1, 1]        | int64 [n, 1]          | `num_valid` of the training images  |
| "text"       | float32 CSR [n, D], words in documents | int64 [n, 1], 0 and 1 | "all", for `Rows.folds`             |
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from experiment.data import tables
from experiment.data.rows import Dataset, Part, Rows, Task, divide
from experiment.data.sets import binary, images, supervised, text
from experiment.seeds import numpy_rng

__all__ = ["Source", "View", "load", "names"]

View = Literal["supervised", "binary", "grey", "images", "text"]


@dataclass(frozen=True)
class Source:
    """Which data.

    :param dataset: Name of a known data set.
    :param data_dir: Folder with the files of the known data sets.
    :param data: Own data in place of --dataset: a .csv, .csv.gz, .parquet or .npz file.
    :param target: Column of --data to predict.
    :param task: What --target is; found out from the column if not given.
    """

    dataset: str | None = None
    data_dir: str | None = None
    data: str | None = None
    target: str | None = None
    task: Task | None = None

    def __post_init__(self) -> None:
        if self.dataset is not None and self.data is not None:
            raise ValueError(f"give --dataset or --data, not both, got {self.dataset!r} and {self.data!r}.")
        if self.data is None and (self.target is not None or self.task is not None):
            raise ValueError("--target and --task describe your own table; give it with --data, or leave them out.")


def names(view: View) -> list[str]:
    """Names of the known data sets that have a view."""
    known: dict[View, Callable[[], list[str]]] = {
        "supervised": supervised.names,
        "binary": binary.binary_names,
        "grey": lambda: ["digits", "mnist"],
        "images": images.image_names,
        "text": text.names,
    }
    return known[view]()


def load(
    source: Source,
    view: View,
    *,
    default: str = "digits",
    split: int | None = 0,
    valid_fraction: float = 0.1,
    seed: int = 0,
    num_valid: int = 5000,
    max_images: int | None = None,
) -> Rows:
    """Read what `source` names.

    :param default: the data set if `source` names nothing.
    :param split: of "supervised": see `rows.divide`; None leaves the rows in one part "all", for `Rows.folds`.
    :param valid_fraction: of "supervised": see `rows.divide`. :param seed: likewise.
    :param num_valid: of "images": training images to set aside for validation, but at most a tenth of them; which ones
        depends on the data set only.
    :param max_images: of "images": use only the first training images (before some are set aside) and test images.
    :raises ValueError: as the readers; a known set without this view is named with those that have it.
    """
    if source.data is None:
        _check_view(source.dataset or default, view)
    elif view in ("grey", "text"):
        raise ValueError(
            f"--data={source.data} cannot be read as {view!r}; give --dataset, one of {', '.join(names(view))}."
        )
    name = source.dataset or default
    if view == "supervised":
        return _supervised(source, name, split, valid_fraction, seed)
    if view == "binary":
        return _binary(source, name)
    if view == "images":
        return _images(source, name, num_valid, max_images)
    return _grey(source, name) if view == "grey" else _text(source, name)


def _check_view(name: str, view: View) -> None:
    having = [other for other in get_args(View) if name in names(other)]
    if not having:
        raise ValueError(f"--dataset must be one of {', '.join(names(view))}, got {name!r}; for own data use --data.")
    if view not in having:
        raise ValueError(
            f"--dataset must have the view {view!r} here, as {', '.join(names(view))}; {name!r} has "
            f"{', '.join(having)} only."
        )


def _supervised(source: Source, name: str, split: int | None, valid_fraction: float, seed: int) -> Rows:
    if source.data is not None:
        read = tables.read_table(source.data, target=source.target, task=source.task)
    else:
        read = supervised.load(name, source.data_dir)
    data = _undivided(read)
    return data if split is None else divide(data, split=split, valid_fraction=valid_fraction, seed=seed)


def _undivided(read: Dataset) -> Rows:
    return Rows(
        read.name,
        {"all": Part(read.X, read.Y)},
        read.task,
        read.source,
        read.sha256,
        feature_names=read.feature_names,
        target_names=(read.target_name,) if read.schema is None else read.schema.targets,
        class_names=read.class_names,
        schema=read.schema,
        splits=read.splits,
    )


def _binary(source: Source, name: str) -> Rows:
    read = binary.load_binary(name, source.data_dir) if source.data is None else binary.read_binary_table(source.data)
    parts = {
        part: Part(getattr(read, part), None if read.labels is None else getattr(read.labels, part)[:, None])
        for part in ("train", "valid", "test")
    }
    return Rows(read.name, parts, "density", read.source, read.sha256, read.image_shape, read.column_names)


def _grey(source: Source, name: str) -> Rows:
    known = supervised.load(name, source.data_dir)
    X = np.asarray(known.X, np.float32)
    order = np.arange(len(X)) if name == "mnist" else numpy_rng(0, "binary_data/digits").permutation(len(X))
    cuts = [50_000, 60_000] if name == "mnist" else [1297, 1497]
    parts = {n: Part(x) for n, x in zip(("train", "valid", "test"), np.split(X[order] / X.max(), cuts), strict=True)}
    side = math.isqrt(X.shape[1])
    digest = hashlib.sha256(np.ascontiguousarray(X[order]).tobytes()).hexdigest()
    return Rows(f"{name} intensities", parts, "density", known.source, digest, (side, side), known.feature_names)


def _images(source: Source, name: str, num_valid: int, max_images: int | None) -> Rows:
    if source.data is not None:
        read = images.read_images(source.data)
    else:
        read = images.load_images(name, source.data_dir)
    train, valid = read.split(min(num_valid, len(read.X) // 10))
    if max_images is not None:
        train, valid = train[train < max_images], valid[valid < max_images]

    def part(X: np.ndarray, labels: np.ndarray) -> Part:
        return Part(read.scaled(X), labels[:, None])

    parts = {
        "train": part(read.X[train], read.labels[train]),
        "valid": part(read.X[valid], read.labels[valid]),
        "test": part(read.X_test[:max_images], read.labels_test[:max_images]),
    }
    shape = (read.X.shape[1], read.X.shape[2])
    return Rows(read.name, parts, "multiclass", read.source, read.sha256, shape, class_names=read.class_names)


def _text(source: Source, name: str) -> Rows:
    read = text.load(name, source.data_dir)
    Y = (read.labels[:, None] > 0).astype(np.int64)
    parts = {"all": Part(read.X, Y)}
    return Rows(read.name, parts, "binary", read.source, read.sha256, class_names=read.class_names, is_shuffled=True)
