"""Rows of numbers in files of several kinds."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from gpflow_deep_runs.data.files import arrays


@pytest.fixture
def bits(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 2, (9, 11)).astype(np.uint8)


@pytest.mark.parametrize("name", ["rows.npy", "rows.npz", "rows.csv"])
def test_what_is_written_is_read_again(name: str, bits: np.ndarray, tmp_path: Path) -> None:
    arrays.write_rows(tmp_path / name, bits)
    np.testing.assert_array_equal(arrays.read_rows(tmp_path / name), bits)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_tables_may_be_compressed_and_have_names(bits: np.ndarray, tmp_path: Path) -> None:
    with gzip.open(tmp_path / "named.csv.gz", "wt") as file:
        np.savetxt(file, bits, fmt="%d", delimiter=",", header=",".join("abcdefghijk"), comments="")
    np.testing.assert_array_equal(arrays.read_rows(tmp_path / "named.csv.gz"), bits)


def test_parts_are_chosen_and_packed_bits_unpacked(bits: np.ndarray, tmp_path: Path) -> None:
    packed = {"train": np.packbits(bits[:6], axis=1), "test": np.packbits(bits[6:], axis=1)}
    np.savez(tmp_path / "packed.npz", n_features=11, **packed)
    np.testing.assert_array_equal(arrays.read_rows(tmp_path / "packed.npz", "test"), bits[6:])
    for part in (None, "valid"):
        with pytest.raises(ValueError, match=r"packed.npz holds train, test; say which with --part"):
            arrays.read_rows(tmp_path / "packed.npz", part)


def test_files_that_cannot_be_read_are_refused(bits: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", bits)
    np.savez(tmp_path / "other.npz", Z=bits)
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY")
    (tmp_path / "words.csv").write_text("a,b\nc,d\n")
    (tmp_path / "rows.txt").write_text("1")
    for name, part, message in [
        ("missing.npy", None, "there is none at .*missing.npy"),
        ("rows.npy", "test", "--part chooses an array of an .npz file"),
        ("other.npz", None, "holds none of"),
        ("broken.npy", None, "cannot be read as rows of numbers"),
        ("words.csv", None, "cannot be read as rows of numbers"),
        ("rows.txt", None, "must end in .npy, .npz, .csv or .csv.gz"),
    ]:
        with pytest.raises(ValueError, match=message):
            arrays.read_rows(tmp_path / name, part)
    with pytest.raises(ValueError, match=r"the output must end in \.npy, \.npz, \.csv, got"):
        arrays.write_rows(tmp_path / "rows.txt", bits)
