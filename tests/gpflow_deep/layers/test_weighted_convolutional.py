"""Weighted convolutional layers against GPflow's convolutional kernel and against convolutional layers."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import InducingPatches
from gpflow.kernels import Convolutional, Matern32

from gpflow_deep import (
    ConvolutionalLayer,
    DeepGP,
    Patches,
    Trainer,
    TrainingConfig,
    WeightedConvolutionalLayer,
    convolutional,
)
from tests.gpflow_deep.builders import random_kernel, random_q, spread_inputs
from tests.statistical import assert_mean_close

SHAPE, PATCH = (4, 3), (2, 2)
PLAIN = Patches((*SHAPE, 1), PATCH)
WITH_PLACES = Patches((*SHAPE, 1), PATCH, place_scale=0.5)


def parts(rng: np.random.Generator, patches: Patches = PLAIN) -> dict[str, Any]:
    q_mu, q_sqrt = random_q(rng, 5, 2)
    Z = spread_inputs(rng, 5, patches.patch_dim)
    return {"Z": Z, "q_mu": q_mu, "q_sqrt": q_sqrt, "weights": rng.uniform(0.5, 1.5, patches.num_patches)}


def layer_of(rng: np.random.Generator, patches: Patches = PLAIN, **options: Any) -> WeightedConvolutionalLayer:
    given = {**parts(rng, patches), "precision": "full", **options}
    kernel = given.pop("kernel", None) or random_kernel(rng, patches.patch_dim)
    return WeightedConvolutionalLayer(kernel, given.pop("Z"), patches, 2, **given)


def test_places_are_appended(rng: np.random.Generator) -> None:
    X = rng.standard_normal((2, 20))
    found = Patches((5, 4, 1), (2, 2), stride=2, place_scale=0.5)(X).numpy()
    np.testing.assert_array_equal(found[..., :4], Patches((5, 4, 1), (2, 2), stride=2)(X))
    np.testing.assert_array_equal(found[0, :, 4:], [[0, 0], [0, 1], [1, 0], [1, 1]])
    np.testing.assert_array_equal(found[1, :, 4:], found[0, :, 4:])


@pytest.mark.parametrize(("whiten", "is_fast"), [(True, True), (False, False)])
def test_weights_without_places_are_gpflows_kernel(rng: np.random.Generator, whiten: bool, is_fast: bool) -> None:
    """Bound, its gradients, and predictions; by the sums of squared exponentials, and by those of other kernels."""
    layer = layer_of(rng, whiten=whiten, **({} if is_fast else {"kernel": Matern32(lengthscales=2.0)}))
    likelihood, X, Y = gpflow.likelihoods.Gaussian(0.1), rng.standard_normal((7, 12)), rng.standard_normal((7, 2))
    ours = DeepGP([layer], likelihood, num_data=30)
    kernel: Any = Convolutional(layer.gp.kernel, SHAPE, PATCH)
    kernel.weights = layer.weights
    options: dict[str, Any] = {"num_latent_gps": 2, "whiten": whiten, "num_data": 30}
    gpflows = gpflow.models.SVGP(kernel, likelihood, InducingPatches(np.zeros([5, 4])), **options)
    gpflows.inducing_variable.Z, gpflows.q_mu, gpflows.q_sqrt = (
        layer.gp.inducing_variable.Z,
        layer.gp.q_mu,
        layer.gp.q_sqrt,
    )
    bounds = []
    for model in (ours, gpflows):
        with tf.GradientTape() as tape:
            bound = model.elbo((X, Y))
        bounds.append([bound, *tape.gradient(bound, ours.trainable_variables)])
    for a, b in zip(*bounds, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8)
    for full_cov in (False, True):
        for a, b in zip(ours.predict_f(X, full_cov), gpflows.predict_f(X, full_cov), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(ours.posterior().predict_f(X)[1], gpflows.predict_f(X)[1], rtol=1e-8, atol=1e-9)


def test_weighted_mean_of_the_map(rng: np.random.Generator) -> None:
    """With places: weighted means of the outputs of a convolutional layer at all patches, and of their covariances."""
    layer, X = layer_of(rng, WITH_PLACES), rng.standard_normal((3, 4, 12))
    given = {"q_mu": layer.gp.q_mu.numpy(), "q_sqrt": layer.gp.q_sqrt.numpy()}
    maps = ConvolutionalLayer(layer.gp.kernel, layer.gp.inducing_variable.Z.numpy(), WITH_PLACES, 2, **given)
    moments = maps.latent_moments(X, maps.factors())
    w = layer.weights.numpy() / maps.num_patches
    for full_cov in (False, True):
        found = layer.latent_moments(X, layer.factors(), full_cov=full_cov)
        np.testing.assert_allclose(found.mean, np.einsum("snkc,k->snc", moments.mean, w), rtol=1e-9, atol=1e-12)
        variances = found.cov if not full_cov else np.moveaxis(np.diagonal(found.cov, axis1=2, axis2=3), 1, -1)
        expected = np.einsum("sncij,i,j->snc", moments.cov, w, w)
        np.testing.assert_allclose(variances, expected, rtol=1e-8, atol=1e-11)
    mean, cov = layer.outputs(X, found, full_cov=True, full_output_cov=True)
    assert (mean.shape, cov.shape) == ((3, 4, 2), (3, 4, 2, 4, 2))
    np.testing.assert_allclose(cov[1, :, 0, :, 0], found.cov[1, 0])


def test_float32_changes_little(rng: np.random.Generator) -> None:
    """The same trained model with sums over patches and products with q's covariances in float32, and without: moments
    of f to 1e-3 of a prior deviation of 2 or more, as an error of 1e-6 in a covariance grows by at most
    1 / sqrt(jitter) = 1e3 in the directions in which Kuu is singular; the bound per row likewise."""
    X, Y = rng.uniform(size=(40, 64)) * (rng.uniform(size=(40, 64)) < 0.4), rng.integers(0, 3, (40, 1)).astype(float)
    model = convolutional(X, Y, (8, 8), likelihood=gpflow.likelihoods.MultiClass(3), num_inducing=30)
    trainer, batch = Trainer(model, TrainingConfig(0.02)), (tf.constant(X), tf.constant(Y))
    trainer.advance(lambda t: batch, 0, 40, tf.constant([0, 1]))
    found = []
    for precision in ("mixed", "full"):
        model.layers[0].precision = precision
        found.append([float(model.elbo(batch)) / 40, *model.predict_f(X)])
    for low, full in zip(*found, strict=True):
        np.testing.assert_allclose(low, full, rtol=0, atol=2e-3)
    assert np.any(found[0][1] != found[1][1])
    assert np.std(found[1][1]) > 0.1


def test_patches_are_extracted_once_per_batch(rng: np.random.Generator) -> None:
    model, X = DeepGP([layer_of(rng, WITH_PLACES)], gpflow.likelihoods.Gaussian()), rng.standard_normal((6, 12))
    graph = tf.function(lambda: model.elbo((X, X[:, :2])), autograph=False).get_concrete_function().graph
    assert sum(operation.type == "ExtractImagePatches" for operation in graph.get_operations()) == 1


def test_functions_have_the_predictions_marginals(rng: np.random.Generator) -> None:
    model, X = DeepGP([layer_of(rng, WITH_PLACES)], gpflow.likelihoods.Gaussian()), rng.standard_normal((2, 12))
    drawn = model.sample_functions(4000, seed=1)(X).numpy()  # [S, N, P]
    mean, var = (moment.numpy() for moment in model.predict_f(X))
    for n, p in np.ndindex(2, 2):
        standard = (drawn[:, n, p] - mean[n, p]) / np.sqrt(var[n, p])
        assert_mean_close(standard, 0.0, num_se=5, min_detectable=0.1)
        assert_mean_close(standard**2, 1.0, num_se=5, min_detectable=0.2)


def test_what_does_not_fit_is_refused(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match=r"Z must be patches \[M, 4\], got shape \[5, 6\]"):
        layer_of(rng, Z=np.zeros((5, 6)))
    with pytest.raises(ValueError, match=r"weights must be one for each of the 6 patches, got shape \[5\]"):
        layer_of(rng, weights=np.ones(5))
    with pytest.raises(ValueError, match="can have neither noise_variance nor q_diag"):
        layer_of(rng, noise_variance=0.1)
