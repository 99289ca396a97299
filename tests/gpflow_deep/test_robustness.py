"""Hard data and random starts give no NaN; and a whole model life in float32."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep import DeepGP, diagnose, make_train_step, paper2017
from tests.gpflow_deep.builders import make_data, make_model

M = 15
FLOAT32 = gpflow.config.Config(float=np.float32)


def hard_data(rng: np.random.Generator, name: str) -> tuple[np.ndarray, np.ndarray]:
    X, Y = make_data(rng, 4 if name == "fewer rows than inducing inputs" else 24, 3)
    if name == "constant column":
        X[:, 1] = 0.0
    elif name == "duplicate rows":
        X, Y = np.tile(X[:6], [4, 1]), np.tile(Y[:6], [4, 1])
    elif name == "unscaled":
        X, Y = X * [1e4, 1.0, 1e-4], Y
    return X.astype(gpflow.default_float()), Y.astype(gpflow.default_float())


HARD_DATA = ["constant column", "duplicate rows", "unscaled", "fewer rows than inducing inputs"]
MODES = ["float64", "float64 fast", "float32"]


def build(X: np.ndarray, Y: np.ndarray, mode: str) -> DeepGP:
    precision = "fast" if mode == "float64 fast" else "mixed"
    model = paper2017(X, Y, 2, num_inducing=M, precision=precision)  # type: ignore[arg-type]
    assert model.layers[0].q_mu.dtype.name == mode.split()[0]
    return model


def random_start(rng: np.random.Generator, model: DeepGP) -> None:
    """Lengthscales and variances over several orders of magnitude, some inducing inputs on top of one another."""

    def between(low: float, high: float, shape: tuple[int, ...] = ()) -> np.ndarray:
        return np.asarray(np.exp(rng.uniform(np.log(low), np.log(high), shape)), gpflow.default_float())

    for layer in model.layers:
        layer.kernel.lengthscales.assign(between(0.05, 100.0, layer.kernel.lengthscales.shape))
        layer.kernel.variance.assign(between(1e-2, 1e2))
        Z = layer.inducing_variable.Z.numpy()
        Z[: M // 3] = Z[rng.integers(M)]
        layer.inducing_variable.Z.assign(Z)
        layer.q_mu.assign(np.asarray(rng.standard_normal(layer.q_mu.shape), gpflow.default_float()))
    assert model.layers[0].noise_variance is not None
    model.layers[0].noise_variance.assign(between(1e-8, 1e-2))
    model.likelihood.variance.assign(between(1e-4, 1.0))


def assert_finite(model: DeepGP, losses: list[float], X: np.ndarray) -> None:
    assert np.all(np.isfinite(losses)), losses
    for variable in model.trainable_variables:
        assert np.all(np.isfinite(variable)), variable.name
    mean, var = model.predict_y(X, num_samples=5)
    assert np.all(np.isfinite(mean))
    assert np.all(np.asarray(var) > 0.0)


def train_from_random_starts(rng: np.random.Generator, name: str, mode: str, num_starts: int, num_steps: int) -> None:
    """One compiled step for all starts; the optimizer is reset before each."""
    X, Y = hard_data(rng, name)
    model, optimizer = build(X, Y, mode), tf.keras.optimizers.Adam(0.01)
    step = make_train_step(model, optimizer)
    starting_values = gpflow.utilities.read_values(model)
    fresh_optimizer = [variable.numpy() for variable in optimizer.variables]
    data = (tf.constant(X), tf.constant(Y))
    for start in range(num_starts):
        gpflow.utilities.multiple_assign(model, starting_values)
        for variable, value in zip(optimizer.variables, fresh_optimizer, strict=True):
            variable.assign(value)
        if start > 0:  # the first one is the preset's own
            random_start(rng, model)
        losses = [-float(step(data, tf.constant([start, t]))["elbo_nats"]) for t in range(num_steps)]
        assert_finite(model, losses, X)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", HARD_DATA)
def test_no_nan_from_any_start(rng: np.random.Generator, name: str, mode: str) -> None:
    """12 of the 200 starts of the slow test below, without compilation."""
    context = FLOAT32 if mode == "float32" else gpflow.config.Config()
    with gpflow.config.as_context(context):
        X, Y = hard_data(rng, name)
        model, optimizer = build(X, Y, mode), tf.keras.optimizers.Adam(0.01)
        random_start(rng, model)
        variables, losses = model.trainable_variables, []
        for t in range(2):
            with tf.GradientTape() as tape:
                loss = model.training_loss((X, Y), seed=t)
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            losses.append(float(loss))
        assert_finite(model, losses, X)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", HARD_DATA)
def test_no_nan_from_200_starts(rng: np.random.Generator, name: str, mode: str) -> None:
    with gpflow.config.as_context(FLOAT32 if mode == "float32" else gpflow.config.Config()):
        train_from_random_starts(rng, name, mode, num_starts=17, num_steps=20)  # 12 times 17 = 204


def test_inducing_inputs_on_top_of_one_another_are_reported(rng: np.random.Generator) -> None:
    X, Y = make_data(rng, 24, 3)
    model = build(X, Y, "float64")
    model.layers[1].inducing_variable.Z.assign(np.zeros((M, 3)))
    model.layers[1].kernel.variance.assign(1e12)
    assert np.isfinite(model.training_loss((X, Y), seed=1))
    reports: Any = diagnose(model)
    first, second = reports
    assert second.jitter > 10 * first.jitter


@pytest.mark.parametrize("compiled", [False, True])
def test_nan_parameter_is_an_error_that_names_the_layer(rng: np.random.Generator, compiled: bool) -> None:
    X, Y = make_data(rng, 24, 3)
    model = build(X, Y, "float64")
    Z = model.layers[1].inducing_variable.Z
    Z.unconstrained_variable.assign(np.full(Z.shape, np.nan))
    loss: Callable[[], tf.Tensor] = model.training_loss_closure((X, Y), compile=compiled, seed=1)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        loss()
    for part in ("layer 2 of 2", "lengthscales of kernel 0", "condition number"):
        assert part in str(caught.value)


@pytest.mark.parametrize("natural_gradients", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_whole_life_in_float32(rng: np.random.Generator, natural_gradients: bool) -> None:
    """Build, train, predict, cache, sample: all float32, all near the float64 model with the same parameters.

    Tolerance: single precision 6e-8 times sqrt(cond(Kuu)) < 1e3 times the slopes of two layers of order 10."""
    X, Y = make_data(rng, 30, 2)
    with gpflow.config.as_context(FLOAT32):
        X32, Y32 = X.astype(np.float32), Y.astype(np.float32)
        small = paper2017(X32, Y32, 2, num_inducing=8, natural_gradients=natural_gradients)
        natgrad_gamma = 0.1 if natural_gradients else None
        step = make_train_step(small, tf.keras.optimizers.Adam(0.01), natgrad_gamma=natgrad_gamma)
        for t in range(5):
            scalars = step((tf.constant(X32), tf.constant(Y32)), tf.constant([0, t]))
            assert scalars["elbo_nats"].dtype == tf.float32
            assert np.isfinite(scalars["elbo_nats"])
        # The noise of each float type is another: compare through explicit noise.
        noise = [rng.standard_normal((4, 30, 2)).astype(np.float32)]
        values = {name: value.astype(np.float64) for name, value in gpflow.utilities.read_values(small).items()}
        propagated = small.propagate(X32, [tf.constant(part) for part in noise])
        bound = small.elbo((X32, Y32), noise=[tf.constant(part) for part in noise])
        posterior = small.posterior()
        results = [bound, *propagated.means, *propagated.covs, *propagated.samples]
        results += [*small.predict_f(X32), *small.predict_f(X32, full_cov=True), *small.predict_y(X32)]
        results += [*posterior.predict_f(X32), *posterior.predict_y(X32), posterior.predict_log_density((X32, Y32))]
        results += [small.predict_log_density((X32, Y32)), small.predict_f_samples(X32, 3)]
        results += [posterior.predict_f_samples(X32, 3, full_cov=False), *small.predict_all_layers(X32, 3).samples]
        for result in results:
            assert result.dtype == tf.float32
            assert np.all(np.isfinite(result))
        np.testing.assert_allclose(posterior.predict_f(X32)[0], small.predict_f(X32)[0], rtol=0, atol=1e-2)
    large = paper2017(X, Y, 2, num_inducing=8, natural_gradients=natural_gradients)
    gpflow.utilities.multiple_assign(large, values)
    noise64 = [tf.constant(part.astype(np.float64)) for part in noise]
    expected = large.propagate(X, noise64)
    np.testing.assert_allclose(propagated.means[-1], expected.means[-1], rtol=0, atol=1e-3)
    np.testing.assert_allclose(propagated.covs[-1], expected.covs[-1], rtol=0, atol=1e-3)
    np.testing.assert_allclose(bound, large.elbo((X, Y), noise=noise64), rtol=1e-3)


@pytest.mark.parametrize("name", ["ordinal", "softmax", "robust max", "switched", "student"])
def test_likelihoods_in_float32(rng: np.random.Generator, name: str) -> None:
    from tests.gpflow_deep.test_likelihoods import CASES, D, N

    with gpflow.config.as_context(FLOAT32):
        build_likelihood, P, targets = CASES[name]
        likelihood = build_likelihood()
        X, Y = rng.uniform(-1, 1, (N, D)).astype(np.float32), targets(rng).astype(np.float32)
        model = paper2017(X, Y, 2, num_inducing=4, likelihood=likelihood)
        assert model.layers[-1].num_latent_gps == P
        for value in (model.elbo((X, Y)), *model.predict_y(X), model.predict_log_density((X, Y))):
            assert value.dtype == tf.float32
            assert np.all(np.isfinite(value))


def test_float32_model_refuses_float64_inputs(rng: np.random.Generator) -> None:
    with gpflow.config.as_context(FLOAT32):
        X, Y = make_data(rng)
        model = paper2017(X.astype(np.float32), Y.astype(np.float32), 2, num_inducing=4)
        with pytest.raises(ValueError, match="X must have the model's float type float32, got float64"):
            model.predict_f(X)


def test_one_point_and_one_inducing_input(rng: np.random.Generator) -> None:
    model = make_model(rng, (1, 1, 1), M=1)
    X, Y = make_data(rng, 1, 1)
    assert np.isfinite(model.elbo((X, Y)))
    assert np.all(np.isfinite(model.predict_f(X, full_cov=True)[1]))
