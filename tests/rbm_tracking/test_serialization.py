"""rbm_tracking.model.serialization: round trip, and files that are refused."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep_base.storage.container import load_container, save_container
from rbm_tracking.model.rbm import RBM, initial_rbm
from rbm_tracking.model.serialization import SavedRBM, load_rbm, save_rbm
from tests.rbm_tracking.estimators import Settings


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


@pytest.mark.parametrize(
    ("header", "arrays"),
    [
        ({"visible": {"family": "softmax", "n_v": 5, "groups": [[[1], [2]]], "is_required": [True]}}, {}),
        ({"visible": [["family"]]}, {}),
        ({"visible": []}, {}),
        ({"visible": {"family": "cauchy"}}, {}),
        ({"visible": {"family": "gaussian", "is_learnt": True}}, {}),  # without precisions
        ({"visible": {"family": "softmax", "n_v": 5, "groups": 3, "is_required": []}}, {}),
        ({"visible": {"family": "softmax", "n_v": 5, "groups": [[0, 9]], "is_required": [True]}}, {}),
        ({"visible": {"family": "softmax", "n_v": 4, "groups": [[0, 1]], "is_required": [True]}}, {}),
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
    saved: SavedRBM, tmp_path: Path, header: Settings, arrays: Settings
) -> None:
    path = tmp_path / "rbm.npz"
    save_rbm(saved, path)
    stored = load_container(path, kind="a saved RBM", versions=(3,))
    everything = {**stored.arrays, **arrays}
    save_container(path, kind="a saved RBM", version=3, header={**stored.header, **header}, arrays=everything)
    with pytest.raises(ValueError, match=r"rbm\.npz cannot be read as a saved RBM .*; check the path") as error:
        load_rbm(path)
    assert "\n" not in str(error.value)
