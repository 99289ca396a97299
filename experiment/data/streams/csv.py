"""CSV files of a stream: a block is some whole lines. Row numbers are numbers of lines, from 0 below the header."""

import io
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.csv

from experiment.data.streams import blocks, storage
from experiment.data.streams.blocks import NULLS, Block, Extent, Kind, Layout, kind_of, read_bytes

__all__ = ["extents", "kinds", "read"]

_HEAD_BYTES, _HEAD_LINES = 2**20, 100


def kinds(path: str, header: Sequence[str] | None) -> dict[str, Kind]:
    """Columns of a file; they are numbers if those of its first lines are.

    :param header: names of the columns of a file without a header line.
    """
    with storage.open_file(path) as file:
        head = file.read(_HEAD_BYTES)
    names = _header(path) if header is None else list(header)
    lines = head.split(b"\n")
    rows = b"\n".join(lines[0 if header is not None else 1 : max(2, min(_HEAD_LINES, len(lines) - 1))])
    if not rows.strip():
        return dict.fromkeys(names, "number")
    table = pa.csv.read_csv(
        io.BytesIO(rows),
        read_options=pa.csv.ReadOptions(column_names=names),
        parse_options=pa.csv.ParseOptions(invalid_row_handler=lambda row: "skip"),
        convert_options=pa.csv.ConvertOptions(null_values=NULLS, strings_can_be_null=True),
    )
    return {field.name: kind_of(field.type) for field in table.schema}


def extents(path: str, size: int, header: Sequence[str] | None) -> Iterator[Extent]:
    """Blocks of lines; reads every byte of the file.

    :param size: of the file in bytes.
    :raises OSError: if a line is longer than `blocks.BLOCK_BYTES`.
    """
    return blocks.joined(_line_ends(path, size, skip_line=header is None))


def read(path: str, block: Block, layout: Layout, header: Sequence[str] | None, *, drop_bad_rows: bool) -> pa.Table:
    """The layout's columns of a block; numbers as text if `drop_bad_rows`, which also skips lines of a wrong length."""
    content = read_bytes(path, block)
    kinds = {field.column: field.kind for field in layout.values()}
    numbers = pa.string() if drop_bad_rows else pa.float64()
    return pa.csv.read_csv(
        io.BytesIO(content),
        read_options=pa.csv.ReadOptions(
            column_names=_header(path) if header is None else list(header),
            use_threads=False,
            block_size=max(len(content), 1024),
        ),
        parse_options=pa.csv.ParseOptions(
            invalid_row_handler=(lambda row: "skip") if drop_bad_rows else (lambda row: "error")
        ),
        convert_options=pa.csv.ConvertOptions(
            include_columns=list(kinds),
            column_types={name: numbers if kind == "number" else pa.string() for name, kind in kinds.items()},
            null_values=NULLS,
            strings_can_be_null=True,
        ),
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


def _header(path: str) -> list[str]:
    with storage.open_file(path) as file:
        line = file.readline()
    if not line.strip():
        raise OSError("its first line must be a header, it is empty")
    return [name.strip() for name in pa.csv.read_csv(io.BytesIO(line)).column_names]
