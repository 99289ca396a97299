"""Where an RBM has much of its mass: maxima of its distribution, looked for with one layer summed out.

A model may have modes between those of the rows, unlike any row, which hold most of its mass. Chains change a whole
layer at a time, by what the other one says, and do not come there at any temperature; AIS from the rows or along
training does not either. With v summed out the hidden units of

    q~(h) = exp(c'h) prod_i Z_i(x_i),      x = W'h + b,

move one after the other (a collapsed Gibbs sampler), and reach such modes within a few sweeps, from states that are
drawn at random. From there the mean field, x = W' mu + b, m = E[v | x], a = W m + c, mu = E[h | a], climbs to

    log Z >= log Z_v(x) - m'(x - b) + log Z_h(a) - mu'(a - c) + mu'W m,

which tells the modes that matter from those that do not. The smaller layer is the one that moves.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rbm_tracking.model import plain
from rbm_tracking.model.rbm import RBM
from rbm_tracking.model.visible import Bernoulli, Spin, Visible

__all__ = ["unlike_rows"]

# states at random, fewer of large models
_MOST_STATES = 100
_FEW_STATES = 20
_MOST_WORK = 2e8  # entries of fields
_SWEEPS = 10
_FIRST_BETA = 0.1
_CLIMBING = 2  # sweeps to the next maximum after these
_MEAN_FIELD = 20  # rounds
_MOST = 4
_LEAST = 5.0  # nats below the highest maximum
_APART = 10.0  # nats: the divergence from one maximum to another and back

Array = np.ndarray


class _Collapsed(NamedTuple):
    """A layer with the states `low` and `high` that moves, with biases c, and the other one, which is summed out."""

    W: Array  # [moved, other]
    c: Array
    b: Array
    other: Visible
    is_hidden: bool
    low: float
    high: float


def unlike_rows(rbm: RBM, base_b: Array, rng: np.random.Generator) -> Array:
    """Fields [K, n_v] of visible units at up to four maxima that the rows do not lead to; none where no layer is of
    bits or signs.

    :param base_b: visible biases of clusters of the rows, [K', n_v]; maxima near theirs are left out.
    :param rng: of the states to start from and of what moves them.
    """
    parts = plain.arrays(rbm)
    layer = _moving(parts)
    if layer is None:
        return np.zeros((0, base_b.shape[1]))
    # States at random, which climb to a maximum each.
    count = np.clip(_MOST_WORK / (layer.W.size * (_SWEEPS + _CLIMBING)), _FEW_STATES, _MOST_STATES)
    drawn = rng.random((int(count), len(layer.c))) < 0.5
    states = _climbed(layer, drawn, rng)
    mu = states if layer.is_hidden else plain.hidden_mean(parts.hidden, plain.activations(parts, states))
    # The mean field from there and from the rows, and how much of the mass there is.
    of_rows = np.asarray(parts.visible.mean(base_b), parts.W.dtype)
    near = plain.hidden_mean(parts.hidden, plain.activations(parts, of_rows))
    x, m, log_z = _mean_field(parts, np.concatenate([near, mu]))
    # The highest of those that are apart from the rows' and from each other.
    known = list(range(len(near)))
    new: list[int] = []
    for i in np.argsort(-log_z):
        if log_z[i] < log_z.max() - _LEAST or len(new) == _MOST:
            break
        if i >= len(near) and all(float((x[i] - x[k]) @ (m[i] - m[k])) > _APART for k in known):
            known.append(i)
            new.append(i)
    return np.asarray(x[new], np.float64)


def _moving(rbm: RBM) -> _Collapsed | None:
    """The layer of bits or signs that moves: the smaller one, if both could."""
    values: dict[type[Visible], tuple[float, float]] = {Bernoulli: (0.0, 1.0), Spin: (-1.0, 1.0)}
    layers = []
    if type(rbm.hidden) in values:
        layers.append(_Collapsed(rbm.W, rbm.c, rbm.b, rbm.visible, True, *values[type(rbm.hidden)]))
    if type(rbm.visible) in values:
        layers.append(_Collapsed(rbm.W.T, rbm.b, rbm.c, rbm.hidden, False, *values[type(rbm.visible)]))
    return min(layers, key=lambda layer: len(layer.c), default=None)


def _climbed(layer: _Collapsed, is_high: NDArray[np.bool_], rng: np.random.Generator) -> Array:
    """States after sweeps at rising beta, and after some in which each step goes up."""
    W = layer.W
    state = np.where(is_high, layer.high, layer.low).astype(W.dtype)
    x = state @ W + layer.b
    log_z = plain.hidden_sum(layer.other, x)
    betas = [*np.linspace(_FIRST_BETA, 1.0, _SWEEPS), *([np.inf] * _CLIMBING)]
    with np.errstate(over="ignore"):
        for beta in betas:
            for j in rng.permutation(len(layer.c)):
                # The change of log q~ by the other value of unit j.
                change = (layer.low + layer.high - 2 * state[:, j]).astype(W.dtype)
                new_x = x + change[:, None] * W[j]
                new_log_z = plain.hidden_sum(layer.other, new_x)
                gain = new_log_z - log_z + change * layer.c[j]
                is_moved = gain > 0 if beta == np.inf else rng.random(len(state)) * (1 + np.exp(-beta * gain)) < 1
                state[is_moved, j] += change[is_moved]
                x[is_moved] = new_x[is_moved]
                log_z = np.where(is_moved, new_log_z, log_z)
    return np.asarray(state)


def _mean_field(rbm: RBM, mu: Array) -> tuple[Array, Array, Array]:
    """Fields x and means m of visible units [C, n_v], and the bound of log Z there, [C], from hidden means mu."""
    # Means of one layer by those of the other, in turn.
    for _ in range(_MEAN_FIELD):
        x = mu @ rbm.W + rbm.b
        m = np.asarray(rbm.visible.mean(x), x.dtype)
        a = plain.activations(rbm, m)
        mu = plain.hidden_mean(rbm.hidden, a)
    own = rbm.visible.log_normaliser(x) - ((x - rbm.b) * m).sum(axis=-1)
    # a'mu is counted in both layers
    hidden = plain.hidden_sum(rbm.hidden, a) - ((a - rbm.c) * mu).sum(axis=-1)
    return x, m, np.asarray(own + hidden + ((m @ rbm.W.T) * mu).sum(axis=-1))
