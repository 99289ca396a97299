"""Parallel tempering: block Gibbs sampling at M temperatures and swaps between neighbours (Section 2, Eq. 2).

All temperatures and chains are one batch. A particle keeps its place, its slot, and swaps exchange temperatures:
`level` says which inverse temperature a slot has, beta[0] = 1 is the target and beta[M-1] = 0. Column n of [M, N] holds
one particle at each temperature; swaps stay within a column, so columns are independent given the parameters.

Swaps compare the marginals q~_beta(v), in which the hidden units are summed out: they are accepted at least as often as
those of the joint (v, h), and their energies are what bridge sampling needs.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from rbm_tracking.model import plain
from rbm_tracking.model.checks import check_ladder, linear_ladder
from rbm_tracking.model.random import key_at, uniform
from rbm_tracking.model.rbm import RBM, activations, gibbs_round, hidden_sum, sample_visible
from rbm_tracking.model.visible import Bernoulli, Visible
from rbm_tracking.track import plain_tempering

__all__ = [
    "Chains",
    "Swaps",
    "at_level",
    "check_rounds",
    "gibbs",
    "initial_chains",
    "linear_ladder",
    "sample",
    "swap",
    "swap_log_ratio",
]

_SITES_PER_PASS = 2
_FIRST_SWAP_SITE = 1 << 20


class Chains(NamedTuple):
    """Particles: allowed rows `v` [M, N, n_v], `a` = Wv + c [M, N, n_h], each slot's temperature `level` [M, N]."""

    v: tf.Tensor
    a: tf.Tensor
    level: tf.Tensor


class Swaps(NamedTuple):
    """What a round of swaps saw, for each of the M-1 neighbouring pairs of levels (i, i+1).

    `d_upper` [M-1, N] is d(x) = log q~[i+1](x) - log q~[i](x) at the particles of level i, `d_lower` at those of level
    i+1, in nats; `acceptance` [M-1] the mean probability of acceptance; `log_q` [M, N] is log q~ - b'v at each slot's
    own temperature after the swaps.
    """

    d_upper: tf.Tensor
    d_lower: tf.Tensor
    acceptance: tf.Tensor
    log_q: tf.Tensor


def initial_chains(rbm: RBM, num_temps: int, num_chains: int, *, seed: tf.Tensor) -> Chains:
    """M x N particles drawn from the visible biases alone, exact at beta = 0 and at W = 0.

    :param seed: int32 [2].
    """
    v = sample_visible(rbm.visible, tf.broadcast_to(rbm.b, [num_temps, num_chains, rbm.b.shape[0]]), seed)
    # Slot i begins at temperature i.
    level = tf.tile(tf.range(num_temps, dtype=tf.int32)[:, None], [1, num_chains])
    return Chains(v, activations(rbm, v), level)


def gibbs(
    rbm: RBM,
    chains: Chains,
    beta: tf.Tensor,
    *,
    steps: int,
    seed: tf.Tensor,
    step: tf.Tensor,
    generator: str = "threefry",
) -> Chains:
    """`steps` rounds of h ~ q_beta(h | v), v ~ q_beta(v | h) at all temperatures, each particle at its own.

    :param beta: [M].
    :param seed: int32 [2]; with `step`, the number of the update, it determines the noise.
    """
    v, a, level = chains
    particle_beta = tf.gather(beta, level)
    for i in range(steps):
        # Noise of h and of v: two sites a round, below those of swaps.
        keys = key_at(seed, step, _SITES_PER_PASS * i), key_at(seed, step, _SITES_PER_PASS * i + 1)
        v = gibbs_round(rbm, a, keys, generator, particle_beta)
        a = activations(rbm, v)
    return Chains(v, a, level)


def sample(
    rbm: RBM,
    chains: Chains,
    beta: ArrayLike,
    num_samples: int,
    *,
    seed: tf.Tensor,
    burn_in: int = 1000,
    thin: int = 200,
    generator: str = "threefry",
    jit_compile: bool = True,
) -> np.ndarray:
    """Approximate samples of the RBM by parallel tempering at fixed parameters, [num_samples, n_v].

    Starts at `chains`; every `thin` rounds after the burn-in the particles at beta = 1 are taken.

    :param beta: ladder [M].
    :raises ValueError: if `num_samples`, `burn_in` or `thin` are not positive (`burn_in` may be 0).
    """
    check_rounds(num_samples, burn_in, thin)
    betas = tf.constant(check_ladder(beta), rbm.W.dtype)

    run = _rounds_numpy if generator == "numpy" else _rounds_compiled if jit_compile else _rounds
    rounds = functools.partial(run, rbm, betas=betas, seed=seed)
    samples: list[np.ndarray] = []
    # The burn-in, then the particles at beta = 1 after every `thin` rounds.
    chains = rounds(chains, start=tf.constant(0), count=tf.constant(burn_in), generator=generator)
    done = burn_in
    while len(samples) * chains.level.shape[1] < num_samples:
        chains = rounds(chains, start=tf.constant(done), count=tf.constant(thin), generator=generator)
        done += thin
        samples.append(rbm.visible.stored(tf.boolean_mask(chains.v, tf.equal(chains.level, 0)).numpy()))
    return np.concatenate(samples)[:num_samples]


def check_rounds(num_samples: int, burn_in: int, thin: int) -> None:
    """Check how many samples there are to be, after how many rounds.

    :raises ValueError: if `num_samples` or `thin` is not positive, or `burn_in` is negative.
    """
    if num_samples < 1 or burn_in < 0 or thin < 1:
        raise ValueError(
            f"num_samples and thin must be positive, and burn_in not negative, got {num_samples}, {thin} and {burn_in}."
        )


def _rounds_plain(
    rbm: RBM, chains: Chains, betas: tf.Tensor, seed: tf.Tensor, start: tf.Tensor, count: tf.Tensor, generator: str
) -> Chains:
    """`count` rounds at fixed parameters, of Gibbs sampling and swaps, the first with the number `start`."""

    def body(i: tf.Tensor, chains: Chains) -> tuple[tf.Tensor, Chains]:
        moved = gibbs(rbm, chains, betas, steps=1, seed=seed, step=i, generator=generator)
        return i + 1, swap(moved, betas, seed=seed, step=i, generator=generator, hidden=rbm.hidden)[0]

    return tf.while_loop(lambda i, _: i < start + count, body, (start, chains))[1]


def _rounds_numpy(
    rbm: RBM, chains: Chains, betas: tf.Tensor, seed: tf.Tensor, start: tf.Tensor, count: tf.Tensor, generator: str
) -> Chains:
    """:func:`_rounds_plain` in NumPy."""
    at = plain.arrays(rbm)
    (v, a, level) = plain.arrays(chains)
    beta = betas.numpy()
    first = int(start)
    rng = plain.noise_of(seed, first)
    # exp may overflow to infinity, of which sigmoids and draws are right
    with np.errstate(over="ignore"):
        for _ in range(int(count)):
            v, a = plain_tempering.gibbs(at, v, a, beta[level], steps=1, rng=rng)
            level, _ = plain_tempering.swap(a, level, beta, rng=rng, hidden=at.hidden)
    return Chains(*map(tf.constant, (v, a, level)))


_rounds = tf.function(_rounds_plain, autograph=False)
_rounds_compiled = tf.function(_rounds_plain, jit_compile=True, autograph=False)


def swap(
    chains: Chains,
    beta: tf.Tensor,
    *,
    seed: tf.Tensor,
    step: tf.Tensor,
    generator: str = "threefry",
    hidden: Visible = Bernoulli(),
) -> tuple[Chains, Swaps]:
    """Propose to swap all neighbouring pairs (i, i+1): those of even i, then those of odd i, counted from 1 (Eq. 2).

    :param beta: [M].
    :param hidden: what the hidden units are.
    """
    v, a, level = chains
    num_temps, num_chains = level.shape
    log_q = hidden_sum(hidden, a, tf.gather(beta, level))
    d_upper = d_lower = tf.zeros([num_temps - 1, num_chains], a.dtype)
    for parity in (1, 0):  # counted from 0, the paper's even pairs are the odd ones
        # Pairs of this parity, and log q~ of each particle at the temperature of its partner.
        is_pair = tf.constant(np.arange(num_temps - 1) % 2 == parity)[:, None]
        partner = tf.constant(_partners(num_temps, range(parity, num_temps - 1, 2)), tf.int32)
        log_q_partner = hidden_sum(hidden, a, tf.gather(beta, tf.gather(partner, level)))
        # Eq. (2): d of the two particles of each pair, in the order of temperatures.
        difference = at_level(log_q_partner - log_q, level)
        d_upper = tf.where(is_pair, difference[:-1], d_upper)
        d_lower = tf.where(is_pair, -difference[1:], d_lower)
        # A pair swaps with the probability min(1, ratio).
        key = key_at(seed, step, _FIRST_SWAP_SITE + parity)
        log_noise = tf.math.log(uniform(key, (num_temps - 1, num_chains), a.dtype, generator))
        accepted = is_pair & (log_noise < swap_log_ratio(d_upper, d_lower))
        is_accepted = _of_slot(tf.pad(accepted, [[0, 1], [0, 0]]) | tf.pad(accepted, [[1, 0], [0, 0]]), level)
        log_q = tf.where(is_accepted, log_q_partner, log_q)
        level = tf.where(is_accepted, tf.gather(partner, level), level)
    # The mean probability has less noise than the share of swaps that happened.
    acceptance = tf.reduce_mean(tf.exp(tf.minimum(swap_log_ratio(d_upper, d_lower), 0.0)), axis=1)
    swaps = Swaps(d_upper, d_lower, acceptance, log_q)
    return Chains(v, a, level), swaps


def swap_log_ratio(d_upper: tf.Tensor, d_lower: tf.Tensor) -> tf.Tensor:
    """Log of the ratio in Eq. (2): d(x) - d(y) for x at level i and y at level i+1, nats."""
    return d_upper - d_lower


def at_level(values: tf.Tensor, level: tf.Tensor) -> tf.Tensor:
    """Values of slots [M, N] in the order of their temperatures, [M, N]."""
    # A column has one particle at each level: the sum has one term.
    is_at = tf.equal(tf.range(level.shape[0], dtype=tf.int32)[:, None, None], level[None])  # [level, slot, N]
    return tf.reduce_sum(tf.where(is_at, values[None], tf.zeros_like(values)[None]), axis=1)


def _of_slot(values: tf.Tensor, level: tf.Tensor) -> tf.Tensor:
    """Truth values of levels [M, N] for each slot [M, N]."""
    # The only level that a slot is at.
    is_at = tf.equal(tf.range(level.shape[0], dtype=tf.int32)[:, None, None], level[None])
    return tf.reduce_any(is_at & values[:, None], axis=0)


def _partners(num_temps: int, pairs: Sequence[int]) -> list[int]:
    partner = list(range(num_temps))
    for i in pairs:
        partner[i] = i + 1
        partner[i + 1] = i
    return partner
