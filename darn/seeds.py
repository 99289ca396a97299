"""Seeds of random numbers: int32 [2], or an integer."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import tensorflow as tf

__all__ = ["Seed", "as_seed", "fold"]

Seed: TypeAlias = int | tf.Tensor
"""An integer from 0 to 2**62 - 1, or int32 [2] as TensorFlow's stateless functions take it."""


def as_seed(seed: Seed) -> tf.Tensor:
    """int32 [2]; of an integer its high and its low 31 bits.

    :raises ValueError: if it is neither an integer of this range nor of the shape [2].
    """
    if isinstance(seed, int | np.integer) and not isinstance(seed, bool):
        if not 0 <= seed < 2**62:
            raise ValueError(f"seed must be from 0 to 2**62 - 1, got {seed}.")
        return tf.constant([int(seed) >> 31, int(seed) & (2**31 - 1)], tf.int32)
    try:
        found = tf.convert_to_tensor(seed, tf.int32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"seed must be an integer, or int32 of shape [2], got {seed!r}.") from error
    if found.shape != [2]:
        raise ValueError(f"seed must be an integer, or int32 of shape [2], got shape {found.shape}.")
    return found


def fold(seed: tf.Tensor, number: int | tf.Tensor) -> tf.Tensor:
    """Another seed for each number, int32 [2]."""
    return tf.random.experimental.stateless_fold_in(seed, number)
