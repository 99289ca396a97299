"""Locally connected networks between an image and a stochastic layer (Section 2.2 of Gregor et al., 2014)."""

from __future__ import annotations

import math

import tensorflow as tf

from darn.images.local_config import LocalConfig
from darn.images.periodic import PeriodicLayer

__all__ = ["LocalConfig", "LocalDecoder", "LocalEncoder"]


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
