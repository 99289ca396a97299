"""Tables as delimited text: what stands between the columns, their names, and rows of strings.

    with open_unpacked("shop.csv.gz") as stream:
        head = stream.read(HEAD_BYTES)
    dialect = dialect_of(head, "shop.csv.gz", is_whole=False)           # names, delimiter, encoding
    with open_unpacked("shop.csv.gz") as stream:
        table = read_text(stream, dialect, "shop.csv.gz", has_header=dialect.has_header)

Rows are numbered from 0 below the header; empty lines do not count.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from experiment.data.libraries import pa
from experiment.data.packed import PIECE, Pieces

__all__ = ["DELIMITERS", "HEAD_BYTES", "Dialect", "check_names", "check_quotes", "dialect_of", "read_text"]

HEAD_BYTES = 2**18
"""How much of a file decides its delimiter."""

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""What may stand between columns, and its name."""

_HEAD_ROWS = 100
_BLOCK = 2**24
_SEAL = "\x1fend of the table\x1f"
_CODECS = {"utf-8": "utf-8-sig", "utf-16": "utf-16"}
_NUMBER = re.compile(r"[-+]?\d*[.,]?\d+([eE][-+]?\d+)?")


@dataclass(frozen=True)
class Dialect:
    """How a table is written as text.

    :param names: of the columns.
    :param delimiter: "," ";" tab or "|".
    :param encoding: "utf-8" or "utf-16", each perhaps with a byte order mark.
    :param has_header: the first line holds the names; if not, it is the first row.
    """

    names: tuple[str, ...]
    delimiter: str
    encoding: str = "utf-8"
    has_header: bool = True


def dialect_of(head: bytes, where: str, *, is_whole: bool, names_optional: bool = False) -> Dialect:
    """How a table is written, by its first bytes.

    :param head: the first bytes, at best :data:`HEAD_BYTES`.
    :param is_whole: whether that is all; if not, its last line is not looked at.
    :param names_optional: a first line of numbers is a row, and the columns are called x0, x1, ...
    :raises ValueError: naming `where`: not UTF-8 or UTF-16 text; no header, names that occur twice or are empty; or
        more than one delimiter fits.
    """
    text, encoding = _decoded(head, where, is_whole)
    rows = {delimiter: _rows(text, delimiter, where, is_whole) for delimiter in DELIMITERS}
    delimiter = _delimiter(rows, where)
    if not rows[delimiter]:
        raise ValueError(f"{where} is empty; check how it was written.")
    if _are_spaced_numbers(rows[delimiter]):
        raise ValueError(
            f"{where} must have commas, semicolons, tabs or bars between its columns, got "
            f"{rows[delimiter][-1][0][:40]!r}; spaces are no delimiter, convert it."
        )
    header = [name.strip() for name in rows[delimiter][0]]
    if any(_NUMBER.fullmatch(name) for name in header):
        if names_optional:
            return Dialect(tuple(f"x{d}" for d in range(len(header))), delimiter, encoding, has_header=False)
        raise ValueError(f"the first line of {where} must hold column names, got numbers ({header[0]}, ...); add them.")
    check_names(header, where)
    return Dialect(tuple(header), delimiter, encoding)


def check_names(names: Sequence[str], where: str) -> None:
    """:raises ValueError: if names of columns occur twice or are empty."""
    repeated = sorted({name for name in names if names.count(name) > 1} - {""})
    if repeated:
        shown = ", ".join(map(repr, repeated[:10])) + (", ..." if len(repeated) > 10 else "")
        raise ValueError(f"{where} must have different column names, but {shown} occur twice; rename them.")
    if "" in names:
        raise ValueError(
            f"column {names.index('')} of {where} has no name; name it, or leave out a column of row numbers."
        )


def read_text(
    stream: IO[bytes] | bytes, dialect: Dialect, where: str, *, has_header: bool, first_row: int = 0
) -> pa.Table:
    """The rows of a text as strings, just as they are written.

    :param stream: the bytes, from a header or the start of a row on.
    :param has_header: whether the first row is the header, which is left out.
    :param first_row: number of the first row, for errors.
    :raises ValueError: naming `where` and the row: a row with more or fewer values than there are columns, a quotation
        mark that is never closed, or text in another encoding.
    """
    pieces = _sealed(io.BytesIO(stream) if isinstance(stream, bytes) else stream, dialect)
    names = [str(d) for d in range(len(dialect.names))]
    ragged: list[pa.csv.InvalidRow] = []

    def judge(row: pa.csv.InvalidRow) -> str:
        if not row.text.strip() and dialect.delimiter not in row.text:
            return "skip"  # a line of spaces
        ragged.append(row)
        return "error"

    try:
        table = pa.csv.read_csv(
            io.BufferedReader(Pieces(pieces), PIECE),
            read_options=pa.csv.ReadOptions(column_names=names, use_threads=False, block_size=_BLOCK),
            parse_options=pa.csv.ParseOptions(
                delimiter=dialect.delimiter, newlines_in_values=True, invalid_row_handler=judge
            ),
            convert_options=pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
    except (pa.ArrowInvalid, UnicodeError) as error:
        if ragged:
            row = ragged[0].number - 1 - has_header + first_row
            raise ValueError(_ragged(ragged[0], row, dialect, where)) from error
        raise ValueError(_unreadable(error, where)) from error
    last = table.num_rows - 1
    if any(column[last].as_py() != _SEAL for column in table.columns):
        row = last - has_header + first_row
        raise ValueError(f"{where} has a quotation mark in row {row} (from 0) that is never closed; mend it.")
    return table.slice(int(has_header), last - has_header).rename_columns(list(dialect.names))


def check_quotes(stream: IO[bytes], dialect: Dialect, where: str) -> None:
    """Whether quotation marks stand around whole fields: one that is missing would join rows.

    :raises ValueError: naming the line, if one does not.
    """
    lines = io.TextIOWrapper(stream, encoding=_CODECS[dialect.encoding], newline="")
    reader = csv.reader(lines, delimiter=dialect.delimiter, strict=True)
    try:
        for _ in _long_rows(reader):
            pass
    except csv.Error as error:
        raise ValueError(
            f"{where} has a quotation mark that is not closed, or not at the end of its field, up to line "
            f"{reader.line_num} ({error}); mend it."
        ) from error


def _sealed(stream: IO[bytes], dialect: Dialect) -> Iterator[bytes]:
    """The bytes of a text in UTF-8, and a last row that an open quotation mark would swallow."""
    decoder = codecs.getincrementaldecoder("utf-16")() if dialect.encoding == "utf-16" else None
    while piece := stream.read(PIECE):
        yield piece if decoder is None else decoder.decode(piece).encode()
    if decoder is not None:
        yield decoder.decode(b"", final=True).encode()
    yield ("\n" + dialect.delimiter.join([_SEAL] * len(dialect.names)) + "\n").encode()


def _ragged(row: pa.csv.InvalidRow, number: int, dialect: Dialect, where: str) -> str:
    if _SEAL in row.text:
        return f"{where} has a quotation mark in row {number} (from 0) that is never closed; mend it."
    mark = DELIMITERS[dialect.delimiter]
    more = "more" if row.actual_columns > row.expected_columns else "fewer"
    cure = f"check its {mark}" if more == "more" else f"check its {mark}, and that the file is complete"
    return (
        f"{where} has rows of {more} values than column names, the first is row {number} (from 0) with "
        f"{row.actual_columns} instead of {row.expected_columns}: {row.text[:60]!r}; {cure}."
    )


def _unreadable(error: Exception, where: str) -> str:
    if "straddling" in str(error):
        return f"{where} has a row of more than {_BLOCK >> 20} MiB; perhaps a quotation mark is never closed."
    cure = "convert it, for example by `iconv -f ISO-8859-1 -t UTF-8`" if "UTF8" in str(error) else "write it again"
    return f"{where} is no readable, complete CSV file in UTF-8 ({error}); {cure}."


def _decoded(head: bytes, where: str, is_whole: bool) -> tuple[str, str]:
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    if encoding == "utf-8" and b"\0" in head:
        raise ValueError(
            f"{where} is no readable, complete CSV file in UTF-8 (it has zero bytes; UTF-16 needs a byte order mark); "
            "convert it, for example by `iconv -f UTF-16LE -t UTF-8`."
        )
    cut = head if is_whole or encoding == "utf-8" else head[: len(head) // 2 * 2]
    try:
        text = cut.decode(_CODECS[encoding])
    except UnicodeDecodeError as error:
        if is_whole or error.end < len(cut) - 4:
            raise ValueError(
                f"{where} is no readable, complete CSV file in UTF-8 (byte {error.start} is {cut[error.start]:#04x}); "
                f"convert it, for example by `iconv -f ISO-8859-1 -t UTF-8`."
            ) from error
        text = cut[: error.start].decode("utf-8-sig")
    return text, encoding


def _long_rows(reader: Iterator[list[str]]) -> Iterator[list[str]]:
    """The rows of a reader of the standard library, which refuses long fields unless it is told."""
    limit = csv.field_size_limit(2**31 - 1)
    try:
        yield from reader
    finally:
        csv.field_size_limit(limit)


def _rows(text: str, delimiter: str, where: str, is_whole: bool) -> list[list[str]]:
    """The first whole rows, the header among them, without empty lines."""
    rows: list[list[str]] = []
    try:
        for row in _long_rows(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)):
            if any(value.strip() for value in row) or len(row) > 1:
                rows.append(row)
            if len(rows) > _HEAD_ROWS:
                return rows
    except csv.Error as error:
        raise ValueError(f"{where} is no readable, complete CSV file in UTF-8 ({error}); write it again.") from error
    return rows if is_whole or len(rows) < 2 else rows[:-1]


def _are_spaced_numbers(rows: list[list[str]]) -> bool:
    """Whether rows of one column hold as many words as the header, two or more, and all of them are numbers."""
    words = [row[0].split() for row in rows if len(row) == 1]
    has_many = len(words) == len(rows) > 1 and {len(row) for row in words} == {max(2, len(words[0]))}
    return has_many and all(_NUMBER.fullmatch(word) for row in words[1:] for word in row)


def _delimiter(rows: dict[str, list[list[str]]], where: str) -> str:
    """The delimiter with which all rows have as many values as the header, of which there are two or more."""
    candidates = {d: found for d, found in rows.items() if found and len(found[0]) > 1}
    if not candidates:
        return ","
    fitting = [d for d, found in candidates.items() if all(len(row) == len(found[0]) for row in found)]
    if "\t" in fitting:  # no other text holds a tab in each row
        return "\t"
    if len(fitting) > 1:
        raise ValueError(
            f"the columns of {where} may be divided by "
            + " or by ".join(f"{DELIMITERS[d]} (the first is {rows[d][0][0][:40]!r})" for d in fitting)
            + "; quote the fields that hold the other sign, or write the table as Parquet."
        )
    if fitting:
        return fitting[0]
    return max(candidates, key=lambda d: sum(len(row) == len(candidates[d][0]) for row in candidates[d]))
