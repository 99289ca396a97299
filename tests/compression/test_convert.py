"""Conversion keeps the predictions, and refuses what it cannot keep."""

from collections.abc import Callable

import keras
import numpy as np
import pytest

import compression as bc
from tests.compression.networks import PRIORS

layers = keras.layers


def randomised(model: keras.Model, rng: np.random.Generator) -> keras.Model:
    """Random weights, variances of batch normalisation positive."""
    for variable in model.weights:
        value = 0.5 * rng.normal(size=variable.shape)
        variable.assign(np.exp(value) if "variance" in variable.name else value)
    return model


def convolutional() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input([12, 12, 2]),
            layers.Conv2D(5, 3, strides=2, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.Conv2D(4, (2, 3)),
            layers.BatchNormalization(scale=False),
            layers.Activation("relu"),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(6),
            layers.BatchNormalization(center=False),
            layers.Activation("tanh"),
            layers.Dense(3),
            layers.Softmax(),
        ]
    )


def pooled() -> keras.Model:
    x = inputs = keras.Input([8, 8, 1])
    x = layers.Conv2D(4, 3, activation="relu")(x)
    x = layers.AveragePooling2D(2)(x)
    x = layers.Conv2D(5, 1, activation="sigmoid")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(3, activation="softmax")(x))


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("build", [convolutional, pooled])
def test_predictions_are_kept(build: Callable, prior: str, rng: np.random.Generator) -> None:
    model = randomised(build(), rng)
    bayesian = bc.compress(model, num_train=77, prior=prior, std_cap=0.2, scale_speed=5.0)
    x = rng.normal(size=(6, *model.input_shape[1:])).astype("float32")
    np.testing.assert_allclose(bayesian(x), model(x), atol=1e-5)
    np.testing.assert_allclose(bc.shrink(bayesian)(x), model(x), atol=1e-5)
    found = bc.bayesian_layers(bayesian)
    plain = [layer for layer in model.layers if isinstance(layer, layers.Dense | layers.Conv2D)]
    assert [type(a) for a in found] == [PRIORS[prior][isinstance(b, layers.Conv2D)] for b in plain]
    assert [layer.name for layer in found] == [layer.name for layer in plain]
    assert {(layer.num_train, layer.std_cap, layer.scale_speed) for layer in found} == {(77, 0.2, 5.0)}
    assert len({layer.seed for layer in found}) == len(found)
    assert not any(isinstance(layer, layers.BatchNormalization | layers.Dropout) for layer in bayesian.layers)


def test_caps_by_name(rng: np.random.Generator) -> None:
    model = pooled()
    names = [layer.name for layer in model.layers if layer.weights]
    bayesian = bc.compress(model, num_train=5, std_cap={names[0]: 0.1})
    assert [layer.std_cap for layer in bc.bayesian_layers(bayesian)] == [0.1, None, None]
    with pytest.raises(ValueError, match=r"std_cap names \['nowhere'\]"):
        bc.compress(model, num_train=5, std_cap={"nowhere": 0.1})


def sequential(*parts: keras.layers.Layer, shape: tuple[int, ...] = (6, 6, 2)) -> keras.Model:
    return keras.Sequential([keras.Input(shape), *parts])


def added() -> keras.Model:
    inputs = keras.Input([4])
    x = layers.Dense(4)(inputs)
    return keras.Model(inputs, layers.Add(name="sum")([inputs, x]))


def shared() -> keras.Model:
    inputs, twin = keras.Input([4]), layers.Dense(4, name="twin")
    return keras.Model(inputs, twin(twin(inputs)))


def two_inputs() -> keras.Model:
    inputs = [keras.Input([4]), keras.Input([4])]
    return keras.Model(inputs, layers.Concatenate()(inputs), name="pair")


def two_outputs() -> keras.Model:
    inputs = keras.Input([4])
    return keras.Model(inputs, [layers.Dense(1)(inputs), layers.Dense(1)(inputs)], name="fork")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: sequential(layers.SeparableConv2D(3, 3, name="sep")), r"sep \(SeparableConv2D\) cannot be compressed"),
        (lambda: sequential(layers.Dense(3), layers.GRU(3, name="gru"), shape=(5, 2)), r"gru \(GRU\) cannot be"),
        (lambda: sequential(pooled(), shape=(8, 8, 1)), r"\(Functional\) cannot be compressed"),
        (added, r"sum \(Add\) merges 2 inputs"),
        (shared, "twin is shared"),
        (two_inputs, "pair must be a built .* got 2 inputs"),
        (two_outputs, "fork must be a built .* 2 outputs"),
        (lambda: keras.Sequential([layers.Dense(3)], name="late"), "late must be a built"),
        (lambda: sequential(layers.Conv2D(4, 3, groups=2, name="grouped")), "grouped has groups=2"),
        (lambda: sequential(layers.Conv2D(4, 2, dilation_rate=2, name="wide")), r"wide has dilation_rate=\(2, 2\)"),
        (lambda: sequential(layers.Flatten(), layers.Activation("relu")), "has no Dense or Conv2D layer"),
        (
            lambda: sequential(layers.Conv2D(4, 3, activation="relu"), layers.BatchNormalization(name="norm")),
            r"norm \(BatchNormalization\) cannot be folded away",
        ),
        (
            lambda: sequential(layers.BatchNormalization(name="first"), layers.Conv2D(4, 3)),
            r"first \(BatchNormalization\) cannot be folded away",
        ),
        (
            lambda: sequential(layers.Conv2D(4, 3), layers.BatchNormalization(axis=1, name="rows")),
            r"rows \(BatchNormalization\) cannot be folded away",
        ),
        (
            lambda: sequential(layers.Flatten(), layers.Dense(3, activation="softmax", name="odd"), layers.Dense(2)),
            "odd mixes its features",
        ),
        (lambda: sequential(layers.Flatten(), layers.Dense(3), layers.Softmax(), layers.Dense(2)), "mixes its"),
        (
            lambda: sequential(layers.Flatten(), bc.DenseGNJ(3, num_train=5, name="mine")),
            r"\['mine'\] are Bayesian already",
        ),
    ],
)
def test_unsupported_models_are_refused_by_name(build: Callable, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bc.compress(build(), num_train=10)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"prior must be one of \['ghs', 'gnj', 'svd'\], got 'laplace'"):
        bc.compress(pooled(), num_train=10, prior="laplace")
    with pytest.raises(ValueError, match="num_train must be"):
        bc.compress(pooled(), num_train=0)
    model = pooled()
    model.layers[1].kernel.assign(np.full(model.layers[1].kernel.shape, np.nan))
    with pytest.raises(ValueError, match=f"weights of the layer {model.layers[1].name} are not finite"):
        bc.compress(model, num_train=10)


def test_what_is_left_out_is_said(caplog: pytest.LogCaptureFixture) -> None:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((4,)),
            layers.GaussianNoise(0.1),
            layers.Dense(3, kernel_regularizer="l2", name="decayed"),
            layers.GaussianDropout(0.2),
            layers.Dense(3, kernel_constraint=keras.constraints.MaxNorm(2), name="bounded"),
            layers.AlphaDropout(0.1),
            layers.Dense(2, dtype="mixed_bfloat16", name="short"),
        ]
    )
    bayesian = bc.compress(model, num_train=10)
    assert [type(layer) for layer in bayesian.layers] == 3 * [bc.DenseGNJ]
    assert "regularizers of the layers decayed are left out" in caplog.text
    assert "constraints of the layers bounded are left out" in caplog.text
    assert "the layers short" in caplog.text
    assert "compute in bfloat16" in caplog.text
