"""The file of a packed network, and its checks when it is read.

A frame of `gpflow_deep_base.storage.frame`. In it the length of the header in LEB128; the header, JSON with

    shapes         [n_in, n_out] of each layer
    networks       how many of these shapes follow
    fraction_bits  null for inputs -1 and +1; e: they are multiples of 2^-e
    bias_dtype     "<f4" or "<f8", of the last biases
    coding         null, or the kind of `InputCoding` that makes inputs of raw ones
    classes        null, or the names of the classes: texts, numbers or truth values
    convolutions   null, or of each layer null, or the numbers of a `Convolved`; its n_in and n_out are then those of a
                   filter and of filters

then the numbers of the coding; then for each network and each of its layers the weights' bits, inputs of a neuron one
after the other, each neuron filled up with zeros to a whole byte, followed by thresholds (int32) or last biases.
Little endian. A checksum does not say who wrote a file, so that every field is checked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np

from gpflow_deep_base.files import parse_json
from gpflow_deep_base.storage.frame import Reader, unframed
from gpflow_deep_base.storage.limits import refuse_damaged

from ..network.coding import FRACTION_BITS, InputCoding, Kind
from ..network.convolution import POOLS, Convolved
from .signs import INT32_MAX, Layer, pad

__all__ = ["FILE_VERSION", "MAGIC", "MAX_FRACTION_BITS", "Content", "coding_bytes", "parse", "read"]

FILE_VERSION = 4
"""Version of the file format, the only one that is read."""

MAX_FRACTION_BITS = 24

MAGIC = b"EBPACKED"
_FIELDS = {"shapes", "networks", "fraction_bits", "bias_dtype", "coding", "classes", "convolutions"}
_MAX_IMAGE = 2**22
_MAX_HEADER = 2**20


@dataclass(frozen=True, eq=False)
class Content:
    """What a file holds.

    :ivar networks: layers of each network; all networks have the same shapes.
    :ivar fraction_bits: None: inputs are -1 and +1; e: they are multiples of 2^-e.
    :ivar coding: what makes such inputs of raw ones, or None.
    :ivar classes: names of the classes [C], or None.
    :ivar num_bytes: size of the file.
    """

    networks: list[list[Layer]]
    fraction_bits: int | None
    coding: InputCoding | None
    classes: np.ndarray | None
    num_bytes: int


def parse(content: bytes, path: Path) -> Content:
    """What a file holds.

    :param content: of :func:`read`.
    :param path: for messages.
    :raises ValueError: if header and content do not fit.
    """
    try:
        _, payload = unframed(content, magic=MAGIC, versions=(FILE_VERSION,))
        return _parsed(payload, len(content))
    except ValueError as error:
        refuse_damaged(path, "a packed network", error)


def _parsed(content: bytes, num_bytes: int) -> Content:
    reader = Reader(content)
    header = parse_json(reader.take(reader.integer(_MAX_HEADER, "the length of its header")))
    start = reader.place
    if not isinstance(header, dict) or set(header) != _FIELDS:
        raise ValueError(f"its header must have the fields {', '.join(sorted(_FIELDS))}")
    shapes, convolutions = _shapes(header["shapes"], header["convolutions"])
    num_inputs = convolutions[0].num_inputs if convolutions[0] else shapes[0][0]
    count = header["networks"]
    bits = header["fraction_bits"]
    dtype = header["bias_dtype"]
    kind = header["coding"]
    # Each field of the header is checked before the numbers behind it are read.
    if not _is_whole(count, 1, len(content)):
        raise ValueError(f"networks must be a number from 1 on, got {count!r:.40}")
    if bits is not None and not _is_whole(bits, 0, MAX_FRACTION_BITS):
        raise ValueError(f"fraction_bits must be null or from 0 to {MAX_FRACTION_BITS}, got {bits!r:.40}")
    if dtype not in ("<f4", "<f8"):
        raise ValueError(f"bias_dtype must be <f4 or <f8, got {dtype!r:.40}")
    _check_kind(kind, bits)
    classes = _classes(header["classes"], shapes[-1][1])
    # The file has as many bytes as its header says.
    size = count * _num_bytes(shapes, int(dtype[2])) + 8 * _num_numbers(kind, num_inputs)
    if start + size != len(content):
        raise ValueError(f"it has {len(content)} bytes, its header says {start + size}")
    # The numbers of the coding, then network by network.
    coding, start = _coding(kind, content, start, num_inputs)
    networks = []
    for _ in range(count):
        layers, start = _layers(content, start, shapes, convolutions, dtype)
        networks.append(layers)
    return Content(networks, bits, coding, classes, num_bytes)


def _layers(
    content: bytes, start: int, shapes: Sequence[tuple[int, int]], convolutions: Sequence[Convolved | None], dtype: str
) -> tuple[list[Layer], int]:
    """The layers of a network, and where the next one starts."""
    layers = []
    for i, (n_in, n_out) in enumerate(shapes):
        row = -(-n_in // 8)
        # A row of bits for each neuron, then thresholds or biases.
        bits = np.frombuffer(content, np.uint8, row * n_out, start).reshape(n_out, row)
        start += bits.nbytes
        numbers = np.frombuffer(content, dtype if i == len(shapes) - 1 else "<i4", n_out, start)
        start += numbers.nbytes
        if n_in % 8 and np.any(bits[:, -1] >> (n_in % 8)):
            raise ValueError("bits behind the weights of a neuron must be 0")
        if not np.all(np.isfinite(numbers)) or (numbers.dtype.kind == "i" and np.any(numbers < -INT32_MAX)):
            raise ValueError("its biases must be finite numbers, and thresholds above -2^31")
        layers.append(Layer(n_in, pad(bits), numbers, convolutions[i]))
    return layers, start


def _shapes(shapes: object, convolutions: object) -> tuple[list[tuple[int, int]], list[Convolved | None]]:
    if not isinstance(shapes, list) or not shapes:
        raise ValueError("shapes must list at least one layer")
    for shape in shapes:
        if not (isinstance(shape, list) and len(shape) == 2 and all(_is_whole(n, 1, INT32_MAX) for n in shape)):
            raise ValueError(f"shapes must list pairs of positive numbers, got {shape!r:.40}")
    checked_convolutions = _convolutions(convolutions, len(shapes))
    # Each layer has to fit what the one before gives: an image, or so many numbers.
    image = None
    outputs = None
    for i, ((n_in, n_out), shared) in enumerate(zip(shapes, checked_convolutions, strict=True)):
        if shared is not None:
            if (shared.fan_in, shared.filters) != (n_in, n_out) or (i and image != shared[:3]):
                raise ValueError(f"the convolution of layer {i} must fit its shape and the layer before")
        elif i and outputs != n_in:
            raise ValueError(f"layer {i} must have as many inputs as the one before has outputs")
        image, outputs = (None, n_out) if shared is None else (shared.image, shared.num_outputs)
    return [(n_in, n_out) for n_in, n_out in shapes], checked_convolutions


def _convolutions(stored: object, num_layers: int) -> list[Convolved | None]:
    """Those of all layers, of sizes that a processor can handle."""
    if stored is None:
        return [None] * num_layers
    if not isinstance(stored, list) or len(stored) != num_layers or stored[-1] is not None:
        raise ValueError("convolutions must list one for each layer, or null, and null for the last one")
    convolutions: list[Convolved | None] = []
    # Every number is checked before anything of its size is made.
    for numbers in stored:
        if numbers is None:
            convolutions.append(None)
            continue
        fits = isinstance(numbers, list) and len(numbers) == len(Convolved._fields)
        if not fits or not all(_is_whole(number, 1, _MAX_IMAGE) for number in numbers):
            raise ValueError(f"a convolution must have {len(Convolved._fields)} positive numbers, got {numbers!r:.40}")
        shared = Convolved(*numbers)
        shared.check()
        if shared.pool not in POOLS or max(shared.num_inputs, shared.num_positions * shared.fan_in) > _MAX_IMAGE:
            raise ValueError(f"a convolution must have pool 1, 2 or 4 and images of moderate size, got {numbers!r:.60}")
        convolutions.append(shared)
    return convolutions


def _classes(names: object, num_outputs: int) -> np.ndarray | None:
    if names is None:
        return None
    if not isinstance(names, list) or len(names) != max(2, num_outputs):
        raise ValueError(f"classes must be null or {max(2, num_outputs)} names")
    # Names of one kind, as an array of NumPy holds them.
    kinds = {type(name) for name in names}
    fits = kinds in ({str}, {bool}) or (kinds == {float} and all(map(math.isfinite, names)))
    if not fits and not all(_is_whole(name, -(2**63), 2**63 - 1) for name in names):
        raise ValueError("classes must all be texts, whole numbers, numbers or truth values")
    if len(set(names)) < len(names):
        raise ValueError("classes must differ from one another")
    return np.array(names)


def _is_whole(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _num_bytes(shapes: Sequence[tuple[int, int]], bias_size: int) -> int:
    """Size of one network."""
    rows = sum(-(-n_in // 8) * n_out + 4 * n_out for n_in, n_out in shapes)
    return rows + (bias_size - 4) * shapes[-1][1]


# The numbers of a coding: for `common` and `centred` the factor of the columns that vary comes but once.


def _check_kind(kind: str | None, fraction_bits: int | None) -> None:
    if kind is not None and kind not in get_args(Kind):
        raise ValueError(f"coding must be null or one of {', '.join(get_args(Kind))}, got {kind!r:.40}")
    expected = {"raw": fraction_bits, None: fraction_bits, "sign": None}.get(kind, FRACTION_BITS)
    if fraction_bits != expected:
        raise ValueError(f"fraction_bits must be {expected} with the coding {kind}, got {fraction_bits}")


_WITH_MEANS = ("zscore", "centred", "sign")
_WITH_FACTORS = ("scaled", "root", "zscore")
_WITH_ONE_FACTOR = ("common", "centred")


def _num_numbers(kind: str | None, num_inputs: int) -> int:
    size = num_inputs * ((kind in _WITH_MEANS) + (kind in _WITH_FACTORS))
    # One factor, and bits that say which columns vary.
    return size + (1 + -(-num_inputs // 64) if kind in _WITH_ONE_FACTOR else 0)


def coding_bytes(coding: InputCoding | None) -> bytes:
    """The numbers of a coding as they stand in a file."""
    if coding is None:
        return b""
    parts: list[np.ndarray] = [coding.mean.astype("<f8")] if coding.kind in _WITH_MEANS else []
    if coding.kind in _WITH_FACTORS:
        parts.append(coding.factor.astype("<f8"))
    elif coding.kind in _WITH_ONE_FACTOR:
        parts.append(coding.factor.max(keepdims=True).astype("<f8"))
        parts.append(pad(np.packbits(coding.factor[None] > 0, axis=1, bitorder="little")))
    return b"".join(part.tobytes() for part in parts)


def _coding(kind: str | None, content: bytes, start: int, num_inputs: int) -> tuple[InputCoding | None, int]:
    """The coding, and where the networks start."""
    if kind is None:
        return None, start
    size = 8 * _num_numbers(kind, num_inputs)
    num_means = num_inputs if kind in _WITH_MEANS else 0
    # Means, of codings that centre; then factors, or one factor and which columns vary.
    mean = np.frombuffer(content, "<f8", num_means, start) if num_means else np.zeros(num_inputs)
    factor: np.ndarray = np.ones(num_inputs)
    rest = start + 8 * num_means
    if kind in _WITH_FACTORS:
        factor = np.frombuffer(content, "<f8", num_inputs, rest)
    elif kind in _WITH_ONE_FACTOR:
        mask = np.frombuffer(content, np.uint8, start + size - rest - 8, rest + 8)
        varies = np.unpackbits(mask, count=num_inputs, bitorder="little")
        factor = np.frombuffer(content, "<f8", 1, rest) * varies
    if not (np.all(np.isfinite(mean)) and np.all(np.isfinite(factor)) and np.all(factor >= 0)):
        raise ValueError("the numbers of its coding must be finite, and no factor negative")
    return InputCoding(kind, mean, factor), start + size  # type: ignore[arg-type]


def read(path: Path) -> bytes:
    """The bytes of a file.

    :raises ValueError: if it is missing, or no file.
    """
    path = path.expanduser()
    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is no file")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        refuse_damaged(path, "a packed network", error)
