"""Codes of earlier `.bcz` files, which are only read: canonical Huffman words, and adaptive arithmetic coding.

In the latter each symbol is a path of yes/no decisions, and the probability of a decision is that of the earlier ones
at the same place, (n + 1/2) / (N + 1) (Krichevsky and Trofimov, 1981). Today's is `compression.context_coding`.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "MAX_LENGTH",
    "decode",
    "decode_adaptive",
    "entropy_bits",
    "most_values",
]

MAX_LENGTH = 15
_MAX_COUNT = 1 << 16
_LEARNED_PREFIX = 64  # numbers below it are learned one by one


def entropy_bits(counts: ArrayLike) -> float:
    """Entropy of a symbol in bits, for symbols that occur `counts` times."""
    n = np.asarray(counts, np.float64)
    p = n[n > 0] / n.sum()
    return float(-np.sum(p * np.log2(p)))


def decode(stream: bytes, lengths: ArrayLike, count: int) -> NDArray[np.int64]:
    """The first `count` symbols of a stream of canonical Huffman words, of files of releases up to 0.2.0; [count].

    The words are determined by their lengths, at most 15 bits. If only one symbol occurs, its word is empty.

    :param lengths: of the words of the symbols, in bits; 0 for a symbol that does not occur.

    :raises ValueError: if the lengths are no Huffman code, or the stream is too short, too long or not in the code.
    """
    L = _checked(lengths)
    used = np.flatnonzero(L)
    if len(used) == 1:
        if stream:
            raise ValueError(f"a code of one symbol has an empty stream, got {len(stream)} bytes.")
        return np.full(count, used[0], np.int64)
    if count > 8 * len(stream):
        raise ValueError(f"the stream of {len(stream)} bytes is too short for {count} symbols of at least one bit.")
    table = np.zeros(2**MAX_LENGTH, np.int64)  # 15 bits of the stream -> symbol
    for symbol, word in zip(used, _words(L)[used], strict=True):
        shift = MAX_LENGTH - L[symbol]
        table[word << shift : (word + 1) << shift] = symbol
    symbol_at, length_at = table.tolist(), L[table].tolist()
    padded = stream + b"\0\0\0"
    found, position, end = [0] * count, 0, 8 * len(stream)
    for i in range(count):
        byte, offset = position >> 3, position & 7
        if position >= end:
            raise ValueError(f"the stream ends after {i} of {count} symbols.")
        window = (padded[byte] << 16 | padded[byte + 1] << 8 | padded[byte + 2]) >> (9 - offset) & 0x7FFF
        found[i] = symbol_at[window]
        position += length_at[window]
    if position > end or end - position >= 8:
        raise ValueError(f"the stream has {end} bits for {count} symbols of {position} bits.")
    return np.array(found, np.int64)


def decode_adaptive(stream: bytes, count: int) -> NDArray[np.int64]:
    """The `count` integers of a stream of files of versions up to 3, [count].

    Any stream has a meaning, so damage has to be found by a checksum.

    :raises ValueError: if the stream is far too short for so many, see :func:`most_values`.
    """
    if count > most_values(stream):
        raise ValueError(f"the stream of {len(stream)} bytes is too short for {count} numbers.")
    coder = _Decoder(stream)
    return np.fromiter((_next_integer(coder) for _ in range(count)), np.int64, count)


def most_values(stream: bytes) -> int:
    """How many integers a stream of this length may have: those of which each decision was the most likely one."""
    return _MAX_COUNT * (8 * len(stream) + 32)


class _Decoder:
    """An interval of 32-bit numbers that each decision narrows, and how often each decision was 0 and 1."""

    def __init__(self, stream: bytes) -> None:
        self.range, self.stream, self.position, self.value = 2**32 - 1, stream, 0, 0
        self.counts: dict[tuple[int, int], list[int]] = {}
        for _ in range(4):
            self._shift()

    def _shift(self) -> None:
        byte = self.stream[self.position] if self.position < len(self.stream) else 0
        self.value, self.position = self.value << 8 | byte, self.position + 1

    def decide(self, place: tuple[int, int]) -> int:
        """The next decision, which is one at this place."""
        counts = self.counts.setdefault(place, [1, 1])
        zero = self.range * counts[0] // (counts[0] + counts[1])
        found = int(self.value >= zero)
        if found:
            self.value -= zero
        self.range = self.range - zero if found else zero
        counts[found] += 2  # counts are of half decisions, plus the half that each begins with
        if counts[0] + counts[1] > _MAX_COUNT:
            counts[:] = [counts[0] // 2 | 1, counts[1] // 2 | 1]
        while self.range < 2**24:
            self._shift()
            self.range <<= 8
        return found


def _next_integer(coder: _Decoder) -> int:
    """An integer: its number of bits in unary, its sign, then its lower bits from the highest on."""
    length = 0
    while coder.decide((0, length)):
        length += 1
        if length > 31:
            raise ValueError("the stream holds a number that is too large.")
    if length == 0:
        return 0
    is_negative = coder.decide((1, length))
    magnitude = 1
    for level in range(length - 2, -1, -1):
        is_early = magnitude < _LEARNED_PREFIX
        place = (2 + (length << 1 | is_negative), magnitude) if is_early else (-1, level)
        magnitude = magnitude << 1 | coder.decide(place)
    return -magnitude if is_negative else magnitude


def _checked(lengths: ArrayLike) -> NDArray[np.int64]:
    """The lengths as int64, if they are those of a complete prefix code (or of one symbol)."""
    L = np.asarray(lengths, np.int64)
    used = L[L > 0]
    is_single = len(used) == 1 and used[0] == 1
    if L.ndim != 1 or np.any((L < 0) | (L > MAX_LENGTH)) or not len(used):
        raise ValueError(f"code lengths must be 0 to {MAX_LENGTH} with at least one above 0, got {L.tolist()[:20]}.")
    if not is_single and int(np.sum(2 ** (MAX_LENGTH - used))) != 2**MAX_LENGTH:
        raise ValueError("code lengths must be those of a complete prefix code: sum 2**-length must be 1.")
    return L


def _words(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Canonical words: counted upwards in order of length, then of symbol."""
    words, word, previous = np.zeros_like(lengths), 0, 0
    order: Sequence[int] = sorted(np.flatnonzero(lengths).tolist(), key=lambda symbol: (lengths[symbol], symbol))
    for symbol in order:
        word <<= int(lengths[symbol]) - previous
        words[symbol], previous = word, int(lengths[symbol])
        word += 1
    return words
