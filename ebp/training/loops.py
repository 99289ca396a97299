"""Compiled passes over data, one function for each architecture: over dense rows, over sparse rows, over a pipeline.

A batch is taken by its row numbers inside the loop. Of sparse data only the rows of h_1 that belong to non-zero inputs
are read and changed, in place. `online` has the loop for single examples with XLA.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf

from gpflow_deep_base.runtime.tracing import counted_alone

from ..network.architecture import Architecture, Posterior
from ..network.update import Increments, bayes_increments, updated
from .prepared import SparseRows

__all__ = ["Epoch", "dense_epoch", "sparse_epoch", "stream_epoch"]

#: A pass: to the posterior (or the layers above the first), the sum of log P(y), damped updates and scores.
Epoch: TypeAlias = Callable[..., tuple[Posterior, tf.Tensor, tf.Tensor, tf.Tensor]]


@functools.lru_cache(maxsize=64)
def dense_epoch(architecture: Architecture, batch_size: int, jit_compile: bool, has_weights: bool = False) -> Epoch:
    """(posterior, X, Y, rows [S, B], weight [S, B], num_steps) -> posterior, sum of log P(y), damped updates, scores.

    The first `num_steps` batches are learned; scores are [S, B, n_L]. Weights are 0 for padding; of single examples
    they are looked at with `has_weights` alone. Traced once for data of any size; with `jit_compile` once for each.
    """

    @counted_alone
    def epoch(
        posterior: Posterior, X: tf.Tensor, Y: tf.Tensor, rows: tf.Tensor, weights: tf.Tensor, num_steps: tf.Tensor
    ) -> tuple[Posterior, tf.Tensor, tf.Tensor, tf.Tensor]:
        def body(
            t: tf.Tensor, posterior: Posterior, log_prob: tf.Tensor, damped: tf.Tensor, scores: tf.TensorArray
        ) -> tuple[object, ...]:
            # A batch by its row numbers, its increments by Eq. (4.5), and the posterior after it.
            x = tf.ensure_shape(tf.gather(X, rows[t]), [batch_size, architecture.layer_sizes[0]])
            weight = weights[t] if has_weights or batch_size > 1 else None
            means = architecture.means(posterior.h)
            change = bayes_increments(architecture, posterior.h, means, posterior.b, x, tf.gather(Y, rows[t]), weight)
            log_prob += tf.reduce_sum(change.log_prob)
            damped += tf.cast(change.is_damped, tf.int32)
            return t + 1, updated(posterior, change), log_prob, damped, scores.write(t, change.scores)

        zero = tf.zeros([], architecture.dtype)
        # Only what an update changes goes around the loop; the data stay where they are.
        start = (tf.constant(0), posterior, zero, tf.constant(0), _scores(architecture, tf.shape(rows)[0], batch_size))
        _, posterior, log_prob, damped, scores = tf.while_loop(lambda t, *_: t < num_steps, body, start)
        return posterior, log_prob, damped, scores.stack()

    return tf.function(
        epoch,
        autograph=False,
        jit_compile=jit_compile,
        reduce_retracing=True,
        input_signature=None if jit_compile else _signature(architecture, batch_size),
    )


def _scores(architecture: Architecture, num_steps: tf.Tensor, batch_size: int) -> tf.TensorArray:
    """Room for the scores of each step."""
    shape = [batch_size, architecture.layer_sizes[-1]]
    return tf.TensorArray(architecture.dtype, num_steps, element_shape=shape)


def _signature(architecture: Architecture, batch_size: int) -> list[tf.TensorSpec]:
    """Types of the arguments of `dense_epoch`, for data of any number of rows."""
    sizes = architecture.layer_sizes
    pairs = architecture.weight_shapes
    dtype = architecture.dtype
    posterior = Posterior(
        tuple(tf.TensorSpec(pair, dtype) for pair in pairs),
        tuple(tf.TensorSpec(pair[1:], dtype) for pair in pairs) if architecture.has_biases else (),
    )
    data = [tf.TensorSpec([None, size], dtype) for size in (sizes[0], sizes[-1])]
    batches = [tf.TensorSpec([None, batch_size], kind) for kind in (tf.int32, dtype)]
    return [posterior, *data, *batches, tf.TensorSpec([], tf.int32)]


@functools.lru_cache(maxsize=64)
def sparse_epoch(
    architecture: Architecture, batch_size: int, has_empty_rows: bool = False, has_weights: bool = False
) -> Epoch:
    """(h_1, the other layers, X, Y, rows, weights) -> the other layers, sum of log P(y), damped updates, scores.

    The variable h_1 is changed in place. Single rows without entries need `has_empty_rows`.
    """

    @counted_alone
    def epoch(
        h_1: tf.Variable, rest: Posterior, X: SparseRows, Y: tf.Tensor, rows: tf.Tensor, weights: tf.Tensor
    ) -> tuple[Posterior, tf.Tensor, tf.Tensor, tf.Tensor]:
        def body(
            t: tf.Tensor, rest: Posterior, log_prob: tf.Tensor, damped: tf.Tensor, scores: tf.TensorArray
        ) -> tuple[object, ...]:
            # Of h_1 only the rows of columns that occur in the batch are read and changed.
            x, columns = _sparse_batch(X, rows[t], batch_size, has_empty_rows)
            y = tf.gather(Y, rows[t])
            weight = weights[t] if has_weights or batch_size > 1 else None
            rest, change = _sparse_update(architecture, h_1, rest, x, columns, y, weight)
            log_prob += tf.reduce_sum(change.log_prob)
            return t + 1, rest, log_prob, damped + tf.cast(change.is_damped, tf.int32), scores.write(t, change.scores)

        zero = tf.zeros([], architecture.dtype)
        num_steps = tf.shape(rows)[0]
        # One step at a time, as each reads what the one before has written to h_1.
        _, rest, log_prob, damped, scores = tf.while_loop(
            lambda t, *_: t < num_steps,
            body,
            (tf.constant(0), rest, zero, tf.constant(0), _scores(architecture, num_steps, batch_size)),
            parallel_iterations=1,
        )
        return rest, log_prob, damped, scores.stack()

    return tf.function(epoch, autograph=False, reduce_retracing=True)


@functools.lru_cache(maxsize=64)
def stream_epoch(architecture: Architecture) -> Callable[..., tuple[Posterior, tuple[tf.Tensor, ...]]]:
    """(iterator, limit, h_1 or None, layers) -> layers, (steps, examples, sum of log P(y), damped updates)."""

    @counted_alone
    def stream(
        iterator: tf.data.Iterator, limit: tf.Tensor, h_1: tf.Variable | None, posterior: Posterior
    ) -> tuple[Posterior, tuple[tf.Tensor, ...]]:
        def body(
            t: tf.Tensor, more: tf.Tensor, posterior: Posterior, seen: tf.Tensor, log_prob: tf.Tensor, damped: tf.Tensor
        ) -> tuple[object, ...]:
            # The batch that was taken out of the pipeline before, and the next one at the end of this step.
            x, y = more.get_value()
            x = tf.cast(x, architecture.dtype)
            y = _checked_targets(architecture, x, tf.cast(y, architecture.dtype))
            # A sparse batch changes h_1 in place, a dense one the posterior that goes around the loop.
            if isinstance(x, tf.SparseTensor):
                compact, columns = _compact(x.indices[:, 0], x.indices[:, 1], x.values, x.dense_shape[0])
                posterior, change = _sparse_update(architecture, h_1, posterior, compact, columns, y, None)
            else:
                means = architecture.means(posterior.h)
                change = bayes_increments(architecture, posterior.h, means, posterior.b, x, y)
                posterior = updated(posterior, change)
            seen += tf.shape(y, out_type=tf.int64)[0]
            log_prob += tf.reduce_sum(change.log_prob)
            damped += tf.cast(change.is_damped, tf.int64)
            return t + 1, _next(iterator, t + 1 < limit), posterior, seen, log_prob, damped

        # Up to the end of the pipeline or to `limit`, beyond which no batch is taken out of it.
        zero = tf.constant(0, tf.int64)
        t, _, posterior, num_seen, log_prob, damped = tf.while_loop(
            lambda t, more, *_: more.has_value(),
            body,
            (zero, _next(iterator, zero < limit), posterior, zero, tf.zeros([], architecture.dtype), zero),
            parallel_iterations=1,
        )
        return posterior, (t, num_seen, log_prob, damped)

    return tf.function(stream, autograph=False, reduce_retracing=True)


def _next(iterator: tf.data.Iterator, wanted: tf.Tensor) -> tf.experimental.Optional:
    """The next element, or none at the end or if it is not wanted (it then stays in the pipeline)."""
    return tf.cond(wanted, iterator.get_next_as_optional, lambda: tf.experimental.Optional.empty(iterator.element_spec))


def _checked_targets(architecture: Architecture, x: tf.Tensor | tf.SparseTensor, y: tf.Tensor) -> tf.Tensor:
    """y; at run time an error if x or y is not finite, or a label neither -1 nor +1."""
    values = x.values if isinstance(x, tf.SparseTensor) else x
    checks = [
        tf.debugging.assert_all_finite(values, "inputs of the pipeline must be finite"),
        tf.debugging.assert_all_finite(y, "targets of the pipeline must be finite"),
    ]
    if architecture.head.has_labels:
        checks.append(tf.debugging.assert_equal(tf.abs(y), tf.ones_like(y), "labels must be -1 and +1"))
    with tf.control_dependencies([check for check in checks if check is not None]):
        return tf.identity(y)


def _sparse_batch(
    X: SparseRows, rows: tf.Tensor, batch_size: int, has_empty_rows: bool
) -> tuple[tf.Tensor | tf.SparseTensor, tf.Tensor]:
    """Some rows without the columns that do not occur in them, and the numbers of those that do."""
    starts = tf.gather(X.indptr, rows)
    ends = tf.gather(X.indptr, rows + 1)
    # A single row is a slice of the matrix.
    if batch_size == 1:
        columns = X.indices[starts[0] : ends[0]]
        values = X.data[starts[0] : ends[0]]
        if has_empty_rows:  # these get a 0 in column 0: TensorFlow's oneDNN aborts a product without columns
            is_empty = tf.cast(starts == ends, tf.int32)
            columns = tf.concat([columns, tf.zeros(is_empty, columns.dtype)], axis=0)
            values = tf.concat([values, tf.zeros(is_empty, values.dtype)], axis=0)
        return tf.ensure_shape(values[None], [1, None]), columns
    # Of several rows: all entries, and then the columns that occur.
    row, place = _entries(starts, ends)
    return _compact(row, tf.gather(X.indices, place), tf.gather(X.data, place), batch_size)


def _entries(starts: tf.Tensor, ends: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Number in the batch of the row of each entry, and the entry's place, of rows from `starts` to `ends`; int64.

    `tf.ragged.range` gives the same, but has no kernel for a GPU.
    """
    # Entry number i is of the first row whose cumulative number of entries exceeds i.
    limits = tf.cumsum(ends - starts)
    number = tf.range(limits[-1])
    row = tf.searchsorted(limits, number, side="right", out_type=tf.int64)
    return row, number + tf.gather(ends - limits, row)


def _compact(
    row: tf.Tensor, column: tf.Tensor, values: tf.Tensor, num_rows: tf.Tensor | int
) -> tuple[tf.SparseTensor, tf.Tensor]:
    """A sparse batch without the columns that do not occur in it, and the numbers of those that do."""
    columns, compact = tf.unique(column, out_idx=tf.int64)
    indices = tf.stack([tf.cast(row, tf.int64), compact], axis=1)
    shape = tf.stack([tf.cast(num_rows, tf.int64), tf.size(columns, out_type=tf.int64)])
    return tf.SparseTensor(indices, values, shape), columns


def _sparse_update(
    architecture: Architecture,
    h_1: tf.Variable,
    rest: Posterior,
    x: tf.Tensor | tf.SparseTensor,
    columns: tf.Tensor,
    y: tf.Tensor,
    weight: tf.Tensor | None,
) -> tuple[Posterior, Increments]:
    """Update the rows `columns` of h_1 in place, and the other layers."""
    h = (tf.gather(h_1, columns), *rest.h)
    change = bayes_increments(architecture, h, architecture.means(h), rest.b, x, y, weight)
    h_1.scatter_add(tf.IndexedSlices(change.h[0], columns))
    return updated(rest, change._replace(h=change.h[1:])), change
