"""Canonical Huffman codes as earlier releases wrote them: what is read has to be what was written.

Lengths of words are optimal under a limit of 15 bits (package-merge, Larmore and Hirschberg, 1990).
"""

import itertools

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compression.entropy_coding import MAX_LENGTH

__all__ = ["code_lengths", "encode"]


def code_lengths(counts: ArrayLike) -> NDArray[np.uint8]:
    """Lengths of the words of an optimal code, in bits.

    :param counts: how often each of at most 2**15 symbols occurs, [k]. Symbols that do not occur get length 0.
    :return: uint8 [k]. If only one symbol occurs, its length is given as 1, and :func:`encode` writes no bits.
    :raises ValueError: if no symbol occurs, a count is negative, or there are too many symbols.
    """
    n = np.asarray(counts, np.int64)
    used = np.flatnonzero(n)
    if n.ndim != 1 or np.any(n < 0) or not 0 < len(used) <= 2**MAX_LENGTH:
        raise ValueError(
            f"counts must be one row of non-negative numbers with 1 to {2**MAX_LENGTH} positive ones, got shape "
            f"{n.shape} with {len(used)} positive ones."
        )
    lengths = np.zeros(len(n), np.uint8)
    if len(used) == 1:
        lengths[used] = 1
        return lengths
    coins: list[tuple[int, tuple[int, ...]]] = sorted((int(n[symbol]), (int(symbol),)) for symbol in used)
    packages = coins
    for _ in range(MAX_LENGTH - 1):
        pairs = [(a[0] + b[0], a[1] + b[1]) for a, b in itertools.pairwise(packages)][::2]
        packages = sorted(coins + pairs)
    chosen = list(itertools.chain.from_iterable(symbols for _, symbols in packages[: 2 * len(used) - 2]))
    return np.bincount(chosen, minlength=len(n)).astype(np.uint8)


def encode(symbols: ArrayLike, lengths: ArrayLike) -> bytes:
    """The words of all symbols one after the other, the first bit in the highest bit of the first byte."""
    L = np.asarray(lengths, np.int64)
    if np.count_nonzero(L) == 1:
        return b""
    words, word, previous = dict[int, str](), 0, 0
    for symbol in sorted(np.flatnonzero(L).tolist(), key=lambda symbol: (L[symbol], symbol)):
        word <<= int(L[symbol]) - previous
        words[symbol], previous = f"{word:0{L[symbol]}b}", int(L[symbol])
        word += 1
    bits = "".join(words[symbol] for symbol in np.ravel(np.asarray(symbols)).tolist())
    return np.packbits(np.array(list(bits), "U1") == "1").tobytes() if bits else b""
