"""Draws of the functions of a sparse variational GP by Matheron's rule (Wilson et al. 2020, 2021).

With a draw g of the prior as a function and a draw v ~ q(v) of the whitened inducing outputs, u = L v, L L' = Kuu,

    f(x) = g(x) + k(x, Z) L^-T (v - L^-1 (g(Z) + e)),   e ~ N(0, jitter + noise variance)

has the mean and the covariance of Eqs. (7) and (8), between any inputs, and costs the same for each of them. g is made
of random Fourier features, see `spectral`. The latent functions are mixed, and mean function and propagated inputs
added, as in `SVGPLayer`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import Kernel
from gpflow.utilities import deepcopy

from ..layers.chunking import map_slices
from ..layers.moments import cross_covariance, flat_points, outputs_of
from .spectral import PriorFunctions, draw_prior
from .white_noise import normal_at

if TYPE_CHECKING:
    from ..layers.global_inducing import GlobalInducingLayer
    from ..layers.svgp import SVGPLayer

__all__ = [
    "FunctionNoise",
    "GPFunctions",
    "LayerFunctions",
    "SeparateGPFunctions",
    "copied",
    "draw_gps",
    "draw_part",
    "draw_separate",
]

#: How functions have the noise between layers, and that of White kernels, at their inputs.
#: `"shared"`: of each function one number for all inputs, so that functions are smooth and their marginals right.
#: `"white"`: another number at every input, a pure function of the input's bits; derivatives know nothing of it.
FunctionNoise = Literal["shared", "white"]

#: A layer's functions: inputs [N, D], or [S, N, D] of each function, and integers [N] or [S, N] that tell the rows of
#: the model's inputs apart -> outputs [S, N, P], or [N, P] where the layer is deterministic and its inputs are [N, D].
LayerFunctions = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]

#: What a slice of the inducing inputs may hold while functions are drawn, in numbers.
_SLICE_NUMBERS = 6 * 2**20

Function = TypeVar("Function")


class GPFunctions(tf.Module):
    """S draws of L functions of GPs with one kernel and one set of inducing inputs.

    :param prior: g.
    :param kernel: k.
    :param inducing: inducing inputs, Z.
    :param coefficients: L^-T (v - L^-1 (g(Z) + e)), [S, M, L].
    """

    def __init__(
        self, prior: PriorFunctions, kernel: Kernel, inducing: InducingVariables, coefficients: tf.Tensor
    ) -> None:
        super().__init__()
        self.prior = prior
        self.kernel = kernel
        self.inducing = inducing
        self.coefficients = coefficients

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """[N, D] or [S, N, D] -> [S, N, L], without noise."""
        K = tf.transpose(cross_covariance(self.inducing, self.kernel, flat_points(X), X.dtype))  # [rows, M]
        K = tf.reshape(K, tf.concat([tf.shape(X)[:-1], tf.shape(K)[1:]], axis=0))
        return self.prior(X) + tf.matmul(K, self.coefficients)


class SeparateGPFunctions(tf.Module):
    """The same where each function has inducing inputs of its own, Z [S, M, D]."""

    def __init__(self, prior: PriorFunctions, kernel: Kernel, Z: tf.Tensor, coefficients: tf.Tensor) -> None:
        super().__init__()
        self.prior = prior
        self.kernel = kernel
        self.Z = Z
        self.coefficients = coefficients

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """[N, D] or [S, N, D] -> [S, N, L], without noise."""
        inputs = X if X.shape.rank == 3 else tf.broadcast_to(X, tf.concat([tf.shape(self.Z)[:1], tf.shape(X)], axis=0))
        return self.prior(X) + tf.matmul(_covariances(self.kernel, inputs, self.Z), self.coefficients)


class _NoisyGPs(tf.Module):
    """The latent functions of a layer, [S, N, L], with noise.

    :param parts: `GPFunctions` of all L latent functions, or of each.
    :param noise_variances: [L].
    """

    def __init__(
        self,
        parts: Sequence[GPFunctions | SeparateGPFunctions],
        noise_variances: tf.Tensor,
        noise: FunctionNoise,
        seed: tf.Tensor,
    ) -> None:
        super().__init__()
        self.parts = tuple(parts)
        self.noise_std = tf.sqrt(noise_variances)
        self.noise = noise
        self.seed = seed
        self.num_functions = int(parts[0].coefficients.shape[0])

    def __call__(self, X: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        latent = tf.concat([part(X) for part in self.parts], axis=-1)
        S = self.num_functions
        L = self.noise_std.shape[0]
        if self.noise == "white":
            return latent + self.noise_std * normal_at(keys, S, L, self.seed, X.dtype)
        return latent + self.noise_std * tf.random.stateless_normal([S, 1, L], self.seed, dtype=X.dtype)


class _Mixed(tf.Module):
    """The outputs of a layer [S, N, P] from its latent functions."""

    def __init__(
        self, latent: _NoisyGPs, W: tf.Tensor | None, mean_function: MeanFunction, input_propagation: int
    ) -> None:
        super().__init__()
        self.latent = latent
        self.W = W
        self.mean_function = mean_function
        self.input_propagation = input_propagation

    def __call__(self, X: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        return outputs_of(self.latent(X, keys), X, self.W, self.mean_function, self.input_propagation)


def draw_gps(
    layer: SVGPLayer,
    pairs: Sequence[tuple[InducingVariables, Kernel]],
    W: tf.Tensor | None,
    num_functions: int,
    seed: tf.Tensor,
    *,
    num_features: int,
    noise: FunctionNoise,
    values: tf.Tensor | None = None,
) -> LayerFunctions:
    """Functions of an `SVGPLayer`, as it is now: later changes of its parameters do not change them.

    :param pairs: inducing inputs and kernel, one pair for all latent GPs or one for each.
    :param W: mixing, [P, L].
    :param values: whitened inducing outputs [S, M, L]; draws from q if None.
    :raises ValueError: naming the layer and what functions cannot be drawn of.
    """
    factors = layer.factors()
    shared = len(pairs) == 1
    layer_noise = 0.0 if layer.noise_variance is None else tf.convert_to_tensor(layer.noise_variance)
    # v, which the functions go through.
    if values is None:
        values = _draw_inducing(factors.q_mu, factors.q_sqrt, num_functions, tf.random.fold_in(seed, 0))  # [S, M, L]
    # Matheron's rule for each pair: a draw of the prior, and its update towards the values.
    parts = []
    variances = []
    for i, (inducing, kernel) in enumerate(pairs):
        part_values = values if shared else values[..., i : i + 1]
        Luu = factors.Luu if shared else factors.Luu[i]
        part = draw_part(layer.label, inducing, kernel, part_values, Luu, tf.random.fold_in(seed, i + 1), num_features)
        parts.append(part)
        variances.append(tf.fill([part_values.shape[-1]], part.prior.noise_variance + layer_noise))
    latent = _NoisyGPs(parts, tf.concat(variances, axis=0), noise, tf.random.fold_in(seed, len(pairs) + 1))
    return _Mixed(latent, W, copied(layer.mean_function), layer.input_propagation)


def draw_separate(
    layer: GlobalInducingLayer,
    Z: tf.Tensor,
    values: tf.Tensor,
    Luu: tf.Tensor,
    seed: tf.Tensor,
    *,
    num_features: int,
    noise: FunctionNoise,
) -> LayerFunctions:
    """Functions of a layer with one kernel, through known inducing outputs.

    :param Z: inducing inputs of each function, [S, M, D], or [1, M, D] of all.
    :param values: whitened, [S, M, L].
    :param Luu: Cholesky factors of k(Z, Z), [S or 1, M, M].
    """
    part_seed = tf.random.fold_in(seed, 0)
    kernel = layer.kernel
    part: GPFunctions | SeparateGPFunctions
    if Z.shape[0] == 1:
        part = draw_part(layer.label, InducingPoints(Z[0]), kernel, values, Luu[0], part_seed, num_features)
    else:
        prior, coefficients = _conditioned(layer.label, kernel, Z, values, Luu, part_seed, num_features)
        part = SeparateGPFunctions(prior, copied(kernel), Z, coefficients)
    variances = tf.fill([values.shape[-1]], part.prior.noise_variance)
    latent = _NoisyGPs([part], variances, noise, tf.random.fold_in(seed, 1))
    return _Mixed(latent, None, copied(layer.mean_function), 0)


def copied(function: Function) -> Function:
    """A copy of a module, with parameters of its own; functions stay what they are."""
    return deepcopy(function) if isinstance(function, tf.Module) else copy.deepcopy(function)


# Private.


def _covariances(kernel: Kernel, X: tf.Tensor, Z: tf.Tensor) -> tf.Tensor:
    """k(X_s, Z_s), [S, N, M], of X [S, N, D] and Z [S, M, D].

    GPflow's kernels compare all rows of one array with all of another, or those of each part of one array with one
    another: here M rows of X_s and Z_s are a part. That is 4 numbers for each that is used, and a single call.
    """
    (S, M, D) = Z.shape
    N = tf.shape(X)[1]
    count = -(-N // M)
    rows = tf.pad(X, [[0, 0], [0, count * M - N], [0, 0]])
    parts = tf.concat([tf.reshape(rows, [-1, M, D]), tf.repeat(Z, count, axis=0)], axis=1)  # [S count, 2 M, D]
    return tf.reshape(kernel(parts)[:, :M, M:], [S, -1, M])[:, :N]


def _draw_inducing(q_mu: tf.Tensor, q_sqrt: tf.Tensor, num_functions: int, seed: tf.Tensor) -> tf.Tensor:
    """v ~ q(v), [S, M, L]."""
    eps = tf.random.stateless_normal([num_functions, *q_mu.shape], seed, dtype=q_mu.dtype)
    if q_sqrt.shape.rank == 2:
        return q_mu + q_sqrt * eps
    return q_mu + tf.einsum("lmk,skl->sml", q_sqrt, eps)


def draw_part(
    label: str,
    inducing: InducingVariables,
    kernel: Kernel,
    values: tf.Tensor,
    Luu: tf.Tensor,
    seed: tf.Tensor,
    num_features: int,
) -> GPFunctions:
    """Matheron's rule for one kernel and one set of inducing inputs: values v [S, M, L], Luu [M, M]."""
    if type(inducing) is not InducingPoints:
        raise ValueError(
            f"{label}: functions can be drawn with InducingPoints, got {type(inducing).__name__}; for patches of "
            "images use a ConvolutionalLayer."
        )
    Z = tf.convert_to_tensor(inducing.Z)
    prior, coefficients = _conditioned(label, kernel, Z, values, Luu, seed, num_features)
    return GPFunctions(prior, copied(kernel), copied(inducing), coefficients)


def _conditioned(
    label: str, kernel: Kernel, Z: tf.Tensor, values: tf.Tensor, Luu: tf.Tensor, seed: tf.Tensor, num_features: int
) -> tuple[PriorFunctions, tf.Tensor]:
    """g, and the coefficients [S, M, L] of its update, for Z [M, D] and Luu [M, M], or of each function."""
    S, M, L = values.shape
    try:
        prior = draw_prior(kernel, int(Z.shape[-1]), S, L, num_features, tf.random.fold_in(seed, 0))
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from None
    # g(Z), in slices of bounded memory.
    size = max(1, _SLICE_NUMBERS // (S * num_features * max(1, len(prior.frequencies))))
    (at_Z,) = map_slices(lambda start, stop: [prior(Z[..., start:stop, :])], M, size, [Z.dtype], axis=1)  # [S, M, L]
    # A draw of u from the prior: g(Z), and the jitter and noise that L L' has beside k(Z, Z).
    smooth = kernel(Z, full_cov=False) - prior.noise_variance
    added = tf.maximum(tf.reduce_sum(tf.square(Luu), axis=-1) - smooth, 0.0)
    eps = tf.random.stateless_normal([S, M, L], tf.random.fold_in(seed, 1), dtype=Z.dtype)
    residual = at_Z + tf.sqrt(added)[..., None] * eps
    # f(x) = g(x) + k(x, Z) L^-T (v - L^-1 u).
    if Luu.shape.rank == 3:
        whitened = values - tf.linalg.triangular_solve(Luu, residual)
        return prior, tf.linalg.triangular_solve(Luu, whitened, adjoint=True)
    residual, values = (tf.reshape(tf.transpose(part, [1, 0, 2]), [M, S * L]) for part in (residual, values))
    whitened = values - tf.linalg.triangular_solve(Luu, residual)
    coefficients = tf.linalg.triangular_solve(Luu, whitened, adjoint=True)
    return prior, tf.transpose(tf.reshape(coefficients, [M, S, L]), [1, 0, 2])
