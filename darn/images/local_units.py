"""Stochastic layers that are grids: locally connected with the next ones, and each unit with earlier units around it
(Gregor et al., 2014, Sections 2.2 and 5.3, Figure 5).

A layer has C units at each of H x W places, in the order of rows, columns and filters. The decoder p(h^l | h^{l+1})
uses the transposed layer, as in `local`.
"""

from __future__ import annotations

import math
from typing import Literal

import tensorflow as tf

from darn.images.local_config import LocalConfig
from darn.images.periodic import PeriodicLayer
from darn.model.autoregressive import Conditional

__all__ = ["LocalMap", "LocalUnitsConditional"]


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
        self.layer = PeriodicLayer(
            config.grids[number],
            config.filters[number],
            kernel=config.kernels[number],
            stride=config.strides[number],
            period=config.period,
            seed=seed,
            dtype=dtype,
        )

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
        zero = tf.zeros([2], tf.int32)
        self.layer = PeriodicLayer(shape, shape[2], kernel=kernel, stride=1, period=period, seed=zero, dtype=self.dtype)
        self.layer.weights.assign(tf.zeros_like(self.layer.weights))

    def matrices(self) -> tf.Tensor:
        """The layer's weights, [P, P, k k C, C], with zeros for what comes later."""
        C, places = self.layer.filters, self.layer.kernel**2
        seen = C * tf.range(places)[:, None] + tf.range(C)  # numbers of units in the window: place, filter
        is_earlier = tf.reshape(seen, [-1, 1]) < seen[places // 2]
        return self.layer.weights * tf.cast(is_earlier, self.dtype)

    def logits(self, h: tf.Tensor, offset: tf.Tensor | None = None) -> tf.Tensor:
        """One layer of stride 1, [..., n]."""
        y = self.layer(tf.reshape(h, [-1, *self.layer.shape]), self.matrices())
        a = tf.reshape(y, tf.shape(h)) + self.bias
        return a if offset is None else a + offset
