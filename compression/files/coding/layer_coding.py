"""Layers as bytes in a `.bcz` file, as `compression.files.container` says, and reading them again."""

import struct
from collections.abc import Sequence

import keras
import numpy as np

from gpflow_deep_base.storage.frame import leb128

from ...graph.kept_inputs import SelectInputs
from ...graph.supported import ACTIVATIONS, CHAIN_LAYERS, activation_name
from .kernel_coding import Reader

__all__ = ["layer_bytes", "read_layer"]

_RADIX = 32
"""How many activations a code can tell from one another."""

_PADDINGS = ("valid", "same")


def _pair_and_flags(sizes: Sequence[int], *flags: tuple[int, int]) -> bytes:
    """Sizes, then one number of mixed radix: (value, how many there are) each, the first lowest."""
    number = 0
    base = 1
    for value, count in flags:
        number = number + base * int(value)
        base = base * count
    return b"".join(leb128(size) for size in sizes) + leb128(number)


def layer_bytes(layer: keras.Layer) -> bytes:
    """The kind and the parameters of a layer that can be stored in a chain.

    :raises ValueError: if it selects inputs in another order than theirs.
    """
    kind = bytes([CHAIN_LAYERS.index(type(layer))])
    code = ACTIVATIONS.index(activation_name(layer) or "linear")
    if isinstance(layer, keras.layers.Dense):
        return kind + _pair_and_flags([layer.units], (code, _RADIX), (layer.use_bias, 2))
    if isinstance(layer, keras.layers.Conv2D):
        sizes = [layer.filters, *layer.kernel_size, *layer.strides]
        padding = _PADDINGS.index(layer.padding)
        return kind + _pair_and_flags(sizes, (code, _RADIX), (layer.use_bias, 2), (padding, 2))
    if isinstance(layer, keras.layers.MaxPooling2D | keras.layers.AveragePooling2D):
        return kind + _pair_and_flags([*layer.pool_size, *layer.strides], (_PADDINGS.index(layer.padding), 2))
    if isinstance(layer, keras.layers.Activation):
        return kind + leb128(code)
    # One bit for each input: whether it is kept.
    if isinstance(layer, SelectInputs):
        is_kept = np.zeros(int(layer.input.shape[-1]), np.uint8)
        is_kept[np.asarray(layer.indices)] = 1
        if not np.array_equal(np.flatnonzero(is_kept), layer.indices):
            raise ValueError(f"indices of layer {layer.name!r} must increase; a file holds which inputs are kept.")
        return kind + np.packbits(is_kept).tobytes()
    # Elementwise layers with numbers; a plain ReLU has none.
    numbers = _numbers(layer)
    if numbers == _PLAIN_RELU and isinstance(layer, keras.layers.ReLU):
        return kind
    kind = bytes([_RELU_WITH_NUMBERS]) if isinstance(layer, keras.layers.ReLU) else kind
    return kind + b"".join(struct.pack("<d", value) for value in numbers)


def read_layer(reader: Reader, num_inputs: int) -> keras.Layer:
    """The next layer, without weights.

    :param num_inputs: features of its inputs.
    :raises ValueError, IndexError: if there is no such layer.
    """
    code = reader.take(1)[0]
    kind = keras.layers.ReLU if code == _RELU_WITH_NUMBERS else CHAIN_LAYERS[code]
    # Sizes, then activation, bias and padding as digits of one number.
    if kind is keras.layers.Dense:
        units = reader.integer()
        code, use_bias = reader.digits(_RADIX, 2)
        return keras.layers.Dense(units, activation=ACTIVATIONS[code], use_bias=bool(use_bias))
    if kind is keras.layers.Conv2D:
        filters, *sizes = _sizes(reader, 5)
        code, use_bias, padding = reader.digits(_RADIX, 2, 2)
        return keras.layers.Conv2D(
            filters,
            tuple(sizes[:2]),
            strides=tuple(sizes[2:]),
            padding=_PADDINGS[padding],
            activation=ACTIVATIONS[code],
            use_bias=bool(use_bias),
        )
    if kind in (keras.layers.MaxPooling2D, keras.layers.AveragePooling2D):
        sizes = _sizes(reader, 4)
        (padding,) = reader.digits(2)
        return kind(tuple(sizes[:2]), strides=tuple(sizes[2:]), padding=_PADDINGS[padding])
    if kind is keras.layers.Activation:
        return kind(ACTIVATIONS[reader.integer()])
    # One bit for each input: whether it is kept.
    if kind is SelectInputs:
        mask = np.frombuffer(reader.take(-(-num_inputs // 8)), np.uint8)
        return kind(np.flatnonzero(np.unpackbits(mask)[:num_inputs]).tolist())
    # Elementwise layers with numbers; a plain ReLU has none.
    names = () if code == CHAIN_LAYERS.index(keras.layers.ReLU) else _NUMBERS.get(kind, ())
    values = {name: float(reader.array("f8", 1)[0]) for name in names}
    if any(np.isnan(value) or value == -np.inf for value in values.values()):
        raise ValueError(f"a layer {kind.__name__} has numbers {list(values.values())}")
    return kind(**{name: None if value == np.inf else value for name, value in values.items()})


def _sizes(reader: Reader, count: int) -> list[int]:
    """Sizes of a window and its steps."""
    sizes = [reader.integer() for _ in range(count)]
    if min(sizes) < 1:
        raise ValueError(f"a window and its steps have sizes {sizes}")
    return sizes


_NUMBERS: dict[type, tuple[str, ...]] = {
    keras.layers.ReLU: ("max_value", "negative_slope", "threshold"),
    keras.layers.LeakyReLU: ("negative_slope",),
    keras.layers.ELU: ("alpha",),
}
_PLAIN_RELU = (np.inf, 0.0, 0.0)
_RELU_WITH_NUMBERS = 13


def _numbers(layer: keras.Layer) -> tuple[float, ...]:
    """Settings of an elementwise layer; a maximum that is not there is infinite."""
    values = (getattr(layer, name) for name in _NUMBERS.get(type(layer), ()))
    return tuple(np.inf if value is None else float(value) for value in values)
