"""The ladder of inverse temperatures, adapted to the flow of particles (SML-APT).

After Katzgraber, Trebst, Huse and Troyer (2006) and Desjardins, Courville and Bengio, "Adaptive parallel tempering for
stochastic maximum likelihood learning of RBMs" (2010). A particle is labelled "up" when it reaches beta = 1 and "down"
when it reaches beta = 0. The fraction f of "up" among the labelled particles of a level falls from 1 at beta = 1 to 0
at beta = 0; particles flow best where f falls evenly from level to level.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from rbm_tracking.model.checks import check_ladder

__all__ = ["Ladder", "adapt", "flow_fraction", "initial_ladder", "observe_flow", "reference_return_time", "spawn_level"]

_UP = 1
_DOWN = -1
_SMOOTHING = 0.05  # of f towards even steps, so that no two temperatures meet


class Ladder(NamedTuple):
    """`beta` [M]; smoothed counts `up` and `down` [M] of labelled particles; of each slot [M, N] the `label` (+1 up, -1
    down, 0 none) and the `age`, updates since a round trip last ended at beta = 1; `return_time` [], the smoothed
    length of a round trip in updates."""

    beta: tf.Tensor
    up: tf.Tensor
    down: tf.Tensor
    label: tf.Tensor
    age: tf.Tensor
    return_time: tf.Tensor


def initial_ladder(beta: ArrayLike, num_chains: int, dtype: tf.DType = tf.float32) -> Ladder:
    """A ladder of the given inverse temperatures, whose flow is even until particles have been seen.

    :raises ValueError: if `beta` does not decrease from 1 to 0.
    """
    checked = check_ladder(beta)
    num_temps = len(checked)
    even = np.linspace(1.0, 0.0, num_temps)
    return Ladder(
        beta=tf.constant(checked, dtype),
        up=tf.constant(even, dtype),
        down=tf.constant(1.0 - even, dtype),
        label=tf.zeros([num_temps, num_chains], tf.int32),
        age=tf.zeros([num_temps, num_chains], tf.int32),
        return_time=tf.constant(2.0 * num_temps**2, dtype),
    )


def observe_flow(ladder: Ladder, level: tf.Tensor) -> Ladder:
    """Update labels and smoothed counts with the levels [M, N] of the slots after a round of swaps.

    The counts forget at the pace of round trips: their rate is 1 / (return time + 50).
    """
    num_temps = level.shape[0]
    dtype = ladder.beta.dtype
    # "up" after beta = 1, "down" after beta = 0; a round trip ends where one that is "down" reaches the top
    is_top = tf.equal(level, 0)
    is_bottom = tf.equal(level, num_temps - 1)
    is_return = is_top & tf.equal(ladder.label, _DOWN)
    label = tf.where(is_top, _UP, tf.where(is_bottom, _DOWN, ladder.label))
    age = ladder.age + 1
    # The smoothed length of a round trip sets the pace at which counts are forgotten.
    returns = tf.reduce_sum(tf.cast(is_return, dtype))
    mean_age = tf.reduce_sum(tf.where(is_return, tf.cast(age, dtype), 0.0)) / tf.maximum(returns, 1.0)
    weight = tf.minimum(0.05 * returns, 0.5)
    return_time = ladder.return_time + weight * (mean_age - ladder.return_time)
    rate = 1.0 / (return_time + 50.0)
    # How many of each label are at each level.
    is_at = tf.equal(tf.range(num_temps, dtype=tf.int32)[:, None, None], level[None])
    counts = [tf.reduce_sum(tf.cast(is_at & tf.equal(label, kind)[None], dtype), axis=[1, 2]) for kind in (_UP, _DOWN)]
    return Ladder(
        beta=ladder.beta,
        up=ladder.up + rate * (counts[0] - ladder.up),
        down=ladder.down + rate * (counts[1] - ladder.down),
        label=label,
        age=tf.where(is_return, 0, age),
        return_time=return_time,
    )


def flow_fraction(ladder: Ladder) -> tf.Tensor:
    """f = up / (up + down) of each level, averaged with its neighbours and made to fall from 1 to 0, [M].

    The average, because two rounds of swaps in an update let particles step over every other level, so that the
    measured f alternates. Where it still rises, the middle of the lowest before and the highest after.
    """
    num_temps = ladder.beta.shape[0]
    fraction = ladder.up / tf.maximum(ladder.up + ladder.down, 1e-6)
    one = tf.ones_like(fraction[:1])
    zero = tf.zeros_like(fraction[:1])
    # f between its ends 1 and 0, averaged with the neighbours
    f = tf.concat([one, fraction[1:-1], zero], axis=0)
    f = tf.concat([one, 0.25 * (f[:-2] + f[2:]) + 0.5 * f[1:-1], zero], axis=0)
    # Where it rises: the middle of the lowest before and the highest after.
    is_before = tf.constant(np.tri(num_temps, dtype=bool))
    lowest_before = tf.reduce_min(tf.where(is_before, f[None], tf.ones_like(f)[None]), axis=1)
    highest_after = tf.reduce_max(tf.where(tf.transpose(is_before), f[None], tf.zeros_like(f)[None]), axis=1)
    return 0.5 * (lowest_before + highest_after)


def adapt(ladder: Ladder, acceptance: tf.Tensor, rate: float = 0.001) -> Ladder:
    """Move the inner temperatures a part of the way to those at which f would fall evenly.

    The measured f(beta) is inverted as a piecewise linear function. beta stays sorted and keeps its ends 1 and 0.

    :param acceptance: of the M-1 pairs.
    :param rate: the part of the way when fewer than 70 % of the swaps are accepted. It falls to 0 at 90 %: particles
        then run through the ladder at full speed, and f says nothing about it.
    """
    beta = ladder.beta
    # The fewer swaps are accepted, the further beta moves to where f falls evenly.
    need = tf.clip_by_value((0.9 - tf.reduce_mean(acceptance)) / 0.2, 0.0, 1.0)
    even = tf.linspace(tf.ones([], beta.dtype), tf.zeros([], beta.dtype), beta.shape[0])
    f = (1.0 - _SMOOTHING) * flow_fraction(ladder) + _SMOOTHING * even
    moved = beta + tf.cast(need * rate, beta.dtype) * (_invert(f, beta, even) - beta)
    return ladder._replace(beta=tf.concat([beta[:1], moved[1:-1], beta[-1:]], axis=0))


def _invert(f: tf.Tensor, beta: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """beta at which the decreasing piecewise linear function through (beta, f) has the values `targets`, [M]."""
    # By how much of each piece beta has fallen where f is at its target.
    width = f[:-1] - f[1:]  # [M-1], positive
    part = tf.clip_by_value((f[:-1][None] - targets[:, None]) / width[None], 0.0, 1.0)  # [M, M-1]
    return beta[0] - tf.linalg.matvec(part, beta[:-1] - beta[1:])


def reference_return_time(acceptance: ArrayLike) -> float:
    """Updates of a round trip over M levels whose pairs are accepted with the mean probability p: 2 M (M-1) / p.

    That of a particle that walks without preference; a longer one says that particles are held up somewhere.
    """
    acceptance = np.asarray(acceptance, np.float64)
    num_temps = len(acceptance) + 1
    return float(2.0 * num_temps * (num_temps - 1) / max(float(acceptance.mean()), 1e-3))


def spawn_level(ladder: Ladder, acceptance: ArrayLike) -> int | None:
    """Where a new temperature is needed: i if one belongs between levels i and i+1, None if none is needed.

    One is needed if the mean acceptance is below 0.4 or a round trip takes longer than the reference. It
    belongs where f falls most.

    :param acceptance: smoothed acceptance of the M-1 pairs.
    """
    # Swaps are rare, or particles are held up somewhere.
    acceptance = np.asarray(acceptance, np.float64)
    if acceptance.mean() >= 0.4 and float(ladder.return_time) <= reference_return_time(acceptance):
        return None
    return int(np.argmax(-np.diff(np.asarray(flow_fraction(ladder)))))
