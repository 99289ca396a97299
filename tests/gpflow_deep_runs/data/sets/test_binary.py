import gzip
import hashlib
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy import io

from gpflow_deep_runs.data.density.bits import constant_columns
from gpflow_deep_runs.data.rows import Rows
from gpflow_deep_runs.data.sets import binary, catalogue
from gpflow_deep_runs.data.sets.binary import Packed
from tests.gpflow_deep_runs.data.sets.formats import idx, packed

_DATA = os.environ.get("GPFLOW_DEEP_DATA")
_needs_data = pytest.mark.skipif(not _DATA, reason="GPFLOW_DEEP_DATA does not name a folder with the real files")

KNOWN = Packed((20, 5, 15), 11, None, "a toy")


@pytest.fixture
def rows(rng: np.random.Generator) -> np.ndarray:
    return (rng.random((40, 11)) < 0.5).astype(np.uint8)


def together(data: Rows) -> np.ndarray:
    return np.concatenate([part.X for part in data.parts.values()])


def classes(data: Rows) -> np.ndarray:
    return np.concatenate([part.Y for part in data.parts.values()])[:, 0]


def test_packed_copy_is_found_in_each_place_and_checked(rows: np.ndarray, tmp_path: Path) -> None:
    """Eleven columns: the last byte of a row is not full. Found as file, in its folder and in the folder above."""
    path = tmp_path / "binary" / "adult.npz"
    sha256 = packed(path, train=rows[:20], valid=rows[20:25], test=rows[25:])
    adult = catalogue.get("adult")
    entry = replace(
        adult,
        files=(adult.files[0]._replace(sha256=sha256),),
        views={"binary": partial(binary.read_packed_set, known=KNOWN)},
    )
    for place in (tmp_path, path.parent, path):
        np.testing.assert_array_equal(together(entry.read("binary", place)), rows)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"must have the SHA-256 .* damaged or another version"):
        entry.read("binary", tmp_path)


@pytest.mark.parametrize("separator", [",", " ", ", "])
def test_text_files(rows: np.ndarray, tmp_path: Path, separator: str) -> None:
    for part, piece in zip(("train", "valid", "test"), np.split(rows, [20, 25]), strict=True):
        np.savetxt(tmp_path / f"nips.{part}.data", piece, fmt="%d", delimiter=separator)
    paths = [tmp_path / "nips.train.data"]
    data = binary.read_packed_set("nips", paths, known=KNOWN)
    np.testing.assert_array_equal(together(data), rows)
    assert data.sizes == {"train": 20, "valid": 5, "test": 15}
    with pytest.raises(ValueError, match=r"must have \(400, 100, 1240\) rows of 500 columns, got \[\(20, 11\)"):
        catalogue.read("nips", "binary", tmp_path)
    lines = (tmp_path / "nips.test.data").read_text().splitlines()
    (tmp_path / "nips.test.data").write_text("\n".join(lines[:-1]))
    with pytest.raises(ValueError, match=r"must have \(20, 5, 15\) rows of 11 columns, got .* not complete"):
        binary.read_packed_set("nips", paths, known=KNOWN)
    for text, message in [
        (lines[0].replace("1", "2").replace("0", "2"), "must hold 0 and 1 only"),
        ("0,1\n0,1,1\n1\n", "must hold 0 and 1 only, in lines of equal length"),
        ("0,1,0\n0,1\n", "must hold 0 and 1 in lines of equal length"),
        ("", "must hold 0 and 1 in lines of equal length"),
    ]:
        (tmp_path / "nips.test.data").write_text(text)
        with pytest.raises(ValueError, match=message):
            binary.read_packed_set("nips", paths)
    (tmp_path / "nips.test.data").unlink()
    with pytest.raises(ValueError, match="is missing; the train, valid and test files belong into one folder"):
        binary.read_packed_set("nips", paths)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnist_is_thresholded_above_half_or_left_grey(tmp_path: Path, rng: np.random.Generator, suffix: str) -> None:
    images, labels = rng.integers(0, 256, (9, 28, 28), np.uint8), rng.integers(0, 10, 9).astype(np.uint8)
    images[0, 0, :4] = 127, 128, 0, 255
    paths = []
    for number, array in enumerate((images[:7], labels[:7], images[7:], labels[7:])):
        paths.append(tmp_path / f"{number}{suffix}")
        paths[-1].write_bytes(gzip.compress(idx(array)) if suffix else idx(array))
    bits = binary.read_mnist("mnist", paths, counts=(4, 3))
    grey = binary.read_grey_mnist("mnist", paths, counts=(4, 3))
    assert bits.sizes == grey.sizes == {"train": 4, "valid": 3, "test": 2}
    assert bits.image_shape == grey.image_shape == (28, 28)
    np.testing.assert_array_equal(bits.train.X[0, :4], [0, 1, 0, 1])
    np.testing.assert_array_equal(together(bits), images.reshape(9, -1) > 127)
    np.testing.assert_array_equal(together(grey), (images.reshape(9, -1) / 255).astype(np.float32))
    np.testing.assert_array_equal(classes(bits), labels)
    assert grey.name == "mnist intensities"


def test_checksum_of_intensities_is_that_of_all_rows() -> None:
    grey = catalogue.read("digits", "grey")
    pixels = np.ascontiguousarray(together(grey) * 16)
    assert pixels.dtype == np.float32
    assert grey.sha256 == hashlib.sha256(pixels.tobytes()).hexdigest()


@pytest.mark.parametrize("kind", ["npz", "mat"])
def test_silhouettes_are_turned_upright(tmp_path: Path, rng: np.random.Generator, kind: str) -> None:
    counts = {"train": 4100, "valid": 2264, "test": 2307}
    parts: dict[str, np.ndarray] = {
        part: (rng.random((count, 784)) < 0.5).astype(np.uint8) for part, count in counts.items()
    }
    labels: dict[str, np.ndarray] = {part: rng.integers(1, 102, size=count) for part, count in counts.items()}
    path = tmp_path / f"silhouettes.{kind}"
    if kind == "npz":
        packed(path, **parts, **{f"{part}_labels": values for part, values in labels.items()})
    else:
        keys = {"train": "train", "valid": "val", "test": "test"}
        arrays = {f"{keys[part]}_data": rows for part, rows in parts.items()}
        arrays |= {f"{keys[part]}_labels": values[None] for part, values in labels.items()}
        io.savemat(path, arrays)
    data = binary.read_caltech("caltech_silhouettes", [path])
    image = data.valid.X[3].reshape(28, 28)
    np.testing.assert_array_equal(image, parts["valid"][3].reshape(28, 28, order="F"))
    np.testing.assert_array_equal(data.test.Y[:, 0], labels["test"])


def test_damaged_silhouettes(tmp_path: Path) -> None:
    path = tmp_path / "caltech101_silhouettes_28_split1.mat"
    path.write_bytes(b"MATLAB 5.0" * 20)
    with pytest.raises(ValueError, match="is not the expected MATLAB file"):
        catalogue.read("caltech_silhouettes", "binary", path)
    arrays = {f"{key}_{what}": np.zeros((3, 784)) for key in ("train", "val", "test") for what in ("data", "labels")}
    io.savemat(path, arrays)
    with pytest.raises(ValueError, match=r"must hold 4100/2264/2307 rows of 784 pixels, got \[\(3, 784\)"):
        catalogue.read("caltech_silhouettes", "binary", path)


@pytest.mark.parametrize("kind", ["packed", "text"])
def test_web_has_the_sizes_of_the_paper(tmp_path: Path, rng: np.random.Generator, kind: str) -> None:
    pool, labels = (rng.random((49_749, 300)) < 0.04).astype(np.uint8), rng.integers(2, size=49_749)
    path = tmp_path / ("web_w7a_pool.npz" if kind == "packed" else "w7a")
    if kind == "packed":
        more = {"train_labels": labels[:24_692], "test_labels": labels[24_692:]}
        packed(path, train=pool[:24_692], test=pool[24_692:], **more)
    else:
        for file, piece, signs in zip(
            ("w7a", "w7a.t"), np.split(pool, [24_692]), np.split(2 * labels - 1, [24_692]), strict=True
        ):
            lines = [
                f"{sign} {' '.join(f'{i + 1}:1' for i in np.flatnonzero(row))}"
                for row, sign in zip(piece, signs, strict=True)
            ]
            (tmp_path / file).write_text("\n".join(lines) + "\n")
    data = binary.read_web("web", [path])
    assert data.sizes == {"train": 14_000, "valid": 3188, "test": 32_561}
    got, expected = np.column_stack([together(data), classes(data)]), np.column_stack([pool, labels])
    assert sorted(map(bytes, got.astype(np.uint8))) == sorted(map(bytes, expected.astype(np.uint8)))
    assert "not its parts" in data.source


@pytest.mark.parametrize("kind", ["packed", "text"])
def test_rcv1_is_the_validation_part_alone(tmp_path: Path, rng: np.random.Generator, kind: str) -> None:
    rows = (rng.random((10_000, 150)) < 0.2).astype(np.uint8)
    path = tmp_path / ("rcv1.npz" if kind == "packed" else "rcv1.valid.data")
    if kind == "packed":
        packed(path, valid=rows)
    else:
        np.savetxt(path, rows, fmt="%d", delimiter=",")
    data = binary.read_rcv1("rcv1", [path])
    assert data.sizes == {"train": 8000, "valid": 1000, "test": 1000}
    assert sorted(map(bytes, together(data))) == sorted(map(bytes, rows))
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
    data = catalogue.read(name, "binary", _DATA)
    mean = (data.train.X.sum(axis=0) + 1) / (len(data.train.X) + 2)
    for part, expected in ((data.valid.X, valid), (data.test.X, test)):
        log_likelihood = (part @ np.log(mean) + (1 - part) @ np.log1p(-mean)).mean()
        assert log_likelihood == pytest.approx(expected, abs=6e-4)


@_needs_data
@pytest.mark.parametrize("name", ["mnist", "web", "rcv1"])
def test_other_real_files(name: str) -> None:
    X = catalogue.read(name, "binary", _DATA).train.X
    assert 0.02 < X.mean() < 0.2
    assert len(constant_columns(X)) < 0.2 * X.shape[1]
