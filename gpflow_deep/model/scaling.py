"""Standardisation: the units in which a deep GP works, and the way back to those of the data.

    units = Units.fit(X, Y, "gaussian")                             # the training part, in its own units
    model = config.build(*units.transform(X, Y))

The scale is that of the training part only; a density in standardised units is divided by the product of the targets'
scales to be one in the units of the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np
from numpy.typing import NDArray

__all__ = ["REAL_TARGETS", "Scale", "Units"]

#: The likelihoods of real numbers, whose targets are standardised.
REAL_TARGETS = ("gaussian", "studentt")


@dataclass(frozen=True, eq=False)
class Scale:
    """The map x -> (x - mean) / scale of each column, and back.

    :param mean: [D], in the units of the data.
    :param scale: [D], positive; a variance in standardised units is multiplied by scale^2 to get back.
    :param constant_columns: numbers of the columns that did not vary in the fitted array; their scale is 1.
    """

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    constant_columns: tuple[int, ...] = ()

    @classmethod
    def fit(cls, array: np.ndarray) -> Scale:
        """Mean and standard deviation (divisor n) of each column of `array` [n, D]: give the training part only.

        :raises ValueError: if `array` is not a matrix of numbers with rows, or its values are not finite or overflow.
        """
        array = np.asarray(array)
        if array.dtype.kind not in "fiub" or array.ndim != 2 or 0 in array.shape:
            raise ValueError(
                "the array to standardise must be a matrix of numbers with rows and columns, got "
                f"{array.dtype} {array.shape}; give the training part."
            )
        # By column, so that no copy of a large array is made.
        mean = np.empty(array.shape[1])
        scale = np.ones(array.shape[1])
        constant = []
        for d in range(array.shape[1]):
            column = array[:, d].astype(np.float64, copy=False)
            if not np.isfinite(column).all():
                raise ValueError(f"column {d} must be finite to be standardised; drop the rows or put in values.")
            with np.errstate(over="ignore", invalid="ignore"):
                mean[d] = column.mean()
                deviation = column.std()
            if not np.isfinite(deviation):
                raise ValueError(f"column {d} has values up to {np.abs(column).max():.3g}, too large; rescale it.")
            # A constant column is shifted, and not scaled.
            if deviation <= 4 * np.finfo(np.float64).eps * np.abs(column).max():  # no more than rounding
                mean[d] = column[0]
                deviation = 1.0
                constant.append(d)
            scale[d] = deviation
        return cls(mean, scale, tuple(constant))

    @classmethod
    def identity(cls, num_columns: int) -> Scale:
        """The map that changes nothing, for columns that are in good units already (pixels, say)."""
        return cls(np.zeros(num_columns), np.ones(num_columns))

    @property
    def log_volume(self) -> float:
        """sum log scale: minus this turns a log density in standardised units into one in the units of the data."""
        return float(np.log(self.scale).sum())

    def transform(self, array: np.ndarray) -> NDArray[np.float64]:
        """Raw units [..., D] to standardised units [..., D]."""
        return np.asarray((self._checked(array) - self.mean) / self.scale)

    def inverse_transform(self, array: np.ndarray) -> NDArray[np.float64]:
        """Standardised units [..., D] to raw units [..., D]."""
        return np.asarray(self._checked(array) * self.scale + self.mean)

    def to_json(self) -> dict[str, list[float] | list[int]]:
        """A dictionary of lists of numbers; exact, as Python writes floats in full."""
        return {
            "mean": self.mean.tolist(),
            "scale": self.scale.tolist(),
            "constant_columns": list(self.constant_columns),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Scale:
        """The inverse of :meth:`to_json`.

        :raises ValueError: if entries are missing or do not fit each other.
        """
        try:
            mean, scale = (np.array(stored[key], dtype=np.float64) for key in ("mean", "scale"))
            constant = tuple(int(d) for d in stored["constant_columns"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the stored standardisation is damaged ({error!r}); take an undamaged copy.") from error
        is_finite = np.isfinite(mean).all() and np.isfinite(scale).all()
        if mean.ndim != 1 or mean.shape != scale.shape or not is_finite or not np.all(scale > 0):
            raise ValueError(
                "the stored standardisation needs finite means and as many positive scales; take another copy."
            )
        return cls(mean, scale, constant)

    def _checked(self, array: np.ndarray) -> np.ndarray:
        array = np.asarray(array)
        if array.ndim == 0 or array.shape[-1] != len(self.mean):
            raise ValueError(
                f"the array must have {len(self.mean)} columns as the fitted one, got shape {array.shape}."
            )
        return array


@dataclass(frozen=True, eq=False)
class Units:
    """Between the units of the data and those of the model.

    :param x: scale of the inputs.
    :param y: scale of the targets; changes nothing for counts and labels.
    """

    x: Scale
    y: Scale

    @classmethod
    def fit(
        cls,
        X: np.ndarray,
        Y: np.ndarray,
        likelihood: str,
        *,
        standardise: bool = True,
        known: tuple[Scale, Scale] | None = None,
    ) -> Units:
        """Standardised inputs, and standardised targets where the likelihood is one of real numbers.

        :param X: training inputs [N, D] in the units of the data.
        :param Y: training targets [N, P], likewise.
        :param likelihood: as in `ModelConfig`, not "auto".
        :param standardise: False keeps the inputs as they are, such as pixels.
        :param known: scales of X and Y in place of theirs, if they are a sample of the training part.
        """
        x, y = known or (None, None)
        # Pixels, counts and labels stay what they are.
        if not standardise:
            x = Scale.identity(X.shape[1])
        if likelihood not in REAL_TARGETS:
            y = Scale.identity(Y.shape[1])
        return cls(x or Scale.fit(X), y or Scale.fit(Y))

    def transform(self, X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows as the model sees them, in GPflow's default float type."""
        dtype = gpflow.default_float()
        return self.x.transform(X).astype(dtype), self.y.transform(Y).astype(dtype)
