"""Which inputs and outputs of the layers of a network are kept, and variables without the others."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import keras
import numpy as np

from .base import BayesianLayer
from .chain import is_convolution

__all__ = ["IndexMaps", "Kept", "checked_kept", "compose", "cut", "role_of", "units_of"]


class Kept(NamedTuple):
    """Which inputs (features or channels) and outputs (units or filters) of a layer are kept: sorted integer arrays."""

    inputs: np.ndarray
    outputs: np.ndarray


IndexMaps: TypeAlias = "Mapping[str, Kept]"


def compose(first: IndexMaps, second: IndexMaps) -> dict[str, Kept]:
    """Index maps of two cuts in a row, `first` then `second`, relative to what was cut first."""
    return {
        name: Kept(*(np.asarray(a)[np.asarray(b)] for a, b in zip(first[name], kept, strict=True)))
        for name, kept in second.items()
    }


def units_of(layer: keras.layers.Layer) -> int:
    """Units of a dense layer, filters of a convolution."""
    return layer.filters if is_convolution(layer) else layer.units


def role_of(layer: keras.layers.Layer, name: str) -> str:
    """How a variable of `layer` is cut: see `BayesianLayer.variable_role`."""
    if isinstance(layer, BayesianLayer):
        return layer.variable_role(name)
    return "kernel" if name == "kernel" else "out"


def cut(values: np.ndarray, role: str, kept: Kept) -> np.ndarray:
    """The part of a variable that is kept, by its role."""
    if role == "kernel":
        return values[..., kept.inputs, :][..., kept.outputs]
    return values if role == "scalar" else values[kept.inputs if role == "in" else kept.outputs]


def checked_kept(layer: keras.layers.Layer, kept: Sequence) -> Kept:
    """Kept inputs and outputs of `layer` as int64.

    :raises ValueError: if they are not increasing indices in range.
    """
    inputs, outputs = (np.asarray(indices) for indices in kept)
    sizes = (layer.get_weights()[0].shape[-2], units_of(layer))
    for name, indices, size in (("inputs", inputs, sizes[0]), ("outputs", outputs, sizes[1])):
        if (
            indices.ndim != 1
            or not indices.size
            or indices[0] < 0
            or indices[-1] >= size
            or np.any(np.diff(indices) < 1)
        ):
            raise ValueError(f"kept {name} of {layer.name} must be increasing indices from 0 to {size - 1}.")
    return Kept(inputs.astype(np.int64), outputs.astype(np.int64))
