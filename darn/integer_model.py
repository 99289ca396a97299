"""A DARN in integers: probabilities that are the same bits on every machine, for any batch size and number of threads.

A decoder must compute exactly the probabilities that the encoder used, and floating-point sums depend on the order of
their terms. Here weights are rounded to multiples of 2^-f, so that all sums are sums of integers. They are computed by
the BLAS in float32 while they stay below 2^24, or else in float64 below 2^53: such sums are exact in any order. Both
limits are checked from the weights, for any input.

    logits         integers, in units of 2^-f
    tanh           a table over multiples of 2^-10 with values in units of 2^-12, computed with `decimal`, whose exp is
                   correctly rounded, so that no library's rounding can change it
    probabilities  a table over logits rounded to multiples of 2^-8: integers 1, ..., 2^20 - 1 in units of 2^-20

Arrays are [units, images].
"""

from __future__ import annotations

import decimal
import functools
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from darn.autoregressive import FactorialConditional, LinearConditional
from darn.model import DARN, DenseNetwork
from darn.rans import PRECISION_BITS

__all__ = ["FORMAT_VERSION", "IntegerLayer", "IntegerModel", "probability_table", "table_index", "tanh_table"]

FORMAT_VERSION = 1
"""Changes when the arithmetic changes; it is part of :attr:`IntegerModel.digest`."""

Bits = NDArray[np.uint8]
Numbers = NDArray[Any]

_LOGIT_BITS = 8  # resolution of the probability table
_LOGIT_LIMIT = 14  # beyond it a probability is below 2^-20
_TANH_INPUT_BITS, _UNIT_BITS, _TANH_LIMIT = 10, 12, 6
_MEAN_BITS = 16
_MIN_BITS = 10  # coarsest weights: 2^-10 costs about 0.01 bits an image of 784 pixels
_DTYPES: tuple[tuple[type, int, int], ...] = (
    (np.float32, 24, 16),
    (np.float64, 53, 24),
)  # limit of sums, finest weights


@functools.cache
def probability_table() -> NDArray[np.int32]:
    """round(2^20 sigmoid(i / 2^8)), at least 1 and at most 2^20 - 1, for i from -14 2^8 to 14 2^8."""
    one, scale = 1 << PRECISION_BITS, 1 << _LOGIT_BITS
    with decimal.localcontext(decimal.Context(prec=40)):
        upper = [
            min(one - 1, int((one / (1 + (decimal.Decimal(-i) / scale).exp())).to_integral_value()))
            for i in range(_LOGIT_LIMIT * scale + 1)
        ]
    table = np.array([*(one - value for value in upper[:0:-1]), *upper], np.int32)
    table.flags.writeable = False
    return table


@functools.cache
def tanh_table() -> NDArray[np.int16]:
    """round(2^12 tanh(i / 2^10)) for i from -6 2^10 to 6 2^10, beyond which it is ±2^12."""
    scale, unit = 1 << _TANH_INPUT_BITS, 1 << _UNIT_BITS
    with decimal.localcontext(decimal.Context(prec=40)):
        powers = [(decimal.Decimal(-2 * i) / scale).exp() for i in range(_TANH_LIMIT * scale + 1)]
        upper = [int((unit * (1 - power) / (1 + power)).to_integral_value()) for power in powers]
    table = np.array([*(-value for value in upper[:0:-1]), *upper], np.int16)
    table.flags.writeable = False
    return table


class _Sums:
    """a = K' v + c: exact sums of integer inputs v [n_in, B] with rounded weights, in units of 2^-bits.

    :param kernel: weights [n_in, n_out], or None without inputs.
    :param constant: [n_out].
    :param earlier: [n_out, n_out], strictly upper triangular: what the layer's own bits add; or None.
    :param shifts: what is subtracted from the inputs, [n_in] in [0, 1]; or None.
    :param input_bits: inputs are integers in units of 2^-input_bits, at most `input_limit` in size.
    :raises ValueError: if the sums do not fit into 53 bits.
    """

    def __init__(
        self,
        kernel: Numbers | None,
        constant: Numbers,
        earlier: Numbers | None = None,
        *,
        shifts: Numbers | None = None,
        input_bits: int = 0,
        input_limit: float = 1.0,
        name: str,
    ) -> None:
        none = np.zeros([1, len(constant)])
        K, W = none if kernel is None else kernel, none if earlier is None else earlier
        size = np.max(input_limit * 2.0**-input_bits * np.abs(K).sum(axis=0) + np.abs(W).sum(axis=0) + np.abs(constant))
        for dtype, limit, finest in _DTYPES:
            largest = limit - input_bits - int(np.floor(np.log2(max(size, 1e-30))))
            for weight_bits in range(min(finest, largest), _MIN_BITS - 1, -1):
                self.bits, self.dtype = weight_bits + input_bits, dtype
                K_int, W_int = np.rint(K * 2.0**weight_bits), np.rint(W * 2.0**self.bits)
                c = np.rint(constant * 2.0**self.bits)
                if shifts is not None:
                    c -= _shift_sums(K_int, shifts)
                bounds = input_limit * np.abs(K_int).sum(axis=0) + np.abs(W_int).sum(axis=0) + np.abs(c)
                self.limit = float(bounds.max())  # of any sum; itself exact if below 2^53
                if self.limit < 2.0**limit:
                    self.kernel: Numbers | None = None if kernel is None else np.ascontiguousarray(K_int.T, dtype)
                    self.earlier: Numbers | None = None if earlier is None else W_int.astype(dtype)
                    self.constant = c.astype(dtype)[:, None]
                    self._check_products(input_limit, name)
                    return
        raise ValueError(
            f"{name}: sums of weights rounded to multiples of 2^-{_MIN_BITS} do not fit into 53 bits (they reach "
            f"{size:.3g}); weights as large as that cannot be coded exactly, train again with a smaller learning rate."
        )

    def __call__(self, v: Numbers, batch_size: int) -> Numbers:
        """[n_in, B] to [n_out, B], `batch_size` columns at a time."""
        if self.kernel is None:
            return np.repeat(self.constant, v.shape[1], axis=1)
        a: Numbers = np.empty([len(self.constant), v.shape[1]], self.dtype)
        for start in range(0, v.shape[1], batch_size):
            columns = slice(start, start + batch_size)
            np.matmul(self.kernel, v[:, columns].astype(self.dtype), out=a[:, columns])
        a += self.constant
        return a

    def _check_products(self, input_limit: float, name: str) -> None:
        """Some libraries can be told to multiply with fewer digits; compare a product with one of integers."""
        if self.kernel is None:
            return
        v = np.random.default_rng(0).integers(0, 2, (self.kernel.shape[1], 8)) * int(input_limit)
        if not np.array_equal(self.kernel @ v.astype(self.dtype), self.kernel.astype(np.int64) @ v):
            raise ValueError(
                f"{name}: matrix products of NumPy are not exact here; switch off the reduced precision of its BLAS."
            )

    def update_hash(self, digest: Any) -> None:
        """Feed all integers to a hash."""
        digest.update(f"{self.bits} {self.dtype.__name__} {self.limit:.0f};".encode())
        for array in (self.kernel, self.constant, self.earlier):
            if array is not None:
                digest.update(f"{array.shape}".encode() + array.astype("<i8").tobytes())


def _shift_sums(kernel: Numbers, shifts: Numbers) -> Numbers:
    """sum_i shifts_i kernel_ij, rounded to integers; shifts are rounded to multiples of 2^-16."""
    total = np.rint(shifts * 2.0**_MEAN_BITS).astype(np.int64) @ kernel.astype(np.int64)
    return ((total + (1 << (_MEAN_BITS - 1))) >> _MEAN_BITS).astype(np.float64)


class IntegerLayer:
    """Bits given parents, as `model.Layer`: deterministic units, then logits, then probabilities.

    :ivar n: number of bits.
    :ivar earlier: what bit k adds to the logit of bit j, [n, n] strictly upper triangular; None if independent.
    :ivar bits: logits are in units of 2^-bits.

    :raises ValueError: if the conditional or the network is of a kind that cannot be coded, or weights are too large.
    """

    def __init__(
        self, network: Any, conditional: Any, shifts: Numbers | None, scales: Numbers | None, name: str
    ) -> None:
        if not isinstance(conditional, FactorialConditional | LinearConditional):
            raise ValueError(
                f"{name}: only factorial and linear conditionals can be coded, got {type(conditional).__name__}; train "
                "with encoder, prior and visible_conditional 'factorial' or 'linear'."
            )
        if network is not None and not isinstance(network, DenseNetwork):
            raise ValueError(
                f"{name}: only dense networks can be coded, got {type(network).__name__}; train without local layers."
            )
        self.n = conditional.n
        kernels = [] if network is None else [_float64(kernel) for kernel in network.kernels]
        if kernels and scales is not None:
            kernels[0] = kernels[0] * scales[:, None]
        self.is_tanh = network is not None and network.activation is tf.tanh
        self.hidden: list[_Sums] = []
        input_bits, limit = 0, 1.0
        for i, bias in enumerate([] if network is None else network.biases):
            sums = _Sums(
                kernels[i],
                _float64(bias),
                shifts=shifts if i == 0 else None,
                input_bits=input_bits,
                input_limit=limit,
                name=f"{name}, deterministic layer {i + 1}",
            )
            self.hidden.append(sums)
            input_bits = _UNIT_BITS
            limit = float(1 << _UNIT_BITS) if self.is_tanh else np.ceil(sums.limit * 2.0 ** (_UNIT_BITS - sums.bits))
        earlier = np.triu(_float64(conditional.weights), 1) if isinstance(conditional, LinearConditional) else None
        self._sums = _Sums(
            kernels[-1] if kernels else None,
            _float64(conditional.bias),
            earlier,
            shifts=None if self.hidden else shifts,
            input_bits=input_bits,
            input_limit=limit,
            name=name,
        )
        self.earlier, self.bits = self._sums.earlier, self._sums.bits

    def offset(self, parents: Numbers, batch_size: int) -> Numbers:
        """Logits without the layer's own bits, [n, B], for parents [n_in, B] (without inputs only B matters).

        :param batch_size: columns computed at a time; the result does not depend on it.
        """
        v: Numbers = parents
        for sums in self.hidden:
            a = sums(v, batch_size)
            v = self._tanh(a, sums.bits) if self.is_tanh else self._relu(a, sums.bits)
        return self._sums(v, batch_size)

    def logits(self, bits: Bits, offset: Numbers, batch_size: int) -> Numbers:
        """Logits [n, B] of all bits when they are known."""
        if self.earlier is None:
            return offset
        a = offset.copy()
        for start in range(0, bits.shape[1], batch_size):
            columns = slice(start, start + batch_size)
            a[:, columns] += self.earlier.T @ bits[:, columns].astype(offset.dtype)
        return a

    def frequencies(self, logits: Numbers) -> NDArray[np.int32]:
        """Probabilities of being 1 in units of 2^-20."""
        scale, end = self.table_scale
        return probability_table()[table_index(logits, scale, end)]

    @property
    def table_scale(self) -> tuple[float, int]:
        """What turns a logit into a place in :func:`probability_table`, see :func:`table_index`."""
        return 2.0 ** (_LOGIT_BITS - self.bits), _LOGIT_LIMIT << _LOGIT_BITS

    def update_hash(self, digest: Any) -> None:
        """Feed all integers to a hash."""
        digest.update(f"layer {self.n} {self.is_tanh};".encode())
        for sums in (*self.hidden, self._sums):
            sums.update_hash(digest)

    @staticmethod
    def _tanh(a: Numbers, bits: int) -> Numbers:
        return tanh_table()[table_index(a, 2.0 ** (_TANH_INPUT_BITS - bits), _TANH_LIMIT << _TANH_INPUT_BITS)]

    @staticmethod
    def _relu(a: Numbers, bits: int) -> Numbers:
        return np.floor(np.maximum(a, 0).astype(np.float64) * 2.0 ** (_UNIT_BITS - bits) + 0.5)


def table_index(a: Numbers, scale: float, end: int) -> NDArray[np.int32]:
    """Places in a table of 2 `end` + 1 entries, the middle one for 0: `scale` a, rounded and clipped.

    :param scale: a power of two, so that only the rounding to the dtype of `a` and to an integer is left.
    """
    index = a * a.dtype.type(scale)
    index += a.dtype.type(end + 0.5)
    np.clip(index, 0, 2 * end, out=index)
    return index.astype(np.int32)  # rounds down, as all are positive


class IntegerModel:
    """The integer form of a trained DARN.

    :ivar visible: number of visible units. :ivar hidden: numbers of stochastic units, from the visible layer up.
    :ivar prior: the top layer; None without stochastic layers.
    :ivar decoders: p(x | h), p(h^1 | h^2, ...), ....
    :ivar encoders: q(h^1 | x), q(h^2 | h^1, ...), ....

    :raises ValueError: if the model is not for binary data, has conditionals or networks that cannot be coded exactly,
        or weights that are too large.
    """

    def __init__(self, model: DARN) -> None:
        config = model.config
        if config.observations != "binary":
            raise ValueError(
                f"only models of binary data can code, got observations={config.observations!r}; train with 'binary'."
            )
        self.visible, self.hidden, self.skip = config.visible, config.hidden, config.skip
        half = [np.full(n, 0.5) for n in config.hidden]  # 2 h - 1 = 2 (h - 1/2)
        mean = np.clip(_float64(model.visible_mean), 0.0, 1.0)
        L = len(config.hidden)
        self.prior = None
        if model.prior is not None:
            self.prior = IntegerLayer(None, model.prior, None, None, "prior")
        self.decoders = []
        for level in range(max(1, L)):
            shifts = np.concatenate(half[level:] if self.skip else half[level : level + 1]) if L else None
            scales = None if shifts is None else np.full(len(shifts), 2.0)
            layer = model.decoders[level]
            self.decoders.append(IntegerLayer(layer.network, layer.conditional, shifts, scales, f"decoder {level}"))
        self.encoders = []
        for level in range(L):
            below = half[:level] if self.skip else half[level - 1 : level] if level else []
            visible = [mean] if level == 0 or self.skip else []
            shifts = np.concatenate([*visible, *below])
            scales = np.concatenate([*(np.ones(len(m)) for m in visible), *(np.full(len(h), 2.0) for h in below)])
            layer = model.encoders[level]
            self.encoders.append(IntegerLayer(layer.network, layer.conditional, shifts, scales, f"encoder {level + 1}"))
        self.digest = self._hash(config.to_json())

    def above(self, h: Sequence[Bits], level: int) -> Bits:
        """Parents in the decoder of the stochastic layer `level`, 0 being the visible one: [n_in, B]."""
        return np.concatenate(h[level:]) if self.skip else h[level]

    def below(self, x: Bits, h: Sequence[Bits], level: int) -> Bits:
        """Parents in the encoder of the stochastic layer h[level]: [n_in, B]."""
        if level == 0:
            return x
        return np.concatenate([x, *h[:level]]) if self.skip else h[level - 1]

    def _hash(self, config: str) -> bytes:
        digest = hashlib.sha256(json.dumps([FORMAT_VERSION, config]).encode())
        digest.update(probability_table().astype("<i4").tobytes() + tanh_table().astype("<i4").tobytes())
        layers = (*self.encoders, *self.decoders, *([] if self.prior is None else [self.prior]))
        for layer in layers:
            layer.update_hash(digest)
        return digest.digest()


def _float64(variable: Any) -> NDArray[np.float64]:
    array = np.asarray(variable.numpy(), np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"the parameters {variable.name} must be finite, got NaN or infinity: training has diverged.")
    return array
