"""Weights as numbers of random draws: minimal random code learning (Havasi, Peharz and Hernandez-Lobato, 2018).

Sender and receiver make the same draws from a prior, w = s g with g from N(0, 1) and a scale s for each kernel and
bias. The weights, in random order, are cut into blocks of equal size, and of each block the file says by C bits which
of 2^C draws it is. The sender has a posterior q and takes draw k with a probability in proportion to q(w_k) / p(w_k),
which gives nearly a sample of q if KL(q || p) is at most C bits.

    code = RandomCode(seed=0, block_bits=12, scales=(80, 72), sharing=(1, 1), indices=..., shapes=((784, 10), (10,)))
    code.values()                                # the weights
    read_code(Reader(code_bytes(code)), code.shapes).values()
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_base.storage.frame import leb128

from ..coding.kernel_coding import Reader, packed_bytes
from .random_numbers import UNIT, chosen_normals, log_ratios, normal_table, permutation, places

__all__ = [
    "MAX_BITS",
    "MAX_BLOCK",
    "MAX_WEIGHTS",
    "RandomCode",
    "block_ends",
    "code_bytes",
    "draw_index",
    "header_bytes",
    "index_log_weights",
    "near_scale",
    "read_code",
    "scale_of",
    "sizes_of",
]

MAX_BITS = 24
"""Of the number of a draw."""
MAX_BLOCK = 1 << 12
"""Weights of a block, at most: what a short file can claim is bounded by it."""
MAX_WEIGHTS = 1 << 25
"""Weights of a code, at most, for which its reader needs about 1 GiB."""

_SHARED = 0x80
_MANTISSA = 8


class RandomCode(NamedTuple):
    """What a file says of weights.

    :ivar seed: of the draws, 0 or more and below 2**31.
    :ivar block_bits: C, from 1 to `MAX_BITS`.
    :ivar scales: of the prior of each kernel and bias, see :func:`scale_of`.
    :ivar sharing: for each kernel and bias, how many of its weights share one on average, 1 or more.
    :ivar indices: of each block the number of its draw, [B].
    :ivar shapes: of the kernels and biases; a file has them from its layers.
    """

    seed: int
    block_bits: int
    scales: tuple[int, ...]
    sharing: tuple[int, ...]
    indices: NDArray[np.int64]
    shapes: tuple[tuple[int, ...], ...]

    def values(self) -> list[NDArray[np.float32]]:
        """The kernels and biases, the same bits on every machine."""
        sizes = sizes_of(self.shapes, self.sharing)
        ends = block_ends(sum(sizes), len(self.indices))
        order = permutation(self.seed, sum(sizes))
        # The draws of all blocks one after the other, each normal number at the place of its weight.
        normals = np.empty(sum(sizes), np.int64)
        normals[order] = chosen_normals(normal_table(), self.seed, 0, self.indices, ends)
        parts = np.split(normals, np.cumsum(sizes)[:-1])
        maps = weight_places(self.seed, self.shapes, self.sharing)
        return [
            (scale_of(scale) / UNIT * part[indices]).astype(np.float32).reshape(shape)
            for scale, part, indices, shape in zip(self.scales, parts, maps, self.shapes, strict=True)
        ]


def scale_of(number: int) -> float:
    """The scale of this number, from 0 to 255: (1 + m / 8) 2^(e - 24), with e and m its higher 5 and lower 3 bits."""
    exponent, mantissa = divmod(number, _MANTISSA)
    return math.ldexp(1 + mantissa / _MANTISSA, exponent - 24)


def near_scale(scale: float) -> int:
    """The number whose scale is nearest in its logarithm."""
    return int(np.argmin(np.abs(np.log([scale_of(number) for number in range(256)]) - math.log(max(scale, 1e-30)))))


def sizes_of(shapes: Sequence[Sequence[int]], sharing: Sequence[int]) -> list[int]:
    """How many different weights each kernel and bias has."""
    return [-(-math.prod(shape) // share) for shape, share in zip(shapes, sharing, strict=True)]


def weight_places(
    seed: int, shapes: Sequence[Sequence[int]], sharing: Sequence[int]
) -> list[NDArray[np.int64] | slice]:
    """Of each kernel and bias, which of its different weights is where: random places, or each in its own."""
    sizes = sizes_of(shapes, sharing)
    return [
        slice(None) if share == 1 else places(seed, number, math.prod(shape), size)
        for number, (shape, share, size) in enumerate(zip(shapes, sharing, sizes, strict=True))
    ]


def block_ends(num_weights: int, num_blocks: int) -> NDArray[np.int64]:
    """Where each of the blocks ends, [num_blocks]; their sizes differ by one at most."""
    return np.arange(1, num_blocks + 1, dtype=np.int64) * num_weights // max(1, num_blocks)


def index_log_weights(
    mean: NDArray[np.float64], std: NDArray[np.float64], scale: NDArray[np.float64], seed: int, block: int, bits: int
) -> NDArray[np.float64]:
    """log q(w_k) / p(w_k) of the draws of a block, up to a constant, [2**bits].

    :param mean: of q, [n].
    :param std: of q, [n].
    :param scale: of the prior, [n].
    """
    # log q / p of w = s g is a g^2 + b g: g is the normal number, s the scale.
    a = 0.5 - 0.5 * np.square(scale / std)
    b = mean * scale / np.square(std)
    return np.asarray(log_ratios(normal_table(), seed, block, a, b, 1 << bits))


def draw_index(log_weights: NDArray[np.float64], rng: np.random.Generator) -> int:
    """k with a probability in proportion to exp(log_weights[k])."""
    # Gumbel-max: an index in proportion to the weights, without their sum.
    return int(np.argmax(log_weights + rng.gumbel(size=len(log_weights))))


def header_bytes(code: RandomCode) -> bytes:
    """All but the numbers of draws: C, with a bit if weights are shared; seed; blocks; scales; how many share."""
    # How many share a weight is only said where some do.
    is_shared = any(share > 1 for share in code.sharing)
    head = bytes([code.block_bits | _SHARED * is_shared]) + leb128(code.seed) + leb128(len(code.indices))
    return head + bytes(code.scales) + b"".join(leb128(share) for share in code.sharing if is_shared)


def code_bytes(code: RandomCode) -> bytes:
    """The header, and C bits for each block."""
    return header_bytes(code) + packed_bytes(code.indices, code.block_bits)


def read_code(reader: Reader, shapes: Sequence[tuple[int, ...]]) -> RandomCode:
    """What :func:`code_bytes` wrote, of these kernels and biases; sizes are checked before there is room for them.

    :raises ValueError: if a number is impossible, or the blocks are more or fewer than so many weights can have.
    """
    # The header, each number in the order in which it was written.
    first = reader.take(1)[0]
    seed = reader.integer()
    count = reader.integer()
    bits = first & ~_SHARED
    scales = tuple(reader.take(len(shapes)))
    sharing = tuple(reader.integer() for _ in shapes) if first & _SHARED else (1,) * len(shapes)
    if not 1 <= bits <= MAX_BITS or seed >= 2**31 or min(sharing, default=1) < 1:
        raise ValueError(f"a random code has {bits} bits a block, the seed {seed} and shared weights {sharing}")
    # Refuse what the file cannot fill before there is room for it.
    num_weights = sum(sizes_of(shapes, sharing))
    num_places = sum(math.prod(shape) for shape in shapes)
    if not 1 <= num_places <= MAX_WEIGHTS:
        raise ValueError(f"a random code has {num_places} weights, and 1 to {MAX_WEIGHTS} are possible")
    if not -(-num_weights // MAX_BLOCK) <= count <= num_weights:
        raise ValueError(f"a random code has {count} blocks of {num_weights} weights")
    if num_places > count * MAX_BLOCK:
        raise ValueError(f"a random code has {count} blocks, too few for its shared weights")
    return RandomCode(seed, bits, scales, sharing, reader.packed(count, bits), tuple(shapes))
