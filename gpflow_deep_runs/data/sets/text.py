"""Readers of text classification tasks in the manner of Soudry et al. (2014): bags of words in two classes.

Rows are documents and columns are words: X holds the presence of words, 0 and 1, or their counts, as a float32 CSR
matrix; Y is 0 or 1. Three of the tasks are those of the paper, made from its authors' files; the others are the nearest
that could be had.
"""

import hashlib
import json
import lzma
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from gpflow_deep_base.container import read_npz
from gpflow_deep_base.seeds import numpy_rng
from gpflow_deep_runs.data.rows import Part, Rows

__all__ = ["TASKS", "Task", "read"]

_READ_ERRORS = (ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)

Labelled = tuple[scipy.sparse.csr_matrix, NDArray[np.int64]]


class Task(NamedTuple):
    """How a file becomes rows.

    :ivar about: what they are, for reports.
    :ivar class_names: what the classes 0 and 1 mean.
    :ivar read: path -> words X [N, D] and labels -1 and +1 [N].
    :ivar is_sorted: by class or by origin, so that the rows are put in a random order, always the same.
    """

    about: str
    class_names: tuple[str, str]
    read: Callable[[Path], Labelled]
    is_sorted: bool


def read(name: str, paths: Sequence[Path]) -> Rows:
    """A task of :data:`TASKS` in one part "all", in an order in which blocks of rows may be folds.

    :raises ValueError: if the file is damaged.
    """
    (path,) = paths
    task = TASKS[name]
    X, labels = task.read(path)
    source = f"{path.name}; {task.about}"
    if task.is_sorted:
        order = numpy_rng(0, f"text/{name}").permutation(len(labels))
        X, labels = X[order], labels[order]
        X.sort_indices()
        source += " Rows in a random order, always the same, as the file is sorted."
    parts = {"all": Part(X, (labels[:, None] > 0).astype(np.int64))}
    sha256 = _sha256(X, labels)
    return Rows(name, parts, "binary", source, sha256, class_names=task.class_names, is_shuffled=True)


def _sha256(X: scipy.sparse.csr_matrix, labels: NDArray[np.int64]) -> str:
    digest = hashlib.sha256(f"text {X.shape}".encode())
    for array, kind in ((X.indptr, "<i8"), (X.indices, "<i8"), (X.data, "<f4"), (labels, "<i8")):
        digest.update(np.ascontiguousarray(array, dtype=kind).tobytes())
    return digest.hexdigest()


def _read_matrix(path: Path) -> Labelled:
    """A CSR matrix as the arrays `data`, `indices`, `indptr`, `shape`, and `labels` -1 and +1, of an .npz file."""
    try:
        stored = read_npz(path)
        parts = (stored["data"].astype(np.float32), stored["indices"], stored["indptr"])
        X = scipy.sparse.csr_matrix(parts, shape=tuple(stored["shape"]))
        return X, stored["labels"].astype(np.int64)
    except _READ_ERRORS as error:
        raise ValueError(f"{path}: the file of counts cannot be read ({error}); get it again.") from error


def _read_presence(path: Path) -> Labelled:
    """As :func:`_read_matrix`, with 1 for every positive count."""
    X, labels = _read_matrix(path)
    X.data = np.minimum(X.data, np.float32(1))
    return X, labels


def _read_documents(path: Path) -> Labelled:
    """Documents as lines of JSON with `text` and `label` 0 or 1, compressed by xz."""
    from sklearn.feature_extraction.text import CountVectorizer  # here, as it takes a second to import

    try:
        records = [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()]
        texts, labels = [_body(record) for record in records], np.array([record["label"] for record in records])
    except _READ_ERRORS as error:
        raise ValueError(f"{path}: the file of documents cannot be read ({error}); get it again.") from error
    counter = CountVectorizer(lowercase=True, token_pattern=r"[a-z]{2,}", min_df=2, binary=True, dtype=np.float32)
    return scipy.sparse.csr_matrix(counter.fit_transform(texts)), 2 * labels.astype(np.int64) - 1


def _body(record: dict[str, Any]) -> str:
    """The text, of an e-mail without its header (which says by which lists and servers it came)."""
    text: str = record["text"]
    return text.partition("\n\n")[2] if "group" in record else text


TASKS = {
    "reuters_i6": Task(
        "Reuters news I6, 2000 documents, presence of 11463 words; a task of the paper, in its order.",
        ("-1", "+1"),
        _read_matrix,
        False,
    ),
    "ng20_comp_hw": Task(
        "20 Newsgroups comp against HW, 1943 documents, presence of 29409 words; a task of the paper, in its order.",
        ("-1", "+1"),
        _read_matrix,
        False,
    ),
    "amazon_apparel_books": Task(
        "Amazon reviews of apparel and books, 3880 documents, counts of 221972 words and pairs of words; the paper's "
        "authors name it apparel_books and give no meaning of the labels; it has the size of the paper's `Amazon Book "
        "reviews`.",
        ("-1", "+1"),
        _read_matrix,
        False,
    ),
    "ng20_elec_med": Task(
        "20 Newsgroups sci.electronics against sci.med, 1974 posts, presence of 25150 words; not the paper's file "
        "(1971 x 38699, which could not be had) but made anew from the posts' subjects and bodies.",
        ("sci.electronics", "sci.med"),
        _read_presence,
        True,
    ),
    "spamassassin": Task(
        "SpamAssassin public corpus, 6046 e-mails, presence of the words [a-z]{2,} of at least two bodies; stands in "
        "for the paper's `Spam or ham`, which is another corpus.",
        ("ham", "spam"),
        _read_documents,
        True,
    ),
    "movie_reviews": Task(
        "Movie reviews of Pang and Lee (polarity 2.0), 2000 documents, presence of the words [a-z]{2,} of at least two "
        "documents; stands in for the paper's other Amazon task.",
        ("negative", "positive"),
        _read_documents,
        True,
    ),
}
