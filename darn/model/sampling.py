"""Fast ancestral sampling (Gregor et al., 2014, Section 2.3) of bits that see the bits before them.

The bits of one draw are found by a fixed point, many at a time, instead of one after the other:

    h <- 1[noise < a(h)],     a_j depends on h_1, ..., h_{j-1} only, noise is logistic.

After k passes at least the first k bits are those of the sequential sampler and do not change any more; and whatever no
longer changes satisfies all equations of the sequential sampler, which have one solution. So the bits are the same (up
to the rounding of sums where noise and logit agree to their last digits), after no more passes than there are bits, and
after few for images. Such iterations are in Wiggers and Hoogeboom (2020) and in Song, Meng, Liao and Ermon (2021).

Linear units are drawn in blocks, each by its fixed point. What a block adds to all later logits is one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from gpflow_deep_base.seeds import Seed, as_seed

__all__ = ["BLOCK", "Sampled", "Sampler", "fixed_point_bits", "linear_adjoint", "linear_bits", "sample"]

BLOCK = 56
"""Units in a block of :func:`linear_bits`; from 28 to 112 its time hardly depends on this."""


class Sampled(NamedTuple):
    """Draws of a model: visible bits `x` [N, n_x], the probabilities they were drawn with, and `h`, [N, n_l] each."""

    x: np.ndarray
    probs: np.ndarray
    h: tuple[np.ndarray, ...]


def fixed_point_bits(
    logits: Callable[[tf.Tensor], tf.Tensor], noise: tf.Tensor, guess: tf.Tensor | None = None
) -> tf.Tensor:
    """Bits of any conditional for given logistic noise, [B, n]: those that drawing one after the other gives.

    :param logits: maps bits [B, n] to logits [B, n], the j-th of which depends on the bits before it only.
    :param noise: [B, n].
    :param guess: bits to start from; the result does not depend on them. Zeros if not given.
    """
    num_bits = tf.shape(noise)[-1]

    def draw(passes: tf.Tensor, h: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        # After k passes the first k bits are final: each depends on final ones alone. Most are long before.
        new = tf.cast(noise < logits(h), noise.dtype)
        return passes + 1, new, tf.reduce_any(tf.not_equal(new, h))

    start = (tf.constant(0), tf.zeros_like(noise) if guess is None else guess, tf.constant(True))
    return tf.while_loop(lambda passes, _, changed: tf.logical_and(changed, passes < num_bits), draw, start)[1]


def linear_bits(noise: tf.Tensor, matrix: tf.Tensor, logits: tf.Tensor, *, block: int = BLOCK) -> tf.Tensor:
    """Bits of units with the logits h W + a for given logistic noise, [B, n] (Eqs. 2 and 5).

    :param noise: [B, n] of logistic noise; n must be static.
    :param matrix: W, [n, n]; only what is above its diagonal is used: row k is what bit k adds to the logits of later
        bits.
    :param logits: a, [n] or [B, n]: the logits without any earlier bit.
    :param block: number of units whose fixed point is found at a time.
    :raises ValueError: if `block` is below 1 or n is not known.
    """
    n = noise.shape[-1]
    if n is None or block < 1:
        raise ValueError(f"noise must have a static number of bits and block be at least 1, got {n} and {block}.")
    mask = tf.constant(np.triu(np.ones([min(block, n)] * 2), 1), noise.dtype)
    # `rest`: logits of the bits that are not drawn yet, with what the drawn ones add.
    rest = tf.broadcast_to(logits, tf.shape(noise))
    parts: list[tf.Tensor] = []
    for start in range(0, n, block):
        end = min(start + block, n)
        within = matrix[start:end, start:end] * mask[: end - start, : end - start]
        a = rest[:, : end - start]
        noise_here = noise[:, start:end]
        # The fixed point h <- 1[noise < a + h W] within the block.
        guess = tf.cast(noise_here < a, noise.dtype)
        parts.append(
            fixed_point_bits(lambda h, a=a, within=within: a + tf.matmul(h, within), noise_here, guess)  # type: ignore[misc]
        )
        if end < n:
            # What the block adds to the logits of all later bits.
            rest = rest[:, end - start :] + tf.matmul(parts[-1], matrix[start:end, end:])
    return tf.concat(parts, axis=1)


def linear_adjoint(upstream: tf.Tensor, slope: tf.Tensor, matrix: tf.Tensor, *, block: int = BLOCK) -> tf.Tensor:
    """Gradient of a cost by the logits a of bits h = unit(h W + a) that see the bits before them, [B, n].

    A bit acts on the cost by itself and by the logits of later bits, g = slope (upstream + g W'). The one solution of
    this is found as bits are: in blocks, from the last one, and within a block by its fixed point.

    :param upstream: gradient of the cost by the bits themselves, [B, n]; n must be static.
    :param slope: derivative of each bit by its own logit, [B, n].
    :param matrix: W, [n, n], zero but above its diagonal.
    """
    n = upstream.shape[-1]
    # g of the bits behind the block.
    later = tf.zeros_like(upstream)[:, :0]
    for start in reversed(range(0, n, block)):
        end = min(start + block, n)
        from_outside = upstream[:, start:end] + tf.matmul(later, matrix[start:end, end:], transpose_b=True)
        within = matrix[start:end, start:end]
        s = slope[:, start:end]

        def step(
            passes: tf.Tensor,
            g: tf.Tensor,
            _: tf.Tensor,
            own: tf.Tensor = from_outside,
            within: tf.Tensor = within,
            s: tf.Tensor = s,
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            new = s * (own + tf.matmul(g, within, transpose_b=True))
            return passes + 1, new, tf.reduce_any(tf.not_equal(new, g))

        # The fixed point g <- slope (upstream + g W') within the block.
        begin = (tf.constant(0), s * from_outside, tf.constant(True))
        size = end - start  # passes after which nothing can change; a NaN, which never equals itself, ends here, too
        state = tf.while_loop(lambda i, _, changed, size=size: tf.logical_and(changed, i < size), step, begin)  # type: ignore[misc]
        later = tf.concat([state[1], later], axis=1)
    return later


class Sampler:
    """Draws from a model in batches of one size, traced once.

    :param model: a `DARN`.
    :param batch_size: draws at a time; the draws of a seed depend on it.
    :param jit_compile: compile by XLA: fewer microseconds a draw after seconds of compiling.
    """

    def __init__(self, model: Any, *, batch_size: int = 1000, jit_compile: bool = False) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
        self.batch_size = batch_size
        self._draw = tf.function(
            lambda seed: model.sample(batch_size, seed),
            input_signature=[tf.TensorSpec([2], tf.int32)],
            autograph=False,
            jit_compile=jit_compile,
        )

    def __call__(self, num: int, seed: Seed) -> Sampled:
        """`num` draws.

        :raises ValueError: if `num` is below 1.
        """
        if num < 1:
            raise ValueError(f"num must be at least 1, got {num}.")
        batches = []
        seed = as_seed(seed)
        for number in range(-(-num // self.batch_size)):
            draws = self._draw(tf.random.fold_in(seed, number))
            batches.append((draws.x.numpy(), draws.probs.numpy(), *(h.numpy() for h in draws.h)))
        x, probs, *h = (np.concatenate(arrays)[:num] for arrays in zip(*batches, strict=True))
        return Sampled(x, probs, tuple(h))


def sample(model: object, num: int, seed: Seed, *, batch_size: int = 1000, jit_compile: bool = False) -> Sampled:
    """`num` draws from a model by :class:`Sampler`, in batches of at most `batch_size`."""
    return Sampler(model, batch_size=min(batch_size, max(num, 1)), jit_compile=jit_compile)(num, seed)
