"""One training, by a recipe and by `fit`: the same phases, weights of the KL, cuts and parameters."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import compression as bc
from compression.train.fitting import _apart
from compression.train.held_out import TrainingData, loss_of
from compression.train.keras_training import KerasTraining, Left
from compression.train.recipes.phases import check_thresholds
from compression.train.schedule import RecipeConfig, most_left
from gpflow_deep_base.seeds import named_seed
from tests.compression.recipes import recipe_config

N, B, D, K = 48, 12, 6, 3
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.fixture
def rows(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The class is that of the largest of three inputs; three others do not matter."""
    X = rng.normal(size=(N, D)).astype(np.float32)
    return X, np.argmax(X[:, :K], axis=1).astype(np.int32)


def network() -> keras.Model:
    rng = np.random.default_rng(0)
    model = keras.Sequential([keras.Input([D]), keras.layers.Dense(8, "tanh"), keras.layers.Dense(K)])
    model.set_weights([0.5 * rng.normal(size=weight.shape) for weight in model.get_weights()])
    return model


class Seen(keras.callbacks.Callback):
    """Records what each step of the Bayesian network is made with, and the network at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[float, float, int]] = []
        self.last: list[np.ndarray] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if layers := bc.bayesian_layers(self.model):
            rate = float(self.model.optimizer.learning_rate)
            self.steps.append((float(layers[0].kl_weight), rate, layers[0].kernel_mean.shape[0]))
            self.last = [np.asarray(variable) for layer in layers for variable in layer.trainable_variables]


def test_a_recipe_and_fit_make_the_same_network(
    rows: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With rows in the same order: warm-up, cuts on the way and before polishing, polishing, noise and rates."""
    config = recipe_config(
        epochs=6, warmup=2.5, kl_weight=2.0, learning_rate=0.02, scale_speed=16.0, initial_log_std=-3.0, std_cap=0.5,
        threshold=(0.3, 2.5), shrink_every=2, shrink_from=3, polish_epochs=2, polish_kl=0.5, decay_from=0.4,
    )  # fmt: skip
    monkeypatch.setattr(tf.random.experimental, "stateless_shuffle", lambda value, seed: value)
    recipe = bc.Recipe(config, network(), {"train": rows, "valid": rows, "test": rows}, batch_size=B, seed=4)
    sizes = []
    for number in range(config.num_epochs):
        recipe.epoch(number)
        sizes.append(bc.bayesian_layers(recipe.model)[0].kernel_mean.shape[0])

    data, seen = TrainingData({"x": rows[0], "y": rows[1], "batch_size": B, "shuffle": False}, N, rows, N // B), Seen()
    adam = keras.optimizers.Adam(config.learning_rate)
    seed = int(named_seed(4, "noise")[0]) % 2**24
    training = KerasTraining(data, loss_of(LOSS, rows), adam, LOSS, callbacks=[seen], seed=seed)
    left = training.left_of(config, [2.0], network(), lambda model: pytest.fail("thresholds are given"))
    assert [weight for weight, _ in left] == [2.0]
    small = left[0].model

    assert [size for *_, size in seen.steps[:: N // B]] == sizes
    assert sizes[:4] == [D] * 4
    assert sizes[4] < D  # cut after four epochs, as three are too early and two as well
    weights = [2.0 * min(1.0, (t + 1) / 10) for t in range(24)] + [0.5] * 8
    np.testing.assert_allclose([weight for weight, *_ in seen.steps], weights, rtol=1e-6)
    falling = 1.0 - np.maximum(0.0, np.arange(32) / 32 - 0.4) / 0.6
    np.testing.assert_allclose([rate for _, rate, _ in seen.steps], 0.02 * np.sin(np.pi * falling / 2) ** 2, rtol=1e-5)
    layers = bc.bayesian_layers(recipe.model)
    for a, b in zip([v for layer in layers for v in layer.trainable_variables], seen.last, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)  # roundings of float32, which 32 steps of Adam grow
    shrunk = bc.shrink(recipe.model, recipe.thresholds(checked=True))
    np.testing.assert_allclose(small(rows[0]), shrunk(rows[0]), rtol=0, atol=1e-4)


def test_warmup_in_a_keras_loop_is_that_of_a_recipe(rows: tuple[np.ndarray, np.ndarray]) -> None:
    """`KLWarmup` alone gives each step the weight that `RecipeConfig` does."""
    model, seen = bc.compress(network(), num_train=N), Seen()
    model.compile("sgd", LOSS, run_eagerly=True)
    model.fit(*rows, batch_size=B, epochs=3, verbose=0, callbacks=[bc.KLWarmup(1.5, 0.6), seen])
    expected = [0.6 * min(1.0, (t + 1) / 6) for t in range(12)]
    np.testing.assert_allclose([weight for weight, *_ in seen.steps], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("harmless", "tried_places", "best"),
    [
        (range(8), [7], 7),
        (range(5), [7, 3, 5, 4], 4),
        (range(1), [7, 3, 1, 0], 0),
        ([3, 5], [7, 3, 5, 6], 5),  # more is tried only beyond what did no harm
        ([], [7, 3, 1, 0], 1),  # the one of the lowest loss
    ],
)
def test_what_went_farthest_and_does_no_harm(
    harmless: Sequence[int],
    tried_places: list[int],
    best: int,
    rows: tuple[np.ndarray, np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last phase is for the last network that the training leaves, then by halves; polishing has less of the KL."""
    configs: list[RecipeConfig] = []
    tried: list[tuple[int, int]] = []
    good = network()
    good.set_weights([np.eye(D, 8), np.zeros(8), 9 * np.eye(8, K), np.zeros(K)])
    left = [
        Left(1.0, keras.Sequential([keras.Input([D]), keras.layers.Dense(3 * 2 ** (7 - place)), keras.layers.Dense(K)]))
        for place in range(8)
    ]

    def left_of(self: KerasTraining, config: RecipeConfig, weights: list[float], *_: Any, **__: Any) -> Any:
        assert weights == [0.03, 0.1, 0.3, 1.0]
        configs.append(config)
        return left

    def train_last(self: KerasTraining, model: keras.Model, epochs: int, **_: Any) -> None:
        place = next(number for number, (_, own) in enumerate(left) if own is model)
        tried.append((place, epochs))
        # Outputs of the right classes, of none, or of wrong ones.
        scale = 9.0 if place in harmless else (-1.0 if place == 1 else -9.0)
        units = 3 * 2 ** (7 - place)
        kernels = np.eye(D, units), scale * np.eye(units, K)
        model.set_weights([kernels[0], np.zeros(units), kernels[1], np.zeros(K)])

    monkeypatch.setattr(KerasTraining, "left_of", left_of)
    monkeypatch.setattr(KerasTraining, "train_last", train_last)
    options: dict[str, Any] = {"loss": LOSS, "validation_data": rows, "batch_size": B}
    method = bc.Bayesian(prior="svd", polish_epochs=2, polish_kl=0.2)
    small = bc.fit(good, *rows, epochs=20, last_epochs=3, method=method, **options)
    assert small is left[best].model
    assert tried == [(place, 3) for place in tried_places]
    (config,) = configs
    assert (config.kl_weight, config.ending.polish_kl, config.decay_from) == (0.03, 0.2, 0.6)
    assert (config.epochs, config.ending.polish_epochs, config.ending.last_epochs, config.prior) == (20, 2, 3, "svd")
    assert config.warmup == pytest.approx(6)
    assert [epoch for epoch in range(30) if most_left(config, epoch) is not None] == [8, 10, 12, 14, 16, 18, 20]


def test_networks_that_are_looked_at_are_a_quarter_apart() -> None:
    """From the last one back; the first is the one that loses least."""
    units = [100, 99, 98, 80, 75, 73, 40, 31, 30]
    left = [Left(1.0, keras.Sequential([keras.Input([1]), keras.layers.Dense(n, use_bias=False)])) for n in units]
    assert [own.model.count_params() for own in _apart(left)] == [100, 98, 73, 40, 30]
    assert _apart(left[:1]) == left[:1]


def test_the_weight_of_the_kl_is_raised_in_one_training(rows: tuple[np.ndarray, np.ndarray]) -> None:
    """After 3 and 4 of 10 epochs; what is left is kept there, after one, two and three epochs more, and at the end."""
    config = RecipeConfig(epochs=10, warmup=1, learning_rate=0.05, scale_speed=16.0, initial_log_std=-3.0)
    data, seen = TrainingData.of_arrays(*rows, rows, B), Seen()
    adam = keras.optimizers.Adam(config.learning_rate)
    training = KerasTraining(data, loss_of(LOSS, rows), adam, LOSS, callbacks=[seen])
    left = training.left_of(config, [0.1, 3.0, 8.0], network(), lambda model: bc.thresholds_of(model, "auto"))
    weights = [0.1 * (t + 1) / 4 for t in range(4)] + [0.1] * 8 + [3.0] * 4 + [8.0] * 24
    np.testing.assert_allclose([weight for weight, *_ in seen.steps], weights, rtol=1e-6)
    sizes = [model.count_params() for _, model in left]
    assert [weight for weight, _ in left] == [0.1, 3.0, 8.0, 8.0, 8.0, 8.0]
    assert sizes[-1] < sizes[0]


def test_what_phases_cannot_do_is_refused(rows: tuple[np.ndarray, np.ndarray]) -> None:
    with pytest.raises(ValueError, match="kl_weight must be finite and at least 0, got -1"):
        bc.fit(network(), *rows, loss=LOSS, method=bc.Bayesian(kl_weight=-1.0))
    with pytest.raises(ValueError, match="one for each of 2 layers, got 3"):
        check_thresholds(recipe_config(threshold=(1.0, 2.0, 3.0)), network())
