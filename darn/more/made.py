"""MADE: a masked multilayer perceptron (Germain et al., 2015), in one order of the bits or in several.

With one order the masks are those of TensorFlow Probability's `AutoregressiveNetwork`. With K orders, p(h) is the mean
over K fixed orders and sets of masks, drawn at the start, of what one network with these masks says; a step of training
draws one of them for its minibatch (Sections 4.2 and 4.3 there).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from darn.model.autoregressive import (
    Conditional,
    InTraining,
    Unit,
    bernoulli_log_prob,
    check_units,
    fixed_point_bits,
    logistic_noise,
    threshold,
    uniform_weights,
)
from gpflow_deep_base.seeds import Seed, as_seed

__all__ = ["MADEConditional"]


class MADEConditional(Conditional):
    """A masked multilayer perceptron with tanh units.

    TFP applies its masks as Keras constraints, that is after each step of a Keras optimizer; here they are applied in
    every forward pass, so that neither other optimizers nor weight noise can break the order.

    :ivar kernels: variables [n, H_1], [H_1, H_2], ..., [H_m, n].
    :ivar biases: of the hidden layers.
    :ivar masks: of the kernels, with one order.
    :ivar degrees: with K > 1 orders, variable, int32 [K, n + H_1 + ...]: the place of each bit in an order, from 1, and
        how many of the first bits each hidden unit sees. The first order is 1, 2, ..., n.

    :param num_orders: how many orders, K.
    """

    def __init__(
        self,
        n: int,
        hidden_units: Sequence[int],
        *,
        seed: Seed,
        num_orders: int = 1,
        dtype: tf.DType = tf.float32,
        name: str | None = None,
    ) -> None:
        super().__init__(n, dtype, name)
        if n < 2:
            raise ValueError("MADE needs at least 2 bits, got 1; use FactorialConditional.")
        if num_orders < 1:
            raise ValueError(f"MADE needs at least 1 order, got {num_orders}.")
        for units in hidden_units:
            check_units(units)
        seed = as_seed(seed)
        self.num_orders = num_orders
        self.is_mixture = num_orders > 1
        sizes = [n, *hidden_units, n]
        self._widths = sizes[:-1]
        # Several orders: their degrees are kept, and masks are made of them. One order: the masks are kept.
        if self.is_mixture:
            drawn = _degrees(n, sum(hidden_units), num_orders, tf.random.fold_in(seed, 1))
            self.degrees = tf.Variable(drawn, trainable=False, name="degrees")
            first = [tf.ones([a, b], self.dtype) for a, b in itertools.pairwise(sizes)]
        else:
            first = self.masks = _masks_of_tfp(n, hidden_units, self.dtype)
        # Weights uniform by the number of connections, zero where they are masked.
        seeds = tf.unstack(tf.random.experimental.stateless_split(seed, len(first)))
        self.kernels = [
            tf.Variable(
                mask * uniform_weights(mask.shape, s, math.sqrt(6.0 / sum(mask.shape)), self.dtype), name=f"kernel_{i}"
            )
            for i, (mask, s) in enumerate(zip(first, seeds, strict=True))
        ]
        self.biases = [
            tf.Variable(tf.zeros([units], self.dtype), name=f"bias_{i}") for i, units in enumerate(hidden_units)
        ]

    def logits(self, h: tf.Tensor, offset: tf.Tensor | None = None, order: int | tf.Tensor = 0) -> tf.Tensor:
        """One forward pass in the order of that number, [..., n], at the bits' own places."""
        # Masks in each pass: output j sees units whose degree is below its own, and these see bits up to that.
        masks = self._masks_of(order) if self.is_mixture else self.masks
        x = tf.reshape(h, [-1, self.n])
        for kernel, mask, bias in zip(self.kernels, masks, self.biases, strict=False):
            x = tf.tanh(tf.linalg.matmul(x, kernel * mask) + bias)
        a = tf.reshape(tf.linalg.matmul(x, self.kernels[-1] * masks[-1]), tf.shape(h)) + self.bias
        return a if offset is None else a + offset

    def log_prob(self, h: tf.Tensor, offset: tf.Tensor | None = None) -> tf.Tensor:
        """log of the mean over the orders of p(h), [...], nats."""
        log_densities = [bernoulli_log_prob(h, self.logits(h, offset, order)) for order in range(self.num_orders)]
        return tf.reduce_logsumexp(tf.stack(log_densities), axis=0) - math.log(self.num_orders)

    def in_training(self, seed: tf.Tensor) -> MADEConditional | InTraining:
        """log p(h) in an order that `seed` draws, one for all rows: a bound of log p(h) on average."""
        if not self.is_mixture:
            return self
        order = tf.random.stateless_uniform([], seed, 0, self.num_orders, tf.int32)
        return InTraining(lambda h, offset: bernoulli_log_prob(h, self.logits(h, offset, order)))

    def sample(self, num: int, seed: Seed, offset: tf.Tensor | None = None) -> tf.Tensor:
        """Independent draws, [num, n], each in one of the orders."""
        if not self.is_mixture:
            return super().sample(num, seed, offset)
        noise_seed, order_seed = tf.unstack(tf.random.experimental.stateless_split(as_seed(seed), 2))
        order = tf.random.stateless_uniform([num], order_seed, 0, self.num_orders, tf.int32)
        return self._sample_in_order(logistic_noise([num, self.n], noise_seed, self.dtype), offset, order)

    def sample_from_noise(self, noise: tf.Tensor, offset: tf.Tensor | None = None, unit: Unit = threshold) -> tf.Tensor:
        """Bits [B, n] for given noise, in the first order for the first row, the second for the second, and so on.

        :raises ValueError: for another unit than `threshold` with several orders.
        """
        if not self.is_mixture:
            return super().sample_from_noise(noise, offset, unit)
        if unit is not threshold:
            raise ValueError("gradients pass through bits of MADE in one order only; make it with num_orders=1.")
        return self._sample_in_order(noise, offset, tf.range(tf.shape(noise)[0]) % self.num_orders)

    def _sample_in_order(self, noise: tf.Tensor, offset: tf.Tensor | None, order: tf.Tensor) -> tf.Tensor:
        # All rows in each order; each row keeps those of its own.
        h = tf.zeros_like(noise)
        for number in range(self.num_orders):
            bits = fixed_point_bits(lambda h, number=number: self.logits(h, offset, number), noise)  # type: ignore[misc]
            h = tf.where(order[:, None] == number, bits, h)
        return h

    def _masks_of(self, order: int | tf.Tensor) -> list[tf.Tensor]:
        # A hidden unit sees bits up to its degree, an output those before its own.
        first, *hidden = tf.split(self.degrees[order], self._widths)
        pairs = zip([first, *hidden[:-1]], hidden, strict=True)
        masks = [tf.cast(b[None, :] >= a[:, None], self.dtype) for a, b in pairs]
        return [*masks, tf.cast(first[None, :] > hidden[-1][:, None], self.dtype)]


def _masks_of_tfp(n: int, hidden_units: Sequence[int], dtype: tf.DType) -> list[tf.Tensor]:
    network = tfp.bijectors.AutoregressiveNetwork(
        params=1, event_shape=[n], hidden_units=list(hidden_units), use_bias=False, dtype=dtype.name
    )
    network.build([None, n])
    return [kernel.constraint(tf.ones_like(kernel)) for kernel in network.trainable_variables]


def _degrees(n: int, num_hidden: int, num_orders: int, seed: tf.Tensor) -> np.ndarray:
    """int32 [num_orders, n + num_hidden]."""
    # Places of the bits: the first order is that of the columns, the others are drawn.
    orders, units = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
    keys = tf.random.stateless_uniform([num_orders - 1, n], orders).numpy()
    places = np.concatenate([np.arange(n)[None], np.argsort(np.argsort(keys, axis=1), axis=1)])
    # Degrees from 1 to n - 1: a unit that saw all bits could be read by none.
    num_seen = tf.random.stateless_uniform([num_orders, num_hidden], units, 1, n, tf.int32).numpy()
    return np.concatenate([places + 1, num_seen], axis=1).astype(np.int32)
