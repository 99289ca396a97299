"""Running means of parameters, and putting them in the place of the parameters for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import tensorflow as tf

__all__ = ["in_place", "move_means"]

_EVERY_STEP, _EVERY = 100, 10  # means move at each of the first steps, later at each tenth


def move_means(means: Sequence[tf.Variable], variables: Sequence[tf.Variable], step: tf.Tensor, average: float) -> None:
    """Move running means: at each of the first 100 steps, then at each tenth one for ten of them.

    :param step: number of the step just made, [].
    :param average: decay; after t steps it is at most t / (t + 10), so
        that early means forget faster.
    """
    step = tf.cast(step, tf.int32)
    t = tf.cast(step, variables[0].dtype)
    decay, is_early = tf.minimum(tf.cast(average, t.dtype), t / (t + 10.0)), step <= _EVERY_STEP
    decay = tf.where(is_early, decay, decay**_EVERY)

    def move() -> tf.Tensor:
        for mean, variable in zip(means, variables, strict=True):
            mean.assign(decay * mean + (1.0 - decay) * variable)
        return tf.constant(0)

    tf.cond(is_early | (step % _EVERY == 0), move, lambda: tf.constant(0))


@contextlib.contextmanager
def in_place(variables: Sequence[tf.Variable], values: Sequence[tf.Variable]) -> Iterator[None]:
    """Within a `with` statement the variables have other values; afterwards they have their own again."""
    kept = [variable.numpy() for variable in variables]
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
    try:
        yield
    finally:
        for variable, value in zip(variables, kept, strict=True):
            variable.assign(value)
