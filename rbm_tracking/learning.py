"""Stochastic maximum likelihood with parallel tempering (SML-PT, SML-APT), tracked at every update.

One update, at parameters theta_t:

    1. k rounds of Gibbs sampling and a round of swaps at theta_t;
    2. the bridge estimates from the particles that were just swapped are measurements of log Z at theta_t;
    3. a step of gradient ascent with a minibatch and the particles at beta = 1 gives theta_{t+1};
    4. the ladder moves, if it is adaptive;
    5. the same particles, weighted by q~_{t+1} / q~_t, give the change of log Z, and the filter predicts log Z at
       theta_{t+1}.

Sampling is what training does anyway; tracking adds one sum of softplus over the particles and a filter of M+1 numbers:
the product W v of step 5 is where the Gibbs sampling of the next update starts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from rbm_tracking.bridge import bridge
from rbm_tracking.checks import check_rbm
from rbm_tracking.importance import log_z_change
from rbm_tracking.ladder import Ladder, adapt, initial_ladder, observe_flow
from rbm_tracking.random import GENERATORS, Generator
from rbm_tracking.rbm import (
    RBM,
    activations,
    log_prob_unnormalised,
    log_z_independent,
    matmul_rows,
    softplus_sum,
)
from rbm_tracking.tempering import SCHEMES, Chains, Scheme, at_level, gibbs, initial_chains, swap
from rbm_tracking.tracker import (
    TrackerState,
    anchor,
    health_flags,
    inflation,
    initial_tracker,
    insert_level,
    lag,
    log_z_std,
    predict,
    update,
)

__all__ = [
    "Observed",
    "SMLConfig",
    "SMLState",
    "Step",
    "compiled_updates",
    "gradient_step",
    "initial_state",
    "learning_rate_at",
    "log_likelihood",
    "log_likelihoods",
    "reuse_bias",
    "sml_update",
    "spawn",
]

Bias = Literal["both", "learned", "none"]
BIASES: tuple[str, ...] = get_args(Bias)


@dataclass(frozen=True)
class SMLConfig:
    """How to train and track.

    :param learning_rate: learning rate epsilon_0 of the ascent on the likelihood.
    :param learning_rate_decay: alpha of the learning rate min(epsilon_0 alpha / (t + 1), epsilon_0) at update t; it is
        constant if this is not given.
    :param gibbs_steps: rounds of Gibbs sampling in each update.
    :param swaps: pairs of neighbouring temperatures that may swap in an update: all of them (even_odd, as in the
        paper), or even and odd ones in turn (deo).
    :param gradient_chains: how many of the N chains at beta = 1 estimate the gradient; None for all. The others only
        track, and are free of the bias of those that the gradient has pushed away.
    :param centred: use the centred gradient (Melchior, Fischer and Wiskott, 2016), for which the coding of a pixel as 0
        or 1 makes no difference.
    :param adaptive: adapt the temperatures to the flow of particles (SML-APT).
    :param adapt_rate: part of the way that adaptive temperatures move at each update.
    :param track: track log Z; without it this is plain SML-PT.
    :param bias: how the bias b_t of the estimated change of log Z is removed: learned by the filter, as in the paper;
        both: its first order is computed from the particles and the rest is learned; none: a filter without it.
    :param bias_drift: variance by which the bias b_t may drift in an update, in units of the learning rate, nats^2.
    :param sigma_z: standard deviation of the change of log Z in an update that is expected a priori, nats; infinite in
        the paper.
    :param bridge_iterations: fixed-point iterations of each bridge estimate between two temperatures.
    :param inflate: enlarge the variances of the estimates by the measured autocorrelation of the innovations.
    :param generator: generator of the noise; hash is faster.
    :raises ValueError: naming the field that is wrong.
    """

    learning_rate: float = 0.01
    learning_rate_decay: float | None = None
    gibbs_steps: int = 1
    swaps: Scheme = "even_odd"
    gradient_chains: int | None = None
    centred: bool = False
    adaptive: bool = False
    adapt_rate: float = 0.001
    track: bool = True
    bias: Bias = "both"
    bias_drift: float = 1e-3
    sigma_z: float = np.inf
    bridge_iterations: int = 0
    inflate: bool = True
    generator: Generator = "threefry"

    def __post_init__(self) -> None:
        for name, known in (("swaps", SCHEMES), ("bias", BIASES), ("generator", GENERATORS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}.")
        for name in ("learning_rate", "learning_rate_decay"):
            if (value := getattr(self, name)) is not None and not 0 < value < np.inf:
                raise ValueError(f"{name} must be positive and finite, got {value}.")
        for name, least in (("gibbs_steps", 1), ("gradient_chains", 1), ("bridge_iterations", 0)):
            if (value := getattr(self, name)) is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}.")
        if not 0 <= self.adapt_rate <= 1:
            raise ValueError(f"adapt_rate must be in [0, 1], got {self.adapt_rate}.")
        if not 0 <= self.bias_drift < np.inf:
            raise ValueError(f"bias_drift must be finite and not negative, got {self.bias_drift}.")
        if not self.sigma_z > 0:
            raise ValueError(f"sigma_z must be positive (infinite in the paper), got {self.sigma_z}.")


class SMLState(NamedTuple):
    """All that changes: `step` [], the number of updates; parameters, particles, ladder and tracker; the centring
    `offsets` of visible [n_v] and hidden units [n_h]."""

    step: tf.Tensor
    rbm: RBM
    chains: Chains
    ladder: Ladder
    tracker: TrackerState
    offsets: tuple[tf.Tensor, tf.Tensor]


class Observed(NamedTuple):
    """What one update saw; log Z and its standard deviation are those of the parameters after the update. In nats.

    `log_z`, `log_z_std`, `bias` (b_t, learned and closed form together), `change` (O^(dt) at beta = 1), `bridge_sum`
    (zeta_M minus the sum of O^(dbeta): log Z by bridges alone), `nis`, `inflation`, `ess`, `lag` and `flags` (as in
    :mod:`rbm_tracking.tracker`): []; `swap_rate` [M-1].
    """

    log_z: tf.Tensor
    log_z_std: tf.Tensor
    bias: tf.Tensor
    change: tf.Tensor
    bridge_sum: tf.Tensor
    nis: tf.Tensor
    inflation: tf.Tensor
    ess: tf.Tensor
    lag: tf.Tensor
    flags: tf.Tensor
    swap_rate: tf.Tensor


def initial_state(rbm: RBM, beta: ArrayLike, num_chains: int, *, seed: tf.Tensor, data: ArrayLike) -> SMLState:
    """The state before the first update.

    p(zeta_0): at small weights log Z is close to that at beta = 0; the guess takes the mean field's first order, and
    its standard deviation is 1 nat. It is forgotten within a hundred updates.

    :param beta: the ladder, [M], from 1 to 0.
    :param num_chains: N particles at each temperature.
    :param seed: int32 [2].
    :param data: [N, n_v]; its means are the offsets of the centred gradient.
    :raises ValueError: if the parameters or the ladder are not as they should be.
    """
    check_rbm(rbm)
    if num_chains < 2:
        raise ValueError(f"num_chains must be at least 2, so that variances can be estimated, got {num_chains}.")
    ladder = initial_ladder(beta, num_chains, rbm.W.dtype)
    num_temps = ladder.beta.shape[0]
    chains = initial_chains(rbm, num_temps, num_chains, seed=seed)
    mean = tf.constant(np.mean(np.asarray(data), axis=0, dtype=np.float64), rbm.W.dtype)
    hidden = tf.linalg.matvec(rbm.W, tf.sigmoid(rbm.b)) + rbm.c
    at_beta = softplus_sum(tf.tile(hidden[None], [num_temps, 1]), ladder.beta)
    log_z = tf.reduce_sum(tf.nn.softplus(tf.cast(rbm.b, tf.float64))) + tf.cast(at_beta, tf.float64)
    tracker = initial_tracker(log_z.numpy(), expected_ess=num_chains / 2)
    tracker = anchor(tracker, log_z_independent(rbm.b, rbm.c.shape[0]))
    half = tf.fill([rbm.c.shape[0]], tf.constant(0.5, rbm.W.dtype))
    return SMLState(tf.constant(0), rbm, chains, ladder, tracker, (mean, half))


def learning_rate_at(config: SMLConfig, step: tf.Tensor, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """epsilon_t = min(epsilon_0 alpha / (t + 1), epsilon_0) (Section 4)."""
    start = tf.constant(config.learning_rate, dtype)
    if config.learning_rate_decay is None:
        return start
    return tf.minimum(start * config.learning_rate_decay / (tf.cast(step, dtype) + 1.0), start)


def reuse_bias(v: tf.Tensor, h: tf.Tensor, rate: tf.Tensor, offsets: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """First-order bias of O^(dt) at the temperature whose particles drove the gradient, nats, [].

    The step moves the parameters by rate * (data's gradient - mean of phi(x_n)), phi = d log q~ / d theta, and the same
    x_n then estimate the change of log Z, so to first order the estimate is off by
    E[(mean phi - E phi)'(step)] = -rate tr Cov(phi) / N. The trace follows from the N x N matrix of inner products of
    the phi(x_n), without forming them.

    :param v: particles [N, n_v]; :param h: their hidden means [N, n_h]; :param rate: learning rate.
    :param offsets: of the centred gradient, which is plain gradient ascent in centred parameters; zeros otherwise.
    """
    count = v.shape[0]
    v_mean, h_mean = offsets
    v_c, h_c = v - v_mean, h - h_mean
    vv, hh = tf.linalg.matmul(v_c, v_c, transpose_b=True), tf.linalg.matmul(h_c, h_c, transpose_b=True)
    gram = vv * hh + vv + hh
    total = tf.linalg.trace(gram) - tf.reduce_sum(gram) / count
    return -rate * total / ((count - 1.0) * count)


def sml_update(
    state: SMLState, batch: tf.Tensor, *, seed: tf.Tensor, config: SMLConfig, weights: tf.Tensor | None = None
) -> tuple[SMLState, Observed]:
    """One update with a minibatch [B, n_v] of 0.0 and 1.0.

    :param seed: int32 [2]; the noise is a function of it and of `state.step`.
    :param weights: of the rows, [B], with the sum 1; None for 1 / B each. Rows of weight 0 only fill the batch.
    """
    step, rbm, chains, ladder, tracker, offsets = state
    noise = {"seed": seed, "step": step, "generator": config.generator}
    chains = gibbs(rbm, chains, ladder.beta, steps=config.gibbs_steps, **noise)
    chains, swaps = swap(chains, ladder.beta, scheme=config.swaps, **noise)
    rate = learning_rate_at(config, step, rbm.W.dtype)

    is_target = tf.equal(chains.level, 0)
    slot = tf.argmax(tf.cast(is_target, tf.float32), axis=0, output_type=tf.int32)  # [N], of the particle at beta = 1
    count = config.gradient_chains or chains.level.shape[1]
    index = tf.stack([slot[:count], tf.range(count, dtype=tf.int32)], axis=1)
    v_model = tf.gather_nd(chains.v, index)
    h_model = tf.sigmoid(tf.gather_nd(chains.a, index))
    h_data = tf.sigmoid(activations(rbm, batch))
    if config.centred:
        offsets = (offsets[0], offsets[1] + 0.01 * (_row_mean(h_data, weights) - offsets[1]))
    move = gradient_step(batch, h_data, v_model, h_model, rate, offsets if config.centred else None, weights)
    d_W = tf.linalg.matmul(move.left, move.right, transpose_a=True)
    new_rbm = RBM(rbm.W + d_W, rbm.b + move.b, rbm.c + move.c)

    new_ladder = observe_flow(ladder, chains.level) if config.adaptive else ladder
    if config.adaptive:
        new_ladder = adapt(new_ladder, swaps.acceptance, config.adapt_rate)

    new_chains = chains._replace(a=_moved_activations(chains, move, new_rbm))
    num_temps = ladder.beta.shape[0]
    zero = tf.zeros([], tf.float64)
    if not config.track:
        observed = Observed._make([*[zero] * (len(Observed._fields) - 1), tf.cast(swaps.acceptance, tf.float64)])
        return SMLState(step + 1, new_rbm, new_chains, new_ladder, tracker, offsets), observed

    factor = inflation(tracker.health) if config.inflate else tf.ones([], tf.float64)
    predicted = tracker.mean[1:num_temps] - tracker.mean[: num_temps - 1]
    bridges = bridge(swaps.d_upper, swaps.d_lower, predicted, config.bridge_iterations)
    tracker = update(tracker, bridges, swaps.acceptance, factor=factor)

    new_log_q = softplus_sum(new_chains.a, tf.gather(new_ladder.beta, chains.level))
    log_weights = new_log_q - swaps.log_q + tf.linalg.matvec(chains.v, move.b)
    change = log_z_change(at_level(log_weights, chains.level))
    known_bias = zero
    if config.bias == "both":
        centre = offsets if config.centred else (tf.zeros_like(rbm.b), tf.zeros_like(rbm.c))
        share = count / chains.level.shape[1]
        known_bias = share * tf.cast(reuse_bias(v_model, h_model, rate, centre), tf.float64)
    first = tf.one_hot(0, num_temps, dtype=tf.float64)
    unbiased = change._replace(value=change.value - known_bias * first)
    drift = 0.0 if config.bias == "none" else config.bias_drift * tf.cast(rate, tf.float64)
    tracker = predict(tracker, unbiased, bias_variance=drift, sigma_z=config.sigma_z, factor=factor)
    log_z_last = log_z_independent(new_rbm.b, rbm.c.shape[0])
    tracker = anchor(tracker, log_z_last)
    bias = tracker.mean[-1] + known_bias
    observed = Observed(
        log_z=tracker.mean[0],
        log_z_std=log_z_std(tracker),
        bias=bias,
        change=change.value[0],
        bridge_sum=log_z_last - tf.reduce_sum(bridges.value),
        nis=tracker.health.nis,
        inflation=factor,
        ess=tracker.health.ess,
        lag=lag(tracker, bias),
        flags=tf.cast(health_flags(tracker, bias), tf.float64),
        swap_rate=tf.cast(swaps.acceptance, tf.float64),
    )
    return SMLState(step + 1, new_rbm, new_chains, new_ladder, tracker, offsets), observed


def compiled_updates(
    config: SMLConfig, *, jit_compile: bool = True
) -> Callable[[SMLState, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], tuple[SMLState, Observed]]:
    """A function that runs many updates in one graph: `run(state, data, rows, count, seed)` -> (state, observed).

    `data` [N, n_v] of 0 and 1, best as bool, which uint8 is made at each call; `rows` int32 [K, B], the rows of each
    update's minibatch; `count` int32 [], how many of the K to run (one graph serves a shorter last block); `seed` int32
    [2]. The first axis of all that was observed has K entries, of which `count` are filled.
    """

    def run(
        state: SMLState, data: tf.Tensor, rows: tf.Tensor, count: tf.Tensor, seed: tf.Tensor
    ) -> tuple[SMLState, Observed]:
        if data.dtype == tf.uint8:
            data = tf.cast(data, tf.bool)  # a GPU has no kernel that gathers uint8
        size = rows.shape[0]
        num_temps = state.ladder.beta.shape[0]
        scalars = tf.zeros([size, len(Observed._fields) - 1], tf.float64)
        swap_rates = tf.zeros([size, num_temps - 1], tf.float64)

        def body(
            i: tf.Tensor, state: SMLState, scalars: tf.Tensor, swap_rates: tf.Tensor
        ) -> tuple[tf.Tensor, SMLState, tf.Tensor, tf.Tensor]:
            batch = tf.cast(tf.gather(data, rows[i]), state.rbm.W.dtype)
            state, observed = sml_update(state, batch, seed=seed, config=config)
            scalars = tf.tensor_scatter_nd_update(scalars, [[i]], [tf.stack(observed[:-1])])
            swap_rates = tf.tensor_scatter_nd_update(swap_rates, [[i]], [observed.swap_rate])
            return i + 1, state, scalars, swap_rates

        _, state, scalars, swap_rates = tf.while_loop(
            lambda i, *_: i < count, body, (tf.constant(0), state, scalars, swap_rates)
        )
        return state, Observed._make([*tf.unstack(scalars, axis=1), swap_rates])

    return tf.function(run, jit_compile=jit_compile, autograph=False)


def spawn(state: SMLState, level: int) -> SMLState:
    """Add a temperature between `level` and `level` + 1 (chain spawning of SML-APT).

    Its particles start as copies of the hotter level's, its log Z as what these give by importance sampling, with a
    variance of 1 nat^2: bridges on both sides settle it.

    :raises ValueError: if there is no such pair of levels.
    """
    step, rbm, chains, ladder, tracker, offsets = state
    num_temps, num_chains = chains.level.shape
    if not 0 <= level < num_temps - 1:
        raise ValueError(f"level must be in 0 ... {num_temps - 2}, got {level}.")
    hot = tf.stack([tf.argmax(tf.equal(chains.level, level + 1), output_type=tf.int32), tf.range(num_chains)], axis=1)
    v, a = tf.gather_nd(chains.v, hot), tf.gather_nd(chains.a, hot)
    beta = 0.5 * (ladder.beta[level] + ladder.beta[level + 1])
    change = log_z_change((softplus_sum(a, beta) - softplus_sum(a, ladder.beta[level + 1]))[None])
    log_z = float(tracker.mean[level + 1] + change.value[0])
    raised = tf.where(chains.level > level, chains.level + 1, chains.level)
    new_level = tf.fill([1, num_chains], tf.constant(level + 1))
    new_chains = Chains(
        tf.concat([chains.v, v[None]], 0), tf.concat([chains.a, a[None]], 0), tf.concat([raised, new_level], 0)
    )

    def with_middle(values: tf.Tensor) -> tf.Tensor:
        middle = 0.5 * (values[level] + values[level + 1])
        return tf.concat([values[: level + 1], [middle], values[level + 1 :]], axis=0)

    zeros = tf.zeros([1, num_chains], tf.int32)
    new_ladder = Ladder(
        beta=with_middle(ladder.beta),
        up=with_middle(ladder.up),
        down=with_middle(ladder.down),
        label=tf.concat([ladder.label, zeros], axis=0),
        age=tf.concat([ladder.age, zeros], axis=0),
        return_time=ladder.return_time,
    )
    return SMLState(step, rbm, new_chains, new_ladder, insert_level(tracker, level, log_z, 1.0), offsets)


def log_likelihoods(state: SMLState, data: ArrayLike, chunk: int = 5000) -> NDArray[np.float64]:
    """log p(v) of each of the binary rows [N, n_v] with the tracked log Z, nats, [N].

    None can be positive: if one is, log Z is too low by at least as much, whatever the tracker says.
    """
    data = np.asarray(data)
    parts = [
        log_prob_unnormalised(state.rbm, tf.cast(data[start : start + chunk], state.rbm.W.dtype)).numpy()
        for start in range(0, len(data), chunk)
    ]
    return np.concatenate(parts).astype(np.float64) - float(state.tracker.mean[0])


def log_likelihood(state: SMLState, data: ArrayLike, chunk: int = 5000) -> float:
    """Mean of :func:`log_likelihoods`, nats."""
    return float(log_likelihoods(state, data, chunk).mean())


class Step(NamedTuple):
    """A change of the parameters: W by left' right, of `left` [R, n_h] and `right` [R, n_v]; `b` and `c`."""

    left: tf.Tensor
    right: tf.Tensor
    b: tf.Tensor
    c: tf.Tensor


def gradient_step(
    v_data: tf.Tensor,
    h_data: tf.Tensor,
    v_model: tf.Tensor,
    h_model: tf.Tensor,
    rate: tf.Tensor,
    offsets: tuple[tf.Tensor, tf.Tensor] | None,
    weights: tf.Tensor | None = None,
) -> Step:
    """The learning rate times the gradient of the log-likelihood: data's mean of -dF/dtheta minus the particles'.

    :param offsets: of the centred gradient; None for the plain one.
    :param weights: of the data, [B], with the sum 1; None for 1 / B each.
    """
    d_v = _row_mean(v_data, weights) - tf.reduce_mean(v_model, axis=0)
    d_h = _row_mean(h_data, weights) - tf.reduce_mean(h_model, axis=0)
    weighted = h_data / v_data.shape[0] if weights is None else h_data * weights[:, None]
    left = tf.concat([weighted, -h_model / v_model.shape[0]], axis=0)
    right = tf.concat([v_data, v_model], axis=0)
    if offsets is not None:
        v_mean, h_mean = offsets
        left = tf.concat([left, -d_h[None], -h_mean[None]], axis=0)
        right = tf.concat([right, v_mean[None], d_v[None]], axis=0)
        across_v, across_h = tf.linalg.matvec(right, v_mean), tf.linalg.matvec(left, h_mean)  # [R]
        d_v, d_h = (
            d_v - tf.linalg.matvec(right, across_h, transpose_a=True),
            d_h - tf.linalg.matvec(left, across_v, transpose_a=True),
        )
    return Step(rate * left, right, rate * d_v, rate * d_h)


def _row_mean(x: tf.Tensor, weights: tf.Tensor | None) -> tf.Tensor:
    return tf.reduce_mean(x, axis=0) if weights is None else tf.linalg.matvec(x, weights, transpose_a=True)


def _moved_activations(chains: Chains, step: Step, new_rbm: RBM) -> tf.Tensor:
    """W v + c of the particles after a step: anew, or from the old ones and the step's factors if that is less work."""
    n_h, n_v = new_rbm.W.shape
    if step.left.shape[0] * (n_h + n_v) >= n_h * n_v:
        return activations(new_rbm, chains.v)
    change = matmul_rows(matmul_rows(chains.v, step.right, transpose_b=True), step.left)
    return chains.a + change + step.c
