"""Matheron's rule in one layer: through the inducing outputs, and with the moments of `SVGPLayer.predict`."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import SeparateIndependentInducingVariables, SharedIndependentInducingVariables
from gpflow.kernels import LinearCoregionalization, Matern32, SeparateIndependent, SharedIndependent, White

from gpflow_deep import SVGPLayer
from gpflow_deep.functions.white_noise import row_keys
from tests.gpflow_deep.builders import make_layer, random_kernel, random_q, spread_inputs
from tests.statistical import assert_mean_close


def functions(layer: SVGPLayer, S: int, seed: tf.Tensor, X: np.ndarray, noise: Any = "shared") -> np.ndarray:
    X = tf.constant(X)
    return layer.sample_functions(S, seed, num_features=16, noise=noise)(X, row_keys(X)).numpy()


@pytest.mark.parametrize("whiten", [True, False])
def test_functions_go_through_certain_inducing_outputs(rng: np.random.Generator, seed: tf.Tensor, whiten: bool) -> None:
    """f(Z) = u - e + O(jitter), e ~ N(0, jitter): with a jitter of 1e-8, 1e-4 and six deviations of it."""
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-8)):
        layer = make_layer(rng, 2, 2, whiten=whiten, mean_function=gpflow.mean_functions.Constant([1.0, -2.0]))
        layer.q_sqrt.assign(1e-9 * layer.q_sqrt)
        Z = layer.inducing_variable.Z.numpy()
        u = layer.q_mu.numpy()
        if whiten:
            u = np.linalg.cholesky(layer.kernel(Z).numpy() + 1e-8 * np.eye(6)) @ u
        found = functions(layer, 4, seed, Z)
    np.testing.assert_allclose(found, np.broadcast_to(u + np.array([1.0, -2.0]), (4, 6, 2)), atol=6e-4)


def layers(rng: np.random.Generator) -> dict[str, SVGPLayer]:
    Zs = [gpflow.inducing_variables.InducingPoints(spread_inputs(rng, 6, 2)) for _ in range(2)]
    pair, shared = [random_kernel(rng, 2), Matern32(lengthscales=1.5)], SharedIndependentInducingVariables(Zs[0])
    W = rng.standard_normal((3, 2))
    return {
        "plain": make_layer(rng, 2, 2),
        "q_diag, unwhitened, noise": make_layer(rng, 2, 2, whiten=False, q_diag=True, noise_variance=0.2),
        "shared kernel": make_layer(rng, 2, 2, kernel=SharedIndependent(pair[0], 2), Z=shared),
        "separate kernels": make_layer(rng, 2, 2, kernel=SeparateIndependent(pair), Z=shared, noise_variance=0.1),
        "separate Z": make_layer(rng, 2, 2, Z=SeparateIndependentInducingVariables(Zs)),
        "coregionalised, noise": make_layer(
            rng, 2, 2, kernel=LinearCoregionalization([pair[0], pair[1] + White(0.2)], W), Z=shared, noise_variance=0.1
        ),
        "propagated inputs": make_layer(
            rng, 2, 2, input_propagation=1, mean_function=gpflow.mean_functions.Linear(A=W[:2])
        ),
    }


NAMES = list(layers(np.random.default_rng(0)))


@pytest.mark.parametrize("name", NAMES)
def test_moments_are_those_of_the_layer(rng: np.random.Generator, seed: tf.Tensor, name: str) -> None:
    """Means, and covariances between outputs and inputs: the rule is exact for both, whatever the features."""
    layer, X = layers(rng)[name], rng.uniform(-2, 2, (3, 2))
    draws = functions(layer, 3000, seed, X, noise="white")
    mean, cov = (part.numpy() for part in layer.predict(X, full_cov=True, full_output_cov=True))  # [N, P, N, P]
    start = layer.input_propagation
    assert_mean_close(draws[..., start:], mean[:, start:], min_detectable=0.3)
    centred = (draws - mean)[..., start:]
    products = np.einsum("snp,smq->snpmq", centred, centred)
    assert_mean_close(products, cov[:, start:, :, start:], min_detectable=1.0)
    np.testing.assert_array_equal(draws[..., :start], np.broadcast_to(X[:, :start], (3000, 3, start)))


def test_shared_noise_has_the_same_marginals_and_is_smooth(rng: np.random.Generator, seed: tf.Tensor) -> None:
    layer, X = make_layer(rng, 2, 1, noise_variance=0.5), rng.uniform(-2, 2, (3, 2))
    draws = functions(layer, 3000, seed, X)[..., 0]
    mean, var = (part.numpy()[:, 0] for part in layer.predict(X))
    assert_mean_close(np.square(draws - mean), var, min_detectable=0.3)
    step = np.abs(functions(layer, 50, seed, X + 1e-7) - functions(layer, 50, seed, X))
    assert np.max(step) < 1e-5
    assert np.min(np.abs(functions(layer, 50, seed, X + 1e-7, "white") - functions(layer, 50, seed, X, "white"))) > 1e-5


def test_later_changes_of_the_layer_do_not_change_functions(rng: np.random.Generator, seed: tf.Tensor) -> None:
    mean = gpflow.mean_functions.Linear(A=np.eye(2))
    layer, X = make_layer(rng, 2, 2, mean_function=mean, noise_variance=0.1), tf.constant(rng.uniform(-2, 2, (3, 2)))
    function = layer.sample_functions(2, seed, num_features=16, noise="shared")
    before = function(X, row_keys(X))
    for parameter in layer.trainable_parameters:
        parameter.unconstrained_variable.assign_add(0.3 * tf.ones_like(parameter.unconstrained_variable))
    np.testing.assert_array_equal(function(X, row_keys(X)), before)


def test_parts_without_functions_are_named(rng: np.random.Generator, seed: tf.Tensor) -> None:
    layer = make_layer(rng, 2, 1, kernel=gpflow.kernels.ArcCosine())
    layer.label = "layer 2 of 3"
    with pytest.raises(ValueError, match=r"layer 2 of 3: .* got ArcCosine"):
        functions(layer, 2, seed, np.zeros((1, 2)))
    q_mu, q_sqrt = random_q(rng, 3, 1)
    Z = gpflow.inducing_variables.Multiscale(rng.standard_normal((3, 2)), 0.1 * np.ones((3, 2)))
    layer = SVGPLayer(random_kernel(rng, 2), Z, q_mu=q_mu, q_sqrt=q_sqrt)
    with pytest.raises(ValueError, match="with InducingPoints, got Multiscale"):
        functions(layer, 2, seed, np.zeros((1, 2)))
