"""Pictures of a DARN as arrays: what is shown, and in which shape."""

import numpy as np
import pytest
import tensorflow as tf

from darn import pictures
from darn.model.config import LocalConfig
from darn.model.model import DARN, DARNConfig
from darn.train.training import Trainer, TrainingConfig

SHAPE = (2, 3)


def seeds(name: str) -> tf.Tensor:
    return tf.constant([1, len(name)])


def test_nearest_is_the_row_at_the_least_distance(rng: np.random.Generator) -> None:
    images, train = rng.uniform(size=(7, 6)).astype(np.float32), rng.integers(0, 2, (11_000, 6)).astype(np.uint8)
    distance = np.square(images[:, None] - train[None]).sum(axis=2)
    np.testing.assert_array_equal(pictures.nearest(images, train), train[distance.argmin(axis=1)])


def test_filters_are_the_weights_around_grey(seed: tf.Tensor) -> None:
    model = DARN(DARNConfig(6, (4,), units=(5,)), seed=seed)
    weights = model.decoders[0].network.kernels[-1].numpy()
    found = pictures.filters(model, SHAPE)
    assert found is not None
    np.testing.assert_allclose(found, 0.5 + 0.5 * weights.reshape(5, 2, 3) / np.abs(weights).max(), rtol=1e-6)
    model.decoders[0].network.kernels[-1].assign(np.zeros_like(weights))
    assert np.unique(pictures.filters(model, SHAPE)) == [0.5]  # type: ignore[arg-type]
    assert len(pictures.filters(DARN(DARNConfig(6, (120,))), SHAPE)) == 100  # type: ignore[arg-type]


def test_models_without_dense_units_have_no_filters() -> None:
    local = LocalConfig(SHAPE, kernels=(1,), strides=(1,), filters=(2,))
    assert pictures.filters(DARN(DARNConfig(6, (4,), local=local)), SHAPE) is None
    assert pictures.filters(DARN(DARNConfig(6, ())), SHAPE) is None


@pytest.mark.parametrize("observations", ["binary", "intensities"])
def test_samples_stand_beside_training_images_and_probabilities(
    observations: str, seed: tf.Tensor, rng: np.random.Generator
) -> None:
    train = rng.integers(0, 2, (50, 6)).astype(np.uint8)
    model = DARN(DARNConfig(6, (4,), observations=observations), seed=seed, data=train)  # type: ignore[arg-type]
    found = pictures.pictures(model, seed, train, SHAPE)
    sampled = model.sample(40, seed)
    shown = (sampled.x if observations == "binary" else sampled.probs).numpy()
    np.testing.assert_array_equal(found["samples"], shown.reshape(40, 2, 3))
    np.testing.assert_array_equal(found["probabilities of the samples"], sampled.probs.numpy().reshape(40, 2, 3))
    nearest = pictures.nearest(shown, train).reshape(40, 2, 3)
    np.testing.assert_array_equal(found["nearest training images"], nearest)


def test_large_images_are_few(seed: tf.Tensor, rng: np.random.Generator) -> None:
    train = rng.integers(0, 2, (5, 65 * 65)).astype(np.uint8)
    model = DARN(DARNConfig(65 * 65, (2,)), seed=seed, data=train)
    assert pictures.pictures(model, seed, train, (65, 65))["samples"].shape == (6, 65, 65)
    images, _ = pictures.glance(Trainer(model, TrainingConfig(), num_data=5), train, seeds, (65, 65))
    assert images == {}


def test_a_glance_is_at_the_averaged_parameters(rng: np.random.Generator, seed: tf.Tensor) -> None:
    rows = rng.integers(0, 2, (60, 6)).astype(np.uint8)
    trainer = Trainer(DARN(DARNConfig(6, (4, 3)), seed=seed, data=rows), TrainingConfig(average=0.5), num_data=60)
    for variable in trainer.averages:
        variable.assign(100.0 * tf.ones_like(variable) * (variable.shape.rank == 1))  # all biases: every unit is on
    images, activity = pictures.glance(trainer, rows, seeds, SHAPE)
    assert {name: list(values.numpy()) for name, values in activity.items()} == {
        "activity/layer_1": [1.0] * 4,
        "activity/layer_2": [1.0] * 3,
    }
    np.testing.assert_array_equal(images["samples"], np.ones([36, 2, 3]))
    assert images["filters"].shape == (4, 2, 3)
    assert pictures.glance(trainer, rows, seeds, None)[0] == {}
