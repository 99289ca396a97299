"""Readers of text classification tasks in the manner of Soudry et al. (2014): bags of words in two classes.

Rows are documents and columns are words: X holds the presence of words, 0 and 1, or their counts, as a float32 CSR
matrix; Y is 0 or 1. Three of the tasks are those of the paper, made from its authors' files; the others are the nearest
that could be had.
"""

import json
import lzma
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from gpflow_deep_base.seeds import numpy_rng
from gpflow_deep_base.storage.container import read_npz
from gpflow_deep_runs.data.files.packed import UNPACK_ERRORS
from gpflow_deep_runs.data.files.sparse import checksum
from gpflow_deep_runs.data.rows import Part, Rows
from gpflow_deep_runs.data.sets.files import KNOWN

__all__ = ["TASKS", "Task", "read"]

_READ_ERRORS = (*UNPACK_ERRORS, ValueError, KeyError, TypeError)

Labelled = tuple[scipy.sparse.csr_matrix, NDArray[np.int64]]


class Task(NamedTuple):
    """How a file becomes rows.

    :ivar about: what they are, for reports.
    :ivar class_names: what the classes 0 and 1 mean.
    :ivar read: path -> words X [N, D] and labels -1 and +1 [N].
    :ivar is_sorted: by class or by origin, so that the rows are put in a random order, always the same.
    """

    about: str
    class_names: tuple[str, ...]
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
    # Blocks of rows may be folds only if their order is random.
    if task.is_sorted:
        order = numpy_rng(0, f"text/{name}").permutation(len(labels))
        X = X[order]
        labels = labels[order]
        X.sort_indices()
        source += " Rows in a random order, always the same, as the file is sorted."
    parts = {"all": Part(X, (labels[:, None] > 0).astype(np.int64))}
    sha256 = checksum("text", X, labels)
    return Rows(name, parts, "binary", source, sha256, class_names=task.class_names, is_shuffled=True)


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
        texts = [_body(record) for record in records]
        labels = np.array([record["label"] for record in records])
    except _READ_ERRORS as error:
        raise ValueError(f"{path}: the file of documents cannot be read ({error}); get it again.") from error
    # Words of two letters or more that two documents have.
    counter = CountVectorizer(lowercase=True, token_pattern=r"[a-z]{2,}", min_df=2, binary=True, dtype=np.float32)
    return scipy.sparse.csr_matrix(counter.fit_transform(texts)), 2 * labels.astype(np.int64) - 1


def _body(record: dict[str, str]) -> str:
    """The text, of an e-mail without its header (which says by which lists and servers it came)."""
    text: str = record["text"]
    return text.partition("\n\n")[2] if "group" in record else text


_READERS: dict[str, Callable[[Path], Labelled]] = {
    "matrix": _read_matrix,
    "presence": _read_presence,
    "documents": _read_documents,
}

TASKS = {
    name: Task(facts["about"], tuple(holds["class_names"]), _READERS[holds["read"]], holds["is_sorted"])
    for name, facts in KNOWN.items()
    if "text" in facts["views"]
    for holds in [facts["holds"]]
}
"""The tasks by name."""
