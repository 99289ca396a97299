"""Second-order expectation backpropagation: real weights whose precisions are learned, too.

The paper expands log P(y | w) in one weight w, the others averaged over, and keeps the term of first order: h grows by
Delta <v> / sqrt(K), Eq. (4.5), and the variance of a real weight stays that of its prior. For weights -1 and +1 that is
all, as w^2 = 1. For real weights the term of second order moves a second natural parameter:

    P(w) ~ N(w | 0, 1) exp(h w - lambda w^2 / 2),     mean m = h / (1 + lambda),     variance s = 1 / (1 + lambda).

With Z = P(y | the data before) as a function of all m and s, and Z's heat equation dZ/ds = 1/2 d^2 Z / dm^2,

    d lambda = -d^2 log Z / dm^2 = (d log Z / dm)^2 - 2 d log Z / ds,
    d h = d log Z / dm + d lambda m.

log Z is that of the forward pass of means and variances, Eqs. (4.1) and (4.2), whose derivatives are written out here;
unlike in Eq. (4.4), they pass through variances, too. A batch adds the changes of its rows.

These are expansions at one point, which say nothing of places far away: where log Z is not concave, d lambda < 0, and
lambda could fall from thousands to 0 at once and the mean jump by the raw gradient. So a batch is given only the steps
that the posterior before it holds possible: lambda falls by a tenth at most (`MAX_FALL`), and a mean moves by three of
its standard deviations at most (`MAX_STEP`), which exact updates by data that are as expected exceed in 0.3 % of cases.

Weights W_l are [n_(l-1) + 1, n_l]; the last row is the bias, whose input is 1. K counts it.
Arrays are float64; for the sizes of tables NumPy takes less time for a batch than TensorFlow's loop needs to start it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.special
from numpy.typing import NDArray

__all__ = [
    "MAX_FALL",
    "MAX_STEP",
    "UNITS",
    "Derivatives",
    "Gaussian",
    "Layer",
    "Moments",
    "PassMean",
    "batch_update",
    "forward",
    "in_units",
    "initial_posterior",
    "relu_moments",
    "sign_moments",
    "with_inputs",
]

Array = NDArray[np.float64]

#: Part of lambda that one batch may take away.
MAX_FALL = 0.1

#: By how many of its standard deviations before the batch a mean may move.
MAX_STEP = 3.0


class Gaussian(NamedTuple):
    """The posterior of all weights.

    :ivar mean: m of each layer, [n_(l-1) + 1, n_l].
    :ivar gain: lambda of each layer, of the same shapes: how much more precise than a priori.
    """

    mean: tuple[Array, ...]
    gain: tuple[Array, ...]

    @property
    def var(self) -> tuple[Array, ...]:
        """s of each layer."""
        return tuple(1.0 / (1.0 + gain) for gain in self.gain)


class PassMean:
    """The mean over a pass of the means of all weights, after each batch (Polyak and Juditsky, 1992).

    A posterior of single weights does not know how well what they do together is known, such as the constant part of an
    output. So where older rows are forgotten, that follows the last few rows: on noise it is wrong by half a standard
    deviation of the targets, by which row came last. Its mean over a pass is not.
    """

    def __init__(self) -> None:
        self._total: list[Array] = []
        self._count = 0

    def add(self, posterior: Gaussian) -> None:
        """One batch more."""
        self._total = (
            [total + mean for total, mean in zip(self._total, posterior.mean, strict=True)]
            if self._count
            else list(posterior.mean)
        )
        self._count += 1

    def of(self, posterior: Gaussian) -> Gaussian:
        """With the mean in place of the means of the last batch, and with its precisions."""
        return Gaussian(tuple(total / self._count for total in self._total), posterior.gain)


class Moments(NamedTuple):
    """Mean and variance of a unit's output v for inputs u ~ N(mu, sigma2), and their derivatives; all [B, n].

    :ivar mean: <v>.
    :ivar var: <v^2> - <v>^2.
    :ivar mean_mu: d mean / d mu.
    :ivar mean_sigma2: d mean / d sigma2.
    :ivar var_mu: d var / d mu.
    :ivar var_sigma2: d var / d sigma2.
    """

    mean: Array
    var: Array
    mean_mu: Array
    mean_sigma2: Array
    var_mu: Array
    var_sigma2: Array


class Layer(NamedTuple):
    """One layer's part of a forward pass.

    :ivar v: means of its inputs, with a column of ones for the bias, [B, n_in + 1].
    :ivar v_var: their variances, [B, n_in + 1].
    :ivar mu: means of u, [B, n_out].
    :ivar sigma2: variances of u, [B, n_out].
    :ivar output: moments of its units' outputs; None of the last layer, whose output is u.
    """

    v: Array
    v_var: Array
    mu: Array
    sigma2: Array
    output: Moments | None


class Derivatives(NamedTuple):
    """log P(y) of each row in nats, [B], and its derivatives by mu_L and sigma2_L, [B, n_L] each."""

    log_prob: Array
    by_mu: Array
    by_sigma2: Array


def sign_moments(mu: Array, sigma2: Array) -> Moments:
    """Those of sign(u), Eq. (4.1): the neurons of the paper."""
    mean = scipy.special.erf(mu / np.sqrt(2.0 * sigma2))
    # d<v> / dmu, and by the heat equation d<v> / dsigma2 = 1/2 d^2<v> / dmu^2.
    by_mu = 2.0 * _density(mu, sigma2)
    by_sigma2 = -0.5 * mu / sigma2 * by_mu
    return Moments(mean, 1.0 - mean**2, by_mu, by_sigma2, -2.0 * mean * by_mu, -2.0 * mean * by_sigma2)


def relu_moments(mu: Array, sigma2: Array) -> Moments:
    """Those of max(u, 0).

    With z = mu / sigma: <v> = mu Phi(z) + sigma phi(z) and <v^2> = (mu^2 + sigma^2) Phi(z) + mu sigma phi(z).
    """
    # Phi(z), phi(z) / sigma.
    positive = scipy.special.ndtr(mu / np.sqrt(sigma2))
    density = _density(mu, sigma2)
    mean = np.maximum(mu * positive + sigma2 * density, 0.0)
    var = np.maximum((mu**2 + sigma2) * positive + mu * sigma2 * density - mean**2, 0.0)
    return Moments(
        mean,
        var,
        mean_mu=positive,
        mean_sigma2=0.5 * density,
        var_mu=2.0 * mean * (1.0 - positive),
        var_sigma2=positive - mean * density,
    )


UNITS: dict[str, Callable[[Array, Array], Moments]] = {"relu": relu_moments, "sign": sign_moments}
"""Kinds of hidden units."""


def initial_posterior(layer_sizes: Sequence[int], rng: np.random.Generator) -> Gaussian:
    """The prior N(0, 1), with means moved at random, as equal units would stay equal.

    :param layer_sizes: inputs, hidden layers, outputs. Means are N(0, 1) in hidden layers and N(0, 0.1) in the last.
    """
    pairs = list(itertools.pairwise(layer_sizes))
    means = [rng.normal(size=(n_in + 1, n_out)) for n_in, n_out in pairs]
    # Outputs begin near 0; without hidden layers, at 0.
    means[-1] *= math.sqrt(0.1) if len(pairs) > 1 else 0.0
    return Gaussian(tuple(means), tuple(np.zeros_like(mean) for mean in means))


def in_units(gain: Array, ratio: float | Array) -> Array:
    """lambda of weights whose means are multiplied by a ratio, and their variances by its square, as far as it can be.

    Where the units grow, lambda stays what it was: what was learned before must not be thought to be known for sure.
    """
    return np.maximum(np.minimum(gain, (1.0 + gain) / ratio**2 - 1.0), 0.0)


def with_inputs(posterior: Gaussian, num_inputs: int, rng: np.random.Generator) -> Gaussian:
    """The posterior of a network of more inputs, the new ones behind the others.

    Of rows in which they are 0 the means of the first layer stay, and variances as far as those of the prior allow.

    :param num_inputs: in all.
    """
    mean = posterior.mean[0]
    gain = posterior.gain[0]
    num_new = num_inputs + 1 - len(mean)
    num_outputs = mean.shape[1]
    ratio = math.sqrt((num_inputs + 1) / len(mean))  # as sums of inputs are divided by sqrt(K)
    # The new weights are as at the start, those before them grow with sqrt(K).
    new = rng.normal(size=(num_new, num_outputs)) if len(posterior.mean) > 1 else np.zeros((num_new, num_outputs))
    mean = np.concatenate([mean[:-1] * ratio, new, mean[-1:] * ratio])
    # Precisions in the new units; lambda of the new weights is 0.
    gain = in_units(gain, ratio)
    gain = np.concatenate([gain[:-1], np.zeros_like(new), gain[-1:]])
    return Gaussian((mean, *posterior.mean[1:]), (gain, *posterior.gain[1:]))


def forward(posterior: Gaussian, X: Array, units: str) -> list[Layer]:
    """Means and variances of all layers, Eqs. (4.1) and (4.2).

    :param X: [B, n_0].
    :param units: of the hidden layers, a key of `UNITS`.

    Var(u_j) = sum over i of (<v_i>^2 + Var v_i) s_ij + Var(v_i) m_ij^2, over K.
    """
    layers: list[Layer] = []
    ones = np.ones([len(X), 1])
    zeros = np.zeros([len(X), 1])
    v = np.hstack([X, ones])
    v_var = np.zeros([len(X), X.shape[1] + 1])
    # Eqs. (4.1) and (4.2), with inputs that have variances, and the moments of the units.
    for mean, var in zip(posterior.mean, posterior.var, strict=True):
        fan_in = len(mean)
        is_last = len(layers) == len(posterior.mean) - 1
        mu = v @ mean / math.sqrt(fan_in)
        sigma2 = ((v**2 + v_var) @ var + v_var @ mean**2) / fan_in
        sigma2 = np.maximum(sigma2, np.finfo(np.float64).tiny)
        # The next layer's inputs are random: moments of the units, and a constant 1 for the bias.
        output = None if is_last else UNITS[units](mu, sigma2)
        layers.append(Layer(v, v_var, mu, sigma2, output))
        if output is not None:
            v = np.hstack([output.mean, ones])
            v_var = np.hstack([output.var, zeros])
    return layers


def batch_update(
    posterior: Gaussian,
    X: Array,
    derivatives: Callable[[Array, Array], Derivatives],
    units: str,
    weight: Array | None = None,
    kept: float = 1.0,
) -> tuple[Gaussian, Layer, Derivatives]:
    """The posterior after a batch.

    :param X: [B, n_0].
    :param derivatives: mu_L and sigma2_L, [B, n_L] each, to log P(y) and its derivatives.
    :param units: of the hidden layers, a key of `UNITS`.
    :param weight: how often each row counts, [B]; None: once.
    :param kept: part of h and lambda that is kept of the data before.
    :return: the posterior, and of the forward pass before it the last layer, and log P(y).
    """
    # Forward pass, and log Z with its derivatives by mu_L and sigma2_L.
    layers = forward(posterior, X, units)
    last = derivatives(layers[-1].mu, layers[-1].sigma2)
    column = np.ones((len(X), 1)) if weight is None else weight[:, None]
    by_mu = last.by_mu
    by_sigma2 = last.by_sigma2
    means = list(posterior.mean)
    gains = list(posterior.gain)
    # From the last layer down: d h and d lambda of its weights, then derivatives of the layer below.
    for number in reversed(range(len(layers))):
        layer = layers[number]
        mean = posterior.mean[number]
        var = 1.0 / (1.0 + posterior.gain[number])
        gradient, curvature = _changes(layer, mean, column, by_mu, by_sigma2)
        # d lambda = -d^2 log Z / dm^2, but lambda falls by `MAX_FALL` of itself at most.
        old = kept * posterior.gain[number]
        gain = np.maximum(old + curvature, (1.0 - MAX_FALL) * old)
        # What is left of the mean where a part of the data is forgotten, and from there a step of bounded length.
        start = kept * mean / (var * (1.0 + old))
        natural = kept * mean / var + gradient + (gain - old) * mean  # h
        most = MAX_STEP * np.sqrt(var)
        means[number] = start + np.clip(natural / (1.0 + gain) - start, -most, most)
        gains[number] = gain
        # Backward pass, through means and variances.
        below = layers[number - 1].output if number else None
        if below is not None:
            by_mu, by_sigma2 = _backward(layer, mean, var, by_mu, by_sigma2, below)
    return Gaussian(tuple(means), tuple(gains)), layers[-1], last


def _changes(layer: Layer, mean: Array, weight: Array, by_mu: Array, by_sigma2: Array) -> tuple[Array, Array]:
    """Sums over rows of d log Z / dm, and of (d log Z / dm)^2 - 2 d log Z / ds, [n_in + 1, n_out] each.

    d log Z / dm = by_mu v / sqrt(K) + by_sigma2 2 m Var(v) / K, and d log Z / ds = by_sigma2 <v^2> / K.
    """
    fan_in = len(mean)
    v = layer.v
    v_var = layer.v_var
    root = math.sqrt(fan_in)
    # Terms of known inputs, and of those with a variance.
    first = weight * by_mu / root
    second = weight * by_sigma2 / fan_in
    gradient = v.T @ first
    curvature = (v**2).T @ (first * by_mu / root) - 2.0 * (v**2 + v_var).T @ second
    # Var(v) m^2 in sigma2 makes d log Z / dm depend on m, and so its square.
    if np.any(v_var):
        gradient += 2.0 * mean * (v_var.T @ second)
        curvature += 4.0 * mean * ((v * v_var).T @ (second * by_mu / root))
        curvature += 4.0 * mean**2 * ((v_var**2).T @ (second * by_sigma2 / fan_in))
    return gradient, curvature


def _backward(
    layer: Layer, mean: Array, var: Array, by_mu: Array, by_sigma2: Array, below: Moments
) -> tuple[Array, Array]:
    """d log Z / d mu and d log Z / d sigma2 of the layer below, [B, n_in] each."""
    fan_in = len(mean)
    # Derivatives by <v> and Var(v), which mu and sigma2 depend on.
    by_v = by_mu @ mean.T / math.sqrt(fan_in) + 2.0 * layer.v * (by_sigma2 @ var.T) / fan_in
    by_v_var = by_sigma2 @ (var + mean**2).T / fan_in
    # without the bias
    by_v = by_v[:, :-1]
    by_v_var = by_v_var[:, :-1]
    # The chain rule through the moments of the units.
    return (by_v * below.mean_mu + by_v_var * below.var_mu, by_v * below.mean_sigma2 + by_v_var * below.var_sigma2)


def _density(mu: Array, sigma2: Array) -> Array:
    """N(0 | mu, sigma2)."""
    return np.exp(-0.5 * mu**2 / sigma2) / np.sqrt(2.0 * math.pi * sigma2)
