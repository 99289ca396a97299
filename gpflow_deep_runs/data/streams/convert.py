"""Tables as Parquet, which streams read: from delimited text, TFRecord and NPZ files.

    convert("trips/*.csv", "trips_parquet")          # trips_parquet/2019-01.parquet, ...

Columns of plain numbers become numbers, in all files alike; all other texts stay as they are written, so that a stream
reads them as they are read in memory. What was written is read back and compared before the folder gets its name.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gpflow_deep_runs.data.files.delimited import Dialect
from gpflow_deep_runs.data.files.libraries import pa, pc
from gpflow_deep_runs.data.files.packed import COMPRESSIONS
from gpflow_deep_runs.data.files.sources import file_dialect, is_delimited, read_source, text_batches
from gpflow_deep_runs.data.streams.files import DELIMITER, find
from gpflow_deep_runs.data.table import notes
from gpflow_deep_runs.data.table.inference import plain_column
from gpflow_deep_runs.data.table.spec import TableSpec
from gpflow_deep_runs.data.values.cells import MARKERS, is_missing, missing_texts

__all__ = ["Converted", "convert"]

_RECORDS = (".tfrecord", ".tfrecords")

_BATCH = 4096


class Converted(NamedTuple):
    """What :func:`convert` wrote.

    :ivar files: names of the Parquet files in the folder.
    :ivar num_rows: rows of all files.
    :ivar numeric: names of the columns of numbers.
    :ivar texts: names of the columns of texts.
    :ivar said: what has to be known of the reading.
    """

    files: tuple[str, ...]
    num_rows: int
    numeric: tuple[str, ...]
    texts: tuple[str, ...]
    said: tuple[str, ...]


class _Source(NamedTuple):
    """A file to convert: its rows as tables, as often as they are asked for, its metadata, and what is to be said."""

    path: Path
    tables: Callable[[], Iterator[pa.Table]]
    metadata: Mapping[bytes, bytes] = {}
    said: tuple[str, ...] = ()


def convert(
    pattern: str, output: str | os.PathLike[str], *, spec: TableSpec = TableSpec(), rows_per_group: int = 2**15
) -> Converted:
    """Write the rows of files as Parquet files of the same names in a new folder: all of them, or nothing.

    :param pattern: a file, a folder, a glob pattern, or several of these separated by commas.
    :param output: the folder, which must not be there yet.
    :param spec: how a text is read: its encoding, names, lines above the header, and what becomes of bad rows.
    :param rows_per_group: rows of a row group, which is a block of a stream.
    :raises ValueError: naming the file, and the row: it cannot be read as a table.
    :raises OSError: if the folder cannot be written.
    """
    folder = Path(output).expanduser()
    if folder.exists():
        raise ValueError(f"--output must be a new folder, but {folder} is there already; choose another.")
    if rows_per_group < 1:
        raise ValueError(f"--rows_per_group must be at least 1, got {rows_per_group}.")
    sources = [_source(path, spec) for path in _find(pattern)]
    # The types, which all files share.
    types = _types(sources)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # The files, in a folder that gets its name when all are written.
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        num_rows = sum(_write(source, temporary, types, rows_per_group) for source in sources)
        temporary.chmod(0o755)
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    is_text = {name: pa.types.is_string(kind) for name, kind in types.items()}
    said = dict.fromkeys(f"{source.path}: {note}" for source in sources for note in source.said)
    return Converted(
        tuple(f"{_stem(source.path)}.parquet" for source in sources),
        num_rows,
        tuple(name for name in types if not is_text[name]),
        tuple(name for name in types if is_text[name]),
        tuple(said),
    )


def _find(pattern: str) -> list[Path]:
    """The files, sorted.

    :raises ValueError: if there are none, or two would get the same name.
    """
    parts = [pattern] if os.path.exists(pattern) else [part.strip() for part in pattern.split(",")]
    paths: set[Path] = set()
    # Files of other kinds may lie in a folder, but not be named alone.
    for part in filter(None, parts):
        part_paths = [Path(path) for path in find(part)[0]]
        if not part_paths:
            raise ValueError(f"--data must name files, but there are none at {part!r}; check the path.")
        paths |= {path for path in part_paths if _is_table(path)} if len(part_paths) > 1 else set(part_paths)
    # The name of a Parquet file is that of its source, without how it is packed.
    stems = sorted(map(_stem, paths))
    if twice := [stem for stem in stems if stems.count(stem) > 1]:
        raise ValueError(f"two files would become {twice[0]}.parquet; convert them into different folders.")
    if unknown := [path for path in paths if not _is_table(path)] or not paths:
        example = unknown[0].name if isinstance(unknown, list) else "no file"
        raise ValueError(f"--data must be delimited text, .tfrecord or .npz files, got {example}.")
    return sorted(paths)


def _is_table(path: Path) -> bool:
    return is_delimited(path) or path.suffix.lower() in (".npz", *_RECORDS)


def _stem(path: Path) -> str:
    """The name of a file without its suffixes."""
    packed = path.suffix.lower().removeprefix(".") in COMPRESSIONS
    return Path(path.stem).stem if packed else path.stem


def _source(path: Path, spec: TableSpec) -> _Source:
    if path.suffix.lower() in _RECORDS:
        return _Source(path, lambda: _records_as_tables(str(path)))
    if path.suffix.lower() == ".npz":
        table = read_source(path, spec=spec)
        said = ("its standard splits are left out",) if table.splits else ()
        return _Source(path, lambda: iter([table.columns]), said=said)
    # A text keeps its delimiter, which tells decimal commas from thousands.
    dialect = _dialect(path, spec)
    metadata = {DELIMITER: dialect.delimiter.encode()}
    return _Source(path, lambda: text_batches(path, dialect, spec), metadata, dialect.notes)


def _dialect(path: Path, spec: TableSpec) -> Dialect:
    """How a text is written; a file without a line of names has the columns x0, x1, ..."""
    dialect = file_dialect(path, spec, names_optional=True)
    if any("first line is a row" in note for note in dialect.notes):
        return file_dialect(path, spec, names_optional=False)  # whose names may occur twice
    return dialect


def _types(sources: list[_Source]) -> dict[str, pa.DataType]:
    """The type of each column: numbers where all its texts in all files are plain numbers or missing."""
    types: dict[str, pa.DataType | None] = {}
    for source in sources:
        # Typed columns of two types, and texts after numbers, need one that holds both.
        for table in source.tables():
            for name, column in zip(table.column_names, table.columns, strict=True):
                before = types.get(name)
                if not pa.types.is_string(column.type):
                    is_same = before in (None, column.type)
                    types[name] = column.type if is_same else pa.float64()
                elif before != pa.string():
                    types[name] = _type_of(column, before)
    return {name: pa.string() if kind is None else kind for name, kind in types.items()}


def _type_of(texts: pa.ChunkedArray, before: pa.DataType | None) -> pa.DataType | None:
    """What texts become, after what those above them did: whole numbers, numbers, texts, or None if all are missing."""
    plain = plain_column(texts, MARKERS, is_decimal=before == pa.float64())
    # Texts that are no numbers, unless all of them are missing.
    if plain is None:
        unique = pc.utf8_trim_whitespace(pc.unique(pc.drop_null(texts)))
        return before if is_missing(unique, (), markers=True).all() else pa.string()
    sign, numbers = plain
    if notes.of_values("", numbers):  # days such as 20201231, or more digits than a number holds
        return pa.string()
    if sign or before == pa.float64():
        return pa.float64()
    # Whole numbers, if int64 holds them.
    try:
        _numbers(texts, pa.int64())
    except pa.ArrowInvalid:
        return pa.float64()
    return pa.int64()


def _numbers(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    trimmed = pc.utf8_trim_whitespace(texts)
    missing = pa.array(missing_texts((), markers=True), pa.string())
    is_known = pc.invert(pc.is_in(trimmed, value_set=missing))
    return pc.if_else(is_known, trimmed, pa.scalar(None, pa.string())).cast(kind)


def _groups(source: _Source, types: Mapping[str, pa.DataType], size: int) -> Iterator[pa.Table]:
    """The rows of a file in row groups, in the types that they are written in."""
    held: list[pa.Table] = []
    num_held = 0
    for table in source.tables():
        typed = {name: _typed(table[name], types[name]) for name in table.column_names}
        held.append(pa.table(typed))
        num_held += len(table)
        # Full row groups; the rest waits for the next table.
        while num_held >= size:
            joined = pa.concat_tables(held)
            yield joined.slice(0, size)
            held = [joined.slice(size)]
            num_held -= size
    if num_held:
        yield pa.concat_tables(held)


def _typed(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Values of a type; a number that is not there is null."""
    if pa.types.is_string(column.type):
        return column if pa.types.is_string(kind) else _numbers(column, kind)
    column = column.cast(kind)
    return pc.if_else(pc.is_nan(column), pa.scalar(None, kind), column) if pa.types.is_floating(kind) else column


def _write(source: _Source, folder: Path, types: Mapping[str, pa.DataType], size: int) -> int:
    """Write a file, read it back and compare; the number of its rows."""
    path = folder / f"{_stem(source.path)}.parquet"
    writer = None
    for group in _groups(source, types, size):
        if writer is None:
            schema = group.schema.with_metadata(dict(source.metadata))
            writer = pa.parquet.ParquetWriter(path, schema)
        writer.write_table(group.replace_schema_metadata(dict(source.metadata)), row_group_size=size)
    if writer is None:
        raise ValueError(f"{source.path} must hold rows, but has none; leave it out.")
    writer.close()
    # Read back what was written.
    with pa.parquet.ParquetFile(path) as written:
        for number, group in enumerate(_groups(source, types, size)):
            stored = written.read_row_group(number).replace_schema_metadata()
            if not stored.cast(group.schema.remove_metadata()).equals(group):  # Parquet has no seconds
                raise OSError(f"{path} does not hold what was written to it; check the disk.")
        return int(written.metadata.num_rows)


def _records_as_tables(path: str) -> Iterator[pa.Table]:
    """The records of a TFRecord file, piece by piece: float32, int64 or strings, of bytes in UTF-8.

    A feature that an example lacks, or that is empty there, is a missing value.

    :raises ValueError: naming the file: it is damaged, or a feature has several values or is stored in different ways.
    """
    types = {"float_list": pa.float32(), "int64_list": pa.int64(), "bytes_list": pa.string()}
    try:
        # How each feature is stored in all records, then their values.
        kinds: dict[str, str] = {}
        for features in _examples(path):
            for name, feature in features.items():
                kind = feature.WhichOneof("kind")
                if kind is not None and kinds.setdefault(name, kind) != kind:
                    raise OSError(f"the feature {name!r} is stored as {kinds[name]} and as {kind}")
        if not kinds:
            raise OSError("it holds no records, or no features")
        # Each feature has one type in all records.
        schema = pa.schema({name: types[kinds[name]] for name in sorted(kinds)})
        rows = ({name: _value(name, feature) for name, feature in features.items()} for features in _examples(path))
        while some := list(itertools.islice(rows, _BATCH)):
            yield pa.Table.from_pylist(some, schema)
    except (OSError, UnicodeError, pa.ArrowInvalid) as error:
        raise ValueError(f"{path} cannot be read as TFRecord: {error}; get it again or leave it out.") from error


def _examples(path: str) -> Iterator[Mapping[str, Any]]:
    """The features of each record, by their names.

    :raises OSError: with TensorFlow's message in one line.
    """
    import tensorflow as tf  # only here: who reads other tables need not wait for it

    try:
        for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
            yield tf.train.Example.FromString(record).features.feature
    except tf.errors.OpError as error:
        text = " ".join(str(error.message).split(" [[{{node")[0].split())
        raise OSError(text or type(error).__name__) from error


def _value(name: str, feature: Any) -> Any:
    """The only value of a feature, None if it has none."""
    kind = feature.WhichOneof("kind")
    values = [] if kind is None else getattr(feature, kind).value
    if len(values) > 1:
        raise OSError(f"the feature {name!r} must have one value in each example, got several")
    value = next(iter(values), None)
    return value.decode() if isinstance(value, bytes) else value
