"""How many bits the weights of a layer need: Sections 4.1, 4.2 and Appendix B of Louizos, Ullrich and Welling (2017).

A posterior with variance V does not determine the digits of a weight below the unit round-off u(t) = 2**-t of t
significant bits. Weights are rounded to the grid of step 2**-t, so one sign bit, e exponent bits and t significant bits
are a signed fixed-point number in [-2**e, 2**e): it is stored in 1 + e + t bits without loss.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "FixedPoint",
    "Grid",
    "exponent_bits",
    "fixed_point",
    "grid",
    "layer_bits",
    "on_grid",
    "search_bits",
    "significant_bits",
]

#: The rule looks at 1 to 23 significant bits, the stored ones of a float32.
MAX_SIGNIFICANT = 23
_MAX_EXPONENT = 16


class FixedPoint(NamedTuple):
    """Weights on a grid: `integers` (int32, of the kernel's shape) times 2**-significant, within [-2**e, 2**e)."""

    integers: NDArray[np.int32]
    significant: int
    exponent: int

    @property
    def bits(self) -> int:
        """Bits of one weight: sign, exponent and significant bits."""
        return 1 + self.exponent + self.significant

    @property
    def values(self) -> NDArray[np.float32]:
        """The rounded weights; float32 holds them exactly."""
        return np.ldexp(self.integers.astype(np.float64), -self.significant).astype(np.float32)


class Grid(NamedTuple):
    """Weights on a grid of any step: `integers` (int32, of the kernel's shape) times a float16 number above 0."""

    integers: NDArray[np.int32]
    step: float

    @property
    def bits(self) -> int:
        """Bits of one weight, with its sign."""
        return 1 + int(np.max(np.abs(self.integers), initial=0)).bit_length()

    @property
    def values(self) -> NDArray[np.float32]:
        """The rounded weights, in float32."""
        return (self.integers * np.float64(self.step)).astype(np.float32)


def grid(weights: ArrayLike, bits: int) -> Grid | None:
    """Weights rounded to the nearest of 2**bits - 1 multiples of a step, the largest of which is the largest weight.

    :param weights: finite floats of any shape.
    :param bits: 2 or more.
    :return: None if the step is no normal float16 number, and not all weights are 0.
    """
    w = np.asarray(weights, np.float64)
    largest = float(np.max(np.abs(w), initial=0.0))
    max_multiple = 2 ** (bits - 1) - 1
    # The largest weight is the largest multiple; the step has to be a float16 number for the file.
    step = float(np.float16(largest / max_multiple)) if largest else 1.0
    if not np.finfo(np.float16).tiny <= step < float("inf"):
        return None
    return on_grid(w, step, max_multiple)


def on_grid(weights: ArrayLike, step: float, most: int = 2**31 - 1) -> Grid:
    """Weights rounded to the nearest multiple of a step.

    :param step: a float16 number above 0.
    :param most: of steps, of a weight.
    """
    return Grid(np.clip(np.rint(np.asarray(weights, np.float64) / step), -most, most).astype(np.int32), step)


def significant_bits(variances: ArrayLike) -> NDArray[np.int64]:
    """Significant bits of each weight: how many t in 1..23 have 2 V < u(t) = 2**-t.

    This is the rule of the authors' published code. A variance of zero needs all 23 bits.

    :param variances: marginal posterior variances V(w) of any shape, Eq. (11) or (20) of the paper.
    :raises ValueError: if a variance is negative or NaN.
    """
    V = np.asarray(variances, np.float64)
    if not np.all(V >= 0):
        raise ValueError(
            f"variances must be at least 0, got {V[~(V >= 0)].flat[0]}; give posterior variances, not standard "
            "deviations or logarithms, and check that training did not diverge."
        )
    # The largest t with 2 V < 2^-t is the integer next below -log2(2 V).
    with np.errstate(divide="ignore"):
        count = np.ceil(-np.log2(2.0 * V)) - 1.0
    return np.clip(count, 0, MAX_SIGNIFICANT).astype(np.int64)


def layer_bits(variances: Sequence[ArrayLike], *, rule: str = "mean_of_bits") -> list[int]:
    """Significant bits t of each layer, without sign and exponent.

    :param variances: marginal variances of the kept weights, one array for each layer.
    :param rule: "mean_of_bits", the rule of the authors' code: the mean of :func:`significant_bits`, rounded up; or
        "bits_of_mean", as the paper's text has it: the bits of the layer's mean variance. The latter is cheaper and can
        cost many points of error, as a few uncertain weights decide about all.
    :raises ValueError: if the rule is not known, a layer is empty or a variance is negative or NaN.
    """
    if rule not in ("mean_of_bits", "bits_of_mean"):
        raise ValueError(f'rule must be "mean_of_bits" or "bits_of_mean", got {rule!r}.')
    # The mean of the bits of all weights, or the bits of their mean variance.
    bits = []
    for number, variance in enumerate(variances, start=1):
        V = np.asarray(variance, np.float64)
        if V.size == 0:
            raise ValueError(f"layer {number} has no weights left; raise its threshold, so that something is kept.")
        if rule == "mean_of_bits":
            bits.append(int(np.ceil(significant_bits(V).mean())))
        else:
            bits.append(int(significant_bits(V.mean())))
    return bits


def exponent_bits(weights: ArrayLike, *, minimum: int = 3) -> int:
    """Smallest e of at least `minimum` such that all |w| < 2**e; the paper's 3 is enough for weights below 8.

    :raises ValueError: if a weight is NaN, infinite or at least 2**16.
    """
    w = np.asarray(weights, np.float64)
    largest = float(np.max(np.abs(w), initial=0.0))
    if not largest < 2.0**_MAX_EXPONENT:
        raise ValueError(
            f"weights must be finite and below 2**{_MAX_EXPONENT} for fixed-point numbers, got {largest}; check that "
            "training did not diverge."
        )
    # largest = m 2^e with m in [1/2, 1), so that e is the least with largest < 2^e.
    return max(minimum, int(np.frexp(largest)[1]) if largest > 0 else minimum)


def fixed_point(weights: ArrayLike, significant: int, exponent: int | None = None) -> FixedPoint:
    """Round weights to the nearest multiple of 2**-significant; halves go up, as in the authors' code.

    :param weights: float array of any shape.
    :param significant: t, 0 to 23.
    :param exponent: e: the range is [-2**e, 2**e). None: 3, or more if the weights need it.
    :return: the rounded weights; none moves by more than 2**-(t+1), except that a weight that rounds up to 2**e itself
        becomes the largest number below it.
    :raises ValueError: if `significant` is out of range, a weight is NaN, or with a given `exponent` some |w| >= 2**e.
    """
    if not 0 <= significant <= MAX_SIGNIFICANT:
        raise ValueError(f"significant bits must be 0 to {MAX_SIGNIFICANT}, got {significant}.")
    w = np.asarray(weights, np.float64)
    # The exponent bits: enough for the largest weight.
    needed = exponent_bits(w, minimum=0)
    if exponent is None:
        exponent = max(3, needed)
    elif needed > exponent:
        raise ValueError(
            f"the fixed-point format with {exponent} exponent bits holds |w| < {2.0**exponent:g}, got "
            f"|w| = {np.max(np.abs(w)):g}; use exponent={needed}, or None to have it chosen."
        )
    # Round half up on the grid of 2^-t; the range is [-2^e, 2^e).
    limit = 2 ** (exponent + significant)
    integers = np.clip(np.floor(np.ldexp(w, significant) + 0.5), -limit, limit - 1)
    if significant + exponent > 31:
        raise ValueError(
            f"{1 + exponent + significant} bits are more than the 32 of a float; the weights are too large for fixed "
            "point, store them raw."
        )
    return FixedPoint(integers.astype(np.int32), significant, exponent)


def search_bits(
    kernels: Sequence[ArrayLike],
    error_of: Callable[[list[FixedPoint]], float],
    *,
    start: Sequence[int],
    max_error: float,
    minimum: int = 0,
) -> list[FixedPoint]:
    """Drop significant bits layer by layer while an error on held-out data stays within a bound.

    Each round tries one bit less in each layer, the largest layer first, and keeps what stays within the bound; a layer
    that does not is left alone from then on. If `start` itself exceeds the bound, all layers first get more bits.

    :param kernels: weights of each layer.
    :param error_of: error of the network with these rounded weights, on data that are used for nothing else.
    :param start: significant bits to begin with, for example :func:`layer_bits`.
    :param max_error: the largest allowed `error_of`, for example that of the unrounded network plus 0.001.
    :param minimum: the fewest significant bits of a layer.
    :return: the rounded layers.
    :raises ValueError: if `start` has another length than `kernels`, or the bound cannot be met with 23 bits.
    """
    weights = [np.asarray(kernel, np.float64) for kernel in kernels]
    if len(start) != len(weights):
        raise ValueError(f"start must have one number of bits for each of {len(weights)} layers, got {len(start)}.")
    # Begin with the bits of the rule.
    current = [fixed_point(w, max(minimum, t)) for w, t in zip(weights, start, strict=True)]
    # One bit more in each layer until the error is within the bound.
    while not (error := error_of(current)) <= max_error:
        if all(layer.significant == MAX_SIGNIFICANT for layer in current):
            raise ValueError(
                f"with {MAX_SIGNIFICANT} significant bits in every layer the error is {error:g}, above the allowed "
                f"{max_error:g}; allow more than the error of the unrounded network."
            )
        current = [
            fixed_point(w, min(MAX_SIGNIFICANT, layer.significant + 1))
            for w, layer in zip(weights, current, strict=True)
        ]
    # Then one bit less in one layer after the other, the largest first, as long as it stays there.
    open_layers = sorted(range(len(weights)), key=lambda i: -weights[i].size)
    while open_layers := [i for i in open_layers if current[i].significant > minimum]:
        for i in list(open_layers):
            candidate = [*current[:i], fixed_point(weights[i], current[i].significant - 1), *current[i + 1 :]]
            if error_of(candidate) <= max_error:
                current = candidate
            else:
                open_layers.remove(i)  # later rounds have less precision elsewhere, so it will hardly fit again
    return current
