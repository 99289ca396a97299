"""Numba kernels of products with rows of signs; `ebp.packed.signs` imports them if Numba is installed.

With x and w packed as bits (1 for +1), the scalar product of K signs is K - 2 popcount(x xor w). LLVM makes of the loop
over words what the processor has: a count of vectors (AVX-512 VPOPCNTDQ, Arm), tables by shuffles (AVX2), or one of
words.
"""

from typing import Any

import numpy as np
from numba import njit
from numba.extending import intrinsic
from numpy.typing import NDArray

__all__ = ["masked", "words"]


def _count_ones(typing_context: object, x: Any) -> Any:
    def generate(context: object, builder: Any, signature: object, args: Any) -> Any:
        return builder.ctpop(args[0])

    return x(x), generate


_ctpop: Any = intrinsic(_count_ones)  # number of ones in an integer


@njit(nogil=True)
def words(x: NDArray[np.uint64], w: NDArray[np.uint64], num_bits: int, out: NDArray[np.int32]) -> None:
    """Put K - 2 popcount(x xor w), K = `num_bits`, of all rows of `x` [N, M] and `w` [O, M] into `out` [N, O]."""
    (N, M) = x.shape
    K = np.int64(num_bits)
    num_in_fours = N - N % 4
    for n in range(0, num_in_fours, 4):  # four rows share one loading of the weights
        for o in range(len(w)):
            a = b = c = d = np.uint64(0)
            for k in range(M):
                a += _ctpop(x[n, k] ^ w[o, k])
                b += _ctpop(x[n + 1, k] ^ w[o, k])
                c += _ctpop(x[n + 2, k] ^ w[o, k])
                d += _ctpop(x[n + 3, k] ^ w[o, k])
            out[n, o] = K - 2 * np.int64(a)
            out[n + 1, o] = K - 2 * np.int64(b)
            out[n + 2, o] = K - 2 * np.int64(c)
            out[n + 3, o] = K - 2 * np.int64(d)
    # The rest of the rows, one by one.
    for n in range(num_in_fours, N):
        for o in range(len(w)):
            a = np.uint64(0)
            for k in range(M):
                a += _ctpop(x[n, k] ^ w[o, k])
            out[n, o] = K - 2 * np.int64(a)


@njit(nogil=True)
def masked(X: np.ndarray, scale: float, masks: NDArray[np.int8], out: NDArray[np.int32]) -> bool:
    """Put the sums of the whole numbers q = scale X [N, K] with signs into `out` [N, O]; inputs of 0 take no time.

    :param masks: -1 for a sign of +1, else 0, [K, O]: the sum with signs is twice that of q & mask, less that of all q.
    :return: False if an input is no whole number, or if those of a row add up to 2^31 or more.
    """
    N, K = X.shape
    q = np.zeros(K + 8, np.int32)
    columns = np.zeros(K + 8, np.int64)
    for n in range(N):
        size = np.float64(0)
        count = 0
        total = np.int64(0)
        # The inputs of the row that are not 0, and their sum.
        for k in range(K):
            value = np.float64(X[n, k]) * scale
            if value != 0.0:
                size += abs(value)
                if value != np.rint(value) or not size < 2147483648.0:
                    return False
                q[count] = np.int32(value)
                columns[count] = k
                total += np.int64(value)
                count += 1
        q[count : count + 8] = 0
        sums = out[n]
        sums[:] = 0
        for j in range(0, count, 8):  # eight inputs share one loading of the sums
            a, b, c, d, e, f, g, h = q[j : j + 8]
            A = masks[columns[j]]
            B = masks[columns[j + 1]]
            C = masks[columns[j + 2]]
            D = masks[columns[j + 3]]
            E = masks[columns[j + 4]]
            F = masks[columns[j + 5]]
            G = masks[columns[j + 6]]
            H = masks[columns[j + 7]]
            # q & mask is q where the weight is +1, else 0.
            for o in range(out.shape[1]):
                first = (A[o] & a) + (B[o] & b) + (C[o] & c) + (D[o] & d)
                sums[o] += np.int32(first + (E[o] & e) + (F[o] & f) + (G[o] & g) + (H[o] & h))
        # Twice the masked sums, less the sum of all inputs.
        for o in range(out.shape[1]):
            sums[o] = np.int32(2 * np.int64(sums[o]) - total)
    return True
