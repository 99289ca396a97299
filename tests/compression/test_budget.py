"""Thresholds by what may be left of a network."""

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import compression as bc
from compression.graph.removal.shrink import NothingLeftError
from compression.train.recipes.budget import SizeKind
from compression.train.schedule import RecipeConfig, part_to_keep
from tests.compression.networks import convolutional_network, dense_network, randomise
from tests.compression.recipes import recipe_config


def residual_network(rng: np.random.Generator) -> keras.Model:
    """A sum of two branches, and a transposed convolution behind it."""
    x = inputs = keras.Input([8, 8, 3])
    x = keras.layers.Conv2D(5, 3, padding="same", activation="relu")(x)
    y = keras.layers.Conv2D(6, 3, padding="same", activation="relu")(x)
    y = keras.layers.Conv2D(5, 3, padding="same")(y)
    x = keras.layers.Add()([x, y])
    x = keras.layers.Conv2DTranspose(4, 2, strides=2)(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return randomise(bc.compress(keras.Model(inputs, keras.layers.Dense(3)(x)), num_train=100), rng)


def change_of(model: keras.Model, rng: np.random.Generator) -> Callable[[keras.Model], float]:
    """How far the outputs for some inputs move."""
    x = rng.normal(size=(20, *model.input_shape[1:]))
    before = np.asarray(model(x))
    return lambda network: float(np.mean((np.asarray(network(x)) - before) ** 2))


NETWORKS = {
    "dense": lambda rng: dense_network("gnj", rng),
    "dense, horseshoe": lambda rng: dense_network("ghs", rng),
    "convolutions": lambda rng: convolutional_network("gnj", rng),
    "padded convolutions": lambda rng: convolutional_network("gnj", rng, "same"),
    "residual": residual_network,
}


@pytest.mark.parametrize("kind", ["weights", "multiplications"])
@pytest.mark.parametrize("name", NETWORKS)
def test_size_left_is_that_of_the_shrunk_network(name: str, kind: SizeKind, rng: np.random.Generator) -> None:
    model = NETWORKS[name](rng)
    scores = np.concatenate([np.ravel(layer.prune_scores()) for layer in bc.bayesian_layers(model)])
    for quantile in (0.1, 0.4, 0.7, 1.0):
        chosen = bc.thresholds_of(model, float(np.quantile(scores, quantile)))
        left = bc.size_left(model, chosen, kind=kind)
        if left == 0:
            with pytest.raises(NothingLeftError):
                bc.shrink(model, chosen)
        else:
            assert left == getattr(bc.size_of(bc.shrink(model, chosen)), kind)


@pytest.mark.parametrize("kind", ["weights", "multiplications"])
@pytest.mark.parametrize("name", NETWORKS)
def test_no_more_is_left_than_wanted_and_no_less_than_needed(
    name: str, kind: SizeKind, rng: np.random.Generator
) -> None:
    model = NETWORKS[name](rng)
    whole = getattr(bc.size_of(model), kind)
    for part in (0.7, 0.4):
        chosen = bc.thresholds_within(model, part * whole, change_of(model, rng), kind=kind)
        assert bc.size_left(model, chosen, kind=kind) <= part * whole
        more = []  # with one group more in a layer
        for layer in bc.bayesian_layers(model):
            above = np.unique(layer.prune_scores())
            above = np.append(above[above > chosen[layer.name]], np.inf)[0]
            more.append(bc.size_left(model, {**chosen, layer.name: float(above)}, kind=kind))
        assert max(more) > part * whole


def test_the_layer_gives_way_whose_loss_rises_least_for_what_it_saves(rng: np.random.Generator) -> None:
    """Scores of all layers are the same; what a layer costs and what its groups are worth is not."""
    layers = [bc.DenseGNJ(20, num_train=10, name="first"), bc.DenseGNJ(20, num_train=10, name="second")]
    model = keras.Sequential([keras.Input([20]), *layers])
    for layer in layers:
        layer.z_mean_scaled.assign(np.ones(20) / layer.scale_speed)
        layer.z_log_var_scaled.assign(np.linspace(-6, 2, 20) / layer.scale_speed)
    for dear, cheap in (("first", "second"), ("second", "first")):
        seen = list[float]()

        def loss_of(network: keras.Model, of: tuple[str, ...] = (dear, dear, cheap), seen: Any = seen) -> float:
            seen.append(sum(20 - float(np.sum(network.get_layer(name).mask)) for name in of))
            return seen[-1]

        found = bc.masks(model, bc.thresholds_within(model, 500, loss_of))
        assert found[dear].sum() == 20  # all of the other's inputs and a tenth of its own would cost more
        assert bc.size_left(model, bc.thresholds_within(model, 500, loss_of)) <= 500
        assert found[cheap].sum() < 13
        assert len(seen) < 60
        assert all(np.all(np.asarray(layer.mask) == 1) for layer in layers)
    nothing_known = bc.masks(model, bc.thresholds_within(model, 100, lambda network: math.nan))
    assert min(mask.sum() for mask in nothing_known.values()) >= 3
    assert np.array_equal(nothing_known["first"][::-1], np.sort(nothing_known["first"]))


def test_single_weights_are_counted(rng: np.random.Generator) -> None:
    model = dense_network("svd", rng)
    chosen = bc.thresholds_within(model, 50, change_of(model, rng))
    found = bc.masks(model, chosen)
    assert 45 < sum(int(mask.sum()) for mask in found.values()) <= 50
    assert bc.size_left(model, chosen) == sum(int(mask.sum()) for mask in found.values())


def test_each_layer_keeps_its_best_group_and_masked_ones_stay_away(rng: np.random.Generator) -> None:
    model = dense_network("gnj", rng)
    layers = bc.bayesian_layers(model)
    best = [int(np.argmin(layer.prune_scores())) for layer in layers]
    found = bc.masks(model, bc.thresholds_within(model, 0, change_of(model, rng)))
    assert [np.flatnonzero(found[layer.name]).tolist() for layer in layers] == [[index] for index in best]
    mask = np.ones(12)
    mask[best[0]] = 0.0
    layers[0].mask.assign(mask)
    found = bc.masks(model, bc.thresholds_within(model, 0, change_of(model, rng)))
    second = int(np.argsort(layers[0].prune_scores())[1])
    assert np.flatnonzero(found["first"]).tolist() == [second]
    assert bc.thresholds_within(model, math.inf, change_of(model, rng)) == dict.fromkeys(
        ["first", "second", "third"], math.inf
    )


def test_multiplications_that_depend_on_the_example_are_refused() -> None:
    layers = [keras.layers.Conv2D(4, 3, name="wide"), keras.layers.GlobalMaxPooling2D(), keras.layers.Dense(2)]
    model = bc.compress(keras.Sequential([keras.Input([None, None, 3]), *layers]), num_train=10)
    assert bc.size_left(model, bc.thresholds_of(model, math.inf)) == bc.size_of(model).weights
    with pytest.raises(ValueError, match="multiplications of the layer wide depend on the example"):
        bc.thresholds_within(model, 10, lambda network: 0.0, kind="multiplications")


def test_the_part_to_keep_falls_to_what_is_wanted() -> None:
    steady = recipe_config(epochs=10, warmup=2, keep=0.1)
    assert [part_to_keep(steady, done) for done in (0, 5, 9, 10, 12)] == [1.0, 1.0, 1.0, 0.1, 0.1]
    gradual = recipe_config(epochs=10, warmup=2, keep=0.1, shrink_every=1, shrink_from=4)
    parts = [part_to_keep(gradual, done) for done in range(12)]
    np.testing.assert_allclose(parts[:5], 1.0)
    np.testing.assert_allclose(parts[7], 0.1 + 0.9 * 0.125)
    np.testing.assert_allclose(parts[10:], 0.1)
    assert np.all(np.diff(parts[4:11]) < 0)
    assert part_to_keep(recipe_config(epochs=3, warmup=9, keep=0.1, shrink_every=1), 2) == 1.0
    assert part_to_keep(RecipeConfig(), 60) == 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep": 0.0}, "keep must be above 0 and at most 1, got 0"),
        ({"keep": float("nan")}, "keep must be above 0 and at most 1, got nan"),
        ({"keep": 0.5, "threshold": (1.0,)}, "give keep or threshold, not both"),
        ({"keep": 0.5, "keep_of": "bytes"}, "keep_of must be one of weights, multiplications, got 'bytes'"),
    ],
)
def test_a_part_that_cannot_be_kept_is_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recipe_config(**settings)


@pytest.mark.parametrize("shrink_every", [0, 1])
def test_a_recipe_keeps_a_part(shrink_every: int, rng: np.random.Generator) -> None:
    """During training, at the end of it, and in the files."""
    X = rng.normal(size=(60, 12)).astype(np.float32)
    part = (X, np.argmax(X[:, :3], axis=1))
    layers = [keras.layers.Dense(20, "relu"), keras.layers.Dense(10, "relu"), keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input([12]), *layers])
    config = recipe_config(epochs=6, warmup=1, keep=0.3, shrink_every=shrink_every, scale_speed=16, last_epochs=1)
    recipe = bc.Recipe(config, model, dict.fromkeys(("train", "valid", "test"), part), batch_size=20)
    sizes = []
    for number in range(config.num_epochs):
        recipe.epoch(number)
        sizes.append(bc.size_of(recipe.model).weights)
        recipe.evaluate()
    assert sizes[0] == 470
    assert sizes[-1] == 470 if shrink_every == 0 else sizes[-1] < 0.6 * 470
    chosen = recipe.thresholds(checked=True)
    assert 0.15 * 470 < bc.size_left(recipe.model, chosen) <= 0.3 * 470


def test_a_part_to_keep_is_chosen_once_after_an_epoch(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is asked for by an evaluation, to remove units before the next epoch, or to write files."""
    found = list[float]()

    def counted(model: keras.Model, most: float, *args: Any, **options: Any) -> dict[str, float]:
        found.append(most)
        return bc.thresholds_within(model, most, *args, **options)

    monkeypatch.setattr("compression.train.recipes.phases.thresholds_within", counted)
    X = rng.normal(size=(60, 12)).astype(np.float32)
    part = (X, np.argmax(X[:, :3], axis=1))
    model = keras.Sequential([keras.Input([12]), keras.layers.Dense(20, "relu"), keras.layers.Dense(3)])
    config = recipe_config(epochs=4, warmup=1, keep=0.3, shrink_every=1)
    recipe = bc.Recipe(config, model, dict.fromkeys(("train", "valid", "test"), part), batch_size=20)
    for number in range(4):
        recipe.epoch(number)
        before = recipe.evaluate()
        assert len(found) == number + 1
        assert recipe.evaluate() == before
    for checked in (False, True):
        assert recipe.thresholds(checked=checked) == recipe.thresholds()
    np.testing.assert_allclose(found, [300 * part_to_keep(config, done) for done in (1, 2, 3, 4)])
    assert found[-1] == 90
    assert len(found) == 4
