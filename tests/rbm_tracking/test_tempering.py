"""rbm_tracking.track.tempering: detailed balance by whole transition matrices, bookkeeping of swaps, the stationary
law."""

import numpy as np
import pytest
import tensorflow as tf

from rbm_tracking.model.checks import check_ladder, linear_ladder
from rbm_tracking.model.random import key_at, uniform
from rbm_tracking.model.rbm import RBM, activations, hidden_probs, visible_probs
from rbm_tracking.track.tempering import (
    Chains,
    at_level,
    gibbs,
    initial_chains,
    sample,
    swap,
    swap_log_ratio,
)
from tests.rbm_tracking import oracles
from tests.statistical import assert_mean_close

N_V, N_H = 4, 3
STEP = tf.constant(5)


@pytest.fixture
def parameters(rng: np.random.Generator) -> oracles.Parameters:
    return oracles.random_rbm(rng, N_H, N_V, 1.5)


@pytest.fixture
def rbm(parameters: oracles.Parameters) -> RBM:
    return RBM(*map(tf.constant, parameters))


def gibbs_matrix(rbm: RBM, beta: float) -> np.ndarray:
    """P(v -> v') of one round, from the conditionals of the package: sum over all h."""
    v, h = oracles.binary_vectors(N_V), oracles.binary_vectors(N_H)
    h_one = hidden_probs(rbm, tf.constant(v), beta).numpy()[:, None]  # [V, 1, n_h]
    v_one = visible_probs(rbm, tf.constant(h), beta).numpy()[:, None]
    h_given_v = np.prod(np.where(h[None] == 1, h_one, 1 - h_one), axis=-1)  # [V, H]
    v_given_h = np.prod(np.where(v[None] == 1, v_one, 1 - v_one), axis=-1)  # [H, V]
    return h_given_v @ v_given_h


def pair_chains(rbm: RBM) -> Chains:
    """All pairs (x, y) of visible vectors at two levels, one pair in each column, x slowest."""
    v = oracles.binary_vectors(N_V)
    x, y = np.repeat(v, len(v), axis=0), np.tile(v, (len(v), 1))
    both = tf.constant(np.stack([x, y]))
    level = tf.constant(np.repeat([[0], [1]], len(x), axis=1), tf.int32)
    return Chains(both, activations(rbm, both), level)


def swap_matrix(rbm: RBM, beta: tf.Tensor, seed: tf.Tensor) -> np.ndarray:
    """P((x, y) -> (x', y')) of one proposal, from the acceptance that the package computes."""
    _, swaps = swap(pair_chains(rbm), beta, seed=seed, step=STEP)
    acceptance = np.exp(np.minimum(swap_log_ratio(swaps.d_upper, swaps.d_lower).numpy()[0], 0.0))
    size = 2**N_V
    matrix = np.diag(1 - acceptance)
    x, y = np.divmod(np.arange(size**2), size)
    matrix[np.arange(size**2), y * size + x] += acceptance
    return matrix


@pytest.mark.parametrize("beta", [1.0, 0.4, 0.0])
def test_gibbs_leaves_each_tempered_model_as_it_is(parameters: oracles.Parameters, rbm: RBM, beta: float) -> None:
    pi = oracles.visible_distribution(parameters, beta)
    matrix = gibbs_matrix(rbm, beta)
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(pi @ matrix, pi, atol=1e-12)
    flow = pi[:, None] * matrix
    np.testing.assert_allclose(flow, flow.T, atol=1e-12)  # detailed balance


@pytest.mark.parametrize("betas", [(1.0, 0.3), (0.7, 0.0), (1.0, 0.0)])
def test_swaps_and_their_composition_with_gibbs_leave_the_joint_law(
    parameters: oracles.Parameters, rbm: RBM, betas: tuple[float, float], seed: tf.Tensor
) -> None:
    upper, lower = (oracles.visible_distribution(parameters, beta) for beta in betas)
    pi = np.kron(upper, lower)
    swaps = swap_matrix(rbm, tf.constant(betas, tf.float64), seed)
    rounds = np.kron(gibbs_matrix(rbm, betas[0]), gibbs_matrix(rbm, betas[1]))
    assert np.ptp(np.diag(swaps)) > 0.1  # some proposals are refused
    for matrix in (swaps, rounds, rounds @ swaps):
        np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-12)
        np.testing.assert_allclose(pi @ matrix, pi, atol=1e-12)


def test_a_swap_with_the_wrong_energy_would_be_seen(parameters: oracles.Parameters, rbm: RBM, seed: tf.Tensor) -> None:
    """Free energies of the untempered model in the acceptance: an error found in practice."""
    betas = (1.0, 0.3)
    pi = np.kron(*(oracles.visible_distribution(parameters, beta) for beta in betas))
    scaled = RBM(rbm.W, rbm.b, rbm.c)._replace(W=rbm.W * 1.3)
    matrix = swap_matrix(scaled, tf.constant(betas, tf.float64), seed)
    assert np.abs(pi @ matrix - pi).max() > 1e-3


def test_gibbs_draws_from_its_matrix(parameters: oracles.Parameters, rbm: RBM, seed: tf.Tensor) -> None:
    beta = tf.constant([1.0, 0.4], tf.float64)
    start = np.array([1.0, 0.0, 1.0, 1.0])
    v = tf.constant(np.tile(start, (2, 20_000, 1)))
    level = tf.constant(np.repeat([[1], [0]], 20_000, axis=1), tf.int32)  # slot 0 is the hotter one
    moved = gibbs(rbm, Chains(v, activations(rbm, v), level), beta, steps=2, seed=seed, step=STEP)
    np.testing.assert_allclose(moved.a, activations(rbm, moved.v))
    for slot, own in ((0, 0.4), (1, 1.0)):
        two_rounds = np.linalg.matrix_power(oracles.gibbs_matrix(parameters, own), 2)
        counts = np.eye(2**N_V)[oracles.state_index(moved.v[slot].numpy())]
        varies = counts.std(axis=0) > 0
        expected = two_rounds[oracles.state_index(start)]
        assert_mean_close(counts[:, varies], expected[varies], min_detectable=0.02)
        np.testing.assert_allclose(expected[~varies], 0.0, atol=1e-3)


def swapped_in_numpy(
    a: np.ndarray, beta: np.ndarray, level: np.ndarray, noise: dict[int, np.ndarray], parities: tuple[int, ...]
) -> np.ndarray:
    """Levels of the slots after the swaps, column by column and pair by pair."""

    def log_q(slot: int, n: int, i: int) -> float:
        return float(np.sum(np.logaddexp(0, beta[i] * a[slot, n])))

    level = level.copy()
    for parity in parities:
        for n in range(level.shape[1]):
            for i in range(parity, len(beta) - 1, 2):
                x, y = (int(np.flatnonzero(level[:, n] == k)[0]) for k in (i, i + 1))
                ratio = log_q(y, n, i) + log_q(x, n, i + 1) - log_q(x, n, i) - log_q(y, n, i + 1)
                if np.log(noise[parity][i, n]) < ratio:
                    level[x, n], level[y, n] = i + 1, i
    return level


@pytest.mark.parametrize("num_temps", [2, 3, 6])
def test_swaps_equal_a_loop_over_columns(rng: np.random.Generator, rbm: RBM, seed: tf.Tensor, num_temps: int) -> None:
    count = 50
    beta = linear_ladder(num_temps)
    level = np.array([rng.permutation(num_temps) for _ in range(count)]).T
    v = rng.integers(0, 2, (num_temps, count, N_V)).astype(float)
    chains = Chains(tf.constant(v), activations(rbm, tf.constant(v)), tf.constant(level, tf.int32))
    moved, swaps = swap(chains, tf.constant(beta), seed=seed, step=STEP)

    noise = {
        parity: uniform(key_at(seed, STEP, (1 << 20) + parity), (num_temps - 1, count), tf.float64).numpy()
        for parity in (0, 1)
    }
    parities = (1, 0)
    expected = swapped_in_numpy(chains.a.numpy(), beta, level, noise, parities)
    np.testing.assert_array_equal(moved.level, expected)
    assert np.any(expected != level)
    own = np.sum(np.logaddexp(0, beta[expected][..., None] * chains.a.numpy()), axis=-1)
    np.testing.assert_allclose(swaps.log_q, own, rtol=1e-12)
    np.testing.assert_array_equal(moved.v, chains.v)  # particles keep their places
    assert np.all((swaps.acceptance.numpy() > 0) & (swaps.acceptance.numpy() <= 1))


def test_a_round_keeps_exact_draws_exact(parameters: oracles.Parameters, rbm: RBM, seed: tf.Tensor) -> None:
    """After Gibbs and swaps of exact draws at four levels, the means at each level are still the model's."""
    beta, count = linear_ladder(4), 30_000
    rng = np.random.default_rng(seed.numpy().astype(np.uint32))
    v = tf.constant(np.stack([oracles.sample_visible(rng, parameters, count, float(t)) for t in beta]))
    level = tf.constant(np.repeat(np.arange(4)[:, None], count, axis=1), tf.int32)
    chains = Chains(v, activations(rbm, v), level)
    for step in range(2):
        noise = {"seed": seed, "step": tf.constant(step)}
        chains, _ = swap(gibbs(rbm, chains, tf.constant(beta), steps=1, **noise), tf.constant(beta), **noise)
    for i, t in enumerate(beta):
        at = tf.boolean_mask(chains.v, tf.equal(chains.level, i)).numpy()
        assert len(at) == count
        assert_mean_close(at, oracles.moments(parameters, float(t)).v, min_detectable=0.02)


@pytest.mark.slow
def test_parallel_tempering_converges_to_the_model(seed: tf.Tensor) -> None:
    """Total variation of the distribution of v at beta = 1 below 0.005 for a bimodal 3 x 2 model."""
    parameters = oracles.Parameters(np.full((2, 3), 4.0), np.full(3, -4.0), np.full(2, -6.0))
    rbm = RBM(*map(tf.constant, parameters))
    beta = np.array([1.0, 0.6, 0.3, 0.0])
    chains = initial_chains(rbm, 4, 500, seed=seed)
    draws = sample(rbm, chains, beta, 500 * 600, seed=seed, burn_in=200, thin=3)
    counts = np.bincount(oracles.state_index(draws), minlength=8) / len(draws)
    expected = oracles.visible_distribution(parameters)
    assert 0.1 < expected[0] < 0.9  # two modes, all zeros and all ones
    assert 0.5 * np.abs(counts - expected).sum() < 0.005


def test_samples_start_at_the_base_rates(rbm: RBM, seed: tf.Tensor) -> None:
    chains = initial_chains(rbm, 3, 20_000, seed=seed)
    for i in range(3):
        assert_mean_close(chains.v[i], tf.sigmoid(rbm.b), min_detectable=0.02)
    np.testing.assert_array_equal(chains.level[:, 0], [0, 1, 2])


def test_values_are_sorted_by_level() -> None:
    level = tf.constant([[2, 0], [0, 1], [1, 2]])
    values = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, np.inf]])
    np.testing.assert_array_equal(at_level(values, level), [[3.0, 2.0], [5.0, 4.0], [1.0, np.inf]])


@pytest.mark.parametrize(
    ("beta", "message"),
    [
        ([1.0], r"vector of at least 2, got shape \(1,\)"),
        ([0.9, 0.5, 0.0], r"must go from 1 \(the model\) to 0 .* got 0.9 to 0; add the end"),
        ([1.0, 0.5], r"got 1 to 0.5"),
        ([1.0, 0.3, 0.5, 0.0], r"must decrease, got 0.3 then 0.5; sort them"),
        ([1.0, np.nan, 0.0], r"must decrease, got 1 then nan"),
    ],
)
def test_bad_ladders_are_refused(beta: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_ladder(beta)


def test_other_bad_arguments_are_refused(rbm: RBM, seed: tf.Tensor) -> None:
    with pytest.raises(ValueError, match=r"number of temperatures must be at least 2 .*got 1"):
        linear_ladder(1)
    chains = initial_chains(rbm, 2, 2, seed=seed)
    with pytest.raises(ValueError, match=r"num_samples and thin must be positive"):
        sample(rbm, chains, [1.0, 0.0], 0, seed=seed)
