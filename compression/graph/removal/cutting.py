"""Which inputs and outputs of the layers of a network are kept, and variables without the others."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import keras
import numpy as np

from ...layers.base import BayesianLayer
from ..kinds import is_transposed

__all__ = ["IndexMaps", "Kept", "checked_kept", "compose", "cut", "oriented", "role_of"]


class Kept(NamedTuple):
    """Which inputs (features or channels) and outputs (units or filters) of a layer are kept: sorted integer arrays.

    Both are empty for a layer that is gone. Layers without weights that put channels together have entries as well.
    """

    inputs: np.ndarray
    outputs: np.ndarray


IndexMaps: TypeAlias = "Mapping[str, Kept]"


def compose(first: IndexMaps, second: IndexMaps) -> dict[str, Kept]:
    """Index maps of two cuts in a row, `first` then `second`, relative to what was cut first.

    A layer of `first` that `second` does not have is gone.
    """
    # What the second cut keeps, in numbers of before the first.
    nothing = np.zeros(0, np.int64)
    return {
        name: Kept(*(np.asarray(a)[np.asarray(b, np.int64)] for a, b in zip(first_kept, second[name], strict=True)))
        if name in second
        else Kept(nothing, nothing)
        for name, first_kept in first.items()
    }


def oriented(layer: keras.layers.Layer, values: np.ndarray) -> np.ndarray:
    """A kernel with the axes of inputs and outputs last, in this order; and back again."""
    return values.swapaxes(-1, -2) if is_transposed(layer) else values


def role_of(layer: keras.layers.Layer, name: str) -> str:
    """How a variable of `layer` is cut: see :func:`cut`."""
    if isinstance(layer, BayesianLayer):
        return layer.variable_role(name)
    if isinstance(layer, keras.layers.DepthwiseConv1D | keras.layers.DepthwiseConv2D):
        return "out" if name == "bias" else "depthwise kernel"
    if name == "kernel":
        return "transposed kernel" if is_transposed(layer) else "kernel"
    return "out"


def cut(values: np.ndarray, role: str, kept: Kept) -> np.ndarray:
    """The part of a variable that is kept.

    :param role: "kernel" [..., inputs, outputs], "transposed kernel" [..., outputs, inputs], "depthwise kernel"
        [..., outputs, 1], "in" [..., inputs], "out" [..., outputs], or "scalar", which is not cut.
    """
    # Inputs and outputs are the last two axes of a kernel, in this order or the other.
    if role == "kernel":
        return values[..., kept.inputs, :][..., kept.outputs]
    if role == "transposed kernel":
        return values[..., kept.outputs, :][..., kept.inputs]
    if role == "depthwise kernel":
        return values[..., kept.outputs, :]
    return values if role == "scalar" else values[..., kept.inputs if role == "in" else kept.outputs]


def checked_kept(name: str, kept: Sequence, sizes: tuple[int, int]) -> Kept:
    """Kept inputs and outputs of the layer `name` as int64.

    :param sizes: number of inputs and of outputs of the layer.
    :raises ValueError: if they are not increasing indices in range; both may be empty.
    """
    arrays = [np.asarray(indices) for indices in kept]
    if not any(indices.size for indices in arrays):
        return Kept(*(np.zeros(0, np.int64) for _ in arrays))
    # Increasing indices within the layer, none of them twice.
    for part, indices, size in zip(("inputs", "outputs"), arrays, sizes, strict=True):
        if (
            indices.ndim != 1
            or not indices.size
            or indices[0] < 0
            or indices[-1] >= size
            or np.any(np.diff(indices) < 1)
        ):
            raise ValueError(f"kept {part} of {name} must be increasing indices from 0 to {size - 1}.")
    return Kept(*(indices.astype(np.int64) for indices in arrays))
