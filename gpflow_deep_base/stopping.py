"""The best evaluation so far, and when to stop looking for a better one.

    stopping = Stopping(patience=10)
    for step in ...:
        best_parameters = ...
        stopping, is_best = stopping.after(step, score)
        if stopping.is_done: break

A rule is a value and a pure function of the scores, so that a run that was stopped and resumed decides the same.
"""

from __future__ import annotations

import math
import signal
from dataclasses import dataclass, replace

__all__ = ["Interrupted", "Stopping"]


@dataclass(frozen=True)
class Stopping:
    """Which of a sequence of scores is the best, and whether enough of them were no better.

    :ivar patience: evaluations in a row that are no better, after which training stops; None: it never does.
    :ivar is_lower_better: whether scores are losses.
    :ivar margin: by how much a score must be better to count.
    :ivar step: of the best score, -1 before the first.
    :ivar score: the best.
    :ivar num_worse: scores in a row that were no better.
    """

    patience: int | None = 10
    is_lower_better: bool = False
    margin: float = 0.0
    step: int = -1
    score: float = -math.inf
    num_worse: int = 0

    def __post_init__(self) -> None:
        if self.patience is not None and self.patience < 1:
            raise ValueError(f"patience must be positive, or None to train to the end, got {self.patience}.")
        if not self.margin >= 0:
            raise ValueError(f"margin must not be negative, got {self.margin}.")

    def after(self, step: int, score: float) -> tuple[Stopping, bool]:
        """The rule after one more evaluation, and whether that is the best so far.

        :param step: updates made before it.
        :param score: a number; NaN is worse than all others, and the first score is the best unless it is NaN.
        """
        # Losses with their sign changed, so that larger is better.
        signed = -score if self.is_lower_better else score
        best = -self.score if self.is_lower_better and self.step >= 0 else self.score
        is_best = not math.isnan(score) and (self.step < 0 or signed > best + self.margin)
        if is_best:
            return replace(self, step=step, score=score, num_worse=0), True
        return replace(self, num_worse=self.num_worse + 1), False

    @property
    def is_done(self) -> bool:
        """Whether `patience` scores in a row were no better."""
        return self.patience is not None and self.num_worse >= self.patience


class Interrupted(Exception):
    """Training stopped early, between two steps: save a checkpoint and leave.

    `step` is the number of finished steps, `reason` is "SIGINT" (Ctrl-C), "SIGTERM", "SIGHUP", "SIGUSR1" or
    "max_seconds", and `exit_code` is what a shell expects: 128 and the signal's number, or 0 when only the time was up.
    """

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(f"training was stopped by {reason} after step {step}; continue it with --resume.")
        self.step = step
        self.reason = reason
        self.exit_code = 0 if reason == "max_seconds" else 128 + signal.Signals[reason]
