"""rbm_tracking.model.serialization: round trip, and files that are refused."""

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep_base.container import load_container, save_container
from rbm_tracking.model.rbm import RBM, initial_rbm
from rbm_tracking.model.serialization import SavedRBM, load_rbm, save_rbm


@pytest.fixture
def saved(seed: tf.Tensor) -> SavedRBM:
    return SavedRBM(initial_rbm(3, n_v=5, seed=seed), 4.5, 0.25, np.array([1.0, 0.5, 0.0]), 700)


def test_what_is_saved_comes_back(saved: SavedRBM, tmp_path: Path) -> None:
    save_rbm(saved, tmp_path / "new" / "rbm.npz")
    loaded = load_rbm(tmp_path / "new" / "rbm.npz")
    for a, b in zip(tf.nest.flatten(saved), tf.nest.flatten(loaded), strict=True):
        np.testing.assert_array_equal(a, b)
    assert loaded.rbm.W.dtype == tf.float32
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["rbm.npz"]


def test_a_failed_write_leaves_the_old_file(saved: SavedRBM, tmp_path: Path) -> None:
    save_rbm(saved, tmp_path / "rbm.npz")
    broken = saved._replace(rbm=RBM(saved.rbm.W * np.nan, saved.rbm.b, saved.rbm.c))
    with pytest.raises(ValueError, match="the RBM's W must be finite"):
        save_rbm(broken, tmp_path / "rbm.npz")
    assert load_rbm(tmp_path / "rbm.npz").step == 700


def test_other_files_are_refused(saved: SavedRBM, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read as a saved RBM"):
        load_rbm(tmp_path / "missing.npz")
    save_rbm(saved, tmp_path / "rbm.npz")
    content = (tmp_path / "rbm.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"cut\.npz cannot be read as a saved RBM"):
        load_rbm(tmp_path / "cut.npz")
    np.savez(tmp_path / "other.npz", W=np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"other\.npz cannot be read as a saved RBM"):
        load_rbm(tmp_path / "other.npz")


def test_a_file_that_unpacks_to_gigabytes_is_refused_before(saved: SavedRBM, tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    start = io.BytesIO()
    np.lib.format.write_array_header_1_0(start, {"descr": "<f4", "fortran_order": False, "shape": (60_000_000,)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("W.npy", "w", force_zip64=True) as w:
        w.write(start.getvalue())
        for _ in range(240):
            w.write(bytes(1_000_000))
    assert path.stat().st_size < 10**6
    with pytest.raises(ValueError, match=r"bomb\.npz cannot be read as a saved RBM"):
        load_rbm(path)


def test_no_damaged_byte_ends_in_another_error(saved: SavedRBM, tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "rbm.npz"
    save_rbm(saved, path)
    content = path.read_bytes()
    messages = []
    for _ in range(100):
        mutant = bytearray(content)
        for place in rng.integers(0, len(content), 3):
            mutant[place] = rng.integers(256)
        path.write_bytes(mutant)
        try:
            load_rbm(path)
        except ValueError as error:
            messages.append(str(error))
    assert len(messages) > 90  # the rest hit bytes that mean nothing, such as dates
    assert all("cannot be read as a saved RBM" in message and "\n" not in message for message in messages)


@pytest.mark.parametrize(
    ("header", "arrays"),
    [
        ({"visible": {"family": "softmax", "n_v": 5, "groups": [[[1], [2]]], "is_required": [True]}}, {}),
        ({"visible": [["family"]]}, {}),
        ({"visible": {"family": "softmax", "n_v": "5", "groups": [], "is_required": []}}, {}),
        ({"n_h": 10**9}, {}),
        ({"n_v": -1}, {}),
        ({"num_temps": 2.5}, {}),
        ({}, {"step": np.arange(3)}),
        ({}, {"step": np.array("700")}),
        ({}, {"W": np.zeros((3, 5), np.complex64)}),
        ({}, {"b": np.zeros(5, np.float64)}),
        ({}, {"W": np.full((3, 5), np.nan, np.float32)}),
        ({}, {"more": np.zeros(3)}),
    ],
)
def test_headers_and_arrays_that_make_no_sense_are_refused_in_one_line(
    saved: SavedRBM, tmp_path: Path, header: dict[str, Any], arrays: dict[str, Any]
) -> None:
    path = tmp_path / "rbm.npz"
    save_rbm(saved, path)
    stored = load_container(path, kind="a saved RBM", versions=(3,))
    everything = {**stored.arrays, **arrays}
    save_container(path, kind="a saved RBM", version=3, header={**stored.header, **header}, arrays=everything)
    with pytest.raises(ValueError, match=r"rbm\.npz cannot be read as a saved RBM .*; check the path") as error:
        load_rbm(path)
    assert "\n" not in str(error.value)


def test_a_saved_file_is_on_the_disk(saved: SavedRBM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synchronised: list[int] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        synchronised.append(descriptor)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    save_rbm(saved, tmp_path / "rbm.npz")
    assert len(synchronised) == 2  # the file, then its folder
