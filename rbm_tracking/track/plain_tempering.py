"""Parallel tempering in NumPy: :mod:`rbm_tracking.track.tempering` for small models, which a graph would keep waiting.

Particles are arrays: rows v [M, N, n_v] with their activations a, and the temperature `level` [M, N] of each slot.
"""

from typing import NamedTuple

import numpy as np

from rbm_tracking.model import plain
from rbm_tracking.model.rbm import RBM
from rbm_tracking.model.visible import Bernoulli, Visible

__all__ = ["PlainSwaps", "gibbs", "swap"]

Array = np.ndarray


class PlainSwaps(NamedTuple):
    """`tempering.Swaps` as arrays, with the `slot` [M, N] of the particle at each level after the swaps."""

    d_upper: Array
    d_lower: Array
    acceptance: Array
    log_q: Array
    slot: Array


def gibbs(rbm: RBM, v: Array, a: Array, beta: Array, *, steps: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """`steps` rounds at inverse temperatures `beta` [...] of rows v [..., n_v] with activations a [..., n_h]."""
    for _ in range(steps):
        h = plain.draw_units(rbm.hidden, a * beta[..., None], rng)
        v = plain.draw_visible(rbm, h, rng, beta)
        a = plain.activations(rbm, v)
    return v, a


def swap(
    a: Array,
    level: Array,
    beta: Array,
    *,
    rng: np.random.Generator,
    hidden: Visible = Bernoulli(),
) -> tuple[Array, PlainSwaps]:
    """The levels of all slots after a round of swaps, and what it saw; other arguments as for `tempering.swap`.

    :param rng: of the noise.
    :param hidden: what the hidden units are.
    """
    num_temps, num_chains = level.shape
    columns = np.arange(num_chains)
    # Slots in the order of their temperatures, and log q~ of each at its own.
    slot = np.argsort(level, axis=0)
    log_q = plain.hidden_sum(hidden, a[slot, columns], beta[:, None])
    d_upper = np.empty((num_temps - 1, num_chains), a.dtype)
    d_lower = np.empty_like(d_upper)
    for parity in (1, 0):
        pairs = np.arange(parity, num_temps - 1, 2)
        partner = np.arange(num_temps)
        partner[pairs] = pairs + 1
        partner[pairs + 1] = pairs
        # Eq. (2): d of the two particles of each pair of this parity.
        log_q_partner = plain.hidden_sum(hidden, a[slot, columns], beta[partner][:, None])
        difference = log_q_partner - log_q
        d_upper[pairs] = difference[pairs]
        d_lower[pairs] = -difference[pairs + 1]
        noise = rng.random((len(pairs), num_chains))
        # Accepted pairs exchange their places in the order of temperatures, and have log q~ of there.
        accepted = np.log(noise + 1e-300) < d_upper[pairs] - d_lower[pairs]
        is_moved = np.zeros((num_temps, num_chains), bool)
        is_moved[pairs] = is_moved[pairs + 1] = accepted
        slot = np.where(is_moved, slot[partner], slot)
        log_q = np.where(is_moved, log_q_partner[partner], log_q)
    acceptance = np.exp(np.minimum(d_upper - d_lower, 0.0)).mean(axis=1, dtype=np.float64)
    # Of each slot in place of each temperature.
    log_q_of_slot = np.empty_like(log_q)
    log_q_of_slot[slot, columns] = log_q
    new_level = np.empty_like(level)
    new_level[slot, columns] = np.arange(num_temps)[:, None]
    return new_level, PlainSwaps(d_upper, d_lower, acceptance, log_q_of_slot, slot)
