"""Independent random streams from one integer seed and a name, the same in every process and on every machine."""

import hashlib
import operator
from typing import SupportsIndex

import numpy as np
import tensorflow as tf

__all__ = ["named_seed", "numpy_rng"]


def named_seed(seed: int, name: str) -> tf.Tensor:
    """Seed for `tf.random.stateless_*` and `tf.random.fold_in`.

    :param seed: any integer, for example `FLAGS.seed`.
    :param name: what the stream is for, for example "train" or "init/inducing"; other names give other streams.
    :return: int32 tensor of shape [2], a pure function of the two arguments.
    :raises ValueError: if `seed` is not an integer or `name` is empty.
    """
    return tf.constant(np.frombuffer(_digest("tensorflow", seed, name)[:8], dtype="<i4"), dtype=tf.int32)


def numpy_rng(seed: int, name: str) -> np.random.Generator:
    """NumPy generator for the stream `name`; arguments and errors as in :func:`named_seed`."""
    return np.random.Generator(np.random.PCG64(int.from_bytes(_digest("numpy", seed, name)[:16], "little")))


def _digest(kind: str, seed: SupportsIndex, name: str) -> bytes:
    if isinstance(seed, bool | np.bool_) or not hasattr(seed, "__index__"):
        raise ValueError(f"seed must be an integer, got {seed!r}; give for example --seed=0.")
    if not isinstance(name, str) or not name:
        raise ValueError(f"name of a random stream must be a non-empty string, got {name!r}.")
    return hashlib.sha256(f"{kind}/{operator.index(seed)}/{name}".encode()).digest()
