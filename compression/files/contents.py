"""`.bcz` files read again: see `compression.files.container` for what is in them."""

import json
import math
import os
import struct
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from ..graph.graph import Graph, layers_of, model_of
from ..rounding.bits import MAX_SIGNIFICANT
from .chain_coding import read_chain
from .graph_coding import read_graph
from .kernel_coding import SCHEMES, Reader, read_integers, read_kernel
from .random_coding import read_code

__all__ = [
    "BIASES",
    "IS_CHAIN",
    "MAGIC",
    "MAX_WEIGHTS",
    "RANDOM_CODE",
    "RANDOM_NAME",
    "VERSIONS",
    "VERSION_OF_CODES",
    "VERSION_OF_VALUES",
    "Contents",
    "StoredLayer",
    "contents_of",
    "has_bias",
    "is_coded",
    "load_bcz",
    "network_of",
    "read_bcz",
    "stored_weights",
]

VERSION_OF_VALUES, VERSION_OF_CODES = VERSIONS = (4, 5)
"""Of the format: of files without and with a random code, which are the same otherwise."""
MAX_WEIGHTS = 2**27
"""Weights that `load_bcz` makes room for unless it is told otherwise: 0.5 GiB."""

MAGIC = b"\x89BCZ"
IS_CHAIN = 0x80
"""Of the flags: the layers are a chain."""
BIASES = ("float32", "float16")
"""Types of biases; a number s in their place: multiples of 2**-s, coded."""
RANDOM_NAME = "random code"
RANDOM_CODE = len(BIASES) + MAX_SIGNIFICANT + 1
"""In place of a type of biases: kernels and biases are a random code, in version 5."""


class StoredLayer(NamedTuple):
    """The weights of one layer in a file, or one of them if it has several kernels or other weights.

    :ivar kind: of the layer. :ivar shape: of its kernel.
    :ivar coding: one of `compression.files.kernel_coding.SCHEMES`, or "random code".
    :ivar bytes: of kernel and bias in the file; of a random code their share of it.
    :ivar kernel: float32. :ivar bias: float32, or None.
    """

    kind: str
    shape: tuple[int, ...]
    coding: str
    bytes: int
    kernel: NDArray[np.float32]
    bias: NDArray[np.float32] | None


class Contents(NamedTuple):
    """What is in a file.

    :ivar version: of the format. :ivar bytes: of the file.
    :ivar biases: their type, one of `BIASES`, "random code", or their significant bits.
    :ivar input_shape: of the first input, without the axis of examples; None for a size that is open.
    :ivar layers: all layers, without weights. :ivar weights: of the layers that have some, in order.
    :ivar graph: the calls of the layers.
    """

    version: int
    bytes: int
    biases: str | int
    input_shape: tuple[int | None, ...]
    layers: list[keras.Layer]
    weights: list[StoredLayer]
    graph: Graph


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
        return network_of(found)
    except _IMPOSSIBLE as error:
        raise _impossible(path, error) from error


def read_bcz(path: str | os.PathLike[str], *, max_weights: int = MAX_WEIGHTS) -> Contents:
    """What is in a file, without making a network of it. Parameters and errors as for `load_bcz`."""
    content = Path(path).read_bytes()
    if content[: len(MAGIC)] != MAGIC:
        raise ValueError(f"{path} is not a .bcz file: it starts with {content[:4]!r}, not with {MAGIC!r}.")
    if len(content) < 9:
        raise ValueError(f"{path} is truncated: it has {len(content)} bytes, too few for a header; get it again.")
    version = content[4]
    if version not in VERSIONS:
        raise ValueError(
            f"{path} has version {version} of the format, and this program reads versions "
            f"{' and '.join(map(str, VERSIONS))}; use the program that wrote it."
        )
    if struct.unpack("<I", content[5:9])[0] != zlib.crc32(content[9:]):
        raise ValueError(f"{path} is truncated or damaged: its checksum does not match; get it again.")
    try:
        return _parsed(Reader(content[9:]), version, max_weights, len(content))
    except _IMPOSSIBLE as error:
        raise _impossible(path, error) from error


_IMPOSSIBLE = (
    *(ValueError, IndexError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, NotImplementedError),
    *(struct.error, json.JSONDecodeError, tf.errors.OpError),
)


def _impossible(path: str | os.PathLike[str], error: Exception) -> ValueError:
    return ValueError(f"{path} has a matching checksum but impossible content ({error}); write it again.")


def stored_weights(layer: keras.Layer) -> list[keras.Variable]:
    """Weights in a file; statistics of `Normalization` are settings."""
    return [] if isinstance(layer, keras.layers.Normalization) else layer.weights


def has_bias(shapes: Sequence[Sequence[int]]) -> bool:
    """Whether weights of these shapes are a kernel and its bias."""
    return [len(shape) > 1 for shape in shapes] == [True, False]


def contents_of(content: bytes) -> Contents:
    """What is in the bytes of a file that was just written; of any size.

    :raises ValueError: if they are none of such a file.
    """
    return _parsed(Reader(content[9:]), content[4], sys.maxsize, len(content))


def _parsed(reader: Reader, version: int, max_weights: int, num_bytes: int) -> Contents:
    """Layers, then weights: a size that the file cannot fill is refused before there is room for it."""
    flags = reader.take(1)[0]
    biases = _bias_type(flags & ~IS_CHAIN, version)
    read_layers = read_chain if flags & IS_CHAIN else read_graph
    graph, shapes = read_layers(reader, max_weights)
    layers, weights = [node.layer for node in layers_of(graph)], list[StoredLayer]()
    if biases == RANDOM_NAME:
        weights = _read_random(reader, layers, shapes)
    else:
        for layer, layer_shapes in zip(layers, shapes, strict=True):
            weights += _read_weights(reader, layer, layer_shapes, biases)
    reader.finish()
    input_shape = graph.tensors[graph.input_numbers[0]].shape[1:]
    return Contents(version, num_bytes, biases, input_shape, layers, weights, graph)


def _bias_type(number: int, version: int) -> str | int:
    if number < len(BIASES):
        return BIASES[number]
    if number == RANDOM_CODE and version == VERSION_OF_CODES:
        return RANDOM_NAME
    significant = number - len(BIASES)
    if significant > MAX_SIGNIFICANT:
        raise ValueError(f"the type {number} of biases is not known")
    return significant


def _read_weights(
    reader: Reader, layer: keras.Layer, shapes: Sequence[tuple[int, ...]], biases: str | int
) -> list[StoredLayer]:
    found: list[StoredLayer] = []
    is_biased = has_bias(shapes)
    for shape in shapes:
        start, kind = reader.position, type(layer).__name__
        if len(shape) > 1:
            coding = SCHEMES.get(reader.peek(), "unknown")
            kernel = read_kernel(reader, shape)
            found.append(StoredLayer(kind, shape, coding, reader.position - start, kernel, None))
            continue
        values = _read_vector(reader, math.prod(shape), biases if is_biased else "float32").reshape(shape)
        size = reader.position - start
        if is_biased:
            found[-1] = found[-1]._replace(bias=values, bytes=found[-1].bytes + size)
        else:
            found.append(StoredLayer(kind, shape, "float32", size, values, None))
    return found


def is_coded(shapes: Sequence[Sequence[int]]) -> list[bool]:
    """Which weights of a layer, of these shapes, a random code holds: kernels, and the bias of one."""
    return [len(shape) > 1 or has_bias(shapes) for shape in shapes]


def _read_random(
    reader: Reader, layers: Sequence[keras.Layer], shapes: Sequence[list[tuple[int, ...]]]
) -> list[StoredLayer]:
    """Weights of all layers: the others as float32, then the code of kernels and biases."""
    others = [
        [None if coded else _read_vector(reader, math.prod(shape), "float32").reshape(shape) for shape, coded in pairs]
        for pairs in (list(zip(each, is_coded(each), strict=True)) for each in shapes)
    ]
    coded = [shape for each in shapes for shape, in_code in zip(each, is_coded(each), strict=True) if in_code]
    start = reader.position
    values = iter(read_code(reader, coded).values())
    rate = (reader.position - start) / max(1, sum(math.prod(shape) for shape in coded))
    found: list[StoredLayer] = []
    for layer, layer_shapes, layer_others in zip(layers, shapes, others, strict=True):
        kind = type(layer).__name__
        for shape, other in zip(layer_shapes, layer_others, strict=True):
            if other is not None:
                found.append(StoredLayer(kind, shape, "float32", other.nbytes, other, None))
                continue
            part, size = next(values), round(rate * math.prod(shape))
            if len(shape) > 1:
                found.append(StoredLayer(kind, shape, RANDOM_NAME, size, part, None))
            else:
                found[-1] = found[-1]._replace(bias=part, bytes=found[-1].bytes + size)
    return found


def _read_vector(reader: Reader, count: int, kind: str | int) -> NDArray[np.float32]:
    if isinstance(kind, int):
        return np.ldexp(read_integers(reader, count).astype(np.float64), -kind).astype(np.float32)
    return reader.array({"float32": "f4", "float16": "f2"}[kind], count).astype(np.float32)


_INITIALIZERS = ("kernel", "depthwise", "pointwise", "embeddings", "recurrent", "alpha")


def network_of(found: Contents) -> keras.Model:
    """The network, without drawing initial weights that would be overwritten; it can be made once."""
    kept = []
    for layer in found.layers:
        for name in (f"{part}_initializer" for part in _INITIALIZERS):
            if name in vars(layer):
                kept.append((layer, name, getattr(layer, name)))
                setattr(layer, name, keras.initializers.Zeros())
    model = model_of(found.graph)
    for layer, name, value in kept:
        setattr(layer, name, value)
    stored = iter([part for each in found.weights for part in (each.kernel, each.bias) if part is not None])
    for layer in found.layers:
        layer.set_weights([next(stored) for _ in stored_weights(layer)])
    return model
