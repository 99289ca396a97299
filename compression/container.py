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
from typing import Any, NamedTuple

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from compression.chain import walk
from compression.files import atomic_path
from compression.kernel_coding import SCHEMES, Kernel, Raw, Reader, kernel_bytes, leb, read_kernel
from compression.layer_coding import RADIX, layer_bytes, read_layer
from compression.supported import DROPOUT, STORED, problem

__all__ = [
    "FORMAT_VERSION",
    "MAX_WEIGHTS",
    "Contents",
    "Kernel",
    "Raw",
    "StoredLayer",
    "bcz_bytes",
    "chain",
    "kernels_of",
    "kinds",
    "load_bcz",
    "read_bcz",
    "save_bcz",
    "with_kernels",
]

FORMAT_VERSION = 2
MAX_WEIGHTS = 2**27
"""Weights that `load_bcz` makes room for unless it is told otherwise: 0.5 GiB."""

_MAGIC = b"\x89BCZ"
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
    content = bcz_bytes(model, kernels, biases=biases, entropy_coded=entropy_coded)
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
    return len(content)


def bcz_bytes(
    model: keras.Model,
    kernels: Sequence[Kernel] | None = None,
    *,
    biases: str = "float32",
    entropy_coded: bool = True,
) -> bytes:
    """What :func:`save_bcz` writes."""
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
        out += layer_bytes(layer)
    for layer, code in zip(shaped, codes, strict=True):
        out += kernel_bytes(code, entropy_coded)
        if layer.use_bias:
            out += _rounded_bias(layer, biases).astype(f"<{_BIASES[out[0]]}").tobytes()
    return _MAGIC + bytes([FORMAT_VERSION]) + struct.pack("<I", zlib.crc32(out)) + bytes(out)


class StoredLayer(NamedTuple):
    """The weights of one layer in a file.

    :ivar kind: of the layer. :ivar shape: of its kernel. :ivar coding: one of `compression.kernel_coding.SCHEMES`.
    :ivar bytes: of kernel and bias in the file. :ivar kernel: float32. :ivar bias: float32, or None.
    """

    kind: str
    shape: tuple[int, ...]
    coding: str
    bytes: int
    kernel: NDArray[np.float32]
    bias: NDArray[np.float32] | None


class Contents(NamedTuple):
    """What is in a file.

    :ivar version: of the format. :ivar bytes: of the file. :ivar biases: their type in the file.
    :ivar input_shape: without the axis of examples; None for a size that is open.
    :ivar layers: all layers, without weights. :ivar weights: of the Dense and Conv2D layers, in order.
    """

    version: int
    bytes: int
    biases: str
    input_shape: tuple[int | None, ...]
    layers: list[keras.Layer]
    weights: list[StoredLayer]


def load_bcz(path: str | os.PathLike[str], *, max_weights: int = MAX_WEIGHTS) -> keras.Model:
    """Read the network in a file: a plain Keras model in float32.

    A file from somebody else runs no code. What it says of sizes is checked before room is made for them.

    :param max_weights: the largest number of weights of all layers together.
    :raises ValueError: if the file is none of this format, is of an unknown version, truncated or damaged, or has more
        weights.
    :raises OSError: if there is no such file.
    """
    found = read_bcz(path, max_weights=max_weights)
    try:
        return _built(found)
    except (ValueError, TypeError) as error:
        raise _impossible(path, error) from error


def read_bcz(path: str | os.PathLike[str], *, max_weights: int = MAX_WEIGHTS) -> Contents:
    """What is in a file, without making a network of it. Parameters and errors as for `load_bcz`."""
    content = Path(path).read_bytes()
    if content[: len(_MAGIC)] != _MAGIC:
        raise ValueError(f"{path} is not a .bcz file: it starts with {content[:4]!r}, not with {_MAGIC!r}.")
    if len(content) < 9:
        raise ValueError(f"{path} is truncated: it has {len(content)} bytes, too few for a header; get it again.")
    version = content[4]
    if version not in RADIX:
        raise ValueError(
            f"{path} has version {version} of the format, and this program reads version {FORMAT_VERSION} and "
            "earlier ones; use the program that wrote it."
        )
    if struct.unpack("<I", content[5:9])[0] != zlib.crc32(content[9:]):
        raise ValueError(f"{path} is truncated or damaged: its checksum does not match; get it again.")
    try:
        return _parsed(Reader(content[9:]), version, max_weights, len(content))
    except (ValueError, IndexError, TypeError, KeyError, OverflowError, struct.error) as error:
        raise _impossible(path, error) from error


def _impossible(path: str | os.PathLike[str], error: Exception) -> ValueError:
    return ValueError(f"{path} has a matching checksum but impossible content ({error}); write it again.")


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


def _parsed(reader: Reader, version: int, max_weights: int, num_bytes: int) -> Contents:
    """Layers, then weights: a size that the file cannot fill is refused before there is room for it."""
    bias_type = _BIASES[reader.take(1)[0]]
    axes = reader.at_most(_MAX_AXES, "axes")
    shape = input_shape = tuple(reader.integer() or None for _ in range(axes))
    layers, shapes, left = [], [], max_weights
    for _ in range(reader.at_most(_MAX_LAYERS, "layers")):
        layer = read_layer(reader, int(shape[-1] or 0), RADIX[version])
        if isinstance(layer, _SHAPED):
            shapes.append(_kernel_shape(layer, shape))
            left -= math.prod(shapes[-1]) + shapes[-1][-1]
            if left < 0:
                raise ValueError(f"it has more than max_weights={max_weights:,} weights")
        layers.append(layer)
        shape = tuple(layer.compute_output_shape((None, *shape)))[1:]
    weights = []
    for layer, kernel_shape in zip((layer for layer in layers if isinstance(layer, _SHAPED)), shapes, strict=True):
        start = reader.position
        coding = SCHEMES.get(reader.peek(), "unknown")
        kernel = read_kernel(reader, kernel_shape)
        bias = reader.array(bias_type, kernel_shape[-1]).astype(np.float32) if layer.use_bias else None
        size = reader.position - start
        weights.append(StoredLayer(type(layer).__name__, kernel_shape, coding, size, kernel, bias))
    reader.finish()
    return Contents(version, num_bytes, {"f4": "float32", "f2": "float16"}[bias_type], input_shape, layers, weights)


def _kernel_shape(layer: keras.Layer, input_shape: tuple[int | None, ...]) -> tuple[int, ...]:
    is_dense = isinstance(layer, keras.layers.Dense)
    if len(input_shape) != (1 if is_dense else 3) or input_shape[-1] is None:
        raise ValueError(f"a {type(layer).__name__} layer has inputs {input_shape}")
    return (*(() if is_dense else layer.kernel_size), input_shape[-1], layer.units if is_dense else layer.filters)


def _built(found: Contents) -> keras.Model:
    """The network, without drawing initial weights that would be overwritten."""
    x = inputs = keras.Input(found.input_shape)
    weights = iter(found.weights)
    for layer in found.layers:
        if not isinstance(layer, _SHAPED):
            x = layer(x)
            continue
        initializer, layer.kernel_initializer = layer.kernel_initializer, keras.initializers.Zeros()
        x = layer(x)
        layer.kernel_initializer, stored = initializer, next(weights)
        layer.set_weights([stored.kernel] if stored.bias is None else [stored.kernel, stored.bias])
    return keras.Model(inputs, x)
