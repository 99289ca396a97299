"""Rounding by curvature and rate: its parts against explicit ones, and files by each of its stops."""

import math
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import compression as bc
from compression.files import container, single_file
from compression.files.container import kernels_of, with_kernels, write_encoded
from compression.files.single_file import _highest, _rising, _smallest
from compression.graph.removal.shrink import shrink_details
from compression.rounding.curvature import _patches, curvature_of, curvature_of_posterior
from compression.rounding.in_turn import InTurn, on_grid
from compression.rounding.surgeon import (
    _bits_of_places,
    _bits_of_sizes,
    _taken,
    adapted,
    fair_step,
    rounded,
    upper_factor,
)

L = keras.layers


def entropy(values: np.ndarray) -> float:
    """Bits of all values, each by how often it is there."""
    _, counts = np.unique(values, return_counts=True)
    return float(-np.sum(counts * np.log2(counts / values.size)))


def correlated(rng: np.random.Generator, rows: int, K: int) -> np.ndarray:
    return rng.normal(size=(rows, 3)) @ rng.normal(size=(3, K)) + 0.1 * rng.normal(size=(rows, K))


def test_the_factor_is_that_of_the_inverse(rng: np.random.Generator) -> None:
    X = rng.normal(size=(40, 7))
    moments = X.T @ X / 40
    upper = upper_factor(moments)
    damped = moments + 0.03 * np.mean(np.diag(moments)) * np.eye(7)
    np.testing.assert_allclose(upper.T @ upper @ damped, np.eye(7), atol=1e-10)
    np.testing.assert_array_equal(upper, np.triu(upper))
    with pytest.raises(ValueError, match="not finite on the calibration data"):
        upper_factor(np.full((2, 2), np.nan))


def test_without_a_rate_and_without_neighbours_it_is_the_nearest(rng: np.random.Generator) -> None:
    W = rng.normal(size=(30, 9))
    np.testing.assert_array_equal(rounded(W, upper_factor(np.ones(30)), 0.25, 0.0), np.rint(W / 0.25))


def test_outputs_change_less_and_bits_are_fewer_than_by_the_nearest(rng: np.random.Generator) -> None:
    X, W, step = correlated(rng, 400, 80), rng.normal(size=(80, 50)), 0.5
    nearest = np.rint(W / step)

    def cost(codes: np.ndarray) -> float:
        return float(np.mean(np.square(X @ (W - step * codes))))

    upper = upper_factor(X.T @ X / 400)
    by_curvature = rounded(W, upper, step, 0.0)
    assert cost(by_curvature) < 0.2 * cost(nearest)
    by_rate = rounded(W, upper, step, 0.02)
    assert cost(by_rate) < cost(nearest)
    assert entropy(by_rate) < 0.85 * entropy(nearest)
    c = np.where(np.arange(50) < 25, 10.0, 0.1)
    errors = np.mean(np.square(X @ (W - step * rounded(W, upper, step, 0.02, c))), axis=0)
    assert np.mean(errors[:25]) < 0.5 * np.mean(errors[25:])  # units that matter more are kept better
    assert fair_step(upper, c, 0.04) == pytest.approx(2 * fair_step(upper, c, 0.01))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (L.Conv1D(3, 3, padding="causal", dilation_rate=2), (9, 2)),
        (L.Conv1D(3, 4, strides=3, padding="same"), (10, 2)),
        (L.Conv2D(3, (2, 3), strides=2, padding="same"), (7, 8, 2)),
        (L.Conv2D(3, 3, dilation_rate=2, padding="same"), (9, 8, 2)),
        (L.Conv2D(3, 3, strides=(2, 1)), (9, 9, 2)),
    ],
)
def test_a_convolution_is_a_product_with_what_each_unit_sees(
    layer: keras.Layer, shape: tuple[int, ...], rng: np.random.Generator
) -> None:
    x = rng.normal(size=(2, *shape)).astype(np.float32)
    expected = np.asarray(layer(x)).reshape(-1, 3)
    kernel = np.asarray(layer.kernel).reshape(-1, 3)
    np.testing.assert_allclose(_patches(layer, x).reshape(len(expected), -1) @ kernel, expected, atol=1e-5)


def test_each_weight_takes_the_value_that_costs_least(rng: np.random.Generator) -> None:
    """Where no weight makes good for another: c (w - q)^2 / 2 U^2 + rate bits(q) of the values near a weight, and 0."""
    W = rng.normal(size=(40, 30))
    before = np.rint(W / 0.3).astype(np.int64)
    c = rng.uniform(0.5, 2.0, 30)
    diagonal = rng.uniform(0.5, 2.0, 40)
    table, low = _bits_of_sizes(before)
    is_zero, is_not = _bits_of_places(before)
    expected = np.zeros_like(before)
    for i, j in np.ndindex(*W.shape):
        below = math.floor(W[i, j] / 0.3)
        costs = {}
        for q in (below, below + 1, below - 1 if below >= 0 else below + 2, 0):
            bits = is_zero[i, j] if q == 0 else is_not[i, j] + table[q - low]
            costs[q] = 0.5 * c[j] * ((W[i, j] - 0.3 * q) / diagonal[i]) ** 2 + 0.05 * bits
        expected[i, j] = min(costs, key=costs.__getitem__)
    np.testing.assert_array_equal(_taken(W, diagonal, 0.3, 0.05, np.tile(c, (40, 1)), before), expected)


def test_what_outputs_feel_of_units(rng: np.random.Generator) -> None:
    """Of two linear layers it is known: the squares of the weights behind a unit."""
    i = keras.Input((6,))
    model = keras.Model(i, L.Dense(3, use_bias=False)(L.Dense(5)(i)))
    X = rng.normal(size=(600, 6)).astype(np.float32)
    first, second = curvature_of(model, X)
    behind = np.sum(np.square(model.layers[-1].get_weights()[0]), axis=1)
    error = np.sqrt(2 / 600) * behind  # of a mean of squares, at most
    assert np.all(np.abs(first.weight_of_units - behind) < 5 * error)
    np.testing.assert_allclose(second.weight_of_units, 1.0)
    assert first.upper.shape == (6, 6)


def test_other_kernels_have_a_diagonal(rng: np.random.Generator) -> None:
    """Of words that are never there nothing is felt."""
    model = keras.Sequential([keras.Input((4,), dtype="int32"), L.Embedding(6, 2), L.Flatten(), L.Dense(1)])
    first, second = curvature_of(model, rng.integers(0, 3, (200, 4)))
    felt = 1 / np.square(first.upper)
    assert first.upper.shape == (6,)
    assert np.all(felt[:3] > 20 * felt[3:])
    assert second.upper.shape == (8, 8)


def test_a_unit_of_a_grouped_convolution_does_not_see_all_channels(rng: np.random.Generator) -> None:
    """Moments of all channels say nothing of a kernel that has half of them."""
    model = keras.Sequential([keras.Input((5, 5, 4)), L.Conv2D(4, 3, groups=2), L.Flatten(), L.Dense(1)])
    first, second = curvature_of(model, rng.normal(size=(20, 5, 5, 4)).astype(np.float32))
    assert first.upper.shape == (3 * 3 * 2,)
    assert second.upper.shape == (36, 36)


def test_zeros_are_not_among_the_sizes() -> None:
    """Bits of a value are among those that are not 0, to each of which a quarter is added."""
    values = np.array([0] * 90 + [1] * 6 + [-2] * 4).reshape(10, 10)
    table, low = _bits_of_sizes(values)
    assert (low, len(table)) == (-4, 8)
    np.testing.assert_allclose(2.0 ** -table[np.array([1, -2, 3, 0]) - low], np.array([6.25, 4.25, 0.25, 0.25]) / 12)


def test_adapted_weights_are_those_of_least_squares(rng: np.random.Generator) -> None:
    X, W = rng.normal(size=(400, 7)), rng.normal(size=(7, 3))
    given = X + 0.3 * rng.normal(size=X.shape)
    moments = given.T @ given / 400
    found = adapted(W, upper_factor(moments), moments, given.T @ X @ W / 400)
    expected = np.linalg.lstsq(given, X @ W, rcond=None)[0]
    assert np.abs(found - expected).max() < 0.05 * np.abs(W - expected).max()
    moments = X.T @ X / 400
    np.testing.assert_allclose(adapted(W, upper_factor(moments), moments, moments @ W), W)


def test_later_layers_make_good_for_earlier_ones(rng: np.random.Generator) -> None:
    """Half the change of the outputs, at steps of the same number of bits; the model stays as it is."""
    layers = [L.Dense(40, "relu") for _ in range(3)]
    model = keras.Sequential([keras.Input((30,)), *layers, L.Dense(4)])
    X = (rng.normal(size=(600, 30)) @ rng.normal(size=(30, 30)) / 5).astype(np.float32)
    weights, expected = model.get_weights(), np.asarray(model(X))
    curvatures = curvature_of(model, X)
    kernels = [layer.get_weights()[0] for layer in model.layers]
    rounding = InTurn(model, X, curvatures)
    rate = 2.0**rounding.middle / 8
    alone = [on_grid(k, k, each, rate) for k, each in zip(kernels, curvatures, strict=True)]
    changes = []
    for codes in (alone, rounding.at(rate), rounding.at(rate)):
        outputs = np.asarray(with_kernels(model, codes)(X))
        changes.append(float(np.mean(np.square(outputs - expected))))
    assert changes[1] < 0.7 * changes[0]
    assert changes[2] == changes[1]
    assert all(np.array_equal(a, b) for a, b in zip(model.get_weights(), weights, strict=True))


def network() -> tuple[keras.Model, Any]:
    """A convolution and dense layers."""
    rng = np.random.default_rng(0)
    layers = [L.Conv1D(8, 3, activation="relu"), L.Flatten(), L.Dense(12, "tanh"), L.Dense(3)]
    model = keras.Sequential([keras.Input((8, 6)), *layers])
    for variable in model.trainable_variables:
        fan_in = max(1, int(np.prod(variable.shape[:-1])))
        variable.assign(rng.normal(size=variable.shape) / np.sqrt(fan_in))
    return model, rng.normal(size=(64, 8, 6)).astype(np.float32)


def test_files_by_each_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, X = network()
    expected = np.asarray(model(X))

    def error(other: keras.Model) -> float:
        return float(np.mean(np.square(np.asarray(other(X)) - expected)) / np.var(expected))

    path = tmp_path / "n.bcz"
    unrounded = []

    def recorded(model: keras.Model, codes: Any, **options: Any) -> Any:
        unrounded.extend([model] if codes is None else [])
        return container.encode(model, codes, **options)

    monkeypatch.setattr(single_file, "encode", recorded)
    by_bits = bc.pack(model, path, calibration=X, bits=5)
    assert len(unrounded) == 1
    assert by_bits.coding == "calibrated"
    assert np.isnan(by_bits.error)
    assert by_bits.bytes == path.stat().st_size
    assert error(bc.load(path)) < 0.02
    small = bc.pack(model, path, calibration=X, max_bytes=by_bits.bytes - 100)
    assert by_bits.bytes - 300 < small.bytes <= by_bits.bytes - 100
    good = bc.pack(model, path, calibration=X, validate=error, max_rise=0.02)
    assert good.error == error(bc.load(path)) <= 0.02
    before = path.read_bytes()
    for options, message in (
        ({}, "needs validate=, or calibration="),
        ({"bits": 3}, "needs validate=, or calibration="),
        ({"calibration": X, "bits": 0}, "bits must be above 0 and at most 16"),
        ({"calibration": X, "max_bytes": 60}, "cannot be as small as 60 bytes"),
        ({"calibration": X[:0]}, "calibration must have one row or more"),
        ({"calibration": X[:, 1:]}, r"calibration must have one row or more of shape \[n, "),
        ({"calibration": (X, X)}, "give inputs alone, one array for each"),
        ({"calibration": X.astype(str)}, "calibration must be of type float32, got <U"),
        ({"calibration": [[1.0], [1.0, 2.0]]}, "got rows of several lengths"),
        ({"calibration": X, "validate": lambda network: None}, "validate must give a finite number .* got None"),
        ({"calibration": np.full_like(X, np.nan)}, "not finite on the calibration data"),
    ):
        with pytest.raises(ValueError, match=message):
            bc.pack(model, path, **options)  # type: ignore[arg-type]
    for given, words in (
        ({"calibration": tf.data.Dataset.from_tensor_slices(X)}, "calibration must be arrays"),
        ({"calibration": X, "max_bytes": "10 kB"}, "max_bytes must be a number, got '10 kB'"),
    ):
        with pytest.raises(TypeError, match=words):
            bc.pack(model, path, **given)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"the model must be a keras\.Model, got 'model\.keras'"):
        bc.pack("model.keras", path, calibration=X, bits=3)  # type: ignore[arg-type]
    assert path.read_bytes() == before


def test_a_sequence_that_never_falls_is_the_nearest(rng: np.random.Generator) -> None:
    """No other such sequence is nearer: by Lagrange multipliers, which are sums of the distances so far."""
    values = np.cumsum(rng.normal(0.1, 1.0, 60))
    found = np.asarray(_rising([*values]))
    assert np.all(np.diff(found) >= -1e-12)
    sums = np.cumsum(values - found)
    assert np.all(sums > -1e-9)
    np.testing.assert_allclose(sums[:-1][np.diff(found) > 1e-9], 0.0, atol=1e-9)
    assert sums[-1] == pytest.approx(0.0, abs=1e-9)


def test_the_rate_is_not_the_luckiest_one() -> None:
    """Errors rise by 0.1 an octave and are seen with a deviation of 0.1: what is taken has risen by as much as allowed
    on average, and not by what the highest of all rates that pass has."""
    rises = []
    tries = []
    for seed in range(200):
        noise = np.random.default_rng(seed)
        asked: list[float] = []

        def tried(rate: float, noise: np.random.Generator = noise, asked: list[float] = asked) -> tuple[float, float]:
            asked.append(rate)
            return 0.1 * (rate + 2) + 0.1 * noise.normal(), rate

        rises.append(0.1 * (_highest(tried, 0.0, 0.4, 0.2) + 2))
        tries.append(len(asked))
    assert abs(np.mean(rises) - 0.4) < 0.03
    assert np.mean(tries) < 12
    # An error without noise is met to a sixteenth of an octave; what passes nowhere is said.
    assert 2 - 1 / 16 <= _highest(lambda rate: (0.1 * (rate + 2), rate), 0.0, 0.4, 0.2) <= 2
    assert -5 - 1 / 16 <= _highest(lambda rate: (0.1 * (rate + 2), rate), 0.0, -0.3, 0.2) <= -5
    with pytest.raises(ValueError, match="no rounding of the weights stays within max_rise"):
        _highest(lambda rate: (1.0, rate), 0.0, 0.4, 0.2)


@pytest.mark.parametrize("biases", ["float16", "float32"])
def test_of_files_of_one_size_it_is_always_the_same(biases: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are hashed in another way in each process: the file must not depend on it."""

    def encode(model: keras.Model, codes: object, *, biases: Any) -> container.Encoded:
        return container.Encoded(b"1", model, [biases])

    monkeypatch.setattr(single_file, "encode", encode)
    model = keras.Sequential([keras.Input([3]), L.Dense(2)])
    taken = _smallest(model, [container.Raw(kernel) for kernel in kernels_of(model)], biases, lambda network: 0.0, 0.0)
    assert taken.values == [biases]


def test_bits_of_small_networks_whose_layers_are_most_of_the_file(tmp_path: Path) -> None:
    """What has to be small enough are the kernels: a hundredth of the file is more than they can give."""
    rng = np.random.default_rng(2)
    inputs = [keras.Input((3,), name="numbers"), keras.Input((2,), dtype="int32", name="kinds")]
    words = L.Flatten()(L.Embedding(9, 3)(inputs[1]))
    hidden = L.Dense(5, "relu")(L.Concatenate()([L.BatchNormalization()(inputs[0]), words]))
    model = keras.Model(inputs, {"first": L.Dense(2)(hidden), "second": L.Dense(1)(hidden)})
    X = [rng.normal(size=(60, 3)).astype(np.float32), rng.integers(0, 9, (60, 2))]
    path = tmp_path / "n.bcz"
    sizes = [bc.pack(model, path, calibration=X, bits=bits).bytes for bits in (3, 4, 5, 6, 8)]
    assert np.all(np.diff(sizes) > 0)
    num_weights = bc.size_of(model).weights
    assert 0.8 * num_weights * 5 / 8 < sizes[-1] - sizes[0] < 1.2 * num_weights * 5 / 8


@pytest.mark.parametrize("bits", [None, 3.0, 6.0])
def test_bits_of_a_network_of_few_weights(bits: float | None, rng: np.random.Generator, tmp_path: Path) -> None:
    """Steps and headers of its kernels would be more than the bits of 16 weights."""
    model = keras.Sequential([keras.Input([3]), L.Dense(4, "tanh"), L.Dense(1)])
    model.set_weights([rng.normal(size=weights.shape) for weights in model.get_weights()])
    X = rng.normal(size=(200, 3)).astype(np.float32)
    packed = bc.pack(model, tmp_path / "n.bcz", calibration=X, bits=bits)
    difference = np.asarray(bc.load(packed.path)(X)) - np.asarray(model(X))
    assert np.std(difference) < (0.05 if bits == 6 else 0.4) * np.std(model(X))


def bayesian_network(rng: np.random.Generator) -> keras.Model:
    """Of variances that differ by four decades between weights."""
    model = bc.compress(keras.Sequential([keras.Input([20]), L.Dense(30, "relu"), L.Dense(2)]), num_train=100)
    for layer in bc.bayesian_layers(model):
        shape = layer.kernel_mean.shape
        layer.kernel_mean.assign(rng.normal(size=shape))
        layer.kernel_log_var_scaled.assign(rng.uniform(-12, -3, size=shape) / layer.scale_speed)
    return model


def test_a_bayesian_network_is_rounded_by_its_posterior(rng: np.random.Generator, tmp_path: Path) -> None:
    """Nats of the log density that are lost, at equal bytes: far fewer than where all weights count alike."""
    model = bayesian_network(rng)
    details = shrink_details(model)
    kernels = [np.asarray(kernel) for kernel in kernels_of(details.model)]

    def lost(packed_path: Path) -> float:
        read = kernels_of(bc.load(packed_path))
        parts = zip(kernels, read, details.variances, strict=True)
        return float(sum(np.sum(np.square(w - q) / (2 * V)) for w, q, V in parts))

    packed = bc.pack(model, tmp_path / "posterior.bcz", bits=2)
    assert packed.coding == "posterior"
    assert packed.bytes < 2 * 660 / 8 + 100  # and biases, and the layers
    alike = InTurn(details.model, None, curvature_of_posterior([np.ones(V.shape) for V in details.variances]))
    _, encoded = single_file._within_bytes(
        details.model, alike, packed.bytes, single_file._bytes_of_others(details.model)
    )
    write_encoded(tmp_path / "alike.bcz", encoded)
    assert lost(tmp_path / "posterior.bcz") < 0.7 * lost(tmp_path / "alike.bcz")


def test_what_has_no_posterior_needs_calibration(rng: np.random.Generator, tmp_path: Path) -> None:
    model = bayesian_network(rng)
    mixed = keras.Sequential([keras.Input([20]), *model.layers, L.Dense(1, name="plain_one")])
    with pytest.raises(ValueError, match=r"layer plain_one has weights without a posterior; give calibration="):
        bc.pack(mixed, tmp_path / "a.bcz", bits=2)
    assert not any(tmp_path.iterdir())
    packed = bc.pack(mixed, tmp_path / "a.bcz", calibration=rng.normal(size=(300, 20)), bits=2)
    assert packed.coding == "calibrated"
    assert bc.load(tmp_path / "a.bcz").output_shape == (None, 1)
