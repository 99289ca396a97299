"""Patches, and convolutional layers against GPflow's convolutional kernel."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import InducingPatches
from gpflow.kernels import Convolutional

from gpflow_deep import ConvolutionalLayer, DeepGP, Patches, SVGPLayer, make_train_step
from tests.gpflow_deep.builders import COVARIANCE_SHAPES, make_layer, random_kernel, random_q, spread_inputs

SHAPE, PATCH = (4, 3), (2, 2)
PATCHES = Patches((*SHAPE, 1), PATCH)


@pytest.mark.parametrize(
    ("shape", "patch", "stride"), [((4, 3, 1), (2, 2), 1), ((5, 4, 2), (3, 2), 2), ((3, 3, 2), (3, 3), 1)]
)
def test_patches_are_a_loop(
    rng: np.random.Generator, shape: tuple[int, int, int], patch: tuple[int, int], stride: int
) -> None:
    patches = Patches(shape, patch, stride)
    assert patches.num_pixels == np.prod(shape)
    X = rng.standard_normal((2, 3, patches.num_pixels))
    images = X.reshape(6, *shape)
    expected = [
        images[:, i : i + patch[0], j : j + patch[1]].reshape(6, -1)
        for i in range(0, shape[0] - patch[0] + 1, stride)
        for j in range(0, shape[1] - patch[1] + 1, stride)
    ]
    assert patches.num_patches == len(expected)
    np.testing.assert_array_equal(patches(X), np.stack(expected, axis=1).reshape(2, 3, len(expected), -1))


def test_sizes_of_patches() -> None:
    with pytest.raises(ValueError, match=r"images \(28, 28\) and patches \(5, 5\); gray images have 1 channel"):
        Patches((28, 28), (5, 5))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"got images \(28, 28, 1\) and patches \(5, 5, 1\)"):
        Patches((28, 28, 1), (5, 5, 1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"patches must fit into the images, got patches of \(5, 2\) pixels"):
        Patches((4, 3, 1), (5, 2))
    with pytest.raises(ValueError, match=r"the stride must be at least 1, got .* and stride 0"):
        Patches((4, 3, 1), (2, 2), 0)


def parts(rng: np.random.Generator) -> dict[str, Any]:
    q_mu, q_sqrt = random_q(rng, 5, 2)
    return {"Z": spread_inputs(rng, 5, 4), "q_mu": q_mu, "q_sqrt": q_sqrt}


@pytest.mark.parametrize("whiten", [True, False])
def test_mean_of_the_patches_is_the_convolutional_kernels_gp(rng: np.random.Generator, whiten: bool) -> None:
    """Mean over the K positions of a channel, and mean over K x K of their covariances: GPflow's SVGP."""
    kernel, given = random_kernel(rng, 4), parts(rng)
    Z = given.pop("Z")
    layer = ConvolutionalLayer(kernel, Z, PATCHES, 2, whiten=whiten, **given)
    gpflows = gpflow.models.SVGP(
        Convolutional(kernel, SHAPE, PATCH),
        gpflow.likelihoods.Gaussian(),
        InducingPatches(Z),
        num_latent_gps=2,
        whiten=whiten,
        **given,
    )
    X = rng.standard_normal((5, 12))
    moments = layer.latent_moments(X, layer.factors(), full_cov=True)
    mean, cov = (part.numpy() for part in layer.outputs(X, moments, full_cov=True, full_output_cov=True))
    K = layer.num_patches
    expected_mean, expected_cov = gpflows.predict_f(X, full_cov=True)
    np.testing.assert_allclose(mean.reshape(5, K, 2).mean(axis=1), expected_mean, rtol=1e-9, atol=1e-11)
    averaged = cov.reshape(5, K, 2, 5, K, 2).mean(axis=(1, 4))
    np.testing.assert_allclose(np.einsum("ncmc->cnm", averaged), expected_cov, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(averaged[:, 0, :, 1], 0.0, atol=1e-14)  # channels are independent
    np.testing.assert_allclose(layer.prior_kl(layer.factors()), gpflows.prior_kl(), rtol=1e-9)


# `SVGPLayer` with inducing patches, as GPflow's SVGP.


def svgp_layer(rng: np.random.Generator, whiten: bool = True) -> SVGPLayer:
    given = parts(rng)
    kernel = Convolutional(random_kernel(rng, 4), SHAPE, PATCH, weights=rng.uniform(0.5, 1.5, 6))
    return SVGPLayer(kernel, InducingPatches(given.pop("Z")), whiten=whiten, **given)


@pytest.mark.parametrize("whiten", [True, False])
def test_one_layer_with_inducing_patches_is_svgp(rng: np.random.Generator, whiten: bool) -> None:
    """The same formulas: 1e-9 relative at cond(Kuu) < 1e4."""
    layer, likelihood = svgp_layer(rng, whiten), gpflow.likelihoods.Gaussian(0.1)
    assert layer.input_dim == 12
    ours = DeepGP([layer], likelihood, num_data=30)
    gpflows = gpflow.models.SVGP(
        layer.kernel,
        likelihood,
        layer.inducing_variable,
        num_latent_gps=2,
        whiten=whiten,
        num_data=30,
        q_mu=layer.q_mu.numpy(),
        q_sqrt=layer.q_sqrt.numpy(),
    )
    data = rng.standard_normal((7, 12)), rng.standard_normal((7, 2))
    np.testing.assert_allclose(ours.elbo(data), gpflows.elbo(data), rtol=1e-9)
    for full_cov, full_output_cov in COVARIANCE_SHAPES:
        theirs = gpflows.predict_f(data[0], full_cov, full_output_cov)
        for predictor in (ours, ours.posterior()):
            for a, b in zip(predictor.predict_f(data[0], full_cov, full_output_cov), theirs, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(ours.predict_log_density(data), gpflows.predict_log_density(data), rtol=1e-8)


@pytest.mark.parametrize("first", ["kernel", pytest.param("layer", marks=pytest.mark.slow)])
def test_two_layers_train(rng: np.random.Generator, first: str) -> None:
    """A convolutional first layer, by GPflow's kernel or with a map of channels, and a GP: the bound rises."""
    if first == "kernel":
        layer = svgp_layer(rng)
    else:
        given = parts(rng)
        layer = ConvolutionalLayer(random_kernel(rng, 4), given.pop("Z"), PATCHES, 2, **given)
    last = make_layer(rng, layer.output_dim, 1, Z=rng.standard_normal((6, layer.output_dim)))
    model = DeepGP([layer, last], gpflow.likelihoods.Gaussian(0.1), num_data=20)
    X = rng.standard_normal((20, 12))
    data = X, np.sin(X[:, :1] * X[:, 1:2])
    step, before = make_train_step(model, tf.keras.optimizers.Adam(0.02)), float(model.elbo(data, seed=0))
    for t in range(30):
        step(data, np.array([0, t], np.int32))
    assert float(model.elbo(data, seed=0)) > before + 5.0
    assert np.all(np.isfinite(model.predict_y(X)[1]))
    assert model.predict_f_samples(X[:3], 2).shape == (2, 3, 1)
