"""The linear maps of Bayesian layers, by local reparametrisation (Algorithms 1-4 in Appendix F)."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from .base import BayesianLayer

__all__ = [
    "BayesianConv",
    "BayesianConv1D",
    "BayesianConv2D",
    "BayesianConv3D",
    "BayesianConvTranspose",
    "BayesianDense",
]


class BayesianDense(BayesianLayer):
    """y = activation(x W + b), x of shape [B, ..., A]; one group for each of the A inputs. Abstract.

    Further axes, such as that of time, share the scales, which are drawn for each example.

    :param units: number of outputs.
    """

    _group_role = "in"

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = _positive("units", units)

    def _kernel_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int, ...]:
        if len(input_shape) < 2 or input_shape[-1] is None:
            raise ValueError(f"{self.name} needs inputs of shape [batch, ..., features], got {tuple(input_shape)}.")
        return (input_shape[-1], self.units)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """For Keras."""
        return (*input_shape[:-1], self.units)

    def _groups_shape(self, kernel_shape: tuple[int, ...]) -> tuple[int, ...]:
        return kernel_shape[:1]

    def group_to_kernel(self, values: tf.Tensor) -> tf.Tensor:
        """One value for each group, in a shape that broadcasts against the kernel."""
        return tf.convert_to_tensor(values)[:, None]

    def _linear(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        return tf.matmul(inputs, kernel) if len(inputs.shape) < 4 else tf.tensordot(inputs, kernel, 1)

    def _sample(self, inputs: tf.Tensor) -> tf.Tensor:
        """Algorithms 1 and 3."""
        # One draw of the scales for each example; then mean and variance of the outputs, and their noise.
        h = inputs * _per_example(self._sample_scales(tf.shape(inputs)[0]), len(inputs.shape))
        mean = self._linear(h, tf.convert_to_tensor(self.kernel_mean))
        variance = self._linear(tf.square(h), tf.exp(self.kernel_log_var))
        return self._add_noise(mean, variance, self._normal(tf.shape(mean)))

    def _sample_scales(self, batch: tf.Tensor) -> tf.Tensor:
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """For Keras: the arguments."""
        return {**super().get_config(), "units": self.units}


class BayesianConv(BayesianLayer):
    """y = activation(x * W + b), x of shape [B, positions..., channels]; one group for each filter. Abstract.

    :param filters: number of filters.
    :param kernel_size: one integer, or one for each axis of positions.
    :param strides: the same.
    :param padding: "valid" or "same"; in one dimension also "causal".
    :param dilation_rate: as `kernel_size`.
    """

    _group_role = "out"
    plain: type
    """The layer of Keras that does the same without noise."""

    def __init__(
        self,
        filters: int,
        kernel_size: int | tuple[int, ...],
        *,
        strides: int | tuple[int, ...] = 1,
        padding: str = "valid",
        dilation_rate: int | tuple[int, ...] = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.filters = _positive("filters", filters)
        self._rank = int(self.plain.__name__[4])
        self.kernel_size = _sizes("kernel_size", kernel_size, self._rank)
        self.strides = _sizes("strides", strides, self._rank)
        self.dilation_rate = _sizes("dilation_rate", dilation_rate, self._rank)
        if padding not in ("valid", "same", *(["causal"] if self.plain is keras.layers.Conv1D else [])):
            raise ValueError(f'padding must be "valid" or "same", got {padding!r}.')
        self.padding = padding

    def _kernel_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int, ...]:
        if len(input_shape) != self._rank + 2 or input_shape[-1] is None:
            names = {1: "length", 2: "height, width", 3: "depth, height, width"}[self._rank]
            raise ValueError(f"{self.name} needs inputs of shape [batch, {names}, channels], got {tuple(input_shape)}.")
        return (*self.kernel_size, input_shape[-1], self.filters)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """For Keras."""
        # Places at which a dilated kernel fits, every stride-th of them.
        reach = [(size - 1) * step for size, step in zip(self.kernel_size, self.dilation_rate, strict=True)]
        margins = reach if self.padding == "valid" else [0] * self._rank
        sides = [
            None if n is None else -(-(n - less) // step)
            for n, less, step in zip(input_shape[1:-1], margins, self.strides, strict=True)
        ]
        if any(side is not None and side < 1 for side in sides):
            raise ValueError(
                f"{self.name} has kernels of {self.kernel_size}, larger than its inputs {input_shape[1:-1]}."
            )
        return (input_shape[0], *sides, self.filters)

    def _groups_shape(self, kernel_shape: tuple[int, ...]) -> tuple[int, ...]:
        return (self.filters,)

    def group_to_kernel(self, values: tf.Tensor) -> tf.Tensor:
        """One value for each group, in a shape that broadcasts against the kernel."""
        return tf.convert_to_tensor(values)

    def _linear(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        if self._rank == 2:
            return tf.nn.conv2d(inputs, kernel, self.strides, self.padding.upper(), dilations=self.dilation_rate)
        padding = self.padding
        if padding == "causal":
            # No output sees a later step: all zeros stand before the sequence.
            num_zeros = (self.kernel_size[0] - 1) * self.dilation_rate[0]
            inputs = tf.pad(inputs, [[0, 0], [num_zeros, 0], [0, 0]])
            padding = "valid"
        return keras.ops.conv(inputs, kernel, self.strides, padding, "channels_last", self.dilation_rate)

    def _sample(self, inputs: tf.Tensor) -> tf.Tensor:
        """Algorithms 2 and 4."""
        # A filter's scale is a factor of its output: drawn once an example, it multiplies sum and noise.
        z = _per_example(self._sample_scales(tf.shape(inputs)[0]), len(inputs.shape))
        linear: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] = self._linear
        if self._has_fast_patches(inputs):
            inputs = self._patches(inputs)
            linear = self._linear_of_patches
        mean = linear(inputs, tf.convert_to_tensor(self.kernel_mean))
        # Var(x * w~) = x^2 * Var w~, as weights are independent under q.
        variance = linear(tf.square(inputs), tf.exp(self.kernel_log_var))
        return z * self._add_noise(mean, variance, self._normal(tf.shape(mean)))

    def _has_fast_patches(self, inputs: tf.Tensor) -> bool:
        """Whether :meth:`_patches` are twice as fast on CPUs: for images that have one channel."""
        ones = (1, 1)
        is_plain = self.plain is keras.layers.Conv2D and self.strides == self.dilation_rate == ones
        return is_plain and inputs.shape[-1] == 1

    def _patches(self, inputs: tf.Tensor) -> tf.Tensor:
        """What each output sees of images [B, height, width, 1], strides 1: [B, height, width, size of a kernel]."""
        rows, columns = self.kernel_size
        if self.padding == "same":
            # Zeros as TensorFlow puts them for strides 1: of an odd number the larger part behind.
            pads = [(size - 1) // 2 for size in self.kernel_size]
            inputs = tf.pad(inputs, [[0, 0], [pads[0], rows - 1 - pads[0]], [pads[1], columns - 1 - pads[1]], [0, 0]])
        beside = tf.concat([inputs[:, :, j : j + 1 - columns or None] for j in range(columns)], axis=-1)
        return tf.concat([beside[:, i : i + 1 - rows or None] for i in range(rows)], axis=-1)

    def _linear_of_patches(self, patches: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        return tf.nn.conv2d(patches, tf.reshape(kernel, [1, 1, -1, self.filters]), 1, "VALID")

    def _sample_scales(self, batch: tf.Tensor) -> tf.Tensor:
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """For Keras: the arguments."""
        return {
            **super().get_config(),
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "padding": self.padding,
            "dilation_rate": self.dilation_rate,
        }


class BayesianConv1D(BayesianConv):
    """A convolution over sequences [B, length, channels]. Abstract."""

    plain = keras.layers.Conv1D


class BayesianConv2D(BayesianConv):
    """A convolution over images [B, height, width, channels]. Abstract."""

    plain = keras.layers.Conv2D


class BayesianConv3D(BayesianConv):
    """A convolution over volumes [B, depth, height, width, channels]. Abstract."""

    plain = keras.layers.Conv3D


class BayesianConvTranspose(BayesianConv):
    """A transposed convolution over images; its kernel has the axis of filters before that of channels. Abstract.

    :param output_padding: see `keras.layers.Conv2DTranspose`.
    """

    plain = keras.layers.Conv2DTranspose

    def __init__(self, *args: Any, output_padding: object = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.output_padding = output_padding

    def _kernel_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int, ...]:
        *sizes, channels, filters = super()._kernel_shape(input_shape)
        return (*sizes, filters, channels)

    def _bias_shape(self, kernel_shape: tuple[int, ...]) -> tuple[int, ...]:
        return (self.filters,)

    def variable_role(self, name: str) -> str:
        """How the variable `name` is cut when units are removed: see `compression.graph.removal.cutting.cut`."""
        role = super().variable_role(name)
        return "transposed kernel" if role == "kernel" else role

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """For Keras."""
        names = ("filters", "kernel_size", "strides", "padding", "dilation_rate", "output_padding")
        plain = self.plain(**{name: getattr(self, name) for name in names})
        return tuple(plain.compute_output_shape(input_shape))

    def group_to_kernel(self, values: tf.Tensor) -> tf.Tensor:
        """One value for each group, in a shape that broadcasts against the kernel."""
        return tf.convert_to_tensor(values)[:, None]

    def _linear(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        return keras.ops.conv_transpose(
            inputs, kernel, self.strides, self.padding, self.output_padding, "channels_last", self.dilation_rate
        )

    def get_config(self) -> dict[str, Any]:
        """For Keras: the arguments."""
        return {**super().get_config(), "output_padding": self.output_padding}


def _positive(name: str, value: int) -> int:
    if isinstance(value, bool) or int(value) != value or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value}.")
    return int(value)


def _sizes(name: str, value: int | tuple[int, ...], rank: int) -> tuple[int, ...]:
    values = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(values) != rank:
        raise ValueError(f"{name} must be one positive integer, or {rank} of them, got {value}.")
    return tuple(_positive(name, size) for size in values)


def _per_example(scales: tf.Tensor, rank: int) -> tf.Tensor:
    """Scales [B, groups] for tensors with further axes between."""
    return tf.reshape(scales, [-1, *[1] * (rank - 2), scales.shape[-1]])
