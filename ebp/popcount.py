"""The Numba kernel of products of rows of signs; `ebp.signs` imports it if Numba is installed.

With x and w packed as bits (1 for +1), the scalar product of K signs is K - 2 popcount(x xor w). LLVM makes of the loop
over words what the processor has: a count of vectors (AVX-512 VPOPCNTDQ, Arm), tables by shuffles (AVX2), or one of
words.
"""

from typing import Any

import numpy as np
from numba import njit
from numba.extending import intrinsic
from numpy.typing import NDArray

__all__ = ["words"]


def _count_ones(typing_context: Any, x: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return x(x), generate


_ctpop: Any = intrinsic(_count_ones)  # number of ones in an integer


@njit(nogil=True)
def words(x: NDArray[np.uint64], w: NDArray[np.uint64], num_bits: int, out: NDArray[np.int32]) -> None:
    """Put K - 2 popcount(x xor w), K = `num_bits`, of all rows of `x` [N, M] and `w` [O, M] into `out` [N, O]."""
    (N, M), K = x.shape, np.int64(num_bits)
    whole = N - N % 4
    for n in range(0, whole, 4):  # four rows share one loading of the weights
        for o in range(len(w)):
            a = b = c = d = np.uint64(0)
            for k in range(M):
                a += _ctpop(x[n, k] ^ w[o, k])
                b += _ctpop(x[n + 1, k] ^ w[o, k])
                c += _ctpop(x[n + 2, k] ^ w[o, k])
                d += _ctpop(x[n + 3, k] ^ w[o, k])
            out[n, o], out[n + 1, o] = K - 2 * np.int64(a), K - 2 * np.int64(b)
            out[n + 2, o], out[n + 3, o] = K - 2 * np.int64(c), K - 2 * np.int64(d)
    for n in range(whole, N):
        for o in range(len(w)):
            a = np.uint64(0)
            for k in range(M):
                a += _ctpop(x[n, k] ^ w[o, k])
            out[n, o] = K - 2 * np.int64(a)
