"""Missing bits given the others: p(x_j = 1 | x_known), exactly where few states are to be summed, else by importance
sampling.

Exactly: over all values of the missing bits, and of the stochastic units by `exact_log_likelihood`; with a factorial
decoder the missing bits need no values, p(x_j = 1 | x_known) = sum_h p(h | x_known) p(x_j = 1 | h).

By sampling: let u_1, ..., u_S fill the missing bits in some way. With h from the mixture

    q(h) = (1 - e) (1 / S) sum_s q(h | x_known, u_s) + e p(h)

and the missing bits from p(x | h), one after the other, past the known ones, each draw has the weight

    w = p(h) prod_{j known} p(x_j | x_<j, h) / q(h),      E[w f(x)] = p(x_known) E[f(x) | x_known]

for any u, so that sum w x / sum w tends to the conditional mean. u are draws of the columns' means at first, for draws
that do not count, then what was drawn last, by its weights. There are twice as many draws again and again until their
effective number, (sum w)^2 / sum w^2, is large enough.
"""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from darn.model.autoregressive import bernoulli_log_prob, logistic_noise, threshold
from darn.model.config import check_data
from darn.model.description_length import all_states, exact_log_likelihood
from darn.model.model import DARN
from darn.more.distribution import MAX_EXACT_UNITS, warning_level
from gpflow_deep_base.seeds import Seed, as_seed

__all__ = ["Completed", "check_draws", "checked_mask", "complete", "completed", "warn_of_few_draws"]

_NUMBERS = 2**21  # of one block of rows times draws times units, or rows times states times columns
_DRAWS = 250  # of a row at a time
_LIMIT = 4.0  # of the encoder's logits: it was trained on whole rows and is too sure of others
_FROM_PRIOR = 0.2  # e: no state is ruled out


class Completed(NamedTuple):
    """What the known bits say.

    :ivar probabilities: [N, n_x]: the known bits, and of each missing one the probability that it is 1.
    :ivar log_known: log p(known bits), [N], nats; estimated where the probabilities are.
    :ivar effective: effective number of the draws of a row, [N]; infinite where all states were summed.
    """

    probabilities: NDArray[np.float64]
    log_known: NDArray[np.float64]
    effective: NDArray[np.float64]


def complete(
    model: DARN,
    x: ArrayLike,
    is_missing: ArrayLike,
    *,
    seed: Seed = 0,
    max_exact_bits: int = MAX_EXACT_UNITS,
    min_effective: float = 200.0,
    max_samples: int = 32_000,
) -> NDArray[np.float64]:
    """The known bits, and of each missing one the probability that it is 1 given the known ones: [N, n_x].

    Exact for rows with at most 16 missing bits and stochastic units together, and for all rows if the decoder is
    factorial and has at most 16 units. Else the standard error is about sqrt(p (1 - p) / effective samples), at most
    0.035 with 200 of them; a warning counts the rows that have fewer.

    :param x: [N, n_x]; what stands where bits are missing does not matter.
    :param is_missing: booleans [N, n_x].
    :param max_exact_bits: in place of 16; each one doubles the time of a row. 0: sample always.
    :param min_effective: effective number of samples of a row at which it is done.
    :param max_samples: most draws for a row.
    :raises ValueError: if x and the mask do not fit the model or each other, a number is out of range, or for a row of
        a mixture over orders (EoNADE) with too many missing bits to sum over.
    """
    completion = completed(
        model,
        x,
        is_missing,
        min_effective=min_effective,
        max_samples=max_samples,
        seed=seed,
        max_exact_bits=max_exact_bits,
    )
    warn_of_few_draws(completion, min_effective, max_samples)
    return completion.probabilities


def warn_of_few_draws(found: Completed, min_effective: float = 200.0, max_samples: int = 32_000) -> None:
    """Warn of rows that have fewer effective draws than they should.

    :param found: of all rows.
    :param min_effective: as of :func:`complete`.
    :param max_samples: likewise.
    """
    if (is_small := found.effective < min_effective).any():
        warnings.warn(
            f"missing bits of {is_small.sum()} of {len(is_small)} rows have fewer than {min_effective:g} effective "
            f"samples after {max_samples} draws ({found.effective.min():.1f} at the least): their probabilities may be "
            "off; give a larger max_samples.",
            stacklevel=warning_level(),
        )


def checked_mask(x: ArrayLike, is_missing: ArrayLike) -> NDArray[np.bool_]:
    """The mask of missing bits.

    :raises ValueError: if it is not of booleans, or has another shape than x.
    """
    mask = np.asarray(is_missing)
    if mask.dtype != bool or mask.shape != np.shape(x):
        raise ValueError(
            f"is_missing must be booleans of the shape of x, {np.shape(x)}, got {mask.dtype} {mask.shape}."
        )
    return mask


def check_draws(min_effective: float, max_samples: int) -> None:
    """Refuse numbers of draws that no row can have.

    :raises ValueError: naming both.
    """
    if max_samples < 1 or not min_effective > 0:
        raise ValueError(
            f"max_samples must be at least 1 and min_effective positive, got {max_samples} and {min_effective}."
        )


def completed(
    model: DARN,
    x: ArrayLike,
    is_missing: ArrayLike,
    *,
    seed: Seed = 0,
    max_exact_bits: int = MAX_EXACT_UNITS,
    min_effective: float = 200.0,
    max_samples: int = 32_000,
) -> Completed:
    """As :func:`complete` without its warning, and how probable the known bits are: NaN for rows that lack nothing.

    Parameters and errors as there.
    """
    mask = checked_mask(x, is_missing)
    check_draws(min_effective, max_samples)
    if not 0 <= max_exact_bits <= MAX_EXACT_UNITS:
        raise ValueError(f"max_exact_bits must be from 0 to {MAX_EXACT_UNITS}, got {max_exact_bits}.")
    rows = check_data(np.where(mask, 0, np.asarray(x)), model.config, "x").astype(np.float64)
    numbers = mask.sum(axis=1)
    probabilities = rows.copy()
    log_known = np.full(len(rows), np.nan)
    effective = np.full(len(rows), np.inf)
    # A factorial decoder: the missing bits need no values, and only h is summed over.
    if model.config.visible_conditional == "factorial" and model.num_hidden <= max_exact_bits:
        means, log_known = _summed_over_units(model, rows, mask)
        return Completed(np.where(mask, means, rows), np.where(numbers > 0, log_known, np.nan), effective)
    # Few bits and units: all their values, for all rows that lack as many at once.
    is_exact = numbers + model.num_hidden <= max_exact_bits
    for number in np.unique(numbers[is_exact & (numbers > 0)]):
        part = is_exact & (numbers == number)
        probabilities[part], log_known[part] = _enumerated(model, rows[part], mask[part])
    # Too many: importance sampling.
    if (others := np.flatnonzero(~is_exact & (numbers > 0))).size:
        if model.decoders[0].conditional.is_mixture:
            raise ValueError(
                "missing bits of a mixture over orders (eonade, orders above 1) cannot be drawn in order, and are too "
                f"many to be summed over in {len(others)} rows; use another model."
            )
        parts = _sampled(model, rows[others], mask[others], seed, min_effective, max_samples)
        probabilities[others], log_known[others], effective[others] = parts
    return Completed(probabilities, log_known, effective)


def _summed_over_units(model: DARN, rows: NDArray, mask: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """E[p(x_j = 1 | h) | x_known] of a factorial decoder by all states of h, [N, n_x], and log p(x_known), [N]."""
    if not model.config.hidden:
        logits = model.visible_logits(tf.constant(rows, model.dtype), ()).numpy().astype(np.float64)
        log_p = np.where(mask, 0.0, rows * logits - np.logaddexp(0.0, logits)).sum(axis=1)
        return 1.0 / (1.0 + np.exp(-logits)), log_p
    is_known, ones = (tf.constant(part, model.dtype) for part in (~mask, rows * ~mask))
    # log p(x_known, h) of each block of states, and what it adds to sum_h p(x_known, h) p(x_j = 1 | h).
    states = all_states(model.num_hidden)
    size = max(1, _NUMBERS // max(len(rows), model.config.visible))
    sums = _Sums(*rows.shape)
    for start in range(0, len(states), size):
        part = tf.constant(states[start : start + size], model.dtype)
        h = tuple(tf.split(part, model.config.hidden, axis=1))
        offset = model.visible_offset(h)
        a = model.decoders[0].conditional.logits(offset, offset)
        log_p = tf.matmul(ones, a, transpose_b=True) - tf.matmul(is_known, tf.nn.softplus(a), transpose_b=True)
        log_p += model.log_prior(h)
        w = sums.weigh(log_p.numpy())
        sums.total += w @ tf.sigmoid(a).numpy()
    return sums.mean, sums.log_sum


def _enumerated(model: DARN, rows: NDArray, mask: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """By p(x) of each row with all values of its missing bits, of which all rows have equally many, [N, n_x]; and
    log p(x_known), [N]."""
    places = np.nonzero(mask)[1].reshape(len(rows), -1)
    values = all_states(places.shape[1])
    size = max(1, _NUMBERS // (len(values) * rows.shape[1]))
    probabilities = rows.copy()
    log_known = np.zeros(len(rows))
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        # Each row with all values of its missing bits.
        filled = np.repeat(rows[part, None], len(values), axis=1)
        np.put_along_axis(filled, places[part, None], np.broadcast_to(values, (len(filled), *values.shape)), axis=2)
        log_p = exact_log_likelihood(model, filled.reshape(-1, rows.shape[1])).reshape(filled.shape[:2])
        log_known[part] = np.logaddexp.reduce(log_p, axis=1)
        # The values' mean by p(x_missing | x_known).
        w = np.exp(log_p - log_p.max(axis=1, keepdims=True))
        np.put_along_axis(probabilities[part], places[part], w @ values / w.sum(axis=1, keepdims=True), axis=1)
    return probabilities, log_known


def _sampled(model: DARN, rows: NDArray, mask: NDArray, seed: Seed, least: float, most: int) -> Completed:
    """By draws."""
    # Blocks of rows, so that draws of all of them and pairs of draws fit into memory.
    draws = min(_DRAWS, most)
    size = max(1, _NUMBERS // (draws * max(model.config.visible, *model.config.hidden, draws)))
    probabilities = rows.copy()
    log_known = np.zeros(len(rows))
    effective = np.zeros(len(rows))
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        sums = _block(model, rows[part], mask[part], tf.random.fold_in(as_seed(seed), start), draws, least, most)
        probabilities[part] = np.where(mask[part], sums.mean, rows[part])
        effective[part] = sums.effective
        log_known[part] = sums.log_sum - np.log(sums.count)
    return Completed(probabilities, log_known, effective)


def _block(model: DARN, rows: NDArray, mask: NDArray, seed: tf.Tensor, draws: int, least: float, most: int) -> _Sums:
    """Sums over draws, twice as many again and again of those rows for which they do not suffice."""
    rng = np.random.default_rng(seed.numpy().astype(np.uint32))
    of_prior = int(_FROM_PRIOR * draws) if model.encoders else 0
    # u at first: draws of the columns' means, past the known bits.
    u = rng.uniform(size=(len(rows), draws - of_prior, rows.shape[1]))
    filled = np.where(mask[:, None], u < model.visible_mean.numpy(), rows[:, None])
    if model.encoders:
        filled = _redrawn(*_draw(model, filled, mask, of_prior, tf.random.fold_in(seed, 0)), draws - of_prior, rng)
    # Draws with weights; u of the next ones is drawn from the last, by their weights.
    sums = _Sums(*rows.shape)
    active = np.arange(len(rows))
    num_drawn = 0
    num_wanted = 1
    while len(active):
        while num_drawn < num_wanted:
            num_drawn += 1
            drawn, log_w = _draw(model, filled, mask[active], of_prior, tf.random.fold_in(seed, num_drawn))
            w = sums.weigh(log_w, active)
            sums.total[active] += np.einsum("ns,nsj->nj", w, drawn)
            filled = _redrawn(drawn, log_w, draws - of_prior, rng)
        # Rows with enough effective draws are done; the others get twice as many.
        is_open = (sums.effective[active] < least) & (num_drawn * draws < most)
        active = active[is_open]
        filled = filled[is_open]
        num_wanted = min(2 * num_drawn, -(-most // draws))
    return sums


def _draw(
    model: DARN, filled: NDArray, mask: NDArray, of_prior: int, seed: tf.Tensor
) -> tuple[NDArray, NDArray[np.float64]]:
    """Rows [N, S, n_x] with the missing bits drawn anew, the last of each row from the prior, and their log w, [N, S].

    :param filled: u, [N, S - of_prior, n_x].
    """
    seeds = tf.unstack(tf.random.experimental.stateless_split(seed, 3))
    u = tf.constant(np.concatenate([filled, filled[:, :of_prior]], axis=1), model.dtype)
    shape = u.shape
    is_missing = tf.constant(mask[:, None])
    conditional = model.decoders[0].conditional
    h: tuple[tf.Tensor, ...] = ()
    log_w: tf.Tensor = tf.zeros(shape[:2], model.dtype)
    # h from the mixture q, and p(h) / q(h).
    if model.encoders:
        h, log_w = _draw_hidden(model, u, of_prior, seeds[:2])
    # x from p(x | h), one bit after the other: noise that leaves no choice holds the known ones.
    offset = model.visible_offset(h)
    noise = logistic_noise(shape, seeds[2], model.dtype)
    fixed = tf.where(u > 0, tf.constant(-np.inf, model.dtype), tf.constant(np.inf, model.dtype))
    x = conditional.sample_from_noise(tf.reshape(tf.where(is_missing, noise, fixed), [-1, shape[2]]), offset)
    # w: log p(x_j | x_<j, h) of the known bits joins.
    log_p = tf.reshape(x * (a := conditional.logits(x, offset)) - tf.nn.softplus(a), shape)
    log_w += tf.reduce_sum(tf.where(is_missing, tf.zeros_like(log_p), log_p), axis=-1)
    return tf.reshape(x, shape).numpy(), log_w.numpy().astype(np.float64)


def _draw_hidden(
    model: DARN, u: tf.Tensor, of_prior: int, seeds: list[tf.Tensor]
) -> tuple[tuple[tf.Tensor, ...], tf.Tensor]:
    """h of all layers, [N S, n_l] each, and log p(h) - log q(h), [N, S]. The mixture q is over the S' = S - of_prior
    rows u that codes are drawn from where the first layer's factors tell these apart, else over the draw's own u.
    """
    (N, S, n_x) = u.shape
    config = model.config
    flat = tf.reshape(u, [-1, n_x])
    # Draws of the encoder, from rows u, and of the prior.
    num = S - of_prior
    encoded = model.encode(flat, model.encoder_noise(N * S, seeds[0]), _unit)
    prior = model.sample(N * S, seeds[1]).h if of_prior else encoded.h
    is_prior = tf.tile(tf.range(S) >= num, [N])[:, None]
    h = tuple(tf.where(is_prior, *pair) for pair in zip(prior, encoded.h, strict=True))
    # log q(h): of the first layer the mean over all rows u where its logits give it, else by the draw's own u.
    first, *others = (_clipped(a) for a in model.encoder_logits(flat, h))
    if config.encoder == "factorial" and not (config.skip and others):
        a = tf.reshape(first, [N, S, -1])[:, :num]
        bits = tf.reshape(h[0], [N, S, -1])
        log_q = tf.matmul(bits, a, transpose_b=True) - tf.reduce_sum(tf.nn.softplus(a), axis=-1)[:, None]
        log_q = tf.reduce_logsumexp(log_q, axis=-1) - math.log(num)
    else:
        log_q = tf.reshape(bernoulli_log_prob(h[0], first), [N, S])
    for pair in zip(h[1:], others, strict=True):
        log_q += tf.reshape(bernoulli_log_prob(*pair), [N, S])
    # The part e p(h) of the mixture.
    log_p = tf.reshape(model.log_prior(h), [N, S])
    if of_prior:
        parts = [log_q + math.log(num / S), log_p + math.log(of_prior / S)]
        log_q = tf.reduce_logsumexp(tf.stack(parts), axis=0)
    return h, log_p - log_q


class _Sums:
    """Sums over draws of N rows with weights that are given by their logarithms.

    :ivar total: of w x, [N, n_x], to be added to after :meth:`weigh`.
    :ivar count: draws of each row, [N].
    """

    def __init__(self, N: int, n_x: int) -> None:
        self.total = np.zeros([N, n_x])
        self.count = np.zeros(N)
        self._largest = np.full(N, -np.inf)
        self._weights = np.zeros(N)
        self._squares = np.zeros(N)

    def weigh(self, log_w: NDArray, at: slice | NDArray[np.intp] = slice(None)) -> NDArray[np.float64]:
        """The weights w [N', S] of new draws for the rows `at`, as a part of the largest of a row up to now."""
        # Sums up to now are brought to the new largest weight.
        largest = np.maximum(self._largest[at], log_w.max(axis=1))
        w = np.exp(log_w - largest[:, None])
        scale = np.exp(self._largest[at] - largest)
        self._largest[at] = largest
        self.count[at] += log_w.shape[1]
        self.total[at] *= scale[:, None]
        self._weights[at] = scale * self._weights[at] + w.sum(axis=1)
        self._squares[at] = scale**2 * self._squares[at] + np.square(w).sum(axis=1)
        return w

    @property
    def mean(self) -> NDArray[np.float64]:
        """sum w x / sum w, [N, n_x]."""
        return self.total / self._weights[:, None]

    @property
    def log_sum(self) -> NDArray[np.float64]:
        """log sum w, [N]."""
        log_sums: NDArray[np.float64] = self._largest + np.log(self._weights)
        return log_sums

    @property
    def effective(self) -> NDArray[np.float64]:
        """(sum w)^2 / sum w^2, [N]."""
        return self._weights**2 / self._squares


def _clipped(a: tf.Tensor) -> tf.Tensor:
    return tf.clip_by_value(a, -_LIMIT, _LIMIT)


def _unit(a: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    return threshold(_clipped(a), noise)


def _redrawn(drawn: NDArray, log_w: NDArray, num: int, rng: np.random.Generator) -> NDArray:
    """`num` of the draws of each row by their weights, in a random order: systematic resampling, [N, num, n_x]."""
    # One uniform number a row: evenly spaced points on the sums of the weights.
    edges = np.cumsum(np.exp(log_w - log_w.max(axis=1, keepdims=True)), axis=1)
    points = (np.arange(num) + rng.uniform(size=(len(edges), 1))) / num * edges[:, -1:]
    places = np.stack([np.searchsorted(e, p, side="right") for e, p in zip(edges, points, strict=True)])
    places = rng.permuted(np.minimum(places, edges.shape[1] - 1), axis=1)
    return np.take_along_axis(drawn, places[..., None], axis=1)
