import gzip
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from absl import logging

from experiment.data.bits import constant_columns, density, read_bits
from experiment.data.rows import Rows
from tests.experiment.data.sets.formats import packed


@pytest.fixture
def rows(rng: np.random.Generator) -> np.ndarray:
    return (rng.random((40, 11)) < 0.5).astype(np.uint8)


def stored(data: Rows) -> list[tuple[int, ...]]:
    return sorted(map(tuple, np.concatenate([part.X for part in data.parts.values()]).tolist()))


WRITERS: dict[str, Callable[[Path, pd.DataFrame], None]] = {
    "csv": lambda path, frame: frame.to_csv(path, index=False),
    "csv.gz": lambda path, frame: frame.to_csv(path, index=False),
    "parquet": lambda path, frame: frame.to_parquet(path),
    "npz": lambda path, frame: np.savez(path, X=frame.to_numpy(), feature_names=list(frame.columns)),
}


@pytest.mark.parametrize("kind", sorted(WRITERS))
@pytest.mark.parametrize("dtype", [np.int64, bool, np.float64])
def test_own_table(rows: np.ndarray, tmp_path: Path, kind: str, dtype: type) -> None:
    names = tuple(f"item {d}" for d in range(11))
    path = tmp_path / f"shop.{kind}"
    WRITERS[kind](path, pd.DataFrame(rows.astype(dtype), columns=list(names)))
    data = read_bits(path, seed=3, valid_fraction=0.25, test_fraction=0.2)
    assert (data.name, data.feature_names) == ("shop", names)
    assert list(data.sizes.values()) == [24, 8, 8]
    assert stored(data) == sorted(map(tuple, rows.tolist()))
    assert data.train.X.dtype == np.uint8
    again, other = (read_bits(path, seed=s, valid_fraction=0.25, test_fraction=0.2) for s in (3, 4))
    assert data.sha256 == again.sha256 != other.sha256
    assert "8 valid rows drawn with seed 3" in data.source


@pytest.mark.parametrize("kind", ["csv", "csv.gz"])
def test_a_csv_file_may_begin_with_data(rows: np.ndarray, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"bare.{kind}"
    pd.DataFrame(rows).to_csv(path, index=False, header=False)
    data = read_bits(path)
    assert stored(data) == sorted(map(tuple, rows.tolist()))
    assert data.feature_names[:2] == ("x0", "x1")


def test_npz_with_parts(rows: np.ndarray, tmp_path: Path) -> None:
    train, valid, test = np.split(rows[:, :6], [20, 25])
    path = tmp_path / "own.npz"
    np.savez(path, train=train, valid=valid, test=test, image_shape=[2, 3])
    data = read_bits(path)
    for got, expected in zip((data.train.X, data.valid.X, data.test.X), (train, valid, test), strict=True):
        np.testing.assert_array_equal(got, expected)
    assert data.image_shape == (2, 3)
    packed(path, train=train, test=test)
    data = read_bits(path, valid_fraction=0.25)
    np.testing.assert_array_equal(data.test.X, test)
    assert (data.sizes["train"], data.sizes["valid"]) == (15, 5)


def save_csv(text: str) -> Callable[[Path], Path]:
    def save(folder: Path) -> Path:
        path = folder / "bad.csv"
        path.write_text(text)
        return path

    return save


def save_npz(**arrays: Any) -> Callable[[Path], Path]:
    def save(folder: Path) -> Path:
        path = folder / "bad.npz"
        np.savez(path, **arrays)
        return path

    return save


def truncated(folder: Path) -> Path:
    path = folder / "bad.csv.gz"
    content = gzip.compress("\n".join(["a,b", *["0,1"] * 5000]).encode())
    path.write_bytes(content[: len(content) // 2])
    return path


ONES = np.ones((4, 3), np.uint8)


@pytest.mark.parametrize(
    ("save", "message"),
    [
        (lambda folder: folder / "absent.csv", "--data must be a file, but there is none at"),
        (save_csv(""), "is empty"),
        (save_csv("a,b\n"), r"must have at least one row and one column, got \(0, 2\)"),
        (save_csv("a,b\n0,1\n1,2\n0,2\n"), r"got 2 in row 1 of column 'b' \(2 such values\); binarise"),
        (save_csv("a,b\n0,1\n0.5,1\n"), "got 0.5 in row 1 of column 'a'"),
        (save_csv("a,b\n0,1\n,1\n"), r"missing values in 'a' \(1\)"),
        (save_csv("0,1\n1\n"), r"missing values in 'x1' \(1\)"),
        (save_csv("a,b\nyes,1\nno,0\n"), "but 'a' hold text or dates; drop these columns"),
        (save_csv("0,1\n1,a\n"), "but 'x1' hold text or dates"),
        (save_csv("0,1\n1,0,1\n"), "is no readable, complete CSV file"),
        (save_csv("a,b\n0,1,1\n1,0,1\n"), "rows of more values than column names"),
        (save_csv("a,b\n0,1\n1,0\n"), "has 2 rows, too few to set 0.1 of them aside as test rows"),
        (truncated, "is no readable, complete CSV file"),
        (
            lambda folder: save_csv("0,1\n")(folder).rename(folder / "x.txt"),
            "must end in .csv, .csv.gz, .parquet or .npz",
        ),
        (save_npz(train=ONES * 2), r"train of .* got 2 in row 0 of column 'x0' \(12 such values\)"),
        (save_npz(train=ONES * np.nan), "train of .* got nan in row 0"),
        (save_npz(train=ONES.astype(str)), "must be numbers 0 and 1 or true and false, got <U"),
        (save_npz(X=ONES, train=ONES), "must hold train .* or one matrix X"),
        (save_npz(valid=ONES), "must hold train .* got 'valid'"),
        (save_npz(train=ONES, weights=ONES), "may hold .* got 'weights'; leave out"),
        (save_npz(train=ONES, valid=ONES[:, :2]), r"with the same D and at least one row, got .*\(4, 2\)"),
        (save_npz(train=ONES[:0]), "at least one row, got"),
        (save_npz(train=ONES[0]), "must hold matrices"),
        (save_npz(train=ONES, n_features=25), "3 bytes in each row, which are not 25 bits"),
        (save_npz(train=ONES.astype(float), n_features=24), "parts must be np.packbits"),
        (save_npz(X=ONES, image_shape=[2, 2]), r"two numbers with the product 3, got \[2, 2\]"),
        (save_npz(X=np.ones((40, 3)), feature_names=["a", "b"]), "must have 3 column names, got 2"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, save: Callable[[Path], Path], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_bits(save(tmp_path))


def test_wrong_fractions(tmp_path: Path) -> None:
    for fraction in (0.0, 1.0, float("nan")):
        with pytest.raises(ValueError, match="valid_fraction must be between 0 and 1, got"):
            read_bits(tmp_path / "any.csv", valid_fraction=fraction)
        with pytest.raises(ValueError, match="test_fraction must be between 0 and 1, got"):
            read_bits(tmp_path / "any.csv", test_fraction=fraction)


def parts(train: np.ndarray, valid: np.ndarray, test: np.ndarray) -> dict[str, np.ndarray]:
    return {"train": train, "valid": valid, "test": test}


def test_constant_columns_are_counted_and_told(rows: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(logging, "warning", lambda text, *values: told.append(text % values))
    density("plain", parts(rows, rows[:3], rows[:3]), "")
    assert told == []
    train = rows.copy()
    train[:, [2, 5]] = [0, 1]
    assert constant_columns(train) == (2, 5)
    density("flat", parts(train, rows[:3], rows[:3]), "", feature_names=tuple("abcdefghijk"))
    assert told == ["flat: 2 of 11 columns do not vary in the training part ('c', 'f')."]


def test_classes_go_with_their_rows(rows: np.ndarray) -> None:
    labels = {part: np.arange(len(x)) for part, x in parts(rows[:20], rows[20:30], rows[30:]).items()}
    data = density("own", parts(rows[:20], rows[20:30], rows[30:]), "here", labels=labels)
    for part in ("train", "valid", "test"):
        np.testing.assert_array_equal(data.parts[part].Y, labels[part][:, None])
    assert (data.task, data.source, data.test.Y.dtype) == ("density", "here", np.int64)


def test_parts_must_fit() -> None:
    with pytest.raises(
        ValueError, match=r"the test part of 'own' must be \[N, 3\] with at least one row, got \(4, 2\)"
    ):
        density("own", parts(ONES, ONES, ONES[:, :2]), "")
    with pytest.raises(ValueError, match=r"the valid part of 'own' must be .* got \(0, 3\)"):
        density("own", parts(ONES, ONES[:0], ONES), "")
    with pytest.raises(ValueError, match="the train part of 'own' must be 0 or 1 everywhere, got 3"):
        density("own", parts(np.full_like(ONES, 3), ONES, ONES), "")


def test_checksum_depends_on_rows_and_parts(rows: np.ndarray) -> None:
    def checksum(*arrays: np.ndarray) -> str:
        return density("own", parts(*arrays), "").sha256

    base = checksum(rows[:20], rows[20:30], rows[30:])
    expected = hashlib.sha256()
    for piece in (rows[:20], rows[20:30], rows[30:]):
        expected.update(f"{piece.shape}".encode() + np.packbits(piece, axis=1).tobytes())
    assert base == checksum(rows[:20].astype(bool), rows[20:30], rows[30:]) == expected.hexdigest()
    assert base != checksum(rows[:21], rows[21:30], rows[30:])
    assert base != checksum(rows[:20], rows[20:30], np.flip(rows[30:]))
