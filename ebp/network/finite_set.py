"""The posterior of weights from any finite set, see `posterior`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from .posterior import discrete_entropy

__all__ = ["FiniteSetWeights"]


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
        object.__setattr__(self, "values", tuple(float(value) for value in self.values))
        if self.log_prior is not None:
            object.__setattr__(self, "log_prior", tuple(float(value) for value in self.log_prior))
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
