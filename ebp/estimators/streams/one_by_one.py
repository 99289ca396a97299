"""Rows as dictionaries, one at a time, as `river` has them; river itself is not needed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["OneByOne"]


class OneByOne:
    """An estimator with `partial_fit` under the names `learn_one`, `predict_one` and `predict_proba_one`.

    :param estimator: such as `EBPGaussianClassifier()`, to which classes may come later, or `EBPRegressor()`. It is not
        copied.
    :param classes: all classes that will ever occur, for a classifier that has to know them; None: not given.

    Features are those of the first row that is learned. One that a row lacks has its mean so far; others are left out,
    and a warning says so once.
    """

    def __init__(self, estimator: Any, classes: ArrayLike | None = None) -> None:
        self.estimator = estimator
        self.classes = classes
        self._names: list[Any] = []
        self._mean = np.zeros(0)
        self._count = 0
        self._has_warned = False

    def learn_one(self, x: Mapping[Any, float], y: Any) -> OneByOne:
        """Learn a row.

        :param x: name of each feature -> its value.
        :param y: label or number.
        """
        if not self._count:
            self._names = list(x)
            self._mean = np.zeros(len(self._names))
        row = self._row(x)
        options = {} if self.classes is None else {"classes": self.classes}
        self.estimator.partial_fit(row[None], np.array([y]), **options)
        # Means so far, for features that a later row lacks; a row that was refused is not among them.
        self._count += 1
        self._mean += (row - self._mean) / self._count
        return self

    def predict_one(self, x: Mapping[Any, float]) -> Any:
        """The most probable class, or the mean; before the first row None, or 0.0 of a regressor.

        :param x: name of each feature -> its value.
        """
        if not self._count:
            return None if hasattr(self.estimator, "predict_proba") else 0.0
        return self.estimator.predict(self._row(x)[None])[0].item()

    def predict_proba_one(self, x: Mapping[Any, float]) -> dict[Any, float]:
        """Class -> its probability; empty before the first row.

        :param x: name of each feature -> its value.
        """
        if not self._count:
            return {}
        probabilities = self.estimator.predict_proba(self._row(x)[None])[0]
        return dict(zip(self.estimator.classes_.tolist(), probabilities.tolist(), strict=True))

    def _row(self, x: Mapping[Any, float]) -> NDArray[np.float64]:
        row = np.array([x.get(name, mean) for name, mean in zip(self._names, self._mean, strict=True)], np.float64)
        if not self._has_warned and any(name not in self._names for name in x):
            self._has_warned = True
            others = [name for name in x if name not in self._names]
            warnings.warn(
                f"features that the first row did not have are left out, such as {others[0]!r}; give all in it.",
                stacklevel=3,
            )
        return row
