"""The training step, the trainer, and what it says when training fails."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_deep import DeepGP, ModelConfig, Trainer, TrainingConfig, make_train_step, modern, paper2017
from gpflow_deep.layers.moments import robust_cholesky
from gpflow_deep.train.training import clear_errors, first_message
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
    model = modern(X, Y, 2, num_inducing=5, precision="full", natural_gradients=True)
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
    model = paper2017(X, Y, 2, num_inducing=10, natural_gradients=natgrad_gamma is not None)
    step = make_train_step(model, tf.keras.optimizers.Adam(0.01), natgrad_gamma=natgrad_gamma)
    data = (tf.constant(X), tf.constant(Y))
    bounds = [float(step(data, tf.random.fold_in(SEED, t))["elbo_nats"]) for t in range(60)]
    # The bound rises by hundreds of nats; the noise of one draw is of the order of ten.
    assert np.mean(bounds[-10:]) > np.mean(bounds[:10]) + 100.0


def test_messages(rng: np.random.Generator) -> None:
    X, Y = make_data(rng, 20)
    optimizer = tf.keras.optimizers.Adam(0.01)
    with pytest.raises(ValueError, match="nothing would train them: give natgrad_gamma"):
        make_train_step(modern(X, Y, 2, num_inducing=5, natural_gradients=True), optimizer)
    with pytest.raises(ValueError, match="q_mu and q_sqrt of the last layer marked untrainable"):
        make_train_step(paper2017(X, Y, 2, num_inducing=5), optimizer, natgrad_gamma=0.1)
    narrow = make_model(rng, layer_options={"q_diag": True})
    for parameter in (narrow.layers[-1].q_mu, narrow.layers[-1].q_sqrt):
        gpflow.set_trainable(parameter, False)
    with pytest.raises(ValueError, match="natgrad_gamma needs a full q_sqrt"):
        make_train_step(narrow, optimizer, natgrad_gamma=0.1)


def _batches(rng: np.random.Generator) -> Callable[[int], tuple[tf.Tensor, tf.Tensor]]:
    """Ten rows of forty, another ten at each step."""
    X, Y = make_data(rng, 40)
    return lambda t: (tf.constant(X[t % 4 :: 4]), tf.constant(Y[t % 4 :: 4]))


def _values(model: DeepGP) -> list[np.ndarray]:
    return [variable.numpy() for variable in model.variables]


def test_trainer_makes_the_steps_of_their_numbers(rng: np.random.Generator) -> None:
    """Three steps at once, or one and two by another trainer that has the first one's state: the same bits."""
    batch_at, model = _batches(rng), make_model(rng, num_data=40)
    clones = [gpflow.utilities.deepcopy(model) for _ in range(2)]
    step = make_train_step(model, tf.keras.optimizers.Adam(0.02))
    bounds = [step(batch_at(t), tf.random.fold_in(SEED, t))["elbo_nats"] for t in range(3)]

    trainer = Trainer(clones[0], TrainingConfig(learning_rate=0.02))
    assert trainer.advance(batch_at, 0, 3, SEED) == bounds[-1]
    found = trainer.scalars()
    assert found["train/elbo_nats"] == float(bounds[-1])
    assert found["train/seconds"] == float(trainer.seconds) > 0

    first = Trainer(clones[1], TrainingConfig(learning_rate=0.02))
    assert first.advance(batch_at, 0, 1, SEED) == bounds[0]
    second = Trainer(gpflow.utilities.deepcopy(clones[1]), TrainingConfig(learning_rate=0.02))
    for old, new in zip(first.optimizer.variables, second.optimizer.variables, strict=True):
        new.assign(old)
    second.advance(batch_at, 1, 2, SEED)
    for a, b, c in zip(_values(model), _values(trainer.model), _values(second.model), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)


def test_no_step_is_made_after_the_end(rng: np.random.Generator) -> None:
    """Whoever asks for all steps at once, though the bound has settled, gets the model of the end."""
    batch_at, model = _batches(rng), make_model(rng, num_data=40)
    trainer = Trainer(model, TrainingConfig(learning_rate=0.02), num_steps=1000)
    assert trainer.course is not None
    trainer.course.settle(3)
    trainer.advance(batch_at, 98, 2, SEED)
    at_the_end = _values(model)
    bound = trainer.advance(batch_at, 100, 900, SEED)
    assert float(bound) == trainer.scalars()["train/elbo_nats"]
    for before, after in zip(at_the_end, _values(model), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    ("likelihood", "given", "gamma"), [("gaussian", None, 0.1), ("studentt", None, 0.01), ("gaussian", 0.3, 0.3)]
)
def test_step_size_of_natural_gradients(
    likelihood: Any, given: float | None, gamma: float, rng: np.random.Generator
) -> None:
    X, Y = make_data(rng, 20)
    model = ModelConfig(num_inducing=5, natgrad=True, likelihood=likelihood).build(X, Y)
    clone = gpflow.utilities.deepcopy(model)
    data = (tf.constant(X), tf.constant(Y))
    Trainer(model, TrainingConfig(natgrad_gamma=given)).advance(lambda t: data, 0, 1, SEED)
    make_train_step(clone, tf.keras.optimizers.Adam(0.01), natgrad_gamma=gamma)(data, tf.random.fold_in(SEED, 0))
    for a, b in zip(_values(model), _values(clone), strict=True):
        np.testing.assert_array_equal(a, b)


def test_state_is_all_that_changes(rng: np.random.Generator) -> None:
    trainer = Trainer(make_model(rng))
    state = trainer.state()
    assert state == {"model": trainer.model, "optimizer": trainer.optimizer, "seconds": trainer.seconds}
    trainer.model.layers[0].q_mu.unconstrained_variable.assign(np.full([6, 2], np.nan))
    with pytest.raises(FloatingPointError, match=r"parameters are not finite after step 0: .*Lower learning_rate"):
        trainer.state()


def test_a_bound_that_is_not_finite_is_an_error(rng: np.random.Generator) -> None:
    """Targets of 1e200 overflow when they are squared, before any parameter does."""
    X, Y = make_data(rng)
    trainer = Trainer(make_model(rng))
    trainer.advance(lambda t: (tf.constant(X), tf.constant(1e200 * Y)), 4, 1, SEED)
    with pytest.raises(FloatingPointError, match=r"the bound is -inf at step 5\. Lower learning_rate .*outliers"):
        trainer.scalars()
    with pytest.raises(FloatingPointError, match="step 5"):
        trainer.state()


def test_a_failed_factorisation_names_the_step(rng: np.random.Generator) -> None:
    X, Y = make_data(rng)
    trainer = Trainer(make_model(rng))
    trainer.model.layers[1].inducing_variable.Z.unconstrained_variable.assign(np.full([6, 2], np.nan))
    message = r"^step 8 failed: Cholesky factorisation failed in layer 2 of 2: .* Lower learning_rate \(or"
    with pytest.raises(FloatingPointError, match=message):
        trainer.advance(lambda t: (tf.constant(X), tf.constant(Y)), 7, 1, SEED)


@pytest.mark.parametrize("value", [0.0, -0.1, np.inf, np.nan])
def test_impossible_step_sizes_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match=f"learning_rate must be a finite number above 0, got {value}"):
        TrainingConfig(learning_rate=value)
    with pytest.raises(ValueError, match=f"natgrad_gamma must be a finite number above 0, got {value}; with 0 the"):
        TrainingConfig(natgrad_gamma=value)


def test_a_step_size_without_natural_gradients_is_refused(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match=r"natgrad_gamma=0\.1 has no effect, .*set natgrad to true"):
        Trainer(make_model(rng), TrainingConfig(natgrad_gamma=0.1))


def _fail_in_graph() -> None:
    @tf.function
    def check(x: tf.Tensor) -> tf.Tensor:
        tf.debugging.assert_positive(x, message="x must be positive.")
        return x

    check(tf.constant(-1.0))


def _factorise_nan() -> tf.Tensor:
    return robust_cholesky(tf.fill([2, 2], tf.constant(np.nan, tf.float64)), label="layer 7")


FAILURES: dict[str, tuple[Callable[[], Any], str]] = {
    "factorisation": (_factorise_nan, "Cholesky factorisation failed in layer 7: the matrix must be finite"),
    "factorisation in a graph": (
        lambda: tf.function(_factorise_nan, autograph=False)(),
        "Cholesky factorisation failed in layer 7: the matrix must be finite",
    ),
    "check in a graph": (_fail_in_graph, "x must be positive."),
    "parameter": (
        lambda: gpflow.Parameter(-1.0, transform=gpflow.utilities.positive()),
        "gpflow.Parameter: the value to be assigned is incompatible",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_first_message_is_what_the_check_says(name: str) -> None:
    fail, words = FAILURES[name]
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        fail()
    message = first_message(caught.value)
    assert message.startswith(words)
    assert not message.endswith("]")
    assert "node" not in message
    assert "\n" not in message
    with pytest.raises(FloatingPointError) as clear, clear_errors("it failed: ", "Mend it."):
        fail()
    assert str(clear.value) == f"it failed: {message} Mend it."
