"""Tables in many files (Parquet, CSV, TFRecord), cut into blocks of rows that can be read in any order.

    shards = open_shards("trips/*.parquet", layouts=[{"x": Field("distance"), "y": Field("fare")}])
    frame = shards.read(7)                              # block 7 as a DataFrame with the columns "x" and "y"

A block is a row group of a Parquet file, or about `BLOCK_BYTES` of a CSV or TFRecord file. Finding the blocks reads the
footers of Parquet files and every byte of the others, once. Paths are opened with `tf.io.gfile`, so they may be on any
file system that TensorFlow knows. CSV files have one row a line: no line breaks within quotes.
"""

import io
import itertools
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
import tensorflow as tf
from numpy.typing import NDArray

__all__ = ["BLOCK_BYTES", "Block", "Field", "Layout", "Shards", "columns_of", "find_files", "open_shards"]

BLOCK_BYTES = 2**20
"""Size of a block of a CSV or TFRecord file, and the longest line."""

Kind = Literal["number", "time", "text"]
Format = Literal["parquet", "csv", "tfrecord"]

_NULLS = ["", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "\\N"]
_SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
}
_READ_BYTES = 2**23


class Field(NamedTuple):
    """A column of a file: its name, and what its values are taken for."""

    column: str
    kind: Kind = "number"


Layout = Mapping[str, Field]
"""Name that the program uses -> column of the file."""


class Block(NamedTuple):
    """Some rows of one file.

    :ivar file: number of the file in `Shards.files`.
    :ivar start: number of the row group, or first byte.
    :ivar stop: one more than the row group, or the byte after the last.
    :ivar first_row: number of the first row within the file.
    :ivar num_rows: rows (of a CSV file: lines).
    """

    file: int
    start: int
    stop: int
    first_row: int
    num_rows: int


@dataclass(frozen=True, eq=False)
class Shards:
    """The files of a table; :func:`open_shards` makes it.

    :param files: paths, sorted.
    :param names: paths relative to their common folder: what tells rows of one file from those of another.
    :param sizes: bytes of each file.
    :param format: "parquet", "csv" or "tfrecord".
    :param layouts: the layout of each file.
    :param header: column names of CSV files without a header line, or None.
    :param blocks: int64 [number of blocks, 5], a :class:`Block` in each row.
    :param drop_bad_rows: leave out CSV lines with a wrong number of columns, and take text in a column of numbers for
        NaN, in place of raising.
    """

    files: tuple[str, ...]
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    format: Format
    layouts: tuple[Layout, ...]
    header: tuple[str, ...] | None
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
        path, layout = self.files[block.file], self.layouts[block.file]
        try:
            if self.format == "parquet":
                with _open_parquet(path) as file:
                    columns = [field.column for field in layout.values()]
                    table = file.read_row_group(block.start, columns=columns)
            elif self.format == "csv":
                table = _parse_csv(_read_bytes(path, block), self._csv_columns(path), layout, self.drop_bad_rows)
            else:
                table = _parse_examples(_records(_read_bytes(path, block)), layout)
            return pd.DataFrame(
                {name: _values(table[field.column], field, self.drop_bad_rows) for name, field in layout.items()}
            )
        except (OSError, ValueError, KeyError, pa.ArrowException, tf.errors.OpError) as error:
            rows = f"{block.first_row} to {block.first_row + block.num_rows - 1}"
            raise ValueError(
                f"{path} cannot be read in rows {rows}: {_short(error)}; {_advice(self.format)}"
            ) from error

    def _csv_columns(self, path: str) -> list[str]:
        return list(self.header) if self.header is not None else _csv_header(path)


def find_files(pattern: str) -> tuple[Format, tuple[str, ...]]:
    """Files of one format, sorted.

    :param pattern: a file, a folder, a glob pattern (`trips/*.parquet`), or several of these separated by commas.
    :raises ValueError: if there are none, or they are of no or of more than one known format.
    """
    files: list[str] = []
    for part in filter(None, (part.strip() for part in pattern.split(","))):
        try:
            is_folder = tf.io.gfile.isdir(part)
            found = tf.io.gfile.glob(os.path.join(part, "*") if is_folder else part)
        except tf.errors.OpError as error:
            raise ValueError(f"{part!r} must be a file, folder or pattern: {_short(error)}.") from error
        if is_folder:
            found = [path for path in found if _format(path) is not None]
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
    drop_bad_rows: bool = False,
) -> Shards:
    """Find the files and their blocks.

    :param pattern: see :func:`find_files`.
    :param layouts: which columns to read; in each file the first layout whose columns are all there.
    :param header: names of the columns, for CSV files that have no header line.
    :param drop_bad_rows: see :class:`Shards`.
    :raises ValueError: naming the file: one that cannot be read, that has other columns, or columns of another kind,
        than the layouts want; or no rows at all.
    """
    format_, files = find_files(pattern)
    sizes = tuple(tf.io.gfile.stat(path).length for path in files)
    chosen, blocks = [], []
    for number, path in enumerate(files):
        kinds = columns_of(path, header=header)
        chosen.append(_layout(path, kinds, layouts, files[0]))
        first_row = 0
        try:
            for start, stop, rows in _find_blocks(format_, path, sizes[number], skip_line=header is None):
                blocks.append(Block(number, start, stop, first_row, rows))
                first_row += rows
        except (OSError, pa.ArrowException, tf.errors.OpError) as error:
            raise ValueError(f"{path} cannot be read: {_short(error)}; {_advice(format_)}") from error
    if not blocks:
        raise ValueError(f"{pattern} must hold rows, but its {len(files)} files have none; check the path.")
    folder = os.path.commonpath([os.path.dirname(path) for path in files]) if len(files) > 1 else ""
    names = tuple(os.path.relpath(path, folder) if folder else os.path.basename(path) for path in files)
    table = np.array(blocks, dtype=np.int64).reshape(-1, len(Block._fields))
    header = None if header is None or format_ != "csv" else tuple(header)
    return Shards(files, names, sizes, format_, tuple(chosen), header, table, drop_bad_rows)


def columns_of(path: str, *, header: Sequence[str] | None = None) -> dict[str, Kind]:
    """Columns of a file and their kinds. CSV files do not tell: a column is "number" if its first rows are numbers.

    :raises ValueError: if the file cannot be read.
    """
    format_ = _format(path)
    try:
        if format_ == "parquet":
            with _open_parquet(path) as file:
                return {field.name: _arrow_kind(field.type) for field in file.schema_arrow}
        if format_ == "tfrecord":
            return {name: _feature_kind(value) for name, value in sorted(_first_example(path).items())}
        with tf.io.gfile.GFile(path, "rb") as file:
            head = file.read(_READ_BYTES // 8)
        names = list(header) if header is not None else _csv_header(path)
        lines = head.split(b"\n")
        rows = b"\n".join(lines[0 if header is not None else 1 : max(2, min(100, len(lines) - 1))])
        if not rows.strip():
            return dict.fromkeys(names, "number")
        table = pa.csv.read_csv(
            io.BytesIO(rows),
            read_options=pa.csv.ReadOptions(column_names=names),
            parse_options=pa.csv.ParseOptions(invalid_row_handler=lambda row: "skip"),
            convert_options=pa.csv.ConvertOptions(null_values=_NULLS, strings_can_be_null=True),
        )
        return {field.name: _arrow_kind(field.type) for field in table.schema}
    except (OSError, ValueError, pa.ArrowException, tf.errors.OpError) as error:
        raise ValueError(f"{path} cannot be read: {_short(error)}; {_advice(format_ or 'csv')}") from error


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
        is_readable = kind == field.kind or (kind == "text" and field.kind == "time") or field.kind == "text"
        if not is_readable and not path.lower().endswith(".csv"):  # a CSV file shows it when its rows are read
            raise ValueError(
                f"{path} must have {field.kind}s in column {field.column!r}, got {kind}; convert it, or leave the "
                "file out."
            )
    return layout


def _find_blocks(format_: Format, path: str, size: int, *, skip_line: bool) -> Iterator[tuple[int, int, int]]:
    """Start, stop and number of rows of each block."""
    if format_ == "parquet":
        with _open_parquet(path) as file:
            for group in range(file.metadata.num_row_groups):
                if rows := file.metadata.row_group(group).num_rows:
                    yield group, group + 1, rows
        return
    ends = _line_ends(path, size, skip_line) if format_ == "csv" else _record_ends(path, size)
    start = stop = next(ends)[0]  # the end of the header
    rows = 0
    for stop, count in ends:
        rows += count
        if 2 * (stop - start) >= BLOCK_BYTES:
            yield start, stop, rows
            start, rows = stop, 0
    if rows:
        yield start, stop, rows


def _line_ends(path: str, size: int, skip_line: bool) -> Iterator[tuple[int, int]]:
    """Where the header ends, and then ends of lines, about `BLOCK_BYTES` apart, with the lines since the last."""
    position = 0
    with tf.io.gfile.GFile(path, "rb") as file:
        if skip_line:
            position = len(file.readline())
        yield position, 0
        file.seek(position)
        while position < size:
            piece = file.read(BLOCK_BYTES)
            if not piece:
                return
            end = piece.rfind(b"\n") + 1
            if end == 0 and position + len(piece) < size:
                raise OSError(f"a line from byte {position} is longer than {BLOCK_BYTES} bytes")
            if position + len(piece) >= size:  # the last line may lack its end
                end = len(piece)
            lines = piece.count(b"\n", 0, end) + (piece[end - 1 : end] != b"\n")
            position += end
            file.seek(position)
            yield position, lines


def _record_ends(path: str, size: int) -> Iterator[tuple[int, int]]:
    """Ends of records, in groups of a few; checks their checksums."""
    position = 0
    yield 0, 0
    dataset = tf.data.TFRecordDataset(path, buffer_size=_READ_BYTES).map(tf.strings.length).batch(64)
    for lengths in dataset.as_numpy_iterator():
        position += int(lengths.sum()) + 16 * len(lengths)  # length, its checksum, and that of the content
        yield position, len(lengths)
    if position != size:
        raise OSError(f"its records end at byte {position} of {size}")


def _open_parquet(path: str) -> pa.parquet.ParquetFile:
    if "://" not in path:
        return pa.parquet.ParquetFile(path)
    return pa.parquet.ParquetFile(pa.PythonFile(_RawFile(path), mode="r"))


class _RawFile(io.RawIOBase):
    """A file of `tf.io.gfile` with the methods that pyarrow calls."""

    def __init__(self, path: str) -> None:
        self._size = tf.io.gfile.stat(path).length
        self._file = tf.io.gfile.GFile(path, "rb")
        self._file.size()  # opens it

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        return bytes(self._file.read(-1 if size is None else size))

    def tell(self) -> int:
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: self._size}[whence]
        self._file.seek(origin + offset)
        return origin + offset

    def close(self) -> None:
        self._file.close()
        super().close()


def _read_bytes(path: str, block: Block) -> bytes:
    with tf.io.gfile.GFile(path, "rb") as file:
        file.seek(block.start)
        content = bytes(file.read(block.stop - block.start))
    if len(content) != block.stop - block.start:
        raise OSError(f"it ends at byte {block.start + len(content)}, {block.stop} are needed")
    return content


def _csv_header(path: str) -> list[str]:
    with tf.io.gfile.GFile(path, "rb") as file:
        line = file.readline()
    if not line.strip():
        raise OSError("its first line must be a header, it is empty")
    return [name.strip() for name in pa.csv.read_csv(io.BytesIO(line)).column_names]


def _parse_csv(content: bytes, names: list[str], layout: Layout, drop_bad_rows: bool) -> pa.Table:
    kinds = {field.column: field.kind for field in layout.values()}
    numbers = pa.string() if drop_bad_rows else pa.float64()
    return pa.csv.read_csv(
        io.BytesIO(content),
        read_options=pa.csv.ReadOptions(column_names=names, use_threads=False, block_size=max(len(content), 1024)),
        parse_options=pa.csv.ParseOptions(
            invalid_row_handler=(lambda row: "skip") if drop_bad_rows else (lambda row: "error")
        ),
        convert_options=pa.csv.ConvertOptions(
            include_columns=list(kinds),
            column_types={name: numbers if kind == "number" else pa.string() for name, kind in kinds.items()},
            null_values=_NULLS,
            strings_can_be_null=True,
        ),
    )


def _records(content: bytes) -> list[bytes]:
    """Contents of TFRecord framing: length (8 bytes), checksum (4), content, checksum (4)."""
    records, position = [], 0
    while position < len(content):
        (length,) = struct.unpack_from("<Q", content, position)
        records.append(content[position + 12 : position + 12 + length])
        position += 16 + length
    if position != len(content):
        raise OSError("the lengths of its records do not fit; the file was changed")
    return records


def _first_example(path: str) -> Mapping[str, Any]:
    for record in tf.data.TFRecordDataset(path).take(1).as_numpy_iterator():
        return tf.train.Example.FromString(record).features.feature
    raise OSError("it holds no records")


def _feature_kind(feature: Any) -> Kind:
    return "text" if feature.WhichOneof("kind") == "bytes_list" else "number"


def _parse_examples(records: list[bytes], layout: Layout) -> dict[str, Any]:
    """Columns of `tf.train.Example` records. Numbers may be stored as floats or as integers."""
    types = {field.column: tf.float32 if field.kind == "number" else tf.string for field in layout.values()}
    first = tf.train.Example.FromString(records[0]).features.feature
    for name in types:
        if first[name].WhichOneof("kind") == "int64_list":
            types[name] = tf.int64
    spec = {name: tf.io.FixedLenFeature([], dtype) for name, dtype in types.items()}
    with tf.device("CPU:0"):
        parsed = tf.io.parse_example(tf.constant(records), spec)
    return {
        name: pd.Series(value.numpy()).str.decode("utf-8") if value.dtype == tf.string else value.numpy()
        for name, value in parsed.items()
    }


def _values(column: Any, field: Field, drop_bad_rows: bool) -> Any:
    """A column as the layout wants it."""
    if isinstance(column, pa.ChunkedArray):
        if field.kind == "number":
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                column = column.to_pandas()
                return pd.to_numeric(column, errors="coerce" if drop_bad_rows else "raise").to_numpy(np.float64)
            return pa.compute.cast(column, pa.float64(), safe=False).to_numpy()
        column = column.to_pandas(date_as_object=False)
    if field.kind == "number":
        return np.asarray(column, np.float64)
    if field.kind == "time" and not pd.api.types.is_datetime64_any_dtype(column):
        return pd.to_datetime(column, errors="coerce" if drop_bad_rows else "raise", format="%Y-%m-%d %H:%M:%S")
    return column


def _arrow_kind(type_: pa.DataType) -> Kind:
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_):
        return "number"
    if pa.types.is_decimal(type_) or pa.types.is_null(type_):
        return "number"
    return "time" if pa.types.is_timestamp(type_) or pa.types.is_date(type_) else "text"


def _short(error: BaseException) -> str:
    text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    return " ".join(itertools.islice(text.split(), 60)).split(" [[{{node")[0].rstrip(".;")


def _advice(format_: str) -> str:
    also = " --bad_rows=drop leaves out lines that cannot be read." if format_ == "csv" else ""
    return f"it may be damaged: get it again or leave it out.{also}"
