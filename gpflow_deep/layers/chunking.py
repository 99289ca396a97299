"""Long computations in slices of bounded memory, in or outside a `tf.function`, with one trace for any length; and
which rows a step has (`minibatch`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

__all__ = ["flat_rows", "length_of", "map_slices", "minibatch", "over_batch", "swap_two"]

FEW_SLICES = 4
"""Tracing costs about as much as so many of them."""


@tf.autograph.experimental.do_not_convert
def map_slices(
    fn: Callable[[tf.Tensor, tf.Tensor], Sequence[tf.Tensor]],
    length: tf.Tensor | int,
    size: tf.Tensor | int,
    dtypes: Sequence[tf.DType],
    *,
    num_sums: int = 0,
    axis: int = 0,
) -> tuple[tf.Tensor, ...]:
    """Apply `fn(start, stop)` to consecutive slices of `range(length)` and join its results.

    :param fn: returns tensors with an axis as long as the slice, and then `num_sums` tensors of any one shape.
    :param length: number of items; with 0 items `fn` is called once on an empty slice.
    :param size: largest length of a slice, at least 1.
    :param dtypes: types of the results of `fn`.
    :param num_sums: number of last results of `fn` that are added up; all others are concatenated.
    :param axis: along which they are concatenated, 0 or 1.
    """
    static_length = tf.get_static_value(length)
    static_size = tf.get_static_value(size)
    # All at once, if that is known while tracing.
    if static_length is not None and static_size is not None and static_length <= static_size:
        return tuple(fn(tf.constant(0), tf.convert_to_tensor(length)))
    # Outside a graph `fn` would run as Python for each slice: of many it is traced once.
    if tf.executing_eagerly() and int(length) > FEW_SLICES * int(size):
        traced = tf.function(
            lambda: map_slices(fn, length, size, dtypes, num_sums=num_sums, axis=axis), autograph=False
        )
        return traced.get_concrete_function()()
    # In a loop of the graph, which keeps arrays of the slices' results.
    length = tf.cast(length, tf.int32)
    size = tf.cast(size, tf.int32)
    count = tf.maximum((length + size - 1) // size, 1)
    num_arrays = len(dtypes) - num_sums
    arrays = [tf.TensorArray(d, size=count, infer_shape=False, clear_after_read=True) for d in dtypes[:num_arrays]]
    sums = [tf.zeros([], dtype) for dtype in dtypes[num_arrays:]]
    shapes: list[tf.TensorShape] = [tf.TensorShape(None)] * len(dtypes)

    def body(
        index: tf.Tensor, arrays: list[tf.TensorArray], sums: list[tf.Tensor]
    ) -> tuple[tf.Tensor, list[tf.TensorArray], list[tf.Tensor]]:
        start = index * size
        parts = fn(start, tf.minimum(start + size, length))
        shapes[:] = [part.shape for part in parts]
        first = [swap_two(part) if axis else part for part in parts[:num_arrays]]
        written = [array.write(index, part) for array, part in zip(arrays, first, strict=True)]
        return index + 1, written, [old + new for old, new in zip(sums, parts[num_arrays:], strict=True)]

    _, arrays, sums = tf.while_loop(
        lambda index, *_: index < count,
        body,
        (tf.constant(0), arrays, sums),
        shape_invariants=(tf.TensorShape([]), [tf.TensorShape(None)] * num_arrays, [tf.TensorShape(None)] * num_sums),
        parallel_iterations=1,
    )
    # Shapes, as far as those of the slices are known.
    results = []
    for array, shape in zip(arrays, shapes[:num_arrays], strict=True):
        result = array.concat()
        result.set_shape([None, *shape[1:]] if axis == 0 else [None, shape[0], *shape[2:]])
        results.append(swap_two(result) if axis else result)
    for total, shape in zip(sums, shapes[num_arrays:], strict=True):
        total.set_shape(shape)
    return (*results, *sums)


def length_of(X: tf.Tensor) -> tf.Tensor | int:
    """Number of rows: an integer if it is known while tracing."""
    return tf.shape(X)[0] if X.shape[0] is None else X.shape[0]


def swap_two(x: tf.Tensor) -> tf.Tensor:
    """Exchange the first two axes."""
    return tf.transpose(x, [1, 0, *range(2, x.shape.rank)])


def flat_rows(X: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """[batch..., N, D] -> [rows, D], and the way back for results [rows, ...]; X may have an unknown rank."""
    if X.shape.rank == 2:
        return X, lambda result: result
    lead = tf.shape(X)[:-1]
    static_lead = X.shape[:-1]
    num_columns = tf.shape(X)[-1] if X.shape.rank is None or X.shape[-1] is None else X.shape[-1]

    def restore(result: tf.Tensor) -> tf.Tensor:
        shaped = tf.reshape(result, tf.concat([lead, tf.shape(result)[1:]], axis=0))
        shaped.set_shape(static_lead.concatenate(result.shape[1:]))
        return shaped

    return tf.reshape(X, [-1, num_columns]), restore


def over_batch(fn: Callable[[tf.Tensor], Sequence[tf.Tensor]], X: tf.Tensor, num_results: int) -> tuple[tf.Tensor, ...]:
    """`fn` of [N, D] for every element of the leading axes of X [batch..., N, D]; X may have an unknown rank."""
    if X.shape.rank == 2:
        return tuple(fn(X))
    shape = tf.shape(X)
    flat = tf.reshape(X, tf.concat([[-1], shape[-2:]], axis=0))
    results = tf.map_fn(lambda part: tuple(fn(part)), flat, fn_output_signature=(X.dtype,) * num_results)
    return tuple(tf.reshape(result, tf.concat([shape[:-2], tf.shape(result)[1:]], axis=0)) for result in results)


def minibatch(seed: int, step: int, num_rows: int, batch_size: int) -> NDArray[np.int64]:
    """Row numbers of the minibatch of a step, [batch_size]; all rows in their order if there are no more.

    Batches are cut one after the other from random permutations of the rows, so that each row comes once in N draws.
    """
    if batch_size >= num_rows:
        return np.arange(num_rows)
    # Where the batch begins in its permutation of the rows; what is missing comes from the next one.
    epoch, start = divmod(step * batch_size, num_rows)
    head = _permutation(seed, epoch, num_rows)[start : start + batch_size]
    tail = _permutation(seed, epoch + 1, num_rows)[: batch_size - len(head)] if len(head) < batch_size else head[:0]
    return np.concatenate([head, tail])


@functools.lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, num_rows: int) -> NDArray[np.int64]:
    order = np.random.default_rng([seed, 1, epoch]).permutation(num_rows)
    order.flags.writeable = False
    return order
