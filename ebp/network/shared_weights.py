"""The maps of `convolution` in TensorFlow, and their adjoints, by which derivatives go back."""

from __future__ import annotations

import tensorflow as tf

from .convolution import Convolved, pooled, unfolded

__all__ = ["folded", "mean_pooled", "mean_unpooled", "unfolded_rows"]


def unfolded_rows(v: tf.Tensor, convolved: Convolved) -> tf.Tensor:
    """Images [B, n_in] as a row for each position, [B P, K]."""
    return unfolded(v, convolved, tf.reshape, tf.concat)


def folded(rows: tf.Tensor, convolved: Convolved) -> tf.Tensor:
    """The adjoint of `unfolded_rows`: each pixel's sum over the positions that it is an input of, [B, n_in]."""
    height, width = convolved.positions
    size = convolved.size
    channels = convolved.channels
    # What belongs to a pixel of the filter, put back to where that pixel lies at each position.
    parts = tf.split(tf.reshape(rows, [-1, height, width, convolved.fan_in]), size**2, axis=3)
    by_row = []
    for i in range(size):  # first along the width, so that fewer large images are made
        row = parts[i * size : (i + 1) * size]
        by_row.append(tf.add_n([tf.pad(row[j], [[0, 0], [0, 0], [j, size - 1 - j], [0, 0]]) for j in range(size)]))
    images = tf.add_n([tf.pad(by_row[i], [[0, 0], [i, size - 1 - i], [0, 0], [0, 0]]) for i in range(size)])
    return tf.reshape(images, [-1, convolved.height * convolved.width * channels])


def mean_pooled(values: tf.Tensor, convolved: Convolved) -> tf.Tensor:
    """Means over blocks of the outputs [B P, filters], as images [B, n_out]."""
    return pooled(values, convolved, tf.reshape, tf.reduce_mean)


def mean_unpooled(images: tf.Tensor, convolved: Convolved) -> tf.Tensor:
    """The adjoint of `mean_pooled`, [B P, filters]."""
    (height, width, filters) = convolved.image
    pool = convolved.pool
    # Each output of a block has 1 / pool^2 of the derivative of its mean.
    blocks = tf.reshape(images / pool**2, [-1, height, 1, width, 1, filters])
    rows = tf.broadcast_to(blocks, [tf.shape(blocks)[0], height, pool, width, pool, filters])
    return tf.reshape(rows, [-1, filters])
