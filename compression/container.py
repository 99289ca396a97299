"""`.bcz` files: a plain Keras network in as few bytes as its weights need.

    kernels = [codebook(w, 16) for w in kernels_of(model)]
    small = with_kernels(model, kernels, biases="float16")     # the network whose error is measured
    save_bcz("network.bcz", model, kernels, biases="float16")
    load_bcz("network.bcz")                                    # the same weights as `small`, bit for bit

A file is `\\x89BCZ`, the version (1 byte), the CRC-32 of what follows (4 bytes, little-endian), and:

    flags      1 byte: bit 0 set if biases are float16
    input      number of axes, then each size
    layers     their number, then for each: its kind (1 byte) and parameters; for a selection of inputs a bit mask
    weights    for each kernel a scheme (1 byte) and its data; then its bias, if any

Integers are LEB128: 7 bits a byte, the lowest first, the highest bit set if more follow. Bit fields begin at the
highest bit of a byte and are padded to whole bytes at the end of a kernel. The schemes are

    0 raw             float32, little-endian
    1 fixed point     significant and exponent bits (1 byte each), then integers of 1 + e + t bits, plus 2**(e + t)
    2 codebook        k - 1 (1 byte), k float16 centres, then indices of ceil(log2 k) bits
    3 coded codebook  the same, but k lengths of 4 bits, the number of bytes, then canonical Huffman words
    4 coded points    as 1, but the number of bytes, then the integers by adaptive arithmetic coding
    5 coded codebook  as 2, but the most frequent index (1 byte) and the number of bytes, then the differences of the
                      indices from it by adaptive arithmetic coding

Networks are chains of the layers that `kinds()` lists, in float32, channels last.
"""

import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from compression.chain import walk
from compression.files import atomic_path
from compression.kernel_coding import Kernel, Raw, Reader, kernel_bytes, leb, read_kernel
from compression.select_inputs import SelectInputs

__all__ = ["FORMAT_VERSION", "Kernel", "Raw", "chain", "kernels_of", "kinds", "load_bcz", "save_bcz", "with_kernels"]

FORMAT_VERSION = 1
_MAGIC = b"\x89BCZ"
_ACTIVATIONS = ("linear", "relu", "softmax", "sigmoid", "tanh", "elu", "selu", "softplus", "gelu", "silu", "leaky_relu")
_PADDINGS = ("valid", "same")
_SHAPED = (keras.layers.Dense, keras.layers.Conv2D)
_SKIPPED = (keras.layers.Dropout, keras.layers.SpatialDropout2D)


def kinds() -> list[str]:
    """Names of the layers that a file can hold; dropout is left out of the file, as it does nothing at test time."""
    return [layer.__name__ for layer in _KINDS]


def chain(model: keras.Model, *, without: tuple[type, ...] = ()) -> list[keras.Layer]:
    """The layers of a network one after the other, without input and dropout layers.

    :param without: more types of layers to leave out.
    :raises ValueError: naming the layer, if the network is not built, is no chain, or has a layer that is not in
        :func:`kinds`, or one with an option that a file cannot hold.
    """
    layers = [link.layer for link in walk(model) if not isinstance(link.layer, (*_SKIPPED, *without))]
    for layer in layers:
        _check_layer(layer)
    return layers


def kernels_of(model: keras.Model) -> list[NDArray[np.float32]]:
    """Kernels of the Dense and Conv2D layers of a network, in order."""
    return [np.asarray(layer.kernel, np.float32) for layer in chain(model) if isinstance(layer, _SHAPED)]


def with_kernels(model: keras.Model, kernels: Sequence[Kernel | ArrayLike], *, biases: str = "float32") -> keras.Model:
    """A copy of a network with these weights, and its biases rounded to `biases`: what a file of them gives back.

    :param kernels: one for each Dense and Conv2D layer, of the same shape.
    :param biases: "float32" or "float16".
    :raises ValueError: if numbers or shapes differ, or a bias is too large for float16.
    """
    shaped = [layer for layer in chain(model) if isinstance(layer, _SHAPED)]
    values = _values(shaped, kernels)
    new = keras.models.clone_model(model)
    copies = [layer for layer in new.layers if isinstance(layer, _SHAPED)]
    for layer, copy, kernel in zip(shaped, copies, values, strict=True):
        copy.kernel.assign(kernel)
        if layer.use_bias:
            copy.bias.assign(_rounded_bias(layer, biases).astype(np.float32))
    return new


def save_bcz(
    path: str | os.PathLike[str],
    model: keras.Model,
    kernels: Sequence[Kernel] | None = None,
    *,
    biases: str = "float32",
    entropy_coded: bool = True,
) -> int:
    """Write a network to a file, in one piece: a file is whole or absent.

    :param model: a chain of the layers in :func:`kinds`.
    :param kernels: weights of each Dense and Conv2D layer; None: as they are, in float32.
    :param biases: "float32" or "float16".
    :param entropy_coded: Huffman or arithmetic coding for each kernel where that makes the file smaller; False: fields
        of equal size, which can be read at any place.
    :return: size of the file in bytes.
    :raises ValueError: if the network cannot be held (see :func:`chain`), numbers or shapes differ, or a value is NaN.
    """
    layers = chain(model)
    shaped = [layer for layer in layers if isinstance(layer, _SHAPED)]
    codes: Sequence[Kernel] = [Raw(kernel) for kernel in kernels_of(model)] if kernels is None else kernels
    for layer, values in zip(shaped, _values(shaped, codes), strict=True):
        if not np.all(np.isfinite(values)):
            raise ValueError(f"weights of layer {layer.name!r} must be finite; check that training did not diverge.")
    out = bytearray([_BIASES.index(_bias_type(biases))])
    sizes = [int(size) for size in model.inputs[0].shape[1:]]
    out += leb(len(sizes)) + b"".join(map(leb, sizes)) + leb(len(layers))
    for layer in layers:
        out += _layer_bytes(layer)
    for layer, code in zip(shaped, codes, strict=True):
        out += kernel_bytes(code, entropy_coded)
        if layer.use_bias:
            out += _rounded_bias(layer, biases).astype(f"<{_BIASES[out[0]]}").tobytes()
    content = _MAGIC + bytes([FORMAT_VERSION]) + struct.pack("<I", zlib.crc32(out)) + bytes(out)
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
    return len(content)


def load_bcz(path: str | os.PathLike[str]) -> keras.Model:
    """Read the network in a file: a plain Keras model in float32.

    :raises ValueError: if the file is none of this format, is of an unknown version, truncated or damaged.
    :raises OSError: if there is no such file.
    """
    content = Path(path).read_bytes()
    if content[: len(_MAGIC)] != _MAGIC:
        raise ValueError(f"{path} is not a .bcz file: it starts with {content[:4]!r}, not with {_MAGIC!r}.")
    if len(content) < 9:
        raise ValueError(f"{path} is truncated: it has {len(content)} bytes, too few for a header; get it again.")
    if content[4] != FORMAT_VERSION:
        raise ValueError(
            f"{path} has version {content[4]} of the format, and this program reads version {FORMAT_VERSION}; use the "
            "program that wrote it."
        )
    if struct.unpack("<I", content[5:9])[0] != zlib.crc32(content[9:]):
        raise ValueError(f"{path} is truncated or damaged: its checksum does not match; get it again.")
    reader = Reader(content[9:])
    try:
        model = _read_model(reader)
        reader.finish()
    except (ValueError, IndexError, TypeError, KeyError, struct.error) as error:
        raise ValueError(f"{path} has a matching checksum but impossible content ({error}); write it again.") from error
    return model


# Layers

_BIASES = ("f4", "f2")


def _bias_type(biases: str) -> str:
    if biases not in ("float32", "float16"):
        raise ValueError(f'biases must be "float32" or "float16", got {biases!r}.')
    return {"float32": "f4", "float16": "f2"}[biases]


def _rounded_bias(layer: keras.Layer, biases: str) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        bias = np.asarray(layer.bias, np.float32).astype(_bias_type(biases))
    if not np.all(np.isfinite(bias)):
        raise ValueError(
            f'biases of layer {layer.name!r} must be finite, and below 65504 for biases="float16"; check that training '
            "did not diverge."
        )
    return bias


def _values(shaped: Sequence[keras.Layer], kernels: Sequence[Kernel | ArrayLike]) -> list[NDArray[np.float32]]:
    if len(kernels) != len(shaped):
        raise ValueError(f"kernels must be one for each of {len(shaped)} Dense and Conv2D layers, got {len(kernels)}.")
    values = []
    for layer, kernel in zip(shaped, kernels, strict=True):
        array = kernel.values if isinstance(kernel, Kernel) else kernel
        value = np.asarray(array, np.float32)
        if value.shape != tuple(layer.kernel.shape):
            raise ValueError(
                f"the kernel of layer {layer.name!r} must be {tuple(layer.kernel.shape)}, got {value.shape}."
            )
        values.append(value)
    return values


def _check_layer(layer: keras.Layer) -> None:
    if type(layer) not in _KINDS:
        raise ValueError(
            f"layer {layer.name!r} is a {type(layer).__name__}, and files hold {', '.join(kinds())} only; fold or "
            "remove it."
        )
    if layer.compute_dtype != "float32":
        raise ValueError(f"layer {layer.name!r} must compute in float32, got {layer.compute_dtype}.")
    config = layer.get_config()
    allowed = {"data_format": ("channels_last", None), "groups": (1,), "dilation_rate": (1, (1, 1), [1, 1])}
    for option, values in allowed.items():
        if option in config and config[option] not in values:
            raise ValueError(f"layer {layer.name!r} must have {option}={values[0]!r}, got {config[option]!r}.")
    if hasattr(layer, "activation") and _activation(layer) not in _ACTIVATIONS:
        raise ValueError(
            f"layer {layer.name!r} has the activation {_activation(layer)}, and files hold {', '.join(_ACTIVATIONS)} "
            "only."
        )
    if isinstance(layer, keras.layers.ReLU) and config != {**config, **_PLAIN_RELU}:
        raise ValueError(f"layer {layer.name!r} must be a plain ReLU, without slope, threshold or maximum.")


_PLAIN_RELU = {"max_value": None, "negative_slope": 0.0, "threshold": 0.0}


def _activation(layer: keras.Layer) -> str:
    return str(keras.activations.serialize(layer.activation))


def _pair_and_flags(sizes: Sequence[int], *flags: tuple[int, int]) -> bytes:
    """Sizes, then one number of mixed radix: (value, how many there are) each, the first lowest."""
    number, base = 0, 1
    for value, count in flags:
        number, base = number + base * int(value), base * count
    return b"".join(leb(size) for size in sizes) + leb(number)


def _layer_bytes(layer: keras.Layer) -> bytes:
    kind = bytes([_KINDS.index(type(layer))])
    if isinstance(layer, keras.layers.Dense):
        code = _ACTIVATIONS.index(_activation(layer))
        return kind + _pair_and_flags([layer.units], (code, len(_ACTIVATIONS)), (layer.use_bias, 2))
    if isinstance(layer, keras.layers.Conv2D):
        code = _ACTIVATIONS.index(_activation(layer))
        sizes = [layer.filters, *layer.kernel_size, *layer.strides]
        padding = _PADDINGS.index(layer.padding)
        return kind + _pair_and_flags(sizes, (code, len(_ACTIVATIONS)), (layer.use_bias, 2), (padding, 2))
    if isinstance(layer, keras.layers.MaxPooling2D | keras.layers.AveragePooling2D):
        return kind + _pair_and_flags([*layer.pool_size, *layer.strides], (_PADDINGS.index(layer.padding), 2))
    if isinstance(layer, keras.layers.Activation):
        return kind + leb(_ACTIVATIONS.index(_activation(layer)))
    if isinstance(layer, SelectInputs):
        is_kept = np.zeros(int(layer.input.shape[-1]), np.uint8)
        is_kept[np.asarray(layer.indices)] = 1
        if not np.array_equal(np.flatnonzero(is_kept), layer.indices):
            raise ValueError(f"indices of layer {layer.name!r} must increase; a file holds which inputs are kept.")
        return kind + np.packbits(is_kept).tobytes()
    return kind


def _read_layer(reader: Reader, num_inputs: int) -> keras.Layer:
    kind = _KINDS[reader.take(1)[0]]
    if kind is keras.layers.Dense:
        units = reader.integer()
        code, use_bias = reader.digits(len(_ACTIVATIONS), 2)
        return keras.layers.Dense(units, activation=_ACTIVATIONS[code], use_bias=bool(use_bias))
    if kind is keras.layers.Conv2D:
        filters, *sizes = (reader.integer() for _ in range(5))
        code, use_bias, padding = reader.digits(len(_ACTIVATIONS), 2, 2)
        return keras.layers.Conv2D(
            filters,
            tuple(sizes[:2]),
            strides=tuple(sizes[2:]),
            padding=_PADDINGS[padding],
            activation=_ACTIVATIONS[code],
            use_bias=bool(use_bias),
        )
    if kind in (keras.layers.MaxPooling2D, keras.layers.AveragePooling2D):
        sizes = [reader.integer() for _ in range(4)]
        (padding,) = reader.digits(2)
        return kind(tuple(sizes[:2]), strides=tuple(sizes[2:]), padding=_PADDINGS[padding])
    if kind is keras.layers.Activation:
        return kind(_ACTIVATIONS[reader.integer()])
    if kind is SelectInputs:
        mask = np.frombuffer(reader.take(-(-num_inputs // 8)), np.uint8)
        return kind(np.flatnonzero(np.unpackbits(mask)[:num_inputs]).tolist())
    return kind()


#: The order is part of the format.
_KINDS: list[type] = [
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
]


def _read_model(reader: Reader) -> keras.Model:
    bias_type = _BIASES[reader.take(1)[0]]
    inputs = keras.Input([reader.integer() for _ in range(reader.integer())])
    x, shaped = inputs, []
    for _ in range(reader.integer()):
        layer = _read_layer(reader, int(x.shape[-1]))
        x = layer(x)
        if isinstance(layer, _SHAPED):
            shaped.append(layer)
    for layer in shaped:
        layer.kernel.assign(read_kernel(reader, tuple(layer.kernel.shape)))
        if layer.use_bias:
            size = int(layer.bias.shape[0])
            layer.bias.assign(reader.array(bias_type, size).astype(np.float32))
    return keras.Model(inputs, x)
