"""Products of rows with signs: of signs by XNOR and bit counting, and of whole numbers by exact sums of floats.

Rows of signs are packed eight a byte, the first in the lowest bit, and padded with zeros to whole 64-bit words. Needs
NumPy, and for speed Numba.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..network.coding import Matrix, is_sparse
from ..network.convolution import Convolved, pooled, unfolded

__all__ = [
    "HAS_NUMBA",
    "INT32_MAX",
    "Layer",
    "Units",
    "convolved_sums",
    "exact_product",
    "hidden_sums",
    "masked_product",
    "pack_signs",
    "pad",
    "prefers_floats",
    "sign_products",
    "sign_units",
    "units",
]

HAS_NUMBA = importlib.util.find_spec("numba") is not None

INT32_MAX = 2**31 - 1
_FEW_ROWS = 16
_LARGE_LAYER = 2**20
_LARGE_FLOATS = 2**17
_BLOCK_BYTES = 1 << 23
_ONE = np.float32(1)
_NO_SIGNS = "the inputs of packed signs must all be -1 or +1, got others; code them as in training."


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer of binary weights.

    :ivar num_inputs: K, bits of a row in use.
    :ivar bits: a row for each of the O neurons, padded with zeros to 64-bit words, [O, 8 words].
    :ivar numbers: of each neuron the threshold, or in the last layer the bias, [O].
    :ivar convolved: what makes rows of K inputs of images, whose filters the neurons then are; or None.
    """

    num_inputs: int
    bits: NDArray[np.uint8]
    numbers: np.ndarray
    convolved: Convolved | None = None

    @property
    def num_outputs(self) -> int:
        """O."""
        return len(self.bits)

    @property
    def size_below(self) -> int:
        """Numbers of an example that it takes: K, or those of an image."""
        return self.num_inputs if self.convolved is None else self.convolved.num_inputs

    @property
    def size(self) -> int:
        """Numbers of an example that it gives: O, or those of an image."""
        return self.num_outputs if self.convolved is None else self.convolved.num_outputs

    @functools.cached_property
    def floats(self) -> NDArray[np.float32]:
        """The weights as numbers, [K, O], made when they are first used: 32 times the size of the bits.

        Of a large layer a neuron's weights are next to each other, which products of few rows read faster.
        """
        floats = _signs(self.bits, self.num_inputs, np.float32).T
        return floats if floats.size >= _LARGE_FLOATS else np.ascontiguousarray(floats)

    @functools.cached_property
    def masks(self) -> NDArray[np.int8]:
        """-1 for a weight of +1, else 0, [K, O], for `popcount.masked`: 8 times the size of the bits."""
        is_plus = np.unpackbits(self.bits, axis=1, count=self.num_inputs, bitorder="little")
        return np.ascontiguousarray(-is_plus.view(np.int8).T)

    @functools.cached_property
    def small_numbers(self) -> NDArray[np.float32]:
        """Thresholds for sums below 2^24."""
        return np.clip(self.numbers, -(2**24), 2**24).astype(np.float32)


class Units(NamedTuple):
    """Inputs as whole numbers of units.

    :ivar values: [N, K], an array or a CSR matrix of float32 or float64 numbers.
    :ivar largest: no row's absolute values add up to more.
    """

    values: Matrix
    largest: float


def pack_signs(X: np.ndarray) -> NDArray[np.uint8]:
    """Rows of -1 and +1, [N, D], as bits [N, 8 ceil(D / 64)], padded with zeros.

    :raises ValueError: if there are other values.
    """
    is_plus = X == 1
    if not np.all(is_plus | (X == -1)):
        raise ValueError(_NO_SIGNS)
    return pad(np.packbits(is_plus, axis=1, bitorder="little"))


def sign_units(X: np.ndarray) -> Units:
    """Rows of -1 and +1, [N, D], as whole numbers.

    :raises ValueError: if there are other values.
    """
    if not (np.abs(X) == 1).all():
        raise ValueError(_NO_SIGNS)
    return Units(X.astype(np.float32), X.shape[1])


def pad(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rows of bytes filled up with zeros to whole 64-bit words."""
    width = -(-packed.shape[1] // 8) * 8
    if packed.shape[1] == width:
        return np.ascontiguousarray(packed)
    padded = np.zeros((len(packed), width), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded


def sign_products(
    x: NDArray[np.uint8], layer: Layer, *, engine: str = "numpy", with_floats: bool = False
) -> NDArray[np.int32]:
    """Scalar products K - 2 popcount(x xor w) of all pairs of rows of K signs, [N, O].

    :param x: packed bits [N, 8 words]; their padding must be zero.
    :param engine: "numba" or "numpy".
    :param with_floats: NumPy may keep `layer.floats`, where they are faster than bits.
    """
    out = np.empty((len(x), layer.num_outputs), np.int32)
    if len(x) == 0:
        return out
    # By the processor's own count of ones.
    if engine == "numba":
        from . import popcount

        popcount.words(x.view(np.uint64), layer.bits.view(np.uint64), layer.num_inputs, out)
        return out
    # NumPy: by floats that are kept, by counting bits for few rows, or by floats made in blocks.
    if with_floats and prefers_floats(layer, len(x)):
        out[:] = _signs(x, layer.num_inputs, np.float32) @ layer.floats
    elif len(x) < _FEW_ROWS:
        words = layer.bits.view(np.uint64)
        for n, row in enumerate(x.view(np.uint64)):
            out[n] = layer.num_inputs - 2 * _ones(words ^ row)
    else:  # a float32 product is faster than NumPy's bit operations, and exact
        signs = _signs(x, layer.num_inputs, np.float32)
        for block in _blocks(layer, 4):
            out[:, block] = signs @ _signs(layer.bits[block], layer.num_inputs, np.float32).T
    return out


def units(X: Matrix, fraction_bits: int) -> Units:
    """Multiples of 2^-fraction_bits as whole numbers.

    :param X: [N, K], an array of numbers or a SciPy sparse matrix.
    :raises ValueError: if `X` has other values, or those of a row add up to 2^31 units of 2^-fraction_bits or more.
    """
    dtype: type[np.floating] = np.float32 if X.dtype == np.float32 else np.float64
    scale = dtype(2.0**fraction_bits)
    if not is_sparse(X):
        X = X.astype(dtype, copy=False)
        # No sum of absolute values exceeds the root of K times the sum of squares. Few passes over few numbers.
        bound = math.sqrt(X.shape[1] * float(np.vdot(X, X))) * float(scale)
        if bound < 0.99 * 2**24:
            q = X * scale
            rest = np.rint(q)
            rest -= q
            if np.vdot(rest, rest) == 0:
                return Units(q, bound)
    # Otherwise each value is checked, and the absolute values of each row are summed.
    with np.errstate(over="ignore"):
        if is_sparse(X):
            q = X.tocsr().astype(dtype, copy=True)
            q.data *= scale
        else:
            q = X * scale
    values = q.data if is_sparse(X) else q
    if not (values == np.rint(values)).all():  # NaN is caught here, infinity below
        raise ValueError(
            f"this network's inputs must be multiples of 2^-{fraction_bits}, got others; code them as it was trained."
        )
    largest = float(abs(q).astype(np.float64).sum(axis=1).max()) if q.shape[0] else 0.0
    if not largest <= INT32_MAX:
        raise ValueError(f"the inputs of a row must add up to less than 2^31 units of 2^-{fraction_bits}; scale them.")
    return Units(q, largest)


def exact_product(X: Units, layer: Layer, *, with_floats: bool = True) -> np.ndarray:
    """Sums of whole numbers with signs, [N, O], by floats, which are exact below 2^24 (float32) or 2^53 (float64).

    :param with_floats: may keep `layer.floats`; else they are made for each call, in blocks.
    """
    q = X.values
    is_single = X.largest < 2**24
    # By floats that are kept, where sums fit in float32.
    if is_single and with_floats:
        q = q.astype(np.float32, copy=False)
        return np.asarray(q @ layer.floats) if is_sparse(q) else np.dot(q, layer.floats)  # takes less time than @
    dtype: type[np.floating] = np.float32 if is_single else np.float64
    # Or by signs made for this call, in blocks; of sparse rows for the columns that occur.
    columns = np.unique(q.indices) if is_sparse(q) else None
    q = q.astype(dtype, copy=False) if columns is None else q[:, columns].astype(dtype)
    out = np.empty((q.shape[0], layer.num_outputs), dtype)
    for block in _blocks(layer, np.dtype(dtype).itemsize):
        bits = layer.bits[block]
        if columns is None:
            signs = _signs(bits, layer.num_inputs, dtype)
        else:
            signs = 2 * ((bits[:, columns >> 3] >> (columns & 7)) & 1).astype(dtype) - 1
        out[:, block] = q @ signs.T
    return out


def convolved_sums(X: Units, layers: Sequence[Layer]) -> np.ndarray:
    """The last layer's sums of a network with convolutions, [N, O], by floats; exact, see `exact_product`.

    Behind a convolution inputs are sums, not means, of pool x pool signs, and so are these a multiple of the sums.
    """
    unfolded_sizes = [
        convolved.num_positions * convolved.fan_in for convolved in (layer.convolved for layer in layers) if convolved
    ]
    # So many rows that their unfolded images need few bytes.
    step = max(1, _BLOCK_BYTES // (4 * max(unfolded_sizes)))
    dtype: type[np.floating] = np.float32 if X.largest < 2**24 else np.float64
    parts = []
    for start in range(0, max(1, len(X.values)), step):
        v: np.ndarray = X.values[start : start + step].astype(dtype)
        for number, layer in enumerate(layers, 1):
            rows = v if layer.convolved is None else unfolded(v, layer.convolved)
            sums = rows @ layer.floats
            # +1 where sums reach thresholds; of a convolution, sums over blocks of these signs.
            if number < len(layers):
                v = np.where(sums >= layer.numbers, np.float32(1), np.float32(-1))
                v = v if layer.convolved is None else pooled(v, layer.convolved)
        parts.append(sums)
    return np.concatenate(parts)


def masked_product(X: np.ndarray, layer: Layer, fraction_bits: int) -> NDArray[np.int32] | None:
    """The same of few rows of multiples of 2^-fraction_bits by Numba; None if `units` has to say what is wrong."""
    from . import popcount

    out = np.empty((len(X), layer.num_outputs), np.int32)
    is_right = popcount.masked(X, 2.0**fraction_bits, layer.masks, out)
    return out if is_right else None


def hidden_sums(
    sums: np.ndarray, before: Layer, layer: Layer, *, engine: str = "numpy", with_floats: bool = False
) -> np.ndarray:
    """The sums of a layer, [N, O], whose inputs are the outputs of the one before, +1 where its sums reach thresholds.

    :param sums: of the layer before, whole numbers [N, K], in any dtype; below 2^24 if float32.
    :param engine: "numba" or "numpy".
    :param with_floats: as in `sign_products`.
    """
    if engine == "numpy" and with_floats and prefers_floats(layer, len(sums)):
        if sums.dtype == np.float32:
            return np.dot(np.copysign(_ONE, sums - before.small_numbers), layer.floats)
        return np.dot(np.where(sums >= before.numbers, _ONE, -_ONE), layer.floats)
    # Signs as bits, of which the next layer counts those that differ.
    x = pad(np.packbits(sums >= before.numbers, axis=1, bitorder="little"))
    return sign_products(x, layer, engine=engine, with_floats=with_floats)


def prefers_floats(layer: Layer, num_rows: int) -> bool:
    """Whether products of signs by NumPy are faster with floats than with bits."""
    return num_rows >= _FEW_ROWS or layer.num_inputs * layer.num_outputs < _LARGE_LAYER


def _blocks(layer: Layer, itemsize: int) -> list[slice]:
    """Slices of outputs whose weights as numbers need few bytes."""
    step = max(1, _BLOCK_BYTES // (itemsize * layer.num_inputs))
    return [slice(o, o + step) for o in range(0, layer.num_outputs, step)]


def _signs(packed: NDArray[np.uint8], num_bits: int, dtype: type[np.floating]) -> np.ndarray:
    """Rows of packed bits as -1 and +1, [O, K]."""
    return 2 * np.unpackbits(packed, axis=1, count=num_bits, bitorder="little").astype(dtype) - 1


def _ones(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Number of ones in each row [O, M] of 64-bit words; `words` is overwritten. NumPy 1 has no function for it."""
    pairs, quads, bytes_ = (np.uint64(mask) for mask in (0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F))
    one = np.uint64(1)
    two = np.uint64(2)
    four = np.uint64(4)
    # Counts of ones in pairs of bits, in fours, in bytes; a product adds up the bytes.
    words -= (words >> one) & pairs
    upper = (words >> two) & quads
    words &= quads
    words += upper
    words += words >> four
    words &= bytes_
    words *= np.uint64(0x0101010101010101)
    words >>= np.uint64(56)
    return words.sum(axis=1, dtype=np.int64)
