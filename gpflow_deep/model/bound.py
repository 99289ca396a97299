"""The evidence lower bound, Eq. (17): `elbo` of a minibatch and draws of the inner layers.

    N / B sum_b sum_s w_s E[ log p(y_b | f_b) | draw s ] - sum_l KL[q(U^l) || p(U^l)]

With latent variables of the rows another sum is in the place of the first one, see `posteriors.importance`; and where
the density that is predicted is the objective, see `posteriors.sigma_points`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf
from gpflow.base import RegressionData

from ..layers.protocol import Factors
from . import likelihoods
from .propagation import evaluate, last_outputs, rows_per_slice
from .quadrature import Integrator

if TYPE_CHECKING:
    from .deep_gp import DeepGP

__all__ = ["Draws", "elbo", "expected_log_likelihood", "for_all_rows", "weighted_noise"]


class Draws(NamedTuple):
    """Draws of the inner layers.

    :ivar noise: eps of Eq. (15) for each of them, [S, B or 1, L].
    :ivar weights: w_s of the S draws, which sum to one, [S]; None for equal ones.
    :ivar likelihood_seed: int32 [2], of likelihoods that draw themselves.
    """

    noise: Sequence[tf.Tensor]
    weights: tf.Tensor | None
    likelihood_seed: tf.Tensor

    def mean(self, terms: tf.Tensor) -> tf.Tensor:
        """sum_s w_s terms[s], [B], of terms [S, B]."""
        if self.weights is None:
            return tf.reduce_mean(terms, axis=0)
        return tf.linalg.matvec(terms, self.weights, transpose_a=True)


def elbo(model: DeepGP, data: RegressionData, factors: Factors, draws: Draws) -> tf.Tensor:
    """Unbiased estimate of Eq. (17) for all N points, [], nats.

    :param model: a deep GP, of which layers, likelihood, `num_data` and `kl_weight`, 1 in a bound, are read.
    :param data: a minibatch (X [B, D], Y [B, Q]).
    :param factors: of each layer.
    :param draws: of the inner layers.
    """
    # The first sum of Eq. (17), of the rows; then KL[q(U^l) || p(U^l)] of all layers.
    expected = model.likelihoods_part(data, factors, draws)
    return expected - tf.cast(model.kl_weight, expected.dtype) * model.prior_kl(factors)


def expected_log_likelihood(model: DeepGP, data: RegressionData, factors: Factors, draws: Draws) -> tf.Tensor:
    """The first sum of Eq. (17), E_q[log p(Y | F)], [], nats. Parameters as of `elbo`."""
    X, Y = data
    layers = model.layers
    # Moments of f^L(x_b) given draw s of the inner layers, [S, B, P].
    f_mean, f_var = evaluate(last_outputs, layers, factors, X, draws.noise, size=rows_per_slice(layers))
    # E[log p(y_b | f_b) | draw s], [S, B].
    terms = likelihoods.variational_expectations(model.likelihood, X, f_mean, f_var, Y, draws.likelihood_seed)
    return for_all_rows(draws.mean(terms), model.num_data)


def weighted_noise(
    integrator: Integrator, dims: Sequence[int], num_draws: int, X: tf.Tensor, seed: tf.Tensor
) -> tuple[Sequence[tf.Tensor], tf.Tensor]:
    """`noise` and `weights` of the draws of an integrator for rows X [B, D].

    :param dims: numbers L of latent GPs of the inner layers.
    :param num_draws: S, where the integrator lets choose.
    :param seed: int32 [2].
    """
    S = integrator.num_components(dims, num_draws)
    noise = integrator.noise(dims, S, tf.shape(X)[0], seed, X.dtype)
    return noise, tf.exp(integrator.log_weights(dims, S, X.dtype))


def for_all_rows(per_row: tf.Tensor, num_data: int | tf.Tensor | None) -> tf.Tensor:
    """N / B sum_b of values of the rows of a minibatch [B], []; their sum if N is None."""
    total = tf.reduce_sum(per_row)
    if num_data is None:
        return total
    return total * (tf.cast(num_data, total.dtype) / tf.cast(tf.shape(per_row)[0], total.dtype))
