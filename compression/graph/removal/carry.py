"""The state of an optimizer for a network that was cut."""

import re
from collections.abc import Sequence

import keras
import numpy as np

from ..graph import graph_of
from .cutting import IndexMaps, Kept, cut, role_of

__all__ = ["carry_optimizer"]


def carry_optimizer(
    optimizer: keras.optimizers.Optimizer, model: keras.Model, smaller: keras.Model, kept: IndexMaps
) -> keras.optimizers.Optimizer:
    """An optimizer for `smaller` with the state that `optimizer` has for the same weights of `model`.

    Moments (or whatever it keeps for each variable) are sliced; the step count and learning rate are copied. Variables
    of the two models are matched by layer and by their order in it.

    :param optimizer: built for `model`.
    :param smaller: from `shrink_bayesian` or `slice_bayesian` on `model`, with these `kept`.
    :raises ValueError: if the optimizer is not built for `model`.
    """
    # Match the variables of both models by layer and by number in it.
    new_places = _places(smaller)
    old_places = _places(model)
    numbers = {place: number for number, (place, _) in enumerate(old_places)}
    new_optimizer = type(optimizer).from_config(optimizer.get_config())
    new_optimizer.build(smaller.trainable_variables)
    # Of each variable of an optimizer, which variable of its model it belongs to.
    old_slots = _slots(optimizer, [variable.shape for variable in model.trainable_variables])
    new_slots = _slots(new_optimizer, [variable.shape for variable in smaller.trainable_variables])
    if (
        not optimizer.built
        or len(optimizer.variables) != len(old_slots)
        or len(new_optimizer.variables) != len(new_slots)
    ):
        raise ValueError("carry_optimizer needs an optimizer that is built for the model: optimizer.build(variables).")
    states = dict(zip(old_slots, optimizer.variables, strict=True))
    for (number, which), variable in zip(new_slots, new_optimizer.variables, strict=True):
        if number is None:
            value = np.asarray(states[None, which])
        else:
            place, _ = new_places[number]
            layer, name = old_places[numbers[place]][1]
            value = np.asarray(states[numbers[place], which])
            # Moments are cut as their weights were; what there is once for all is copied.
            if place[0] in kept:
                value = cut(value, role_of(layer, name), Kept(*map(np.asarray, kept[place[0]])))
        if value.shape != tuple(variable.shape):
            raise ValueError(f"the optimizer's {variable.name} has shape {value.shape}, needed {variable.shape}.")
        variable.assign(value)
    return new_optimizer


def _places(model: keras.Model) -> list[tuple[tuple[str, int], tuple[keras.Layer, str]]]:
    """For each variable that is trained, the name of its layer and its number in it; and the layer, and its name."""
    # Each variable by its layer and its number in it, which a smaller network has, too.
    owners = {
        id(variable): ((node.name, number), (node.layer, variable.name))
        for node in graph_of(model).nodes
        for number, variable in enumerate(getattr(node.layer, "trainable_weights", ()))
    }
    return [owners[id(variable)] for variable in model.trainable_variables]


def _slots(optimizer: keras.optimizers.Optimizer, shapes: Sequence[tuple[int, ...]]) -> list[tuple[int | None, int]]:
    """For each variable of an optimizer that is built for variables of these shapes, the number of the one that it is
    kept for, None if it is for all of them, such as the step count; and which of those for the same one it is.

    Optimizers do not tell, and names can be prefixes of one another. So one of the same kind is built for numbered
    stand-ins, in which "7_" at the beginning of a name has one meaning only.
    """
    # An optimizer of the same kind names its variables after stand-ins, whose names are numbers.
    stand_ins = [keras.Variable(np.zeros([1] * len(shape)), name=str(number)) for number, shape in enumerate(shapes)]
    same_kind = type(optimizer).from_config(optimizer.get_config())
    same_kind.build(stand_ins)
    slots: list[tuple[int | None, int]] = []
    for variable in same_kind.variables:
        match = re.match(r"(\d+)_", variable.name)
        number = None if match is None else int(match[1])
        slots.append((number, sum(other == number for other, _ in slots)))
    return slots
