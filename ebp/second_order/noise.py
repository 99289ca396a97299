"""Gaussian noise of unknown variance, learned along with a network: y = u_L + noise.

The precision of the noise has a Gamma distribution of shape a and rate b for each target. With u_L ~ N(mu, sigma2)
before a row is learned and n = E[variance] = b / (a - 1), the noise of the row is, given y,

    e ~ N(n / (sigma2 + n) (y - mu), n sigma2 / (sigma2 + n)),

so a grows by 1/2 and b by <e^2> / 2. After `fit` has seen every row, the Gamma rests on the last N rows only: passes
repeat the same data, and residuals of early passes are those of a worse network.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .second_order import Derivatives

__all__ = ["Noise"]

Array = NDArray[np.float64]

#: Shape and mean variance before any data; targets are standardised.
PRIOR_SHAPE = 3.0
PRIOR_VARIANCE = 1.0


class Noise(NamedTuple):
    """Gamma distributions of the precisions of the noise.

    :ivar shape: a, a number.
    :ivar rate: b of each target, [n_L].
    """

    shape: float
    rate: Array

    @classmethod
    def start(cls, num_targets: int) -> Noise:
        """Before any data."""
        return cls(PRIOR_SHAPE, np.full(num_targets, (PRIOR_SHAPE - 1.0) * PRIOR_VARIANCE))

    @property
    def variance(self) -> Array:
        """E[variance] = b / (a - 1), [n_L]."""
        return self.rate / (self.shape - 1.0)

    def derivatives(self, y: Array, mu: Array, sigma2: Array) -> Derivatives:
        """log P(y) = sum over targets of log N(y | mu, sigma2 + n), and its derivatives.

        :param y: [B, n_L].
        :param mu: of u_L, [B, n_L].
        :param sigma2: of u_L, [B, n_L].
        """
        total = sigma2 + self.variance
        by_mu = (y - mu) / total
        log_prob = -0.5 * np.sum((y - mu) * by_mu + np.log(2.0 * math.pi * total), axis=1)
        return Derivatives(log_prob, by_mu, 0.5 * (by_mu**2 - 1.0 / total))

    def after(self, y: Array, mu: Array, sigma2: Array, weight: Array | None, max_count: float) -> Noise:
        """The Gamma after a batch.

        :param weight: how often each row counts, [B]; None: once.
        :param max_count: number of rows on which the Gamma may rest.
        """
        # <e^2> given y: the square of the mean of e, and its variance.
        part = self.variance / (sigma2 + self.variance)
        squares = (part * (y - mu)) ** 2 + part * sigma2
        count = np.ones(len(y)) if weight is None else weight
        shape = self.shape + 0.5 * float(np.sum(count))
        rate = self.rate + 0.5 * count @ squares
        # What is older than `max_count` rows is forgotten, at the same mean.
        factor = min(1.0, (PRIOR_SHAPE + 0.5 * max_count) / shape)
        return Noise(factor * shape, factor * rate)
