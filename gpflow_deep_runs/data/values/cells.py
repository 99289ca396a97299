"""Cells of a column of texts: the different ones, those that stand for a missing value, and where one of them is."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data.files.libraries import pa, pc

__all__ = ["MARKERS", "MISSING", "Cells", "Contents", "bytes_of", "cells_of", "is_missing", "matches"]
__all__ += ["missing_texts", "na_flag", "one_chunk", "quoted", "shown", "truths_of"]

MISSING = (
    *("", "NaN", "nan", "NAN", "-NaN", "-nan", "NaT", "null", "NULL", "Null"),
    *("N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "\\N", "<NA>", "<N/A>"),
)
"""Texts that stand for a missing value in every column, without the spaces around them."""

MARKERS = (
    *("NA", "na", "None", "none", "NONE", "nil", "Nil", "NIL", "N.A.", "n.a.", "missing", "Missing", "MISSING"),
    *("Unknown", "unknown", "UNKNOWN", "Not provided", "Not available", "No data", "no data", "Not Provided"),
    *("[Not Available]", "[Not Applicable]", "[Not Evaluated]", "[Unknown]", "Not Available", "not available"),
    *("#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#NULL!", "0000-00-00", "0000-00-00 00:00:00"),
    *(":", *(f"{colon}{flag}" for colon in (": ", ":") for flag in "bcdefinprsuz")),
    *("?", "??", "-", "--", "---", ".", "..", "...", "*", "**", "***", "****"),
    *("\N{EN DASH}", "\N{EM DASH}", "\N{HORIZONTAL ELLIPSIS}"),
)
"""Texts that stand for a missing value in columns of numbers, dates and times, and are levels in columns of text."""


_MAX_SHOWN = 40


class Cells(NamedTuple):
    """The cells of a column of texts.

    :ivar texts: the different texts in the order in which they first occur, without the spaces around them; a text
        occurs twice if it was written with different spaces.
    :ivar rows: of each row, the number of its text, or -1 where the source has no value. int32 [N].
    """

    texts: pa.Array
    rows: NDArray[np.int32]

    def counts(self) -> NDArray[np.int64]:
        """How many rows have each text."""
        return np.bincount(self.rows[self.rows >= 0], minlength=len(self.texts))

    def first(self, chosen: NDArray[np.bool_]) -> tuple[int, str, int]:
        """The first row whose text is one of the `chosen` (one bool a text, at least one), that text, and how many."""
        is_there = np.append(chosen, False)[self.rows]
        row = int(is_there.argmax())
        return row, self.texts[int(self.rows[row])].as_py(), int(is_there.sum())

    def spread(self, values: np.ndarray, missing: object) -> np.ndarray:
        """Values of the texts as values of the rows; `missing` where there is no text."""
        extended = np.empty(len(values) + 1, dtype=values.dtype)
        extended[:-1] = values
        # The number -1 of a row without a text is the last place.
        extended[-1] = missing
        return extended[self.rows]


class Contents(NamedTuple):
    """What a column of texts holds, for those who find out what it is.

    :ivar name: of the column.
    :ivar where: the file, for messages.
    :ivar cells: its cells.
    :ivar counts: how many rows have each text.
    :ivar is_value: which texts stand for a value and not for a missing one.
    """

    name: str
    where: str
    cells: Cells
    counts: NDArray[np.int64]
    is_value: NDArray[np.bool_]

    @property
    def what(self) -> str:
        """The column, for messages."""
        return f"column {self.name!r} of {self.where}"

    def share(self, chosen: NDArray[np.bool_]) -> float:
        """The part of the values, in [0, 1], whose texts are chosen."""
        return float(self.counts[chosen & self.is_value].sum() / max(1, self.counts[self.is_value].sum()))

    def sample(self, size: int) -> Contents:
        """At most `size` values spread over the column and `size` of the most frequent ones; all if they are few."""
        values = np.flatnonzero(self.is_value)
        if len(values) <= 2 * size:
            return self
        # Values spread over the column, and the most frequent ones.
        spread = values[np.linspace(0, len(values) - 1, size).astype(int)]
        frequent = values[np.argsort(-self.counts[values], kind="stable")[:size]]
        chosen = np.union1d(spread, frequent)
        # Rows of other texts have no text in the sample.
        number = np.full(len(self.counts) + 1, -1, dtype=np.int32)
        number[chosen] = np.arange(len(chosen))
        cells = Cells(self.cells.texts.take(pa.array(chosen)), number[self.cells.rows])
        return self._replace(cells=cells, counts=self.counts[chosen], is_value=np.ones(len(chosen), dtype=bool))

    def example(self, chosen: NDArray[np.bool_]) -> str:
        """The first value whose text is chosen, with its row, for messages."""
        row, text, _ = self.cells.first(chosen & self.is_value)
        return f"{shown(text)} in row {row}"


def shown(text: str) -> str:
    """A text in quotes, for messages; of a long one the beginning."""
    return repr(text) if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]!r}... ({len(text):,} characters)"


def quoted(names: Sequence[str]) -> str:
    """The first ten of some names in quotes, and how many more there are."""
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(map(repr, names[:10])) + more


def na_flag(text: str) -> str:
    """The flag that makes a text stand for a missing value, if the text can be given in a flag."""
    is_short = len(text) <= _MAX_SHOWN and "," not in text and text.isprintable()
    return shlex.quote(f"--na_values={text}") if is_short else "--na_values"


def one_chunk(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    """Values as a chunked array of at least one chunk."""
    chunked = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
    return chunked if chunked.num_chunks else pa.chunked_array([pa.array([], values.type)])


def bytes_of(texts: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """The bytes of all texts, one after the other, and where each of them begins, and at last where they end."""
    _, places, content = texts.buffers()
    if content is None or not len(texts):
        return np.empty(0, np.uint8), np.zeros(1, np.int32)
    offsets = np.frombuffer(places, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(content, np.uint8)[offsets[0] : offsets[-1]], offsets - offsets[0]


def cells_of(values: pa.ChunkedArray | pa.Array) -> Cells:
    """The different texts of a column of strings and the rows that they stand in."""
    encoded = one_chunk(values).dictionary_encode()  # all chunks get the same dictionary
    if encoded.num_chunks == 0:
        return Cells(pa.array([], pa.string()), np.empty(0, dtype=np.int32))
    # Texts without the spaces around them, which may then occur twice.
    texts = pc.utf8_trim_whitespace(encoded.chunk(0).dictionary)
    parts = [chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False) for chunk in encoded.chunks]
    return Cells(texts, np.concatenate(parts).astype(np.int32, copy=False))


def missing_texts(na_values: Sequence[str], *, markers: bool) -> list[str]:
    """The texts that stand for a missing value.

    :param na_values: texts that do so besides :data:`MISSING`.
    :param markers: whether :data:`MARKERS` do so, too.
    """
    return sorted({*MISSING, *(MARKERS if markers else ()), *(value.strip() for value in na_values)})


def is_missing(texts: pa.Array, na_values: Sequence[str], *, markers: bool) -> NDArray[np.bool_]:
    """Which texts stand for a missing value; see :func:`missing_texts`."""
    return truths_of(pc.is_in(texts, value_set=pa.array(missing_texts(na_values, markers=markers), texts.type)))


def matches(texts: pa.Array, pattern: str) -> NDArray[np.bool_]:
    """Which texts a pattern (RE2) matches as a whole."""
    return truths_of(pc.match_substring_regex(texts, f"^(?:{pattern})$"))


def truths_of(values: pa.BooleanArray | pa.ChunkedArray) -> NDArray[np.bool_]:
    """Truth values as an array, false where there is none."""
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), dtype=bool)
