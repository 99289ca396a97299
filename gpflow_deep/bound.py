"""The likelihood's part of the bound, the first sum of Eq. (17): E_q[log p(Y | F)], from minibatches and draws.

N / B sum_b sum_s w_s E[ log p(y_b | f_b) | draw s of the inner layers ]

or, where the density that is predicted is the objective,

N / B sum_b log sum_s w_s E[ p(y_b | f_b) | node s of the inner layers ]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from gpflow.base import RegressionData, TensorType
from gpflow.likelihoods import Likelihood

from . import likelihoods, mixture
from .importance import Weighting, has_latents
from .layers.protocol import Factors, checked_points
from .propagation import evaluate, last_outputs, rows_per_slice
from .quadrature import Integrator

__all__ = ["expected_log_likelihood"]


def expected_log_likelihood(
    layers: Sequence[Any],
    likelihood: Likelihood,
    data: RegressionData,
    factors: Factors,
    *,
    integrator: Integrator,
    num_samples: int,
    num_importance_samples: int,
    seed: tf.Tensor,
    likelihood_seed: tf.Tensor,
    num_data: Any = None,
    noise: Sequence[tf.Tensor] | None = None,
    is_predictive: bool = False,
) -> tf.Tensor:
    """Unbiased estimate of the likelihood's part of the bound for all `num_data` points, [], nats.

    :param data: a minibatch (X [B, D], Y [B, Q]). :param factors: of each layer.
    :param integrator: of the inner layers. :param num_samples: S. :param num_importance_samples: K, see `importance`.
    :param seed: int32 [2], of the draws. :param likelihood_seed: of likelihoods that draw themselves.
    :param num_data: N; the rows of the batch if None.
    :param noise: the draws themselves, equally weighted, in place of those from `seed`.
    :param is_predictive: logs of predicted densities in place of expectations of log densities.
    """
    X, weights = checked_points(data[0], layers[0]), None
    dims = [layer.num_latent_gps for layer in layers[:-1]]
    if noise is None:
        S = integrator.num_components(dims, num_samples * num_importance_samples)
        noise = integrator.noise(dims, S, tf.shape(X)[0], seed, X.dtype)
        weights = tf.exp(integrator.log_weights(dims, S, X.dtype))
    weighting = _weighting(layers, noise, X, data[1], num_importance_samples)
    noise = noise if weighting is None else weighting.noise
    f_mean, f_var = evaluate(last_outputs, layers, factors, X, noise, size=rows_per_slice(layers))
    of = likelihoods.predict_log_density if is_predictive else likelihoods.variational_expectations
    terms = of(likelihood, X, f_mean, f_var, data[1], likelihood_seed)  # [S, B]
    if weighting is not None:
        per_point = weighting.per_row(terms, weights)
    elif is_predictive:
        weights = tf.fill(tf.shape(terms)[:1], 1 / tf.cast(tf.shape(terms)[0], X.dtype)) if weights is None else weights
        per_point = mixture.log_density(weights, terms)
    elif weights is None:
        per_point = tf.reduce_mean(terms, axis=0)
    else:
        per_point = tf.linalg.matvec(terms, weights, transpose_a=True)
    scale = 1.0 if num_data is None else tf.cast(num_data, X.dtype) / tf.cast(tf.shape(X)[0], X.dtype)
    return tf.reduce_sum(per_point) * scale


def _weighting(
    layers: Sequence[Any], noise: Sequence[tf.Tensor], X: tf.Tensor, Y: TensorType, num_importance_samples: int
) -> Weighting | None:
    """What latent variables change in the bound; None where there are none."""
    if not has_latents(layers) and (
        num_importance_samples == 1 or not any(layer.num_latent_gps for layer in layers[:-1])
    ):
        return None
    return Weighting(layers, noise, X, tf.convert_to_tensor(Y), num_importance_samples)
