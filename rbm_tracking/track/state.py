"""All that training changes: parameters, particles, ladder and tracker; where it starts, and what it says of data."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from rbm_tracking.model.checks import check_rbm
from rbm_tracking.model.random import key_at
from rbm_tracking.model.rbm import RBM, TENSORS, hidden_sum, log_probs_unnormalised, log_z_independent
from rbm_tracking.track.filtering import FilterState, anchor, initial_filter, insert_level, log_mean_exp
from rbm_tracking.track.ladder import Ladder, initial_ladder
from rbm_tracking.track.settings import SMLConfig
from rbm_tracking.track.tempering import Chains, initial_chains

__all__ = ["SMLState", "check_parts", "initial_state", "log_likelihood", "log_likelihoods", "spawn", "with_parts"]

_SITE_TARGET = 1


class SMLState(NamedTuple):
    """All that changes: `step` [], the number of updates; parameters, particles, ladder and tracker; the centring
    `offsets` of visible [n_v] and hidden units [n_h]; and what only some configurations have, () otherwise: the
    `target` chains, [1, C] at beta = 1, the `velocity` of momentum, the `average` of the parameters."""

    step: tf.Tensor
    rbm: RBM
    chains: Chains
    ladder: Ladder
    tracker: FilterState
    offsets: tuple[tf.Tensor, tf.Tensor]
    target: Chains | tuple[()] = ()
    velocity: RBM | tuple[()] = ()
    average: RBM | tuple[()] = ()


def initial_state(
    rbm: RBM,
    beta: ArrayLike,
    num_chains: int,
    *,
    seed: tf.Tensor,
    data: ArrayLike,
    config: SMLConfig = SMLConfig(),
) -> SMLState:
    """The state before the first update.

    p(zeta_0): at small weights log Z is close to that at beta = 0; the guess takes the mean field's first order, and
    its standard deviation is 1 nat. It is forgotten within a hundred updates.

    :param beta: the ladder, [M], from 1 to 0.
    :param num_chains: N particles at each temperature.
    :param seed: int32 [2].
    :param data: [N, n_v]; its means are the offsets of the centred gradient.
    :param config: of the updates to come; target chains, momentum and averages have parts in the state.
    :raises ValueError: if the parameters or the ladder are not as they should be.
    """
    check_rbm(rbm)
    if num_chains < 2:
        raise ValueError(f"num_chains must be at least 2, so that variances can be estimated, got {num_chains}.")
    ladder = initial_ladder(beta, num_chains, rbm.W.dtype)
    num_temps = ladder.beta.shape[0]
    chains = initial_chains(rbm, num_temps, num_chains, seed=seed)
    mean = tf.constant(np.mean(np.asarray(data), axis=0, dtype=np.float64), rbm.W.dtype)
    # The guess of log Z at each beta: the first order of the mean field.
    hidden = tf.linalg.matvec(rbm.W, rbm.visible.mean(rbm.b, TENSORS)) + rbm.c
    at_beta = hidden_sum(rbm.hidden, tf.tile(hidden[None], [num_temps, 1]), ladder.beta)
    log_z = rbm.visible.log_normaliser(tf.cast(rbm.b, tf.float64), TENSORS) + tf.cast(at_beta, tf.float64)
    log_z_last = float(log_z_independent(rbm.b, rbm.c.shape[0], rbm.visible, rbm.hidden))
    tracker = _tensors(anchor(initial_filter(log_z.numpy(), expected_ess=num_chains / 2), log_z_last))
    # Hidden offsets start at the means without any input.
    half = rbm.hidden.mean(tf.zeros_like(rbm.c), TENSORS)
    return with_parts(SMLState(tf.constant(0), rbm, chains, ladder, tracker, (mean, half)), config, seed)


def with_parts(state: SMLState, config: SMLConfig, seed: tf.Tensor) -> SMLState:
    """The state with new target chains, velocity and average, as the configuration asks for them.

    :param seed: int32 [2], of the chains.
    """
    rbm = state.rbm
    count = config.target_chains
    target = initial_chains(rbm, 1, count, seed=key_at(seed, tf.constant(0), _SITE_TARGET)) if count else ()
    # Momentum starts at rest, the average at the parameters.
    still = rbm._replace(W=tf.zeros_like(rbm.W), b=tf.zeros_like(rbm.b), c=tf.zeros_like(rbm.c))
    velocity = still if config.momentum else ()
    average = rbm if config.average else ()
    return state._replace(target=target, velocity=velocity, average=average)


def check_parts(state: SMLState, config: SMLConfig) -> None:
    """Check that the state has the parts and the chains that the configuration needs.

    :raises ValueError: naming what is missing or too much.
    """
    # What the state has, and what the configuration asks for.
    parts = {
        "target_chains": state.target.level.shape[1] if state.target else 0,
        "momentum": bool(state.velocity),
        "average": bool(state.average),
    }
    config_parts = {
        "target_chains": config.target_chains,
        "momentum": config.momentum > 0,
        "average": config.average > 0,
    }
    for name, value in config_parts.items():
        if parts[name] != value:
            raise ValueError(
                f"{name} of the configuration and of the state must be the same, got {value} and {parts[name]}; make "
                "the state by initial_state(..., config=config)."
            )
    num_chains = state.chains.level.shape[1]
    if (config.gradient_chains or 0) > num_chains:
        raise ValueError(
            f"gradient_chains must be some of the {num_chains} chains of the state, got {config.gradient_chains}."
        )


def spawn(state: SMLState, level: int) -> SMLState:
    """Add a temperature between `level` and `level` + 1 (chain spawning of SML-APT).

    Its particles start as copies of the hotter level's, its log Z as what these give by importance sampling, with a
    variance of 1 nat^2: bridges on both sides settle it.

    :raises ValueError: if there is no such pair of levels.
    """
    chains = state.chains
    ladder = state.ladder
    tracker = state.tracker
    num_temps, num_chains = chains.level.shape
    if not 0 <= level < num_temps - 1:
        raise ValueError(f"level must be in 0 ... {num_temps - 2}, got {level}.")
    # Particles of the hotter level are copied to the middle temperature.
    hot = tf.stack([tf.argmax(tf.equal(chains.level, level + 1), output_type=tf.int32), tf.range(num_chains)], axis=1)
    v = tf.gather_nd(chains.v, hot)
    a = tf.gather_nd(chains.a, hot)
    beta = 0.5 * (ladder.beta[level] + ladder.beta[level + 1])
    hidden = state.rbm.hidden
    # log Z there, by importance sampling from the hotter level
    change = log_mean_exp((hidden_sum(hidden, a, beta) - hidden_sum(hidden, a, ladder.beta[level + 1]))[None])
    log_z = float(tracker.mean[level + 1] + change.value[0])
    # Colder levels keep their numbers, hotter ones move by one.
    raised = tf.where(chains.level > level, chains.level + 1, chains.level)
    new_level = tf.fill([1, num_chains], tf.constant(level + 1))
    new_chains = Chains(
        tf.concat([chains.v, v[None]], 0), tf.concat([chains.a, a[None]], 0), tf.concat([raised, new_level], 0)
    )

    def with_middle(values: tf.Tensor) -> tf.Tensor:
        middle = 0.5 * (values[level] + values[level + 1])
        return tf.concat([values[: level + 1], [middle], values[level + 1 :]], axis=0)

    # Counts of the new level are between those of its neighbours, and its particles have no labels.
    zeros = tf.zeros([1, num_chains], tf.int32)
    new_ladder = Ladder(
        beta=with_middle(ladder.beta),
        up=with_middle(ladder.up),
        down=with_middle(ladder.down),
        label=tf.concat([ladder.label, zeros], axis=0),
        age=tf.concat([ladder.age, zeros], axis=0),
        return_time=ladder.return_time,
    )
    grown = _tensors(insert_level(tracker, level, log_z, 1.0))
    return state._replace(chains=new_chains, ladder=new_ladder, tracker=grown)


def _tensors(tracker: FilterState) -> FilterState:
    moved: FilterState = tf.nest.map_structure(tf.constant, tracker)
    return moved


def log_likelihoods(state: SMLState, data: ArrayLike, chunk: int = 5000) -> NDArray[np.float64]:
    """log p(v) of each of the binary rows [N, n_v] with the tracked log Z, nats, [N].

    None can be positive: if one is, log Z is too low by at least as much, whatever the tracker says.
    """
    return log_probs_unnormalised(state.rbm, data, chunk) - float(state.tracker.mean[0])


def log_likelihood(state: SMLState, data: ArrayLike, chunk: int = 5000) -> float:
    """Mean of :func:`log_likelihoods`, nats."""
    return float(log_likelihoods(state, data, chunk).mean())
