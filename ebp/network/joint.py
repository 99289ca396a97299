"""Networks whose last layer has a joint posterior over its weights: for rows that come one by one.

A posterior of single weights (`second_order`) does not know what weights do together, and a stream has no second pass
in which to find out. Appendix B of the paper carries covariances through the forward pass; here the posterior itself
has them, of the weights of the last layer, and the hidden units keep the weights that they were drawn with:

    f(x) = (x, 1, a relu(V'x + c) / sqrt(H)),    u_k = w_k' f,    w_k ~ N(m_k, S_k),    N(0, 1) a priori.

Then the moments of the posterior after a row are exact. With Z = P(y | the rows before), for each output
g = d log Z / d mu and c = -d^2 log Z / d mu^2 = g^2 - 2 d log Z / d sigma2,

    m += S f g,    S -= (S f)(S f)' c.

A row costs C (D + H)^2 products, and no row is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .second_order import Derivatives

__all__ = ["MAX_NUMBERS", "JointNetwork"]

Array = NDArray[np.float64]

#: Numbers that the covariances of all outputs may have together: with more, a row takes longer than a millisecond.
MAX_NUMBERS = 400_000

#: a: standard deviation of what the hidden units add to u, a priori; twice as much for a bend of the border.
AMPLITUDE = 3.0

#: Hidden units bend at distances up to so many standard deviations of the inputs.
REACH = 2.0


class JointNetwork(NamedTuple):
    """What is known after some rows.

    :ivar weights: V, [D, H].
    :ivar biases: c, [H].
    :ivar mean: m of each output, [C, D + 1 + H].
    :ivar cov: S of each output, [C, D + 1 + H, D + 1 + H].
    """

    weights: Array
    biases: Array
    mean: Array
    cov: Array

    @classmethod
    def start(cls, num_inputs: int, num_units: int, num_outputs: int, rng: np.random.Generator) -> JointNetwork:
        """Before the first row."""
        weights = rng.normal(size=(num_inputs, num_units))
        biases = rng.uniform(-REACH, REACH, num_units)
        size = num_inputs + 1 + num_units
        return cls(weights, biases, np.zeros((num_outputs, size)), np.tile(np.eye(size), (num_outputs, 1, 1)))

    def features(self, X: Array) -> Array:
        """f of rows [N, D], [N, D + 1 + H]."""
        units = np.maximum(X @ self.weights + self.biases, 0.0)
        units *= AMPLITUDE / math.sqrt(max(1, len(self.biases)))
        return np.concatenate([X, np.ones((len(X), 1)), units], axis=1)

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Means and variances of u of rows [N, D], [N, C] each."""
        features = self.features(X)
        sigma2 = np.sum((features @ self.cov) * features, axis=2).T
        return features @ self.mean.T, sigma2

    def after(self, X: Array, Y: Array, derivatives: Callable[..., Derivatives], weight: Array | None) -> JointNetwork:
        """The network after rows, one after the other.

        :param X: [N, D].
        :param Y: targets of `derivatives`, [N, C].
        :param derivatives: y, mu and sigma2, [1, C] each, to log P(y) and its derivatives.
        :param weight: how often each row counts, [N]; None: once.
        """
        mean, cov = self.mean.copy(), self.cov.copy()
        for number, feature in enumerate(self.features(X)):
            importance = 1.0 if weight is None else float(weight[number])
            gain = cov @ feature  # S f, [C, n]
            sigma2 = gain @ feature
            found = derivatives(Y[number : number + 1], (mean @ feature)[None], sigma2[None])
            slope = found.by_mu[0]
            curvature = np.maximum(slope**2 - 2.0 * found.by_sigma2[0], 0.0)
            if importance != 1.0:
                # A row that counts w times is w observations at the place where it was expanded.
                slope, curvature = _repeated(slope, curvature, sigma2, importance)
            mean += gain * slope[:, None]
            for output, factor in enumerate(curvature):
                cov[output] -= np.multiply.outer(factor * gain[output], gain[output])
        return self._replace(mean=mean, cov=cov)


def _repeated(slope: Array, curvature: Array, sigma2: Array, weight: float) -> tuple[Array, Array]:
    """Slope and curvature of `weight` observations like one: its precision and its natural parameter count so often.

    An observation of precision p of u ~ N(mu, s) has c = p / (1 + p s), and g = c (place - mu).
    """
    precision = curvature / np.maximum(1.0 - curvature * sigma2, 1e-12)
    repeated = weight * precision / (1.0 + weight * precision * sigma2)
    ratio = np.divide(repeated, curvature, out=np.full_like(curvature, weight), where=curvature > 0)
    return slope * ratio, repeated
