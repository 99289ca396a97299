"""Presets: the settings of the publications, and the checks on data."""

import dataclasses
import warnings
from typing import Any

import gpflow
import numpy as np
import pytest

from gpflow_deep import DeepGP, Preset, inducing_inputs, linear_mean, modern, paper2017
from gpflow_deep.model.initialization import linear_projection, residual_variance
from tests.gpflow_deep.builders import make_data


def test_paper_settings(rng: np.random.Generator) -> None:
    X, Y = make_data(rng, 40, 3)
    model = paper2017(X, Y, 3, num_inducing=10)
    assert isinstance(model, DeepGP)
    assert model.num_data == 40
    assert model.num_samples == 1
    np.testing.assert_allclose(model.likelihood.variance, 0.01, rtol=1e-6)
    assert [layer.num_latent_gps for layer in model.layers] == [3, 3, 1]
    Z = inducing_inputs(X, 10, seed=0)
    for i, layer in enumerate(model.layers):
        is_last = i == 2
        assert type(layer.kernel) is gpflow.kernels.SquaredExponential
        np.testing.assert_allclose(layer.kernel.lengthscales, np.ones(3))
        np.testing.assert_allclose(layer.kernel.variance, 1.0)
        np.testing.assert_array_equal(layer.inducing_variable.Z, Z)  # the means are identities
        np.testing.assert_allclose(layer.q_sqrt[0], (1.0 if is_last else 1e-5) * np.eye(10))
        np.testing.assert_array_equal(layer.q_mu, np.zeros_like(layer.q_mu))
        assert layer.whiten
        assert layer.precision == ("full" if is_last else "mixed")
        assert type(layer.mean_function) is (gpflow.mean_functions.Zero if is_last else gpflow.mean_functions.Identity)
        if is_last:
            assert layer.noise_variance is None
        else:
            assert layer.noise_variance is not None
            np.testing.assert_allclose(layer.noise_variance.numpy(), 1e-5, rtol=1e-6)
    assert model.layers[1].label == "layer 2 of 3"


def test_a_kernel_that_is_far_larger_than_the_targets_is_told(rng: np.random.Generator) -> None:
    """A linear kernel on rows that are not standardised."""
    X, Y = make_data(rng, 20, 2)
    kernel = gpflow.kernels.Linear() + gpflow.kernels.White()
    with pytest.warns(UserWarning, match=r"first kernel has variance .*standardise the rows"):
        modern(1e4 * X, Y, 1, num_inducing=3, kernels=[kernel])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        modern(X, Y, 1, num_inducing=3, kernels=[kernel])


def test_paper_widths_and_projections(rng: np.random.Generator) -> None:
    """Inner layers are at most 30 wide; inducing inputs go through the means below."""
    X, Y = make_data(rng, 50, 35)
    model = paper2017(X, Y, 3, num_inducing=5)
    assert [layer.num_latent_gps for layer in model.layers] == [30, 30, 1]
    W = linear_projection(X, 30)
    np.testing.assert_allclose(model.layers[0].mean_function(X), X @ W, rtol=1e-12)
    Z = inducing_inputs(X, 5, seed=0)
    np.testing.assert_allclose(model.layers[1].inducing_variable.Z, Z @ W, rtol=1e-12)
    np.testing.assert_allclose(model.layers[2].inducing_variable.Z, Z @ W, rtol=1e-12)
    assert model.layers[0].kernel.lengthscales.shape == (35,)
    assert model.layers[1].kernel.lengthscales.shape == (30,)


def test_modern_settings(rng: np.random.Generator) -> None:
    for num_inputs, lengthscale in ((4, 1.0), (9, 1.0), (36, 2.0)):
        X, Y = make_data(rng, 40, num_inputs)
        model = modern(X, Y, 2, num_inducing=5, hidden_dim=num_inputs)
        for layer in model.layers:
            np.testing.assert_allclose(layer.kernel.lengthscales, np.full(num_inputs, lengthscale))
            assert layer.noise_variance is None
    assert model.layers[-1].q_mu.trainable
    first, last = modern(X, Y, 2, num_inducing=5, natural_gradients=True).layers
    assert (last.q_mu.trainable, last.q_sqrt.trainable, first.q_mu.trainable) == (False, False, True)


def test_presets_differ_in_their_three_values_only(rng: np.random.Generator) -> None:
    """With the values of the other one in place, either gives the same model."""
    names = [field.name for field in dataclasses.fields(Preset)]
    assert [name for name in names if getattr(paper2017, name) != getattr(modern, name)] == names
    X, Y = make_data(rng, 40, 16)
    kernels = [gpflow.kernels.SquaredExponential(lengthscales=[4 / 3] * 16) for _ in range(2)]
    likelihood = gpflow.likelihoods.Gaussian(residual_variance(X, Y))
    options: dict[str, Any] = {"kernels": kernels, "likelihood": likelihood}
    models = [paper2017(X, Y, num_inducing=5, noise_variance=None, **options), modern(X, Y, num_inducing=5)]
    values = [gpflow.utilities.read_values(model) for model in models]
    assert values[0].keys() == values[1].keys()
    for name, value in values[0].items():
        np.testing.assert_allclose(value, values[1][name], rtol=1e-12, err_msg=name)
    assert [len(model.trainable_variables) for model in models] == [11, 11]
    assert modern(X, Y, num_inducing=5, noise_variance=0.3).layers[0].noise_variance is not None


def test_options(rng: np.random.Generator) -> None:
    X, Y = make_data(rng, 40, 3, 2)
    kernels = [gpflow.kernels.Matern52(), gpflow.kernels.Matern32()]
    Z = rng.standard_normal((7, 3))
    model = paper2017(
        X,
        Y,
        2,
        hidden_dim=5,
        kernels=kernels,
        Z=Z,
        noise_variance=None,
        whiten=False,
        num_samples=4,
        num_data=1000,
        precision="fast",
        input_propagation=True,
    )
    first, last = model.layers
    assert [layer.kernel for layer in model.layers] == kernels
    np.testing.assert_array_equal(first.inducing_variable.Z, Z)
    assert (first.num_latent_gps, first.output_dim, last.num_latent_gps) == (5, 8, 2)
    np.testing.assert_allclose(last.inducing_variable.Z, np.concatenate([Z, Z, np.zeros((7, 2))], axis=1))
    assert first.noise_variance is None
    assert not first.whiten
    assert (first.precision, last.precision, model.num_samples, model.num_data) == ("fast", "fast", 4, 1000)
    assert model.predict_f(X, num_samples=2)[0].shape == (40, 2)


def test_initial_model_passes_its_inputs_on(rng: np.random.Generator) -> None:
    """Inner layers start as their mean functions, up to the noise between layers."""
    X, Y = make_data(rng, 40, 3)
    model = paper2017(X, Y, 3, num_inducing=10, hidden_dim=2)
    samples = model.predict_all_layers(X, 3).samples
    first = linear_mean(X, 2)(X)
    # Deviation: conditional variance at 40 points away from 10 inducing inputs; the prior's is 1.
    assert np.std(samples[0][0] - first) < 1.0
    assert np.corrcoef(np.ravel(samples[0][0]), np.ravel(first))[0, 1] > 0.8


@pytest.mark.parametrize(
    ("likelihood", "Y"),
    [
        (gpflow.likelihoods.Bernoulli(), [0, 1]),
        (gpflow.likelihoods.MultiClass(3), [0, 1, 2]),
        (gpflow.likelihoods.Softmax(3), [0, 1, 2]),
        (gpflow.likelihoods.Ordinal(np.array([-1.0, 1.0])), [0, 1, 2]),
    ],
)
def test_labels(rng: np.random.Generator, likelihood: gpflow.likelihoods.Likelihood, Y: list[int]) -> None:
    X = rng.standard_normal((12, 2))
    labels = np.resize(Y, 12)[:, None].astype(float)
    model = paper2017(X, labels, 2, num_inducing=4, likelihood=likelihood)
    assert np.isfinite(model.elbo((X, labels), seed=1))
    for wrong in (labels + 1, labels - 0.5, 2 * labels - 1):
        with pytest.raises(ValueError, match=f"Y must have labels 0 to {len(Y) - 1} for {type(likelihood).__name__}"):
            paper2017(X, wrong, 2, num_inducing=4, likelihood=likelihood)


def test_switched_likelihood_has_one_column_more(rng: np.random.Generator) -> None:
    likelihood = gpflow.likelihoods.SwitchedLikelihood([gpflow.likelihoods.Gaussian() for _ in range(2)])
    X, Y = rng.standard_normal((12, 2)), np.column_stack([rng.standard_normal(12), np.arange(12) % 2])
    model = paper2017(X, Y, 2, num_inducing=4, likelihood=likelihood)
    assert model.layers[-1].num_latent_gps == 1
    assert np.isfinite(model.elbo((X, Y), seed=1))


def test_constant_column(rng: np.random.Generator) -> None:
    X, Y = make_data(rng, 20, 3)
    X[:, 1] = 0.0
    model = paper2017(X, Y, 2, num_inducing=30, hidden_dim=2)
    assert np.isfinite(model.elbo((X, Y), seed=1))


@pytest.mark.parametrize(
    ("X", "Y", "options", "message"),
    [
        (np.zeros((4, 2)), np.zeros((3, 1)), {}, "X and Y must have equally many rows, got 4 and 3"),
        (np.zeros(4), np.zeros((4, 1)), {}, r"X must be a matrix .* got shape \[4\]; use X\[:, None\]"),
        (np.zeros((4, 2)), np.zeros(4), {}, r"Y must be a matrix .* got shape \[4\]; use Y\[:, None\]"),
        (np.zeros((0, 2)), np.zeros((0, 1)), {}, "give at least one row and one column"),
        (np.zeros((4, 2)), np.full((4, 1), np.nan), {}, "Y must be finite, got 4 NaN .* first in row 0, column 0"),
        (np.diag([1.0, np.inf]), np.zeros((2, 1)), {}, "X must be finite, got 1 NaN .* first in row 1, column 1"),
        (np.array([["a"], ["b"]]), np.zeros((2, 1)), {}, "X must be an array of numbers .*; encode text columns first"),
        (np.zeros((4, 2)), np.zeros((4, 1)), {"num_layers": 0}, "num_layers must be at least 1, got 0"),
        (np.zeros((4, 2)), np.zeros((4, 1)), {"kernels": []}, "kernels must have one kernel for each of the 2 layers"),
        (np.zeros((4, 2)), np.zeros((4, 1)), {"kernels": gpflow.kernels.Linear()}, "each of the 2 layers, got 1"),
        (
            np.zeros((4, 2)),
            np.zeros((4, 1)),
            {"likelihood": gpflow.likelihoods.Poisson},
            "likelihood must be one of GPflow, as .* got <class",
        ),
        (np.zeros((4, 2)), np.zeros((4, 1)), {"Z": np.zeros((3, 1))}, "Z must have the 2 columns of X, got 1"),
    ],
)
def test_messages(X: np.ndarray, Y: np.ndarray, options: dict[str, Any], message: str) -> None:
    for preset in (paper2017, modern):
        with pytest.raises(ValueError, match=message):
            preset(X, Y, **options)
