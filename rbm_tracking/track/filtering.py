"""The filter over log partition functions with what it measures (Sections 3.2 to 3.4, Figures 1 and 2).

The latent state is z = [zeta_1, ..., zeta_M, b]: the log partition functions at M temperatures, zeta_1 that of the
model, and the bias b of the importance estimate at beta = 1. For sigma_Z = infinity, as in the paper, nothing is known
of the change of zeta but the importance estimate O^(dt), and the update of Figure 2 with (zeta_{t-1}, zeta_t) jointly
collapses to a prediction with O^(dt) as its control input:

    z <- A z + [O^(dt); 0],    P <- A (P + sigma_b^2 e_b e_b') A' + diag(Sigma_dt, 0),    A = I - e_1 e_b'.

Then zeta_M, which is known, is set without variance, and the bridge estimates O^(dbeta) of zeta[i+1] - zeta[i] are
measurements. All is in float64 and nats.

Each formula is written once, for arrays of NumPy and for tensors: what goes in says which come out. Without tensors
nothing here imports TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rbm_tracking.model.visible import NUMPY, Ops, Tensor
from rbm_tracking.track.evidence import EQUAL, FLAGS, LIMITS, Z_95

__all__ = [
    "BIAS_DRIFT",
    "Estimate",
    "FilterState",
    "Health",
    "anchor",
    "bridge",
    "half_width",
    "health_flags",
    "inflation",
    "initial_filter",
    "insert_level",
    "known",
    "lag",
    "log_mean_exp",
    "log_z_std",
    "ops_of",
    "predict",
    "update",
]

BIAS_DRIFT = 1e-3
"""sigma_b^2 in units of the learning rate, nats^2, as in the paper: how much the bias b_t may drift in an update."""

_RATES = np.array([1 / 4, 1 / 16, 1 / 64, 1 / 256])[:, None]  # forgetting rates at which innovations are averaged
_EXCESS = ((2 - _RATES) / _RATES)[:, 0]
_AVERAGED = 30.0  # averages of a scale that its power is estimated from
_FIRST_AVERAGES = 2.0  # how many averages the initial power counts for
_INITIAL_INFLATION = 10.0
_ROUNDING = 1e-12  # variance of what is exact
_FLOAT64 = np.float64(0)


class Estimate(NamedTuple):
    """Estimates of logarithms of ratios, one for each of [...]: value and variance in nats, effective sample size."""

    value: Tensor
    variance: Tensor
    ess: Tensor


class Health(NamedTuple):
    """Smoothed statistics of the filter.

    `observations` []: how many there were; `averages` [K, M]: exponential averages, at K rates, of the normalised
    innovations of the M-1 bridges and of their sum; `powers` [K, M]: smoothed squares of these; `nis` []: smoothed mean
    square of the normalised innovations (1 if the variances are right); `ess` []: smoothed smallest effective sample
    size; `swap_rate` [M-1]: smoothed probability that a swap of neighbours is accepted.
    """

    observations: Tensor
    averages: Tensor
    powers: Tensor
    nis: Tensor
    ess: Tensor
    swap_rate: Tensor


class FilterState(NamedTuple):
    """`mean` [M+1] and `cov` [M+1, M+1] of z = [zeta_1, ..., zeta_M, b], float64, nats; `health`."""

    mean: Tensor
    cov: Tensor
    health: Health


# Measurements.


def log_mean_exp(log_weights: Tensor) -> Estimate:
    """log of the mean of exp(log_weights) over the last axis, of [..., C] to [...] in float64: O^(dt) of Eq. (3).

    With log_weights = log q~[i, t](x) - log q~[i, t-1](x) at C states x ~ q[i, t-1] it estimates zeta[i, t] -
    zeta[i, t-1]. The mean weight is unbiased, its log is low by about half its variance. At the temperature whose
    states also drove the gradient the estimate has a bias (Section 3.2), which
    :func:`rbm_tracking.track.updates.gradient.reuse_bias` and the filter's b_t account for.

    The variance is that of the logarithm by the delta method, s_w^2 / (C mean(w)^2), with the sample variance s_w^2. It
    cannot exceed 1 (one weight that outweighs all others): compare the effective sample size (sum w)^2 / sum w^2 with 1
    before it is believed. The formula printed in Section 3.2 divides by (sum w)^2 instead, and is C times smaller.
    """
    ops = ops_of(log_weights)
    log_weights = ops.cast(log_weights, _FLOAT64)
    count = float(log_weights.shape[-1])
    # Weights relative to the largest one, so that none overflows.
    largest = ops.max(log_weights)
    largest = ops.where(ops.is_finite(largest), largest, 0.0)
    weights = ops.exp(log_weights - largest[..., None])
    mean = ops.sum(weights) / count
    # The delta method: the variance of log mean(w) is that of mean(w), divided by its square.
    deviations = weights - mean[..., None]
    squares = ops.sum(deviations * deviations) / max(count - 1.0, 1.0)
    return Estimate(
        value=ops.log(mean) + largest,
        variance=squares / (count * mean**2),
        ess=count * mean**2 / (ops.sum(weights * weights) / count),
    )


def bridge(d_upper: Tensor, d_lower: Tensor, log_s: Tensor, iterations: int = 0) -> Estimate:
    """O^(dbeta) of Eq. (4): estimates of zeta[i+1] - zeta[i] from states at both temperatures, by bridge sampling.

    With d(x) = log q~[i+1](x) - log q~[i](x) and the bridge q~[i] q~[i+1] / (s q~[i] + q~[i+1]), s = Z[i+1] / Z[i],

        O = log s + log mean_{x ~ i} sigma(d - log s) - log mean_{x ~ i+1} sigma(log s - d),

    which equals the paper's ratio of sums and cannot overflow.

    :param d_upper: d at C states of q[i], the colder of the two, [M-1, C], nats.
    :param d_lower: d at C states of q[i+1], [M-1, C].
    :param log_s: a guess of the result, [M-1]: what the filter predicts.
    :param iterations: how often to start again with the result as the guess; the fixed point is Bennett's acceptance
        ratio.
    :return: [M-1] in float64; the effective sample size is the smaller one of the two sides'.
    """
    ops = ops_of(d_upper)
    d_upper, d_lower, log_s = (ops.cast(part, _FLOAT64) for part in (d_upper, d_lower, log_s))
    # Eq. (4) at the guess of s, then at its own result: the fixed point is Bennett's.
    for _ in range(iterations + 1):
        numerator = _log_mean(ops.log_sigmoid(d_upper - log_s[..., None]))
        denominator = _log_mean(ops.log_sigmoid(log_s[..., None] - d_lower))
        log_s = log_s + numerator.value - denominator.value
    return Estimate(log_s, numerator.variance + denominator.variance, ops.minimum(numerator.ess, denominator.ess))


def _log_mean(log_weights: Tensor) -> Estimate:
    """:func:`log_mean_exp` of weights between 0 and 1 with the variance that equal ones justify.

    N states of one weight do not know the mean weight exactly, as their sample variance of 0 says: states of another
    weight may have a share of 1 / N without being among them. The variance is then 1 / N^2, that of a mean of N in
    which one deviates by its own size.
    """
    estimate = log_mean_exp(log_weights)
    count = float(log_weights.shape[-1])
    is_equal = count * estimate.variance <= EQUAL**2
    return estimate._replace(variance=ops_of(log_weights).where(is_equal, np.float64(count**-2), estimate.variance))


# The filter.


def initial_filter(
    log_z: ArrayLike, *, variance: float = 1.0, bias_variance: float = 1.0, expected_ess: float = 10.0
) -> FilterState:
    """p(zeta_0): independent normals about a guess of the M log partition functions, the last of which is known.

    :param log_z: [M], nats.
    :return: arrays.
    """
    log_z = np.asarray(log_z, np.float64)
    num_temps = len(log_z)
    # Health as if a few averages had been ten times what they should be: at first nothing is trusted.
    health = Health(
        observations=np.float64(0.0),
        averages=np.zeros([len(_RATES), num_temps]),
        powers=np.tile(_INITIAL_INFLATION * _RATES / (2 - _RATES), num_temps),
        nis=np.float64(1.0),
        ess=np.float64(expected_ess),
        swap_rate=np.full(num_temps - 1, 0.5),
    )
    diagonal = np.r_[np.full(num_temps - 1, variance), 0.0, bias_variance]
    return FilterState(np.r_[log_z, 0.0], np.diag(diagonal), health)


def log_z_std(state: FilterState) -> Tensor:
    """Standard deviation of zeta_1, nats."""
    ops = ops_of(state.cov)
    return ops.sqrt(ops.maximum(state.cov[0, 0], 0.0))


def inflation(health: Health) -> Tensor:
    """By how much the variances of the measurements are enlarged, at least 1, [].

    Persistent chains make successive bridge estimates alike, which the filter takes for independent noise. An
    exponential average at rate r of white noise with variance 1 has the variance r / (2 - r); the factor by which
    averages of the innovations exceed it, at the rate where it is largest, is their integrated autocorrelation time. It
    is measured on the sum of the M-1 innovations, on which zeta_1 depends.
    """
    ops = ops_of(health.powers)
    return ops.maximum(ops.max(health.powers[:, -1] * _EXCESS), 1.0)


def lag(state: FilterState, bias: Tensor) -> Tensor:
    """How far, in nats, the particles may be behind the parameters: |b_t| times the :func:`inflation`.

    The bias of O^(dt) is the part of the change of log Z that one update hides from the particles that drive it, and
    the inflation is the number of updates until they have forgotten it.
    """
    return abs(bias) * inflation(state.health)


def half_width(state: FilterState, bias: Tensor) -> Tensor:
    """Half of the 95 % interval of zeta_1, widened to the :func:`lag` where that is more, nats, [].

    The standard deviation is that of samples of the model; while the parameters move, they trail behind it by the lag.
    """
    return ops_of(state.cov).maximum(Z_95 * log_z_std(state), lag(state, bias))


def health_flags(state: FilterState, bias: Tensor) -> Tensor:
    """Reasons not to trust log Z as bits of an integer; 0 if there are none, see `evidence.flag_names`.

    1 (swap_rate): a pair of temperatures swaps with a probability below 0.3. 2 (ess): fewer than 3 effective samples.
    4 (nis): innovations larger than the variances explain, mean square above 1.5. 8 (lag): the sampler may be more than
    5 nats behind, see :func:`lag`. 16 (std): the standard deviation of log Z is more than 1 nat. 64 (not_finite): log Z
    or its standard deviation is NaN or infinite. What is NaN is never right: it gives its reason, too.

    :param bias: b_t in nats, all of it.
    """
    ops = ops_of(state.cov)
    health = state.health
    std = log_z_std(state)
    lagging = lag(state, bias)
    is_right = {
        "swap_rate": -ops.max(-health.swap_rate) >= LIMITS.min_swap_rate,
        "ess": health.ess >= LIMITS.min_ess,
        "nis": health.nis <= LIMITS.max_nis,
        "lag": lagging <= LIMITS.max_lag,
        "std": std <= LIMITS.max_std,
        "not_finite": ops.is_finite(state.mean[0] + std + lagging),
    }
    return sum(ops.where(right, 0, FLAGS[name]) for name, right in is_right.items())


def predict(
    state: FilterState, change: Estimate, *, bias_variance: Tensor, sigma_z: float = np.inf, factor: Tensor = 1.0
) -> FilterState:
    """Carry p(zeta_{t-1}) across a parameter update with the importance estimates O^(dt): (i) to (iii) in Figure 2.

    :param change: estimates at the M temperatures; the last one is not used, because zeta_M is known.
    :param bias_variance: sigma_b^2, how much the bias may change (10^-3 times the learning rate in the paper).
    :param sigma_z: standard deviation of the change of zeta that is expected without any measurement, infinite in the
        paper. With a finite one the estimates also measure b, and are shrunk towards no change.
    :param factor: of the variances of the estimates, see :func:`inflation`.
    """
    ops = ops_of(state.mean)
    size = state.mean.shape[0]
    first = np.eye(size)[0]
    last = np.eye(size)[-1]
    is_inner = np.r_[np.ones(size - 2), 0.0]  # of zeta: all but the last
    # The bias drifts; zeta_M, which is known, takes no change from the estimates.
    value = is_inner * change.value
    variance = is_inner * factor * change.variance
    mean = state.mean
    cov = state.cov + bias_variance * np.diag(last)
    gain: Tensor = np.ones(size - 1)
    # With a finite sigma_Z the estimate at beta = 1 measures b, too, and the gain is below 1.
    if np.isfinite(sigma_z):
        mean, cov = _measured(mean, cov, lambda x: x[..., -1], value[0], sigma_z**2 + variance[0])
        gain = sigma_z**2 / (sigma_z**2 + variance)  # [M]
    # z <- A z + [O^(dt); 0] and P <- A P A' + diag(Sigma_dt, 0)
    lost = gain[0] * first  # A = I - lost e_b'
    none = np.zeros(1)
    mean = mean - lost * mean[-1] + ops.join([gain * value, none])
    cov = cov - _outer(lost, cov[-1])
    cov = cov - _outer(cov[:, -1], lost)
    return state._replace(mean=mean, cov=cov + ops.diag(ops.join([gain * variance, none])))


def anchor(state: FilterState, log_z_last: Tensor) -> FilterState:
    """Set zeta_M, which is known, without variance (footnote 3)."""
    # The row and the column of zeta_M become 0.
    keeps = np.r_[np.ones(state.mean.shape[0] - 2), 0.0, 1.0]
    mean = keeps * state.mean + (1.0 - keeps) * ops_of(state.mean).cast(log_z_last, _FLOAT64)
    return state._replace(mean=mean, cov=state.cov * _outer(keeps, keeps))


def known(state: FilterState, log_z: float) -> FilterState:
    """Condition on zeta_1, where enumeration has found it; zeta and b at other temperatures follow by their covariance.

    :param log_z: nats.
    """
    mean, cov = _measured(state.mean, state.cov, lambda x: x[..., 0], np.float64(log_z), np.float64(_ROUNDING))
    return state._replace(mean=mean, cov=cov)


def update(state: FilterState, bridges: Estimate, swap_rate: Tensor, *, factor: Tensor = None) -> FilterState:
    """Condition on the bridge estimates O^(dbeta) of zeta[i+1] - zeta[i]: (iv) in Figure 2, one scalar at a time.

    :param bridges: estimates of the M-1 pairs.
    :param swap_rate: mean probability of a swap at each pair, [M-1]; only the health flags use it.
    :param factor: of the variances of the estimates; by default :func:`inflation`.
    """
    ops = ops_of(state.mean)
    # The innovations feed the health before they change the state.
    factor = inflation(state.health) if factor is None else factor
    health = _observed(state, bridges, ops.cast(swap_rate, _FLOAT64), factor)
    variance = factor * bridges.variance

    def condition(i: Tensor, mean: Tensor, cov: Tensor) -> tuple[Tensor, Tensor]:
        return _measured(mean, cov, lambda x: x[..., i + 1] - x[..., i], bridges.value[i], variance[i])

    # One pair after another, as if their noises were independent: the inflation makes up for it.
    mean, cov = ops.repeat(state.mean.shape[0] - 2, condition, (state.mean, state.cov))
    return FilterState(mean, 0.5 * (cov + ops.transpose(cov)), health)


def insert_level(state: FilterState, level: int, log_z: float, variance: float) -> FilterState:
    """Make room for a new temperature between `level` and `level` + 1, whose log Z is about `log_z`.

    :return: arrays.
    """
    # log Z of the new level, of which nothing else is known
    mean = np.insert(state.mean, level + 1, log_z)
    cov = np.insert(np.insert(state.cov, level + 1, 0.0, axis=0), level + 1, 0.0, axis=1)
    cov[level + 1, level + 1] = variance
    powers = np.asarray(state.health.powers)
    health = state.health._replace(
        averages=np.insert(state.health.averages, level, 0.0, axis=1),
        powers=np.insert(powers, level, powers[:, level], axis=1),
        swap_rate=np.insert(state.health.swap_rate, level, state.health.swap_rate[level]),
    )
    return FilterState(mean, cov, health)


def _observed(state: FilterState, bridges: Estimate, swap_rate: Tensor, factor: Tensor) -> Health:
    """Update the statistics of the innovations, of variances without inflation: P is divided by `factor`."""
    ops = ops_of(state.mean)
    health = state.health
    # Innovations, and the variances that the filter without inflation expects of them.
    innovation = bridges.value - (state.mean[1:-1] - state.mean[:-2])
    across = state.cov[1:-1, :-1] - state.cov[:-2, :-1]
    expected = (across[:, 1:] - across[:, :-1]) / factor + ops.diag(bridges.variance)
    # Normalised one by one, and their sum, on which zeta_1 depends.
    alone = innovation / ops.sqrt(ops.diagonal(expected))
    together = ops.sum(innovation) / ops.sqrt(ops.sum(ops.sum(expected)))
    normalised = ops.join([alone, together[None]])
    # Averages at K rates: by how much they exceed those of white noise is the autocorrelation time.
    averages = (1 - _RATES) * health.averages + _RATES * normalised
    slow = ops.maximum(_RATES / _AVERAGED, 1.0 / (health.observations + _FIRST_AVERAGES / _RATES))
    num_bridges = state.mean.shape[0] - 2
    return Health(
        observations=health.observations + 1.0,
        averages=averages,
        powers=(1 - slow) * health.powers + slow * averages**2,
        nis=0.995 * health.nis + 0.005 * (ops.sum(alone * alone) / num_bridges),
        ess=0.98 * health.ess - 0.02 * ops.max(-bridges.ess),
        swap_rate=0.98 * health.swap_rate + 0.02 * swap_rate,
    )


def _measured(
    mean: Tensor, cov: Tensor, along: Callable[[Tensor], Tensor], value: Tensor, variance: Tensor
) -> tuple[Tensor, Tensor]:
    """Condition N(mean, cov) on value = direction'z + noise; the covariance in Joseph's form, which stays positive.

    :param along: the product of the last axis with the direction.
    """
    # The gain P d / (d'P d + R) of the direction d.
    projected = along(cov)
    gain = projected / (along(projected) + variance)
    # Joseph's form: (I - K d') P (I - K d')' + R K K'
    reduced = cov - _outer(gain, projected)  # (I - gain direction') cov
    return mean + gain * (value - along(mean)), reduced - _outer(along(reduced), gain) + variance * _outer(gain, gain)


def _outer(x: Tensor, y: Tensor) -> Tensor:
    return x[:, None] * y[None]


def ops_of(x: Tensor) -> Ops:
    """The functions for arrays, or those for tensors."""
    if isinstance(x, np.ndarray | np.generic | float):
        return NUMPY
    from rbm_tracking.model.rbm import TENSORS

    return TENSORS
