"""Prior covariances of inducing outputs and points: GPflow's, and faster for squared exponentials.

A kernel and an inducing variable belong together; a layer has one such pair for all latent GPs, or one for each.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import (
    InducingPoints,
    InducingVariables,
    MultioutputInducingVariables,
    Multiscale,
)
from gpflow.kernels import Convolutional, Kernel, SquaredExponential

from .numerics import largest_scaled_square, scaled_rbf

__all__ = [
    "cross_covariance",
    "inducing_covariance",
    "input_dim_of",
    "largest_square",
    "latent_inducing_variables",
]


def latent_inducing_variables(inducing: InducingVariables) -> tuple[InducingVariables, ...]:
    """The inducing variables of the latent GPs: one if shared, else L."""
    if isinstance(inducing, MultioutputInducingVariables):
        return tuple(inducing.inducing_variables)
    return (inducing,)


def input_dim_of(kernel: Kernel, inducing: InducingVariables) -> int | None:
    """The number of columns of X where kernel or inducing variable tell it: those of the image, or of Z."""
    if isinstance(kernel, Convolutional):
        return int(np.prod(kernel.image_shape)) * int(kernel.colour_channels)
    if type(inducing) in (InducingPoints, Multiscale):  # Z of a subclass may live elsewhere, as patches do
        return int(inducing.Z.shape[-1])
    return None


def inducing_covariance(inducing: InducingVariables, kernel: Kernel) -> tf.Tensor:
    """Kuu without jitter. In a float32 model, squared exponentials go through float64: of unscaled inputs, rounding
    would otherwise make Kuu indefinite."""
    if _is_rbf(inducing, kernel) and inducing.Z.dtype == tf.float32:
        Z = tf.convert_to_tensor(inducing.Z)
        return tf.cast(cross_covariance(inducing, kernel, Z, tf.float64), Z.dtype)
    return Kuu(inducing, kernel, jitter=0.0)


def cross_covariance(inducing: InducingVariables, kernel: Kernel, points: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """k(Z, points), [M, B], in `dtype`; squared exponentials by one product, other kernels by GPflow."""
    if _is_rbf(inducing, kernel):
        X, Z = kernel.slice(points, tf.convert_to_tensor(inducing.Z))
        parts = (Z, X, tf.convert_to_tensor(kernel.variance), tf.convert_to_tensor(kernel.lengthscales))
        return scaled_rbf(*(tf.cast(part, dtype) for part in parts))
    return tf.cast(Kuf(inducing, kernel, points), dtype)


def largest_square(inducing: InducingVariables, kernel: Kernel, points: tf.Tensor) -> tf.Tensor | None:
    """The largest squared distance of a point from the centre of Z in lengthscales; None for other kernels."""
    if not _is_rbf(inducing, kernel):
        return None
    X, Z = kernel.slice(points, tf.convert_to_tensor(inducing.Z))
    return largest_scaled_square(Z, X, tf.convert_to_tensor(kernel.lengthscales))


def _is_rbf(inducing: InducingVariables, kernel: Kernel) -> bool:
    return type(kernel) is SquaredExponential and type(inducing) is InducingPoints
