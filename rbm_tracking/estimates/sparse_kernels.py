"""Kernels of Numba for rows of bits of which few are 1: a product with W is then a sum of some rows of W'.

:mod:`rbm_tracking.estimates.sparse_rows` imports them if Numba is installed. Rows v are kept as the numbers of their
units that are 1, `places` [R, n_v], of which the first `number` [R] are filled. All sums have one order, whatever the
machine does besides; noise is that of `rbm_tracking.model.random`, a function of the key and of the place of a number.
"""

from collections.abc import Callable

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["collect", "draw_hidden", "draw_visible", "log_ratios", "noise_hash", "noise_threefry", "sums"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]

_TILE = 256  # hidden units whose sums stay in the fastest cache
_PRODUCT = 100  # factors between 1/2 and 2 that float32 multiplies safely before a logarithm
_FAST = {"reassoc", "contract", "nsz", "arcp"}


def _kernel(function: Callable[..., None]) -> Callable[..., None]:
    return njit(nogil=True, fastmath=_FAST, error_model="numpy")(function)


@_kernel
def sums(Wt: Floats, c: Floats, places: Ints, number: Ints, out: Floats) -> None:
    """a = W v + c of all rows, into `out` [R, n_h]; `Wt` is W' [n_v, n_h]."""
    for first in range(0, len(c), _TILE):
        last = min(first + _TILE, len(c))
        for r in range(len(number)):
            a = out[r, first:last]
            a[:] = c[first:last]
            # Four rows of W' at a time, then the rest one by one.
            end_of_fours = number[r] - number[r] % 4
            for k in range(0, end_of_fours, 4):
                w0 = Wt[places[r, k], first:last]
                w1 = Wt[places[r, k + 1], first:last]
                w2 = Wt[places[r, k + 2], first:last]
                w3 = Wt[places[r, k + 3], first:last]
                for j in range(last - first):
                    a[j] += (w0[j] + w1[j]) + (w2[j] + w3[j])
            for k in range(end_of_fours, number[r]):
                w0 = Wt[places[r, k], first:last]
                for j in range(last - first):
                    a[j] += w0[j]


@_kernel
def collect(rows: np.ndarray, v: Floats, places: Ints, number: Ints) -> None:
    """`v`, `places` and `number` of rows of bits of another type."""
    for r in range(len(rows)):
        n = 0
        for i in range(rows.shape[1]):
            places[r, n] = i
            n += rows[r, i] != 0
            v[r, i] = rows[r, i]
        number[r] = n


@njit(inline="always")
def _exp(x: np.float32) -> np.float32:
    """exp of a float32 from -87 to 0, to 2e-7: 2^n times a polynomial."""
    # x = n log 2 + f, log 2 in two parts so that f keeps its digits
    x = max(x, np.float32(-87.0))
    n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    f = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * f + np.float32(1.3981999507e-3)
    p = p * f + np.float32(8.3334519073e-3)
    p = p * f + np.float32(4.1665795894e-2)
    p = p * f + np.float32(1.6666665459e-1)
    p = p * f + np.float32(5.0000001201e-1)
    p = p * f * f + f + np.float32(1.0)
    # 2^n by its exponent alone
    return p * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@njit(inline="always")
def _mix(x: np.uint32) -> np.uint32:
    x = np.uint32((x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D))  # Numba makes 64 bits of operations with 32
    x = np.uint32((x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(x ^ (x >> np.uint32(16)))


@njit(inline="always")
def _uniform(bits: np.uint32) -> np.float32:
    return np.float32(np.int32(bits >> np.uint32(8))) * np.float32(2.0**-24)


@_kernel
def noise_hash(key: NDArray[np.uint32], out: Floats) -> None:
    """`random.uniform(key, shape, generator="hash")` of the shape of `out` [R, n]."""
    k0 = key[0]
    k1 = key[1]
    flat = out.reshape(-1)
    for i in range(flat.size):
        word = _mix(np.uint32(np.uint32(i) * np.uint32(0x9E3779B1) + k0))
        flat[i] = _uniform(_mix(np.uint32(word ^ k1)))


@njit(inline="always")
def _round(x0: np.uint32, x1: np.uint32, rotation: int) -> tuple[np.uint32, np.uint32]:
    x0 = np.uint32(x0 + x1)
    turned = np.uint32(np.uint32(x1 << np.uint32(rotation)) | np.uint32(x1 >> np.uint32(32 - rotation)))
    return x0, np.uint32(turned ^ x0)


@njit(inline="always")
def _four(x0: np.uint32, x1: np.uint32, is_even: bool) -> tuple[np.uint32, np.uint32]:
    x0, x1 = _round(x0, x1, 13 if is_even else 17)
    x0, x1 = _round(x0, x1, 15 if is_even else 29)
    x0, x1 = _round(x0, x1, 26 if is_even else 16)
    return _round(x0, x1, 6 if is_even else 24)


@_kernel
def noise_threefry(key: NDArray[np.uint32], out: Floats) -> None:
    """`random.uniform(key, shape, generator="threefry")` of the shape of `out` [R, n]."""
    k0 = key[0]
    k1 = key[1]
    flat = out.reshape(-1)
    k2 = np.uint32(k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    # Five times four rounds, with words of the key between them.
    for i in range(flat.size):
        x0, x1 = _four(np.uint32(np.uint32(i) + k0), k1, True)
        x0, x1 = _four(np.uint32(x0 + k1), np.uint32(x1 + k2 + np.uint32(1)), False)
        x0, x1 = _four(np.uint32(x0 + k2), np.uint32(x1 + k0 + np.uint32(2)), True)
        x0, x1 = _four(np.uint32(x0 + k0), np.uint32(x1 + k1 + np.uint32(3)), False)
        x0, x1 = _four(np.uint32(x0 + k1), np.uint32(x1 + k2 + np.uint32(4)), True)
        flat[i] = _uniform(np.uint32(x0 + k2))


@_kernel
def draw_hidden(a: Floats, beta: np.float32, noise: Floats, h: Floats) -> None:
    """h ~ Bernoulli(sigmoid(beta a)) of rows [R, n_h]."""
    one = np.float32(1.0)
    zero = np.float32(0.0)
    for r in range(len(a)):
        row = a[r]
        u = noise[r]
        out = h[r]
        for j in range(a.shape[1]):
            x = beta * row[j]
            e = _exp(-abs(x))
            out[j] = one if u[j] * (one + e) < (one if x >= 0 else e) else zero  # u < sigmoid(x)


@_kernel
def draw_visible(x: Floats, beta: np.float32, b: Floats, noise: Floats, v: Floats, places: Ints, number: Ints) -> None:
    """v ~ Bernoulli(sigmoid(beta x + b)) of rows [R, n_v], with the numbers of the units that are 1."""
    one = np.float32(1.0)
    zero = np.float32(0.0)
    for r in range(len(x)):
        row = x[r]
        u = noise[r]
        out = v[r]
        for i in range(x.shape[1]):
            y = beta * row[i] + b[i]
            e = _exp(-abs(y))
            out[i] = one if u[i] * (one + e) < (one if y >= 0 else e) else zero
        # The numbers of the units that are 1, without a branch.
        n = 0
        for i in range(x.shape[1]):
            places[r, n] = i
            n += out[i] > 0
        number[r] = n


@_kernel
def log_ratios(a: Floats, old: float, new: float, out: NDArray[np.float64]) -> None:
    """Adds sum_j log(1 + exp(new a_j)) - log(1 + exp(old a_j)) of rows [R, n_h] to `out` [R], without cancellation."""
    one = np.float32(1.0)
    for r in range(len(a)):
        row = a[r]
        # log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)): one logarithm for a product of many
        for first in range(0, a.shape[1], _PRODUCT):
            last = min(first + _PRODUCT, a.shape[1])
            product = np.float32(1.0)
            positive = np.float32(0.0)
            for j in range(first, last):
                size = abs(row[j])
                product *= (one + _exp(-new * size)) / (one + _exp(-old * size))
                positive += max(row[j], np.float32(0.0))
            out[r] += (new - old) * positive + np.log(product)
