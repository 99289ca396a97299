"""`experiment.data.sets.text` on small files of the same formats; the real ones are checked by their SHA-256."""

import dataclasses
import hashlib
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from experiment.data.sets import text as text_data

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


def put(monkeypatch: pytest.MonkeyPatch, path: Path, name: str, content: bytes) -> None:
    """Write `content` as the file of a task, and make it the expected one."""
    task = text_data._TASKS[name]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    changed = dataclasses.replace(task, sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(text_data._TASKS, name, changed)


def jsonl(records: list[dict[str, Any]]) -> bytes:
    return lzma.compress("\n".join(map(json.dumps, records)).encode())


def test_matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    X = scipy.sparse.random(20, 9, density=0.3, format="csr", random_state=rng)
    X.data = rng.integers(1, 5, X.nnz).astype(np.uint8)
    labels = np.repeat(np.array([-1, 1], np.int8), 10)
    path = tmp_path / "matrix.npz"
    np.savez(path, data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, labels=labels)
    for name in ("amazon_apparel_books", "ng20_elec_med"):
        task = text_data._TASKS[name]
        put(monkeypatch, tmp_path / "text" / task.file, name, path.read_bytes())
    counts = text_data.load("amazon_apparel_books", tmp_path)
    np.testing.assert_array_equal(counts.X.toarray(), X.toarray())
    np.testing.assert_array_equal(counts.labels, labels)
    assert counts.X.dtype == np.float32
    presence = text_data.load("ng20_elec_med", tmp_path / "text")
    assert not np.array_equal(presence.labels, labels)  # rows in another order, as the file is sorted
    assert sorted(map(bytes, presence.X.toarray())) == sorted(map(bytes, (X.toarray() > 0).astype(np.float32)))
    again = text_data.load("ng20_elec_med", tmp_path / "text" / "ng20_elec_med.npz")
    assert again.sha256 == presence.sha256 != counts.sha256


def test_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of at least two documents (dull, end, film, fine, plot), as 0 and 1."""
    put(monkeypatch, tmp_path / "movie_reviews_polarity2.jsonl.xz", "movie_reviews", jsonl(REVIEWS))
    dataset = text_data.load("movie_reviews", tmp_path)
    rows = {(label, tuple(row)) for label, row in zip(dataset.labels, dataset.X.toarray(), strict=True)}
    assert rows == {(-1, (1, 0, 1, 0, 1)), (1, (0, 1, 1, 1, 0)), (-1, (1, 1, 0, 0, 0)), (1, (0, 0, 0, 1, 1))}
    assert dataset.class_names == ("negative", "positive")
    assert "random order" in dataset.source


def test_headers_of_mails_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both bodies have "now" and "buy", one header each has "list"."""
    put(monkeypatch, tmp_path / "spamassassin_raw.jsonl.xz", "spamassassin", jsonl(MAILS))
    dataset = text_data.load("spamassassin", tmp_path)
    np.testing.assert_array_equal(dataset.X.toarray(), np.ones((2, 2)))
    assert sorted(dataset.labels) == [-1, 1]


def test_missing_and_damaged_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"needs reuters_i6.npz, and no --data_dir was given. It holds the matrix of"):
        text_data.load("reuters_i6", None)
    with pytest.raises(ValueError, match=r"needs reuters_i6.npz, and it was not found in"):
        text_data.load("reuters_i6", tmp_path)
    with pytest.raises(ValueError, match=r"there is nothing at .*nowhere"):
        text_data.load("reuters_i6", tmp_path / "nowhere")
    (tmp_path / "reuters_i6.npz").write_bytes(b"PK truncated")
    with pytest.raises(ValueError, match=r"reuters_i6.npz must have the SHA-256 41bda8.*, got .*get it again"):
        text_data.load("reuters_i6", tmp_path)
    put(monkeypatch, tmp_path / "reuters_i6.npz", "reuters_i6", b"PK truncated")
    with pytest.raises(ValueError, match="the file of counts cannot be read"):
        text_data.load("reuters_i6", tmp_path)
    put(monkeypatch, tmp_path / "movie_reviews_polarity2.jsonl.xz", "movie_reviews", jsonl(REVIEWS)[:-20])
    with pytest.raises(ValueError, match="the file of documents cannot be read"):
        text_data.load("movie_reviews", tmp_path)
    put(monkeypatch, tmp_path / "movie_reviews_polarity2.jsonl.xz", "movie_reviews", jsonl([{"id": "a", "label": 1}]))
    with pytest.raises(ValueError, match="the file of documents cannot be read"):
        text_data.load("movie_reviews", tmp_path)
    with pytest.raises(ValueError, match=r"the text task must be one of amazon_apparel_books, .*got 'news'"):
        text_data.load("news", tmp_path)


def test_folds_partition_the_rows() -> None:
    folds = text_data.folds(19, 8)
    assert len(folds) == 8
    np.testing.assert_array_equal(np.concatenate([test for _, test in folds]), np.arange(19))
    for train, test in folds:
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(19))
        assert np.all(np.diff(test) == 1)
        assert len(test) in (2, 3)
    for num_folds in (1, 20):
        with pytest.raises(ValueError, match=f"must be from 2 to 19, the number of rows, got {num_folds}"):
            text_data.folds(19, num_folds)


def test_descriptions_name_file_and_checksum() -> None:
    for name in text_data.names():
        text = text_data.describe(name)
        assert text.startswith(f"{name}: ")
        assert "File: " in text
        assert len(text.split("SHA-256 ")[1].strip(".\n")) == 64
