"""Random numbers that every machine makes the same: a counter-based generator and normal numbers from a table.

A number is a function of a seed and of its place, so that any of them can be made without the others: Philox4x32-10
(Salmon et al., 2011), which is additions, products and shifts of integers. Normal numbers are the quantiles
(i + 1/2) / 8192 of N(0, 1), rounded to multiples of 2^-12, of i of 13 random bits; their variance is 0.99984. A
quantile is rounded from a float, but none is so near to a border that an error of its last digits could matter.
"""

from __future__ import annotations

import functools
import zlib
from statistics import NormalDist
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gpflow_deep_base.numbers.arithmetic import inner

__all__ = ["UNIT", "chosen_normals", "log_ratios", "normal_table", "permutation", "philox", "places"]

UNIT = 1 << 12
"""Of normal numbers: integers are multiples of 1 / UNIT."""

_BITS = 13
_CHECKSUM = 1332627252
_MASK = 0xFFFFFFFF
_NORMALS = 0
_ORDER = 1
_PLACES = 2
"""What numbers are for, the fourth part of a counter."""

_outer: Any = functools.partial(njit, nogil=True, cache=True)


@inner
def _rounds(a: int, b: int, c: int, d: int, key: int) -> tuple[int, int, int, int]:
    """Four words of 32 bits from a counter of four and a key of 64 bits; products wrap around at 2^64."""
    # Philox4x32-10: ten rounds of two products of 32 bits, whose key goes on by constants.
    low = key & _MASK
    high = key >> 32 & _MASK
    for _ in range(10):
        p = 0xD2511F53 * a
        q = 0xCD9E8D57 * c
        a = (q >> 32 & _MASK) ^ b ^ low
        b = q & _MASK
        c = (p >> 32 & _MASK) ^ d ^ high
        d = p & _MASK
        low = (low + 0x9E3779B9) & _MASK
        high = (high + 0xBB67AE85) & _MASK
    return a, b, c, d


@_outer()
def philox(counter: NDArray[np.int64], key: int) -> NDArray[np.int64]:
    """Four words of 32 bits, [4], from a counter of four such words, [4], and a key of 64 bits."""
    return np.array(_rounds(counter[0], counter[1], counter[2], counter[3], key))


@functools.cache
def normal_table() -> NDArray[np.int16]:
    """The normal numbers in units of 1 / UNIT, increasing, [8192].

    :raises RuntimeError: if this machine computes another table than all others.
    """
    count = 1 << _BITS
    # Quantiles of the upper half, and the same with the other sign.
    positive = [round(NormalDist().inv_cdf((i + 0.5) / count) * UNIT) for i in range(count // 2, count)]
    table = np.array([-value for value in reversed(positive)] + positive, np.int16)
    if (checksum := zlib.crc32(table.astype("<i2").tobytes())) != _CHECKSUM:
        raise RuntimeError(
            f"the quantiles of the normal distribution must have the checksum {_CHECKSUM}, got {checksum}."
        )
    return table


@_outer()
def log_ratios(
    table: NDArray[np.int16], key: int, block: int, a: NDArray[np.float64], b: NDArray[np.float64], count: int
) -> NDArray[np.float64]:
    """sum_j (a_j g_j + b_j) g_j of the candidates 0 to count - 1 of a block, whose normal numbers are g, [count]."""
    out = np.zeros(count)
    for k in range(count):
        total = 0.0
        for first in range(0, len(a), 8):
            # One call gives eight normal numbers of 13 bits, two of each word.
            words = _rounds(k, block, first >> 3, _NORMALS, key)
            for part in range(min(8, len(a) - first)):
                word = words[0] if part < 2 else words[1] if part < 4 else words[2] if part < 6 else words[3]
                g = table[(word >> (16 if part & 1 else 0) & 0xFFFF) >> (16 - _BITS)] / UNIT
                total += (a[first + part] * g + b[first + part]) * g
        out[k] = total
    return out


@_outer()
def chosen_normals(
    table: NDArray[np.int16], key: int, block: int, indices: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Normal numbers of one candidate of each of some blocks, one block after the other, in units of 1 / UNIT.

    :param block: the number of the first.
    :param indices: the candidates, [B].
    :param ends: where the numbers of each block end, [B].
    """
    out = np.zeros(ends[-1], np.int64)
    start = 0
    for i in range(len(indices)):
        for j in range(start, ends[i]):
            part = (j - start) & 7
            # Which word of which call, and which half of it.
            words = _rounds(indices[i], block + i, (j - start) >> 3, _NORMALS, key)
            word = words[0] if part < 2 else words[1] if part < 4 else words[2] if part < 6 else words[3]
            out[j] = table[(word >> (16 if part & 1 else 0) & 0xFFFF) >> (16 - _BITS)]
        start = ends[i]
    return out


@_outer()
def _words(key: int, count: int, purpose: int, number: int) -> NDArray[np.int64]:
    """62 random bits for each place, [count]."""
    out = np.zeros(count, np.int64)
    for i in range(count):
        words = _rounds(i & _MASK, i >> 32, number, purpose, key)
        out[i] = (words[0] & 0x3FFFFFFF) << 32 | words[1]
    return out


def permutation(key: int, count: int) -> NDArray[np.int64]:
    """The numbers 0 to count - 1 in random order, [count]."""
    return np.argsort(_words(key, count, _ORDER, 0), kind="stable")


def places(key: int, number: int, count: int, size: int) -> NDArray[np.int64]:
    """For each of `count` places one of `size` numbers, [count]; `number` tells lists of places apart."""
    return _words(key, count, _PLACES, number) % size
