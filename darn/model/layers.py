"""Layers of a DARN: a network of deterministic units turns parents into logits, a conditional adds the earlier bits
(Gregor et al., 2014, Eqs. 5, 7-10); and which layers see which (Section 2.2, Eqs. 7-8): the one order of all passes.

Layer 0 is the visible one, 1 to L are the stochastic ones. In the decoder a layer sees the next one above it, in the
encoder the next one below; with skip connections all of them. Passes go from the top down or from the visible layer up,
and are the same for floating-point numbers (`model`) and for integers (`integer_model`): who calls says what a bit is
and how bits are drawn.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import tensorflow as tf

from darn.images.local import LocalCausalConditional, LocalDecoder, LocalEncoder, LocalMap, LocalUnitsConditional
from darn.images.pixelcnn import PixelCNNConditional
from darn.model.autoregressive import Conditional, FactorialConditional, LinearConditional
from darn.model.categories import Category
from darn.model.config import DARNConfig
from darn.more.made import MADEConditional
from darn.more.nade import EoNADEConditional, NADEConditional

__all__ = [
    "ACTIVATIONS",
    "CONDITIONALS",
    "EONADE_ORDERS",
    "DenseNetwork",
    "Layer",
    "Wiring",
    "forward",
    "make_conditional",
    "make_decoder",
    "make_encoder",
]

Bits = TypeVar("Bits")
Network = Callable[[tf.Tensor], tf.Tensor]


@dataclass(frozen=True)
class Wiring:
    """The layers of a model.

    :param sizes: units of each layer, the visible one first.
    :param skip: layers see all layers beyond them.
    """

    sizes: tuple[int, ...]
    skip: bool

    @property
    def top(self) -> int:
        """Number of the top layer L; 0 without stochastic layers."""
        return len(self.sizes) - 1

    def above(self, level: int) -> range:
        """The layers that layer `level` sees in the decoder; none for the top layer."""
        return range(level + 1, (self.top if self.skip else min(level + 1, self.top)) + 1)

    def below(self, level: int) -> range:
        """The layers that layer `level`, from 1 on, sees in the encoder."""
        return range(0 if self.skip else level - 1, level)

    def upward(self, x: Bits, draw: Callable[[int, list[Bits]], Bits]) -> list[Bits]:
        """Bits of all layers by the encoder, from those of the visible layer.

        :param draw: bits of a layer, from its number and the bits of the layers that it sees.
        """
        bits = [x]
        for level in range(1, self.top + 1):
            bits.append(draw(level, [bits[other] for other in self.below(level)]))
        return bits

    def downward(self, draw: Callable[[int, list[Bits]], Bits]) -> list[Bits]:
        """Bits of all layers by the decoder, drawn from the top layer down to the visible one."""
        bits: dict[int, Bits] = {}
        for level in range(self.top, -1, -1):
            bits[level] = draw(level, [bits[other] for other in self.above(level)])
        return [bits[level] for level in range(self.top + 1)]

    def seen_above(self, bits: Sequence[Bits], level: int) -> list[Bits]:
        """Of known bits of all layers those that layer `level` sees in the decoder."""
        return [bits[other] for other in self.above(level)]

    def seen_below(self, bits: Sequence[Bits], level: int) -> list[Bits]:
        """Of known bits of the layers below `level` at least those that it sees in the encoder."""
        return [bits[other] for other in self.below(level)]


CONDITIONALS = ("linear", "nade", "eonade", "made")

EONADE_ORDERS = 16
"""Over which an EoNADE averages if their number is not given."""


def make_conditional(
    kind: str,
    n: int,
    *,
    units: int,
    seed: tf.Tensor,
    orders: int | None = None,
    categories: Sequence[Category] = (),
    dtype: tf.DType = tf.float32,
    name: str,
) -> Conditional:
    """A conditional by its name: "factorial" or one of :data:`CONDITIONALS`.

    :param units: deterministic units of NADE, EoNADE and MADE; the others ignore it.
    :param seed: int32 [2], of the initial weights.
    :param orders: of the bits, over which EoNADE and MADE average; 16 and 1 if not given. The others ignore it.
    :param categories: bits that are one variable; linear conditionals alone take them.
    :raises ValueError: if the kind is not known.
    """
    # One bit sees no other.
    if kind == "factorial" or n == 1:
        return FactorialConditional(n, dtype=dtype, name=name)
    if kind == "linear":
        return LinearConditional(n, categories=categories, dtype=dtype, name=name)
    if kind == "nade":
        return NADEConditional(n, units, seed=seed, dtype=dtype, name=name)
    if kind == "eonade":
        num_orders = orders or EONADE_ORDERS
        return EoNADEConditional(n, units, seed=seed, num_orders=num_orders, dtype=dtype, name=name)
    if kind == "made":
        return MADEConditional(n, (units,), seed=seed, num_orders=orders or 1, dtype=dtype, name=name)
    raise ValueError(f"conditional must be one of {', '.join(CONDITIONALS)}, got {kind!r}.")


ACTIVATIONS = {"tanh": tf.tanh, "relu": tf.nn.relu}

Numbers = TypeVar("Numbers")


def forward(
    x: Numbers, maps: Sequence[Callable[[Numbers], Numbers]], activate: Callable[[Numbers], Numbers]
) -> Numbers:
    """Affine maps with units between them: the pass of every network, of floats and of integers."""
    for affine in maps[:-1]:
        x = activate(affine(x))
    return maps[-1](x)


class DenseNetwork(tf.Module):
    """Deterministic layers (Eq. 9), then a linear map to logits, without a bias: the conditional has it.

    :ivar kernels: variables [n_in, n_1], ..., [n_m, n_out].
    :ivar biases: of the deterministic layers.
    """

    def __init__(
        self, sizes: Sequence[int], *, activation: str, seed: tf.Tensor, dtype: tf.DType, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        self.activation = activation
        seeds = tf.unstack(tf.random.experimental.stateless_split(seed, len(sizes) - 1))
        self.kernels = []
        for i, (n_in, n_out) in enumerate(itertools.pairwise(sizes)):
            # Uniform with the variance 2 / (n_in + n_out) (Glorot and Bengio, 2010).
            scale = math.sqrt(6.0 / (n_in + n_out))
            kernel = tf.random.stateless_uniform([n_in, n_out], seeds[i], -scale, scale, dtype)
            self.kernels.append(tf.Variable(kernel, name=f"kernel_{i}"))
        self.biases = [tf.Variable(tf.zeros([n], dtype), name=f"bias_{i}") for i, n in enumerate(sizes[1:-1])]

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """[B, n_in] to [B, n_out]."""
        # Eq. (9): tanh(W h + b) again and again; the last map has no bias.
        maps = [functools.partial(_affine, *pair) for pair in zip(self.kernels, [*self.biases, None], strict=True)]
        return forward(x, maps, ACTIVATIONS[self.activation])


def _affine(kernel: tf.Tensor, bias: tf.Tensor | None, x: tf.Tensor) -> tf.Tensor:
    y = tf.linalg.matmul(x, kernel)
    return y if bias is None else y + bias


class Layer(tf.Module):
    """Bits given parents: `network` gives the offset of the logits of `conditional`.

    :ivar network: None for a layer without parents: the prior, or the visible layer of a model without stochastic ones.
    """

    def __init__(self, network: Any, conditional: Conditional, name: str | None = None) -> None:
        super().__init__(name=name)
        self.network = network
        self.conditional = conditional

    def offset(self, parents: tf.Tensor | None) -> tf.Tensor | None:
        """[B, n_parents] to [B, n]; None without parents."""
        return None if self.network is None else self.network(parents)


def make_decoder(config: DARNConfig, wiring: Wiring, level: int, seed: tf.Tensor) -> Layer:
    """p(h^level | the layers above), level 0 being the visible layer."""
    kind = config.prior if level else config.visible_conditional
    parents = sum(wiring.sizes[other] for other in wiring.above(level))
    local = config.local
    name = f"decoder_{level}"
    grids = len(local.hidden) if local else 0  # how many of the stochastic layers are
    # How the units of the layer depend on each other.
    if local is not None and 1 <= level <= grids:
        # A stochastic layer on a grid: a unit sees the earlier ones of its neighbourhood.
        size = {"kernel": local.units_kernel, "period": local.period}
        conditional: Conditional = LocalUnitsConditional(local.grids[level], **size, dtype=config.dtype, name=name)
    else:
        categories = () if level else config.categories
        key = tf.random.fold_in(seed, 0)
        conditional = _conditional(config, kind, wiring.sizes[level], key, name, config.orders, categories)
    # How they depend on the layers above.
    network: Network | None = None
    if local is not None and level < grids:
        network = LocalMap(local, level, "down", seed=tf.random.fold_in(seed, 1), dtype=tf.as_dtype(config.dtype))
    elif parents and config.local is not None and level == 0:
        network = LocalDecoder(config.local, parents, seed=tf.random.fold_in(seed, 1), dtype=tf.as_dtype(config.dtype))
    elif parents:
        network = _dense(config, parents, conditional.offset_size, tf.random.fold_in(seed, 1))
    return Layer(network, conditional)


def make_encoder(config: DARNConfig, wiring: Wiring, level: int, seed: tf.Tensor) -> Layer:
    """q(h^level | the layers below), for level from 1 on."""
    n = wiring.sizes[level]
    conditional = _conditional(config, config.encoder, n, tf.random.fold_in(seed, 0), f"encoder_{level}")
    local = config.local
    dtype = tf.as_dtype(config.dtype)
    # Layers on grids see patches of the grid below; else local maps lead from the image to h^1.
    if local is not None and level <= len(local.hidden):
        return Layer(LocalMap(local, level - 1, "up", seed=tf.random.fold_in(seed, 1), dtype=dtype), conditional)
    if config.local is not None and level == 1:
        return Layer(LocalEncoder(config.local, n, seed=tf.random.fold_in(seed, 1), dtype=dtype), conditional)
    parents = sum(wiring.sizes[other] for other in wiring.below(level))
    return Layer(_dense(config, parents, n, tf.random.fold_in(seed, 1)), conditional)


def _dense(config: DARNConfig, n_in: int, n_out: int, seed: tf.Tensor) -> DenseNetwork:
    sizes = [n_in, *config.units, n_out]
    return DenseNetwork(sizes, activation=config.activation, seed=seed, dtype=tf.as_dtype(config.dtype))


def _conditional(
    config: DARNConfig,
    kind: str,
    n: int,
    seed: tf.Tensor,
    name: str,
    orders: int | None = None,
    categories: Sequence[Category] = (),
) -> Conditional:
    # Conditionals of images are made of configurations of their own.
    dtype = tf.as_dtype(config.dtype)
    if kind == "local":
        assert config.local is not None
        return LocalCausalConditional(config.local, dtype=dtype, name=name)
    if kind == "pixelcnn":
        assert config.pixelcnn is not None
        return PixelCNNConditional(config.pixelcnn, seed=seed, dtype=dtype, name=name)
    return make_conditional(
        kind,
        n,
        units=config.conditional_units,
        seed=seed,
        orders=orders,
        categories=categories,
        dtype=dtype,
        name=name,
    )
