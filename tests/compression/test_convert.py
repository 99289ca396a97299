"""Conversion keeps the predictions, and refuses what it cannot keep."""

from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest

import compression as bc
from compression.graph.convert import folded
from tests.compression.networks import PRIORS, randomised

layers = keras.layers


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


def shared() -> keras.Model:
    inputs, twin = keras.Input([4]), layers.Dense(4, name="twin")
    return keras.Model(inputs, twin(twin(inputs)))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: keras.Sequential([layers.Dense(3)], name="late"), "late must be a built"),
        (lambda: sequential(layers.Flatten(), layers.Activation("relu")), "has no Dense layer and no convolution"),
        (lambda: sequential(layers.LSTM(4), shape=(5, 2)), "has no Dense layer and no convolution"),
        (shared, "has no Dense layer and no convolution"),
        (
            lambda: sequential(layers.Flatten(), bc.DenseGNJ(3, num_train=5, name="mine")),
            r"\['mine'\] are Bayesian already",
        ),
    ],
)
def test_what_cannot_be_compressed_is_refused(build: Callable, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bc.compress(build(), num_train=10)


def test_what_cannot_be_shrunk_stays_and_is_named(caplog: pytest.LogCaptureFixture, rng: np.random.Generator) -> None:
    inputs, twin = keras.Input([5, 4]), layers.Dense(6, name="twin")
    x = layers.GRU(4, name="gru", return_sequences=True)(twin(inputs))
    x = layers.Conv1D(6, 1, groups=2, name="grouped")(x)
    x = layers.LayerNormalization(name="norm")(layers.Dense(4, "softmax", name="mixed")(x))
    model = randomised(keras.Model(inputs, layers.Dense(2, name="last")(layers.Flatten()(twin(x)))), rng)
    bayesian = bc.compress(model, num_train=9)
    assert bc.left_whole(bayesian) == bc.left_whole(model) == ["twin", "gru", "grouped", "norm"]
    assert "twin (Dense), gru (GRU), grouped (Conv1D), norm (LayerNormalization) stay whole" in caplog.text
    assert [layer.name for layer in bc.bayesian_layers(bayesian)] == ["mixed", "last"]
    x = rng.normal(size=(3, 5, 4)).astype("float32")
    np.testing.assert_allclose(bayesian(x), model(x), atol=1e-5)


def test_normalisation_that_cannot_be_folded_stays(rng: np.random.Generator) -> None:
    first, second, rows = (layers.BatchNormalization(axis=axis) for axis in (-1, -1, 1))
    body = [first, layers.Conv2D(4, 3, activation="relu"), second, layers.Conv2D(3, 2), rows, layers.Flatten()]
    model = randomised(sequential(*body, layers.Dense(2)), rng)
    bayesian = bc.compress(model, num_train=9)
    assert sum(isinstance(layer, layers.BatchNormalization) for layer in bayesian.layers) == 3
    x = rng.normal(size=(3, 6, 6, 2)).astype("float32")
    np.testing.assert_allclose(bayesian(x), model(x), atol=1e-5)


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


@pytest.mark.parametrize("kind", ["with a mask", "called twice"])
def test_words_of_a_fixed_number_stay_whole(kind: str, rng: np.random.Generator) -> None:
    """An embedding that cannot be cut; units behind it can."""
    words = keras.Input((5,), dtype="int32")
    embedding = keras.layers.Embedding(9, 4, mask_zero=kind == "with a mask")
    x = embedding(words)
    if kind == "called twice":
        x = keras.layers.Concatenate(axis=1)([x, embedding(words[:, ::-1])])
    model = keras.Model(words, keras.layers.Dense(2)(keras.layers.Dense(6, "relu")(keras.layers.LSTM(3)(x))))
    drawn = rng.integers(0, 9, (7, 5))
    bayesian = bc.compress(model, num_train=10)
    np.testing.assert_allclose(bayesian(drawn), model(drawn), rtol=0, atol=1e-5)
    assert np.ptp(np.asarray(model(drawn)), axis=0).max() > 1e-4


def test_batch_normalisation_goes_into_the_weights_of_a_file(tmp_path: Path, rng: np.random.Generator) -> None:
    """Where it alone takes what a layer without activation gives: four of seven."""
    L = keras.layers
    i = keras.Input((8, 8, 3))
    x = L.ReLU()(L.BatchNormalization(epsilon=0.1)(L.Conv2D(4, 3, use_bias=False)(i)))
    x = L.BatchNormalization(scale=False)(L.DepthwiseConv2D(2, use_bias=False)(x))
    x = L.BatchNormalization(center=False)(L.Conv2DTranspose(5, 2, name="up")(L.ReLU(6.0)(x)))
    both = L.Conv2D(5, 1)(x)
    x = L.Add()([both, L.BatchNormalization()(both)])
    x = L.BatchNormalization()(L.Conv2D(4, 1, activation="relu")(x))
    x = L.BatchNormalization()(L.Dense(6)(L.GlobalAveragePooling2D()(L.BatchNormalization()(x))))
    model = keras.Model(i, x)
    for variable in model.variables:
        variable.assign(np.abs(rng.normal(size=variable.shape)) + 0.2 if "variance" in variable.name else
                        rng.normal(size=variable.shape))  # fmt: skip
    rows = rng.normal(size=(5, 8, 8, 3)).astype(np.float32)
    expected = np.asarray(model(rows))
    same = folded(model)
    np.testing.assert_allclose(same(rows), expected, rtol=0, atol=1e-4 * np.abs(expected).max())
    assert np.ptp(expected, axis=0).max() > 0.1
    assert sum(isinstance(layer, L.BatchNormalization) for layer in same.layers) == 3
    packed = bc.pack(model, tmp_path / "n.bcz", calibration=rows, bits=8)
    assert bc.load(packed.path).get_layer("up").use_bias
