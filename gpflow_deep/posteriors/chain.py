"""One step of stochastic-gradient Hamiltonian Monte Carlo (Chen et al. 2014), and how far its samples can be trusted.

With a gradient g of U whose noise has the variance V, step size h, friction alpha and eps ~ N(0, I),

    p <- (1 - alpha) p - h^2 g + sqrt(2 alpha h^2 T - h^4 V) eps,   z <- z + p

has the stationary density exp(-U(z) / T), up to O(h^2), with the temperature T = 1 for a posterior. V is half the mean
square of the differences of successive gradients, for each coordinate. Where h^2 V is large, h falls to sqrt(T / 2V),
and alpha is at least h^2 V / T: the noise of the gradients takes the place of at most half of the noise that friction
asks for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

__all__ = ["ChainState", "Trust", "move", "start", "trust"]

#: The largest h^2 V / T.
LARGEST_NOISE = 0.5


class ChainState(NamedTuple):
    """Where a chain is, all of one shape.

    :ivar z: position.
    :ivar momentum: p, in units of z per step.
    :ivar variance: its running estimate, V.
    :ivar gradient: the last g.
    """

    z: tf.Tensor
    momentum: tf.Tensor
    variance: tf.Tensor
    gradient: tf.Tensor


def start(z: tf.Tensor) -> ChainState:
    """A chain at rest."""
    return ChainState(z, *(tf.zeros_like(z) for _ in range(3)))


def move(
    state: ChainState,
    gradient: tf.Tensor,
    eps: tf.Tensor,
    *,
    step_size: float,
    friction: float,
    weight: tf.Tensor,
    temperature: tf.Tensor | float = 1.0,
) -> ChainState:
    """One step.

    :param gradient: g at `state.z`.
    :param eps: standard-normal noise of the same shape.
    :param step_size: h.
    :param friction: the smallest alpha.
    :param weight: of this step in the average V; 0 leaves V as it is. [].
    :param temperature: the temperature, T.
    """
    weight = tf.cast(weight, gradient.dtype)
    T = tf.cast(temperature, gradient.dtype)
    # V: half the mean square of the differences of successive gradients.
    V = state.variance + weight * (0.5 * tf.square(gradient - state.gradient) - state.variance)
    # Where h^2 V is large, a shorter step and more friction.
    h2 = tf.minimum(tf.cast(step_size**2, V.dtype), LARGEST_NOISE * T / tf.maximum(V, 1e-30))
    alpha = tf.maximum(tf.cast(friction, V.dtype), h2 * V / T)
    # The noise of the gradients, h^4 V, is a part of the noise that friction asks for.
    momentum = (1.0 - alpha) * state.momentum - h2 * gradient + tf.sqrt(h2 * (2.0 * alpha * T - h2 * V)) * eps
    return ChainState(state.z + momentum, momentum, V, gradient)


class Trust(NamedTuple):
    """How far samples of many quantities can be trusted.

    :ivar effective: effective sample size, the median over the quantities.
    :ivar least_effective: the smallest.
    :ivar r_hat: split R-hat (Gelman et al. 2013), the median.
    :ivar largest_r_hat: the largest; near 1 if both halves of the samples have the same mean.
    """

    effective: float
    least_effective: float
    r_hat: float
    largest_r_hat: float


def trust(samples: tf.Tensor) -> Trust:
    """Of K samples of a chain in the order in which they were drawn, [K, ...], K at least 4.

    :raises ValueError: with fewer samples.
    """
    K = int(samples.shape[0])
    if K < 4:
        raise ValueError(f"effective sample sizes need at least 4 samples, got {K}; keep more (num_kept).")
    # Each number of a sample is a quantity.
    flat = tf.reshape(tf.cast(samples, tf.float64), [K, -1])
    # TFP's Fourier transform makes TensorFlow warn of a cast of real numbers from complex ones.
    with _silenced():
        effective = tfp.mcmc.effective_sample_size(flat)
    r_hat = tfp.mcmc.potential_scale_reduction(flat[: K - K % 2, None], split_chains=True)
    middle = [float(tfp.stats.percentile(part, 50.0)) for part in (effective, r_hat)]
    return Trust(middle[0], float(tf.reduce_min(effective)), middle[1], float(tf.reduce_max(r_hat)))


@contextmanager
def _silenced() -> Iterator[None]:
    """Within a `with` statement TensorFlow logs errors only."""
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel("ERROR")
    try:
        yield
    finally:
        logger.setLevel(level)
