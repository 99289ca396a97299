"""A locally connected layer with periodic weight sharing (Gregor and LeCun, 2010), and its transpose.

Output place (i, j) uses the kernel number (i mod P, j mod P): weights [P, P, k, k, C_in, C_out]. P = 1 is a
convolution, P = size of the output a fully local layer.

Kernels whose size is a multiple m of the stride s are cut into blocks of s x s pixels, and everything is sorted by
phase, so that a layer is one product of matrices for each phase. Neighbouring places see the same blocks.
What is moved for that is what has fewer numbers: either the s s C_in numbers of a block, before the product, or the
C_out sums that a block makes for each of the m m places that see it, after the product.

The layer is linear in its input x and its weights W: y = A(x, W). Its derivatives are the transposed layer A' and the
product of what was multiplied, and the derivatives of the transposed layer are A and the same product.

A grid of P I x P J places is held as [P, P, B, I, J, C]: place (i P + a, j P + b) stands at (a, b, :, i, j). All
places of a phase, which share their weights, are then the rows of one matrix, and a neighbour is a neighbouring phase:
neighbours of all places are slices of whole matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

__all__ = ["PeriodicLayer", "Phases"]

_AXES = ((0, 3), (1, 4))  # of phases and of grids, for rows and for columns


@dataclass(frozen=True)
class Phases:
    """Places, each of which sees the m x m blocks from its own place on.

    :ivar period: the period, P.
    :ivar overlap: m.
    :ivar places: I and J of the places.
    :ivar blocks: those of the blocks; what lies beyond is zero.
    """

    period: int
    overlap: int
    places: tuple[int, int]
    blocks: tuple[int, int]

    def unfold(self, blocks: tf.Tensor) -> tf.Tensor:
        """What each place sees: [P, P, B, ., ., K] of blocks to [P, P, B, I, J, m m K]."""
        m = self.overlap
        P = self.period
        # The neighbour u places on is the place u phases on.
        x = self._extended(blocks)
        return tf.concat([x[u : u + P, v : v + P] for u in range(m) for v in range(m)], axis=-1)

    def fold(self, patches: tf.Tensor) -> tf.Tensor:
        """The adjoint of :meth:`unfold`: sums over the places that see a block."""
        parts = tf.split(patches, self.overlap**2, axis=-1)
        return self._wrapped(tf.add_n([self._padded(part, i) for i, part in enumerate(parts)]))

    def gather(self, parts: tf.Tensor) -> tf.Tensor:
        """Sums at places of what each block has for the m x m places that see it: [P, P, B, ., ., m m C] of blocks to
        [P, P, B, I, J, C]."""
        m = self.overlap
        P = self.period
        x = self._extended(parts)
        C = x.shape[-1] // m**2
        # The m x m blocks of a place are 0 to m - 1 phases on in rows and in columns.
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
        # Rows, then columns: phases beyond the last one are the first ones of the next place.
        for (phase, grid), num in zip(_AXES, self.places, strict=True):
            pieces = [_moved(_part(x, phase, 0, size), grid, turn, num) for turn, size in self._turns()]
            x = tf.concat(pieces, axis=phase)
        return x

    def _wrapped(self, x: tf.Tensor) -> tf.Tensor:
        """The adjoint of :meth:`_extended`."""
        # Columns, then rows: what came round to the first phases is added to them again.
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
        total = self.period + self.overlap - 1
        P = self.period
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
    length = min(x.shape[axis], num - by)
    return _grown(_part(x, axis, 0, length), axis, by, num - by - length)


class PeriodicLayer(tf.Module):
    """One locally connected layer, with its transpose.

    Place (i, j) of the output sees rows from i s to i s + k and columns from j s to j s + k of the input, which is
    padded with zeros, k - s in all, so that the output has ceil(size / s) places.

    :ivar weights: variable [P, P, k k C_in, C_out], the third index in blocks of s x s pixels, see :meth:`kernel_at`.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        filters: int,
        *,
        kernel: int,
        stride: int,
        period: int,
        seed: tf.Tensor,
        dtype: tf.DType,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.shape = shape
        self.filters = filters
        self.kernel = kernel
        self.stride = stride
        self.period = period
        height, width, channels = shape
        self.places = (-(-height // stride), -(-width // stride))
        self.overlap = kernel // stride
        self._block = stride * stride * channels
        # Whichever is narrower is moved between blocks and places: the products of blocks, or the blocks.
        self._is_summed = self._block > filters
        self._phases = self._make_phases()
        # Uniform by what an output sees and by the outputs that see an input.
        fan_in = kernel * kernel * channels
        scale = math.sqrt(6.0 / (fan_in + filters * self.overlap**2))
        self.weights = tf.Variable(
            tf.random.stateless_uniform([period, period, fan_in, filters], seed, -scale, scale, dtype), name="weights"
        )

    def kernel_at(self, row: int, column: int) -> tf.Tensor:
        """The kernel [k, k, C_in, C_out] of the output place (row, column)."""
        m = self.overlap
        s = self.stride
        weights = self.weights[row % self.period, column % self.period]
        blocks = tf.reshape(weights, [m, m, s, s, self.shape[2], self.filters])
        return tf.reshape(
            tf.transpose(blocks, [0, 2, 1, 3, 4, 5]), [self.kernel, self.kernel, self.shape[2], self.filters]
        )

    @property
    def out_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the output."""
        return (*self.places, self.filters)

    def __call__(self, x: tf.Tensor, weights: tf.Tensor | None = None) -> tf.Tensor:
        """[B, H, W, C_in] to [B, H', W', C_out].

        :param weights: in place of the layer's own.
        """
        return self._with_gradients(self._forward, self._backward, x, weights)

    def transpose(self, y: tf.Tensor) -> tf.Tensor:
        """[B, H', W', C_out] to [B, H, W, C_in] with the transposed weights: the decoder's way."""
        return self._with_gradients(self._backward, self._forward, y, None)

    def _with_gradients(self, run: Callable, adjoint: Callable, x: tf.Tensor, weights: tf.Tensor | None) -> tf.Tensor:
        """A map that is linear in x and in the weights; `run` and `adjoint` also give the factor by which the weights
        were multiplied."""

        @tf.custom_gradient
        def of(x: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, Callable]:
            y, factor = run(x, self._arranged(weights))

            def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                # Linear in x and in the weights: the adjoint for x, and for the weights the product of both factors.
                down, other = adjoint(upstream, self._arranged(weights))
                left_factor, right_factor = (factor, other) if run == self._forward else (other, factor)
                return down, self._arranged_back(tf.matmul(_rows(left_factor), _rows(right_factor), transpose_a=True))

            return y, gradients

        return of(x, tf.convert_to_tensor(self.weights if weights is None else weights))

    def _forward(self, x: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # Either what a place sees is brought to it and multiplied, or products of blocks are brought to places.
        blocks = self._to_blocks(x)
        factor = blocks if self._is_summed else self._phases.unfold(blocks)
        y = self._product(factor, weights)
        return self._from_places(self._phases.gather(y) if self._is_summed else y), factor

    def _backward(self, y: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        places = self._to_places(y)
        factor = self._phases.spread(places) if self._is_summed else places
        x = self._product(factor, weights, transpose_b=True)
        return self._from_blocks(x if self._is_summed else self._phases.fold(x)), factor

    def _product(self, x: tf.Tensor, weights: tf.Tensor, *, transpose_b: bool = False) -> tf.Tensor:
        P = self.period
        (rows, columns) = self._phases.places
        y = tf.matmul(_rows(x), weights, transpose_b=transpose_b)
        return tf.reshape(y, [P, P, -1, rows, columns, y.shape[-1]])

    def _make_phases(self) -> Phases:
        """Blocks that are multiplied as they are have to be as many as the products; else only places are."""
        P = self.period
        # More numbers in a block than filters: products of blocks are summed at places.
        more = self.overlap - 1
        if self._is_summed:
            rows, columns = (-(-(num + more) // P) for num in self.places)
            return Phases(P, self.overlap, (rows, columns), (rows, columns))
        rows, columns = (-(-num // P) for num in self.places)
        wrap = -(-more // P)
        return Phases(P, self.overlap, (rows, columns), (rows + wrap, columns + wrap))

    def _arranged(self, weights: tf.Tensor) -> tf.Tensor:
        """The weights as they are, [P, P, m m K, C_out], or by the phase of blocks, [P, P, K, m m C_out]."""
        if not self._is_summed:
            return weights
        # The weights (u, v) of a place are for the block u and v phases on: rolled there, they are those of a block.
        parts = tf.split(weights, self.overlap**2, axis=2)
        return tf.concat([tf.roll(part, divmod(i, self.overlap), [0, 1]) for i, part in enumerate(parts)], axis=-1)

    def _arranged_back(self, gradient: tf.Tensor) -> tf.Tensor:
        if not self._is_summed:
            return gradient
        # The adjoint of `_arranged`: rolled back, block by block of the kernel.
        m = self.overlap
        parts = tf.split(gradient, m * m, axis=-1)
        return tf.concat([tf.roll(part, [-(i // m), -(i % m)], [0, 1]) for i, part in enumerate(parts)], axis=2)

    def _to_blocks(self, x: tf.Tensor) -> tf.Tensor:
        """[B, H, W, C_in] to blocks by phase, [P, P, B, ., ., s s C_in]."""
        P = self.period
        s = self.stride
        (rows, columns) = self._phases.blocks
        # Padding on both sides, then pixels by block and blocks by phase.
        (height, width, channels) = self.shape
        before = (self.kernel - s) // 2
        after = [rows * P * s - height - before, columns * P * s - width - before]
        x = tf.pad(x, [[0, 0], [before, after[0]], [before, after[1]], [0, 0]])
        x = tf.transpose(tf.reshape(x, [-1, rows, P, s, columns, P, s, channels]), [2, 5, 0, 1, 4, 3, 6, 7])
        return tf.reshape(x, [P, P, -1, rows, columns, self._block])

    def _from_blocks(self, blocks: tf.Tensor) -> tf.Tensor:
        """The adjoint of :meth:`_to_blocks`."""
        P = self.period
        s = self.stride
        (rows, columns) = self._phases.blocks
        (height, width, channels) = self.shape
        x = tf.reshape(blocks, [P, P, -1, rows, columns, s, s, channels])
        x = tf.reshape(tf.transpose(x, [2, 3, 0, 5, 4, 1, 6, 7]), [-1, rows * P * s, columns * P * s, channels])
        before = (self.kernel - s) // 2
        return x[:, before : before + height, before : before + width]

    def _to_places(self, y: tf.Tensor) -> tf.Tensor:
        """[B, H', W', C_out] to places by phase, [P, P, B, I, J, C_out]."""
        P = self.period
        (rows, columns) = self._phases.places
        (height, width) = self.places
        y = tf.pad(y, [[0, 0], [0, rows * P - height], [0, columns * P - width], [0, 0]])
        return tf.transpose(tf.reshape(y, [-1, rows, P, columns, P, self.filters]), [2, 4, 0, 1, 3, 5])

    def _from_places(self, places: tf.Tensor) -> tf.Tensor:
        """The adjoint of :meth:`_to_places`."""
        P = self.period
        (rows, columns) = self._phases.places
        (height, width) = self.places
        y = tf.reshape(tf.transpose(places, [2, 3, 0, 4, 1, 5]), [-1, rows * P, columns * P, self.filters])
        return y[:, :height, :width]


def _rows(x: tf.Tensor) -> tf.Tensor:
    """[P, P, B, I, J, K] to a matrix for each phase, [P, P, B I J, K]."""
    return tf.reshape(x, [*x.shape[:2], -1, x.shape[-1]])
