"""p(y | f) of GPflow's likelihoods as distribution functions, for `predictive`.

| likelihood                                     | distribution function of y given f                       |
|------------------------------------------------|----------------------------------------------------------|
| StudentT                                       | t of `df` degrees of freedom at (y - f) / scale           |
| Exponential, Gamma, Beta                       | regularised incomplete gamma and beta functions          |
| Poisson                                        | Q(floor(y) + 1, rate)                                    |
| Ordinal                                        | inverse probit of (edge - f) / sigma                     |
| MultiLatentTFPConditional, Heteroskedastic...  | `cdf` of the distribution that it makes of f             |
| any other of one latent function per target    | its density, integrated over a grid of y                 |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.functions import Function
from gpflow.likelihoods import (
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    HeteroskedasticTFPConditional,
    Likelihood,
    MultiClass,
    MultiLatentTFPConditional,
    Ordinal,
    Poisson,
    ScalarLikelihood,
    Softmax,
    StudentT,
    SwitchedLikelihood,
)
from gpflow.likelihoods.utils import inv_probit
from gpflow.utilities.parameter_or_function import evaluate_parameter_or_function
from numpy.typing import NDArray
from scipy.integrate import cumulative_trapezoid
from scipy.special import betainc, gammainc, pdtr, stdtr

__all__ = ["Conditional", "conditional", "mixed_moments"]

Array = NDArray[np.float64]

_GRID = 2001
_DEVIATIONS = 12.0
_MASS_ERROR = 0.01


class Conditional(NamedTuple):
    """Distributions p(y | f) of the targets of N rows.

    :ivar parameters: (values of the latent functions [K, N, L], weights [K]) -> arrays [K or 1, N, ...].
    :ivar cdf: (y [n, P], these arrays for n rows) -> P(target <= y), [K, n, P].
    :ivar moments: (weights [K], these arrays) -> about the middle and the standard deviation of the mixture, [N, P].
    :ivar is_mixed: `parameters` has mixed the K values, and its arrays and `cdf` have one in place of them.
    :ivar support: the smallest and the largest target.
    :ivar is_count: targets are 0, 1, 2, ...
    :ivar is_joint: a target depends on several latent functions.
    """

    parameters: Callable[[Array, Array], tuple[Array, ...]]
    cdf: Callable[..., Array]
    moments: Callable[..., tuple[Array, Array]]
    support: tuple[float, float] = (-np.inf, np.inf)
    is_count: bool = False
    is_joint: bool = False
    is_mixed: bool = False

    @property
    def is_real(self) -> bool:
        """Whether targets are all real numbers, so that they may be scaled."""
        return self.support == (-np.inf, np.inf) and not self.is_count


def conditional(likelihood: Likelihood, X: np.ndarray) -> Conditional:
    """p(y | f) of a likelihood at the inputs X [N, D].

    :raises ValueError: if targets are labels or of several likelihoods, or y depends on several latent functions
        without a distribution that tells how.
    """
    # Targets that have no order, or are of several kinds.
    if isinstance(likelihood, Bernoulli | MultiClass | Softmax):
        name = type(likelihood).__name__
        raise ValueError(f"labels have no quantiles, got the likelihood {name}; look at their probabilities.")
    if isinstance(likelihood, SwitchedLikelihood):
        raise ValueError("SwitchedLikelihood has no quantiles; take those of the likelihood that a row belongs to.")
    if isinstance(likelihood, MultiLatentTFPConditional):
        return _of_distribution(likelihood)
    # In closed form, where y depends on one latent function each.
    makers: dict[type, Callable[[Any, tf.Tensor], Conditional]] = {
        StudentT: _student_t,
        Exponential: _exponential,
        Gamma: _gamma,
        Beta: _beta,
        Poisson: _poisson,
        Ordinal: _ordinal,
    }
    inputs = tf.convert_to_tensor(X)
    if type(likelihood) in makers:
        return makers[type(likelihood)](likelihood, inputs)
    # Others by their density.
    if isinstance(likelihood, ScalarLikelihood):
        return _by_density(likelihood, inputs)
    raise ValueError(
        f"{type(likelihood).__name__} must have one latent function for each target, or a distribution of TensorFlow "
        "Probability; use predict_y for its mean and variance."
    )


def _student_t(likelihood: StudentT, X: tf.Tensor) -> Conditional:
    scale = _constant(likelihood.scale, X, likelihood.scale_lower_bound)
    df = float(likelihood.df)

    def moments(weights: Array, f: Array, scale: Array) -> tuple[Array, Array]:
        # The variance is infinite for df <= 2; any width will do then.
        factor = df / (df - 2) if df > 2 else 3.0
        return mixed_moments(weights, f, np.broadcast_to(np.square(scale) * factor, f.shape))

    return Conditional(
        lambda f, weights: (f, np.broadcast_to(scale, (1, *f.shape[1:]))),
        lambda y, f, scale: _t_cdf(df, (y - f) / scale),
        moments,
    )


def _t_cdf(df: float, t: Array) -> Array:
    """Student's distribution function; that of three degrees of freedom, GPflow's default, has a fast closed form."""
    if df != 3:
        return np.asarray(stdtr(df, t))
    # With u = |t| / sqrt(3) the smaller tail is (arctan(1 / u) - u / (1 + u^2)) / pi.
    tail = np.abs(t) / np.sqrt(3.0)
    with np.errstate(divide="ignore"):  # 1 / 0 is the angle pi / 2
        smaller = np.arctan(1.0 / tail)
    tail /= 1.0 + np.square(tail)
    smaller -= tail
    smaller /= np.pi  # the probability of the smaller tail, right to 2e-16
    return np.where(t < 0, smaller, 1.0 - smaller)


def _exponential(likelihood: Exponential, X: tf.Tensor) -> Conditional:
    return Conditional(
        lambda f, weights: (_linked(likelihood, f),),
        lambda y, mean: -np.expm1(-np.maximum(y, 0.0) / mean),
        lambda weights, mean: mixed_moments(weights, mean, np.square(mean)),
        support=(0.0, np.inf),
    )


def _gamma(likelihood: Gamma, X: tf.Tensor) -> Conditional:
    shape = _constant(likelihood.shape, X, likelihood.shape_lower_bound)
    return Conditional(
        lambda f, weights: (_linked(likelihood, f), np.broadcast_to(shape, (1, *f.shape[1:]))),
        lambda y, scale, shape: np.asarray(gammainc(shape, np.maximum(y, 0.0) / scale)),
        lambda weights, scale, shape: mixed_moments(weights, shape * scale, shape * np.square(scale)),
        support=(0.0, np.inf),
    )


def _beta(likelihood: Beta, X: tf.Tensor) -> Conditional:
    total = _constant(likelihood.scale, X, likelihood.scale_lower_bound)

    def parameters(f: Array, weights: Array) -> tuple[Array, Array]:
        mean = _linked(likelihood, f)
        return mean * total, (1.0 - mean) * total

    def moments(weights: Array, a: Array, b: Array) -> tuple[Array, Array]:
        mean = a / (a + b)
        return mixed_moments(weights, mean, mean * (1.0 - mean) / (a + b + 1.0))

    cdf = lambda y, a, b: np.asarray(betainc(a, b, np.clip(y, 0.0, 1.0)))  # noqa: E731
    return Conditional(parameters, cdf, moments, support=(0.0, 1.0))


def _poisson(likelihood: Poisson, X: tf.Tensor) -> Conditional:
    return Conditional(
        lambda f, weights: (_linked(likelihood, f) * likelihood.binsize,),
        lambda y, rate: np.where(y < 0, 0.0, pdtr(np.maximum(np.floor(y), 0.0), rate)),
        lambda weights, rate: mixed_moments(weights, rate, rate),
        support=(0.0, np.inf),
        is_count=True,
    )


def _ordinal(likelihood: Ordinal, X: tf.Tensor) -> Conditional:
    edges = np.asarray(likelihood.bin_edges, np.float64)
    sigma = float(np.asarray(likelihood.sigma))

    def cdf(y: Array, f: Array) -> Array:
        # P(label <= k) = P(f + noise <= edge k); there is no edge above the last label.
        label = np.floor(y)
        edge = edges[np.clip(label, 0, len(edges) - 1).astype(np.int64)]
        below = np.asarray(inv_probit(tf.constant((edge - f) / sigma)), np.float64)
        return np.where(label < 0, 0.0, np.where(label >= len(edges), 1.0, below))

    def moments(weights: Array, f: Array) -> tuple[Array, Array]:
        labels = np.searchsorted(edges, f).astype(np.float64)
        return mixed_moments(weights, labels, np.ones_like(f))

    return Conditional(lambda f, weights: (f,), cdf, moments, support=(0.0, float(len(edges))), is_count=True)


def _of_distribution(likelihood: MultiLatentTFPConditional) -> Conditional:
    """Of a distribution that TensorFlow Probability makes of the latent functions."""

    def cdf(y: Array, f: Array) -> Array:
        distribution = likelihood.conditional_distribution(tf.convert_to_tensor(f))
        return np.asarray(distribution.cdf(tf.convert_to_tensor(np.broadcast_to(y, (*f.shape[:-1], 1)))), np.float64)

    def moments(weights: Array, f: Array) -> tuple[Array, Array]:
        distribution = likelihood.conditional_distribution(tf.convert_to_tensor(f))
        return mixed_moments(weights, np.asarray(distribution.mean()), np.asarray(distribution.variance()))

    # Nobody knows whether targets of another distribution may be scaled: an end below infinity says that they may not.
    is_real = isinstance(likelihood, HeteroskedasticTFPConditional)
    joint = Conditional(lambda f, weights: (f,), cdf, moments, is_joint=True)
    return joint if is_real else joint._replace(support=(-np.inf, np.nextafter(np.inf, 0)))


def _by_density(likelihood: ScalarLikelihood, X: tf.Tensor) -> Conditional:
    """Of any likelihood of one latent function per target: its density on a grid of y, mixed and integrated.

    The grid reaches twelve standard deviations to either side of the mean of the mixture.
    """

    def parameters(f: Array, weights: Array) -> tuple[Array, Array]:
        values = tf.convert_to_tensor(f)
        mean = np.asarray(likelihood.conditional_mean(X, values), np.float64)
        variance = np.asarray(likelihood.conditional_variance(X, values), np.float64)
        center, width = mixed_moments(weights, mean, variance)
        # The density of the mixture on a grid, and its integral up to each point by the trapezium rule.
        grid = np.linspace(center - _DEVIATIONS * width, center + _DEVIATIONS * width, _GRID, axis=-1)  # [N, P, G]
        density = np.stack([_density(likelihood, X, f, weights, grid[..., g]) for g in range(_GRID)], axis=-1)
        mass = cumulative_trapezoid(density, grid, axis=-1, initial=0)
        # What the grid does not hold, or is no density over y, is seen by the total.
        if np.any(np.abs(mass[..., -1] - 1) > _MASS_ERROR):
            raise ValueError(
                f"{type(likelihood).__name__} must be a density over y that twelve standard deviations hold, got a "
                f"total of {mass[..., -1].flat[0]:.3g}; use predict_y for its mean and variance."
            )
        return (mass / mass[..., -1:])[None], grid[None]

    def cdf(y: Array, mass: Array, grid: Array) -> Array:
        low = grid[..., 0]
        high = grid[..., -1]
        # Linear between the points of the grid.
        place = np.clip((y - low) / (high - low) * (_GRID - 1), 0, _GRID - 1)
        cell = np.minimum(place.astype(np.int64), _GRID - 2)
        lower, upper = (np.take_along_axis(mass, cell[..., None] + i, axis=-1)[..., 0] for i in (0, 1))
        return np.asarray(lower + (place - cell) * (upper - lower))

    def moments(weights: Array, mass: Array, grid: Array) -> tuple[Array, Array]:
        center = 0.5 * (grid[0, ..., 0] + grid[0, ..., -1])
        return center, (grid[0, ..., -1] - center) / _DEVIATIONS

    return Conditional(parameters, cdf, moments, is_mixed=True)


def _density(likelihood: ScalarLikelihood, X: tf.Tensor, f: Array, weights: Array, y: Array) -> Array:
    """sum_k w_k p(y | f_k) for each target on its own, [N, P]; 0 where y is impossible."""
    columns = []
    for p in range(f.shape[-1]):
        F = tf.convert_to_tensor(f[..., p : p + 1])
        Y = tf.convert_to_tensor(np.broadcast_to(y[..., p : p + 1], F.shape))
        columns.append(np.exp(np.asarray(likelihood.log_prob(tf.broadcast_to(X, [*F.shape[:-1], X.shape[-1]]), F, Y))))
    return np.tensordot(weights, np.nan_to_num(np.stack(columns, axis=-1), nan=0.0), axes=1)


def _linked(likelihood: Exponential | Gamma | Beta | Poisson, f: Array) -> Array:
    return np.asarray(likelihood.invlink(tf.convert_to_tensor(f)), np.float64)


def _constant(value: Parameter | Function, X: tf.Tensor, lower_bound: float) -> Array:
    """A parameter of a likelihood, or a function of X: [1 or N, 1 or P]."""
    return np.asarray(evaluate_parameter_or_function(value, X, lower_bound=lower_bound), np.float64)


def mixed_moments(weights: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of a mixture."""
    center = np.tensordot(weights, mean, axes=1)
    return center, np.sqrt(np.tensordot(weights, variance + np.square(mean - center), axes=1))
