"""How to train: all settings; and the optimizers, RMSProp as in the paper (Graves, 2013, Eqs. 38-41) and Adam."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import tensorflow as tf

from darn.model.config import check_numbers
from darn.model.gradients import ENTROPIES, ESTIMATORS, Entropy, Estimator
from darn.model.weight_noise import WEIGHT_NOISE, Kind
from gpflow_deep_base.numbers.groups import grouped

__all__ = [
    "OPTIMIZERS",
    "FusedAdam",
    "LearningRate",
    "NoiseConfig",
    "Optimizer",
    "TrainingConfig",
    "in_place",
    "make_optimizer",
    "move_means",
]

Optimizer = Literal["adam", "rmsprop"]
OPTIMIZERS: tuple[str, ...] = get_args(Optimizer)


@dataclass(frozen=True)
class NoiseConfig:
    """Adaptive weight noise (Graves, 2011).

    :param weight_noise: adaptive weight noise (Graves, 2011), by his formulas or by reparameterisation; none if this is
        not given.
    :param initial_std: standard deviation of the weights under weight noise, at the start.
    :param noise_from: step from which on there is weight noise.
    :param noise_until: step from which on there is none again, and the means train alone; never if this is not given.
    """

    weight_noise: Kind | None = None
    initial_std: float = 0.01
    noise_from: int = 0
    noise_until: int | None = None

    def __post_init__(self) -> None:
        if self.weight_noise not in (None, *WEIGHT_NOISE):
            raise ValueError(f"weight_noise must be one of {', '.join(WEIGHT_NOISE)}, got {self.weight_noise!r}.")
        check_numbers(self, "initial_std", "noise_from", "noise_until")
        if not 0 < self.initial_std < math.inf:
            raise ValueError(f"initial_std must be positive and finite, got {self.initial_std}.")
        if self.noise_from < 0:
            raise ValueError(f"noise_from must be finite and not negative, got {self.noise_from}.")
        if self.noise_until is not None and self.noise_until <= self.noise_from:
            raise ValueError(f"noise_until must be after noise_from={self.noise_from}, got {self.noise_until}.")


@grouped
@dataclass(frozen=True)
class TrainingConfig:
    """How to train.

    :param estimator: estimator of the gradient through the stochastic units; darn is the paper's.
    :param entropy: the gradient of E log q(h | x) by the sampled h, or by the exact entropy given each unit's parents.
    :param num_samples: draws of h for each row with estimator=rloo.
    :param optimizer: optimizer; rmsprop is the paper's.
    :param learning_rate: learning rate at the start.
    :param half_life: steps after which the learning rate has halved; it is constant if this is not given.
    :param warm_up: steps over which the learning rate rises from 0.
    :param cosine: step at which the learning rate has fallen to 0, along a cosine; it does not if this is not given.
    :param momentum: momentum of RMSProp, or beta_1 of Adam.
    :param weight_decay: decoupled weight decay, in units of the learning rate.
    :param clip_norm: largest norm of the whole gradient; no limit if this is not given.
    :param average: decay of a running mean of the parameters, which is what is evaluated and reported; 0 for none.
    :param sparsity: wanted mean activity rho of the stochastic units (fDARN), as 0.05; no penalty if this is not given.
    :param sparsity_weight: factor of the sparsity penalty.
    :param noise: adaptive weight noise.
    :raises ValueError: naming the field that is wrong.
    """

    estimator: Estimator = "darn"
    entropy: Entropy = "sampled"
    num_samples: int = 2
    optimizer: Optimizer = "adam"
    learning_rate: float = 1e-3
    half_life: float | None = None
    warm_up: int = 0
    cosine: int | None = None
    momentum: float = 0.9
    weight_decay: float = 0.0
    clip_norm: float | None = None
    average: float = 0.0
    sparsity: float | None = None
    sparsity_weight: float = 1.0
    noise: NoiseConfig = NoiseConfig()

    def __post_init__(self) -> None:
        # Names, numbers in their ranges, and fields together.
        choices = {"estimator": ESTIMATORS, "entropy": ENTROPIES, "optimizer": OPTIMIZERS}
        for name, values in choices.items():
            if (value := getattr(self, name)) is not None and value not in values:
                raise ValueError(f"{name} must be one of {', '.join(values)}, got {value!r}.")
        positive = ("learning_rate", "half_life", "cosine", "clip_norm")
        check_numbers(self, *positive, "weight_decay", "sparsity_weight", "warm_up", "momentum", "average")
        check_numbers(self, "sparsity", "num_samples")
        for name in positive:
            if (value := getattr(self, name)) is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {value}.")
        for name in ("weight_decay", "sparsity_weight", "warm_up"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be finite and not negative, got {getattr(self, name)}.")
        for name in ("momentum", "average"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be in [0, 1), got {getattr(self, name)}.")
        if self.sparsity is not None and not 0 < self.sparsity < 1:
            raise ValueError(f"sparsity must be in (0, 1), got {self.sparsity}.")
        if self.num_samples < 2:
            raise ValueError(f"num_samples must be at least 2, got {self.num_samples}.")


class LearningRate(tf.keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """A learning rate that rises from 0, halves again and again, and falls to 0 along a cosine: what is given of these.

    :param initial: without any of these.
    :param half_life: of its halving.
    :param warm_up: steps of the rise.
    :param cosine: step at which it is 0.
    """

    def __init__(
        self, initial: float, half_life: float | None = None, warm_up: int = 0, cosine: int | None = None
    ) -> None:
        self.initial = initial
        self.half_life = half_life
        self.warm_up = warm_up
        self.cosine = cosine

    def __call__(self, step: object) -> tf.Tensor:
        """The learning rate of a step."""
        # Halving, and the fall along half a cosine; a rise at first multiplies both.
        t = tf.cast(step, tf.float32)
        rate = tf.constant(self.initial, tf.float32)
        if self.half_life is not None:
            rate *= tf.pow(0.5, t / self.half_life)
        if self.cosine is not None:
            rate *= 0.5 * (1.0 + tf.cos(math.pi * tf.minimum(t / self.cosine, 1.0)))
        return rate * tf.minimum((t + 1.0) / self.warm_up, 1.0) if self.warm_up else rate

    def get_config(self) -> dict[str, object]:
        """What it is made of."""
        return {name: getattr(self, name) for name in ("initial", "half_life", "warm_up", "cosine")}


class FusedAdam(tf.keras.optimizers.Adam):  # type: ignore[misc]
    """Keras' Adam with TensorFlow's kernel for the whole update of a variable: the same numbers in one pass over them,
    up to rounding. On several devices it is Keras' own.
    """

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor) -> None:
        """One variable's update."""
        # The kernel knows nothing of replicas.
        if tf.distribute.has_strategy():
            super().update_step(gradient, variable, learning_rate)
            return
        # The bias corrections 1 - beta^t are left to the kernel.
        index = self._get_variable_index(variable)
        dtype = variable.dtype
        beta_1 = tf.constant(self.beta_1, dtype)
        beta_2 = tf.constant(self.beta_2, dtype)
        step = tf.cast(tf.convert_to_tensor(self.iterations), dtype) + 1.0
        powers = [tf.pow(tf.cast(beta, dtype), step) for beta in (self.beta_1, self.beta_2)]  # of float32, as in Keras
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=powers[0],
            beta2_power=powers[1],
            lr=tf.cast(learning_rate, dtype),
            beta1=beta_1,
            beta2=beta_2,
            epsilon=tf.constant(self.epsilon, dtype),
            grad=gradient,
        )


def make_optimizer(
    name: str,
    learning_rate: float,
    *,
    half_life: float | None = None,
    warm_up: int = 0,
    cosine: int | None = None,
    momentum: float = 0.9,
    weight_decay: float | None = None,
) -> tf.keras.optimizers.Optimizer:
    """A Keras optimizer.

    :param name: "rmsprop", with Graves' centred second moments (decay 0.95, 1e-4 inside the root), or "adam".
    :param half_life: steps after which the learning rate has halved; None for a constant rate.
    :param warm_up: steps over which it rises from 0.
    :param cosine: step at which it has fallen to 0, or None.
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
    # A schedule where the rate is not constant.
    rate: float | tf.keras.optimizers.schedules.LearningRateSchedule = learning_rate
    if warm_up or cosine is not None:
        rate = LearningRate(learning_rate, half_life, warm_up, cosine)
    elif half_life is not None:
        rate = tf.keras.optimizers.schedules.ExponentialDecay(learning_rate, half_life, 0.5)
    decay = weight_decay or None
    if name == "adam":
        return FusedAdam(rate, beta_1=momentum, weight_decay=decay)
    return tf.keras.optimizers.RMSprop(
        rate, rho=0.95, momentum=momentum, epsilon=1e-4, centered=True, weight_decay=decay
    )


# means move at each of the first steps, later at each tenth
_EVERY_STEP = 100
_EVERY = 10


def move_means(means: Sequence[tf.Variable], variables: Sequence[tf.Variable], step: tf.Tensor, average: float) -> None:
    """Move running means: at each of the first 100 steps, then at each tenth one for ten of them.

    :param step: number of the step just made, [].
    :param average: decay; after t steps it is at most t / (t + 10), so that early means forget faster.
    """
    # Early means forget faster; at each tenth step ten steps are made up for.
    step = tf.cast(step, tf.int32)
    t = tf.cast(step, variables[0].dtype)
    decay = tf.minimum(tf.cast(average, t.dtype), t / (t + 10.0))
    is_early = step <= _EVERY_STEP
    decay = tf.where(is_early, decay, decay**_EVERY)

    def move() -> tf.Tensor:
        for mean, variable in zip(means, variables, strict=True):
            mean.assign(decay * mean + (1.0 - decay) * variable)
        return tf.constant(0)

    tf.cond(is_early | (step % _EVERY == 0), move, lambda: tf.constant(0))


@contextlib.contextmanager
def in_place(variables: Sequence[tf.Variable], values: Sequence[tf.Variable]) -> Iterator[None]:
    """Within a `with` statement the variables have other values; afterwards they have their own again."""
    # What is put back in the end, whatever happens within.
    own_values = [variable.numpy() for variable in variables]
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
    try:
        yield
    finally:
        for variable, value in zip(variables, own_values, strict=True):
            variable.assign(value)
