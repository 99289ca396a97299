"""A single layer by its collapsed bound: the best q(u), where L-BFGS leads, which models have it, and when."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import SquaredExponential

from gpflow_deep import DeepGP, SamplingConfig, SVGPLayer, Trainer, TrainingConfig, fit_collapsed, modern
from gpflow_deep.posteriors.collapsed import has_collapsed_bound, set_exact_q
from gpflow_deep.train.predictor import float_type
from gpflow_deep.train.sampled_training import trainer_for

SEED = tf.constant([3, 4])


def _data(rng: np.random.Generator, count: int = 40, num_outputs: int = 1) -> tuple[np.ndarray, np.ndarray]:
    X = rng.uniform(-2, 2, (count, 2))
    waves = np.sin(2 * X[:, :1] * np.arange(1, num_outputs + 1)) + 0.3 * X[:, 1:]
    return X, waves + 0.05 * rng.standard_normal((count, num_outputs))


def _model(Z: np.ndarray, num_outputs: int = 1, *, num_data: int = 40, noise: float = 0.02, **options: Any) -> DeepGP:
    kernel = SquaredExponential(variance=1.3, lengthscales=[0.8, 1.5])
    layer = SVGPLayer(kernel, Z, num_latent_gps=num_outputs, **options)
    return DeepGP([layer], gpflow.likelihoods.Gaussian(noise), num_data=num_data)


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("num_outputs", [1, 2])
def test_q_is_the_best_one(rng: np.random.Generator, whiten: bool, num_outputs: int) -> None:
    """The bound of `DeepGP` is the collapsed one, with no slope left in q(u)."""
    X, Y = _data(rng, num_outputs=num_outputs)
    mean = gpflow.mean_functions.Linear(A=rng.standard_normal((2, num_outputs)), b=np.ones(num_outputs))
    model = _model(X[::4], num_outputs, whiten=whiten, mean_function=mean)
    kept = [variable.numpy() for variable in model.likelihood.variables + model.layers[0].kernel.variables]
    found = fit_collapsed(model, X, Y, max_iter=0)
    layer = model.layers[0]
    with tf.GradientTape() as tape:
        bound = model.elbo((tf.constant(X), tf.constant(Y)))
    slopes = tape.gradient(bound, [part.unconstrained_variable for part in (layer.q_mu, layer.q_sqrt)])
    reference = gpflow.models.SGPR((X, Y), layer.kernel, X[::4], mean_function=mean, noise_variance=0.02)
    assert found == pytest.approx(float(reference.elbo()), rel=1e-9)
    assert float(bound) == pytest.approx(found, rel=1e-6)
    for slope in slopes:
        np.testing.assert_allclose(slope, 0.0, atol=1e-4)
    for before, variable in zip(kept, model.likelihood.variables + layer.kernel.variables, strict=True):
        np.testing.assert_array_equal(before, variable)


@pytest.mark.parametrize("whiten", [True, False])
def test_with_all_rows_it_is_the_exact_gp(rng: np.random.Generator, whiten: bool) -> None:
    X, Y = _data(rng, 8)  # of few rows K is well conditioned, by whose root u is v
    mean = gpflow.mean_functions.Linear(A=[[1.5], [-0.5]], b=[2.0])
    model = _model(X, num_data=8, whiten=whiten, mean_function=mean)
    fit_collapsed(model, X, Y, max_iter=0)
    exact = gpflow.models.GPR((X, Y), model.layers[0].kernel, mean_function=mean, noise_variance=0.02)
    for found, expected in zip(model.predict_y(X + 0.1), exact.predict_y(X + 0.1), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("whiten", [True, False])
def test_an_exact_layer_predicts_and_bounds_as_the_exact_gp(rng: np.random.Generator, whiten: bool) -> None:
    """Two outputs, a mean function, and a noise s as small as GPflow's jitter.

    With jitter r s of the layer, u - f of a row is N(r (y - f), r (1 - r) s) under the posterior and N(0, r s) under
    the prior: the bound is below the evidence by that KL.
    """
    X, Y = _data(rng, num_outputs=2)
    mean = gpflow.mean_functions.Linear(A=rng.standard_normal((2, 2)), b=np.ones(2))
    model = _model(X, 2, noise=2e-6, whiten=whiten, mean_function=mean)
    set_exact_q(model.layers[0], Y - mean(X).numpy(), np.array(2e-6))
    exact = gpflow.models.GPR((X, Y), model.layers[0].kernel, mean_function=mean, noise_variance=2e-6)
    for found, expected in zip(model.predict_y(X + 0.1), exact.predict_y(X + 0.1), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    evidence = float(exact.log_marginal_likelihood())
    gap = evidence - float(model.elbo((tf.constant(X), tf.constant(Y))))
    mean_f, variance_f = exact.predict_f(X)
    squares = np.sum(np.square(Y - mean_f) + variance_f) / 2e-6
    assert gap == pytest.approx(0.5 * (squares * 1e-3 - Y.size * (1e-3 + np.log1p(-1e-3))), rel=1e-3)


def test_the_bound_rises_and_what_is_fixed_stays(rng: np.random.Generator) -> None:
    X, Y = _data(rng)
    model = _model(X[::4])
    gpflow.set_trainable(model.layers[0].inducing_variable, False)
    start = fit_collapsed(model, X, Y, max_iter=0)
    end = fit_collapsed(model, X, Y, max_iter=30)
    assert end > start + 1.0
    np.testing.assert_array_equal(model.layers[0].inducing_variable.Z, X[::4])
    assert float(model.elbo((tf.constant(X), tf.constant(Y)))) == pytest.approx(end, rel=1e-6)


def test_a_failed_factorisation_keeps_the_last_good_parameters(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y = _data(rng)
    model = _model(X[::4])

    def minimize(self: Any, loss: Any, variables: Any, *, step_callback: Any, options: Any) -> None:
        step_callback(0, variables, [tf.constant(variable) + 0.1 for variable in variables])
        for variable in variables:
            variable.assign(variable * np.nan)
        raise tf.errors.InvalidArgumentError(None, None, "Cholesky decomposition was not successful")

    expected = [variable.numpy() + 0.1 for variable in model.layers[0].kernel.trainable_variables]
    monkeypatch.setattr(gpflow.optimizers.Scipy, "minimize", minimize)
    assert np.isfinite(fit_collapsed(model, X, Y))
    for value, variable in zip(expected, model.layers[0].kernel.trainable_variables, strict=True):
        np.testing.assert_allclose(variable, value)


def _two_layers(X: np.ndarray, Y: np.ndarray) -> DeepGP:
    return modern(X, Y, 2, num_inducing=5)


def _student(X: np.ndarray, Y: np.ndarray) -> DeepGP:
    return modern(X, Y, 1, num_inducing=5, likelihood=gpflow.likelihoods.StudentT())


def _diagonal(X: np.ndarray, Y: np.ndarray) -> DeepGP:
    return _model(X[::4], q_diag=True)


def _noisy_layer(X: np.ndarray, Y: np.ndarray) -> DeepGP:
    return _model(X[::4], noise_variance=0.1)


def _several_kernels(X: np.ndarray, Y: np.ndarray) -> DeepGP:
    kernel = gpflow.kernels.SharedIndependent(SquaredExponential(), output_dim=1)
    return DeepGP([SVGPLayer(kernel, X[::4])], gpflow.likelihoods.Gaussian(), num_data=40)


@pytest.mark.parametrize("build", [_two_layers, _student, _diagonal, _noisy_layer, _several_kernels])
def test_other_models_are_refused(rng: np.random.Generator, build: Callable[..., DeepGP]) -> None:
    X, Y = _data(rng)
    model = build(X, Y)
    assert not has_collapsed_bound(model)
    with pytest.raises(ValueError, match="fit_collapsed needs one SVGPLayer"):
        fit_collapsed(model, X, Y)


def test_float32_is_left_to_adam(rng: np.random.Generator) -> None:
    with float_type("float32"):
        assert not has_collapsed_bound(modern(*_data(rng), 1, num_inducing=5))


def test_the_end_of_training(rng: np.random.Generator) -> None:
    """A single layer gets its collapsed bound with the last step, stopped and taken up again, too, if it knows its rows
    and the rate falls; before it nothing differs."""
    X, Y = _data(rng)
    rows, config = (tf.constant(X), tf.constant(Y)), TrainingConfig(0.02, n_iter_no_change=0)
    models = [modern(X, Y, 1, num_inducing=10) for _ in range(3)]
    Trainer(models[0], config, num_steps=100, data=(X, Y)).advance(lambda t: rows, 0, 100, SEED)
    other, plain = Trainer(models[1], config, num_steps=100, data=(X, Y)), Trainer(models[2], config, num_steps=100)
    for trainer in (other, plain):
        trainer.advance(lambda t: rows, 0, 99, SEED)
    np.testing.assert_array_equal(models[1].layers[0].q_mu, models[2].layers[0].q_mu)
    for trainer in (other, plain):
        trainer.advance(lambda t: rows, 99, 1, SEED)
    bounds = [float(model.elbo(rows)) for model in models]
    assert bounds[0] == bounds[1] > bounds[2] + 1.0
    best = fit_collapsed(models[0], X, Y, max_iter=0)
    assert bounds[0] == pytest.approx(best, rel=1e-6)


def test_a_sample_of_the_rows_is_not_taken_for_all(rng: np.random.Generator) -> None:
    """With rows that stay on disk the trainer of `train_dgp.py` leaves the collapsed bound alone."""
    X, Y = _data(rng)
    rows, config = (tf.constant(X), tf.constant(Y)), TrainingConfig(0.02, n_iter_no_change=0)
    bounds = []
    for num_data in (40, 41):
        model = modern(X, Y, 1, num_inducing=10, num_data=num_data)
        trainer = trainer_for("gaussian", model, (X, Y), config, SamplingConfig(), 100, batch_size=40, seed=0)
        trainer.advance(lambda t: rows, 0, 100, SEED)
        bounds.append(float(model.elbo(rows)))
    assert bounds[0] > bounds[1] + 1.0


def test_hardly_any_noise(rng: np.random.Generator) -> None:
    """What Adam creeps to: a smooth function without noise, which L-BFGS learns to a thousandth of its scale."""
    X = rng.uniform(-2, 2, (200, 2))
    Y = np.sin(X[:, :1]) * np.cos(X[:, 1:])
    rows, config = (tf.constant(X), tf.constant(Y)), TrainingConfig(0.02, n_iter_no_change=0)
    errors = []
    for data in ((X, Y), None):
        model = modern(X, Y, 1, num_inducing=30)
        Trainer(model, config, num_steps=500, data=data).advance(lambda t: rows, 0, 500, SEED)
        at = rng.uniform(-1.5, 1.5, (100, 2))
        errors.append(float(np.std(model.predict_f(at)[0] - np.sin(at[:, :1]) * np.cos(at[:, 1:]))))
    assert errors[0] < 2e-3
    assert errors[0] < errors[1] / 3
