"""The compiled loops of `compression.files.coding.context_coding`: contexts, their mixture, and the arithmetic coder.

A decision is 0 or 1. Slot k has seen n decisions and gives p_k, the probability of a 1, which moves to each decision by
1 / (n + 3/2) of the way. The mixture is p = sigma(sum_k w_k logit p_k), and w_k moves by the learning rate times
(decision - p) logit p_k, down the gradient of the code length. All numbers are integers: p_k in units of 2^-22, p in
units of 2^-16, logits in units of 2^-8, weights in units of 2^-16; divisions are shifts that round down.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gpflow_deep_base.numbers.arithmetic import arithmetic, inner

__all__ = ["FINE", "INPUTS", "LEAST", "LIMIT", "MOST_BYTES", "MOST_SEEN", "SETS", "Coder", "Matrix", "Model", "code"]

FINE = 22
LIMIT = 12 * 256 - 1
LEAST = 4
MOST_SEEN = 1023
_LEAST_STEP = 256
INPUTS = 8
SETS = 24
MOST_BYTES = 120
"""Of one number: 65 decisions of 14 bits."""

_NODES = 128
_MAX_LENGTH = 31
_LEARNED_PREFIX = 32


class Coder(NamedTuple):
    """low, high, value, position, and whether it decodes; and the bytes that are read or written."""

    registers: NDArray[np.int64]
    stream: NDArray[np.uint8]


class Model(NamedTuple):
    """Slots and weights, what the running decision uses of them, and tables; see `context_coding`."""

    p: NDArray[np.int64]
    seen: NDArray[np.int64]
    weights: NDArray[np.int64]
    slots: NDArray[np.int64]
    logits: NDArray[np.int64]
    squash: NDArray[np.int64]
    stretch: NDArray[np.int64]
    rates: NDArray[np.int64]


class Matrix(NamedTuple):
    """The numbers [K, N], and of each row and column how many were not 0, the sum of their sizes and of their signs."""

    values: NDArray[np.int64]
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]


@inner
def _levels(x: int) -> int:
    """Bits of x, 0 for 0."""
    n = 0
    while x > 0:
        x >>= 1
        n += 1
    return n


@inner
def _density(count: int, seen: int) -> int:
    """How full, in half octaves: 0 to 23; 0, 1 and 2 for nothing so far."""
    if count == 0:
        return min(2, _levels(seen) // 4)
    x = min(seen, 1 << 20) * 4 // min(count, 1 << 20)
    return min(23, _levels(x * x))


@inner
def _decide(coder: Coder, model: Model, weight_set: int, bit: int) -> int:
    """Code a decision, or find it, with the first slots in `model.slots`, and learn from it."""
    # Contexts of whether a number is 0, of its sign, of a bit of its size.
    num_inputs = 8 if weight_set < 5 else 6 if weight_set < 7 else 5
    # The mixture: p = sigma(sum_k w_k logit p_k); a slot that has seen little counts for less.
    total = 0
    for k in range(num_inputs):
        slot = model.slots[k]
        num_seen = model.seen[slot]
        x = model.stretch[model.p[slot] >> 9]
        if num_seen < 4:
            x = x * (2 * num_seen + 1) >> 3
        model.logits[k] = x
        total += model.weights[weight_set, k] * x
    dot = min(LIMIT, max(-LIMIT, total >> 16))
    p = model.squash[dot + LIMIT]
    bit = arithmetic(coder.registers, coder.stream, p, bit)
    # w_k += rate (decision - p) logit p_k, down the gradient of the code length, at a falling rate.
    step = model.weights[weight_set, INPUTS]
    error = ((bit << 16) - p) * step
    model.weights[weight_set, INPUTS] = step - ((step - _LEAST_STEP) >> 5) if step > _LEAST_STEP else step
    for k in range(num_inputs):
        slot = model.slots[k]
        model.weights[weight_set, k] += (model.logits[k] * error) >> 26
        # Slot k moves by 1 / (n + 3/2) of the way to the decision.
        n = model.seen[slot]
        model.p[slot] += (((bit << FINE) - model.p[slot]) * model.rates[n]) >> 16
        if n < MOST_SEEN:
            model.seen[slot] = n + 1
    return bit


@inner
def _at(values: NDArray[np.int64], i: int, j: int) -> int:
    return values[i, j] if i >= 0 and j >= 0 else 0


@inner
def _is_zero(coder: Coder, model: Model, matrix: Matrix, i: int, j: int, by: tuple[int, int, int, int], q: int) -> int:
    """Whether the number at (i, j) is 0."""
    left_stride, above_stride, rows_seen, columns_seen = by
    v, rows, columns = matrix
    K = v.shape[0]
    # The neighbours in an image that were coded already, those beside and above counted twice.
    near = 0
    flags = 0
    if left_stride:
        a = 1 if _at(v, i - left_stride, j) else 0
        b = 1 if _at(v, i - above_stride, j) else 0
        c = 1 if _at(v, i - above_stride - left_stride, j) else 0
        d = 1 if _at(v, i - above_stride + left_stride, j) else 0
        e = 1 if _at(v, i - 2 * left_stride, j) else 0
        f = 1 if _at(v, i - 2 * above_stride, j) else 0
        flags = a + 2 * b + 4 * c + 8 * d + 16 * e + 32 * f
        near = a + a + b + b + c + d + e + f
    # The two numbers before in the row, and how full row, column and the rows around are.
    one = 1 if _at(v, i, j - 1) else 0
    two = 1 if _at(v, i, j - 2) else 0
    row = _density(rows[0, i], rows_seen)
    column = _density(columns[0, j], columns_seen)
    around = rows[0, i]
    count = 1
    if left_stride:
        for k in (i - left_stride, i + left_stride, i - above_stride, i + above_stride):
            if 0 <= k < K:
                around += rows[0, k]
                count += 1
    others = _density(around, rows_seen * count)
    # Eight contexts, each in a range of slots of its own.
    slots = model.slots
    start = 0
    slots[0] = row * 24 + column
    start += 576
    slots[1] = start + flags * 2 + one
    start += 128
    slots[2] = start + others * 24 + row
    start += 576
    slots[3] = start + near * 24 + column
    start += 264
    slots[4] = start + (one * 2 + two) * 24 + others
    start += 96
    slots[5] = start + near * 24 + others
    start += 264
    slots[6] = start + i
    slots[7] = start + K + j
    return _decide(coder, model, min(near, 4), 1 if q == 0 else 0)


@inner
def _size_level(total: int, count: int) -> int:
    """The mean of sizes in half octaves, 0 to 15; 0 for none."""
    if count == 0:
        return 0
    x = min(total, 1 << 24) * 4 // count
    return min(15, max(1, _levels(x * x) - 4))


@inner
def _sign_level(balance: int, count: int) -> int:
    """The balance of signs, 0 to 8."""
    if count == 0:
        return 4
    return 4 + 4 * balance // (count + 1) if balance >= 0 else 4 - 4 * -balance // (count + 1)


@inner
def _sign(value: int) -> int:
    return 0 if value == 0 else (1 if value > 0 else 2)


@inner
def _is_negative(coder: Coder, model: Model, matrix: Matrix, i: int, j: int, left: int, above: int, q: int) -> int:
    """The sign of a number that is not 0."""
    v, rows, columns = matrix
    # Signs of neighbours in the image and in the row; balances of row and column.
    a = _sign(_at(v, i - left, j)) if left else 0
    b = _sign(_at(v, i - above, j)) if left else 0
    c = _sign(_at(v, i - above - left, j)) if left else 0
    d = _sign(_at(v, i - above + left, j)) if left else 0
    one = _sign(_at(v, i, j - 1))
    row = _sign_level(rows[2, i], rows[0, i])
    column = _sign_level(columns[2, j], columns[0, j])
    start = 1904 + sum(v.shape)
    slots = model.slots
    slots[0] = start + a * 3 + b
    slots[1] = start + 9 + column
    slots[2] = start + 18 + row
    slots[3] = start + 27 + c * 3 + d
    slots[4] = start + 36 + (row * 9 + column)
    slots[5] = start + 117 + one * 9 + a * 3 + b
    return _decide(coder, model, 5 + (1 if a or b else 0), 1 if q < 0 else 0)


@inner
def _size(coder: Coder, model: Model, matrix: Matrix, i: int, j: int, left: int, above: int, q: int) -> int:
    """The size of a number that is not 0: its bits in unary, then the lower ones from the highest on."""
    v, rows, columns = matrix
    row = _size_level(rows[1, i], rows[0, i])
    column = _size_level(columns[1, j], columns[0, j])
    near = 0
    if left:
        near = max(abs(_at(v, i - left, j)), abs(_at(v, i - above, j)))
    near = min(7, _levels(near))
    start = 2048 + sum(v.shape)
    # The number of bits in unary.
    length = 1
    for node in range(1, _MAX_LENGTH + 1):
        if not _size_bit(coder, model, start, node, row, column, near, 1 if abs(q) >> node else 0):
            break
        length += 1
    # The bits below the first, which is 1; the context of each is those so far.
    size = 1
    for level in range(length - 2, -1, -1):
        node = 31 + size if size < _LEARNED_PREFIX else 64 + level
        node = min(127, node + (32 if size < _LEARNED_PREFIX and length > 4 else 0))
        size = size << 1 | _size_bit(coder, model, start, node, row, column, near, abs(q) >> level & 1)
    return size


@inner
def _size_bit(coder: Coder, model: Model, start: int, node: int, row: int, column: int, near: int, bit: int) -> int:
    slots = model.slots
    slots[0] = start + node
    slots[1] = start + _NODES + node * 16 + row
    slots[2] = start + _NODES * 17 + node * 16 + column
    slots[3] = start + _NODES * 33 + node * 8 + near
    slots[4] = start + _NODES * 41 + (node * 16 + row) * 16 + column
    return _decide(coder, model, 7 + min(node, 15), bit)


@njit(nogil=True, cache=True)
def code(
    coder: Coder, model: Model, matrix: Matrix, first: int, last: int, left: int, above: int, by_rows: bool
) -> bool:
    """Code the numbers from `first` to `last`, or fill them in; False if one is too large."""
    v, rows, columns = matrix
    K, N = v.shape
    for t in range(first, last):
        i, j = (t // N, t % N) if by_rows else (t % K, t // K)
        q = v[i, j]
        if not _is_zero(coder, model, matrix, i, j, (left, above, j, i), q):
            is_negative = _is_negative(coder, model, matrix, i, j, left, above, q)
            size = _size(coder, model, matrix, i, j, left, above, q)
            if size >= 1 << _MAX_LENGTH:
                return False
            sign = -1 if is_negative else 1
            v[i, j] = sign * size
            # Row and column learn of a number that is not 0.
            for sums, k in ((rows, i), (columns, j)):
                sums[0, k] += 1
                sums[1, k] += size
                sums[2, k] += sign
    return True
