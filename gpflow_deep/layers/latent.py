"""Latent variables: inputs that nobody measured, one draw for each row (Salimbeni et al. 2019).

    f(x) = [x, w],   w ~ N(0, I),   q(w_n) = N(a_n, diag(b_n^2))

The layers above turn the noise w into whatever distribution the targets have: two branches, skewness, a variance that
depends on x. In training w_n comes from q(w_n), in predictions from the prior. a_n and b_n are functions of the row,
`(x_n, y_n)`, or free parameters of each training row. The bound has KL[q(w_n) || p(w_n)] of every row, or K importance
samples of w_n: see `gpflow_deep.posteriors.importance`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import tensorflow as tf
from gpflow.base import Module, Parameter
from gpflow.config import default_float
from gpflow.utilities import positive

from ..functions.pathwise import FunctionNoise, LayerFunctions
from ..functions.white_noise import normal_at
from .moments import LatentOutputs, LayerMoments, no_factors, no_kl

__all__ = ["Encoder", "LatentVariableLayer"]


class Encoder(Module):
    """A network with tanh units from rows [x, y] to means and standard deviations of w.

    :param input_dim: D + P, the columns of X and Y.
    :param latent_dim: columns of the latent variables, Q.
    :param hidden: units of the hidden layers.
    :param std: standard deviations to start from, the same at all rows.
    :param seed: of the weights.
    """

    def __init__(
        self, input_dim: int, latent_dim: int, *, hidden: Sequence[int] = (20, 20), std: float = 0.5, seed: int = 0
    ) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        sizes = [input_dim, *hidden, 2 * latent_dim]
        scales = [1.0 / np.sqrt(size) for size in sizes[:-1]]
        # Standard deviations do not depend on the row at the start.
        W = [s * rng.standard_normal(shape) for s, shape in zip(scales, pairwise(sizes), strict=True)]
        W[-1][:, latent_dim:] = 0.0
        self.W = [Parameter(weights, dtype=default_float()) for weights in W]
        self.b = [Parameter(np.zeros(size), dtype=default_float()) for size in sizes[1:]]
        self.std = std

    def __call__(self, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Means and standard deviations [B, Q] for rows [B, D + P].

        :raises ValueError: if the rows have another number of columns.
        """
        if rows.shape[-1] not in (None, self.W[0].shape[0]):
            raise ValueError(
                f"an Encoder must read rows [x, y] of {self.W[0].shape[0]} columns, got {rows.shape[-1]}; make it with "
                f"input_dim={rows.shape[-1]}."
            )
        # Hidden layers; then means, and deviations within a factor of e^4 of those of the start.
        for W, b in zip(self.W[:-1], self.b[:-1], strict=True):
            rows = tf.tanh(rows @ W + b)
        mean, raw = tf.split(rows @ self.W[-1] + self.b[-1], 2, axis=1)
        return mean, self.std * tf.exp(tf.tanh(raw) * 4.0)


class LatentVariableLayer(LatentOutputs, Module):
    """The inputs and Q latent variables: P = D + Q outputs, the latent variables last.

    Anywhere among the layers, usually the first; what follows takes D + Q columns (`extend` makes inducing inputs).

    :param input_dim: D, columns of what the layer reads.
    :param latent_dim: columns of the latent variables, Q.
    :param encoder: from rows [x_n, y_n] of the data [B, D + P] to the means and standard deviations of q(w_n), [B, Q]
        each, such as `Encoder(2, 1)`: minibatches of any size. None for free parameters of each row; needs `num_rows`.
    :param num_rows: number N of training rows with free parameters, all of which every batch has, in the same order.
    :raises ValueError: unless there is either an encoder or a number of rows.
    """

    def __init__(
        self,
        input_dim: int,
        latent_dim: int = 1,
        *,
        encoder: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]] | None = None,
        num_rows: int | None = None,
    ) -> None:
        super().__init__()
        if (encoder is None) == (num_rows is None):
            raise ValueError("LatentVariableLayer must have either an encoder or num_rows, for q(w_n); give one.")
        if latent_dim < 1:
            raise ValueError(f"latent_dim must be at least 1, got {latent_dim}.")
        if num_rows is not None and num_rows < 1:
            raise ValueError(f"num_rows must be at least 1, got {num_rows}.")
        self.input_dim = input_dim
        self.output_dim = input_dim + latent_dim
        self.num_latent_gps = latent_dim
        self.dtype = tf.as_dtype(default_float())
        self.floats_per_row = self.output_dim
        self.label = self.name
        self.encoder = encoder
        # Free parameters of each row start near the prior's mean, not at it, where all rows would be alike.
        if num_rows is not None:
            start = 0.1 * np.random.default_rng(0).standard_normal((num_rows, latent_dim))
            self.q_mean = Parameter(start, dtype=default_float())
            self.q_std = Parameter(np.full(start.shape, 0.5), transform=positive(), dtype=default_float())

    def posterior(self, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Means a_n and standard deviations b_n of q(w_n), [B, Q] each, for rows X [B, D] and Y [B, P] of the data.

        :raises ValueError: if the encoder returns another number of columns; with free parameters, if these are not all
            rows: where tracing does not know the number of rows, a tf.errors.InvalidArgumentError.
        """
        if self.encoder is None:
            return self._of_all_rows(X)
        mean, std = self.encoder(tf.concat([X, tf.cast(Y, X.dtype)], axis=-1))
        if mean.shape[-1] not in (None, self.num_latent_gps):
            raise ValueError(
                f"{self.label}: the encoder must return the {self.num_latent_gps} columns of latent_dim, got "
                f"{mean.shape[-1]}."
            )
        return mean, std

    def extend(self, Z: np.ndarray, *, seed: int = 0) -> np.ndarray:
        """Inducing inputs [M, D] with draws from the prior of w beside them: [M, D + Q]."""
        w = np.random.default_rng(seed).standard_normal((len(Z), self.num_latent_gps))
        return np.concatenate([Z, w], axis=1)

    # The members of `Layer`: w from its prior.

    factors = cache = no_factors
    prior_kl = no_kl  # the divergences of the rows are in the likelihood's part of the bound

    def latent_moments(self, X: tf.Tensor, factors: object = (), *, full_cov: bool = False) -> LayerMoments:
        """Means [..., N, D + Q] and variances of inputs (0) and latent variables (1), which are independent."""
        w = tf.zeros_like(X[..., :1]) + tf.zeros([self.num_latent_gps], X.dtype)
        mean = tf.concat([X, w], axis=-1)
        var = tf.concat([tf.zeros_like(X), tf.ones_like(w)], axis=-1)
        return LayerMoments(mean, tf.linalg.diag(tf.linalg.matrix_transpose(var)) if full_cov else var)

    def sample(self, X: tf.Tensor, moments: LayerMoments, noise: tf.Tensor, *, full_cov: bool = False) -> tf.Tensor:
        """[X, w], [S, N, D + Q]: the noise [S, N or 1, Q] is w."""
        return _extended(X, noise)

    def sample_functions(
        self, num_functions: int, seed: tf.Tensor, *, num_features: int, noise: FunctionNoise
    ) -> LayerFunctions:
        """Inputs with w of its prior: one w for each function, or with `noise="white"` one for each input."""
        return functools.partial(_with_draws, num_functions, self.num_latent_gps, seed, noise)

    # Private.

    def _of_all_rows(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Free parameters, if X [B, D] may be the training rows."""
        N = self.q_mean.shape[0]
        B = X.shape[0]
        requirement = f"{self.label}: with free q(w_n) a batch must have all {N} training rows"
        if B not in (None, N):
            raise ValueError(f"{requirement}, got {B}; use an encoder for minibatches.")
        if B == N:
            return tf.identity(self.q_mean), tf.identity(self.q_std)
        # While tracing, the number of rows is unknown: the graph checks it when it runs.
        rows = tf.shape(X)[0]
        check = tf.debugging.assert_equal(rows, N, f"{requirement}; use an encoder for minibatches.")
        with tf.control_dependencies([] if check is None else [check]):  # slices, that no shape fails before
            mean, std = (tf.slice(part, [0, 0], tf.stack([rows, -1])) for part in (self.q_mean, self.q_std))
            return mean, std


def _extended(X: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    """[X, w], [S, N, D + Q], of X [N, D] or [S, N, D] and w [S, N or 1, Q]."""
    lead = tf.broadcast_dynamic_shape(tf.shape(X)[:-1], tf.shape(w)[:-1])
    X, w = (tf.broadcast_to(part, tf.concat([lead, tf.shape(part)[-1:]], axis=0)) for part in (X, w))
    return tf.concat([X, w], axis=-1)


def _with_draws(
    num_functions: int, latent_dim: int, seed: tf.Tensor, noise: FunctionNoise, X: tf.Tensor, keys: tf.Tensor
) -> tf.Tensor:
    if noise == "white":
        return _extended(X, normal_at(keys, num_functions, latent_dim, seed, X.dtype))
    return _extended(X, tf.random.stateless_normal([num_functions, 1, latent_dim], seed, dtype=X.dtype))
