"""Readers of known sets of zeros and ones, and of images in shades of grey, for density models.

A packed copy (.npz) of a set is checked against its SHA-256; text files by their numbers of rows and columns.
"""

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import io

from gpflow_deep_base.seeds import numpy_rng
from gpflow_deep_base.storage.container import read_npz
from gpflow_deep_runs.data.density.bits import PARTS, Bits, as_bits, density, unpacked
from gpflow_deep_runs.data.rows import Part, Rows
from gpflow_deep_runs.data.sets import files as raw
from gpflow_deep_runs.data.sets.files import KNOWN, read_bytes

__all__ = [
    "PACKED_SETS",
    "Packed",
    "read_caltech",
    "read_digits",
    "read_grey_digits",
    "read_grey_mnist",
    "read_mnist",
    "read_packed_set",
    "read_rcv1",
    "read_web",
]

_MNIST_COUNTS = (50_000, 10_000)  # of training and validation images


class Packed(NamedTuple):
    """What a set holds that is read from a packed copy, or from one text file for each part.

    :ivar rows: of the training, validation and test part.
    """

    rows: tuple[int, int, int]
    columns: int
    image_shape: tuple[int, int] | None
    source: str


def _packed(rows: Sequence[int], columns: int, image_shape: Sequence[int] | None, source: str) -> Packed:
    num_train, num_valid, num_test = rows
    shape = None if image_shape is None else (image_shape[0], image_shape[1])
    return Packed((num_train, num_valid, num_test), columns, shape, source)


PACKED_SETS = {
    name: _packed(**facts["holds"])
    for name, facts in KNOWN.items()
    if facts["views"].get("binary") == "binary.read_packed_set"
}
"""The sets by name."""


def read_packed_set(name: str, paths: Sequence[Path], *, known: Packed | None = None) -> Rows:
    """One of :data:`PACKED_SETS`: an .npz file, or the text file of the training part with the others beside it.

    :param known: what it has to hold.
    """
    (path,) = paths
    known = known or PACKED_SETS[name]
    # All parts in one packed file, or a text file for each.
    if path.suffix == ".npz":
        arrays = _read_packed(path)
        parts = {part: arrays[part] for part in PARTS}
    else:
        parts = {part: _read_text(path.with_name(path.name.replace("train", part))) for part in PARTS}
    # The counts tell whether all rows are there.
    shapes = [parts[part].shape for part in PARTS]
    if shapes != [(rows, known.columns) for rows in known.rows]:
        raise ValueError(
            f"{path} and its parts must have {known.rows} rows of {known.columns} columns, got {shapes}: the files are "
            "not complete or another version."
        )
    return density(name, parts, known.source, image_shape=known.image_shape)


def read_digits(name: str, paths: Sequence[Path]) -> Rows:
    """Scikit-learn's digits, thresholded."""
    pixels, labels = raw.digits()
    source = "scikit-learn, load_digits, pixels of at least 8 of 16"
    return _drawn(name, (pixels >= 8).astype(np.uint8), labels, raw.digits_order(), raw.DIGITS_COUNTS, source, (8, 8))


def read_mnist(name: str, paths: Sequence[Path], *, counts: tuple[int, int] = _MNIST_COUNTS) -> Rows:
    """MNIST, thresholded; `counts` of the images train and validate, one after the other."""
    # Training and test images one after the other, so that cuts give the parts.
    images = raw.mnist(paths)
    rows = np.concatenate([images.train, images.test])
    rows = (rows.reshape(len(rows), -1) / 255.0 > 0.5).astype(np.uint8)
    labels = np.concatenate([images.train_labels, images.test_labels])
    cuts = np.cumsum(counts)
    source = (
        f"MNIST, pixels above 0.5; the first {counts[0]} of the training images train, the other {counts[1]} validate"
    )
    parts, classes = (dict(zip(PARTS, np.split(array, cuts), strict=True)) for array in (rows, labels))
    return density(name, parts, source, image_shape=(28, 28), labels=classes)


def read_grey_digits(name: str, paths: Sequence[Path]) -> Rows:
    """Scikit-learn's digits in [0, 1], in the parts of :func:`read_digits`."""
    pixels, _ = raw.digits()
    return _grey(name, pixels[raw.digits_order()], 16, raw.DIGITS_COUNTS, "scikit-learn, load_digits")


def read_grey_mnist(name: str, paths: Sequence[Path], *, counts: tuple[int, int] = _MNIST_COUNTS) -> Rows:
    """MNIST in [0, 1], in the parts of :func:`read_mnist`."""
    images = raw.mnist(paths)
    pixels = np.concatenate([images.train, images.test])
    pixels = pixels.reshape(len(pixels), -1) / 255.0
    return _grey(name, pixels, 1, counts, "MNIST idx files; pixels divided by 255; the t10k files test")


def _grey(name: str, pixels: NDArray[np.float64], largest: int, counts: tuple[int, int], source: str) -> Rows:
    X = pixels.astype(np.float32)
    parts = {
        part: Part(rows) for part, rows in zip(PARTS, np.split(X / np.float32(largest), np.cumsum(counts)), strict=True)
    }
    digest = hashlib.sha256(np.ascontiguousarray(X).tobytes()).hexdigest()
    side = math.isqrt(X.shape[1])
    return Rows(f"{name} intensities", parts, "density", source, digest, (side, side), raw.pixel_names(side))


def read_caltech(name: str, paths: Sequence[Path]) -> Rows:
    """Caltech-101 silhouettes from a packed copy or the MATLAB file, turned upright."""
    (path,) = paths
    arrays = _read_packed(path) if path.suffix == ".npz" else _read_matlab(path)
    shapes = [arrays[part].shape for part in PARTS]
    if shapes != [(4100, 784), (2264, 784), (2307, 784)]:
        raise ValueError(f"{path} must hold 4100/2264/2307 rows of 784 pixels, got {shapes}; get it again.")
    source = (
        "Caltech-101 silhouettes, 28 x 28, split 1; pixels stored column by column in MATLAB are turned to rows. "
        "Objects are 0 on a background of 1"
    )
    # Pixels that MATLAB stores column by column are put row by row.
    upright = {part: arrays[part].reshape(-1, 28, 28).transpose(0, 2, 1).reshape(-1, 784) for part in PARTS}
    labels = {part: arrays[f"{part}_labels"] for part in PARTS}
    return density(name, upright, source, image_shape=(28, 28), labels=labels)


def _read_matlab(path: Path) -> dict[str, np.ndarray]:
    keys = {"train": "train", "valid": "val", "test": "test"}
    try:
        stored = io.loadmat(path)
        arrays = {part: stored[f"{key}_data"] for part, key in keys.items()}
        return arrays | {f"{part}_labels": np.ravel(stored[f"{key}_labels"]) for part, key in keys.items()}
    except (OSError, KeyError, TypeError, ValueError, NotImplementedError) as error:
        raise ValueError(f"{path} is not the expected MATLAB file ({error!r}); get it again.") from error


def read_web(name: str, paths: Sequence[Path]) -> Rows:
    """LIBSVM's w7a from a packed copy, or from w7a with w7a.t beside it."""
    (path,) = paths
    # Both files together, whose division in the paper is not known.
    if path.suffix == ".npz":
        arrays = _read_packed(path)
        rows = np.concatenate([arrays["train"], arrays["test"]])
        labels = np.concatenate([arrays["train_labels"], arrays["test_labels"]])
    else:
        from sklearn.datasets import load_svmlight_file as read  # here, as it takes a second to import

        try:
            pairs = [read(str(file), n_features=300) for file in (path, path.with_name("w7a.t"))]
        except (OSError, ValueError) as error:
            raise ValueError(f"{path} and w7a.t must be the two LIBSVM files ({error}); get them again.") from error
        rows = as_bits(np.concatenate([X.toarray() for X, _ in pairs]), (), str(path))
        labels = np.concatenate([y > 0 for _, y in pairs])
    if rows.shape != (49_749, 300):
        raise ValueError(
            f"{path} and w7a.t must hold 49749 rows of 300 columns together, got {rows.shape}; get them again."
        )
    # Parts are blocks of an order that never changes.
    order = numpy_rng(0, "binary_data/web").permutation(len(rows))
    source = "LIBSVM w7a and w7a.t together: the rows of the set web of Larochelle and Murray (2011), not its parts"
    return _drawn(name, rows, labels, order, (14_000, 3188), source)


def read_rcv1(name: str, paths: Sequence[Path]) -> Rows:
    """The validation rows of rcv1 from a packed copy or a text file."""
    (path,) = paths
    rows = _read_packed(path)["valid"] if path.suffix == ".npz" else _read_text(path)
    if rows.shape != (10_000, 150):
        raise ValueError(f"{path} must hold 10000 rows of 150 columns, got {rows.shape}; get it again.")
    order = numpy_rng(0, "binary_data/rcv1").permutation(len(rows))
    source = "the 10000 validation rows of the set rcv1 of Larochelle and Murray (2011): not its training and test rows"
    return _drawn(name, rows, None, order, (8000, 1000), source)


def _drawn(
    name: str,
    rows: Bits,
    labels: np.ndarray | None,
    order: NDArray[np.int64],
    counts: tuple[int, int],
    source: str,
    image_shape: tuple[int, int] | None = None,
) -> Rows:
    """Parts drawn at random: the first `counts` of `order` train and validate, the others test."""
    # Blocks of the order are the parts.
    numbers = dict(zip(PARTS, np.split(order, np.cumsum(counts)), strict=True))
    return density(
        name,
        {part: rows[numbers[part]] for part in PARTS},
        f"{source}; {'/'.join(str(len(numbers[part])) for part in PARTS)} rows drawn with a fixed seed",
        image_shape=image_shape,
        labels=None if labels is None else {part: labels[numbers[part]] for part in PARTS},
    )


def _read_packed(path: Path) -> dict[str, np.ndarray]:
    """Arrays of a packed copy, with the parts unpacked to zeros and ones."""
    arrays = read_npz(path)
    return {**arrays, **{part: unpacked(arrays[part], arrays["n_features"], path) for part in PARTS if part in arrays}}


def _read_text(path: Path) -> Bits:
    """0 and 1 in lines, with commas or spaces between them."""
    if not path.is_file():
        raise ValueError(f"{path} is missing; the train, valid and test files belong into one folder, get them all.")
    # Without signs between them, each character is a value, and all lines are equally long.
    lines = read_bytes(path).translate(None, delete=b", \t\r").rstrip(b"\n") + b"\n"
    columns = lines.index(b"\n")
    characters = np.frombuffer(lines, np.uint8)
    if columns < 1 or len(characters) % (columns + 1):
        raise ValueError(f"{path} must hold 0 and 1 in lines of equal length, with commas or spaces; get it again.")
    table = characters.reshape(-1, columns + 1)
    rows = table[:, :-1] - np.uint8(ord("0"))
    if (table[:, -1] != ord("\n")).any() or (rows > 1).any():
        raise ValueError(f"{path} must hold 0 and 1 only, in lines of equal length; get it again.")
    return rows
