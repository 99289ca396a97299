"""Numba kernels with the same bytes as the NumPy loops of `darn.rans`, which imports them if Numba is installed."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["pop", "pop_linear", "push"]

_PRECISION = 20
_M = 1 << _PRECISION
_LOW = 1 << 40
_LIMIT_SHIFT = 28


@njit(nogil=True, cache=True)
def push(
    heads: NDArray[np.int64],
    stack: NDArray[np.uint8],
    top: int,
    bits: NDArray[np.uint8],
    frequencies: NDArray[np.int32],
) -> int:
    """Push `bits` [n, B] of `frequencies` [n, B] on lanes `heads` [L]; returns the new top of the stack."""
    L = len(heads)
    n, B = bits.shape
    for first in range(0, B, L):
        last = min(first + L, B)
        for i in range(n):
            for b in range(first, last):
                x = np.uint64(heads[b - first])
                one = np.uint64(frequencies[i, b])
                zero = np.uint64(_M) - one
                if bits[i, b]:
                    f, g, c = one, zero, zero
                else:
                    f, g, c = zero, one, np.uint64(0)
                while x >= f << np.uint64(_LIMIT_SHIFT):
                    stack[top] = x & np.uint64(255)
                    top += 1
                    x >>= np.uint64(8)
                heads[b - first] = x + (x // f) * g + c
    return top


@njit(nogil=True, cache=True)
def pop(
    heads: NDArray[np.int64],
    stack: NDArray[np.uint8],
    top: int,
    bits: NDArray[np.uint8],
    frequencies: NDArray[np.int32],
) -> int:
    """Pop into `bits` [n, B], the last group of columns first; returns the new top of the stack."""
    L = len(heads)
    n, B = bits.shape
    for first in range((B - 1) // L * L, -1, -L):
        last = min(first + L, B)
        for i in range(n):
            for b in range(last - 1, first - 1, -1):
                x = heads[b - first]
                slot = x & (_M - 1)
                zero = _M - np.int64(frequencies[i, b])
                if slot >= zero:
                    bits[i, b] = 1
                    x = (_M - zero) * (x >> _PRECISION) + slot - zero
                else:
                    bits[i, b] = 0
                    x = zero * (x >> _PRECISION) + slot
                while x < _LOW:
                    top -= 1
                    x = (x << 8) | np.int64(stack[top])
                heads[b - first] = x
    return top


@njit(nogil=True, cache=True)
def pop_linear(
    heads: NDArray[np.int64],
    stack: NDArray[np.uint8],
    top: int,
    bits: NDArray[np.uint8],
    logits: NDArray[Any],
    earlier: NDArray[Any],
    table: NDArray[np.int32],
    scale: float,
) -> int:
    """As :func:`pop`, with frequencies from `logits` [B, n], to which each bit that is 1 adds its row of `earlier`."""
    L = len(heads)
    n, B = bits.shape
    end = len(table) - 1
    for first in range((B - 1) // L * L, -1, -L):
        last = min(first + L, B)
        for i in range(n):
            for b in range(last - 1, first - 1, -1):
                place = min(max(float(logits[b, i]) * scale + (0.5 * end + 0.5), 0.0), float(end))
                x = heads[b - first]
                slot = x & (_M - 1)
                zero = _M - np.int64(table[int(place)])
                if slot >= zero:
                    bits[i, b] = 1
                    x = (_M - zero) * (x >> _PRECISION) + slot - zero
                    for j in range(i + 1, n):
                        logits[b, j] += earlier[i, j]
                else:
                    bits[i, b] = 0
                    x = zero * (x >> _PRECISION) + slot
                while x < _LOW:
                    top -= 1
                    x = (x << 8) | np.int64(stack[top])
                heads[b - first] = x
    return top
