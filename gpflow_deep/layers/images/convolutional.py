"""A convolutional GP layer: the same C Gaussian processes at all patches of an image (van der Wilk et al. 2017;
Blomqvist et al. 2019). Its outputs are an image with C channels.

    f_kc(x) = g_c(x[k]),   g_c ~ GP(0, k),   x[k] the k-th patch of x

    patches = Patches((28, 28, 1), (5, 5), stride=2)
    Z = inducing_inputs(np.reshape(patches(X[:100]), [-1, 25]), 50)
    layer = ConvolutionalLayer(SquaredExponential(), Z, patches, num_channels=4)

The mean of a channel over all patches is the GP of GPflow's `Convolutional` kernel and `InducingPatches`. Outputs at
different patches of an image are correlated, and so they are drawn: by a Cholesky factor [K, K] for each image, draw
and channel. A larger stride makes K smaller.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import Module
from gpflow.kernels import Kernel

from ...functions.pathwise import LayerFunctions
from ...functions.white_noise import sub_keys
from ..moments import LayerMoments
from ..svgp import AnyFactors, CachedFactors, CachedForms, LayerFactors, SVGPLayer

__all__ = ["ConvolutionalLayer", "Patches", "at_patches"]


@dataclass(frozen=True)
class Patches:
    """Which patches of an image there are.

    :param image_shape: height, width and channels of an image; its row has them in this order, the channels of the
        first pixel first.
    :param patch_shape: height and width of a patch.
    :param stride: distance of neighbouring patches, in pixels.
    :param place_scale: appends the place of a patch to it: row and column of its first pixel, times this; 0 for not.
    :raises ValueError: if the sizes are not positive, or a patch is larger than an image.
    """

    image_shape: tuple[int, int, int]
    patch_shape: tuple[int, int]
    stride: int = 1
    place_scale: float = 0.0

    def __post_init__(self) -> None:
        if len(self.image_shape) != 3 or len(self.patch_shape) != 2:
            raise ValueError(
                "images must have height, width and channels, and patches height and width, got images "
                f"{self.image_shape} and patches {self.patch_shape}; gray images have 1 channel."
            )
        if min(*self.image_shape, *self.patch_shape, self.stride) < 1:
            raise ValueError(
                f"sizes of images and patches and the stride must be at least 1, got images {self.image_shape}, "
                f"patches {self.patch_shape} and stride {self.stride}."
            )
        if any(patch > size for patch, size in zip(self.patch_shape, self.image_shape[:2], strict=True)):
            raise ValueError(
                f"patches must fit into the images, got patches of {self.patch_shape} pixels in images of "
                f"{self.image_shape[:2]}; take smaller patches."
            )

    @property
    def num_pixels(self) -> int:
        """Number of columns of the images' rows: D."""
        return math.prod(self.image_shape)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        sizes = zip(self.image_shape[:2], self.patch_shape, strict=True)
        rows, columns = (1 + (size - patch) // self.stride for size, patch in sizes)
        return rows, columns

    @property
    def num_patches(self) -> int:
        """K."""
        return math.prod(self.grid)

    @property
    def num_pixels_of_patch(self) -> int:
        """h w channels."""
        return math.prod(self.patch_shape) * self.image_shape[2]

    @property
    def patch_dim(self) -> int:
        """Numbers of a patch, A: its pixels, and its place if that is appended."""
        return self.num_pixels_of_patch + (2 if self.place_scale else 0)

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """Rows of images [..., D] -> [..., K, A], the patches row by row."""
        # All patches of all images, [images, rows, columns, pixels of a patch].
        images = tf.reshape(X, [-1, *self.image_shape])
        size = [1, *self.patch_shape, 1]
        patches = tf.image.extract_patches(images, size, [1, self.stride, self.stride, 1], [1, 1, 1, 1], "VALID")
        if self.place_scale:
            # Row and column of each patch, as two more numbers of it.
            places = self.place_scale * np.indices(self.grid) * self.stride  # [2, rows, columns]
            places = tf.constant(places, patches.dtype)
            places = tf.broadcast_to(tf.transpose(places, [1, 2, 0]), tf.concat([tf.shape(patches)[:3], [2]], axis=0))
            patches = tf.concat([patches, places], axis=-1)
        return tf.reshape(patches, tf.concat([tf.shape(X)[:-1], [self.num_patches, self.patch_dim]], axis=0))


class ConvolutionalLayer(Module):
    """C GPs at the K patches of an image: P = K C outputs, the channels of the first patch first.

    :param kernel: of patches.
    :param Z: inducing patches [M, h w channels].
    :param patches: of the images that are the layer's inputs.
    :param num_channels: how many channels, C.
    :param options: of the `SVGPLayer` on patches, such as `q_sqrt_scale` or a `mean_function` of patches.
    """

    label = property(lambda self: self.gp.label, lambda self, label: setattr(self.gp, "label", label))

    def __init__(self, kernel: Kernel, Z: np.ndarray, patches: Patches, num_channels: int, **options: Any) -> None:
        super().__init__()
        self.gp = SVGPLayer(kernel, Z, num_latent_gps=num_channels, **options)
        self.patches = patches
        self.dtype = self.gp.dtype
        self.input_dim = patches.num_pixels
        self.num_patches = patches.num_patches
        self.num_latent_gps = self.num_patches * num_channels
        self.output_dim = self.num_patches * self.gp.output_dim
        self.floats_per_row = self.num_patches * (self.gp.floats_per_row + 4 * self.output_dim)

    def factors(self) -> LayerFactors:
        """Those of the GPs."""
        return self.gp.factors()

    def cache(self, *, dtype: tf.DType | None = None) -> CachedFactors | CachedForms:
        """That of the GPs."""
        return self.gp.cache(dtype=dtype)

    def prior_kl(self, factors: LayerFactors) -> tf.Tensor:
        """KL[q(u) || p(u)] of the GPs, nats."""
        return self.gp.prior_kl(factors)

    def latent_moments(self, X: tf.Tensor, factors: AnyFactors, *, full_cov: bool = False) -> LayerMoments:
        """Joint over the patches of an image: [..., N, K, C] and [..., N, C, K, K]; with `full_cov` over all N K."""
        return self.gp.latent_moments(self._points(X, full_cov), factors, full_cov=True)

    def outputs(
        self, X: tf.Tensor, moments: LayerMoments, *, full_cov: bool = False, full_output_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and covariance in the shapes of `Layer.outputs`."""
        K = self.num_patches
        P = self.output_dim
        points = self._points(X, full_cov)
        mean, cov = self.gp.outputs(points, moments, full_cov=True, full_output_cov=full_output_cov)
        lead = tf.shape(X)[:-2]
        N = tf.shape(X)[-2:-1]
        # Without covariances between outputs, those of each patch with itself are left.
        if full_cov and not full_output_cov:  # from [..., C, N K, N K]
            cov = tf.reshape(cov, tf.concat([lead, [P // K], N, [K], N, [K]], axis=0))
            cov = tf.einsum("...cnkmk->...kcnm", cov)
        elif not full_output_cov:  # from [..., N, C, K, K]
            cov = tf.linalg.matrix_transpose(tf.maximum(tf.linalg.diag_part(cov), 0.0))
        ends = {(0, 0): [N, [P]], (1, 0): [[P], N, N], (0, 1): [N, [P, P]], (1, 1): [N, [P], N, [P]]}
        cov = tf.reshape(cov, tf.concat([lead, *ends[full_cov, full_output_cov]], axis=0))
        return tf.reshape(mean, tf.concat([lead, N, [P]], axis=0)), cov

    def sample(self, X: tf.Tensor, moments: LayerMoments, noise: tf.Tensor, *, full_cov: bool = False) -> tf.Tensor:
        """Draws [S, N, P], Eq. (15)."""
        # Noise of each patch; with `full_cov` of the patches of all images together.
        eps = tf.reshape(noise, tf.concat([tf.shape(noise)[:2], [self.num_patches, -1]], axis=0))  # [S, N or 1, K, L]
        eps = tf.reshape(eps, tf.stack([tf.shape(eps)[0], -1, self.gp.num_latent_gps])) if full_cov else eps
        F = self.gp.sample(self._points(X, full_cov), moments, eps, full_cov=True)
        return tf.reshape(F, tf.concat([tf.shape(F)[:1], tf.shape(X)[-2:-1], [self.output_dim]], axis=0))

    def sample_functions(self, num_functions: int, seed: tf.Tensor, **options: Any) -> LayerFunctions:
        """Draws of the GPs as functions of a patch, at all patches."""
        function = self.gp.sample_functions(num_functions, seed, **options)
        return functools.partial(at_patches, function, self.patches, [num_functions, self.output_dim])

    def _points(self, X: tf.Tensor, full_cov: bool) -> tf.Tensor:
        """Patches [..., N, K, h w channels], or with `full_cov` [..., N K, h w channels]."""
        patches = self.patches(X)
        return _joined(patches, X) if full_cov else patches


def _joined(patches: tf.Tensor, X: tf.Tensor) -> tf.Tensor:
    """Patches [..., N, K, A] of images X [..., N, D] in one axis: [..., N K, A]."""
    return tf.reshape(patches, tf.concat([tf.shape(X)[:-2], [-1, patches.shape[-1]]], axis=0))


def at_patches(
    function: LayerFunctions, patches: Patches, sizes: list[int], X: tf.Tensor, keys: tf.Tensor
) -> tf.Tensor:
    """Functions of patches at all patches of the images [..., N, D]: `sizes` [S, P] -> [S, N, P]."""
    # A key for each patch, made of that of its image.
    patch_keys = tf.reshape(sub_keys(keys, patches.num_patches), tf.concat([tf.shape(keys)[:-1], [-1]], axis=0))
    F = function(_joined(patches(X), X), patch_keys)
    return tf.reshape(F, tf.stack([sizes[0], tf.shape(X)[-2], sizes[1]]))
