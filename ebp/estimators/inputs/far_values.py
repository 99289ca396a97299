"""Single values that lie far from all others of their column, as a slip of the pen does.

One row at a million among rows from -2 to 2 makes a column of one and many zeros of it once it is standardised, and a
fit learns nothing from it. So `fit` of estimators of second order takes a value that is thirty standard deviations of
the others beyond them for one that is five beyond them. In such a column `predict` does the same. A row whose target is
as far away is left out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["edges"]

Array = NDArray[np.float64]

#: So many values at either end of a column may be far, of so many rows or more; where there are more they are no slips.
MAX_FAR = 4
MIN_ROWS = 30

#: A value is far if it is so many standard deviations of the others beyond them, and counts as one so many beyond them.
FAR = 30.0
EDGE = 5.0


def edges(X: Array) -> Array | None:
    """The least and the greatest value of each column that is not far, [2, D], infinite where none is; None: nowhere.

    :param X: [N, D], finite.
    """
    num_far = min(MAX_FAR, len(X) // MIN_ROWS)
    if not num_far or not X.shape[1]:
        return None
    # The others: all but the few at either end, which count as the nearest of the others.
    quarter = len(X) // 4
    ordered = np.partition(X, (num_far, quarter, len(X) - 1 - quarter, len(X) - 1 - num_far), axis=0)
    low = ordered[num_far]
    high = ordered[len(X) - 1 - num_far]
    unit = np.where(high > low, high / 2.0 - low / 2.0, 1.0)  # so that no square overflows
    deviation = np.std((np.clip(X, low, high) - low) / unit, axis=0)
    with np.errstate(over="ignore"):
        far = FAR * deviation * unit
        edge = EDGE * deviation * unit
    # A column most of whose values are equal has rare events, not slips.
    varies = ordered[quarter] < ordered[len(X) - 1 - quarter]
    is_far = varies & ((X.min(axis=0) < low - far) | (X.max(axis=0) > high + far))
    if not np.any(is_far):
        return None
    return np.where(is_far, [low - edge, high + edge], [[-np.inf], [np.inf]])
