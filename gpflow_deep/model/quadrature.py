"""How a deep GP averages over the functions of its inner layers: draws, Sobol points or Gauss-Hermite nodes.

All hand the layers the `eps` of Eq. (15), one array [S, N or 1, L] per inner layer, and a weight for each of the S
components. Monte-Carlo draws are independent at every point, as an unbiased gradient from a minibatch wants them. Sobol
points and Gauss-Hermite nodes are shared by all points, [S, 1, L]: what is predicted for a row then is a smooth
function of that row alone.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import tensorflow as tf
from scipy.stats import qmc

__all__ = ["GaussHermite", "Integrator", "MonteCarlo", "Sobol", "sobol_points"]

#: The largest tensor grid that `GaussHermite` accepts.
MAX_GRID_SIZE = 100_000

_BITS = 32


class Integrator(Protocol):
    """Supplies the noise of the inner layers and the weights of the components."""

    def num_components(self, dims: Sequence[int], num_samples: int) -> int:
        """The number S of components for inner layers of `dims` latent GPs, when `num_samples` are asked for."""
        ...

    def noise(
        self, dims: Sequence[int], num_components: int, num_points: tf.Tensor | int, seed: tf.Tensor, dtype: tf.DType
    ) -> list[tf.Tensor]:
        """For each inner layer [S, num_points, dim], or [S, 1, dim] for noise that all points share."""
        ...

    def log_weights(self, dims: Sequence[int], num_components: int, dtype: tf.DType) -> tf.Tensor:
        """Logarithms of the weights, which sum to one: [S]."""
        ...


class _EquallyWeighted:
    """A part of `Integrator` for draws and points that have equal weights, in any number."""

    def num_components(self, dims: Sequence[int], num_samples: int) -> int:
        """`num_samples`, but one where there is nothing to integrate."""
        return num_samples if sum(dims) else 1

    def log_weights(self, dims: Sequence[int], num_components: int, dtype: tf.DType) -> tf.Tensor:
        """log 1/S for each component."""
        return tf.fill([num_components], tf.constant(-np.log(num_components), dtype))


@dataclass(frozen=True)
class MonteCarlo(_EquallyWeighted):
    """Independent standard-normal draws, a pure function of the seed; the estimator of Sec. 3.2."""

    def noise(
        self, dims: Sequence[int], num_components: int, num_points: tf.Tensor | int, seed: tf.Tensor, dtype: tf.DType
    ) -> list[tf.Tensor]:
        """Draws laid out so that the first rows do not depend on how many rows there are."""
        # Rows are the first axis while numbers are drawn.
        seed = tf.random.fold_in(seed, 0)
        draws = []
        for i, dim in enumerate(dims):
            shape = [num_points, num_components, dim]
            eps = tf.random.stateless_normal(shape, tf.random.fold_in(seed, i), dtype=dtype)
            draws.append(tf.transpose(eps, [1, 0, 2]))
        return draws


@dataclass(frozen=True)
class Sobol(_EquallyWeighted):
    """Points of a scrambled Sobol sequence through the inverse of the normal distribution function, shared by all rows.

    The points are shifted at random, which the seed decides, and then transformed linearly so that their mean is 0 and
    their covariance the identity: what is linear or quadratic in the noise is integrated exactly. With S points in more
    than S - 2 dimensions this holds within blocks of S - 2 dimensions or fewer.
    """

    def noise(
        self, dims: Sequence[int], num_components: int, num_points: tf.Tensor | int, seed: tf.Tensor, dtype: tf.DType
    ) -> list[tf.Tensor]:
        """The same points for every row: [S, 1, dim] for each inner layer.

        :raises ValueError: with more dimensions than there are Sobol sequences for, 21,201.
        """
        # With a seed that is known while tracing, the points are a constant of the graph.
        static_seed = tf.get_static_value(seed)
        if static_seed is None:
            eps = _normal_points(sum(dims), num_components, seed)
        else:
            eps = tf.constant(_known_normal_points(sum(dims), num_components, *map(int, static_seed)))
        return [part[:, None, :] for part in tf.split(tf.cast(eps, dtype), list(dims), axis=1)] if dims else []


@functools.lru_cache(maxsize=16)
def _known_normal_points(dim: int, count: int, *seed: int) -> np.ndarray:
    """`_normal_points` of a seed that is known while tracing."""
    with tf.init_scope():
        return _normal_points(dim, count, tf.constant(seed, tf.int32)).numpy()


def _normal_points(dim: int, count: int, seed: tf.Tensor) -> tf.Tensor:
    """[count, dim], float64: Sobol points in the unit cube, shifted at random, as standard-normal numbers."""
    if dim > qmc.Sobol.MAXDIM:
        raise ValueError(
            f"Sobol points have at most {qmc.Sobol.MAXDIM} dimensions, got {dim} outputs of all inner layers; use "
            "fewer, or predict_integrator=MonteCarlo()."
        )
    # A digital shift, which leaves the points a net; 0.5 more keeps them off 0 and 1.
    shift = tf.random.stateless_uniform([dim], seed, minval=None, maxval=None, dtype=tf.uint32)
    integers = (sobol_points(dim, count, _BITS) * 2.0**_BITS).astype(np.uint32)
    points = tf.bitwise.bitwise_xor(tf.constant(integers), shift)
    return _with_matched_moments(tf.math.ndtri((tf.cast(points, tf.float64) + 0.5) * 2.0**-_BITS))


def sobol_points(dim: int, count: int, bits: int) -> np.ndarray:
    """First points of a Sobol sequence with scrambled direction numbers, always the same: [count, dim], in [0, 1)."""
    if dim == 0:
        return np.zeros((count, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # numbers other than powers of 2 are as good as the next lower one
        return np.asarray(qmc.Sobol(dim, scramble=True, bits=bits, seed=0).random(count))


def _with_matched_moments(eps: tf.Tensor) -> tf.Tensor:
    """Points [S, d] transformed to mean 0 and covariance I, in blocks of at most S - 2 dimensions."""
    S, d = eps.shape
    if S == 1 or d == 0:
        return eps  # nothing to match
    centred = eps - tf.reduce_mean(eps, axis=0)
    # The covariance of S centred points has the rank S - 1: in more dimensions it has no inverse.
    blocks = -(-d // max(1, S - 2))
    matched = []
    # Each block times the inverse of the factor of its covariance.
    for block in tf.split(centred, [d // blocks + (i < d % blocks) for i in range(blocks)], axis=1):
        root = tf.linalg.cholesky(tf.matmul(block, block, transpose_a=True) / S)
        matched.append(tf.transpose(tf.linalg.triangular_solve(root, tf.transpose(block))))
    return tf.concat(matched, axis=1)


@dataclass(frozen=True)
class GaussHermite:
    """Tensor grid of `num_nodes` Gauss-Hermite nodes in each of the inner latent dimensions: exact for polynomials,
    deterministic, but `num_nodes` to the power of the number of dimensions.

    :param num_nodes: nodes in one dimension.
    """

    num_nodes: int = 20

    def __post_init__(self) -> None:
        if self.num_nodes < 1:
            raise ValueError(f"num_nodes must be at least 1, got {self.num_nodes}.")

    def num_components(self, dims: Sequence[int], num_samples: int) -> int:
        """`num_nodes ** sum(dims)`, whatever `num_samples` is.

        :raises ValueError: if the grid is larger than `MAX_GRID_SIZE`.
        """
        size = self.num_nodes ** sum(dims)
        if size > MAX_GRID_SIZE:
            raise ValueError(
                f"a grid of num_nodes = {self.num_nodes} to the power of {sum(dims)} dimensions has {size} nodes, "
                f"more than {MAX_GRID_SIZE}; use fewer nodes or dimensions, or Monte Carlo (DeepGP)."
            )
        return size

    def noise(
        self, dims: Sequence[int], num_components: int, num_points: tf.Tensor | int, seed: tf.Tensor, dtype: tf.DType
    ) -> list[tf.Tensor]:
        """The same nodes for every row: [S, 1, dim] for each inner layer; `seed` is not used."""
        nodes = tf.constant(self._grid(sum(dims))[0], dtype)
        return [part[:, None, :] for part in tf.split(nodes, list(dims), axis=-1)] if dims else []

    def log_weights(self, dims: Sequence[int], num_components: int, dtype: tf.DType) -> tf.Tensor:
        """Logarithms of the products of the one-dimensional weights."""
        return tf.constant(self._grid(sum(dims))[1], dtype)

    def _grid(self, dim: int) -> tuple[np.ndarray, np.ndarray]:
        """Nodes [num_nodes ** dim, dim] and log weights for the standard normal density."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(self.num_nodes)
        log_weights = np.log(weights / np.sum(weights))
        if dim == 0:
            return np.zeros((1, 0)), np.zeros(1)
        # All combinations of nodes, with the products of their weights.
        grid = np.stack(np.meshgrid(*[nodes] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
        totals = sum(np.meshgrid(*[log_weights] * dim, indexing="ij"))
        return grid, np.asarray(totals).reshape(-1)
