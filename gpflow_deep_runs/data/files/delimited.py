"""Tables as delimited text: what stands between the columns, their names, and rows of strings.

    with open_unpacked("shop.csv.gz") as stream:
        head = stream.read(HEAD_BYTES)
    dialect = dialect_of(head, "shop.csv.gz", is_whole=False)           # names, delimiter, encoding
    with open_unpacked("shop.csv.gz") as stream:
        table = joined(read_batches(stream, dialect, "shop.csv.gz"))

Rows are numbered from 0 below the header; empty lines do not count.
"""

from __future__ import annotations

import codecs
import collections
import csv
import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

import numpy as np

from gpflow_deep_runs.data.files.encodings import encoding_of
from gpflow_deep_runs.data.files.libraries import pa
from gpflow_deep_runs.data.files.packed import PIECE, Pieces
from gpflow_deep_runs.data.values.cells import quoted

__all__ = [
    "DELIMITERS",
    "HEAD_BYTES",
    "Dialect",
    "check_names",
    "check_quotes",
    "dialect_of",
    "foot_of",
    "is_of_encoding",
    "joined",
]
__all__ += ["read_batches", "read_text", "unnamed"]

HEAD_BYTES = 2**18
"""How much of a file decides its delimiter."""

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""What may stand between columns, and its name; spaces may where none of these does."""

_HEAD_ROWS = 100
_BLOCK = 2**24
_SEAL = "\x1fend of the table\x1f"
_CODECS = {"utf-8": "utf-8-sig", "utf-16": "utf-16"}
_NOTE = re.compile(
    r"\W*(?:sources?|notes?|quellen?|anmerkung|hinweis|stand|data|last updated|copyright|footnotes?|remarks?|notas?"
    r"|remarques?)\b.*|\W?[^\W\d_]{3,}: .*|[*#!\u00a9\u203b\u2020(\[].*|[\u6ce8\u8cc7\u51fa].*",
    re.IGNORECASE | re.DOTALL,
)
_YEAR = re.compile("(?:1[89]|20|21)[0-9]{2}")
_DATE = re.compile(r"[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}\b.*|[0-9]{1,2}[-/.][0-9]{1,2}[-/.][0-9]{4}\b.*")
_RULE = re.compile(r"[\s|+]*[-=_]{3}[-=_+|:\s]*")
_MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_SPACES = " "
_MARK = codecs.BOM_UTF8
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)")
_NUMBER = re.compile(r"[-+]?\d*[.,]?\d+([eE][-+]?\d+)?")


@dataclass(frozen=True)
class Dialect:
    """How a table is written as text.

    :param names: of the columns.
    :param delimiter: "," ";" tab or "|", or " " for white space of any width.
    :param encoding: "utf-8" or "utf-16", each perhaps with a byte order mark, or a codec of Python.
    :param has_header: the first line holds the names; if not, it is the first row.
    :param num_titles: lines above the header that belong to no column.
    :param notes: what has to be known of the reading, in words.
    :param is_header_short: the line of names has fewer values than the rows, and is one of `num_titles`.
    :param places: where each column begins in a line, if columns have a fixed width; () if they do not.
    """

    names: tuple[str, ...]
    delimiter: str
    encoding: str = "utf-8"
    has_header: bool = True
    num_titles: int = 0
    notes: tuple[str, ...] = ()
    is_header_short: bool = False
    places: tuple[int, ...] = ()


def dialect_of(
    head: bytes,
    where: str,
    *,
    is_whole: bool,
    names_optional: bool = False,
    names: Sequence[str] = (),
    encoding: str = "",
    skip_rows: int | None = None,
    wanted: Sequence[str] = (),
) -> Dialect:
    """How a table is written, by its first bytes.

    :param head: the first bytes, at best :data:`HEAD_BYTES`.
    :param is_whole: whether that is all; if not, its last line is not looked at.
    :param names_optional: a first line of numbers is a row, and the columns are called x0, x1, ...
    :param names: of the columns of a file that has none.
    :param encoding: what the user says; "" to find out.
    :param skip_rows: lines above the header; None to find out.
    :param wanted: names that the header has, if one of the first rows has them all.
    :raises ValueError: naming `where`: text of no known encoding; no header, names that occur twice; or more than one
        delimiter fits.
    """
    text, codec = _decoded(head, where, is_whole, encoding)
    notes = [] if codec in _CODECS or encoding else [f"read as {codec} (--encoding=NAME reads another)"]
    text = text if not skip_rows else "".join(_line_ends(text)[skip_rows:])
    delimiter, rows, start, places, note = _division(text, where, is_whole, names, is_known=skip_rows is not None)
    if not is_whole and "\n" not in text:
        raise ValueError(
            f"the first line of {where} has more than {len(head):,} bytes, too many columns; give --max_bytes=N if you "
            "trust the file."
        )
    if not rows:
        raise ValueError(f"{where} is empty; check how it was written.")
    notes += [note] if note else []
    # Titles above the header are left out.
    if skip_rows is None and wanted and not names:
        cells = [{*map(str.strip, row)} for _, row in rows[start : start + _HEAD_ROWS]]
        start += next((number for number, some in enumerate(cells) if {*wanted} <= some), 0)
    body = [row for _, row in rows[start:]]
    num_above = skip_rows or 0
    num_titles = num_above + rows[start][0]
    if start:
        first = " ".join(rows[0][1][0].split())[:40]
        notes.append(f"{num_titles} lines above the header left out, the first {first!r} (--skip_rows=N leaves out N)")
    elif skip_rows:
        notes.append(f"{skip_rows} lines above the header left out by --skip_rows")
    # With names of the user the first line is a row.
    header = [name.strip() for name in body[0]]
    width = max(map(len, body[1:]), default=len(header))
    if names:
        if len(names) != max(width, len(header)):
            raise ValueError(
                f"--names must have a name for each of {len(header)} columns of {where}, got {len(names)}."
            )
        check_names(names, where)
        return Dialect(tuple(names), delimiter, codec, False, num_titles, (*notes, "its columns are named by --names"))
    # So it is if it holds numbers, or values that occur again, where names are optional.
    number = (
        ""
        if _are_years(header, body[1:]) or _counts(header) or _heads_numbers(header, body[1:])
        else next((name for name in header if _NUMBER.fullmatch(name)), "")
    )
    are_values = number != "" and _are_values(header, body[1:])
    if are_values or (names_optional and (number or _occurs_again(header, body[1:]))):
        why = f"it holds numbers such as {number}" if number else "its values occur again"
        if not (number and names_optional):
            notes.append(f"the first line is a row, as {why} (--names=NAME,... names the columns)")
        chosen = tuple(f"x{d}" for d in range(len(header)))
        return Dialect(chosen, delimiter, codec, False, num_titles, tuple(notes))
    if number:
        raise ValueError(
            f"the first line of {where} must hold column names, got numbers ({number}, ...); add them, or give them "
            "by --names=NAME,NAME,..."
        )
    # A line of names that is shorter than the rows counts as a title.
    if len(header) == width - 1 and len(body) > 2 and all(len(row) == width for row in body[1:]):
        header, note = _lengthened(header, body[1:])
        notes += [note] if note else []
    is_short = len(header) > len(body[0])
    num_titles = num_above + rows[start + 1][0] if is_short else num_titles
    # So do two lines, of which the first has names of groups of columns.
    if (merged := _merged(header, body[1:])) is not None:
        header = merged
        is_short = True
        num_titles = num_above + rows[start + 2][0]
        notes.append(f"names of two lines are joined, as {next(name for name in header if name not in body[0])!r}")
    header = [name or unnamed(d, header) for d, name in enumerate(header)]
    # Names that occur twice are numbered, unless one is wanted that is not known to be a numbered one.
    twice = {name for name, count in collections.Counter(header).items() if count > 1}
    if twice and all(f"{name}.1" in wanted for name in twice & {*wanted}):
        header = _numbered(header)
        notes.append(f"columns of one name are numbered, as {quoted(sorted(twice))} and {next(iter(twice))}.1")
    check_names(header, where)
    return Dialect(tuple(header), delimiter, codec, True, num_titles, tuple(notes), is_short, places)


class _Division(NamedTuple):
    """The first lines of a text as rows, each with the number of lines above it; the header is number `start`."""

    delimiter: str
    rows: list[tuple[int, list[str]]]
    start: int = 0
    places: tuple[int, ...] = ()
    note: str = ""


def _division(text: str, where: str, is_whole: bool, names: Sequence[str], *, is_known: bool) -> _Division:
    """What stands between the columns: a fixed width goes before white space, and this before a delimiter.

    :param is_known: the user says where the header is.
    """
    rows = {delimiter: _rows(text, delimiter, where, is_whole) for delimiter in DELIMITERS}
    cells = _spaced(text, rows, is_whole)
    if places := () if names else _places_of(text, rows, is_whole):
        lines = [(row, line) for row, line in enumerate(_line_ends(text)) if line.strip()][: _HEAD_ROWS + 1]
        fixed = [(row, _cut(line, places)) for row, line in lines]
        # Unless it is as it would be without them, or by chance.
        if cells is None or (fixed[0][1] == cells[0][1] and fixed[: len(cells)] != cells):
            note = f"columns of fixed width, from the characters {', '.join(map(str, places))} (from 0) on"
            return _Division(_SPACES, fixed, places=places, note=note)
    if cells is not None:
        return _Division(_SPACES, cells, note="white space stands between the columns")
    delimiter, start = _delimiter(rows, where, is_known=is_known)
    return _Division(delimiter, rows[delimiter], start)


def _occurs_again(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether values of a first line occur twice in it, or again below it."""
    columns = zip(header, zip(*rows, strict=False), strict=False)
    return len(set(header)) < len(header) or any(name in map(str.strip, column) for name, column in columns)


def _are_values(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether a first line is a row, as each of its values is of the kind of its column, and some are no names.

    No names are dates, numbers with decimals or signs, numbers that occur twice, and texts that all occur again below.
    """
    texts = list[bool]()
    numbers = list[str]()
    has_date = False
    # The kind of each value, and of most of those below it.
    for place, name in enumerate(header):
        cells = [row[place].strip() for row in rows if place < len(row)]
        below = [_NUMBER.fullmatch(cell) is not None for cell in cells if cell not in ("", "?", "NA")]
        is_number = _NUMBER.fullmatch(name) is not None
        if below and is_number != (2 * sum(below) > len(below)):
            return False
        numbers += [name] * is_number
        texts += [name in cells] * (not is_number)
        has_date |= bool(_DATE.fullmatch(name)) and all(_DATE.fullmatch(cell) for cell in cells if cell)
    # What makes a value one that nobody would give a column for a name.
    is_no_name = has_date or any(set(name) & set(".,-+") for name in numbers) or len(set(numbers)) < len(numbers)
    return len(header) > 1 and (is_no_name or (len(texts) > 0 and all(texts)))


def _lengthened(header: list[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], str]:
    """A line of names that has one value less than all rows: by delimiters at their ends, or by names of rows."""
    firsts = [row[0].strip() for row in rows]
    if not any(row[-1].strip() for row in rows):
        return [*header, ""], ""
    if len(firsts) > 2 and _are_row_names(firsts):  # as R writes them
        return ["", *header], "the line of names has one value less than the rows, whose first value has no name"
    return header, ""


def _merged(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str] | None:
    """The names of two lines, the first of which names groups of columns by their first one; None if it does not."""
    blank = [place for place, name in enumerate(header) if place and not name]
    second = [cell.strip() for cell in rows[0]] if len(rows) > 2 else []
    if not blank or len(second) != len(header) or any(map(_NUMBER.fullmatch, second)):
        return None
    # Each column without a name has one in the second line, and so has the one that begins its group.
    firsts = [max(place for place in range(last + 1) if header[place] or not place) for last in range(len(header))]
    if not all(second[place] and second[firsts[place]] and header[firsts[place]] for place in blank):
        return None
    # What is below two lines of names are numbers.
    if not any(_NUMBER.fullmatch(row[place].strip()) for row in rows[1:] for place in blank if place < len(row)):
        return None
    return [f"{header[first]} {name}".strip() for first, name in zip(firsts, second, strict=True)]


def _are_row_names(texts: Sequence[str]) -> bool:
    """Whether texts are different names, or numbers that count from 0 or 1."""
    if any(_NUMBER.fullmatch(text) for text in texts):
        return any(list(texts) == [str(first + row) for row in range(len(texts))] for first in (0, 1))
    return len(set(texts)) == len(texts)


def _line_ends(text: str) -> list[str]:
    """The lines of a text, each with its end."""
    return re.findall("[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$", text)


def unnamed(place: int, header: Sequence[str]) -> str:
    """What a column without a name is called, as pandas calls it."""
    name = f"Unnamed: {place}"
    return name if name not in header else f"{name} ({len(header)})"


def _are_years(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the numbers of a header, beside names, are years that follow each other, or one above other numbers."""
    places = [place for place, name in enumerate(header) if _NUMBER.fullmatch(name)]
    if len(places) == len(list(filter(None, header))) or not all(_YEAR.fullmatch(header[place]) for place in places):
        return False
    if len(places) == 1:
        below = [row[places[0]].strip() for row in rows if places[0] < len(row)]
        return 2 * sum(_YEAR.fullmatch(text) is not None for text in below) < len(below)
    # Years that follow each other at equal distances.
    steps = {int(header[after]) - int(header[before]) for before, after in itertools.pairwise(places)}
    return len(steps) == 1 and 0 < abs(steps.pop()) <= 10


def _counts(header: Sequence[str]) -> bool:
    """Whether a header has no first name, and then 0, 1, 2, ..., as pandas names columns beside an index."""
    return len(header) > 1 and [*header] == ["", *map(str, range(len(header) - 1))]


def _heads_numbers(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether a header of names and of whole numbers has a name above a column of numbers, so that it is no row."""
    numbers = [name for name in header if _NUMBER.fullmatch(name)]
    columns = [[cell.strip() for cell in column] for column in zip(*rows, strict=False)]
    return all(map(str.isdecimal, numbers)) and any(
        name[:1].isalpha() and len(cells) > 2 and all(map(_NUMBER.fullmatch, cells))
        for name, cells in zip(header, columns, strict=False)
    )


def _numbered(header: Sequence[str]) -> list[str]:
    """Names of which those that were there before have a number, as pandas numbers them: x, x.1."""
    names: list[str] = []
    taken = {*header}
    counts = collections.Counter[str]()
    # The first of a name keeps it; no number may make a name that is there already.
    for name in header:
        numbered = name
        while counts[name] and numbered in taken:
            numbered = f"{name}.{counts[name]}"
            counts[name] += 1
        counts[name] = max(1, counts[name])
        taken.add(numbered)
        names.append(numbered)
    return names


def check_names(names: Sequence[str], where: str) -> None:
    """:raises ValueError: if names of columns occur twice or are empty."""
    counts = collections.Counter(names)
    repeated = sorted(name for name, count in counts.items() if count > 1 and name)
    if repeated:
        raise ValueError(f"{where} must have different column names, but {quoted(repeated)} occur twice; rename them.")
    if "" in names:
        raise ValueError(
            f"column {names.index('')} of {where} has no name; name it, or leave out a column of row numbers."
        )


def read_text(stream: IO[bytes] | bytes, dialect: Dialect, where: str, *, skip_footer: int | None = None) -> pa.Table:
    """All rows of a text; see :func:`read_batches`."""
    source = io.BytesIO(stream) if isinstance(stream, bytes) else stream
    return joined(read_batches(source, dialect, where, skip_footer=skip_footer))


def joined(batches: Iterable[pa.Table]) -> pa.Table:
    """What :func:`read_batches` yields in one table, which says what was left out at the foot."""
    tables = list(batches)
    return pa.concat_tables(tables).replace_schema_metadata(tables[-1].schema.metadata)


def read_batches(
    stream: IO[bytes],
    dialect: Dialect,
    where: str,
    *,
    skip_footer: int | None = None,
    drops_bad_rows: bool = False,
) -> Iterator[pa.Table]:
    """The rows of a text as strings, just as they are written, piece by piece.

    :param stream: the bytes, from the first on.
    :param skip_footer: lines at the end that are no rows; None to find out those of another length.
    :param drops_bad_rows: leave out rows with more or fewer values than there are columns.
    :return: tables, the last of which has in its metadata what was left out, as `foot` and `first`.
    :raises ValueError: naming `where` and the row: a row with more or fewer values than there are columns, a quotation
        mark that is never closed, or text in another encoding.
    """
    has_header = dialect.has_header and not dialect.is_header_short
    if dialect.delimiter == _SPACES:
        yield _read_spaced(stream, dialect, where, has_header=has_header, skip_footer=skip_footer or 0)
        return
    # Rows of another length: blank ones are skipped, notes at the foot counted; others are dropped, or end the reading.
    ragged: list[pa.csv.InvalidRow] = []
    is_dropping = drops_bad_rows and skip_footer is None
    num_blank = 0

    def judge(row: pa.csv.InvalidRow) -> str:
        nonlocal num_blank
        if _is_blank(row, dialect):
            num_blank += 1
            return "skip"
        # All others are counted, and told of.
        ragged.append(row)
        if is_dropping and _SEAL not in row.text:
            return "skip"
        # The first odd row may be a note; with a second one these are a foot, which is checked at the end.
        is_foot = _SEAL not in row.text and (skip_footer is not None or len(ragged) > 1 or _is_note(row, dialect))
        return "skip" if len(ragged) <= (_MAX_FOOT if skip_footer is None else skip_footer) and is_foot else "error"

    # The seal, which is the last row, and the lines at the foot are held back.
    held: pa.Table | None = None
    num_held = 1 + (skip_footer or 0)
    num_lines = 0
    try:
        text = io.BufferedReader(Pieces(_sealed(stream, dialect)), PIECE)
        for batch in pa.csv.open_csv(text, **_options(dialect, judge)):
            table = pa.Table.from_batches([batch]).rename_columns(list(dialect.names))
            num_lines += len(table)
            if held is None:
                held = table.slice(int(has_header))
            elif len(table) < num_held:
                held = pa.concat_tables([held, table])
            else:
                yield held
                held = table
    except (pa.ArrowInvalid, UnicodeError) as error:
        bad = [row for row in ragged if not _is_note(row, dialect)] or ragged
        if bad:
            raise ValueError(_ragged(bad[0], bad[0].number - 1 - has_header, dialect, where)) from error
        raise ValueError(_unreadable(error, where)) from error
    # An open quotation mark has swallowed the seal.
    if held is None or not len(held) or any(column[len(held) - 1].as_py() != _SEAL for column in held.columns):
        row = num_lines - 1 - has_header
        place = f"row {row} (from 0)" if row >= 0 else "its line of names"
        raise ValueError(f"{where} has a quotation mark in {place} that is never closed; mend it.")
    # Rows of another length are allowed at the foot only.
    num_foot = len(ragged) if skip_footer is None else skip_footer
    is_cut = ragged and ragged[0].number < num_lines + num_blank + len(ragged) - num_foot  # lines of the table follow
    if is_cut and not is_dropping:
        raise ValueError(_ragged(ragged[0], ragged[0].number - 1 - has_header, dialect, where))
    rest = held.slice(0, max(0, len(held) - 1 - (num_foot - len(ragged))))
    if not ragged:
        yield rest
        return
    first = " ".join(ragged[0].text.split())[:40]
    which = "of another length" if is_dropping else "at the foot"
    yield rest.replace_schema_metadata({"foot": f"{num_foot} lines {which}", "first": first})


def _options(dialect: Dialect, judge: Callable[[pa.csv.InvalidRow], str]) -> dict[str, Any]:
    """How pyarrow reads the text: as strings, in columns of numbers for names, while `judge` decides on odd rows."""
    # Numbers for names: those of the dialect may occur twice in the file.
    names = [str(d) for d in range(len(dialect.names))]
    parsing = {"delimiter": dialect.delimiter, "newlines_in_values": True, "invalid_row_handler": judge}
    return {
        "read_options": pa.csv.ReadOptions(column_names=names, use_threads=False, block_size=_BLOCK),
        "parse_options": pa.csv.ParseOptions(**parsing),
        "convert_options": pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
    }


def _is_blank(row: pa.csv.InvalidRow, dialect: Dialect) -> bool:
    """Whether a line holds spaces alone, or one that is drawn."""
    return (not row.text.strip() and dialect.delimiter not in row.text) or bool(_RULE.fullmatch(row.text))


_MAX_FOOT = 100


def _is_note(row: pa.csv.InvalidRow, dialect: Dialect) -> bool:
    """Whether a line of another length is one of words, as notes below a table are, and no row that was cut."""
    first = row.text.strip().strip('"')
    if _SEAL in first:
        return False
    cells = [cell for cell in row.text.split(dialect.delimiter) if cell.strip()]
    return bool(_NOTE.fullmatch(first)) or _are_words(cells, row.expected_columns)


def _are_words(cells: Sequence[str], width: int) -> bool:
    """Whether the values of a short line are a sentence, or a note, and not those of a row that was cut."""
    filled = [cell for cell in cells if cell.strip()]
    if not filled or _NOTE.fullmatch(filled[0].strip()):
        return True
    has_words = len(re.findall(r"[^\W\d_]{2,}", filled[0])) > 2
    return has_words and len(filled) <= max(1, width // 2)


def foot_of(table: pa.Table) -> int:
    """How many rows at the end of a table of texts hold nothing, or a text in the first of three columns or more."""
    count = 0
    limit = min(_MAX_FOOT, len(table) - 1)
    if limit < 1:
        return 0
    # Upwards from the last row, as long as rows are empty or hold a text alone.
    tail = [column.slice(len(table) - limit).to_pylist() for column in table.columns]
    for row in range(limit - 1, -1, -1):
        filled = [d for d, column in enumerate(tail) if (column[row] or "").strip()]
        is_word = filled == [0] and len(tail) > 2 and not _NUMBER.fullmatch(str(tail[0][row]).strip())
        if filled and not is_word:
            break
        count += 1
    return 0 if count == limit and limit < len(table) - 1 else count


def _read_spaced(stream: IO[bytes], dialect: Dialect, where: str, *, has_header: bool, skip_footer: int) -> pa.Table:
    """The rows of a text whose columns stand between white space of any width."""
    try:
        text = stream.read().decode(_CODECS.get(dialect.encoding, dialect.encoding))
    except UnicodeDecodeError as error:
        raise ValueError(_unreadable(error, where)) from error
    lines = [line for line in _line_ends(text)[dialect.num_titles :] if line.strip()][int(has_header) :]
    lines = lines[: len(lines) - skip_footer] if skip_footer else lines
    rows = [_cut(line, dialect.places) if dialect.places else _words(line) for line in lines]
    # No value may reach from one column into the next.
    ends = [place - 1 for place in dialect.places[1:]]
    if cut := next(
        (number for number, line in enumerate(lines) if any(line[end : end + 1].strip() for end in ends)), 0
    ):
        raise ValueError(
            f"{where} must have columns of fixed width, but row {cut} (from 0) has no space between two of them: "
            f"{lines[cut][:60]!r}; correct it, or write the table with commas."
        )
    bad = next((number for number, row in enumerate(rows) if len(row) != len(dialect.names)), None)
    if bad is not None:
        raise ValueError(
            f"{where} must have {len(dialect.names)} values between white space in each row, got {len(rows[bad])} in "
            f"row {bad} (from 0): {lines[bad][:60]!r}; correct it."
        )
    # Columns of strings, also without any row.
    columns = zip(*rows, strict=True) if rows else [[] for _ in dialect.names]
    return pa.table([pa.array(column, pa.string()) for column in columns], names=list(dialect.names))


def _places_of(text: str, rows: dict[str, list[tuple[int, list[str]]]], is_whole: bool) -> tuple[int, ...]:
    """Where the columns of a text of fixed width begin; () if it is none.

    All lines have spaces between them, the first has a name for each, and one of them holds numbers alone.
    """
    # A text that some sign divides has no fixed width.
    if any(len(row) > 1 for numbered_rows in rows.values() for _, row in numbered_rows):
        return ()
    lines = [line.rstrip() for line in _line_ends(text) if line.strip()]
    lines = (lines if is_whole else lines[:-1])[: _HEAD_ROWS + 1]
    if len(lines) < 4:
        return ()
    # A column begins where every line has a space before it, and the header a name.
    is_filled = [any(line[place : place + 1].strip() for line in lines) for place in range(max(map(len, lines)))]
    starts = [place for place, filled in enumerate(is_filled) if filled and not (place and is_filled[place - 1])]
    ends = [*starts[1:], len(is_filled)]
    starts = [start for start, end in zip(starts, ends, strict=True) if lines[0][start:end].strip()]
    columns = list(zip(*(_cut(line, starts) for line in lines), strict=True))
    has_values = all(any(column[1:]) for column in columns)
    has_numbers = any(all(_NUMBER.fullmatch(cell) for cell in column[1:] if cell) for column in columns)
    return tuple(starts) if len(starts) > 1 and has_values and has_numbers else ()


def _cut(line: str, places: Sequence[int]) -> list[str]:
    """The values of a line of columns of fixed width."""
    return [line[start:end].strip() for start, end in itertools.zip_longest((0, *places[1:]), places[1:])]


def _words(line: str) -> list[str]:
    """The values of a line between white space; quotation marks keep spaces."""
    return next(csv.reader([" ".join(line.split())], delimiter=" "), [])


def check_quotes(stream: IO[bytes], dialect: Dialect, where: str) -> None:
    """Whether quotation marks stand around whole fields: one that is missing would join rows.

    :raises ValueError: naming the line, if one does not.
    """
    lines = io.TextIOWrapper(stream, encoding=_CODECS.get(dialect.encoding, dialect.encoding), newline="")
    # Titles may hold quotation marks of any kind.
    for _ in range(dialect.num_titles):
        lines.readline()
    # The strict reader of the standard library says where a mark is out of place.
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
    decoder = None
    if dialect.encoding != "utf-8":
        decoder = codecs.getincrementaldecoder(dialect.encoding)()
    num_titles = dialect.num_titles
    titles = bytearray()
    is_first = True
    # The bytes become UTF-8, and the titles are cut off, piece by piece.
    while piece := stream.read(PIECE):
        if decoder is not None:
            piece = decoder.decode(piece).encode()
            piece = piece.removeprefix(_MARK) if is_first else piece
            is_first = False
        if num_titles:  # its line ends may be those of old computers, and a title may end in the next piece
            titles += piece
            lines = _LINE.findall(titles, 0, len(titles) - 1)
            if len(lines) < num_titles:
                continue
            piece = bytes(titles[sum(map(len, lines[:num_titles])) :])
            num_titles = 0
        yield piece
    if num_titles:
        lines = _LINE.findall(titles)
        yield bytes(titles[sum(map(len, lines[:num_titles])) :])
    if decoder is not None:
        yield decoder.decode(b"", final=True).encode()
    yield ("\n" + dialect.delimiter.join([_SEAL] * len(dialect.names)) + "\n").encode()


def _ragged(row: pa.csv.InvalidRow, number: int, dialect: Dialect, where: str) -> str:
    # The last row was swallowed by a quotation mark.
    if _SEAL in row.text:
        return f"{where} has a quotation mark in row {number} (from 0) that is never closed; mend it."
    # What is wrong most often: a delimiter within a value, a file that was cut, or a note.
    mark = DELIMITERS[dialect.delimiter]
    more = "more" if row.actual_columns > row.expected_columns else "fewer"
    cure = f"check its {mark}" if more == "more" else f"check its {mark}, and that the file is complete"
    if more == "fewer" and _is_note(row, dialect):
        cure = "give --skip_footer=N if the last N lines are notes, or a second table"
    return (
        f"{where} has rows of {more} values than column names, the first is row {number} (from 0) with "
        f"{row.actual_columns} instead of {row.expected_columns}: {row.text[:60]!r}; {cure}, or give --bad_rows=drop "
        "to leave out such rows."
    )


def _unreadable(error: Exception, where: str) -> str:
    if "straddling" in str(error):
        return f"{where} has a row of more than {_BLOCK >> 20} MiB; perhaps a quotation mark is never closed."
    cure = "give --encoding=NAME, such as windows-1252" if is_of_encoding(error) else "write it again"
    return f"{where} is no readable, complete CSV file in UTF-8 ({error}); {cure}."


def is_of_encoding(error: BaseException | None) -> bool:
    """Whether a text cannot be read because it is in another encoding."""
    return isinstance(error, UnicodeError) or "UTF8" in str(error)


def _decoded(head: bytes, where: str, is_whole: bool, encoding: str = "") -> tuple[str, str]:
    """The text of the first bytes, and its encoding."""
    # What the user says.
    if encoding:
        try:
            return codecs.getincrementaldecoder(encoding)().decode(head).removeprefix("\ufeff"), encoding
        except (LookupError, UnicodeError) as error:
            raise ValueError(f"{where} is no text in {encoding} ({error}); give another --encoding.") from error
    # UTF-16 is known by its mark; else UTF-8, of which zeros are no part.
    codec = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    if codec == "utf-8" and b"\0" in head:
        raise ValueError(
            f"{where} is no readable, complete CSV file in UTF-8 (it has zero bytes; UTF-16 needs a byte order mark); "
            "give --encoding=utf-16-le if it is such a text."
        )
    try:
        return codecs.getincrementaldecoder(_CODECS[codec])().decode(head, final=is_whole), codec
    except UnicodeDecodeError as error:
        # A text that is UTF-8 above the first odd byte is none in another encoding.
        if codec == "utf-8" and _MULTIBYTE.search(head[: error.start]):
            raise ValueError(
                f"{where} is text in UTF-8 up to byte {error.start}, {head[error.start]:#04x}, which is none; mend it, "
                "or give --encoding=NAME, such as windows-1252, for a file that is all in another encoding."
            ) from error
        if codec == "utf-8" and (guess := encoding_of(head, where)):
            return head.decode(guess), guess
        raise ValueError(
            f"{where} is no readable, complete CSV file in UTF-8 (byte {error.start} is {head[error.start]:#04x}); "
            "give --encoding=NAME, such as windows-1252 or windows-1251."
        ) from error


def _long_rows(reader: Iterator[list[str]]) -> Iterator[list[str]]:
    """The rows of a reader of the standard library, which refuses long fields unless it is told."""
    limit = csv.field_size_limit(2**31 - 1)
    try:
        yield from reader
    finally:
        csv.field_size_limit(limit)


def _rows(text: str, delimiter: str, where: str, is_whole: bool) -> list[tuple[int, list[str]]]:
    """The first whole rows without empty lines, each with the number of lines above it."""
    rows: list[tuple[int, list[str]]] = []
    # The reader knows how many lines each row takes.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    above = 0
    try:
        for row in _long_rows(reader):
            if (any(value.strip() for value in row) or len(row) > 1) and not _RULE.fullmatch(delimiter.join(row)):
                rows.append((above, row))
            above = reader.line_num
            if len(rows) > _HEAD_ROWS:
                return rows
    except csv.Error as error:
        raise ValueError(f"{where} is no readable, complete CSV file in UTF-8 ({error}); write it again.") from error
    # The last row may have been cut.
    return rows if is_whole or len(rows) < 2 else rows[:-1]


def _spaced(
    text: str, rows: dict[str, list[tuple[int, list[str]]]], is_whole: bool
) -> list[tuple[int, list[str]]] | None:
    """The rows of a text whose values stand between white space; None if another sign divides it, or nothing does.

    All rows have equally many values; all are numbers, or one column is, or some are and several spaces line them up. R
    writes names of rows and none above them: then the line of names has one value less.
    """
    # Another sign divides the text.
    others = (row for delimiter in rows if delimiter != "\t" for _, row in rows[delimiter])
    if any(len(row) > 1 and row[0][:1] not in ("#", "%") for row in others):
        return None
    has_tabs = all(len(row) == len(rows["\t"][0][1]) > 1 for _, row in rows["\t"])
    if has_tabs and not all(any("   " in cell.strip() for cell in row) for _, row in rows["\t"]):
        return None
    lines = [(number, line) for number, line in enumerate(_line_ends(text)) if line.strip()][: _HEAD_ROWS + 1]
    lines = lines if is_whole or len(lines) < 2 else lines[:-1]
    num_comments = next((number for number, (_, line) in enumerate(lines) if line[0] not in "#%"), 0)
    try:
        cells = [(number, _words(line)) for number, line in lines[num_comments:]]
        if num_comments:  # the last of them may hold the names, as NumPy writes them
            heads = [
                (number, [word.strip(",") for word in _words(line[1:])])
                for number, line in lines[max(0, num_comments - 2) : num_comments]
            ]
            heads = [(number, names) for number, names in heads if len(names) == len(cells[0][1])]
            has_units = len(heads) > 1 and len(set(heads[0][1])) > len(set(heads[1][1]))  # which occur twice
            cells = [heads[0 if has_units else -1], *cells] if heads else cells
    except csv.Error:
        return None
    # As R writes names of rows: the line of names has one value less.
    widths = {len(row) for _, row in cells}
    if len(cells) > 2 and widths == {len(cells[0][1]), len(cells[0][1]) + 1} and lines[0][1].startswith('"'):
        ids = [row[0] for _, row in cells[1:]]
        return cells if {len(row) for _, row in cells[1:]} == {max(widths)} and len(set(ids)) == len(ids) else None
    if len(cells) < 2 or len(widths) != 1 or widths == {1}:
        return None
    # Numbers alone, a column of numbers, or some numbers and spaces that line the values up.
    values = [value for _, row in cells[1:] for value in row]
    is_number = [_NUMBER.fullmatch(value) is not None for value in values]
    is_aligned = any("  " in line.strip() for _, line in lines)
    is_column = np.all(np.reshape(is_number, (len(cells) - 1, -1)), axis=0).any() and len(cells) > 3
    return cells if all(is_number) or (is_aligned and any(is_number)) or is_column else None


def _delimiter(rows: dict[str, list[tuple[int, list[str]]]], where: str, *, is_known: bool = False) -> tuple[str, int]:
    """The delimiter with which all rows have as many values as the header, two or more, and the row of the header."""
    # The delimiters that leave several values in the header, and the row of this header.
    starts = {
        delimiter: 0 if is_known else _start_of([row for _, row in numbered_rows])
        for delimiter, numbered_rows in rows.items()
    }
    candidates = {d: [row for _, row in rows[d][start:]] for d, start in starts.items() if start is not None}
    candidates = {d: table_rows for d, table_rows in candidates.items() if table_rows and len(table_rows[0]) > 1}
    if not candidates:
        return ",", 0
    # Those with which every row is as long; the header that is highest up wins.
    fitting = [d for d, table_rows in candidates.items() if _num_alike(body := _body(table_rows)) == len(body)]
    least = min((starts[d] or 0 for d in fitting), default=0)  # the others would take the names for a title
    fitting = [d for d in fitting if starts[d] == least]
    if "\t" in fitting:  # no other text holds a tab in each row
        return "\t", starts["\t"] or 0
    if {",", ";"} <= set(fitting):
        cells = [cell.strip() for row in candidates[";"][1:] for cell in row if "," in cell]
        names = ";".join(candidates[";"][0])
        if all(map(_NUMBER.fullmatch, cells)) and names.count(",") == names.count(", "):  # decimal commas
            fitting.remove(",")
    if len(fitting) > 1:
        raise ValueError(
            f"the columns of {where} may be divided by "
            + " or by ".join(f"{DELIMITERS[d]} (the first is {candidates[d][0][0][:40]!r})" for d in fitting)
            + "; quote the fields that hold the other sign, or write the table as Parquet."
        )
    if fitting:
        return fitting[0], starts[fitting[0]] or 0
    # With none of them: the one that fits most rows, so that the error names the others.
    first = {d: [row for _, row in some] for d, some in rows.items() if some and len(some[0][1]) > 1}
    best = max(first or candidates, key=lambda d: _num_alike((first or candidates)[d]))
    return best, 0 if first else starts[best] or 0


def _num_alike(rows: Sequence[Sequence[str]]) -> int:
    """How many rows are as long as the first one."""
    return sum(len(row) == len(rows[0]) for row in rows)


def _start_of(rows: list[list[str]]) -> int | None:
    """Which row is the header: the first one, below lines of titles, which have less than half of the table's values.

    None if most rows have one value only.
    """
    if not rows:
        return None
    # The usual width, and how many values of each row are not empty.
    widths = collections.Counter(len(row) for row in rows)
    width = max(widths, key=lambda size: (widths[size], size))
    if width < 2 or widths[width] < 2:
        return 0 if len(rows[0]) > 1 else None
    filled = [sum(bool(value.strip()) for value in row) for row in rows]
    usual = sorted(filled)[len(filled) // 2]
    # The first row that is neither comment, title nor empty.
    for number, row in enumerate(rows):
        if (row[0].lstrip().startswith(("# ", "% ")) and len(row) != width) or row[0].startswith("!"):
            continue  # a comment, or what is known of a series of GEO
        is_title = len(row) < width if len(row) != width else row[0].strip() != "" and filled[number] == 1 < usual
        if filled[number] == 0:
            continue
        if not is_title or filled[number] > max(1, width // 2) or filled[number] == width - 1 > 2:
            return number
    return None


def _body(rows: list[list[str]]) -> list[list[str]]:
    """The rows of a table without the shorter ones at its foot."""
    last = max(number for number, row in enumerate(rows) if len(row) == len(rows[0]))
    notes = rows[last + 1 :]
    are_words = len(notes) <= last and all(_are_words(row, len(rows[0])) for row in notes)
    return rows[: last + 1] if are_words else rows
