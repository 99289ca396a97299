"""The training loop. Batches and noise are pure functions of (seed, step), so a resumed run repeats its numbers.

fitted = fit(advance, num_steps=1000, every=Every(log=100, evaluate=200), rule=lowest("valid/nll_nats"),
             scalars=report.training_scalars, evaluate=lambda step: report.evaluate(...), patience=5)
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from gpflow_deep_base.stopping import Best, Interrupted, signals
from gpflow_deep_runs.run.progress import Progress
from gpflow_deep_runs.run.selection import Rule

__all__ = ["Every", "Fitted", "Interrupted", "block_size", "fit"]

Observed = TypeVar("Observed")
"""What a call of `advance` returns, such as the loss of its last step."""


def block_size(most: int, *every: int) -> int:
    """Steps in one call: the largest number up to `most` that ends at each step where something is due.

    :param every: the intervals; 0 for what is never due.
    """
    divisor = math.gcd(*every) or most
    return max(size for size in range(1, min(most, divisor) + 1) if divisor % size == 0)


class Every(NamedTuple):
    """Steps between lines of training scalars, between evaluations and between checkpoints, 0 for only after the last
    step; and seconds between checkpoints."""

    log: int = 100
    evaluate: int = 1_000
    save: int = 1_000
    save_seconds: float | None = None


class Fitted(NamedTuple):
    """What :func:`fit` did: the last step, the best evaluation, whether it stopped early, seconds of this process."""

    step: int
    best: Best
    is_stopped: bool
    seconds: float

    @property
    def summary(self) -> str:
        """Which step is the best of how many."""
        stopped = ", stopped early" if self.is_stopped else ""
        return f"the best on validation, step {self.best.step} of {self.step}{stopped}"


def fit(
    advance: Callable[[int, int], Observed],
    *,
    num_steps: int,
    every: Every = Every(),
    scalars: Callable[[Observed], Mapping[str, float]] = lambda observed: {},
    evaluate: Callable[[int], Mapping[str, float]] = lambda step: {},
    rule: Rule = lambda step, best, scalars: best,
    also: Sequence[tuple[int, Callable[[int], Mapping[str, float]]]] = (),
    first: int = 0,
    best: Best = Best(),
    patience: int | None = None,
    is_done: Callable[[int], bool] = lambda step: False,
    keep: Callable[[], None] = lambda: None,
    log: Callable[[int, Mapping[str, float]], None] = lambda step, line: None,
    save: Callable[[int, Best], None] = lambda step, best: None,
    agree: Callable[[Mapping[str, float]], Mapping[str, float]] = lambda found: found,
    steps_per_call: int = 1,
    progress: bool = False,
    max_seconds: float | None = None,
) -> Fitted:
    """Train from step `first` to `num_steps`; log, evaluate and save, each at its own steps and at the last one.

    Calls of `advance` end at multiples of at most `steps_per_call`, where something is due, and at `num_steps`.

    :param advance: `(first, count)` makes these steps, whose batches and noise are functions of their numbers.
    :param scalars: what to log of what `advance` returned.
    :param evaluate: what to log of an evaluation after a step.
    :param also: pairs (every, function of the step): more scalars to log.
    :param rule: which evaluation is the best so far, by the scalars of its step.
    :param best: with `first` continues an earlier call.
    :param patience: stop after so many evaluations in a row that were no better; None: never.
    :param is_done: whether so many steps are all that have to be made; the last of them is treated like `num_steps`.
    :param keep: called when the evaluation is the best so far: the place to store the model.
    :param log: gets the scalars of a step.
    :param save: gets the step and the best: the place for a checkpoint.
    :param agree: what all workers take for the evaluation, so that they stop together.
    :param progress: show a bar on standard error if that is a terminal, else a line a minute.
    :param max_seconds: stop after the call that exceeds this many seconds of wall time.
    :raises Interrupted: on Ctrl-C, SIGTERM, SIGHUP, SIGUSR1 or when `max_seconds` have passed, after the running call
        and `save`. A second Ctrl-C or SIGTERM acts at once. Signals are caught only in the main thread, and only those
        that are not ignored.
    :raises ValueError: if `num_steps`, `steps_per_call` or `patience` is out of range.
    """
    if not 0 <= num_steps < 2**31:  # a step number has to fit in the int32 that fold_in takes
        raise ValueError(f"num_steps must be between 0 and 2**31 - 1, got {num_steps}.")
    if steps_per_call < 1:
        raise ValueError(f"steps_per_call must be at least 1, got {steps_per_call}.")
    if patience is not None and patience < 1:
        raise ValueError(f"patience must be at least 1 or None, got {patience}; None trains all steps.")
    # A call ends wherever something is due, so that nothing is due within one.
    block = block_size(steps_per_call, every.log, every.evaluate, every.save, *(interval for interval, _ in also))
    start = time.monotonic()
    step = first
    saved_at = start

    with signals(acts_again=True) as received, Progress(first, num_steps, is_shown=progress) as shown:
        while step < num_steps and not best.is_done(patience) and not is_done(step):
            # Make the steps up to the next multiple of the block.
            end = min(step - step % block + block, num_steps)
            observed = advance(step, end - step)
            step = end
            is_last = step == num_steps or is_done(step)
            # Log and evaluate what is due at this step.
            line: dict[str, float] = {}
            if is_last or _is_due(step, every.log):
                line |= scalars(observed)
            if is_last or _is_due(step, every.evaluate):
                line |= evaluate(step)
                best = rule(step, best, agree(line))
                if best.step == step:
                    keep()
                is_last = is_last or best.is_done(patience)
            for interval, more_scalars in also:
                if _is_due(step, interval):
                    line |= more_scalars(step)
            if line:
                log(step, line)
            shown.advance(step, line)
            # Why to stop now, if at all: a signal, or the time is up.
            ended_at = time.monotonic()
            is_late = max_seconds is not None and not is_last and ended_at - start > max_seconds
            stopped_by = received[0] if received else "max_seconds" if is_late else None  # later ones: the next step
            # A checkpoint is due by steps, by time, or because this was the last call.
            is_old = every.save_seconds is not None and ended_at - saved_at > every.save_seconds
            if is_last or is_old or _is_due(step, every.save) or stopped_by:
                save(step, best)
                saved_at = time.monotonic()
            if stopped_by:
                raise Interrupted(step, stopped_by)
        if received:  # while the last checkpoint was written
            raise Interrupted(step, received[0])
    return Fitted(step, best, best.is_done(patience), time.monotonic() - start)


def _is_due(step: int, interval: int) -> bool:
    return interval > 0 and step % interval == 0
