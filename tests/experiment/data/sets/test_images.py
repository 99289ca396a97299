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

from experiment.data.sets import images
from experiment.data.sets import supervised as datasets
from experiment.data.sets.images import image_names, load_images, read_images, shifted


def test_digits_need_no_file_and_are_split_the_same_way_every_time() -> None:
    digits, again = load_images("digits"), load_images()
    assert digits.X.shape == (1437, 8, 8, 1)
    assert digits.X_test.shape == (360, 8, 8, 1)
    assert digits.sha256 == again.sha256
    assert digits.largest == digits.X.max() == 16
    scaled = digits.scaled(digits.X)
    assert scaled.dtype == np.float32
    assert (scaled.min(), scaled.max()) == (-1.0, 1.0)
    assert set(digits.labels) == set(range(10))


def test_rows_set_aside_are_not_trained_on() -> None:
    digits = load_images("digits")
    rows, valid = digits.split(100)
    assert len(valid) == 100
    np.testing.assert_array_equal(np.sort(np.concatenate([rows, valid])), np.arange(1437))
    np.testing.assert_array_equal(digits.split(100)[1], valid)
    with pytest.raises(ValueError, match="1437 training images, so 1437 cannot be set aside"):
        digits.split(1437)


def idx(array: np.ndarray) -> bytes:
    return b"\0\0\x08" + bytes([array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def test_mnist_is_read_from_idx_files_and_checked(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = {
        "train-images-idx3-ubyte": rng.integers(0, 256, (6, 28, 28), np.uint8),
        "train-labels-idx1-ubyte": np.arange(6, dtype=np.uint8),
        "t10k-images-idx3-ubyte": rng.integers(0, 256, (3, 28, 28), np.uint8),
        "t10k-labels-idx1-ubyte": np.array([9, 1, 1], np.uint8),
    }
    (tmp_path / "mnist").mkdir()
    for name, array in arrays.items():
        (tmp_path / "mnist" / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    with pytest.raises(ValueError, match="must have the SHA-256"):
        load_images("mnist", tmp_path)
    sums = {name: hashlib.sha256(idx(array)).hexdigest() for name, array in arrays.items()}
    monkeypatch.setattr(datasets, "_MNIST", sums)
    mnist = load_images("mnist", tmp_path)
    np.testing.assert_array_equal(mnist.X[..., 0], arrays["train-images-idx3-ubyte"])
    assert mnist.labels_test.tolist() == [9, 1, 1]
    assert mnist.labels.dtype == np.int64
    assert mnist.largest == 255
    np.testing.assert_array_equal(load_images("mnist", tmp_path / "mnist").X, mnist.X)


def cifar_files(rng: np.random.Generator) -> tuple[dict[str, bytes], np.ndarray]:
    pixels = rng.integers(0, 256, (6, 2, 32, 32, 3), np.uint8)  # 6 files of 2 images
    contents = {}
    for number, name in enumerate(images._CIFAR_FILES):
        records = [bytes([number]) + image.transpose(2, 0, 1).tobytes() for image in pixels[number]]
        contents[name] = b"".join(records)
    return contents, pixels


def test_cifar_is_read_from_its_folder_or_archive(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents, pixels = cifar_files(rng)
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    for where in (tmp_path, folder):
        cifar = load_images("cifar10", where)
        np.testing.assert_array_equal(cifar.X, pixels[:5].reshape(10, 32, 32, 3))
        np.testing.assert_array_equal(cifar.X_test, pixels[5])
        assert cifar.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    other = tmp_path / "other"
    other.mkdir()
    with tarfile.open(other / "cifar-10-binary.tar.gz", "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    with pytest.raises(ValueError, match="must have the MD5 c32a1d4a"):
        load_images("cifar10", other)
    md5 = hashlib.md5((other / "cifar-10-binary.tar.gz").read_bytes()).hexdigest()
    monkeypatch.setattr(images, "_CIFAR_MD5", md5)
    assert load_images("cifar10", other).sha256 == cifar.sha256
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(ValueError, match=r"lacks data_batch_3.bin"):
        load_images("cifar10", tmp_path)


def test_damaged_records_are_refused() -> None:
    with pytest.raises(ValueError, match="records of 3073 bytes, got 5 bytes"):
        images._records(b"12345", "x.bin")
    with pytest.raises(ValueError, match="has the label 77, above 9"):
        images._records(b"\x4d" + bytes(3072), "x.bin")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mnist", "needs mnist/train-images-idx3-ubyte.gz.*--data_dir"),
        ("cifar10", "needs cifar-10-binary.tar.gz .*cs.toronto.edu.*--data_dir"),
        ("cifar10_jpeg", "needs cifar10_jpeg_lossy.npz.*--data_dir"),
        ("imagenet", "--dataset must be one of cifar10, cifar10_jpeg, digits, mnist, got 'imagenet'"),
    ],
)
def test_missing_files_say_what_to_get(tmp_path: Path, name: str, message: str) -> None:
    for data_dir in (None, tmp_path):
        with pytest.raises(ValueError, match=message):
            load_images(name, data_dir)
    with pytest.raises(ValueError, match="there is nothing at"):
        load_images(image_names()[0], tmp_path / "nothing")


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
    own = read_images(tmp_path / "mine.npz")
    np.testing.assert_array_equal(own.X, arrays["X"])
    assert (own.name, own.class_names, own.largest) == ("mine", ("0", "1", "2", "3"), 255)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra": np.zeros(1)}, "must hold X, labels, X_test, labels_test, got .*extra"),
        ({"X": np.zeros((5, 4, 6, 2))}, "X in .* must be uint8 images"),
        ({"X_test": np.zeros((2, 4, 4, 2), np.uint8)}, "X_test in .* must be uint8 images"),
        ({"labels": np.zeros(4, int)}, "a label of 0 or more for each image of X"),
        ({"labels_test": np.array([-1, 0])}, "a label of 0 or more for each image of X_test"),
    ],
)
def test_wrong_own_images_are_refused(
    tmp_path: Path, arrays: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    np.savez(tmp_path / "mine.npz", **{**arrays, **change})
    with pytest.raises(ValueError, match=message):
        read_images(tmp_path / "mine.npz")
    with pytest.raises(ValueError, match="there is none at"):
        read_images(tmp_path / "nothing.npz")


def test_shifted_images_are_moved_each_by_its_own(rng: np.random.Generator) -> None:
    X = rng.normal(size=(400, 5, 4, 2)).astype(np.float32)
    moved = tf.function(shifted)(X, 1, tf.constant([3, 5])).numpy()
    assert moved.dtype == np.float32
    padded = np.pad(X, [(0, 0), (1, 1), (1, 1), (0, 0)], mode="edge")
    moves = {(i, j): padded[:, i : i + 5, j : j + 4] for i in range(3) for j in range(3)}
    counts = {move: int(np.sum(np.all(image == moved, axis=(1, 2, 3)))) for move, image in moves.items()}
    assert sum(counts.values()) == len(X)
    assert min(counts.values()) > 20  # 44 +- 6 of each
    np.testing.assert_array_equal(shifted(X, 1, tf.constant([3, 5])), moved)
    assert np.any(shifted(X, 1, tf.constant([3, 6])) != moved)
    np.testing.assert_array_equal(shifted(X, 0, tf.constant([3, 5])), X)
