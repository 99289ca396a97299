"""Annealing and tempering along parameters: weights whose mean is Z, samples that find every mode, files."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from rbm_tracking.estimates.trajectories import (
    Trajectory,
    allotted,
    annealed,
    distances,
    is_node,
    keep_in,
    load_nodes,
    reverse_annealed,
    trajectory,
)
from rbm_tracking.estimates.trajectory_tempering import tempered, trajectory_bracket
from rbm_tracking.model.serialization import SavedRBM
from tests.rbm_tracking import oracles
from tests.rbm_tracking.estimators import Settings, to_rbm
from tests.statistical import assert_mean_close


@pytest.fixture
def parameters(rng: np.random.Generator) -> oracles.Parameters:
    return oracles.random_rbm(rng, 3, 4, scale=1.0)


@pytest.fixture
def path(rng: np.random.Generator, parameters: oracles.Parameters) -> Trajectory:
    """Over an RBM that has nothing to do with the last one: any path is right."""
    return trajectory([to_rbm(oracles.random_rbm(rng, 3, 4, scale=0.5)), to_rbm(parameters)], base_b=np.zeros(4))


def test_the_mean_weight_is_z_in_both_directions(
    path: Trajectory, parameters: oracles.Parameters, rng: np.random.Generator, seed: tf.Tensor
) -> None:
    log_z, steps = oracles.log_z(parameters), [3, 5]
    forward = annealed(path, steps, num_chains=20_000, seed=seed)
    assert_mean_close(np.exp(forward.log_weights - log_z), 1.0, min_detectable=0.05)
    samples = oracles.sample_visible(rng, parameters, 20_000)
    backward = reverse_annealed(path, steps, samples, seed=seed)
    assert_mean_close(np.exp(log_z - backward.log_weights), 1.0, min_detectable=0.05)
    assert forward.interval[0] < log_z < forward.interval[1]
    assert backward.interval[0] < log_z < backward.interval[1]


def test_steps_are_allotted_by_distance(path: Trajectory, seed: tf.Tensor) -> None:
    lengths = distances((path[0], path[1], path[1], path[2]), seed=seed)
    assert lengths.shape == (3,)
    assert lengths[1] == 0 < min(lengths[0], lengths[2])
    np.testing.assert_array_equal(allotted([1.0, 0.0, 3.0], 40), [10, 1, 30])
    with pytest.raises(ValueError, match="num_steps must be at least 3, one for each piece of the path, got 2"):
        allotted([1.0, 0.0, 3.0], 2)


@pytest.mark.slow
@pytest.mark.ci
def test_tempering_finds_the_modes_that_training_found(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """Two modes of which Gibbs sampling never finds the other; at half of the weights it does.

    The samples have the modes' probabilities, and the bracket along the path closes on the exact log Z.
    """
    pattern = np.array([1.0, 1, 1, 1, 1, 0, 0, 0, 0, 0])
    W = 3.0 * np.array([[1.0], [-1.0], [1.0]]) * (2 * pattern - 1)
    last = oracles.Parameters(W, np.zeros(10) - 0.5 * W.sum(0) + 0.1, np.zeros(3))
    halves = [oracles.Parameters(*(s * part for part in last)) for s in (0.1, 0.2, 0.4, 0.7)]
    # 100 rounds of Gibbs sampling stay in the first mode
    gibbs = np.linalg.matrix_power(oracles.gibbs_matrix(last), 100)
    is_first = oracles.binary_vectors(10) @ (2 * pattern - 1) > 0
    index = int(oracles.state_index(pattern))
    assert gibbs[index, ~is_first].sum() < 0.1

    # Tempering along weaker models has both modes in their shares
    path = trajectory([to_rbm(each) for each in [*halves, last]], base_b=np.zeros(10))
    lengths = distances(path, seed=seed)
    options: Settings = {"num_chains": 400, "burn_in": 80, "thin": 40, "spacing": 2.0}
    samples = tempered(path, lengths, 800, seed=seed, jit_compile=False, **options)
    truth = oracles.visible_distribution(last)[is_first].sum()
    assert 0.02 < truth < 0.98
    found = samples @ (2 * pattern - 1) > 0
    assert abs(found.mean() - truth) < 5 * np.sqrt(truth * (1 - truth) / 400)  # independent chains

    # The bracket by its samples closes
    both = trajectory_bracket(path, 60, num_chains=200, seed=seed, samples=samples[-200:])
    assert both.lower.log_z == pytest.approx(oracles.log_z(last), abs=5 * both.lower.standard_error)
    assert both.upper.log_z == pytest.approx(oracles.log_z(last), abs=5 * both.upper.standard_error)


def test_nodes_lie_at_even_distances_of_the_logarithm() -> None:
    nodes = [step for step in range(20_000) if is_node(step)]
    assert nodes[:4] == [10, 12, 13, 15]
    assert 50 < len(nodes) < 60
    late = np.array(nodes[20:])
    np.testing.assert_allclose(late[1:] / late[:-1], 1.15, rtol=0.01)


def test_nodes_come_back_from_their_folder(tmp_path: Path, parameters: oracles.Parameters) -> None:
    keep, rbm = keep_in(tmp_path / "nodes"), to_rbm(parameters)
    for step in (200, 30):
        keep(SavedRBM(rbm._replace(c=rbm.c + step), 1.0, 0.1, np.array([1.0, 0.0]), step))
    first, second = load_nodes(tmp_path / "nodes")
    np.testing.assert_array_equal(first.c, rbm.c + 30)
    np.testing.assert_allclose(tf.cast(second.W, tf.float64), rbm.W, rtol=1e-3)
    assert len(load_nodes(tmp_path / "nodes", until=100)) == 1
    assert trajectory([first, rbm])[1].W.dtype == tf.float64
    with pytest.raises(ValueError, match="must hold parameters along a run, got none; train with --trajectory"):
        load_nodes(tmp_path)


def test_smoothing_shortens_a_shaken_path(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """The last RBM stays, and each other one is a weighted mean of its neighbours."""
    end = oracles.random_rbm(rng, 3, 4, scale=1.0)
    shaken = [
        to_rbm(oracles.Parameters(*(s * part + 0.5 * rng.normal(size=part.shape) for part in end)))
        for s in np.linspace(0.1, 0.95, 20)
    ]
    rbms = [*shaken, to_rbm(end)]
    plain, smooth = trajectory(rbms), trajectory(rbms, smoothing=3.0)
    assert len(smooth) == len(plain) == 22
    np.testing.assert_array_equal(smooth[-1].W, end.W)
    weights = np.exp(-0.5 * ((np.arange(21) - 10) / 3.0) ** 2)
    mean = np.average([rbm.W.numpy() for rbm in rbms], axis=0, weights=weights)
    np.testing.assert_allclose(smooth[11].W, mean, atol=0.01)
    assert sum(distances(smooth, seed=seed)) < 0.5 * sum(distances(plain, seed=seed))
    with pytest.raises(ValueError, match=r"smoothing must not be negative, got -1.0"):
        trajectory(rbms, smoothing=-1.0)


def test_a_way_at_another_temperature(
    parameters: oracles.Parameters, rng: np.random.Generator, seed: tf.Tensor
) -> None:
    """RBMs on it are at beta, then the last one goes on to 1; the mean weight is Z all the same."""
    first, last, base = oracles.random_rbm(rng, 3, 4, scale=0.5), parameters, rng.normal(size=4)
    path = trajectory([to_rbm(first), to_rbm(last)], base_b=base, beta=0.5)
    np.testing.assert_allclose(path[1].W, 0.5 * first.W)
    np.testing.assert_allclose(path[1].b, 0.5 * (first.b + base))
    np.testing.assert_allclose(path[2].c, 0.5 * last.c)
    for mine, right in zip(path[-1][:3], to_rbm(last)[:3], strict=True):
        np.testing.assert_allclose(mine, right)
    forward = annealed(path, np.ones(len(path) - 1, int), num_chains=20_000, seed=seed)
    assert_mean_close(np.exp(forward.log_weights - oracles.log_z(parameters)), 1.0, min_detectable=0.05)
    for beta in (0.0, 1.1):
        with pytest.raises(ValueError, match=f"beta must be above 0 and at most 1, got {beta}"):
            trajectory([to_rbm(last)], beta=beta)


def test_what_is_no_trajectory_is_refused(parameters: oracles.Parameters, rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="a trajectory needs at least one RBM"):
        trajectory([])
    with pytest.raises(ValueError, match="must have one size and one family"):
        trajectory([to_rbm(oracles.random_rbm(rng, 2, 4)), to_rbm(parameters)])
    with pytest.raises(ValueError, match="steps must be 1 positive numbers"):
        annealed(trajectory([to_rbm(parameters)]), [3, 4], seed=tf.constant([1, 2]))


def test_one_chain_has_no_error_and_no_samples_no_rows(path: Trajectory, seed: tf.Tensor) -> None:
    with pytest.raises(ValueError, match="at least 2 chains for a standard error, got 1"):
        annealed(path, [1, 1], num_chains=1, seed=seed)
    with pytest.raises(ValueError, match="at least 2 chains for a standard error, got 1"):
        reverse_annealed(path, [1, 1], np.zeros((1, 4)), seed=seed)
    with pytest.raises(ValueError, match=r"num_samples and thin must be positive, .* got 0, 20 and 300"):
        tempered(path, [1.0, 1.0], 0, seed=seed)
