"""Binary data for density models: known sets by name, and a user's own table of zeros and ones.

Nothing is downloaded, and `digits` needs no file. For the others `describe_binary(name)`, and the error of
:func:`load_binary` when a file is missing, say what to get and where to put it. A packed copy (.npz) is checked against
its SHA-256; text files by their numbers of rows and columns.
"""

import csv
import functools
import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from absl import logging
from numpy.typing import NDArray
from scipy import io

from experiment.data import tables
from experiment.data.sets import supervised as datasets
from experiment.seeds import numpy_rng

__all__ = ["BinaryData", "Labels", "binary_names", "describe_binary", "load_binary", "read_binary_table"]

Bits = NDArray[np.uint8]


class Labels(NamedTuple):
    """Class of each row, for looking at what a model has learned: integers [n] for each part."""

    train: NDArray[np.int64]
    valid: NDArray[np.int64]
    test: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BinaryData:
    """Three parts of a binary data set.

    :param train: zeros and ones [N, D]; `valid` and `test` likewise, with any number of rows.
    :param image_shape: height and width if a row is an image, row by row.
    :param source: where the data come from, and what was done to them.
    :param column_names: name of each of the D columns.
    :raises ValueError: if a part is empty, is not 0 or 1, or has another number of columns.
    """

    name: str
    train: Bits
    valid: Bits
    test: Bits
    image_shape: tuple[int, int] | None = None
    source: str = ""
    column_names: tuple[str, ...] = ()
    labels: Labels | None = field(default=None)

    def __post_init__(self) -> None:
        for part in ("train", "valid", "test"):
            rows = getattr(self, part)
            what = f"the {part} part of {self.name!r}"
            if rows.ndim != 2 or 0 in rows.shape or rows.shape[1] != self.train.shape[1]:
                raise ValueError(
                    f"{what} must be [N, {self.train.shape[-1]}] with at least one row, got {rows.shape}; check that "
                    "the file is complete."
                )
            object.__setattr__(self, part, _bits(rows, self.column_names, what))
        names = tuple(self.column_names) or tuple(f"x{d}" for d in range(self.train.shape[1]))
        if len(names) != self.train.shape[1]:
            raise ValueError(f"{self.name!r} must have {self.train.shape[1]} column names, got {len(names)}.")
        object.__setattr__(self, "column_names", names)
        if self.constant_columns:
            logging.warning(
                "%s: %d of %d columns do not vary in the training part (%s).",
                self.name,
                len(self.constant_columns),
                self.train.shape[1],
                _some([names[d] for d in self.constant_columns]),
            )

    @functools.cached_property
    def constant_columns(self) -> tuple[int, ...]:
        """Columns that are always 0 or always 1 in the training part."""
        return tuple(int(d) for d in np.flatnonzero(self.train.min(axis=0) == self.train.max(axis=0)))

    @functools.cached_property
    def sha256(self) -> str:
        """Checksum of the three parts: the same whichever file format they were read from."""
        digest = hashlib.sha256()
        for part in (self.train, self.valid, self.test):
            digest.update(f"{part.shape}".encode())
            digest.update(np.packbits(part, axis=1).tobytes())
        return digest.hexdigest()


def binary_names() -> list[str]:
    """Names that :func:`load_binary` knows."""
    return sorted(_ENTRIES)


def describe_binary(name: str) -> str:
    """What a data set is, which files it needs and how they are checked.

    :raises ValueError: if the name is not known.
    """
    entry = _entry(name)
    return f"{name}: {entry.about}\nFiles: {_get(name)}\nChecked by: {entry.check}\n"


def load_binary(name: str = "digits", data_dir: str | os.PathLike[str] | None = None) -> BinaryData:
    """Load a known data set.

    :param name: one of :func:`binary_names`.
    :param data_dir: the file itself, its folder, or the folder above `binary/` or `mnist/`.
    :raises ValueError: if the name is not known, or a file is missing (says what to get and where to put it), damaged,
        incomplete or has another checksum than expected.
    """
    entry = _entry(name)
    folder = None if data_dir is None else Path(data_dir).expanduser()
    if folder is not None and not folder.exists():
        raise ValueError(f"--data_dir must be a folder or a file, but there is nothing at {folder}; check the path.")
    return entry.read(name, folder)


def read_binary_table(
    path: str | os.PathLike[str], *, seed: int = 0, valid_fraction: float = 0.1, test_fraction: float = 0.1
) -> BinaryData:
    """Read your own zeros and ones from .csv, .csv.gz, .parquet or .npz.

    Tables hold one row for each example; the first line of a CSV file may hold names, or be data already. An .npz file
    holds `train` and perhaps `valid` and `test` [n, D], or one matrix `X` [N, D]; packed bits are recognised by a
    number `n_features`. Optional arrays are `feature_names` [D] and `image_shape` [2].

    :param seed: decides which rows are set aside for the parts that the file does not have.
    :param valid_fraction: part of the rows for validation, in (0, 1); `test_fraction` likewise.
    :raises ValueError: naming file and column: a file that is missing, empty, truncated or of another format; missing
        values; anything else than 0, 1, true and false; too few rows for the parts.
    """
    path = Path(path)
    for what, fraction in (("valid_fraction", valid_fraction), ("test_fraction", test_fraction)):
        if not 0 < fraction < 1:
            raise ValueError(f"{what} must be between 0 and 1, got {fraction}.")
    if not path.is_file():
        raise ValueError(f"--data must be a file, but there is none at {path}; check the path.")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty; check how it was written.")
    parts, names, image_shape = _read_npz(path) if path.suffix.lower() == ".npz" else _read_frame(path)
    parts = {part: _bits(rows, names, f"{part} of {path}") for part, rows in parts.items()}
    source = [f"the file {path.name}"]
    for part, fraction in (("test", test_fraction), ("valid", valid_fraction)):
        if part not in parts:
            parts["train"], parts[part] = _set_aside(parts["train"], fraction, seed, part, path)
            source.append(f"{len(parts[part])} {part} rows drawn with seed {seed}")
    train, valid, test = (parts[part] for part in _PARTS)
    return BinaryData(path.name.split(".")[0], train, valid, test, image_shape, "; ".join(source), names)


def _set_aside(rows: Bits, fraction: float, seed: int, part: str, path: Path) -> tuple[Bits, Bits]:
    """The rows left and those set aside, each in the order of the file."""
    count = round(fraction * len(rows))
    if not 0 < count < len(rows):
        raise ValueError(
            f"{path} has {len(rows)} rows, too few to set {fraction:g} of them aside as {part} rows; add rows, or give "
            "train, valid and test in an .npz file."
        )
    is_taken = np.zeros(len(rows), dtype=bool)
    is_taken[numpy_rng(seed, f"binary_data/{part}").permutation(len(rows))[:count]] = True
    return rows[~is_taken], rows[is_taken]


# A user's own file


def _read_frame(path: Path) -> tuple[dict[str, NDArray[Any]], tuple[str, ...], None]:
    if _has_header(path):
        frame = tables._read(path).frame
    else:
        try:
            frame = pd.read_csv(path, header=None, encoding="utf-8-sig", low_memory=False)
        except tables._READ_ERRORS as error:
            raise ValueError(f"{path} is no readable, complete CSV file in UTF-8 ({error}); write it again.") from error
        frame.columns = pd.Index([f"x{d}" for d in range(frame.shape[1])])
    names = tuple(map(str, frame.columns))
    if frame.empty:
        raise ValueError(f"{path} must have at least one row and one column, got {frame.shape}; check the file.")
    tables._check_missing(frame, names, path)
    wrong = [name for name in names if frame[name].dtype.kind not in "biuf"]
    if wrong:
        raise ValueError(
            f"{path} must hold 0 and 1 (or true and false) only, but {_some(wrong)} hold text or dates; drop these "
            "columns, or make one column of 0 and 1 of each level."
        )
    columns = [_bits(frame[name].to_numpy()[:, None], (name,), str(path)) for name in names]
    return {"train": np.concatenate(columns, axis=1)}, names, None


def _has_header(path: Path) -> bool:
    """Whether the first line of a CSV file holds anything besides 0 and 1; true for files of other kinds."""
    kind = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    if kind.lower() not in (".csv", ".csv.gz"):
        return True
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as lines:
            first = next(csv.reader(lines), [])
    except (OSError, UnicodeDecodeError, EOFError, csv.Error, zlib.error):
        return True  # the reader says what is wrong
    return not all(value.strip() in ("0", "1", "0.0", "1.0") for value in first) or not first


def _read_npz(path: Path) -> tuple[dict[str, NDArray[Any]], tuple[str, ...], tuple[int, int] | None]:
    arrays = tables.read_npz(path)
    found = [part for part in ("train", "valid", "test") if part in arrays]
    known = {"train", "valid", "test", "X", "n_features", "feature_names", "image_shape"}
    if ("X" in arrays) == ("train" in arrays) or ("X" in arrays and found):
        raise ValueError(
            f"{path} must hold train (and perhaps valid and test) [n, D], or one matrix X [N, D], got "
            f"{_some(sorted(arrays))}; write it again."
        )
    extra = sorted(set(arrays) - known - {f"{part}_labels" for part in found})
    if extra:
        raise ValueError(f"{path} may hold {', '.join(sorted(known))}, got {_some(extra)}; leave out the others.")
    parts: dict[str, NDArray[Any]] = {"train": arrays["X"]} if "X" in arrays else {part: arrays[part] for part in found}
    if "n_features" in arrays:
        parts = {part: _unpacked(rows, arrays["n_features"], path) for part, rows in parts.items()}
    shapes = {part: rows.shape for part, rows in parts.items()}
    if (
        any(len(shape) != 2 or 0 in shape for shape in shapes.values())
        or len({shape[1] for shape in shapes.values()}) != 1
    ):
        raise ValueError(f"{path} must hold matrices [n, D] with the same D and at least one row, got {shapes}.")
    D = parts["train"].shape[1]
    names = tuple(map(str, arrays["feature_names"])) if "feature_names" in arrays else tuple(f"x{d}" for d in range(D))
    image_shape = None
    if "image_shape" in arrays:
        sizes = [int(size) for size in np.ravel(arrays["image_shape"])]
        if len(sizes) != 2 or np.prod(sizes) != D:
            raise ValueError(f"image_shape in {path} must be two numbers with the product {D}, got {sizes}.")
        image_shape = (sizes[0], sizes[1])
    return parts, names, image_shape


def _unpacked(rows: NDArray[Any], n_features: NDArray[Any], path: Path) -> Bits:
    if n_features.shape != () or n_features.dtype.kind not in "iu" or rows.dtype != np.uint8 or rows.ndim != 2:
        raise ValueError(
            f"{path} has n_features, so its parts must be np.packbits(rows, axis=1), got {rows.dtype} {rows.shape}."
        )
    if rows.shape[1] != -(-int(n_features) // 8):
        raise ValueError(
            f"{path} has {rows.shape[1]} bytes in each row, which are not {n_features} bits; write it again."
        )
    return np.unpackbits(rows, axis=1)[:, : int(n_features)]


def _bits(rows: NDArray[Any], names: Sequence[str], what: str) -> Bits:
    """The rows as uint8, after checking that they are 0 and 1 only."""
    if rows.dtype.kind not in "biuf":
        raise ValueError(f"{what} must be numbers 0 and 1 or true and false, got {rows.dtype}; encode them first.")
    is_wrong = (rows != 0) & (rows != 1)
    if is_wrong.any():
        row, column = np.argwhere(is_wrong)[0]
        name = names[column] if names else f"x{column}"
        raise ValueError(
            f"{what} must be 0 or 1 everywhere, got {rows[row, column]} in row {row} of column {name!r} "
            f"({is_wrong.sum()} such values); binarise numbers by a threshold, drop or impute missing values."
        )
    return rows.astype(np.uint8)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")


# Known data sets


@dataclass(frozen=True)
class _Entry:
    about: str
    get: str  # what to get and where to put it; "" if no file is needed
    check: str
    read: Callable[[str, Path | None], BinaryData]


class _Set(NamedTuple):
    """A set that is read from a packed copy, or from one text file for each part."""

    file: str  # of the packed copy, in FOLDER or FOLDER/binary
    sha256: str
    text: str  # text files, with {} for train, valid or test; "" if none
    rows: tuple[int, int, int]
    columns: int
    image_shape: tuple[int, int] | None
    source: str


_UCLA = "https://github.com/UCLA-StarAI/Density-Estimation-Datasets"
_SETS = {
    "adult": _Set(
        "adult.npz",
        "839c0ae9fa9f46ab1b517c503b0daf428c8fc58be2370226b9d72761ddb4040d",
        "adult.{}.data",
        (5000, 1414, 26147),
        123,
        None,
        "UCI Adult in 123 binary columns (LIBSVM a9a), parts of Larochelle and Murray (2011)",
    ),
    "connect4": _Set(
        "connect4.npz",
        "3dcf1fdbbf21e5a933ecc51964b1c7e45d388881a9534d168b89ef59061c01df",
        "connect4.{}.data",
        (16000, 4000, 47557),
        126,
        None,
        "UCI Connect-4, three columns for each of 42 fields, parts of Larochelle and Murray (2011)",
    ),
    "nips": _Set(
        "nips_0_12.npz",
        "3a4b1a180ccf503e42d5b1aafa26e71833ef1a20d9d6e7c44a0134fd485d5b3f",
        "nips.{}.data",
        (400, 100, 1240),
        500,
        None,
        "words in the papers of NIPS 0 to 12, parts of Larochelle and Murray (2011)",
    ),
    "ocr_letters": _Set(
        "ocr_letters.npz",
        "4f2bd7981ab66d66341a9de0d266a80631c94176135839c1970357d7d9be3e7b",
        "ocr_letters.{}.data",
        (32152, 10000, 10000),
        128,
        (16, 8),
        "handwritten letters of 16 x 8 pixels, parts of Larochelle and Murray (2011)",
    ),
    "binarized_mnist": _Set(
        "binarized_mnist.npz",
        "022ab42179ce5cfef3488b5b21a55a33d31081ab6a8aa231df16b4dd0fa09e19",
        "binarized_mnist_{}.amat",
        (50000, 10000, 10000),
        784,
        (28, 28),
        "MNIST with pixels drawn once with their intensities as probabilities (Salakhutdinov and Murray, 2008)",
    ),
}
_WEB = ("web_w7a_pool.npz", "3151b8bfcd2ecd6fbfce3426dd1c1971b5aa76b8f65d1968448983db25961ccc")
_RCV1 = ("rcv1_valid_only.npz", "23b8ddac9449a464dbd75c76bcf61710a2c449bdbb77aa6c93b8fc28e583add3")
_CALTECH = ("caltech101_silhouettes.npz", "2fd792df68b4aadce48053d67c88adfbc62c446e54f1920a375549e8685fdc42")
_CALTECH_MAT = "caltech101_silhouettes_28_split1.mat"
_PARTS = ("train", "valid", "test")


def _entry(name: str) -> _Entry:
    if name not in _ENTRIES:
        raise ValueError(
            f"--dataset must be one of {', '.join(binary_names())}, got {name!r}; for own data use --data."
        )
    return _ENTRIES[name]


def _get(name: str) -> str:
    return _entry(name).get or "none are needed."


def _find(name: str, folder: Path | None, *files: str) -> Path:
    """The first of `files` that exists under the folder or is it.

    :raises ValueError: saying what to get.
    """
    path = datasets._find(name, folder, files)
    if path is None:
        where = "no --data_dir was given" if folder is None else f"it was not found in {folder}"
        raise ValueError(
            f"data set {name!r} needs {' or '.join(files)}, and {where}. {_get(name)} Then give --data_dir=FOLDER."
        )
    return path


def _read_packed(path: Path, sha256: str) -> dict[str, NDArray[Any]]:
    datasets._check_sha256(path.read_bytes(), sha256, path)
    arrays = tables.read_npz(path)
    packed = {part: _unpacked(arrays[part], arrays["n_features"], path) for part in _PARTS if part in arrays}
    return {**arrays, **packed}


def _load_set(name: str, folder: Path | None) -> BinaryData:
    known = _SETS[name]
    text = known.text.format("train")
    path = _find(name, folder, f"binary/{known.file}", f"binary/{text}")
    if path.suffix == ".npz":
        parts = {part: rows for part, rows in _read_packed(path, known.sha256).items() if part in _PARTS}
    else:
        paths = [path.with_name(known.text.format(part)) for part in _PARTS]
        parts = {part: _read_text(file) for part, file in zip(_PARTS, paths, strict=True)}
    shapes = [parts[part].shape for part in _PARTS]
    if shapes != [(rows, known.columns) for rows in known.rows]:
        raise ValueError(
            f"{path} and its parts must have {known.rows} rows of {known.columns} columns, got {shapes}: the files are "
            "not complete or another version."
        )
    return BinaryData(name, parts["train"], parts["valid"], parts["test"], known.image_shape, known.source)


def _read_text(path: Path) -> Bits:
    """0 and 1 in lines, with commas or spaces between them."""
    if not path.is_file():
        raise ValueError(f"{path} is missing; the train, valid and test files belong into one folder, get them all.")
    lines = datasets._read_bytes(path).translate(None, delete=b", \t\r").rstrip(b"\n") + b"\n"
    columns, characters = lines.index(b"\n"), np.frombuffer(lines, np.uint8)
    if columns < 1 or len(characters) % (columns + 1):
        raise ValueError(f"{path} must hold 0 and 1 in lines of equal length, with commas or spaces; get it again.")
    table = characters.reshape(-1, columns + 1)
    rows = table[:, :-1] - np.uint8(ord("0"))
    if (table[:, -1] != ord("\n")).any() or (rows > 1).any():
        raise ValueError(f"{path} must hold 0 and 1 only, in lines of equal length; get it again.")
    return rows


def _load_digits(name: str, folder: Path | None) -> BinaryData:
    bunch = datasets._installed("sklearn.datasets", name).load_digits()
    rows, labels = (bunch.data >= 8).astype(np.uint8), bunch.target.astype(np.int64)
    order = numpy_rng(0, "binary_data/digits").permutation(len(rows))
    return _drawn(
        name, rows, labels, order, (1297, 200), (8, 8), "scikit-learn, load_digits, pixels of at least 8 of 16"
    )


def _drawn(
    name: str,
    rows: Bits,
    labels: NDArray[np.int64] | None,
    order: NDArray[np.int64],
    counts: tuple[int, int],
    image_shape: tuple[int, int] | None,
    source: str,
) -> BinaryData:
    """Parts drawn at random: the first `counts` of `order` train and validate, the others test."""
    train, valid, test = np.split(order, np.cumsum(counts))
    return BinaryData(
        name,
        rows[train],
        rows[valid],
        rows[test],
        image_shape,
        f"{source}; {len(train)}/{len(valid)}/{len(test)} rows drawn with a fixed seed",
        labels=None if labels is None else Labels(labels[train], labels[valid], labels[test]),
    )


def _load_mnist(name: str, folder: Path | None) -> BinaryData:
    mnist = datasets.load("mnist", folder)
    rows, labels = (mnist.X > 0.5).astype(np.uint8), mnist.Y[:, 0]
    train, valid, test = np.split(np.arange(len(rows)), [50_000, 60_000])
    return BinaryData(
        name,
        rows[train],
        rows[valid],
        rows[test],
        (28, 28),
        "MNIST, pixels above 0.5; the first 50000 of the training images train, the other 10000 validate",
        labels=Labels(labels[train], labels[valid], labels[test]),
    )


def _load_web(name: str, folder: Path | None) -> BinaryData:
    path = _find(name, folder, f"binary/{_WEB[0]}", "binary/w7a")
    if path.suffix == ".npz":
        arrays = _read_packed(path, _WEB[1])
        rows = np.concatenate([arrays["train"], arrays["test"]])
        labels = np.concatenate([arrays["train_labels"], arrays["test_labels"]])
    else:
        read = datasets._installed("sklearn.datasets", name).load_svmlight_file
        try:
            pairs = [read(str(file), n_features=300) for file in (path, path.with_name("w7a.t"))]
        except (OSError, ValueError) as error:
            raise ValueError(f"{path} and w7a.t must be the two LIBSVM files ({error}); get them again.") from error
        rows = _bits(np.concatenate([X.toarray() for X, _ in pairs]), (), str(path))
        labels = np.concatenate([y > 0 for _, y in pairs])
    if rows.shape != (49_749, 300):
        raise ValueError(
            f"{path} and w7a.t must hold 49749 rows of 300 columns together, got {rows.shape}; get them again."
        )
    order = numpy_rng(0, "binary_data/web").permutation(len(rows))
    source = "LIBSVM w7a and w7a.t together: the rows of the set web of Larochelle and Murray (2011), not its parts"
    return _drawn(name, rows, labels.astype(np.int64), order, (14_000, 3188), None, source)


def _load_rcv1(name: str, folder: Path | None) -> BinaryData:
    path = _find(name, folder, f"binary/{_RCV1[0]}", "binary/rcv1.valid.data")
    rows = _read_packed(path, _RCV1[1])["valid"] if path.suffix == ".npz" else _read_text(path)
    if rows.shape != (10_000, 150):
        raise ValueError(f"{path} must hold 10000 rows of 150 columns, got {rows.shape}; get it again.")
    order = numpy_rng(0, "binary_data/rcv1").permutation(len(rows))
    source = "the 10000 validation rows of the set rcv1 of Larochelle and Murray (2011): not its training and test rows"
    return _drawn(name, rows, None, order, (8000, 1000), None, source)


def _load_caltech(name: str, folder: Path | None) -> BinaryData:
    path = _find(name, folder, f"binary/{_CALTECH[0]}", f"binary/{_CALTECH_MAT}")
    if path.suffix == ".npz":
        arrays = _read_packed(path, _CALTECH[1])
    else:
        try:
            stored = io.loadmat(path)
            keys = {"train": "train", "valid": "val", "test": "test"}
            arrays = {part: stored[f"{key}_data"] for part, key in keys.items()}
            arrays |= {f"{part}_labels": np.ravel(stored[f"{key}_labels"]) for part, key in keys.items()}
        except (OSError, KeyError, TypeError, ValueError, NotImplementedError) as error:
            raise ValueError(f"{path} is not the expected MATLAB file ({error!r}); get it again.") from error
    shapes = [arrays[part].shape for part in _PARTS]
    if shapes != [(4100, 784), (2264, 784), (2307, 784)]:
        raise ValueError(f"{path} must hold 4100/2264/2307 rows of 784 pixels, got {shapes}; get it again.")
    train, valid, test = (arrays[part].reshape(-1, 28, 28).transpose(0, 2, 1).reshape(-1, 784) for part in _PARTS)
    return BinaryData(
        name,
        train,
        valid,
        test,
        (28, 28),
        "Caltech-101 silhouettes, 28 x 28, split 1; pixels stored column by column in MATLAB are turned to rows. "
        "Objects are 0 on a background of 1",
        labels=Labels(*(arrays[f"{part}_labels"].astype(np.int64) for part in _PARTS)),
    )


def _set_entry(name: str, about: str) -> _Entry:
    known = _SETS[name]
    where = "" if name == "binarized_mnist" else f" of {_UCLA}"
    texts = ", ".join(known.text.format(part) for part in _PARTS)
    get = f"Get {texts}{where} (lines of 0 and 1 with commas or spaces), or the packed copy {known.file}, and put them "
    check = f"SHA-256 {known.sha256} for {known.file}; the numbers of rows and columns for text files."
    rows = "/".join(map(str, known.rows))
    return _Entry(f"{about}, {rows} x {known.columns}.", get + "into FOLDER or FOLDER/binary.", check, _load_set)


_ENTRIES: dict[str, _Entry] = {
    "digits": _Entry(
        "scikit-learn's digits of 8 x 8 pixels, 1 for intensities of at least 8 of 16, 1297/200/300 rows drawn with a "
        "fixed seed.",
        "",
        "the installed package.",
        _load_digits,
    ),
    "mnist": _Entry(
        "MNIST of 28 x 28 pixels, 1 above half of the full intensity, 50000/10000/10000; labels.",
        f"Get the four files of MNIST, {', '.join(datasets._MNIST)} (each with .gz or not), and put them into FOLDER "
        "or FOLDER/mnist.",
        "SHA-256 of the four uncompressed files.",
        _load_mnist,
    ),
    "adult": _set_entry("adult", "UCI Adult in binary columns. Test rows of the packed copy are in the order of a9a"),
    "connect4": _set_entry("connect4", "UCI Connect-4. Test rows of the packed copy are not in the original order"),
    "nips": _set_entry("nips", "words in NIPS papers (NIPS-0-12)"),
    "ocr_letters": _set_entry("ocr_letters", "handwritten letters of 16 x 8 pixels"),
    "binarized_mnist": _set_entry("binarized_mnist", "MNIST with random binary pixels, drawn once; no labels"),
    "caltech_silhouettes": _Entry(
        "Caltech-101 silhouettes of 28 x 28 pixels, split 1, 4100/2264/2307, turned upright; labels. Objects are 0.",
        f"Get {_CALTECH_MAT} (Marlin et al., 2010), or the packed copy {_CALTECH[0]}, and put it into FOLDER or "
        "FOLDER/binary.",
        f"SHA-256 {_CALTECH[1]} for {_CALTECH[0]}; the numbers of rows and columns for the MATLAB file.",
        _load_caltech,
    ),
    "web": _Entry(
        "pages of the web, the 49749 x 300 rows of LIBSVM w7a and w7a.t, 14000/3188/32561 drawn with a fixed seed: the "
        "sizes of Larochelle and Murray (2011), but not their rows; labels.",
        "Get w7a and w7a.t of the LIBSVM data sets (https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets), or the "
        f"packed copy {_WEB[0]}, and put them into FOLDER or FOLDER/binary.",
        f"SHA-256 {_WEB[1]} for {_WEB[0]}; the numbers of rows and columns for LIBSVM files.",
        _load_web,
    ),
    "rcv1": _Entry(
        "words in newswire, 10000 x 150: the validation rows of Larochelle and Murray (2011) alone, 8000/1000/1000 "
        "drawn with a fixed seed. Results are not comparable with those on the whole set.",
        f"Get rcv1.valid.data of {_UCLA} (lines of 0 and 1 with commas or spaces), or the packed copy {_RCV1[0]}, and "
        "put it into FOLDER or FOLDER/binary.",
        f"SHA-256 {_RCV1[1]} for {_RCV1[0]}; the numbers of rows and columns for the text file.",
        _load_rcv1,
    ),
}
