"""Integers of a matrix by adaptive binary arithmetic coding with mixed contexts: sparse masks and quantised weights.

    stream = encode_matrix(codes, strides=(1, 28))         # codes [K, N] of any sign, most of them 0
    decode_matrix(stream, codes.shape, strides=(1, 28))    # the same numbers

Each number is a path of decisions: whether it is 0, its sign, its number of bits in unary, its lower bits. Several
contexts predict a decision: how full its row and its column were so far, its neighbours, the signs and sizes of what
came before. Their predictions are added up as log odds with weights that are learnt on the way (Mahoney, 2005), so no
context has to be chosen for a network, and no table is stored.

Everything is in integers, so that each machine decodes the same numbers, and compiled by Numba.
"""

from __future__ import annotations

import functools
from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import context_model as loops

__all__ = ["decode_matrix", "encode_matrix", "most_numbers"]

_ONE = 1 << 16  # of probabilities
_CHUNK = 1 << 12
_FIRST_WEIGHT = 9000
_FIRST_STEP = 2048


def encode_matrix(values: ArrayLike, *, strides: tuple[int, int] = (0, 0), by_rows: bool = False) -> bytes:
    """A matrix of integers as bytes.

    :param values: [K, N], below 2**31 in size; rows are inputs, and columns are units.
    :param strides: how many rows before a row its neighbours to the left and above are, in an image; the first is less.
        0, 0 for none.
    :param by_rows: row by row, and not column by column.
    :raises ValueError: if there is no matrix, a number is too large, or the strides are none of an image.
    """
    _check_strides(strides)
    matrix = np.array(values, np.int64, order="C")
    if matrix.ndim != 2 or np.any(np.abs(matrix) >= 2**31):
        raise ValueError(f"values must be a matrix of integers below 2**31 in size, got the shape {matrix.shape}.")
    # Registers: low and high of the interval, value, position in the stream, whether it decodes.
    parts: list[bytes] = []
    registers = np.array([0, 2**32 - 1, 0, 0, 0], np.int64)
    room = np.zeros(_CHUNK * loops.MOST_BYTES, np.uint8)
    model = _model(matrix.shape)
    state = _matrix(matrix)
    # Chunk by chunk, so that the room for bytes that go out has a bound.
    for first in range(0, matrix.size, _CHUNK):
        last = min(first + _CHUNK, matrix.size)
        loops.code(loops.Coder(registers, room), model, state, first, last, *strides, by_rows)
        parts.append(room[: registers[3]].tobytes())
        registers[3] = 0
    return (b"".join(parts) + _shortest(int(registers[0]), int(registers[1]))).rstrip(b"\0")


def decode_matrix(
    stream: bytes, shape: tuple[int, int], *, strides: tuple[int, int] = (0, 0), by_rows: bool = False
) -> NDArray[np.int64]:
    """The numbers that :func:`encode_matrix` wrote, of the same shape, strides and order.

    Any stream has a meaning, so damage has to be found by a checksum.

    :raises ValueError: if the stream is too short for so many numbers, see :func:`most_numbers`, or holds one that is
        too large; or if the strides are none of an image.
    """
    _check_strides(strides)
    if shape[0] * shape[1] > most_numbers(stream):
        raise ValueError(f"the stream of {len(stream)} bytes is too short for {shape[0]} x {shape[1]} numbers.")
    matrix = np.zeros(shape, np.int64)
    # The first four bytes are the number within the interval of 2^32.
    value = int.from_bytes(stream[:4].ljust(4, b"\0"), "big")
    registers = np.array([0, 2**32 - 1, value, 4, 1], np.int64)
    coder = loops.Coder(registers, np.frombuffer(stream, np.uint8).copy())
    if not loops.code(coder, _model(shape), _matrix(matrix), 0, matrix.size, *strides, by_rows):
        raise ValueError("the stream holds a number that is too large.")
    return matrix


def most_numbers(stream: bytes) -> int:
    """How many numbers a stream of this length may have: those of which each decision was the most likely one."""
    return _ONE // loops.LEAST * (8 * len(stream) + 32)


def _check_strides(strides: tuple[int, int]) -> None:
    """Neighbours have to come before a number."""
    left_stride, above_stride = strides
    if (left_stride, above_stride) != (0, 0) and not 0 < left_stride < above_stride:
        raise ValueError(
            f"neighbours must be 0 < left < above rows before a row, got {left_stride} and {above_stride}."
        )


def _shortest(low: int, high: int) -> bytes:
    """The fewest bytes that lie in the last interval when zeros follow."""
    for count in range(5):
        step = 1 << (32 - 8 * count)
        value = -(-low // step) * step
        if value <= high:
            break
    return value.to_bytes(5, "big")[1:]


def _model(shape: tuple[int, ...]) -> loops.Model:
    # Slots of all contexts, each at probability 1/2, and equal weights for all that are mixed.
    squash, stretch, rates = _tables()
    size = 2048 + sum(shape) + 128 * 300
    weights = np.full((loops.SETS, loops.INPUTS + 1), _FIRST_WEIGHT, np.int64)
    weights[:, loops.INPUTS] = _FIRST_STEP
    slots = np.zeros(loops.INPUTS, np.int64)
    logits = np.zeros(loops.INPUTS, np.int64)
    p = np.full(size, 1 << (loops.FINE - 1), np.int64)
    counts = np.zeros(size, np.int64)
    return loops.Model(p, counts, weights, slots, logits, squash, stretch, rates)


def _matrix(values: NDArray[np.int64]) -> loops.Matrix:
    rows, columns = (np.zeros((3, size), np.int64) for size in values.shape)
    return loops.Matrix(values, rows, columns)


@functools.cache
def _tables() -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Probabilities of log odds, log odds of probabilities, and 1 / (n + 3/2).

    By decimal numbers, whose exponential function is rounded correctly everywhere.
    """
    with localcontext() as context:
        context.prec = 30
        # sigma(x) for log odds x in units of 1 / 256, then its inverse by search.
        odds = (Decimal(x) / 256 for x in range(-loops.LIMIT, loops.LIMIT + 1))
        exact = [int((_ONE / (1 + (-x).exp())).to_integral_value()) for x in odds]
    squash = np.clip(np.array(exact, np.int64), loops.LEAST, _ONE - loops.LEAST)
    middles = (np.arange(1 << 13, dtype=np.int64) << 3) + 4
    stretch = np.searchsorted(squash, middles) - loops.LIMIT
    rates = (2 * _ONE) // (2 * np.arange(loops.MOST_SEEN + 1, dtype=np.int64) + 3)
    return squash, stretch.astype(np.int64), rates
