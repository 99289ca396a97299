"""The file of a packed network: its bytes, written whole or not at all, and checked when they are read.

Magic, version, length of the header (JSON: shapes, dtype of the last biases, ...), header; then for each network
and each of its layers the weights' bits, inputs of a neuron one after the other, each neuron filled up to a whole byte,
followed by thresholds (int32) or last biases; SHA-256 of all that. Little endian.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .signs import pad

__all__ = ["FILE_VERSION", "Layer", "Weights", "content_of", "parse", "read", "whole_file", "write"]

FILE_VERSION = 1
"""Version of the file format that this module writes, and the only one it reads."""

_MAGIC = b"EBPACKED"
_START = struct.Struct("<8sII")  # magic, version, length of the header
_INT32_MAX = 2**31 - 1


class Weights(NamedTuple):
    """One network of binary weights.

    :ivar signs: of each layer the weights -1 or +1, [n_in, n_out].
    :ivar biases: of each layer real biases [n_out], or None for none.
    """

    signs: Sequence[NDArray[Any]]
    biases: Sequence[NDArray[Any] | None]


@dataclass(frozen=True, eq=False)
class Layer:
    """Rows of bits padded with zeros to 64-bit words [n_out, 8 words]; thresholds, or in the last layer biases."""

    num_inputs: int
    bits: NDArray[np.uint8]
    numbers: NDArray[Any]
    blocked: NDArray[np.uint8] | None  # as the kernel `nibbles` takes it

    @property
    def num_outputs(self) -> int:
        """Number of rows."""
        return len(self.bits)


def content_of(networks: Sequence[Weights], fraction_bits: int | None) -> bytes:
    """The file of one network or several of the same shape; see `packed.export_packed`.

    :raises ValueError: if a weight is not -1 or +1, a bias is not finite, or shapes do not fit.
    """
    shapes, payload = None, []
    dtype = _bias_dtype(networks)
    for number, weights in enumerate(networks):
        signs, biases = _checked(weights, f"network {number}")
        if shapes is not None and [list(w.shape) for w in signs] != shapes:
            raise ValueError(f"all networks of a file must have the shapes {shapes}, network {number} has others.")
        shapes = [list(w.shape) for w in signs]
        for i, (w, b) in enumerate(zip(signs, biases, strict=True)):
            payload.append(np.packbits(w.T > 0, axis=1, bitorder="little").tobytes())
            is_last = i == len(signs) - 1
            scale = 2.0 ** (fraction_bits or 0) if i == 0 else 1.0
            payload.append((b.astype(dtype) if is_last else _thresholds(b, scale)).tobytes())
    header = {"shapes": shapes, "networks": len(networks), "fraction_bits": fraction_bits, "bias_dtype": dtype}
    head = json.dumps(header, separators=(",", ":")).encode()
    content = b"".join([_START.pack(_MAGIC, FILE_VERSION, len(head)), head, *payload])
    return content + hashlib.sha256(content).digest()


def _bias_dtype(networks: Sequence[Weights]) -> str:
    last = [weights.biases[-1] for weights in networks if len(weights.biases)]
    is_single = all(b is None or np.asarray(b).dtype == np.float32 for b in last)
    return "<f4" if is_single else "<f8"


def _checked(weights: Weights, what: str) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    signs = [np.asarray(w) for w in weights.signs]
    if not signs or len(signs) != len(weights.biases):
        raise ValueError(
            f"{what} needs at least one layer and as many biases as layers, got {len(signs)} and {len(weights.biases)}."
        )
    biases = []
    for i, (w, b) in enumerate(zip(signs, weights.biases, strict=True)):
        if w.ndim != 2 or 0 in w.shape or (i > 0 and w.shape[0] != signs[i - 1].shape[1]):
            raise ValueError(f"signs of layer {i} of {what} must be [n_in, n_out] and fit, got {list(w.shape)}.")
        if not np.all((w == 1) | (w == -1)):
            raise ValueError(
                f"weights of layer {i} of {what} must be -1 or +1, got others such as {w[(w != 1) & (w != -1)][0]}; "
                "only networks of binary weights can be packed."
            )
        b = np.zeros(w.shape[1]) if b is None else np.asarray(b)
        if b.shape != (w.shape[1],) or b.dtype.kind not in "iuf" or not np.all(np.isfinite(b)):
            raise ValueError(f"biases of layer {i} of {what} must be {w.shape[1]} finite numbers, got {list(b.shape)}.")
        biases.append(b)
    return signs, biases


def _thresholds(b: NDArray[Any], scale: float) -> NDArray[np.int32]:
    """The least integer sum with sum / scale + b >= 0. Sums are below 2^31, so larger thresholds act alike."""
    exact = np.ceil(-b.astype(np.float64) * scale)  # scale is a power of two
    return np.clip(exact, -_INT32_MAX, _INT32_MAX).astype("<i4")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; what is there at the end of the `with` statement becomes `path`.

    After an error `path` is as it was before.
    """
    temporary = path.with_name(f".tmp-{uuid.uuid4().hex[:8]}-{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write(path: Path, content: bytes) -> None:
    """Write all of a file or nothing."""
    with whole_file(path) as temporary, open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> bytes:
    """The bytes of a file of this version whose checksum is right.

    :raises ValueError: if it is missing, another kind of file, of another version, truncated or corrupt.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read as a packed network ({error}).") from error
    if content[: len(_MAGIC)] != _MAGIC[: len(content)] or not content:
        raise ValueError(f"{path} is not a packed network: it starts with {content[:8]!r}, not with {_MAGIC!r}.")
    if len(content) < _START.size:
        raise ValueError(f"{path} is truncated: {len(content)} bytes; export it again.")
    version = _START.unpack_from(content)[1]
    if version != FILE_VERSION:
        raise ValueError(
            f"{path} is a packed network of version {version}, this program reads version {FILE_VERSION}; export it "
            "again with this program, or read it with the one that wrote it."
        )
    if hashlib.sha256(content[:-32]).digest() != content[-32:]:
        raise ValueError(f"{path} is truncated or corrupt: its checksum does not match; export it again.")
    return content


def parse(content: bytes, path: Path, *, blocked: bool) -> tuple[list[list[Layer]], int | None]:
    """The layers of each network, and `fraction_bits`.

    :param content: of :func:`read`. :param path: for messages.
    :param blocked: also arrange weights as the compiled kernel takes them.
    :raises ValueError: if header and content do not fit.
    """
    start = _START.size + _START.unpack_from(content)[2]
    networks: list[list[Layer]] = []
    try:
        header = json.loads(content[_START.size : start])
        shapes = [(int(n_in), int(n_out)) for n_in, n_out in header["shapes"]]
        for _ in range(header["networks"]):
            layers = []
            for i, (n_in, n_out) in enumerate(shapes):
                row = -(-n_in // 8)
                packed = np.frombuffer(content, np.uint8, row * n_out, start).reshape(n_out, row)
                start += packed.nbytes
                is_last = i == len(shapes) - 1
                numbers = np.frombuffer(content, header["bias_dtype"] if is_last else "<i4", n_out, start)
                start += numbers.nbytes
                is_packed_input = i > 0 or header["fraction_bits"] is None
                layers.append(_layer(n_in, packed, numbers, blocked=blocked and is_packed_input))
            networks.append(layers)
        if start + 32 != len(content) or not networks:
            raise ValueError(f"{len(content)} bytes, its header says {start + 32}")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a packed network that this program can read ({error}).") from error
    return networks, header["fraction_bits"]


def _layer(num_inputs: int, packed: NDArray[np.uint8], numbers: NDArray[Any], *, blocked: bool) -> Layer:
    kernel_weights = None
    if blocked:
        from . import popcount

        if popcount.HAS_SHUFFLE:
            kernel_weights = popcount.blocked(packed)
    return Layer(num_inputs, pad(packed), numbers, kernel_weights)
