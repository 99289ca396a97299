"""A deterministic layer: any differentiable function of a row, such as a neural network (deep kernel learning).

    network = keras.Sequential([keras.Input((8,)), keras.layers.Dense(50, "relu"), keras.layers.Dense(2)])
    features = FeatureLayer(network, input_dim=8)
    model = DeepGP([features, SVGPLayer(SquaredExponential(), features(Z))], Gaussian())

Its weights are trained with all other parameters, by maximising the bound; it has no prior and no noise. Networks of
Keras have float32 weights: for `gpflow.optimizers.Scipy`, which wants one type, make their layers with dtype="float64".
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf
from gpflow.base import Module
from gpflow.config import default_float
from gpflow.utilities import set_trainable

from ..functions.pathwise import LayerFunctions, copied
from .moments import LatentOutputs, LayerMoments, flat_points, no_factors, no_kl

__all__ = ["FeatureLayer", "mark_trainable"]


def mark_trainable(variables: Iterable[tf.Variable], flags: Iterable[bool]) -> None:
    """Say of each variable whether modules that have it count it among their `trainable_variables`."""
    for variable, flag in zip(variables, flags, strict=True):
        holder = tf.Module()
        holder.variable = variable
        set_trainable(holder, flag)


class FeatureLayer(LatentOutputs, Module):
    """f(x) = function(x).

    :param function: [rows, D] -> [rows, P]: a Keras model or layer, which is called as outside of training, a
        `tf.Module` or any other function of TensorFlow. Its results are cast to GPflow's float type. What Keras is told
        not to train by now is not trained; later, use `gpflow.set_trainable`.
    :param input_dim: columns of the inputs, D.
    :param floats_per_row: how many numbers its largest intermediate result has for each row; P if None.
    """

    num_latent_gps = 0

    def __init__(
        self, function: Callable[[tf.Tensor], tf.Tensor], input_dim: int, *, floats_per_row: int | None = None
    ) -> None:
        super().__init__()
        self.function = function
        self.input_dim = input_dim
        self.label = self.name
        self.dtype = tf.as_dtype(default_float())
        # A first call, by which a Keras layer is built.
        F = tf.convert_to_tensor(function(tf.zeros([1, input_dim], self.dtype)))
        if F.shape.rank != 2:
            raise ValueError(
                f"function must map [rows, {input_dim}] to [rows, P], got the shape {F.shape} for one row."
            )
        self.output_dim = int(F.shape[-1])
        self.floats_per_row = floats_per_row or self.output_dim
        self.__setstate__({})

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy's Keras layer has new variables, and TensorFlow does not look for those of Keras 3 layers."""
        self.__dict__.update(state)
        # The new variables, of which those are trained that were.
        weights = () if isinstance(self.function, tf.Module) else getattr(self.function, "weights", ())
        flags = [getattr(weight, "trainable", False) for weight in state.get("weights", weights)]  # of a constant: no
        self.weights = [weight.value for weight in weights]
        mark_trainable(self.weights, flags)

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """[..., D] -> [..., P]."""
        F = tf.cast(self.function(flat_points(X)), self.dtype)
        return tf.reshape(F, tf.concat([tf.shape(X)[:-1], F.shape[-1:]], axis=0))

    factors = cache = no_factors
    prior_kl = no_kl

    def latent_moments(self, X: tf.Tensor, factors: object = (), *, full_cov: bool = False) -> LayerMoments:
        """The features [..., N, P], and variances or covariances of 0."""
        F = self(X)
        zeros = tf.zeros_like(F)
        return LayerMoments(F, tf.linalg.diag(tf.linalg.matrix_transpose(zeros)) if full_cov else zeros)

    def sample(self, X: tf.Tensor, moments: LayerMoments, noise: tf.Tensor, *, full_cov: bool = False) -> tf.Tensor:
        """The features [S or 1, N, P]."""
        return moments.mean[None] if moments.mean.shape.rank == 2 else moments.mean

    def sample_functions(self, num_functions: int, seed: tf.Tensor, **options: object) -> LayerFunctions:
        """The features, by a copy of the layer: all draws are the same."""
        return functools.partial(_features, copied(self))


def _features(layer: FeatureLayer, X: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    return layer(X)
