import hashlib
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from gpflow_deep_runs.data.rows import divide
from gpflow_deep_runs.data.sets import catalogue, uci

_DATA = os.environ.get("GPFLOW_DEEP_DATA")
_needs_data = pytest.mark.skipif(not _DATA, reason="GPFLOW_DEEP_DATA does not name a folder with the real files")


def public_folder(folder: Path, rng: np.random.Generator, *, num_data: int = 10, num_splits: int = 2) -> np.ndarray:
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


@pytest.mark.parametrize("where", ["", "uci", "uci/kin8nm.npz"])
def test_packed_copy_is_found_in_each_place_and_checked(tmp_path: Path, rng: np.random.Generator, where: str) -> None:
    (tmp_path / "uci").mkdir()
    path, X = tmp_path / "uci" / "kin8nm.npz", rng.normal(size=(10, 8))
    np.savez(path, X=X, y=X[:, 0], train_idx=np.arange(8, dtype="u2")[None], test_idx=np.array([[8, 9]], dtype="u2"))
    (file,) = catalogue.get("kin8nm").files
    entry = replace(
        catalogue.get("kin8nm"),
        files=(file._replace(sha256=hashlib.sha256(path.read_bytes()).hexdigest()),),
        views={"supervised": partial(uci.read, num_rows=10)},
    )
    data = entry.read("supervised", tmp_path / where)
    np.testing.assert_array_equal(data.parts["all"].X, X)
    np.testing.assert_array_equal(divide(data, valid_fraction=0).test.Y, X[8:, :1])
    assert data.source == "kin8nm.npz of the UCI set 'kin8nm'; standard splits"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match=r"kin8nm.npz must have the SHA-256 [0-9a-f]{64}, got [0-9a-f]{64}: .* get it"):
        entry.read("supervised", tmp_path / where)


@pytest.mark.parametrize("where", ["", "UCI_Datasets", "UCI_Datasets/power-plant", "UCI_Datasets/power-plant/data"])
def test_public_folder_is_found_in_each_place(tmp_path: Path, rng: np.random.Generator, where: str) -> None:
    table = public_folder(tmp_path / "UCI_Datasets/power-plant/data", rng)
    entry = replace(catalogue.get("power"), views={"supervised": partial(uci.read, num_rows=10)})
    data = entry.read("supervised", tmp_path / where)
    np.testing.assert_array_equal(data.parts["all"].X, table[:, :4])
    np.testing.assert_array_equal(data.parts["all"].Y, table[:, 5:])
    assert data.splits is not None
    assert [len(rows) for pair in data.splits for rows in pair] == [8, 2, 8, 2]


def test_incomplete_public_folder_is_refused(tmp_path: Path, rng: np.random.Generator) -> None:
    folder = tmp_path / "data"
    public_folder(folder, rng)
    paths = [folder / "data.txt"]
    with pytest.raises(ValueError, match=r"must hold 9568 rows of 4 features, got \(10, 4\)"):
        uci.read("power", paths)
    (folder / "index_test_1.txt").rename(folder / "moved")
    with pytest.raises(ValueError, match=r"index_test_1.txt is missing; data.txt needs all the index files"):
        uci.read("power", paths, num_rows=10)
    (folder / "index_test_1.txt").write_text("1.5\n")
    with pytest.raises(ValueError, match="must hold one whole number a line"):
        uci.read("power", paths, num_rows=10)
    (folder / "index_target.txt").write_text("9\n")
    with pytest.raises(ValueError, match="do not fit"):
        uci.read("power", paths, num_rows=10)
    (folder / "data.txt").write_text("1 2\n3 4\n")
    with pytest.raises(ValueError, match="at least 5 columns, got 2"):
        uci.read("power", paths, num_rows=10)


def test_red_wines_from_the_csv_file(tmp_path: Path, rng: np.random.Generator) -> None:
    names = [*(f'"name {i}"' for i in range(11)), '"quality"']
    table = np.concatenate([rng.normal(size=(5, 11)).round(4), [[5], [6], [5], [7], [4]]], axis=1)
    path = tmp_path / "winequality-red.csv"
    np.savetxt(path, table, delimiter=";", header=";".join(names), comments="", fmt="%g")
    data = uci.read("wine_red", [path], num_rows=5)
    assert data.task == "regression"
    assert data.splits is None
    assert data.feature_names[-1] == "alcohol"
    np.testing.assert_array_equal(data.parts["all"].Y[:, 0], [5, 6, 5, 7, 4])
    np.testing.assert_array_equal(data.parts["all"].X, table[:, :11])
    with pytest.raises(ValueError, match=r"must hold 1599 rows of 11 features, got \(5, 11\)"):
        catalogue.read("wine_red", "supervised", tmp_path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="numbers between semicolons"):
        uci.read("wine_red", [path])
    path.write_text("a;b\n1;2\n")
    with pytest.raises(ValueError, match=r"the last column of .* must be 'quality', got 'b'"):
        uci.read("wine_red", [path])


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
def test_least_squares_on_the_real_sets(
    name: str, shape: tuple[int, int], num_test: int, num_splits: int, rmse: str
) -> None:
    data = catalogue.read(name, "supervised", _DATA)
    assert data.parts["all"].X.shape == shape
    assert len(data.splits or ()) == num_splits
    parts = divide(data, valid_fraction=0)
    assert len(parts.test.X) == num_test
    mean, deviation = parts.train.X.mean(axis=0), parts.train.X.std(axis=0)
    scale = np.where(deviation < 1e-12 * np.abs(mean), 1.0, deviation)
    design = [np.c_[np.ones(len(part.X)), (part.X - mean) / scale] for part in (parts.train, parts.test)]
    weights = np.linalg.lstsq(design[0], parts.train.Y, rcond=None)[0]
    error = np.sqrt(np.mean((design[1] @ weights - parts.test.Y) ** 2))
    assert f"{error:.{len(rmse.split('.')[1])}f}" == rmse  # found once by an independent program
