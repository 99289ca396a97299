"""Networks and conditionals as the matrices that they multiply by, dense or sparse: what coding is made of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from darn.images.local import LocalDecoder, LocalEncoder
from darn.images.local_units import LocalMap
from darn.images.periodic import PeriodicLayer
from darn.images.window import LocalCausalConditional
from darn.model.layers import DenseNetwork

__all__ = ["causal_matrix", "network_matrices", "periodic_matrix"]


def network_matrices(network: Any) -> tuple[list[tuple[Any, Any]], str]:
    """Kernel [n_in, n_out] and bias [n_out] (None in the last one) of each affine map, and the activation between them.

    :raises ValueError: for another kind of network.
    """
    if isinstance(network, DenseNetwork):
        biases = [*(bias.numpy() for bias in network.biases), None]
        return list(zip([kernel.numpy() for kernel in network.kernels], biases, strict=True)), network.activation
    if isinstance(network, LocalMap):
        matrix = periodic_matrix(network.layer)
        return [(matrix if network.direction == "up" else matrix.T.tocsc(), None)], "relu"
    if not isinstance(network, LocalEncoder | LocalDecoder):
        raise ValueError(f"networks must be dense or local, got {type(network).__name__}.")
    layers = [periodic_matrix(layer) for layer in network.layers]
    biases, dense = [bias.numpy().reshape(-1) for bias in network.biases], network.dense.numpy()
    if isinstance(network, LocalEncoder):
        return [*zip(layers, biases, strict=True), (dense, None)], "relu"
    kernels = [dense.T, *(layer.T.tocsc() for layer in reversed(layers))]
    return list(zip(kernels, [*reversed(biases), None], strict=True)), "relu"


def periodic_matrix(layer: PeriodicLayer, weights: NDArray | None = None) -> Any:
    """The matrix of a periodic layer, sparse [H W C_in, H' W' C_out].

    :param weights: in place of the layer's own.
    """
    numbers = np.arange(1, math.prod(layer.shape) + 1).reshape(layer.shape)
    (rows, columns), s, before = layer.places, layer.stride, (layer.kernel - layer.stride) // 2
    after = [layer.kernel + s * num for num in layer.places]
    padded = np.pad(numbers, ((before, after[0]), (before, after[1]), (0, 0)))  # 0 is padding
    blocks = np.arange(layer.overlap)
    row, column = (s * (np.arange(num)[:, None] + blocks) for num in layer.places)  # where a place's blocks begin
    pixels = np.arange(s)
    seen = padded[
        row[:, None, :, None, None, None] + pixels[:, None], column[None, :, None, :, None, None] + pixels
    ].reshape(rows, columns, -1)
    weights = layer.weights.numpy() if weights is None else weights
    weights = weights[np.arange(rows) % layer.period][:, np.arange(columns) % layer.period]
    places = np.arange(rows * columns * layer.filters).reshape(rows, columns, 1, layer.filters)
    places, seen = np.broadcast_arrays(places, seen[..., None])
    known = seen > 0
    shape = (numbers.size, rows * columns * layer.filters)
    return scipy.sparse.csc_matrix((weights[known].astype(np.float64), (seen[known] - 1, places[known])), shape=shape)


def causal_matrix(conditional: LocalCausalConditional) -> Any:
    """What pixel k adds to the logit of pixel j, sparse [n, n], strictly upper triangular."""
    height, width = conditional.image_shape
    kernel, period, weights = conditional.kernel, conditional.period, conditional.weights.numpy()
    found: list[tuple[NDArray, ...]] = []
    row, column = np.divmod(np.arange(height * width), width)
    for place in range(kernel * kernel // 2):
        u, v = divmod(place, kernel)
        r, c = row + u - kernel // 2, column + v - kernel // 2
        is_inside = (r >= 0) & (c >= 0) & (c < width)
        value = weights[row % period, column % period, u, v]
        found.append(((r * width + c)[is_inside], np.flatnonzero(is_inside), value[is_inside]))
    if not found:
        return scipy.sparse.csc_matrix((len(row), len(row)))
    seen, sees, values = (np.concatenate(part) for part in zip(*found, strict=True))
    return scipy.sparse.csc_matrix((values.astype(np.float64), (seen, sees)), shape=(len(row), len(row)))
