"""The training loop. Batches and noise are pure functions of (seed, step), so a resumed run repeats its numbers."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import tensorflow as tf
from tqdm import tqdm

__all__ = ["Interrupted", "block_size", "train"]


class Interrupted(Exception):
    """Training stopped early, between two steps: save a checkpoint and leave.

    `step` is the number of finished steps, `reason` is "SIGINT" (Ctrl-C), "SIGTERM" or "max_seconds", and
    `exit_code` is what a shell expects: 130, 143, or 0 when only the time was up.
    """

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(f"training was stopped by {reason} after step {step}; continue it with --resume.")
        self.step = step
        self.reason = reason
        self.exit_code = 0 if reason == "max_seconds" else 128 + signal.Signals[reason]


def block_size(most: int, *every: int) -> int:
    """Steps in one call: the largest number up to `most` that ends at each step where something is due.

    :param every: the intervals; 0 for what is never due.
    """
    divisor = math.gcd(*every) or most
    return max(size for size in range(1, min(most, divisor) + 1) if divisor % size == 0)


def train(
    train_step: Callable[[Any, tf.Tensor], Any],
    batch_at: Callable[[int], Any],
    *,
    step: tf.Variable,
    num_steps: int,
    seed: tf.Tensor,
    after_step: Callable[[int, Any], None] = lambda step, scalars: None,
    steps_per_call: int = 1,
    progress: bool = False,
    max_seconds: float | None = None,
) -> None:
    """Run `train_step(batch, seed)` until the variable `step` equals `num_steps`; call `after_step` with its scalars.

    Step t (counted from 0) runs `train_step(batch_at(t), fold_in(seed, t))`, then `step` becomes t + 1, then
    `after_step(t + 1, scalars)` is called: the place to log, to evaluate and to save checkpoints. It does nothing if
    `step` is at `num_steps` already. An exception in any of the three passes through.

    :param train_step: usually a `tf.function`; give it tensors of one shape and it is traced once.
    :param batch_at: the minibatch of step t.
    :param step: scalar integer variable, the number of finished steps. Save it in every checkpoint.
    :param num_steps: value of `step` at which to stop, so a resumed run counts the steps before it.
    :param seed: int32 tensor of shape [2], for example `named_seed(FLAGS.seed, "train")`.
    :param steps_per_call: how many steps one call of `train_step` makes, when it loops in its graph. Calls end at
        multiples of it and at `num_steps`: `train_step` has to find out how many steps are left until then from t.
    :param progress: show a bar on standard error, if that is a terminal.
    :param max_seconds: stop after the step that exceeds this many seconds of wall time.
    :raises Interrupted: on Ctrl-C, SIGTERM or when `max_seconds` have passed, after finishing the running step and its
        `after_step`. A second signal acts at once. Signals are caught only in the main thread.
    :raises ValueError: if `seed`, `num_steps` or `steps_per_call` are not as above.
    """
    if not isinstance(seed, tf.Tensor) or seed.dtype != tf.int32 or seed.shape != [2]:
        raise ValueError(f"seed must be an int32 tensor of shape [2], got {seed!r}; use seeds.named_seed(seed, name).")
    if not 0 <= num_steps < 2**31:  # a step number has to fit in the int32 that fold_in takes
        raise ValueError(f"num_steps must be between 0 and 2**31 - 1, got {num_steps}.")
    if steps_per_call < 1:
        raise ValueError(f"steps_per_call must be at least 1, got {steps_per_call}.")
    start_time = time.monotonic()
    with (
        _deferred_signals() as received,
        tqdm(
            initial=int(step), total=num_steps, unit="step", disable=None if progress else True, dynamic_ncols=True
        ) as bar,
    ):
        while (t := int(step)) < num_steps:
            scalars = train_step(
                batch_at(t), tf.random.fold_in(seed, t)
            )  # int32 seed, int32 t: XLA needs an int32 result
            done = min(t - t % steps_per_call + steps_per_call, num_steps)
            step.assign(done)
            after_step(done, scalars)
            bar.update(done - t)
            if received:
                raise Interrupted(done, received[0])
            if max_seconds is not None and done < num_steps and time.monotonic() - start_time > max_seconds:
                raise Interrupted(done, "max_seconds")


@contextmanager
def _deferred_signals() -> Iterator[list[str]]:
    """Collect the names of SIGINT and SIGTERM instead of acting on the first of them; restores the old handlers."""
    received: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # Python delivers signals to the main thread only
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def record(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number).name)
        restore()

    for number in previous:
        signal.signal(number, record)
    try:
        yield received
    finally:
        restore()
