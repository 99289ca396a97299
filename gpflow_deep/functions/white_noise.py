"""White noise as a function: a standard-normal number that depends on nothing but the input's bits and a seed.

The bits of a row are mixed by the finaliser of SplitMix64 (Steele et al. 2014), so that rows which differ in one bit
have independent noise for all that tests of random numbers can see, and equal rows equal noise, in whatever batch.
"""

from __future__ import annotations

import tensorflow as tf

__all__ = ["normal_at", "row_keys", "sub_keys"]

_GOLDEN = 0x9E3779B97F4A7C15


def row_keys(X: tf.Tensor) -> tf.Tensor:
    """Integers that tell rows apart: [..., D] -> uint64 [...]."""
    X = X + tf.zeros([], X.dtype)  # -0.0 is 0.0
    bits = tf.bitcast(X, tf.uint64) if X.dtype == tf.float64 else tf.cast(tf.bitcast(X, tf.uint32), tf.uint64)
    D = tf.cast(tf.range(tf.shape(X)[-1]), tf.uint64)
    return _mix(tf.reduce_sum(_mix(bits + _constant(_GOLDEN) * (D + 1)), axis=-1))


def sub_keys(keys: tf.Tensor, count: int) -> tf.Tensor:
    """`count` different integers for each: uint64 [...] -> [..., count]."""
    return _mix(keys[..., None] + _constant(_GOLDEN) * tf.cast(tf.range(count), tf.uint64))


def normal_at(keys: tf.Tensor, num_functions: int, num_outputs: int, seed: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Standard-normal numbers [S, N, L] for rows of the given keys, [N] or [S, N].

    :param seed: int32 [2].
    """
    first, second = (tf.cast(tf.bitcast(part, tf.uint32), tf.uint64) for part in tf.unstack(seed))
    # A number for each function and output, which is mixed with the key of each row.
    start = _mix(first + _constant(2**32) * second)
    counters = tf.cast(tf.range(num_functions * num_outputs), tf.uint64)
    streams = tf.reshape(_mix(start + _constant(_GOLDEN) * (counters + 1)), [num_functions, 1, num_outputs])
    bits = tf.bitwise.right_shift(_mix(keys[..., None] + streams), _constant(12))
    # Its upper 52 bits, as a uniform number.
    return tf.cast(tf.math.ndtri((tf.cast(bits, tf.float64) + 0.5) * 2.0**-52), dtype)


def _constant(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint64)


def _mix(x: tf.Tensor) -> tf.Tensor:
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, _constant(shift))) * _constant(factor)
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, _constant(31)))
