"""Tracked updates in NumPy: where noise has nothing to decide they are those of the graph, to rounding."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep_base.numbers.groups import by_group
from rbm_tracking.estimates import ais
from rbm_tracking.estimates.trajectories import anneal
from rbm_tracking.model.exact import log_z_exact
from rbm_tracking.model.families.softmax import Softmax
from rbm_tracking.model.rbm import RBM
from rbm_tracking.model.visible import Bernoulli, Gaussian, Spin, Visible
from rbm_tracking.track.settings import SMLConfig
from rbm_tracking.track.state import SMLState, initial_state
from rbm_tracking.track.updates.learning import sml_update
from rbm_tracking.track.updates.plain_updates import plain_updates
from tests.rbm_tracking import oracles
from tests.rbm_tracking.estimators import Settings

SEED = tf.constant([3, 4])
FAMILIES: dict[str, Visible] = {
    "bits": Bernoulli(),
    "signs": Spin(),
    "mixed": Softmax(5, ((3, 0), (1, 4)), (True, False)),
    "numbers": Gaussian(tf.constant([1.0, 2, 1, 3, 1], tf.float64), True),
}


def certain(rng: np.random.Generator, config: SMLConfig) -> SMLState:
    """Visible biases of +-40: rows are what they are, and every swap of two equal particles is accepted."""
    rbm = RBM(
        tf.constant(0.1 * rng.normal(size=(3, 6)), tf.float32),
        tf.constant([40.0, -40, 40, 40, -40, -40]),
        tf.constant(rng.normal(size=3), tf.float32),
    )
    return initial_state(rbm, [1.0, 0.6, 0.3, 0.0], 4, seed=SEED, data=rng.integers(0, 2, (20, 6)), config=config)


@pytest.mark.parametrize(
    "options",
    [
        {"target_chains": 5},
        {"target_chains": 5, "centred": False, "momentum": 0.5, "average": 0.0, "l2": 0.01, "sparsity_target": 0.2},
        {"method": "pcd", "target_chains": 5, "bias": "learned"},
        {"method": "cd", "bias": "none"},
        {"target_chains": 0, "adaptive": True, "gradient_chains": 2},
        {"target_chains": 5, "track": False},
    ],
)
def test_an_update_is_that_of_the_graph(rng: np.random.Generator, options: Settings) -> None:
    config = SMLConfig(**by_group(SMLConfig, {"generator": "hash", **options}))
    state = certain(rng, config)
    batch, weights = rng.integers(0, 2, (7, 6)).astype(np.float32), (np.arange(7) / 21).astype(np.float32)
    whole, seen = plain_updates(
        config, state, batch, np.arange(7)[None], 1, SEED.numpy(), np.full(1, 0.1, np.float32), weights
    )
    expected, observed = sml_update(
        state, tf.constant(batch), seed=SEED, config=config, weights=tf.constant(weights), rate=tf.constant(0.1)
    )
    tf.nest.map_structure(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5), whole, expected
    )
    for name, one, other in zip(seen._fields, seen, observed, strict=True):
        np.testing.assert_allclose(one[0], other, rtol=2e-5, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("name", FAMILIES)
def test_annealing_in_numpy_finds_log_z(rng: np.random.Generator, name: str) -> None:
    """Through temperatures and along the way between two RBMs, within four standard errors and a little."""
    rbm = RBM(*map(tf.constant, oracles.random_rbm(rng, 3, 5, 0.7)))._replace(visible=FAMILIES[name])
    found = ais.ais(rbm, ais.linear_schedule(60), num_chains=300, seed=SEED, generator="numpy")
    assert abs(found.log_z - log_z_exact(rbm)) < 4 * found.standard_error + 0.01
    start = rbm._replace(W=tf.zeros_like(rbm.W))
    v = tf.constant(ais.ais(start, [0.0, 1.0], num_chains=300, seed=SEED, generator="numpy").v, rbm.W.dtype)
    _, change = anneal(start, rbm, 40, v, seed=SEED, generator="numpy")
    weights = np.exp(change - (log_z_exact(rbm) - log_z_exact(start)))
    assert abs(weights.mean() - 1) < 4 * weights.std() / np.sqrt(300) + 0.01
