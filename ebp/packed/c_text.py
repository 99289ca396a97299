"""Constants and comments of C."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["array", "comment", "floats"]


def array(kind: str, name: str, values: Any) -> str:
    """A constant array, and its size in bytes as a comment."""
    size = {"uint8_t": 1, "int16_t": 2, "uint16_t": 2, "int32_t": 4, "uint32_t": 4, "int64_t": 8}[kind]
    form = "INT64_C({})" if kind == "int64_t" else "{}"
    return _lines(kind, name, [form.format(int(value)) for value in values], size)


def floats(name: str, values: NDArray[np.float64]) -> str:
    """The same of numbers in double precision."""
    return _lines("double", name, [repr(float(value)) for value in values], 8)


def _lines(kind: str, name: str, texts: Sequence[str], size: int) -> str:
    lines = []
    line = "   "
    for text in texts:
        if len(line) + len(text) > 110:
            lines.append(line)
            line = "   "
        line += f" {text},"
    body = "\n".join([*lines, line])
    return f"static const {kind} {name}[] = {{ /* {size * len(texts)} bytes */\n{body}\n}};"


def comment(text: str) -> str:
    """Text that does not end a comment, in ASCII."""
    return (
        text.encode("ascii", "replace")
        .decode()
        .replace("*/", "* /")
        .replace("/*", "/ *")
        .replace("\n", " ")
        .replace("\\", "/")
    )
