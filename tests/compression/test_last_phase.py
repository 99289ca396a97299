"""The last phase: what it keeps, what it leaves alone, and that the recipe makes it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import compression as bc
from compression.train.held_out import TrainingData, loss_of
from compression.train.keras_training import KerasTraining
from compression.train.recipes.classification import Examples, parts_of, taught_loss
from compression.train.recipes.last_phase import train_last
from compression.train.schedule import last_rate_at
from tests.compression.oracles import log_softmax, network_outputs
from tests.compression.recipes import recipe_config

D, K, BATCH = 6, 3, 20
CONFIG = recipe_config(last_epochs=4, learning_rate=0.02)


@pytest.fixture
def parts(rng: np.random.Generator) -> dict[str, Examples]:
    teacher, sizes = rng.normal(size=(D, K)), {"train": 120, "valid": 60, "test": 60}
    inputs = {name: rng.normal(size=(n, D)).astype(np.float32) for name, n in sizes.items()}
    return parts_of({name: (X, np.argmax(X @ teacher, axis=1)) for name, X in inputs.items()})


def network(rng: np.random.Generator) -> keras.Model:
    layers = [keras.layers.Dense(8, "relu"), keras.layers.Dense(K)]
    model = keras.Sequential([keras.Input([D]), *layers])
    for layer in layers:
        kernel = rng.normal(size=layer.kernel.shape)
        layer.kernel.assign(np.where(rng.uniform(size=kernel.shape) < 0.5, 0, kernel))
    return model


def loss(model: keras.Model, part: Examples) -> float:
    outputs, labels = network_outputs(model, np.asarray(part.X)), np.asarray(part.labels)
    return -float(np.mean(log_softmax(outputs)[np.arange(len(labels)), labels]))


def test_the_validation_loss_falls_zeros_stay_and_bits_are_a_function_of_the_seed(
    parts: dict[str, Examples], rng: np.random.Generator
) -> None:
    model = network(rng)
    start, zeros = model.get_weights(), [weights == 0 for weights in model.get_weights()]
    before = loss(model, parts["valid"])
    train_last(model, CONFIG, parts, batch_size=BATCH, seed=1)
    found = model.get_weights()
    assert loss(model, parts["valid"]) < before
    for weights, was_zero in zip(found[::2], zeros[::2], strict=True):  # kernels
        np.testing.assert_array_equal(weights == 0, was_zero)
    assert all(variable.constraint is None for variable in model.variables)
    model.set_weights(start)
    seen = dict[int, dict[str, float]]()
    train_last(model, CONFIG, parts, batch_size=BATCH, seed=1, log=seen.__setitem__)
    assert list(seen) == [1, 2, 3, 4]
    assert min(line["valid/nll_nats"] for line in seen.values()) == pytest.approx(loss(model, parts["valid"]))
    assert seen[4]["train/nll_nats"] < seen[1]["train/nll_nats"]
    for a, b in zip(model.get_weights(), found, strict=True):
        np.testing.assert_array_equal(a, b)
    model.set_weights(start)
    train_last(model, CONFIG, parts, batch_size=BATCH, seed=2)
    assert any(np.any(a != b) for a, b in zip(model.get_weights(), found, strict=True))


def by_keras(model: keras.Model, parts: dict[str, Examples]) -> None:
    """The last phase as `compression.fit` has it."""
    train, valid = ((np.asarray(parts[name].X), np.asarray(parts[name].labels)) for name in ("train", "valid"))
    data = TrainingData.of_arrays(*train, valid, BATCH)
    adam, of = keras.optimizers.Adam(0.02), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    KerasTraining(data, loss_of(of, valid), adam, of).train_last(model, 4)


def test_keras_leaves_zeros_and_constraints_alone(parts: dict[str, Examples], rng: np.random.Generator) -> None:
    """Such as those of single weights that were pruned, in place of or after which nothing can be trained."""
    model, constraint = network(rng), keras.constraints.MaxNorm(1.5)
    model.layers[0].kernel.constraint = constraint
    start, before = model.get_weights(), loss(model, parts["valid"])
    by_keras(model, parts)
    assert loss(model, parts["valid"]) < before
    for weights, now in zip(start[::2], model.get_weights()[::2], strict=True):
        np.testing.assert_array_equal(now == 0, weights == 0)
        assert np.any(now != weights)
    assert model.layers[0].kernel.constraint is constraint
    assert np.linalg.norm(model.layers[0].kernel, axis=0).max() < 1.5 + 1e-5


@pytest.mark.parametrize("is_keras", [False, True])
def test_training_that_only_harms_is_dropped(
    is_keras: bool, parts: dict[str, Examples], rng: np.random.Generator
) -> None:
    model = network(rng)
    harmful = {**parts, "valid": Examples(parts["valid"].X, np.argmin(model(parts["valid"].X), axis=1))}
    wrong = {**harmful, "train": Examples(parts["train"].X, np.argmax(model(parts["train"].X), axis=1).astype("i4"))}
    start = model.get_weights()
    if is_keras:
        by_keras(model, wrong)
    else:
        train_last(model, CONFIG, wrong, batch_size=BATCH, seed=1)
    for a, b in zip(model.get_weights(), start, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_teacher_is_followed_in_place_of_labels(parts: dict[str, Examples], rng: np.random.Generator) -> None:
    """Whether networks end in logits or in probabilities, which says the same."""
    direction = rng.normal(size=(D, K))
    told = {name: Examples(part.X, np.argmax(part.X @ direction, axis=1).astype("i4")) for name, part in parts.items()}
    mixed = {**told, "train": parts["train"]}
    teacher = keras.Sequential([keras.Input([D]), keras.layers.Dense(K)])
    teacher.set_weights([2 * direction, np.zeros(K)])
    alone, taught = network(np.random.default_rng(0)), network(np.random.default_rng(0))
    config = recipe_config(last_epochs=20, last_teacher=2.0, learning_rate=0.02)
    train_last(alone, config, mixed, batch_size=BATCH, seed=1)
    train_last(taught, config, mixed, batch_size=BATCH, seed=1, teacher=teacher)
    assert loss(taught, told["test"]) < 0.6 * loss(alone, told["test"])
    softmax, sure = (
        keras.Sequential([keras.Input([D]), *made.layers, keras.layers.Softmax()])
        for made in (network(np.random.default_rng(0)), teacher)
    )
    train_last(softmax, config, mixed, batch_size=BATCH, seed=1, teacher=sure)
    for a, b in zip(softmax.get_weights(), taught.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=5e-3, atol=5e-3)


def test_what_a_teacher_says_is_least_where_outputs_agree(rng: np.random.Generator) -> None:
    """The gradient of the cross-entropy at a temperature T is T (softmax(s / T) - softmax(t / T))."""
    told, outputs = tf.constant(rng.normal(size=(5, K))), tf.Variable(rng.normal(size=(5, K)))
    with tf.GradientTape() as tape:
        found = taught_loss(told, outputs, 3.0)
    expected = 3.0 * (tf.nn.softmax(outputs / 3.0) - tf.nn.softmax(told / 3.0))
    np.testing.assert_allclose(tape.gradient(found, outputs), expected, atol=1e-12)
    assert np.all(taught_loss(told, told + 1.0, 3.0) < found)


def test_the_rate_falls_to_zero_by_half_a_cosine() -> None:
    rates = [float(last_rate_at(CONFIG, np.float32(step), 6)) for step in (0, 6, 12, 24)]
    np.testing.assert_allclose(rates, 0.02 * 0.5 * (1 + np.cos(np.pi * np.array([0, 0.25, 0.5, 1]))), atol=1e-8)


def test_the_recipe_trains_what_it_writes(
    parts: dict[str, Examples], rng: np.random.Generator, tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = bc.PackConfig(bits="rule", codebooks=())
    packed = {}
    for last in (0, 4):
        config = recipe_config(epochs=1, warmup=0, learning_rate=0.02, threshold=(100.0,), last_epochs=last)
        recipe = bc.Recipe(config, network(np.random.default_rng(0)), parts, batch_size=BATCH, seed=3)
        recipe.fit()
        packed[last] = recipe.pack(files, tmp_path_factory.mktemp("files"))
    assert packed[0].networks["masked"] == packed[4].networks["masked"]
    assert loss(packed[4].model, parts["valid"]) < loss(packed[0].model, parts["valid"])
    file = packed[4].networks["shrunk"].file
    assert file is not None
    X = np.asarray(parts["test"].X)
    np.testing.assert_array_equal(network_outputs(bc.load(file), X), network_outputs(packed[4].model, X))
