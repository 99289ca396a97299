"""The distribution that a deep GP predicts for a target: its distribution function, quantiles, PIT and CRPS.

    p(y_n) = sum_s w_s int p(y_n | f) N(f; mean_sn, variance_sn) df                        Eq. (18), and the likelihood

    found = predictive(likelihood, X, means, variances)             # means and variances of f, [S, N, P]
    lower, upper = found.quantiles([0.025, 0.975])                  # [N, P] each
    found.cdf(Y), found.crps(Y)

With a Gaussian likelihood this is a mixture of Gaussians and all is exact. Likelihoods whose p(y | f) has a
distribution function (`conditionals` lists them) are averaged over Gauss-Hermite nodes in each component, or over draws
of f where y depends on several latent functions. What any other likelihood says is integrated from its density.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Gaussian, Likelihood
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from ..model.likelihoods import GaussianMixture
from .conditionals import Conditional, conditional, mixed_moments

__all__ = ["Predictive", "gaussian", "predictive", "root"]

Array = NDArray[np.float64]

NUM_NODES = 400
"""Nodes of f for each row, over all components."""

_CHUNK_FLOATS = 262_144  # 2 MB, which the cache of a processor holds
_RELATIVE = 1e-13
_MAX_STEPS = 80
_MAX_DOUBLINGS = 200
_LEGENDRE = np.polynomial.legendre.leggauss(20)
_MAX_COUNTS = 400


@dataclass(frozen=True, eq=False)
class Predictive:
    """Distributions of the P targets of N rows, each on its own.

    :param weights: of K parts of a mixture, [K], their sum is 1.
    :param parts: parameters of the parts, arrays [K, N, ...] that :attr:`part_cdf` takes.
    :param part_cdf: distribution functions of the parts of some rows: (y [n, P], their parameters) -> [K, n, P].
    :param center: about the middle of each distribution, [N, P]; and :attr:`width`, about its standard deviation.
    :param is_count: whether the targets are 0, 1, 2, ...
    :param low: smallest possible target, and :attr:`high` the largest one.
    :param is_gaussian: whether the parts are Gaussians: means and variances [K, N, P].
    """

    weights: Array
    parts: tuple[Array, ...]
    part_cdf: Callable[..., Array]
    center: Array
    width: Array
    is_count: bool = False
    low: float = -np.inf
    high: float = np.inf
    is_gaussian: bool = False

    def cdf(self, Y: np.ndarray) -> Array:
        """P(target <= y), [N, P], for Y [N, P]."""
        return self._by_rows(self._cdf, np.asarray(Y, np.float64))

    def quantiles(self, levels: Sequence[float]) -> Array:
        """Quantiles [levels, N, P]: the smallest y with P(target <= y) >= level, by finding roots.

        :raises ValueError: if a level is not between 0 and 1.
        """
        probabilities = np.asarray(levels, np.float64).reshape(-1)
        if not np.all((probabilities > 0) & (probabilities < 1)):
            raise ValueError(f"levels of quantiles must be between 0 and 1, got {list(levels)}.")
        quantiles = [self._by_rows(lambda rows, level=level: self._quantile(rows, level)) for level in probabilities]
        return np.stack(quantiles) if quantiles else np.zeros([0, *self.center.shape])

    def probabilities(self, Y: np.ndarray) -> tuple[Array, Array]:
        """P(target < y) and P(target <= y), [N, P] each, for Y [N, P]: the same but for counts."""
        upper = self.cdf(Y)
        return (self.cdf(np.asarray(Y) - 1) if self.is_count else upper), upper

    def pit(self, Y: np.ndarray, rng: np.random.Generator | None = None) -> Array:
        """The probability integral transform P(target <= y), [N, P]: uniform on [0, 1] if the model is right.

        :param rng: of counts: draws from between P(target < y) and P(target <= y); None for their middle.
        """
        lower, upper = self.probabilities(Y)
        return lower + (upper - lower) * (0.5 if rng is None else rng.random(upper.shape))

    def crps(self, Y: np.ndarray) -> Array:
        """Continuous ranked probability score, int (P(target <= z) - [y <= z])^2 dz, [N, P], in the units of Y."""
        Y = np.asarray(Y, np.float64)
        if self.is_gaussian:
            return GaussianMixture(self.weights, *self.parts).crps(Y)
        if self.is_count and np.max(largest := self.quantiles([1 - 1e-7])[0], initial=0) <= _MAX_COUNTS:
            return self._by_rows(self._summed, Y, largest)
        return self._by_rows(self._integrated, Y)

    def sample(self, num_samples: int, rng: np.random.Generator) -> Array:
        """Draws [num_samples, N, P], for each row and target on its own."""
        levels = np.clip(rng.random((num_samples, *self.center.shape)), 1e-12, 1 - 1e-12)
        return np.stack([self._by_rows(self._quantile, level) for level in levels])

    def _cdf(self, rows: slice, Y: Array) -> Array:
        return np.tensordot(self.weights, self.part_cdf(Y, *(part[:, rows] for part in self.parts)), axes=1)

    def _quantile(self, rows: slice, level: float | Array) -> Array:
        low, high = self._bracket(rows, level)
        if self.is_count:
            return self._count(rows, level, low, high)
        tolerance = _RELATIVE * np.maximum(self.width[rows], np.spacing(np.abs(self.center[rows])))
        return root(lambda y: self._cdf(rows, y) - level, low, high, tolerance)

    def _count(self, rows: slice, level: float | Array, low: Array, high: Array) -> Array:
        """By bisection of the whole numbers, as far as float64 tells them apart."""
        while True:
            middle = np.floor(low + 0.5 * (high - low))
            is_open = (low < middle) & (middle < high)
            if not is_open.any():
                return high
            is_below = self._cdf(rows, middle) < level
            low = np.where(is_open & is_below, middle, low)
            high = np.where(is_open & ~is_below, middle, high)

    def _bracket(self, rows: slice, level: float | Array) -> tuple[Array, Array]:
        """Targets between which the quantile is: P(low) < level <= P(high), as far as the targets' range allows."""
        # A standard deviation to either side; of counts a whole number of them.
        center = self.center[rows]
        step = np.maximum(self.width[rows], 1e-300)
        if self.is_count:
            center = np.floor(center)
            step = np.ceil(np.maximum(step, 1.0))
        low, high = (np.clip(center + sign * step, self._floor, self.high) for sign in (-1, 1))
        # Steps away from the middle, each twice as long, until the quantile is between.
        for _ in range(_MAX_DOUBLINGS):
            is_high = (self._cdf(rows, low) >= level) & (low > self._floor)
            is_low = (self._cdf(rows, high) < level) & (high < self.high)
            if not (is_high.any() or is_low.any()):
                break
            low = np.where(is_high, low - step, low)
            high = np.where(is_low, high + step, high)
            step = np.where(is_high | is_low, 2 * step, step)
            low = np.maximum(low, self._floor)
            high = np.minimum(high, self.high)
        return low, high

    @property
    def _floor(self) -> float:
        """Below all targets, or the smallest: P(target <= -1) = 0 of counts."""
        return self.low - 1 if self.is_count else self.low

    def _summed(self, rows: slice, Y: Array, most: Array) -> Array:
        """Of counts, as a sum; beyond `most`, the highest that are likely, P(target <= z) is 1."""
        total = np.zeros_like(Y)
        last = int(np.max(np.maximum(most, np.minimum(Y, _MAX_COUNTS)), initial=0))
        for count in range(last + 1):
            total += np.square(self._cdf(rows, np.full_like(Y, float(count))) - (count >= Y))
        return total + np.maximum(np.ceil(Y) - 1 - last, 0)

    def _integrated(self, rows: slice, Y: Array) -> Array:
        """By Gauss-Legendre quadrature between the middle and y; beyond them of u, where z is width * u / (1 - u) away,
        up to where targets end."""
        center = self.center[rows]
        width = np.maximum(self.width[rows], 1e-300)
        low = np.minimum(center, Y)
        high = np.maximum(center, Y)
        # The last u on either side, where targets end; 1 if they do not.
        with np.errstate(divide="ignore"):
            last_below = 1 / (1 + width / np.maximum(low - self.low, 0.0))
            last_above = 1 / (1 + width / np.maximum(self.high - high, 0.0))
        total = np.zeros_like(Y)
        for node, weight in zip(0.5 * (_LEGENDRE[0] + 1), 0.5 * _LEGENDRE[1], strict=True):
            # Between the middle and y.
            z = low + node * (high - low)
            total += weight * (high - low) * np.square(self._cdf(rows, z) - (z >= Y))
            # Below both.
            u = last_below * node
            slope = last_below * width / np.square(1 - u)
            total += weight * slope * np.square(self._cdf(rows, low - width * u / (1 - u)))
            # Above both.
            u = last_above * node
            slope = last_above * width / np.square(1 - u)
            total += weight * slope * np.square(1 - self._cdf(rows, high + width * u / (1 - u)))
        return total

    def _by_rows(self, function: Callable[..., Array], *arrays: Array) -> Array:
        """`function(rows, *arrays[rows])` of some rows at a time."""
        num_rows, num_targets = self.center.shape
        size = max(1, _CHUNK_FLOATS // max(1, len(self.weights) * num_targets))
        slices = [slice(i, min(i + size, num_rows)) for i in range(0, max(num_rows, 1), size)]
        return np.concatenate([function(rows, *(array[rows] for array in arrays)) for rows in slices])


def predictive(
    likelihood: Likelihood,
    X: np.ndarray,
    means: np.ndarray,
    variances: np.ndarray,
    *,
    weights: np.ndarray | None = None,
    offset: Array | float = 0.0,
    scale: Array | float = 1.0,
) -> Predictive:
    """The distribution of the targets at X, given what a deep GP says of the latent functions there.

    :param X: inputs [N, D], for likelihoods that depend on them.
    :param means: of the latent functions in each component, [S, N, L], and their `variances`; as `predict_components`.
    :param weights: of the components [S]; equal if None.
    :param offset: y = offset + scale * target of the likelihood, for each of the P targets; and `scale`. Only for
        likelihoods of all real numbers.
    :raises ValueError: if the targets are labels, or a likelihood of counts or positive numbers is to be scaled.
    """
    # A Gaussian likelihood leaves a mixture of Gaussians.
    means = np.asarray(means, np.float64)
    variances = np.maximum(np.asarray(variances, np.float64), 0.0)
    S = len(means)
    weights = np.full(S, 1.0 / S) if weights is None else np.asarray(weights, np.float64)
    offset = np.asarray(offset, np.float64)
    scale = np.asarray(scale, np.float64)
    if isinstance(likelihood, Gaussian):
        noise = np.asarray(likelihood.variance_at(tf.convert_to_tensor(X)), np.float64)[None]
        return gaussian(weights, offset + scale * means, np.square(scale) * (variances + noise))
    # Others are averaged over nodes of f.
    targets_given_f = conditional(likelihood, X)
    if not targets_given_f.is_real and (np.any(offset != 0) or np.any(scale != 1)):
        raise ValueError(f"targets of {type(likelihood).__name__} cannot be scaled; leave them in their own units.")
    return _of_conditional(targets_given_f, weights, means, variances, offset, scale)


def gaussian(weights: Array, means: Array, variances: Array) -> Predictive:
    """Mixtures of Gaussians: weights [S], means and variances of the targets [S, N, P]."""
    center, width = mixed_moments(weights, means, variances)
    return Predictive(weights, (means, variances), _gaussian_cdf, center, width, is_gaussian=True)


def _of_conditional(
    found: Conditional, weights: Array, means: Array, variances: Array, offset: Array, scale: Array
) -> Predictive:
    nodes, node_weights = _nodes(weights, means, variances, is_joint=found.is_joint)
    parts = tuple(np.asarray(part, np.float64) for part in found.parameters(nodes, node_weights))
    if found.is_mixed:
        node_weights = np.ones(1)

    def part_cdf(y: Array, *parameters: Array) -> Array:
        return found.cdf((y - offset) / scale, *parameters)

    center, width = found.moments(node_weights, *parts)
    low, high = found.support
    return Predictive(node_weights, parts, part_cdf, offset + scale * center, scale * width, found.is_count, low, high)


def _nodes(weights: Array, means: Array, variances: Array, *, is_joint: bool) -> tuple[Array, Array]:
    """Values of the latent functions [K, N, L] and their weights [K], which integrate over the mixture of Gaussians."""
    S, _, L = means.shape
    if is_joint:
        # Sobol points of all latent functions together.
        count = max(1, NUM_NODES // S)
        points = np.clip(
            qmc.Sobol(L, rng=np.random.default_rng(0)).random(1 << (count - 1).bit_length()), 1e-9, 1 - 1e-9
        )
        eps = ndtri(points)
        shares = np.full(len(points), 1.0 / len(points))
    else:
        # Gauss-Hermite nodes of each of them.
        hermite, shares = np.polynomial.hermite_e.hermegauss(int(np.clip(NUM_NODES // S, 6, 60)))
        eps = np.repeat(hermite[:, None], L, axis=1)
        shares = shares / shares.sum()
    # Of every component its nodes, which share its weight.
    values = means[:, None] + np.sqrt(variances)[:, None] * eps[None, :, None, :]
    return values.reshape(S * len(eps), *means.shape[1:]), (weights[:, None] * shares).reshape(-1)


def _gaussian_cdf(y: Array, means: Array, variances: Array) -> Array:
    return np.asarray(ndtr((y - means) / np.sqrt(variances)))


def root(function: Callable[[Array], Array], low: Array, high: Array, tolerance: Array) -> Array:
    """Roots of increasing functions, one for each element: Chandrupatla's method (1997), never slower than bisection.

    :param low: where a function is at most 0, and `high` where it is at least 0.
    :param tolerance: of each root. An element does not depend on the others.
    """
    # The root is between x1, the last point, and x2, of the other sign; x3 is the point before.
    x1 = low
    x2 = high
    f1 = function(low)
    f2 = function(high)
    x3 = x2
    f3 = f2
    share = np.full_like(low, 0.5)
    is_open = (f1 < 0) & (f2 > 0)
    roots = np.where(f1 >= 0, low, high)
    for _ in range(_MAX_STEPS):
        if not is_open.any():
            break
        # A point in the bracket, which replaces the end of its sign.
        x = x1 + share * (x2 - x1)
        f = function(x)
        is_same = np.sign(f) == np.sign(f1)
        x3 = np.where(is_same, x1, x2)
        f3 = np.where(is_same, f1, f2)
        x2 = np.where(is_same, x2, x1)
        f2 = np.where(is_same, f2, f1)
        x1 = x
        f1 = f
        roots = np.where(is_open, np.where(np.abs(f1) <= np.abs(f2), x1, x2), roots)
        # The better end is the root so far; done where the bracket is within the tolerance.
        least = tolerance / np.maximum(np.abs(x2 - x1), np.finfo(np.float64).tiny)
        is_open &= (f1 != 0) & (least < 0.5)
        # Inverse quadratic interpolation where that is safe, else bisection.
        with np.errstate(divide="ignore", invalid="ignore"):
            xi = (x1 - x2) / (x3 - x2)
            phi = (f1 - f2) / (f3 - f2)
            curved = f1 / (f2 - f1) * f3 / (f2 - f3) + (x3 - x1) / (x2 - x1) * f1 / (f3 - f1) * f2 / (f3 - f2)
            is_curved = (np.square(phi) < xi) & (np.square(1 - phi) < 1 - xi) & np.isfinite(curved)
        share = np.clip(np.where(is_curved, curved, 0.5), np.minimum(least, 0.5), 1 - np.minimum(least, 0.5))
    return roots
