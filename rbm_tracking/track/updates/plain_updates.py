"""Tracked updates in NumPy: :func:`rbm_tracking.track.updates.learning.sml_update` for small models.

A graph of the update takes seconds to trace, and each of its operations some microseconds to start, which small arrays
do not pay back. The steps, their order and the state are those of `learning`; only the noise is another one.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from rbm_tracking.model import plain
from rbm_tracking.model.rbm import RBM
from rbm_tracking.model.visible import Tensor, Visible, own_slopes
from rbm_tracking.track import filtering
from rbm_tracking.track.ladder import adapt, observe_flow
from rbm_tracking.track.plain_tempering import PlainSwaps, gibbs, swap
from rbm_tracking.track.settings import SMLConfig
from rbm_tracking.track.state import SMLState, check_parts
from rbm_tracking.track.tempering import Chains
from rbm_tracking.track.tracking import Observed, filtered, num_tracked

__all__ = ["plain_update", "plain_updates"]

Array = np.ndarray


def plain_updates(
    config: SMLConfig,
    state: SMLState,
    data: Array,
    rows: Array,
    count: int,
    seed: Tensor,
    rates: Array,
    weights: Array | None = None,
) -> tuple[SMLState, Observed]:
    """The first `count` updates with the minibatches `rows` [K, B] of `data` [N, n_v], as `learning.compiled_updates`.

    :param rates: learning rates, [K].
    :param weights: of the rows of each minibatch, [B], with the sum 1; None for 1 / B each.
    """
    check_parts(state, config)
    opened: SMLState = plain.arrays(state)
    observations = []
    # exp may overflow to infinity, of which sums and draws are right
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for i in range(count):
            batch = data[rows[i]].astype(opened.rbm.W.dtype)
            opened, observed = plain_update(
                opened, batch, seed=seed, config=config, rate=float(rates[i]), weights=weights
            )
            observations.append(observed)
    # As of a graph, observations have a place for each row of `rows`.
    padded = observations + observations[-1:] * (len(rows) - count)
    observed = Observed._make(tf.constant(np.stack(values)) for values in zip(*padded, strict=True))
    return tf.nest.map_structure(tf.constant, opened), observed


def plain_update(
    state: SMLState, batch: Array, *, seed: Tensor, config: SMLConfig, rate: float, weights: Array | None = None
) -> tuple[SMLState, Observed]:
    """One update of a state of arrays; arguments as for `learning.sml_update`."""
    rbm = state.rbm
    step = int(state.step)
    rng = plain.noise_of(seed, step)
    scale = np.asarray(rate, rbm.W.dtype)
    chains, target, swaps = _sampled(state, config, rng)

    # The gradient: the data's mean of -dF/dtheta less that of the particles.
    a_data = plain.activations(rbm, batch)
    h_data = plain.hidden_mean(rbm.hidden, a_data)
    v_model, a_model, model_weights, tracked = _negative(rbm, chains, target, swaps, batch, weights, config, rng)
    h_model = plain.hidden_mean(rbm.hidden, a_model)
    of_data = _shares(weights, batch)
    of_model = _shares(model_weights, v_model)
    d_v: Array = of_data @ batch - of_model @ v_model
    d_h: Array = of_data @ h_data - of_model @ h_model
    d_W = (h_data * of_data[:, None]).T @ batch - (h_model * of_model[:, None]).T @ v_model
    offsets = state.offsets
    v_mean = np.zeros_like(rbm.b)
    h_mean = np.zeros_like(rbm.c)
    # Centred: offsets of the layers enter the step of W, and change those of the biases.
    if config.centred:
        v_mean = offsets[0]
        h_mean = offsets[1] + np.float32(0.01) * (of_data @ h_data - offsets[1])
        offsets = (v_mean, h_mean)
        d_W, d_v, d_h = plain.centred(d_W, d_v, d_h, offsets)
    if config.penalties.sparsity_target is not None:
        d_h = d_h + config.penalties.sparsity_cost * (config.penalties.sparsity_target - of_data @ h_data)
    # Units that have parameters of their own, then all parameters after the step.
    units = _moved_units(rbm, (batch, v_model), (a_data, a_model), (of_data, of_model), scale)
    new, velocity = _moved(state, d_W * scale, d_v * scale, d_h * scale, units, rate, config)

    after = state._replace(
        step=np.asarray(step + 1, np.int32),
        rbm=new,
        chains=chains._replace(a=plain.activations(new, chains.v)) if swaps is not None else chains,
        target=target._replace(a=plain.activations(new, target.v)) if target else (),
        offsets=offsets,
        velocity=velocity,
        average=_averaged(state.average, new, step, config) if state.average else (),
    )
    acceptance = np.zeros(len(state.ladder.beta) - 1) if swaps is None else swaps.acceptance
    # The ladder moves, if it is adaptive.
    if config.adaptive and swaps is not None:
        flow = observe_flow(state.ladder, tf.constant(chains.level))
        moved = adapt(flow, tf.constant(acceptance, flow.beta.dtype))
        after = after._replace(ladder=plain.arrays(moved))
    if not config.track or swaps is None:
        return after, Observed._make([*([0.0] * (len(Observed._fields) - 1)), acceptance])
    # The closed form of the bias (Section 3.2), then the filter across the update.
    bias = 0.0
    if config.bias == "both" and tracked:
        unit_slopes = own_slopes(rbm.visible, rbm.hidden, v_model, a_model)
        slopes = np.concatenate(unit_slopes, axis=-1) if unit_slopes else None
        bias = _reuse_bias(v_model - v_mean, h_model - h_mean, rate, slopes) * tracked / num_tracked(state, config)
    return _tracked(state, after, target, swaps, rate, bias, config)


def _shares(weights: Array | None, rows: Array) -> Array:
    """Weights of rows with the sum 1."""
    return np.full(len(rows), 1 / len(rows), rows.dtype) if weights is None else np.asarray(weights, rows.dtype)


def _sampled(
    state: SMLState, config: SMLConfig, rng: np.random.Generator
) -> tuple[Chains, Chains | tuple[()], PlainSwaps | None]:
    """The ladder and the target chains after sampling, and what swaps saw, as `learning._sampled`."""
    rbm = state.rbm
    (v, a, level) = state.chains
    target = state.target
    beta = state.ladder.beta
    # Target chains take turns in the ladder: the first of the queue come in at beta = 1, those from there go to its end
    if target and config.method == "tempering":
        slot = np.argmin(level, axis=0)
        columns = np.arange(level.shape[1])
        queue_v = np.concatenate([target.v[0], v[slot, columns]])
        queue_a = np.concatenate([target.a[0], a[slot, columns]])
        v = v.copy()
        a = a.copy()
        v[slot, columns] = queue_v[: len(columns)]
        a[slot, columns] = queue_a[: len(columns)]
        target = target._replace(v=queue_v[None, len(columns) :], a=queue_a[None, len(columns) :])
    # All of them are sampled at beta = 1.
    if target:
        target_v, target_a = gibbs(
            rbm, target.v, target.a, np.ones((1, 1), beta.dtype), steps=config.gibbs_steps, rng=rng
        )
        target = target._replace(v=target_v, a=target_a)
    swaps = None
    # The ladder: Gibbs sampling at all temperatures, then swaps (Eq. 2).
    if config.track or config.method == "tempering":
        v, a = gibbs(rbm, v, a, beta[level], steps=config.gibbs_steps, rng=rng)
        level, swaps = swap(a, level, beta, rng=rng, hidden=rbm.hidden)
    return Chains(v, a, level), target, swaps


def _negative(
    rbm: RBM,
    chains: Chains,
    target: Chains | tuple[()],
    swaps: PlainSwaps | None,
    batch: Array,
    weights: Array | None,
    config: SMLConfig,
    rng: np.random.Generator,
) -> tuple[Array, Array, Array | None, int]:
    """What drives the gradient downwards: states, their activations and weights; how many of them are tracked."""
    # CD: chains that start at the minibatch.
    if config.method == "cd":
        ones = np.ones(len(batch), batch.dtype)
        v, a = gibbs(rbm, batch, plain.activations(rbm, batch), ones, steps=config.gibbs_steps, rng=rng)
        return v, a, weights, 0
    # PCD: the target chains alone.
    if config.method == "pcd" and target:
        return target.v[0], target.a[0], None, 0
    # Tempering: the particles at beta = 1 of the ladder, and the target chains.
    count = config.gradient_chains or chains.level.shape[1]
    columns = np.arange(count)
    slot = (np.argmin(chains.level, axis=0) if swaps is None else swaps.slot[0])[:count]
    v = chains.v[slot, columns]
    a = chains.a[slot, columns]
    if target:
        v = np.concatenate([v, target.v[0]])
        a = np.concatenate([a, target.a[0]])
    return v, a, None, len(v)


def _moved_units(
    rbm: RBM, v: tuple[Array, Array], a: tuple[Array, Array], shares: tuple[Array, Array], rate: Array
) -> tuple[Visible, Visible]:
    """As `learning._moved_units`, of rows, activations and weights of data and model."""
    visible = rbm.visible
    hidden = rbm.hidden
    if visible.is_learnt:
        visible = visible.moved(rate * (shares[0] @ visible.slopes(v[0]) - shares[1] @ visible.slopes(v[1])))
    if hidden.is_learnt:
        hidden = hidden.moved(rate * (shares[0] @ hidden.mean_slopes(a[0]) - shares[1] @ hidden.mean_slopes(a[1])))
    return visible, hidden


def _moved(
    state: SMLState, d_W: Array, d_b: Array, d_c: Array, units: tuple[Visible, Visible], rate: float, config: SMLConfig
) -> tuple[RBM, RBM | tuple[()]]:
    """The parameters after the step, and the velocity."""
    rbm = state.rbm
    if config.penalties.l2:
        d_W = d_W - np.asarray(rate * config.penalties.l2, rbm.W.dtype) * rbm.W
    # With momentum a part of the last change is made again.
    velocity = state.velocity
    if velocity:
        momentum = np.asarray(config.momentum, rbm.W.dtype)
        d_W, d_b, d_c = (momentum * last + d for last, d in zip(velocity[:3], (d_W, d_b, d_c), strict=True))
        velocity = velocity._replace(W=d_W, b=d_b, c=d_c)
    W = rbm.W + d_W
    if config.penalties.l1:
        W = np.sign(W) * np.maximum(np.abs(W) - np.asarray(rate * config.penalties.l1, W.dtype), 0)
    return RBM(W, rbm.b + d_b, rbm.c + d_c, *units), velocity


def _averaged(average: RBM, new: RBM, step: int, config: SMLConfig) -> RBM:
    """As `learning._averaged`."""
    weight = np.asarray(max(1.0 - config.average, 9.0 / (step + 10.0)), new.W.dtype)
    units = new[3:]
    if any(family.is_learnt for family in units):
        units = tf.nest.map_structure(lambda mean, part: mean + weight * (part - mean), average[3:], units)
    W, b, c = (mean + weight * (part - mean) for mean, part in zip(average[:3], new[:3], strict=True))
    if config.penalties.l1:
        W[new.W == 0] = 0.0
    return RBM(W, b, c, *units)


def _reuse_bias(v: Array, h: Array, rate: float, slopes: Array | None) -> float:
    """As `gradient.reuse_bias`, of centred states."""
    # Inner products of phi = (h v', v, h) for all pairs of particles, in place.
    vv = v @ v.T
    hh = h @ h.T
    gram = vv * hh
    gram += vv
    gram += hh
    if slopes is not None:
        gram += slopes @ slopes.T
    # The trace of Cov(phi) from these.
    count = len(v)
    return float(-rate * (np.trace(gram) - gram.sum(dtype=np.float64) / count) / ((count - 1.0) * count))


def _tracked(
    before: SMLState,
    after: SMLState,
    target: Chains | tuple[()],
    swaps: PlainSwaps,
    rate: float,
    known_bias: float,
    config: SMLConfig,
) -> tuple[SMLState, Observed]:
    """The filter across the update, as `tracking.tracked`; `target` are the target chains before it."""
    rbm = after.rbm
    none = np.zeros(len(rbm.c))
    log_z_last = float(rbm.visible.log_normaliser(rbm.b.astype(np.float64)) + plain.hidden_sum(rbm.hidden, none))
    change = _change(before, after, target, swaps, config)
    tracker, observed = filtered(before.tracker, swaps, change, log_z_last, rate, known_bias, config)
    return after._replace(tracker=tracker), observed


def _change(
    before: SMLState, after: SMLState, target: Chains | tuple[()], swaps: PlainSwaps, config: SMLConfig
) -> filtering.Estimate:
    """O^(dt) at each temperature; at beta = 1 by the target chains, too, if they take turns in the ladder."""
    old = before.rbm
    new = after.rbm
    chains = after.chains
    d_b = new.b - old.b

    def measure(v: Array) -> Array | float:
        return new.visible.log_measure(v) - old.visible.log_measure(v) if new.visible.is_learnt else 0.0

    # log q~_{t+1} - log q~_t of the particles, in the order of temperatures
    log_weights = plain.hidden_sum(new.hidden, chains.a, after.ladder.beta[chains.level]) - swaps.log_q
    log_weights = log_weights + (chains.v @ d_b + measure(chains.v))
    by_level = log_weights[swaps.slot, np.arange(swaps.slot.shape[1])].astype(np.float64)
    change = filtering.log_mean_exp(by_level)
    if not target or not after.target or config.method != "tempering":
        return change
    # The target chains are more particles at beta = 1.
    of_target = plain.hidden_sum(new.hidden, after.target.a) - plain.hidden_sum(old.hidden, target.a)
    of_target = of_target + (target.v @ d_b + measure(target.v))
    top = filtering.log_mean_exp(np.concatenate([by_level[:1], of_target.astype(np.float64)], axis=1))
    return filtering.Estimate(*(np.append(first, rest[1:]) for first, rest in zip(top, change, strict=True)))
