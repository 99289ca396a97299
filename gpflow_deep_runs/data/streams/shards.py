"""Tables in many files (Parquet, CSV, TFRecord), cut into blocks of rows that can be read in any order.

    shards = open_shards("trips/*.parquet", layouts=[{"x": Field("distance"), "y": Field("fare")}])
    frame = shards.read(7)                              # block 7 as a DataFrame with the columns "x" and "y"

A block is a row group of a Parquet file, or about `blocks.BLOCK_BYTES` of a CSV or TFRecord file. Finding the blocks
reads the footers of Parquet files and every byte of the others, once. Paths with "://" may be on any file system that
TensorFlow knows. CSV files have one row a line: no line breaks within quotes.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data.delimited import Dialect
from gpflow_deep_runs.data.libraries import pa, pd
from gpflow_deep_runs.data.packed import compression_of
from gpflow_deep_runs.data.streams import csv, parquet, storage, tfrecord
from gpflow_deep_runs.data.streams.blocks import Block, Extent, Field, Kind, Layout, values
from gpflow_deep_runs.data.streams.csv import Texts

__all__ = ["Field", "Format", "Layout", "Shards", "Texts", "columns_of", "find_files", "open_shards"]

Format = Literal["parquet", "csv", "tfrecord"]

_SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
}

_UNPACK = {"gz": "gunzip --keep", "bz2": "bunzip2 --keep", "xz": "unxz --keep", "zip": "unzip"}


@dataclass(frozen=True, eq=False)
class Shards:
    """The files of a table; :func:`open_shards` makes it.

    :param files: paths, sorted.
    :param names: paths relative to their common folder: what tells rows of one file from those of another.
    :param sizes: bytes of each file.
    :param format: "parquet", "csv" or "tfrecord".
    :param layouts: the layout of each file.
    :param dialects: of each file how its lines are made, of CSV files; else ().
    :param texts: what the texts of CSV files become.
    :param blocks: int64 [number of blocks, 5], a `Block` in each row.
    :param drop_bad_rows: leave out CSV lines with a wrong number of columns, and take text in a column of numbers for
        NaN, in place of raising.
    """

    files: tuple[str, ...]
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    format: Format
    layouts: tuple[Layout, ...]
    dialects: tuple[Dialect, ...]
    texts: Texts
    blocks: NDArray[np.int64]
    drop_bad_rows: bool = False

    def block(self, number: int) -> Block:
        """Where block `number` is."""
        return Block(*map(int, self.blocks[number]))

    def read(self, number: int) -> pd.DataFrame:
        """Rows of block `number`: a column for each entry of the layout; numbers are float64 with NaN for nulls.

        :raises ValueError: naming file and rows, if they cannot be read.
        """
        block = self.block(number)
        with self._named(block):
            layout = self.layouts[block.file]
            as_text = self.drop_bad_rows and self.format == "csv"
            table = self._table(block, {f.column: "text" if as_text else f.kind for f in layout.values()})
            return pd.DataFrame(
                {
                    name: values(table[field.column], field, drop_bad_rows=self.drop_bad_rows)
                    for name, field in layout.items()
                }
            )

    def table(self, number: int, names: Collection[str] | None = None) -> pa.Table:
        """Rows of block `number` as the file has them: a column for each entry of the layout, or for some of them.

        Numbers of CSV files are float64, if all of them are; all other cells are texts, as they are written.

        :raises ValueError: naming file and rows, if they cannot be read.
        """
        block = self.block(number)
        layout = self.layouts[block.file]
        wanted = {name: field for name, field in layout.items() if names is None or name in names}
        with self._named(block):
            try:
                table = self._table(block, {field.column: field.kind for field in wanted.values()})
            except pa.ArrowInvalid:
                if self.format != "csv":
                    raise
                table = self._table(block, {field.column: "any" for field in wanted.values()})
            return pa.table({name: table[field.column] for name, field in wanted.items()})

    def _table(self, block: Block, kinds: Mapping[str, Kind]) -> pa.Table:
        path = self.files[block.file]
        if self.format == "parquet":
            return parquet.read(path, block, list(kinds))
        if self.format == "tfrecord":
            return tfrecord.read(path, block, kinds)
        dialect = self.dialects[block.file]
        return csv.read(path, block, kinds, dialect, self.texts, skips_bad_rows=self.drop_bad_rows)

    @contextmanager
    def _named(self, block: Block) -> Iterator[None]:
        """Errors name the file and the rows."""
        try:
            yield
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            path, rows = self.files[block.file], f"{block.first_row} to {block.first_row + block.num_rows - 1}"
            raise ValueError(
                f"{path} cannot be read in rows {rows}: {_short(error)}; {_advice(self.format)}"
            ) from error


def find_files(pattern: str) -> tuple[Format, tuple[str, ...]]:
    """Files of one format, sorted.

    :param pattern: a file, a folder, a glob pattern (`trips/*.parquet`), or several of these separated by commas.
    :raises ValueError: if there are none, or they are of no or of more than one known format.
    """
    files: list[str] = []
    parts = [pattern] if os.path.exists(pattern) else [part.strip() for part in pattern.split(",")]
    for part in filter(None, parts):
        try:
            is_folder = storage.is_folder(part)
            found = storage.find(os.path.join(part, "*") if is_folder else part)
        except OSError as error:
            raise ValueError(f"{part!r} must be a file, folder or pattern: {_short(error)}.") from error
        packed = [path for path in found if compression_of(path)]
        if is_folder:
            found = [path for path in found if _format(path) is not None and not path.lower().endswith(".txt")]
        if packed and (not is_folder or not found):
            unpack = f"`{_UNPACK[compression_of(packed[0])]} {os.path.basename(packed[0])}`"
            raise ValueError(
                f"{packed[0]} is packed and cannot be read in pieces; unpack it first ({unpack}), or write Parquet."
            )
        if not found:
            raise ValueError(
                f"{part!r} must name .parquet, .csv or .tfrecord files, but there are none; check the path."
            )
        files += found
    files = sorted(set(files))
    formats = {format_ for path in files if (format_ := _format(path)) is not None}
    unknown = [path for path in files if _format(path) is None]
    if unknown or len(formats) != 1:
        got = unknown[0] if unknown else " and ".join(sorted(f".{name}" for name in formats)) or "no path"
        raise ValueError(
            f"a stream must be files of one format, .parquet, .csv or .tfrecord, got {got}; unpack or convert them."
        )
    return formats.pop(), tuple(files)


def open_shards(
    pattern: str,
    *,
    layouts: Sequence[Layout],
    header: Sequence[str] | None = None,
    texts: Texts = Texts(),
    drop_bad_rows: bool = False,
) -> Shards:
    """Find the files and their blocks.

    :param pattern: see :func:`find_files`.
    :param layouts: which columns to read; in each file the first layout whose columns are all there.
    :param header: names of the columns, for CSV files that have no header line.
    :param texts: what the texts of CSV files become. If they are kept as they are written, the delimiter of each file
        is found out; else it is a comma.
    :param drop_bad_rows: see :class:`Shards`.
    :raises ValueError: naming the file: one that cannot be read, that has other columns, or columns of another kind,
        than the layouts want; or no rows at all.
    """
    format_, files = find_files(pattern)
    sizes = tuple(map(storage.size, files))
    chosen, dialects, blocks = [], [], []
    for number, path in enumerate(files):
        with _named(path):
            kinds, dialect = _columns(format_, path, header, texts)
        chosen.append(_layout(path, kinds, layouts, files[0]))
        dialects += [] if dialect is None else [dialect]
        first_row = 0
        with _named(path):
            for start, stop, rows in _extents(format_, path, sizes[number], dialect):
                blocks.append(Block(number, start, stop, first_row, rows))
                first_row += rows
    if not blocks:
        raise ValueError(f"{pattern} must hold rows, but its {len(files)} files have none; check the path.")
    folder = os.path.commonpath([os.path.dirname(path) for path in files]) if len(files) > 1 else ""
    names = tuple(os.path.relpath(path, folder) if folder else os.path.basename(path) for path in files)
    table = np.array(blocks, dtype=np.int64).reshape(-1, len(Block._fields))
    return Shards(files, names, sizes, format_, tuple(chosen), tuple(dialects), texts, table, drop_bad_rows)


def columns_of(path: str, *, header: Sequence[str] | None = None, texts: Texts = Texts()) -> dict[str, Kind]:
    """Columns of a file and their kinds. CSV files do not tell: a column is "number" if its first rows are numbers.

    :param header: names of the columns of a CSV file without a header line.
    :param texts: see :func:`open_shards`; the kind of all texts that are kept as they are written is "any".
    :raises ValueError: if the file cannot be read.
    """
    with _named(path):
        return _columns(_format(path) or "csv", path, header, texts)[0]


def _columns(
    format_: Format, path: str, header: Sequence[str] | None, texts: Texts
) -> tuple[dict[str, Kind], Dialect | None]:
    """Columns of a file and their kinds, and how the lines of a CSV file are made."""
    if format_ == "parquet":
        return parquet.kinds(path), None
    if format_ == "tfrecord":
        return tfrecord.kinds(path), None
    if texts.as_written:
        dialect = csv.dialect(path)
        return dict.fromkeys(dialect.names, "any"), dialect
    return csv.kinds(path, header), csv.plain_dialect(path, header)


def _extents(format_: Format, path: str, size: int, dialect: Dialect | None) -> Iterator[Extent]:
    if dialect is not None:
        return csv.extents(path, size, dialect)
    return parquet.extents(path) if format_ == "parquet" else tfrecord.extents(path, size)


def _format(path: str) -> Format | None:
    return _SUFFIXES.get(os.path.splitext(path)[1].lower())


def _layout(path: str, kinds: Mapping[str, Kind], layouts: Sequence[Layout], first: str) -> Layout:
    """The layout whose columns the file has, checked for their kinds."""
    for layout in layouts:
        if all(field.column in kinds for field in layout.values()):
            break
    else:
        wanted = [field.column for field in layouts[0].values()]
        absent = ", ".join(repr(column) for column in wanted if column not in kinds)
        which = "" if path == first else f" as {first} has"
        raise ValueError(f"{path} must have the columns of the stream{which}, but lacks {absent}; leave the file out.")
    for field in layout.values():
        kind = kinds[field.column]
        is_readable = kind == field.kind or (kind == "text" and field.kind == "time") or field.kind in ("text", "any")
        if not is_readable and _format(path) != "csv":  # a CSV file shows it when its rows are read
            raise ValueError(
                f"{path} must have {field.kind}s in column {field.column!r}, got {kind}; convert it, or leave the "
                "file out."
            )
    return layout


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Errors name the file."""
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as error:
        if str(path) in str(error):
            raise ValueError(str(error)) from error
        raise ValueError(f"{path} cannot be read: {_short(error)}; {_advice(_format(path) or 'csv')}") from error


def _short(error: BaseException) -> str:
    return " ".join(itertools.islice(str(error).split(), 60)).rstrip(".;")


def _advice(format_: str) -> str:
    also = " --bad_rows=drop leaves out lines that cannot be read." if format_ == "csv" else ""
    return f"it may be damaged: get it again or leave it out.{also}"
