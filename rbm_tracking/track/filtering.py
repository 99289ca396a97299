"""The filter of :mod:`rbm_tracking.track.tracker` with its bridges and importance weights, in NumPy float64 and
without a
framework: for programs that have no use for a graph.

The state is z = [zeta_1, ..., zeta_M, b], as there; the functions have the names and the equations of those of
`importance`, `bridge` and `tracker`, and give the same numbers to rounding. Units are nats.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rbm_tracking.track.health import EQUAL, FLAGS, LIMITS, Z_95

__all__ = [
    "Estimate",
    "FilterState",
    "Health",
    "anchor",
    "bridge",
    "half_width",
    "health_flags",
    "inflation",
    "initial_filter",
    "lag",
    "log_mean_exp",
    "log_z_std",
    "predict",
    "update",
]

Array = NDArray[np.float64]

_RATES = np.array([1 / 4, 1 / 16, 1 / 64, 1 / 256])[:, None]  # forgetting rates at which innovations are averaged
_EXCESS = ((2 - _RATES) / _RATES)[:, 0]
_AVERAGED = 30.0  # averages of a scale that its power is estimated from
_FIRST_AVERAGES = 2.0  # how many averages the initial power counts for
_INITIAL_INFLATION = 10.0


class Estimate(NamedTuple):
    """Estimates of logarithms of ratios, one for each of [...]: value and variance in nats, effective sample size."""

    value: Array
    variance: Array
    ess: Array


class Health(NamedTuple):
    """Smoothed statistics of the filter, see `tracker.Health`: `averages` and `powers` [K, M], `swap_rate` [M-1];
    `observations` is its `count`."""

    observations: float
    averages: Array
    powers: Array
    nis: float
    ess: float
    swap_rate: Array


class FilterState(NamedTuple):
    """`mean` [M+1] and `cov` [M+1, M+1] of z = [zeta_1, ..., zeta_M, b], nats; `health`."""

    mean: Array
    cov: Array
    health: Health


def log_mean_exp(log_weights: Array) -> Estimate:
    """log of the mean of exp(log_weights) over the last axis, of [..., C] to [...], see `importance.log_mean_exp`."""
    count = log_weights.shape[-1]
    largest = log_weights.max(axis=-1, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    weights = np.exp(log_weights - largest)
    mean = weights.mean(axis=-1, keepdims=True)
    deviation = weights - mean
    squares = (deviation * deviation).sum(axis=-1) / max(count - 1.0, 1.0)
    mean = mean[..., 0]
    return Estimate(
        value=np.log(mean) + largest[..., 0],
        variance=squares / (count * mean**2),
        ess=count * mean**2 / (weights * weights).mean(axis=-1),
    )


def bridge(d_upper: Array, d_lower: Array, log_s: Array, iterations: int = 0) -> Estimate:
    """O^(dbeta) of Eq. (4) from d at states of both temperatures, [M-1, C] each, see `bridge.bridge`."""
    for _ in range(iterations + 1):
        numerator = _log_mean(_log_sigmoid(d_upper - log_s[..., None]))
        denominator = _log_mean(_log_sigmoid(log_s[..., None] - d_lower))
        log_s = log_s + numerator.value - denominator.value
    return Estimate(log_s, numerator.variance + denominator.variance, np.minimum(numerator.ess, denominator.ess))


def initial_filter(
    log_z: ArrayLike, *, variance: float = 1.0, bias_variance: float = 1.0, expected_ess: float = 10.0
) -> FilterState:
    """p(zeta_0): independent normals about a guess of the M log partition functions, the last of which is known."""
    log_z = np.asarray(log_z, np.float64)
    num_temps = len(log_z)
    health = Health(
        observations=0.0,
        averages=np.zeros([len(_RATES), num_temps]),
        powers=np.tile(_INITIAL_INFLATION * _RATES / (2 - _RATES), num_temps),
        nis=1.0,
        ess=expected_ess,
        swap_rate=np.full(num_temps - 1, 0.5),
    )
    diagonal = np.r_[np.full(num_temps - 1, variance), 0.0, bias_variance]
    return FilterState(np.r_[log_z, 0.0], np.diag(diagonal), health)


def log_z_std(state: FilterState) -> float:
    """Standard deviation of zeta_1, nats."""
    return float(np.sqrt(max(state.cov[0, 0], 0.0)))


def inflation(health: Health) -> float:
    """By how much the variances of the measurements are enlarged, at least 1, see `tracker.inflation`."""
    return max(float((health.powers[:, -1] * _EXCESS).max()), 1.0)


def lag(state: FilterState, bias: float) -> float:
    """How far, in nats, the samples may be behind the parameters: |b_t| times the :func:`inflation`."""
    return abs(bias) * inflation(state.health)


def half_width(state: FilterState, bias: float) -> float:
    """Half of the 95 % interval of zeta_1, widened to the :func:`lag` where that is more, nats."""
    return max(Z_95 * log_z_std(state), lag(state, bias))


def health_flags(state: FilterState, bias: float) -> int:
    """Reasons not to trust log Z as bits, see `tracker.health_flags`; a comparison with NaN gives the reason."""
    health, std, lagging = state.health, log_z_std(state), lag(state, bias)
    is_right = {
        "swap_rate": health.swap_rate.min() >= LIMITS.min_swap_rate,
        "ess": health.ess >= LIMITS.min_ess,
        "nis": health.nis <= LIMITS.max_nis,
        "lag": lagging <= LIMITS.max_lag,
        "std": std <= LIMITS.max_std,
        "not_finite": np.isfinite(state.mean[0]) and np.isfinite(std) and np.isfinite(lagging),
    }
    return sum(FLAGS[name] for name, right in is_right.items() if not right)


def predict(
    state: FilterState, change: Estimate, *, bias_variance: float, sigma_z: float = np.inf, factor: float = 1.0
) -> FilterState:
    """Carry p(zeta_{t-1}) across a change of the parameters: (i) to (iii) in Figure 2, see `tracker.predict`."""
    mean, cov = state.mean, state.cov.copy()
    cov[-1, -1] += bias_variance
    value, variance = np.append(change.value[:-1], 0.0), np.append(factor * change.variance[:-1], 0.0)
    gain = np.ones_like(value)
    if np.isfinite(sigma_z):
        direction = np.zeros(len(mean))
        direction[-1] = 1.0
        mean, cov = _measure(mean, cov, direction, value[0], sigma_z**2 + variance[0])
        gain = sigma_z**2 / (sigma_z**2 + variance)
    transition = np.eye(len(mean))
    transition[0, -1] = -gain[0]
    mean = transition @ mean + np.append(gain * value, 0.0)
    cov = transition @ cov @ transition.T + np.diag(np.append(gain * variance, 0.0))
    return FilterState(mean, cov, state.health)


def anchor(state: FilterState, log_z_last: float) -> FilterState:
    """Set zeta_M, which is known, without variance (footnote 3)."""
    mean, cov = state.mean.copy(), state.cov.copy()
    mean[-2] = log_z_last
    cov[-2, :] = cov[:, -2] = 0.0
    return FilterState(mean, cov, state.health)


def update(state: FilterState, bridges: Estimate, swap_rate: Array, *, factor: float | None = None) -> FilterState:
    """Condition on the bridge estimates O^(dbeta) of zeta[i+1] - zeta[i]: (iv) in Figure 2, see `tracker.update`."""
    factor = inflation(state.health) if factor is None else factor
    health = _observe(state, bridges, swap_rate, factor)
    mean, cov = state.mean, state.cov
    for i, (value, variance) in enumerate(zip(bridges.value, factor * bridges.variance, strict=True)):
        projected = cov[:, i + 1] - cov[:, i]
        gain = projected / (projected[i + 1] - projected[i] + variance)
        reduced = cov - np.outer(gain, projected)  # (I - gain direction') cov, in Joseph's form with the next lines
        cov = reduced - np.outer(reduced[:, i + 1] - reduced[:, i], gain) + variance * np.outer(gain, gain)
        mean = mean + gain * (value - mean[i + 1] + mean[i])
    return FilterState(mean, 0.5 * (cov + cov.T), health)


def _log_mean(log_weights: Array) -> Estimate:
    """:func:`log_mean_exp` with the variance that equal weights justify, see `bridge.bridge`."""
    estimate, count = log_mean_exp(log_weights), log_weights.shape[-1]
    is_equal = count * estimate.variance <= EQUAL**2
    return estimate._replace(variance=np.where(is_equal, 1.0 / count**2, estimate.variance))


def _measure(mean: Array, cov: Array, direction: Array, value: float, variance: float) -> tuple[Array, Array]:
    """Condition N(mean, cov) on value = direction'z + noise; the covariance in Joseph's form, which stays positive."""
    projected = cov @ direction
    gain = projected / (direction @ projected + variance)
    reduction = np.eye(len(mean)) - np.outer(gain, direction)
    return mean + gain * (value - direction @ mean), reduction @ cov @ reduction.T + variance * np.outer(gain, gain)


def _observe(state: FilterState, bridges: Estimate, swap_rate: Array, factor: float) -> Health:
    """Update the statistics of the innovations, of variances without inflation: P is divided by `factor`."""
    health = state.health
    innovation = bridges.value - np.diff(state.mean[:-1])
    across = np.diff(state.cov[:-1, :-1], axis=0)
    expected = np.diff(across, axis=1) / factor + np.diag(bridges.variance)
    alone = innovation / np.sqrt(np.diagonal(expected))
    normalised = np.append(alone, innovation.sum() / np.sqrt(expected.sum()))
    averages = (1 - _RATES) * health.averages + _RATES * normalised
    slow = np.maximum(_RATES / _AVERAGED, 1.0 / (health.observations + _FIRST_AVERAGES / _RATES))
    return Health(
        observations=health.observations + 1.0,
        averages=averages,
        powers=(1 - slow) * health.powers + slow * averages**2,
        nis=0.995 * health.nis + 0.005 * float((alone * alone).mean()),
        ess=0.98 * health.ess + 0.02 * float(bridges.ess.min()),
        swap_rate=0.98 * health.swap_rate + 0.02 * swap_rate,
    )


def _log_sigmoid(x: Array) -> Array:
    return np.minimum(x, 0.0) - np.log1p(np.exp(-np.abs(x)))
