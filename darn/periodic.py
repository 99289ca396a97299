"""A locally connected layer with periodic weight sharing (Gregor and LeCun, 2010), and its transpose.

Output place (i, j) uses the kernel number (i mod P, j mod P): weights [P, P, k, k, C_in, C_out]. P = 1 is a
convolution, P = size of the output a fully local layer.

Kernels whose size is a multiple of the stride are cut into blocks of stride x stride: unfolding an image into patches
is then a few shifted `space_to_depth`, and folding patches back (for decoders) their transposes.
"""

from __future__ import annotations

import math

import tensorflow as tf

__all__ = ["PeriodicLayer"]


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
        self.shape, self.filters = shape, filters
        self.kernel, self.stride, self.period = kernel, stride, period
        height, width, channels = shape
        self.places = (-(-height // stride), -(-width // stride))
        self.padded_places = tuple(-(-size // period) * period for size in self.places)
        self.overlap = kernel // stride
        fan_in = kernel * kernel * channels
        scale = math.sqrt(6.0 / (fan_in + filters * self.overlap**2))
        self.weights = tf.Variable(
            tf.random.stateless_uniform([period, period, fan_in, filters], seed, -scale, scale, dtype), name="weights"
        )

    def kernel_at(self, row: int, column: int) -> tf.Tensor:
        """The kernel [k, k, C_in, C_out] of the output place (row, column)."""
        m, s = self.overlap, self.stride
        weights = self.weights[row % self.period, column % self.period]
        blocks = tf.reshape(weights, [m, m, s, s, self.shape[2], self.filters])
        return tf.reshape(
            tf.transpose(blocks, [0, 2, 1, 3, 4, 5]), [self.kernel, self.kernel, self.shape[2], self.filters]
        )

    @property
    def out_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the output."""
        return (*self.places, self.filters)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """[B, H, W, C_in] to [B, H', W', C_out]."""
        y = tf.einsum("niajbk,abko->niajbo", self._phases(self.unfold(x)), self.weights)
        rows, columns = self.padded_places
        y = tf.reshape(y, [-1, rows, columns, self.filters])
        return y[:, : self.places[0], : self.places[1]]

    def transpose(self, y: tf.Tensor) -> tf.Tensor:
        """[B, H', W', C_out] to [B, H, W, C_in] with the transposed weights: the decoder's way."""
        rows, columns = self.padded_places
        padding = [[0, 0], [0, rows - self.places[0]], [0, columns - self.places[1]], [0, 0]]
        patches = tf.einsum("niajbo,abko->niajbk", self._phases(tf.pad(y, padding)), self.weights)
        return self.fold(tf.reshape(patches, [-1, rows, columns, patches.shape[-1]]))

    def unfold(self, x: tf.Tensor) -> tf.Tensor:
        """Patches [B, R, C, k k C_in] of the padded number of places."""
        height, width, _ = self.shape
        rows, columns = self.padded_places
        s, m = self.stride, self.overlap
        before = (self.kernel - s) // 2
        bottom, right = (rows + m - 1) * s - height - before, (columns + m - 1) * s - width - before
        x = tf.pad(x, [[0, 0], [before, bottom], [before, right], [0, 0]])
        blocks = tf.nn.space_to_depth(x, s) if s > 1 else x
        return tf.concat([blocks[:, u : u + rows, v : v + columns] for u in range(m) for v in range(m)], axis=-1)

    def fold(self, patches: tf.Tensor) -> tf.Tensor:
        """The transpose of :meth:`unfold`: patches are added up where they overlap."""
        height, width, _ = self.shape
        s, m = self.stride, self.overlap
        parts = tf.split(patches, m * m, axis=-1)
        pad = [[[0, 0], [u, m - 1 - u], [v, m - 1 - v], [0, 0]] for u in range(m) for v in range(m)]
        blocks = tf.add_n([tf.pad(part, padding) for part, padding in zip(parts, pad, strict=True)])
        x = tf.nn.depth_to_space(blocks, s) if s > 1 else blocks
        before = (self.kernel - s) // 2
        return x[:, before : before + height, before : before + width]

    def _phases(self, x: tf.Tensor) -> tf.Tensor:
        """[B, R, C, K] to [B, R / P, P, C / P, P, K]."""
        rows, columns = self.padded_places
        P = self.period
        return tf.reshape(x, [-1, rows // P, P, columns // P, P, x.shape[-1]])
