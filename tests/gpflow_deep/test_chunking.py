"""Slices: same results as in one piece, for every length, eager and compiled."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep.chunking import map_slices, sum_slices


def squares(x: tf.Tensor) -> Callable[[Any, Any, Any], tuple[tf.Tensor, tf.Tensor]]:
    def of_slice(index: tf.Tensor, start: tf.Tensor, stop: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        part = x[start:stop]
        return part**2, tf.fill([tf.shape(part)[0], 1], tf.cast(index, tf.int64))

    return of_slice


@pytest.mark.parametrize("size", [1, 3, 7, 100])
@pytest.mark.parametrize("length", [0, 1, 6, 7])
def test_slices_are_consecutive(length: int, size: int) -> None:
    x = tf.reshape(tf.range(2.0 * length), [length, 2])
    values, index = map_slices(squares(x), length, size, [tf.float32, tf.int64])
    np.testing.assert_array_equal(values, x**2)
    np.testing.assert_array_equal(index[:, 0], np.arange(length) // size)
    assert values.shape == (length, 2)


def test_one_trace_for_every_length_and_size(traced_once: Callable[[Any], Any]) -> None:
    signature = [tf.TensorSpec([None, 2]), tf.TensorSpec([], tf.int32)]

    def run(x: tf.Tensor, size: tf.Tensor) -> tuple[tf.Tensor, ...]:
        results = map_slices(squares(x), tf.shape(x)[0], size, [tf.float32, tf.int64])
        assert results[0].shape.as_list() == [None, 2]
        return results

    compiled = traced_once(tf.function(run, input_signature=signature, autograph=False))
    for length in (0, 1, 5):
        for size in (1, 2, 9):
            x = tf.reshape(tf.range(2.0 * length), [length, 2])
            values, index = compiled(x, tf.constant(size))
            np.testing.assert_array_equal(values, x**2)
            np.testing.assert_array_equal(index[:, 0], np.arange(length) // size)


@pytest.mark.parametrize("size", [1, 3, 7, 100])
@pytest.mark.parametrize("compiled", [False, True])
def test_sums(size: int, compiled: bool) -> None:
    x = tf.reshape(tf.range(14.0), [7, 2])

    def run() -> tuple[tf.Tensor, tf.Tensor]:
        return sum_slices(
            lambda index, start, stop: (2 * x[start:stop], tf.reduce_sum(x[start:stop], axis=0)), 7, size, tf.zeros(2)
        )

    doubled, total = (tf.function(run, autograph=False) if compiled else run)()
    np.testing.assert_array_equal(doubled, 2 * x)
    np.testing.assert_array_equal(total, tf.reduce_sum(x, axis=0))


def test_gradient_through_slices() -> None:
    x = tf.Variable(tf.range(7.0))
    with tf.GradientTape() as tape:
        (value,) = map_slices(lambda i, start, stop: (x[start:stop] ** 3,), 7, 3, [tf.float32])
        loss = tf.reduce_sum(value)
    np.testing.assert_allclose(tape.gradient(loss, x), 3 * np.arange(7.0) ** 2, rtol=1e-6)
