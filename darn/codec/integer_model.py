"""A DARN in integers: probabilities that are the same bits on every machine, for any batch size and number of threads.

The wiring and the passes are those of the model (`layers.Wiring`, `layers.forward`); what is computed in them are exact
sums (`Sums`): logits of all bits where they are known, or of one after the other. Numbers are [n, B], bits
first.

Logits of a layer are those of its parents plus what its own earlier bits add. Both are exact, and adding two numbers is
rounded alike everywhere. What the earlier bits add is

    linear, local   a product with a triangular matrix
    MADE            a network with tanh units, which its masks make triangular
    NADE            V_j' sigmoid(c + sum_{k<j} W_k h_k) = V_j' (1 + tanh((c + sum_{k<j} W_k h_k) / 2)) / 2

EoNADE with a single order is a NADE in which each bit before also adds a row that says that it is known.

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
import hashlib
import json
import math
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from darn.images.local import LocalCausalConditional, LocalDecoder, LocalEncoder, LocalMap, LocalUnitsConditional
from darn.images.periodic import PeriodicLayer
from darn.images.pixelcnn import PixelCNNConditional
from darn.model.autoregressive import FactorialConditional, LinearConditional
from darn.model.layers import DenseNetwork, Layer, forward
from darn.model.model import DARN
from darn.more.made import MADEConditional
from darn.more.nade import EoNADEConditional, NADEConditional

__all__ = [
    "FORMAT_VERSION",
    "PRECISION_BITS",
    "Bits",
    "Exact",
    "IntegerLayer",
    "IntegerModel",
    "causal_matrix",
    "logit_index",
    "network_matrices",
    "periodic_matrix",
    "probability_table",
    "tanh_table",
]

FORMAT_VERSION = 2
"""Changes when the arithmetic changes; it is part of :attr:`IntegerModel.digest`."""

PRECISION_BITS = 20
"""Probabilities are multiples of 2^-20."""

UNIT_BITS = 12
"""Deterministic units are multiples of 2^-12."""

Numbers = np.ndarray

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
    # In place: this is called once for each bit of each image.
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
    # The nearest multiple of 2^-10, half up, as a place in the table.
    end = _TANH_LIMIT << _TANH_INPUT_BITS
    number = a.integers.dtype.type
    index = a.integers * number(2.0 ** (_TANH_INPUT_BITS - a.bits))
    index += number(end + 0.5)
    np.clip(index, 0, 2 * end, out=index)
    return Exact(tanh_table()[index.astype(np.int32)], UNIT_BITS)


def relu_units(a: Exact) -> Exact:
    """max(a, 0), in units of 2^-12."""
    # Rounded half up; powers of two move nothing but the point.
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
        kernel: object,
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
        # Sums are exact in any order, so that blocks of columns change nothing.
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


def network_matrices(network: object) -> tuple[list[tuple[Any, Any]], str]:
    """Kernel [n_in, n_out] and bias [n_out] (None in the last one) of each affine map, and the activation between them.

    :raises ValueError: for another kind of network.
    """
    # Dense layers.
    if isinstance(network, DenseNetwork):
        biases = [*(bias.numpy() for bias in network.biases), None]
        return list(zip([kernel.numpy() for kernel in network.kernels], biases, strict=True)), network.activation
    # Local layers, as sparse matrices.
    if isinstance(network, LocalMap):
        matrix = periodic_matrix(network.layer)
        return [(matrix if network.direction == "up" else matrix.T.tocsc(), None)], "relu"
    if not isinstance(network, LocalEncoder | LocalDecoder):
        raise ValueError(f"networks must be dense or local, got {type(network).__name__}.")
    layers = [periodic_matrix(layer) for layer in network.layers]
    biases = [bias.numpy().reshape(-1) for bias in network.biases]
    dense = network.dense.numpy()
    if isinstance(network, LocalEncoder):
        return [*zip(layers, biases, strict=True), (dense, None)], "relu"
    kernels = [dense.T, *(layer.T.tocsc() for layer in reversed(layers))]
    return list(zip(kernels, [*reversed(biases), None], strict=True)), "relu"


def periodic_matrix(layer: PeriodicLayer, weights: NDArray | None = None) -> Any:
    """The matrix of a periodic layer, sparse [H W C_in, H' W' C_out].

    :param weights: in place of the layer's own.
    """
    # Numbers of the input's places, from 1; 0 is padding.
    numbers = np.arange(1, math.prod(layer.shape) + 1).reshape(layer.shape)
    (rows, columns) = layer.places
    s = layer.stride
    before = (layer.kernel - layer.stride) // 2
    after = [layer.kernel + s * num for num in layer.places]
    padded = np.pad(numbers, ((before, after[0]), (before, after[1]), (0, 0)))  # 0 is padding
    blocks = np.arange(layer.overlap)
    row, column = (s * (np.arange(num)[:, None] + blocks) for num in layer.places)  # where a place's blocks begin
    pixels = np.arange(s)
    # What each place of the output sees.
    windows = padded[
        row[:, None, :, None, None, None] + pixels[:, None], column[None, :, None, :, None, None] + pixels
    ].reshape(rows, columns, -1)
    # The weights of each place, which recur with the period.
    weights = layer.weights.numpy() if weights is None else weights
    weights = weights[np.arange(rows) % layer.period][:, np.arange(columns) % layer.period]
    places = np.arange(rows * columns * layer.filters).reshape(rows, columns, 1, layer.filters)
    places, windows = np.broadcast_arrays(places, windows[..., None])
    is_inside = windows > 0
    shape = (numbers.size, rows * columns * layer.filters)
    return scipy.sparse.csc_matrix(
        (weights[is_inside].astype(np.float64), (windows[is_inside] - 1, places[is_inside])), shape=shape
    )


def causal_matrix(conditional: LocalCausalConditional) -> Any:
    """What pixel k adds to the logit of pixel j, sparse [n, n], strictly upper triangular."""
    height, width = conditional.image_shape
    kernel = conditional.kernel
    period = conditional.period
    weights = conditional.weights.numpy()
    entries: list[tuple[NDArray, ...]] = []
    row, column = np.divmod(np.arange(height * width), width)
    # Each place of the window above and before a pixel: the pixels for which it lies within the image.
    for place in range(kernel * kernel // 2):
        u, v = divmod(place, kernel)
        r = row + u - kernel // 2
        c = column + v - kernel // 2
        is_inside = (r >= 0) & (c >= 0) & (c < width)
        value = weights[row % period, column % period, u, v]
        entries.append(((r * width + c)[is_inside], np.flatnonzero(is_inside), value[is_inside]))
    if not entries:
        return scipy.sparse.csc_matrix((len(row), len(row)))
    rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    return scipy.sparse.csc_matrix((values.astype(np.float64), (rows, columns)), shape=(len(row), len(row)))


Bits = NDArray[np.uint8]
Steps = Generator[NDArray[np.float64], np.ndarray, None]

_BLOCK = 32  # bits of a layer whose sums over the bits before all of them are one product

_UNITS: dict[str, Callable[[Exact], Exact]] = {"tanh": tanh_units, "relu": relu_units}


class _Own(Protocol):
    """What the bits of a layer add to the logits of the bits after them."""

    def known(self, bits: Bits, batch_size: int) -> NDArray[np.float64]:
        """Of bits that are all known: [n, B] to [n, B]."""

    def steps(self, B: int) -> Steps:
        """Yields [B] for bit 0, is sent that bit [B], yields for bit 1, and so on."""

    def update_hash(self, digest: object) -> None:
        """Feed all integers to a hash."""


class IntegerLayer:
    """Bits given parents, as `layers.Layer`: numbers [n, B], bits first.

    :ivar n: number of bits.
    :ivar is_sequential: whether bits depend on the bits before them.
    :ivar sums: the affine maps between the parents and the logits.

    :param layer: of a model.
    :param shifts: what is subtracted from the parents, [n_parents].
    :param scales: what they are multiplied by then.
    :raises ValueError: if the conditional cannot be coded, or weights are too large.
    """

    def __init__(self, layer: Layer, shifts: Numbers, scales: Numbers, name: str) -> None:
        self.n = layer.conditional.n
        self._own = _own(layer.conditional, name)
        matrices, activation = ([(None, None)], "tanh") if layer.network is None else network_matrices(layer.network)
        # The conditional's start is the constant of the last map; the parents' scales go into the first kernel.
        matrices[-1] = (matrices[-1][0], layer.conditional.start.numpy())
        if layer.network is not None:
            matrices[0] = (_scaled(_float64(matrices[0][0], name), scales), matrices[0][1])
        self._units = _UNITS[activation]
        self.sums = _network_sums(matrices, activation, shifts if len(shifts) else None, name)
        self.is_sequential = self._own is not None

    def offset(self, parents: Bits, batch_size: int) -> NDArray[np.float64]:
        """Logits without the layer's own bits, [n, B], for parents [n_in, B] (without inputs only B matters).

        :param batch_size: columns computed at a time; the result does not depend on it.
        """
        maps = [lambda v, sums=sums: sums(v, batch_size) for sums in self.sums]
        return forward(Exact(parents, 0), maps, self._units).values

    def logits(self, bits: Bits, offset: NDArray[np.float64], batch_size: int) -> NDArray[np.float64]:
        """Logits [n, B] of all bits when they are known."""
        return offset if self._own is None else offset + self._own.known(bits, batch_size)

    def draw(self, offset: NDArray[np.float64], draw: Callable[[Numbers], Bits]) -> Bits:
        """Bits [n, B] by `draw`, which makes bits of logits: all at once, or bit by bit where they depend on those
        before."""
        if self._own is None:
            return draw(offset)
        bits = np.empty(offset.shape, np.uint8)
        steps = self._own.steps(offset.shape[1])
        added = next(steps)
        for i in range(self.n):
            bits[i] = draw((offset[i] + added)[None])[0]
            if i + 1 < self.n:
                added = steps.send(bits[i])
        return bits

    def update_hash(self, digest: Any) -> None:
        """Feed all integers to a hash."""
        digest.update(f"layer {self.n} {self._units.__name__} {type(self._own).__name__};".encode())
        for sums in self.sums:
            sums.update_hash(digest)
        if self._own is not None:
            self._own.update_hash(digest)


class _Product:
    """A triangular matrix, [n, n]: row k is what bit k adds."""

    def __init__(self, matrix: Any, name: str) -> None:
        self._sums = Sums(matrix, np.zeros(matrix.shape[1]), name=name)
        self._rows = self._sums.kernel * self._sums.dtype(2.0**-self._sums.bits)  # exact, as any sum of them is

    def known(self, bits: Bits, batch_size: int) -> NDArray[np.float64]:
        return self._sums(Exact(bits, 0), batch_size).values

    def steps(self, B: int) -> Steps:
        # h holds zeros for bits that are not drawn yet.
        K = self._rows
        h: Numbers = np.zeros([K.shape[0], B], self._sums.dtype)
        # A sparse matrix: a row at a time. A dense one: a block of rows, then what lies within it.
        if scipy.sparse.issparse(K):
            for i in range(len(h)):
                entries = slice(K.indptr[i], K.indptr[i + 1])
                h[i] = yield K.data[entries] @ h[K.indices[entries]]
            return
        for start in range(0, len(h), _BLOCK):
            before = K[start : start + _BLOCK, :start] @ h[:start]
            for i, a in enumerate(before, start):
                a += K[i, start:i] @ h[start:i]
                h[i] = yield a

    def update_hash(self, digest: object) -> None:
        self._sums.update_hash(digest)


class _Units:
    """Tanh units that see the bits before: their sums grow bit by bit, and each bit reads them by its own weights.

    :param matrices: kernel and bias of each map, from the bits to the logits. The first kernel is [n, H], or [2 n, H]
        with rows that known bits add whatever their value.
    :param is_masked: the units that bit j reads do not see the bits from j on, so that one pass does for all of them.
    """

    def __init__(self, matrices: Sequence[tuple[Any, Any]], *, is_masked: bool, name: str) -> None:
        self._sums = _network_sums(matrices, "tanh", None, name)
        self._is_masked = is_masked

    def known(self, bits: Bits, batch_size: int) -> NDArray[np.float64]:
        if self._is_masked:
            maps = [lambda v, sums=sums: sums(v, batch_size) for sums in self._sums]
            return forward(Exact(bits, 0), maps, tanh_units).values
        steps = self.steps(bits.shape[1])
        return np.stack([next(steps), *(steps.send(bit) for bit in bits[:-1])])

    def steps(self, B: int) -> Steps:
        # What a known bit adds whatever its value: the second half of the kernel.
        first, *middle, last = self._sums
        n = len(last.constant)
        always = first.kernel[:, n:] if first.kernel.shape[1] > n else np.zeros([len(first.kernel), n], first.dtype)
        sums = np.repeat(first.constant, B, axis=1)
        for i in range(n):
            # The units before bit i, its logit, and what the bit adds.
            units = tanh_units(Exact(sums, first.bits))
            for inner in middle:
                units = tanh_units(inner(units, B))
            a = last.kernel[i] @ units.integers.astype(last.dtype) + last.constant[i]
            bit = yield Exact(a, last.bits).values
            sums += first.kernel[:, i, None] * bit.astype(first.dtype) + always[:, i, None]

    def update_hash(self, digest: object) -> None:
        for sums in self._sums:
            sums.update_hash(digest)


def _own(conditional: object, name: str) -> _Own | None:
    """What earlier bits add in this conditional; None if bits are independent."""
    name = f"{name}, own bits"
    if isinstance(conditional, FactorialConditional):
        return None
    if isinstance(conditional, LinearConditional):
        return _Product(_float64(conditional.matrix().numpy(), name), name)
    if isinstance(conditional, LocalCausalConditional):
        return _Product(_float64(causal_matrix(conditional), name), name)
    if isinstance(conditional, LocalUnitsConditional):
        matrix = periodic_matrix(conditional.layer, conditional.matrices().numpy())
        return _Product(_float64(matrix, name), name)
    if isinstance(conditional, MADEConditional) and not conditional.is_mixture:
        kernels = [(k * m).numpy() for k, m in zip(conditional.kernels, conditional.masks, strict=True)]
        biases = [*(bias.numpy() for bias in conditional.biases), None]
        return _Units(list(zip(kernels, biases, strict=True)), is_masked=True, name=name)
    if isinstance(conditional, NADEConditional | EoNADEConditional) and getattr(conditional, "num_orders", 1) == 1:
        # sigmoid(a) = (1 + tanh(a / 2)) / 2: halves before and behind the units, and sums of V as constants.
        W, V, c = (_float64(part.numpy(), name) / 2 for part in (conditional.W, conditional.V, conditional.c))
        if isinstance(conditional, EoNADEConditional):
            W = np.concatenate([W, _float64(conditional.U.numpy(), name) / 2])
        return _Units([(W, c), (V.T, V.sum(axis=1))], is_masked=False, name=name)
    if isinstance(conditional, PixelCNNConditional):
        raise ValueError(
            f"{name}: a PixelCNN cannot be coded, for the products of its gates are no exact sums; train with another "
            "--visible_conditional."
        )
    raise ValueError(
        f"{name}: a mixture over several orders of the bits cannot be coded, got {type(conditional).__name__}; train "
        "with --orders=1."
    )


def _network_sums(
    matrices: Sequence[tuple[Any, Any]], activation: str, shifts: Numbers | None, name: str
) -> list[Sums]:
    sums: list[Sums] = []
    input_bits = 0
    limit = 1.0
    for i, (matrix, bias) in enumerate(matrices):
        # What enters a map after units is at most the limit of these.
        kernel = None if matrix is None else _float64(matrix, name)
        constant = np.zeros(matrix.shape[1]) if bias is None else _float64(bias, name).reshape(-1)
        sums.append(
            Sums(
                kernel,
                constant,
                shifts=None if i else shifts,
                name=f"{name}, map {i + 1}",
                input_bits=input_bits,
                input_limit=limit,
            )
        )
        input_bits = UNIT_BITS
        limit = float(1 << UNIT_BITS)
        # tanh is at most 1; relu has the limit of its sums.
        if activation == "relu":
            limit = np.ceil(sums[-1].limit * 2.0 ** (UNIT_BITS - sums[-1].bits))
    return sums


def _scaled(kernel: object, scales: Numbers) -> Any:
    """The kernel with each row times its scale."""
    return scipy.sparse.diags(scales) @ kernel if scipy.sparse.issparse(kernel) else kernel * scales[:, None]


def _float64(array: Any, name: str) -> Any:
    # A model that diverged is named before its weights are rounded.
    numbers = array.astype(np.float64)
    if not np.isfinite(numbers.data if scipy.sparse.issparse(numbers) else numbers).all():
        raise ValueError(f"{name}: parameters must be finite, got NaN or infinity: training has diverged.")
    return numbers


class IntegerModel:
    """The integer form of a trained DARN.

    :ivar visible: number of visible units.
    :ivar wiring: which layers see which.
    :ivar decoders: p(x | h), p(h^1 | h^2, ...), ..., p(h^L).
    :ivar encoders: q(h^1 | x), q(h^2 | h^1, ...), ....
    :ivar digest: 32 bytes, which differ between models that code differently.

    :raises ValueError: if the model is not for binary data, is a mixture over orders of the bits, or has weights that
        are too large.
    """

    def __init__(self, model: DARN) -> None:
        config = model.config
        if config.observations != "binary":
            raise ValueError(
                f"only models of binary data can code, got observations={config.observations!r}; train with 'binary', "
                "on grey levels by --bit_planes."
            )
        self.visible = config.visible
        self.wiring = model.wiring
        # What is subtracted from the inputs of networks, and what they are multiplied by.
        mean = np.clip(model.visible_mean.numpy().astype(np.float64), 0.0, 1.0)
        shifts = [mean, *(np.full(n, 0.5) for n in config.hidden)]  # networks get 2 h - 1 = 2 (h - 1/2)
        scales = [np.ones(config.visible), *(np.full(n, 2.0) for n in config.hidden)]

        def made(layer: Layer, levels: range, name: str) -> IntegerLayer:
            shift, scale = (_joined([part[level] for level in levels]) for part in (shifts, scales))
            return IntegerLayer(layer, shift, scale, name)

        above = self.wiring.above
        below = self.wiring.below
        self.decoders = [made(layer, above(i), f"decoder {i}") for i, layer in enumerate(model.decoders)]
        self.encoders = [made(layer, below(i), f"encoder {i}") for i, layer in enumerate(model.encoders, start=1)]
        self.digest = self._hash(config.to_json())

    def encoder_offset(self, level: int, below: Sequence[Bits], batch_size: int) -> Numbers:
        """Logits of q(h^level | the layers below) without its own bits, [n, B]."""
        return self.encoders[level - 1].offset(np.concatenate(below), batch_size)

    def decoder_offset(self, level: int, above: Sequence[Bits], num: int, batch_size: int) -> Numbers:
        """Logits of p(h^level | the layers above) without its own bits, [n, num]."""
        parents = np.concatenate(above) if above else np.empty([0, num], np.uint8)
        return self.decoders[level].offset(parents, batch_size)

    def _hash(self, config: str) -> bytes:
        # All that a probability depends on: the arithmetic, the tables, and every rounded weight.
        digest = hashlib.sha256(json.dumps([FORMAT_VERSION, config]).encode())
        digest.update(probability_table().astype("<i4").tobytes() + tanh_table().astype("<i4").tobytes())
        for layer in (*self.encoders, *self.decoders):
            layer.update_hash(digest)
        return digest.digest()


def _joined(parts: Sequence[Numbers]) -> Numbers:
    return np.concatenate(parts) if parts else np.empty(0)
