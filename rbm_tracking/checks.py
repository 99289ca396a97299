"""What parameters and rows have to be: checked in NumPy, with errors that say what to do."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["check_binary", "check_rbm"]


def check_binary(data: ArrayLike, *, n_v: int | None = None, name: str = "data") -> NDArray:
    """The data as an array, after checking that it is [N, n_v] and holds 0 and 1 only.

    :raises ValueError: naming what is wrong, where, and what to do.
    """
    array = np.asarray(data)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{name} must be a matrix [N, n_v] with at least one row and column, got shape {array.shape}.")
    if n_v is not None and array.shape[1] != n_v:
        raise ValueError(f"{name} must have {n_v} columns, one for each visible unit, got {array.shape[1]}.")
    if array.dtype == bool:
        return array
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be numbers 0 and 1 (or booleans), got dtype {array.dtype}; encode it first.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise ValueError(
            f"{name} must be 0 or 1 everywhere, got {array[row, column]} in row {row}, column {column}; drop or impute "
            "missing values."
        )
    wrong = (array != 0) & (array != 1)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"{name} must be 0 or 1 everywhere, got {array[row, column]} in row {row}, column {column}; binarise it, "
            "for example data > 0.5 for intensities in [0, 1] or one-hot columns for categories."
        )
    return array


def check_rbm(rbm: Sequence[Any]) -> None:
    """Check the shapes of the parameters W, b, c of an RBM, and that they are finite.

    :raises ValueError: naming the parameter that is wrong.
    """
    parameters = dict(zip(("W", "b", "c"), rbm, strict=True))
    shapes = {name: tuple(np.shape(value)) for name, value in parameters.items()}
    if len(shapes["W"]) != 2 or shapes["b"] != shapes["W"][1:] or shapes["c"] != shapes["W"][:1]:
        raise ValueError(f"W, b, c must have the shapes [n_h, n_v], [n_v], [n_h], got {shapes}.")
    for name, value in parameters.items():
        if not np.isfinite(np.asarray(value)).all():
            raise ValueError(f"the RBM's {name} must be finite, got NaN or infinity: training has diverged.")
