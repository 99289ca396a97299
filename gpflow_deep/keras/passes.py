"""What the GP layers of a Keras model do in a pass that is neither training nor a plain call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import keras
import tensorflow as tf

__all__ = ["Pass", "current", "run_as"]


class Pass(NamedTuple):
    """One pass through a model. Layers that are not named return their means.

    :ivar adapts: every GP layer adapts to what comes in.
    :ivar noise: of each layer that draws, by its id, [S, 1, L]; rows come S times, those of the first draw first.
    :ivar head: the layer that returns moments.
    """

    adapts: bool = False
    noise: Mapping[int, tf.Tensor] = {}
    head: keras.Layer | None = None


_current: ContextVar[Pass | None] = ContextVar("pass", default=None)


def current() -> Pass | None:
    """The pass that is going on; None in training and in plain calls."""
    return _current.get()


@contextmanager
def run_as(new: Pass) -> Iterator[None]:
    """Calls within the `with` statement belong to this pass."""
    token = _current.set(new)
    try:
        yield
    finally:
        _current.reset(token)
