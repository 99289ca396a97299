"""The steps of annealed importance sampling: through temperatures in either direction, compiled.

log q~_beta(v) = ((1 - beta) b_base + beta b)'v + sum_j log(1 + exp(beta a_j)) + log m(v),      a = Wv + c.
"""

import itertools

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from rbm_tracking.estimates.sparse_rows import gibbs, is_sparse, log_ratios, rows_of, uniform, weights_of
from rbm_tracking.estimates.sparse_rows import key_at as key_at_numpy
from rbm_tracking.model import plain
from rbm_tracking.model.random import key_at
from rbm_tracking.model.random import uniform as uniform_tensor
from rbm_tracking.model.rbm import RBM, hidden_sum, sample_hidden, sample_visible
from rbm_tracking.model.visible import Bernoulli, Visible

__all__ = ["CHUNK", "SITE_FIRST", "annealed"]

CHUNK = 500
"""Temperatures in one compiled call."""

_SITE_HIDDEN, _SITE_VISIBLE, SITE_FIRST = range(3)
_PRODUCT = 100  # factors between 1/2 and 2 that float32 multiplies safely before a logarithm

Array = NDArray[np.float64]


def annealed(
    rbm: RBM,
    base: tf.Tensor,
    is_moved: bool,
    betas: Array,
    v: tf.Tensor,
    seed: tf.Tensor,
    generator: str,
    jit_compile: bool,
    chunk: int = CHUNK,
) -> tuple[np.ndarray, Array]:
    """Take v [C, n_v] through `betas` in either direction, by kernels of Numba where v has few ones (`sparse_rows`).

    :param base: visible biases at beta = 0; `is_moved` says if they differ from b.
    :return: the last states, and sum_k log q~_{k+1}(v_k) - log q~_k(v_k), [C].

    Other arguments as for `ais.ais`.
    """
    if generator == "numpy":
        return _annealed_plain(rbm, base, is_moved, betas, v, seed)
    if is_sparse(rbm, v):
        return _annealed_sparse(rbm, base, is_moved, betas, v, seed, generator)
    # All calls have one size, so that one graph serves them: the last is filled up.
    run = _chunk_compiled if jit_compile else _chunk_plain
    total = len(betas) - 1
    padded = np.append(betas, np.full(chunk, betas[-1]))
    change = tf.zeros([v.shape[0]], tf.float64)
    for start in range(0, total, chunk):
        piece = tf.constant(padded[start : start + chunk + 1], v.dtype)
        count = min(chunk, total - start)
        v, change = run(rbm, base, is_moved, piece, tf.constant(count), v, change, seed, tf.constant(start), generator)
    return rbm.visible.stored(v.numpy()), change.numpy()


def _annealed_plain(
    rbm: RBM, base: tf.Tensor, is_moved: bool, betas: Array, v: tf.Tensor, seed: tf.Tensor
) -> tuple[np.ndarray, Array]:
    """:func:`annealed` in NumPy."""
    at = plain.arrays(rbm)
    start_b = base.numpy()
    rows = v.numpy()
    rng = plain.noise_of(seed, len(betas))
    change = np.zeros(len(rows))
    d_b = at.b - start_b
    # exp may overflow to infinity, of which draws are right
    with np.errstate(over="ignore"):
        for old, new in itertools.pairwise(betas.tolist()):
            # Weigh v by the next temperature: log q~_new(v) - log q~_old(v).
            more, h = plain.annealing_step(plain.activations(at, rows), old, new, rng, at.hidden)
            change += more
            b = at.b
            if is_moved:
                change += (new - old) * np.einsum("...n,...n->...", rows, d_b)
                b = start_b + np.asarray(new, rows.dtype) * d_b
            # Move v there: v | h.
            rows = plain.draw_visible(at, h, rng, new, b)
    return rbm.visible.stored(rows), change


def _annealed_sparse(
    rbm: RBM, base: tf.Tensor, is_moved: bool, betas: Array, v: tf.Tensor, seed: tf.Tensor, generator: str
) -> tuple[np.ndarray, Array]:
    """:func:`annealed` with the same noise; sums are rounded in another order."""
    weights = weights_of(rbm)
    words = seed.numpy()
    start_b = base.numpy()
    rows = rows_of(v.numpy(), weights=weights)
    change = np.zeros(v.shape[0])
    d_b = weights.b - start_b
    for k, (old, new) in enumerate(itertools.pairwise(betas.astype(np.float32))):
        # Weigh v by the next temperature: log q~_new(v) - log q~_old(v).
        log_ratios(rows.a, old, new, change)
        if is_moved:
            change += (new - old) * (rows.v @ d_b)
        at_new = weights._replace(b=start_b + new * d_b) if is_moved else weights
        # Move v there: h | v and v | h, with the noise of the graph.
        of_h = uniform(key_at_numpy(words, k, _SITE_HIDDEN), rows.a.shape, generator)
        of_v = uniform(key_at_numpy(words, k, _SITE_VISIBLE), rows.v.shape, generator)
        gibbs(rows, at_new, new, (of_h, of_v))
    return rbm.visible.stored(rows.v), change


def _chunk(
    rbm: RBM,
    base: tf.Tensor,
    is_moved: bool,
    betas: tf.Tensor,
    count: tf.Tensor,
    v: tf.Tensor,
    change: tf.Tensor,
    seed: tf.Tensor,
    start: tf.Tensor,
    generator: str,
) -> tuple[tf.Tensor, tf.Tensor]:
    """`count` temperatures: weigh v by the next one, then move it there by h | v and v | h; Wv serves both."""
    # Once for all temperatures.
    W_up = tf.transpose(rbm.W)

    def step(k: tf.Tensor, v: tf.Tensor, change: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        old = betas[k]
        new = betas[k + 1]
        # Weigh v by the next temperature, and draw h | v there.
        a = tf.linalg.matmul(v, W_up) + rbm.c
        key = key_at(seed, start + k, _SITE_HIDDEN)
        h, log_ratio = _hidden_step(rbm.hidden, a, old, new, key, generator)
        b = rbm.b
        if is_moved:
            log_ratio += (new - old) * tf.linalg.matvec(v, rbm.b - base)
            b = base + new * (rbm.b - base)
        # Move v there: v | h.
        field = new * tf.linalg.matmul(h, rbm.W) + b
        v = sample_visible(rbm.visible, field, key_at(seed, start + k, _SITE_VISIBLE), generator)
        return k + 1, v, change + tf.cast(log_ratio, tf.float64)

    _, v, change = tf.while_loop(lambda k, *_: k < count, step, (0, v, change))
    return v, change


def _hidden_step(
    hidden: Visible, a: tf.Tensor, old: tf.Tensor, new: tf.Tensor, key: tf.Tensor, generator: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """h at beta = `new` given activations [C, n_h]; and the change of the log of their sum from `old` to it, [C]."""
    if hidden != Bernoulli():
        change = hidden_sum(hidden, a, new) - hidden_sum(hidden, a, old)
        return sample_hidden(hidden, new * a, key, generator), change
    # log(1 + exp(beta a)) = beta max(a, 0) + log(1 + exp(-beta |a|)), which cannot overflow
    size = tf.abs(a)
    decay = tf.exp(-new * size)
    change = (new - old) * tf.reduce_sum(tf.nn.relu(a), axis=1)
    change += _log_product((1 + decay) / (1 + tf.exp(-old * size)))
    noise = uniform_tensor(key, tuple(a.shape), a.dtype, generator)
    h = tf.cast(noise * (1 + decay) < tf.where(a >= 0, tf.ones_like(a), decay), a.dtype)  # noise < sigmoid(new a)
    return h, change


def _log_product(ratio: tf.Tensor) -> tf.Tensor:
    """sum_j log ratio_j of ratios in [1/2, 2], [C, n] to [C], by one logarithm for 100 of them."""
    num_chains, n = ratio.shape
    pieces = -(-n // _PRODUCT)
    ratio = tf.pad(ratio, [[0, 0], [0, pieces * _PRODUCT - n]], constant_values=1)
    products = tf.reduce_prod(tf.reshape(ratio, [num_chains, pieces, _PRODUCT]), axis=2)
    return tf.reduce_sum(tf.math.log(products), axis=1)


_chunk_plain = tf.function(_chunk, autograph=False)
_chunk_compiled = tf.function(_chunk, autograph=False, jit_compile=True)
