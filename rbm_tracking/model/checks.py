"""What parameters and rows have to be: checked in NumPy, with errors that say what to do.

Ladders of inverse temperatures, from beta = 1, the model, to beta = 0, where log Z is known.
"""

from collections.abc import Sequence

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
    # The first entry that is something else.
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
    # Truth values are 0 and 1: NumPy has no differences of them.
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


def check_rbm(rbm: Sequence[object]) -> None:
    """Check the shapes of the parameters W, b, c of an RBM and of those of its units, and that all are finite.

    :param rbm: W, b and c, and the families of visible and hidden units if they are not bits.
    :raises ValueError: naming the parameter that is wrong.
    """
    if len(rbm) < 3:
        raise ValueError(f"an RBM has at least the parameters W, b and c, got {len(rbm)} of them.")
    parameters = {name: np.asarray(value) for name, value in zip(("W", "b", "c"), rbm, strict=False)}
    shapes = {name: value.shape for name, value in parameters.items()}
    if len(shapes["W"]) != 2 or shapes["b"] != shapes["W"][1:] or shapes["c"] != shapes["W"][:1]:
        raise ValueError(f"W, b, c must have the shapes [n_h, n_v], [n_v], [n_h], got {shapes}.")
    for name, value in parameters.items():
        if not np.isfinite(value).all():
            raise ValueError(f"the RBM's {name} must be finite, got NaN or infinity: training has diverged.")
    for layer, biases, units in zip(("visible", "hidden"), ("b", "c"), rbm[3:], strict=False):
        count = len(parameters[biases])
        n = getattr(units, "n_v", count)
        if n != count:
            raise ValueError(f"the {layer} units of the RBM must be {count}, as {biases} says, got groups of {n}.")
        # Of several families each has parameters for its own columns.
        columns = getattr(units, "columns", (range(count),))
        for family, of_family in zip(getattr(units, "families", (units,)), columns, strict=True):
            _check_units(family, layer, len(of_family))


def _check_units(family: object, layer: str, count: int) -> None:
    """Check own parameters of a family of `count` units."""
    name = f"the {layer} {type(family).__name__} units"
    own = family.__tf_flatten__()[1] if hasattr(family, "__tf_flatten__") else ()
    for values in map(np.asarray, own):
        # Families from elsewhere may have parameters that are not one for each unit.
        if values.shape != (count,) and (values.ndim == 1 or hasattr(family, "precision")):
            raise ValueError(f"parameters of {name} must have the shape [{count}], got {list(values.shape)}.")
        if not np.isfinite(values).all():
            raise ValueError(f"parameters of {name} must be finite, got NaN or infinity: training has diverged.")
    if not (np.asarray(getattr(family, "precision", 1.0)) > 0).all():
        raise ValueError(f"precisions of {name} must be positive: training has diverged.")


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
    # NaN decreases nowhere.
    if not (np.diff(ladder) < 0).all():
        i = int(np.argmax(~(np.diff(ladder) < 0)))
        raise ValueError(f"inverse temperatures must decrease, got {ladder[i]:g} then {ladder[i + 1]:g}; sort them.")
    return ladder
