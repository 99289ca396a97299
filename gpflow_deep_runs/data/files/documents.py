"""A user's own documents and sparse matrices as rows for classification.

    data = read_documents("reviews.jsonl", TextSpec(), TableSpec())      # lines of {"text": ..., "label": ...}
    data = read_documents("counts.npz", TextSpec(labels="labels.txt"))   # of scipy.sparse.save_npz
    words = Vectoriser(data.feature_names, TextSpec())
    X, labels = read_new("new.jsonl", words, data.class_names)           # labels is None where there are none

X is a float32 CSR matrix: of documents, presence (or counts) of words in them. The words are those of all documents of
the file; labels are not looked at for them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from gpflow_deep_runs.data.files.packed import COMPRESSIONS, UNPACK_ERRORS, check_file, open_unpacked
from gpflow_deep_runs.data.files.sparse import (
    LABELS,
    Label,
    checked_labels,
    checksum,
    is_matrix,
    labels_of,
    read_matrix,
)
from gpflow_deep_runs.data.rows import Part, Rows
from gpflow_deep_runs.data.table.spec import TableSpec

__all__ = ["TextSpec", "Vectoriser", "is_documents", "is_json_lines", "read_documents", "read_new"]

_LINES = (".jsonl", ".ndjson")


@dataclass(frozen=True)
class TextSpec:
    """How documents of --data, lines of JSON, become rows, and where the labels of a sparse matrix are.

    :param ngrams: longest run of words that is a column of its own; 1 for single words.
    :param min_documents: leave out words of fewer documents than this.
    :param max_words: keep the most frequent words only; all if not given.
    :param counts: how often a word occurs in a document, in place of whether it does.
    :param labels: file with a label for each row of a sparse --data that has none: .npy, or .txt or .csv with one a
        line.
    :raises ValueError: naming the flag.
    """

    ngrams: int = 1
    min_documents: int = 2
    max_words: int | None = None
    counts: bool = False
    labels: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.ngrams <= 10:
            raise ValueError(f"--ngrams must be from 1 to 10, got {self.ngrams}.")
        for name in ("min_documents", "max_words"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"--{name} must be at least 1, got {value}.")

    def given(self) -> tuple[str, ...]:
        """Names of the fields that differ from their defaults."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name) != field.default)


@dataclass(frozen=True)
class Vectoriser:
    """From documents to rows: presence or counts of known words, by scikit-learn's `CountVectorizer`.

    :param words: what the columns count, D different words or runs of words.
    :param ngrams: longest run of words.
    :param counts: counts in place of presence.
    :raises ValueError: if words are no different texts, or `ngrams` is out of range.
    """

    words: tuple[str, ...]
    ngrams: int = 1
    counts: bool = False

    def __post_init__(self) -> None:
        is_text = all(isinstance(word, str) for word in self.words)
        if not self.words or not is_text or len(set(self.words)) != len(self.words):
            raise ValueError("the words of a vectoriser must be different texts, at least one.")
        if isinstance(self.ngrams, bool) or not isinstance(self.ngrams, int) or not 1 <= self.ngrams <= 10:
            raise ValueError(f"ngrams of a vectoriser must be from 1 to 10, got {self.ngrams!r:.40}.")

    def transform(self, texts: Sequence[str]) -> scipy.sparse.csr_matrix:
        """Rows of documents, float32 CSR [N, D]; words that are not known are left out."""
        counter = _counter(self.ngrams, self.counts, vocabulary=list(self.words))
        return scipy.sparse.csr_matrix(counter.transform(texts))

    def to_json(self) -> dict[str, Any]:
        """A dictionary for JSON."""
        return {"words": list(self.words), "ngrams": self.ngrams, "counts": self.counts}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Vectoriser:
        """The inverse of :meth:`to_json`.

        :raises ValueError: if it is damaged.
        """
        try:
            return cls(tuple(stored["words"]), stored["ngrams"], bool(stored["counts"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the stored words are damaged ({error}); take an undamaged copy.") from error


def is_json_lines(path: str | os.PathLike[str]) -> bool:
    """Whether the name of a file is that of JSON lines, packed or not."""
    name = Path(path).name.lower()
    return name.endswith((*_LINES, *(f"{lines}.{packed}" for lines in _LINES for packed in COMPRESSIONS)))


def is_documents(path: str | os.PathLike[str]) -> bool:
    """Whether a file holds documents or a sparse matrix."""
    return is_json_lines(path) or is_matrix(Path(path))


def read_documents(path: str | os.PathLike[str], spec: TextSpec = TextSpec(), table: TableSpec = TableSpec()) -> Rows:
    """Read documents or a sparse matrix, with labels, in one part "all".

    JSON lines hold objects with `text` and `label`. An .npz file holds the arrays `data`, `indices`, `indptr` and
    `shape` of a CSR matrix, as `scipy.sparse.save_npz` writes them, and labels [N] as `labels`, `label`, `y` or `Y`, or
    else in the file `spec.labels`.

    :param table: its `target` names the key or array of the labels, its `features` the key of the text.
    :raises ValueError: naming the file, the line and the flag that helps.
    """
    path = Path(path)
    if wrong := [name for name in table.given() if name not in ("target", "features")]:
        raise ValueError(f"--{wrong[0]} is for tables, and {path} holds documents or a sparse matrix; leave it out.")
    check_file(path)
    # Documents: their words become columns.
    if is_json_lines(path):
        text, label = _keys(table)
        texts, labels = _read_lines(path, text, label, is_labelled=True)
        X, words = _learned(texts, spec, path)
        return _rows(path, X, labels, words, "presence" if not spec.counts else "counts")
    # A sparse matrix: its labels are in the file or in one beside it.
    if wrong := [name for name in spec.given() if name != "labels"]:
        raise ValueError(f"--{wrong[0]} is for documents, and {path} holds a sparse matrix; leave it out.")
    X, arrays = read_matrix(path)
    stored = labels_of(path, X.shape[0], arrays, file=spec.labels, target=table.target)
    return _rows(path, X, stored, (), "values")


def read_new(
    path: str | os.PathLike[str],
    words: Vectoriser | None,
    num_columns: int,
    class_names: Sequence[str],
    table: TableSpec = TableSpec(),
) -> tuple[scipy.sparse.csr_matrix, NDArray[np.int64] | None]:
    """New documents or rows of a sparse matrix, and the numbers of their classes if they all have known labels.

    :param words: of the training documents; None for a sparse matrix, which must have `num_columns`.
    :param table: as for :func:`read_documents`.
    :raises ValueError: naming the file; and a label that is none of `class_names`.
    """
    path = Path(path)
    check_file(path)
    if words is not None:
        if not is_json_lines(path):
            raise ValueError(f"the model was trained on documents, so --data must be .jsonl, got {path.name}.")
        texts, labels = _read_lines(path, *_keys(table), is_labelled=False)
        X = words.transform(texts)
    else:
        if not is_documents(path) or is_json_lines(path):
            raise ValueError(
                f"the model was trained on a sparse matrix, so --data must be one (.npz), got {path.name}."
            )
        X, arrays = read_matrix(path)
        if X.shape[1] != num_columns:
            raise ValueError(f"{path} must have {num_columns} columns as the training data, got {X.shape[1]}.")
        key = next((name for name in (*table.target, *LABELS) if name in arrays), None)
        labels = [None] if key is None else [*checked_labels(arrays[key], X.shape[0], f"{key} in {path}")]
    # There are scores only if each row has a label.
    if any(label is None for label in labels):
        return X, None
    numbers = {name: number for number, name in enumerate(class_names)}
    if unknown := sorted({_name(label) for label in labels} - set(numbers)):
        raise ValueError(
            f"labels of {path} must be those of the training data, {', '.join(class_names)}, got {unknown[0]!r}; leave "
            "labels out to predict without scores."
        )
    return X, np.array([numbers[_name(label)] for label in labels])


# Documents.


def _keys(table: TableSpec) -> tuple[str, str]:
    """Of the text and of the label."""
    # Each flag names one key; `text` and `label` go without saying.
    for name in ("features", "target"):
        if len(getattr(table, name)) > 1:
            raise ValueError(f"--{name} must name one key of the lines, got {', '.join(getattr(table, name))}.")
    return (*table.features, "text")[0], (*table.target, "label")[0]


def _read_lines(path: Path, text: str, label: str, *, is_labelled: bool) -> tuple[list[str], list[Label | None]]:
    """The texts and labels under two keys.

    :param is_labelled: whether each line must have a label.
    """
    texts = []
    labels = []
    # Each line has a text, and a label that is a text or a finite number.
    for number, record in _objects(path):
        body = record.get(text)
        name = record.get(label)
        if not isinstance(body, str):
            raise ValueError(
                f"line {number} of {path} must have a text under {text!r}, got {type(body).__name__}; name its key by "
                "--features."
            )
        if not (name is None or isinstance(name, str | int) or (isinstance(name, float) and np.isfinite(name))):
            raise ValueError(f"line {number} of {path} must have a text or a number under {label!r}, got {name!r:.40}.")
        if name is None and is_labelled:
            raise ValueError(
                f"{path} must have {label!r} in every line, but line {number} has none; name its key by --target."
            )
        texts.append(body)
        labels.append(name)
    if not texts:
        raise ValueError(f"{path} is empty; check how it was written.")
    return texts, labels


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number, from 1, and object of each line that is not empty."""
    try:
        with open_unpacked(path) as stream:
            for number, line in enumerate(stream, start=1):
                # Blank lines count in messages, and hold nothing.
                if not line.strip():
                    continue
                try:
                    record = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
                except (ValueError, RecursionError) as error:
                    raise ValueError(f"line {number} is no JSON in UTF-8: {error}") from error
                if not isinstance(record, dict):
                    raise ValueError(f"line {number} is no object with a text and a label")
                yield number, record
    except (*UNPACK_ERRORS, ValueError) as error:
        raise ValueError(f"{path} is no readable, complete file of JSON lines ({error}); write it again.") from error


def _learned(texts: Sequence[str], spec: TextSpec, path: Path) -> tuple[scipy.sparse.csr_matrix, tuple[str, ...]]:
    """Rows of the documents, and the words of their columns."""
    # A file of few documents cannot ask for words of more of them.
    counter = _counter(
        spec.ngrams, spec.counts, min_df=min(spec.min_documents, len(texts)), max_features=spec.max_words
    )
    try:
        X = scipy.sparse.csr_matrix(counter.fit_transform(texts))
    except ValueError as error:
        raise ValueError(
            f"{path} must have words that occur in {spec.min_documents} documents ({error}); give a smaller "
            "--min_documents."
        ) from error
    return X, tuple(map(str, counter.get_feature_names_out()))


def _counter(ngrams: int, counts: bool, **options: Any) -> Any:
    from sklearn.feature_extraction.text import CountVectorizer  # here, as it takes a second to import

    return CountVectorizer(ngram_range=(1, ngrams), binary=not counts, dtype=np.float32, **options)


# Both.


def _rows(
    path: Path, X: scipy.sparse.csr_matrix, labels: Sequence[Label | None], words: tuple[str, ...], what: str
) -> Rows:
    """:raises ValueError: if there are fewer than two classes, or as many as rows."""
    # The classes in the order of their numbers, or of their names; 1 and 1.0 are one class.
    is_number = all(not isinstance(label, str) for label in labels)
    known_labels = {label for label in labels if label is not None}
    names = [_name(label) for label in sorted(known_labels, key=(float if is_number else str))]
    names = list(dict.fromkeys(names))
    if not 2 <= len(names) <= max(2, len(labels) // 2):
        raise ValueError(
            f"{path} must have labels of at least two classes, and of two rows each in the mean, got {len(names)} "
            f"classes in {len(labels)} rows."
        )
    # A class is its number in that order.
    numbers = {name: number for number, name in enumerate(names)}
    Y = np.array([numbers[_name(label)] for label in labels], np.int64)[:, None]
    return Rows(
        path.name.split(".")[0],
        {"all": Part(X, Y)},
        "binary" if len(names) == 2 else "multiclass",
        f"the file {path.name}, {what} of {X.shape[1]} columns",
        checksum("documents", X, Y),
        feature_names=words,
        target_names=("label",),
        class_names=tuple(names),
    )


def _name(label: object) -> str:
    """Of a class: 1 and 1.0 are the same."""
    return str(int(label)) if isinstance(label, float) and label == int(label) else str(label)
