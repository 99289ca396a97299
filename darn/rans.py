"""A stack of bits for bits-back coding: asymmetric numeral systems (rANS, Duda 2009) on lanes with one stack of bytes.

    coder = RansCoder(initial=0)
    coder.set_lanes(4)
    coder.push(bits, frequencies)            # [n, B]: unit by unit, B images over the lanes
    coder.pop(frequencies[::-1])             # the inverse: the same bits, last unit first

A symbol is one bit; its probability of being 1 is an integer frequency f in 1, ..., 2^20 - 1 out of M = 2^20. A lane's
state x in [2^40, 2^48) becomes (x // F) M + C + x % F with F = f, C = M - f for a 1 and F = M - f, C = 0 for a 0, which
adds log2(M / F) bits to it. Before that it sends its lowest bytes to the stack while x >= F 2^28, and after popping it
takes them back while x < 2^40. With at least 40 bits in the state a symbol loses less than 2^-19 bits to rounding.

Symbols of distributions may be popped from a stack that holds other data: they come out distributed accordingly, and
pushing them again restores the stack. If the stack is too short, it goes on with fixed pseudo-random bytes, the seed.
Those that were read belong to the file and are counted in its length.

All numbers are integers below 2^48, so that float64 arithmetic on them is exact and everything here has the same bits
on all machines. The kernels of `darn.rans_compiled` (if Numba is installed) give the same bytes.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ENGINES", "INITIAL_BITS", "PRECISION_BITS", "RansCoder", "compiled_kernels", "entropy_bits"]

PRECISION_BITS = 20
"""Probabilities are multiples of 2^-20."""

INITIAL_BITS = 40
"""A lane that starts takes this many bits from the stack; those of the first lane are given by the user."""

ENGINES = ("auto", "numba", "numpy")

_M = 1 << PRECISION_BITS
_LOW = 1 << INITIAL_BITS  # states are in [_LOW, 256 _LOW)
_STATE_BYTES = 6
_BLOCK = 28
_MAX_BYTES = 3  # that one symbol moves: 20 bits at most


@functools.cache
def compiled_kernels() -> ModuleType | None:
    """The module `darn.rans_compiled`, or None if Numba is not installed."""
    if importlib.util.find_spec("numba") is None:
        return None
    from darn import rans_compiled

    return rans_compiled


def entropy_bits(bits: NDArray[Any], frequencies: NDArray[Any]) -> float:
    """Code length in bits of `bits` under the integer probabilities: the sum of -log2(F / M)."""
    f = np.where(bits != 0, frequencies, _M - frequencies)
    return float(np.sum(PRECISION_BITS - np.log2(f)))


class RansCoder:
    """Lanes of rANS on one stack of bytes; see the module's docstring.

    :param initial: an integer of 40 bits that the coder starts with and that is left when all is popped.
    :param engine: "numba", "numpy", or "auto" for Numba where it is installed. The bytes do not depend on it.
    :raises ValueError: if `initial` is not in [0, 2^40), or Numba is asked for and not installed.
    """

    def __init__(self, initial: int = 0, engine: str = "auto") -> None:
        if not 0 <= initial < _LOW:
            raise ValueError(f"initial must be from 0 to 2^40 - 1, got {initial}; give 40 bits.")
        if engine not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}.")
        self._kernels = compiled_kernels() if engine != "numpy" else None
        if engine == "numba" and self._kernels is None:
            raise ValueError("engine='numba' needs Numba; `pip install numba`, or use engine='numpy'.")
        self._heads = np.array([_LOW + initial], np.int64)
        self._bytes = np.zeros(1 << 12, np.uint8)
        self._top = self._bottom = 0  # the stack is _bytes[_bottom:_top]
        self._origin = 0  # bytes that were put below it; those below _bottom were not read yet
        self._has_seed = True

    @classmethod
    def from_bytes(cls, content: bytes, num_lanes: int, engine: str = "auto") -> RansCoder:
        """The coder that :meth:`to_bytes` wrote with `num_lanes` lanes.

        :raises ValueError: if there are fewer bytes than the states need, or a state is out of its range.
        """
        size = _STATE_BYTES * num_lanes
        if num_lanes < 1 or len(content) < size:
            raise ValueError(f"{num_lanes} lanes need at least {size} bytes, got {len(content)}: the data are damaged.")
        coder = cls(engine=engine)
        stack = np.frombuffer(content, np.uint8)
        digits = stack[len(stack) - size :].reshape(num_lanes, _STATE_BYTES).astype(np.int64)
        coder._heads = digits @ (1 << (8 * np.arange(_STATE_BYTES, dtype=np.int64)))
        coder._check_heads()
        coder._bytes = stack[: len(stack) - size].copy()
        coder._top = len(coder._bytes)
        coder._has_seed = False
        return coder

    def to_bytes(self) -> bytes:
        """All bytes of the stack that were written or read, then six of each lane's state."""
        shifts = 8 * np.arange(_STATE_BYTES, dtype=np.int64)
        states = ((self._heads[:, None] >> shifts) & 255).astype(np.uint8)
        return self._bytes[self._bottom : self._top].tobytes() + states.tobytes()

    @property
    def num_lanes(self) -> int:
        """Number of lanes now."""
        return len(self._heads)

    @property
    def num_bits(self) -> float:
        """Bits held: those of the stack, of the seed as far as it was read, and log2 of the states."""
        return 8.0 * (self._top - self._bottom) + float(np.sum(np.log2(self._heads)))

    def set_lanes(self, num_lanes: int) -> None:
        """Go over to another number of lanes: new ones start with 40 bits of the stack, dropped ones give theirs back.

        :raises ValueError: if a lane to be dropped does not hold just its 40 bits, which damaged data lead to.
        """
        if num_lanes < 1:
            raise ValueError(f"num_lanes must be at least 1, got {num_lanes}.")
        size = INITIAL_BITS // 8
        shifts = 8 * np.arange(size, dtype=np.int64)
        if (new := num_lanes - self.num_lanes) > 0:
            self._make_readable(new * size)
            self._top -= new * size
            digits = self._bytes[self._top : self._top + new * size].reshape(new, size)[::-1].astype(np.int64)
            self._heads = np.concatenate([self._heads, _LOW + digits @ (1 << shifts)])
            self._note_reading()
        elif new < 0:
            dropped = self._heads[: num_lanes - 1 : -1] - _LOW
            if np.any(dropped >= _LOW):
                raise ValueError("a lane ended with more than its first 40 bits: the data are damaged.")
            self._make_writable(-new * size)
            self._bytes[self._top : self._top - new * size] = ((dropped[:, None] >> shifts) & 255).reshape(-1)
            self._top -= new * size
            self._heads = self._heads[:num_lanes].copy()

    def push(self, bits: NDArray[Any], frequencies: NDArray[Any]) -> None:
        """Encode `bits` [n, B] of probability `frequencies` [n, B] / 2^20 of being 1, unit 0 first.

        Images are dealt to the lanes in groups of as many as there are lanes; the last group may be smaller.

        :raises ValueError: if the shapes differ or a frequency is not in [1, 2^20).
        """
        bits, frequencies = np.asarray(bits), np.asarray(frequencies)
        if bits.shape != frequencies.shape or bits.ndim != 2:
            raise ValueError(f"bits and frequencies must both be [n, B], got {bits.shape} and {frequencies.shape}.")
        _check_frequencies(frequencies)
        self._make_writable(_MAX_BYTES * bits.size)
        push = _push if self._kernels is None else self._kernels.push
        bits = np.ascontiguousarray(bits, np.uint8)
        self._top = push(self._heads, self._bytes, self._top, bits, np.ascontiguousarray(frequencies, np.int32))

    def pop(self, frequencies: NDArray[Any]) -> NDArray[np.uint8]:
        """Decode: take [n, B] bits of probability `frequencies` [n, B] / 2^20, row 0 first, the last group first.

        `coder.push(bits, f)` is undone by `coder.pop(f[::-1])`, which returns `bits[::-1]`.

        :raises ValueError: if a frequency is not in [1, 2^20), or a coder made from bytes has no more of them.
        """
        frequencies = np.ascontiguousarray(frequencies, np.int32)
        _check_frequencies(frequencies)
        self._make_readable(_MAX_BYTES * frequencies.size)
        pop = _pop if self._kernels is None else self._kernels.pop
        bits = np.empty(frequencies.shape, np.uint8)
        self._top = pop(self._heads, self._bytes, self._top, bits, frequencies)
        self._note_reading()
        return bits

    def pop_linear(
        self, logits: NDArray[Any], earlier: NDArray[Any], table: NDArray[np.int32], scale: float
    ) -> NDArray[np.uint8]:
        """As :meth:`pop`, of bits whose probabilities depend on the bits popped before, in the same image.

        :param logits: [n, B], exact numbers, without the contributions of the bits themselves.
        :param earlier: [n, n]: bit k adds its row to the logits of the bits after it.
        :param table: frequencies; a logit a has that of entry round(scale a) from the middle, clipped at the ends.
        """
        self._make_readable(_MAX_BYTES * logits.size)
        bits = np.empty(logits.shape, np.uint8)
        if self._kernels is None:
            self._top = _pop_linear(self._heads, self._bytes, self._top, bits, logits, earlier, table, scale)
        else:
            by_image = logits.T.copy()
            pop = self._kernels.pop_linear
            self._top = pop(self._heads, self._bytes, self._top, bits, by_image, earlier, table, scale)
        self._note_reading()
        return bits

    def check_finished(self) -> int:
        """After all was popped: the number `initial`.

        :raises ValueError: if there is more than one lane, or other bytes are left than those of the seed.
        """
        rest = self._bytes[self._bottom : self._top]
        if self.num_lanes != 1 or self._heads[0] >= 2 * _LOW or not np.array_equal(rest[::-1], _seed(len(rest))):
            raise ValueError("bytes are left at the end: the data are damaged.")
        return int(self._heads[0]) - _LOW

    def _check_heads(self) -> None:
        if np.any(self._heads < _LOW) or np.any(self._heads >= _LOW << 8):
            raise ValueError("a lane's state is out of its range: the data are damaged.")

    def _make_writable(self, num_bytes: int) -> None:
        if (missing := self._top + num_bytes - len(self._bytes)) > 0:
            self._bytes = np.concatenate([self._bytes, np.zeros(missing + len(self._bytes), np.uint8)])

    def _make_readable(self, num_bytes: int) -> None:
        """Have `num_bytes` to read: put the seed below the stack, or zeros if reading them is an error."""
        if self._top >= num_bytes:
            return
        more = max(num_bytes, self._origin)
        below = _seed(self._origin + more)[self._origin :][::-1] if self._has_seed else np.zeros(more, np.uint8)
        self._bytes = np.concatenate([below, self._bytes])
        self._origin, self._bottom, self._top = self._origin + more, self._bottom + more, self._top + more

    def _note_reading(self) -> None:
        if self._top < self._bottom and not self._has_seed:
            raise ValueError("the coded bytes end too early: the data are damaged.")
        self._bottom = min(self._bottom, self._top)


def _seed(num_bytes: int) -> NDArray[np.uint8]:
    """The first bytes of the seed; they are read in this order."""
    return np.frombuffer(hashlib.shake_256(b"DARN bits back").digest(num_bytes), np.uint8)


def _check_frequencies(frequencies: NDArray[Any]) -> None:
    if frequencies.size and not (frequencies.min() >= 1 and frequencies.max() < _M):
        raise ValueError(f"frequencies must be from 1 to 2^{PRECISION_BITS} - 1; clip them.")


def _push(
    heads: NDArray[np.int64],
    stack: NDArray[np.uint8],
    top: int,
    bits: NDArray[np.uint8],
    frequencies: NDArray[np.int32],
) -> int:
    """Push `bits` [n, B]; changes `heads` and `stack`, returns the new top."""
    L = len(heads)
    is_one = bits != 0
    ones = frequencies.astype(np.float64)
    zeros = _M - ones
    f, g = np.where(is_one, ones, zeros), np.where(is_one, zeros, ones)  # F and M - F
    c, limits = np.where(is_one, zeros, 0.0), f * 2.0 ** (INITIAL_BITS + 8 - PRECISION_BITS)
    quotient = np.empty(L)
    for first in range(0, bits.shape[1], L):
        columns = slice(first, first + L)
        x = heads[: min(L, bits.shape[1] - first)].astype(np.float64)
        q = quotient[: len(x)]
        for F, G, C, limit in zip(f[:, columns], g[:, columns], c[:, columns], limits[:, columns], strict=True):
            is_full = x >= limit
            if np.count_nonzero(is_full):
                top = _send(x, limit, np.flatnonzero(is_full), stack, top)
            np.divide(x, F, out=q)
            np.floor(q, out=q)
            q *= G
            x += q  # (x // F) M + x % F = x + (x // F) (M - F)
            x += C
        heads[: len(x)] = x.astype(np.int64)
    return top


def _send(
    x: NDArray[np.float64], limit: NDArray[np.float64], lanes: NDArray[np.intp], stack: NDArray[np.uint8], top: int
) -> int:
    """Move bytes of the lanes' states to the stack until they are below `limit`, lane by lane."""
    states, limits = x[lanes], limit[lanes]
    high = np.floor(states * 2.0**-8)
    if not np.count_nonzero(high >= limits):  # nearly always: a byte each
        stack[top : top + len(lanes)] = states - 256.0 * high
        x[lanes] = high
        return top + len(lanes)
    counts = np.ones(len(lanes), np.intp)
    for power in range(1, _MAX_BYTES):
        counts += states >= limits * 256.0**power
    places = top + np.cumsum(counts) - counts
    for i in range(int(counts.max())):
        sends = counts > i
        high = np.floor(states[sends] * 2.0**-8)
        stack[places[sends] + i] = (states[sends] - 256.0 * high).astype(np.uint8)
        states[sends] = high
    x[lanes] = states
    return top + int(counts.sum())


def _pop(
    heads: NDArray[np.int64],
    stack: NDArray[np.uint8],
    top: int,
    bits: NDArray[np.uint8],
    frequencies: NDArray[np.int32],
) -> int:
    """Pop into `bits` [n, B], the last group of columns first; changes `heads`, returns the new top."""
    L, B = len(heads), bits.shape[1]
    zeros = _M - frequencies.astype(np.float64)
    for first in range((B - 1) // L * L, -1, -L):
        columns = slice(first, first + L)
        x = heads[: min(L, B - first)].astype(np.float64)
        for C, row in zip(zeros[:, columns], bits[:, columns], strict=True):
            quotient = np.floor(x * 2.0**-PRECISION_BITS)
            slot = x - quotient * _M
            is_one = slot >= C
            row[:] = is_one
            quotient *= np.where(is_one, _M - C, C)
            x = quotient + slot - C * is_one
            is_low = x < _LOW
            if np.count_nonzero(is_low):
                top = _take(x, np.flatnonzero(is_low), stack, top)
        heads[: len(x)] = x.astype(np.int64)
    return top


def _take(x: NDArray[np.float64], lanes: NDArray[np.intp], stack: NDArray[np.uint8], top: int) -> int:
    """The inverse of :func:`_send`."""
    states = x[lanes]
    if not np.count_nonzero(states < _LOW / 256):
        x[lanes] = 256.0 * states + stack[top - len(lanes) : top]
        return top - len(lanes)
    counts = np.ones(len(lanes), np.intp)
    for power in range(1, _MAX_BYTES):
        counts += states < _LOW * 256.0**-power
    top -= int(counts.sum())
    ends = top + np.cumsum(counts) - 1
    for i in range(int(counts.max())):
        takes = counts > i
        states[takes] = 256.0 * states[takes] + stack[ends[takes] - i]
    x[lanes] = states
    return top


def _pop_linear(
    heads: NDArray[np.int64],
    stack: NDArray[np.uint8],
    top: int,
    bits: NDArray[np.uint8],
    logits: NDArray[Any],
    earlier: NDArray[Any],
    table: NDArray[np.int32],
    scale: float,
) -> int:
    """Bit after bit within blocks; what a block adds to all later logits is one matrix product."""
    L, (n, B), half = len(heads), bits.shape, len(table) // 2
    for first in range((B - 1) // L * L, -1, -L):
        columns = slice(first, first + L)
        a, h = logits[:, columns].copy(), np.zeros_like(logits[:, columns])
        group = heads[: h.shape[1]]
        for start in range(0, n, _BLOCK):
            end = min(start + _BLOCK, n)
            for i in range(start, end):
                place = np.clip(a[i] * a.dtype.type(scale) + a.dtype.type(half + 0.5), 0, 2 * half)
                row = bits[i : i + 1, columns]
                top = _pop(group, stack, top, row, table[place.astype(np.int32)][None])
                h[i] = row[0]
                a[i + 1 : end] += earlier[i, i + 1 : end, None] * h[i]
            a[end:] += earlier[start:end, end:].T @ h[start:end]
    return top
