"""Which layers and activations can be compressed and written to a file: one list for both.

The orders of `STORED` and `ACTIVATIONS` are part of the format of `.bcz` files; new ones go to the end.
"""

from typing import Any

import keras

from .select_inputs import SelectInputs

__all__ = ["ACTIVATIONS", "DROPOUT", "ELEMENTWISE", "STORED", "activation_name", "problem"]

ACTIVATIONS = (
    *("linear", "relu", "softmax", "sigmoid", "tanh", "elu", "selu", "softplus", "gelu", "silu", "leaky_relu"),
    *("relu6", "hard_sigmoid", "softsign", "exponential", "mish"),
)
"""Keras' names of activations. All act on each feature alone but the softmax."""

ELEMENTWISE = (keras.layers.Activation, keras.layers.ReLU, keras.layers.LeakyReLU, keras.layers.ELU)
DROPOUT = (
    keras.layers.Dropout,
    keras.layers.SpatialDropout2D,
    keras.layers.GaussianDropout,
    keras.layers.GaussianNoise,
    keras.layers.AlphaDropout,
)
"""Layers that do nothing at test time. The noise of Bayesian layers takes their place."""

STORED: tuple[type, ...] = (
    keras.layers.Dense,
    keras.layers.Conv2D,
    keras.layers.MaxPooling2D,
    keras.layers.AveragePooling2D,
    keras.layers.GlobalAveragePooling2D,
    keras.layers.Flatten,
    keras.layers.Activation,
    keras.layers.ReLU,
    keras.layers.Softmax,
    SelectInputs,
    keras.layers.LeakyReLU,
    keras.layers.ELU,
    keras.layers.GlobalMaxPooling2D,
)

_SETTINGS: dict[str, tuple[Any, ...]] = {
    "data_format": ("channels_last", None),
    "groups": (1,),
    "dilation_rate": ((1, 1), 1, [1, 1]),
    "lora_rank": (None,),
    "keepdims": (False,),
    "quantization_mode": (None,),
}


def activation_name(layer: keras.layers.Layer) -> str | None:
    """Of a layer that has an activation, Keras' name of it; "" for any other function."""
    if not hasattr(layer, "activation"):
        return None
    name = getattr(layer.activation, "__name__", "")
    return name if name in ACTIVATIONS and keras.activations.get(name) is layer.activation else ""


def problem(layer: keras.layers.Layer) -> str:
    """What forbids to write this layer, of a type that is supported, as the end of a sentence; "" if nothing does."""
    for name, values in _SETTINGS.items():
        if (got := getattr(layer, name, values[0])) not in values:
            return f"has {name}={got}; only {name}={values[0]} can be compressed"
    if activation_name(layer) == "":
        shown = getattr(layer.activation, "__name__", repr(layer.activation))
        return f"has the activation {shown}; it must be one of {', '.join(ACTIVATIONS)}"
    if isinstance(layer, keras.layers.Softmax) and layer.axis != -1:
        return f"has axis={layer.axis}; only axis=-1 can be compressed"
    return ""
