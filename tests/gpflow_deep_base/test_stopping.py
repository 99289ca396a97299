"""gpflow_deep_base.stopping: which score is the best and when to stop, against a plain loop over all scores."""

import math

import numpy as np
import pytest

from gpflow_deep_base.stopping import Stopping


def by_hand(scores: list[float], patience: int) -> tuple[int, int]:
    """Place of the best score at the end, and how many were looked at."""
    best, since = 0, 0
    for i, score in enumerate(scores):
        if i and score > scores[best]:
            best, since = i, 0
        elif i:
            since += 1
        if since >= patience:
            return best, i + 1
    return best, len(scores)


@pytest.mark.parametrize("is_lower_better", [False, True])
def test_as_a_loop_over_all_scores(rng: np.random.Generator, is_lower_better: bool) -> None:
    for _ in range(200):
        scores = rng.integers(0, 8, size=12).astype(float).tolist()
        patience = int(rng.integers(1, 6))
        stopping = Stopping(patience, is_lower_better)
        looked_at = 0
        for step, score in enumerate(scores):
            stopping, is_best = stopping.after(step, -score if is_lower_better else score)
            assert is_best == (stopping.step == step)
            looked_at += 1
            if stopping.is_done:
                break
        assert (stopping.step, looked_at) == by_hand(scores, patience)


def test_what_is_not_a_number_is_never_the_best() -> None:
    stopping = Stopping(patience=3)
    for step, score in enumerate([math.nan, -math.inf, math.nan, -2.0, math.nan]):
        stopping, _ = stopping.after(step, score)
    assert (stopping.step, stopping.score, stopping.num_worse) == (3, -2.0, 1)


def test_a_margin_has_to_be_exceeded() -> None:
    stopping, _ = Stopping(margin=0.5).after(0, 1.0)
    assert stopping.after(1, 1.5)[1] is False
    assert stopping.after(1, 1.6)[1] is True
    lower, _ = Stopping(margin=0.5, is_lower_better=True).after(0, 1.0)
    assert lower.after(1, 0.5)[1] is False
    assert lower.after(1, 0.4)[1] is True


def test_without_patience_it_never_stops() -> None:
    stopping = Stopping(patience=None)
    for step in range(100):
        stopping, _ = stopping.after(step, -step)
    assert stopping.num_worse == 99
    assert not stopping.is_done


@pytest.mark.parametrize("options", [{"patience": 0}, {"margin": -1.0}, {"margin": math.nan}])
def test_settings_that_make_no_sense(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        Stopping(**options)  # type: ignore[arg-type]
