"""gpflow_deep_runs.run.loop: what is called when, resuming bit for bit, and stopping."""

import itertools
import math
import os
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest

from gpflow_deep_runs.run import Best, Every, Fitted, Interrupted, fit, lowest, newest
from gpflow_deep_runs.run.loop import block_size
from tests.gpflow_deep_runs.run.toy import Clock

# ---------------------------------------------------------------------------------------------- resuming


class Recorded:
    """Everything that `fit` calls, in order, for a training whose validation scores are given."""

    def __init__(self, scores: Mapping[int, float] | None = None) -> None:
        self.scores = scores or {}
        self.calls: list[tuple[Any, ...]] = []
        self.lines: list[tuple[int, dict[str, float]]] = []
        self.saved: list[tuple[int, Best]] = []

    def advance(self, first: int, count: int) -> int:
        self.calls.append(("advance", first, count))
        return first + count

    def scalars(self, observed: int) -> dict[str, float]:
        self.calls.append(("scalars", observed))
        return {"train/loss": 10.0 * observed}

    def evaluate(self, step: int) -> dict[str, float]:
        self.calls.append(("evaluate", step))
        return {"valid/nll": self.scores.get(step, 0.0)}

    def keep(self) -> None:
        self.calls.append(("keep",))

    def log(self, step: int, line: Mapping[str, float]) -> None:
        self.calls.append(("log", step))
        self.lines.append((step, dict(line)))

    def save(self, step: int, best: Best) -> None:
        self.calls.append(("save", step))
        self.saved.append((step, best))

    def fit(self, **options: Any) -> Fitted:
        given: dict[str, Any] = {
            "scalars": self.scalars,
            "evaluate": self.evaluate,
            "keep": self.keep,
            "log": self.log,
            "save": self.save,
            "rule": lowest("valid/nll"),
        }
        return fit(self.advance, **{**given, **options})


SCORES = {2: 5.0, 4: 3.0, 6: 4.0, 8: 2.0, 10: 2.5, 12: 2.0, 14: 1.0}


@pytest.mark.parametrize("stop_at", range(1, 12))
@pytest.mark.parametrize("patience", [None, 2, 1])
def test_resuming_continues_the_choice_of_the_best(stop_at: int, patience: int | None) -> None:
    """From (step, best) of any step: the same lines, the same best, the same early stop as without a break."""
    every = Every(log=3, evaluate=2, save=100)
    whole, first, second = Recorded(SCORES), Recorded(SCORES), Recorded(SCORES)
    expected = whole.fit(num_steps=14, every=every, patience=patience)

    with suppress(Interrupted):
        stopping_at(first, stop_at).fit(num_steps=14, every=every, patience=patience)
    step, best = first.saved[-1]
    assert step == min(stop_at, expected.step)
    found = second.fit(num_steps=14, every=every, patience=patience, first=step, best=best)
    assert (found.step, found.best, found.is_stopped) == (expected.step, expected.best, expected.is_stopped)
    assert first.lines + second.lines == whole.lines


def stopping_at(training: Recorded, stop_at: int, number: signal.Signals = signal.SIGTERM) -> Recorded:
    """A signal arrives during this step."""
    advance = training.advance

    def stopping(first: int, count: int) -> int:
        if first == stop_at - 1:
            os.kill(os.getpid(), number)
        return advance(first, count)

    training.advance = stopping  # type: ignore[method-assign]
    return training


# ---------------------------------------------------------------------------------------------- the order of things


def test_what_happens_after_which_step() -> None:
    """Training scalars, evaluation, keeping, the line, the checkpoint: in this order, and all of it at the last step.

    The evaluation sees the parameters of its step, the kept model is that of the line, and the checkpoint comes after
    the line, so that a resumed run does not repeat it.
    """
    run = Recorded({4: 2.0, 8: 3.0, 9: 1.0})
    found = run.fit(num_steps=9, every=Every(log=3, evaluate=4, save=6), steps_per_call=1)
    after: dict[int, list[str]] = {}
    step = 0
    for name, *arguments in run.calls:
        if name == "advance":
            step = arguments[0] + arguments[1]
        else:
            after.setdefault(step, []).append(name)
            assert arguments in ([], [step])
    assert after == {
        3: ["scalars", "log"],
        4: ["evaluate", "keep", "log"],
        6: ["scalars", "log", "save"],
        8: ["evaluate", "log"],
        9: ["scalars", "evaluate", "keep", "log", "save"],
    }
    assert run.lines == [
        (3, {"train/loss": 30.0}),
        (4, {"valid/nll": 2.0}),
        (6, {"train/loss": 60.0}),
        (8, {"valid/nll": 3.0}),
        (9, {"train/loss": 90.0, "valid/nll": 1.0}),
    ]
    assert run.saved == [(6, Best(4, 2.0)), (9, Best(9, 1.0))]
    assert found[:3] == (9, Best(9, 1.0), False)


@pytest.mark.parametrize("steps_per_call", [1, 2, 5, 6, 7, 100])
@pytest.mark.parametrize("first", [0, 1, 7])
def test_calls_cover_each_step_once_and_end_where_something_is_due(steps_per_call: int, first: int) -> None:
    run = Recorded()
    also: list[int] = []

    def more(step: int) -> dict[str, float]:
        also.append(step)
        return {"more": 1.0}

    every = Every(log=6, evaluate=12, save=18)
    run.fit(num_steps=40, first=first, every=every, steps_per_call=steps_per_call, also=[(9, more), (0, more)])
    calls = [(call[1], call[2]) for call in run.calls if call[0] == "advance"]
    assert [step for start, count in calls for step in range(start, start + count)] == list(range(first, 40))
    assert max(count for _, count in calls) <= steps_per_call
    ends = [start + count for start, count in calls]
    assert {step for step in range(first + 1, 40) if step % 6 == 0 or step % 9 == 0} | {40} <= set(ends)
    assert all(end % block_size(steps_per_call, 6, 12, 18, 9) == 0 for end in ends[:-1])
    assert also == [step for step in (9, 18, 27, 36) if step > first]
    assert {step for step, line in run.lines if "train/loss" in line} == {
        step for step in (6, 12, 18, 24, 30, 36, 40) if step > first
    }


def test_0_means_only_after_the_last_step() -> None:
    run = Recorded()
    run.fit(num_steps=5, every=Every(log=0, evaluate=0, save=0))
    assert [call for call in run.calls if call[0] != "advance"] == [
        ("scalars", 5),
        ("evaluate", 5),
        ("keep",),
        ("log", 5),
        ("save", 5),
    ]


def test_nothing_but_advance_is_needed() -> None:
    calls: list[tuple[int, int]] = []
    found = fit(lambda first, count: calls.append((first, count)), num_steps=3)
    assert calls == [(0, 1), (1, 1), (2, 1)]
    assert found[:3] == (3, Best(), False)
    assert found.seconds >= 0


@pytest.mark.parametrize("first", [4, 5])
def test_does_nothing_at_the_end(first: int) -> None:
    run = Recorded()
    assert run.fit(num_steps=4, first=first, best=Best(2, 1.0))[:3] == (first, Best(2, 1.0), False)
    assert run.calls == []


def test_also_is_logged_with_the_evaluation_but_a_rule_does_not_see_it() -> None:
    """Its steps are others, so a rule that needed it would fail at some evaluations only."""
    seen: list[set[str]] = []

    def rule(step: int, best: Best, scalars: Mapping[str, float]) -> Best:
        seen.append(set(scalars))
        return best

    run = Recorded()
    run.fit(num_steps=4, every=Every(2, 2, 2), rule=rule, also=[(2, lambda step: {"more": float(step)})])
    assert seen == [{"train/loss", "valid/nll"}] * 2
    assert [set(line) for _, line in run.lines] == [{"train/loss", "valid/nll", "more"}] * 2


def test_workers_agree_on_what_one_of_them_found() -> None:
    """The rule gets what `agree` says, and the line stays this worker's own."""
    run = Recorded({1: 5.0, 2: 6.0})
    found = run.fit(num_steps=2, every=Every(1, 1, 1), agree=lambda line: {"valid/nll": 10.0 - line["valid/nll"]})
    assert found.best == Best(2, 4.0)
    assert [line["valid/nll"] for _, line in run.lines] == [5.0, 6.0]


# ---------------------------------------------------------------------------------------------- selection


def test_early_stopping_counts_evaluations_that_are_no_better() -> None:
    """Best at 8 (value 2.0); 10 is worse and 12 is equal, which is no better: stopped after 12, saved there."""
    run = Recorded(SCORES)
    found = run.fit(num_steps=14, every=Every(log=3, evaluate=2, save=5), patience=2)
    assert found[:3] == (12, Best(8, 2.0, num_worse=2), True)
    assert found.summary == "the best on validation, step 8 of 12, stopped early"
    assert run.saved[-1] == (12, found.best)
    assert [call for call in run.calls if call == ("keep",)] == [("keep",)] * 3  # at 2, 4 and 8
    again = Recorded(SCORES)
    assert again.fit(num_steps=14, patience=2, first=12, best=found.best)[:3] == found[:3]
    assert again.calls == []


def test_a_program_that_is_done_ends_as_at_the_last_step() -> None:
    """Logged, evaluated and saved at the step that is said to be the last, though nothing is due there."""
    run = Recorded(SCORES)
    found = run.fit(num_steps=14, every=Every(log=100, evaluate=100, save=100), is_done=lambda step: step >= 5)
    assert found[:3] == (5, Best(5, 0.0), False)
    assert [step for step, _ in run.lines] == [step for step, _ in run.saved] == [5]
    again = Recorded(SCORES)
    assert again.fit(num_steps=14, first=5, best=found.best, is_done=lambda step: step >= 5)[:2] == found[:2]
    assert again.calls == []


def test_no_patience_never_stops() -> None:
    found = Recorded(SCORES).fit(num_steps=14, every=Every(3, 2, 5))
    assert found[:3] == (14, Best(14, 1.0), False)
    assert found.summary == "the best on validation, step 14 of 14"


def test_the_last_evaluation_is_never_worse_than_another() -> None:
    assert Recorded(SCORES).fit(num_steps=5, every=Every(2, 2, 2), rule=newest, patience=1)[:3] == (
        5,
        Best(5, 0),
        False,
    )


def test_a_diverged_evaluation_is_neither_kept_nor_saved() -> None:
    run = Recorded({2: 1.0, 4: math.nan})
    with pytest.raises(FloatingPointError, match="valid/nll is nan after step 4: training has diverged"):
        run.fit(num_steps=6, every=Every(2, 2, 2))
    assert run.saved == [(2, Best(2, 1.0))]
    assert run.calls.count(("keep",)) == 1


# ---------------------------------------------------------------------------------------------- stopping


def test_an_exception_leaves_the_handlers_restored() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    saved: list[int] = []

    def advance(first: int, count: int) -> None:
        if first == 2:
            raise FloatingPointError("NaN loss")

    with pytest.raises(FloatingPointError, match="NaN loss"):
        fit(advance, num_steps=4, every=Every(save=1), save=lambda step, best: saved.append(step))
    assert saved == [1, 2]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize(
    ("number", "exit_code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGUSR1, 138)],
)
def test_a_signal_finishes_the_step_and_saves_it(number: signal.Signals, exit_code: int) -> None:
    before = signal.getsignal(number)
    run = stopping_at(Recorded(), 3, number)  # in the middle of the third step
    with pytest.raises(Interrupted, match=rf"stopped by {number.name} after step 3; continue it with --resume") as info:
        run.fit(num_steps=6, every=Every(100, 100, 100))
    assert (info.value.step, info.value.reason, info.value.exit_code) == (3, number.name, exit_code)
    assert run.calls == [("advance", 0, 1), ("advance", 1, 1), ("advance", 2, 1), ("save", 3)]
    assert signal.getsignal(number) == before


@pytest.mark.parametrize("moment", ["scalars", "evaluate", "keep", "log"])
def test_a_signal_at_any_moment_is_followed_by_a_checkpoint(moment: str) -> None:
    run = Recorded()
    real = getattr(run, moment)

    def interrupted(*arguments: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return real(*arguments)

    with pytest.raises(Interrupted) as info:
        run.fit(num_steps=9, every=Every(log=2, evaluate=2, save=100), **{moment: interrupted})
    assert info.value.step == 2
    assert run.calls[-1] == ("save", 2)


@pytest.mark.parametrize(("num_steps", "stopped_at"), [(9, 5), (4, 4)])
def test_a_signal_while_a_checkpoint_is_written_is_not_lost(num_steps: int, stopped_at: int) -> None:
    """It is not taken for one that the checkpoint has already seen: the next step is saved, too, if there is one."""
    run = Recorded()

    def save(step: int, best: Best) -> None:
        run.save(step, best)
        if step == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match=f"after step {stopped_at}"):
        run.fit(num_steps=num_steps, every=Every(100, 100, 4), save=save)
    assert [step for step, _ in run.saved] == sorted({4, stopped_at})


def test_a_second_ctrl_c_acts_at_once() -> None:
    def advance(first: int, count: int) -> None:
        deferring = signal.getsignal(signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        while signal.getsignal(signal.SIGINT) is deferring:  # two signals at once may arrive as one
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
        pytest.fail("the second signal was ignored")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process may ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            fit(advance, num_steps=4)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_that_is_sent_twice_saves_all_the_same(number: signal.Signals) -> None:
    """A shell and the system both tell of a closed terminal; and SIGTERM after the warning of a batch system saves."""
    run = Recorded()

    def advance(first: int, count: int) -> None:
        if first == 3:
            for each in (number, number, signal.SIGTERM):
                os.kill(os.getpid(), each)

    with pytest.raises(Interrupted, match=f"by {number.name} after step 4"):
        fit(advance, num_steps=9, every=Every(save=100), save=run.save)
    assert [step for step, _ in run.saved] == [4]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_that_is_ignored_stays_so(number: signal.Signals) -> None:
    """As Ctrl-C for another program is by one that a shell started in the background, and SIGHUP below nohup."""

    def advance(first: int, count: int) -> None:
        os.kill(os.getpid(), number)

    before = signal.signal(number, signal.SIG_IGN)
    try:
        assert fit(advance, num_steps=2).step == 2
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_works_outside_the_main_thread() -> None:
    found: list[Fitted] = []
    thread = threading.Thread(target=lambda: found.append(fit(lambda first, count: None, num_steps=3)))
    thread.start()
    thread.join(timeout=60)
    assert found[0].step == 3


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("gpflow_deep_runs.run.loop.time.monotonic", found)
    return found


def test_max_seconds_stops_between_calls_but_never_after_the_last(clock: Clock) -> None:
    run = Recorded()

    def advance(first: int, count: int) -> None:
        clock.seconds += 10.0

    options: dict[str, Any] = {"num_steps": 5, "every": Every(100, 100, 100), "save": run.save}
    with pytest.raises(Interrupted, match="max_seconds") as info:
        fit(advance, max_seconds=25.0, **options)
    assert (info.value.step, info.value.reason, info.value.exit_code) == (3, "max_seconds", 0)
    assert run.saved == [(3, Best())]
    assert fit(advance, max_seconds=15.0, first=3, **options).step == 5  # too late only after the last step
    with pytest.raises(Interrupted, match="after step 1"):
        fit(advance, max_seconds=0.0, **options)
    # Nor after the call that ended the training because nothing became better.
    stopping = {**options, "every": Every(1, 1, 100), "rule": lambda step, best, line: best.after(step, 1.0)}
    assert fit(advance, max_seconds=15.0, patience=1, **stopping)[:3] == (2, Best(1, 1.0, num_worse=1), True)


def test_checkpoints_by_time(clock: Clock) -> None:
    """After each 25 seconds since the last checkpoint, whatever its reason, and at their steps."""
    run = Recorded()

    def advance(first: int, count: int) -> None:
        clock.seconds += 10.0

    fit(advance, num_steps=12, every=Every(save=10, save_seconds=25.0), save=run.save)
    assert [step for step, _ in run.saved] == [3, 6, 9, 10, 12]
    run.saved.clear()
    fit(advance, num_steps=3, every=Every(save=10, save_seconds=0.0), save=run.save)
    assert [step for step, _ in run.saved] == [1, 2, 3]


# ---------------------------------------------------------------------------------------------- arguments


def test_bad_arguments() -> None:
    for num_steps in (-1, 2**31):
        with pytest.raises(ValueError, match=rf"num_steps must be between 0 and 2\*\*31 - 1, got {num_steps}"):
            fit(lambda first, count: None, num_steps=num_steps)
    for steps_per_call in (0, -1):
        with pytest.raises(ValueError, match=f"steps_per_call must be at least 1, got {steps_per_call}"):
            fit(lambda first, count: None, num_steps=3, steps_per_call=steps_per_call)
    for patience in (0, -1):
        with pytest.raises(
            ValueError, match=f"patience must be at least 1 or None, got {patience}; None trains all steps"
        ):
            fit(lambda first, count: pytest.fail("stepped"), num_steps=3, patience=patience)


def test_blocks_are_as_large_as_they_can_be() -> None:
    for most, one, other in itertools.product(range(1, 13), range(1, 13), range(1, 13)):
        fitting = [size for size in range(1, most + 1) if one % size == 0 and other % size == 0]
        assert block_size(most, one, other) == max(fitting)
