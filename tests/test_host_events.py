"""No step of a training copies between host and device, or waits for Python: counted by the profiler, without a GPU.

What makes many steps makes them in one call of a graph, which no Python interrupts: the host starts the same operations
for 4 steps as for 12. A step of a deep GP is a call of its own; its results stay on the device.
"""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import gpflow_deep
from tests.compiled import PACKAGES, name_of
from tests.examples import COMPILED, normal
from tests.host_events import COPY, host_events
from tests.loops import LOOPS, ONCE, SEED, STEPS, dgp_steps

SLOW = [pytest.mark.slow, pytest.mark.ci]
FAST = ("darn", "ebp.training.loops.dense_epoch", "gpflow_deep.train.training")
"""One of each system whose functions are fast to trace."""


def marked(makers: dict[str, Any]) -> list[Any]:
    return [pytest.param(name, id=name, marks=[] if name.startswith(FAST) else SLOW) for name in makers]


def test_every_compiled_function_is_a_loop_or_a_step_or_makes_none() -> None:
    """If this fails: add the function to `LOOPS` or `STEPS` in tests/loops.py, or to `ONCE` why it makes no step."""
    assert COMPILED.keys() == LOOPS.keys() | STEPS.keys() | ONCE.keys()
    assert len(COMPILED) == len(LOOPS) + len(STEPS) + len(ONCE)


def calls_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the packages' compiled functions, as the host calls them."""
    kind, calls = type(tf.function(lambda: None)), []
    run = kind.__call__

    def call(compiled: Any, *args: Any, **options: Any) -> Any:
        if not tf.inside_function() and name_of(compiled).split(".")[0] in PACKAGES:
            calls.append(name_of(compiled))
        return run(compiled, *args, **options)

    monkeypatch.setattr(kind, "__call__", call)
    return calls


def events_of(loop: Any, count: int) -> Counter[str]:
    """Those of a call that is not the first one of its kind."""
    loop(count)
    return host_events(lambda: loop(count))


@pytest.mark.parametrize("name", marked(LOOPS))
def test_more_steps_are_no_more_work_for_the_host(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = LOOPS[name]()
    events = [events_of(loop, count) for count in (4, 12)]
    assert events[0] == events[1]
    assert events[0].total() > 0
    calls = calls_of(monkeypatch)
    loop(4)
    of_4 = len(calls)
    loop(12)
    assert set(calls) == {name}
    assert len(calls) == 2 * of_4 <= 4


@pytest.mark.parametrize("name", marked(STEPS))
def test_a_step_of_its_own_copies_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = STEPS[name]()
    more = events_of(loop, 12)
    more.subtract(events_of(loop, 4))
    assert more[name.rpartition(".")[2]] == 8
    is_numbered = name.startswith(
        "gpflow_deep.train.training"
    )  # its seed is made of the run's and the number of the step
    assert more[COPY] == 8 * is_numbered
    assert more.total() <= 8 * (1 + 5 * is_numbered)
    calls = calls_of(monkeypatch)
    loop(3)
    assert calls == [name] * 3


def test_a_minibatch_of_arrays_and_the_number_of_the_step_are_all_that_is_copied() -> None:
    loop = dgp_steps(batch_size=7)
    more = events_of(loop, 12)
    more.subtract(events_of(loop, 4))
    assert more[COPY] == 8 * (2 + 1)


class Unread:
    """What a step returns, for a test: it cannot become a number or an array."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a step's result was asked for {name}")

    def _read(self, *_: Any) -> Any:
        raise AssertionError("a step's result was read")

    __array__ = __float__ = __int__ = __index__ = __bool__ = __len__ = __iter__ = _read


def trainer_with_unread_steps(num_steps: int | None) -> tuple[Any, list[Any]]:
    X, Y = normal(20, 2), normal(20, 1)
    trainer = gpflow_deep.Trainer(gpflow_deep.paper2017(X, Y, 2, num_inducing=5), num_steps=num_steps)
    given: list[Any] = []

    def step(batch: Any, seed: tf.Tensor) -> dict[str, Any]:
        given.append(batch)
        return {"elbo_nats": Unread()}

    trainer._step = step
    return trainer, given


@pytest.mark.parametrize("num_steps", [None, 1000])
def test_a_trainer_does_not_read_what_its_steps_return(num_steps: int | None) -> None:
    trainer, given = trainer_with_unread_steps(num_steps)
    batch = tf.constant(normal(20, 2)), tf.constant(normal(20, 1))
    bound = trainer.advance(lambda t: batch, 0, 20, SEED)
    assert isinstance(bound, Unread)
    assert len(given) == 20
    assert all(each is batch for each in given)  # they are not copied, either
    with pytest.raises(AssertionError, match="was read"):
        trainer.scalars()


# The check itself.


def test_copies_and_calls_of_python_are_counted() -> None:
    @tf.function
    def loop(count: tf.Tensor) -> tf.Tensor:
        total = tf.zeros([])
        for _ in tf.range(count):
            total += tf.reshape(tf.numpy_function(lambda: np.float32(1.0), [], tf.float32), [])
        return total

    many, few = tf.constant(5), tf.constant(2)
    loop(few)
    assert host_events(lambda: loop(many))["PyFunc"] == 5
    assert host_events(lambda: loop(few)) == {"loop": 1, "PyFunc": 2}
    assert host_events(lambda: [tf.constant(np.ones(9)) for _ in range(3)]) == {COPY: 3}
    assert host_events(lambda: [few + few for _ in range(3)]) == {"AddV2": 3}
