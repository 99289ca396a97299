"""Products of rows of signs held as bits, by XNOR and bit counting, and of integers with such rows.

Rows are packed eight signs a byte, the first in the lowest bit, and padded with zeros to whole 64-bit words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

__all__ = ["exact_product", "pack_signs", "pad", "sign_products", "unpack_signs"]

_INT32_MAX = 2**31 - 1
_FEW_ROWS = 16
_BLOCK_BYTES = 1 << 23


def pack_signs(X: NDArray[Any]) -> NDArray[np.uint8]:
    """Rows of -1 and +1, [N, D], as bits [N, 8 ceil(D / 64)], padded with zeros.

    :raises ValueError: if there are other values.
    """
    is_plus = X == 1
    if not np.all(is_plus | (X == -1)):
        raise ValueError("the inputs of packed signs must all be -1 or +1, got others; code them as in training.")
    return pad(np.packbits(is_plus, axis=1, bitorder="little"))


def sign_products(
    x: NDArray[np.uint8],
    w: NDArray[np.uint8],
    num_bits: int,
    blocked: NDArray[np.uint8] | None = None,
    engine: str = "numpy",
) -> NDArray[np.int32]:
    """Scalar products K - 2 popcount(x xor w) of all pairs of rows of K signs, [N, O].

    :param x: packed bits [N, 8 words]; their padding must be zero.
    :param w: packed bits [O, 8 words], likewise.
    :param num_bits: K, bits of a row in use.
    :param blocked: `popcount.blocked(w)`, for the kernel that needs it.
    :param engine: "numba" or "numpy".
    """
    out = np.empty((len(x), len(w)), np.int32)
    if len(x) == 0:
        return out
    if engine == "numba":
        from . import popcount

        if blocked is None:
            popcount.words(x.view(np.uint64), w.view(np.uint64), num_bits, out)
        else:
            popcount.nibbles(x, blocked, num_bits, out)
    elif len(x) < _FEW_ROWS:
        words = w.view(np.uint64)
        for n, row in enumerate(x.view(np.uint64)):
            out[n] = num_bits - 2 * _ones(words ^ row)
    else:  # a float32 product is faster than NumPy's bit operations, and exact
        signs = unpack_signs(x, num_bits, np.float32)
        step = max(1, _BLOCK_BYTES // (4 * num_bits))
        for o in range(0, len(w), step):
            out[:, o : o + step] = signs @ unpack_signs(w[o : o + step], num_bits, np.float32).T
    return out


def _ones(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Number of ones in each row [O, M] of 64-bit words; `words` is overwritten. NumPy 1 has no function for it."""
    pairs, quads, bytes_ = (np.uint64(mask) for mask in (0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F))
    one, two, four = np.uint64(1), np.uint64(2), np.uint64(4)
    words -= (words >> one) & pairs
    upper = (words >> two) & quads
    words &= quads
    words += upper
    words += words >> four
    words &= bytes_
    words *= np.uint64(0x0101010101010101)
    words >>= np.uint64(56)
    return words.sum(axis=1, dtype=np.int64)


def unpack_signs(bits: NDArray[np.uint8], num_bits: int, dtype: Any) -> NDArray[Any]:
    """Packed rows as -1 and +1, [rows, num_bits]."""
    signs = np.unpackbits(bits, axis=1, count=num_bits, bitorder="little").astype(dtype)
    signs *= 2
    signs -= 1
    return signs


def exact_product(X: Any, w: NDArray[np.uint8], num_bits: int, fraction_bits: int) -> NDArray[np.int32]:
    """2^fraction_bits X W' as integers, by products of floats, which are exact below 2^24 (float32) or 2^53 (float64).

    :param X: multiples of 2^-fraction_bits, [N, K], an array or a SciPy sparse matrix.
    :param w: packed bits of W, [O, 8 words].
    :param num_bits: K.
    :return: [N, O].
    :raises ValueError: if `X` has other values, or those of a row add up to 2^31 units of 2^-fraction_bits or more.
    """
    is_sparse = scipy.sparse.issparse(X)
    columns = np.unique(X.indices) if is_sparse else np.arange(num_bits)
    q = (X[:, columns] if is_sparse else X).astype(np.float64) * 2.0**fraction_bits
    values = q.data if is_sparse else q
    if not np.array_equal(values, np.rint(values)):  # NaN and infinity are caught here, and below
        raise ValueError(
            f"this network's inputs must be multiples of 2^-{fraction_bits}, got others; code them as it was trained."
        )
    largest = float(abs(q).sum(axis=1).max()) if q.shape[0] and q.shape[1] else 0.0
    if not largest <= _INT32_MAX:
        raise ValueError(f"the inputs of a row must add up to less than 2^31 units of 2^-{fraction_bits}; scale them.")
    dtype: Any = np.float32 if largest < 2**24 else np.float64
    q = q.astype(dtype)
    out = np.empty((X.shape[0], len(w)), np.int32)
    step = max(1, _BLOCK_BYTES // (np.dtype(dtype).itemsize * max(1, len(columns))))
    for o in range(0, len(w), step):
        bits = w[o : o + step]
        if is_sparse:
            signs = 2 * ((bits[:, columns >> 3] >> (columns & 7)) & 1).astype(dtype) - 1
        else:
            signs = unpack_signs(bits, num_bits, dtype)
        out[:, o : o + step] = q @ signs.T
    return out


def pad(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rows of bytes filled up with zeros to whole 64-bit words."""
    width = -(-packed.shape[1] // 8) * 8
    if packed.shape[1] == width:
        return np.ascontiguousarray(packed)
    padded = np.zeros((len(packed), width), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded
