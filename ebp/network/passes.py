"""How many passes `EBPClassifier` makes, and the rows that it holds back until the last one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["default_epochs", "has_stopped", "held_rows"]

#: Rows that epochs="auto" learns in all, and the fewest and most passes.
AUTO_UPDATES, MIN_AUTO_EPOCHS, MAX_AUTO_EPOCHS = 16_000, 3, 20

#: One row of this many, but not more than so many, are learned in the last pass only, and calibrate.
ROWS_PER_HELD, MAX_HELD = 8, 2000

#: Passes without an improvement after which early_stopping ends the training.
PATIENCE = 2


def default_epochs(num_rows: int) -> int:
    """Passes of epochs="auto": 16,000 rows in all, from 3 passes (5,334 rows or more) to 20 (800 rows or fewer)."""
    return int(np.clip(-(-AUTO_UPDATES // num_rows), MIN_AUTO_EPOCHS, MAX_AUTO_EPOCHS))


def has_stopped(losses: Sequence[float]) -> bool:
    """Whether the log loss after each pass has not fallen for `PATIENCE` passes."""
    return len(losses) > PATIENCE and min(losses[-PATIENCE:]) >= min(losses[:-PATIENCE])


def held_rows(y: NDArray[np.generic]) -> NDArray[np.intp]:
    """Numbers of rows to hold back: of each class the last eighth, as rows next to each other may be alike; sorted.

    Not more than `MAX_HELD`, and no class as a whole.
    """
    part = min(1.0 / ROWS_PER_HELD, MAX_HELD / len(y))
    found = [np.flatnonzero(y == label) for label in np.unique(y)]
    return np.sort(np.concatenate([rows[len(rows) - int(part * len(rows)) :] for rows in found]))
