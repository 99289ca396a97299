"""rbm_tracking.partition_tracker: a stream of parameters and exact samples, and inputs that are refused."""

import numpy as np
import pytest
import tensorflow as tf

from rbm_tracking.partition_tracker import PartitionTracker
from rbm_tracking.rbm import RBM
from rbm_tracking.tempering import linear_ladder
from tests.rbm_tracking import oracles

BETA = linear_ladder(4)


def samples_of(rng: np.random.Generator, parameters: oracles.Parameters, count: int = 20) -> np.ndarray:
    return np.stack([oracles.sample_visible(rng, parameters, count, float(beta)) for beta in BETA])


def as_rbm(parameters: oracles.Parameters) -> RBM:
    return RBM(*map(tf.constant, parameters))


@pytest.mark.slow
def test_log_z_of_a_drifting_model_is_tracked(rng: np.random.Generator) -> None:
    """Exact samples, parameters that do not depend on them: no bias, and better than the bridges of one time."""
    parameters = oracles.random_rbm(rng, 3, 5, 1.0)
    tracker = PartitionTracker(BETA, bias_variance=0.0, initial_bias_variance=0.0)
    errors, scores, first_std = [], [], np.inf
    for t in range(150):
        tracked = tracker.observe(as_rbm(parameters), samples_of(rng, parameters))
        errors.append(tracked.log_z - oracles.log_z(parameters))
        scores.append(errors[-1] / tracked.log_z_std)
        first_std = min(first_std, tracked.log_z_std) if t < 3 else first_std
        parameters = oracles.Parameters(*(value + 0.01 * rng.normal(size=value.shape) for value in parameters))
    assert tracked.flags == []
    assert tracker.log_z == tracked.log_z
    assert tracked.log_z_std == tracker.log_z_std < 0.5 * first_std
    assert np.abs(errors[20:]).max() < 0.5
    assert np.mean(np.abs(scores[20:]) < 1.96) > 0.8


def test_the_ladder_may_move(rng: np.random.Generator) -> None:
    parameters = oracles.random_rbm(rng, 3, 5, 1.0)
    tracker = PartitionTracker(BETA, bias_variance=0.0, initial_bias_variance=0.0)
    for middle in np.linspace(0.66, 0.5, 30):
        beta = np.array([1.0, middle, 0.3, 0.0])
        v = np.stack([oracles.sample_visible(rng, parameters, 50, float(b)) for b in beta])
        tracked = tracker.observe(as_rbm(parameters), v, beta=beta)
    assert abs(tracked.log_z - oracles.log_z(parameters)) < 5 * tracked.log_z_std
    assert tracker.state is not None
    for i, b in enumerate(beta):
        assert float(tracker.state.mean[i]) == pytest.approx(oracles.log_z(parameters, float(b)), abs=0.5)


def test_what_cannot_be_used_is_refused(rng: np.random.Generator) -> None:
    parameters = oracles.random_rbm(rng, 3, 5, 1.0)
    v, rbm = samples_of(rng, parameters), as_rbm(parameters)
    tracker = PartitionTracker(BETA)
    with pytest.raises(ValueError, match="has not observed anything"):
        _ = tracker.log_z
    with pytest.raises(ValueError, match=r"samples must have the shape \[M, N, n_v\] = \[4, at least 2, 5\], got"):
        tracker.observe(rbm, v[:3])
    with pytest.raises(ValueError, match=r"samples must be 0 or 1 everywhere, got 0\.5"):
        tracker.observe(rbm, 0.5 * v + 0.25 * (v < 0.5) * 2)
    with pytest.raises(ValueError, match="the RBM's b must be finite"):
        tracker.observe(rbm._replace(b=rbm.b * np.nan), v)
    with pytest.raises(ValueError, match="must decrease"):
        tracker.observe(rbm, v, beta=[1.0, 0.2, 0.5, 0.0])
    with pytest.raises(ValueError, match="must keep its 4 temperatures, got 3"):
        tracker.observe(rbm, v, beta=[1.0, 0.5, 0.0])
    tracker.observe(rbm, v)
    other = oracles.random_rbm(rng, 2, 5, 1.0)
    with pytest.raises(ValueError, match=r"must keep its shape \(3, 5\), got \(2, 5\); use a new tracker"):
        tracker.observe(as_rbm(other), v)
    with pytest.raises(ValueError, match="must go from 1"):
        PartitionTracker([1.0, 0.5])


def test_samples_that_are_all_equal_leave_log_z_finite() -> None:
    """Rare bits: every sample is a row of zeros, at all temperatures and again and again."""
    parameters = oracles.Parameters(np.full((2, 4), 0.1), np.full(4, -9.0), np.full(2, 0.1))
    tracker = PartitionTracker(BETA)
    for _ in range(20):
        tracked = tracker.observe(as_rbm(parameters), np.zeros((4, 5, 4)))
        assert abs(tracked.log_z - oracles.log_z(parameters)) < 0.05
        assert 0 < tracked.log_z_std < 1
    assert "not_finite" not in tracked.flags
