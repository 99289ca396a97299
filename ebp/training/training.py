"""Training: whole passes of Bayes updates inside one compiled function.

    fit(network, X, Y, epochs=3)                     # passes 0, 1, 2; call it again to learn new data, too
    fit_epoch(network, X, Y, seed=0, epoch=5)        # one pass, in an order that is a function of (seed, epoch)
    fit_stream(network, dataset)                     # batches from a tf.data pipeline, each used once

A batch of one example is the online Bayes update. A larger batch adds the increments of its examples, computed from the
same posterior, and damps the sum where it would overshoot (`update.damping`). The loops are in `loops` and `online`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from gpflow_deep_base.seeds import Seed, as_seed

from ..network.architecture import Posterior
from ..network.coding import Matrix
from ..network.convolution import check_whole
from ..network.network import EBPNetwork
from .loops import dense_epoch, sparse_epoch, stream_epoch
from .online import online_epoch
from .prepared import Prepared, SparseRows, padded, power_of_two, prepare

__all__ = ["MIN_STEPS_FOR_XLA", "EpochStats", "epoch_order", "fit", "fit_chunk", "fit_epoch", "fit_stream"]

#: A batch is filled up to this number of rows, so that data of any size need one compiled function.
MAX_PADDING = 256

#: From this number of updates on, XLA's compilation (one or two seconds) pays for itself.
MIN_STEPS_FOR_XLA = 5000


class EpochStats(NamedTuple):
    """What was seen during a pass.

    :ivar num_steps: updates.
    :ivar log_evidence: mean over examples, as they are weighted, of log P(y | x, data before its batch) in nats: a test
        of each example before it is learned.
    :ivar damped_steps: updates that were damped.
    :ivar scores: `heads.head_scores` of each example before it was learned, [N, n_L], in the order of the data; NaN of
        examples that were not reached. None of streams.
    """

    num_steps: int
    log_evidence: float
    damped_steps: int
    scores: np.ndarray | None = None


def fit(
    network: EBPNetwork,
    X: Matrix | Prepared,
    Y: ArrayLike | None = None,
    *,
    epochs: int = 3,
    batch_size: int = 1,
    seed: Seed = 0,
    first_epoch: int = 0,
    jit_compile: bool | None = None,
) -> list[EpochStats]:
    """Train for `epochs` passes over the data, in a new order each time.

    The posterior after the call is the prior of the next one: call it with new data alone to learn these, too.

    :param first_epoch: number of the first pass; n passes are k and n - k more with `first_epoch=k`, bit for bit.
    :return: what was seen in each pass.

    Other parameters and errors as for `fit_epoch`.
    """
    check_whole("epochs", epochs, 0)
    check_whole("first_epoch", first_epoch, 0)
    data = prepare(network, X, Y)
    return [
        fit_epoch(network, data, batch_size=batch_size, seed=seed, epoch=epoch, jit_compile=jit_compile)
        for epoch in range(first_epoch, first_epoch + epochs)
    ]


def fit_epoch(
    network: EBPNetwork,
    X: Matrix | Prepared,
    Y: ArrayLike | None = None,
    *,
    batch_size: int = 1,
    seed: Seed = 0,
    epoch: int = 0,
    first_step: int = 0,
    last_step: int | None = None,
    rows: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    jit_compile: bool | None = None,
) -> EpochStats:
    """One pass over the data, in an order that is a function of (seed, epoch); advances `network.step`.

    :param X: array [N, D], SciPy sparse matrix, or data from `prepare`, which saves checking them again.
    :param Y: targets as the head wants them: -1 and +1, [N, n_L], or [N] for one output.
    :param batch_size: B; 1 is the online Bayes update. The last batch of the pass may be smaller.
    :param first_step: number of the pass's first update to do: to continue a pass that stopped at `last_step`. If that
        is a multiple of `online.REFRESH_EVERY`, the result is bit for bit that of an unbroken pass.
    :param last_step: number of the first update not to do; None: to the end of the pass.
    :param rows: numbers of the rows to learn, [M]; None: all.
    :param weight: how often each row counts, [N], not negative: its increments are multiplied by it. None: once.
    :param jit_compile: compile the loop over dense data with XLA, once for each number of rows of `X` and for each
        power of two of updates; None: if it pays.
    :raises ValueError: for data that do not fit the network; see `prepare`.
    """
    data = prepare(network, X, Y)
    architecture = network.architecture
    # Batches of the rows to learn, in the order of (seed, epoch), and how often each row counts.
    learned = _checked_rows(rows, len(data.Y))
    num_data = len(learned)
    check_whole("batch_size", batch_size)
    if batch_size > MAX_PADDING:
        batch_size = min(batch_size, max(num_data, MAX_PADDING))
    steps = slice(first_step, -(-num_data // batch_size) if last_step is None else last_step)
    numbers, is_data = _batches(learned[epoch_order(seed, epoch, num_data)], batch_size, steps)
    counts = is_data if weight is None else is_data * _checked_weight(weight, len(data.Y))[numbers]
    num_steps = len(numbers)
    has_weights = weight is not None
    # Sparse rows: h_1 is changed in place, and the other layers are handed back.
    if isinstance(data.X, SparseRows):
        has_empty_rows = bool(tf.reduce_any(data.X.indptr[1:] == data.X.indptr[:-1]))
        run = sparse_epoch(architecture, batch_size, has_empty_rows, has_weights)
        batches = tf.constant(numbers), tf.constant(counts, architecture.dtype)
        rest, log_prob, damped, scores = run(network.h[0], _upper(network), data.X, data.Y, *batches)
        network.assign_upper(rest)
    else:
        # Dense rows: with XLA the updates are padded to a power of two, so that one compiled loop serves many.
        use_xla = num_steps >= MIN_STEPS_FOR_XLA if jit_compile is None else jit_compile
        room = [(0, power_of_two(num_steps) - num_steps), (0, 0)] if use_xla else [(0, 0), (0, 0)]
        batches = tf.constant(np.pad(numbers, room)), tf.constant(np.pad(counts, room), architecture.dtype)
        if use_xla and batch_size == 1 and not has_weights and not architecture.convolutions:
            run = online_epoch(architecture)
        else:
            run = dense_epoch(architecture, batch_size, use_xla, has_weights)
        posterior, log_prob, damped, scores = run(network.posterior, data.X, data.Y, *batches, tf.constant(num_steps))
        network.assign(posterior)
    network.step.assign_add(num_steps)
    # Scores in the order of the data, NaN where a row was not reached.
    row_scores = np.full(data.Y.shape, np.nan, architecture.dtype.as_numpy_dtype)
    row_scores[numbers[is_data]] = scores.numpy()[:num_steps][is_data]
    return EpochStats(num_steps, float(log_prob) / max(float(np.sum(counts)), 1e-300), int(damped), row_scores)


def fit_chunk(
    network: EBPNetwork,
    data: Prepared,
    weight: np.ndarray | None = None,
    *,
    batch_size: int = 1,
    seed: Seed = 0,
    epoch: int = 0,
) -> EpochStats:
    """`fit_epoch` of one of many chunks: once they have made as many updates as XLA pays for, it compiles the loop.

    That is done for each power of two of rows and of updates. Parameters are as for `fit_epoch`, scores are those of
    the rows of `data`.
    """
    # Sparse loops are not compiled by XLA, and short streams do not pay for it.
    if isinstance(data.X, SparseRows) or batch_size > MAX_PADDING or int(network.step) < MIN_STEPS_FOR_XLA:
        return fit_epoch(network, data, weight=weight, batch_size=batch_size, seed=seed, epoch=epoch)
    # With rows of zeros, which are not learned, up to a power of two.
    num_rows = int(data.Y.shape[0])
    room = padded(data)
    if weight is not None:
        weight = np.pad(weight, (0, int(room.Y.shape[0]) - num_rows))
    stats = fit_epoch(
        network,
        room,
        rows=np.arange(num_rows),
        weight=weight,
        jit_compile=True,
        batch_size=batch_size,
        seed=seed,
        epoch=epoch,
    )
    return stats._replace(scores=None if stats.scores is None else stats.scores[:num_rows])


def fit_stream(network: EBPNetwork, dataset: tf.data.Dataset, *, max_steps: int | None = None) -> EpochStats:
    """One update for each batch of a `tf.data` pipeline, inside one compiled loop; advances `network.step`.

    :param dataset: batches (x, y): x [B, D], dense or `tf.SparseTensor`; y [B, n_L] as the head wants it. B may vary.
    :param max_steps: stop after this many batches; None: at the end of the pipeline.
    :raises ValueError: if the elements of the pipeline are of another structure.
    :raises tf.errors.InvalidArgumentError: for NaN or infinity, or labels other than -1 and +1. What the batches before
        the bad one changed is lost; for sparse x it stays in the first layer.
    """
    architecture = network.architecture
    sizes = architecture.layer_sizes
    spec = getattr(dataset, "element_spec", None)
    # Pairs of matrices, with as many columns as the network has inputs and outputs.
    if not (
        isinstance(spec, tuple)
        and len(spec) == 2
        and all(part.shape.rank == 2 for part in spec)
        and spec[0].shape[1] in (None, sizes[0])
        and spec[1].shape[1] in (None, sizes[-1])
    ):
        raise ValueError(
            f"the pipeline must give batches (x [B, {sizes[0]}], y [B, {sizes[-1]}]), got {spec}; use dataset.batch(1) "
            "for single examples."
        )
    # All batches of the pipeline in one compiled loop.
    limit = tf.constant(np.iinfo(np.int64).max if max_steps is None else max_steps, tf.int64)
    run = stream_epoch(architecture)
    if isinstance(spec[0], tf.SparseTensorSpec):
        rest, stats = run(iter(dataset), limit, network.h[0], _upper(network))
        network.assign_upper(rest)
    else:
        posterior, stats = run(iter(dataset), limit, None, network.posterior)
        network.assign(posterior)
    num_steps, num_seen, log_prob, damped = stats
    network.step.assign_add(num_steps)
    return EpochStats(int(num_steps), float(log_prob) / max(1, int(num_seen)), int(damped))


def epoch_order(seed: Seed, epoch: int, num_data: int) -> np.ndarray:
    """The order of the examples in a pass: a permutation, int [num_data], that is a function of seed and epoch."""
    entropy = [*(int(word) % 2**32 for word in as_seed(seed).numpy()), epoch]
    return np.random.default_rng(entropy).permutation(num_data)


def _checked_rows(rows: ArrayLike | None, num_data: int) -> np.ndarray:
    numbers = np.arange(num_data) if rows is None else np.asarray(rows)
    is_whole = numbers.ndim == 1 and len(numbers) > 0 and numbers.dtype.kind in "iu"
    if not is_whole or numbers.min() < 0 or numbers.max() >= num_data:
        raise ValueError(
            f"rows must be numbers of rows from 0 to {num_data - 1}, at least one, got {numbers}; of a mask take "
            "np.flatnonzero."
        )
    return numbers


def _checked_weight(weight: ArrayLike, num_data: int) -> np.ndarray:
    weight = np.asarray(weight, np.float64)
    if weight.shape != (num_data,) or not np.all(np.isfinite(weight)) or np.any(weight < 0) or not np.any(weight > 0):
        raise ValueError(
            f"weight must be a finite number for each of the {num_data} rows, none negative and not all 0, got shape "
            f"{list(weight.shape)}" + (f" with minimum {weight.min()}." if weight.size else ".")
        )
    return weight


def _batches(order: np.ndarray, batch_size: int, steps: slice) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of the batches of these steps of a pass, int32 [S, B], and whether they are data, not padding."""
    num_data = len(order)
    steps_per_epoch = -(-len(order) // batch_size)
    if not 0 <= steps.start < steps.stop <= steps_per_epoch:
        raise ValueError(
            f"steps must satisfy 0 <= first_step < last_step <= {steps_per_epoch}, got {steps.start} and {steps.stop}."
        )
    # The last batch of a pass is filled up with row 0, marked as no data.
    rows = np.zeros(steps_per_epoch * batch_size, np.int32)
    rows[:num_data] = order
    is_data = np.arange(rows.size) < num_data
    shape = steps_per_epoch, batch_size
    return rows.reshape(shape)[steps], is_data.reshape(shape)[steps]


def _upper(network: EBPNetwork) -> Posterior:
    """All numbers but h of the first layer, as a value."""
    return Posterior(tuple(map(tf.convert_to_tensor, network.h[1:])), tuple(map(tf.convert_to_tensor, network.b)))
