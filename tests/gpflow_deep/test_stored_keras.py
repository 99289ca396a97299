"""`gpflow_deep.files.stored_keras`: Keras layers come back, and files cannot have Keras do other things."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from gpflow_deep.files import stored_keras
from gpflow_deep.files.stored_names import Refused, given_names
from gpflow_deep.files.stored_objects import decode, encode


class OwnDense(layers.Layer):
    """A layer that Keras does not know."""

    def __init__(self, units: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.units = units

    def build(self, shape: Any) -> None:
        self.w = self.add_weight(shape=(shape[-1], self.units))

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return x @ self.w

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "units": self.units}


@keras.saving.register_keras_serializable("tests")
class RegisteredDense(OwnDense):
    """A layer that Keras knows."""


@keras.saving.register_keras_serializable("tests")
def own_activation(x: tf.Tensor) -> tf.Tensor:
    return keras.ops.sin(x)


class Unconfigured(layers.Layer):
    """A layer whose arguments Keras does not know."""

    def __init__(self, units: object) -> None:
        super().__init__()
        self.built = True


class Features(tf.Module):
    """A network whose weights TensorFlow sees; they may come before it or behind it."""

    def __init__(self, network: Any, is_first: bool = True) -> None:
        super().__init__()
        if is_first:
            self.network = network
        self.weights = [variable.value for variable in network.trainable_variables]
        if not is_first:
            self.network = network
        self.bias = network.trainable_variables[-1]


def sequential(*parts: Any) -> Any:
    return keras.Sequential([keras.Input((3,)), *parts])


def functional() -> Any:
    inputs = keras.Input((3,))
    hidden = layers.Dense(3, activation="tanh")(inputs)
    model = keras.Model(inputs, layers.Dense(2)(hidden * keras.ops.exp(inputs) + hidden))
    model.compile("adam", "mse")
    return model


def partly_frozen() -> Any:
    model = sequential(layers.Dense(4), layers.BatchNormalization(), layers.Dense(2))
    model.layers[0].trainable = False
    return model


def built(layer: Any) -> Any:
    layer(np.zeros((1, 3), np.float32))
    return layer


NETWORKS: dict[str, Callable[[], Any]] = {
    "layer": lambda: built(layers.Dense(2)),
    "sequential": lambda: sequential(
        layers.Dense(4, activation="tanh", kernel_regularizer="l2", kernel_constraint="max_norm"),
        layers.Dropout(0.1, seed=3),
        layers.Dense(2, activation=tf.nn.gelu, kernel_initializer=keras.initializers.Orthogonal(seed=1)),
    ),
    "functional": functional,
    "partly_frozen": partly_frozen,
    "convolution": lambda: sequential(
        layers.Reshape((3, 1)), layers.Conv1D(2, 2), layers.LayerNormalization(), layers.GlobalAveragePooling1D()
    ),
    "recurrent": lambda: sequential(layers.Reshape((3, 1)), layers.LSTM(2)),
    "normalised": lambda: sequential(layers.Normalization(mean=[0.0, 1.0, 2.0], variance=[1.0, 2.0, 3.0])),
    "nested": lambda: sequential(sequential(layers.Dense(4)), layers.Dense(2)),
    "own": lambda: sequential(OwnDense(2)),
    "registered": lambda: sequential(RegisteredDense(2), layers.Dense(2, activation=own_activation)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_round_trip(name: str, rng: np.random.Generator) -> None:
    network = NETWORKS[name]()
    for variable in network.variables:
        variable.assign(keras.ops.cast(rng.uniform(0.1, 1.0, variable.shape), variable.dtype))
    encoded = encode(Features(network) if network.trainable_variables else network, "x")
    found = decode(json.loads(json.dumps(encoded.node)), dict(encoded.arrays), given_names([Features, OwnDense]))
    x = rng.normal(size=(4, 3)).astype(np.float32)
    if network.trainable_variables:
        pairs = zip(found.weights, found.network.trainable_variables, strict=True)
        assert all(value is variable.value for value, variable in pairs)
        assert found.bias is found.network.trainable_variables[-1]
        found = found.network
    np.testing.assert_array_equal(network(x), found(x))
    assert [v.trainable for v in network.variables] == [v.trainable for v in found.variables]


def test_weights_that_are_met_before_their_layer_are_the_layers(rng: np.random.Generator) -> None:
    network = sequential(layers.Dense(2))
    for is_first in (True, False):
        encoded = encode([Features(network, is_first)], "x")
        assert sum(array.size for array in encoded.arrays.values()) == 8
        (found,) = decode(encoded.node, dict(encoded.arrays), given_names([Features]))
        found.weights[0].assign(np.ones((3, 2)))
        np.testing.assert_array_equal(found.network.layers[0].kernel, np.ones((3, 2)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: sequential(layers.Lambda(lambda x: x)),
            r"x has the Keras part keras\.layers\.Lambda, which no file may have",
        ),
        (
            lambda: sequential(layers.Dense(1, activation=lambda x: x)),
            "x is a Keras layer with a lambda: .*register_keras",
        ),
        (lambda: layers.Dense(2), "x is a Keras layer that has no weights yet: call it once"),
        (lambda: Unconfigured(object()), "x is a Keras layer without a configuration"),
        (
            lambda: [network := sequential(layers.Dense(1)), network.layers[0]],
            "shares weights with another Keras layer",
        ),
        (
            lambda: [network := sequential(layers.Dense(1)), network.variables[0], network][1:],
            r"x\[0\] is a variable of a Keras layer that comes after it: keep the layer first",
        ),
    ],
)
def test_what_cannot_be_saved(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        encode(make(), "x")
    assert "\n" not in str(error.value)


def changed(change: Callable[[dict[str, Any]], Any]) -> tuple[dict[str, Any], list[tf.Variable]]:
    """The configuration and the weights of a layer of 2 x 3 weights and 2 biases, with something changed."""
    config, variables = stored_keras.encode(sequential(layers.Dense(2)))
    change(config["config"]["layers"][1])
    return config, [variable.value for variable in variables]


def part(module: Any, name: Any, config: Any = None, **more: Any) -> Callable[[dict[str, Any]], None]:
    new = {"module": module, "class_name": name, "config": {} if config is None else config, "registered_name": None}
    return lambda layer: layer.update({**new, **more})


def activation(module: Any, name: str) -> Callable[[dict[str, Any]], None]:
    new = {"module": module, "class_name": "function", "config": name, "registered_name": name}
    return lambda layer: layer["config"].update(activation=new)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (part("keras.layers", "TFSMLayer", {"filepath": "/tmp/x"}), "Keras part keras.layers.TFSMLayer, which no file"),
        (part("keras.layers", "StringLookup", {"vocabulary": "/etc/passwd"}), "StringLookup, which no file may have"),
        (part("keras.layers", "Lambda", {"function": "x"}), "Lambda, which no file may have"),
        (part("keras.layers", "TorchModuleWrapper"), "TorchModuleWrapper, which no file may have"),
        (part("keras.utils", "get_file"), "get_file, which no file may have"),
        (part("keras.src.layers.core.lambda_layer", "Lambda"), "Lambda, which no file may have"),
        (part("keras.layers", "Dense", registered_name="tests>Unknown"), "Dense, which no file may have"),
        (part("builtins", "__lambda__", {"value": "x"}), "which no file may have"),
        (part("trap", "Kernel"), r"has trap\.Kernel, which not every file may name"),
        (
            part("subprocess", "Popen", {"args": ["touch", "sprung"]}),
            r"has subprocess\.Popen, which not every file may name",
        ),
        (part(None, "Layer"), "Keras part None.Layer, which no file may have"),
        (part(3, ["x"]), "has a Keras layer with a part that has no name"),
        (activation("os", "system"), "has a Keras layer with the function system: decorate it by"),
        (activation("builtins", "eval"), "has a Keras layer with the function eval"),
        (activation("keras.utils", "get_file"), "get_file, which no file may have"),
        (
            lambda layer: layer["config"].update(units=10**9),
            r"a variable of shape \[3, 1000000000\], but no such array",
        ),
        (lambda layer: layer["config"].update(use_bias=False), "other variables than it has arrays"),
        (
            lambda layer: layer["config"].update(activation={"class_name": "__lambda__"}),
            "Keras part None.__lambda__, which no file may have",
        ),
    ],
)
def test_configurations_that_are_refused(
    change: Callable[[dict[str, Any]], None], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trap.py").write_text("open('sprung', 'w').close()\nclass Kernel: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    config, values = changed(change)
    with pytest.raises(Refused, match=message):
        stored_keras.decode(config, values, [True, True], {})
    assert [path.name for path in tmp_path.iterdir()] == ["trap.py"]
    assert "trap" not in sys.modules
