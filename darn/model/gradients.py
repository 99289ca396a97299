"""Gradients of the description length through binary units (Gregor et al., 2014, Section 4 and Appendix A).

For one unit h with P(h = 1) = q = sigmoid(a) and a differentiable cost f, exactly dE[f]/da = q (1 - q) (f(1) - f(0)).
The paper's estimator takes the derivative of f at the sampled bit and scales it:

    dL/dq = f'(h) / (2 q(h)),      so      dL/da = |h - q| f'(h) / 2,

which needs no division, composes through stacked layers, and is the trapezoid rule for f(1) - f(0): exact where f is
quadratic in each unit, with an error of -f'''/12 otherwise.

All estimators are chosen by one name, see :data:`ESTIMATORS`; `estimate` gives a loss whose value is the sampled
description length in nats and whose gradient is the estimator's.

    darn              the paper's
    straight_through  dL/dq = f'(h): biased more, a little less noise
    reinforce         the score, with the mean cost of the minibatch's other rows as baseline
    rloo              the score with K samples, each with the mean of the others as baseline
    disarm            antithetic pairs (Dong, Mnih and Tucker, 2020); one factorial stochastic layer
    simpson           Simpson's rule instead of the trapezoid: a pass for each unit; one factorial stochastic layer

The last four are unbiased, except Simpson's, whose error is of fifth order: `gradient_report` gives the exact bias and
variance of each for small models, by enumeration of all states.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from darn.model.autoregressive import Unit, bernoulli_log_prob, threshold
from darn.model.model import DARN, check_data
from darn.model.replicas import mean_over_replicas, num_replicas, sum_over_replicas

__all__ = [
    "ENTROPIES",
    "ESTIMATORS",
    "Entropy",
    "Estimate",
    "Estimator",
    "GradientMoments",
    "check_estimator",
    "darn_unit",
    "estimate",
    "gradient_report",
    "scored",
    "sparsity_penalty",
    "straight_through_unit",
]

Estimator = Literal["darn", "straight_through", "reinforce", "rloo", "disarm", "simpson"]
Entropy = Literal["sampled", "exact"]
ESTIMATORS: tuple[str, ...] = get_args(Estimator)
ENTROPIES: tuple[str, ...] = get_args(Entropy)


class Estimate(NamedTuple):
    """A sampled description length; everything in nats, [B].

    :ivar loss: to be averaged and minimised; its gradient is the estimator's.
    :ivar prior: -log p(h).
    :ivar bits_back: log q(h | x), which bits-back coding returns (negative).
    :ivar visible: -log p(x | h). loss = prior + bits_back + visible in value.
    :ivar q: P(h = 1) of the units of each layer, [B, n_l].
    :ivar logits: of q, [B, n_l] for each layer; of all samples, [K B, n_l], for "rloo".
    """

    loss: tf.Tensor
    prior: tf.Tensor
    bits_back: tf.Tensor
    visible: tf.Tensor
    q: tuple[tf.Tensor, ...]
    logits: tuple[tf.Tensor, ...]


@tf.custom_gradient
def darn_unit(logits: tf.Tensor, noise: tf.Tensor) -> tuple[tf.Tensor, object]:
    """Bits 1[noise < a] with the gradient |h - q| / 2 of Appendix A in logit form."""
    h = threshold(logits, noise)

    def grad(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # Appendix A: dL/dq = dL/dh / (2 P(h)), times dq/da = q (1 - q), is |h - q| / 2.
        return 0.5 * tf.abs(h - tf.sigmoid(logits)) * upstream, tf.zeros_like(noise)

    return h, grad


@tf.custom_gradient
def straight_through_unit(logits: tf.Tensor, noise: tf.Tensor) -> tuple[tf.Tensor, object]:
    """Bits 1[noise < a] through which dL/dq = dL/dh."""
    h = threshold(logits, noise)

    def grad(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        q = tf.sigmoid(logits)
        return q * (1.0 - q) * upstream, tf.zeros_like(noise)

    return h, grad


_UNITS: dict[str, Unit] = {"darn": darn_unit, "straight_through": straight_through_unit}


def estimate(
    model: DARN,
    x: tf.Tensor,
    noise: Sequence[tf.Tensor],
    *,
    estimator: str = "darn",
    entropy: str = "sampled",
    baseline: tf.Tensor | None = None,
    num_samples: int = 2,
) -> Estimate:
    """One step of Eq. (15): sample h ~ q(h | x), and the description length with a gradient.

    :param x: [B, n_x] in the model's dtype.
    :param noise: `model.encoder_noise(B)`; for "rloo" of B * num_samples rows.
    :param entropy: how the gradient of E log q is taken: "sampled", through the bits alone ("sticking the landing": the
        score has mean zero and is left out), or "exact", that of minus the entropy. The mean is the same; "sampled" is
        quieter where q is near the posterior, "exact" for weak decoders.
    :param baseline: of "reinforce", nats, [] or [B]; the mean over the other rows if None.
    :param num_samples: K of "rloo".
    :raises ValueError: if a name is not known, or the estimator does not fit the model.
    """
    check_estimator(model, estimator, entropy)
    # Without stochastic units the description length is -log p(x), which is differentiated as it is.
    if not model.encoders:
        visible = -model.log_visible(x, ())
        zero = tf.zeros_like(visible)
        return Estimate(visible, zero, zero, visible, (), ())
    if estimator in _UNITS:
        return _pathwise(model, x, noise, _UNITS[estimator], entropy)
    if estimator == "reinforce":
        return _reinforce(model, x, noise, entropy, baseline)
    if estimator == "rloo":
        return _rloo(model, x, noise, entropy, num_samples)
    if estimator == "disarm":
        return _disarm(model, x, noise, entropy)
    return _simpson(model, x, noise, entropy)


def check_estimator(model: DARN, estimator: str, entropy: str = "sampled") -> None:
    """Check that the names are known and that the estimator fits the model.

    :raises ValueError: if not.
    """
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator must be one of {', '.join(ESTIMATORS)}, got {estimator!r}.")
    if entropy not in ENTROPIES:
        raise ValueError(f"entropy must be one of {', '.join(ENTROPIES)}, got {entropy!r}.")
    # Pairs and middles are of all units of one layer at once.
    config = model.config
    if estimator in ("disarm", "simpson") and (len(config.hidden) != 1 or config.encoder != "factorial"):
        raise ValueError(
            f"estimator {estimator!r} needs one stochastic layer with a factorial encoder, got hidden={config.hidden} "
            f"and encoder={config.encoder!r}; use 'darn' or 'rloo'."
        )


def _code_lengths(model: DARN, x: tf.Tensor, h: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """-log p(h) and -log p(x | h), [B], nats."""
    return -model.log_prior(h), -model.log_visible(x, h)


def _sum_log_prob(h: Sequence[tf.Tensor], logits: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.add_n([bernoulli_log_prob(bits, a) for bits, a in zip(h, logits, strict=True)])


def _minus_entropy(logits: Sequence[tf.Tensor]) -> tf.Tensor:
    """sum_j q a - log(1 + e^a), [B], nats: its gradient with respect to a is q (1 - q) a."""
    return tf.add_n([tf.reduce_sum(tf.sigmoid(a) * a - tf.nn.softplus(a), axis=-1) for a in logits])


def _bits_back(h: Sequence[tf.Tensor], logits: Sequence[tf.Tensor], entropy: str) -> tf.Tensor:
    """log q with the gradient of the chosen kind."""
    if entropy == "exact":
        return _with_gradient(_sum_log_prob(h, logits), _minus_entropy(logits))
    return _sum_log_prob(h, [tf.stop_gradient(a) for a in logits])


def _with_gradient(value: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """The value of one and the gradient of the other."""
    return tf.stop_gradient(value - like) + like


def _result(
    loss: tf.Tensor, prior: tf.Tensor, bits_back: tf.Tensor, visible: tf.Tensor, logits: Sequence[tf.Tensor]
) -> Estimate:
    return Estimate(loss, prior, bits_back, visible, tuple(tf.sigmoid(a) for a in logits), tuple(logits))


def _pathwise(model: DARN, x: tf.Tensor, noise: Sequence[tf.Tensor], unit: Unit, entropy: str) -> Estimate:
    encoded = model.encode(x, noise, unit)
    prior, visible = _code_lengths(model, x, encoded.h)
    bits_back = _bits_back(encoded.h, encoded.logits, entropy)
    return _result(prior + bits_back + visible, prior, bits_back, visible, encoded.logits)


def scored(
    model: DARN, x: tf.Tensor, noise: Sequence[tf.Tensor], entropy: str, copies: int = 1
) -> tuple[tf.Tensor, tf.Tensor, Estimate]:
    """f, whose mean is to be differentiated through q; log q, whose gradient is the score; the loss without it."""
    encoded = model.encode(x, noise, threshold, copies)
    x = tf.tile(x, [copies, 1])
    prior, visible = _code_lengths(model, x, encoded.h)
    log_q = _sum_log_prob(encoded.h, encoded.logits)
    f = tf.stop_gradient(prior + visible)
    # What depends on q by itself: minus its entropy ("exact"), or log q of the draw ("sampled").
    if entropy == "exact":
        minus_entropy = _minus_entropy(encoded.logits)  # that of a unit depends on the units before it: part of f
        bits_back = _with_gradient(log_q, minus_entropy)
        f += tf.stop_gradient(minus_entropy)
    else:
        bits_back = tf.stop_gradient(log_q)
        f += bits_back
    return f, log_q, _result(prior + bits_back + visible, prior, bits_back, visible, encoded.logits)


def _reinforce(
    model: DARN,
    x: tf.Tensor,
    noise: Sequence[tf.Tensor],
    entropy: str,
    baseline: tf.Tensor | None,
) -> Estimate:
    f, log_q, result = scored(model, x, noise, entropy)
    # The baseline of a row is the mean cost of all others, on all replicas.
    if baseline is None:
        others = tf.maximum(tf.cast(num_replicas() * tf.size(f), f.dtype) - 1.0, 1.0)
        baseline = (sum_over_replicas(tf.reduce_sum(f)) - f) / others
    return result._replace(loss=result.loss + _zero_with_gradient(f - baseline, log_q))


def _rloo(model: DARN, x: tf.Tensor, noise: Sequence[tf.Tensor], entropy: str, num_samples: int) -> Estimate:
    if num_samples < 2:
        raise ValueError(f"rloo needs at least 2 samples, got {num_samples}.")
    f, log_q, result = scored(model, x, noise, entropy, num_samples)
    # The baseline of a sample is the mean cost of the K - 1 others of its row.
    per_sample = tf.reshape(f, [num_samples, -1])
    baseline = (tf.reduce_sum(per_sample, axis=0) - per_sample) / (num_samples - 1.0)
    loss = result.loss + _zero_with_gradient(f - tf.reshape(baseline, [-1]), log_q)

    def mean(values: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(tf.reshape(values, tf.concat([[num_samples, -1], tf.shape(values)[1:]], 0)), axis=0)

    return Estimate(
        mean(loss),
        mean(result.prior),
        mean(result.bits_back),
        mean(result.visible),
        tuple(mean(q) for q in result.q),
        result.logits,
    )


def _disarm(model: DARN, x: tf.Tensor, noise: Sequence[tf.Tensor], entropy: str) -> Estimate:
    (logits,) = model.encode(x, noise, threshold).logits
    # An antithetic pair: the same noise with both signs.
    pair = tuple(threshold(logits, sign * noise[0]) for sign in (1.0, -1.0))
    f = []
    losses = []
    parts = []
    for h in pair:
        prior, visible = _code_lengths(model, x, (h,))
        log_q = bernoulli_log_prob(h, logits)
        cost = tf.stop_gradient(prior + visible)
        bits_back = tf.stop_gradient(log_q)
        if entropy == "exact":
            bits_back = _with_gradient(log_q, _minus_entropy([logits]))
        else:
            cost += bits_back
        f.append(cost)
        losses.append(prior + bits_back + visible)
        parts.append((prior, bits_back, visible))
    # The gradient (f(h) - f(h')) (h - h') sigmoid(|a|) / 2, in logit form.
    weight = (pair[0] - pair[1]) * tf.sigmoid(tf.abs(logits))
    gradient = 0.5 * (f[0] - f[1])[:, None] * weight
    loss = 0.5 * tf.add_n(losses) + tf.reduce_sum(_zero_with_gradient(gradient, logits), axis=-1)
    prior, bits_back, visible = (0.5 * tf.add_n(part) for part in zip(*parts, strict=True))
    return _result(loss, prior, bits_back, visible, [logits])


def _simpson(model: DARN, x: tf.Tensor, noise: Sequence[tf.Tensor], entropy: str) -> Estimate:
    # Through the draw itself passes a sixth of the slope at its end, by Simpson's rule.
    def simpson_unit(logits: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        h = threshold(logits, noise)
        return h + _zero_with_gradient(tf.abs(h - tf.sigmoid(logits)) / 6.0, logits)

    (h,), (logits,) = model.encode(x, noise, simpson_unit)
    prior, visible = _code_lengths(model, x, (h,))
    bits_back = _bits_back((h,), (logits,), entropy)
    # The slope at the middle, with unit i at 1/2 and all others as drawn.
    n = model.config.hidden[0]
    bits = tf.stop_gradient(h)
    middle = tf.eye(n, dtype=h.dtype)[:, None, :]
    at_half = tf.reshape(bits * (1.0 - middle) + 0.5 * middle, [-1, n])  # row (i, b) has unit i of example b at 1/2
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(at_half)
        cost = tf.add_n(_code_lengths(model, tf.tile(x, [n, 1]), (at_half,)))
        if entropy == "sampled":
            cost += bernoulli_log_prob(at_half, tf.tile(tf.stop_gradient(logits), [n, 1]))
    # Of the gradient at row (i, b) only that of unit i counts.
    slopes = tf.reshape(tape.gradient(cost, at_half), [n, -1, n])
    slope = tf.transpose(tf.linalg.diag_part(tf.transpose(slopes, [1, 0, 2])))
    # The middle has the weight 2/3 of the rule, times dq/da = q (1 - q).
    q = tf.sigmoid(logits)
    gradient = 2.0 / 3.0 * q * (1.0 - q) * tf.transpose(slope)
    loss = prior + bits_back + visible + tf.reduce_sum(_zero_with_gradient(gradient, logits), axis=-1)
    return _result(loss, prior, bits_back, visible, [logits])


def _zero_with_gradient(gradient: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """0 whose gradient with respect to `logits` is `gradient`."""
    return tf.stop_gradient(gradient) * (logits - tf.stop_gradient(logits))


def sparsity_penalty(estimated: Estimate, rho: float) -> tf.Tensor:
    """sum_j KL(Bernoulli(rho) || Bernoulli(mean of q_j over the minibatch)), [], nats.

    The paper names a sparsity penalty for fDARN without a formula; this one is ours.
    """
    total = []
    for q in estimated.q:
        # P(h_j = 1) over the minibatch, of all replicas together.
        mean = tf.clip_by_value(mean_over_replicas(tf.reduce_mean(q, axis=0)), 1e-6, 1.0 - 1e-6)
        active = rho * (math.log(rho) - tf.math.log(mean))
        silent = (1.0 - rho) * (math.log1p(-rho) - tf.math.log1p(-mean))
        total.append(tf.reduce_sum(active + silent))
    return tf.add_n(total)


#: Most stochastic units of `gradient_report`: 2^16 states are visited.
MAX_REPORT_UNITS = 16
_MAX_PAIR_UNITS = 12  # DisARM: 3^12 outcomes of a pair


class GradientMoments(NamedTuple):
    """Of one estimator of the gradient with respect to the logits of the first encoder layer, each [B, n].

    :ivar exact: the gradient of the expected description length, nats.
    :ivar mean: of the estimator.
    :ivar variance: of the estimator, by coordinate.
    """

    exact: NDArray[np.float64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]

    @property
    def relative_bias(self) -> NDArray[np.float64]:
        """|mean - exact| / |exact| for each row, [B]."""
        return np.linalg.norm(self.mean - self.exact, axis=-1) / np.linalg.norm(self.exact, axis=-1)

    @property
    def relative_std(self) -> NDArray[np.float64]:
        """Square root of the total variance over |exact| for each row, [B]."""
        return np.sqrt(self.variance.sum(axis=-1)) / np.linalg.norm(self.exact, axis=-1)


def gradient_report(
    model: DARN,
    x: ArrayLike,
    estimators: Sequence[str] = ("darn", "straight_through", "reinforce", "rloo", "disarm", "simpson"),
    *,
    entropy: str = "sampled",
) -> dict[str, GradientMoments]:
    """Exact bias and variance of estimators for small models, by enumeration of all states h.

    They are of the gradient with respect to the logits of the first encoder layer, which every gradient of the
    encoder's first layer is a linear map of. "reinforce" has the best constant as baseline: the expected cost. "rloo"
    has K = 2.

    :param x: rows [B, n_x]; the work is B 2^n_h, for "disarm" B 3^n_h.
    :raises ValueError: if the model has more than 16 stochastic units (12 for "disarm"), its encoder is not factorial,
        or an estimator does not fit the model.
    """
    # All that may be wrong is said before states are visited.
    total = model.num_hidden
    rows = check_data(x, model.config, "x")
    for name in estimators:
        check_estimator(model, name, entropy)
        limit = _MAX_PAIR_UNITS if name == "disarm" else MAX_REPORT_UNITS
        if not 1 <= total <= limit:
            raise ValueError(
                f"the exact report on {name!r} visits all states of 1 to {limit} stochastic units, got {total}; take "
                "fewer units, or draw gradients with `estimate`."
            )
    if model.config.encoder != "factorial":
        raise ValueError(f"gradient_report needs a factorial encoder, got {model.config.encoder!r}.")
    # Row by row, then the rows of each estimator together.
    reports = [_row_report(model, row[None], estimators, entropy) for row in rows]
    return {
        name: GradientMoments(*(np.stack(part) for part in zip(*(report[name] for report in reports), strict=True)))
        for name in estimators
    }


def _row_report(
    model: DARN, row: NDArray, estimators: Sequence[str], entropy: str
) -> dict[str, tuple[NDArray[np.float64], ...]]:
    """exact, mean and variance [n] for one row [1, n_x]."""
    # All states h, with noise that draws just these.
    states = np.array(list(itertools.product((0.0, 1.0), repeat=model.num_hidden)))
    first = model.config.hidden[0]
    x = tf.cast(tf.repeat(tf.constant(row, model.dtype), len(states), axis=0), model.dtype)
    noise = tf.split(tf.constant(np.where(states > 0, -np.inf, np.inf), model.dtype), model.config.hidden, axis=1)
    f, log_q, result = scored(model, x, noise, entropy)
    logits = result.logits[0][0].numpy().astype(np.float64)
    # q, P(h | x) of each state, its cost and its score d log q / d a.
    q = 1.0 / (1.0 + np.exp(-logits))
    weights = np.exp(log_q.numpy().astype(np.float64))
    cost = f.numpy().astype(np.float64)
    score = states[:, :first] - q
    # The exact gradient: E[f s], and that of minus the entropy.
    entropy_gradient = q * (1.0 - q) * logits if entropy == "exact" else np.zeros(first)
    exact = weights @ (cost[:, None] * score) + entropy_gradient
    moments: dict[str, tuple[NDArray[np.float64], ...]] = {}
    for name in estimators:
        # Score functions with a baseline: unbiased, so that the second moment gives the variance.
        if name in ("reinforce", "rloo"):
            mean = exact - entropy_gradient
            second = _score_second_moment(name, weights, cost, score)
            moments[name] = (exact, exact, second - mean**2)
            continue
        # DisARM: all outcomes of an antithetic pair.
        if name == "disarm":
            outcomes, pair_weights = _disarm_outcomes(q, logits, states, cost)
            mean = pair_weights @ outcomes
            moments[name] = (exact, mean + entropy_gradient, pair_weights @ (outcomes - mean) ** 2)
            continue
        # All others: the gradient of each state by TensorFlow.
        with tf.GradientTape() as tape:
            estimated = estimate(model, x, noise, estimator=name, entropy=entropy)
            loss = tf.reduce_sum(estimated.loss)
        gradients = tape.gradient(loss, estimated.logits[0]).numpy().astype(np.float64)
        mean = weights @ gradients
        moments[name] = (exact, mean, weights @ (gradients - mean) ** 2)
    return moments


def _score_second_moment(
    name: str, weights: NDArray[np.float64], cost: NDArray[np.float64], score: NDArray[np.float64]
) -> NDArray[np.float64]:
    """E[g^2] by coordinate: g = (f - E f) s for "reinforce", (f_1 - f_2)(s_1 - s_2) / 2 for "rloo"."""
    # Costs less their mean: the baseline of "reinforce", and on average that of "rloo".
    centred = cost - weights @ cost
    if name == "reinforce":
        return np.asarray(weights @ (centred[:, None] * score) ** 2)
    # Of two independent draws the products factorise into moments of one.
    first = weights @ (centred[:, None] * score)
    second = weights @ score**2
    return np.asarray(0.5 * (weights @ (centred[:, None] * score) ** 2 + (weights @ centred**2) * second) + first**2)


def _disarm_outcomes(
    q: NDArray[np.float64], logits: NDArray[np.float64], states: NDArray[np.float64], cost: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gradients [3^n, n] and probabilities [3^n]: each unit's pair is (1, 0), (0, 1) or twice its likelier value."""
    n = len(q)
    # The three kinds of each unit's pair in all combinations.
    kinds = np.array(list(itertools.product((0, 1, 2), repeat=n)))
    likelier = (q > 0.5).astype(int)
    first = np.where(kinds == 0, 1, np.where(kinds == 1, 0, likelier))
    second = np.where(kinds == 0, 0, np.where(kinds == 1, 1, likelier))
    # P(kind) of antithetic noise.
    rarer = np.minimum(q, 1.0 - q)
    probability = np.where(kinds == 2, 1.0 - 2.0 * rarer, rarer).prod(axis=1)
    # (f(h) - f(h')) (h - h') sigmoid(|a|) / 2, the costs by the states' numbers.
    place = 2 ** np.arange(n)[::-1]
    difference = cost[first @ place] - cost[second @ place]
    return 0.5 * difference[:, None] * (first - second) / (1.0 + np.exp(-np.abs(logits))), probability
