"""Mixtures of S Gaussians, which is what a deep GP predicts: Eq. (18) of [1].

Weights [S] sum to one: 1/S for draws, products of Gauss-Hermite weights for quadrature.

[1] Salimbeni and Deisenroth, "Doubly Stochastic Variational Inference for Deep Gaussian Processes", NIPS 2017.
"""

from __future__ import annotations

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import MeanAndVariance

__all__ = ["joint_moments", "log_density", "moments"]


@check_shapes("weights: [S]", "means: [S, N, P]", "return[0]: [N, P]")
def moments(weights: tf.Tensor, means: tf.Tensor, covs: tf.Tensor, *, full_output_cov: bool = False) -> MeanAndVariance:
    """Mean [N, P] and variance [N, P], or covariance [N, P, P] of the outputs: the mean of the components' covariances
    plus the covariance of their means.

    :param covs: of the components: variances [S, N, P], or with `full_output_cov` covariances [S, N, P, P].
    """
    # The law of total covariance: within the components, and between their means.
    mean = tf.tensordot(weights, means, axes=1)
    centred = means - mean
    if full_output_cov:
        return mean, tf.tensordot(weights, covs, axes=1) + tf.einsum("s,snp,snq->npq", weights, centred, centred)
    return mean, tf.tensordot(weights, covs + tf.square(centred), axes=1)


@check_shapes("means: [S, N, P]", "return[0]: [N, P]")
def joint_moments(means: tf.Tensor, sum_of_covs: tf.Tensor, *, full_output_cov: bool) -> MeanAndVariance:
    """Mean and covariance between N points of equally weighted components, of whose covariances the sum is known.

    :param sum_of_covs: [P, N, N], or with `full_output_cov` [N, P, N, P].
    """
    mean = tf.reduce_mean(means, axis=0)
    centred = means - mean
    equation = "snp,smq->npmq" if full_output_cov else "snp,smp->pnm"
    return mean, (sum_of_covs + tf.einsum(equation, centred, centred)) / tf.cast(tf.shape(means)[0], means.dtype)


@check_shapes("weights: [S]", "log_densities: [S, N]", "return: [N]  # nats")
def log_density(weights: tf.Tensor, log_densities: tf.Tensor) -> tf.Tensor:
    """Log of the mean density, from the logs of the components' densities."""
    # Densities of rows far off underflow, their logs do not.
    return tf.reduce_logsumexp(tf.math.log(weights)[:, None] + log_densities, axis=0)
