"""A GP with Gaussian noise by NumPy: the exact one and the sparse one, their gradients, and the search for the best.

    single = search_exact(X, Y, CANDIDATES)                         # or search_sparse(X, Y, CANDIDATES, 100)
    residuals, log_densities = leave_one_out(single, X, Y)

L-BFGS climbs the marginal likelihood, or the collapsed bound of Titsias (2009), from two starts (much noise, little)
for each kernel; where rows are few for the inputs, with a prior of the parameters. Rows left out one by one are judged
in closed form:

    p(y_n | y_-n) = N(y_n - a_n / B_nn, 1 / B_nn),   B = (K + s I)^-1, a = B y  (Rasmussen and Williams 2006, 5.12)

Noise with Student's t distribution is Gaussian noise whose precisions w / s vary from row to row (Tipping and Lawrence
2005): with the best q(w), see `student_t_bound`, an outlier is a row with little weight, and all else is as above.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

import gpflow
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, cho_solve, cholesky, lapack, solve_triangular
from scipy.optimize import minimize
from scipy.special import gammaln, ndtr, ndtri

from gpflow_deep_base.numbers.scores import standard_error

from ...model.initialization import inducing_inputs
from ...posteriors.noise import ABOVE_BOUND
from ..config import KERNELS, LINEAR, KernelName

__all__ = [
    "CANDIDATES",
    "EXACT_ROWS",
    "LEAST_NOISE",
    "MIDDLE",
    "NO_NOISE",
    "PLAIN",
    "RACE_ROWS",
    "STRONG",
    "SingleLayer",
    "chance_of_function",
    "climb_exact",
    "climb_sparse",
    "collapsed_bound",
    "first_theta",
    "grow",
    "has_few_rows",
    "judge",
    "leave_one_out",
    "log_marginal_likelihood",
    "log_posterior",
    "paired_gain",
    "rms_error",
    "search_exact",
    "search_sparse",
    "search_student_t",
    "squared_distances",
    "stationary",
    "student_t_bound",
]

Array = NDArray[np.float64]
Show = Callable[[str], None] | None
Objective = Callable[..., tuple[float, Array]]

CANDIDATES: tuple[KernelName, ...] = tuple(name for name in get_args(KernelName) if name != "convolutional")
"""Kernels."""

PLAIN: tuple[KernelName, ...] = ("squared_exponential", "matern52")
"""Kernels that are taken for granted; others have to be clearly better."""

STRONG = 3.0
"""Nats of all rows: evidence of 20 to 1, which is called strong (Kass and Raftery 1995)."""

EXACT_ROWS = 1000
"""Up to so many rows are inducing inputs themselves from the start: an evaluation takes O(N^3). Of up to twice as many
kernel and parameters are looked for with fewer inducing inputs first."""

RACE_ROWS = 200
"""Rows on which all kernels are tried."""

MIDDLE = 25
"""Iterations of L-BFGS after which candidates are compared."""

LEAST_NOISE = 1e-8
"""Lower bound of the variance of Gaussian noise, in units of the variance of the targets."""

MAX_WORK = 5e8
"""The most of N M^2, to which an evaluation is proportional, that is chosen."""

RISE = 0.02
"""Of the bound, nats per row, that twice as many inducing inputs have to bring."""

ROWS_PER_INPUT = 20
"""With fewer, the largest likelihood can be that of a function through noisy targets: lengthscales and noise get a
prior."""

ROWS_PER_LENGTHSCALE = 3
"""With fewer, a prior does not keep a function from following noise."""

NO_NOISE = 1e-3
"""With less noise, in units of the variance of the targets, rows are taken for those of a function without it."""

MUCH_NOISE = 0.1
"""With less noise, in the same units, rows of several inputs that are not few for these are seen well enough without a
prior: what is left may be jumps or valleys of a function without noise."""

NEAR_TREND = 0.1
"""Nats per row: where no function is further ahead of a trend, what it adds can be a function through the noise."""

DF = 3.0
"""Degrees of freedom of Student's t noise, those of `ModelConfig`."""

_TREND: KernelName = "squared_exponential+linear"
_STARTS = (0.1, 1e-3)
_LEAST_START = 1e-5  # with all rows of a large table
_JITTER_FACTOR = float(np.finfo(np.float64).eps)
_FAILED = 1e25


# The single layer: values and gradients with respect to the logarithms of its parameters.


@dataclass(frozen=True)
class SingleLayer:
    """A GP with Gaussian noise for standardised rows.

    :param kernel: as in `ModelConfig`.
    :param theta: logarithms of kernel variance, lengthscales [D], noise and, with a
        linear part, its variance.
    :param Z: inducing inputs [M, D]; None if it is exact.
    :param value: marginal likelihood, posterior density, or bound, nats per row and target.
    :param evaluations: of it, in all.
    :param weights: of the rows [N], by which their noise is divided: that of Student's t noise, with the square of its
        scale in theta; None if the noise is Gaussian.
    :param has_prior: whether theta has a prior.
    :param is_trend: whether there is nothing beside the linear part.
    """

    kernel: KernelName
    theta: Array
    Z: Array | None
    value: float
    evaluations: int
    weights: Array | None = None
    has_prior: bool = False
    is_trend: bool = False

    @property
    def has_linear(self) -> bool:
        """Whether the kernel has a linear part."""
        return self.kernel.endswith(LINEAR)

    @property
    def lengthscales(self) -> Array:
        """Of the stationary part, [D]."""
        return np.exp(self.theta[1 : self.num_inputs + 1])

    @property
    def num_inputs(self) -> int:
        """D."""
        return len(self.theta) - 2 - self.has_linear

    @property
    def variance(self) -> float:
        """Of the stationary part."""
        return float(np.exp(self.theta[0]))

    @property
    def linear(self) -> float:
        """Variance of the linear part; 0 without."""
        return float(np.exp(self.theta[-1])) if self.has_linear else 0.0

    @property
    def noise(self) -> float:
        """Variance of the noise, or the square of the scale of Student's t."""
        return float(np.exp(self.theta[1 + self.num_inputs]))

    @property
    def noises(self) -> Array:
        """Of the rows, [N] or []."""
        return np.asarray(self.noise) if self.weights is None else self.noise / self.weights

    def predict(self, X: Array, Y: Array, X_new: Array) -> tuple[Array, Array]:
        """Mean [n, P] and variance [n] of targets at X_new [n, D], by rows X [N, D] and Y [N, P]; with Student's t as
        if their weights were 1."""
        prior = self.variance + self.linear * np.sum(np.square(X_new), axis=1)
        if self.Z is None:
            # The exact GP: with K = L L' and A = L^-1 k(X, x), mean A' L^-1 Y and variance k(x, x) - A'A + s.
            K = self.covariance(X, X) + self.noises * np.eye(len(X))
            root = cholesky(K, lower=True)
            A = solve_triangular(root, self.covariance(X, X_new), lower=True)
            return A.T @ solve_triangular(root, Y, lower=True), prior - np.sum(A * A, axis=0) + self.noise
        # The sparse one, with the best q(u) of the collapsed bound.
        M = len(self.Z)
        root = cholesky(self.covariance(self.Z, self.Z) + _jitter(M) * np.eye(M), lower=True)
        A, A_new = (solve_triangular(root, self.covariance(self.Z, rows), lower=True) for rows in (X, X_new))
        root_B = cholesky(np.eye(M) + A @ A.T / self.noise, lower=True)
        # With C = root_B^-1 A_new: mean C' root_B^-1 A Y / s, variance k(x, x) - A_new' A_new + C'C + s.
        C = solve_triangular(root_B, A_new, lower=True)
        mean = C.T @ solve_triangular(root_B, A @ Y, lower=True) / self.noise
        return mean, prior - np.sum(A_new * A_new, axis=0) + np.sum(C * C, axis=0) + self.noise

    def covariance(self, A: Array, B: Array) -> Array:
        """Of the function at A [n, D] and B [m, D], [n, m]."""
        values, _ = stationary(self.kernel, squared_distances(A / self.lengthscales, B / self.lengthscales))
        return self.variance * values + self.linear * A @ B.T


def _jitter(num_inducing: int) -> float:
    """That of `SVGPLayer.factors`."""
    return max(float(gpflow.default_jitter()), num_inducing * _JITTER_FACTOR)


def squared_distances(A: Array, B: Array) -> Array:
    """|a - b|^2, [N, M], of rows A [N, D] and B [M, D]."""
    squares = A @ B.T
    squares *= -2
    squares += np.sum(A * A, axis=1)[:, None]
    squares += np.sum(B * B, axis=1)
    return np.maximum(squares, 0.0, out=squares)


def stationary(kernel: str, squares: Array) -> tuple[Array, Array]:
    """Correlations at squared distances in lengthscales, and their derivatives with respect to these.

    :param squares: [N, M], which are overwritten: memory that is asked for anew costs more than what it is for.
    """
    if kernel.startswith("squared_exponential"):
        # exp(-d^2 / 2).
        squares *= -0.5
        values = np.exp(squares, out=squares)
        return values, -0.5 * values
    is_smooth = kernel.startswith("matern52")
    # (1 + r + r^2 / 3) exp(-r) with r = sqrt(5 d^2), or (1 + r) exp(-r) with r = sqrt(3 d^2).
    scaled = np.sqrt((5.0 if is_smooth else 3.0) * squares)
    decay = np.exp(-scaled)
    scaled += 1
    if not is_smooth:
        scaled *= decay
        decay *= -1.5
        return scaled, decay
    # With r^2 / 3 = 5 d^2 / 3; the derivative is -5 / 6 (1 + r) exp(-r).
    slopes = scaled * decay
    squares *= 5 / 3
    squares += scaled
    squares *= decay
    slopes *= -5 / 6
    return squares, slopes


def log_marginal_likelihood(
    theta: Array, kernel: str, X: Array, Y: Array, weights: Array | None = None
) -> tuple[float, Array]:
    """log p(Y | X) of an exact GP, nats, and its gradient: d/dK = (a a' - P K^-1) / 2 with a = K^-1 Y.

    Symmetric matrices are held by one of their triangles.

    :param theta: as of `SingleLayer`.
    :param X: [N, D].
    :param Y: [N, P].
    :param weights: [N], by which the noise is divided; the gradient has those of their logarithms behind the others.
    :return: minus `_FAILED` where the factorisation fails.
    """
    size = len(theta) + (0 if weights is None else len(weights))
    (N, D) = X.shape
    P = Y.shape[1]
    # The stationary part of K, and its slopes with respect to squared distances.
    A = X / np.exp(theta[1 : D + 1])
    squares = squared_distances(A, A)
    np.fill_diagonal(squares, 0.0)
    values, slopes = stationary(kernel, squares)
    variance = np.exp(theta[0])
    noises = np.exp(theta[D + 1]) * np.ones(N) / (1.0 if weights is None else weights)
    linear = np.exp(theta[-1]) if kernel.endswith(LINEAR) else 0.0
    # The lower triangle of K, in Fortran's order, as LAPACK writes into it; then its root in the same place.
    K = (variance * values).T
    if linear:
        K = blas.dsyrk(linear, X, beta=1.0, c=K, lower=1, overwrite_c=1)
    K[np.diag_indices(N)] += noises
    try:
        root = cholesky(K, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return -_FAILED, np.zeros(size)
    # log p(Y | X) = -tr(Y'a) / 2 - P log det(K) / 2 - N P log(2 pi) / 2.
    a = cho_solve((root, True), Y, check_finite=False)
    value = -0.5 * np.sum(Y * a) - P * np.sum(np.log(np.diag(root))) - 0.5 * N * P * np.log(2 * np.pi)
    # G = d log p(Y | X) / dK, below its diagonal, with zeros above; a parameter has the gradient sum of G * dK/d(it).
    G, _ = lapack.dpotri(root, lower=1, overwrite_c=1)
    G = blas.dsyrk(0.5, a, beta=-0.5 * P, c=G, lower=1, overwrite_c=1)
    of_noises = noises * np.diag(G)
    gradient = np.zeros(size)
    gradient[0] = variance * (2 * np.vdot(G.T, values) - np.diag(G) @ np.diag(values))
    # Of log lengthscales: scaled squared distances change by -2 (a_i - a_j)^2 in each column. W + W' has them all.
    W = np.multiply(slopes, G.T, out=slopes)
    W *= variance
    sums = W.sum(axis=0) + W.sum(axis=1)
    gradient[1 : D + 1] = -4 * (sums @ (A * A) - 2 * np.sum(A * (W @ A), axis=0))
    gradient[D + 1] = np.sum(of_noises)
    if weights is not None:
        gradient[len(theta) :] = -of_noises
    if linear:
        gradient[D + 2] = linear * np.sum(X * blas.dsymm(1.0, G, X, lower=1))
    return float(value), gradient


def log_posterior(theta: Array, kernel: str, X: Array, Y: Array, weights: Array | None = None) -> tuple[float, Array]:
    """log p(Y | X) + log p(theta), nats up to a constant, and its gradient; arguments as of `log_marginal_likelihood`.

    The standard deviation of the noise is half normal with scale 1, that of the targets; lengthscales are log-normal
    around 4 sqrt(D), a nearly linear function of all inputs, by a factor of e.
    """
    # The prior of lengthscales and noise beside the likelihood.
    value, gradient = log_marginal_likelihood(theta, kernel, X, Y, weights)
    if value == -_FAILED:
        return value, gradient
    D = X.shape[1]
    offsets = theta[1 : D + 1] - np.log(4 * np.sqrt(D))
    noise = np.exp(theta[D + 1])
    gradient[1 : D + 1] -= offsets
    gradient[D + 1] += 0.5 * (1 - noise)
    return value + float(0.5 * (theta[D + 1] - noise - np.sum(np.square(offsets)))), gradient


def student_t_bound(
    packed: Array, kernel: str, X: Array, Y: Array, objective: Objective = log_marginal_likelihood
) -> tuple[float, Array]:
    """A lower bound on log p(Y | X) with Student's t noise, nats, and its gradient.

    Noise of a row with variance s / l, where l has the density Gamma(l; nu / 2, nu / 2), is Student's t. With q(l) a
    Gamma density of shape (nu + 1) / 2 and mean w, the bound is

        log N(Y | 0, K + diag(s / w)) + sum_n nu / 2 (log w_n - w_n) + N c,    c = (nu + 1) / 2 (1 - log((nu + 1) / 2))
            + log Gamma((nu + 1) / 2) - log Gamma(nu / 2) + nu / 2 log(nu / 2).

    :param packed: theta as of `SingleLayer`, and behind it the logarithms of w [N].
    :param Y: [N, 1].
    :param objective: of theta with weights, the first term: that, or with the density of a prior.
    """
    # The Gaussian term, and what q(l) adds.
    count = len(X)
    log_weights = packed[-count:]
    weights = np.exp(log_weights)
    value, gradient = objective(packed[:-count], kernel, X, Y, weights)
    gradient[-count:] += 0.5 * DF * (1 - weights)
    half = 0.5 * (DF + 1)
    constant = half * (1 - np.log(half)) + gammaln(half) - gammaln(0.5 * DF) + 0.5 * DF * np.log(0.5 * DF)
    return value + float(np.sum(0.5 * DF * (log_weights - weights)) + count * constant), gradient


def judge(single: SingleLayer, Y: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Standardised residuals, which are standard normal if all is right, and log densities in nats, of targets.

    :param Y: [n, P].
    :param mean: predicted [n, P]; and variance [n], as of `SingleLayer.predict`.
    """
    # Gaussian noise in closed form.
    variance = variance[:, None]
    if single.weights is None:
        residuals = (Y - mean) / np.sqrt(variance)
        return residuals, -0.5 * (np.log(2 * np.pi * variance) + np.square(residuals))
    # Student's t by the trapezoidal rule for the logarithm of the precision l of the noise.
    logs = np.linspace(-20, 4, 120)[:, None, None]
    shares = np.exp(0.5 * DF * (logs - np.exp(logs)))
    shares /= shares.sum()
    variances = variance - single.noise + single.noise * np.exp(-logs)
    squares = np.square(Y - mean) / variances
    densities = np.sum(shares * np.exp(-0.5 * squares) / np.sqrt(2 * np.pi * variances), axis=0)
    probabilities = np.sum(shares * ndtr((Y - mean) / np.sqrt(variances)), axis=0)
    return ndtri(np.clip(probabilities, 1e-12, 1 - 1e-12)), np.log(densities)


def _inverse(root: Array) -> Array:
    """(L L')^-1 of a lower L."""
    lower, _ = lapack.dpotri(root, lower=1)  # 0 above the diagonal, as L is
    inverse = lower + lower.T
    np.fill_diagonal(inverse, np.diag(lower))
    return np.asarray(inverse)


def leave_one_out(single: SingleLayer, X: Array, Y: Array) -> tuple[Array, Array]:
    """What `judge` says, each [N, P], of every row given all others by an exact GP."""
    K = single.covariance(X, X) + single.noises * np.eye(len(X))
    root = cholesky(K, lower=True)
    # Of left-out rows: mean y_n - a_n / B_nn and variance 1 / B_nn, with the noise of the row.
    variance = 1 / np.diag(_inverse(root))
    mean = Y - cho_solve((root, True), Y) * variance[:, None]
    return judge(single, Y, mean, variance - single.noises + single.noise)


def collapsed_bound(packed: Array, kernel: str, X: Array, Y: Array, num_inducing: int) -> tuple[float, Array]:
    """The bound of `collapsed`, nats, and its gradient.

    With A = L^-1 Kuf, B = I + A A' / s, b = (Qff + s I)^-1 Y and T = Kuu^-1 Kuf:

        d/dKuf = T b b' + P / s L^-T (I - B^-1) A
        d/dKuu = -(T b b' T' + P L^-T (I - B^-1) (B - I) L^-1) / 2

    :param packed: theta as of `SingleLayer`, and behind it Z [M, D].
    :param num_inducing: how many inducing inputs, M.
    :return: minus `_FAILED` where a factorisation fails.
    """
    (N, D) = X.shape
    P = Y.shape[1]
    M = num_inducing
    theta = packed[: -M * D]
    Z = packed[-M * D :].reshape(M, D)
    scales = np.exp(theta[1 : D + 1])
    variance = np.exp(theta[0])
    noise = np.exp(theta[D + 1])
    linear = np.exp(theta[-1]) if kernel.endswith(LINEAR) else 0.0
    # Kuu with jitter, Kuf, and the slopes of both with respect to squared distances.
    scaled = X / scales
    scaled_Z = Z / scales
    squares = squared_distances(scaled_Z, scaled_Z)
    np.fill_diagonal(squares, 0.0)
    values_u, slopes_u = stationary(kernel, squares)
    values_f, slopes_f = (part.T for part in stationary(kernel, squared_distances(scaled, scaled_Z)))
    Kuu = variance * values_u + linear * Z @ Z.T + _jitter(M) * np.eye(M)
    Kuf = variance * values_f  # in Fortran's order, as all of its size, so that BLAS writes in place
    if linear:
        Kuf = blas.dgemm(linear, Z, X, beta=1.0, c=Kuf, trans_b=1, overwrite_c=1)
    # A = L^-1 Kuf and B = I + A A' / s.
    identity = np.eye(M)
    try:
        root = cholesky(Kuu, lower=True, check_finite=False)
        A = blas.dtrsm(1.0, root, Kuf, lower=1, overwrite_b=1)
        B = identity + A @ A.T / noise
        root_B = cholesky(B, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return -_FAILED, np.zeros_like(packed)
    # The bound: log N(Y | 0, Qff + s I), by A and B alone, minus P tr(Kff - Qff) / (2 s).
    c = solve_triangular(root_B, A @ Y, lower=True) / noise
    gap = N * variance + linear * np.sum(X * X) - noise * (np.trace(B) - M)  # tr(Kff - Qff)
    value = 0.5 * np.sum(c * c) - 0.5 / noise * np.sum(Y * Y) - P * np.sum(np.log(np.diag(root_B)))
    value -= 0.5 * N * P * np.log(2 * np.pi * noise) + 0.5 * P / noise * gap
    # Derivatives with respect to Kuf, Kuu and the noise.
    b = (Y - A.T @ solve_triangular(root_B, c, lower=True, trans=1)) / noise
    inverse_B = cho_solve((root_B, True), identity)
    H = solve_triangular(root, identity - inverse_B, lower=True, trans=1)
    Tb = solve_triangular(root, A @ b, lower=True, trans=1)
    Gf = blas.dgemm(1.0, Tb, b, beta=1.0, c=blas.dgemm(P / noise, H, A), trans_b=1, overwrite_c=1)
    Gu = -0.5 * (Tb @ Tb.T + P * solve_triangular(root, (H @ (B - identity)).T, lower=True, trans=1).T)
    Gu = 0.5 * (Gu + Gu.T)
    trace = (N - M + np.trace(inverse_B)) / noise
    slope = 0.5 * np.sum(b * b) - 0.5 * P * trace + 0.5 * P / noise**2 * gap
    # Those with respect to the parameters.
    gradient = np.zeros_like(packed)
    gradient[0] = variance * (np.vdot(Gf.T, values_f.T) + np.sum(Gu * values_u) - 0.5 * P * N / noise)
    # Of log lengthscales, by the slopes of Kuf and of Kuu.
    Wf = np.multiply(slopes_f, Gf, out=slopes_f)
    Wf *= variance
    Wu = Gu * (variance * slopes_u)
    sums_f = Wf.sum(axis=1)[:, None]
    sums_u = Wu.sum(axis=1)[:, None]
    moved_f = Wf @ scaled
    moved_u = Wu @ scaled_Z
    of_f = sums_f.T @ scaled_Z**2 + Wf.sum(axis=0) @ scaled**2 - 2 * np.sum(scaled_Z * moved_f, axis=0)
    of_u = 2 * (sums_u.T @ scaled_Z**2 - np.sum(scaled_Z * moved_u, axis=0))
    gradient[1 : D + 1] = -2 * (of_f + of_u)[0]
    gradient[D + 1] = noise * slope
    # Of Z, as d|z - x|^2 / dz = 2 (z - x) in each scaled column.
    dZ = (2 * (sums_f * scaled_Z - moved_f) + 4 * (sums_u * scaled_Z - moved_u)) / scales
    if linear:
        of_Z = Gf @ X
        dZ += linear * (of_Z + 2 * Gu @ Z)
        of_linear = np.sum(of_Z * Z) + np.sum(Gu * (Z @ Z.T)) - 0.5 * P / noise * np.sum(X * X)
        gradient[len(theta) - 1] = linear * of_linear
    gradient[-M * D :] = dZ.ravel()
    return float(value), gradient


# The search for a single layer.


def first_theta(kernel: str, num_inputs: int, noise: float) -> Array:
    """Kernel variance 1, lengthscales sqrt(D), so that two rows are about a lengthscale apart."""
    theta = [0.0, *[0.5 * np.log(num_inputs)] * num_inputs, np.log(noise)]
    return np.array(theta + ([np.log(0.1 / num_inputs)] if kernel.endswith(LINEAR) else []))


def _limits(kernel: str, num_inputs: int) -> list[tuple[float, float]]:
    """Of theta."""
    limits = [(-14.0, 14.0), *[(-5.0, 12.0)] * num_inputs, (float(np.log(ABOVE_BOUND * LEAST_NOISE)), 3.0)]
    return limits + ([(-20.0, 10.0)] if kernel.endswith(LINEAR) else [])


def _climb(
    value: Callable[[Array], tuple[float, Array]],
    begin: Array,
    limits: Sequence[tuple[float | None, float | None]],
    count: int,
    max_iter: int,
    tolerance: float,
    show: Show = None,
) -> tuple[Array, float, int]:
    """L-BFGS on the mean over `count` numbers: the best point, its value, and how often it was asked for.

    :param show: gets a line after every `MIDDLE` iterations.
    """
    # L-BFGS-B minimises, and tells only where it is.
    last = [np.nan]
    iterations = [0]

    def loss(x: Array) -> tuple[float, Array]:
        objective, gradient = value(x)
        last[0] = objective / count
        return -objective / count, -gradient / count

    def tell(x: Array) -> None:
        iterations[0] += 1
        if show is not None and iterations[0] % MIDDLE == 0:
            show(
                f"L-BFGS, iteration {iterations[0]} of at most {max_iter}: {last[0]:.4f} nats per row in standard units"
            )

    # Until a step gains less than the tolerance, in nats a row.
    options = {"maxiter": max_iter, "ftol": tolerance, "gtol": 1e-5}
    result = minimize(loss, begin, jac=True, method="L-BFGS-B", bounds=limits, options=options, callback=tell)
    return np.asarray(result.x), -float(result.fun), int(result.nfev)


def search_exact(
    X: Array, Y: Array, kernels: Sequence[KernelName], *, max_iter: int = 500, seed: int = 0, show: Show = None
) -> SingleLayer:
    """The exact GP with the highest marginal likelihood over kernels and starts, or another one of which the rows say,
    left out one by one, that it is better by more than a standard error. What everybody would take, the better one of
    squared exponential and Matern 5/2, is left only for what is better than that by as much, or for a trend beside
    these with `STRONG` evidence.

    After the race all stationary kernels go on with all rows, those with little noise from the start again, and from
    less: a solution with little noise may need all rows to be seen. Two are climbed to the end, the best by either
    measure.

    Of few rows the parameters have a prior, unless there is no noise even so, or little of it where rows are few only
    in number; so have more rows of which a trend says nearly all. And another kernel needs `STRONG` evidence, as does a
    function beside a trend in up to `RACE_ROWS` rows, beyond what it gains where there is none.

    :param X: standardised inputs [N, D].
    :param Y: standardised targets [N, P].
    """
    # With a prior where rows are few; without where there is hardly any noise even so.
    search = functools.partial(_searched, X, Y, kernels, max_iter=max_iter, seed=seed, show=show)
    single = None
    if has_few_rows(X):
        single = dataclasses.replace(search(log_posterior), has_prior=True)
    is_short = len(X) < ROWS_PER_INPUT * X.shape[1]
    if single is None or single.noise <= (NO_NOISE if is_short else MUCH_NOISE):
        single = search(log_marginal_likelihood)
    # Beside it a trend alone, from which a function has to be told.
    if _TREND not in kernels:
        return single
    trend = _trend_alone(X, Y, max_iter)
    if not single.has_prior and len(X) > RACE_ROWS and single.value < trend.value + NEAR_TREND:
        single = _with_prior(single, X, Y, max_iter)
    nearby = single
    lead = 0.0  # with a prior it follows no noise of many rows: equal evidence is enough
    if len(X) <= RACE_ROWS:
        lead = STRONG
        # What a function gains by chance is known of the largest likelihood nearby. Where rows are few for the inputs,
        # and yet some for each lengthscale, the prior has kept it from gaining that.
        nearby = climb_exact(single, X, Y, min(max_iter, MIDDLE)) if single.has_prior and not is_short else single
        if not (single.has_prior and is_short and len(X) >= ROWS_PER_LENGTHSCALE * X.shape[1]):
            lead += chance_of_function(X)
    evidence, _ = log_marginal_likelihood(nearby.theta, nearby.kernel, X, Y)
    return single if evidence > trend.value * Y.size + lead else trend


def _with_prior(single: SingleLayer, X: Array, Y: Array, max_iter: int) -> SingleLayer:
    """The best one with the prior of the parameters: from where the likelihood is largest, and from much noise."""
    begins = [single]
    for kernel in (*PLAIN, _TREND):
        begins.append(dataclasses.replace(single, kernel=kernel, theta=first_theta(kernel, X.shape[1], max(_STARTS))))
    ends = [climb_exact(begin, X, Y, max_iter, objective=log_posterior) for begin in begins]
    return dataclasses.replace(max(ends, key=lambda end: end.value), has_prior=True)


def has_few_rows(X: Array) -> bool:
    """Whether rows X [N, D] are so few that the parameters have a prior: of several inputs up to `RACE_ROWS`, which
    can still be a function through noisy targets where one input would show that they are none."""
    return len(X) < ROWS_PER_INPUT * X.shape[1] or (X.shape[1] > 1 and len(X) <= RACE_ROWS)


def chance_of_function(X: Array) -> float:
    """What a function beside a trend gains where there is none, nats of all rows X [N, D]: half a nat for each of its
    parameters (Wilks 1938)."""
    return 0.5 * (X.shape[1] + 1)


def _trend_alone(X: Array, Y: Array, max_iter: int) -> SingleLayer:
    """Bayesian linear regression: what is beside the trend has its least variance. The noise has its prior where rows
    are few, without which as many inputs as rows can leave none."""
    D = X.shape[1]
    # The variance of the function stays at its lower limit.
    begin = first_theta(_TREND, D, max(_STARTS))
    begin[0] = _limits(_TREND, D)[0][0]
    objective = functools.partial(
        log_posterior if has_few_rows(X) else log_marginal_likelihood, kernel=_TREND, X=X, Y=Y
    )
    theta, _, count = _climb(objective, begin, _trend_limits(begin), Y.size, max_iter, 1e-9)
    evidence, _ = log_marginal_likelihood(theta, _TREND, X, Y)
    return SingleLayer(_TREND, theta, None, evidence / Y.size, count, is_trend=True)


def _trend_limits(theta: Array) -> list[tuple[float, float]]:
    """Of noise and linear part; all else of theta stays."""
    D = len(theta) - 3
    return [*[(value, value) for value in theta[: D + 1]], *_limits(_TREND, D)[D + 1 :]]


def search_student_t(begin: SingleLayer, X: Array, Y: Array, *, max_iter: int = 200) -> SingleLayer:
    """The exact GP with Student's t noise of the highest bound: from where one with Gaussian noise is; of few rows also
    from the start with each plain kernel, which beside a trend needs `STRONG` evidence as in `search_exact`.

    :param begin: exact, with Gaussian noise.
    :param X: standardised inputs [N, D].
    :param Y: standardised targets [N, 1].
    :return: with a value that is comparable to that of `begin`.
    """
    N, D = X.shape

    def climb(single: SingleLayer, max_iter: int) -> SingleLayer:
        assert single.weights is not None  # of mypy: its noise is Student's t
        objective = log_posterior if single.has_prior else log_marginal_likelihood
        packed, value, count = _climb(
            lambda packed: student_t_bound(packed, single.kernel, X, Y, objective),
            np.concatenate([single.theta, np.log(single.weights)]),
            [
                *(_trend_limits(single.theta) if single.is_trend else _limits(single.kernel, D)),
                *[(-40.0, float(np.log((DF + 1) / DF)))] * N,
            ],
            N,
            max_iter,
            1e-8,
        )
        # Comparable to `begin`: without the density of a prior that it does not have.
        if single.has_prior and not begin.has_prior:
            value = student_t_bound(packed, single.kernel, X, Y)[0] / N
        found = {"theta": packed[:-N], "weights": np.exp(packed[-N:]), "value": value}
        return dataclasses.replace(single, **found, evaluations=single.evaluations + count)

    # From the scale that gives Student's t the variance of the Gaussian noise; of few rows from much noise, too.
    theta = begin.theta.copy()
    theta[D + 1] = max(theta[D + 1] + np.log((DF - 2) / DF), np.log(ABOVE_BOUND * LEAST_NOISE))
    begins = [(begin, theta)]
    if N <= RACE_ROWS:
        for kernel in PLAIN:
            fresh = dataclasses.replace(
                begin,
                kernel=kernel,
                theta=first_theta(kernel, D, max(_STARTS)),
                has_prior=begin.has_prior or N < ROWS_PER_INPUT * D,
                is_trend=False,
            )
            begins.append((fresh, fresh.theta))
    tried = []
    for gaussian, theta in begins:
        # The weights to begin with are the best ones for left-out residuals.
        residuals, _ = leave_one_out(gaussian, X, Y)
        weights = (DF + 1) / (DF + np.square(residuals[:, 0]))
        tried.append(climb(dataclasses.replace(gaussian, theta=theta, weights=weights), min(max_iter, MIDDLE)))
    # The best one to the end; a function beside a trend has to be clearly better.
    best = max(tried, key=lambda single: single.value)
    if N <= RACE_ROWS or best.value > begin.value:  # of more rows it takes long
        best = climb(best, max_iter)
    if begin.is_trend and not best.is_trend:
        trend = climb(tried[0], max_iter)
        is_clear = (best.value - trend.value) * N > STRONG + chance_of_function(X)
        best = best if is_clear else trend
    return best


def _searched(
    X: Array, Y: Array, kernels: Sequence[KernelName], objective: Objective, *, max_iter: int, seed: int, show: Show
) -> SingleLayer:
    """`search_exact` by one objective."""

    def climb(begin: SingleLayer, max_iter: int) -> SingleLayer:
        return climb_exact(begin, X, Y, max_iter, show=show, objective=objective)

    raced = sorted(
        _race(X, Y, kernels, max_iter=max_iter, seed=seed, objective=objective).items(),
        key=lambda entry: -entry[1].value,
    )
    # After the race all stationary kernels go on with all rows, of more than those of the race those with little noise
    # from the start again, and from less: rows of the race do not say where they end.
    starts: list[SingleLayer] = []
    for (_, noise), single in raced:
        if noise == max(_STARTS) or len(X) <= RACE_ROWS:
            starts.append(single)
            continue
        for little in (noise, _LEAST_START):
            starts.append(dataclasses.replace(single, theta=first_theta(single.kernel, X.shape[1], little)))
    begins = [climb(start, min(max_iter, MIDDLE)) for start in starts]
    # Two are climbed to the end, the best by its marginal likelihood and by left-out rows; but not by those where rows
    # are few, to which parameters are fitted closely.
    is_few = objective is log_posterior
    best = max(begins, key=lambda candidate: candidate.value)
    left_out = [leave_one_out(candidate, X, Y)[1].sum(axis=1) for candidate in begins]
    other = best if is_few else begins[int(np.argmax([scores.mean() for scores in left_out]))]
    ends = [climb(candidate, max_iter) for candidate in ([best] if other is best else [best, other])]
    best = max(ends, key=lambda candidate: candidate.value)
    # The other one is taken if its left-out rows gain more than a standard error.
    for other in ends:
        if other is not best and len(X) > 1:
            gain, error = paired_gain(*(leave_one_out(candidate, X, Y)[1].sum(axis=1) for candidate in (other, best)))
            best = other if gain > error else best
    if best.kernel + LINEAR in kernels and len(X) > RACE_ROWS:
        # Few rows say little of a trend: the best one gets a linear part if that is better with all rows.
        name = next(kernel for kernel in kernels if kernel == best.kernel + LINEAR)
        theta = np.append(best.theta, first_theta(name, X.shape[1], 1.0)[-1])
        linear = climb(dataclasses.replace(best, kernel=name, theta=theta), max_iter)
        best = linear if linear.value > best.value else best
    # Another kernel has to be clearly better than the better one of the plain ones.
    if best.kernel in PLAIN or not set(PLAIN) <= set(kernels) or len(X) < 3:
        return best
    if best.noise < 2 * LEAST_NOISE:  # errors of rounding say nothing of a function without noise, as of an exact line
        return best
    # The plain ones from much noise: some iterations of each with some rows, and all of the better one.
    rows = _some_rows(len(X), seed)
    begins = [SingleLayer(name, first_theta(name, X.shape[1], max(_STARTS)), None, 0.0, 0) for name in PLAIN]
    tried = [
        climb_exact(begin, X[rows], Y[rows], min(max_iter, MIDDLE), tolerance=1e-5, objective=objective)
        for begin in begins
    ]
    plain = climb(max(tried, key=lambda candidate: candidate.value), max_iter)
    gain, error = paired_gain(*(leave_one_out(candidate, X, Y)[1].sum(axis=1) for candidate in (best, plain)))
    # Few rows, left out, say little of a trend, of which all of them may be strong evidence.
    is_strong = (best.value - plain.value) * Y.size > STRONG
    is_better = (is_strong and (is_few or best.kernel.removesuffix(LINEAR) in PLAIN)) or (gain > error and not is_few)
    return best if is_better else plain


def _some_rows(num_rows: int, seed: int) -> np.ndarray:
    """Numbers of the rows on which kernels are raced."""
    return np.sort(np.random.default_rng([seed, 3]).permutation(num_rows)[:RACE_ROWS])


def _race(
    X: Array,
    Y: Array,
    kernels: Sequence[KernelName],
    *,
    max_iter: int,
    seed: int,
    objective: Objective = log_marginal_likelihood,
) -> dict[tuple[str, float], SingleLayer]:
    """Exact GPs of some rows after few iterations: the best of each stationary kernel and start."""
    rows = _some_rows(len(X), seed)
    raced: dict[tuple[str, float], SingleLayer] = {}
    for kernel in kernels:
        for noise in _STARTS:
            begin = SingleLayer(kernel, first_theta(kernel, X.shape[1], noise), None, 0.0, 0)
            tried = climb_exact(begin, X[rows], Y[rows], min(max_iter, MIDDLE), tolerance=1e-5, objective=objective)
            key = (kernel.removesuffix(LINEAR), noise)
            if key not in raced or tried.value > raced[key].value:
                raced[key] = tried
    return raced


def climb_exact(
    begin: SingleLayer,
    X: Array,
    Y: Array,
    max_iter: int,
    tolerance: float = 1e-8,
    show: Show = None,
    objective: Objective = log_marginal_likelihood,
) -> SingleLayer:
    """L-BFGS on the marginal likelihood, or the posterior density, from where an exact single layer is."""
    theta, value, count = _climb(
        lambda theta: objective(theta, begin.kernel, X, Y),
        begin.theta,
        _limits(begin.kernel, X.shape[1]),
        Y.size,
        max_iter,
        tolerance,
        show,
    )
    return SingleLayer(begin.kernel, theta, None, value, begin.evaluations + count)


def search_sparse(
    X: Array,
    Y: Array,
    kernels: Sequence[KernelName],
    num_inducing: int,
    *,
    max_iter: int = 200,
    seed: int = 0,
    show: Show = None,
) -> SingleLayer:
    """The sparse GP with the highest collapsed bound over kernels.

    :param X: standardised inputs [N, D].
    :param Y: standardised targets [N, P].
    :param num_inducing: how many inducing inputs, M.
    :param show: gets lines of progress.
    """
    # The best of each kernel in the race goes on with inducing inputs.
    raced = _race(X, Y, kernels, max_iter=max_iter, seed=seed).values()
    Z = inducing_inputs(X, num_inducing, seed=seed)
    begins = []
    for kernel in KERNELS:
        if of_kernel := [single for single in raced if single.kernel.removesuffix(LINEAR) == kernel]:
            best = max(of_kernel, key=lambda single: single.value)
            theta = best.theta.copy()
            position = 1 + X.shape[1]
            theta[position] = max(
                theta[position], np.log(0.01)
            )  # what inducing inputs do not explain is noise at first
            begins.append(dataclasses.replace(best, theta=theta, Z=Z))
    # A few iterations of each, and all of the best one.
    tried = begins
    if len(begins) > 1:
        tried = [climb_sparse(single, X, Y, min(max_iter, MIDDLE), show=show) for single in begins]
    return climb_sparse(max(tried, key=lambda single: single.value), X, Y, max_iter, show=show)


def climb_sparse(
    begin: SingleLayer, X: Array, Y: Array, max_iter: int, tolerance: float = 2e-6, show: Show = None
) -> SingleLayer:
    """L-BFGS on the collapsed bound from where a sparse single layer is."""
    assert begin.Z is not None  # of mypy: it is sparse
    # Inducing inputs are climbed, too.
    M, D = begin.Z.shape
    packed, value, count = _climb(
        lambda packed: collapsed_bound(packed, begin.kernel, X, Y, M),
        np.concatenate([begin.theta, begin.Z.ravel()]),
        [*_limits(begin.kernel, D), *[(None, None)] * (M * D)],
        Y.size,
        max_iter,
        tolerance,
        show,
    )
    theta = packed[: -M * D]
    Z = packed[-M * D :].reshape(M, D)
    return SingleLayer(begin.kernel, theta, Z, value, begin.evaluations + count)


def grow(
    single: SingleLayer, X: Array, Y: Array, max_inducing: int, *, max_iter: int, seed: int, show: Show = None
) -> SingleLayer:
    """Twice as many inducing inputs, from rows that the others say least about, while the bound rises by `RISE`."""
    limit = min(max_inducing, len(X), int(np.sqrt(MAX_WORK / len(X))))
    while single.Z is not None and 2 * len(single.Z) <= limit:
        # Of some rows, how much of k(x, x) the inducing inputs do not explain.
        rng = np.random.default_rng([seed, len(single.Z)])
        candidates = X[rng.permutation(len(X))[: 10 * len(single.Z)]]
        root = cholesky(
            single.covariance(single.Z, single.Z) + _jitter(len(single.Z)) * np.eye(len(single.Z)), lower=True
        )
        explained = np.sum(
            np.square(solve_triangular(root, single.covariance(single.Z, candidates), lower=True)), axis=0
        )
        unexplained = single.variance + single.linear * np.sum(np.square(candidates), axis=1) - explained
        # Rows with the most of it become inducing inputs, too.
        chosen = np.argsort(-unexplained, kind="stable")[: len(single.Z)]
        begin = dataclasses.replace(single, Z=np.concatenate([single.Z, candidates[chosen]]))
        larger = climb_sparse(begin, X, Y, max_iter, show=show)
        # So many are enough where twice as many bring little.
        if larger.value - single.value < RISE:
            return larger if larger.value > single.value else single
        single = larger
    return single


def paired_gain(scores: Array, others: Array) -> tuple[float, float]:
    """Mean of the paired differences, and its standard error."""
    difference = scores - others
    return float(difference.mean()), standard_error(difference)


def rms_error(residuals: Array, log_densities: Array) -> float:
    """Root mean squared error in standard deviations of the targets, of what `leave_one_out` says with Gaussian
    noise."""
    # The variance of each row, back from its density.
    log_variances = -2 * log_densities - np.square(residuals) - np.log(2 * np.pi)
    return float(np.sqrt(np.mean(np.square(residuals) * np.exp(log_variances))))
