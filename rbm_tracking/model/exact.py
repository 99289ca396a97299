"""log Z, likelihoods and moments by enumeration of the smaller layer, for at most 25 units there (Section 4).

With the units u of the smaller layer enumerated, the other layer is summed analytically:

    Z_beta = sum_u exp(alpha'u) prod_i (1 + exp(x_i(u))),      x(u) = A'u + gamma,

where (A, alpha, gamma) = beta (W, c), b for the hidden units and (beta W', b), beta c for the visible ones. For units
that are not bits the sums are those of their families, see :mod:`rbm_tracking.model.families.exact_families`.

:func:`log_z_exact` never takes an exponential or logarithm for each of the 2^n m factors. With u = (u0, u1, u2),
exp(x_i) is a product of three tables, exp(x0_i(u0)) exp(x1_i(u1)) exp(x2_i(u2)), so a factor costs two multiplications
and one addition. Everything is float64, all terms are positive, and products are bounded in advance: see `_plan`.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from rbm_tracking.model.checks import check_rbm
from rbm_tracking.model.families.exact_families import as_bits, log_z_gaussian, log_z_softmax
from rbm_tracking.model.families.softmax import Softmax
from rbm_tracking.model.rbm import RBM
from rbm_tracking.model.visible import Bernoulli, Gaussian, Spin, Visible, binary_vectors

__all__ = ["MAX_UNITS", "Moments", "is_enumerable", "log_likelihood_exact", "log_z_exact", "moments_exact", "num_terms"]

#: Most units that are enumerated: 2^25 states with 784 units on the other side take a few seconds.
MAX_UNITS = 25

_DEAR = 32  # times a factor of bits: an exponential
_MAX_ROWS = 2**20  # of visible states that are not bits, which have no tables
_GROUP = 16  # factors multiplied in one pass; XLA's CPU code for other numbers is up to three times slower
# a block of 512 x 256 states (1 MB) stays in the cache
_ROW_BITS = 9
_COLUMN_BITS = 8
_DIRECT_TERMS = 2**18  # up to here compiling takes longer than plain NumPy
_CHUNK_TERMS = 2**22  # of the moments
_LOG_LIMIT = 600.0  # of one factor, and of a product before its logarithm is taken; float64 ends near 709

Array = NDArray[np.float64]


class Moments(NamedTuple):
    """E[v] [n_v], E[h] [n_h] and E[h v'] [n_h, n_v] under the model."""

    v: Array
    h: Array
    hv: Array


def is_enumerable(rbm: RBM) -> bool:
    """Whether log Z can be had exactly: at most 25 bits or signs in a layer, or 2^20 states of it."""
    return _has_few_states(rbm.hidden, len(rbm.c)) or _has_few_states(rbm.visible, len(rbm.b))


def num_terms(rbm: RBM) -> float:
    """What :func:`log_z_exact` costs, in factors of bits, of which some 5e9 take a second; infinite if it is not to be
    had."""
    if not is_enumerable(rbm):
        return np.inf
    n_h, n_v = (int(size) for size in rbm.W.shape)
    is_hidden = _enumerates_hidden(rbm)
    states, others = (rbm.hidden.num_states(n_h), n_v) if is_hidden else (rbm.visible.num_states(n_v), n_h)
    is_cheap = isinstance(rbm.visible, Bernoulli | Spin) and rbm.hidden == Bernoulli()
    return float(states * others * (1 if is_cheap else _DEAR))


def log_z_exact(rbm: RBM, beta: float = 1.0) -> float:
    """log Z_beta of m(v) exp(beta (h'Wv + c'h) + b'v), in nats, to about 1e-12 of its size.

    :param beta: inverse temperature, any finite number; 0 gives `log_z_independent`.
    :raises ValueError: if it is not :func:`is_enumerable`, or parameters are not finite.

    At 25 x 784 units this takes a few seconds on one core (2^25 784 = 2.6e10 factors), halved by every unit less.
    """
    W, b, c = _checked(rbm, beta)
    visible = rbm.visible
    excess = 0.0
    # Tables are of bits alone: other units are enumerated one state after the other.
    if rbm.hidden != Bernoulli():
        return float(logsumexp([logsumexp(log_weights) for _, log_weights, _ in _states(rbm, beta)]))
    # Signs are bits of other parameters.
    if isinstance(visible, Spin):
        W, b, c, excess = as_bits(W, b, c)
        visible = Bernoulli()
    A = beta * W
    alpha = beta * c
    # The side with fewer states is enumerated, the other one summed in closed form.
    is_hidden = _enumerates_hidden(rbm)
    if isinstance(visible, Bernoulli):
        A, alpha, gamma = (A, alpha, b) if is_hidden else (A.T, b, alpha)
        if 2 ** len(alpha) * len(gamma) > _DIRECT_TERMS:
            return _log_z_by_tables(A, alpha, gamma) - excess
    elif is_hidden and isinstance(visible, Softmax):
        return log_z_softmax(A, alpha, b, visible)
    elif is_hidden and isinstance(visible, Gaussian):
        return log_z_gaussian(A, alpha, b, visible)
    return float(logsumexp([logsumexp(log_weights) for _, log_weights, _ in _states(rbm, beta)]))


def log_likelihood_exact(rbm: RBM, v: ArrayLike) -> Array:
    """log p(v) = -F(v) - log Z in nats, for allowed rows v [N, n_v] to [N]; of Gaussian units that of the density.

    :raises ValueError: as :func:`log_z_exact`, and if v holds what the visible units are not.
    """
    W, b, c = _checked(rbm, 1.0)
    x = np.asarray(rbm.visible.check(v, n_v=len(b), name="v"), np.float64)
    log_z = log_z_exact(rbm)
    pieces = np.array_split(x, -(-len(x) * len(c) // _CHUNK_TERMS))
    parts = [p @ b + rbm.hidden.log_normaliser(p @ W.T + c) + rbm.visible.log_measure(p) for p in pieces if len(p)]
    return np.concatenate(parts) - log_z


def moments_exact(rbm: RBM, beta: float = 1.0) -> Moments:
    """Means under the tempered model, the exact negative phase of the likelihood's gradient.

    :raises ValueError: as :func:`log_z_exact`.

    This visits every state with an exponential for each unit: it is meant for at most about 15 units.
    """
    is_hidden = _enumerates_hidden(rbm)
    log_z = log_z_exact(rbm, beta)
    one, other, both = (np.zeros(()) for _ in range(3))
    for u, log_weights, means in _states(rbm, beta):
        # Weights p(u), then means of u, of the other side given u, and of their products.
        p = np.exp(log_weights - log_z)
        weighted = p[:, None] * u
        one = one + weighted.sum(axis=0)
        other = other + p @ means
        both = both + weighted.T @ means
    return Moments(other, one, both) if is_hidden else Moments(one, other, both.T)


def _checked(rbm: RBM, beta: float) -> tuple[Array, Array, Array]:
    check_rbm(rbm)
    if not np.isfinite(beta):
        raise ValueError(f"beta must be a finite number, got {beta}.")
    if not is_enumerable(rbm):
        n_h, n_v = rbm.W.shape
        raise ValueError(
            f"the exact log Z needs at most {MAX_UNITS} hidden or visible units, got {n_h} hidden and {n_v} visible; "
            "estimate it with annealed importance sampling (rbm_tracking.estimates.ais) or the tracker."
        )
    W, b, c = (np.asarray(value, dtype=np.float64) for value in (rbm.W, rbm.b, rbm.c))
    return W, b, c


def _has_few_states(units: Visible, count: int) -> bool:
    return units.num_states(count) <= (2**MAX_UNITS if isinstance(units, Bernoulli | Spin) else _MAX_ROWS)


def _enumerates_hidden(rbm: RBM) -> bool:
    """Whether the hidden units have fewer states than the visible ones, or those cannot be enumerated."""
    n_h = len(rbm.c)
    n_v = len(rbm.b)
    if not _has_few_states(rbm.hidden, n_h):
        return False
    return not _has_few_states(rbm.visible, n_v) or rbm.hidden.num_states(n_h) <= rbm.visible.num_states(n_v)


def _states(rbm: RBM, beta: float) -> Iterator[tuple[Array, Array, Array]]:
    """States u of the smaller side in chunks [U, n], the log of their share of Z, means of the other side given u."""
    W, b, c = _checked(rbm, beta)
    n_h, n_v = W.shape
    is_hidden = _enumerates_hidden(rbm)
    count = int(rbm.hidden.num_states(n_h) if is_hidden else rbm.visible.num_states(n_v))
    size = max(_CHUNK_TERMS // (n_v if is_hidden else n_h), 1)
    for start in range(0, count, size):
        stop = min(start + size, count)
        # log q~(u), with the other side summed out
        if is_hidden:
            u = rbm.hidden.states(n_h, start, stop)
            x = beta * (u @ W) + b
            log_weights = beta * (u @ c) + rbm.hidden.log_measure(u) + rbm.visible.log_normaliser(x)
            yield u, log_weights, rbm.visible.mean(x)
        else:
            u = rbm.visible.states(n_v, start, stop)
            a = beta * (u @ W.T + c)
            log_weights = u @ b + rbm.visible.log_measure(u) + rbm.hidden.log_normaliser(a)
            yield u, log_weights, rbm.hidden.mean(a)


# Enumeration by tables.


class _Plan(NamedTuple):
    """Factors 1 + exp(x_i), rewritten so that no product overflows."""

    A: Array  # [n, m]
    gamma: Array  # [m]
    alpha: Array  # [n]
    constant: float
    groups: list[list[int]]  # at most 16 factors each
    ends: list[int]  # one past the last group of each piece; the logarithm is taken of the product of a piece
    wide: list[int]  # factors that need a logarithm each


def _plan(A: Array, alpha: Array, gamma: Array) -> _Plan:
    """Bound every factor and cut the product into pieces below exp(600).

    x_i lies between gamma_i + the sum of the negative A_ki and gamma_i + that of the positive. Where that interval
    reaches further up than down, 1 + exp(x) = exp(x) (1 + exp(-x)), and exp(x) joins the linear term: the factor left
    is at most 1 + exp(half the width of the interval).
    """
    # Bounds of each x_i, and the factors that are turned round.
    low = gamma + np.minimum(A, 0).sum(axis=0)
    high = gamma + np.maximum(A, 0).sum(axis=0)
    is_flipped = high > -low
    alpha = alpha + A[:, is_flipped].sum(axis=1)
    constant = float(gamma[is_flipped].sum())
    sign = np.where(is_flipped, -1.0, 1.0)
    bounds = np.logaddexp(0.0, np.where(is_flipped, -low, high))
    # Groups of at most 16 factors, in pieces whose products stay finite.
    groups: list[list[int]] = [[]]
    ends = []
    wide = []
    in_piece = in_group = 0.0
    for i, bound in enumerate(bounds):
        if bound > _LOG_LIMIT:
            wide.append(i)
            continue
        if len(groups[-1]) == _GROUP or in_group + bound > _LOG_LIMIT:
            groups.append([])
            in_group = 0.0
        groups[-1].append(i)
        in_group = in_group + bound
        in_piece = in_piece + bound
        if in_piece > _LOG_LIMIT:  # the piece ends before this group
            ends.append(len(groups) - 1)
            in_piece = in_group
    ends.append(len(groups))
    return _Plan(sign * A, sign * gamma, alpha, constant, groups, ends, wide)


def _log_z_by_tables(A: Array, alpha: Array, gamma: Array) -> float:
    plan = _plan(A, alpha, gamma)
    n = len(alpha)
    # Units are split in three: outer states, and tables of rows and columns.
    columns = min(n, _COLUMN_BITS)
    rows = min(n - columns, _ROW_BITS)
    outer = n - columns - rows
    states = [binary_vectors(bits) for bits in (outer, rows, columns)]
    parts = np.split(plan.A, [outer, outer + rows])
    x = [u @ part for u, part in zip(states, parts, strict=True)]
    linear = [u @ part for u, part in zip(states, np.split(plan.alpha, [outer, outer + rows]), strict=True)]
    x[2] = x[2] + plan.gamma
    wide_x = [part[:, plan.wide] for part in x]
    # The three parts of x_i are balanced, so that no table overflows.
    highest = [part.max(axis=0) for part in x]
    balanced = [part - top + sum(highest) / 3 for part, top in zip(x, highest, strict=True)]  # each table <= exp(200)
    # Tables of exp(x) of each part, in the order of the groups.
    order = np.full((len(plan.groups), _GROUP), -1)
    for row, group in zip(order, plan.groups, strict=True):
        row[: len(group)] = group
    tables = []
    for part in balanced:
        part[:, plan.wide] = 0.0
        padded = np.pad(part, ((0, 0), (0, 1)), constant_values=-np.inf)  # order = -1 finds the factor 1 + exp(-inf)
        tables.append(np.exp(padded)[:, order])
    # A block of all rows and columns for each outer state.
    P, Q = (tf.constant(np.moveaxis(table, 0, -1)) for table in tables[1:])
    bounds = np.pad([0, *plan.ends], (0, len(plan.groups) - len(plan.ends)))  # of one length, so that XLA compiles once
    arguments = P, Q, tf.constant(bounds), tf.constant(len(plan.ends)), tf.constant(linear[1]), tf.constant(linear[2])
    wide = tf.constant(wide_x[1].T), tf.constant(wide_x[2].T)
    results = [
        float(_block(tf.constant(tables[0][k]), tf.constant(wide_x[0][k]), *arguments, *wide)) + linear[0][k]
        for k in range(2**outer)
    ]
    return float(logsumexp(results)) + plan.constant


@tf.function(autograph=False, jit_compile=True)
def _block(
    O: tf.Tensor,  # noqa: E741 (the outer table beside P and Q)
    wide_outer: tf.Tensor,
    P: tf.Tensor,
    Q: tf.Tensor,
    bounds: tf.Tensor,
    pieces: tf.Tensor,
    rows: tf.Tensor,
    columns: tf.Tensor,
    wide_rows: tf.Tensor,
    wide_columns: tf.Tensor,
) -> tf.Tensor:
    """log of the sum over a block of states, with one outer state: O [G, 16], P [G, 16, R], Q [G, 16, S], to [].

    Groups `bounds[i]` to `bounds[i + 1]` are one of the `pieces`.
    """
    P = P * O[:, :, None]

    def multiply(k: tf.Tensor, product: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        p = P[k]
        q = Q[k]
        for i in range(_GROUP):
            product *= 1 + p[i][:, None] * q[i][None, :]
        return k + 1, product

    def add_piece(piece: tf.Tensor, log_weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        start = bounds[piece]
        end = bounds[piece + 1]
        _, product = tf.while_loop(lambda k, _: k < end, multiply, (start, tf.ones_like(log_weights)))
        return piece + 1, log_weights + tf.math.log(product)

    # One logarithm for each piece, then one for each factor that needs its own.
    _, log_weights = tf.while_loop(lambda i, _: i < pieces, add_piece, (0, rows[:, None] + columns[None, :]))

    def add_wide(i: tf.Tensor, log_weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        x = wide_outer[i] + wide_rows[i][:, None] + wide_columns[i][None, :]
        return i + 1, log_weights + tf.nn.softplus(x)

    if wide_rows.shape[0]:
        _, log_weights = tf.while_loop(lambda i, _: i < wide_rows.shape[0], add_wide, (0, log_weights))
    return tf.reduce_logsumexp(log_weights)
