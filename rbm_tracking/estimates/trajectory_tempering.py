"""Parallel trajectory tempering: sampling along the RBMs that training went through, and a bracket of log Z by it.

As parallel tempering, with points on a trajectory in the place of temperatures (Bereux, Decelle, Furtlehner and Seoane,
2024): particles swap between neighbours x at theta_i and y at theta_{i+1} with the probability

    min(1, q~_{i+1}(x) q~_i(y) / (q~_i(x) q~_{i+1}(y))).

At the first point units are independent, so that each round has new samples there, and each mode that appeared in
training is reached on the way on which it appeared.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from rbm_tracking.estimates.ais import Bracket
from rbm_tracking.estimates.trajectories import (
    Trajectory,
    allotted,
    anneal,
    annealed,
    between,
    distances,
    first_states,
    reverse_annealed,
)
from rbm_tracking.model.random import Execution, key_at, uniform
from rbm_tracking.model.rbm import RBM, activations, gibbs_round, log_prob_unnormalised
from rbm_tracking.track.tempering import check_rounds

__all__ = ["compiled_rounds", "tempered", "trajectory_bracket"]

# of the noise; Gibbs sampling of level i has sites _SITES + 2 i and + 1
_SITE_SWAP = 0
_SITES = 4

Array = NDArray[np.float64]


def tempered(
    path: Trajectory,
    lengths: ArrayLike,
    num_samples: int,
    *,
    num_chains: int = 20,
    spacing: float = 1.2,
    seed: tf.Tensor,
    burn_in: int = 300,
    thin: int = 20,
    generator: str = "threefry",
    jit_compile: bool = True,
) -> np.ndarray:
    """Samples of the last RBM by parallel tempering along the path, [num_samples, n_v].

    Levels lie at distances of `spacing` on it, at which about two swaps in five are accepted; the first level, of
    independent units, is drawn anew in each round. Particles are led to their levels along the path.

    :param lengths: of :func:`distances`.
    :param num_chains: particles at each level.
    :param burn_in: rounds before the first sample;
    :param thin: rounds between samples of a particle.
    :raises ValueError: if `num_samples` or `thin` is not positive, or `burn_in` is negative.
    """
    check_rounds(num_samples, burn_in, thin)
    lengths = np.asarray(lengths, np.float64)
    generator = "threefry" if generator == "numpy" else generator  # levels are of one graph
    # Levels along the path, and particles that are led to them.
    levels, v = _levels(path, lengths, spacing, num_chains, seed, generator, jit_compile)
    rounds = compiled_rounds(levels, seed=seed, generator=generator, jit_compile=jit_compile)
    # The burn-in, then the particles of the last level after every `thin` rounds.
    v = rounds(v, tf.constant(1), tf.constant(burn_in))
    done = burn_in + 1
    samples: list[np.ndarray] = []
    while len(samples) * num_chains < num_samples:
        v = rounds(v, tf.constant(done), tf.constant(thin))
        done = done + thin
        samples.append(path[-1].visible.stored(v[-1].numpy()))
    return np.concatenate(samples)[:num_samples]


def compiled_rounds(
    levels: list[RBM], *, seed: tf.Tensor, generator: str = "threefry", jit_compile: bool = True
) -> Callable[[list[tf.Tensor], tf.Tensor, tf.Tensor], list[tf.Tensor]]:
    """A function that makes `count` rounds of Gibbs sampling and swaps: `run(v, start, count)` -> v.

    `v` are the particles of the levels, [N, n_v] each; `start`, int32 [], the number of the first round, on which the
    noise depends.
    """

    def rounds(v: list[tf.Tensor], start: tf.Tensor, count: tf.Tensor) -> list[tf.Tensor]:
        def body(i: tf.Tensor, v: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
            return i + 1, _round(levels, v, seed, i, generator)

        return tf.while_loop(lambda i, _: i < start + count, body, (start, v))[1]

    return tf.function(rounds, jit_compile=jit_compile, autograph=False)


def _levels(
    path: Trajectory,
    lengths: Array,
    spacing: float,
    num_chains: int,
    seed: tf.Tensor,
    generator: str,
    jit_compile: bool,
) -> tuple[list[RBM], list[tf.Tensor]]:
    """RBMs at even distances on the path, and particles that were led to each."""
    # Positions at even distances on the path.
    ends = np.concatenate([[0.0], np.cumsum(np.maximum(lengths, 1e-9))])
    count = max(2, int(np.ceil(ends[-1] / spacing)) + 1)
    positions = np.interp(np.linspace(0.0, ends[-1], count), ends, np.arange(len(path)))
    options: Execution = {"generator": generator, "jit_compile": jit_compile}
    levels = [path[0]]
    particles = [first_states(path[0], num_chains, seed, generator)]
    # Particles are led from each level to the next.
    for i, position in enumerate(positions[1:], start=1):
        k = min(int(position), len(path) - 2)
        levels.append(between(path[k], path[k + 1], tf.constant(position - k, path[0].W.dtype)))
        led, _ = anneal(levels[-2], levels[-1], 20, particles[-1], seed=seed, start=20 * i, **options)
        particles.append(led)
    return levels, particles


def _round(levels: list[RBM], v: list[tf.Tensor], seed: tf.Tensor, step: tf.Tensor, generator: str) -> list[tf.Tensor]:
    """Gibbs sampling at each level, and swaps of every other pair of neighbours in turn."""
    count = len(levels)
    moved = []
    # Gibbs sampling at each level.
    for i, (rbm, x) in enumerate(zip(levels, v, strict=True)):
        keys = key_at(seed, step, _SITES + 2 * i), key_at(seed, step, _SITES + 2 * i + 1)
        moved.append(gibbs_round(rbm, activations(rbm, x), keys, generator))
    # log q~ of the particles at their own levels, and noise for the swaps
    shape = (count - 1, int(v[0].shape[0]))
    log_noise = tf.math.log(uniform(key_at(seed, step, _SITE_SWAP), shape, v[0].dtype, generator))
    log_q = [log_prob_unnormalised(rbm, x) for rbm, x in zip(levels, moved, strict=True)]
    after = list(moved)
    # Swaps with the probability min(1, q~_{i+1}(x) q~_i(y) / (q~_i(x) q~_{i+1}(y))).
    for i in range(count - 1):
        gain = log_prob_unnormalised(levels[i + 1], moved[i]) - log_q[i]
        loss = log_q[i + 1] - log_prob_unnormalised(levels[i], moved[i + 1])
        accepted = ((log_noise[i] < gain - loss) & tf.equal(step % 2, i % 2))[:, None]
        after[i] = tf.where(accepted, moved[i + 1], after[i])
        after[i + 1] = tf.where(accepted, moved[i], after[i + 1])
    return after


def trajectory_bracket(
    path: Trajectory,
    num_steps: int,
    *,
    num_chains: int = 100,
    seed: tf.Tensor,
    samples: ArrayLike | None = None,
    generator: str = "threefry",
    jit_compile: bool = True,
) -> Bracket:
    """Log Z of the last RBM from below and from above, with `num_steps` steps along the path in each direction.

    :param samples: of the last RBM, [C', n_v]; by default :func:`tempered` ones.
    """
    pilot, forward, sample_seed, reverse = tf.unstack(tf.random.experimental.stateless_split(seed, 4))
    options: Execution = {"generator": generator, "jit_compile": jit_compile}
    # A pilot measures the path, and steps are allotted by its distances.
    lengths = distances(path, num_chains=num_chains, seed=pilot, **options)
    steps = allotted(lengths, max(num_steps, len(lengths)))
    lower = annealed(path, steps, num_chains=num_chains, seed=forward, **options)
    if samples is None:
        samples = tempered(path, lengths, num_chains, seed=sample_seed, **options)
    return Bracket(lower, reverse_annealed(path, steps, samples, seed=reverse, **options))
