"""How many passes an estimator makes, how often a row may count in its posterior, and the rows that it holds back.

A pass over rows that were learned before adds to the posterior as if they were new. Where rows say little, a posterior
that has counted each of them 40 times is sure of what is noise. So in `fit` a row counts k times at most: after k
passes, older ones are forgotten at the rate at which new ones come. What k is right follows from rows held back. Once
(k = 1) is what Bayes asks for; more often helps where the noise is small, as one pass does not yet use all that a row
says.

The choice is a race (Maron and Moore, 1994): all k are tried on a part of the rows, and those that are not clearly
worse than the best again on others, until one is left or `SCORED_ROWS` have been held back. An eighth of a small table
is too few: of 400 rows it takes k = 3 for k = 8 in one seed of six, at a third more log loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "COUNT_OF_MANY",
    "MAX_TRIED_ROWS",
    "default_epochs",
    "has_stopped",
    "held_folds",
    "held_rows",
    "judging_folds",
    "tried_counts",
    "winner",
]

Array = NDArray[np.float64]

#: Rows that epochs="auto" learns in all, and the fewest and most passes.
AUTO_UPDATES = 16_000
MIN_AUTO_EPOCHS = 3
MAX_AUTO_EPOCHS = 20

#: One row of this many, but not more than so many, are held back.
ROWS_PER_HELD = 8
MAX_HELD = 2000

#: Passes without an improvement after which early_stopping of `EBPClassifier` ends the training.
PATIENCE = 2

#: How often a row may count: what is tried.
COUNTS = (1, 3, 8)

#: Rows that a race holds back in all, if there are so many, in parts of at most a third of the rows.
SCORED_ROWS = 400
MAX_PART = 1.0 / 3.0

#: What is tried drops out of a race if it is worse than the best by so many standard errors, of so many rows at least.
CLEAR_ERRORS = 2.0
MIN_RACED = 30

#: With more rows, one pass of which tells more, nothing is tried: a row counts so often.
MAX_TRIED_ROWS = 5000
COUNT_OF_MANY = 3


def default_epochs(num_rows: int) -> int:
    """Passes of epochs="auto": 16,000 rows in all, from 3 passes (5,334 rows or more) to 20 (800 rows or fewer)."""
    return int(np.clip(-(-AUTO_UPDATES // num_rows), MIN_AUTO_EPOCHS, MAX_AUTO_EPOCHS))


def has_stopped(losses: Sequence[float]) -> bool:
    """Whether the log loss after each pass has not fallen for `PATIENCE` passes."""
    return len(losses) > PATIENCE and min(losses[-PATIENCE:]) >= min(losses[:-PATIENCE])


def tried_counts(epochs: int, num_rows: int) -> list[int]:
    """How often a row may count, as far as rows that are held back have to tell.

    :param epochs: passes.
    :param num_rows: of all rows.
    """
    if num_rows > MAX_TRIED_ROWS:
        return [min(COUNT_OF_MANY, epochs)]
    counts = sorted({min(tried, epochs) for tried in COUNTS})
    return counts if num_rows > 1 else counts[:1]


def winner(
    candidates: Sequence[int],
    scores: Callable[[int, NDArray[np.intp]], tuple[Array, Array]],
    folds: Sequence[NDArray[np.intp]],
) -> int:
    """The candidate with the best score of rows held back, by a race; the first one if there are no rows.

    :param candidates: such as how often a row may count.
    :param scores: from a candidate, and the rows that are held back, to log densities or log probabilities that a
        network of the others has for these in nats, and their weights; [H] each.
    :param folds: of `held_folds`.
    """
    left = list(candidates)
    scored: dict[int, list[tuple[Array, Array]]] = {candidate: [] for candidate in left}
    # All of them on the first part of the rows, and those that are left on the others.
    for held in folds:
        if len(left) == 1:
            break
        for candidate in sorted(left):
            scored[candidate].append(scores(candidate, held))
        left = _not_clearly_worse({candidate: scored[candidate] for candidate in left})
    return left[0]


def _mean(scores: Array, weight: Array) -> float:
    """The weighted mean; of nothing 0, and of what is no number -inf."""
    if not np.any(weight):
        return 0.0
    mean = float(np.average(scores, weights=weight))
    return mean if np.isfinite(mean) else -np.inf


def _not_clearly_worse(scored: dict[int, list[tuple[Array, Array]]]) -> list[int]:
    """The best choice so far, and then those that rows may yet prove to be better."""
    # The scores of all parts of the rows together.
    joined = {
        choice: (
            np.concatenate([part_scores for part_scores, _ in parts]),
            np.concatenate([weight for _, weight in parts]),
        )
        for choice, parts in scored.items()
    }
    means = {choice: _mean(*parts) for choice, parts in joined.items()}
    best = max(means, key=means.__getitem__)
    candidates = [best]
    for choice, (scores, weight) in joined.items():
        if choice == best or (means[choice] == -np.inf and means[best] > -np.inf):
            continue
        # The standard error of the mean of differences in the same rows.
        difference = joined[best][0] - scores
        total = float(np.sum(weight))
        gap = means[best] - means[choice]
        with np.errstate(invalid="ignore"):
            error = np.sqrt(np.sum((weight * (difference - gap)) ** 2)) / total if total else np.inf
        # A choice stays in the race while its gap is within a few standard errors.
        if len(scores) < MIN_RACED or not gap > CLEAR_ERRORS * error:
            candidates.append(choice)
    return candidates


def held_folds(
    num_rows: int, seed: int, *, strata: NDArray[np.generic] | None = None, groups: ArrayLike | None = None
) -> list[NDArray[np.intp]]:
    """Numbers of the rows to hold back in each part of a race, at most three that have no row in common; sorted.

    :param num_rows: how many rows, N.
    :param seed: not negative.
    :param strata: of each row its class, [N]: every part has the same share of each; None: of all rows.
    :param groups: of each row its group, [N]: whole groups are held back; None: every row is its own.
    :raises ValueError: if all rows are of one group.
    """
    # An eighth of the rows, or more where that is too few to be scored.
    part = min(max(1.0 / ROWS_PER_HELD, SCORED_ROWS / num_rows), MAX_PART)
    num_folds = min(int(np.ceil(SCORED_ROWS / (part * num_rows))), round(1.0 / MAX_PART))
    return _drawn(num_rows, seed, strata, groups, part, num_folds)


def judging_folds(
    folds: Sequence[NDArray[np.intp]], num_rows: int, seed: int, groups: ArrayLike | None = None
) -> Sequence[NDArray[np.intp]]:
    """Numbers of the rows to hold back in each part, where the errors of predictions are judged by them.

    Eighths, as many as have `SCORED_ROWS`, or all: a network of two thirds of the rows may be wrong by half as much
    again as one of all of them.

    :param folds: those of the race, which are such of many rows.
    :param num_rows: how many rows, N.
    :param seed: not negative.
    :param groups: as in `held_folds`.
    """
    if not ROWS_PER_HELD <= num_rows < ROWS_PER_HELD * SCORED_ROWS:
        return folds
    num_folds = min(ROWS_PER_HELD, -(-SCORED_ROWS // (num_rows // ROWS_PER_HELD)))
    return _drawn(num_rows, seed, None, groups, 1.0 / ROWS_PER_HELD, num_folds)


def held_rows(
    num_rows: int, seed: int, *, strata: NDArray[np.generic] | None = None, groups: ArrayLike | None = None
) -> NDArray[np.intp]:
    """Numbers of the rows to hold back, an eighth and not more than `MAX_HELD`, drawn by the seed; sorted.

    :param num_rows: how many rows, N.
    :param seed: not negative. The order of the rows has no part in which of them are drawn.
    :param strata: of each row its class, [N]: an eighth of each class, and no class as a whole; None: of all rows.
    :param groups: of each row its group, [N], such as the person or the day it is of: whole groups are held back, so
        that rows that resemble each other are on one side; None: every row is its own.
    :raises ValueError: if all rows are of one group.
    """
    return _drawn(num_rows, seed, strata, groups, min(1.0 / ROWS_PER_HELD, MAX_HELD / num_rows), 1)[0]


def _drawn(
    num_rows: int, seed: int, strata: NDArray[np.generic] | None, groups: ArrayLike | None, part: float, num_folds: int
) -> list[NDArray[np.intp]]:
    """Parts of the rows that have none in common; only the first one may be empty."""
    rng = np.random.default_rng([seed, 3])
    # Whole groups, or the same part of each class.
    if groups is not None:
        names, group = np.unique(np.asarray(groups), return_inverse=True)
        if len(names) < 2:
            raise ValueError("groups must be at least two, as a part of them is held back, got one; leave it out.")
        folds = _drawn_groups(rng, group, strata, part, num_folds)
    else:
        # Each class is shuffled on its own, and every part takes the next rows of each.
        labels = np.zeros(num_rows) if strata is None else strata
        classes = [rng.permutation(np.flatnonzero(labels == name)) for name in np.unique(labels)]
        sizes = [int(part * len(rows)) for rows in classes]
        folds = [
            np.concatenate([rows[fold * size : (fold + 1) * size] for rows, size in zip(classes, sizes, strict=True)])
            for fold in range(num_folds)
        ]
    return [np.sort(rows) for number, rows in enumerate(folds) if len(rows) or not number]


def _drawn_groups(
    rng: np.random.Generator, group: NDArray[np.intp], strata: NDArray[np.generic] | None, part: float, num_folds: int
) -> list[NDArray[np.intp]]:
    """Groups in a random order, each held back if no class is left without rows, until there are enough of them."""
    _, label = np.unique(np.zeros(len(group)) if strata is None else strata, return_inverse=True)
    waiting = rng.permutation(group.max() + 1)
    # The rows of each group lie together in this order.
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(group.max() + 2))
    folds = []
    # A fold is filled from the groups that no fold has.
    for _ in range(num_folds):
        class_counts = np.bincount(label)
        is_held = np.zeros(len(waiting), np.bool_)
        held: list[NDArray[np.intp]] = []
        num_held = 0
        for place, number in enumerate(waiting):
            rows = order[starts[number] : starts[number + 1]]
            # No class may lose its last rows.
            remaining_counts = class_counts - np.bincount(label[rows], minlength=len(class_counts))
            if np.all(remaining_counts > 0):
                held.append(rows)
                num_held += len(rows)
                class_counts = remaining_counts
                is_held[place] = True
            if num_held >= part * len(group):
                break
        waiting = waiting[~is_held]
        folds.append(np.sort(np.concatenate(held)) if held else np.zeros(0, np.intp))
    return folds
