"""Stochastic maximum likelihood with parallel tempering (SML-PT, SML-APT), tracked at every update.

One update, at parameters theta_t:

    1. k rounds of Gibbs sampling and a round of swaps at theta_t;
    2. the bridge estimates from the particles that were just swapped are measurements of log Z at theta_t;
    3. a step of gradient ascent with a minibatch and the particles at beta = 1 gives theta_{t+1} (target chains are
       more of these particles, and take turns in the ladder; CD and PCD have particles of their own);
    4. the ladder moves, if it is adaptive;
    5. the same particles, weighted by q~_{t+1} / q~_t, give the change of log Z, and the filter predicts log Z at
       theta_{t+1}.

Sampling is what training does anyway; tracking adds one sum of softplus over the particles and a filter of M+1 numbers:
the product W v of step 5 is where the Gibbs sampling of the next update starts.
"""

import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from rbm_tracking.model.rbm import RBM, TENSORS, activations
from rbm_tracking.model.visible import Visible, own_slopes
from rbm_tracking.track.ladder import adapt, observe_flow
from rbm_tracking.track.settings import SMLConfig
from rbm_tracking.track.state import SMLState, check_parts, initial_state, log_likelihood, log_likelihoods, spawn
from rbm_tracking.track.tempering import Chains, Swaps, gibbs, swap
from rbm_tracking.track.tracking import Observed, num_tracked, tracked
from rbm_tracking.track.updates.gradient import Step, gradient_step, moved_activations, reuse_bias, row_mean
from rbm_tracking.track.updates.plain_updates import plain_updates
from rbm_tracking.track.updates.schedules import learning_rate_at, without_rate
from rbm_tracking.track.updates.target import Negative, at_target, moved_target, short_chains, take_turns

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


def sml_update(
    state: SMLState,
    batch: tf.Tensor,
    *,
    seed: tf.Tensor,
    config: SMLConfig,
    weights: tf.Tensor | None = None,
    rate: tf.Tensor | None = None,
) -> tuple[SMLState, Observed]:
    """One update with a minibatch [B, n_v] of 0.0 and 1.0.

    :param seed: int32 [2]; the noise is a function of it and of `state.step`.
    :param weights: of the rows, [B], with the sum 1; None for 1 / B each. Rows of weight 0 only fill the batch.
    :param rate: learning rate []; None for that of the configuration at `state.step`.
    :raises ValueError: if the state has not the parts that the configuration needs.
    """
    check_parts(state, config)
    rbm = state.rbm
    rate = learning_rate_at(config, state.step, rbm.W.dtype) if rate is None else tf.cast(rate, rbm.W.dtype)
    # 1. Gibbs sampling and swaps at theta_t
    chains, target, swaps = _sampled(state, seed, config)
    # 3. The gradient: the minibatch against the particles at beta = 1, or those of the method
    a_data = activations(rbm, batch)
    h_data = rbm.hidden.mean(a_data, TENSORS)
    negative = _negative(rbm, chains, target, batch, weights, seed, state.step, config)
    h_model = rbm.hidden.mean(negative.a, TENSORS)
    offsets = state.offsets
    if config.centred:
        offsets = (offsets[0], offsets[1] + 0.01 * (row_mean(h_data, weights) - offsets[1]))
    centre = offsets if config.centred else None
    move = gradient_step(batch, h_data, negative.v, h_model, rate, centre, weights, negative.weights)
    # Hidden biases are pulled to the wanted mean activity.
    if config.penalties.sparsity_target is not None:
        pull = config.penalties.sparsity_cost * (config.penalties.sparsity_target - row_mean(h_data, weights))
        move = move._replace(c=move.c + rate * pull)
    # The parameters after the step, and activations of all particles at these.
    units = _moved_units(rbm, batch, a_data, negative, rate, weights)
    after, d_b = _moved(state._replace(target=target, offsets=offsets), chains, move, units, rate, config)

    acceptance = tf.zeros([chains.level.shape[0] - 1], rbm.W.dtype) if swaps is None else swaps.acceptance
    # 4. The ladder moves, if it is adaptive
    if config.adaptive and swaps is not None:
        flow = observe_flow(state.ladder, chains.level)
        after = after._replace(ladder=adapt(flow, acceptance))
    if not config.track or swaps is None:
        zeros = [tf.zeros([], tf.float64)] * (len(Observed._fields) - 1)
        return after, Observed._make([*zeros, tf.cast(acceptance, tf.float64)])
    # The closed form of the bias of particles that drove the step (Section 3.2).
    known_bias = tf.zeros([], tf.float64)
    if config.bias == "both" and negative.num_tracked:
        by_zero = (tf.zeros_like(rbm.b), tf.zeros_like(rbm.c))
        share = negative.num_tracked / num_tracked(state, config)
        slopes = own_slopes(rbm.visible, rbm.hidden, negative.v, negative.a, TENSORS)
        phi = tf.concat(slopes, axis=-1) if slopes else None
        bias = reuse_bias(negative.v, h_model, rate, centre or by_zero, phi)
        known_bias = share * tf.cast(bias, tf.float64)
    # 2. and 5.: bridges at theta_t, then the change of log Z to theta_{t+1}
    tracker, observed = tracked(state, after, swaps, d_b, rate, known_bias, config)
    return after._replace(tracker=tracker), observed


def _sampled(state: SMLState, seed: tf.Tensor, config: SMLConfig) -> tuple[Chains, Chains | tuple[()], Swaps | None]:
    """The ladder and the target chains after sampling, and what swaps saw (None if the ladder has nothing to do)."""
    chains = state.chains
    target = state.target
    swaps = None
    # Target chains take turns in the ladder, and are sampled at beta = 1.
    if target and config.method == "tempering":
        chains, target = take_turns(chains, target)
    if target:
        target = moved_target(
            state.rbm, target, steps=config.gibbs_steps, seed=seed, step=state.step, generator=config.generator
        )
    # The ladder: Gibbs sampling at all temperatures, then swaps (Eq. 2).
    if config.track or config.method == "tempering":
        chains = gibbs(
            state.rbm,
            chains,
            state.ladder.beta,
            steps=config.gibbs_steps,
            seed=seed,
            step=state.step,
            generator=config.generator,
        )
        chains, swaps = swap(
            chains, state.ladder.beta, hidden=state.rbm.hidden, seed=seed, step=state.step, generator=config.generator
        )
    return chains, target, swaps


def _negative(
    rbm: RBM,
    chains: Chains,
    target: Chains | tuple[()],
    batch: tf.Tensor,
    weights: tf.Tensor | None,
    seed: tf.Tensor,
    step: tf.Tensor,
    config: SMLConfig,
) -> Negative:
    """The states that drive the gradient downwards, by the method."""
    # CD: chains that start at the minibatch.
    if config.method == "cd":
        start = short_chains(batch, activations(rbm, batch))
        moved = moved_target(rbm, start, steps=config.gibbs_steps, seed=seed, step=step, generator=config.generator)
        return Negative(moved.v[0], moved.a[0], weights=weights)
    # PCD: the target chains alone.
    if config.method == "pcd" and target:
        return Negative(target.v[0], target.a[0])
    # Tempering: the particles at beta = 1 of the ladder, and the target chains.
    v, a = at_target(chains, config.gradient_chains or chains.level.shape[1])
    if target:
        v = tf.concat([v, target.v[0]], axis=0)
        a = tf.concat([a, target.a[0]], axis=0)
    return Negative(v, a, num_tracked=v.shape[0])


def _moved_units(
    rbm: RBM, batch: tf.Tensor, a_data: tf.Tensor, negative: Negative, rate: tf.Tensor, weights: tf.Tensor | None
) -> tuple[Visible, Visible]:
    """Visible and hidden units after the step: those that have parameters of their own move with it."""

    def change(of_data: tf.Tensor, of_model: tf.Tensor) -> tf.Tensor:
        return rate * (row_mean(of_data, weights) - row_mean(of_model, negative.weights))

    visible = rbm.visible
    hidden = rbm.hidden
    if visible.is_learnt:
        visible = visible.moved(change(visible.slopes(batch, TENSORS), visible.slopes(negative.v, TENSORS)), TENSORS)
    # Hidden units are summed out: their slopes are means given the rows.
    if hidden.is_learnt:
        slopes = hidden.mean_slopes(a_data, TENSORS), hidden.mean_slopes(negative.a, TENSORS)
        hidden = hidden.moved(change(*slopes), TENSORS)
    return visible, hidden


def _moved(
    state: SMLState, chains: Chains, move: Step, units: tuple[Visible, Visible], rate: tf.Tensor, config: SMLConfig
) -> tuple[SMLState, tf.Tensor]:
    """The state with parameters after the step, activations of all particles at these; and the change of b."""
    rbm = state.rbm
    kept_share = 1.0 - rate * config.penalties.l2 if config.penalties.l2 else None
    d_W = tf.linalg.matmul(move.left, move.right, transpose_a=True)
    velocity: RBM | tuple[()] = ()
    # With momentum the decay of weights is a part of the step.
    if state.velocity:
        d_W = d_W - rate * config.penalties.l2 * rbm.W if config.penalties.l2 else d_W
        step = zip((state.velocity.W, state.velocity.b, state.velocity.c), (d_W, move.b, move.c), strict=True)
        d_W, d_b, d_c = (config.momentum * last + change for last, change in step)
        new = RBM(rbm.W + d_W, rbm.b + d_b, rbm.c + d_c, *units)
        velocity = state.velocity._replace(W=d_W, b=d_b, c=d_c)
    else:
        d_b = move.b
        W = rbm.W if kept_share is None else kept_share * rbm.W
        new = RBM(W + d_W, rbm.b + move.b, rbm.c + move.c, *units)
    if config.penalties.l1:  # the proximal step of the absolute values
        new = new._replace(W=tf.sign(new.W) * tf.nn.relu(tf.abs(new.W) - rate * config.penalties.l1))

    def follow(particles: Chains) -> Chains:
        if velocity or config.penalties.l1:
            return particles._replace(a=activations(new, particles.v))
        return particles._replace(a=moved_activations(particles, move, rbm, new, kept_share))

    # Activations of all particles follow: the next update starts from them.
    has_ladder = config.track or config.method == "tempering"
    after = state._replace(
        step=state.step + 1,
        rbm=new,
        chains=follow(chains) if has_ladder else chains,
        target=follow(state.target) if state.target else (),
        velocity=velocity,
        average=_averaged(state.average, new, state.step, config) if state.average else (),
    )
    return after, d_b


def _averaged(average: RBM, new: RBM, step: tf.Tensor, config: SMLConfig) -> RBM:
    """The moving average, with the smaller of the decay and (1 + t) / (10 + t) at update t, counted from 0: while there
    are few updates it is of about the last tenth of them. Weights that `l1` holds at 0 are 0 in it, too."""
    weight = tf.maximum(tf.constant(1.0 - config.average, new.W.dtype), 9.0 / (tf.cast(step, new.W.dtype) + 10.0))
    W = average.W + weight * (new.W - average.W)
    return average._replace(
        W=tf.where(new.W == 0, tf.zeros_like(W), W) if config.penalties.l1 else W,
        b=average.b + weight * (new.b - average.b),
        c=average.c + weight * (new.c - average.c),
        visible=tf.nest.map_structure(lambda mean, part: mean + weight * (part - mean), average.visible, new.visible),
        hidden=tf.nest.map_structure(lambda mean, part: mean + weight * (part - mean), average.hidden, new.hidden),
    )


def compiled_updates(
    config: SMLConfig, *, jit_compile: bool = True
) -> Callable[[SMLState, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], tuple[SMLState, Observed]]:
    """A function that runs many updates in one graph: `run(state, data, rows, count, seed)` -> (state, observed).

    `data` [N, n_v] of 0 and 1, best as bool, which uint8 is made at each call; `rows` int32 [K, B], the rows of each
    update's minibatch; `count` int32 [], how many of the K to run (one graph serves a shorter last block); `seed` int32
    [2]. The first axis of all that was observed has K entries, of which `count` are filled.

    Configurations that differ in the learning rate and its schedule alone share what is compiled. With the generator
    "numpy" nothing is.
    """
    # The rate is no part of what is compiled.
    is_plain = config.generator == "numpy"
    updates = None if is_plain else _compiled(without_rate(config), jit_compile)

    def run(
        state: SMLState, data: tf.Tensor, rows: tf.Tensor, count: tf.Tensor, seed: tf.Tensor
    ) -> tuple[SMLState, Observed]:
        rates = learning_rate_at(config, state.step + tf.range(rows.shape[0]), state.rbm.W.dtype)
        if updates is None:
            table = np.asarray(data)
            index = np.asarray(rows)
            noise = np.asarray(seed)
            return plain_updates(config, state, table, index, int(count), noise, rates.numpy())
        return updates(state, data, rows, count, seed, rates)

    return run


@functools.lru_cache(maxsize=32)
def _compiled(config: SMLConfig, jit_compile: bool) -> Callable[..., tuple[SMLState, Observed]]:
    """:func:`compiled_updates` with the rates [K] of the updates as another argument, once for each configuration."""

    def run(
        state: SMLState, data: tf.Tensor, rows: tf.Tensor, count: tf.Tensor, seed: tf.Tensor, rates: tf.Tensor
    ) -> tuple[SMLState, Observed]:
        if data.dtype == tf.uint8:
            data = tf.cast(data, tf.bool)  # a GPU has no kernel that gathers uint8
        size = rows.shape[0]
        num_temps = state.ladder.beta.shape[0]
        # Places for what the updates observe, filled one after the other.
        scalars = tf.zeros([size, len(Observed._fields) - 1], tf.float64)
        swap_rates = tf.zeros([size, num_temps - 1], tf.float64)

        def body(
            i: tf.Tensor, state: SMLState, scalars: tf.Tensor, swap_rates: tf.Tensor
        ) -> tuple[tf.Tensor, SMLState, tf.Tensor, tf.Tensor]:
            batch = tf.cast(tf.gather(data, rows[i]), state.rbm.W.dtype)
            state, observed = sml_update(state, batch, seed=seed, config=config, rate=rates[i])
            is_row = tf.equal(tf.range(size), i)[:, None]  # XLA compiles a scatter for long
            scalars = tf.where(is_row, tf.stack(observed[:-1]), scalars)
            swap_rates = tf.where(is_row, observed.swap_rate, swap_rates)
            return i + 1, state, scalars, swap_rates

        _, state, scalars, swap_rates = tf.while_loop(
            lambda i, *_: i < count, body, (tf.constant(0), state, scalars, swap_rates)
        )
        return state, Observed._make([*tf.unstack(scalars, axis=1), swap_rates])

    return tf.function(run, jit_compile=jit_compile, autograph=False)
