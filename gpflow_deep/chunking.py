"""Long computations in slices of bounded memory, in or outside a `tf.function`, with one trace for any length."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

__all__ = ["map_slices", "sum_slices"]


@tf.autograph.experimental.do_not_convert
def map_slices(
    fn: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Sequence[tf.Tensor]],
    length: tf.Tensor | int,
    size: tf.Tensor | int,
    dtypes: Sequence[tf.DType],
) -> tuple[tf.Tensor, ...]:
    """Apply `fn(index, start, stop)` to consecutive slices of `range(length)` and concatenate each of its results.

    :param fn: returns tensors whose first axis is as long as the slice.
    :param length: number of items; with 0 items `fn` is called once on an empty slice.
    :param size: largest length of a slice, at least 1.
    :param dtypes: types of the results of `fn`.
    """
    static_length, static_size = tf.get_static_value(length), tf.get_static_value(size)
    if static_length is not None and static_size is not None and static_length <= static_size:
        return tuple(fn(tf.constant(0), tf.constant(0), tf.convert_to_tensor(length)))
    length, size = tf.cast(length, tf.int32), tf.cast(size, tf.int32)
    count = tf.maximum((length + size - 1) // size, 1)
    arrays = tuple(tf.TensorArray(dtype, size=count, infer_shape=False, clear_after_read=True) for dtype in dtypes)
    shapes: list[tf.TensorShape] = [tf.TensorShape(None)] * len(dtypes)

    def body(index: tf.Tensor, *arrays: tf.TensorArray) -> tuple[object, ...]:
        start = index * size
        parts = fn(index, start, tf.minimum(start + size, length))
        for i, part in enumerate(parts):
            shapes[i] = part.shape
        return (index + 1, *(array.write(index, part) for array, part in zip(arrays, parts, strict=True)))

    _, *arrays = tf.while_loop(lambda index, *_: index < count, body, (tf.constant(0), *arrays), parallel_iterations=1)
    results = []
    for array, shape in zip(arrays, shapes, strict=True):
        result = array.concat()
        result.set_shape([None, *shape[1:]])
        results.append(result)
    return tuple(results)


@tf.autograph.experimental.do_not_convert
def sum_slices(
    fn: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
    length: int,
    size: tf.Tensor | int,
    initial_sum: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """As `map_slices` for `fn` with two results, of which the first is concatenated and the second is summed."""
    size = tf.cast(size, tf.int32)
    count = tf.maximum((length + size - 1) // size, 1)
    array = tf.TensorArray(initial_sum.dtype, size=count, infer_shape=False)

    def body(index: tf.Tensor, array: tf.TensorArray, total: tf.Tensor) -> tuple[object, ...]:
        start = index * size
        part, term = fn(index, start, tf.minimum(start + size, length))
        return index + 1, array.write(index, part), total + term

    _, array, total = tf.while_loop(
        lambda index, *_: index < count, body, (tf.constant(0), array, initial_sum), parallel_iterations=1
    )
    return array.concat(), total
