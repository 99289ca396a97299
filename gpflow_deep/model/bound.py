"""The likelihood's part of the bound, the first sum of Eq. (17): E_q[log p(Y | F)], from minibatches and draws.

N / B sum_b sum_s w_s E[ log p(y_b | f_b) | draw s of the inner layers ]

or, where the density that is predicted is the objective,

N / B sum_b log sum_s w_s E[ p(y_b | f_b) | node s of the inner layers ]

With latent variables of the rows it is N / B sum_b L_b(K), see `importance`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.likelihoods import Likelihood

from ..layers.protocol import Factors, checked_points
from ..posteriors.importance import Weighting, has_latents, joint_outputs
from . import likelihoods, mixture
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

    :param data: a minibatch (X [B, D], Y [B, Q]).
    :param factors: of each layer.
    :param integrator: of the inner layers.
    :param num_samples: S.
    :param num_importance_samples: K, see `importance`;
        without latent variables they change nothing.
    :param seed: int32 [2], of the draws.
    :param likelihood_seed: of likelihoods that draw themselves.
    :param num_data: N; the rows of the batch if None.
    :param noise: the draws themselves, equally weighted, in place of those from `seed`.
    :param is_predictive: logs of predicted densities in place of expectations of log densities.
    """
    X, weights = checked_points(data[0], layers[0]), None
    K = num_importance_samples if has_latents(layers) else 1
    dims = [layer.num_latent_gps for layer in layers[:-1]]
    if noise is None:
        S = integrator.num_components(dims, num_samples * K)
        noise = integrator.noise(dims, S, tf.shape(X)[0], seed, X.dtype)
        weights = tf.exp(integrator.log_weights(dims, S, X.dtype))
    weighting = Weighting(layers, noise, X, tf.convert_to_tensor(data[1]), K) if has_latents(layers) else None
    if weighting is not None and K > 1:
        f_mean, f_var = joint_outputs(layers, factors, X, weighting.noise, K)
    else:
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
