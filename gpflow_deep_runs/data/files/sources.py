"""A table from wherever it is: delimited text, Parquet, arrays, or a data frame, whole and with distinct column names.

read_source("shop.csv.gz").columns                      # a pyarrow.Table of strings
read_source(pandas.DataFrame({"a": [1.5, 2.5]})).columns
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import io
import json
import os
import re
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_base.storage.container import read_npz
from gpflow_deep_base.storage.limits import Budget, one_line
from gpflow_deep_runs.data.files.delimited import (
    HEAD_BYTES,
    Dialect,
    check_names,
    check_quotes,
    dialect_of,
    foot_of,
    is_of_encoding,
    joined,
    read_batches,
    read_text,
)
from gpflow_deep_runs.data.files.encodings import encoding_of
from gpflow_deep_runs.data.files.libraries import pa, pc, pd
from gpflow_deep_runs.data.files.packed import COMPRESSIONS, UNPACK_ERRORS, budget_of, check_file, open_unpacked
from gpflow_deep_runs.data.files.typed import kind_of_type
from gpflow_deep_runs.data.table.doubts import labels_of
from gpflow_deep_runs.data.table.spec import TableSpec

__all__ = [
    "SUFFIXES",
    "Table",
    "decoded_texts",
    "file_dialect",
    "is_delimited",
    "names_of_pandas",
    "read_source",
    "text_batches",
]

SUFFIXES = (
    ".csv, .tsv, .txt, .dat, .data, .train or .test (each also with .gz, .bz2, .xz, .zst or .zip), .jsonl, .ndjson, "
    ".json, .xlsx, .xls, .dta, .feather, .parquet or .npz"
)

_INDEX = "the index of the frame; reset_index() makes a column of it"

_PARTS = (".data", ".train", ".test", ".tra", ".tes", ".trn", ".tst")
"""Of texts that have no line of names, as those of the UCI repository."""
_TEXT = (".csv", ".tsv", ".txt", ".dat", *_PARTS)
_TEXT_TYPES = ("large_string", "string_view")
_MIXED = ("mixed-integer", "mixed")
"""What pandas calls texts beside numbers."""

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
    others = tuple(f"{other}.zip" for other in (*_OTHERS, ".parquet", ".feather", ".npz"))
    is_archive = name.endswith(".zip") and not name.endswith(others)
    return is_archive or name.endswith((*_TEXT, *(f"{text}.{packed}" for text in _TEXT for packed in COMPRESSIONS)))


def read_source(source: object, *, names_optional: bool = False, spec: TableSpec = TableSpec()) -> Table:
    """Read a table.

    :param source: a path (see :data:`SUFFIXES`); a pandas or polars data frame, a pyarrow table, or anything else with
        `__arrow_c_stream__`.
    :param names_optional: a first line of numbers in a text is a row, and its columns are called x0, x1, ...
    :param spec: what is known of a file: its encoding, the names of its columns, the sheet, how large it may become.
    :raises ValueError: naming the file: it is missing, empty, truncated, damaged or of another format; its names of
        columns are absent or occur twice; a row has more or fewer values than there are names.
    """
    if not isinstance(source, str | os.PathLike):
        where = "the data frame"
        return Table(_checked(_frame_columns(source, where), where), where, "table", left_out=_index_of(source))
    if re.match("[a-z][a-z0-9+.-]+://", str(source), re.IGNORECASE):
        raise ValueError(f"--data must be a file on this machine, got the address {source}; download it first.")
    # A file, by how its name ends.
    path = Path(source)
    where = str(path)
    name = path.name.split(".")[0]
    check_file(path)
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty; check how it was written.")
    if is_delimited(path):
        return _text_table(path, names_optional or not {*_PARTS}.isdisjoint(path.suffixes[-2:]), spec)
    if path.suffix.lower() in _OTHERS:
        return _other_table(path, spec)
    if path.suffix.lower() in (".parquet", ".feather"):
        columns, left_out = _arrow_columns(path, spec)
        return Table(_checked(columns, where), where, name, left_out=left_out)
    if path.suffix.lower() == ".npz":
        return _npz_table(read_npz(path, max_bytes=spec.file.max_bytes), where, name)
    raise ValueError(f"--data must end in {SUFFIXES}, got {path.name}; convert the file.")


_PLACE = re.compile(rb'\b(?:r|ref)="(?:[A-Z]{1,3}[0-9]{1,7}:)?([A-Z]{1,3})([0-9]{1,7})"')
"""Where a cell of a sheet is, or where its last one is."""

_OTHERS = (".jsonl", ".ndjson", ".json", ".xlsx", ".xls", ".xlsm", ".dta")


def _other_table(path: Path, spec: TableSpec) -> Table:
    """A table of a spreadsheet, of lines of JSON, or of Stata."""
    suffix = path.suffix.lower()
    where = str(path)
    sheets: dict[str, pd.DataFrame | None] | None = None
    # Each kind of file by the library that knows it.
    try:
        if suffix == ".dta":
            frame = pd.read_stata(path)
        elif suffix in (".jsonl", ".ndjson", ".json"):
            content = path.read_text(encoding="utf-8-sig")
            frame = _json_frame(content, budget_of(path, spec.file.max_bytes), is_lines=suffix != ".json")
        else:
            _check_archive(path, spec)
            sheets = _sheets_of(path, spec.file.sheet)
    except ImportError as error:
        raise ValueError(f"reading {path} needs a library that is not installed ({error}); write it as CSV.") from error
    except Exception as error:  # of libraries, whose errors are of many kinds where a file is damaged
        raise ValueError(f"{path} cannot be read as a table ({one_line(error)}); write it again, or as CSV.") from error
    if sheets is not None:
        return _sheet_table(sheets, path, spec)
    return Table(_checked(_frame_columns(frame, where), where), where, path.name.split(".")[0])


def _json_frame(content: str, budget: Budget, *, is_lines: bool) -> pd.DataFrame:
    """Lines of objects, a list of them, or what `DataFrame.to_json` writes in other orders.

    :raises ValueError: if it is something else, or larger than the budget.
    """
    # One text of JSON, or one a line.
    try:
        parsed = json.loads(content)
    except json.JSONDecodeError:
        parsed = None
    if is_lines or parsed is None:  # a single line is a row, too
        parsed = [json.loads(line) for line in content.split("\n") if line.strip()]  # texts may hold other line ends
    # The orders in which pandas writes a frame, or a list of rows.
    if isinstance(parsed, dict) and isinstance(parsed.get("data"), list) and "columns" not in parsed:
        parsed = parsed["data"]  # of the order "table", or of a service
    if isinstance(parsed, dict):
        frame = _frame_of(parsed)
    elif isinstance(parsed, list) and all(isinstance(row, dict) for row in parsed):
        rows = list(map(_flat, parsed))
        num_names = len(set().union(*rows))
        budget.take(8 * len(rows) * num_names, f"a table of {len(rows):,} rows, {num_names:,} columns")
        frame = pd.DataFrame(rows)
    else:
        raise ValueError('each row must be an object, as {"a": 1, "b": "x"}')
    # Lists stay texts.
    for name in frame.columns[[pd.api.types.is_object_dtype(kind) for kind in frame.dtypes]]:
        frame[name] = frame[name].map(lambda value: json.dumps(value) if isinstance(value, list | dict) else value)
    return frame


def _flat(row: Mapping[str, object]) -> dict[str, object]:
    """A row whose objects within are columns, too: `{"user": {"age": 5}}` has the column "user.age".

    :raises ValueError: if two values would have one name.
    """
    flat: dict[str, object] = {}
    for name, value in row.items():
        inner = {f"{name}.{key}": item for key, item in _flat(value).items()} if isinstance(value, dict) else {}
        if twice := flat.keys() & (inner or {name: value}).keys():
            raise ValueError(f"two values of a row would be called {min(twice)!r}")
        flat |= inner or {name: None if value == {} else value}
    return flat


def _frame_of(found: Mapping[str, Any]) -> pd.DataFrame:
    """A table as one object: of columns, of rows, or of names and rows."""
    if {"columns", "data"} <= set(found):
        return pd.DataFrame(found["data"], columns=found["columns"])
    # Columns as lists of one length, or as objects of the same rows.
    parts = list(found.values())
    if parts and all(isinstance(part, list) and len(part) == len(parts[0]) for part in parts):
        return pd.DataFrame(found)
    if parts and all(isinstance(part, dict) and set(part) == set(parts[0]) for part in parts):
        has_numbers = all(key.isdecimal() for key in parts[0])  # of rows
        return pd.DataFrame(found) if has_numbers else pd.DataFrame(parts)
    raise ValueError('each row must be an object, as {"a": 1, "b": "x"}')


def _sheets_of(path: Path, name: str) -> dict[str, pd.DataFrame | None]:
    """The sheets of a workbook up to the one that is wanted, or the first one that may be a table; the others None."""
    with pd.ExcelFile(path) as book:
        sheets: dict[str, pd.DataFrame | None] = dict.fromkeys(map(str, book.sheet_names))
        # Titles alone are a single row or column.
        for sheet in [name] if name else sheets:
            if sheet in sheets:
                sheets[sheet] = book.parse(sheet, header=None, dtype=object, keep_default_na=False, na_values=[""])
            if (cells := sheets.get(sheet)) is not None and min(cells.shape) > 1:
                break
        return sheets


def _sheet_table(sheets: Mapping[str, pd.DataFrame | None], path: Path, spec: TableSpec) -> Table:
    """The sheet that the user names, or the first one with rows and columns, with titles and notes around its table.

    It is written as text and read as such.

    :param sheets: as of :func:`_sheets_of`.
    :raises ValueError: naming the sheets, if there is none of that name.
    """
    if spec.file.sheet and spec.file.sheet not in sheets:
        raise ValueError(f"--sheet must be one of {', '.join(map(repr, sheets))} in {path}, got {spec.file.sheet!r}.")
    # The last sheet that was read is the one that is wanted.
    chosen, cells = [(name, cells) for name, cells in sheets.items() if cells is not None][-1]
    where = str(path)
    notes = list[str]()
    if len(sheets) > 1:
        said = f"the sheet {chosen!r} of {len(sheets)}"
        notes.append(f"{said} (--sheet=NAME reads another)")
        where = f"{path} ({said}; --sheet=NAME reads another)"
    # Its cells become lines of text, whose titles and notes are found as in a file.
    buffer = io.StringIO()
    cells.apply(_as_texts).to_csv(buffer, header=False, index=False, sep="\t")
    content = buffer.getvalue().encode()
    dialect = dialect_of(
        content,
        where,
        is_whole=True,
        names=spec.file.names,
        skip_rows=spec.file.skip_rows,
        wanted=(*spec.target, *spec.features),
    )
    table = read_text(content, dialect, where, skip_footer=spec.file.skip_footer)
    return _trimmed(Table(table, where, path.name.split(".")[0], "\t"), [*notes, *dialect.notes], spec)


def _as_texts(cells: pd.Series) -> pd.Series:
    """The texts of the cells of a column; days without a time, unless one of them has a time."""
    has_time = any(isinstance(cell, datetime.datetime) and cell.time() != datetime.time() for cell in cells)
    return cells.map(lambda cell: _cell(cell, has_time))


def _cell(value: object, has_time: bool) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ") if has_time else value.date().isoformat()
    # A duration may be longer than a day.
    if isinstance(value, datetime.timedelta):
        minutes, seconds = divmod(value.total_seconds(), 60)
        return f"{minutes // 60:.0f}:{minutes % 60:02.0f}:{seconds:02.0f}"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return " ".join(str(value).split())


def _check_archive(path: Path, spec: TableSpec) -> None:
    """:raises ValueError: if a spreadsheet unpacks to more than its budget."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        budget = budget_of(path, spec.file.max_bytes)
        budget.take(sum(info.file_size for info in archive.infolist()), "the sheets, unpacked")
        for name in archive.namelist():
            if name.startswith("xl/worksheets/") and name.endswith(".xml"):
                # The last cell tells how large a sheet is before it is read.
                places = [(match[1], int(match[2])) for match in _PLACE.finditer(archive.read(name))]
                num_rows = max((row for _, row in places), default=0)
                # Of the columns A is 1 and AA is 27.
                numbers = (
                    functools.reduce(lambda n, letter: 26 * n + letter - 64, letters, 0) for letters, _ in places
                )
                num_columns = max(numbers, default=0)
                size = 8 * num_rows * num_columns
                budget.take(size, f"a sheet of {num_rows:,} rows and {num_columns:,} columns")


def _trimmed(table: Table, notes: Sequence[str], spec: TableSpec) -> Table:
    """A table of texts without empty columns that have no name, and without lines at its foot that are no rows."""
    columns = table.columns
    left_out = []
    said = list(notes)
    # Columns that have neither a name nor a value.
    for name in columns.column_names:
        if name.startswith("Unnamed: ") and not _has_values(columns[name]):
            left_out.append((name, "it has no name and no values"))
    columns = columns.drop_columns([name for name, _ in left_out])
    if not columns.column_names:
        raise ValueError(f"{table.where} has neither names of columns nor values; check how it was written.")
    # Keys of statistical offices, which are several columns in one.
    if "," in (key := columns.column_names[0]) and "\\" in key and table.delimiter != ",":
        names = [name.strip() for name in key.partition("\\")[0].split(",")]
        parts = pc.split_pattern(columns[key], ",")
        if pc.all(pc.equal(pc.list_value_length(parts), len(names))).as_py() and not {*names} & {*columns.column_names}:
            keys = {name: pc.list_element(parts, d) for d, name in enumerate(names)}
            rest = {name: columns[name] for name in columns.column_names[1:]}
            columns = pa.table(keys | rest, metadata=columns.schema.metadata)
            said.append(f"{key!r} is {len(names)} columns")
    # Rows that are further lines of names.
    for label in (labels := labels_of(columns, (*spec.categorical, *spec.ignore))):
        said.append(f"a row with {label!r} left out as a further line of names")
    columns = columns.slice(len(labels))
    # Lines at the foot that are no rows: by their length, and by what they hold.
    if foot := (columns.schema.metadata or {}).get(b"foot"):
        first = columns.schema.metadata[b"first"].decode()
        said.append(f"{foot.decode()} left out, the first {first!r} (--skip_footer=N leaves out N at the foot)")
        columns = columns.replace_schema_metadata()
    if spec.file.skip_footer is None and (count := foot_of(columns)):
        first = columns.column(0)[len(columns) - count].as_py() or ""
        said.append(
            f"{count} lines at the foot left out, the first {first[:40]!r} (--skip_footer=0 takes them for rows)"
        )
        columns = columns.slice(0, len(columns) - count)
    file_notes = (("(the file)", "; ".join(said)),) if said else ()
    return table._replace(columns=columns, left_out=(*file_notes, *left_out))


def _has_values(column: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.not_equal(pc.utf8_trim_whitespace(pc.fill_null(column, "")), "")).as_py())


def _text_table(path: Path, names_optional: bool, spec: TableSpec) -> Table:
    where = str(path)
    dialect = file_dialect(path, spec, names_optional=names_optional)
    if len(dialect.names) > _MAX_COLUMNS and spec.file.max_bytes is None:
        raise ValueError(
            f"{path} has {len(dialect.names):,} columns, more than {_MAX_COLUMNS:,}; give --max_bytes=N if you "
            "trust the file."
        )
    # Encodings are found out from the first lines, and again from all of them if these do not tell.
    try:
        columns = joined(text_batches(path, dialect, spec))
    except ValueError as error:
        if dialect.encoding != "utf-8" or not is_of_encoding(error.__cause__):
            raise
        with open_unpacked(path, spec.file.max_bytes) as stream:  # it is no UTF-8 below its first lines
            guess = encoding_of(stream.read(), where)
        if not guess:
            raise
        dialect = file_dialect(
            path, replace(spec, file=replace(spec.file, encoding=guess)), names_optional=names_optional
        )
        columns = joined(text_batches(path, dialect, spec))
    return _trimmed(Table(columns, where, path.name.split(".")[0], dialect.delimiter), dialect.notes, spec)


def file_dialect(path: Path, spec: TableSpec, *, names_optional: bool) -> Dialect:
    """How a text is written; see `delimited.dialect_of`.

    :raises ValueError: naming the file.
    """
    # Who lets a file take more memory may have longer lines.
    with _readable(path), open_unpacked(path, spec.file.max_bytes) as stream:
        head_bytes = HEAD_BYTES if spec.file.max_bytes is None else max(HEAD_BYTES, spec.file.max_bytes // 8)
        head = stream.read(head_bytes)
    return dialect_of(
        head,
        str(path),
        is_whole=len(head) < head_bytes,
        names_optional=names_optional,
        names=spec.file.names,
        encoding=spec.file.encoding,
        skip_rows=spec.file.skip_rows,
        wanted=(*spec.target, *spec.features),
    )


def text_batches(path: Path, dialect: Dialect, spec: TableSpec) -> Iterator[pa.Table]:
    """The rows of a text piece by piece; see `delimited.read_batches`.

    :raises ValueError: naming the file.
    """
    is_odd = False
    with _readable(path), open_unpacked(path, spec.file.max_bytes) as stream:
        for table in read_batches(
            stream, dialect, str(path), skip_footer=spec.file.skip_footer, drops_bad_rows=spec.bad_rows == "drop"
        ):
            is_odd |= any(map(_has_odd_quotes, table.columns))
            yield table
    # A quotation mark in a value of several lines may have joined rows.
    if is_odd and dialect.delimiter != " ":
        with _readable(path), open_unpacked(path, spec.file.max_bytes) as stream:
            check_quotes(stream, dialect, str(path))


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except UNPACK_ERRORS as error:
        raise ValueError(f"{path} is no readable, complete CSV file in UTF-8 ({error}); write it again.") from error


def _has_odd_quotes(column: pa.ChunkedArray) -> bool:
    """Whether a value has more than one line and a quotation mark: it may be several rows."""
    contents = [chunk.buffers()[2] for chunk in column.chunks]
    if not any(content is not None and b"\n" in content.to_pybytes() for content in contents):
        return False
    lines = column.filter(pc.match_substring(column, "\n"))
    return bool(len(lines) and pc.any(pc.match_substring(lines, '"')).as_py())


_MAX_COLUMNS = 20_000


_DAMAGED = (*UNPACK_ERRORS, ValueError, TypeError, LookupError, StopIteration, struct.error)


def names_of_pandas(schema: pa.Schema) -> tuple[list[str], list[str]]:
    """Columns that were categories of a frame of pandas, and those that were its index.

    What a file says of them may be anything: what is no list of such names is as if it were not there.
    """
    try:
        stored = schema.pandas_metadata
    except ValueError:  # no JSON
        return [], []
    # Only lists of names of columns that are there.
    entries = {name: stored.get(name) if isinstance(stored, dict) else None for name in ("columns", "index_columns")}
    columns, index = (entry if isinstance(entry, list) else [] for entry in entries.values())
    categories = [c.get("name") for c in columns if isinstance(c, dict) and c.get("pandas_type") == "categorical"]

    def known(names: list[object]) -> list[str]:
        return [name for name in names if isinstance(name, str) and schema.names.count(name) == 1]

    return known(categories), known(index)


def _arrow_columns(path: Path, spec: TableSpec) -> tuple[pa.Table, tuple[tuple[str, str], ...]]:
    budget = budget_of(path, spec.file.max_bytes)
    kind = path.suffix.lower()[1:]
    try:
        table = _parquet_table(path, budget) if kind == "parquet" else _feather_table(path, budget)
    except (*_DAMAGED, pa.ArrowException) as error:
        raise ValueError(f"{path} is no readable {kind} file ({one_line(error)}); write it again.") from error
    levels, left_out = names_of_pandas(table.schema)
    # Numbers that are categories of pandas stay such.
    for name in levels:
        if not pa.types.is_dictionary(table[name].type):
            table = table.set_column(table.column_names.index(name), name, table[name].dictionary_encode())
    return table.drop_columns(left_out), tuple((name, _INDEX) for name in left_out)


def _feather_table(path: Path, budget: Budget) -> pa.Table:
    """The table of a Feather file, whose messages tell what they unpack to before they are unpacked."""
    with pa.OSFile(str(path)) as file:
        if file.read(8)[:6] != b"ARROW1":  # the first version packs nothing
            return pa.feather.read_table(path)
        messages = pa.ipc.MessageReader.open_stream(file)
        num_columns = len(pa.ipc.read_schema(messages.read_next_message()))
        with contextlib.suppress(StopIteration):
            while True:
                num_rows, size = _unpacked_size(messages.read_next_message())
                budget.take(max(size, 8 * num_rows * num_columns), f"its next {num_rows:,} rows")
        # What stands between the two signatures is a stream.
        file.seek(8)
        table = pa.ipc.open_stream(file).read_all()
    _check_texts(table, budget)
    return table


def _unpacked_size(message: pa.ipc.Message) -> tuple[int, int]:
    """Rows of a message with rows or texts of Arrow, and bytes that it unpacks to, as it says itself.

    Its metadata are a table of the format FlatBuffers (Arrow's Message.fbs): entries in slots, and vectors.
    """
    content = message.metadata.to_pybytes()

    def slot(table: int, number: int) -> int:
        entries = table - struct.unpack_from("<i", content, table)[0]
        (length,) = struct.unpack_from("<H", content, entries)
        place = struct.unpack_from("<H", content, entries + 4 + 2 * number)[0] if 4 + 2 * number < length else 0
        return table + place if place else 0

    def behind(place: int) -> int:
        return place + int(struct.unpack_from("<I", content, place)[0])

    batch = behind(slot(behind(0), 2))
    batch = behind(slot(batch, 1)) if message.type == "dictionary" else batch
    rows = slot(batch, 0)
    buffers = behind(slot(batch, 2))
    pairs = [struct.unpack_from("<qq", content, buffers + 4 + 16 * i) for i in range(behind(buffers) - buffers)]
    # A buffer that is packed begins with its length, or with -1 if it is none.
    if slot(batch, 3):
        starts = [message.body[start : start + 8].to_pybytes() if length else bytes(8) for start, length in pairs]
        pairs = [
            (0, max(length, int.from_bytes(s, "little", signed=True)))
            for s, (_, length) in zip(starts, pairs, strict=True)
        ]
    return struct.unpack_from("<q", content, rows)[0] if rows else 0, sum(max(length, 0) for _, length in pairs)


def _parquet_table(path: Path, budget: Budget) -> pa.Table:
    """The table of a Parquet file, which may hold a text once that all of its rows have.

    Texts are read as dictionaries, and become texts when it is known how long they are.
    """
    file = pa.parquet.ParquetFile(path)
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    texts = []
    # What each column may take; texts are read as dictionaries, whose rows are counted below.
    for i in range(file.metadata.num_columns):
        leaf = file.schema.column(i)
        chunks = [group.column(i) for group in groups]
        size = 8
        if leaf.physical_type == "BYTE_ARRAY" and leaf.path == leaf.name:
            texts.append(leaf.path)
        elif leaf.physical_type == "BYTE_ARRAY":  # within lists and structures: as if each had the whole dictionary
            size = max((chunk.total_uncompressed_size for chunk in chunks), default=0)
        num_values = max(file.metadata.num_rows, sum(chunk.num_values for chunk in chunks))
        budget.take(num_values * size, f"its {num_values:,} values of {one_line(leaf.path, 60)}")
    table = pa.parquet.ParquetFile(path, read_dictionary=texts).read()
    _check_texts(table, budget)
    return table.cast(file.schema_arrow)


def _check_texts(table: pa.Table, budget: Budget) -> None:
    """:raises ValueError: if the texts of dictionaries take more than a budget as soon as each row has its own."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_dictionary(column.type) and kind_of_type(column.type.value_type) in ("text", "other"):
            for chunk in column.chunks:
                lengths = pc.binary_length(chunk.dictionary).take(chunk.indices)
                budget.take(pc.sum(lengths).as_py() or 0, f"its texts of {one_line(name, 60)}")


def _index_of(frame: object) -> tuple[tuple[str, str], ...]:
    """The index of a frame of pandas, which is no column, unless it only counts the rows."""
    if not isinstance(frame, pd.DataFrame) or (isinstance(frame.index, pd.RangeIndex) and frame.index.name is None):
        return ()
    # Numbers of rows say nothing; any other index is told of.
    names = [str(name) if name is not None else "(index)" for name in frame.index.names]
    if frame.index.nlevels == 1 and frame.index.name is None and pd.api.types.is_integer_dtype(frame.index.dtype):
        return ()  # numbers of rows of a larger frame
    return tuple((name, _INDEX) for name in names)


def _frame_columns(frame: object, where: str) -> pa.Table:
    if isinstance(frame, pd.DataFrame):
        # Any name becomes a text; one that is missing is none.
        names = ["" if name is None or (np.isscalar(name) and pd.isna(name)) else str(name) for name in frame.columns]
        check_names(names, where)
        columns = [_pandas_column(frame.iloc[:, d], f"column {name!r} of {where}") for d, name in enumerate(names)]
        return pa.table(dict(zip(names, columns, strict=True)))
    if hasattr(frame, "__arrow_c_stream__"):
        # Frames of other libraries share the interface of Arrow.
        with contextlib.suppress(pa.ArrowInvalid):  # of one column
            return pa.table(frame)
    raise ValueError(
        f"a table must be a path, a pandas or polars data frame or a pyarrow table, got {type(frame).__name__}."
    )


def _pandas_column(series: pd.Series, what: str) -> pa.ChunkedArray:
    # Types of pandas that Arrow does not take.
    if isinstance(series.dtype, pd.SparseDtype):
        series = series.sparse.to_dense()
    elif isinstance(series.dtype, pd.PeriodDtype):
        series = series.dt.to_timestamp()
    elif isinstance(series.dtype, pd.IntervalDtype):
        series = series.astype("category")
    # Levels of several kinds become texts, and so do texts beside numbers.
    if isinstance(series.dtype, pd.CategoricalDtype):
        levels = series.cat.categories
        if isinstance(levels.dtype, pd.IntervalDtype) or pd.api.types.infer_dtype(levels) in _MIXED:
            series = series.cat.rename_categories(str)
    if series.dtype == object and pd.api.types.infer_dtype(series, skipna=True) in _MIXED:
        series = _as_in_a_file(series)
    try:
        column = pa.array(series, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(
            f"{what} must hold values of one kind, got {series.dtype} values such as {series.iloc[0]!r:.40} ({error}); "
            "convert the column, or drop it."
        ) from error
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _as_in_a_file(series: pd.Series) -> pd.Series:
    """Texts beside numbers, as a file would hold them; other objects as they are."""
    is_there = series.notna()
    if not series[is_there].map(lambda value: isinstance(value, str | int | float)).all():
        return series
    return series.where(~is_there, series.astype(str)).where(is_there, None)


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
        # Levels that are texts, chunk by chunk: each has levels of its own.
        chunks = [
            pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.string()), ordered=kind.ordered)
            for chunk in column.chunks
        ]
        return pa.chunked_array(chunks, pa.dictionary(kind.index_type, pa.string(), ordered=kind.ordered))
    return column


def _npz_table(arrays: Mapping[str, np.ndarray], where: str, name: str) -> Table:
    # One array for each column.
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
    # A matrix of inputs, or images whose pixels are inputs, and perhaps a matrix of targets.
    X = arrays["X"]
    shape = None
    if X.ndim in (3, 4) and 0 not in X.shape:  # images [N, H, W] or [N, H, W, C]
        shape = (X.shape[1], X.shape[2])
        X = X.reshape(len(X), -1)
    names = [f"x{d}" for d in range(X.shape[-1] if X.ndim else 0)]
    if "feature_names" in arrays:
        names = list(map(str, np.ravel(decoded_texts(arrays["feature_names"], f"feature_names in {where}"))))
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


def _target_columns(key: str, array: np.ndarray, num_data: int, names: list[str], where: str) -> dict[str, pa.Array]:
    Y = np.atleast_1d(array)
    Y = Y[:, None] if Y.ndim == 1 else Y
    targets = (key,) if Y.shape[-1] == 1 else tuple(f"{key}{p}" for p in range(Y.shape[-1]))
    # One column for each target, none of them named as a feature.
    if Y.ndim != 2 or len(Y) != num_data or set(targets) & set(names):
        raise ValueError(
            f"{key} in {where} must be [N] or [N, P] with N = {num_data} and be no feature's name, got {Y.shape}."
        )
    return {name: _array_column(Y[:, p], f"{key} in {where}") for p, name in enumerate(targets)}


def _array_column(array: np.ndarray, what: str) -> pa.Array:
    array = decoded_texts(array, what)
    # Arrow knows single and double precision.
    if array.dtype.kind == "f" and array.dtype.itemsize not in (4, 8):
        array = array.astype(np.float64)
    if array.dtype.kind not in "biufUMm":
        raise ValueError(f"{what} must hold real numbers, texts, dates or true and false, got type {array.dtype}.")
    return pa.array(np.ascontiguousarray(array))


def decoded_texts(array: np.ndarray, what: str) -> np.ndarray:
    """Texts of bytes in UTF-8 as texts; other arrays as they are.

    :raises ValueError: naming `what`, if they are in another encoding.
    """
    try:
        return np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
    except UnicodeDecodeError as error:
        raise ValueError(f"{what} must be texts in UTF-8 ({error}); write it again as texts.") from error


def _stored_splits(arrays: Mapping[str, np.ndarray], where: str) -> tuple[tuple[Indices, Indices], ...] | None:
    pair = [arrays[key] for key in ("train_idx", "test_idx") if key in arrays]
    if not pair:
        return None
    if len(pair) != 2 or any(a.ndim != 2 or a.dtype.kind not in "iu" for a in pair) or len(pair[0]) != len(pair[1]):
        raise ValueError(f"train_idx and test_idx in {where} must both be integers [splits, n]; write them again.")
    return tuple((train.astype(np.int64), test.astype(np.int64)) for train, test in zip(*pair, strict=True))
