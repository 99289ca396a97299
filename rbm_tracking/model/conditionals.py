"""What an RBM says of some visible units given the others: labels, missing values.

Without log Z: with the observed units v_o and the states s of the missing ones,

    p(s | v_o) = exp(b's) prod_j (1 + exp(a_j(v_o) + (W s)_j)) / (the same, summed over s)

(of hidden bits; the sum of other families takes the place of the product),

exactly where s has few states, as the label of a classification RBM (Larochelle and Bengio, 2008). Else by chains of
Gibbs sampling in which the observed units stay as they are. NumPy in float64.
"""

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax

from rbm_tracking.model.checks import check_rbm
from rbm_tracking.model.families.mixed import Mixed
from rbm_tracking.model.families.softmax import Softmax
from rbm_tracking.model.rbm import RBM
from rbm_tracking.model.visible import Bernoulli, Gaussian, Spin, Visible, binary_vectors

__all__ = ["Imputed", "fill_in", "impute", "log_label_probs"]

Array = NDArray[np.float64]

_MAX_STATES = 1024  # of the missing units of a row, which are enumerated
_MAX_HIDDEN = 12  # hidden units whose states are enumerated, for missing numbers
_CHUNK = 2**24  # numbers in an array at once
_CLAMP = 1e4  # a field that leaves no doubt


class Imputed(NamedTuple):
    """Rows with conditional means in place of missing values, [N, n_v]; the standard error of these means, [N, n_v], 0
    where they are exact or observed; which rows are exact [N]."""

    values: Array
    error: Array
    is_exact: NDArray[np.bool_]


def log_label_probs(rbm: RBM, rows: ArrayLike, labels: ArrayLike) -> Array:
    """log p(y = k | the other units) in nats, exact, for the one-hot columns `labels` [K] of y: [N, K].

    :param rows: [N, n_v], in which the columns of the label do not matter; or without them, [N, n_v - K].
    :raises ValueError: if rows have another number of columns, or there are no such labels.
    """
    check_rbm(rbm)
    W, b, c = _parts(rbm)
    columns = np.asarray(labels, np.int64)
    if not len(columns) or columns.min() < 0 or columns.max() >= len(b):
        raise ValueError(f"labels must be columns from 0 to {len(b) - 1}, got {columns.tolist()}.")
    rest = np.setdiff1d(np.arange(len(b)), columns)
    v = np.asarray(rows, np.float64)
    if v.ndim != 2 or v.shape[1] not in (len(b), len(rest)):
        raise ValueError(f"rows must be [N, {len(rest)}] without, or [N, {len(b)}] with the label, got {v.shape}.")
    # Label k adds its column of W to the activations, and its bias: the rest is one product for all labels.
    a = (v if v.shape[1] == len(rest) else v[:, rest]) @ W[:, rest].T + c
    pieces = np.array_split(a, max(1, -(-a.size * len(columns) // _CHUNK)))
    scores = [rbm.hidden.log_normaliser(p[:, None] + W[:, columns].T[None]) + b[columns] for p in pieces]
    return log_softmax(np.concatenate(scores), axis=1)


def impute(
    rbm: RBM,
    rows: ArrayLike,
    mask: ArrayLike,
    *,
    rng: np.random.Generator,
    num_chains: int = 20,
    num_steps: int = 200,
) -> Imputed:
    """E[v | the observed units] in the place of missing values.

    Exact where the missing units of a row have at most 1024 states (ten bits, or a category), and for numbers with at
    most 12 hidden units. Else `num_chains` independent chains of `num_steps` rounds, of which the second half counts;
    the error is the one between chains, and does not tell of modes that all of them miss.

    :param rows: [N, n_v]; what it holds where the mask is true does not matter.
    :param mask: [N, n_v], true where a value is missing.
    :raises ValueError: if shapes do not fit, or what is observed is not allowed.
    """
    check_rbm(rbm)
    is_missing = np.asarray(mask, bool)
    v = np.array(rows, np.float64)
    if v.ndim != 2 or v.shape != is_missing.shape or v.shape[1] != len(rbm.b):
        raise ValueError(f"rows and mask must be [N, {len(rbm.b)}], got {v.shape} and {is_missing.shape}.")
    if num_chains < 2 or num_steps < 2:
        raise ValueError(f"num_chains and num_steps must be at least 2, got {num_chains} and {num_steps}.")
    v[is_missing] = 0.0
    _check_observed(rbm.visible, v, is_missing)
    imputed = Imputed(v, np.zeros_like(v), np.ones(len(v), bool))
    # Exactly, for all rows that miss the same columns together.
    patterns, which = np.unique(is_missing, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        chosen = np.flatnonzero(which.ravel() == number)
        columns = np.flatnonzero(pattern)
        if not len(columns):
            continue
        means = _exact(rbm, v[chosen], columns)
        imputed.is_exact[chosen] = means is not None
        if means is not None:
            imputed.values[np.ix_(chosen, columns)] = means
    # By chains where there are too many states.
    rest = np.flatnonzero(~imputed.is_exact)
    size = max(1, _CHUNK // (num_chains * (len(rbm.b) + len(rbm.c)) * 4))
    for start in range(0, len(rest), size):
        chosen = rest[start : start + size]
        missing = is_missing[chosen]
        means, error = _by_chains(rbm, v[chosen], missing, rng, num_chains, num_steps)
        imputed.values[chosen] = np.where(missing, means, v[chosen])
        imputed.error[chosen] = np.where(missing, error, 0.0)
    return imputed


def fill_in(rbm: RBM, rows: ArrayLike, is_missing: ArrayLike, *, rng: np.random.Generator, num_steps: int = 1) -> Array:
    """Rows [N, n_v] whose missing units are drawn anew, by rounds of Gibbs sampling in which the observed ones stay.

    :param rows: with a first guess of what is missing, which the units allow.
    :param is_missing: [N, n_v].
    :param num_steps: number of rounds.
    """
    W, b, c = _parts(rbm)
    v = np.asarray(rows, np.float64)
    missing = np.asarray(is_missing, bool)
    clamped = _clamped(rbm.visible, v, missing)
    for _ in range(num_steps):
        # h | v, then v | h with fields so large that observed units stay
        h = rbm.hidden.draw(v @ W.T + c, rng.random((len(v), rbm.hidden.num_noise(len(c)))))
        noise = rng.random((len(v), rbm.visible.num_noise(len(b))))
        v = np.where(missing, rbm.visible.draw(h @ W + b + clamped, noise), v)
    return v


def _exact(rbm: RBM, v: Array, columns: NDArray[np.int64]) -> Array | None:
    """Conditional means of the missing columns of rows that miss the same ones; None if there are too many states."""
    W, b, c = _parts(rbm)
    if isinstance(rbm.visible, Gaussian):
        return _by_hidden(rbm, v, columns) if len(c) <= _MAX_HIDDEN and rbm.hidden == Bernoulli() else None
    states = _states(rbm.visible, columns)
    if states is None:
        return None
    a = v @ W.T + c
    means = []
    # p(missing | observed) by q~ of all states of the missing columns, for blocks of rows
    size = max(1, _CHUNK // (len(states) * len(c)))
    for start in range(0, len(v), size):
        moved = a[start : start + size, None] + (states @ W[:, columns].T)[None]
        scores = rbm.hidden.log_normaliser(moved) + states @ b[columns]
        scores[~_fits(rbm.visible, v[start : start + size], states, columns)] = -np.inf
        means.append(np.exp(log_softmax(scores, axis=1)) @ states)
    return np.concatenate(means)


def _clamped(visible: Visible, v: Array, is_missing: NDArray[np.bool_]) -> Array:
    """Fields [N, n_v] that leave observed units no choice, nor the others of their groups; numbers need none."""
    if isinstance(visible, Mixed):
        clamped = np.empty_like(v)
        for family, columns in zip(visible.families, map(list, visible.columns), strict=True):
            clamped[..., columns] = _clamped(family, v[..., columns], is_missing[..., columns])
        return clamped
    if visible.num_states(v.shape[-1]) == np.inf and not isinstance(visible, Softmax):
        return np.zeros_like(v)
    return np.where(is_missing, 0.0, _CLAMP * np.where(v > 0, 1.0, -1.0))


def _by_hidden(rbm: RBM, v: Array, columns: NDArray[np.int64]) -> Array:
    """Means of missing numbers, by the states of the hidden units."""
    W, b, c = _parts(rbm)
    units = Gaussian(np.asarray(rbm.visible.precision, np.float64)[columns])  # type: ignore[attr-defined]
    h = binary_vectors(len(c))
    x = h @ W[:, columns] + b[columns]
    log_normaliser = units.log_normaliser(x)
    means = []
    # log of the sum over h of q~(observed, h), with the missing numbers integrated out, for blocks of rows
    for block in np.array_split(v, -(-len(v) * len(h) // _CHUNK)):
        scores = (block @ W.T + c) @ h.T + log_normaliser  # v is 0 where it is missing
        means.append(np.exp(log_softmax(scores, axis=1)) @ units.mean(x))
    return np.concatenate(means)


def _by_chains(
    rbm: RBM, v: Array, is_missing: NDArray[np.bool_], rng: np.random.Generator, num_chains: int, num_steps: int
) -> tuple[Array, Array]:
    """Means of the missing units over chains, and the standard error between chains, [N, n_v] each."""
    W, b, c = _parts(rbm)
    clamped = _clamped(rbm.visible, v, is_missing)
    state = np.repeat(v[None], num_chains, axis=0)
    field = np.broadcast_to(b + clamped, state.shape)
    total = np.zeros_like(state)
    # Missing units are drawn given the observed ones; the second half of the rounds counts.
    for step in range(num_steps):
        noise = rng.random((*state.shape[:2], rbm.visible.num_noise(len(b))))
        state = np.where(is_missing, rbm.visible.draw(field, noise), state)
        h_noise = rng.random((*state.shape[:2], rbm.hidden.num_noise(len(c))))
        h = rbm.hidden.draw(state @ W.T + c, h_noise)
        field = h @ W + b + clamped
        if step >= num_steps // 2:
            total += rbm.visible.mean(field)
    # Means of each chain, then over chains: their spread is the error.
    means = total / (num_steps - num_steps // 2)
    return means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(num_chains)


def _states(visible: Visible, columns: NDArray[np.int64]) -> Array | None:
    """States of the missing columns, [S, number of columns], not all allowed in each row; None if too many."""
    if not isinstance(visible, Bernoulli | Spin | Softmax):
        return None
    # What may be 1: a column of each group or none of them, and each other column.
    missing = {int(column): place for place, column in enumerate(columns)}
    groups = visible.groups if isinstance(visible, Softmax) else ()
    # Missing columns of one group exclude one another, the others are free.
    together = [[missing[column] for column in group if column in missing] for group in groups]
    alone = sorted(set(missing.values()) - {place for group in together for place in group})
    choices: list[list[int | None]] = [[*group, None] for group in together if group] + [[i, None] for i in alone]
    if np.prod([float(len(options)) for options in choices]) > _MAX_STATES:
        return None
    states = np.zeros((int(np.prod([len(options) for options in choices])), len(columns)))
    for row, chosen in zip(states, itertools.product(*choices), strict=True):
        row[[place for place in chosen if place is not None]] = 1.0
    return 2.0 * states - 1.0 if isinstance(visible, Spin) else states


def _fits(visible: Visible, v: Array, states: Array, columns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether states of the missing columns are allowed beside the observed ones, [N, S]."""
    fits = np.ones((len(v), len(states)), bool)
    if isinstance(visible, Softmax):
        for group, required in zip(visible.groups, visible.is_required, strict=True):
            counts = v[:, list(group)].sum(axis=1)[:, None] + states[:, np.isin(columns, group)].sum(axis=1)
            fits &= (counts == 1) if required else (counts <= 1)
    return fits


def _check_observed(visible: Visible, v: Array, is_missing: NDArray[np.bool_]) -> None:
    """Check rows, of which the missing units have been put in so that they are allowed if the others are."""
    if isinstance(visible, Mixed):
        for family, columns in zip(visible.families, map(list, visible.columns), strict=True):
            _check_observed(family, v[:, columns], is_missing[:, columns])
        return
    filled = np.where(is_missing, -1.0 if isinstance(visible, Spin) else 0.0, v)
    if isinstance(visible, Softmax):
        for group, required in zip(visible.groups, visible.is_required, strict=True):
            # A category that needs a 1, and may have it in a missing column, is allowed.
            columns = list(group)
            is_open = required & is_missing[:, columns].any(axis=1) & (filled[:, columns].sum(axis=1) == 0)
            first = np.array(columns)[np.argmax(is_missing[:, columns], axis=1)]
            filled[np.flatnonzero(is_open), first[is_open]] = 1.0
    visible.check(filled, name="what is observed")


def _parts(rbm: RBM) -> tuple[Array, Array, Array]:
    return np.asarray(rbm.W, np.float64), np.asarray(rbm.b, np.float64), np.asarray(rbm.c, np.float64)
