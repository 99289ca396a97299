"""Columns of a delimited table: bytes to cells and back, cells to ranks, and on which columns a column depends."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .table_model import PARENTS

__all__ = ["LINE_ENDS", "Column", "Layout", "choose_parents", "column_of", "from_differences", "layout_of"]

LINE_ENDS = (b"\n", b"\r\n", b"\r")
_DELIMITERS = (b",", b"\t", b";", b"|", b" ")
_SAMPLE = 1 << 16
_MOST_LEVELS = 1 << 16
_MOST_COLUMNS = 1024
_MOST_BYTES = 1 << 30
_MOST_CANDIDATES = 100
_MOST_DIGITS = 18
_WORK = 20_000_000


@dataclass
class Layout:
    """How the lines of a file are its rows.

    :ivar delimiter: between cells, one byte.
    :ivar quote: the byte within two of which delimiters and line ends are text, or none.
    :ivar line_end: index into LINE_ENDS.
    :ivar ends: whether the last line has a line end.
    :ivar width: cells of a row, D.
    :ivar odd: lines that are no rows, by their index: the first one, which holds names, and those with another number
        of cells.
    :ivar columns: the cells of the others, [D] lists.
    """

    delimiter: bytes
    quote: bytes
    line_end: int
    ends: bool
    width: int
    odd: dict[int, bytes] = field(default_factory=dict)
    columns: list[list[bytes]] = field(default_factory=list)


@dataclass
class Column:
    """A column as it is coded.

    :ivar cells: texts of its cells, or of the differences between whole numbers.
    :ivar is_difference: which of them.
    :ivar levels: the different cells, sorted; empty if the column is coded as text.
    :ivar ranks: of the cells among the levels, or among all different cells, [N].
    """

    cells: list[bytes]
    is_difference: bool
    levels: list[bytes]
    ranks: NDArray[np.int32]


@njit(nogil=True, cache=True)
def _outside(content: NDArray[np.uint8], quote: int) -> NDArray[np.bool_]:
    """Which bytes lie outside of quotes."""
    outside = np.ones(len(content), np.bool_)
    inside = False
    for i in range(len(content)):
        if content[i] == quote:
            inside = not inside
        outside[i] = not inside
    return outside


def _places(content: bytes, mark: bytes, quote: bytes) -> NDArray[np.int64]:
    """Where a mark of one or two bytes begins; within quotes it is text."""
    # All marks, then those within quotes are taken out.
    bytes_ = np.frombuffer(content, np.uint8)
    is_mark = bytes_ == mark[0]
    if len(mark) == 2:
        is_mark[:-1] &= bytes_[1:] == mark[1]
        is_mark[-1:] = False
    if quote and quote in content:
        is_mark &= _outside(bytes_, quote[0])
    return np.flatnonzero(is_mark)


def _split(content: bytes, mark: bytes, quote: bytes) -> list[bytes]:
    """What lies between marks."""
    if not quote or quote not in content:
        return content.split(mark)
    ends = _places(content, mark, quote)
    starts = [0, *(ends + len(mark)).tolist()]
    return [content[a:b] for a, b in zip(starts, [*ends.tolist(), len(content)], strict=True)]


def _widths(content: bytes, line_end: bytes, delimiter: bytes, quote: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Cells of each line, and its bytes with one of its end."""
    ends = np.append(_places(content, line_end, quote), len(content))
    num_delimiters = np.searchsorted(_places(content, delimiter, quote), ends)
    return 1 + np.diff(num_delimiters, prepend=0), np.diff(ends, prepend=-1)


def layout_of(content: bytes) -> Layout | None:
    """Delimiter, quotes and line ends under which rows of one width have most bytes; None if the file is no table.

    :param content: of the file.
    """
    if 0 in content or not 0 < len(content) < _MOST_BYTES:  # 0 ends a text
        return None
    # The commonest line end; one of two bytes counts as neither of them.
    counts = [content.count(line_end) for line_end in LINE_ENDS]
    counts[0] -= counts[1]
    counts[2] -= counts[1]
    line_end = int(np.argmax(counts))
    best: tuple[int, Layout] | None = None
    # The delimiter and quotes with which rows of one width cover most bytes of the sample.
    head = content[:_SAMPLE]
    for quote in (b'"', b"") if b'"' in content else (b"",):
        for delimiter in _DELIMITERS:
            widths, lengths = _widths(head, LINE_ENDS[line_end], delimiter, quote)
            # The sample may end within a line.
            complete = slice(max(1, len(widths) - 1))
            covered = np.bincount(widths[complete], lengths[complete])
            width = len(covered) - 1 - int(covered[::-1].argmax())
            score = int(covered[width]) * min(width, 2)
            if width <= _MOST_COLUMNS and (best is None or score > best[0]):
                best = score, Layout(delimiter, quote, line_end, False, width)
    return _filled(best[1], content) if best else None


def _filled(layout: Layout, content: bytes) -> Layout:
    """The layout with its rows."""
    line_end = LINE_ENDS[layout.line_end]
    # Lines of another width, and the first one, are kept as they are.
    lines = _split(content, line_end, layout.quote)
    is_row = _widths(content, line_end, layout.delimiter, layout.quote)[0] == layout.width
    is_row[0] = False
    layout.ends = lines[-1] == b""
    if layout.ends:
        lines.pop()
    layout.odd = {i: line for i, line in enumerate(lines) if not is_row[i]}
    if len(layout.odd) < len(lines):
        # All cells at once: cells of a row are neighbours.
        rows = layout.delimiter.join(itertools.compress(lines, is_row))
        cells = _split(rows, layout.delimiter, layout.quote)
        layout.columns = [cells[d :: layout.width] for d in range(layout.width)]
    return layout


def column_of(cells: list[bytes]) -> Column:
    """How a column is coded: by ranks where cells recur, else as text; whole numbers by differences where these recur.

    :param cells: of the column, N of them.
    """
    distinct = set(cells)
    # Whole numbers whose differences recur.
    value_of = _whole_numbers(distinct) if len(distinct) > 64 else None
    if value_of is not None:
        values = [value_of[cell] for cell in cells]
        differences = [b"%d" % (b - a) for a, b in zip([0, *values], values, strict=False)]
        if len(set(differences)) * 4 < len(distinct):
            return _ranked(differences, set(differences), True)
    return _ranked(cells, distinct, False)


def from_differences(cells: list[bytes]) -> list[bytes]:
    """Whole numbers by their differences.

    :param cells: differences, the first from 0.
    :raises ValueError: if one is not a whole number.
    """
    total = 0
    out = []
    for cell in cells:
        if len(cell) > _MOST_DIGITS + 2:
            raise ValueError("a difference has too many digits")
        total += int(cell)
        out.append(b"%d" % total)
    return out


def _whole_numbers(cells: set[bytes]) -> dict[bytes, int] | None:
    """Cells as numbers, if each is written as Python writes it."""
    values = {}
    for cell in cells:
        if len(cell) > _MOST_DIGITS or not cell.lstrip(b"-").isdigit():
            return None
        value = int(cell)
        if b"%d" % value != cell:
            return None
        values[cell] = value
    return values


def _ranked(cells: list[bytes], distinct: set[bytes], is_difference: bool) -> Column:
    # In the order of their values, so that near ranks are near numbers; texts that hardly recur have no levels.
    levels = sorted(distinct, key=_order)
    rank = {level: i for i, level in enumerate(levels)}
    ranks = np.fromiter(map(rank.__getitem__, cells), np.int32, len(cells))
    if len(levels) > _MOST_LEVELS or 2 * len(levels) > len(cells) + 2:
        return Column(cells, is_difference, [], ranks)
    return Column(cells, is_difference, levels, ranks)


def _order(level: bytes) -> tuple[bool, float, bytes]:
    """Numbers by their value, then texts."""
    try:
        value = float(level)
    except ValueError:
        return True, 0.0, level
    return (False, value, level) if value == value else (True, 0.0, level)


def choose_parents(features: list[NDArray[np.int32]], column: list[int], D: int) -> NDArray[np.int64]:
    """The features of earlier columns that tell most of a column, each given those before it.

    :param features: dense ranks of each feature, [N]; the first D are the columns.
    :param column: of each feature.
    :param D: number of columns.
    :returns: [D, PARENTS], -1 for none.
    """
    parents = np.full((D, PARENTS), -1, np.int64)
    # Rows enough to tell, as evenly spread as the time allows.
    N = len(features[0])
    pairs = max(1, 2 * D * len(features))
    rows = np.linspace(0, N - 1, min(N, max(1000, min(20_000, _WORK // pairs)))).astype(np.int64)
    sample = [_ranks(feature[rows].astype(np.int64)) for feature in features]
    for d in range(D):
        candidates = [f for f in range(len(features)) if column[f] < d and sample[f].max() > 0]
        candidates = candidates[-_MOST_CANDIDATES:]
        size = int(sample[d].max()) + 1
        if not candidates or size == 1:
            continue
        # Greedily: the feature with which the column costs least beside those chosen before.
        context = np.zeros(len(rows), np.int64)
        alone = {f: _cost(sample[d], size, sample[f]) for f in candidates}
        costs = alone
        for i in range(min(PARENTS, len(candidates))):
            if i in (1, 2):
                near = sorted(candidates, key=lambda f: alone[f])[:24]
                costs = {f: _cost(sample[d], size, _pairs(context, sample[f])) for f in near}
            elif i > 2:
                costs = alone
            best = min((f for f in costs if f in candidates), key=lambda f: costs[f])
            parents[d, i] = best
            candidates.remove(best)
            context = _ranks(_pairs(context, sample[best]))
    return parents


def _ranks(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of values among the different ones."""
    inverse: NDArray[np.int64] = np.unique(values, return_inverse=True)[1].astype(np.int64)
    return inverse


def _pairs(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pairs of ranks as whole numbers."""
    return a * (int(b.max()) + 1) + b


@njit(nogil=True, cache=True)
def _cost(values: NDArray[np.int64], size: int, given: NDArray[np.int64]) -> float:
    """Bits of values where their context is known: of their entropy, and four for each pair that must be learned.

    :param values: whole numbers below `size`.
    :param size: how many they can be.
    :param given: the context, whole numbers.
    """
    # A power of two with room for twice the values.
    mask = 1
    while mask < 2 * len(values):
        mask <<= 1
    cost = 0.0
    for is_pair in range(2):
        # Counts of what is different, by hashes with open addressing.
        keys = np.full(mask, -1, np.int64)
        counts = np.zeros(mask, np.int64)
        for i in range(len(values)):
            key = given[i] * size + values[i] if is_pair else given[i]
            at = (key * 0x9E3779B97F4A7C1 >> 20) & (mask - 1)
            while keys[at] != key and keys[at] >= 0:
                at = (at + 1) & (mask - 1)
            keys[at] = key
            counts[at] += 1
        for n in counts:
            if n:
                # N H(value | context) = sum over contexts of n log2 n, less that over pairs.
                bits = n * np.log2(n)
                cost += 4.0 - bits if is_pair else bits
    return cost
