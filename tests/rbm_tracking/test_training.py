"""The trainer makes the updates of `learning`, keeps all that changes, and says when training has diverged."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from rbm_tracking.model.checks import linear_ladder
from rbm_tracking.model.rbm import RBM, initial_rbm
from rbm_tracking.track.updates.learning import Observed, SMLConfig, SMLState, compiled_updates, initial_state, spawn
from rbm_tracking.use.training import MAX_BLOCK, Trainer, not_finite

N_V, N_H, M, C = 10, 4, 3, 6


@pytest.fixture
def data(rng: np.random.Generator) -> np.ndarray:
    return (rng.uniform(size=(100, N_V)) < rng.uniform(size=N_V)).astype(np.uint8)


def start(data: np.ndarray, seed: tf.Tensor, num_temps: int = M) -> SMLState:
    rbm = initial_rbm(N_H, seed=seed, data=data)
    return initial_state(rbm, linear_ladder(num_temps), C, seed=seed, data=data, config=SMLConfig.paper())


def make(state: SMLState, spawn_up_to: int = 0, **config: Any) -> Trainer:
    return Trainer(state, SMLConfig.paper(**config), spawn_up_to=spawn_up_to, jit_compile=False)


def assert_same(one: SMLState, other: SMLState) -> None:
    for a, b in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True):
        np.testing.assert_array_equal(a, b)


def test_advance_makes_the_updates_of_its_minibatches(
    data: np.ndarray, seed: tf.Tensor, rng: np.random.Generator
) -> None:
    rows, state = rng.integers(0, 100, (11, 20)), start(data, seed)
    run = compiled_updates(SMLConfig.paper(), jit_compile=False)
    whole, observed = run(state, tf.constant(data), tf.constant(rows, tf.int32), tf.constant(11), seed)
    trainer = make(state)
    assert trainer.flags == 0
    first, second = trainer.advance(data, rows[:7], seed), trainer.advance(tf.constant(data), rows[7:], seed)
    for values, a, b in zip(observed, first, second, strict=True):
        np.testing.assert_array_equal(values, np.concatenate([a, b]))
    assert_same(trainer.state, whole)
    assert trainer.observed is second
    assert trainer.flags == int(observed.flags[-1])
    saved = trainer.saved()
    assert (saved.log_z, saved.log_z_std) == (float(observed.log_z[-1]), float(observed.log_z_std[-1]))
    assert saved.step == 11
    np.testing.assert_array_equal(saved.rbm.W, whole.rbm.W)
    np.testing.assert_array_equal(saved.beta, linear_ladder(M).astype(np.float32))


def test_swap_rates_are_means_since_they_were_asked_for(
    data: np.ndarray, seed: tf.Tensor, rng: np.random.Generator
) -> None:
    trainer = make(start(data, seed))
    assert trainer.mean_swap_rates() is None
    seen = [trainer.advance(data, rng.integers(0, 100, (k, 20)), seed).swap_rate for k in (3, 4)]
    np.testing.assert_allclose(trainer.mean_swap_rates(), np.concatenate(seen).mean(axis=0), rtol=1e-12)  # type: ignore[arg-type]
    assert trainer.mean_swap_rates() is None


def test_the_store_holds_all_that_changes(data: np.ndarray, seed: tf.Tensor, rng: np.random.Generator) -> None:
    """Another trainer with the values of its variables goes on to the same bits, swap rates among them."""
    rows = rng.integers(0, 100, (9, 20))
    one, other = (make(start(data, seed), adaptive=True, centred=True) for _ in range(2))
    one.advance(data, rows[:5], seed)
    for variable, value in zip(other.store.variables, one.store.variables, strict=True):
        variable.assign(value)
    for trainer in (one, other):
        trainer.advance(data, rows[5:], seed)
    assert_same(one.state, other.state)
    np.testing.assert_array_equal(one.mean_swap_rates(), other.mean_swap_rates())  # type: ignore[arg-type]


def test_temperatures_are_added_where_swaps_are_rare(
    data: np.ndarray, seed: tf.Tensor, rng: np.random.Generator
) -> None:
    state = start(data, seed, num_temps=2)
    rare = state.tracker.health._replace(swap_rate=tf.constant([0.01], tf.float64))
    state = state._replace(tracker=state.tracker._replace(health=rare))
    trainer = make(state, spawn_up_to=3)
    trainer.advance(data, rng.integers(0, 100, (1, 20)), seed)
    before = trainer.state
    assert trainer.spawn() == 1
    assert trainer.num_temps == 3
    assert_same(trainer.state, spawn(before, 0))
    assert trainer.mean_swap_rates() is None
    assert trainer.spawn() is None  # there are as many as may be
    trainer.advance(data, rng.integers(0, 100, (2, 20)), seed)
    rates = trainer.mean_swap_rates()
    assert rates is not None
    assert rates.shape == (2,)


def test_temperatures_are_not_added_where_particles_flow(data: np.ndarray, seed: tf.Tensor) -> None:
    state = start(data, seed)
    often = state.tracker.health._replace(swap_rate=tf.constant([0.9, 0.9], tf.float64))
    ladder = state.ladder._replace(return_time=tf.constant(2.0))
    state = state._replace(tracker=state.tracker._replace(health=often), ladder=ladder)
    trainer = make(state, spawn_up_to=9)
    assert trainer.spawn() is None
    assert trainer.num_temps == M


@pytest.mark.parametrize("shape", [(0, 5), (MAX_BLOCK + 1, 5), (5,)])
def test_advance_refuses_what_are_no_minibatches(shape: tuple[int, ...], data: np.ndarray, seed: tf.Tensor) -> None:
    with pytest.raises(ValueError, match=r"rows must be \[K, B\] with K from 1 to 250"):
        make(start(data, seed)).advance(data, np.zeros(shape, int), seed)


@pytest.mark.parametrize("rows", [[[0, 100]], [[-1, 0]], [[0.5, 1.0]]])
def test_rows_that_are_not_there_are_refused(rows: list[list[float]], data: np.ndarray, seed: tf.Tensor) -> None:
    trainer = make(start(data, seed))
    with pytest.raises(ValueError, match="rows must be whole numbers from 0 to 99"):
        trainer.advance(data, rows, seed)
    with pytest.raises(ValueError, match=r"data must have 10 columns, .* got shape \(100, 9\)"):
        trainer.advance(data[:, 1:], [[0]], seed)


def test_divergence_is_an_error_that_says_what_to_do(
    data: np.ndarray, seed: tf.Tensor, rng: np.random.Generator
) -> None:
    trainer = make(start(data, seed), learning_rate=1e38)
    with pytest.raises(FloatingPointError, match=r"finite after update 20.*; lower learning_rate"):
        trainer.advance(data, rng.integers(0, 100, (20, 20)), seed)


def test_what_is_not_finite_is_named() -> None:
    """Parameters that have diverged, and a log Z that is not finite though they are, are two things."""
    fields = dict.fromkeys(Observed._fields, np.zeros(3))
    fine, broken = Observed(**fields), Observed(**{**fields, "log_z": np.array([1.0, np.nan, 2.0])})
    rbm = RBM(tf.ones([2, 3]), tf.zeros([3]), tf.zeros([2]))
    state = initial_state(rbm, [1.0, 0.0], 2, seed=tf.constant([1, 2]), data=np.zeros([4, 3]), config=SMLConfig.paper())
    assert not_finite(state, fine) is None
    assert "log Z is not finite after update 0, though the parameters are" in str(not_finite(state, broken))
    for field in ("W", "b", "c"):
        diverged = state._replace(rbm=rbm._replace(**{field: getattr(rbm, field) * np.inf}))
        assert "parameters are no longer finite after update 0: training has diverged" in str(
            not_finite(diverged, fine)
        )
