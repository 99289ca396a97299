"""The variance of Gaussian noise in closed form: where the slope of the bound is zero, and which models have it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_deep import DeepGP, ModelConfig, Trainer, TrainingConfig, modern
from gpflow_deep.posteriors.noise import SquaredErrors, fit_noise, has_noise
from tests.gpflow_deep.builders import make_data, make_model

SEED = tf.constant([3, 4])


def _rows(rng: np.random.Generator, count: int) -> Callable[[int], tuple[tf.Tensor, tf.Tensor]]:
    """`count` rows in four minibatches."""
    X, Y = make_data(rng, count)
    return lambda t: (tf.constant(X[t % 4 :: 4]), tf.constant(Y[t % 4 :: 4]))


def _slope(model: DeepGP, batch_at: Callable[[int], tuple[tf.Tensor, tf.Tensor]]) -> float:
    """Of the bound over all rows, with respect to the log of the variance, nats per row."""
    X, Y = (tf.concat(parts, axis=0) for parts in zip(*map(batch_at, range(4)), strict=True))
    with tf.GradientTape() as tape:
        bound = model.elbo((X, Y), seed=SEED)
    variance = model.likelihood.variance
    gradient = tape.gradient(bound, variance.unconstrained_variable)
    return float(gradient / variance.transform.forward_log_det_jacobian(variance.unconstrained_variable, 0)) / len(X)


def test_the_slope_of_the_bound_is_zero(rng: np.random.Generator) -> None:
    """Of one layer, whose bound has no noise of its own: to rounding, from minibatches as from all rows."""
    model, batch_at = make_model(rng, (2, 1), num_data=40), _rows(rng, 40)
    model.likelihood.variance.assign(50.0)
    assert abs(_slope(model, batch_at)) > 1e-2
    found = fit_noise(SquaredErrors(model), batch_at, 7)
    assert found == pytest.approx(float(model.likelihood.variance.numpy()), rel=1e-12)
    assert abs(_slope(model, batch_at)) < 1e-9


def test_layers_are_integrated_out(rng: np.random.Generator) -> None:
    """E_q[(y - f)^2] of the components of `predict_f`."""
    X, Y = make_data(rng, 20)
    model = make_model(rng, num_data=20)
    model.likelihood.variance.assign(50.0)
    mean, variance = model.predict_components(tf.constant(X))
    expected = np.mean(np.square(Y - mean) + variance)
    found = fit_noise(SquaredErrors(model), lambda t: (tf.constant(X), tf.constant(Y)), 3)
    assert found == pytest.approx(expected, rel=1e-9)


def test_draws_of_inducing_outputs_are_traced_once(rng: np.random.Generator) -> None:
    """Whatever the numbers of rows and the parameters."""
    X, Y = make_data(rng, 20)
    config = ModelConfig(2, 5, num_predict_samples=4, preset="modern", posterior="global", likelihood="gaussian")
    model: Any = config.build(X, Y)
    predict = model.predict_f
    traces = []

    def counted(rows: tf.Tensor) -> Any:
        traces.append(rows.shape)
        return predict(rows)

    model.predict_f = counted
    errors = SquaredErrors(model)
    for count in (20, 15, 10):
        model.layers[0].kernel.variance.assign(float(count))
        mean, variance = predict(X[:count])
        expected = np.sum(np.square(Y[:count] - mean) + variance)
        found = errors(tf.constant(X[:count]), tf.constant(Y[:count]))
        np.testing.assert_allclose([float(part) for part in found], [expected, count, count], rtol=1e-9)
    assert len(traces) == 2  # with rows of one number, and of any


def test_noise_is_not_raised(rng: np.random.Generator) -> None:
    """After no training q is as wide as the prior, and noise on top of that would make intervals wider still."""
    X, Y = make_data(rng, 20)
    model = modern(X, Y, 1, num_inducing=8)
    before = float(model.likelihood.variance.numpy())
    assert fit_noise(SquaredErrors(model), lambda t: (tf.constant(X), tf.constant(Y)), 0) == before


def test_no_noise_stays_above_the_lower_bound(rng: np.random.Generator) -> None:
    model, (X, _) = make_model(rng, (2, 1), num_data=20), make_data(rng, 20)
    layer = model.layers[0]
    layer.q_mu.assign(tf.zeros_like(layer.q_mu))
    layer.q_sqrt.assign(1e-9 * np.eye(int(layer.q_mu.shape[0]))[None])
    layer.kernel.variance.assign(1e-9)
    found = fit_noise(SquaredErrors(model), lambda t: (tf.constant(X), tf.zeros([20, 1], tf.float64)), 0)
    assert model.likelihood.variance_lower_bound < found < 1.01 * model.likelihood.variance_lower_bound
    assert np.isfinite(model.likelihood.variance.numpy())


def _prior(model: DeepGP) -> None:
    model.likelihood.variance.prior = tfp.distributions.Gamma(*map(np.float64, (2, 3)))


def _fixed(model: DeepGP) -> None:
    gpflow.set_trainable(model.likelihood.variance, False)


def _student(model: DeepGP) -> None:
    model.likelihood = gpflow.likelihoods.StudentT()


def _function(model: DeepGP) -> None:
    model.likelihood = gpflow.likelihoods.Gaussian(scale=gpflow.functions.Linear())


@pytest.mark.parametrize("change", [_prior, _fixed, _student, _function])
def test_other_noise_is_left_alone(rng: np.random.Generator, change: Callable[[DeepGP], Any]) -> None:
    model = make_model(rng, (2, 1), num_data=20)
    assert has_noise(model)
    change(model)
    assert not has_noise(model)


def test_the_end_of_training_has_the_best_noise(rng: np.random.Generator) -> None:
    """Stopped and taken up again, too; a rate that does not fall leaves the noise to Adam."""
    X, Y = make_data(rng, 40)
    batch_at, models = _rows(rng, 40), [modern(X, Y, 1, num_inducing=8) for _ in range(3)]
    for model in models:
        model.likelihood.variance.assign(5.0)
    config = TrainingConfig(0.02, n_iter_no_change=0)
    trainer = Trainer(models[0], config, num_steps=6)
    trainer.advance(batch_at, 0, 6, SEED)
    assert abs(_slope(models[0], batch_at)) < 1e-9
    other = Trainer(models[1], config, num_steps=6)
    for step in range(6):
        other.advance(batch_at, step, 1, SEED)
    constant = dataclasses.replace(config, decay_share=0.0)
    Trainer(models[2], constant, num_steps=6).advance(batch_at, 0, 6, SEED)
    once, again, by_adam = (float(model.likelihood.variance.numpy()) for model in models)
    assert once == again != by_adam
