import gzip
import hashlib
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from gpflow_deep_runs.data.rows import divide
from gpflow_deep_runs.data.sets import catalogue, files, supervised
from gpflow_deep_runs.data.sets.files import File
from tests.gpflow_deep_runs.data.sets.formats import idx

_DATA = os.environ.get("GPFLOW_DEEP_DATA")
_needs_data = pytest.mark.skipif(not _DATA, reason="GPFLOW_DEEP_DATA does not name a folder with the real files")


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
    data = catalogue.read(name, "supervised")
    assert data.parts["all"].X.shape == shape
    assert data.task == task
    assert len(data.class_names) == num_classes
    assert data.target_names == ("progression" if name == "diabetes" else "class",)
    if name == "diabetes":
        assert data.parts["all"].X[:, 0].max() == 79  # age in years, not scaled


def test_songs(tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHUNK_ROWS", 3)  # so that chunks are put together
    table = np.concatenate([[[1999], [2001], [1980], [2005], [2010], [1970], [1990]], rng.normal(size=(7, 90))], axis=1)
    path = tmp_path / "YearPredictionMSD.txt"
    np.savetxt(path, table, delimiter=",", fmt="%.17g")
    data = supervised.read_year("year", [path], num_rows=7, num_train=5)
    np.testing.assert_array_equal(data.parts["all"].X, table[:, 1:])
    np.testing.assert_array_equal(data.parts["all"].Y, table[:, :1])
    assert data.splits is not None
    np.testing.assert_array_equal(data.splits[0][1], [5, 6])
    with pytest.raises(ValueError, match="must have 515345 rows, got 7"):
        catalogue.read("year", "supervised", tmp_path)


@pytest.mark.parametrize(("name", "file", "num_features"), [("susy", "SUSY.csv.gz", 18), ("higgs", "HIGGS.csv", 28)])
def test_particles(tmp_path: Path, rng: np.random.Generator, name: str, file: str, num_features: int) -> None:
    table = np.concatenate([np.arange(9)[:, None] % 2, rng.normal(size=(9, num_features))], axis=1)
    np.savetxt(tmp_path / file, table, delimiter=",", fmt="%.18e")
    read = partial(supervised.read_particles, name, [tmp_path / file], num_rows=9, num_test=2)
    data = read()
    np.testing.assert_array_equal(data.parts["all"].X, table[:, 1:])
    np.testing.assert_array_equal(data.parts["all"].Y[:, 0], np.arange(9) % 2)
    parts = divide(data, valid_fraction=0)
    assert data.task == "binary"
    assert len(parts.test.X) == 2
    assert np.shares_memory(parts.train.X, data.parts["all"].X)
    rows = {"susy": 5_000_000, "higgs": 11_000_000}[name]
    with pytest.raises(ValueError, match=f"must have {rows} rows, got 9"):
        catalogue.read(name, "supervised", tmp_path)
    table[3, 0] = 2
    np.savetxt(tmp_path / file, table, delimiter=",", fmt="%.18e")
    with pytest.raises(ValueError, match=r"the labels in .* must be 0 to 1, got \[0\. 1\. 2\.\]"):
        read()


def test_rectangles(tmp_path: Path, rng: np.random.Generator) -> None:
    tables = [np.concatenate([rng.uniform(size=(n, 784)), np.arange(n)[:, None] % 2], axis=1) for n in (4, 3)]
    paths = [tmp_path / f"rectangles_im_{part}.amat" for part in ("train", "test")]
    for path, table in zip(paths, tables, strict=True):
        lines = ["   " + "  ".join(f"{value:.6f}" for value in row) + " \n" for row in table]  # padded, as there
        path.write_text("".join(lines))
    data = supervised.read_rectangles("rectangles_images", paths, counts=(4, 3))
    X, Y = data.parts["all"]
    np.testing.assert_allclose(X, np.concatenate(tables)[:, :784], rtol=0, atol=5.1e-7)  # six digits
    np.testing.assert_array_equal(Y[:, 0], [0, 1, 0, 1, 0, 1, 0])
    assert data.splits is not None
    np.testing.assert_array_equal(data.splits[0][1], [4, 5, 6])


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnist(tmp_path: Path, rng: np.random.Generator, suffix: str) -> None:
    arrays = {}
    for part, count in (("train", 12), ("t10k", 5)):
        arrays[f"{part}-images-idx3-ubyte"] = rng.integers(0, 256, size=(count, 28, 28), dtype=np.uint8)
        arrays[f"{part}-labels-idx1-ubyte"] = (np.arange(count) % 10).astype(np.uint8)
    (tmp_path / "mnist").mkdir()
    ours = []
    for file, array in arrays.items():
        content = idx(array)
        ours.append(File(f"mnist/{file}", (f"mnist/{file}.gz",), hashlib.sha256(content).hexdigest()))
        (tmp_path / "mnist" / f"{file}{suffix}").write_bytes(gzip.compress(content) if suffix else content)
    entry = replace(catalogue.get("mnist"), files=tuple(ours))
    assert [file[:2] for file in ours] == [file[:2] for file in catalogue.get("mnist").files]
    data = entry.read("supervised", tmp_path)
    X, Y = data.parts["all"]
    assert X.shape == (17, 784)
    assert data.task == "multiclass"
    assert data.splits is not None
    np.testing.assert_array_equal(data.splits[0][1], np.arange(12, 17))
    np.testing.assert_array_equal(X[12:] * 255, arrays["t10k-images-idx3-ubyte"].reshape(5, -1))
    np.testing.assert_array_equal(Y[:, 0], [*range(10), 0, 1, *range(5)])
    broken = tmp_path / "mnist" / f"t10k-labels-idx1-ubyte{suffix}"
    broken.write_bytes(broken.read_bytes()[:-1])
    with pytest.raises(ValueError, match="cannot be read or is not complete" if suffix else "must have the SHA-256"):
        entry.read("supervised", tmp_path / "mnist")


@_needs_data
def test_real_mnist() -> None:
    X, Y = catalogue.read("mnist", "supervised", _DATA).parts["all"]
    assert round(X[:60_000].mean(), 5) == 0.13066
    assert round(X[60_000:].mean(), 5) == 0.13251
    np.testing.assert_array_equal(Y[:10, 0], [5, 0, 4, 1, 9, 2, 1, 3, 1, 4])
