"""Numba kernels for the scalar products of packed ±1 rows; `ebp.packed` imports them if Numba is installed.

With x and w packed as bits (1 for +1), the scalar product of K signs is K - 2 popcount(x xor w). `nibbles` is for x86
processors with AVX2: the counts of 4 inputs at a time come from a table of 16 bytes by one shuffle instruction, for 32
outputs at once, and are added in bytes (31 steps of at most 8 fit into a byte). `words` counts the bits of 64-bit
words and is as fast or faster where the processor counts the bits of vectors (AVX-512 VPOPCNTDQ, Arm).
"""

from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

__all__ = ["HAS_SHUFFLE", "blocked", "nibbles", "words"]

_LANES = 32  # outputs of one vector
_VECTORS = 2  # vectors that share the look-ups of the rows' tables
_WIDTH = _VECTORS * _LANES
_STEPS = 31  # bytes of inputs between two widenings of the byte counters: 31 * 8 < 256
_ROWS = 4  # rows that share one loading of the weights
_TILE = 128  # rows whose counters are kept at a time

_features = binding.get_host_cpu_features()
HAS_SHUFFLE: bool = bool(_features.get("avx2")) and not _features.get("avx512vpopcntdq")
"""Whether :func:`nibbles` is the better kernel here."""


def _count_ones(typing_context: Any, x: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return x(x), generate


_ctpop: Any = intrinsic(_count_ones)  # number of ones in an integer


@njit(nogil=True)
def words(x: NDArray[np.uint64], w: NDArray[np.uint64], num_bits: int, out: NDArray[np.int32]) -> None:
    """Put K - 2 popcount(x xor w), K = `num_bits`, of all rows of `x` [N, M] and `w` [O, M] into `out` [N, O]."""
    (N, M), K = x.shape, np.int64(num_bits)
    whole = N - N % 4
    for n in range(0, whole, 4):
        for o in range(len(w)):
            a = b = c = d = np.uint64(0)
            for k in range(M):
                a += _ctpop(x[n, k] ^ w[o, k])
                b += _ctpop(x[n + 1, k] ^ w[o, k])
                c += _ctpop(x[n + 2, k] ^ w[o, k])
                d += _ctpop(x[n + 3, k] ^ w[o, k])
            out[n, o], out[n + 1, o] = K - 2 * np.int64(a), K - 2 * np.int64(b)
            out[n + 2, o], out[n + 3, o] = K - 2 * np.int64(c), K - 2 * np.int64(d)
    for n in range(whole, N):
        for o in range(len(w)):
            a = np.uint64(0)
            for k in range(M):
                a += _ctpop(x[n, k] ^ w[o, k])
            out[n, o] = K - 2 * np.int64(a)


def _make_block(num_rows: int) -> Any:
    """A function that adds the differing bits of `num_rows` rows and 64 outputs over some bytes to their counters.

    Its arguments are addresses and numbers: of the weights [bytes, 64], of bytes, of the rows' table offsets (uint16),
    the distance of the rows in bytes, the table, and the counters int32 [num_rows, 64].
    """
    byte, short, long = ir.IntType(8), ir.IntType(16), ir.IntType(64)
    half, vector = ir.VectorType(byte, 16), ir.VectorType(byte, _LANES)
    counters = ir.VectorType(ir.IntType(32), _LANES)
    twice = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [*range(16), *range(16)])

    @intrinsic
    def block(
        typing_context: Any, weights: Any, num_bytes: Any, offsets: Any, distance: Any, table: Any, out: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            weights, num_bytes, offsets, distance, table, out = args
            shuffle = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(vector, [vector, vector]), "llvm.x86.avx2.pshuf.b"
            )

            def at(address: Any, kind: Any) -> Any:
                return builder.inttoptr(address, kind.as_pointer())

            def load(address: Any, kind: Any, align: int) -> Any:
                value = builder.load(at(address, kind))
                value.align = align
                return value

            def table_row(address: Any) -> Any:
                return builder.shuffle_vector(load(address, half, 16), ir.Constant(half, ir.Undefined), twice)

            sums = [[cgutils.alloca_once(builder, vector) for _ in range(_VECTORS)] for _ in range(num_rows)]
            rows = [builder.add(offsets, builder.mul(distance, long(row))) for row in range(num_rows)]
            for row in sums:
                for total in row:
                    builder.store(ir.Constant(vector, [0] * _LANES), total)
            with cgutils.for_range(builder, num_bytes) as loop:
                lows, highs = [], []
                for k in range(_VECTORS):
                    place = builder.add(builder.mul(loop.index, long(_WIDTH)), long(_LANES * k))
                    w = load(builder.add(weights, place), vector, 1)
                    lows.append(builder.and_(w, ir.Constant(vector, [15] * _LANES)))
                    highs.append(builder.lshr(w, ir.Constant(vector, [4] * _LANES)))
                for row, totals in zip(rows, sums, strict=True):
                    offset = load(builder.add(row, builder.mul(loop.index, long(2))), short, 2)
                    address = builder.add(table, builder.zext(offset, long))
                    table_low, table_high = table_row(address), table_row(builder.add(address, long(16)))
                    for low, high, total in zip(lows, highs, totals, strict=True):
                        partial = builder.add(builder.load(total), builder.call(shuffle, [table_low, low]))
                        builder.store(builder.add(partial, builder.call(shuffle, [table_high, high])), total)
            for number, totals in enumerate(sums):
                for k, total in enumerate(totals):
                    address = builder.add(out, long(4 * (_WIDTH * number + _LANES * k)))
                    value = builder.add(load(address, counters, 4), builder.zext(builder.load(total), counters))
                    builder.store(value, at(address, counters)).align = 4
            return context.get_dummy_value()

        types_ = (types.uintp, types.int64, types.uintp, types.int64, types.uintp, types.uintp)
        return types.void(*types_), generate

    return block


_many, _one = _make_block(_ROWS), _make_block(1)


def _aligned(array: NDArray[Any]) -> NDArray[Any]:
    """A copy that starts at a multiple of 64 bytes, so that no table row crosses a cache line."""
    memory = np.zeros(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _differing_bits() -> NDArray[np.uint8]:
    """Row x: differing bits of the lower half of byte x and 0, ..., 15, then of its upper half."""
    x, nibble = np.arange(256)[:, None], np.arange(16)
    ones = np.array([number.bit_count() for number in range(16)], np.uint8)
    return _aligned(np.concatenate([ones[(x & 15) ^ nibble], ones[(x >> 4) ^ nibble]], axis=1))


_TABLE = _differing_bits()


def blocked(w: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rows of packed bits [O, B] as `nibbles` takes them: [ceil(O / 64), B, 64], filled up with zeros."""
    num_outputs, B = w.shape
    padded = np.zeros((-(-num_outputs // _WIDTH) * _WIDTH, B), np.uint8)
    padded[:num_outputs] = w
    return _aligned(padded.reshape(-1, _WIDTH, B).transpose(0, 2, 1))


def nibbles(x: NDArray[np.uint8], w: NDArray[np.uint8], num_bits: int, out: NDArray[np.int32]) -> None:
    """As :func:`words`, of rows of bytes `x` [N, at least B] and `w` made by :func:`blocked`."""
    _nibbles(x, w, _TABLE, num_bits, out)


@njit(nogil=True)
def _nibbles(
    x: NDArray[np.uint8], w: NDArray[np.uint8], table: NDArray[np.uint8], num_bits: int, out: NDArray[np.int32]
) -> None:
    (N, num_outputs), (num_blocks, B, _) = out.shape, w.shape
    num_pieces = (B + _STEPS - 1) // _STEPS
    tile = min(N, _TILE)
    offsets = np.empty((num_pieces, tile, _STEPS), np.uint16)
    counters = np.empty((tile, _WIDTH), np.int32)
    w_start, table_start = w.ctypes.data, table.ctypes.data
    x_start, out_start = offsets.ctypes.data, counters.ctypes.data
    for first in range(0, N, tile):
        rows = min(tile, N - first)
        for n in range(rows):
            for b in range(B):
                offsets[b // _STEPS, n, b % _STEPS] = np.uint16(x[first + n, b]) << 5  # 32 bytes of table for each byte
        for block in range(num_blocks):
            counters[:] = 0
            for piece in range(num_pieces):
                start = piece * _STEPS
                steps = min(_STEPS, B - start)
                weights = np.uintp(w_start + (block * B + start) * _WIDTH)
                for n in range(0, rows - _ROWS + 1, _ROWS):
                    from_x = np.uintp(x_start + 2 * _STEPS * (piece * tile + n))
                    to = np.uintp(out_start + 4 * _WIDTH * n)
                    _many(weights, steps, from_x, 2 * _STEPS, np.uintp(table_start), to)
                for n in range(rows - rows % _ROWS, rows):
                    from_x = np.uintp(x_start + 2 * _STEPS * (piece * tile + n))
                    to = np.uintp(out_start + 4 * _WIDTH * n)
                    _one(weights, steps, from_x, 2 * _STEPS, np.uintp(table_start), to)
            here = block * _WIDTH
            for n in range(rows):
                for o in range(min(_WIDTH, num_outputs - here)):
                    out[first + n, here + o] = num_bits - 2 * counters[n, o]
