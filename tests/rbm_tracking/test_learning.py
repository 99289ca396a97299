"""rbm_tracking.track.updates.learning: gradient, bias of reused particles, tracking against exact log Z, resuming bit
for bit."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from rbm_tracking.model.checks import linear_ladder
from rbm_tracking.model.exact import log_z_exact
from rbm_tracking.model.rbm import RBM, activations, initial_rbm, log_prob_unnormalised
from rbm_tracking.track.updates.learning import (
    SMLConfig,
    SMLState,
    compiled_updates,
    gradient_step,
    initial_state,
    log_likelihood,
    log_likelihoods,
    reuse_bias,
    sml_update,
    spawn,
)
from tests.rbm_tracking import oracles
from tests.rbm_tracking.estimators import Settings
from tests.statistical import assert_mean_close

N_V, N_H, M, C = 12, 6, 3, 10


@pytest.fixture
def data(rng: np.random.Generator) -> np.ndarray:
    """Two patterns with noise."""
    patterns = rng.integers(0, 2, (2, N_V))
    rows = patterns[rng.integers(0, 2, 300)]
    return (rows ^ (rng.uniform(size=rows.shape) < 0.15)).astype(np.uint8)


def start(data: np.ndarray, seed: tf.Tensor, dtype: tf.DType = tf.float64, num_temps: int = M) -> SMLState:
    rbm = initial_rbm(N_H, seed=seed, data=data, weight_scale=0.1, dtype=dtype)
    return initial_state(rbm, linear_ladder(num_temps), C, seed=seed, data=data, config=SMLConfig.paper())


def rows_for(rng: np.random.Generator, updates: int) -> tf.Tensor:
    return tf.constant(rng.integers(0, 300, (updates, 20)), tf.int32)


def leaves(state: SMLState) -> list[np.ndarray]:
    return [leaf.numpy() for leaf in tf.nest.flatten(state)]


CONFIGS: dict[str, Settings] = {
    "learned bias": {"bias": "learned"},
    "default": {},
    "adaptive": {"adaptive": True},
    "k = 3": {"gibbs_steps": 3},
    "centred": {"centred": True},
    "tracking chains": {"gradient_chains": 5},
    "hash": {"generator": "hash"},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_tracked_log_z_is_the_exact_one(name: str, data: np.ndarray, seed: tf.Tensor, rng: np.random.Generator) -> None:
    """After 600 updates the tracked value is within 5 of its standard deviations."""
    config = SMLConfig.paper(learning_rate=0.05, **CONFIGS[name])
    state = start(data, seed)
    likelihood = log_likelihood(state, data)
    run = compiled_updates(config, jit_compile=False)
    for _ in range(3):
        state, observed = run(state, tf.constant(data), rows_for(rng, 200), tf.constant(200), seed)
    exact = log_z_exact(state.rbm)
    assert abs(float(observed.log_z[-1]) - exact) < 5 * float(observed.log_z_std[-1]) + 0.02
    assert float(observed.log_z_std[-1]) < 0.5
    assert float(observed.bias[-1]) < 0
    assert log_likelihood(state, data) > likelihood + 0.2
    assert float(observed.log_z[-1]) == float(state.tracker.mean[0])
    mean_log_q = np.mean(log_prob_unnormalised(state.rbm, tf.constant(data, tf.float64)))
    assert log_likelihood(state, data, chunk=7) == pytest.approx(mean_log_q - float(state.tracker.mean[0]))


def test_a_log_z_that_is_too_low_shows_in_the_rows(data: np.ndarray, seed: tf.Tensor) -> None:
    state = start(data, seed)
    each = log_likelihoods(state, data, chunk=100)
    assert each.shape == (300,)
    assert each.max() < 0
    tracker = state.tracker._replace(mean=state.tracker.mean - 30.0)
    np.testing.assert_allclose(log_likelihoods(state._replace(tracker=tracker), data), each + 30.0)


def test_stopping_and_resuming_gives_the_same_bits(data: np.ndarray, seed: tf.Tensor, rng: np.random.Generator) -> None:
    rows, source = rows_for(rng, 10), tf.constant(data)
    run = compiled_updates(SMLConfig.paper(learning_rate=0.05, adaptive=True, centred=True))
    whole, _ = run(start(data, seed, tf.float32), source, rows, tf.constant(10), seed)
    part, first = run(start(data, seed, tf.float32), source, rows, tf.constant(4), seed)
    assert not np.any(first.log_z[4:])
    rest = tf.concat([rows[4:], rows[:4]], axis=0)
    resumed, _ = run(part, source, rest, tf.constant(6), seed)
    for a, b in zip(leaves(whole), leaves(resumed), strict=True):
        np.testing.assert_array_equal(a, b)
    assert int(resumed.step) == 10


@pytest.mark.slow
def test_xla_changes_nothing_but_rounding(data: np.ndarray, seed: tf.Tensor, rng: np.random.Generator) -> None:
    rows, source = rows_for(rng, 8), tf.constant(data)
    results = [
        compiled_updates(SMLConfig.paper(learning_rate=0.05, adaptive=True), jit_compile=jit)(
            start(data, seed), source, rows, tf.constant(8), seed
        )
        for jit in (True, False)
    ]
    for a, b in zip(leaves(results[0][0]), leaves(results[1][0]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_untracked_training_makes_the_same_rbm(data: np.ndarray, seed: tf.Tensor, rng: np.random.Generator) -> None:
    rows, source = rows_for(rng, 8), tf.constant(data)
    tracked, plain = (
        compiled_updates(SMLConfig.paper(track=track), jit_compile=False)(
            start(data, seed), source, rows, tf.constant(8), seed
        )[0]
        for track in (True, False)
    )
    for a, b in zip(tracked.rbm[:3], plain.rbm[:3], strict=True):
        np.testing.assert_array_equal(a, b)


def step_of(state: SMLState, data: np.ndarray, seed: tf.Tensor, **settings: Any) -> tuple[RBM, SMLState]:
    """Change of the parameters by one update with learning rate 1."""
    config = SMLConfig.paper(learning_rate=1.0, **settings)
    after, _ = sml_update(state, tf.constant(data, tf.float64), seed=seed, config=config)
    return RBM(*(new - old for new, old in zip(after.rbm[:3], state.rbm[:3], strict=True))), after


def test_gradient_is_that_of_the_particles_at_beta_one(data: np.ndarray, seed: tf.Tensor) -> None:
    state = start(data, seed)
    change, after = step_of(state, data[:20], seed)
    model = tf.boolean_mask(after.chains.v, tf.equal(after.chains.level, 0)).numpy()
    assert model.shape == (C, N_V)
    W, _, c = (value.numpy() for value in state.rbm[:3])
    parts = []
    for v in (data[:20].astype(float), model):
        h = 1 / (1 + np.exp(-(v @ W.T + c)))
        parts.append((h.T @ v / len(v), v.mean(axis=0), h.mean(axis=0)))
    for got, plus, minus in zip(change[:3], *parts, strict=True):
        np.testing.assert_allclose(got, plus - minus, atol=1e-12)


def test_particles_kept_for_tracking_do_not_drive_the_gradient(data: np.ndarray, seed: tf.Tensor) -> None:
    state = start(data, seed)
    few, after = step_of(state, data[:20], seed, gradient_chains=4)
    at_one = tf.equal(after.chains.level, 0).numpy()
    model = np.array([after.chains.v.numpy()[at_one[:, n], n][0] for n in range(4)])
    np.testing.assert_allclose(few.b, data[:20].mean(axis=0) - model.mean(axis=0), atol=1e-12)


def test_centred_gradient_does_not_depend_on_the_coding(data: np.ndarray, seed: tf.Tensor) -> None:
    """Flipping some pixels, v -> 1 - v, in data and parameters gives the same model after a step."""
    state = start(data, seed)
    flip = np.arange(N_V) % 3 == 0
    sign = np.where(flip, -1.0, 1.0)
    W, b, c = (value.numpy() for value in state.rbm[:3])
    # The same model in the other coding
    flipped_rbm = RBM(*map(tf.constant, (W * sign, b * sign, c + W[:, flip].sum(axis=1))))
    v = tf.where(tf.constant(flip), 1.0 - state.chains.v, state.chains.v)
    offsets = (tf.where(tf.constant(flip), 1.0 - state.offsets[0], state.offsets[0]), state.offsets[1])
    flipped = state._replace(rbm=flipped_rbm, chains=state.chains._replace(v=v), offsets=offsets)
    flipped_data = np.where(flip, 1 - data, data)

    def ascend(s: SMLState, rows: np.ndarray, is_centred: bool) -> RBM:
        x, y = tf.constant(rows[:20], tf.float64), s.chains.v[0]
        h = [tf.sigmoid(tf.linalg.matmul(u, s.rbm.W, transpose_b=True) + s.rbm.c) for u in (x, y)]
        rate = tf.constant(0.5, tf.float64)
        move = gradient_step(x, h[0], y, h[1], rate, s.offsets if is_centred else None)
        d_W = tf.linalg.matmul(move.left, move.right, transpose_a=True)
        return RBM(s.rbm.W + d_W, s.rbm.b + move.b, s.rbm.c + move.c)

    # A step in either coding, taken back to the first one
    for is_centred in (True, False):
        plain, other = ascend(state, data, is_centred), ascend(flipped, flipped_data, is_centred)
        back = other.W.numpy() * sign
        assert np.allclose(plain.W, back, atol=1e-12) == is_centred
        shifted = other.c.numpy() + other.W.numpy()[:, flip].sum(axis=1)
        assert np.allclose(plain.c, shifted, atol=1e-12) == is_centred
    np.testing.assert_allclose(ascend(state, data, True).b * sign, ascend(flipped, flipped_data, True).b, atol=1e-12)


@pytest.mark.parametrize("is_centred", [False, True])
def test_activations_follow_a_step_either_way(rng: np.random.Generator, seed: tf.Tensor, is_centred: bool) -> None:
    """For many units they are updated by the step's factors, for few computed anew: the same numbers."""
    rows = rng.integers(0, 2, (200, 70)).astype(np.uint8)
    rbm = initial_rbm(60, seed=seed, data=rows, dtype=tf.float64)
    state = initial_state(rbm, linear_ladder(3), 10, seed=seed, data=rows, config=SMLConfig.paper())
    config = SMLConfig.paper(learning_rate=0.5, centred=is_centred)
    for size in (4, 200):  # 14 and 210 rows of factors
        after, _ = sml_update(state, tf.constant(rows[:size], tf.float64), seed=seed, config=config)
        np.testing.assert_allclose(after.chains.a, activations(after.rbm, after.chains.v), atol=1e-11)


def test_bias_of_reused_particles_has_its_closed_form(rng: np.random.Generator) -> None:
    """Over many draws of the particles, O^(dt) at beta = 1 is off by what reuse_bias says on average."""
    parameters = oracles.random_rbm(rng, 3, 4, 0.7)
    rate, count, repetitions = 0.02, 6, 40_000
    W, b, c = parameters
    v = oracles.sample_visible(rng, parameters, repetitions * count).reshape(repetitions, count, 4)
    h = 1 / (1 + np.exp(-(v @ W.T + c)))
    # Steps of the gradient by each draw of the particles
    target = oracles.moments(parameters)  # the data's side of the gradient is the model's own mean
    d_W = rate * (target.hv - np.einsum("rnh,rnv->rhv", h, v) / count)
    d_b, d_c = rate * (target.v - v.mean(axis=1)), rate * (target.h - h.mean(axis=1))

    def log_q(W: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        return np.einsum("rnv,rv->rn", v, b) + np.logaddexp(0, np.einsum("rnv,rhv->rnh", v, W) + c[:, None]).sum(-1)

    # O^(dt) by the particles that drove each step
    ones = np.ones((repetitions, 1))
    old = log_q(np.broadcast_to(W, d_W.shape), ones * b, ones * c)
    change = np.log(np.mean(np.exp(log_q(W + d_W, b + d_b, c + d_c) - old), axis=1))
    few = 400  # exact changes are slow, and their mean is nearly known: sample them
    exact = np.array([oracles.log_z((W + d_W[r], b + d_b[r], c + d_c[r])) for r in range(few)])
    truth = exact - oracles.log_z(parameters)
    predicted = np.mean(
        [
            float(
                reuse_bias(
                    tf.constant(v[r]),
                    tf.constant(h[r]),
                    tf.constant(rate, tf.float64),
                    (tf.zeros(4, tf.float64), tf.zeros(3, tf.float64)),
                )
            )
            for r in range(few)
        ]
    )
    # Its mean error is what the closed form says
    measured = change[:few] - truth
    assert predicted < -0.001
    assert_mean_close(measured, predicted, min_detectable=abs(predicted))
    linear = np.sum(d_b * (v.mean(axis=1) - target.v), axis=1)  # the part of b, of all repetitions, has a closed form
    spread = np.sum(target.v * (1 - target.v))
    assert_mean_close(linear, -rate * spread / count, min_detectable=0.1 * rate * spread / count)


def test_a_spawned_temperature_is_tracked(data: np.ndarray, seed: tf.Tensor, rng: np.random.Generator) -> None:
    run = compiled_updates(SMLConfig.paper(learning_rate=0.02, adaptive=True), jit_compile=False)
    state, _ = run(start(data, seed), tf.constant(data), rows_for(rng, 200), tf.constant(200), seed)
    grown = spawn(state, 1)
    beta = grown.ladder.beta.numpy()
    assert len(beta) == M + 1
    assert beta[2] == pytest.approx(0.5 * (state.ladder.beta[1] + state.ladder.beta[2]))
    assert sorted(grown.chains.level.numpy()[:, 0]) == list(range(M + 1))
    grown, observed = run(grown, tf.constant(data), rows_for(rng, 200), tf.constant(200), seed)
    for i, b in enumerate(grown.ladder.beta.numpy()):
        exact = log_z_exact(grown.rbm, float(b))
        assert abs(float(grown.tracker.mean[i]) - exact) < 5 * float(np.sqrt(grown.tracker.cov[i, i])) + 0.02
    assert observed.swap_rate.shape == [200, M]
    with pytest.raises(ValueError, match=r"level must be in 0 \.\.\. 2, got 4"):
        spawn(grown, 4)


def test_bad_starts_are_refused(data: np.ndarray, seed: tf.Tensor) -> None:
    rbm = initial_rbm(N_H, seed=seed, data=data)
    with pytest.raises(ValueError, match="num_chains must be at least 2"):
        initial_state(rbm, linear_ladder(3), 1, seed=seed, data=data, config=SMLConfig.paper())
    with pytest.raises(ValueError, match="must go from 1"):
        initial_state(rbm, [1.0, 0.5], 4, seed=seed, data=data, config=SMLConfig.paper())
    broken = rbm._replace(W=rbm.W * np.nan)
    with pytest.raises(ValueError, match="the RBM's W must be finite"):
        initial_state(broken, linear_ladder(3), 4, seed=seed, data=data, config=SMLConfig.paper())
