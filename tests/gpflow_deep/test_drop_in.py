"""A `DeepGP` in the hands of GPflow's, Keras' and TensorFlow's own tools."""

import copy
import io
import logging
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import check_shapes
import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.keras import tf_keras
from gpflow.utilities import deepcopy, freeze, multiple_assign, parameter_dict, print_summary, set_trainable
from tensorflow.python.autograph.utils import ag_logging

from gpflow_deep import DeepGP, make_train_step
from tests.gpflow_deep.builders import make_data, make_model
from tests.gpflow_deep.test_likelihoods import CASES

Data = tuple[tf.Tensor, tf.Tensor]


@pytest.fixture
def data(rng: np.random.Generator) -> Data:
    X, Y = make_data(rng, 16)
    return tf.constant(X), tf.constant(Y)


def test_docstrings_have_shapes_as_usual() -> None:
    """Those of GPflow itself are left out while it is imported, and only then."""
    assert check_shapes.get_rewrite_docstrings() is check_shapes.DocstringFormat.SPHINX
    assert "has shape [*N*, *D*]" in str(DeepGP.elbo.__doc__)


@pytest.fixture
def model(rng: np.random.Generator) -> DeepGP:
    return make_model(rng, num_data=16, num_predict_samples=5, layer_options={"noise_variance": 0.01})


@pytest.fixture(autouse=True)
def log_messages() -> Iterator[list[str]]:
    """What TensorFlow logs during a test; fails the test if AutoGraph could not transform something."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    tf.get_logger().addHandler(handler)
    yield messages
    tf.get_logger().removeHandler(handler)
    assert not [message for message in messages if "AutoGraph" in message]


def test_autograph_warnings_would_be_seen(log_messages: list[str]) -> None:
    """The check above can fail."""
    ag_logging.warning("as %s warns", "AutoGraph")
    assert log_messages == ["as AutoGraph warns"]
    log_messages.clear()


def test_svgps_names_are_those_of_the_last_layer(model: DeepGP) -> None:
    names = ["kernel", "mean_function", "inducing_variable", "q_mu", "q_sqrt", "whiten", "q_diag"]
    for name in names:
        assert getattr(model, name) is getattr(model.layers[-1], name), name
    set_trainable(model.q_mu, False)
    assert not model.layers[-1].q_mu.trainable
    model.q_mu.assign(np.ones(model.q_mu.shape))
    assert np.all(model.layers[-1].q_mu.numpy() == 1)
    assert not {f".{name}" for name in names} & set(parameter_dict(model))  # no parameter has two homes


# Optimisers.


@pytest.mark.slow
def test_scipy_is_deterministic_and_decreases_the_loss(model: DeepGP, data: Data) -> None:
    start = {name: parameter.numpy() for name, parameter in parameter_dict(model).items()}
    before = float(model.training_loss(data, seed=0))
    results = []
    closure = model.training_loss_closure(data, seed=0, compile=False)  # the optimizer compiles it
    for _ in range(2):
        multiple_assign(model, start)
        result = gpflow.optimizers.Scipy().minimize(closure, model.trainable_variables, options={"maxiter": 8})
        results.append(result.fun)
        assert result.nit == 8
    assert results[0] == results[1]
    assert results[0] < before - 1.0
    np.testing.assert_allclose(model.training_loss(data, seed=0), results[0], rtol=1e-10)


def only_last_q(model: DeepGP) -> list[tuple[gpflow.Parameter, gpflow.Parameter]]:
    set_trainable(model.layers[-1].q_mu, False)
    set_trainable(model.layers[-1].q_sqrt, False)
    return [(model.layers[-1].q_mu, model.layers[-1].q_sqrt)]


def test_natural_gradient_solves_one_layer_in_one_step(rng: np.random.Generator, data: Data) -> None:
    """With a Gaussian likelihood, a step of size 1 from anywhere lands on the optimal q(u): the bound of SGPR."""
    model = make_model(rng, (2, 1), num_data=16)
    pairs = only_last_q(model)
    gpflow.optimizers.NaturalGradient(gamma=1.0).minimize(model.training_loss_closure(data), pairs)
    sgpr = gpflow.models.SGPR(data, model.layers[0].kernel, model.layers[0].inducing_variable, noise_variance=0.1)
    # The step inverts Fisher matrices of a random q(u): condition number below 1e4, squared.
    np.testing.assert_allclose(model.elbo(data), sgpr.elbo(), rtol=1e-7)


def test_natural_gradient_and_adam_train_two_layers(model: DeepGP, data: Data) -> None:
    pairs = only_last_q(model)
    natgrad, adam = gpflow.optimizers.NaturalGradient(gamma=0.1), tf.keras.optimizers.Adam(0.01)
    closure = model.training_loss_closure(data, seed=1)
    before = float(closure())
    q_mu = model.layers[-1].q_mu.numpy()
    for _ in range(5):
        variables = model.trainable_variables
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = closure()
        adam.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        natgrad.minimize(closure, pairs)
    assert float(closure()) < before - 5.0
    assert np.all(model.layers[-1].q_mu.numpy() != q_mu)


def test_keras_2_and_3_take_the_same_steps(model: DeepGP, data: Data) -> None:
    """Keras 3 by its gradients, Keras 2 by its `minimize`, which Keras 3 no longer has."""
    start = gpflow.utilities.read_values(model)
    closure, variables, losses = model.training_loss_closure(data, seed=1), model.trainable_variables, []
    before = float(closure())
    adam = tf.keras.optimizers.Adam(0.01)
    for _ in range(5):
        with tf.GradientTape() as tape:
            loss = closure()
        adam.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    losses.append(float(closure()))
    multiple_assign(model, start)
    old_adam = tf_keras.optimizers.Adam(0.01)
    for _ in range(5):
        old_adam.minimize(closure, variables)
    losses.append(float(closure()))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)  # their epsilons enter differently, at 1e-7
    assert losses[0] < before - 0.5


def test_closure_of_an_iterator(model: DeepGP, data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call takes the next minibatch; batches of two sizes are one trace."""
    traces: list[int] = []
    elbo = model.elbo

    def traced_elbo(*args: Any, **options: Any) -> tf.Tensor:
        traces.append(1)
        return elbo(*args, **options)

    monkeypatch.setattr(model, "elbo", traced_elbo)
    batches = list(tf.data.Dataset.from_tensor_slices(data).batch(6))
    assert [len(X) for X, _ in batches] == [6, 6, 4]
    for compile in (True, False):
        closure = model.training_loss_closure(
            iter(tf.data.Dataset.from_tensor_slices(data).batch(6)), compile=compile, seed=1
        )
        values = [float(closure()) for _ in range(3)]
        assert len(traces) == (1 if compile else 4)
        np.testing.assert_allclose(values, [elbo_loss(elbo, batch) for batch in batches], rtol=1e-12)


def elbo_loss(elbo: Callable[..., tf.Tensor], batch: Data) -> float:
    return -float(elbo(batch, seed=1))


def test_closure_of_a_pair_is_fresh_or_fixed(model: DeepGP, data: Data) -> None:
    fresh, fixed = model.training_loss_closure(data), model.training_loss_closure(data, seed=1)
    assert float(fresh()) != float(fresh())
    assert float(fixed()) == float(fixed())
    eager = model.training_loss_closure(data, seed=1, compile=False)
    np.testing.assert_allclose(fixed(), eager(), rtol=1e-12)  # compiled graphs add up in another order


def test_priors_enter_the_loss_once(model: DeepGP, data: Data) -> None:
    before = float(model.training_loss(data, seed=1))
    prior = tfp.distributions.LogNormal(tf.constant(0.3, tf.float64), tf.constant(0.5, tf.float64))
    for parameter in (model.layers[0].kernel.lengthscales, model.layers[-1].kernel.variance, model.likelihood.variance):
        parameter.prior = prior
    expected = sum(
        float(tf.reduce_sum(prior.log_prob(parameter)))
        for parameter in (model.layers[0].kernel.lengthscales, model.layers[-1].kernel.variance)
    ) + float(prior.log_prob(model.likelihood.variance))
    np.testing.assert_allclose(before - float(model.training_loss(data, seed=1)), expected, rtol=1e-9)


# Parameters.


def test_parameters_have_one_home(model: DeepGP) -> None:
    paths = set(parameter_dict(model))
    expected = {".likelihood.variance"}
    for i in range(2):
        expected |= {
            f".layers[{i}].{name}"
            for name in ("q_mu", "q_sqrt", "noise_variance", "kernel.variance", "kernel.lengthscales")
        }
        expected.add(f".layers[{i}].inducing_variable.Z")
    assert paths == expected | {".layers[0].mean_function.A", ".layers[0].mean_function.b"}
    assert len({id(variable) for variable in model.trainable_variables}) == len(model.trainable_variables) == 13
    assert len(model.trainable_parameters) == 13


def test_kernel_and_mean_function_are_those_of_the_last_layer(model: DeepGP) -> None:
    assert model.kernel is model.layers[-1].kernel
    assert model.mean_function is model.layers[-1].mean_function
    model.kernel = kernel = gpflow.kernels.Matern32(lengthscales=[1.0, 1.0])
    assert model.layers[-1].kernel is kernel


def test_set_trainable(model: DeepGP, data: Data) -> None:
    set_trainable(model.layers[0], False)
    assert len(model.trainable_variables) == 7
    closure = model.training_loss_closure(data, seed=1, compile=False)
    before = {name: parameter.numpy() for name, parameter in parameter_dict(model).items()}
    gpflow.optimizers.Scipy().minimize(closure, model.trainable_variables, options={"maxiter": 3})
    for name, parameter in parameter_dict(model).items():
        assert np.array_equal(parameter.numpy(), before[name]) == name.startswith(".layers[0]"), name


def test_parameter_dict_round_trip(rng: np.random.Generator, model: DeepGP, data: Data) -> None:
    other = make_model(rng, num_data=16, num_predict_samples=5, layer_options={"noise_variance": 0.02})
    before = float(model.elbo(data, seed=1))
    assert float(other.elbo(data, seed=1)) != before
    multiple_assign(other, gpflow.utilities.read_values(model))
    np.testing.assert_allclose(other.elbo(data, seed=1), before, rtol=1e-10)  # through softplus and back


def test_print_summary(model: DeepGP) -> None:
    output = io.StringIO()
    with redirect_stdout(output):
        print_summary(model)
    text = output.getvalue()
    for path in parameter_dict(model):
        assert path.removeprefix(".") in text
    assert text.count("q_mu") == 2


@pytest.mark.parametrize("function", [copy.deepcopy, deepcopy])
def test_deepcopy_is_independent(model: DeepGP, data: Data, function: Callable[[DeepGP], DeepGP]) -> None:
    model.elbo(data, seed=1)
    clone = function(model)
    value = float(model.elbo(data, seed=1))
    assert float(clone.elbo(data, seed=1)) == value
    clone.layers[0].kernel.variance.assign(3.0)
    assert float(clone.elbo(data, seed=1)) != value
    assert float(model.elbo(data, seed=1)) == value


def test_freeze(model: DeepGP, data: Data) -> None:
    frozen = freeze(model)
    assert not frozen.trainable_variables
    np.testing.assert_allclose(frozen.elbo(data, seed=1), model.elbo(data, seed=1), rtol=1e-12)
    for a, b in zip(frozen.predict_y(data[0]), model.predict_y(data[0]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


# Monitoring.


def test_monitor(model: DeepGP, data: Data, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tasks = gpflow.monitor.MonitorTaskGroup(
        [
            gpflow.monitor.ModelToTensorBoard(str(tmp_path), model),
            gpflow.monitor.ScalarToTensorBoard(str(tmp_path), lambda: model.elbo(data, seed=1), "elbo"),
        ]
    )
    monitor = gpflow.monitor.Monitor(tasks)
    expected = float(model.elbo(data, seed=1))
    monitor(0)
    events = EventAccumulator(str(tmp_path), size_guidance={"tensors": 0})
    events.Reload()
    tags = events.Tags()["tensors"] + events.Tags()["scalars"]
    assert any("layers[0]" in tag for tag in tags)
    assert any("likelihood.variance" in tag for tag in tags)
    value = tf.make_ndarray(events.Tensors("elbo")[0].tensor_proto)
    np.testing.assert_allclose(value, expected, rtol=1e-6)  # TensorBoard has float32


# Saving.


def test_saved_model(model: DeepGP, data: Data, tmp_path: Path) -> None:
    """Export of `predict_f` and `predict_y` for any number of points, also through a posterior's variables."""
    posterior = model.posterior("variable")
    spec = [tf.TensorSpec([None, 2], tf.float64)]
    module = tf.Module()
    module.model, module.posterior = model, posterior
    module.predict_f = tf.function(lambda X: model.predict_f(X), input_signature=spec)
    module.predict_y = tf.function(lambda X: model.predict_y(X), input_signature=spec)
    module.cached_f = tf.function(lambda X: posterior.predict_f(X), input_signature=spec)
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    for N in (3, 16):
        X = data[0][:N]
        for a, b in zip(loaded.predict_f(X), model.predict_f(X), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
        for a, b in zip(loaded.predict_y(X), model.predict_y(X), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
        for a, b in zip(loaded.cached_f(X), model.predict_f(X), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8)
    for predict in (loaded.predict_f, loaded.predict_y, loaded.cached_f):  # a row's place is of no consequence
        for a, b in zip(predict(data[0][::-1]), predict(data[0]), strict=True):
            np.testing.assert_allclose(a, b[::-1], rtol=1e-9, atol=1e-10)


def test_function_attached_to_the_model_is_saved(model: DeepGP, data: Data, tmp_path: Path) -> None:
    """GPflow's own recipe."""
    model.compiled_predict_f = tf.function(
        lambda Xnew: model.predict_f(Xnew), input_signature=[tf.TensorSpec([None, 2], tf.float64)]
    )
    tf.saved_model.save(model, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_allclose(loaded.compiled_predict_f(data[0])[1], model.predict_f(data[0])[1], rtol=1e-12)


@pytest.mark.parametrize("name", ["gaussian", "switched with ordinal"])
def test_checkpoint_round_trip(rng: np.random.Generator, tmp_path: Path, name: str) -> None:
    build, P, targets = CASES[name]
    first, second = (make_model(rng, (2, 2, P), build()) for _ in range(2))
    data = (rng.uniform(-1, 1, (6, 2)), targets(rng))
    for model in (first, second):  # also after use
        model.elbo(data, seed=1)
    first.likelihood.trainable_parameters[-1].assign(0.37)
    path = tf.train.Checkpoint(model=first).save(str(tmp_path / "model"))
    first.elbo(data, seed=1)
    tf.train.Checkpoint(model=second).restore(path).assert_consumed()
    assert float(first.elbo(data, seed=1)) == float(second.elbo(data, seed=1))


@pytest.mark.parametrize("natgrad_gamma", [None, pytest.param(0.1, marks=pytest.mark.slow)])
def test_resume_is_bit_identical(
    rng: np.random.Generator, data: Data, tmp_path: Path, natgrad_gamma: float | None, traced_once: Callable[[Any], Any]
) -> None:
    """10 steps = 5 + restore into another model + 5, each one trace."""
    models, steps, optimizers = [], [], []
    for _ in range(2):
        model = make_model(rng, num_data=16)
        if natgrad_gamma is not None:
            only_last_q(model)
        optimizers.append(tf.keras.optimizers.Adam(0.01))
        steps.append(traced_once(make_train_step(model, optimizers[-1], natgrad_gamma=natgrad_gamma)))
        models.append(model)

    def run(which: int, start: int, stop: int) -> None:
        for t in range(start, stop):
            steps[which](data, tf.constant([t, 7]))

    run(0, 0, 5)
    path = tf.train.Checkpoint(model=models[0], optimizer=optimizers[0]).save(str(tmp_path / "state"))
    run(0, 5, 10)
    tf.train.Checkpoint(model=models[1], optimizer=optimizers[1]).restore(path).assert_consumed()
    run(1, 5, 10)
    for a, b in zip(models[0].variables, models[1].variables, strict=True):
        np.testing.assert_array_equal(a, b)
    assert float(models[0].elbo(data, seed=1)) == float(models[1].elbo(data, seed=1))
