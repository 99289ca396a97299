"""Grey levels as bit planes: whole numbers below 2^K as K bits each, which models of bits learn and code without loss.

bits = to_planes(pixels, 8)                   # [N, D] to [N, 8 D]: the highest bit of all pixels, then the next, ...
from_planes(bits, 8)                          # the pixels again
"""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpflow_deep_runs.data.rows import Part, Rows

__all__ = ["MAX_PLANES", "from_planes", "in_planes", "to_planes"]

MAX_PLANES = 16


def to_planes(levels: ArrayLike, num_planes: int) -> NDArray[np.uint8]:
    """Bits [N, K D] of whole numbers [N, D]: plane by plane, the highest bits first.

    :raises ValueError: if a number is not whole or not in [0, 2^K).
    """
    _check(num_planes)
    array = np.asarray(levels)
    if array.dtype.kind not in "biuf" or not np.all(
        (array >= 0) & (array < 2**num_planes) & (array == np.floor(array))
    ):
        raise ValueError(f"{num_planes} bit planes hold whole numbers from 0 to {2**num_planes - 1}, got others.")
    # Plane by plane, so that pixels of one plane are neighbours.
    integers = array.astype(np.uint16)
    return np.concatenate([(integers >> plane & 1).astype(np.uint8) for plane in reversed(range(num_planes))], axis=1)


def from_planes(bits: np.ndarray, num_planes: int) -> NDArray[np.integer]:
    """The whole numbers [N, D] of bits [N, K D]; uint8 for at most 8 planes, else uint16.

    :raises ValueError: if the columns are no multiple of K.
    """
    _check(num_planes)
    if bits.shape[1] % num_planes:
        raise ValueError(f"{bits.shape[1]} columns are no {num_planes} planes; give the number that was trained with.")
    planes = bits.reshape(len(bits), num_planes, -1).astype(np.uint16)
    # Plane k, from 0, is worth 2^(K - 1 - k).
    weights = (1 << np.arange(num_planes)[::-1]).astype(np.uint16)
    return np.einsum("nkd,k->nd", planes, weights).astype(np.uint8 if num_planes <= 8 else np.uint16)


def in_planes(data: Rows, num_planes: int) -> Rows:
    """Rows of intensities in [0, 1] (the view "grey") as bit planes of round((2^K - 1) x), one above the other."""
    largest = 2**num_planes - 1
    # Planes of an image stand one above the other, so it is that many times as high.
    parts = {name: Part(to_planes(np.rint(largest * part.X), num_planes), part.Y) for name, part in data.parts.items()}
    shape = None if data.image_shape is None else (num_planes * data.image_shape[0], data.image_shape[1])
    name = f"{data.name} in {num_planes} bit planes"
    return replace(data, name=name, parts=parts, image_shape=shape, feature_names=())


def _check(num_planes: int) -> None:
    if not 1 <= num_planes <= MAX_PLANES:
        raise ValueError(f"the number of bit planes must be from 1 to {MAX_PLANES}, got {num_planes}.")
