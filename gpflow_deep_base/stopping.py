"""The best evaluation so far, and when to stop looking for a better one: the rule of all training loops.

    best = Best()
    for step in ...:
        best = best.after(step, loss)
        if best.step == step: parameters = ...
        if best.is_done(patience=10): break

It is a value, and each next one a pure function of the losses, so that a run that was stopped and resumed decides the
same.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NamedTuple

__all__ = ["Best", "Interrupted", "signals"]

_ENDS = ("SIGINT", "SIGTERM")
_WARNINGS = ("SIGHUP", "SIGUSR1")


class Best(NamedTuple):
    """The best evaluation so far.

    :ivar step: updates made before it, -1 before the first.
    :ivar value: its loss.
    :ivar num_worse: evaluations in a row since then that were no better.
    :ivar std: standard deviation of the value, where a loop knows it.
    :ivar is_trusted: whether the value may be trusted, where a loop doubts it.
    """

    step: int = -1
    value: float = math.inf
    num_worse: int = 0
    std: float = 0.0
    is_trusted: bool = True

    def after(self, step: int, value: float) -> Best:
        """The best after one more evaluation; NaN is worse than all others, and of equal ones the first is the best."""
        # The first number is the best so far, even if it is infinite; NaN never is.
        is_first = self.step < 0 and not math.isnan(value)
        return self.judged(Best(step, value), is_better=is_first or value < self.value)

    def judged(self, new: Best, *, is_better: bool | None) -> Best:
        """The best after one more evaluation, by whether that is better; None: open, and counting begins anew."""
        return new if is_better else self._replace(num_worse=self.num_worse + 1 if is_better is False else 0)

    def is_done(self, patience: int | None) -> bool:
        """Whether so many evaluations in a row were no better; None: never."""
        return patience is not None and self.num_worse >= patience


class Interrupted(Exception):
    """Training stopped early, between two steps: save a checkpoint and leave.

    `step` is the number of finished steps, `reason` is "SIGINT" (Ctrl-C), "SIGTERM", "SIGHUP", "SIGUSR1" or
    "max_seconds", and `exit_code` is what a shell expects: 128 and the signal's number, or 0 when only the time was up.
    """

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(f"training was stopped by {reason} after step {step}; continue it with --resume.")
        self.step = step
        self.reason = reason
        self.exit_code = 0 if reason == "max_seconds" else 128 + signal.Signals[reason]


@contextlib.contextmanager
def signals(*, acts_again: bool) -> Iterator[list[str]]:
    """Collect the names of signals that ask for an end in place of acting on them; one that is ignored stays so.

    SIGHUP (the terminal is closed) and SIGUSR1 (the time of a batch job is nearly up) are often sent twice, and count
    once. SIGINT is ignored in the background of a shell without job control. Outside the main thread nothing is
    collected: Python delivers signals to that one.

    :param acts_again: whether a second SIGINT or SIGTERM acts at once; or else it is collected, too.
    """
    received: list[str] = []
    # Those that this system has, and that are not ignored.
    is_main = threading.current_thread() is threading.main_thread()
    names = [name for name in (*_ENDS, *_WARNINGS) if is_main and hasattr(signal, name)]
    handlers = {name: signal.getsignal(getattr(signal, name)) for name in names}
    handlers = {name: handler for name, handler in handlers.items() if handler is not signal.SIG_IGN}

    def restore(chosen: tuple[str, ...]) -> None:
        for name in handlers.keys() & set(chosen):
            handler = handlers[name]
            signal.signal(getattr(signal, name), signal.SIG_DFL if handler is None else handler)

    def record(number: int, frame: FrameType | None) -> None:
        # A warning counts once, however often it is sent.
        name = signal.Signals(number).name
        if name in _ENDS or name not in received:
            received.append(name)
        if name in _ENDS and acts_again:
            restore(_ENDS)

    # Handlers are put back in the end.
    for name in handlers:
        signal.signal(getattr(signal, name), record)
    try:
        yield received
    finally:
        restore((*_ENDS, *_WARNINGS))
