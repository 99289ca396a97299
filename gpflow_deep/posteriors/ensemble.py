"""What a deep GP predicts from: the variational posterior itself, samples, or draws of global inducing outputs.

A deep GP whose posterior is held as K samples v^1, ..., v^K (of `sampling`) of the inducing outputs of all layers
predicts

    p(f) = 1/K sum_k E[ p(f | f^{L-1}, v^k) ]

as a mixture of S components, the same number for each of the samples: given a sample and a draw of the inner layers the
last layer is Gaussian, as in Eq. (18). With K draws of global inducing outputs it is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import Module
from gpflow.config import default_float

from ..layers.global_inducing import GlobalInducingLayer, draw_factors, is_global
from ..layers.images.weighted_convolutional import WeightedConvolutionalLayer
from ..layers.protocol import Factors, Layer
from ..layers.svgp import SVGPLayer
from ..model.quadrature import Integrator

__all__ = [
    "Ensemble",
    "InducingSamples",
    "cached_factors",
    "for_functions",
    "gps_of",
    "num_members",
    "one_draw",
    "per_member",
    "random_offset",
]


def one_draw(layers: Sequence[Layer], seed: tf.Tensor) -> Factors:
    """Factors of all layers for one draw of global inducing outputs.

    :param seed: int32 [2], of the draw.
    """
    return draw_factors(layers, tf.random.fold_in(seed, len(layers)))


def cached_factors(
    layers: Sequence[Layer],
    samples: InducingSamples | None,
    num_draws: int,
    seed: tf.Tensor,
    *,
    dtype: tf.DType | None = None,
) -> Factors:
    """As `DeepGP.cached_factors`, of a model that is sampled or has global inducing outputs.

    :param samples: to predict from; None without.
    :param num_draws: of global inducing outputs.
    :param seed: int32 [2], of them.
    """
    if samples is not None:
        return samples.cache(layers, dtype=dtype)
    # Draws of global inducing outputs; one where the last layer alone has them, whose distribution is known.
    if dtype not in (None, layers[-1].dtype):
        raise ValueError("global inducing outputs need the model's float type, got another dtype; use None.")
    count = num_members(layers, None, num_draws)
    if count == 1:
        return one_draw(layers, seed)
    return Ensemble(draw_factors(layers, tf.random.fold_in(seed, 1000), count=count))


def num_members(layers: Sequence[Layer], samples: InducingSamples | None, num_draws: int) -> int:
    """How many versions of all layers predictions are mixtures over: of the last layer alone there is one."""
    if samples is not None:
        return samples.size
    return num_draws if sum(isinstance(layer, GlobalInducingLayer) for layer in layers) > 1 else 1


def for_functions(
    layers: Sequence[Layer], samples: InducingSamples | None, num_functions: int, seed: tf.Tensor
) -> Factors:
    """Factors with known inducing outputs of each function, where they are global; else nothing."""
    if not is_global(layers):
        return ()
    # Samples of all layers but the last, or draws, as the last one's distribution given those below is known.
    chosen = [] if samples is None else [samples.chosen(i, num_functions, seed) for i in range(len(layers) - 1)]
    return draw_factors(layers, tf.random.fold_in(seed, 1000), count=num_functions, all_known=True, values=chosen)


class Ensemble(NamedTuple):
    """K versions of the factors of all layers.

    :ivar parts: of each layer, with an axis of length K in front of every tensor, or of length 1 where they are equal.
    """

    parts: Factors

    @property
    def size(self) -> int:
        """K."""
        return max((int(tensor.shape[0]) for tensor in tf.nest.flatten(self.parts)), default=1)

    def rolled(self, seed: tf.Tensor) -> Ensemble:
        """The same from a random version on, so that the first of few draws has any of them. `seed` is int32 [2]."""
        shift = random_offset(self.size, seed)

        def roll(tensor: tf.Tensor) -> tf.Tensor:
            return tf.roll(tensor, -shift, 0) if tensor.shape[0] > 1 else tensor

        return Ensemble(tf.nest.map_structure(roll, self.parts))

    def member(self, k: tf.Tensor | int) -> Factors:
        """Version k of the factors."""

        def pick(tensor: tf.Tensor) -> tf.Tensor:
            return tensor[k] if tensor.shape[0] > 1 else tensor[0]

        return tuple(tf.nest.map_structure(pick, self.parts))


@dataclass(frozen=True)
class _PerMember:
    """An integrator over inner layers and members: S / K components of each of the K members, one after the other."""

    integrator: Integrator
    num_members: int

    def num_components(self, dims: Sequence[int], num_samples: int) -> int:
        """At least `num_samples`, and a multiple of K."""
        return self.num_members * self.integrator.num_components(dims, -(-num_samples // self.num_members))

    def noise(
        self, dims: Sequence[int], num_components: int, num_points: tf.Tensor | int, seed: tf.Tensor, dtype: tf.DType
    ) -> list[tf.Tensor]:
        """Draws for all components; nodes of a quadrature are the same for each member."""
        # Draws are as many as there are components, nodes as many as a member has.
        noise = self.integrator.noise(dims, num_components, num_points, seed, dtype)
        return [eps if eps.shape[0] == num_components else tf.tile(eps, [self.num_members, 1, 1]) for eps in noise]

    def log_weights(self, dims: Sequence[int], num_components: int, dtype: tf.DType) -> tf.Tensor:
        """Those of one member, over K."""
        weights = self.integrator.log_weights(dims, num_components // self.num_members, dtype)
        return tf.tile(weights - tf.cast(np.log(self.num_members), dtype), [self.num_members])


def _shape_of(layer: Layer, *, is_last: bool) -> tuple[int, ...]:
    """Of a sample of a layer."""
    if isinstance(layer, GlobalInducingLayer):
        return (0, 0) if is_last else tuple(layer.pseudo_outputs.shape)
    gps = gps_of(layer)
    return (0, 0) if gps is None else tuple(gps.q_mu.shape)


def per_member(integrator: Integrator, num_members: int) -> Integrator:
    """The integrator of a mixture over the inner layers and over members of an ensemble."""
    return integrator if num_members == 1 else _PerMember(integrator, num_members)


class InducingSamples(Module):
    """K samples of the whitened inducing outputs of all layers, which a `DeepGP` predicts from once all are there.

    :ivar values: of each layer, [K, M, L]; [K, 0, 0] of a layer without inducing outputs, and of a last layer of global
        ones, whose distribution given those below is known.
    :ivar count: how many of the K were drawn, [].

    :param num_samples: how many samples, K.
    :param layers: of the model.
    :raises ValueError: naming a layer whose variational distribution is not over inducing outputs.
    """

    def __init__(self, num_samples: int, layers: Sequence[Layer]) -> None:
        super().__init__()
        if num_samples < 1:
            raise ValueError(f"num_samples must be at least 1, got {num_samples}.")
        shapes = [_shape_of(layer, is_last=layer is layers[-1]) for layer in layers]
        # Variables from the start, so that a checkpoint may have a part of the samples.
        zeros = [tf.zeros([num_samples, *shape], default_float()) for shape in shapes]
        self.values = [tf.Variable(value, trainable=False, name="inducing_samples") for value in zeros]
        self.count = tf.Variable(0, dtype=tf.int64, trainable=False, name="num_kept")

    @property
    def size(self) -> int:
        """K."""
        return int(self.values[0].shape[0])

    @property
    def is_complete(self) -> bool:
        """Whether all K were drawn."""
        with tf.init_scope():
            return int(self.count) >= self.size

    def keep(self, values: Sequence[tf.Tensor]) -> None:
        """One more sample, [M, L] of each layer."""
        for variable, value in zip(self.values, values, strict=True):
            if len(value):
                variable.scatter_nd_update([[int(self.count)]], value[None])
        self.count.assign_add(1)

    def cache(self, layers: Sequence[Layer], *, dtype: tf.DType | None = None) -> Ensemble:
        """What predictions need of every layer and sample; as `DeepGP.cached_factors`."""
        if is_global(layers):
            return Ensemble(draw_factors(layers, None, count=self.size, values=self.values[:-1]))
        # Of layers without inducing outputs the one version that there is.
        parts = list[object]()
        for layer, values in zip(layers, self.values, strict=True):
            gps = gps_of(layer)
            if gps is None:
                parts.append(tf.nest.map_structure(lambda tensor: tensor[None], layer.cache(dtype=dtype)))
            else:
                parts.append(gps.cache_values(tf.convert_to_tensor(values), dtype=dtype))
        return Ensemble(tuple(parts))

    def chosen(self, number: int, num_functions: int, seed: tf.Tensor) -> tf.Tensor | None:
        """Values of layer `number` for so many functions, [S, M, L]: evenly from the K, from a random one on; None
        without any.

        :param seed: int32 [2], the same for all layers.
        """
        # Evenly spaced ones, the same in all layers.
        spaced = tf.constant([s * self.size // num_functions for s in range(num_functions)])
        values = tf.gather(self.values[number], (spaced + random_offset(self.size, seed)) % self.size)
        return values if values.shape[1] else None


def random_offset(size: int, seed: tf.Tensor) -> tf.Tensor:
    """A number from 0 to `size` - 1, each as likely: int32 []. `seed` is int32 [2]."""
    return tf.random.stateless_uniform([], tf.random.fold_in(seed, 2000), maxval=size, dtype=tf.int32)


def gps_of(layer: Layer) -> SVGPLayer | None:
    """The `SVGPLayer` of a layer, which may be itself; None of a layer without a distribution of its own.

    :raises ValueError: naming a layer with a distribution over something else than inducing outputs.
    """
    # A layer of images has its GPs in an attribute; those of weighted ones are not a chain's to move.
    gps = getattr(layer, "gp", layer)
    is_weighted = isinstance(layer, WeightedConvolutionalLayer)
    if isinstance(gps, SVGPLayer) and not is_weighted:
        return gps
    if is_weighted or hasattr(layer, "q_mu") or hasattr(layer, "pseudo_outputs"):
        raise ValueError(
            f"samples can be drawn of the inducing outputs of SVGPLayer and ConvolutionalLayer, got {layer.label}, a "
            f"{type(layer).__name__}; use posterior='gaussian'."
        )
    return None
