"""Weights that are random draws in `.bcz` files, on NumPy alone: see `compression.files.random_codes.random_coding`."""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

__all__ = ["draws"]

Array = np.ndarray


def _philox(a: Any, b: Any, c: Any, d: Any, key: int) -> Array:
    low = key & 0xFFFFFFFF
    high = key >> 32
    mask = np.uint64(0xFFFFFFFF)
    a, b, c, d = (np.asarray(part).astype(np.uint64) for part in np.broadcast_arrays(a, b, c, d))
    # Philox4x32-10: ten rounds of two products of 32 bits.
    for _ in range(10):
        p = np.uint64(0xD2511F53) * a
        q = np.uint64(0xCD9E8D57) * c
        half = np.uint64(32)
        a = (q >> half) ^ b ^ np.uint64(low)
        b = q & mask
        c = (p >> half) ^ d ^ np.uint64(high)
        d = p & mask
        low = (low + 0x9E3779B9) & 0xFFFFFFFF
        high = (high + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([a, b, c, d], axis=-1).astype(np.int64)


def _words(key: int, count: int, purpose: int, number: int) -> Array:
    words = _philox(np.arange(count), 0, number, purpose, key)
    return (words[:, 0] & 0x3FFFFFFF) << 32 | words[:, 1]


def draws(reader: Any, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """The kernels and biases of these shapes, from what follows in a file."""
    # The header: C, seed, blocks, scales, how many weights share one; then the numbers of the draws.
    first = reader.take(1)[0]
    seed = reader.integer()
    count = reader.integer()
    scales = list(reader.take(len(shapes)))
    sharing = [reader.integer() for _ in shapes] if first & 128 else [1] * len(shapes)
    indices = reader.packed(count, first & 127)
    # Each weight's block, and its place in it.
    sizes = [-(-math.prod(shape) // share) for shape, share in zip(shapes, sharing, strict=True)]
    ends = np.arange(1, count + 1) * sum(sizes) // max(1, count)
    blocks = np.repeat(np.arange(count), np.diff(ends, prepend=0))
    inside = np.arange(sum(sizes)) - np.concatenate([[0], ends])[blocks]
    # Eight normal numbers of 13 bits are one call of Philox.
    words = _philox(indices[blocks], blocks, inside >> 3, 0, seed)
    word = np.take_along_axis(words, (inside[:, None] & 7) // 2, 1)[:, 0]
    # Quantiles of N(0, 1) in units of 2^-12, and weights in a random order.
    upper = [round(NormalDist().inv_cdf((i + 0.5) / 8192) * 4096) for i in range(4096, 8192)]
    table = np.array([-value for value in reversed(upper)] + upper)
    normals = np.empty(sum(sizes), np.int64)
    normals[np.argsort(_words(seed, sum(sizes), 1, 0), kind="stable")] = table[
        (word >> 16 * (inside & 1) & 0xFFFF) >> 3
    ]
    # Each kernel and bias times its scale, in random places where weights are shared.
    arrays = []
    start = 0
    for number, (shape, share, size, scale) in enumerate(zip(shapes, sharing, sizes, scales, strict=True)):
        part = normals[start : start + size]
        start += size
        part = part if share == 1 else part[_words(seed, math.prod(shape), 2, number) % size]
        spread = math.ldexp(1 + scale % 8 / 8, scale // 8 - 24)
        arrays.append((spread / 4096 * part).astype(np.float32).reshape(shape))
    return arrays
