"""`gpflow_deep_runs.data.files.sparse`: matrices as SciPy writes them, and files that only look like one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gpflow_deep_runs.data import views
from gpflow_deep_runs.data.files.documents import TextSpec, read_documents, read_new
from gpflow_deep_runs.data.files.sparse import read_matrix
from gpflow_deep_runs.data.table.spec import TableSpec


@pytest.fixture
def X(rng: np.random.Generator) -> scipy.sparse.csr_matrix:
    return scipy.sparse.random(20, 9, 0.3, "csr", dtype=np.float32, random_state=rng)


def parts(X: scipy.sparse.csr_matrix) -> dict[str, Any]:
    return {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape), "format": b"csr"}


@pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, scipy.sparse.csr_array])
def test_what_scipy_writes(kind: Any, X: scipy.sparse.csr_matrix, tmp_path: Path) -> None:
    """With labels in a file beside it, in each of its forms."""
    scipy.sparse.save_npz(tmp_path / "X.npz", kind(X))
    names = np.array(["ham", "spam"] * 10)
    np.save(tmp_path / "y.npy", names)
    (tmp_path / "y.txt").write_text("\n".join(names) + "\n")
    for file in ("y.npy", "y.txt"):
        data = read_documents(tmp_path / "X.npz", TextSpec(labels=str(tmp_path / file)))
        assert (data.parts["all"].X != X).nnz == 0
        assert (data.class_names, data.task) == (("ham", "spam"), "binary")
        np.testing.assert_array_equal(data.parts["all"].Y[:, 0], [0, 1] * 10)
    loaded = views.load(views.Source(data=str(tmp_path / "X.npz")), "text", texts=TextSpec(labels=str(tmp_path / file)))
    assert loaded.sha256 == data.sha256
    found, numbers = read_new(tmp_path / "X.npz", None, 9, data.class_names)
    assert (found != X).nnz == 0
    assert numbers is None
    with pytest.raises(ValueError, match="must have 8 columns as the training data, got 9"):
        read_new(tmp_path / "X.npz", None, 8, data.class_names)


@pytest.mark.parametrize("key", ["labels", "label", "y", "Y", "kind"])
def test_labels_in_the_file(key: str, X: scipy.sparse.csr_matrix, tmp_path: Path) -> None:
    np.savez(tmp_path / "X.npz", **parts(X), **{key: np.array([1, -1] * 10)})
    table = TableSpec(target=("kind",)) if key == "kind" else TableSpec()
    data = read_documents(tmp_path / "X.npz", table=table)
    assert data.class_names == ("-1", "1")
    np.testing.assert_array_equal(data.parts["all"].Y[:, 0], [1, 0] * 10)
    for labels in (np.array([1, -1] * 10), np.array([[1.0], [-1.0]] * 10), np.array([b"1", b"-1"] * 10)):
        np.savez(tmp_path / "X.npz", **parts(X), **{key: labels})
        numbers = read_new(tmp_path / "X.npz", None, 9, data.class_names, table)[1]
        assert numbers is not None
        np.testing.assert_array_equal(numbers, [1, 0] * 10)
    np.savez(tmp_path / "X.npz", **parts(X), **{key: 1})
    with pytest.raises(ValueError, match=f"{key} in .* must be a label for each of 20 rows"):
        read_new(tmp_path / "X.npz", None, 9, data.class_names, table)


def test_entries_of_one_place_are_added(tmp_path: Path) -> None:
    changed: dict[str, Any] = {
        "data": np.ones(3),
        "indices": np.array([1, 1, 0]),
        "indptr": np.array([0, 2, 3]),
        "shape": [2, 3],
    }
    np.savez(tmp_path / "X.npz", **changed)
    np.testing.assert_array_equal(read_matrix(tmp_path / "X.npz")[0].toarray(), [[0, 2, 0], [1, 0, 0]])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"indices": np.full(54, 9)}, "indices must be columns from 0 to 8"),
        ({"indices": np.full(54, -1)}, "indices must be columns from 0 to 8"),
        ({"indices": np.zeros(53, int)}, "one for each entry"),
        ({"indices": np.zeros(54)}, "indices and indptr whole numbers"),
        ({"indptr": np.zeros(21, int)}, "indptr must rise from 0 to the number of entries"),
        ({"indptr": np.zeros(3, int)}, "indptr must rise from 0"),
        ({"indptr": np.r_[0, 99, np.full(19, 54)]}, "indptr must rise from 0"),
        ({"data": np.full(54, np.nan)}, "its entries must be finite"),
        ({"data": np.full(54, 1e300)}, "its entries must be finite"),
        ({"data": np.full(54, "a")}, "data must be numbers"),
        ({"data": np.ones((54, 1))}, "must be vectors"),
        ({"shape": np.array([20, 2**40])}, "1 to 4194304 columns, got 20, 1099511627776"),
        ({"shape": np.array([20])}, "shape two numbers"),
        ({"format": b"csc"}, r"of the format b'csc'; save matrix.tocsr\(\)"),
        ({"data": np.array([{}] * 54)}, r"cannot be read as an \.npz file of plain arrays"),
    ],
)
def test_parts_that_do_not_fit(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    X = scipy.sparse.random(20, 9, 0.3, "csr", random_state=0)
    np.savez(tmp_path / "X.npz", **(parts(X) | changed))
    with pytest.raises(ValueError, match=f"no readable sparse matrix .*{message}"):
        read_matrix(tmp_path / "X.npz")


def test_labels_that_do_not_fit(X: scipy.sparse.csr_matrix, tmp_path: Path) -> None:
    scipy.sparse.save_npz(tmp_path / "X.npz", X)
    with pytest.raises(ValueError, match=r"must hold labels beside its matrix, .* give a file .* by --labels"):
        read_documents(tmp_path / "X.npz")
    for labels, message in ((np.zeros(3), "a label for each of 20 rows"), (np.full(20, np.nan), "got NaN or infinity")):
        np.save(tmp_path / "y.npy", labels)
        with pytest.raises(ValueError, match=message):
            read_documents(tmp_path / "X.npz", TextSpec(labels=str(tmp_path / "y.npy")))
    np.save(tmp_path / "y.npy", np.array([{}] * 20), allow_pickle=True)
    for file in ("y.npy", "none.txt"):
        with pytest.raises(ValueError, match=r"cannot be read .*; give \.npy, or one label a line"):
            read_documents(tmp_path / "X.npz", TextSpec(labels=str(tmp_path / file)))
