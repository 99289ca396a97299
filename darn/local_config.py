"""What locally connected layers are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["LocalConfig"]


@dataclass(frozen=True)
class LocalConfig:
    """Locally connected layers between an image and a stochastic layer.

    :param image_shape: height and width of an image.
    :param kernels: sides of the kernels of the locally connected layers, from the image up; multiples of their strides.
    :param strides: strides of the locally connected layers, from the image up.
    :param filters: numbers of filters of the locally connected layers, from the image up.
    :param period: period P of the weight sharing in locally connected layers; 1 is a convolution.
    :param visible_kernel: side of the window in which a pixel sees earlier pixels, with visible_conditional=local; odd.
    :param visible_period: period of the weight sharing of that window.
    :raises ValueError: naming the field that is wrong.
    """

    image_shape: tuple[int, int]
    kernels: tuple[int, ...] = (8, 4)
    strides: tuple[int, ...] = (4, 2)
    filters: tuple[int, ...] = (32, 32)
    period: int = 8
    visible_kernel: int = 15
    visible_period: int = 14

    def __post_init__(self) -> None:
        for name in ("image_shape", "kernels", "strides", "filters"):
            object.__setattr__(self, name, tuple(int(value) for value in getattr(self, name)))
        for name in ("image_shape", "kernels", "strides", "filters", "period", "visible_kernel", "visible_period"):
            if np.min(getattr(self, name), initial=1) < 1:
                raise ValueError(f"{name} of local layers must be at least 1, got {getattr(self, name)}.")
        if len(self.image_shape) != 2:
            raise ValueError(f"image_shape must be height and width, got {self.image_shape}.")
        if not len(self.kernels) == len(self.strides) == len(self.filters) >= 1:
            raise ValueError(
                "kernels, strides and filters must name the same number of layers, got "
                f"{self.kernels}, {self.strides} and {self.filters}."
            )
        if any(kernel % stride for kernel, stride in zip(self.kernels, self.strides, strict=True)):
            raise ValueError(f"kernels must be multiples of their strides, got {self.kernels} and {self.strides}.")
        if self.visible_kernel % 2 == 0:
            raise ValueError(f"visible_kernel must be odd, got {self.visible_kernel}.")
