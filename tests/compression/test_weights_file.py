"""Files of weights only: any Keras network comes back to the last bit, and damaged files change nothing."""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import compression as bc
from compression.files.weights_file import read_weights
from gpflow_deep_base.storage.frame import framed, leb128

L = keras.layers


class Twice(keras.layers.Layer):
    """A layer of a user's own, with a count and a source of random numbers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.noise = keras.random.SeedGenerator(3)
        self.count = self.add_weight(shape=(), dtype="int64", trainable=False, initializer="zeros", name="count")
        self.scale = self.add_weight(shape=(3, 12), dtype="bfloat16", initializer="random_normal", name="scale")

    def call(self, x: Any) -> Any:
        return 2 * x + keras.ops.cast(self.scale[0, 0], x.dtype) + keras.ops.cast(self.count, x.dtype)


class Renamed(keras.layers.Layer):
    """A dense layer of 4 inputs and 3 units whose variables have other names."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.slope = self.add_weight(shape=(4, 3), name="slope")
        self.offset = self.add_weight(shape=(3,), name="offset")

    def call(self, x: Any) -> Any:
        return x @ self.slope + self.offset


class Own(keras.Model):
    """A subclassed model with a layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.tied, self.normal, self.twice = L.Dense(6), L.BatchNormalization(), Twice()

    def call(self, x: Any, training: bool = False) -> Any:
        return self.twice(self.normal(self.tied(self.tied(x)), training=training))


def own() -> keras.Model:
    model = Own()
    model(np.zeros((2, 6), np.float32))
    return model


def functional() -> keras.Model:
    """Lambda, operations, half precision, a wrapper, statistics that were adapted, and dropout."""
    inputs = keras.Input((5, 6))
    x = L.Normalization(name="statistics")(inputs)
    x = L.TimeDistributed(L.Dense(4, "relu"))(x)
    x = L.Bidirectional(L.LSTM(3, return_sequences=True))(x)
    x = L.Lambda(lambda value: value[:, -1])(x)
    x = L.Dense(8, dtype="mixed_float16")(L.Dropout(0.5)(x))
    return keras.Model(inputs, keras.ops.mean(keras.ops.relu(x) / 3.0, axis=-1))


def quantised() -> keras.Model:
    model = keras.Sequential([keras.Input((6,)), L.Dense(7), L.Dense(2, dtype="bfloat16")])
    model.layers[0].quantize("int8")
    return model


def with_constants() -> keras.Model:
    """Layers on numbers of the code, which are no part of the model: Keras keeps what they gave, as constants."""
    words = keras.Input((5,), dtype="int32")
    table, apart = L.Embedding(9, 4), L.Embedding(4, 3)
    apart.build(())
    x = table(words) + L.Embedding(5, 4)(keras.ops.arange(5))
    x = keras.ops.take(x, np.random.default_rng().permutation(4), axis=-1)
    tied = keras.ops.matmul(x, keras.ops.transpose(table.embeddings))
    inner = keras.Input((5, 4))
    loose = keras.Model(inner, keras.ops.matmul(inner, apart.embeddings))
    return keras.Model(words, keras.ops.concatenate([tied, loose(x)], axis=-1))


MODELS: dict[str, tuple[Callable[[], keras.Model], tuple[int, ...]]] = {
    "own": (own, (3, 6)),
    "functional": (functional, (3, 5, 6)),
    "quantised": (quantised, (3, 6)),
    "constants": (with_constants, (3, 5)),
}


def disturb(model: keras.Model, rng: np.random.Generator) -> None:
    """Other values for all variables, those of statistics among them."""
    for variable in model.variables:
        value = rng.uniform(0.1, 1.0, variable.shape)
        scaled = value if keras.backend.is_float_dtype(variable.dtype) else 100 * value
        variable.assign(keras.ops.cast(scaled, variable.dtype))
    for layer in model.layers:
        if isinstance(layer, L.Normalization):
            layer.finalize_state()


@pytest.mark.parametrize("bits", [None, 7])
@pytest.mark.parametrize("kind", MODELS)
def test_another_instance_of_the_model_becomes_the_same(
    kind: str, bits: int | None, tmp_path: Path, rng: np.random.Generator
) -> None:
    make, shape = MODELS[kind]
    model, other = make(), make()
    disturb(model, rng)
    disturb(other, rng)
    x = rng.normal(size=shape).astype(np.float32)
    if kind == "constants":
        x = rng.integers(0, 9, shape).astype(np.float32)
        other.predict(x, verbose=0)  # Keras keeps the program that it makes for it
    size = bc.pack_weights(model, tmp_path / "w.bcz", bits=bits)
    assert size == (tmp_path / "w.bcz").stat().st_size
    before, expected = np.asarray(other(x), np.float32), np.asarray(model(x), np.float32)
    bc.load_weights(other, tmp_path / "w.bcz")
    if bits is None:
        for a, b in zip(model.variables, other.variables, strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
        np.testing.assert_array_equal(np.asarray(other(x), np.float32), expected)
        if kind == "constants":
            np.testing.assert_allclose(other.predict(x, verbose=0), expected, rtol=1e-5, atol=1e-6)
        assert np.max(np.abs(before - expected)) > 0.1 * np.max(np.abs(expected))
    else:
        for a, b in zip(model.variables, other.variables, strict=True):
            x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
            step = float(np.max(np.abs(x), initial=0.0)) / 2 ** (bits - 1)
            assert np.max(np.abs(x - y), initial=0.0) <= (0.52 * step if x.ndim > 1 and x.size > 32 else 0)


def test_what_does_not_fit_is_named_and_changes_nothing(tmp_path: Path) -> None:
    def chain(*units: int, bias: bool = True) -> keras.Model:
        return keras.Sequential([keras.Input((4,)), *(L.Dense(size, use_bias=bias) for size in units)])

    path = tmp_path / "w.bcz"
    bc.pack_weights(chain(3, 2), path)
    for model, message in (
        (chain(3), "it has 4 variables, and the model has 2"),
        (chain(5, 2), r"dense/kernel of shape \(4, 3\), float32, where the model has .*kernel of shape \(4, 5\)"),
        (chain(3, 2, 1, 1, bias=False), "where the model has"),
        (
            keras.Sequential([keras.Input((4,)), Renamed(), L.Dense(2)]),
            r"dense/kernel of shape .*renamed/slope of shape",
        ),
        (keras.Sequential([L.Dense(3)]), "0 variables and is not built"),
    ):
        before = [np.asarray(variable) for variable in model.variables]
        with pytest.raises(ValueError, match=message):
            bc.load_weights(model, path)
        for a, b in zip(before, model.variables, strict=True):
            np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="it holds weights only: make the network by its code"):
        bc.load(path)
    bc.save_bcz(chain(3, 2), path)
    with pytest.raises(ValueError, match=r"it holds a network, which compression\.load makes"):
        bc.load_weights(chain(3, 2), path)
    for bits in (1, 17, 2.5, "8"):
        with pytest.raises(ValueError, match="bits must be an integer from 2 to 16, got"):
            bc.pack_weights(chain(3), path, bits=bits)  # type: ignore[arg-type]


def _file(names: str, heads: bytes, values: bytes, count: int = 1) -> bytes:
    text = zlib.compress(names.encode(), 9)
    return framed(b"\x89BCZ", 6, leb128(len(text)) + text + leb128(count) + heads + values)


LARGE = b"\0\2" + 2 * leb128(2**16)
CRAFTED = {
    "a large kernel of one value": _file("k", LARGE, b"\2\0\0\0"),
    "a large kernel of zeros": _file("k", LARGE, b"\x08\0\x3c\0" + leb128(600) + bytes(600)),
    "a bomb": _file("k", LARGE, b"\x11" + leb128(10**6) + bytes(10**6)),
    "many names": _file("\n" * 10**6, b"", b"", 10**6),
    "a step of 0": _file("k", b"\0\2\2\2", b"\x09\0\0\2\0"),
    "a step that is NaN": _file("k", b"\0\2\2\2", b"\x09\xff\x7f\2\0"),
    "a kernel of integers": _file("k", b"\6\2\2\2", b"\x09\0\x3c\2\0"),
    "a truth value of 2": _file("k", b"\x0c\1\1", b"\x10\2"),
    "an unknown type": _file("k", b"\x50\1\1", b"\x10\2"),
    "17 axes": _file("k", b"\0\x11" + 17 * b"\1", b"\x10" + struct.pack("<f", 1.0)),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_files_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "w.bcz"
    path.write_bytes(CRAFTED[name])
    with pytest.raises(ValueError, match=r"cannot be read as a \.bcz file of weights \("):
        read_weights(path)
