"""Adaptive arithmetic codes as earlier releases wrote them: what is read has to be what was written."""

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["encode_adaptive"]


def encode_adaptive(values: ArrayLike) -> bytes:
    """Integers below 2**31 in size, in C order."""
    coder = _Encoder()
    for value in np.ravel(np.asarray(values)).astype(np.int64).tolist():
        _code(coder, value)
    return coder.finish()


class _Encoder:
    def __init__(self) -> None:
        self.low, self.range, self.out = 0, 2**32 - 1, bytearray()
        self.counts: dict[tuple[int, int], list[int]] = {}

    def decide(self, place: tuple[int, int], bit: int) -> None:
        counts = self.counts.setdefault(place, [1, 1])
        zero = self.range * counts[0] // (counts[0] + counts[1])
        if bit:
            self.low += zero
        self.range = self.range - zero if bit else zero
        counts[bit] += 2
        if counts[0] + counts[1] > 1 << 16:
            counts[:] = [counts[0] // 2 | 1, counts[1] // 2 | 1]
        while self.range < 2**24:
            self._emit(self.low >> 24)
            self.low, self.range = (self.low & 0xFFFFFF) << 8, self.range << 8

    def _emit(self, byte: int) -> None:
        if byte > 255:  # a carry into the bytes before
            position = len(self.out) - 1
            while self.out[position] == 255:
                self.out[position] = 0
                position -= 1
            self.out[position] += 1
        self.out.append(byte & 255)

    def finish(self) -> bytes:
        """The shortest bytes that lie in the interval when zeros follow."""
        for count in range(5):
            step = 1 << (32 - 8 * count)
            value = -(-self.low // step) * step
            if value < self.low + self.range:
                break
        self._emit(value >> 24)
        return (bytes(self.out) + (value & 0xFFFFFF).to_bytes(3, "big")).rstrip(b"\0")


def _code(coder: _Encoder, value: int) -> None:
    size = abs(value).bit_length()
    for length in range(size):
        coder.decide((0, length), 1)
    coder.decide((0, size), 0)
    if not size:
        return
    coder.decide((1, size), int(value < 0))
    magnitude = 1
    for level in range(size - 2, -1, -1):
        bit = abs(value) >> level & 1
        coder.decide((2 + (size << 1 | int(value < 0)), magnitude) if magnitude < 64 else (-1, level), bit)
        magnitude = magnitude << 1 | bit
