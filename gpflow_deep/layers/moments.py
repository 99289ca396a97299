"""Distributions of independent latent GPs at some points: draws from them, and the covariances of a layer's outputs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from .numerics import robust_cholesky

__all__ = [
    "LatentOutputs",
    "LayerMoments",
    "by_rows",
    "draw",
    "flat_points",
    "mix",
    "no_factors",
    "no_kl",
    "outputs_covariance",
    "prepend_certain",
    "root_of_joint",
    "root_of_variance",
]

#: Below this variance the slope of its root stays finite; float32 rounds away more than this.
SMALLEST_SMOOTH = 1e-12

#: What the first attempt to factorise a joint covariance of a draw adds, in roundings of its mean variance.
JOINT_ROUNDING = 100.0

#: Added to the joint covariance of a certain layer: its draws move by 1e-15, and slopes of its factor stay finite.
LEAST_JOINT = 1e-30


class LayerMoments(NamedTuple):
    """Mean and covariance of the layer's L latent GPs at its inputs, without mean function and mixing.

    :ivar mean: [..., N, L].
    :ivar cov: marginal variances [..., N, L], or with `full_cov` [..., L, N, N]. Includes the noise between layers.
    """

    mean: tf.Tensor
    cov: tf.Tensor


def flat_points(X: tf.Tensor) -> tf.Tensor:
    """[..., D] -> [rows, D], also where D is not known while tracing."""
    return tf.reshape(X, [-1, tf.shape(X)[-1] if X.shape[-1] is None else X.shape[-1]])


def by_rows(A: tf.Tensor, lead: tf.Tensor, rank: int) -> tf.Tensor:
    """[L, M, rows] -> [..., L, M, N], for inputs [..., N, D] of this rank."""
    A = tf.reshape(A, tf.concat([tf.shape(A)[:2], lead], axis=0))
    return tf.transpose(A, [*range(2, rank), 0, 1, rank])


def draw(moments: LayerMoments, noise: tf.Tensor, *, full_cov: bool, label: str) -> tf.Tensor:
    """`mean + sqrt(cov) noise`, Eq. (15), by standard deviations or with `full_cov` by a Cholesky factor.

    :param noise: [S, N, L]; N may be 1.
    :param label: what the layer is called, for errors.
    :return: [S, N, L].
    """
    mean, cov = moments
    if not full_cov:
        return mean + root_of_variance(cov) * noise
    root = root_of_joint(cov, label=f"{label}: joint covariance of the outputs at the given inputs")
    wide = tf.broadcast_to(noise, tf.broadcast_dynamic_shape(tf.shape(noise), tf.shape(mean)))
    drawn = tf.matmul(root, tf.linalg.matrix_transpose(wide)[..., None])[..., 0]  # [S, L, N]
    return mean + tf.linalg.matrix_transpose(drawn)


def root_of_variance(variance: tf.Tensor) -> tf.Tensor:
    """Standard deviations: exactly the roots of variances from `SMALLEST_SMOOTH` on, 0 for variances of 0 or less
    (which rounding makes), and `variance / sqrt(SMALLEST_SMOOTH)` between, whose slope is finite.
    """
    variance = tf.maximum(variance, 0.0)
    return variance / tf.sqrt(tf.maximum(variance, tf.constant(_smallest_smooth(variance.dtype), variance.dtype)))


def root_of_joint(cov: tf.Tensor, *, label: str) -> tf.Tensor:
    """Cholesky factor of the joint covariance [..., N, N] of a draw, which gets no more variance than its own rounding
    needs: `JOINT_ROUNDING` units in the last place of its mean variance at first, and ten times that where it fails.

    :param label: what is factorised, for errors.
    """
    eps = float(np.finfo(cov.dtype.as_numpy_dtype).eps)
    scale = tf.reduce_mean(tf.maximum(tf.linalg.diag_part(tf.stop_gradient(cov)), 0.0))
    jitter = tf.maximum(JOINT_ROUNDING * eps * scale, tf.constant(LEAST_JOINT, cov.dtype))
    # What remains of a certain layer is the rounding of the variances that were subtracted from each other.
    rounding = JOINT_ROUNDING * _smallest_smooth(cov.dtype)
    return robust_cholesky(cov, label=label, jitter=jitter, allowed_jitter=rounding)


def _smallest_smooth(dtype: tf.DType) -> float:
    return max(SMALLEST_SMOOTH, float(np.finfo(dtype.as_numpy_dtype).eps))


def outputs_covariance(moments: LayerMoments, *, full_cov: bool, full_output_cov: bool) -> tf.Tensor:
    """Covariance of L independent outputs in the shapes of `Layer.outputs`."""
    mean, cov = moments
    if full_cov and full_output_cov:
        return tf.einsum("...pnm,pq->...npmq", cov, tf.eye(mean.shape[-1], dtype=cov.dtype))
    return tf.linalg.diag(cov) if full_output_cov else cov


class LatentOutputs:
    """A part of `Layer` for those whose outputs are their latent GPs, without mean function and mixing."""

    label: str

    def outputs(
        self, X: tf.Tensor, moments: LayerMoments, *, full_cov: bool = False, full_output_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and covariance in the shapes of `Layer.outputs`."""
        return moments.mean, outputs_covariance(moments, full_cov=full_cov, full_output_cov=full_output_cov)

    def sample(self, X: tf.Tensor, moments: LayerMoments, noise: tf.Tensor, *, full_cov: bool = False) -> tf.Tensor:
        """Draws [S, N, P], Eq. (15)."""
        return draw(moments, noise, full_cov=full_cov, label=self.label)


def mix(
    W: TensorType, mean: tf.Tensor, cov: tf.Tensor, full_cov: bool, full_output_cov: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """Moments of f = W g, W [P, L], for independent latent GPs g."""
    W = tf.convert_to_tensor(W)
    mean = tf.matmul(mean, W, transpose_b=True)
    if full_cov and full_output_cov:
        return mean, tf.einsum("...lnm,pl,ql->...npmq", cov, W, W)
    if full_cov:
        return mean, tf.einsum("...lnm,pl->...pnm", cov, tf.square(W))
    if full_output_cov:
        return mean, tf.einsum("...nl,pl,ql->...npq", cov, W, W)
    return mean, tf.matmul(cov, tf.square(W), transpose_b=True)


def prepend_certain(cov: tf.Tensor, count: int, full_cov: bool, full_output_cov: bool) -> tf.Tensor:
    """Covariances with `count` further, certain outputs in front."""
    axes = {(False, False): [-1], (True, False): [-3], (False, True): [-1, -2], (True, True): [-1, -3]}
    rank = cov.shape.rank
    paddings = [[0, 0] for _ in range(rank)]
    for axis in axes[full_cov, full_output_cov]:
        paddings[rank + axis] = [count, 0]
    return tf.pad(cov, paddings)


def no_factors(layer: Any, *, dtype: tf.DType | None = None) -> tuple[()]:
    """`factors` and `cache` of a layer without a variational distribution over functions: nothing."""
    return ()


def no_kl(layer: Any, factors: Any = ()) -> tf.Tensor:
    """`prior_kl` of such a layer: 0."""
    return tf.zeros([], layer.dtype)
