"""The tracker as an object of its own, for parameters and tempered samples from anywhere (Sections 3.2-3.4)."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from rbm_tracking.bridge import bridge
from rbm_tracking.health import flag_names
from rbm_tracking.importance import log_z_change
from rbm_tracking.rbm import RBM, activations, check_binary, check_rbm, log_z_independent, softplus_sum
from rbm_tracking.tempering import check_ladder, swap_log_ratio
from rbm_tracking.tracker import (
    TrackerState,
    anchor,
    health_flags,
    inflation,
    initial_tracker,
    log_z_std,
    predict,
    update,
)

__all__ = ["PartitionTracker", "Tracked"]


class Tracked(NamedTuple):
    """log Z and its standard deviation, nats, and the reasons not to trust them (none: an empty list)."""

    log_z: float
    log_z_std: float
    flags: list[str]


class PartitionTracker:
    """Tracks log Z of a sequence of RBMs from samples of their tempered families.

        tracker = PartitionTracker(linear_ladder(10))
        for rbm, samples in stream:          # samples [M, N, n_v], samples[i] from q_{beta[i]} of this rbm
            tracked = tracker.observe(rbm, samples)

    Successive RBMs must be close (a step of gradient ascent), since the change of log Z is estimated by weighting the
    previous samples.

    :param beta: inverse temperatures [M], from 1 to 0, of the family beta (h'Wv + c'h) + b'v.
    :param bias_variance: variance by which the bias b of the estimate at beta = 1 may change from one RBM to the next.
        With samples that did not drive the change of the parameters there is no bias: set it and
        `initial_bias_variance` to 0. The paper takes 10^-3 times the learning rate.
    :param initial_bias_variance: of b before the first observation.
    :param sigma_z: expected size of a change of log Z, infinite in the paper.
    :param log_z: guess of the first log partition functions, [M]; by default those of the first bridge estimates.
    :raises ValueError: if the ladder does not decrease from 1 to 0.
    """

    def __init__(
        self,
        beta: ArrayLike,
        *,
        bias_variance: float = 1e-5,
        initial_bias_variance: float = 1.0,
        sigma_z: float = np.inf,
        log_z: ArrayLike | None = None,
    ) -> None:
        self.beta = check_ladder(beta)
        self.state: TrackerState | None = None
        self._bias_variance = bias_variance
        self._initial_bias_variance = initial_bias_variance
        self._sigma_z = sigma_z
        self._first_log_z = log_z
        self._previous: tuple[RBM, tf.Tensor, tf.Tensor] | None = None  # parameters, samples, log q~ - b'v

    def observe(self, rbm: RBM, samples: ArrayLike, beta: ArrayLike | None = None) -> Tracked:
        """Take in the next parameters, and samples [M, N, n_v] of 0 and 1 at each temperature.

        :param beta: the ladder of these samples, if it has changed; it keeps its length.
        :raises ValueError: if shapes do not fit, the samples are not binary or the parameters not finite.
        """
        v, betas = self._check(rbm, samples, beta)
        rbm = RBM(*(tf.cast(value, tf.float64) for value in rbm))
        a = activations(rbm, v)  # [M, N, n_h]
        own = softplus_sum(a, betas[:, None])
        d_upper = softplus_sum(a[:-1], betas[1:, None]) - own[:-1]
        d_lower = own[1:] - softplus_sum(a[1:], betas[:-1, None])
        log_z_last = log_z_independent(rbm.b, rbm.c.shape[0])
        if self.state is None:
            self.state = self._start(d_upper, d_lower, log_z_last, v.shape[1])
        if self._previous is not None:
            old, old_v, old_own = self._previous
            shift = tf.linalg.matvec(old_v, rbm.b - old.b)
            change = log_z_change(softplus_sum(activations(rbm, old_v), betas[:, None]) - old_own + shift)
            self.state = predict(
                self.state,
                change,
                bias_variance=self._bias_variance,
                sigma_z=self._sigma_z,
                factor=inflation(self.state.health),
            )
        self.state = anchor(self.state, log_z_last)
        predicted = self.state.mean[1:-1] - self.state.mean[:-2]
        acceptance = tf.reduce_mean(tf.exp(tf.minimum(swap_log_ratio(d_upper, d_lower), 0.0)), axis=1)
        self.state = update(self.state, bridge(d_upper, d_lower, predicted), acceptance)
        self._previous = (rbm, v, own)
        flags = flag_names(int(health_flags(self.state, self.state.mean[-1])))
        return Tracked(self.log_z, self.log_z_std, flags)

    @property
    def log_z(self) -> float:
        """log Z of the last RBM, nats.

        :raises ValueError: before the first observation.
        """
        return float(self._observed().mean[0])

    @property
    def log_z_std(self) -> float:
        """Standard deviation of log Z, nats.

        :raises ValueError: before the first observation.
        """
        return float(log_z_std(self._observed()))

    def _observed(self) -> TrackerState:
        if self.state is None:
            raise ValueError("PartitionTracker has not observed anything yet; call observe(rbm, samples) first.")
        return self.state

    def _check(self, rbm: RBM, samples: ArrayLike, beta: ArrayLike | None) -> tuple[tf.Tensor, tf.Tensor]:
        check_rbm(rbm)
        array = np.asarray(samples)
        num_temps, n_v = len(self.beta), int(rbm.b.shape[0])
        if array.ndim != 3 or array.shape[0] != num_temps or array.shape[2] != n_v or array.shape[1] < 2:
            raise ValueError(
                f"samples must have the shape [M, N, n_v] = [{num_temps}, at least 2, {n_v}], got {array.shape}."
            )
        check_binary(array.reshape(-1, n_v), name="samples")
        if beta is not None:
            ladder = check_ladder(beta)
            if len(ladder) != num_temps:
                raise ValueError(f"beta must keep its {num_temps} temperatures, got {len(ladder)}.")
            self.beta = ladder
        if self._previous is not None and self._previous[0].W.shape != rbm.W.shape:
            raise ValueError(
                f"the RBM must keep its shape {tuple(self._previous[0].W.shape)}, got {tuple(rbm.W.shape)}; "
                "use a new tracker for another model."
            )
        return tf.constant(array.astype(np.float64)), tf.constant(self.beta)

    def _start(self, d_upper: tf.Tensor, d_lower: tf.Tensor, log_z_last: tf.Tensor, num_chains: int) -> TrackerState:
        log_z = self._first_log_z
        if log_z is None:
            middle = tf.reduce_mean(d_upper + d_lower, axis=1) / 2
            steps = bridge(d_upper, d_lower, middle, iterations=5).value.numpy()
            log_z = float(log_z_last) - np.r_[np.cumsum(steps[::-1])[::-1], 0.0]
        return initial_tracker(log_z, bias_variance=self._initial_bias_variance, expected_ess=num_chains / 2)
