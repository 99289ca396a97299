"""Sets that several views share, read once: handwritten digits, small ones and MNIST, as their sources hold them."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_base.seeds import numpy_rng
from gpflow_deep_runs.data.sets.files import read_bytes

__all__ = [
    "CLASS_NAMES",
    "DIGITS_COUNTS",
    "Mnist",
    "digits",
    "digits_order",
    "mnist",
    "parse_idx",
    "pixel_names",
]

CLASS_NAMES = tuple("0123456789")

DIGITS_COUNTS = (1297, 200)
"""Rows of the digits, in the order of :func:`digits_order`, that train and that validate; the other 300 test."""


class Mnist(NamedTuple):
    """Training and test images uint8 [n, H, W], and their labels int64 [n]."""

    train: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test: NDArray[np.uint8]
    test_labels: NDArray[np.int64]


def mnist(paths: Sequence[Path]) -> Mnist:
    """Images and labels of the four files: training images and labels, then those for tests."""
    train, train_labels, test, test_labels = (parse_idx(read_bytes(path), path) for path in paths)
    return Mnist(train, train_labels.astype(np.int64), test, test_labels.astype(np.int64))


def digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Scikit-learn's digits: pixels from 0 to 16 [1797, 64] and labels [1797]."""
    from sklearn import datasets  # here, as it takes a second to import

    bunch = datasets.load_digits()
    return bunch.data, bunch.target.astype(np.int64)


def digits_order() -> NDArray[np.int64]:
    """Row numbers of the digits in an order that was drawn once; all views are divided by it."""
    return numpy_rng(0, "binary_data/digits").permutation(1797)


def parse_idx(content: bytes, path: Path) -> NDArray[np.uint8]:
    """Array of an idx file: two zero bytes, type 8 (uint8), number of axes, their sizes as big-endian uint32, data.

    :param path: of the file, for the error.
    :raises ValueError: if the file is of another kind or size.
    """
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise ValueError(f"{path} must be an idx file of bytes, it starts with {content[:4]!r}; get it again.")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise ValueError(f"{path} is not complete: {len(content)} bytes; get it again.")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if len(content) - start != np.prod(shape, dtype=np.int64):
        raise ValueError(f"{path} must hold {shape} bytes after its header, got {len(content) - start}; get it again.")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def pixel_names(side: int) -> tuple[str, ...]:
    """Names of the pixels of a square image, row by row."""
    return tuple(f"pixel_{row}_{column}" for row in range(side) for column in range(side))
