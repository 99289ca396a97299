"""The units that the columns of a frame call for: bits, categories, and numbers, which are standardised.

An RBM's Gaussian units are best of mean 0 and deviation 1, and a frame's numbers are of any unit: they are standardised
by the rows of the fit, and densities and drawn rows are those of the frame's own units.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rbm_tracking.model.units import FamilyName, Layer

__all__ = ["FrameUnits", "as_floats", "units_of_frame"]


def as_floats(X: Any) -> NDArray[np.float64]:
    """Rows as an array, NaN where a frame of pandas has its own missing value."""
    return X.to_numpy(np.float64, na_value=np.nan) if hasattr(X, "convert_dtypes") else np.asarray(X, np.float64)


class FrameUnits(NamedTuple):
    """What the columns are that a frame became.

    :ivar layer: the columns of each family of units.
    :ivar centre: [n_v], what is taken off each column; 0 of bits.
    :ivar scale: [n_v], what it is divided by; 1 of bits.
    """

    layer: Layer
    centre: NDArray[np.float64]
    scale: NDArray[np.float64]

    def standardised(self, X: ArrayLike) -> NDArray[np.float64]:
        """Rows as the units take them."""
        return (as_floats(X) - self.centre) / self.scale

    def in_units_of_the_frame(self, rows: ArrayLike) -> NDArray[np.float64]:
        """The inverse of :meth:`standardised`."""
        return np.asarray(rows, np.float64) * self.scale + self.centre

    @property
    def log_volume(self) -> float:
        """What a log density in the frame's units is less than one of standardised numbers, nats."""
        return float(np.log(self.scale).sum())


def units_of_frame(encoder: Any, X: Any) -> FrameUnits | None:
    """The units of a frame that is being fitted; None if all columns are bits, or probabilities of bits.

    :param encoder: the `TableEncoder` that made X of the frame; None if X is a frame of plain numbers.
    :param X: the encoded rows, [N, n_v], NaN where a value is missing.
    :raises ValueError: naming a column of numbers that are all the same.
    """
    rows = as_floats(X)
    names = [str(name) for name in (X.columns if encoder is None else encoder.get_feature_names_out())]
    # Levels of a category stand next to one another.
    groups: list[list[int]] = []
    start = 0
    for feature in () if encoder is None else encoder.schema_.columns:
        width = len(feature.names)
        if feature.column.kind == "category" and width > 1:
            groups.append(list(range(start, start + width)))
        start += width
    of_groups = {column for group in groups for column in group}
    # Of the other columns those of zeros and ones are bits.
    is_bit = ((rows == 0) | (rows == 1) | np.isnan(rows)).all(axis=0)
    numbers = [column for column in range(rows.shape[1]) if not is_bit[column]]
    if not groups and not ((rows[:, numbers] < 0) | (rows[:, numbers] > 1)).any():
        return None
    # Numbers by their mean and deviation; bits stay.
    centre = np.zeros(rows.shape[1])
    scale = np.ones(rows.shape[1])
    for column in numbers:
        values = rows[~np.isnan(rows[:, column]), column]
        centre[column] = values.mean()
        scale[column] = values.std()
        if scale[column] <= 1e-9 * abs(centre[column]):
            raise ValueError(
                f"columns of numbers must vary, but {names[column]!r} of X is {values[0]:g} in every row; leave it out."
            )
    bits = [column for column in range(rows.shape[1]) if is_bit[column] and column not in of_groups]
    families: dict[FamilyName, list[int] | list[list[int]]] = {
        "bernoulli": bits,
        "gaussian": numbers,
        "softmax": groups,
    }
    return FrameUnits({name: columns for name, columns in families.items() if columns}, centre, scale)
