"""Kernels as bytes in a `.bcz` file, by the schemes that `files.container` lists, and reading them again."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpflow_deep_base.storage import frame

from ...rounding.bits import FixedPoint, Grid
from ...rounding.codebook import Codebook
from .context_coding import decode_matrix, encode_matrix, most_numbers

__all__ = [
    "MAX_BITS",
    "SCHEMES",
    "Kernel",
    "Raw",
    "Reader",
    "integers_bytes",
    "kernel_bytes",
    "packed_bytes",
    "read_integers",
    "read_kernel",
]

SCHEMES = {
    0: "float32",
    1: "fixed point",
    2: "codebook",
    6: "codebook, contexts",
    7: "fixed point, contexts",
    8: "grid, contexts",
    9: "grid",
}
"""Codings of a kernel by their first byte."""

_BLOCK = 1 << 16
MAX_BITS = 31
"""Exponent and significant bits of a fixed-point number together, at most."""


class Raw(NamedTuple):
    """Weights as they are, float32."""

    values: NDArray[np.float32]


Kernel = Raw | FixedPoint | Grid | Codebook
"""The weights of one layer."""


def kernel_bytes(code: Kernel, entropy_coded: bool, strides: tuple[int, int] = (0, 0)) -> bytes:
    """The scheme and the data of a kernel; of several possible schemes the shortest.

    :param entropy_coded: also try arithmetic codes with contexts.
    :param strides: of neighbours in an image, see `compression.files.coding.context_coding`; tried beside none.
    """
    if isinstance(code, Raw):
        return b"\0" + np.asarray(code.values, "<f4").tobytes()
    # Integers of either sign to be coded with contexts, and what makes unsigned fields of equal size of them.
    if isinstance(code, FixedPoint):
        integers = code.integers.astype(np.int64)
        offset = 2 ** (code.exponent + code.significant)
        width = code.bits
        head = bytes([code.significant, code.exponent])
        plain_head = b"\1" + head
        coded_head = b"\7" + head
    elif isinstance(code, Grid):
        integers = code.integers.astype(np.int64)
        width = code.bits
        offset = 2 ** (width - 1)
        head = np.array(code.step, "<f2").tobytes()
        plain_head = b"\x09" + head + bytes([width])
        coded_head = b"\x08" + head
    else:
        # A codebook: its centres, then indices; for contexts the most frequent one is 0.
        offset = int(np.argmax(code.counts))
        integers = code.indices.astype(np.int64) - offset
        width = _index_bits(len(code.centres))
        head = bytes([len(code.centres) - 1]) + code.centres.astype("<f2").tobytes()
        plain_head = b"\2" + head
        coded_head = b"\6" + head + bytes([offset])
    plain = plain_head + packed_bytes(integers + offset, width)
    coded = _shortest(integers, strides) if entropy_coded else None
    return plain if coded is None else min(plain, coded_head + coded, key=len)


def read_kernel(reader: "Reader", shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The weights that :func:`kernel_bytes` wrote.

    :raises ValueError: if the scheme is not known, the data are too short, or an index is outside of its codebook.
    """
    count = math.prod(shape)
    scheme = reader.take(1)[0]
    if scheme == 0:
        return reader.array("f4", count).reshape(shape)
    # Fixed-point numbers: significant and exponent bits, then the integers.
    if scheme in (1, 7):
        significant, exponent = reader.take(2)
        if significant + exponent > MAX_BITS:
            raise ValueError(f"fixed-point numbers have 1 + {exponent} + {significant} bits")
        if scheme == 1:
            integers = reader.packed(count, 1 + exponent + significant) - 2 ** (exponent + significant)
        else:
            integers = _read_contexts(reader, shape)
        return FixedPoint(integers.astype(np.int32).reshape(shape), significant, exponent).values
    # A grid: its step, then the integers.
    if scheme in (8, 9):
        step = float(reader.array("f2", 1)[0])
        if not 0 < step < float("inf"):
            raise ValueError(f"numbers are multiples of {step}")
        if scheme == 8:
            integers = _read_contexts(reader, shape)
        else:
            width = reader.take(1)[0]
            if not 1 <= width <= MAX_BITS:
                raise ValueError(f"integers have {width} bits")
            integers = reader.packed(count, width) - 2 ** (width - 1)
        return Grid(integers.astype(np.int32).reshape(shape), step).values
    if scheme not in (2, 6):
        raise ValueError(f"scheme {scheme} is not known")
    # A codebook, whose indices have to be within it.
    k = reader.take(1)[0] + 1
    centres = reader.array("f2", k)
    if scheme == 2:
        indices = reader.packed(count, _index_bits(k))
    else:
        mode = reader.take(1)[0]
        indices = _read_contexts(reader, shape) + mode
    if np.any((indices < 0) | (indices >= k)):
        raise ValueError("an index is outside of its codebook")
    return centres.astype(np.float32)[indices.reshape(shape)]


def integers_bytes(values: ArrayLike) -> bytes:
    """A vector of integers, coded."""
    return _with_length(encode_matrix(np.reshape(values, (-1, 1))))


def read_integers(reader: "Reader", count: int) -> NDArray[np.int64]:
    """The vector that :func:`integers_bytes` wrote."""
    return decode_matrix(reader.take(reader.integer()), (count, 1)).reshape(-1)


_BY_ROWS = 1
_HAS_STRIDES = 2
_MANY = 1 << 22  # numbers of which one order is enough


def _shortest(values: np.ndarray, strides: tuple[int, int]) -> bytes | None:
    """By columns or by rows, with neighbours or without; None if it were so short that a reader would not trust it."""
    matrix = values.reshape(-1, values.shape[-1])
    # Try both orders, each with and without neighbours in an image.
    candidates = []
    for by_rows in (False, True)[: 1 if values.size > _MANY else 2]:
        for stride_pair in {(0, 0), strides}:
            stream = encode_matrix(matrix, strides=stride_pair, by_rows=by_rows)
            if matrix.size <= most_numbers(stream):
                flags = _BY_ROWS * by_rows + _HAS_STRIDES * (stride_pair != (0, 0))
                steps = frame.leb128(stride_pair[0]) + frame.leb128(stride_pair[1]) if stride_pair != (0, 0) else b""
                candidates.append(bytes([flags]) + steps + _with_length(stream))
    return min(candidates, key=len, default=None)


def _read_contexts(reader: "Reader", shape: tuple[int, ...]) -> NDArray[np.int64]:
    # The order of the numbers and their neighbours, as the encoder chose them.
    flags = reader.take(1)[0]
    if flags > 3:
        raise ValueError(f"the order {flags} of numbers is not known")
    strides = (0, 0)
    if flags & _HAS_STRIDES:
        strides = (reader.integer(), reader.integer())
        if not 0 < strides[0] < strides[1]:
            raise ValueError(f"neighbours are {strides[0]} and {strides[1]} rows apart")
    rows = math.prod(shape[:-1])
    matrix = decode_matrix(
        reader.take(reader.integer()), (rows, shape[-1]), strides=strides, by_rows=bool(flags & _BY_ROWS)
    )
    return matrix.reshape(shape)


def _with_length(stream: bytes) -> bytes:
    return frame.leb128(len(stream)) + stream


def _index_bits(k: int) -> int:
    return (k - 1).bit_length()


def packed_bytes(values: ArrayLike, width: int) -> bytes:
    """Unsigned integers of `width` bits one after the other, padded to whole bytes."""
    # Each bit of each number, from the highest on.
    flat = np.ravel(np.asarray(values)).astype(np.int64)
    shifts = np.arange(width - 1, -1, -1)
    return np.packbits(((flat[:, None] >> shifts) & 1).astype(np.uint8)).tobytes()


class Reader(frame.Reader):
    """Takes the content of a file from its beginning; every method raises ValueError if too little is left."""

    def peek(self) -> int:
        """The next byte, which stays; -1 at the end."""
        return self.content[self.place] if self.left else -1

    def at_most(self, limit: int, what: str) -> int:
        """The next number, if it is not above a limit."""
        value = self.integer()
        if value > limit:
            raise ValueError(f"it has {value} {what}, and {limit} are possible")
        return value

    def digits(self, *counts: int) -> list[int]:
        """The flags of `_pair_and_flags`."""
        # Digits of a number of mixed radix, the lowest first.
        number = self.integer()
        digits = []
        for count in counts:
            number, digit = divmod(number, count)
            digits.append(digit)
        if number:
            raise ValueError("a flag is not known")
        return digits

    def array(self, kind: str, count: int) -> np.ndarray:
        """Floats, "f2", "f4" or "f8", little-endian."""
        return np.frombuffer(self.take(int(kind[1]) * count), f"<{kind}").astype(kind)

    def packed(self, count: int, width: int) -> NDArray[np.int64]:
        """Unsigned integers of `width` bits."""
        # Block by block, each of whole bytes, so that the bits take little room.
        content = np.frombuffer(self.take(-(-count * width // 8)), np.uint8)
        values = np.zeros(count, np.int64)
        powers = 1 << np.arange(width - 1, -1, -1)
        for start in range(0, count if width else 0, _BLOCK):  # of whole bytes
            stop = min(start + _BLOCK, count)
            bits = np.unpackbits(content[start * width // 8 : -(-stop * width // 8)])[: (stop - start) * width]
            values[start:stop] = bits.reshape(-1, width) @ powers
        return values
