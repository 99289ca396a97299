"""Annealed importance sampling: the estimate of log Z that tracking replaces, and its reverse (Section 5).

The path of K+1 distributions starts from independent visible units with biases b_base and ends at the RBM:

    log q~_beta(v) = ((1 - beta) b_base + beta b)'v + sum_j log(1 + exp(beta a_j)),      a = Wv + c.

With b_base = b, the default, it is the tempered family of the tracker. Going up, E[w] = Z exactly, so that log of the
mean weight is below log Z on average; going down from exact samples of the RBM, E[1 / w] = 1 / Z, and the estimate is
above log Z on average (the reverse, or bidirectional, bound). Both are the same loop over the same kernels.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from rbm_tracking.estimates.annealing import CHUNK, SITE_FIRST, annealed
from rbm_tracking.model.checks import check_rbm
from rbm_tracking.model.random import Execution, key_at
from rbm_tracking.model.rbm import RBM, log_z_independent, sample_visible

__all__ = [
    "AISResult",
    "Bracket",
    "ais",
    "bracket",
    "burn_in",
    "effective",
    "is_at_once",
    "linear_schedule",
    "paper_schedule",
    "pooled",
    "result_of",
    "reverse_ais",
]

Array = NDArray[np.float64]


class AISResult(NamedTuple):
    """An estimate of log Z in nats, and how sure it is.

    :param log_z: log of the mean weight; in reverse, minus the log of the mean inverse weight.
    :param standard_error: of `log_z` by the delta method: the deviation of the mean weight, relative to it.
    :param interval: log of the mean weight less and plus three of its standard errors; an end is infinite if the
        mean is not three standard errors from zero.
    :param ess: effective sample size (sum w)^2 / sum w^2 of the weights, or of their inverses, between 1 and C.
    :param log_weights: [C], log of each chain's estimate of Z.
    :param v: [C, n_v], the chains' last states: near samples of the RBM with `log_weights`, or in reverse of the base.
    """

    log_z: float
    standard_error: float
    interval: tuple[float, float]
    ess: float
    log_weights: Array
    v: np.ndarray


class Bracket(NamedTuple):
    """Estimates from below and from above: on average `lower.log_z` <= log Z <= `upper.log_z`."""

    lower: AISResult
    upper: AISResult


def result_of(log_weights: Array, v: np.ndarray, *, is_reverse: bool = False, num_strata: int = 1) -> AISResult:
    """The estimate that the logs of the chains' estimates of Z, [C], and their last states v [C, n_v] make.

    :param is_reverse: the chains came from samples of the RBM, so that the inverse weights are averaged.
    :param num_strata: as many parts of equal numbers of chains, one after the other, have means of their own, which
        are not part of the error.
    :raises ValueError: if weights are not finite, or of a single chain.
    """
    # Down the path inverse weights are averaged: log Z is minus the log of their mean.
    sign = -1.0 if is_reverse else 1.0
    relative = _spread(sign * log_weights, num_strata)
    log_z = sign * (float(logsumexp(sign * log_weights)) - np.log(len(log_weights)))
    # Three standard errors of the mean weight to either side, on the scale of the logarithm.
    ends = sorted(sign * _log1p(sign * side * relative) for side in (-3.0, 3.0))
    return AISResult(log_z, relative, (log_z + ends[0], log_z + ends[1]), effective(sign * log_weights), log_weights, v)


def effective(log_weights: Array) -> float:
    """The effective sample size of chains by the logs of their weights, [C]."""
    # Relative weights: their scale cancels.
    w = _weights(log_weights)
    return float(w.sum() ** 2 / (w**2).sum())


def is_at_once(generator: str) -> bool:
    """Whether all chains are best annealed in one call: NumPy pays by the call, and a graph by the shape."""
    return generator == "numpy"


def pooled(results: Sequence[AISResult]) -> AISResult:
    """The estimate that the chains of several, on one path and with different seeds, make together."""
    log_weights = np.concatenate([result.log_weights for result in results])
    return result_of(log_weights, np.concatenate([result.v for result in results]))


def linear_schedule(num_betas: int) -> Array:
    """Inverse temperatures spaced evenly from 0 to 1, [num_betas].

    :raises ValueError: if there are fewer than two.
    """
    if num_betas < 2:
        raise ValueError(f"num_betas must be at least 2 (beta = 0 and beta = 1), got {num_betas}.")
    return np.linspace(0.0, 1.0, num_betas)


def paper_schedule() -> Array:
    """The 21000 inverse temperatures of the experiments: 1000 to 0.5, 10000 from there to 0.9, and 10000 to 1."""
    pieces = np.linspace(0, 0.5, 1000, endpoint=False), np.linspace(0.5, 0.9, 10_000, endpoint=False)
    return np.concatenate([*pieces, np.linspace(0.9, 1.0, 10_000)])


def ais(
    rbm: RBM,
    betas: ArrayLike,
    *,
    num_chains: int = 100,
    seed: tf.Tensor,
    base_b: ArrayLike | None = None,
    generator: str = "threefry",
    jit_compile: bool = True,
    chunk: int = CHUNK,
) -> AISResult:
    """Estimate log Z from below by annealing from independent visible units to the RBM.

    :param betas: inverse temperatures that increase from 0 to 1, for example `paper_schedule()`.
    :param num_chains: independent chains C, at least 2.
    :param seed: int32 [2].
    :param base_b: visible biases [n_v] at beta = 0, for example `base_rate_biases(data)`; in NumPy also those of each
        chain, [C, n_v]. By default the RBM's own.
    :param generator: see `rbm_tracking.model.random`; "hash" is faster.
    :param jit_compile: compile with XLA: takes about a second for each new size.
    :param chunk: temperatures in one compiled call, between which the run can be interrupted.
    :raises ValueError: if an argument is not as described, or the weights are not finite.
    """
    betas, base = _check(rbm, betas, base_b, num_chains if generator == "numpy" else None)
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}.")
    if num_chains < 2:
        raise ValueError(f"num_chains must be at least 2 for a standard error, got {num_chains}.")
    # Exact samples of independent units at beta = 0.
    first = key_at(seed, tf.constant(0), SITE_FIRST)
    v = sample_visible(rbm.visible, tf.broadcast_to(base, [num_chains, base.shape[-1]]), first)
    is_moved = base_b is not None
    # Up the path: E[w] = Z / Z_base.
    v, change = annealed(rbm, base, is_moved, betas, v, seed, generator, jit_compile, chunk)
    log_weights = log_z_independent(base, rbm.c.shape[0], rbm.visible, rbm.hidden).numpy() + change
    return result_of(log_weights, v)


def reverse_ais(
    rbm: RBM,
    betas: ArrayLike,
    samples: ArrayLike,
    *,
    seed: tf.Tensor,
    base_b: ArrayLike | None = None,
    generator: str = "threefry",
    jit_compile: bool = True,
) -> AISResult:
    """Estimate log Z from above by annealing samples of the RBM down to independent visible units.

    :param betas: as for :func:`ais`, increasing; they are run through from 1 to 0.
    :param samples: binary [C, n_v], one for each chain, from the RBM. The estimate is above log Z on average if they
        are exact; samples that miss a mode can put it below. Long parallel tempering gives the best ones at hand;
        :func:`burn_in` is the least.

    Other arguments and errors as for :func:`ais`.
    """
    betas, base = _check(rbm, betas, base_b)
    v = tf.constant(rbm.visible.check(samples, n_v=base.shape[0], name="samples"), rbm.W.dtype)
    if v.shape[0] < 2:
        raise ValueError(f"samples must have at least 2 rows for a standard error, got {v.shape[0]}.")
    # Down the path: E[1 / w] = Z_base / Z.
    is_moved = base_b is not None
    v, change = annealed(rbm, base, is_moved, betas[::-1], v, seed, generator, jit_compile)
    log_weights = float(log_z_independent(base, rbm.c.shape[0], rbm.visible, rbm.hidden)) - change
    return result_of(log_weights, v, is_reverse=True)


def bracket(
    rbm: RBM,
    betas: ArrayLike,
    *,
    num_chains: int = 100,
    seed: tf.Tensor,
    base_b: ArrayLike | None = None,
    samples: ArrayLike | None = None,
    burn_in_steps: int = 1000,
    generator: str = "threefry",
    jit_compile: bool = True,
) -> Bracket:
    """Estimates of log Z from below and above; their gap says how far either may be off.

    :param samples: samples of the RBM [C', n_v] for the reverse run. Without them, the last states of the forward run
        are drawn again by their weights and moved by `burn_in_steps` of Gibbs sampling. Where the forward run misses a
        mode, so do they, and the bracket is too narrow: give samples of long parallel tempering for a stronger check.

    Other arguments and errors as for :func:`ais`.
    """
    forward_seed, choice_seed, burn_seed, reverse_seed = tf.unstack(tf.random.experimental.stateless_split(seed, 4))
    options: Execution = {"generator": generator, "jit_compile": jit_compile}
    # From below.
    lower = ais(rbm, betas, num_chains=num_chains, seed=forward_seed, base_b=base_b, **options)
    # Without samples, the last states of the forward run are drawn again by their weights.
    if samples is None:
        choice = tf.random.stateless_categorical(lower.log_weights[None], num_chains, choice_seed)[0]
        samples = burn_in(rbm, lower.v[choice.numpy()], burn_in_steps, seed=burn_seed, **options)
    # From above.
    return Bracket(lower, reverse_ais(rbm, betas, samples, seed=reverse_seed, base_b=base_b, **options))


def burn_in(
    rbm: RBM,
    v: ArrayLike,
    num_steps: int,
    *,
    seed: tf.Tensor,
    generator: str = "threefry",
    jit_compile: bool = True,
) -> np.ndarray:
    """States [C, n_v] after `num_steps` of Gibbs sampling from binary `v` [C, n_v] at beta = 1.

    :raises ValueError: if v is not binary or the number of steps is negative.
    """
    check_rbm(rbm)
    if num_steps < 0:
        raise ValueError(f"num_steps must not be negative, got {num_steps}.")
    start = tf.constant(rbm.visible.check(v, n_v=rbm.b.shape[0], name="v"), rbm.W.dtype)
    return annealed(rbm, rbm.b, False, np.ones(num_steps + 1), start, seed, generator, jit_compile)[0]


def _check(
    rbm: RBM, betas: ArrayLike, base_b: ArrayLike | None, num_chains: int | None = None
) -> tuple[Array, tf.Tensor]:
    check_rbm(rbm)
    # Temperatures that increase from 0 to 1.
    schedule = np.asarray(betas, np.float64)
    if schedule.ndim != 1 or len(schedule) < 2 or schedule[0] != 0 or schedule[-1] != 1:
        ends = f" from {schedule[0]:g} to {schedule[-1]:g}" if schedule.ndim == 1 and len(schedule) else ""
        raise ValueError(
            f"betas must be a vector that starts with 0 and ends with 1, got shape {schedule.shape}{ends}; use for "
            "example linear_schedule(1000) or paper_schedule()."
        )
    if not (np.diff(schedule) > 0).all():
        i = int(np.argmax(~(np.diff(schedule) > 0)))
        raise ValueError(f"betas must increase, got {schedule[i]:g} then {schedule[i + 1]:g}; sort them.")
    # Biases of the independent units.
    base = rbm.b if base_b is None else tf.constant(np.asarray(base_b), rbm.b.dtype)
    if base.shape not in (rbm.b.shape, (num_chains, *rbm.b.shape)) or not np.isfinite(base.numpy()).all():
        raise ValueError(
            f"base_b must be {rbm.b.shape[0]} finite biases, got shape {tuple(base.shape)}; keep the data's means from "
            "0 and 1 by base_rate_biases(data)."
        )
    return schedule, base


def _spread(log_weights: Array, num_strata: int) -> float:
    """Relative standard error of the mean weight."""
    if len(log_weights) < 2 * num_strata:
        raise ValueError(f"AIS needs at least 2 chains for a standard error, got {len(log_weights) // num_strata}.")
    if not np.isfinite(log_weights).all():
        raise ValueError(
            f"{np.sum(~np.isfinite(log_weights))} of {len(log_weights)} AIS weights are not finite: parameters are too "
            "large for their float type; use float64 or smaller weights."
        )
    # Their variance within strata.
    w = _weights(log_weights)
    std = np.sqrt(w.reshape(num_strata, -1).var(axis=1, ddof=1).mean())
    return float(std / np.sqrt(len(w)) / w.mean())


def _weights(log_weights: Array) -> Array:
    """Weights relative to the largest one."""
    return np.exp(log_weights - log_weights.max())


def _log1p(x: float) -> float:
    return float(np.log1p(x)) if x > -1 else -np.inf
