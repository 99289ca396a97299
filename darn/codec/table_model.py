"""The compiled loops of `darn.codec.table`: contexts of a cell, their mixture, and the range coder, in integers.

A cell is coded by decisions of 0 or 1: the bits of its level's rank from the highest on, or the bits of its bytes. Each
decision has up to INPUTS contexts; the slot of context k has seen n decisions and gives p_k, the probability of a 1,
which moves to each decision by 1 / (n + 3/2) of the way. Two mixtures p = sigma(sum_k w_k logit p_k) are averaged as
logits; their w_k move by the learning rate times (decision - p) logit p_k, down the gradient of the code length. p_k is
in units of 2^-22, p of 2^-16, logits of 2^-8, weights of 2^-16; divisions are shifts that round down. No number is a
float, so each machine and each number of threads decodes the same.
"""

from __future__ import annotations

import functools
from decimal import Decimal, localcontext
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gpflow_deep_base.numbers.arithmetic import arithmetic, inner

__all__ = ["INPUTS", "PARENTS", "State", "Table", "code", "memory", "new_state"]

INPUTS = 18
PARENTS = 6

_FINE = 22
_MOST_SEEN = 1023
_LIMIT = 12 * 256 - 1
_SLOTS = 16
_SETS = 32
_FRESH = 1 << (_FINE - 1) << 10
_MOST_BUCKET_BITS = 16
_MATCH_BITS = 16
_RECENT_BITS = 12
_MAP = 33
_START_STEP = 5000
_LEAST_STEP = 600


class State(NamedTuple):
    """What the coder has learned, and the bytes that it reads or writes.

    :ivar registers: low, high, value, place in the stream, whether it decodes, place in the text.
    :ivar stream: bytes that are read or written.
    :ivar slots: [INPUTS, 16 * buckets]; a bucket holds a tag and, for 15 decisions, p_k * 2^10 + n.
    :ivar contexts: hash of each context of the running cell or byte, [INPUTS].
    :ivar places: first slot of its bucket, [INPUTS].
    :ivar inputs: logits, [INPUTS].
    :ivar by_depth: weights by column and depth of the decision, [32 * columns, INPUTS + 1]; the last is the step.
    :ivar by_news: weights by column and by how many contexts are new, as `by_depth`.
    :ivar final: probabilities by column and logit, which correct the mixture.
    """

    registers: NDArray[np.int64]
    stream: NDArray[np.uint8]
    slots: NDArray[np.uint32]
    contexts: NDArray[np.int64]
    places: NDArray[np.int64]
    inputs: NDArray[np.int64]
    by_depth: NDArray[np.int32]
    by_news: NDArray[np.int32]
    final: NDArray[np.int32]
    squash: NDArray[np.int64]
    stretch: NDArray[np.int64]
    rates: NDArray[np.int64]


class Table(NamedTuple):
    """What is coded.

    :ivar levels: of each column, [D]; 0 for a column of text.
    :ivar parents: features of earlier columns that a column depends on, the most informative first, [D, PARENTS]; -1
        for none.
    :ivar extra: first extra feature of a column of text, [D]: its last two bytes and its first three.
    :ivar features: [N, F]; the first D are ranks of cells, or hashes of texts.
    :ivar text: cells of columns of text, row by row, each with a 0 behind it.
    """

    levels: NDArray[np.int64]
    parents: NDArray[np.int64]
    extra: NDArray[np.int64]
    features: NDArray[np.int32]
    text: NDArray[np.uint8]


@functools.cache
def _tables() -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """sigma by logit, logit by probability, and 2^16 / (n + 3/2).

    By decimal numbers, whose exponential function is rounded correctly everywhere.
    """
    with localcontext() as context:
        context.prec = 30
        # sigma at whole multiples of 1 / 256, and at their negatives.
        upper = [int(65536 / (1 + (Decimal(-x) / 256).exp())) for x in range(_LIMIT + 1)]
    squash = np.array([65536 - p for p in upper[:0:-1]] + upper, np.int64).clip(1, 65535)
    # The logit of the middle of each of 4,096 intervals.
    middles = (2 * np.arange(4096) + 1) * 8
    stretch = np.searchsorted(squash, middles).astype(np.int64) - _LIMIT
    rates = np.array([(1 << 17) // (2 * n + 3) for n in range(_MOST_SEEN + 1)], np.int64)
    return squash, stretch, rates


def _bucket_bits(num_cells: int, num_text: int) -> int:
    """Bits of the number of buckets of each context."""
    return min(_MOST_BUCKET_BITS, max(6, (2 * num_cells + 2 * num_text).bit_length()))


def memory(num_cells: int, num_text: int, num_columns: int) -> int:
    """Bytes of a :class:`State`, and of what `code` sets aside.

    :param num_cells: rows times columns.
    :param num_text: bytes of text.
    :param num_columns: of the table.
    """
    slots = INPUTS * _SLOTS * 4 << _bucket_bits(num_cells, num_text)
    per_column = 2 * _SETS * (INPUTS + 1) * 4 + _SETS * _MAP * 4 + (4 << _RECENT_BITS)
    return slots + num_columns * per_column + (4 << _MATCH_BITS)


def new_state(num_cells: int, num_text: int, num_columns: int, stream: NDArray[np.uint8], decodes: bool) -> State:
    """A state that has learned nothing; the parameters are those of :func:`memory`.

    :param stream: bytes to read, or room for those that are written.
    :param decodes: whether they are read.
    """
    squash, stretch, rates = _tables()
    # Slots of all contexts, and weights by depth and by news.
    slots = np.full((INPUTS, _SLOTS << _bucket_bits(num_cells, num_text)), _FRESH, np.uint32)
    slots[:, ::_SLOTS] = 0
    weights = np.full((_SETS * num_columns, INPUTS + 1), 14000, np.int32)
    weights[:, INPUTS] = _START_STEP
    final = np.tile(squash[np.linspace(0, len(squash) - 1, _MAP).astype(np.int64)] << 6, _SETS * num_columns)
    # Registers of the arithmetic coder; a decoder begins with its first four bytes.
    registers = np.zeros(6, np.int64)
    registers[1] = 0xFFFFFFFF
    registers[4] = decodes
    if decodes:  # the first four bytes
        registers[2] = int.from_bytes(stream[:4].tobytes().ljust(4, b"\0"), "big")
        registers[3] = 4
    contexts = np.zeros(INPUTS, np.int64)
    places = np.zeros(INPUTS, np.int64)
    inputs = np.zeros(INPUTS, np.int64)
    by_news = weights.copy()
    learned = final.astype(np.int32)
    return State(registers, stream, slots, contexts, places, inputs, weights, by_news, learned, squash, stretch, rates)


@inner
def _mixed(a: int, b: int) -> int:
    """A hash of two numbers."""
    x = (a ^ (b * 0x9E3779B97F4A7C1)) * 0x2545F4914F6CDD1D
    return x ^ ((x >> 29) & 0x7FFFFFFFF)


@inner
def _seek(state: State, num_inputs: int, path: int) -> int:
    """Find the bucket of each context for the next four decisions; how many are new."""
    slots = state.slots
    mask = slots.shape[1] // _SLOTS - 1
    news = 0
    for k in range(num_inputs):
        x = _mixed(state.contexts[k], path)
        bucket = (x >> 3) & mask
        tag = np.uint32(((x >> 31) & 0xFFFFFFFE) | 1)
        place = bucket * _SLOTS
        # The bucket, or its neighbour; the one that was used less often gives way to a new context.
        if slots[k, place] != tag:
            other = (bucket ^ 1) * _SLOTS
            if slots[k, other] == tag:
                place = other
            else:
                if slots[k, other + 1] & np.uint32(1023) < slots[k, place + 1] & np.uint32(1023):
                    place = other
                slots[k, place] = tag
                for i in range(1, _SLOTS):
                    slots[k, place + i] = _FRESH
                news += 1
        state.places[k] = place
    return news


@inner
def _decide(state: State, num_inputs: int, node: int, depth: int, news: int, bit: int) -> int:
    """Code a decision, or find it, and learn from it.

    :param node: 1 to 15, within the bucket.
    :param depth: and column: the set of weights.
    :param news: and column: the other set.
    """
    slots = state.slots
    inputs = state.inputs
    a = state.by_depth
    b = state.by_news
    total_a = 0
    total_b = 0
    # Logits of all contexts, mixed with two sets of weights; a context that was seen seldom counts less.
    for k in range(num_inputs):
        slot = np.int64(slots[k, state.places[k] + node])
        n = slot & 1023
        x = state.stretch[slot >> 20]
        if n < 4:
            x = x * (2 * n + 1) >> 3
        inputs[k] = x
        total_a += a[depth, k] * x
        total_b += b[news, k] * x
    dot_a = min(_LIMIT, max(-_LIMIT, total_a >> 16))
    dot_b = min(_LIMIT, max(-_LIMIT, total_b >> 16))
    p_a = state.squash[dot_a + _LIMIT]
    p_b = state.squash[dot_b + _LIMIT]
    dot = (dot_a + dot_b) >> 1
    p = state.squash[dot + _LIMIT]
    # the probability that this logit had so far
    at = (dot + _LIMIT) * 32
    low = at // (2 * _LIMIT + 1)
    part = ((at - low * (2 * _LIMIT + 1)) << 8) // (2 * _LIMIT + 1)
    at = depth * _MAP + low
    learned = (state.final[at] * (256 - part) + state.final[at + 1] * part) >> 14
    p = min(65535, max(1, (p + learned) >> 1))
    bit = arithmetic(state.registers, state.stream, p, bit)
    near = at + (1 if part >= 128 else 0)
    state.final[near] += ((bit << 22) - state.final[near]) >> 6
    # learn
    step_a = a[depth, INPUTS]
    step_b = b[news, INPUTS]
    error_a = ((bit << 16) - p_a) * step_a
    error_b = ((bit << 16) - p_b) * step_b
    a[depth, INPUTS] = step_a - ((step_a - _LEAST_STEP) >> 7)
    b[news, INPUTS] = step_b - ((step_b - _LEAST_STEP) >> 7)
    for k in range(num_inputs):
        x = inputs[k]
        a[depth, k] += (x * error_a + (1 << 25)) >> 26
        b[news, k] += (x * error_b + (1 << 25)) >> 26
        slot = np.int64(slots[k, state.places[k] + node])
        n = slot & 1023
        p_k = slot >> 10
        p_k += (((bit << _FINE) - bit - p_k) * state.rates[n]) >> 16
        slots[k, state.places[k] + node] = p_k << 10 | min(n + 1, _MOST_SEEN)
    return bit


@inner
def _rank_contexts(state: State, table: Table, n: int, d: int, recent: NDArray[np.int32]) -> int:
    """Contexts of a cell that is a rank: other columns of its row, alone and together, and its column above."""
    h = state.contexts
    v = table.features
    parents = table.parents
    # Columns of the same row: alone, with those before them, and in pairs.
    h[0] = d
    k = 1
    together = d
    for i in range(PARENTS):
        j = parents[d, i]
        if j < 0:
            break
        h[k] = _mixed(v[n, j], d + 1000 * i + 1000)
        together = _mixed(together, v[n, j])
        k += 1
        if i >= 1:
            h[k] = together + i
            k += 1
        if i == 2:
            h[k] = _mixed(_mixed(v[n, parents[d, 0]], v[n, j]), d + 8000)
            h[k + 1] = _mixed(_mixed(v[n, parents[d, 1]], v[n, j]), d + 9000)
            k += 2
    # The column's last two cells.
    above = v[n - 1, d] if n >= 1 else 0
    second = v[n - 2, d] if n >= 2 else 0
    h[k] = _mixed(above, d + 10000)
    k += 1
    j = parents[d, 0]
    if j < 0:
        h[k] = _mixed(_mixed(above, second), d + 11000)
        return k + 1
    h[k] = _mixed(_mixed(above, v[n, j]), _mixed(v[n - 1, j] if n >= 1 else 0, d + 12000))
    # The cell beside the last one of the same parent.
    last = recent[d, _mixed(v[n, j], 1) & ((1 << _RECENT_BITS) - 1)]
    h[k + 1] = _mixed(v[last - 1, d] if last > 0 else -1, _mixed(d + 13000, above))
    return k + 2


@inner
def _byte_contexts(
    state: State, table: Table, n: int, d: int, start: int, place: int, prefix: int, above: int, equal: int, match: int
) -> int:
    """Contexts of a byte of text: those before it, the cell above, what followed the same bytes, other columns."""
    h = state.contexts
    v = table.features
    text = table.text
    # The last four bytes, and the cell above from the same position on.
    c1 = np.int64(text[place - 1]) if place >= 1 else 0
    c2 = np.int64(text[place - 2]) if place >= 2 else 0
    c3 = np.int64(text[place - 3]) if place >= 3 else 0
    c4 = np.int64(text[place - 4]) if place >= 4 else 0
    position = place - start
    up = above + position
    u0 = np.int64(text[up]) if above >= 0 and up < start else 0
    u1 = np.int64(text[up + 1]) if u0 and up + 1 < start else 0
    order = c1 | c2 << 8
    h[0] = _mixed(c1, d + 1000)
    h[1] = _mixed(order, d + 2000)
    h[2] = _mixed(order | c3 << 16, d + 3000)
    h[3] = _mixed(order | c3 << 16 | c4 << 24, d + 4000)
    h[4] = _mixed(prefix, d + 5000)
    h[5] = _mixed(u0 | u1 << 8 | c1 << 16 | equal << 24, d + 6000)
    h[6] = _mixed(min(position, 255) | c1 << 8, d + 7000)
    h[7] = _mixed(u0 | equal << 8 | min(position, 255) << 16, d + 8000)
    h[8] = _mixed(match, d + 9000)
    h[9] = _mixed(d, 10000)
    h[10] = _mixed(u0 | (c1 << 8) | c2 << 16, d + 11000)
    # Other columns of the row.
    k = 11
    together = prefix
    for i in range(3):
        j = table.parents[d, i]
        if j < 0:
            break
        h[k] = _mixed(_mixed(prefix, v[n, j]), d + 12000 + 1000 * i)
        together = _mixed(together, v[n, j])
        k += 1
        if i:
            h[k] = together + i
            k += 1
    return k


@inner
def _rank(state: State, table: Table, n: int, d: int, recent: NDArray[np.int32]) -> None:
    """Code a rank, the highest bit first; bits that no rank of the column can have are left out."""
    levels = table.levels[d]
    v = table.features
    rank = np.int64(v[n, d])
    # Bits of the largest rank.
    num_bits = 0
    while (levels - 1) >> num_bits:
        num_bits += 1
    num_inputs = _rank_contexts(state, table, n, d, recent)
    prefix = 0
    news = 0
    node = _SLOTS
    for i in range(num_bits - 1, -1, -1):
        if ((prefix << 1 | 1) << i) >= levels:
            prefix <<= 1
            node <<= 1
            continue
        if node >= _SLOTS:
            news = _seek(state, num_inputs, prefix << 5 | i)
            node = 1
        sets = d * _SETS
        bit = _decide(state, num_inputs, node, sets + min(i, _SETS - 1), sets + news, rank >> i & 1)
        prefix = prefix << 1 | bit
        node = node << 1 | bit
    # The rank, and where its parent had this value last.
    v[n, d] = prefix
    j = table.parents[d, 0]
    if j >= 0:
        recent[d, _mixed(v[n, j], 1) & ((1 << _RECENT_BITS) - 1)] = n + 1


@inner
def _cell(
    state: State, table: Table, n: int, d: int, above: int, matches: NDArray[np.int32], match: NDArray[np.int64]
) -> bool:
    """Code a cell of text, and the 0 behind it; False if it is longer than the text can be."""
    text = table.text
    r = state.registers
    start = place = r[5]
    prefix = 1
    equal = 0  # 0 while the cell is as the one above, then how many bytes ago it ceased to be, up to 3
    while True:
        if place >= len(text):
            return False
        # A byte's contexts.
        predicted = np.int64(text[match[0]]) if match[1] else 0
        expected = min(match[1], 15) << 8 | predicted if match[1] else 0
        num_inputs = _byte_contexts(state, table, n, d, start, place, prefix, above, equal, expected)
        target = np.int64(text[place])
        sets = d * _SETS
        code = 1
        news = 0
        # The byte, the highest bit first; each half of it has a bucket of its own.
        for i in range(7, -1, -1):
            if i == 7 or i == 3:
                news = _seek(state, num_inputs, code)
            node = code if i > 3 else (code & ((1 << (3 - i)) - 1)) | 1 << (3 - i)
            fits = 0
            if match[1] and (predicted | 256) >> (i + 1) == code:
                fits = 1 + min(2, match[1] >> 3)
            bit = _decide(state, num_inputs, node, sets + fits * 8 + i, sets + news, target >> i & 1)
            code = code << 1 | bit
        byte = code & 255
        text[place] = byte
        # what followed these bytes before
        if match[1] and predicted == byte:
            match[0] += 1
            match[1] += 1
        else:
            match[1] = 0
        place += 1
        if place >= 5:
            key = np.int64(0)
            for i in range(1, 6):
                key = key << 8 | np.int64(text[place - i])
            at = _mixed(key, 7) >> 5 & ((1 << _MATCH_BITS) - 1)
            if match[1] == 0 and matches[at] > 0:
                match[0] = matches[at]
                match[1] = 1
            matches[at] = place
        # The cell ends with its 0.
        if byte == 0:
            break
        up = above + place - 1 - start
        is_equal = above >= 0 and equal == 0 and text[up] == byte
        if not is_equal:
            equal = min(3, equal + 1)
        prefix = _mixed(prefix, byte)
    # Features that later columns see: a hash, the last two bytes and the first three.
    r[5] = place
    v = table.features
    v[n, d] = prefix >> 7 & 0x7FFFFFFF
    length = place - 1 - start
    tail = np.int64(0)
    for i in range(max(0, length - 2), length):
        tail = tail << 8 | np.int64(text[start + i])
    head = np.int64(0)
    for i in range(min(3, length)):
        head = head << 8 | np.int64(text[start + i])
    v[n, table.extra[d]] = tail
    v[n, table.extra[d] + 1] = head
    return True


@njit(nogil=True, cache=True)
def code(state: State, table: Table) -> bool:
    """Code a table, or fill it in; False if text or stream end too early, or the stream too late."""
    N = table.features.shape[0]
    D = len(table.levels)
    recent = np.zeros((D, 1 << _RECENT_BITS), np.int32)
    matches = np.zeros(1 << _MATCH_BITS, np.int32)
    match = np.zeros(2, np.int64)
    above = np.full(D, -1, np.int64)
    for n in range(N):
        if state.registers[3] > len(state.stream) + 3:
            return False
        for d in range(D):
            if table.levels[d]:
                _rank(state, table, n, d, recent)
            else:
                start = state.registers[5]
                if not _cell(state, table, n, d, above[d], matches, match):
                    return False
                above[d] = start
    # The end of the stream.
    r = state.registers
    stream = state.stream
    if r[4]:
        return r[3] == len(stream) + 3
    if r[3] >= len(stream):
        return False
    stream[r[3]] = r[1] >> 24  # with zeros behind it, this byte lies within the interval
    r[3] += 1
    return True
