"""The averaged parameters and their tracked log Z, against the exact one."""

import numpy as np
import pytest
import tensorflow as tf

from rbm_tracking.model.exact import log_likelihood_exact, log_z_exact
from rbm_tracking.track.settings import SMLConfig
from rbm_tracking.use.training import Trainer, new_trainer
from tests.rbm_tracking.estimators import Settings


def two_patterns(rng: np.random.Generator) -> np.ndarray:
    rows = rng.integers(0, 2, (2, 12))[rng.integers(0, 2, 300)]
    return (rows ^ (rng.uniform(size=rows.shape) < 0.15)).astype(np.uint8)


def begun(data: np.ndarray, config: SMLConfig, seed: tf.Tensor) -> Trainer:
    options: Settings = {"num_temps": 3, "num_chains": 10, "dtype": "float64", "jit_compile": False}
    return new_trainer(data, 6, config, lambda name: tf.random.fold_in(seed, len(name)), **options)


def trained(data: np.ndarray, config: SMLConfig, rng: np.random.Generator, seed: tf.Tensor) -> Trainer:
    trainer = begun(data, config, seed)
    for _ in range(3):
        trainer.advance(data, rng.integers(0, 300, (200, 20)), seed)
    return trainer


def test_tracked_log_z_of_parameters_and_average(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """With target chains, decay, a falling rate and averages: within 5 standard deviations of the exact ones."""
    data = two_patterns(rng)
    options: Settings = {
        "schedule": "linear",
        "decay_steps": 600,
        "target_chains": 30,
        "centred": True,
        "l2": 1e-3,
    }
    trainer = trained(data, SMLConfig.paper(learning_rate=0.1, average=0.98, **options), rng, seed)
    state, model = trainer.state, trainer.model
    for each in (state, model):
        error = float(each.tracker.mean[0]) - log_z_exact(each.rbm)
        assert abs(error) < 5 * np.sqrt(float(each.tracker.cov[0, 0])) + 0.02
    assert np.sqrt(float(model.tracker.cov[0, 0])) < 0.5
    assert trainer.model is model
    assert np.abs(state.rbm.W - model.rbm.W).max() > 0.01
    shift = float(model.tracker.mean[0] - state.tracker.mean[0])
    assert shift == pytest.approx(log_z_exact(model.rbm) - log_z_exact(state.rbm), abs=0.05)
    assert trainer.saved().log_z == float(model.tracker.mean[0])
    assert log_likelihood_exact(model.rbm, data).mean() > log_likelihood_exact(state.rbm, data).mean() - 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"method": "pcd", "target_chains": 30},
        {"method": "cd", "gibbs_steps": 2},
        {"momentum": 0.5, "target_chains": 30, "average": 0.98},
        {"sparsity_target": 0.1, "sparsity_cost": 1.0, "gradient_chains": 5, "target_chains": 10},
    ],
    ids=lambda options: next(iter(options)),
)
def test_tracking_holds_with_every_option(options: Settings, rng: np.random.Generator, seed: tf.Tensor) -> None:
    trainer = trained(two_patterns(rng), SMLConfig.paper(learning_rate=0.05, **options), rng, seed)
    for each in (trainer.state, trainer.model):
        error = float(each.tracker.mean[0]) - log_z_exact(each.rbm)
        assert abs(error) < 5 * np.sqrt(float(each.tracker.cov[0, 0])) + 0.02


@pytest.mark.slow
@pytest.mark.ci
def test_particles_that_were_pushed_away_do_not_bias_log_z(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """At a high rate: the steps to the average would be 0.25 too high on average, with the particles as they are."""
    data = two_patterns(rng)
    trainer = begun(data, SMLConfig(learning_rate=1.0, target_chains=30, average=0.98), seed)
    errors = []
    for _ in range(12):
        trainer.advance(data, rng.integers(0, 300, (100, 20)), seed)
        state, model = trainer.state, trainer.model
        step = float(model.tracker.mean[0] - state.tracker.mean[0])
        errors.append(step - (log_z_exact(model.rbm) - log_z_exact(state.rbm)))
    assert abs(np.mean(errors)) < 0.1
