"""Deep GPs of images: convolutional layers, and a weighted convolutional last layer that knows where a patch is.

    model = gpflow_deep.convolutional(X, Y, (28, 28, 1), num_inducing=500, likelihood=Softmax(10))

One layer is the GP of van der Wilk et al. (2017) with the translation-insensitive kernel of Dutordoir et al. (2020):
means over all patches with learnt weights. More layers begin with images of C channels, GPs of patches whose mean
function keeps the C principal components of a patch (Blomqvist et al. 2019). Inducing patches are distinct patches of
the training images, drawn at random. Pixels need no standardisation: lengthscales start at what the patches tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.config import default_float
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Gaussian, Likelihood

from ..layers import ConvolutionalLayer, Patches, Precision, WeightedConvolutionalLayer
from ..layers.images.patch_sums import sum_covariances
from ..model.deep_gp import DeepGP
from ..model.initialization import linear_mean
from .presets import check_targets, finite_matrix, num_outputs

__all__ = ["ImageConfig", "PatchConfig", "convolutional", "shape_of_images"]

MAX_IMAGES = 500
MAX_PATCHES = 20_000
"""Images and patches that starting values are taken from; of patches 20 for each inducing one if that is more."""

PRIOR_VARIANCE = 4.0
"""Of outputs of the last layer between images at the start, without what all images have in common: of the size of log
odds."""

Q_SCALE = 0.1
"""Standard deviation of q(v) in the last layer at the start, of the prior's."""

PLACE_LENGTHSCALE = 0.2
"""Of the places of patches at the start, relative to the size of the image."""


@dataclass(frozen=True)
class ImageConfig:
    """What the convolutional kernel of a `ModelConfig` is told about the images that rows are.

    :param image_shape: height and width, and channels if there are several, of the images that are the rows; those of
        known data sets if not given.
    :param patch: height and width of a patch, of a convolutional kernel.
    :param stride: distance of neighbouring patches; 2 in inner layers and 1 in the last one if not given.
    :param channels: of the images between convolutional layers.
    :param places: whether the response to a patch may depend on its place.
    """

    image_shape: tuple[int, ...] = ()
    patch: int = 5
    stride: int | None = None
    channels: int = 4
    places: bool = True

    def __post_init__(self) -> None:
        _check_sizes(self)


@dataclass(frozen=True)
class PatchConfig:
    """How images are cut into patches, and what becomes of them.

    :param patch: height and width of a patch, in every layer.
    :param stride: distance of neighbouring patches; 2 in inner layers and 1 in the last one if not given.
    :param channels: of the images between layers.
    :param places: whether the response to a patch may depend on its place in the image.
    :param lengthscale: of all kernels at the start, in units of pixels' values; that of the patches if not given.
    :param kernel_variance: of all kernels at the start.
    :param ard: one lengthscale for each pixel of a patch, and for the two coordinates of its place.
    """

    patch: int = 5
    stride: int | None = None
    channels: int = 4
    places: bool = True
    lengthscale: float | None = None
    kernel_variance: float = 1.0
    ard: bool = True

    def __post_init__(self) -> None:
        _check_sizes(self)

    def kernel(self, patches: Patches, lengthscale: float) -> SquaredExponential:
        """Of patches, at the start."""
        scales: np.ndarray | float = (
            np.full(patches.patch_dim, lengthscale, default_float()) if self.ard else lengthscale
        )
        return SquaredExponential(variance=self.kernel_variance, lengthscales=scales)


def _check_sizes(config: ImageConfig | PatchConfig) -> None:
    sizes = {"patch": config.patch, "stride": config.stride, "channels": config.channels}
    for name, value in sizes.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")


def shape_of_images(num_columns: int, image_shape: Sequence[int]) -> tuple[int, int, int]:
    """Height, width and channels of the images that rows of so many columns are.

    :param image_shape: height, width and, unless it is 1, channels.
    :raises ValueError: if rows cannot be such images.
    """
    shape = tuple(int(size) for size in image_shape)
    shape = (*shape, 1) if len(shape) == 2 else shape
    if len(shape) != 3 or min(shape) < 1 or math.prod(shape) != num_columns:
        got = " x ".join(map(str, image_shape)) if image_shape else "no image_shape"
        raise ValueError(
            f"kernel=convolutional needs rows that are images, with height x width x channels = {num_columns} columns, "
            f"got {got}; give image_shape=HEIGHT,WIDTH,CHANNELS, or leave kernel out for a table."
        )
    return shape[0], shape[1], shape[2]


def convolutional(
    X: np.ndarray,
    Y: np.ndarray,
    image_shape: Sequence[int],
    num_layers: int = 1,
    *,
    config: PatchConfig = PatchConfig(),
    num_inducing: int = 100,
    likelihood: Likelihood | None = None,
    num_samples: int = 1,
    num_data: int | None = None,
    precision: Precision = "mixed",
    seed: int = 0,
) -> DeepGP:
    """A convolutional (deep) GP before the first step of training.

    :param X: training images [N, D], or a sample of them (then give `num_data`), in any units that all pixels share:
        rows of an image one after the other, the channels of a pixel together.
    :param Y: training targets [N, Q]; for classification labels 0, 1, ... in one column.
    :param image_shape: height, width and, unless it is 1, channels.
    :param num_layers: 1 for the last layer alone; each further one is a `ConvolutionalLayer` before it.
    :param config: patches, channels and kernels.
    :param num_inducing: M, inducing patches of every layer.
    :param likelihood: any GPflow likelihood; Gaussian of variance 0.1 if None.
    :param num_samples: S of the bound.
    :param num_data: size N of the training set; the rows of X if None.
    :param precision: "full" for the model's float type throughout; else the last layer's sums over patches and the
        products with the covariances of q(u) are in float32.
    :param seed: of the inducing patches.
    :raises ValueError: if the arrays do not fit, or patches do not fit into the images.
    """
    # Rows that are images, and labels of the likelihood.
    X = finite_matrix("X", X)
    Y = finite_matrix("Y", Y)
    if len(X) != len(Y):
        raise ValueError(f"X and Y must have equally many rows, got {len(X)} and {len(Y)}.")
    for name, count in {"num_layers": num_layers, "num_inducing": num_inducing}.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}.")
    shape = shape_of_images(X.shape[1], image_shape)
    likelihood = likelihood or Gaussian(variance=0.1)
    check_targets(likelihood, Y)
    # Each convolutional layer, from patches of what those below make of some images at the start.
    rng = np.random.default_rng(seed)
    layers = list[ConvolutionalLayer | WeightedConvolutionalLayer]()
    images = X[np.sort(rng.choice(len(X), min(MAX_IMAGES, len(X)), replace=False))]
    for number in range(1, num_layers):
        patches = Patches(shape, (config.patch, config.patch), config.stride or 2)
        drawn_patches = _Found.of(images, patches, num_inducing, rng)
        kernel = config.kernel(patches, config.lengthscale or drawn_patches.lengthscale)
        mean = linear_mean(drawn_patches.sample, config.channels)
        layers.append(
            ConvolutionalLayer(
                kernel,
                drawn_patches.distinct,
                patches,
                config.channels,
                mean_function=mean,
                q_sqrt_scale=1e-5,
                name=f"layer_{number}",
            )
        )
        # What the next layer sees at the start.
        images = np.asarray(mean(patches(images))).reshape(len(images), -1)
        shape = (*patches.grid, config.channels)
    # The last layer sums over the patches.
    P = num_outputs(likelihood, Y)
    layers.append(_last_layer(images, shape, num_inducing, P, config, rng, precision))
    return DeepGP(layers, likelihood, num_data=len(Y) if num_data is None else num_data, num_samples=num_samples)


class _Found(NamedTuple):
    """What the patches of some images tell.

    :ivar sample: patches drawn at random, [n, A].
    :ivar distinct: M of them that differ, [M, A].
    :ivar places: row and column of the first pixel of each, [M, 2].
    :ivar lengthscale: root of half the mean squared distance of distinct patches.
    """

    sample: np.ndarray
    distinct: np.ndarray
    places: np.ndarray
    lengthscale: float

    @classmethod
    def of(cls, images: np.ndarray, patches: Patches, M: int, rng: np.random.Generator) -> _Found:
        """Of images [n, D]; patches with equal pixels count once, such as those of a plain background."""
        # Some patches at random.
        everything = np.asarray(patches(images)).reshape(-1, patches.num_pixels_of_patch)
        count = min(len(everything), max(MAX_PATCHES, 20 * M))
        rows = rng.choice(len(everything), count, replace=False)
        sample = everything[rows]
        # Distinct patches, in random order.
        _, first = np.unique(sample, axis=0, return_index=True)
        first = rng.permutation(first)
        distinct = sample[first]
        spread = float(np.mean(np.var(sample[first], axis=0))) or 1.0
        if len(first) < M:
            # Fewer than M: copies of them, moved a little.
            first = np.concatenate([first, rng.choice(first, M - len(first))])
            jitter = 0.1 * np.sqrt(spread) * rng.standard_normal((M - len(distinct), distinct.shape[1]))
            distinct = np.concatenate([distinct, sample[first[len(distinct) :]] + jitter])
        # The number of a patch in its image says its row and column.
        places = np.stack(np.divmod(rows[first[:M]] % patches.num_patches, patches.grid[1]), axis=1) * patches.stride
        return cls(sample, distinct[:M], places, float(np.sqrt(spread * distinct.shape[1])))


def _last_layer(
    images: np.ndarray,
    shape: tuple[int, int, int],
    num_inducing: int,
    P: int,
    config: PatchConfig,
    rng: np.random.Generator,
    precision: Precision,
) -> WeightedConvolutionalLayer:
    """With equal weights, such that the prior variance between images is `PRIOR_VARIANCE` on average."""
    # Inducing patches, with their places if responses may depend on these.
    patches = Patches(shape, (config.patch, config.patch), config.stride or 1)
    drawn_patches = _Found.of(images, patches, num_inducing, rng)
    lengthscale = config.lengthscale or drawn_patches.lengthscale
    Z = drawn_patches.distinct
    if config.places:  # in such units that all lengthscales are equal at the start
        patches = replace(patches, place_scale=lengthscale / (PLACE_LENGTHSCALE * max(shape[:2])))
        Z = np.concatenate([Z, patches.place_scale * drawn_patches.places], axis=1)
    kernel = config.kernel(patches, lengthscale)
    # Weights with which the prior variance between images is the wanted one.
    K = patches.num_patches
    weights = np.full(K, np.sqrt(PRIOR_VARIANCE * config.kernel_variance / _variance(kernel, patches(images[:20]))))
    return WeightedConvolutionalLayer(kernel, Z, patches, P, weights=weights, q_sqrt_scale=Q_SCALE, precision=precision)


def _variance(kernel: SquaredExponential, patches: tf.Tensor) -> float:
    """Of plain means over patches [n, K, A], between images: mean variance less mean covariance."""
    w = tf.fill([patches.shape[1]], 1 / tf.constant(patches.shape[1], patches.dtype))
    covariances = [
        tf.linalg.matvec(sum_covariances(kernel, image_patches, patches, w, w.dtype), w, transpose_a=True)
        for image_patches in patches
    ]
    return float(np.mean(np.diag(covariances)) - np.mean(covariances)) or 1.0
