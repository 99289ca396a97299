"""Which value of an odd row is to blame: by how much log p would be higher if one value were another.

    gains = blame(model, x)                    # [N, n], nats
    gains.argmax(axis=1)                       # the column to look at, row by row

log p(x_j | the columns before it) blames the later one of two columns that do not fit each other, whichever is wrong.
The gain of a column looks at all others: max over values v of log p(x with v in column j) - log p(x).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darn.more.mixture import Density, log_prob
from darn.more.ordered import Category, as_categories, checked_bits

__all__ = ["blame"]

_ROWS = 4096  # of an evaluation


def blame(
    density: Density,
    x: ArrayLike,
    *,
    groups: Sequence[Sequence[int]] = (),
    num_samples: int = 1000,
    seed: int = 0,
) -> NDArray[np.float64]:
    """By how much log p(x) would be higher if the value of a column were the best other one, [N, n], nats: negative
    where the value is the best. The columns of a category are one variable, and all have its gain.

    :param density: of which model.
    :param x: zeros and ones, [N, n].
    :param groups: columns of each category.
    :param num_samples: importance samples of a row, of DARNs with more than 12 stochastic units.
    :param seed: of these.
    :raises ValueError: for another shape or other values.
    """
    rows = checked_bits(x, np.shape(x)[-1] if np.ndim(x) else 1)
    gains = np.empty(rows.shape)
    categories = as_categories(groups, rows[:0])
    for begin in range(0, len(rows), _ROWS):
        part = slice(begin, begin + _ROWS)
        log_p = log_prob(density, rows[part], num_samples=num_samples, seed=seed)
        # The best other value of each variable, and what it gains.
        for columns, changed in _changes(rows[part], categories):
            best = np.max(
                [log_prob(density, rows_of_value, num_samples=num_samples, seed=seed) for rows_of_value in changed],
                axis=0,
            )
            # A value that no other one can take the place of is the best there is, whatever its own log p.
            with np.errstate(invalid="ignore"):
                gain = best - log_p
            gains[part, columns] = np.where(np.isneginf(best), -np.inf, gain)[:, None]
    return gains


def _changes(
    rows: NDArray[np.uint8], categories: Sequence[Category]
) -> Iterator[tuple[list[int], list[NDArray[np.uint8]]]]:
    """Columns of each variable, and the rows with each other value in it."""
    # Columns by themselves: the other value.
    single = {*range(rows.shape[1])} - {column for category in categories for column in category.columns}
    for column in sorted(single):
        changed = rows.copy()
        changed[:, column] ^= 1
        yield [column], [changed]
    for category in categories:
        columns = list(category.columns)
        every = []
        for step in range(1, len(columns) + 1):
            # Values by their number, 0 for none; each row gets all others in turn.
            value = np.where(rows[:, columns].any(axis=1), rows[:, columns].argmax(axis=1) + 1, 0)
            other = (value + step) % (len(columns) + 1)
            changed = rows.copy()
            changed[:, columns] = np.eye(len(columns) + 1, dtype=np.uint8)[other][:, 1:]
            every.append(changed)
        yield columns, every
