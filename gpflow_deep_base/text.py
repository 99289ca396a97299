"""Tables, times and means as text."""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Sequence
from itertools import zip_longest

__all__ = ["WIDTH", "aligned", "duration", "has_control_characters", "plus_minus", "within"]

WIDTH = 80
"""Columns of a terminal, which all that is printed fits into."""
_LEAST_COLUMN = 12
_INDENT = "    "


def aligned(rows: Sequence[Sequence[str]], *, is_text: bool = False) -> str:
    """Cells in columns, the first to the left and the others to the right, or all to the left if they are text.

    Cells of text are broken at blanks where the columns are wider than a terminal.
    """
    # Each column is as wide as its widest cell.
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if is_text:
        rows, widths = _broken(rows, widths)
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if is_text or i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _broken(rows: Sequence[Sequence[str]], widths: list[int]) -> tuple[Sequence[Sequence[str]], list[int]]:
    """Rows whose columns fit into a terminal, the widest ones in several lines; and their widths."""
    limits = list(widths)
    # The widest column gives way, letter by letter, until all fit or are narrow.
    while sum(limits) + 2 * (len(limits) - 1) > WIDTH and max(limits) > _LEAST_COLUMN:
        limits[limits.index(max(limits))] -= 1
    if limits == widths:
        return rows, widths
    # A row takes as many lines as its highest cell.
    lines = list[Sequence[str]]()
    for row in rows:
        cells = [textwrap.wrap(cell, limit, break_on_hyphens=False) for cell, limit in zip(row, limits, strict=True)]
        lines += zip_longest(*[cell or [""] for cell in cells], fillvalue="")
    return lines, [max(map(len, column)) for column in zip(*lines, strict=True)]


def within(text: str) -> str:
    """Lines of prose broken at blanks where they are longer than a terminal is wide, the rest of a line indented.

    Rows of tables, which have two blanks in a row, and words that are longer stay as they are.
    """
    return "\n".join(
        line
        if len(line) <= WIDTH or "  " in line.strip()
        else textwrap.fill(line, WIDTH, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    )


def duration(seconds: float) -> str:
    """Time as text: "42 s", "3 min 5 s", "2 h 40 min"."""
    whole_seconds = round(seconds)
    if whole_seconds < 60:
        return f"{whole_seconds} s"
    if whole_seconds < 3600:
        return f"{whole_seconds // 60} min {whole_seconds % 60} s"
    return f"{whole_seconds // 3600} h {whole_seconds % 3600 // 60} min"


def plus_minus(mean: float, standard_error: float | None, digits: int = 3) -> str:
    """A mean with its standard error: "1.352 ± 0.007"; without one (None or NaN) the mean alone."""
    if standard_error is None or math.isnan(standard_error):
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {standard_error:.{digits}f}"


def has_control_characters(text: str) -> bool:
    """Whether a text has characters that end a line or control a terminal, which no line of a file can hold."""
    return any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in text)
