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
from typing import NamedTuple

import tensorflow as tf

from rbm_tracking.bridge import bridge
from rbm_tracking.gradient import gradient_step, moved_activations, reuse_bias, row_mean
from rbm_tracking.importance import log_z_change
from rbm_tracking.ladder import adapt, observe_flow
from rbm_tracking.rbm import RBM, activations, log_z_independent, softplus_sum
from rbm_tracking.settings import SMLConfig, learning_rate_at
from rbm_tracking.state import SMLState, initial_state, log_likelihood, log_likelihoods, spawn
from rbm_tracking.tempering import at_level, gibbs, swap
from rbm_tracking.tracker import anchor, health_flags, inflation, lag, log_z_std, predict, update

__all__ = [
    "Observed",
    "SMLConfig",
    "SMLState",
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
        offsets = (offsets[0], offsets[1] + 0.01 * (row_mean(h_data, weights) - offsets[1]))
    move = gradient_step(batch, h_data, v_model, h_model, rate, offsets if config.centred else None, weights)
    d_W = tf.linalg.matmul(move.left, move.right, transpose_a=True)
    new_rbm = RBM(rbm.W + d_W, rbm.b + move.b, rbm.c + move.c)

    new_ladder = observe_flow(ladder, chains.level) if config.adaptive else ladder
    if config.adaptive:
        new_ladder = adapt(new_ladder, swaps.acceptance, config.adapt_rate)

    new_chains = chains._replace(a=moved_activations(chains, move, new_rbm))
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
