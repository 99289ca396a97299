"""Adaptive binary arithmetic coding in integers, for loops of the codecs: each machine decodes the same.

The loops are compiled where Numba is installed, and plain Python where it is not: the same bytes, in more time.

The state is `registers`: low and high of the interval, the number within it that is decoded, the place in the stream,
and whether it decodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import numba
except ImportError:
    numba = None  # type: ignore[assignment]

__all__ = ["arithmetic", "inner"]

_options: dict[str, Any] = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def inner(function: Callable[..., object]) -> Any:
    """Compile what only compiled loops call."""
    return function if numba is None else numba.njit(**_options)(function)


@inner
def arithmetic(registers: NDArray[np.int64], stream: NDArray[np.uint8], p: int, bit: int) -> int:
    """Code a decision, or find it: narrow the interval to its part, p / 2^16 of it for a 1; bytes go out or come in.

    :param registers: five or more.
    :param stream: bytes that are read, behind which zeros follow, or room for those that are written.
    :param p: from 1 to 2^16 - 1.
    :param bit: the decision, where it is written.
    :return: the decision.
    """
    r = registers
    # Where the interval is cut.
    middle = r[0] + ((r[1] - r[0]) * p >> 16)
    if r[4]:
        bit = 1 if r[2] <= middle else 0
    if bit:
        r[1] = middle
    else:
        r[0] = middle + 1
    # Leading bytes on which both ends agree are settled.
    while (r[0] ^ r[1]) >> 24 == 0:
        if r[4]:
            byte = np.int64(stream[r[3]]) if r[3] < len(stream) else 0
            r[2] = (r[2] & 0xFFFFFF) << 8 | byte
        elif r[3] < len(stream):
            stream[r[3]] = r[1] >> 24
        r[3] += 1
        r[0] = (r[0] & 0xFFFFFF) << 8
        r[1] = (r[1] & 0xFFFFFF) << 8 | 255
    return bit
