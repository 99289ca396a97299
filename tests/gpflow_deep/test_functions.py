"""Functions drawn from deep GPs."""

import pickle
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_deep
from gpflow_deep import (
    BayesianLinearLayer,
    ConvolutionalLayer,
    DeepGP,
    FeatureLayer,
    Patches,
    SVGPLayer,
)
from gpflow_deep.functions import functions
from tests.gpflow_deep.builders import (
    assert_functions_are_kept,
    make_layer,
    make_model,
    random_kernel,
    random_q,
    spread_inputs,
)
from tests.statistical import assert_mean_close


def test_marginals_and_covariances_are_those_of_predict_f(rng: np.random.Generator) -> None:
    """4,000 functions through two layers with noise between them, against 4,096 Sobol points, whose error is far
    below that of draws; and covariances against joint draws, with a sixth standard error for theirs.

    Of 35 numbers some are off by more than 3 standard errors in one of eleven runs. 5 of those of 4,000 functions are
    less than 3 of 1,000, and are passed in one of 50,000.
    """
    model = make_model(rng, (2, 2, 1), layer_options={"noise_variance": 0.05})
    X = rng.uniform(-2, 2, (5, 2))
    options: dict[str, Any] = {"num_features": 64, "noise": "white", "seed": int(rng.integers(1000))}
    draws = model.sample_functions(4000, **options)(X).numpy()[..., 0]
    mean, var = (part.numpy()[:, 0] for part in model.predict_f(X, num_samples=4096))
    assert_mean_close(draws, mean, min_detectable=0.095 * np.sqrt(var))  # 3 / sqrt(1000)
    assert_mean_close(np.square(draws - mean), var, min_detectable=0.25 * var)
    _, cov = model.predict_f(X, full_cov=True, num_samples=8000)
    products = (draws - mean)[:, :, None] * (draws - mean)[:, None, :]
    assert_mean_close(products, cov[0], num_se=6, min_detectable=0.25 * np.max(var))


def test_values_are_those_of_functions(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in any batch, in slices or at once, in or outside a graph, and where each function has its inputs."""
    model = make_model(rng, (2, 2, 1), layer_options={"noise_variance": 0.05})
    X = rng.uniform(-2, 2, (7, 2))
    for noise in ("shared", "white"):
        drawn = model.sample_functions(3, noise=noise, num_features=16, seed=1)  # type: ignore[arg-type]
        values = drawn(X)
        assert values.shape == (3, 7, 1)
        np.testing.assert_array_equal(drawn(X), values)
        np.testing.assert_allclose(drawn(X[2:4]), values[:, 2:4], rtol=1e-10)
        np.testing.assert_allclose(drawn(np.stack([X, X, X])), values, rtol=1e-10)
        own = np.stack([X, X[::-1], X + 1.0])
        np.testing.assert_allclose(drawn(own)[1], values[1, ::-1], rtol=1e-10)
        with monkeypatch.context() as patch:
            patch.setattr(functions, "SLICE_BYTES", 1)
            np.testing.assert_allclose(drawn(X), values, rtol=1e-10)
            np.testing.assert_allclose(drawn(own)[1], values[1, ::-1], rtol=1e-10)
        again = model.sample_functions(3, noise=noise, num_features=16, seed=1)(X)  # type: ignore[arg-type]
        np.testing.assert_array_equal(again, values)
    compiled = tf.function(drawn, input_signature=[tf.TensorSpec([None, 2], tf.float64)], autograph=False)
    np.testing.assert_allclose(compiled(tf.constant(X)), values, rtol=1e-10)
    assert not np.any(np.isclose(model.sample_functions(3)(X), model.sample_functions(3)(X)))  # fresh ones


def test_derivatives_are_those_of_finite_differences(rng: np.random.Generator) -> None:
    """Central differences of step 1e-5: truncation 1e-10, rounding 1e-16 / 1e-5, of functions of the order of 1."""
    kernel = gpflow.kernels.Matern52(lengthscales=[1.0, 1.5]) + gpflow.kernels.Linear(variance=0.3)
    model = DeepGP([make_layer(rng, 2, 2, kernel=kernel, noise_variance=0.1), make_layer(rng, 2, 1)], gaussian())
    drawn, X = model.sample_functions(3, seed=2), tf.Variable(rng.uniform(-2, 2, (4, 2)))
    with tf.GradientTape() as outer, tf.GradientTape() as tape:
        total = tf.reduce_sum(drawn(X)[1])
        slope = tape.gradient(total, X)
        first = slope[0, 0]
    curvature = outer.gradient(first, X)
    with tf.GradientTape() as tape:
        shifted = X + np.array([1e-5, 0.0])
        tape.watch(shifted)
        total = tf.reduce_sum(drawn(shifted)[1])
    np.testing.assert_allclose((tape.gradient(total, shifted) - slope)[0, 0] / 1e-5, curvature[0, 0], rtol=1e-3)
    for column in range(2):
        step = 1e-5 * np.eye(2)[column]
        expected = (drawn(X.numpy() + step)[1] - drawn(X.numpy() - step)[1])[:, 0] / 2e-5
        np.testing.assert_allclose(slope[:, column], expected, rtol=1e-6, atol=1e-8)


def gaussian() -> gpflow.likelihoods.Gaussian:
    return gpflow.likelihoods.Gaussian()


def test_the_same_functions_after_saving_and_loading(rng: np.random.Generator, tmp_path: Path) -> None:
    """By the model and the seed, by a pickle of the functions, and by TensorFlow's export: bit for bit."""
    X = rng.uniform(-2, 2, (40, 2))
    model = gpflow_deep.paper2017(X, np.sin(X[:, :1]), 2, num_inducing=10)
    drawn = model.sample_functions(2, seed=5)
    gpflow_deep.save_model(model, tmp_path / "model.npz")
    loaded = gpflow_deep.load_model(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.sample_functions(2, seed=5)(X), drawn(X))
    np.testing.assert_array_equal(loaded.posterior().sample_functions(2, seed=5)(X), drawn(X))
    assert_functions_are_kept(drawn, X, tmp_path)


def test_other_layers(rng: np.random.Generator) -> None:
    """Features, patches and Bayesian linear layers: means and variances of the whole."""
    images, patches = rng.standard_normal((4, 12)), Patches((4, 3, 1), (2, 2))
    q_mu, q_sqrt = random_q(rng, 5, 2)
    maps = ConvolutionalLayer(
        random_kernel(rng, 4), spread_inputs(rng, 5, 4), patches, 2, q_mu=q_mu, q_sqrt=q_sqrt, noise_variance=0.1
    )
    last = BayesianLinearLayer(3, 2)
    last.q_mu.assign(rng.standard_normal((4, 2)))
    A = rng.standard_normal((12, 3)) / 3
    model = DeepGP([maps, FeatureLayer(lambda F: tf.tanh(F @ A), 12), last], gpflow.likelihoods.MultiClass(2))
    draws = model.sample_functions(2000, noise="white", seed=1)(images).numpy()
    mean, var = (part.numpy() for part in model.predict_f(images, num_samples=4096))
    assert_mean_close(draws, mean, min_detectable=0.5 * np.sqrt(var))
    assert_mean_close(np.square(draws - mean), var, min_detectable=0.7 * var)
    pickle.loads(pickle.dumps(make_model(rng, (2, 1)).sample_functions(1)))
    joint = DeepGP([maps], gaussian())
    draws = joint.sample_functions(2000, noise="white", seed=2)(images[:2]).numpy()
    mean, cov = joint.predict_f(images[:2], full_cov=True, full_output_cov=True)
    centred = draws - mean
    assert_mean_close(np.einsum("snp,smq->snpmq", centred, centred), cov, min_detectable=1.0)
    only = DeepGP([FeatureLayer(lambda F: F @ A, 12)], gpflow.likelihoods.MultiClass(3))
    np.testing.assert_allclose(only.sample_functions(2)(images), np.stack([images @ A] * 2), rtol=1e-12)


def test_functions_of_white_noise_alone(rng: np.random.Generator) -> None:
    """They are 0 but for the noise, of which each has one number, or another one at each input."""
    kernel = gpflow.kernels.SquaredExponential() * gpflow.kernels.White(0.5) + gpflow.kernels.White(0.25)
    model = DeepGP([SVGPLayer(kernel, rng.normal(size=(3, 2)))], gaussian())
    X = rng.normal(size=(4, 2))
    shared, white = (
        model.sample_functions(2000, seed=0, noise=kind)(X).numpy()[..., 0] for kind in ("shared", "white")
    )
    np.testing.assert_array_equal(shared, np.tile(shared[:, :1], 4))
    assert_mean_close(white**2, 0.75, min_detectable=0.2)
    assert_mean_close(white[:, 0] * white[:, 1], 0.0, min_detectable=0.2)


def test_float32_models(rng: np.random.Generator) -> None:
    with gpflow_deep.float_type("float32"):
        model = make_model(rng, (2, 2, 1))
        X = rng.uniform(-2, 2, (4, 2)).astype(np.float32)
        values = model.sample_functions(2, seed=1, noise="white")(X)
    assert values.dtype == tf.float32
    assert np.all(np.isfinite(values))


class NoFunctions(tf.Module):
    """A layer of a user, without functions."""

    dtype, input_dim, output_dim, num_latent_gps, floats_per_row, label = tf.float64, 2, 1, 1, 1, ""
    factors = cache = prior_kl = latent_moments = outputs = sample = lambda self, *given, **options: ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_functions": 0}, "num_functions must be at least 1, got 0"),
        ({"num_functions": 1, "num_features": 7}, "num_features must be even and at least 2"),
        ({"num_functions": 1, "noise": "none"}, "noise must be 'shared' or 'white', got 'none'"),
    ],
)
def test_wrong_arguments(rng: np.random.Generator, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_model(rng, (2, 1)).sample_functions(**options)


def test_wrong_inputs_and_layers(rng: np.random.Generator) -> None:
    model = make_model(rng, (2, 1))
    drawn = model.sample_functions(2)
    for X, message in (
        (np.zeros((3, 3)), r"X must have shape \[N, 2\] or \[2, N, 2\], got \(3, 3\)"),
        (np.zeros(2), r"got \(2,\)"),
        (np.zeros((3, 4, 2)), "inputs of each of the 2 functions"),
        (np.zeros((3, 2), np.float32), "float64, got float32; cast X"),
    ):
        with pytest.raises(ValueError, match=message):
            drawn(X)
    with pytest.raises(ValueError, match="a method sample_functions, got NoFunctions as layer 1"):
        DeepGP([NoFunctions()], gaussian()).sample_functions(1)
    with pytest.raises(ValueError, match=r"outside of tf\.function"):
        tf.function(lambda: model.sample_functions(1)(np.zeros((1, 2))))()
