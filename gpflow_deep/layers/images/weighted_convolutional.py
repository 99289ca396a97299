"""A convolutional GP with a few outputs for each image: weighted means of the responses of its patches (van der Wilk et
al. 2017; Dutordoir et al. 2020).

    f_p(x) = 1/K sum_k w_k g_p(x[k]),   g_p ~ GP(0, k),   x[k] the k-th of K patches of x

    patches = Patches((28, 28, 1), (5, 5), place_scale=1.0)
    layer = WeightedConvolutionalLayer(SquaredExponential(lengthscales=[5.0] * 27), Z, patches, 10)

The inducing outputs are values of g at the inducing patches Z. With `place_scale` a patch knows its place, so that g
may differ between places as far as the lengthscales of the last two columns allow: the translation-insensitive kernel
of Dutordoir et al. (2020) with a squared exponential of places. The weights w_k, one for each place, are learnt. With
weights of 1 and no places this is the GP of GPflow's `Convolutional` kernel with `InducingPatches`. Patches are
extracted once for each batch.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import Module, Parameter
from gpflow.config import default_float
from gpflow.kernels import Kernel

from ...functions.pathwise import LayerFunctions
from ..moments import LatentOutputs, LayerMoments
from ..svgp import LayerFactors, Precision, SVGPLayer
from .convolutional import Patches, at_patches
from .patch_sums import sum_covariances, sum_variances

__all__ = ["WeightedConvolutionalLayer"]


class WeightedConvolutionalLayer(LatentOutputs, Module):
    """P outputs for each image, in most models those of the last layer.

    :param kernel: of patches.
    :param Z: inducing patches [M, A], with their places if `patches` appends them.
    :param patches: of the images that are the layer's inputs.
    :param num_latent_gps: how many latent GPs, P.
    :param weights: w at the start, [K]; 1 if None.
    :param precision: "full" computes in the model's float type. Otherwise what has an axis of patches, and the
        products with the covariances of q(u), are computed in float32; see `patch_sums`.
    :param options: of the `SVGPLayer` on patches, such as `q_sqrt_scale`.
    :raises ValueError: if shapes do not fit one another.
    """

    weights: Parameter
    """w, [K]."""

    label = property(lambda self: self.gp.label, lambda self, label: setattr(self.gp, "label", label))

    def __init__(
        self,
        kernel: Kernel,
        Z: np.ndarray,
        patches: Patches,
        num_latent_gps: int,
        *,
        weights: np.ndarray | None = None,
        precision: Precision = "mixed",
        **options: Any,
    ) -> None:
        super().__init__()
        # Inducing patches, and a weight w_k for each place of a patch.
        K = patches.num_patches
        if np.shape(Z)[1:] != (patches.patch_dim,):
            raise ValueError(f"Z must be patches [M, {patches.patch_dim}], got shape {list(np.shape(Z))}.")
        weights = np.ones(K) if weights is None else np.asarray(weights)
        if weights.shape != (K,):
            raise ValueError(f"weights must be one for each of the {K} patches, got shape {list(weights.shape)}.")
        self.gp = SVGPLayer(kernel, Z, num_latent_gps=num_latent_gps, **options)
        self.patches = patches
        if self.gp.noise_variance is not None or self.gp.q_diag:
            raise ValueError("a WeightedConvolutionalLayer can have neither noise_variance nor q_diag; leave them out.")
        self.weights = Parameter(weights, dtype=default_float())
        self.precision = precision
        self.dtype = self.gp.dtype
        self.input_dim = patches.num_pixels
        self.num_latent_gps = self.output_dim = num_latent_gps
        # Covariances of all patches of an image, with each other and with Z.
        self.floats_per_row = K * max(len(Z), K)

    def factors(self) -> LayerFactors:
        """Those of the GPs of patches."""
        return self.gp.factors()

    def cache(self, *, dtype: tf.DType | None = None) -> LayerFactors:
        """`factors`: most of the time goes into the covariances with the patches."""
        return self.gp.factors()

    def prior_kl(self, factors: LayerFactors) -> tf.Tensor:
        """KL[q(u) || p(u)] of the GPs, nats."""
        return self.gp.prior_kl(factors)

    def latent_moments(self, X: tf.Tensor, factors: LayerFactors, *, full_cov: bool = False) -> LayerMoments:
        """Mean [..., N, P], and variances [..., N, P] or with `full_cov` covariances [..., P, N, N]."""
        X = tf.convert_to_tensor(X)
        # The patches of all images.
        patches = self.patches(X)  # [..., N, K, A]
        low = self.dtype if self.precision == "full" else tf.float32
        K, A = patches.shape[-2:]
        flat = tf.reshape(patches, [-1 if None in X.shape[:-1] else int(np.prod(X.shape[:-1])), K, A])
        kernel = self.gp.kernel
        # cov(u, f(x)) = 1/K sum_k w_k k(Z, x[k]); A = L^-1 of it, and A' q_sqrt.
        w = self.weights / K
        Kuf = sum_covariances(kernel, tf.convert_to_tensor(self.gp.inducing_variable.Z), flat, w, low)  # [M, R]
        projected = tf.linalg.triangular_solve(factors.Luu, Kuf)
        spread = tf.matmul(tf.cast(factors.q_sqrt, low), tf.cast(projected, low), transpose_a=True)  # [P, M, R]
        # Eq. (7).
        lead = tf.shape(X)[:-1]
        mean = tf.reshape(tf.matmul(projected, factors.q_mu, transpose_a=True), tf.concat([lead, [-1]], axis=0))
        mean.set_shape(X.shape[:-1].concatenate([self.num_latent_gps]))
        if full_cov:
            return LayerMoments(mean, self._joint(patches, w, projected, spread, low))
        # Eq. (8): var f(x) - A'A + A' S A.
        prior = sum_variances(kernel, flat, w, low) - tf.reduce_sum(tf.square(projected), axis=0)  # [R]
        added = tf.cast(tf.reduce_sum(tf.square(spread), axis=1), self.dtype)  # [P, R]
        return LayerMoments(mean, tf.reshape(tf.transpose(tf.maximum(prior + added, 0.0)), tf.shape(mean)))

    def sample_functions(self, num_functions: int, seed: tf.Tensor, **options: Any) -> LayerFunctions:
        """Draws of the GPs as functions of a patch, and their weighted means over the patches."""
        sizes = [num_functions, self.patches.num_patches * self.num_latent_gps]
        function = functools.partial(
            at_patches, self.gp.sample_functions(num_functions, seed, **options), self.patches, sizes
        )
        return functools.partial(_weighted_mean, function, tf.convert_to_tensor(self.weights))

    def _joint(
        self, patches: tf.Tensor, w: tf.Tensor, projected: tf.Tensor, spread: tf.Tensor, low: tf.DType
    ) -> tf.Tensor:
        """Covariances [..., P, N, N] between the images of a draw, from their patches [..., N, K, A]."""
        lead = tf.shape(patches)[:-2]
        K, A = patches.shape[-2:]
        N = lead[-1]
        M = projected.shape[0]
        P = self.num_latent_gps

        def prior(images: tf.Tensor) -> tf.Tensor:  # [N, K, A] -> [N, N]
            rows = sum_covariances(self.gp.kernel, tf.reshape(images, [-1, A]), images, w, low)  # [N K, N]
            return tf.einsum("nkm,k->nm", tf.reshape(rows, [-1, K, tf.shape(images)[0]]), w)

        # The prior covariance of each draw's images.
        Kff = tf.map_fn(prior, tf.reshape(patches, tf.stack([-1, N, K, A])))  # [S, N, N]
        # The same between images: their prior covariance, less what u explains, and what q adds.
        a = tf.transpose(tf.reshape(projected, tf.stack([M, -1, N])), [1, 0, 2])  # [S, M, N]
        b = tf.transpose(tf.reshape(tf.cast(spread, self.dtype), tf.stack([P, M, -1, N])), [2, 0, 1, 3])  # [S, P, M, N]
        explained = tf.matmul(a, a, transpose_a=True)
        cov = (Kff - explained)[:, None] + tf.matmul(b, b, transpose_a=True)
        return tf.reshape(cov, tf.concat([lead[:-1], [P, N, N]], axis=0))


def _weighted_mean(function: LayerFunctions, weights: tf.Tensor, X: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """1/K sum_k w_k of the outputs [S, N, K P] of a function at all patches: [S, N, P]."""
    K = weights.shape[0]
    values = function(X, keys)
    values = tf.reshape(values, tf.concat([tf.shape(values)[:-1], [K, -1]], axis=0))
    return tf.einsum("snkp,k->snp", values, weights / K)
