"""What the filter of log Z says of itself: reasons not to trust it, and the errors that it made.

Plain Python and NumPy, shared by the filter that runs in a graph and by the one that does not.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["EQUAL", "FLAGS", "LIMITS", "Z_95", "Limits", "flag_names", "tracking_errors"]

FLAGS = {"swap_rate": 1, "ess": 2, "nis": 4, "lag": 8, "std": 16, "not_finite": 64, "samples": 128}
"""Name of a reason -> its bit."""

Z_95 = 1.96
"""Half the width of a 95 % interval of a normal in standard deviations."""

EQUAL = 1e-6
"""Weights whose relative deviation is below this are equal, but for the rounding of float32."""


class Limits(NamedTuple):
    """Beyond these a reason is given: the probability of a swap, effective samples, the mean square of normalised
    innovations, lag and standard deviation in nats; by how much samples are not those of the model, and by how many
    standard deviations of what exact samples give."""

    min_swap_rate: float = 0.3
    min_ess: float = 3.0
    max_nis: float = 1.5
    max_lag: float = 5.0
    max_std: float = 1.0
    max_discrepancy: float = 1.0
    max_deviations: float = 5.0


LIMITS = Limits()


def flag_names(flags: int) -> list[str]:
    """Names of the reasons in the bits of `filtering.health_flags`."""
    return [name for name, bit in FLAGS.items() if int(flags) & bit]


def tracking_errors(
    error: ArrayLike, std: ArrayLike, flags: ArrayLike, half_width: ArrayLike | None = None
) -> dict[str, Any]:
    """How good a tracked log Z was over some updates, and whether its intervals and flags say so.

    :param error: [T], the tracked minus the exact log Z, nats.
    :param std: [T], standard deviations of the tracked one, nats.
    :param flags: [T], integers, see `filtering.health_flags`.
    :param half_width: [T], half of the 95 % intervals that the lag widens, nats; if not given, 1.96 `std`.
    :return: the number of updates; root mean square, largest and mean error; the shares of errors within 1.96 `std`
        and within the widened interval, and of updates that are flagged; the number of errors above 1 nat, and which
        share of these is flagged (None if there are none).
    """
    error, std, flags = np.asarray(error), np.asarray(std), np.asarray(flags)
    half = Z_95 * std if half_width is None else np.asarray(half_width)
    is_flagged = flags > 0
    is_wrong = np.abs(error) > 1
    return {
        "num_exact": len(error),
        "rmse_nats": float(np.sqrt(np.mean(error**2))),
        "max_nats": float(np.abs(error).max()),
        "bias_nats": float(error.mean()),
        "coverage_95": float(np.mean(np.abs(error) <= Z_95 * std)),
        "coverage_95_with_lag": float(np.mean(np.abs(error) <= half)),
        "flagged": float(is_flagged.mean()),
        "flagged_of_wrong": float(is_flagged[is_wrong].mean()) if is_wrong.any() else None,
        "num_wrong": int(is_wrong.sum()),
    }
