"""Kernels as bytes in a `.bcz` file, by the schemes that `compression.container` lists, and reading them again."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compression import entropy_coding
from compression.bits import FixedPoint
from compression.codebook import Codebook

__all__ = ["MAX_BITS", "SCHEMES", "Kernel", "Raw", "Reader", "kernel_bytes", "leb", "read_kernel"]


SCHEMES = {
    0: "float32",
    1: "fixed point",
    2: "codebook",
    3: "codebook, Huffman",
    4: "fixed point, arithmetic",
    5: "codebook, arithmetic",
}
"""Codings of a kernel by their first byte."""

_BLOCK = 1 << 16
MAX_BITS = 31
"""Exponent and significant bits of a fixed-point number together, at most."""


class Raw(NamedTuple):
    """Weights as they are, float32."""

    values: NDArray[np.float32]


Kernel = Raw | FixedPoint | Codebook
"""The weights of one layer."""


def kernel_bytes(code: Kernel, entropy_coded: bool) -> bytes:
    """The scheme and the data of a kernel; of several possible schemes the shortest.

    :param entropy_coded: also try arithmetic codes.
    """
    if isinstance(code, Raw):
        return b"\0" + np.asarray(code.values, "<f4").tobytes()
    if isinstance(code, FixedPoint):
        unsigned = code.integers.astype(np.int64) + 2 ** (code.exponent + code.significant)
        head = bytes([code.significant, code.exponent])
        choices = [b"\1" + head + _packed(unsigned, code.bits)]
        if entropy_coded:
            choices += [b"\4" + head + _with_length(stream) for stream in _adaptive(code.integers)]
        return min(choices, key=len)
    k = len(code.centres)
    head = bytes([k - 1]) + code.centres.astype("<f2").tobytes()
    choices = [b"\2" + head + _packed(code.indices, _index_bits(k))]
    if entropy_coded:
        mode = int(np.argmax(code.counts))
        differences = code.indices.astype(np.int64) - mode
        choices += [b"\5" + head + bytes([mode]) + _with_length(stream) for stream in _adaptive(differences)]
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
        if significant + exponent > MAX_BITS:
            raise ValueError(f"fixed-point numbers have 1 + {exponent} + {significant} bits")
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


def _adaptive(values: NDArray[Any]) -> list[bytes]:
    """The stream of these integers; none if it were so short that a reader would not trust it."""
    stream = entropy_coding.encode_adaptive(values)
    return [stream] if values.size <= entropy_coding.most_values(stream) else []


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

    @property
    def position(self) -> int:
        """Bytes that were taken."""
        return self._position

    def peek(self) -> int:
        """The next byte, which stays; -1 at the end."""
        return self._content[self._position] if self._position < len(self._content) else -1

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

    def at_most(self, limit: int, what: str) -> int:
        """The next number, if it is not above a limit."""
        value = self.integer()
        if value > limit:
            raise ValueError(f"it has {value} {what}, and {limit} are possible")
        return value

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
        """Floats, "f2", "f4" or "f8", little-endian."""
        return np.frombuffer(self.take(int(kind[1]) * count), f"<{kind}").astype(kind)

    def packed(self, count: int, width: int) -> NDArray[np.int64]:
        """Unsigned integers of `width` bits."""
        content, values = np.frombuffer(self.take(-(-count * width // 8)), np.uint8), np.zeros(count, np.int64)
        powers = 1 << np.arange(width - 1, -1, -1)
        for start in range(0, count if width else 0, _BLOCK):  # of whole bytes
            stop = min(start + _BLOCK, count)
            bits = np.unpackbits(content[start * width // 8 : -(-stop * width // 8)])[: (stop - start) * width]
            values[start:stop] = bits.reshape(-1, width) @ powers
        return values

    def finish(self) -> None:
        """Refuse what is left over."""
        if self._position != len(self._content):
            raise ValueError(f"{len(self._content) - self._position} bytes are left over")
