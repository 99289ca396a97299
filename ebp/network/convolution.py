"""Layers of shared weights on images: which weights meet which inputs.

    EBPNetwork(((28, 28, 1), Convolution(16), Convolution(32), 10), head="multiclass")

A filter has one weight for each of its K = size x size x channels inputs and is applied at every position at which it
fits into the image. Unfolded, an image is P rows of K inputs, one for each position, and the layer is an ordinary one
of these rows: Eqs. (4.1) to (4.5) hold with sums over rows, which are examples and positions. Neighbouring outputs are
then pooled: the next layer's inputs are means of pool x pool signs. Variances of the outputs of one filter at several
positions are added as if these were independent, though they share its weights.

Images are rows of height x width x channels numbers, the channels of a pixel next to each other. This module needs
NumPy alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, NamedTuple, TypeGuard, TypeVar

import numpy as np

if TYPE_CHECKING:  # this module needs NumPy alone
    import tensorflow as tf

#: Rows of NumPy or of TensorFlow.
Rows = TypeVar("Rows", np.ndarray, "tf.Tensor")

__all__ = ["Convolution", "Convolved", "check_whole", "flat_sizes", "is_whole", "pooled", "unfolded"]

POOLS = (1, 2, 4)
"""Powers of two, whose means of signs are exact numbers."""


def is_whole(value: object, least: int = 1) -> TypeGuard[int]:
    """Whether it is a whole number of at least `least`, Python's or NumPy's; truth values are none."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def check_whole(name: str, value: object, least: int = 1) -> int:
    """The number as Python's.

    :raises ValueError: with the name, for what is no such number, see `is_whole`.
    """
    if not is_whole(value, least):
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    return int(value)


@dataclass(frozen=True)
class Convolution:
    """A layer of shared weights, in place of its width.

    :param filters: number of filters.
    :param size: height and width of each.
    :param pool: height and width of the blocks of outputs whose mean is an input of the next layer: 1, 2 or 4.
    :raises ValueError: for other numbers.
    """

    filters: int
    size: int = 5
    pool: int = 2

    def __post_init__(self) -> None:
        for name in ("filters", "size"):
            object.__setattr__(self, name, check_whole(f"{name} of a Convolution", getattr(self, name)))
        if self.pool not in POOLS:
            raise ValueError(f"pool of a Convolution must be one of {', '.join(map(str, POOLS))}, got {self.pool!r}.")


class Convolved(NamedTuple):
    """A `Convolution` of images of some shape.

    :ivar height: of its inputs.
    :ivar width: likewise.
    :ivar channels: likewise.
    :ivar size: height and width of a filter.
    :ivar filters: how many.
    :ivar pool: see `Convolution`.
    """

    height: int
    width: int
    channels: int
    size: int
    filters: int
    pool: int

    @property
    def positions(self) -> tuple[int, int]:
        """Rows and columns of positions of a filter; P is their product."""
        return self.height - self.size + 1, self.width - self.size + 1

    @property
    def num_positions(self) -> int:
        """P."""
        rows, columns = self.positions
        return rows * columns

    @property
    def fan_in(self) -> int:
        """K, without the bias."""
        return self.size**2 * self.channels

    @property
    def image(self) -> tuple[int, int, int]:
        """Height, width and channels of what the next layer gets."""
        rows, columns = self.positions
        return rows // self.pool, columns // self.pool, self.filters

    @property
    def num_inputs(self) -> int:
        """Numbers of an image."""
        return self.height * self.width * self.channels

    @property
    def num_outputs(self) -> int:
        """Numbers of the image that the next layer gets."""
        return int(np.prod(self.image))

    def check(self) -> None:
        """Raises ValueError if the filters do not fit into the image, or the blocks not into the positions."""
        rows, columns = self.positions
        if min(rows, columns) < 1 or rows % self.pool or columns % self.pool:
            raise ValueError(
                f"filters of {self.size} x {self.size} on images of {self.height} x {self.width} have {rows} x "
                f"{columns} positions, which must be multiples of pool={self.pool}; choose another size or pool."
            )


def flat_sizes(layers: Sequence[object]) -> tuple[tuple[int, ...], tuple[Convolved | None, ...]]:
    """Numbers of inputs, of outputs of each hidden layer, and of outputs; and each layer's convolution, or None.

    :param layers: inputs, a number or (height, width, channels); then widths, each a number or a `Convolution`; the
        outputs' number.
    :raises ValueError: if a size is no positive whole number, or a convolution has no image before it, is the last
        layer, or does not fit.
    """
    # The inputs: a number, or an image, which the layers that follow can share weights on.
    image: tuple[int, ...] | None = None
    if isinstance(layers[0], (tuple, list)):
        image = tuple(check_whole("sizes of an image", size) for size in layers[0])
        if len(image) != 3:
            raise ValueError(f"an image must have a height, a width and channels such as (28, 28, 1), got {image}.")
    sizes = [check_whole("sizes of layers", layers[0]) if image is None else math.prod(image)]
    convolutions = list[Convolved | None]()
    for layer in layers[1:]:
        # An ordinary layer; behind it there is no image any more.
        if not isinstance(layer, Convolution):
            sizes.append(check_whole("sizes of layers", layer))
            convolutions.append(None)
            image = None
            continue
        if image is None:
            raise ValueError(
                "a Convolution needs an image before it: begin layer_sizes with (height, width, channels), and put "
                "widths after all convolutions."
            )
        # Its image is what the next layer gets.
        height, width, channels = image
        convolved = Convolved(height, width, channels, layer.size, layer.filters, layer.pool)
        convolved.check()
        image = convolved.image
        sizes.append(convolved.num_outputs)
        convolutions.append(convolved)
    if convolutions and convolutions[-1] is not None:
        raise ValueError("the last layer cannot be a Convolution; end layer_sizes with the number of outputs.")
    return tuple(sizes), tuple(convolutions)


def unfolded(
    X: Rows,
    convolved: Convolved,
    reshape: Callable[..., Rows] = np.reshape,
    concatenate: Callable[..., Rows] = np.concatenate,
) -> Rows:
    """Images [B, n_in] as a row for each position, [B P, K].

    :param reshape: of X's library, as `tf.reshape` for a tensor.
    :param concatenate: likewise.
    """
    rows, columns = convolved.positions
    images = reshape(X, [-1, convolved.height, convolved.width, convolved.channels])
    # For each pixel of a filter the pixels that it meets at all positions; side by side these are the rows.
    offsets = np.ndindex(convolved.size, convolved.size)
    parts = [images[:, i : i + rows, j : j + columns] for i, j in offsets]
    return reshape(concatenate(parts, axis=3), [-1, convolved.fan_in])


def pooled(
    values: Rows, convolved: Convolved, reshape: Callable[..., Rows] = np.reshape, reduce: Callable[..., Rows] = np.sum
) -> Rows:
    """Sums over blocks of the outputs [B P, filters], as images [B, n_out]; means with another `reduce`.

    :param reshape: of the library of `values`.
    :param reduce: likewise.
    """
    height, width, filters = convolved.image
    blocks = reshape(values, [-1, height, convolved.pool, width, convolved.pool, filters])
    return reshape(reduce(blocks, axis=(2, 4)), [-1, convolved.num_outputs])
