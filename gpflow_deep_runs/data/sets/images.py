"""Readers of images with labels, for networks that classify: MNIST, CIFAR-10, the digits of scikit-learn, own files.

A reader returns the parts "train" and "test" as uint8 [n, H, W, C]; :func:`prepared` sets some aside and scales all.
"""

import hashlib
import itertools
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_base.seeds import numpy_rng
from gpflow_deep_base.storage.container import read_npz
from gpflow_deep_runs.data.rows import Part, Rows
from gpflow_deep_runs.data.sets import files as raw

__all__ = ["CIFAR_MD5", "LARGEST", "prepared", "read_cifar10", "read_cifar10_jpeg", "read_digits"]
__all__ += ["read_mnist", "read_own"]

CIFAR_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
LARGEST: Mapping[str, int] = {"digits": 16}
"""The largest value of a pixel of known sets, if it is not 255."""

MAX_CLASSES = 2**16
"""Each class has weights in a model, whether or not an image is of it."""

_CIFAR_FILES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
_CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def prepared(data: Rows, largest: int, *, num_valid: int = 5000, max_images: int | None = None) -> Rows:
    """The images in [-1, 1], float32, with a part "valid" of the training images.

    :param data: what a reader returned.
    :param largest: the value of a pixel that becomes 1; 0 becomes -1.
    :param num_valid: images to set aside, but at most a tenth; which ones depends on the name and size of the set only.
    :param max_images: use only so many training images (before some are set aside) and test images, drawn by the name
        and size of the set, as files may be sorted by label; None for all.
    :raises ValueError: if `num_valid` is negative, or `max_images` not positive.
    """
    if num_valid < 0 or (max_images is not None and max_images < 1):
        raise ValueError(f"num_valid must not be negative and max_images positive, got {num_valid} and {max_images}.")
    X, Y = data.train
    # Which images are used and set aside depends on the name and the size of the set.
    order = numpy_rng(0, f"images/{data.name}").permutation(len(X))[:max_images]
    count = min(num_valid, len(order) // 10)
    numbers = {"train": np.sort(order[count:]), "valid": np.sort(order[:count])}
    parts = {part: Part(_scaled(X[rows], largest), Y[rows]) for part, rows in numbers.items()}
    test = data.test
    rows = np.sort(numpy_rng(0, f"images/{data.name}/test").permutation(len(test.X))[:max_images])
    parts["test"] = Part(_scaled(test.X[rows], largest), test.Y[rows])
    return replace(data, parts=parts)


def read_digits(name: str, paths: Sequence[Path]) -> Rows:
    """Scikit-learn's digits, from 0 to 16; the test rows of all views test."""
    pixels, labels = raw.digits()
    images = pixels.reshape(-1, 8, 8, 1).astype(np.uint8)
    # Divided as in all views, each part in the order of the source.
    order = raw.digits_order()
    num_train = sum(raw.DIGITS_COUNTS)
    train = np.sort(order[:num_train])
    test = np.sort(order[num_train:])
    source = f"scikit-learn, load_digits; {len(test)} drawn for testing with a fixed seed"
    return _images(name, images[train], labels[train], images[test], labels[test], raw.CLASS_NAMES, source)


def read_mnist(name: str, paths: Sequence[Path]) -> Rows:
    """MNIST from its four files."""
    train, labels, test, test_labels = raw.mnist(paths)
    return _images(name, train[..., None], labels, test[..., None], test_labels, raw.CLASS_NAMES, "MNIST idx files")


def read_cifar10(name: str, paths: Sequence[Path], *, md5: str = CIFAR_MD5) -> Rows:
    """CIFAR-10 from the first of its six files, with the others beside it, or from the archive of that MD5."""
    (path,) = paths
    # Six files beside each other, or the archive that holds them.
    if path.suffix == ".bin":
        missing = [file for file in _CIFAR_FILES if not path.with_name(file).is_file()]
        if missing:
            raise ValueError(f"{path.parent} lacks {', '.join(missing)} of CIFAR-10; unpack the archive again.")
        contents = {file: path.with_name(file).read_bytes() for file in _CIFAR_FILES}
    else:
        contents = _unpacked(path, md5)
    # The last of them tests.
    X, labels = zip(*(_records(contents[file], file) for file in _CIFAR_FILES), strict=True)
    return _images(
        name,
        np.concatenate(X[:-1]),
        np.concatenate(labels[:-1]),
        X[-1],
        labels[-1],
        _CIFAR_CLASSES,
        "CIFAR-10, binary version",
    )


def read_cifar10_jpeg(name: str, paths: Sequence[Path]) -> Rows:
    """CIFAR-10 from lossy JPEG copies."""
    import tensorflow as tf  # only here, to decode them

    (path,) = paths
    stored = read_npz(path)
    pixels = []
    # Images one after the other, and where each of them begins.
    for part in ("train", "test"):
        content = stored[f"{part}_jpeg"].tobytes()
        offsets = stored[f"{part}_offsets"]
        pixels.append(np.stack([tf.io.decode_jpeg(content[a:b], 3).numpy() for a, b in itertools.pairwise(offsets)]))
    labels, labels_test = (stored[f"{part}_labels"].astype(np.int64) for part in ("train", "test"))
    source = "CIFAR-10 from lossy JPEG files, not the original pixels"
    return _images(name, pixels[0], labels, pixels[1], labels_test, _CIFAR_CLASSES, source)


def read_own(path: str | os.PathLike[str]) -> Rows:
    """Read your own images from an .npz file.

    It holds uint8 arrays X [N, H, W, C] and X_test [M, H, W, C] from 0 to 255, and integers labels [N] and
    labels_test [M].

    :raises ValueError: naming the file: it is missing, or its arrays are not as above.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"--data must be an .npz file of images, but there is none at {path}; check the path.")
    arrays = read_npz(path)
    array_names = ("X", "labels", "X_test", "labels_test")
    if sorted(arrays) != sorted(array_names):
        raise ValueError(f"{path} must hold {', '.join(array_names)}, got {', '.join(sorted(arrays))}; write it again.")
    X, labels, X_test, labels_test = (arrays[name] for name in array_names)
    # Images of one shape, and a label for each of them.
    for name, part, part_labels in (("X", X, labels), ("X_test", X_test, labels_test)):
        if part.ndim != 4 or part.dtype != np.uint8 or part.shape[1:] != X.shape[1:] or 0 in part.shape:
            raise ValueError(f"{name} in {path} must be uint8 images [N, H, W, C], got {part.dtype} {part.shape}.")
        is_label = part_labels.shape == part.shape[:1] and part_labels.dtype.kind in "iu"
        if not is_label or not 0 <= part_labels.min() <= part_labels.max() < MAX_CLASSES:
            raise ValueError(
                f"{path} must have a label from 0 to {MAX_CLASSES - 1} for each image of {name}, got "
                f"{part_labels.dtype} {part_labels.shape}{f' up to {part_labels.max()}' if is_label else ''}."
            )
    # Labels count from 0, so the largest tells how many classes there are.
    num_classes = 1 + int(max(labels.max(), labels_test.max()))
    names = tuple(str(number) for number in range(num_classes))
    labels = labels.astype(np.int64)
    labels_test = labels_test.astype(np.int64)
    return _images(path.stem, X, labels, X_test, labels_test, names, f"the file {path.name}")


def _images(
    name: str,
    X: NDArray[np.uint8],
    labels: NDArray[np.int64],
    X_test: NDArray[np.uint8],
    labels_test: NDArray[np.int64],
    class_names: tuple[str, ...],
    source: str,
) -> Rows:
    # The checksum is that of all arrays and their shapes.
    digest = hashlib.sha256()
    for array in (X, labels, X_test, labels_test):
        digest.update(f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    parts = {"train": Part(X, labels[:, None]), "test": Part(X_test, labels_test[:, None])}
    shape = (X.shape[1], X.shape[2])
    return Rows(name, parts, "multiclass", source, digest.hexdigest(), shape, class_names=class_names)


def _scaled(X: NDArray[np.uint8], largest: int) -> NDArray[np.float32]:
    return X.astype(np.float32) * np.float32(2.0 / largest) - np.float32(1.0)


def _unpacked(archive: Path, md5: str) -> dict[str, bytes]:
    got = hashlib.md5(archive.read_bytes()).hexdigest()
    if got != md5:
        raise ValueError(f"{archive} must have the MD5 {md5}, got {got}; get it again.")
    contents = {}
    with tarfile.open(archive) as members:
        for file in _CIFAR_FILES:
            member = members.extractfile(f"cifar-10-batches-bin/{file}")
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
    # Planes of colours become the channels of a pixel.
    return np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels
