"""What `selection` chooses among: sizes, learning rates and weight decay, as random draws and as neighbours."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from gpflow_deep_base.seeds import Seed, as_seed

__all__ = [
    "HIDDEN",
    "NONE",
    "OPTIMIZER",
    "RATES",
    "UNITS",
    "WEIGHT_DECAYS",
    "Candidate",
    "Spaces",
    "as_sizes",
    "draw_candidates",
    "extended",
    "is_beyond",
    "neighbours",
    "value_spaces",
]

#: Stochastic units, tanh units and RMSProp's rates to choose among; the paper's 1e-5 needs too many steps.
HIDDEN = (8, 12, 16, 32, 64, 128, 256)
UNITS = (100, 200, 300, 400, 500)
RATES = (6.75e-5, 2.5e-4, 1e-3, 3e-3)
WEIGHT_DECAYS = (0.0, 0.1, 0.3, 1.0, 3.0)

#: Of all candidates: the paper's RMSProp; validation rows see a running average of the parameters.
OPTIMIZER: Mapping[str, Any] = {"optimizer": "rmsprop", "average": 0.999}

NONE = 0
"""In place of `Candidate.hidden` and `units`: the rival of the best that has no stochastic units."""

Spaces: TypeAlias = Mapping[str, Sequence[Any]]
"""Values of each field of a candidate, in order."""


@dataclass(frozen=True)
class Candidate:
    """What is chosen: stochastic units of one layer (`NONE` for none), tanh units, learning rate and weight decay.

    `hidden` and `units` are what was given, one number a layer, where they are not chosen. `cosine` is the step at
    which the learning rate has fallen to 0, if it does.
    """

    hidden: int | tuple[int, ...]
    units: int | tuple[int, ...]
    learning_rate: float
    weight_decay: float
    cosine: int | None = None


def draw_candidates(number: int, seed: Seed, spaces: Spaces | None = None) -> list[Candidate]:
    """Different candidates in which each value of a field is as frequent as the others, but for one.

    :param spaces: values of each field, in order; all that there are if not given.
    """
    rng, spaces = np.random.default_rng(as_seed(seed).numpy().astype(np.uint32)), spaces or value_spaces()
    number = min(number, math.prod(len(values) for values in spaces.values()))
    found: dict[Candidate, None] = {}
    while len(found) < number:
        columns = [_dealt(values, number, rng) for values in spaces.values()]
        found |= dict.fromkeys(Candidate(*row) for row in zip(*columns, strict=True))
    return list(found)[:number]


def neighbours(of: Candidate, spaces: Spaces) -> list[Candidate]:
    """Candidates that differ in one field, by the next lower or the next higher value: that beyond the end of a space
    for a value at its end."""
    near = []
    for name, values in spaces.items():
        value = getattr(of, name)
        steps = extended(values, value)
        place = steps.index(value)
        near += [dataclasses.replace(of, **{name: steps[i]}) for i in (place - 1, place + 1) if 0 <= i < len(steps)]
    return near


def extended(values: Sequence[Any], value: Any) -> list[Any]:
    """The values of a field and `value`, in order, with one more at each end, as far from it as the next one by its
    ratio. There is none beyond 0, and nothing is added to a field that is not chosen."""
    if len(values) == 1:
        return list(values)
    steps = sorted({*values, value})
    first, last = ((a * a / b) if b else 0 for a, b in ((steps[0], steps[1]), (steps[-1], steps[-2])))
    if isinstance(steps[0], int):
        first, last = (round(end) for end in (first, last))
    return [*([first] if 0 < first < steps[0] else []), *steps, *([last] if last > steps[-1] else [])]


def is_beyond(of: Candidate, spaces: Spaces) -> bool:
    """Whether a value lies beyond the ends of its space."""
    return any(getattr(of, name) not in values for name, values in spaces.items())


def value_spaces(model: Mapping[str, Any] | None = None, training: Mapping[str, Any] | None = None) -> Spaces:
    """Values of each field of a candidate: those to choose among, or the given one. No layers have no units."""
    hidden = _values(model, "hidden", HIDDEN)
    return {
        "hidden": hidden,
        "units": _values(model, "units", ((),) if tuple(hidden) == ((),) else UNITS),
        "learning_rate": _values(training, "learning_rate", RATES),
        "weight_decay": _values(training, "weight_decay", WEIGHT_DECAYS),
    }


def as_sizes(number: int | Sequence[int] | None) -> tuple[int, ...]:
    """Numbers of units of layers, given as one number or several; None and 0 are no layers. They are not checked."""
    if number is None or (isinstance(number, int) and number == 0):
        return ()
    return tuple(np.ravel(number).tolist())


def _dealt(values: Sequence[Any], number: int, rng: np.random.Generator) -> list[Any]:
    """`number` of the values in a random order, each as often as the others, but for one."""
    order = rng.permutation(-(-number // len(values)) * len(values)) % len(values)
    return [values[i] for i in order[:number]]


def _values(given: Mapping[str, Any] | None, name: str, values: Sequence[Any]) -> Sequence[Any]:
    found = (given or {}).get(name)
    return values if found is None else (found,)
