"""`.bcz` files: a plain Keras network in as few bytes as its weights need.

    kernels = [codebook(w, 16) for w in kernels_of(model)]
    small = with_kernels(model, kernels, biases="float16")     # the network whose error is measured
    save_bcz(model, "network.bcz", kernels, biases="float16")
    load_bcz("network.bcz")                                    # the same weights as `small`, bit for bit

A file is `\\x89BCZ`, the version (1 byte), the CRC-32 of what follows (4 bytes, little-endian), and:

    flags      1 byte: bit 7 set if the layers are a chain; in the others the type of biases: 0 float32, 1 float16,
               2 + s multiples of 2**-s; 26 if kernels and biases are a random code
    layers     as a chain or as a graph, see below
    weights    of each layer, in order: each kernel, that is, weight with two or more axes, as a scheme (1 byte) and its
               data; the bias of a kernel in its type, multiples by their number of bytes and the integers coded with
               contexts; each other one as float32

A chain is of the layers in `compression.graph.supported.CHAIN_LAYERS`, channels last, without groups and dilation, of
which is said

    input      number of axes, then each size, 0 for one that the network leaves open
    layers     their number, then for each: its kind (1 byte) and parameters; for a selection of inputs a bit mask

Kinds are places in that list, and 13 for a ReLU with a slope, threshold or maximum; a ReLU with these, LeakyReLU and
ELU have their numbers as float64. Any other network of the layers in `compression.graph.supported.STORED` is a
compressed text, which the module `compression.files.coding.graph_coding` describes.

Version 5 has random codes; files without one are written as version 4. The weights of such a file are the vectors that
are no bias of a kernel, as float32, and then, of all kernels and biases together: how many bits C the number of a draw
has (1 byte, bit 7 set if weights are shared), the seed, the number of blocks, the scale of the prior of each kernel and
bias (1 byte each), if weights are shared how many share one, of each, and the numbers of the draws, as bit fields of C
bits. `compression.files.random_codes.random_coding` says what they mean.

Integers are LEB128: 7 bits a byte, the lowest first, the highest bit set if more follow. Bit fields begin at the
highest bit of a byte and are padded to whole bytes at the end of a kernel. The schemes are

    0 raw             float32, little-endian
    1 fixed point     significant and exponent bits (1 byte each), then integers of 1 + e + t bits, plus 2**(e + t)
    2 codebook        k - 1 (1 byte), k float16 centres, then indices of ceil(log2 k) bits
    9 grid            a step (float16), how many bits b (1 byte), then integers of b bits, plus 2**(b - 1)
    6 codebook        as 2, but the most frequent index (1 byte), then the differences of the indices from it, coded
    7 fixed point     as 1, but the integers coded
    8 grid            a step (float16), then the integers coded

Coded integers are a matrix of the inputs (all axes but the last) and the outputs of a kernel: its order (1 byte: bit 0
set if it goes by rows, bit 1 if two integers follow, how many rows before a row its neighbours to the left and above
are), the number of bytes, and what `compression.files.coding.context_coding` makes of it.

Files of weights only, version 6, are in `compression.files.weights_file`.
"""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpflow_deep_base.files import write_bytes
from gpflow_deep_base.storage.frame import framed
from gpflow_deep_base.storage.limits import one_line

from ..graph.graph import Graph, graph_of, kernel_variables, layers_of
from ..graph.rebuild import copy_of
from ..graph.removal.neighbours import strides_of
from ..graph.supported import STORED, custom_layers
from ..rounding.bits import MAX_SIGNIFICANT
from .checking import check_content
from .coding.chain_coding import chain_bytes, fits_chain
from .coding.graph_coding import check_call, check_layer, for_files, graph_bytes, without_masks
from .coding.kernel_coding import Kernel, Raw, integers_bytes, kernel_bytes
from .contents import (
    BIASES,
    IS_CHAIN,
    MAGIC,
    RANDOM_CODE,
    VERSION_OF_CODES,
    VERSION_OF_VALUES,
    Contents,
    StoredLayer,
    has_bias,
    is_coded,
    load_bcz,
    read_bcz,
    stored_weights,
)
from .random_codes.random_coding import RandomCode, code_bytes

__all__ = [
    "Contents",
    "Encoded",
    "Kernel",
    "Raw",
    "StoredLayer",
    "bcz_bytes",
    "check_storable",
    "coded_variables",
    "encode",
    "kernels_of",
    "kinds",
    "load_bcz",
    "read_bcz",
    "save_bcz",
    "with_kernels",
    "write_encoded",
]


def kinds() -> list[str]:
    """Names of the layers that a file can hold; dropout and the like are left out, as they do nothing at test time."""
    return list(STORED)


def check_storable(model: keras.Model) -> None:
    """Refuse a network that no file can hold.

    Unless it is a chain, a file is made and read in memory, so that all that may be wrong with it is said before hours
    of training and not after them.

    :raises ValueError: naming a layer that is not one of :func:`kinds`, or has an option that a file cannot hold; or if
        the network is not built.
    """
    if not fits_chain(_stored_graph(model)):
        _check_encoded(encode(model))


def _stored_graph(model: keras.Model) -> Graph:
    graph = without_masks(for_files(graph_of(model)))
    for node in graph.nodes:
        check_layer(node.name, node.layer)
        check_call(node)
    return graph


def kernels_of(model: keras.Model) -> list[NDArray[np.float32]]:
    """Kernels of a network, that is, its weights with two or more axes, in the order of a file."""
    return [_array(variable) for _, variable in kernel_variables(model)]


def _array(variable: keras.Variable) -> NDArray[np.float32]:
    return np.asarray(variable, np.float32)


def with_kernels(
    model: keras.Model, kernels: Sequence[Kernel | ArrayLike], *, biases: str | int = "float32"
) -> keras.Model:
    """A copy of a network with these weights, and its biases rounded to `biases`: what a file of them gives back.

    :param kernels: one for each of :func:`kernels_of`, of the same shape.
    :param biases: "float32", "float16", or a number s, for multiples of 2**-s.
    :raises ValueError: if numbers or shapes differ, or a bias is too large for float16.
    """
    # Kernels take the given values; biases are rounded as a file has them.
    copy = copy_of(model)
    graph = graph_of(copy)
    kernel_pairs = kernel_variables(graph)
    for (_, variable), kernel in zip(kernel_pairs, _values(kernel_pairs, kernels), strict=True):
        variable.assign(kernel)
    for node in layers_of(graph):
        if has_bias([variable.shape for variable in node.layer.weights]):
            bias = node.layer.weights[1]
            bias.assign(_rounded(node.name, bias, biases))
    return copy


def save_bcz(
    model: keras.Model,
    path: str | os.PathLike[str],
    kernels: Sequence[Kernel] | RandomCode | None = None,
    *,
    biases: str | int = "float32",
    entropy_coded: bool = True,
    custom_objects: Mapping[str, type] | None = None,
) -> int:
    """Write a network to a file, in one piece: a file is whole or absent.

    What is to be written is read again first: weights, layers and calls, and outputs for random inputs must be those of
    the network, or what is at `path` stays as it was.

    :param model: Sequential or functional, of the layers in :func:`kinds`.
    :param kernels: weights, one for each of :func:`kernels_of`; None: as they are, in float32; or a random code of all
        kernels and biases.
    :param biases: "float32", "float16", or a number s from 0 to 23: multiples of 2**-s, coded.
    :param entropy_coded: arithmetic coding for each kernel where that makes the file smaller; False: fields of equal
        size, which can be read at any place.
    :param custom_objects: layers of the user's own by name, which :func:`load_bcz` has to be given again.
    :return: size of the file in bytes.
    :raises ValueError: if the network cannot be held (see :func:`check_storable`), numbers or shapes differ, a value is
        NaN, or the file would not give back the network.
    """
    with custom_layers(custom_objects):
        encoded = encode(model, kernels, biases=biases, entropy_coded=entropy_coded)
        write_encoded(path, encoded)
    return len(encoded.content)


class Encoded(NamedTuple):
    """A file that is not written yet.

    :ivar content: its bytes.
    :ivar model: whose layers it has.
    :ivar values: the weights in it, in order.
    """

    content: bytes
    model: keras.Model
    values: list[NDArray[np.float32]]


def write_encoded(path: str | os.PathLike[str], encoded: Encoded) -> None:
    """Write a file if it gives back its network.

    :raises ValueError: if it does not; what is at `path` stays as it was.
    """
    _check_encoded(encoded, f"{os.fspath(path)} stays as it was. ")
    write_bytes(path, encoded.content)


def _check_encoded(encoded: Encoded, what_else: str = "") -> None:
    """:raises ValueError: if a file does not give back its network."""
    try:
        check_content(encoded.content, encoded.model, encoded.values)
    except Exception as error:  # whatever a reader may stumble over
        raise ValueError(
            f"the network {encoded.model.name} would not come back from a .bcz file ({one_line(error)}); {what_else}"
            "Write its weights by pack_weights(), or a .keras file."
        ) from error


def bcz_bytes(
    model: keras.Model,
    kernels: Sequence[Kernel] | RandomCode | None = None,
    *,
    biases: str | int = "float32",
    entropy_coded: bool = True,
) -> bytes:
    """What :func:`save_bcz` writes, without reading it again."""
    return encode(model, kernels, biases=biases, entropy_coded=entropy_coded).content


def encode(
    model: keras.Model,
    kernels: Sequence[Kernel] | RandomCode | None = None,
    *,
    biases: str | int = "float32",
    entropy_coded: bool = True,
) -> Encoded:
    """What :func:`save_bcz` writes, and what has to come back of it."""
    graph = _stored_graph(model)
    if isinstance(kernels, RandomCode):
        return _random_code(model, graph, kernels)
    kernel_pairs = kernel_variables(graph)
    # Kernels as they are, or the codes that were given, of the same shapes.
    codes: Sequence[Kernel] = [Raw(_array(v)) for _, v in kernel_pairs] if kernels is None else kernels
    for (layer, _), values in zip(kernel_pairs, _values(kernel_pairs, codes), strict=True):
        if not np.all(np.isfinite(values)):
            raise ValueError(f"weights of layer {layer.name!r} must be finite; check that training did not diverge.")
    # Flags and layers, then weight after weight.
    out = bytearray(_layers_bytes(graph, _bias_number(biases)))
    strides = strides_of(graph)
    queue = iter(codes)
    stored: list[NDArray[np.float32]] = []
    for node in layers_of(graph):
        weights = stored_weights(node.layer)
        kind = biases if has_bias([variable.shape for variable in weights]) else "float32"
        for variable in weights:
            if len(variable.shape) > 1:
                code = next(queue)
                stored.append(np.asarray(code.values, np.float32))
                out += kernel_bytes(code, entropy_coded, strides.get(node.name, (0, 0)))
            else:
                stored.append(_rounded(node.name, variable, kind))
                out += _vector_bytes(stored[-1], kind)
    return Encoded(framed(MAGIC, VERSION_OF_VALUES, bytes(out)), model, stored)


def coded_variables(model: keras.Model) -> list[keras.Variable]:
    """What a random code holds of a network, in the order of a file: kernels, and the bias of a layer with one kernel.

    :raises ValueError: as :func:`check_storable`.
    """
    return _split(_stored_graph(model))[0]


def _split(graph: Graph) -> tuple[list[keras.Variable], list[keras.Variable]]:
    """Weights that a random code holds, and the others."""
    # In the order of the layers: kernels and their biases, and all other weights.
    coded: list[keras.Variable] = []
    others: list[keras.Variable] = []
    for node in layers_of(graph):
        weights = stored_weights(node.layer)
        for variable, is_in_code in zip(weights, is_coded([w.shape for w in weights]), strict=True):
            (coded if is_in_code else others).append(variable)
    return coded, others


def _random_code(model: keras.Model, graph: Graph, code: RandomCode) -> Encoded:
    """A file whose kernels and biases are a random code."""
    coded, others = _split(graph)
    shapes = tuple(tuple(variable.shape) for variable in coded)
    if shapes != code.shapes:
        raise ValueError(f"the code must be of kernels and biases {shapes}, got one of {code.shapes}.")
    # Flags, layers and weights that are no part of the code; then the code.
    out = _layers_bytes(graph, RANDOM_CODE) + b"".join(
        _vector_bytes(np.asarray(v, np.float32), "float32") for v in others
    )
    # What a file gives back: draws for what is coded, all else as it is.
    values = {id(variable): value for variable, value in zip(coded, code.values(), strict=True)}
    weights = [variable for node in layers_of(graph) for variable in stored_weights(node.layer)]
    stored = [np.asarray(values.get(id(variable), variable), np.float32) for variable in weights]
    return Encoded(framed(MAGIC, VERSION_OF_CODES, out + code_bytes(code)), model, stored)


def _layers_bytes(graph: Graph, kind: int) -> bytes:
    """Flags and layers."""
    is_chain = fits_chain(graph)
    return bytes([kind | IS_CHAIN * is_chain]) + (chain_bytes(graph) if is_chain else graph_bytes(graph))


def _bias_number(biases: str | int) -> int:
    """As in the flags of a file."""
    # A place in the list of types, or behind it the significant bits.
    if isinstance(biases, str) and biases in BIASES:
        return BIASES.index(biases)
    if not isinstance(biases, int | np.integer) or not 0 <= biases <= MAX_SIGNIFICANT:
        raise ValueError(
            f'biases must be "float32" or "float16", or significant bits from 0 to {MAX_SIGNIFICANT}, got {biases!r}.'
        )
    return len(BIASES) + int(biases)


def _vector_bytes(values: NDArray[np.float32], kind: str | int) -> bytes:
    if not isinstance(kind, str):
        return integers_bytes(np.ldexp(values.astype(np.float64), kind).astype(np.int64))
    return values.astype({"float32": "<f4", "float16": "<f2"}[kind]).tobytes()


def _rounded(name: str, variable: keras.Variable, kind: str | int) -> NDArray[np.float32]:
    """The values of a vector as a file gives them back."""
    _bias_number(kind)
    # Multiples of a power of two, or the nearest numbers of a shorter type.
    exact = np.asarray(variable, np.float32)
    if not isinstance(kind, str):
        values = (np.ldexp(np.rint(np.ldexp(exact.astype(np.float64), kind)), -kind) + 0.0).astype(np.float32)
        if not np.all(np.abs(np.ldexp(values.astype(np.float64), kind)) < 2.0**31):
            raise ValueError(f'biases of layer {name!r} must be below 2**{31 - kind}; give biases="float32".')
        return values
    with np.errstate(over="ignore"):
        values = exact.astype(kind).astype(np.float32)
    if not np.all(np.isfinite(values)):
        raise ValueError(
            f'biases of layer {name!r} must be finite, and below 65504 for biases="float16"; check that training did '
            "not diverge."
        )
    return values


def _values(
    there: Sequence[tuple[keras.Layer, keras.Variable]], kernels: Sequence[Kernel | ArrayLike]
) -> list[NDArray[np.float32]]:
    """Weights for these variables."""
    if len(kernels) != len(there):
        raise ValueError(f"kernels must be one for each of {len(there)} kernels of the network, got {len(kernels)}.")
    values = []
    for (layer, variable), kernel in zip(there, kernels, strict=True):
        # A kernel that is rounded says its values itself.
        value = np.asarray(kernel.values if isinstance(kernel, Kernel) else kernel, np.float32)
        if value.shape != tuple(variable.shape):
            raise ValueError(f"the kernel of layer {layer.name!r} must be {tuple(variable.shape)}, got {value.shape}.")
        values.append(value)
    return values
