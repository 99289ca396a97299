"""How much memory the reader of a file may take, and one message for a file that is damaged.

A file says how large its content is. Whoever made it may have lied, so sizes are compared with a budget, and with the
file's length where nothing is packed, before room is made for anything.
"""

from __future__ import annotations

import os
import re
import zlib
from typing import NoReturn

from ..files import PathLike

__all__ = ["Budget", "budget_of", "inflated", "most_text", "one_line", "refuse_damaged"]

_FREE_BYTES = 100 * 10**6
_PER_BYTE = 3


class Budget:
    """Bytes that may still be allocated for the content of one file.

    :param max_bytes: of all of them together.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._left = max_bytes

    def take(self, num_bytes: int, what: str) -> None:
        """Set bytes aside, before they are allocated.

        :param num_bytes: how many; as a Python integer, which does not overflow.
        :param what: takes them, for the message.
        :raises ValueError: if the number is negative or more than what is left.
        """
        if num_bytes < 0:
            raise ValueError(f"{what} has a negative size")
        if num_bytes > self._left:
            raise ValueError(
                f"{what} takes {num_bytes:,} bytes, and all of it may take {self.max_bytes:,}; where you trust the "
                "file, allow more with max_bytes="
            )
        self._left -= num_bytes


def budget_of(length: int, max_bytes: int | None = None) -> Budget:
    """The budget of a file: 100 MB and three times its length, unless the caller says otherwise.

    :param length: of the file, bytes.
    :param max_bytes: the caller's limit, or None.
    :raises ValueError: if the limit is not positive.
    """
    if max_bytes is None:
        return Budget(_FREE_BYTES + _PER_BYTE * length)
    if max_bytes <= 0:
        raise ValueError(f"max_bytes must be positive, got {max_bytes}.")
    return Budget(max_bytes)


def inflated(packed: bytes, most: int, problem: str) -> bytes:
    """What zlib has compressed; no more than `most` bytes of it are ever made.

    :param problem: what to say where it is longer, does not end, or has something behind its end.
    :raises ValueError: there.
    :raises zlib.error: if it is nothing that zlib has compressed.
    """
    # One step that makes no more than `most` bytes: a longer text has not ended by then.
    unpacker = zlib.decompressobj()
    plain = unpacker.decompress(packed, most)
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError(problem)
    return plain


def most_text(num_packed: int) -> int:
    """Bytes that a text in a file may have, given how many it is compressed to."""
    return min(2**22, 2**16 + 100 * num_packed)


def one_line(value: object, length: int = 200) -> str:
    """A text from a stranger for a message: in one line, without control characters, and no longer than `length`."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(value))  # without colours of a terminal
    text = " ".join("".join(c if c.isprintable() else " " for c in plain).split())
    return text if len(text) <= length else text[: length - 3] + "..."


def refuse_damaged(path: PathLike, what: str, error: object) -> NoReturn:
    """Refuse a file in one line.

    :param path: of the file.
    :param what: it should be, such as "a saved RBM".
    :param error: what is wrong with it.
    :raises ValueError: always.
    """
    # Errors without a text are named by their class.
    reason = one_line(error) or type(error).__name__
    cause = error if isinstance(error, BaseException) else None
    raise ValueError(
        f"{os.fspath(path)} cannot be read as {what} ({reason}); check the path, copy it again or write it anew."
    ) from cause
