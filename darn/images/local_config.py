"""What locally connected layers are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["MAX_LAYERS", "LocalConfig", "check_whole", "whole_numbers"]

MAX_LAYERS = 100
"""Most layers of one kind in a model."""


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
        grids = [(*self.image_shape, 1)]
        for stride, filters in zip(self.strides, self.filters, strict=True):
            rows, columns, _ = grids[-1]
            grids.append((-(-rows // stride), -(-columns // stride), filters))
        return grids

    @property
    def hidden(self) -> tuple[int, ...]:
        """Units of the locally connected layers if these are stochastic: the first of `DARNConfig.hidden`."""
        return tuple(math.prod(grid) for grid in self.grids[1:]) if self.stochastic else ()

    def __post_init__(self) -> None:
        # Each field by itself.
        for name in ("image_shape", "kernels", "strides", "filters"):
            object.__setattr__(self, name, whole_numbers(f"{name} of local layers", getattr(self, name)))
        for name in ("period", "visible_kernel", "visible_period", "units_kernel"):
            check_whole(f"{name} of local layers", getattr(self, name))
        if not isinstance(self.stochastic, bool):
            raise ValueError(f"stochastic of local layers must be True or False, got {self.stochastic!r}.")
        # Fields together.
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


def check_whole(name: str, value: Any) -> None:
    """Refuse what is no whole number from 1 on.

    :raises ValueError: with the name.
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number, at least 1, got {value!r}.")


def whole_numbers(name: str, values: Iterable[Any]) -> tuple[int, ...]:
    """At most :data:`MAX_LAYERS` whole numbers from 1 on.

    :raises ValueError: with the name, if they are something else.
    """
    numbers = tuple(values)
    if len(numbers) > MAX_LAYERS:
        raise ValueError(f"{name} must be at most {MAX_LAYERS} numbers, got {len(numbers)}.")
    for number in numbers:
        check_whole(name, number)
    return tuple(int(number) for number in numbers)
