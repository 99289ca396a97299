"""Ladders of inverse temperatures, from beta = 1, the model, to beta = 0, where log Z is known."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["check_ladder", "linear_ladder"]


def linear_ladder(num_temps: int) -> NDArray[np.float64]:
    """M inverse temperatures, spaced evenly from 1 to 0.

    :raises ValueError: if M is less than 2.
    """
    if num_temps < 2:
        raise ValueError(f"the number of temperatures must be at least 2 (beta = 1 and beta = 0), got {num_temps}.")
    return np.linspace(1.0, 0.0, num_temps)


def check_ladder(beta: ArrayLike) -> NDArray[np.float64]:
    """The ladder as float64 [M], after checking that it decreases strictly from 1 to 0.

    :raises ValueError: saying what is wrong and what to do.
    """
    ladder = np.asarray(beta, np.float64)
    if ladder.ndim != 1 or len(ladder) < 2:
        raise ValueError(f"inverse temperatures must be a vector of at least 2, got shape {ladder.shape}.")
    if ladder[0] != 1 or ladder[-1] != 0:
        raise ValueError(
            f"inverse temperatures must go from 1 (the model) to 0 (where log Z is known), got {ladder[0]:g} to "
            f"{ladder[-1]:g}; add the end that is missing or use linear_ladder(M)."
        )
    if not (np.diff(ladder) < 0).all():
        i = int(np.argmax(~(np.diff(ladder) < 0)))
        raise ValueError(f"inverse temperatures must decrease, got {ladder[i]:g} then {ladder[i + 1]:g}; sort them.")
    return ladder
