"""Locally connected layers with periodic weight sharing (Gregor and LeCun, 2010; Section 2.2 of Gregor et al., 2014).

Output place (i, j) uses the kernel number (i mod P, j mod P): weights [P, P, k, k, C_in, C_out]. P = 1 is a
convolution, P = size of the output a fully local layer.

Kernels whose size is a multiple of the stride are cut into blocks of stride x stride: unfolding an image into patches
is then a few shifted `space_to_depth`, and folding patches back (for decoders) their transposes. The visible
autoregression, with stride 1, is one convolution with stride P whose kernel holds those of all P x P phases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from darn.autoregressive import Conditional, Unit, threshold

__all__ = [
    "LocalCausalConditional",
    "LocalConfig",
    "LocalDecoder",
    "LocalEncoder",
    "PeriodicLayer",
    "causal_window",
    "periodic_correlation",
]


@dataclass(frozen=True)
class LocalConfig:
    """Locally connected layers between an image and a stochastic layer.

    :param image_shape: height and width of an image.
    :param kernels: sides of the kernels of the locally connected layers, from the image up; multiples of their strides.
    :param strides: strides of the locally connected layers, from the image up.
    :param filters: numbers of filters of the locally connected layers, from the image up.
    :param period: period P of the weight sharing in locally connected layers; 1 is a convolution.
    :param visible_kernel: side of the window in which a pixel sees earlier pixels, with visible_conditional=local; odd.
    :param visible_period: period of the weight sharing of that window.
    :raises ValueError: naming the field that is wrong.
    """

    image_shape: tuple[int, int]
    kernels: tuple[int, ...] = (8, 4)
    strides: tuple[int, ...] = (4, 2)
    filters: tuple[int, ...] = (32, 32)
    period: int = 8
    visible_kernel: int = 15
    visible_period: int = 14

    def __post_init__(self) -> None:
        for name in ("image_shape", "kernels", "strides", "filters"):
            object.__setattr__(self, name, tuple(int(value) for value in getattr(self, name)))
        for name in ("image_shape", "kernels", "strides", "filters", "period", "visible_kernel", "visible_period"):
            if np.min(getattr(self, name), initial=1) < 1:
                raise ValueError(f"{name} of local layers must be at least 1, got {getattr(self, name)}.")
        if len(self.image_shape) != 2:
            raise ValueError(f"image_shape must be height and width, got {self.image_shape}.")
        if not len(self.kernels) == len(self.strides) == len(self.filters) >= 1:
            raise ValueError(
                "kernels, strides and filters must name the same number of layers, got "
                f"{self.kernels}, {self.strides} and {self.filters}."
            )
        if any(kernel % stride for kernel, stride in zip(self.kernels, self.strides, strict=True)):
            raise ValueError(f"kernels must be multiples of their strides, got {self.kernels} and {self.strides}.")
        if self.visible_kernel % 2 == 0:
            raise ValueError(f"visible_kernel must be odd, got {self.visible_kernel}.")


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


class _Stack(tf.Module):
    """The layers of a `LocalConfig`, and a dense map between the last one and `n` numbers."""

    def __init__(self, config: LocalConfig, n: int, *, seed: tf.Tensor, dtype: tf.DType, name: str | None) -> None:
        super().__init__(name=name)
        seeds = tf.unstack(tf.random.experimental.stateless_split(seed, len(config.kernels) + 1))
        shape = (*config.image_shape, 1)
        self.layers = []
        for i, filters in enumerate(config.filters):
            layer = PeriodicLayer(
                shape,
                filters,
                kernel=config.kernels[i],
                stride=config.strides[i],
                period=config.period,
                seed=seeds[i],
                dtype=dtype,
            )
            self.layers.append(layer)
            shape = layer.out_shape
        self.size = math.prod(shape)
        scale = math.sqrt(6.0 / (self.size + n))
        self.dense = tf.Variable(tf.random.stateless_uniform([self.size, n], seeds[-1], -scale, scale, dtype))
        self.shape = shape


class LocalEncoder(_Stack):
    """Image, locally connected layers with rectifiers, and a dense map to logits: [B, H W] to [B, n]."""

    def __init__(
        self, config: LocalConfig, n: int, *, seed: tf.Tensor, dtype: tf.DType, name: str | None = None
    ) -> None:
        super().__init__(config, n, seed=seed, dtype=dtype, name=name)
        self.biases = [tf.Variable(tf.zeros(layer.out_shape, dtype)) for layer in self.layers]
        self.image_shape = config.image_shape

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """The map that the class describes."""
        x = tf.reshape(x, [-1, *self.image_shape, 1])
        for layer, bias in zip(self.layers, self.biases, strict=True):
            x = tf.nn.relu(layer(x) + bias)
        return tf.linalg.matmul(tf.reshape(x, [-1, self.size]), self.dense)


class LocalDecoder(_Stack):
    """A dense map, then the transposed layers with rectifiers between them: [B, n] to logits [B, H W]."""

    def __init__(
        self, config: LocalConfig, n: int, *, seed: tf.Tensor, dtype: tf.DType, name: str | None = None
    ) -> None:
        super().__init__(config, n, seed=seed, dtype=dtype, name=name)
        self.biases = [tf.Variable(tf.zeros(layer.out_shape, dtype)) for layer in self.layers]

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """The map that the class describes."""
        x = tf.reshape(tf.linalg.matmul(x, self.dense, transpose_b=True), [-1, *self.shape])
        for layer, bias in zip(reversed(self.layers), reversed(self.biases), strict=True):
            x = layer.transpose(tf.nn.relu(x + bias))
        return tf.reshape(x, [-1, math.prod(x.shape[1:])])


def causal_window(kernel: int, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """[kernel, kernel] with 1 at the pixels of the window that come before its centre, row by row."""
    index = tf.reshape(tf.range(kernel * kernel), [kernel, kernel])
    return tf.cast(index < kernel * kernel // 2, dtype)


def periodic_correlation(x: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """y[i, j] = sum_uv weights[i mod P, j mod P, u, v] x[i + u - c, j + v - c], c = k // 2: [B, H, W] to [B, H, W].

    One convolution with stride P: its P^2 output channels are the phases, and the kernel of phase (a, b) stands at (a,
    b) in a kernel of size P + k - 1.

    :param weights: [P, P, k, k].
    """
    P, kernel = weights.shape[0], weights.shape[2]
    size, centre = P + kernel - 1, kernel // 2
    big = tf.stack(
        [tf.pad(weights[a, b], [[a, size - kernel - a], [b, size - kernel - b]]) for a in range(P) for b in range(P)],
        axis=-1,
    )[:, :, None, :]
    height, width = x.shape[1:]
    rows, columns = -(-height // P) * P, -(-width // P) * P
    padding = [[0, 0], [centre, rows - height + kernel - 1 - centre], [centre, columns - width + kernel - 1 - centre]]
    y = tf.nn.conv2d(tf.pad(x, padding)[..., None], big, strides=P, padding="VALID")
    y = tf.nn.depth_to_space(y, P)[..., 0] if P > 1 else y[..., 0]
    return y[:, :height, :width]


class LocalCausalConditional(Conditional):
    """Pixels that see the earlier pixels (row by row) of a window around them, with periodic weight sharing.

    :ivar weights: variable [P, P, k, k], of which the part before the centre is used.
    """

    def __init__(self, config: LocalConfig, *, dtype: tf.DType = tf.float32, name: str | None = None) -> None:
        super().__init__(math.prod(config.image_shape), dtype, name)
        self.image_shape = config.image_shape
        self.kernel, self.period = config.visible_kernel, config.visible_period
        shape = [self.period, self.period, self.kernel, self.kernel]
        self.weights = tf.Variable(tf.zeros(shape, self.dtype), name="weights")

    def logits(self, h: tf.Tensor, offset: tf.Tensor | None = None) -> tf.Tensor:
        """One convolution, [..., n]."""
        x = tf.reshape(h, [-1, *self.image_shape])
        y = periodic_correlation(x, self.weights * causal_window(self.kernel, self.dtype))
        a = tf.reshape(y, tf.shape(h)) + self.bias
        return a if offset is None else a + offset

    def sample_from_noise(self, noise: tf.Tensor, offset: tf.Tensor | None = None, unit: Unit = threshold) -> tf.Tensor:
        """Pixels one after the other, [B, n]: what the rows above add is computed once for each row."""
        height, width = self.image_shape
        centre = self.kernel // 2
        base = tf.zeros_like(noise) + self.bias
        base = tf.reshape(base if offset is None else base + offset, [-1, height, width])
        noise = tf.reshape(noise, [-1, height, width])
        phases = self.weights * causal_window(self.kernel, self.dtype)
        column_phase = tf.range(width) % self.period
        num = tf.shape(noise)[0]

        def draw_row(i: tf.Tensor, above: tf.Tensor, rows: tf.TensorArray) -> tuple[Any, ...]:
            kernels = tf.gather(phases[i % self.period], column_phase)  # [W, k, k]
            windows = tf.stack([above[:, :, v : v + width] for v in range(self.kernel)], axis=2)
            a = base[:, i] + tf.einsum("bukw,wuk->bw", windows, kernels[:, :centre])
            bits = tf.TensorArray(self.dtype, width, element_shape=[noise.shape[0]])

            def draw(j: tf.Tensor, left: tf.Tensor, bits: tf.TensorArray) -> tuple[Any, ...]:
                logits = a[:, j] + tf.linalg.matvec(left, kernels[j, centre, :centre])
                bit = unit(logits, noise[:, i, j])
                return j + 1, tf.concat([left, bit[:, None]], axis=1)[:, 1:], bits.write(j, bit)

            left = tf.zeros([num, centre], self.dtype)
            shapes = (tf.TensorShape([]), tf.TensorShape([None, centre]), tf.TensorShape(None))
            bits = tf.while_loop(lambda j, *_: j < width, draw, (0, left, bits), shape_invariants=shapes)[2]
            row = tf.transpose(bits.stack())
            above = tf.concat([above, tf.pad(row, [[0, 0], [centre, centre]])[:, None]], axis=1)[:, 1:]
            return i + 1, above, rows.write(i, row)

        above = tf.zeros([num, centre, width + 2 * centre], self.dtype)
        rows = tf.TensorArray(self.dtype, height, element_shape=[noise.shape[0], width])
        invariants = (tf.TensorShape([]), tf.TensorShape([None, *above.shape[1:]]), tf.TensorShape(None))
        rows = tf.while_loop(lambda i, *_: i < height, draw_row, (0, above, rows), shape_invariants=invariants)[2]
        return tf.reshape(tf.transpose(rows.stack(), [1, 0, 2]), [num, self.n])
