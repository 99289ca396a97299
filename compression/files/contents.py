"""`.bcz` files read again: see `compression.files.container` for what is in them."""

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import keras
import numpy as np
from numpy.typing import NDArray

from gpflow_deep_base.storage.frame import unframed
from gpflow_deep_base.storage.limits import Budget, refuse_damaged

from ..graph.graph import Graph, layers_of, model_of
from ..graph.supported import custom_layers
from ..rounding.bits import MAX_SIGNIFICANT
from .coding.chain_coding import read_chain
from .coding.costs import budget_for, take_draws
from .coding.graph_coding import read_graph, stored_weights
from .coding.kernel_coding import SCHEMES, Reader, read_integers, read_kernel
from .random_codes.random_coding import read_code

__all__ = [
    "BIASES",
    "IS_CHAIN",
    "MAGIC",
    "RANDOM_CODE",
    "RANDOM_NAME",
    "VERSIONS",
    "VERSION_OF_CODES",
    "VERSION_OF_VALUES",
    "VERSION_OF_WEIGHTS",
    "Contents",
    "StoredLayer",
    "contents_of",
    "has_bias",
    "is_coded",
    "load_bcz",
    "load_own",
    "network_of",
    "parsed_file",
    "read_bcz",
    "stored_weights",
]

VERSION_OF_VALUES, VERSION_OF_CODES = VERSIONS = (4, 5)
"""Of the format: of files without and with a random code, which are the same otherwise."""
VERSION_OF_WEIGHTS = 6
"""Of files without a network, see `compression.files.weights_file`."""
MAGIC = b"\x89BCZ"
WHAT = "a .bcz network"
Found = TypeVar("Found")
IS_CHAIN = 0x80
"""Of the flags: the layers are a chain."""
BIASES = ("float32", "float16")
"""Types of biases; a number s in their place: multiples of 2**-s, coded."""
RANDOM_NAME = "random code"
RANDOM_CODE = len(BIASES) + MAX_SIGNIFICANT + 1
"""In place of a type of biases: kernels and biases are a random code, in version 5."""


class StoredLayer(NamedTuple):
    """The weights of one layer in a file, or one of them if it has several kernels or other weights.

    :ivar kind: of the layer.
    :ivar shape: of its kernel.
    :ivar coding: one of `compression.files.coding.kernel_coding.SCHEMES`, or "random code".
    :ivar bytes: of kernel and bias in the file; of a random code their share of it.
    :ivar kernel: float32.
    :ivar bias: float32, or None.
    """

    kind: str
    shape: tuple[int, ...]
    coding: str
    bytes: int
    kernel: NDArray[np.float32]
    bias: NDArray[np.float32] | None


class Contents(NamedTuple):
    """What is in a file.

    :ivar version: of the format.
    :ivar bytes: of the file.
    :ivar biases: their type, one of `BIASES`, "random code", or their significant bits.
    :ivar input_shape: of the first input, without the axis of examples; None for a size that is open.
    :ivar layers: all layers, without weights.
    :ivar weights: of the layers that have some, in order.
    :ivar graph: the calls of the layers.
    """

    version: int
    bytes: int
    biases: str | int
    input_shape: tuple[int | None, ...]
    layers: list[keras.Layer]
    weights: list[StoredLayer]
    graph: Graph


def load_bcz(
    path: str | os.PathLike[str],
    *,
    max_bytes: int | None = None,
    custom_objects: Mapping[str, type] | None = None,
) -> keras.Model:
    """Read the network in a file: a plain Keras model in float32.

    A file from somebody else runs no code but that of `custom_objects`. What it says of sizes is checked before room
    is made for them.

    :param max_bytes: that reading may take, time for layers counted as bytes; 100 MB and 256 times the length of the
        file if not given, which refuses files of less than 3/4 of a bit for each of 4 million weights or more.
    :param custom_objects: layers of the user's own, by the names under which they were written.
    :raises ValueError: if the file is none of this format, is of an unknown version, truncated or damaged, or takes
        more.
    :raises OSError: if there is no such file.
    """
    with custom_layers(custom_objects):
        contents = read_bcz(path, max_bytes=max_bytes)
        try:
            return network_of(contents)
        except Exception as error:  # of whatever Keras makes of it
            refuse_damaged(path, WHAT, error)


def read_bcz(path: str | os.PathLike[str], *, max_bytes: int | None = None) -> Contents:
    """What is in a file, without making a network of it. Parameters and errors as for `load_bcz`."""
    return parsed_file(path, _parsed, WHAT, max_bytes)


def parsed_file(
    path: str | os.PathLike[str],
    parse: Callable[[bytes, Budget], Found],
    what: str,
    max_bytes: int | None = None,
) -> Found:
    """What `parse` makes of a file within its budget.

    :param parse: of the content and the budget.
    :param what: the file must be, for messages.
    :param max_bytes: as for `load_bcz`.
    :raises ValueError: whatever is wrong with the content, by the path.
    :raises OSError: if there is no such file.
    """
    # What is made of the content has to stay within a budget, whatever goes wrong in it.
    content = Path(path).expanduser().read_bytes()
    budget = budget_for(len(content), max_bytes)
    try:
        return parse(content, budget)
    except Exception as error:
        refuse_damaged(path, what, error)


def load_own(path: str | os.PathLike[str]) -> keras.Model:
    """The network in a file that this process has just written, of any size; else as :func:`load_bcz`."""
    return load_bcz(path, max_bytes=sys.maxsize)


def has_bias(shapes: Sequence[Sequence[int]]) -> bool:
    """Whether weights of these shapes are a kernel and its bias."""
    return [len(shape) > 1 for shape in shapes] == [True, False]


def contents_of(content: bytes) -> Contents:
    """What is in the bytes of a file that was just written; of any size.

    :raises ValueError: if they are none of such a file.
    """
    return _parsed(content, Budget(sys.maxsize))


def _parsed(content: bytes, budget: Budget) -> Contents:
    """Layers, then weights: a size that the file cannot fill is refused before there is room for it."""
    if content[: len(MAGIC) + 1] == MAGIC + bytes([VERSION_OF_WEIGHTS]):
        raise ValueError("it holds weights only: make the network by its code, and call compression.load_weights")
    version, payload = unframed(content, magic=MAGIC, versions=VERSIONS)
    # Flags: the type of biases, and whether the layers are a chain.
    reader = Reader(payload)
    flags = reader.take(1)[0]
    biases = _bias_type(flags & ~IS_CHAIN, version)
    read_layers = read_chain if flags & IS_CHAIN else read_graph
    graph, shapes = read_layers(reader, budget)
    layers = [node.layer for node in layers_of(graph)]
    # Weights, in the order of the layers.
    weights = list[StoredLayer]()
    if biases == RANDOM_NAME:
        for layer_shapes in shapes:
            take_draws(budget, layer_shapes)
        weights = _read_random(reader, layers, shapes)
    else:
        for layer, layer_shapes in zip(layers, shapes, strict=True):
            weights += _read_weights(reader, layer, layer_shapes, biases)
    reader.end()
    # Numbers that no network computes with are refused.
    for part in (part for stored in weights for part in (stored.kernel, stored.bias) if part is not None):
        if not np.all(np.isfinite(part)):
            raise ValueError("a weight is not finite")
    input_shape = graph.tensors[graph.input_numbers[0]].shape[1:]
    return Contents(version, len(content), biases, input_shape, layers, weights, graph)


def _bias_type(number: int, version: int) -> str | int:
    if number < len(BIASES):
        return BIASES[number]
    # A type by its place in the list, a random code, or significant bits.
    if number == RANDOM_CODE and version == VERSION_OF_CODES:
        return RANDOM_NAME
    significant = number - len(BIASES)
    if significant > MAX_SIGNIFICANT:
        raise ValueError(f"the type {number} of biases is not known")
    return significant


def _read_weights(
    reader: Reader, layer: keras.Layer, shapes: Sequence[tuple[int, ...]], biases: str | int
) -> list[StoredLayer]:
    stored_layers: list[StoredLayer] = []
    is_biased = has_bias(shapes)
    for shape in shapes:
        start = reader.place
        kind = type(layer).__name__
        if len(shape) > 1:
            coding = SCHEMES.get(reader.peek(), "unknown")
            kernel = read_kernel(reader, shape)
            stored_layers.append(StoredLayer(kind, shape, coding, reader.place - start, kernel, None))
            continue
        # A vector: the bias of the kernel before it, or a weight of its own.
        values = _read_vector(reader, math.prod(shape), biases if is_biased else "float32").reshape(shape)
        size = reader.place - start
        if is_biased:
            stored_layers[-1] = stored_layers[-1]._replace(bias=values, bytes=stored_layers[-1].bytes + size)
        else:
            stored_layers.append(StoredLayer(kind, shape, "float32", size, values, None))
    return stored_layers


def is_coded(shapes: Sequence[Sequence[int]]) -> list[bool]:
    """Which weights of a layer, of these shapes, a random code holds: kernels, and the bias of one."""
    return [len(shape) > 1 or has_bias(shapes) for shape in shapes]


def _read_random(
    reader: Reader, layers: Sequence[keras.Layer], shapes: Sequence[list[tuple[int, ...]]]
) -> list[StoredLayer]:
    """Weights of all layers: the others as float32, then the code of kernels and biases."""
    # Weights that are no part of the code stand before it.
    others = [
        [None if coded else _read_vector(reader, math.prod(shape), "float32").reshape(shape) for shape, coded in pairs]
        for pairs in (list(zip(shapes_of_layer, is_coded(shapes_of_layer), strict=True)) for shapes_of_layer in shapes)
    ]
    coded = [
        shape
        for shapes_of_layer in shapes
        for shape, in_code in zip(shapes_of_layer, is_coded(shapes_of_layer), strict=True)
        if in_code
    ]
    # All of the code at once; each weight has an equal share of its bytes.
    start = reader.place
    values = iter(read_code(reader, coded).values())
    rate = (reader.place - start) / max(1, sum(math.prod(shape) for shape in coded))
    stored_layers: list[StoredLayer] = []
    for layer, layer_shapes, layer_others in zip(layers, shapes, others, strict=True):
        kind = type(layer).__name__
        for shape, other in zip(layer_shapes, layer_others, strict=True):
            if other is not None:
                stored_layers.append(StoredLayer(kind, shape, "float32", other.nbytes, other, None))
                continue
            part = next(values)
            size = round(rate * math.prod(shape))
            if len(shape) > 1:
                stored_layers.append(StoredLayer(kind, shape, RANDOM_NAME, size, part, None))
            else:
                stored_layers[-1] = stored_layers[-1]._replace(bias=part, bytes=stored_layers[-1].bytes + size)
    return stored_layers


def _read_vector(reader: Reader, count: int, kind: str | int) -> NDArray[np.float32]:
    if isinstance(kind, int):
        return np.ldexp(read_integers(reader, count).astype(np.float64), -kind).astype(np.float32)
    return reader.array({"float32": "f4", "float16": "f2"}[kind], count).astype(np.float32)


def network_of(found: Contents) -> keras.Model:
    """The network, without drawing initial weights that would be overwritten; it can be made once."""
    # While the network is made, initial weights are zeros, which cost no time.
    initializers = []
    for layer in found.layers:
        for part in layer._flatten_layers():
            for name in [name for name in vars(part) if name.endswith("_initializer")]:
                initializers.append((part, name, getattr(part, name)))
                setattr(part, name, keras.initializers.Zeros())
    model = model_of(found.graph)
    for part, name, value in initializers:
        setattr(part, name, value)
    # Weights in the order of the layers, each kernel before its bias.
    arrays = iter([part for stored in found.weights for part in (stored.kernel, stored.bias) if part is not None])
    for layer in found.layers:
        layer.set_weights([next(arrays) for _ in stored_weights(layer)])
    return model
