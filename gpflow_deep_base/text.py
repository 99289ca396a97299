"""Tables, times and means as text."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence

__all__ = ["aligned", "duration", "has_control_characters", "plus_minus"]


def aligned(rows: Sequence[Sequence[str]], *, is_text: bool = False) -> str:
    """Cells in columns, the first to the left and the others to the right, or all to the left if they are text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if is_text or i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Time as text: "42 s", "3 min 5 s", "2 h 40 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def plus_minus(mean: float, standard_error: float | None, digits: int = 3) -> str:
    """A mean with its standard error: "1.352 ± 0.007"; without one (None or NaN) the mean alone."""
    if standard_error is None or math.isnan(standard_error):
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {standard_error:.{digits}f}"


def has_control_characters(text: str) -> bool:
    """Whether a text has characters that end a line or control a terminal, which no line of a file can hold."""
    return any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in text)
