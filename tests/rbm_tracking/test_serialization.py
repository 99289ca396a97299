"""rbm_tracking.serialization: round trip, and files that are refused."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from rbm_tracking.rbm import RBM, initial_rbm
from rbm_tracking.serialization import SavedRBM, load_rbm, save_rbm


@pytest.fixture
def saved(seed: tf.Tensor) -> SavedRBM:
    return SavedRBM(initial_rbm(3, n_v=5, seed=seed), 4.5, 0.25, np.array([1.0, 0.5, 0.0]), 700)


def test_what_is_saved_comes_back(saved: SavedRBM, tmp_path: Path) -> None:
    save_rbm(tmp_path / "new" / "rbm.npz", saved)
    loaded = load_rbm(tmp_path / "new" / "rbm.npz")
    for a, b in zip(tf.nest.flatten(saved), tf.nest.flatten(loaded), strict=True):
        np.testing.assert_array_equal(a, b)
    assert loaded.rbm.W.dtype == tf.float32
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["rbm.npz"]


def test_a_failed_write_leaves_the_old_file(saved: SavedRBM, tmp_path: Path) -> None:
    save_rbm(tmp_path / "rbm.npz", saved)
    broken = saved._replace(rbm=RBM(saved.rbm.W * np.nan, saved.rbm.b, saved.rbm.c))
    with pytest.raises(ValueError, match="the RBM's W must be finite"):
        save_rbm(tmp_path / "rbm.npz", broken)
    assert load_rbm(tmp_path / "rbm.npz").step == 700


def test_other_files_are_refused(saved: SavedRBM, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read as a saved RBM"):
        load_rbm(tmp_path / "missing.npz")
    save_rbm(tmp_path / "rbm.npz", saved)
    content = (tmp_path / "rbm.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"cut\.npz cannot be read as a saved RBM"):
        load_rbm(tmp_path / "cut.npz")
    np.savez(tmp_path / "other.npz", W=np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"other\.npz is not an RBM saved by save_rbm"):
        load_rbm(tmp_path / "other.npz")
