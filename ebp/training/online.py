"""Single examples with XLA, without a tanh of every binary weight in every update.

Layers of MIN_LAZY_WEIGHTS binary weights or more are lazy: `BinaryWeights.shifted_mean` adds changes to their means,
and their h follows at the end of a segment of at most REFRESH_EVERY updates, where the means become tanh h again. A
segment ends early if a change exceeds MAX_CHANGE (the means that it made are not used), or the changes sum up to
MAX_DRIFT. After m updates with changes of absolute sum D, means are off by at most m e^(2 D) rounding units: each
update rounds, and moves earlier errors by (1 - mean'^2) / (1 - mean^2) <= e^(2 d).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from gpflow_deep_base.runtime.tracing import counted_alone

from ..network import update
from ..network.architecture import Architecture, Posterior
from ..network.heads import head_scores
from ..network.posterior import BinaryWeights
from .loops import Epoch

__all__ = ["MAX_CHANGE", "MAX_DRIFT", "MIN_LAZY_WEIGHTS", "REFRESH_EVERY", "online_epoch"]

#: Most updates between two evaluations of tanh for every binary weight of a lazy layer.
REFRESH_EVERY = 64

#: The largest change of an h in one update that `shifted_mean` may follow, and the largest sum of changes.
MAX_CHANGE = 1.0 / 8
MAX_DRIFT = 2.0

#: From this number of binary weights on, a layer is worth it.
MIN_LAZY_WEIGHTS = 4096


class _Segment(NamedTuple):
    """What goes around the updates of a segment.

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
def online_epoch(architecture: Architecture) -> Epoch:
    """`loops.dense_epoch` for B = 1, without weights: the same arguments -> posterior, log P(y), 0, scores."""

    @counted_alone
    def epoch(
        posterior: Posterior, X: tf.Tensor, Y: tf.Tensor, rows: tf.Tensor, weights: tf.Tensor, num_steps: tf.Tensor
    ) -> tuple[Posterior, tf.Tensor, tf.Tensor, tf.Tensor]:
        def segment(
            start: tf.Tensor, posterior: Posterior, log_prob: tf.Tensor, scores: tf.Tensor
        ) -> tuple[tf.Tensor, Posterior, tf.Tensor, tf.Tensor]:
            # Up to the next multiple of `REFRESH_EVERY` updates, or until the means have drifted too far.
            end = tf.minimum((start // REFRESH_EVERY + 1) * REFRESH_EVERY, num_steps)

            def body(t: tf.Tensor, now: _Segment) -> tuple[tf.Tensor, _Segment]:
                x = tf.ensure_shape(tf.gather(X, rows[t]), [1, architecture.layer_sizes[0]])
                return t + 1, _after_update(architecture, now, x, tf.gather(Y, rows[t]), t - start)

            def goes_on(t: tf.Tensor, now: _Segment) -> tf.Tensor:
                return tf.logical_and(t < end, now.drift <= MAX_DRIFT)

            t, last = tf.while_loop(goes_on, body, (start, _first_segment(architecture, posterior)))
            # h of lazy layers catches up; log P(y) and scores are those of all updates at once.
            seen_rows = tf.gather(rows[:, 0], tf.minimum(start + tf.range(REFRESH_EVERY), num_steps - 1))
            posterior = _caught_up(last, X, seen_rows, t - start)
            mu, sigma2 = (values.stack() for values in last.outputs)
            log_prob += _log_prob(architecture, (mu, sigma2), tf.gather(Y, seen_rows), t - start)
            # What is beyond the segment's last update is written over by the next segment.
            places = (start + tf.range(REFRESH_EVERY))[:, None]
            scores = tf.tensor_scatter_nd_update(scores, places, head_scores(architecture.head, mu, sigma2))
            return t, posterior, log_prob, scores

        max_steps = tf.shape(rows)[0]
        room = tf.zeros([max_steps + REFRESH_EVERY, architecture.layer_sizes[-1]], architecture.dtype)
        start = (tf.constant(0), posterior, tf.zeros([], architecture.dtype), room)
        _, posterior, log_prob, scores = tf.while_loop(lambda t, *_: t < num_steps, segment, start)
        return posterior, log_prob, tf.constant(0), scores[:max_steps, None]

    return tf.function(epoch, autograph=False, jit_compile=True, reduce_retracing=True)


def _lazy_layers(architecture: Architecture) -> dict[int, BinaryWeights]:
    """Number -> prior of each layer of MIN_LAZY_WEIGHTS binary weights or more."""
    sizes = zip(architecture.layer_sizes[:-1], architecture.layer_sizes[1:], strict=True)
    return {
        layer: prior
        for layer, (prior, (n_in, n_out)) in enumerate(zip(architecture.priors, sizes, strict=True))
        if isinstance(prior, BinaryWeights) and n_in * n_out >= MIN_LAZY_WEIGHTS
    }


def _carried_means(architecture: Architecture, h: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """<W> of each layer, or a scalar where it is h itself."""
    means = architecture.means(h)
    return [tf.zeros([], mean.dtype) if mean is value else mean for mean, value in zip(means, h, strict=True)]


def _first_segment(architecture: Architecture, posterior: Posterior) -> _Segment:
    """The start of a segment, with all means fresh."""
    sizes = architecture.layer_sizes
    dtype = architecture.dtype
    lazy = _lazy_layers(architecture)

    # Of a lazy layer but the first, inputs are recorded; those of the first are rows of the data.
    def record(size: int) -> tf.TensorArray:
        return tf.TensorArray(dtype, REFRESH_EVERY, element_shape=[size])

    return _Segment(
        posterior,
        tuple(_carried_means(architecture, posterior.h)),
        tf.zeros([], dtype),
        {layer: record(sizes[layer]) for layer in lazy if layer > 0},
        {layer: record(sizes[layer + 1]) for layer in lazy},
        (record(sizes[-1]), record(sizes[-1])),
    )


def _after_update(architecture: Architecture, now: _Segment, x: tf.Tensor, y: tf.Tensor, slot: tf.Tensor) -> _Segment:
    """One Bayes update; of lazy layers only the means change, and what changes their h is recorded.

    :param x: [1, n_0].
    :param y: [1, n_L].
    :param slot: number of the update within its segment.
    """
    (h, b) = now.posterior
    lazy = _lazy_layers(architecture)
    # Means as they are carried; where they are h itself, h.
    means = [mean if mean.shape.rank else value for mean, value in zip(now.means, h, strict=True)]
    # Eq. (4.5) for one example.
    change = update.bayes_increments(architecture, h, means, b, x, y, for_xla=True)
    posterior = update.updated(now.posterior, change)
    last = change.layers[-1]
    new_h = list(posterior.h)
    drift = now.drift
    for layer in lazy:
        new_h[layer] = h[layer]
        v = change.layers[layer].v
        delta = change.scaled_deltas[layer]
        # The largest change of an h in this outer product, infinite if it is too large to be followed.
        largest = tf.reduce_max(tf.abs(v)) * tf.reduce_max(tf.abs(delta))
        drift += tf.where(largest <= MAX_CHANGE, largest, np.inf)
    # Lazy layers: the mean follows by tanh(h + d), and h stays until the segment ends.
    new_means = _carried_means(architecture, new_h)
    for layer, prior in lazy.items():
        new_means[layer] = prior.shifted_mean(means[layer], change.h[layer])
    return _Segment(
        Posterior(tuple(new_h), posterior.b),
        tuple(new_means),
        drift,
        {layer: rows.write(slot, change.layers[layer].v[0]) for layer, rows in now.inputs.items()},
        {layer: rows.write(slot, change.scaled_deltas[layer][0]) for layer, rows in now.deltas.items()},
        (now.outputs[0].write(slot, last.mu[0]), now.outputs[1].write(slot, last.sigma2[0])),
    )


def _caught_up(last: _Segment, X: tf.Tensor, seen: tf.Tensor, count: tf.Tensor) -> Posterior:
    """The posterior at the end of a segment, with the changes of its lazy layers.

    :param seen: numbers of the rows of `X` that were learned, [REFRESH_EVERY]; from `count` on they do not matter.
    """
    h = list(last.posterior.h)
    for layer, deltas in last.deltas.items():
        inputs = last.inputs[layer].stack() if layer else tf.gather(X, seen)
        h[layer] = _catch_up(h[layer], inputs, deltas.stack(), count)
    return Posterior(tuple(h), last.posterior.b)


def _catch_up(h: tf.Tensor, inputs: tf.Tensor, deltas: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """h plus the changes of `count` updates: one by one if they are few, else by a product of all (the rest are 0)."""

    def one_by_one() -> tf.Tensor:
        return tf.while_loop(
            lambda i, h: i < count,
            lambda i, h: (i + 1, h + update.weight_increment(inputs[i][None], deltas[i][None])),
            (tf.constant(0), h),
        )[1]

    return tf.cond(count < REFRESH_EVERY // 2, one_by_one, lambda: h + update.weight_increment(inputs, deltas))


def _log_prob(
    architecture: Architecture, outputs: tuple[tf.Tensor, tf.Tensor], y: tf.Tensor, count: tf.Tensor
) -> tf.Tensor:
    """Sum of log P(y) of a segment's `count` updates, each before it was made, in nats.

    :param outputs: mu_L and sigma2_L, [REFRESH_EVERY, n_L] each.
    """
    log_probs = architecture.head.log_prob(y, *outputs)
    return tf.reduce_sum(tf.where(tf.range(REFRESH_EVERY) < count, log_probs, tf.zeros_like(log_probs)))
