"""Every layer keeps the promises of `Layer`, and a `DeepGP` of any layers does what one of `SVGPLayer` does."""

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep import (
    BayesianLinearLayer,
    ConvolutionalLayer,
    DeepGP,
    FeatureLayer,
    Layer,
    Patches,
    SVGPLayer,
    load_model,
    save_model,
)
from gpflow_deep.layers.protocol import MEMBERS
from tests.gpflow_deep.builders import COVARIANCE_SHAPES, make_layer, random_kernel, random_q, spread_inputs
from tests.statistical import assert_mean_close

D = 6  # an image of 3 x 2 pixels


def svgp(rng: np.random.Generator) -> SVGPLayer:
    return make_layer(rng, D, 2, noise_variance=0.05)


def linear(rng: np.random.Generator) -> BayesianLinearLayer:
    layer = BayesianLinearLayer(D, 3, variance=0.4)
    q_mu, q_sqrt = random_q(rng, D + 1, 3)
    layer.q_mu.assign(q_mu)
    layer.q_sqrt.assign(q_sqrt)
    return layer


def features(rng: np.random.Generator) -> FeatureLayer:
    network = keras.Sequential([keras.Input((D,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(2)])
    return FeatureLayer(network, D)


def convolutional(rng: np.random.Generator) -> ConvolutionalLayer:
    q_mu, q_sqrt = random_q(rng, 5, 2)
    options = {"q_mu": q_mu, "q_sqrt": q_sqrt, "noise_variance": 0.05}
    Z = spread_inputs(rng, 5, 4)
    return ConvolutionalLayer(random_kernel(rng, 4), Z, Patches((3, 2, 1), (2, 2)), 2, **options)


LAYERS: dict[str, Callable[[np.random.Generator], Any]] = {
    "svgp": svgp,
    "linear": linear,
    "features": features,
    "convolutional": convolutional,
}


@pytest.fixture(params=LAYERS)
def layer(request: pytest.FixtureRequest, rng: np.random.Generator) -> Any:
    return LAYERS[request.param](rng)


def outputs(layer: Layer, X: Any, full_cov: bool, full_output_cov: bool, factors: Any = None) -> tuple[Any, Any]:
    factors = layer.factors() if factors is None else factors
    moments = layer.latent_moments(X, factors, full_cov=full_cov)
    mean, cov = layer.outputs(X, moments, full_cov=full_cov, full_output_cov=full_output_cov)
    return mean.numpy(), cov.numpy()


def test_attributes(layer: Any) -> None:
    assert not [member for member in MEMBERS if not hasattr(layer, member)]
    assert (layer.dtype, layer.input_dim) == (tf.float64, D)
    assert layer.floats_per_row >= 1
    layer.label = "layer 3 of 4"
    assert layer.label == "layer 3 of 4"
    assert layer.prior_kl(layer.factors()).shape == ()
    assert float(layer.prior_kl(layer.factors())) >= 0.0


def test_members_are_six_attributes_and_six_methods() -> None:
    methods = [name for name in MEMBERS if inspect.isfunction(getattr(Layer, name, None))]
    assert len(methods) == len(MEMBERS) - len(methods) == 6


@pytest.mark.parametrize("name", ["BayesianLinearLayer", "ConvolutionalLayer", "FeatureLayer"])
def test_a_layer_is_a_small_class(name: str) -> None:
    kind: Any = {
        "BayesianLinearLayer": BayesianLinearLayer,
        "ConvolutionalLayer": ConvolutionalLayer,
        "FeatureLayer": FeatureLayer,
    }[name]
    tree = ast.parse(inspect.getsource(kind))
    (layer,) = tree.body
    assert isinstance(layer, ast.ClassDef)
    needed = [part for part in layer.body if getattr(part, "name", "") != "sample_functions"]
    statements = [node for part in needed for node in ast.walk(part) if isinstance(node, ast.stmt)]
    is_text = [isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in statements]
    assert len(statements) - sum(is_text) <= 45  # docstrings do not count


def test_covariances_agree(rng: np.random.Generator, layer: Any) -> None:
    """Variances and the three shapes of covariances are parts of the largest one."""
    X = tf.constant(rng.standard_normal((4, D)))
    found = {shape: outputs(layer, X, *shape) for shape in COVARIANCE_SHAPES}
    P, whole = layer.output_dim, found[True, True][1]
    assert whole.shape == (4, P, 4, P)
    np.testing.assert_allclose(found[True, False][1], np.einsum("npmp->pnm", whole), atol=1e-12)
    np.testing.assert_allclose(found[False, True][1], np.einsum("npnq->npq", whole), atol=1e-12)
    np.testing.assert_allclose(found[False, False][1], np.einsum("npnp->np", whole), atol=1e-12)
    for mean, _ in found.values():
        assert mean.shape == (4, P)
        np.testing.assert_allclose(mean, found[True, True][0], atol=1e-12)


@pytest.mark.parametrize("full_cov", [False, True])
def test_inputs_of_several_draws_are_a_loop(rng: np.random.Generator, layer: Any, full_cov: bool) -> None:
    X = rng.standard_normal((3, 4, D))
    eps = rng.standard_normal((3, 4, layer.num_latent_gps))
    moments = layer.latent_moments(tf.constant(X), layer.factors(), full_cov=full_cov)
    draws = layer.sample(tf.constant(X), moments, tf.constant(eps), full_cov=full_cov)
    for full_output_cov in (False, True):
        mean, cov = outputs(layer, tf.constant(X), full_cov, full_output_cov)
        for s in range(3):
            one, one_cov = outputs(layer, tf.constant(X[s]), full_cov, full_output_cov)
            np.testing.assert_allclose(mean[s], one, atol=1e-11)
            np.testing.assert_allclose(cov[s], one_cov, atol=1e-11)
    for s in range(3):
        moments = layer.latent_moments(tf.constant(X[s]), layer.factors(), full_cov=full_cov)
        draw = layer.sample(tf.constant(X[s]), moments, tf.constant(eps[s : s + 1]), full_cov=full_cov)
        np.testing.assert_allclose(draws[s], draw[0], atol=1e-8)  # through roots of joint covariances


@pytest.mark.parametrize("full_cov", [False, True])
def test_draws_have_the_moments_of_the_outputs(rng: np.random.Generator, layer: Any, full_cov: bool) -> None:
    """Over the outputs of a row, and with `full_cov` over all rows; up to the jitter 1e-6 of a draw."""
    X, S = tf.constant(rng.standard_normal((2, D))), 20_000
    moments = layer.latent_moments(X, layer.factors(), full_cov=full_cov)
    draws = layer.sample(X, moments, tf.constant(rng.standard_normal((S, 2, layer.num_latent_gps))), full_cov=full_cov)
    mean, cov = outputs(layer, X, full_cov, True)
    centred = draws.numpy() - mean
    if layer.num_latent_gps == 0:
        np.testing.assert_array_equal(draws, mean[None])
        assert np.all(cov == 0.0)
        return
    assert draws.shape == (S, 2, layer.output_dim)
    assert_mean_close(centred, 0.0, num_se=5, min_detectable=0.1)
    if full_cov:
        products = np.einsum("snp,smq->snpmq", centred, centred)
    else:
        products = np.einsum("snp,snq->snpq", centred, centred)
    assert_mean_close(products, cov, num_se=5, min_detectable=0.1)


def test_noise_that_rows_share(rng: np.random.Generator, layer: Any) -> None:
    X = tf.constant(rng.standard_normal((4, D)))
    eps = rng.standard_normal((3, 1, layer.num_latent_gps))
    moments = layer.latent_moments(X, layer.factors())
    shared = layer.sample(X, moments, tf.constant(eps))
    np.testing.assert_array_equal(shared, layer.sample(X, moments, tf.constant(np.tile(eps, [1, 4, 1]))))


@pytest.mark.parametrize("full_cov", [False, True])
def test_cache_is_another_form_of_the_factors(rng: np.random.Generator, layer: Any, full_cov: bool) -> None:
    X = tf.constant(rng.standard_normal((4, D)))
    assert all(tf.is_tensor(part) for part in tf.nest.flatten(layer.cache()))
    for a, b in zip(outputs(layer, X, full_cov, False), outputs(layer, X, full_cov, False, layer.cache()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)


# In a model.


def model_of(rng: np.random.Generator, layer: Any, **options: Any) -> DeepGP:
    """The layer, and on it a GP."""
    last = make_layer(rng, layer.output_dim, 1, Z=rng.standard_normal((5, layer.output_dim)), M=5)
    return DeepGP([layer, last], gpflow.likelihoods.Gaussian(0.1), num_predict_samples=6, **options)


def data(rng: np.random.Generator, N: int = 9) -> tuple[np.ndarray, np.ndarray]:
    X = rng.standard_normal((N, D))
    return X, np.sin(X[:, :1]) + X[:, 1:2]


def test_it_trains(rng: np.random.Generator, layer: Any) -> None:
    """Every trainable parameter has a gradient, and a small step along them raises the bound by their square."""
    model, batch = model_of(rng, layer, num_data=9), data(rng)
    variables = model.trainable_variables
    assert {id(variable) for variable in layer.trainable_variables} <= {id(variable) for variable in variables}
    assert len(layer.trainable_variables) >= 3
    with tf.GradientTape() as tape:
        bound = model.elbo(batch, seed=1)
    gradients = tape.gradient(bound, variables)
    assert all(np.any(np.asarray(gradient) != 0.0) for gradient in gradients)
    square = sum(float(tf.reduce_sum(gradient**2)) for gradient in gradients)
    step = (
        1e-3 / square
    )  # a rise of 1e-3 nats: a network's float32 has 1e-6, the second order is 1e-6 times a curvature
    for variable, gradient in zip(variables, gradients, strict=True):
        variable.assign_add(tf.cast(step, variable.dtype) * gradient)
    np.testing.assert_allclose(model.elbo(batch, seed=1) - bound, 1e-3, rtol=0.1)


def test_all_predictions(rng: np.random.Generator, layer: Any) -> None:
    """Mixtures of the components, posterior and model alike, functions of a row; shapes as of any model."""
    model = model_of(rng, layer)
    X, Y = data(rng)
    posterior = model.posterior("variable")
    S = 6 if layer.num_latent_gps else 1
    for predictor in (model, posterior):
        means, variances = (np.asarray(part) for part in predictor.predict_components(X))
        assert means.shape == variances.shape == (S, 9, 1)
        mean, var = predictor.predict_y(X[::-1])
        np.testing.assert_allclose(mean, means.mean(axis=0)[::-1], rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(var, (variances.mean(axis=0) + means.var(axis=0) + 0.1)[::-1], rtol=1e-7)
        for full_cov, full_output_cov in COVARIANCE_SHAPES:
            assert np.all(np.isfinite(predictor.predict_f(X, full_cov, full_output_cov)[1]))
        assert predictor.predict_log_density((X, Y)).shape == (9,)
        for full_cov in (False, True):
            assert predictor.predict_f_samples(X, 4, full_cov).shape == (4, 9, 1)
            layers = predictor.predict_all_layers(X, 4, full_cov)
            assert [part.shape for part in layers.samples] == [(4, 9, layer.output_dim), (4, 9, 1)]
    posterior.update_cache()


def test_chain_of_all_kinds(rng: np.random.Generator) -> None:
    """Image -> features -> GP -> linear, with more draws than fit at once."""
    image, network = convolutional(rng), keras.layers.Dense(3, "tanh")
    layers = [image, FeatureLayer(network, image.output_dim), make_layer(rng, 3, 2), BayesianLinearLayer(2, 1)]
    model = DeepGP(layers, gpflow.likelihoods.StudentT(), num_samples=2, num_predict_samples=5)
    assert [layer.label for layer in model.layers] == [f"layer {i} of 4" for i in (1, 2, 3, 4)]
    batch = data(rng)
    with tf.GradientTape() as tape:
        loss = model.training_loss(batch, seed=1)
    assert all(np.all(np.isfinite(gradient)) for gradient in tape.gradient(loss, model.trainable_variables))
    assert model.predict_all_layers(batch[0]).means[1].shape == (5, 9, 3)
    with pytest.raises(AttributeError, match="kernel"):
        _ = model.kernel


def test_deterministic_layers_do_not_multiply_the_work(rng: np.random.Generator) -> None:
    """Features first: what reads them reads one copy, and says what it says of the features as inputs."""
    first, second = features(rng), make_layer(rng, 2, 2)
    last = make_layer(rng, 2, 1)
    deep = DeepGP([first, second, last], gpflow.likelihoods.Gaussian(0.1), num_predict_samples=4)
    X, _ = data(rng)
    found, F = deep.predict_all_layers(X), first(X)
    assert [part.shape[0] for part in found.samples] == [4, 4, 4]
    assert [part.shape[0] for part in found.means] == [1, 1, 4]
    flat = DeepGP([second, last], deep.likelihood, num_predict_samples=4)
    for a, b in zip(deep.predict_f(X), flat.predict_f(F), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_deterministic_model(rng: np.random.Generator) -> None:
    """A network with a likelihood: nothing to average over, and draws that are all alike."""
    network = FeatureLayer(keras.layers.Dense(1), D)
    model = DeepGP([network], gpflow.likelihoods.Gaussian(0.3))
    X, Y = data(rng)
    residual = Y - network(X)
    expected = -0.5 * np.log(2 * np.pi * 0.3) - 0.5 * residual**2 / 0.3
    np.testing.assert_allclose(model.elbo((X, Y)), np.sum(expected), rtol=1e-12)
    np.testing.assert_allclose(model.predict_log_density((X, Y)), expected[:, 0], rtol=1e-10)
    for full_cov in (False, True):
        np.testing.assert_array_equal(model.predict_f_samples(X, 3, full_cov), np.tile(network(X), [3, 1, 1]))


def test_saved_file(rng: np.random.Generator, layer: Any, tmp_path: Path) -> None:
    model, (X, _) = model_of(rng, layer), data(rng)
    save_model(model, tmp_path / "model.npz")
    loaded = load_model(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict_y(X)[1], model.predict_y(X)[1])
    assert len(loaded.trainable_variables) == len(model.trainable_variables)
    gpflow.set_trainable(model.layers[0], False)
    save_model(model, tmp_path / "model.npz")
    assert len(load_model(tmp_path / "model.npz").trainable_variables) == len(model.trainable_variables)


def test_unknown_shapes(rng: np.random.Generator, layer: Any) -> None:
    model, batch = model_of(rng, layer), data(rng, 4)

    def everything(X: tf.Tensor, Y: tf.Tensor) -> list[Any]:
        joint = [model.predict_f(X, True, True), model.predict_f_samples(X, 2, seed=1)]
        return [model.elbo((X, Y), seed=1), model.predict_y(X), model.predict_log_density((X, Y)), *joint]

    known = tf.TensorSpec(None, tf.float64)
    compiled = tf.function(everything, input_signature=[known, known], autograph=False)
    found, expected = (tf.nest.flatten(function(*batch)) for function in (compiled, everything))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)  # float32 networks; roots of joint covariances


@pytest.mark.slow
def test_saved_model(rng: np.random.Generator, layer: Any, tmp_path: Any) -> None:
    model = model_of(rng, layer)
    module = tf.Module()
    module.model = model
    module.predict = tf.function(model.predict_y, input_signature=[tf.TensorSpec([None, D], tf.float64)])
    tf.saved_model.save(module, str(tmp_path))
    X, _ = data(rng)
    loaded = tf.saved_model.load(str(tmp_path))
    for a, b in zip(loaded.predict(X), model.predict_y(X), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5 if isinstance(layer, FeatureLayer) else 1e-9)  # a float32 network
