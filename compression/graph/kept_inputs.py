"""Layers that keep some features, or put them at their places: what is left of units that were removed."""

from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from ..layers.base import PACKAGE

__all__ = ["PlaceInputs", "SelectInputs"]


class _ByIndex(keras.layers.Layer):
    """A layer whose features are given by numbers of those of its inputs.

    :ivar least: the smallest number.
    """

    least: ClassVar[int]

    def __init__(self, indices: object, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Integers in a row, none below the smallest number.
        self.indices = np.asarray(indices)
        if self.indices.ndim != 1 or self.indices.size == 0 or self.indices.dtype.kind not in "iu":
            raise ValueError(f"indices must be a non-empty list of integers, got shape {self.indices.shape}.")
        if self.indices.min() < self.least:
            raise ValueError(f"indices must be {self.least} or more, got {self.indices.min()}.")
        self.indices = self.indices.astype(np.int32)
        self.supports_masking = True

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """For Keras: check the indices."""
        if input_shape[-1] is None or self.indices.max() >= input_shape[-1]:
            raise ValueError(
                f"{self.name} takes feature {self.indices.max()}, but its inputs have shape {tuple(input_shape)}."
            )

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """For Keras."""
        return (*input_shape[:-1], len(self.indices))

    def get_config(self) -> dict[str, Any]:
        """For Keras: the arguments."""
        return {**super().get_config(), "indices": self.indices.tolist()}


@keras.saving.register_keras_serializable(package=PACKAGE)
class SelectInputs(_ByIndex):
    """y = x[..., indices]: gathers features (or channels) along the last axis.

    :param indices: which features to keep, in this order; each from 0 to the number of features - 1.
    :raises ValueError: if `indices` is empty, not one-dimensional or negative; on the first call, if one is too large.
    """

    least = 0

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The selected features."""
        return tf.gather(inputs, self.indices, axis=-1)


@keras.saving.register_keras_serializable(package=PACKAGE)
class PlaceInputs(_ByIndex):
    """y[..., j] = x[..., indices[j]] where indices[j] >= 0, else fill[j].

    In a network whose units were removed it stands where others need as many features as before, such as the branch of
    a sum: what a removed unit gave for all inputs is in the variable `fill`, which is not trained.

    :param indices: for each feature of the output that of the input, or -1 for a constant.
    :raises ValueError: if `indices` is empty or not one-dimensional; on the first call, if one is too large.
    """

    least = -1

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """For Keras: check the indices and make room for the constants."""
        super().build(input_shape)
        self.fill = self.add_weight(name="fill", shape=self.indices.shape, initializer="zeros", trainable=False)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The features and the constants."""
        # A zero behind the features is what stands where a constant is added.
        padding = [[0, 0]] * (len(inputs.shape) - 1) + [[0, 1]]
        places = np.where(self.indices < 0, inputs.shape[-1], self.indices)
        return tf.gather(tf.pad(inputs, padding), places, axis=-1) + tf.cast(self.fill, inputs.dtype)
