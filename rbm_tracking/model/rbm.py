"""The restricted Boltzmann machine and its tempered family (Desjardins, Courville and Bengio, 2011, Sections 2 and 4).

    E(v, h) = -h'Wv - c'h - b'v,        v in {0, 1}^n_v,  h in {0, 1}^n_h.

The tempered family leaves the visible biases alone, E_beta(v, h) = -beta (h'Wv + c'h) - b'v, so that at beta = 0 the
visible units are independent with their own rates, and log Z is known there. Summed over h,

    log q~_beta(v) = b'v + sum_j log(1 + exp(beta a_j)),     a = W v + c.

This is so for bits. Other families of units (:mod:`rbm_tracking.model.visible`) have a measure besides, which does not
depend on beta: that of a row multiplies q~, and hidden units h of measure m have log int m(h) exp(beta a h) dh in the
place of log(1 + exp(beta a)).

Everything is a function of the parameters, a tuple of tensors; logarithms are in nats.

Training starts from small noise, and spends its first updates on the data's leading principal directions, one after
the other, each with a transition at which chains lag (Decelle, Fissore and Furtlehner, 2017). In the linear regime
their weights have a closed form, by which :func:`low_rank_rbm` has them from the start. With c = -W m, m the means of
the data, and small activations a = W (v - m),

    sum_j log(1 + exp(a_j)) = const + 1'a / 2 + (v - m)' K (v - m) / 2,        K = W'W / 4,

which is Gaussian with the inverse covariance D^-1 - K, D the variances of independent units. It has the correlations'
leading eigenvalues lambda > 1 and eigenvectors u of the data (the generalised Hopfield model of Cocco, Monasson and
Sessak, 2011) for

    W = 2 R diag(sqrt(1 - 1 / lambda)) U' D^-1/2,        R'R = I,

with any rotation R [n_h, K]: a random one spreads each mode over all hidden units. Visible biases are those of
independent units less the mean of W'h.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from rbm_tracking.model.random import bernoulli, uniform
from rbm_tracking.model.visible import Bernoulli, Body, Ops, State, Visible

__all__ = [
    "RBM",
    "TENSORS",
    "activations",
    "base_rate_biases",
    "energy",
    "free_energy",
    "gibbs_round",
    "hidden_probs",
    "hidden_sum",
    "initial_rbm",
    "log_prob_unnormalised",
    "log_probs_unnormalised",
    "log_z_independent",
    "low_rank_rbm",
    "matmul_rows",
    "sample_hidden",
    "sample_visible",
    "softplus_sum",
    "visible_probs",
]


class RBM(NamedTuple):
    """Parameters: weights `W` [n_h, n_v], visible biases `b` [n_v], hidden biases `c` [n_h]; what the units of both
    layers are, with parameters of their own if these have any."""

    W: tf.Tensor
    b: tf.Tensor
    c: tf.Tensor
    visible: Visible = Bernoulli()
    hidden: Visible = Bernoulli()


def _repeat(count: int, body: Body, state: State) -> State:
    """As a loop of the graph: unrolled, it would be most of what there is to compile."""

    def next_state(i: tf.Tensor, *values: tf.Tensor) -> State:
        return i + 1, *body(i, *values)

    return tf.while_loop(lambda i, *_: i < count, next_state, (tf.constant(0), *state))[1:]


TENSORS = Ops(
    softplus=tf.nn.softplus,
    sigmoid=tf.sigmoid,
    softmax=tf.nn.softmax,
    logsumexp=lambda x: tf.reduce_logsumexp(x, axis=-1),
    sum=lambda x: tf.reduce_sum(x, axis=-1),
    cumsum=lambda x: tf.cumsum(x, axis=-1),
    take=lambda x, index: tf.gather(x, index.astype(np.int32), axis=-1),
    join=lambda parts: tf.concat(parts, axis=-1),
    flatten=lambda x: tf.reshape(x, tf.concat([tf.shape(x)[:-2], [x.shape[-2] * x.shape[-1]]], axis=0)),
    full=lambda x, value: tf.fill(tf.concat([tf.shape(x)[:-1], [1]], axis=0), tf.constant(value, x.dtype)),
    where=tf.where,
    exp=tf.exp,
    log=tf.math.log,
    sqrt=tf.sqrt,
    ndtri=tf.math.ndtri,
    erfc=tf.math.erfc,
    cast=lambda x, like: tf.cast(x, like.dtype),
    max=lambda x: tf.reduce_max(x, axis=-1),
    maximum=tf.maximum,
    minimum=tf.minimum,
    log_sigmoid=tf.math.log_sigmoid,
    is_finite=tf.math.is_finite,
    diag=tf.linalg.diag,
    diagonal=tf.linalg.diag_part,
    transpose=tf.transpose,
    repeat=_repeat,
)
"""The functions that formulas of :mod:`rbm_tracking.model.visible` need, for tensors."""


def initial_rbm(
    n_h: int,
    *,
    seed: tf.Tensor,
    data: ArrayLike | None = None,
    n_v: int | None = None,
    weight_scale: float = 0.01,
    clip: float = 1e-5,
    dtype: tf.DType = tf.float32,
    visible: Visible = Bernoulli(),
    hidden: Visible = Bernoulli(),
) -> RBM:
    """Parameters to start from: W ~ N(0, weight_scale^2), c = 0, and b of the data's base rates (Section 4).

    :param n_h: number of hidden units.
    :param seed: int32 [2].
    :param data: [N, n_v], rows that `visible` allows; their means give b. Without it, give `n_v`, and b is 0.
    :param clip: means are kept in [clip, 1 - clip], so that constant pixels have finite biases.
    :param visible: what the visible units are.
    :param hidden: what the hidden units are.
    :raises ValueError: if sizes are not positive, or the family does not allow the data.
    """
    if data is None and n_v is None:
        raise ValueError("initial_rbm needs `data` or the number of visible units `n_v`, got neither.")
    if n_h < 1 or not weight_scale >= 0:
        raise ValueError(f"n_h must be at least 1 and weight_scale at least 0, got {n_h} and {weight_scale}.")
    # Base rates of the columns, and noise for what couples them.
    b = np.zeros(n_v or 0) if data is None else base_rate_biases(data, clip=clip, visible=visible)
    # Drawn in float64: models of either type start at the same numbers.
    W = weight_scale * tf.random.stateless_normal([n_h, len(b)], seed, dtype=tf.float64)
    visible, hidden = tf.nest.map_structure(lambda part: tf.cast(part, dtype), (visible, hidden))
    return RBM(tf.cast(W, dtype), tf.constant(b, dtype), tf.zeros([n_h], dtype), visible, hidden)


def base_rate_biases(data: ArrayLike, *, clip: float = 1e-5, visible: Visible = Bernoulli()) -> NDArray[np.float64]:
    """Visible biases of the best model without weights, [n_v].

    Of bits: log(m / (1 - m)) of the mean m of each column, kept in [clip, 1 - clip].

    :raises ValueError: if the family does not allow the data, or `clip` is not in (0, 0.5).
    """
    if not 0 < clip < 0.5:
        raise ValueError(f"clip must be in (0, 0.5), got {clip}.")
    return visible.biases(visible.check(data), clip=clip)


def energy(rbm: RBM, v: tf.Tensor, h: tf.Tensor, beta: tf.Tensor | float = 1.0) -> tf.Tensor:
    """E_beta(v, h) = -beta (h'Wv + c'h) - b'v - log m(v) - log m(h).

    :param v: [..., n_v].
    :param h: [..., n_h].
    :param beta: broadcasts against [...].
    :return: [...], nats.
    """
    # beta is of the coupling and the hidden biases alone; b and the measures stay.
    coupling = tf.reduce_sum(h * activations(rbm, v), axis=-1)
    measures = rbm.visible.log_measure(v, TENSORS) + rbm.hidden.log_measure(h, TENSORS)
    return -beta * coupling - tf.linalg.matvec(v, rbm.b) - measures


def activations(rbm: RBM, v: tf.Tensor) -> tf.Tensor:
    """a = W v + c: [..., n_v] to [..., n_h]. Every tempered quantity of a state follows from it without W."""
    return matmul_rows(v, rbm.W, transpose_b=True) + rbm.c


def matmul_rows(x: tf.Tensor, matrix: tf.Tensor, transpose_b: bool = False) -> tf.Tensor:
    """x @ matrix (or its transpose) for x [..., K] as one product of two matrices, not one for each leading index."""
    if x.shape.rank == 2:
        return tf.linalg.matmul(x, matrix, transpose_b=transpose_b)
    rows = tf.linalg.matmul(tf.reshape(x, [-1, x.shape[-1]]), matrix, transpose_b=transpose_b)
    return tf.reshape(rows, tf.concat([tf.shape(x)[:-1], tf.shape(rows)[-1:]], axis=0))


def softplus_sum(a: tf.Tensor, beta: tf.Tensor | float = 1.0) -> tf.Tensor:
    """S_beta(a) = sum_j log(1 + exp(beta a_j)) of activations [..., n_h]; `beta` broadcasts against [...].

    The part of log q~_beta(v) that depends on beta: b'v cancels between temperatures. Computed as the positive part
    plus the log of products of up to 64 factors 1 + exp(-|x|), which cannot overflow: one logarithm for 64 units.
    """
    x = tf.convert_to_tensor(beta, a.dtype)[..., None] * a
    n_h = x.shape[-1]
    groups = -(-n_h // 64)
    width = -(-n_h // groups)
    # Factors are between 1 and 2: products of 64 stay below 2^64, and padding with 1 changes none.
    factors = 1.0 + tf.exp(-tf.abs(x))
    if groups * width > n_h:
        padding = [[0, 0]] * (x.shape.rank - 1) + [[0, groups * width - n_h]]
        factors = tf.pad(factors, padding, constant_values=1.0)
    products = tf.reduce_prod(tf.reshape(factors, tf.concat([tf.shape(x)[:-1], [groups, width]], 0)), axis=-1)
    return tf.reduce_sum(tf.nn.relu(x), axis=-1) + tf.reduce_sum(tf.math.log(products), axis=-1)


def hidden_sum(hidden: Visible, a: tf.Tensor, beta: tf.Tensor | float = 1.0) -> tf.Tensor:
    """log of the sum, or integral, over all hidden units of m(h) exp(beta a'h): [..., n_h] to [...]; `beta` broadcasts
    against [...]."""
    if hidden == Bernoulli():
        return softplus_sum(a, beta)
    return hidden.log_normaliser(tf.convert_to_tensor(beta, a.dtype)[..., None] * a, TENSORS)


def log_prob_unnormalised(rbm: RBM, v: tf.Tensor, beta: tf.Tensor | float = 1.0) -> tf.Tensor:
    """log q~_beta(v) = b'v + S_beta(Wv + c) + log m(v): [..., n_v] to [...], nats."""
    of_hidden = hidden_sum(rbm.hidden, activations(rbm, v), beta)
    return tf.linalg.matvec(v, rbm.b) + of_hidden + rbm.visible.log_measure(v, TENSORS)


def log_probs_unnormalised(rbm: RBM, rows: ArrayLike, chunk: int = 5000) -> NDArray[np.float64]:
    """log q~(v) of each of many rows [N, n_v], by `chunk` of them at a time, nats, [N]."""
    data = np.asarray(rows)
    parts = [
        log_prob_unnormalised(rbm, tf.cast(data[start : start + chunk], rbm.W.dtype)).numpy()
        for start in range(0, len(data), chunk)
    ]
    return np.concatenate(parts).astype(np.float64)


def free_energy(rbm: RBM, v: tf.Tensor, beta: tf.Tensor | float = 1.0) -> tf.Tensor:
    """F(v) = -log sum_h exp(-E(v, h)) = -log q~(v): [..., n_v] to [...], nats. log p(v) = -F(v) - log Z."""
    return -log_prob_unnormalised(rbm, v, beta)


def hidden_probs(rbm: RBM, v: tf.Tensor, beta: tf.Tensor | float = 1.0) -> tf.Tensor:
    """E[h | v], of bits P(h_j = 1 | v) = sigmoid(beta a_j): [..., n_v] to [..., n_h]."""
    return rbm.hidden.mean(tf.convert_to_tensor(beta, rbm.W.dtype)[..., None] * activations(rbm, v), TENSORS)


def visible_probs(rbm: RBM, h: tf.Tensor, beta: tf.Tensor | float = 1.0) -> tf.Tensor:
    """E[v | h], of bits P(v_i = 1 | h) = sigmoid(beta (W'h)_i + b_i): [..., n_h] to [..., n_v]."""
    # Visible biases have no temperature.
    field = tf.convert_to_tensor(beta, rbm.W.dtype)[..., None] * matmul_rows(h, rbm.W) + rbm.b
    return rbm.visible.mean(field, TENSORS)


def sample_visible(visible: Visible, x: tf.Tensor, key: tf.Tensor, generator: str = "threefry") -> tf.Tensor:
    """Draws of v given the field x [..., n_v], whose shape must be static; noise is a function of `key`, int32 [2]."""
    shape = tuple(x.shape)
    noise = uniform(key, (*shape[:-1], visible.num_noise(shape[-1])), x.dtype, generator)
    return visible.draw(x, noise, TENSORS)


def sample_hidden(hidden: Visible, x: tf.Tensor, key: tf.Tensor, generator: str = "threefry") -> tf.Tensor:
    """Draws of h given the field x [..., n_h], as :func:`sample_visible`."""
    return bernoulli(key, x, generator) if hidden == Bernoulli() else sample_visible(hidden, x, key, generator)


def gibbs_round(
    rbm: RBM,
    a: tf.Tensor,
    keys: tuple[tf.Tensor, tf.Tensor],
    generator: str = "threefry",
    beta: tf.Tensor | float = 1.0,
) -> tf.Tensor:
    """New states v [..., n_v] from the activations a = W v + c [..., n_h] of the old: h ~ q_beta(h | v), then
    v ~ q_beta(v | h).

    :param keys: of the noise of h and of v, int32 [2] each.
    :param beta: broadcasts against [...].
    """
    beta_column = tf.convert_to_tensor(beta, a.dtype)[..., None]
    h = sample_hidden(rbm.hidden, beta_column * a, keys[0], generator)
    return sample_visible(rbm.visible, beta_column * matmul_rows(h, rbm.W) + rbm.b, keys[1], generator)


def log_z_independent(
    b: tf.Tensor, n_h: int, visible: Visible = Bernoulli(), hidden: Visible = Bernoulli()
) -> tf.Tensor:
    """zeta_M = log Z(b) + n_h log 2: log Z at beta = 0 (footnote 3), sum_i log(1 + exp(b_i)) for bits, [], float64."""
    # At beta = 0 hidden units have no field: each bit has the factor 2.
    of_hidden = n_h * np.log(2.0) if hidden == Bernoulli() else hidden_sum(hidden, tf.zeros([n_h], tf.float64))
    return visible.log_normaliser(tf.cast(b, tf.float64), TENSORS) + of_hidden


_MOST_ROWS = 10_000
_LEAST_VARIANCE = 0.01  # of a unit: rare bits have no say in the modes


def low_rank_rbm(
    n_h: int, num_modes: int, *, seed: tf.Tensor, data: ArrayLike, clip: float = 1e-5, dtype: tf.DType = tf.float32
) -> RBM:
    """Parameters to start from, of the data's leading modes and the noise of `rbm.initial_rbm`.

    :param num_modes: the most modes; fewer if the data have fewer with an eigenvalue above 1, or n_h is smaller.
    :param seed: int32 [2].
    :param data: binary [N, n_v]; of many rows the first 10,000 are used.
    :raises ValueError: if `num_modes` is less than 1, or as of `initial_rbm`.
    """
    if num_modes < 1:
        raise ValueError(f"num_modes must be at least 1, got {num_modes}.")
    noise = initial_rbm(n_h, seed=seed, data=data, clip=clip, dtype=tf.float64)
    rows = np.asarray(data)[:_MOST_ROWS].astype(np.float64)
    mean = rows.mean(axis=0)
    scale = 1 / np.sqrt(np.maximum(mean * (1 - mean), _LEAST_VARIANCE))
    # lambda and U of the correlations, R of Gaussian noise, and W of them.
    values, vectors = _modes((rows - mean) * scale, min(num_modes, n_h))
    rotation = np.linalg.qr(tf.random.stateless_normal([n_h, len(values)], seed + 1, dtype=tf.float64).numpy())[0]
    W = 2 * (rotation * np.sqrt(1 - 1 / values)) @ vectors.T * scale
    total = W + noise.W.numpy()
    # At small activations hidden units have the mean 1/2; c = -W m keeps them there.
    b = noise.b.numpy() - 0.5 * W.sum(axis=0)
    return RBM(*(tf.constant(part, dtype) for part in (total, b, -W @ mean)))


def _modes(rows: NDArray[np.float64], count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The largest eigenvalues above 1 of the covariance of centred rows, [K], with their eigenvectors [n_v, K]."""
    values, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
    best = np.argsort(values)[::-1][:count]
    best = best[values[best] > 1]
    return values[best], vectors[:, best]
