"""How to train: all settings; and the optimizers, RMSProp as in the paper (Graves, 2013, Eqs. 38-41) and Adam."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import tensorflow as tf

from darn.gradients import ENTROPIES, ESTIMATORS, Entropy, Estimator
from darn.weight_noise import WEIGHT_NOISE, Kind

__all__ = ["OPTIMIZERS", "Optimizer", "TrainingConfig", "make_optimizer"]

Optimizer = Literal["adam", "rmsprop"]
OPTIMIZERS: tuple[str, ...] = get_args(Optimizer)


@dataclass(frozen=True)
class TrainingConfig:
    """How to train.

    :param estimator: estimator of the gradient through the stochastic units; darn is the paper's.
    :param entropy: the gradient of E log q(h | x) by the sampled h, or by the exact entropy given each unit's parents.
    :param num_samples: draws of h for each row with estimator=rloo.
    :param optimizer: optimizer; rmsprop is the paper's.
    :param learning_rate: learning rate at the start.
    :param half_life: steps after which the learning rate has halved; it is constant if this is not given.
    :param momentum: momentum of RMSProp, or beta_1 of Adam.
    :param weight_decay: decoupled weight decay, in units of the learning rate.
    :param clip_norm: largest norm of the whole gradient; no limit if this is not given.
    :param average: decay of a running mean of the parameters, which is what is evaluated and reported; 0 for none.
    :param weight_noise: adaptive weight noise (Graves, 2011), by his formulas or by reparameterisation; none if this is
        not given.
    :param initial_std: standard deviation of the weights under weight noise, at the start.
    :param sparsity: wanted mean activity rho of the stochastic units (fDARN), as 0.05; no penalty if this is not given.
    :param sparsity_weight: factor of the sparsity penalty.
    :raises ValueError: naming the field that is wrong.
    """

    estimator: Estimator = "darn"
    entropy: Entropy = "sampled"
    num_samples: int = 2
    optimizer: Optimizer = "adam"
    learning_rate: float = 1e-3
    half_life: float | None = None
    momentum: float = 0.9
    weight_decay: float = 0.0
    clip_norm: float | None = None
    average: float = 0.0
    weight_noise: Kind | None = None
    initial_std: float = 0.01
    sparsity: float | None = None
    sparsity_weight: float = 1.0

    def __post_init__(self) -> None:
        known = {"estimator": ESTIMATORS, "entropy": ENTROPIES, "optimizer": OPTIMIZERS, "weight_noise": WEIGHT_NOISE}
        for name, values in known.items():
            if (value := getattr(self, name)) is not None and value not in values:
                raise ValueError(f"{name} must be one of {', '.join(values)}, got {value!r}.")
        for name in ("learning_rate", "half_life", "clip_norm", "initial_std"):
            if (value := getattr(self, name)) is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {value}.")
        for name in ("weight_decay", "sparsity_weight"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be finite and not negative, got {getattr(self, name)}.")
        for name in ("momentum", "average"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be in [0, 1), got {getattr(self, name)}.")
        if self.sparsity is not None and not 0 < self.sparsity < 1:
            raise ValueError(f"sparsity must be in (0, 1), got {self.sparsity}.")
        if self.num_samples < 2:
            raise ValueError(f"num_samples must be at least 2, got {self.num_samples}.")


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
