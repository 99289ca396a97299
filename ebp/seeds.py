"""Random streams of a comparison: pure functions of one whole number and a name."""

import hashlib
import operator

import numpy as np
import tensorflow as tf

__all__ = ["named_seed", "numpy_rng"]


def named_seed(seed: int, name: str) -> tf.Tensor:
    """Seed of the stream `name`, for `tf.random.stateless_*` and `tf.random.fold_in`: int32 [2]."""
    return tf.constant(np.frombuffer(_digest("tensorflow", seed, name)[:8], "<i4"), tf.int32)


def numpy_rng(seed: int, name: str) -> np.random.Generator:
    """NumPy generator of the stream `name`."""
    return np.random.Generator(np.random.PCG64(int.from_bytes(_digest("numpy", seed, name)[:16], "little")))


def _digest(kind: str, seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{kind}/{operator.index(seed)}/{name}".encode()).digest()
