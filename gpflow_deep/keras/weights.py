"""The variables of a `tf.Module` as weights of a Keras layer, which Keras trains, counts and saves.

A weight has a variable of its own, which takes the place of the module's. It may come late: a model that learns the
shapes of its inputs by `fit` makes its variables only after a first pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from gpflow.utilities import parameter_dict

__all__ = ["Weights"]


class Weights:
    """A weight of a Keras layer for each variable of a module, with its value, type, name and `trainable` flag.

    :param layer: which is being built.
    :param module: with variables that exist.
    """

    def __init__(self, layer: keras.Layer, module: tf.Module) -> None:
        # Weights have the names of the parameters that the variables belong to, where they have some.
        self._module = module
        self._is_linked = False
        names = {id(parameter.unconstrained_variable): name for name, parameter in parameter_dict(module).items()}
        self._weights = {
            id(variable): layer.add_weight(
                name=re.sub("[^A-Za-z0-9]+", "_", names.get(id(variable), variable.name)).strip("_"),
                shape=tuple(variable.shape),
                dtype=variable.dtype.name,
                initializer=_constant(variable.numpy()),
                trainable=bool(variable.trainable),
                autocast=False,
            )
            for variable in module.variables
        }

    def link(self) -> None:
        """Put the weights' variables into the module, as soon as Keras has made them.

        :raises ValueError: if the module keeps a variable where it cannot be replaced.
        """
        variables = {old: weight.value for old, weight in self._weights.items()}
        if self._is_linked or not all(isinstance(variable, tf.Variable) for variable in variables.values()):
            return
        # Each attribute that holds a variable of the module gets that of Keras; none of them may be left.
        for part in (self._module, *self._module.submodules):
            for name, value in list(vars(part).items()):
                if id(value) in variables:
                    setattr(part, name, variables[id(value)])
        if {id(variable) for variable in self._module.variables} != {id(new) for new in variables.values()}:
            raise ValueError(
                f"every variable of {type(self._module).__name__} must be a Parameter or an attribute of a tf.Module, "
                "so that Keras can train it; keep it as one."
            )
        self._is_linked = True


def _constant(value: np.ndarray) -> Callable[[tuple[int, ...], str], tf.Tensor]:
    """An initializer of Keras."""
    return lambda shape, dtype: tf.constant(value, dtype, shape)
