from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from rbm_tracking.model.exact import log_likelihood_exact
from rbm_tracking.model.rbm import RBM, initial_rbm
from rbm_tracking.use.learning_baselines import cd_step, gibbs_chain, likelihood_gradient, pcd_step
from tests.rbm_tracking import oracles
from tests.statistical import assert_mean_close


def to_rbm(parameters: oracles.Parameters, dtype: str = "float64") -> RBM:
    return RBM(*(tf.constant(value, dtype) for value in parameters))


@pytest.fixture
def parameters(rng: np.random.Generator) -> oracles.Parameters:
    return oracles.random_rbm(rng, 3, 4, scale=0.8)


@pytest.fixture
def data(rng: np.random.Generator) -> np.ndarray:
    return (rng.random((20, 4)) < 0.5).astype(np.float64)


def difference(new: RBM, old: RBM) -> list[np.ndarray]:
    return [after.numpy() - before.numpy() for after, before in zip(new[:3], old[:3], strict=True)]


def test_gradient_is_exact_if_the_states_are_those_of_the_model(
    parameters: oracles.Parameters, data: np.ndarray
) -> None:
    """Every state of the model, as often as its probability says: weights that are multiples of 2^-20."""
    counts = np.round(oracles.visible_distribution(parameters) * 2**20).astype(int)
    v = oracles.binary_vectors(4)
    rbm = to_rbm(parameters)
    got = likelihood_gradient(rbm, tf.constant(data), tf.constant(np.repeat(v, counts, axis=0)))
    for estimate, exact in zip(got[:3], oracles.likelihood_gradient(parameters, data), strict=True):
        np.testing.assert_allclose(estimate, exact, atol=16 * 2.0**-20)


def test_gibbs_chain_moves_as_the_table_says(parameters: oracles.Parameters, seed: tf.Tensor) -> None:
    """The distribution after two rounds from one state, against the second power of the transition matrix."""
    count = 40_000
    start = np.tile([1.0, 0.0, 1.0, 1.0], (count, 1))
    for generator in ("threefry", "hash"):
        v = gibbs_chain(to_rbm(parameters), tf.constant(start), seed, k=2, generator=generator).numpy()
        expected = np.linalg.matrix_power(oracles.gibbs_matrix(parameters), 2)[oracles.state_index(start[0])]
        is_state = oracles.state_index(v)[:, None] == np.arange(16)
        assert_mean_close(is_state[:, expected > 1e-3], expected[expected > 1e-3], min_detectable=0.02)


def test_cd_step_has_the_mean_of_its_short_chain(
    parameters: oracles.Parameters, data: np.ndarray, seed: tf.Tensor
) -> None:
    """Each row of the minibatch starts one chain; the expected states follow from the transition matrix."""
    rbm, repeats = to_rbm(parameters), 500
    v, W, c = oracles.binary_vectors(4), parameters.W, parameters.c
    moved = np.linalg.matrix_power(oracles.gibbs_matrix(parameters), 3)[oracles.state_index(data)].mean(axis=0)
    h = [1 / (1 + np.exp(-(x @ W.T + c))) for x in (data, v)]
    expected = [
        h[0].T @ data / len(data) - (moved[:, None] * h[1]).T @ v,
        data.mean(axis=0) - moved @ v,
        h[0].mean(axis=0) - moved @ h[1],
    ]
    step = tf.function(lambda s: cd_step(rbm, tf.constant(data), s, learning_rate=0.5, k=3), autograph=False)
    draws = [difference(step(s), rbm) for s in tf.unstack(tf.random.experimental.stateless_split(seed, repeats))]
    for got, exact in zip(zip(*draws, strict=True), expected, strict=True):
        assert_mean_close(np.stack(got), 0.5 * exact, min_detectable=0.03)


def test_pcd_with_long_chains_has_the_exact_gradient_as_its_mean(
    parameters: oracles.Parameters, data: np.ndarray, seed: tf.Tensor
) -> None:
    """At a fixed model, many chains far from where they began; one large update so that all chains count at once."""
    rbm, chains = to_rbm(parameters), tf.zeros([20_000, 4], tf.float64)
    new, chains = pcd_step(rbm, chains, tf.constant(data), seed, learning_rate=1.0, k=100)
    exact = oracles.likelihood_gradient(parameters, data)
    h = 1 / (1 + np.exp(-(chains.numpy() @ parameters.W.T + parameters.c)))
    assert_mean_close(chains, oracles.moments(parameters).v, min_detectable=0.03)
    assert_mean_close(h[:, :, None] * chains.numpy()[:, None], oracles.moments(parameters).hv, min_detectable=0.03)
    for got, expected in zip(difference(new, rbm), exact, strict=True):
        np.testing.assert_allclose(got, expected, atol=0.03)  # as much as the two assertions above leave


@pytest.mark.parametrize("method", ["cd", "pcd"])
def test_training_climbs_the_likelihood(rng: np.random.Generator, seed: tf.Tensor, method: str) -> None:
    """From independent units to two prototypes with noise; 0.4 nats from the best that is possible."""
    prototypes = np.array([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]])
    data = prototypes[rng.integers(2, size=400)] ^ (rng.random((400, 6)) < 0.05)
    rbm = initial_rbm(4, seed=seed, data=data, weight_scale=0.1)
    batch, chains = tf.constant(data, tf.float32), tf.constant(data[:100], tf.float32)

    @tf.function(autograph=False)
    def step(rbm: RBM, chains: tf.Tensor, s: tf.Tensor) -> tuple[RBM, tf.Tensor]:
        if method == "cd":
            return cd_step(rbm, batch, s, learning_rate=0.2), chains
        return pcd_step(rbm, chains, batch, s, learning_rate=0.2)

    before = log_likelihood_exact(rbm, data).mean()
    for i in range(600):
        rbm, chains = step(rbm, chains, tf.random.fold_in(seed, i))
    after = log_likelihood_exact(rbm, data).mean()
    states, counts = np.unique(oracles.state_index(data), return_counts=True)
    best = (counts / 400 * np.log(counts / 400)).sum()
    assert len(states) > 2
    assert before < best - 1.5
    assert best - 0.4 < after <= best


@pytest.mark.parametrize("step", [cd_step, lambda rbm, v, seed, **more: pcd_step(rbm, v, v, seed, **more)])
def test_no_rounds_are_refused(
    parameters: oracles.Parameters, data: np.ndarray, seed: tf.Tensor, step: Callable
) -> None:
    options: dict[str, Any] = {"learning_rate": 0.1, "k": 0}
    with pytest.raises(ValueError, match="k, the rounds of Gibbs sampling, must be at least 1, got 0"):
        step(to_rbm(parameters), tf.constant(data), seed, **options)
