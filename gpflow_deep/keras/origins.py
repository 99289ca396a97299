"""Where predictions come from: what a layer attaches to its output tensor for the loss, as Keras does with masks.

The tensor itself is a draw or a mean, for metrics and `predict`; the loss integrates over the distribution instead.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

__all__ = ["Origin", "attach", "origin_of"]

_NAME = "_gpflow_deep_origin"


class Origin(NamedTuple):
    """What is known of an output of a model.

    :ivar moments: mean and variance of the latent functions, [N, 2, P]; None if no GP layer is right before.
    :ivar likelihood_layer: the `LikelihoodLayer` that it went through.
    """

    moments: tf.Tensor | None = None
    likelihood_layer: tf.keras.Layer | None = None


def attach(output: tf.Tensor, origin: Origin) -> tf.Tensor:
    """The output, with its origin."""
    setattr(output, _NAME, origin)
    return output


def origin_of(output: tf.Tensor) -> Origin:
    """What is attached to an output; nothing if it went through other operations since."""
    return getattr(output, _NAME, Origin())
