"""experiment.loop: counts, purity in (seed, step), resuming bit for bit, and stopping."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from experiment import checkpoints
from experiment.loop import Interrupted, block_size, train
from experiment.seeds import named_seed


class Line(tf.Module):
    """y = a x + b with noisy gradients: a model small enough to train in a test, with all a real one needs."""

    def __init__(self) -> None:
        super().__init__()
        self.a = tf.Variable(tf.ones([3, 1], tf.float64))
        self.b = tf.Variable(tf.zeros([], tf.float64))


class Training:
    """Model, Keras Adam, step counter and step function, made afresh as a new process would."""

    def __init__(self) -> None:
        self.model = Line()
        self.optimizer = tf.keras.optimizers.Adam(0.1)
        self.optimizer.build(self.model.trainable_variables)
        self.step = tf.Variable(0, dtype=tf.int64)
        self.losses: list[float] = []

        @tf.function
        def train_step(X: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                noise = tf.random.stateless_normal([tf.shape(X)[0], 1], seed, dtype=tf.float64)
                loss = tf.reduce_mean((X @ self.model.a + self.model.b + noise - 3.0) ** 2)
            variables = self.model.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return loss

        self.train_step = train_step

    @property
    def objects(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "step": self.step}

    def run(self, num_steps: int, **options: Any) -> None:
        def after_step(step: int, loss: tf.Tensor) -> None:
            assert int(self.step) == step
            self.losses.append(float(loss))

        options = {"after_step": after_step, **options}
        train(self.train_step, batch_at, step=self.step, num_steps=num_steps, seed=named_seed(0, "train"), **options)

    def state(self) -> list[bytes]:
        """Every bit of the model and of the optimizer."""
        variables = [*self.model.variables, *self.optimizer.variables, self.step]
        return [np.asarray(variable).tobytes() for variable in variables]


def batch_at(t: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(t).normal(size=[4, 3]))


@pytest.mark.parametrize("stop_at", [1, 5, 9])
def test_resuming_repeats_every_bit(tmp_path: Path, traced_once: Callable[[Any], Any], stop_at: int) -> None:
    """10 steps = stop_at + restore into a new model + the rest, with one trace in each."""
    whole = Training()
    traced_once(whole.train_step)
    whole.run(10)

    first = Training()
    first.run(stop_at)
    checkpoints.save(tmp_path, first.step, **first.objects)
    second = Training()
    traced_once(second.train_step)
    assert checkpoints.restore(tmp_path, **second.objects) == stop_at
    assert second.state() == first.state()
    second.run(10)

    assert first.losses + second.losses == whole.losses
    assert second.state() == whole.state()
    assert len(set(whole.losses)) == 10  # each step had noise and a batch of its own


def test_resuming_without_the_optimizer_would_be_seen(tmp_path: Path) -> None:
    """The test above has to be able to fail: leave Adam's moments behind and the losses differ."""
    whole, first, second = Training(), Training(), Training()
    whole.run(10)
    first.run(5)
    checkpoints.save(tmp_path, 5, model=first.model, step=first.step)
    checkpoints.restore(tmp_path, model=second.model, step=second.step)
    second.run(10)
    assert first.losses + second.losses != whole.losses


def test_each_step_gets_its_own_batch_and_seed() -> None:
    calls: list[tuple[int, bytes]] = []
    after: list[tuple[int, int]] = []
    step, seed = tf.Variable(3), named_seed(1, "train")

    def train_step(batch: int, step_seed: tf.Tensor) -> int:
        assert step_seed.dtype == tf.int32
        calls.append((batch, step_seed.numpy().tobytes()))
        return 10 * batch

    train(train_step, lambda t: t, step=step, num_steps=6, seed=seed, after_step=lambda *args: after.append(args))
    assert calls == [(t, tf.random.fold_in(seed, t).numpy().tobytes()) for t in (3, 4, 5)]
    assert len({step_seed for _, step_seed in calls}) == 3
    assert after == [(4, 30), (5, 40), (6, 50)]
    assert int(step) == 6


@pytest.mark.parametrize("start", [4, 5])
def test_does_nothing_at_the_end(start: int) -> None:
    step = tf.Variable(start)
    train(lambda *_: pytest.fail("stepped"), lambda t: t, step=step, num_steps=4, seed=named_seed(0, "a"))
    assert int(step) == start


def test_an_exception_leaves_the_step_unfinished_and_the_handlers_restored() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    step = tf.Variable(0)

    def train_step(batch: int, seed: tf.Tensor) -> None:
        if batch == 2:
            raise FloatingPointError("NaN loss")

    with pytest.raises(FloatingPointError, match="NaN loss"):
        train(train_step, lambda t: t, step=step, num_steps=4, seed=named_seed(0, "a"))
    assert int(step) == 2
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_finishes_the_step_and_the_run_can_be_resumed(
    tmp_path: Path, number: signal.Signals, exit_code: int
) -> None:
    before = signal.getsignal(number)
    whole, training = Training(), Training()
    whole.run(6)

    def interrupted_batch_at(t: int) -> tf.Tensor:
        if t == 2:
            os.kill(os.getpid(), number)  # in the middle of step 2
        return batch_at(t)

    with pytest.raises(Interrupted, match=rf"stopped by {number.name} after step 3; continue it with --resume") as info:
        train(
            training.train_step,
            interrupted_batch_at,
            step=training.step,
            num_steps=6,
            seed=named_seed(0, "train"),
            after_step=lambda step, loss: training.losses.append(float(loss)),
        )
    assert (info.value.step, info.value.reason, info.value.exit_code) == (3, number.name, exit_code)
    assert int(training.step) == 3
    assert len(training.losses) == 3  # after_step of the running step was called
    assert signal.getsignal(number) == before

    checkpoints.save(tmp_path, training.step, **training.objects)
    resumed = Training()
    checkpoints.restore(tmp_path, **resumed.objects)
    resumed.run(6)
    assert training.losses + resumed.losses == whole.losses


def test_a_second_ctrl_c_acts_at_once() -> None:
    def train_step(batch: int, seed: tf.Tensor) -> None:
        deferring = signal.getsignal(signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        while signal.getsignal(signal.SIGINT) is deferring:  # two signals at once may arrive as one
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
        pytest.fail("the second signal was ignored")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process may ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            train(train_step, lambda t: t, step=tf.Variable(0), num_steps=4, seed=named_seed(0, "a"))
    finally:
        signal.signal(signal.SIGINT, before)


def test_works_outside_the_main_thread() -> None:
    step, seed = tf.Variable(0), named_seed(0, "a")
    thread = threading.Thread(target=lambda: train(lambda *_: 0, lambda t: t, step=step, num_steps=3, seed=seed))
    thread.start()
    thread.join(timeout=60)
    assert int(step) == 3


def test_max_seconds_stops_between_steps_but_never_after_the_last() -> None:
    step, seed = tf.Variable(0), named_seed(0, "a")
    with pytest.raises(Interrupted) as info:
        train(lambda *_: 0, lambda t: t, step=step, num_steps=3, seed=seed, max_seconds=0.0)
    assert (info.value.step, info.value.reason, info.value.exit_code) == (1, "max_seconds", 0)
    step.assign(2)
    train(lambda *_: 0, lambda t: t, step=step, num_steps=3, seed=seed, max_seconds=0.0)
    assert int(step) == 3


def test_no_progress_bar_unless_asked_and_on_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    for progress in (False, True):
        train(lambda *_: 0, lambda t: t, step=tf.Variable(0), num_steps=3, seed=named_seed(0, "a"), progress=progress)
    assert "step" not in capfd.readouterr().err


def test_bad_arguments() -> None:
    for seed in (0, [0, 1], tf.constant([0, 1], tf.int64), tf.constant([0])):
        with pytest.raises(ValueError, match=r"int32 tensor of shape \[2\].*named_seed"):
            train(lambda *_: 0, lambda t: t, step=tf.Variable(0), num_steps=3, seed=seed)
    for num_steps in (-1, 2**31):
        with pytest.raises(ValueError, match="num_steps must be between 0"):
            train(lambda *_: 0, lambda t: t, step=tf.Variable(0), num_steps=num_steps, seed=named_seed(0, "a"))


def test_ctrl_c_of_a_whole_process(tmp_path: Path) -> None:
    """A script's way out: SIGINT from outside, a checkpoint of the finished step, exit code 130."""
    code = f"""
import sys, time
import tensorflow as tf
from experiment import checkpoints, loop, seeds
step, total = tf.Variable(0), tf.Variable(0)
def train_step(batch, seed):
    print(batch, flush=True)
    time.sleep(0.05)
    total.assign_add(batch)
try:
    loop.train(train_step, lambda t: t, step=step, num_steps=10_000, seed=seeds.named_seed(0, "train"))
except loop.Interrupted as stop:
    checkpoints.save({str(tmp_path)!r}, step, step=step, total=total)
    sys.exit(stop.exit_code)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line == "2\n":
            process.send_signal(signal.SIGINT)
            break
    process.communicate(timeout=120)
    assert process.returncode == 130
    step, total = tf.Variable(0), tf.Variable(0)
    assert checkpoints.restore(tmp_path, step=step, total=total) == int(step) >= 3
    assert int(total) == int(step) * (int(step) - 1) // 2  # the step that was running counts, once


@pytest.mark.parametrize(
    ("most", "every", "size"),
    [(10, (100, 250), 10), (64, (100, 250), 50), (7, (12, 0), 6), (20, (7,), 7), (5, (7,), 1), (9, (0, 0), 9)],
)
def test_blocks_end_where_something_is_due(most: int, every: tuple[int, ...], size: int) -> None:
    assert block_size(most, *every) == size
