"""Missing bits given the others: p(x_j = 1 | x_known), by importance sampling with the encoder.

Let u fill the missing bits in some way. With h ~ q(h | x_known, u) and the missing bits from p(x | h), one after the
other, past the known ones, each draw has the weight

    w = p(h) prod_{j known} p(x_j | x_<j, h) / q(h | x_known, u),      E[w f(x)] = p(x_known) E[f(x) | x_known]

for any u and any q that rules no h out, so that sum w x / sum w tends to the conditional mean. u are draws of the
columns' means at first, then what was drawn before, by its weights.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from darn.autoregressive import bernoulli_log_prob, logistic_noise, threshold
from darn.config import check_data
from darn.model import DARN
from darn.seeds import Seed, as_seed, fold

__all__ = ["complete"]

_NUMBERS = 2**21  # rows x draws x units of one block
_LIMIT = 4.0  # of the encoder's logits: it was trained on whole rows and is too sure of others; no state is ruled out


def complete(
    model: DARN, x: ArrayLike, is_missing: ArrayLike, *, seed: Seed = 0, num_samples: int = 200, rounds: int = 3
) -> NDArray[np.float64]:
    """The known bits, and of each missing one the probability that it is 1 given the known ones: [N, n_x].

    :param x: [N, n_x]; what stands where bits are missing does not matter.
    :param is_missing: booleans [N, n_x].
    :param num_samples: draws for each row in a round. :param rounds: after the first, draws start from those before.
    :raises ValueError: if x and the mask do not fit the model or each other, for a mixture over orders (EoNADE), or a
        number is out of range.
    """
    mask = np.asarray(is_missing)
    if mask.dtype != bool or mask.shape != np.shape(x):
        raise ValueError(
            f"is_missing must be booleans of the shape of x, {np.shape(x)}, got {mask.dtype} {mask.shape}."
        )
    if num_samples < 1 or rounds < 1:
        raise ValueError(f"num_samples and rounds must be at least 1, got {num_samples} and {rounds}.")
    if model.decoders[0].conditional.is_mixture:
        raise ValueError("missing bits of a mixture over orders (eonade) cannot be drawn in order; use another model.")
    rows = check_data(np.where(mask, 0, np.asarray(x)), model.config, "x").astype(np.float64)
    size = max(1, _NUMBERS // (num_samples * max(model.config.visible, *model.config.hidden, 1)))
    found = rows.copy()
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        keys = fold(as_seed(seed), start)
        found[part] = _block(model, rows[part], mask[part], keys, num_samples, rounds)
    return found


def _block(
    model: DARN, rows: NDArray, mask: NDArray, seed: tf.Tensor, num_samples: int, rounds: int
) -> NDArray[np.float64]:
    x, is_missing = (np.repeat(array, num_samples, axis=0) for array in (rows, mask))
    keys = tf.unstack(tf.random.experimental.stateless_split(seed, 2 * rounds + 1))
    u = tf.random.stateless_uniform(x.shape, keys[-1]).numpy()
    filled = np.where(is_missing, u < model.visible_mean.numpy(), x)
    total, weight = np.zeros_like(rows), np.zeros(len(rows))
    largest = np.full(len(rows), -np.inf)
    for i in range(rounds):
        drawn, log_w = _draw(model, filled, is_missing, keys[2 * i])
        log_w = log_w.reshape(len(rows), num_samples)
        highest = np.maximum(largest, log_w.max(axis=1))
        scale, w = np.exp(largest - highest), np.exp(log_w - highest[:, None])
        drawn = drawn.reshape(len(rows), num_samples, -1)
        total = scale[:, None] * total + np.einsum("ns,nsj->nj", w, drawn)
        weight, largest = scale * weight + w.sum(axis=1), highest
        picks = _resampled(w, tf.random.stateless_uniform([len(rows)], keys[2 * i + 1]).numpy())
        filled = np.take_along_axis(drawn, picks[..., None], axis=1).reshape(x.shape)
    return np.where(mask, total / weight[:, None], rows)


def _draw(model: DARN, filled: NDArray, is_missing: NDArray, seed: tf.Tensor) -> tuple[NDArray, NDArray]:
    """Bits [M, n_x] with the missing ones drawn anew, and the logarithms of their weights, [M]."""
    first, second = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
    start, conditional = tf.constant(filled, model.dtype), model.decoders[0].conditional
    h: tuple[tf.Tensor, ...] = ()
    log_w: tf.Tensor = tf.zeros([len(filled)], model.dtype)
    if model.encoders:
        encoded = model.encode(start, model.encoder_noise(len(filled), first), _unit)
        h = encoded.h
        log_q = tf.add_n([bernoulli_log_prob(bits, _clipped(a)) for bits, a in zip(h, encoded.logits, strict=True)])
        log_w += model.log_prior(h) - log_q
    offset = model.visible_offset(h)
    noise = logistic_noise(filled.shape, second, model.dtype)
    fixed = tf.where(start > 0, tf.constant(-np.inf, model.dtype), tf.constant(np.inf, model.dtype))
    x = conditional.sample_from_noise(tf.where(is_missing, noise, fixed), offset)
    a = conditional.logits(x, offset)
    log_w += tf.reduce_sum(tf.where(is_missing, tf.zeros_like(a), x * a - tf.nn.softplus(a)), axis=-1)
    return x.numpy(), log_w.numpy().astype(np.float64)


def _clipped(a: tf.Tensor) -> tf.Tensor:
    return tf.clip_by_value(a, -_LIMIT, _LIMIT)


def _unit(a: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    return threshold(_clipped(a), noise)


def _resampled(w: NDArray, u: NDArray) -> NDArray[np.intp]:
    """Systematic resampling: of each row [N, S] as many places as weights, by one uniform number [N]: [N, S]."""
    edges = np.cumsum(w, axis=1)
    points = (np.arange(w.shape[1]) + u[:, None]) / w.shape[1] * edges[:, -1:]
    places = [np.searchsorted(e, p, side="right") for e, p in zip(edges, points, strict=True)]
    return np.minimum(np.stack(places), w.shape[1] - 1)
