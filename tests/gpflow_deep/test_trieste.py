"""The adapter for trieste, by the shapes that its protocols ask for; trieste itself is not imported."""

import ast
import copy
import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import gpflow_deep
from gpflow_deep import Sampler, SamplingConfig, Units
from gpflow_deep.trieste import TriesteModel, train_further
from tests.gpflow_deep.builders import make_data, make_model


class Dataset(NamedTuple):
    """As trieste's."""

    query_points: tf.Tensor
    observations: tf.Tensor


@pytest.fixture
def data(rng: np.random.Generator) -> Dataset:
    X, Y = make_data(rng, 12)
    return Dataset(tf.constant(10 * X), tf.constant(100 * Y + 50))


def adapted(rng: np.random.Generator, data: Dataset, num_steps: int = 2) -> TriesteModel:
    units = Units.fit(data.query_points.numpy(), data.observations.numpy(), "gaussian")
    train = functools.partial(train_further, num_steps=num_steps)
    return TriesteModel(make_model(rng, (2, 2, 1)), units, train=train)


def test_it_never_imports_trieste() -> None:
    tree = ast.parse(Path(gpflow_deep.__file__).with_name("trieste.py").read_text(encoding="utf-8"))
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
    modules |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert not any(name.split(".")[0] == "trieste" for name in modules)


def test_predictions_are_the_models_in_the_units_of_the_data(rng: np.random.Generator, data: Dataset) -> None:
    model = adapted(rng, data)
    deep, units, points = model.model, model.units, data.query_points
    X = units.x.transform(points.numpy())
    scale, shift = units.y.scale[0], units.y.mean[0]
    for found, expected in (
        (model.predict(points), deep.predict_f(X)),
        (model.predict_y(points), deep.predict_y(X)),
        (model.predict_joint(points), deep.predict_f(X, full_cov=True)),
    ):
        np.testing.assert_allclose(found[0], shift + scale * expected[0], rtol=1e-6)
        np.testing.assert_allclose(found[1], scale**2 * expected[1], rtol=1e-5)
    np.testing.assert_allclose(model.get_observation_noise(), 0.1 * scale**2)
    batches = tf.reshape(points, [2, 3, 2, 2])
    mean, cov = model.predict_joint(batches)
    assert (mean.shape, cov.shape) == ((2, 3, 2, 1), (2, 3, 1, 2, 2))
    assert model.predict(batches)[0].shape == (2, 3, 2, 1)
    assert model.sample(batches, 5).shape == (2, 3, 5, 2, 1)


def test_compiled_acquisition_functions_follow_training(rng: np.random.Generator, data: Dataset) -> None:
    model = adapted(rng, data, num_steps=20)
    compiled = tf.function(lambda points: model.predict(points)[0])
    before = compiled(data.query_points).numpy()
    bound = model.optimize(data)
    assert np.isfinite(bound)
    assert float(np.asarray(model.model.num_data)) == 12
    after = compiled(data.query_points)
    np.testing.assert_allclose(after, model.predict(data.query_points)[0], rtol=1e-9)
    assert np.max(np.abs(after - before)) > 1e-3
    assert model.optimize(Dataset(data.query_points[:7], data.observations[:7])) != bound
    assert float(np.asarray(model.model.num_data)) == 7
    another = copy.deepcopy(model)
    np.testing.assert_allclose(another.predict(data.query_points)[0], model.predict(data.query_points)[0], rtol=1e-9)


def test_a_sampled_model_is_sampled_anew(rng: np.random.Generator, data: Dataset) -> None:
    """Targets are shifted by five units of the model: predictions follow, in compiled functions, too."""
    sampling = SamplingConfig(num_kept=4, burn_in=30, sampling_steps=20, temperature=1.0)
    deep, X, Y = make_model(rng, (2, 2, 1)), *make_data(rng, 12)
    sampler = Sampler(deep, X, Y, sampling)
    sampler.advance(0, sampler.num_steps)
    model = TriesteModel(deep, train=functools.partial(train_further, num_steps=200, sampling=sampling))
    points = tf.constant(X)
    compiled = tf.function(lambda: model.predict(points)[0])
    for shift in (0.0, 5.0):
        model.optimize(Dataset(points, tf.constant(Y + shift)))
        assert deep.is_sampled
        assert abs(float(np.mean(compiled() - Y)) - shift) < 1.0
        np.testing.assert_allclose(compiled(), model.predict(points)[0], rtol=1e-9)
    other = TriesteModel(deep, train=functools.partial(train_further, sampling=SamplingConfig(num_kept=5)))
    with pytest.raises(ValueError, match="num_kept must be 4, as before, got 5"):
        other.optimize(Dataset(points, tf.constant(Y)))


def test_trajectories_are_functions_in_and_outside_of_graphs(rng: np.random.Generator, data: Dataset) -> None:
    sampler = adapted(rng, data).trajectory_sampler()
    trajectory = sampler.get_trajectory()
    points = tf.Variable(tf.reshape(data.query_points, [4, 3, 2]))  # [N, B, D]
    values = trajectory(points)
    assert values.shape == (4, 3, 1)
    compiled = tf.function(lambda: trajectory(points))
    np.testing.assert_allclose(compiled(), values, rtol=1e-10)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(compiled())
    slope = tape.gradient(total, points)
    step = tf.constant([1e-4, 0.0], tf.float64)
    np.testing.assert_allclose(slope[..., 0], (trajectory(points + step) - trajectory(points - step))[..., 0] / 2e-4)
    assert np.all(sampler.update_trajectory(trajectory)(points) != values)


def test_draws_stay_until_they_are_reset(rng: np.random.Generator, data: Dataset) -> None:
    model = adapted(rng, data)
    sampler, points = model.reparam_sampler(6), tf.reshape(data.query_points, [4, 3, 2])
    compiled = tf.function(lambda: sampler.sample(points, jitter=1e-6))
    first = compiled().numpy()
    assert first.shape == (4, 6, 3, 1)
    np.testing.assert_array_equal(compiled(), first)
    np.testing.assert_allclose(sampler.sample(points[1:2])[0], first[1], rtol=1e-10)
    sampler.reset_sampler()
    assert np.all(compiled() != first)  # the compiled function sees the new draws


def test_models_that_take_the_data_as_they_are(rng: np.random.Generator) -> None:
    X, Y = make_data(rng, 8)
    model = TriesteModel(make_model(rng, (2, 1)))
    np.testing.assert_allclose(model.predict(tf.constant(X))[0], model.model.predict_f(X)[0], rtol=1e-6)
    model.update(Dataset(tf.constant(X), tf.constant(Y)))
    model.log(None)
    assert float(np.asarray(model.model.num_data)) == 8
