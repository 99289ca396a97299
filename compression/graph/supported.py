"""What is known of Keras' layers and activations: which act on each channel alone, and which a file can hold.

The orders of `CHAIN_LAYERS` and `ACTIVATIONS` are part of the format of `.bcz` files; new ones go to the end.
"""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import keras
import tensorflow as tf

from .kept_inputs import PlaceInputs, SelectInputs

__all__ = [
    "ACTIVATIONS",
    "CHAIN_LAYERS",
    "ELEMENTWISE",
    "IDLE",
    "IDLE_IN_FILES",
    "MERGING",
    "MIXING",
    "OPERATIONS",
    "POINTWISE",
    "STORED",
    "WRAPPERS",
    "activation_name",
    "custom_layers",
    "is_custom",
    "is_operation",
    "kind_name",
    "kind_named",
    "layer_types",
    "problem",
]

ACTIVATIONS = (
    *("linear", "relu", "softmax", "sigmoid", "tanh", "elu", "selu", "softplus", "gelu", "silu", "leaky_relu"),
    *("relu6", "hard_sigmoid", "softsign", "exponential", "mish", "hard_silu", "log_softmax", "hard_tanh", "celu"),
    *("squareplus", "log_sigmoid", "tanh_shrink", "soft_shrink", "hard_shrink", "sparse_plus", "sparse_sigmoid"),
    "sparsemax",
)
"""Keras' names of activations."""

MIXING = ("softmax", "log_softmax", "sparsemax")
"""Activations that do not act on each feature alone."""


def layer_types(*names: str) -> tuple[type[keras.Layer], ...]:
    """Those of these Keras layers that this version of Keras has."""
    return tuple(getattr(keras.layers, name) for name in names if hasattr(keras.layers, name))


def _unnamed(module: str, name: str) -> tuple[type, ...]:
    """A layer of Keras that has no public name, where this version of Keras has it."""
    found = importlib.import_module(f"keras.src.{module}")
    return (getattr(found, name),) if hasattr(found, name) else ()


def _ranks(name: str) -> tuple[str, ...]:
    return tuple(name.replace("?", rank) for rank in ("1D", "2D", "3D"))


ELEMENTWISE = layer_types("Activation", "ReLU", "LeakyReLU", "ELU", "Rescaling")
"""Layers without weights that make of each number another."""

IDLE = (
    *layer_types("Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D"),
    *layer_types("GaussianDropout", "GaussianNoise", "AlphaDropout", "ActivityRegularization", "Identity"),
    *_unnamed("applications.convnext", "StochasticDepth"),
    *_unnamed("layers.preprocessing.feature_space", "TFDIdentity"),
)
"""Layers that do nothing at test time. The noise of Bayesian layers takes their place."""

_AUGMENTATION = layer_types(
    *("RandomFlip", "RandomRotation", "RandomZoom", "RandomTranslation", "RandomContrast", "RandomBrightness"),
    *("RandomShear", "RandomHue", "RandomSaturation", "RandomSharpness", "RandomColorJitter", "RandomErasing"),
    *("RandomGaussianBlur", "RandomGrayscale", "RandomPerspective", "RandomPosterization", "RandomInvert"),
    *("RandomElasticTransform", "RandomColorDegeneration", "RandAugment", "AugMix", "CutMix", "MixUp"),
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
        *layer_types("AdditiveAttention", "Masking", *_ranks("ConvLSTM?"), "CategoryEncoding", "Discretization"),
        *layer_types("IntegerLookup", "StringLookup", "Hashing", "TimeDistributed", "Bidirectional"),
        *layer_types("SpectralNormalization", "TextVectorization", "RandomCrop", "ReversibleEmbedding", "RNN"),
        *layer_types(*_ranks("AdaptiveAveragePooling?"), *_ranks("AdaptiveMaxPooling?")),
        *layer_types("HashedCrossing", "MelSpectrogram", "STFTSpectrogram"),
        *_unnamed("applications.convnext", "LayerScale"),
        *_unnamed("applications.inception_resnet_v2", "CustomScaleLayer"),
        *_unnamed("layers.preprocessing.feature_space", "TFDConcat"),
        *layer_types("Pipeline"),
    )
}
"""By name, the layers that a file can hold."""

INNER = {
    kind.__name__: kind
    for kind in (*layer_types("LSTMCell", "GRUCell", "SimpleRNNCell", "StackedRNNCells"), keras.Sequential)
}
"""By name, what a file can hold within a layer of :data:`WRAPPERS` alone: cells, and chains of layers."""

WRAPPERS: dict[type, tuple[str, ...]] = {
    keras.layers.TimeDistributed: ("layer",),
    keras.layers.Bidirectional: ("layer", "backward_layer"),
    keras.layers.SpectralNormalization: ("layer",),
    keras.layers.RNN: ("cell",),
    keras.layers.StackedRNNCells: ("cells",),
    keras.Sequential: ("layers",),
    **dict.fromkeys(layer_types("Pipeline"), ("layers",)),
}
"""Layers that are made of others, and which of their settings these are."""

_OPERATION_NAMES = """
    ReLU Relu Relu6 Sigmoid Softplus Softsign SoftShrink Silu Squareplus LogSigmoid LeakyRelu HardSigmoid HardSilu
    Elu Selu Gelu Celu Glu TanhShrink HardTanh HardShrink Threshold Softmax LogSoftmax MaxPool AveragePool OneHot
    Normalize Cast StopGradient Absolute Abs Exp Exp2 Expm1 Log Log1p Log2 Log10 Sqrt Rsqrt Square Negative Sign Sin
    Cos Tan Tanh Sinh Cosh Arctan Arctan2 Floor Ceil Round Trunc Reciprocal Erf Isnan Isfinite NanToNum Clip Mean
    Max Min Amax Amin Sum Prod Var Std Median Any All Argmax Argmin Logsumexp CountNonzero Cumsum Cumprod Add
    Subtract Multiply Divide DivideNoNan TrueDivide FloorDivide Mod Power Maximum Minimum NotEqual Equal Greater
    GreaterEqual Less LessEqual LogicalAnd LogicalOr LogicalNot LogicalXor Where Matmul Dot Vdot Inner Tensordot
    Einsum Hypot Logaddexp GetItem Reshape Ravel Transpose Squeeze ExpandDims Concatenate Stack Hstack Vstack Split
    Swapaxes Moveaxis Flip Roll Pad Repeat Tile BroadcastTo Take TakeAlongAxis Tril Triu Diff Average ZerosLike
    OnesLike Sort Argsort DepthToSpace SpaceToDepth Mish SparsePlus SparseSigmoid Sparsemax AdaptiveAveragePool
    AdaptiveMaxPool Conv DepthwiseConv SeparableConv ConvTranspose
    DotProductAttention RMSNorm LayerNorm Erfc Arcsin Arccos Arcsinh Arccosh Arctanh Cbrt Fmax Fmin
    Fmod Deg2rad Rad2deg Isinf Isclose FullLike Outer Cross Trace Diagonal Fliplr Flipud Rot90 Dstack TopK Slice
    Unstack Norm Resize ExtractPatches PadImages CropImages RGBToGrayscale SaturateCast Fabs Heaviside Isneginf
    Isposinf Logaddexp2 Nanmax Nanmean Nanmin Nansum Nanstd Nanvar Nanmedian Ptp Quantile Percentile Sinc Signbit
    Select Append Digitize Hsplit Vsplit Dsplit BitwiseAnd BitwiseOr BitwiseXor BitwiseNot RGBToHSV HSVToRGB
    SobelEdges Moments BatchNorm Erfinv CDist SliceUpdate RFFT FFT STFT MultiHot Inv Solve Det Cholesky Copy
    Scatter ScatterUpdate ConvertToTensor SegmentSum SegmentMax SegmentMin SegmentProd InTopK Diag Diagflat Kron
    BitwiseInvert SearchSorted IsIn Unfold Fold Trapezoid ExtractSequences FFT2 IFFT2 IRFFT ISTFT Angle Real Imag Conj
    Conjugate Nanargmax Nanargmin Nancumsum Nancumprod Nanprod Nanpercentile Nanquantile Bincount ArraySplit
    AffineTransform MapCoordinates GaussianBlur Correlate Logdet Pinv SVD Qr SolveTriangular Eigh
""".split()  # noqa: SIM905  a list would have one name a line


def _operations() -> dict[str, type]:
    from keras.src.activations import activations
    from keras.src.ops import core, image, linalg, math, nn  # the classes of operations have no public names
    from keras.src.ops import numpy as arrays

    # The last of these modules decides where two have a class of the same name.
    modules = (activations, core, image, linalg, math, nn, arrays)
    kinds_by_name = {name: kind for part in modules for name, kind in vars(part).items()}
    return {name: kinds_by_name[name] for name in _OPERATION_NAMES if isinstance(kinds_by_name.get(name), type)}


OPERATIONS = _operations()
"""By name, the operations of `keras.ops` that a file can hold: they compute numbers of tensors, and nothing else."""

_OPERATION = "ops."
_CUSTOM = "custom."
_NOTHING: Mapping[str, type] = MappingProxyType({})
_custom: ContextVar[Mapping[str, type]] = ContextVar("custom layers", default=_NOTHING)


@contextmanager
def custom_layers(given: Mapping[str, type] | None) -> Iterator[None]:
    """While it lasts, files may hold these layers, too.

    :param given: by the names that they have in files; None: those of now.
    :raises ValueError: if one is no layer.
    """
    for name, kind in (given or {}).items():
        if not isinstance(kind, type) or not issubclass(kind, keras.Layer):
            raise ValueError(f"custom_objects must be classes of layers by name, got {kind!r} for {name!r}.")
    token = _custom.set(_custom.get() if given is None else dict(given))
    try:
        # Wrappers of Keras copy what is in them by the names of its classes.
        with keras.saving.CustomObjectScope({kind.__name__: kind for kind in _custom.get().values()}):
            yield
    finally:
        _custom.reset(token)


def is_operation(layer: keras.layers.Layer) -> bool:
    """Whether a node of a graph is an operation of `keras.ops`, and no layer."""
    return isinstance(layer, keras.Operation) and not isinstance(layer, keras.Layer)


def kind_name(layer: keras.layers.Layer) -> str | None:
    """What a file calls the kind of a layer or operation; None if it can hold none of these."""
    kind = type(layer)
    if is_operation(layer):
        return _OPERATION + kind.__name__ if OPERATIONS.get(kind.__name__) is kind else None
    # Layers of the user's own before those of Keras.
    custom = [name for name, layer_class in _custom.get().items() if layer_class is kind]
    if custom:
        return _CUSTOM + custom[0]
    return kind.__name__ if kind in (STORED.get(kind.__name__), INNER.get(kind.__name__)) else None


def kind_named(name: str) -> type | None:
    """The reverse of :func:`kind_name`; None if there is no such kind."""
    if name.startswith(_OPERATION):
        return OPERATIONS.get(name.removeprefix(_OPERATION))
    if name.startswith(_CUSTOM):
        return _custom.get().get(name.removeprefix(_CUSTOM))
    return STORED.get(name, INNER.get(name))


def is_custom(kind: type) -> bool:
    """Whether a kind is one of :func:`custom_layers`."""
    return kind in _custom.get().values()


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
    # The function of this name by Keras itself, or the same one of TensorFlow or keras.ops.
    name = getattr(layer.activation, "__name__", "")
    if name in ACTIVATIONS and keras.activations.get(name) is layer.activation:
        return name
    return next((name for name, function in _SAME if layer.activation is function), "")


_OF_TENSORFLOW = (
    *("relu", "relu6", "sigmoid", "tanh", "softplus", "softsign", "selu", "softmax", "silu", "elu", "gelu"),
    *("leaky_relu", "log_softmax"),
)
_OF_OPS = tuple(name for name in ACTIVATIONS if hasattr(keras.ops, name) and name != "gelu")  # which approximates there
_SAME = [
    *((name, getattr(part, name)) for part, names in ((tf.nn, _OF_TENSORFLOW), (keras.ops, _OF_OPS)) for name in names),
    *(("exponential", keras.ops.exp), ("exponential", tf.exp), ("log_sigmoid", tf.math.log_sigmoid)),
]
"""Functions that are, with their defaults, an activation of this name."""


def problem(layer: keras.layers.Layer) -> str:
    """What forbids to write this layer of a chain in the short form, as the end of a sentence; "" if nothing does."""
    if type(layer) not in CHAIN_LAYERS:
        return f"is a {type(layer).__name__}"
    # Settings, activations and axes for which the short form has no place.
    for name, values in _CHAIN_SETTINGS.items():
        if (got := getattr(layer, name, values[0])) not in values:
            return f"has {name}={got}"
    if activation_name(layer) == "":
        return f"has the activation {getattr(layer.activation, '__name__', repr(layer.activation))}"
    if isinstance(layer, keras.layers.Softmax) and layer.axis != -1:
        return f"has axis={layer.axis}"
    return ""
