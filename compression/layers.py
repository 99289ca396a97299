"""The layers: dense and convolutional, by local reparametrisation (Algorithms 1-4 in Appendix F), for three priors.

|            | normal-Jeffreys | horseshoe   | each weight (sparse VD) |
|------------|-----------------|-------------|-------------------------|
| dense      | `DenseGNJ`      | `DenseGHS`  | `DenseSVD`              |
| 2-D conv.  | `Conv2DGNJ`     | `Conv2DGHS` | `Conv2DSVD`             |

The groups of a dense layer are its inputs, those of a convolution its output filters.

    model = keras.Sequential([
        keras.Input([784]),
        DenseGNJ(300, activation="relu", num_train=60_000),
        DenseGNJ(100, activation="relu", num_train=60_000),
        DenseGNJ(10, num_train=60_000),
    ])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(x, y, epochs=50, callbacks=[KLWarmup(10)])
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from .base import PACKAGE, BayesianLayer
from .scales import Horseshoe, NormalJeffreys, PerWeight

__all__ = ["BayesianConv2D", "BayesianDense", "Conv2DGHS", "Conv2DGNJ", "Conv2DSVD", "DenseGHS", "DenseGNJ", "DenseSVD"]

_register = keras.saving.register_keras_serializable(package=PACKAGE)


class BayesianDense(BayesianLayer):
    """y = activation(x W + b), x of shape [B, A]; one group for each of the A inputs. Abstract.

    :param units: number of outputs.
    """

    _group_role = "in"

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = _positive("units", units)

    def _kernel_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int, ...]:
        if len(input_shape) != 2 or input_shape[-1] is None:
            raise ValueError(
                f"{self.name} needs inputs of shape [batch, features], got {tuple(input_shape)}; "
                f"put keras.layers.Flatten() before it."
            )
        return (input_shape[-1], self.units)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """For Keras."""
        return (input_shape[0], self.units)

    def _groups_shape(self, kernel_shape: tuple[int, ...]) -> tuple[int, ...]:
        return kernel_shape[:1]

    def group_to_kernel(self, values: Any) -> tf.Tensor:
        """One value for each group, in a shape that broadcasts against the kernel."""
        return tf.convert_to_tensor(values)[:, None]

    def _linear(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        return tf.matmul(inputs, kernel)

    def _sample(self, inputs: tf.Tensor) -> tf.Tensor:
        """Algorithms 1 and 3."""
        h = inputs * self._sample_scales(tf.shape(inputs)[0])
        mean = self._linear(h, tf.convert_to_tensor(self.kernel_mean))
        variance = self._linear(tf.square(h), tf.exp(self.kernel_log_var))
        return self._add_noise(mean, variance, self._normal(tf.shape(mean)))

    def _sample_scales(self, batch: tf.Tensor) -> tf.Tensor:
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """For Keras: the arguments."""
        return {**super().get_config(), "units": self.units}


class BayesianConv2D(BayesianLayer):
    """y = activation(x * W + b), x of shape [B, height, width, channels]; one group for each filter. Abstract.

    :param filters: number of filters.
    :param kernel_size: one or two integers.
    :param strides: one or two integers.
    :param padding: "valid" or "same".
    """

    _group_role = "out"

    def __init__(
        self,
        filters: int,
        kernel_size: int | tuple[int, int],
        *,
        strides: int | tuple[int, int] = 1,
        padding: str = "valid",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.filters = _positive("filters", filters)
        self.kernel_size = _pair("kernel_size", kernel_size)
        self.strides = _pair("strides", strides)
        if padding not in ("valid", "same"):
            raise ValueError(f'padding must be "valid" or "same", got {padding!r}.')
        self.padding = padding

    def _kernel_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int, ...]:
        if len(input_shape) != 4 or input_shape[-1] is None:
            raise ValueError(
                f"{self.name} needs inputs of shape [batch, height, width, channels], got {tuple(input_shape)}."
            )
        return (*self.kernel_size, input_shape[-1], self.filters)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """For Keras."""
        cut = (0, 0) if self.padding == "same" else (self.kernel_size[0] - 1, self.kernel_size[1] - 1)
        sides = [
            None if n is None else -(-(n - lost) // step)
            for n, lost, step in zip(input_shape[1:3], cut, self.strides, strict=True)
        ]
        if any(side is not None and side < 1 for side in sides):
            raise ValueError(
                f"{self.name} has kernels of {self.kernel_size}, larger than its inputs {input_shape[1:3]}."
            )
        return (input_shape[0], *sides, self.filters)

    def _groups_shape(self, kernel_shape: tuple[int, ...]) -> tuple[int, ...]:
        return kernel_shape[-1:]

    def group_to_kernel(self, values: Any) -> tf.Tensor:
        """One value for each group, in a shape that broadcasts against the kernel."""
        return tf.convert_to_tensor(values)

    def _linear(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        return tf.nn.conv2d(inputs, kernel, self.strides, self.padding.upper())

    def _sample(self, inputs: tf.Tensor) -> tf.Tensor:
        """Algorithms 2 and 4."""
        z = self._sample_scales(tf.shape(inputs)[0])[:, None, None, :]
        linear: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] = self._linear
        if inputs.shape[-1] == 1 and self.strides == (1, 1):  # twice as fast on CPUs, where images have one channel
            inputs, linear = self._patches(inputs), self._linear_of_patches
        mean = linear(inputs, tf.convert_to_tensor(self.kernel_mean))
        variance = linear(tf.square(inputs), tf.exp(self.kernel_log_var))
        return z * self._add_noise(mean, variance, self._normal(tf.shape(mean)))

    def _patches(self, inputs: tf.Tensor) -> tf.Tensor:
        """What each output sees of images [B, height, width, 1], strides 1: [B, height, width, size of a kernel]."""
        rows, columns = self.kernel_size
        if self.padding == "same":
            lost = [(size - 1) // 2 for size in self.kernel_size]
            inputs = tf.pad(inputs, [[0, 0], [lost[0], rows - 1 - lost[0]], [lost[1], columns - 1 - lost[1]], [0, 0]])
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
        }


@_register
class DenseGNJ(NormalJeffreys, BayesianDense):
    __doc__ = f"Dense layer, normal-Jeffreys prior on the scale of each input.\n{NormalJeffreys.__doc__}"


@_register
class Conv2DGNJ(NormalJeffreys, BayesianConv2D):
    __doc__ = f"Convolution, normal-Jeffreys prior on the scale of each filter.\n{NormalJeffreys.__doc__}"


@_register
class DenseGHS(Horseshoe, BayesianDense):
    __doc__ = f"Dense layer, horseshoe prior on the scale of each input.\n{Horseshoe.__doc__}"


@_register
class Conv2DGHS(Horseshoe, BayesianConv2D):
    __doc__ = f"Convolution, horseshoe prior on the scale of each filter.\n{Horseshoe.__doc__}"


@_register
class DenseSVD(PerWeight, BayesianDense):
    __doc__ = f"Dense layer, log-uniform prior on each weight.\n{PerWeight.__doc__}"


@_register
class Conv2DSVD(PerWeight, BayesianConv2D):
    __doc__ = f"Convolution, log-uniform prior on each weight.\n{PerWeight.__doc__}"


def _positive(name: str, value: int) -> int:
    if isinstance(value, bool) or int(value) != value or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value}.")
    return int(value)


def _pair(name: str, value: int | tuple[int, int]) -> tuple[int, int]:
    values = (value, value) if isinstance(value, int) else tuple(value)
    if len(values) != 2:
        raise ValueError(f"{name} must be one or two positive integers, got {value}.")
    return _positive(name, values[0]), _positive(name, values[1])
