"""Seeds, and random streams that are pure functions of one whole number and a name."""

from __future__ import annotations

import hashlib
import operator
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

__all__ = ["Seed", "as_seed", "named_seed", "numpy_rng"]

#: A whole number, or an int32 tensor [2] as `tf.random.stateless_*` take it.
Seed: TypeAlias = Any


def as_seed(seed: Seed) -> tf.Tensor:
    """A seed as an int32 tensor [2]: (0, seed) for a whole number.

    :raises ValueError: if it is neither a whole number from 0 to 2^31 - 1 nor of shape [2].
    """
    if isinstance(seed, (int, np.integer)):
        if not 0 <= seed < 2**31:
            raise ValueError(f"seed must be from 0 to 2^31 - 1, got {seed}.")
        return tf.constant([0, int(seed)], tf.int32)
    seed = tf.convert_to_tensor(seed)
    if seed.shape != [2] or seed.dtype != tf.int32:
        raise ValueError(f"seed must be a whole number or int32 [2], got {seed.dtype.name} {list(seed.shape)}.")
    return seed


def named_seed(seed: int, name: str) -> tf.Tensor:
    """Seed of the stream `name`, for `tf.random.stateless_*` and `tf.random.fold_in`: int32 [2]."""
    return tf.constant(np.frombuffer(_digest("tensorflow", seed, name)[:8], "<i4"), tf.int32)


def numpy_rng(seed: int, name: str) -> np.random.Generator:
    """NumPy generator of the stream `name`."""
    return np.random.Generator(np.random.PCG64(int.from_bytes(_digest("numpy", seed, name)[:16], "little")))


def _digest(kind: str, seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{kind}/{operator.index(seed)}/{name}".encode()).digest()
