"""What parameters and rows have to be: checked in NumPy, with errors that say what to do.

Ladders of inverse temperatures, from beta = 1, the model, to beta = 0, where log Z is known.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["check_binary", "check_ladder", "check_numbers", "check_rbm", "linear_ladder"]


def check_binary(data: ArrayLike, *, n_v: int | None = None, name: str = "data") -> NDArray:
    """The data as an array, after checking that it is [N, n_v] and holds 0 and 1 only.

    :raises ValueError: naming what is wrong, where, and what to do.
    """
    array = _matrix(data, n_v, name)
    if array.dtype == bool:
        return array
    _check_finite(array, name, "0 or 1")
    wrong = (array != 0) & (array != 1)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"{name} must be 0 or 1 everywhere, got {array[row, column]} in row {row}, column {column}; binarise it, "
            "for example data > 0.5 for intensities in [0, 1] or one-hot columns for categories."
        )
    return array


def check_numbers(data: ArrayLike, *, n_v: int | None = None, name: str = "data") -> NDArray:
    """The data as an array, after checking that it is [N, n_v] and holds finite numbers.

    :raises ValueError: naming what is wrong, where, and what to do.
    """
    array = _matrix(data, n_v, name)
    array = array.astype(np.float64) if array.dtype == bool else array
    _check_finite(array, name, "a finite number")
    return array


def _matrix(data: ArrayLike, n_v: int | None, name: str) -> NDArray:
    array = np.asarray(data)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{name} must be a matrix [N, n_v] with at least one row and column, got shape {array.shape}.")
    if n_v is not None and array.shape[1] != n_v:
        raise ValueError(f"{name} must have {n_v} columns, one for each visible unit, got {array.shape[1]}.")
    return array


def _check_finite(array: NDArray, name: str, required: str) -> None:
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be {required} everywhere, got dtype {array.dtype}; encode it first.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise ValueError(
            f"{name} must be {required} everywhere, got {array[row, column]} in row {row}, column {column}; drop or "
            "impute missing values."
        )


def check_rbm(rbm: Sequence[Any]) -> None:
    """Check the shapes of the parameters W, b, c of an RBM, that they are finite, and that its visible units fit.

    :raises ValueError: naming the parameter that is wrong.
    """
    parameters = dict(zip(("W", "b", "c"), rbm[:3], strict=True))
    shapes = {name: tuple(np.shape(value)) for name, value in parameters.items()}
    if len(shapes["W"]) != 2 or shapes["b"] != shapes["W"][1:] or shapes["c"] != shapes["W"][:1]:
        raise ValueError(f"W, b, c must have the shapes [n_h, n_v], [n_v], [n_h], got {shapes}.")
    for name, value in parameters.items():
        if not np.isfinite(np.asarray(value)).all():
            raise ValueError(f"the RBM's {name} must be finite, got NaN or infinity: training has diverged.")
    visible = rbm[3] if len(rbm) > 3 else None
    if (precision := getattr(visible, "precision", None)) is not None:
        if tuple(np.shape(precision)) != shapes["b"]:
            raise ValueError(f"precision must have the shape [n_v] = {shapes['b']}, got {tuple(np.shape(precision))}.")
        if not (np.isfinite(np.asarray(precision)) & (np.asarray(precision) > 0)).all():
            raise ValueError("the precisions of Gaussian units must be positive and finite: training has diverged.")
    for name, count, units in zip(("visible", "hidden"), (shapes["b"], shapes["c"]), rbm[3:], strict=False):
        n = getattr(units, "n_v", None)
        if n is not None and n != count[0]:
            biases = "b" if name == "visible" else "c"
            raise ValueError(f"the {name} units of the RBM must be {count[0]}, as {biases} says, got groups of {n}.")
        unit_parameters = units.__tf_flatten__()[1] if hasattr(units, "__tf_flatten__") else ()
        for part in unit_parameters:
            if np.ndim(part) == 1 and (np.shape(part) != count or not np.isfinite(np.asarray(part)).all()):
                raise ValueError(
                    f"parameters of the {name} units must be {count[0]} finite numbers, got shape {np.shape(part)}, or "
                    "NaN or infinity: training has diverged."
                )


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
