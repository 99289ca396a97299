"""A table from wherever it is: delimited text, Parquet, arrays, or a data frame, whole and with distinct column names.

read_source("shop.csv.gz").columns                      # a pyarrow.Table of strings
read_source(pandas.DataFrame({"a": [1.5, 2.5]})).columns
"""

from __future__ import annotations

import gzip
import lzma
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiment.data.delimited import HEAD_BYTES, check_names, check_quotes, dialect_of, read_text
from experiment.data.libraries import pa, pc, pd
from experiment.data.packed import COMPRESSIONS, open_unpacked, unpacked_limit
from experiment.files import read_npz

__all__ = ["READ_ERRORS", "SUFFIXES", "Table", "is_delimited", "read_source"]

READ_ERRORS = (ValueError, EOFError, KeyError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError)
"""What readers raise if a file is damaged."""

SUFFIXES = ".csv, .tsv or .txt (each also with .gz, .bz2, .xz or .zip), .parquet or .npz"

_INDEX = "the index of the frame; reset_index() makes a column of it"

_TEXT = (".csv", ".tsv", ".txt")
_TEXT_TYPES = ("large_string", "string_view")

Indices = NDArray[np.int64]


class Table(NamedTuple):
    """What a source holds.

    :ivar columns: all columns; those of delimited text are strings.
    :ivar where: what to call the source in messages.
    :ivar name: a short name for reports.
    :ivar delimiter: what stands between the columns of a text; "" elsewhere.
    :ivar targets: the columns of a matrix y or Y of an .npz file; () where the source does not tell.
    :ivar splits: standard splits of an .npz file, as pairs of row numbers (train, test).
    :ivar image_shape: height and width, if X of an .npz file are images.
    :ivar left_out: what the source has besides these columns, such as the index of a frame: names and why.
    """

    columns: pa.Table
    where: str
    name: str
    delimiter: str = ""
    targets: tuple[str, ...] = ()
    splits: tuple[tuple[Indices, Indices], ...] | None = None
    image_shape: tuple[int, int] | None = None
    left_out: tuple[tuple[str, str], ...] = ()


def is_delimited(path: str | os.PathLike[str]) -> bool:
    """Whether the name of a file is that of delimited text, packed or not."""
    name = Path(path).name.lower()
    return name.endswith((*_TEXT, *(f"{text}.{packed}" for text in _TEXT for packed in COMPRESSIONS)))


def read_source(source: Any, *, names_optional: bool = False) -> Table:
    """Read a table.

    :param source: a path (see :data:`SUFFIXES`); a pandas or polars data frame, a pyarrow table, or anything else with
        `__arrow_c_stream__`.
    :param names_optional: a first line of numbers in a text is a row, and its columns are called x0, x1, ...
    :raises ValueError: naming the file: it is missing, empty, truncated, damaged or of another format; its names of
        columns are absent or occur twice; a row has more or fewer values than there are names.
    """
    if not isinstance(source, str | os.PathLike):
        where = "the data frame"
        return Table(_checked(_frame_columns(source, where), where), where, "table", left_out=_index_of(source))
    path = Path(source)
    where, name = str(path), path.name.split(".")[0]
    if not path.is_file():
        raise ValueError(f"--data must be a file, but there is none at {path}; check the path.")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty; check how it was written.")
    if is_delimited(path):
        return _text_table(path, names_optional)
    if path.suffix.lower() == ".parquet":
        columns, left_out = _parquet_columns(path)
        return Table(_checked(columns, where), where, name, left_out=left_out)
    if path.suffix.lower() == ".npz":
        return _npz_table(read_npz(path), where, name)
    raise ValueError(f"--data must end in {SUFFIXES}, got {path.name}; convert the file.")


def _text_table(path: Path, names_optional: bool) -> Table:
    where = str(path)
    try:
        with open_unpacked(path) as stream:
            head = stream.read(HEAD_BYTES)
            is_whole = len(head) < HEAD_BYTES
        dialect = dialect_of(head, where, is_whole=is_whole, names_optional=names_optional)
        with open_unpacked(path) as stream:
            columns = read_text(stream, dialect, where, has_header=dialect.has_header)
        if any(_has_odd_quotes(column) for column in columns.columns):
            with open_unpacked(path) as stream:
                check_quotes(stream, dialect, where)
    except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError) as error:
        raise ValueError(f"{path} is no readable, complete CSV file in UTF-8 ({error}); write it again.") from error
    return Table(columns, where, path.name.split(".")[0], dialect.delimiter)


def _has_odd_quotes(column: pa.ChunkedArray) -> bool:
    """Whether a value has more than one line and a quotation mark: it may be several rows."""
    lines = column.filter(pc.match_substring(column, "\n"))
    return bool(len(lines) and pc.any(pc.match_substring(lines, '"')).as_py())


def _parquet_columns(path: Path) -> tuple[pa.Table, tuple[tuple[str, str], ...]]:
    try:
        file = pa.parquet.ParquetFile(path)
        size, limit = file.metadata.num_rows * file.metadata.num_columns * 8, unpacked_limit(path)
        if size > limit:
            raise ValueError(f"its {file.metadata.num_rows:,} rows unpack to more than {limit:,} bytes")
        table = file.read()
    except (OSError, pa.ArrowException, *READ_ERRORS) as error:
        raise ValueError(f"{path} is no readable parquet file ({error}); write it again.") from error
    index = (table.schema.pandas_metadata or {}).get("index_columns", [])
    stored = [name for name in index if isinstance(name, str) and name in table.column_names]
    return table.drop_columns(stored), tuple((name, _INDEX) for name in stored)


def _index_of(frame: Any) -> tuple[tuple[str, str], ...]:
    """The index of a frame of pandas, which is no column, unless it only counts the rows."""
    if not isinstance(frame, pd.DataFrame) or (isinstance(frame.index, pd.RangeIndex) and frame.index.name is None):
        return ()
    names = [str(name) if name is not None else "(index)" for name in frame.index.names]
    if frame.index.nlevels == 1 and frame.index.name is None and pd.api.types.is_integer_dtype(frame.index.dtype):
        return ()  # numbers of rows of a larger frame
    return tuple((name, _INDEX) for name in names)


def _frame_columns(frame: Any, where: str) -> pa.Table:
    if isinstance(frame, pd.DataFrame):
        names = ["" if name is None or (np.isscalar(name) and pd.isna(name)) else str(name) for name in frame.columns]
        check_names(names, where)
        columns = [_pandas_column(frame.iloc[:, d], f"column {name!r} of {where}") for d, name in enumerate(names)]
        return pa.table(dict(zip(names, columns, strict=True)))
    if not hasattr(frame, "__arrow_c_stream__"):
        raise ValueError(
            f"a table must be a path, a pandas or polars data frame or a pyarrow table, got {type(frame).__name__}."
        )
    return pa.table(frame)


def _pandas_column(series: pd.Series, what: str) -> pa.ChunkedArray:
    if isinstance(series.dtype, pd.SparseDtype):
        series = series.sparse.to_dense()
    try:
        column = pa.array(series, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(
            f"{what} must hold values of one kind, got {series.dtype} values such as {series.iloc[0]!r:.40} ({error}); "
            "convert the column, or drop it."
        ) from error
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _checked(table: pa.Table, where: str) -> pa.Table:
    """A table with names that are checked, and its texts of one type."""
    check_names(table.column_names, where)
    return pa.table(dict(zip(table.column_names, map(_plain_texts, table.columns), strict=True)))


def _plain_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts of any Arrow type, those of categories too, as plain strings."""
    kind = column.type
    if str(kind) in _TEXT_TYPES:
        return column.cast(pa.string())
    if pa.types.is_dictionary(kind) and str(kind.value_type) in _TEXT_TYPES:
        chunks = [
            pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.string()), ordered=kind.ordered)
            for chunk in column.chunks
        ]
        return pa.chunked_array(chunks, pa.dictionary(kind.index_type, pa.string(), ordered=kind.ordered))
    return column


def _npz_table(arrays: Mapping[str, NDArray[Any]], where: str, name: str) -> Table:
    if "X" not in arrays:
        wrong = [key for key, array in arrays.items() if array.shape != (len(array) if array.ndim else 0,)]
        lengths = {len(array) for array in arrays.values() if array.ndim}
        if wrong or len(lengths) != 1:
            raise ValueError(
                f"{where} must hold X and y, or one array [N] for each column, got "
                f"{', '.join(f'{key} {array.shape}' for key, array in arrays.items()) or 'no array'}; write it again."
            )
        columns = {key: _array_column(array, f"{key} in {where}") for key, array in arrays.items()}
        return Table(_checked(pa.table(columns), where), where, name)
    extra = sorted(set(arrays) - {"X", "y", "Y", "feature_names", "train_idx", "test_idx"})
    if extra or {"y", "Y"} <= set(arrays):
        raise ValueError(
            f"{where} may hold X, y or Y, feature_names, train_idx and test_idx, got "
            f"{', '.join(map(repr, sorted(arrays)))}; leave out the others."
        )
    X, shape = arrays["X"], None
    if X.ndim in (3, 4) and 0 not in X.shape:  # images [N, H, W] or [N, H, W, C]
        X, shape = X.reshape(len(X), -1), (X.shape[1], X.shape[2])
    names = [str(name) for name in arrays.get("feature_names", [f"x{d}" for d in range(X.shape[-1] if X.ndim else 0)])]
    if X.ndim != 2 or len(set(names)) != X.shape[1]:
        raise ValueError(
            f"X in {where} must be [N, D] with D different feature names, or images [N, H, W] or [N, H, W, C], got "
            f"{arrays['X'].shape}, {len(names)} names."
        )
    columns = {column: _array_column(X[:, d], f"X in {where}") for d, column in enumerate(names)}
    key = "Y" if "Y" in arrays else "y"
    targets = _target_columns(key, arrays[key], len(X), names, where) if key in arrays else {}
    table = _checked(pa.table({**columns, **targets}), where)
    return Table(table, where, name, "", tuple(targets), _stored_splits(arrays, where), shape)


def _target_columns(key: str, array: NDArray[Any], num_data: int, names: list[str], where: str) -> dict[str, pa.Array]:
    Y = np.atleast_1d(array)
    Y = Y[:, None] if Y.ndim == 1 else Y
    targets = (key,) if Y.shape[-1] == 1 else tuple(f"{key}{p}" for p in range(Y.shape[-1]))
    if Y.ndim != 2 or len(Y) != num_data or set(targets) & set(names):
        raise ValueError(
            f"{key} in {where} must be [N] or [N, P] with N = {num_data} and be no feature's name, got {Y.shape}."
        )
    return {name: _array_column(Y[:, p], f"{key} in {where}") for p, name in enumerate(targets)}


def _array_column(array: NDArray[Any], what: str) -> pa.Array:
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind == "f" and array.dtype.itemsize not in (4, 8):
        array = array.astype(np.float64)
    if array.dtype.kind not in "biufUMm":
        raise ValueError(f"{what} must hold real numbers, texts, dates or true and false, got type {array.dtype}.")
    return pa.array(np.ascontiguousarray(array))


def _stored_splits(arrays: Mapping[str, NDArray[Any]], where: str) -> tuple[tuple[Indices, Indices], ...] | None:
    pair = [arrays[key] for key in ("train_idx", "test_idx") if key in arrays]
    if not pair:
        return None
    if len(pair) != 2 or any(a.ndim != 2 or a.dtype.kind not in "iu" for a in pair) or len(pair[0]) != len(pair[1]):
        raise ValueError(f"train_idx and test_idx in {where} must both be integers [splits, n]; write them again.")
    return tuple((train.astype(np.int64), test.astype(np.int64)) for train, test in zip(*pair, strict=True))
