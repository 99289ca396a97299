"""How an RBM is trained and tracked: the values that are chosen before."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import tensorflow as tf

from rbm_tracking.random import GENERATORS, Generator
from rbm_tracking.tempering import SCHEMES, Scheme

__all__ = ["SMLConfig", "learning_rate_at"]

Bias = Literal["both", "learned", "none"]
BIASES: tuple[str, ...] = get_args(Bias)


@dataclass(frozen=True)
class SMLConfig:
    """How to train and track.

    :param learning_rate: learning rate epsilon_0 of the ascent on the likelihood.
    :param learning_rate_decay: alpha of the learning rate min(epsilon_0 alpha / (t + 1), epsilon_0) at update t; it is
        constant if this is not given.
    :param gibbs_steps: rounds of Gibbs sampling in each update.
    :param swaps: pairs of neighbouring temperatures that may swap in an update: all of them (even_odd, as in the
        paper), or even and odd ones in turn (deo).
    :param gradient_chains: how many of the N chains at beta = 1 estimate the gradient; None for all. The others only
        track, and are free of the bias of those that the gradient has pushed away.
    :param centred: use the centred gradient (Melchior, Fischer and Wiskott, 2016), for which the coding of a pixel as 0
        or 1 makes no difference.
    :param adaptive: adapt the temperatures to the flow of particles (SML-APT).
    :param adapt_rate: part of the way that adaptive temperatures move at each update.
    :param track: track log Z; without it this is plain SML-PT.
    :param bias: how the bias b_t of the estimated change of log Z is removed: learned by the filter, as in the paper;
        both: its first order is computed from the particles and the rest is learned; none: a filter without it.
    :param bias_drift: variance by which the bias b_t may drift in an update, in units of the learning rate, nats^2.
    :param sigma_z: standard deviation of the change of log Z in an update that is expected a priori, nats; infinite in
        the paper.
    :param bridge_iterations: fixed-point iterations of each bridge estimate between two temperatures.
    :param inflate: enlarge the variances of the estimates by the measured autocorrelation of the innovations.
    :param generator: generator of the noise; hash is faster.
    :raises ValueError: naming the field that is wrong.
    """

    learning_rate: float = 0.01
    learning_rate_decay: float | None = None
    gibbs_steps: int = 1
    swaps: Scheme = "even_odd"
    gradient_chains: int | None = None
    centred: bool = False
    adaptive: bool = False
    adapt_rate: float = 0.001
    track: bool = True
    bias: Bias = "both"
    bias_drift: float = 1e-3
    sigma_z: float = np.inf
    bridge_iterations: int = 0
    inflate: bool = True
    generator: Generator = "threefry"

    def __post_init__(self) -> None:
        for name, known in (("swaps", SCHEMES), ("bias", BIASES), ("generator", GENERATORS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}.")
        for name in ("learning_rate", "learning_rate_decay"):
            if (value := getattr(self, name)) is not None and not 0 < value < np.inf:
                raise ValueError(f"{name} must be positive and finite, got {value}.")
        for name, least in (("gibbs_steps", 1), ("gradient_chains", 1), ("bridge_iterations", 0)):
            if (value := getattr(self, name)) is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}.")
        if not 0 <= self.adapt_rate <= 1:
            raise ValueError(f"adapt_rate must be in [0, 1], got {self.adapt_rate}.")
        if not 0 <= self.bias_drift < np.inf:
            raise ValueError(f"bias_drift must be finite and not negative, got {self.bias_drift}.")
        if not self.sigma_z > 0:
            raise ValueError(f"sigma_z must be positive (infinite in the paper), got {self.sigma_z}.")


def learning_rate_at(config: SMLConfig, step: tf.Tensor, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """epsilon_t = min(epsilon_0 alpha / (t + 1), epsilon_0) (Section 4)."""
    start = tf.constant(config.learning_rate, dtype)
    if config.learning_rate_decay is None:
        return start
    return tf.minimum(start * config.learning_rate_decay / (tf.cast(step, dtype) + 1.0), start)
