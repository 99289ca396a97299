"""gpflow_deep_base.cost: what a fit will cost is said once, and only of long ones."""

import logging

import pytest

from gpflow_deep_base import cost


@pytest.mark.parametrize(
    ("total", "said"), [(1000, ["23 of at most 1000 steps are done; the others may take 16 min"]), (70, []), (1, [])]
)
def test_a_long_fit_says_once_what_is_left(
    total: int, said: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A step takes a second, but the first ones, which compile, take a minute."""
    now = iter([60.0, 60.0 + 0.4, *(60.0 + seconds for seconds in range(2, 1000))])
    monkeypatch.setattr("gpflow_deep_base.cost.time.monotonic", lambda: next(now))
    counted = cost.Cost(total, "steps")
    with caplog.at_level(logging.WARNING, logger="gpflow_deep"):
        for done in (20, 20, *range(22, min(total, 100))):
            counted(done)
    assert caplog.messages == said
