import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from absl import logging

from gpflow_deep_runs.data.density.bits import categories, constant_columns, density, read_alike, read_bits
from gpflow_deep_runs.data.rows import Rows
from gpflow_deep_runs.data.table.schema import Schema
from gpflow_deep_runs.data.table.spec import TableSpec
from tests.gpflow_deep_runs.data.sets.formats import packed


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
        (lambda folder: folder, "--data must be a file, got the folder .*; give a file in it"),
        (lambda folder: Path("/dev/null"), "got the pipe or device /dev/null; write it to a file first"),
        (save_csv(""), "is empty"),
        (save_csv("a,b\n"), "at least 2 rows below its header, got 0"),
        (
            save_csv("a,b\n0,1\n1,2\n0,2\n"),
            r"got 2 in row 1 of column 'b' \(2 such values\); .* --ignore, .* --categorical",
        ),
        (save_csv("a,b\n0,1\n0.5,1\n"), "got 0.5 in row 1 of column 'a'"),
        (save_csv("a,b\n0,1\n,1\n"), "has 2 rows, too few to set 0.1"),
        (save_csv("a,b\n2020-01-02,1\n2020-01-03,0\n"), "but 'a' hold dates or times; leave them out with --ignore=a"),
        (save_csv("a,b\n10:35,1\n11:20,0\n"), "but 'a' hold dates or times; leave them out with --ignore=a"),
        (save_csv("0,1\n1,0\n0,a\n1,1\n"), "'x1' .* 'a' in row 2"),
        (save_csv("0,1\n1,0,1\n"), "rows of more values than column names"),
        (save_csv("a,b\n0,1,1\n1,0,1\n"), "rows of more values than column names"),
        (save_csv("a,b\n0,1\n1,0\n"), "has 2 rows, too few to set 0.1 of them aside as test rows"),
        (truncated, "is no readable, complete CSV file"),
        (
            lambda folder: save_csv("0,1\n")(folder).rename(folder / "x.sav"),
            r"must end in .csv, .*, .parquet or .npz",
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
        (save_npz(X=ONES, image_shape=["a", "b"]), r"two numbers with the product 3, got \['a', 'b'\]"),
        (save_npz(X=np.ones((40, 3)), feature_names="abc"), "must have 3 column names, got 1"),
        (save_npz(X=np.ones((40, 3)), feature_names=["a", "b"]), "must have 3 column names, got 2"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, save: Callable[[Path], Path], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_bits(save(tmp_path))


def shop(rng: np.random.Generator) -> pd.DataFrame:
    """A bit, a truth, and levels; and what they become, NaN where a value is missing."""
    kinds = rng.choice(["ale", "bun", "cod"], 60, p=[0.2, 0.7, 0.1])
    return pd.DataFrame({"new": rng.integers(0, 2, 60), "paid": rng.choice(["yes", "no"], 60), "kind": kinds})


def bits_of(frame: pd.DataFrame) -> np.ndarray:
    columns = [frame["new"], frame["paid"] == "yes", *(frame["kind"] == level for level in ("ale", "bun", "cod"))]
    return np.stack([np.asarray(column, np.uint8) for column in columns], axis=1)


def test_truths_and_levels_become_bits(rng: np.random.Generator, tmp_path: Path) -> None:
    frame = shop(rng)
    frame.to_csv(tmp_path / "shop.csv", index=False)
    data = read_bits(tmp_path / "shop.csv")
    assert data.feature_names == ("new", "paid", "kind=ale", "kind=bun", "kind=cod")
    assert stored(data) == sorted(map(tuple, bits_of(frame).tolist()))
    assert data.schema is not None
    assert data.schema.targets == ()
    fewer = read_bits(tmp_path / "shop.csv", TableSpec(ignore=("paid",), rare=20, unknown="level"))
    assert fewer.feature_names == ("new", "kind=bun", "kind=(rare)")


def test_numbers_may_be_levels(tmp_path: Path) -> None:
    pd.DataFrame({"a": [0, 1] * 10, "zone": [1, 2, 3, 4] * 5}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match="got 2 in row 1 of column 'zone'"):
        read_bits(tmp_path / "t.csv")
    data = read_bits(tmp_path / "t.csv", TableSpec(categorical=("zone",)))
    assert data.feature_names == ("a", "zone=1", "zone=2", "zone=3", "zone=4")


def test_missing_bits_are_the_most_frequent_of_the_training_rows(rng: np.random.Generator, tmp_path: Path) -> None:
    """A column says where; the bits of a number, of a truth and of levels are put in alike."""
    frame = shop(rng).astype({"new": object, "paid": object, "kind": object})
    whole = bits_of(frame)
    is_missing = rng.random((60, 3)) < 0.15
    is_missing[0] = True
    frame = frame.mask(is_missing)
    frame.to_csv(tmp_path / "shop.csv", index=False)
    with pytest.raises(ValueError, match=r"missing values in 'new' .*; give --missing=impute"):
        read_bits(tmp_path / "shop.csv", TableSpec(missing="error"))
    data = read_bits(tmp_path / "shop.csv")
    assert "missing values of 'new', 'paid', 'kind' are a bit, NAME=missing" in data.source
    assert data.feature_names == (
        *("new", "new=missing", "paid", "paid=missing", "kind=ale", "kind=bun", "kind=cod", "kind=missing"),
    )
    train = data.train.X
    for value, place in (("new", 0), ("paid", 2), ("kind", 4)):
        width = 3 if value == "kind" else 1
        told = train[:, place + width] == 1
        known = train[~told, place : place + width].mean(axis=0)
        most = np.arange(3) == known.argmax() if width == 3 else known > 0.5
        np.testing.assert_array_equal(train[told, place : place + width], np.tile(most, (told.sum(), 1)))
    together = np.concatenate([part.X for part in data.parts.values()])
    kept = together[:, [1, 3, 7]].sum(axis=1) == 0
    expected = whole[~is_missing.any(axis=1)]
    assert sorted(map(tuple, together[kept][:, [0, 2, 4, 5, 6]].tolist())) == sorted(map(tuple, expected.tolist()))


def test_flags_of_tables_are_not_for_matrices(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", X=np.ones((40, 3)))
    with pytest.raises(ValueError, match=r"--ignore is for tables with names of columns, and .*m.npz holds matrices"):
        read_bits(tmp_path / "m.npz", TableSpec(ignore=("x0",)))


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


def test_numbers_become_bins_where_these_are_given(tmp_path: Path) -> None:
    """Each column of bins is one variable; another table is read alike, whatever its numbers."""
    rows = [f"{'ab'[i % 2]},{i % 5},{i * 0.5}" for i in range(100)]
    (tmp_path / "t.csv").write_text("\n".join(["kind,number,amount", *rows]), encoding="utf-8")
    with pytest.raises(ValueError, match="must be 0 or 1 everywhere"):
        read_bits(tmp_path / "t.csv")
    data = read_bits(tmp_path / "t.csv", bins=8)
    assert [len(group) for group in categories(data)] == [2, 5, 8]
    assert (data.train.X[:, 2:7].sum(axis=1) == 1).all()
    assert data.schema is not None
    schema = Schema.from_json(json.loads(json.dumps(data.schema.to_json())))
    (tmp_path / "new.csv").write_text("kind,number,amount\na,7,-3\nb,0,1000\n", encoding="utf-8")
    bits = read_alike(tmp_path / "new.csv", schema)
    assert bits.shape == (2, 15)
    assert bits[:, 2:7].argmax(axis=1).tolist() == [4, 0]
    assert bits[:, 7:].argmax(axis=1).tolist() == [0, 7]


def test_dates_and_times_become_bins_where_these_are_given(tmp_path: Path) -> None:
    """A date is one variable with its hour, whatever its weekday; another table is read alike."""
    rows = [f"2024-01-{1 + i % 28:02d} {6 * (i % 4):02d}:00,{8 + i % 3}:30,{i % 2}" for i in range(112)]
    (tmp_path / "t.csv").write_text("\n".join(["day,at,bit", *rows]), encoding="utf-8")
    data = read_bits(tmp_path / "t.csv", bins=4)
    assert [len(group) for group in categories(data)] == [4, 3]
    assert data.feature_names[0] == "day=2024-01-01 to 2024-01-07 12:00:00"
    assert data.feature_names[4:7] == ("at=8:30:00", "at=9:30:00", "at=10:30:00")
    assert data.schema is not None
    schema = Schema.from_json(json.loads(json.dumps(data.schema.to_json())))
    (tmp_path / "new.csv").write_text(
        "day,at,bit\n2024-01-14 23:00,8:30,0\n2030-01-01 00:00,10:30,1\n", encoding="utf-8"
    )
    bits = read_alike(tmp_path / "new.csv", schema)
    assert bits[:, :4].argmax(axis=1).tolist() == [1, 3]
    assert bits[:, 4:7].argmax(axis=1).tolist() == [0, 2]
    with pytest.raises(ValueError, match="--date_parts must be day,hour or one part to be binned, got day,weekday"):
        read_bits(tmp_path / "t.csv", TableSpec(date_parts=("day", "weekday")), bins=4)
