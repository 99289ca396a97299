"""Weights rounded without labels and training: by what that does to the outputs of their layer, and by its bits.

    upper = upper_factor(moments)              # of the inputs x of a layer, E x x'
    integers = rounded(W, upper, step, rate)

Let a weight change by e. The other weights of the same unit can make good for a part of it, and what is left is
e^2 / 2 [H^-1]_ii with H = E x x' (optimal brain surgeon: Hassibi and Stork, 1993). So inputs are taken one after the
other: of each weight the value q of the lowest

    c (w - q)^2 / 2 U_ii^2 + rate bits(q)

is taken, where U' U = H^-1, U upper triangular, and c says how much the outputs of the network feel that unit; then all
later weights of the unit move by -(w - q) / U_ii times their entries of row i of U (Frantar et al., 2022). bits(q) is
what the coder will need, reckoned from how often q was taken, and from how many weights of the same input and of the
same unit were not 0 (a rate in the cost: Conzelmann and Bamler, 2025).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import lapack

__all__ = ["adapted", "fair_step", "reckoned_bits", "rounded", "upper_factor"]

_DAMPING = 0.03  # of the mean of the diagonal, added to it
_DAMPING_ALONE = 0.01  # if there is nothing but a diagonal
_BLOCK = 64
_PASSES = 2
_LEVELS = 8
_HIGH_RATE = 12 / np.log(2)


def upper_factor(moments: ArrayLike) -> NDArray[np.float64]:
    """U, upper triangular, with U' U the inverse of the moments, which are damped a little.

    :param moments: E x x' of the inputs of a layer, [K, K]; or their diagonal, [K].
    :return: [K, K] or [K].
    :raises ValueError: if they are not finite, or are no matrix of moments.
    """
    H = np.array(moments, np.float64)
    if not np.all(np.isfinite(H)):
        raise ValueError("the inputs of a layer are not finite on the calibration data.")
    # U' U = H^-1; of a diagonal H just 1 / sqrt H.
    if H.ndim == 1:
        return np.asarray(1 / np.sqrt(H + _damping(H, _DAMPING_ALONE)))
    H[np.diag_indices(len(H))] += _damping(np.diagonal(H))
    # The Cholesky factor of the inverse by one factor of H, whose rows and columns are in reverse order.
    H = np.asfortranarray(np.linalg.cholesky(H[::-1, ::-1]))  # of thousands of inputs each copy is 0.2 GB
    inverse, _ = lapack.dtrtri(H, lower=1, overwrite_c=1)
    return np.ascontiguousarray(inverse[::-1, ::-1])  # which products are fast with


def adapted(
    weights: NDArray[np.float64],
    upper: NDArray[np.float64],
    moments: NDArray[np.float64],
    products: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Weights whose products with other inputs x' come nearest to those of `weights` with the inputs x.

    :param weights: W, [K, N].
    :param upper: of the moments of x', from :func:`upper_factor`; as these are damped, weights change where x' calls
        for it.
    :param moments: of x', [K, K], or their diagonal, [K].
    :param products: E x' x W, [K, N].
    :return: [K, N].
    """
    # Least squares of the old outputs by the inputs x', (H + d)^-1 (E x' x + d) W; the damping d draws to the old ones.
    damping = _damping(np.diagonal(moments) if moments.ndim == 2 else moments)
    return np.asarray(upper.T @ (upper @ (products + damping * weights)))


def _damping(diagonal: NDArray[np.float64], part: float = _DAMPING) -> float:
    return part * float(np.mean(diagonal)) or 1.0


def fair_step(upper: NDArray[np.float64], weight_of_units: NDArray[np.float64], rate: float) -> float:
    """The step at which, if it is small, a bit less of each weight costs as much as `rate` says: c step^2 / 12 U^2.

    :param upper: [K, K] or [K].
    :param weight_of_units: c, [N], or of each weight, [K, N].
    """
    # c / U^2 on average: the geometric mean over inputs, the mean over units.
    diagonal = np.diagonal(upper) if upper.ndim == 2 else upper
    of_units = weight_of_units
    if weight_of_units.ndim == 2:
        of_units = np.exp(np.mean(np.log(np.maximum(weight_of_units, 1e-30)), axis=0))
    curvature = float(np.exp(-2 * np.mean(np.log(diagonal)))) * max(float(np.mean(of_units)), 1e-30)
    return float(np.sqrt(_HIGH_RATE * rate / curvature))


def rounded(
    weights: ArrayLike,
    upper: NDArray[np.float64],
    step: float,
    rate: float,
    weight_of_units: NDArray[np.float64] | None = None,
) -> NDArray[np.int32]:
    """Multiples of a step that weights become.

    :param weights: [K, N], inputs and units.
    :param upper: from :func:`upper_factor`; of a diagonal one no weight makes good for another.
    :param rate: what a bit is worth.
    :param weight_of_units: c, [N], or of each weight, [K, N]; 1 if not given.
    :return: [K, N].
    """
    W = np.asarray(weights, np.float64)
    c = np.ones(W.shape[1]) if weight_of_units is None else weight_of_units
    c = np.ascontiguousarray(np.broadcast_to(np.maximum(c, 1e-3 * float(np.mean(c)) or 1.0), W.shape))
    # Plain rounding says what the bits of the first pass are; each pass says it for the next.
    integers = np.rint(W / step).astype(np.int64)
    for _ in range(_PASSES):
        integers = _taken(W, upper, step, rate, c, integers)
    return integers.astype(np.int32)


def _taken(
    W: NDArray[np.float64],
    upper: NDArray[np.float64],
    step: float,
    rate: float,
    c: NDArray[np.float64],
    before: NDArray[np.int64],
) -> NDArray[np.int64]:
    """One pass, with the bits that `before` says.

    :param c: [K, N].
    """
    # bits(q): whether q is 0, by its row and column; and if not, how often its value occurs.
    table, low = _bits_of_sizes(before)
    is_zero, is_not = _bits_of_places(before)
    remaining = W.copy()
    integers = np.zeros(W.shape, np.int64)
    is_full = upper.ndim == 2
    for start in range(0, len(W), _BLOCK):
        stop = min(start + _BLOCK, len(W))
        errors = np.empty((stop - start, W.shape[1]))
        within = upper[start:stop, start:stop] if is_full else np.diag(upper[start:stop])
        bits = (table, low, is_zero[start:stop], is_not[start:stop])
        _take_rows(
            remaining[start:stop],
            np.ascontiguousarray(within),
            step,
            rate,
            c[start:stop],
            bits,
            integers[start:stop],
            errors,
        )
        # What is left goes to later weights, within the block at once and after it for all others.
        if is_full:
            remaining[stop:] -= upper[start:stop, stop:].T @ errors
    return integers


@njit(nogil=True, cache=True)
def _take_rows(
    remaining: NDArray[np.float64],
    upper: NDArray[np.float64],
    step: float,
    rate: float,
    c: NDArray[np.float64],
    bits: tuple[NDArray[np.float64], int, NDArray[np.float64], NDArray[np.float64]],
    integers: NDArray[np.int64],
    errors: NDArray[np.float64],
) -> None:
    """The rows of a block one after the other: `remaining`, `integers` and `errors` change."""
    table, low, is_zero, is_not = bits
    high = low + len(table) - 1
    num_rows, num_units = remaining.shape
    choices = np.zeros(4, np.int64)
    for i in range(num_rows):
        for j in range(num_units):
            w = remaining[i, j]
            # The two nearest values, the one nearer to 0 than these, and 0.
            below = np.int64(np.floor(w / step))
            choices[0] = below
            choices[1] = below + 1
            choices[2] = below - 1 if below >= 0 else below + 2
            # c (w - q)^2 / 2 U_ii^2 + rate bits(q), and the q that costs least.
            least = np.inf
            taken = np.int64(0)
            for choice in choices:
                q = min(max(choice, low), high)
                part = (w - q * step) / upper[i, i]
                cost = 0.5 * c[i, j] * (part * part) + rate * (
                    is_zero[i, j] if q == 0 else is_not[i, j] + table[q - low]
                )
                if cost < least:
                    least = cost
                    taken = q
            integers[i, j] = taken
            errors[i, j] = (w - taken * step) / upper[i, i]
        # (w - q) / U_ii goes to the later weights of each unit.
        for k in range(i + 1, num_rows):
            factor = upper[i, k]
            if factor != 0:
                for j in range(num_units):
                    remaining[k, j] -= factor * errors[i, j]


def reckoned_bits(integers: NDArray[np.int32]) -> float:
    """About how many bits the coder will need, by what :func:`rounded` reckons with.

    :param integers: of a kernel, units last.
    """
    # By the integers themselves: bits of places, and of sizes of those that are not 0.
    values = integers.reshape(-1, integers.shape[-1]).astype(np.int64)
    table, low = _bits_of_sizes(values)
    is_zero, is_not = _bits_of_places(values)
    return float(np.sum(np.where(values == 0, is_zero, is_not + table[values - low])))


def _bits_of_sizes(values: NDArray[np.int64]) -> tuple[NDArray[np.float64], int]:
    """Bits of each value that is not 0 among such, and the value of the first; a little beyond what there is."""
    low = min(int(values.min()), 0) - 2
    high = max(int(values.max()), 0) + 2
    counts = np.bincount((values - low).ravel(), minlength=high - low + 1).astype(np.float64)
    # 0 has its own bits by place; a little is added, so that no value is impossible.
    counts[-low] = 0.0
    counts += 0.25
    return np.asarray(-np.log2(counts / counts.sum())), low


def _bits_of_places(values: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bits that say of each place that it is 0, and that it is not: by how full its row and column are, [K, N] each."""
    is_filled = values != 0
    # The context of a place: how full its row and its column are, in octaves.
    rows, columns = (_level(is_filled.mean(axis=axis, keepdims=True)) for axis in (1, 0))
    context = rows * _LEVELS + columns
    num_places = np.bincount(context.ravel(), minlength=_LEVELS**2)
    num_filled = np.bincount(context.ravel(), weights=is_filled.ravel(), minlength=_LEVELS**2)
    # The part of filled places in a context, drawn a little to one half.
    part = ((num_filled + 0.4) / (num_places + 0.8))[context]
    return -np.log2(1 - part), -np.log2(part)


def _level(density: NDArray[np.float64]) -> NDArray[np.int64]:
    """0 for next to nothing to 7 for more than half, in octaves."""
    return np.clip(np.floor(np.log2(256 * density + 1)), 0, _LEVELS - 1).astype(np.int64)
