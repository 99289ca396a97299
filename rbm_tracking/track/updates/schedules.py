"""Learning rates: epsilon_t of each update t.

    paper      min(epsilon_0 alpha / (t + 1), epsilon_0), which is constant without alpha (Section 4)
    constant   epsilon_0
    linear     epsilon_0 up to hold T, then on a line to 0 at T
    cosine     epsilon_0 up to hold T, then along half a cosine to 0 at T

or any function of t that gives the rate itself, one of `tf.keras.optimizers.schedules` for example. Rates are
arguments of what is compiled: another rate or schedule compiles nothing.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from rbm_tracking.track.settings import FALLING, DecayConfig, SMLConfig

__all__ = ["learning_rate_at", "without_rate"]


def learning_rate_at(config: SMLConfig, step: tf.Tensor, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """epsilon_t of updates t, in the shape of `step` [...].

    :raises ValueError: if a function as schedule gives what is no rate.
    """
    # Of a function: its values, which must be rates.
    if callable(config.schedule):
        rates = np.array([float(config.schedule(int(t))) for t in np.ravel(step)])
        if not (np.isfinite(rates) & (rates >= 0)).all():
            wrong = int(np.argmin(np.isfinite(rates) & (rates >= 0)))
            raise ValueError(
                "schedule must give a learning rate that is finite and not negative for each update, got "
                f"{rates[wrong]} for update {np.ravel(step)[wrong]}."
            )
        return tf.reshape(tf.constant(rates, dtype), np.shape(step))
    start = tf.constant(config.learning_rate, dtype)
    t = tf.cast(step, dtype)
    # Constant up to hold T, then on a line or half a cosine to 0 at T.
    if config.schedule in FALLING:
        last = float(config.decay.decay_steps or 1)
        first = config.decay.hold * last
        remaining_share = tf.clip_by_value((last - t) / (last - first), 0.0, 1.0)
        return start * (remaining_share if config.schedule == "linear" else 0.5 - 0.5 * tf.cos(np.pi * remaining_share))
    # Constant, or as 1 / t from alpha on.
    if config.decay.learning_rate_decay is None:
        return tf.broadcast_to(start, tf.shape(t))
    return tf.minimum(start * config.decay.learning_rate_decay / (t + 1.0), start)


def without_rate(config: SMLConfig) -> SMLConfig:
    """The configuration with nothing in it of the learning rate: what is compiled is the same for all rates."""
    return dataclasses.replace(config, learning_rate=1.0, schedule="paper", decay=DecayConfig())
