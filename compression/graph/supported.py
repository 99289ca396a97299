"""What is known of Keras' layers and activations: which act on each channel alone, and which a file can hold.

The orders of `CHAIN_LAYERS` and `ACTIVATIONS` are part of the format of `.bcz` files; new ones go to the end.
"""

from typing import Any

import keras

from .place_inputs import PlaceInputs
from .select_inputs import SelectInputs

__all__ = [
    "ACTIVATIONS",
    "CHAIN_LAYERS",
    "ELEMENTWISE",
    "IDLE",
    "IDLE_IN_FILES",
    "MERGING",
    "MIXING",
    "POINTWISE",
    "STORED",
    "activation_name",
    "layer_types",
    "problem",
]

ACTIVATIONS = (
    *("linear", "relu", "softmax", "sigmoid", "tanh", "elu", "selu", "softplus", "gelu", "silu", "leaky_relu"),
    *("relu6", "hard_sigmoid", "softsign", "exponential", "mish", "hard_silu", "log_softmax", "hard_tanh", "celu"),
    *("squareplus", "log_sigmoid"),
)
"""Keras' names of activations."""

MIXING = ("softmax", "log_softmax")
"""Activations that do not act on each feature alone."""


def layer_types(*names: str) -> tuple[type, ...]:
    """Those of these Keras layers that this version of Keras has."""
    return tuple(getattr(keras.layers, name) for name in names if hasattr(keras.layers, name))


def _ranks(name: str) -> tuple[str, ...]:
    return tuple(name.replace("?", rank) for rank in ("1D", "2D", "3D"))


ELEMENTWISE = layer_types("Activation", "ReLU", "LeakyReLU", "ELU", "Rescaling")
"""Layers without weights that make of each number another."""

IDLE = (
    *layer_types("Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D"),
    *layer_types("GaussianDropout", "GaussianNoise", "AlphaDropout", "ActivityRegularization", "Identity"),
)
"""Layers that do nothing at test time. The noise of Bayesian layers takes their place."""

_AUGMENTATION = layer_types(
    *("RandomFlip", "RandomRotation", "RandomZoom", "RandomTranslation", "RandomContrast", "RandomBrightness"),
    *("RandomShear", "RandomHue", "RandomSaturation", "RandomSharpness", "RandomColorJitter", "RandomErasing"),
    *("RandomGaussianBlur", "RandomGrayscale", "RandomPerspective", "RandomPosterization", "RandomInvert"),
)
IDLE_IN_FILES: tuple[type, ...] = (*IDLE, *_AUGMENTATION)
"""Layers that do nothing at test time, those that change images in training among them."""

POINTWISE: tuple[type, ...] = (
    *ELEMENTWISE,
    *IDLE_IN_FILES,
    *layer_types(*_ranks("MaxPooling?"), *_ranks("AveragePooling?"), *_ranks("UpSampling?"), *_ranks("Cropping?")),
    *layer_types(*_ranks("GlobalMaxPooling?"), *_ranks("GlobalAveragePooling?"), *_ranks("ZeroPadding?")),
    *layer_types("RepeatVector"),
)
"""Layers without weights that act on each channel alone."""

MERGING = layer_types("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum")
"""Layers that make one number of those at the same place in several tensors."""

CHAIN_LAYERS: tuple[type, ...] = (
    *layer_types("Dense", "Conv2D", "MaxPooling2D", "AveragePooling2D", "GlobalAveragePooling2D", "Flatten"),
    *layer_types("Activation", "ReLU", "Softmax"),
    SelectInputs,
    *layer_types("LeakyReLU", "ELU", "GlobalMaxPooling2D"),
)
"""Layers of which the short form of a chain may be."""

STORED: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *CHAIN_LAYERS,
        PlaceInputs,
        *(kind for kind in POINTWISE if kind not in IDLE_IN_FILES),
        *MERGING,
        *layer_types("Conv1D", "Conv3D", *_ranks("Conv?Transpose"), "DepthwiseConv1D", "DepthwiseConv2D"),
        *layer_types("SeparableConv1D", "SeparableConv2D", "EinsumDense", "Embedding", "PReLU", "Concatenate", "Dot"),
        *layer_types("BatchNormalization", "LayerNormalization", "GroupNormalization", "RMSNormalization"),
        *layer_types("UnitNormalization", "Normalization", "Resizing", "CenterCrop", "Reshape", "Permute"),
        *layer_types("LSTM", "GRU", "SimpleRNN", "MultiHeadAttention", "GroupQueryAttention", "Attention"),
        *layer_types("AdditiveAttention", "Masking"),
    )
}
"""By name, the layers that a file can hold."""

_CHAIN_SETTINGS: dict[str, tuple[Any, ...]] = {
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
    """What forbids to write this layer of a chain in the short form, as the end of a sentence; "" if nothing does."""
    if type(layer) not in CHAIN_LAYERS:
        return f"is a {type(layer).__name__}"
    for name, values in _CHAIN_SETTINGS.items():
        if (got := getattr(layer, name, values[0])) not in values:
            return f"has {name}={got}"
    if activation_name(layer) == "":
        return f"has the activation {getattr(layer.activation, '__name__', repr(layer.activation))}"
    if isinstance(layer, keras.layers.Softmax) and layer.axis != -1:
        return f"has axis={layer.axis}"
    return ""
