"""Any GPflow likelihood over S mixture components at once.

GPflow promises that likelihoods broadcast over leading axes, yet several do not (robust-max multi-class, softmax,
switched). Here the S components are laid out as S N ordinary data points, with X and Y repeated, which is right for
every likelihood because a likelihood treats points independently.

Likelihoods that GPflow integrates by Monte Carlo get their noise from an explicit seed: in the bound other noise at
every point, in predictions the same Sobol points at all of them, so that a prediction is a function of its row.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.config import default_int
from gpflow.likelihoods import Bernoulli, Likelihood, MultiClass, Softmax

from .quadrature import Sobol
from .scores import Task
from .upstream import REPAIRED, Epsilon, repaired

__all__ = ["log_prob", "predict_log_density", "predict_mean_and_var", "task_of", "variational_expectations"]


def task_of(likelihood: Likelihood) -> Task:
    """What targets a likelihood is of: numbers, one of two labels, or one of several."""
    if isinstance(likelihood, Bernoulli):
        return "binary"
    return "multiclass" if isinstance(likelihood, MultiClass | Softmax) else "regression"


@check_shapes("X: [N, D]", "F: [S, N, P]", "Y: [N, Q]", "return: [S, N]")
def log_prob(likelihood: Likelihood, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """`log p(y_n | f)` in nats at values f, one for each component.

    :param seed: int32 [2], of the parts that integrate by Monte Carlo; not used here.
    """
    inputs, values, _, targets = _flatten(likelihood, X, F, F, Y)
    value = _seeded(likelihood, seed, _independent).log_prob(inputs, values, targets)
    return tf.reshape(value, tf.shape(F)[:2])


@check_shapes("X: [N, D]", "f_mean: [S, N, P]", "f_var: [S, N, P]", "Y: [N, Q]", "return: [S, N]")
def variational_expectations(
    likelihood: Likelihood, X: tf.Tensor, f_mean: tf.Tensor, f_var: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """`E[log p(y_n | f)]` in nats under `f ~ N(f_mean[s, n], diag f_var[s, n])`: inner expectation of Eq. (17).

    :param seed: int32 [2], used only by likelihoods that integrate by Monte Carlo.
    """
    arguments = _flatten(likelihood, X, f_mean, f_var, Y)
    value = _seeded(likelihood, seed, _independent).variational_expectations(*arguments)
    return tf.reshape(value, tf.shape(f_mean)[:2])


@check_shapes("X: [N, D]", "f_mean: [S, N, P]", "f_var: [S, N, P]", "Y: [N, Q]", "return: [S, N]")
def predict_log_density(
    likelihood: Likelihood, X: tf.Tensor, f_mean: tf.Tensor, f_var: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """`log E[p(y_n | f)]` in nats under `f ~ N(f_mean[s, n], diag f_var[s, n])`, one value per component."""
    arguments = _flatten(likelihood, X, f_mean, f_var, Y)
    value = _seeded(likelihood, seed, _shared).predict_log_density(*arguments)
    return tf.reshape(value, tf.shape(f_mean)[:2])


@check_shapes("X: [N, D]", "f_mean: [S, N, P]", "f_var: [S, N, P]", "return[0]: [S, N, Q]", "return[1]: [S, N, Q]")
def predict_mean_and_var(
    likelihood: Likelihood, X: tf.Tensor, f_mean: tf.Tensor, f_var: tf.Tensor, seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance of y under each component."""
    arguments = _flatten(likelihood, X, f_mean, f_var)
    mean, var = _seeded(likelihood, seed, _shared).predict_mean_and_var(*arguments)
    shape = tf.concat([tf.shape(f_mean)[:2], tf.shape(mean)[-1:]], axis=0)
    return tf.reshape(mean, shape), tf.reshape(var, shape)


def _seeded(likelihood: Likelihood, seed: tf.Tensor, epsilon: Epsilon) -> Any:
    """A likelihood whose draws, if it makes any, are functions of the seed; most are taken as they are."""
    return repaired(likelihood, seed, epsilon) if isinstance(likelihood, REPAIRED) else likelihood


def _flatten(
    likelihood: Likelihood, X: tf.Tensor, f_mean: tf.Tensor, f_var: tf.Tensor, Y: tf.Tensor | None = None
) -> list[Any]:
    S = tf.shape(f_mean)[0]
    P = f_mean.shape[-1]
    arguments = [_repeat(X, S), tf.reshape(f_mean, [-1, P]), tf.reshape(f_var, [-1, P])]
    if Y is not None:
        Y = tf.convert_to_tensor(Y)
        # GPflow's softmax takes labels as indices: integers, in one column.
        if isinstance(likelihood, Softmax):
            Y = Y if Y.dtype.is_integer else tf.cast(Y, default_int())
            Y = Y if Y.shape.rank == 2 and Y.shape[1] is not None else tf.ensure_shape(Y, [None, 1])
        arguments.append(_repeat(Y, S))
    return arguments


def _repeat(rows: tf.Tensor, S: tf.Tensor) -> tf.Tensor:
    """[N, D] -> [S N, D], component-major."""
    rows = tf.convert_to_tensor(rows)
    return tf.tile(rows, [S, 1])


def _independent(num_draws: int, f_mean: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    # In the bound: noise of single points averages out over a minibatch.
    shape = tf.concat([[num_draws], tf.shape(f_mean)], axis=0)
    return tf.random.stateless_normal(shape, seed, dtype=f_mean.dtype)


def _shared(num_draws: int, f_mean: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    # In predictions: what is predicted for a row is a function of it alone.
    return Sobol().noise([f_mean.shape[-1]], num_draws, 1, seed, f_mean.dtype)[0]
