"""The training step and the diagnostics of layers."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_deep import diagnose, make_train_step, modern, paper2017
from tests.gpflow_deep import oracles
from tests.gpflow_deep.builders import make_data, make_model

SEED = tf.constant([3, 4])


def test_step_is_adam_on_the_loss(rng: np.random.Generator, traced_once: Callable[[Any], Any]) -> None:
    """One step equals one written out; the scalar is the bound before it, without the priors."""
    data = tuple(map(tf.constant, make_data(rng)))
    model = make_model(rng, num_data=12)
    model.likelihood.variance.prior = tfp.distributions.Gamma(
        tf.constant(2.0, tf.float64), tf.constant(3.0, tf.float64)
    )
    clone = gpflow.utilities.deepcopy(model)
    step = traced_once(make_train_step(model, tf.keras.optimizers.Adam(0.01)))
    expected_bound = float(model.elbo(data, seed=SEED))
    scalars = step(data, SEED)
    np.testing.assert_allclose(scalars["elbo_nats"], expected_bound, rtol=1e-12)

    with tf.GradientTape() as tape:
        loss = clone.training_loss(data, seed=SEED)
    gradients = tape.gradient(loss, clone.trainable_variables)
    tf.keras.optimizers.Adam(0.01).apply_gradients(zip(gradients, clone.trainable_variables, strict=True))
    for a, b in zip(model.trainable_variables, clone.trainable_variables, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
    step(data, SEED)


def test_step_with_natural_gradients(rng: np.random.Generator) -> None:
    """Adam leaves the last q(u) alone; the natural gradient then moves it, and nothing else."""
    X, Y = make_data(rng, 20)
    model = modern(X, Y, 2, num_inducing=5, precision="full")
    data = (tf.constant(X), tf.constant(Y))
    clone = gpflow.utilities.deepcopy(model)
    make_train_step(model, tf.keras.optimizers.Adam(0.01), natgrad_gamma=0.3)(data, SEED)

    with tf.GradientTape() as tape:
        loss = clone.training_loss(data, seed=SEED)
    gradients = tape.gradient(loss, clone.trainable_variables)
    tf.keras.optimizers.Adam(0.01).apply_gradients(zip(gradients, clone.trainable_variables, strict=True))
    last = clone.layers[-1]
    gpflow.optimizers.NaturalGradient(0.3).minimize(
        lambda: clone.training_loss(data, seed=SEED), [(last.q_mu, last.q_sqrt)]
    )
    for a, b in zip(model.variables, clone.variables, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("natgrad_gamma", [None, pytest.param(0.1, marks=pytest.mark.slow)])
def test_steps_raise_the_bound(rng: np.random.Generator, natgrad_gamma: float | None) -> None:
    X, Y = make_data(rng, 40)
    model = paper2017(X, Y, 2, num_inducing=10) if natgrad_gamma is None else modern(X, Y, 2, num_inducing=10)
    step = make_train_step(model, tf.keras.optimizers.Adam(0.01), natgrad_gamma=natgrad_gamma)
    data = (tf.constant(X), tf.constant(Y))
    bounds = [float(step(data, tf.random.fold_in(SEED, t))["elbo_nats"]) for t in range(60)]
    # The bound rises by hundreds of nats; the noise of one draw is of the order of ten.
    assert np.mean(bounds[-10:]) > np.mean(bounds[:10]) + 100.0


def test_messages(rng: np.random.Generator) -> None:
    X, Y = make_data(rng, 20)
    optimizer = tf.keras.optimizers.Adam(0.01)
    with pytest.raises(ValueError, match="nothing would train them: give natgrad_gamma"):
        make_train_step(modern(X, Y, 2, num_inducing=5), optimizer)
    with pytest.raises(ValueError, match="q_mu and q_sqrt of the last layer marked untrainable"):
        make_train_step(paper2017(X, Y, 2, num_inducing=5), optimizer, natgrad_gamma=0.1)
    narrow = make_model(rng, layer_options={"q_diag": True})
    for parameter in (narrow.layers[-1].q_mu, narrow.layers[-1].q_sqrt):
        gpflow.set_trainable(parameter, False)
    with pytest.raises(ValueError, match="natgrad_gamma needs a full q_sqrt"):
        make_train_step(narrow, optimizer, natgrad_gamma=0.1)


def test_diagnostics(rng: np.random.Generator) -> None:
    model = make_model(rng, (2, 2, 1), layer_options={"noise_variance": 0.02})
    reports = diagnose(model)
    assert [report.label for report in reports] == ["layer 1 of 2", "layer 2 of 2"]
    for report, layer in zip(reports, model.layers, strict=True):
        oracle = oracles.Layer(layer)
        np.testing.assert_allclose(report.kl_nats, oracle.prior_kl(), rtol=1e-9)
        np.testing.assert_allclose(report.condition_number, np.linalg.cond(oracle.Kuu(0)), rtol=1e-8)
        np.testing.assert_allclose(report.jitter, 1e-6, rtol=1e-6)  # a difference of numbers of order 1
        np.testing.assert_array_equal(report.lengthscales, layer.kernel.lengthscales)
        np.testing.assert_array_equal(report.kernel_variances, [layer.kernel.variance.numpy()])
        np.testing.assert_allclose(report.noise_variance, 0.02, rtol=1e-12)


def test_diagnostics_of_other_kernels(rng: np.random.Generator) -> None:
    kernel = gpflow.kernels.SeparateIndependent(
        [gpflow.kernels.Matern52(lengthscales=2.0), gpflow.kernels.Linear(variance=3.0)]
    )
    Z = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(rng.standard_normal((2, 2)))
    )
    model = make_model(rng, (2, 2), layer_options={"kernel": kernel, "Z": Z}, M=2)
    (report,) = diagnose(model)
    np.testing.assert_allclose(report.lengthscales, [2.0])
    np.testing.assert_allclose(report.kernel_variances, [1.0, 3.0])
    assert report.noise_variance == 0.0


def test_diagnostics_show_raised_jitter() -> None:
    """Inducing inputs on top of one another, and an indefinite kernel matrix by rounding at variance 1e12."""
    model = make_model(
        np.random.default_rng(0),
        (1, 1),
        layer_options={
            "kernel": gpflow.kernels.SquaredExponential(variance=1e12, lengthscales=1.0),
            "Z": np.repeat(np.linspace(0, 1, 3), 10)[:, None],
        },
        M=30,
    )
    (report,) = diagnose(model)
    assert report.jitter > 1e-5
