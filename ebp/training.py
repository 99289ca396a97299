"""Training: whole passes of Bayes updates inside one compiled function.

    fit(network, X, Y, epochs=3)                     # passes 0, 1, 2; call it again to learn new data, too
    fit_epoch(network, X, Y, seed=0, epoch=5)        # one pass, in an order that is a function of (seed, epoch)
    fit_stream(network, dataset)                     # batches from a tf.data pipeline, each used once

A batch of one example is the online Bayes update. A larger batch adds the increments of its examples, computed from the
same posterior, and damps the sum where it would overshoot (`update.damping`). Of sparse data only the rows of h_1 that
belong to non-zero inputs are read and changed.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import tensorflow as tf
from numpy.typing import ArrayLike

from .backward import backward
from .forward import Layer
from .network import Architecture, EBPNetwork, Matrix, Posterior, Seed, as_seed, check_inputs
from .posterior import BinaryWeights
from .update import bias_increment, damping, weight_increment

__all__ = [
    "EpochStats",
    "Increments",
    "InputCodingWarning",
    "Prepared",
    "bayes_increments",
    "check_coding",
    "epoch_order",
    "fit",
    "fit_epoch",
    "fit_stream",
    "prepare",
]

#: Most updates between two evaluations of tanh for every binary weight of a large layer (`_compiled_online_epoch`).
REFRESH_EVERY = 64

#: The largest change of an h in one update that `shifted_mean` may follow, and the largest sum of changes.
MAX_CHANGE, MAX_DRIFT = 1.0 / 8, 2.0

#: From this number of binary weights on, a layer is worth it.
MIN_LAZY_WEIGHTS = 4096

#: From this number of updates on, XLA's compilation (one or two seconds) pays for itself.
MIN_STEPS_FOR_XLA = 5000

#: `check_coding` warns if this part of the inputs' mean square is in columns that hardly vary.
MAX_CONSTANT_PART = 0.1


class InputCodingWarning(UserWarning):
    """The inputs are legal, but coded in a way that spoils an output or carries no information."""


class EpochStats(NamedTuple):
    """What was seen during a pass.

    :ivar num_steps: updates.
    :ivar log_evidence: mean over examples of log P(y | x, data before its batch) in nats: a test of each example before
        it is learned.
    :ivar damped_steps: updates that were damped.
    """

    num_steps: int
    log_evidence: float
    damped_steps: int


class Rows(NamedTuple):
    """A CSR matrix as tensors: row i has the values `data[indptr[i]:indptr[i + 1]]` in the columns `indices[...]`."""

    indptr: tf.Tensor
    indices: tf.Tensor
    data: tf.Tensor


class Prepared(NamedTuple):
    """Checked data, to be handed to `fit` and `fit_epoch` again and again.

    :ivar X: tensor [N, D], or `Rows`.
    :ivar Y: [N, n_L].
    """

    X: tf.Tensor | Rows
    Y: tf.Tensor


class Increments(NamedTuple):
    """Changes of the natural parameters by one batch.

    :ivar h: of h, [n_(l-1), n_l] for each layer.
    :ivar b: of b, [n_l] for each layer; empty without biases.
    :ivar log_prob: log P(y) of each example before the update, in nats, [B].
    :ivar is_damped: whether `damping` reduced a layer's increments.
    :ivar layers: of the forward pass.
    :ivar scaled_deltas: Delta / sqrt(K) of each layer: `h` is v' scaled_delta, undamped.
    """

    h: list[tf.Tensor]
    b: list[tf.Tensor]
    log_prob: tf.Tensor
    is_damped: tf.Tensor
    layers: list[Layer]
    scaled_deltas: list[tf.Tensor]


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
    jit_compile: bool | None = None,
) -> EpochStats:
    """One pass over the data, in an order that is a function of (seed, epoch); advances `network.step`.

    :param X: array [N, D], SciPy sparse matrix, or data from `prepare`, which saves checking them again.
    :param Y: targets as the head wants them: -1 and +1, [N, n_L], or [N] for one output.
    :param batch_size: B; 1 is the online Bayes update. The last batch of the pass may be smaller.
    :param first_step: number of the pass's first update to do: to continue a pass that stopped at `last_step`. If that
        is a multiple of `REFRESH_EVERY`, the result is bit for bit that of an unbroken pass.
    :param last_step: number of the first update not to do; None: to the end of the pass.
    :param jit_compile: compile the loop over dense data with XLA, once for each size of the data; None: if it pays.
    :raises ValueError: for data that do not fit the network; see `prepare`.
    """
    data = prepare(network, X, Y)
    architecture, num_data = network.architecture, int(data.Y.shape[0])
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
    batch_size = min(batch_size, num_data)
    steps_per_epoch = -(-num_data // batch_size)
    last_step = steps_per_epoch if last_step is None else last_step
    if not 0 <= first_step < last_step <= steps_per_epoch:
        raise ValueError(
            f"steps must satisfy 0 <= first_step < last_step <= {steps_per_epoch}, got {first_step} and {last_step}."
        )
    num_steps = last_step - first_step
    order = np.zeros(steps_per_epoch * batch_size, np.int32)
    order[:num_data] = epoch_order(seed, epoch, num_data)
    rows = order.reshape(steps_per_epoch, batch_size)[first_step:last_step]
    is_data = (np.arange(order.size) < num_data).reshape(steps_per_epoch, batch_size)[first_step:last_step]
    batches = tf.constant(rows), tf.constant(is_data, architecture.dtype)
    if isinstance(data.X, Rows):
        run = _compiled_sparse_epoch(architecture, batch_size)
        rest = Posterior(tuple(map(tf.convert_to_tensor, network.h[1:])), tuple(map(tf.convert_to_tensor, network.b)))
        rest, log_prob, damped = run(network.h[0], rest, data.X, data.Y, *batches)
        network.assign_upper(rest)
    else:
        use_xla = num_steps >= MIN_STEPS_FOR_XLA if jit_compile is None else jit_compile
        if use_xla and batch_size == 1:
            run = _compiled_online_epoch(architecture)
        else:
            run = _compiled_dense_epoch(architecture, batch_size, use_xla)
        posterior, log_prob, damped = run(network.posterior, data.X, data.Y, *batches)
        network.assign(posterior)
    network.step.assign_add(num_steps)
    return EpochStats(num_steps, float(log_prob) / float(np.sum(is_data)), int(damped))


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
    spec = dataset.element_spec
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
    limit = tf.constant(np.iinfo(np.int64).max if max_steps is None else max_steps, tf.int64)
    run = _compiled_stream(architecture)
    if isinstance(spec[0], tf.SparseTensorSpec):
        rest = Posterior(tuple(map(tf.convert_to_tensor, network.h[1:])), tuple(map(tf.convert_to_tensor, network.b)))
        rest, stats = run(iter(dataset), limit, network.h[0], rest)
        network.assign_upper(rest)
    else:
        posterior, stats = run(iter(dataset), limit, None, network.posterior)
        network.assign(posterior)
    num_steps, num_seen, log_prob, damped = stats
    network.step.assign_add(num_steps)
    return EpochStats(int(num_steps), float(log_prob) / max(1, int(num_seen)), int(damped))


def prepare(network: EBPNetwork, X: Matrix | Prepared, Y: ArrayLike | None = None) -> Prepared:
    """Check data once, and put them where the compiled loops take them from.

    :raises ValueError: for wrong shapes, NaN, labels that the head does not take (with the mapping to use), or, in a
        network without biases, rows without any non-zero input.

    Warns (`InputCodingWarning`) about rows without any non-zero input, and about inputs that are mostly a constant
    other than 0 (`check_coding`).
    """
    if isinstance(X, Prepared):
        return X
    architecture = network.architecture
    if Y is None:
        raise ValueError("targets are missing: give Y, or data from ebp.prepare(network, X, Y).")
    X = check_inputs(X, architecture.layer_sizes[0], architecture.dtype)
    Y = architecture.head.check_targets(Y, architecture.layer_sizes[-1])
    if Y.shape[0] != X.shape[0]:
        raise ValueError(f"inputs and targets must have as many rows, got {X.shape[0]} and {Y.shape[0]}.")
    _check_empty_rows(X, architecture.has_biases)
    if architecture.priors[0].is_discrete:
        check_coding(X)
    targets = tf.constant(Y, architecture.dtype)
    if scipy.sparse.issparse(X):
        rows = Rows(tf.constant(X.indptr, tf.int64), tf.constant(X.indices, tf.int32), tf.constant(X.data))
        return Prepared(rows, targets)
    return Prepared(tf.constant(X), targets)


def check_coding(X: Matrix) -> None:
    """Warn if columns that are nearly a constant other than 0 make up much of the inputs.

    The weights of such columns learn little more than one number together, so most stay undecided. Their most probable
    values are then coin tosses, times a constant: noise that EBP-D does not average out, as EBP-P and `vote` do.

    :param X: [N, D], dense or sparse. With fewer than 10 rows nothing is known about it.
    """
    if X.shape[0] < 10:
        return
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).reshape(-1)
    square = X.multiply(X) if scipy.sparse.issparse(X) else np.square(X)
    mean_square = np.asarray(square.mean(axis=0), dtype=np.float64).reshape(-1)
    is_constant = mean_square - mean**2 < 0.1 * mean**2
    part = float(np.sum(mean_square[is_constant]) / max(np.sum(mean_square), np.finfo(np.float64).tiny))
    if part > MAX_CONSTANT_PART and np.sum(is_constant) > 1:
        warnings.warn(
            f"{np.sum(is_constant)} of {X.shape[1]} input columns are nearly a constant other than 0 and make up "
            f"{100 * part:.0f} % of the inputs' mean square. With discrete weights the deterministic output (EBP-D) "
            "suffers from it: centre the columns, or code the background as 0, or use ternary weights, or predict with "
            "EBP-P or vote(k).",
            InputCodingWarning,
            stacklevel=4,
        )


def epoch_order(seed: Seed, epoch: int, num_data: int) -> np.ndarray:
    """The order of the examples in a pass: a permutation, int [num_data], that is a function of seed and epoch."""
    entropy = [*(int(word) % 2**32 for word in as_seed(seed).numpy()), epoch]
    return np.random.default_rng(entropy).permutation(num_data)


def bayes_increments(
    architecture: Architecture,
    h: Sequence[tf.Tensor],
    means: Sequence[tf.Tensor],
    b: Sequence[tf.Tensor],
    X: tf.Tensor,
    Y: tf.Tensor,
    weight: tf.Tensor | None = None,
    *,
    for_xla: bool = False,
) -> Increments:
    """One batch's forward pass, backward pass and summed increments: Sec. 4 of the paper.

    :param h: natural parameters; of the first layer only the rows of the columns of `X`.
    :param means: <W> at `h`.
    :param b: means of the biases.
    :param X: [B, n_in], a tensor or `SparseTensor`.
    :param Y: [B, n_L].
    :param weight: 1 for examples, 0 for padding, [B]; None: all are examples.
    :param for_xla: see `forward.layer_inputs`; for one example only.
    """
    variances = architecture.variances(h, means)
    layers = architecture.forward(X, means, variances, b, for_xla=for_xla)
    last = layers[-1]
    log_prob = architecture.head.log_prob(Y, last.mu, last.sigma2)
    output_delta = architecture.head.delta(Y, last.mu, last.sigma2)
    if weight is not None:
        log_prob, output_delta = log_prob * weight, output_delta * weight[:, None]
    deltas = backward(output_delta, layers)
    d_h = [weight_increment(delta, layer) for delta, layer in zip(deltas, layers, strict=True)]
    d_b = [bias_increment(delta, layer) for delta, layer in zip(deltas, layers, strict=True)]
    d_b = d_b if architecture.has_biases else []
    scaled_deltas = [delta / math.sqrt(layer.fan_in) for delta, layer in zip(deltas, layers, strict=True)]
    is_damped = tf.constant(False)
    if not (isinstance(X, tf.Tensor) and X.shape[0] == 1):
        biases = d_b or [None] * len(layers)
        factors = [damping(*parts) for parts in zip(d_h, biases, variances, deltas, layers, strict=True)]
        d_h = [factor * increment for factor, increment in zip(factors, d_h, strict=True)]
        d_b = [factor * increment for factor, increment in zip(factors, d_b, strict=False)]
        is_damped = tf.reduce_min(tf.stack(factors)) < 1.0
    return Increments(d_h, d_b, log_prob, is_damped, layers, scaled_deltas)


# Compiled loops, one for each architecture.


@functools.lru_cache(maxsize=64)
def _compiled_dense_epoch(architecture: Architecture, batch_size: int, jit_compile: bool) -> Callable[..., Any]:
    """(posterior, X, Y, rows [S, B], is_data [S, B]) -> posterior, sum of log P(y), number of damped updates."""

    def epoch(
        posterior: Posterior, X: tf.Tensor, Y: tf.Tensor, rows: tf.Tensor, is_data: tf.Tensor
    ) -> tuple[Posterior, tf.Tensor, tf.Tensor]:
        def body(t: tf.Tensor, posterior: Posterior, log_prob: tf.Tensor, damped: tf.Tensor) -> tuple[Any, ...]:
            x = tf.ensure_shape(tf.gather(X, rows[t]), [batch_size, architecture.layer_sizes[0]])
            weight = None if batch_size == 1 else is_data[t]
            means = architecture.means(posterior.h)
            change = bayes_increments(architecture, posterior.h, means, posterior.b, x, tf.gather(Y, rows[t]), weight)
            log_prob += tf.reduce_sum(change.log_prob)
            return t + 1, _add(posterior, change), log_prob, damped + tf.cast(change.is_damped, tf.int32)

        zero = tf.zeros([], architecture.dtype)
        start = (tf.constant(0), posterior, zero, tf.constant(0))
        _, posterior, log_prob, damped = tf.while_loop(lambda t, *_: t < tf.shape(rows)[0], body, start)
        return posterior, log_prob, damped

    return tf.function(epoch, autograph=False, jit_compile=jit_compile, reduce_retracing=True)


class _Online(NamedTuple):
    """What goes around the inner loop of `_compiled_online_epoch`.

    :ivar means: <W> of each layer; a scalar where it is h itself.
    :ivar drift: sum of the largest changes of lazy layers since the last tanh; infinite after a change too large.
    :ivar inputs: v of each lazy layer but the first, and update since then, [REFRESH_EVERY, n_in].
    :ivar deltas: Delta / sqrt(K) of each lazy layer and update since then, [REFRESH_EVERY, n_out].
    :ivar outputs: mu_L and sigma2_L of each update since then, from which log P(y) is computed for all at once.
    """

    posterior: Posterior
    means: tuple[tf.Tensor, ...]
    drift: tf.Tensor
    inputs: dict[int, tf.TensorArray]
    deltas: dict[int, tf.TensorArray]
    outputs: tuple[tf.TensorArray, tf.TensorArray]


@functools.lru_cache(maxsize=64)
def _compiled_online_epoch(architecture: Architecture) -> Callable[..., Any]:
    """The same for B = 1, with XLA, and without a tanh of every binary weight in every update.

    Layers of MIN_LAZY_WEIGHTS binary weights or more are lazy: `shifted_mean` adds changes to their means, and their h
    follows at the end of a segment of at most REFRESH_EVERY updates, where the means become tanh h again. A segment
    ends early if a change exceeds MAX_CHANGE (the means that it made are not used), or the changes sum up to MAX_DRIFT.
    After m updates with changes of absolute sum D, means are off by at most m e^(2 D) rounding units: each update
    rounds, and moves earlier errors by (1 - mean'^2) / (1 - mean^2) <= e^(2 d).
    """
    sizes = list(zip(architecture.layer_sizes[:-1], architecture.layer_sizes[1:], strict=True))
    lazy = {
        layer: prior
        for layer, (prior, (n_in, n_out)) in enumerate(zip(architecture.priors, sizes, strict=True))
        if isinstance(prior, BinaryWeights) and n_in * n_out >= MIN_LAZY_WEIGHTS
    }

    def carried_means(h: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        means = architecture.means(h)
        return [tf.zeros([], mean.dtype) if mean is value else mean for mean, value in zip(means, h, strict=True)]

    def update(x: tf.Tensor, y: tf.Tensor, slot: tf.Tensor, now: _Online) -> _Online:
        h, b = now.posterior
        means = [mean if mean.shape.rank else value for mean, value in zip(now.means, h, strict=True)]
        change = bayes_increments(architecture, h, means, b, x, y, for_xla=True)
        posterior, last = _add(now.posterior, change), change.layers[-1]
        new_h, drift = list(posterior.h), now.drift
        for layer in lazy:
            new_h[layer] = h[layer]
            v, delta = change.layers[layer].v, change.scaled_deltas[layer]
            largest = tf.reduce_max(tf.abs(v)) * tf.reduce_max(tf.abs(delta))
            drift += tf.where(largest <= MAX_CHANGE, largest, np.inf)
        new_means = carried_means(new_h)
        for layer, prior in lazy.items():
            new_means[layer] = prior.shifted_mean(means[layer], change.h[layer])
        return _Online(
            Posterior(tuple(new_h), posterior.b),
            tuple(new_means),
            drift,
            {layer: rows.write(slot, change.layers[layer].v[0]) for layer, rows in now.inputs.items()},
            {layer: rows.write(slot, change.scaled_deltas[layer][0]) for layer, rows in now.deltas.items()},
            (now.outputs[0].write(slot, last.mu[0]), now.outputs[1].write(slot, last.sigma2[0])),
        )

    def epoch(
        posterior: Posterior, X: tf.Tensor, Y: tf.Tensor, rows: tf.Tensor, is_data: tf.Tensor
    ) -> tuple[Posterior, tf.Tensor, tf.Tensor]:
        num_steps, dtype = tf.shape(rows)[0], architecture.dtype

        def segment(start: tf.Tensor, posterior: Posterior, log_prob: tf.Tensor) -> tuple[Any, ...]:
            end = tf.minimum((start // REFRESH_EVERY + 1) * REFRESH_EVERY, num_steps)

            def body(t: tf.Tensor, now: _Online) -> tuple[tf.Tensor, _Online]:
                x = tf.ensure_shape(tf.gather(X, rows[t]), [1, architecture.layer_sizes[0]])
                return t + 1, update(x, tf.gather(Y, rows[t]), t - start, now)

            first = _Online(
                posterior,
                tuple(carried_means(posterior.h)),
                tf.zeros([], dtype),
                {
                    layer: tf.TensorArray(dtype, REFRESH_EVERY, element_shape=[sizes[layer][0]])
                    for layer in lazy
                    if layer > 0
                },
                {layer: tf.TensorArray(dtype, REFRESH_EVERY, element_shape=[sizes[layer][1]]) for layer in lazy},
                tuple(tf.TensorArray(dtype, REFRESH_EVERY, element_shape=[sizes[-1][1]]) for _ in range(2)),
            )
            t, last = tf.while_loop(
                lambda t, now: tf.logical_and(t < end, now.drift <= MAX_DRIFT), body, (start, first)
            )
            h = list(last.posterior.h)
            seen = tf.gather(rows[:, 0], tf.minimum(start + tf.range(REFRESH_EVERY), num_steps - 1))
            for layer, deltas in last.deltas.items():
                inputs = last.inputs[layer].stack() if layer else tf.gather(X, seen)
                h[layer] = _catch_up(h[layer], inputs, deltas.stack(), t - start)
            each = architecture.head.log_prob(tf.gather(Y, seen), *(values.stack() for values in last.outputs))
            log_prob += tf.reduce_sum(tf.where(tf.range(REFRESH_EVERY) < t - start, each, tf.zeros_like(each)))
            return t, Posterior(tuple(h), last.posterior.b), log_prob

        start = (tf.constant(0), posterior, tf.zeros([], dtype))
        _, posterior, log_prob = tf.while_loop(lambda t, *_: t < num_steps, segment, start)
        return posterior, log_prob, tf.constant(0)

    return tf.function(epoch, autograph=False, jit_compile=True, reduce_retracing=True)


def _catch_up(h: tf.Tensor, inputs: tf.Tensor, deltas: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """h plus the changes of `count` updates: one by one if they are few, else by a product of all (the rest are 0)."""

    def one_by_one() -> tf.Tensor:
        return tf.while_loop(
            lambda i, h: i < count,
            lambda i, h: (i + 1, h + inputs[i][:, None] * deltas[i]),
            (tf.constant(0), h),
        )[1]

    return tf.cond(count < REFRESH_EVERY // 2, one_by_one, lambda: h + tf.matmul(inputs, deltas, transpose_a=True))


@functools.lru_cache(maxsize=64)
def _compiled_sparse_epoch(architecture: Architecture, batch_size: int) -> Callable[..., Any]:
    """(h_1, the other layers, Rows, Y, rows, is_data) -> the other layers, sum of log P(y), number of damped updates.

    The variable h_1 is changed in place.
    """

    def epoch(
        h_1: tf.Variable, rest: Posterior, X: Rows, Y: tf.Tensor, rows: tf.Tensor, is_data: tf.Tensor
    ) -> tuple[Posterior, tf.Tensor, tf.Tensor]:
        def body(t: tf.Tensor, rest: Posterior, log_prob: tf.Tensor, damped: tf.Tensor) -> tuple[Any, ...]:
            starts, ends = tf.gather(X.indptr, rows[t]), tf.gather(X.indptr, rows[t] + 1)
            y = tf.gather(Y, rows[t])
            if batch_size == 1:
                columns = X.indices[starts[0] : ends[0]]
                x, weight = tf.ensure_shape(X.data[starts[0] : ends[0]][None], [1, None]), None
            else:
                chosen = tf.ragged.range(starts, ends)
                x, columns = _compact(
                    chosen.value_rowids(),
                    tf.gather(X.indices, chosen.flat_values),
                    tf.gather(X.data, chosen.flat_values),
                    batch_size,
                )
                weight = is_data[t]
            rest, change = _sparse_update(architecture, h_1, rest, x, columns, y, weight)
            log_prob += tf.reduce_sum(change.log_prob)
            return t + 1, rest, log_prob, damped + tf.cast(change.is_damped, tf.int32)

        zero = tf.zeros([], architecture.dtype)
        _, rest, log_prob, damped = tf.while_loop(
            lambda t, *_: t < tf.shape(rows)[0],
            body,
            (tf.constant(0), rest, zero, tf.constant(0)),
            parallel_iterations=1,
        )
        return rest, log_prob, damped

    return tf.function(epoch, autograph=False, reduce_retracing=True)


@functools.lru_cache(maxsize=64)
def _compiled_stream(architecture: Architecture) -> Callable[..., Any]:
    """(iterator, limit, h_1 or None, layers) -> layers, (steps, examples, sum of log P(y), damped updates)."""

    def stream(
        iterator: Any, limit: tf.Tensor, h_1: tf.Variable | None, posterior: Posterior
    ) -> tuple[Posterior, tuple[tf.Tensor, ...]]:
        def body(
            t: tf.Tensor, more: Any, posterior: Posterior, seen: tf.Tensor, log_prob: tf.Tensor, damped: tf.Tensor
        ) -> Any:
            x, y = more.get_value()
            values = x.values if isinstance(x, tf.SparseTensor) else x
            checks = [
                tf.debugging.assert_all_finite(values, "inputs of the pipeline must be finite"),
                tf.debugging.assert_all_finite(y, "targets of the pipeline must be finite"),
            ]
            y = tf.cast(y, architecture.dtype)
            if architecture.head.has_labels:
                checks.append(tf.debugging.assert_equal(tf.abs(y), tf.ones_like(y), "labels must be -1 and +1"))
            with tf.control_dependencies([check for check in checks if check is not None]):
                y = tf.identity(y)
            if isinstance(x, tf.SparseTensor):
                compact, columns = _compact(
                    x.indices[:, 0], x.indices[:, 1], tf.cast(x.values, architecture.dtype), x.dense_shape[0]
                )
                posterior, change = _sparse_update(architecture, h_1, posterior, compact, columns, y, None)
            else:
                x = tf.cast(x, architecture.dtype)
                means = architecture.means(posterior.h)
                change = bayes_increments(architecture, posterior.h, means, posterior.b, x, y)
                posterior = _add(posterior, change)
            seen += tf.shape(y, out_type=tf.int64)[0]
            log_prob += tf.reduce_sum(change.log_prob)
            damped += tf.cast(change.is_damped, tf.int64)
            return t + 1, _next(iterator, t + 1 < limit), posterior, seen, log_prob, damped

        zero = tf.constant(0, tf.int64)
        t, _, posterior, seen, log_prob, damped = tf.while_loop(
            lambda t, more, *_: more.has_value(),
            body,
            (zero, _next(iterator, zero < limit), posterior, zero, tf.zeros([], architecture.dtype), zero),
            parallel_iterations=1,
        )
        return posterior, (t, seen, log_prob, damped)

    return tf.function(stream, autograph=False, reduce_retracing=True)


def _next(iterator: Any, wanted: tf.Tensor) -> Any:
    """The next element, or none at the end or if it is not wanted (it then stays in the pipeline)."""
    return tf.cond(
        wanted,
        iterator.get_next_as_optional,
        lambda: tf.experimental.Optional.empty(iterator.element_spec),
    )


def _add(posterior: Posterior, change: Increments) -> Posterior:
    return Posterior(
        tuple(h + d_h for h, d_h in zip(posterior.h, change.h, strict=True)),
        tuple(b + d_b for b, d_b in zip(posterior.b, change.b, strict=True)),
    )


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
    return _add(rest, change._replace(h=change.h[1:])), change


def _check_empty_rows(X: Any, has_biases: bool) -> None:
    is_empty = X.getnnz(axis=1) == 0 if scipy.sparse.issparse(X) else ~np.any(X, axis=1)
    rows = np.flatnonzero(is_empty)
    if not rows.size:
        return
    found = f"{rows.size} of {X.shape[0]} rows have no input other than 0 (first: row {rows[0]})"
    if not has_biases:
        raise ValueError(f"{found}, so a network without biases knows nothing of them; drop them, or use biases=True.")
    warnings.warn(
        f"{found}; only biases learn from them. Drop them if they are not meant.", InputCodingWarning, stacklevel=4
    )
