"""Cached predictions equal the model's."""

from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf
from gpflow.posteriors import PrecomputeCacheType

from gpflow_deep import DeepGP, DeepGPPosterior, SVGPLayer
from gpflow_deep.layers import CachedForms
from tests.gpflow_deep.builders import COVARIANCE_SHAPES, make_data, make_model


@pytest.fixture
def model(rng: np.random.Generator) -> DeepGP:
    return make_model(rng, (2, 2, 2), num_predict_samples=4, layer_options={"noise_variance": 0.01})


def predictions(predictor: DeepGP | DeepGPPosterior, X: np.ndarray, Y: np.ndarray) -> dict[str, Any]:
    results: dict[str, Any] = {
        f"predict_f {shape}": predictor.predict_f(X, full_cov=shape[0], full_output_cov=shape[1])
        for shape in COVARIANCE_SHAPES
    }
    results["predict_y"] = predictor.predict_y(X)
    results["predict_log_density"] = [predictor.predict_log_density((X, Y))]
    results["independent samples"] = [predictor.predict_f_samples(X, 3, full_cov=False, seed=1)]
    results["predict_components"] = predictor.predict_components(X)
    results["predict_all_layers"] = [part for parts in predictor.predict_all_layers(X, 3) for part in parts]
    return results


def assert_close(a: dict[str, Any], b: dict[str, Any], atol: float) -> None:
    for name in a:
        for value, expected in zip(a[name], b[name], strict=True):
            np.testing.assert_allclose(value, expected, rtol=0, atol=atol, err_msg=name)


@pytest.mark.parametrize("kind", ["tensor", "variable", PrecomputeCacheType.TENSOR])
def test_cached_predictions_are_the_models(rng: np.random.Generator, model: DeepGP, kind: Any) -> None:
    """cond(Kuu) < 1e4 times rounding through the explicit inverse, passed on by the second layer."""
    X, Y = make_data(rng, 5, 2, 2)
    posterior = model.posterior(kind)
    assert posterior.cache is not None
    assert all(isinstance(part, CachedForms) for part in posterior.cache)
    is_variable = kind == "variable"
    assert all(isinstance(x, tf.Variable) == is_variable for part in posterior.cache for x in part)
    assert_close(predictions(posterior, X, Y), predictions(model, X, Y), atol=1e-8)


def test_wide_posterior_where_inducing_outputs_are_dependent(rng: np.random.Generator) -> None:
    """A linear kernel of 2 inputs, 6 inducing inputs and q(u) = N(m, I), where GPflow's SVGP starts if not whitened:
    L^-1 S L^-T has the size of 1 / jitter. In NumPy, by triangular solves: errors below cond(Kuu) = 1e7 times 1e-16."""
    kernel, Z, X = gpflow.kernels.Linear(), rng.uniform(-2, 2, (6, 2)), rng.uniform(-2, 2, (5, 2))
    q_mu, q_sqrt = rng.standard_normal((6, 1)), np.eye(6)[None]
    model = DeepGP([SVGPLayer(kernel, Z, q_mu=q_mu, q_sqrt=q_sqrt, whiten=False)], gpflow.likelihoods.Gaussian())
    L = np.linalg.cholesky(Z @ Z.T + gpflow.default_jitter() * np.eye(6))
    A = scipy.linalg.solve_triangular(L, Z @ X.T, lower=True)
    B = scipy.linalg.solve_triangular(L, A, lower=True, trans=1)  # Kuu^-1 Kuf
    expected = np.sum(X**2, axis=1) - np.sum(A**2, axis=0) + np.sum(B**2, axis=0)
    for predictor in (model, model.posterior()):
        mean, var = predictor.predict_f(X)
        np.testing.assert_allclose(mean, B.T @ q_mu, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(var[:, 0], expected, rtol=1e-7)


def test_joint_draws(rng: np.random.Generator, model: DeepGP) -> None:
    """Through the root of a joint covariance with jitter 1e-6: an error of 1e-9 becomes one of at most 1e-5."""
    X, _ = make_data(rng, 5, 2, 2)
    draws = model.posterior().predict_f_samples(X, 3, seed=1)
    np.testing.assert_allclose(draws, model.predict_f_samples(X, 3, seed=1), rtol=0, atol=1e-5)


def test_cache_is_used(rng: np.random.Generator, model: DeepGP) -> None:
    """A snapshot: predictions stay as they were until `update_cache`; `fused_predict_f` is always current."""
    X, _ = make_data(rng, 5, 2, 2)
    for kind in ("tensor", "variable"):
        posterior = model.posterior(kind)
        before = posterior.predict_f(X)[0].numpy()
        model.layers[0].q_mu.assign_add(0.1 * np.ones(model.layers[0].q_mu.shape))
        model.layers[-1].q_mu.assign_add(np.ones(model.layers[-1].q_mu.shape))
        np.testing.assert_array_equal(posterior.predict_f(X)[0], before)
        current = model.predict_f(X)[0].numpy()
        assert np.max(np.abs(current - before)) > 0.1
        np.testing.assert_array_equal(posterior.fused_predict_f(X)[0], current)
        posterior.update_cache()
        np.testing.assert_allclose(posterior.predict_f(X)[0], current, rtol=0, atol=1e-8)


def test_variables_are_assigned_in_place(rng: np.random.Generator, model: DeepGP) -> None:
    """A compiled function follows `update_cache` with variables, and does not with tensors."""
    X, _ = make_data(rng, 5, 2, 2)
    variable, tensor = model.posterior("variable"), model.posterior("tensor")
    functions = [tf.function(lambda X, p=p: p.predict_f(X)[0], autograph=False) for p in (variable, tensor)]
    before = [function(X).numpy() for function in functions]
    model.layers[-1].q_mu.assign_add(np.ones(model.layers[-1].q_mu.shape))
    for posterior in (variable, tensor):
        posterior.update_cache()
    np.testing.assert_allclose(functions[0](X), model.predict_f(X)[0], rtol=0, atol=1e-8)
    np.testing.assert_array_equal(functions[1](X), before[1])


def test_no_cache(rng: np.random.Generator, model: DeepGP) -> None:
    X, _ = make_data(rng, 5, 2, 2)
    for kind in ("nocache", None, PrecomputeCacheType.NOCACHE):
        posterior = model.posterior(kind)
        assert posterior.cache is None
        np.testing.assert_array_equal(posterior.fused_predict_f(X)[0], model.predict_f(X)[0])
        with pytest.raises(ValueError, match=r"the posterior has no cache: call update_cache\('tensor'\) first"):
            posterior.predict_f(X)
    posterior.update_cache("variable")
    np.testing.assert_allclose(posterior.predict_f(X)[0], model.predict_f(X)[0], rtol=0, atol=1e-8)
    posterior.update_cache("nocache")
    assert posterior.cache is None


def test_float32_cache_is_close(rng: np.random.Generator, model: DeepGP) -> None:
    """Single precision times sqrt(cond(Kuu)) < 1e2, and the slope of two layers: 6e-8 * 1e2 * 10."""
    X, Y = make_data(rng, 5, 2, 2)
    posterior = model.posterior(dtype=tf.float32)
    assert posterior.cache is not None
    assert {x.dtype for part in posterior.cache for x in part} == {tf.float32}
    results = predictions(posterior, X, Y)
    assert all(value.dtype == tf.float64 for values in results.values() for value in values)
    assert_close(results, predictions(model, X, Y), atol=1e-3)
    assert np.any(results["predict_y"][0] != model.predict_y(X)[0])


def test_float32_cache_is_refused_when_ill_conditioned(rng: np.random.Generator) -> None:
    """12 points, variance 2, long lengthscales, jitter 1e-6: condition number 24 / 1e-6. The model's type works."""
    model = make_model(rng, (2, 2, 1), M=12)
    model.layers[1].kernel.lengthscales.assign([100.0, 100.0])
    model.layers[1].kernel.variance.assign(2.0)
    with pytest.raises(
        ValueError, match=r"layer 2 of 2 must have condition numbers of Kuu below 1e\+07 .* got 2.4e\+07"
    ):
        model.posterior(dtype=tf.float32)
    X, _ = make_data(rng)
    # In float64 the explicit inverse loses 1e7 * 1e-16 * |q_mu| sqrt(1e7).
    np.testing.assert_allclose(model.posterior().predict_f(X)[0], model.predict_f(X)[0], rtol=0, atol=1e-5)


def test_no_cholesky_of_kuu_in_cached_predictions(rng: np.random.Generator, model: DeepGP) -> None:
    X, _ = make_data(rng, 5, 2, 2)
    posterior = model.posterior()

    def operations(function: Any) -> set[str]:
        graph = tf.function(function, autograph=False).get_concrete_function(X).graph
        return {op.type for op in graph.get_operations()}

    assert "Cholesky" in operations(lambda X: model.predict_y(X))
    assert not {"Cholesky", "MatrixTriangularSolve"} & operations(lambda X: posterior.predict_y(X))


def test_messages(model: DeepGP) -> None:
    with pytest.raises(ValueError, match="must be 'tensor', 'variable' or 'nocache', got 'disk'"):
        model.posterior("disk")
    with pytest.raises(ValueError, match="dtype must be float32 or the model's float64, got float16"):
        model.posterior(dtype=tf.float16)
