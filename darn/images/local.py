"""Locally connected networks between an image and a stochastic layer (Section 2.2 of Gregor et al., 2014), and
stochastic layers that are grids: locally connected with the next ones, and each unit with earlier units around it
(Section 5.3, Figure 5).

A stochastic layer has C units at each of H x W places, in the order of rows, columns and filters. The decoder
p(h^l | h^{l+1}) uses the transposed layer, as `LocalDecoder` does.

Pixels that see earlier pixels of a window around them, with periodic weight sharing, are one convolution with stride P
whose kernel holds those of all P x P phases.
"""

from __future__ import annotations

import math
from typing import Literal

import tensorflow as tf

from darn.images.periodic import PeriodicLayer
from darn.model.autoregressive import Conditional, Unit, threshold
from darn.model.config import LocalConfig

__all__ = [
    "LocalCausalConditional",
    "LocalConfig",
    "LocalDecoder",
    "LocalEncoder",
    "LocalMap",
    "LocalUnitsConditional",
    "causal_window",
    "periodic_correlation",
]


class _Stack(tf.Module):
    """The layers of a `LocalConfig`, and a dense map between the last one and `n` numbers."""

    def __init__(
        self, config: LocalConfig, n: int, *, seed: tf.Tensor, dtype: tf.DType, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        *seeds, last = tf.unstack(tf.random.experimental.stateless_split(seed, len(config.kernels) + 1))
        self.layers = [_layer(config, number, key, dtype) for number, key in enumerate(seeds)]
        self.biases = [tf.Variable(tf.zeros(layer.out_shape, dtype)) for layer in self.layers]
        self.shape = self.layers[-1].out_shape
        # The dense map is uniform with the variance 2 / (n_in + n_out), as those of dense networks.
        self.size = math.prod(self.shape)
        scale = math.sqrt(6.0 / (self.size + n))
        self.dense = tf.Variable(tf.random.stateless_uniform([self.size, n], last, -scale, scale, dtype))


class LocalEncoder(_Stack):
    """Image, locally connected layers with rectifiers, and a dense map to logits: [B, H W] to [B, n]."""

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """The map that the class describes."""
        # y = relu(A(x, W) + b) layer by layer (Section 2.2), then h W of the places that are left.
        x = tf.reshape(x, [-1, *self.layers[0].shape])
        for layer, bias in zip(self.layers, self.biases, strict=True):
            x = tf.nn.relu(layer(x) + bias)
        return tf.linalg.matmul(tf.reshape(x, [-1, self.size]), self.dense)


class LocalDecoder(_Stack):
    """A dense map, then the transposed layers with rectifiers between them: [B, n] to logits [B, H W]."""

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """The map that the class describes."""
        x = tf.reshape(tf.linalg.matmul(x, self.dense, transpose_b=True), [-1, *self.shape])
        for layer, bias in zip(reversed(self.layers), reversed(self.biases), strict=True):
            # Rectifiers stand before each layer, so that the logits have none.
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

    :param weights: [P, P, k, k], or [P, P, r, k] of the first r rows if the others are zero.
    """
    P = weights.shape[0]
    high = weights.shape[2]
    wide = weights.shape[3]
    # Kernels of all phases, each at its place in a kernel of size P + k - 1.
    every = [tf.pad(weights[a, b], [[a, P - 1 - a], [b, P - 1 - b]]) for a in range(P) for b in range(P)]
    big = tf.stack(every, axis=-1)[:, :, None, :]
    centre = wide // 2
    height, width = x.shape[1:]
    # Whole periods: what is padded falls away in the end.
    rows = -(-height // P) * P
    columns = -(-width // P) * P
    padding = [[0, 0], [centre, rows - height + high - 1 - centre], [centre, columns - width + wide - 1 - centre]]
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
        self.kernel = config.visible_kernel
        self.period = config.visible_period
        shape = [self.period, self.period, self.kernel, self.kernel]
        self.weights = tf.Variable(tf.zeros(shape, self.dtype), name="weights")

    def logits(self, h: tf.Tensor, offset: tf.Tensor | None = None) -> tf.Tensor:
        """One convolution, [..., n]."""
        # Rows of the window below the centre see nothing, and are cut off before the convolution.
        x = tf.reshape(h, [-1, *self.image_shape])
        window = self.weights * causal_window(self.kernel, self.dtype)
        y = periodic_correlation(x, window[:, :, : self.kernel // 2 + 1])
        a = tf.reshape(y, tf.shape(h)) + self.bias
        return a if offset is None else a + offset

    def sample_from_noise(self, noise: tf.Tensor, offset: tf.Tensor | None = None, unit: Unit = threshold) -> tf.Tensor:
        """Pixels one after the other, [B, n]: what the rows above add is computed once for each row."""
        # Logits without any earlier pixel.
        height, width = self.image_shape
        centre = self.kernel // 2
        base = tf.zeros_like(noise) + self.bias
        base = tf.reshape(base if offset is None else base + offset, [-1, height, width])
        noise = tf.reshape(noise, [-1, height, width])
        phases = self.weights * causal_window(self.kernel, self.dtype)
        column_phase = tf.range(width) % self.period
        num = tf.shape(noise)[0]

        def draw_row(
            i: tf.Tensor, above: tf.Tensor, rows: tf.TensorArray
        ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
            # What the rows above add to all pixels of the row.
            kernels = tf.gather(phases[i % self.period], column_phase)  # [W, k, k]
            windows = tf.stack([above[:, :, v : v + width] for v in range(self.kernel)], axis=2)
            a = base[:, i] + tf.einsum("bukw,wuk->bw", windows, kernels[:, :centre])
            bits = tf.TensorArray(self.dtype, width, element_shape=[noise.shape[0]])

            # Pixels of the row, each past the `centre` ones before it.
            def draw(
                j: tf.Tensor, left: tf.Tensor, bits: tf.TensorArray
            ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
                logits = a[:, j] + tf.linalg.matvec(left, kernels[j, centre, :centre])
                bit = unit(logits, noise[:, i, j])
                return j + 1, tf.concat([left, bit[:, None]], axis=1)[:, 1:], bits.write(j, bit)

            earlier_bits = tf.zeros([num, centre], self.dtype)
            shapes = (tf.TensorShape([]), tf.TensorShape([None, centre]), tf.TensorShape(None))
            bits = tf.while_loop(lambda j, *_: j < width, draw, (0, earlier_bits, bits), shape_invariants=shapes)[2]
            row = tf.transpose(bits.stack())
            above = tf.concat([above, tf.pad(row, [[0, 0], [centre, centre]])[:, None]], axis=1)[:, 1:]
            return i + 1, above, rows.write(i, row)

        # `above`: the last rows with zeros around them, which is what lies beyond the image.
        above = tf.zeros([num, centre, width + 2 * centre], self.dtype)
        rows = tf.TensorArray(self.dtype, height, element_shape=[noise.shape[0], width])
        invariants = (tf.TensorShape([]), tf.TensorShape([None, *above.shape[1:]]), tf.TensorShape(None))
        rows = tf.while_loop(lambda i, *_: i < height, draw_row, (0, above, rows), shape_invariants=invariants)[2]
        return tf.reshape(tf.transpose(rows.stack(), [1, 0, 2]), [num, self.n])


def _layer(config: LocalConfig, number: int, seed: tf.Tensor, dtype: tf.DType) -> PeriodicLayer:
    """The locally connected layer of that number, from 0 next to the image."""
    return PeriodicLayer(
        config.grids[number],
        config.filters[number],
        kernel=config.kernels[number],
        stride=config.strides[number],
        period=config.period,
        seed=seed,
        dtype=dtype,
    )


class LocalMap(tf.Module):
    """One locally connected layer of a `LocalConfig` between two stochastic ones, linear: up [B, n_below] to [B, n], or
    down with weights of its own.

    :param number: of the layer, from 0 next to the image.
    """

    def __init__(
        self,
        config: LocalConfig,
        number: int,
        direction: Literal["up", "down"],
        *,
        seed: tf.Tensor,
        dtype: tf.DType,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.direction = direction
        self.layer = _layer(config, number, seed, dtype)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """The map that the class describes."""
        if self.direction == "up":
            y = self.layer(tf.reshape(x, [-1, *self.layer.shape]))
        else:
            y = self.layer.transpose(tf.reshape(x, [-1, *self.layer.out_shape]))
        return tf.reshape(y, [-1, math.prod(y.shape[1:])])


class LocalUnitsConditional(Conditional):
    """Units that see the earlier units of a window of k x k places around them, linearly, with periodic weight sharing;
    at their own place those of the filters before theirs.

    :ivar layer: `PeriodicLayer` of stride 1, of whose weights :meth:`matrices` uses those of earlier units.

    :param shape: H, W and C.
    :param kernel: k, odd.
    :param period: P of the weight sharing.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        *,
        kernel: int,
        period: int,
        dtype: tf.DType = tf.float32,
        name: str | None = None,
    ) -> None:
        super().__init__(math.prod(shape), dtype, name)
        # The layer is made for its geometry; its weights start at zero, as those of other conditionals.
        zero = tf.zeros([2], tf.int32)
        self.layer = PeriodicLayer(shape, shape[2], kernel=kernel, stride=1, period=period, seed=zero, dtype=self.dtype)
        self.layer.weights.assign(tf.zeros_like(self.layer.weights))

    def matrices(self) -> tf.Tensor:
        """The layer's weights, [P, P, k k C, C], with zeros for what comes later."""
        C = self.layer.filters
        places = self.layer.kernel**2
        unit_numbers = C * tf.range(places)[:, None] + tf.range(C)  # numbers of units in the window: place, filter
        # Units of earlier places, and at the unit's own place those of earlier filters.
        is_earlier = tf.reshape(unit_numbers, [-1, 1]) < unit_numbers[places // 2]
        return self.layer.weights * tf.cast(is_earlier, self.dtype)

    def logits(self, h: tf.Tensor, offset: tf.Tensor | None = None) -> tf.Tensor:
        """One layer of stride 1, [..., n]."""
        y = self.layer(tf.reshape(h, [-1, *self.layer.shape]), self.matrices())
        a = tf.reshape(y, tf.shape(h)) + self.bias
        return a if offset is None else a + offset
