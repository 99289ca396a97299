"""The description length that a DARN minimises, and log p(x), which it bounds (Gregor et al., 2014, Eqs. 11-16).

A sender codes h with p(h), then x with p(x | h), and gets back the bits with which h was chosen:

    L(x | h) = -log2 p(x | h)                                                   (11)
    L(h)     = -log2 p(h) + log2 q(h | x)                                       (13)
    L(x)     = E_q[log2 q(h | x) - log2 p(h) - log2 p(x | h)] >= -log2 p(x)     (14), (15)

    exact      log p(x) = log sum_h p(x, h),                            for at most 16 stochastic units
    sampling   log p^(x) = log (1 / S) sum_s p(x, h_s) / q(h_s | x),    h_s ~ q(h | x)                  (16)

The second is low by about Var(w) / 2S, and by less the more samples. Both are streamed: neither holds more than a few
million numbers. The paper's Eqs. (11)-(14) have lost their minus signs in print. Everything is computed in nats and
converted at the end.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from darn.model.autoregressive import threshold
from darn.model.config import check_whole
from darn.model.model import DARN, DARNConfig, check_data
from darn.more.distribution import MAX_EXACT_UNITS, log_joint_of_pairs, log_weights, own_logits
from gpflow_deep_base.numbers.scores import standard_error
from gpflow_deep_base.runtime.tracing import counted_alone
from gpflow_deep_base.seeds import Seed, as_seed

__all__ = [
    "DescriptionLength",
    "ImportanceEstimate",
    "all_states",
    "code_lengths",
    "description_length",
    "exact_log_likelihood",
    "fast_sampling_cost",
    "importance_log_likelihood",
    "is_fdarn",
    "row_width",
]

_CHUNK_NUMBERS = 2**24  # float numbers of the largest intermediate result of one call


class DescriptionLength(NamedTuple):
    """Expected code lengths of each row, [N], in the unit that was asked for.

    :ivar total: L(x).
    :ivar hidden: E[-log p(h)].
    :ivar bits_back: E[log q(h | x)], negative.
    :ivar visible: E[-log p(x | h)]. total = hidden + bits_back + visible.
    """

    total: NDArray[np.float64]
    hidden: NDArray[np.float64]
    bits_back: NDArray[np.float64]
    visible: NDArray[np.float64]

    @property
    def kl(self) -> NDArray[np.float64]:
        """What the stochastic units carry of each row: E[log q(h | x) - log p(h)] = KL(q(h | x) || p(h)), [N]."""
        return self.hidden + self.bits_back


def code_lengths(model: DARN, x: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """-log p(h), log q(h | x) and -log p(x | h) for one draw h ~ q(h | x), [B] each, nats; without checks.

    :param x: [B, n_x] in the model's dtype.
    :param seed: int32 [2].
    """
    # h ~ q(h | x), coded with p(h), then x with p(x | h), Eq. (11).
    encoded = model.encode(x, model.encoder_noise(tf.shape(x)[0], seed), threshold)
    visible = -model.log_visible(x, encoded.h)
    if not encoded.h:
        return tf.zeros_like(visible), tf.zeros_like(visible), visible
    # Eq. (13): the choice of h gives log q(h | x) back.
    return -model.log_prior(encoded.h), model.log_q(x, encoded.h), visible


def description_length(
    model: DARN,
    x: ArrayLike,
    *,
    seed: Seed,
    num_samples: int = 1,
    unit: str = "nats",
    batch_size: int | None = None,
) -> DescriptionLength:
    """The expected description length of each row and its parts, Eqs. (12)-(15), by `num_samples` draws of h.

    :param x: [N, n_x].
    :param unit: "nats" or "bits".
    :param batch_size: rows at a time, on which the draws of a seed depend; as many as fit into memory if not given.
    :raises ValueError: for data that the model cannot have produced (see `check_data`), an unknown unit, or a number
        below 1.
    """
    if unit not in ("nats", "bits"):
        raise ValueError(f"unit must be 'nats' or 'bits', got {unit!r}.")
    rows = check_data(x, model.config, "x")
    seed = as_seed(seed)
    if batch_size is None:
        batch_size = max(1, min(len(rows), _CHUNK_NUMBERS // row_width(model)))
    check_whole("num_samples", num_samples)
    check_whole("batch_size", batch_size)
    # Sums over draws of h of the three code lengths, block by block.
    run = compiled_code_lengths(model)
    scale = 1.0 / math.log(2.0) if unit == "bits" else 1.0
    parts = np.zeros([3, len(rows)])
    for sample in range(num_samples):
        for start in range(0, len(rows), batch_size):
            batch = tf.constant(rows[start : start + batch_size], model.dtype)
            key = tf.random.fold_in(tf.random.fold_in(seed, sample), start)
            parts[:, start : start + batch_size] += run(batch, key).numpy()
    # Eq. (15): L(x) = E[-log p(h) + log q(h | x) - log p(x | h)].
    hidden, bits_back, visible = scale * parts / num_samples
    return DescriptionLength(hidden + bits_back + visible, hidden, bits_back, visible)


def compiled_code_lengths(model: DARN) -> tf.types.experimental.PolymorphicFunction:
    """`code_lengths` of a model as a graph that is kept with the model: (x [B, n_x], seed [2]) to [3, B]."""
    spec = (tf.TensorSpec([None, model.config.visible], model.dtype), tf.TensorSpec([2], tf.int32))

    def make() -> tf.types.experimental.PolymorphicFunction:
        @functools.partial(tf.function, input_signature=spec, autograph=False)
        @counted_alone
        def run(x: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
            return tf.stack(code_lengths(model, x, seed))

        return run

    return model.graphs.get("code lengths", make)


def fast_sampling_cost(model: DARN, seed: Seed, num_samples: int = 1000) -> tuple[float, float]:
    """Multiplications for one sample of an fDARN, n_s (n_h + n_x), and the mean number n_s of active units (Sec. 2.3).

    Only units that are 1 contribute to the units after them.

    :raises ValueError: for another model, see :func:`is_fdarn`.
    """
    config = model.config
    if not is_fdarn(config):
        raise ValueError(
            "the cost n_s (n_h + n_x) is that of an fDARN: one stochastic layer, a linear prior, a factorial decoder "
            f"without deterministic units; got hidden={config.hidden}, units={config.units}, prior={config.prior!r}, "
            f"visible_conditional={config.visible_conditional!r}."
        )
    # n_s: units that are 0 add nothing to the sums of later units, and cost nothing.
    active = float(tf.reduce_mean(tf.reduce_sum(model.prior.sample(num_samples, seed), axis=-1)))
    return active * (config.hidden[0] + config.visible), active


def is_fdarn(config: DARNConfig) -> bool:
    """Whether a model is the paper's fDARN: one stochastic layer, a linear prior, and a decoder without deterministic
    units or autoregression."""
    is_linear = config.prior == "linear" and config.visible_conditional == "factorial" and config.local is None
    return len(config.hidden) == 1 and not config.units and is_linear


def row_width(model: DARN) -> int:
    """Numbers that one row needs in the widest layer, roughly."""
    # NADE holds its hidden units for each bit; layers of images hold windows of all places.
    config = model.config
    kinds = {config.prior, config.visible_conditional} & {"nade", "eonade"}
    widest = max(config.visible, *config.hidden, 1) * (config.conditional_units if kinds else 1)
    if config.local is not None:
        widest = max(widest, 16 * config.visible, *(config.local.units_kernel**2 * n for n in config.local.hidden))
    if config.pixelcnn is not None:
        widest = max(widest, 8 * config.pixelcnn.filters * config.visible)
    return int(widest)


_PRODUCT_NUMBERS = 2**22  # of one block of states times rows, factorial decoder
_BLOCK_NUMBERS = 2**20  # of one block of states times rows times units


class ImportanceEstimate(NamedTuple):
    """log p(x) by importance sampling, in nats.

    :ivar log_likelihood: of each row, the mean over the repeats, [N].
    :ivar repeats: mean over the rows of each repeat, [R].
    :ivar mean: of the repeats.
    :ivar interval: its 95 % confidence interval, Student's t with R - 1 degrees of freedom;
        it holds the noise of sampling only, not the rows'.
    :ivar effective: number of samples of equal weight that are worth as much as the S of one repeat, (sum w)^2 over
        sum w^2, of each row, the mean over the repeats, [N]. Where it is a few, so are the states that count: the
        estimate is low by an unknown amount, of which the interval says nothing.
    :ivar bias: by how much the samples of all repeats together give more than those of one, nats: R / (R - 1) times
        that is how low `mean` is as far as these samples can say, for the bias falls as 1 / S.
    """

    log_likelihood: NDArray[np.float64]
    repeats: NDArray[np.float64]
    mean: float
    interval: tuple[float, float]
    effective: NDArray[np.float64]
    bias: float

    @property
    def standard_error(self) -> float:
        """Of `mean`, by the repeats: what the noise of sampling leaves open, nats; infinite for one repeat."""
        return standard_error(self.repeats, of_one=math.inf)


def exact_log_likelihood(model: DARN, x: ArrayLike) -> NDArray[np.float64]:
    """log p(x) by enumeration of all states of the stochastic units, [N], nats.

    :param x: [N, n_x].
    :raises ValueError: if the model has more than 16 stochastic units, or x does not fit the model.

    With a factorial decoder the logits of the visible units do not depend on x, and all rows cost one product of
    matrices, 2^n_h n_x N multiplications. With autoregression between visible units every (h, x) needs n_x logarithms:
    2^n_h n_x N of them, some 10 ns each on one core.
    """
    rows = check_data(x, model.config, "x")
    total = model.num_hidden
    if total > MAX_EXACT_UNITS:
        raise ValueError(
            f"the exact likelihood needs at most {MAX_EXACT_UNITS} stochastic units, got {total}; use "
            "importance_log_likelihood."
        )
    if total == 0:
        return _fully_visible(model, rows)
    # Blocks of states and rows, of sizes that fit into memory.
    states = all_states(total)
    is_factorial = model.config.visible_conditional == "factorial"
    width = 1 if is_factorial else row_width(model)
    numbers = _PRODUCT_NUMBERS if is_factorial else _BLOCK_NUMBERS
    batch = max(1, min(len(rows), 4096 if is_factorial else 128))
    chunk = max(1, min(len(states), numbers // (batch * width)))

    # log sum_h p(x, h), a block of states at a time.
    block = model.graphs.get("exact", lambda: _compiled_exact(model))
    result = np.full(len(rows), -np.inf)
    batches = [tf.constant(rows[i : i + batch], model.dtype) for i in range(0, len(rows), batch)]
    for start in range(0, len(states), chunk):
        h = tf.constant(states[start : start + chunk], model.dtype)
        for i, batch_rows in enumerate(batches):
            part = slice(i * batch, i * batch + len(batch_rows))
            result[part] = np.logaddexp(result[part], block(h, batch_rows).numpy())
    return result


def importance_log_likelihood(
    model: DARN,
    x: ArrayLike,
    *,
    seed: Seed,
    num_samples: int = 100_000,
    repeats: int = 10,
    batch_size: int = 100,
    jit_compile: bool = False,
) -> ImportanceEstimate:
    """Estimate log p(x) with the encoder as proposal, Eq. (16); the sum is streamed, so S costs time and no memory.

    :param x: [N, n_x].
    :param seed: repeats and rows have noise of their own.
    :param num_samples: S of one repeat.
    :param repeats: R, at least 2 for an interval.
    :param batch_size: rows at a time.
    :param jit_compile: compile with XLA, which pays for large S.
    :raises ValueError: if x does not fit the model, or a number is out of range.
    """
    rows = check_data(x, model.config, "x")
    for name, value in (("num_samples", num_samples), ("repeats", repeats), ("batch_size", batch_size)):
        check_whole(name, value)
    if model.num_hidden == 0:
        exact = _fully_visible(model, rows)
        # Without stochastic units every weight is p(x) itself, and nothing is left to chance.
        means = np.full(repeats, exact.mean())
        effective = np.full(len(rows), float(num_samples))
        return ImportanceEstimate(exact, means, float(exact.mean()), (exact.mean(),) * 2, effective, 0.0)
    # As many draws of a row at a time as memory allows.
    seed = as_seed(seed)
    batch_size = min(batch_size, len(rows))
    copies = max(1, min(num_samples, _BLOCK_NUMBERS // (batch_size * row_width(model))))
    run = model.graphs.get(("importance", jit_compile), lambda: _compiled_importance(model, jit_compile))
    # Eq. (16) for each repeat and block of rows; the last block is filled up with copies of the last row.
    estimates, effective = np.zeros([2, repeats, len(rows)])
    padded = np.concatenate([rows, np.repeat(rows[-1:], -len(rows) % batch_size, axis=0)])
    for repeat in range(repeats):
        for start in range(0, len(rows), batch_size):
            key = tf.random.fold_in(seed, repeat)
            key = tf.random.fold_in(key, start)
            batch = tf.constant(padded[start : start + batch_size], model.dtype)
            values = run(batch, tf.constant(num_samples), tf.constant(copies), key)
            part = slice(start, min(start + batch_size, len(rows)))
            estimates[repeat, part], effective[repeat, part] = (v.numpy()[: len(rows) - start] for v in values)
    # The mean over the repeats, and how much more all samples give together.
    means = estimates.mean(axis=1)
    pooled = special.logsumexp(estimates, axis=0) - math.log(repeats)
    bias = float(pooled.mean() - means.mean())
    return ImportanceEstimate(
        estimates.mean(axis=0), means, float(means.mean()), _interval(means), effective.mean(axis=0), bias
    )


def _compiled_exact(model: DARN) -> tf.types.experimental.PolymorphicFunction:
    """(states [S, n], x [B, n_x]) to log sum_s p(x, h_s), [B]."""

    @tf.function(autograph=False, reduce_retracing=True)
    def block(h: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        log_p = log_joint_of_pairs(model, rows, tf.split(h, model.config.hidden, axis=1))
        return tf.cast(tf.reduce_logsumexp(log_p, axis=0), tf.float64)

    return block


def _compiled_importance(model: DARN, jit_compile: bool) -> tf.types.experimental.PolymorphicFunction:
    """(x [B, n_x], S, copies, seed [2]) to log p^(x) and effective samples, [B] in float64, `copies` draws of each row
    at a time. One graph for all B; XLA compiles it for each.
    """
    numbers = [tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.int32), tf.TensorSpec([2], tf.int32)]
    spec = [tf.TensorSpec([None, model.config.visible], model.dtype), *numbers]

    @functools.partial(tf.function, input_signature=spec, autograph=False, jit_compile=jit_compile)
    @counted_alone
    def run(x: tf.Tensor, num_samples: tf.Tensor, copies: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        num_rows = tf.shape(x)[0]
        visible_logits = own_logits(model, x)

        def add(done: tf.Tensor, log_sum: tf.Tensor, log_squares: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            # log w = log p(x, h) - log q(h | x) of `copies` draws; draws beyond S do not count.
            noise = model.encoder_noise(copies * num_rows, tf.random.fold_in(seed, done))
            log_w = tf.cast(log_weights(model, x, noise, copies, visible_logits), tf.float64)
            log_w = tf.where((done + tf.range(copies) < num_samples)[:, None], log_w, -math.inf)
            # Running sums of w and of w^2, by their logarithms.
            log_sum = tf.reduce_logsumexp(tf.concat([log_sum[None], log_w], axis=0), axis=0)
            log_squares = tf.reduce_logsumexp(tf.concat([log_squares[None], 2.0 * log_w], axis=0), axis=0)
            return done + copies, log_sum, log_squares

        start = tf.fill([num_rows], tf.constant(-math.inf, tf.float64))
        _, log_sum, log_squares = tf.while_loop(
            lambda done, *_: done < num_samples, add, (tf.constant(0), start, start)
        )
        return log_sum - tf.math.log(tf.cast(num_samples, tf.float64)), tf.exp(2.0 * log_sum - log_squares)

    return run


def _fully_visible(model: DARN, rows: NDArray) -> NDArray[np.float64]:
    batch = max(1, _BLOCK_NUMBERS // row_width(model))
    parts = [
        model.log_visible(tf.constant(rows[i : i + batch], model.dtype), ()).numpy() for i in range(0, len(rows), batch)
    ]
    return np.concatenate(parts).astype(np.float64)


def _interval(means: NDArray[np.float64]) -> tuple[float, float]:
    if len(means) < 2:
        return -math.inf, math.inf
    # Student's t, for the spread is estimated by the repeats, too.
    half = stats.t.ppf(0.975, len(means) - 1) * means.std(ddof=1) / math.sqrt(len(means))
    return float(means.mean() - half), float(means.mean() + half)


def all_states(n: int) -> NDArray[np.int64]:
    """{0, 1}^n in binary counting, [2^n, n]."""
    return (np.arange(2**n)[:, None] >> np.arange(n)[::-1]) & 1
