"""`gpflow_deep_runs.data.files.documents`: JSON lines as rows, and what is refused."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gpflow_deep_runs.data.files.documents import TextSpec, Vectoriser, is_documents, read_documents, read_new
from gpflow_deep_runs.data.table.spec import TableSpec

TEXTS = ["The cat sat", "the dog sat down", "A cat, a dog!", "birds fly"]


def write(path: Path, records: list[Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, records)) + "\n\n", encoding="utf-8")
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(
        tmp_path / "pets.jsonl", [{"text": t, "label": n} for t, n in zip(TEXTS, ["x", "y", "x", "y"], strict=True)]
    )


def test_presence_of_words_of_two_documents(path: Path) -> None:
    data = read_documents(path)
    X, Y = data.parts["all"]
    assert data.feature_names == ("cat", "dog", "sat", "the")
    assert (data.name, data.task, data.class_names, X.dtype) == ("pets", "binary", ("x", "y"), np.float32)
    np.testing.assert_array_equal(X.toarray(), [[1, 0, 1, 1], [0, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(Y, [[0], [1], [0], [1]])
    assert data.sha256 != read_documents(path, TextSpec(min_documents=1)).sha256


def test_options(path: Path) -> None:
    more = read_documents(path, TextSpec(ngrams=2, min_documents=1))
    assert {"cat sat", "birds fly"} <= set(more.feature_names)
    assert len(read_documents(path, TextSpec(min_documents=1, max_words=3)).feature_names) == 3
    write(path, [{"text": "a a bb bb", "label": 1}, {"text": "bb", "label": 2}, {"text": "bb c", "label": 1}])
    np.testing.assert_array_equal(read_documents(path, TextSpec(counts=True)).parts["all"].X.toarray(), [[2], [1], [1]])


def test_other_keys_and_packed_files(path: Path) -> None:
    lines = [{"body": text, "kind": n} for n, text in enumerate([*TEXTS, *TEXTS])]
    for line in lines:
        line["kind"] = [10, 9.0, True, -1.5][line["kind"] % 4]  # type: ignore[operator, call-overload]
    packed = path.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    data = read_documents(packed, TextSpec(), TableSpec(target=("kind",), features=("body",)))
    assert data.class_names == ("-1.5", "True", "9", "10")  # in the order of numbers
    assert data.task == "multiclass"


def test_new_documents_have_the_same_columns(path: Path) -> None:
    data = read_documents(path)
    words = Vectoriser.from_json(json.loads(json.dumps(Vectoriser(data.feature_names).to_json())))
    X, numbers = read_new(path, words, 4, data.class_names)
    assert numbers is not None
    assert (X != data.parts["all"].X).nnz == 0
    np.testing.assert_array_equal(numbers, [0, 1, 0, 1])
    write(path, [{"text": "a new dog", "label": None}, {"text": "unknown words"}])
    X, numbers = read_new(path, words, 4, data.class_names)
    assert numbers is None
    np.testing.assert_array_equal(X.toarray(), [[0, 1, 0, 0], [0, 0, 0, 0]])
    write(path, [{"text": "a new dog", "label": "z"}])
    with pytest.raises(ValueError, match="must be those of the training data, x, y, got 'z'; leave labels out"):
        read_new(path, words, 4, data.class_names)
    with pytest.raises(ValueError, match=r"trained on a sparse matrix, so --data must be one \(.npz\), got pets.jsonl"):
        read_new(path, None, 4, data.class_names)
    with pytest.raises(ValueError, match="there is none at"):
        read_new(path.with_name("none.jsonl"), words, 4, data.class_names)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"text": "a", "label": 1}\n{"text"', "line 2 is no JSON in UTF-8"),
        (b'{"text": "\xff", "label": 1}', "line 1 is no JSON in UTF-8"),
        (b"[1]", "line 1 is no object with a text and a label"),
        (b"[" * 100_000, "line 1 is no JSON in UTF-8"),
        (b'{"body": "a", "label": 1}', "line 1 of .* must have a text under 'text', got NoneType; name its key by"),
        (b'{"text": 3, "label": 1}', "must have a text under 'text', got int"),
        (b'{"text": "a", "label": [1]}', r"must have a text or a number under 'label', got \[1\]"),
        (b'{"text": "a", "label": NaN}', "must have a text or a number under 'label', got nan"),
        (b'\n{"text": "aa"}', "must have 'label' in every line, but line 2 has none; name its key by --target"),
        (b"\n\n", "is empty"),
        (b'{"text": "aa", "label": 1}\n' * 4, "labels of at least two classes, .* got 1 classes in 4 rows"),
        (b'{"text": "aa", "label": 1}\n{"text": "?", "label": 2}', "give a smaller --min_documents"),
    ],
)
def test_what_is_refused(content: bytes, message: str, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_documents(path)


def test_flags_that_do_not_fit(path: Path) -> None:
    both: list[tuple[dict[str, Any], str]] = [
        ({"ngrams": 0}, "--ngrams must be"),
        ({"max_words": 0}, "--max_words must"),
    ]
    for options, message in both:
        with pytest.raises(ValueError, match=message):
            TextSpec(**options)
    with pytest.raises(ValueError, match="--rare is for tables"):
        read_documents(path, TextSpec(), TableSpec(rare=3))
    with pytest.raises(ValueError, match="--target must name one key of the lines, got a, b"):
        read_documents(path, TextSpec(), TableSpec(target=("a", "b")))
    scipy.sparse.save_npz(path.with_suffix(".npz"), scipy.sparse.eye(3, format="csr"))
    with pytest.raises(ValueError, match="--ngrams is for documents"):
        read_documents(path.with_suffix(".npz"), TextSpec(ngrams=2))
    with pytest.raises(ValueError, match=r"so --data must be \.jsonl"):
        read_new(path.with_suffix(".npz"), Vectoriser(("a",)), 1, ("x", "y"))
    assert is_documents(path)
    assert is_documents(path.with_suffix(".npz"))
    assert not is_documents(path.with_suffix(".csv"))


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"words": [], "ngrams": 1, "counts": False},
        {"words": ["a", "a"], "ngrams": 1, "counts": False},
        {"words": ["a", 1], "ngrams": 1, "counts": True},
        {"words": ["a"], "ngrams": 10**9, "counts": True},
        {"words": 3, "ngrams": 1, "counts": True},
    ],
)
def test_damaged_words(stored: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="the stored words are damaged"):
        Vectoriser.from_json(stored)
