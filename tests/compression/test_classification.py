"""Error in percent and negative log-likelihood in nats, against NumPy; and what is refused."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from compression.train.recipes.classification import (
    Examples,
    check_network,
    error_percent,
    has_probabilities,
    nll,
    parts_of,
    reshaped,
)
from compression.train.recipes.regression import unexplained_percent
from tests.compression.oracles import dense_outputs, log_softmax, percent_wrong


def network(rng: np.random.Generator, *more: keras.Layer) -> keras.Model:
    model = keras.Sequential([keras.Input([5]), keras.layers.Dense(7, "relu"), keras.layers.Dense(4), *more])
    model.set_weights([rng.normal(size=weight.shape) for weight in model.get_weights()])
    return model


class Watched(keras.layers.Layer):
    """Keeps how many rows each call has."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if inputs.shape[0] is not None:
            self.rows.append(int(inputs.shape[0]))
        return inputs


@pytest.mark.parametrize(("layers", "most"), [(1, 1000), (20, 51)])
def test_networks_of_many_numbers_are_called_on_few_rows(layers: int, most: int) -> None:
    """Each of these layers gives 2^16 numbers for a row, and Keras keeps them all: 5 GB for 1,000 rows of twenty."""
    watched = Watched()
    upsampled = [keras.layers.UpSampling2D(256)] + [keras.layers.ReLU() for _ in range(layers - 1)]
    ending = [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input([1, 1, 1]), watched, *upsampled, *ending])
    X = np.zeros((80, 1, 1, 1), np.float32)
    error_percent(model, Examples(tf.constant(X), tf.zeros(80, tf.int32)))
    unexplained_percent(model, X, np.zeros((80, 2), np.float32), 1.0)
    assert max(watched.rows) == min(80, most)
    assert sum(watched.rows) == 160


@pytest.mark.parametrize("count", [1, 999, 1000, 1001, 2345])
def test_error_is_in_percent_of_all_rows(count: int, rng: np.random.Generator) -> None:
    model = network(rng)
    x, labels = rng.normal(size=(count, 5)).astype(np.float32), rng.integers(0, 4, count)
    (part, *_) = parts_of(dict.fromkeys(("train", "valid", "test"), (x, labels))).values()
    assert error_percent(model, part) == pytest.approx(
        percent_wrong(dense_outputs(model.get_weights(), x), labels), abs=1e-9
    )


def test_error_is_that_of_inference(rng: np.random.Generator) -> None:
    """Dropout of everything would leave the biases alone."""
    plain = network(rng)
    dropped = keras.Sequential([keras.Input([5]), plain.layers[0], keras.layers.Dropout(0.999), plain.layers[1]])
    part = Examples(tf.constant(rng.normal(size=(300, 5)), tf.float32), tf.constant(rng.integers(0, 4, 300), tf.int32))
    assert error_percent(dropped, part) == error_percent(plain, part)


@pytest.mark.parametrize("probabilities", [False, True])
def test_nll_is_the_mean_in_nats(probabilities: bool, rng: np.random.Generator) -> None:
    logits, labels = rng.normal(size=(50, 4)) * 3, rng.integers(0, 4, 50)
    log_p = log_softmax(logits)
    outputs = tf.constant(np.exp(log_p) if probabilities else logits)
    expected = -np.mean([row[label] for row, label in zip(log_p, labels, strict=True)])
    assert float(nll(outputs, tf.constant(labels), probabilities=probabilities)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ([], False),
        ([keras.layers.Softmax()], True),
        ([keras.layers.Activation("softmax")], True),
        ([keras.layers.Dense(4, "softmax")], True),
        ([keras.layers.Dense(4, tf.nn.softmax)], True),
        ([keras.layers.Dense(4, keras.ops.softmax)], True),
        ([keras.layers.Dense(4, keras.layers.Softmax())], True),
        ([keras.layers.Softmax(), keras.layers.Identity()], True),
        ([keras.layers.Dense(4, "sigmoid")], False),
    ],
)
def test_softmax_at_the_end_is_seen(more: list[keras.Layer], expected: bool, rng: np.random.Generator) -> None:
    assert has_probabilities(network(rng, *more)) is expected


def test_parts_become_tensors_once(rng: np.random.Generator) -> None:
    x, labels = rng.normal(size=(6, 5)), np.arange(6)[:, None] % 3
    parts = parts_of(dict.fromkeys(("train", "valid", "test"), (x, labels)))
    assert parts["valid"].X.dtype == tf.float32
    assert parts["valid"].labels.dtype == tf.int32
    np.testing.assert_array_equal(parts["valid"].labels, [0, 1, 2, 0, 1, 2])
    np.testing.assert_array_equal(parts["valid"].X, x.astype(np.float32))
    again = parts_of(parts)
    assert all(a is b for name in parts for a, b in zip(again[name], parts[name], strict=True))


@pytest.mark.parametrize(
    ("labels", "got"),
    [
        ([0, 1], r"int64 labels \(2,\) for 3 examples"),
        ([0.0, 1.0, 2.0], "float64 labels"),
        ([0, -1, 1], "a label of 0 or more"),
        ([[0, 1], [1, 0], [0, 1]], r"labels \(3, 2\)"),
    ],
)
def test_wrong_labels_are_refused(labels: Any, got: str) -> None:
    good = np.zeros((3, 5)), np.zeros(3, int)
    with pytest.raises(ValueError, match=got) as refused:
        parts_of({"train": good, "valid": (good[0], np.array(labels)), "test": good})
    assert str(refused.value).startswith("valid must have examples")


def test_missing_and_empty_parts_are_refused() -> None:
    good, empty = (np.zeros((3, 5)), np.zeros(3, int)), (np.zeros((0, 5)), np.zeros(0, int))
    with pytest.raises(ValueError, match="got none of valid, test"):
        parts_of({"train": good})
    with pytest.raises(ValueError, match="test must have examples"):
        parts_of({"train": good, "valid": good, "test": empty})


def test_a_network_has_to_fit_the_data(rng: np.random.Generator) -> None:
    x, labels = rng.normal(size=(6, 5)), np.array([0, 1, 2, 3, 0, 1])
    parts = parts_of(dict.fromkeys(("train", "valid", "test"), (x, labels)))
    check_network(network(rng), parts)
    with pytest.raises(ValueError, match=r"takes inputs \(5,\) and gives outputs \(3,\), but the flowers has .* to 3"):
        check_network(network(rng, keras.layers.Dense(3)), parts, "the flowers")
    wide = parts_of(dict.fromkeys(("train", "valid", "test"), (x[:, :4], labels)))
    with pytest.raises(ValueError, match=r"but the data has inputs \(4,\)"):
        check_network(network(rng), wide)


def test_probabilities_are_seen_in_a_graph() -> None:
    inputs = keras.Input([4])
    x = keras.layers.Softmax()(keras.layers.Dense(3)(inputs))
    extra = keras.layers.Dense(3)(inputs)
    assert has_probabilities(keras.Model(inputs, x))
    assert has_probabilities(keras.Model(inputs, keras.ops.cast(keras.ops.softmax(keras.ops.exp(inputs)), "float32")))
    assert not has_probabilities(keras.Model(inputs, keras.layers.Add()([x, extra])))


def test_inputs_take_the_shape_of_the_network(rng: np.random.Generator) -> None:
    flat = keras.Sequential([keras.Input([12]), keras.layers.Dense(3)])
    X = rng.normal(size=(5, 2, 2, 3))
    found, labels = reshaped({"train": (X, np.arange(5))}, flat)["train"]
    np.testing.assert_array_equal(found, X.reshape(5, 12))
    assert np.asarray(labels).tolist() == [0, 1, 2, 3, 4]
    assert np.shape(reshaped({"train": (X[:, :1], labels)}, flat)["train"][0]) == (5, 1, 2, 3)
