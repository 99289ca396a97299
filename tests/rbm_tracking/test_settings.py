"""What may be chosen together, and what a configuration needs in the state."""

import numpy as np
import pytest
import tensorflow as tf

from rbm_tracking.model.checks import linear_ladder
from rbm_tracking.model.rbm import initial_rbm
from rbm_tracking.track.settings import SMLConfig
from rbm_tracking.track.state import check_parts, initial_state
from tests.rbm_tracking.estimators import Settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bias": "yes"}, "bias must be one of both, learned, none, got 'yes'"),
        ({"generator": "x"}, "generator must be one of"),
        ({"learning_rate": 0.0}, r"learning_rate must be positive and finite, got 0\.0"),
        ({"learning_rate_decay": float("nan")}, "learning_rate_decay must be positive and finite"),
        ({"gibbs_steps": 0}, "gibbs_steps must be at least 1"),
        ({"method": "sml"}, "method must be one of tempering, pcd, cd, got 'sml'"),
        ({"schedule": "step"}, "schedule must be one of paper, constant, linear, cosine, got 'step'"),
        ({"schedule": "linear"}, "schedule=linear needs decay_steps, the update at which the rate is zero, got None"),
        ({"schedule": "constant", "learning_rate_decay": 10.0}, "learning_rate_decay is of schedule=paper"),
        ({"method": "pcd"}, "method=pcd needs target_chains, the persistent chains of its gradient, got 0"),
        ({"method": "cd", "target_chains": 5}, "method=cd starts its chains at the minibatch and has no target_chains"),
        ({"method": "cd", "gradient_chains": 5}, "gradient_chains is of method=tempering, got it with method=cd"),
        ({"target_chains": -1}, "target_chains must be at least 0, got -1"),
        ({"decay_steps": 0}, "decay_steps must be at least 1, got 0"),
        ({"l2": -1e-4}, "l2 must be finite and not negative, got -0.0001"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1, got 1.0"),
        ({"average": float("nan")}, "average must be at least 0 and below 1, got nan"),
        ({"sparsity_target": 1.0}, "sparsity_target must be between 0 and 1, got 1.0"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: Settings, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SMLConfig.paper(**settings)


@pytest.mark.parametrize("settings", [{"target_chains": 3}, {"momentum": 0.5}, {"average": 0.9}])
def test_a_state_without_the_parts_is_refused(settings: Settings, seed: tf.Tensor) -> None:
    data, config = np.eye(4), SMLConfig.paper(**settings)
    rbm = initial_rbm(2, seed=seed, data=data)
    plain = initial_state(rbm, linear_ladder(2), 2, seed=seed, data=data, config=SMLConfig.paper())
    name = next(iter(settings))
    with pytest.raises(ValueError, match=f"{name} of the configuration and of the state must be the same"):
        check_parts(plain, config)
    check_parts(initial_state(rbm, linear_ladder(2), 2, seed=seed, data=data, config=config), config)
    with pytest.raises(ValueError, match="gradient_chains must be some of the 2 chains of the state, got 3"):
        check_parts(plain, SMLConfig.paper(gradient_chains=3))
