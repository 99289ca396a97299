"""The adapter in trieste's own loops: in an environment with the extra `trieste`, elsewhere skipped."""

import functools
import importlib
import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep import Sampler, SamplingConfig, Units, modern, with_global_inducing, with_sigma_points
from gpflow_deep.trieste import TriesteModel, train_further

trieste: Any = pytest.importorskip("trieste")
acquisition = importlib.import_module("trieste.acquisition")
rules = importlib.import_module("trieste.acquisition.rule")
samplers = importlib.import_module("trieste.acquisition.sampler")
interfaces = importlib.import_module("trieste.models.interfaces")

SPACE = trieste.space.Box([0.0, 0.0], [1.0, 1.0])
STEPS = 20

RULES = {
    "expected improvement": lambda: rules.EfficientGlobalOptimization(),
    "batches by Monte Carlo": lambda: rules.EfficientGlobalOptimization(
        acquisition.BatchMonteCarloExpectedImprovement(sample_size=10), num_query_points=2
    ),
    "parallel Thompson": lambda: rules.EfficientGlobalOptimization(
        acquisition.ParallelContinuousThompsonSampling(), num_query_points=2
    ),
    "discrete Thompson": lambda: rules.DiscreteThompsonSampling(50, 2),
    "trajectories": lambda: rules.DiscreteThompsonSampling(
        50, 2, thompson_sampler=samplers.ThompsonSamplerFromTrajectory()
    ),
}


def bowl(X: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum((X - 0.3) ** 2, axis=1, keepdims=True)


def started(posterior: str = "gaussian") -> tuple[TriesteModel, Any]:
    X = SPACE.sample_sobol(8, skip=0)
    units = Units.fit(X.numpy(), bowl(X).numpy(), "gaussian")
    rows = units.transform(X.numpy(), bowl(X).numpy())
    model, sampling = modern(*rows, 2, num_inducing=8), None
    if posterior == "global":
        model = with_global_inducing(model, rows)
    if posterior == "sigma_points":
        model = with_sigma_points(model)
    if posterior == "sghmc":
        sampling = SamplingConfig(num_kept=4, burn_in=4, sampling_steps=4, temperature=1.0)
        sampler = Sampler(model, *rows, sampling)
        sampler.advance(0, sampler.num_steps)
    train = functools.partial(train_further, num_steps=STEPS, sampling=sampling)
    return TriesteModel(model, units, train=train), trieste.data.Dataset(X, bowl(X))


def optimised(rule: Any, posterior: str = "gaussian", *, num_steps: int = 1, track_state: bool = False) -> Any:
    model, data = started(posterior)
    optimizer = trieste.bayesian_optimizer.BayesianOptimizer(trieste.objectives.utils.mk_observer(bowl), SPACE)
    result = optimizer.optimize(num_steps, data, model, rule, track_state=track_state)
    found = result.try_get_final_dataset()
    points = found.query_points.numpy()
    assert np.all((points >= 0.0) & (points <= 1.0))
    assert len(np.unique(points, axis=0)) == len(points)
    return result


def test_it_has_the_protocols() -> None:
    model, _ = started()
    for name in (
        "TrainableProbabilisticModel",
        "SupportsPredictJoint",
        "SupportsPredictY",
        "SupportsGetObservationNoise",
        "HasTrajectorySampler",
        "HasReparamSampler",
    ):
        assert isinstance(model, getattr(interfaces, name)), name


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_rules(name: str) -> None:
    expected = 9 if name == "expected improvement" else 10
    assert len(optimised(RULES[name]()).try_get_final_dataset()) == expected


@pytest.mark.slow
def test_states_are_kept() -> None:
    """Each is a copy of the model as it was."""
    result = optimised(RULES["expected improvement"](), num_steps=2, track_state=True)
    X = SPACE.sample_sobol(4, skip=0)
    models = [*(record.model for record in result.history), result.try_get_final_model()]
    means = [model.predict(X)[0].numpy() for model in models]
    assert len(means) == 3
    assert all(np.max(np.abs(a - b)) > 1e-6 for a, b in itertools.pairwise(means))


@pytest.mark.slow
@pytest.mark.parametrize("posterior", ["global", "sigma_points", "sghmc"])
def test_other_posteriors(posterior: str) -> None:
    assert len(optimised(RULES["parallel Thompson"](), posterior).try_get_final_dataset()) == 10
