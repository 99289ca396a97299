"""Deep autoregressive networks (Gregor et al., 2014, Section 2): encoder q(H | X), decoder p(X, H).

    p(x, h) = p(h^L) prod_{l<L} p(h^l | h^{l+1}) p(x | h^1),     q(h | x) = q(h^1 | x) prod_l q(h^{l+1} | h^l).

Each factor is a layer: a network of deterministic units turns the parents into logits, and a conditional adds what each
bit sees of the bits before it (Eqs. 5, 7-10). With skip connections a layer sees all stochastic layers beyond it, not
only the next.

Networks get stochastic units as 2h - 1 and visible units minus their means, which biases could absorb.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from darn.model.autoregressive import Unit, bernoulli_log_prob, logistic_noise, threshold
from darn.model.categories import levels_in_order
from darn.model.config import DARNConfig, check_data
from darn.model.layers import Layer, Wiring, make_decoder, make_encoder
from darn.more.distribution import DARNDistribution
from darn.more.distribution import log_prob as log_prob_of
from gpflow_deep_base.runtime.tracing import Graphs
from gpflow_deep_base.seeds import Seed, as_seed

__all__ = ["DARN", "DARNConfig", "Encoded", "Samples", "check_data"]


class Encoded(NamedTuple):
    """Bits of each stochastic layer [B, n_l], and the logits of q that they were drawn with."""

    h: tuple[tf.Tensor, ...]
    logits: tuple[tf.Tensor, ...]


class Samples(NamedTuple):
    """Draws of the decoder: visible bits `x` [S, n_x], their `probs` given what came before, and `h`, [S, n_l] each."""

    x: tf.Tensor
    probs: tf.Tensor
    h: tuple[tf.Tensor, ...]


class DARN(tf.Module):
    """A deep autoregressive network.

    :ivar config: what it is made of.
    :ivar visible_mean: what is subtracted from visible units before the encoder's networks, variable [n_x].
    :ivar wiring: which layers see which.
    :ivar decoders: L + 1 layers, p(x | h^1, ...), p(h^1 | h^2, ...), ..., p(h^L); the last has no parents.
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
        self.wiring = wiring = Wiring((config.visible, *config.hidden), config.skip)
        levels = range(wiring.top + 1)
        # A seed for each layer, so that one layer's weights do not depend on the others' sizes.
        self.decoders = [make_decoder(config, wiring, level, tf.random.fold_in(seed, 1 + level)) for level in levels]
        self.encoders = [
            make_encoder(config, wiring, level, tf.random.fold_in(seed, 1001 + level)) for level in levels[1:]
        ]
        self.graphs = Graphs()
        if data is not None:
            self.initialise(data)

    def initialise(self, data: ArrayLike) -> None:
        """Set `visible_mean` and the visible biases to the data's means and their logits, as the best model without
        weights would have them; of a level, among the rows without an earlier one; means are kept 1 / (N + 2) away from
        0 and 1.

        :raises ValueError: see :func:`check_data`.
        """
        x = check_data(data, self.config)
        # How often each bit is 1; a level, where it can be.
        mean = x.mean(axis=0, dtype=np.float64)
        margin = 1.0 / (len(x) + 2.0)
        share = mean.copy()
        for j, level in levels_in_order(self.config.categories, np.arange(len(mean))).items():
            share[j] = mean[j] / max(1.0 - mean[level.earlier].sum(), margin)  # of the rows without an earlier level
        # The biases are the logits of these shares, which are kept off 0 and 1.
        clipped = np.clip(share, margin, 1.0 - margin)
        self.visible_mean.assign(tf.constant(mean, self.dtype))
        self.decoders[0].conditional.bias.assign(tf.constant(np.log(clipped) - np.log1p(-clipped), self.dtype))

    @property
    def prior(self) -> Any:
        """The conditional of the top layer, p(h^L); None without stochastic layers."""
        return self.decoders[-1].conditional if self.config.hidden else None

    @property
    def num_hidden(self) -> int:
        """Stochastic hidden units of all layers together."""
        return sum(self.config.hidden)

    def encoder_noise(self, num: int | tf.Tensor, seed: Seed) -> tuple[tf.Tensor, ...]:
        """Logistic noise for :meth:`encode`, [num, n_l] for each layer."""
        seed = as_seed(seed)
        return tuple(
            logistic_noise([num, n], tf.random.fold_in(seed, level), self.dtype)
            for level, n in enumerate(self.config.hidden)
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
        logits: list[tf.Tensor] = []

        def draw(level: int, below: list[tf.Tensor]) -> tf.Tensor:
            layer = self.encoders[level - 1]
            offset = layer.offset(self._inputs([x] if level == 1 else below, self.wiring.below(level)))
            # All draws of a row share the pass through the first network.
            if level == 1:
                offset = tf.tile(offset, [copies, 1])
            # Independent units (Eq. 6) are drawn at once, others one after the other.
            if self.config.encoder == "factorial":
                logits.append(layer.conditional.logits(offset, offset))
                return unit(logits[-1], noise[level - 1])
            h = layer.conditional.sample_from_noise(noise[level - 1], offset, unit)
            logits.append(layer.conditional.logits(h, offset))
            return h

        bits = self.wiring.upward(tf.tile(x, [copies, 1]) if self.config.skip else x, draw)
        return Encoded(tuple(bits[1:]), tuple(logits))

    def encoder_logits(self, x: tf.Tensor, h: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        """Logits of q for given bits of all layers, [B, n_l] each."""
        # Eq. (6), and (8) with bits of the same layer before each.
        logits = []
        for level, layer in enumerate(self.encoders, start=1):
            below = self.wiring.seen_below([x, *h], level)
            offset = layer.offset(self._inputs(below, self.wiring.below(level)))
            logits.append(layer.conditional.logits(h[level - 1], offset))
        return tuple(logits)

    def log_q(self, x: tf.Tensor, h: Sequence[tf.Tensor]) -> tf.Tensor:
        """log q(h | x), [B], nats."""
        # Eqs. (6), (8): a factor for each layer, given the layers below.
        zero = tf.zeros(tf.shape(x)[:-1], self.dtype)
        pairs = zip(h, self.encoder_logits(x, h), strict=True)
        return sum((bernoulli_log_prob(bits, logits) for bits, logits in pairs), zero)

    def log_prior(self, h: Sequence[tf.Tensor]) -> tf.Tensor:
        """log p(h) of all stochastic layers (Eqs. 1, 7), [B], nats; needs at least one layer."""
        levels = range(1, self.wiring.top + 1)
        return tf.add_n(
            [self.decoders[level].conditional.log_prob(h[level - 1], self._offset(h, level)) for level in levels]
        )

    def log_visible(self, x: tf.Tensor, h: Sequence[tf.Tensor]) -> tf.Tensor:
        """log p(x | h) (Eqs. 3, 5), [B], nats; minus the cross-entropy for intensities."""
        return self.decoders[0].conditional.log_prob(x, self._offset(h, 0))

    def in_training(self, seed: tf.Tensor) -> DARN:
        """What training maximises: this model, its variables shared, in which conditionals that are mixtures over
        orders of their bits are estimated in orders drawn from `seed`; the model itself if there are none.
        """
        if not any(layer.conditional.is_mixture for layer in self.decoders):
            return self
        view = copy.copy(self)
        layers = [
            Layer(layer.network, layer.conditional.in_training(tf.random.fold_in(seed, level)))
            for level, layer in enumerate(self.decoders)
        ]
        view.__dict__["decoders"] = layers  # not by attribute: TensorFlow would track them in place of this model's own
        return view

    def log_joint(self, x: tf.Tensor, h: Sequence[tf.Tensor]) -> tf.Tensor:
        """log p(x, h), [B], nats."""
        return self.log_visible(x, h) + (self.log_prior(h) if h else 0.0)

    def visible_offset(self, h: Sequence[tf.Tensor]) -> tf.Tensor | None:
        """What the stochastic layers add to the logits of the visible units, [B, n_x]; None without such layers."""
        return self._offset(h, 0)

    def visible_logits(self, x: tf.Tensor, h: Sequence[tf.Tensor]) -> tf.Tensor:
        """Logits of each visible unit given h and the visible units before it, [B, n_x]."""
        return self.decoders[0].conditional.logits(x, self.visible_offset(h))

    def log_prob(self, x: ArrayLike, num_samples: int = 1000, seed: Seed = 0) -> tf.Tensor:
        """log p(x), [..., n_x] to [...], nats: exact for at most 16 stochastic units, else by `num_samples` importance
        samples; see `distribution.log_prob`."""
        return log_prob_of(self, x, num_samples, seed)

    def as_distribution(
        self, num_samples: int = 1000, seed: int = 0, *, validate_args: bool = False
    ) -> DARNDistribution:
        """As a distribution of TensorFlow Probability, see `distribution.DARNDistribution`."""
        return DARNDistribution(self, num_samples, seed, validate_args)

    def sample(self, num: int | tf.Tensor | tuple[int, ...] | list[int], seed: Seed) -> Samples:
        """Ancestral sampling (Section 2.3): the top layer unit by unit, then each layer below.

        :param num: number of draws, [] or an integer; or a tuple, the shape of these, which all of the result have
            before their last axis.
        """
        if isinstance(num, tuple | list):
            # A shape of draws is drawn flat, so that the bits of a seed depend on their number alone.
            flat = self.sample(math.prod(num), seed)
            return tf.nest.map_structure(lambda part: tf.reshape(part, [*num, part.shape[-1]]), flat)
        seed = as_seed(seed)
        logits = []

        def draw(level: int, above: list[tf.Tensor]) -> tf.Tensor:
            layer = self.decoders[level]
            offset = layer.offset(self._inputs(above))
            # Eqs. (1), (7): a stochastic layer; Eqs. (3), (5): the visible units.
            if level:
                return layer.conditional.sample(num, tf.random.fold_in(seed, level), offset)
            x, a = layer.conditional.sample_with_logits(num, tf.random.fold_in(seed, level), offset)
            logits.append(a)
            return x

        x, *h = self.wiring.downward(draw)
        return Samples(x, tf.sigmoid(logits[0]), tuple(h))

    def _offset(self, h: Sequence[tf.Tensor], level: int) -> tf.Tensor | None:
        """What the layers above add to the logits of the decoder's layer `level`, [B, n]; None without such layers."""
        return self.decoders[level].offset(self._inputs(self.wiring.seen_above((None, *h), level)))

    def _inputs(self, bits: Sequence[tf.Tensor], levels: Sequence[int] = ()) -> tf.Tensor | None:
        """Bits of layers as networks get them: stochastic ones as 2h - 1, visible ones (level 0) minus their means."""
        # Only the encoder's inputs have levels: there level 0 is the visible layer.
        visible = [x - self.visible_mean for x, level in zip(bits, levels, strict=False) if level == 0]
        hidden = [2.0 * h - 1.0 for h in bits[len(visible) :]]
        parts = [*visible, *hidden]
        return None if not parts else parts[0] if len(parts) == 1 else tf.concat(parts, -1)
