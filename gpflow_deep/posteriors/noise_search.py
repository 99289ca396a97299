"""A line search over the variance of Gaussian noise, judged by held-out rows, for chains.

The noise that maximises a bound makes up for what a Gaussian q does not fit, and samples fit better. How wide the rows
spread around the functions of a chain depends on the noise that the chain is run with, so that each variance has to be
tried by a chain of its own: a factor of 1/2 at first, its square for as long as that is better, and shorter ways back.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from numpy.typing import NDArray

from .noise import ABOVE_BOUND

__all__ = ["NoiseSearch"]

#: Of the logarithm of the variance: the first step, how a step that was worth it grows, and how another one shrinks.
FIRST = -np.log(2.0)
ON = 2.0
BACK = -0.4


class NoiseSearch(tf.Module):
    """Variances that are tried one after the other; what changes are variables.

    :param variance: of the noise, the parameter that is moved.
    :param lower: its lower bound.
    """

    def __init__(self, variance: Parameter, lower: float) -> None:
        super().__init__()
        self._variance = variance
        self._lower = ABOVE_BOUND * lower
        start = (0.0, FIRST, 0.0)
        self._best, self._step, self._gain = (tf.Variable(v, dtype=tf.float64, trainable=False) for v in start)

    @property
    def gain(self) -> float:
        """Of the held-out rows, nats per row."""
        return float(self._gain)

    def begin(self) -> None:
        """Try the first variance beside that which the model has."""
        self._best.assign(float(self._variance.numpy()))
        self._step.assign(FIRST)
        self._gain.assign(0.0)
        self._try()

    def judge(self, gains: NDArray[np.float64], *, is_last: bool) -> bool:
        """Keep the variance that was tried if rows gained more than the standard error, and try the next one.

        :param gains: of log densities of held-out rows, [n], nats, over those of the best variance so far.
        :param is_last: the best one is the variance in the end.
        :return: whether it was kept.
        """
        is_better = bool(gains.mean() > gains.std() / np.sqrt(len(gains)))
        if is_better:
            self._best.assign(float(self._variance.numpy()))
            self._gain.assign_add(gains.mean())
        # On with longer steps, or back with shorter ones.
        self._step.assign(self._step * (ON if is_better else BACK))
        if is_last:
            self._variance.assign(float(self._best))
        else:
            self._try()
        return is_better

    def _try(self) -> None:
        self._variance.assign(max(float(self._best) * float(np.exp(self._step)), self._lower))
