"""`gpflow_deep_runs.data.files.inputs`: new rows as those of training, whatever these were."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from gpflow_deep_runs.data import views
from gpflow_deep_runs.data.files import inputs
from gpflow_deep_runs.data.files.documents import TextSpec
from gpflow_deep_runs.data.table.spec import TableSpec


def test_a_table(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,kind\n1,x,no\n2,y,yes\n3,x,yes\n")
    source = views.Source(data=str(tmp_path / "t.csv"))
    data = views.load(source, "supervised", table=TableSpec(target=("kind",)), split=None)
    inputs.keep(tmp_path, data)
    X, numbers = inputs.read(tmp_path, str(tmp_path / "t.csv"), num_columns=3, class_names=data.class_names)
    assert numbers is not None
    np.testing.assert_array_equal(X, data.parts["all"].X)
    np.testing.assert_array_equal(numbers, [0, 1, 1])
    with pytest.raises(ValueError, match="--target is for documents and sparse matrices"):
        inputs.read(tmp_path, "t.csv", num_columns=3, class_names=(), keys=TableSpec(target=("kind",)))


def test_documents(tmp_path: Path) -> None:
    lines = [{"text": "aa bb", "label": "x"}, {"text": "bb cc cc", "label": "y"}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    texts, source = TextSpec(min_documents=1, counts=True), views.Source(data=str(tmp_path / "t.jsonl"))
    data = views.load(source, "text", texts=texts)
    inputs.keep(tmp_path, data, texts)
    X, numbers = inputs.read(tmp_path, str(tmp_path / "t.jsonl"), num_columns=3, class_names=data.class_names)
    assert numbers is not None
    np.testing.assert_array_equal(X.toarray(), [[1, 1, 0], [0, 1, 2]])
    np.testing.assert_array_equal(numbers, [0, 1])


def test_a_sparse_matrix(tmp_path: Path) -> None:
    scipy.sparse.save_npz(tmp_path / "X.npz", scipy.sparse.eye(3, format="csr"))
    X, numbers = inputs.read(tmp_path, str(tmp_path / "X.npz"), num_columns=3, class_names=("x", "y"))
    np.testing.assert_array_equal(X.toarray(), np.eye(3))
    assert numbers is None
