"""Thresholds and masks."""

import math

import keras
import numpy as np
import pytest

import compression as bc
from tests.compression.networks import convolutional_network, dense_network


def test_threshold_lies_between_two_clusters(rng: np.random.Generator) -> None:
    signal, noise = rng.normal(-5.0, 1.0, size=30), rng.normal(6.0, 1.0, size=270)
    threshold = bc.automatic_threshold(np.concatenate([noise, signal]), default=3.0)
    assert signal.max() < threshold < noise.min()


def test_threshold_of_hand_made_scores() -> None:
    assert bc.automatic_threshold([-6.0, -5.5, -5.0, 5.0, 5.5], default=3.0) == pytest.approx(0.0)
    assert bc.automatic_threshold([-6.0, -5.5, -4.5, 5.0, 6.0], default=3.0) == 3.0  # five may look so by chance
    assert bc.automatic_threshold([[-9.0, -8.9], [-1.0, -1.1]], default=3.0) == 0.0  # at least the minimum


@pytest.mark.parametrize("shape", ["normal", "uniform", "exponential"])
def test_one_cluster_is_not_split(shape: str, rng: np.random.Generator) -> None:
    assert bc.automatic_threshold(getattr(rng, shape)(size=2000), default=3.0) == 3.0


@pytest.mark.parametrize("size", [3, 5, 7, 11, 20])
@pytest.mark.parametrize("shape", ["normal", "uniform"])
def test_few_scores_of_one_cluster_are_seldom_split(size: int, shape: str, rng: np.random.Generator) -> None:
    draws = 3000
    split = sum(bc.automatic_threshold(getattr(rng, shape)(size=size), default=3.0) != 3.0 for _ in range(draws))
    assert split < 0.015 * draws  # 1 % of the uniform ones; three standard errors above it are 1.5 %


def test_one_value_is_not_split() -> None:
    assert bc.automatic_threshold([2.0, 2.0], default=4.0) == 4.0
    assert bc.automatic_threshold([2.0], default=4.0) == 4.0
    assert bc.automatic_threshold([-2.0, 9.0], default=4.0) == 4.0


@pytest.mark.parametrize("scores", [[], [1.0, math.nan], [math.inf, 0.0]])
def test_scores_have_to_be_finite(scores: list[float]) -> None:
    with pytest.raises(ValueError, match="scores must be finite"):
        bc.automatic_threshold(scores, default=3.0)


def test_masks_are_where_scores_are_below_thresholds(rng: np.random.Generator) -> None:
    model = dense_network("gnj", rng)
    first, second, third = (layer.name for layer in model.layers)
    scores = [layer.prune_scores().numpy() for layer in model.layers]
    thresholds = {first: float(scores[0][4]), third: math.inf}
    masks = bc.masks(model, thresholds)
    np.testing.assert_array_equal(masks[first], scores[0] < scores[0][4])
    np.testing.assert_array_equal(masks[second], scores[1] < 3.0)
    assert masks[third].all()
    assert masks[first].dtype == np.float32
    assert all(layer.mask.numpy().all() for layer in model.layers)
    bc.apply_masks(model, thresholds)
    np.testing.assert_array_equal(model.layers[0].mask, masks[first])
    np.testing.assert_array_equal(bc.masks(model, math.inf)[first], masks[first])  # groups that are off stay off
    assert bc.thresholds_of(model, 2) == dict.fromkeys([first, second, third], 2.0)


def test_groups_are_on_again_after_an_error(rng: np.random.Generator) -> None:
    model = dense_network("gnj", rng)
    model.layers[0].mask.assign(np.arange(12) % 2)
    with pytest.raises(RuntimeError), bc.switched_off(model, -math.inf):
        assert not any(np.any(layer.mask) for layer in model.layers)
        raise RuntimeError
    np.testing.assert_array_equal(model.layers[0].mask, np.arange(12) % 2)
    assert all(np.all(layer.mask) for layer in model.layers[1:])


def test_default_thresholds(rng: np.random.Generator) -> None:
    for prior, threshold in (("gnj", 3.0), ("ghs", 4.0), ("svd", 3.0)):
        assert set(bc.thresholds_of(dense_network(prior, rng)).values()) == {threshold}


def test_automatic_thresholds_of_a_model(rng: np.random.Generator) -> None:
    model = dense_network("gnj", rng)
    layer = model.layers[0]
    layer.z_mean_scaled.assign(np.full(12, 1.0 / layer.scale_speed))
    layer.z_log_var_scaled.assign(np.repeat([-8.0, 8.0], 6) / layer.scale_speed)
    thresholds = bc.thresholds_of(model, "auto")
    assert thresholds[layer.name] == pytest.approx(0.0, abs=1e-5)
    np.testing.assert_array_equal(bc.masks(model, "auto")[layer.name], np.repeat([1, 0], 6))


def test_filters_that_are_the_output_stay(rng: np.random.Generator) -> None:
    layers = [keras.Input([4, 4, 1]), bc.Conv2DGNJ(3, 4, num_train=5, name="last"), keras.layers.Flatten()]
    assert bc.masks(keras.Sequential(layers), -math.inf)["last"].all()


def test_bad_thresholds_are_refused(rng: np.random.Generator) -> None:
    model = dense_network("gnj", rng)
    with pytest.raises(ValueError, match='must be "auto", a number or a mapping'):
        bc.masks(model, "otsu")
    with pytest.raises(ValueError, match=r"\['dens'\], which are no Bayesian layers"):
        bc.masks(model, {"dens": 1.0})
    with pytest.raises(ValueError, match="are NaN"):
        bc.masks(model, math.nan)


@pytest.mark.parametrize("variable", ["kernel_mean", "kernel_log_var_scaled"])
def test_weights_that_are_not_finite_are_refused(variable: str, rng: np.random.Generator) -> None:
    model = convolutional_network("svd", rng)
    layer = model.layers[2]
    getattr(layer, variable).assign(np.full(layer.kernel_mean.shape, np.nan))
    with pytest.raises(ValueError, match=f"of the layer {layer.name} are not finite"):
        bc.masks(model)


def test_checked_thresholds_keep_what_matters(rng: np.random.Generator) -> None:
    model = dense_network("gnj", rng)
    first, second, third = (layer.name for layer in model.layers)
    scores = [layer.prune_scores().numpy() for layer in model.layers]
    given = {name: float(np.median(values)) for name, values in zip((first, second, third), scores, strict=True)}

    def error_of(network: keras.Model) -> float:
        """Groups of the second layer matter."""
        return float(np.sum(1.0 - network.layers[1].mask.numpy()))

    removed = float(np.sum(scores[1] >= given[second]))
    assert removed > 0
    chosen = bc.checked_thresholds(model, error_of, given, tolerance=removed)
    assert chosen == given
    chosen = bc.checked_thresholds(model, error_of, given, tolerance=removed - 0.5)
    assert chosen == {**given, second: 3.0 if np.sum(scores[1] >= 3.0) < removed else math.inf}
    chosen = bc.checked_thresholds(model, error_of, {second: -math.inf}, tolerance=0.0)
    assert chosen[second] in (3.0, math.inf)
    assert all(layer.mask.numpy().all() for layer in model.layers)  # as before


def test_checked_thresholds_give_up_where_nothing_helps(rng: np.random.Generator) -> None:
    model = dense_network("gnj", rng)
    errors = iter(range(100))
    chosen = bc.checked_thresholds(model, lambda network: float(next(errors)), -math.inf, tolerance=0.0)
    assert set(chosen.values()) == {math.inf}
    with pytest.raises(ValueError, match="tolerance must be at least 0, got nan"):
        bc.checked_thresholds(model, lambda network: 0.0, tolerance=math.nan)


def test_an_error_that_is_known_is_not_asked_for_again(rng: np.random.Generator) -> None:
    model, asked = dense_network("gnj", rng), []

    def error_of(network: keras.Model) -> float:
        asked.append(network)
        return 0.0

    bc.checked_thresholds(model, error_of, math.inf, tolerance=0.0, error=1.0)
    assert len(asked) == 1
