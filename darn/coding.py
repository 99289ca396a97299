"""Lossless coding of binary data by a DARN: bits-back coding, whose length is the model's description length (Eq. 14).

    data = encode(model, images)             # bytes
    images = decode(model, data)             # the same zeros and ones, [N, n_x] uint8

For each image the encoder pops h with probabilities q(h | x) from the bits written so far, as if they were random; then
it pushes x with p(x | h), and h with p(h), layer by layer from below and last unit first. The decoder pops h, then
x, and pushes h with q(h | x): this gives back the bits that the encoder popped. The file grows by
log2 q(h | x) - log2 p(h) - log2 p(x | h) bits (Townsend, Bird and Barber, 2019, do so with a variational autoencoder).
Probabilities are those of `integer_model`, so that encoder and decoder cannot disagree.

Images are coded in rounds that grow with the number of images before, on lanes that grow as well, because what a round
pops must have been written before it. The very first image has nothing to pop, and takes the most probable h (unit by
unit).

File, integers as LEB128 (7 bits a byte, lowest first):

    "DARN", version (1 byte), model (8 bytes of SHA-256), images, n_x, growth of the rounds, lanes, length of the code,
    CRC-32 of all else (4 bytes, little endian), code

The code's last-popped 40 bits are the beginning of the SHA-256 of the images.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darn.integer_model import IntegerLayer, IntegerModel, probability_table
from darn.model import DARN
from darn.rans import INITIAL_BITS, PRECISION_BITS, RansCoder, entropy_bits

__all__ = ["FILE_VERSION", "Header", "decode", "encode", "read_header"]

FILE_VERSION = 1
"""Version of the file format that this module writes, and the only one it reads."""

Bits = NDArray[np.uint8]

_MAGIC = b"DARN"
_MODEL_BYTES = 8
_CRC_BYTES = 4
_MAX_ROUND = 1024
_MAX_GROWTH = 16  # a round has at most a quarter as many images as came before it
_MAX_LANES = 1024
_BITS_PER_LANE = 6000.0  # a lane's state costs about 4 bits: 0.07 %
_SAMPLE = 64


class Header(NamedTuple):
    """What a file says about itself.

    :ivar version: of the format. :ivar model: first bytes of `IntegerModel.digest`.
    :ivar num_images: N. :ivar width: n_x.
    :ivar growth: images of a round, in 64ths of the number of images before it. :ivar num_lanes: at the end.
    :ivar code_start: where the code begins. :ivar code_length: its length in bytes.
    """

    version: int
    model: bytes
    num_images: int
    width: int
    growth: int
    num_lanes: int
    code_start: int
    code_length: int


def encode(
    model: DARN | IntegerModel, images: ArrayLike, *, batch_size: int = _MAX_ROUND, engine: str = "auto"
) -> bytes:
    """Code images.

    :param model: the trained model, or its integer form, which takes some time to make and can be used again.
    :param images: [N, n_x] of zeros and ones, or booleans.
    :param batch_size: images in a matrix product. Neither it nor the number of threads changes a bit of the result.
    :param engine: of `RansCoder`: "auto", "numba" or "numpy"; they give the same bytes.
    :raises ValueError: if the images have another shape or other values, or the model cannot be coded.
    """
    integer = _integer_model(model)
    rows = _checked_images(images, integer.visible)
    coder = RansCoder(_checksum(rows), engine)
    plan = _plan(integer, rows, batch_size)
    start = 0
    for size, num_lanes in plan.rounds(len(rows)):
        x = np.ascontiguousarray(rows[start : start + size].T)
        coder.set_lanes(num_lanes)
        h = _pop_encoder(integer, coder if start else None, x, batch_size)
        _push_decoder(integer, coder, x, h, batch_size)
        start += size
    code = coder.to_bytes()
    fields = (len(rows), integer.visible, plan.growth, coder.num_lanes, len(code))
    head = b"".join([_MAGIC, bytes([FILE_VERSION]), integer.digest[:_MODEL_BYTES], *map(_leb128, fields)])
    return head + zlib.crc32(code, zlib.crc32(head)).to_bytes(_CRC_BYTES, "little") + code


def decode(model: DARN | IntegerModel, data: bytes, *, batch_size: int = _MAX_ROUND, engine: str = "auto") -> Bits:
    """The images that :func:`encode` coded with the same model, [N, n_x] of zeros and ones.

    :param batch_size: and `engine`: as for :func:`encode`, and not necessarily the same.
    :raises ValueError: if the data are no such file, of another version, truncated, damaged, or of another model.
    """
    integer = _integer_model(model)
    header = read_header(data)
    if header.model != integer.digest[:_MODEL_BYTES] or header.width != integer.visible:
        raise ValueError(
            f"the file was coded with the model {header.model.hex()} of {header.width} visible units, got the model "
            f"{integer.digest[:_MODEL_BYTES].hex()} of {integer.visible}; give the model it was coded with."
        )
    code = data[header.code_start : header.code_start + header.code_length]
    coder = RansCoder.from_bytes(code, header.num_lanes, engine)
    rows = np.empty([header.num_images, integer.visible], np.uint8)
    start = header.num_images
    for size, num_lanes in reversed(_Plan(header.growth, header.num_lanes).rounds(start)):
        coder.set_lanes(num_lanes)
        x, h = _pop_decoder(integer, coder, size, batch_size)
        start -= size
        rows[start : start + size] = x.T
        if start:
            _push_encoder(integer, coder, x, h, batch_size)
    if coder.check_finished() != _checksum(rows):
        raise ValueError("the decoded images have another checksum than those that were coded: the file is damaged.")
    return rows


def read_header(data: bytes) -> Header:
    """What a file says about itself, after checking that it is whole.

    :raises ValueError: if the data are no such file, of another version, truncated, longer than they say, or damaged.
    """
    place = len(_MAGIC) + 1 + _MODEL_BYTES
    if not data.startswith(_MAGIC[: max(1, len(data))]) or not data:
        raise ValueError("these data are no file coded with a DARN (they do not begin with 'DARN'); give another file.")
    if len(data) > len(_MAGIC) and data[len(_MAGIC)] != FILE_VERSION:
        raise ValueError(f"the file has version {data[len(_MAGIC)]}, this program reads {FILE_VERSION}; update it.")
    numbers = []
    for _ in range(5):
        number, place = _read_leb128(data, place)
        numbers.append(number)
    start = place + _CRC_BYTES
    if len(data) < start + numbers[-1]:
        raise ValueError(f"the file is truncated: {start + numbers[-1]} bytes are expected, got {len(data)}.")
    crc = zlib.crc32(data[start:], zlib.crc32(data[:place]))
    if len(data) > start + numbers[-1] or crc != int.from_bytes(data[place:start], "little"):
        raise ValueError("the file is damaged (its CRC-32 is wrong, or bytes were added); take another copy.")
    model = data[len(_MAGIC) + 1 : len(_MAGIC) + 1 + _MODEL_BYTES]
    num_images, width, growth, num_lanes, length = numbers
    return Header(data[len(_MAGIC)], model, num_images, width, growth, num_lanes, start, length)


def _pop_encoder(integer: IntegerModel, coder: RansCoder | None, x: Bits, batch_size: int) -> list[Bits]:
    """h ~ q(h | x) from the bits of `coder`, or without one the most probable h; from the first layer up."""
    h: list[Bits] = []
    for level, layer in enumerate(integer.encoders):
        offset = layer.offset(integer.below(x, h, level), batch_size)
        h.append(_most_probable(layer, offset) if coder is None else _pop(layer, coder, offset))
    return h


def _push_encoder(integer: IntegerModel, coder: RansCoder, x: Bits, h: Sequence[Bits], batch_size: int) -> None:
    """Undo :func:`_pop_encoder`."""
    for level in range(len(h) - 1, -1, -1):
        _push(integer.encoders[level], coder, h[level], integer.below(x, h, level), batch_size)


def _push_decoder(integer: IntegerModel, coder: RansCoder, x: Bits, h: Sequence[Bits], batch_size: int) -> None:
    """x with p(x | h), then h from the first layer up with p(h)."""
    for layer, bits, parents in _decoder_layers(integer, x, h):
        _push(layer, coder, bits, parents, batch_size)


def _pop_decoder(integer: IntegerModel, coder: RansCoder, size: int, batch_size: int) -> tuple[Bits, list[Bits]]:
    """Undo :func:`_push_decoder`: h from the top layer down, then x."""
    nothing = np.empty([0, size], np.uint8)
    h: list[Bits] = []
    if integer.prior is not None:
        h = [_pop(integer.prior, coder, integer.prior.offset(nothing, batch_size))]
    for level in range(len(integer.hidden) - 1, -1, -1):
        layer = integer.decoders[level]
        full = [nothing] * level + h  # as long as the model has layers
        bits = _pop(layer, coder, layer.offset(integer.above(full, level), batch_size))
        if level == 0:
            return bits, h
        h.insert(0, bits)
    layer = integer.decoders[0]
    return _pop(layer, coder, layer.offset(nothing, batch_size)), []


def _decoder_layers(integer: IntegerModel, x: Bits, h: Sequence[Bits]) -> list[tuple[IntegerLayer, Bits, Bits]]:
    """Layers of the decoder with their bits and parents, from the visible one up."""
    nothing = x[:0]
    found = []
    for level, layer in enumerate(integer.decoders):
        found.append((layer, h[level - 1] if level else x, integer.above(h, level) if h else nothing))
    if integer.prior is not None:
        found.append((integer.prior, h[-1], nothing))
    return found


def _pop(layer: IntegerLayer, coder: RansCoder, offset: NDArray[Any]) -> Bits:
    """Bits [n, B], unit 0 first."""
    if layer.earlier is None:
        return coder.pop(layer.frequencies(offset))
    return coder.pop_linear(offset, layer.earlier, probability_table(), layer.table_scale[0])


def _push(layer: IntegerLayer, coder: RansCoder, bits: Bits, parents: Bits, batch_size: int) -> None:
    """Undo :func:`_pop`: last unit first."""
    coder.push(bits[::-1], _frequencies(layer, bits, parents, batch_size)[::-1])


def _frequencies(layer: IntegerLayer, bits: Bits, parents: Bits, batch_size: int) -> NDArray[np.int32]:
    return layer.frequencies(layer.logits(bits, layer.offset(parents, batch_size), batch_size))


def _most_probable(layer: IntegerLayer, offset: NDArray[Any]) -> Bits:
    """The more probable value of each unit given those before it, [n, B]."""
    a = offset.copy()
    if layer.earlier is not None:
        for k in range(layer.n):
            a[k + 1 :] += layer.earlier[k, k + 1 :, None] * (a[k] > 0)
    return (a > 0).astype(np.uint8)


class _Plan(NamedTuple):
    """How images are dealt to rounds and lanes: a round has at most `growth` / 64 of the number of images before it."""

    growth: int
    num_lanes: int

    def rounds(self, num_images: int) -> list[tuple[int, int]]:
        """Numbers of images and of lanes of each round; neither ever falls, but for the images of the last round."""
        found: list[tuple[int, int]] = []
        done = lanes = 0
        while done < num_images:
            size = min(max(done * self.growth // 64, 1), _MAX_ROUND, num_images - done)
            lanes = max(lanes, min(size, self.num_lanes))
            found.append((size, lanes))
            done += size
        return found


def _plan(integer: IntegerModel, rows: Bits, batch_size: int) -> _Plan:
    """From the first images: a round pops at most half of what was written before, and lanes cost below 0.1 %."""
    x = np.ascontiguousarray(rows[:_SAMPLE].T)
    h = _pop_encoder(integer, None, x, batch_size)
    written = popped = 0.0
    for layer, bits, parents in _decoder_layers(integer, x, h):
        written += entropy_bits(bits, _frequencies(layer, bits, parents, batch_size))
    for level, layer in enumerate(integer.encoders):
        frequencies = _frequencies(layer, h[level], integer.below(x, h, level), batch_size)
        written -= entropy_bits(h[level], frequencies)
        p = frequencies / 2.0**PRECISION_BITS
        popped -= float(np.sum(p * np.log2(p) + (1.0 - p) * np.log2(1.0 - p)))
    growth = 32.0 * max(written, 0.0) / max(popped, 1.0)
    lanes = len(rows) * max(written, 0.0) / x.shape[1] / _BITS_PER_LANE
    return _Plan(int(min(max(growth, 1.0), _MAX_GROWTH)), int(min(max(lanes, 1.0), _MAX_LANES)))


def _checksum(rows: Bits) -> int:
    """The first 40 bits of the SHA-256 of the images' shape and packed bits."""
    digest = hashlib.sha256(f"{rows.shape}".encode() + np.packbits(rows, axis=1).tobytes()).digest()
    return int.from_bytes(digest[: INITIAL_BITS // 8], "little")


def _integer_model(model: DARN | IntegerModel) -> IntegerModel:
    return model if isinstance(model, IntegerModel) else IntegerModel(model)


def _checked_images(images: ArrayLike, width: int) -> Bits:
    array = np.asarray(images)
    if array.ndim != 2 or len(array) == 0 or array.shape[1] != width:
        raise ValueError(
            f"images must be [N, {width}] with at least one row, as the model has {width} visible units; got "
            f"{array.shape}."
        )
    if array.dtype.kind not in "biuf" or not np.all((array == 0) | (array == 1)):
        raise ValueError(
            f"images must be 0 or 1 everywhere, got other values (dtype {array.dtype}); binarise them first."
        )
    return array.astype(np.uint8)


def _leb128(number: int) -> bytes:
    """7 bits a byte, the lowest first; the top bit says that there are more."""
    digits = bytearray()
    while number >= 128:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


def _read_leb128(data: bytes, place: int) -> tuple[int, int]:
    """The number at `place`, and the place after it."""
    number = 0
    for i in range(9):
        if place + i >= len(data):
            raise ValueError(f"the file is truncated: its header ends after {len(data)} bytes.")
        number |= (data[place + i] & 127) << 7 * i
        if data[place + i] < 128:
            return number, place + i + 1
    raise ValueError("the file is damaged: a number in its header has no end; take another copy.")
