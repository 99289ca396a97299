"""The state of an optimizer for a network that was cut."""

import re
from collections.abc import Sequence

import keras
import numpy as np

from .chain import chain
from .cutting import IndexMaps, checked_kept, cut, role_of

__all__ = ["carry_optimizer"]


def carry_optimizer(
    optimizer: keras.optimizers.Optimizer, model: keras.Model, smaller: keras.Model, kept: IndexMaps
) -> keras.optimizers.Optimizer:
    """An optimizer for `smaller` with the state that `optimizer` has for the same weights of `model`.

    Moments (or whatever it keeps for each variable) are sliced; the step count and learning rate are copied.

    :param optimizer: built for `model`.
    :param smaller: from `shrink_bayesian` or `slice_bayesian` on `model`, with these `kept`.
    :raises ValueError: if the optimizer is not built for `model`.
    """
    owners = {id(v): (link.layer, v.name) for link in chain(model) for v in link.layer.trainable_weights}
    trained = [owners[id(variable)] for variable in model.trainable_variables]
    new = type(optimizer).from_config(optimizer.get_config())
    new.build(smaller.trainable_variables)
    slots = _slots(optimizer, [variable.shape for variable in model.trainable_variables])
    if not optimizer.built or not len(optimizer.variables) == len(slots) == len(new.variables):
        raise ValueError("carry_optimizer needs an optimizer that is built for the model: optimizer.build(variables).")
    for old_variable, variable, slot in zip(optimizer.variables, new.variables, slots, strict=True):
        value = np.asarray(old_variable)
        if slot is not None:
            layer, name = trained[slot]
            value = cut(value, role_of(layer, name), checked_kept(layer, kept[layer.name]))
        if value.shape != tuple(variable.shape):
            raise ValueError(f"the optimizer's {old_variable.name} has shape {value.shape}, needed {variable.shape}.")
        variable.assign(value)
    return new


def _slots(optimizer: keras.optimizers.Optimizer, shapes: Sequence[tuple[int, ...]]) -> list[int | None]:
    """For each variable of an optimizer that is built for variables of these shapes, the number of the one that it is
    kept for; None if it is for all of them, such as the step count.

    Optimizers do not tell, and names can be prefixes of one another. So one of the same kind is built for numbered
    stand-ins, in which "7_" at the beginning of a name has one meaning only.
    """
    stand_ins = [keras.Variable(np.zeros([1] * len(shape)), name=str(number)) for number, shape in enumerate(shapes)]
    same_kind = type(optimizer).from_config(optimizer.get_config())
    same_kind.build(stand_ins)
    found = [re.match(r"(\d+)_", variable.name) for variable in same_kind.variables]
    return [None if match is None else int(match[1]) for match in found]
