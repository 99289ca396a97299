"""Width and decay of weights that validation rows prefer, by fits one after the other.

A fit whose validation score did not fall needs no less freedom, and the first one is then the only one. After one that
has learned its rows by heart the decay is raised, and then the width lowered, as long as that helps.
"""

from collections.abc import Callable
from typing import NamedTuple

from rbm_tracking.track.evidence import Choice, is_better

__all__ = ["DECAY", "WIDTH", "Trial", "best_trial"]

# first, and of fits without validation rows
WIDTH = 256
DECAY = 1e-4
# a factor
_LEAST_WIDTH = 4
_NARROWER = 4
# a factor
_MOST_DECAY = 1e-2
_STRONGER = 10.0


class Trial(NamedTuple):
    """A fit: hidden units, decay, what it is chosen by (None without validation rows), whether its validation score
    fell in the end, and all that it left."""

    width: int
    decay: float
    choice: Choice | None
    is_overfit: bool
    left: dict[str, object]


def best_trial(width: int | None, decay: float | None, fit: Callable[[int, float], Trial]) -> Trial:
    """The best fit by validation rows.

    :param width: hidden units, None to choose them.
    :param decay: of weights, None to choose it.
    :param fit: makes the fit of a width and a decay.
    """
    # The first fit, then stronger decay, then fewer units, each as long as it helps.
    best = fit(width or WIDTH, DECAY if decay is None else decay)
    while decay is None and best.is_overfit and best.decay * _STRONGER <= _MOST_DECAY * 1.001:
        if (new := _better(best, fit(best.width, best.decay * _STRONGER))) is best:
            break
        best = new
    while width is None and best.is_overfit and best.width // _NARROWER >= _LEAST_WIDTH:
        if (new := _better(best, fit(best.width // _NARROWER, best.decay))) is best:
            break
        best = new
    return best


def _better(best: Trial, new: Trial) -> Trial:
    if best.choice is None or new.choice is None:
        return best
    return new if is_better(new.choice, best.choice) else best
