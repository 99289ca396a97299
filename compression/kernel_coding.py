"""Kernels as bytes in a `.bcz` file, by the schemes that `compression.container` lists, and reading them again."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compression import entropy_coding
from compression.bits import FixedPoint
from compression.codebook import Codebook

__all__ = ["Kernel", "Raw", "Reader", "kernel_bytes", "leb", "read_kernel"]


class Raw(NamedTuple):
    """Weights as they are, float32."""

    values: NDArray[np.float32]


Kernel = Raw | FixedPoint | Codebook
"""The weights of one layer."""


def kernel_bytes(code: Kernel, entropy_coded: bool) -> bytes:
    """The scheme and the data of a kernel; of several possible schemes the shortest.

    :param entropy_coded: also try Huffman and arithmetic codes.
    """
    if isinstance(code, Raw):
        return b"\0" + np.asarray(code.values, "<f4").tobytes()
    if isinstance(code, FixedPoint):
        unsigned = code.integers.astype(np.int64) + 2 ** (code.exponent + code.significant)
        head = bytes([code.significant, code.exponent])
        choices = [b"\1" + head + _packed(unsigned, code.bits)]
        if entropy_coded:
            choices.append(b"\4" + head + _with_length(entropy_coding.encode_adaptive(code.integers)))
        return min(choices, key=len)
    k = len(code.centres)
    head = bytes([k - 1]) + code.centres.astype("<f2").tobytes()
    choices = [b"\2" + head + _packed(code.indices, _index_bits(k))]
    if entropy_coded:
        lengths = entropy_coding.code_lengths(code.counts)
        words = entropy_coding.encode(code.indices, lengths)
        choices.append(b"\3" + head + _packed(lengths, 4) + _with_length(words))
        mode = int(np.argmax(code.counts))
        differences = entropy_coding.encode_adaptive(code.indices.astype(np.int64) - mode)
        choices.append(b"\5" + head + bytes([mode]) + _with_length(differences))
    return min(choices, key=len)


def read_kernel(reader: "Reader", shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The weights that :func:`kernel_bytes` wrote.

    :raises ValueError: if the scheme is not known, the data are too short, or an index is outside of its codebook.
    """
    count = math.prod(shape)
    scheme = reader.take(1)[0]
    if scheme == 0:
        return reader.array("f4", count).reshape(shape)
    if scheme in (1, 4):
        significant, exponent = reader.take(2)
        if scheme == 1:
            integers = reader.packed(count, 1 + exponent + significant) - 2 ** (exponent + significant)
        else:
            integers = entropy_coding.decode_adaptive(reader.take(reader.integer()), count)
        return FixedPoint(integers.astype(np.int32).reshape(shape), significant, exponent).values
    if scheme not in (2, 3, 5):
        raise ValueError(f"scheme {scheme} is not known")
    k = reader.take(1)[0] + 1
    centres = reader.array("f2", k)
    if scheme == 2:
        indices = reader.packed(count, _index_bits(k))
    elif scheme == 3:
        lengths = reader.packed(k, 4)
        indices = entropy_coding.decode(reader.take(reader.integer()), lengths, count)
    else:
        mode = reader.take(1)[0]
        indices = entropy_coding.decode_adaptive(reader.take(reader.integer()), count) + mode
    if np.any((indices < 0) | (indices >= k)):
        raise ValueError("an index is outside of its codebook")
    return centres.astype(np.float32)[indices].reshape(shape)


def _with_length(stream: bytes) -> bytes:
    return leb(len(stream)) + stream


def _index_bits(k: int) -> int:
    return (k - 1).bit_length()


def _packed(values: ArrayLike, width: int) -> bytes:
    """Unsigned integers of `width` bits one after the other, padded to whole bytes."""
    flat = np.ravel(np.asarray(values)).astype(np.int64)
    shifts = np.arange(width - 1, -1, -1)
    return np.packbits(((flat[:, None] >> shifts) & 1).astype(np.uint8)).tobytes()


def leb(value: int) -> bytes:
    """A number of 0 or more in 7 bits a byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


class Reader:
    """Takes the content of a file from its beginning; every method raises ValueError if too little is left."""

    def __init__(self, content: bytes) -> None:
        self._content, self._position = content, 0

    def take(self, count: int) -> bytes:
        """The next bytes."""
        part = self._content[self._position : self._position + count]
        if len(part) < count:
            raise ValueError(f"{count - len(part)} bytes are missing at the end")
        self._position += count
        return part

    def integer(self) -> int:
        """The next number that :func:`leb` wrote."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 35:
                raise ValueError("a number is too long")

    def digits(self, *counts: int) -> list[int]:
        """The flags of `_pair_and_flags`."""
        number, digits = self.integer(), []
        for count in counts:
            number, digit = divmod(number, count)
            digits.append(digit)
        if number:
            raise ValueError("a flag is not known")
        return digits

    def array(self, kind: str, count: int) -> NDArray[Any]:
        """Floats, "f2" or "f4", little-endian."""
        return np.frombuffer(self.take(int(kind[1]) * count), f"<{kind}").astype(kind)

    def packed(self, count: int, width: int) -> NDArray[np.int64]:
        """Unsigned integers of `width` bits."""
        bits = np.unpackbits(np.frombuffer(self.take(-(-count * width // 8)), np.uint8))[: count * width]
        return bits.reshape(count, width).astype(np.int64) @ (1 << np.arange(width - 1, -1, -1))

    def finish(self) -> None:
        """Refuse what is left over."""
        if self._position != len(self._content):
            raise ValueError(f"{len(self._content) - self._position} bytes are left over")
