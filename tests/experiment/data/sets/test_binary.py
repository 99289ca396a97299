import gzip
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from absl import logging
from scipy import io

from experiment.data.rows import Dataset
from experiment.data.sets import binary as binary_data
from experiment.data.sets import supervised as datasets
from experiment.data.sets.binary import BinaryData, binary_names, describe_binary, load_binary, read_binary_table

_DATA = os.environ.get("GPFLOW_DEEP_DATA")
_needs_data = pytest.mark.skipif(not _DATA, reason="GPFLOW_DEEP_DATA does not name a folder with the real files")


@pytest.fixture
def rows(rng: np.random.Generator) -> np.ndarray:
    return (rng.random((40, 11)) < 0.5).astype(np.uint8)


def packed(path: Path, **arrays: np.ndarray) -> str:
    """Write parts as packed bits; returns the checksum of the file."""
    bits = {name: np.packbits(rows, axis=1) if rows.ndim == 2 else rows for name, rows in arrays.items()}
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, n_features=next(iter(arrays.values())).shape[1], **bits)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def use(monkeypatch: pytest.MonkeyPatch, name: str, **fields: Any) -> None:
    monkeypatch.setitem(binary_data._SETS, name, binary_data._SETS[name]._replace(**fields))


def stored(data: BinaryData) -> list[tuple[int, ...]]:
    return sorted(map(tuple, np.concatenate([data.train, data.valid, data.test]).tolist()))


# Known sets


def test_digits_need_no_file_and_are_the_same_always() -> None:
    data, again = load_binary(), load_binary("digits")
    assert [part.shape for part in (data.train, data.valid, data.test)] == [(1297, 64), (200, 64), (300, 64)]
    assert data.image_shape == (8, 8)
    assert data.train.dtype == np.uint8
    assert data.sha256 == again.sha256 == "f8b3c53564e6266c1810069622e2867a6922b28b296ca656f6f23899f8ff6b88"
    bunch = datasets._installed("sklearn.datasets", "digits").load_digits()
    pairs = zip((bunch.data >= 8).astype(int).tolist(), bunch.target, strict=True)
    assert data.labels is not None
    got = zip(np.concatenate([data.train, data.valid, data.test]).tolist(), np.concatenate(data.labels), strict=True)
    assert sorted((tuple(row), label) for row, label in got) == sorted((tuple(row), label) for row, label in pairs)


def test_every_set_is_described_and_says_what_to_get(tmp_path: Path) -> None:
    assert {"digits", "mnist", "adult", "web", "rcv1", "caltech_silhouettes"} < set(binary_names())
    for name in binary_names():
        assert describe_binary(name).startswith(f"{name}: ")
        if name != "digits":
            for folder, where in ((None, "no --data_dir was given"), (tmp_path, "it was not found in")):
                with pytest.raises(
                    ValueError, match=f"data set '{name}' needs .*{where}.* (Get|Put) .*--data_dir=FOLDER"
                ):
                    load_binary(name, folder)


def test_unknown_names_and_folders(tmp_path: Path) -> None:
    for function in (load_binary, describe_binary):
        with pytest.raises(
            ValueError, match=r"--dataset must be one of adult, .*, got 'cifar'; for own data use --data"
        ):
            function("cifar")
    with pytest.raises(ValueError, match=r"there is nothing at .*absent; check the path"):
        load_binary("digits", tmp_path / "absent")


def test_packed_copy(rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eleven columns: the last byte of a row is not full. Found as file, in its folder and in the folder above."""
    path = tmp_path / "binary" / "adult.npz"
    sha256 = packed(path, train=rows[:20], valid=rows[20:25], test=rows[25:])
    use(monkeypatch, "adult", sha256=sha256, rows=(20, 5, 15), columns=11)
    for place in (tmp_path, path.parent, path):
        data = load_binary("adult", place)
        np.testing.assert_array_equal(np.concatenate([data.train, data.valid, data.test]), rows)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"must have the SHA-256 .* damaged or another version"):
        load_binary("adult", tmp_path)


@pytest.mark.parametrize("separator", [",", " ", ", "])
def test_text_files(rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, separator: str) -> None:
    use(monkeypatch, "nips", rows=(20, 5, 15), columns=11)
    for part, piece in zip(("train", "valid", "test"), np.split(rows, [20, 25]), strict=True):
        np.savetxt(tmp_path / f"nips.{part}.data", piece, fmt="%d", delimiter=separator)
    data = load_binary("nips", tmp_path)
    np.testing.assert_array_equal(np.concatenate([data.train, data.valid, data.test]), rows)
    lines = (tmp_path / "nips.test.data").read_text().splitlines()
    (tmp_path / "nips.test.data").write_text("\n".join(lines[:-1]))
    with pytest.raises(ValueError, match=r"must have \(20, 5, 15\) rows of 11 columns, got .* not complete"):
        load_binary("nips", tmp_path)
    for text, message in [
        (lines[0].replace("1", "2").replace("0", "2"), "must hold 0 and 1 only"),
        ("0,1\n0,1,1\n1\n", "must hold 0 and 1 only, in lines of equal length"),
        ("0,1,0\n0,1\n", "must hold 0 and 1 in lines of equal length"),
        ("", "must hold 0 and 1 in lines of equal length"),
    ]:
        (tmp_path / "nips.test.data").write_text(text)
        with pytest.raises(ValueError, match=message):
            load_binary("nips", tmp_path)
    (tmp_path / "nips.test.data").unlink()
    with pytest.raises(ValueError, match="is missing; the train, valid and test files belong into one folder"):
        load_binary("nips", tmp_path)


def test_mnist_is_thresholded_above_half(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    X = rng.integers(0, 256, size=(70_000, 4)) / 255.0
    X[0] = [127 / 255, 128 / 255, 0, 1]
    labels = rng.integers(10, size=(70_000, 1))
    known = Dataset("mnist", X, labels, "multiclass", class_names=tuple("0123456789"), target_name="digit")
    monkeypatch.setattr(datasets, "load", lambda name, folder: known)
    monkeypatch.setattr(binary_data.BinaryData, "__post_init__", lambda self: None)  # 4 pixels are no image
    data = load_binary("mnist")
    np.testing.assert_array_equal(data.train[0], [0, 1, 0, 1])
    np.testing.assert_array_equal(np.concatenate([data.train, data.valid, data.test]), X > 0.5)
    assert [len(part) for part in (data.train, data.valid, data.test)] == [50_000, 10_000, 10_000]
    assert data.labels is not None
    np.testing.assert_array_equal(np.concatenate(data.labels), labels[:, 0])


@pytest.mark.parametrize("kind", ["npz", "mat"])
def test_silhouettes_are_turned_upright(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, kind: str
) -> None:
    counts = {"train": 4100, "valid": 2264, "test": 2307}
    parts: dict[str, np.ndarray] = {
        part: (rng.random((count, 784)) < 0.5).astype(np.uint8) for part, count in counts.items()
    }
    labels: dict[str, np.ndarray] = {part: rng.integers(1, 102, size=count) for part, count in counts.items()}
    if kind == "npz":
        more = {f"{part}_labels": values for part, values in labels.items()}
        sha256 = packed(tmp_path / "caltech101_silhouettes.npz", **parts, **more)
        monkeypatch.setattr(binary_data, "_CALTECH", ("caltech101_silhouettes.npz", sha256))
    else:
        keys = {"train": "train", "valid": "val", "test": "test"}
        arrays = {f"{keys[part]}_data": rows for part, rows in parts.items()}
        arrays |= {f"{keys[part]}_labels": values[None] for part, values in labels.items()}
        io.savemat(tmp_path / "caltech101_silhouettes_28_split1.mat", arrays)
    data = load_binary("caltech_silhouettes", tmp_path)
    image = data.valid[3].reshape(28, 28)
    np.testing.assert_array_equal(image, parts["valid"][3].reshape(28, 28, order="F"))
    assert data.labels is not None
    np.testing.assert_array_equal(data.labels.test, labels["test"])


def test_damaged_silhouettes(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "caltech101_silhouettes_28_split1.mat"
    path.write_bytes(b"MATLAB 5.0" * 20)
    with pytest.raises(ValueError, match="is not the expected MATLAB file"):
        load_binary("caltech_silhouettes", path)
    arrays = {f"{key}_{what}": np.zeros((3, 784)) for key in ("train", "val", "test") for what in ("data", "labels")}
    io.savemat(path, arrays)
    with pytest.raises(ValueError, match=r"must hold 4100/2264/2307 rows of 784 pixels, got \[\(3, 784\)"):
        load_binary("caltech_silhouettes", path)


@pytest.mark.parametrize("kind", ["packed", "text"])
def test_web_has_the_sizes_of_the_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, kind: str
) -> None:
    pool, labels = (rng.random((49_749, 300)) < 0.04).astype(np.uint8), rng.integers(2, size=49_749)
    if kind == "packed":
        more = {"train_labels": labels[:24_692], "test_labels": labels[24_692:]}
        sha256 = packed(tmp_path / "web_w7a_pool.npz", train=pool[:24_692], test=pool[24_692:], **more)
        monkeypatch.setattr(binary_data, "_WEB", ("web_w7a_pool.npz", sha256))
    else:
        for file, piece, signs in zip(
            ("w7a", "w7a.t"), np.split(pool, [24_692]), np.split(2 * labels - 1, [24_692]), strict=True
        ):
            lines = [
                f"{sign} {' '.join(f'{i + 1}:1' for i in np.flatnonzero(row))}"
                for row, sign in zip(piece, signs, strict=True)
            ]
            (tmp_path / file).write_text("\n".join(lines) + "\n")
    data = load_binary("web", tmp_path)
    assert [len(part) for part in (data.train, data.valid, data.test)] == [14_000, 3188, 32_561]
    assert data.labels is not None
    got = np.column_stack([np.concatenate([data.train, data.valid, data.test]), np.concatenate(data.labels)])
    expected = np.column_stack([pool, labels])
    assert sorted(map(bytes, got.astype(np.uint8))) == sorted(map(bytes, expected.astype(np.uint8)))
    assert "not its parts" in data.source


@pytest.mark.parametrize("kind", ["packed", "text"])
def test_rcv1_is_the_validation_part_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, kind: str
) -> None:
    rows = (rng.random((10_000, 150)) < 0.2).astype(np.uint8)
    if kind == "packed":
        monkeypatch.setattr(binary_data, "_RCV1", ("rcv1.npz", packed(tmp_path / "rcv1.npz", valid=rows)))
    else:
        np.savetxt(tmp_path / "rcv1.valid.data", rows, fmt="%d", delimiter=",")
    data = load_binary("rcv1", tmp_path)
    assert [len(part) for part in (data.train, data.valid, data.test)] == [8000, 1000, 1000]
    assert stored(data) == sorted(map(tuple, rows.tolist()))
    assert "not its training and test rows" in data.source


@_needs_data
@pytest.mark.parametrize(
    ("name", "valid", "test"),
    [
        ("adult", -25.626, -25.772),
        ("connect4", -35.311, -35.338),
        ("nips", -293.302, -294.802),
        ("ocr_letters", -64.006, -63.738),
        ("binarized_mnist", -206.322, -205.793),
        ("caltech_silhouettes", -381.606, -380.052),
    ],
)
def test_real_files_give_known_likelihoods(name: str, valid: float, test: float) -> None:
    """Mean log-likelihood of independent units fitted to train with add-one smoothing, nats."""
    data = load_binary(name, _DATA)
    mean = (data.train.sum(axis=0) + 1) / (len(data.train) + 2)
    for part, expected in ((data.valid, valid), (data.test, test)):
        log_likelihood = (part @ np.log(mean) + (1 - part) @ np.log1p(-mean)).mean()
        assert log_likelihood == pytest.approx(expected, abs=6e-4)


@_needs_data
@pytest.mark.parametrize("name", ["mnist", "web", "rcv1"])
def test_other_real_files(name: str) -> None:
    data = load_binary(name, _DATA)
    assert 0.02 < data.train.mean() < 0.2
    assert len(data.constant_columns) < 0.2 * data.train.shape[1]


# A user's own file

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
    data = read_binary_table(path, seed=3, valid_fraction=0.25, test_fraction=0.2)
    assert (data.name, data.column_names) == ("shop", names)
    assert [len(part) for part in (data.train, data.valid, data.test)] == [24, 8, 8]
    assert stored(data) == sorted(map(tuple, rows.tolist()))
    assert data.train.dtype == np.uint8
    again, other = (read_binary_table(path, seed=s, valid_fraction=0.25, test_fraction=0.2) for s in (3, 4))
    assert data.sha256 == again.sha256 != other.sha256
    assert "8 valid rows drawn with seed 3" in data.source


@pytest.mark.parametrize("kind", ["csv", "csv.gz"])
def test_a_csv_file_may_begin_with_data(rows: np.ndarray, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"bare.{kind}"
    pd.DataFrame(rows).to_csv(path, index=False, header=False)
    data = read_binary_table(path)
    assert stored(data) == sorted(map(tuple, rows.tolist()))
    assert data.column_names[:2] == ("x0", "x1")


def test_npz_with_parts(rows: np.ndarray, tmp_path: Path) -> None:
    train, valid, test = np.split(rows[:, :6], [20, 25])
    path = tmp_path / "own.npz"
    np.savez(path, train=train, valid=valid, test=test, image_shape=[2, 3])
    data = read_binary_table(path)
    for got, expected in zip((data.train, data.valid, data.test), (train, valid, test), strict=True):
        np.testing.assert_array_equal(got, expected)
    assert data.image_shape == (2, 3)
    packed(path, train=train, test=test)
    data = read_binary_table(path, valid_fraction=0.25)
    np.testing.assert_array_equal(data.test, test)
    assert (len(data.train), len(data.valid)) == (15, 5)


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
        read_binary_table(save(tmp_path))


def test_wrong_fractions(tmp_path: Path) -> None:
    for fraction in (0.0, 1.0, float("nan")):
        with pytest.raises(ValueError, match="valid_fraction must be between 0 and 1, got"):
            read_binary_table(tmp_path / "any.csv", valid_fraction=fraction)
        with pytest.raises(ValueError, match="test_fraction must be between 0 and 1, got"):
            read_binary_table(tmp_path / "any.csv", test_fraction=fraction)


def test_constant_columns_are_counted_and_told(rows: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(logging, "warning", lambda text, *values: told.append(text % values))
    data = BinaryData("plain", rows, rows[:3], rows[:3])
    assert (data.constant_columns, told) == ((), [])
    train = rows.copy()
    train[:, [2, 5]] = [0, 1]
    data = BinaryData("flat", train, rows[:3], rows[:3], column_names=tuple("abcdefghijk"))
    assert data.constant_columns == (2, 5)
    assert told == ["flat: 2 of 11 columns do not vary in the training part ('c', 'f')."]


def test_parts_must_fit() -> None:
    with pytest.raises(
        ValueError, match=r"the test part of 'own' must be \[N, 3\] with at least one row, got \(4, 2\)"
    ):
        BinaryData("own", ONES, ONES, ONES[:, :2])
    with pytest.raises(ValueError, match=r"the valid part of 'own' must be .* got \(0, 3\)"):
        BinaryData("own", ONES, ONES[:0], ONES)
    with pytest.raises(ValueError, match="the train part of 'own' must be 0 or 1 everywhere, got 3"):
        BinaryData("own", np.full_like(ONES, 3), ONES, ONES)


def test_checksum_depends_on_rows_and_parts(rows: np.ndarray) -> None:
    base = BinaryData("a", rows[:20], rows[20:30], rows[30:])
    assert base.sha256 == BinaryData("b", rows[:20].astype(bool), rows[20:30], rows[30:]).sha256
    assert base.sha256 != BinaryData("a", rows[:21], rows[21:30], rows[30:]).sha256
    assert base.sha256 != BinaryData("a", rows[:20], rows[20:30], np.flip(rows[30:])).sha256
