"""The path through parameters: annealing and tempering along the RBMs that training went through.

After Bereux, Decelle, Furtlehner and Seoane, "Fast training and sampling of restricted Boltzmann machines" (2024,
arXiv 2405.15376). Temperature is the wrong axis where modes are lost by first-order transitions; in training they
appeared one after the other. A trajectory starts from independent units and leads over RBMs theta_0, theta_1, ... to
the last one, on straight lines between them:

    log q~_s(v) = log q~(v; (1 - s) theta_k + s theta_{k+1}),        0 <= s <= 1.

Any path gives the right weights: E[w] = Z. The closer it is to equilibrium at each step, the more even they are, so
that steps are allotted by the distance, the standard deviation of log q~_{k+1} - log q~_k over particles.

    path = trajectory([*nodes, rbm], base_b=base_rate_biases(data))
    steps = allotted(distances(path, seed=seed), 1000)
    annealed(path, steps, seed=seed), reverse_annealed(path, steps, samples, seed=seed)

:mod:`rbm_tracking.estimates.trajectory_tempering` samples along it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from gpflow_deep_base.files import entries
from rbm_tracking.estimates.ais import AISResult, result_of
from rbm_tracking.model import plain
from rbm_tracking.model.checks import check_rbm
from rbm_tracking.model.random import Execution, key_at
from rbm_tracking.model.rbm import (
    RBM,
    TENSORS,
    activations,
    gibbs_round,
    hidden_sum,
    log_prob_unnormalised,
    log_z_independent,
    sample_visible,
)
from rbm_tracking.model.serialization import SavedRBM, load_rbm, save_rbm

__all__ = [
    "Trajectory",
    "allotted",
    "anneal",
    "annealed",
    "between",
    "distances",
    "first_states",
    "half_precision",
    "is_node",
    "keep_in",
    "load_nodes",
    "reverse_annealed",
    "trajectory",
]

_PIECE = 50  # steps in one compiled call
_COOLED = 24  # RBMs on a path from beta to 1, between which steps are allotted
_SITE_HIDDEN, _SITE_VISIBLE, _SITE_FIRST = range(3)

Array = NDArray[np.float64]
Trajectory = tuple[RBM, ...]
"""RBMs of one size and family; the first has W = 0 and c = 0, the last is the one that matters."""


def is_node(step: int, *, ratio: float = 1.15) -> bool:
    """Whether to keep the parameters after this update: at even distances in its logarithm, from 10 on."""
    nearest = round(np.log(max(step, 10) / 10) / np.log(ratio))
    return step >= 10 and step in {round(10 * ratio**k) for k in (nearest - 1, nearest, nearest + 1)}


def half_precision(rbm: RBM) -> RBM:
    """With W in float16: parameters along the way only mark a path, on which any point is right."""
    return rbm._replace(W=tf.cast(rbm.W, tf.float16))


def trajectory(
    rbms: Sequence[RBM], *, base_b: ArrayLike | None = None, smoothing: float = 0.0, beta: float = 1.0
) -> Trajectory:
    """The path from independent units over `rbms` in this order, in the float type of the last one.

    :param base_b: visible biases [n_v] at the start, for example `base_rate_biases(data)`; by default those of the
        first RBM.
    :param smoothing: all RBMs but the last one are averaged with their neighbours, with normal weights of this standard
        deviation, in RBMs. Stochastic gradients shake parameters: the way through them as they were is many times as
        long as the way through their averages.
    :param beta: inverse temperature of the RBMs on the way, above 0 and at most 1; from the last one at beta the path
        goes on to 1. Below 1 particles also find modes of the last RBM that training did not lead to.
    :raises ValueError: if there is no RBM, their sizes or families differ, `smoothing` is negative or `beta` is not
        in its range.
    """
    if not rbms:
        raise ValueError("a trajectory needs at least one RBM, got none.")
    last = rbms[-1]
    for rbm in rbms:
        check_rbm(rbm)
        if rbm.W.shape != last.W.shape or type(rbm.visible) is not type(last.visible):
            raise ValueError(
                f"the RBMs of a trajectory must have one size and one family of visible units, got {rbm.W.shape} "
                f"{type(rbm.visible).__name__} and {last.W.shape} {type(last.visible).__name__}."
            )
    # RBMs of one float type, smoothed along the path.
    nodes = [tf.nest.map_structure(lambda part, like: tf.cast(part, like.dtype), rbm, last) for rbm in rbms]
    if not smoothing >= 0:
        raise ValueError(f"smoothing must not be negative, got {smoothing}.")
    if not 0 < beta <= 1:
        raise ValueError(f"beta must be above 0 and at most 1, got {beta}.")
    if smoothing:
        nodes = [*(_smoothed(nodes, k, smoothing) for k in range(len(nodes) - 1)), nodes[-1]]
    # The start: independent units.
    b = nodes[0].b if base_b is None else tf.constant(np.asarray(base_b), last.b.dtype)
    start = nodes[0]._replace(W=tf.zeros_like(last.W), b=b, c=tf.zeros_like(last.c))
    if beta == 1:
        return (start, *nodes)
    # On the way at beta, and from the last one at beta up to 1.
    betas = [beta] * (len(nodes) - 1) + list(np.linspace(beta, 1.0, _COOLED))
    return (
        start,
        *(
            between(start, node, tf.constant(node_beta, b.dtype))
            for node, node_beta in zip(nodes + nodes[-1:] * (_COOLED - 1), betas, strict=True)
        ),
    )


def _smoothed(nodes: Sequence[RBM], k: int, width: float) -> RBM:
    """The mean of all RBMs with normal weights around number k."""
    # Of the RBMs whose weights count.
    weights = np.exp(-0.5 * ((np.arange(len(nodes)) - k) / width) ** 2)
    near = np.flatnonzero(weights > 1e-3)
    parts = [
        tf.nest.map_structure(lambda part, w=float(weights[i] / weights[near].sum()): w * part, nodes[i]) for i in near
    ]
    mean: RBM = tf.nest.map_structure(lambda *terms: tf.add_n(terms), *parts)
    return mean


def distances(
    path: Trajectory,
    *,
    num_chains: int = 100,
    num_steps: int = 3,
    seed: tf.Tensor,
    generator: str = "threefry",
    jit_compile: bool = True,
) -> Array:
    """How far each RBM is from the next, [K - 1]: the mean over both ends of the standard deviation of the change of
    log q~ over particles, nats.

    :param num_steps: with which particles are led from one RBM to the next.
    """
    v = first_states(path[0], num_chains, seed, generator)
    options: Execution = {"generator": generator, "jit_compile": jit_compile}
    spreads = []
    for k, (old, new) in enumerate(itertools.pairwise(path)):
        # The spread at both ends of a piece, by particles that are led along it.
        before = _spread_between(old, new, v)
        v, _ = anneal(old, new, num_steps, v, seed=seed, start=num_steps * k, **options)
        spreads.append(0.5 * (before + _spread_between(old, new, v)))
    return np.array(spreads)


def allotted(lengths: ArrayLike, num_steps: int) -> NDArray[np.int64]:
    """`num_steps` steps or a few more, in proportion to the lengths, at least one between two RBMs, [K - 1].

    :raises ValueError: if there are fewer steps than pieces of the path.
    """
    lengths = np.asarray(lengths, np.float64)
    if num_steps < len(lengths):
        raise ValueError(f"num_steps must be at least {len(lengths)}, one for each piece of the path, got {num_steps}.")
    # In proportion to the lengths, and no piece without a step.
    share = lengths / max(lengths.sum(), 1e-300)
    return np.maximum(1, np.round(share * num_steps)).astype(np.int64)


def annealed(
    path: Trajectory,
    steps: ArrayLike,
    *,
    num_chains: int = 100,
    seed: tf.Tensor,
    generator: str = "threefry",
    jit_compile: bool = True,
) -> AISResult:
    """Log Z of the last RBM from below: annealed importance sampling along the path.

    :param steps: between neighbours, [K - 1], see :func:`allotted`.
    :param num_chains: at least 2.
    :param seed: int32 [2].
    :raises ValueError: if the weights are not finite.
    """
    v = first_states(path[0], num_chains, seed, generator)
    v, change = _along(path, np.asarray(steps), v, seed, generator, jit_compile)
    return result_of(_log_z_start(path) + change, path[-1].visible.stored(v.numpy()))


def reverse_annealed(
    path: Trajectory,
    steps: ArrayLike,
    samples: ArrayLike,
    *,
    seed: tf.Tensor,
    generator: str = "threefry",
    jit_compile: bool = True,
) -> AISResult:
    """Log Z of the last RBM from above: its samples [C, n_v] are annealed to independent units.

    Other arguments and errors as for :func:`annealed`; of samples, see `ais.reverse_ais`.
    """
    v = tf.constant(path[-1].visible.check(samples, n_v=path[-1].b.shape[0], name="samples"), path[-1].W.dtype)
    v, change = _along(path[::-1], np.asarray(steps)[::-1], v, seed, generator, jit_compile)
    return result_of(_log_z_start(path) - change, path[-1].visible.stored(v.numpy()), is_reverse=True)


# One piece of the path.


def anneal(
    old: RBM,
    new: RBM,
    num_steps: int,
    v: tf.Tensor,
    *,
    seed: tf.Tensor,
    start: int = 0,
    generator: str = "threefry",
    jit_compile: bool = True,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Lead particles of one RBM to another on the straight line between them, by AIS in so many steps.

    :param v: [C, n_v], samples of `old`.
    :param start: number of the first step; with the seed it determines the noise.
    :return: the particles, and their log weights [C] in float64: E[w] = Z_new / Z_old.
    """
    if generator == "numpy":
        return _anneal_plain(old, new, num_steps, v, plain.noise_of(seed, start))
    run = _piece_compiled if jit_compile else _piece
    # All calls have one size, so that one graph serves them: the last is filled up.
    at = np.linspace(0.0, 1.0, num_steps + 1)
    at = np.append(at, np.ones(-num_steps % _PIECE))
    change = tf.zeros([v.shape[0]], tf.float64)
    for first in range(0, num_steps, _PIECE):
        count = min(_PIECE, num_steps - first)
        s = tf.constant(at[first : first + _PIECE + 1], v.dtype)
        begin = tf.constant(start + first)
        v, change = run(old, new, s, tf.constant(count), v, change, seed, begin, generator)
    return v, change


def _anneal_plain(
    old: RBM, new: RBM, num_steps: int, v: tf.Tensor, rng: np.random.Generator
) -> tuple[tf.Tensor, tf.Tensor]:
    """:func:`anneal` in NumPy."""
    first = plain.arrays(old)
    second = plain.arrays(new)
    has_own = bool(tf.nest.flatten(first[3:]))  # units with parameters, which move as well
    rows = v.numpy()
    change = np.zeros(v.shape[0])
    here = first
    with np.errstate(over="ignore"):
        for k in range(1, num_steps + 1):
            last = here
            share = np.asarray(k / num_steps, rows.dtype)
            here = between(first, second, share) if has_own else _weights_between(first, second, share)
            # Weigh v by the next RBM: log q~_new(v) - log q~_old(v).
            a = plain.activations(here, rows)
            change += plain.hidden_sum(here.hidden, a)
            change -= plain.hidden_sum(last.hidden, plain.activations(last, rows))
            change += rows @ (here.b - last.b)
            if has_own:
                change += here.visible.log_measure(rows) - last.visible.log_measure(rows)
            # Move v there: h | v and v | h.
            rows = plain.draw_visible(here, plain.draw_units(here.hidden, a, rng), rng)
    return tf.constant(rows), tf.constant(change)


def _piece_plain(
    first: RBM,
    last: RBM,
    at: tf.Tensor,
    count: tf.Tensor,
    v: tf.Tensor,
    change: tf.Tensor,
    seed: tf.Tensor,
    start: tf.Tensor,
    generator: str,
) -> tuple[tf.Tensor, tf.Tensor]:
    """`count` steps between shares `at` [_PIECE + 1] of the way: weigh v by the next RBM, then move it there by a round
    of Gibbs sampling."""

    def step(k: tf.Tensor, v: tf.Tensor, change: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        old = between(first, last, at[k])
        new = between(first, last, at[k + 1])
        # Weigh v by the next RBM: log q~_new(v) - log q~_old(v).
        a = activations(new, v)
        gain = hidden_sum(new.hidden, a) - hidden_sum(old.hidden, activations(old, v))
        log_ratio = tf.cast(gain, tf.float64)
        log_ratio += tf.cast(tf.linalg.matvec(v, new.b - old.b), tf.float64)
        if tf.nest.flatten(new.visible):  # the measure has parameters
            measures = new.visible.log_measure(v, TENSORS) - old.visible.log_measure(v, TENSORS)
            log_ratio += tf.cast(measures, tf.float64)
        # Move v there: h | v and v | h.
        keys = key_at(seed, start + k, _SITE_HIDDEN), key_at(seed, start + k, _SITE_VISIBLE)
        return k + 1, gibbs_round(new, a, keys, generator), change + log_ratio

    _, v, change = tf.while_loop(lambda k, *_: k < count, step, (0, v, change))
    return v, change


def between(old: RBM, new: RBM, s: tf.Tensor) -> RBM:
    """(1 - s) old + s new."""
    mixed: RBM = tf.nest.map_structure(lambda a, b: a + s * (b - a), old, new)
    return mixed


def _weights_between(old: RBM, new: RBM, s: object) -> RBM:
    """:func:`between` of arrays whose units have no parameters, without a walk through the structure."""
    W, b, c = (start + s * (end - start) for start, end in zip(old[:3], new[:3], strict=True))
    return RBM(W, b, c, *old[3:])


_piece = tf.function(_piece_plain, autograph=False)
_piece_compiled = tf.function(_piece_plain, autograph=False, jit_compile=True)


def _along(
    path: Trajectory, steps: NDArray[np.integer], v: tf.Tensor, seed: tf.Tensor, generator: str, jit_compile: bool
) -> tuple[tf.Tensor, Array]:
    if steps.shape != (len(path) - 1,) or (steps < 1).any():
        raise ValueError(f"steps must be {len(path) - 1} positive numbers, one for each piece, got {steps.tolist()}.")
    options: Execution = {"generator": generator, "jit_compile": jit_compile}
    # Steps are numbered over the whole path: the noise of a step is its own.
    total = np.zeros(v.shape[0])
    begins = np.cumsum([1, *steps])
    for old, new, count, begin in zip(path[:-1], path[1:], steps, begins[:-1], strict=True):
        v, change = anneal(old, new, int(count), v, seed=seed, start=int(begin), **options)
        total += change.numpy()
    return v, total


def first_states(start: RBM, num_chains: int, seed: tf.Tensor, generator: str = "threefry") -> tf.Tensor:
    """Exact samples [C, n_v] of an RBM without weights."""
    field = tf.broadcast_to(start.b, [num_chains, start.b.shape[0]])
    return sample_visible(start.visible, field, key_at(seed, tf.constant(0), _SITE_FIRST), generator)


def _log_z_start(path: Trajectory) -> float:
    return float(log_z_independent(path[0].b, path[0].c.shape[0], path[0].visible, path[0].hidden))


def _spread_between(old: RBM, new: RBM, v: tf.Tensor) -> float:
    return float(tf.math.reduce_std(log_prob_unnormalised(new, v) - log_prob_unnormalised(old, v)))


# Files.


def keep_in(folder: str | os.PathLike[str]) -> Callable[[SavedRBM], None]:
    """A function that writes parameters along the way to `folder`, a file for each update, in half precision."""

    def keep(saved: SavedRBM) -> None:
        save_rbm(saved._replace(rbm=half_precision(saved.rbm)), Path(folder) / f"step_{saved.step:09d}.npz")

    return keep


def load_nodes(folder: str | os.PathLike[str], *, until: int | None = None) -> list[RBM]:
    """The RBMs that :func:`keep_in` wrote, in the order of their updates.

    :param until: the last update that counts.
    :raises ValueError: if there are none, or a file cannot be read.
    """
    # Names have the numbers of updates in a fixed width: their order is that of training.
    saved = [load_rbm(path) for path in entries(folder, "step_*.npz")]
    nodes = [record.rbm for record in saved if until is None or record.step <= until]
    if not nodes:
        raise ValueError(f"{folder} must hold parameters along a run, got none; train with --trajectory.")
    return nodes
