"""One draw of a layer at several inputs of each row, for importance samples of latent variables.

    F = m(H) + chol(C(H, H)) eps

with the mean m and the covariance C of the layer under q, at the inputs H of a row. A doubly reparametrised gradient
asks for the slope of a function at each input, the function held fixed. This draw does not hold it fixed: where it is
moved at one input, values at others move, too. The slope of a function that has the values F is not known either, but
it is linear in the gradient, so that its mean given F will do:

    d / dh E[ f(h) | F ] at h = h_k,   E[ f(h) | F ] = m(h) + C(h, H) C(H, H)^-1 (F - m(H))

Noise between layers is another number at each input, and has no slope.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import tensorflow as tf

from .latent import LatentVariableLayer
from .moments import LayerMoments, root_of_joint
from .svgp import LayerFactors, SVGPLayer

if TYPE_CHECKING:
    from gpflow_deep.layers.protocol import Layer

__all__ = ["joint_draw"]


def joint_draw(layer: Layer, factors: object, H: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """Outputs [R, K, P] of one draw of the layer for each of R groups of inputs H [R, K, D]: Eq. (15) by their joint
    covariance. Parameters have the gradient of that, and each input that of the mean function through the draws.

    :param factors: of the layer.
    :param noise: [R, K, L].
    :raises ValueError: if a layer is not one of GPs of its inputs, such as a convolutional one.
    """
    # Nothing is drawn, or nothing jointly.
    if not layer.num_latent_gps or isinstance(layer, LatentVariableLayer):
        return layer.sample(H, layer.latent_moments(H, factors), noise)
    fixed = tf.stop_gradient(H)
    mean, cov = layer.latent_moments(fixed, factors, full_cov=True)
    if mean.shape[-1] != layer.num_latent_gps:
        raise ValueError(
            f"{layer.label}, {type(layer).__name__}, must be one of GPs of its inputs to have num_importance_samples > "
            "1 of latent variables below it; put the latent variables above it, or take one sample."
        )
    # F = m(H) + root eps with root root' = C(H, H), and alpha = C(H, H)^-1 (F - m(H)).
    root = root_of_joint(cov, label=f"{layer.label}: joint covariance of the outputs for the samples of a row")
    eps = tf.linalg.matrix_transpose(noise)[..., None]  # [R, L, K, 1]
    drawn = mean + tf.linalg.matrix_transpose(tf.matmul(root, eps)[..., 0])
    alpha = tf.stop_gradient(tf.linalg.triangular_solve(root, eps, adjoint=True))

    def mean_through_draws(H: tf.Tensor) -> tf.Tensor:
        if isinstance(layer, SVGPLayer) and isinstance(factors, LayerFactors):
            return _at_values(layer, H, layer.slopes_through(H, alpha[..., 0], factors))
        # m(h) + C(h, H) alpha.
        K = tf.shape(H)[1]
        both = layer.latent_moments(tf.concat([H, fixed], axis=1), factors, full_cov=True)
        update = tf.matmul(both.cov[..., :K, K:], alpha)[..., 0]  # [R, L, K]; no noise between different inputs
        return _at_values(layer, H, both.mean[:, :K] + tf.linalg.matrix_transpose(update))

    return _with_slopes_of(mean_through_draws, H, _at_values(layer, fixed, drawn))


def _at_values(layer: Layer, H: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Outputs for given values of the latent GPs."""
    zeros = tf.zeros_like(values)
    return layer.sample(H, LayerMoments(values, zeros), zeros)


def _with_slopes_of(function: Callable[[tf.Tensor], tf.Tensor], H: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
    """F, which has the slopes of `function` with respect to H, besides its own with respect to other things."""

    @tf.custom_gradient
    def values(H: tf.Tensor, F: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(H)
                F = function(H)
            return tape.gradient(F, H, upstream, unconnected_gradients=tf.UnconnectedGradients.ZERO), upstream

        return tf.identity(F), gradient

    return values(H, F)
