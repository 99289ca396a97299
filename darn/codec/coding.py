"""Lossless coding of binary data by a DARN: bits-back coding, whose length is the model's description length (Eq. 14).

    data = encode(model, images)             # bytes
    images = decode(model, data)             # the same zeros and ones, [N, n_x] uint8

For each image the encoder pops h with probabilities q(h | x) from the bits written so far, as if they were random; then
it pushes x with p(x | h), and h with p(h), layer by layer from below. The decoder pops h, then x, and pushes h with
q(h | x): this gives back the bits that the encoder popped. The file grows by log2 q(h | x) - log2 p(h) - log2 p(x | h)
bits (Townsend, Bird and Barber, 2019, do so with a variational autoencoder). Probabilities are those of
`integer_model`, so that encoder and decoder cannot disagree.

Images are coded in rounds that grow with the number of images before, because what a round pops must have been written
before it: the fastest growth is taken with which it was. A small round is coded twice, after a bit 0 and after a bit 1,
which make two draws of h, and the shorter code is kept; of few images, the shortest of all growths. What the first
image pops are the first bits of the SHA-256 of all images, which the decoder compares in the end; when they are used
up, a stack gives the most probable h.

File:

    "DAR", version (1 byte), model (2 bytes of its SHA-256), growth of the rounds (1 byte), number of images (LEB128: 7
    bits a byte, lowest first), CRC-16 of all else (2 bytes, little endian), code

The stack of bits is one of asymmetric numeral systems (Duda, 2009), by the package `constriction`. Each bit is coded as
whether it differs from its more probable value. Bits may be popped from a stack that holds other data: they come out
distributed by their probabilities, and pushing them again restores the stack. A stack that is empty gives the more
probable values, and takes them back for nothing.
"""

from __future__ import annotations

import binascii
import copy
import functools
import hashlib
import itertools
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darn.codec.integer_model import PRECISION_BITS, Bits, IntegerModel, logit_index, probability_table
from darn.model.config import check_plain
from darn.model.model import DARN
from darn.more.chain import Chain
from darn.more.mixture import Mixture
from gpflow_deep_base.storage.frame import Reader, leb128

__all__ = ["FILE_VERSION", "BitStack", "Header", "decode", "encode", "read_header"]

_ZERO = np.array(0.0)  # an array, with which NumPy is quicker to start than with a number


@functools.cache
def _constriction() -> ModuleType:
    try:
        import constriction
    except ImportError as error:
        raise ValueError(
            "coding needs the package constriction; `pip install 'gpflow-deep[packed]'`, or `pip install constriction`."
        ) from error
    return constriction  # type: ignore[no-any-return]


@functools.cache
def _rarer() -> NDArray[np.float64]:
    """Probabilities of the less probable value, by the place of |logit|."""
    return probability_table() * 2.0**-PRECISION_BITS


class BitStack:
    """Bits, of which those pushed last are popped first.

    :param content: what :meth:`to_bytes` gave; nothing for an empty stack.
    :raises ValueError: if the content ends in a zero byte, which :meth:`to_bytes` never gives; or if the package
        `constriction` is not installed.
    """

    def __init__(self, content: bytes = b"") -> None:
        if content.endswith(b"\0"):
            raise ValueError("the coded bytes end in zeros: the data are damaged.")
        # Whole words: zeros that were cut from the end are added again.
        library = _constriction()
        words = np.frombuffer(content + bytes(-len(content) % 4), "<u4").astype(np.uint32)
        self._coder = library.stream.stack.AnsCoder(words)
        self._model = library.stream.model.Bernoulli(perfect=False)

    def copy(self) -> BitStack:
        """Another stack that holds the same."""
        clone = copy.copy(self)
        clone._coder = self._coder.clone()
        return clone

    def push(self, bits: np.ndarray, logits: NDArray[np.float64]) -> None:
        """Code bits [n, B]; `pop` of the same logits gives them back."""
        differs = ((bits != 0) != (logits > _ZERO)).astype(np.int32)
        self._coder.encode_reverse(differs.ravel(), self._model, _rarer().take(logit_index(logits).ravel()))

    def pop(self, logits: NDArray[np.float64]) -> NDArray[np.uint8]:
        """Bits [n, B] of these logits."""
        differs = self._coder.decode(self._model, _rarer().take(logit_index(logits).ravel()))
        return (differs.reshape(logits.shape) != (logits > _ZERO)).view(np.uint8)

    @property
    def num_bits(self) -> int:
        """How many bits it holds."""
        return int(self._coder.num_valid_bits())

    def to_bytes(self) -> bytes:
        """All that it holds, without zero bytes at the end."""
        return bytes(self._coder.get_compressed().astype("<u4").tobytes().rstrip(b"\0"))


FILE_VERSION = 3
"""Version of the file format that this module writes, and the only one it reads."""

_MAGIC = b"DAR"
_MODEL_BYTES = 2
_CRC_BYTES = 2
_CHECK_BYTES = 3  # of the images' SHA-256, with the top bit set, so that no byte of the stack's end is zero
_MAX_ROUND = 1024
_FEW = 64  # images with which each growth is tried for the shortest code
_TWICE = 128  # images of a round of which two codes are made
# Images of a round, in 64ths of the images before it, from the fastest growth on.
_GROWTHS = (128, 96, 64, 48, 40, 36, 33, 30, 27, 24, 21, 18, 12, 8, 4, 1)
_SLOW = 4  # growths up to this one have too many rounds for a bit of each
_FREE = 16  # images after which popping must not use up what was written, but for the slowest growth
_LEAST_BITS = 32
_EVEN = np.zeros([1, 1])  # logit of a bit that is 0 or 1 alike
_MIN_BITS = 1.3e-6  # what a bit of probability 1 - 2^-20 takes


class Header(NamedTuple):
    """What a file says about itself.

    :ivar version: of the format.
    :ivar model: first bytes of `IntegerModel.digest`.
    :ivar growth: images of a round, in 64ths of the number of images before it.
    :ivar num_images: how many images, N.
    :ivar code_start: where the code begins.
    """

    version: int
    model: bytes
    growth: int
    num_images: int
    code_start: int


def encode(model: DARN | Chain | IntegerModel, images: ArrayLike, *, batch_size: int = _MAX_ROUND) -> bytes:
    """Code images.

    :param model: the trained model, or its integer form, which takes some time to make and can be used again. A chain
        is coded as a DARN without stochastic units, whose columns are in the chain's order.
    :param images: [N, n_x] of zeros and ones, or booleans.
    :param batch_size: images in a matrix product. Neither it nor the number of threads changes a bit of the result.
    :raises ValueError: if the images have another shape or other values, the model cannot be coded, or the package
        `constriction` is not installed.
    """
    _check_size(batch_size)
    integer = _integer_model(model)
    rows = _checked_images(images, integer.visible)
    if isinstance(model, Chain):
        rows = np.ascontiguousarray(rows[:, model.order])
    # The growth of the rounds that gives the shortest code, or of many images the fastest that lasts.
    growths = _GROWTHS if len(rows) <= _FEW else _lasting(integer, rows[:_FEW], batch_size)
    codes = (coded for growth in growths if (coded := _coded(integer, rows, growth, batch_size)))
    growth, code = min(itertools.islice(codes, None if len(rows) <= _FEW else 1), key=lambda coded: len(coded[1]))
    head = b"".join([_MAGIC, bytes([FILE_VERSION]), integer.digest[:_MODEL_BYTES], bytes([growth]), leb128(len(rows))])
    return head + _crc(head, code) + code


def decode(model: DARN | Chain | IntegerModel, data: bytes, *, batch_size: int = _MAX_ROUND) -> Bits:
    """The images that :func:`encode` coded with the same model, [N, n_x] of zeros and ones.

    :param batch_size: as for :func:`encode`, and not necessarily the same.
    :raises ValueError: if the data are no such file, of another version, truncated, damaged, or of another model.
    """
    _check_size(batch_size)
    header = read_header(data)
    integer = _integer_model(model)
    if header.model != integer.digest[:_MODEL_BYTES]:
        raise ValueError(
            f"the file was coded with the model {header.model.hex()}, got the model "
            f"{integer.digest[:_MODEL_BYTES].hex()}; give the model it was coded with."
        )
    code = data[header.code_start :]
    if header.num_images * integer.visible * _MIN_BITS > 8 * len(code):
        raise ValueError(f"{len(code)} bytes cannot hold {header.num_images} images: the data are damaged.")
    # Rounds from the last one back: each undoes what the encoder did to the stack.
    stack = BitStack(code)
    start = header.num_images
    parts = list[Bits]()
    for size in reversed(_rounds(start, header.growth)):
        start -= size
        bits = _pop_decoder(integer, stack, size, batch_size)
        if _is_used_up(stack, start, header.growth):
            raise ValueError("the code ends too early: the data are damaged.")
        _push_encoder(integer, stack, bits, batch_size)
        if _is_twofold(integer, size, header.growth):
            stack.pop(_EVEN)
        parts.append(np.packbits(bits[0].T, axis=1))
    rows = np.unpackbits(np.concatenate(parts[::-1]), axis=1, count=integer.visible)
    # What is left is the images' checksum.
    if stack.to_bytes() != _check_bytes(rows):
        raise ValueError("the decoded images have another checksum than those that were coded: the file is damaged.")
    return rows[:, np.argsort(model.order)] if isinstance(model, Chain) else rows


def read_header(data: bytes) -> Header:
    """What a file says about itself, after checking that it is whole.

    :raises ValueError: if the data are no such file, of another version, truncated, longer than they say, or damaged.
    """
    if not isinstance(data, bytes):
        raise ValueError(f"data must be bytes, got {type(data).__name__}; read the file in binary mode.")
    if not data.startswith(_MAGIC[: max(1, len(data))]):
        raise ValueError("these data are no file coded with a DARN (they do not begin with 'DAR'); give another file.")
    version = data[3] if len(data) > 3 else FILE_VERSION
    if version != FILE_VERSION:
        raise ValueError(
            f"the file has version {version}, this program reads {FILE_VERSION}; decode it with the release that "
            "wrote it."
        )
    # The fields one after the other.
    reader = Reader(data, len(_MAGIC) + 1)
    try:
        model = reader.take(_MODEL_BYTES)
        growth = reader.byte()
        num_images = reader.integer(what="the number of images")
        head = data[: reader.place]
        checksum = reader.take(_CRC_BYTES)
    except ValueError as error:
        raise ValueError(f"the file is truncated or damaged ({error}); take another copy.") from error
    start = reader.place
    if checksum != _crc(head, data[start:]) or growth not in _GROWTHS:
        raise ValueError("the file is truncated or damaged (its CRC-16 is wrong); take another copy.")
    return Header(version, model, growth, num_images, start)


def _check_size(batch_size: int) -> None:
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}.")


def _coded(integer: IntegerModel, rows: Bits, growth: int, batch_size: int) -> tuple[int, bytes] | None:
    """Growth and code; None if rounds of this growth pop more than was written before them, unless none is slower:
    what pops then makes of an empty stack is written in full, and there to be popped by the next round."""
    stack = BitStack(_check_bytes(rows))
    start = 0
    for size in _rounds(len(rows), growth):
        x = np.ascontiguousarray(rows[start : start + size].T)
        candidates = list[BitStack]()
        # Of small rounds two codes are made, with another bit below each; the shorter one stays.
        for mark in (0, 1) if _is_twofold(integer, size, growth) else (None,):
            after = stack if mark is None else stack.copy()
            if mark is not None:
                after.push(np.full([1, 1], mark), _EVEN)
            # Bits back: pop h with q(h | x), then push x and h with p.
            bits = _pop_encoder(integer, after, x, batch_size)
            if _is_used_up(after, start, growth):
                return None
            _push_decoder(integer, after, bits, batch_size)
            candidates.append(after)
        stack = min(candidates, key=lambda after: after.num_bits)
        start = start + size
    return growth, stack.to_bytes()


def _lasting(integer: IntegerModel, rows: Bits, batch_size: int) -> list[int]:
    """Growths with which these images write as much as the next ones pop, and the slowest one."""
    # A stack that cannot run out.
    most = 2 * len(rows) * sum(layer.n for layer in integer.encoders)  # bits; about half of it are popped at most
    stack = BitStack(np.random.default_rng(0).bytes(most // 8) + b"\1")
    bits_before = stack.num_bits
    x = np.ascontiguousarray(rows.T)
    bits = _pop_encoder(integer, stack, x, batch_size)
    # What a round pops against what it writes.
    popped = bits_before - stack.num_bits
    _push_decoder(integer, stack, bits, batch_size)
    return [g for g in _GROWTHS if g * popped <= 64 * (stack.num_bits - bits_before)] or [_GROWTHS[-1]]


def _is_twofold(integer: IntegerModel, size: int, growth: int) -> bool:
    """Whether a round has two codes, of which the bit below it says which one was kept."""
    return size <= _TWICE and growth > _SLOW and integer.wiring.top > 0


def _is_used_up(stack: BitStack, start: int, growth: int) -> bool:
    return growth > _GROWTHS[-1] and start >= _FREE and stack.num_bits < _LEAST_BITS


def _pop_encoder(integer: IntegerModel, stack: BitStack, x: Bits, batch_size: int) -> list[Bits]:
    """x, and h ~ q(h | x) from the bits of `stack`, from the first layer up."""

    def draw(level: int, below: list[Bits]) -> Bits:
        return integer.encoders[level - 1].draw(integer.encoder_offset(level, below, batch_size), stack.pop)

    return integer.wiring.upward(x, draw)


def _push_encoder(integer: IntegerModel, stack: BitStack, bits: list[Bits], batch_size: int) -> None:
    """Undo :func:`_pop_encoder`."""
    # From the top layer down, so that the first layer's bits are popped first again.
    for level in range(integer.wiring.top, 0, -1):
        offset = integer.encoder_offset(level, integer.wiring.seen_below(bits, level), batch_size)
        stack.push(bits[level], integer.encoders[level - 1].logits(bits[level], offset, batch_size))


def _push_decoder(integer: IntegerModel, stack: BitStack, bits: list[Bits], batch_size: int) -> None:
    """x with p(x | h), then h from the first layer up with p(h)."""
    for level, (layer, layer_bits) in enumerate(zip(integer.decoders, bits, strict=True)):
        above = integer.wiring.seen_above(bits, level)
        offset = integer.decoder_offset(level, above, layer_bits.shape[1], batch_size)
        stack.push(layer_bits, layer.logits(layer_bits, offset, batch_size))


def _pop_decoder(integer: IntegerModel, stack: BitStack, size: int, batch_size: int) -> list[Bits]:
    """Undo :func:`_push_decoder`: h from the top layer down, then x."""

    def draw(level: int, above: list[Bits]) -> Bits:
        return integer.decoders[level].draw(integer.decoder_offset(level, above, size, batch_size), stack.pop)

    return integer.wiring.downward(draw)


def _rounds(num_images: int, growth: int) -> list[int]:
    """Numbers of images of each round: `growth` / 64 of the number of images before it, rounded."""
    # Rounded to the nearest; the first image is a round by itself.
    sizes: list[int] = []
    done = 0
    while done < num_images:
        sizes.append(min(max((done * growth + 32) // 64, 1), _MAX_ROUND, num_images - done))
        done += sizes[-1]
    return sizes


def _check_bytes(rows: Bits) -> bytes:
    """The first bits of the SHA-256 of the images' shape and packed bits, with the top one set."""
    # The shape is hashed, too: packed bits of other widths may be the same bytes.
    digest = hashlib.sha256(f"{rows.shape}".encode() + np.packbits(rows, axis=1).tobytes()).digest()
    return digest[: _CHECK_BYTES - 1] + bytes([digest[_CHECK_BYTES - 1] | 128])


def _integer_model(model: DARN | Chain | IntegerModel) -> IntegerModel:
    if isinstance(model, Mixture):
        raise ValueError("a mixture of several densities cannot be coded; give one of its members.")
    if isinstance(model, Chain):
        return IntegerModel(model.as_darn("float64"))
    if not isinstance(model, DARN | IntegerModel):
        raise ValueError(f"model must be a DARN, its integer form or a chain, got {type(model).__name__}.")
    return model if isinstance(model, IntegerModel) else IntegerModel(model)


def _checked_images(images: ArrayLike, width: int) -> Bits:
    # As `check_data`, with the words of the codec.
    check_plain(images, "images")
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


def _crc(head: bytes, code: bytes) -> bytes:
    return binascii.crc_hqx(code, binascii.crc_hqx(head, 0xFFFF)).to_bytes(_CRC_BYTES, "little")
