"""Tables in many Parquet files, cut into blocks of rows that can be read in any order.

    shards = open_shards("trips/*.parquet", layouts=[{"x": "distance", "y": "fare"}])
    table = shards.table(7)                             # block 7 with the columns "x" and "y"

A block is a row group. Finding the blocks reads the footers of the files. Paths with "://" may be on any file system
that pyarrow knows, among others `gs://bucket/trips/*.parquet`, `s3://...`, `hdfs://...` and `file:///...`.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_base.storage.limits import one_line
from gpflow_deep_runs.data.files.delimited import check_names
from gpflow_deep_runs.data.files.libraries import pa
from gpflow_deep_runs.data.files.sources import is_delimited, names_of_pandas

__all__ = ["DELIMITER", "Block", "Layout", "Shards", "column_names", "find", "find_files", "located", "open_shards"]

DELIMITER = b"gpflow_deep.delimiter"
"""Metadata of a file: what stood between the columns of the text that it was made of."""

Layout = Mapping[str, str]
"""Name that the program uses -> column of the file."""

_CONVERTED = (".npz", ".tfrecord", ".tfrecords")


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
        with _opened(self.files[0]) as file:
            return (file.schema_arrow.metadata or {}).get(DELIMITER, b"").decode()

    def block(self, number: int) -> Block:
        """Where block `number` is."""
        return Block(*map(int, self.blocks[number]))

    def table(self, number: int, names: Collection[str] | None = None) -> pa.Table:
        """Rows of block `number`: a column for each entry of the layout, or for some of them; texts are strings.

        :raises ValueError: naming file and rows, if they cannot be read.
        """
        block = self.block(number)
        layout = {name: column for name, column in self.layouts[block.file].items() if names is None or name in names}
        rows = f" in rows {block.first_row} to {block.first_row + block.num_rows - 1}"
        # Only these columns are read.
        with _opened(self.files[block.file], rows) as file:
            table = file.read_row_group(block.group, columns=list(layout.values()))
            return pa.table({name: _with_strings(table[column]) for name, column in layout.items()})


def located(path: str) -> tuple[pa.fs.FileSystem, str]:
    """The file system of a path, and the place in it.

    :raises OSError: if pyarrow has none.
    """
    if "://" not in path:
        return pa.fs.LocalFileSystem(), path
    try:
        system, place = pa.fs.FileSystem.from_uri(path)
    except (pa.ArrowException, ImportError) as error:
        raise OSError(f"{path} is on no file system of pyarrow ({error})") from error
    return system, str(place)


def find(pattern: str) -> tuple[list[str], bool]:
    """Files that match a pattern with `*`, `?` and `[...]`, none of which stands for "/", or that a folder holds.

    A local file of that very name goes first, and local names that begin with a dot are hidden, as in a shell.

    :return: the paths, sorted, and whether it is a folder.
    :raises OSError: if pyarrow has no such file system.
    """
    # The folder above the first wildcard, and the patterns below it.
    folder, _, names = re.sub(r"/([^/]*[*?\[].*)$", r"\n\1", pattern).partition("\n")
    is_local = "://" not in pattern
    # A local name, or one without a wildcard, is a file, a folder or a pattern.
    if is_local or not names:
        system, place = located(pattern)
        kind = system.get_file_info(place).type
        if kind == pa.fs.FileType.Directory:
            return find(f"{pattern.rstrip('/')}/*")[0], True
        if kind == pa.fs.FileType.File:
            return [pattern], False
        return sorted(filter(os.path.isfile, glob.glob(pattern))) if is_local else [], False
    system, place = located(folder)
    # Elsewhere all files below the folder are listed, and compared name by name.
    parts = names.split("/")
    chosen = pa.fs.FileSelector(place, allow_not_found=True, recursive=len(parts) > 1)
    inner = [entry.path[len(place) :].strip("/") for entry in system.get_file_info(chosen) if entry.is_file]
    return sorted(f"{folder}/{path}" for path in inner if _fits(path.split("/"), parts)), False


def _fits(names: list[str], patterns: list[str]) -> bool:
    """Whether each name of a path fits the pattern in its place."""
    return len(names) == len(patterns) and all(map(fnmatch.fnmatchcase, names, patterns))


def find_files(pattern: str) -> tuple[str, ...]:
    """Parquet files, sorted.

    :param pattern: a file, a folder, a glob pattern (`trips/*.parquet`), or several of these separated by commas.
    :raises ValueError: if there are none, or they are of another format.
    """
    files: list[str] = []
    parts = [pattern] if os.path.exists(pattern) else [part.strip() for part in pattern.split(",")]
    for part in filter(None, parts):
        try:
            paths, is_folder = find(part)
        except OSError as error:
            raise ValueError(f"{part!r} must be a file, folder or pattern: {one_line(error)}.") from error
        # A folder may hold other files beside those of Parquet.
        others = [path for path in paths if not path.lower().endswith(".parquet")]
        if is_folder and len(others) < len(paths):
            paths = [path for path in paths if path not in others]
        elif others:
            is_known = is_delimited(others[0]) or others[0].lower().endswith(_CONVERTED)
            command = f": `gpflow-deep convert --data={shlex.quote(part)} --output=FOLDER`" if is_known else ""
            raise ValueError(
                f"a stream must be .parquet files, got {others[0]}; convert{command} and give --data=FOLDER."
            )
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
    :raises ValueError: naming the file: one that cannot be read, that has other columns than the layouts want; or no
        rows at all.
    """
    files = find_files(pattern)
    chosen = []
    sizes = []
    blocks = []
    # The layout of each file, and a block for each of its row groups.
    for number, path in enumerate(files):
        chosen.append(_layout(path, layouts, files[0]))
        first_row = 0
        with _opened(path) as file:
            system, place = located(path)
            sizes.append(int(system.get_file_info(place).size))
            for group in range(file.metadata.num_row_groups):
                if rows := file.metadata.row_group(group).num_rows:
                    blocks.append(Block(number, group, first_row, rows))
                    first_row += rows
    if not blocks:
        raise ValueError(f"{pattern} must hold rows, but its {len(files)} files have none; check the path.")
    # Paths below the common folder, so that rows keep their parts where files move together.
    folder = os.path.commonpath([os.path.dirname(path) for path in files]) if len(files) > 1 else ""
    names = tuple(os.path.relpath(path, folder) if folder else os.path.basename(path) for path in files)
    return Shards(files, names, tuple(sizes), tuple(chosen), np.array(blocks, dtype=np.int64), drop_bad_rows)


def column_names(path: str) -> list[str]:
    """Names of the columns of a file, without an index of pandas.

    :raises ValueError: if the file cannot be read, or names of columns occur twice or are empty.
    """
    with _opened(path) as file:
        schema = file.schema_arrow
        check_names([name.strip() for name in schema.names], path)
        _, index = names_of_pandas(schema)
        return [name for name in schema.names if name not in index]


def _layout(path: str, layouts: Sequence[Layout], first: str) -> Layout:
    """The first layout whose columns the file has."""
    names = column_names(path)
    for layout in layouts:
        if set(layout.values()) <= set(names):
            return layout
    absent = ", ".join(repr(column) for column in layouts[0].values() if column not in names)
    which = "" if path == first else f" as {first} has"
    raise ValueError(f"{path} must have the columns of the stream{which}, but lacks {absent}; leave the file out.")


@contextmanager
def _opened(path: str, where: str = "") -> Iterator[pa.parquet.ParquetFile]:
    """A Parquet file; errors name it, and where in it."""
    try:
        system, place = located(path)
        with pa.parquet.ParquetFile(place, filesystem=system) as file:
            yield file
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        # An error that names the file needs no more words.
        if path in str(error) and not where:
            raise ValueError(str(error)) from error
        message = one_line(error).rstrip(".;")
        advice = "it may be damaged: get it again or leave it out."
        raise ValueError(f"{path} cannot be read{where}: {message}; {advice}") from error


def _with_strings(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts of other types of Arrow, also as levels, as its type "string"."""
    kind = _string_type(column.type)
    return column if kind == column.type else column.cast(kind)


def _string_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _string_type(kind.value_type))
    is_other = pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return pa.string() if is_other else kind
