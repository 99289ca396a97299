"""Starting values: inducing inputs by k-means, the fixed linear mean functions between layers (Sec. 2.2 of [1]), and
the variance of the noise by least squares.

The mean function of an inner layer passes its inputs on: unchanged where the widths agree, projected on the top right
singular vectors of the data where the layer is narrower, padded with zeros where it is wider. None of them is trained.
The inducing inputs of a layer are those of the first layer, taken through the mean functions below it.

[1] Salimbeni and Deisenroth, "Doubly Stochastic Variational Inference for Deep Gaussian Processes", NIPS 2017.
"""

from __future__ import annotations

import warnings

import numpy as np
from gpflow.config import default_float
from gpflow.mean_functions import Identity, Linear, MeanFunction
from gpflow.utilities import set_trainable
from scipy.cluster.vq import kmeans2

__all__ = ["inducing_inputs", "linear_mean", "linear_projection", "residual_variance"]

#: k-means uses at most this many rows, or 50 for each centre if that is more.
MAX_KMEANS_ROWS = 20_000

LEAST_NOISE = 0.01
"""Of the variance of the targets: no more is taken for sure at the start. The paper starts there, at any data."""


def inducing_inputs(X: np.ndarray, num_inducing: int, *, seed: int = 0) -> np.ndarray:
    """M inducing inputs: k-means centres of the rows of X, started from M of the rows; always M distinct points.

    :param X: finite inputs, [N, D].
    :param num_inducing: how many inducing inputs, M. With fewer than M distinct rows, all of them are taken, and copies
        of them with a Gaussian jitter of a tenth of each column's standard deviation make up the rest.
    :param seed: of the starting rows and the jitter.
    :return: [M, D].
    :raises ValueError: if X is not a finite matrix with at least one row, or M is not positive.
    """
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or len(X) == 0:
        raise ValueError(f"X must be an array [N, D] with N >= 1, got shape {list(X.shape)}.")
    if not np.all(np.isfinite(X)):
        raise ValueError("X must be finite, got NaN or infinity; drop these rows or put in values.")
    if num_inducing < 1:
        raise ValueError(f"num_inducing must be at least 1, got {num_inducing}.")
    rng = np.random.default_rng(seed)
    max_rows = max(MAX_KMEANS_ROWS, 50 * num_inducing)
    rows = X if len(X) <= max_rows else X[np.sort(rng.choice(len(X), max_rows, replace=False))]
    # k-means, from distinct rows that are drawn as often as they occur.
    distinct, counts = np.unique(rows, axis=0, return_counts=True)
    if len(distinct) > num_inducing:
        start = distinct[rng.choice(len(distinct), num_inducing, replace=False, p=counts / counts.sum())]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a centre that lost its points stays where it was
            centres, _ = kmeans2(rows, start, minit="matrix")
        distinct = np.unique(centres, axis=0)
    # Fewer distinct points than M: copies of them, moved a little.
    missing = num_inducing - len(distinct)
    if missing > 0:
        scale = np.std(rows, axis=0)
        scale = np.where(scale > 0, scale, 0.0 if np.any(scale > 0) else 1.0)
        copies = distinct[rng.integers(len(distinct), size=missing)]
        distinct = np.concatenate([distinct, copies + 0.1 * scale * rng.standard_normal(copies.shape)])
    return distinct.astype(default_float())


def linear_projection(X: np.ndarray, output_dim: int) -> np.ndarray:
    """The matrix W [D, output_dim] of a layer's mean function `x W`.

    :param X: what enters the layer, [N, D]; its top right singular vectors are the columns of W if output_dim < D.
        Their signs are such that the entry of largest modulus is positive.
    :raises ValueError: if `output_dim` is not positive.
    """
    X = np.asarray(X, dtype=np.float64)
    D = X.shape[1]
    if output_dim < 1:
        raise ValueError(f"output_dim must be at least 1, got {output_dim}.")
    if output_dim >= D:
        return np.eye(D, output_dim)
    _, vectors = np.linalg.eigh(X.T @ X)  # ascending; defined also for N < output_dim
    W = vectors[:, ::-1][:, :output_dim]
    # Singular vectors have no sign of their own: the largest entry decides, the same on all machines.
    signs = np.sign(W[np.argmax(np.abs(W), axis=0), np.arange(output_dim)])
    return W * signs


def linear_mean(X: np.ndarray, output_dim: int) -> MeanFunction:
    """Fixed mean function of a layer with inputs X [N, D]: identity, PCA or zero-padded, see `linear_projection`."""
    D = X.shape[1]
    if output_dim == D:
        return Identity(D)
    W: np.ndarray = linear_projection(X, output_dim).astype(default_float())
    mean_function = Linear(A=W, b=np.zeros(output_dim, dtype=default_float()))
    set_trainable(mean_function, False)
    return mean_function


def residual_variance(X: np.ndarray, Y: np.ndarray) -> float:
    """Variance of the noise to start a likelihood with: what least squares leaves of Y, on average over its columns.

        sum_n (y_n - x_n w - b)^2 / (N - rank),                but at least `LEAST_NOISE` of the variance of y

    A model that starts with less noise than there is follows the noise first and has to find its way back; one that
    starts here is about as good as least squares from its first steps on.

    :param X: training inputs [N, D], or a sample of them.
    :param Y: targets [N, P]. Both finite, in the model's units.
    :return: positive, in the squared units of Y. The variance of y where least squares has no residuals, because it has
        as many weights as rows.
    """
    X = np.asarray(X, np.float64)
    Y = np.asarray(Y, np.float64)
    # Least squares of standardised inputs, and the degrees of freedom that it leaves.
    scale = np.std(X, axis=0)
    inputs = (X - X.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    targets = Y - Y.mean(axis=0)
    weights, _, rank, _ = np.linalg.lstsq(inputs, targets, rcond=None)
    num_free = len(Y) - 1 - int(rank)
    variance = np.mean(np.square(targets), axis=0)
    residual = variance if num_free < 1 else np.sum(np.square(targets - inputs @ weights), axis=0) / num_free
    noise = float(np.mean(np.maximum(residual, LEAST_NOISE * variance)))
    return noise if noise > 0 else LEAST_NOISE
