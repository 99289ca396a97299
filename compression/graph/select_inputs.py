"""A layer that keeps some features: what is left of an input mask in a plain network."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..layers.base import PACKAGE

__all__ = ["SelectInputs"]


@keras.saving.register_keras_serializable(package=PACKAGE)
class SelectInputs(keras.layers.Layer):
    """y = x[..., indices]: gathers features (or channels) along the last axis.

    :param indices: which features to keep, in this order; each from 0 to the number of features - 1.
    :raises ValueError: if `indices` is empty, not one-dimensional or negative; on the first call, if one is too large.
    """

    def __init__(self, indices: object, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.indices = np.asarray(indices)
        if self.indices.ndim != 1 or self.indices.size == 0 or self.indices.dtype.kind not in "iu":
            raise ValueError(f"indices must be a non-empty list of integers, got shape {self.indices.shape}.")
        if self.indices.min() < 0:
            raise ValueError(f"indices must be 0 or more, got {self.indices.min()}.")
        self.indices = self.indices.astype(np.int32)
        self.supports_masking = True

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """For Keras: check the indices."""
        if input_shape[-1] is None or self.indices.max() >= input_shape[-1]:
            raise ValueError(
                f"{self.name} selects feature {self.indices.max()}, but its inputs have shape {tuple(input_shape)}."
            )

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The selected features."""
        return tf.gather(inputs, self.indices, axis=-1)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """For Keras."""
        return (*input_shape[:-1], len(self.indices))

    def get_config(self) -> dict[str, Any]:
        """For Keras: the arguments."""
        return {**super().get_config(), "indices": self.indices.tolist()}
