"""Magnitude pruning and shared values: which weights go by NumPy, what training leaves alone, and the call for it."""

from typing import Any

import keras
import numpy as np
import pytest

import compression as bc
from compression.files.coding.kernel_coding import Reader, kernel_bytes, read_kernel
from compression.files.container import kernels_of
from compression.graph.graph import graph_of
from compression.graph.removal.neighbours import strides_of
from compression.rounding.bits import FixedPoint
from compression.train.magnitude import place_bits

layers = keras.layers


def network(rng: np.random.Generator) -> keras.Model:
    """Dense layers on images of 4 x 3 pixels."""
    model = keras.Sequential(
        [keras.Input([4, 3, 1]), layers.Flatten(), layers.Dense(20, "relu"), layers.Dense(10, "relu"), layers.Dense(2)]
    )
    model.set_weights([rng.normal(size=w.shape).astype(np.float32) for w in model.get_weights()])
    return model


@pytest.fixture
def data(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(60, 4, 3, 1)).astype(np.float32)
    return X, (X[:, 0, 0, 0] > 0).astype(np.int32)


LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def test_the_smallest_weights_of_all_layers_go(rng: np.random.Generator) -> None:
    model = network(rng)
    before = np.concatenate([w.ravel() for w in kernels_of(model)])
    pruning = bc.MagnitudePruning(model, keep=0.1, epochs=4, per_bit=False)
    assert [pruning.part_at(epoch) for epoch in (0, 2, 4, 9)] == pytest.approx([1, 0.1 + 0.9 / 8, 0.1, 0.1])
    pruning.prune(0.25)
    after = np.concatenate([w.ravel() for w in kernels_of(model)])
    largest = np.argsort(-np.abs(before))[: round(0.25 * before.size)]
    np.testing.assert_array_equal(np.flatnonzero(after), np.sort(largest))
    np.testing.assert_array_equal(after[largest], before[largest])


def test_a_weight_beside_others_is_cheaper(rng: np.random.Generator) -> None:
    """Of two weights of the same size the one in a full row stays, by the bits of places; by size alone it is lower."""
    assert place_bits(rng.uniform(size=(4, 2)) < 2.0)[0, 0] == pytest.approx(0, abs=0.2)
    alone = np.eye(64, dtype=bool)
    np.testing.assert_allclose(place_bits(alone), -np.log2((64 + 0.02) / (64**2 + 1)))
    kept = np.zeros((12, 40), bool)
    kept[2, :30] = kept[7, 35] = True
    bits = place_bits(kept)
    assert bits[2, 0] < bits[7, 35]
    image = np.zeros((5, 5, 30), bool)
    image[2:4, 1:3, ::7] = image[0, 4, 1] = True
    patches = place_bits(image.reshape(25, 30), (1, 5))
    assert patches[11, 0] < patches[4, 1]
    model = keras.Sequential([keras.Input([12]), layers.Dense(40, use_bias=False)])
    w = kept.astype(np.float32)
    w[7, 35] = 1.05
    for per_bit, expected in ((True, np.arange(30) + 2 * 40), (False, [7 * 40 + 35])):
        model.set_weights([w])
        bc.MagnitudePruning(model, keep=0.05, epochs=1, per_bit=per_bit).prune(len(expected) / 480)
        np.testing.assert_array_equal(np.flatnonzero(kernels_of(model)[0]), expected)


def test_training_leaves_zeros_and_shared_values_alone(
    rng: np.random.Generator, data: tuple[np.ndarray, np.ndarray]
) -> None:
    model = network(rng)
    model.compile(keras.optimizers.Adam(0.01), LOSS)
    # Zeros from before the first look, at which all weights may be kept, are no others.
    first = model.layers[1].kernel
    first.assign(first * (np.arange(20) < 15))
    model.fit(*data, epochs=1, batch_size=10, verbose=0, callbacks=[bc.MagnitudePruning(model, keep=1.0, epochs=1)])
    np.testing.assert_array_equal(np.any(first, axis=0), np.arange(20) < 15)
    before = [w.copy() for w in kernels_of(model)]
    pruning = bc.MagnitudePruning(model, keep=0.2, epochs=2, every=2)
    model.fit(*data, epochs=3, batch_size=10, verbose=0, callbacks=[pruning])
    kernels = kernels_of(model)
    assert sum(np.count_nonzero(w) for w in kernels) == round(0.2 * sum(w.size for w in kernels))
    assert any(np.any(now[now != 0] != then[now != 0]) for now, then in zip(kernels, before, strict=True))
    sharing = bc.ValueSharing(model, 3, epochs=0)
    model.fit(*data, epochs=2, batch_size=10, verbose=0, callbacks=[sharing])
    for now, then in zip(kernels_of(model), kernels, strict=True):
        np.testing.assert_array_equal(now == 0, then == 0)
        assert len(np.unique(now)) <= 4
    bc.free(model)
    model.fit(*data, epochs=1, batch_size=10, verbose=0)
    assert all(len(np.unique(now)) > 4 for now in kernels_of(model))


def test_a_model_in_one_call(rng: np.random.Generator, data: tuple[np.ndarray, np.ndarray], tmp_path: object) -> None:
    model = network(rng)
    before = [w.copy() for w in model.get_weights()]
    common: dict[str, Any] = {"loss": LOSS, "validation_data": data, "epochs": 3, "last_epochs": 2}
    small = bc.fit(model, *data, method=bc.Magnitude(keep=0.3, values=4), **common)
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    kernels = kernels_of(small)
    assert kernels[0].shape[0] == 12  # all inputs
    assert small.count_params() <= model.count_params()
    assert 0 < sum(np.count_nonzero(w) for w in kernels) <= round(0.3 * sum(w.size for w in kernels_of(model)))
    assert all(len(np.unique(w[w != 0])) <= 4 for w in kernels)
    assert set(small.evaluate(*data, verbose=0, return_dict=True)) == {"loss"}
    with pytest.raises(ValueError, match=r'method must be "bayesian" or "magnitude", or .*, got \'lottery\''):
        bc.fit(model, *data, method="lottery", **common)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="keep must be a number or several, got none"):
        bc.fit(model, *data, method=bc.Magnitude(keep=()), **common)


def test_settings_out_of_range(rng: np.random.Generator) -> None:
    model = network(rng)
    for keep in (0.0, 1.1):
        with pytest.raises(ValueError, match="keep must be above 0 and at most 1"):
            bc.MagnitudePruning(model, keep=keep, epochs=1)
    with pytest.raises(ValueError, match="epochs must be at least 0 and every at least 1"):
        bc.MagnitudePruning(model, keep=0.5, epochs=1, every=0)
    with pytest.raises(ValueError, match="no dense layers or convolutions to prune"):
        bc.MagnitudePruning(keras.Sequential([keras.Input([3]), layers.ReLU()]), keep=0.5, epochs=1)


def test_neighbours_in_images() -> None:
    convolutions = keras.Sequential(
        [
            keras.Input([9, 8, 2]),
            layers.Conv2D(3, (3, 5), name="c"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.1),
            layers.Dense(4, name="d"),
            layers.Dense(2, name="e"),
        ]
    )
    assert strides_of(graph_of(convolutions)) == {"c": (2, 10), "d": (3, 6)}


@pytest.mark.parametrize(("size", "strides"), [((1, 1), {}), ((4, 1), {"d": (3, 12)}), ((1, 4), {"d": (3, 12)})])
def test_a_row_of_pixels_has_neighbours_on_one_side(
    size: tuple[int, int], strides: dict[str, tuple[int, int]], rng: np.random.Generator
) -> None:
    """And comes back from a file: a pixel was its own neighbour where images were one pixel wide."""
    model = keras.Sequential([keras.Input([*size, 3]), layers.Flatten(), layers.Dense(40, name="d")])
    assert strides_of(graph_of(model)) == strides
    sparse = rng.integers(-3, 4, size=(3 * size[0] * size[1], 40)) * (rng.uniform(size=40) < 0.3)
    code = FixedPoint(sparse.astype(np.int32), 2, 3)
    given = kernel_bytes(code, True, strides.get("d", (0, 0)))
    np.testing.assert_array_equal(read_kernel(Reader(given), code.integers.shape), code.values)


def test_all_inputs_can_stay(rng: np.random.Generator) -> None:
    model = network(rng)
    first = kernels_of(model)[0]
    first[[0, 5]] = 0
    first[:, :7] = 0
    model.layers[1].kernel.assign(first)
    x = rng.normal(size=(5, 4, 3, 1)).astype(np.float32)
    for keep_inputs, size in ((False, 10), (True, 12)):
        small = bc.shrink(model, keep_inputs=keep_inputs)
        assert kernels_of(small)[0].shape == (size, 13)
        np.testing.assert_allclose(small(x), model(x), rtol=0, atol=1e-5)
