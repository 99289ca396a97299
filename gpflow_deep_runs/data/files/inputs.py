"""How raw inputs are made of a file, kept in the folder of a run so that new rows are read alike.

keep(run.path, data, texts)                                       # after training rows were read
X, numbers = read(run_dir, "new.csv", num_columns=9, class_names=("no", "yes"))
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpflow_deep_base.files import parse_json, write_json
from gpflow_deep_runs.data.files.documents import TextSpec, Vectoriser, read_new
from gpflow_deep_runs.data.rows import Rows
from gpflow_deep_runs.data.table.spec import NewRows, TableSpec
from gpflow_deep_runs.data.tables import apply_schema, load_schema, schema_of

__all__ = ["COLUMNS", "WORDS", "keep", "read"]

COLUMNS = "columns.json"
WORDS = "words.json"
"""Files of the columns of a table, and of the words of documents; a sparse matrix needs neither."""


def keep(folder: Path, data: Rows, texts: TextSpec = TextSpec()) -> None:
    """Write what new rows need to become inputs like those of `data`: its columns or its words."""
    # Only sparse matrices have no columns of a table; those of documents have words.
    if not hasattr(data.parts["all"].X, "tocsr"):
        write_json(folder / COLUMNS, schema_of(data).to_json())
    elif data.feature_names:
        write_json(folder / WORDS, Vectoriser(data.feature_names, texts.ngrams, texts.counts).to_json())


def read(
    folder: Path,
    path: str,
    *,
    num_columns: int,
    class_names: Sequence[str],
    new: NewRows = NewRows(),
    keys: TableSpec = TableSpec(),
) -> tuple[Any, np.ndarray | None]:
    """Raw inputs [N, D] of new rows, and the numbers of their classes [N], or None where labels are absent.

    :param folder: of :func:`keep`.
    :param num_columns: D of a sparse matrix.
    :param new: of a table: what differs from training.
    :param keys: of documents and sparse matrices: `target` and `features` as in `documents.read_documents`.
    :raises ValueError: as `tables.apply_schema` and `documents.read_new`.
    """
    if (folder / COLUMNS).is_file():
        if keys.given():
            raise ValueError(
                f"--{keys.given()[0]} is for documents and sparse matrices; columns of a table have names."
            )
        X, Y = apply_schema(load_schema(folder / COLUMNS), path, new)
        return X, None if Y is None else Y[:, 0]
    # Documents have words of their own, a sparse matrix has none.
    words = None
    if (folder / WORDS).is_file():
        words = Vectoriser.from_json(parse_json((folder / WORDS).read_bytes()))
    return read_new(path, words, num_columns, class_names, keys)
