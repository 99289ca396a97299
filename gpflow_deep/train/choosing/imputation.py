"""Two layers for few rows without noise, whose inner outputs are drawn, by NumPy.

    imputed = impute(single, "matern52", X, Y, seed=0)           # single: of search_exact(X, Y, ...)
    means, variances = imputed.predict(X, Y, X_new, seed=0)      # Gaussians, of which the prediction is the mixture

The inner outputs W at the rows are the inputs of an exact GP of the targets, and have a GP prior around the inputs:

    log p(Y, W) = log N(Y | 0, k2(W, W) + s I) + sum_d log N(w_d - x_d | 0, k1(X, X))

W is drawn by elliptical slices (Murray, Adams and MacKay 2010), some columns after the others, as Sauer, Gramacy and
Higdon (2023) and Ming, Williamson and Guillas (2023) do. It starts at the inputs, with k2 of the single layer. After
each round the parameters of both kernels go a step of Adam up log p(Y, W, parameters), a stochastic approximation of
EM; then they stay, and every few rounds W is kept. Some chains of W share the parameters, which climb the mean over
these: a single one can stay where it fits the rows by other parameters and predicts half as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, lapack, solve_triangular

from ..config import KernelName
from .single_layer import SingleLayer, log_marginal_likelihood, squared_distances, stationary

__all__ = ["DRAWS", "INNER", "MAX_INPUTS", "MAX_ROWS", "NOISE", "Imputed", "impute"]

Array = NDArray[np.float64]

MAX_ROWS = 200
"""Up to so many rows inner outputs are drawn: each draw takes O(N^3)."""

MAX_INPUTS = 10
"""And up to so many inputs."""

BLOCKS = 6
"""The most parts in which columns of the inner outputs are drawn."""

BURN_IN = 200
"""Rounds in which the parameters move."""

CHAINS = 3
"""Of inner outputs, with the same parameters."""

KEPT = 18
"""Draws that are kept, in all."""

THIN = 10
"""Rounds from one of these to the next."""

NOISE = 1e-6
"""Variance that covariances of the targets and of the inner outputs have beside."""

DRAWS = 8
"""Of the inner outputs at new inputs, of each W."""

RATE = 0.05
"""Of Adam."""

INNER: KernelName = "squared_exponential"
"""Kernel of the inner layer."""

_INNER_START = (0.3, 1.0)  # variance of W - X, and lengthscales, in which it is smooth enough to be learnt
_LARGEST_START = 3.0  # lengthscale of the last layer
_FAILED = -1e25


@dataclass(frozen=True)
class Imputed:
    """Draws of the inner outputs at the rows, for standardised rows.

    :param kernel: of the last layer, a plain one.
    :param inner: logarithms of the inner kernel's variance, lengthscales [D] and noise.
    :param outer: the same of the last layer's.
    :param draws: W, [K, N, D].
    :param evaluations: of the likelihood, in all.
    """

    kernel: KernelName
    inner: Array
    outer: Array
    draws: Array
    evaluations: int

    def whitened(self, X: Array) -> Array:
        """L^-1 (W - X), [K, N, D], with L L' = k1(X, X) of the rows X [N, D]."""
        root = _root(INNER, self.inner, X)
        return np.stack([solve_triangular(root, W - X, lower=True) for W in self.draws])

    def predict(self, X: Array, Y: Array, X_new: Array, *, seed: int) -> tuple[Array, Array]:
        """Means [S, n, P] and variances [S, n] of targets at X_new [n, D], by rows X [N, D] and Y [N, P]: `DRAWS` of
        each W."""
        # Inner outputs at new inputs, given W: mean x + A'L^-1 (W - X), variance k1(x, x) - A'A.
        root = _root(INNER, self.inner, X)
        A = solve_triangular(root, _covariance(INNER, self.inner, X, X_new), lower=True)
        spread = np.sqrt(np.maximum(np.exp(self.inner[0]) - np.sum(A * A, axis=0), 0.0))[:, None]
        rng = np.random.default_rng([seed, 8])
        means = []
        variances = []
        for W in self.draws:
            middle = X_new + A.T @ solve_triangular(root, W - X, lower=True)
            root_W = _root(self.kernel, self.outer, W)
            right = solve_triangular(root_W, Y, lower=True)
            # The exact GP at draws of the inner outputs.
            for _ in range(DRAWS):
                F = middle + spread * rng.standard_normal(middle.shape)
                B = solve_triangular(root_W, _covariance(self.kernel, self.outer, W, F), lower=True)
                means.append(B.T @ right)
                variances.append(np.exp(self.outer[0]) - np.sum(B * B, axis=0))
        return np.stack(means), np.maximum(np.stack(variances), 0.0) + np.exp(self.outer[-1])


def impute(single: SingleLayer, kernel: KernelName, X: Array, Y: Array, *, seed: int, chains: int = CHAINS) -> Imputed:
    """Draw the inner outputs.

    :param single: exact; the parameters of the last layer start at its variance and lengthscales.
    :param kernel: of the last layer, without a linear part.
    :param X: standardised inputs [N, D].
    :param Y: standardised targets [N, P].
    :param chains: how many; one is enough to see whether two layers are clearly better.
    """
    return _Chains(single, kernel, X, Y, seed, chains).run()


class _Chains:
    """Inner outputs and parameters, and how they move."""

    def __init__(self, single: SingleLayer, kernel: KernelName, X: Array, Y: Array, seed: int, chains: int) -> None:
        D = X.shape[1]
        self.X = X
        self.Y = Y
        self.kernel = kernel
        self.rng = np.random.default_rng([seed, 7])
        # Parameters at the start: the inner outputs are smooth, the last layer is the single one.
        variance, lengthscale = np.log(_INNER_START)
        self.inner = np.array([variance, *[lengthscale + np.log(0.5 * np.sqrt(D))] * D, np.log(NOISE)])
        scales = np.minimum(single.theta[1 : D + 1], np.log(_LARGEST_START))
        self.outer = np.array([np.clip(single.theta[0], -1.0, 2.0), *scales, np.log(NOISE)])
        # Adam's means of slopes and of their squares, and the chains.
        self.moments = [np.zeros((2, D + 1)) for _ in range(2)]
        self.F = np.zeros((chains, *X.shape))  # W - X
        self.evaluations = 0

    def run(self) -> Imputed:
        """To the end."""
        draws = []
        # Rounds: all chains move, then the parameters; these stay after the burn-in, and draws are kept.
        for step in range(BURN_IN + -(-KEPT // len(self.F)) * THIN):
            root = _root(INNER, self.inner, self.X)
            for F in self.F:
                self._draw(root, F)
            if step < BURN_IN:
                self._climb(step)
            elif (step - BURN_IN) % THIN == THIN - 1:
                draws.append(self.X + self.F)
        return Imputed(self.kernel, self.inner, self.outer, np.concatenate(draws), self.evaluations)

    def _draw(self, root: Array, F: Array) -> None:
        """A round of elliptical slices: of F [N, D], W - X of a chain, whose columns have a prior with this root
        [N, N], some columns after the others."""
        (N, D) = self.X.shape
        value = self._value(F)
        for columns in np.array_split(np.arange(D), min(D, BLOCKS)):
            now = F[:, columns]
            other = root @ self.rng.standard_normal((N, len(columns)))
            # The level of the slice, and a bracket of angles that shrinks towards where the chain is.
            level = value + np.log(self.rng.random())
            angle = self.rng.random() * 2 * np.pi
            low, high = angle - 2 * np.pi, angle
            # Points on the ellipse through both, until one is above the level.
            while True:
                F[:, columns] = np.cos(angle) * now + np.sin(angle) * other
                value = self._value(F)
                if value > level:
                    break
                if high - low < 1e-9:  # rounding hides where the chain was
                    F[:, columns] = now
                    value = self._value(F)
                    break
                low, high = (angle, high) if angle < 0 else (low, angle)
                angle = self.rng.uniform(low, high)

    def _value(self, F: Array) -> float:
        """log N(Y | 0, k2(W, W) + s I) up to a constant, nats: by LAPACK itself, as of few rows SciPy's checks take as
        long."""
        self.evaluations += 1
        root, failed = lapack.dpotrf(_noisy(self.kernel, self.outer, self.X + F).T, lower=1, clean=0, overwrite_a=1)
        if failed:
            return _FAILED
        right, _ = lapack.dtrtrs(root, self.Y, lower=1)
        return float(-0.5 * np.sum(right * right) - self.Y.shape[1] * np.sum(np.log(root.diagonal())))

    def _climb(self, step: int) -> None:
        """A step of Adam for the parameters of both layers, up the mean posterior density at the present W."""
        # Slopes are means over the chains; the rate falls over the second half.
        rate = RATE * min(1.0, 2.0 * (1 - step / BURN_IN))
        of_inner = [log_marginal_likelihood(self.inner, INNER, self.X, F)[1] for F in self.F]
        of_outer = [log_marginal_likelihood(self.outer, self.kernel, self.X + F, self.Y)[1] for F in self.F]
        for number, (theta, gradients) in enumerate(((self.inner, of_inner), (self.outer, of_outer))):
            slope = np.mean(gradients, axis=0)[:-1] + _prior_slope(theta, is_inner=number == 0)
            # Adam, with memories of 0.8 and 0.95.
            mean, square = self.moments[number]
            mean += 0.2 * (slope - mean)
            square += 0.05 * (np.square(slope) - square)
            corrected = np.sqrt(square / (1 - 0.95 ** (step + 1))) + 1e-8
            theta[:-1] += rate * mean / (1 - 0.8 ** (step + 1)) / corrected


def _prior_slope(theta: Array, *, is_inner: bool) -> Array:
    """Of the log density of the parameters but the noise, log-normal: of the inner layer around `_INNER_START` by a
    factor of e, of the last one around 1 by its square."""
    if is_inner:
        variance, lengthscale = np.log(_INNER_START)
        return np.append(variance - theta[0], lengthscale - theta[1:-1])
    return -0.25 * theta[:-1]


def _covariance(kernel: str, theta: Array, A: Array, B: Array) -> Array:
    scales = np.exp(theta[1:-1])
    values, _ = stationary(kernel, squared_distances(A / scales, B / scales))
    return np.exp(theta[0]) * values


def _noisy(kernel: str, theta: Array, A: Array) -> Array:
    """The covariance at A [N, D], with noise."""
    K = _covariance(kernel, theta, A, A)
    K[np.diag_indices(len(A))] = np.exp(theta[0]) + np.exp(theta[-1])
    return K


def _root(kernel: str, theta: Array, A: Array) -> Array:
    """Its Cholesky factor."""
    return cholesky(_noisy(kernel, theta, A).T, lower=True, overwrite_a=True, check_finite=False)
