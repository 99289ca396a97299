"""Files of known data sets: where they are, whether they are the right ones, and what to do if not.

Nothing is downloaded.

Sets that several views share, read once: handwritten digits, small ones and MNIST, as their sources hold them.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import importlib.util
import json
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_base.seeds import numpy_rng
from gpflow_deep_runs.data.files.libraries import pd

__all__ = [
    "CHUNK_ROWS",
    "CLASS_NAMES",
    "DIGITS_COUNTS",
    "KNOWN",
    "READ_ERRORS",
    "File",
    "Mnist",
    "check_sha256",
    "digits",
    "digits_order",
    "files_of",
    "find",
    "folder_of",
    "installed_folder",
    "located",
    "mnist",
    "parse_idx",
    "pixel_names",
    "read_bytes",
    "read_numbers",
]

KNOWN: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("sets.json").read_text(encoding="utf-8"))
"""Name of a known set -> what it is about, its files, the readers of its views, and what they have to find."""

CHUNK_ROWS = 200_000
"""Rows of a text file that are read at a time."""

READ_ERRORS = (OSError, EOFError, ValueError, zlib.error)
"""What readers of text files raise if a file is damaged."""


class File(NamedTuple):
    """A file that a data set is read from.

    :ivar path: its name below the folders that it may lie in: "uci/boston.npz" is found in FOLDER and in FOLDER/uci.
    :ivar alternatives: files that may stand for it, in formats of their own; the reader checks what they hold.
    :ivar sha256: checksum of `path`, and of an alternative that is the same packed as .gz; "" if the public file's is
        not known.
    :ivar is_optional: the data set can be had without it.
    """

    path: str
    alternatives: tuple[str, ...] = ()
    sha256: str = ""
    is_optional: bool = False

    @property
    def name(self) -> str:
        """Name of the file without folders."""
        return self.path.rpartition("/")[2]

    @property
    def check(self) -> str:
        """How the file is checked, for people."""
        parts = [f"SHA-256 {self.sha256} for {self.name}"] if self.sha256 else []
        others = [other for other in (self.path, *self.alternatives) if not (self.sha256 and self._is_same(other))]
        names = " and ".join(other.rpartition("/")[2] for other in others)
        return "; ".join([*parts, *([f"what {names} holds, as no checksum is known"] if names else [])])

    def verify(self, found: Path) -> None:
        """:raises ValueError: if a file that was found for this one has another checksum than expected."""
        if not self.sha256 or not self._is_same(found.name):
            return
        content = found.read_bytes() if found.name == self.name else read_bytes(found)
        check_sha256(content, self.sha256, found)

    def _is_same(self, path: str) -> bool:
        return path.rpartition("/")[2] in (self.name, f"{self.name}.gz")


def folder_of(data_dir: str | os.PathLike[str] | None) -> Path | None:
    """The folder, or the file, that --data_dir names.

    :raises ValueError: if there is nothing.
    """
    if data_dir is None:
        return None
    folder = Path(data_dir).expanduser()
    if not folder.exists():
        raise ValueError(f"--data_dir must be a folder or a file, but there is nothing at {folder}; check the path.")
    return folder


def find(files: Sequence[File], folder: Path | None, name: str, get: str) -> list[Path]:
    """Where the files of the data set `name` are, checked; without optional ones that are absent.

    :param folder: where they are: the file itself, its folder, or the folder above that; None if not known.
    :param get: what to get and where to put it, for the error.
    :raises ValueError: if a file is missing, or has another checksum than expected.
    """
    pairs = located(files, folder, name, get)
    for file, path in pairs:
        file.verify(path)
    return [path for _, path in pairs]


def located(files: Sequence[File], folder: Path | None, name: str, get: str) -> list[tuple[File, Path]]:
    """What :func:`find` looks for, and where it is, before anything is read.

    :param folder: and `name` and `get`: as of :func:`find`.
    :raises ValueError: if a file is missing.
    """
    # One of several files tells the folder of the others.
    if folder is not None and folder.is_file() and len(files) > 1:
        folder = folder.parent
    pairs = []
    # A file, or one that may stand for it, or what to get.
    for file in files:
        path = _find_one(file, folder)
        if path is not None:
            pairs.append((file, path))
        elif not file.is_optional:
            where = "no --data_dir was given" if folder is None else f"it was not found in {folder}"
            choices = " or ".join((file.path, *file.alternatives))
            raise ValueError(f"data set {name!r} needs {choices}, and {where}. {get} Then give --data_dir=FOLDER.")
    return pairs


def files_of(known: Mapping[str, Any]) -> tuple[File, ...]:
    """The files of an entry of `KNOWN`."""
    return tuple(
        File(file["path"], tuple(file.get("alternatives", ())), file.get("sha256", ""), "is_optional" in file)
        for file in known.get("files", ())
    )


def _find_one(file: File, folder: Path | None) -> Path | None:
    if folder is None:
        return None
    # The folder itself may be any of those in the path of the file.
    for path in (file.path, *file.alternatives):
        parts = path.split("/")
        if folder.is_file() and folder.name == parts[-1]:
            return folder
        for start in range(len(parts)):
            candidate = folder.joinpath(*parts[start:])
            if candidate.is_file():
                return candidate
    return None


def check_sha256(content: bytes, expected: str, path: Path) -> None:
    """:raises ValueError: if the content of the file at `path` has another checksum than expected."""
    got = hashlib.sha256(content).hexdigest()
    if got != expected:
        raise ValueError(
            f"{path} must have the SHA-256 {expected}, got {got}: the file is damaged or another version; get it "
            "again, or use it as own data with --data."
        )


def read_bytes(path: Path) -> bytes:
    """Content of a file, uncompressed if its name ends in .gz or .bz2.

    :raises ValueError: if it cannot be read, or is cut short.
    """
    opener: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix, open)
    try:
        with opener(path, "rb") as stream:
            content: bytes = stream.read()
    except READ_ERRORS as error:
        raise ValueError(f"{path} cannot be read or is not complete ({error}); get it again.") from error
    return content


def read_numbers(path: Path, shape: tuple[int | None, int], separator: str) -> NDArray[np.float64]:
    """A text file of numbers without a header, read in pieces and exact to the last digit.

    :param shape: rows and columns to be there; with rows None any number of rows.
    :param separator: between the numbers, as for `pandas.read_csv`.
    :raises ValueError: if the file is damaged or has another shape.
    """
    rows, columns = shape
    pieces = []
    start = 0
    # With a known number of rows the pieces go straight into their array.
    result = None if rows is None else np.empty((rows, columns))
    try:
        with pd.read_csv(
            path, sep=separator, header=None, dtype=np.float64, chunksize=CHUNK_ROWS, float_precision="round_trip"
        ) as reader:
            # Each piece must have all columns; rows beyond the expected ones are only counted.
            for chunk in reader:
                if chunk.shape[1] != columns:
                    raise ValueError(f"{chunk.shape[1]} columns instead of {columns}")
                if result is None:
                    pieces.append(chunk.to_numpy())
                elif start + len(chunk) <= len(result):
                    result[start : start + len(chunk)] = chunk.to_numpy()
                start += len(chunk)
    except READ_ERRORS as error:
        raise ValueError(f"{path} must hold {columns} numbers in each line ({error}); get it again.") from error
    if rows is not None and start != rows:
        raise ValueError(f"{path} must have {rows} rows, got {start}: it is not complete or another version.")
    return np.concatenate(pieces) if result is None else result


def installed_folder(package: str, name: str) -> Path:
    """The folder of another package, which has the files of the data set `name`; it is not imported.

    :raises ValueError: if it is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"data set {name!r} needs the package {package}; `pip install {package}`.")
    return Path(spec.submodule_search_locations[0])


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
    # The sizes of the axes, and then as many bytes.
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if len(content) - start != np.prod(shape, dtype=np.int64):
        raise ValueError(f"{path} must hold {shape} bytes after its header, got {len(content) - start}; get it again.")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def pixel_names(side: int) -> tuple[str, ...]:
    """Names of the pixels of a square image, row by row."""
    return tuple(f"pixel_{row}_{column}" for row in range(side) for column in range(side))
