"""Numbers on a grid, sorted by the phase of their places: what layers with weights of a period P compute with.

A grid of P I x P J places is held as [P, P, B, I, J, C]: place (i P + a, j P + b) stands at (a, b, :, i, j). All
places of a phase, which share their weights, are then the rows of one matrix, and a neighbour is a neighbouring phase:
neighbours of all places are slices of whole matrices.
"""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

__all__ = ["Phases"]

_AXES = ((0, 3), (1, 4))  # of phases and of grids, for rows and for columns


@dataclass(frozen=True)
class Phases:
    """Places, each of which sees the m x m blocks from its own place on.

    :ivar period: P.
    :ivar overlap: m.
    :ivar places: I and J of the places.
    :ivar blocks: those of the blocks; what lies
        beyond is zero.
    """

    period: int
    overlap: int
    places: tuple[int, int]
    blocks: tuple[int, int]

    def unfold(self, blocks: tf.Tensor) -> tf.Tensor:
        """What each place sees: [P, P, B, ., ., K] of blocks to [P, P, B, I, J, m m K]."""
        m, P, x = self.overlap, self.period, self._extended(blocks)
        return tf.concat([x[u : u + P, v : v + P] for u in range(m) for v in range(m)], axis=-1)

    def fold(self, patches: tf.Tensor) -> tf.Tensor:
        """The adjoint of :meth:`unfold`: sums over the places that see a block."""
        parts = tf.split(patches, self.overlap**2, axis=-1)
        return self._wrapped(tf.add_n([self._padded(part, i) for i, part in enumerate(parts)]))

    def gather(self, parts: tf.Tensor) -> tf.Tensor:
        """Sums at places of what each block has for the m x m places that see it: [P, P, B, ., ., m m C] of blocks to
        [P, P, B, I, J, C]."""
        m, P, x = self.overlap, self.period, self._extended(parts)
        C = x.shape[-1] // m**2
        every = [(u, v, (u * m + v) * C) for u in range(m) for v in range(m)]
        return tf.add_n([x[u : u + P, v : v + P, ..., start : start + C] for u, v, start in every])

    def spread(self, places: tf.Tensor) -> tf.Tensor:
        """The adjoint of :meth:`gather`: what the m x m places that see a block have."""
        every = [self._wrapped(self._padded(places, i)) for i in range(self.overlap**2)]
        return tf.concat(every, axis=-1)

    def _padded(self, part: tf.Tensor, number: int) -> tf.Tensor:
        u, v = divmod(number, self.overlap)
        rest = self.overlap - 1
        return tf.pad(part, [[u, rest - u], [v, rest - v], *[[0, 0]] * 4])

    def _extended(self, x: tf.Tensor) -> tf.Tensor:
        """[P + m - 1, P + m - 1, B, I, J, C]: after the last phase the first ones again, of the next place."""
        for (phase, grid), num in zip(_AXES, self.places, strict=True):
            pieces = [_moved(_part(x, phase, 0, size), grid, turn, num) for turn, size in self._turns()]
            x = tf.concat(pieces, axis=phase)
        return x

    def _wrapped(self, x: tf.Tensor) -> tf.Tensor:
        """The adjoint of :meth:`_extended`."""
        P = self.period
        for (phase, grid), num in reversed(list(zip(_AXES, self.blocks, strict=True))):
            pieces = [
                _grown(_back(_part(x, phase, turn * P, turn * P + size), grid, turn, num), phase, 0, P - size)
                for turn, size in self._turns()
            ]
            x = tf.add_n(pieces)
        return x

    def _turns(self) -> list[tuple[int, int]]:
        """How often phases start anew on the way to P + m - 1 of them, and how many there are each time."""
        total, P = self.period + self.overlap - 1, self.period
        return [(turn, min(P, total - turn * P)) for turn in range(-(-total // P))]


def _part(x: tf.Tensor, axis: int, start: int, end: int) -> tf.Tensor:
    if start == 0 and end == x.shape[axis]:
        return x
    return x[(slice(None),) * axis + (slice(start, end),)]


def _grown(x: tf.Tensor, axis: int, before: int, after: int) -> tf.Tensor:
    if before == after == 0:
        return x
    return tf.pad(x, [[before, after] if i == axis else [0, 0] for i in range(6)])


def _moved(x: tf.Tensor, axis: int, by: int, num: int) -> tf.Tensor:
    """`num` numbers of an axis from `by` on, with zeros after its end."""
    end = min(by + num, x.shape[axis])
    return _grown(_part(x, axis, by, end), axis, 0, num - (end - by))


def _back(x: tf.Tensor, axis: int, by: int, num: int) -> tf.Tensor:
    """The adjoint of :func:`_moved`."""
    kept = min(x.shape[axis], num - by)
    return _grown(_part(x, axis, 0, kept), axis, by, num - by - kept)
