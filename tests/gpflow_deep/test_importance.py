"""Latent variables of the rows, and bounds with importance samples of them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import SquaredExponential
from scipy.special import logsumexp

from gpflow_deep import (
    BayesianLinearLayer,
    DeepGP,
    DeepGPQuad,
    Encoder,
    FeatureLayer,
    GaussHermite,
    LatentVariableLayer,
    SVGPLayer,
    load_model,
    save_model,
)
from gpflow_deep.posteriors.importance import joint_outputs
from tests.gpflow_deep.builders import make_data, make_layer, make_model
from tests.statistical import assert_mean_close


def latent_model(rng: np.random.Generator, *, model: type[DeepGP] = DeepGP, **options: Any) -> DeepGP:
    """One latent variable beside two inputs, and a GP of the three."""
    layer = options.pop("layer", None) or LatentVariableLayer(2, 1, encoder=Encoder(3, 1, hidden=(4,), std=1.3))
    return model([layer, make_layer(rng, 3, 1)], gpflow.likelihoods.Gaussian(0.1), **options)


def bound(model: DeepGP, data: Any, seed: int = 0) -> float:
    return float(model.elbo(data, seed=seed))


def bounds_of(model: DeepGP, data: Any, count: int) -> np.ndarray:
    """Bounds of some seeds, by a compiled function."""
    data = tuple(map(tf.constant, data))
    compiled = tf.function(lambda seed: model.elbo(data, seed=seed), autograph=False)
    return np.array([float(compiled(tf.constant([1, seed]))) for seed in range(count)])


def by_quadrature(model: DeepGP, data: Any, function: Callable[..., np.ndarray]) -> np.ndarray:
    """`function(E[log p(y_n | f)], w, log weight)` [nodes, N] of 60 nodes of w ~ N(0, 1), in plain NumPy."""
    (X, Y), noise = data, float(model.likelihood.variance.numpy())
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    terms = []
    for w in nodes:
        inputs = np.concatenate([X, np.full((len(X), 1), w)], axis=1)
        mean, var = (part.numpy() for part in model.layers[1].predict(inputs))
        terms.append(-0.5 * np.log(2 * np.pi * noise) - 0.5 * (np.square(Y - mean) + var)[:, 0] / noise)
    return function(np.array(terms), nodes[:, None], np.log(weights / weights.sum())[:, None])


def test_bound_of_one_sample_is_that_of_quadrature(rng: np.random.Generator) -> None:
    """E_q(w) by nodes a + b z, and KL[q(w) || p(w)], of `DeepGPQuad` and of many Monte-Carlo bounds."""
    model, data = latent_model(rng, model=DeepGPQuad, num_nodes=30), make_data(rng, 5)
    mean, std = (part.numpy()[:, 0] for part in model.layers[0].posterior(*map(tf.constant, data)))
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    expected = -float(model.prior_kl()) - np.sum(0.5 * (mean**2 + std**2 - 1.0) - np.log(std))
    noise = float(model.likelihood.variance.numpy())
    for z, weight in zip(nodes, weights / weights.sum(), strict=True):
        inputs = np.concatenate([data[0], (mean + std * z)[:, None]], axis=1)
        f_mean, f_var = (part.numpy() for part in model.layers[1].predict(inputs))
        terms = -0.5 * np.log(2 * np.pi * noise) - 0.5 * (np.square(data[1] - f_mean) + f_var) / noise
        expected += weight * np.sum(terms)
    np.testing.assert_allclose(bound(model, data), expected, rtol=1e-6)
    monte_carlo = DeepGP(model.layers, model.likelihood)
    assert_mean_close(bounds_of(monte_carlo, data, 400), expected, min_detectable=0.2 * abs(expected))


def test_bound_rises_with_the_samples_to_the_integral(rng: np.random.Generator) -> None:
    model, data = latent_model(rng), make_data(rng, 4)
    exact = by_quadrature(model, data, lambda terms, w, log_weight: logsumexp(terms + log_weight, axis=0)).sum()
    exact -= float(model.prior_kl())
    bounds = {}
    for K, count in ((1, 300), (4, 300), (32, 300), (20_000, 12)):
        model.num_importance_samples = K
        bounds[K] = bounds_of(model, data, count)
    means = [bounds[K].mean() for K in bounds]
    errors = [bounds[K].std() / np.sqrt(len(bounds[K])) for K in bounds]
    for i in range(3):
        assert means[i] < means[i + 1] + 4 * np.hypot(errors[i], errors[i + 1])
    assert means[0] < means[2] < exact + 5 * errors[2]
    assert means[1] > means[0]
    assert_mean_close(bounds[20_000], exact, min_detectable=0.5)


@pytest.mark.parametrize("K", [1, 3])
def test_latents_without_effect_change_nothing(rng: np.random.Generator, K: int) -> None:
    """The GP does not look at w, and q(w) is the prior: the bound is that of the GP alone, in any batch."""
    given = make_layer(rng, 2, 1)
    Z, kernel = given.inducing_variable.Z.numpy(), given.kernel
    blind = SquaredExponential(kernel.variance.numpy(), kernel.lengthscales.numpy(), active_dims=[0, 1])
    latent = LatentVariableLayer(2, 1, encoder=prior)
    last = SVGPLayer(blind, latent.extend(Z), q_mu=given.q_mu.numpy(), q_sqrt=given.q_sqrt.numpy())
    likelihood, data = gpflow.likelihoods.Gaussian(0.1), make_data(rng, 6)
    model = DeepGP([latent, last], likelihood, num_data=50, num_importance_samples=K)
    alone = DeepGP([given], likelihood, num_data=50, num_importance_samples=K)
    np.testing.assert_allclose(bound(model, data), bound(alone, data), rtol=1e-9)
    np.testing.assert_allclose(model.predict_f(data[0])[1], alone.predict_f(data[0])[1], rtol=1e-7)


def prior(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Means and deviations of N(0, 1)."""
    return tf.zeros_like(rows[:, :1]), tf.ones_like(rows[:, :1])


def test_samples_without_latents_are_of_nothing(rng: np.random.Generator) -> None:
    """There is nothing to sample: the bound is the same number for every K, since functions are not averaged in it."""
    model, data = make_model(rng, (2, 2, 1)), make_data(rng, 6)
    for K in (1, 20):
        again = DeepGP(model.layers, model.likelihood, num_importance_samples=K)
        assert bound(again, data, 3) == bound(model, data, 3)


def layer_of_lines(rng: np.random.Generator, slopes: tuple[float, float]) -> SVGPLayer:
    """f(x, w) = a x + b w with a, b ~ N(0, slopes), exactly: q(u) is the prior."""
    return SVGPLayer(gpflow.kernels.Linear(slopes), rng.standard_normal((4, 2)))


def passing_on(dim: int) -> SVGPLayer:
    """A last layer that adds next to nothing to the sum of its inputs."""
    weights = gpflow.mean_functions.Linear(np.ones((dim, 1)), np.zeros(1))
    return SVGPLayer(SquaredExponential(1e-8), np.zeros((1, dim)), mean_function=weights)


def model_of_lines(rng: np.random.Generator, *, layers: str = "lines") -> DeepGP:
    """y = a x + b w + noise with one a and one b for all rows; q(u) and q(w) are the priors."""
    latent, slopes = LatentVariableLayer(1, 1, encoder=prior), (1.0, 0.01)
    chains: dict[str, list[Any]] = {
        "lines": [latent, layer_of_lines(rng, slopes), passing_on(1)],
        "deterministic between": [latent, layer_of_lines(rng, slopes), FeatureLayer(tf.identity, 1), passing_on(1)],
        "linear": [latent, BayesianLinearLayer(2, 1), passing_on(1)],  # a x + b w + c with a, b, c ~ N(0, 1)
        "latents above": [SVGPLayer(gpflow.kernels.Linear(), rng.standard_normal((3, 1))), latent, passing_on(2)],
    }
    return DeepGP(chains[layers], gpflow.likelihoods.Gaussian(0.01))


def log_evidence(x: float, y: np.ndarray, slopes: tuple[float, float], noise: float) -> float:
    """Of y = a x + b w_n + noise with targets y at one x, a and b from their priors, w_n of each row: by quadrature
    over a and b of the product of N(y_n; a x, b^2 + noise)."""
    a = np.linspace(-6, 6, 4001)[:, None] * np.sqrt(slopes[0])
    b = np.linspace(-6, 6, 401)[None] * np.sqrt(slopes[1])
    log_joint = -0.5 * (a**2 / slopes[0] + b**2 / slopes[1]) - np.log(2 * np.pi * np.sqrt(slopes[0] * slopes[1]))
    for target in y:
        log_joint = log_joint - 0.5 * ((target - a * x) ** 2 / (b**2 + noise) + np.log(2 * np.pi * (b**2 + noise)))
    return float(logsumexp(log_joint) + np.log((a[1, 0] - a[0, 0]) * (b[0, 1] - b[0, 0])))


def test_is_a_bound_with_inner_layers(rng: np.random.Generator) -> None:
    """Two rows of one input, targets 1 and -1, which one function cannot both have: the bound is below the evidence for
    every K, by more than its standard errors, and rises with K. Averages over functions of each sample would pass it.
    """
    data, slopes = (np.ones((2, 1)), np.array([[1.0], [-1.0]])), (1.0, 0.01)
    exact = log_evidence(1.0, data[1][:, 0], slopes, 0.01)
    model, means, errors = model_of_lines(rng), [], []
    np.testing.assert_allclose(model.prior_kl(), 0.0, atol=1e-9)
    for K in (1, 5, 20):
        model.num_importance_samples = K
        bounds = bounds_of(model, data, 400)
        means.append(bounds.mean())
        errors.append(bounds.std() / 20)
        assert means[-1] + 3 * errors[-1] < exact
    for i in range(2):
        assert means[i] < means[i + 1] + 4 * np.hypot(errors[i], errors[i + 1])


@pytest.mark.parametrize("layers", ["lines", "deterministic between", "linear", "latents above"])
def test_samples_of_a_row_have_one_function(rng: np.random.Generator, layers: str) -> None:
    """The bound of K samples of a row is the mean of log 1/K sum_k N(y; a x + b w_k, noise) over a, b, w, in NumPy."""
    model, K, y, count = model_of_lines(rng, layers=layers), 3, 0.7, 200_000
    model.num_importance_samples = K
    a, b, c = rng.standard_normal((3, count, 1))
    f = {"linear": b, "latents above": 1.0}.get(layers, 0.1 * b) * rng.standard_normal((count, K)) + 1.5 * a
    f = f + c if layers == "linear" else f
    terms = -0.5 * (np.square(y - f) / 0.01 + np.log(2 * np.pi * 0.01))
    expected = logsumexp(terms, axis=1) - np.log(K)
    found = bounds_of(model, (np.full((1, 1), 1.5), np.array([[y]])), 1000)
    assert_mean_close(found, expected.mean(), min_detectable=0.2 * expected.std())


def test_a_layer_below_the_latents_is_drawn_once_for_the_samples_of_a_row(rng: np.random.Generator) -> None:
    """By the first noise of K; the last layer at (f(x), w_k) is what it is for each row alone."""
    S, K, N = 2, 3, 4
    below, last = make_layer(rng, 2, 2), make_layer(rng, 3, 1)
    layers = [below, LatentVariableLayer(2, 1, encoder=Encoder(3, 1)), last]
    factors = [layer.factors() for layer in layers]
    X, eps, w = rng.normal(size=(N, 2)), rng.normal(size=(S * K, N, 2)), rng.normal(size=(S * K, N, 1))
    f_mean, f_var = joint_outputs(layers, factors, tf.constant(X), [tf.constant(eps), tf.constant(w)], K)
    h_mean, h_var = (part.numpy() for part in below.predict(X))
    h = np.repeat(h_mean + np.sqrt(h_var) * eps[::K], K, axis=0)
    for draw in range(S * K):
        mean, var = last.predict(np.concatenate([h[draw], w[draw]], axis=1))
        np.testing.assert_allclose(f_mean[draw], mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(f_var[draw], var, rtol=1e-8, atol=1e-12)


def slopes_and_differences(
    model: DeepGP, data: Any, variables: Sequence[tf.Variable], count: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For the first entry of each variable, gradients of bounds of some seeds, and their central differences."""
    data = tuple(map(tf.constant, data))

    @tf.function(autograph=False)
    def value(seed: tf.Tensor) -> tf.Tensor:
        return model.elbo(data, seed=seed)

    @tf.function(autograph=False)
    def slopes(seed: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            total = model.elbo(data, seed=seed)
        return tape.gradient(total, variables)

    seeds, found = [tf.constant([0, s]) for s in range(count)], []
    gradients = [slopes(seed) for seed in seeds]
    for i, variable in enumerate(variables):
        start, ends = variable.numpy(), []
        for sign in (1, -1):
            moved = start.copy()
            moved[0, 0] += sign * 1e-4
            variable.assign(moved)
            ends.append(np.array([float(value(seed)) for seed in seeds]))
        variable.assign(start)
        found.append((np.array([part[i].numpy()[0, 0] for part in gradients]), (ends[0] - ends[1]) / 2e-4))
    return found


def test_gradients_have_the_mean_of_the_bounds_slope(rng: np.random.Generator) -> None:
    """The doubly reparametrised gradient of q(w)'s parameters, and the slope of the bound for each seed: different
    numbers of one mean. For other parameters the gradient is that slope. With 64 times as many samples the ratio of
    signal to noise rises, by 8 if all is asymptotic, and falls for the slopes, so that it is higher in the end."""
    layer = LatentVariableLayer(2, 1, num_rows=3)
    layer.q_mean.assign([[0.4], [-0.3], [0.9]])
    layer.q_std.assign(1.3 * np.ones((3, 1)))  # wider than the prior, so that weights are bounded
    model, data = latent_model(rng, layer=layer, num_importance_samples=4), make_data(rng, 3)
    of_q = [layer.q_mean.unconstrained_variable, layer.q_std.unconstrained_variable]
    few = slopes_and_differences(model, data, [*of_q, model.layers[1].q_mu.unconstrained_variable], 200)
    for gradients, differences in few[:2]:
        assert_mean_close(gradients - differences, 0.0, min_detectable=1.0 + 0.5 * np.abs(differences.mean()))
        assert not np.allclose(gradients, differences)
    np.testing.assert_allclose(*few[2], rtol=1e-4, atol=1e-5)
    model.num_importance_samples = 256
    many = slopes_and_differences(model, data, of_q[:1], 200)

    def signal_to_noise(draws: np.ndarray) -> float:
        return float(np.abs(draws.mean()) / draws.std())

    assert signal_to_noise(many[0][0]) > signal_to_noise(few[0][0])
    assert signal_to_noise(many[0][0]) > signal_to_noise(many[0][1])


def test_gradients_through_inner_layers_have_the_mean_of_the_slope(rng: np.random.Generator) -> None:
    """As above with GP layers between, whose joint draws move at all samples if one is moved; and of the parameters of
    a layer below another one, which go through the slopes of draws, too. With 12,000 draws in all, slopes of the draws
    themselves, weighted alike, are seen to be wrong for the deviations of q(w)."""
    layer = LatentVariableLayer(2, 1, num_rows=3)
    layer.q_mean.assign([[0.4], [-0.3], [0.9]])
    layer.q_std.assign(1.3 * np.ones((3, 1)))
    inner = [make_layer(rng, 3, 2, noise_variance=1e-2), make_layer(rng, 2, 2)]
    layers, likelihood = [layer, *inner, make_layer(rng, 2, 1)], gpflow.likelihoods.Gaussian(0.1)
    model, data = DeepGP(layers, likelihood, num_importance_samples=4, num_samples=200), make_data(rng, 3)
    variables = [layer.q_mean, layer.q_std, inner[0].q_mu, inner[1].q_mu, layers[-1].q_mu]
    found = slopes_and_differences(model, data, [variable.unconstrained_variable for variable in variables], 60)
    for gradients, differences in found[:3]:
        assert_mean_close(gradients - differences, 0.0, min_detectable=(gradients - differences).std())
        assert not np.allclose(gradients, differences, rtol=1e-3, atol=1e-4)
    for gradients, differences in found[3:]:  # nothing is drawn with slopes above: the same numbers
        np.testing.assert_allclose(gradients, differences, rtol=1e-4, atol=1e-5)


def test_minibatches_saving_and_training(rng: np.random.Generator, tmp_path: Path) -> None:
    model, data = latent_model(rng, num_data=8, num_importance_samples=2), make_data(rng, 8)
    whole = bound(DeepGP(model.layers, model.likelihood, num_data=8), data)
    assert np.isfinite(whole)
    assert np.isfinite(bound(model, (data[0][:3], data[1][:3])))
    save_model(model, tmp_path / "model.npz")
    loaded = load_model(tmp_path / "model.npz")
    assert bound(loaded, data) == bound(model, data)
    np.testing.assert_array_equal(loaded.predict_f(data[0])[0], model.predict_f(data[0])[0])
    with tf.GradientTape() as tape:
        loss = model.training_loss(data, seed=1)
    gradients = tape.gradient(loss, model.trainable_variables)
    assert all(np.all(np.isfinite(g)) and np.any(g != 0) for g in gradients)
    with tf.GradientTape() as tape:
        loss = model.training_loss_closure(data, seed=1)()
    for compiled, eager in zip(tape.gradient(loss, model.trainable_variables), gradients, strict=True):
        np.testing.assert_allclose(compiled, eager, rtol=1e-8, atol=1e-10)


def test_predictions_are_mixtures_over_the_prior(rng: np.random.Generator) -> None:
    """Mean, variance and log density against quadrature over w, moments of 2,048 Sobol points; and functions."""
    model, data = latent_model(rng, num_predict_samples=2048), make_data(rng, 4)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    means, variances = [], []
    for w in nodes:
        inputs = np.concatenate([data[0], np.full((4, 1), w)], axis=1)
        mean, var = model.layers[1].predict(inputs)
        means.append(mean.numpy())
        variances.append(var.numpy())
    weights = (weights / weights.sum())[:, None, None]
    mean = (weights * means).sum(axis=0)
    var = (weights * (np.array(variances) + np.square(np.array(means) - mean))).sum(axis=0)
    found = model.predict_f(data[0])
    np.testing.assert_allclose(found[0], mean, atol=2e-3)
    np.testing.assert_allclose(found[1], var, rtol=1e-2)
    total = np.array(variances) + 0.1
    densities = -0.5 * np.log(2 * np.pi * total) - 0.5 * np.square(data[1] - np.array(means)) / total
    expected = logsumexp(densities + np.log(weights), axis=0)[:, 0]
    np.testing.assert_allclose(model.predict_log_density(data), expected, atol=1e-2)
    draws = model.sample_functions(1500, seed=1, noise="white")(data[0]).numpy()
    assert_mean_close(draws, mean, min_detectable=0.5)
    assert model.predict_f_samples(data[0], 3).shape == (3, 4, 1)
    full = model.predict_f(data[0], full_cov=True, full_output_cov=True)[1]
    assert full.shape == (4, 1, 4, 1)


def test_wrong_arguments(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="either an encoder or num_rows"):
        LatentVariableLayer(2, 1)
    with pytest.raises(ValueError, match="latent_dim must be at least 1"):
        LatentVariableLayer(2, 0, num_rows=3)
    with pytest.raises(ValueError, match="num_importance_samples must be at least 1"):
        latent_model(rng, num_importance_samples=0)
    with pytest.raises(ValueError, match="must be 1 unless the integrator is MonteCarlo"):
        latent_model(rng, integrator=GaussHermite(), num_importance_samples=2)
    X, Y = make_data(rng, 4)
    with pytest.raises(ValueError, match=r"must read rows \[x, y\] of 2 columns, got 3; make it with input_dim=3"):
        bound(latent_model(rng, layer=LatentVariableLayer(2, 1, encoder=Encoder(2, 1))), (X, Y))
    with pytest.raises(ValueError, match="the encoder must return the 1 columns of latent_dim, got 2"):
        bound(latent_model(rng, layer=LatentVariableLayer(2, 1, encoder=Encoder(3, 2))), (X, Y))
    with pytest.raises(ValueError, match="num_rows must be at least 1, got 0"):
        LatentVariableLayer(2, 1, num_rows=0)
    model = latent_model(rng, layer=LatentVariableLayer(2, 1, num_rows=5))
    with pytest.raises(ValueError, match="a batch must have all 5 training rows, got 4; use an encoder"):
        bound(model, (X, Y))


@pytest.mark.parametrize("rows", [4, None])
def test_free_parameters_need_all_rows_in_compiled_steps(rng: np.random.Generator, rows: int | None) -> None:
    """Whether or not tracing knows how many there are."""
    model, data = latent_model(rng, layer=LatentVariableLayer(2, 1, num_rows=5)), make_data(rng, 4)
    specs = [tf.TensorSpec([rows, columns], tf.float64) for columns in (2, 1)]
    compiled = tf.function(lambda X, Y: model.elbo((X, Y), seed=0), input_signature=specs, autograph=False)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="a batch must have all 5 training rows"):
        compiled(*map(tf.constant, data))
