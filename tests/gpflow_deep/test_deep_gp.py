"""`DeepGP` and `DeepGPQuad`: identities, limits that are known models, quadrature, and statistics, in this order."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_deep
from gpflow_deep import (
    DeepGP,
    DeepGPQuad,
    MonteCarlo,
    Sampler,
    SVGPLayer,
)
from gpflow_deep.model import propagation
from tests.gpflow_deep import oracles
from tests.gpflow_deep.builders import (
    COVARIANCE_SHAPES,
    make_data,
    make_layer,
    make_model,
    random_kernel,
    random_q,
    spread_inputs,
    standard_noise,
)
from tests.statistical import assert_mean_close


def numpy_layers(model: DeepGP) -> list[oracles.Layer]:
    return [oracles.Layer(layer) for layer in model.layers]


# One layer is GPflow's SVGP.


def svgp_pair(
    rng: np.random.Generator, whiten: bool, likelihood: gpflow.likelihoods.Likelihood | None = None
) -> tuple[DeepGP, gpflow.models.SVGP]:
    """The same model twice, with parameters of their own, of 50 data points and two outputs."""
    kernel, Z = random_kernel(rng, 2), spread_inputs(rng, 6, 2)
    q_mu, q_sqrt = random_q(rng, 6, 2)
    mean_function = gpflow.mean_functions.Linear(A=np.ones((2, 2)), b=np.full(2, 0.3))
    likelihood = likelihood or gpflow.likelihoods.Gaussian(variance=0.1)
    options: dict[str, Any] = {"q_mu": q_mu, "q_sqrt": q_sqrt, "whiten": whiten, "mean_function": mean_function}
    ours = DeepGP([SVGPLayer(kernel, Z, **options)], likelihood, num_data=50)
    gpflows = gpflow.models.SVGP(kernel, likelihood, Z, num_latent_gps=2, num_data=50, **options)
    return gpflow.utilities.deepcopy(ours), gpflow.utilities.deepcopy(gpflows)


@pytest.mark.parametrize("whiten", [True, False])
def test_one_layer_is_svgp(rng: np.random.Generator, whiten: bool) -> None:
    """Rounding only: 1e-10 relative at cond(Kuu) < 1e4."""
    ours, gpflows = svgp_pair(rng, whiten)
    X, Y = make_data(rng, 12, 2, 2)  # a minibatch of 12 of 50
    np.testing.assert_allclose(ours.elbo((X, Y)), gpflows.elbo((X, Y)), rtol=1e-10)
    np.testing.assert_allclose(ours.training_loss((X, Y)), gpflows.training_loss((X, Y)), rtol=1e-10)
    np.testing.assert_allclose(ours.prior_kl(), gpflows.prior_kl(), rtol=1e-10)
    for full_cov, full_output_cov in COVARIANCE_SHAPES:
        theirs = gpflows.predict_f(X, full_cov=full_cov, full_output_cov=full_output_cov)
        for a, b in zip(ours.predict_f(X, full_cov=full_cov, full_output_cov=full_output_cov), theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11)
    for a, b in zip(ours.predict_y(X), gpflows.predict_y(X), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    np.testing.assert_allclose(
        ours.predict_log_density((X, Y)), gpflows.predict_log_density((X, Y)), rtol=1e-10, atol=1e-10
    )
    sizes = [sum(int(tf.size(v)) for v in model.trainable_variables) for model in (ours, gpflows)]
    assert sizes[0] == sizes[1] > 0


@pytest.mark.parametrize("quad", [False, True])
def test_one_layer_without_num_data_does_not_scale(rng: np.random.Generator, quad: bool) -> None:
    ours, gpflows = svgp_pair(rng, True, gpflow.likelihoods.StudentT())
    if quad:
        ours = DeepGPQuad(ours.layers, ours.likelihood)
    ours.num_data = gpflows.num_data = None
    data = make_data(rng, 12, 2, 2)
    np.testing.assert_allclose(ours.elbo(data), gpflows.elbo(data), rtol=1e-10)


@pytest.mark.parametrize("whiten", [pytest.param(True, marks=pytest.mark.slow), False])
def test_one_layer_trains_as_svgp(rng: np.random.Generator, whiten: bool) -> None:
    """20 Adam steps. Adam's first steps are sign-like, so rounding differences stay rounding: 1e-7 after 20 steps."""
    pair = svgp_pair(rng, whiten)
    X, Y = make_data(rng, 20, 2, 2)
    losses = []
    for model in pair:
        closure = model.training_loss_closure((tf.constant(X), tf.constant(Y)), compile=False)
        optimizer = tf.keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)

        def step(closure=closure, optimizer=optimizer, variables=model.trainable_variables) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = closure()
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return loss

        compiled = tf.function(step, autograph=False)
        losses.append([float(compiled()) for _ in range(21)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-7)
    assert losses[0][-1] < losses[0][0] - 1.0
    for a, b in zip(pair[0].predict_f(X), pair[1].predict_f(X), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


# Two layers against plain NumPy.


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("input_propagation", [0, 2])
def test_bound_and_components_are_the_formula(rng: np.random.Generator, whiten: bool, input_propagation: bool) -> None:
    first = make_layer(
        rng,
        2,
        2,
        whiten=whiten,
        noise_variance=0.05,
        input_propagation=input_propagation,
        mean_function=gpflow.mean_functions.Identity(2),
    )
    last = make_layer(rng, 2 + input_propagation, 1, whiten=whiten)
    model = DeepGP([first, last], gpflow.likelihoods.Gaussian(variance=0.1), num_data=60)
    X, Y = make_data(rng, 8)
    noise = standard_noise(rng, model, 3, 8)
    layers, eps = numpy_layers(model), [np.asarray(part) for part in noise]
    expected = oracles.gaussian_elbo(layers, X, Y, eps, 0.1, 60)
    np.testing.assert_allclose(model.elbo((X, Y), noise=noise), expected, rtol=1e-9)
    means, variances = oracles.components(layers, X, eps)
    result = model.propagate(X, noise)
    np.testing.assert_allclose(result.means[-1], means, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(result.covs[-1], variances, rtol=1e-8, atol=1e-9)
    assert len(result.samples) == 1
    assert [part.shape for part in result.means] == [(1, 8, 2 + input_propagation), (3, 8, 1)]


def test_three_layers_are_the_formula(rng: np.random.Generator) -> None:
    model = make_model(rng, (3, 2, 2, 2), num_data=60, layer_options={"noise_variance": 0.02})
    X, Y = make_data(rng, 6, 3, 2)
    noise = standard_noise(rng, model, 2, 6)
    expected = oracles.gaussian_elbo(numpy_layers(model), X, Y, [np.asarray(part) for part in noise], 0.1, 60)
    np.testing.assert_allclose(model.elbo((X, Y), noise=noise), expected, rtol=1e-9)


def test_zero_noise_is_the_mean_pass(rng: np.random.Generator) -> None:
    model = make_model(rng, (2, 2, 2, 1))
    X, _ = make_data(rng, 5)
    zeros = [tf.zeros([1, 5, layer.num_latent_gps], tf.float64) for layer in model.layers]
    F = X
    for layer, sample in zip(model.layers, model.propagate(X, zeros).samples, strict=True):
        F = layer.predict(F)[0].numpy()
        np.testing.assert_allclose(sample[0], F, rtol=1e-12, atol=1e-13)


# An inner layer without variance.


def certain_identity(rng: np.random.Generator, D: int, kernel_variance: float = 1e-12) -> SVGPLayer:
    return SVGPLayer(
        gpflow.kernels.SquaredExponential(variance=kernel_variance),
        spread_inputs(rng, 5, D),
        num_latent_gps=D,
        q_sqrt_scale=1e-5,
        mean_function=gpflow.mean_functions.Identity(D),
    )


def test_inner_layer_without_variance_and_zero_noise_is_svgp(rng: np.random.Generator) -> None:
    """With zero noise nothing is left of the inner layer but its mean and its KL."""
    shallow, gpflows = svgp_pair(rng, True)
    inner = certain_identity(rng, 2)
    model = DeepGP([inner, *shallow.layers], shallow.likelihood, num_data=50)
    data = make_data(rng, 12, 2, 2)
    noise = [tf.zeros([1, 12, 2], tf.float64)]
    np.testing.assert_allclose(model.elbo(data, noise=noise) + inner.prior_kl(), gpflows.elbo(data), rtol=1e-10)


def test_an_inner_layer_without_variance_is_svgp(rng: np.random.Generator) -> None:
    """Draws are the inputs, with whatever variance rounding leaves of a certain layer: its expectation moves the
    bound by half of it times the second derivative, and 1e-8 is far below what a jitter of 1e-6 would do (1.8e-5)."""
    layer = make_layer(rng, 1, 1)
    likelihood = gpflow.likelihoods.Gaussian(variance=0.1)
    inner = certain_identity(rng, 1)
    X, Y = make_data(rng, 12, 1)
    deep = DeepGPQuad([inner, layer], likelihood, num_nodes=10)
    shallow = DeepGP([layer], likelihood)
    difference = deep.elbo((X, Y)) + inner.prior_kl() - shallow.elbo((X, Y))
    np.testing.assert_allclose(difference, 0.0, atol=1e-8)


# Quadrature.


def quad_pair(rng: np.random.Generator, likelihood: gpflow.likelihoods.Likelihood | None = None, **options: Any):
    """One hidden dimension, integrated by Monte Carlo and by 60 nodes."""
    model = make_model(rng, (2, 1, 1), likelihood, layer_options={"noise_variance": 0.01}, **options)
    return model, DeepGPQuad(model.layers, model.likelihood, num_data=model.num_data, num_nodes=60)


def test_monte_carlo_bound_is_the_quadrature_bound(rng: np.random.Generator) -> None:
    """400 bounds with 5 draws each. The spread between draws is of the order of a nat or more: not a constant."""
    model, quad = quad_pair(rng, num_data=60, num_samples=5)
    data = tuple(map(tf.constant, make_data(rng)))
    bound = tf.function(lambda s: model.elbo(data, seed=s), autograph=False)
    base = tf.constant(rng.integers(0, 2**31, 2), tf.int32)
    draws = np.array([bound(tf.random.fold_in(base, i)).numpy() for i in range(400)])
    exact = float(quad.elbo(data))
    np.testing.assert_allclose(exact, DeepGPQuad(model.layers, model.likelihood, num_data=60, num_nodes=40).elbo(data))
    assert np.std(draws) > 0.1
    assert_mean_close(draws, exact, num_se=5, min_detectable=0.5 * np.std(draws))


def test_predictions_are_the_quadrature_ones(rng: np.random.Generator) -> None:
    """4096 Sobol points in one dimension are one for each 4096th of probability: the error of a mean is at most the
    total variation of what is averaged, of the order of 1 here, over 4096; for independent draws it would be 1 / 64."""
    model, quad = quad_pair(rng)
    X, Y = make_data(rng, 4)
    for found, expected in zip(model.predict_f(X, num_samples=4096), quad.predict_f(X), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=5 / 4096)
    density, expected = (np.exp(m.predict_log_density((X, Y), num_samples=4096)) for m in (model, quad))
    np.testing.assert_allclose(density, expected, rtol=0, atol=5 / 4096)
    components = model.predict_components(X, num_samples=4096)[0].numpy()
    assert np.all(np.std(components, axis=0) > 0.01)


def test_independent_predictions_are_the_quadrature_ones(rng: np.random.Generator) -> None:
    """The components are independent draws, so that their mean has the standard error of S = 20,000 draws."""
    _, quad = quad_pair(rng)
    model = DeepGP(quad.layers, quad.likelihood, predict_integrator=MonteCarlo())
    X, Y = make_data(rng, 4)
    means, variances = (part.numpy() for part in model.predict_components(X, num_samples=20_000))
    mean, var = (part.numpy() for part in quad.predict_f(X))
    assert_mean_close(means, mean, num_se=5, min_detectable=0.05)
    assert_mean_close(variances + (means - mean) ** 2, var, num_se=5, min_detectable=0.05)
    density = np.exp(-0.5 * (Y - means) ** 2 / (variances + 0.1)) / np.sqrt(2 * np.pi * (variances + 0.1))
    assert_mean_close(density[..., 0], np.exp(quad.predict_log_density((X, Y))), num_se=5, min_detectable=0.05)


def test_quadrature_is_deterministic(rng: np.random.Generator) -> None:
    _, quad = quad_pair(rng)
    X, Y = make_data(rng, 4)
    assert float(quad.elbo((X, Y))) == float(quad.elbo((X, Y), seed=5))
    np.testing.assert_array_equal(quad.predict_f(X)[0], quad.predict_f(X, seed=5)[0])


def test_quadrature_grid_over_two_inner_layers(rng: np.random.Generator) -> None:
    """Weights and noise of the tensor grid belong together: the bound is the weighted mean of its nodes' bounds."""
    model = make_model(rng, (2, 1, 1, 1), layer_options={"noise_variance": 0.1})
    quad = DeepGPQuad(model.layers, model.likelihood, num_nodes=4)
    X, Y = make_data(rng, 5)
    nodes, weights = np.polynomial.hermite_e.hermegauss(4)
    total = 0.0
    for i in range(4):
        for j in range(4):
            noise = [np.full((1, 5, 1), nodes[i]), np.full((1, 5, 1), nodes[j])]
            bound = oracles.gaussian_elbo(numpy_layers(model), X, Y, noise, 0.1, 5)
            total += weights[i] * weights[j] / np.sum(weights) ** 2 * bound
    np.testing.assert_allclose(quad.elbo((X, Y)), total, rtol=1e-9)


# Minibatches.


def test_mean_of_minibatch_bounds_is_the_full_bound(rng: np.random.Generator) -> None:
    """Over a partition into equal parts, with the same noise: an identity."""
    model = make_model(rng, num_data=12, num_samples=3)
    X, Y = make_data(rng, 12)
    noise = standard_noise(rng, model, 3, 12)
    parts = np.split(rng.permutation(12), 4)
    bounds = [model.elbo((X[part], Y[part]), noise=[tf.gather(e, part, axis=1) for e in noise]) for part in parts]
    np.testing.assert_allclose(np.mean(bounds), model.elbo((X, Y), noise=noise), rtol=1e-12)


# Mixtures.


@pytest.mark.parametrize("model_type", [DeepGP, DeepGPQuad])
def test_predictions_are_the_mixture_of_the_components(rng: np.random.Generator, model_type: type[DeepGP]) -> None:
    model = make_model(rng, (2, 1, 2), model=model_type)
    X, _Y = make_data(rng, 5, 2, 2)
    for full_cov, full_output_cov in COVARIANCE_SHAPES:
        shape: dict[str, Any] = {"full_cov": full_cov, "full_output_cov": full_output_cov}
        means, covs = (part.numpy() for part in model.predict_components(X, **shape))
        weights = model.component_weights().numpy()
        np.testing.assert_allclose(np.sum(weights), 1.0, rtol=1e-12)
        if full_cov:
            weights = np.full(len(means), 1 / len(means))  # joint draws are Monte Carlo, for the quadrature model, too
        expected = oracles.mixture(means, covs, weights, full_cov, full_output_cov)
        for value, reference in zip(model.predict_f(X, **shape), expected, strict=True):
            assert value.shape == reference.shape
            np.testing.assert_allclose(value, reference, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("q_diag", [False, True])
def test_predictions_with_given_factors(rng: np.random.Generator, q_diag: bool) -> None:
    """Triangular solves, or products with the inverse of the Cholesky factor: the same up to cond(Kuu)^(1/2) < 1e2."""
    model = make_model(rng, layer_options={"q_diag": q_diag, "noise_variance": 0.1})
    X, Y = make_data(rng, 5)
    by_solving, cached = model.factors(), model.cached_factors()
    for full_cov in (False, True):
        expected = model.predict_f(X, full_cov=full_cov)
        for factors in (by_solving, cached):
            for a, b in zip(model.predict_f(X, full_cov=full_cov, factors=factors), expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(
        model.predict_log_density((X, Y), factors=by_solving), model.predict_log_density((X, Y)), rtol=1e-9
    )


@pytest.mark.parametrize("model_type", [DeepGP, DeepGPQuad])
def test_log_density_is_the_log_mean_of_densities(rng: np.random.Generator, model_type: type[DeepGP]) -> None:
    model = make_model(rng, (2, 1, 2), model=model_type)
    X, Y = make_data(rng, 5, 2, 2)
    Y[0] += 100.0  # where every density underflows: the mean of densities has to be taken in logs
    means, variances = (part.numpy() for part in model.predict_components(X))
    total = variances + 0.1
    logs = np.sum(-0.5 * np.log(2 * np.pi * total) - 0.5 * (Y - means) ** 2 / total, axis=-1)
    assert np.all(np.exp(logs[:, 0]) == 0.0)
    expected = oracles.log_mean_exp(logs, model.component_weights().numpy())
    np.testing.assert_allclose(model.predict_log_density((X, Y)), expected, rtol=1e-10)


# Draws.


def test_draws_have_the_predicted_marginals(rng: np.random.Generator) -> None:
    """Against quadrature, so that draws are not compared with draws."""
    model, quad = quad_pair(rng)
    X, _ = make_data(rng, 3)
    mean, var = (part.numpy() for part in quad.predict_f(X))
    for full_cov in (False, True):
        draws = model.predict_f_samples(X, 20_000, full_cov=full_cov, seed=int(rng.integers(2**31))).numpy()
        assert_mean_close(draws, mean, num_se=5, min_detectable=0.06)
        assert_mean_close((draws - mean) ** 2, var + oracles.JITTER, num_se=5, min_detectable=0.12)


def test_joint_draws_have_the_predicted_covariance(rng: np.random.Generator) -> None:
    """`predict_f(full_cov=True)` with 4,000 components has an error of its own, at most that of 20,000 draws of f times
    sqrt(5): it is allowed for by `num_se` standard errors of a sixth of the draws."""
    model = make_model(rng, (2, 2, 2))
    X = np.array([[0.0, 0.0], [0.2, 0.1], [1.5, -1.0]])
    mean, cov = (part.numpy() for part in model.predict_f(X, full_cov=True, full_output_cov=True, num_samples=20_000))
    draws = model.predict_f_samples(X, 4000, full_cov=True, seed=int(rng.integers(2**31))).numpy()
    centred = draws - mean
    products = np.einsum("snp,smq->snpmq", centred, centred)
    # Both sides are Monte Carlo; 20,000 components add at most 1/5 to the variance of the difference, and joint draws
    # in the right-hand side less than that because the last layer is integrated exactly.
    assert_mean_close(products, cov, num_se=5 * np.sqrt(1.2), min_detectable=0.15)
    assert np.abs(cov[0, 0, 1, 0]) > 0.2


def test_joint_draws_are_functions(rng: np.random.Generator) -> None:
    """Neighbouring values of a joint draw differ little, those of independent draws as much as any two."""
    model = make_model(rng, (1, 1, 1))
    X = np.linspace(-1, 1, 41)[:, None]
    joint = model.predict_f_samples(X, 20, seed=1).numpy()
    independent = model.predict_f_samples(X, 20, full_cov=False, seed=1).numpy()
    # Slope of at most about 10 (deviation 1, lengthscales of 0.6 and more, two layers), step 0.05.
    assert np.max(np.abs(np.diff(joint, axis=1))) < 0.5
    assert np.std(np.diff(joint, axis=1)) < 0.2 * np.std(np.diff(independent, axis=1))


def test_sample_shapes(rng: np.random.Generator) -> None:
    model = make_model(rng, (2, 2, 3))
    X = rng.uniform(-1, 1, (2, 4, 2))
    for full_cov in (False, True):
        assert model.predict_f_samples(X[0], full_cov=full_cov).shape == (4, 3)
        assert model.predict_f_samples(X[0], 5, full_cov=full_cov).shape == (5, 4, 3)
        assert model.predict_f_samples(X, full_cov=full_cov).shape == (2, 4, 3)
        assert model.predict_f_samples(X, 5, full_cov=full_cov).shape == (2, 5, 4, 3)


def test_all_layers(rng: np.random.Generator) -> None:
    model = make_model(rng, (3, 2, 2, 1))
    X, _ = make_data(rng, 5, 3)
    result = model.predict_all_layers(X, 7)
    assert [part.shape for part in result.samples] == [(7, 5, 2), (7, 5, 2), (7, 5, 1)]
    assert [part.shape for part in result.means] == [(1, 5, 2), (7, 5, 2), (7, 5, 1)]
    assert [part.shape for part in result.covs] == [(1, 5, 2), (7, 5, 2), (7, 5, 1)]
    joint = model.predict_all_layers(X, 7, full_cov=True)
    assert [part.shape for part in joint.covs] == [(1, 2, 5, 5), (7, 2, 5, 5), (7, 1, 5, 5)]
    for i, layer in enumerate(model.layers[1:], start=1):  # moments are those given the draws of the layer below
        mean, var = layer.predict(result.samples[i - 1])
        np.testing.assert_allclose(result.means[i], mean, rtol=1e-12)
        np.testing.assert_allclose(result.covs[i], var, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(layer.predict(joint.samples[i - 1], full_cov=True)[1], joint.covs[i], atol=1e-12)


# Slices.


def small_slices(monkeypatch: pytest.MonkeyPatch, model: DeepGP, points: int) -> None:
    """A budget for `points` points, counting the S copies, at once."""
    floats = max(layer.floats_per_row for layer in model.layers)
    monkeypatch.setattr(propagation, "SLICE_BYTES", 8 * floats * points)
    assert propagation.rows_per_slice(model.layers) == points


def all_predictions(model: DeepGP, X: np.ndarray, Y: np.ndarray) -> list[tf.Tensor]:
    parts = [*model.predict_f(X), *model.predict_f(X, full_output_cov=True), *model.predict_y(X)]
    parts += [model.predict_log_density((X, Y)), *model.predict_components(X)]
    return [*parts, *(part for kind in model.predict_all_layers(X) for part in kind)]


@pytest.mark.parametrize(("widths", "points"), [((2, 1, 2), 18), ((2, 2), 4), ((2, 2, 2, 2), 4)])
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_predictions_do_not_depend_on_slices(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, widths: tuple[int, ...], points: int, compiled: bool
) -> None:
    """All draws of three rows at once, so that the last slice of 7 is short; or 4 of the 6 draws of one row."""
    model = make_model(rng, widths, num_predict_samples=6)
    X, Y = make_data(rng, 7, 2, 2)

    def predict() -> list[tf.Tensor]:
        return all_predictions(model, X, Y)

    whole = predict()
    small_slices(monkeypatch, model, points)
    assert propagation.rows_per_slice(model.layers, 6) == max(1, points // 6)
    for a, b in zip((tf.function(predict, autograph=False) if compiled else predict)(), whole, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


def test_quadrature_does_not_depend_on_slices(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(rng, (2, 1, 2), model=DeepGPQuad, num_nodes=6)
    X, Y = make_data(rng, 7, 2, 2)
    whole = [*all_predictions(model, X, Y), model.elbo((X, Y))]
    small_slices(monkeypatch, model, 4)
    for a, b in zip([*all_predictions(model, X, Y), model.elbo((X, Y))], whole, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


def test_sliced_joint_draws(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Joint predictions go in slices of draws: the same draws as in one piece, and S different ones."""
    model = make_model(rng, num_predict_samples=7)
    X, _ = make_data(rng, 4)
    shapes: list[dict[str, Any]] = [{"full_cov": True, "full_output_cov": both} for both in (False, True)]

    def predict() -> list[tf.Tensor]:
        parts = [
            part for shape in shapes for part in (*model.predict_components(X, **shape), *model.predict_f(X, **shape))
        ]
        layers = model.predict_all_layers(X, full_cov=True)
        return [*parts, model.predict_f_samples(X, 7, seed=1), *(part for kind in layers for part in kind)]

    whole = predict()
    per_draw = 4 * 6 * 5 + 16 * 4 * 2
    monkeypatch.setattr(propagation, "SLICE_BYTES", 8 * per_draw * 3)
    assert int(propagation.draws_per_slice(model.layers, tf.constant(X))) == 3
    for a, b in zip(predict(), whole, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)  # through roots of joint covariances
    means, draws = whole[0].numpy(), whole[-7].numpy()
    assert means.shape == draws.shape == (7, 4, 1)
    assert len(np.unique(means[:, 0, 0])) == len(np.unique(draws[:, 0, 0])) == 7


# A prediction is a function of its row.


@pytest.mark.parametrize(("widths", "points"), [((2, 2, 1), 10**6), ((2, 2, 2, 1), 20)])
def test_position_of_a_row_is_of_no_consequence(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, points: int, widths: tuple[int, ...]
) -> None:
    """In another order with rows repeated, or alone, in one slice or several: rounding, 1e-16 times cond(Kuu) < 1e4 and
    the slopes of the layers."""
    model = make_model(rng, widths, num_predict_samples=5)
    small_slices(monkeypatch, model, points)
    X, Y = make_data(rng, 11)
    order, repeated = rng.permutation(11), np.array([5, 5, 5])
    whole = [np.asarray(part) for part in all_predictions(model, X, Y)]
    axes = [part.shape.index(11) for part in whole]
    for rows in (np.concatenate([order, repeated]), np.array([3])):
        for found, part, axis in zip(all_predictions(model, X[rows], Y[rows]), whole, axes, strict=True):
            np.testing.assert_allclose(found, np.take(part, rows, axis=axis), rtol=1e-10, atol=1e-11)


def test_predictions_are_smooth(rng: np.random.Generator) -> None:
    """Second differences over steps h fall as h^2 down to rounding: 1e-16 * 1e2 against h^2 times a curvature."""
    model = make_model(rng, (1, 2, 1), num_predict_samples=8)
    sizes = []
    for h in (1e-2, 1e-3):
        X = np.array([[-h], [0.0], [h]]) + 0.3
        values = np.concatenate([part.numpy() for part in (*model.predict_f(X), *model.predict_y(X))], axis=1)
        sizes.append(np.abs(values[0] - 2 * values[1] + values[2]))
    np.testing.assert_allclose(sizes[1], sizes[0] / 100, rtol=0.05, atol=1e-10)
    assert np.max(sizes[0]) > 1e-6


def test_independent_draws_for_every_row_are_a_choice(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = make_model(rng).layers
    model = DeepGP(layers, gpflow.likelihoods.Gaussian(), num_predict_samples=5, predict_integrator=MonteCarlo())
    X = np.tile(make_data(rng, 1)[0], [4, 1])
    whole = model.predict_f(X)[0].numpy()
    assert len(np.unique(whole)) == 4
    small_slices(monkeypatch, model, 10)
    np.testing.assert_allclose(model.predict_f(X)[0], whole, rtol=1e-11)


def test_samples_are_independent_at_every_row(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in different slices; and what is drawn for the first rows does not depend on how many follow."""
    model = make_model(rng)
    small_slices(monkeypatch, model, 10)
    X = np.tile(make_data(rng, 1)[0], [7, 1])
    draws = model.predict_f_samples(X, 5, full_cov=False, seed=3).numpy()
    assert len(np.unique(draws)) == 35
    first = model.predict_f_samples(X[:3], 5, full_cov=False, seed=3)
    np.testing.assert_allclose(first, draws[:, :3], rtol=1e-10, atol=1e-12)


# Shapes.


def test_leading_batch_dimensions(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """[2, 3, N, D] gives what its six [N, D] give (quadrature and joint draws have the same noise for each)."""
    model = make_model(rng, (2, 1, 2), model=DeepGPQuad, num_nodes=5, num_predict_samples=4)
    X, Y = rng.uniform(-2, 2, (2, 3, 4, 2)), rng.standard_normal((2, 3, 4, 2))
    for full_cov, full_output_cov in COVARIANCE_SHAPES:
        shape: dict[str, Any] = {"full_cov": full_cov, "full_output_cov": full_output_cov}
        whole = model.predict_f(X, **shape)
        for i in np.ndindex(2, 3):
            for a, b in zip(whole, model.predict_f(X[i], **shape), strict=True):
                np.testing.assert_allclose(a[i], b, rtol=1e-10, atol=1e-12)
    y, density = model.predict_y(X), model.predict_log_density((X, Y))
    for i in np.ndindex(2, 3):
        np.testing.assert_allclose(y[1][i], model.predict_y(X[i])[1], rtol=1e-12)
        np.testing.assert_allclose(density[i], model.predict_log_density((X[i], Y[i])), rtol=1e-12)


@pytest.mark.slow
def test_unknown_number_of_points_is_one_trace(rng: np.random.Generator, traced_once: Callable[[Any], Any]) -> None:
    model = make_model(rng, (2, 2, 2), num_predict_samples=5)
    X_spec, Y_spec = (tf.TensorSpec([None, 2], tf.float64) for _ in range(2))
    batch_spec = tf.TensorSpec([None, None, 2], tf.float64)

    def everything(X: tf.Tensor, Y: tf.Tensor, batches: tf.Tensor) -> list[tf.Tensor]:
        parts = [model.training_loss((X, Y), seed=1), *model.predict_f(X), *model.predict_y(X)]
        parts += [model.predict_log_density((X, Y)), model.predict_all_layers(X, 3).samples[-1]]
        parts += [model.predict_f_samples(X, 3, seed=1), model.predict_f_samples(X, 3, full_cov=False, seed=1)]
        return [*parts, *model.predict_f(batches), *model.predict_f(batches, full_cov=True, full_output_cov=True)]

    compiled = traced_once(tf.function(everything, input_signature=[X_spec, Y_spec, batch_spec], autograph=False))
    for N in (1, 4):
        X, Y = make_data(rng, N, 2, 2)
        batches = rng.uniform(-1, 1, (2, N, 2))
        for a, b in zip(compiled(X, Y, batches), everything(X, Y, batches), strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)  # joint draws: roots of near-singular matrices


def test_no_points(rng: np.random.Generator) -> None:
    model = make_model(rng, num_predict_samples=5)
    X, Y = np.zeros((0, 2)), np.zeros((0, 1))
    assert model.predict_f(X)[1].shape == (0, 1)
    assert model.predict_y(X)[1].shape == (0, 1)
    assert model.predict_log_density((X, Y)).shape == (0,)


# Seeds.


def test_seeds(rng: np.random.Generator) -> None:
    model = make_model(rng)
    data = make_data(rng)
    first, again, other = (float(model.elbo(data, seed=s)) for s in (3, 3, 4))
    assert first == again
    assert first != other
    assert float(model.elbo(data, seed=np.int64(3))) == first
    assert float(model.elbo(data, seed=tf.constant([0, 3]))) == first
    assert float(model.elbo(data)) != float(model.elbo(data))
    values = []
    for _ in range(2):
        tf.random.set_seed(12)
        values.append((float(model.elbo(data)), model.predict_f_samples(data[0], 2).numpy().tolist()))
    assert values[0] == values[1]


def test_predictions_are_deterministic(rng: np.random.Generator) -> None:
    model = make_model(rng, num_predict_samples=5)
    X, _ = make_data(rng)
    mean = model.predict_f(X)[0].numpy()
    np.testing.assert_array_equal(model.predict_f(X)[0], mean)
    assert np.all(model.predict_f(X, seed=1)[0] != mean)
    model.prediction_seed = 1
    assert np.all(model.predict_f(X)[0] != mean)
    np.testing.assert_array_equal(model.predict_f(X, seed=0)[0], mean)


def test_number_of_samples(rng: np.random.Generator) -> None:
    model = make_model(rng, num_samples=4, num_predict_samples=5)
    X, Y = make_data(rng)
    assert model.predict_components(X)[0].shape == (5, 12, 1)
    assert model.predict_components(X, num_samples=3)[0].shape == (3, 12, 1)
    assert model.component_weights().shape == (5,)
    noise = model.integrator.noise([2], 4, 12, tf.constant([0, 3]), tf.float64)
    np.testing.assert_allclose(model.elbo((X, Y), seed=3), model.elbo((X, Y), noise=noise), rtol=1e-12)


# Messages.


def test_messages_of_layers(rng: np.random.Generator) -> None:
    likelihood = gpflow.likelihoods.Gaussian()
    layer = make_layer(rng, 2, 2)
    with pytest.raises(ValueError, match="layers must have at least one layer, such as an SVGPLayer, got none"):
        DeepGP([], likelihood)
    with pytest.raises(
        ValueError, match=r"members of gpflow_deep\.Layer, but SquaredExponential as layer 2 lacks cache, "
    ):
        DeepGP([layer, gpflow.kernels.SquaredExponential()], likelihood)  # type: ignore[list-item]
    with pytest.raises(
        ValueError, match=r"must be tf\.Modules with the members of gpflow_deep\.Layer, got str as layer 1"
    ):
        DeepGP(["layer"], likelihood)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="got the same layer twice"):
        DeepGP([layer, layer], likelihood)
    with pytest.raises(ValueError, match=r"layer 2 must take the 2 outputs of layer 1, but it takes 3 columns"):
        DeepGP([layer, make_layer(rng, 3, 1)], likelihood)
    with pytest.raises(ValueError, match="must have the 3 outputs that MultiClass takes, got 2"):
        DeepGP([layer], gpflow.likelihoods.MultiClass(3))
    with pytest.raises(ValueError, match="num_samples must be at least 1, got 0"):
        DeepGP([layer], likelihood, num_samples=0)
    with pytest.raises(ValueError, match="num_predict_samples must be at least 1, got -2"):
        DeepGP([layer], likelihood, num_predict_samples=-2)
    with pytest.raises(ValueError, match="num_data must be at least 1, got -5"):
        DeepGP([layer], likelihood, num_data=-5)
    with pytest.raises(ValueError, match=r"likelihood must be one of gpflow\.likelihoods, such as Gaussian\(\), got <"):
        DeepGP([layer], gpflow.likelihoods.Gaussian)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"grid of num_nodes = 20 to the power of 4 .*has 160000 nodes"):
        DeepGPQuad([make_layer(rng, 2, 4), make_layer(rng, 4, 1)], likelihood)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        single = make_layer(rng, 2, 1)
    with pytest.raises(ValueError, match=r"must have one float type, got \['float32', 'float64'\]"):
        DeepGP([layer, single], likelihood)


def test_messages_of_inputs(rng: np.random.Generator) -> None:
    model = make_model(rng)
    X, Y = make_data(rng)
    with pytest.raises(ValueError, match="X must have the model's float type float64, got float32; cast X"):
        model.elbo((X.astype(np.float32), Y))
    with pytest.raises(ValueError, match=r"X must have 2 columns, .* got shape \(12, 3\)"):
        model.predict_f(np.zeros((12, 3)))
    # GPflow would compare all outputs with the one column, and one output with all columns.
    for act in (model.elbo, model.predict_log_density):
        with pytest.raises(ValueError, match="targets of Gaussian must have 1 columns, got 2"):
            act((X, np.zeros((12, 2))))
    with pytest.raises(ValueError, match=r"for each of the 1 inner layers .* got 3 arrays"):
        model.propagate(X, standard_noise(rng, model, 2, 12) * 3)
    for shape in ([12, 2], [3, 7, 2], [3, 12, 5]):
        with pytest.raises(ValueError, match=r"layer 1 of 2 must have noise \[S, N or 1, L\] with N = 12 and L = 2"):
            model.elbo((X, Y), noise=[np.zeros(shape)])
    with pytest.raises(ValueError, match=r"seed must be an integer, or int32 of shape \[2\]"):
        model.elbo((X, Y), seed=tf.constant([1, 2, 3]))
    for full_cov, full_output_cov in COVARIANCE_SHAPES[1:]:
        with pytest.raises(NotImplementedError, match="predict_y does not currently support: full_"):
            model.predict_y(X, full_cov, full_output_cov)
        with pytest.raises(NotImplementedError, match="predict_log_density does not currently support: full_"):
            model.predict_log_density((X, Y), full_cov, full_output_cov)


@pytest.mark.parametrize("method", ["predict_f", "predict_y", "predict_components", "predict_f_samples"])
def test_num_samples_must_be_positive(rng: np.random.Generator, method: str) -> None:
    model = make_model(rng, (2, 2, 1))
    with pytest.raises(ValueError, match="num_samples must be at least 1, got 0"):
        getattr(model, method)(np.zeros((3, 2)), num_samples=0)


def test_an_integer_seed_means_the_same_as_everywhere(rng: np.random.Generator) -> None:
    """Its high and its low 31 bits, so that no two of them are the same stream."""
    model, (X, Y) = make_model(rng), make_data(rng)
    for seed, words in ((5, [0, 5]), (2**31 + 5, [1, 5])):
        known = tf.constant(words, tf.int32)
        np.testing.assert_array_equal(model.elbo((X, Y), seed=seed), model.elbo((X, Y), seed=known))
        draws = (model.predict_f_samples(X, 2, seed=of) for of in (seed, known))
        np.testing.assert_array_equal(*draws)
        model.prediction_seed = seed
        np.testing.assert_array_equal(model.predict_f(X)[0], model.predict_f(X, seed=known)[0])


@pytest.mark.parametrize("seed", [-1, 2**62, 2**62 + 5, True, 1.0, "a"])
def test_what_is_no_seed_is_refused(seed: Any, rng: np.random.Generator) -> None:
    model, (X, Y) = make_model(rng), make_data(rng)
    acts: list[Callable[[], Any]] = [
        lambda: model.elbo((X, Y), seed=seed),
        lambda: model.predict_f(X, seed=seed),
        lambda: model.predict_f_samples(X, seed=seed),
        lambda: model.sample_functions(1, seed=seed),
        lambda: model.factors(seed=seed),
        lambda: DeepGP(model.layers, model.likelihood, prediction_seed=seed),
        lambda: Sampler(model, X, Y, seed=seed),
    ]
    for act in acts:
        with pytest.raises(ValueError, match=r"seed must be (from 0 to 2\*\*62 - 1|an integer)"):
            act()


def test_the_bound_of_a_plain_model_is_read_in_eight_files(rng: np.random.Generator) -> None:
    """The paper's page is the paper's page: what `elbo` of a model of `SVGPLayer`s enters is counted."""
    X = rng.normal(size=(6, 2))
    model = gpflow_deep.paper2017(X, X[:, :1], 2, num_inducing=3)
    home = str(Path(gpflow_deep.__file__).parent.parent)
    entered = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(
            (f"{home}/gpflow_deep/", f"{home}/gpflow_deep_base")
        ):
            entered.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        model.elbo((X, X[:, :1]), seed=0)
    finally:
        sys.setprofile(before)
    assert f"{home}/gpflow_deep/model/bound.py" in entered
    assert len(entered) <= 8
