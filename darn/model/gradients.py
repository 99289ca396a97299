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

The last four are unbiased, except Simpson's, whose error is of fifth order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import tensorflow as tf

from darn.model.autoregressive import Unit, bernoulli_log_prob, threshold
from darn.model.model import DARN
from darn.model.replicas import mean_over_replicas, num_replicas, sum_over_replicas

__all__ = [
    "ENTROPIES",
    "ESTIMATORS",
    "Entropy",
    "Estimate",
    "Estimator",
    "check_estimator",
    "darn_unit",
    "estimate",
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
