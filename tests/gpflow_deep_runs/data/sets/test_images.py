"""Images by name and from a file: shapes, the fixed split, checksums, and errors for missing and damaged files."""

import gzip
import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from sklearn import datasets as scikit

from gpflow_deep_runs.data.sets import catalogue, images
from tests.gpflow_deep_runs.data.sets.formats import idx


def test_digits_are_split_the_same_way_every_time() -> None:
    digits = catalogue.read("digits", "images")
    assert digits.train.X.shape == (1497, 8, 8, 1)
    assert digits.test.X.shape == (300, 8, 8, 1)
    assert digits.train.X.max() == images.LARGEST["digits"] == 16
    X, y = scikit.load_digits(return_X_y=True)
    together = np.concatenate([part.X.reshape(-1, 64) for part in digits.parts.values()])
    labels = np.concatenate([part.Y[:, 0] for part in digits.parts.values()])
    got = sorted((tuple(row), label) for row, label in zip(together.tolist(), labels, strict=True))
    assert got == sorted((tuple(row), label) for row, label in zip(X.astype(int).tolist(), y, strict=True))


def test_images_set_aside_are_not_trained_on_and_all_are_scaled() -> None:
    digits = catalogue.read("digits", "images")
    data = images.prepared(digits, 16, num_valid=100)
    assert data.sizes == {"train": 1397, "valid": 100, "test": 300}
    for part in data.parts.values():
        assert part.X.dtype == np.float32
    assert (data.train.X.min(), data.train.X.max()) == (-1.0, 1.0)
    together = np.concatenate([data.train.X, data.valid.X])
    expected = digits.train.X / 8 - 1
    assert sorted(map(bytes, together)) == sorted(map(bytes, expected.astype(np.float32)))
    np.testing.assert_array_equal(data.test.X, (digits.test.X / 8 - 1).astype(np.float32))
    again = images.prepared(digits, 16, num_valid=100)
    np.testing.assert_array_equal(again.valid.X, data.valid.X)
    assert images.prepared(digits, 16, num_valid=0).sizes == {"train": 1497, "valid": 0, "test": 300}
    for wrong in ({"num_valid": -1}, {"max_images": 0}):
        with pytest.raises(ValueError, match="num_valid must not be negative and max_images positive, got"):
            images.prepared(digits, 16, **wrong)


def test_checksum_is_that_of_images_and_labels() -> None:
    digits = catalogue.read("digits", "images")
    expected = hashlib.sha256()
    for X, Y in digits.parts.values():
        expected.update(f"{X.shape}".encode() + X.tobytes() + f"{Y[:, 0].shape}".encode() + Y.tobytes())
    assert digits.sha256 == images.prepared(digits, 16).sha256 == expected.hexdigest()


def test_mnist(tmp_path: Path, rng: np.random.Generator) -> None:
    arrays = (
        rng.integers(0, 256, (6, 28, 28), np.uint8),
        np.arange(6, dtype=np.uint8),
        rng.integers(0, 256, (3, 28, 28), np.uint8),
        np.array([9, 1, 1], np.uint8),
    )
    paths = [tmp_path / f"{number}.gz" for number in range(4)]
    for path, array in zip(paths, arrays, strict=True):
        path.write_bytes(gzip.compress(idx(array)))
    data = images.read_mnist("mnist", paths)
    np.testing.assert_array_equal(data.train.X[..., 0], arrays[0])
    np.testing.assert_array_equal(data.test.X, arrays[2][..., None])
    assert data.test.Y.tolist() == [[9], [1], [1]]
    assert data.train.Y.dtype == np.int64
    assert data.image_shape == (28, 28)


def cifar_files(rng: np.random.Generator) -> tuple[dict[str, bytes], np.ndarray]:
    pixels = rng.integers(0, 256, (6, 2, 32, 32, 3), np.uint8)  # 6 files of 2 images
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    contents = {
        name: b"".join(bytes([number]) + image.transpose(2, 0, 1).tobytes() for image in pixels[number])
        for number, name in enumerate(names)
    }
    return contents, pixels


def test_cifar10_is_read_from_its_files_or_from_the_archive(tmp_path: Path, rng: np.random.Generator) -> None:
    contents, pixels = cifar_files(rng)
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    for where in (tmp_path, folder):
        cifar = catalogue.read("cifar10", "images", where)
        np.testing.assert_array_equal(cifar.train.X, pixels[:5].reshape(10, 32, 32, 3))
        np.testing.assert_array_equal(cifar.test.X, pixels[5])
        assert cifar.train.Y[:, 0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    archive = tmp_path / "other" / "cifar-10-binary.tar.gz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as members:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            members.addfile(member, io.BytesIO(content))
    with pytest.raises(ValueError, match="must have the MD5 c32a1d4a"):
        catalogue.read("cifar10", "images", archive.parent)
    md5 = hashlib.md5(archive.read_bytes()).hexdigest()
    assert images.read_cifar10("cifar10", [archive], md5=md5).sha256 == cifar.sha256
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(ValueError, match=r"lacks data_batch_3.bin"):
        catalogue.read("cifar10", "images", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"12345", "must hold records of 3073 bytes, got 5 bytes"), (b"\x4d" + bytes(3072), "the label 77, above 9")],
)
def test_damaged_records_are_refused(tmp_path: Path, rng: np.random.Generator, content: bytes, message: str) -> None:
    for name, good in cifar_files(rng)[0].items():
        (tmp_path / name).write_bytes(good)
    (tmp_path / "test_batch.bin").write_bytes(content)
    with pytest.raises(ValueError, match=f"test_batch.bin of CIFAR-10 .*{message}"):
        images.read_cifar10("cifar10", [tmp_path / "data_batch_1.bin"])


def test_jpeg_copies(tmp_path: Path) -> None:
    """Images of one colour each come back within the loss of JPEG."""
    arrays: dict[str, np.ndarray] = {}
    colours = {"train": [(250, 10, 10), (10, 250, 10)], "test": [(10, 10, 250)]}
    for part, values in colours.items():
        encoded = [tf.io.encode_jpeg(np.full((32, 32, 3), value, np.uint8)).numpy() for value in values]
        arrays[f"{part}_jpeg"] = np.frombuffer(b"".join(encoded), np.uint8)
        arrays[f"{part}_offsets"] = np.cumsum([0, *map(len, encoded)])
        arrays[f"{part}_labels"] = np.arange(len(values), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", **arrays)
    data = images.read_cifar10_jpeg("cifar10_jpeg", [tmp_path / "a.npz"])
    assert data.train.X.shape == (2, 32, 32, 3)
    for part, values in colours.items():
        np.testing.assert_allclose(data.parts[part].X.mean(axis=(1, 2)), values, atol=4)
        np.testing.assert_array_equal(data.parts[part].Y[:, 0], np.arange(len(values)))


@pytest.fixture
def arrays(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "X": rng.integers(0, 256, (5, 4, 6, 2), np.uint8),
        "labels": np.array([0, 1, 2, 0, 1]),
        "X_test": rng.integers(0, 256, (2, 4, 6, 2), np.uint8),
        "labels_test": np.array([3, 0]),
    }


def test_own_images(tmp_path: Path, arrays: dict[str, Any]) -> None:
    np.savez(tmp_path / "mine.npz", **arrays)
    own = images.read_own(tmp_path / "mine.npz")
    np.testing.assert_array_equal(own.train.X, arrays["X"])
    np.testing.assert_array_equal(own.test.Y[:, 0], arrays["labels_test"])
    assert (own.name, own.class_names, own.image_shape) == ("mine", ("0", "1", "2", "3"), (4, 6))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra": np.zeros(1)}, "must hold X, labels, X_test, labels_test, got .*extra"),
        ({"X": np.zeros((5, 4, 6, 2))}, "X in .* must be uint8 images"),
        ({"X_test": np.zeros((2, 4, 4, 2), np.uint8)}, "X_test in .* must be uint8 images"),
        ({"labels": np.zeros(4, int)}, "a label from 0 to 65535 for each image of X"),
        ({"labels_test": np.array([-1, 0])}, "a label from 0 to 65535 for each image of X_test"),
        ({"labels_test": np.array([10**12, 0])}, "for each image of X_test, got int64 .* up to 1000000000000"),
    ],
)
def test_wrong_own_images_are_refused(
    tmp_path: Path, arrays: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    np.savez(tmp_path / "mine.npz", **{**arrays, **change})
    with pytest.raises(ValueError, match=message):
        images.read_own(tmp_path / "mine.npz")
    with pytest.raises(ValueError, match="there is none at"):
        images.read_own(tmp_path / "nothing.npz")
