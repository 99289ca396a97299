"""What a recipe does in which epoch, what it reports of which rows, and that it goes on where it stopped."""

import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import compression as bc
from compression.train.recipes import recipe as recipe_module
from compression.train.recipes.recipe import Recipe
from compression.train.schedule import RecipeConfig, kl_weight_at, learning_rate_at
from gpflow_deep_base.seeds import named_seed
from gpflow_deep_runs.run import checkpoints
from tests.compression.networks import randomise
from tests.compression.oracles import dense_outputs, masked_outputs, percent_wrong
from tests.compression.recipes import recipe_config

D, K = 6, 3
SIZES = {"train": 45, "valid": 21, "test": 4}


def network(rng: np.random.Generator | None = None) -> keras.Model:
    layers = [keras.layers.Dense(8, "relu", name="first"), keras.layers.Dense(K, name="second")]
    model = keras.Sequential([keras.Input([D]), *layers])
    rng = np.random.default_rng(0) if rng is None else rng
    model.set_weights([0.5 * rng.normal(size=weight.shape) for weight in model.get_weights()])
    return model


@pytest.fixture
def parts(rng: np.random.Generator) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The class is that of the largest of three inputs; three others do not matter."""
    X = {name: rng.normal(size=(size, D)).astype(np.float32) for name, size in SIZES.items()}
    return {name: (x, np.argmax(x[:, :K], axis=1)) for name, x in X.items()}


class Epochs:
    """Takes the place of `epoch_function`: keeps what it is called with, and trains nothing."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self.calls: list[tuple[int, list[int]]] = []

    def __call__(self, model: keras.Model, optimizer: Any, examples: Any, **settings: Any) -> Callable:
        self.made.append({"model": model, "optimizer": optimizer, "examples": examples, **settings})
        number = len(self.made) - 1

        def run(seed: tf.Tensor) -> tuple[float, float]:
            self.calls.append((number, seed.numpy().tolist()))
            return 0.5, 0.25

        return run


@pytest.fixture
def epochs(monkeypatch: pytest.MonkeyPatch) -> Epochs:
    spy = Epochs()
    monkeypatch.setattr(recipe_module, "epoch_function", spy)
    return spy


def test_each_phase_trains_its_network_with_its_settings(epochs: Epochs, parts: dict) -> None:
    config = recipe_config(pretrain_epochs=2, epochs=3, polish_epochs=2, threshold=(99.0,), learning_rate=0.3)
    recipe = Recipe(config, network(), parts, batch_size=10, seed=5)
    lines = [recipe.epoch(number) for number in range(config.num_epochs)]
    assert lines == [{"train/nll_nats": 0.5, "train/error_percent": 25.0}] * 7
    # Polishing begins with a cut, after which it goes on with a new function.
    assert [made for made, _ in epochs.calls] == [0, 0, 1, 1, 1, 2, 2]
    assert [bool(bc.bayesian_layers(made["model"])) for made in epochs.made] == [False, True, True]
    seed = named_seed(5, "train")
    assert [made for _, made in epochs.calls] == [tf.random.fold_in(seed, t).numpy().tolist() for t in range(7)]
    for made, is_bayesian in zip(epochs.made, (False, True, True), strict=True):
        assert made["batch_size"] == 10
        assert made["examples"] is recipe.parts["train"]
        for step in map(tf.constant, (0.0, 3.0, 9.0, 13.0)):
            expected = learning_rate_at(config, step, 4, is_bayesian=is_bayesian)
            assert float(made["learning_rate"](step)) == float(expected)
            assert float(made["kl_weight"](step)) == float(kl_weight_at(config, step, 4))


def test_settings_reach_the_bayesian_network(epochs: Epochs, parts: dict) -> None:
    settings: dict[str, Any] = {"kl": "exact", "scale_speed": 3.0, "initial_log_std": -2.0, "std_cap": 0.3}
    recipe = Recipe(recipe_config(epochs=1, **settings), network(), parts, batch_size=10, seed=5)
    plain = recipe.model
    recipe.epoch(0)
    first, second = bc.bayesian_layers(recipe.model)
    assert (first.num_train, first.kl, first.scale_speed, first.initial_log_std) == (SIZES["train"], "exact", 3.0, -2.0)
    assert (first.std_cap, second.std_cap) == (0.3, None)
    np.testing.assert_array_equal(first.kernel_mean, plain.layers[0].kernel)
    assert first.seed != second.seed
    other = Recipe(RecipeConfig(epochs=1, prior="ghs"), network(), parts, batch_size=10, seed=6)
    other.epoch(0)
    assert isinstance(other.model.layers[0], bc.DenseGHS)
    assert other.model.layers[0].seed != first.seed


def prune(recipe: Recipe, layer: int, *groups: int) -> None:
    """Give these inputs of a Bayesian layer scores above 0; those of all others are -18."""
    chosen = bc.bayesian_layers(recipe.model)[layer]
    log_var = chosen.z_log_var.numpy()
    log_var[list(groups)] = 5.0
    chosen.z_log_var_scaled.assign(log_var / chosen.scale_speed)


@pytest.mark.parametrize(
    ("layer", "cut_before"),
    [
        pytest.param(0, 3, id="8 of 72 weights"),
        pytest.param(1, 6, id="3 of 72 weights, which do not pay before polishing"),
    ],
)
def test_units_are_removed_where_it_is_due_and_pays(epochs: Epochs, parts: dict, layer: int, cut_before: int) -> None:
    config = recipe_config(pretrain_epochs=1, epochs=5, polish_epochs=1, shrink_every=2, threshold=(0.0,))
    recipe = Recipe(config, network(), parts, batch_size=10)
    for number in range(config.num_epochs):
        old, optimizer = recipe.model, recipe.optimizer
        if number == 2:
            prune(recipe, layer, 2)
        optimizer.iterations.assign(100 + number)
        recipe.epoch(number)
        if number < 2:
            continue
        assert (recipe.model is old) == (number not in {cut_before, 6}), number
        sizes = [tuple(each.kernel_mean.shape) for each in bc.bayesian_layers(recipe.model)]
        is_cut = number >= cut_before
        assert sizes == ([[(5, 8), (8, 3)], [(6, 7), (7, 3)]][layer] if is_cut else [(6, 8), (8, 3)])
        assert int(recipe.optimizer.iterations) == 100 + number  # its state goes along
    assert epochs.made[-1]["optimizer"] is recipe.optimizer


def test_units_are_never_removed_on_the_way_unless_asked(epochs: Epochs, parts: dict) -> None:
    recipe = Recipe(recipe_config(epochs=4, threshold=(0.0,)), network(), parts, batch_size=10)
    recipe.epoch(0)
    prune(recipe, 0, 0, 1, 2)
    for number in (1, 2, 3):
        recipe.epoch(number)
    assert len(epochs.made) == 1


def test_automatic_thresholds_that_cost_too_much_remove_nothing(epochs: Epochs, parts: dict) -> None:
    """Without the input 0 a third of the classes is wrong on the examples set aside, which the check sees."""
    plain = network()
    plain.set_weights([np.eye(D, 8), np.zeros(8), np.eye(8, K), np.zeros(K)])
    found = {}
    for tolerance in (1.0, 100.0):
        recipe = Recipe(recipe_config(epochs=3, shrink_every=1, prune_tolerance=tolerance), plain, parts, batch_size=10)
        recipe.epoch(0)
        prune(recipe, 0, 0)
        checked, unchecked = recipe.thresholds(checked=True), recipe.thresholds()
        valid = parts["valid"]
        with bc.switched_off(recipe.model, checked):
            after = bc.error_percent(recipe.model, recipe.parts["valid"])
        before = percent_wrong(masked_outputs(recipe.model, valid[0], dict.fromkeys(checked, math.inf)), valid[1])
        assert unchecked["first"] < 5.0
        assert after <= before + tolerance
        recipe.epoch(1)
        found[tolerance] = bc.bayesian_layers(recipe.model)[0].kernel_mean.shape[0], checked["first"] < 5.0
    assert found == {1.0: (6, False), 100.0: (2, True)}  # inputs 3 to 5 have no weight to an output


def test_evaluation_is_of_the_examples_set_aside_without_what_would_be_pruned(
    epochs: Epochs, parts: dict, rng: np.random.Generator
) -> None:
    recipe = Recipe(recipe_config(epochs=1, threshold=(0.3, -0.2)), network(rng), parts, batch_size=10)
    weights, (X, labels) = recipe.model.get_weights(), parts["valid"]
    plain = percent_wrong(dense_outputs(weights, X), labels)
    assert recipe.evaluate() == {"valid/error_percent": pytest.approx(plain)}
    assert recipe.scores() == {}
    recipe.epoch(0)
    randomise(recipe.model, rng)
    found, thresholds = recipe.evaluate(), {"first": 0.3, "second": -0.2}
    assert found["valid/error_percent"] == pytest.approx(
        percent_wrong(masked_outputs(recipe.model, X, thresholds), labels)
    )
    total = 0.0
    for layer in bc.bayesian_layers(recipe.model):
        scores = np.asarray(layer.z_log_var) - np.log(np.square(np.asarray(layer.z_mean)))
        np.testing.assert_allclose(recipe.scores()[f"{layer.name}/scores"], scores, rtol=1e-5)
        is_kept = scores < thresholds[layer.name]
        assert found[f"{layer.name}/threshold"] == thresholds[layer.name]
        assert found[f"{layer.name}/kept_groups"] == is_kept.sum()
        mean, log_var = layer.kernel_mean.numpy().astype(float), np.asarray(layer.kernel_log_var, float)
        of_weights = np.sum(0.5 * (np.exp(log_var) + mean**2 - 1.0 - log_var)[is_kept])  # Eq. (8)
        assert found[f"{layer.name}/kl_weights_nats"] == pytest.approx(of_weights, rel=1e-5)
        alpha = scores[is_kept].astype(float)
        of_scales = 0.63576 / (1 + np.exp(1.87320 + 1.48695 * alpha)) + 0.5 * np.log1p(np.exp(-alpha))  # Eq. (9)
        assert found[f"{layer.name}/kl_scales_nats"] == pytest.approx(of_scales.sum(), rel=1e-5)
        total += of_weights + of_scales.sum()
        assert np.all(layer.mask.numpy() == 1.0)  # as before
    assert found["train/kl_nats"] == pytest.approx(total, rel=1e-5)


def test_given_thresholds_are_for_all_layers_or_for_each(epochs: Epochs, parts: dict) -> None:
    for given, expected in (((1.5,), [1.5, 1.5]), ((1.5, -2.0), [1.5, -2.0]), ((0.0,), [0.0, 0.0])):
        recipe = Recipe(recipe_config(epochs=1, threshold=given), network(), parts, batch_size=10)
        recipe.epoch(0)
        assert list(recipe.thresholds().values()) == list(recipe.thresholds(checked=True).values()) == expected


def test_a_recipe_learns_and_repeats_itself(parts: dict) -> None:
    """In a loop of its own `fit` gives what `epoch` and `evaluate` do; another seed gives another network."""
    config = recipe_config(pretrain_epochs=1, epochs=2, warmup=1, learning_rate=0.02, initial_log_std=-4.0)
    found, logged = [], []
    for seed in (1, 1, 2):
        recipe = Recipe(config, network(), parts, batch_size=10, seed=seed)
        start = recipe.evaluate()["valid/error_percent"]
        found.append(recipe.fit(lambda epoch, line: logged.append((epoch, line))))
    assert found[0] == found[1] != found[2]
    assert [epoch for epoch, _ in logged] == [1, 2, 3] * 3
    assert [line for _, line in logged[:3]] == found[0]
    assert set(found[0][0]) == {"train/nll_nats", "train/error_percent", "valid/error_percent"}
    assert found[0][-1]["valid/error_percent"] < start
    assert found[0][-1]["train/nll_nats"] < 0.8 * found[0][0]["train/nll_nats"]
    assert float(recipe.seconds) > 0


def test_packing_takes_what_the_recipe_knows(
    epochs: Epochs, parts: dict, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Checked thresholds, the size of the network that was given, and the seed and learning rate for codebooks."""
    called: list[tuple] = []
    monkeypatch.setattr(recipe_module, "pack_files", lambda *given, **settings: called.append((given, settings)))
    recipe = Recipe(RecipeConfig(epochs=2, learning_rate=0.3), network(), parts, batch_size=10, seed=4)
    original = recipe.original
    errors = (
        bc.error_percent(recipe.model, recipe.parts["valid"]),
        bc.error_percent(recipe.model, recipe.parts["test"]),
    )
    recipe.epoch(0)
    prune(recipe, 0, 0, 1)
    config = bc.PackConfig(codebooks=(4,))
    recipe.pack(config, tmp_path)
    ((given, settings),) = called
    assert given == (recipe.model, recipe.parts, config, tmp_path)
    assert settings == {
        "thresholds": recipe.thresholds(checked=True),
        "original": original,
        "batch_size": 10,
        "learning_rate": 0.3,
        "train_last": None,
        "plain": bc.PackedNetwork(*errors),
        "seed": 4,
    }


def test_the_plain_network_is_judged_when_its_training_is_over(parts: dict, tmp_path: Path) -> None:
    """Trained in the plain phase, before it becomes Bayesian; a checkpoint keeps what was found."""
    recipe = Recipe(recipe_config(pretrain_epochs=2, epochs=1), network(), parts, batch_size=10)
    recipe.epoch(0)
    recipe.epoch(1)
    assert np.isnan(recipe.plain_percent).all()
    expected = [bc.error_percent(recipe.model, recipe.parts[name]) for name in ("valid", "test")]
    recipe.epoch(2)
    np.testing.assert_array_equal(recipe.plain_percent, expected)
    assert recipe.state()["plain_percent"] is recipe.plain_percent
    packed = recipe.pack(bc.PackConfig(bits="rule", codebooks=()), tmp_path)
    assert list(packed.networks) == ["plain", "masked", "shrunk", "rule"]
    assert packed.networks["plain"] == (*expected, None, None, None)


# To stop and to continue


CUT = recipe_config(epochs=3, shrink_every=2, threshold=(0.0,), learning_rate=0.01, last_epochs=2, last_teacher=2.0)


def continued(recipe: Recipe, first: int, last: int) -> Iterator[int]:
    """Make these epochs; the number of finished ones before and after each. Before epoch 2 an input is removed."""
    yield first
    for number in range(first, last):
        recipe.epoch(number)
        if number == 0:
            prune(recipe, 0, 1)
        yield number + 1


def with_epochs(config: RecipeConfig, parts: dict, last: int) -> Recipe:
    recipe = Recipe(config, network(), parts, batch_size=10)
    assert [*continued(recipe, 0, last)][-1] == last
    return recipe


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Recipe, list[Path]]:
    """Examples, a recipe at its end, and copies of its folder of checkpoints after each number of epochs."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("whole")
    parts = {n: (rng.normal(size=(size, D)).astype(np.float32), rng.integers(0, K, size)) for n, size in SIZES.items()}
    recipe, copies = Recipe(CUT, network(), parts, batch_size=10), []
    for done in continued(recipe, 0, 3):
        checkpoints.save(folder / "now", done, **recipe.state(folder / "now" if done else None))
        copies.append(Path(shutil.copytree(folder / "now", folder / str(done))))
    return parts, recipe, copies


@pytest.mark.parametrize("stop", [0, 1, 2, 3])
def test_a_recipe_goes_on_to_the_same_bits(whole: tuple[dict, Recipe, list[Path]], stop: int, tmp_path: Path) -> None:
    """Stopped as a plain network (the first epoch is Bayesian), a Bayesian one, before it is cut, and at the end."""
    parts, recipe, copies = whole
    again = Recipe(CUT, network(np.random.default_rng(9)), parts, batch_size=10)
    assert again.restore(copies[stop], lambda state: checkpoints.restore(copies[stop], **state)) == stop
    assert (float(again.seconds) > 0) == again.is_bayesian == (stop > 0)
    assert [*continued(again, stop, 3)][-1] == 3
    assert isinstance(recipe.model.layers[0], bc.SelectInputs)  # it was cut on the way
    for one, other in ((recipe.model, again.model), (recipe.optimizer, again.optimizer)):
        for a, b in zip(one.variables, other.variables, strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    files = bc.PackConfig(bits="rule", codebooks=())
    first, second = (made.pack(files, tmp_path / str(i)) for i, made in enumerate((recipe, again)))
    for a, b in zip(first.model.get_weights(), second.model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)  # taught by the network that the first one began with


def test_the_newest_shapes_that_fit_are_taken(epochs: Epochs, parts: dict, tmp_path: Path) -> None:
    """The network was cut before epoch 2, and the shapes written; but the checkpoint of epoch 2 is the newest."""
    config = recipe_config(epochs=3, shrink_every=2, threshold=(0.0,))
    recipe = with_epochs(config, parts, 2)
    checkpoints.save(tmp_path, 2, **recipe.state(tmp_path))
    recipe.epoch(2)
    recipe.state(tmp_path)
    assert [path.name for path in sorted(tmp_path.glob("*.json"))] == ["network-000000.json", "network-000002.json"]
    again = Recipe(config, network(), parts, batch_size=10)
    assert again.restore(tmp_path, lambda state: checkpoints.restore(tmp_path, **state)) == 2
    assert again.model.layers[0].kernel_mean.shape[0] == D


def test_without_a_checkpoint_the_network_is_the_given_one(epochs: Epochs, parts: dict, tmp_path: Path) -> None:
    """Shapes were written, but no checkpoint: the process was killed between."""
    recipe = with_epochs(RecipeConfig(epochs=3), parts, 1)
    recipe.state(tmp_path)
    plain = network()
    again = Recipe(RecipeConfig(epochs=3), plain, parts, batch_size=10)
    assert again.restore(tmp_path, lambda state: checkpoints.restore(tmp_path, **state)) is None
    assert again.model is plain


def test_a_checkpoint_of_another_network_is_refused(epochs: Epochs, parts: dict, tmp_path: Path) -> None:
    checkpoints.save(tmp_path, 1, model=tf.Variable([1.0]))
    again = Recipe(RecipeConfig(epochs=3), network(), parts, batch_size=10)
    with pytest.raises(ValueError, match="is a checkpoint from another model"):
        again.restore(tmp_path, lambda state: checkpoints.restore(tmp_path, **state))


# What is refused


@pytest.mark.parametrize(
    ("settings", "batch_size", "message"),
    [
        ({}, 46, "batch_size must be between 1 and the 45 training examples, got 46"),
        ({}, 0, "batch_size must be between 1 and the 45 training examples, got 0"),
        ({"threshold": (1.0, 2.0, 3.0)}, 10, "or one for each of 2 layers, got 3"),
        ({"shift": 1}, 10, r"shift=1 needs images \[height, width, channels\]"),
        ({"flip": True}, 10, r"flip=True needs images \[height, width, channels\]"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    settings: dict, batch_size: int, message: str, parts: dict
) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(recipe_config(**settings), network(), parts, batch_size=batch_size)


def test_networks_that_cannot_be_compressed_are_refused_at_once(parts: dict) -> None:
    with pytest.raises(ValueError, match="must be a built Sequential or functional model"):
        Recipe(RecipeConfig(), keras.Sequential([keras.layers.Dense(K)]), parts)
    with pytest.raises(ValueError, match=r"gives outputs \(2,\), but the data"):
        Recipe(RecipeConfig(), keras.Sequential([keras.Input([D]), keras.layers.Dense(2)]), parts)


def test_batch_normalisation_is_taken(epochs: Epochs, parts: dict) -> None:
    """And folded away when the network becomes Bayesian."""
    layers = [keras.layers.Dense(8), keras.layers.BatchNormalization(), keras.layers.ReLU(), keras.layers.Dense(K)]
    recipe = Recipe(RecipeConfig(epochs=1), keras.Sequential([keras.Input([D]), *layers]), parts, batch_size=10)
    assert recipe.original[:2] == (6 * 8 + 8 * 3, 6 * 8 + 8 + 4 * 8 + 8 * 3 + 3)
    recipe.epoch(0)
    assert len(bc.bayesian_layers(recipe.model)) == 2


def test_divergence_names_the_epoch_and_the_cure(parts: dict) -> None:
    config = recipe_config(pretrain_epochs=1, epochs=1, pretrain_learning_rate=1e30)
    recipe = Recipe(config, network(), parts, batch_size=5)
    with pytest.raises(FloatingPointError, match=r"diverged in epoch 1: .* lower learning_rate or scale_speed"):
        recipe.epoch(0)


def test_normalisation_learns_in_the_plain_phase_and_is_folded(parts: dict) -> None:
    """With weights that stay, its means are running ones of what comes out of the layer before."""
    layers = [keras.layers.Dense(8, use_bias=False), keras.layers.BatchNormalization(momentum=0.5), keras.layers.ReLU()]
    model = keras.Sequential([keras.Input([D]), *layers, keras.layers.Dense(K)])
    still = recipe_config(pretrain_epochs=30, epochs=1, pretrain_learning_rate=0.0, initial_log_std=-30.0)
    recipe = Recipe(still, model, parts, batch_size=SIZES["train"])
    X = np.asarray(recipe.parts["train"].X)
    for number in range(30):
        recipe.epoch(number)
    np.testing.assert_allclose(layers[1].moving_mean, layers[0](X).numpy().mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(layers[1].moving_variance, layers[0](X).numpy().var(axis=0), rtol=1e-4)
    recipe._phases.prepare(30)
    assert not any(isinstance(layer, keras.layers.BatchNormalization) for layer in recipe.model.layers)
    np.testing.assert_allclose(recipe.model(X), model(X), rtol=1e-3, atol=1e-5)


def test_only_images_are_shifted(epochs: Epochs, parts: dict) -> None:
    images = {name: (np.zeros((size, 4, 4, 1), np.float32), np.arange(size) % K) for name, size in SIZES.items()}
    model = keras.Sequential([keras.Input([4, 4, 1]), keras.layers.Flatten(), keras.layers.Dense(K)])
    Recipe(recipe_config(epochs=1, shift=2), model, images, batch_size=10).epoch(0)
    Recipe(RecipeConfig(epochs=1), network(), parts, batch_size=10).epoch(0)
    assert [made["shift"] for made in epochs.made] == [2, 0]
