"""`.bcz` files: a plain Keras network in as few bytes as its weights need.

    kernels = [codebook(w, 16) for w in kernels_of(model)]
    small = with_kernels(model, kernels, biases="float16")     # the network whose error is measured
    save_bcz("network.bcz", model, kernels, biases="float16")
    load_bcz("network.bcz")                                    # the same weights as `small`, bit for bit

A file is `\\x89BCZ`, the version (1 byte), the CRC-32 of what follows (4 bytes, little-endian), and:

    flags      1 byte: bit 0 set if biases are float16
    input      number of axes, then each size, 0 for one that the network leaves open
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

Networks are chains of the layers that `kinds()` lists, in float32, channels last. Kinds of layers are their places in
`compression.supported.STORED`, and 13 for a ReLU with a slope, threshold or maximum; a ReLU with these, LeakyReLU and
ELU have their numbers as float64. Version 1, which had fewer layers and activations, can be read, too.
"""

import math
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
from compression.supported import ACTIVATIONS, DROPOUT, STORED, activation_name, problem

__all__ = ["FORMAT_VERSION", "Kernel", "Raw", "chain", "kernels_of", "kinds", "load_bcz", "save_bcz", "with_kernels"]

FORMAT_VERSION = 2
MAX_WEIGHTS = 2**27
"""Weights that `load_bcz` makes room for unless it is told otherwise: 0.5 GiB."""

_MAGIC = b"\x89BCZ"
_RADIX = {1: 11, 2: 32}  # numbers of activations that a code could have, by version
_PADDINGS = ("valid", "same")
_SHAPED = (keras.layers.Dense, keras.layers.Conv2D)
_MAX_AXES, _MAX_LAYERS = 8, 4096


def kinds() -> list[str]:
    """Names of the layers that a file can hold; dropout is left out of the file, as it does nothing at test time."""
    return [layer.__name__ for layer in STORED]


def chain(model: keras.Model, *, without: tuple[type, ...] = ()) -> list[keras.Layer]:
    """The layers of a network one after the other, without input and dropout layers.

    :param without: more types of layers to leave out.
    :raises ValueError: naming the layer, if the network is not built, is no chain, or has a layer that is not in
        :func:`kinds`, or one with an option that a file cannot hold.
    """
    layers = [link.layer for link in walk(model) if not isinstance(link.layer, (*DROPOUT, *without))]
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
    sizes = [int(size or 0) for size in model.inputs[0].shape[1:]]
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


def load_bcz(path: str | os.PathLike[str], *, max_weights: int = MAX_WEIGHTS) -> keras.Model:
    """Read the network in a file: a plain Keras model in float32.

    A file from somebody else runs no code. What it says of sizes is checked before room is made for them.

    :param max_weights: the largest number of weights of all layers together.
    :raises ValueError: if the file is none of this format, is of an unknown version, truncated or damaged, or has more
        weights.
    :raises OSError: if there is no such file.
    """
    content = Path(path).read_bytes()
    if content[: len(_MAGIC)] != _MAGIC:
        raise ValueError(f"{path} is not a .bcz file: it starts with {content[:4]!r}, not with {_MAGIC!r}.")
    if len(content) < 9:
        raise ValueError(f"{path} is truncated: it has {len(content)} bytes, too few for a header; get it again.")
    if content[4] not in _RADIX:
        raise ValueError(
            f"{path} has version {content[4]} of the format, and this program reads version {FORMAT_VERSION} and "
            "earlier ones; use the program that wrote it."
        )
    if struct.unpack("<I", content[5:9])[0] != zlib.crc32(content[9:]):
        raise ValueError(f"{path} is truncated or damaged: its checksum does not match; get it again.")
    reader = Reader(content[9:])
    try:
        model = _read_model(reader, _RADIX[content[4]], max_weights)
    except (ValueError, IndexError, TypeError, KeyError, OverflowError, struct.error) as error:
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
    if type(layer) not in STORED:
        raise ValueError(
            f"layer {layer.name!r} is a {type(layer).__name__}, and files hold {', '.join(kinds())} only; fold or "
            "remove it."
        )
    if layer.compute_dtype != "float32":
        raise ValueError(f"layer {layer.name!r} must compute in float32, got {layer.compute_dtype}.")
    if found := problem(layer):
        raise ValueError(f"layer {layer.name!r} {found}.")


def _pair_and_flags(sizes: Sequence[int], *flags: tuple[int, int]) -> bytes:
    """Sizes, then one number of mixed radix: (value, how many there are) each, the first lowest."""
    number, base = 0, 1
    for value, count in flags:
        number, base = number + base * int(value), base * count
    return b"".join(leb(size) for size in sizes) + leb(number)


def _layer_bytes(layer: keras.Layer) -> bytes:
    kind, radix = bytes([STORED.index(type(layer))]), _RADIX[FORMAT_VERSION]
    code = ACTIVATIONS.index(activation_name(layer) or "linear")
    if isinstance(layer, keras.layers.Dense):
        return kind + _pair_and_flags([layer.units], (code, radix), (layer.use_bias, 2))
    if isinstance(layer, keras.layers.Conv2D):
        sizes, padding = [layer.filters, *layer.kernel_size, *layer.strides], _PADDINGS.index(layer.padding)
        return kind + _pair_and_flags(sizes, (code, radix), (layer.use_bias, 2), (padding, 2))
    if isinstance(layer, keras.layers.MaxPooling2D | keras.layers.AveragePooling2D):
        return kind + _pair_and_flags([*layer.pool_size, *layer.strides], (_PADDINGS.index(layer.padding), 2))
    if isinstance(layer, keras.layers.Activation):
        return kind + leb(code)
    if isinstance(layer, SelectInputs):
        is_kept = np.zeros(int(layer.input.shape[-1]), np.uint8)
        is_kept[np.asarray(layer.indices)] = 1
        if not np.array_equal(np.flatnonzero(is_kept), layer.indices):
            raise ValueError(f"indices of layer {layer.name!r} must increase; a file holds which inputs are kept.")
        return kind + np.packbits(is_kept).tobytes()
    numbers = _numbers(layer)
    if numbers == _PLAIN_RELU and isinstance(layer, keras.layers.ReLU):
        return kind
    kind = bytes([_RELU_WITH_NUMBERS]) if isinstance(layer, keras.layers.ReLU) else kind
    return kind + b"".join(struct.pack("<d", value) for value in numbers)


def _read_layer(reader: Reader, num_inputs: int, radix: int) -> keras.Layer:
    code = reader.take(1)[0]
    kind = keras.layers.ReLU if code == _RELU_WITH_NUMBERS else STORED[code]
    if kind is keras.layers.Dense:
        units = reader.integer()
        code, use_bias = reader.digits(radix, 2)
        return keras.layers.Dense(units, activation=ACTIVATIONS[code], use_bias=bool(use_bias))
    if kind is keras.layers.Conv2D:
        filters, *sizes = (reader.integer() for _ in range(5))
        code, use_bias, padding = reader.digits(radix, 2, 2)
        return keras.layers.Conv2D(
            filters,
            tuple(sizes[:2]),
            strides=tuple(sizes[2:]),
            padding=_PADDINGS[padding],
            activation=ACTIVATIONS[code],
            use_bias=bool(use_bias),
        )
    if kind in (keras.layers.MaxPooling2D, keras.layers.AveragePooling2D):
        sizes = [reader.integer() for _ in range(4)]
        (padding,) = reader.digits(2)
        return kind(tuple(sizes[:2]), strides=tuple(sizes[2:]), padding=_PADDINGS[padding])
    if kind is keras.layers.Activation:
        return kind(ACTIVATIONS[reader.integer()])
    if kind is SelectInputs:
        mask = np.frombuffer(reader.take(-(-num_inputs // 8)), np.uint8)
        return kind(np.flatnonzero(np.unpackbits(mask)[:num_inputs]).tolist())
    names = () if code == STORED.index(keras.layers.ReLU) else _NUMBERS.get(kind, ())
    values = {name: float(reader.array("f8", 1)[0]) for name in names}
    return kind(**{name: None if value == np.inf else value for name, value in values.items()})


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


def _read_model(reader: Reader, radix: int, max_weights: int) -> keras.Model:
    """Layers, then weights, then room for them: a size that the file cannot fill is refused before."""
    bias_type = _BIASES[reader.take(1)[0]]
    axes = reader.at_most(_MAX_AXES, "axes")
    shape = input_shape = tuple(reader.integer() or None for _ in range(axes))
    layers, shapes, left = [], [], max_weights
    for _ in range(reader.at_most(_MAX_LAYERS, "layers")):
        layer = _read_layer(reader, int(shape[-1] or 0), radix)
        if isinstance(layer, _SHAPED):
            shapes.append(_kernel_shape(layer, shape))
            left -= math.prod(shapes[-1]) + shapes[-1][-1]
            if left < 0:
                raise ValueError(f"it has more than max_weights={max_weights:,} weights")
        layers.append(layer)
        shape = tuple(layer.compute_output_shape((None, *shape)))[1:]
    weights = []
    for layer, kernel_shape in zip((layer for layer in layers if isinstance(layer, _SHAPED)), shapes, strict=True):
        weights.append([read_kernel(reader, kernel_shape)])
        if layer.use_bias:
            weights[-1].append(reader.array(bias_type, kernel_shape[-1]).astype(np.float32))
    reader.finish()
    return _built(input_shape, layers, weights)


def _kernel_shape(layer: keras.Layer, input_shape: tuple[int | None, ...]) -> tuple[int, ...]:
    is_dense = isinstance(layer, keras.layers.Dense)
    if len(input_shape) != (1 if is_dense else 3) or input_shape[-1] is None:
        raise ValueError(f"a {type(layer).__name__} layer has inputs {input_shape}")
    return (*(() if is_dense else layer.kernel_size), input_shape[-1], layer.units if is_dense else layer.filters)


def _built(
    input_shape: tuple[int | None, ...], layers: Sequence[keras.Layer], weights: Sequence[Sequence[np.ndarray]]
) -> keras.Model:
    """The network, without drawing initial weights that would be overwritten."""
    x = inputs = keras.Input(input_shape)
    values = iter(weights)
    for layer in layers:
        if not isinstance(layer, _SHAPED):
            x = layer(x)
            continue
        initializer, layer.kernel_initializer = layer.kernel_initializer, keras.initializers.Zeros()
        x = layer(x)
        layer.kernel_initializer = initializer
        layer.set_weights(next(values))
    return keras.Model(inputs, x)
