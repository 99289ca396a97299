"""CSV files of a stream: a block is some whole lines. Row numbers are numbers of lines, from 0 below the header."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpflow_deep_runs.data.delimited import Dialect, dialect_of
from gpflow_deep_runs.data.libraries import pa, pc
from gpflow_deep_runs.data.streams import blocks, storage
from gpflow_deep_runs.data.streams.blocks import NULLS, Block, Extent, Kind, kind_of, read_bytes

__all__ = ["Texts", "dialect", "extents", "kinds", "plain_dialect", "read"]

_DIALECT_BYTES, _KIND_BYTES, _KIND_LINES = 2**18, 2**20, 100


class Texts(NamedTuple):
    """What the texts of CSV files become.

    :ivar null_values: texts that are null in a column of numbers.
    :ivar decimal: the decimal sign of numbers.
    :ivar as_written: other columns hold the texts as they are written; else `null_values` are null there, too.
    """

    null_values: Sequence[str] = NULLS
    decimal: str = "."
    as_written: bool = False


def plain_dialect(path: str, header: Sequence[str] | None) -> Dialect:
    """Commas, and the names of the first line, or those of `header` for a file that has no such line."""
    if header is not None:
        return Dialect(tuple(header), ",", has_header=False)
    with storage.open_file(path) as file:
        line = file.readline()
    if not line.strip():
        raise OSError("its first line must be a header, it is empty")
    return Dialect(tuple(name.strip() for name in pa.csv.read_csv(io.BytesIO(line)).column_names), ",")


def dialect(path: str) -> Dialect:
    """The delimiter and the names of the columns of a file, by its first rows.

    :raises ValueError: as `delimited.dialect_of`, and if the text is not in UTF-8: other encodings cannot be cut.
    """
    with storage.open_file(path) as file:
        content = file.read(_DIALECT_BYTES)
    found = dialect_of(content, path, is_whole=len(content) < _DIALECT_BYTES)
    if found.num_titles or found.is_header_short or found.delimiter == " ":
        raise ValueError(
            f"the first line of {path} must hold the names of the columns, all of them, and one sign divide them; "
            "correct it, or write the table as Parquet."
        )
    if not content.partition(b"\n")[0].strip() or any("\n" in name for name in found.names):
        raise ValueError(f"the first line of {path} must hold the names of the columns, all of them; correct it.")
    if found.encoding != "utf-8":
        raise ValueError(f"a stream must be CSV files in UTF-8, got {found.encoding} in {path}; convert it.")
    return found


def kinds(path: str, header: Sequence[str] | None) -> dict[str, Kind]:
    """Columns of a file of a known data set; they are numbers if those of its first lines are.

    :param header: names of the columns of a file without a header line.
    """
    with storage.open_file(path) as file:
        content = file.read(_KIND_BYTES)
    names = plain_dialect(path, header).names
    lines = content.split(b"\n")
    rows = b"\n".join(lines[0 if header is not None else 1 : max(2, min(_KIND_LINES, len(lines) - 1))])
    if not rows.strip():
        return dict.fromkeys(names, "number")
    table = pa.csv.read_csv(
        io.BytesIO(rows),
        read_options=pa.csv.ReadOptions(column_names=names),
        parse_options=pa.csv.ParseOptions(invalid_row_handler=lambda row: "skip"),
        convert_options=pa.csv.ConvertOptions(null_values=NULLS, strings_can_be_null=True),
    )
    return {field.name: kind_of(field.type) for field in table.schema}


def extents(path: str, size: int, dialect: Dialect) -> Iterator[Extent]:
    """Blocks of lines; reads every byte of the file.

    :param size: of the file in bytes.
    :raises OSError: if a line is longer than `blocks.BLOCK_BYTES`.
    """
    return blocks.joined(_line_ends(path, size, skip_line=dialect.has_header))


def read(
    path: str,
    block: Block,
    kinds: Mapping[str, Kind],
    dialect: Dialect,
    texts: Texts,
    *,
    skips_bad_rows: bool = False,
) -> pa.Table:
    """Some columns of a block: float64 for numbers, strings for others.

    :param skips_bad_rows: leave out lines of a wrong length.
    :raises pyarrow.ArrowInvalid: if a column of numbers holds text, or a text is not in UTF-8.
    :raises OSError: if a line has a wrong length, or a text has a line break within quotation marks.
    """
    content, bad = read_bytes(path, block), list[Any]()

    def note(row: Any) -> str:
        if not row.text.strip() and dialect.delimiter not in row.text:
            return "skip"  # a line of spaces
        bad.append(row)
        return "skip" if skips_bad_rows else "error"

    types = {name: pa.float64() if kind == "number" else pa.string() for name, kind in kinds.items()}
    try:
        table = pa.csv.read_csv(
            io.BytesIO(content),
            read_options=pa.csv.ReadOptions(
                column_names=dialect.names, use_threads=False, block_size=max(len(content), 1024)
            ),
            parse_options=pa.csv.ParseOptions(delimiter=dialect.delimiter, invalid_row_handler=note),
            convert_options=pa.csv.ConvertOptions(
                include_columns=list(kinds),
                column_types=types,
                null_values=texts.null_values,
                strings_can_be_null=not texts.as_written,
                decimal_point=texts.decimal,
            ),
        )
    except pa.ArrowInvalid as error:
        if not bad or skips_bad_rows:
            raise
        row = block.first_row + bad[0].number - 1
        raise OSError(
            f"row {row} (from 0): Expected {bad[0].expected_columns} columns, got {bad[0].actual_columns}"
        ) from error
    if texts.as_written and b'"' in content:
        _check_line_breaks(table, content, dialect, num_rows=block.num_rows - len(bad))
    return table


def _check_line_breaks(table: pa.Table, content: bytes, dialect: Dialect, *, num_rows: int) -> None:
    """:raises OSError: if a text has a line break, so that a block may end within a row."""
    delimiter = dialect.delimiter.encode()
    if len(table) < num_rows:
        lines = content.removesuffix(b"\n").split(b"\n")
        num_rows -= sum(not line.strip() and delimiter not in line for line in lines)
    is_broken = len(table) < num_rows
    if not is_broken and content.count(b'"') % 2:  # the last text of the block may end in the next one
        texts = [column for column in table.columns if pa.types.is_string(column.type)]
        is_broken = any(pc.any(pc.match_substring(column, "\n")).as_py() for column in texts)
    if is_broken:
        raise OSError(
            "a text has a line break within quotation marks, or a quotation mark is not closed, so the file cannot be "
            "read in pieces; write the table as Parquet, or mend it"
        )


def _line_ends(path: str, size: int, *, skip_line: bool) -> Iterator[tuple[int, int]]:
    """Where the header ends, and then ends of lines, about a block apart, with the lines since the last."""
    position = 0
    with storage.open_file(path) as file:
        if skip_line:
            position = len(file.readline())
        yield position, 0
        file.seek(position)
        while position < size:
            piece = file.read(blocks.BLOCK_BYTES)
            if not piece:
                return
            end = piece.rfind(b"\n") + 1
            if end == 0 and position + len(piece) < size:
                raise OSError(f"a line from byte {position} is longer than {blocks.BLOCK_BYTES} bytes")
            if position + len(piece) >= size:  # the last line may lack its end
                end = len(piece)
            lines = piece.count(b"\n", 0, end) + (piece[end - 1 : end] != b"\n")
            position += end
            file.seek(position)
            yield position, lines
