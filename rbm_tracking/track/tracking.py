"""The filter across one update of the parameters: bridges of before, the change of log Z by the same particles."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from rbm_tracking.model.rbm import TENSORS, activations, hidden_sum, log_z_independent
from rbm_tracking.model.visible import Tensor
from rbm_tracking.track.filtering import (
    BIAS_DRIFT,
    Estimate,
    FilterState,
    anchor,
    bridge,
    health_flags,
    inflation,
    lag,
    log_mean_exp,
    log_z_std,
    ops_of,
    predict,
    update,
)
from rbm_tracking.track.plain_tempering import PlainSwaps
from rbm_tracking.track.settings import SMLConfig
from rbm_tracking.track.state import SMLState
from rbm_tracking.track.tempering import Swaps, at_level

__all__ = ["Observed", "filtered", "num_tracked", "tracked"]


class Observed(NamedTuple):
    """What one update saw; log Z and its standard deviation are those of the parameters after the update. In nats.

    `log_z`, `log_z_std`, `bias` (b_t, learned and closed form together), `change` (O^(dt) at beta = 1), `bridge_sum`
    (zeta_M minus the sum of O^(dbeta): log Z by bridges alone), `nis`, `inflation`, `ess`, `lag` and `flags` (as in
    :mod:`rbm_tracking.track.filtering`): []; `swap_rate` [M-1].
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


def num_tracked(state: SMLState, config: SMLConfig) -> int:
    """How many particles at beta = 1 tell the change of log Z."""
    more = state.target.level.shape[1] if state.target and config.method == "tempering" else 0
    return int(state.chains.level.shape[1] + more)


def tracked(
    before: SMLState,
    after: SMLState,
    swaps: Swaps,
    d_b: tf.Tensor,
    rate: tf.Tensor,
    known_bias: tf.Tensor,
    config: SMLConfig,
) -> tuple[FilterState, Observed]:
    """The filter across the update: bridges of before, the change of log Z by the particles, weighted by the step."""
    log_z_last = log_z_independent(after.rbm.b, after.rbm.c.shape[0], after.rbm.visible, after.rbm.hidden)
    change = _change(before, after, swaps, d_b, config)
    return filtered(before.tracker, swaps, change, log_z_last, tf.cast(rate, tf.float64), known_bias, config)


def filtered(
    tracker: FilterState,
    swaps: Swaps | PlainSwaps,
    change: Estimate,
    log_z_last: Tensor,
    rate: Tensor,
    known_bias: Tensor,
    config: SMLConfig,
) -> tuple[FilterState, Observed]:
    """The filter across an update, of arrays or of tensors.

    :param tracker: before the update.
    :param swaps: what the round of swaps before the update saw.
    :param change: O^(dt) at each temperature.
    :param log_z_last: zeta_M at the new parameters.
    :param rate: learning rate of the update.
    :param known_bias: of `change` at beta = 1, in closed form.
    """
    ops = ops_of(tracker.mean)
    factor = inflation(tracker.health)
    # Eq. (4): bridges by the particles that were just swapped are measurements.
    bridges = bridge(swaps.d_upper, swaps.d_lower, tracker.mean[1:-1] - tracker.mean[:-2])
    tracker = update(tracker, bridges, swaps.acceptance, factor=factor)
    # Eq. (3): the change of log Z by the same particles, less the bias that is known.
    first = np.eye(change.value.shape[0])[0]
    unbiased = change._replace(value=change.value - known_bias * first)
    drift = 0.0 if config.bias == "none" else BIAS_DRIFT * rate
    tracker = predict(tracker, unbiased, bias_variance=drift, factor=factor)
    # zeta_M is known at the new parameters
    tracker = anchor(tracker, log_z_last)
    bias = tracker.mean[-1] + known_bias
    observed = Observed(
        log_z=tracker.mean[0],
        log_z_std=log_z_std(tracker),
        bias=bias,
        change=change.value[0],
        bridge_sum=log_z_last - ops.sum(bridges.value),
        nis=tracker.health.nis,
        inflation=factor,
        ess=tracker.health.ess,
        lag=lag(tracker, bias),
        flags=ops.cast(health_flags(tracker, bias), tracker.mean),
        swap_rate=ops.cast(swaps.acceptance, tracker.mean),
    )
    return tracker, observed


def _change(before: SMLState, after: SMLState, swaps: Swaps, d_b: tf.Tensor, config: SMLConfig) -> Estimate:
    """O^(dt) at each temperature; at beta = 1 by the target chains, too, if they take turns in the ladder."""
    chains = after.chains
    old_units = before.rbm.hidden
    new_units = after.rbm.hidden
    # log q~_{t+1} - log q~_t of the particles, in the order of temperatures
    new_log_q = hidden_sum(new_units, chains.a, tf.gather(after.ladder.beta, chains.level))
    log_weights = new_log_q - swaps.log_q + tf.linalg.matvec(chains.v, d_b) + _measure_change(before, after, chains.v)
    by_level = at_level(log_weights, chains.level)
    change = log_mean_exp(by_level)
    if not after.target or config.method != "tempering":
        return change
    # The target chains are more particles at beta = 1.
    old_a = activations(before.rbm, after.target.v)
    of_target = hidden_sum(new_units, after.target.a) - hidden_sum(old_units, old_a)
    of_target += tf.linalg.matvec(after.target.v, d_b)
    of_target += _measure_change(before, after, after.target.v)
    top = log_mean_exp(tf.concat([by_level[:1], of_target], axis=1))
    parts = zip(top, change, strict=True)
    return Estimate(*(tf.concat([of_top, of_all[1:]], axis=0) for of_top, of_all in parts))


def _measure_change(before: SMLState, after: SMLState, v: tf.Tensor) -> tf.Tensor | float:
    """Change of log m(v) at particles v, if training moves the measure: [..., n_v] to [...]."""
    # The families of visible units differ in their own parameters alone.
    old = before.rbm.visible
    new = after.rbm.visible
    return new.log_measure(v, TENSORS) - old.log_measure(v, TENSORS) if new.is_learnt else 0.0
