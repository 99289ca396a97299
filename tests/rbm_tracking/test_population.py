"""The last steps of training, by a population that has the masses of modes right."""

import numpy as np
import pytest
import tensorflow as tf

from rbm_tracking import TrackedRBM
from rbm_tracking.estimates.ais import linear_schedule
from rbm_tracking.estimates.strata import starts, stratified
from rbm_tracking.model.exact import log_z_exact
from rbm_tracking.model.random import Generator
from rbm_tracking.model.rbm import RBM, log_probs_unnormalised
from rbm_tracking.track.settings import PenaltyConfig
from rbm_tracking.use.averages import Settled, settled
from rbm_tracking.use.estimator_config import StoppingConfig, TrainingConfig


def _two_phases(rng: np.random.Generator, share: float = 0.3) -> tuple[RBM, np.ndarray]:
    """A model with most of its mass at zeros, and rows of which most are ones."""
    num_bits, strength = 40, 3.0
    c = np.log(0.1 / 0.9) - strength * num_bits
    parts = np.full((1, num_bits), 2 * strength), np.full(num_bits, -strength), np.array([c])
    is_on = rng.random((2000, 1)) >= share
    rows = (rng.random((2000, num_bits)) < np.where(is_on, 0.95, 0.05)).astype(np.uint8)
    return RBM(*(tf.constant(part, tf.float32) for part in parts)), rows


def _likelihood(rbm: RBM, rows: np.ndarray) -> float:
    return float(log_probs_unnormalised(rbm, rows).mean()) - log_z_exact(rbm)


def _settled(rbm: RBM, rows: np.ndarray, seed: tf.Tensor, penalties: PenaltyConfig = PenaltyConfig()) -> Settled | None:
    base_b = starts(rows, rbm.visible)
    population = stratified(rbm, linear_schedule(31), base_b, base_b, seed=seed, generator="numpy")
    rng = np.random.default_rng(0)
    return settled(rbm, rows[::2], population, len(base_b), rows[1::2], None, 30, penalties, rng)


def test_the_masses_of_modes_become_those_of_the_rows(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """Chains do not come from one phase to the other; log Z of the new parameters is known with an error."""
    rbm, rows = _two_phases(rng)
    found = _settled(rbm, rows, seed)
    assert found is not None
    before, after = _likelihood(rbm, rows[1::2]), _likelihood(found.rbm, rows[1::2])
    assert after > before + 1.0
    assert found.gain == pytest.approx(after - before, abs=0.2)
    measured = found.population
    assert measured.log_z == pytest.approx(log_z_exact(found.rbm), abs=4 * measured.standard_error)


def test_nothing_moves_where_rows_gain_nothing(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """Rows set aside of another kind than those that the steps are for; weights that L1 has pulled to 0 stay there."""
    rbm, rows = _two_phases(rng)
    base_b = starts(rows, rbm.visible)
    population = stratified(rbm, linear_schedule(31), base_b, base_b, seed=seed, generator="numpy")
    others = np.zeros_like(rows[:100])
    options = PenaltyConfig(), np.random.default_rng(0)
    assert settled(rbm, rows, population, len(base_b), others, None, 30, *options) is None
    sparse = rbm._replace(W=tf.concat([rbm.W[:, :20], tf.zeros([1, 20])], axis=1))
    found = _settled(sparse, rows, seed, PenaltyConfig(l1=1e-3))
    assert found is not None
    assert not found.rbm.W.numpy()[:, 20:].any()
    assert (found.rbm.W.numpy()[:, :20] != sparse.W.numpy()[:, :20]).all()


@pytest.mark.parametrize("generator", ["numpy", "hash"])
def test_a_fit_to_modes_that_chains_do_not_leave_is_better(generator: Generator) -> None:
    """Ten modes of 120 bits, one of them with a third of the rows."""
    rng = np.random.default_rng(0)
    modes = rng.integers(0, 2, (10, 120))
    rows = modes[rng.choice(10, 1500, p=[0.28, *[0.08] * 9])] ^ (rng.random((1500, 120)) < 0.03)
    train, test = rows[:1000], rows[1000:]
    likelihoods = []
    for steps in (0, 30):
        ending = StoppingConfig(last_steps=steps)
        training = TrainingConfig(generator=generator, jit_compile=False, stopping=ending)
        model = TrackedRBM(12, training=training, random_state=0).fit(train)
        likelihoods.append(_likelihood(model.rbm_, test))
    assert likelihoods[1] > likelihoods[0] + 0.1
    assert model.log_z_ == pytest.approx(log_z_exact(model.rbm_), abs=1e-6)
