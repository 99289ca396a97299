"""Layers over sequences, volumes and transposed ones are those over images, whose noise is tested against weights."""

import keras
import numpy as np
import pytest

import compression as bc
from tests.compression.networks import randomise


def sampled(layer: keras.layers.Layer, x: np.ndarray) -> np.ndarray:
    return np.asarray(layer(x, training=True))


@pytest.mark.parametrize("prior", ["GNJ", "GHS", "SVD"])
def test_sequences_and_volumes_are_images_of_one_row(prior: str, rng: np.random.Generator) -> None:
    conv1d, conv2d, conv3d = (getattr(bc, f"Conv{rank}D{prior}") for rank in (1, 2, 3))
    common = {"num_train": 9, "seed": 4, "activation": "tanh"}
    x = rng.normal(size=(4, 1, 7, 2)).astype("float32")
    image = conv2d(3, (1, 3), **common)
    image.build(x.shape)
    randomise(keras.Sequential([image]), rng)
    line = conv1d(3, 3, **common)
    solid = conv3d(3, (1, 1, 3), **common)
    for layer, inputs in ((line, x[:, 0]), (solid, x[:, None])):
        layer.build(inputs.shape)
        for variable, value in zip(layer.weights, image.weights, strict=True):
            variable.assign(np.reshape(value, variable.shape))
    for layer in (image, line, solid):
        bc.seed_noise(keras.Sequential([layer]), 5)
    expected = sampled(image, x)
    np.testing.assert_allclose(sampled(line, x[:, 0]), expected[:, 0], atol=1e-5)
    np.testing.assert_allclose(sampled(solid, x[:, None]), expected[:, None], atol=1e-5)
    assert np.std(expected - np.asarray(image(x))) > 0.01


@pytest.mark.parametrize("prior", ["GNJ", "GHS", "SVD"])
def test_a_transposed_convolution_of_one_pixel_is_a_convolution(prior: str, rng: np.random.Generator) -> None:
    x = rng.normal(size=(4, 3, 2, 5)).astype("float32")
    kinds = (getattr(bc, f"Conv2D{prior}"), getattr(bc, f"Conv2DTranspose{prior}"))
    image, transposed = (kind(3, 1, num_train=9, seed=4) for kind in kinds)
    image.build(x.shape)
    transposed.build(x.shape)
    randomise(keras.Sequential([image]), rng)
    for variable, value in zip(transposed.weights, image.weights, strict=True):
        array = np.asarray(value)
        variable.assign(array.swapaxes(-1, -2) if array.ndim == 4 else array)
    np.testing.assert_allclose(sampled(transposed, x), sampled(image, x), atol=1e-5)
    assert float(transposed.kl_divergence()) == pytest.approx(float(image.kl_divergence()), rel=1e-5)


@pytest.mark.parametrize("prior", ["GNJ", "GHS", "SVD"])
@pytest.mark.parametrize("between", [(1,), (1, 1)])
def test_dense_layers_take_further_axes(prior: str, between: tuple[int, ...], rng: np.random.Generator) -> None:
    """One place is as none; the scales of an example are the same at all of its places."""
    kind = getattr(bc, f"Dense{prior}")
    x = rng.normal(size=(4, 5)).astype("float32")
    longer = x.reshape(4, *between, 5)
    flat, deep = kind(3, num_train=9, seed=4), kind(3, num_train=9, seed=4)
    flat.build(x.shape)
    deep.build(longer.shape)
    randomise(keras.Sequential([flat]), rng)
    deep.set_weights(flat.get_weights())
    np.testing.assert_allclose(sampled(deep, longer), sampled(flat, x).reshape(4, *between, 3), atol=1e-5)
    assert deep.compute_output_shape((None, *between, 5)) == (None, *between, 3)


@pytest.mark.parametrize(
    ("bayesian", "plain", "shape", "settings"),
    [
        (bc.Conv1DGNJ, keras.layers.Conv1D, (9, 2), {"padding": "causal", "dilation_rate": 2}),
        (bc.Conv2DGNJ, keras.layers.Conv2D, (9, 8, 2), {"padding": "same", "dilation_rate": 2}),
        (bc.Conv3DGNJ, keras.layers.Conv3D, (5, 4, 6, 2), {"strides": 2}),
        (bc.Conv2DTransposeGNJ, keras.layers.Conv2DTranspose, (4, 5, 2), {"strides": 2, "padding": "same"}),
        (bc.Conv2DTransposeGHS, keras.layers.Conv2DTranspose, (4, 5, 2), {"strides": (3, 2)}),
    ],
)
def test_without_noise_they_are_those_of_keras(
    bayesian: type, plain: type, shape: tuple, settings: dict, rng: np.random.Generator
) -> None:
    x = rng.normal(size=(2, *shape)).astype("float32")
    layer, other = bayesian(3, 3, num_train=9, seed=1, **settings), plain(3, 3, **settings)
    outputs = np.asarray(layer(x))
    expected = np.asarray(other(x))
    assert outputs.shape == expected.shape == layer.compute_output_shape(x.shape)
    other.set_weights([np.asarray(layer.posterior_mean_kernel()), np.asarray(layer.bias)])
    np.testing.assert_allclose(outputs, other(x), atol=1e-6)
    assert type(layer).from_config(layer.get_config()).get_config() == layer.get_config()
