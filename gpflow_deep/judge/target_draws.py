"""Draws of targets, in the units of the data: functions from the model, and noise by the likelihood."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Likelihood
from numpy.typing import NDArray

from ..model.deep_gp import DeepGP
from ..model.scaling import Scale, Units
from .predictive import predictive

__all__ = ["draw_targets"]

Array = NDArray[np.float64]

JOINT_FLOATS = 2 * 10**8
"""Numbers in the covariances of one layer between all rows, in a joint draw."""

NOISE_ROWS = 10_000
"""Rows, over several draws, to which noise is added together."""


def draw_targets(model: DeepGP, units: Units, X: Array, num_samples: int, rng: np.random.RandomState) -> Array:
    """Draws of new targets at X [N, D], joint over all rows: [num_samples, N, P]. Latent variables differ between rows.

    :raises ValueError: if X has so many rows that the covariances between them would fill the memory, or targets are
        labels.
    """
    # A joint draw needs covariances between all rows.
    limit = int(np.sqrt(JOINT_FLOATS / max(layer.num_latent_gps or 1 for layer in model.layers)))
    if len(X) > limit:
        raise ValueError(
            f"X must have at most {limit} rows for joint draws from this model, got {len(X)}; draw for parts of the "
            "rows, or take quantiles."
        )
    # Functions, all rows together.
    seed = tf.constant(rng.randint(2**31 - 1, size=2), tf.int32)
    generator = np.random.default_rng(rng.randint(2**31 - 1, size=4))
    scaled = tf.constant(units.x.transform(X).astype(gpflow.default_float()))
    functions = np.asarray(model.predict_f_samples(scaled, num_samples, seed=seed), np.float64)  # [S, N, L]
    # Noise for some of the draws at a time.
    size = max(1, NOISE_ROWS // max(len(X), 1))
    drawn = [
        _noisy(model.likelihood, units.y, functions[i : i + size], scaled, generator)
        for i in range(0, num_samples, size)
    ]
    return np.concatenate(drawn)


def _noisy(
    likelihood: Likelihood, y: Scale, functions: Array, scaled: tf.Tensor, generator: np.random.Generator
) -> Array:
    """Draws of the targets, [S, N, P], one for each of the draws of the latent functions, [S, N, L]."""
    # A function is a component without variance: what is left is the noise.
    f = functions.reshape(1, -1, functions.shape[-1])
    X = tf.tile(scaled, [len(functions), 1])
    targets = predictive(likelihood, X, f, np.zeros_like(f), offset=y.mean, scale=y.scale)
    return targets.sample(1, generator).reshape(*functions.shape[:2], -1)
