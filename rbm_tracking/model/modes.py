"""An RBM to start from that has the leading modes of the data already, instead of small noise.

Training spends its first updates on the data's leading principal directions, one after the other, each with a
transition at which chains lag (Decelle, Fissore and Furtlehner, 2017). In the linear regime their weights have a closed
form. With c = -W m, m the means of the data, and small activations a = W (v - m),

    sum_j log(1 + exp(a_j)) = const + 1'a / 2 + (v - m)' K (v - m) / 2,        K = W'W / 4,

which is Gaussian with the inverse covariance D^-1 - K, D the variances of independent units. It has the correlations'
leading eigenvalues lambda > 1 and eigenvectors u of the data (the generalised Hopfield model of Cocco, Monasson and
Sessak, 2011) for

    W = 2 R diag(sqrt(1 - 1 / lambda)) U' D^-1/2,        R'R = I,

with any rotation R [n_h, K]: a random one spreads each mode over all hidden units. Visible biases are those of
independent units less the mean of W'h.
"""

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from rbm_tracking.model.rbm import RBM, initial_rbm

__all__ = ["low_rank_rbm"]

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
