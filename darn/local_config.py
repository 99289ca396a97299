"""What locally connected layers are made of."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["LocalConfig"]


@dataclass(frozen=True)
class LocalConfig:
    """Locally connected layers between an image and a stochastic layer, or stochastic ones themselves.

    :param image_shape: height and width of an image.
    :param kernels: sides of the kernels of the locally connected layers, from the image up; multiples of their strides.
    :param strides: strides of the locally connected layers, from the image up.
    :param filters: numbers of filters of the locally connected layers, from the image up.
    :param period: period P of the weight sharing in locally connected layers; 1 is a convolution.
    :param visible_kernel: side of the window in which a pixel sees earlier pixels, with visible_conditional=local; odd.
    :param visible_period: period of the weight sharing of that window.
    :param stochastic: the units of the locally connected layers are stochastic, as in the paper's Figure 5, and the
        other stochastic layers are above them.
    :param units_kernel: side of the window of places in which a stochastic unit of a locally connected layer sees
        earlier ones in the decoder; odd.
    :raises ValueError: naming the field that is wrong.
    """

    image_shape: tuple[int, int]
    kernels: tuple[int, ...] = (8, 4)
    strides: tuple[int, ...] = (4, 2)
    filters: tuple[int, ...] = (32, 32)
    period: int = 8
    visible_kernel: int = 15
    visible_period: int = 14
    stochastic: bool = False
    units_kernel: int = 3

    @property
    def grids(self) -> list[tuple[int, int, int]]:
        """Rows, columns and channels of the image and of each locally connected layer."""
        found = [(*self.image_shape, 1)]
        for stride, filters in zip(self.strides, self.filters, strict=True):
            rows, columns, _ = found[-1]
            found.append((-(-rows // stride), -(-columns // stride), filters))
        return found

    @property
    def hidden(self) -> tuple[int, ...]:
        """Units of the locally connected layers if these are stochastic: the first of `DARNConfig.hidden`."""
        return tuple(math.prod(grid) for grid in self.grids[1:]) if self.stochastic else ()

    def __post_init__(self) -> None:
        for name in ("image_shape", "kernels", "strides", "filters"):
            object.__setattr__(self, name, tuple(int(value) for value in getattr(self, name)))
        sizes = ("period", "visible_kernel", "visible_period", "units_kernel")
        for name in ("image_shape", "kernels", "strides", "filters", *sizes):
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
        for name in ("visible_kernel", "units_kernel"):
            if getattr(self, name) % 2 == 0:
                raise ValueError(f"{name} must be odd, got {getattr(self, name)}.")
