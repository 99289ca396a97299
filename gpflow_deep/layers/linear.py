"""A Bayesian linear layer: the weights are Gaussian under prior and posterior, and so are the outputs.

f(x) = sqrt(variance) V' [x, 1],   V ~ N(0, I),   q(V[:, p]) = N(q_mu[:, p], q_sqrt[p] q_sqrt[p]')
"""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf
from gpflow.base import Module, Parameter
from gpflow.config import default_float
from gpflow.kullback_leiblers import gauss_kl
from gpflow.utilities import positive, triangular

from ..functions.pathwise import LayerFunctions
from .moments import LatentOutputs, LayerMoments, flat_points, quadratic_form

__all__ = ["BayesianLinearLayer"]


class BayesianLinearLayer(LatentOutputs, Module):
    """P Bayesian linear regressions with bias: Gaussian processes with a linear and a constant kernel, exactly.

    :param input_dim: columns of the inputs, D.
    :param output_dim: columns of the outputs, P.
    :param variance: initial prior variance of all weights and biases, a trainable parameter.
    :param q_sqrt_scale: initial standard deviation of V under q, whose mean starts at 0; 1 is the prior.
    """

    q_mu: Parameter
    """Means of V, [D + 1, P]."""
    q_sqrt: Parameter
    """Cholesky factors of its covariances, [P, D + 1, D + 1]."""

    def __init__(self, input_dim: int, output_dim: int, *, variance: float = 1.0, q_sqrt_scale: float = 1.0) -> None:
        super().__init__()
        if output_dim < 1:
            raise ValueError(f"output_dim must be at least 1, got {output_dim}.")
        if not (variance > 0.0 and q_sqrt_scale > 0.0):
            raise ValueError(f"variance and q_sqrt_scale must be positive, got {variance} and {q_sqrt_scale}.")
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.num_latent_gps = output_dim
        self.label = self.name
        self.dtype = tf.as_dtype(default_float())
        self.floats_per_row = (input_dim + 1) * (output_dim + 1)
        identity = np.tile(q_sqrt_scale * np.eye(input_dim + 1), [output_dim, 1, 1])
        self.q_mu = Parameter(np.zeros((input_dim + 1, output_dim)), dtype=default_float())
        self.q_sqrt = Parameter(identity, transform=triangular(), dtype=default_float())
        self.variance = Parameter(variance, transform=positive(), dtype=default_float())

    def factors(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Means [D + 1, P] and covariances [P, D + 1, D + 1] of the weights sqrt(variance) V."""
        root = tf.sqrt(self.variance) * self.q_sqrt
        return tf.sqrt(self.variance) * self.q_mu, tf.matmul(root, root, transpose_b=True)

    def cache(self, *, dtype: tf.DType | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """`factors`: there is nothing faster."""
        return self.factors()

    def prior_kl(self, factors: object = None) -> tf.Tensor:
        """KL[q(V) || p(V)], nats."""
        return gauss_kl(self.q_mu, self.q_sqrt)

    def latent_moments(
        self, X: tf.Tensor, factors: tuple[tf.Tensor, tf.Tensor], *, full_cov: bool = False
    ) -> LayerMoments:
        """Mean x' M and covariance x' S x' of the outputs."""
        mean, S = factors
        # The bias is the weight of a column of ones.
        X = tf.concat([X, tf.ones_like(X[..., :1])], axis=-1)
        if full_cov:
            return LayerMoments(X @ mean, tf.matmul(X[..., None, :, :] @ S, X[..., None, :, :], transpose_b=True))
        variance = quadratic_form(tf.transpose(flat_points(X)), S)
        return LayerMoments(X @ mean, tf.reshape(variance, tf.shape(X @ mean)))

    def sample_functions(self, num_functions: int, seed: tf.Tensor, **options: object) -> LayerFunctions:
        """Draws of the weights: f(x) = V' [x, 1] for S matrices V ~ q(V)."""
        eps = tf.random.stateless_normal([num_functions, *self.q_mu.shape], seed, dtype=self.dtype)  # [S, D + 1, P]
        V = tf.sqrt(self.variance) * (self.q_mu + tf.einsum("pde,sep->sdp", self.q_sqrt, eps))
        return functools.partial(_affine, V)


def _affine(V: tf.Tensor, X: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    return tf.matmul(X, V[:, :-1]) + V[:, -1:]
