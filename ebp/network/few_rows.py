"""The forward pass of few rows by NumPy, as TensorFlow takes longer to start one than it takes: Eqs. (4.1), (4.2)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy.special
import tensorflow as tf
from numpy.typing import NDArray

from .forward import BIAS_VARIANCE
from .network import EBPNetwork

__all__ = ["MAX_FEW_ROWS", "FewRows"]

Array = NDArray[np.float64]

#: With more rows TensorFlow is faster.
MAX_FEW_ROWS = 50


class _Layer(NamedTuple):
    """mu = (v M + b) / sqrt(K) and sigma^2 = (q A + c) / K.

    :ivar mean: M = <W>, [n_in, n_out].
    :ivar square: A [n_in, n_out]: of the first layer, where q = v^2, the variances of W; of others, where q = 1 - v^2,
        M^2.
    :ivar b: [n_out], or 0 without biases.
    :ivar constant: c [n_out].
    :ivar fan_in: how many inputs a unit has, K.
    """

    mean: Array
    square: Array
    b: Array | float
    constant: Array
    fan_in: int


class FewRows(NamedTuple):
    """A network as it is now, in float64; one of signs without convolutions and with the diagonal forward pass."""

    layers: tuple[_Layer, ...]

    @classmethod
    def of(cls, network: EBPNetwork) -> FewRows:
        """Of its current posterior."""
        architecture = network.architecture
        layers = list[_Layer]()
        for prior, h, fan_in in zip(architecture.priors, network.h, architecture.fan_ins, strict=True):
            # Moments of the weights in float64.
            natural = tf.cast(h, tf.float64)
            mean = prior.mean(natural)
            var = tf.broadcast_to(prior.var_from_mean(natural, mean), mean.shape).numpy()
            mean = mean.numpy()
            # Behind signs sum var is the same for every row.
            constant = var.sum(axis=0) if layers else np.zeros(mean.shape[1])
            b: Array | float = 0.0
            if architecture.has_biases:
                b = network.b[len(layers)].numpy().astype(np.float64)
                constant = constant + BIAS_VARIANCE
            layers.append(_Layer(mean, mean**2 if layers else var, b, constant, fan_in))
        return cls(tuple(layers))

    def moments(self, X: np.ndarray) -> tuple[Array, Array]:
        """mu_L and sigma2_L, as `EBPNetwork.predict_moments` gives them in float64, of rows [N, n_0]; [N, n_L] each."""
        v = np.asarray(X, np.float64)
        q = v**2
        for layer in self.layers:
            # Eqs. (4.1) and (4.2); then v = <sign u>, and q = 1 - v^2.
            mu = (v @ layer.mean + layer.b) / math.sqrt(layer.fan_in)
            sigma2 = np.maximum((q @ layer.square + layer.constant) / layer.fan_in, np.finfo(np.float64).tiny)
            v = scipy.special.erf(mu / np.sqrt(2.0 * sigma2))
            q = 1.0 - v**2
        return mu, sigma2
