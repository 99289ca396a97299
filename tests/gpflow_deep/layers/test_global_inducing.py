"""`gpflow_deep.layers.global_inducing`: the exact posterior where there is one, and a bound anywhere else."""

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Linear, Matern32, SquaredExponential, White
from gpflow.kullback_leiblers import gauss_kl
from gpflow.likelihoods import Gaussian
from gpflow.mean_functions import Identity
from gpflow.utilities import deepcopy

from gpflow_deep import (
    DeepGP,
    DeepGPRegressor,
    GlobalInducingLayer,
    Sampler,
    diagnose,
    load_model,
    modern,
    paper2017,
    save_model,
    with_global_inducing,
)
from gpflow_deep.layers import global_inducing
from gpflow_deep.layers.global_inducing import draw_factors
from gpflow_deep.posteriors.ensemble import Ensemble
from tests.gpflow_deep.builders import COVARIANCE_SHAPES, assert_functions_are_kept, make_layer, spread_inputs
from tests.statistical import assert_mean_close

N, M = 12, 5


def one_layer(rng: np.random.Generator) -> tuple[DeepGP, gpflow.models.GPR]:
    """A layer with inducing inputs at the data, and the exact GP."""
    X = spread_inputs(rng, N, 2)
    Y, noise = np.sin(X[:, :1]) + 0.3 * rng.standard_normal((N, 1)), 0.1
    layer = GlobalInducingLayer(SquaredExponential(), 1, Z=X)
    return DeepGP([layer], Gaussian(noise), num_data=N), gpflow.models.GPR(
        (X, Y), SquaredExponential(), noise_variance=noise
    )


def two_layers(rng: np.random.Generator) -> DeepGP:
    first = GlobalInducingLayer(
        SquaredExponential(), 2, Z=spread_inputs(rng, M, 2), mean_function=Identity(), precision=20.0
    )
    second = GlobalInducingLayer(SquaredExponential(), 1, num_inducing=M, input_dim=2, precision=5.0)
    for layer in (first, second):
        layer.pseudo_outputs.assign(rng.standard_normal(layer.pseudo_outputs.shape))
    return DeepGP([first, second], Gaussian(0.1), num_data=N, num_predict_samples=32)


def test_exact_where_inducing_inputs_are_at_the_data(rng: np.random.Generator) -> None:
    """v = y, lambda = 1 / noise: bound and predictions are those of the exact GP, up to the jitter of 1e-6; any other
    pseudo-outputs give less than the log evidence."""
    model, exact = one_layer(rng)
    layer, (X, Y) = model.layers[0], exact.data
    evidence = float(exact.log_marginal_likelihood())
    assert float(model.elbo((X, Y), seed=0)) < evidence
    layer.pseudo_outputs.assign(Y)
    layer.precisions.assign(np.full((N, 1), 10.0))
    tolerance = 1e-6 * N * float(np.sum(np.square(Y)) + 1) * 100  # d evidence / d jitter is below |K^-1 y|^2 / 2
    assert abs(float(model.elbo((X, Y), seed=0)) - evidence) < tolerance
    new = rng.uniform(-2, 2, (6, 2))
    for found, right in zip(model.predict_f(new), exact.predict_f(new), strict=True):
        np.testing.assert_allclose(found, right, atol=1e-4)
    for _ in range(5):
        layer.pseudo_outputs.assign(Y + 0.1 * rng.standard_normal((N, 1)))
        assert float(model.elbo((X, Y), seed=0)) < evidence


def test_kl_and_draws(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """KL as GPflow has it of the whitened Gaussian; draws of the inducing outputs have its mean and covariance."""
    model = two_layers(rng)
    layer = model.layers[0]
    factors = layer.factors()
    S = np.linalg.inv(factors.root.numpy() @ np.swapaxes(factors.root.numpy(), 1, 2))
    np.testing.assert_allclose(factors.kl, gauss_kl(factors.mean, np.linalg.cholesky(S)), rtol=1e-8)
    for p in range(2):
        Luu, weights = factors.Luu.numpy(), layer.precisions.numpy()[:, p]
        right = np.linalg.inv(np.eye(M) + Luu.T @ np.diag(weights) @ Luu)
        np.testing.assert_allclose(S[p], right, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(
            factors.mean[:, p], right @ Luu.T @ (weights * layer.pseudo_outputs.numpy()[:, p]), rtol=1e-8, atol=1e-10
        )
    count = 2000
    eps = tf.random.stateless_normal([count, M, 2], seed, dtype=tf.float64)
    w = tf.map_fn(lambda e: layer.known(factors, e).mean, eps).numpy()
    for p in range(2):
        error = np.cov(w[..., p].T) - S[p]
        scale = np.sqrt(np.outer(np.diag(S[p]), np.diag(S[p])) * 2 / count)
        assert np.all(np.abs(error) < 5.5 * scale)


def test_moments(rng: np.random.Generator) -> None:
    """Against NumPy; covariances have the variances on their diagonal, and known inducing outputs add none."""
    layer, X = two_layers(rng).layers[0], rng.standard_normal((7, 2))
    factors = layer.factors()
    mean, var = layer.latent_moments(tf.constant(X), factors)
    A = np.linalg.solve(factors.Luu, layer.kernel(factors.Z, X))
    np.testing.assert_allclose(mean, A.T @ factors.mean.numpy(), rtol=1e-10, atol=1e-12)
    S = np.linalg.inv(factors.root.numpy() @ np.swapaxes(factors.root.numpy(), 1, 2))
    right = 1.0 - np.sum(A * A, axis=0)[:, None] + np.einsum("mb,lmk,kb->bl", A, S, A)
    np.testing.assert_allclose(var, right, rtol=1e-8, atol=1e-10)
    for some in (factors, layer.known(factors, tf.zeros([M, 2], tf.float64))):
        cov = layer.latent_moments(tf.constant(np.stack([X, X + 1])), some, full_cov=True).cov
        own = layer.latent_moments(tf.constant(np.stack([X, X + 1])), some).cov
        assert cov.shape == (2, 2, 7, 7)
        np.testing.assert_allclose(tf.linalg.diag_part(cov), np.swapaxes(own, 1, 2), rtol=1e-8, atol=1e-9)


@pytest.mark.slow
@pytest.mark.ci
def test_predictions_functions_and_files(rng: np.random.Generator, tmp_path: Path) -> None:
    model, X, Y = two_layers(rng), rng.standard_normal((5, 2)), rng.standard_normal((5, 1))
    for full_cov, full_output_cov in COVARIANCE_SHAPES:
        mean, cov = model.predict_f(X, full_cov=full_cov, full_output_cov=full_output_cov)
        assert (mean.shape, cov.shape.rank) == ((5, 1), 2 + full_cov + full_output_cov)
    mean, variance = model.predict_f(X)
    np.testing.assert_array_equal(model.posterior().predict_f(X)[0], mean)
    with pytest.raises(ValueError, match="need the model's float type"):
        model.posterior(dtype=tf.float32)
    save_model(model, tmp_path / "model.npz")
    loaded = load_model(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict_log_density((X, Y)), model.predict_log_density((X, Y)))
    functions = model.sample_functions(60, num_features=64, seed=1)
    values = functions(X).numpy()
    np.testing.assert_array_equal(loaded.sample_functions(60, num_features=64, seed=1)(X), values)
    spread = np.sqrt(variance.numpy())
    assert np.all(np.abs(values.mean(axis=0) - mean) < 6 * spread / np.sqrt(60) + 6 * spread / np.sqrt(32))
    assert [layer.label for layer in diagnose(model)] == ["layer 1 of 2", "layer 2 of 2"]


def test_members_are_drawn_together(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """One member is a chain of `factors_at`; slices do not matter; their number is `num_predict_samples`."""
    model = two_layers(rng)
    first, second = model.layers
    seed = tf.constant([3, 4])
    parts = draw_factors(model.layers, seed, count=5, all_known=True)
    ensemble = Ensemble(parts)
    assert ensemble.size == 5
    for k in range(5):
        below, above = ensemble.member(k)
        expected = second.factors_at(first.propagated(below))
        np.testing.assert_allclose(above.Z, expected.Z, rtol=1e-10)
        np.testing.assert_allclose(above.Luu, expected.Luu, rtol=1e-8)
        np.testing.assert_allclose(above.kl, expected.kl, rtol=1e-8)
        assert above.root.shape == (0, M, M) == (*below.root.shape[:1], M, M)
    assert np.std(parts[1].mean, axis=0).min() > 1e-3
    monkeypatch.setattr(global_inducing, "_SLICE_NUMBERS", 2 * M * M)
    sliced = draw_factors(model.layers, seed, count=5, all_known=True)
    for a, b in zip(tf.nest.flatten(sliced), tf.nest.flatten(parts), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    model.num_predict_samples = 7
    assert model.num_members == 7
    assert len(model.predict_components(np.zeros((2, 2)))[0]) == len(model.component_weights()) == 7
    alone, _ = one_layer(rng)
    assert alone.num_members == 1  # nothing is drawn
    assert len(alone.predict_components(np.zeros((2, 2)))[0]) == len(alone.component_weights())


@pytest.mark.parametrize("kernel", [SquaredExponential(0.5) + White(0.5), Matern32() + Linear(0.3)])
def test_functions_have_the_predicted_moments(rng: np.random.Generator, kernel: Any) -> None:
    """Of a model with many draws of the inducing outputs; noise of the kernel is in the functions, too."""
    model, X = two_layers(rng), rng.standard_normal((4, 2))
    for layer in model.layers:
        layer.kernel = deepcopy(kernel)
    model.num_predict_samples = 500
    predict = tf.function(model.predict_f, autograph=False)  # a loop over 500 members, faster as a graph
    mean, var = (part.numpy()[:, 0] for part in predict(X))
    for noise in ("shared", "white"):
        draws = model.sample_functions(1000, num_features=32, noise=noise, seed=int(rng.integers(1000)))(X)  # type: ignore[arg-type]
        values = draws.numpy()[..., 0]
        # Predictions have 500 draws, with an error of at most 1.4 of those of 1,000 functions: 8 is 4.6 of both.
        assert_mean_close(values, mean, num_se=8, min_detectable=0.4 * np.sqrt(var))
        assert_mean_close(np.square(values - mean), var, num_se=8, min_detectable=0.8 * var)


def test_functions_are_kept(rng: np.random.Generator, tmp_path: Path) -> None:
    """Pickled, exported, of inputs of their own, and differentiated."""
    model, X = two_layers(rng), rng.standard_normal((3, 2))
    drawn = model.sample_functions(3, num_features=16, seed=1)
    assert_functions_are_kept(drawn, X, tmp_path)
    own = np.stack([X, X + 1.0, X - 1.0])
    np.testing.assert_allclose(drawn(own)[1], drawn(own[1])[1], rtol=1e-9)
    one = model.sample_functions(1, seed=2)
    np.testing.assert_allclose(one(own[:1])[0], one(X)[0], rtol=1e-10)


@pytest.mark.filterwarnings("ignore:after .* steps the model is worse")  # the targets are exactly linear
@pytest.mark.slow
@pytest.mark.ci
def test_training_by_preset_and_estimator(rng: np.random.Generator) -> None:
    X = rng.standard_normal((60, 2))
    model = with_global_inducing(modern(X, X[:, :1], 2, num_inducing=M))
    data = tf.constant(X), tf.constant(X[:, :1])
    before = float(model.elbo(data, seed=0))
    fitted = DeepGPRegressor(num_inducing=M, posterior="global", max_iter=30).fit(X, X[:, 0])
    assert fitted.bounds_.size == 0 or fitted.bounds_[-1] > before / 60
    assert isinstance(fitted.predictor_.model.layers[1], GlobalInducingLayer)
    assert fitted.predictor_.evaluate(X, X[:, :1]).mean.shape == (60, 1)
    after = float(fitted.predictor_.model.elbo(fitted.predictor_.units.transform(X, X[:, :1]), seed=0))
    assert after > before


def test_start_from_the_rows(rng: np.random.Generator) -> None:
    """An inducing input at each row: a single layer starts as the exact posterior. Fewer: at means of rows."""
    X = spread_inputs(rng, N, 2)
    Y = np.sin(X[:, :1]) + 0.3 * rng.standard_normal((N, 1))
    model = with_global_inducing(modern(X, Y, 1, num_inducing=N), (X, Y))
    kernel, noise = model.layers[0].kernel, float(model.likelihood.variance.numpy())
    evidence = float(gpflow.models.GPR((X, Y), kernel, noise_variance=noise).log_marginal_likelihood())
    assert abs(float(model.elbo((X, Y), seed=0)) - evidence) < 1e-2
    assert float(with_global_inducing(modern(X, Y, 1, num_inducing=N)).elbo((X, Y), seed=0)) < evidence - 1
    twice = np.concatenate([X[:3], X[:3]]), np.concatenate([Y[:3], Y[:3] + 1.0])
    two = with_global_inducing(modern(X[:4], Y[:4], 2, Z=X[:4]), twice).layers[-1]  # nothing is near the fourth
    np.testing.assert_allclose(two.pseudo_outputs, np.concatenate([Y[:3] + 0.5, [[0.0]]]), rtol=1e-12)
    noise = float(modern(X[:4], Y[:4], 2, Z=X[:4]).likelihood.variance.numpy())
    np.testing.assert_allclose(two.precisions, [[2 / noise]] * 3 + [[1.0]], rtol=1e-6)


def test_precisions_follow_the_data(rng: np.random.Generator) -> None:
    """From 100 to what exact observations need within some steps: it is the logarithm that moves."""
    X = spread_inputs(rng, N, 2)
    layer = GlobalInducingLayer(SquaredExponential(), 1, Z=X, precision=100.0)
    layer.pseudo_outputs.assign(X[:, :1])
    model, data = DeepGP([layer], Gaussian(1e-4), num_data=N), (tf.constant(X), tf.constant(X[:, :1]))
    optimizer, loss = tf.keras.optimizers.Adam(0.05), model.training_loss_closure(data, seed=0)
    for _ in range(30):
        with tf.GradientTape() as tape:
            value = loss()
        variables = layer.precisions.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))
    assert np.all(layer.precisions.numpy() > 200.0)


def test_refusals(rng: np.random.Generator) -> None:
    X = rng.standard_normal((20, 2))
    with pytest.raises(ValueError, match="without noise between layers and propagated inputs, got layer 1 of 2"):
        with_global_inducing(paper2017(X, X[:, :1], 2, num_inducing=M))
    with pytest.raises(ValueError, match="needs Z, or num_inducing and input_dim"):
        GlobalInducingLayer(SquaredExponential(), 2)
    with pytest.raises(ValueError, match=r"Z must be inducing inputs \[M, D\], got shape \[20\]"):
        GlobalInducingLayer(SquaredExponential(), 2, Z=X[:, 0])
    with pytest.raises(ValueError, match="num_latent_gps must be at least 1, got 0"):
        GlobalInducingLayer(SquaredExponential(), 0, Z=X)
    with pytest.raises(ValueError, match=r"precision must be positive, got 0\.0"):
        GlobalInducingLayer(SquaredExponential(), 1, Z=X, precision=0.0)
    with pytest.raises(ValueError, match="must have 1 or the layer's 3 outputs, got Identity with 2"):
        GlobalInducingLayer(SquaredExponential(), 3, Z=X, mean_function=Identity())
    with pytest.raises(ValueError, match="one kernel for all outputs, got SharedIndependent"):
        GlobalInducingLayer(gpflow.kernels.SharedIndependent(SquaredExponential(), 2), 2, Z=X)
    model = two_layers(rng)
    mixed: Any = DeepGP([model.layers[0], make_layer(rng, 2, 1, M)], Gaussian())
    with pytest.raises(ValueError, match="layer 2 of 2 must be a GlobalInducingLayer, as others are, got SVGPLayer"):
        mixed.factors()
    with pytest.raises(ValueError, match="use posterior='gaussian'"):
        Sampler(model, X, X[:, :1])
