"""Sampling in NumPy, in float32: for models so small that a graph takes longer to trace than to run.

The generator "numpy" chooses it. Noise is that of NumPy's SFC64, a function of the seed and of the numbers that
:func:`noise_of` gets. Rows [C, n_v] and activations a = Wv + c [C, n_h] are arrays, parameters an `RBM` of arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from rbm_tracking.model.rbm import RBM
from rbm_tracking.model.visible import Bernoulli, Tensor, Visible

__all__ = [
    "activations",
    "annealing_step",
    "arrays",
    "centred",
    "draw_hidden",
    "draw_units",
    "draw_visible",
    "hidden_mean",
    "hidden_sum",
    "noise_of",
    "sigmoid",
    "softplus_sum",
]

Array = np.ndarray


def arrays(structure: object) -> Any:
    """Tensors as arrays, in the structure that they are in."""
    return tf.nest.map_structure(np.asarray, structure)


def noise_of(seed: Tensor, *numbers: int) -> np.random.Generator:
    """The noise of a seed int32 [2] at an update, or another place that the numbers name."""
    words = [int(word) & 0xFFFFFFFF for word in (*np.asarray(seed).tolist(), *numbers)]
    return np.random.Generator(np.random.SFC64(words))


def activations(rbm: RBM, v: Array) -> Array:
    """W v + c: [..., n_v] to [..., n_h]."""
    # One product of two matrices, not one for each leading index.
    a = v.reshape(-1, v.shape[-1]) @ rbm.W.T
    a += rbm.c
    return np.asarray(a.reshape(*v.shape[:-1], a.shape[-1]))


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)); exp overflows to infinity, of which the inverse is right."""
    y = np.exp(-x)
    y += 1
    return np.asarray(np.reciprocal(y, out=y))


def softplus_sum(a: Array, beta: float | Tensor = 1.0) -> Array:
    """sum_j log(1 + exp(beta a_j)): [..., n_h] to [...]; `beta` is a number, or has the shape [...]."""
    # In place from here on: most of the time goes by in memory. A product with ones adds up faster than sum.
    x = np.multiply(a, np.asarray(beta, a.dtype)[..., None])
    ones = np.ones(x.shape[-1], x.dtype)
    y = np.exp(x)
    y += 1
    total = np.log(y, out=y) @ ones
    if np.isfinite(total).all():
        return np.asarray(total)
    # Where exp overflows: log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)).
    positive = np.maximum(x, 0) @ ones
    np.exp(-np.abs(x, out=x), out=x)
    return np.asarray(positive + np.log1p(x, out=x) @ ones)


def hidden_sum(hidden: Visible, a: Array, beta: float | Tensor = 1.0) -> Array:
    """As `rbm.hidden_sum`."""
    if type(hidden) is Bernoulli:
        return softplus_sum(a, beta)
    return np.asarray(hidden.log_normaliser(a * np.asarray(beta, a.dtype)[..., None]))


def hidden_mean(hidden: Visible, a: Array) -> Array:
    """E[h | v] of activations [..., n_h]."""
    return sigmoid(a) if type(hidden) is Bernoulli else np.asarray(hidden.mean(a), a.dtype)


def centred(d_W: Array, d_v: Array, d_h: Array, offsets: tuple[Array, Array]) -> tuple[Array, Array, Array]:
    """The centred gradient by W, b and c from the plain one: offsets of the layers [n_v], [n_h] enter the step of W,
    and change those of the biases."""
    v_mean, h_mean = offsets
    # d<(h - h_mean)(v - v_mean)'>, and what biases make up for when W moves
    d_W = d_W - (np.outer(d_h, v_mean) + np.outer(h_mean, d_v))
    return d_W, d_v - h_mean @ d_W, d_h - d_W @ v_mean


def draw_units(units: Visible, x: Array, rng: np.random.Generator) -> Array:
    """Units of either layer given their field [..., n]."""
    if type(units) is Bernoulli:
        return draw_hidden(x, rng)
    noise = rng.random((*x.shape[:-1], units.num_noise(x.shape[-1])), dtype=x.dtype)
    return np.asarray(units.draw(x, noise), x.dtype)


def draw_hidden(x: Array, rng: np.random.Generator) -> Array:
    """Bits with P(1) = sigmoid(x): u (1 + exp(-x)) < 1."""
    y = np.exp(-x)
    y += 1
    y *= rng.random(x.shape, dtype=x.dtype)
    return (y < 1).astype(x.dtype)


def draw_visible(
    rbm: RBM, h: Array, rng: np.random.Generator, beta: float | Tensor = 1.0, b: Array | None = None
) -> Array:
    """Visible units given hidden ones, [..., n_h] to [..., n_v].

    :param beta: inverse temperature, a number or of the shape [...].
    :param b: biases [n_v] in place of those of the RBM.
    """
    field = (h.reshape(-1, h.shape[-1]) @ rbm.W).reshape(*h.shape[:-1], rbm.W.shape[1])
    field *= np.asarray(beta, field.dtype)[..., None]
    field += rbm.b if b is None else b
    return draw_units(rbm.visible, field, rng)


def annealing_step(
    a: Array, old: float, new: float, rng: np.random.Generator, hidden: Visible = Bernoulli()
) -> tuple[Array, Array]:
    """sum_j log(1 + exp(new a_j)) - log(1 + exp(old a_j)) of activations [C, n_h], [C]; and h at `new`, [C, n_h].

    With e = exp(-new |a|), 1 + exp(new a) = exp(max(new a, 0)) (1 + e), and P(h = 1) is 1 or e, over 1 + e. Other
    `hidden` units have their own sums and draws.
    """
    if type(hidden) is not Bernoulli:
        change = hidden_sum(hidden, a, new).astype(np.float64) - hidden_sum(hidden, a, old)
        return change, draw_units(hidden, a * np.asarray(new, a.dtype), rng)
    # log(1 + exp(beta a)) = max(beta a, 0) + log(1 + exp(-beta |a|)), at both temperatures
    size = np.abs(a)
    before = np.exp(np.asarray(-old, a.dtype) * size)
    before += 1
    np.multiply(size, np.asarray(-new, a.dtype), out=size)
    e = np.exp(size, out=size)
    after = e + np.asarray(1, a.dtype)
    change = (new - old) * np.maximum(a, 0).sum(axis=-1, dtype=np.float64)
    change += np.log(np.divide(after, before, out=before), out=before).sum(axis=-1, dtype=np.float64)
    # h at `new`: u (1 + e) is below 1 or e with the probability sigmoid(new a)
    after *= rng.random(a.shape, dtype=a.dtype)
    return change, (after < np.where(a > 0, np.asarray(1, a.dtype), e)).astype(a.dtype)
