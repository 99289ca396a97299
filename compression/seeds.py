"""Random streams of a recipe: a pure function of one integer seed and a name."""

import hashlib
import operator

import numpy as np
import tensorflow as tf

__all__ = ["named_seed"]


def named_seed(seed: int, name: str) -> tf.Tensor:
    """Seed of the stream `name`, for `tf.random.stateless_*` and `tf.random.fold_in`; other names, other streams.

    :return: int32 [2].
    """
    digest = hashlib.sha256(f"tensorflow/{operator.index(seed)}/{name}".encode()).digest()
    return tf.constant(np.frombuffer(digest[:8], "<i4"), tf.int32)
