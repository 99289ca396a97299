"""gpflow_deep_runs.run.selection: which evaluation is the best so far."""

import math

import pytest

from gpflow_deep_runs.run import Best, lowest, newest


def test_lowest_keeps_the_first_of_equals_and_refuses_what_is_not_finite() -> None:
    rule = lowest("valid/nll")
    best = Best()
    for step, value in enumerate([3.0, 3.0, 2.0, 2.5], start=1):
        best = rule(step, best, {"valid/nll": value, "other": -1.0})
    assert best == Best(3, 2.0, num_worse=1)
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(FloatingPointError, match=rf"valid/nll is {value} after step 7: training has diverged\."):
            rule(7, best, {"valid/nll": value})
    with pytest.raises(KeyError):
        rule(7, best, {"other": 1.0})


def test_newest_is_always_the_last() -> None:
    assert newest(5, Best(3, 1.0, 2), {}) == Best(5, 0.0)
