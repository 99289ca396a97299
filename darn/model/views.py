"""A model as a function of its parameters: the same layers, with tensors where the model has variables."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import tensorflow as tf

__all__ = ["with_values"]

Module = TypeVar("Module", bound=tf.Module)


def with_values(module: Module, variables: Sequence[tf.Variable], values: Sequence[tf.Tensor]) -> Module:
    """What `module` would be if its `variables` had these values; neither it nor they are changed.

    :param variables: of `module` or of the modules in it.
    :param values: of their shapes and dtypes.
    :return: modules of the same classes, which hold `values` in place of `variables` and share all else.
    :raises ValueError: if the numbers of variables and values differ.
    """
    of = {variable.ref(): value for variable, value in zip(variables, values, strict=True)}
    return _replaced(module, of)


def _replaced(part: Any, of: Mapping[Any, tf.Tensor]) -> Any:
    if isinstance(part, tf.Variable):
        return of.get(part.ref(), part)
    if isinstance(part, list | tuple):
        return [_replaced(inner, of) for inner in part]
    if not isinstance(part, tf.Module):
        return part
    view = copy.copy(part)
    for name, inner in vars(part).items():
        if not name.startswith("_") and isinstance(inner, tf.Variable | tf.Module | list):
            view.__dict__[name] = _replaced(inner, of)  # not by attribute: TensorFlow would track it
    return view
