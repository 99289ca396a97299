"""Optimizers by name: RMSProp as in the paper (Graves, 2013, Eqs. 38-41) and Adam."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["OPTIMIZERS", "make_optimizer"]

OPTIMIZERS = ("rmsprop", "adam")


def make_optimizer(
    name: str,
    learning_rate: float,
    *,
    half_life: float | None = None,
    momentum: float = 0.9,
    weight_decay: float | None = None,
) -> tf.keras.optimizers.Optimizer:
    """A Keras optimizer.

    :param name: "rmsprop", with Graves' centred second moments (decay 0.95, 1e-4 inside the root), or "adam".
    :param half_life: steps after which the learning rate has halved; None for a constant rate.
    :param momentum: of RMSProp, 0.9 in the paper; beta_1 of Adam.
    :param weight_decay: decoupled decay of all variables, in units of the learning rate; None for none.
    :raises ValueError: if the name is not known or a number is out of range.
    """
    if name not in OPTIMIZERS:
        raise ValueError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {name!r}.")
    if not learning_rate > 0 or not 0 <= momentum < 1:
        raise ValueError(f"learning_rate must be positive and momentum in [0, 1), got {learning_rate} and {momentum}.")
    if half_life is not None and not half_life > 0:
        raise ValueError(f"half_life must be positive, got {half_life}; None for a constant learning rate.")
    rate = learning_rate
    if half_life is not None:
        rate = tf.keras.optimizers.schedules.ExponentialDecay(learning_rate, half_life, 0.5)
    decay = weight_decay or None
    if name == "adam":
        return tf.keras.optimizers.Adam(rate, beta_1=momentum, weight_decay=decay)
    return tf.keras.optimizers.RMSprop(
        rate, rho=0.95, momentum=momentum, epsilon=1e-4, centered=True, weight_decay=decay
    )
