"""The shrunk network is the masked one, for each prior, layer and padding; and it is as small as counted by hand."""

import math
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest

import compression as bc
from compression.layers.thresholds import Thresholds
from tests.compression.networks import PRIORS, convolutional_network, dense_network, quantiles, randomise

NETWORKS = [
    pytest.param(lambda prior, rng: dense_network(prior, rng), id="dense"),
    pytest.param(lambda prior, rng: convolutional_network(prior, rng, "valid"), id="valid"),
    pytest.param(lambda prior, rng: convolutional_network(prior, rng, "same"), id="same"),
]


def inputs_of(model: keras.Model, rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(16, *model.input_shape[1:])).astype("float32")


def masked_outputs(model: keras.Model, thresholds: Thresholds, x: np.ndarray) -> np.ndarray:
    """What `model` gives with its groups masked; afterwards the masks are as before."""
    with bc.switched_off(model, thresholds):
        return model(x).numpy()


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("network", NETWORKS)
def test_shrunk_network_is_the_masked_one(network: Callable, prior: str, rng: np.random.Generator) -> None:
    model = network(prior, rng)
    x, thresholds = inputs_of(model, rng), quantiles(model, 0.6)
    expected = masked_outputs(model, thresholds, x)
    shrunk = bc.shrink_details(model, thresholds)
    np.testing.assert_allclose(shrunk.model(x), expected, rtol=0, atol=1e-6 * max(1.0, np.abs(expected).max()))
    assert not bc.bayesian_layers(shrunk.model)
    assert sum(shrunk.kept_weights) < 0.7 * sum(shrunk.original_weights)
    bayesian, _ = bc.shrink_bayesian(model, thresholds)
    np.testing.assert_allclose(bayesian(x), expected, rtol=0, atol=1e-6 * max(1.0, np.abs(expected).max()))
    again = bc.shrink_details(bayesian, math.inf)
    assert again.architecture == shrunk.architecture
    np.testing.assert_allclose(again.model(x), expected, rtol=0, atol=1e-6 * max(1.0, np.abs(expected).max()))
    for a, b in zip(shrunk.variances, again.variances, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_sizes_counted_by_hand(rng: np.random.Generator) -> None:
    """Filters 0, 2 of 3; dense inputs: of channel 0 positions 1, 3, of channel 2 none. So channel 2 goes as well."""
    layers = [
        keras.Input([5, 5, 1]),
        bc.Conv2DGNJ(3, 2, num_train=9, activation="relu", name="conv"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        bc.DenseGNJ(4, num_train=9, activation="relu", name="hidden"),
        bc.DenseGNJ(2, num_train=9, name="out"),
    ]
    model = randomise(keras.Sequential(layers), rng)
    model.get_layer("conv").mask.assign([1, 0, 1])
    mask = np.zeros((4, 3))
    mask[[1, 3], 0] = 1
    mask[:, 1] = 1
    model.get_layer("hidden").mask.assign(mask.ravel())
    model.get_layer("out").mask.assign([0, 1, 1, 0])
    shrunk = bc.shrink_details(model, math.inf)
    assert shrunk.architecture == (1, 2, 2)
    assert shrunk.kept_weights == (4, 4, 4)
    assert shrunk.original_weights == (12, 48, 8)
    assert [v.shape for v in shrunk.variances] == [(2, 2, 1, 1), (2, 2), (2, 2)]
    select = next(layer for layer in shrunk.model.layers if isinstance(layer, bc.SelectInputs))
    assert select.indices.tolist() == [1, 3]
    assert shrunk.kept["hidden"].inputs.tolist() == [3, 9]
    assert shrunk.kept["hidden"].outputs.tolist() == [1, 2]
    variance = model.get_layer("hidden").posterior_variance_kernel().numpy()
    np.testing.assert_array_equal(shrunk.variances[1], variance[np.ix_([3, 9], [1, 2])])
    x = inputs_of(model, rng)
    np.testing.assert_allclose(shrunk.model(x), model(x), atol=1e-6)


def test_pixels_are_selected_in_front(rng: np.random.Generator) -> None:
    model = keras.Sequential([keras.Input([3, 3, 1]), keras.layers.Flatten(), bc.DenseGNJ(2, num_train=1, seed=0)])
    model.layers[-1].mask.assign([0, 0, 1, 1, 0, 1, 0, 0, 0])
    shrunk = bc.shrink_details(model, math.inf)
    assert [type(layer).__name__ for layer in shrunk.model.layers] == ["Flatten", "SelectInputs", "Dense"]
    assert shrunk.model.layers[1].indices.tolist() == [2, 3, 5]
    assert shrunk.architecture == (3,)


@pytest.mark.parametrize("prior", PRIORS)
def test_one_constant_stays_before_zero_padding(prior: str, rng: np.random.Generator) -> None:
    """relu(-0.5) = 0 can go; at the border relu(0.5) and relu(0.3) cannot, but one constant can stand for both."""
    _, convolution = PRIORS[prior]
    layers = [
        keras.Input([6, 6, 1]),
        convolution(5, 3, padding="same", activation="relu", num_train=9, name="first"),
        keras.layers.MaxPooling2D(3, 1, padding="same"),
        convolution(2, 3, padding="same", num_train=9, name="second"),
        keras.layers.Flatten(),
    ]
    model = randomise(keras.Sequential(layers), rng)
    first = model.get_layer("first")
    first.mask.assign(np.broadcast_to([1, 0, 0, 1, 0], first.mask.shape))
    first.bias.assign([0.5, -0.5, 0.5, 0.5, 0.3])
    x = inputs_of(model, rng)
    shrunk = bc.shrink_details(model, math.inf)
    assert shrunk.kept["first"].outputs.tolist() == [0, 3]
    assert shrunk.kept["second"].inputs.tolist() == [0, 2, 3]
    place = next(layer for layer in shrunk.model.layers if isinstance(layer, bc.PlaceInputs))
    np.testing.assert_array_equal(place.indices, [0, -1, 1])
    np.testing.assert_allclose(place.fill, [0, 0.5, 0])
    tolerance = 1e-6 * np.abs(model(x)).max()
    np.testing.assert_allclose(shrunk.model(x), model(x), rtol=0, atol=tolerance)
    bayesian, _ = bc.shrink_bayesian(model, math.inf)
    np.testing.assert_allclose(bayesian(x), model(x), rtol=0, atol=tolerance)
    one_by_one = convolution(2, 1, padding="same", num_train=9, seed=0, name="second")
    flat = keras.Sequential([keras.Input([6, 6, 1]), first, one_by_one, keras.layers.GlobalMaxPooling2D()])
    shrunk = bc.shrink_details(flat, math.inf)
    assert shrunk.architecture == (2, 2)
    np.testing.assert_allclose(shrunk.model(x), flat(x), atol=1e-6)


def test_plain_layers_and_output_softmax_in_the_chain(rng: np.random.Generator) -> None:
    layers = [
        keras.Input([6]),
        bc.SelectInputs([4, 0, 2, 1]),
        keras.layers.Dense(8, activation="tanh"),
        keras.layers.Dropout(0.3),
        bc.DenseGNJ(5, num_train=9),
        keras.layers.LeakyReLU(0.1),
        keras.layers.Dense(3),
        keras.layers.Softmax(),
    ]
    model = randomise(keras.Sequential(layers), rng)
    bayesian = bc.bayesian_layers(model)[0]
    bayesian.mask.assign([1, 0, 0, 1, 1, 0, 1, 0])
    x = inputs_of(model, rng)
    shrunk = bc.shrink_details(model, math.inf)
    assert shrunk.architecture == (4, 4, 5)
    assert not shrunk.variances[0].any()
    np.testing.assert_allclose(shrunk.model(x), model(x), atol=1e-6)
    smaller, _ = bc.shrink_bayesian(model, math.inf)
    assert any(isinstance(layer, keras.layers.Dropout) for layer in smaller.layers)
    np.testing.assert_allclose(smaller(x), model(x), atol=1e-6)


def test_select_inputs_survive_a_second_cut(rng: np.random.Generator) -> None:
    model = dense_network("gnj", rng)
    x = inputs_of(model, rng)
    smaller, first = bc.shrink_bayesian(model, quantiles(model, 0.8))
    thresholds = quantiles(smaller, 0.7)
    expected = masked_outputs(smaller, thresholds, x)
    smallest, second = bc.shrink_bayesian(smaller, thresholds)
    np.testing.assert_allclose(smallest(x), expected, atol=1e-6)
    both = bc.compose(first, second)
    rebuilt = bc.slice_bayesian(dense_network("gnj", rng), both)
    rebuilt.set_weights(smallest.get_weights())  # what restoring a checkpoint does
    np.testing.assert_allclose(rebuilt(x), expected, atol=1e-6)


def test_all_variables_and_the_optimizer_are_carried_over(rng: np.random.Generator) -> None:
    model = convolutional_network("ghs", rng)
    optimizer = keras.optimizers.Adam(0.02)
    optimizer.build(model.trainable_variables)
    optimizer.apply([rng.normal(size=v.shape).astype("float32") for v in model.trainable_variables])
    bc.set_kl_weight(model, 0.5)
    bc.seed_noise(model, 3, 4)
    smaller, kept = bc.shrink_bayesian(model, quantiles(model, 0.6))
    carried = bc.carry_optimizer(optimizer, model, smaller, kept)
    assert int(carried.iterations) == 1
    assert float(carried.learning_rate) == pytest.approx(0.02)
    for old, new in zip(bc.bayesian_layers(model), bc.bayesian_layers(smaller), strict=True):
        inputs, outputs = kept[old.name]
        assert float(new.kl_weight) == 0.5
        np.testing.assert_array_equal(new.noise_state, old.noise_state)
        np.testing.assert_array_equal(
            new.kernel_log_var_scaled, old.kernel_log_var_scaled.numpy()[..., inputs, :][..., outputs]
        )
        np.testing.assert_array_equal(new.s_b_mean_scaled, old.s_b_mean_scaled)
        groups = inputs if "dense" in old.name else outputs
        np.testing.assert_array_equal(new.beta_mean_scaled, old.beta_mean_scaled.numpy()[groups])
        for moments, carried_moments in (
            (optimizer._momentums, carried._momentums),
            (optimizer._velocities, carried._velocities),
        ):
            a = {v.path: m for v, m in zip(model.trainable_variables, moments, strict=True)}
            b = {v.path: m for v, m in zip(smaller.trainable_variables, carried_moments, strict=True)}
            expected = a[old.kernel_mean.path].numpy()[..., inputs, :][..., outputs]
            np.testing.assert_array_equal(b[new.kernel_mean.path], expected)
            assert np.any(expected)
            np.testing.assert_array_equal(b[new.bias.path], a[old.bias.path].numpy()[outputs])


@pytest.mark.parametrize("make", [keras.optimizers.Adam, keras.optimizers.RMSprop, keras.optimizers.SGD])
def test_optimizer_state_follows_its_variable_whatever_the_names(make: type, rng: np.random.Generator) -> None:
    """The slot a_kernel_mean_bias_momentum is of the bias of the second layer, not of kernel_mean of the first."""
    layers = [
        bc.DenseGNJ(7, num_train=9, activation="relu", name="a"),
        bc.DenseGNJ(4, num_train=9, name="a_kernel_mean"),
    ]
    model = randomise(keras.Sequential([keras.Input([5]), *layers]), rng)
    optimizer = make(0.02) if make is not keras.optimizers.SGD else make(0.02, momentum=0.9)
    optimizer.build(model.trainable_variables)
    optimizer.apply([rng.normal(size=v.shape).astype("float32") for v in model.trainable_variables])
    smaller, kept = bc.shrink_bayesian(model, quantiles(model, 0.6))
    carried = bc.carry_optimizer(optimizer, model, smaller, kept)
    slots = [list(each.variables[2:]) for each in (optimizer, carried)]  # those of one variable after the other
    each, rest = divmod(len(slots[0]), len(model.trainable_variables))
    assert each > 0 == rest
    for number, variable in enumerate(model.trainable_variables):
        layer = next(layer for layer in layers if any(variable is weight for weight in layer.weights))
        inputs, outputs = kept[layer.name]
        places = {"bias": (outputs,), "kernel_mean": (inputs, outputs), "kernel_log_var_scaled": (inputs, outputs)}
        for slot in range(number * each, (number + 1) * each):
            before, after = slots[0][slot].numpy(), slots[1][slot].numpy()
            np.testing.assert_array_equal(after, before[np.ix_(*places.get(variable.name, (inputs,)))])
            assert np.any(after != 0)


def test_shrunk_model_is_saved_and_loaded(rng: np.random.Generator, tmp_path: Path) -> None:
    model = convolutional_network("gnj", rng)
    shrunk = bc.shrink(model, quantiles(model, 0.6))
    shrunk.save(tmp_path / "small.keras")
    x = inputs_of(model, rng)
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / "small.keras")(x), shrunk(x))


@pytest.mark.parametrize("prior", PRIORS)
def test_layer_pruned_to_nothing_is_refused(prior: str, rng: np.random.Generator) -> None:
    model = convolutional_network(prior, rng)
    name = model.layers[2].name
    with pytest.raises(ValueError, match=f"the layer {name} is pruned to nothing: all"):
        bc.shrink(
            model, {layer.name: -math.inf if layer.name == name else math.inf for layer in bc.bayesian_layers(model)}
        )


def test_layer_that_only_meets_pruned_neighbours_is_refused(rng: np.random.Generator) -> None:
    model = convolutional_network("gnj", rng)
    first, dense = bc.bayesian_layers(model)[1], bc.bayesian_layers(model)[2]
    first.mask.assign(np.arange(7) < 3)
    dense.mask.assign(np.arange(dense.mask.shape[0]) % 7 >= 3)
    with pytest.raises(ValueError, match="is pruned to nothing: no weight is left"):
        bc.shrink(model, math.inf)


def test_nan_weights_are_refused(rng: np.random.Generator) -> None:
    model = dense_network("ghs", rng)
    model.layers[1].bias.assign(np.full(7, np.nan))
    with pytest.raises(ValueError, match=f"weights of the layer {model.layers[1].name} are not finite"):
        bc.shrink(model, math.inf)


def test_wrong_index_maps_are_refused(rng: np.random.Generator) -> None:
    model = dense_network("gnj", rng)
    everything = {layer.name: bc.Kept(np.arange(a), np.arange(b)) for layer, a, b in
                  zip(model.layers, (12, 9, 7), (9, 7, 3), strict=True)}  # fmt: skip
    name = model.layers[0].name
    with pytest.raises(ValueError, match="kept has no entry for the layers"):
        bc.slice_bayesian(model, {name: everything[name]})
    for inputs in ([0, 12], [3, 1], [], [-1, 2]):
        with pytest.raises(ValueError, match=f"kept inputs of {name} must be increasing indices from 0 to 11"):
            bc.slice_bayesian(model, {**everything, name: bc.Kept(np.array(inputs), np.arange(9))})
    smaller = bc.slice_bayesian(model, everything)
    with pytest.raises(ValueError, match="optimizer that is built"):
        bc.carry_optimizer(keras.optimizers.Adam(), model, smaller, everything)


def test_bias_is_needed_to_fold_into(rng: np.random.Generator) -> None:
    model = dense_network("gnj", rng, use_bias=False)
    assert bc.shrink(model, quantiles(model, 0.6)) is not None  # tanh(0) = relu(0) = 0: nothing to fold
    layers = [keras.Input([3]), bc.DenseGNJ(2, num_train=1, name="a"), keras.layers.Activation("sigmoid"),
              bc.DenseGNJ(2, num_train=1, use_bias=False, name="b"), bc.DenseGNJ(1, num_train=1)]  # fmt: skip
    odd = keras.Sequential([layers[0], bc.DenseSVD(2, num_train=1, name="a"), *layers[2:]])
    odd.get_layer("a").mask.assign([[1, 0], [1, 0], [1, 0]])
    with pytest.raises(ValueError, match="the layer b has no bias to fold pruned units into"):
        bc.shrink_bayesian(odd, math.inf)
    x = inputs_of(odd, rng)
    np.testing.assert_allclose(bc.shrink(odd, math.inf)(x), odd(x), atol=1e-6)


@pytest.mark.parametrize("indices", [[], [-1, 2], [[0, 1]], [0.5]])
def test_wrong_selections_are_refused(indices: list) -> None:
    with pytest.raises(ValueError, match="indices must be"):
        bc.SelectInputs(indices)


def test_selection_beyond_the_inputs_is_refused() -> None:
    with pytest.raises(ValueError, match="takes feature 4, but its inputs have shape"):
        bc.SelectInputs([1, 4])(np.zeros((2, 4), np.float32))
