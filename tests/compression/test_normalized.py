"""Batch normalisation for as long as a network trains."""

import keras
import numpy as np
import pytest

import compression as bc
from compression.graph.normalized import fold_into, normalized
from tests.compression.networks import randomised


def chain() -> keras.Model:
    layers = [
        keras.layers.Conv2D(5, 3, activation="relu", padding="same", name="first"),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(6, 2, strides=2, activation="elu", name="second"),
        keras.layers.Conv2DTranspose(4, 2, name="third"),
        keras.layers.Conv2D(4, 1, activation=keras.layers.LeakyReLU(negative_slope=0.3), name="has_a_layer"),
        keras.layers.Flatten(),
        keras.layers.Dense(7, "tanh"),
        keras.layers.Dense(3),
    ]
    return keras.Sequential([keras.Input([8, 8, 2]), *layers])


def residual() -> keras.Model:
    """With a sum, a convolution that has batch normalisation already, and one at the end."""
    x = inputs = keras.Input([8, 8, 2])
    x = keras.layers.Conv2D(5, 3, padding="same", activation="relu", name="first")(x)
    y = keras.layers.Conv2D(5, 3, padding="same", name="second")(x)
    x = keras.layers.Add()([x, y])
    x = keras.layers.Conv2D(6, 1, name="has_it")(x)
    x = keras.layers.ReLU()(keras.layers.BatchNormalization()(x))
    return keras.Model(inputs, keras.layers.Conv2D(3, 1, name="last")(x))


NETWORKS = {"chain": (chain, ["first", "second", "third"]), "residual": (residual, ["first", "second"])}


@pytest.mark.parametrize("name", NETWORKS)
def test_it_computes_the_same_before_and_after_training(name: str, rng: np.random.Generator) -> None:
    build, expected = NETWORKS[name]
    model = randomised(build(), rng)
    X = (2.0 + 3.0 * rng.normal(size=(40, 8, 8, 2))).astype(np.float32)
    trained = normalized(model, X)
    new = {layer.name for layer in trained.layers if isinstance(layer, keras.layers.BatchNormalization)}
    assert new - {layer.name for layer in model.layers} == {f"{layer}_normalisation" for layer in expected}
    outputs = np.asarray(model(X, training=False))
    np.testing.assert_allclose(trained(X, training=False), outputs, rtol=1e-4, atol=1e-4 * np.abs(outputs).max())
    if name == "chain":  # the other has moving statistics that are not those of X
        in_training = np.asarray(trained(X, training=True))
        np.testing.assert_allclose(in_training, outputs, rtol=1e-3, atol=1e-3 * np.abs(outputs).max())
    randomised(trained, rng)
    fold_into(trained, model)
    outputs = np.asarray(trained(X, training=False))
    assert np.std(outputs) > 0.1
    np.testing.assert_allclose(model(X, training=False), outputs, rtol=1e-4, atol=1e-4 * np.abs(outputs).max())


def test_zeros_stay(rng: np.random.Generator) -> None:
    model = randomised(chain(), rng)
    kernel = model.get_layer("second").kernel
    kernel.assign(kernel * (rng.uniform(size=kernel.shape) < 0.5))
    zeros = np.asarray(kernel) == 0
    trained = normalized(model, rng.normal(size=(10, 8, 8, 2)).astype(np.float32))
    np.testing.assert_array_equal(np.asarray(trained.get_layer("second").kernel) == 0, zeros)
    fold_into(trained, model)
    np.testing.assert_array_equal(np.asarray(kernel) == 0, zeros)


def test_a_network_without_convolutions_is_copied(rng: np.random.Generator) -> None:
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(3, "relu"), keras.layers.Dense(2)])
    X = rng.normal(size=(5, 4)).astype(np.float32)
    trained = normalized(model, X)
    np.testing.assert_array_equal(trained(X), model(X))
    assert bc.size_of(trained) == bc.size_of(model)


def test_statistics_of_an_adapted_normalization_stay(rng: np.random.Generator) -> None:
    """They are weights of the layer that was given, and settings of its copy."""
    X = (2.0 + 3.0 * rng.normal(size=(30, 6, 6, 2))).astype(np.float32)
    first = keras.layers.Normalization()
    first.adapt(X)
    layers = [first, keras.layers.Conv2D(4, 3, activation="relu"), keras.layers.GlobalMaxPooling2D()]
    model = keras.Sequential([keras.Input([6, 6, 2]), *layers, keras.layers.Dense(2)])
    outputs = np.asarray(model(X))
    trained = normalized(model, X)
    np.testing.assert_allclose(trained(X, training=False), outputs, rtol=1e-4, atol=1e-4)
    fold_into(trained, model)
    np.testing.assert_allclose(model(X), outputs, rtol=1e-4, atol=1e-4)
