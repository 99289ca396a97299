"""Networks whose last layer has a joint posterior over its weights: for rows that come one by one.

A posterior of single weights (`second_order`) does not know what weights do together, and a stream has no second pass
in which to find out. Appendix B of the paper carries covariances through the forward pass; here the posterior itself
has them, of the weights of the last layer, and the hidden units keep the weights that they were drawn with:

    f(x) = (x, 1, relu(V'x + c) / sqrt(H)),    u_k = w_k' f,    w_k ~ N(m_k, S_k).

A priori weights of the inputs are N(0, 1), those of the units N(0, a^2): with a small a the border is nearly straight,
with a large one it bends. Each of `AMPLITUDES` has a posterior of its own, and they are mixed by the probability that
they gave to the rows so far, before each was learned (Bayes' rule for a).

The moments of each posterior after a row are exact. With Z = P(y | the rows before), for each output
g = d log Z / d mu and c = -d^2 log Z / d mu^2 = g^2 - 2 d log Z / d sigma2,

    m += S f g,    S -= (S f)(S f)' c.

A row costs C (D + H)^2 products for each a, and no row is kept.
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
MAX_NUMBERS = 800_000

#: a: standard deviations of the weights of hidden units, a priori.
AMPLITUDES = (1.0, 3.0)

#: Hidden units bend at distances up to so many standard deviations of the inputs.
REACH = 2.0


class JointNetwork(NamedTuple):
    """What is known after some rows.

    :ivar weights: V, [D, H].
    :ivar biases: c, [H].
    :ivar mean: m of each a and output, [A, C, D + 1 + H].
    :ivar cov: S of each a and output, [A, C, D + 1 + H, D + 1 + H].
    :ivar evidence: log probability that each a gave to the rows so far by each output, in nats, [A, C].
    """

    weights: Array
    biases: Array
    mean: Array
    cov: Array
    evidence: Array

    @classmethod
    def start(cls, num_inputs: int, num_units: int, num_outputs: int, rng: np.random.Generator) -> JointNetwork:
        """Before the first row."""
        # V and c, which stay as they are drawn.
        weights = rng.normal(size=(num_inputs, num_units))
        biases = rng.uniform(-REACH, REACH, num_units)
        amplitudes = np.array(AMPLITUDES if num_units else AMPLITUDES[:1])
        size = num_inputs + 1 + num_units
        # The prior: variance 1 of inputs and bias, a^2 of the units.
        variance = np.ones((len(amplitudes), size))
        variance[:, num_inputs + 1 :] = np.square(amplitudes)[:, None]
        cov = np.repeat((variance[:, :, None] * np.eye(size))[:, None], num_outputs, axis=1)
        evidence = np.zeros((len(amplitudes), num_outputs))
        return cls(weights, biases, np.zeros(cov.shape[:3]), cov, evidence)

    def features(self, X: Array) -> Array:
        """f of rows [N, D], [N, D + 1 + H]."""
        units = np.maximum(X @ self.weights + self.biases, 0.0)
        units /= math.sqrt(max(1, len(self.biases)))
        return np.concatenate([X, np.ones((len(X), 1)), units], axis=1)

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Means and variances of u of rows [N, D], [N, C] each."""
        features = self.features(X)
        means = self.mean @ features.T  # [A, C, N]
        variances = np.sum((features @ self.cov) * features, axis=3)
        # Bayes' rule: the probability of each a, given the rows so far.
        weight = np.exp(self.evidence - np.max(self.evidence, axis=0))
        weight = (weight / np.sum(weight, axis=0))[:, :, None]
        # Mean and variance of the mixture over a.
        mean = np.sum(weight * means, axis=0)
        variance = np.sum(weight * (variances + np.square(means - mean)), axis=0)
        return mean.T, variance.T

    def with_outputs(self, sources: list[int], signs: list[float]) -> JointNetwork:
        """A network whose outputs start as those of this one, or as minus them.

        :param sources: number of an output here for each output there.
        :param signs: 1 or -1 for each.
        """
        mean = self.mean[:, sources] * np.array(signs)[:, None]
        return self._replace(mean=mean, cov=self.cov[:, sources], evidence=self.evidence[:, sources])

    def after(self, X: Array, Y: Array, derivatives: Callable[..., Derivatives], weight: Array | None) -> JointNetwork:
        """The network after rows, one after the other.

        :param X: [N, D].
        :param Y: targets of `derivatives`, [N, C].
        :param derivatives: y, mu and sigma2, [B, 1] each, to log P(y) and its derivatives.
        :param weight: how often each row counts, [N]; None: once.
        """
        mean = self.mean.copy()
        cov = self.cov.copy()
        evidence = self.evidence.copy()
        targets = np.tile(Y, len(evidence))  # [N, A C]
        for number, feature in enumerate(self.features(X)):
            importance = 1.0 if weight is None else float(weight[number])
            # u ~ N(m'f, f'S f) for each a and output, before the row is learned.
            gain = cov @ feature  # S f, [A, C, n]
            sigma2 = gain @ feature
            # Each output of each a is a row of its own, of which log P(y) is wanted.
            mu = (mean @ feature).reshape(-1, 1)
            row_derivatives = derivatives(targets[number][:, None], mu, sigma2.reshape(-1, 1))
            # g = d log Z / d mu, and c = g^2 - 2 d log Z / d sigma2.
            slope = row_derivatives.by_mu.reshape(sigma2.shape)
            curvature = np.maximum(slope**2 - 2.0 * row_derivatives.by_sigma2.reshape(sigma2.shape), 0.0)
            evidence += importance * row_derivatives.log_prob.reshape(sigma2.shape)
            if importance != 1.0:
                # A row that counts w times is w observations at the place where it was expanded.
                slope, curvature = _repeated(slope, curvature, sigma2, importance)
            # m += S f g, S -= (S f)(S f)' c.
            mean += gain * slope[..., None]
            cov -= (curvature[..., None] * gain)[..., :, None] * gain[..., None, :]
        return self._replace(mean=mean, cov=cov, evidence=evidence)


def _repeated(slope: Array, curvature: Array, sigma2: Array, weight: float) -> tuple[Array, Array]:
    """Slope and curvature of `weight` observations like one: its precision and its natural parameter count so often.

    An observation of precision p of u ~ N(mu, s) has c = p / (1 + p s), and g = c (place - mu).
    """
    # p follows from c, and the precision of w observations is w p.
    precision = curvature / np.maximum(1.0 - curvature * sigma2, 1e-12)
    repeated = weight * precision / (1.0 + weight * precision * sigma2)
    ratio = np.divide(repeated, curvature, out=np.full_like(curvature, weight), where=curvature > 0)
    return slope * ratio, repeated
