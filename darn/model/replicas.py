"""What one replica of `tf.distribute` needs of the others, so that together they do what one device does with all rows.

On one device, and outside of `strategy.run`, nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

__all__ = ["mean_over_replicas", "num_replicas", "own_rows", "sum_over_replicas"]


def own_rows(
    draw: Callable[[int | tf.Tensor], Sequence[tf.Tensor]], num_rows: int | tf.Tensor, copies: int = 1
) -> tuple[tf.Tensor, ...]:
    """This replica's rows of noise for the rows of all replicas.

    :param draw: number of rows -> tensors [rows, ...], a pure function of a seed.
    :param num_rows: B, rows of this replica.
    :param copies: draws for each row; all first draws come first.
    :return: tensors [copies B, ...].
    """
    context = _context()
    if context is None:
        return tuple(draw(copies * num_rows))
    # All replicas draw the noise of all rows, from one seed, and each takes its own part.
    count = context.num_replicas_in_sync
    start = num_rows * tf.cast(context.replica_id_in_sync_group, tf.int32)

    def own(noise: tf.Tensor) -> tf.Tensor:
        # Copies come first, then rows: of each copy this replica's block, as on one device.
        rest = tf.shape(noise)[1:]
        by_copy = tf.reshape(noise, tf.concat([[copies, count * num_rows], rest], 0))
        return tf.reshape(by_copy[:, start : start + num_rows], tf.concat([[copies * num_rows], rest], 0))

    return tuple(own(noise) for noise in draw(copies * count * num_rows))


def sum_over_replicas(value: tf.Tensor) -> tf.Tensor:
    """The sum of what the replicas have, a constant for derivatives if there are several."""
    context = _context()
    return value if context is None else context.all_reduce(tf.distribute.ReduceOp.SUM, tf.stop_gradient(value))


def mean_over_replicas(value: tf.Tensor) -> tf.Tensor:
    """The mean of what the replicas have; its derivative is that of this replica's value.

    So the mean over the replicas of the derivatives of a function of this mean is the derivative of the function.
    """
    context = _context()
    if context is None:
        return value
    # The value of all replicas; the last two terms cancel in it and leave the derivative.
    mean = context.all_reduce(tf.distribute.ReduceOp.MEAN, tf.stop_gradient(value))
    return mean + value - tf.stop_gradient(value)


def num_replicas() -> int:
    """How many replicas work on one minibatch."""
    context = _context()
    return 1 if context is None else context.num_replicas_in_sync


def _context() -> tf.distribute.ReplicaContext | None:
    context = tf.distribute.get_replica_context()
    return None if context is None or context.num_replicas_in_sync == 1 else context
