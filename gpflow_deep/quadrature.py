"""How a deep GP averages over the functions of its inner layers: Monte-Carlo draws or Gauss-Hermite nodes.

Both hand the layers the `eps` of Eq. (15), one array [S, N, L] per inner layer, and a weight for each of the S
components. Monte-Carlo draws are standard-normal with equal weights. Gauss-Hermite nodes are the tensor grid over all
inner latent dimensions: exact for polynomials, deterministic, but `num_nodes` to the power of the number of dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import tensorflow as tf

__all__ = ["GaussHermite", "Integrator", "MonteCarlo"]

#: The largest tensor grid that `GaussHermite` accepts.
MAX_GRID_SIZE = 100_000


class Integrator(Protocol):
    """Supplies the noise of the inner layers and the weights of the components."""

    def num_components(self, dims: Sequence[int], num_samples: int) -> int:
        """The number S of components for inner layers of `dims` latent GPs, when `num_samples` are asked for."""
        ...

    def noise(
        self,
        dims: Sequence[int],
        start: tf.Tensor | int,
        count: tf.Tensor | int,
        num_points: tf.Tensor,
        seed: tf.Tensor,
        dtype: tf.DType,
    ) -> list[tf.Tensor]:
        """Noise of components `start` to `start + count - 1`: for each inner layer [count, num_points or 1, dim]."""
        ...

    def log_weights(self, dims: Sequence[int], num_components: int, dtype: tf.DType) -> tf.Tensor:
        """Logarithms of the weights, which sum to one: [S]."""
        ...


@dataclass(frozen=True)
class MonteCarlo:
    """Independent standard-normal draws, a pure function of the seed; the estimator of Sec. 3.2."""

    def num_components(self, dims: Sequence[int], num_samples: int) -> int:
        """`num_samples`, but one where there is nothing to integrate."""
        return num_samples if dims else 1

    def noise(
        self,
        dims: Sequence[int],
        start: tf.Tensor | int,
        count: tf.Tensor | int,
        num_points: tf.Tensor,
        seed: tf.Tensor,
        dtype: tf.DType,
    ) -> list[tf.Tensor]:
        """Draws laid out so that the first rows do not depend on how many rows there are."""
        seed = tf.random.fold_in(seed, tf.cast(start, tf.int32))
        draws = []
        for i, dim in enumerate(dims):
            eps = tf.random.stateless_normal([num_points, count, dim], tf.random.fold_in(seed, i), dtype=dtype)
            draws.append(tf.transpose(eps, [1, 0, 2]))
        return draws

    def log_weights(self, dims: Sequence[int], num_components: int, dtype: tf.DType) -> tf.Tensor:
        """log 1/S for each component."""
        return tf.fill([num_components], tf.constant(-np.log(num_components), dtype))


@dataclass(frozen=True)
class GaussHermite:
    """Tensor grid of `num_nodes` Gauss-Hermite nodes in each of the inner latent dimensions.

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
        self,
        dims: Sequence[int],
        start: tf.Tensor | int,
        count: tf.Tensor | int,
        num_points: tf.Tensor,
        seed: tf.Tensor,
        dtype: tf.DType,
    ) -> list[tf.Tensor]:
        """The same nodes at every point: [count, 1, dim] for each inner layer; `seed` is not used."""
        nodes, _ = self._grid(sum(dims))
        chosen = tf.constant(nodes, dtype)[start : start + count]
        return [part[:, None, :] for part in tf.split(chosen, list(dims), axis=-1)] if dims else []

    def log_weights(self, dims: Sequence[int], num_components: int, dtype: tf.DType) -> tf.Tensor:
        """Logarithms of the products of the one-dimensional weights."""
        return tf.constant(self._grid(sum(dims))[1], dtype)

    def _grid(self, dim: int) -> tuple[np.ndarray, np.ndarray]:
        """Nodes [num_nodes ** dim, dim] and log weights for the standard normal density."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(self.num_nodes)
        log_weights = np.log(weights / np.sum(weights))
        if dim == 0:
            return np.zeros((1, 0)), np.zeros(1)
        grid = np.stack(np.meshgrid(*[nodes] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
        totals = sum(np.meshgrid(*[log_weights] * dim, indexing="ij"))
        return grid, np.asarray(totals).reshape(-1)
