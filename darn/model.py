"""Deep autoregressive networks (Gregor et al., 2014, Section 2): encoder q(H | X), decoder p(X, H).

    p(x, h) = p(h^L) prod_{l<L} p(h^l | h^{l+1}) p(x | h^1),     q(h | x) = q(h^1 | x) prod_l q(h^{l+1} | h^l).

Each factor is a layer: a network of deterministic units turns the parents into logits, and a conditional adds what each
bit sees of the bits before it (Eqs. 5, 7-10). With skip connections a layer sees all stochastic layers beyond it, not
only the next.

Networks get stochastic units as 2h - 1 and visible units minus their means, which biases could absorb.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from darn.autoregressive import Conditional, Unit, bernoulli_log_prob, logistic_noise, threshold
from darn.config import DARNConfig, check_data
from darn.distribution import DARNDistribution
from darn.distribution import log_prob as log_prob_of
from darn.local import LocalCausalConditional, LocalDecoder, LocalEncoder
from darn.nade import make_conditional
from darn.seeds import Seed, as_seed

__all__ = ["DARN", "DARNConfig", "DenseNetwork", "Encoded", "Layer", "Samples", "check_data"]

ACTIVATIONS = {"tanh": tf.tanh, "relu": tf.nn.relu}


class Encoded(NamedTuple):
    """Bits of each stochastic layer [B, n_l], and the logits of q that they were drawn with."""

    h: tuple[tf.Tensor, ...]
    logits: tuple[tf.Tensor, ...]


class Samples(NamedTuple):
    """Draws of the decoder: visible bits `x` [S, n_x], their `probs` given what came before, and `h`, [S, n_l] each."""

    x: tf.Tensor
    probs: tf.Tensor
    h: tuple[tf.Tensor, ...]


class DenseNetwork(tf.Module):
    """Deterministic layers (Eq. 9), then a linear map to logits, without a bias: the conditional has it.

    :ivar kernels: variables [n_in, n_1], ..., [n_m, n_out]. :ivar biases: of the deterministic layers.
    """

    def __init__(
        self, sizes: Sequence[int], *, activation: str, seed: tf.Tensor, dtype: tf.DType, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        self.activation = ACTIVATIONS[activation]
        seeds = tf.unstack(tf.random.experimental.stateless_split(seed, len(sizes) - 1))
        self.kernels = []
        for i, (n_in, n_out) in enumerate(itertools.pairwise(sizes)):
            scale = math.sqrt(6.0 / (n_in + n_out))
            kernel = tf.random.stateless_uniform([n_in, n_out], seeds[i], -scale, scale, dtype)
            self.kernels.append(tf.Variable(kernel, name=f"kernel_{i}"))
        self.biases = [tf.Variable(tf.zeros([n], dtype), name=f"bias_{i}") for i, n in enumerate(sizes[1:-1])]

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """[B, n_in] to [B, n_out]."""
        for kernel, bias in zip(self.kernels, self.biases, strict=False):
            x = self.activation(tf.linalg.matmul(x, kernel) + bias)
        return tf.linalg.matmul(x, self.kernels[-1])


class Layer(tf.Module):
    """Bits given parents: `network` gives the offset of the logits of `conditional`."""

    def __init__(self, network: Any, conditional: Conditional, name: str | None = None) -> None:
        super().__init__(name=name)
        self.network = network
        self.conditional = conditional

    def offset(self, parents: tf.Tensor) -> tf.Tensor:
        """[B, n_parents] to [B, n]."""
        return self.network(parents)


class Graphs:
    """Compiled functions by what they depend on, so that each is traced once. A copy is empty: they cannot be copied,
    and belong to the variables of one model.
    """

    def __init__(self) -> None:
        self._made: dict[Any, Any] = {}

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """The function of this key; `make` makes it the first time."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def __reduce__(self) -> tuple[type[Graphs], tuple[()]]:
        return Graphs, ()


class DARN(tf.Module):
    """A deep autoregressive network.

    :ivar config: what it is made of.
    :ivar visible_mean: what is subtracted from visible units before the encoder's networks, variable [n_x].
    :ivar prior: conditional over the top layer, p(h^L); None without stochastic layers.
    :ivar decoders: L layers, p(x | h^1, ...), p(h^1 | h^2, ...), ..., without the prior; with `hidden=()` one, whose
        network is None.
    :ivar encoders: L layers, q(h^1 | x), q(h^2 | h^1, ...), ....
    :ivar graphs: compiled functions of this model; copies, pickles and files have none.

    :param seed: of the initial weights.
    :param data: training data [N, n_x]; their means give `visible_mean` and the visible biases.
    """

    def __init__(
        self, config: DARNConfig, *, seed: Seed = 0, data: ArrayLike | None = None, name: str = "darn"
    ) -> None:
        super().__init__(name=name)
        self.config = config
        self.dtype = tf.as_dtype(config.dtype)
        seed = as_seed(seed)
        self.visible_mean = tf.Variable(tf.zeros([config.visible], self.dtype), trainable=False, name="visible_mean")
        sizes = [config.visible, *config.hidden]
        self.prior: Any = None
        if config.hidden:
            self.prior = self._conditional(config.prior, sizes[-1], _fold(seed, 0), "prior")
        self.decoders = [self._decoder(level, sizes, _fold(seed, 1 + level)) for level in range(max(1, len(sizes) - 1))]
        self.encoders = [
            self._encoder(level, sizes, _fold(seed, 1001 + level)) for level in range(1, len(config.hidden) + 1)
        ]
        self.graphs = Graphs()
        if data is not None:
            self.initialise(data)

    def initialise(self, data: ArrayLike) -> None:
        """Set `visible_mean` and the visible biases to the data's means and their logits, as the best model without
        weights would have them; means are kept 1 / (N + 2) away from 0 and 1.

        :raises ValueError: see :func:`check_data`.
        """
        x = check_data(data, self.config)
        mean = x.mean(axis=0, dtype=np.float64)
        margin = 1.0 / (len(x) + 2.0)
        clipped = np.clip(mean, margin, 1.0 - margin)
        self.visible_mean.assign(tf.constant(mean, self.dtype))
        self.decoders[0].conditional.bias.assign(tf.constant(np.log(clipped) - np.log1p(-clipped), self.dtype))

    @property
    def num_hidden(self) -> int:
        """Stochastic hidden units of all layers together."""
        return sum(self.config.hidden)

    def encoder_noise(self, num: int | tf.Tensor, seed: Seed) -> tuple[tf.Tensor, ...]:
        """Logistic noise for :meth:`encode`, [num, n_l] for each layer."""
        seed = as_seed(seed)
        return tuple(
            logistic_noise([num, n], _fold(seed, level), self.dtype) for level, n in enumerate(self.config.hidden)
        )

    def encode(
        self, x: tf.Tensor, noise: Sequence[tf.Tensor], unit: Unit = threshold, copies: int | tf.Tensor = 1
    ) -> Encoded:
        """Draw h ~ q(h | x) from the bottom up (Eqs. 6, 8).

        :param x: [B, n_x].
        :param noise: of :meth:`encoder_noise`, for `copies` B rows.
        :param unit: how bits are drawn, which decides how gradients pass; see `gradients`.
        :param copies: number of draws for each row; all first draws come first in the result of `copies` B rows.
        """
        h: list[tf.Tensor] = []
        logits: list[tf.Tensor] = []
        for level, layer in enumerate(self.encoders):
            offset = layer.offset(self._below(x, h, level))
            if level == 0:
                offset = tf.tile(offset, [copies, 1])
                x = tf.tile(x, [copies, 1]) if self.config.skip else x
            if self.config.encoder == "factorial":
                logits.append(layer.conditional.logits(offset, offset))
                h.append(unit(logits[-1], noise[level]))
            else:
                h.append(layer.conditional.sample_from_noise(noise[level], offset, unit))
                logits.append(layer.conditional.logits(h[-1], offset))
        return Encoded(tuple(h), tuple(logits))

    def encoder_logits(self, x: tf.Tensor, h: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        """Logits of q for given bits of all layers, [B, n_l] each."""
        logits = []
        for level, layer in enumerate(self.encoders):
            offset = layer.offset(self._below(x, h[:level], level))
            logits.append(layer.conditional.logits(h[level], offset))
        return tuple(logits)

    def log_q(self, x: tf.Tensor, h: Sequence[tf.Tensor]) -> tf.Tensor:
        """log q(h | x), [B], nats."""
        zero = tf.zeros(tf.shape(x)[:-1], self.dtype)
        pairs = zip(h, self.encoder_logits(x, h), strict=True)
        return sum((bernoulli_log_prob(bits, logits) for bits, logits in pairs), zero)

    def log_prior(self, h: Sequence[tf.Tensor], training_seed: tf.Tensor | None = None) -> tf.Tensor:
        """log p(h) of all stochastic layers (Eqs. 1, 7), [B], nats; needs at least one layer.

        :param training_seed: int32 [2]: what training maximises, which differs for EoNADE.
        """
        total = _log_prob(self.prior, h[-1], None, training_seed, 0)
        for level in range(1, len(h)):
            layer = self.decoders[level]
            offset = layer.offset(self._above(h, level))
            total += _log_prob(layer.conditional, h[level - 1], offset, training_seed, level)
        return total

    def log_visible(self, x: tf.Tensor, h: Sequence[tf.Tensor], training_seed: tf.Tensor | None = None) -> tf.Tensor:
        """log p(x | h) (Eqs. 3, 5), [B], nats; minus the cross-entropy for intensities."""
        return _log_prob(self.decoders[0].conditional, x, self.visible_offset(h), training_seed, 1000)

    def log_joint(self, x: tf.Tensor, h: Sequence[tf.Tensor]) -> tf.Tensor:
        """log p(x, h), [B], nats."""
        return self.log_visible(x, h) + (self.log_prior(h) if h else 0.0)

    def visible_offset(self, h: Sequence[tf.Tensor]) -> tf.Tensor | None:
        """What the stochastic layers add to the logits of the visible units, [B, n_x]; None without such layers."""
        return self.decoders[0].offset(self._above(h, 0)) if h else None

    def visible_logits(self, x: tf.Tensor, h: Sequence[tf.Tensor]) -> tf.Tensor:
        """Logits of each visible unit given h and the visible units before it, [B, n_x]."""
        return self.decoders[0].conditional.logits(x, self.visible_offset(h))

    def log_prob(self, x: ArrayLike, num_samples: int = 1000, seed: Seed = 0) -> tf.Tensor:
        """log p(x), [..., n_x] to [...], nats: exact for at most 16 stochastic units, else by `num_samples` importance
        samples; see `distribution.log_prob`."""
        return log_prob_of(self, x, num_samples, seed)

    def as_distribution(self, num_samples: int = 1000, seed: int = 0) -> Any:
        """As a distribution of TensorFlow Probability, see `distribution.DARNDistribution`."""
        return DARNDistribution(self, num_samples, seed)

    def sample(self, num: Any, seed: Seed) -> Samples:
        """Ancestral sampling (Section 2.3): the top layer unit by unit, then each layer below.

        :param num: number of draws, [] or an integer; or a tuple, the shape of these, which all of the result have
            before their last axis.
        """
        if isinstance(num, tuple | list):
            flat = self.sample(math.prod(num), seed)
            return tf.nest.map_structure(lambda part: tf.reshape(part, [*num, part.shape[-1]]), flat)
        seed = as_seed(seed)
        h: list[tf.Tensor] = []
        if self.prior is not None:
            h = [self.prior.sample(num, _fold(seed, len(self.config.hidden)))]
        for level in range(len(self.config.hidden) - 1, 0, -1):
            layer = self.decoders[level]
            offset = layer.offset(self._parents(h if self.config.skip else h[:1]))
            h.insert(0, layer.conditional.sample(num, _fold(seed, level), offset))
        x = self.decoders[0].conditional.sample(num, _fold(seed, 0), self.visible_offset(h))
        return Samples(x, tf.sigmoid(self.visible_logits(x, h)), tuple(h))

    def _conditional(self, kind: str, n: int, seed: tf.Tensor, name: str) -> Conditional:
        if kind == "local":
            assert self.config.local is not None
            return LocalCausalConditional(self.config.local, dtype=self.dtype, name=name)
        return make_conditional(
            kind,
            n,
            units=self.config.conditional_units,
            seed=seed,
            num_orders=self.config.num_orders,
            dtype=self.dtype,
            name=name,
        )

    def _dense(self, n_in: int, n_out: int, seed: tf.Tensor) -> DenseNetwork:
        sizes = [n_in, *self.config.units, n_out]
        return DenseNetwork(sizes, activation=self.config.activation, seed=seed, dtype=self.dtype)

    def _decoder(self, level: int, sizes: list[int], seed: tf.Tensor) -> Layer:
        kind = self.config.prior if level else self.config.visible_conditional
        conditional = self._conditional(kind, sizes[level], _fold(seed, 0), f"decoder_{level}")
        parents = sizes[level + 1 :] if self.config.skip else sizes[level + 1 : level + 2]
        network: Any = None
        if self.config.local is not None and level == 0 and parents:
            network = LocalDecoder(self.config.local, sum(parents), seed=_fold(seed, 1), dtype=self.dtype)
        elif parents:
            network = self._dense(sum(parents), sizes[level], _fold(seed, 1))
        return Layer(network, conditional)

    def _encoder(self, level: int, sizes: list[int], seed: tf.Tensor) -> Layer:
        conditional = self._conditional(self.config.encoder, sizes[level], _fold(seed, 0), f"encoder_{level}")
        parents = sizes[:level] if self.config.skip else sizes[level - 1 : level]
        if self.config.local is not None and level == 1:
            return Layer(
                LocalEncoder(self.config.local, sizes[level], seed=_fold(seed, 1), dtype=self.dtype), conditional
            )
        return Layer(self._dense(sum(parents), sizes[level], _fold(seed, 1)), conditional)

    def _above(self, h: Sequence[tf.Tensor], level: int) -> tf.Tensor:
        """Parents in the decoder of the stochastic layer `level` (0 is the visible one)."""
        return self._parents(h[level:] if self.config.skip else h[level : level + 1])

    def _below(self, x: tf.Tensor, h: Sequence[tf.Tensor], level: int) -> tf.Tensor:
        """Parents in the encoder of the stochastic layer h[level]."""
        centred = x - self.visible_mean
        if level == 0:
            return centred
        return tf.concat([centred, self._parents(h)], -1) if self.config.skip else self._parents(h[-1:])

    @staticmethod
    def _parents(h: Sequence[tf.Tensor]) -> tf.Tensor:
        return 2.0 * (h[0] if len(h) == 1 else tf.concat(h, -1)) - 1.0


def _fold(seed: tf.Tensor, number: int) -> tf.Tensor:
    return tf.random.experimental.stateless_fold_in(seed, number)


def _log_prob(
    conditional: Conditional, bits: tf.Tensor, offset: tf.Tensor | None, seed: tf.Tensor | None, number: int
) -> tf.Tensor:
    if seed is None:
        return conditional.log_prob(bits, offset)
    return conditional.training_log_prob(bits, offset, _fold(seed, number))
