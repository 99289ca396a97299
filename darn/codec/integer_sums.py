"""Exact sums: affine maps and functions of numbers with the same bits on every machine.

A decoder must compute exactly the probabilities that the encoder used, and floating-point sums depend on the order of
their terms. Here weights are rounded to multiples of 2^-f, so that all sums are sums of integers. They are computed by
the BLAS in float32 while they stay below 2^24, or else in float64 below 2^53: such sums are exact in any order. Both
limits are checked from the weights, for any input.

    tanh           a table over multiples of 2^-10 with values in units of 2^-12, computed with `decimal`, whose exp is
                   correctly rounded, so that no library's rounding can change it
    probabilities  a table over logits rounded to multiples of 2^-8: those of the less probable value of a bit, integers
                   1, ..., 2^19 in units of 2^-20
"""

from __future__ import annotations

import decimal
import functools
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

__all__ = [
    "PRECISION_BITS",
    "UNIT_BITS",
    "Exact",
    "Numbers",
    "Sums",
    "logit_index",
    "probability_table",
    "relu_units",
    "tanh_table",
    "tanh_units",
]

PRECISION_BITS = 20
"""Probabilities are multiples of 2^-20."""

UNIT_BITS = 12
"""Deterministic units are multiples of 2^-12."""

Numbers = NDArray[Any]

_LOGIT_BITS = 8  # resolution of the probability table
_LOGIT_LIMIT = 14  # beyond it a probability is below 2^-20
_LOGIT_SCALE, _HALF, _LAST_LOGIT = (  # arrays, with which NumPy is quicker to start than with numbers
    np.array(float(value)) for value in (1 << _LOGIT_BITS, 0.5, _LOGIT_LIMIT << _LOGIT_BITS)
)
_TANH_INPUT_BITS = 10
_TANH_LIMIT = 6
_MEAN_BITS = 16
_MIN_BITS = 10  # coarsest weights: 2^-10 costs about 0.01 bits an image of 784 pixels
_DTYPES: tuple[tuple[type, int, int], ...] = (
    (np.float32, 24, 16),
    (np.float64, 53, 24),
)  # limit of sums, finest weights


@functools.cache
def probability_table() -> NDArray[np.int32]:
    """round(2^20 sigmoid(-i / 2^8)), at least 1, for i from 0 to 14 2^8: at most 2^19."""
    one = 1 << PRECISION_BITS
    scale = 1 << _LOGIT_BITS
    # 40 decimal digits, so that the table is the same on each machine.
    with decimal.localcontext(decimal.Context(prec=40)):
        upper = [
            min(one - 1, int((one / (1 + (decimal.Decimal(-i) / scale).exp())).to_integral_value()))
            for i in range(_LOGIT_LIMIT * scale + 1)
        ]
    table = one - np.array(upper, np.int32)
    table.flags.writeable = False
    return table


@functools.cache
def tanh_table() -> NDArray[np.int16]:
    """round(2^12 tanh(i / 2^10)) for i from -6 2^10 to 6 2^10, beyond which it is ±2^12."""
    scale = 1 << _TANH_INPUT_BITS
    unit = 1 << UNIT_BITS
    with decimal.localcontext(decimal.Context(prec=40)):
        powers = [(decimal.Decimal(-2 * i) / scale).exp() for i in range(_TANH_LIMIT * scale + 1)]
        upper = [int((unit * (1 - power) / (1 + power)).to_integral_value()) for power in powers]
    table = np.array([*(-value for value in upper[:0:-1]), *upper], np.int16)
    table.flags.writeable = False
    return table


def logit_index(logits: Numbers) -> NDArray[np.intp]:
    """Places of |logits| in :func:`probability_table`; only rounding to the table's resolution is left to do."""
    index = np.abs(logits)
    index *= _LOGIT_SCALE
    index += _HALF
    np.minimum(index, _LAST_LOGIT, out=index)
    return index.astype(np.intp)  # rounds down, as all are positive


class Exact(NamedTuple):
    """Integers, held as floating-point numbers, in units of 2^-bits."""

    integers: Numbers
    bits: int

    @property
    def values(self) -> NDArray[np.float64]:
        """The numbers themselves."""
        return self.integers * np.float64(2.0**-self.bits)


def tanh_units(a: Exact) -> Exact:
    """tanh, in units of 2^-12."""
    end = _TANH_LIMIT << _TANH_INPUT_BITS
    number = a.integers.dtype.type
    index = a.integers * number(2.0 ** (_TANH_INPUT_BITS - a.bits))
    index += number(end + 0.5)
    np.clip(index, 0, 2 * end, out=index)
    return Exact(tanh_table()[index.astype(np.int32)], UNIT_BITS)


def relu_units(a: Exact) -> Exact:
    """max(a, 0), in units of 2^-12."""
    scaled = np.maximum(a.integers, 0).astype(np.float64) * 2.0 ** (UNIT_BITS - a.bits)
    return Exact(np.floor(scaled + 0.5), UNIT_BITS)


class Sums:
    """a = K' v + c: exact sums of integer inputs v [n_in, B] with rounded weights, in units of 2^-bits.

    :ivar bits: of the result.
    :ivar limit: of any sum, in units of 2^-bits.
    :ivar kernel: K', [n_out, n_in], an array or a sparse matrix; None without inputs.
    :ivar constant: [n_out, 1].

    :param kernel: weights [n_in, n_out], an array or a sparse matrix, or None without inputs.
    :param constant: [n_out].
    :param shifts: what is subtracted from the inputs, [n_in] in [0, 1]; or None.
    :param input_bits: inputs are integers in units of 2^-input_bits, at most `input_limit` in size.
    :raises ValueError: if the sums do not fit into 53 bits.
    """

    def __init__(
        self,
        kernel: Any,
        constant: Numbers,
        *,
        shifts: Numbers | None = None,
        input_bits: int = 0,
        input_limit: float = 1.0,
        name: str,
    ) -> None:
        self._name = name
        # As many bits of the weights as leave every sum exact: in float32 if these are enough, else in float64.
        K = np.zeros([1, len(constant)]) if kernel is None else kernel
        size = np.max(input_limit * 2.0**-input_bits * _column_sums(K) + np.abs(constant))
        for dtype, limit, finest in _DTYPES:
            largest = limit - input_bits - int(np.floor(np.log2(max(size, 1e-30))))
            for weight_bits in range(min(finest, largest), _MIN_BITS - 1, -1):
                self.bits = weight_bits + input_bits
                self.dtype = dtype
                K_int = _rounded(K, weight_bits)
                c = np.rint(constant * 2.0**self.bits)
                # The inputs' shifts join the constant.
                if shifts is not None:
                    c -= _shift_sums(K_int, shifts)
                self.limit = float(np.max(input_limit * _column_sums(K_int) + np.abs(c)))  # exact if below 2^53
                if self.limit < 2.0**limit:
                    self.kernel: Any = None if kernel is None else _rows(K_int, dtype)
                    self.constant = c.astype(dtype)[:, None]
                    self.check_products(input_limit)
                    return
        raise ValueError(
            f"{name}: sums of weights rounded to multiples of 2^-{_MIN_BITS} do not fit into 53 bits (they reach "
            f"{size:.3g}); weights as large as that cannot be coded exactly, train again with a smaller learning rate."
        )

    def __call__(self, v: Exact, batch_size: int) -> Exact:
        """[n_in, B] to [n_out, B], `batch_size` columns at a time."""
        B = v.integers.shape[1]
        if self.kernel is None:
            return Exact(np.repeat(self.constant, B, axis=1), self.bits)
        a: Numbers = np.empty([len(self.constant), B], self.dtype)
        for start in range(0, B, batch_size):
            columns = slice(start, start + batch_size)
            a[:, columns] = self.kernel @ v.integers[:, columns].astype(self.dtype)
        a += self.constant
        return Exact(a, self.bits)

    def check_products(self, input_limit: float) -> None:
        """Some libraries can be told to multiply with fewer digits; compare a product with one of integers.

        :raises ValueError: if products are not exact.
        """
        if self.kernel is None or scipy.sparse.issparse(self.kernel):  # SciPy's loops have the full precision
            return
        v = np.random.default_rng(0).integers(0, 2, (self.kernel.shape[1], 8)) * int(input_limit)
        if not np.array_equal(self.kernel @ v.astype(self.dtype), self.kernel.astype(np.int64) @ v):
            raise ValueError(
                f"{self._name}: matrix products of NumPy are not exact here; switch off the reduced precision of its "
                "BLAS."
            )

    def update_hash(self, digest: Any) -> None:
        """Feed all integers to a hash."""
        digest.update(f"{self.bits} {self.dtype.__name__} {self.limit:.0f};".encode())
        arrays = [self.constant]
        if scipy.sparse.issparse(self.kernel):
            arrays += [self.kernel.indptr, self.kernel.indices, self.kernel.data]
        elif self.kernel is not None:
            arrays.append(self.kernel)
        for array in arrays:
            digest.update(f"{array.shape}".encode() + array.astype("<i8").tobytes())


def _column_sums(K: Any) -> Numbers:
    """sum_i |K_ij|."""
    return np.asarray(abs(K).sum(axis=0)).reshape(-1)


def _rounded(K: Any, bits: int) -> Any:
    if not scipy.sparse.issparse(K):
        return np.rint(K * 2.0**bits)
    rounded = K.copy()
    rounded.data = np.rint(rounded.data * 2.0**bits)
    return rounded


def _rows(K: Any, dtype: type) -> Any:
    """K' in rows."""
    if not scipy.sparse.issparse(K):
        return np.ascontiguousarray(K.T, dtype)
    rows = K.T.tocsr().astype(dtype)
    rows.sort_indices()
    return rows


def _shift_sums(kernel: Any, shifts: Numbers) -> Numbers:
    """sum_i shifts_i kernel_ij, rounded to integers; shifts are rounded to multiples of 2^-16."""
    numbers = np.rint(shifts * 2.0**_MEAN_BITS).astype(np.int64)
    total = np.asarray(kernel.astype(np.int64).T @ numbers)
    return ((total + (1 << (_MEAN_BITS - 1))) >> _MEAN_BITS).astype(np.float64)
