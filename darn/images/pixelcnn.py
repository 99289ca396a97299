"""PixelCNN with gates as p(x | h): pixels that see all earlier pixels through masked convolutions (van den Oord et al.,
2016, Conditional Image Generation with PixelCNN Decoders).

Two stacks of L layers go over the image. The vertical one sees the rows above a pixel, the horizontal one the pixels to
its left in its own row and, by 1 x 1 maps, the vertical one. With x the input of a layer and s = s(h) maps of the image
that a network makes of the parents,

    y = tanh(W_f * x + V_f s) sigmoid(W_g * x + V_g s)                                       (their Eqs. 2 and 5)

in both. The horizontal stack adds each layer's input to its output; a layer of rectifiers makes logits of the last one.
Rows are cut so that no pixel sees itself or what comes after it.

A sampler has to go row by row, because a row needs all rows above. It keeps the last rows of each vertical layer, so
that the whole image takes one pass of the vertical stack, and finds the bits of a row by the fixed point of
`darn.model.autoregressive` with the horizontal stack alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from darn.model.autoregressive import Conditional, Unit, fixed_point_bits, logistic_noise, threshold, uniform_weights
from darn.model.config import PixelCNNConfig
from gpflow_deep_base.seeds import Seed, as_seed

__all__ = ["GatedLayer", "PixelCNNConditional"]


class GatedLayer(tf.Module):
    """A layer of the two stacks: F filters from `channels` of the one below.

    :ivar vertical: variable [rows, k, channels, 2 F], windows that end with the row itself; of the first layer with the
        row above, for its input is the image.
    :ivar horizontal: variable [1, columns, channels, 2 F], likewise.
    :ivar link: variable [1, 1, 2 F, 2 F], from the vertical to the horizontal stack, before the gates.
    :ivar out: variable [1, 1, F, F], of what the horizontal gates let pass.
    :ivar of_maps: variable [1, 1, K, 4 F], what the maps add to both.
    :ivar biases: variables [2 F], [2 F] and [F], of the vertical and the horizontal windows and of `out`.
    """

    def __init__(self, config: PixelCNNConfig, *, is_first: bool, seed: tf.Tensor, dtype: tf.DType) -> None:
        super().__init__()
        # The first layer does not see the pixel itself.
        F = config.filters
        kernel = config.first_kernel if is_first else config.kernel
        channels, reach = (1, kernel // 2) if is_first else (F, kernel // 2 + 1)
        self.is_first = is_first
        self.filters = F
        self.side = kernel // 2

        def weights(number: int, *shape: int) -> tf.Variable:
            scale = math.sqrt(6.0 / (shape[0] * shape[1] * (shape[2] + shape[3])))
            return tf.Variable(uniform_weights(shape, tf.random.fold_in(seed, number), scale, dtype))

        self.vertical = weights(0, reach, kernel, channels, 2 * F)
        self.horizontal = weights(1, 1, reach, channels, 2 * F)
        self.link = weights(2, 1, 1, 2 * F, 2 * F)
        self.out = weights(3, 1, 1, F, F)
        self.of_maps = weights(4, 1, 1, config.maps, 4 * F)
        self.biases = [tf.Variable(tf.zeros([size], dtype)) for size in (2 * F, 2 * F, F)]

    def down(self, rows: tf.Tensor) -> tf.Tensor:
        """Of rows [B, R + side, W, C] what the vertical gates get of the last R (the first layer: of the R + 1 rows
        that end below): [B, ..., W, 2 F].
        """
        rows = tf.pad(rows, [[0, 0], [0, 0], [self.side, self.side], [0, 0]])
        return _convolved(rows, self.vertical) + self.biases[0]

    def right(self, x: tf.Tensor, link: tf.Tensor) -> tf.Tensor:
        """The horizontal stack's next state [B, R, W, F] of its last one (the first layer: of the image).

        :param link: what the vertical stack and the maps add before the gates, [B, R, W, 2 F].
        """
        # The first layer's window ends before the pixel: the image moves to the right by one.
        padded = tf.pad(x[:, :, :-1] if self.is_first else x, [[0, 0], [0, 0], [self.side, 0], [0, 0]])
        y = _convolved(gated(_convolved(padded, self.horizontal) + self.biases[1] + link), self.out) + self.biases[2]
        return y if self.is_first else x + y


def gated(a: tf.Tensor) -> tf.Tensor:
    """tanh of the first half of the channels times the sigmoid of the second: [..., 2 F] to [..., F]."""
    first, second = tf.split(a, 2, axis=-1)
    return tf.tanh(first) * tf.sigmoid(second)


def _convolved(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    return tf.nn.conv2d(x, kernel, strides=1, padding="VALID")


class PixelCNNConditional(Conditional):
    """Pixels that see all earlier pixels within reach of L gated layers.

    :ivar layers: the `GatedLayer`s.
    :ivar hidden: variable [1, 1, F, F] with its bias `hidden_bias` [F], before rectifiers.
    :ivar last: variable [1, 1, F, 1], from these to the logits.
    :ivar bias: of each pixel, variable [n].

    Offsets are K maps of the image, [..., n K] with K last.
    """

    def __init__(
        self, config: PixelCNNConfig, *, seed: Seed, dtype: tf.DType = tf.float32, name: str | None = None
    ) -> None:
        super().__init__(math.prod(config.image_shape), dtype, name)
        seed = as_seed(seed)
        self.config = config
        F = config.filters
        self.layers = [
            GatedLayer(config, is_first=number == 0, seed=tf.random.fold_in(seed, number), dtype=self.dtype)
            for number in range(config.layers)
        ]
        # Rectifiers, then one number: without weights at first, so that training starts from the biases.
        scale = math.sqrt(3.0 / F)
        self.hidden = tf.Variable(
            uniform_weights([1, 1, F, F], tf.random.fold_in(seed, config.layers), scale, self.dtype)
        )
        self.hidden_bias = tf.Variable(tf.zeros([F], self.dtype))
        self.last = tf.Variable(tf.zeros([1, 1, F, 1], self.dtype))

    @property
    def is_additive(self) -> bool:
        """No: the maps pass through the gates."""
        return False

    @property
    def offset_size(self) -> int:
        """Numbers that a network has to give for the parents: K maps of n pixels."""
        return self.n * self.config.maps

    def logits(self, h: tf.Tensor, offset: tf.Tensor | None = None) -> tf.Tensor:
        """One pass over whole images, [..., n]."""
        # Images and maps of one shape.
        lead = tf.shape(h)[:-1]
        if offset is not None:
            lead = tf.broadcast_dynamic_shape(lead, tf.shape(offset)[:-1])
            h = tf.broadcast_to(h, tf.concat([lead, [self.n]], 0))
            offset = tf.broadcast_to(offset, tf.concat([lead, [self.offset_size]], 0))
        x = 2.0 * tf.reshape(h, [-1, *self.config.image_shape, 1]) - 1.0
        of_maps, base = self._given(self._maps(offset), tf.reshape(self.bias, [1, *self.config.image_shape]))
        # The vertical stack sees the rows above; the horizontal one gets its states by links.
        rows = x[:, :-1]
        links = []
        for layer, more in zip(self.layers, of_maps, strict=True):
            down = layer.down(tf.pad(rows, [[0, 0], [layer.side, 0], [0, 0], [0, 0]])) + more[0]
            links.append(_convolved(down, layer.link) + more[1])
            rows = gated(down)
        return tf.reshape(self._across(x, links) + base, tf.concat([lead, [self.n]], 0))

    def sample_from_noise(self, noise: tf.Tensor, offset: tf.Tensor | None = None, unit: Unit = threshold) -> tf.Tensor:
        """Bits [B, n] for given noise, those of drawing pixel by pixel: row by row, each by its fixed point."""
        if unit is not threshold:
            return super().sample_from_noise(noise, offset, unit)
        return self._drawn(noise, offset)[0]

    def sample_with_logits(self, num: int, seed: Seed, offset: tf.Tensor | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws and their logits, [num, n], without another pass over whole images."""
        bits, logits = self._drawn(logistic_noise([num, self.n], seed, self.dtype), offset, num_arrays=2)
        return bits, logits

    def _drawn(self, noise: tf.Tensor, offset: tf.Tensor | None, num_arrays: int = 1) -> list[tf.Tensor]:
        """Bits and, of two arrays, logits, [B, n]."""
        # Arrays of rows to be filled.
        height, width = self.config.image_shape
        num = tf.shape(noise)[0]
        noise = tf.reshape(noise, [-1, height, width])
        maps = self._maps(offset)
        bias = tf.reshape(self.bias, [1, height, width])
        shape = [noise.shape[0], width]
        arrays = tuple(tf.TensorArray(self.dtype, height, element_shape=shape) for _ in range(num_arrays))

        def draw(
            i: tf.Tensor, above: Sequence[tf.Tensor], arrays: Sequence[tf.TensorArray]
        ) -> tuple[tf.Tensor, Sequence[tf.Tensor], Sequence[tf.TensorArray]]:
            rows = above[0]
            links = []
            kept_rows = []
            # The vertical stack, from what it keeps of the rows above.
            of_maps, base = self._given(None if maps is None else _row(maps, i), _row(bias, i))
            for number, (layer, more) in enumerate(zip(self.layers, of_maps, strict=True)):
                if number:
                    rows = tf.concat([above[number], rows], axis=1)
                    kept_rows.append(rows[:, 1:])
                down = layer.down(rows) + more[0]
                links.append(_convolved(down, layer.link) + more[1])
                rows = gated(down)

            # The row's pixels by the horizontal stack: a fixed point.
            def logits(row: tf.Tensor) -> tf.Tensor:
                return (self._across(2.0 * row[:, None, :, None] - 1.0, links) + base)[:, 0]

            row = fixed_point_bits(logits, noise[:, i])
            first = tf.concat([above[0], 2.0 * row[:, None, :, None] - 1.0], axis=1)[:, 1:]
            outputs = (row, logits(row)) if num_arrays == 2 else (row,)
            return i + 1, (first, *kept_rows), tuple(a.write(i, part) for a, part in zip(arrays, outputs, strict=True))

        # What the vertical stack keeps: nothing at first.
        channels = [1, *[self.config.filters] * (len(self.layers) - 1)]
        above = tuple(
            tf.zeros(tf.stack([num, layer.side, width, size]), self.dtype)
            for layer, size in zip(self.layers, channels, strict=True)
        )
        arrays = tf.while_loop(lambda i, *_: i < height, draw, (0, above, arrays))[2]
        return [tf.reshape(tf.transpose(array.stack(), [1, 0, 2]), [num, self.n]) for array in arrays]

    def _maps(self, offset: tf.Tensor | None) -> tf.Tensor | None:
        """[B, H, W, K]."""
        return None if offset is None else tf.reshape(offset, [-1, *self.config.image_shape, self.config.maps])

    def _given(
        self, maps: tf.Tensor | None, bias: tf.Tensor
    ) -> tuple[list[tuple[tf.Tensor | float, tf.Tensor | float]], tf.Tensor]:
        """What R rows of the maps add before the vertical and the horizontal gates of each layer, [B, R, W, 2 F] each,
        and to the logits with the bias [1, R, W], [B, R, W]."""
        if maps is None:
            return [(0.0, 0.0)] * len(self.layers), bias
        # One convolution of the maps for all layers.
        of_layers = _convolved(maps, tf.concat([layer.of_maps for layer in self.layers], axis=-1))
        parts = tf.split(of_layers, 2 * len(self.layers), axis=-1)
        return list(zip(parts[::2], parts[1::2], strict=True)), bias + maps[..., 0]

    def _across(self, x: tf.Tensor, links: Sequence[tf.Tensor]) -> tf.Tensor:
        """Logits [B, R, W] of rows x [B, R, W, 1] by the horizontal stack."""
        for layer, link in zip(self.layers, links, strict=True):
            x = layer.right(x, link)
        y = tf.nn.relu(_convolved(tf.nn.relu(x), self.hidden) + self.hidden_bias)
        return _convolved(y, self.last)[..., 0]


def _row(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    return x[:, i][:, None]
