"""How many passes an estimator makes, how often a row may count in its posterior, and the rows that it holds back.

A pass over rows that were learned before adds to the posterior as if they were new. Where rows say little, a posterior
that has counted each of them 40 times is sure of what is noise. So in `fit` a row counts k times at most: after k
passes, older ones are forgotten at the rate at which new ones come. What k is right follows from rows held back. Once
(k = 1) is what Bayes asks for; more often helps where the noise is small, as one pass does not yet use all that a row
says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["MAX_TRIED_ROWS", "Passes", "Trial", "chosen_passes", "default_epochs", "has_stopped", "held_rows"]

#: Rows that epochs="auto" learns in all, and the fewest and most passes.
AUTO_UPDATES, MIN_AUTO_EPOCHS, MAX_AUTO_EPOCHS = 16_000, 3, 20

#: One row of this many, but not more than so many, are held back.
ROWS_PER_HELD, MAX_HELD = 8, 2000

#: Passes without an improvement after which early_stopping of `EBPClassifier` ends the training.
PATIENCE = 2

#: How often a row may count: what is tried.
COUNTS = (1, 3, 8)

#: With more rows, one pass of which tells more, nothing is tried: a row counts so often.
MAX_TRIED_ROWS, COUNT_OF_MANY = 5000, 3

#: early_stopping of networks of second order tries this number of passes, then twice as many, and so on, and ends after
#: so many trials without an improvement.
FIRST_TRIED, TRIAL_PATIENCE = 10, 2


class Passes(NamedTuple):
    """What a fit does.

    :ivar epochs: passes.
    :ivar max_count: how often a row counts at most.
    """

    epochs: int
    max_count: int


class Trial(Protocol):
    """A network that learns a part of the rows."""

    def next_pass(self) -> None:
        """Learn them once more."""
        ...

    def score(self) -> float:
        """The mean log density or log probability of the other rows, in nats."""
        ...


def default_epochs(num_rows: int) -> int:
    """Passes of epochs="auto": 16,000 rows in all, from 3 passes (5,334 rows or more) to 20 (800 rows or fewer)."""
    return int(np.clip(-(-AUTO_UPDATES // num_rows), MIN_AUTO_EPOCHS, MAX_AUTO_EPOCHS))


def has_stopped(losses: Sequence[float]) -> bool:
    """Whether the log loss after each pass has not fallen for `PATIENCE` passes."""
    return len(losses) > PATIENCE and min(losses[-PATIENCE:]) >= min(losses[:-PATIENCE])


def chosen_passes(
    start: Callable[[int], Trial], epochs: int, num_rows: int, *, count: int | None, early_stopping: bool
) -> Passes:
    """How many passes, and how often a row may count, that give rows held back the best score.

    :param start: from how often a row counts to a network before the first pass.
    :param epochs: the most passes.
    :param num_rows: of all rows.
    :param count: how often a row may count, or None: to be chosen.
    :param early_stopping: whether to choose the number of passes, too.
    """
    counts = sorted({min(tried, epochs) for tried in COUNTS}) if count is None else [count]
    if count is None and num_rows > MAX_TRIED_ROWS:
        counts = [min(COUNT_OF_MANY, epochs)]
    if num_rows < 2 or (len(counts) == 1 and not early_stopping):
        return Passes(epochs, counts[0])
    best: tuple[float, Passes] | None = None
    for tried in counts:
        trial = start(tried)
        scores: list[float] = []
        for number in range(1, epochs + 1):
            trial.next_pass()
            is_tried = early_stopping and number == FIRST_TRIED * 2 ** len(scores)
            if not is_tried and number < epochs:
                continue
            score = trial.score()
            scores.append(score if np.isfinite(score) else -np.inf)
            if best is None or scores[-1] > best[0]:
                best = (scores[-1], Passes(number, tried))
            if len(scores) > TRIAL_PATIENCE and max(scores[-TRIAL_PATIENCE:]) <= max(scores[:-TRIAL_PATIENCE]):
                break
    assert best is not None
    return best[1]


def held_rows(
    num_rows: int,
    seed: int,
    *,
    strata: NDArray[np.generic] | None = None,
    groups: ArrayLike | None = None,
    at_least: int = 0,
) -> NDArray[np.intp]:
    """Numbers of the rows to hold back, an eighth and not more than `MAX_HELD`, drawn by the seed; sorted.

    :param num_rows: N.
    :param seed: not negative. The order of the rows has no part in which of them are drawn.
    :param strata: of each row its class, [N]: an eighth of each class, and no class as a whole; None: of all rows.
    :param groups: of each row its group, [N], such as the person or the day it is of: whole groups are held back, so
        that rows that resemble each other are on one side; None: every row is its own.
    :param at_least: rows to hold back of few.
    :raises ValueError: if all rows are of one group.
    """
    rng = np.random.default_rng([seed, 3])
    part = min(1.0 / ROWS_PER_HELD, MAX_HELD / num_rows)
    if groups is not None:
        names, group = np.unique(np.asarray(groups), return_inverse=True)
        if len(names) < 2:
            raise ValueError("groups must be at least two, as a part of them is held back, got one; leave it out.")
        return _held_groups(rng, group, strata, part)
    parts = [np.arange(num_rows)] if strata is None else [np.flatnonzero(strata == name) for name in np.unique(strata)]
    drawn = [rng.permutation(rows)[: max(at_least, int(part * len(rows)))] for rows in parts]
    return np.sort(np.concatenate(drawn))


def _held_groups(
    rng: np.random.Generator, group: NDArray[np.intp], strata: NDArray[np.generic] | None, part: float
) -> NDArray[np.intp]:
    """Groups in a random order, each held back if no class is left without rows, until there are enough of them."""
    _, label = np.unique(np.zeros(len(group)) if strata is None else strata, return_inverse=True)
    left = np.bincount(label)
    held = np.zeros(len(group), np.bool_)
    for number in rng.permutation(group.max() + 1):
        rows = group == number
        after = left - np.bincount(label[rows], minlength=len(left))
        if np.all(after > 0):
            held |= rows
            left = after
        if np.sum(held) >= part * len(group):
            break
    return np.flatnonzero(held)
