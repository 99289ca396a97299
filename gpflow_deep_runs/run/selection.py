"""Which evaluation of a run is the best so far, and when to stop looking for a better one."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

__all__ = ["Best", "Rule", "lowest", "newest"]


class Best(NamedTuple):
    """The best evaluation so far: its step and value, how many since were no better; and what else a rule keeps: the
    standard deviation of the value, and whether the value may be trusted."""

    step: int = -1
    value: float = math.inf
    num_worse: int = 0
    std: float = 0.0
    is_trusted: bool = True


Rule = Callable[[int, Best, Mapping[str, float]], Best]
"""(step, best so far, scalars of the evaluation) to the best now. A pure function, so that a resumed run agrees."""


def lowest(tag: str) -> Rule:
    """The evaluation with the smallest scalar `tag`.

    :raises FloatingPointError: by the rule, if the scalar is not finite.
    """

    def rule(step: int, best: Best, scalars: Mapping[str, float]) -> Best:
        value = scalars[tag]
        if not math.isfinite(value):
            raise FloatingPointError(f"{tag} is {value} after step {step}: training has diverged.")
        return Best(step, value) if value < best.value else best._replace(num_worse=best.num_worse + 1)

    return rule


def newest(step: int, best: Best, scalars: Mapping[str, float]) -> Best:
    """The last evaluation: for models that report their last parameters."""
    return Best(step, 0.0)
