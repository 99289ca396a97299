"""Networks as people write them, with operations, wrappers, lookups and layers of their own, come back from files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import compression as bc
from compression.files.coding.graph_coding import graph_bytes
from compression.files.container import kernels_of
from compression.graph.graph import graph_of
from compression.graph.rebuild import copy_of

L, ops = keras.layers, keras.ops
Make = Callable[[], tuple[keras.Model, Any]]


class Scaled(keras.layers.Layer):
    """A layer of a user's own, with weights and a setting."""

    def __init__(self, start: float, **options: Any) -> None:
        super().__init__(**options)
        self.start = start

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=(shape[-1], 2), name="scale")

    def call(self, x: Any) -> Any:
        return ops.matmul(x, self.scale) + self.start

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "start": self.start}


def _x(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def _words(most: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, most, shape).astype(np.int32)


def residual() -> tuple[keras.Model, Any]:
    i = keras.Input((6, 6, 3))
    x = L.Conv2D(4, 3, padding="same")(i / 127.5 - 1.0)
    y = L.Conv2D(4, 3, padding="same", activation=tf.nn.relu)(x)
    x = keras.activations.relu(x + y) * ops.hard_sigmoid(x + 3.0)
    return keras.Model(i, L.Dense(2)(ops.mean(x, axis=(1, 2)))), _x(2, 6, 6, 3)


def sliced() -> tuple[keras.Model, Any]:
    i = keras.Input((5, 4))
    x = L.Dense(6)(i[:, ::-1])
    ends = ops.concatenate([x[:, -1, :], ops.max(x, axis=1), x[..., 2]], axis=-1)
    centred = ends - ops.convert_to_tensor(np.arange(17, dtype=np.float32))
    return keras.Model(i, L.Dense(2)(ops.where(centred > 0, centred, 0.1 * centred))), _x(3, 5, 4)


def masked() -> tuple[keras.Model, Any]:
    i = keras.Input((7,), dtype="int32")
    x = L.Embedding(9, 4, mask_zero=True)(i)
    x = L.Bidirectional(L.LSTM(3, return_sequences=True), merge_mode="sum")(x)
    x = L.Bidirectional(L.GRU(3), backward_layer=L.GRU(3, activation="relu", go_backwards=True))(x)
    return keras.Model(i, L.Dense(2)(x)), _words(9, 3, 7)


def wrapped() -> tuple[keras.Model, Any]:
    i = keras.Input((4, 6, 6, 1))
    x = L.TimeDistributed(L.Conv2D(2, 3, activation="relu"))(i)
    x = L.ConvLSTM2D(2, 3)(x)
    return keras.Model(
        i, L.SpectralNormalization(L.Dense(3))(L.Flatten()(L.TimeDistributed(L.TimeDistributed(L.Dense(2)))(x)))
    ), _x(2, 4, 6, 6, 1)


def encoded() -> tuple[keras.Model, Any]:
    colour, number, word = (keras.Input((1,), dtype=kind) for kind in ("string", "float32", "int32"))
    x = L.StringLookup(vocabulary=["red", "green"], output_mode="one_hot")(colour)
    y = L.CategoryEncoding(4, output_mode="one_hot")(L.Discretization([-1.0, 0.0, 1.0])(number))
    lookup = L.IntegerLookup(output_mode="multi_hot")
    lookup.adapt(np.array([[4], [7], [7]]))
    x = L.Dense(2)(L.Concatenate()([ops.cast(part, "float32") for part in (x, y, lookup(word))]))
    examples = [tf.constant(part) for part in ([["red"], ["blue"]], _x(2, 1), np.array([[7], [1]], np.int32))]
    return keras.Model([colour, number, word], x), examples


def attending() -> tuple[keras.Model, Any]:
    """A block of a decoder by hand."""
    i = keras.Input((5, 8))
    x = i + L.Embedding(5, 8)(ops.convert_to_tensor(np.arange(5)))
    q, k, v = ops.split(L.Dense(24)(x), 3, axis=-1)
    weights = ops.softmax(ops.matmul(q, ops.transpose(k, (0, 2, 1))) / 8**0.5, axis=-1)
    x = L.LayerNormalization()(x + ops.matmul(weights, v))
    return keras.Model(i, L.Dense(2)(ops.reshape(x, (-1, 40)))), _x(2, 5, 8)


def half() -> tuple[keras.Model, Any]:
    i = keras.Input((6, 3))
    x = L.LSTM(4, dtype="mixed_float16")(L.BatchNormalization(dtype="mixed_float16")(i))
    return keras.Model(i, L.Dense(2, dtype="float32")(x)), _x(2, 6, 3)


def resized() -> tuple[keras.Model, Any]:
    """Operations on images, and with several outputs of which some are used."""
    i = keras.Input((8, 8, 3))
    patches = ops.image.extract_patches(ops.image.resize(L.Conv2D(4, 3)(i), (4, 4)), 2)
    heads = ops.reshape(patches, (-1, 4, 2, 8))
    left, right = ops.unstack(ops.dot_product_attention(heads, heads, heads), axis=2)
    most, _ = ops.top_k(ops.norm(left - right, axis=-1), 3)
    return keras.Model(i, L.Dense(2)(most)), _x(3, 8, 8, 3)


def read() -> tuple[keras.Model, Any]:
    i = keras.Input((1,), dtype="string")
    words = L.TextVectorization(output_sequence_length=4)
    words.adapt(["one fish two fish", "red fish blue fish"])
    return keras.Model(i, L.Dense(2)(L.GRU(3)(L.Embedding(9, 4)(words(i))))), tf.constant([["red fish"], ["One, two"]])


def told() -> tuple[keras.Model, Any]:
    """Constants of some size, of no finite value, and of other types; tensors of other ranks."""
    i = keras.Input((70, 6))
    unseen = np.triu(np.full((70, 70), -np.inf, np.float32), 1)
    x = L.MultiHeadAttention(2, 3)(i, i, attention_mask=np.isfinite(unseen)[None]) + np.sin(np.arange(6.0))
    weights = ops.softmax(ops.matmul(x, ops.transpose(i, (0, 2, 1))) + unseen)
    weights = ops.where(weights > 0.2, weights, -float("inf"))
    x = ops.matmul(ops.maximum(weights, ops.mean(x)), i)
    return keras.Model(i, L.Dense(2)(x * ops.mean(x, axis=(0, 1)))), _x(3, 70, 6)


def shared() -> tuple[keras.Model, Any]:
    """A network of two outputs in another, three times, and once within one more."""
    i = keras.Input((7,))
    x = L.Dense(5, "elu")(i)
    tower = keras.Model(i, [x, L.Dense(2)(x)])
    j = keras.Input((5,))
    behind = keras.Model(j, tower(L.Dense(7)(j))[1])
    a, b = keras.Input((7,)), keras.Input((7,))
    (far, near), (other, last) = tower(a), tower(b)
    return keras.Model([a, b], [L.Average()([far, other]), L.Minimum()([near, last]), behind(far)]), [
        _x(3, 7),
        _x(3, 7),
    ]


def named() -> tuple[keras.Model, Any]:
    """Activations by functions of TensorFlow and of `keras.ops` that do the same."""
    i = x = keras.Input((4,))
    functions = (
        tf.nn.gelu,
        tf.nn.swish,
        tf.nn.leaky_relu,
        tf.nn.elu,
        tf.tanh,
        tf.exp,
        ops.log_sigmoid,
        ops.soft_shrink,
    )
    for function in functions:
        x = L.Dense(4, function)(x) + i
    return keras.Model(i, x), _x(3, 4)


MAKERS: tuple[Make, ...] = (
    *(residual, sliced, masked, wrapped, encoded, attending, half, resized, read, told, shared, named),
)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_networks_with_operations_come_back(make: Make, tmp_path: Path) -> None:
    model, x = make()
    bc.save_bcz(model, tmp_path / "n.bcz")
    loaded = bc.load(tmp_path / "n.bcz")
    is_half = make is half
    for found, wanted in zip(keras.tree.flatten(loaded(x)), keras.tree.flatten(model(x)), strict=True):
        expected = np.asarray(wanted, np.float32)
        assert np.ptp(expected, axis=0).max() > 1e-3  # outputs depend on inputs
        np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=5e-3 if is_half else 1e-6)
    assert all(a.compute_dtype == "float32" for a in loaded.layers if a.weights)


def test_copies_have_the_order_of_their_model() -> None:
    model, _ = shared()
    for kernel, same in zip(kernels_of(model), kernels_of(copy_of(model)), strict=True):
        np.testing.assert_array_equal(kernel, same)


def test_layers_of_the_users_own_are_held_where_that_is_asked_for(tmp_path: Path) -> None:
    path, own = tmp_path / "n.bcz", {"scaled": Scaled}
    i = keras.Input((4, 3))
    model = keras.Model(i, L.Dense(3)(Scaled(0.25, name="first")(i)))
    with pytest.raises(ValueError, match="'first' is a Scaled, and files hold"):
        bc.save_bcz(model, path)
    bc.save_bcz(model, path, custom_objects=own)
    with pytest.raises(
        ValueError, match=r"kind 'custom.scaled', which is not known; give its class in custom_objects="
    ):
        bc.load(path)
    loaded = bc.load(path, custom_objects=own)
    np.testing.assert_array_equal(loaded(_x(2, 4, 3)), model(_x(2, 4, 3)))
    assert loaded.get_layer("first").start == 0.25
    with pytest.raises(ValueError, match="custom_objects must be classes of layers by name"):
        bc.load(path, custom_objects={"scaled": len})  # type: ignore[dict-item]


class Cell(keras.layers.Layer):
    """A recurrent cell of a user's own."""

    def __init__(self, units: int, **options: Any) -> None:
        super().__init__(**options)
        self.units = self.state_size = self.output_size = units

    def build(self, shape: Any) -> None:
        self.mix = self.add_weight(shape=(shape[-1] + self.units, self.units), name="mix")

    def call(self, x: Any, states: Any) -> Any:
        new_state = ops.tanh(ops.concatenate([x, states[0]], axis=-1) @ self.mix)
        return new_state, [new_state]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "units": self.units}


def test_layers_of_the_users_own_in_others(tmp_path: Path) -> None:
    own: dict[str, type] = {"my cell": Cell, "scaled": Scaled}
    i = keras.Input((4, 3))
    x = L.RNN([Cell(5), L.GRUCell(3)], return_sequences=True)(L.Pipeline([Scaled(0.25), L.ReLU()])(i))
    model = keras.Model(i, L.Dense(2)(x))
    bc.save_bcz(model, tmp_path / "n.bcz", custom_objects=own)
    for same in (bc.load(tmp_path / "n.bcz", custom_objects=own), copy_of(model)):
        np.testing.assert_array_equal(same(_x(2, 4, 3)), model(_x(2, 4, 3)))
    with pytest.raises(ValueError, match="is a Scaled"):
        bc.save_bcz(model, tmp_path / "n.bcz")


def test_words_among_outputs_are_compared(tmp_path: Path) -> None:
    i = keras.Input((3,))
    x = L.Dense(3)(i)
    words = L.StringLookup(vocabulary=["a", "b"], invert=True)(ops.argmax(x, axis=-1))
    model = keras.Model(i, [words, x])
    bc.save_bcz(model, tmp_path / "n.bcz")
    found, expected = bc.load(tmp_path / "n.bcz")(_x(20, 3)), model(_x(20, 3))
    assert len(set(np.asarray(expected[0]))) > 1
    np.testing.assert_array_equal(found[0], expected[0])


def test_operations_that_are_none_of_these_are_named() -> None:
    i = keras.Input((4,))
    model = keras.Model(i, ops.vectorized_map(lambda row: row * 2, L.Dense(3)(i)))
    with pytest.raises(ValueError, match=r"'vectorized_map\w*' is the operation VectorizedMap of"):
        bc.save_bcz(model, "n.bcz")
    assert graph_bytes(graph_of(keras.Model(i, ops.relu(L.Dense(3)(i)))))


def test_vocabularies_that_were_adapted_stay() -> None:
    """Copies are what is cut, trained and rounded."""
    words, counts = L.TextVectorization(output_sequence_length=4), L.StringLookup(output_mode="tf_idf")
    words.adapt(["one fish two fish", "red fish blue fish"])
    counts.adapt(np.array([["one", "fish"], ["fish", "fish"], ["red", "one"]]))
    text, word = keras.Input((1,), dtype="string"), keras.Input((2,), dtype="string")
    model = keras.Model([text, word], [L.Dense(2)(L.Embedding(9, 3)(words(text))), counts(word)])
    examples = [tf.constant([["red fish"], ["One, two"]]), tf.constant([["fish", "red"], ["blue", "one"]])]
    for a, b in zip(copy_of(model)(examples), model(examples), strict=True):
        assert np.ptp(np.asarray(b)) > 0
        np.testing.assert_array_equal(a, b)


class Halves(keras.initializers.Initializer):
    """An initialiser of a user's own, which Keras was not told of."""

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        return ops.full(shape, 0.5, dtype)


def test_functions_of_the_users_own_are_the_same_in_copies() -> None:
    i = keras.Input((5,))
    x = L.Lambda(lambda t: ops.square(t) + _x(1, 6))(L.Dense(6, activation=lambda t: ops.relu(t) - 0.5)(i))
    model = keras.Model(i, L.Dense(2, "tanh")(x))
    np.testing.assert_array_equal(copy_of(model)(_x(4, 5)), model(_x(4, 5)))
    i = keras.Input((4, 3))
    gates = {"recurrent_activation": lambda t: ops.clip(t, 0, 0.5), "recurrent_initializer": Halves()}
    recurrent = keras.Model(i, L.GRU(5, **gates, reset_after=False)(i))
    np.testing.assert_array_equal(copy_of(recurrent)(_x(2, 4, 3)), recurrent(_x(2, 4, 3)))
    assert bc.compress(model, num_train=10)(_x(4, 5)).shape == (4, 2)
    for function in (ops.exp, ops.erf, tf.exp):  # of Keras and TensorFlow, but no activations by name
        model = keras.Sequential([keras.Input((5,)), L.Dense(6, activation=function), L.Dense(2)])
        np.testing.assert_array_equal(copy_of(model)(_x(4, 5)), model(_x(4, 5)))
