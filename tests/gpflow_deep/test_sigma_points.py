"""Deep sigma point processes: the objective is the predicted density, the points are those of the mixture."""

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from gpflow_deep import (
    DeepGPQuad,
    DeepGPRegressor,
    DeepSigmaPointProcess,
    Encoder,
    GaussHermite,
    LatentVariableLayer,
    ModelConfig,
    SVGPLayer,
    load_model,
    modern,
    save_model,
    with_global_inducing,
    with_sigma_points,
)
from gpflow_deep.train.fitting import fit
from gpflow_deep_base.numbers.groups import by_group
from tests.gpflow_deep.builders import assert_functions_are_kept
from tests.statistical import assert_mean_close

N, D, M = 30, 2, 7


def layers(rng: np.random.Generator, *widths: int) -> list[SVGPLayer]:
    """With posteriors of some variance, so that points matter."""
    made = []
    for inputs, outputs in zip((D, *widths), (*widths, 1), strict=True):
        layer = SVGPLayer(gpflow.kernels.Matern52(), rng.normal(size=(M, inputs)), num_latent_gps=outputs)
        layer.q_mu.assign(rng.normal(size=(M, outputs)))
        made.append(layer)
    return made


def data_of(rng: np.random.Generator, num: int = N) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(size=(num, D)), rng.normal(size=(num, 1))


def make(rng: np.random.Generator, *widths: int, **settings: Any) -> DeepSigmaPointProcess:
    return DeepSigmaPointProcess(layers(rng, *widths), gpflow.likelihoods.Gaussian(0.2), **settings)


def test_one_layer_is_the_predictive_density_of_an_svgp(rng: np.random.Generator) -> None:
    model, data = make(rng, num_data=3 * N, kl_weight=0.3), data_of(rng)
    layer = model.layers[0]
    svgp = gpflow.models.SVGP(
        layer.kernel, model.likelihood, layer.inducing_variable, q_mu=layer.q_mu.numpy(), q_sqrt=layer.q_sqrt.numpy()
    )
    expected = 3.0 * np.sum(svgp.predict_log_density(data)) - 0.3 * svgp.prior_kl()
    np.testing.assert_allclose(model.elbo(data), expected, rtol=1e-8)  # both factorise Kuu, in their own ways
    np.testing.assert_allclose(model.training_loss(data), -expected, rtol=1e-8)


@pytest.mark.parametrize("widths", [(1,), (3, 2)])
def test_what_is_maximised_is_what_is_predicted(rng: np.random.Generator, widths: tuple[int, ...]) -> None:
    """With any points and weights, whatever the seed is; the mean over minibatches is that of all rows."""
    model, data = make(rng, *widths, num_data=N, num_points=5, kl_weight=2.0), data_of(rng)
    for parameter in (*model.integrator.points, model.integrator.logits):
        parameter.assign(parameter + 0.5 * rng.normal(size=parameter.shape))
    expected = np.sum(model.predict_log_density(data)) - 2.0 * model.prior_kl()
    np.testing.assert_allclose(model.elbo(data, seed=0), expected, rtol=1e-10)
    parts = [model.elbo((data[0][rows], data[1][rows])) for rows in np.split(np.arange(N), 3)]
    np.testing.assert_allclose(np.mean(parts), expected, rtol=1e-10)
    means = model.predict_components(data[0])[0]
    weights = model.component_weights()
    assert weights.shape == [5]
    np.testing.assert_allclose(np.sum(weights), 1.0)
    np.testing.assert_allclose(np.tensordot(weights, means, 1), model.predict_f(data[0])[0], rtol=1e-10)
    for a, b in zip(model.posterior().predict_y(data[0]), model.predict_y(data[0]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8)


def test_points_at_the_nodes_of_quadrature_are_quadrature(rng: np.random.Generator) -> None:
    inner, last = layers(rng, 2)
    quad = DeepGPQuad([inner, last], gpflow.likelihoods.Gaussian(0.2), num_nodes=3)
    model = DeepSigmaPointProcess([inner, last], quad.likelihood, num_points=9)
    nodes = GaussHermite(3)
    model.integrator.points[0].assign(nodes.noise([2], 9, 1, tf.constant([0, 0]), tf.float64)[0][:, 0])
    model.integrator.logits.assign(nodes.log_weights([2], 9, tf.float64))
    X, Y = data_of(rng, 6)
    for a, b in zip(model.predict_y(X), quad.predict_y(X), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    np.testing.assert_allclose(model.predict_log_density((X, Y)), quad.predict_log_density((X, Y)), rtol=1e-10)


def test_points_and_weights_start_as_a_standard_normal_and_are_trained(rng: np.random.Generator) -> None:
    model, data = make(rng, 2, num_points=8), data_of(rng)
    points, logits = model.integrator.points[0], model.integrator.logits
    np.testing.assert_allclose(np.mean(points, axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.cov(points.numpy().T, bias=True), np.eye(2), atol=1e-10)
    names = {id(variable) for variable in model.trainable_variables}
    own = [points.unconstrained_variable, logits.unconstrained_variable]
    assert all(id(variable) in names for variable in own)
    with tf.GradientTape() as tape:
        loss = model.training_loss(data)
    for gradient in tape.gradient(loss, own):
        assert np.abs(gradient).max() > 1e-6


def make_uneven(rng: np.random.Generator, *widths: int, noise_variance: float | None = None) -> DeepSigmaPointProcess:
    """With points that are far from a normal distribution and unequal weights."""
    model = make(rng, *widths, num_points=4)
    for layer in model.layers[:-1]:
        layer.noise_variance = None if noise_variance is None else gpflow.Parameter(noise_variance)
    for parameter in (*model.integrator.points, model.integrator.logits):
        parameter.assign(parameter + rng.normal(size=parameter.shape))
    return model


@pytest.mark.parametrize("kind", ["functions", "white", "joint", "rows", "layers"])
def test_draws_have_the_predicted_distribution(rng: np.random.Generator, kind: str) -> None:
    """Mean, variance and the probabilities of quantiles of the mixture, at each of four rows."""
    model, X, S = make_uneven(rng, 2, 2, noise_variance=0.05), rng.normal(size=(4, D)), 4000
    options: dict[str, Any] = {"seed": int(rng.integers(1000))}
    if kind in ("functions", "white"):
        noise = "white" if kind == "white" else "shared"
        draws = model.sample_functions(S, noise=noise, num_features=32, **options)(X)  # type: ignore[arg-type]
    elif kind == "layers":
        draws = model.predict_all_layers(X, S, **options)[0][-1]
    else:
        draws = model.predict_f_samples(X, S, full_cov=kind == "joint", **options)
    values = draws.numpy()[..., 0]
    mean, var = (part.numpy()[:, 0] for part in model.predict_f(X))
    assert_mean_close(values, mean, min_detectable=0.15 * np.sqrt(var))
    assert_mean_close(np.square(values - mean), var, min_detectable=0.3 * var)
    means, variances = (part.numpy()[..., 0] for part in model.predict_components(X))  # [points, N]
    weights = model.component_weights().numpy()
    for shift in (-1.0, 0.0, 1.0):
        at = mean + shift * np.sqrt(var)
        expected = weights @ stats.norm.cdf((at - means) / np.sqrt(variances))
        assert_mean_close(values < at, expected, min_detectable=0.05)


def test_joint_predictions_are_the_moments_of_functions(rng: np.random.Generator) -> None:
    """On the diagonal those of single rows; beside it the covariances of drawn functions."""
    model, X, S = make_uneven(rng, 2), rng.normal(size=(3, D)), 4000
    mean, cov = (part.numpy() for part in model.predict_f(X, full_cov=True))
    for found, expected in zip((mean, np.diagonal(cov[0])[:, None]), model.predict_f(X), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    wide = model.predict_f(X, full_cov=True, full_output_cov=True)[1]
    np.testing.assert_allclose(wide[:, 0, :, 0], cov[0], rtol=1e-10)
    np.testing.assert_allclose(tf.function(model.predict_f)(X, full_cov=True)[1], cov, rtol=1e-8)
    means, covs = model.predict_components(X, full_cov=True)
    weights = model.component_weights().numpy()
    expected = np.tensordot(weights, covs[:, 0], 1) + np.cov(means[..., 0].numpy().T, bias=True, aweights=weights)
    np.testing.assert_allclose(cov[0], expected, rtol=1e-8)
    for draws in (model.sample_functions(S, num_features=32, seed=1)(X), model.predict_f_samples(X, S, seed=1)):
        centred = draws.numpy()[..., 0] - mean[:, 0]
        assert_mean_close(centred[:, :, None] * centred[:, None, :], cov[0], min_detectable=0.3 * np.max(cov))
    inner = model.predict_all_layers(X, 5, full_cov=True, seed=1)
    assert (inner.samples[0].shape, inner.covs[0].shape) == ((5, 3, 2), (1, 2, 3, 3))
    std = np.sqrt(np.diagonal(inner.covs[0][0], axis1=1, axis2=2).T + 1e-6)
    nodes = (inner.samples[0] - inner.means[0]).numpy() / std
    np.testing.assert_allclose(nodes, np.broadcast_to(nodes[:, :1], nodes.shape), rtol=1e-5)  # a point for all rows


def test_functions_at_points_are_differentiable_and_kept(rng: np.random.Generator, tmp_path: Path) -> None:
    """As those of other models: derivatives, pickles, graphs, TensorFlow's export; training goes on without them."""
    model, X = make_uneven(rng, 2), rng.normal(size=(3, D))
    drawn = model.sample_functions(2, num_features=20, seed=1)
    assert_functions_are_kept(drawn, X, tmp_path)
    values = drawn(X).numpy()
    np.testing.assert_allclose(drawn(np.stack([X, X])), values, rtol=1e-10)
    save_model(model, tmp_path / "model.npz")
    again = load_model(tmp_path / "model.npz").sample_functions(2, num_features=20, seed=1)
    np.testing.assert_array_equal(again(X), values)
    for layer in model.layers:
        layer.q_mu.assign(0 * layer.q_mu)
    np.testing.assert_array_equal(drawn(X), values)


def test_noise_that_depends_on_the_input_is_learnt(rng: np.random.Generator) -> None:
    """Two deviations, 0.05 and 1: one normal distribution for all rows loses half a nat."""

    def rows(num: int) -> tuple[np.ndarray, np.ndarray]:
        X = rng.uniform(-1, 1, size=(num, 1))
        return X, np.sin(3 * X) + np.where(X > 0, 1.0, 0.05) * rng.normal(size=(num, 1))

    (X, Y), test = rows(500), rows(1000)
    scores = {}
    for posterior in ("gaussian", "sigma_points"):
        config = ModelConfig(num_inducing=20, preset="modern", posterior=posterior, likelihood="gaussian")  # type: ignore[arg-type]
        fitted = fit(config, X, Y, max_iter=250)
        scores[posterior] = fitted.predictor.score(*test)["log_likelihood_nats"]
    assert scores["sigma_points"] > scores["gaussian"] + 0.3


def test_what_does_not_fit_is_refused(rng: np.random.Generator) -> None:
    likelihood = gpflow.likelihoods.Gaussian()
    for settings, message in (
        ({"num_points": 0}, "num_points must be at least 1, got 0"),
        ({"kl_weight": -1.0}, "kl_weight must be finite and not negative, got -1.0"),
        ({"kl_weight": np.nan}, "kl_weight must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            DeepSigmaPointProcess(layers(rng, 1), likelihood, **settings)
    latent = LatentVariableLayer(D, encoder=Encoder(D + 1, 1))
    with pytest.raises(ValueError, match="must be neither latent variables"):
        DeepSigmaPointProcess([latent, *layers(rng)], likelihood)
    X, Y = data_of(rng)
    with pytest.raises(ValueError, match="nor have global inducing"):
        with_sigma_points(with_global_inducing(modern(X, Y, 2, num_inducing=5)))
    for wrong, message in (
        ({"sigma_points": 4}, "sigma_points and kl_weight need posterior=sigma_points, got posterior=gaussian"),
        ({"posterior": "sigma_points", "natgrad": True}, "cannot have natgrad"),
        ({"posterior": "sigma_points", "kl_weight": -1.0}, "kl_weight finite and not negative"),
        ({"posterior": "points"}, "posterior must be one of gaussian, sghmc, global, sigma_points"),
    ):
        with pytest.raises(ValueError, match=message):
            ModelConfig(**by_group(ModelConfig, wrong))


def test_the_estimator_has_it(rng: np.random.Generator) -> None:
    X = rng.normal(size=(N, D))
    Y = X @ np.ones((D, 1)) + 0.3 * rng.normal(size=(N, 1))
    fields = {"sigma_points": 3, "kl_weight": 2.0}
    model = DeepGPRegressor(num_inducing=5, max_iter=250, posterior="sigma_points", model=fields)
    model.fit(X, Y[:, 0])
    deep = model.predictor_.model
    assert isinstance(deep, DeepSigmaPointProcess)
    assert (deep.kl_weight, deep.component_weights().shape) == (2.0, [3])
    assert model.get_params()["model"] == fields
