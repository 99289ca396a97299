"""Posteriors of single weights: P(w) is proportional to P0(w) exp(h w), with one natural parameter h per weight.

The Bayes update, Eq. (4.5), adds a multiple of w to log P(w), so it moves h and nothing else, whatever values w may
take. With A(h) = log of the sum (integral) of P0(w) exp(h w) over w: the mean of w is A'(h) and its variance A''(h).

    weights              mean                                variance                        most probable value
    -1, +1               tanh h                              1 - mean^2                      sign h
    -1, 0, +1            2 sinh h / (e^nu + 2 cosh h)        2 cosh h / (...) - mean^2       sign h if |h| > nu, else 0
    N(0, scale^2)        scale^2 h                           scale^2                         the mean
    any finite set       sum of w p(w), p ~ P0 exp(h w)      sum of (w - mean)^2 p(w)        argmax p(w)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import tensorflow as tf

__all__ = [
    "BinaryWeights",
    "FiniteSetWeights",
    "GaussianWeights",
    "TernaryWeights",
    "WeightPrior",
    "discrete_entropy",
    "weight_prior",
]


@runtime_checkable
class WeightPrior(Protocol):
    """What the algorithm needs to know about the values of a weight. All functions work elementwise on `h`."""

    @property
    def is_discrete(self) -> bool:
        """Whether the weights have a finite set of values."""
        ...

    def mean(self, h: tf.Tensor) -> tf.Tensor:
        """Posterior mean of the weight."""
        ...

    def var(self, h: tf.Tensor) -> tf.Tensor:
        """Posterior variance of the weight."""
        ...

    def var_from_mean(self, h: tf.Tensor, mean: tf.Tensor) -> tf.Tensor:
        """`var(h)`, given `mean(h)`, up to the round-off of the squares of the values; never exactly 0.

        A scalar if it is the same for all weights.
        """
        ...

    def mode(self, h: tf.Tensor) -> tf.Tensor:
        """Most probable value, Eq. (4.6); the larger one of two equally probable ones."""
        ...

    def sample(self, h: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
        """Draw from the posterior: its quantile function at `uniform`, numbers in (0, 1) of the shape of `h`."""
        ...

    def entropy(self, h: tf.Tensor) -> tf.Tensor:
        """Entropy of the posterior in nats; the differential entropy for continuous weights."""
        ...

    def log_normalizer(self, h: tf.Tensor) -> tf.Tensor:
        """A(h) in nats: its derivatives are mean and variance."""
        ...


@dataclass(frozen=True)
class BinaryWeights:
    """Weights -1 and +1, equally probable a priori. 2h is the log odds of +1."""

    is_discrete = True

    def mean(self, h: tf.Tensor) -> tf.Tensor:
        """tanh h."""
        return tf.tanh(h)

    def var(self, h: tf.Tensor) -> tf.Tensor:
        """1 / cosh^2 h, without the cancellation of 1 - mean^2."""
        # 1 / cosh^2 h = 4 e / (1 + e)^2 with e = exp(-2 |h|), at most 1.
        e = tf.exp(-2.0 * tf.abs(h))
        return 4.0 * e / tf.square(1.0 + e)

    def var_from_mean(self, h: tf.Tensor, mean: tf.Tensor) -> tf.Tensor:
        """1 - mean^2 plus four rounding units: as exact as the difference, and positive without a slow comparison."""
        return (1.0 + 4.0 * np.finfo(mean.dtype.as_numpy_dtype).eps) - tf.square(mean)

    def mode(self, h: tf.Tensor) -> tf.Tensor:
        """sign h; +1 at 0."""
        return tf.where(h >= 0, tf.ones_like(h), -tf.ones_like(h))

    def sample(self, h: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
        """-1 where `uniform` is below P(-1), else +1."""
        return tf.where(uniform < tf.sigmoid(-2.0 * h), -tf.ones_like(h), tf.ones_like(h))

    def entropy(self, h: tf.Tensor) -> tf.Tensor:
        """Between log 2 at h = 0 and 0, in nats."""
        # a: log odds of the more probable value. Entropy: log(1 + e^-a) + a P(less probable value).
        a = 2.0 * tf.abs(h)
        return tf.math.softplus(-a) + a * tf.sigmoid(-a)

    def log_normalizer(self, h: tf.Tensor) -> tf.Tensor:
        """log cosh h."""
        # log cosh h = |h| + log(1 + exp(-2 |h|)) - log 2: nothing overflows.
        a = tf.abs(h)
        return a + tf.math.log1p(tf.exp(-2.0 * a)) - math.log(2.0)

    def shifted_mean(self, mean: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        """tanh(h + d) = (mean + t) / (1 + mean t), given mean = tanh h, with t = tanh d = d / (1 + d^2 / 3).

        t is off by d^5 / 45: 7e-7 at |d| = 1/8, 2e-12 at the more usual 0.01. Takes a quarter of the time of tanh.
        """
        q = 1.0 + d * d * (1.0 / 3.0)
        return (mean * q + d) / (q + mean * d)


@dataclass(frozen=True)
class TernaryWeights:
    """Weights -1, 0 and +1.

    :param nu: log of P0(0) / P0(+1) in nats; P0(-1) = P0(+1). 0: equally probable; larger values give more zeros.
    """

    nu: float = 0.0

    is_discrete = True

    def __post_init__(self) -> None:
        if not abs(self.nu) <= 50:
            raise ValueError(
                f"nu of TernaryWeights must be from -50 to 50, got {self.nu}; for no zeros use BinaryWeights()."
            )

    def mean(self, h: tf.Tensor) -> tf.Tensor:
        """2 sinh h / (e^nu + 2 cosh h)."""
        # 2 sinh |h| over the sum of all three, both over exp |h|.
        _, minus, total = self._unnormalised(h)
        return tf.sign(h) * (1.0 - minus) / total

    def var(self, h: tf.Tensor) -> tf.Tensor:
        """<w^2> - <w>^2 = P(0) (1 - P(0)) + 4 P(-1) P(+1)."""
        zero, minus, total = self._unnormalised(h)
        return (zero * (1.0 + minus) + 4.0 * minus) / tf.square(total)

    def var_from_mean(self, h: tf.Tensor, mean: tf.Tensor) -> tf.Tensor:
        """`var(h)` plus a rounding unit."""
        # P(0) is wanted, too, which the mean does not give.
        return self.var(h) + np.finfo(mean.dtype.as_numpy_dtype).eps

    def mode(self, h: tf.Tensor) -> tf.Tensor:
        """sign h where |h| > nu, else 0."""
        is_zero = tf.abs(h) < self.nu
        return tf.where(is_zero, tf.zeros_like(h), tf.where(h >= 0, tf.ones_like(h), -tf.ones_like(h)))

    def sample(self, h: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
        """-1, 0, +1 by increasing `uniform`."""
        zero, minus, _ = self._probabilities(h)
        above = tf.where(uniform < minus + zero, tf.zeros_like(h), tf.ones_like(h))
        return tf.where(uniform < minus, -tf.ones_like(h), above)

    def entropy(self, h: tf.Tensor) -> tf.Tensor:
        """At most log 3, in nats."""
        return discrete_entropy(tf.stack(self._probabilities(h), axis=-1))

    def log_normalizer(self, h: tf.Tensor) -> tf.Tensor:
        """log (e^nu + 2 cosh h) / (e^nu + 2)."""
        return tf.abs(h) + tf.math.log(self._unnormalised(h)[2]) - float(np.logaddexp(self.nu, math.log(2.0)))

    def _unnormalised(self, h: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """P(0) and P(-sign h) over P(sign h), and the sum of all three."""
        # Divided by P(sign h), the largest but for P(0), so that nothing overflows.
        e = tf.exp(-tf.abs(h))
        zero = math.exp(self.nu) * e
        minus = tf.square(e)
        return zero, minus, 1.0 + zero + minus

    def _probabilities(self, h: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """P(0), P(-1), P(+1)."""
        zero, less, total = self._unnormalised(h)
        less = less / total
        more = 1.0 / total
        return zero / total, tf.where(h > 0, less, more), tf.where(h > 0, more, less)


@dataclass(frozen=True)
class GaussianWeights:
    """Real weights, N(0, scale^2) a priori. The first-order update of Eq. (4.5) moves the mean; the variance stays.

    :param scale: standard deviation of the prior.
    """

    scale: float = 1.0

    is_discrete = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"scale of GaussianWeights must be positive and finite, got {self.scale}.")

    def mean(self, h: tf.Tensor) -> tf.Tensor:
        """scale^2 h."""
        return h if self.scale == 1.0 else self.scale**2 * h

    def var(self, h: tf.Tensor) -> tf.Tensor:
        """scale^2."""
        return tf.ones_like(h) * self.scale**2

    def var_from_mean(self, h: tf.Tensor, mean: tf.Tensor) -> tf.Tensor:
        """scale^2, a scalar."""
        return tf.constant(self.scale**2, h.dtype)

    def mode(self, h: tf.Tensor) -> tf.Tensor:
        """The mean."""
        return self.mean(h)

    def sample(self, h: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
        """mean + scale * (standard-normal quantile of `uniform`)."""
        return self.mean(h) + self.scale * tf.math.ndtri(uniform)

    def entropy(self, h: tf.Tensor) -> tf.Tensor:
        """Differential entropy log(2 pi e scale^2) / 2, in nats."""
        return tf.ones_like(h) * (0.5 * math.log(2.0 * math.pi * math.e * self.scale**2))

    def log_normalizer(self, h: tf.Tensor) -> tf.Tensor:
        """scale^2 h^2 / 2."""
        return 0.5 * self.scale**2 * tf.square(h)


def weight_prior(weights: str | WeightPrior) -> WeightPrior:
    """The prior called "binary", "ternary" (equally probable values) or "real" (N(0, 1)); a prior is handed through.

    :raises ValueError: for another name, or a thing that is no prior.
    """
    if isinstance(weights, WeightPrior) and not isinstance(weights, type):
        return weights
    named: dict[str, WeightPrior] = {"binary": BinaryWeights(), "ternary": TernaryWeights(), "real": GaussianWeights()}
    if not isinstance(weights, str) or weights not in named:
        raise ValueError(
            f"weights must be one of {', '.join(map(repr, named))} or a WeightPrior such as "
            f"FiniteSetWeights((-2, -1, 1, 2)), got {weights!r}."
        )
    return named[weights]


def discrete_entropy(probabilities: tf.Tensor) -> tf.Tensor:
    """Entropy in nats of probabilities that are along the last axis."""
    return -tf.reduce_sum(tf.math.xlogy(probabilities, probabilities), axis=-1)


@dataclass(frozen=True)
class FiniteSetWeights:
    """Weights from a finite set, e.g. the 16 levels of 4-bit weights. Time and memory grow with the number of values.

    :param values: distinct, increasing.
    :param log_prior: log P0 of each, in nats, up to a common constant; None: equally probable.
    """

    values: tuple[float, ...]
    log_prior: tuple[float, ...] | None = None

    is_discrete = True

    def __post_init__(self) -> None:
        # Tuples have a hash: equal priors share compiled functions, see `Architecture`.
        object.__setattr__(self, "values", tuple(float(value) for value in self.values))
        if self.log_prior is not None:
            object.__setattr__(self, "log_prior", tuple(float(value) for value in self.log_prior))
        # Increasing values, so that `sample` is a quantile function; an infinite log prior has no softmax.
        if len(self.values) < 2 or not np.all(np.isfinite(self.values)) or np.any(np.diff(self.values) <= 0):
            raise ValueError(
                f"values of FiniteSetWeights must be at least two finite, increasing numbers, got {self.values}."
            )
        if self.log_prior is not None and (
            len(self.log_prior) != len(self.values) or not np.all(np.isfinite(self.log_prior))
        ):
            raise ValueError(
                f"log_prior of FiniteSetWeights must be one finite number for each of the {len(self.values)} values, "
                f"got {self.log_prior}; leave out values that are impossible."
            )

    def mean(self, h: tf.Tensor) -> tf.Tensor:
        """Mean of the values under softmax(h w + log P0(w))."""
        return tf.reduce_sum(self._probabilities(h) * self._values(h), axis=-1)

    def var(self, h: tf.Tensor) -> tf.Tensor:
        """Mean squared distance from the mean."""
        return self.var_from_mean(h, self.mean(h))

    def var_from_mean(self, h: tf.Tensor, mean: tf.Tensor) -> tf.Tensor:
        """Mean squared distance from `mean`, plus a rounding unit of the largest squared value."""
        distance2 = tf.square(self._values(h) - mean[..., None])
        floor = np.finfo(h.dtype.as_numpy_dtype).eps * max(value**2 for value in self.values)
        return tf.reduce_sum(self._probabilities(h) * distance2, axis=-1) + floor

    def mode(self, h: tf.Tensor) -> tf.Tensor:
        """The value with the largest probability."""
        backwards = tf.reverse(self._log_odds(h), axis=[-1])  # so that the larger one of equally probable values wins
        return tf.gather(tf.reverse(self._values(h), axis=[0]), tf.argmax(backwards, axis=-1))

    def sample(self, h: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
        """The smallest value whose cumulative probability exceeds `uniform`."""
        # Without the last sum, which may be rounded below 1: the index would be past the end.
        cumulative = tf.cumsum(self._probabilities(h), axis=-1)[..., :-1]
        index = tf.reduce_sum(tf.cast(uniform[..., None] >= cumulative, tf.int32), axis=-1)
        return tf.gather(self._values(h), index)

    def entropy(self, h: tf.Tensor) -> tf.Tensor:
        """At most the log of the number of values, in nats."""
        return discrete_entropy(self._probabilities(h))

    def log_normalizer(self, h: tf.Tensor) -> tf.Tensor:
        """log of the mean of exp(h w) under P0."""
        log_prior = np.zeros(len(self.values)) if self.log_prior is None else np.asarray(self.log_prior)
        return tf.reduce_logsumexp(self._log_odds(h), axis=-1) - float(np.logaddexp.reduce(log_prior))

    def _values(self, h: tf.Tensor) -> tf.Tensor:
        return tf.constant(self.values, h.dtype)

    def _log_odds(self, h: tf.Tensor) -> tf.Tensor:
        log_odds = h[..., None] * self._values(h)
        return log_odds if self.log_prior is None else log_odds + tf.constant(self.log_prior, h.dtype)

    def _probabilities(self, h: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(self._log_odds(h), axis=-1)
