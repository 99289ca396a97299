"""Tables in many Parquet files, cut into blocks of rows that can be read in any order.

    shards = open_shards("trips/*.parquet", layouts=[{"x": Field("distance"), "y": Field("fare")}])
    frame = shards.read(7)                              # block 7 as a DataFrame with the columns "x" and "y"

A block is a row group. Finding the blocks reads the footers of the files. Paths with "://" may be on any file system
that pyarrow knows.
"""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data.delimited import check_names
from gpflow_deep_runs.data.libraries import pa, pd
from gpflow_deep_runs.data.sources import is_delimited
from gpflow_deep_runs.data.streams import storage

__all__ = ["DELIMITER", "Block", "Field", "Layout", "Shards", "columns_of", "find_files", "open_shards"]

_CONVERTED = (".npz", ".tfrecord", ".tfrecords")

DELIMITER = b"gpflow_deep.delimiter"
"""Metadata of a file: what stood between the columns of the text that it was made of."""

Kind = Literal["number", "time", "text", "any"]
"""What values are taken for; "any": what the file has."""


class Field(NamedTuple):
    """A column of a file: its name, and what its values are taken for."""

    column: str
    kind: Kind = "number"


Layout = Mapping[str, Field]
"""Name that the program uses -> column of the file."""


class Block(NamedTuple):
    """A row group of one file.

    :ivar file: number of the file in `Shards.files`.
    :ivar group: number of the row group in it.
    :ivar first_row: number of the first row within the file.
    :ivar num_rows: rows.
    """

    file: int
    group: int
    first_row: int
    num_rows: int


@dataclass(frozen=True, eq=False)
class Shards:
    """The files of a table; :func:`open_shards` makes it.

    :param files: paths, sorted.
    :param names: paths relative to their common folder: what tells rows of one file from those of another.
    :param sizes: bytes of each file.
    :param layouts: the layout of each file.
    :param blocks: int64 [number of blocks, 4], a `Block` in each row.
    :param drop_bad_rows: leave out rows that cannot be read, in place of raising.
    """

    files: tuple[str, ...]
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    layouts: tuple[Layout, ...]
    blocks: NDArray[np.int64]
    drop_bad_rows: bool = False

    @property
    def delimiter(self) -> str:
        """What stood between the columns of the text that the first file was made of; "" if it was none."""
        with _named(self.files[0]):
            return _delimiter_of(self.files[0])

    def block(self, number: int) -> Block:
        """Where block `number` is."""
        return Block(*map(int, self.blocks[number]))

    def read(self, number: int) -> pd.DataFrame:
        """Rows of block `number`: a column for each entry of the layout; numbers are float64 with NaN for nulls.

        :raises ValueError: naming file and rows, if they cannot be read.
        """
        block = self.block(number)
        with self._named(block):
            table = self._table(block, self.layouts[block.file])
            return pd.DataFrame(
                {
                    name: _values(table[name], field, is_tolerant=self.drop_bad_rows)
                    for name, field in self.layouts[block.file].items()
                }
            )

    def table(self, number: int, names: Collection[str] | None = None) -> pa.Table:
        """Rows of block `number` as the file has them: a column for each entry of the layout, or for some of them.

        :raises ValueError: naming file and rows, if they cannot be read.
        """
        block = self.block(number)
        layout = self.layouts[block.file]
        with self._named(block):
            return self._table(block, {name: f for name, f in layout.items() if names is None or name in names})

    def _table(self, block: Block, layout: Layout) -> pa.Table:
        stored_table = _read_group(self.files[block.file], block, [field.column for field in layout.values()])
        return pa.table({name: stored_table[field.column] for name, field in layout.items()})

    def _named(self, block: Block) -> AbstractContextManager[None]:
        rows = f" in rows {block.first_row} to {block.first_row + block.num_rows - 1}"
        return _named(self.files[block.file], rows)


def find_files(pattern: str) -> tuple[str, ...]:
    """Parquet files, sorted.

    :param pattern: a file, a folder, a glob pattern (`trips/*.parquet`), or several of these separated by commas.
    :raises ValueError: if there are none, or they are of another format.
    """
    files: list[str] = []
    parts = [pattern] if os.path.exists(pattern) else [part.strip() for part in pattern.split(",")]
    for part in filter(None, parts):
        try:
            is_folder = storage.is_folder(part)
            paths = storage.find(os.path.join(part, "*") if is_folder else part)
        except OSError as error:
            raise ValueError(f"{part!r} must be a file, folder or pattern: {_short(error)}.") from error
        # A folder may hold other files beside those of Parquet
        others = [path for path in paths if not path.lower().endswith(".parquet")]
        if is_folder and len(others) < len(paths):
            paths = [path for path in paths if path not in others]
        elif others:
            is_known = is_delimited(others[0]) or others[0].lower().endswith(_CONVERTED)
            cure = (
                f"convert: `gpflow-deep convert --data={shlex.quote(part)} --output=FOLDER`" if is_known else "convert"
            )
            raise ValueError(f"a stream must be .parquet files, got {others[0]}; {cure} and give --data=FOLDER.")
        if not paths:
            raise ValueError(f"{part!r} must name .parquet files, but there are none; check the path.")
        files += paths
    if not files:
        raise ValueError("a stream must be .parquet files, got no path; give --data.")
    return tuple(sorted(set(files)))


def open_shards(pattern: str, *, layouts: Sequence[Layout], drop_bad_rows: bool = False) -> Shards:
    """Find the files and their blocks.

    :param pattern: see :func:`find_files`.
    :param layouts: which columns to read; in each file the first layout whose columns are all there.
    :param drop_bad_rows: see :class:`Shards`.
    :raises ValueError: naming the file: one that cannot be read, that has other columns, or columns of another kind,
        than the layouts want; or no rows at all.
    """
    files = find_files(pattern)
    sizes = tuple(map(storage.size, files))
    chosen = []
    blocks = []
    # The layout of each file, and a block for each of its row groups
    for number, path in enumerate(files):
        chosen.append(_layout(path, columns_of(path), layouts, files[0]))
        first_row = 0
        with _named(path):
            for group, rows in _row_groups(path):
                blocks.append(Block(number, group, first_row, rows))
                first_row += rows
    if not blocks:
        raise ValueError(f"{pattern} must hold rows, but its {len(files)} files have none; check the path.")
    # Paths below the common folder, so that rows keep their parts where files move together
    folder = os.path.commonpath([os.path.dirname(path) for path in files]) if len(files) > 1 else ""
    names = tuple(os.path.relpath(path, folder) if folder else os.path.basename(path) for path in files)
    table = np.array(blocks, dtype=np.int64).reshape(-1, len(Block._fields))
    return Shards(files, names, sizes, tuple(chosen), table, drop_bad_rows)


def columns_of(path: str) -> dict[str, Kind]:
    """Columns of a file and their kinds.

    :raises ValueError: if the file cannot be read.
    """
    with _named(path):
        return _kinds(path)


def _layout(path: str, kinds: Mapping[str, Kind], layouts: Sequence[Layout], first: str) -> Layout:
    """The layout whose columns the file has, checked for their kinds."""
    for layout in layouts:
        if all(field.column in kinds for field in layout.values()):
            break
    else:
        column_names = [field.column for field in layouts[0].values()]
        absent = ", ".join(repr(column) for column in column_names if column not in kinds)
        which = "" if path == first else f" as {first} has"
        raise ValueError(f"{path} must have the columns of the stream{which}, but lacks {absent}; leave the file out.")
    for field in layout.values():
        kind = kinds[field.column]
        is_readable = kind == field.kind or (kind == "text" and field.kind == "time") or field.kind in ("text", "any")
        if not is_readable:
            raise ValueError(
                f"{path} must have {field.kind}s in column {field.column!r}, got {kind}; convert it, or leave the "
                "file out."
            )
    return layout


@contextmanager
def _named(path: str, where: str = "") -> Iterator[None]:
    """Errors name the file, and where in it."""
    try:
        yield
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        if path in str(error) and not where:
            raise ValueError(str(error)) from error
        advice = "it may be damaged: get it again or leave it out."
        raise ValueError(f"{path} cannot be read{where}: {_short(error)}; {advice}") from error


def _short(error: BaseException) -> str:
    return " ".join(itertools.islice(str(error).split(), 60)).rstrip(".;")


def _kinds(path: str) -> dict[str, Kind]:
    """Columns of a file and their kinds; without an index of pandas.

    :raises ValueError: if names of columns occur twice or are empty.
    """
    with _open_parquet(path) as file:
        schema = file.schema_arrow
        check_names([name.strip() for name in schema.names], path)
        index = [name for name in (schema.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)]
        return {field.name: _kind_of(field.type) for field in schema if field.name not in index}


def _delimiter_of(path: str) -> str:
    """What stood between the columns of the text that `gpflow-deep convert` made a file of; "" of others."""
    with _open_parquet(path) as file:
        return (file.schema_arrow.metadata or {}).get(DELIMITER, b"").decode()


def _row_groups(path: str) -> Iterator[tuple[int, int]]:
    """Number and rows of each row group that holds rows."""
    with _open_parquet(path) as file:
        for group in range(file.metadata.num_row_groups):
            if rows := file.metadata.row_group(group).num_rows:
                yield group, rows


def _read_group(path: str, block: Block, columns: Sequence[str]) -> pa.Table:
    """Some columns of a row group; all texts are of Arrow's type "string"."""
    with _open_parquet(path) as file:
        table = file.read_row_group(block.group, columns=list(columns))
    types = [_with_strings(field.type) for field in table.schema]
    if types == table.schema.types:
        return table
    return table.cast(pa.schema(list(zip(table.column_names, types, strict=True))))


def _with_strings(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return pa.dictionary(kind.index_type, _with_strings(kind.value_type)) if pa.types.is_dictionary(kind) else kind


def _open_parquet(path: str) -> pa.parquet.ParquetFile:
    if not storage.is_remote(path):
        return pa.parquet.ParquetFile(path)
    return pa.parquet.ParquetFile(pa.PythonFile(storage.open_file(path), mode="r"))


def _kind_of(type_: pa.DataType) -> Kind:
    """What values of a type of Arrow are taken for."""
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_):
        return "number"
    if pa.types.is_decimal(type_) or pa.types.is_null(type_):
        return "number"
    return "time" if pa.types.is_timestamp(type_) or pa.types.is_date(type_) else "text"


def _values(column: pa.ChunkedArray, field: Field, *, is_tolerant: bool = False) -> Any:
    """A column as its field wants it: float64 with NaN for nulls, times or texts.

    :param is_tolerant: a text that is no time is a missing one.
    :raises ValueError: if there is such a text otherwise.
    """
    if field.kind == "number":
        return pa.compute.cast(column, pa.float64(), safe=False).to_numpy()
    frame = column.to_pandas(date_as_object=False)
    if field.kind == "time" and not pd.api.types.is_datetime64_any_dtype(frame):
        return pd.to_datetime(frame, format="%Y-%m-%d %H:%M:%S", errors="coerce" if is_tolerant else "raise")
    return frame
