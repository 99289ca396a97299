"""A file that gives a delimited table back, byte for byte: encode_table, decode_table.

    data = encode_table(Path("flights.csv").read_bytes())
    content = decode_table(data)

Cells are coded in their order by an adaptive mixture of contexts (`table_model`): the columns that tell most of a
column, alone and together, and the rows above. Nothing is trained and nothing is needed beside the file; what does not
fit the table (lines with another number of cells) is kept as text, and where LZMA is shorter, the file holds that
(its best setting is tried where its quickest comes within 5/3 of the table's length).

After magic, version and checksum (`gpflow_deep_base.storage.frame`): the method (1 byte), the CRC-32 of the content (4
bytes), its length, and the coded content. Of a table: delimiter, quote, line end and columns, then two streams of the
same coder, of the texts (odd lines, levels of columns) and of the cells.
"""

from __future__ import annotations

import bz2
import importlib.util
import io
import lzma
import zlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_base.storage.frame import Reader, framed, leb128, unframed
from gpflow_deep_base.storage.limits import Budget, budget_of, one_line

from . import table_columns as columns
from .table_columns import LINE_ENDS, Column, Layout
from .table_model import PARENTS, Table, code, memory, new_state

__all__ = ["METHODS", "decode_table", "encode_table", "method_of", "other_lengths"]

METHODS = ("stored", "lzma", "table")
_MAGIC = b"\x89GDT"
_VERSION = 1
_FILTERS = (
    {"lc": 3, "lp": 0, "pb": 2},
    {"lc": 4, "lp": 0, "pb": 0},
)
_LEAST_DICTIONARY = 1 << 12
_MOST_DICTIONARY = 1 << 26
_BEST = 9 | lzma.PRESET_EXTREME
_QUICK = 0
_FREE_BYTES = 256 * 10**6
_PER_BYTE = 100


class _Shape(NamedTuple):
    """Columns of a table as the file states them."""

    levels: list[int]
    is_difference: list[bool]
    parents: NDArray[np.int64]


def encode_table(content: bytes) -> bytes:
    """The file of a table; of anything else, too.

        >>> import darn
        >>> table = b"city,price\\n" + b"Bern,1200\\nBasel,1300\\n" * 50
        >>> packed = darn.encode_table(table)
        >>> len(packed) < len(table) // 10, darn.decode_table(packed) == table
        (True, True)

    :param content: bytes of a delimited file of any encoding.
    :returns: what :func:`decode_table` reads. It does not depend on the machine's number of threads.
    :raises ValueError: if the content is not bytes.
    """
    content = _as_bytes(content, "content")
    # As it is, as a table, or by LZMA where this comes near: the shortest stays.
    bodies = [(0, content)]
    layout = columns.layout_of(content)
    if layout is not None and layout.columns and (coded := _table(layout)) is not None:
        bodies.append((2, coded))
    shortest = min(len(body) for _, body in bodies)
    if 3 * len(_lzma(content, 0, _QUICK)) < 5 * shortest:
        bodies += [(1, bytes([i]) + _lzma(content, i)) for i in range(len(_FILTERS))]
    method, body = min(bodies, key=lambda item: len(item[1]))
    head = bytes([method]) + zlib.crc32(content).to_bytes(4, "little") + leb128(len(content))
    return framed(_MAGIC, _VERSION, head + body)


def decode_table(data: bytes, *, max_bytes: int | None = None) -> bytes:
    """The content that :func:`encode_table` was given.

    :param data: of the file.
    :param max_bytes: that decoding may take; 256 MB and 100 times the file if it is not given.
    :raises ValueError: if the file is damaged, of another kind, or its content would take more.
    """
    # The header.
    data = _as_bytes(data, "data")
    budget = budget_of(len(data), _FREE_BYTES + _PER_BYTE * len(data) if max_bytes is None else max_bytes)
    try:
        _, payload = unframed(data, magic=_MAGIC, versions=(_VERSION,))
        reader = Reader(payload)
        method = reader.byte()
        checksum = int.from_bytes(reader.take(4), "little")
        length = reader.integer(what="the length of the content")
        budget.take(length, "the content")
        # The content, by its method.
        if method == 0:
            content = reader.take(length)
            reader.end()
        elif method == 1:
            content = _from_lzma(reader, length, budget)
        elif method == 2:
            content = _from_table(reader, length, budget)
        else:
            raise ValueError(f"it has method {method}")
        if len(content) != length or zlib.crc32(content) != checksum:
            raise ValueError("its content does not match its checksum")
    except ValueError as error:
        raise ValueError(f"this cannot be read as a coded table ({one_line(error)}); copy the file again.") from error
    return content


def method_of(data: bytes) -> str:
    """How the content of a file is coded: one of METHODS.

    :param data: what :func:`encode_table` returned.
    """
    return METHODS[unframed(data, magic=_MAGIC, versions=(_VERSION,))[1][0]]


def other_lengths(content: bytes) -> dict[str, int]:
    """Bytes of a delimited table by what else a user has: bz2 and xz at their strongest, Parquet with zstd.

    :param content: of the file.
    :return: "bz2", "xz", and "Parquet, zstd" where pyarrow is installed and reads the table; Parquet keeps the cells,
        not how they were written.
    """
    lengths = {"bz2": len(bz2.compress(content, 9))}
    lengths["xz"] = len(lzma.compress(content, preset=_BEST))
    if importlib.util.find_spec("pyarrow") is None:
        return lengths
    import pyarrow
    from pyarrow import csv, parquet

    # What pyarrow does not read as a table has no length by Parquet.
    file = io.BytesIO()
    try:
        parquet.write_table(csv.read_csv(io.BytesIO(content)), file, compression="zstd", compression_level=19)
    except (pyarrow.ArrowException, ValueError):
        return lengths
    return {**lengths, "Parquet, zstd": file.getbuffer().nbytes}


def _as_bytes(content: bytes | bytearray | memoryview, name: str) -> bytes:
    if not isinstance(content, bytes | bytearray | memoryview):
        raise ValueError(f"{name} must be bytes, got {type(content).__name__}; read the file in binary mode.")
    return bytes(content)


def _filter(length: int, index: int, preset: int = _BEST) -> list[dict[str, int]]:
    """Settings of LZMA for so many bytes."""
    # A power of two that holds the content, which is all that can be looked back at.
    size = min(_MOST_DICTIONARY, max(_LEAST_DICTIONARY, 1 << max(0, length - 1).bit_length()))
    return [{"id": lzma.FILTER_LZMA2, "preset": preset, "dict_size": size, **_FILTERS[index]}]


def _lzma(content: bytes, index: int, preset: int = _BEST) -> bytes:
    return lzma.compress(content, format=lzma.FORMAT_RAW, filters=_filter(len(content), index, preset))


def _from_lzma(reader: Reader, length: int, budget: Budget) -> bytes:
    # Raw LZMA has no header: index and length say with which settings it was made.
    index = reader.integer(len(_FILTERS) - 1, "the setting of LZMA")
    filters = _filter(length, index)
    budget.take(filters[0]["dict_size"], "LZMA")
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters)
    try:
        content = unpacker.decompress(reader.take(reader.left), length + 1)
    except lzma.LZMAError as error:
        raise ValueError("its LZMA stream is damaged") from error
    return content


def _table(layout: Layout) -> bytes | None:
    """The coded content of a table; None if that is longer than the table."""
    D = layout.width
    N = len(layout.columns[0])
    # Columns, which of them tell most of the others, and the texts beside the cells.
    all_columns = [columns.column_of(cells) for cells in layout.columns]
    texts = list(layout.odd.values()) + [level for column in all_columns for level in column.levels]
    parents, table = _features(all_columns)
    shape = _Shape([len(c.levels) for c in all_columns], [c.is_difference for c in all_columns], parents)
    # The layout, the other lines' places, and each column's levels and parents.
    out = [layout.delimiter, bytes([layout.line_end << 1 | layout.ends])]
    out += [leb128(N), leb128(D), leb128(len(layout.odd))]
    next_line = 0
    for i in layout.odd:
        out.append(leb128(i - next_line))
        next_line = i + 1
    for d in range(D):
        out.append(leb128(shape.levels[d] << 1 | shape.is_difference[d]))
        out.append(b"".join(leb128(int(j) + 1) for j in parents[d] if j >= 0))
        if parents[d, -1] < 0:
            out.append(b"\0")
    # Two streams: texts, and cells.
    length = sum(len(text) + 1 for text in texts)
    side = _encoded(_one_column(len(texts), b"".join(text + b"\0" for text in texts)))
    cells = _encoded(table)
    if side is None or cells is None:
        return None
    return b"".join([*out, leb128(length), leb128(len(side)), side, leb128(len(table.text)), cells])


def _one_column(N: int, text: bytes) -> Table:
    """Texts as a table."""
    parents = np.full((1, PARENTS), -1, np.int64)
    content = np.frombuffer(text, np.uint8).copy()
    return Table(np.zeros(1, np.int64), parents, np.ones(1, np.int64), np.zeros((N, 3), np.int32), content)


def _extra(levels: list[int]) -> NDArray[np.int64]:
    """First extra feature of each column of text."""
    extra = np.zeros(len(levels), np.int64)
    place = len(levels)
    for d, count in enumerate(levels):
        if not count:
            extra[d] = place
            place += 2
    return extra


def _features(all_columns: list[Column]) -> tuple[NDArray[np.int64], Table]:
    """Which columns a column depends on, and the table."""
    D = len(all_columns)
    N = len(all_columns[0].cells)
    levels = [len(column.levels) for column in all_columns]
    # Ranks of all columns; a column of text also has the ranks of its ends.
    column_of_feature = list(range(D))
    ranks = [column.ranks for column in all_columns]
    for d, column in enumerate(all_columns):
        if not column.levels:
            for part in (slice(-2, None), slice(None, 3)):
                parts = [cell[part] for cell in column.cells]
                rank = {value: i for i, value in enumerate(sorted(set(parts)))}
                ranks.append(np.fromiter(map(rank.__getitem__, parts), np.int32, N))
                column_of_feature.append(d)
    parents = columns.choose_parents(ranks, column_of_feature, D)
    # What is coded: ranks, and texts row by row.
    features = np.zeros((N, len(ranks)), np.int32)
    for d, column in enumerate(all_columns):
        if column.levels:
            features[:, d] = column.ranks
    texts = [column.cells for column in all_columns if not column.levels]
    text = b"".join(cell + b"\0" for row in zip(*texts, strict=True) for cell in row)
    content = np.frombuffer(text, np.uint8).copy()
    return parents, Table(np.array(levels, np.int64), parents, _extra(levels), features, content)


def _encoded(table: Table) -> bytes | None:
    """The stream of a table; None if it is so long that no table needs it."""
    # Room for twice the text and three bytes a cell: what needs more is no better than the table.
    N = len(table.features)
    D = len(table.levels)
    stream = np.zeros(1024 + 2 * len(table.text) + 3 * N * D, np.uint8)
    state = new_state(N * D, len(table.text), D, stream, False)
    if not code(state, table):  # longer than the table is
        return None
    return stream[: state.registers[3]].tobytes()


def _decode(data: bytes, table: Table, budget: Budget) -> None:
    """Fill a table in from its stream.

    :raises ValueError: if the stream is of another table.
    """
    N = len(table.features)
    D = len(table.levels)
    budget.take(memory(N * D, len(table.text), D), "the model")
    state = new_state(N * D, len(table.text), D, np.frombuffer(data, np.uint8).copy(), True)
    if not code(state, table) or state.registers[5] != len(table.text):
        raise ValueError("its texts have another length")


def _from_table(reader: Reader, length: int, budget: Budget) -> bytes:
    """The content of a table."""
    # The layout, and the other lines' places.
    delimiter = reader.take(1)
    flags = reader.integer(2 * len(LINE_ENDS) - 1, "the line end")
    N = reader.integer(length, "the number of rows")
    D = reader.integer(length + 1, "the number of columns")
    if not 1 <= N * D <= length + 1:
        raise ValueError(f"it has {N} rows of {D} columns, and {length} bytes")
    num_odd = reader.integer(length, "the number of other lines")
    places = [-1]
    for _ in range(num_odd):
        places.append(places[-1] + 1 + reader.integer(length, "a line"))
    places = places[1:]
    if places and places[-1] >= N + num_odd:
        raise ValueError(f"it has line {places[-1]} of {N + num_odd}")
    # The columns' shapes, and the lengths of all that follows.
    shape = _read_shape(reader, N, D)
    num_levels = sum(shape.levels)
    size = reader.integer(length + 32 * num_levels, "the length of the texts")
    side = reader.take(reader.integer(reader.left, "the length of a stream"))
    text_size = reader.integer(length + 32 * N * D, "the length of the texts of cells")
    # texts: odd lines, and levels of columns
    budget.take(64 * (num_odd + num_levels) + 3 * size, "the texts")
    table = _one_column(num_odd + num_levels, bytes(size))
    _decode(side, table, Budget(budget.max_bytes))
    texts = table.text.tobytes().split(b"\0")
    odd = dict(zip(places, texts, strict=False))
    # cells
    extra = _extra(shape.levels)
    num_texts = shape.levels.count(0)
    F = D + 2 * num_texts
    budget.take(4 * N * F + 8 * N * D + 48 * N * num_texts + 3 * text_size + 2 * length + 48 * N, "the cells")
    text = np.zeros(text_size, np.uint8)
    table = Table(np.array(shape.levels, np.int64), shape.parents, extra, np.zeros((N, F), np.int32), text)
    _decode(reader.take(reader.left), table, budget)
    cells = _cells(shape, table, texts[num_odd:])
    return _joined(cells, odd, delimiter, flags, length)


def _read_shape(reader: Reader, N: int, D: int) -> _Shape:
    """Levels and parents of the columns.

    :raises ValueError: if they cannot be.
    """
    if reader.left < D:
        raise ValueError(f"it has {D} columns and ends before their end")
    levels = []
    is_difference = []
    parents = np.full((D, PARENTS), -1, np.int64)
    # Levels and parents of each column.
    for d in range(D):
        count = reader.integer(2 * N + 1, "the number of levels")
        levels.append(count >> 1)
        is_difference.append(bool(count & 1))
        for i in range(PARENTS):
            parents[d, i] = reader.integer(3 * D, "a column") - 1
            if parents[d, i] < 0:
                break
    # Each feature's column: a parent must lie before its child.
    column = list(range(D)) + [d for d in range(D) if not levels[d] for _ in range(2)]
    for d in range(D):
        if any(j >= len(column) or column[j] >= d for j in parents[d] if j >= 0):
            raise ValueError("a column depends on one that comes later")
    return _Shape(levels, is_difference, parents)


def _cells(shape: _Shape, table: Table, levels: list[bytes]) -> list[list[bytes]]:
    """The cells of each column."""
    # Levels by their ranks; texts are row by row, one column after the other.
    N = len(table.features)
    num_texts = shape.levels.count(0)
    cells_of_text = table.text.tobytes().split(b"\0")
    out: list[list[bytes]] = []
    place = 0
    text = 0
    for d, count in enumerate(shape.levels):
        if count:
            column_levels = levels[place : place + count]
            place += count
            cells = [column_levels[i] for i in table.features[:, d].tolist()]
        else:
            cells = cells_of_text[text : N * num_texts : num_texts]
            text += 1
        out.append(columns.from_differences(cells) if shape.is_difference[d] else cells)
    return out


def _joined(cells: list[list[bytes]], odd: dict[int, bytes], delimiter: bytes, flags: int, length: int) -> bytes:
    """The content from its cells and its other lines.

    :raises ValueError: if it is not as long as stated.
    """
    # The length is compared before anything is joined.
    N = len(cells[0])
    line_end = LINE_ENDS[flags >> 1]
    num_lines = N + len(odd)
    total = sum(sum(map(len, column)) for column in cells) + sum(map(len, odd.values()))
    total += N * (len(cells) - 1) + (num_lines - 1 + (flags & 1)) * len(line_end)
    if total != length:
        raise ValueError(f"it has {total} bytes of content, not {length}")
    rows = map(delimiter.join, zip(*cells, strict=True))
    lines = [odd[i] if i in odd else next(rows) for i in range(num_lines)]
    return line_end.join(lines) + (line_end if flags & 1 else b"")
