"""Any GPflow likelihood over S mixture components at once.

GPflow promises that likelihoods broadcast over leading axes, yet several do not (robust-max multi-class, softmax,
switched). Here the S components are laid out as S N ordinary data points, with X and Y repeated, which is right for
every likelihood because a likelihood treats points independently.

Two further repairs: likelihoods that GPflow integrates by Monte Carlo get their noise from an explicit seed, so that
a bound is a function of its arguments; and the outer bin edges of `Ordinal` are large finite numbers instead of
infinities, for which `erf` gives NaN in float64 on some processors.
"""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.config import default_float, default_int
from gpflow.likelihoods import Likelihood, MonteCarloLikelihood, Ordinal, Softmax, SwitchedLikelihood

__all__ = ["predict_log_density", "predict_mean_and_var", "variational_expectations"]

#: Stands for infinity among the bin edges of an ordinal likelihood, in units of its sigma.
_OUTER_EDGE = 1e10


@check_shapes("X: [N, D]", "f_mean: [S, N, P]", "f_var: [S, N, P]", "Y: [N, Q]", "return: [S, N]")
def variational_expectations(
    likelihood: Likelihood, X: tf.Tensor, f_mean: tf.Tensor, f_var: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """`E[log p(y_n | f)]` in nats under `f ~ N(f_mean[s, n], diag f_var[s, n])`: inner expectation of Eq. (17).

    :param seed: int32 [2], used only by likelihoods that integrate by Monte Carlo.
    """
    flat, arguments = _flatten(likelihood, X, f_mean, f_var, Y, seed)
    value = flat.variational_expectations(*arguments)
    return tf.reshape(value, tf.shape(f_mean)[:2])


@check_shapes("X: [N, D]", "f_mean: [S, N, P]", "f_var: [S, N, P]", "Y: [N, Q]", "return: [S, N]")
def predict_log_density(
    likelihood: Likelihood, X: tf.Tensor, f_mean: tf.Tensor, f_var: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """`log E[p(y_n | f)]` in nats under `f ~ N(f_mean[s, n], diag f_var[s, n])`, one value per component."""
    flat, arguments = _flatten(likelihood, X, f_mean, f_var, Y, seed)
    value = flat.predict_log_density(*arguments)
    return tf.reshape(value, tf.shape(f_mean)[:2])


@check_shapes("X: [N, D]", "f_mean: [S, N, P]", "f_var: [S, N, P]", "return[0]: [S, N, Q]", "return[1]: [S, N, Q]")
def predict_mean_and_var(
    likelihood: Likelihood, X: tf.Tensor, f_mean: tf.Tensor, f_var: tf.Tensor, seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance of y under each component."""
    flat, arguments = _flatten(likelihood, X, f_mean, f_var, None, seed)
    mean, var = flat.predict_mean_and_var(*arguments)
    shape = tf.concat([tf.shape(f_mean)[:2], tf.shape(mean)[-1:]], axis=0)
    return tf.reshape(mean, shape), tf.reshape(var, shape)


def _flatten(
    likelihood: Likelihood, X: tf.Tensor, f_mean: tf.Tensor, f_var: tf.Tensor, Y: tf.Tensor | None, seed: tf.Tensor
) -> tuple[Any, list[tf.Tensor]]:
    S, P = tf.shape(f_mean)[0], f_mean.shape[-1]
    arguments = [_repeat(X, S), tf.reshape(f_mean, [-1, P]), tf.reshape(f_var, [-1, P])]
    if Y is not None:
        Y = tf.convert_to_tensor(Y)
        if isinstance(likelihood, Softmax) and not Y.dtype.is_integer:
            Y = tf.cast(Y, default_int())
        arguments.append(_repeat(Y, S))
    return _repaired(likelihood, seed), arguments


def _repeat(rows: tf.Tensor, S: tf.Tensor) -> tf.Tensor:
    """[N, D] -> [S N, D], component-major."""
    rows = tf.convert_to_tensor(rows)
    return tf.tile(rows, [S, 1])


def _repaired(likelihood: Likelihood, seed: tf.Tensor) -> Any:
    """The likelihood itself, or a view of it (same parameters) with finite ordinal bins and noise from `seed`."""
    changes: dict[str, Any] = {}
    if isinstance(likelihood, Ordinal):
        changes["__class__"] = _FiniteOrdinal
    elif isinstance(likelihood, MonteCarloLikelihood):
        changes["_mc_quadrature"] = partial(_seeded_quadrature, likelihood, seed)
    elif isinstance(likelihood, SwitchedLikelihood):
        seeds = [tf.random.fold_in(seed, i) for i in range(len(likelihood.likelihoods))]
        parts = [_repaired(*pair) for pair in zip(likelihood.likelihoods, seeds, strict=True)]
        if any(new is not old for new, old in zip(parts, likelihood.likelihoods, strict=True)):
            changes["likelihoods"] = parts
    if not changes:
        return likelihood
    view = copy.copy(likelihood)
    for name, value in changes.items():
        object.__setattr__(view, name, value)  # not by tf.Module's, which would record it for the original too
    return view


def _seeded_quadrature(
    likelihood: MonteCarloLikelihood,
    seed: tf.Tensor,
    funcs: Any,
    Fmu: tf.Tensor,
    Fvar: tf.Tensor,
    logspace: bool = False,
    epsilon: tf.Tensor | None = None,
    **Ys: Any,
) -> tf.Tensor:
    """`MonteCarloLikelihood._mc_quadrature` with standard-normal draws that are a function of `seed`."""
    epsilon = _epsilon(likelihood, Fmu, seed) if epsilon is None else epsilon
    return likelihood._mc_quadrature(funcs, Fmu, Fvar, logspace=logspace, epsilon=epsilon, **Ys)


def _epsilon(likelihood: MonteCarloLikelihood, f_mean: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    shape = tf.concat([[likelihood.num_monte_carlo_points], tf.shape(f_mean)], axis=0)
    return tf.random.stateless_normal(shape, seed, dtype=f_mean.dtype)


class _FiniteOrdinal(Ordinal):
    """`Ordinal` with the outermost edges at +-_OUTER_EDGE sigma; its formulas, without infinities."""

    def _scaled_edges(self) -> tf.Tensor:
        outer = tf.constant([_OUTER_EDGE], dtype=default_float())
        inner = tf.cast(self.bin_edges, default_float()) / self.sigma
        return tf.concat([-outer, inner, outer], axis=0)

    def _scalar_log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        edges = self._scaled_edges()
        label = tf.cast(Y, default_int())
        upper = _inverse_probit(tf.gather(edges, label + 1) - F / self.sigma)
        lower = _inverse_probit(tf.gather(edges, label) - F / self.sigma)
        return tf.math.log(upper - lower + 1e-6)

    def _make_phi(self, F: tf.Tensor) -> tf.Tensor:
        below = _inverse_probit(self._scaled_edges() - tf.reshape(F, (-1, 1)) / self.sigma)
        return below[:, 1:] - below[:, :-1]


def _inverse_probit(x: tf.Tensor) -> tf.Tensor:
    """GPflow's inverse probit, which keeps 1e-3 away from 0 and 1."""
    jitter = 1e-3
    return 0.5 * (1.0 + tf.math.erf(x / math.sqrt(2.0))) * (1 - 2 * jitter) + jitter
