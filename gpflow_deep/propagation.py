"""What the deep GP and its cached posterior exchange: factors of the layers, draws through them, and the methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf
from gpflow.base import MeanAndVariance, RegressionData, TensorType

from .layers import CachedFactors, LayerFactors, SVGPLayer

__all__ = ["Factors", "PredictsFromFactors", "Propagation"]

Factors = Sequence[LayerFactors | CachedFactors]


class Propagation(NamedTuple):
    """What every layer says about the N points, one entry per layer; P differs between layers.

    :ivar samples: draws of the layer's outputs, [S, N, P]; only of the layers for which noise was given.
    :ivar means: means given the draw of the layer below, [S, N, P] ([1, N, P] for the first layer).
    :ivar covs: variances [S, N, P], or with `full_cov` covariances [S, P, N, N], given the draw of the layer below.
    """

    samples: tuple[tf.Tensor, ...]
    means: tuple[tf.Tensor, ...]
    covs: tuple[tf.Tensor, ...]


class PredictsFromFactors(Protocol):
    """The predictions of a `DeepGP`, shapes as there; each takes `factors=`, as `cached_factors` gives them."""

    layers: list[SVGPLayer]

    def cached_factors(self, *, dtype: tf.DType | None = None) -> tuple[CachedFactors, ...]:
        """What predictions need of every layer."""

    def predict_f(self, Xnew: TensorType, full_cov: bool, full_output_cov: bool, **options: Any) -> MeanAndVariance:
        """Moments of the latent functions."""

    def predict_y(self, Xnew: TensorType, **options: Any) -> MeanAndVariance:
        """Moments of observations."""

    def predict_log_density(self, data: RegressionData, **options: Any) -> tf.Tensor:
        """Log densities of observations, in nats."""

    def predict_f_samples(
        self, Xnew: TensorType, num_samples: int | None, full_cov: bool, full_output_cov: bool, **options: Any
    ) -> tf.Tensor:
        """Draws of the latent functions."""

    def predict_components(
        self, Xnew: TensorType, full_cov: bool, full_output_cov: bool, **options: Any
    ) -> MeanAndVariance:
        """The Gaussians of the mixture."""

    def predict_all_layers(
        self, Xnew: TensorType, num_samples: int | None, full_cov: bool, **options: Any
    ) -> Propagation:
        """Draws and moments of every layer."""
