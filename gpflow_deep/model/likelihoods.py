"""Any GPflow likelihood over S mixture components at once; how good predictions are, from arrays; and densities and
scores of mixtures of Gaussians.

GPflow promises that likelihoods broadcast over leading axes, yet several do not (robust-max multi-class, softmax,
switched). Here the S components are laid out as S N ordinary data points, with X and Y repeated, which is right for
every likelihood because a likelihood treats points independently.

Likelihoods that GPflow integrates by Monte Carlo get their noise from an explicit seed: in the bound other noise at
every point, in predictions the same Sobol points at all of them, so that a prediction is a function of its row.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.config import default_int
from gpflow.likelihoods import Bernoulli, Likelihood, MultiClass, ScalarLikelihood, Softmax, SwitchedLikelihood
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr
from scipy.stats import rankdata

from .quadrature import Sobol
from .upstream import REPAIRED, Epsilon, repaired

__all__ = [
    "GaussianMixture",
    "area_under_curve",
    "check_targets",
    "log_prob",
    "metrics",
    "predict_log_density",
    "predict_mean_and_var",
    "task_of",
    "variational_expectations",
]

Array = NDArray[np.float64]
Task = Literal["regression", "binary", "multiclass"]


def metrics(task: Task, Y: np.ndarray, mean: np.ndarray, log_density: np.ndarray) -> dict[str, float]:
    """Averages over the rows: what a table of results shows.

    :param Y: targets [N, P] of a regression, or labels 0, 1, ... [N, 1].
    :param mean: predicted means [N, P]; binary: probability of label 1, [N, 1], or of both, [N, 2];
        multiclass: of each label, [N, C].
    :param log_density: log p(y_n) in nats, [N], in the units of Y.
    :return: "log_likelihood_nats" (mean per row); and "rmse" over rows and columns in the units of Y, or "accuracy"
        (a fraction) and for two classes "auc" (left out if all labels are the same).
    """
    scores = {"log_likelihood_nats": float(np.mean(log_density))}
    if task == "regression":
        if np.shape(mean) != np.shape(Y):
            raise ValueError(f"mean must have the shape of Y, {list(np.shape(Y))}, got {list(np.shape(mean))}.")
        return {**scores, "rmse": float(np.sqrt(np.mean(np.square(mean - Y))))}
    # Of labels: the most probable one, and for two classes how well scores tell them apart.
    labels = np.asarray(Y)[:, 0].astype(np.int64)
    if task == "multiclass":
        return {**scores, "accuracy": float(np.mean(np.argmax(mean, axis=1) == labels))}
    scores["accuracy"] = float(np.mean((mean[:, -1] > 0.5) == (labels == 1)))
    if 0 < labels.sum() < len(labels):
        scores["auc"] = area_under_curve(labels, mean[:, -1])
    return scores


def area_under_curve(labels: np.ndarray, scores: np.ndarray) -> float:
    """Area under the ROC curve: the probability that a random row of label 1 scores above one of label 0, ties half.

    :param labels: 0 and 1, both present, [N].
    :param scores: larger for label 1, [N].
    :raises ValueError: if one of the labels is absent.
    """
    is_one = np.asarray(labels) == 1
    num_ones = int(is_one.sum())
    num_zeros = len(is_one) - num_ones
    if num_ones == 0 or num_zeros == 0:
        raise ValueError(f"labels must hold both 0 and 1, got {num_zeros} and {num_ones} of them.")
    # The statistic of Mann and Whitney.
    rank_sum = float(rankdata(scores)[is_one].sum())
    return (rank_sum - num_ones * (num_ones + 1) / 2) / (num_ones * num_zeros)


class GaussianMixture(NamedTuple):
    """Mixtures of S Gaussians, one for each of P targets of N rows.

    :ivar weights: [S], their sum is 1.
    :ivar means: [S, N, P].
    :ivar variances: [S, N, P].
    """

    weights: Array
    means: Array
    variances: Array

    def log_density(self, Y: np.ndarray) -> Array:
        """log p(y_n) of all targets of a row together, [N] in nats, for Y [N, P]; the variances are positive."""
        # Targets are independent given the component: their logs are added up before components are mixed.
        terms = np.log(2 * np.pi * self.variances) + np.square(Y - self.means) / self.variances
        return np.asarray(logsumexp(-0.5 * terms.sum(axis=2), axis=0, b=self.weights[:, None]))

    def crps(self, Y: np.ndarray) -> Array:
        """Continuous ranked probability scores E|y' - y| - E|y' - y''| / 2, [N, P] in the units of Y, for Y [N, P].

        Grimit et al., "The continuous ranked probability score for circular variables ...", 2006, Eq. (5).
        """
        weights, means, variances = self
        # E|y' - y|, and below E|y' - y''| / 2, of all pairs of components.
        score = np.tensordot(weights, _mean_distance(Y - means, variances), axes=1)
        for weight, mean, variance in zip(weights, means, variances, strict=True):
            pairs = _mean_distance(means - mean, variances + variance)
            score -= 0.5 * weight * np.tensordot(weights, pairs, axes=1)
        return np.asarray(score)


def _mean_distance(mean: Array, variance: Array) -> Array:
    """E|z| of Gaussians."""
    # Where the variance is 0, z is its mean.
    deviation = np.sqrt(variance)
    ratio = np.divide(mean, deviation, out=np.zeros_like(mean), where=deviation > 0)
    density = np.exp(-0.5 * np.square(ratio)) / np.sqrt(2 * np.pi)
    return np.where(deviation > 0, mean * (2 * ndtr(ratio) - 1) + 2 * deviation * density, np.abs(mean))


def check_targets(likelihood: Likelihood, Y: tf.Tensor, P: int | None) -> None:
    """Refuse targets Y [N, Q] that a likelihood of P latent functions would broadcast to others.

    :raises ValueError: unless Q is P, or 1 for labels of several classes, where both are known.
    """
    # Labels of several classes are one column; of likelihoods of one function each output has its own.
    has_one = isinstance(likelihood, MultiClass | Softmax)
    has_own = isinstance(likelihood, ScalarLikelihood) and not isinstance(likelihood, SwitchedLikelihood)
    num_columns = 1 if has_one else P if has_own else None
    if num_columns is not None and Y.shape[-1] not in (num_columns, None):
        is_of_labels = has_one or isinstance(likelihood, Bernoulli)
        raise ValueError(
            f"targets of {type(likelihood).__name__} must have {num_columns} columns, got {Y.shape[-1]}; give "
            + ("the numbers of the labels, not one-hot." if is_of_labels else "the last layer as many outputs.")
        )


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


def _seeded(likelihood: Likelihood, seed: tf.Tensor, epsilon: Epsilon) -> Likelihood:
    """A likelihood whose draws, if it makes any, are functions of the seed; most are taken as they are."""
    return repaired(likelihood, seed, epsilon) if isinstance(likelihood, REPAIRED) else likelihood


def _flatten(
    likelihood: Likelihood, X: tf.Tensor, f_mean: tf.Tensor, f_var: tf.Tensor, Y: tf.Tensor | None = None
) -> list[tf.Tensor]:
    """The S N data points of S components: X [S N, D], moments [S N, P] and Y [S N, Q], if it is there."""
    S = tf.shape(f_mean)[0]
    P = f_mean.shape[-1]
    # X and Y once for each component.
    arguments = [tf.tile(tf.convert_to_tensor(X), [S, 1]), tf.reshape(f_mean, [-1, P]), tf.reshape(f_var, [-1, P])]
    if Y is not None:
        Y = tf.convert_to_tensor(Y)
        check_targets(likelihood, Y, P)
        # GPflow's softmax takes labels as indices: integers, in one column.
        if isinstance(likelihood, Softmax):
            Y = Y if Y.dtype.is_integer else tf.cast(Y, default_int())
            Y = Y if Y.shape.rank == 2 and Y.shape[1] is not None else tf.ensure_shape(Y, [None, 1])
        arguments.append(tf.tile(Y, [S, 1]))
    return arguments


def _independent(num_draws: int, f_mean: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    # In the bound: noise of single points averages out over a minibatch.
    shape = tf.concat([[num_draws], tf.shape(f_mean)], axis=0)
    return tf.random.stateless_normal(shape, seed, dtype=f_mean.dtype)


def _shared(num_draws: int, f_mean: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    # In predictions: what is predicted for a row is a function of it alone.
    return Sobol().noise([f_mean.shape[-1]], num_draws, 1, seed, f_mean.dtype)[0]
