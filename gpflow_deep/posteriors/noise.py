"""The noise of a Gaussian likelihood in closed form, at the end of training.

Of all parameters of the bound, the variance s of Gaussian noise has its best value given the others in closed form:

    s = 1 / (N P) sum_np E_q[(y_np - f_p(x_n))^2]

Adam comes near it from above only as fast as its learning rate lets it: while the rate is high, q moves to and fro and
s covers that, and when the rate has fallen, s lags behind. On tables with hardly any noise intervals were twice too
wide for it. Where the best value is above s, as after few steps, whose q is still as wide as the prior, s stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.base import Parameter, RegressionData
from gpflow.likelihoods import Gaussian
from numpy.typing import NDArray

from ..model.deep_gp import DeepGP
from .importance import has_latents

__all__ = ["SquaredErrors", "fit_noise", "has_noise"]

#: The most rows that are looked at, and how far above its lower bound the variance stays.
ROWS = 10_000
ABOVE_BOUND = 1.001


def has_noise(model: DeepGP) -> bool:
    """Whether a model is trained by a bound with the same Gaussian noise for all rows, which is trainable and has no
    prior, and has no latent variables, whose q of a training row is not that of a prediction."""
    likelihood = model.likelihood
    variance = likelihood.variance if type(likelihood) is Gaussian else None
    if not isinstance(variance, Parameter) or variance.shape.rank != 0:
        return False
    is_free = bool(variance.trainable) and variance.prior is None
    return is_free and not model.is_predictive and not has_latents(model.layers)


class SquaredErrors:
    """sum_np E_q[(y_np - f_p(x_n))^2] of rows X [N, D] and Y [N, P], N, and N P.

    A mixture over several versions of the layers is traced by each prediction: here once.
    """

    def __init__(self, model: DeepGP) -> None:
        self.model = model
        self._compiled = tf.function(self._sums, autograph=False, reduce_retracing=True)

    def __call__(self, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Of rows in the units of the model."""
        return self._compiled(X, Y) if self.model.num_members > 1 else self._sums(X, Y)

    def _sums(self, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        mean, variance = self.model.predict_f(X)
        return tf.reduce_sum(tf.square(Y - mean) + variance), tf.shape(X)[0], tf.size(Y)


def fit_noise(
    errors: SquaredErrors,
    batch_at: Callable[[int], RegressionData],
    step: int,
    *,
    strategy: tf.distribute.Strategy | None = None,
) -> float:
    """Lower the noise to its best value for the rows of the last minibatches, if that is lower.

    :param errors: of a model with `has_noise`.
    :param batch_at: minibatch (X [B, D], Y [B, P]) of a step, in the units of the model; with a strategy distributed.
    :param step: the last one. So many before it are taken, too, as have as many rows as there are to train with, or
        `ROWS`.
    :return: the variance of the noise.
    """

    def of_step(t: int) -> NDArray[np.float64]:
        X, Y = batch_at(t)
        if strategy is None:
            return np.array([float(part) for part in errors(tf.convert_to_tensor(X), tf.convert_to_tensor(Y))])
        # Each replica has a part of the rows.
        parts = strategy.run(errors, args=(X, Y))
        return np.array([float(strategy.reduce("SUM", part, axis=None)) for part in parts])

    model = errors.model
    totals = of_step(step)
    # Steps before it, until there are as many rows as are looked at.
    num_rows = min(float(model.num_data or ROWS), ROWS)
    count = math.ceil(num_rows / totals[1])
    for t in range(max(step + 1 - count, 0), step):  # forwards, as a stream is read
        totals = totals + of_step(t)
    likelihood = model.likelihood
    # s = 1 / (N P) sum_np E_q[(y_np - f_p(x_n))^2].
    best = max(totals[0] / totals[2], ABOVE_BOUND * float(likelihood.variance_lower_bound))
    if best < float(likelihood.variance.numpy()):
        likelihood.variance.assign(best)
    return float(likelihood.variance.numpy())
