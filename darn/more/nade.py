"""Richer autoregressive conditionals (Section 2.1): NADE and EoNADE.

NADE     a_j = b_j + V_j' sigmoid(c + sum_{k<j} W_k h_k)                    Larochelle and Murray (2011)
EoNADE   the same in any order, with a second matrix that says which bits are known; a mixture over fixed random
         orders                                                             Uria, Murray and Larochelle (2014)
"""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from darn.model.autoregressive import (
    Conditional,
    InTraining,
    Unit,
    bernoulli_log_prob,
    check_units,
    logistic_noise,
    threshold,
    uniform_weights,
)
from darn.model.replicas import own_rows
from gpflow_deep_base.seeds import Seed, as_seed

__all__ = ["EoNADEConditional", "NADEConditional"]


class NADEConditional(Conditional):
    """a_j = b_j + V_j' sigmoid(c + sum_{k<j} W_k h_k) + offset_j.

    :ivar W: [n, units], what each known bit adds to the hidden units.
    :ivar V: [n, units].
    :ivar c: [units].

    The density holds n x units numbers for each example; the sampler adds one row a bit.
    """

    def __init__(
        self, n: int, units: int, *, seed: Seed, dtype: tf.DType = tf.float32, name: str | None = None
    ) -> None:
        super().__init__(n, dtype, name)
        check_units(units)
        self.units = units
        first, second = tf.unstack(tf.random.experimental.stateless_split(as_seed(seed), 2))
        scale = math.sqrt(6.0 / (n + units))
        self.W = tf.Variable(uniform_weights([n, units], first, scale, self.dtype), name="W")
        self.V = tf.Variable(uniform_weights([n, units], second, scale, self.dtype), name="V")
        self.c = tf.Variable(tf.zeros([units], self.dtype), name="c")

    def logits(self, h: tf.Tensor, offset: tf.Tensor | None = None) -> tf.Tensor:
        """By one cumulative sum over the bits, [..., n]."""
        # c + sum_{k<j} W_k h_k of all j at once, then V_j' sigmoid of it.
        sums = tf.cumsum(h[..., None] * self.W, axis=-2, exclusive=True) + self.c
        a = tf.reduce_sum(tf.sigmoid(sums) * self.V, axis=-1) + self.bias
        return a if offset is None else a + offset

    def sample_from_noise(self, noise: tf.Tensor, offset: tf.Tensor | None = None, unit: Unit = threshold) -> tf.Tensor:
        """Bits one after the other, each adding a row to the hidden units: [B, n]."""
        base = tf.zeros_like(noise) + self.bias
        base = base if offset is None else base + offset
        bits = tf.TensorArray(self.dtype, self.n, element_shape=noise.shape[:1])
        start = tf.zeros_like(noise[:, :1]) + self.c

        def draw(j: tf.Tensor, known: tf.Tensor, bits: tf.TensorArray) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
            # Bit j by the sums of those before it, to which it adds its own row.
            a = tf.linalg.matvec(tf.sigmoid(known), self.V[j]) + base[:, j]
            bit = unit(a, noise[:, j])
            return j + 1, known + bit[:, None] * self.W[j], bits.write(j, bit)

        bits = tf.while_loop(lambda j, *_: j < self.n, draw, (0, start, bits))[2]
        return tf.transpose(bits.stack())


class EoNADEConditional(Conditional):
    """An order-agnostic NADE: one network that predicts any bit from any set of known bits.

    p(h) is the mean over `num_orders` fixed random orders o of prod_i p(h_{o_i} | h_{o_<i}), a proper distribution:
    its density is exact, and a draw takes one of the orders. Training draws an order and a number of known bits for
    each example and scales the log-probability of the unknown bits by n / (n - d + 1), which is unbiased for the mean
    log-probability over all orders.

    :ivar W: [n, units], of the known bits' values.
    :ivar U: [n, units], that they are known.
    :ivar V: [n, units].
    :ivar orders: variable, int32 [num_orders, n]; the first is 0, 1, ..., n - 1.
    """

    is_mixture = True

    def __init__(
        self,
        n: int,
        units: int,
        *,
        seed: Seed,
        num_orders: int = 16,
        dtype: tf.DType = tf.float32,
        name: str | None = None,
    ) -> None:
        super().__init__(n, dtype, name)
        check_units(units)
        if num_orders < 1:
            raise ValueError(f"EoNADE needs at least 1 order, got {num_orders}.")
        self.units = units
        self.num_orders = num_orders
        seeds = tf.unstack(tf.random.experimental.stateless_split(as_seed(seed), 4))
        scale = math.sqrt(6.0 / (n + units))
        self.W = tf.Variable(uniform_weights([n, units], seeds[0], scale, self.dtype), name="W")
        self.U = tf.Variable(uniform_weights([n, units], seeds[1], scale, self.dtype), name="U")
        self.V = tf.Variable(uniform_weights([n, units], seeds[2], scale, self.dtype), name="V")
        self.c = tf.Variable(tf.zeros([units], self.dtype), name="c")
        # The first order is that of the columns, the others are drawn.
        keys = tf.random.stateless_uniform([num_orders - 1, n], seeds[3])
        random = np.argsort(keys.numpy(), axis=1)
        self.orders = tf.Variable(np.concatenate([np.arange(n)[None], random]), trainable=False, dtype=tf.int32)

    def logits(self, h: tf.Tensor, offset: tf.Tensor | None = None, order: int = 0) -> tf.Tensor:
        """Logits of each bit given those before it in the order of that number, [..., n], at the bits' own places."""
        places = self.orders[order]
        # Sums of the hidden units before each bit of the order.
        ordered = tf.gather(h, places, axis=-1)
        steps = ordered[..., None] * tf.gather(self.W, places) + tf.gather(self.U, places)
        sums = tf.cumsum(steps, axis=-2, exclusive=True) + self.c
        a = tf.reduce_sum(tf.sigmoid(sums) * tf.gather(self.V, places), axis=-1)
        # Back to the bits' own places.
        a = tf.gather(a, tf.argsort(places), axis=-1) + self.bias
        return a if offset is None else a + offset

    def log_prob(self, h: tf.Tensor, offset: tf.Tensor | None = None) -> tf.Tensor:
        """log of the mean over the orders of p(h), [...], nats."""
        log_densities = [bernoulli_log_prob(h, self.logits(h, offset, order)) for order in range(self.num_orders)]
        return tf.reduce_logsumexp(tf.stack(log_densities), axis=0) - math.log(self.num_orders)

    def in_training(self, seed: tf.Tensor) -> InTraining:
        """The order-agnostic estimate, in orders that `seed` draws."""
        return InTraining(lambda h, offset: self._order_agnostic(h, offset, seed))

    def _order_agnostic(self, h: tf.Tensor, offset: tf.Tensor | None, seed: tf.Tensor) -> tf.Tensor:
        """Unbiased estimate of the mean over all orders of log p(h), [B] for h [B, n], nats."""
        order_seed, count_seed = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
        u, num_known = own_rows(
            lambda rows: (
                tf.random.stateless_uniform([rows, self.n], order_seed),
                tf.random.stateless_uniform([rows], count_seed, 0, self.n, tf.int32),
            ),
            tf.shape(h)[0],
        )
        # Each row has an order of its own, of which the first bits are known.
        rank = tf.argsort(tf.argsort(u, axis=-1), axis=-1)
        is_known = tf.cast(rank < num_known[:, None], self.dtype)
        sums = tf.linalg.matmul(h * is_known, self.W) + tf.linalg.matmul(is_known, self.U) + self.c
        a = tf.linalg.matmul(tf.sigmoid(sums), self.V, transpose_b=True) + self.bias
        a = a if offset is None else a + offset
        # The unknown bits' log p, scaled to all bits: unbiased for the mean over all orders.
        scale = self.n / tf.cast(self.n - num_known, self.dtype)
        return scale * tf.reduce_sum((1.0 - is_known) * (h * a - tf.nn.softplus(a)), axis=-1)

    def sample(self, num: int, seed: Seed, offset: tf.Tensor | None = None) -> tf.Tensor:
        """Independent draws, [num, n], each in one of the orders."""
        noise_seed, order_seed = tf.unstack(tf.random.experimental.stateless_split(as_seed(seed), 2))
        order = tf.random.stateless_uniform([num], order_seed, 0, self.num_orders, tf.int32)
        return self._sample_in_order(logistic_noise([num, self.n], noise_seed, self.dtype), offset, threshold, order)

    def sample_from_noise(self, noise: tf.Tensor, offset: tf.Tensor | None = None, unit: Unit = threshold) -> tf.Tensor:
        """Bits [B, n] for given noise, in the first order for the first row, the second for the second, and so on."""
        return self._sample_in_order(noise, offset, unit, tf.range(tf.shape(noise)[0]) % self.num_orders)

    def _sample_in_order(self, noise: tf.Tensor, offset: tf.Tensor | None, unit: Unit, order: tf.Tensor) -> tf.Tensor:
        # `known`: of each row, the sums of the hidden units over the bits drawn so far.
        base = tf.zeros_like(noise) + self.bias
        base = base if offset is None else base + offset
        places = tf.gather(self.orders, order)
        start = tf.zeros_like(noise[:, :1]) + self.c
        h = tf.zeros_like(noise)

        def draw(i: tf.Tensor, known: tf.Tensor, h: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            # The i-th bit of each row's own order.
            place = places[:, i]
            a = tf.reduce_sum(tf.sigmoid(known) * tf.gather(self.V, place), axis=-1)
            a += tf.gather(base, place, batch_dims=1)
            bit = unit(a, tf.gather(noise, place, batch_dims=1))[:, None]
            # W says what it is, U that it is known.
            known += bit * tf.gather(self.W, place) + tf.gather(self.U, place)
            return i + 1, known, h + bit * tf.one_hot(place, self.n, dtype=self.dtype)

        return tf.while_loop(lambda i, *_: i < self.n, draw, (0, start, h))[2]
