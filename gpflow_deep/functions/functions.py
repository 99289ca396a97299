"""Functions drawn from a deep GP: Matheron's rule in every layer (Wilson et al. 2020; Sec. 3.1 of [1] for the chain).

    functions = model.sample_functions(5)
    functions(X)  # [5, N, P]: the same five functions whenever and at whatever inputs they are asked for

A draw of every layer as a function (`layers.pathwise`), composed: f = f^L o ... o f^1. An input costs what the
features and the inducing inputs cost, whatever other inputs there are.

[1] Salimbeni and Deisenroth, "Doubly Stochastic Variational Inference for Deep Gaussian Processes", NIPS 2017.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import get_args

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ..layers.chunking import length_of, map_slices
from ..layers.global_inducing import GlobalFactors, GlobalInducingLayer
from ..layers.protocol import Layer
from ..model.scaling import Scale
from ..posteriors.ensemble import InducingSamples
from .pathwise import FunctionNoise, LayerFunctions, copied
from .white_noise import row_keys

__all__ = ["NUM_FEATURES", "AtPoints", "FunctionDraws", "draw_functions"]

#: Default number of random Fourier features of each latent GP: half of them cosines, half sines.
NUM_FEATURES = 256

#: What one slice of the inputs may hold, in bytes of its largest temporary array.
SLICE_BYTES = 48 * 2**20


class FunctionDraws(tf.Module):
    """S functions drawn from a deep GP, as it was then. They can be differentiated, pickled and exported by TensorFlow.

    :ivar num_functions: how many functions, S.
    :ivar input_dim: D, or None if the first layer takes any number.
    :ivar output_dim: columns of the outputs, P.
    """

    def __init__(
        self,
        layers: Sequence[LayerFunctions],
        num_functions: int,
        input_dim: int | None,
        output_dim: int,
        dtype: tf.DType,
        floats_per_row: int,
    ) -> None:
        super().__init__()
        self.layers = list(layers)
        self.num_functions = num_functions
        self.dtype = dtype
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.floats_per_row = floats_per_row

    def __call__(self, X: TensorType) -> tf.Tensor:
        """Values [S, N, P] at X [N, D], or at X [S, N, D] of function s at the N inputs X[s].

        :raises ValueError: if X has another shape or float type.
        """
        X = self._checked(X)
        # In slices of rows, which for three axes are those of each function.
        size = max(1, SLICE_BYTES // (self.dtype.size * self.num_functions * self.floats_per_row))

        def values(start: tf.Tensor, stop: tf.Tensor) -> list[tf.Tensor]:
            return [self._values(X[..., start:stop, :])]

        length = length_of(X) if X.shape.rank == 2 else length_of(X[0])
        (F,) = map_slices(values, length, size, [self.dtype], axis=1)
        return tf.ensure_shape(F, [self.num_functions, X.shape[-2], self.output_dim])

    def in_units(self, x: Scale, y: Scale) -> FunctionDraws:
        """The same functions of inputs and with values in other units: `y.inverse_transform(f(x.transform(X)))`."""
        into = functools.partial(_affine, 1.0 / x.scale, -x.mean / x.scale)
        back = functools.partial(_affine, y.scale, y.mean)
        sizes = self.num_functions, self.input_dim, self.output_dim, self.dtype, self.floats_per_row
        return FunctionDraws([into, *self.layers, back], *sizes)

    def _values(self, X: tf.Tensor) -> tf.Tensor:
        # f = f^L o ... o f^1, with noise that is a function of the model's inputs.
        keys = row_keys(X)
        F = X
        for layer in self.layers:
            F = layer(F, keys)
        shape = [self.num_functions, tf.shape(X)[-2], self.output_dim]
        return F if F.shape.rank == 3 else tf.broadcast_to(F, shape)

    def _checked(self, X: TensorType) -> tf.Tensor:
        dtype = getattr(X, "dtype", None)
        if dtype is not None and tf.as_dtype(dtype) != self.dtype:
            raise ValueError(
                f"X must have the float type of the model, {self.dtype.name}, got {tf.as_dtype(dtype).name}; cast X."
            )
        X = tf.convert_to_tensor(X, self.dtype)
        S = self.num_functions
        D = self.input_dim
        if X.shape.rank not in (2, 3) or not X.shape[-1:].is_compatible_with([D]):
            raise ValueError(f"X must have shape [N, {D or 'D'}] or [{S}, N, {D or 'D'}], got {X.shape}.")
        if X.shape.rank == 3 and X.shape[0] != S:
            raise ValueError(f"X of three axes must have inputs of each of the {S} functions, got shape {X.shape}.")
        return X


class AtPoints(tf.Module):
    """Functions mean(x) + sqrt(var(x)) eps_s of a layer as it is now: the eps_s of each is the same at all inputs.

    :param noise: eps, [S, 1, L].
    """

    def __init__(self, layer: Layer, noise: tf.Tensor) -> None:
        super().__init__()
        self.layer = copied(layer)
        self.noise = noise
        self._factors = self.layer.cache()

    def __call__(self, X: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """[N, D] or [S, N, D] -> [S, N, P]."""
        return self.layer.sample(X, self.layer.latent_moments(X, self._factors), self.noise)


def draw_functions(
    layers: Sequence[Layer],
    num_functions: int,
    *,
    num_features: int,
    noise: FunctionNoise,
    seed: tf.Tensor,
    samples: InducingSamples | None = None,
    members: Sequence[GlobalFactors] = (),
    points: Sequence[tf.Tensor] = (),
) -> FunctionDraws:
    """Draw functions of every layer and compose them.

    :param layers: which have a method `sample_functions`.
    :param seed: int32 [2]; layer l gets `fold_in(seed, l)`.
    :param samples: of the inducing outputs, which the functions go through in place of draws from q(u).
    :param members: of each layer the factors of all functions, with known global inducing outputs.
    :param points: of each inner layer noise [S, 1, L] that its functions have at all inputs, see `AtPoints`.
    :raises ValueError: as `DeepGP.sample_functions`.
    """
    if num_functions < 1:
        raise ValueError(f"num_functions must be at least 1, got {num_functions}.")
    if num_features < 2 or num_features % 2:
        raise ValueError(f"num_features must be even and at least 2 (cosines and sines), got {num_features}.")
    if noise not in get_args(FunctionNoise):
        raise ValueError(f"noise must be 'shared' or 'white', got {noise!r}.")
    if not tf.executing_eagerly():
        raise ValueError("functions must be drawn outside of tf.function; call them inside.")
    drawn = []
    for number, layer in enumerate(layers, start=1):
        seed_of_layer = tf.random.fold_in(seed, number)
        if isinstance(layer, GlobalInducingLayer):
            # Through known global inducing outputs of each function.
            factors = members[number - 1]
            drawn.append(layer.functions_of(factors, seed_of_layer, num_features=num_features, noise=noise))
            continue
        if number <= len(points) and layer.num_latent_gps:
            # At the same point of the noise for all inputs.
            drawn.append(AtPoints(layer, points[number - 1]))
            continue
        if not hasattr(layer, "sample_functions"):
            raise ValueError(
                f"functions can be drawn of layers with a method sample_functions, got {type(layer).__name__} as layer "
                f"{number}; see gpflow_deep.SVGPLayer.sample_functions for what it returns."
            )
        # By Matheron's rule, through samples of the inducing outputs or draws from q(u).
        values = None if samples is None else samples.chosen(number - 1, num_functions, seed)
        through = {} if values is None else {"values": values}  # only layers with inducing outputs take them
        drawn.append(
            layer.sample_functions(num_functions, seed_of_layer, num_features=num_features, noise=noise, **through)
        )
    # The largest array for a row: of functions, or of the moments of layers at points.
    largest = max(_floats_per_row(layer, num_features) for layer in layers)
    largest = max([largest, *(int(layer.floats_per_row) for layer, _ in zip(layers, points, strict=False))])
    first = layers[0]
    last = layers[-1]
    return FunctionDraws(drawn, num_functions, first.input_dim, last.output_dim, last.dtype, largest)


def _affine(slope: np.ndarray, offset: np.ndarray, X: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    return X * tf.constant(slope, X.dtype) + tf.constant(offset, X.dtype)


def _floats_per_row(layer: Layer, num_features: int) -> int:
    """Numbers in the largest array of one function for each row: its features, or covariances with inducing inputs."""
    num_points = getattr(layer, "num_patches", 1)
    return max(num_points * num_features, int(layer.floats_per_row) // max(1, int(layer.num_latent_gps)))
