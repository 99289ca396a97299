"""Known defects of the original 2017 code, one test for each, that this package must not have.

There, the noise between layers was never in the model; a likelihood variance set by the user was lost; a cached
Cholesky factor survived a change of parameters; `full_cov` worked in float64 only; and the first layer, whose inputs
are the same for all S samples, was evaluated S times.
"""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep import DeepGP, paper2017
from tests.gpflow_deep.builders import make_data, make_layer, make_model


def test_noise_between_layers_is_in_the_model(rng: np.random.Generator) -> None:
    """It moves the bound and the prediction, has a gradient, and adds to the variance of what the next layer sees."""
    X, Y = make_data(rng)
    model = paper2017(X, Y, 2, num_inducing=6, noise_variance=1e-5, precision="full")
    model.layers[1].q_mu.assign(rng.standard_normal((6, 1)))  # at 0, the model is its prior and sees no inputs
    noise = model.layers[0].noise_variance
    assert noise is not None
    with tf.GradientTape() as tape:
        loss = model.training_loss((X, Y), seed=1)
    assert abs(float(tape.gradient(loss, noise.unconstrained_variable))) > 0.0
    before = float(loss), model.predict_f(X)[1].numpy(), model.predict_all_layers(X, 1000).samples[0].numpy()
    noise.assign(0.5)
    assert float(model.training_loss((X, Y), seed=1)) != before[0]
    assert np.all(model.predict_f(X)[1].numpy() != before[1])
    added = np.var(model.predict_all_layers(X, 1000).samples[0], axis=0) - np.var(before[2], axis=0)
    # Kuu has the noise as well, which takes information away: at least the noise, less 5 standard errors of a variance
    # of at most 1.5 from 1000 draws.
    assert np.all(added > 0.5 - 5 * 1.5 * np.sqrt(2 / 1000))


def test_likelihood_variance_is_the_likelihoods(rng: np.random.Generator) -> None:
    X, Y = make_data(rng)
    likelihood: Any = gpflow.likelihoods.Gaussian(variance=0.05)
    model = paper2017(X, Y, 2, num_inducing=6, likelihood=likelihood)
    assert model.likelihood is likelihood
    for variance in (0.05, 0.7):
        likelihood.variance.assign(variance)
        added = model.predict_y(X)[1] - model.predict_f(X)[1]
        np.testing.assert_allclose(added, np.full((12, 1), variance), rtol=1e-10)


def test_change_of_parameters_is_visible_at_once(rng: np.random.Generator) -> None:
    """In eager calls and in functions that were compiled before the change."""
    model = make_model(rng, layer_options={"noise_variance": 0.01})
    X, Y = map(tf.constant, make_data(rng))
    bound = tf.function(lambda: model.elbo((X, Y), seed=1), autograph=False)
    values = [float(bound())]
    first, second = model.layers
    parameters: list[Any] = [first.kernel.lengthscales, first.inducing_variable.Z, first.noise_variance]
    for parameter in (*parameters, second.kernel.variance):
        parameter.assign(1.3 * parameter.numpy())
        values.append(float(bound()))
        np.testing.assert_allclose(values[-1], model.elbo((X, Y), seed=1), rtol=1e-12)
    assert len(set(values)) == 5


def test_full_covariances_in_float32(rng: np.random.Generator) -> None:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        X, Y = (part.astype(np.float32) for part in make_data(rng))
        model = paper2017(X, Y, 2, num_inducing=6)
        for full_output_cov in (False, True):
            mean, cov = model.predict_f(X, full_cov=True, full_output_cov=full_output_cov)
            assert (mean.dtype, cov.dtype) == (tf.float32, tf.float32)
            assert np.all(np.isfinite(cov))
        assert model.predict_f_samples(X, 3).dtype == tf.float32


class CountingKernel(gpflow.kernels.SquaredExponential):
    """Remembers how many points it was asked for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.rows: list[int] = []

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        self.rows.append(int(np.prod(X.shape[:-1])))
        return super().K_diag(X)


@pytest.mark.parametrize("method", ["elbo", "predict_f", "predict_y", "predict_log_density", "predict_f_samples"])
def test_first_layer_is_evaluated_once_for_all_samples(rng: np.random.Generator, method: str) -> None:
    kernels = [CountingKernel() for _ in range(2)]
    layers = [make_layer(rng, 2, P, kernel=kernel) for P, kernel in zip((2, 1), kernels, strict=True)]
    model = DeepGP(layers, gpflow.likelihoods.Gaussian(), num_samples=5, num_predict_samples=5)
    X, Y = make_data(rng)
    calls = {
        "elbo": lambda: model.elbo((X, Y)),
        "predict_f": lambda: model.predict_f(X),
        "predict_y": lambda: model.predict_y(X),
        "predict_log_density": lambda: model.predict_log_density((X, Y)),
        "predict_f_samples": lambda: model.predict_f_samples(X, 5, full_cov=False),
    }
    for kernel in kernels:
        kernel.rows.clear()
    calls[method]()
    assert kernels[0].rows == [12]
    assert kernels[1].rows == [60]
