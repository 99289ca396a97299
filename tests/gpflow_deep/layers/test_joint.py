"""Draws at several inputs of each row, and their slopes with the function held fixed."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import SquaredExponential

from gpflow_deep import BayesianLinearLayer, FeatureLayer, SVGPLayer
from gpflow_deep.layers import ConvolutionalLayer, Patches
from gpflow_deep.layers.joint import joint_draw
from tests.gpflow_deep.builders import make_layer, random_kernel

R, K, D = 2, 3, 2


def mixed(rng: np.random.Generator) -> SVGPLayer:
    kernel = gpflow.kernels.LinearCoregionalization([random_kernel(rng, D) for _ in range(2)], rng.normal(size=(3, 2)))
    return make_layer(rng, D, 2, kernel=kernel, mean_function=gpflow.mean_functions.Linear(rng.normal(size=(D, 3))))


LAYERS: dict[str, Callable[[np.random.Generator], Any]] = {
    "shared": lambda rng: make_layer(rng, D, 2, noise_variance=0.1, input_propagation=1),
    "one kernel": lambda rng: make_layer(rng, D, 2, whiten=False),
    "diagonal": lambda rng: make_layer(rng, D, 2, q_diag=True),
    "separate, mixed": mixed,
    "linear": lambda rng: BayesianLinearLayer(D, 2),
}


@pytest.mark.parametrize("name", list(LAYERS))
def test_slopes_are_those_of_the_mean_given_the_draws(rng: np.random.Generator, name: str) -> None:
    """Draws as of `sample`; the slope at each input by central differences of E[f(h) | F], in NumPy."""
    layer = LAYERS[name](rng)
    factors, L = layer.factors(), layer.num_latent_gps
    H, noise = rng.uniform(-1.5, 1.5, (R, K, D)), tf.constant(rng.standard_normal((R, K, L)))
    moments = layer.latent_moments(tf.constant(H), factors, full_cov=True)
    inputs = tf.constant(H)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        F = joint_draw(layer, factors, inputs, noise)
        c = tf.constant(rng.standard_normal(F.shape))
        total = tf.reduce_sum(c * F)
    np.testing.assert_allclose(F, layer.sample(inputs, moments, noise, full_cov=True), rtol=1e-9, atol=1e-9)
    mean, cov = (np.asarray(part) for part in moments)
    root = np.linalg.cholesky(cov)
    alpha = np.linalg.solve(np.swapaxes(root, -1, -2), np.swapaxes(noise, 1, 2)[..., None])

    def through_draws(h: np.ndarray) -> np.ndarray:
        both = layer.latent_moments(tf.constant(np.concatenate([h, H], axis=1)), factors, full_cov=True)
        update = (both.cov.numpy()[..., :K, K:] @ alpha)[..., 0]
        values = both.mean.numpy()[:, :K] + np.swapaxes(update, 1, 2)
        zeros = tf.zeros_like(values)
        return np.asarray(layer.sample(tf.constant(h), moments._replace(mean=values, cov=zeros), zeros))

    expected = np.zeros_like(H)
    for d in range(D):
        step = 1e-5 * np.eye(D)[d]
        difference = (through_draws(H + step) - through_draws(H - step)) / 2e-5
        expected[..., d] = np.sum(c * difference, axis=-1)
    np.testing.assert_allclose(tape.gradient(total, inputs), expected, rtol=1e-5, atol=1e-6)
    assert mean.shape == (R, K, L)


def test_parameters_have_the_gradient_of_the_draw(rng: np.random.Generator) -> None:
    layer, H = make_layer(rng, D, 2), tf.constant(rng.uniform(-1.5, 1.5, (R, K, D)))
    noise, found = tf.constant(rng.standard_normal((R, K, 2))), []
    for draw in (
        lambda factors: joint_draw(layer, factors, H, noise),
        lambda factors: layer.sample(H, layer.latent_moments(H, factors, full_cov=True), noise, full_cov=True),
    ):
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(tf.sin(draw(layer.factors())))
        found.append(tape.gradient(total, layer.trainable_variables))
    for joint, plain in zip(*found, strict=True):
        np.testing.assert_allclose(joint, plain, rtol=1e-7, atol=1e-9)


def test_equal_inputs_have_equal_outputs(rng: np.random.Generator) -> None:
    """Up to jitter; and slopes are finite."""
    layer, H = make_layer(rng, D, 2), tf.constant(np.repeat(rng.uniform(-1, 1, (R, 1, D)), K, axis=1))
    with tf.GradientTape() as tape:
        tape.watch(H)
        F = joint_draw(layer, layer.factors(), H, tf.constant(rng.standard_normal((R, K, 2))))
    np.testing.assert_allclose(F, np.repeat(F[:, :1], K, axis=1), atol=20 * np.sqrt(gpflow.default_jitter()))
    assert np.all(np.isfinite(tape.gradient(F, H)))


def test_layers_without_draws_and_of_images(rng: np.random.Generator) -> None:
    H = tf.constant(rng.standard_normal((R, K, 4)))
    np.testing.assert_array_equal(joint_draw(FeatureLayer(tf.sin, 4), (), H, tf.zeros([R, K, 0])), tf.sin(H))
    of_images = ConvolutionalLayer(SquaredExponential(), rng.standard_normal((3, 1)), Patches((2, 2, 1), (1, 1)), 1)
    with pytest.raises(ValueError, match="must be one of GPs of its inputs"):
        joint_draw(of_images, of_images.factors(), H, tf.zeros([R, K, 4], tf.float64))
