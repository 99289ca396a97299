"""gpflow_deep_base.stopping: which loss is the best and when to stop, against a plain loop over all of them."""

import math
import signal

import numpy as np
import pytest

from gpflow_deep_base.stopping import Best, signals


def by_hand(losses: list[float], patience: int) -> tuple[int, int]:
    """Place of the best loss at the end, and how many were looked at."""
    best, since = 0, 0
    for i, loss in enumerate(losses):
        if i and loss < losses[best]:
            best, since = i, 0
        elif i:
            since += 1
        if since >= patience:
            return best, i + 1
    return best, len(losses)


def test_as_a_loop_over_all_losses(rng: np.random.Generator) -> None:
    for _ in range(200):
        losses = rng.integers(0, 8, size=12).astype(float).tolist()
        patience = int(rng.integers(1, 6))
        best = Best()
        looked_at = 0
        for step, loss in enumerate(losses):
            best = best.after(step, loss)
            looked_at += 1
            if best.is_done(patience):
                break
        assert (best.step, looked_at) == by_hand(losses, patience)
        assert best.value == losses[best.step]


def test_what_is_not_a_number_is_never_the_best() -> None:
    best = Best()
    for step, loss in enumerate([math.nan, math.inf, math.nan, 2.0, math.nan]):
        best = best.after(step, loss)
        assert best.step == [-1, 1, 1, 3, 3][step]
    assert best == Best(3, 2.0, num_worse=1)


@pytest.mark.parametrize(("is_better", "num_worse"), [(False, 2), (None, 0)])
def test_what_is_open_is_no_better_and_not_counted(is_better: bool | None, num_worse: int) -> None:
    worse = Best().after(0, 1.0).after(1, 2.0)
    assert worse.judged(Best(2, 0.0), is_better=is_better) == Best(0, 1.0, num_worse)


def test_without_patience_it_never_stops() -> None:
    best = Best()
    for step in range(100):
        best = best.after(step, step)
    assert best.num_worse == 99
    assert not best.is_done(None)


def test_a_warning_that_comes_twice_counts_once_and_handlers_are_put_back() -> None:
    before = {name: signal.getsignal(name) for name in (signal.SIGHUP, signal.SIGTERM)}
    with signals(acts_again=False) as received:
        for name in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP, signal.SIGTERM):
            signal.raise_signal(name)
    assert received == ["SIGHUP", "SIGTERM", "SIGTERM"]
    assert {name: signal.getsignal(name) for name in before} == before
