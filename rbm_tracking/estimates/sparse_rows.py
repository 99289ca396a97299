"""Rows of bits of which few are 1, for the kernels of Numba: their noise, their Gibbs sampling, and where they pay."""

from __future__ import annotations

import importlib.util
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from rbm_tracking.model import random
from rbm_tracking.model.rbm import RBM
from rbm_tracking.model.visible import Bernoulli

__all__ = [
    "HAS_NUMBA",
    "Rows",
    "Weights",
    "gibbs",
    "is_sparse",
    "key_at",
    "log_ratios",
    "rows_of",
    "uniform",
    "weights_of",
]

HAS_NUMBA = importlib.util.find_spec("numba") is not None
# The kernels import Numba.
if HAS_NUMBA:
    from rbm_tracking.estimates import sparse_kernels as kernels

_DENSEST = 0.25  # mean of bits, up to which sums of rows beat a product of matrices
_LEAST_WEIGHTS = 100_000  # below, one compiled graph beats many short calls
_WORD = 0xFFFFFFFF

Floats = NDArray[np.float32]


class Rows(NamedTuple):
    """Rows `v` [R, n_v] of 0.0 and 1.0; `places` [R, n_v], of which the first `number` [R] are the units that are 1;
    `a` = W v + c [R, n_h]. All of them are changed in place."""

    v: Floats
    places: NDArray[np.int32]
    number: NDArray[np.int32]
    a: Floats


class Weights(NamedTuple):
    """W' [n_v, n_h], b and c."""

    Wt: Floats
    b: Floats
    c: Floats


def is_sparse(rbm: RBM, means: ArrayLike) -> bool:
    """Whether kernels of Numba beat the graph: bits of these means [n_v], many weights in float32, and no GPU."""
    return (
        HAS_NUMBA
        and rbm.visible == Bernoulli()
        and rbm.hidden == Bernoulli()
        and rbm.W.dtype == tf.float32
        and rbm.W.shape.num_elements() >= _LEAST_WEIGHTS
        and float(np.asarray(means).mean()) <= _DENSEST
        and not tf.config.list_physical_devices("GPU")
    )


def weights_of(rbm: RBM) -> Weights:
    """A copy of the parameters."""
    return Weights(np.ascontiguousarray(rbm.W.numpy().T), rbm.b.numpy().copy(), rbm.c.numpy().copy())


def rows_of(v: NDArray, *, weights: Weights) -> Rows:
    """A copy of rows of bits [R, n_v] with their activations."""
    rows = Rows(
        np.empty(v.shape, np.float32),
        np.empty(v.shape, np.int32),
        np.empty(len(v), np.int32),
        np.empty((len(v), len(weights.c)), np.float32),
    )
    kernels.collect(np.ascontiguousarray(v), rows.v, rows.places, rows.number)
    kernels.sums(weights.Wt, weights.c, rows.places, rows.number, rows.a)
    return rows


def gibbs(rows: Rows, weights: Weights, beta: np.float32, noise: tuple[Floats, Floats]) -> None:
    """h ~ q_beta(h | v), then v ~ q_beta(v | h), in place.

    :param noise: of h [R, n_h] and of v [R, n_v], in [0, 1).
    """
    # Many of h are ones, and its product is one of matrices; of v few are, and sums of rows do.
    h = np.empty_like(rows.a)
    kernels.draw_hidden(rows.a, beta, noise[0], h)
    kernels.draw_visible(h @ weights.Wt.T, beta, weights.b, noise[1], rows.v, rows.places, rows.number)
    kernels.sums(weights.Wt, weights.c, rows.places, rows.number, rows.a)


def log_ratios(a: Floats, old: np.float32, new: np.float32, total: NDArray[np.float64]) -> None:
    """Adds to `total` [R] the change of sum_j log(1 + exp(beta a_j)) from beta = `old` to `new`."""
    kernels.log_ratios(a, old, new, total)


def uniform(key: NDArray[np.uint32], shape: tuple[int, ...], generator: str) -> Floats:
    """`random.uniform` in float32, the same numbers."""
    # TensorFlow has Philox as one operation.
    if generator == "philox":
        numbers: Floats = random.uniform(tf.constant(key.view(np.int32)), shape, generator=generator).numpy()
        return numbers
    noise = np.empty((1, int(np.prod(shape))), np.float32)
    (kernels.noise_hash if generator == "hash" else kernels.noise_threefry)(key, noise)
    return noise.reshape(shape)


def key_at(seed: ArrayLike, step: int, site: int) -> NDArray[np.uint32]:
    """`random.key_at`, the same words, uint32 [2]."""
    # In whole numbers of Python, cut to 32 bits.
    first, second = (int(word) & _WORD for word in np.asarray(seed))
    site_word = (site * 0x85EBCA6B + 0x6A09E667) & _WORD
    return np.array([first ^ _mix((step + 0x9E3779B9) & _WORD), second ^ _mix(site_word)], np.uint32)


def _mix(x: int) -> int:
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _WORD
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _WORD
    return x ^ (x >> 16)
