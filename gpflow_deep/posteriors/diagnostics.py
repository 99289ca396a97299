"""What to look at while training: the state of every layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from ..layers import ConvolutionalLayer, GlobalInducingLayer, Layer, SVGPLayer, WeightedConvolutionalLayer
from ..layers.global_inducing import GlobalFactors
from ..layers.moments import condition_number
from ..layers.svgp import LayerFactors
from ..model.deep_gp import DeepGP

__all__ = ["LayerDiagnostics", "diagnose"]


class LayerDiagnostics(NamedTuple):
    """State of one layer, for logs.

    :ivar label: e.g. "layer 1 of 2".
    :ivar kl_nats: KL[q(u) || p(u)] in nats.
    :ivar condition_number: of Kuu as it is factorised, with noise and jitter; the worst if there are several. None for
        a layer that has no Kuu.
    :ivar jitter: what had to be added to the diagonal of Kuu; larger than the default if a factorisation failed; None
        without Kuu.
    :ivar lengthscales: of each kernel that has them, flattened.
    :ivar kernel_variances: of each kernel that has one.
    :ivar noise_variance: of the noise between layers; 0 without.
    """

    label: str
    kl_nats: float
    condition_number: float | None
    jitter: float | None
    lengthscales: np.ndarray
    kernel_variances: np.ndarray
    noise_variance: float


def diagnose(model: DeepGP) -> list[LayerDiagnostics]:
    """Look at every layer: KL, conditioning and jitter of Kuu, lengthscales, variances. Costs one factorisation each.

    A layer whose `jitter` is above `gpflow.config.default_jitter()` has a nearly singular Kuu: inducing inputs on top
    of one another, or lengthscales much longer than the distances between them.
    """
    return [_diagnose(layer, factors) for layer, factors in zip(model.layers, model.factors(), strict=True)]


def _diagnose(layer: Layer, factors: LayerFactors | GlobalFactors) -> LayerDiagnostics:
    kl_nats = float(layer.prior_kl(factors))
    layer = layer.gp if isinstance(layer, ConvolutionalLayer | WeightedConvolutionalLayer) else layer
    if not isinstance(layer, SVGPLayer | GlobalInducingLayer):
        return LayerDiagnostics(layer.label, kl_nats, None, None, np.zeros(0), np.zeros(0), noise_variance=0.0)
    # The kernels, the variances of the inducing outputs, and the noise that is in them.
    if isinstance(factors, GlobalFactors):
        kernels: Sequence[Kernel] = (layer.kernel,)
        variances = layer.kernel(factors.Z, full_cov=False)
        noise = None
    else:
        kernels = layer.latent_kernels
        variances = tf.linalg.diag_part(layer.prior_covariance())
        noise = layer.noise_variance
    # L L' = Kuu + jitter I: what the diagonal has beside the variances is jitter.
    K = tf.matmul(factors.Luu, factors.Luu, transpose_b=True)
    jitter = tf.reduce_max(tf.linalg.diag_part(K) - variances)
    return LayerDiagnostics(
        label=layer.label,
        kl_nats=kl_nats,
        condition_number=float(condition_number(K)),
        jitter=float(jitter),
        lengthscales=_values(kernels, "lengthscales"),
        kernel_variances=_values(kernels, "variance"),
        noise_variance=0.0 if noise is None else float(noise.numpy()),
    )


def _values(kernels: Sequence[Kernel], name: str) -> np.ndarray:
    values = [np.ravel(getattr(kernel, name).numpy()) for kernel in kernels if hasattr(kernel, name)]
    return np.concatenate(values) if values else np.zeros(0)
