"""Chains at beta = 1 besides the ladder; what momentum, decay, sparsity and averages add to one update."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from rbm_tracking.model.checks import linear_ladder
from rbm_tracking.model.rbm import RBM, activations, initial_rbm
from rbm_tracking.track.settings import SMLConfig
from rbm_tracking.track.state import SMLState, initial_state
from rbm_tracking.track.tempering import Chains
from rbm_tracking.track.updates.learning import sml_update
from rbm_tracking.track.updates.target import at_target, moved_target, short_chains, take_turns
from tests.rbm_tracking.estimators import Settings

N_V, N_H, M, N = 7, 5, 3, 4


@pytest.fixture
def data(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 2, (20, N_V)).astype(np.float64)


def start(data: np.ndarray, seed: tf.Tensor, config: SMLConfig) -> SMLState:
    rbm = initial_rbm(N_H, seed=seed, data=data, weight_scale=0.5, dtype=tf.float64)
    return initial_state(rbm, linear_ladder(M), N, seed=seed, data=data, config=config)


def one_update(data: np.ndarray, seed: tf.Tensor, state: SMLState | None = None, **options: Any) -> SMLState:
    config = SMLConfig.paper(learning_rate=0.5, **options)
    state = start(data, seed, config) if state is None else state
    return sml_update(state, tf.constant(data), seed=seed, config=config)[0]


def targets(state: SMLState) -> Chains:
    assert isinstance(state.target, Chains)
    return state.target


def test_target_chains_take_turns_in_the_ladder(rng: np.random.Generator) -> None:
    """A permutation: the ladder gets the first of the queue, and after (C + N) / N turns all have been in it."""
    count, number = 6, np.arange(M * N + 6, dtype=np.float64)
    level = np.stack([rng.permutation(M) for _ in range(N)], axis=1)
    inside, queue = number[: M * N].reshape(M, N, 1), number[M * N :].reshape(1, count, 1)
    chains = Chains(tf.constant(inside), tf.constant(inside), tf.constant(level, tf.int32))
    target = Chains(tf.constant(queue), tf.constant(queue), tf.zeros([1, count], tf.int32))
    seen = set(inside[level == 0].ravel())
    for _ in range(2):
        queue_before = target.v.numpy().ravel()
        chains, target = take_turns(chains, target)
        assert sorted([*chains.v.numpy().ravel(), *target.v.numpy().ravel()]) == list(number)
        np.testing.assert_array_equal(at_target(chains, N)[0].numpy().ravel(), queue_before[:N])
        np.testing.assert_array_equal(chains.v.numpy()[level > 0], inside[level > 0])
        np.testing.assert_array_equal(chains.v, chains.a)
        seen |= set(chains.v.numpy()[level == 0].ravel())
    assert seen >= set(number[M * N :])


def test_all_particles_at_beta_one_drive_the_gradient(data: np.ndarray, seed: tf.Tensor) -> None:
    after = one_update(data, seed, target_chains=9)
    before = start(data, seed, SMLConfig.paper(target_chains=9))
    model = np.concatenate([at_target(after.chains, N)[0].numpy(), targets(after).v[0].numpy()])
    assert model.shape == (N + 9, N_V)
    np.testing.assert_allclose(after.rbm.b - before.rbm.b, 0.5 * (data.mean(0) - model.mean(0)), atol=1e-12)


def test_pcd_keeps_its_chains_and_cd_begins_at_the_data(data: np.ndarray, seed: tf.Tensor) -> None:
    before = start(data, seed, SMLConfig.paper(target_chains=9))
    pcd = one_update(data, seed, method="pcd", target_chains=9)
    change = 0.5 * (data.mean(0) - targets(pcd).v[0].numpy().mean(0))
    np.testing.assert_allclose(pcd.rbm.b - before.rbm.b, change, atol=1e-12)
    untracked = one_update(data, seed, method="pcd", target_chains=9, track=False)
    for tracked_part, part in zip(pcd.rbm[:3], untracked.rbm[:3], strict=True):
        np.testing.assert_array_equal(tracked_part, part)
    np.testing.assert_array_equal(untracked.chains.v, before.chains.v)  # there is no use for the ladder

    cd = one_update(data, seed, method="cd", gibbs_steps=2)
    v = tf.constant(data)
    chains = short_chains(v, activations(before.rbm, v))
    moved = moved_target(before.rbm, chains, steps=2, seed=seed, step=tf.constant(0)).v[0].numpy()
    np.testing.assert_allclose(cd.rbm.b - before.rbm.b, 0.5 * (data.mean(0) - moved.mean(0)), atol=1e-12)


def test_decay_sparsity_and_momentum_have_their_steps(data: np.ndarray, seed: tf.Tensor) -> None:
    plain, before = one_update(data, seed, target_chains=9), start(data, seed, SMLConfig.paper(target_chains=9))
    decayed = one_update(data, seed, target_chains=9, l2=0.1)
    np.testing.assert_allclose(decayed.rbm.W, plain.rbm.W - 0.5 * 0.1 * before.rbm.W, atol=1e-12)
    np.testing.assert_allclose(decayed.rbm.c, plain.rbm.c, atol=1e-12)

    sparse = one_update(data, seed, target_chains=9, sparsity_target=0.1, sparsity_cost=2.0)
    active = 1 / (1 + np.exp(-(data @ before.rbm.W.numpy().T + before.rbm.c.numpy())))
    np.testing.assert_allclose(sparse.rbm.c, plain.rbm.c + 0.5 * 2.0 * (0.1 - active.mean(0)), atol=1e-12)

    options: Settings = {"target_chains": 9, "momentum": 0.8, "l2": 0.1}
    first = one_update(data, seed, **options)
    np.testing.assert_allclose(first.rbm.W, decayed.rbm.W, atol=1e-12)
    second = one_update(data, seed, first, **options)
    still = first._replace(velocity=RBM(*(0 * part for part in first.velocity[:3])))
    alone = one_update(data, seed, still, **options)
    for with_it, without, velocity in zip(second.rbm[:3], alone.rbm[:3], first.velocity[:3], strict=True):
        np.testing.assert_allclose(with_it, without + 0.8 * velocity, atol=1e-12)
    for after in (decayed, second):
        for particles in (after.chains, targets(after)):
            np.testing.assert_allclose(particles.a, activations(after.rbm, particles.v), atol=1e-12)


def test_the_average_begins_with_a_short_memory(data: np.ndarray, seed: tf.Tensor) -> None:
    """Weights of a new value: 9 / (10 + t), until that is less than 1 - average."""
    first = one_update(data, seed, None, average=0.2)
    state, seen = first, [first.rbm.W.numpy()]
    for _ in range(2):
        state = one_update(data, seed, state, average=0.2)
        seen.append(state.rbm.W.numpy())
    assert isinstance(first.average, RBM)
    assert isinstance(state.average, RBM)
    second = (2 * first.average.W + 9 * seen[1]) / 11
    np.testing.assert_allclose(state.average.W, 0.2 * second + 0.8 * seen[2], atol=1e-12)
