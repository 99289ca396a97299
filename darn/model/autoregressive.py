"""Distributions over n bits in which each bit sees the bits before it (Gregor et al., 2014, Eqs. 1-6).

    log p(h) = sum_j h_j a_j - log(1 + exp(a_j)),     a_j = logit of p(h_j = 1 | h_1, ..., h_{j-1}).

A conditional maps bits h [..., n] to logits a [..., n]. A parent (the decoder network above it) adds `offset` [..., n]
to them. All of them draw h_j = 1 exactly where noise_j < a_j with logistic noise, so that two samplers of one
conditional give the same bits for the same noise.

log p is the multilinear extension of the log-probability: h may hold intensities in [0, 1], for which -log p is the
cross-entropy, and it can be differentiated with respect to h.

Section 2.3, fast ancestral sampling: the bits of one draw are found by a fixed point, many at a time, instead of one
after the other,

    h <- 1[noise < a(h)],     a_j depends on h_1, ..., h_{j-1} only, noise is logistic.

After k passes at least the first k bits are those of the sequential sampler and do not change any more; and whatever no
longer changes satisfies all equations of the sequential sampler, which have one solution. So the bits are the same (up
to the rounding of sums where noise and logit agree to their last digits), after no more passes than there are bits, and
after few for images. Such iterations are in Wiggers and Hoogeboom (2020) and in Song, Meng, Liao and Ermon (2021).

Linear units are drawn in blocks, each by its fixed point. What a block adds to all later logits is one matrix product.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from darn.model.categories import Category, links
from gpflow_deep_base.seeds import Seed, as_seed

if TYPE_CHECKING:
    from darn.model.model import DARN

__all__ = [
    "BLOCK",
    "BitsDistribution",
    "Conditional",
    "FactorialConditional",
    "InTraining",
    "LinearConditional",
    "Sampled",
    "Sampler",
    "Unit",
    "bernoulli_log_prob",
    "check_units",
    "earlier_mask",
    "fixed_point_bits",
    "linear_adjoint",
    "linear_bits",
    "log_prob_of_pairs",
    "logistic_noise",
    "sample",
    "threshold",
    "uniform_weights",
]

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

    def __init__(self, model: DARN, *, batch_size: int = 1000, jit_compile: bool = False) -> None:
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
        # Whole batches, of which the last may have more draws than are wanted: one graph for all.
        batches = []
        seed = as_seed(seed)
        for number in range(-(-num // self.batch_size)):
            draws = self._draw(tf.random.fold_in(seed, number))
            batches.append((draws.x.numpy(), draws.probs.numpy(), *(h.numpy() for h in draws.h)))
        x, probs, *h = (np.concatenate(arrays)[:num] for arrays in zip(*batches, strict=True))
        return Sampled(x, probs, tuple(h))


def sample(model: DARN, num: int, seed: Seed, *, batch_size: int = 1000, jit_compile: bool = False) -> Sampled:
    """`num` draws from a model by :class:`Sampler`, in batches of at most `batch_size`."""
    return Sampler(model, batch_size=min(batch_size, max(num, 1)), jit_compile=jit_compile)(num, seed)


_MOST_NOISE = 100.0

#: How a bit is drawn: (logits, noise) to bits of the same shape. `threshold`, or one that passes gradients on.
Unit = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def bernoulli_log_prob(h: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """sum_j h_j a_j - log(1 + exp(a_j)), [..., n] to [...], nats."""
    return tf.reduce_sum(h * logits - tf.nn.softplus(logits), axis=-1)


def earlier_mask(n: int, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """[n, n] with 1 at (k, j) where bit j sees bit k, that is k < j: the one orientation of densities and samplers."""
    index = tf.range(n)
    return tf.cast(index[:, None] < index[None, :], dtype)


def logistic_noise(shape: Sequence[int] | tf.Tensor, seed: Seed, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """logit(u) of uniform u in [0, 1): a bit with logit a is 1 where the noise is below a, with probability
    sigmoid(a)."""
    # Philox by name: what TensorFlow would choose by itself is 80 times slower under XLA on a CPU.
    u = tf.random.stateless_uniform(shape, as_seed(seed), dtype=dtype, alg="philox")
    return tf.maximum(tf.math.log(u / (1.0 - u)), -_MOST_NOISE)  # u may be 0


def threshold(logits: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """The bits 1[noise < a]; no gradient passes."""
    return tf.cast(noise < logits, logits.dtype)


def uniform_weights(shape: Sequence[int], seed: tf.Tensor, scale: float, dtype: tf.DType) -> tf.Tensor:
    """Initial weights, uniform in [-scale, scale)."""
    return tf.random.stateless_uniform(shape, seed, -scale, scale, dtype)


def check_units(units: int) -> None:
    """Refuse numbers of deterministic units below 1.

    :raises ValueError: if there are fewer.
    """
    if units < 1:
        raise ValueError(f"the number of deterministic units must be at least 1, got {units}.")


@dataclasses.dataclass(frozen=True)
class InTraining:
    """What training maximises in place of a mixture.

    :param log_prob: (h [B, n], offset [B, n] or None) to [B], nats.
    """

    log_prob: Callable[[tf.Tensor, tf.Tensor | None], tf.Tensor]


class Conditional(tf.Module, abc.ABC):
    """Base of all conditionals over n bits.

    :ivar n: number of bits.
    :ivar is_mixture: log p is not the sum over bits at `logits`, but that of a mixture (EoNADE).
    :ivar bias: variable [n], of the logits without any input.
    """

    is_mixture = False

    def __init__(self, n: int, dtype: tf.DType, name: str | None = None) -> None:
        super().__init__(name=name)
        if n < 1:
            raise ValueError(f"a conditional needs at least 1 bit, got n={n}.")
        self.n = n
        self.dtype = tf.as_dtype(dtype)
        self.bias = tf.Variable(tf.zeros([n], self.dtype), name="bias")

    @property
    def is_additive(self) -> bool:
        """Whether log p is the sum over bits at logits(h) + offset, so that offsets only add to logits."""
        return not self.is_mixture

    @property
    def start(self) -> tf.Tensor:
        """Logits without any input, [n]."""
        return self.bias

    @property
    def offset_size(self) -> int:
        """Numbers that a network has to give for the parents of a row: the last axis of offsets."""
        return self.n

    @abc.abstractmethod
    def logits(self, h: tf.Tensor, offset: tf.Tensor | None = None) -> tf.Tensor:
        """a_j for each bit: [..., n] to [..., n]; a_j depends on h_1, ..., h_{j-1} only.

        :param offset: [..., n], added to the logits; of a PixelCNN [..., n K], see there.
        """

    def log_prob(self, h: tf.Tensor, offset: tf.Tensor | None = None) -> tf.Tensor:
        """log p(h), [..., n] to [...], nats."""
        return bernoulli_log_prob(h, self.logits(h, offset))

    def in_training(self, seed: tf.Tensor) -> Any:
        """What training maximises: something whose `log_prob` is that of this conditional, or an estimate of a bound
        with random numbers of `seed` where p is a mixture."""
        del seed
        return self

    def sample(self, num: int, seed: Seed, offset: tf.Tensor | None = None) -> tf.Tensor:
        """Independent draws, [num, n].

        :param offset: [n] or [num, n].
        """
        return self.sample_from_noise(logistic_noise([num, self.n], seed, self.dtype), offset)

    def sample_with_logits(self, num: int, seed: Seed, offset: tf.Tensor | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws of :meth:`sample` and their logits given the bits before each, [num, n]."""
        h = self.sample(num, seed, offset)
        return h, self.logits(h, offset)

    def sample_from_noise(self, noise: tf.Tensor, offset: tf.Tensor | None = None, unit: Unit = threshold) -> tf.Tensor:
        """Bits for given logistic noise [B, n], as if drawn one after the other: [B, n].

        :param unit: draws one bit of each example; gradients flow through the whole chain if it passes them on, by n
            passes of `logits`. `threshold` takes fewer, see :mod:`darn.model.autoregressive`.
        """
        if unit is threshold:
            return fixed_point_bits(lambda h: self.logits(h, offset), noise)
        h = tf.zeros_like(noise)

        def draw(j: tf.Tensor, h: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            # A pass over all bits for each one: later ones are still 0, and logit j does not see them.
            column = tf.one_hot(j, self.n, dtype=self.dtype)
            bit = unit(self.logits(h, offset)[:, j], noise[:, j])
            return j + 1, h + bit[:, None] * column

        return tf.while_loop(lambda j, _: j < self.n, draw, (0, h))[1]

    def as_distribution(self, offset: tf.Tensor | None = None) -> BitsDistribution:
        """This conditional as a TFP distribution over vectors of n bits; `offset` [..., n] gives its batch shape."""
        return BitsDistribution(self, offset)


def log_prob_of_pairs(conditional: Conditional, h: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
    """log p of each of the rows h [B, n] for each of S offsets, [S, B or 1, offset_size]: [S, B], nats."""
    if conditional.is_additive:
        return bernoulli_log_prob(h, conditional.logits(h) + offset)
    # A mixture has no logits to add to: each pair of a row and an offset is a row of its own.
    # Shape [S, B] for both.
    lead = tf.concat([tf.shape(offset)[:1], tf.shape(h)[:1]], axis=0)
    h = tf.broadcast_to(h, tf.concat([lead, tf.shape(h)[-1:]], 0))
    return conditional.log_prob(h, tf.broadcast_to(offset, tf.concat([lead, tf.shape(offset)[-1:]], 0)))


class FactorialConditional(Conditional):
    """Independent bits, a_j = b_j + offset_j: encoders (Eq. 6) and decoders without autoregression."""

    def __init__(self, n: int, *, dtype: tf.DType = tf.float32, name: str | None = None) -> None:
        super().__init__(n, dtype, name)

    def logits(self, h: tf.Tensor, offset: tf.Tensor | None = None) -> tf.Tensor:
        """b + offset, for h [..., n] of which only the shape matters."""
        a = self.bias if offset is None else self.bias + offset
        return tf.broadcast_to(a, tf.broadcast_dynamic_shape(tf.shape(h), tf.shape(a)))

    def sample_from_noise(self, noise: tf.Tensor, offset: tf.Tensor | None = None, unit: Unit = threshold) -> tf.Tensor:
        """All bits at once, [B, n]."""
        return unit(self.logits(noise, offset), noise)


class LinearConditional(Conditional):
    """Logistic regression on the earlier bits, Eq. (2): a = h W + b with W zero unless k < j: one matrix product.

    Bits that are levels of one category exclude each other: constants that no draw can overcome are added to W and b.

    :ivar weights: variable [n, n], of which `matrix()` uses the part above the diagonal.
    """

    def __init__(
        self,
        n: int,
        *,
        categories: Sequence[Category] = (),
        dtype: tf.DType = tf.float32,
        name: str | None = None,
    ) -> None:
        super().__init__(n, dtype, name)
        self.weights = tf.Variable(tf.zeros([n, n], self.dtype), name="weights")
        self._links = (
            tuple(part.astype(self.dtype.as_numpy_dtype) for part in links(categories, n)) if categories else None
        )

    def matrix(self) -> tf.Tensor:
        """[n, n]: row k is what bit k adds to the logits of all bits; zero for those up to k."""
        W = self.weights * earlier_mask(self.n, self.dtype)
        return W if self._links is None else W + self._links[0]

    @property
    def start(self) -> tf.Tensor:
        """Logits without any input, [n]."""
        return self.bias if self._links is None else self.bias + self._links[1]

    def logits(self, h: tf.Tensor, offset: tf.Tensor | None = None) -> tf.Tensor:
        """h W + b + offset."""
        # Eq. (2) for all bits at once: the triangle of W hides the later ones from each.
        rows = tf.reshape(h, [-1, self.n])
        a = tf.reshape(tf.linalg.matmul(rows, self.matrix()), tf.shape(h)) + self.start
        return a if offset is None else a + offset

    def sample_from_noise(self, noise: tf.Tensor, offset: tf.Tensor | None = None, unit: Unit = threshold) -> tf.Tensor:
        """Bits as if drawn one after the other, [B, n], in blocks; so are the gradients that `unit` passes on."""
        # `linear_bits` looks at what is above the diagonal alone, so that nothing has to be masked for it.
        a = self.start if offset is None else self.start + offset
        if unit is threshold:
            return linear_bits(noise, self.weights if self._links is None else self.matrix(), a)

        @tf.custom_gradient
        def chain(matrix: tf.Tensor, a: tf.Tensor) -> tuple[tf.Tensor, object]:
            # Forward: the bits of the paper's ancestral sampler. Backward: the adjoint of the same chain.
            h = linear_bits(noise, matrix, a)

            def grad(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                # Each bit's own derivative at the logit that it was drawn with.
                logits = a + tf.matmul(h, matrix)
                with tf.GradientTape() as tape:
                    tape.watch(logits)
                    bits = unit(logits, noise)
                g = linear_adjoint(upstream, tape.gradient(bits, logits), matrix)
                return tf.matmul(h, g, transpose_a=True), g

            return h, grad

        return chain(self.matrix(), tf.zeros_like(noise) + a)


class BitsDistribution(tfp.distributions.Distribution):
    """A conditional as a distribution of TensorFlow Probability: event shape [n], batch shape of the offset."""

    def __init__(
        self,
        conditional: Conditional,
        offset: tf.Tensor | None = None,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Bits",
    ) -> None:
        parameters = dict(locals())
        super().__init__(
            dtype=conditional.dtype,
            reparameterization_type=tfp.distributions.NOT_REPARAMETERIZED,
            validate_args=validate_args,
            allow_nan_stats=allow_nan_stats,
            parameters=parameters,
            name=name,
        )
        self.conditional = conditional
        self.offset = None if offset is None else tf.convert_to_tensor(offset, conditional.dtype)

    @classmethod
    def _parameter_properties(cls, dtype: object, num_classes: object = None) -> dict[str, object]:
        return {}

    def _event_shape(self) -> tf.TensorShape:
        return tf.TensorShape([self.conditional.n])

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.constant([self.conditional.n])

    def _batch_shape(self) -> tf.TensorShape:
        return tf.TensorShape([]) if self.offset is None else self.offset.shape[:-1]

    def _batch_shape_tensor(self) -> tf.Tensor:
        return tf.constant([], tf.int32) if self.offset is None else tf.shape(self.offset)[:-1]

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        return self.conditional.log_prob(tf.cast(value, self.dtype), self.offset)

    def _sample_n(self, n: tf.Tensor, seed: object = None) -> tf.Tensor:
        shape = tf.concat([[n], self.batch_shape_tensor(), [self.conditional.n]], 0)
        noise = tf.reshape(logistic_noise(shape, tfp.random.sanitize_seed(seed), self.dtype), [-1, self.conditional.n])
        offset = self.offset
        if offset is not None:
            # Conditionals draw rows of one axis: the batch shape of the offset becomes that axis, and back.
            size = self.conditional.offset_size
            offset = tf.reshape(tf.broadcast_to(offset, tf.concat([shape[:-1], [size]], 0)), [-1, size])
        return tf.reshape(self.conditional.sample_from_noise(noise, offset), shape)
