"""The filter over log partition functions (Section 3.4, Figures 1 and 2).

The latent state is z = [zeta_1, ..., zeta_M, b]: the log partition functions at M temperatures, zeta_1 that of the
model, and the bias b of the importance estimate at beta = 1. For sigma_Z = infinity, as in the paper, nothing is known
of the change of zeta but the importance estimate O^(dt), and the update of Figure 2 with (zeta_{t-1}, zeta_t) jointly
collapses to a prediction with O^(dt) as its control input:

    z <- A z + [O^(dt); 0],    P <- A (P + sigma_b^2 e_b e_b') A' + diag(Sigma_dt, 0),    A = I - e_1 e_b'.

Then zeta_M, which is known, is set without variance, and the bridge estimates O^(dbeta) of zeta[i+1] - zeta[i] are
measurements. All is in float64 and nats.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from rbm_tracking.track.health import FLAGS, LIMITS, Z_95
from rbm_tracking.track.importance import Estimate

__all__ = [
    "Health",
    "TrackerState",
    "anchor",
    "half_width",
    "health_flags",
    "inflation",
    "initial_tracker",
    "insert_level",
    "lag",
    "log_z_std",
    "predict",
    "update",
]

_SCALES = (1 / 4, 1 / 16, 1 / 64, 1 / 256)  # forgetting rates at which the innovations are averaged
_AVERAGED = 30.0  # averages of a scale that its power is estimated from
_FIRST_AVERAGES = 2.0  # how many averages the initial power counts for
_INITIAL_INFLATION = 10.0


class Health(NamedTuple):
    """Smoothed statistics of the filter.

    `count` []: observations; `averages` [K, M]: exponential averages, at K rates, of the normalised innovations of the
    M-1 bridges and of their sum; `powers` [K, M]: smoothed squares of these; `nis` []: smoothed mean square of the
    normalised innovations (1 if the variances are right); `ess` []: smoothed smallest effective sample size;
    `swap_rate` [M-1]: smoothed probability that a swap of neighbours is accepted.
    """

    count: tf.Tensor
    averages: tf.Tensor
    powers: tf.Tensor
    nis: tf.Tensor
    ess: tf.Tensor
    swap_rate: tf.Tensor


class TrackerState(NamedTuple):
    """`mean` [M+1] and `cov` [M+1, M+1] of z = [zeta_1, ..., zeta_M, b], float64, nats; `health`."""

    mean: tf.Tensor
    cov: tf.Tensor
    health: Health


def initial_tracker(
    log_z: ArrayLike, *, variance: float = 1.0, bias_variance: float = 1.0, expected_ess: float = 10.0
) -> TrackerState:
    """p(zeta_0): independent normals about a guess of the M log partition functions, the last of which is known.

    :param log_z: [M], nats.
    """
    log_z = np.asarray(log_z, np.float64)
    num_temps = len(log_z)
    diagonal = np.r_[np.full(num_temps - 1, variance), 0.0, bias_variance]
    rates = np.array(_SCALES)[:, None]
    health = Health(
        count=tf.zeros([], tf.float64),
        averages=tf.zeros([len(_SCALES), num_temps], tf.float64),
        powers=tf.constant(np.broadcast_to(_INITIAL_INFLATION * rates / (2 - rates), [len(_SCALES), num_temps])),
        nis=tf.ones([], tf.float64),
        ess=tf.constant(expected_ess, tf.float64),
        swap_rate=tf.fill([num_temps - 1], tf.constant(0.5, tf.float64)),
    )
    return TrackerState(tf.constant(np.r_[log_z, 0.0]), tf.constant(np.diag(diagonal)), health)


def log_z_std(state: TrackerState) -> tf.Tensor:
    """Standard deviation of zeta_1, nats."""
    return tf.sqrt(tf.maximum(state.cov[0, 0], 0.0))


def inflation(health: Health) -> tf.Tensor:
    """By how much the variances of the measurements are enlarged, at least 1, [].

    Persistent chains make successive bridge estimates alike, which the filter takes for independent noise. An
    exponential average at rate r of white noise with variance 1 has the variance r / (2 - r); the factor by which
    averages of the innovations exceed it, at the rate where it is largest, is their integrated autocorrelation time. It
    is measured on the sum of the M-1 innovations, on which zeta_1 depends.
    """
    rates = np.array(_SCALES)[:, None]
    excess = health.powers[:, -1] * tf.constant(((2 - rates) / rates)[:, 0])  # of the sum of all bridges, [K]
    return tf.maximum(tf.reduce_max(excess), 1.0)


def lag(state: TrackerState, bias: tf.Tensor) -> tf.Tensor:
    """How far, in nats, the particles may be behind the parameters: |b_t| times the :func:`inflation`.

    The bias of O^(dt) is the part of the change of log Z that one update hides from the particles that drive it, and
    the inflation is the number of updates until they have forgotten it.
    """
    return tf.abs(bias) * inflation(state.health)


def half_width(state: TrackerState, bias: tf.Tensor) -> tf.Tensor:
    """Half of the 95 % interval of zeta_1, widened to the :func:`lag` where that is more, nats, [].

    The standard deviation is that of samples of the model; while the parameters move, they trail behind it by the lag.
    """
    return tf.maximum(Z_95 * log_z_std(state), lag(state, bias))


def health_flags(state: TrackerState, bias: tf.Tensor) -> tf.Tensor:
    """Reasons not to trust log Z as bits of an int32 []; 0 if there are none, see `health.flag_names`.

    1 (swap_rate): a pair of temperatures swaps with a probability below 0.3. 2 (ess): fewer than 3 effective samples.
    4 (nis): innovations larger than the variances explain, mean square above 1.5. 8 (lag): the sampler may be more than
    5 nats behind, see :func:`lag`. 16 (std): the standard deviation of log Z is more than 1 nat. 64 (not_finite): log Z
    or its standard deviation is NaN or infinite. What is NaN is never right: it gives its reason, too.

    :param bias: b_t in nats, all of it.
    """
    std, lagging = log_z_std(state), lag(state, bias)
    is_right = {
        "swap_rate": tf.reduce_min(state.health.swap_rate) >= LIMITS.min_swap_rate,
        "ess": state.health.ess >= LIMITS.min_ess,
        "nis": state.health.nis <= LIMITS.max_nis,
        "lag": lagging <= LIMITS.max_lag,
        "std": std <= LIMITS.max_std,
        "not_finite": tf.reduce_all(tf.math.is_finite(tf.stack([state.mean[0], std, lagging]))),
    }
    return tf.add_n([tf.where(right, 0, FLAGS[name]) for name, right in is_right.items()])


def predict(
    state: TrackerState,
    change: Estimate,
    *,
    bias_variance: tf.Tensor | float,
    sigma_z: float = np.inf,
    factor: tf.Tensor | float = 1.0,
) -> TrackerState:
    """Carry p(zeta_{t-1}) across a parameter update with the importance estimates O^(dt): (i) to (iii) in Figure 2.

    :param change: estimates at the M temperatures; the last one is not used, because zeta_M is known.
    :param bias_variance: sigma_b^2, how much the bias may change (10^-3 times the learning rate in the paper).
    :param sigma_z: standard deviation of the change of zeta that is expected without any measurement, infinite in the
        paper. With a finite one the estimates also measure b, and are shrunk towards no change.
    :param factor: of the variances of the estimates, see :func:`inflation`.
    """
    size = state.mean.shape[0]
    is_inner = tf.constant(np.r_[np.ones(size - 2), 0.0])  # of zeta: all but the last
    value = is_inner * change.value
    variance = is_inner * factor * change.variance
    gives_bias = tf.one_hot(size - 1, size, dtype=tf.float64)
    mean, cov = state.mean, state.cov + bias_variance * gives_bias[:, None] * gives_bias[None]
    first = tf.one_hot(0, size, dtype=tf.float64)
    if np.isfinite(sigma_z):
        mean, cov = _measure(mean, cov, gives_bias, value[0], sigma_z**2 + variance[0])
        gain = sigma_z**2 / (sigma_z**2 + variance)  # [M]
    else:
        gain = tf.ones_like(value)
    transition = tf.eye(size, dtype=tf.float64) - gain[0] * first[:, None] * gives_bias[None]
    padding = [[0, 1]]
    mean = tf.linalg.matvec(transition, mean) + tf.pad(gain * value, padding)
    cov = tf.linalg.matmul(transition, tf.linalg.matmul(cov, transition, transpose_b=True))
    noise = tf.eye(size, dtype=tf.float64) * tf.pad(gain * variance, padding)
    return state._replace(mean=mean, cov=cov + noise)


def anchor(state: TrackerState, log_z_last: tf.Tensor) -> TrackerState:
    """Set zeta_M, which is known, without variance (footnote 3)."""
    size = state.mean.shape[0]
    keeps = tf.constant(np.r_[np.ones(size - 2), 0.0, 1.0])
    mean = keeps * state.mean + (1.0 - keeps) * tf.cast(log_z_last, tf.float64)
    return state._replace(mean=mean, cov=state.cov * keeps[:, None] * keeps[None])


def update(
    state: TrackerState, bridges: Estimate, swap_rate: tf.Tensor, *, factor: tf.Tensor | float | None = None
) -> TrackerState:
    """Condition on the bridge estimates O^(dbeta) of zeta[i+1] - zeta[i]: (iv) in Figure 2, one scalar at a time.

    :param bridges: estimates of the M-1 pairs.
    :param swap_rate: mean probability of a swap at each pair, [M-1]; only the health flags use it.
    :param factor: of the variances of the estimates; by default :func:`inflation`.
    """
    size = state.mean.shape[0]
    num_bridges = size - 2
    H = np.zeros([num_bridges, size])
    H[np.arange(num_bridges), np.arange(num_bridges)] = -1.0
    H[np.arange(num_bridges), np.arange(num_bridges) + 1] = 1.0
    H = tf.constant(H)
    factor = inflation(state.health) if factor is None else factor
    health = _observe(state, bridges, swap_rate, H, factor)

    # a loop of the graph: unrolled, it is most of what there is to compile
    def condition(i: tf.Tensor, mean: tf.Tensor, cov: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return i + 1, *_measure(mean, cov, H[i], bridges.value[i], factor * bridges.variance[i])

    start = tf.constant(0), state.mean, state.cov
    _, mean, cov = tf.while_loop(lambda i, *_: i < num_bridges, condition, start)
    return TrackerState(mean, 0.5 * (cov + tf.transpose(cov)), health)


def insert_level(state: TrackerState, level: int, log_z: float, variance: float) -> TrackerState:
    """Make room for a new temperature between `level` and `level` + 1, whose log Z is about `log_z`."""
    mean = np.insert(state.mean.numpy(), level + 1, log_z)
    cov = np.insert(np.insert(state.cov.numpy(), level + 1, 0.0, axis=0), level + 1, 0.0, axis=1)
    cov[level + 1, level + 1] = variance
    averages = np.insert(state.health.averages.numpy(), level, 0.0, axis=1)
    powers = state.health.powers.numpy()
    powers = np.insert(powers, level, powers[:, level], axis=1)
    swap_rate = np.insert(state.health.swap_rate.numpy(), level, state.health.swap_rate[level])
    health = state.health._replace(
        averages=tf.constant(averages), powers=tf.constant(powers), swap_rate=tf.constant(swap_rate)
    )
    return TrackerState(tf.constant(mean), tf.constant(cov), health)


def _measure(
    mean: tf.Tensor, cov: tf.Tensor, direction: tf.Tensor, value: tf.Tensor, variance: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Condition N(mean, cov) on value = direction'z + noise; the covariance in Joseph's form, which stays positive."""
    projected = tf.linalg.matvec(cov, direction)
    gain = projected / (tf.tensordot(direction, projected, 1) + variance)
    reduction = tf.eye(mean.shape[0], dtype=tf.float64) - gain[:, None] * direction[None]
    cov = tf.linalg.matmul(reduction, tf.linalg.matmul(cov, reduction, transpose_b=True))
    return mean + gain * (value - tf.tensordot(direction, mean, 1)), cov + variance * gain[:, None] * gain[None]


def _observe(
    state: TrackerState, bridges: Estimate, swap_rate: tf.Tensor, H: tf.Tensor, factor: tf.Tensor | float
) -> Health:
    """Update the statistics of the innovations, of variances without inflation: P is divided by `factor`."""
    health = state.health
    innovation = bridges.value - tf.linalg.matvec(H, state.mean)
    predicted = tf.linalg.matmul(H, tf.linalg.matmul(state.cov, H, transpose_b=True)) / factor
    expected = predicted + tf.linalg.diag(bridges.variance)
    normalised = tf.concat(
        [
            innovation / tf.sqrt(tf.linalg.diag_part(expected)),
            [tf.reduce_sum(innovation) / tf.sqrt(tf.reduce_sum(expected))],
        ],
        axis=0,
    )
    rates = tf.constant(_SCALES, tf.float64)[:, None]
    averages = (1 - rates) * health.averages + rates * normalised
    slow = tf.maximum(rates / _AVERAGED, 1.0 / (health.count + _FIRST_AVERAGES / rates))
    return Health(
        count=health.count + 1.0,
        averages=averages,
        powers=(1 - slow) * health.powers + slow * averages**2,
        nis=0.995 * health.nis + 0.005 * tf.reduce_mean(normalised[:-1] ** 2),
        ess=0.98 * health.ess + 0.02 * tf.reduce_min(bridges.ess),
        swap_rate=0.98 * health.swap_rate + 0.02 * tf.cast(swap_rate, tf.float64),
    )
