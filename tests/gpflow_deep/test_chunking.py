"""Slices: same results as in one piece, for every length, eager and compiled."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep.layers.chunking import flat_rows, map_slices, over_batch


def squares(x: tf.Tensor) -> Callable[[Any, Any], tuple[tf.Tensor, tf.Tensor]]:
    def of_slice(start: tf.Tensor, stop: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        part = x[start:stop]
        return part**2, tf.fill([tf.shape(part)[0], 1], tf.cast(start, tf.int64))

    return of_slice


@pytest.mark.parametrize("size", [1, 3, 7, 100])
@pytest.mark.parametrize("length", [0, 1, 6, 7])
def test_slices_are_consecutive(length: int, size: int) -> None:
    x = tf.reshape(tf.range(2.0 * length), [length, 2])
    values, start = map_slices(squares(x), length, size, [tf.float32, tf.int64])
    np.testing.assert_array_equal(values, x**2)
    np.testing.assert_array_equal(start[:, 0], np.arange(length) // size * size)
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
            values, start = compiled(x, tf.constant(size))
            np.testing.assert_array_equal(values, x**2)
            np.testing.assert_array_equal(start[:, 0], np.arange(length) // size * size)


@pytest.mark.parametrize("size", [1, 3, 7, 100])
@pytest.mark.parametrize("compiled", [False, True])
def test_sums_and_the_second_axis(size: int, compiled: bool) -> None:
    x = tf.reshape(tf.range(14.0), [7, 2])

    def run() -> tuple[tf.Tensor, ...]:
        def of_slice(start: tf.Tensor, stop: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return 2 * tf.transpose(x)[:, start:stop], tf.reduce_sum(x[start:stop], axis=0)

        return map_slices(of_slice, 7, size, [tf.float32] * 2, num_sums=1, axis=1)

    doubled, total = (tf.function(run, autograph=False) if compiled else run)()
    assert doubled.shape == (2, 7)
    np.testing.assert_array_equal(doubled, 2 * tf.transpose(x))
    np.testing.assert_array_equal(total, tf.reduce_sum(x, axis=0))


def test_gradient_through_slices() -> None:
    x = tf.Variable(tf.range(7.0))
    with tf.GradientTape() as tape:
        (value,) = map_slices(lambda start, stop: (x[start:stop] ** 3,), 7, 3, [tf.float32])
        loss = tf.reduce_sum(value)
    np.testing.assert_allclose(tape.gradient(loss, x), 3 * np.arange(7.0) ** 2, rtol=1e-6)


@pytest.mark.parametrize("shape", [None, [None, None, None, None], [None, None, None, 2], [5, 3, 4, 2]])
def test_batches_of_rows_with_unknown_shapes(shape: list[int | None] | None) -> None:
    X = np.arange(120.0).reshape(5, 3, 4, 2)

    @tf.function(input_signature=[tf.TensorSpec(shape, tf.float64)], autograph=False)
    def run(X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        rows, restore = flat_rows(X)
        return restore(2 * rows), over_batch(lambda part: [tf.reduce_sum(part, axis=0)], X, 1)[0]

    doubled, sums = run(X)
    np.testing.assert_array_equal(doubled, 2 * X)
    np.testing.assert_array_equal(sums, X.sum(axis=2))
