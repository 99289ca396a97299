"""Readers of text on small files of the same formats; the real ones are checked by their SHA-256."""

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gpflow_deep_runs.data.sets import text

REVIEWS = [
    {"id": "a", "fold": 0, "label": 0, "text": "A dull Film, a dull plot"},
    {"id": "b", "fold": 0, "label": 1, "text": "a fine film; a fine, fine end!"},
    {"id": "c", "fold": 1, "label": 0, "text": "dull end"},
    {"id": "d", "fold": 1, "label": 1, "text": "fine plot x1"},
]
MAILS = [
    {"group": "spam-1", "id": "1", "label": 1, "text": "Subject: buy\nTo: list\n\nbuy pills now"},
    {"group": "easy-ham-1", "id": "2", "label": 0, "text": "Subject: list\n\nmeet now\n\nbuy bread"},
]


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_bytes(lzma.compress("\n".join(map(json.dumps, records)).encode()))
    return path


def test_matrix(tmp_path: Path, rng: np.random.Generator) -> None:
    X = scipy.sparse.random(20, 9, density=0.3, format="csr", random_state=rng)
    X.data = rng.integers(1, 5, X.nnz).astype(np.uint8)
    labels = np.repeat(np.array([-1, 1], np.int8), 10)
    path = tmp_path / "matrix.npz"
    np.savez(path, data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, labels=labels)
    counts = text.read("amazon_apparel_books", [path])
    np.testing.assert_array_equal(counts.parts["all"].X.toarray(), X.toarray())
    np.testing.assert_array_equal(counts.parts["all"].Y, (labels[:, None] + 1) // 2)
    assert counts.parts["all"].X.dtype == np.float32
    assert counts.is_shuffled
    presence = text.read("ng20_elec_med", [path])
    ours = presence.parts["all"]
    assert not np.array_equal(ours.Y, counts.parts["all"].Y)  # rows in another order, as the file is sorted
    got = sorted((bytes(row), int(y)) for row, y in zip(ours.X.toarray(), ours.Y[:, 0], strict=True))
    expected = (X.toarray() > 0).astype(np.float32)
    assert got == sorted((bytes(row), int(y > 0)) for row, y in zip(expected, labels, strict=True))
    assert text.read("ng20_elec_med", [path]).sha256 == presence.sha256 != counts.sha256


def test_documents(tmp_path: Path) -> None:
    """Words of at least two documents (dull, end, film, fine, plot), as 0 and 1."""
    data = text.read("movie_reviews", [write(tmp_path / "movies.jsonl.xz", REVIEWS)])
    X, Y = data.parts["all"]
    rows = {(label, tuple(row)) for label, row in zip(Y[:, 0], X.toarray(), strict=True)}
    assert rows == {(0, (1, 0, 1, 0, 1)), (1, (0, 1, 1, 1, 0)), (0, (1, 1, 0, 0, 0)), (1, (0, 0, 0, 1, 1))}
    assert data.class_names == ("negative", "positive")
    assert "random order" in data.source


def test_headers_of_mails_are_left_out(tmp_path: Path) -> None:
    """Both bodies have "now" and "buy", one header each has "list"."""
    X, Y = text.read("spamassassin", [write(tmp_path / "mails.jsonl.xz", MAILS)]).parts["all"]
    np.testing.assert_array_equal(X.toarray(), np.ones((2, 2)))
    assert sorted(Y[:, 0]) == [0, 1]


def test_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(b"PK truncated")
    with pytest.raises(ValueError, match=r"a.npz: the file of counts cannot be read .*get it again"):
        text.read("reuters_i6", [path])
    np.savez(path, data=np.ones(3))
    with pytest.raises(ValueError, match=r"a.npz: the file of counts cannot be read \('indices"):
        text.read("reuters_i6", [path])
    path = write(tmp_path / "a.jsonl.xz", REVIEWS)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"a.jsonl.xz: the file of documents cannot be read"):
        text.read("movie_reviews", [path])
    with pytest.raises(ValueError, match=r"a.jsonl.xz: the file of documents cannot be read \('text'\)"):
        text.read("movie_reviews", [write(path, [{"id": "a", "label": 1}])])
