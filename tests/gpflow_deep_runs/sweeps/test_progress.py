import sys
import time

import pytest

from gpflow_deep_runs.sweeps import Status, expand, parse
from gpflow_deep_runs.sweeps.jobs import Running
from gpflow_deep_runs.sweeps.progress import SweepProgress, seconds_left

RUNS = expand(
    parse(
        'script = "a.py"\n[axes]\ndataset = ["x", "y"]\nsplit = [0, 1]\n[settings]\nsmall = {n = 1}\nlarge = {n = 2}\n'
    )
)
SECONDS = {"x-split0-small": 10.0, "x-split0-large": 100.0, "x-split1-large": 120.0}


def status_of(*, running: tuple[Running, ...] = (), left: tuple[str, ...] = (), num_jobs: int = 1) -> Status:
    return Status(list(SECONDS), {"y-split0-small": "nan"}, {}, running, left, num_jobs)


def test_the_time_left_is_that_of_runs_alike() -> None:
    """The same data set and setting in another split; else the same setting; else all."""
    left = status_of(left=("x-split1-small",))
    assert seconds_left(left, RUNS, SECONDS) == 10.0
    assert seconds_left(status_of(left=("y-split1-large",)), RUNS, SECONDS) == 110.0
    assert seconds_left(status_of(left=("y-split1-large",)), RUNS, {"x-split0-small": 10.0}) == 10.0
    both = status_of(left=("x-split1-small", "y-split1-large"))
    assert seconds_left(both, RUNS, SECONDS) == 120.0
    assert seconds_left(both._replace(num_jobs=2), RUNS, SECONDS) == 110.0  # the longer of the two
    running = status_of(running=(Running("y-split1-large", 30.0, ""), Running("x-split1-small", 50.0, "")))
    assert seconds_left(running, RUNS, SECONDS) == 80.0  # one has longer run than expected
    assert seconds_left(both, RUNS, {}) is None
    assert seconds_left(both, RUNS, {"gone": 3.0}) is None
    assert seconds_left(status_of(), RUNS, SECONDS) == 0.0


def test_a_line_says_what_is_done_running_and_left() -> None:
    job = Running("y-split0-large", 30.0, "step 700 of 5000 (14 %), train/elbo_nats -3, 20 steps/s, 4 min left")
    status = status_of(running=(job,), left=("x-split1-small",))
    with SweepProgress(RUNS, lambda: SECONDS) as shown:
        assert shown.line(status) == (
            "3 of 8 done, 1 failed, running: y-split0-large for 30 s at step 700 of 5000, 1 to come, "
            "about 1 min 30 s left"
        )
        nothing = SweepProgress(RUNS, dict).line(status_of(running=(Running("y-split0-large", 30.0, "regression"),)))
    assert nothing.endswith("running: y-split0-large for 30 s, 0 to come, time left not known yet")


def test_without_a_terminal_a_line_a_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with SweepProgress(RUNS, dict) as shown:
        for now[0] in range(150):
            shown.show(status_of())
        shown.say("done: x")
    out, err = capsys.readouterr()
    assert err.count("3 of 8 done") == 2
    assert out == "done: x\n"
    with SweepProgress(RUNS, dict, is_shown=False) as shown:
        for now[0] in range(150, 300):
            shown.show(status_of())
    assert capsys.readouterr() == ("", "")


def test_in_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with SweepProgress(RUNS, lambda: SECONDS) as shown:
        shown.show(status_of(left=("x-split1-small",)))
        shown.say("done: x")
    out, err = capsys.readouterr()
    assert "3/8 |" in err
    assert "about 10 s left" in err
    assert out == "done: x\n"
