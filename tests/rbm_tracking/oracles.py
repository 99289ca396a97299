"""What RBM code computes, in plain NumPy and float64: brute force over all states; RBMs of any size with known log Z.

Functions take any tuple (W [n_h, n_v], b [n_v], c [n_h]). The tempered family is
E_beta(v, h) = -beta (h'Wv + c'h) - b'v.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

Array = NDArray[np.float64]


class Parameters(NamedTuple):
    """W [n_h, n_v], b [n_v], c [n_h]; converts to the package's RBM with `RBM(*map(tf.constant, parameters))`."""

    W: Array
    b: Array
    c: Array


class Moments(NamedTuple):
    """E[v] [n_v], E[h] [n_h] and E[h v'] [n_h, n_v]."""

    v: Array
    h: Array
    hv: Array


def random_rbm(rng: np.random.Generator, n_h: int, n_v: int, scale: float = 1.0) -> Parameters:
    """Independent normal parameters with deviation `scale`."""
    return Parameters(scale * rng.normal(size=(n_h, n_v)), scale * rng.normal(size=n_v), scale * rng.normal(size=n_h))


def binary_vectors(n: int) -> Array:
    """All of {0, 1}^n, [2^n, n]; row k is k in binary with the most significant bit first."""
    return np.array([[(k >> (n - 1 - i)) & 1 for i in range(n)] for k in range(2**n)], dtype=np.float64).reshape(
        2**n, n
    )


def state_index(states: ArrayLike) -> NDArray[np.int64]:
    """Row of `binary_vectors` of each state: [..., n] to [...]."""
    states = np.asarray(states)
    return (states.astype(np.int64) << np.arange(states.shape[-1] - 1, -1, -1)).sum(axis=-1)


def _float64(parameters: Sequence[ArrayLike]) -> Parameters:
    W, b, c = (np.asarray(value, dtype=np.float64) for value in parameters)
    return Parameters(W, b, c)


def energy(parameters: Sequence[ArrayLike], v: Array, h: Array, beta: float = 1.0) -> Array:
    """E_beta of every pair: v [V, n_v], h [H, n_h] to [V, H]."""
    W, b, c = _float64(parameters)
    return np.array([[-beta * (hidden @ W @ x + c @ hidden) - b @ x for hidden in h] for x in v])


def log_joint(parameters: Sequence[ArrayLike], beta: float = 1.0) -> Array:
    """-E_beta of all states, [2^n_v, 2^n_h]."""
    W, b, c = _float64(parameters)
    v, h = binary_vectors(len(b)), binary_vectors(len(c))
    return beta * (v @ W.T @ h.T + (h @ c)[None, :]) + (v @ b)[:, None]


def log_z(parameters: Sequence[ArrayLike], beta: float = 1.0) -> float:
    """log of the sum over all 2^(n_v + n_h) states."""
    return float(logsumexp(log_joint(parameters, beta)))


def joint(parameters: Sequence[ArrayLike], beta: float = 1.0) -> Array:
    """Probabilities of all states, [2^n_v, 2^n_h]."""
    return np.exp(log_joint(parameters, beta) - log_z(parameters, beta))


def visible_distribution(parameters: Sequence[ArrayLike], beta: float = 1.0) -> Array:
    """Probabilities of all visible vectors, [2^n_v]."""
    return joint(parameters, beta).sum(axis=1)


def moments(parameters: Sequence[ArrayLike], beta: float = 1.0) -> Moments:
    """Means under the model, by the table of all states."""
    p = joint(parameters, beta)
    v, h = (binary_vectors(size.bit_length() - 1) for size in p.shape)
    return Moments(p.sum(axis=1) @ v, p.sum(axis=0) @ h, h.T @ p.T @ v)


def log_likelihood(parameters: Sequence[ArrayLike], v: ArrayLike, beta: float = 1.0) -> Array:
    """log p_beta(v), [N, n_v] to [N]: read off the table."""
    return np.log(visible_distribution(parameters, beta))[state_index(v)]


def gibbs_matrix(parameters: Sequence[ArrayLike], beta: float = 1.0) -> Array:
    """Transition probabilities of v -> h -> v, [2^n_v, 2^n_v], rows sum to one."""
    # Both conditionals are rows and columns of the table of all states
    p = joint(parameters, beta)
    h_given_v = p / p.sum(axis=1, keepdims=True)
    v_given_h = p / p.sum(axis=0, keepdims=True)
    return h_given_v @ v_given_h.T


def sample_visible(rng: np.random.Generator, parameters: Sequence[ArrayLike], count: int, beta: float = 1.0) -> Array:
    """Independent exact draws of v, [count, n_v]."""
    p = visible_distribution(parameters, beta)
    return binary_vectors(len(np.asarray(parameters[1])))[rng.choice(len(p), size=count, p=p / p.sum())]


class PlantedRBM(NamedTuple):
    """An RBM that is a product of small ones: `blocks` on the units `visible` and `hidden` of each, mixed by shuffling.

    Its log Z is the sum of the blocks', at every beta, whatever the size.
    """

    parameters: Parameters
    blocks: tuple[Parameters, ...]
    visible: tuple[NDArray[np.int64], ...]
    hidden: tuple[NDArray[np.int64], ...]

    def log_z(self, beta: float = 1.0) -> float:
        """Exact, by brute force in each block."""
        return sum(log_z(block, beta) for block in self.blocks)

    def moments(self, beta: float = 1.0) -> Moments:
        """Exact means; units of different blocks are independent."""
        W, b, c = self.parameters
        v, h, inside = np.zeros_like(b), np.zeros_like(c), np.zeros_like(W)
        is_inside = np.zeros(W.shape, dtype=bool)
        for block, visible, hidden in zip(self.blocks, self.visible, self.hidden, strict=True):
            v[visible], h[hidden], inside[np.ix_(hidden, visible)] = moments(block, beta)
            is_inside[np.ix_(hidden, visible)] = True
        return Moments(v, h, np.where(is_inside, inside, np.outer(h, v)))

    def log_likelihood(self, v: ArrayLike) -> Array:
        """log p(v), [N, n_v] to [N]."""
        x = np.asarray(v)
        parts = zip(self.blocks, self.visible, strict=True)
        return np.sum([log_likelihood(block, x[:, visible]) for block, visible in parts], axis=0)

    def sample(self, rng: np.random.Generator, count: int, beta: float = 1.0) -> Array:
        """Independent exact draws of v, [count, n_v]."""
        result = np.empty((count, len(self.parameters.b)))
        for block, visible in zip(self.blocks, self.visible, strict=True):
            result[:, visible] = sample_visible(rng, block, count, beta)
        return result


def planted_rbm(
    rng: np.random.Generator,
    n_h: int,
    n_v: int,
    *,
    num_blocks: int,
    scale: float = 1.0,
    bias_scale: float | None = None,
) -> PlantedRBM:
    """A block-diagonal RBM with shuffled units; W ~ N(0, scale^2), biases ~ N(0, bias_scale^2), by default the same.

    Blocks have about n_h / num_blocks hidden and n_v / num_blocks visible units: keep their sum under 16.
    """
    # Units of each block, drawn at random; blocks know nothing of each other
    hidden = tuple(np.sort(part) for part in np.array_split(rng.permutation(n_h), num_blocks))
    visible = tuple(np.sort(part) for part in np.array_split(rng.permutation(n_v), num_blocks))
    W, bias_scale = np.zeros((n_h, n_v)), scale if bias_scale is None else bias_scale
    b, c = bias_scale * rng.normal(size=n_v), bias_scale * rng.normal(size=n_h)
    blocks = []
    for rows, columns in zip(hidden, visible, strict=True):
        W[np.ix_(rows, columns)] = scale * rng.normal(size=(len(rows), len(columns)))
        blocks.append(Parameters(W[np.ix_(rows, columns)], b[columns], c[rows]))
    return PlantedRBM(Parameters(W, b, c), tuple(blocks), visible, hidden)
